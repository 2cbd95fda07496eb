/* The CONTROL connection: dial, HELLO, frames in, frames out, redial. */

#include "agent/agent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <sbx/version.h>

/* The agent's working directory is SBX_AGENT_DIR, which nobody else can name any more. */
static int connect_gateway(int flags)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX, .sun_path = "agent.sock" };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);

    if (fd >= 0 && connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
        int saved = errno;

        close(fd);
        errno = saved;
        return -1;
    }
    return fd;
}

static void say_hello(struct agent *a, struct agent_queue *q, enum sbx_agent_kind kind,
                      uint64_t dial_id)
{
    agent_frame_begin(q, SBX_AGENT_HELLO, 0);
    agent_frame_number(q, SBX_TAG_KIND, (uint64_t)kind);
    if (a->has_key)
        agent_frame_bytes(q, SBX_TAG_KEY, a->key, SBX_AGENT_KEY_LEN);
    if (kind == SBX_AGENT_BULK)
        agent_frame_number(q, SBX_TAG_DIAL_ID, dial_id);
    agent_frame_text(q, SBX_TAG_AGENT_VERSION, SBX_VERSION);
    agent_frame_end(q);
}

int agent_dial(struct agent *a, enum sbx_agent_kind kind, uint64_t dial_id, int flags)
{
    struct agent_queue q = { .max = SBX_AGENT_DATA_MAX };
    int fd = connect_gateway(flags);
    ssize_t n = -1;

    if (fd < 0)
        return -1;
    say_hello(a, &q, kind, dial_id);
    n = send(fd, q.data, q.len, MSG_NOSIGNAL); /* a fresh socket takes a short frame whole */
    if (n != (ssize_t)q.len) {
        close(fd);
        fd = -1;
    }
    explicit_bzero(q.data, q.len);
    agent_queue_fini(&q);
    return fd;
}

void agent_control_init(struct agent *a)
{
    a->control.fd = -1;
    a->control.backoff_ms = AGENT_REDIAL_MIN_MS;
    a->control.queue.max = AGENT_QUEUE_MAX;
}

static void lose(struct agent *a)
{
    struct agent_control *c = &a->control;

    if (c->fd >= 0)
        close(c->fd); /* leaves epoll with it */
    free(c->payload);
    c->payload = NULL;
    c->fd = -1;
    c->have = 0;
    c->want_write = false;
    c->state = AGENT_LINK_DOWN;
    c->due_ms = agent_now_ms() + c->backoff_ms;
    c->backoff_ms =
        c->backoff_ms * 2 > AGENT_REDIAL_MAX_MS ? AGENT_REDIAL_MAX_MS : c->backoff_ms * 2;
    agent_queue_fini(&c->queue);
    agent_exec_detach_all(a);
    agent_thaw(a); /* nobody stays frozen because a gateway died */
}

static void dial(struct agent *a, uint64_t now_ms)
{
    struct agent_control *c = &a->control;

    c->fd = agent_dial(a, SBX_AGENT_CONTROL, 0, SOCK_NONBLOCK);
    if (c->fd < 0 || !agent_watch(a, c->fd, EPOLLIN, AGENT_SOURCE_CONTROL, 0)) {
        lose(a);
        return;
    }
    c->state = AGENT_LINK_HELLO;
    c->due_ms = now_ms + AGENT_WELCOME_MS;
}

uint64_t agent_control_due(const struct agent *a)
{
    return a->control.state == AGENT_LINK_UP ? UINT64_MAX : a->control.due_ms;
}

void agent_control_tick(struct agent *a, uint64_t now_ms)
{
    if (now_ms < agent_control_due(a))
        return;
    if (a->control.state == AGENT_LINK_DOWN)
        dial(a, now_ms);
    else
        lose(a);
}

/* WELCOME: settings the first time, then how things stand. */
static bool welcome(struct agent *a)
{
    struct agent_control *c = &a->control;
    unsigned char *payload = c->payload;

    if (c->frame.type != SBX_AGENT_WELCOME)
        return false;
    if (!a->workload.known) {
        c->payload = NULL;
        if (!agent_workload_set(a, payload, c->frame.length))
            return false;
    }
    c->state = AGENT_LINK_UP;
    c->backoff_ms = AGENT_REDIAL_MIN_MS;
    agent_command_announce(a);
    agent_exec_flush_exits(a);
    return true;
}

static bool whole_frame(struct agent *a)
{
    struct agent_control *c = &a->control;
    bool ok;

    ok = c->state == AGENT_LINK_HELLO
             ? welcome(a)
             : agent_handle(a, c->frame.type, c->frame.stream, c->payload, c->frame.length);
    free(c->payload);
    c->payload = NULL;
    c->have = 0;
    return ok;
}

/* One read; false when the connection is over. */
static bool read_some(struct agent *a, bool *more)
{
    struct agent_control *c = &a->control;
    size_t want = c->have < SBX_AGENT_HEADER_LEN
                      ? SBX_AGENT_HEADER_LEN - c->have
                      : SBX_AGENT_HEADER_LEN + (size_t)c->frame.length - c->have;
    unsigned char *into = c->have < SBX_AGENT_HEADER_LEN
                              ? c->header + c->have
                              : c->payload + (c->have - SBX_AGENT_HEADER_LEN);
    ssize_t n = recv(c->fd, into, want, 0);

    *more = n == (ssize_t)want;
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    if (n == 0)
        return false;
    c->have += (size_t)n;
    if (c->have == SBX_AGENT_HEADER_LEN) {
        if (!sbx_agent_header_parse(c->header, &c->frame))
            return false;
        c->payload = malloc(c->frame.length ? c->frame.length : 1);
        if (!c->payload)
            return false;
    }
    if (c->have < SBX_AGENT_HEADER_LEN || c->have < SBX_AGENT_HEADER_LEN + (size_t)c->frame.length)
        return true;
    return whole_frame(a);
}

void agent_control_event(struct agent *a, uint32_t events)
{
    struct agent_control *c = &a->control;
    bool more = true;

    if (c->fd < 0)
        return;
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        /* Header and payload of one frame, then the others have their turn.  A gateway that
         * asks more than it reads waits. */
        for (int i = 0; i < 2 && more && agent_queue_size(&c->queue) < 2 * SBX_AGENT_BACKLOG_MAX;
             i++) {
            if (!read_some(a, &more)) {
                lose(a);
                return;
            }
        }
    }
}

void agent_control_flush(struct agent *a)
{
    struct agent_control *c = &a->control;
    bool want_write;

    while (c->fd >= 0 && agent_queue_size(&c->queue)) {
        ssize_t n = send(c->fd, c->queue.data + c->queue.at, agent_queue_size(&c->queue),
                         MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) {
            lose(a);
            return;
        }
        agent_queue_consume(&c->queue, (size_t)n);
    }
    if (c->fd < 0)
        return;
    if (agent_queue_size(&c->queue) < SBX_AGENT_BACKLOG_MAX / 2)
        agent_exec_resume_all(a);
    want_write = agent_queue_size(&c->queue) > 0;
    if (want_write != c->want_write) {
        struct epoll_event ev = { .events = want_write ? EPOLLIN | EPOLLOUT : EPOLLIN,
                                  .data.u64 = AGENT_SOURCE_CONTROL };

        epoll_ctl(a->epoll, EPOLL_CTL_MOD, c->fd, &ev);
        c->want_write = want_write;
    }
}

void agent_done(struct agent *a, uint32_t stream, enum sbx_agent_reason reason, const char *message)
{
    struct agent_queue *q = &a->control.queue;

    agent_frame_begin(q, SBX_AGENT_DONE, stream);
    if (reason != SBX_AGENT_REASON_NONE) {
        agent_frame_number(q, SBX_TAG_REASON, (uint64_t)reason);
        agent_frame_text(q, SBX_TAG_MESSAGE, message);
    }
    agent_frame_end(q);
}
