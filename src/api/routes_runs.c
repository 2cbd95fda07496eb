#include "api/fields.h"
#include "api/fields_admin.h"
#include "api/handlers.h"
#include "api/runs.h"

/* Routes of personal Warren runs: the owner's, the orchestrator's, the operator's. */

#define P "/api/public/v1"
#define R P "/sandbox-orchestrator/codex-runs"
#define A "/admin/v1"

/* A user token of the owner only: an administrator's token names another user, and a delegated
 * token is not the owner (contract 6). */
#define OWNER(method_, path_, name_, query_, body_, answer_, act, status_, fn)                     \
    {                                                                                              \
        .method = (method_), .path = P "/solution-connections" path_, .name = (name_),             \
        .auth = API_AUTH_OWNER, .body = (method_) == HTTP_GET ? HTTP_BODY_NONE : HTTP_BODY_JSON,   \
        .body_max = (method_) == HTTP_GET ? 0 : SBX_BODY_MAX, .handler = api_dispatch,             \
        .spec = &(const struct api_spec)                                                           \
        {                                                                                          \
            .roles = (method_) == HTTP_GET ? ROLES_ANY : ROLES_WRITE, .query = (query_),           \
            .body = (body_), .answer = (answer_), .action = (act), .status = { (status_) },        \
            .handler = (fn), .summary =

#define RUN(method_, path_, name_, permission_, body_, answer_, act, fn)                           \
    {                                                                                              \
        .method = (method_), .path = R path_, .name = (name_), .auth = API_AUTH_PRINCIPAL,         \
        .body = (method_) == HTTP_GET ? HTTP_BODY_NONE : HTTP_BODY_JSON,                           \
        .body_max = (method_) == HTTP_GET ? 0 : SBX_BODY_MAX, .handler = api_dispatch,             \
        .spec = &(const struct api_spec)                                                           \
        {                                                                                          \
            .permission = (permission_), .body = (body_), .answer = (answer_), .action = (act),    \
            .status = { 200 }, .handler = (fn), .summary =
#define END                                                                                        \
    }                                                                                              \
    }

/* clang-format off */
const struct route API_RUN_ROUTES[API_RUN_ROUTE_COUNT] = {
    OWNER(HTTP_POST, "/save", "connection_save", NULL, &API_CONNECTION_SAVE, &API_CONNECTION_ANSWER,
          "connection.save", 200, api_connection_save)
        "Save the owner's connection", .errors = { SBX_E_NOT_FOUND, SBX_E_CONNECTION_BUSY } END,
    OWNER(HTTP_GET, "", "connection_list", &API_CONNECTIONS_QUERY, NULL, &API_CONNECTIONS_ANSWER,
          NULL, 200, api_connection_list)
        "List the owner's connections" END,
    OWNER(HTTP_POST, "/sign-in", "connection_sign_in", NULL, &API_CONNECTION_SIGN_IN,
          &API_CONNECTION_ANSWER, "connection.sign-in", 200, api_connection_sign_in)
        "Store a sign-in as the next generation", .errors = { SBX_E_NOT_FOUND, SBX_E_CONNECTION_BUSY } END,
    OWNER(HTTP_POST, "/reserve", "connection_reserve", NULL, &API_CONNECTION_RESERVE, &API_RESERVED,
          "connection.reserve", 201, api_connection_reserve)
        "Reserve one private task", .errors = { SBX_E_NOT_FOUND, SBX_E_CONNECTION_BUSY, SBX_E_CONFLICT,
            SBX_E_REPOSITORY_NOT_PRIVATE, SBX_E_REPOSITORY_NO_PUSH, SBX_E_GITHUB_CREDENTIAL } END,
    OWNER(HTTP_POST, "/reset", "connection_reset", NULL, &API_CONNECTION_NAMED,
          &API_CONNECTION_ANSWER, "connection.reset", 200, api_connection_reset)
        "Reset the connection", .errors = { SBX_E_NOT_FOUND } END,

    RUN(HTTP_POST, "/claim", "run_claim", PERMISSION_SANDBOX_CREATE, &API_RUN_CLAIM, &API_RUN_ANSWER,
        "run.claim", api_run_claim)
        "Claim the owner's reserved task", .errors = { SBX_E_GRANT_DENIED, SBX_E_OWNER_ACCESS_LOST,
            SBX_E_REPOSITORY_NOT_PRIVATE, SBX_E_REPOSITORY_NO_PUSH, SBX_E_GITHUB_CREDENTIAL,
            SBX_E_RUN_COMPLETED, SBX_E_INSTALLATION_SUSPENDED } END,
    RUN(HTTP_GET, "/{runId}", "run_get", PERMISSION_SANDBOX_READ, NULL, &API_RUN_ANSWER, NULL, api_run_get)
        "Recover the receipt of a claim", .errors = { SBX_E_RUN_NOT_FOUND, SBX_E_RUN_COMPLETED,
            SBX_E_INSTALLATION_SUSPENDED } END,
    RUN(HTTP_POST, "/{runId}/sandbox", "holder_post", PERMISSION_SANDBOX_CREATE, &API_RUN_EMPTY,
        &API_HOLDER_ANSWER, "run.holder", api_holder_post)
        "Prepare and allocate the holder", .errors = { SBX_E_RUN_NOT_FOUND, SBX_E_RUN_COMPLETED,
            SBX_E_OWNER_ACCESS_LOST, SBX_E_REPOSITORY_NOT_PRIVATE, SBX_E_REPOSITORY_NO_PUSH,
            SBX_E_GITHUB_CREDENTIAL, SBX_E_INSTALLATION_SUSPENDED } END,
    RUN(HTTP_GET, "/{runId}/sandbox", "holder_get", PERMISSION_SANDBOX_READ, NULL, &API_HOLDER_ANSWER,
        NULL, api_holder_get)
        "Phase of the holder", .errors = { SBX_E_RUN_NOT_FOUND, SBX_E_OWNER_ACCESS_LOST, SBX_E_INSTALLATION_SUSPENDED } END,
    RUN(HTTP_DELETE, "/{runId}/sandbox", "holder_delete", PERMISSION_SANDBOX_TERMINATE, &API_RUN_EMPTY,
        &API_HOLDER_ANSWER, "run.cleanup", api_holder_delete)
        "End the holder and settle the sign-in", .errors = { SBX_E_RUN_NOT_FOUND, SBX_E_OWNER_ACCESS_LOST, SBX_E_CHANGING,
            SBX_E_INSTALLATION_SUSPENDED } END,
    RUN(HTTP_POST, "/{runId}/execution", "run_execution_post", PERMISSION_SANDBOX_CREATE,
        &API_RUN_EXECUTION_START, &API_RUN_EXECUTION_ANSWER, "run.execute", api_run_execution_post)
        "Start the fixed entrypoint, once", .errors = { SBX_E_RUN_NOT_FOUND, SBX_E_OWNER_ACCESS_LOST, SBX_E_CALLBACK_TOKEN_DENIED,
            SBX_E_SANDBOX_NOT_READY, SBX_E_ENTRYPOINT_MISSING, SBX_E_RUN_COMPLETED, SBX_E_CONFLICT,
            SBX_E_INSTALLATION_SUSPENDED } END,
    RUN(HTTP_GET, "/{runId}/execution", "run_execution_get", PERMISSION_SANDBOX_READ, NULL,
        &API_RUN_EXECUTION_ANSWER, NULL, api_run_execution_get)
        "What became of the execution", .errors = { SBX_E_RUN_NOT_FOUND, SBX_E_OWNER_ACCESS_LOST, SBX_E_INSTALLATION_SUSPENDED } END,
};

#define OPERATOR(method_, path_, name_, query_, body_, act, fn)                                    \
    {                                                                                              \
        .method = (method_), .path = A path_, .name = (name_), .auth = API_AUTH_OPERATOR,          \
        .body = (method_) == HTTP_GET ? HTTP_BODY_NONE : HTTP_BODY_JSON,                           \
        .body_max = (method_) == HTTP_GET ? 0 : SBX_BODY_MAX, .handler = api_dispatch,             \
        .spec = &(const struct api_spec)                                                           \
        {                                                                                          \
            .query = (query_), .body = (body_), .action = (act), .handler = (fn)                   \
        }                                                                                          \
    }

const struct route API_RUN_ADMIN_ROUTES[API_RUN_ADMIN_ROUTE_COUNT] = {
    OPERATOR(HTTP_POST, "/installation/create", "installation_create", NULL, &API_ADMIN_INSTALLATION_CREATE,
             "installation.create", api_installation_create),
    OPERATOR(HTTP_POST, "/installation/suspend", "installation_suspend", NULL, &API_ADMIN_INSTALLATION_NAMED,
             "installation.suspend", api_installation_suspend),
    OPERATOR(HTTP_POST, "/installation/activate", "installation_activate", NULL, &API_ADMIN_INSTALLATION_NAMED,
             "installation.activate", api_installation_activate),
    OPERATOR(HTTP_GET, "/installations", "installation_list", &API_ADMIN_ACCOUNT_QUERY, NULL, NULL,
             api_installation_list),
    OPERATOR(HTTP_POST, "/principal/create", "principal_create", NULL, &API_ADMIN_PRINCIPAL_CREATE,
             "principal.create", api_principal_create),
};
/* clang-format on */
