#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "gateway/gateway_impl.h"
#include "gateway/gateway_stream.h"

enum {
    ANSWER_SLACK = 4096,
    ESCAPE_FACTOR = 6,       /* of a control character in JSON */
    AT_ONCE_MAX = 16 * 1024, /* bytes of output that the relay's thread escapes itself */
};

/* From the start of a command to its answer. */
struct execution {
    struct gateway *g;
    uint64_t ticket;
    struct relay_result result;
};

static void execution_free(struct execution *x)
{
    relay_result_free(x->g->relay, &x->result);
    free(x);
}

static json_t *result_json(const struct relay_result *r)
{
    json_t *j = json_object();

    json_put_int(j, "exitCode", r->exit_code);
    gateway_stream_put(j, "stdout", &r->out, r->out_bytes, r->out_truncated);
    gateway_stream_put(j, "stderr", &r->err_out, r->err_bytes, r->err_truncated);
    json_put_int(j, "durationMs", r->duration_ms);
    json_put_true(j, "timedOut", r->timed_out);
    if (r->signal != 0)
        json_put_int(j, "signal", r->signal);
    return j;
}

/* On a worker, or for little output on the relay's thread: escaping megabytes takes time. */
static enum sbx_code answer(struct request *req, struct response *res, void *arg,
                            struct sbx_err *err)
{
    struct execution *x = arg;
    struct relay_result *r = &x->result;
    struct buf text = BUF_INIT(ESCAPE_FACTOR * (r->out.len + r->err_out.len) + ANSWER_SLACK);

    (void)req;
    metrics_add(x->g->counters, GATEWAY_M_EXECUTIONS, METRICS_LABELS(sbx_code_name(r->err.code)),
                1);
    if (r->err.code != SBX_OK) {
        *err = r->err;
    } else {
        SCOPED_JSON json_t *j = result_json(r);

        if (json_write(&text, j))
            response_buf(res, 200, "application/json", &text);
        else
            err_put(err, SBX_E_INTERNAL, "the answer did not fit");
    }
    buf_fini(&text);
    execution_free(x);
    return err->code;
}

static void done(void *arg, struct relay_result *result)
{
    struct execution *x = arg;
    bool at_once = result->out.len + result->err_out.len <= AT_ONCE_MAX;

    x->result = *result;
    if (!(at_once ? request_finish : request_continue)(x->g->http, x->ticket, answer, x))
        execution_free(x); /* the client is gone; its command ran to the end all the same */
}

/* What must hold before anything is started. */
static enum sbx_code check(struct gateway *g, const char *id, int64_t generation,
                           char runtime[ID_SIZE], struct sbx_err *err)
{
    struct gateway_sandbox *s;

    (void)pthread_mutex_lock(&g->lock);
    s = gateway_find(g, id);
    if (s == NULL || s->phase == GATEWAY_PHASE_NONE || s->phase == GATEWAY_PHASE_FAILED)
        err_put(err, SBX_E_SANDBOX_NOT_FOUND, "the sandbox is not there");
    else if (generation < s->generation)
        err_put(err, SBX_E_STALE, "the region has seen a newer generation of the sandbox");
    else if (s->phase == GATEWAY_PHASE_STOPPED)
        err_put(err, SBX_E_SANDBOX_SUSPENDED, "the sandbox is suspended");
    else if (s->phase == GATEWAY_PHASE_STARTING)
        err_put(err, SBX_E_SANDBOX_NOT_READY, "the sandbox is not ready");
    else if (!s->agent)
        err_put(err, SBX_E_AGENT_MISSING, "the sandbox runs without an agent");
    else if (s->personal)
        err_put(err, SBX_E_PERSONAL_RUNTIME, "the sandbox belongs to a personal run");
    else
        (void)str_copy(runtime, ID_SIZE, s->runtime);
    (void)pthread_mutex_unlock(&g->lock);
    return err->code;
}

enum sbx_code gateway_route_execute(struct request *req, struct response *res, struct sbx_err *err)
{
    struct gateway *g = request_owner(req);
    size_t cap_max = (size_t)config_int(g->config, "limits", "output_max_mb") << 20;
    const char *id = request_param(req, "id");
    struct gateway_execute parsed = { 0 };
    struct relay_execution e;
    struct execution *x;
    char runtime[ID_SIZE];
    json_t *body;

    (void)res;
    request_log(req, "sandboxId", id);
    if (request_json(req, &body, err) != SBX_OK ||
        gateway_parse_execute(body, cap_max, request_arena(req), &parsed, err) != SBX_OK ||
        check(g, id, parsed.generation, runtime, err) != SBX_OK)
        return err->code;
    x = mem_zalloc(sizeof(*x));
    x->g = g;
    /* Past the relay's own deadline, which always answers: this one is a net below it. */
    x->ticket = request_defer(
        req, parsed.timeout_ms + (int64_t)SBX_GATEWAY_EXECUTE_GRACE_S * 1000 * 2, NULL);
    e = (struct relay_execution){
        .id = runtime,
        .execution_id = parsed.execution_id,
        .argv = (const char *const *)parsed.argv,
        .env = (const char *const *)parsed.env,
        .cwd = parsed.cwd,
        .timeout_ms = parsed.timeout_ms,
        .cap = parsed.cap,
        .done = done,
        .arg = x,
    };
    if (relay_execute(g->relay, &e, &x->result.err) != SBX_OK &&
        !request_continue(g->http, x->ticket, answer, x))
        execution_free(x);
    return SBX_OK;
}
