/*
 * Sockets and epoll over Janus's own TCP stack.
 *
 * A function jn_NAME has the arguments of the libc call NAME, returns what that returns, and sets errno as Linux does. Sockets are TCP over
 * IPv4 or IPv6 (AF_INET, AF_INET6; SOCK_STREAM) and nothing else. Descriptors are ordinary numbers of this process, and no file of the
 * program has the same; but a socket of Janus's is one for these functions only: libc's read() knows nothing of it.
 *
 * The first call starts what is needed, as janus.toml in the working directory and the environment (JANUS_...) say; where that fails, it and
 * all later ones say ENETDOWN, and the reason is on standard error. A child that fork() made has none of it: there every call says EBADF.
 *
 * Any thread may call anything at any time, and several may wait for one socket; but a handler of a signal may call nothing of this.
 */
#ifndef JANUS_H
#define JANUS_H

#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The process. */

/* Starts what is needed now rather than at the first call. 0, or -1 with ENETDOWN (EBADF in a forked child). */
int jn_init(void);
/* Closes all sockets and waits until what was written has been acknowledged, as long as the setting close_ms says. Done at exit() too. From
 * then on every call says EBADF; it cannot be started again. */
void jn_end(void);
/* The library's version, such as "0.1.0". */
const char *jn_version(void);

/* The life of a socket. */

int jn_socket(int domain, int type, int protocol);
int jn_bind(int fd, const struct sockaddr *name, socklen_t len);
int jn_listen(int fd, int backlog);
int jn_accept(int fd, struct sockaddr *name, socklen_t *len);
/* flags: SOCK_NONBLOCK, SOCK_CLOEXEC. */
int jn_accept4(int fd, struct sockaddr *name, socklen_t *len, int flags);
int jn_connect(int fd, const struct sockaddr *name, socklen_t len);
int jn_shutdown(int fd, int how);
/* Closes a socket or an epoll instance of Janus's. EBADF for anything else, which is the kernel's to close. */
int jn_close(int fd);
/* Another name for the same socket. */
int jn_dup(int fd);

int jn_getsockname(int fd, struct sockaddr *name, socklen_t *len);
int jn_getpeername(int fd, struct sockaddr *name, socklen_t *len);
/* Where a client outside reaches what this socket is bound to. Behind the portal that is an address of the machine, and a port that the process
 * may not bind there (below 1024, without privileges) is offered 8000 above. */
int jn_reachable_at(int fd, struct sockaddr *name, socklen_t *len);

int jn_setsockopt(int fd, int level, int name, const void *value, socklen_t len);
int jn_getsockopt(int fd, int level, int name, void *value, socklen_t *len);
/* F_GETFL, F_SETFL, F_GETFD, F_SETFD, F_DUPFD, F_DUPFD_CLOEXEC. The argument is always there, if only as 0. */
int jn_fcntl(int fd, int command, int argument);
/* FIONBIO, FIONREAD, SIOCOUTQ, SIOCOUTQNSD, SIOCATMARK: each with an int. */
int jn_ioctl(int fd, unsigned long request, void *argument);

/* Bytes. */

ssize_t jn_read(int fd, void *into, size_t len);
ssize_t jn_readv(int fd, const struct iovec *parts, int count);
ssize_t jn_recv(int fd, void *into, size_t len, int flags);
/* No name is told: the peer of a stream is known. */
ssize_t jn_recvfrom(int fd, void *into, size_t len, int flags, struct sockaddr *name, socklen_t *name_len);
ssize_t jn_recvmsg(int fd, struct msghdr *message, int flags);

/* Who writes to what is closed gets SIGPIPE and EPIPE, as from the kernel; with MSG_NOSIGNAL only EPIPE. */
ssize_t jn_write(int fd, const void *from, size_t len);
ssize_t jn_writev(int fd, const struct iovec *parts, int count);
ssize_t jn_send(int fd, const void *from, size_t len, int flags);
/* The name does not matter: a stream goes to its peer. */
ssize_t jn_sendto(int fd, const void *from, size_t len, int flags, const struct sockaddr *name, socklen_t name_len);
ssize_t jn_sendmsg(int fd, const struct msghdr *message, int flags);

/* Waiting. Descriptors of Janus's and of the kernel's (files, pipes, eventfds, other sockets) may be mixed freely. */

int jn_poll(struct pollfd *fds, nfds_t count, int timeout);
/* The time is left as it is. */
int jn_select(int count, fd_set *read, fd_set *write, fd_set *except, struct timeval *timeout);
int jn_epoll_create(int size);
/* flags: EPOLL_CLOEXEC. */
int jn_epoll_create1(int flags);
/* A descriptor of the kernel's that was added is to be deleted before it is closed. */
int jn_epoll_ctl(int epfd, int op, int fd, struct epoll_event *event);
int jn_epoll_wait(int epfd, struct epoll_event *into, int max, int timeout);

/* Receiving without a copy. */

/*
 * Received bytes where they lie: in the packet buffer they came in. They stay there, and as they are, until the reference is released or sent;
 * any thread may do either. Each holds a buffer of 2 KiB back from the pool that all connections share: one that is never released is lost to
 * it until the process ends, and a program that holds very many is short of buffers for everything else.
 *
 * Who has seen some bytes may leave them out: data may be moved forwards and len made less before jn_send_ref().
 */
struct jn_ref {
    const void *data;
    size_t len;
    uint64_t key; /* Janus's own. 0: the reference is empty. */
};

/* Gives the next bytes of the stream: how many, at least one; 0 at its end, -1 on an error; then *ref is empty, or as it was. Waits as
 * jn_recv() does; flags: MSG_DONTWAIT, else EOPNOTSUPP. */
ssize_t jn_recv_ref(int fd, struct jn_ref *ref, int flags);
/* Gives the bytes back, and empties *ref. EINVAL if it was released or sent already, also through another copy of it; nothing happens then. */
int jn_release(struct jn_ref *ref);
/* Sends the bytes on any connection, from where they lie, and takes them over: *ref is empty then. How many were sent: all, or, of a socket that
 * does not wait (or no longer: SO_SNDTIMEO), as many as there was room for, and *ref has the rest. After -1 it is as it was. EPIPE comes without
 * SIGPIPE. */
ssize_t jn_send_ref(int fd, struct jn_ref *ref);

#ifdef __cplusplus
}
#endif

#endif
