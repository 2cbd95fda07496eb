#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "api/call.h"
#include "api/handlers.h"
#include "base/mem.h"
#include "base/str.h"
#include "region/jwks.h"
#include "store/trail.h"

enum { OPENAPI_MAX = 1024 * 1024, METRICS_TEXT_MAX = 4 * 1024 * 1024, WORKER_NAME_MAX = 32 };

enum { M_TOKENS, M_DATABASE, M_SANDBOXES, M_EXECUTIONS, M_DUE, M_LAG, M_WARM, M_INSTANCES };
static const struct metrics_def METRICS[] = {
    [M_TOKENS] = { "sandboxd_token_cache_entries",
                   METRICS_GAUGE,
                   "Tokens in the cache.",
                   { NULL } },
    [M_DATABASE] = { "sandboxd_database_up",
                     METRICS_GAUGE,
                     "1 when the database answered this scrape; without it the counts below are "
                     "old.",
                     { NULL } },
    [M_SANDBOXES] = { "sandboxd_sandboxes",
                      METRICS_GAUGE,
                      "Sandboxes by status, ended ones apart; the same on every control plane.",
                      { "status" } },
    [M_EXECUTIONS] = { "sandboxd_executions",
                       METRICS_GAUGE,
                       "Executions under way, of all control planes.",
                       { NULL } },
    [M_DUE] = { "sandboxd_due_rows", METRICS_GAUGE, "Sandboxes whose next step is due.", { NULL } },
    [M_LAG] = { "sandboxd_reconcile_lag_seconds",
                METRICS_GAUGE,
                "How late the oldest due step is, whole seconds.",
                { NULL } },
    [M_WARM] = { "sandboxd_warm_members",
                 METRICS_GAUGE,
                 "Members of all warm pools by state.",
                 { "state" } },
    [M_INSTANCES] = { "sandboxd_instances", METRICS_GAUGE, "Control planes that live.", { NULL } },
};

static void on_print(void *arg)
{
    struct api *api = arg;

    metrics_set(api->metrics, M_TOKENS, METRICS_PLAIN, (int64_t)api_tokens_count(api->tokens));
}

static enum sbx_code open_worker_keys(struct api *api, struct sbx_err *err)
{
    const struct jwks_config cfg = { .file = api->cfg.worker_keys_file,
                                     .url = api->cfg.worker_keys_url };

    if (cfg.file == NULL && cfg.url == NULL)
        return SBX_OK;
    if (cfg.file != NULL && cfg.url != NULL)
        return err_set(err, SBX_E_INVALID, "[openvibe] keys_file and jwks_url are both set");
    if (jwks_open(&cfg, api->cfg.net, &api->worker_keys, err) != SBX_OK)
        return err_wrap(err, "[openvibe] keys");
    return SBX_OK;
}

enum sbx_code api_new(const struct api_config *config, struct api **out, struct sbx_err *err)
{
    struct api *api = mem_zalloc(sizeof(*api));
    struct buf b = BUF_INIT(OPENAPI_MAX);

    api->cfg = *config;
    assert(pthread_rwlock_init(&api->attached_lock, NULL) == 0);
    api->cfg.store.url = mem_strdup(config->store.url);
    api->cfg.spool_dir = mem_strdup(config->spool_dir);
    api->tokens = api_tokens_new(config->token_cache_max, config->token_cache_s, config->rate_per_s,
                                 config->rate_burst);
    api->accesses = api_accesses_new(config->token_cache_max, config->token_cache_s);
    api->busy = api_busy_new(config->account_requests);
    api->issuers = api_issuers_new(config->net);
    if (open_worker_keys(api, err) != SBX_OK ||
        api_audit_start(&api->cfg.store, &api->audit, err) != SBX_OK) {
        api_free(api);
        return err->code;
    }
    api_print_openapi(&api->cfg.bounds, &b);
    api->openapi_len = b.len;
    api->openapi = buf_take(&b);
    api->metrics = metrics_register(config->metrics, METRICS, COUNT_OF(METRICS));
    if (config->metrics != NULL)
        metrics_on_print(config->metrics, on_print, api);
    *out = api;
    return SBX_OK;
}

void api_free(struct api *api)
{
    if (api == NULL)
        return;
    api_audit_stop(api->audit);
    jwks_close(api->worker_keys);
    api_issuers_free(api->issuers);
    api_busy_free(api->busy);
    api_accesses_free(api->accesses);
    api_tokens_free(api->tokens);
    assert(pthread_rwlock_destroy(&api->attached_lock) == 0);
    free(api->openapi);
    free((void *)(uintptr_t)api->cfg.store.url);
    free((void *)(uintptr_t)api->cfg.spool_dir);
    free(api);
}

void api_set_reconcile(struct api *api, struct reconcile *reconcile)
{
    api->reconcile = reconcile;
}

void api_set_runs(struct api *api, struct reconcile_runs *runs)
{
    api->runs = runs;
}

void api_detach(struct api *api)
{
    (void)pthread_rwlock_wrlock(&api->attached_lock);
    api->detached = true;
    (void)pthread_rwlock_unlock(&api->attached_lock);
}

bool api_continue(struct api *api, struct http_server *server, uint64_t ticket, request_fn *fn,
                  void *arg)
{
    bool ok;

    (void)pthread_rwlock_rdlock(&api->attached_lock);
    ok = !api->detached && request_continue(server, ticket, fn, arg);
    (void)pthread_rwlock_unlock(&api->attached_lock);
    return ok;
}

void *api_worker_open(void *owner)
{
    const struct api *api = owner;

    return store_conn_new(&api->cfg.store, "sandboxd-worker");
}

void api_worker_close(void *owner, void *worker)
{
    (void)owner;
    store_conn_free(worker);
}

void api_worker_settle(void *owner, void *worker)
{
    struct api *api = owner;

    if (!store_settle(worker))
        api_db_down(api);
}

void api_notice(struct api *api, const struct store_notice *notice)
{
    bool up = notice->kind == STORE_NOTICE_UP;

    switch (notice->kind) {
    case STORE_NOTICE_UP:
    case STORE_NOTICE_DOWN:
        api_tokens_enable(api->tokens, up);
        api_accesses_enable(api->accesses, up);
        api_issuers_changed(api->issuers);
        break;
    case STORE_NOTICE_REVOKED:
        api_tokens_revoke(api->tokens, notice->payload);
        break;
    case STORE_NOTICE_CONFIG:
        if (strcmp(notice->payload, "access") == 0)
            api_accesses_forget(api->accesses);
        if (strcmp(notice->payload, "issuer") == 0) {
            api_issuers_changed(api->issuers);
            api_tokens_revoke(api->tokens, "*");
        }
        break;
    case STORE_NOTICE_WAKE:
        break;
    }
}

void api_set_ready(struct api *api, bool ready)
{
    api->ready = ready;
}

void api_set_rate(struct api *api, int rate_per_s, int rate_burst, int account_requests)
{
    api_tokens_rate(api->tokens, rate_per_s, rate_burst);
    api_busy_limit(api->busy, account_requests);
}

char *api_json_text(struct arena *a, const json_t *j)
{
    struct buf b = BUF_INIT((size_t)4 * SBX_BODY_MAX); /* 1e5 is written as 100000.0 */
    char *out;

    assert(json_write(&b, j)); /* a part of a body, which is not larger */
    out = arena_strndup(a, b.data, b.len);
    buf_fini(&b);
    return out;
}

/* --- what needs no account --------------------------------------------- */

enum sbx_code api_openapi(struct api_call *c, struct sbx_err *err)
{
    (void)err;
    response_bytes(c->res, 200, "application/json", c->api->openapi, c->api->openapi_len);
    return SBX_OK;
}

enum sbx_code api_health(struct request *req, struct response *res, struct sbx_err *err)
{
    (void)req, (void)err;
    response_json(res, 200, NULL, json_pack("{s:s}", "status", "ok"));
    return SBX_OK;
}

enum sbx_code api_ready(struct api_call *c, struct sbx_err *err)
{
    int64_t now_ms;

    if (!c->api->ready)
        return err_set(err, SBX_E_UNAVAILABLE, "The database schema is not ready.");
    if (api_db_begin(c->api, c->req, err) != SBX_OK ||
        api_db_end(c->api, c->db, store_conn_check(c->db, &now_ms, err)) != SBX_OK)
        return err->code;
    response_json(c->res, 200, NULL, json_pack("{s:s}", "status", "ok"));
    return SBX_OK;
}

/* What only the database knows. A scrape must work without it too. */
static void count_rows(struct api *api, struct request *req)
{
    struct sbx_err err = { .code = SBX_OK };
    struct store_counts n;
    struct store_conn *db = request_worker(req);
    bool up = api_db_begin(api, req, &err) == SBX_OK &&
              api_db_end(api, db, store_counts_get(db, &n, &err)) == SBX_OK;

    metrics_set(api->metrics, M_DATABASE, METRICS_PLAIN, up);
    if (!up)
        return;
    for (int s = SANDBOX_REQUESTED; s < SANDBOX_STATUS_COUNT; s++)
        if (n.by_status[s] >= 0)
            metrics_set(api->metrics, M_SANDBOXES,
                        METRICS_LABELS(sandbox_status_name((enum sandbox_status)s)),
                        n.by_status[s]);
    metrics_set(api->metrics, M_EXECUTIONS, METRICS_PLAIN, n.executions);
    metrics_set(api->metrics, M_DUE, METRICS_PLAIN, n.due);
    metrics_set(api->metrics, M_LAG, METRICS_PLAIN, n.oldest_due_ms / 1000);
    metrics_set(api->metrics, M_WARM, METRICS_LABELS("starting"), n.warm_starting);
    metrics_set(api->metrics, M_WARM, METRICS_LABELS("ready"), n.warm_ready);
    metrics_set(api->metrics, M_INSTANCES, METRICS_PLAIN, n.instances);
}

enum sbx_code api_metrics(struct request *req, struct response *res, struct sbx_err *err)
{
    struct api *api = request_owner(req);
    SCOPED_BUF struct buf b = BUF_INIT(METRICS_TEXT_MAX);

    if (api->cfg.metrics != NULL)
        count_rows(api, req);
    if (api->cfg.metrics == NULL || !metrics_print(api->cfg.metrics, &b))
        return err_set(err, SBX_E_INTERNAL, "the metrics do not fit");
    response_buf(res, 200, "text/plain; version=0.0.4", &b);
    return SBX_OK;
}
