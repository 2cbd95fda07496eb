#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "base/time.h"
#include "gateway/gateway_impl.h"

/* The owner-only process path of personal runs (sbx/gateway.h): one fixed entrypoint,
 * started once in the life of a holder; its exit is witnessed here, written down, and
 * told when it is asked for.  Files and stdin go to the agent and are kept nowhere. */

enum {
    CALL_TIMEOUT_MS = 10000,
    FILES_MAX = 16,
    PATH_MAX_LEN = 255,
    INPUT_MAX = 1024 * 1024,
    /* The control plane ends a run by its own limit; this one is a net far below it. */
    PROCESS_TIMEOUT_MS = 7 * 24 * 3600 * 1000,
    MISSING_GRACE_MS = 15000, /* a redialled agent has said by then what lives */
};

/* The holder behind id, under the lock; NULL with an error. */
static struct gateway_sandbox *holder(struct gateway *g, const char *id, struct sbx_err *err)
{
    struct gateway_sandbox *s = gateway_find(g, id);

    if (s == NULL || s->phase != GATEWAY_PHASE_RUNNING || !s->personal || !s->agent) {
        err_put(err, SBX_E_SANDBOX_NOT_FOUND, "there is no such holder");
        return NULL;
    }
    return s;
}

static enum sbx_code runtime_of(struct gateway *g, const char *id, char runtime[ID_SIZE],
                                struct sbx_err *err)
{
    const struct gateway_sandbox *s;

    (void)pthread_mutex_lock(&g->lock);
    s = holder(g, id, err);
    if (s != NULL)
        (void)str_copy(runtime, ID_SIZE, s->runtime);
    (void)pthread_mutex_unlock(&g->lock);
    return err->code;
}

static enum sbx_code entrypoint_of(const json_t *body, struct sbx_err *err)
{
    const json_t *command = json_object_get(body, "command");
    const char *path = json_string_value(json_array_get(command, 0));

    if (json_array_size(command) != 1 || path == NULL || strcmp(path, SBX_AGENT_ENTRYPOINT) != 0)
        return err_field(err, "command", "command must be the entry point alone");
    return SBX_OK;
}

static enum sbx_code check_entrypoint(struct gateway *g, const char *runtime, struct sbx_err *err)
{
    bool there = true;

    if (g->driver->ops->has_program != NULL &&
        g->driver->ops->has_program(g->driver, runtime, SBX_AGENT_ENTRYPOINT, &there, err) !=
            SBX_OK)
        return err->code;
    if (!there)
        return err_set(err, SBX_E_ENTRYPOINT_MISSING,
                       "the image has no entry point for personal runs");
    return SBX_OK;
}

/* --- files ------------------------------------------------------------------- */

static enum sbx_code put_file(struct gateway *g, const char *runtime, const json_t *file,
                              struct sbx_err *err)
{
    const char *path = json_get_str(file, "path", "");
    const json_t *content = json_object_get(file, "content");
    SCOPED_BUF struct buf payload = BUF_INIT(SBX_AGENT_FRAME_MAX);
    struct relay_call call = { .id = runtime,
                               .type = SBX_AGENT_PUT_FILE,
                               .payload = &payload,
                               .timeout_ms = CALL_TIMEOUT_MS };
    enum sbx_code code;

    if (!json_is_string(content) || strnlen(path, PATH_MAX_LEN + 1) > PATH_MAX_LEN)
        return err_field(err, "files", "a file needs a path and a content");
    (void)relay_put_text(&payload, SBX_TAG_PATH, path);
    (void)relay_put_number(&payload, SBX_TAG_MODE, (uint64_t)json_get_int(file, "mode", 0600));
    (void)relay_put_field(&payload, SBX_TAG_STDIN, json_string_value(content),
                          json_string_length(content));
    if (payload.full)
        return err_field(err, "files", "a file is too large");
    code = relay_call(g->relay, &call, err);
    secret_wipe(payload.data, payload.len);
    return code;
}

static enum sbx_code put_files(struct gateway *g, const char *runtime, const json_t *files,
                               struct sbx_err *err)
{
    const json_t *file;
    size_t i;

    if (json_array_size(files) > FILES_MAX)
        return err_field(err, "files", "at most %d files are written", FILES_MAX);
    json_array_foreach((json_t *)(uintptr_t)files, i, file)
    {
        if (put_file(g, runtime, file, err) != SBX_OK)
            return err->code;
    }
    return SBX_OK;
}

/* --- the exit ------------------------------------------------------------------- */

/* Writes down how it ended.  Once for each holder, so that the relay's thread may wait for the
 * disk. */
void gateway_process_ended(struct gateway *g, const char *runtime, const char *execution_id,
                           int exit_code, int signal)
{
    struct gateway_sandbox *s;
    struct sbx_err err = { 0 };
    bool ours;

    (void)pthread_mutex_lock(&g->lock);
    s = gateway_find_runtime(g, runtime);
    ours = s != NULL && s->process.state == GATEWAY_PROCESS_STARTED &&
           strcmp(s->process.id, execution_id) == 0;
    if (ours) {
        s->process.state = GATEWAY_PROCESS_EXITED;
        s->process.exit_code = exit_code;
        s->process.signal = signal;
    }
    (void)pthread_mutex_unlock(&g->lock);
    if (ours && gateway_record(g, s, &err) != SBX_OK)
        log_err(LOG_ERROR, "the exit of an entry point was not written down", &err,
                LOG_S("sandboxId", runtime));
}

struct waiting {
    struct gateway *g;
    char runtime[ID_SIZE];
    char execution_id[ID_SIZE];
};

/* A lost connection says nothing about the entry point: its exit comes with the agent's redial. */
static void done(void *arg, struct relay_result *result)
{
    SCOPED_FREE struct waiting *w = arg;

    if (result->err.code == SBX_OK)
        gateway_process_ended(w->g, w->runtime, w->execution_id, result->exit_code, result->signal);
    relay_result_free(w->g->relay, result);
}

/* --- actions ---------------------------------------------------------------------- */

/* Says that nothing was started: the caller may try again. */
static enum sbx_code check_agent(struct gateway *g, const char *runtime, struct sbx_err *err)
{
    return relay_is_ready(g->relay, runtime)
               ? SBX_OK
               : err_set(err, SBX_E_SANDBOX_NOT_READY, "the holder's agent is not connected");
}

static enum sbx_code check(struct gateway *g, const char *id, const json_t *body, json_t *answer,
                           struct sbx_err *err)
{
    char runtime[ID_SIZE];

    (void)answer;
    if (entrypoint_of(body, err) != SBX_OK || runtime_of(g, id, runtime, err) != SBX_OK ||
        check_entrypoint(g, runtime, err) != SBX_OK)
        return err->code;
    return check_agent(g, runtime, err);
}

/* The id is written down before anything starts: a second start is refused for ever. */
static enum sbx_code claim_start(struct gateway *g, const char *id, const char *execution_id,
                                 struct sbx_err *err)
{
    struct gateway_sandbox *s;

    (void)pthread_mutex_lock(&g->lock);
    s = holder(g, id, err);
    if (s != NULL && s->process.state != GATEWAY_PROCESS_NONE) {
        err_put(err, SBX_E_OPERATION_KNOWN, "the entry point was started before");
    } else if (s != NULL) {
        s->process.state = GATEWAY_PROCESS_STARTED;
        (void)str_copy(s->process.id, sizeof(s->process.id), execution_id);
    }
    (void)pthread_mutex_unlock(&g->lock);
    if (err->code != SBX_OK)
        return err->code;
    return gateway_record(g, s, err);
}

static enum sbx_code never_started(struct gateway *g, const char *id, struct sbx_err *err)
{
    const struct gateway_sandbox *s;

    (void)pthread_mutex_lock(&g->lock);
    s = holder(g, id, err);
    if (s != NULL && s->process.state != GATEWAY_PROCESS_NONE)
        err_put(err, SBX_E_OPERATION_KNOWN, "the entry point was started before");
    (void)pthread_mutex_unlock(&g->lock);
    return err->code;
}

static enum sbx_code start(struct gateway *g, const char *id, const json_t *body, json_t *answer,
                           struct sbx_err *err)
{
    static const char *const ARGV[] = { SBX_AGENT_ENTRYPOINT, NULL };
    const char *execution_id = json_get_str(body, "executionId", "");
    const json_t *input = json_object_get(body, "stdin");
    struct relay_execution e = { .execution_id = execution_id,
                                 .argv = ARGV,
                                 .timeout_ms = PROCESS_TIMEOUT_MS,
                                 .cap = 1,
                                 .done = done };
    char runtime[ID_SIZE];
    struct waiting *w;

    if (!id_valid(execution_id))
        return err_field(err, "executionId", "executionId is malformed");
    if (!json_is_string(input) || json_string_length(input) > INPUT_MAX)
        return err_field(err, "stdin", "stdin must be a text of at most %d bytes", INPUT_MAX);
    if (entrypoint_of(body, err) != SBX_OK || runtime_of(g, id, runtime, err) != SBX_OK ||
        check_entrypoint(g, runtime, err) != SBX_OK || never_started(g, id, err) != SBX_OK ||
        check_agent(g, runtime, err) != SBX_OK)
        return err->code;
    if (put_files(g, runtime, json_object_get(body, "files"), err) != SBX_OK)
        return err->code == SBX_E_AGENT_UNREACHABLE ? (err->code = SBX_E_SANDBOX_NOT_READY)
                                                    : err->code;
    if (claim_start(g, id, execution_id, err) != SBX_OK)
        return err->code;
    w = mem_zalloc(sizeof(*w));
    w->g = g;
    (void)str_copy(w->runtime, sizeof(w->runtime), runtime);
    (void)str_copy(w->execution_id, sizeof(w->execution_id), execution_id);
    e.id = runtime;
    e.input = json_string_value(input);
    e.input_len = json_string_length(input);
    e.arg = w;
    if (relay_execute(g->relay, &e, err) != SBX_OK) {
        free(w);
        return err->code;
    }
    json_put_bool(answer, "started", true);
    return SBX_OK;
}

static bool lives(struct gateway *g, const char *runtime, const char *execution_id)
{
    SCOPED_ARENA struct arena *a = arena_new();

    for (const char **ids = relay_executions(g->relay, runtime, a); *ids != NULL; ids++) {
        if (strcmp(*ids, execution_id) == 0)
            return true;
    }
    return false;
}

/* Started, no exit seen, and the agent does not name it: it never reached the agent, or its agent
 * is another one.  Believed once the agent had time to tell. */
static bool is_missing(struct gateway *g, const char *id, const char *runtime,
                       const char *execution_id)
{
    struct gateway_sandbox *s;
    int64_t now = time_mono_ms();
    bool missing = relay_is_ready(g->relay, runtime) && !lives(g, runtime, execution_id);

    (void)pthread_mutex_lock(&g->lock);
    s = gateway_find(g, id);
    if (s == NULL || s->process.state != GATEWAY_PROCESS_STARTED)
        missing = false;
    else if (!missing)
        s->process.missing_since_ms = 0;
    else if (s->process.missing_since_ms == 0)
        s->process.missing_since_ms = now;
    missing = missing && now - s->process.missing_since_ms >= MISSING_GRACE_MS;
    (void)pthread_mutex_unlock(&g->lock);
    return missing;
}

static enum sbx_code status(struct gateway *g, const char *id, const json_t *body, json_t *answer,
                            struct sbx_err *err)
{
    const char *execution_id = json_get_str(body, "executionId", "");
    struct gateway_process p = { 0 };
    const struct gateway_sandbox *s;
    char runtime[ID_SIZE] = "";
    bool known;

    (void)pthread_mutex_lock(&g->lock);
    s = holder(g, id, err);
    if (s != NULL) {
        p = s->process;
        (void)str_copy(runtime, sizeof(runtime), s->runtime);
    }
    (void)pthread_mutex_unlock(&g->lock);
    if (err->code != SBX_OK)
        return err->code;
    known = p.state != GATEWAY_PROCESS_NONE && strcmp(p.id, execution_id) == 0;
    if (known && p.state == GATEWAY_PROCESS_STARTED && is_missing(g, id, runtime, execution_id))
        known = false;
    json_put_bool(answer, "known", known);
    if (!known)
        return SBX_OK;
    json_put_bool(answer, "running", p.state == GATEWAY_PROCESS_STARTED);
    if (p.state == GATEWAY_PROCESS_EXITED) {
        json_put_int(answer, "exitCode", p.exit_code);
        if (p.signal != 0)
            json_put_int(answer, "signal", p.signal);
    }
    return SBX_OK;
}

static enum sbx_code read_file(struct gateway *g, const char *id, const json_t *body,
                               json_t *answer, struct sbx_err *err)
{
    int64_t max = json_get_int(body, "maxBytes", 0);
    SCOPED_BUF struct buf payload = BUF_INIT(1024);
    SCOPED_BUF struct buf data = BUF_INIT(SBX_AGENT_FILE_MAX + 1);
    SCOPED_BUF struct buf text = BUF_INIT(2 * SBX_AGENT_FILE_MAX);
    struct relay_call call = { .type = SBX_AGENT_GET_FILE,
                               .payload = &payload,
                               .timeout_ms = CALL_TIMEOUT_MS,
                               .data = &data };
    struct sbx_err why = { 0 };
    char runtime[ID_SIZE];

    if (max < 1 || max > SBX_AGENT_FILE_MAX)
        return err_field(err, "maxBytes", "maxBytes must be 1 to %d", SBX_AGENT_FILE_MAX);
    if (runtime_of(g, id, runtime, err) != SBX_OK)
        return err->code;
    (void)relay_put_text(&payload, SBX_TAG_PATH, json_get_str(body, "path", ""));
    (void)relay_put_number(&payload, SBX_TAG_MAX_BYTES, (uint64_t)max);
    call.id = runtime;
    if (relay_call(g->relay, &call, &why) != SBX_OK) {
        if (call.reason == SBX_AGENT_REASON_MISSING)
            return err_set(err, SBX_E_NOT_FOUND, "there is no such file");
        if (call.reason == SBX_AGENT_REASON_TOO_LARGE)
            return err_set(err, SBX_E_TOO_LARGE, "the file is larger than maxBytes");
        if (call.reason != SBX_AGENT_REASON_NONE)
            return err_set(err, SBX_E_CONFLICT, "the file cannot be read");
        *err = why;
        return err->code;
    }
    if (data.full || !base64_encode(&text, data.data, data.len))
        return err_set(err, SBX_E_TOO_LARGE, "the file is larger than maxBytes");
    json_put_str(answer, "content", text.data != NULL ? text.data : "");
    secret_wipe(data.data, data.len);
    secret_wipe(text.data, text.len);
    return SBX_OK;
}

static enum sbx_code kill_it(struct gateway *g, const char *id, const json_t *body, json_t *answer,
                             struct sbx_err *err)
{
    char runtime[ID_SIZE];

    (void)answer;
    if (runtime_of(g, id, runtime, err) != SBX_OK)
        return err->code;
    (void)relay_kill(g->relay, runtime, json_get_str(body, "executionId", ""));
    return SBX_OK;
}

static const struct {
    const char *name;
    enum sbx_code (*run)(struct gateway *g, const char *id, const json_t *body, json_t *answer,
                         struct sbx_err *err);
} ACTIONS[] = {
    { "check", check },    { "start", start },  { "status", status },
    { "read", read_file }, { "kill", kill_it },
};

enum sbx_code gateway_route_process(struct request *req, struct response *res, struct sbx_err *err)
{
    struct gateway *g = request_owner(req);
    const char *id = request_param(req, "id");
    SCOPED_JSON json_t *answer = json_object();
    json_t *body;

    request_log(req, "sandboxId", id);
    if (request_json(req, &body, err) != SBX_OK)
        return err->code;
    for (size_t i = 0; i < COUNT_OF(ACTIONS); i++) {
        if (strcmp(ACTIONS[i].name, json_get_str(body, "action", "")) != 0)
            continue;
        if (ACTIONS[i].run(g, id, body, answer, err) == SBX_OK)
            response_json(res, 200, NULL, STEAL(answer));
        return err->code;
    }
    return err_field(err, "action", "action must be check, start, status, read or kill");
}
