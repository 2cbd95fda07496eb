#include "reconcile/fake_region.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/time.h"
#include "http/server.h"

enum { BOXES_MAX = 4096, WORKERS = 32 };

struct box {
    char id[ID_SIZE];
    char execution[ID_SIZE];
    int64_t generation; /* highest seen */
    bool exists, warm;
};

struct fake_region {
    struct http_server *server;
    pthread_mutex_t lock;
    struct box boxes[BOXES_MAX];
    size_t count;
    enum fake_deploy how;
    int delay_ms;
    bool sticky;
    int deploys;
};

static struct box *box_of(struct fake_region *r, const char *id)
{
    for (size_t i = 0; i < r->count; i++) {
        if (strcmp(r->boxes[i].id, id) == 0)
            return &r->boxes[i];
    }
    assert_true(r->count < BOXES_MAX);
    (void)str_copy(r->boxes[r->count].id, ID_SIZE, id);
    return &r->boxes[r->count++];
}

static json_t *box_json(const struct box *b)
{
    json_t *j = json_object(), *executions = json_array();

    json_put_str(j, "sandboxId", b->id);
    json_put_int(j, "generation", b->generation);
    json_put_str(j, "phase", "running");
    json_put_bool(j, "agent", true);
    json_put_true(j, "warm", b->warm);
    if (b->execution[0])
        (void)json_array_append_new(executions, json_string(b->execution));
    json_put_new(j, "executions", executions);
    return j;
}

static void sleep_ms(int ms)
{
    struct timespec t = { ms / 1000, (ms % 1000) * 1000000L };

    (void)nanosleep(&t, NULL);
}

static enum sbx_code answer(struct fake_region *r, const char *id, int64_t generation,
                            struct response *res, struct sbx_err *err)
{
    enum sbx_code code = SBX_OK;
    int delay;
    struct box *b;

    (void)pthread_mutex_lock(&r->lock);
    delay = r->delay_ms;
    r->deploys++;
    (void)pthread_mutex_unlock(&r->lock);
    sleep_ms(delay);
    (void)pthread_mutex_lock(&r->lock);
    b = box_of(r, id);
    if (generation < b->generation ||
        (generation == b->generation && !b->exists && b->generation)) {
        code = err_set(err, SBX_E_STALE, "a newer generation was seen");
    } else if (r->how == FAKE_DEPLOY_FAILS) {
        code = err_set(err, SBX_E_UNKNOWN, "The command exited with status 1.");
    } else if (r->how == FAKE_DEPLOY_BUSY) {
        code = err_set(err, SBX_E_BUSY, "no room");
    } else if (r->how == FAKE_DEPLOY_GARBAGE) {
        response_bytes(res, 200, "application/json", "{\"sandboxId\":7", 14);
    } else {
        b->exists = true;
        b->generation = generation;
        response_json(res, 200, NULL, box_json(b));
    }
    (void)pthread_mutex_unlock(&r->lock);
    return code;
}

static enum sbx_code put(struct request *req, struct response *res, struct sbx_err *err)
{
    json_t *body;

    if (request_json(req, &body, err))
        return err->code;
    return answer(request_owner(req), request_param(req, "id"), json_get_int(body, "generation", 0),
                  res, err);
}

static enum sbx_code warm(struct request *req, struct response *res, struct sbx_err *err)
{
    struct fake_region *r = request_owner(req);
    json_t *body;
    const char *id;

    if (request_json(req, &body, err))
        return err->code;
    id = json_get_str(body, "warmId", "");
    (void)pthread_mutex_lock(&r->lock);
    box_of(r, id)->warm = true;
    (void)pthread_mutex_unlock(&r->lock);
    return answer(r, id, json_get_int(body, "generation", 0), res, err);
}

static enum sbx_code get(struct request *req, struct response *res, struct sbx_err *err)
{
    struct fake_region *r = request_owner(req);
    const struct box *b;
    enum sbx_code code = SBX_OK;

    (void)pthread_mutex_lock(&r->lock);
    b = box_of(r, request_param(req, "id"));
    if (b->exists)
        response_json(res, 200, NULL, box_json(b));
    else
        code = err_set(err, SBX_E_NOT_FOUND, "nothing of it");
    (void)pthread_mutex_unlock(&r->lock);
    return code;
}

static enum sbx_code delete (struct request *req, struct response *res, struct sbx_err *err) {
    struct fake_region *r = request_owner(req); json_t * body, *j = json_object(); struct box * b;
    enum sbx_code code = SBX_OK;

    if (request_json(req, &body, err)){ json_decref(j); return err->code; }
(void)pthread_mutex_lock(&r->lock);
b = box_of(r, request_param(req, "id"));
if (r->sticky) {
    code = err_set(err, SBX_E_UNAVAILABLE, "the runtime hangs");
} else if (json_get_int(body, "generation", 0) < b->generation) {
    code = err_set(err, SBX_E_STALE, "a newer generation was seen");
} else {
    b->generation = json_get_int(body, "generation", 0);
    b->exists = false;
    json_put_str(j, "sandboxId", b->id);
    json_put_bool(j, "gone", true);
    response_json(res, 200, NULL, json_incref(j));
}
(void)pthread_mutex_unlock(&r->lock);
json_decref(j);
return code;
}

static int by_id(const void *a, const void *b)
{
    return strcmp(((const struct box *)a)->id, ((const struct box *)b)->id);
}

static enum sbx_code list(struct request *req, struct response *res, struct sbx_err *err)
{
    struct fake_region *r = request_owner(req);
    const char *after = request_query_get(req, "after", NULL);
    json_t *j = json_object(), *rows = json_array();

    (void)err;
    (void)pthread_mutex_lock(&r->lock);
    qsort(r->boxes, r->count, sizeof(r->boxes[0]), by_id);
    for (size_t i = 0; i < r->count; i++) {
        if (!r->boxes[i].exists || (after && strcmp(r->boxes[i].id, after) <= 0))
            continue;
        if (json_array_size(rows) == 3) { /* small pages, so that the walk is tried */
            json_put_str(j, "next", json_get_str(json_array_get(rows, 2), "sandboxId", ""));
            break;
        }
        (void)json_array_append_new(rows, box_json(&r->boxes[i]));
    }
    (void)pthread_mutex_unlock(&r->lock);
    json_put_new(j, "sandboxes", rows);
    response_json(res, 200, NULL, j);
    return SBX_OK;
}

#define ROUTE(method_, path_, name_, body_, fn)                                                    \
    {                                                                                              \
        .method = method_, .path = path_, .name = name_, .auth = 1, .body = body_,                 \
        .body_max = (body_) == HTTP_BODY_JSON ? 1024 * 1024 : 0, .handler = fn                     \
    }
static const struct route ROUTES[] = {
    ROUTE(HTTP_PUT, "/v1/sandboxes/{id}", "put", HTTP_BODY_JSON, put),
    ROUTE(HTTP_GET, "/v1/sandboxes/{id}", "get", HTTP_BODY_NONE, get),
    ROUTE(HTTP_DELETE, "/v1/sandboxes/{id}", "delete", HTTP_BODY_JSON, delete),
    ROUTE(HTTP_GET, "/v1/sandboxes", "list", HTTP_BODY_NONE, list),
    ROUTE(HTTP_POST, "/v1/warm", "warm", HTTP_BODY_JSON, warm),
};
static const struct route_table TABLE = { ROUTES, COUNT_OF(ROUTES) };

static enum http_auth allow(void *owner, struct request *req, const struct route *route,
                            struct sbx_err *err)
{
    (void)owner;
    (void)req;
    (void)route;
    (void)err;
    return HTTP_AUTH_ALLOW;
}

struct fake_region *fake_region_new(const char *socket_path)
{
    struct fake_region *r = mem_zalloc(sizeof(*r));
    char *address = mem_printf("unix:%s", socket_path);
    struct http_listener listener = {
        .name = "region", .address = address, .tables = &TABLE, .table_count = 1
    };
    struct http_config config = { .owner = r,
                                  .listeners = &listener,
                                  .listener_count = 1,
                                  .auth = allow,
                                  .on_error = response_gateway_error,
                                  .workers = WORKERS };
    struct sbx_err err = { 0 };

    (void)pthread_mutex_init(&r->lock, NULL);
    if (http_server_start(&config, &r->server, &err))
        fail_msg("fake region: %s", err.msg);
    free(address);
    return r;
}

void fake_region_free(struct fake_region *r)
{
    http_server_stop(r->server);
    (void)pthread_mutex_destroy(&r->lock);
    free(r);
}

#define LOCKED(r, statement)                                                                       \
    do {                                                                                           \
        (void)pthread_mutex_lock(&(r)->lock);                                                      \
        statement;                                                                                 \
        (void)pthread_mutex_unlock(&(r)->lock);                                                    \
    } while (0)

void fake_region_deploys(struct fake_region *r, enum fake_deploy how, int delay_ms)
{
    LOCKED(r, (r->how = how, r->delay_ms = delay_ms));
}

void fake_region_sticky(struct fake_region *r, bool deletes_fail)
{
    LOCKED(r, r->sticky = deletes_fail);
}

void fake_region_add(struct fake_region *r, const char *id, int64_t generation)
{
    LOCKED(r, (box_of(r, id)->exists = true, box_of(r, id)->generation = generation));
}

void fake_region_lose(struct fake_region *r, const char *id)
{
    LOCKED(r, box_of(r, id)->exists = false);
}

void fake_region_execution(struct fake_region *r, const char *id, const char *execution_id)
{
    LOCKED(r, (void)str_copy(box_of(r, id)->execution, ID_SIZE, execution_id));
}

bool fake_region_has(struct fake_region *r, const char *id)
{
    bool has;

    LOCKED(r, has = box_of(r, id)->exists);
    return has;
}

int fake_region_count(struct fake_region *r)
{
    int n = 0;

    LOCKED(r, for (size_t i = 0; i < r->count; i++) n += r->boxes[i].exists ? 1 : 0);
    return n;
}

int fake_region_deploy_count(struct fake_region *r)
{
    int n;

    LOCKED(r, n = r->deploys);
    return n;
}

int fake_region_warm_count(struct fake_region *r)
{
    int n = 0;

    LOCKED(r, for (size_t i = 0; i < r->count; i++) n +=
              r->boxes[i].exists && r->boxes[i].warm ? 1 : 0);
    return n;
}
