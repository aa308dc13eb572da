/* Keeps the listening sockets of a program on loopback, for its own user. Loaded by LD_PRELOAD.
 *
 * TensorFlow's server listens on every interface, whatever address its cluster names, and runs
 * the graphs of whoever connects; torch's, gloo's and Horovod's sockets believe whoever does. A
 * TCP socket that is to be bound to the wildcard address is bound to loopback instead; one that
 * listens without having been bound is bound there first. An address that the program names
 * itself is left alone, and so is UDP.
 *
 * Loopback is shared by all users of a machine. A connection that arrives there is given to the
 * program only where the kernel says that a process of the program's user holds its other end;
 * any other is closed, as if it had never come. What the kernel cannot tell is closed, too.
 *
 * TRAINYARD_HELD_PORT names the port that the run's supervisor keeps bound on loopback for this
 * program, so that nobody else is given it. There the program shares the address with it:
 * connections only ever reach a socket that listens, and the supervisor's does not.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef int (*bind_function)(int, const struct sockaddr *, socklen_t);
typedef int (*listen_function)(int, int);
typedef int (*accept_function)(int, struct sockaddr *, socklen_t *);
typedef int (*accept4_function)(int, struct sockaddr *, socklen_t *, int);

/* States of a TCP socket, as linux/tcp.h has them: it is not to be had beside netinet/tcp.h. */
enum { ESTABLISHED = 1, FIN_WAIT1 = 4, FIN_WAIT2 = 5 };
enum { IS_OWN, IS_STRANGERS, IS_CLOSED, IS_UNKNOWN };

static const unsigned char MAPPED_LOOPBACK[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};

static int is_tcp(int fd)
{
    int type = 0;
    socklen_t size = sizeof type;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
}

static void share_held_port(int fd, in_port_t port)
{
    const char *held = getenv("TRAINYARD_HELD_PORT");
    int yes = 1;
    if (held != NULL && port != 0 && atoi(held) == ntohs(port))
        setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes);
}

static int bind_v4(bind_function next, int fd, const struct sockaddr *address, socklen_t length)
{
    struct sockaddr_in own;
    memcpy(&own, address, sizeof own);
    if (own.sin_addr.s_addr == htonl(INADDR_ANY))
        own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (own.sin_addr.s_addr == htonl(INADDR_LOOPBACK))
        share_held_port(fd, own.sin_port);
    return next(fd, (const struct sockaddr *)&own, length);
}

static int bind_v6(bind_function next, int fd, const struct sockaddr *address, socklen_t length)
{
    struct sockaddr_in6 own;
    int only_v6 = 1;
    socklen_t size = sizeof only_v6;
    memcpy(&own, address, sizeof own);
    if (memcmp(&own.sin6_addr, &in6addr_any, sizeof own.sin6_addr) == 0) {
        getsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only_v6, &size);
        /* A socket of both families is reached by 127.0.0.1, which is what a cluster names. */
        if (only_v6)
            own.sin6_addr = in6addr_loopback;
        else
            memcpy(&own.sin6_addr, MAPPED_LOOPBACK, sizeof own.sin6_addr);
    }
    if (memcmp(&own.sin6_addr, MAPPED_LOOPBACK, sizeof own.sin6_addr) == 0)
        share_held_port(fd, own.sin6_port);
    return next(fd, (const struct sockaddr *)&own, length);
}

int bind(int fd, const struct sockaddr *address, socklen_t length)
{
    bind_function next = (bind_function)dlsym(RTLD_NEXT, "bind");
    if (next == NULL) {
        errno = ENOSYS;
        return -1;
    }
    if (address != NULL && is_tcp(fd)) {
        if (length >= sizeof(struct sockaddr_in) && address->sa_family == AF_INET)
            return bind_v4(next, fd, address, length);
        if (length >= sizeof(struct sockaddr_in6) && address->sa_family == AF_INET6)
            return bind_v6(next, fd, address, length);
    }
    return next(fd, address, length);
}

int listen(int fd, int backlog)
{
    listen_function next = (listen_function)dlsym(RTLD_NEXT, "listen");
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    if (next == NULL) {
        errno = ENOSYS;
        return -1;
    }
    memset(&own, 0, sizeof own);
    if (is_tcp(fd) && getsockname(fd, (struct sockaddr *)&own, &size) == 0) {
        /* Port 0: it was never bound, and the kernel would take the wildcard address. */
        if (own.ss_family == AF_INET && ((struct sockaddr_in *)&own)->sin_port == 0)
            bind(fd, (struct sockaddr *)&own, sizeof(struct sockaddr_in));
        if (own.ss_family == AF_INET6 && ((struct sockaddr_in6 *)&own)->sin6_port == 0)
            bind(fd, (struct sockaddr *)&own, sizeof(struct sockaddr_in6));
    }
    return next(fd, backlog);
}

/* One address of a connection as the kernel wants it asked; gives its family. */
static int write_place(const struct sockaddr_storage *address, __be16 *port, __be32 place[4])
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;
    memset(place, 0, 4 * sizeof place[0]);
    if (address->ss_family == AF_INET) {
        *port = v4->sin_port;
        place[0] = v4->sin_addr.s_addr;
        return AF_INET;
    }
    *port = v6->sin6_port;
    memcpy(place, &v6->sin6_addr, sizeof v6->sin6_addr);
    if (!IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
        return AF_INET6;
    place[0] = place[3];
    memset(place + 1, 0, 3 * sizeof place[0]);
    return AF_INET;
}

static int is_on_loopback(int family, const __be32 place[4])
{
    if (family == AF_INET)
        return ntohl(place[0]) >> 24 == 127;
    return memcmp(place, &in6addr_loopback, sizeof in6addr_loopback) == 0;
}

/* Ask the kernel (sock_diag(7)) for the socket that has these addresses; 0 where there is none. */
static int find_socket(int family, const struct inet_diag_sockid *id, struct inet_diag_msg *found)
{
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 body;
    } question;
    char answer[4096] __attribute__((aligned(NLMSG_ALIGNTO)));
    const struct nlmsghdr *head = (const struct nlmsghdr *)answer;
    ssize_t size = -1;
    int kernel = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (kernel < 0)
        return 0;
    memset(&question, 0, sizeof question);
    question.head.nlmsg_len = sizeof question;
    question.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    question.head.nlmsg_flags = NLM_F_REQUEST;
    question.body.sdiag_family = (__u8)family;
    question.body.sdiag_protocol = IPPROTO_TCP;
    question.body.idiag_states = ~0U;
    question.body.id = *id;
    if (send(kernel, &question, sizeof question, 0) == (ssize_t)sizeof question)
        size = recv(kernel, answer, sizeof answer, MSG_DONTWAIT);
    close(kernel);
    if (size < (ssize_t)NLMSG_LENGTH(sizeof *found) || head->nlmsg_type != SOCK_DIAG_BY_FAMILY)
        return 0;
    memcpy(found, NLMSG_DATA(head), sizeof *found);
    return 1;
}

/* Whose the other end of an accepted connection is; `uid` is set where it is a stranger's. */
static int judge_peer(int fd, in_port_t *port, uid_t *uid)
{
    struct sockaddr_storage peer, own;
    socklen_t peer_size = sizeof peer, own_size = sizeof own;
    struct inet_diag_sockid id;
    struct inet_diag_msg found;
    int family;
    memset(&id, 0, sizeof id);
    if (getsockname(fd, (struct sockaddr *)&own, &own_size) != 0)
        return IS_UNKNOWN;
    if (own.ss_family != AF_INET && own.ss_family != AF_INET6)
        return IS_OWN;
    family = write_place(&own, &id.idiag_dport, id.idiag_dst);
    *port = ntohs(id.idiag_dport);
    if (!is_on_loopback(family, id.idiag_dst))
        return IS_OWN;
    if (getpeername(fd, (struct sockaddr *)&peer, &peer_size) != 0)
        return IS_CLOSED;
    write_place(&peer, &id.idiag_sport, id.idiag_src);
    id.idiag_cookie[0] = id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    if (!find_socket(family, &id, &found))
        return IS_UNKNOWN;
    /* Where there is no such connection the kernel gives who listens at the peer's address; older
     * kernels call a socket that is closed already root's, and it has no inode. */
    if (found.id.idiag_dport != id.idiag_dport || found.idiag_inode == 0)
        return IS_CLOSED;
    if (found.idiag_state != ESTABLISHED && found.idiag_state != FIN_WAIT1 &&
        found.idiag_state != FIN_WAIT2)
        return IS_CLOSED;
    *uid = found.idiag_uid;
    return found.idiag_uid == geteuid() ? IS_OWN : IS_STRANGERS;
}

/* The first refusal of a process is told: a stranger could fill a disk with more. */
static void tell(int verdict, in_port_t port, uid_t uid)
{
    static atomic_flag is_told = ATOMIC_FLAG_INIT;
    char why[64] = "its other end is closed already";
    if (atomic_flag_test_and_set(&is_told))
        return;
    if (verdict == IS_STRANGERS)
        snprintf(why, sizeof why, "it is of uid %u, not of uid %u", uid, geteuid());
    if (verdict == IS_UNKNOWN)
        snprintf(why, sizeof why, "the kernel does not tell whose it is");
    dprintf(STDERR_FILENO, "trainyard: refused a connection to port %u: %s\n", port, why);
}

/* Whether the program may have a connection that it accepted; it is closed where not. */
static int is_admitted(int fd)
{
    in_port_t port = 0;
    uid_t uid = 0;
    char first;
    int failed = errno, verdict = is_tcp(fd) ? judge_peer(fd, &port, &uid) : IS_OWN;
    /* One that was opened and closed, as a look whether somebody listens, is nothing to tell. */
    if (verdict != IS_OWN &&
        (verdict != IS_CLOSED || recv(fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) > 0))
        tell(verdict, port, uid);
    if (verdict != IS_OWN)
        close(fd);
    errno = failed;
    return verdict == IS_OWN;
}

int accept(int fd, struct sockaddr *address, socklen_t *length)
{
    accept_function next = (accept_function)dlsym(RTLD_NEXT, "accept");
    const socklen_t room = length != NULL ? *length : 0;
    int taken;
    if (next == NULL) {
        errno = ENOSYS;
        return -1;
    }
    do {
        if (length != NULL)
            *length = room;
        taken = next(fd, address, length);
    } while (taken >= 0 && !is_admitted(taken));
    return taken;
}

int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
    accept4_function next = (accept4_function)dlsym(RTLD_NEXT, "accept4");
    const socklen_t room = length != NULL ? *length : 0;
    int taken;
    if (next == NULL) {
        errno = ENOSYS;
        return -1;
    }
    do {
        if (length != NULL)
            *length = room;
        taken = next(fd, address, length, flags);
    } while (taken >= 0 && !is_admitted(taken));
    return taken;
}
