#include <stdio.h>
#include <string.h>

#include "api/handlers.h"
#include "api/runs.h"
#include "base/hash.h"

/* The owner's endpoints (contract 6): a connection, its sign-in, a reservation, the
 * reset.  The caller is the owner: another user's connection does not exist here,
 * whatever role asks. */

enum {
    GRANT_RANDOM_CHARS = 43, /* 256 bits in base 62 */
    GRANT_LIFE_S = 300,
};

static const char *text(const struct api_call *c, const char *name)
{
    return json_get_str(c->args, name, NULL);
}

json_t *api_render_connection(const struct store_connection *k)
{
    json_t *j = json_object();

    json_put_str(j, "connectionId", k->connection_id);
    json_put_str(j, "accountId", k->account_id);
    json_put_str(j, "installationId", k->installation_id);
    json_put_str(j, "ownerUserId", k->owner_user_id);
    json_put_str(j, "appId", k->app_id);
    json_put_str(j, "templateId", k->template_id);
    json_put_str(j, "region", k->region);
    json_put_str(j, "state", k->state);
    json_put_int(j, "authGeneration", k->auth_generation);
    if (k->operation_id != NULL) {
        json_t *op = json_object();

        json_put_str(op, "operationId", k->operation_id);
        json_put_str(op, "phase", run_phase_name(k->operation_phase));
        json_put_str(op, "runId", k->run_id);
        if (k->run_id == NULL)
            json_put_time(op, "expiresAt", k->grant_expires_at_ms);
        json_put_new(j, "operation", op);
    }
    json_put_time(j, "createdAt", k->created_at_ms);
    json_put_time(j, "updatedAt", k->updated_at_ms);
    return j;
}

static enum sbx_code answer(struct api_call *c, const struct store_connection *k)
{
    response_ok(c->res, 200, json_pack("{s:o}", "connection", api_render_connection(k)));
    return SBX_OK;
}

static enum sbx_code mine(struct api_call *c, struct store_connection *out, struct sbx_err *err)
{
    c->object_kind = "connection";
    c->object_id = text(c, "connectionId");
    return store_connection_get(c->db, c->account_id, c->caller->user_id, c->object_id, c->a, out,
                                err);
}

enum sbx_code api_seal(struct api_call *c, const char *column, const char *row_id,
                       const char *value, struct store_bytes *out, struct sbx_err *err)
{
    size_t len = strlen(value);
    struct buf sealed = BUF_INIT(len + SEAL_OVERHEAD_MAX);
    enum sbx_code code;

    if (c->api->cfg.seal == NULL)
        return err_set(err, SBX_E_UNAVAILABLE,
                       "Secrets cannot be stored: no sealing key is configured.");
    code = seal_close(c->api->cfg.seal, store_seal_context(c->a, column, row_id), value, len,
                      &sealed, err);
    if (code == SBX_OK) {
        out->data = arena_memdup(c->a, sealed.data, sealed.len);
        out->len = sealed.len;
    }
    buf_fini(&sealed);
    return code;
}

enum sbx_code api_connection_save(struct api_call *c, struct sbx_err *err)
{
    const struct store_connection_new in = {
        .account_id = c->account_id,
        .installation_id = text(c, "installationId"),
        .owner_user_id = c->caller->user_id,
        .app_id = text(c, "appId"),
        .template_id = text(c, "templateId"),
        .region = text(c, "region"),
    };
    struct store_connection k;

    c->object_kind = "connection";
    if (store_connection_save(c->db, &in, c->a, &k, err) != SBX_OK)
        return err->code;
    c->object_id = k.connection_id;
    return answer(c, &k);
}

enum sbx_code api_connection_list(struct api_call *c, struct sbx_err *err)
{
    struct store_connections rows;
    json_t *list = json_array();

    if (store_connection_list(c->db, c->account_id, c->caller->user_id, c->a, &rows, err) !=
        SBX_OK) {
        json_decref(list);
        return err->code;
    }
    for (size_t i = 0; i < rows.count; i++)
        (void)json_array_append_new(list, api_render_connection(&rows.rows[i]));
    response_ok(c->res, 200, json_pack("{s:o}", "connections", list));
    return SBX_OK;
}

enum sbx_code api_connection_sign_in(struct api_call *c, struct sbx_err *err)
{
    struct store_bytes auth, github;
    struct store_connection k;

    if (mine(c, &k, err) != SBX_OK ||
        api_seal(c, "connections.auth_sealed", k.connection_id, text(c, "authFile"), &auth, err) !=
            SBX_OK ||
        api_seal(c, "connections.github_sealed", k.connection_id, text(c, "githubToken"), &github,
                 err) != SBX_OK ||
        store_connection_sign_in(c->db, k.connection_id, &auth, &github, c->a, &k, err) != SBX_OK)
        return err->code;
    return answer(c, &k);
}

enum sbx_code api_connection_reset(struct api_call *c, struct sbx_err *err)
{
    struct store_connection k;
    bool dropped;

    if (mine(c, &k, err) != SBX_OK ||
        store_connection_reset(c->db, k.connection_id, &dropped, c->a, &k, err) != SBX_OK)
        return err->code;
    reconcile_runs_wake(c->api->runs);
    return answer(c, &k);
}

/* --- reserve ---------------------------------------------------------------- */

static enum sbx_code reserve(struct api_call *c, struct sbx_err *err)
{
    const json_t *task = json_object_get(c->args, "task");
    char operation_id[ID_SIZE], sandbox_id[ID_SIZE], random[GRANT_RANDOM_CHARS + 1];
    struct store_operation_new in = {
        .operation_id = operation_id,
        .sandbox_id = sandbox_id,
        .grant_life_s = GRANT_LIFE_S,
        .repository = json_get_str(task, "repository", NULL),
        .base_branch = json_get_str(task, "baseBranch", NULL),
        .model = json_get_str(task, "model", NULL),
        .token_limit = (int)json_get_int(task, "tokenLimit", 0),
        .time_limit_s = (int)json_get_int(task, "timeLimitSeconds", 0),
    };
    struct store_connection k;
    struct store_operation op;
    const char *grant;
    json_t *body;

    id_new(operation_id);
    id_new(sandbox_id);
    base62_random(random, GRANT_RANDOM_CHARS);
    grant = arena_printf(c->a, "sbxg_%s", random);
    sha256_of(grant, strlen(grant), in.grant_digest);
    if (mine(c, &k, err) != SBX_OK || /* again: GitHub took its time */
        api_seal(c, "operations.prompt_sealed", operation_id, json_get_str(task, "prompt", ""),
                 &in.prompt_sealed, err) != SBX_OK)
        return err->code;
    in.connection_id = k.connection_id;
    in.generation = k.auth_generation;
    if (store_operation_reserve(c->db, &in, c->a, &op, err) != SBX_OK)
        return err->code;
    body = json_object();
    json_put_str(body, "operationId", op.operation_id);
    json_put_str(body, "grant", grant);
    json_put_time(body, "expiresAt", op.grant_expires_at_ms);
    response_ok(c->res, 201, body);
    return SBX_OK;
}

enum sbx_code api_connection_reserve(struct api_call *c, struct sbx_err *err)
{
    struct store_connection k;

    if (mine(c, &k, err) != SBX_OK)
        return err->code;
    if (k.operation_id != NULL)
        return err_set(err, SBX_E_CONNECTION_BUSY,
                       "An operation of this connection is not finished.");
    if (strcmp(k.state, "READY") != 0)
        return err_set(err, SBX_E_CONFLICT, "The connection has no sign-in. Sign in first.");
    return api_recheck(c, &k, json_get_str(json_object_get(c->args, "task"), "repository", ""),
                       reserve, err);
}
