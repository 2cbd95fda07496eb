#include <string.h>

#include "api/cursor.h"
#include "api/handlers.h"
#include "api/render.h"
#include "base/str.h"
#include "domain/slug.h"
#include "domain/valid.h"

enum { ZCLOUDS_DEFAULT = 1 };

enum sbx_code api_template_save_shape(const json_t *args, struct sbx_err *err)
{
    if (json_get_str(args, "templateId", NULL) != NULL && json_get_str(args, "appId", NULL) != NULL)
        return err_field(err, "appId", "appId is given when a template is created, not later.");
    return SBX_OK;
}

enum sbx_code api_limit_held(struct api_call *c, const char *name, int max, int have,
                             const char *what, struct sbx_err *err)
{
    json_t *data;

    if (max == 0 || have < max)
        return SBX_OK;
    data = response_error_data(c->res);
    json_put_str(data, "limitName", name);
    json_put_int(data, "limit", max);
    return err_set(err, SBX_E_LIMIT_REACHED, "There are %d %s, as many as [limits] %s allows.",
                   have, what, name);
}

static enum sbx_code room_for_template(struct api_call *c, struct sbx_err *err)
{
    int max = c->api->cfg.account_templates, have = 0;

    if (max != 0 && store_template_count(c->db, c->account_id, max, &have, err) != SBX_OK)
        return err->code;
    return api_limit_held(c, "account_templates", max, have, "sandbox templates", err);
}

/* 1, 0, or -1 when the field was left out. */
static int tristate(const json_t *args, const char *name)
{
    const json_t *v = json_object_get(args, name);

    return v == NULL ? -1 : json_is_true(v);
}

enum sbx_code api_template_save(struct api_call *c, struct sbx_err *err)
{
    char slug[SLUG_SIZE];
    const struct store_template_save in = {
        .account_id = c->account_id,
        .template_id = json_get_str(c->args, "templateId", NULL),
        .app_id = json_get_str(c->args, "appId", NULL),
        .name = json_get_str(c->args, "name", NULL),
        .slug_base = slug,
        .description = json_get_str(c->args, "description", NULL),
        .enabled = tristate(c->args, "enabled"),
        .deprecated = tristate(c->args, "deprecated"),
    };
    struct store_template row;
    bool created = false;

    slug_from_name(in.name, slug);
    c->object_kind = "template";
    c->object_id = in.template_id;
    if ((in.template_id == NULL && room_for_template(c, err) != SBX_OK) ||
        store_template_save(c->db, &in, c->a, &row, &created, err) != SBX_OK)
        return err->code;
    c->object_id = row.template_id;
    response_ok(c->res, created ? 201 : 200,
                json_pack("{s:o}", "template", api_render_template(&row)));
    return SBX_OK;
}

enum sbx_code api_template_get(struct api_call *c, struct sbx_err *err)
{
    struct store_template row;
    struct store_revision revision = { 0 };
    json_t *body;

    if (store_template_get(c->db, c->account_id, json_get_str(c->args, "templateId", ""), c->a,
                           &row, &revision, err) != SBX_OK)
        return err->code;
    body = json_pack("{s:o}", "template", api_render_template(&row));
    json_put_new(body, "currentRevision",
                 revision.revision_id != NULL ? api_render_revision(&revision) : json_null());
    response_ok(c->res, 200, body);
    return SBX_OK;
}

enum sbx_code api_template_list(struct api_call *c, struct sbx_err *err)
{
    const char *text = json_get_str(c->args, "cursor", NULL);
    int64_t limit = json_get_int(c->args, "limit", STORE_LIST_MAX);
    struct store_template_filter filter = {
        .account_id = c->account_id,
        .app_id = json_get_str(c->args, "appId", NULL),
        .include_deprecated = json_get_bool(c->args, "includeDeprecated", false),
        .limit = (int)(limit < STORE_LIST_MAX ? limit : STORE_LIST_MAX),
    };
    struct store_templates rows = { 0 };
    struct api_cursor cursor;
    json_t *list, *body;

    if (text != NULL && api_cursor_parse(text, &cursor)) {
        filter.before_ms = cursor.created_ms;
        filter.before_id = cursor.id;
    }
    if (store_template_list(c->db, &filter, c->a, &rows, err) != SBX_OK)
        return err->code;
    list = json_array();
    for (size_t i = 0; i < rows.count; i++)
        (void)json_array_append_new(list, api_render_template(&rows.rows[i]));
    body = json_pack("{s:s, s:o}", "accountId", c->account_id, "templates", list);
    if (rows.more) {
        const struct store_template *last = &rows.rows[rows.count - 1];

        cursor.created_ms = last->created_at_ms;
        (void)str_copy(cursor.id, sizeof(cursor.id), last->template_id);
        json_put_str(body, "nextCursor", api_cursor_text(c->a, &cursor));
    }
    response_ok(c->res, 200, body);
    return SBX_OK;
}

/* --- revisions --------------------------------------------------------- */

static enum sandbox_persistence mode_of(const json_t *args)
{
    enum sandbox_persistence mode = SANDBOX_PERSISTENCE_EPHEMERAL;
    const char *text = json_get_str(args, "persistenceMode", NULL);

    if (text != NULL)
        (void)sandbox_persistence_parse(text, &mode); /* the schema's enum */
    return mode;
}

enum sbx_code api_revision_shape(const json_t *args, struct sbx_err *err)
{
    if (json_object_get(args, "warmPool") != NULL && sandbox_persistence_has_volume(mode_of(args)))
        return err_field(err, "warmPool",
                         "persistence modes with a volume are not available on warm pools");
    return SBX_OK;
}

static const char *text_of(struct api_call *c, const char *name)
{
    const json_t *v = json_object_get(c->args, name);

    return v == NULL ? NULL : api_json_text(c->a, v);
}

static int bounded(struct api_call *c, const char *name, enum api_bound bound)
{
    return (int)json_get_int(c->args, name, c->api->cfg.bounds.of[bound].dflt);
}

static const char *regions_of(struct api_call *c, const json_t *pool)
{
    size_t count = 0;
    const char **names = json_strings(c->a, json_object_get(pool, "regions"), &count);
    const char *joined = NULL;

    for (size_t i = 0; i < count; i++)
        joined = i == 0 ? names[0] : arena_printf(c->a, "%s,%s", joined, names[i]);
    return joined;
}

static void fill(struct api_call *c, struct store_revision *in)
{
    const json_t *pool = json_object_get(c->args, "warmPool");
    json_t *resources;

    in->z_clouds = (int)json_get_int(c->args, "zClouds", ZCLOUDS_DEFAULT);
    resources = api_render_resources(resources_of(in->z_clouds));
    in->resources = api_json_text(c->a, resources);
    json_decref(resources);
    in->template_id = json_get_str(c->args, "templateId", NULL);
    in->account_id = c->account_id;
    in->image_digest = json_get_str(c->args, "imageDigest", NULL);
    in->image_ref = json_get_str(c->args, "imageRef", NULL);
    in->command = text_of(c, "command");
    in->working_dir = json_get_str(c->args, "workingDir", NULL);
    in->ports = text_of(c, "ports");
    in->persistence = mode_of(c->args);
    in->volume_size_mb = (int)json_get_int(c->args, "volumeSizeMb", API_VOLUME_MB_DEFAULT);
    in->mount_path = json_get_str(c->args, "mountPath", NULL);
    in->snapshot_exclude = text_of(c, "snapshotExclude");
    in->snapshot_max_mb = (int)json_get_int(c->args, "snapshotMaxMb", API_SNAPSHOT_MB_DEFAULT);
    in->idle_timeout_s = bounded(c, "idleTimeoutSeconds", API_BOUND_IDLE);
    in->hard_lifetime_s = bounded(c, "hardLifetimeSeconds", API_BOUND_HARD);
    in->suspended_retention_s = bounded(c, "suspendedRetentionSeconds", API_BOUND_RETENTION);
    in->network_control = text_of(c, "networkControl");
    in->warm_pool = pool != NULL;
    in->warm_desired = (int)json_get_int(pool, "desired", 0);
    in->warm_min = (int)json_get_int(pool, "min", 0);
    in->warm_max = (int)json_get_int(pool, "max", 0);
    in->warm_regions = regions_of(c, pool);
}

static bool is_in(const char *name, const struct store_regions *regions)
{
    for (size_t i = 0; i < regions->count; i++) {
        if (strcmp(regions->rows[i].region, name) == 0)
            return true;
    }
    return false;
}

/* A pool's region may be opened to the account later; until then nothing is kept there. */
static void warn_of_regions(struct api_call *c, const struct store_regions *usable, json_t *list)
{
    size_t count = 0;
    const json_t *pool = json_object_get(c->args, "warmPool");
    const char **names = json_strings(c->a, json_object_get(pool, "regions"), &count);

    for (size_t i = 0; i < count; i++) {
        if (!is_in(names[i], usable))
            (void)json_array_append_new(
                list, json_sprintf("warmPool names %s, a region that this account cannot use now.",
                                   names[i]));
    }
}

/* What is allowed but will surprise. */
static json_t *warnings(struct api_call *c, const struct store_revision *r,
                        const struct store_regions *usable)
{
    bool pauses = sandbox_persistence_has_volume(r->persistence) ||
                  json_object_get(c->args, "suspendedRetentionSeconds") != NULL;
    json_t *list = json_array();

    if (pauses && r->suspended_retention_s > r->hard_lifetime_s)
        (void)json_array_append_new(
            list, json_string("hardLifetimeSeconds ends a suspended sandbox before "
                              "suspendedRetentionSeconds does."));
    if (r->idle_timeout_s >= r->hard_lifetime_s)
        (void)json_array_append_new(
            list, json_string("idleTimeoutSeconds never acts: hardLifetimeSeconds is not longer."));
    if (r->warm_pool && r->warm_desired > 0 && r->warm_regions == NULL)
        (void)json_array_append_new(
            list, json_string("warmPool names no regions, so nothing is kept warm."));
    warn_of_regions(c, usable, list);
    if (json_array_size(list) > 0)
        return list;
    json_decref(list);
    return NULL;
}

enum sbx_code api_revision_create(struct api_call *c, struct sbx_err *err)
{
    struct store_revision in = { 0 }, row;
    struct store_regions usable = { 0 };
    struct store_template of;
    json_t *body;

    c->object_kind = "template";
    c->object_id = json_get_str(c->args, "templateId", NULL);
    fill(c, &in);
    if (store_template_get(c->db, c->account_id, in.template_id, c->a, &of, NULL, err) != SBX_OK ||
        api_limit_held(c, "template_revisions", c->api->cfg.template_revisions, of.current_revision,
                       "revisions of this template", err) != SBX_OK)
        return err->code;
    if ((in.warm_regions != NULL &&
         store_region_list_of(c->db, c->account_id, c->a, &usable, err) != SBX_OK) ||
        store_revision_create(c->db, &in, c->a, &row, err) != SBX_OK)
        return err->code;
    body = json_pack("{s:o}", "revision", api_render_revision(&row));
    json_put_new(body, "warnings", warnings(c, &row, &usable));
    response_ok(c->res, 201, body);
    return SBX_OK;
}
