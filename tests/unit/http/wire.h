#ifndef TESTS_HTTP_WIRE_H
#define TESTS_HTTP_WIRE_H

/* Raw bytes over a socket: what a test client writes and reads. Every wait has a deadline. */

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/time.h"

enum { WIRE_WAIT_MS = 15000 };

struct wire_answer {
    int status;
    char *head; /* status line and headers */
    char *body;
    size_t len;
};

static inline int wire_tcp(uint16_t port)
{
    struct sockaddr_in in = { .sin_family = AF_INET,
                              .sin_port = htons(port),
                              .sin_addr = { htonl(INADDR_LOOPBACK) } };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (connect(fd, (struct sockaddr *)&in, sizeof(in)) != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

static inline int wire_unix(const char *path)
{
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)snprintf(un.sun_path, sizeof(un.sun_path), "%s", path);
    if (connect(fd, (struct sockaddr *)&un, sizeof(un)) != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

/* False when the peer has closed. */
static inline bool wire_send(int fd, const void *data, size_t len)
{
    const char *p = data;

    while (len > 0) {
        ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

        if (n <= 0)
            return false;
        p += n;
        len -= (size_t)n;
    }
    return true;
}

static inline bool wire_puts(int fd, const char *text)
{
    return wire_send(fd, text, strlen(text));
}

/* One more read into b: bytes, 0 at the end or a reset, -1 when nothing came in time. */
static inline ssize_t wire_more(int fd, struct buf *b, int wait_ms)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    char part[16384];
    ssize_t n;

    if (poll(&p, 1, wait_ms) <= 0)
        return -1;
    n = recv(fd, part, sizeof(part), 0);
    if (n <= 0)
        return 0;
    (void)buf_append(b, part, (size_t)n);
    return n;
}

static inline void wire_free(struct wire_answer *a)
{
    free(a->head);
    free(a->body);
    *a = (struct wire_answer){ 0 };
}

static inline const char *wire_header(const struct wire_answer *a, const char *name)
{
    static _Thread_local char value[1024];
    size_t len = strlen(name);

    for (const char *p = strstr(a->head, "\r\n"); p != NULL; p = strstr(p, "\r\n")) {
        p += 2;
        if (strncasecmp(p, name, len) == 0 && p[len] == ':') {
            p += len + 1 + strspn(p + len + 1, " ");
            (void)snprintf(value, sizeof(value), "%.*s", (int)strcspn(p, "\r\n"), p);
            return value;
        }
    }
    return NULL;
}

/* Decodes what stands chunked in [p, p + len); bytes used, or 0 when it is not complete. */
static inline size_t wire_unchunk(const char *p, size_t len, struct buf *out)
{
    size_t at = 0;

    for (;;) {
        const char *nl = at < len ? memmem(p + at, len - at, "\r\n", 2) : NULL;
        unsigned long n = nl != NULL ? strtoul(p + at, NULL, 16) : 0;
        size_t data = nl != NULL ? (size_t)(nl - p) + 2 : 0;

        if (nl == NULL || data + n + 2 > len)
            return 0;
        (void)buf_append(out, p + data, n);
        at = data + n + 2;
        if (n == 0)
            return at;
    }
}

/* Reads one answer out of *in (kept bytes of the connection). status 0: closed before a whole one;
 * -1: nothing in time. */
static inline struct wire_answer wire_read(int fd, struct buf *in, bool head_only)
{
    struct wire_answer a = { 0 };
    int64_t until = time_mono_ms() + WIRE_WAIT_MS;

    in->max = 256 * 1024 * 1024;
    for (;;) {
        char *end = in->len > 0 ? memmem(in->data, in->len, "\r\n\r\n", 4) : NULL;

        if (end != NULL) {
            size_t head = (size_t)(end - in->data) + 4, used = 0;
            struct buf body = BUF_INIT(256 * 1024 * 1024);
            const char *cl, *te;

            a.head = strndup(in->data, head);
            a.status = atoi(a.head + 9);
            cl = wire_header(&a, "Content-Length");
            if (head_only || a.status < 200 || a.status == 204) {
                used = head;
            } else if (cl != NULL) {
                size_t n = strtoul(cl, NULL, 10);

                if (in->len >= head + n) {
                    (void)buf_append(&body, in->data + head, n);
                    used = head + n;
                }
            } else {
                te = wire_header(&a, "Transfer-Encoding");
                if (te != NULL) {
                    size_t n = wire_unchunk(in->data + head, in->len - head, &body);

                    used = n > 0 ? head + n : 0;
                }
            }
            if (used > 0) {
                a.len = body.len;
                a.body = buf_take(&body);
                buf_consume(in, used);
                return a;
            }
            buf_fini(&body);
            wire_free(&a);
        }
        switch (wire_more(fd, in, (int)(until - time_mono_ms()))) {
        case 0:
            return a;
        case -1:
            a.status = -1;
            return a;
        default:
            break;
        }
    }
}

/* One request on its own connection. */
static inline struct wire_answer wire_once(int fd, const void *data, size_t len)
{
    struct buf in = BUF_INIT(256 * 1024 * 1024);
    struct wire_answer a;

    (void)wire_send(fd, data, len);
    a = wire_read(fd, &in, false);
    buf_fini(&in);
    (void)close(fd);
    return a;
}

/* True when the peer closes (or resets) within the wait. */
static inline bool wire_closed(int fd, int wait_ms)
{
    struct buf in = BUF_INIT(1024 * 1024);
    int64_t until = time_mono_ms() + wait_ms;
    ssize_t n;

    do {
        n = wire_more(fd, &in, (int)(until - time_mono_ms()));
    } while (n > 0);
    buf_fini(&in);
    return n == 0;
}

#endif
