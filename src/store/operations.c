#include <string.h>

#include "store/db.h"
#include "store/runs.h"

#define OPERATION_COLUMNS                                                                                    \
    "o.operation_id, o.connection_id, o.account_id, o.installation_id, o.owner_user_id, "                    \
    "o.app_id, o.template_id, o.region, o.sandbox_id, o.phase, o.execution, o.exit_code, "                   \
    "o.staged_sealed IS NOT NULL, o.read_failed, o.owner_reset, o.cause, o.version, "                        \
    "o.run_id, " STORE_MS("o.grant_expires_at") ", " STORE_MS(                                               \
        "o.claimed_at") ", o.repository, o.base_branch, "                                                    \
                        "o.model, o.token_limit, o.time_limit_s, o.prompt_sealed, "                          \
                        "o.staged_sealed, "                                                                  \
                        "o.auth_generation, o.execution_id, " STORE_MS(                                      \
                            "o.started_at") ", " STORE_MS("o.exited_at") ", " STORE_MS("o."                  \
                                                                                       "terminate"           \
                                                                                       "d_at") ","           \
                                                                                               " "           \
                                                                                               "o"           \
                                                                                               "."           \
                                                                                               "a"           \
                                                                                               "u"           \
                                                                                               "t"           \
                                                                                               "h"           \
                                                                                               "_"           \
                                                                                               "p"           \
                                                                                               "r"           \
                                                                                               "e"           \
                                                                                               "s"           \
                                                                                               "e"           \
                                                                                               "r"           \
                                                                                               "v"           \
                                                                                               "e"           \
                                                                                               "d"           \
                                                                                               ","           \
                                                                                               " "           \
                                                                                               "o"           \
                                                                                               "."           \
                                                                                               "a"           \
                                                                                               "t"           \
                                                                                               "t"           \
                                                                                               "e"           \
                                                                                               "m"           \
                                                                                               "p"           \
                                                                                               "t"           \
                                                                                               ","           \
                                                                                               " " STORE_MS( \
                                                                                                   "clock_timestamp()")
#define NOW_MS     "date_trunc('milliseconds', clock_timestamp())"
#define IN_MS(arg) "clock_timestamp() + " arg "::bigint * interval '1 millisecond'"

enum stmt {
    OPERATION_RESERVE,
    OPERATION_BY_GRANT,
    OPERATION_CLAIM,
    OPERATION_BY_RUN,
    OPERATION_GET,
    OPERATION_BY_SANDBOX,
    OPERATION_OWNER_OK,
    OPERATION_MOVE,
    OPERATION_FINISH,
    OPERATION_CLAIM_DUE,
    OPERATION_RELEASE,
    OPERATION_NEXT_DUE,
    OPERATION_UNFINISHED,
    STMT_COUNT
};

const struct store_stmt STORE_STMT_OPERATIONS[] = {
    [OPERATION_RESERVE] = { "operation_reserve",
                            "WITH k AS (UPDATE sandboxd.connections k SET state = 'FENCED', "
                            "updated_at = " NOW_MS
                            " WHERE k.connection_id = $3 AND k.state = 'READY' AND "
                            "k.auth_generation = $4::integer RETURNING k.*) "
                            "INSERT INTO sandboxd.operations AS o (operation_id, sandbox_id, "
                            "connection_id, account_id, "
                            "installation_id, owner_user_id, app_id, template_id, region, "
                            "auth_generation, grant_digest, "
                            "grant_expires_at, repository, base_branch, model, token_limit, "
                            "time_limit_s, prompt_sealed) "
                            "SELECT $1, $2, k.connection_id, k.account_id, k.installation_id, "
                            "k.owner_user_id, k.app_id, "
                            "k.template_id, k.region, k.auth_generation, $5::bytea, "
                            "clock_timestamp() + $6::bigint * interval '1 second', "
                            "$7, $8, $9, $10::integer, $11::integer, $12::bytea FROM k "
                            "RETURNING " OPERATION_COLUMNS,
                            12, false },
    [OPERATION_BY_GRANT] = { "operation_by_grant",
                             "SELECT " OPERATION_COLUMNS
                             " FROM sandboxd.operations o WHERE o.installation_id = $1 "
                             "AND o.grant_digest = $2::bytea AND (o.run_id = $3 OR (o.phase = "
                             "'reserved' "
                             "AND o.grant_expires_at > clock_timestamp() AND NOT EXISTS (SELECT "
                             "FROM sandboxd.operations u "
                             "WHERE u.installation_id = $1 AND u.run_id = $3)))",
                             3, true },
    [OPERATION_CLAIM] = { "operation_claim",
                          "UPDATE sandboxd.operations o SET phase = 'claimed', run_id = $4, "
                          "principal_id = $3, claimed_at = " NOW_MS
                          ", version = o.version + 1, updated_at = " NOW_MS
                          " WHERE o.installation_id = $1 AND o.grant_digest = $2::bytea "
                          "AND o.phase = 'reserved' AND o.grant_expires_at > clock_timestamp() "
                          "RETURNING " OPERATION_COLUMNS,
                          4, false },
    [OPERATION_BY_RUN] = { "operation_by_run",
                           "SELECT " OPERATION_COLUMNS " FROM sandboxd.operations o WHERE "
                           "o.installation_id = $1 AND o.run_id = $2",
                           2, true },
    [OPERATION_GET] = { "operation_get",
                        "SELECT " OPERATION_COLUMNS
                        " FROM sandboxd.operations o WHERE o.operation_id = $1",
                        1, true },
    [OPERATION_BY_SANDBOX] = { "operation_by_sandbox",
                               "SELECT " OPERATION_COLUMNS
                               " FROM sandboxd.operations o WHERE o.sandbox_id = $1",
                               1, true },
    [OPERATION_OWNER_OK] = { "operation_owner_ok",
                             "SELECT EXISTS (SELECT FROM sandboxd.operations o JOIN "
                             "sandboxd.installations i USING (installation_id) "
                             "JOIN sandboxd.accounts c ON c.account_id = o.account_id JOIN "
                             "sandboxd.members m "
                             "ON m.account_id = o.account_id AND m.user_id = o.owner_user_id WHERE "
                             "o.operation_id = $1 "
                             "AND i.status = 'ACTIVE' AND c.entitled AND m.roles && ARRAY['admin', "
                             "'technical'])",
                             1, true },
    [OPERATION_MOVE] = { "operation_move",
                         "WITH moved AS (UPDATE sandboxd.operations o SET phase = coalesce($3, "
                         "o.phase), "
                         "execution = coalesce($4, o.execution), execution_id = coalesce($5, "
                         "o.execution_id), "
                         "started_at = CASE WHEN $6::boolean THEN " NOW_MS
                         " ELSE o.started_at END, "
                         "exited_at = CASE WHEN $7::boolean THEN " NOW_MS " ELSE o.exited_at END, "
                         "exit_code = coalesce($8::integer, o.exit_code), cause = coalesce($9, "
                         "o.cause), "
                         "staged_sealed = coalesce($10::bytea, o.staged_sealed), read_failed = "
                         "o.read_failed OR $11::boolean, "
                         "owner_reset = o.owner_reset OR $12::boolean, next_action_at = CASE WHEN "
                         "$13::bigint < 0 THEN NULL ELSE " IN_MS(
                             "$13") " END, lease_owner = NULL, attempt = 0, version = o.version + "
                                    "1, updated_at = " NOW_MS
                                    " WHERE o.operation_id = $1 AND o.version = $2::bigint AND "
                                    "o.phase NOT IN ('terminated', 'dropped') "
                                    "RETURNING o.*), k AS (UPDATE sandboxd.connections k SET state "
                                    "= $14, updated_at = " NOW_MS
                                    " FROM moved WHERE k.connection_id = moved.connection_id AND "
                                    "$14::text IS NOT NULL) "
                                    "SELECT " OPERATION_COLUMNS " FROM moved o",
                         14, false },
    [OPERATION_FINISH] = { "operation_finish",
                           "WITH prior AS (SELECT o.operation_id, o.connection_id, o.staged_sealed "
                           "FROM sandboxd.operations o "
                           "WHERE o.operation_id = $1 AND o.version = $2::bigint AND o.phase = "
                           "'terminating' "
                           "AND NOT ($3::boolean AND (o.owner_reset OR o.staged_sealed IS NULL)) "
                           "FOR UPDATE), "
                           "k AS (UPDATE sandboxd.connections k SET state = CASE WHEN $3 THEN "
                           "'READY' ELSE 'ABSENT' END, "
                           "auth_generation = k.auth_generation + CASE WHEN $3 THEN 1 ELSE 0 END, "
                           "auth_sealed = CASE WHEN $3 THEN prior.staged_sealed END, "
                           "github_sealed = CASE WHEN $3 THEN k.github_sealed END, updated_at "
                           "= " NOW_MS " FROM prior WHERE k.connection_id = prior.connection_id) "
                           "UPDATE sandboxd.operations o SET phase = 'terminated', cause = $4, "
                           "auth_preserved = $3, "
                           "execution = CASE WHEN o.execution IN ('starting', 'running') THEN "
                           "'exited' ELSE o.execution END, "
                           "exited_at = CASE WHEN o.execution IN ('starting', 'running') "
                           "THEN " NOW_MS " ELSE o.exited_at END, "
                           "prompt_sealed = NULL, staged_sealed = NULL, next_action_at = NULL, "
                           "lease_owner = NULL, "
                           "terminated_at = " NOW_MS ", updated_at = " NOW_MS
                           ", version = o.version + 1 "
                           "FROM prior WHERE o.operation_id = prior.operation_id "
                           "RETURNING " OPERATION_COLUMNS,
                           4, false },
    [OPERATION_CLAIM_DUE] = { "operation_claim_due",
                              "UPDATE sandboxd.operations o SET lease_owner = $1, next_action_at "
                              "= " IN_MS(
                                  "$2") ", attempt = o.attempt + 1 WHERE o.operation_id IN (SELECT "
                                        "d.operation_id FROM sandboxd.operations d "
                                        "WHERE d.next_action_at <= clock_timestamp() ORDER BY "
                                        "d.next_action_at LIMIT $3::integer "
                                        "FOR UPDATE SKIP LOCKED) RETURNING " OPERATION_COLUMNS,
                              3, false },
    [OPERATION_RELEASE] = { "operation_release",
                            "UPDATE sandboxd.operations o SET lease_owner = NULL, next_action_at = "
                            "CASE WHEN $3::bigint < 0 THEN NULL "
                            "ELSE " IN_MS(
                                "$3") " END WHERE o.operation_id = $1 AND o.lease_owner = $2 "
                                      "AND o.next_action_at IS NOT NULL",
                            3, true },
    /* greatest() passes nulls over: without the CASE an empty table would always be due. */
    [OPERATION_NEXT_DUE] = { "operation_next_due",
                             "SELECT CASE WHEN n.at IS NULL THEN -1 ELSE "
                             "greatest(0, " STORE_MS_NUMBER(
                                 "n.at - clock_timestamp()") ") END FROM "
                                                             "(SELECT min(o.next_action_at) AS at "
                                                             "FROM sandboxd.operations o "
                                                             "WHERE o.next_action_at IS NOT NULL) "
                                                             "n",
                             0, true },
    [OPERATION_UNFINISHED] = { "operation_unfinished",
                               "SELECT EXISTS (SELECT FROM sandboxd.operations o WHERE "
                               "o.connection_id = $1 "
                               "AND o.phase NOT IN ('terminated', 'dropped'))",
                               1, true },
};
const size_t STORE_STMT_OPERATIONS_COUNT = STMT_COUNT;

static void read_operation(const PGresult *res, int at, struct arena *a,
                           struct store_operation *out)
{
    struct store_row r = { .res = res, .a = a, .row = at };
    const char *text;

    *out = (struct store_operation){ 0 };
    out->operation_id = store_row_text(&r);
    out->connection_id = store_row_text(&r);
    out->account_id = store_row_text(&r);
    out->installation_id = store_row_text(&r);
    out->owner_user_id = store_row_text(&r);
    out->app_id = store_row_text(&r);
    out->template_id = store_row_text(&r);
    out->region = store_row_text(&r);
    out->sandbox_id = store_row_text(&r);
    (void)run_phase_parse(store_row_text(&r), &out->facts.phase);
    (void)run_execution_parse(store_row_text(&r), &out->facts.execution);
    out->facts.exit_known = !PQgetisnull(res, at, r.col);
    out->facts.exit_code = store_row_int32(&r);
    out->facts.staged = store_row_bool(&r);
    out->facts.read_failed = store_row_bool(&r);
    out->facts.owner_reset = store_row_bool(&r);
    text = store_row_text(&r);
    if (text != NULL)
        (void)run_cause_parse(text, &out->facts.cause);
    out->version = store_row_int(&r);
    out->run_id = store_row_text(&r);
    out->grant_expires_at_ms = store_row_int(&r);
    out->claimed_at_ms = store_row_int(&r);
    out->repository = store_row_text(&r);
    out->base_branch = store_row_text(&r);
    out->model = store_row_text(&r);
    out->token_limit = store_row_int32(&r);
    out->time_limit_s = store_row_int32(&r);
    out->prompt_sealed = store_row_bytes(&r);
    out->staged_sealed = store_row_bytes(&r);
    out->auth_generation = store_row_int32(&r);
    out->execution_id = store_row_text(&r);
    out->started_at_ms = store_row_int(&r);
    out->exited_at_ms = store_row_int(&r);
    out->terminated_at_ms = store_row_int(&r);
    out->auth_preserved = store_row_bool(&r);
    out->attempt = store_row_int32(&r);
    out->now_ms = store_row_int(&r);
}

/* Runs a statement that gives one operation or none: `code` with `message` then. */
static enum sbx_code one_operation(struct store_conn *db, enum stmt which,
                                   const struct store_args *q, enum sbx_code code,
                                   const char *message, struct arena *a,
                                   struct store_operation *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;

    if (store_run(db, &STORE_STMT_OPERATIONS[which], q, &res, err) != SBX_OK)
        return err->code;
    if (PQntuples(res) == 0)
        return err_set(err, code, "%s", message);
    read_operation(res, 0, a, out);
    return SBX_OK;
}

static const char DENIED[] = "The grant is not valid for this run.";
static const char CHANGED[] = "The operation is changing. Retry the call.";

static enum sbx_code why_not_reserved(struct store_conn *db, const char *connection_id,
                                      struct arena *a, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_row row = { .a = a };
    struct store_args q = { 0 };

    store_arg_text(&q, connection_id);
    if (store_run_one(db, &STORE_STMT_OPERATIONS[OPERATION_UNFINISHED], &q, "connection", &res,
                      err) != SBX_OK)
        return err->code;
    row.res = res;
    if (store_row_bool(&row))
        return err_set(err, SBX_E_CONNECTION_BUSY,
                       "An operation of this connection is not finished.");
    return err_set(err, SBX_E_CONFLICT, "The connection has no sign-in. Sign in first.");
}

enum sbx_code store_operation_reserve(struct store_conn *db, const struct store_operation_new *in,
                                      struct arena *a, struct store_operation *out,
                                      struct sbx_err *err)
{
    struct store_args q = { 0 };
    struct sbx_err none = { 0 };

    store_arg_text(&q, in->operation_id);
    store_arg_text(&q, in->sandbox_id);
    store_arg_text(&q, in->connection_id);
    store_arg_int(&q, in->generation);
    store_arg_bytes(&q, in->grant_digest, SHA256_LEN);
    store_arg_int(&q, in->grant_life_s);
    store_arg_text(&q, in->repository);
    store_arg_text(&q, in->base_branch);
    store_arg_text(&q, in->model);
    store_arg_int(&q, in->token_limit);
    store_arg_int(&q, in->time_limit_s);
    store_arg_bytes(&q, in->prompt_sealed.data, in->prompt_sealed.len);
    if (one_operation(db, OPERATION_RESERVE, &q, SBX_E_CHANGING, CHANGED, a, out, &none) == SBX_OK)
        return SBX_OK;
    if (none.code != SBX_E_CHANGING) {
        *err = none;
        return err->code;
    }
    return why_not_reserved(db, in->connection_id, a, err);
}

enum sbx_code store_operation_by_grant(struct store_conn *db, const char *installation_id,
                                       const unsigned char digest[SHA256_LEN], const char *run_id,
                                       struct arena *a, struct store_operation *out,
                                       struct sbx_err *err)
{
    struct store_args q = { 0 };

    store_arg_text(&q, installation_id);
    store_arg_bytes(&q, digest, SHA256_LEN);
    store_arg_text(&q, run_id);
    return one_operation(db, OPERATION_BY_GRANT, &q, SBX_E_GRANT_DENIED, DENIED, a, out, err);
}

enum sbx_code store_operation_claim(struct store_conn *db, const char *installation_id,
                                    const char *principal_id,
                                    const unsigned char digest[SHA256_LEN], const char *run_id,
                                    struct arena *a, struct store_operation *out,
                                    struct sbx_err *err)
{
    struct store_args q = { 0 };
    struct sbx_err none = { 0 };
    enum sbx_code code;

    store_arg_text(&q, installation_id);
    store_arg_bytes(&q, digest, SHA256_LEN);
    store_arg_text(&q, principal_id);
    store_arg_text(&q, run_id);
    code = one_operation(db, OPERATION_CLAIM, &q, SBX_E_GRANT_DENIED, DENIED, a, out, &none);
    if (code == SBX_OK)
        return code;
    if (code != SBX_E_GRANT_DENIED &&
        code != SBX_E_CONFLICT) { /* conflict: the run id was used before */
        *err = none;
        return code;
    }
    return store_operation_by_grant(db, installation_id, digest, run_id, a, out, err);
}

enum sbx_code store_operation_by_run(struct store_conn *db, const char *installation_id,
                                     const char *run_id, struct arena *a,
                                     struct store_operation *out, struct sbx_err *err)
{
    struct store_args q = { 0 };

    store_arg_text(&q, installation_id);
    store_arg_text(&q, run_id);
    return one_operation(db, OPERATION_BY_RUN, &q, SBX_E_RUN_NOT_FOUND, "There is no such run.", a,
                         out, err);
}

enum sbx_code store_operation_get(struct store_conn *db, const char *operation_id, struct arena *a,
                                  struct store_operation *out, struct sbx_err *err)
{
    struct store_args q = { 0 };

    store_arg_text(&q, operation_id);
    return one_operation(db, OPERATION_GET, &q, SBX_E_NOT_FOUND, "There is no such operation.", a,
                         out, err);
}

enum sbx_code store_operation_by_sandbox(struct store_conn *db, const char *sandbox_id,
                                         struct arena *a, struct store_operation *out,
                                         struct sbx_err *err)
{
    struct store_args q = { 0 };

    store_arg_text(&q, sandbox_id);
    return one_operation(db, OPERATION_BY_SANDBOX, &q, SBX_E_NOT_FOUND,
                         "There is no such operation.", a, out, err);
}

enum sbx_code store_operation_owner_ok(struct store_conn *db, const char *operation_id, bool *out,
                                       struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    SCOPED_ARENA struct arena *a = arena_new();
    struct store_row row = { .a = a };
    struct store_args q = { 0 };

    store_arg_text(&q, operation_id);
    if (store_run_one(db, &STORE_STMT_OPERATIONS[OPERATION_OWNER_OK], &q, "operation", &res, err) !=
        SBX_OK)
        return err->code;
    row.res = res;
    *out = store_row_bool(&row);
    return SBX_OK;
}

enum sbx_code store_operation_move(struct store_conn *db, const struct store_operation_move *m,
                                   struct arena *a, struct store_operation *out,
                                   struct sbx_err *err)
{
    struct store_args q = { 0 };

    store_arg_text(&q, m->operation_id);
    store_arg_int(&q, m->version);
    store_arg_text(&q, m->set_phase ? run_phase_name(m->phase) : NULL);
    store_arg_text(&q, m->set_execution ? run_execution_name(m->execution) : NULL);
    store_arg_text(&q, m->execution_id);
    store_arg_bool(&q, m->set_started);
    store_arg_bool(&q, m->set_exited);
    if (m->set_exit_code)
        store_arg_int(&q, m->exit_code);
    else
        store_arg_text(&q, NULL);
    store_arg_text(&q, run_cause_name(m->cause));
    store_arg_bytes(&q, m->staged != NULL ? m->staged->data : NULL,
                    m->staged != NULL ? m->staged->len : 0);
    store_arg_bool(&q, m->read_failed);
    store_arg_bool(&q, m->owner_reset);
    store_arg_int(&q, m->next_in_ms);
    store_arg_text(&q, m->connection_state);
    return one_operation(db, OPERATION_MOVE, &q, SBX_E_CHANGING, CHANGED, a, out, err);
}

enum sbx_code store_operation_finish(struct store_conn *db, const char *operation_id,
                                     int64_t version, bool clean, enum run_cause cause,
                                     struct arena *a, struct store_operation *out,
                                     struct sbx_err *err)
{
    struct store_args q = { 0 };

    store_arg_text(&q, operation_id);
    store_arg_int(&q, version);
    store_arg_bool(&q, clean);
    store_arg_text(&q, run_cause_name(cause));
    return one_operation(db, OPERATION_FINISH, &q, SBX_E_CHANGING, CHANGED, a, out, err);
}

enum sbx_code store_operation_claim_due(struct store_conn *db, const char *owner, int64_t lease_ms,
                                        int limit, struct arena *a, struct store_operations *out,
                                        struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, owner);
    store_arg_int(&q, lease_ms);
    store_arg_int(&q, limit);
    if (store_run(db, &STORE_STMT_OPERATIONS[OPERATION_CLAIM_DUE], &q, &res, err) != SBX_OK)
        return err->code;
    out->count = (size_t)PQntuples(res);
    out->rows = arena_zalloc(a, out->count * sizeof(*out->rows));
    for (size_t i = 0; i < out->count; i++)
        read_operation(res, (int)i, a, &out->rows[i]);
    return SBX_OK;
}

enum sbx_code store_operation_release(struct store_conn *db, const char *operation_id,
                                      const char *owner, int64_t next_in_ms, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, operation_id);
    store_arg_text(&q, owner);
    store_arg_int(&q, next_in_ms);
    return store_run(db, &STORE_STMT_OPERATIONS[OPERATION_RELEASE], &q, &res, err);
}

enum sbx_code store_operation_next_due(struct store_conn *db, int64_t *in_ms, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    SCOPED_ARENA struct arena *a = arena_new();
    struct store_row row = { .a = a };
    struct store_args q = { 0 };

    if (store_run_one(db, &STORE_STMT_OPERATIONS[OPERATION_NEXT_DUE], &q, "operations", &res,
                      err) != SBX_OK)
        return err->code;
    row.res = res;
    *in_ms = PQgetisnull(res, 0, 0) ? -1 : store_row_int(&row);
    return SBX_OK;
}
