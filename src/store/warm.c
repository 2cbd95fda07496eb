#include "store/warm.h"

#include <string.h>

#include "base/id.h"
#include "store/db.h"

#define WARM_COLUMNS                                                                               \
    "w.warm_id, w.account_id, w.revision_id, w.region, w.status, w.generation, "                   \
    "w.sandbox_id, " STORE_MS("w.created_at") ", " STORE_MS("w.ready_at") ", " STORE_MS(           \
        "w.deadline_at")

enum {
    WARM_POOL_LIST,
    WARM_LOCK,
    WARM_ROOM,
    WARM_ADD,
    WARM_SET,
    WARM_DRAIN,
    WARM_CLAIM_DRAIN,
    WARM_REMOVE,
    WARM_LIST,
};

const struct store_stmt STORE_STMT_WARM[] = {
    [WARM_POOL_LIST] = { "warm_pool_list",
                         "WITH wanted AS (SELECT r.account_id, r.revision_id, x.region, "
                         "r.warm_desired, "
                         "r.warm_min, r.warm_max FROM sandboxd.revisions r "
                         "JOIN sandboxd.templates t ON t.template_id = r.template_id "
                         "AND t.current_revision = r.revision AND t.enabled AND t.deprecated_at IS "
                         "NULL "
                         "JOIN sandboxd.accounts c ON c.account_id = r.account_id AND c.entitled "
                         "CROSS JOIN LATERAL unnest(r.warm_regions) AS x (region) "
                         "JOIN sandboxd.regions g ON g.region = x.region AND g.enabled AND "
                         "g.sandboxes "
                         "JOIN sandboxd.region_access y ON y.account_id = r.account_id AND "
                         "y.region = x.region "
                         "WHERE r.warm_pool AND r.warm_max > 0), "
                         "there AS (SELECT w.account_id, w.revision_id, w.region, "
                         "count(*) FILTER (WHERE w.status = 'STARTING') AS starting, "
                         "count(*) FILTER (WHERE w.status = 'READY') AS ready "
                         "FROM sandboxd.warm_members w WHERE w.status IN ('STARTING', 'READY') "
                         "GROUP BY w.account_id, w.revision_id, w.region) "
                         "SELECT coalesce(d.account_id, h.account_id), coalesce(d.revision_id, "
                         "h.revision_id), "
                         "coalesce(d.region, h.region), d.warm_desired, d.warm_min, d.warm_max, "
                         "h.starting, "
                         "h.ready FROM wanted d FULL JOIN there h "
                         "ON h.revision_id = d.revision_id AND h.region = d.region ORDER BY 2, 3 "
                         "LIMIT $1",
                         1, true },
    /* One at a time, over all control planes: pools are small and adding is rare. */
    [WARM_LOCK] = { "warm_lock", "SELECT pg_advisory_xact_lock(7235061, 1)", 0, false },
    [WARM_ROOM] = { "warm_room",
                    "SELECT count(*) FILTER (WHERE w.revision_id = $1 AND w.region = $2), "
                    "count(*) FROM sandboxd.warm_members w "
                    "WHERE w.status IN ('STARTING', 'READY')",
                    2, true },
    [WARM_ADD] = { "warm_add",
                   "INSERT INTO sandboxd.warm_members AS w (warm_id, account_id, revision_id, "
                   "region, status, deadline_at) VALUES ($1, $2, $3, $4, 'STARTING', "
                   "now() + sandboxd.span($5::bigint)) RETURNING " WARM_COLUMNS,
                   5, false },
    [WARM_SET] = { "warm_set",
                   "UPDATE sandboxd.warm_members w SET status = $2, ready_at = CASE "
                   "WHEN $2::text = 'READY' THEN now() ELSE w.ready_at END "
                   "WHERE w.warm_id = $1 AND w.status IN ('STARTING', 'READY') "
                   "RETURNING w.warm_id",
                   2, true },
    [WARM_DRAIN] = { "warm_drain",
                     "UPDATE sandboxd.warm_members w SET status = 'DRAINING' "
                     "WHERE w.warm_id = ANY(ARRAY(SELECT d.warm_id FROM sandboxd.warm_members d "
                     "WHERE d.revision_id = $1 AND d.region = $2 "
                     "AND d.status IN ('STARTING', 'READY') ORDER BY d.created_at LIMIT $3 "
                     "FOR UPDATE SKIP LOCKED))",
                     3, false },
    [WARM_CLAIM_DRAIN] = { "warm_claim_drain",
                           "UPDATE sandboxd.warm_members w SET status = 'DRAINING', lease_owner = "
                           "$1, "
                           "generation = w.generation + 1, lease_until = now() + "
                           "sandboxd.span($2::bigint) "
                           "WHERE w.warm_id = ANY(ARRAY(SELECT d.warm_id FROM "
                           "sandboxd.warm_members d "
                           "LEFT JOIN sandboxd.sandboxes s ON s.sandbox_id = d.sandbox_id "
                           "WHERE (d.status = 'DRAINING' OR (d.status = 'STARTING' AND "
                           "d.deadline_at <= now()) "
                           "OR (d.status = 'CLAIMED' AND (s.sandbox_id IS NULL OR s.ready_at IS "
                           "NOT NULL "
                           "OR s.status IN ('FAILED', 'TERMINATING', 'TERMINATED')))) "
                           "AND (d.lease_until IS NULL OR d.lease_until <= now()) "
                           "ORDER BY d.warm_id LIMIT $3 FOR UPDATE OF d SKIP LOCKED)) "
                           "RETURNING " WARM_COLUMNS,
                           3, false },
    [WARM_REMOVE] = { "warm_remove", "DELETE FROM sandboxd.warm_members w WHERE w.warm_id = $1", 1,
                      true },
    [WARM_LIST] = { "warm_list",
                    "SELECT " WARM_COLUMNS " FROM sandboxd.warm_members w WHERE w.region = $1 "
                    "AND w.warm_id > coalesce($2, '') ORDER BY w.warm_id LIMIT $3",
                    3, true },
};
const size_t STORE_STMT_WARM_COUNT = COUNT_OF(STORE_STMT_WARM);

static const struct store_stmt *const S = STORE_STMT_WARM;

static const char *const NAMES[] = {
    [STORE_WARM_NONE] = "",
    [STORE_WARM_STARTING] = "STARTING",
    [STORE_WARM_READY] = "READY",
    [STORE_WARM_CLAIMED] = "CLAIMED",
    [STORE_WARM_DRAINING] = "DRAINING",
};

const char *store_warm_status_name(enum store_warm_status s)
{
    return NAMES[s];
}

static void warm_row(struct store_row *r, void *to)
{
    struct store_warm *out = to;

    out->warm_id = store_row_text(r);
    out->account_id = store_row_text(r);
    out->revision_id = store_row_text(r);
    out->region = store_row_text(r);
    const char *status = store_row_text(r);
    for (size_t i = 1; status && i < COUNT_OF(NAMES); i++) {
        if (strcmp(NAMES[i], status) == 0)
            out->status = (enum store_warm_status)i;
    }
    out->generation = store_row_int(r);
    out->sandbox_id = store_row_text(r);
    out->created_at_ms = store_row_int(r);
    out->ready_at_ms = store_row_int(r);
    out->deadline_at_ms = store_row_int(r);
}

static void warm_rows(const PGresult *res, size_t count, struct arena *a, struct store_warms *out)
{
    out->count = count;
    out->rows = store_rows(res, out->count, a, warm_row, sizeof(*out->rows));
}

enum sbx_code store_warm_pool_list(struct store_conn *db, struct arena *a,
                                   struct store_warm_pools *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_int(&q, STORE_LIST_MAX);
    enum sbx_code code = store_run(db, &S[WARM_POOL_LIST], &q, &res, err);
    if (code != SBX_OK)
        return code;
    out->count = (size_t)PQntuples(res);
    out->rows = arena_zalloc(a, out->count * sizeof(*out->rows));
    for (size_t i = 0; i < out->count; i++) {
        struct store_row r = { .res = res, .a = a, .row = (int)i };
        struct store_warm_pool *p = &out->rows[i];

        p->account_id = store_row_text(&r);
        p->revision_id = store_row_text(&r);
        p->region = store_row_text(&r);
        p->desired = store_row_int32(&r);
        p->min = store_row_int32(&r);
        p->max = store_row_int32(&r);
        p->starting = store_row_int32(&r);
        p->ready = store_row_int32(&r);
    }
    return SBX_OK;
}

struct adding {
    const struct store_warm_pool *pool;
    int count, total_max;
    int64_t deadline_ms;
    struct arena *a;
    struct store_warms out;
};

/* How many more the pool and all pools together may have. */
static enum sbx_code room(struct store_conn *db, const struct adding *w, int *out,
                          struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, w->pool->revision_id);
    store_arg_text(&q, w->pool->region);
    enum sbx_code code = store_run_one(db, &S[WARM_ROOM], &q, "count", &res, err);
    if (code != SBX_OK)
        return code;
    struct store_row r = { .res = res };
    int here = w->pool->max - store_row_int32(&r);
    int all = w->total_max - store_row_int32(&r);
    *out = w->count < here ? w->count : here;
    if (*out > all)
        *out = all;
    return SBX_OK;
}

static enum sbx_code add_one(struct store_conn *db, const struct adding *w, struct store_warm *out,
                             struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };
    char id[ID_SIZE];

    id_new(id);
    store_arg_text(&q, id);
    store_arg_text(&q, w->pool->account_id);
    store_arg_text(&q, w->pool->revision_id);
    store_arg_text(&q, w->pool->region);
    store_arg_int(&q, w->deadline_ms);
    enum sbx_code code = store_run_one(db, &S[WARM_ADD], &q, "member", &res, err);
    if (code != SBX_OK)
        return code;
    struct store_row r = { .res = res, .a = w->a };
    warm_row(&r, out);
    return SBX_OK;
}

static enum sbx_code add_tx(struct store_conn *db, void *arg, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct adding *w = arg;
    int may = 0;
    enum sbx_code code = store_run(db, &S[WARM_LOCK], NULL, &res, err);

    if (code == SBX_OK)
        code = room(db, w, &may, err);
    if (code != SBX_OK)
        return code;
    w->out = (struct store_warms){ 0 };
    if (may <= 0)
        return SBX_OK;
    w->out.rows = arena_zalloc(w->a, (size_t)may * sizeof(*w->out.rows));
    for (int i = 0; code == SBX_OK && i < may; i++) {
        code = add_one(db, w, &w->out.rows[i], err);
        w->out.count = (size_t)i + 1;
    }
    return code;
}

enum sbx_code store_warm_add(struct store_conn *db, const struct store_warm_pool *pool, int count,
                             int total_max, int64_t deadline_ms, struct arena *a,
                             struct store_warms *out, struct sbx_err *err)
{
    struct adding w = {
        .pool = pool, .count = count, .total_max = total_max, .deadline_ms = deadline_ms, .a = a
    };
    enum sbx_code code = store_tx(db, add_tx, &w, err);

    if (code == SBX_OK)
        *out = w.out;
    return code;
}

enum sbx_code store_warm_set(struct store_conn *db, const char *warm_id, enum store_warm_status to,
                             struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, warm_id);
    store_arg_text(&q, store_warm_status_name(to));
    enum sbx_code code = store_run_one(db, &S[WARM_SET], &q, "member", &res, err);
    return code == SBX_E_NOT_FOUND ? store_say(err, SBX_E_CHANGING, "the warm member was taken")
                                   : code;
}

enum sbx_code store_warm_drain(struct store_conn *db, const struct store_warm_pool *pool, int count,
                               int *drained, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, pool->revision_id);
    store_arg_text(&q, pool->region);
    store_arg_int(&q, count);
    enum sbx_code code = store_run(db, &S[WARM_DRAIN], &q, &res, err);
    if (code == SBX_OK && drained)
        *drained = store_changed(res);
    return code;
}

enum sbx_code store_warm_claim_drain(struct store_conn *db, const char *owner, int64_t lease_ms,
                                     int limit, struct arena *a, struct store_warms *out,
                                     struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, owner);
    store_arg_int(&q, lease_ms);
    store_arg_int(&q, limit < STORE_LIST_MAX ? limit : STORE_LIST_MAX);
    enum sbx_code code = store_run(db, &S[WARM_CLAIM_DRAIN], &q, &res, err);
    if (code == SBX_OK)
        warm_rows(res, (size_t)PQntuples(res), a, out);
    return code;
}

enum sbx_code store_warm_remove(struct store_conn *db, const char *warm_id, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, warm_id);
    return store_run(db, &S[WARM_REMOVE], &q, &res, err);
}

enum sbx_code store_warm_list(struct store_conn *db, const char *region, const char *after,
                              int limit, struct arena *a, struct store_warms *out,
                              struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };
    size_t count;
    bool more;

    store_arg_text(&q, region);
    enum sbx_code code = store_page(db, &S[WARM_LIST], &q, after, limit, &res, &count, &more, err);
    if (code == SBX_OK)
        warm_rows(res, count, a, out);
    return code;
}
