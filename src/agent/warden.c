#include "agent/warden_wire.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

bool agent_warden_start(struct agent_warden *w)
{
    int wire[2], events[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, wire) < 0)
        return false;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, events) < 0) {
        close(wire[0]);
        close(wire[1]);
        return false;
    }
    w->pid = (pid_t)syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);
    if (w->pid == 0) {
        close(wire[0]);
        close(events[0]);
        agent_warden_run(wire[1], events[1]);
    }
    close(wire[1]);
    close(events[1]);
    if (w->pid < 0) {
        close(wire[0]);
        close(events[0]);
        return false;
    }
    w->wire = wire[0];
    w->events = events[0];
    return true;
}

static bool send_all(int fd, const void *data, size_t len)
{
    const unsigned char *p = data;

    while (len) {
        ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        p += n;
        len -= (size_t)n;
    }
    return true;
}

/* Request and payload in one call as far as it goes: each costs a switch into the runtime. */
bool agent_wire_send(int wire, const struct agent_wire_request *r, const int fds[3],
                     const unsigned char *payload)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(3 * sizeof(int))];
    } control = { 0 };
    struct iovec iov[2] = { { (void *)(uintptr_t)r, sizeof(*r) },
                            { (void *)(uintptr_t)payload, r->bytes } };
    struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };
    size_t sent;
    ssize_t n;

    if (fds) {
        struct cmsghdr *c;

        msg.msg_control = &control;
        msg.msg_controllen = sizeof(control);
        c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(3 * sizeof(int));
        memcpy(CMSG_DATA(c), fds, 3 * sizeof(int));
    }
    do {
        n = sendmsg(wire, &msg, MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    if (n <= 0)
        return false;
    sent = (size_t)n;
    if (sent < sizeof(*r)) {
        if (!send_all(wire, (const unsigned char *)r + sent, sizeof(*r) - sent))
            return false;
        sent = sizeof(*r);
    }
    return send_all(wire, payload + (sent - sizeof(*r)), sizeof(*r) + r->bytes - sent);
}

static size_t spans_size(const struct agent_span *s, size_t count)
{
    size_t sum = 0;

    for (size_t i = 0; i < count; i++)
        sum += s[i].len + 1;
    return sum;
}

static unsigned char *put(unsigned char *p, const void *data, size_t n)
{
    if (n)
        memcpy(p, data, n);
    return p + n;
}

static unsigned char *put_spans(unsigned char *p, const struct agent_span *s, size_t count)
{
    for (size_t i = 0; i < count; i++)
        p = put(put(p, s[i].data, s[i].len), "", 1);
    return p;
}

bool agent_warden_spawn(struct agent_warden *w, const struct agent_spawn *s)
{
    size_t bytes = s->group_count * sizeof(uint32_t) + strlen(s->cwd) + 1 +
                   (s->below ? strlen(s->below) + 1 : 0) + spans_size(s->args, s->arg_count) +
                   spans_size(s->env, s->env_count);
    struct agent_wire_request r = {
        .kind = AGENT_WIRE_SPAWN,
        .serial = s->serial,
        .uid = s->uid,
        .gid = s->gid,
        .nproc = s->nproc,
        .group_count = (uint32_t)s->group_count,
        .arg_count = (uint32_t)s->arg_count,
        .env_count = (uint32_t)s->env_count,
        .has_below = s->below != NULL,
        .tell_start = s->tell_start,
        .bytes = (uint32_t)bytes,
    };
    unsigned char *payload = bytes > AGENT_WIRE_MAX ? NULL : malloc(bytes);
    unsigned char *p = payload;
    bool ok;

    if (!payload)
        return false;
    p = put(p, s->groups, s->group_count * sizeof(uint32_t));
    p = put(p, s->cwd, strlen(s->cwd) + 1);
    if (s->below)
        p = put(p, s->below, strlen(s->below) + 1);
    p = put_spans(p, s->args, s->arg_count);
    put_spans(p, s->env, s->env_count);
    ok = agent_wire_send(w->wire, &r, s->fds, payload);
    free(payload);
    return ok;
}

bool agent_warden_kill(struct agent_warden *w, uint32_t serial)
{
    struct agent_wire_request r = { .kind = AGENT_WIRE_KILL, .serial = serial };

    return agent_wire_send(w->wire, &r, NULL, (const unsigned char *)"");
}

bool agent_warden_next(struct agent_warden *w, struct agent_event *out)
{
    ssize_t n;

    do {
        n = recv(w->events, out, sizeof(*out), MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof(*out);
}
