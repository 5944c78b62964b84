/*
 * Each call of janus.h as a C program makes it: what it returns and which errno it sets. Both ends of the connections are in this process.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "janus.h"

/* Milliseconds in which everything here has happened long ago. */
#define LONG 10000

static void fail(int line, const char *what)
{
    fprintf(stderr, "unit.c:%d: %s (errno %d: %s)\n", line, what, errno, strerror(errno));
    exit(1);
}

#define CHECK(it)                                                                                                                              \
    do {                                                                                                                                       \
        errno = 0;                                                                                                                             \
        if (!(it))                                                                                                                             \
            fail(__LINE__, #it);                                                                                                               \
    } while (0)

/* The call says -1 and this error. */
#define FAILS(call, error)                                                                                                                     \
    do {                                                                                                                                       \
        errno = 0;                                                                                                                             \
        if ((call) != -1 || errno != (error))                                                                                                  \
            fail(__LINE__, #call " should say " #error);                                                                                       \
    } while (0)

static struct sockaddr_in loopback(int port)
{
    struct sockaddr_in name;
    memset(&name, 0, sizeof name);
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    name.sin_port = htons((uint16_t)port);
    return name;
}

static struct sockaddr *plain(struct sockaddr_in *name)
{
    return (struct sockaddr *)name;
}

/* A listener, and the address at which a client reaches it. */
static int listener(struct sockaddr_in *name)
{
    socklen_t len = sizeof *name;
    struct sockaddr_in any = loopback(0);
    int fd = jn_socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd > 2);
    CHECK(jn_bind(fd, plain(&any), sizeof any) == 0);
    CHECK(jn_listen(fd, 16) == 0);
    CHECK(jn_reachable_at(fd, plain(name), &len) == 0);
    CHECK(len == sizeof *name && name->sin_port != 0);
    return fd;
}

/* Both ends of a connection. */
static void pair(int ends[2])
{
    struct sockaddr_in name;
    int door = listener(&name);
    ends[0] = jn_socket(AF_INET, SOCK_STREAM, IPPROTO_TCP);
    CHECK(ends[0] > 2);
    CHECK(jn_connect(ends[0], plain(&name), sizeof name) == 0);
    ends[1] = jn_accept(door, NULL, NULL);
    CHECK(ends[1] > 2);
    CHECK(jn_close(door) == 0);
}

static void close_pair(int ends[2])
{
    CHECK(jn_close(ends[0]) == 0);
    CHECK(jn_close(ends[1]) == 0);
}

static int ready(int fd, short events)
{
    struct pollfd it = {fd, events, 0};
    CHECK(jn_poll(&it, 1, LONG) == 1);
    return it.revents;
}

static void what_is_no_socket(void)
{
    char byte = 0;
    struct sockaddr_in name = loopback(1);
    socklen_t len = sizeof name;
    struct jn_ref ref = {NULL, 0, 0};
    struct epoll_event event = {0, {0}};
    int ep = jn_epoll_create1(EPOLL_CLOEXEC);
    int fresh = jn_socket(AF_INET, SOCK_STREAM, 0);
    CHECK(ep > 2 && fresh > 2);
    FAILS(jn_bind(-1, plain(&name), len), EBADF);
    FAILS(jn_listen(999, 1), EBADF);
    FAILS(jn_accept(999, NULL, NULL), EBADF);
    FAILS(jn_connect(999, plain(&name), len), EBADF);
    FAILS(jn_read(999, &byte, 1), EBADF);
    FAILS(jn_write(999, &byte, 1), EBADF);
    FAILS(jn_recv_ref(999, &ref, 0), EBADF);
    FAILS(jn_send_ref(999, &ref), EINVAL);
    FAILS(jn_release(&ref), EINVAL);
    FAILS(jn_release(NULL), EFAULT);
    FAILS(jn_close(0), EBADF);
    FAILS(jn_dup(999), EBADF);
    FAILS(jn_fcntl(999, F_GETFL, 0), EBADF);
    FAILS(jn_shutdown(999, SHUT_WR), EBADF);
    FAILS(jn_recv(ep, &byte, 1, 0), ENOTSOCK);
    FAILS(jn_epoll_ctl(fresh, EPOLL_CTL_ADD, ep, &event), EINVAL);
    FAILS(jn_epoll_ctl(ep, EPOLL_CTL_MOD, fresh, &event), ENOENT);
    FAILS(jn_epoll_ctl(ep, EPOLL_CTL_ADD, fresh, NULL), EFAULT);
    FAILS(jn_epoll_wait(fresh, &event, 1, 0), EINVAL);
    FAILS(jn_epoll_wait(ep, &event, 0, 0), EINVAL);
    FAILS(jn_epoll_create(0), EINVAL);
    FAILS(jn_socket(AF_UNIX, SOCK_STREAM, 0), EAFNOSUPPORT);
    FAILS(jn_socket(AF_INET, SOCK_DGRAM, 0), ESOCKTNOSUPPORT);
    FAILS(jn_accept(fresh, NULL, NULL), EINVAL);
    FAILS(jn_recv(fresh, &byte, 1, 0), ENOTCONN);
    FAILS(jn_send(fresh, &byte, 1, MSG_NOSIGNAL), EPIPE);
    FAILS(jn_shutdown(fresh, SHUT_WR), ENOTCONN);
    FAILS(jn_getpeername(fresh, plain(&name), &len), ENOTCONN);
    FAILS(jn_bind(fresh, NULL, 0), EFAULT);
    FAILS(jn_bind(fresh, plain(&name), 2), EINVAL);
    FAILS(jn_setsockopt(fresh, SOL_SOCKET, 9999, &byte, 1), EINVAL);
    CHECK(jn_close(fresh) == 0);
    FAILS(jn_close(fresh), EBADF);
    CHECK(jn_close(ep) == 0);
}

static void connecting(void)
{
    struct sockaddr_in name, own, peer;
    socklen_t len = sizeof own;
    int error = -1, on = 1, told = 0, fd, door, accepted;
    door = listener(&name);
    fd = jn_socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(fd > 2);
    CHECK((jn_fcntl(fd, F_GETFL, 0) & O_NONBLOCK) != 0);
    FAILS(jn_connect(fd, plain(&name), sizeof name), EINPROGRESS);
    CHECK((ready(fd, POLLOUT) & POLLOUT) != 0);
    len = sizeof error;
    CHECK(jn_getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0);
    CHECK(error == 0 && len == sizeof error);
    CHECK(jn_connect(fd, plain(&name), sizeof name) == 0);
    FAILS(jn_connect(fd, plain(&name), sizeof name), EISCONN);
    len = sizeof peer;
    accepted = jn_accept4(door, plain(&peer), &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    CHECK(accepted > 2 && len == sizeof peer);
    CHECK((jn_fcntl(accepted, F_GETFD, 0) & FD_CLOEXEC) != 0);
    CHECK(jn_getpeername(fd, plain(&own), &len) == 0);
    CHECK(own.sin_port == name.sin_port && own.sin_addr.s_addr == name.sin_addr.s_addr);
    CHECK(jn_getsockname(accepted, plain(&own), &len) == 0);
    CHECK(own.sin_family == AF_INET && own.sin_port == name.sin_port);
    CHECK(jn_setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
    len = sizeof told;
    CHECK(jn_getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &told, &len) == 0 && told == 1);
    CHECK(jn_close(fd) == 0 && jn_close(accepted) == 0);
    /* Nobody listens there any more. */
    CHECK(jn_close(door) == 0);
    fd = jn_socket(AF_INET, SOCK_STREAM, 0);
    FAILS(jn_connect(fd, plain(&name), sizeof name), ECONNREFUSED);
    CHECK(jn_close(fd) == 0);
    fd = jn_socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    FAILS(jn_connect(fd, plain(&name), sizeof name), EINPROGRESS);
    CHECK((ready(fd, POLLOUT) & POLLERR) != 0);
    len = sizeof error;
    CHECK(jn_getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == ECONNREFUSED);
    CHECK(jn_close(fd) == 0);
}

static void bytes(void)
{
    int ends[2], other, there = -1, on = 1;
    char into[64];
    struct iovec parts[2] = {{(void *)"gathered ", 9}, {(void *)"bytes", 5}};
    struct iovec room[2] = {{into, 4}, {into + 4, 60}};
    struct msghdr message;
    pair(ends);
    CHECK(jn_write(ends[0], "hello", 5) == 5);
    CHECK((ready(ends[1], POLLIN) & POLLIN) != 0);
    CHECK(jn_ioctl(ends[1], FIONREAD, &there) == 0 && there == 5);
    CHECK(jn_recv(ends[1], into, sizeof into, MSG_PEEK) == 5);
    CHECK(jn_read(ends[1], into, 2) == 2);
    CHECK(jn_recvfrom(ends[1], into, sizeof into, 0, NULL, NULL) == 3 && memcmp(into, "llo", 3) == 0);
    CHECK(jn_writev(ends[0], parts, 2) == 14);
    CHECK(jn_recv(ends[1], into, 14, MSG_WAITALL) == 14 && memcmp(into, "gathered bytes", 14) == 0);
    memset(&message, 0, sizeof message);
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    CHECK(jn_sendmsg(ends[1], &message, 0) == 14);
    CHECK((ready(ends[0], POLLIN) & POLLIN) != 0);
    CHECK(jn_readv(ends[0], room, 2) == 14 && memcmp(into, "gathered bytes", 14) == 0);
    CHECK(jn_sendto(ends[0], "to", 2, 0, NULL, 0) == 2);
    message.msg_iov = room;
    CHECK(jn_recvmsg(ends[1], &message, 0) == 2 && memcmp(into, "to", 2) == 0);
    FAILS(jn_recv(ends[1], into, 1, MSG_DONTWAIT), EAGAIN);
    CHECK(jn_ioctl(ends[1], FIONBIO, &on) == 0);
    FAILS(jn_read(ends[1], into, 1), EAGAIN);
    FAILS(jn_ioctl(ends[1], 0x5401 /* TCGETS */, into), ENOTTY);
    FAILS(jn_read(ends[1], NULL, 1), EFAULT);
    /* The other name is the same socket. */
    other = jn_dup(ends[0]);
    CHECK(other > 2 && other != ends[0]);
    CHECK(jn_fcntl(ends[0], F_DUPFD_CLOEXEC, 300) >= 300);
    CHECK(jn_close(ends[0]) == 0);
    CHECK(jn_write(other, "x", 1) == 1);
    CHECK((ready(ends[1], POLLIN) & POLLIN) != 0);
    CHECK(jn_read(ends[1], into, 8) == 1 && into[0] == 'x');
    CHECK(jn_shutdown(other, SHUT_WR) == 0);
    CHECK((ready(ends[1], POLLIN | POLLRDHUP) & POLLRDHUP) != 0);
    CHECK(jn_read(ends[1], into, 8) == 0);
    FAILS(jn_send(other, "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK(jn_write(ends[1], "back", 4) == 4);
    CHECK(jn_recv(other, into, 4, MSG_WAITALL) == 4);
    ends[0] = other;
    close_pair(ends);
}

static void references(void)
{
    int ends[2];
    char into[16];
    struct jn_ref ref, copy;
    pair(ends);
    FAILS(jn_recv_ref(ends[1], &ref, MSG_DONTWAIT), EAGAIN);
    FAILS(jn_recv_ref(ends[1], &ref, MSG_PEEK), EOPNOTSUPP);
    FAILS(jn_recv_ref(ends[1], NULL, 0), EFAULT);
    CHECK(jn_write(ends[0], "lent", 4) == 4);
    CHECK(jn_recv_ref(ends[1], &ref, 0) == 4);
    CHECK(ref.len == 4 && memcmp(ref.data, "lent", 4) == 0);
    copy = ref;
    CHECK(jn_release(&ref) == 0);
    CHECK(ref.data == NULL && ref.len == 0 && ref.key == 0);
    FAILS(jn_release(&ref), EINVAL);
    FAILS(jn_release(&copy), EINVAL);
    CHECK(jn_write(ends[0], ">echo", 5) == 5);
    CHECK(jn_recv_ref(ends[1], &ref, 0) == 5);
    FAILS(jn_send_ref(999, &ref), EBADF);
    CHECK(ref.len == 5);
    ref.data = (const char *)ref.data + 1;
    FAILS(jn_send_ref(ends[1], &ref), EINVAL);
    ref.len -= 1;
    copy = ref;
    CHECK(jn_send_ref(ends[1], &ref) == 4);
    CHECK(ref.key == 0);
    FAILS(jn_send_ref(ends[1], &copy), EINVAL);
    CHECK(jn_recv(ends[0], into, 4, MSG_WAITALL) == 4 && memcmp(into, "echo", 4) == 0);
    CHECK(jn_shutdown(ends[0], SHUT_WR) == 0);
    CHECK(jn_recv_ref(ends[1], &ref, 0) == 0);
    CHECK(ref.key == 0);
    close_pair(ends);
}

/* Waits for events: which data they have, as bits. */
static int happened(int ep, int timeout)
{
    struct epoll_event events[8];
    int i, bits = 0, count = jn_epoll_wait(ep, events, 8, timeout);
    CHECK(count >= 0);
    for (i = 0; i < count; i++)
        bits |= 1 << events[i].data.u32;
    return bits;
}

static int watch(int ep, int op, int fd, uint32_t events, uint32_t data)
{
    struct epoll_event event;
    memset(&event, 0, sizeof event);
    event.events = events;
    event.data.u32 = data;
    return jn_epoll_ctl(ep, op, fd, &event);
}

static void epoll_mixed(void)
{
    int ends[2], pipes[2], ep = jn_epoll_create(1), bell = eventfd(0, EFD_NONBLOCK);
    uint64_t number = 1;
    char into[8];
    pair(ends);
    CHECK(ep > 2 && bell > 2 && pipe(pipes) == 0);
    CHECK(watch(ep, EPOLL_CTL_ADD, ends[1], EPOLLIN, 0) == 0);
    CHECK(watch(ep, EPOLL_CTL_ADD, pipes[0], EPOLLIN, 1) == 0);
    CHECK(watch(ep, EPOLL_CTL_ADD, bell, EPOLLIN, 2) == 0);
    FAILS(watch(ep, EPOLL_CTL_ADD, ends[1], EPOLLIN, 0), EEXIST);
    FAILS(watch(ep, EPOLL_CTL_ADD, bell, EPOLLIN, 0), EEXIST);
    CHECK(happened(ep, 0) == 0);
    /* Level: as long as it is so. */
    CHECK(jn_write(ends[0], "a", 1) == 1);
    CHECK(happened(ep, LONG) == 1);
    CHECK(happened(ep, LONG) == 1);
    CHECK(jn_read(ends[1], into, 1) == 1);
    CHECK(write(pipes[1], "p", 1) == 1);
    CHECK(happened(ep, LONG) == 2);
    CHECK(write(bell, &number, sizeof number) == sizeof number);
    CHECK(happened(ep, LONG) == 6);
    CHECK(jn_write(ends[0], "b", 1) == 1);
    CHECK((ready(ends[1], POLLIN) & POLLIN) != 0);
    CHECK(happened(ep, LONG) & 1);
    CHECK(read(pipes[0], into, 1) == 1);
    CHECK(read(bell, &number, sizeof number) == sizeof number);
    /* Edge: once for each arrival. */
    CHECK(watch(ep, EPOLL_CTL_MOD, ends[1], EPOLLIN | EPOLLET, 3) == 0);
    CHECK(happened(ep, LONG) == 8);
    CHECK(happened(ep, 20) == 0);
    CHECK(jn_write(ends[0], "c", 1) == 1);
    CHECK(happened(ep, LONG) == 8);
    CHECK(happened(ep, 20) == 0);
    /* Once at all, until it is asked again. */
    CHECK(watch(ep, EPOLL_CTL_MOD, ends[1], EPOLLIN | EPOLLONESHOT, 4) == 0);
    CHECK(happened(ep, LONG) == 16);
    CHECK(happened(ep, 20) == 0);
    CHECK(watch(ep, EPOLL_CTL_MOD, ends[1], EPOLLIN | EPOLLONESHOT, 5) == 0);
    CHECK(happened(ep, LONG) == 32);
    CHECK(watch(ep, EPOLL_CTL_DEL, bell, 0, 0) == 0);
    FAILS(watch(ep, EPOLL_CTL_DEL, bell, 0, 0), ENOENT);
    CHECK(watch(ep, EPOLL_CTL_DEL, ends[1], 0, 0) == 0);
    CHECK(jn_close(ep) == 0 && close(bell) == 0 && close(pipes[0]) == 0 && close(pipes[1]) == 0);
    close_pair(ends);
}

static void poll_and_select_mixed(void)
{
    int ends[2], pipes[2], most;
    char into[8];
    fd_set set, out;
    struct timeval shortly = {0, 20000}, long_time = {LONG / 1000, 0};
    pair(ends);
    CHECK(pipe(pipes) == 0);
    {
        struct pollfd both[3] = {{ends[1], POLLIN, 0}, {pipes[0], POLLIN, 0}, {-1, POLLIN, 7}};
        struct pollfd closed = {999, POLLIN, 0};
        CHECK(jn_poll(both, 3, 20) == 0);
        CHECK(write(pipes[1], "p", 1) == 1);
        CHECK(jn_poll(both, 3, LONG) == 1 && both[0].revents == 0 && both[1].revents == POLLIN);
        CHECK(jn_write(ends[0], "a", 1) == 1);
        CHECK(read(pipes[0], into, 1) == 1);
        CHECK(jn_poll(both, 3, LONG) == 1 && both[0].revents == POLLIN && both[1].revents == 0 && both[2].revents == 0);
        CHECK(jn_poll(&closed, 1, LONG) == 1 && closed.revents == POLLNVAL);
    }
    most = (ends[1] > pipes[0] ? ends[1] : pipes[0]) + 1;
    FD_ZERO(&set);
    FD_SET(ends[1], &set);
    FD_SET(pipes[0], &set);
    CHECK(jn_select(most, &set, NULL, NULL, &long_time) == 1);
    CHECK(FD_ISSET(ends[1], &set) && !FD_ISSET(pipes[0], &set));
    CHECK(jn_read(ends[1], into, 1) == 1);
    FD_SET(pipes[0], &set);
    CHECK(jn_select(most, &set, NULL, NULL, &shortly) == 0);
    CHECK(!FD_ISSET(ends[1], &set) && !FD_ISSET(pipes[0], &set));
    FD_ZERO(&out);
    FD_SET(ends[1], &out);
    FD_SET(pipes[0], &set);
    CHECK(write(pipes[1], "p", 1) == 1);
    CHECK(jn_select(most, &set, &out, NULL, NULL) == 2);
    CHECK(FD_ISSET(ends[1], &out) && FD_ISSET(pipes[0], &set));
    FD_SET(999, &set);
    FAILS(jn_select(1000, &set, NULL, NULL, &shortly), EBADF);
    CHECK(close(pipes[0]) == 0 && close(pipes[1]) == 0);
    close_pair(ends);
}

static void *echo(void *argument)
{
    int fd = *(int *)argument;
    struct jn_ref ref;
    ssize_t len;
    while ((len = jn_recv_ref(fd, &ref, 0)) > 0)
        if (jn_send_ref(fd, &ref) != len)
            fail(__LINE__, "an echo");
    if (len != 0)
        fail(__LINE__, "the end of an echo");
    return NULL;
}

/* Blocking calls in two threads, much more than any buffer holds. */
static void threads(void)
{
    enum { ALL = 1000000, PIECE = 10000 };
    static char out[PIECE], back[PIECE];
    int ends[2], done;
    pthread_t other;
    pair(ends);
    CHECK(pthread_create(&other, NULL, echo, &ends[1]) == 0);
    for (done = 0; done < ALL; done += PIECE) {
        memset(out, done / PIECE, sizeof out);
        CHECK(jn_write(ends[0], out, PIECE) == PIECE);
        CHECK(jn_recv(ends[0], back, PIECE, MSG_WAITALL) == PIECE);
        CHECK(memcmp(out, back, PIECE) == 0);
    }
    CHECK(jn_shutdown(ends[0], SHUT_WR) == 0);
    CHECK(pthread_join(other, NULL) == 0);
    close_pair(ends);
}

static volatile sig_atomic_t rings;

static void ring(int signal)
{
    (void)signal;
    rings++;
}

/* SIGALRM comes every 20 ms. */
static void alarms(int flags)
{
    struct sigaction action;
    struct itimerval often = {{0, 20000}, {0, 20000}};
    memset(&action, 0, sizeof action);
    action.sa_handler = ring;
    action.sa_flags = flags;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
}

static void no_alarms(void)
{
    struct itimerval never = {{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    CHECK(signal(SIGALRM, SIG_DFL) != SIG_ERR);
}

static void signals(void)
{
    int ends[2], ep = jn_epoll_create1(0);
    char byte;
    struct pollfd it = {-1, POLLIN, 0};
    struct epoll_event event;
    struct timeval patience = {0, 100000};
    pair(ends);
    it.fd = ends[0];
    alarms(0);
    FAILS(jn_read(ends[0], &byte, 1), EINTR);
    FAILS(jn_poll(&it, 1, LONG), EINTR);
    FAILS(jn_epoll_wait(ep, &event, 1, LONG), EINTR);
    no_alarms();
    /* With SA_RESTART reading goes on, waiting for readiness never does, and what has a time of its own neither. */
    alarms(SA_RESTART);
    FAILS(jn_poll(&it, 1, LONG), EINTR);
    rings = 0;
    CHECK(jn_setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    FAILS(jn_read(ends[0], &byte, 1), EINTR);
    no_alarms();
    FAILS(jn_read(ends[0], &byte, 1), EAGAIN);
    CHECK(jn_poll(NULL, 0, 5) == 0);
    patience.tv_usec = 5000;
    CHECK(jn_select(0, NULL, NULL, NULL, &patience) == 0);
    /* Who writes to what is closed is told by a signal, unless he says that an error is enough. */
    CHECK(signal(SIGPIPE, ring) != SIG_ERR);
    rings = 0;
    CHECK(jn_shutdown(ends[0], SHUT_WR) == 0);
    FAILS(jn_send(ends[0], "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK(rings == 0);
    FAILS(jn_write(ends[0], "x", 1), EPIPE);
    CHECK(rings == 1);
    CHECK(signal(SIGPIPE, SIG_DFL) != SIG_ERR);
    CHECK(jn_close(ep) == 0);
    close_pair(ends);
}

static void *write_later(void *argument)
{
    usleep(100000);
    if (jn_write(*(int *)argument, "late", 4) != 4)
        fail(__LINE__, "a write");
    return NULL;
}

/* A read that many signals interrupt gets what comes all the same. */
static void a_read_goes_on(void)
{
    int ends[2];
    char into[4];
    pthread_t other;
    sigset_t set;
    pair(ends);
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    /* The signals are this thread's. */
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    CHECK(pthread_create(&other, NULL, write_later, &ends[1]) == 0);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0);
    rings = 0;
    alarms(SA_RESTART);
    CHECK(jn_recv(ends[0], into, 4, MSG_WAITALL) == 4 && memcmp(into, "late", 4) == 0);
    no_alarms();
    CHECK(rings > 1);
    CHECK(pthread_join(other, NULL) == 0);
    close_pair(ends);
}

static void a_child_has_nothing(void)
{
    int ends[2], status = 0;
    char byte = 0;
    pid_t child;
    pair(ends);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        FAILS(jn_write(ends[0], "x", 1), EBADF);
        FAILS(jn_socket(AF_INET, SOCK_STREAM, 0), EBADF);
        FAILS(jn_init(), EBADF);
        jn_end();
        /* With the functions of atexit(), which must not touch the parent's connections either. */
        exit(7);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    CHECK(jn_write(ends[0], "y", 1) == 1);
    CHECK(jn_read(ends[1], &byte, 1) == 1 && byte == 'y');
    close_pair(ends);
}

int main(void)
{
    CHECK(jn_init() == 0);
    CHECK(jn_version()[0] >= '0');
    what_is_no_socket();
    connecting();
    bytes();
    references();
    epoll_mixed();
    poll_and_select_mixed();
    threads();
    signals();
    a_read_goes_on();
    a_child_has_nothing();
    jn_end();
    FAILS(jn_socket(AF_INET, SOCK_STREAM, 0), EBADF);
    jn_end();
    puts("ok");
    return 0;
}
