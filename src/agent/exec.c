/* Executions: one slot each, from EXEC to EXIT. */

#include "agent/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What one request asks, checked. */
struct wish {
    uint32_t uid, gid;
    const uint32_t *groups;
    size_t group_count;
    const char *cwd, *below;
    char *cwd_copy;
};

static void refuse(struct agent *a, uint32_t stream, enum sbx_agent_reason reason, const char *why)
{
    struct agent_queue *q = &a->control.queue;

    agent_frame_begin(q, SBX_AGENT_REFUSED, stream);
    agent_frame_number(q, SBX_TAG_REASON, (uint64_t)reason);
    agent_frame_text(q, SBX_TAG_MESSAGE, why);
    agent_frame_end(q);
}

static struct agent_exec *by_serial(struct agent *a, uint32_t serial)
{
    for (size_t i = 0; i < AGENT_EXEC_SLOTS; i++) {
        if (a->execs[i].serial == serial)
            return &a->execs[i];
    }
    return NULL;
}

static struct agent_exec *by_stream(struct agent *a, uint32_t stream)
{
    for (size_t i = 0; i < AGENT_EXEC_SLOTS; i++) {
        if (a->execs[i].serial && a->execs[i].stream == stream)
            return &a->execs[i];
    }
    return NULL;
}

static uint32_t next_serial(struct agent *a)
{
    do {
        a->last_serial++;
    } while (a->last_serial <= AGENT_SERIAL_COMMAND || by_serial(a, a->last_serial));
    return a->last_serial;
}

static unsigned places_taken(const struct agent *a)
{
    unsigned taken = 0;

    for (size_t i = 0; i < AGENT_EXEC_SLOTS; i++)
        taken += a->execs[i].serial && !a->execs[i].leaving;
    return taken;
}

/* The reason, or NONE.  What an EXEC must have beside free places. */
static enum sbx_agent_reason check(struct agent *a, uint32_t stream, const struct agent_request *r,
                                   const char **why)
{
    const struct agent_list *args = &r->args;

    *why = "the request is not a valid one";
    if (stream == 0 || by_stream(a, stream) || args->count == 0 ||
        r->text[SBX_TAG_EXEC_ID].len > AGENT_ID_MAX || r->number[SBX_TAG_UID] >= SBX_AGENT_UID ||
        r->number[SBX_TAG_GID] >= SBX_AGENT_UID)
        return SBX_AGENT_REASON_PROTOCOL;
    if (a->frozen) {
        *why = "the sandbox is being paused";
        return SBX_AGENT_REASON_FROZEN;
    }
    if (a->command.state != AGENT_COMMAND_RUNNING && a->command.state != AGENT_COMMAND_ENDED) {
        *why = "the sandbox's command has not been started yet";
        return SBX_AGENT_REASON_NOT_READY;
    }
    if (a->workload.personal &&
        (args->count != 1 || args->items[0].len != strlen(SBX_AGENT_ENTRYPOINT) ||
         memcmp(args->items[0].data, SBX_AGENT_ENTRYPOINT, args->items[0].len) != 0)) {
        *why = "a holder of a personal run executes its entry point only";
        return SBX_AGENT_REASON_FORBIDDEN;
    }
    if (!by_serial(a, 0) || places_taken(a) >= SBX_AGENT_EXECS_MAX) {
        *why = "too many executions at once in this sandbox";
        return SBX_AGENT_REASON_LIMIT;
    }
    return SBX_AGENT_REASON_NONE;
}

static bool resolve(struct agent *a, const struct agent_request *r, struct wish *w)
{
    *w = (struct wish){ .uid = a->workload.uid,
                        .gid = a->workload.gid,
                        .groups = a->workload.groups,
                        .group_count = a->workload.group_count,
                        .cwd = a->workload.cwd };
    if (agent_request_has(r, SBX_TAG_UID) || agent_request_has(r, SBX_TAG_GID)) {
        if (agent_request_has(r, SBX_TAG_UID))
            w->uid = (uint32_t)r->number[SBX_TAG_UID];
        if (agent_request_has(r, SBX_TAG_GID))
            w->gid = (uint32_t)r->number[SBX_TAG_GID];
        w->group_count = 0;
    }
    if (agent_request_has(r, SBX_TAG_CWD)) {
        w->cwd_copy = agent_span_dup(r->text[SBX_TAG_CWD]);
        w->cwd = w->cwd_copy;
        if (!w->cwd)
            return false;
        if (w->cwd[0] != '/')
            w->below = a->workload.workspace;
    }
    return true;
}

/* Standard input: a file that holds the bytes, so that nobody has to feed a pipe. */
static int stdin_open(const struct agent *a, const struct agent_request *r)
{
    struct agent_span s = r->text[SBX_TAG_STDIN];
    int fd;

    if (!agent_request_has(r, SBX_TAG_STDIN))
        return a->null;
    fd = memfd_create("stdin", MFD_CLOEXEC);
    while (fd >= 0 && s.len) {
        ssize_t n = write(fd, s.data, s.len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            close(fd);
            return -1;
        }
        s.data += n;
        s.len -= (size_t)n;
    }
    if (fd >= 0)
        (void)lseek(fd, 0, SEEK_SET);
    return fd;
}

/* The workload owns its pipes, so that it can open /dev/stdout and /dev/stderr.  Root can anyway,
 * and a detour through uid 0 would clear the effective capabilities. */
static bool pipes_open(uint32_t uid, int read_ends[2], int write_ends[2])
{
    bool ok = true;

    if (uid != 0)
        ok = syscall(SYS_setresuid, -1, uid, -1) == 0;
    for (int i = 0; i < 2; i++) {
        int p[2] = { -1, -1 };

        ok = ok && pipe2(p, O_CLOEXEC) == 0;
        read_ends[i] = p[0];
        write_ends[i] = p[1];
    }
    if (uid != 0)
        ok = syscall(SYS_setresuid, -1, SBX_AGENT_UID, -1) == 0 && ok;
    return ok;
}

static void close_if_open(int fd)
{
    if (fd >= 0)
        close(fd);
}

static void output_close(struct agent_output *o)
{
    close_if_open(o->fd);
    o->fd = -1;
}

static void release(struct agent_exec *e)
{
    output_close(&e->out[AGENT_STDOUT]);
    output_close(&e->out[AGENT_STDERR]);
    *e = (struct agent_exec){ .out = { { .fd = -1 }, { .fd = -1 } } };
}

static void fill(struct agent *a, struct agent_exec *e, uint32_t stream,
                 const struct agent_request *r, const int read_ends[2])
{
    uint64_t timeout = r->number[SBX_TAG_TIMEOUT_MS];

    *e = (struct agent_exec){ .serial = next_serial(a),
                              .stream = stream,
                              .began_ms = agent_now_ms(),
                              .given_up_ms = UINT64_MAX };
    e->deadline_ms = timeout && timeout < UINT64_MAX / 2 ? e->began_ms + timeout : UINT64_MAX;
    for (int i = 0; i < AGENT_STREAMS; i++) {
        enum sbx_agent_tag cap = i == AGENT_STDOUT ? SBX_TAG_CAP_STDOUT : SBX_TAG_CAP_STDERR;

        e->out[i] =
            (struct agent_output){ .fd = read_ends[i],
                                   .cap = agent_request_has(r, cap) ? r->number[cap] : UINT64_MAX };
    }
    memcpy(e->id, r->text[SBX_TAG_EXEC_ID].data ? r->text[SBX_TAG_EXEC_ID].data : "",
           r->text[SBX_TAG_EXEC_ID].len);
}

/* After the command was asked for: each call costs it 30 us of waiting. */
static void watch_outputs(struct agent *a, const struct agent_exec *e)
{
    for (int i = 0; i < AGENT_STREAMS; i++) {
        (void)fcntl(e->out[i].fd, F_SETFL, O_NONBLOCK);
        (void)agent_watch(a, e->out[i].fd, EPOLLIN, AGENT_SOURCE_OUT,
                          (uint32_t)(e - a->execs) * AGENT_STREAMS + (uint32_t)i);
    }
}

static bool start(struct agent *a, uint32_t stream, const struct agent_request *r)
{
    struct agent_exec *e = by_serial(a, 0);
    char home[PATH_MAX];
    int read_ends[2] = { -1, -1 }, write_ends[2] = { -1, -1 };
    struct agent_span *env = NULL;
    struct wish w;
    bool ok = false;
    struct agent_spawn s = { .fds = { -1, -1, -1 } };

    if (!resolve(a, r, &w) || !(env = agent_workload_env(a, w.uid, &r->env, home, &s.env_count)))
        goto out;
    s.fds[0] = stdin_open(a, r);
    if (s.fds[0] < 0 || !pipes_open(w.uid, read_ends, write_ends))
        goto out;
    fill(a, e, stream, r, read_ends);
    s.serial = e->serial;
    s.uid = w.uid;
    s.gid = w.gid;
    s.groups = w.groups;
    s.group_count = w.group_count;
    s.nproc = a->workload.nproc;
    s.cwd = w.cwd;
    s.below = w.below;
    s.args = r->args.items;
    s.arg_count = r->args.count;
    s.env = env;
    s.fds[1] = write_ends[0];
    s.fds[2] = write_ends[1];
    ok = agent_warden_spawn(&a->warden, &s);
    if (ok)
        watch_outputs(a, e);
    else
        release(e);
    read_ends[0] = read_ends[1] = -1;
out:
    if (s.fds[0] != a->null)
        close_if_open(s.fds[0]);
    for (int i = 0; i < 2; i++) {
        close_if_open(read_ends[i]);
        close_if_open(write_ends[i]);
    }
    free(w.cwd_copy);
    free(env);
    return ok;
}

void agent_exec_request(struct agent *a, uint32_t stream, const struct agent_request *r)
{
    const char *why;
    enum sbx_agent_reason reason = check(a, stream, r, &why);

    if (reason != SBX_AGENT_REASON_NONE)
        refuse(a, stream, reason, why);
    else if (!start(a, stream, r))
        refuse(a, stream, SBX_AGENT_REASON_LIMIT, "the sandbox has no memory or files left");
}

/* One read.  False: nothing more now (or for good: the fd is closed then). */
static bool output_read(struct agent *a, struct agent_exec *e, int which)
{
    static unsigned char dropped[SBX_AGENT_DATA_MAX];
    struct agent_output *o = &e->out[which];
    struct agent_queue *q = &a->control.queue;
    bool keep = e->stream != 0 && o->total < o->cap;
    unsigned char *frame =
        keep ? agent_queue_reserve(q, SBX_AGENT_HEADER_LEN + SBX_AGENT_DATA_MAX) : NULL;
    ssize_t n = read(o->fd, frame ? frame + SBX_AGENT_HEADER_LEN : dropped, SBX_AGENT_DATA_MAX);

    if (n < 0)
        return errno == EINTR;
    if (n == 0) {
        output_close(o);
        return false;
    }
    if (frame) {
        uint64_t room = o->cap - o->total;
        size_t take = room < (uint64_t)n ? (size_t)room : (size_t)n;

        sbx_agent_header_pack(frame, which == AGENT_STDOUT ? SBX_AGENT_STDOUT : SBX_AGENT_STDERR,
                              e->stream, (uint32_t)take);
        q->len += SBX_AGENT_HEADER_LEN + take;
    }
    o->total += (uint64_t)n;
    return true;
}

static void pause_output(struct agent *a, struct agent_output *o, bool paused)
{
    uint32_t index = 0;
    struct epoll_event ev = { .events = paused ? 0 : EPOLLIN };

    for (; index < AGENT_EXEC_SLOTS * AGENT_STREAMS; index++) {
        if (&a->execs[index / AGENT_STREAMS].out[index % AGENT_STREAMS] == o)
            break;
    }
    ev.data.u64 = (uint64_t)AGENT_SOURCE_OUT | (uint64_t)index << 32;
    if (paused) /* a closed pipe would report its end without being asked: leave the set */
        epoll_ctl(a->epoll, EPOLL_CTL_DEL, o->fd, NULL);
    else
        epoll_ctl(a->epoll, EPOLL_CTL_ADD, o->fd, &ev);
    o->paused = paused;
}

void agent_exec_output(struct agent *a, uint32_t index)
{
    struct agent_exec *e = &a->execs[index / AGENT_STREAMS];
    struct agent_output *o = &e->out[index % AGENT_STREAMS];

    if (!e->serial || o->fd < 0 || o->paused)
        return;
    if (e->stream != 0 && o->total < o->cap &&
        agent_queue_size(&a->control.queue) > SBX_AGENT_BACKLOG_MAX) {
        pause_output(a, o, true);
        return;
    }
    (void)output_read(a, e, (int)(index % AGENT_STREAMS));
}

void agent_exec_resume_all(struct agent *a)
{
    for (size_t i = 0; i < AGENT_EXEC_SLOTS; i++) {
        for (int s = 0; s < AGENT_STREAMS; s++) {
            struct agent_output *o = &a->execs[i].out[s];

            if (a->execs[i].serial && o->fd >= 0 && o->paused)
                pause_output(a, o, false);
        }
    }
}

static void send_exit(struct agent *a, struct agent_exec *e)
{
    struct agent_queue *q = &a->control.queue;

    agent_frame_begin(q, SBX_AGENT_EXIT, e->stream);
    agent_frame_number(q, SBX_TAG_EXIT_CODE, e->exit_code);
    if (e->signal)
        agent_frame_number(q, SBX_TAG_SIGNAL, e->signal);
    if (e->timed_out)
        agent_frame_number(q, SBX_TAG_TIMED_OUT, 1);
    agent_frame_number(q, SBX_TAG_STDOUT_BYTES, e->out[AGENT_STDOUT].total);
    agent_frame_number(q, SBX_TAG_STDERR_BYTES, e->out[AGENT_STDERR].total);
    agent_frame_number(q, SBX_TAG_DURATION_MS, e->ended_ms - e->began_ms);
    agent_frame_text(q, SBX_TAG_EXEC_ID, e->id);
    agent_frame_end(q);
    e->told = true;
    e->stream = 0; /* the gateway may use the number again */
}

/* What its pipes still hold, then EXIT.  A process of another execution may have been given a write
 * end, so the end of file is not waited for. */
static void conclude(struct agent *a, struct agent_exec *e)
{
    for (int i = 0; i < AGENT_STREAMS; i++) {
        uint64_t limit = e->out[i].total + AGENT_DRAIN_MAX;

        while (e->out[i].fd >= 0 && e->out[i].total < limit && output_read(a, e, i))
            ;
        output_close(&e->out[i]);
    }
    if (!e->ended) {
        e->ended_ms = agent_now_ms();
        e->exit_code = 128 + 9;
        e->signal = 9;
    }
    if (e->timed_out) {
        e->exit_code = 124;
        e->signal = 0;
    }
    if (a->control.state == AGENT_LINK_UP)
        send_exit(a, e);
}

/* The tree is gone. */
static void finish(struct agent *a, struct agent_exec *e)
{
    e->gone = true;
    if (!e->refused && !e->told)
        conclude(a, e);
    /* The one exit of a holder is told again at each redial: an earlier one may be lost. */
    if (e->refused || (e->told && !a->workload.personal))
        release(e);
}

static void kill_tree(struct agent *a, struct agent_exec *e)
{
    agent_warden_kill(&a->warden, e->serial);
    if (e->given_up_ms == UINT64_MAX)
        e->given_up_ms = agent_now_ms() + AGENT_KILL_GRACE_MS;
}

static void refused(struct agent *a, struct agent_exec *e, const struct agent_event *ev)
{
    enum sbx_agent_reason reason = (enum sbx_agent_reason)ev->value;
    const char *why = "the command could not be started";

    if (reason == SBX_AGENT_REASON_CWD_MISSING)
        why = ev->detail == EACCES ? "the working directory may not be entered"
                                   : "the working directory is not there";
    else if (reason == SBX_AGENT_REASON_CWD_ESCAPE)
        why = "the working directory leaves the workspace";
    else if (reason == SBX_AGENT_REASON_LIMIT)
        why = "the sandbox has reached its process limit";
    e->refused = true;
    if (e->stream)
        refuse(a, e->stream, reason, why);
}

void agent_exec_event(struct agent *a, const struct agent_event *ev)
{
    struct agent_exec *e = ev->serial ? by_serial(a, ev->serial) : NULL;

    if (!e)
        return;
    switch ((enum agent_event_kind)ev->kind) {
    case AGENT_EVENT_STARTED:
        e->started = true;
        if (e->stream)
            agent_frame_data(&a->control.queue, SBX_AGENT_STARTED, e->stream, NULL, 0);
        break;
    case AGENT_EVENT_REFUSED:
        refused(a, e, ev);
        break;
    case AGENT_EVENT_ENDED:
    case AGENT_EVENT_LAST:
        e->ended = true;
        e->ended_ms = agent_now_ms();
        e->exit_code = ev->value;
        e->signal = ev->detail;
        if (ev->kind == AGENT_EVENT_LAST && !e->told) { /* the init's own end concerns nobody */
            conclude(a, e);
            e->leaving = e->told;
        }
        break;
    case AGENT_EVENT_GONE:
        finish(a, e);
        break;
    }
}

bool agent_exec_starting(const struct agent *a)
{
    for (size_t i = 0; i < AGENT_EXEC_SLOTS; i++) {
        const struct agent_exec *e = &a->execs[i];

        if (e->serial && !e->started && !e->refused && !e->gone)
            return true;
    }
    return false;
}

void agent_exec_kill(struct agent *a, uint32_t stream, struct agent_span id)
{
    for (size_t i = 0; i < AGENT_EXEC_SLOTS; i++) {
        struct agent_exec *e = &a->execs[i];
        bool it = stream ? e->stream == stream
                         : id.len && strlen(e->id) == id.len && memcmp(e->id, id.data, id.len) == 0;

        if (e->serial && it)
            kill_tree(a, e);
    }
}

void agent_exec_list(struct agent *a, uint32_t stream)
{
    struct agent_queue *q = &a->control.queue;

    agent_frame_begin(q, SBX_AGENT_LISTED, stream);
    for (size_t i = 0; i < AGENT_EXEC_SLOTS; i++) {
        if (a->execs[i].serial && !a->execs[i].gone && !a->execs[i].told)
            agent_frame_text(q, SBX_TAG_EXEC_ID, a->execs[i].id);
    }
    agent_frame_end(q);
}

void agent_exec_detach_all(struct agent *a)
{
    for (size_t i = 0; i < AGENT_EXEC_SLOTS; i++)
        a->execs[i].stream = 0;
    agent_exec_resume_all(a);
}

void agent_exec_flush_exits(struct agent *a)
{
    for (size_t i = 0; i < AGENT_EXEC_SLOTS; i++) {
        if (a->execs[i].serial && a->execs[i].gone) {
            send_exit(a, &a->execs[i]);
            if (!a->workload.personal)
                release(&a->execs[i]);
        }
    }
}

/* When something is due for this one: the deadline, then the end of patience. */
static uint64_t due_of(const struct agent_exec *e)
{
    uint64_t due = UINT64_MAX;

    if (!e->serial || e->gone || e->told)
        return UINT64_MAX;
    if (!e->ended && !e->timed_out)
        due = e->deadline_ms;
    return e->given_up_ms < due ? e->given_up_ms : due;
}

uint64_t agent_exec_due(const struct agent *a)
{
    uint64_t due = UINT64_MAX;

    for (size_t i = 0; i < AGENT_EXEC_SLOTS; i++) {
        uint64_t its = due_of(&a->execs[i]);

        due = its < due ? its : due;
    }
    return due;
}

/* A process that hangs in the file system dies when that answers; who waits is told before. */
void agent_exec_tick(struct agent *a, uint64_t now_ms)
{
    for (size_t i = 0; i < AGENT_EXEC_SLOTS; i++) {
        struct agent_exec *e = &a->execs[i];

        if (now_ms < due_of(e))
            continue;
        if (now_ms >= e->given_up_ms) {
            e->given_up_ms = UINT64_MAX;
            if (a->control.state == AGENT_LINK_UP)
                conclude(a, e);
            continue;
        }
        e->timed_out = true;
        kill_tree(a, e);
    }
}
