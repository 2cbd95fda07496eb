#include "api/auth.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api/call.h"
#include "api/token.h"
#include "api/workers.h"
#include "base/str.h"
#include "base/time.h"
#include "region/jose.h"

/* The first three checks of the contract's order: 401 token, 403 kind, 403 scope. */

static enum sbx_code no_token(struct sbx_err *err)
{
    return err_set(err, SBX_E_UNAUTHENTICATED, "Send a valid token in the Authorization header.");
}

static enum sbx_code check_kind(const struct route *route, const struct api_caller *caller,
                                struct sbx_err *err)
{
    bool person = caller->kind == STORE_TOKEN_USER || caller->kind == STORE_TOKEN_MCP ||
                  caller->kind == STORE_TOKEN_OAUTH;
    bool principal = caller->kind == STORE_TOKEN_PRINCIPAL;

    if (route->auth == API_AUTH_PERSON && person)
        return SBX_OK;
    if (route->auth == API_AUTH_OWNER && caller->kind == STORE_TOKEN_USER)
        return SBX_OK;
    if (route->auth == API_AUTH_PRINCIPAL && principal)
        return SBX_OK;
    if (caller->kind == STORE_TOKEN_ENV)
        return err_set(err, SBX_E_TOKEN_KIND, "Environment tokens are not accepted here.");
    return err_set(err, SBX_E_TOKEN_KIND, "This kind of token is not accepted here.");
}

static enum sbx_code check_scope(const struct route *route, const struct api_caller *caller,
                                 struct sbx_err *err)
{
    const struct api_spec *spec = route->spec;

    /* A user token acts with its user's roles; scopes bind the delegated kinds only. */
    if (caller->kind != STORE_TOKEN_MCP && caller->kind != STORE_TOKEN_OAUTH)
        return SBX_OK;
    if ((caller->scopes & spec->scope) == spec->scope)
        return SBX_OK;
    return err_set(err, SBX_E_INSUFFICIENT_SCOPE, "The token needs the %s scope.",
                   scopes_name(spec->scope));
}

static enum http_auth settle(struct request *req, const struct route *route,
                             const struct api_caller *found, struct sbx_err *err)
{
    if (check_kind(route, found, err) != SBX_OK || check_scope(route, found, err) != SBX_OK)
        return HTTP_AUTH_DENY;
    request_set_caller(req, arena_memdup(request_arena(req), found, sizeof(*found)));
    request_log(req, "actor", found->actor);
    return HTTP_AUTH_ALLOW;
}

static void from_row(const struct store_token *row, struct api_caller *out)
{
    *out = (struct api_caller){ .kind = row->kind };
    (void)str_copy(out->token_id, sizeof(out->token_id), row->token_id);
    if (row->user_id != NULL)
        (void)str_copy(out->user_id, sizeof(out->user_id), row->user_id);
    if (row->principal_id != NULL)
        (void)str_copy(out->principal_id, sizeof(out->principal_id), row->principal_id);
    if (row->user_id != NULL)
        (void)snprintf(out->actor, sizeof(out->actor), "user:%s", row->user_id);
    else if (row->principal_id != NULL)
        (void)snprintf(out->actor, sizeof(out->actor), "principal:%s", row->principal_id);
    if (row->scopes != NULL) {
        char list[160]; /* all four scopes, comma-separated, fit */

        (void)str_copy(list, sizeof(list), row->scopes);
        for (char *p = list; *p != '\0'; p++) {
            if (*p == ',')
                *p = ' ';
        }
        out->scopes = scopes_parse_list(list);
    }
}

/* On a worker: asks the store. */
static enum sbx_code look_up(struct api *api, struct request *req, const char *token, size_t len,
                             bool opaque, const unsigned char digest[SHA256_LEN], uint64_t epoch,
                             struct api_caller *out, struct sbx_err *err)
{
    struct arena *a = request_arena(req);
    struct store_conn *db = request_worker(req);
    int64_t expires_in_ms = 0;
    struct store_token row;

    if (api_db_begin(api, req, err) != SBX_OK)
        return err->code;
    if (opaque) {
        if (api_db_end(api, db, store_token_find(db, digest, a, &row, err)) != SBX_OK)
            return err->code;
        from_row(&row, out);
        if (row.expires_at_ms != 0) {
            expires_in_ms = row.expires_at_ms - time_unix_ms();
            if (expires_in_ms <= 0)
                expires_in_ms = 1; /* the database said it lives; do not keep it */
        }
    } else {
        if (api_db_end(api, db,
                       api_issuers_judge(api->issuers, db, arena_strndup(a, token, len), a, out,
                                         &expires_in_ms, err)) != SBX_OK)
            return err->code;
    }
    api_tokens_put(api->tokens, digest, out, expires_in_ms, epoch);
    return SBX_OK;
}

static enum http_auth judge_token(struct api *api, struct request *req, const struct route *route,
                                  struct sbx_err *err)
{
    unsigned char digest[SHA256_LEN];
    enum api_token_kind kind = API_TOKEN_NONE;
    struct api_caller found;
    const char *token;
    uint64_t epoch;
    size_t len, times = 0;
    bool opaque;

    if (!api_token_from_header(request_header(req, "Authorization", &times), &token, &len) ||
        times != 1) {
        (void)no_token(err);
        return HTTP_AUTH_DENY;
    }
    opaque = api_token_parse(token, len, &kind);
    if (!opaque && (len > JOSE_TOKEN_MAX || memchr(token, '.', len) == NULL)) {
        (void)no_token(err); /* neither ours nor a JWT: refused without a look-up */
        return HTTP_AUTH_DENY;
    }
    api_token_digest(token, len, digest);
    switch (api_tokens_get(api->tokens, digest, &found, &epoch)) {
    case API_FOUND_YES:
        return settle(req, route, &found, err);
    case API_FOUND_TOO_FAST:
        (void)!err_set(err, SBX_E_RATE_LIMITED, "Too many requests with this token.");
        return HTTP_AUTH_DENY;
    case API_FOUND_NO:
        break;
    }
    if (request_worker(req) == NULL)
        return HTTP_AUTH_ON_WORKER;
    if (look_up(api, req, token, len, opaque, digest, epoch, &found, err) != SBX_OK) {
        /* One sentence for unknown, revoked and made-up: nothing is told apart. */
        return HTTP_AUTH_DENY;
    }
    return settle(req, route, &found, err);
}

enum http_auth api_auth_reader(struct api *api, struct request *req, struct sbx_err *err)
{
    static const struct api_spec SPEC = { .scope = SCOPE_READ };
    static const struct route READER = { .auth = API_AUTH_PERSON, .spec = &SPEC };

    return judge_token(api, req, &READER, err);
}

static enum http_auth judge_peer(struct api *api, struct request *req, struct sbx_err *err)
{
    const struct request_peer *peer = request_peer(req);
    struct api_caller *caller;
    bool ok = peer->local && (peer->uid == 0 || peer->uid == geteuid());

    for (size_t i = 0; peer->local && i < api->cfg.admin_uid_count; i++)
        ok = ok || api->cfg.admin_uids[i] == peer->uid;
    if (!ok) {
        (void)!err_set(err, SBX_E_FORBIDDEN, "The admin socket is for operators.");
        return HTTP_AUTH_DENY;
    }
    caller = arena_zalloc(request_arena(req), sizeof(*caller));
    caller->uid = peer->uid;
    (void)snprintf(caller->actor, sizeof(caller->actor), "operator:uid=%u", (unsigned)peer->uid);
    request_set_caller(req, caller);
    request_log(req, "actor", caller->actor);
    return HTTP_AUTH_ALLOW;
}

enum http_auth api_auth(void *owner, struct request *req, const struct route *route,
                        struct sbx_err *err)
{
    struct api *api = owner;

    switch ((enum api_auth_kind)route->auth) {
    case API_AUTH_NONE:
        return HTTP_AUTH_ALLOW;
    case API_AUTH_PERSON:
    case API_AUTH_OWNER:
    case API_AUTH_PRINCIPAL:
        return judge_token(api, req, route, err);
    case API_AUTH_WORKER:
        return api_worker_auth(api, req, route, err);
    case API_AUTH_OPERATOR:
        return judge_peer(api, req, err);
    case API_AUTH_UNSET:
        break;
    }
    (void)!err_set(err, SBX_E_INTERNAL, "a route without auth");
    return HTTP_AUTH_DENY;
}
