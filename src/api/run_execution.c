#include <string.h>

#include "api/handlers.h"
#include "api/runs.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/time.h"
#include "region/jose.h"

/* The one start of a run's fixed entrypoint, and what became of it.  The callback
 * tokens live in the request that brought them and go to the holder: they are in no
 * table and no log. */

enum {
    SKEW_MS = 30000,
    DEFER_MARGIN_MS = 10000,
    FILE_MODE = 0600,
};

static enum sbx_code answer_execution(struct api_call *c, const struct store_operation *op)
{
    json_t *j = json_object();
    bool exited = op->facts.execution == RUN_EXEC_EXITED;
    bool done = op->facts.phase == RUN_TERMINATED;

    json_put_str(j, "runId", op->run_id);
    json_put_str(j, "executionId", op->execution_id);
    json_put_str(j, "phase", run_execution_shown(op->facts.execution));
    if (exited || done)
        json_put_new(j, "exitCode",
                     op->facts.exit_known ? json_integer(op->facts.exit_code) : json_null());
    if (exited || done)
        json_put_str(j, "cause", run_cause_name(op->facts.cause));
    json_put_time(j, "startedAt", op->started_at_ms);
    json_put_time(j, "exitedAt", op->exited_at_ms);
    if (done) {
        json_put_str(j, "sandboxId", op->sandbox_id);
        json_put_bool(j, "cleanupComplete", true);
        json_put_bool(j, "authPreserved", op->auth_preserved);
    }
    response_ok(c->res, 200, j);
    return SBX_OK;
}

enum sbx_code api_run_execution_get(struct api_call *c, struct sbx_err *err)
{
    struct store_operation op;

    if (api_run_find(c, &op, err) != SBX_OK)
        return err->code;
    if (op.facts.phase == RUN_TERMINATED && api_run_owner_ok(c, &op, err) != SBX_OK)
        return err->code; /* receipts too need current access (seed) */
    return answer_execution(c, &op);
}

/* --- callback tokens ------------------------------------------------------------ */

static bool audience_is(const json_t *aud, const char *want)
{
    const json_t *one;
    size_t i;

    if (json_is_string(aud))
        return strcmp(json_string_value(aud), want) == 0;
    json_array_foreach((json_t *)(uintptr_t)aud, i, one)
    {
        if (json_is_string(one) && strcmp(json_string_value(one), want) == 0)
            return true;
    }
    return false;
}

static bool claims_fit(const json_t *claims, const char *run_id, const char *issuer,
                       const char *audience)
{
    int64_t now = time_unix_ms();
    const json_t *exp = json_object_get(claims, "exp");
    const json_t *nbf = json_object_get(claims, "nbf");

    return strcmp(json_get_str(claims, "runId", ""), run_id) == 0 &&
           strcmp(json_get_str(claims, "iss", ""), issuer) == 0 &&
           audience_is(json_object_get(claims, "aud"), audience) && json_is_integer(exp) &&
           json_integer_value(exp) > 0 && json_integer_value(exp) < INT64_MAX / 2000 &&
           now - json_integer_value(exp) * 1000 <= SKEW_MS &&
           (nbf == NULL || (json_is_integer(nbf) && json_integer_value(nbf) < INT64_MAX / 2000 &&
                            json_integer_value(nbf) * 1000 - now <= SKEW_MS));
}

static bool token_fits(const struct jose_keys *keys, const char *token, const char *run_id,
                       const char *issuer, const char *audience)
{
    SCOPED_JSON json_t *claims = NULL;

    return jose_verify(keys, JOSE_RS256 | JOSE_EDDSA, token, &claims) == JOSE_OK &&
           claims_fit(claims, run_id, issuer, audience);
}

static enum sbx_code check_tokens(struct api_call *c, const char *run_id, struct sbx_err *err)
{
    const struct store_installation *inst = &c->principal->installation;
    const char *callback = json_get_str(c->args, "callbackToken", "");
    const char *events = json_get_str(c->args, "eventIngestToken", "");
    struct jose_keys *keys = NULL;
    struct sbx_err why = { 0 };
    bool good =
        strcmp(callback, events) != 0 &&
        jose_keys_parse(inst->callback_key, strlen(inst->callback_key), &keys, &why) == SBX_OK &&
        token_fits(keys, callback, run_id, inst->control_host, "warren-callback") &&
        token_fits(keys, events, run_id, inst->control_host, "warren-events");

    jose_keys_free(keys);
    return good ? SBX_OK
                : err_set(err, SBX_E_CALLBACK_TOKEN_DENIED,
                          "A callback token is not valid for this run.");
}

/* --- the process call ------------------------------------------------------------- */

/* What the calls thread hands on. */
struct called {
    struct api *api;
    struct http_server *server;
    uint64_t ticket;
    api_then_fn *then;
    enum sbx_code code;
    bool answered, sent;
};

/* The answer that the continuation reads, in the call's arena. */
struct process_answer {
    enum sbx_code code;
    bool answered, sent;
    struct store_operation op; /* the row when the call began, in the call's arena */
};

static enum sbx_code go_on(struct request *req, struct response *res, void *arg,
                           struct sbx_err *err)
{
    struct called called = *(struct called *)arg;
    struct api_call *c = request_slot(req);
    struct process_answer *answer = c->note;

    free(arg);
    answer->code = called.code;
    answer->answered = called.answered;
    answer->sent = called.sent;
    return api_call_resume(req, res, called.then, err);
}

static void on_answer(void *arg, const struct gateway_client_answer *answer)
{
    struct called *called = arg;

    called->code = answer->code;
    called->answered = answer->answered;
    called->sent = answer->sent;
    if (!api_continue(called->api, called->server, called->ticket, go_on, called))
        free(called); /* the row says STARTING: the runs thread asks what became of it */
}

static enum sbx_code call_process(struct api_call *c, const struct store_operation *op,
                                  json_t *body_taken, api_then_fn *then)
{
    SCOPED_JSON json_t *body = body_taken;
    struct called *called = mem_zalloc(sizeof(*called));
    struct process_answer *note = arena_zalloc(c->a, sizeof(*note));
    struct sbx_err err = { 0 };

    note->op = *op;
    c->note = note;
    c->deferred = true;
    request_set_slot(c->req, c);
    called->api = c->api;
    called->server = request_server(c->req);
    called->then = then;
    called->ticket = request_defer(c->req, RECONCILE_RUN_CALL_S * 1000 + DEFER_MARGIN_MS, NULL);
    if (gateway_client_process(c->api->cfg.gateway, op->region, op->sandbox_id, body,
                               c->api->cfg.process_secret, RECONCILE_RUN_CALL_S, on_answer, called,
                               &err) != SBX_OK)
        on_answer(called, &(struct gateway_client_answer){ .code = err.code, .message = err.msg });
    return SBX_OK;
}

/* --- start -------------------------------------------------------------------------- */

static json_t *file(const char *path, const char *content)
{
    return json_pack("{s:s, s:s, s:i}", "path", path, "content", content, "mode", FILE_MODE);
}

static enum sbx_code open_sealed(struct api_call *c, const char *column, const char *row_id,
                                 const struct store_bytes *sealed, struct secret **out,
                                 struct sbx_err *err)
{
    struct sbx_err why = { 0 };

    if (c->api->cfg.seal == NULL || sealed->data == NULL ||
        seal_open(c->api->cfg.seal, store_seal_context(c->a, column, row_id), sealed->data,
                  sealed->len, out, &why) != SBX_OK)
        return err_set(err, SBX_E_CONFLICT, "The sign-in of this run is not there.");
    return SBX_OK;
}

/* Task, sign-in and credentials for the entrypoint: by private files and stdin, never argv or
 * environment. */
static enum sbx_code start_body(struct api_call *c, const struct store_operation *op, json_t **out,
                                struct sbx_err *err)
{
    SCOPED_SECRET struct secret *auth = NULL;
    SCOPED_SECRET struct secret *github = NULL;
    SCOPED_SECRET struct secret *prompt = NULL;
    SCOPED_JSON json_t *input = NULL;
    struct store_connection k;

    if (store_connection_get(c->db, NULL, NULL, op->connection_id, c->a, &k, err) != SBX_OK ||
        open_sealed(c, "connections.auth_sealed", k.connection_id, &k.auth_sealed, &auth, err) !=
            SBX_OK ||
        open_sealed(c, "connections.github_sealed", k.connection_id, &k.github_sealed, &github,
                    err) != SBX_OK ||
        open_sealed(c, "operations.prompt_sealed", op->operation_id, &op->prompt_sealed, &prompt,
                    err) != SBX_OK)
        return err->code;
    input = json_pack("{s:s, s:s, s:{s:s, s:s, s:s, s:i, s:i, s:s}, s:{s:s, s:s, s:s, s:s}}",
                      "runId", op->run_id, "controlHost", c->principal->installation.control_host,
                      "task", "repository", op->repository, "baseBranch", op->base_branch, "model",
                      op->model, "tokenLimit", op->token_limit, "timeLimitSeconds",
                      op->time_limit_s, "prompt", secret_reveal(prompt), "files", "auth",
                      RECONCILE_RUN_AUTH, "github", RECONCILE_RUN_GITHUB, "callbackToken",
                      RECONCILE_RUN_CALLBACK, "eventIngestToken", RECONCILE_RUN_EVENTS);
    *out = json_pack("{s:s, s:s, s:[s], s:s, s:[o, o, o, o]}", "action", "start", "executionId",
                     op->execution_id, "command", RECONCILE_RUN_ENTRYPOINT, "stdin",
                     api_json_text(c->a, input), "files",
                     file(RECONCILE_RUN_AUTH, secret_reveal(auth)),
                     file(RECONCILE_RUN_GITHUB, secret_reveal(github)),
                     file(RECONCILE_RUN_CALLBACK, json_get_str(c->args, "callbackToken", "")),
                     file(RECONCILE_RUN_EVENTS, json_get_str(c->args, "eventIngestToken", "")));
    if (*out == NULL)
        return err_set(err, SBX_E_CONFLICT, "The sign-in of this run is not there.");
    return SBX_OK;
}

/* The start was tried.  What the region said decides: running, never begun, or not known. */
static enum sbx_code started(struct api_call *c, struct sbx_err *err)
{
    const struct process_answer *answer = c->note;
    enum reconcile_run_outcome outcome =
        reconcile_run_outcome(answer->code, answer->answered, answer->sent);
    struct store_operation_move m = reconcile_run_started(&answer->op, outcome);
    struct store_operation op;
    struct sbx_err lost = { 0 };

    if (store_operation_move(c->db, &m, c->a, &op, &lost) != SBX_OK &&
        lost.code != SBX_E_CHANGING) {
        *err = lost;
        return err->code;
    }
    reconcile_runs_wake(c->api->runs);
    if (outcome == RECONCILE_RUN_NEVER && answer->code == SBX_E_ENTRYPOINT_MISSING)
        return err_set(err, SBX_E_ENTRYPOINT_MISSING, "The image has no %s.",
                       RECONCILE_RUN_ENTRYPOINT);
    if (outcome == RECONCILE_RUN_NEVER)
        return err_set(err, SBX_E_UNAVAILABLE,
                       "The region could not be reached; nothing was started.");
    if (lost.code != SBX_OK && api_run_find(c, &op, err) != SBX_OK)
        return err->code;
    return answer_execution(c, &op);
}

/* The entrypoint is there: write the start down, then try it, once. */
static enum sbx_code begin(struct api_call *c, struct sbx_err *err)
{
    const struct process_answer *answer = c->note;
    struct store_operation op;
    struct store_operation_move m;
    struct sbx_err lost = { 0 };
    char execution_id[ID_SIZE];
    json_t *body = NULL;

    if (answer->code == SBX_E_ENTRYPOINT_MISSING)
        return err_set(err, SBX_E_ENTRYPOINT_MISSING, "The image has no %s.",
                       RECONCILE_RUN_ENTRYPOINT);
    if (answer->code != SBX_OK)
        return err_set(err, SBX_E_UNAVAILABLE,
                       "The holder could not be reached; nothing was started.");
    if (api_run_find(c, &op, err) != SBX_OK)
        return err->code;
    if (!reconcile_run_may_start(&op))
        return answer_execution(c, &op);
    id_new(execution_id);
    op.execution_id = execution_id;
    if (start_body(c, &op, &body, err) != SBX_OK)
        return err->code;
    m = reconcile_run_start(&op, execution_id);
    if (store_operation_move(c->db, &m, c->a, &op, &lost) != SBX_OK) {
        json_decref(body);
        if (lost.code != SBX_E_CHANGING) {
            *err = lost;
            return err->code;
        }
        if (api_run_find(c, &op, err) != SBX_OK) /* another POST was first */
            return err->code;
        return answer_execution(c, &op);
    }
    return call_process(c, &op, body, started);
}

enum sbx_code api_run_execution_post(struct api_call *c, struct sbx_err *err)
{
    struct store_operation op;

    if (api_run_find(c, &op, err) != SBX_OK || check_tokens(c, op.run_id, err) != SBX_OK ||
        api_run_owner_ok(c, &op, err) != SBX_OK)
        return err->code;
    if (op.facts.execution != RUN_EXEC_PENDING)
        return answer_execution(c, &op);
    if (op.facts.phase == RUN_TERMINATED)
        return err_set(err, SBX_E_RUN_COMPLETED, "The run is completed.");
    if (op.facts.phase != RUN_READY)
        return err_set(err, SBX_E_SANDBOX_NOT_READY, "The holder is not ready.");
    return call_process(
        c, &op, json_pack("{s:s, s:[s]}", "action", "check", "command", RECONCILE_RUN_ENTRYPOINT),
        begin);
}
