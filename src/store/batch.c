#include <assert.h>
#include <string.h>

#include "store/conn_impl.h"

/* For the transaction of a group: whoever holds one account's row must not hold up the others. */
static const char GROUP_LOCK_SQL[] =
    "SELECT set_config('lock_timeout', '" STORE_GROUP_LOCK_MS "', true)";

static enum sbx_code many_once(struct store_conn *db, const struct store_stmt *stmt,
                               const struct store_args *args, size_t count, PGresult **out,
                               struct sbx_err *err)
{
    enum sbx_code code = store_conn_ready(db, err);

    if (code != SBX_OK)
        return code;
    int64_t until = store_conn_until(db);
    if (PQenterPipelineMode(db->pg) != 1)
        return store_conn_lost(db, stmt->name, err);
    for (size_t i = 0; i < count; i++) {
        const struct store_args *q = &args[i];

        assert(q->count == stmt->args);
        if (!PQsendQueryPrepared(db->pg, stmt->name, q->count, q->values, q->lengths, q->formats,
                                 1))
            return store_conn_lost(db, stmt->name, err);
    }
    if (PQpipelineSync(db->pg) != 1)
        return store_conn_lost(db, stmt->name, err);
    code = store_conn_collect_all(db, stmt->name, count, until, out, err);
    if (db->pg && PQexitPipelineMode(db->pg) != 1)
        store_conn_drop(db);
    return code;
}

enum sbx_code store_run_many(struct store_conn *db, const struct store_stmt *stmt,
                             const struct store_args *args, size_t count, PGresult **out,
                             struct sbx_err *err)
{
    assert(count <= STORE_BATCH_MAX);
    for (int tries = 1;; tries++) {
        memset(out, 0, count * sizeof(out[0]));
        enum sbx_code code = many_once(db, stmt, args, count, out, err);

        if (code == SBX_OK)
            return code;
        for (size_t i = 0; i < count; i++)
            PQclear(out[i]);
        if (code != SBX_E_CONFLICT || db->in_tx || !db->conflict || tries >= STORE_TRIES)
            return code;
        *err = (struct sbx_err){ 0 };
    }
}

enum sbx_code store_do_many(struct store_conn *db, const struct store_stmt *stmt,
                            const struct store_args *args, size_t count, struct sbx_err *err)
{
    PGresult *results[STORE_BATCH_MAX];

    assert(count <= STORE_BATCH_MAX);
    enum sbx_code code = store_run_many(db, stmt, args, count, results, err);
    for (size_t i = 0; code == SBX_OK && i < count; i++)
        PQclear(results[i]);
    return code;
}

static bool send_group(PGconn *pg, struct store_later *const *items, size_t count, bool writes)
{
    if (PQenterPipelineMode(pg) != 1)
        return false;
    if (writes && !PQsendQueryParams(pg, GROUP_LOCK_SQL, 0, NULL, NULL, NULL, NULL, 1))
        return false;
    for (size_t i = 0; i < count; i++) {
        const struct store_args *q = &items[i]->args;

        assert(q->count == items[i]->stmt->args);
        if (!PQsendQueryPrepared(pg, items[i]->stmt->name, q->count, q->values, q->lengths,
                                 q->formats, 1))
            return false;
    }
    return PQpipelineSync(pg) == 1;
}

bool store_run_group(struct store_conn *db, struct store_later *const *items, size_t count,
                     bool writes, PGresult **res)
{
    PGresult *all[STORE_BATCH_MAX + 1] = { NULL };
    size_t extra = writes ? 1 : 0; /* the lock time-out's */
    struct sbx_err why = { 0 };    /* whoever asks again alone finds out */
    enum sbx_code code;

    assert(!db->in_tx && count <= STORE_BATCH_MAX);
    if (store_conn_ready(db, &why) != SBX_OK)
        return false;
    int64_t until = store_conn_until(db);
    if (send_group(db->pg, items, count, writes))
        code = store_conn_collect_all(db, "group", count + extra, until, all, &why);
    else
        code = store_conn_lost(db, "group", &why);
    if (db->pg && PQexitPipelineMode(db->pg) != 1)
        store_conn_drop(db);
    for (size_t i = 0; i < count + extra; i++) {
        if (i < extra || (writes && code != SBX_OK))
            PQclear(all[i]);
        else
            res[i - extra] = all[i];
    }
    return db->pg || !db->late;
}
