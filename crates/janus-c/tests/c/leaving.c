/*
 * What calls do at a thread's and at the program's end: a program that leaves without a word owes its peer what it has written. The peer is a
 * listener of the kernel's on this machine, whose port is the argument.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "janus.h"

static int fd = -1;
static pthread_key_t key;

static void say(const char *text)
{
    if (jn_send(fd, text, strlen(text), MSG_NOSIGNAL) != (ssize_t)strlen(text)) {
        perror("leaving");
        abort();
    }
}

static void at_thread_end(void *text)
{
    char byte;
    struct pollfd it = {fd, POLLIN, 0};
    /* A call that sleeps, too. */
    if (jn_poll(&it, 1, 10) != 0 || jn_recv(fd, &byte, 1, MSG_DONTWAIT) != -1)
        abort();
    say(text);
}

static void at_end(void)
{
    say("e");
}

static void *work(void *argument)
{
    (void)argument;
    say("t");
    pthread_setspecific(key, "d");
    return NULL;
}

int main(int argc, char **argv)
{
    static char much[200000];
    struct sockaddr_in name;
    pthread_t thread;
    memset(&name, 0, sizeof name);
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    name.sin_port = htons((uint16_t)(argc > 1 ? atoi(argv[1]) : 0));
    fd = jn_socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || jn_connect(fd, (struct sockaddr *)&name, sizeof name) != 0) {
        perror("leaving");
        return 1;
    }
    /* Later than Janus's own, and so it runs before. */
    atexit(at_end);
    pthread_key_create(&key, at_thread_end);
    if (pthread_create(&thread, NULL, work, NULL) != 0 || pthread_join(thread, NULL) != 0)
        return 1;
    memset(much, 'x', sizeof much - 1);
    say(much);
    return 0;
}
