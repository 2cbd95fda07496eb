#include "store/volumes.h"

#include <string.h>

#include "base/str.h"
#include "store/db.h"

#define VOLUME_COLUMNS                                                                             \
    "v.volume_name, v.account_id, v.region, v.status = 'PENDING_PURGE', v.size_mb, " STORE_MS(     \
        "v.created_at") ", " STORE_MS("v.updated_at") ", " STORE_MS("v.purge_at")

enum {
    VOLUME_LIST,
    VOLUME_GET,
    VOLUME_COUNT,
    VOLUME_CREATE,
    VOLUME_REMOVE,
    VOLUME_RESTORE,
    VOLUME_CLAIM_PURGE,
    VOLUME_PURGED,
    VOLUME_HELD,
};

const struct store_stmt STORE_STMT_VOLUMES[] = {
    [VOLUME_LIST] = { "volume_list",
                      "SELECT " VOLUME_COLUMNS " FROM sandboxd.volumes v WHERE v.account_id = $1 "
                      "AND ($2::text IS NULL OR v.region = $2) "
                      "ORDER BY v.region, v.volume_name LIMIT $3",
                      3, true },
    [VOLUME_GET] = { "volume_get",
                     "SELECT " VOLUME_COLUMNS " FROM sandboxd.volumes v WHERE v.account_id = $1 "
                     "AND ($2::text IS NULL OR v.region = $2) AND v.volume_name = $3 "
                     "ORDER BY v.region LIMIT 1",
                     3, true },
    [VOLUME_COUNT] = { "volume_count",
                       "SELECT count(*) FROM (SELECT FROM sandboxd.volumes v "
                       "WHERE v.account_id = $1 LIMIT $2) x",
                       2, true },
    /* One row always: what stands in the way, or the volume that was made. */
    [VOLUME_CREATE] = { "volume_create",
                        "WITH may AS (SELECT EXISTS (SELECT FROM sandboxd.regions r "
                        "WHERE r.region = $2) AS known, "
                        "EXISTS (SELECT FROM sandboxd.region_access x WHERE x.account_id = $1 "
                        "AND x.region = $2) AS granted, "
                        "EXISTS (SELECT FROM sandboxd.storage_backends b WHERE b.account_id = $1 "
                        "AND b.region = $2) AS backed), "
                        "made AS (INSERT INTO sandboxd.volumes AS v (account_id, region, "
                        "volume_name, size_mb) SELECT $1, $2, $3, $4::integer FROM may "
                        "WHERE may.known AND may.granted AND may.backed "
                        "ON CONFLICT (account_id, region, volume_name) DO NOTHING RETURNING v.*) "
                        "SELECT may.known, may.granted, may.backed, " VOLUME_COLUMNS
                        " FROM may LEFT JOIN made v ON true",
                        4, false },
    [VOLUME_REMOVE] = { "volume_remove",
                        "SELECT c.outcome, " VOLUME_COLUMNS
                        " FROM sandboxd.volume_remove($1, $2, $3, $4) c, "
                        "LATERAL (SELECT (c.volume).*) v",
                        4, true },
    [VOLUME_RESTORE] = { "volume_restore",
                         "UPDATE sandboxd.volumes v SET status = 'ACTIVE', purge_at = NULL, "
                         "updated_at = now(), lease_owner = NULL, lease_until = NULL "
                         "WHERE v.account_id = $1 AND v.region = $2 AND v.volume_name = $3 "
                         "AND NOT v.purging AND (v.purge_at IS NULL OR v.purge_at > now()) "
                         "RETURNING " VOLUME_COLUMNS,
                         3, true },
    [VOLUME_CLAIM_PURGE] = { "volume_claim_purge",
                             "WITH due AS (SELECT d.account_id, d.region, d.volume_name "
                             "FROM sandboxd.volumes d WHERE d.purge_at <= now() "
                             "AND (d.lease_until IS NULL OR d.lease_until <= now()) "
                             "ORDER BY d.purge_at LIMIT $3 FOR UPDATE SKIP LOCKED) "
                             "UPDATE sandboxd.volumes v SET purging = true, lease_owner = $1, "
                             "lease_until = now() + sandboxd.span($2::bigint) FROM due "
                             "WHERE v.account_id = due.account_id AND v.region = due.region "
                             "AND v.volume_name = due.volume_name RETURNING " VOLUME_COLUMNS,
                             3, false },
    [VOLUME_PURGED] = { "volume_purged",
                        "DELETE FROM sandboxd.volumes v WHERE v.account_id = $1 "
                        "AND v.region = $2 AND v.volume_name = $3 AND v.purging",
                        3, true },
    [VOLUME_HELD] = { "volume_held",
                      "SELECT EXISTS (SELECT FROM sandboxd.sandboxes s WHERE s.account_id = $1 "
                      "AND s.region = $2 AND s.volume_name = $3 AND NOT s.ended "
                      "AND s.holds_compute)",
                      3, true },
};
const size_t STORE_STMT_VOLUMES_COUNT = COUNT_OF(STORE_STMT_VOLUMES);

static const struct store_stmt *const S = STORE_STMT_VOLUMES;

static void volume_row(struct store_row *r, void *to)
{
    struct store_volume *out = to;

    out->volume_name = store_row_text(r);
    out->account_id = store_row_text(r);
    out->region = store_row_text(r);
    out->pending_purge = store_row_bool(r);
    out->size_mb = store_row_int32(r);
    out->created_at_ms = store_row_int(r);
    out->updated_at_ms = store_row_int(r);
    out->purge_at_ms = store_row_int(r);
}

static void volume_rows(const PGresult *res, struct arena *a, struct store_volumes *out)
{
    out->count = (size_t)PQntuples(res);
    out->rows = store_rows(res, out->count, a, volume_row, sizeof(*out->rows));
}

static void volume_key(struct store_args *q, const char *account_id, const char *region,
                       const char *volume_name)
{
    store_arg_text(q, account_id);
    store_arg_text(q, region);
    store_arg_text(q, volume_name);
}

enum sbx_code store_volume_list(struct store_conn *db, const char *account_id, const char *region,
                                struct arena *a, struct store_volumes *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, account_id);
    store_arg_text(&q, region);
    store_arg_int(&q, STORE_LIST_MAX);
    enum sbx_code code = store_run(db, &S[VOLUME_LIST], &q, &res, err);
    if (code == SBX_OK)
        volume_rows(res, a, out);
    return code;
}

enum sbx_code store_volume_get(struct store_conn *db, const char *account_id, const char *region,
                               const char *volume_name, struct arena *a, struct store_volume *out,
                               struct sbx_err *err)
{
    struct store_args q = { 0 };

    volume_key(&q, account_id, region, volume_name);
    return store_one(db, &S[VOLUME_GET], &q, "Shared volume", a, volume_row, out, err);
}

enum sbx_code store_volume_count(struct store_conn *db, const char *account_id, int up_to, int *out,
                                 struct sbx_err *err)
{
    return store_count(db, &S[VOLUME_COUNT], account_id, up_to, out, err);
}

enum sbx_code store_volume_create(struct store_conn *db, const char *account_id, const char *region,
                                  const char *volume_name, int size_mb, struct arena *a,
                                  struct store_volume *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    volume_key(&q, account_id, region, volume_name);
    store_arg_int(&q, size_mb);
    enum sbx_code code = store_run_one(db, &S[VOLUME_CREATE], &q, "volume", &res, err);
    if (code != SBX_OK)
        return code;
    struct store_row r = { .res = res, .a = a };
    bool known = store_row_bool(&r), granted = store_row_bool(&r), backed = store_row_bool(&r);
    if (!known) {
        code = err_set(err, SBX_E_REGION_UNKNOWN, "Unknown region");
        (void)str_copy(err->field, sizeof(err->field), "region");
        return code;
    }
    if (!granted)
        return err_set(err, SBX_E_REGION_FORBIDDEN, "The account cannot use this region");
    if (!backed)
        return err_set(err, SBX_E_NO_STORAGE_BACKEND,
                       "The account has no Object Storage backend in this region");
    struct store_volume v = { 0 };
    volume_row(&r, &v);
    if (!v.volume_name)
        return err_set(err, SBX_E_VOLUME_EXISTS,
                       "A shared volume of this name exists in the region");
    *out = v;
    return SBX_OK;
}

enum sbx_code store_volume_remove(struct store_conn *db, const char *account_id, const char *region,
                                  const char *volume_name, int64_t purge_delay_ms, struct arena *a,
                                  struct store_volume *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    volume_key(&q, account_id, region, volume_name);
    store_arg_int(&q, purge_delay_ms);
    enum sbx_code code = store_run_one(db, &S[VOLUME_REMOVE], &q, "outcome", &res, err);
    if (code != SBX_OK)
        return code;
    struct store_row r = { .res = res, .a = a };
    const char *outcome = store_row_text(&r);
    if (strcmp(outcome, "NOT_FOUND") == 0)
        return err_set(err, SBX_E_NOT_FOUND, "Shared volume not found");
    if (strcmp(outcome, "VOLUME_IN_USE") == 0)
        return err_set(err, SBX_E_VOLUME_IN_USE, "A sandbox uses the shared volume");
    volume_row(&r, out);
    return SBX_OK;
}

enum sbx_code store_volume_restore(struct store_conn *db, const char *account_id,
                                   const char *region, const char *volume_name, struct arena *a,
                                   struct store_volume *out, struct sbx_err *err)
{
    struct store_args q = { 0 };

    volume_key(&q, account_id, region, volume_name);
    enum sbx_code code =
        store_one(db, &S[VOLUME_RESTORE], &q, "Shared volume", a, volume_row, out, err);
    if (code == SBX_E_NOT_FOUND) {
        struct store_volume there;

        *err = (struct sbx_err){ 0 };
        code = store_volume_get(db, account_id, region, volume_name, a, &there, err);
        return code == SBX_OK ? err_set(err, SBX_E_CONFLICT, "The volume's purge has begun") : code;
    }
    return code;
}

enum sbx_code store_volume_claim_purge(struct store_conn *db, const char *owner, int64_t lease_ms,
                                       int limit, struct arena *a, struct store_volumes *out,
                                       struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, owner);
    store_arg_int(&q, lease_ms);
    store_arg_int(&q, limit < STORE_LIST_MAX ? limit : STORE_LIST_MAX);
    enum sbx_code code = store_run(db, &S[VOLUME_CLAIM_PURGE], &q, &res, err);
    if (code == SBX_OK)
        volume_rows(res, a, out);
    return code;
}

enum sbx_code store_volume_purged(struct store_conn *db, const char *account_id, const char *region,
                                  const char *volume_name, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    volume_key(&q, account_id, region, volume_name);
    return store_run(db, &S[VOLUME_PURGED], &q, &res, err);
}

enum sbx_code store_volume_held(struct store_conn *db, const char *account_id, const char *region,
                                const char *volume_name, bool *held, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    volume_key(&q, account_id, region, volume_name);
    enum sbx_code code = store_run_one(db, &S[VOLUME_HELD], &q, "volume", &res, err);
    if (code == SBX_OK) {
        struct store_row r = { .res = res };

        *held = store_row_bool(&r);
    }
    return code;
}
