#include <stdlib.h>

#include "api/handlers.h"
#include "api/runs.h"
#include "base/mem.h"
#include "region/github.h"

/* The recheck with GitHub: the request waits, no worker and no connection does. */

enum { DEFER_MARGIN_MS = 5000 };

struct recheck {
    struct api *api;
    struct http_server *server;
    uint64_t ticket;
    api_then_fn *then;
    struct sbx_err refusal; /* code SBX_OK: GitHub agrees */
};

static enum sbx_code refused(struct api_call *c, struct sbx_err *err)
{
    *err = *(const struct sbx_err *)c->note;
    return err->code;
}

static enum sbx_code go_on(struct request *req, struct response *res, void *arg,
                           struct sbx_err *err)
{
    struct recheck rc = *(struct recheck *)arg;
    struct api_call *c = request_slot(req);

    free(arg);
    if (rc.refusal.code == SBX_OK)
        return api_call_resume(req, res, rc.then, err);
    if (sbx_code_retry(rc.refusal.code)) {
        json_put_bool(response_error_data(res), "retryable", true);
        response_retry_after(res, 5);
    }
    c->note = arena_memdup(c->a, &rc.refusal, sizeof(rc.refusal));
    return api_call_resume(req, res, refused, err);
}

/* On the calls thread. */
static void on_answer(void *arg, const struct sbx_err *err)
{
    struct recheck *rc = arg;

    if (err != NULL)
        rc->refusal = *err;
    if (!api_continue(rc->api, rc->server, rc->ticket, go_on, rc))
        free(rc);
}

enum sbx_code api_recheck(struct api_call *c, const struct store_connection *k,
                          const char *repository, api_then_fn *then, struct sbx_err *err)
{
    SCOPED_SECRET struct secret *credential = NULL;
    struct sbx_err why = { 0 };
    struct recheck *rc;

    if (c->api->cfg.seal == NULL || k->github_sealed.data == NULL ||
        seal_open(c->api->cfg.seal,
                  store_seal_context(c->a, "connections.github_sealed", k->connection_id),
                  k->github_sealed.data, k->github_sealed.len, &credential, &why) != SBX_OK)
        return err_set(err, SBX_E_GITHUB_CREDENTIAL, "The owner's GitHub credential is not there.");
    rc = mem_zalloc(sizeof(*rc));
    rc->api = c->api;
    rc->server = request_server(c->req);
    rc->then = then;
    c->deferred = true;
    request_set_slot(c->req, c);
    rc->ticket = request_defer(c->req, GITHUB_TIMEOUT_MS + DEFER_MARGIN_MS, NULL);
    if (github_check_start(c->api->cfg.net, c->api->cfg.github_url, c->api->cfg.github_ca_file,
                           repository, credential, on_answer, rc, &why) != SBX_OK)
        on_answer(rc, &why);
    return SBX_OK;
}
