#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "base/time.h"
#include "gateway/relay_impl.h"

void relay_tell(struct relay *r, const struct relay_box *box, enum relay_event what,
                const char *message, struct relay_conn *conn)
{
    struct relay_told *t = mem_zalloc(sizeof(*t));
    struct relay_told **at = &r->told;

    t->what = what;
    t->conn = conn;
    (void)str_copy(t->id, sizeof(t->id), box->id);
    (void)str_copy(t->message, sizeof(t->message), message);
    while (*at != NULL)
        at = &(*at)->next;
    *at = t;
}

void relay_tell_ended(struct relay *r, const struct relay_box *box, const char *execution_id,
                      int exit_code, int signal)
{
    struct relay_told *t;

    relay_tell(r, box, RELAY_TOLD_ENDED, "", NULL);
    for (t = r->told; t->next != NULL; t = t->next)
        continue;
    (void)str_copy(t->execution_id, sizeof(t->execution_id), execution_id);
    t->exit_code = exit_code;
    t->signal = signal;
}

static void watch(struct relay *r, struct relay_conn *c, uint32_t events)
{
    struct epoll_event e = { .events = events, .data.ptr = c };

    if (c->events == events)
        return;
    /* An end that nobody waits for would still report its hang-up, for ever. */
    (void)epoll_ctl(r->epoll,
                    events == 0      ? EPOLL_CTL_DEL
                    : c->events == 0 ? EPOLL_CTL_ADD
                                     : EPOLL_CTL_MOD,
                    c->fd, &e);
    c->events = events;
}

static struct relay_conn *conn_new(struct relay *r, struct relay_box *box, int fd,
                                   enum relay_conn_kind kind)
{
    struct relay_conn *c = mem_zalloc(sizeof(*c));
    struct epoll_event e = { .events = EPOLLIN, .data.ptr = c };

    c->source = RELAY_SOURCE_CONN;
    c->box = box;
    c->kind = kind;
    c->fd = fd;
    c->events = EPOLLIN;
    c->in.max = SBX_AGENT_HEADER_LEN + (size_t)SBX_AGENT_FRAME_MAX + RELAY_READ_MAX;
    c->out.max = RELAY_OUT_MAX;
    c->opened_ms = c->heard_ms = time_mono_ms();
    if (epoll_ctl(r->epoll, EPOLL_CTL_ADD, fd, &e) < 0) {
        fd_close(&fd);
        free(c);
        return NULL;
    }
    c->next = box->conns;
    if (c->next != NULL)
        c->next->prev = c;
    box->conns = c;
    return c;
}

void relay_accept(struct relay *r, struct relay_box *box)
{
    for (;;) {
        int fd = accept4(box->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0)
            return;
        if (box->pending >= RELAY_PENDING_MAX) {
            fd_close(&fd);
            continue;
        }
        if (conn_new(r, box, fd, RELAY_CONN_PENDING) == NULL) /* it has closed fd */
            continue;
        box->pending++;
        r->pending++;
    }
}

/* Takes it out of the box and of epoll; its descriptor may live on. */
static void detach(struct relay *r, struct relay_conn *c)
{
    struct relay_box *box = c->box;

    c->dead = true;
    if (c->fd >= 0)
        (void)epoll_ctl(r->epoll, EPOLL_CTL_DEL, c->fd, NULL);
    if (c->prev != NULL)
        c->prev->next = c->next;
    else
        box->conns = c->next;
    if (c->next != NULL)
        c->next->prev = c->prev;
    if (c->kind == RELAY_CONN_PENDING)
        box->pending--, r->pending--;
    if (box->control == c) {
        box->control = NULL;
        box->ready = false;
    }
    buf_fini(&c->in);
    buf_fini(&c->out);
    c->grave = r->grave;
    r->grave = c;
}

void relay_conn_close(struct relay *r, struct relay_conn *c, struct relay_exec **finished)
{
    struct relay_box *box = c->box;
    bool control = box->control == c;

    if (c->dead)
        return;
    detach(r, c);
    fd_close(&c->fd);
    if (control) {
        relay_exec_end_all(r, box, true, SBX_E_AGENT_UNREACHABLE,
                           "the connection to the sandbox's agent was lost", finished);
        relay_calls_end_all(r, box, SBX_E_AGENT_UNREACHABLE,
                            "the connection to the sandbox's agent was lost");
    }
}

static bool send_out(struct relay *r, struct relay_conn *c)
{
    while (c->out.len > 0) {
        ssize_t n = send(c->fd, c->out.data, c->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (n < 0)
            return false;
        buf_consume(&c->out, (size_t)n);
    }
    watch(r, c, c->out.len > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN);
    if (c->out.len == 0)
        buf_fini(&c->out);
    return true;
}

bool relay_conn_send(struct relay *r, struct relay_conn *c, const struct buf *frame,
                     struct relay_exec **finished)
{
    if (!c->dead && buf_append(&c->out, frame->data, frame->len) && send_out(r, c))
        return true;
    relay_conn_close(r, c, finished);
    return false;
}

/* ---- HELLO ---- */

struct hello {
    uint64_t kind, dial_id;
    const unsigned char *key;
    bool bad;
};

static void parse_hello(const unsigned char *payload, size_t len, struct hello *h)
{
    struct sbx_agent_field f;
    size_t at = 0;

    *h = (struct hello){ 0 };
    while (sbx_agent_field_next(payload, len, &at, &f, &h->bad)) {
        if (f.tag == SBX_TAG_KEY && f.len == SBX_AGENT_KEY_LEN)
            h->key = f.data;
        else if (f.tag == SBX_TAG_KEY)
            h->bad = true;
        else if ((f.tag == SBX_TAG_KIND || f.tag == SBX_TAG_DIAL_ID) && f.len != 8)
            h->bad = true;
        else if (f.tag == SBX_TAG_KIND)
            h->kind = sbx_agent_get_u64(f.data);
        else if (f.tag == SBX_TAG_DIAL_ID)
            h->dial_id = sbx_agent_get_u64(f.data);
    }
}

static void become_control(struct relay *r, struct relay_conn *c, bool first,
                           struct relay_exec **finished)
{
    struct relay_box *box = c->box;
    SCOPED_BUF struct buf payload = BUF_INIT(SBX_AGENT_FRAME_MAX);
    SCOPED_BUF struct buf frame = BUF_INIT(SBX_AGENT_FRAME_MAX + 1024);

    if (box->control != NULL)
        relay_conn_close(r, box->control, finished);
    box->pending--, r->pending--;
    c->kind = RELAY_CONN_CONTROL;
    box->control = c;
    if (first) {
        box->welcomed = true;
        (void)relay_put_field(&payload, SBX_TAG_KEY, box->key, sizeof(box->key));
        (void)buf_append(&payload, box->settings.data, box->settings.len);
    }
    (void)relay_put_frame(&frame, SBX_AGENT_WELCOME, 0, &payload);
    if (!first) { /* what still runs from before is not ours to answer, but to be told of */
        box->list_stream = ++box->next_stream;
        (void)relay_put_frame(&frame, SBX_AGENT_LIST, box->list_stream, NULL);
    }
    if (relay_conn_send(r, c, &frame, finished))
        relay_tell(r, box, RELAY_TOLD_CONNECTED, "", NULL);
}

/* The job's thread takes the connection as it is. */
static void become_bulk(struct relay *r, struct relay_conn *c, uint64_t dial_id,
                        struct relay_exec **finished)
{
    for (struct relay_pending_call *p = c->box->calls; p != NULL; p = p->next) {
        if (p->dial_id == 0 || p->dial_id != dial_id || p->done)
            continue;
        p->fd = c->fd;
        p->done = true;
        detach(r, c);
        c->fd = -1;
        (void)pthread_cond_broadcast(&r->changed);
        return;
    }
    relay_conn_close(r, c, finished);
}

static void on_hello(struct relay *r, struct relay_conn *c, const unsigned char *payload,
                     size_t len, struct relay_exec **finished)
{
    struct relay_box *box = c->box;
    struct hello h;
    bool first, known;

    parse_hello(payload, len, &h);
    first = h.key == NULL && !box->welcomed && h.kind == SBX_AGENT_CONTROL;
    known = h.key != NULL && str_equal_secret(h.key, box->key, sizeof(box->key));
    if (h.bad || (!first && !known))
        relay_conn_close(r, c, finished);
    else if (h.kind == SBX_AGENT_CONTROL)
        become_control(r, c, first, finished);
    else if (h.kind == SBX_AGENT_BULK)
        become_bulk(r, c, h.dial_id, finished);
    else if (h.kind == SBX_AGENT_RELAY_KIND && tunnels_room(r->tunnels, box->id)) {
        box->pending--, r->pending--;
        c->kind = RELAY_CONN_TUNNEL_HELLO;
    } else
        relay_conn_close(r, c, finished);
}

/* ---- tunnels ---- */

void relay_tunnel_open(struct relay *r, struct relay_conn *c, int proxy_fd)
{
    /* c->in: what the process sent before the proxy was there */
    struct buf first = c->in;

    c->in = (struct buf){ 0 };
    detach(r, c);
    (void)tunnels_add(r->tunnels, c->box->id, c->fd, proxy_fd, first.data, first.len);
    c->fd = -1;
    buf_fini(&first);
}

static void on_tunnel_hello(struct relay *r, struct relay_conn *c, const struct sbx_agent_header *h,
                            struct relay_exec **finished)
{
    if (h->type != SBX_AGENT_RELAY) {
        relay_conn_close(r, c, finished);
        return;
    }
    watch(r, c, 0); /* its bytes wait in the socket until the proxy is there */
    relay_tell(r, c->box, RELAY_TOLD_TUNNEL, "", c);
}

/* ---- reading ---- */

static void on_frame(struct relay *r, struct relay_conn *c, const struct sbx_agent_header *h,
                     const unsigned char *payload, struct relay_exec **finished)
{
    switch (c->kind) {
    case RELAY_CONN_PENDING:
        if (h->type == SBX_AGENT_HELLO)
            on_hello(r, c, payload, h->length, finished);
        else
            relay_conn_close(r, c, finished);
        break;
    case RELAY_CONN_CONTROL:
        relay_frame(r, c, h, payload, finished);
        break;
    case RELAY_CONN_TUNNEL_HELLO:
        on_tunnel_hello(r, c, h, finished);
        break;
    }
}

/* Whole frames out of what was read; the rest stays. */
static void parse(struct relay *r, struct relay_conn *c, struct relay_exec **finished)
{
    size_t at = 0;

    while (!c->dead && c->in.len - at >= SBX_AGENT_HEADER_LEN) {
        const unsigned char *p = (const unsigned char *)c->in.data + at;
        struct sbx_agent_header h;

        if (!sbx_agent_header_parse(p, &h)) {
            relay_conn_close(r, c, finished);
            return;
        }
        if (c->in.len - at - SBX_AGENT_HEADER_LEN < h.length)
            break;
        at += SBX_AGENT_HEADER_LEN + (size_t)h.length;
        on_frame(r, c, &h, p + SBX_AGENT_HEADER_LEN, finished);
        if (c->kind == RELAY_CONN_TUNNEL_HELLO && c->events == 0)
            break;
    }
    if (c->dead)
        return;
    buf_consume(&c->in, at);
    if (c->in.len == 0)
        buf_fini(&c->in); /* thousands of idle connections hold nothing */
}

static void on_readable(struct relay *r, struct relay_conn *c, struct relay_exec **finished)
{
    char *room = buf_reserve(&c->in, RELAY_READ_MAX);
    ssize_t n;

    if (room == NULL) { /* one frame never needs more than the buffer may hold */
        relay_conn_close(r, c, finished);
        return;
    }
    n = recv(c->fd, room, RELAY_READ_MAX, MSG_DONTWAIT);
    if (n > 0) {
        c->in.len += (size_t)n;
        c->heard_ms = time_mono_ms();
        parse(r, c, finished);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        relay_conn_close(r, c, finished);
    }
}

void relay_conn_event(struct relay *r, struct relay_conn *c, uint32_t events,
                      struct relay_exec **finished)
{
    if (c->dead)
        return;
    if ((events & EPOLLOUT) != 0 && !send_out(r, c)) {
        relay_conn_close(r, c, finished);
        return;
    }
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0)
        return;
    if (c->kind == RELAY_CONN_TUNNEL_HELLO && c->events == 0)
        relay_conn_close(r, c, finished); /* it broke before the proxy was there */
    else
        on_readable(r, c, finished);
}
