#include <string.h>

#include "api/handlers.h"
#include "api/render.h"
#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "sbx/gateway.h"

/* What holds a sandbox where it is: the row, its history, what runs in it, and, while the
 * region has it, what its network refused. */

enum { HISTORY_AUDIT_MAX = 50 };

static json_t *event_json(const struct store_event *e)
{
    json_t *j = json_object();

    json_put_time(j, "at", e->at_ms);
    json_put_int(j, "generation", e->generation);
    json_put_str(j, "from", sandbox_status_name(e->from));
    json_put_str(j, "to", sandbox_status_name(e->to));
    json_put_str(j, "cause", e->cause);
    json_put_str(j, "actor", e->actor);
    json_put_str(j, "requestId", e->request_id);
    json_put_str(j, "reason", e->reason);
    return j;
}

static json_t *execution_json(const struct store_execution *e)
{
    json_t *j = json_object();

    json_put_str(j, "executionId", e->execution_id);
    json_put_str(j, "instance", e->instance);
    json_put_str(j, "actor", e->actor);
    json_put_str(j, "requestId", e->request_id);
    json_put_time(j, "startedAt", e->started_at_ms);
    json_put_time(j, "deadlineAt", e->deadline_at_ms);
    return j;
}

static void put_internals(json_t *j, const struct store_sandbox *row)
{
    json_put_time(j, "statusSince", row->status_since_ms);
    json_put_time(j, "deadlineAt", row->deadline_at_ms);
    json_put_time(j, "nextActionAt", row->next_action_at_ms);
    json_put_int(j, "attempts", row->attempt);
    json_put_str(j, "lastError", row->last_error);
    json_put_str(j, "leaseOwner", row->lease_owner);
    json_put_time(j, "leaseUntil", row->lease_until_ms);
    json_put_bool(j, "holdsCompute", row->holds_compute);
    json_put_time(j, "now", row->now_ms);
}

/* --- the region's part -------------------------------------------------- */

struct why {
    struct api *api;
    struct http_server *server;
    uint64_t ticket;
    char id[ID_SIZE];
    json_t *body;
};

static void why_free(struct why *w)
{
    json_decref(w->body);
    free(w);
}
DEFINE_SCOPED(struct why, why_free)

static struct why *why_new(struct api_call *c, json_t *body)
{
    struct why *w = mem_zalloc(sizeof(*w));

    c->deferred = true;
    request_set_slot(c->req, c);
    w->api = c->api;
    w->server = request_server(c->req);
    w->ticket = request_defer(c->req, (SBX_GATEWAY_CALL_TIMEOUT_S + 5) * 1000, NULL);
    w->body = body;
    (void)str_copy(w->id, sizeof(w->id), json_get_str(c->args, "sandboxId", ""));
    return w;
}

static enum sbx_code why_answer(struct request *req, struct response *res, void *arg,
                                struct sbx_err *err)
{
    SCOPED(why_free_p) struct why *w = arg;
    struct api_call *c = request_slot(req);

    (void)err;
    c->res = res;
    response_ok(res, 200, STEAL(w->body));
    api_call_audit(c, SBX_OK);
    return SBX_OK;
}

/* A region that does not answer is no reason to tell nothing. */
static void on_denied(void *arg, const struct gateway_client_answer *answer)
{
    struct why *w = arg;
    const json_t *events = answer->json != NULL ? json_object_get(answer->json, "events") : NULL;
    json_t *denied = json_array();

    for (size_t i = 0; i < json_array_size(events); i++)
        (void)json_array_append(denied, json_array_get(events, i));
    json_put_new(w->body, "denied", denied);
    if (answer->code != SBX_OK)
        json_put_str(w->body, "regionError",
                     answer->message != NULL && answer->message[0] != 0
                         ? answer->message
                         : "The region does not answer.");
    if (!api_continue(w->api, w->server, w->ticket, why_answer, w))
        why_free(w);
}

enum sbx_code api_admin_why(struct api_call *c, struct sbx_err *err)
{
    const char *id = json_get_str(c->args, "sandboxId", NULL);
    struct store_sandbox row;
    struct store_events events;
    struct store_executions running;
    struct store_audits audits;
    json_t *body, *history, *executions, *trail;
    struct why *w;
    struct sbx_err none = { 0 };

    if (store_sandbox_get(c->db, NULL, id, c->a, &row, err) != SBX_OK ||
        store_event_list(c->db, id, c->a, &events, err) != SBX_OK ||
        store_execution_list(c->db, id, c->a, &running, err) != SBX_OK ||
        store_audit_list(c->db, NULL, id, 0, HISTORY_AUDIT_MAX, c->a, &audits, err) != SBX_OK)
        return err->code;
    history = json_array();
    for (size_t i = 0; i < events.count; i++)
        (void)json_array_append_new(history, event_json(&events.rows[i]));
    executions = json_array();
    for (size_t i = 0; i < running.count; i++)
        (void)json_array_append_new(executions, execution_json(&running.rows[i]));
    trail = json_array();
    for (size_t i = 0; i < audits.count; i++)
        (void)json_array_append_new(trail, api_render_audit(&audits.rows[i]));
    body = json_pack("{s:o, s:o, s:o, s:o}", "sandbox", api_render_sandbox(&row), "executions",
                     executions, "history", history, "audit", trail);
    put_internals(body, &row);
    if (!row.holds_compute && row.status != SANDBOX_SUSPENDED) {
        response_ok(c->res, 200, body);
        return SBX_OK;
    }
    w = why_new(c, body);
    if (gateway_client_read(c->api->cfg.gateway, row.region,
                            arena_printf(c->a, "/v1/egress/denied?sandboxId=%s", w->id), on_denied,
                            w, &none) != SBX_OK)
        on_denied(w, &(struct gateway_client_answer){ .code = none.code, .message = none.msg });
    return SBX_OK;
}
