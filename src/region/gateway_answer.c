#include <string.h>

#include "base/str.h"
#include "base/time.h"
#include "region/gateway_client_call.h"

enum { LIST_EXECUTIONS_MAX = 65536 };

static const struct {
    const char *name;
    enum region_phase phase;
} PHASES[] = {
    { "starting", REGION_PHASE_STARTING },
    { "running", REGION_PHASE_RUNNING },
    { "stopped", REGION_PHASE_STOPPED },
    { "failed", REGION_PHASE_FAILED },
};

static enum region_phase phase_of(const char *name)
{
    for (size_t i = 0; name && i < COUNT_OF(PHASES); i++) {
        if (strcmp(PHASES[i].name, name) == 0)
            return PHASES[i].phase;
    }
    return REGION_PHASE_NONE;
}

/* Milliseconds since the epoch, as a number or as ISO text. */
static int64_t time_of(const json_t *j, const char *key)
{
    const char *text = json_get_str(j, key, NULL);
    int64_t ms;

    if (text)
        return time_iso_parse(text, &ms) ? ms : 0;
    return json_get_int(j, key, 0);
}

/* One SANDBOX object; false when it is not what the protocol says. */
static bool sandbox_read(const json_t *j, const char *id, struct arena *a,
                         struct region_sandbox *out)
{
    const char *got = json_get_str(j, "sandboxId", NULL);
    const json_t *executions = json_object_get(j, "executions");
    const json_t *p = json_object_get(j, "persistence");

    if (!got || !id_valid(got) || (id && id[0] && strcmp(id, got) != 0))
        return false;
    (void)str_copy(out->id, sizeof(out->id), got);
    out->generation = json_get_int(j, "generation", -1);
    out->phase = phase_of(json_get_str(j, "phase", NULL));
    if (out->generation < 0 || out->phase == REGION_PHASE_NONE)
        return false;
    out->agent = json_get_bool(j, "agent", false);
    out->oom_killed = json_get_bool(j, "oomKilled", false);
    out->warm = json_get_bool(j, "warm", false);
    out->claimed = json_get_bool(j, "claimed", false);
    out->reason = json_get_str(j, "reason", "");
    out->denied_egress = json_get_int(j, "deniedEgress", 0);
    if (executions) {
        out->executions = json_strings(a, executions, &out->execution_count);
        if (!out->executions || out->execution_count > LIST_EXECUTIONS_MAX)
            return false;
    }
    if (p) {
        if (!json_is_object(p))
            return false;
        out->has_persistence = true;
        out->mount_path = json_get_str(p, "mountPath", NULL);
        out->last_snapshot_at_ms = time_of(p, "lastSnapshotAt");
        out->last_snapshot_bytes = json_get_int(p, "lastSnapshotBytes", 0);
        out->last_snapshot_error = json_get_str(p, "lastSnapshotError", NULL);
        out->restore_failed = json_get_bool(p, "restoreFailed", false);
    }
    return true;
}

static bool list_read(const json_t *j, struct arena *a, struct gateway_client_answer *out)
{
    const json_t *list = json_object_get(j, "sandboxes");
    size_t count = json_array_size(list);
    struct region_sandbox *rows;

    if (!json_is_array(list) || count > SBX_GATEWAY_LIST_MAX)
        return false;
    rows = arena_zalloc(a, (count + 1) * sizeof(*rows));
    for (size_t i = 0; i < count; i++) {
        if (!sandbox_read(json_array_get(list, i), NULL, a, &rows[i]))
            return false;
        /* In id order, or a walk could end in a circle. */
        if (i > 0 && strcmp(rows[i - 1].id, rows[i].id) >= 0)
            return false;
    }
    out->sandboxes = rows;
    out->sandbox_count = count;
    out->next = json_get_str(j, "next", NULL);
    if (out->next && (count == 0 || strcmp(out->next, rows[count - 1].id) < 0))
        return false;
    return true;
}

static bool volumes_read(const json_t *j, struct arena *a, struct gateway_client_answer *out)
{
    const json_t *list = json_object_get(j, "volumes");
    size_t count = json_array_size(list);
    struct region_volume *rows;

    if (!json_is_array(list) || count > SBX_GATEWAY_LIST_MAX)
        return false;
    rows = arena_zalloc(a, (count + 1) * sizeof(*rows));
    for (size_t i = 0; i < count; i++) {
        const char *account = json_get_str(json_array_get(list, i), "accountId", "");

        rows[i].volume_name = json_get_str(json_array_get(list, i), "volumeName", NULL);
        if (!id_valid(account) || !rows[i].volume_name)
            return false;
        (void)str_copy(rows[i].account_id, sizeof(rows[i].account_id), account);
    }
    out->volumes = rows;
    out->volume_count = count;
    return true;
}

static bool success_read(enum region_answer_kind kind, const char *id, const json_t *j,
                         struct arena *a, struct gateway_client_answer *out)
{
    struct region_sandbox *row;
    const char *got;

    switch (kind) {
    case REGION_ANSWER_SANDBOX:
        row = arena_zalloc(a, sizeof(*row));
        out->sandboxes = row;
        out->sandbox_count = 1;
        return sandbox_read(j, id, a, row);
    case REGION_ANSWER_LIST:
        return list_read(j, a, out);
    case REGION_ANSWER_GONE:
        got = json_get_str(j, "sandboxId", NULL);
        return got && strcmp(got, id) == 0 && json_get_bool(j, "gone", false);
    case REGION_ANSWER_SNAPSHOT:
        out->snapshot_bytes = json_get_int(j, "bytes", -1);
        out->snapshot_archived_bytes = json_get_int(j, "archivedBytes", 0);
        out->snapshot_at_ms = time_of(j, "takenAt");
        return out->snapshot_bytes >= 0 && out->snapshot_at_ms > 0;
    case REGION_ANSWER_VOLUMES:
        return volumes_read(j, a, out);
    case REGION_ANSWER_JSON:
    case REGION_ANSWER_ANY:
    case REGION_ANSWER_EXECUTE:
        out->json = j;
        return true;
    }
    return false;
}

static void garbage(struct gateway_client_answer *out, const char *what)
{
    out->code = SBX_E_UNAVAILABLE;
    out->message = what;
    out->answered = false;
    out->sandboxes = NULL;
    out->sandbox_count = 0;
    out->volumes = NULL;
    out->volume_count = 0;
    out->json = NULL;
    out->next = NULL;
}

/* {"error", "code", "retryAfterSeconds"?, "field"?} of sbx/gateway.h. */
static void failure_read(const struct net_answer *got, json_t **json,
                         struct gateway_client_answer *out)
{
    struct sbx_err ignored = { 0 };
    const char *code;

    if (got->status == 401) {
        out->code = SBX_E_UNAUTHENTICATED;
        out->message = "the region does not accept this control plane's credential";
        return;
    }
    if (json_parse_object(got->body ? got->body : "", got->body_len, json, &ignored)) {
        garbage(out, got->status >= 500 ? "the region failed without saying why"
                                        : "the region's answer cannot be read");
        return;
    }
    code = json_get_str(*json, "code", "");
    if (!sbx_code_parse(code, &out->code) || out->code == SBX_OK) {
        out->code = got->status >= 500 ? SBX_E_UNAVAILABLE : SBX_E_UNKNOWN;
        out->answered = got->status < 500;
    }
    out->message = json_get_str(*json, "error", "the region gave no reason");
    out->field = json_get_str(*json, "field", "");
    out->retry_after_s = (int)json_get_int(*json, "retryAfterSeconds", 0);
}

void region_answer_read(enum region_answer_kind kind, const char *id, const struct net_answer *got,
                        const struct sbx_err *err, struct arena *a, json_t **json,
                        struct gateway_client_answer *out)
{
    struct sbx_err parse = { 0 };

    *out = (struct gateway_client_answer){ .message = "", .field = "" };
    out->sent = got->phase != NET_NOT_SENT;
    if (err) {
        out->code = err->code;
        out->message = err->msg;
        if (err->code == SBX_E_TOO_LARGE || err->code == SBX_E_INTERNAL)
            garbage(out, "the region's answer is too large");
        return;
    }
    out->answered = true;
    if (got->status < 200 || got->status > 299) {
        failure_read(got, json, out);
        return;
    }
    if (kind == REGION_ANSWER_EXECUTE || kind == REGION_ANSWER_ANY)
        return;
    if (json_parse_object(got->body, got->body_len, json, &parse) ||
        !success_read(kind, id, *json, a, out))
        garbage(out, "the region's answer is not what the protocol says");
}

/* --- execute answers --------------------------------------------------- */

enum field_type { FIELD_INT = 1, FIELD_TEXT, FIELD_TRUE, FIELD_ENCODING };

static const struct {
    const char *name;
    enum field_type type;
    bool required;
} EXECUTE_FIELDS[] = {
    { "exitCode", FIELD_INT, true },
    { "stdout", FIELD_TEXT, true },
    { "stderr", FIELD_TEXT, true },
    { "durationMs", FIELD_INT, true },
    { "timedOut", FIELD_TRUE, false },
    { "signal", FIELD_INT, false },
    { "stdoutTruncated", FIELD_TRUE, false },
    { "stderrTruncated", FIELD_TRUE, false },
    { "stdoutBytes", FIELD_INT, false },
    { "stderrBytes", FIELD_INT, false },
    { "stdoutEncoding", FIELD_ENCODING, false },
    { "stderrEncoding", FIELD_ENCODING, false },
};

static bool execute_field_good(const json_t *v, enum field_type type)
{
    switch (type) {
    case FIELD_INT:
        return json_is_integer(v) && json_integer_value(v) >= 0;
    case FIELD_TEXT:
        return json_is_string(v);
    case FIELD_TRUE:
        return json_is_boolean(v);
    case FIELD_ENCODING:
        return json_is_string(v) && strcmp(json_string_value(v), "base64") == 0;
    }
    return false;
}

enum sbx_code gateway_client_output_json(const struct gateway_client_output *o, json_t **out,
                                         struct sbx_err *err)
{
    SCOPED_JSON json_t *j = NULL;
    struct sbx_err parse = { 0 };
    size_t known = 0;

    if (json_parse_object_nul(o->body.data ? o->body.data : "", o->body.len, &j, &parse))
        return err_set(err, SBX_E_AGENT_UNREACHABLE,
                       "The region's answer cannot be read; the outcome is not known.");
    for (size_t i = 0; i < COUNT_OF(EXECUTE_FIELDS); i++) {
        const json_t *v = json_object_get(j, EXECUTE_FIELDS[i].name);

        if (v ? !execute_field_good(v, EXECUTE_FIELDS[i].type) : EXECUTE_FIELDS[i].required)
            return err_set(err, SBX_E_AGENT_UNREACHABLE,
                           "The region's answer is not complete; the outcome is not known.");
        if (!v)
            continue;
        known++;
        /* A flag that is false is left out (contract 4). */
        if (EXECUTE_FIELDS[i].type == FIELD_TRUE && !json_is_true(v)) {
            (void)json_object_del(j, EXECUTE_FIELDS[i].name);
            known--;
        }
    }
    if (json_object_size(j) != known)
        return err_set(err, SBX_E_AGENT_UNREACHABLE,
                       "The region's answer has unknown parts; the outcome is not known.");
    /* The count says what the stream itself no longer does. */
    if (json_object_get(j, "stdoutTruncated") == NULL)
        (void)json_object_del(j, "stdoutBytes");
    if (json_object_get(j, "stderrTruncated") == NULL)
        (void)json_object_del(j, "stderrBytes");
    *out = STEAL(j);
    return SBX_OK;
}
