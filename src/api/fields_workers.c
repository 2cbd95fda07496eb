#include "api/fields_admin.h"
#include "api/fields_row.h"
#include "api/workers.h"

/* Check-ins, and the operator's calls on streams (contract 7). */

static enum sbx_code worker_id_text(const char *field, const char *text, struct sbx_err *err)
{
    return worker_id_valid(text) ? SBX_OK : err_field(err, field, "%s is no worker id.", field);
}

/* Another value than the wanted one is well-formed and refused (422), so the table takes it. */
static const struct api_field ISOLATION_FIELDS[] = {
    F_BOOL("host_network", REQ, "must be false"),
    F_BOOL("credentials", REQ, "must be false"),
    F_BOOL("profile", REQ, "must be false"),
    F_BOOL("egress_proxy", REQ, "must be true"),
    F_STR("workspace", REQ, 0, 0, "must be \"ephemeral\""),
};
static SCHEMA(ISOLATION, "WorkerIsolation", ISOLATION_FIELDS);

static const struct api_field REPORT_FIELDS[] = {
    F_OBJ("isolation", REQ, &ISOLATION, NULL,
          "What the worker's code runs in, as it was measured."),
    F_TEXT("worker_id", REQ, worker_id_text, "^[A-Za-z0-9._-]{1,64}$",
           "must be 1 to 64 characters of [A-Za-z0-9._-]"),
    F_STR("version", OPT, 0, WORKER_VERSION_MAX, "must be a string of at most 64 characters"),
};
SCHEMA(API_WORKER_REPORT, "WorkerReport", REPORT_FIELDS);

static const struct api_field CHECKED_IN_FIELDS[] = {
    F_STR("worker_id", REQ, 0, 0, "The worker."),
    F_STR("stream_id", REQ, 0, 0, "The stream of the path."),
    F_TIME("registered_at", REQ, "Its first check-in."),
    F_TIME("last_check_in_at", REQ, "This check-in."),
    F_TIME("healthy_until", REQ, "It is healthy until then if it stays silent."),
};
SCHEMA(API_WORKER_CHECKED_IN, "WorkerCheckedIn", CHECKED_IN_FIELDS);

static const struct api_field WORKER_FIELDS[] = {
    F_STR("worker_id", REQ, 0, 0, "The worker."),
    F_STR("version", OPT, 0, 0, "As it reported it."),
    F_TIME("registered_at", REQ, "Its first check-in."),
    F_TIME("last_check_in_at", REQ, "Its last check-in."),
    F_BOOL("healthy", REQ, "The last check-in is at most 60 s old, by the receiver's clock."),
    F_TIME("healthy_until", REQ, "When it is not healthy any more if it stays silent."),
};
static SCHEMA(WORKER, "Worker", WORKER_FIELDS);

static const struct api_field WORKERS_FIELDS[] = {
    F_STR("stream_id", REQ, 0, 0, "The stream of the path."),
    F_OBJS("workers", REQ, 0, 0, &WORKER, "Those that checked in last."),
};
SCHEMA(API_WORKERS_ANSWER, "Workers", WORKERS_FIELDS);

static const struct api_field MANIFEST_FIELDS[] = {
    F_STR("id", REQ, 0, 0, WORKER_CAPABILITY),
    F_STR("version", REQ, 0, 0, "Of the capability."),
    F_STR("owner", REQ, 0, 0, "Whose capability it is."),
    F_STR("status", REQ, 0, 0, "active"),
    F_STR("visibility", REQ, 0, 0, "internal: no person or app is granted it."),
    F_STRS("permissions", REQ, 0, 0, 0, NULL, "What it stands for."),
    F_STRS("resourceConstraints", REQ, 0, 0, 0, NULL, "Whose resources."),
    F_STR("quotaClass", REQ, 0, 0, "standard"),
    F_STRS("events", REQ, 0, 0, 0, NULL, "None."),
    F_STR("description", REQ, 0, 0, "The whole rule in words."),
    F_STR("inputSchema", REQ, 0, 0, "Name of the request's contract."),
    F_STR("outputSchema", REQ, 0, 0, "Name of the answer's contract."),
    F_STRS("implementedBy", REQ, 0, 0, 0, NULL, "Method and path."),
};
SCHEMA(API_WORKER_MANIFEST, "CapabilityManifest", MANIFEST_FIELDS);

static const struct api_field FAULT_FIELDS[] = {
    F_STR("path", REQ, 0, 0, "JSON pointer into the body."),
    F_STR("message", REQ, 0, 0, "What is wrong there."),
};
static SCHEMA(FAULT, "ProblemFault", FAULT_FIELDS);

static const struct api_field PROBLEM_FIELDS[] = {
    F_STR("type", REQ, 0, 0, "https://openvibe.network/problems/ and the code."),
    F_STR("title", REQ, 0, 0, "The code in words."),
    F_INT("status", REQ, 0, 0, "As the status line has it."),
    F_STR("code", REQ, 0, 0, "Stable."),
    F_STR("detail", OPT, 0, 0, "One sentence for a person."),
    F_STR("request_id", OPT, 0, 0, "As X-Request-Id has it."),
    F_OBJS("errors", OPT, 0, 0, &FAULT, "Every fault of the body."),
    F_STR("error", OPT, 0, 0, "detail again, else title."),
};
SCHEMA(API_WORKER_PROBLEM, "Problem", PROBLEM_FIELDS);

static const struct api_field STREAM_CREATE[] = {
    F_STR("streamId", REQ, 1, WORKER_STREAM_ID_MAX, "The stream's id in the path."),
    F_ID("ownerUserId", REQ, "The user whose stream it is; needs a subject to be checked in for."),
};
SCHEMA(API_ADMIN_STREAM_CREATE, "AdminStreamCreate", STREAM_CREATE);
static const struct api_field STREAM_NAMED[] = {
    F_STR("streamId", REQ, 1, WORKER_STREAM_ID_MAX, "Stream ID."),
};
SCHEMA(API_ADMIN_STREAM_NAMED, "AdminStreamNamed", STREAM_NAMED);
static const struct api_field STREAM_PAGE[] = {
    F_STR("after", OPT, 1, WORKER_STREAM_ID_MAX, "The last id of the page before."),
    F_INT("limit", OPT, 1, API_LIMIT_MAX, "Rows of the page."),
};
SCHEMA(API_ADMIN_STREAM_PAGE, "AdminStreamPage", STREAM_PAGE);
