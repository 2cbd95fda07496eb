#include "api/call.h"

#include <string.h>

#include "base/log.h"
#include "base/time.h"

enum {
    DB_DOWN_KEEP_MS = 300, /* how long one failure speaks for the next requests */
};

enum sbx_code api_db_begin(struct api *api, struct request *req, struct sbx_err *err)
{
    if (time_mono_ms() < api->db_down_until_ms)
        return err_set(err, SBX_E_UNAVAILABLE, "The database does not answer now.");
    store_conn_budget(request_worker(req), API_DB_BUDGET_MS);
    return SBX_OK;
}

void api_db_down(struct api *api)
{
    api->db_down_until_ms = time_mono_ms() + DB_DOWN_KEEP_MS;
}

enum sbx_code api_db_end(struct api *api, const struct store_conn *db, enum sbx_code code)
{
    if (code == SBX_E_UNAVAILABLE && !store_conn_up(db))
        api_db_down(api);
    return code;
}

/* Whether the call has asked the database decides whether its failure speaks for the next ones:
 * one that was only turned away must not prolong the outage. */
static enum sbx_code call_db_begin(struct api_call *c, struct sbx_err *err)
{
    c->db_asked = api_db_begin(c->api, c->req, err) == SBX_OK;
    return err->code;
}

static void decref(void *j)
{
    json_decref(j);
}

static enum sbx_code read_query(struct api_call *c, json_t *args, struct sbx_err *err)
{
    size_t count = 0;
    const struct request_query *query = request_query(c->req, &count);

    for (size_t i = 0; i < count; i++) {
        if (api_schema_add_query(c->spec->query, args, query[i].name, query[i].value, err) !=
            SBX_OK)
            return err->code;
    }
    return api_schema_check(c->spec->query, &c->api->cfg.bounds, args, err);
}

/* The shape of the request: query, or body beside a query that has no parameter. */
static enum sbx_code read_args(struct api_call *c, struct sbx_err *err)
{
    json_t *query = json_object();
    json_t *body = NULL;

    arena_defer(c->a, decref, query);
    c->args = query;
    if (read_query(c, query, err) != SBX_OK)
        return err->code;
    if (c->spec->body != NULL) {
        if (request_json(c->req, &body, err) != SBX_OK)
            return err->code;
        if (body == NULL) {
            body = json_object();
            arena_defer(c->a, decref, body);
        }
        if (api_schema_check(c->spec->body, &c->api->cfg.bounds, body, err) != SBX_OK)
            return err->code;
        c->args = body;
    }
    return c->spec->shape != NULL ? c->spec->shape(c->args, err) : SBX_OK;
}

/* 403 account access, 403 entitlement, 403 role, in that order; then 429 for its other requests. */
static enum sbx_code check_access(struct api_call *c, struct sbx_err *err)
{
    if (api_access_get(c, err) != SBX_OK)
        return err->code;
    if (!c->access.member)
        return err_set(err, SBX_E_ACCOUNT_FORBIDDEN, "You have no access to this account.");
    if (!c->access.entitled)
        return err_set(err, SBX_E_NOT_ENTITLED, "Sandboxes are not enabled for this account.");
    if ((c->access.roles & c->spec->roles) == 0)
        return err_set(err, SBX_E_ROLE_FORBIDDEN,
                       "This needs an admin or technical member of the account.");
    return api_busy_enter(c->api->busy, c->account_id, c->a, err);
}

void api_call_audit(struct api_call *c, enum sbx_code code)
{
    struct store_audit row = {
        .account_id = c->account_id[0] != '\0' ? c->account_id : NULL,
        .actor = c->caller->actor,
        .action = c->spec->action,
        .object_kind = c->object_kind,
        .object_id = c->object_id,
        .request_id = request_id(c->req),
        .outcome = code == SBX_OK ? "ok" : sbx_code_name(code),
        .exit_code = c->exit_code,
        .duration_ms = c->duration_ms,
    };

    if (c->spec->action != NULL && c->ran)
        api_audit_add(c->api->audit, &row);
}

static uint32_t permission_set(const char *list)
{
    uint32_t set = 0;
    char one[32];

    while (*list != '\0') {
        size_t n = strcspn(list, ",");

        if (n < sizeof(one)) {
            memcpy(one, list, n);
            one[n] = '\0';
            set |= scopes_permission_parse(one);
        }
        list += n + (list[n] == ',');
    }
    return set;
}

/* 403 suspended installation right after the token kind, then 403 permission (contract 6). */
static enum sbx_code check_principal(struct api_call *c, struct sbx_err *err)
{
    struct store_principal *p = arena_zalloc(c->a, sizeof(*p));

    if (call_db_begin(c, err) != SBX_OK ||
        store_principal_get(c->db, c->caller->principal_id, c->a, p, err) != SBX_OK)
        return err->code;
    c->account_id = p->installation.account_id;
    if (!p->installation.active)
        return err_set(err, SBX_E_INSTALLATION_SUSPENDED, "The installation is suspended.");
    if ((permission_set(p->permissions) & c->spec->permission) == 0)
        return err_set(err, SBX_E_INSUFFICIENT_SCOPE, "The principal needs the %s permission.",
                       scopes_permission_name(c->spec->permission));
    c->principal = p;
    return api_busy_enter(c->api->busy, c->account_id, c->a, err);
}

static enum sbx_code run(struct api_call *c, struct sbx_err *err)
{
    enum api_auth_kind auth = (enum api_auth_kind)request_route(c->req)->auth;

    if (auth == API_AUTH_PRINCIPAL) {
        if (check_principal(c, err) != SBX_OK || read_args(c, err) != SBX_OK)
            return err->code;
        c->ran = true;
        return c->spec->handler(c, err);
    }
    if (read_args(c, err) != SBX_OK)
        return err->code;
    c->account_id = json_get_str(c->args, "accountId", "");
    if (auth == API_AUTH_NONE)
        return c->spec->handler(c, err);
    if (call_db_begin(c, err) != SBX_OK)
        return err->code;
    if ((auth == API_AUTH_PERSON || auth == API_AUTH_OWNER) && check_access(c, err) != SBX_OK)
        return err->code;
    c->ran = true;
    c->object_id = json_get_str(c->args, "sandboxId", NULL);
    if (c->object_id != NULL)
        request_log(c->req, "sandboxId", c->object_id);
    return c->spec->handler(c, err);
}

enum sbx_code api_dispatch(struct request *req, struct response *res, struct sbx_err *err)
{
    const struct route *route = request_route(req);
    struct api_call *c = arena_zalloc(request_arena(req), sizeof(*c));
    enum sbx_code code;

    c->api = request_owner(req);
    c->req = req;
    c->res = res;
    c->a = request_arena(req);
    c->db = request_worker(req);
    c->spec = route->spec;
    c->caller = request_caller(req);
    c->account_id = "";
    c->exit_code = -1;
    c->duration_ms = -1;
    code = run(c, err);
    if (!c->deferred && c->caller != NULL) {
        if (c->db_asked)
            code = api_db_end(c->api, c->db, code);
        api_call_audit(c, code);
    }
    return code;
}

void api_error(struct request *req, struct response *res, const struct sbx_err *err)
{
    if (sbx_code_http(err->code) == 401)
        response_header(res, "WWW-Authenticate", "Bearer");
    if (sbx_code_http(err->code) == 500)
        log_err(LOG_ERROR, "request failed", err, LOG_S("requestId", request_id(req)));
    response_envelope_error(req, res, err);
}
