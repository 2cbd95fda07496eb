#include "store/places.h"

#include "base/id.h"
#include "store/db.h"

#define REGION_COLUMNS                                                                             \
    "r.region, r.url, r.socket, r.secret, r.sandboxes, r.enabled, " STORE_MS("r.created_at")
#define BACKEND_COLUMNS                                                                            \
    "b.backend_id, b.account_id, b.region, b.kind, b.path, b.endpoint, b.bucket, b.prefix, "       \
    "b.s3_region, b.access_key, b.secret_key, " STORE_MS("b.created_at")
#define REGISTRY_COLUMNS                                                                           \
    "c.registry_id, c.account_id, c.host, c.username, c.password, " STORE_MS("c.created_at")
#define NOTIFY_REGION "n AS (SELECT pg_notify('sandboxd_config', 'region')) "

enum {
    REGION_CREATE,
    REGION_GET,
    REGION_LIST,
    REGION_LIST_OF,
    REGION_UPDATE,
    REGION_ENABLE,
    REGION_ADDON,
    REGION_GRANT,
    REGION_DENY,
    BACKEND_CREATE,
    BACKEND_GET,
    BACKEND_LIST,
    REGISTRY_CREATE,
    REGISTRY_GET,
    REGISTRY_LIST,
    REGISTRY_REMOVE,
};

const struct store_stmt STORE_STMT_PLACES[] = {
    [REGION_CREATE] = { "region_create",
                        "WITH r AS (INSERT INTO sandboxd.regions AS r (region, url, socket, "
                        "secret, sandboxes, enabled) VALUES ($1, $2, $3, $4, $5, $6) "
                        "RETURNING r.*), " NOTIFY_REGION "SELECT " REGION_COLUMNS " FROM r, n",
                        6, false },
    [REGION_GET] = { "region_get",
                     "SELECT " REGION_COLUMNS " FROM sandboxd.regions r WHERE r.region = $1", 1,
                     true },
    [REGION_LIST] = { "region_list",
                      "SELECT " REGION_COLUMNS
                      " FROM sandboxd.regions r ORDER BY r.region LIMIT $1",
                      1, true },
    [REGION_LIST_OF] = { "region_list_of",
                         "SELECT " REGION_COLUMNS " FROM sandboxd.regions r "
                         "JOIN sandboxd.region_access x USING (region) WHERE x.account_id = $1 "
                         "ORDER BY r.region LIMIT $2",
                         2, true },
    [REGION_UPDATE] = { "region_update",
                        "WITH r AS (UPDATE sandboxd.regions r SET url = $2, socket = $3, "
                        "secret = $4 WHERE r.region = $1 RETURNING r.*), " NOTIFY_REGION
                        "SELECT " REGION_COLUMNS " FROM r, n",
                        4, true },
    [REGION_ENABLE] = { "region_enable",
                        "WITH r AS (UPDATE sandboxd.regions r SET enabled = $2 "
                        "WHERE r.region = $1 RETURNING r.*), " NOTIFY_REGION
                        "SELECT " REGION_COLUMNS " FROM r, n",
                        2, true },
    [REGION_ADDON] = { "region_addon",
                       "WITH r AS (UPDATE sandboxd.regions r SET sandboxes = $2 "
                       "WHERE r.region = $1 RETURNING r.*), " NOTIFY_REGION "SELECT " REGION_COLUMNS
                       " FROM r, n",
                       2, true },
    [REGION_GRANT] = { "region_grant",
                       "INSERT INTO sandboxd.region_access (account_id, region) VALUES ($1, $2) "
                       "ON CONFLICT (account_id, region) DO NOTHING",
                       2, true },
    [REGION_DENY] = { "region_deny",
                      "DELETE FROM sandboxd.region_access x WHERE x.account_id = $1 "
                      "AND x.region = $2",
                      2, true },
    [BACKEND_CREATE] = { "backend_create",
                         "INSERT INTO sandboxd.storage_backends AS b (backend_id, account_id, "
                         "region, kind, path, endpoint, bucket, prefix, s3_region, access_key, "
                         "secret_key) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) "
                         "ON CONFLICT (account_id, region) DO UPDATE SET "
                         "backend_id = excluded.backend_id, kind = excluded.kind, "
                         "path = excluded.path, endpoint = excluded.endpoint, "
                         "bucket = excluded.bucket, prefix = excluded.prefix, "
                         "s3_region = excluded.s3_region, access_key = excluded.access_key, "
                         "secret_key = excluded.secret_key RETURNING " BACKEND_COLUMNS,
                         11, true },
    [BACKEND_GET] = { "backend_get",
                      "SELECT " BACKEND_COLUMNS " FROM sandboxd.storage_backends b "
                      "WHERE b.account_id = $1 AND b.region = $2",
                      2, true },
    [BACKEND_LIST] = { "backend_list",
                       "SELECT " BACKEND_COLUMNS " FROM sandboxd.storage_backends b "
                       "WHERE b.account_id = $1 OR $1 IS NULL "
                       "ORDER BY b.account_id, b.region LIMIT $2",
                       2, true },
    [REGISTRY_CREATE] = { "registry_create",
                          "INSERT INTO sandboxd.registry_credentials AS c (registry_id, "
                          "account_id, host, username, password) VALUES ($1, $2, $3, $4, $5) "
                          "ON CONFLICT (account_id, host) DO UPDATE SET "
                          "registry_id = excluded.registry_id, username = excluded.username, "
                          "password = excluded.password RETURNING " REGISTRY_COLUMNS,
                          5, true },
    [REGISTRY_GET] = { "registry_get",
                       "SELECT " REGISTRY_COLUMNS " FROM sandboxd.registry_credentials c "
                       "WHERE c.account_id = $1 AND c.host = $2",
                       2, true },
    [REGISTRY_LIST] = { "registry_list",
                        "SELECT " REGISTRY_COLUMNS " FROM sandboxd.registry_credentials c "
                        "WHERE c.account_id = $1 ORDER BY c.host LIMIT $2",
                        2, true },
    [REGISTRY_REMOVE] = { "registry_remove",
                          "DELETE FROM sandboxd.registry_credentials c WHERE c.registry_id = $1 "
                          "RETURNING c.registry_id",
                          1, false },
};
const size_t STORE_STMT_PLACES_COUNT = COUNT_OF(STORE_STMT_PLACES);

static const struct store_stmt *const S = STORE_STMT_PLACES;

static void region_row(struct store_row *r, void *to)
{
    struct store_region *out = to;

    out->region = store_row_text(r);
    out->url = store_row_text(r);
    out->socket = store_row_text(r);
    out->secret = store_row_bytes(r);
    out->sandboxes = store_row_bool(r);
    out->enabled = store_row_bool(r);
    out->created_at_ms = store_row_int(r);
}

static void backend_row(struct store_row *r, void *to)
{
    struct store_backend *out = to;

    out->backend_id = store_row_text(r);
    out->account_id = store_row_text(r);
    out->region = store_row_text(r);
    out->kind = store_row_text(r);
    out->path = store_row_text(r);
    out->endpoint = store_row_text(r);
    out->bucket = store_row_text(r);
    out->prefix = store_row_text(r);
    out->s3_region = store_row_text(r);
    out->access_key = store_row_bytes(r);
    out->secret_key = store_row_bytes(r);
    out->created_at_ms = store_row_int(r);
}

static void registry_row(struct store_row *r, void *to)
{
    struct store_registry *out = to;

    out->registry_id = store_row_text(r);
    out->account_id = store_row_text(r);
    out->host = store_row_text(r);
    out->username = store_row_text(r);
    out->password = store_row_bytes(r);
    out->created_at_ms = store_row_int(r);
}

/* --- regions -------------------------------------------------------------- */

static enum sbx_code many_regions(struct store_conn *db, int stmt, const struct store_args *q,
                                  struct arena *a, struct store_regions *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    enum sbx_code code = store_run(db, &S[stmt], q, &res, err);

    if (code != SBX_OK)
        return code;
    out->count = (size_t)PQntuples(res);
    out->rows = store_rows(res, out->count, a, region_row, sizeof(*out->rows));
    return SBX_OK;
}

enum sbx_code store_region_create(struct store_conn *db, const struct store_region *in,
                                  struct arena *a, struct store_region *out, struct sbx_err *err)
{
    struct store_args q = { 0 };

    store_arg_text(&q, in->region);
    store_arg_text(&q, in->url);
    store_arg_text(&q, in->socket);
    store_arg_bytes(&q, in->secret.data, in->secret.len);
    store_arg_bool(&q, in->sandboxes);
    store_arg_bool(&q, in->enabled);
    enum sbx_code code = store_one(db, &S[REGION_CREATE], &q, "region", a, region_row, out, err);
    if (code == SBX_E_CONFLICT)
        return store_say(err, code, "a region of this name exists already");
    return code;
}

enum sbx_code store_region_update(struct store_conn *db, const struct store_region *in,
                                  struct arena *a, struct store_region *out, struct sbx_err *err)
{
    struct store_args q = { 0 };

    store_arg_text(&q, in->region);
    store_arg_text(&q, in->url);
    store_arg_text(&q, in->socket);
    store_arg_bytes(&q, in->secret.data, in->secret.len);
    return store_one(db, &S[REGION_UPDATE], &q, "region", a, region_row, out, err);
}

enum sbx_code store_region_get(struct store_conn *db, const char *region, struct arena *a,
                               struct store_region *out, struct sbx_err *err)
{
    struct store_args q = { 0 };

    store_arg_text(&q, region);
    return store_one(db, &S[REGION_GET], &q, "region", a, region_row, out, err);
}

enum sbx_code store_region_list(struct store_conn *db, struct arena *a, struct store_regions *out,
                                struct sbx_err *err)
{
    struct store_args q = { 0 };

    store_arg_int(&q, STORE_LIST_MAX);
    return many_regions(db, REGION_LIST, &q, a, out, err);
}

enum sbx_code store_region_list_of(struct store_conn *db, const char *account_id, struct arena *a,
                                   struct store_regions *out, struct sbx_err *err)
{
    struct store_args q = { 0 };

    store_arg_text(&q, account_id);
    store_arg_int(&q, STORE_LIST_MAX);
    return many_regions(db, REGION_LIST_OF, &q, a, out, err);
}

enum sbx_code store_region_enable(struct store_conn *db, const char *region, bool enabled,
                                  struct arena *a, struct store_region *out, struct sbx_err *err)
{
    struct store_args q = { 0 };

    store_arg_text(&q, region);
    store_arg_bool(&q, enabled);
    return store_one(db, &S[REGION_ENABLE], &q, "region", a, region_row, out, err);
}

enum sbx_code store_region_addon(struct store_conn *db, const char *region, bool sandboxes,
                                 struct arena *a, struct store_region *out, struct sbx_err *err)
{
    struct store_args q = { 0 };

    store_arg_text(&q, region);
    store_arg_bool(&q, sandboxes);
    return store_one(db, &S[REGION_ADDON], &q, "region", a, region_row, out, err);
}

static enum sbx_code access_change(struct store_conn *db, int stmt, const char *account_id,
                                   const char *region, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, account_id);
    store_arg_text(&q, region);
    enum sbx_code code = store_run(db, &S[stmt], &q, &res, err);
    if (code == SBX_E_NOT_FOUND)
        return store_say(err, code, "account or region not found");
    return code;
}

enum sbx_code store_region_grant(struct store_conn *db, const char *account_id, const char *region,
                                 struct sbx_err *err)
{
    return access_change(db, REGION_GRANT, account_id, region, err);
}

enum sbx_code store_region_deny(struct store_conn *db, const char *account_id, const char *region,
                                struct sbx_err *err)
{
    return access_change(db, REGION_DENY, account_id, region, err);
}

/* --- storage backends -------------------------------------------------------- */

enum sbx_code store_backend_create(struct store_conn *db, const struct store_backend *in,
                                   struct arena *a, struct store_backend *out, struct sbx_err *err)
{
    struct store_args q = { 0 };

    store_arg_text(&q, in->backend_id);
    store_arg_text(&q, in->account_id);
    store_arg_text(&q, in->region);
    store_arg_text(&q, in->kind);
    store_arg_text(&q, in->path);
    store_arg_text(&q, in->endpoint);
    store_arg_text(&q, in->bucket);
    store_arg_text(&q, in->prefix);
    store_arg_text(&q, in->s3_region);
    store_arg_bytes(&q, in->access_key.data, in->access_key.len);
    store_arg_bytes(&q, in->secret_key.data, in->secret_key.len);
    enum sbx_code code = store_one(db, &S[BACKEND_CREATE], &q, "backend", a, backend_row, out, err);
    if (code == SBX_E_NOT_FOUND)
        return store_say(err, code, "account or region not found");
    return code;
}

enum sbx_code store_backend_get(struct store_conn *db, const char *account_id, const char *region,
                                struct arena *a, struct store_backend *out, struct sbx_err *err)
{
    struct store_args q = { 0 };

    store_arg_text(&q, account_id);
    store_arg_text(&q, region);
    enum sbx_code code = store_one(db, &S[BACKEND_GET], &q, "backend", a, backend_row, out, err);
    if (code == SBX_E_NOT_FOUND)
        return store_say(err, SBX_E_NO_STORAGE_BACKEND,
                         "the account has no object storage backend in this region");
    return code;
}

enum sbx_code store_backend_list(struct store_conn *db, const char *account_id, int limit,
                                 struct arena *a, struct store_backends *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, account_id);
    store_arg_int(&q, limit);
    enum sbx_code code = store_run(db, &S[BACKEND_LIST], &q, &res, err);
    if (code != SBX_OK)
        return code;
    out->count = (size_t)PQntuples(res);
    out->rows = store_rows(res, out->count, a, backend_row, sizeof(*out->rows));
    return SBX_OK;
}

/* --- registry credentials ------------------------------------------------------ */

enum sbx_code store_registry_create(struct store_conn *db, const struct store_registry *in,
                                    struct arena *a, struct store_registry *out,
                                    struct sbx_err *err)
{
    struct store_args q = { 0 };

    store_arg_text(&q, in->registry_id);
    store_arg_text(&q, in->account_id);
    store_arg_text(&q, in->host);
    store_arg_text(&q, in->username);
    store_arg_bytes(&q, in->password.data, in->password.len);
    return store_one(db, &S[REGISTRY_CREATE], &q, "account", a, registry_row, out, err);
}

enum sbx_code store_registry_get(struct store_conn *db, const char *account_id, const char *host,
                                 struct arena *a, struct store_registry *out, struct sbx_err *err)
{
    struct store_args q = { 0 };

    store_arg_text(&q, account_id);
    store_arg_text(&q, host);
    return store_one(db, &S[REGISTRY_GET], &q, "registry", a, registry_row, out, err);
}

enum sbx_code store_registry_list(struct store_conn *db, const char *account_id, struct arena *a,
                                  struct store_registries *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, account_id);
    store_arg_int(&q, STORE_LIST_MAX);
    enum sbx_code code = store_run(db, &S[REGISTRY_LIST], &q, &res, err);
    if (code != SBX_OK)
        return code;
    out->count = (size_t)PQntuples(res);
    out->rows = store_rows(res, out->count, a, registry_row, sizeof(*out->rows));
    return SBX_OK;
}

enum sbx_code store_registry_remove(struct store_conn *db, const char *registry_id,
                                    struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, registry_id);
    return store_run_one(db, &S[REGISTRY_REMOVE], &q, "registry", &res, err);
}
