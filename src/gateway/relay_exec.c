#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "base/time.h"
#include "gateway/relay_impl.h"
#include "sbx/gateway.h"

/* Past the agent's own deadline, and within the caller's SBX_GATEWAY_EXECUTE_GRACE_S. */
enum { EXECUTE_GRACE_MS = SBX_GATEWAY_EXECUTE_GRACE_S * 1000 / 3 };

/* Why the agent refused to start a command, as the protocol says it. */
static const struct {
    enum sbx_agent_reason reason;
    enum sbx_code code;
    const char *field;
} REFUSALS[] = {
    { SBX_AGENT_REASON_CWD_MISSING, SBX_E_INVALID, "cwd" },
    { SBX_AGENT_REASON_CWD_ESCAPE, SBX_E_PATH_ESCAPE, "cwd" },
    { SBX_AGENT_REASON_LIMIT, SBX_E_BUSY, "" },
    { SBX_AGENT_REASON_FROZEN, SBX_E_SANDBOX_NOT_READY, "" },
    { SBX_AGENT_REASON_NOT_READY, SBX_E_SANDBOX_NOT_READY, "" },
    { SBX_AGENT_REASON_FORBIDDEN, SBX_E_PERSONAL_RUNTIME, "" },
};

/* The fields that answers carry. */
struct fields {
    uint64_t exit_code, signal, timed_out, out_bytes, err_bytes, duration_ms, reason, bytes,
        members;
    char exec_id[ID_SIZE];
    char message[DRIVER_REASON_SIZE];
    bool bad;
};

static uint64_t *number_of(struct fields *f, uint16_t tag)
{
    switch (tag) {
    case SBX_TAG_EXIT_CODE:
        return &f->exit_code;
    case SBX_TAG_SIGNAL:
        return &f->signal;
    case SBX_TAG_TIMED_OUT:
        return &f->timed_out;
    case SBX_TAG_STDOUT_BYTES:
        return &f->out_bytes;
    case SBX_TAG_STDERR_BYTES:
        return &f->err_bytes;
    case SBX_TAG_DURATION_MS:
        return &f->duration_ms;
    case SBX_TAG_REASON:
        return &f->reason;
    case SBX_TAG_BYTES:
        return &f->bytes;
    case SBX_TAG_MEMBERS:
        return &f->members;
    default:
        return NULL;
    }
}

static void copy_text(char *to, size_t size, const struct sbx_agent_field *f)
{
    size_t n = f->len < size - 1 ? f->len : size - 1;

    n = utf8_cut(f->data, n);
    memcpy(to, f->data, n);
    to[n] = 0;
    if (!utf8_valid(to, n))
        to[0] = 0;
}

static void parse_fields(const unsigned char *payload, size_t len, struct fields *out)
{
    struct sbx_agent_field f;
    size_t at = 0;

    *out = (struct fields){ 0 };
    while (sbx_agent_field_next(payload, len, &at, &f, &out->bad)) {
        uint64_t *number = number_of(out, f.tag);

        if (number != NULL && f.len != 8)
            out->bad = true;
        else if (number != NULL)
            *number = sbx_agent_get_u64(f.data);
        else if (f.tag == SBX_TAG_EXEC_ID)
            copy_text(out->exec_id, sizeof(out->exec_id), &f);
        else if (f.tag == SBX_TAG_MESSAGE)
            copy_text(out->message, sizeof(out->message), &f);
    }
}

/* ---- executions ---- */

static struct relay_exec *find_stream(struct relay_box *box, uint32_t stream)
{
    for (struct relay_exec *e = box->execs; e != NULL; e = e->next) {
        if (e->stream == stream && e->sent)
            return e;
    }
    return NULL;
}

/* Out of the box, into the finished list. */
static void finish(struct relay *r, struct relay_box *box, struct relay_exec *e,
                   struct relay_exec **finished)
{
    struct relay_exec **at = &box->execs;

    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    box->exec_count--;
    r->executions--;
    buf_fini(&e->frame);
    e->next = *finished;
    *finished = e;
}

/* An answer without a result never carries the output that came so far. */
static void fail(struct relay *r, struct relay_box *box, struct relay_exec *e, enum sbx_code code,
                 const char *field, const char *sentence, struct relay_exec **finished)
{
    buf_fini(&e->result.out);
    buf_fini(&e->result.err_out);
    r->output -= e->result.charged;
    e->result.charged = 0;
    (void)!err_set(&e->result.err, code, "%s", sentence);
    (void)str_copy(e->result.err.field, sizeof(e->result.err.field), field);
    finish(r, box, e, finished);
}

void relay_exec_end_all(struct relay *r, struct relay_box *box, bool sent_only, enum sbx_code code,
                        const char *sentence, struct relay_exec **finished)
{
    for (struct relay_exec *e = box->execs, *next; e != NULL; e = next) {
        next = e->next;
        if (e->sent || !sent_only)
            fail(r, box, e, code, "", sentence, finished);
    }
}

void relay_exec_flush(struct relay *r, struct relay_box *box, struct relay_exec **finished)
{
    for (struct relay_exec *e = box->execs, *next; e != NULL && box->ready; e = next) {
        next = e->next;
        if (e->sent)
            continue;
        e->sent = true;
        e->deadline_ms = time_mono_ms() + e->timeout_ms + EXECUTE_GRACE_MS;
        (void)relay_conn_send(r, box->control, &e->frame, finished);
        if (box->ready) /* else the connection broke, and e with it */
            buf_fini(&e->frame);
        else
            return;
    }
}

static void keep(struct relay *r, struct relay_exec *e, struct buf *to, uint64_t *seen,
                 const unsigned char *data, size_t len)
{
    size_t room = e->cap - to->len;
    size_t budget = r->config.output_budget - r->output;
    size_t n = len < room ? len : room;

    if (*seen > to->len)
        n = 0; /* the first bytes are kept: nothing after a gap */
    if (n > budget)
        n = budget;
    if (n > 0 && buf_append(to, data, n)) {
        r->output += n;
        e->result.charged += n;
    }
    *seen += len;
}

static void on_exit_frame(struct relay *r, struct relay_box *box, const struct fields *f,
                          struct relay_exec *e, struct relay_exec **finished)
{
    struct relay_result *res = &e->result;

    res->exit_code = (int)f->exit_code;
    res->signal = (int)f->signal;
    res->timed_out = f->timed_out != 0;
    res->duration_ms = (int64_t)f->duration_ms;
    if (f->out_bytes > res->out_bytes)
        res->out_bytes = f->out_bytes;
    if (f->err_bytes > res->err_bytes)
        res->err_bytes = f->err_bytes;
    res->out_truncated = res->out_bytes > res->out.len;
    res->err_truncated = res->err_bytes > res->err_out.len;
    finish(r, box, e, finished);
}

static void on_refused(struct relay *r, struct relay_box *box, const struct fields *f,
                       struct relay_exec *e, struct relay_exec **finished)
{
    const char *sentence = f->message[0] != 0 ? f->message : "the command could not be started";

    for (size_t i = 0; i < COUNT_OF(REFUSALS); i++) {
        if ((uint64_t)REFUSALS[i].reason == f->reason) {
            fail(r, box, e, REFUSALS[i].code, REFUSALS[i].field, sentence, finished);
            return;
        }
    }
    fail(r, box, e, SBX_E_AGENT_UNREACHABLE, "", sentence, finished);
}

static void foreign_remove(struct relay_box *box, const char *exec_id)
{
    for (size_t i = 0; i < box->foreign_count; i++) {
        if (strcmp(box->foreign[i], exec_id) == 0) {
            memcpy(box->foreign[i], box->foreign[--box->foreign_count], ID_SIZE);
            return;
        }
    }
}

static bool is_ours(const struct relay_box *box, const char *exec_id)
{
    for (const struct relay_exec *e = box->execs; e != NULL; e = e->next) {
        if (e->sent && strcmp(e->id, exec_id) == 0)
            return true;
    }
    return false;
}

static void on_listed(struct relay_box *box, const unsigned char *payload, size_t len)
{
    struct sbx_agent_field f;
    size_t at = 0;
    bool bad = false;

    if (box->foreign == NULL)
        box->foreign = mem_zalloc(RELAY_FOREIGN_MAX * sizeof(*box->foreign));
    box->foreign_count = 0;
    while (sbx_agent_field_next(payload, len, &at, &f, &bad)) {
        char id[ID_SIZE];

        if (f.tag != SBX_TAG_EXEC_ID || f.len != SBX_ID_LEN)
            continue;
        copy_text(id, sizeof(id), &f);
        if (id_valid(id) && !is_ours(box, id) && box->foreign_count < RELAY_FOREIGN_MAX)
            memcpy(box->foreign[box->foreign_count++], id, ID_SIZE);
    }
}

/* ---- calls ---- */

static struct relay_pending_call *find_call(struct relay_box *box, uint32_t stream)
{
    for (struct relay_pending_call *p = box->calls; p != NULL; p = p->next) {
        if (p->stream == stream && !p->done)
            return p;
    }
    return NULL;
}

static void on_done(struct relay *r, struct relay_box *box, uint32_t stream, const struct fields *f)
{
    struct relay_pending_call *p = find_call(box, stream);

    if (p == NULL)
        return;
    if (f->reason != SBX_AGENT_REASON_NONE)
        (void)!err_set(&p->err, SBX_E_CONFLICT, "%s",
                       f->message[0] != 0 ? f->message : "the agent refused");
    if (p->call != NULL) {
        p->call->reason = (enum sbx_agent_reason)f->reason;
        p->call->bytes = f->bytes;
        p->call->members = f->members;
    }
    p->done = true;
    (void)pthread_cond_broadcast(&r->changed);
}

void relay_calls_end_all(struct relay *r, struct relay_box *box, enum sbx_code code,
                         const char *sentence)
{
    for (struct relay_pending_call *p = box->calls; p != NULL; p = p->next) {
        if (p->done)
            continue;
        (void)!err_set(&p->err, code, "%s", sentence);
        p->done = true;
    }
    (void)pthread_cond_broadcast(&r->changed);
}

/* ---- frames of a CONTROL connection ---- */

static void on_output(struct relay *r, struct relay_box *box, const struct sbx_agent_header *h,
                      const unsigned char *payload)
{
    struct relay_exec *e = find_stream(box, h->stream);

    if (e == NULL)
        return;
    if (h->type == SBX_AGENT_STDOUT)
        keep(r, e, &e->result.out, &e->result.out_bytes, payload, h->length);
    else
        keep(r, e, &e->result.err_out, &e->result.err_bytes, payload, h->length);
}

static void on_data(struct relay_box *box, const struct sbx_agent_header *h,
                    const unsigned char *payload)
{
    struct relay_pending_call *p = find_call(box, h->stream);

    if (p != NULL && p->call != NULL && p->call->data != NULL)
        (void)buf_append(p->call->data, payload, h->length);
}

void relay_frame(struct relay *r, struct relay_conn *c, const struct sbx_agent_header *h,
                 const unsigned char *payload, struct relay_exec **finished)
{
    struct relay_box *box = c->box;
    struct relay_exec *e;
    struct fields f;

    if (h->type == SBX_AGENT_STDOUT || h->type == SBX_AGENT_STDERR) {
        on_output(r, box, h, payload);
        return;
    }
    if (h->type == SBX_AGENT_DATA) {
        on_data(box, h, payload);
        return;
    }
    if (h->type == SBX_AGENT_PING) {
        SCOPED_BUF struct buf pong = BUF_INIT(SBX_AGENT_FRAME_MAX + 1024);
        struct buf same = { .data = (char *)(uintptr_t)payload,
                            .len = h->length,
                            .max = h->length };

        (void)relay_put_frame(&pong, SBX_AGENT_PONG, h->stream, &same);
        (void)relay_conn_send(r, c, &pong, finished);
        return;
    }
    if (h->type == SBX_AGENT_PONG)
        return;
    parse_fields(payload, h->length, &f);
    if (f.bad) {
        relay_conn_close(r, c, finished);
        return;
    }
    switch (h->type) {
    case SBX_AGENT_READY:
        box->ready = box->was_ready = true;
        relay_tell(r, box, RELAY_TOLD_READY, "", NULL);
        relay_exec_flush(r, box, finished);
        break;
    case SBX_AGENT_FAILED:
        relay_tell(r, box, RELAY_TOLD_FAILED,
                   f.message[0] != 0 ? f.message : "the command could not be started", NULL);
        break;
    case SBX_AGENT_EXIT:
        e = find_stream(box, h->stream);
        if (e != NULL) {
            on_exit_frame(r, box, &f, e, finished);
        } else {
            foreign_remove(box, f.exec_id);
            relay_tell_ended(r, box, f.exec_id, (int)f.exit_code, (int)f.signal);
        }
        break;
    case SBX_AGENT_REFUSED:
        e = find_stream(box, h->stream);
        if (e != NULL)
            on_refused(r, box, &f, e, finished);
        break;
    case SBX_AGENT_LISTED:
        if (h->stream == box->list_stream)
            on_listed(box, payload, h->length);
        break;
    case SBX_AGENT_DONE:
        on_done(r, box, h->stream, &f);
        break;
    default: /* STARTED, ENDED, and what a newer agent says */
        break;
    }
}

/* ---- time ---- */

void relay_exec_tick(struct relay *r, struct relay_box *box, int64_t now,
                     struct relay_exec **finished)
{
    SCOPED_BUF struct buf ping = BUF_INIT(64);
    struct relay_conn *c = box->control;

    for (struct relay_exec *e = box->execs, *next; e != NULL; e = next) {
        next = e->next;
        if (now >= e->deadline_ms)
            fail(r, box, e, SBX_E_AGENT_UNREACHABLE, "",
                 e->sent ? "the sandbox's agent did not answer in time"
                         : "the sandbox's agent is not connected",
                 finished);
    }
    if (c == NULL || (box->execs == NULL && box->calls == NULL)) {
        if (c != NULL)
            c->pinged_ms = 0;
        return;
    }
    if (c->pinged_ms != 0 && c->heard_ms < c->pinged_ms &&
        now - c->pinged_ms >= r->config.silence_timeout_ms) {
        relay_conn_close(r, c, finished);
        return;
    }
    if ((c->pinged_ms != 0 && c->heard_ms < c->pinged_ms) ||
        now - (c->pinged_ms > c->heard_ms ? c->pinged_ms : c->heard_ms) <
            r->config.ping_interval_ms)
        return;
    c->pinged_ms = now;
    (void)relay_put_frame(&ping, SBX_AGENT_PING, 0, NULL);
    (void)relay_conn_send(r, c, &ping, finished);
}

void relay_finish(struct relay_exec *finished)
{
    while (finished != NULL) {
        struct relay_exec *next = finished->next;

        finished->done(finished->arg, &finished->result);
        free(finished);
        finished = next;
    }
}
