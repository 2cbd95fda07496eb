#include "gateway/relay.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "base/time.h"
#include "gateway/relay_impl.h"

enum { EVENTS = 128 };

/* ---- frames ---- */

bool relay_put_field(struct buf *b, uint16_t tag, const void *data, size_t len)
{
    unsigned char head[6];

    if (len > SBX_AGENT_FRAME_MAX)
        return false;
    sbx_agent_put_u16(head, tag);
    sbx_agent_put_u32(head + 2, (uint32_t)len);
    return buf_append(b, head, sizeof(head)) && buf_append(b, data, len);
}

bool relay_put_text(struct buf *b, uint16_t tag, const char *text)
{
    return relay_put_field(b, tag, text, strlen(text));
}

bool relay_put_number(struct buf *b, uint16_t tag, uint64_t value)
{
    unsigned char bytes[8];

    sbx_agent_put_u64(bytes, value);
    return relay_put_field(b, tag, bytes, sizeof(bytes));
}

bool relay_put_frame(struct buf *b, uint8_t type, uint32_t stream, const struct buf *payload)
{
    unsigned char head[SBX_AGENT_HEADER_LEN];
    size_t len = payload != NULL ? payload->len : 0;

    if (len > SBX_AGENT_FRAME_MAX)
        return false;
    sbx_agent_header_pack(head, type, stream, (uint32_t)len);
    return buf_append(b, head, sizeof(head)) && (len == 0 || buf_append(b, payload->data, len));
}

/* ---- the thread ---- */

static void wake(struct relay *r)
{
    const uint64_t one = 1;

    (void)!write(r->wake, &one, sizeof(one));
}

/* Frees what epoll cannot name any more.  Under the lock, between two rounds. */
static void bury(struct relay *r)
{
    while (r->grave != NULL) {
        struct relay_conn *c = r->grave;

        r->grave = c->grave;
        free(c);
    }
    for (struct relay_box **at = &r->box_grave; *at != NULL;) {
        struct relay_box *box = *at;

        if (box->calls != NULL) { /* whoever waits in one still has to take it out */
            at = &box->grave;
            continue;
        }
        *at = box->grave;
        free(box->foreign);
        free(box);
    }
}

static void tick(struct relay *r, int64_t now, struct relay_exec **finished)
{
    ID_MAP_EACH(&r->boxes, slot)
    {
        struct relay_box *box = slot->value;

        for (struct relay_conn *c = box->conns, *next; c != NULL; c = next) {
            next = c->next;
            if (c->kind == RELAY_CONN_PENDING && now - c->opened_ms >= RELAY_HELLO_MS)
                relay_conn_close(r, c, finished);
        }
        relay_exec_tick(r, box, now, finished);
    }
}

static void handle(struct relay *r, const struct epoll_event *e, struct relay_exec **finished)
{
    enum relay_source *source = e->data.ptr;

    switch (*source) {
    case RELAY_SOURCE_WAKE: {
        uint64_t n;

        (void)!read(r->wake, &n, sizeof(n));
        break;
    }
    case RELAY_SOURCE_LISTEN: {
        struct relay_box *box = e->data.ptr;

        if (!box->dead)
            relay_accept(r, box);
        break;
    }
    case RELAY_SOURCE_CONN:
        relay_conn_event(r, e->data.ptr, e->events, finished);
        break;
    }
}

static void tell_tunnel(struct relay *r, struct relay_told *t)
{
    struct relay_exec *finished = NULL;
    struct sbx_err err = { 0 };
    int fd = -1;
    enum sbx_code code = r->config.events.dial_proxy(r->config.events.arg, t->id, &fd, &err);

    (void)pthread_mutex_lock(&r->lock);
    if (t->conn->dead)
        fd_close(&fd);
    else if (code != SBX_OK)
        relay_conn_close(r, t->conn, &finished);
    else
        relay_tunnel_open(r, t->conn, fd);
    (void)pthread_mutex_unlock(&r->lock);
    relay_finish(finished);
}

/* On the relay's thread, so the connections that are named are not buried yet. */
static void tell(struct relay *r, struct relay_told *told)
{
    while (told != NULL) {
        struct relay_told *next = told->next;

        switch (told->what) {
        case RELAY_TOLD_CONNECTED:
            r->config.events.connected(r->config.events.arg, told->id);
            break;
        case RELAY_TOLD_READY:
            r->config.events.ready(r->config.events.arg, told->id);
            break;
        case RELAY_TOLD_FAILED:
            r->config.events.failed(r->config.events.arg, told->id, told->message);
            break;
        case RELAY_TOLD_ENDED:
            r->config.events.ended(r->config.events.arg, told->id, told->execution_id,
                                   told->exit_code, told->signal);
            break;
        case RELAY_TOLD_TUNNEL:
            tell_tunnel(r, told);
            break;
        }
        free(told);
        told = next;
    }
}

static void run(void *arg)
{
    struct relay *r = arg;
    int64_t ticked = time_mono_ms();

    for (;;) {
        struct epoll_event events[EVENTS];
        struct relay_exec *finished = NULL;
        struct relay_told *told;
        bool busy, stopping;
        int64_t now;
        int n;

        (void)pthread_mutex_lock(&r->lock);
        bury(r);
        busy = r->executions > 0 || r->calls > 0 || r->pending > 0;
        stopping = r->stopping;
        (void)pthread_mutex_unlock(&r->lock);
        if (stopping)
            return;
        n = epoll_wait(r->epoll, events, EVENTS, busy ? RELAY_TICK_MS : -1);
        (void)pthread_mutex_lock(&r->lock);
        for (int i = 0; i < n; i++)
            handle(r, &events[i], &finished);
        now = time_mono_ms();
        if (now - ticked >= RELAY_TICK_MS) {
            ticked = now;
            tick(r, now, &finished);
        }
        told = r->told;
        r->told = NULL;
        (void)pthread_mutex_unlock(&r->lock);
        relay_finish(finished);
        tell(r, told);
    }
}

enum sbx_code relay_start(const struct relay_config *config, struct relay **out,
                          struct sbx_err *err)
{
    struct relay *r = mem_zalloc(sizeof(*r));
    struct epoll_event e = { .events = EPOLLIN };
    pthread_condattr_t attr;

    r->config = *config;
    r->wake_source = RELAY_SOURCE_WAKE;
    r->next_dial = 1;
    (void)pthread_mutex_init(&r->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&r->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    r->epoll = epoll_create1(EPOLL_CLOEXEC);
    r->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    e.data.ptr = &r->wake_source;
    if (r->epoll < 0 || r->wake < 0 || epoll_ctl(r->epoll, EPOLL_CTL_ADD, r->wake, &e) < 0) {
        enum sbx_code code = err_sys(err, SBX_E_INTERNAL, "start the agent channel");

        relay_stop(r);
        relay_free(r);
        return code;
    }
    if (tunnels_start(&r->tunnels, err) != SBX_OK ||
        thread_start(&r->thread, "relay", run, r, err) != SBX_OK) {
        relay_stop(r);
        relay_free(r);
        return err->code;
    }
    *out = r;
    return SBX_OK;
}

static void remove_box(struct relay *r, struct relay_box *box, enum sbx_code code,
                       const char *sentence, struct relay_exec **finished)
{
    (void)id_map_remove(&r->boxes, box->id);
    relay_exec_end_all(r, box, false, code, sentence, finished);
    relay_calls_end_all(r, box, code, sentence);
    while (box->conns != NULL)
        relay_conn_close(r, box->conns, finished);
    tunnels_end(r->tunnels, box->id);
    (void)epoll_ctl(r->epoll, EPOLL_CTL_DEL, box->listen_fd, NULL);
    fd_close(&box->listen_fd);
    secret_wipe(box->key, sizeof(box->key));
    buf_fini(&box->settings);
    box->dead = true;
    box->grave = r->box_grave;
    r->box_grave = box;
    wake(r); /* so that it is buried */
}

void relay_stop(struct relay *r)
{
    struct relay_exec *finished = NULL;

    if (r == NULL)
        return;
    (void)pthread_mutex_lock(&r->lock);
    r->stopping = true;
    (void)pthread_mutex_unlock(&r->lock);
    if (r->wake >= 0)
        wake(r);
    thread_join(&r->thread);
    (void)pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < r->boxes.size; i++) {
        if (r->boxes.slots[i].value != NULL)
            remove_box(r, r->boxes.slots[i].value, SBX_E_UNAVAILABLE,
                       "the region gateway is stopping", &finished);
    }
    (void)pthread_mutex_unlock(&r->lock);
    relay_finish(finished);
}

void relay_free(struct relay *r)
{
    if (r == NULL)
        return;
    bury(r);
    while (r->told != NULL) {
        struct relay_told *t = r->told;

        r->told = t->next;
        free(t);
    }
    tunnels_free(r->tunnels);
    id_map_fini(&r->boxes);
    fd_close(&r->epoll);
    fd_close(&r->wake);
    (void)pthread_cond_destroy(&r->changed);
    (void)pthread_mutex_destroy(&r->lock);
    free(r);
}

/* ---- sandboxes ---- */

static void put_strings(struct buf *b, uint16_t tag, const char *const *items)
{
    for (size_t i = 0; items != NULL && items[i] != NULL; i++)
        (void)relay_put_text(b, tag, items[i]);
}

static void put_settings(struct buf *b, const struct relay_sandbox *s)
{
    const struct driver_workload *w = s->workload;

    put_strings(b, SBX_TAG_ARG, (const char *const *)w->argv);
    put_strings(b, SBX_TAG_ENV, (const char *const *)w->env);
    (void)relay_put_text(b, SBX_TAG_CWD, w->cwd);
    (void)relay_put_number(b, SBX_TAG_UID, w->uid);
    (void)relay_put_number(b, SBX_TAG_GID, w->gid);
    for (size_t i = 0; i < w->group_count; i++)
        (void)relay_put_number(b, SBX_TAG_GROUPS, w->groups[i]);
    (void)relay_put_number(b, SBX_TAG_NPROC, w->nproc);
    (void)relay_put_text(b, SBX_TAG_WORKSPACE, "/workspace");
    if (w->proxy)
        (void)relay_put_number(b, SBX_TAG_PROXY, 1);
    if (s->personal)
        (void)relay_put_number(b, SBX_TAG_PERSONAL, 1);
    if (s->hold)
        (void)relay_put_number(b, SBX_TAG_HOLD, 1);
}

enum sbx_code relay_add(struct relay *r, const struct relay_sandbox *s, struct sbx_err *err)
{
    struct relay_box *box = mem_zalloc(sizeof(*box));
    struct epoll_event e = { .events = EPOLLIN, .data.ptr = box };
    enum sbx_code code = SBX_OK;

    box->source = RELAY_SOURCE_LISTEN;
    (void)str_copy(box->id, sizeof(box->id), s->id);
    box->listen_fd = s->listen_fd;
    memcpy(box->key, s->key, sizeof(box->key));
    box->welcomed = box->was_ready = s->welcomed;
    box->settings.max = SBX_AGENT_FRAME_MAX - 1024;
    if (s->workload != NULL)
        put_settings(&box->settings, s);
    (void)pthread_mutex_lock(&r->lock);
    if (box->settings.full)
        code = err_set(err, SBX_E_TOO_LARGE, "command and environment are too large");
    else if (id_map_get(&r->boxes, s->id) != NULL)
        code = err_set(err, SBX_E_CONFLICT, "the sandbox has an agent channel already");
    else if (epoll_ctl(r->epoll, EPOLL_CTL_ADD, box->listen_fd, &e) < 0)
        code = err_sys(err, SBX_E_INTERNAL, "listen for an agent");
    else
        id_map_put(&r->boxes, box->id, box);
    (void)pthread_mutex_unlock(&r->lock);
    if (code != SBX_OK) {
        fd_close(&box->listen_fd);
        buf_fini(&box->settings);
        free(box);
    }
    return code;
}

void relay_remove(struct relay *r, const char *id, enum sbx_code code, const char *sentence)
{
    struct relay_exec *finished = NULL;
    struct relay_box *box;

    (void)pthread_mutex_lock(&r->lock);
    box = id_map_get(&r->boxes, id);
    if (box != NULL)
        remove_box(r, box, code, sentence, &finished);
    (void)pthread_mutex_unlock(&r->lock);
    relay_finish(finished);
}

bool relay_is_ready(struct relay *r, const char *id)
{
    struct relay_box *box;
    bool ready;

    (void)pthread_mutex_lock(&r->lock);
    box = id_map_get(&r->boxes, id);
    ready = box != NULL && box->ready;
    (void)pthread_mutex_unlock(&r->lock);
    return ready;
}

/* ---- executions ---- */

static bool put_execution(struct buf *frame, const struct relay_execution *e, uint32_t stream)
{
    SCOPED_BUF struct buf payload = BUF_INIT(SBX_AGENT_FRAME_MAX);

    put_strings(&payload, SBX_TAG_ARG, e->argv);
    put_strings(&payload, SBX_TAG_ENV, e->env);
    if (e->cwd != NULL)
        (void)relay_put_text(&payload, SBX_TAG_CWD, e->cwd);
    (void)relay_put_number(&payload, SBX_TAG_TIMEOUT_MS, (uint64_t)e->timeout_ms);
    (void)relay_put_number(&payload, SBX_TAG_CAP_STDOUT, e->cap);
    (void)relay_put_number(&payload, SBX_TAG_CAP_STDERR, e->cap);
    (void)relay_put_text(&payload, SBX_TAG_EXEC_ID, e->execution_id);
    if (e->input != NULL)
        (void)relay_put_field(&payload, SBX_TAG_STDIN, e->input, e->input_len);
    return !payload.full && relay_put_frame(frame, SBX_AGENT_EXEC, stream, &payload);
}

static bool is_known(const struct relay_box *box, const char *execution_id)
{
    for (size_t i = 0; i < RELAY_RECENT; i++) {
        if (strcmp(box->recent[i], execution_id) == 0)
            return true;
    }
    for (const struct relay_exec *e = box->execs; e != NULL; e = e->next) {
        if (strcmp(e->id, execution_id) == 0)
            return true;
    }
    for (size_t i = 0; i < box->foreign_count; i++) {
        if (strcmp(box->foreign[i], execution_id) == 0)
            return true;
    }
    return false;
}

static enum sbx_code admit(struct relay *r, struct relay_box *box, const struct relay_execution *e,
                           struct sbx_err *err)
{
    if (box == NULL)
        return err_set(err, SBX_E_SANDBOX_NOT_FOUND, "the sandbox is not there");
    if (is_known(box, e->execution_id))
        return err_set(err, SBX_E_OPERATION_KNOWN, "this execution was started before");
    if (r->executions >= r->config.executions_max)
        return err_set(err, SBX_E_BUSY, "the region runs as many commands as it may");
    if (box->exec_count >= r->config.executions_per_sandbox)
        return err_set(err, SBX_E_BUSY, "the sandbox runs as many commands as it may");
    if (r->config.output_budget - r->output < RELAY_START_ROOM)
        return err_set(err, SBX_E_BUSY, "the region holds as much output as it may");
    return SBX_OK;
}

static void exec_free(struct relay_exec *e)
{
    buf_fini(&e->frame);
    free(e);
}

enum sbx_code relay_execute(struct relay *r, const struct relay_execution *e, struct sbx_err *err)
{
    struct relay_exec *x = mem_zalloc(sizeof(*x));
    struct relay_exec *finished = NULL;
    struct relay_box *box;
    enum sbx_code code;

    (void)str_copy(x->id, sizeof(x->id), e->execution_id);
    x->cap = e->cap;
    x->timeout_ms = e->timeout_ms;
    x->done = e->done;
    x->arg = e->arg;
    x->frame.max = SBX_AGENT_FRAME_MAX + 1024;
    x->result.out.max = x->result.err_out.max = e->cap;
    x->deadline_ms = time_mono_ms() + r->config.redial_timeout_ms;
    (void)pthread_mutex_lock(&r->lock);
    box = id_map_get(&r->boxes, e->id);
    code = admit(r, box, e, err);
    if (code == SBX_OK) {
        x->stream = ++box->next_stream;
        if (!put_execution(&x->frame, e, x->stream))
            code = err_set(err, SBX_E_TOO_LARGE, "arguments and environment are too large");
    }
    if (code == SBX_OK) {
        memcpy(box->recent[box->recent_at++ % RELAY_RECENT], x->id, ID_SIZE);
        x->next = box->execs;
        box->execs = x;
        box->exec_count++;
        if (r->executions++ == 0)
            wake(r); /* it may sleep without a deadline */
        relay_exec_flush(r, box, &finished);
    }
    (void)pthread_mutex_unlock(&r->lock);
    if (code != SBX_OK)
        exec_free(x);
    relay_finish(finished);
    return code;
}

void relay_result_free(struct relay *r, struct relay_result *result)
{
    buf_fini(&result->out);
    buf_fini(&result->err_out);
    (void)pthread_mutex_lock(&r->lock);
    r->output -= result->charged;
    (void)pthread_mutex_unlock(&r->lock);
    result->charged = 0;
}

const char **relay_executions(struct relay *r, const char *id, struct arena *a)
{
    const char **list;
    struct relay_box *box;
    size_t n = 0;

    (void)pthread_mutex_lock(&r->lock);
    box = id_map_get(&r->boxes, id);
    list = arena_zalloc(a, ((box != NULL ? box->exec_count + box->foreign_count : 0) + 1) *
                               sizeof(*list));
    if (box != NULL) {
        for (struct relay_exec *e = box->execs; e != NULL; e = e->next)
            list[n++] = arena_strdup(a, e->id);
        for (size_t i = 0; i < box->foreign_count; i++)
            list[n++] = arena_strdup(a, box->foreign[i]);
    }
    (void)pthread_mutex_unlock(&r->lock);
    return list;
}

static bool put_kill(struct relay_box *box, const char *execution_id, struct buf *frame)
{
    SCOPED_BUF struct buf payload = BUF_INIT(256);

    for (struct relay_exec *e = box->execs; e != NULL; e = e->next) {
        if (e->sent && strcmp(e->id, execution_id) == 0)
            return relay_put_frame(frame, SBX_AGENT_KILL, e->stream, NULL);
    }
    for (size_t i = 0; i < box->foreign_count; i++) {
        if (strcmp(box->foreign[i], execution_id) == 0)
            return relay_put_text(&payload, SBX_TAG_EXEC_ID, execution_id) &&
                   relay_put_frame(frame, SBX_AGENT_KILL, 0, &payload);
    }
    return false;
}

bool relay_kill(struct relay *r, const char *id, const char *execution_id)
{
    SCOPED_BUF struct buf frame = BUF_INIT(512);
    struct relay_exec *finished = NULL;
    struct relay_box *box;
    bool known;

    (void)pthread_mutex_lock(&r->lock);
    box = id_map_get(&r->boxes, id);
    known = box != NULL && box->control != NULL && put_kill(box, execution_id, &frame) &&
            relay_conn_send(r, box->control, &frame, &finished);
    (void)pthread_mutex_unlock(&r->lock);
    relay_finish(finished);
    return known;
}

bool relay_send(struct relay *r, const char *id, uint8_t type)
{
    SCOPED_BUF struct buf frame = BUF_INIT(64);
    struct relay_exec *finished = NULL;
    struct relay_box *box;
    bool sent;

    (void)relay_put_frame(&frame, type, 0, NULL);
    (void)pthread_mutex_lock(&r->lock);
    box = id_map_get(&r->boxes, id);
    sent =
        box != NULL && box->control != NULL && relay_conn_send(r, box->control, &frame, &finished);
    (void)pthread_mutex_unlock(&r->lock);
    relay_finish(finished);
    return sent;
}

/* ---- calls that wait ---- */

static struct timespec deadline_of(int timeout_ms)
{
    int64_t at = time_mono_ms() + timeout_ms;

    return (struct timespec){ .tv_sec = at / 1000, .tv_nsec = at % 1000 * 1000000 };
}

/* Under the lock: sends, waits, takes the call out of the box again. */
static enum sbx_code wait_for(struct relay *r, const char *id, struct relay_pending_call *p,
                              const struct buf *frame, int timeout_ms, struct relay_exec **finished,
                              struct sbx_err *err)
{
    struct timespec deadline = deadline_of(timeout_ms);
    struct relay_box *box = id_map_get(&r->boxes, id);
    int rc = 0;

    if (box == NULL || box->control == NULL)
        return err_set(err, SBX_E_AGENT_UNREACHABLE, "the sandbox's agent is not connected");
    p->next = box->calls;
    box->calls = p;
    if (r->calls++ == 0)
        wake(r);
    (void)relay_conn_send(r, box->control, frame, finished);
    while (!p->done && rc == 0)
        rc = pthread_cond_timedwait(&r->changed, &r->lock, &deadline);
    r->calls--;
    /* The box may be dead by now, but it is not buried before its calls are out of it. */
    for (struct relay_pending_call **at = &box->calls; *at != NULL; at = &(*at)->next) {
        if (*at == p) {
            *at = p->next;
            break;
        }
    }
    if (!p->done)
        return err_set(err, SBX_E_TIMEOUT, "the sandbox's agent did not answer in time");
    if (p->err.code != SBX_OK)
        *err = p->err;
    return err->code;
}

enum sbx_code relay_call(struct relay *r, struct relay_call *call, struct sbx_err *err)
{
    SCOPED_BUF struct buf frame = BUF_INIT(SBX_AGENT_FRAME_MAX + 1024);
    struct relay_pending_call p = { .call = call, .fd = -1 };
    struct relay_exec *finished = NULL;
    struct relay_box *box;
    enum sbx_code code;

    call->reason = SBX_AGENT_REASON_NONE;
    (void)pthread_mutex_lock(&r->lock);
    box = id_map_get(&r->boxes, call->id);
    p.stream = box != NULL ? ++box->next_stream : 0;
    if (!relay_put_frame(&frame, call->type, p.stream, call->payload))
        code = err_set(err, SBX_E_TOO_LARGE, "the request to the agent is too large");
    else
        code = wait_for(r, call->id, &p, &frame, call->timeout_ms, &finished, err);
    (void)pthread_mutex_unlock(&r->lock);
    relay_finish(finished);
    return code;
}

enum sbx_code relay_bulk(struct relay *r, const char *id, int timeout_ms, int *out,
                         struct sbx_err *err)
{
    SCOPED_BUF struct buf payload = BUF_INIT(64), frame = BUF_INIT(128);
    struct relay_pending_call p = { .fd = -1 };
    struct relay_exec *finished = NULL;
    struct relay_box *box;
    enum sbx_code code;

    (void)pthread_mutex_lock(&r->lock);
    box = id_map_get(&r->boxes, id);
    p.stream = box != NULL ? ++box->next_stream : 0;
    p.dial_id = r->next_dial++;
    (void)relay_put_number(&payload, SBX_TAG_DIAL_ID, p.dial_id);
    (void)relay_put_frame(&frame, SBX_AGENT_DIAL, p.stream, &payload);
    code = wait_for(r, id, &p, &frame, timeout_ms, &finished, err);
    (void)pthread_mutex_unlock(&r->lock);
    relay_finish(finished);
    if (code != SBX_OK) {
        fd_close(&p.fd);
        return code;
    }
    (void)fcntl(p.fd, F_SETFL, fcntl(p.fd, F_GETFL) & ~O_NONBLOCK);
    *out = p.fd;
    return SBX_OK;
}

void relay_stats(struct relay *r, struct relay_stats *out)
{
    *out = (struct relay_stats){ 0 };
    (void)pthread_mutex_lock(&r->lock);
    out->sandboxes = r->boxes.count;
    out->executions = r->executions;
    out->output_bytes = r->output;
    out->relays = tunnels_count(r->tunnels);
    ID_MAP_EACH(&r->boxes, slot)
    {
        out->connected += ((struct relay_box *)slot->value)->control != NULL ? 1 : 0;
    }
    (void)pthread_mutex_unlock(&r->lock);
}
