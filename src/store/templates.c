#include "store/templates.h"

#include <string.h>

#include "base/id.h"
#include "store/db.h"

#define TEMPLATE_COLUMNS                                                                           \
    "t.template_id, t.account_id, t.app_id, t.name, t.slug, t.description, t.enabled, " STORE_MS(  \
        "t.deprecated_at") ", t.current_revision, " STORE_MS("t.created_at") ", " STORE_MS("t."    \
                                                                                           "updat" \
                                                                                           "ed_"   \
                                                                                           "at")
#define REVISION_COLUMNS                                                                           \
    "r.revision_id, r.template_id, r.account_id, r.revision, r.image_digest, r.image_ref, "        \
    "r.command, r.working_dir, r.ports, r.resources, r.z_clouds, r.persistence_mode, "             \
    "r.volume_size_mb, r.mount_path, r.snapshot_exclude, r.snapshot_max_mb, r.idle_timeout_s, "    \
    "r.hard_lifetime_s, r.suspended_retention_s, r.warm_pool, r.warm_desired, r.warm_min, "        \
    "r.warm_max, nullif(array_to_string(r.warm_regions, ','), ''), r.network_control, " STORE_MS(  \
        "r.created_at")

enum {
    TEMPLATE_CREATE,
    TEMPLATE_UPDATE,
    TEMPLATE_GET,
    TEMPLATE_LIST,
    TEMPLATE_COUNT,
    REVISION_CREATE,
    REVISION_GET,
};

const struct store_stmt STORE_STMT_TEMPLATES[] = {
    [TEMPLATE_CREATE] = { "template_create",
                          "SELECT " TEMPLATE_COLUMNS
                          " FROM sandboxd.template_create($1, $2, $3, $4, $5, $6, $7, $8) t",
                          8, false },
    [TEMPLATE_UPDATE] = { "template_update",
                          "UPDATE sandboxd.templates t SET name = coalesce($3, t.name), "
                          "description = coalesce($4, t.description), "
                          "enabled = coalesce($5, t.enabled), "
                          "deprecated_at = CASE $6::boolean WHEN true "
                          "THEN coalesce(t.deprecated_at, now()) WHEN false THEN NULL "
                          "ELSE t.deprecated_at END, "
                          "updated_at = date_trunc('milliseconds', now()) "
                          "WHERE t.account_id = $1 AND t.template_id = $2 "
                          "RETURNING " TEMPLATE_COLUMNS,
                          6, true },
    [TEMPLATE_GET] = { "template_get",
                       "SELECT " TEMPLATE_COLUMNS ", " REVISION_COLUMNS
                       " FROM sandboxd.templates t LEFT JOIN sandboxd.revisions r "
                       "ON r.template_id = t.template_id AND r.revision = t.current_revision "
                       "WHERE t.account_id = $1 AND t.template_id = $2",
                       2, true },
    [TEMPLATE_LIST] = { "template_list",
                        "SELECT " TEMPLATE_COLUMNS " FROM sandboxd.templates t "
                        "WHERE t.account_id = $1 AND ($2::text IS NULL OR t.app_id = $2) "
                        "AND ($3::boolean OR t.deprecated_at IS NULL) "
                        "AND (t.created_at, t.template_id) < "
                        "(coalesce(to_timestamp($4::bigint / 1000.0), 'infinity'), "
                        "coalesce($5::text, '')) "
                        "ORDER BY t.created_at DESC, t.template_id DESC LIMIT $6",
                        6, true },
    [TEMPLATE_COUNT] = { "template_count",
                         "SELECT count(*) FROM (SELECT FROM sandboxd.templates t "
                         "WHERE t.account_id = $1 LIMIT $2) x",
                         2, true },
    /* The number is taken and the row written by one statement, under the template's row lock: no
     * number is taken twice, and one whose insert fails is given back. */
    [REVISION_CREATE] = { "revision_create",
                          "WITH t AS (UPDATE sandboxd.templates t "
                          "SET current_revision = t.current_revision + 1, "
                          "updated_at = date_trunc('milliseconds', now()) "
                          "WHERE t.account_id = $2 AND t.template_id = $3 "
                          "RETURNING t.account_id, t.template_id, t.current_revision) "
                          "INSERT INTO sandboxd.revisions AS r (revision_id, template_id, "
                          "account_id, revision, image_digest, image_ref, command, working_dir, "
                          "ports, resources, z_clouds, persistence_mode, volume_size_mb, "
                          "mount_path, snapshot_exclude, snapshot_max_mb, idle_timeout_s, "
                          "hard_lifetime_s, suspended_retention_s, warm_pool, warm_desired, "
                          "warm_min, warm_max, warm_regions, network_control) "
                          "SELECT $1, t.template_id, t.account_id, t.current_revision, $4, $5, "
                          "$6::jsonb, $7, $8::jsonb, $9::jsonb, $10::integer, $11, $12::integer, "
                          "$13, $14::jsonb, $15::integer, $16::integer, $17::integer, "
                          "$18::integer, $19::boolean, $20::integer, $21::integer, "
                          "$22::integer, coalesce(string_to_array($23, ','), '{}'), $24::jsonb "
                          "FROM t RETURNING " REVISION_COLUMNS,
                          24, false },
    [REVISION_GET] = { "revision_get",
                       "SELECT " REVISION_COLUMNS
                       " FROM sandboxd.revisions r WHERE r.revision_id = $1",
                       1, true },
};
const size_t STORE_STMT_TEMPLATES_COUNT = COUNT_OF(STORE_STMT_TEMPLATES);

static const struct store_stmt *const S = STORE_STMT_TEMPLATES;

static void template_row(struct store_row *r, void *to)
{
    struct store_template *out = to;

    out->template_id = store_row_text(r);
    out->account_id = store_row_text(r);
    out->app_id = store_row_text(r);
    out->name = store_row_text(r);
    out->slug = store_row_text(r);
    out->description = store_row_text(r);
    out->enabled = store_row_bool(r);
    out->deprecated_at_ms = store_row_int(r);
    out->current_revision = store_row_int32(r);
    out->created_at_ms = store_row_int(r);
    out->updated_at_ms = store_row_int(r);
}

static void revision_row(struct store_row *r, void *to)
{
    struct store_revision *out = to;

    *out = (struct store_revision){ 0 };
    out->revision_id = store_row_text(r);
    out->template_id = store_row_text(r);
    out->account_id = store_row_text(r);
    out->revision = store_row_int32(r);
    out->image_digest = store_row_text(r);
    out->image_ref = store_row_text(r);
    out->command = store_row_text(r);
    out->working_dir = store_row_text(r);
    out->ports = store_row_text(r);
    out->resources = store_row_text(r);
    out->z_clouds = store_row_int32(r);
    const char *mode = store_row_text(r);
    if (mode)
        (void)sandbox_persistence_parse(mode, &out->persistence);
    out->volume_size_mb = store_row_int32(r);
    out->mount_path = store_row_text(r);
    out->snapshot_exclude = store_row_text(r);
    out->snapshot_max_mb = store_row_int32(r);
    out->idle_timeout_s = store_row_int32(r);
    out->hard_lifetime_s = store_row_int32(r);
    out->suspended_retention_s = store_row_int32(r);
    out->warm_pool = store_row_bool(r);
    out->warm_desired = store_row_int32(r);
    out->warm_min = store_row_int32(r);
    out->warm_max = store_row_int32(r);
    out->warm_regions = store_row_text(r);
    out->network_control = store_row_text(r);
    out->created_at_ms = store_row_int(r);
}

/* 1, 0, or -1 for null */
static void arg_choice(struct store_args *q, int choice)
{
    if (choice < 0)
        store_arg_text(q, NULL);
    else
        store_arg_bool(q, choice == 1);
}

static enum sbx_code template_create(struct store_conn *db, const struct store_template_save *in,
                                     PGresult **res, struct sbx_err *err)
{
    struct store_args q = { 0 };
    char id[ID_SIZE];

    id_new(id);
    store_arg_text(&q, id);
    store_arg_text(&q, in->account_id);
    store_arg_text(&q, in->app_id);
    store_arg_text(&q, in->name);
    store_arg_text(&q, in->slug_base);
    store_arg_text(&q, in->description);
    store_arg_bool(&q, in->enabled != 0);
    store_arg_bool(&q, in->deprecated == 1);
    enum sbx_code code = store_run_one(db, &S[TEMPLATE_CREATE], &q, "app", res, err);
    if (code == SBX_E_NOT_FOUND)
        return store_say(err, code, "App not found");
    return code;
}

static enum sbx_code template_update(struct store_conn *db, const struct store_template_save *in,
                                     PGresult **res, struct sbx_err *err)
{
    struct store_args q = { 0 };

    store_arg_text(&q, in->account_id);
    store_arg_text(&q, in->template_id);
    store_arg_text(&q, in->name);
    store_arg_text(&q, in->description);
    arg_choice(&q, in->enabled);
    arg_choice(&q, in->deprecated);
    return store_run_one(db, &S[TEMPLATE_UPDATE], &q, "Sandbox template", res, err);
}

enum sbx_code store_template_save(struct store_conn *db, const struct store_template_save *in,
                                  struct arena *a, struct store_template *out, bool *created,
                                  struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    enum sbx_code code =
        in->template_id ? template_update(db, in, &res, err) : template_create(db, in, &res, err);

    if (code != SBX_OK)
        return code;
    struct store_row r = { .res = res, .a = a };
    template_row(&r, out);
    *created = !in->template_id;
    return SBX_OK;
}

enum sbx_code store_template_get(struct store_conn *db, const char *account_id,
                                 const char *template_id, struct arena *a,
                                 struct store_template *out, struct store_revision *revision,
                                 struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, account_id);
    store_arg_text(&q, template_id);
    enum sbx_code code = store_run_one(db, &S[TEMPLATE_GET], &q, "Sandbox template", &res, err);
    if (code != SBX_OK)
        return code;
    struct store_row r = { .res = res, .a = a };
    template_row(&r, out);
    if (revision)
        revision_row(&r, revision);
    return SBX_OK;
}

enum sbx_code store_template_list(struct store_conn *db, const struct store_template_filter *f,
                                  struct arena *a, struct store_templates *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, f->account_id);
    store_arg_text(&q, f->app_id);
    store_arg_bool(&q, f->include_deprecated);
    store_arg_null_int(&q, f->before_id ? f->before_ms : 0);
    enum sbx_code code = store_page(db, &S[TEMPLATE_LIST], &q, f->before_id, f->limit, &res,
                                    &out->count, &out->more, err);
    if (code != SBX_OK)
        return code;
    out->rows = store_rows(res, out->count, a, template_row, sizeof(*out->rows));
    return SBX_OK;
}

enum sbx_code store_template_count(struct store_conn *db, const char *account_id, int up_to,
                                   int *out, struct sbx_err *err)
{
    return store_count(db, &S[TEMPLATE_COUNT], account_id, up_to, out, err);
}

enum sbx_code store_revision_create(struct store_conn *db, const struct store_revision *in,
                                    struct arena *a, struct store_revision *out,
                                    struct sbx_err *err)
{
    struct store_args q = { 0 };
    char id[ID_SIZE];

    id_new(id);
    store_arg_text(&q, id);
    store_arg_text(&q, in->account_id);
    store_arg_text(&q, in->template_id);
    store_arg_text(&q, in->image_digest);
    store_arg_text(&q, in->image_ref);
    store_arg_text(&q, in->command);
    store_arg_text(&q, in->working_dir);
    store_arg_text(&q, in->ports);
    store_arg_text(&q, in->resources);
    store_arg_int(&q, in->z_clouds);
    store_arg_text(&q, sandbox_persistence_name(in->persistence));
    store_arg_int(&q, in->volume_size_mb);
    store_arg_text(&q, in->mount_path);
    store_arg_text(&q, in->snapshot_exclude);
    store_arg_int(&q, in->snapshot_max_mb);
    store_arg_int(&q, in->idle_timeout_s);
    store_arg_int(&q, in->hard_lifetime_s);
    store_arg_int(&q, in->suspended_retention_s);
    store_arg_bool(&q, in->warm_pool);
    store_arg_int(&q, in->warm_desired);
    store_arg_int(&q, in->warm_min);
    store_arg_int(&q, in->warm_max);
    store_arg_text(&q, in->warm_regions);
    store_arg_text(&q, in->network_control);
    return store_one(db, &S[REVISION_CREATE], &q, "Sandbox template", a, revision_row, out, err);
}

enum sbx_code store_revision_get(struct store_conn *db, const char *revision_id, struct arena *a,
                                 struct store_revision *out, struct sbx_err *err)
{
    struct store_args q = { 0 };

    store_arg_text(&q, revision_id);
    return store_one(db, &S[REVISION_GET], &q, "revision", a, revision_row, out, err);
}
