#include "api/fields.h"
#include "api/handlers.h"
#include "api/runs.h"
#include "api/workers.h"

/* The public routes (seed: each operation's path, method and scope; contract 1 for
 * roles).  openapi.json is printed from these rows and the schemas they name. */

#define P "/api/public/v1"

/* The rule of contract 1: reading is for any member, everything that writes or executes for admin
 * or technical. */
#define READ(text, query_, answer_, fn)                                                            \
    &(const struct api_spec)                                                                       \
    {                                                                                              \
        .summary = (text), .scope = SCOPE_READ, .roles = ROLES_ANY, .query = (query_),             \
        .answer = (answer_), .status = { 200 }, .handler = (fn)
#define WRITE(text, scope_, body_, answer_, act, fn)                                               \
    &(const struct api_spec)                                                                       \
    {                                                                                              \
        .summary = (text), .scope = (scope_), .roles = ROLES_WRITE, .body = (body_),               \
        .answer = (answer_), .action = (act), .handler = (fn)
#define END }

#define GET_LANE_ROW(path_, name_, lane_, spec_)                                                   \
    {                                                                                              \
        .method = HTTP_GET, .path = P path_, .name = (name_), .auth = API_AUTH_PERSON,             \
        .body = HTTP_BODY_NONE, .flags = ROUTE_LANE(lane_), .handler = api_dispatch, .spec = spec_            \
    }
#define POST_LANE_ROW(path_, name_, lane_, spec_)                                                  \
    {                                                                                              \
        .method = HTTP_POST, .path = P path_, .name = (name_), .auth = API_AUTH_PERSON,            \
        .body = HTTP_BODY_JSON, .body_max = SBX_BODY_MAX, .flags = ROUTE_LANE(lane_),                         \
        .handler = api_dispatch, .spec = spec_                                                     \
    }
#define GET_ROW(path_, name_, spec_) GET_LANE_ROW(path_, name_, 0, spec_)
#define POST_ROW(path_, name_, spec_) POST_LANE_ROW(path_, name_, 0, spec_)

/* Whose statements are settled together (api_together). */
enum { LANE_CREATE = 1, LANE_GET };

/* clang-format off */
static const struct route SANDBOXES[] = {
    POST_LANE_ROW("/sandbox/create", "sandbox_create", LANE_CREATE,
        (WRITE("Create or connect a sandbox", SCOPE_WRITE_DEPLOY, &API_SANDBOX_CREATE,
               &API_SANDBOX_CREATED, "sandbox.create", api_sandbox_create),
         .status = { 201, 200 }, .shape = api_sandbox_create_shape,
         .errors = { SBX_E_REGION_UNKNOWN, SBX_E_REGION_FORBIDDEN, SBX_E_NOT_FOUND,
                     SBX_E_REGION_NO_SANDBOXES, SBX_E_REGION_DISABLED, SBX_E_TEMPLATE_DISABLED,
                     SBX_E_TEMPLATE_DEPRECATED, SBX_E_TEMPLATE_NO_REVISION,
                     SBX_E_TEMPLATE_OTHER_APP, SBX_E_NO_STORAGE_BACKEND,
                     SBX_E_VOLUME_PENDING_PURGE, SBX_E_QUOTA, SBX_E_IDEMPOTENCY_UNAVAILABLE } END)),
    GET_ROW("/sandboxes", "sandbox_list",
        (READ("List sandboxes", &API_SANDBOXES_QUERY, &API_SANDBOXES_ANSWER, api_sandbox_list),
         .shape = api_cursor_shape END)),
    GET_LANE_ROW("/sandbox", "sandbox_get", LANE_GET,
        (READ("Get a sandbox", &API_SANDBOX_QUERY, &API_SANDBOX_ANSWER, api_sandbox_get),
         .errors = { SBX_E_NOT_FOUND } END)),
    POST_ROW("/sandbox/terminate", "sandbox_terminate",
        (WRITE("Terminate a sandbox", SCOPE_WRITE_DEPLOY, &API_SANDBOX_TERMINATE,
               &API_SANDBOX_ANSWER, "sandbox.terminate", api_sandbox_terminate),
         .status = { 200 },
         .errors = { SBX_E_PERSONAL_RUNTIME, SBX_E_NOT_FOUND, SBX_E_CHANGING } END)),
    POST_ROW("/sandbox/pause", "sandbox_pause",
        (WRITE("Pause a sandbox", SCOPE_WRITE_DEPLOY, &API_SANDBOX_PAUSE, &API_SANDBOX_ANSWER,
               "sandbox.pause", api_sandbox_pause),
         .status = { 200 },
         .errors = { SBX_E_PERSONAL_RUNTIME, SBX_E_NOT_FOUND, SBX_E_CONFLICT, SBX_E_CHANGING,
                     SBX_E_SNAPSHOT_OVERWRITE, SBX_E_SNAPSHOT_FAILED } END)),
    POST_ROW("/sandbox/resume", "sandbox_resume",
        (WRITE("Resume a sandbox", SCOPE_WRITE_DEPLOY, &API_SANDBOX_RESUME, &API_SANDBOX_ANSWER,
               "sandbox.resume", api_sandbox_resume),
         .status = { 200 },
         .errors = { SBX_E_PERSONAL_RUNTIME, SBX_E_NOT_FOUND, SBX_E_CONFLICT, SBX_E_QUOTA } END)),
    POST_ROW("/sandbox/execute", "sandbox_execute",
        (WRITE("Execute a command in a sandbox", SCOPE_WRITE_DANGEROUS, &API_EXECUTE,
               &API_EXECUTE_ANSWER, "sandbox.execute", api_sandbox_execute),
         .status = { 200 }, .shape = api_execute_shape,
         .errors = { SBX_E_PATH_ESCAPE, SBX_E_PERSONAL_RUNTIME, SBX_E_NOT_FOUND,
                     SBX_E_SANDBOX_SUSPENDED, SBX_E_SANDBOX_NOT_READY, SBX_E_SANDBOX_NOT_FOUND,
                     SBX_E_AGENT_MISSING, SBX_E_AGENT_UNREACHABLE, SBX_E_BUSY } END)),
};

static const struct route TEMPLATES[] = {
    GET_ROW("/sandbox-templates", "template_list",
        (READ("List sandbox templates", &API_TEMPLATES_QUERY, &API_TEMPLATES_ANSWER,
              api_template_list), .shape = api_cursor_shape END)),
    GET_ROW("/sandbox-template", "template_get",
        (READ("Get a sandbox template", &API_TEMPLATE_QUERY, &API_TEMPLATE_ANSWER,
              api_template_get), .errors = { SBX_E_NOT_FOUND } END)),
    POST_ROW("/sandbox-template/save", "template_save",
        (WRITE("Save a sandbox template", SCOPE_WRITE_CONFIG, &API_TEMPLATE_SAVE,
               &API_TEMPLATE_SAVED, "template.save", api_template_save),
         .status = { 201, 200 }, .shape = api_template_save_shape,
         .errors = { SBX_E_NOT_FOUND, SBX_E_LIMIT_REACHED } END)),
    POST_ROW("/sandbox-template/revision", "revision_create",
        (WRITE("Create a sandbox template revision", SCOPE_WRITE_CONFIG, &API_REVISION_CREATE,
               &API_REVISION_CREATED, "template.revision", api_revision_create),
         .status = { 201 }, .shape = api_revision_shape,
         .errors = { SBX_E_NOT_FOUND, SBX_E_LIMIT_REACHED } END)),
};

static const struct route VOLUMES[] = {
    GET_ROW("/shared-volumes", "volume_list",
        (READ("List shared volumes", &API_VOLUMES_QUERY, &API_VOLUMES_ANSWER, api_volume_list)
         END)),
    GET_ROW("/shared-volume", "volume_get",
        (READ("Get a shared volume", &API_VOLUME_QUERY, &API_VOLUME_ANSWER, api_volume_get),
         .errors = { SBX_E_NOT_FOUND } END)),
    POST_ROW("/shared-volume/create", "volume_create",
        (WRITE("Create a shared volume", SCOPE_WRITE_CONFIG, &API_VOLUME_CREATE,
               &API_VOLUME_ANSWER, "volume.create", api_volume_create),
         .status = { 201 },
         .errors = { SBX_E_REGION_UNKNOWN, SBX_E_REGION_FORBIDDEN, SBX_E_NO_STORAGE_BACKEND,
                     SBX_E_VOLUME_EXISTS, SBX_E_LIMIT_REACHED } END)),
    POST_ROW("/shared-volume/remove", "volume_remove",
        (WRITE("Remove a shared volume; its data stays restorable until purgeAt",
               SCOPE_WRITE_CONFIG, &API_VOLUME_NAMED, &API_VOLUME_ANSWER, "volume.remove",
               api_volume_remove),
         .status = { 200 }, .errors = { SBX_E_NOT_FOUND, SBX_E_VOLUME_IN_USE } END)),
    POST_ROW("/shared-volume/restore", "volume_restore",
        (WRITE("Restore a removed shared volume", SCOPE_WRITE_CONFIG, &API_VOLUME_NAMED,
               &API_VOLUME_ANSWER, "volume.restore", api_volume_restore),
         .status = { 200 }, .errors = { SBX_E_NOT_FOUND, SBX_E_CONFLICT } END)),
};

#define OPEN(text, fn)                                                                             \
    &(const struct api_spec)                                                                       \
    {                                                                                              \
        .summary = (text), .handler = (fn)                                                         \
    }

static const struct route META[] = {
    { .method = HTTP_GET, .path = "/openapi.json", .name = "openapi", .auth = API_AUTH_NONE,
      .handler = api_dispatch, .spec = OPEN("This description", api_openapi) },
    { .method = HTTP_GET, .path = "/healthz", .name = "healthz", .auth = API_AUTH_NONE,
      .flags = ROUTE_INLINE | ROUTE_QUIET, .handler = api_health },
    { .method = HTTP_GET, .path = "/readyz", .name = "readyz", .auth = API_AUTH_NONE,
      .flags = ROUTE_QUIET, .handler = api_dispatch, .spec = OPEN("Ready", api_ready) },
};
/* clang-format on */

const struct route_table API_PUBLIC[] = {
    { SANDBOXES, COUNT_OF(SANDBOXES) },
    { TEMPLATES, COUNT_OF(TEMPLATES) },
    { VOLUMES, COUNT_OF(VOLUMES) },
    { API_RUN_ROUTES, API_RUN_ROUTE_COUNT },
    { API_WORKER_ROUTES, API_WORKER_ROUTE_COUNT },
    { META, COUNT_OF(META) },
};
const size_t API_PUBLIC_COUNT = COUNT_OF(API_PUBLIC);
