#include <assert.h>

#include "store/db.h"
#include "store/sandboxes.h"

enum {
    CLAIM_DUE,
    CLAIM_ONE,
    NEXT_DUE,
    LEASE_RENEW,
    LEASE_RELEASE,
    POKE_REGION,
    INSTANCE_BEAT,
    INSTANCE_LEAVE,
    INSTANCE_REAP,
};

/* Each claim picks its rows in a sub-select that runs once and gives an array: the outer statement
 * then goes by primary key, whatever the planner thinks of the table's size. */
const struct store_stmt STORE_STMT_LEASES[] = {
    [CLAIM_DUE] = { "claim_due",
                    "UPDATE sandboxd.sandboxes s SET lease_owner = $1, "
                    "lease_until = now() + sandboxd.span($2::bigint), "
                    "next_action_at = now() + sandboxd.span($2::bigint), "
                    "attempt = s.attempt + 1 "
                    "WHERE s.sandbox_id = ANY(ARRAY(SELECT d.sandbox_id "
                    "FROM sandboxd.sandboxes d WHERE d.next_action_at <= now() "
                    "ORDER BY d.next_action_at LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED)) "
                    "RETURNING " STORE_SANDBOX_COLUMNS,
                    3, false },
    [CLAIM_ONE] = { "claim_one",
                    "UPDATE sandboxd.sandboxes s SET lease_owner = $1, "
                    "lease_until = now() + sandboxd.span($2::bigint), "
                    "next_action_at = now() + sandboxd.span($2::bigint), "
                    "attempt = s.attempt + 1 "
                    "WHERE s.sandbox_id = $3 AND s.next_action_at IS NOT NULL "
                    "AND (s.lease_owner IS NULL OR s.lease_owner = $1 OR s.lease_until <= now()) "
                    "RETURNING " STORE_SANDBOX_COLUMNS,
                    3, false },
    [NEXT_DUE] = { "next_due",
                   "SELECT greatest(0, ceil(extract(epoch FROM d.next_action_at "
                   "- clock_timestamp()) * 1000))::bigint FROM sandboxd.sandboxes d "
                   "WHERE d.next_action_at IS NOT NULL ORDER BY d.next_action_at LIMIT 1",
                   0, true },
    [LEASE_RENEW] = { "lease_renew",
                      "UPDATE sandboxd.sandboxes s "
                      "SET lease_until = now() + sandboxd.span($2::bigint), "
                      "next_action_at = now() + sandboxd.span($2::bigint) "
                      "WHERE s.sandbox_id = ANY(ARRAY(SELECT d.sandbox_id "
                      "FROM sandboxd.sandboxes d WHERE d.lease_owner = $1 "
                      "AND d.lease_until > now() ORDER BY d.sandbox_id "
                      "FOR NO KEY UPDATE SKIP LOCKED))",
                      2, true },
    [LEASE_RELEASE] = { "lease_release",
                        "UPDATE sandboxd.sandboxes s SET lease_owner = NULL, lease_until = NULL, "
                        "attempt = CASE WHEN $6::boolean THEN s.attempt ELSE 0 END, "
                        "last_error = $7, next_action_at = sandboxd.next_action($4::integer, "
                        "$5::bigint, sandboxd.due_at(s.status, s.desired_status, s.personal, "
                        "s.last_active_at, "
                        "s.idle_timeout_s, s.expires_at, s.suspended_at, s.suspended_retention_s, "
                        "s.deadline_at)) "
                        "WHERE s.sandbox_id = $1 AND s.generation = $2 AND s.lease_owner = $3",
                        7, true },
    [POKE_REGION] = { "poke_region",
                      "UPDATE sandboxd.sandboxes s SET next_action_at = now() "
                      "WHERE s.sandbox_id = ANY(ARRAY(SELECT d.sandbox_id "
                      "FROM sandboxd.sandboxes d WHERE d.region = $1 AND d.holds_compute "
                      "AND (d.lease_until IS NULL OR d.lease_until <= now()) "
                      "ORDER BY d.sandbox_id FOR NO KEY UPDATE SKIP LOCKED))",
                      1, true },
    [INSTANCE_BEAT] = { "instance_beat",
                        "INSERT INTO sandboxd.instances AS i (instance, beat_at) "
                        "VALUES ($1, clock_timestamp()) "
                        "ON CONFLICT (instance) DO UPDATE SET beat_at = excluded.beat_at",
                        1, true },
    [INSTANCE_LEAVE] = { "instance_leave",
                         "WITH gone AS (DELETE FROM sandboxd.instances i WHERE i.instance = $1) "
                         "UPDATE sandboxd.sandboxes s SET lease_owner = NULL, lease_until = NULL, "
                         "next_action_at = now() WHERE s.sandbox_id = ANY(ARRAY(SELECT "
                         "d.sandbox_id "
                         "FROM sandboxd.sandboxes d WHERE d.lease_owner = $1 "
                         "ORDER BY d.sandbox_id FOR NO KEY UPDATE))",
                         1, true },
    /* The dead one's row goes first; executions of an instance without a row count as stale. */
    [INSTANCE_REAP] = { "instance_reap",
                        "WITH gone AS (DELETE FROM sandboxd.instances i "
                        "WHERE i.beat_at < now() - sandboxd.span($1::bigint)) "
                        "UPDATE sandboxd.sandboxes s SET lease_owner = NULL, lease_until = NULL, "
                        "next_action_at = now() WHERE s.sandbox_id = ANY(ARRAY(SELECT d.sandbox_id "
                        "FROM sandboxd.sandboxes d WHERE d.lease_owner IS NOT NULL "
                        "AND NOT EXISTS (SELECT FROM sandboxd.instances i "
                        "WHERE i.instance = d.lease_owner "
                        "AND i.beat_at >= now() - sandboxd.span($1::bigint)) "
                        "ORDER BY d.sandbox_id FOR NO KEY UPDATE OF d SKIP LOCKED))",
                        1, true },
};
const size_t STORE_STMT_LEASES_COUNT = COUNT_OF(STORE_STMT_LEASES);

static const struct store_stmt *const S = STORE_STMT_LEASES;

enum sbx_code store_sandbox_claim_due(struct store_conn *db, const char *owner, int64_t lease_ms,
                                      int limit, struct arena *a, struct store_sandboxes *out,
                                      struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, owner);
    store_arg_int(&q, lease_ms);
    store_arg_int(&q, limit < STORE_LIST_MAX ? limit : STORE_LIST_MAX);
    enum sbx_code code = store_run(db, &S[CLAIM_DUE], &q, &res, err);
    if (code == SBX_OK)
        store_sandbox_rows(res, a, out);
    return code;
}

enum sbx_code store_sandbox_claim_one(struct store_conn *db, const char *owner, int64_t lease_ms,
                                      const char *sandbox_id, struct arena *a,
                                      struct store_sandbox *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, owner);
    store_arg_int(&q, lease_ms);
    store_arg_text(&q, sandbox_id);
    enum sbx_code code = store_run_one(db, &S[CLAIM_ONE], &q, "sandbox", &res, err);
    if (code == SBX_E_NOT_FOUND) {
        struct store_sandbox row;

        *err = (struct sbx_err){ 0 };
        code = store_sandbox_get(db, NULL, sandbox_id, a, &row, err);
        if (code != SBX_OK)
            return code;
        if (row.status == SANDBOX_TERMINATED)
            return err_set(err, SBX_E_NOT_FOUND, "the sandbox has ended");
        return err_set(err, SBX_E_BUSY, "another control plane is at work on the sandbox");
    }
    if (code != SBX_OK)
        return code;
    struct store_row r = { .res = res, .a = a };
    store_sandbox_row(&r, out);
    return SBX_OK;
}

enum sbx_code store_sandbox_next_due(struct store_conn *db, int64_t *in_ms, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    enum sbx_code code = store_run(db, &S[NEXT_DUE], NULL, &res, err);

    if (code != SBX_OK)
        return code;
    struct store_row r = { .res = res };
    *in_ms = PQntuples(res) == 1 ? store_row_int(&r) : -1;
    return SBX_OK;
}

/* Runs a statement of one text and perhaps one number; *rows (may be NULL): how many it changed. */
static enum sbx_code change(struct store_conn *db, int stmt, const char *text, int64_t number,
                            int *rows, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    if (text)
        store_arg_text(&q, text);
    if (number)
        store_arg_int(&q, number);
    enum sbx_code code = store_run(db, &S[stmt], &q, &res, err);
    if (code == SBX_OK && rows)
        *rows = store_changed(res);
    return code;
}

enum sbx_code store_lease_renew(struct store_conn *db, const char *owner, int64_t lease_ms,
                                int *renewed, struct sbx_err *err)
{
    return change(db, LEASE_RENEW, owner, lease_ms, renewed, err);
}

enum sbx_code store_lease_release(struct store_conn *db, const struct store_release *rel,
                                  size_t count, struct sbx_err *err)
{
    SCOPED_ARENA struct arena *scratch = arena_new();
    struct store_args *q = arena_zalloc(scratch, count * sizeof(*q));

    assert(count <= STORE_BATCH_MAX);
    if (count == 0)
        return SBX_OK;
    for (size_t i = 0; i < count; i++) {
        store_arg_text(&q[i], rel[i].sandbox_id);
        store_arg_int(&q[i], rel[i].generation);
        store_arg_text(&q[i], rel[i].owner);
        store_arg_int(&q[i], rel[i].next);
        store_arg_int(&q[i], rel[i].next_in_ms);
        store_arg_bool(&q[i], rel[i].keep_attempt);
        store_arg_text(&q[i], rel[i].last_error);
    }
    return store_do_many(db, &S[LEASE_RELEASE], q, count, err);
}

enum sbx_code store_sandbox_poke_region(struct store_conn *db, const char *region, int *poked,
                                        struct sbx_err *err)
{
    return change(db, POKE_REGION, region, 0, poked, err);
}

enum sbx_code store_instance_beat(struct store_conn *db, const char *instance, struct sbx_err *err)
{
    return change(db, INSTANCE_BEAT, instance, 0, NULL, err);
}

enum sbx_code store_instance_leave(struct store_conn *db, const char *instance, struct sbx_err *err)
{
    return change(db, INSTANCE_LEAVE, instance, 0, NULL, err);
}

enum sbx_code store_instance_reap(struct store_conn *db, int64_t stale_ms, int *freed,
                                  struct sbx_err *err)
{
    return change(db, INSTANCE_REAP, NULL, stale_ms, freed, err);
}
