#include "api/fields.h"

#include <stdio.h>
#include <string.h>

#include "api/fields_row.h"
#include "base/arena.h"
#include "base/json.h"
#include "domain/resources.h"
#include "domain/sandbox_state.h"
#include "sbx/limits.h"

#define ONE(name)         #name,
#define ONE_OF_2(name, x) #name,
static const char *const PROFILES[] = { SANDBOX_PROFILES(ONE_OF_2) NULL };
static const char *const MODES[] = { SANDBOX_PERSISTENCE_MODES(ONE) "PERSISTENT_VOLUME", NULL };
static const char *const OWNER_KINDS[] = { "EXTERNAL_SESSION", "AGENT_CONVERSATION", "AGENT_RUN",
                                           NULL };
#undef ONE
#undef ONE_OF_2

/* Whole-value checks: arrays and objects whose parts are of the right type already. */

static enum sbx_code command_check(const json_t *v, const char *path, struct sbx_err *err)
{
    SCOPED_ARENA struct arena *a = arena_new();
    size_t n = 0;
    const char **argv = json_strings(a, v, &n);

    return valid_command(path, (const char *const *)argv, n, err);
}

static enum sbx_code exec_command_check(const json_t *v, const char *path, struct sbx_err *err)
{
    SCOPED_ARENA struct arena *a = arena_new();
    size_t n = 0;
    const char **argv = json_strings(a, v, &n);

    return valid_exec_command(path, (const char *const *)argv, n, err);
}

static enum sbx_code excludes_check(const json_t *v, const char *path, struct sbx_err *err)
{
    SCOPED_ARENA struct arena *a = arena_new();
    size_t n = 0;
    const char **list = json_strings(a, v, &n);

    return valid_excludes(path, (const char *const *)list, n, err);
}

/* A variable crosses execve as NAME=VALUE: that whole string has the kernel's limit. */
static enum sbx_code env_check(const json_t *v, const char *path, struct sbx_err *err)
{
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)v, name, value)
    {
        if (valid_env_name(path, name, err) != SBX_OK)
            return err->code;
        if (strlen(name) + 1 + json_string_length(value) > SBX_ARG_MAX)
            return err_field(err, path, "%s: one variable may have at most %d bytes.", path,
                             SBX_ARG_MAX);
    }
    return SBX_OK;
}

static enum sbx_code warm_check(const json_t *v, const char *path, struct sbx_err *err)
{
    SCOPED_ARENA struct arena *a = arena_new();
    size_t n = 0;
    const char **regions = json_strings(a, json_object_get(v, "regions"), &n);

    for (size_t i = 0; i < n; i++) {
        char at[32];

        (void)snprintf(at, sizeof(at), "warmPool.regions[%zu]", i);
        if (valid_region_name(at, regions[i], err) != SBX_OK)
            return err->code;
        for (size_t k = 0; k < i; k++) {
            if (strcmp(regions[i], regions[k]) == 0)
                return err_field(err, at, "%s names %s a second time.", at, regions[i]);
        }
    }
    return valid_warm_pool(path, json_get_int(v, "desired", 0), json_get_int(v, "min", 0),
                           json_get_int(v, "max", 0), err);
}

static enum sbx_code network_check(const json_t *v, const char *path, struct sbx_err *err)
{
    SCOPED_ARENA struct arena *a = arena_new();
    size_t n = 0, m = 0;
    const char **addresses = json_strings(a, json_object_get(v, "addressAllowlist"), &n);
    const char **domains = json_strings(a, json_object_get(v, "domainAllowlist"), &m);

    (void)path;
    return valid_network(json_get_bool(v, "enabled", false), (const char *const *)addresses, n,
                         (const char *const *)domains, m, err);
}

/* Sandboxes. */

#define ACCOUNT  F_ID("accountId", REQ, "Account ID.")
#define SANDBOX  F_ID("sandboxId", REQ, "Sandbox ID.")
#define TEMPLATE F_ID("templateId", REQ, "Template ID.")

static const struct api_field create[] = {
    F_ID("accountId", REQ, "Account that owns the sandbox."),
    F_ID("appId", REQ, "App the sandbox belongs to."),
    F_ID("templateId", REQ, "Sandbox template to provision from."),
    F_ENUM("workloadProfile", REQ, PROFILES, "Workload profile."),
    F_ENUM("ownerKind", REQ, OWNER_KINDS, "The kind required by the workload profile."),
    F_TEXT("ownerId", REQ, valid_key, NULL, "ID of the owner the sandbox is attached to."),
    F_TEXT("externalSessionId", OPT, valid_key, NULL, "External session identifier."),
    F_ID("region", REQ, "Region to run the sandbox in."),
    F_TEXT("idempotencyKey", REQ, valid_key, NULL,
           "Caller-chosen key that makes this call safe to retry; never returned."),
    F_ENUM("persistenceMode", OPT, MODES,
           "Overrides the template's default; PERSISTENT_VOLUME is an alias of DIRECTORY."),
    F_TEXT("volumeName", OPT, valid_volume_name, "^[a-z][a-z0-9-]{0,62}$",
           "Existing active shared volume to attach, for the volume modes."),
};
SCHEMA(API_SANDBOX_CREATE, "SandboxCreateRequest", create);

static const struct api_field list_query[] = {
    ACCOUNT,
    F_ID("appId", OPT, "App filter."),
    F_STR("status", OPT, 0, 1024,
          "One status or comma-separated statuses; unknown ones are ignored."),
    F_INT("limit", OPT, 1, INT64_MAX,
          "Sandboxes per page; default 50, above 100 is served as 100."),
    F_INT("page", OPT, 1, API_PAGE_MAX, "One-based page number; default 1."),
    F_STR("cursor", OPT, 1, API_CURSOR_MAX, "nextCursor of the answer before, instead of page."),
};
SCHEMA(API_SANDBOXES_QUERY, NULL, list_query);

static const struct api_field sandbox_named[] = { ACCOUNT, SANDBOX };
SCHEMA(API_SANDBOX_QUERY, NULL, sandbox_named);
SCHEMA(API_SANDBOX_TERMINATE, "SandboxTerminateRequest", sandbox_named);
SCHEMA(API_SANDBOX_RESUME, "SandboxResumeRequest", sandbox_named);

static const struct api_field pause[] = {
    ACCOUNT,
    SANDBOX,
    F_STRS("snapshotExclude", OPT, 0, VALID_EXCLUDES_MAX, 0, excludes_check,
           "Overrides the revision's patterns for this pause only."),
    F_INT("snapshotMaxMb", OPT, 1, 1048576, "Overrides the size cap for this pause only."),
    F_BOOL("force", OPT, "Snapshot even when the restore at start failed."),
};
SCHEMA(API_SANDBOX_PAUSE, "SandboxPauseRequest", pause);

static const struct api_field execute[] = {
    ACCOUNT,
    SANDBOX,
    F_STRS("command", REQ, 0, 0, 0, exec_command_check, "Command argv, never a shell string."),
    F_STR("cwd", OPT, 1, VALID_PATH_MAX - 1,
          "Working directory; relative is below /workspace and may not leave it."),
    F_MAP("envVars", OPT, VALID_ENV_COUNT_MAX, 0, env_check, "Extra environment variables."),
    F_INT("timeoutSeconds", OPT, 1, SBX_EXEC_TIMEOUT_MAX_S, "Command deadline; default 120."),
};
SCHEMA(API_EXECUTE, "ExecuteRequest", execute);

/* Templates. */

static const struct api_field templates_query[] = {
    ACCOUNT,
    F_ID("appId", OPT, "App filter."),
    F_BOOL("includeDeprecated", OPT, "Include deprecated templates; default false."),
    F_INT("limit", OPT, 1, INT64_MAX,
          "Templates per page; default 500, above it is served as 500."),
    F_STR("cursor", OPT, 1, API_CURSOR_MAX, "nextCursor of the answer before."),
};
SCHEMA(API_TEMPLATES_QUERY, NULL, templates_query);

static const struct api_field template_query[] = { ACCOUNT, TEMPLATE };
SCHEMA(API_TEMPLATE_QUERY, NULL, template_query);

static const struct api_field template_save[] = {
    F_ID("accountId", REQ, "Account that owns the template."),
    F_ID("templateId", OPT, "Template to update; leave out to create one."),
    F_ID("appId", OPT, "App the template belongs to (create only)."),
    F_TEXT("name", REQ, valid_name, NULL, "Human-readable name, 1 to 120 characters."),
    F_TEXT("description", OPT, valid_description, NULL, "At most 2,000 characters."),
    F_BOOL("enabled", OPT, "Whether new sandboxes may be requested from it; default true."),
    F_BOOL("deprecated", OPT, "Sets or clears deprecatedAt."),
};
SCHEMA(API_TEMPLATE_SAVE, "SandboxTemplateSaveRequest", template_save);

extern const struct api_schema API_PORT, API_NETWORK, API_WARM;

static const struct api_field revision_create[] = {
    ACCOUNT,
    F_ID("templateId", REQ, "Template to append the revision to."),
    F_TEXT("imageDigest", REQ, valid_image_digest, "^[^@]+@sha256:[0-9a-f]{64}$",
           "Digest-pinned image."),
    F_TEXT("imageRef", OPT, valid_image_ref, NULL, "Human-readable image reference."),
    F_STRS("command", OPT, 1, SBX_COMMAND_MAX, 0, command_check,
           "Entrypoint argv, never a shell string."),
    F_TEXT("workingDir", OPT, valid_working_dir, NULL, "Working directory inside the sandbox."),
    F_OBJS("ports", OPT, 0, VALID_PORTS_MAX, &API_PORT, "Declared ports."),
    F_INT("zClouds", OPT, RESOURCES_ZCLOUDS_MIN, RESOURCES_ZCLOUDS_MAX, "Size; default 1."),
    F_ENUM("persistenceMode", OPT, MODES,
           "Default persistence mode; PERSISTENT_VOLUME is an alias of DIRECTORY."),
    F_INT("volumeSizeMb", OPT, 1, 10485760, "Size of a volume made for a sandbox; default 10240."),
    F_TEXT("mountPath", OPT, valid_mount_path, NULL,
           "Where the volume is mounted; default /workspace/persist."),
    F_STRS("snapshotExclude", OPT, 0, VALID_EXCLUDES_MAX, 0, excludes_check,
           "Gitignore-like patterns left out of the snapshot."),
    F_INT("snapshotMaxMb", OPT, 1, 1048576, "Cap on the uncompressed snapshot; default 2048."),
    F_INT_BOUND("idleTimeoutSeconds", OPT, API_BOUND_IDLE,
                "Idle time after which the sandbox is terminated."),
    F_INT_BOUND("hardLifetimeSeconds", OPT, API_BOUND_HARD,
                "Maximum lifetime, after which the sandbox is terminated."),
    F_INT_BOUND("suspendedRetentionSeconds", OPT, API_BOUND_RETENTION,
                "How long a suspended workspace is retained."),
    F_OBJ("warmPool", OPT, &API_WARM, warm_check, "Warm-pool capacity; not with a volume mode."),
    F_OBJ("networkControl", OPT, &API_NETWORK, network_check, "Egress restrictions."),
};
SCHEMA(API_REVISION_CREATE, "SandboxTemplateRevisionRequest", revision_create);

/* Shared volumes (contract 5). */

#define VOLUME                                                                                     \
    F_TEXT("volumeName", REQ, valid_volume_name, "^[a-z][a-z0-9-]{0,62}$", "Name of the volume.")

static const struct api_field volumes_query[] = {
    ACCOUNT,
    F_ID("region", OPT, "Region filter."),
};
SCHEMA(API_VOLUMES_QUERY, NULL, volumes_query);

static const struct api_field volume_named[] = {
    ACCOUNT,
    VOLUME,
    F_ID("region", OPT, "Needed only when several regions have a volume of that name."),
};
SCHEMA(API_VOLUME_QUERY, NULL, volume_named);
SCHEMA(API_VOLUME_NAMED, "SharedVolumeNamed", volume_named);

static const struct api_field volume_create[] = {
    ACCOUNT,
    F_ID("region", REQ, "Region it lives in."),
    VOLUME,
    F_INT("sizeMb", REQ, 1, 10485760, "Nominal size in MiB."),
};
SCHEMA(API_VOLUME_CREATE, "SharedVolumeCreateRequest", volume_create);
