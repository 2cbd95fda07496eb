#include "store/workers.h"

#include "domain/worker_checkin.h"
#include "store/db.h"

#define STREAM_COLUMNS "s.stream_id, s.owner_user_id, " STORE_MS("s.created_at")
#define WORKER_COLUMNS                                                                             \
    "w.worker_id, w.version, " STORE_MS("w.registered_at") ", " STORE_MS("w.last_check_in_at")
#define NOW "date_trunc('milliseconds', now())"

enum stmt {
    STREAM_CREATE,
    STREAM_REMOVE,
    STREAM_LIST,
    STREAM_OF_SUBJECT,
    STREAM_OF_USER,
    WORKER_CHECK_IN,
    WORKER_PRUNE,
    WORKER_LIST,
    STMT_COUNT
};

const struct store_stmt STORE_STMT_WORKERS[] = {
    [STREAM_CREATE] = { "stream_create",
                        "INSERT INTO sandboxd.streams AS s (stream_id, owner_user_id) "
                        "VALUES ($1, $2) RETURNING " STREAM_COLUMNS,
                        2, false },
    [STREAM_REMOVE] = { "stream_remove",
                        "DELETE FROM sandboxd.streams s WHERE s.stream_id = $1 "
                        "RETURNING s.stream_id",
                        1, false },
    [STREAM_LIST] = { "stream_list",
                      "SELECT " STREAM_COLUMNS " FROM sandboxd.streams s "
                      "WHERE $1::text IS NULL OR s.stream_id > $1 ORDER BY s.stream_id LIMIT $2",
                      2, true },
    [STREAM_OF_SUBJECT] = { "stream_of_subject",
                            "SELECT s.stream_id FROM sandboxd.streams s "
                            "JOIN sandboxd.users u ON u.user_id = s.owner_user_id "
                            "WHERE s.stream_id = $1 AND u.subject = $2",
                            2, true },
    [STREAM_OF_USER] = { "stream_of_user",
                         "SELECT s.stream_id FROM sandboxd.streams s "
                         "WHERE s.stream_id = $1 AND s.owner_user_id = $2",
                         2, true },
    /* xmax is 0 in a row that this statement inserted. */
    [WORKER_CHECK_IN] = { "worker_check_in",
                          "INSERT INTO sandboxd.workers AS w (stream_id, worker_id, version) "
                          "VALUES ($1, $2, $3) ON CONFLICT (stream_id, worker_id) DO UPDATE SET "
                          "version = EXCLUDED.version, last_check_in_at = " NOW " "
                          "RETURNING " WORKER_COLUMNS ", w.xmax = 0",
                          3, false },
    [WORKER_PRUNE] = { "worker_prune",
                       "DELETE FROM sandboxd.workers w WHERE w.stream_id = $1 AND w.worker_id IN "
                       "(SELECT o.worker_id FROM sandboxd.workers o WHERE o.stream_id = $1 "
                       "ORDER BY o.last_check_in_at DESC, o.worker_id OFFSET $2)",
                       2, true },
    [WORKER_LIST] = { "worker_list",
                      "SELECT " WORKER_COLUMNS
                      ", " STORE_MS(NOW) " FROM sandboxd.workers w "
                                         "WHERE w.stream_id = $1 ORDER BY w.worker_id LIMIT $2",
                      2, true },
};
const size_t STORE_STMT_WORKERS_COUNT = STMT_COUNT;

static const struct store_stmt *const S = STORE_STMT_WORKERS;

static void stream_row(struct store_row *r, struct store_stream *out)
{
    out->stream_id = store_row_text(r);
    out->owner_user_id = store_row_text(r);
    out->created_at_ms = store_row_int(r);
}

static void worker_row(struct store_row *r, struct store_worker *out)
{
    out->worker_id = store_row_text(r);
    out->version = store_row_text(r);
    out->registered_at_ms = store_row_int(r);
    out->last_check_in_at_ms = store_row_int(r);
}

enum sbx_code store_stream_create(struct store_conn *db, const char *stream_id,
                                  const char *owner_user_id, struct arena *a,
                                  struct store_stream *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, stream_id);
    store_arg_text(&q, owner_user_id);
    if (store_run_one(db, &S[STREAM_CREATE], &q, "User", &res, err) != SBX_OK)
        return err->code;
    stream_row(&(struct store_row){ .res = res, .a = a }, out);
    return SBX_OK;
}

enum sbx_code store_stream_remove(struct store_conn *db, const char *stream_id, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, stream_id);
    return store_run_one(db, &S[STREAM_REMOVE], &q, "Stream", &res, err);
}

enum sbx_code store_stream_list(struct store_conn *db, const char *after, int limit,
                                struct arena *a, struct store_streams *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };
    size_t count = 0;
    bool more = false;

    if (store_page(db, &S[STREAM_LIST], &q, after, limit, &res, &count, &more, err) != SBX_OK)
        return err->code;
    *out = (struct store_streams){ .count = count, .more = more };
    out->rows = arena_zalloc(a, (count + 1) * sizeof(*out->rows));
    for (size_t i = 0; i < count; i++)
        stream_row(&(struct store_row){ .res = res, .a = a, .row = (int)i }, &out->rows[i]);
    return SBX_OK;
}

static enum sbx_code owned(struct store_conn *db, enum stmt stmt, const char *stream_id,
                           const char *owner, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, stream_id);
    store_arg_text(&q, owner);
    if (store_run(db, &S[stmt], &q, &res, err) != SBX_OK)
        return err->code;
    return PQntuples(res) == 1 ? SBX_OK
                               : err_set(err, SBX_E_STREAM_NOT_FOUND, "There is no such stream.");
}

enum sbx_code store_stream_of_subject(struct store_conn *db, const char *stream_id,
                                      const char *subject, struct sbx_err *err)
{
    return owned(db, STREAM_OF_SUBJECT, stream_id, subject, err);
}

enum sbx_code store_stream_of_user(struct store_conn *db, const char *stream_id,
                                   const char *user_id, struct sbx_err *err)
{
    return owned(db, STREAM_OF_USER, stream_id, user_id, err);
}

static enum sbx_code prune(struct store_conn *db, const char *stream_id, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, stream_id);
    store_arg_int(&q, STORE_WORKERS_MAX);
    return store_run(db, &S[WORKER_PRUNE], &q, &res, err);
}

enum sbx_code store_worker_check_in(struct store_conn *db, const char *stream_id,
                                    const char *worker_id, const char *version, struct arena *a,
                                    struct store_worker *out, bool *fresh, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };
    struct store_row r = { .a = a };
    struct store_worker w = { 0 };
    bool inserted;

    store_arg_text(&q, stream_id);
    store_arg_text(&q, worker_id);
    store_arg_text(&q, version);
    if (store_run_one(db, &S[WORKER_CHECK_IN], &q, "Stream", &res, err) != SBX_OK)
        return err->code;
    r.res = res;
    worker_row(&r, &w);
    inserted = store_row_bool(&r);
    if (inserted && prune(db, stream_id, err) != SBX_OK)
        return err->code;
    *out = w;
    *fresh = inserted;
    return SBX_OK;
}

enum sbx_code store_worker_list(struct store_conn *db, const char *stream_id, struct arena *a,
                                struct store_workers *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, stream_id);
    store_arg_int(&q, STORE_WORKERS_MAX);
    if (store_run(db, &S[WORKER_LIST], &q, &res, err) != SBX_OK)
        return err->code;
    *out = (struct store_workers){ .count = (size_t)PQntuples(res) };
    out->rows = arena_zalloc(a, (out->count + 1) * sizeof(*out->rows));
    for (size_t i = 0; i < out->count; i++) {
        struct store_row r = { .res = res, .a = a, .row = (int)i };

        worker_row(&r, &out->rows[i]);
        out->now_ms = store_row_int(&r);
    }
    return SBX_OK;
}

bool store_worker_gate(struct store_conn *db, const char *stream_id)
{
    SCOPED_ARENA struct arena *a = arena_new();
    struct store_workers workers = { 0 };
    struct sbx_err err = { 0 };

    if (store_worker_list(db, stream_id, a, &workers, &err) != SBX_OK)
        return false;
    for (size_t i = 0; i < workers.count; i++) {
        if (worker_healthy(workers.rows[i].last_check_in_at_ms, workers.now_ms))
            return true;
    }
    return false;
}
