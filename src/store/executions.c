#include "store/executions.h"

#include "store/db.h"

#define EXECUTION_COLUMNS                                                                          \
    "e.execution_id, e.sandbox_id, e.account_id, e.instance, e.request_id, e.actor, "              \
    "e.generation, " STORE_MS("e.started_at") ", " STORE_MS("e.deadline_at")
/* SQL keeps its own lines. */
/* clang-format off */
#define IF(condition, value, otherwise)                                                            \
    "CASE WHEN " condition " THEN " value " ELSE " otherwise " END"
#define WAS_READY  "s.status = 'READY'"
#define LAST_ENDS  "s.status = 'BUSY' AND s.running = 1"
#define FLIP_EVENT                                                                                 \
    "ev AS (INSERT INTO sandboxd.sandbox_events (sandbox_id, slot, generation, from_status, "      \
    "to_status, cause, actor, request_id) "                                                        \
    "SELECT s.sandbox_id, 192 + s.generation % 64, s.generation, "

/* Neither begin nor end touches next_action_at: see sandboxes.h, "Due rows".
 * $1 execution, $2 sandbox, $3 account, $4 instance, $5 actor, $6 request, $7 ms */
static const char BEGIN_SQL[] =
    "WITH s AS (UPDATE sandboxd.sandboxes s SET "
    "status = 'BUSY', previous_status = s.status, running = s.running + 1, "
    "generation = s.generation + " IF(WAS_READY, "1", "0") ", "
    "status_reason = " IF(WAS_READY, "NULL", "s.status_reason") ", "
    "status_since = " IF(WAS_READY, "now()", "s.status_since") ", "
    "last_active_at = now(), updated_at = now() "
    "WHERE s.sandbox_id = $2 AND s.account_id = $3 AND s.status IN ('READY', 'BUSY') "
    "AND NOT s.personal RETURNING s.*), "
    "e AS (INSERT INTO sandboxd.executions (execution_id, sandbox_id, account_id, instance, "
        "actor, request_id, generation, deadline_at) "
        "SELECT $1, s.sandbox_id, s.account_id, $4, $5, $6, s.generation, "
        "now() + sandboxd.span($7::bigint) FROM s), "
    FLIP_EVENT "'READY', 'BUSY', 'execute', $5, $6 FROM s WHERE s.previous_status = 'READY' "
        STORE_EVENT_RING ") "
    "SELECT " STORE_SANDBOX_COLUMNS " FROM s";

/* Deleting the row first makes it count once, however often it is ended. */
static const char END_SQL[] =
    "WITH e AS (DELETE FROM sandboxd.executions e WHERE e.execution_id = $1 "
        "RETURNING e.sandbox_id, e.actor, e.request_id), "
    "s AS (UPDATE sandboxd.sandboxes s SET running = s.running - 1, "
    "status = " IF(LAST_ENDS, "'READY'", "s.status") ", "
    "previous_status = " IF(LAST_ENDS, "'BUSY'", "s.previous_status") ", "
    "generation = s.generation + " IF(LAST_ENDS, "1", "0") ", "
    "status_since = " IF(LAST_ENDS, "now()", "s.status_since") ", "
    "last_active_at = " IF("s.status = 'BUSY'", "now()", "s.last_active_at") ", "
    "updated_at = now() FROM e WHERE s.sandbox_id = e.sandbox_id "
    "RETURNING s.sandbox_id, s.generation, s.status, e.actor, e.request_id), "
    FLIP_EVENT "'BUSY', 'READY', 'execution ended', s.actor, s.request_id FROM s "
        "WHERE s.status = 'READY' " STORE_EVENT_RING ") "
    "SELECT count(*) FROM e";

/* $1 instance, $2 stale ms, $3 grace ms, $4 limit */
static const char CLAIM_STALE_SQL[] =
    "UPDATE sandboxd.executions e SET instance = $1, "
    "deadline_at = greatest(e.deadline_at, now()) "
    "WHERE e.execution_id = ANY(ARRAY(SELECT d.execution_id FROM sandboxd.executions d "
        "WHERE d.deadline_at < now() - sandboxd.span($3::bigint) OR (d.instance <> $1 "
        "AND NOT EXISTS (SELECT FROM sandboxd.instances i WHERE i.instance = d.instance "
            "AND i.beat_at >= now() - sandboxd.span($2::bigint))) "
        "ORDER BY d.deadline_at LIMIT $4 FOR UPDATE OF d SKIP LOCKED)) "
    "RETURNING " EXECUTION_COLUMNS;
/* clang-format on */

enum { EXECUTION_BEGIN, EXECUTION_END, EXECUTION_CLAIM_STALE, EXECUTION_LIST };

const struct store_stmt STORE_STMT_EXECUTIONS[] = {
    [EXECUTION_BEGIN] = { "execution_begin", BEGIN_SQL, 7, false },
    [EXECUTION_END] = { "execution_end", END_SQL, 1, true },
    [EXECUTION_CLAIM_STALE] = { "execution_claim_stale", CLAIM_STALE_SQL, 4, true },
    [EXECUTION_LIST] = { "execution_list",
                         "SELECT " EXECUTION_COLUMNS " FROM sandboxd.executions e "
                         "WHERE e.sandbox_id = $1 ORDER BY e.started_at LIMIT $2",
                         2, true },
};
const size_t STORE_STMT_EXECUTIONS_COUNT = COUNT_OF(STORE_STMT_EXECUTIONS);

static const struct store_stmt *const S = STORE_STMT_EXECUTIONS;

/* Why a command was not let in, by what the row says a moment later. */
static enum sbx_code refused(const struct store_sandbox *s, struct sbx_err *err)
{
    if (s->personal)
        return err_set(err, SBX_E_PERSONAL_RUNTIME,
                       "Personal-authentication runtimes take no commands through this API");
    if (sandbox_status_in(s->status,
                          SANDBOX_BIT(SANDBOX_SUSPENDED) | SANDBOX_BIT(SANDBOX_SUSPENDING)))
        return err_set(err, SBX_E_SANDBOX_SUSPENDED,
                       "The sandbox is suspended and must be resumed first");
    if (sandbox_status_in(s->status, SANDBOX_BIT(SANDBOX_FAILED) |
                                         SANDBOX_BIT(SANDBOX_TERMINATING) | SANDBOX_SET_ENDED))
        return err_set(err, SBX_E_SANDBOX_NOT_FOUND, "The sandbox does not exist in the runtime");
    /* READY or BUSY means that it became so in between: the caller may try again. */
    return err_set(err, SBX_E_SANDBOX_NOT_READY, "The sandbox is not ready to accept work yet");
}

enum sbx_code store_execution_begin(struct store_conn *db, const struct store_execution_new *in,
                                    struct arena *a, struct store_sandbox *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, in->execution_id);
    store_arg_text(&q, in->sandbox_id);
    store_arg_text(&q, in->account_id);
    store_arg_text(&q, in->instance);
    store_arg_text(&q, in->actor);
    store_arg_text(&q, in->request_id);
    store_arg_int(&q, in->timeout_ms);
    enum sbx_code code = store_run_one(db, &S[EXECUTION_BEGIN], &q, "sandbox", &res, err);
    if (code == SBX_E_NOT_FOUND) {
        struct store_sandbox now;

        *err = (struct sbx_err){ 0 }; /* why there was no row to begin on is the row's to say */
        code = store_sandbox_get(db, in->account_id, in->sandbox_id, a, &now, err);
        return code == SBX_OK ? refused(&now, err) : code;
    }
    if (code != SBX_OK)
        return code;
    struct store_row r = { .res = res, .a = a };
    store_sandbox_row(&r, out);
    return SBX_OK;
}

enum sbx_code store_execution_end(struct store_conn *db, const char *execution_id, bool *was_there,
                                  struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, execution_id);
    enum sbx_code code = store_run_one(db, &S[EXECUTION_END], &q, "count", &res, err);
    if (code != SBX_OK)
        return code;
    struct store_row r = { .res = res };
    int64_t count = store_row_int(&r);
    if (was_there)
        *was_there = count == 1;
    return SBX_OK;
}

static void execution_rows(const PGresult *res, struct arena *a, struct store_executions *out)
{
    out->count = (size_t)PQntuples(res);
    out->rows = arena_zalloc(a, out->count * sizeof(*out->rows));
    for (size_t i = 0; i < out->count; i++) {
        struct store_row r = { .res = res, .a = a, .row = (int)i };
        struct store_execution *e = &out->rows[i];

        e->execution_id = store_row_text(&r);
        e->sandbox_id = store_row_text(&r);
        e->account_id = store_row_text(&r);
        e->instance = store_row_text(&r);
        e->request_id = store_row_text(&r);
        e->actor = store_row_text(&r);
        e->generation = store_row_int(&r);
        e->started_at_ms = store_row_int(&r);
        e->deadline_at_ms = store_row_int(&r);
    }
}

enum sbx_code store_execution_claim_stale(struct store_conn *db, const char *instance,
                                          int64_t stale_ms, int64_t grace_ms, int limit,
                                          struct arena *a, struct store_executions *out,
                                          struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, instance);
    store_arg_int(&q, stale_ms);
    store_arg_int(&q, grace_ms);
    store_arg_int(&q, limit < STORE_LIST_MAX ? limit : STORE_LIST_MAX);
    enum sbx_code code = store_run(db, &S[EXECUTION_CLAIM_STALE], &q, &res, err);
    if (code == SBX_OK)
        execution_rows(res, a, out);
    return code;
}

enum sbx_code store_execution_list(struct store_conn *db, const char *sandbox_id, struct arena *a,
                                   struct store_executions *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, sandbox_id);
    store_arg_int(&q, STORE_LIST_MAX);
    enum sbx_code code = store_run(db, &S[EXECUTION_LIST], &q, &res, err);
    if (code == SBX_OK)
        execution_rows(res, a, out);
    return code;
}
