/*
 * The calls of mTCP's programming interface over those of janus.h, for programs that were written for it. Written from what it documents.
 *
 * What differs: there is one stack for all threads, so a context is a name without a stack of its own and any thread may use any socket;
 * sockets may share a port, so that each thread can have its listener as there. mTCP's configuration file is not read, janus.toml is. Calls
 * return and set errno as libc's do.
 */
#ifndef MTCP_API_H
#define MTCP_API_H

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "janus.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef INPORT_ANY
#define INPORT_ANY (uint16_t)0
#endif

#ifdef SO_REUSEPORT
#define JN_REUSEPORT SO_REUSEPORT
#else /* Strict C hides its name. */
#define JN_REUSEPORT 15
#endif

enum socket_type {
    MTCP_SOCK_UNUSED,
    MTCP_SOCK_STREAM, /* SOCK_STREAM */
    MTCP_SOCK_PROXY,
    MTCP_SOCK_LISTENER,
    MTCP_SOCK_EPOLL,
    MTCP_SOCK_PIPE
};

/* Kept and given back; Janus's settings say how large buffers are and how long things last. */
struct mtcp_conf {
    int num_cores;
    int max_concurrency;
    int max_num_buffers;
    int rcvbuf_size;
    int sndbuf_size;
    int tcp_timewait;
    int tcp_timeout;
};

struct mtcp_context {
    int cpu;
};

typedef struct mtcp_context *mctx_t;
typedef void (*mtcp_sighandler_t)(int);

/* One for the whole program, however many of its files include this. */
__attribute__((weak)) struct mtcp_conf jn_mtcp_conf = {1, 10000, 10000, 8192, 8192, 0, 30};

/* The process. */

static inline int mtcp_init(const char *config_file)
{
    (void)config_file;
    return jn_init();
}

static inline void mtcp_destroy(void)
{
    jn_end();
}

static inline int mtcp_getconf(struct mtcp_conf *conf)
{
    if (conf == NULL)
        return -1;
    *conf = jn_mtcp_conf;
    return 0;
}

static inline int mtcp_setconf(const struct mtcp_conf *conf)
{
    if (conf == NULL)
        return -1;
    jn_mtcp_conf = *conf;
    return 0;
}

static inline mtcp_sighandler_t mtcp_register_signal(int signum, mtcp_sighandler_t handler)
{
    return signal(signum, handler);
}

/* Contexts. */

/* Keeps the calling thread on a processor. */
static inline int mtcp_core_affinitize(int cpu)
{
    unsigned long set[16] = {0};
    const int bits = (int)(8 * sizeof set[0]);
#ifndef __cplusplus
    extern long syscall(long, ...);
#endif
    if (cpu < 0 || cpu >= 16 * bits) {
        errno = EINVAL;
        return -1;
    }
    set[cpu / bits] = 1ul << (cpu % bits);
    return (int)syscall(SYS_sched_setaffinity, 0, sizeof set, set);
}

static inline mctx_t mtcp_create_context(int cpu)
{
    mctx_t mctx = jn_init() == 0 ? (mctx_t)malloc(sizeof *mctx) : NULL;
    if (mctx != NULL)
        mctx->cpu = cpu;
    return mctx;
}

/* The sockets that were made with it stay open until they are closed, or the program ends. */
static inline void mtcp_destroy_context(mctx_t mctx)
{
    free(mctx);
}

/* Nothing to prepare: replies come to the thread that asks for them. */
static inline int mtcp_init_rss(mctx_t mctx, in_addr_t saddr_base, int num_addr, in_addr_t daddr, in_addr_t dport)
{
    (void)mctx;
    (void)saddr_base;
    (void)num_addr;
    (void)daddr;
    (void)dport;
    return 0;
}

/* Sockets. */

static inline int mtcp_socket(mctx_t mctx, int domain, int type, int protocol)
{
    const int on = 1;
    const int fd = jn_socket(domain, type, protocol);
    (void)mctx;
    if (fd >= 0) {
        jn_setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        jn_setsockopt(fd, SOL_SOCKET, JN_REUSEPORT, &on, sizeof on);
    }
    return fd;
}

static inline int mtcp_bind(mctx_t mctx, int sockid, const struct sockaddr *addr, socklen_t addrlen)
{
    (void)mctx;
    return jn_bind(sockid, addr, addrlen);
}

static inline int mtcp_listen(mctx_t mctx, int sockid, int backlog)
{
    (void)mctx;
    return jn_listen(sockid, backlog);
}

static inline int mtcp_accept(mctx_t mctx, int sockid, struct sockaddr *addr, socklen_t *addrlen)
{
    (void)mctx;
    return jn_accept(sockid, addr, addrlen);
}

static inline int mtcp_connect(mctx_t mctx, int sockid, const struct sockaddr *addr, socklen_t addrlen)
{
    (void)mctx;
    return jn_connect(sockid, addr, addrlen);
}

static inline int mtcp_close(mctx_t mctx, int sockid)
{
    (void)mctx;
    return jn_close(sockid);
}

/* Closes with a reset. */
static inline int mtcp_abort(mctx_t mctx, int sockid)
{
    const struct linger none = {1, 0};
    (void)mctx;
    if (jn_setsockopt(sockid, SOL_SOCKET, SO_LINGER, &none, sizeof none) != 0)
        return -1;
    return jn_close(sockid);
}

static inline int mtcp_getsockname(mctx_t mctx, int sockid, struct sockaddr *addr, socklen_t *addrlen)
{
    (void)mctx;
    return jn_getsockname(sockid, addr, addrlen);
}

static inline int mtcp_getpeername(mctx_t mctx, int sockid, struct sockaddr *addr, socklen_t *addrlen)
{
    (void)mctx;
    return jn_getpeername(sockid, addr, addrlen);
}

static inline int mtcp_getsockopt(mctx_t mctx, int sockid, int level, int optname, void *optval, socklen_t *optlen)
{
    (void)mctx;
    return jn_getsockopt(sockid, level, optname, optval, optlen);
}

static inline int mtcp_setsockopt(mctx_t mctx, int sockid, int level, int optname, const void *optval, socklen_t optlen)
{
    (void)mctx;
    return jn_setsockopt(sockid, level, optname, optval, optlen);
}

static inline int mtcp_setsock_nonblock(mctx_t mctx, int sockid)
{
    const int flags = jn_fcntl(sockid, F_GETFL, 0);
    (void)mctx;
    return flags < 0 ? -1 : jn_fcntl(sockid, F_SETFL, flags | O_NONBLOCK);
}

static inline int mtcp_socket_ioctl(mctx_t mctx, int sockid, int request, void *argp)
{
    (void)mctx;
    return jn_ioctl(sockid, (unsigned long)request, argp);
}

/* There is none: a pipe of the kernel's can be watched beside sockets (jn_epoll_ctl). */
static inline int mtcp_pipe(mctx_t mctx, int pipeid[2])
{
    (void)mctx;
    (void)pipeid;
    errno = ENOSYS;
    return -1;
}

/* Bytes. */

static inline ssize_t mtcp_read(mctx_t mctx, int sockid, char *buf, size_t len)
{
    (void)mctx;
    return jn_read(sockid, buf, len);
}

static inline ssize_t mtcp_recv(mctx_t mctx, int sockid, char *buf, size_t len, int flags)
{
    (void)mctx;
    return jn_recv(sockid, buf, len, flags);
}

static inline int mtcp_readv(mctx_t mctx, int sockid, const struct iovec *iov, int numIOV)
{
    (void)mctx;
    return (int)jn_readv(sockid, iov, numIOV);
}

/* Without a signal: EPIPE says enough. */
static inline ssize_t mtcp_write(mctx_t mctx, int sockid, const char *buf, size_t len)
{
    (void)mctx;
    return jn_send(sockid, buf, len, MSG_NOSIGNAL);
}

static inline int mtcp_writev(mctx_t mctx, int sockid, const struct iovec *iov, int numIOV)
{
    struct msghdr message = {NULL, 0, NULL, 0, NULL, 0, 0};
    (void)mctx;
    message.msg_iov = (struct iovec *)iov;
    message.msg_iovlen = (size_t)numIOV;
    return (int)jn_sendmsg(sockid, &message, MSG_NOSIGNAL);
}

#ifdef __cplusplus
}
#endif

#endif
