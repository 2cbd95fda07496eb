#include <string.h>

#include "base/scoped.h"
#include "base/str.h"
#include "gateway/egress.h"
#include "gateway/gateway_impl.h"

/* Attempts that a sandbox's network refused: the live counters of its present run, and those of
 * its runs before a pause, which are kept in memory. */

enum { KEPT_MAX = 256 }; /* destinations of earlier runs */

static struct egress *egress_of(const struct gateway *g)
{
    return g->driver->ops->egress != NULL ? g->driver->ops->egress(g->driver) : NULL;
}

/* Adds to the event that the list has of the same destination, or appends one. */
static void add(json_t *list, const char *destination, const char *protocol, int port,
                int64_t count)
{
    json_t *j;

    for (size_t i = 0; i < json_array_size(list); i++) {
        j = json_array_get(list, i);
        if (strcmp(json_get_str(j, "destination", ""), destination) == 0 &&
            strcmp(json_get_str(j, "protocol", ""), protocol) == 0 &&
            json_get_int(j, "port", 0) == port) {
            json_put_int(j, "count", json_get_int(j, "count", 0) + count);
            return;
        }
    }
    j = json_object();
    json_put_str(j, "destination", destination);
    json_put_str(j, "protocol", protocol);
    if (port != 0)
        json_put_int(j, "port", port);
    json_put_int(j, "count", count);
    (void)json_array_append_new(list, j);
}

static enum sbx_code add_live(struct gateway *g, const char *runtime, json_t *list,
                              struct sbx_err *err)
{
    SCOPED_ARENA struct arena *a = arena_new();
    struct egress *egress = egress_of(g);
    struct egress_denied *events = NULL;
    size_t count = 0;

    if (egress == NULL || runtime[0] == 0)
        return SBX_OK;
    if (egress_denied_list(egress, runtime, a, &events, &count, err) != SBX_OK)
        return err->code;
    for (size_t i = 0; i < count; i++)
        add(list, events[i].destination, events[i].protocol, events[i].port, events[i].count);
    return SBX_OK;
}

/* All of one sandbox, a new list. */
static enum sbx_code list_of(struct gateway *g, const char *id, json_t **out, struct sbx_err *err)
{
    char runtime[ID_SIZE] = "";
    struct gateway_sandbox *s;
    SCOPED_JSON json_t *list = NULL;

    (void)pthread_mutex_lock(&g->lock);
    s = gateway_find(g, id);
    if (s != NULL && s->in_driver)
        (void)str_copy(runtime, sizeof(runtime), s->runtime);
    list = s != NULL && s->denied != NULL ? json_deep_copy(s->denied) : json_array();
    (void)pthread_mutex_unlock(&g->lock);
    if (add_live(g, runtime, list, err) != SBX_OK)
        return err->code;
    *out = STEAL(list);
    return SBX_OK;
}

void gateway_denied_keep(struct gateway *g, struct gateway_sandbox *s)
{
    struct sbx_err ignored = { 0 };
    json_t *list;

    if (egress_of(g) == NULL || list_of(g, s->id, &list, &ignored) != SBX_OK)
        return;
    while (json_array_size(list) > KEPT_MAX)
        (void)json_array_remove(list, json_array_size(list) - 1);
    (void)pthread_mutex_lock(&g->lock);
    json_decref(s->denied);
    s->denied = list;
    (void)pthread_mutex_unlock(&g->lock);
}

int64_t gateway_denied_count(struct gateway *g, const char *id)
{
    SCOPED_JSON json_t *list = NULL;
    struct sbx_err ignored = { 0 };
    int64_t sum = 0;

    if (egress_of(g) == NULL || list_of(g, id, &list, &ignored) != SBX_OK)
        return 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        sum += json_get_int(json_array_get(list, i), "count", 0);
    return sum;
}

enum sbx_code gateway_route_denied(struct request *req, struct response *res, struct sbx_err *err)
{
    const char *id = request_query_get(req, "sandboxId", NULL);
    json_t *list;

    if (id == NULL || !id_valid(id))
        return err_field(err, "sandboxId", "sandboxId must be an id");
    if (list_of(request_owner(req), id, &list, err) != SBX_OK)
        return err->code;
    response_json(res, 200, NULL, json_pack("{s:o}", "events", list));
    return SBX_OK;
}
