#include <assert.h>
#include <string.h>

#include "base/str.h"
#include "store/db.h"
#include "store/sandboxes.h"

/* The one guarded UPDATE of all moves is longer than C promises (4095 bytes); our compilers have no
 * such limit. */
#pragma GCC diagnostic ignored "-Woverlength-strings"

/* SQL keeps its own lines. */
/* clang-format off */

/* The status a move lands on: of READY and BUSY the one that the running executions say. */
#define LANDS                                                                                      \
    "CASE WHEN $4::text NOT IN ('READY', 'BUSY') THEN $4::text "                                   \
    "WHEN s.running > 0 THEN 'BUSY' ELSE 'READY' END"
/* A move to the status a row has (a FAILED one's compute is released) is no change of status. */
#define CHANGES         "s.status <> " LANDS
#define BECOMES(status) "$4::text = '" status "' AND s.status <> $4::text"
#define UP              "$4::text IN ('READY', 'BUSY')"
/* READY after a start or a resume is activity; back from a pause that failed is not. */
#define COMES_UP        UP " AND s.status IN ('STARTING', 'ALLOCATING', 'RESUMING')"
#define IF(condition, value, otherwise)                                                            \
    "CASE WHEN " condition " THEN " value " ELSE " otherwise " END"
/* A wish to end that came while a slow step was under way outlives the step. */
#define DESIRED                                                                                    \
    "CASE WHEN s.desired_status = 'TERMINATED' AND $4::text <> 'TERMINATED' "                      \
    "THEN s.desired_status WHEN $6::integer = 0 THEN s.desired_status "                            \
    "WHEN $6::integer = 1 THEN $7::text END"
#define DEADLINE        "CASE WHEN $14::bigint > 0 THEN now() + sandboxd.span($14::bigint) END"
#define LEASE_END       "now() + sandboxd.span($16::bigint)"
#define SECONDS(column) "s." column " * interval '1 second'"

/* $1 id, $2 generation, $3 from, $4 to, $5 guard, $6 desired op, $7 desired, $8 reason, $9 fault,
 * $10 end reason, $11 compute op, $12 next, $13 next in ms, $14 deadline in ms, $15 lease owner,
 * $16 lease ms, $17 operation, $18 warm, $19 claimed, $20 persistence given, $21 mount path,
 * $22 snapshot at, $23 snapshot bytes, $24 snapshot error, $25 restore failed, $26 pause given,
 * $27 exclude, $28 max mb, $29 force, $30 cause, $31 actor, $32 request */
static const char MOVE_SQL[] =
    "WITH moved AS (UPDATE sandboxd.sandboxes s SET "
    "status = " LANDS ", "
    "previous_status = " IF(CHANGES, "s.status", "s.previous_status") ", "
    "generation = s.generation + " IF(CHANGES, "1", "0") ", "
    "move_count = s.move_count + " IF(CHANGES, "1", "0") ", "
    "status_since = " IF(CHANGES, "now()", "s.status_since") ", "
    "status_reason = " IF(CHANGES, "$8::text", "coalesce($8::text, s.status_reason)") ", "
    "desired_status = " DESIRED ", "
    "error_code = coalesce($9::text, s.error_code), "
    "termination_reason = coalesce(s.termination_reason, $10::text), "
    "holds_compute = CASE WHEN $4::text IN ('SUSPENDED', 'TERMINATED') THEN false "
        "WHEN $11::integer = 1 THEN true WHEN $11::integer = 2 THEN false "
        "ELSE s.holds_compute END, "
    "operation_id = $17, "
    "is_warm = s.is_warm OR $18::boolean, "
    "mount_path = coalesce($21::text, s.mount_path), "
    "last_snapshot_at = coalesce(to_timestamp($22::bigint / 1000.0), s.last_snapshot_at), "
    "last_snapshot_bytes = coalesce($23::bigint, s.last_snapshot_bytes), "
    "last_snapshot_error = " IF("$20::boolean", "$24", "s.last_snapshot_error") ", "
    /* Only what tells of a snapshot says that the restore's failure is over. */
    "restore_failed = $25::boolean OR (s.restore_failed AND $22::bigint IS NULL), "
    "pause_exclude = " IF("$26::boolean", "$27::jsonb", "s.pause_exclude") ", "
    "pause_max_mb = " IF("$26::boolean", "$28::integer", "s.pause_max_mb") ", "
    "pause_force = " IF("$26::boolean", "$29::boolean", "s.pause_force") ", "
    "updated_at = now(), attempt = 0, last_error = NULL, "
    "claimed_at = " IF("$19::boolean", "coalesce(s.claimed_at, now())", "s.claimed_at") ", "
    "ready_at = " IF(UP, "coalesce(s.ready_at, now())", "s.ready_at") ", "
    "resumed_at = " IF(UP " AND s.status = 'RESUMING'", "now()", "s.resumed_at") ", "
    "last_active_at = " IF(COMES_UP, "now()", "s.last_active_at") ", "
    "suspended_at = " IF(BECOMES("SUSPENDED"), "now()", "s.suspended_at") ", "
    "failed_at = " IF(BECOMES("FAILED"), "now()", "s.failed_at") ", "
    "terminated_at = " IF(BECOMES("TERMINATED"), "now()", "s.terminated_at") ", "
    "deadline_at = " DEADLINE ", "
    "lease_owner = $15, "
    "lease_until = CASE WHEN $15::text IS NOT NULL THEN " LEASE_END " END, "
    "next_action_at = CASE WHEN $15::text IS NOT NULL THEN " LEASE_END " "
        "ELSE sandboxd.next_action($12::integer, $13::bigint, sandboxd.due_at(" LANDS ", "
        DESIRED ", s.personal, " IF(COMES_UP, "now()", "s.last_active_at") ", "
        "s.idle_timeout_s, s.expires_at, now(), s.suspended_retention_s, " DEADLINE ")) END "
    "WHERE s.sandbox_id = $1 AND s.generation = $2 AND s.status = ANY($3::text[]) "
    "AND CASE $5::integer WHEN 0 THEN true "
        "WHEN 1 THEN s.running = 0 AND NOT s.personal "
            "AND s.last_active_at + " SECONDS("idle_timeout_s") " <= now() "
        "WHEN 2 THEN s.expires_at <= now() "
        "WHEN 3 THEN s.suspended_at + " SECONDS("suspended_retention_s") " <= now() "
        "WHEN 4 THEN s.deadline_at <= now() END "
    "RETURNING s.*), "
    /* A ring of 192 for these moves beside one of 64 for flips between READY and BUSY: a busy
     * sandbox does not push its own start out of its history. */
    "event AS (INSERT INTO sandboxd.sandbox_events (sandbox_id, slot, generation, from_status, "
        "to_status, cause, actor, request_id, reason) "
        "SELECT m.sandbox_id, (m.move_count - 1) % 192, m.generation, m.previous_status, "
        "m.status, $30, $31, $32, m.status_reason FROM moved m WHERE m.generation <> $2 "
        STORE_EVENT_RING ") "
    "SELECT " STORE_SANDBOX_COLUMNS " FROM moved s";
/* clang-format on */

enum { MOVE, DESIRE, REPORT };

const struct store_stmt STORE_STMT_MOVES[] = {
    [MOVE] = { "sandbox_move", MOVE_SQL, 32, false },
    [DESIRE] = { "sandbox_desire",
                 "UPDATE sandboxd.sandboxes s SET desired_status = $3, "
                 "termination_reason = coalesce(s.termination_reason, $4::text), "
                 "updated_at = now(), next_action_at = CASE WHEN s.lease_until > now() "
                 "THEN s.next_action_at ELSE now() END "
                 "WHERE s.sandbox_id = $1 AND s.status = ANY($2::text[]) RETURNING s.sandbox_id",
                 4, true },
    [REPORT] = { "sandbox_report",
                 "UPDATE sandboxd.sandboxes s SET mount_path = coalesce($3, s.mount_path), "
                 "last_snapshot_at = coalesce(to_timestamp($4::bigint / 1000.0), "
                 "s.last_snapshot_at), "
                 "last_snapshot_bytes = coalesce($5, s.last_snapshot_bytes), "
                 "last_snapshot_error = $6, "
                 "restore_failed = $7 OR (s.restore_failed AND $4::bigint IS NULL), "
                 "updated_at = now() WHERE s.sandbox_id = $1 AND s.generation = $2 "
                 "RETURNING s.sandbox_id",
                 7, true },
};
const size_t STORE_STMT_MOVES_COUNT = COUNT_OF(STORE_STMT_MOVES);

static const struct store_stmt *const S = STORE_STMT_MOVES;

static void persistence_args(struct store_args *q, const struct store_persistence *p)
{
    static const struct store_persistence NONE;

    if (!p)
        p = &NONE;
    store_arg_text(q, p->mount_path);
    store_arg_null_int(q, p->last_snapshot_at_ms);
    store_arg_null_int(q, p->last_snapshot_at_ms ? p->last_snapshot_bytes : 0);
    store_arg_text(q, p->last_snapshot_error);
    store_arg_bool(q, p->restore_failed);
}

static void move_args(struct store_args *q, const struct store_move *m)
{
    static const struct store_pause NO_PAUSE;
    const struct store_pause *pause = m->pause ? m->pause : &NO_PAUSE;

    assert(m->to != SANDBOX_STATUS_NONE && m->cause && m->actor);
    store_arg_text(q, m->sandbox_id);
    store_arg_int(q, m->generation);
    store_arg_statuses(q, m->from);
    store_arg_text(q, sandbox_status_name(m->to));
    store_arg_int(q, m->guard);
    store_arg_int(q, m->desired_op);
    store_arg_text(q, m->desired_op == STORE_SET ? sandbox_status_name(m->desired) : NULL);
    store_arg_text(q, m->status_reason);
    store_arg_text(q, m->fault ? sandbox_fault_name(m->fault) : NULL);
    store_arg_text(q, m->end_reason ? sandbox_end_reason_name(m->end_reason) : NULL);
    store_arg_int(q, m->compute);
    store_arg_int(q, m->to == SANDBOX_TERMINATED   ? (int)STORE_NEXT_NEVER
                     : m->next == STORE_NEXT_IN    ? 1
                     : m->next == STORE_NEXT_NEVER ? 2
                                                   : 0);
    store_arg_int(q, m->next_in_ms);
    store_arg_int(q, m->deadline_in_ms);
    store_arg_text(q, m->lease_owner);
    store_arg_int(q, m->lease_ms);
    store_arg_text(q, m->operation_id);
    store_arg_bool(q, m->set_warm);
    store_arg_bool(q, m->set_claimed);
    store_arg_bool(q, m->persistence != NULL);
    persistence_args(q, m->persistence);
    store_arg_bool(q, m->pause != NULL);
    store_arg_text(q, pause->exclude);
    store_arg_int(q, pause->max_mb);
    store_arg_bool(q, pause->force);
    store_arg_text(q, m->cause);
    store_arg_text(q, m->actor);
    store_arg_text(q, m->request_id);
}

static enum sbx_code changing(struct sbx_err *err)
{
    return store_say(err, SBX_E_CHANGING, "Sandbox is changing state");
}

enum sbx_code store_sandbox_move(struct store_conn *db, const struct store_move *move,
                                 struct arena *a, struct store_sandbox *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    move_args(&q, move);
    enum sbx_code code = store_run_one(db, &S[MOVE], &q, "move", &res, err);
    if (code == SBX_E_NOT_FOUND)
        return changing(err);
    if (code == SBX_OK && out) {
        struct store_row r = { .res = res, .a = a };
        store_sandbox_row(&r, out);
    }
    return code;
}

enum sbx_code store_sandbox_moves(struct store_conn *db, const struct store_move *moves,
                                  size_t count, bool *moved, struct arena *a,
                                  struct store_sandbox *out, struct sbx_err *err)
{
    PGresult *results[STORE_BATCH_MAX];
    SCOPED_ARENA struct arena *scratch = arena_new();
    struct store_args *q = arena_zalloc(scratch, count * sizeof(*q));

    assert(count <= STORE_BATCH_MAX);
    if (count == 0)
        return SBX_OK;
    for (size_t i = 0; i < count; i++)
        move_args(&q[i], &moves[i]);
    enum sbx_code code = store_run_many(db, &S[MOVE], q, count, results, err);
    if (code != SBX_OK)
        return code;
    for (size_t i = 0; i < count; i++) {
        moved[i] = PQntuples(results[i]) == 1;
        if (moved[i] && out) {
            struct store_row r = { .res = results[i], .a = a };
            store_sandbox_row(&r, &out[i]);
        }
        PQclear(results[i]);
    }
    return SBX_OK;
}

struct chain {
    const struct store_move *moves;
    size_t count;
    struct arena *a;
    struct store_sandbox *last;
};

static enum sbx_code chain_tx(struct store_conn *db, void *arg, struct sbx_err *err)
{
    struct chain *c = arg;
    enum sbx_code code = SBX_OK;

    for (size_t i = 0; i < c->count && code == SBX_OK; i++)
        code = store_sandbox_move(db, &c->moves[i], c->a, i + 1 == c->count ? c->last : NULL, err);
    return code;
}

enum sbx_code store_sandbox_moves_atomic(struct store_conn *db, const struct store_move *moves,
                                         size_t count, struct arena *a, struct store_sandbox *last,
                                         struct sbx_err *err)
{
    struct chain c = { .moves = moves, .count = count, .a = a, .last = last };

    return store_tx(db, chain_tx, &c, err);
}

enum sbx_code store_sandbox_desire(struct store_conn *db, const char *sandbox_id, uint32_t from,
                                   enum sandbox_status desired, enum sandbox_end_reason end_reason,
                                   struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, sandbox_id);
    store_arg_statuses(&q, from);
    store_arg_text(&q, sandbox_status_name(desired));
    store_arg_text(&q, end_reason ? sandbox_end_reason_name(end_reason) : NULL);
    enum sbx_code code = store_run_one(db, &S[DESIRE], &q, "sandbox", &res, err);
    return code == SBX_E_NOT_FOUND ? changing(err) : code;
}

enum sbx_code store_sandbox_report(struct store_conn *db, const char *sandbox_id,
                                   int64_t generation, const struct store_persistence *persistence,
                                   struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, sandbox_id);
    store_arg_int(&q, generation);
    persistence_args(&q, persistence);
    enum sbx_code code = store_run_one(db, &S[REPORT], &q, "sandbox", &res, err);
    return code == SBX_E_NOT_FOUND ? changing(err) : code;
}
