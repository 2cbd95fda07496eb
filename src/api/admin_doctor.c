#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/handlers.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/scoped.h"
#include "base/time.h"
#include "sbx/gateway.h"
#include "store/places.h"

/* doctor, the server's part: database, schema, keys, and each region and object storage by using it.
 * A check that fails says how it is mended. */

enum {
    CLOCK_OFF_MAX_MS = 5000,
    BACKENDS_MAX = 16, /* that one call looks at */
    DISK_FREE_MIN_MB = 2048,
};

struct doctor {
    struct api *api;
    struct http_server *server;
    uint64_t ticket;
    pthread_mutex_t lock; /* of what follows: the calls' thread adds while we still start some */
    json_t *checks;
    int left; /* answers that are awaited, and one while we start them */
};

/* One region or one storage. */
struct visit {
    struct doctor *doctor;
    struct arena *a;
    char name[128];
    const char *region, *account_id;
    struct region_backend backend;
    char operation[ID_SIZE];
    char volume[16 + ID_SIZE]; /* made in a storage and taken away again: never a client's */
};

static void add(json_t *list, const char *name, bool ok, const char *detail, const char *mend)
{
    json_t *j =
        json_pack("{s:s, s:b, s:s}", "name", name, "ok", ok, "detail", detail != NULL ? detail : "");

    if (!ok)
        json_put_str(j, "mend", mend);
    (void)json_array_append_new(list, j);
}

static void check_database(struct api_call *c, json_t *list)
{
    static const char AWAY[] = "is PostgreSQL up, and does [database] url reach it from here? Nothing "
                               "is lost meanwhile, and no restart is needed";
    struct sbx_err why = { 0 };
    int64_t now_ms = 0;
    enum sbx_code code = store_conn_check(c->db, &now_ms, &why);
    int64_t off_ms = now_ms - time_unix_ms();

    add(list, "database", code == SBX_OK, code == SBX_OK ? "answers" : why.msg, AWAY);
    if (code == SBX_OK)
        add(list, "database clock", off_ms > -CLOCK_OFF_MAX_MS && off_ms < CLOCK_OFF_MAX_MS,
            arena_printf(c->a, "the database is %" PRId64 " ms ahead of this machine", off_ms),
            "let a time service keep both clocks: apt-get install chrony");
}

static void check_schema(struct api_call *c, json_t *list)
{
    struct store_schema schema = { 0 };
    struct sbx_err why = { 0 };
    enum sbx_code code = store_schema_check(c->db, &schema, &why);

    add(list, "schema", code == SBX_OK && schema.have == schema.want,
        code == SBX_OK ? arena_printf(c->a, "has %d, wants %d", schema.have, schema.want) : why.msg,
        "sandboxctl migrate; a program older than its database has to be upgraded");
    if (code == SBX_OK)
        add(list, "idempotency index", schema.idempotency_index,
            schema.idempotency_index ? "there" : "missing: creates are refused",
            "make it again as migration 0004 does: CREATE UNIQUE INDEX sandboxes_idempotency ...");
}

static void check_ourselves(struct api_call *c, json_t *list)
{
    bool listening = reconcile_listening(c->api->reconcile);

    add(list, "notices", listening,
        listening ? "LISTEN is up" : "LISTEN is down: tokens are not cached",
        "a pooler between us and PostgreSQL must be in session mode; else see database");
    add(list, "seal key", c->api->cfg.seal != NULL,
        c->api->cfg.seal != NULL ? "loaded" : "[seal] keys_file is not set",
        "echo \"k1 $(openssl rand -hex 32)\" into a file that only sandboxd reads, and name it in "
        "[seal] keys_file, the same on every control plane");
}

/* --- regions and storage --------------------------------------------------------------- */

static enum sbx_code doctor_answer(struct request *req, struct response *res, void *arg,
                                   struct sbx_err *err)
{
    struct doctor *d = arg;
    struct api_call *c = request_slot(req);

    (void)err;
    c->res = res;
    response_ok(res, 200, json_pack("{s:o}", "checks", d->checks));
    (void)pthread_mutex_destroy(&d->lock);
    free(d);
    api_call_audit(c, SBX_OK);
    return SBX_OK;
}

static void one_less(struct doctor *d)
{
    bool last;

    (void)pthread_mutex_lock(&d->lock);
    last = --d->left == 0;
    (void)pthread_mutex_unlock(&d->lock);
    if (!last || api_continue(d->api, d->server, d->ticket, doctor_answer, d))
        return;
    json_decref(d->checks);
    (void)pthread_mutex_destroy(&d->lock);
    free(d);
}

static void visited(struct visit *v, bool ok, const char *detail, const char *mend)
{
    struct doctor *d = v->doctor;

    (void)pthread_mutex_lock(&d->lock);
    add(d->checks, v->name, ok, detail, mend);
    (void)pthread_mutex_unlock(&d->lock);
    arena_free(v->a);
    one_less(d);
}

static struct visit *visit_new(struct doctor *d, const char *region)
{
    struct arena *a = arena_new();
    struct visit *v = arena_zalloc(a, sizeof(*v));

    v->doctor = d;
    v->a = a;
    v->region = arena_strdup(a, region);
    id_new(v->operation);
    (void)pthread_mutex_lock(&d->lock);
    d->left++;
    (void)pthread_mutex_unlock(&d->lock);
    return v;
}

static const char *reason(const struct gateway_client_answer *answer)
{
    return answer->message != NULL && answer->message[0] != 0 ? answer->message
                                                              : "the region does not answer";
}

static void on_capacity(void *arg, const struct gateway_client_answer *answer)
{
    struct visit *v = arg;
    int64_t free_mb = json_get_int(answer->json, "diskFreeMb", 0);

    if (answer->code != SBX_OK)
        visited(v, false, reason(answer),
                "is sandbox-region up there (systemctl status sandbox-region), is its address or "
                "socket right (sandboxctl region list), and its secret (sandboxctl region update)?");
    else
        visited(v, free_mb >= DISK_FREE_MIN_MB,
                arena_printf(v->a, "answers; %" PRId64 " sandboxes, %" PRId64 " MiB of disk free",
                             json_get_int(answer->json, "sandboxes", 0), free_mb),
                "free some space in [state] dir of that host: sandboxctl image list and image "
                "remove, or a larger disk");
}

static void visit_region(struct doctor *d, const struct store_region *row)
{
    struct visit *v = visit_new(d, row->region);
    struct sbx_err err = { 0 };

    (void)snprintf(v->name, sizeof(v->name), "region %s", row->region);
    if (gateway_client_read(d->api->cfg.gateway, v->region, "/v1/capacity", on_capacity, v, &err) !=
        SBX_OK)
        on_capacity(v, &(struct gateway_client_answer){ .code = err.code, .message = err.msg });
}

static void storage_trouble(struct visit *v, const struct gateway_client_answer *answer)
{
    visited(v, false, reason(answer),
            strcmp(v->backend.kind, "s3") == 0
                ? "can the region's host reach the endpoint, is the bucket there, and do the keys "
                  "allow writing? sandboxctl backend create again takes new ones"
                : "the folder must be on the region's host, writable for root, and not full");
}

static void on_purged(void *arg, const struct gateway_client_answer *answer)
{
    if (answer->code != SBX_OK)
        storage_trouble(arg, answer);
    else
        visited(arg, true, "a volume was made there and taken away again", NULL);
}

static void on_made(void *arg, const struct gateway_client_answer *answer)
{
    struct visit *v = arg;
    struct sbx_err err = { 0 };

    if (answer->code != SBX_OK) {
        storage_trouble(v, answer);
        return;
    }
    id_new(v->operation);
    if (gateway_client_volume_purge(v->doctor->api->cfg.gateway, v->region, v->volume,
                                    v->account_id, v->operation, &v->backend, on_purged, v,
                                    &err) != SBX_OK)
        on_purged(v, &(struct gateway_client_answer){ .code = err.code, .message = err.msg });
}

static void free_secret(void *s)
{
    secret_free(s);
}

/* Lives as long as the visit. */
static enum sbx_code open_key(struct visit *v, const char *column, const char *row_id,
                              const struct store_bytes *sealed, const char **out,
                              struct sbx_err *err)
{
    struct secret *plain = NULL;

    if (sealed->data == NULL)
        return SBX_OK;
    if (seal_open(v->doctor->api->cfg.seal, store_seal_context(v->a, column, row_id), sealed->data,
                  sealed->len, &plain, err) != SBX_OK)
        return err->code;
    arena_defer(v->a, free_secret, plain);
    *out = secret_reveal(plain);
    return SBX_OK;
}

static const char *keep(struct arena *a, const char *text)
{
    return text != NULL ? arena_strdup(a, text) : NULL;
}

static void visit_storage(struct doctor *d, const struct store_backend *row)
{
    struct visit *v = visit_new(d, row->region);
    struct sbx_err err = { 0 };

    (void)snprintf(v->name, sizeof(v->name), "storage %s of %s", row->region, row->account_id);
    (void)snprintf(v->volume, sizeof(v->volume), "doctor-%s", v->operation);
    v->account_id = arena_strdup(v->a, row->account_id);
    v->backend = (struct region_backend){
        .kind = arena_strdup(v->a, row->kind),
        .path = keep(v->a, row->path),
        .endpoint = keep(v->a, row->endpoint),
        .bucket = keep(v->a, row->bucket),
        .prefix = keep(v->a, row->prefix),
        .s3_region = keep(v->a, row->s3_region),
    };
    if (open_key(v, "storage_backends.access_key", row->backend_id, &row->access_key,
                 &v->backend.access_key, &err) != SBX_OK ||
        open_key(v, "storage_backends.secret_key", row->backend_id, &row->secret_key,
                 &v->backend.secret_key, &err) != SBX_OK) {
        visited(v, false, err.msg,
                "put the key that sealed it back into [seal] keys_file, or give the storage's keys "
                "again: sandboxctl backend create");
        return;
    }
    if (gateway_client_volume_make(d->api->cfg.gateway, v->region, v->volume, v->account_id,
                                   v->operation, &v->backend, on_made, v, &err) != SBX_OK)
        on_made(v, &(struct gateway_client_answer){ .code = err.code, .message = err.msg });
}

static struct doctor *doctor_new(struct api_call *c, json_t *checks)
{
    struct doctor *d = mem_zalloc(sizeof(*d));

    c->deferred = true;
    request_set_slot(c->req, c);
    d->api = c->api;
    d->server = request_server(c->req);
    d->ticket = request_defer(c->req, 2 * (SBX_GATEWAY_CALL_TIMEOUT_S + 5) * 1000, NULL);
    (void)pthread_mutex_init(&d->lock, NULL);
    d->checks = checks;
    d->left = 1;
    return d;
}

enum sbx_code api_admin_doctor(struct api_call *c, struct sbx_err *err)
{
    json_t *list = json_array();
    struct store_regions regions = { 0 };
    struct store_backends backends = { 0 };
    struct sbx_err why = { 0 };
    struct doctor *d;

    (void)err;
    check_database(c, list);
    check_schema(c, list);
    check_ourselves(c, list);
    if (store_region_list(c->db, c->a, &regions, &why) != SBX_OK ||
        store_backend_list(c->db, NULL, BACKENDS_MAX, c->a, &backends, &why) != SBX_OK) {
        response_ok(c->res, 200, json_pack("{s:o}", "checks", list));
        return SBX_OK;
    }
    add(list, "regions", regions.count > 0, arena_printf(c->a, "%zu known", regions.count),
        "sandboxctl region create");
    d = doctor_new(c, list);
    for (size_t i = 0; i < regions.count; i++) {
        if (regions.rows[i].enabled) /* one that is switched off may be away */
            visit_region(d, &regions.rows[i]);
    }
    for (size_t i = 0; i < backends.count; i++)
        visit_storage(d, &backends.rows[i]);
    one_less(d);
    return SBX_OK;
}
