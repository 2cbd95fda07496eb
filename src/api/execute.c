#include <string.h>

#include "api/handlers.h"
#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "domain/valid.h"
#include "sbx/gateway.h"
#include "sbx/limits.h"
#include "store/executions.h"

/* Execute (contract 4).  The row begins, the region runs the command, and neither a
 * worker nor a connection waits for it: the answer continues the request.  The command
 * line, its environment and output are in no table, log or metric. */

enum { DEFER_MARGIN_MS = 15000 }; /* the region's own deadline speaks first */

/* What the calls thread hands on. */
struct ended {
    struct api *api;
    struct http_server *server;
    uint64_t ticket;
    char execution_id[ID_SIZE];
    char sandbox_id[ID_SIZE];
    enum sbx_code code;
    bool answered;
    int retry_after_s;
    char message[200];
    char field[64];
    struct gateway_client_output *output;
};

static void ended_free(struct ended *e)
{
    gateway_client_output_free(e->output);
    free(e);
}
DEFINE_SCOPED(struct ended, ended_free)

static enum sbx_code refuse_state(struct api_call *c, struct sbx_err *err)
{
    switch ((int)err->code) {
    case SBX_E_SANDBOX_SUSPENDED:
    case SBX_E_SANDBOX_NOT_READY:
    case SBX_E_SANDBOX_NOT_FOUND:
    case SBX_E_AGENT_MISSING:
    case SBX_E_AGENT_UNREACHABLE:
        json_put_bool(response_error_data(c->res), "retryable", sbx_code_retry(err->code));
        break;
    default:
        break;
    }
    return err->code;
}

/* The region's refusal as the contract's. What is not on the list was lost under way: an exit code
 * is never invented. */
static enum sbx_code failure(struct api_call *c, const struct ended *e, struct sbx_err *err)
{
    switch ((int)e->code) {
    case SBX_E_INVALID:
        return e->field[0] != '\0' ? err_field(err, e->field, "%s", e->message)
                                   : err_set(err, SBX_E_INVALID, "%s", e->message);
    case SBX_E_PATH_ESCAPE:
        return err_set(err, SBX_E_PATH_ESCAPE, "%s", e->message);
    case SBX_E_SANDBOX_SUSPENDED:
        return err_set(err, SBX_E_SANDBOX_SUSPENDED, "The sandbox was suspended.");
    case SBX_E_SANDBOX_NOT_READY:
    case SBX_E_STALE:
        return err_set(err, SBX_E_SANDBOX_NOT_READY, "The sandbox is not ready.");
    case SBX_E_SANDBOX_NOT_FOUND:
    case SBX_E_NOT_FOUND:
        return err_set(err, SBX_E_SANDBOX_NOT_FOUND, "The sandbox does not exist in the runtime.");
    case SBX_E_AGENT_MISSING:
        return err_set(err, SBX_E_AGENT_MISSING, "The sandbox was deployed without an agent.");
    case SBX_E_BUSY:
        response_retry_after(c->res, e->retry_after_s > 0 ? e->retry_after_s : 1);
        return err_set(err, SBX_E_BUSY, "Too many commands are under way.");
    default:
        return err_set(err, SBX_E_AGENT_UNREACHABLE,
                       "The sandbox runtime was lost while the command ran.");
    }
}

static enum sbx_code success(struct api_call *c, const struct ended *e, struct sbx_err *err)
{
    json_t *body = NULL;

    if (gateway_client_output_json(e->output, &body, err) != SBX_OK)
        return err->code;
    c->exit_code = (int)json_get_int(body, "exitCode", -1);
    c->duration_ms = json_get_int(body, "durationMs", -1);
    response_ok(c->res, 200, body);
    return SBX_OK;
}

/* On a worker again. */
static enum sbx_code settle(struct request *req, struct response *res, void *arg,
                            struct sbx_err *err)
{
    SCOPED(ended_free_p) struct ended *e = arg;
    struct api_call *c = request_slot(req);
    enum sbx_code code;

    c->res = res;
    c->db = request_worker(req);
    c->deferred = false;
    /* The row first: a client that has its answer finds the sandbox READY. */
    store_conn_budget(c->db, STORE_STATEMENT_TIMEOUT_MS);
    reconcile_execute_ended(c->api->reconcile, c->db, e->sandbox_id, e->execution_id, e->code);
    code = e->code == SBX_OK ? success(c, e, err) : failure(c, e, err);
    if (code != SBX_OK)
        code = refuse_state(c, err);
    api_call_audit(c, code);
    return code;
}

/* On the calls thread. A request that is gone (stop, deadline) leaves its row to be settled by the
 * reconciler, which asks the region. */
static void on_answer(void *arg, const struct gateway_client_answer *answer)
{
    struct ended *e = arg;

    e->code = answer->code;
    e->answered = answer->answered;
    e->retry_after_s = answer->retry_after_s;
    e->output = answer->output;
    (void)str_copy(e->message, sizeof(e->message), answer->message != NULL ? answer->message : "");
    (void)str_copy(e->field, sizeof(e->field), answer->field != NULL ? answer->field : "");
    if (!api_continue(e->api, e->server, e->ticket, settle, e))
        ended_free(e);
}

/* While the command runs, maybe for minutes, what it was asked with is of no use any more. */
static void forget_request(struct api_call *c)
{
    c->account_id = arena_strdup(c->a, c->account_id);
    c->object_id = arena_strdup(c->a, c->object_id);
    c->args = NULL;
    request_body_release(c->req);
}

static enum sbx_code start(struct api_call *c, const struct store_sandbox *row,
                           const char *execution_id, const char *cwd, int timeout_s)
{
    struct ended *e = mem_zalloc(sizeof(*e));
    const struct region_execute spec = {
        .execution_id = e->execution_id,
        .generation = row->generation,
        .command = json_object_get(c->args, "command"),
        .cwd = cwd,
        .env = json_object_get(c->args, "envVars"),
        .timeout_s = timeout_s,
        .output_max = (size_t)c->api->cfg.output_max,
    };
    struct sbx_err err = { 0 };

    (void)str_copy(e->execution_id, sizeof(e->execution_id), execution_id);
    (void)str_copy(e->sandbox_id, sizeof(e->sandbox_id), row->sandbox_id);
    e->api = c->api;
    e->server = request_server(c->req);
    c->deferred = true;
    request_set_slot(c->req, c);
    e->ticket = request_defer(
        c->req, ((int64_t)timeout_s + SBX_GATEWAY_EXECUTE_GRACE_S) * 1000 + DEFER_MARGIN_MS, NULL);
    if (gateway_client_execute(c->api->cfg.gateway, row->region, row->sandbox_id, &spec, on_answer,
                               e, &err) != SBX_OK)
        on_answer(e, &(struct gateway_client_answer){ .code = err.code, .message = err.msg });
    forget_request(c);
    return SBX_OK;
}

enum sbx_code api_execute_shape(const json_t *args, struct sbx_err *err)
{
    const char *cwd = json_get_str(args, "cwd", NULL);
    char scratch[VALID_PATH_MAX];

    return cwd == NULL ? SBX_OK : valid_cwd(cwd, scratch, err);
}

enum sbx_code api_sandbox_execute(struct api_call *c, struct sbx_err *err)
{
    const char *asked = json_get_str(c->args, "cwd", NULL);
    int timeout_s = (int)json_get_int(c->args, "timeoutSeconds", SBX_EXEC_TIMEOUT_DEFAULT_S);
    char execution_id[ID_SIZE];
    char *cwd = NULL;
    const struct store_execution_new in = {
        .execution_id = execution_id,
        .account_id = c->account_id,
        .sandbox_id = json_get_str(c->args, "sandboxId", ""),
        .instance = reconcile_instance(c->api->reconcile),
        .actor = c->caller->actor,
        .request_id = request_id(c->req),
        .timeout_ms = (int64_t)timeout_s * 1000,
    };
    struct store_sandbox row;

    c->object_kind = "sandbox";
    if (asked != NULL) { /* the default is the runtime's: it knows the revision's workingDir */
        cwd = arena_zalloc(c->a, VALID_PATH_MAX);
        if (valid_cwd(asked, cwd, err) != SBX_OK)
            return err->code;
    }
    id_new(execution_id);
    if (store_execution_begin(c->db, &in, c->a, &row, err) != SBX_OK)
        return refuse_state(c, err);
    return start(c, &row, execution_id, cwd, timeout_s);
}
