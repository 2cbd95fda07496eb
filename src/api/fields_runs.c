#include "api/fields_row.h"
#include "api/runs.h"

#include <string.h>

#include "region/github.h"

/* Requests and answers of personal runs (contract 6: names, bounds). */

enum {
    AUTH_FILE_MAX = RECONCILE_RUN_AUTH_MAX,
    GITHUB_TOKEN_MAX = 1024,
    PROMPT_MAX = 256 * 1024,
    BRANCH_MAX = 255,
    MODEL_MAX = 100,
    TOKENS_MAX = 10000000,
    TIME_MIN_S = 60,
    TIME_MAX_S = 86400,
    CALLBACK_TOKEN_MAX = 16 * 1024,
    HOST_MAX = 2048,
    PEM_MAX = 16 * 1024,
};

static enum sbx_code repository_check(const json_t *v, const char *path, struct sbx_err *err)
{
    if (!github_repository_valid(json_string_value(v)))
        return err_field(err, path, "%s must be owner/name.", path);
    return SBX_OK;
}

/* The bytes count, and a NUL cannot come by JSON. */
static enum sbx_code auth_file_check(const json_t *v, const char *path, struct sbx_err *err)
{
    if (json_string_length(v) > AUTH_FILE_MAX)
        return err_field(err, path, "%s may have at most %d bytes.", path, AUTH_FILE_MAX);
    return SBX_OK;
}

static enum sbx_code prompt_check(const json_t *v, const char *path, struct sbx_err *err)
{
    if (json_string_length(v) > PROMPT_MAX)
        return err_field(err, path, "%s may have at most %d bytes.", path, PROMPT_MAX);
    return SBX_OK;
}

/* A credential goes into a header: no control character, no space. */
static enum sbx_code github_token_check(const json_t *v, const char *path, struct sbx_err *err)
{
    for (const char *p = json_string_value(v); *p != '\0'; p++) {
        if (*p <= ' ' || *p == 0x7f)
            return err_field(err, path, "%s may not hold spaces or control characters.", path);
    }
    return SBX_OK;
}

#define F_CHECKED(n, fl, lo, hi, fn, about)                                                        \
    {                                                                                              \
        .name = (n), .type = API_T_STRING, .flags = (fl), .min = (lo), .max = (hi), .check = (fn), \
        .doc = (about)                                                                             \
    }

static const struct api_field OPERATION_FIELDS[] = {
    F_ID("operationId", REQ, "Id of the operation."),
    F_STR("phase", REQ, 0, 0,
          "reserved, claimed, preparing, allocating, ready, terminating or quarantined."),
    F_STR("runId", OPT, 0, 0, "The run id that claimed it."),
    F_TIME("expiresAt", OPT, "When an unclaimed grant dies; the reservation stays."),
};
static SCHEMA(OPERATION, "ConnectionOperation", OPERATION_FIELDS);

static const struct api_field CONNECTION_FIELDS[] = {
    F_ID("connectionId", REQ, "Id of the connection."),
    F_ID("accountId", REQ, "Account of the installation."),
    F_ID("installationId", REQ, "The installed Warren Solution."),
    F_ID("ownerUserId", REQ, "The owner; nobody acts for them."),
    F_ID("appId", REQ, "App of the holders."),
    F_ID("templateId", REQ, "Template of the holders."),
    F_STR("region", REQ, 0, 0, "Region of the holders."),
    F_STR("state", REQ, 0, 0, "ABSENT, READY, FENCED, QUARANTINED or RESETTING."),
    F_INT("authGeneration", REQ, 0, 0, "Number of the stored sign-in."),
    F_OBJ("operation", OPT, &OPERATION, NULL, "The unfinished operation."),
    F_TIME("createdAt", REQ, "When it was made."),
    F_TIME("updatedAt", REQ, "When it was last changed."),
};
static SCHEMA(CONNECTION, "Connection", CONNECTION_FIELDS);

static const struct api_field CONNECTION_ANSWER_FIELDS[] = {
    F_BOOL("success", REQ, "true"),
    F_OBJ("connection", REQ, &CONNECTION, NULL, "The connection."),
};
SCHEMA(API_CONNECTION_ANSWER, "ConnectionAnswer", CONNECTION_ANSWER_FIELDS);

static const struct api_field CONNECTIONS_ANSWER_FIELDS[] = {
    F_BOOL("success", REQ, "true"),
    F_OBJS("connections", REQ, 0, 0, &CONNECTION, "The owner's connections in the account."),
};
SCHEMA(API_CONNECTIONS_ANSWER, "ConnectionsAnswer", CONNECTIONS_ANSWER_FIELDS);

static const struct api_field CONNECTIONS_QUERY_FIELDS[] = {
    F_ID("accountId", REQ, "Account ID."),
};
SCHEMA(API_CONNECTIONS_QUERY, "ConnectionsQuery", CONNECTIONS_QUERY_FIELDS);

static const struct api_field SAVE_FIELDS[] = {
    F_ID("accountId", REQ, "Account of the installation."),
    F_ID("installationId", REQ, "The installed Warren Solution."),
    F_ID("appId", REQ, "App that holders belong to."),
    F_ID("templateId", REQ, "Template of the holders."),
    F_STR("region", REQ, 1, API_IDS_MAX, "Region of the holders."),
};
SCHEMA(API_CONNECTION_SAVE, "ConnectionSave", SAVE_FIELDS);

static const struct api_field SIGN_IN_FIELDS[] = {
    F_ID("accountId", REQ, "Account ID."),
    F_ID("connectionId", REQ, "Connection ID."),
    F_CHECKED("authFile", REQ | API_SECRET, 1, AUTH_FILE_MAX, auth_file_check, "The sign-in file."),
    F_CHECKED("githubToken", REQ | API_SECRET, 1, GITHUB_TOKEN_MAX, github_token_check,
              "The owner's GitHub credential."),
};
SCHEMA(API_CONNECTION_SIGN_IN, "ConnectionSignIn", SIGN_IN_FIELDS);

static const struct api_field TASK_FIELDS[] = {
    F_CHECKED("repository", REQ, 3, GITHUB_REPOSITORY_MAX, repository_check,
              "owner/name of a private repository."),
    F_STR("baseBranch", REQ, 1, BRANCH_MAX, "Branch the task starts from."),
    F_STR("model", REQ, 1, MODEL_MAX, "Model that may be used."),
    F_INT("tokenLimit", REQ, 1, TOKENS_MAX, "Tokens that may be used."),
    F_INT("timeLimitSeconds", REQ, TIME_MIN_S, TIME_MAX_S, "Seconds that the execution may take."),
    F_CHECKED("prompt", REQ | API_SECRET, 1, PROMPT_MAX, prompt_check, "What is to be done."),
};
static SCHEMA(TASK, "PersonalTask", TASK_FIELDS);

static const struct api_field RESERVE_FIELDS[] = {
    F_ID("accountId", REQ, "Account ID."),
    F_ID("connectionId", REQ, "Connection ID."),
    F_OBJ("task", REQ, &TASK, NULL, "The one task, frozen here."),
};
SCHEMA(API_CONNECTION_RESERVE, "ConnectionReserve", RESERVE_FIELDS);

static const struct api_field RESERVED_FIELDS[] = {
    F_BOOL("success", REQ, "true"),
    F_ID("operationId", REQ, "Id of the operation."),
    F_STR("grant", REQ | API_SECRET, 0, 0, "For the Warren Solution; shown this once."),
    F_TIME("expiresAt", REQ, "When the grant dies if unclaimed."),
};
SCHEMA(API_RESERVED, "Reserved", RESERVED_FIELDS);

static const struct api_field NAMED_FIELDS[] = {
    F_ID("accountId", REQ, "Account ID."),
    F_ID("connectionId", REQ, "Connection ID."),
};
SCHEMA(API_CONNECTION_NAMED, "ConnectionNamed", NAMED_FIELDS);

static const struct api_field CLAIM_FIELDS[] = {
    F_STR("grant", REQ | API_SECRET, 1, 255, "The owner's grant."),
    F_TEXT("runId", REQ, valid_run_id, "^[A-Za-z0-9._-]{1,128}$",
           "The run that is to be bound to it for ever; not 'claim'."),
};
SCHEMA(API_RUN_CLAIM, "RunClaim", CLAIM_FIELDS);

static const struct api_field RUN_FIELDS[] = {
    F_STR("runId", REQ, 0, 0, "The bound run."),
    F_ID("operationId", REQ, "The bound operation."),
    F_ID("sandboxId", REQ, "The reserved holder."),
    F_STR("repository", REQ, 0, 0, "Approved repository."),
    F_STR("baseBranch", REQ, 0, 0, "Approved base branch."),
    F_STR("model", REQ, 0, 0, "Approved model."),
    F_INT("tokenLimit", REQ, 0, 0, "Approved tokens."),
    F_INT("timeLimitSeconds", REQ, 0, 0, "Approved seconds."),
    F_TIME("claimedAt", REQ, "When it was bound."),
};
static SCHEMA(RUN, "Run", RUN_FIELDS);

static const struct api_field RUN_ANSWER_FIELDS[] = {
    F_BOOL("success", REQ, "true"),
    F_OBJ("run", REQ, &RUN, NULL, "The receipt of the binding."),
};
SCHEMA(API_RUN_ANSWER, "RunAnswer", RUN_ANSWER_FIELDS);

/* No field at all: a body is empty or {}. */
const struct api_schema API_RUN_EMPTY = { .name = "Empty" };

static const struct api_field HOLDER_ANSWER_FIELDS[] = {
    F_BOOL("success", REQ, "true"),
    F_ID("sandboxId", REQ, "The reserved holder."),
    F_BOOL("supervised", REQ, "The holder is up and watched."),
    F_STR("phase", REQ, 0, 0,
          "claimed, preparing, allocating, ready, terminating, terminated or quarantined."),
    F_BOOL("cleanupComplete", OPT, "DELETE and receipts: nothing is left."),
    F_BOOL("authPreserved", OPT, "Receipts: this cleanup kept the sign-in."),
};
SCHEMA(API_HOLDER_ANSWER, "HolderAnswer", HOLDER_ANSWER_FIELDS);

static const struct api_field EXECUTION_START_FIELDS[] = {
    F_STR("callbackToken", REQ | API_SECRET, 1, CALLBACK_TOKEN_MAX, "JWT for warren-callback."),
    F_STR("eventIngestToken", REQ | API_SECRET, 1, CALLBACK_TOKEN_MAX, "JWT for warren-events."),
};
SCHEMA(API_RUN_EXECUTION_START, "RunExecutionStart", EXECUTION_START_FIELDS);

static const struct api_field EXECUTION_ANSWER_FIELDS[] = {
    F_BOOL("success", REQ, "true"),
    F_STR("runId", REQ, 0, 0, "The run."),
    F_ID("executionId", OPT, "The one start."),
    F_STR("phase", REQ, 0, 0, "pending, running or exited."),
    F_INT("exitCode", OPT | API_NULLABLE, 0, 0, "Witnessed; null when nobody witnessed it."),
    F_STR("cause", OPT, 0, 0,
          "COMPLETED, FAILED, TIME_LIMIT, CANCELLED, OWNER_RESET, LOST or START_UNCERTAIN."),
    F_TIME("startedAt", OPT, "When the start was written down."),
    F_TIME("exitedAt", OPT, "When the end was written down."),
    F_ID("sandboxId", OPT, "Receipts: the holder."),
    F_BOOL("cleanupComplete", OPT, "Receipts: nothing is left."),
    F_BOOL("authPreserved", OPT, "Receipts: this cleanup kept the sign-in."),
};
SCHEMA(API_RUN_EXECUTION_ANSWER, "RunExecutionAnswer", EXECUTION_ANSWER_FIELDS);

static const struct api_field INSTALLATION_CREATE_FIELDS[] = {
    F_ID("accountId", REQ, "Account ID."),
    F_STR("controlHost", REQ, 1, HOST_MAX, "URL of the control host; iss of callback tokens."),
    F_STR("callbackKey", REQ, 1, PEM_MAX, "PEM public key of callback tokens."),
};
SCHEMA(API_ADMIN_INSTALLATION_CREATE, "AdminInstallationCreate", INSTALLATION_CREATE_FIELDS);

static const struct api_field INSTALLATION_NAMED_FIELDS[] = {
    F_ID("installationId", REQ, "Installation ID."),
};
SCHEMA(API_ADMIN_INSTALLATION_NAMED, "AdminInstallationNamed", INSTALLATION_NAMED_FIELDS);

static const struct api_field PRINCIPAL_CREATE_FIELDS[] = {
    F_ID("installationId", REQ, "Installation ID."),
    F_STRS("permissions", REQ, 1, 3, API_IDS_MAX, NULL,
           "Out of sandbox:create, sandbox:read, sandbox:terminate."),
};
SCHEMA(API_ADMIN_PRINCIPAL_CREATE, "AdminPrincipalCreate", PRINCIPAL_CREATE_FIELDS);
