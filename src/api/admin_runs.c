#include <string.h>

#include "api/handlers.h"
#include "api/runs.h"
#include "region/jose.h"

/* The operator's calls about installed Warren Solutions and their principals. */

static const char *text(const struct api_call *c, const char *name)
{
    return json_get_str(c->args, name, NULL);
}

json_t *api_render_installation(const struct store_installation *i)
{
    json_t *j = json_object();

    json_put_str(j, "installationId", i->installation_id);
    json_put_str(j, "accountId", i->account_id);
    json_put_str(j, "controlHost", i->control_host);
    json_put_str(j, "status", i->active ? "ACTIVE" : "SUSPENDED");
    json_put_time(j, "createdAt", i->created_at_ms);
    return j;
}

json_t *api_render_principal(const struct store_principal *p)
{
    json_t *j = json_object();
    json_t *list = json_array();

    json_put_str(j, "principalId", p->principal_id);
    json_put_str(j, "installationId", p->installation_id);
    for (const char *at = p->permissions; *at != '\0';) {
        size_t n = strcspn(at, ",");

        (void)json_array_append_new(list, json_stringn(at, n));
        at += n + (at[n] == ',');
    }
    json_put_new(j, "permissions", list);
    json_put_time(j, "createdAt", p->created_at_ms);
    return j;
}

static enum sbx_code answer(struct api_call *c, int status, const struct store_installation *i)
{
    c->object_kind = "installation";
    c->object_id = i->installation_id;
    response_ok(c->res, status, json_pack("{s:o}", "installation", api_render_installation(i)));
    return SBX_OK;
}

enum sbx_code api_installation_create(struct api_call *c, struct sbx_err *err)
{
    const char *pem = text(c, "callbackKey");
    struct jose_keys *keys = NULL;
    struct sbx_err why = { 0 };
    struct store_installation row;

    if (jose_keys_parse(pem, strlen(pem), &keys, &why) != SBX_OK)
        return err_field(err, "callbackKey",
                         "callbackKey must be a PEM public key (RSA or Ed25519).");
    jose_keys_free(keys);
    if (store_installation_create(c->db, c->account_id, text(c, "controlHost"), pem, c->a, &row,
                                  err) != SBX_OK)
        return err->code;
    return answer(c, 201, &row);
}

static enum sbx_code activate(struct api_call *c, bool active, struct sbx_err *err)
{
    struct store_installation row;

    if (store_installation_activate(c->db, text(c, "installationId"), active, c->a, &row, err) !=
        SBX_OK)
        return err->code;
    return answer(c, 200, &row);
}

enum sbx_code api_installation_suspend(struct api_call *c, struct sbx_err *err)
{
    return activate(c, false, err);
}

enum sbx_code api_installation_activate(struct api_call *c, struct sbx_err *err)
{
    return activate(c, true, err);
}

enum sbx_code api_installation_list(struct api_call *c, struct sbx_err *err)
{
    struct store_installations rows;
    json_t *list;

    if (store_installation_list(c->db, c->account_id, c->a, &rows, err) != SBX_OK)
        return err->code;
    list = json_array();
    for (size_t i = 0; i < rows.count; i++)
        (void)json_array_append_new(list, api_render_installation(&rows.rows[i]));
    response_ok(c->res, 200, json_pack("{s:o}", "installations", list));
    return SBX_OK;
}

enum sbx_code api_principal_create(struct api_call *c, struct sbx_err *err)
{
    const json_t *list = json_object_get(c->args, "permissions");
    struct store_principal row;
    uint32_t set = 0;
    char *names = arena_strdup(c->a, "");

    for (size_t i = 0; i < json_array_size(list); i++) {
        uint32_t one = scopes_permission_parse(json_string_value(json_array_get(list, i)));

        if (one == 0)
            return err_field(err, "permissions",
                             "permissions are sandbox:create, sandbox:read and sandbox:terminate.");
        set |= one;
    }
    for (; set != 0; set &= set - 1)
        names = arena_printf(c->a, "%s%s%s", names, names[0] != '\0' ? "," : "",
                             scopes_permission_name(set));
    if (store_principal_create(c->db, text(c, "installationId"), names, c->a, &row, err) != SBX_OK)
        return err->code;
    c->object_kind = "principal";
    c->object_id = row.principal_id;
    response_ok(c->res, 201, json_pack("{s:o}", "principal", api_render_principal(&row)));
    return SBX_OK;
}
