/*
 * A server of static files over HTTP, on Janus's sockets. One thread waits with jn_epoll_wait for connections of Janus's and for signals of the
 * kernel's at once; the files of a directory are read into memory at its start, and sent from there.
 *
 *     epserver [-p PORT] [-a ADDRESS] DIRECTORY
 *
 * Answers GET and HEAD, keeps a connection as long as its client wants, and takes requests that come before the last was answered. SIGINT and
 * SIGTERM end it; it says how much it did.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "janus.h"

#define EVENTS 256
#define REQUEST_MAX 8192
#define HEAD_MAX 256

struct file {
    char *name;
    char *bytes;
    size_t len;
};

struct connection {
    int fd;
    int stays;   /* Its client wants it kept after this answer. */
    int waits;   /* For room to write, and not for requests. */
    size_t used; /* Bytes in request. */
    char request[REQUEST_MAX];
    char head[HEAD_MAX];
    struct iovec answer[2]; /* What is left of it: head and file. */
};

static struct file *files;
static size_t file_count;
static unsigned long connections, requests;
static unsigned long long sent_bytes;

static void die(const char *what)
{
    fprintf(stderr, "epserver: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void load(const char *directory, const char *name)
{
    char path[4096];
    struct stat about;
    struct file *file;
    FILE *from;
    if (snprintf(path, sizeof path, "%s/%s", directory, name) >= (int)sizeof path)
        return;
    if (stat(path, &about) != 0 || !S_ISREG(about.st_mode))
        return;
    files = realloc(files, (file_count + 1) * sizeof *files);
    if (files == NULL)
        die("memory");
    file = &files[file_count++];
    file->len = (size_t)about.st_size;
    file->name = strdup(name);
    file->bytes = malloc(file->len + 1);
    from = fopen(path, "rb");
    if (file->name == NULL || file->bytes == NULL || from == NULL)
        die(path);
    /* One that became shorter meanwhile is as long as what was read. */
    file->len = fread(file->bytes, 1, file->len, from);
    fclose(from);
}

static void load_all(const char *directory)
{
    struct dirent *entry;
    DIR *all = opendir(directory);
    if (all == NULL)
        die(directory);
    while ((entry = readdir(all)) != NULL)
        load(directory, entry->d_name);
    closedir(all);
}

/* The file that a path of a request names; / is index.html. */
static const struct file *find(const char *path, size_t len)
{
    size_t i;
    const char *query = memchr(path, '?', len);
    if (query != NULL)
        len = (size_t)(query - path);
    if (len == 0 || path[0] != '/')
        return NULL;
    if (len == 1) {
        path = "/index.html";
        len = strlen(path);
    }
    for (i = 0; i < file_count; i++)
        if (strlen(files[i].name) == len - 1 && memcmp(files[i].name, path + 1, len - 1) == 0)
            return &files[i];
    return NULL;
}

static void answer(struct connection *it, const char *status, const struct file *file, int with_body)
{
    static const struct file nothing = {NULL, NULL, 0};
    int len;
    if (file == NULL)
        file = &nothing;
    len = snprintf(it->head, sizeof it->head, "HTTP/1.1 %s\r\nContent-Length: %zu\r\nConnection: %s\r\n\r\n", status, file->len,
                   it->stays ? "keep-alive" : "close");
    it->answer[0].iov_base = it->head;
    it->answer[0].iov_len = (size_t)len;
    it->answer[1].iov_base = file->bytes;
    it->answer[1].iov_len = with_body ? file->len : 0;
    requests++;
}

/* Whether a request's head has a field of this name that says this. */
static int field_says(const char *head, const char *name, const char *value)
{
    size_t len = strlen(name);
    const char *line;
    for (line = strstr(head, "\r\n"); line != NULL; line = strstr(line, "\r\n")) {
        line += 2;
        if (strncasecmp(line, name, len) == 0 && line[len] == ':') {
            const char *said = line + len + 1;
            while (*said == ' ' || *said == '\t')
                said++;
            return strncasecmp(said, value, strlen(value)) == 0;
        }
    }
    return 0;
}

/* Begins to answer the first request that is there whole. 0: there is none. */
static int take_request(struct connection *it)
{
    char *end = memmem(it->request, it->used, "\r\n\r\n", 4);
    char *path, *path_end, *line_end;
    size_t taken;
    int is_get, is_head;
    if (end == NULL) {
        if (it->used == sizeof it->request) {
            it->stays = 0;
            it->used = 0;
            answer(it, "431 Request Header Fields Too Large", NULL, 0);
            return 1;
        }
        return 0;
    }
    taken = (size_t)(end - it->request) + 4;
    *end = '\0';
    line_end = strstr(it->request, "\r\n");
    if (line_end == NULL)
        line_end = end;
    is_get = strncmp(it->request, "GET ", 4) == 0;
    is_head = strncmp(it->request, "HEAD ", 5) == 0;
    path = it->request + (is_head ? 5 : 4);
    path_end = is_get || is_head ? memchr(path, ' ', (size_t)(line_end - path)) : NULL;
    if (path_end == NULL) {
        /* Where its body ends is not known. */
        it->stays = 0;
        answer(it, "405 Method Not Allowed", NULL, 0);
    } else {
        const struct file *file = find(path, (size_t)(path_end - path));
        if (strncmp(path_end, " HTTP/1.0", 9) == 0)
            it->stays = field_says(it->request, "Connection", "keep-alive");
        else
            it->stays = !field_says(it->request, "Connection", "close");
        answer(it, file != NULL ? "200 OK" : "404 Not Found", file, is_get);
    }
    it->used -= taken;
    memmove(it->request, it->request + taken, it->used);
    return 1;
}

/* Sends what is left of the answer. 1: all of it, 0: there is no more room, -1: the connection is broken. */
static int send_answer(struct connection *it)
{
    while (it->answer[0].iov_len + it->answer[1].iov_len > 0) {
        ssize_t sent = jn_writev(it->fd, it->answer, 2);
        size_t part, left;
        int i;
        if (sent < 0)
            return errno == EAGAIN ? 0 : -1;
        sent_bytes += (unsigned long long)sent;
        for (i = 0, left = (size_t)sent; i < 2; i++, left -= part) {
            part = left < it->answer[i].iov_len ? left : it->answer[i].iov_len;
            it->answer[i].iov_base = (char *)it->answer[i].iov_base + part;
            it->answer[i].iov_len -= part;
        }
    }
    return 1;
}

static int watch(int ep, int op, int fd, uint32_t events, void *what)
{
    struct epoll_event event;
    event.events = events;
    event.data.ptr = what;
    return jn_epoll_ctl(ep, op, fd, &event);
}

/* Goes on with a connection as far as it can. 0: it is over. */
static int serve(int ep, struct connection *it)
{
    for (;;) {
        int sent = send_answer(it);
        if (sent < 0)
            return 0;
        if ((sent == 0) != it->waits) {
            it->waits = sent == 0;
            if (watch(ep, EPOLL_CTL_MOD, it->fd, it->waits ? EPOLLOUT : EPOLLIN, it) != 0)
                return 0;
        }
        if (sent == 0)
            return 1;
        if (!it->stays)
            return 0;
        if (!take_request(it)) {
            ssize_t got = jn_read(it->fd, it->request + it->used, sizeof it->request - it->used);
            if (got < 0 && errno == EAGAIN)
                return 1;
            if (got <= 0)
                return 0;
            it->used += (size_t)got;
        }
    }
}

static void end(struct connection *it)
{
    jn_close(it->fd);
    free(it);
}

static void accept_all(int ep, int door)
{
    int fd, on = 1;
    while ((fd = jn_accept4(door, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct connection *it = malloc(sizeof *it);
        if (it == NULL) {
            jn_close(fd);
            return;
        }
        it->fd = fd;
        it->stays = 1;
        it->waits = 0;
        it->used = 0;
        memset(it->answer, 0, sizeof it->answer);
        jn_setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        connections++;
        if (watch(ep, EPOLL_CTL_ADD, fd, EPOLLIN, it) != 0 || !serve(ep, it))
            end(it);
    }
}

static int listen_at(const char *address, int port)
{
    struct sockaddr_in name;
    socklen_t len = sizeof name;
    int on = 1, door = jn_socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    char text[INET_ADDRSTRLEN];
    if (door < 0)
        die("socket");
    memset(&name, 0, sizeof name);
    name.sin_family = AF_INET;
    name.sin_port = htons((uint16_t)port);
    if (inet_pton(AF_INET, address, &name.sin_addr) != 1) {
        fprintf(stderr, "epserver: %s is no address\n", address);
        exit(2);
    }
    jn_setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (jn_bind(door, (struct sockaddr *)&name, len) != 0 || jn_listen(door, 4096) != 0)
        die("listen");
    if (jn_reachable_at(door, (struct sockaddr *)&name, &len) != 0)
        die("its address");
    printf("%zu files at http://%s:%d/\n", file_count, inet_ntop(AF_INET, &name.sin_addr, text, sizeof text), ntohs(name.sin_port));
    fflush(stdout);
    return door;
}

/* SIGINT and SIGTERM as a descriptor. The threads that Janus starts later do not take them either. */
static int signals(void)
{
    sigset_t set;
    int fd;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    fd = signalfd(-1, &set, SFD_CLOEXEC);
    if (fd < 0)
        die("signals");
    return fd;
}

int main(int argc, char **argv)
{
    const char *address = "0.0.0.0";
    int port = 8080, option, stop, ep, door, ends = 0;
    struct epoll_event events[EVENTS];
    while ((option = getopt(argc, argv, "p:a:")) != -1) {
        if (option == 'p')
            port = atoi(optarg);
        else if (option == 'a')
            address = optarg;
        else
            port = -1;
    }
    if (optind + 1 != argc || port < 0 || port > 65535) {
        fprintf(stderr, "usage: epserver [-p PORT] [-a ADDRESS] DIRECTORY\n");
        return 2;
    }
    load_all(argv[optind]);
    stop = signals();
    if (jn_init() != 0)
        die("janus");
    door = listen_at(address, port);
    ep = jn_epoll_create1(EPOLL_CLOEXEC);
    if (ep < 0 || watch(ep, EPOLL_CTL_ADD, door, EPOLLIN, &door) != 0 || watch(ep, EPOLL_CTL_ADD, stop, EPOLLIN, &stop) != 0)
        die("epoll");
    while (!ends) {
        int i, count = jn_epoll_wait(ep, events, EVENTS, -1);
        if (count < 0 && errno != EINTR)
            die("epoll");
        for (i = 0; i < count; i++) {
            if (events[i].data.ptr == &door)
                accept_all(ep, door);
            else if (events[i].data.ptr == &stop)
                ends = 1;
            else if (!serve(ep, events[i].data.ptr))
                end(events[i].data.ptr);
        }
    }
    printf("%lu connections, %lu requests, %llu bytes\n", connections, requests, sent_bytes);
    jn_end();
    return 0;
}
