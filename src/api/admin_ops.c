#include <inttypes.h>
#include <string.h>

#include "api/cursor.h"
#include "api/handlers.h"
#include "api/render.h"
#include "base/str.h"
#include "base/time.h"
#include "domain/sandbox_moves.h"
#include "sbx/version.h"
#include "store/executions.h"

/* The operator's calls about what goes on: status, why, audit, migrate, states. */

enum { MIGRATE_BUDGET_MS = 10 * 60 * 1000, DOT_MAX = 64 * 1024 };

static const char *text(const struct api_call *c, const char *name)
{
    return json_get_str(c->args, name, NULL);
}

/* --- sandboxes of all accounts ----------------------------------------- */

enum sbx_code api_admin_sandboxes(struct api_call *c, struct sbx_err *err)
{
    const char *cursor_text = text(c, "cursor");
    struct store_sandboxes rows = { 0 };
    struct api_cursor cursor;
    struct store_sandbox_filter filter = {
        .account_id = text(c, "accountId"),
        .statuses = api_statuses_of(text(c, "status")),
        .limit = (int)json_get_int(c->args, "limit", STORE_LIST_MAX),
    };
    json_t *list, *body;

    if (cursor_text != NULL && api_cursor_parse(cursor_text, &cursor)) {
        filter.before_ms = cursor.created_ms;
        filter.before_id = cursor.id;
    }
    if (filter.statuses != 0 && store_sandbox_list(c->db, &filter, c->a, &rows, err) != SBX_OK)
        return err->code;
    list = json_array();
    for (size_t i = 0; i < rows.count; i++)
        (void)json_array_append_new(list, api_render_sandbox(&rows.rows[i]));
    body = json_pack("{s:o}", "sandboxes", list);
    json_put_str(body, "nextCursor", api_next_cursor(c->a, &rows));
    response_ok(c->res, 200, body);
    return SBX_OK;
}

static enum sbx_code answer_sandbox(struct api_call *c, struct sbx_err *err)
{
    struct store_sandbox row;

    if (store_sandbox_get(c->db, NULL, text(c, "sandboxId"), c->a, &row, err) != SBX_OK)
        return err->code;
    response_ok(c->res, 200, json_pack("{s:o}", "sandbox", api_render_sandbox(&row)));
    return SBX_OK;
}

/* Any sandbox, holders of personal runs too: the operator's last resort. */
enum sbx_code api_admin_terminate(struct api_call *c, struct sbx_err *err)
{
    const struct reconcile_ask ask = {
        .sandbox_id = text(c, "sandboxId"),
        .actor = c->caller->actor,
        .request_id = request_id(c->req),
    };
    struct store_sandbox row;

    c->object_kind = "sandbox";
    if (reconcile_terminate(c->api->reconcile, c->db, &ask, c->a, &row, err) != SBX_OK)
        return err->code;
    if (row.status != SANDBOX_TERMINATED)
        return api_wait_status(c, ask.sandbox_id, SANDBOX_SET_ENDED, c->api->cfg.terminate_wait_ms,
                               answer_sandbox);
    return answer_sandbox(c, err);
}

/* --- status ------------------------------------------------------------ */

static json_t *counts_json(const struct store_counts *n)
{
    json_t *by_status = json_object();

    for (int s = SANDBOX_REQUESTED; s < SANDBOX_STATUS_COUNT; s++) {
        if (n->by_status[s] >= 0)
            json_put_int(by_status, sandbox_status_name((enum sandbox_status)s), n->by_status[s]);
    }
    return by_status;
}

static json_t *server_json(struct api_call *c)
{
    struct http_stats http;
    struct gateway_client_stats gw;
    struct reconcile_stats rec;

    http_server_stats(request_server(c->req), &http);
    gateway_client_stats(c->api->cfg.gateway, &gw);
    reconcile_stats(c->api->reconcile, &rec);
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "connections",
                     (json_int_t)http.connections, "requests", (json_int_t)http.requests, "queued",
                     (json_int_t)http.queued, "deferred", (json_int_t)http.deferred, "outputBytes",
                     (json_int_t)gw.output_bytes, "regionCalls", (json_int_t)rec.actions, "waiters",
                     (json_int_t)rec.waiters, "moves", (json_int_t)rec.moves, "movesLost",
                     (json_int_t)rec.moves_lost, "lost", (json_int_t)rec.lost, "strays",
                     (json_int_t)rec.strays);
}

enum sbx_code api_admin_status(struct api_call *c, struct sbx_err *err)
{
    struct store_counts counts;
    struct store_schema schema;
    struct store_regions regions;
    json_t *list, *body;

    if (store_schema_check(c->db, &schema, err) != SBX_OK ||
        store_counts_get(c->db, &counts, err) != SBX_OK ||
        store_region_list(c->db, c->a, &regions, err) != SBX_OK)
        return err->code;
    list = json_array();
    for (size_t i = 0; i < regions.count; i++)
        (void)json_array_append_new(list, api_render_region(&regions.rows[i]));
    body = json_pack(
        "{s:s, s:s, s:b, s:{s:i, s:i, s:b}, s:o, s:I, s:I, s:I, s:I, s:{s:I, s:I}, s:o, s:o}",
        "version", SBX_VERSION, "instance", reconcile_instance(c->api->reconcile), "listening",
        reconcile_listening(c->api->reconcile), "schema", "have", schema.have, "want", schema.want,
        "idempotencyIndex", schema.idempotency_index, "sandboxes", counts_json(&counts),
        "executions", (json_int_t)counts.executions, "due", (json_int_t)counts.due, "oldestDueMs",
        (json_int_t)counts.oldest_due_ms, "instances", (json_int_t)counts.instances, "warm",
        "starting", (json_int_t)counts.warm_starting, "ready", (json_int_t)counts.warm_ready,
        "server", server_json(c), "regions", list);
    response_ok(c->res, 200, body);
    return SBX_OK;
}

/* --- audit ------------------------------------------------------------- */

enum sbx_code api_admin_audit(struct api_call *c, struct sbx_err *err)
{
    const char *cursor = text(c, "cursor");
    struct store_audits rows;
    int64_t before = 0;
    json_t *list, *body;

    if (cursor != NULL && !str_parse_int(cursor, 1, INT64_MAX, &before))
        return err_field(err, "cursor", "cursor is not one that a list has answered.");
    if (store_audit_list(c->db, text(c, "accountId"), text(c, "objectId"), before,
                         (int)json_get_int(c->args, "limit", 100), c->a, &rows, err) != SBX_OK)
        return err->code;
    list = json_array();
    for (size_t i = 0; i < rows.count; i++)
        (void)json_array_append_new(list, api_render_audit(&rows.rows[i]));
    body = json_pack("{s:o}", "entries", list);
    if (rows.more && rows.count > 0)
        json_put_str(body, "nextCursor",
                     arena_printf(c->a, "%" PRId64, rows.rows[rows.count - 1].audit_id));
    response_ok(c->res, 200, body);
    return SBX_OK;
}

/* --- migrate ------------------------------------------------------- */

enum sbx_code api_admin_migrate(struct api_call *c, struct sbx_err *err)
{
    struct store_migrated done;

    c->object_kind = "schema";
    store_conn_budget(c->db, MIGRATE_BUDGET_MS);
    if (store_migrate(c->db, STORE_MIGRATIONS, &done, err) != SBX_OK)
        return err->code;
    api_set_ready(c->api, true);
    response_ok(c->res, 200,
                json_pack("{s:i, s:i}", "schema", done.schema, "applied", done.applied));
    return SBX_OK;
}

/* --- states ------------------------------------------------------------ */

static const char *after_name(const struct sandbox_move *m)
{
    return m->to == SANDBOX_BACK ? "BACK" : sandbox_status_name((enum sandbox_status)m->to);
}

enum sbx_code api_admin_states(struct api_call *c, struct sbx_err *err)
{
    SCOPED_BUF struct buf dot = BUF_INIT(DOT_MAX);
    json_t *moves = json_array();

    (void)err;
    (void)buf_puts(&dot, "digraph sandbox {\n  rankdir=LR;\n  node [shape=box];\n");
    for (size_t i = 0; i < SANDBOX_MOVE_COUNT; i++) {
        const struct sandbox_move *m = &SANDBOX_MOVES[i];
        json_t *j = json_pack("{s:s, s:s, s:s, s:s}", "from", sandbox_status_name(m->from), "event",
                              sandbox_event_name(m->event), "to", after_name(m), "why",
                              sandbox_event_text(m->event));

        if (m->action != SANDBOX_ACT_NONE)
            json_put_str(j, "action", sandbox_action_name(m->action));
        (void)json_array_append_new(moves, j);
        (void)buf_printf(&dot, "  %s -> %s [label=\"%s\"];\n", sandbox_status_name(m->from),
                         m->to == SANDBOX_BACK ? "READY" : after_name(m),
                         sandbox_event_name(m->event));
    }
    (void)buf_puts(&dot, "}\n");
    response_ok(c->res, 200, json_pack("{s:o, s:s}", "moves", moves, "dot", dot.data));
    return SBX_OK;
}
