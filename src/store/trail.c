#include "store/trail.h"

#include <assert.h>

#include "store/db.h"

#define AUDIT_COLUMNS                                                                              \
    "d.audit_id, " STORE_MS(                                                                       \
        "d.at") ", d.account_id, d.actor, d.action, d.object_kind, "                               \
                "d.object_id, d.request_id, d.outcome, coalesce(d.exit_code, -1), "                \
                "coalesce(d.duration_ms, -1), d.run_id"

enum {
    AUDIT_WRITE,
    AUDIT_LIST_ACCOUNT,
    AUDIT_LIST_OBJECT,
    AUDIT_LIST_ALL,
    EVENT_LIST,
    SETTING_GET,
    SETTING_PUT,
    COUNT_STATUS,
    COUNT_OTHER,
    PRUNE_AUDIT,
    PRUNE_EVENTS,
};

const struct store_stmt STORE_STMT_TRAIL[] = {
    [AUDIT_WRITE] = { "audit_write",
                      "INSERT INTO sandboxd.audit (account_id, actor, action, object_kind, "
                      "object_id, request_id, outcome, exit_code, duration_ms, run_id) "
                      "VALUES ($1, $2, $3, $4, $5, $6, $7, nullif($8::integer, -1), "
                      "nullif($9::bigint, -1), $10)",
                      10, false },
    [AUDIT_LIST_ACCOUNT] = { "audit_list_account",
                             "SELECT " AUDIT_COLUMNS " FROM sandboxd.audit d "
                             "WHERE d.account_id = $1 AND ($2::text IS NULL OR d.object_id = $2) "
                             "AND d.audit_id < $3 ORDER BY d.audit_id DESC LIMIT $4",
                             4, true },
    [AUDIT_LIST_OBJECT] = { "audit_list_object",
                            "SELECT " AUDIT_COLUMNS " FROM sandboxd.audit d "
                            "WHERE d.object_id = $1 AND d.audit_id < $2 "
                            "ORDER BY d.audit_id DESC LIMIT $3",
                            3, true },
    [AUDIT_LIST_ALL] = { "audit_list_all",
                         "SELECT " AUDIT_COLUMNS " FROM sandboxd.audit d WHERE d.audit_id < $1 "
                         "ORDER BY d.audit_id DESC LIMIT $2",
                         2, true },
    [EVENT_LIST] = { "event_list",
                     "SELECT " STORE_MS("e.at") ", e.generation, e.from_status, e.to_status, "
                                                "e.cause, e.actor, e.request_id, e.reason FROM "
                                                "sandboxd.sandbox_events e "
                                                "WHERE e.sandbox_id = $1 ORDER BY e.generation",
                     1, true },
    [SETTING_GET] = { "setting_get", "SELECT t.value FROM sandboxd.settings t WHERE t.name = $1", 1,
                      true },
    [SETTING_PUT] = { "setting_put",
                      "WITH p AS (INSERT INTO sandboxd.settings AS t (name, value) "
                      "VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value, "
                      "updated_at = now() RETURNING t.name) "
                      "SELECT pg_notify('sandboxd_config', 'setting') FROM p",
                      2, true },
    [COUNT_STATUS] = { "count_status",
                       "SELECT s.status, count(*) FROM sandboxd.sandboxes s WHERE NOT s.ended "
                       "GROUP BY s.status",
                       0, true },
    [COUNT_OTHER] = { "count_other",
                      "SELECT (SELECT count(*) FROM sandboxd.executions), "
                      "(SELECT count(*) FROM sandboxd.sandboxes s WHERE s.next_action_at <= "
                      "now()), "
                      "(SELECT (extract(epoch FROM now() - min(s.next_action_at)) * 1000)::bigint "
                      "FROM sandboxd.sandboxes s WHERE s.next_action_at <= now()), "
                      "(SELECT count(*) FROM sandboxd.sandboxes s WHERE s.lease_owner IS NOT "
                      "NULL), "
                      "(SELECT count(*) FROM sandboxd.warm_members w WHERE w.status = 'STARTING'), "
                      "(SELECT count(*) FROM sandboxd.warm_members w WHERE w.status = 'READY'), "
                      "(SELECT count(*) FROM sandboxd.instances)",
                      0, true },
    /* Both walk an index from its old end and stop at the first row that is young enough. */
    [PRUNE_AUDIT] = { "prune_audit",
                      "DELETE FROM sandboxd.audit d WHERE d.audit_id = ANY(ARRAY("
                      "SELECT o.audit_id FROM (SELECT i.audit_id, i.at FROM sandboxd.audit i "
                      "ORDER BY i.audit_id LIMIT $2) o "
                      "WHERE o.at < now() - sandboxd.span($1::bigint)))",
                      2, true },
    [PRUNE_EVENTS] = { "prune_events",
                       "WITH old AS (UPDATE sandboxd.sandboxes s SET move_count = 0 "
                       "WHERE s.sandbox_id = ANY(ARRAY(SELECT o.sandbox_id "
                       "FROM sandboxd.sandboxes o WHERE o.ended AND o.move_count > 0 "
                       "AND o.terminated_at < now() - sandboxd.span($1::bigint) "
                       "ORDER BY o.terminated_at LIMIT $2 FOR UPDATE SKIP LOCKED)) "
                       "RETURNING s.sandbox_id) DELETE FROM sandboxd.sandbox_events e USING old "
                       "WHERE e.sandbox_id = old.sandbox_id",
                       2, true },
};
const size_t STORE_STMT_TRAIL_COUNT = COUNT_OF(STORE_STMT_TRAIL);

static const struct store_stmt *const S = STORE_STMT_TRAIL;

enum sbx_code store_audit_write(struct store_conn *db, const struct store_audit *rows, size_t count,
                                struct sbx_err *err)
{
    SCOPED_ARENA struct arena *scratch = arena_new();
    struct store_args *q = arena_zalloc(scratch, count * sizeof(*q));

    assert(count <= STORE_BATCH_MAX);
    if (count == 0)
        return SBX_OK;
    for (size_t i = 0; i < count; i++) {
        store_arg_text(&q[i], rows[i].account_id);
        store_arg_text(&q[i], rows[i].actor);
        store_arg_text(&q[i], rows[i].action);
        store_arg_text(&q[i], rows[i].object_kind);
        store_arg_text(&q[i], rows[i].object_id);
        store_arg_text(&q[i], rows[i].request_id);
        store_arg_text(&q[i], rows[i].outcome);
        store_arg_int(&q[i], rows[i].exit_code);
        store_arg_int(&q[i], rows[i].duration_ms);
        store_arg_text(&q[i], rows[i].run_id);
    }
    return store_do_many(db, &S[AUDIT_WRITE], q, count, err);
}

static void audit_row(struct store_row *r, void *to)
{
    struct store_audit *out = to;

    out->audit_id = store_row_int(r);
    out->at_ms = store_row_int(r);
    out->account_id = store_row_text(r);
    out->actor = store_row_text(r);
    out->action = store_row_text(r);
    out->object_kind = store_row_text(r);
    out->object_id = store_row_text(r);
    out->request_id = store_row_text(r);
    out->outcome = store_row_text(r);
    out->exit_code = store_row_int32(r);
    out->duration_ms = store_row_int(r);
    out->run_id = store_row_text(r);
}

enum sbx_code store_audit_list(struct store_conn *db, const char *account_id, const char *object_id,
                               int64_t before, int limit, struct arena *a, struct store_audits *out,
                               struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };
    int stmt = AUDIT_LIST_ALL;

    if (account_id) {
        stmt = AUDIT_LIST_ACCOUNT;
        store_arg_text(&q, account_id);
        store_arg_text(&q, object_id);
    } else if (object_id) {
        stmt = AUDIT_LIST_OBJECT;
        store_arg_text(&q, object_id);
    }
    if (limit < 1 || limit > STORE_LIST_MAX)
        limit = STORE_LIST_MAX;
    store_arg_int(&q, before > 0 ? before : INT64_MAX);
    store_arg_int(&q, limit + 1);
    enum sbx_code code = store_run(db, &S[stmt], &q, &res, err);
    if (code != SBX_OK)
        return code;
    int rows = PQntuples(res);
    out->more = rows > limit;
    out->count = (size_t)(out->more ? limit : rows);
    out->rows = store_rows(res, out->count, a, audit_row, sizeof(*out->rows));
    return SBX_OK;
}

static enum sandbox_status row_status(struct store_row *r)
{
    enum sandbox_status s = SANDBOX_STATUS_NONE;
    const char *text = store_row_text(r);

    if (text)
        (void)sandbox_status_parse(text, &s);
    return s;
}

enum sbx_code store_event_list(struct store_conn *db, const char *sandbox_id, struct arena *a,
                               struct store_events *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, sandbox_id);
    enum sbx_code code = store_run(db, &S[EVENT_LIST], &q, &res, err);
    if (code != SBX_OK)
        return code;
    out->count = (size_t)PQntuples(res);
    out->rows = arena_zalloc(a, out->count * sizeof(*out->rows));
    for (size_t i = 0; i < out->count; i++) {
        struct store_row r = { .res = res, .a = a, .row = (int)i };
        struct store_event *e = &out->rows[i];

        e->at_ms = store_row_int(&r);
        e->generation = store_row_int(&r);
        e->from = row_status(&r);
        e->to = row_status(&r);
        e->cause = store_row_text(&r);
        e->actor = store_row_text(&r);
        e->request_id = store_row_text(&r);
        e->reason = store_row_text(&r);
    }
    return SBX_OK;
}

enum sbx_code store_setting_get(struct store_conn *db, const char *name, struct arena *a,
                                const char **value, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, name);
    enum sbx_code code = store_run_one(db, &S[SETTING_GET], &q, "setting", &res, err);
    if (code != SBX_OK)
        return code;
    struct store_row r = { .res = res, .a = a };
    *value = store_row_text(&r);
    return SBX_OK;
}

enum sbx_code store_setting_put(struct store_conn *db, const char *name, const char *value,
                                struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, name);
    store_arg_text(&q, value);
    return store_run(db, &S[SETTING_PUT], &q, &res, err);
}

static enum sbx_code count_status(struct store_conn *db, struct store_counts *out,
                                  struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    SCOPED_ARENA struct arena *a = arena_new();
    enum sbx_code code = store_run(db, &S[COUNT_STATUS], NULL, &res, err);

    for (int i = 0; code == SBX_OK && i < PQntuples(res); i++) {
        struct store_row r = { .res = res, .a = a, .row = i };
        enum sandbox_status s = row_status(&r);
        out->by_status[s] = store_row_int(&r);
    }
    return code;
}

enum sbx_code store_counts_get(struct store_conn *db, struct store_counts *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_counts c = { .by_status[SANDBOX_TERMINATED] = -1 };
    enum sbx_code code = count_status(db, &c, err);

    if (code == SBX_OK)
        code = store_run_one(db, &S[COUNT_OTHER], NULL, "counts", &res, err);
    if (code != SBX_OK)
        return code;
    struct store_row r = { .res = res };
    c.executions = store_row_int(&r);
    c.due = store_row_int(&r);
    c.oldest_due_ms = store_row_int(&r);
    c.leased = store_row_int(&r);
    c.warm_starting = store_row_int(&r);
    c.warm_ready = store_row_int(&r);
    c.instances = store_row_int(&r);
    *out = c;
    return SBX_OK;
}

static enum sbx_code prune(struct store_conn *db, int stmt, int64_t keep_ms, int limit,
                           int *removed, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_int(&q, keep_ms);
    store_arg_int(&q, limit);
    enum sbx_code code = store_run(db, &S[stmt], &q, &res, err);
    if (code == SBX_OK)
        *removed = store_changed(res);
    return code;
}

enum sbx_code store_trail_prune(struct store_conn *db, int64_t keep_ms, int limit, int *removed,
                                struct sbx_err *err)
{
    int audits = 0, events = 0;
    enum sbx_code code = prune(db, PRUNE_AUDIT, keep_ms, limit, &audits, err);

    if (code == SBX_OK)
        code = prune(db, PRUNE_EVENTS, keep_ms, limit, &events, err);
    if (code == SBX_OK)
        *removed = audits + events;
    return code;
}
