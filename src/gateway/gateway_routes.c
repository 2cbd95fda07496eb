#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

#include "base/scoped.h"
#include "base/str.h"
#include "gateway/checkin.h"
#include "gateway/gateway_impl.h"

enum {
    BODY_MAX = 4 * 1024 * 1024, /* a public body with its strings escaped another way */
    LIST_DEFAULT = 100,
    METRICS_TEXT_MAX = 4 * 1024 * 1024,
    READY_DISK_MB = 64,
};

/* ---- who may call ---- */

/* One of the lines of secret; with who_lock. */
static bool bearer_is(struct request *req, const struct secret *secret)
{
    size_t times = 0;
    const char *value = request_header(req, "Authorization", &times);
    bool found = false;

    if (secret == NULL || value == NULL || times != 1 || !str_starts(value, "Bearer "))
        return false;
    value += strlen("Bearer ");
    for (const char *line = secret_reveal(secret); *line != 0;) {
        size_t len = strcspn(line, "\n");

        if (strlen(value) == len && str_equal_secret(value, line, len))
            found = true;
        line += len + (line[len] == '\n');
    }
    return found;
}

static bool peer_is_known(const struct gateway_who *who, const struct request_peer *peer)
{
    for (size_t i = 0; peer->local && i < who->uid_count; i++) {
        if (who->uids[i] == peer->uid)
            return true;
    }
    return false;
}

static bool is_allowed(struct gateway *g, struct request *req, enum gateway_auth auth)
{
    bool allowed = auth == GATEWAY_AUTH_OPEN;

    (void)pthread_rwlock_rdlock(&g->who_lock);
    if (auth == GATEWAY_AUTH_REGION)
        allowed = peer_is_known(&g->who, request_peer(req)) || bearer_is(req, g->who.secret);
    else if (auth == GATEWAY_AUTH_PROCESS)
        allowed = bearer_is(req, g->who.process_secret);
    (void)pthread_rwlock_unlock(&g->who_lock);
    return allowed;
}

enum http_auth gateway_authenticate(void *owner, struct request *req, const struct route *route,
                                    struct sbx_err *err)
{
    if (is_allowed(owner, req, (enum gateway_auth)route->auth))
        return HTTP_AUTH_ALLOW;
    err_put(err, SBX_E_UNAUTHENTICATED, "the region's credential is missing or wrong");
    return HTTP_AUTH_DENY;
}

/* ---- operations ---- */

static enum sbx_code check_id(const char *id, struct sbx_err *err)
{
    return id_valid(id) ? SBX_OK : err_field(err, "id", "the sandbox id is malformed");
}

/* Parses {operationId, generation} and hands a job over. */
static enum sbx_code submit(struct request *req, enum gateway_job_kind kind, const char *id,
                            int64_t timeout_s, struct sbx_err *err)
{
    struct gateway *g = request_owner(req);
    struct gateway_job *job;
    char op[ID_SIZE];
    int64_t generation;
    json_t *body;

    request_log(req, "sandboxId", id);
    if (check_id(id, err) != SBX_OK || request_json(req, &body, err) != SBX_OK ||
        gateway_parse_operation(body, op, &generation, err) != SBX_OK)
        return err->code;
    job = gateway_job_new(g, kind, id, op, generation);
    if (kind == GATEWAY_JOB_DEPLOY && gateway_parse_deploy(job, body, err) != SBX_OK) {
        gateway_job_free(job);
        return err->code;
    }
    if (kind == GATEWAY_JOB_SNAPSHOT && gateway_parse_snapshot(job, body, err) != SBX_OK) {
        gateway_job_free(job);
        return err->code;
    }
    job->warm = strcmp(request_route(req)->name, "warm") == 0;
    gateway_job_submit(g, job, request_defer(req, timeout_s * 1000, NULL));
    return SBX_OK;
}

static enum sbx_code route_deploy(struct request *req, struct response *res, struct sbx_err *err)
{
    (void)res;
    return submit(req, GATEWAY_JOB_DEPLOY, request_param(req, "id"), SBX_GATEWAY_DEPLOY_TIMEOUT_S,
                  err);
}

static enum sbx_code route_delete(struct request *req, struct response *res, struct sbx_err *err)
{
    (void)res;
    return submit(req, GATEWAY_JOB_DELETE, request_param(req, "id"), SBX_GATEWAY_DELETE_TIMEOUT_S,
                  err);
}

static enum sbx_code route_stop(struct request *req, struct response *res, struct sbx_err *err)
{
    (void)res;
    return submit(req, GATEWAY_JOB_STOP, request_param(req, "id"), SBX_GATEWAY_DELETE_TIMEOUT_S,
                  err);
}

static enum sbx_code route_snapshot(struct request *req, struct response *res, struct sbx_err *err)
{
    (void)res;
    return submit(req, GATEWAY_JOB_SNAPSHOT, request_param(req, "id"),
                  SBX_GATEWAY_SNAPSHOT_TIMEOUT_S, err);
}

static enum sbx_code route_warm(struct request *req, struct response *res, struct sbx_err *err)
{
    json_t *body;

    (void)res;
    if (request_json(req, &body, err) != SBX_OK)
        return err->code;
    return submit(req, GATEWAY_JOB_DEPLOY, json_get_str(body, "warmId", ""),
                  SBX_GATEWAY_DEPLOY_TIMEOUT_S, err);
}

/* ---- reading ---- */

static enum sbx_code route_get(struct request *req, struct response *res, struct sbx_err *err)
{
    struct gateway *g = request_owner(req);
    const char *id = request_param(req, "id");
    int64_t denied;
    json_t *j;

    if (check_id(id, err) != SBX_OK)
        return err->code;
    j = gateway_sandbox_json(g, id);
    if (j == NULL)
        return err_set(err, SBX_E_NOT_FOUND, "the region has nothing of the sandbox");
    denied = gateway_denied_count(g, id); /* not in lists: it asks the kernel */
    if (denied > 0)
        json_put_int(j, "deniedEgress", denied);
    response_json(res, 200, NULL, j);
    return SBX_OK;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Ids of what the region has for the control plane (or of our own probes), after `after`, in order,
 * at most limit + 1. */
static const char **page_of(struct gateway *g, struct arena *a, const char *after, size_t limit,
                            bool probes, size_t *count)
{
    const char **ids;
    size_t n = 0;

    (void)pthread_mutex_lock(&g->lock);
    ids = arena_zalloc(a, (g->live + 1) * sizeof(*ids));
    ID_MAP_EACH(&g->sandboxes, slot)
    {
        const struct gateway_sandbox *s = slot->value;

        if (s->phase != GATEWAY_PHASE_NONE && strcmp(s->id, after) > 0 &&
            (strcmp(s->account, GATEWAY_CHECKIN_ACCOUNT) == 0) == probes)
            ids[n++] = s->id; /* stays valid: nothing is freed while we hold the lock */
    }
    qsort(ids, n, sizeof(*ids), by_text);
    if (n > limit + 1)
        n = limit + 1;
    for (size_t i = 0; i < n; i++)
        ids[i] = arena_strdup(a, ids[i]);
    (void)pthread_mutex_unlock(&g->lock);
    *count = n;
    return ids;
}

static enum sbx_code route_list(struct request *req, struct response *res, struct sbx_err *err)
{
    struct gateway *g = request_owner(req);
    const char *after = request_query_get(req, "after", NULL);
    const char *limit_text = request_query_get(req, "limit", NULL);
    int64_t limit = LIST_DEFAULT;
    const char **ids;
    json_t *answer, *list;
    size_t count;

    if (limit_text != NULL && !str_parse_int(limit_text, 1, INT64_MAX, &limit))
        return err_field(err, "limit", "limit must be a whole number, 1 or more");
    if (limit > SBX_GATEWAY_LIST_MAX)
        limit = SBX_GATEWAY_LIST_MAX;
    ids = page_of(g, request_arena(req), after != NULL ? after : "", (size_t)limit,
                  request_query_get(req, "probes", NULL) != NULL, &count);
    answer = json_object();
    list = json_array();
    for (size_t i = 0; i < count && i < (size_t)limit; i++) {
        json_t *j = gateway_sandbox_json(g, ids[i]);

        if (j != NULL) /* it may have gone since */
            (void)json_array_append_new(list, j);
    }
    json_put_new(answer, "sandboxes", list);
    if (count > (size_t)limit)
        json_put_str(answer, "next", ids[limit - 1]);
    response_json(res, 200, NULL, answer);
    return SBX_OK;
}

static enum sbx_code route_health(struct request *req, struct response *res, struct sbx_err *err)
{
    struct gateway *g = request_owner(req);
    bool stopping;

    (void)pthread_mutex_lock(&g->lock);
    stopping = g->stopping;
    (void)pthread_mutex_unlock(&g->lock);
    if (stopping)
        return err_set(err, SBX_E_UNAVAILABLE, "the region gateway is stopping");
    response_json(res, 200, NULL, json_pack("{s:s}", "status", "ok"));
    return SBX_OK;
}

/* It lives, whatever state it is in. */
static enum sbx_code route_alive(struct request *req, struct response *res, struct sbx_err *err)
{
    (void)req, (void)err;
    response_json(res, 200, NULL, json_pack("{s:s}", "status", "ok"));
    return SBX_OK;
}

/* It can take one more sandbox: what a load balancer or an operator's probe wants to know. */
static enum sbx_code route_ready(struct request *req, struct response *res, struct sbx_err *err)
{
    struct gateway *g = request_owner(req);
    bool full;

    (void)pthread_mutex_lock(&g->lock);
    full = g->live >= g->sandboxes_max;
    (void)pthread_mutex_unlock(&g->lock);
    if (full)
        return err_set(err, SBX_E_UNAVAILABLE, "the region holds as many sandboxes as it may");
    if (g->driver->ops->disk_free_mb(g->driver) < READY_DISK_MB)
        return err_set(err, SBX_E_UNAVAILABLE, "the region's disk is full");
    return route_health(req, res, err);
}

static enum sbx_code route_capacity(struct request *req, struct response *res, struct sbx_err *err)
{
    struct gateway *g = request_owner(req);
    struct sysinfo info = { 0 };
    struct relay_stats stats;
    json_t *j = json_object();

    (void)err;
    (void)sysinfo(&info);
    relay_stats(g->relay, &stats);
    (void)pthread_mutex_lock(&g->lock);
    json_put_int(j, "sandboxes", (int64_t)(g->live - g->warm));
    json_put_int(j, "warm", (int64_t)g->warm);
    (void)pthread_mutex_unlock(&g->lock);
    json_put_int(j, "sandboxesMax", (int64_t)g->sandboxes_max);
    json_put_int(j, "executions", (int64_t)stats.executions);
    json_put_int(j, "outputBytes", (int64_t)stats.output_bytes);
    json_put_int(j, "agents", (int64_t)stats.connected);
    json_put_int(j, "memoryMb", (int64_t)((uint64_t)info.totalram * info.mem_unit >> 20));
    json_put_int(j, "memoryFreeMb",
                 (int64_t)((uint64_t)(info.freeram + info.bufferram) * info.mem_unit >> 20));
    json_put_int(j, "diskFreeMb", g->driver->ops->disk_free_mb(g->driver));
    json_put_str(j, "driver", g->driver->ops->name);
    json_put_new(j, "features", g->driver->ops->features(g->driver));
    response_json(res, 200, NULL, j);
    return SBX_OK;
}

static enum sbx_code route_metrics(struct request *req, struct response *res, struct sbx_err *err)
{
    struct gateway *g = request_owner(req);
    struct buf text = BUF_INIT(METRICS_TEXT_MAX);

    if (!metrics_print(g->metrics, &text)) {
        buf_fini(&text);
        return err_set(err, SBX_E_INTERNAL, "the metrics did not fit");
    }
    response_buf(res, 200, "text/plain; version=0.0.4", &text);
    return SBX_OK;
}

static const struct route ROUTES[] = {
    { HTTP_PUT, "/v1/sandboxes/{id}", "deploy", GATEWAY_AUTH_REGION, HTTP_BODY_JSON, BODY_MAX,
      ROUTE_WORKER, route_deploy, NULL, NULL, NULL },
    { HTTP_GET, "/v1/sandboxes/{id}", "get", GATEWAY_AUTH_REGION, HTTP_BODY_NONE, 0,
      ROUTE_WORKER | ROUTE_QUIET, route_get, NULL, NULL, NULL },
    { HTTP_GET, "/v1/sandboxes", "list", GATEWAY_AUTH_REGION, HTTP_BODY_NONE, 0,
      ROUTE_WORKER | ROUTE_QUIET, route_list, NULL, NULL, NULL },
    { HTTP_DELETE, "/v1/sandboxes/{id}", "delete", GATEWAY_AUTH_REGION, HTTP_BODY_JSON, BODY_MAX,
      ROUTE_WORKER, route_delete, NULL, NULL, NULL },
    { HTTP_POST, "/v1/sandboxes/{id}/execute", "execute", GATEWAY_AUTH_REGION, HTTP_BODY_JSON,
      BODY_MAX, ROUTE_WORKER, gateway_route_execute, NULL, NULL, NULL },
    { HTTP_POST, "/v1/sandboxes/{id}/process", "process", GATEWAY_AUTH_PROCESS, HTTP_BODY_JSON,
      BODY_MAX, ROUTE_WORKER | ROUTE_QUIET, gateway_route_process, NULL, NULL, NULL },
    { HTTP_POST, "/v1/sandboxes/{id}/stop", "stop", GATEWAY_AUTH_REGION, HTTP_BODY_JSON, BODY_MAX,
      ROUTE_WORKER, route_stop, NULL, NULL, NULL },
    { HTTP_POST, "/v1/sandboxes/{id}/snapshot", "snapshot", GATEWAY_AUTH_REGION, HTTP_BODY_JSON,
      BODY_MAX, ROUTE_WORKER, route_snapshot, NULL, NULL, NULL },
    { HTTP_GET, "/v1/volumes", "volume_list", GATEWAY_AUTH_REGION, HTTP_BODY_NONE, 0,
      ROUTE_WORKER | ROUTE_QUIET, gateway_route_volume_list, NULL, NULL, NULL },
    { HTTP_PUT, "/v1/volumes/{name}", "volume_make", GATEWAY_AUTH_REGION, HTTP_BODY_JSON, BODY_MAX,
      ROUTE_WORKER, gateway_route_volume_make, NULL, NULL, NULL },
    { HTTP_DELETE, "/v1/volumes/{name}", "volume_purge", GATEWAY_AUTH_REGION, HTTP_BODY_JSON,
      BODY_MAX, ROUTE_WORKER, gateway_route_volume_purge, NULL, NULL, NULL },
    { HTTP_POST, "/v1/warm", "warm", GATEWAY_AUTH_REGION, HTTP_BODY_JSON, BODY_MAX, ROUTE_WORKER,
      route_warm, NULL, NULL, NULL },
    { HTTP_POST, "/v1/images", "image_import", GATEWAY_AUTH_REGION, HTTP_BODY_STREAM,
      (size_t)1 << 40, ROUTE_WORKER, gateway_route_image_import, gateway_route_image_piece, NULL,
      NULL },
    { HTTP_GET, "/v1/images", "image_list", GATEWAY_AUTH_REGION, HTTP_BODY_NONE, 0, ROUTE_WORKER,
      gateway_route_image_list, NULL, NULL, NULL },
    { HTTP_DELETE, "/v1/images", "image_remove", GATEWAY_AUTH_REGION, HTTP_BODY_NONE, 0,
      ROUTE_WORKER, gateway_route_image_remove, NULL, NULL, NULL },
    { HTTP_GET, "/v1/egress/denied", "denied", GATEWAY_AUTH_REGION, HTTP_BODY_NONE, 0,
      ROUTE_WORKER | ROUTE_QUIET, gateway_route_denied, NULL, NULL, NULL },
    { HTTP_GET, "/v1/capacity", "capacity", GATEWAY_AUTH_REGION, HTTP_BODY_NONE, 0,
      ROUTE_WORKER | ROUTE_QUIET, route_capacity, NULL, NULL, NULL },
    { HTTP_GET, "/v1/health", "health", GATEWAY_AUTH_OPEN, HTTP_BODY_NONE, 0,
      ROUTE_WORKER | ROUTE_QUIET, route_health, NULL, NULL, NULL },
    { HTTP_GET, "/healthz", "healthz", GATEWAY_AUTH_OPEN, HTTP_BODY_NONE, 0,
      ROUTE_INLINE | ROUTE_QUIET, route_alive, NULL, NULL, NULL },
    { HTTP_GET, "/readyz", "readyz", GATEWAY_AUTH_OPEN, HTTP_BODY_NONE, 0,
      ROUTE_WORKER | ROUTE_QUIET, route_ready, NULL, NULL, NULL },
    { HTTP_GET, "/metrics", "metrics", GATEWAY_AUTH_REGION, HTTP_BODY_NONE, 0,
      ROUTE_WORKER | ROUTE_QUIET, route_metrics, NULL, NULL, NULL },
};

const struct route_table gateway_route_table = { ROUTES, COUNT_OF(ROUTES) };
