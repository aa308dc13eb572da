/* Keeps the listening sockets of a program on the loopback interface. Loaded by LD_PRELOAD.
 *
 * TensorFlow's server listens on every interface, whatever address its cluster names, and runs
 * the graphs of whoever connects. A TCP socket that is to be bound to the wildcard address is
 * bound to loopback instead; one that listens without having been bound is bound there first. An
 * address that the program names itself is left alone, and so is UDP.
 *
 * TRAINYARD_HELD_PORT names the port that the run's supervisor keeps bound on loopback for this
 * program, so that nobody else is given it. There the program shares the address with it:
 * connections only ever reach a socket that listens, and the supervisor's does not.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

typedef int (*bind_function)(int, const struct sockaddr *, socklen_t);
typedef int (*listen_function)(int, int);

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
