// A blob store that forgets content at once: it stands for Azure at the network's edge.
//
//     blob_sink PORT_FILE [DELAY_MS]
//
// Speaks as much of Blob REST as uploads need, on 127.0.0.1 and one core, and answers each
// request DELAY_MS after its last byte came. It believes whatever signature and MD5 it is told:
// whether a client is right is for Azurite to judge, this is for how fast one is.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <deque>
#include <unordered_map>

#include "blobs.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Connection {
    uint64_t serial = 0;
    std::string in;  // heads, and the bodies that are kept
    std::string out;
    Request request;
    bool in_body = false;
    bool waiting = false;  // for its answer's time to come
    bool is_full = false;  // its socket took no more of `out`
    uint64_t left = 0;     // of the body
    std::string body;
};

struct Due {
    Clock::time_point when;
    int fd;
    uint64_t serial;
    std::string text;
};

std::string answer_text(const Request& request, const Answer& answer) {
    bool head = request.method == "HEAD";
    uint64_t length = head ? answer.head_bytes : answer.body.size();
    std::string text = "HTTP/1.1 " + std::to_string(answer.status) +
                       (answer.status < 300 ? " OK" : " Refused") +
                       "\r\nServer: blob_sink\r\nx-ms-request-id: 0\r\nx-ms-version: 2021-12-02"
                       "\r\nDate: " + http_date(time(nullptr)) +
                       "\r\nContent-Length: " + std::to_string(length) + "\r\n" +
                       answer.headers + "\r\n";
    return head ? text : text + answer.body;
}

class Sink {
  public:
    Sink(int listener, int delay_ms) : listener_(listener), delay_(delay_ms) {
        epoll_ = epoll_create1(0);
        watch(listener_, EPOLLIN, EPOLL_CTL_ADD);
    }

    void serve() {
        epoll_event events[256];
        for (;;) {
            int count = epoll_wait(epoll_, events, 256, wait_ms());
            for (int i = 0; i < count; ++i) {
                int fd = events[i].data.fd;
                if (fd == listener_) accept_all();
                else handle(fd, events[i].events);
            }
            give_due();
        }
    }

  private:
    void watch(int fd, uint32_t events, int operation) {
        epoll_event event{};
        event.events = events;
        event.data.fd = fd;
        epoll_ctl(epoll_, operation, fd, &event);
    }

    int wait_ms() const {
        if (due_.empty()) return -1;
        auto left = std::chrono::duration_cast<std::chrono::microseconds>(due_.front().when -
                                                                          Clock::now());
        return left.count() <= 0 ? 0 : static_cast<int>((left.count() + 999) / 1000);
    }

    void accept_all() {
        for (;;) {
            int fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK);
            if (fd < 0) return;
            int one = 1;
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
            connections_[fd] = Connection{};
            connections_[fd].serial = ++serials_;
            watch(fd, EPOLLIN, EPOLL_CTL_ADD);
        }
    }

    void handle(int fd, uint32_t events) {
        auto found = connections_.find(fd);
        if (found == connections_.end()) return;
        Connection& connection = found->second;
        if ((events & EPOLLOUT) && !flush(fd, connection)) return;
        if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(fd, connection);
    }

    void receive(int fd, Connection& connection) {
        static char buffer[256 << 10];
        for (;;) {
            // The body of a file is dropped by the kernel: copying it is the client's cost alone.
            bool drop = connection.in_body && connection.left > 0 &&
                        connection.request.body_bytes > KEPT_BODY_BYTES &&
                        connection.request.argument("comp") != "blocklist";
            size_t want = drop ? std::min<uint64_t>(connection.left, 64 << 20) : sizeof buffer;
            ssize_t got = recv(fd, drop ? nullptr : buffer, want, drop ? MSG_TRUNC : 0);
            if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
            if (got <= 0) return end(fd);
            if (drop) connection.left -= got;
            else connection.in.append(buffer, got);
            if (!advance(fd, connection)) return;
            if (static_cast<size_t>(got) < want) return;
        }
    }

    // Takes what has come as far as it goes; false where the connection is gone.
    bool advance(int fd, Connection& connection) {
        while (!connection.waiting) {
            if (!connection.in_body) {
                size_t end_of_head = connection.in.find("\r\n\r\n");
                if (end_of_head == std::string::npos) return true;
                std::string_view head(connection.in.data(), end_of_head);
                if (!parse_head(head, connection.request)) return end(fd), false;
                connection.in.erase(0, end_of_head + 4);
                connection.in_body = true;
                connection.left = connection.request.body_bytes;
                connection.body.clear();
                if (connection.request.header("expect") == "100-continue") {
                    connection.out += "HTTP/1.1 100 Continue\r\n\r\n";
                    if (!flush(fd, connection)) return false;
                }
            }
            size_t taken = std::min<uint64_t>(connection.left, connection.in.size());
            bool keep = connection.request.body_bytes <= KEPT_BODY_BYTES ||
                        connection.request.argument("comp") == "blocklist";
            if (keep) connection.body.append(connection.in, 0, taken);
            connection.in.erase(0, taken);
            connection.left -= taken;
            if (connection.left > 0) return true;
            connection.in_body = false;
            std::string text = answer_text(
                connection.request, container_.answer(connection.request, connection.body));
            if (delay_.count() == 0) {
                connection.out += text;
                if (!flush(fd, connection)) return false;
            } else {
                connection.waiting = true;
                due_.push_back({Clock::now() + delay_, fd, connection.serial, std::move(text)});
            }
        }
        return true;
    }

    void give_due() {
        auto now = Clock::now();
        while (!due_.empty() && due_.front().when <= now) {
            Due due = std::move(due_.front());
            due_.pop_front();
            auto found = connections_.find(due.fd);
            if (found == connections_.end() || found->second.serial != due.serial) continue;
            found->second.waiting = false;
            found->second.out += due.text;
            if (flush(due.fd, found->second)) advance(due.fd, found->second);
        }
    }

    // False where the connection is gone.
    bool flush(int fd, Connection& connection) {
        while (!connection.out.empty()) {
            ssize_t sent = send(fd, connection.out.data(), connection.out.size(), MSG_NOSIGNAL);
            if (sent < 0 && errno == EAGAIN) {
                if (!connection.is_full) watch(fd, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
                connection.is_full = true;
                return true;
            }
            if (sent < 0) return end(fd), false;
            connection.out.erase(0, sent);
        }
        if (connection.is_full) watch(fd, EPOLLIN, EPOLL_CTL_MOD);
        connection.is_full = false;
        return true;
    }

    void end(int fd) {
        connections_.erase(fd);
        close(fd);
    }

    int listener_;
    int epoll_;
    std::chrono::milliseconds delay_;
    uint64_t serials_ = 0;
    Container container_;
    std::unordered_map<int, Connection> connections_;
    std::deque<Due> due_;  // one delay for all: in order of time
};

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // whoever measures may be killed
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(listener, reinterpret_cast<sockaddr*>(&address), size) || listen(listener, 1024)) {
        perror("listen");
        return 1;
    }
    getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
    std::string partial = std::string(argv[1]) + ".partial";
    FILE* file = fopen(partial.c_str(), "w");
    if (!file) return 1;
    fprintf(file, "%d\n", ntohs(address.sin_port));
    fclose(file);
    rename(partial.c_str(), argv[1]);
    Sink(listener, argc > 2 ? atoi(argv[2]) : 0).serve();
}
