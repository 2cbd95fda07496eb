#include <string.h>

#include "base/scoped.h"
#include "base/str.h"
#include "gateway/egress.h"
#include "gateway/gateway_impl.h"
#include "gateway/image.h"

static enum sbx_code store_of(struct gateway *g, struct image_store **out, struct sbx_err *err)
{
    *out = g->driver->ops->images != NULL ? g->driver->ops->images(g->driver) : NULL;
    if (*out == NULL)
        return err_set(err, SBX_E_UNAVAILABLE, "this region keeps no images");
    return SBX_OK;
}

enum sbx_code gateway_route_image_list(struct request *req, struct response *res,
                                       struct sbx_err *err)
{
    struct image_store *store;
    struct image_info *infos;
    json_t *list;
    size_t count;

    if (store_of(request_owner(req), &store, err) != SBX_OK ||
        image_list(store, request_arena(req), &infos, &count, err) != SBX_OK)
        return err->code;
    list = json_array();
    for (size_t i = 0; i < count; i++) {
        json_t *j = json_object();

        json_put_str(j, "reference", infos[i].reference);
        json_put_int(j, "bytes", infos[i].bytes);
        json_put_bool(j, "unpacked", infos[i].unpacked);
        (void)json_array_append_new(list, j);
    }
    response_json(res, 200, NULL, json_pack("{s:o}", "images", list));
    return SBX_OK;
}

enum sbx_code gateway_route_image_remove(struct request *req, struct response *res,
                                         struct sbx_err *err)
{
    const char *reference = request_query_get(req, "reference", NULL);
    struct image_store *store;

    if (reference == NULL)
        return err_field(err, "reference", "reference is required");
    if (store_of(request_owner(req), &store, err) != SBX_OK ||
        image_remove(store, reference, err) != SBX_OK)
        return err->code;
    response_json(res, 200, NULL, json_pack("{s:s}", "reference", reference));
    return SBX_OK;
}

static void abort_import(void *p)
{
    image_import_abort(*(struct image_import **)p);
}

static enum sbx_code begin(struct request *req, struct image_import ***out, struct sbx_err *err)
{
    const char *name = request_query_get(req, "name", NULL);
    const char *kind = request_query_get(req, "kind", NULL);
    struct image_import **slot = request_slot(req);
    struct image_store *store;

    *out = slot;
    if (slot != NULL)
        return SBX_OK;
    if (name == NULL)
        return err_field(err, "name", "name is required");
    if (kind != NULL && strcmp(kind, "layout") != 0 && strcmp(kind, "rootfs") != 0)
        return err_field(err, "kind", "kind must be layout or rootfs");
    if (store_of(request_owner(req), &store, err) != SBX_OK)
        return err->code;
    slot = arena_zalloc(request_arena(req), sizeof(*slot));
    if (image_import_begin(store,
                           kind != NULL && strcmp(kind, "rootfs") == 0 ? IMAGE_IMPORT_ROOTFS
                                                                       : IMAGE_IMPORT_LAYOUT,
                           name, slot, err) != SBX_OK)
        return err->code;
    arena_defer(request_arena(req), abort_import, slot);
    request_set_slot(req, slot);
    *out = slot;
    return SBX_OK;
}

enum sbx_code gateway_route_image_piece(struct request *req, const void *data, size_t len,
                                        struct sbx_err *err)
{
    struct image_import **import;

    if (begin(req, &import, err) != SBX_OK)
        return err->code;
    return image_import_add(*import, data, len, err);
}

enum sbx_code gateway_route_image_import(struct request *req, struct response *res,
                                         struct sbx_err *err)
{
    struct image_import **import;
    char reference[IMAGE_REFERENCE_MAX];
    int64_t bytes;

    if (begin(req, &import, err) != SBX_OK ||
        image_import_finish(STEAL(*import), reference, &bytes, err) != SBX_OK)
        return err->code;
    response_json(res, 200, NULL,
                  json_pack("{s:s, s:I}", "reference", reference, "bytes", (json_int_t)bytes));
    return SBX_OK;
}
