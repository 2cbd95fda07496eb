#include <string.h>

#include "base/id.h"
#include "store/db.h"
#include "store/runs.h"

#define CONNECTION_COLUMNS                                                                         \
    "k.connection_id, k.account_id, k.installation_id, k.owner_user_id, k.app_id, "                \
    "k.template_id, k.region, k.state, k.auth_generation, k.auth_sealed, "                         \
    "k.github_sealed, " STORE_MS("k.created_at") ", " STORE_MS(                                    \
        "k.updated_at") ", o.operation_id, o.phase, o.run_id, " STORE_MS("o.grant_expires_at")
#define UNFINISHED "o.phase NOT IN ('terminated', 'dropped')"
#define WITH_OPERATION                                                                             \
    " LEFT JOIN sandboxd.operations o ON o.connection_id = k.connection_id AND " UNFINISHED " "
#define NOW_MS "date_trunc('milliseconds', clock_timestamp())"

enum stmt {
    CONNECTION_PARTS,
    CONNECTION_SAVE,
    CONNECTION_GET,
    CONNECTION_LIST,
    CONNECTION_SIGN_IN,
    CONNECTION_LOCK,
    CONNECTION_STATE,
    CONNECTION_DESTROY,
    OPERATION_DROP,
    OPERATION_RESET,
    STMT_COUNT
};

const struct store_stmt STORE_STMT_CONNECTIONS[] = {
    [CONNECTION_PARTS] = { "connection_parts",
                           "SELECT EXISTS (SELECT FROM sandboxd.installations WHERE "
                           "installation_id = $2 "
                           "AND account_id = $1), EXISTS (SELECT FROM sandboxd.apps WHERE app_id = "
                           "$3 "
                           "AND account_id = $1), EXISTS (SELECT FROM sandboxd.templates WHERE "
                           "template_id = $4 "
                           "AND account_id = $1 AND (app_id IS NULL OR app_id = $3)), "
                           "EXISTS (SELECT FROM sandboxd.region_access WHERE region = $5 AND "
                           "account_id = $1)",
                           5, true },
    [CONNECTION_SAVE] = { "connection_save",
                          "INSERT INTO sandboxd.connections AS k (connection_id, account_id, "
                          "installation_id, "
                          "owner_user_id, app_id, template_id, region) VALUES ($1, $2, $3, $4, $5, "
                          "$6, $7) "
                          "ON CONFLICT (installation_id, owner_user_id) DO UPDATE SET app_id = "
                          "excluded.app_id, "
                          "template_id = excluded.template_id, region = excluded.region, "
                          "updated_at = " NOW_MS
                          " WHERE k.state IN ('ABSENT', 'READY') AND NOT EXISTS (SELECT FROM "
                          "sandboxd.operations o WHERE o.connection_id = "
                          "k.connection_id AND " UNFINISHED ") RETURNING k.connection_id",
                          7, true },
    [CONNECTION_GET] = { "connection_get",
                         "SELECT " CONNECTION_COLUMNS " FROM sandboxd.connections k" WITH_OPERATION
                         "WHERE k.connection_id = $1 AND ($2::text IS NULL OR k.account_id = $2) "
                         "AND ($3::text IS NULL OR k.owner_user_id = $3)",
                         3, true },
    [CONNECTION_LIST] = { "connection_list",
                          "SELECT " CONNECTION_COLUMNS " FROM sandboxd.connections k" WITH_OPERATION
                          "WHERE k.account_id = $1 AND k.owner_user_id = $2 ORDER BY "
                          "k.connection_id LIMIT 500",
                          2, true },
    [CONNECTION_SIGN_IN] = { "connection_sign_in",
                             "UPDATE sandboxd.connections k SET auth_sealed = $2::bytea, "
                             "github_sealed = $3::bytea, "
                             "auth_generation = k.auth_generation + 1, state = 'READY', updated_at "
                             "= " NOW_MS " WHERE k.connection_id = $1 AND k.state IN ('ABSENT', "
                                         "'READY') AND NOT EXISTS (SELECT FROM "
                             "sandboxd.operations o "
                             "WHERE o.connection_id = k.connection_id AND " UNFINISHED
                             ") RETURNING k.connection_id",
                             3, false },
    [CONNECTION_LOCK] = { "connection_lock",
                          "SELECT k.connection_id FROM sandboxd.connections k WHERE "
                          "k.connection_id = $1 FOR UPDATE",
                          1, true },
    [CONNECTION_STATE] = { "connection_state",
                           "UPDATE sandboxd.connections k SET state = $2, updated_at = " NOW_MS
                           " WHERE k.connection_id = $1",
                           2, true },
    [CONNECTION_DESTROY] = { "connection_destroy",
                             "UPDATE sandboxd.connections k SET state = 'ABSENT', auth_sealed = "
                             "NULL, "
                             "github_sealed = NULL, updated_at = " NOW_MS
                             " WHERE k.connection_id = $1",
                             1, true },
    [OPERATION_DROP] = { "operation_drop",
                         "UPDATE sandboxd.operations o SET phase = 'dropped', prompt_sealed = "
                         "NULL, "
                         "next_action_at = NULL, lease_owner = NULL, version = o.version + 1, "
                         "terminated_at = " NOW_MS ", updated_at = " NOW_MS
                         " WHERE o.connection_id = $1 AND o.phase = 'reserved' RETURNING "
                         "o.operation_id",
                         1, false },
    [OPERATION_RESET] = { "operation_reset",
                          "UPDATE sandboxd.operations o SET phase = 'terminating', owner_reset = "
                          "true, "
                          "cause = 'OWNER_RESET', next_action_at = clock_timestamp(), version = "
                          "o.version + 1, "
                          "attempt = 0, updated_at = " NOW_MS
                          " WHERE o.connection_id = $1 AND " UNFINISHED " RETURNING o.operation_id",
                          1, false },
};
const size_t STORE_STMT_CONNECTIONS_COUNT = STMT_COUNT;

static void read_connection(struct store_row *r, struct store_connection *out)
{
    const char *phase;

    *out = (struct store_connection){ 0 };
    out->connection_id = store_row_text(r);
    out->account_id = store_row_text(r);
    out->installation_id = store_row_text(r);
    out->owner_user_id = store_row_text(r);
    out->app_id = store_row_text(r);
    out->template_id = store_row_text(r);
    out->region = store_row_text(r);
    out->state = store_row_text(r);
    out->auth_generation = store_row_int32(r);
    out->auth_sealed = store_row_bytes(r);
    out->github_sealed = store_row_bytes(r);
    out->created_at_ms = store_row_int(r);
    out->updated_at_ms = store_row_int(r);
    out->operation_id = store_row_text(r);
    phase = store_row_text(r);
    if (phase != NULL)
        (void)run_phase_parse(phase, &out->operation_phase);
    out->run_id = store_row_text(r);
    out->grant_expires_at_ms = store_row_int(r);
}

enum sbx_code store_connection_get(struct store_conn *db, const char *account_id,
                                   const char *owner_user_id, const char *connection_id,
                                   struct arena *a, struct store_connection *out,
                                   struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_row row = { .a = a };
    struct store_args q = { 0 };

    store_arg_text(&q, connection_id);
    store_arg_text(&q, account_id);
    store_arg_text(&q, owner_user_id);
    if (store_run_one(db, &STORE_STMT_CONNECTIONS[CONNECTION_GET], &q, "connection", &res, err) !=
        SBX_OK)
        return err->code;
    row.res = res;
    read_connection(&row, out);
    return SBX_OK;
}

enum sbx_code store_connection_list(struct store_conn *db, const char *account_id,
                                    const char *owner_user_id, struct arena *a,
                                    struct store_connections *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, account_id);
    store_arg_text(&q, owner_user_id);
    if (store_run(db, &STORE_STMT_CONNECTIONS[CONNECTION_LIST], &q, &res, err) != SBX_OK)
        return err->code;
    out->count = (size_t)PQntuples(res);
    out->rows = arena_zalloc(a, out->count * sizeof(*out->rows));
    for (size_t i = 0; i < out->count; i++) {
        struct store_row row = { .res = res, .a = a, .row = (int)i };

        read_connection(&row, &out->rows[i]);
    }
    return SBX_OK;
}

/* The parts that a connection names must be the account's. */
static enum sbx_code check_parts(struct store_conn *db, const struct store_connection_new *in,
                                 struct arena *a, struct sbx_err *err)
{
    static const char *const WHAT[] = { "installation", "app", "template", "region" };
    SCOPED_RESULT PGresult *res = NULL;
    struct store_row row = { .a = a };
    struct store_args q = { 0 };

    store_arg_text(&q, in->account_id);
    store_arg_text(&q, in->installation_id);
    store_arg_text(&q, in->app_id);
    store_arg_text(&q, in->template_id);
    store_arg_text(&q, in->region);
    if (store_run_one(db, &STORE_STMT_CONNECTIONS[CONNECTION_PARTS], &q, "account", &res, err) !=
        SBX_OK)
        return err->code;
    row.res = res;
    for (size_t i = 0; i < COUNT_OF(WHAT); i++) {
        if (!store_row_bool(&row))
            return err_set(err, SBX_E_NOT_FOUND, "There is no such %s in this account.", WHAT[i]);
    }
    return SBX_OK;
}

enum sbx_code store_connection_save(struct store_conn *db, const struct store_connection_new *in,
                                    struct arena *a, struct store_connection *out,
                                    struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_row row = { .a = a };
    struct store_args q = { 0 };
    char id[ID_SIZE];

    if (check_parts(db, in, a, err) != SBX_OK)
        return err->code;
    id_new(id);
    store_arg_text(&q, id);
    store_arg_text(&q, in->account_id);
    store_arg_text(&q, in->installation_id);
    store_arg_text(&q, in->owner_user_id);
    store_arg_text(&q, in->app_id);
    store_arg_text(&q, in->template_id);
    store_arg_text(&q, in->region);
    if (store_run(db, &STORE_STMT_CONNECTIONS[CONNECTION_SAVE], &q, &res, err) != SBX_OK)
        return err->code;
    if (PQntuples(res) == 0)
        return err_set(err, SBX_E_CONNECTION_BUSY,
                       "An operation of this connection is not finished.");
    row.res = res;
    return store_connection_get(db, in->account_id, in->owner_user_id, store_row_text(&row), a, out,
                                err);
}

enum sbx_code store_connection_sign_in(struct store_conn *db, const char *connection_id,
                                       const struct store_bytes *auth_sealed,
                                       const struct store_bytes *github_sealed, struct arena *a,
                                       struct store_connection *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, connection_id);
    store_arg_bytes(&q, auth_sealed->data, auth_sealed->len);
    store_arg_bytes(&q, github_sealed->data, github_sealed->len);
    if (store_run(db, &STORE_STMT_CONNECTIONS[CONNECTION_SIGN_IN], &q, &res, err) != SBX_OK)
        return err->code;
    if (PQntuples(res) == 0)
        return err_set(err, SBX_E_CONNECTION_BUSY,
                       "An operation of this connection is not finished.");
    return store_connection_get(db, NULL, NULL, connection_id, a, out, err);
}

/* --- the owner's reset --------------------------------------------------- */

struct reset {
    const char *connection_id;
    bool dropped;
};

/* Runs one of our statements on the connection id; *rows is how many it returned. */
static enum sbx_code on_connection(struct store_conn *db, enum stmt which,
                                   const char *connection_id, const char *state, int *rows,
                                   struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, connection_id);
    if (state != NULL)
        store_arg_text(&q, state);
    if (store_run(db, &STORE_STMT_CONNECTIONS[which], &q, &res, err) != SBX_OK)
        return err->code;
    *rows = PQntuples(res);
    return SBX_OK;
}

static enum sbx_code reset_in_tx(struct store_conn *db, void *arg, struct sbx_err *err)
{
    struct reset *r = arg;
    int rows;

    r->dropped = false;
    if (on_connection(db, CONNECTION_LOCK, r->connection_id, NULL, &rows, err) != SBX_OK)
        return err->code;
    if (rows == 0)
        return err_set(err, SBX_E_NOT_FOUND, "There is no such connection.");
    if (on_connection(db, OPERATION_DROP, r->connection_id, NULL, &rows, err) != SBX_OK)
        return err->code;
    if (rows > 0) {
        r->dropped = true;
        return on_connection(db, CONNECTION_STATE, r->connection_id, "READY", &rows, err);
    }
    if (on_connection(db, OPERATION_RESET, r->connection_id, NULL, &rows, err) != SBX_OK)
        return err->code;
    if (rows > 0)
        return on_connection(db, CONNECTION_STATE, r->connection_id, "RESETTING", &rows, err);
    return on_connection(db, CONNECTION_DESTROY, r->connection_id, NULL, &rows, err);
}

enum sbx_code store_connection_reset(struct store_conn *db, const char *connection_id,
                                     bool *dropped, struct arena *a, struct store_connection *out,
                                     struct sbx_err *err)
{
    struct reset r = { .connection_id = connection_id };

    if (store_tx(db, reset_in_tx, &r, err) != SBX_OK)
        return err->code;
    *dropped = r.dropped;
    return store_connection_get(db, NULL, NULL, connection_id, a, out, err);
}
