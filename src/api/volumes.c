#include "api/handlers.h"
#include "api/render.h"

/* Shared volumes (contract 5). */

static enum sbx_code answer(struct api_call *c, int status, const struct store_volume *row)
{
    response_ok(c->res, status, json_pack("{s:o}", "volume", api_render_volume(row)));
    return SBX_OK;
}

static const char *name_of(struct api_call *c)
{
    c->object_kind = "volume";
    c->object_id = json_get_str(c->args, "volumeName", NULL);
    return c->object_id;
}

static const char *region_of(const struct api_call *c)
{
    return json_get_str(c->args, "region", NULL);
}

enum sbx_code api_volume_list(struct api_call *c, struct sbx_err *err)
{
    struct store_volumes rows;
    json_t *list;

    if (store_volume_list(c->db, c->account_id, region_of(c), c->a, &rows, err) != SBX_OK)
        return err->code;
    list = json_array();
    for (size_t i = 0; i < rows.count; i++)
        (void)json_array_append_new(list, api_render_volume(&rows.rows[i]));
    response_ok(c->res, 200, json_pack("{s:s, s:o}", "accountId", c->account_id, "volumes", list));
    return SBX_OK;
}

/* The region of a name that was given without one. */
static enum sbx_code find(struct api_call *c, struct store_volume *row, struct sbx_err *err)
{
    return store_volume_get(c->db, c->account_id, region_of(c), name_of(c), c->a, row, err);
}

enum sbx_code api_volume_get(struct api_call *c, struct sbx_err *err)
{
    struct store_volume row;

    return find(c, &row, err) != SBX_OK ? err->code : answer(c, 200, &row);
}

enum sbx_code api_volume_create(struct api_call *c, struct sbx_err *err)
{
    struct store_volume row;
    int max = c->api->cfg.account_volumes, have = 0;

    if ((max != 0 && store_volume_count(c->db, c->account_id, max, &have, err) != SBX_OK) ||
        api_limit_held(c, "account_volumes", max, have, "shared volumes", err) != SBX_OK)
        return err->code;
    if (store_volume_create(c->db, c->account_id, region_of(c), name_of(c),
                            (int)json_get_int(c->args, "sizeMb", 0), c->a, &row, err) != SBX_OK)
        return err->code;
    return answer(c, 201, &row);
}

enum sbx_code api_volume_remove(struct api_call *c, struct sbx_err *err)
{
    struct store_volume row;

    if (find(c, &row, err) != SBX_OK ||
        store_volume_remove(c->db, c->account_id, row.region, row.volume_name,
                            c->api->cfg.purge_delay_ms, c->a, &row, err) != SBX_OK)
        return err->code;
    return answer(c, 200, &row);
}

enum sbx_code api_volume_restore(struct api_call *c, struct sbx_err *err)
{
    struct store_volume row;

    if (find(c, &row, err) != SBX_OK ||
        store_volume_restore(c->db, c->account_id, row.region, row.volume_name, c->a, &row, err) !=
            SBX_OK)
        return err->code;
    return answer(c, 200, &row);
}
