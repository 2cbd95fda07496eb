#include <assert.h>
#include <poll.h>

#include "base/hash.h"
#include "base/time.h"
#include "store/conn_impl.h"

/* --- single statements --- */

static enum sbx_code run_prepared(struct store_conn *db, const struct store_stmt *stmt,
                                  const struct store_args *q, PGresult **out, bool *sent,
                                  struct sbx_err *err)
{
    enum sbx_code code = store_conn_ready(db, err);

    *sent = false;
    if (code != SBX_OK)
        return code;
    int64_t until = store_conn_until(db);
    *sent = true;
    if (!PQsendQueryPrepared(db->pg, stmt->name, q->count, q->values, q->lengths, q->formats, 1))
        return store_conn_lost(db, stmt->name, err);
    return store_conn_collect(db, stmt->name, until, out, err);
}

/* What deserves another try of one statement outside a transaction. */
static bool again(struct store_conn *db, const struct store_stmt *stmt, enum sbx_code code,
                  bool sent, int tries)
{
    if (db->in_tx || tries >= STORE_TRIES)
        return false;
    if (db->budget_until && time_mono_ms() >= db->budget_until)
        return false;
    if (code == SBX_E_CONFLICT)
        return db->conflict;
    /* The connection was found dead: once more on a new one, when that does no harm. */
    return code == SBX_E_UNAVAILABLE && !db->pg && !db->late && sent && stmt->repeatable &&
           tries == 1;
}

enum sbx_code store_run(struct store_conn *db, const struct store_stmt *stmt,
                        const struct store_args *args, PGresult **out, struct sbx_err *err)
{
    static const struct store_args NONE;
    const struct store_args *q = args ? args : &NONE;

    assert(q->count == stmt->args);
    for (int tries = 1;; tries++) {
        bool sent;
        enum sbx_code code = run_prepared(db, stmt, q, out, &sent, err);

        if (code == SBX_OK || !again(db, stmt, code, sent, tries))
            return code;
        *err = (struct sbx_err){ 0 };
    }
}

enum sbx_code store_run_one(struct store_conn *db, const struct store_stmt *stmt,
                            const struct store_args *args, const char *what, PGresult **out,
                            struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    enum sbx_code code = store_run(db, stmt, args, &res, err);

    if (code != SBX_OK)
        return code;
    assert(PQntuples(res) <= 1);
    if (PQntuples(res) == 0)
        return err_set(err, SBX_E_NOT_FOUND, "%s not found", what);
    *out = STEAL(res);
    return SBX_OK;
}

enum sbx_code store_one(struct store_conn *db, const struct store_stmt *stmt,
                        const struct store_args *args, const char *what, struct arena *a,
                        store_read *read, void *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    enum sbx_code code = store_run_one(db, stmt, args, what, &res, err);

    if (code == SBX_E_NOT_FOUND)
        return store_say(err, code, "%s not found", what);
    if (code != SBX_OK)
        return code;
    struct store_row r = { .res = res, .a = a };
    read(&r, out);
    return SBX_OK;
}

enum sbx_code store_page(struct store_conn *db, const struct store_stmt *stmt,
                         struct store_args *args, const char *after, int limit, PGresult **out,
                         size_t *count, bool *more, struct sbx_err *err)
{
    PGresult *res = NULL;

    if (limit < 1)
        limit = 1;
    if (limit > STORE_LIST_MAX)
        limit = STORE_LIST_MAX;
    store_arg_text(args, after);
    store_arg_int(args, limit + 1);
    enum sbx_code code = store_run(db, stmt, args, &res, err);
    if (code != SBX_OK)
        return code;
    int rows = PQntuples(res);
    *more = rows > limit;
    *count = (size_t)(rows > limit ? limit : rows);
    *out = res;
    return SBX_OK;
}

enum sbx_code store_count(struct store_conn *db, const struct store_stmt *stmt,
                          const char *account_id, int up_to, int *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, account_id);
    store_arg_int(&q, up_to);
    enum sbx_code code = store_run_one(db, stmt, &q, "count", &res, err);
    if (code != SBX_OK)
        return code;
    struct store_row r = { .res = res };
    *out = store_row_int32(&r);
    return SBX_OK;
}

enum sbx_code store_run_text(struct store_conn *db, const char *sql, PGresult **out,
                             struct sbx_err *err)
{
    enum sbx_code code = store_conn_connect(db, err);

    if (code != SBX_OK)
        return code;
    int64_t until = store_conn_until(db);
    if (!PQsendQuery(db->pg, sql))
        return store_conn_lost(db, "statement", err);
    return store_conn_collect(db, "statement", until, out, err);
}

enum sbx_code store_run_once(struct store_conn *db, const char *sql, const struct store_args *q,
                             PGresult **out, struct sbx_err *err)
{
    enum sbx_code code = store_conn_connect(db, err);

    if (code != SBX_OK)
        return code;
    int64_t until = store_conn_until(db);
    if (!PQsendQueryParams(db->pg, sql, q->count, NULL, q->values, q->lengths, q->formats, 1))
        return store_conn_lost(db, "statement", err);
    return store_conn_collect(db, "statement", until, out, err);
}

enum sbx_code store_conn_check(struct store_conn *db, int64_t *now_ms, struct sbx_err *err)
{
    static const struct store_args NONE;
    SCOPED_RESULT PGresult *res = NULL;
    SCOPED_ARENA struct arena *a = arena_new();
    enum sbx_code code =
        store_run_once(db, "SELECT " STORE_MS("clock_timestamp()"), &NONE, &res, err);

    if (code != SBX_OK)
        return code;
    struct store_row r = { .res = res, .a = a };
    *now_ms = store_row_int(&r);
    return SBX_OK;
}

/* --- transactions ------------------------------------------------------- */

static enum sbx_code tx_step(struct store_conn *db, const char *sql, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;

    return store_run_text(db, sql, &res, err);
}

static enum sbx_code tx_once(struct store_conn *db,
                             enum sbx_code (*fn)(struct store_conn *, void *, struct sbx_err *),
                             void *arg, struct sbx_err *err)
{
    struct sbx_err ignored = { 0 };
    enum sbx_code code = store_conn_ready(db, err);

    if (code == SBX_OK)
        code = tx_step(db, "BEGIN", err);
    if (code != SBX_OK)
        return code;
    db->in_tx = true;
    db->broken = false;
    code = fn(db, arg, err);
    if (db->broken) {
        /* Nothing was committed: COMMIT was never sent. */
        db->in_tx = false;
        return store_say(err, SBX_E_UNAVAILABLE,
                         "the connection to the database was lost; nothing was changed");
    }
    if (code == SBX_OK)
        code = tx_step(db, "COMMIT", err);
    else if (tx_step(db, "ROLLBACK", &ignored) != SBX_OK)
        store_conn_drop(db);
    db->in_tx = false;
    return code;
}

enum sbx_code store_tx(struct store_conn *db,
                       enum sbx_code (*fn)(struct store_conn *, void *, struct sbx_err *),
                       void *arg, struct sbx_err *err)
{
    assert(!db->in_tx);
    for (int tries = 1;; tries++) {
        enum sbx_code code = tx_once(db, fn, arg, err);

        if (code != SBX_E_CONFLICT || !db->conflict || tries >= STORE_TRIES)
            return code;
        *err = (struct sbx_err){ 0 };
        /* Apart from the other party, for up to 2, 4, 8, 16 ms. */
        (void)poll(NULL, 0, (int)(random_u64() % (UINT64_C(1) << tries)));
    }
}
