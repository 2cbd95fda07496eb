#include "api/call.h"

#include "base/mem.h"
#include "base/scoped.h"

/* Deferred calls: the request waits, no worker and no connection does. */

enum { DEFER_MARGIN_MS = 5000 }; /* the waiter ends first; this is for a waiter that never does */

struct waiter {
    struct api *api;
    struct http_server *server;
    uint64_t ticket;
    api_then_fn *then;
};

enum sbx_code api_call_resume(struct request *req, struct response *res, api_then_fn *then,
                              struct sbx_err *err)
{
    struct api_call *c = request_slot(req);
    enum sbx_code code;

    c->res = res;
    c->db = request_worker(req);
    c->deferred = false;
    code = api_db_begin(c->api, req, err);
    if (code == SBX_OK)
        code = api_db_end(c->api, c->db, then(c, err));
    if (!c->deferred)
        api_call_audit(c, code);
    return code;
}

static enum sbx_code go_on(struct request *req, struct response *res, void *arg,
                           struct sbx_err *err)
{
    SCOPED_FREE struct waiter *w = arg;

    return api_call_resume(req, res, w->then, err);
}

/* On the reconciler's thread. */
static void on_status(void *arg, bool reached, enum sandbox_status status, int64_t generation,
                      const struct sbx_err *err)
{
    struct waiter *w = arg;

    (void)reached, (void)status, (void)generation, (void)err; /* `then` reads the row */
    if (!api_continue(w->api, w->server, w->ticket, go_on, w))
        free(w);
}

enum sbx_code api_wait_status(struct api_call *c, const char *sandbox_id, uint32_t statuses,
                              int64_t timeout_ms, api_then_fn *then)
{
    struct waiter *w = mem_zalloc(sizeof(*w));
    struct sbx_err err = { 0 };

    c->deferred = true;
    request_set_slot(c->req, c);
    w->api = c->api;
    w->server = request_server(c->req);
    w->then = then;
    w->ticket = request_defer(c->req, timeout_ms + DEFER_MARGIN_MS, NULL);
    if (reconcile_await(c->api->reconcile, sandbox_id, statuses, timeout_ms, on_status, w, &err) !=
        SBX_OK)
        on_status(w, false, SANDBOX_STATUS_NONE, 0, &err);
    return SBX_OK;
}
