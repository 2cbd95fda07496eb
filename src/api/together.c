#include "api/call.h"

#include "base/time.h"

/* Calls of one group: their statements are settled in one round trip, then each goes on by itself.
 * One whose outcome that did not tell is run again alone, by whichever worker is free. */

struct together {
    struct store_later *later;
    api_then_fn *then, *alone;
    int64_t until_ms; /* the answer is due: what the group took is not given twice (case 44) */
};

static enum sbx_code run_alone(struct request *req, struct response *res, void *arg,
                               struct sbx_err *err)
{
    const struct together *t = arg;
    struct api_call *c = request_slot(req);
    int64_t left_ms = t->until_ms - time_mono_ms();
    enum sbx_code code;

    c->res = res;
    c->db = request_worker(req);
    c->deferred = false;
    code = api_db_begin(c->api, req, err);
    if (code == SBX_OK) {
        store_conn_budget(c->db, left_ms > 0 ? left_ms : 1);
        code = api_db_end(c->api, c->db, t->alone(c, err));
    }
    if (!c->deferred)
        api_call_audit(c, code);
    return code;
}

static enum sbx_code go_on(struct request *req, struct response *res, void *arg,
                           struct sbx_err *err)
{
    const struct together *t = arg;
    struct api_call *c = request_slot(req);
    enum sbx_code code;
    uint64_t ticket;

    if (!store_later_done(t->later)) {
        ticket = request_defer(req, API_DB_BUDGET_MS, NULL);
        (void)request_continue(request_server(req), ticket, run_alone, arg);
        return SBX_OK;
    }
    c->res = res;
    c->db = request_worker(req);
    c->deferred = false;
    (void)!store_later_code(t->later, err);
    code = t->then(c, err);
    if (!c->deferred)
        api_call_audit(c, code);
    return code;
}

enum sbx_code api_together(struct api_call *c, struct store_later *later, api_then_fn *then,
                           api_then_fn *alone)
{
    struct together t = { later, then, alone, time_mono_ms() + API_DB_BUDGET_MS };

    c->deferred = true;
    request_set_slot(c->req, c);
    request_together(c->req, go_on, arena_memdup(c->a, &t, sizeof(t)));
    return SBX_OK;
}
