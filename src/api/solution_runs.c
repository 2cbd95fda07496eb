#include <string.h>

#include "api/handlers.h"
#include "api/runs.h"
#include "base/hash.h"

/* The orchestrator's endpoints (seed "Personal Warren run admission"): claim and its
 * receipt, and the holder.  The caller's installation was found active before. */

json_t *api_render_run(const struct store_operation *op)
{
    json_t *j = json_object();

    json_put_str(j, "runId", op->run_id);
    json_put_str(j, "operationId", op->operation_id);
    json_put_str(j, "sandboxId", op->sandbox_id);
    json_put_str(j, "repository", op->repository);
    json_put_str(j, "baseBranch", op->base_branch);
    json_put_str(j, "model", op->model);
    json_put_int(j, "tokenLimit", op->token_limit);
    json_put_int(j, "timeLimitSeconds", op->time_limit_s);
    json_put_time(j, "claimedAt", op->claimed_at_ms);
    return j;
}

static enum sbx_code answer_run(struct api_call *c, const struct store_operation *op,
                                struct sbx_err *err)
{
    c->object_kind = "run";
    c->object_id = op->run_id;
    c->account_id = op->account_id;
    if (op->facts.phase == RUN_TERMINATED)
        return err_set(err, SBX_E_RUN_COMPLETED, "The run is completed.");
    response_ok(c->res, 200, json_pack("{s:o}", "run", api_render_run(op)));
    return SBX_OK;
}

enum sbx_code api_run_find(struct api_call *c, struct store_operation *out, struct sbx_err *err)
{
    if (store_operation_by_run(c->db, c->principal->installation_id, request_param(c->req, "runId"),
                               c->a, out, err) != SBX_OK)
        return err->code;
    c->object_kind = "run";
    c->object_id = out->run_id;
    c->account_id = out->account_id;
    return SBX_OK;
}

enum sbx_code api_run_owner_ok(struct api_call *c, const struct store_operation *op,
                               struct sbx_err *err)
{
    bool ok = false;

    if (store_operation_owner_ok(c->db, op->operation_id, &ok, err) != SBX_OK)
        return err->code;
    if (!ok)
        return err_set(err, SBX_E_OWNER_ACCESS_LOST,
                       "The owner has no access to the account any more.");
    return SBX_OK;
}

/* --- claim -------------------------------------------------------------------- */

static void grant_digest(const struct api_call *c, unsigned char out[SHA256_LEN])
{
    const char *grant = json_get_str(c->args, "grant", "");

    sha256_of(grant, strlen(grant), out);
}

/* After GitHub agreed: binds in one statement, which judges the grant again. */
static enum sbx_code bind(struct api_call *c, struct sbx_err *err)
{
    unsigned char digest[SHA256_LEN];
    struct store_operation op;

    grant_digest(c, digest);
    /* The owner again, before anything is bound: GitHub took its time. */
    if (store_operation_by_grant(c->db, c->principal->installation_id, digest,
                                 json_get_str(c->args, "runId", ""), c->a, &op, err) != SBX_OK ||
        api_run_owner_ok(c, &op, err) != SBX_OK ||
        store_operation_claim(c->db, c->principal->installation_id, c->principal->principal_id,
                              digest, json_get_str(c->args, "runId", ""), c->a, &op, err) != SBX_OK)
        return err->code;
    return answer_run(c, &op, err);
}

enum sbx_code api_run_claim(struct api_call *c, struct sbx_err *err)
{
    unsigned char digest[SHA256_LEN];
    struct store_operation op;
    struct store_connection k;

    c->object_kind = "run";
    c->object_id = json_get_str(c->args, "runId", NULL);
    grant_digest(c, digest);
    if (store_operation_by_grant(c->db, c->principal->installation_id, digest, c->object_id, c->a,
                                 &op, err) != SBX_OK)
        return err->code;
    if (op.facts.phase == RUN_TERMINATED)
        return answer_run(c, &op, err);
    if (api_run_owner_ok(c, &op, err) != SBX_OK)
        return err->code;
    if (op.facts.phase != RUN_RESERVED) /* a repeat: owner and principal again, not GitHub */
        return answer_run(c, &op, err);
    if (store_connection_get(c->db, NULL, NULL, op.connection_id, c->a, &k, err) != SBX_OK)
        return err->code;
    return api_recheck(c, &k, op.repository, bind, err);
}

enum sbx_code api_run_get(struct api_call *c, struct sbx_err *err)
{
    struct store_operation op;

    if (api_run_find(c, &op, err) != SBX_OK)
        return err->code;
    return answer_run(c, &op, err);
}

/* --- the holder ---------------------------------------------------------------- */

static enum sbx_code answer_holder(struct api_call *c, const struct store_operation *op,
                                   bool cleanup)
{
    json_t *j = json_object();
    bool done = op->facts.phase == RUN_TERMINATED;

    json_put_str(j, "sandboxId", op->sandbox_id);
    json_put_bool(j, "supervised", op->facts.phase == RUN_READY);
    json_put_str(j, "phase", run_phase_name(op->facts.phase));
    if (cleanup || done)
        json_put_bool(j, "cleanupComplete", done);
    if (done)
        json_put_bool(j, "authPreserved", op->auth_preserved);
    response_ok(c->res, 200, j);
    return SBX_OK;
}

/* After GitHub agreed: the first POST moves the operation on, a later one finds it moved. */
static enum sbx_code begin_holder(struct api_call *c, struct sbx_err *err)
{
    struct store_operation op;
    struct store_operation_move m;
    struct sbx_err lost = { 0 };

    if (api_run_find(c, &op, err) != SBX_OK)
        return err->code;
    if (op.facts.phase == RUN_CLAIMED) {
        if (api_run_owner_ok(c, &op, err) != SBX_OK)
            return err->code;
        m = reconcile_run_move(&op, RUN_EVENT_ASK_HOLDER, 0);
        if (store_operation_move(c->db, &m, c->a, &op, &lost) != SBX_OK) {
            if (lost.code != SBX_E_CHANGING) {
                *err = lost;
                return err->code;
            }
            if (api_run_find(c, &op, err) != SBX_OK) /* another POST was first */
                return err->code;
        }
    }
    reconcile_runs_wake(c->api->runs);
    return answer_holder(c, &op, false);
}

enum sbx_code api_holder_post(struct api_call *c, struct sbx_err *err)
{
    struct store_operation op;
    struct store_connection k;

    if (api_run_find(c, &op, err) != SBX_OK)
        return err->code;
    if (op.facts.phase == RUN_TERMINATED)
        return err_set(err, SBX_E_RUN_COMPLETED, "The run is completed.");
    if (op.facts.phase != RUN_CLAIMED && op.facts.phase != RUN_PREPARING &&
        op.facts.phase != RUN_ALLOCATING)
        return answer_holder(c, &op, false);
    if (api_run_owner_ok(c, &op, err) != SBX_OK ||
        store_connection_get(c->db, NULL, NULL, op.connection_id, c->a, &k, err) != SBX_OK)
        return err->code;
    if (op.facts.phase == RUN_CLAIMED)
        return api_recheck(c, &k, op.repository, begin_holder, err);
    return answer_holder(c, &op, false);
}

enum sbx_code api_holder_get(struct api_call *c, struct sbx_err *err)
{
    struct store_operation op;

    if (api_run_find(c, &op, err) != SBX_OK)
        return err->code;
    if (op.facts.phase == RUN_TERMINATED && api_run_owner_ok(c, &op, err) != SBX_OK)
        return err->code; /* receipts too need current access (seed) */
    return answer_holder(c, &op, false);
}

enum sbx_code api_holder_delete(struct api_call *c, struct sbx_err *err)
{
    struct store_operation op;
    struct store_operation_move m;

    if (api_run_find(c, &op, err) != SBX_OK)
        return err->code;
    if (op.facts.phase == RUN_TERMINATED && api_run_owner_ok(c, &op, err) != SBX_OK)
        return err->code; /* receipts too need current access (seed) */
    if (run_next(op.facts.phase, RUN_EVENT_CLEAN_UP) != NULL) {
        m = reconcile_run_move(&op, RUN_EVENT_CLEAN_UP, 0);
        if (store_operation_move(c->db, &m, c->a, &op, err) != SBX_OK)
            return err->code; /* 409, changing: retry the call */
        reconcile_runs_wake(c->api->runs);
    }
    return answer_holder(c, &op, true);
}
