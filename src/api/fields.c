#include "api/fields.h"

#include "api/fields_row.h"
#include "domain/sandbox_state.h"
#include "sbx/limits.h"

/* Lists of the only values, from the words of the domain. */
#define ONE(name)         #name,
#define ONE_OF_2(name, x) #name,
static const char *const STATUSES[] = { SANDBOX_STATUSES(ONE) NULL };
static const char *const END_REASONS[] = { SANDBOX_END_REASONS(ONE) NULL };
static const char *const MODES[] = { SANDBOX_PERSISTENCE_MODES(ONE) NULL };
static const char *const PROFILES[] = { SANDBOX_PROFILES(ONE_OF_2) NULL };
static const char *const FAULTS[] = { SANDBOX_FAULTS(ONE_OF_2) NULL };
static const char *const OWNER_KINDS[] = { "EXTERNAL_SESSION", "AGENT_CONVERSATION", "AGENT_RUN",
                                           NULL };
static const char *const ISOLATION[] = { "GVISOR", NULL };
static const char *const PROTOCOLS[] = { "TCP", "UDP", NULL };
static const char *const VOLUME_STATUSES[] = { "ACTIVE", "PENDING_PURGE", NULL };
static const char *const ENCODINGS[] = { "base64", NULL };
#undef ONE
#undef ONE_OF_2

static const struct api_field cpu[] = {
    F_INT("requestMillicores", REQ, 0, 0,
          "CPU that is kept for the sandbox, in thousandths of a core."),
    F_INT("limitMillicores", REQ, 0, 0, "CPU it may use at most."),
};
static const struct api_schema CPU = { "Cpu", cpu, COUNT_OF(cpu) };
static const struct api_field memory[] = {
    F_INT("requestMb", REQ, 0, 0, "Memory that is kept for the sandbox, in MiB."),
    F_INT("limitMb", REQ, 0, 0, "Memory it may use at most."),
};
static const struct api_schema MEMORY = { "Memory", memory, COUNT_OF(memory) };
static const struct api_field resources[] = {
    F_INT("zClouds", REQ, 0, 0, "Size in zClouds."),
    F_OBJ("cpu", REQ, &CPU, NULL, "CPU request and limit."),
    F_OBJ("memory", REQ, &MEMORY, NULL, "Memory request and limit."),
};
SCHEMA(API_RESOURCES, "Resources", resources);

static const struct api_field persistence[] = {
    F_STR("mountPath", OPT, 0, 0,
          "Where the volume's data directory is mounted (DIRECTORY, BOTH)."),
    F_TIME("lastSnapshotAt", OPT, "When the last snapshot was written."),
    F_INT("lastSnapshotBytes", OPT, 0, 0, "Size of that archive's content, in bytes."),
    F_STR("lastSnapshotError", OPT, 0, 0, "Set when the last snapshot or restore failed."),
};
static const struct api_schema PERSISTENCE = { "Persistence", persistence, COUNT_OF(persistence) };

static const struct api_field sandbox[] = {
    F_STR("sandboxId", REQ, 0, 0, "Sandbox ID."),
    F_STR("accountId", REQ, 0, 0, "Owning account ID."),
    F_STR("appId", REQ, 0, 0, "App the sandbox belongs to."),
    F_STR("templateId", REQ, 0, 0, "Template the sandbox was created from."),
    F_STR("templateRevisionId", REQ, 0, 0, "Exact template revision the sandbox runs."),
    F_INT("templateRevisionNumber", REQ, 0, 0, "Revision number of that revision."),
    F_STR("region", REQ, 0, 0, "Region the sandbox runs in."),
    F_ENUM("workloadProfile", REQ, PROFILES, "Workload profile the sandbox was provisioned for."),
    F_ENUM("isolationProfile", REQ, ISOLATION, "Runtime isolation profile, from the revision."),
    F_ENUM("persistenceMode", REQ, MODES, "Persistence mode resolved at creation."),
    F_STR("volumeName", OPT, 0, 0,
          "Shared volume the sandbox mounts or snapshots to; volume modes only."),
    F_OBJ("persistence", OPT, &PERSISTENCE, NULL, "Persistence status reported by the runtime."),
    F_ENUM("ownerKind", REQ, OWNER_KINDS, "Owner reference kind required by the workload profile."),
    F_STR("ownerId", REQ, 0, 0, "ID of the owner the sandbox is attached to."),
    F_STR("externalSessionId", OPT, 0, 0, "External session identifier."),
    F_STR("callerKey", REQ, 0, 0, "Caller provenance, in the form user:USER_ID."),
    F_ENUM("status", REQ, STATUSES, "Current lifecycle status."),
    F_STR("statusReason", OPT, 0, 0, "Short reason for the current status."),
    F_ENUM("desiredStatus", OPT, STATUSES, "Status it is driven toward, when another than status."),
    F_INT("generation", REQ, 0, 0, "Increments on every status change."),
    F_BOOL("isWarmAllocation", REQ, "Whether the sandbox came from a warm pool."),
    F_OBJ("resources", REQ, &API_RESOURCES, NULL, "CPU and memory the sandbox was allocated."),
    F_TIME("claimedAt", OPT, "When the sandbox was claimed."),
    F_TIME("readyAt", OPT, "When the sandbox became ready."),
    F_TIME("lastActiveAt", OPT, "Last activity."),
    F_TIME("suspendedAt", OPT, "Last suspension."),
    F_TIME("resumedAt", OPT, "Last resume."),
    F_TIME("terminatedAt", OPT, "Termination."),
    F_TIME("expiresAt", REQ, "Hard-lifetime deadline."),
    F_ENUM("terminationReason", OPT, END_REASONS, "Why the sandbox was terminated."),
    F_ENUM("errorCode", OPT, FAULTS, "Stable product error code when the sandbox failed."),
    F_BOOL("errorRetryable", OPT, "Whether errorCode describes a condition worth retrying."),
    F_STR("correlationId", OPT, 0, 0, "The request id that created the sandbox."),
    F_TIME("createdAt", REQ, "Creation."),
    F_TIME("updatedAt", REQ, "Last update."),
};
SCHEMA(API_SANDBOX, "Sandbox", sandbox);

static const struct api_field template[] = {
    F_STR("templateId", REQ, 0, 0, "Template ID."),
    F_STR("accountId", REQ, 0, 0, "Owning account ID."),
    F_STR("appId", OPT, 0, 0, "App the template belongs to."),
    F_STR("name", REQ, 0, 0, "Human-readable template name."),
    F_STR("slug", REQ, 0, 0, "URL-safe identifier derived from the name."),
    F_STR("description", OPT, 0, 0, "Description."),
    F_BOOL("enabled", REQ, "Whether new sandboxes may be requested from this template."),
    F_TIME("deprecatedAt", OPT, "Set when the template was deprecated."),
    F_INT("currentRevisionNumber", OPT, 0, 0,
          "Number of the latest revision; absent before the first."),
    F_TIME("createdAt", REQ, "Creation."),
    F_TIME("updatedAt", REQ, "Last update."),
};
SCHEMA(API_TEMPLATE, "SandboxTemplate", template);

static const struct api_field port[] = {
    F_INT("port", REQ, 1, 65535, "Port number."),
    F_ENUM("protocol", OPT, PROTOCOLS, "Protocol; default TCP."),
    F_STR("name", OPT, 1, 63, "What it serves."),
};
const struct api_schema API_PORT = { "Port", port, COUNT_OF(port) };

static const struct api_field workspace[] = {
    F_INT("sizeMb", REQ, 0, 0, "Size of a volume that is created for a sandbox."),
    F_STR("mountPath", REQ, 0, 0, "Where its data directory is mounted in DIRECTORY and BOTH."),
};
static const struct api_schema WORKSPACE = { "PersistentWorkspace", workspace,
                                             COUNT_OF(workspace) };

static const struct api_field network[] = {
    F_BOOL("enabled", OPT, "Address restrictions; needs at least one address."),
    F_STRS("addressAllowlist", OPT, 0, VALID_NETWORK_ENTRIES_MAX, VALID_NETWORK_ENTRY_MAX, NULL,
           "Addresses and CIDR blocks that may be reached."),
    F_STRS("domainAllowlist", OPT, 0, VALID_NETWORK_ENTRIES_MAX, VALID_NETWORK_ENTRY_MAX, NULL,
           "Domains that may be reached, through the egress proxy."),
};
const struct api_schema API_NETWORK = { "NetworkControl", network, COUNT_OF(network) };

static const struct api_field warm[] = {
    F_INT("desired", REQ, 0, 100, "Target of ready, unclaimed sandboxes."),
    F_INT("min", REQ, 0, 100, "Below it a refill is urgent."),
    F_INT("max", REQ, 0, 100, "Bound of starting plus ready ones."),
    F_STRS("regions", OPT, 0, API_IDS_MAX, 63, NULL, "Regions that keep a pool; default: none."),
};
const struct api_schema API_WARM = { "WarmPool", warm, COUNT_OF(warm) };

static const struct api_field revision[] = {
    F_STR("revisionId", REQ, 0, 0, "Revision ID."),
    F_STR("templateId", REQ, 0, 0, "Parent template ID."),
    F_INT("revision", REQ, 0, 0, "Monotonic revision number."),
    F_STR("imageDigest", REQ, 0, 0, "Immutable image digest the sandbox runs."),
    F_STR("imageRef", OPT, 0, 0, "Human-readable image reference."),
    F_STRS("command", OPT, 0, 0, 0, NULL, "Entrypoint command."),
    F_STR("workingDir", OPT, 0, 0, "Working directory inside the sandbox."),
    F_OBJS("ports", OPT, 0, 0, &API_PORT, "Declared ports."),
    F_OBJ("resources", REQ, &API_RESOURCES, NULL, "CPU and memory request and limit values."),
    F_ENUM("persistenceMode", REQ, MODES, "Default persistence mode."),
    F_OBJ("persistentWorkspace", OPT, &WORKSPACE, NULL, "Volume settings; volume modes only."),
    F_STRS("snapshotExclude", OPT, 0, 0, 0, NULL, "Patterns left out of the snapshot."),
    F_INT("snapshotMaxMb", OPT, 0, 0, "Cap on the uncompressed snapshot, in MiB."),
    F_ENUM("isolationProfile", REQ, ISOLATION, "Runtime isolation profile."),
    F_INT("idleTimeoutSeconds", REQ, 0, 0, "Idle time after which the sandbox is terminated."),
    F_INT("hardLifetimeSeconds", REQ, 0, 0, "Maximum lifetime."),
    F_INT("suspendedRetentionSeconds", REQ, 0, 0, "How long a suspended workspace is retained."),
    F_OBJ("warmPool", OPT, &API_WARM, NULL, "Warm-pool capacity."),
    F_OBJ("networkControl", OPT, &API_NETWORK, NULL, "Egress restrictions."),
    F_TIME("createdAt", REQ, "Creation."),
};
SCHEMA(API_REVISION, "SandboxTemplateRevision", revision);

static const struct api_field volume[] = {
    F_STR("volumeName", REQ, 0, 0, "Name, unique in account and region."),
    F_STR("accountId", REQ, 0, 0, "Owning account ID."),
    F_STR("region", REQ, 0, 0, "Region it lives in."),
    F_ENUM("status", REQ, VOLUME_STATUSES, "ACTIVE, or PENDING_PURGE after its removal."),
    F_INT("sizeMb", REQ, 0, 0, "Nominal size in MiB."),
    F_TIME("createdAt", REQ, "Creation."),
    F_TIME("updatedAt", REQ, "Last update."),
    F_TIME("purgeAt", OPT, "When its objects are deleted for good."),
};
SCHEMA(API_VOLUME, "SharedVolume", volume);

/* Answers. */

#define OK_ROW F_BOOL("success", REQ, "true")

static const struct api_field created[] = {
    OK_ROW,
    F_BOOL("wasCreated", REQ, "false when the call connected to an existing sandbox."),
    F_OBJ("sandbox", REQ, &API_SANDBOX, NULL, "The sandbox."),
};
SCHEMA(API_SANDBOX_CREATED, "SandboxCreated", created);

static const struct api_field sandbox_answer[] = {
    OK_ROW,
    F_OBJ("sandbox", REQ, &API_SANDBOX, NULL, "The sandbox."),
};
SCHEMA(API_SANDBOX_ANSWER, "SandboxAnswer", sandbox_answer);

static const struct api_field sandboxes_answer[] = {
    OK_ROW,
    F_STR("accountId", REQ, 0, 0, "The account asked for."),
    F_INT("page", OPT, 0, 0, "The page this is; left out on a cursor."),
    F_INT("limit", REQ, 0, 0, "Sandboxes per page as served."),
    F_INT("totalCount", OPT, 0, 0, "Sandboxes that match, on all pages; left out on a cursor."),
    F_OBJS("sandboxes", REQ, 0, 0, &API_SANDBOX, "Newest first."),
    F_STR("nextCursor", OPT, 0, 0, "Pass it as cursor for what follows; absent at the end."),
};
SCHEMA(API_SANDBOXES_ANSWER, "SandboxesAnswer", sandboxes_answer);

static const struct api_field execute_answer[] = {
    OK_ROW,
    F_INT("exitCode", REQ, 0, 0,
          "124 at the deadline, 128+n for signal n, 127 not found, 126 not executable."),
    F_STR("stdout", REQ, 0, 0, "Captured output."),
    F_STR("stderr", REQ, 0, 0, "Captured error output."),
    F_INT("durationMs", REQ, 0, 0, "Time from start to end, in milliseconds."),
    F_BOOL("timedOut", OPT, "true when the deadline ended it."),
    F_INT("signal", OPT, 0, 0, "The signal that ended it."),
    F_BOOL("stdoutTruncated", OPT, "true when more was written than is returned."),
    F_BOOL("stderrTruncated", OPT, "true when more was written than is returned."),
    F_INT("stdoutBytes", OPT, 0, 0, "Bytes written in all, when truncated."),
    F_INT("stderrBytes", OPT, 0, 0, "Bytes written in all, when truncated."),
    F_ENUM("stdoutEncoding", OPT, ENCODINGS, "base64 when the stream is not valid UTF-8."),
    F_ENUM("stderrEncoding", OPT, ENCODINGS, "base64 when the stream is not valid UTF-8."),
};
SCHEMA(API_EXECUTE_ANSWER, "ExecuteAnswer", execute_answer);

static const struct api_field template_answer[] = {
    OK_ROW,
    F_OBJ("template", REQ, &API_TEMPLATE, NULL, "The template."),
    F_OBJ("currentRevision", REQ | API_NULLABLE, &API_REVISION, NULL,
          "Its latest revision; null when it has none."),
};
SCHEMA(API_TEMPLATE_ANSWER, "SandboxTemplateAnswer", template_answer);

static const struct api_field template_saved[] = {
    OK_ROW,
    F_OBJ("template", REQ, &API_TEMPLATE, NULL, "The template."),
};
SCHEMA(API_TEMPLATE_SAVED, "SandboxTemplateSaved", template_saved);

static const struct api_field templates_answer[] = {
    OK_ROW,
    F_STR("accountId", REQ, 0, 0, "The account asked for."),
    F_OBJS("templates", REQ, 0, 0, &API_TEMPLATE, "Newest first."),
    F_STR("nextCursor", OPT, 0, 0, "Pass it as cursor for what follows; absent at the end."),
};
SCHEMA(API_TEMPLATES_ANSWER, "SandboxTemplatesAnswer", templates_answer);

static const struct api_field revision_created[] = {
    OK_ROW,
    F_OBJ("revision", REQ, &API_REVISION, NULL, "The new revision."),
    F_STRS("warnings", OPT, 0, 0, 0, NULL, "What is allowed but will surprise."),
};
SCHEMA(API_REVISION_CREATED, "SandboxTemplateRevisionCreated", revision_created);

static const struct api_field volume_answer[] = {
    OK_ROW,
    F_OBJ("volume", REQ, &API_VOLUME, NULL, "The volume."),
};
SCHEMA(API_VOLUME_ANSWER, "SharedVolumeAnswer", volume_answer);

static const struct api_field volumes_answer[] = {
    OK_ROW,
    F_STR("accountId", REQ, 0, 0, "The account asked for."),
    F_OBJS("volumes", REQ, 0, 0, &API_VOLUME, "By region and name."),
};
SCHEMA(API_VOLUMES_ANSWER, "SharedVolumesAnswer", volumes_answer);

static const struct api_field error_answer[] = {
    F_BOOL("success", REQ, "false"),
    F_STR("error", REQ, 0, 0, "One sentence for a person."),
    F_STR("code", REQ, 0, 0, "Stable code."),
    F_STR("requestId", REQ, 0, 0, "Names this request in logs and audit."),
    F_ANY("data", OPT,
          "field for a 400; retryable, retryAfterSeconds, limit, active where they help."),
};
SCHEMA(API_ERROR_ANSWER, "Error", error_answer);
