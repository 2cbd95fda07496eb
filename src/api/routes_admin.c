#include "api/fields.h"
#include "api/fields_admin.h"
#include "api/handlers.h"
#include "api/runs.h"
#include "api/workers.h"

/* The operator's routes on the admin socket (docs/api-admin.md). */

#define A "/admin/v1"

enum { IMAGE_MAX_GIB = 64 };

#define GET_ROW(path_, name_, query_, fn)                                                          \
    {                                                                                              \
        .method = HTTP_GET, .path = A path_, .name = (name_), .auth = API_AUTH_OPERATOR,           \
        .body = HTTP_BODY_NONE, .handler = api_dispatch, .spec = &(const struct api_spec)          \
        {                                                                                          \
            .query = (query_), .handler = (fn)                                                     \
        }                                                                                          \
    }
#define POST_ROW(path_, name_, body_, action_, shape_, fn)                                         \
    {                                                                                              \
        .method = HTTP_POST, .path = A path_, .name = (name_), .auth = API_AUTH_OPERATOR,          \
        .body = HTTP_BODY_JSON, .body_max = SBX_BODY_MAX, .handler = api_dispatch,                 \
        .spec = &(const struct api_spec)                                                           \
        {                                                                                          \
            .body = (body_), .action = (action_), .shape = (shape_), .handler = (fn)               \
        }                                                                                          \
    }

/* clang-format off */
static const struct route WHO[] = {
    POST_ROW("/account/create", "account_create", &API_ADMIN_ACCOUNT_CREATE, "account.create", NULL, api_account_create),
    GET_ROW("/accounts", "account_list", &API_ADMIN_PAGE_QUERY, api_account_list),
    GET_ROW("/account", "account_show", &API_ADMIN_ACCOUNT_QUERY, api_account_show),
    POST_ROW("/account/entitle", "account_entitle", &API_ADMIN_ENTITLE, "account.entitle", NULL, api_account_entitle),
    POST_ROW("/account/quota", "account_quota", &API_ADMIN_QUOTA, "account.quota", NULL, api_account_quota),
    POST_ROW("/user/create", "user_create", &API_ADMIN_USER_CREATE, "user.create", NULL, api_user_create),
    GET_ROW("/users", "user_list", &API_ADMIN_PAGE_QUERY, api_user_list),
    POST_ROW("/member/add", "member_add", &API_ADMIN_MEMBER_ADD, "member.add", NULL, api_member_add),
    POST_ROW("/member/remove", "member_remove", &API_ADMIN_MEMBER_NAMED, "member.remove", NULL, api_member_remove),
    GET_ROW("/members", "member_list", &API_ADMIN_ACCOUNT_QUERY, api_member_list),
    POST_ROW("/token/create", "token_create", &API_ADMIN_TOKEN_CREATE, "token.create", api_token_shape, api_token_create),
    GET_ROW("/tokens", "token_list", &API_ADMIN_PAGE_QUERY, api_token_list),
    POST_ROW("/token/revoke", "token_revoke", &API_ADMIN_TOKEN_NAMED, "token.revoke", NULL, api_token_revoke),
    POST_ROW("/app/create", "app_create", &API_ADMIN_APP_CREATE, "app.create", NULL, api_app_create),
    GET_ROW("/apps", "app_list", &API_ADMIN_ACCOUNT_QUERY, api_app_list),
    POST_ROW("/issuer/add", "issuer_add", &API_ADMIN_ISSUER_ADD, "issuer.add", api_issuer_shape, api_issuer_add),
    POST_ROW("/issuer/link", "issuer_link", &API_ADMIN_ISSUER_LINK, "issuer.link", NULL, api_issuer_link),
    POST_ROW("/issuer/remove", "issuer_remove", &API_ADMIN_ISSUER_NAMED, "issuer.remove", NULL, api_issuer_remove),
    GET_ROW("/issuers", "issuer_list", &API_ADMIN_NOTHING, api_issuer_list),
};

static const struct route WHERE[] = {
    POST_ROW("/region/create", "region_create", &API_ADMIN_REGION_CREATE, "region.create", api_region_shape, api_region_create),
    GET_ROW("/regions", "region_list", &API_ADMIN_NOTHING, api_region_list),
    POST_ROW("/region/update", "region_update", &API_ADMIN_REGION_UPDATE, "region.update", api_region_shape, api_region_update),
    POST_ROW("/region/grant", "region_grant", &API_ADMIN_REGION_ACCESS, "region.grant", NULL, api_region_grant),
    POST_ROW("/region/deny", "region_deny", &API_ADMIN_REGION_ACCESS, "region.deny", NULL, api_region_deny),
    POST_ROW("/region/enable", "region_enable", &API_ADMIN_REGION_NAMED, "region.enable", NULL, api_region_enable),
    POST_ROW("/region/disable", "region_disable", &API_ADMIN_REGION_NAMED, "region.disable", NULL, api_region_disable),
    POST_ROW("/backend/create", "backend_create", &API_ADMIN_BACKEND_CREATE, "backend.create", api_backend_shape, api_backend_create),
    GET_ROW("/backends", "backend_list", &API_ADMIN_ACCOUNT_QUERY, api_backend_list),
    POST_ROW("/registry/create", "registry_create", &API_ADMIN_REGISTRY_CREATE, "registry.create", NULL, api_registry_create),
    GET_ROW("/registries", "registry_list", &API_ADMIN_ACCOUNT_QUERY, api_registry_list),
    POST_ROW("/registry/remove", "registry_remove", &API_ADMIN_REGISTRY_NAMED, "registry.remove", NULL, api_registry_remove),
    GET_ROW("/images", "image_list", &API_ADMIN_IMAGE_QUERY, api_image_list),
    POST_ROW("/image/remove", "image_remove", &API_ADMIN_IMAGE_NAMED, "image.remove", NULL, api_image_remove),
    { .method = HTTP_POST, .path = A "/image/import", .name = "image_import",
      .auth = API_AUTH_OPERATOR, .body = HTTP_BODY_STREAM,
      .body_max = (size_t)IMAGE_MAX_GIB << 30, .handler = api_dispatch, .on_body = api_image_body,
      .spec = &(const struct api_spec){ .query = &API_ADMIN_IMAGE_IMPORT_QUERY,
                                        .action = "image.import", .handler = api_image_import } },
};

static const struct route WHAT[] = {
    GET_ROW("/sandboxes", "admin_sandboxes", &API_ADMIN_SANDBOXES_QUERY, api_admin_sandboxes),
    POST_ROW("/sandbox/terminate", "admin_terminate", &API_ADMIN_SANDBOX_NAMED, "sandbox.terminate", NULL, api_admin_terminate),
    GET_ROW("/status", "status", &API_ADMIN_NOTHING, api_admin_status),
    GET_ROW("/why", "why", &API_ADMIN_SANDBOX_NAMED, api_admin_why),
    GET_ROW("/audit", "audit", &API_ADMIN_AUDIT_QUERY, api_admin_audit),
    POST_ROW("/migrate", "migrate", &API_ADMIN_NOTHING, "schema.migrate", NULL, api_admin_migrate),
    GET_ROW("/doctor", "doctor", &API_ADMIN_NOTHING, api_admin_doctor),
    GET_ROW("/states", "states", &API_ADMIN_NOTHING, api_admin_states),
    { .method = HTTP_GET, .path = "/metrics", .name = "metrics", .auth = API_AUTH_OPERATOR,
      .flags = ROUTE_QUIET, .handler = api_metrics },
    { .method = HTTP_GET, .path = "/healthz", .name = "healthz", .auth = API_AUTH_NONE,
      .flags = ROUTE_INLINE | ROUTE_QUIET, .handler = api_health },
    { .method = HTTP_GET, .path = "/readyz", .name = "readyz", .auth = API_AUTH_NONE,
      .flags = ROUTE_QUIET, .handler = api_dispatch,
      .spec = &(const struct api_spec){ .handler = api_ready } },
};
/* clang-format on */

const struct route_table API_ADMIN[] = {
    { WHO, COUNT_OF(WHO) },
    { WHERE, COUNT_OF(WHERE) },
    { WHAT, COUNT_OF(WHAT) },
    { API_RUN_ADMIN_ROUTES, API_RUN_ADMIN_ROUTE_COUNT },
    { API_WORKER_ADMIN_ROUTES, API_WORKER_ADMIN_ROUTE_COUNT },
};
const size_t API_ADMIN_COUNT = COUNT_OF(API_ADMIN);
