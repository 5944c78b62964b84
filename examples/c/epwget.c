/*
 * Gets a URL many times over Janus's sockets, many at a time and each over a connection of its own, and says how fast that was.
 *
 *     epwget [-n TOTAL] [-c CONCURRENCY] [-t SECONDS] URL
 *
 * TOTAL connections are made, CONCURRENCY at most at a time; one on which nothing happens for SECONDS has failed. An answer is right if its
 * status is 200 and it is as long as it says. The program succeeds if all are right.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "janus.h"

#define EVENTS 256
#define HEAD_MAX 8192

struct connection {
    int fd; /* -1: free. */
    int connected;
    size_t asked;   /* Bytes of the request that were sent. */
    size_t head;    /* Bytes of the answer's head, while it is read. */
    int in_body;    /* All of it was read. */
    int has_length; /* The head says how long the body is. */
    long long left; /* Then: bytes of it to come. */
    double heard;   /* When something happened last. */
    char text[HEAD_MAX + 1];
};

static struct sockaddr_storage server;
static socklen_t server_len;
static char *request;
static size_t request_len;

static long total = 1000, begun, done, wrong;
static unsigned long long received;
static double patience = 10;
static const char *first_error;
static int first_errno;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void fail(const char *what)
{
    wrong++;
    if (first_error == NULL) {
        first_error = what;
        first_errno = errno;
    }
}

/* Takes a URL apart: finds the server, writes the request. */
static void read_url(const char *url)
{
    struct addrinfo hints, *found;
    char *copy, *host, *port, *path;
    int error;
    if (strncmp(url, "http://", 7) != 0 || (copy = strdup(url + 7)) == NULL) {
        fprintf(stderr, "epwget: a URL looks like http://host:port/path\n");
        exit(2);
    }
    path = strchr(copy, '/');
    if (path != NULL)
        *path++ = '\0';
    request_len = strlen(url) + 128;
    request = malloc(request_len);
    if (request == NULL)
        exit(1);
    request_len = (size_t)sprintf(request, "GET /%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path != NULL ? path : "", copy);
    host = copy;
    if (*host == '[') { /* IPv6 */
        host++;
        port = strchr(host, ']');
        if (port != NULL)
            *port++ = '\0';
        port = port != NULL && *port == ':' ? port + 1 : NULL;
    } else {
        port = strchr(host, ':');
        if (port != NULL)
            *port++ = '\0';
    }
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    error = getaddrinfo(host, port != NULL ? port : "80", &hints, &found);
    if (error != 0) {
        fprintf(stderr, "epwget: %s: %s\n", host, gai_strerror(error));
        exit(1);
    }
    memcpy(&server, found->ai_addr, found->ai_addrlen);
    server_len = found->ai_addrlen;
    freeaddrinfo(found);
    free(copy);
}

static int watch(int ep, int op, struct connection *it, uint32_t events)
{
    struct epoll_event event;
    event.events = events;
    event.data.ptr = it;
    return jn_epoll_ctl(ep, op, it->fd, &event);
}

static void end(struct connection *it)
{
    if (it->fd >= 0)
        jn_close(it->fd);
    it->fd = -1;
    done++;
}

static void begin(int ep, struct connection *it)
{
    begun++;
    it->connected = it->in_body = it->has_length = 0;
    it->asked = it->head = 0;
    it->left = 0;
    it->heard = now();
    it->fd = jn_socket(server.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (it->fd < 0) {
        fail("socket");
        end(it);
    } else if (jn_connect(it->fd, (struct sockaddr *)&server, server_len) != 0 && errno != EINPROGRESS) {
        fail("connect");
        end(it);
    } else if (watch(ep, EPOLL_CTL_ADD, it, EPOLLOUT) != 0) {
        fail("epoll");
        end(it);
    }
}

/* Begins the next connection where the last has ended, if there is to be one more. */
static void go_on(int ep, struct connection *it)
{
    while (it->fd < 0 && begun < total)
        begin(ep, it);
}

/* The connection stands, or there is room. 0: it has failed. */
static int ask(int ep, struct connection *it)
{
    ssize_t sent;
    if (!it->connected) {
        int error = 0;
        socklen_t len = sizeof error;
        if (jn_getsockopt(it->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0 || error != 0) {
            errno = error;
            fail("connect");
            return 0;
        }
        it->connected = 1;
    }
    while (it->asked < request_len) {
        sent = jn_send(it->fd, request + it->asked, request_len - it->asked, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN)
            return 1;
        if (sent < 0) {
            fail("send");
            return 0;
        }
        it->asked += (size_t)sent;
    }
    if (watch(ep, EPOLL_CTL_MOD, it, EPOLLIN) != 0) {
        fail("epoll");
        return 0;
    }
    return 1;
}

/* Reads what is there of the head. 0: it is none of HTTP's, or not the one that is wanted. */
static int understand(struct connection *it)
{
    char *end, *line;
    size_t body;
    it->text[it->head] = '\0';
    end = strstr(it->text, "\r\n\r\n");
    if (end == NULL)
        return it->head < HEAD_MAX;
    *end = '\0';
    if (strncmp(it->text, "HTTP/1.", 7) != 0 || strncmp(it->text + 8, " 200", 4) != 0)
        return 0;
    for (line = strstr(it->text, "\r\n"); line != NULL; line = strstr(line + 2, "\r\n")) {
        if (strncasecmp(line + 2, "Content-Length:", 15) == 0) {
            it->has_length = 1;
            it->left = atoll(line + 17);
        }
    }
    it->in_body = 1;
    body = it->head - (size_t)(end + 4 - it->text);
    it->left -= (long long)body;
    return 1;
}

/* Reads what has come. 0: it is over, well or not. */
static int hear(struct connection *it)
{
    static char body[65536];
    for (;;) {
        ssize_t got;
        if (it->in_body)
            got = jn_read(it->fd, body, sizeof body);
        else
            got = jn_read(it->fd, it->text + it->head, HEAD_MAX - it->head);
        if (got < 0 && errno == EAGAIN)
            return 1;
        if (got < 0) {
            fail("read");
            return 0;
        }
        if (got == 0) {
            errno = 0;
            if (!it->in_body || (it->has_length && it->left > 0))
                fail("an answer ends too early");
            return 0;
        }
        received += (unsigned long long)got;
        if (it->in_body) {
            it->left -= got;
        } else {
            it->head += (size_t)got;
            if (!understand(it)) {
                errno = 0;
                fail("an answer that is not 200");
                return 0;
            }
        }
        if (it->in_body && it->has_length && it->left < 0) {
            errno = 0;
            fail("an answer is longer than it says");
            return 0;
        }
    }
}

/* Those on which nothing happens any more. */
static void end_silent(int ep, struct connection *all, long concurrency)
{
    double limit = now() - patience;
    long i;
    for (i = 0; i < concurrency; i++) {
        if (all[i].fd >= 0 && all[i].heard < limit) {
            errno = ETIMEDOUT;
            fail("silence");
            end(&all[i]);
            go_on(ep, &all[i]);
        }
    }
}

static int report(double seconds)
{
    printf("connections  %ld\n", done);
    printf("errors       %ld\n", wrong);
    printf("bytes        %llu\n", received);
    printf("seconds      %.3f\n", seconds);
    printf("rate         %.0f connections/s, %.1f MB/s\n", (double)done / seconds, (double)received / seconds / 1e6);
    if (first_error != NULL)
        fprintf(stderr, "epwget: the first error: %s%s%s\n", first_error, first_errno != 0 ? ": " : "",
                first_errno != 0 ? strerror(first_errno) : "");
    return wrong != 0;
}

int main(int argc, char **argv)
{
    long concurrency = 100, i;
    int option, ep;
    double start, looked;
    struct connection *all;
    struct epoll_event events[EVENTS];
    while ((option = getopt(argc, argv, "n:c:t:")) != -1) {
        if (option == 'n')
            total = atol(optarg);
        else if (option == 'c')
            concurrency = atol(optarg);
        else if (option == 't')
            patience = atof(optarg);
        else
            total = 0;
    }
    if (optind + 1 != argc || total < 1 || concurrency < 1 || patience <= 0) {
        fprintf(stderr, "usage: epwget [-n TOTAL] [-c CONCURRENCY] [-t SECONDS] URL\n");
        return 2;
    }
    read_url(argv[optind]);
    if (concurrency > total)
        concurrency = total;
    all = malloc((size_t)concurrency * sizeof *all);
    if (all == NULL || jn_init() != 0 || (ep = jn_epoll_create1(EPOLL_CLOEXEC)) < 0) {
        perror("epwget");
        return 1;
    }
    start = looked = now();
    for (i = 0; i < concurrency; i++) {
        all[i].fd = -1;
        go_on(ep, &all[i]);
    }
    while (done < total) {
        int k, count = jn_epoll_wait(ep, events, EVENTS, 100);
        if (count < 0 && errno != EINTR) {
            perror("epwget");
            return 1;
        }
        for (k = 0; k < count; k++) {
            struct connection *it = events[k].data.ptr;
            it->heard = now();
            if (it->asked < request_len ? !ask(ep, it) : !hear(it)) {
                end(it);
                go_on(ep, it);
            }
        }
        if (now() - looked > 0.1) {
            looked = now();
            end_silent(ep, all, concurrency);
        }
    }
    i = report(now() - start);
    jn_close(ep);
    free(all);
    free(request);
    jn_end();
    return (int)i;
}
