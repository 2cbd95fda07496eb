#include "api/render.h"

json_t *api_render_account(const struct store_account *r)
{
    json_t *j = json_object();

    json_put_str(j, "accountId", r->account_id);
    json_put_str(j, "name", r->name);
    json_put_bool(j, "sandboxesEnabled", r->entitled);
    json_put_int(j, "activeQuota", r->active_quota);
    json_put_time(j, "createdAt", r->created_at_ms);
    return j;
}

json_t *api_render_user(const struct store_user *r)
{
    json_t *j = json_object();

    json_put_str(j, "userId", r->user_id);
    json_put_str(j, "email", r->email);
    json_put_str(j, "subject", r->subject);
    json_put_time(j, "createdAt", r->created_at_ms);
    return j;
}

json_t *api_render_member(const struct store_member *r)
{
    json_t *j = json_object();

    json_put_str(j, "accountId", r->account_id);
    json_put_str(j, "userId", r->user_id);
    json_put_str(j, "email", r->email);
    json_put_new(j, "roles", api_render_list(r->roles));
    json_put_time(j, "createdAt", r->created_at_ms);
    return j;
}

json_t *api_render_token(const struct store_token *r)
{
    json_t *j = json_object();

    json_put_str(j, "tokenId", r->token_id);
    json_put_str(j, "kind", store_token_kind_name(r->kind));
    json_put_str(j, "userId", r->user_id);
    json_put_str(j, "accountId", r->account_id);
    json_put_str(j, "principalId", r->principal_id);
    json_put_new(j, "scopes", api_render_list(r->scopes));
    json_put_str(j, "name", r->name);
    json_put_time(j, "createdAt", r->created_at_ms);
    json_put_time(j, "expiresAt", r->expires_at_ms);
    json_put_time(j, "revokedAt", r->revoked_at_ms);
    json_put_time(j, "lastUsedAt", r->last_used_at_ms);
    return j;
}

json_t *api_render_app(const struct store_app *r)
{
    json_t *j = json_object();

    json_put_str(j, "appId", r->app_id);
    json_put_str(j, "accountId", r->account_id);
    json_put_str(j, "name", r->name);
    json_put_time(j, "createdAt", r->created_at_ms);
    return j;
}

json_t *api_render_region(const struct store_region *r)
{
    json_t *j = json_object();

    json_put_str(j, "region", r->region);
    json_put_str(j, "url", r->url);
    json_put_str(j, "socket", r->socket);
    json_put_bool(j, "sandboxesEnabled", r->sandboxes);
    json_put_bool(j, "enabled", r->enabled);
    json_put_time(j, "createdAt", r->created_at_ms);
    return j;
}

json_t *api_render_backend(const struct store_backend *r)
{
    json_t *j = json_object();

    json_put_str(j, "backendId", r->backend_id);
    json_put_str(j, "accountId", r->account_id);
    json_put_str(j, "region", r->region);
    json_put_str(j, "kind", r->kind);
    json_put_str(j, "path", r->path);
    json_put_str(j, "endpoint", r->endpoint);
    json_put_str(j, "bucket", r->bucket);
    json_put_str(j, "prefix", r->prefix);
    json_put_str(j, "s3Region", r->s3_region);
    json_put_time(j, "createdAt", r->created_at_ms);
    return j;
}

json_t *api_render_registry(const struct store_registry *r)
{
    json_t *j = json_object();

    json_put_str(j, "registryId", r->registry_id);
    json_put_str(j, "accountId", r->account_id);
    json_put_str(j, "host", r->host);
    json_put_str(j, "username", r->username);
    json_put_time(j, "createdAt", r->created_at_ms);
    return j;
}

json_t *api_render_issuer(const struct store_issuer *r)
{
    json_t *j = json_object();

    json_put_str(j, "issuer", r->issuer);
    json_put_str(j, "audience", r->audience);
    json_put_str(j, "jwksUrl", r->jwks_url);
    if (r->jwks != NULL) {
        SCOPED_JSON json_t *jwks = json_from_text(r->jwks);

        json_put_int(j, "keys", (int64_t)json_array_size(json_object_get(jwks, "keys")));
    }
    json_put_time(j, "createdAt", r->created_at_ms);
    return j;
}

json_t *api_render_audit(const struct store_audit *r)
{
    json_t *j = json_object();

    json_put_int(j, "auditId", r->audit_id);
    json_put_time(j, "at", r->at_ms);
    json_put_str(j, "accountId", r->account_id);
    json_put_str(j, "actor", r->actor);
    json_put_str(j, "action", r->action);
    json_put_str(j, "objectKind", r->object_kind);
    json_put_str(j, "objectId", r->object_id);
    json_put_str(j, "requestId", r->request_id);
    json_put_str(j, "outcome", r->outcome);
    if (r->exit_code >= 0)
        json_put_int(j, "exitCode", r->exit_code);
    if (r->duration_ms >= 0)
        json_put_int(j, "durationMs", r->duration_ms);
    json_put_str(j, "runId", r->run_id);
    return j;
}
