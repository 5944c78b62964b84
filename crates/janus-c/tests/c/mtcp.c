/*
 * A program in mTCP's style: each thread has a context, a listener on the same port and an epoll of its own, and echoes; a client in another
 * thread connects, writes and reads back.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "mtcp_api.h"
#include "mtcp_epoll.h"

#define CORES 2
#define CONNECTIONS 64
#define EVENTS 30

static int port;
static volatile int ends;
static int echoed[CORES];

static void fail(int line, const char *what)
{
    fprintf(stderr, "mtcp.c:%d: %s: %s\n", line, what, strerror(errno));
    exit(1);
}

#define CHECK(it)                                                                                                                              \
    do {                                                                                                                                       \
        if (!(it))                                                                                                                             \
            fail(__LINE__, #it);                                                                                                               \
    } while (0)

static void watch(mctx_t mctx, int ep, int sockid, uint32_t events)
{
    struct mtcp_epoll_event ev;
    ev.events = events;
    ev.data.sockid = sockid;
    CHECK(mtcp_epoll_ctl(mctx, ep, MTCP_EPOLL_CTL_ADD, sockid, &ev) == 0);
}

static int listener(mctx_t mctx)
{
    struct sockaddr_in name;
    socklen_t len = sizeof name;
    int sock = mtcp_socket(mctx, AF_INET, MTCP_SOCK_STREAM, 0);
    CHECK(sock >= 0);
    CHECK(mtcp_setsock_nonblock(mctx, sock) == 0);
    memset(&name, 0, sizeof name);
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = INADDR_ANY;
    name.sin_port = htons((uint16_t)port);
    CHECK(mtcp_bind(mctx, sock, (struct sockaddr *)&name, len) == 0);
    CHECK(mtcp_listen(mctx, sock, 128) == 0);
    CHECK(mtcp_getsockname(mctx, sock, (struct sockaddr *)&name, &len) == 0);
    port = ntohs(name.sin_port);
    return sock;
}

struct server {
    int core;
    mctx_t mctx;
    int listener;
};

/* Echoes what there is. 0: it is over. */
static int echo(mctx_t mctx, int sock, int *count)
{
    char buf[512];
    for (;;) {
        ssize_t got = mtcp_read(mctx, sock, buf, sizeof buf);
        if (got < 0 && errno == EAGAIN)
            return 1;
        if (got <= 0)
            return 0;
        CHECK(mtcp_write(mctx, sock, buf, (size_t)got) == got);
        ++*count;
    }
}

static void *serve(void *argument)
{
    struct server *server = argument;
    struct mtcp_epoll_event events[EVENTS];
    int ep, i;
    mtcp_core_affinitize(0);
    ep = mtcp_epoll_create(server->mctx, EVENTS);
    CHECK(ep >= 0);
    watch(server->mctx, ep, server->listener, MTCP_EPOLLIN);
    while (!ends) {
        int count = mtcp_epoll_wait(server->mctx, ep, events, EVENTS, 10);
        CHECK(count >= 0 || errno == EINTR);
        for (i = 0; i < count; i++) {
            int sock = events[i].data.sockid;
            if (sock == server->listener) {
                while ((sock = mtcp_accept(server->mctx, server->listener, NULL, NULL)) >= 0) {
                    CHECK(mtcp_setsock_nonblock(server->mctx, sock) == 0);
                    watch(server->mctx, ep, sock, MTCP_EPOLLIN | MTCP_EPOLLET);
                    echo(server->mctx, sock, &echoed[server->core]);
                }
            } else if (!echo(server->mctx, sock, &echoed[server->core])) {
                mtcp_epoll_ctl(server->mctx, ep, MTCP_EPOLL_CTL_DEL, sock, NULL);
                mtcp_close(server->mctx, sock);
            }
        }
    }
    CHECK(mtcp_close(server->mctx, ep) == 0);
    return NULL;
}

static void ask(mctx_t mctx, const struct sockaddr_in *name, int number)
{
    char out[16], back[16];
    struct iovec parts[2];
    int len = snprintf(out, sizeof out, "hello %d", number), got = 0, there = 0, error = -1;
    socklen_t error_len = sizeof error;
    int sock = mtcp_socket(mctx, AF_INET, SOCK_STREAM, 0);
    CHECK(sock >= 0);
    CHECK(mtcp_connect(mctx, sock, (const struct sockaddr *)name, sizeof *name) == 0);
    CHECK(mtcp_getsockopt(mctx, sock, SOL_SOCKET, SO_ERROR, &error, &error_len) == 0 && error == 0);
    parts[0].iov_base = out;
    parts[0].iov_len = 3;
    parts[1].iov_base = out + 3;
    parts[1].iov_len = (size_t)len - 3;
    CHECK(mtcp_writev(mctx, sock, parts, 2) == len);
    while (got < len) {
        ssize_t more = mtcp_recv(mctx, sock, back + got, sizeof back - (size_t)got, 0);
        CHECK(more > 0);
        got += (int)more;
    }
    CHECK(memcmp(out, back, (size_t)len) == 0);
    CHECK(mtcp_socket_ioctl(mctx, sock, FIONREAD, &there) == 0 && there == 0);
    CHECK(number % 2 == 0 ? mtcp_close(mctx, sock) == 0 : mtcp_abort(mctx, sock) == 0);
}

int main(void)
{
    struct mtcp_conf conf;
    struct sockaddr_in name;
    socklen_t len = sizeof name;
    struct server servers[CORES];
    pthread_t threads[CORES];
    mctx_t mctx;
    int i, all = 0;
    CHECK(mtcp_getconf(&conf) == 0);
    conf.num_cores = CORES;
    CHECK(mtcp_setconf(&conf) == 0);
    CHECK(mtcp_init("mtcp.conf") == 0);
    CHECK(mtcp_register_signal(SIGPIPE, SIG_IGN) == SIG_DFL);
    for (i = 0; i < CORES; i++) {
        servers[i].core = i;
        servers[i].mctx = mtcp_create_context(i);
        CHECK(servers[i].mctx != NULL);
        servers[i].listener = listener(servers[i].mctx);
        CHECK(pthread_create(&threads[i], NULL, serve, &servers[i]) == 0);
    }
    mctx = mtcp_create_context(0);
    CHECK(mctx != NULL);
    CHECK(jn_reachable_at(servers[0].listener, (struct sockaddr *)&name, &len) == 0);
    CHECK(mtcp_init_rss(mctx, INADDR_ANY, 1, name.sin_addr.s_addr, name.sin_port) == 0);
    for (i = 0; i < CONNECTIONS; i++)
        ask(mctx, &name, i);
    ends = 1;
    for (i = 0; i < CORES; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK(echoed[i] > 0);
        CHECK(mtcp_close(servers[i].mctx, servers[i].listener) == 0);
        mtcp_destroy_context(servers[i].mctx);
        all += echoed[i];
    }
    CHECK(all >= CONNECTIONS);
    mtcp_destroy_context(mctx);
    mtcp_destroy();
    puts("ok");
    return 0;
}
