#include <string.h>

#include "api/handlers.h"
#include "api/render.h"
#include "base/id.h"

/* The operator's calls about where: regions, storage backends, registry credentials. */

static const char *text(const struct api_call *c, const char *name)
{
    return json_get_str(c->args, name, NULL);
}

static enum sbx_code answer(struct api_call *c, int status, const char *name, json_t *object)
{
    response_ok(c->res, status, json_pack("{s:o}", name, object));
    return SBX_OK;
}

/* Seals a field's text for one row; an absent field gives absent bytes. */
static enum sbx_code seal(struct api_call *c, const char *field, const char *column,
                          const char *row_id, struct store_bytes *out, struct sbx_err *err)
{
    const char *plain = text(c, field);
    SCOPED_BUF struct buf b = BUF_INIT(8192 + SEAL_OVERHEAD_MAX);

    if (plain == NULL)
        return SBX_OK;
    if (c->api->cfg.seal == NULL)
        return err_field(err, field,
                         "Secrets can be stored only when [seal] keys_file is set.");
    if (seal_close(c->api->cfg.seal, store_seal_context(c->a, column, row_id), plain, strlen(plain),
                   &b, err) != SBX_OK)
        return err->code;
    out->data = arena_memdup(c->a, b.data, b.len);
    out->len = b.len;
    return SBX_OK;
}

/* --- regions ----------------------------------------------------------- */

enum sbx_code api_region_shape(const json_t *args, struct sbx_err *err)
{
    bool url = json_object_get(args, "url") != NULL;

    if (url == (json_object_get(args, "socket") != NULL))
        return err_field(err, "url", "Give one of url and socket.");
    if (!url && json_object_get(args, "secret") != NULL)
        return err_field(err, "secret", "A socket needs no secret: the peer's uid decides.");
    return SBX_OK;
}

static enum sbx_code region_done(struct api_call *c, int status, const struct store_region *row)
{
    reconcile_reload_regions(c->api->reconcile);
    return answer(c, status, "region", api_render_region(row));
}

enum sbx_code api_region_create(struct api_call *c, struct sbx_err *err)
{
    struct store_region in = {
        .region = text(c, "name"),
        .url = text(c, "url"),
        .socket = text(c, "socket"),
        .sandboxes = json_get_bool(c->args, "sandboxes", true),
        .enabled = true,
    };
    struct store_region row;

    c->object_kind = "region";
    c->object_id = in.region;
    if (seal(c, "secret", "regions.secret", in.region, &in.secret, err) != SBX_OK ||
        store_region_create(c->db, &in, c->a, &row, err) != SBX_OK)
        return err->code;
    return region_done(c, 201, &row);
}

enum sbx_code api_region_update(struct api_call *c, struct sbx_err *err)
{
    struct store_region in = {
        .region = text(c, "region"),
        .url = text(c, "url"),
        .socket = text(c, "socket"),
    };
    struct store_region row;

    c->object_kind = "region";
    c->object_id = in.region;
    if (seal(c, "secret", "regions.secret", in.region, &in.secret, err) != SBX_OK ||
        store_region_update(c->db, &in, c->a, &row, err) != SBX_OK)
        return err->code;
    return region_done(c, 200, &row);
}

enum sbx_code api_region_list(struct api_call *c, struct sbx_err *err)
{
    struct store_regions rows;
    json_t *list;

    if (store_region_list(c->db, c->a, &rows, err) != SBX_OK)
        return err->code;
    list = json_array();
    for (size_t i = 0; i < rows.count; i++)
        (void)json_array_append_new(list, api_render_region(&rows.rows[i]));
    return answer(c, 200, "regions", list);
}

static enum sbx_code region_access(struct api_call *c, bool grant, struct sbx_err *err)
{
    const char *region = text(c, "region");
    struct store_region row;

    c->object_kind = "region";
    c->object_id = region;
    if ((grant ? store_region_grant(c->db, c->account_id, region, err)
               : store_region_deny(c->db, c->account_id, region, err)) != SBX_OK ||
        store_region_get(c->db, region, c->a, &row, err) != SBX_OK)
        return err->code;
    return answer(c, 200, "region", api_render_region(&row));
}

enum sbx_code api_region_grant(struct api_call *c, struct sbx_err *err)
{
    return region_access(c, true, err);
}

enum sbx_code api_region_deny(struct api_call *c, struct sbx_err *err)
{
    return region_access(c, false, err);
}

static enum sbx_code region_switch(struct api_call *c, bool on, struct sbx_err *err)
{
    struct store_region row;

    c->object_kind = "region";
    c->object_id = text(c, "region");
    if (store_region_enable(c->db, c->object_id, on, c->a, &row, err) != SBX_OK)
        return err->code;
    return region_done(c, 200, &row);
}

enum sbx_code api_region_enable(struct api_call *c, struct sbx_err *err)
{
    return region_switch(c, true, err);
}

enum sbx_code api_region_disable(struct api_call *c, struct sbx_err *err)
{
    return region_switch(c, false, err);
}

/* --- storage backends -------------------------------------------------- */

enum sbx_code api_backend_shape(const json_t *args, struct sbx_err *err)
{
    static const char *const s3[] = { "endpoint", "bucket", "accessKey", "secretKey" };
    static const char *const s3_only[] = { "endpoint", "bucket",    "prefix",
                                           "s3Region", "accessKey", "secretKey" };

    if (strcmp(json_get_str(args, "kind", ""), "dir") == 0) {
        if (json_object_get(args, "path") == NULL)
            return err_field(err, "path", "A dir backend needs path.");
        for (size_t i = 0; i < COUNT_OF(s3_only); i++) {
            if (json_object_get(args, s3_only[i]) != NULL)
                return err_field(err, s3_only[i], "%s is for an s3 backend.", s3_only[i]);
        }
        return SBX_OK;
    }
    for (size_t i = 0; i < COUNT_OF(s3); i++) {
        if (json_object_get(args, s3[i]) == NULL)
            return err_field(err, s3[i], "An s3 backend needs %s.", s3[i]);
    }
    if (json_object_get(args, "path") != NULL)
        return err_field(err, "path", "path is for a dir backend.");
    return SBX_OK;
}

enum sbx_code api_backend_create(struct api_call *c, struct sbx_err *err)
{
    char id[ID_SIZE];
    struct store_backend in = {
        .backend_id = id,
        .account_id = c->account_id,
        .region = text(c, "region"),
        .kind = text(c, "kind"),
        .path = text(c, "path"),
        .endpoint = text(c, "endpoint"),
        .bucket = text(c, "bucket"),
        .prefix = text(c, "prefix"),
        .s3_region = text(c, "s3Region"),
    };
    struct store_backend row;

    id_new(id);
    c->object_kind = "backend";
    if (seal(c, "accessKey", "storage_backends.access_key", id, &in.access_key, err) != SBX_OK ||
        seal(c, "secretKey", "storage_backends.secret_key", id, &in.secret_key, err) != SBX_OK ||
        store_backend_create(c->db, &in, c->a, &row, err) != SBX_OK)
        return err->code;
    c->object_id = row.backend_id;
    reconcile_reload_regions(c->api->reconcile);
    return answer(c, 201, "backend", api_render_backend(&row));
}

enum sbx_code api_backend_list(struct api_call *c, struct sbx_err *err)
{
    struct store_backends rows;
    json_t *list;

    if (store_backend_list(c->db, c->account_id, STORE_LIST_MAX, c->a, &rows, err) != SBX_OK)
        return err->code;
    list = json_array();
    for (size_t i = 0; i < rows.count; i++)
        (void)json_array_append_new(list, api_render_backend(&rows.rows[i]));
    return answer(c, 200, "backends", list);
}

/* --- registry credentials ---------------------------------------------- */

enum sbx_code api_registry_create(struct api_call *c, struct sbx_err *err)
{
    char id[ID_SIZE];
    struct store_registry in = {
        .registry_id = id,
        .account_id = c->account_id,
        .host = text(c, "host"),
        .username = text(c, "username"),
    };
    struct store_registry row;

    id_new(id);
    c->object_kind = "registry";
    if (seal(c, "password", "registry_credentials.password", id, &in.password, err) != SBX_OK ||
        store_registry_create(c->db, &in, c->a, &row, err) != SBX_OK)
        return err->code;
    c->object_id = row.registry_id;
    return answer(c, 201, "registry", api_render_registry(&row));
}

enum sbx_code api_registry_list(struct api_call *c, struct sbx_err *err)
{
    struct store_registries rows;
    json_t *list;

    if (store_registry_list(c->db, c->account_id, c->a, &rows, err) != SBX_OK)
        return err->code;
    list = json_array();
    for (size_t i = 0; i < rows.count; i++)
        (void)json_array_append_new(list, api_render_registry(&rows.rows[i]));
    return answer(c, 200, "registries", list);
}

enum sbx_code api_registry_remove(struct api_call *c, struct sbx_err *err)
{
    c->object_kind = "registry";
    c->object_id = text(c, "registryId");
    if (store_registry_remove(c->db, c->object_id, err) != SBX_OK)
        return err->code;
    response_ok(c->res, 200, NULL);
    return SBX_OK;
}
