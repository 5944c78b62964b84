/* mTCP's epoll over that of janus.h; see mtcp_api.h. */
#ifndef MTCP_EPOLL_H
#define MTCP_EPOLL_H

#include "mtcp_api.h"

#ifdef __cplusplus
extern "C" {
#endif

enum mtcp_epoll_op {
    MTCP_EPOLL_CTL_ADD = EPOLL_CTL_ADD,
    MTCP_EPOLL_CTL_DEL = EPOLL_CTL_DEL,
    MTCP_EPOLL_CTL_MOD = EPOLL_CTL_MOD
};

/* Their values are Linux's. */
enum mtcp_event_type {
    MTCP_EPOLLNONE = 0x000,
    MTCP_EPOLLIN = 0x001,
    MTCP_EPOLLPRI = 0x002,
    MTCP_EPOLLOUT = 0x004,
    MTCP_EPOLLERR = 0x008,
    MTCP_EPOLLHUP = 0x010,
    MTCP_EPOLLRDNORM = 0x040,
    MTCP_EPOLLRDBAND = 0x080,
    MTCP_EPOLLWRNORM = 0x100,
    MTCP_EPOLLWRBAND = 0x200,
    MTCP_EPOLLMSG = 0x400,
    MTCP_EPOLLRDHUP = 0x2000,
    MTCP_EPOLLONESHOT = 0x40000000,
    MTCP_EPOLLET = -0x7fffffff - 1 /* The highest bit. */
};

typedef union mtcp_epoll_data {
    void *ptr;
    int sockid;
    uint32_t u32;
    uint64_t u64;
} mtcp_epoll_data_t;

struct mtcp_epoll_event {
    uint32_t events;
    mtcp_epoll_data_t data;
};

static inline int mtcp_epoll_create(mctx_t mctx, int size)
{
    (void)mctx;
    return jn_epoll_create(size);
}

static inline int mtcp_epoll_create1(mctx_t mctx, int flags)
{
    (void)mctx;
    return jn_epoll_create1(flags);
}

static inline int mtcp_epoll_ctl(mctx_t mctx, int epid, int op, int sockid, struct mtcp_epoll_event *event)
{
    struct epoll_event ours = {0, {0}};
    (void)mctx;
    if (event == NULL)
        return jn_epoll_ctl(epid, op, sockid, NULL);
    ours.events = event->events;
    ours.data.u64 = event->data.u64;
    return jn_epoll_ctl(epid, op, sockid, &ours);
}

/* Tells of 256 at once at most; the others are told by the next call. */
static inline int mtcp_epoll_wait(mctx_t mctx, int epid, struct mtcp_epoll_event *events, int maxevents, int timeout)
{
    struct epoll_event ours[256];
    int i, told;
    (void)mctx;
    told = jn_epoll_wait(epid, ours, maxevents < 256 ? maxevents : 256, timeout);
    for (i = 0; i < told; i++) {
        events[i].events = ours[i].events;
        events[i].data.u64 = ours[i].data.u64;
    }
    return told;
}

#ifdef __cplusplus
}
#endif

#endif
