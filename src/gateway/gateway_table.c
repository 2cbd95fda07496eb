#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "base/time.h"
#include "gateway/gateway_impl.h"

const char *gateway_phase_name(enum gateway_phase p)
{
    static const char *const NAMES[] = {
        [GATEWAY_PHASE_NONE] = "",           [GATEWAY_PHASE_STARTING] = "starting",
        [GATEWAY_PHASE_RUNNING] = "running", [GATEWAY_PHASE_STOPPED] = "stopped",
        [GATEWAY_PHASE_FAILED] = "failed",
    };

    return NAMES[p];
}

static enum gateway_phase phase_parse(const char *name)
{
    for (int p = GATEWAY_PHASE_STARTING; p <= GATEWAY_PHASE_FAILED; p++) {
        if (strcmp(gateway_phase_name((enum gateway_phase)p), name) == 0)
            return (enum gateway_phase)p;
    }
    return GATEWAY_PHASE_NONE;
}

struct gateway_sandbox *gateway_find(struct gateway *g, const char *id)
{
    return id_map_get(&g->sandboxes, id);
}

struct gateway_sandbox *gateway_find_runtime(struct gateway *g, const char *runtime)
{
    return id_map_get(&g->by_runtime, runtime);
}

struct gateway_sandbox *gateway_make(struct gateway *g, const char *id)
{
    struct gateway_sandbox *s = mem_zalloc(sizeof(*s));

    (void)str_copy(s->id, sizeof(s->id), id);
    s->generation = -1;
    s->changed_ms = time_unix_ms();
    id_map_put(&g->sandboxes, id, s);
    return s;
}

static void result_free(struct gateway_result *r)
{
    if (r == NULL)
        return;
    free(r->msg);
    free(r->field);
    free(r->body);
    free(r);
}

void gateway_sandbox_free(struct gateway_sandbox *s)
{
    if (s == NULL)
        return;
    assert(s->busy == NULL && s->waiting == NULL);
    gateway_results_trim(s, 0);
    secret_wipe(s->key, sizeof(s->key));
    json_decref(s->denied);
    free(s);
}

static bool is_live(enum gateway_phase p)
{
    return p != GATEWAY_PHASE_NONE;
}

void gateway_set_phase(struct gateway *g, struct gateway_sandbox *s, enum gateway_phase phase)
{
    if (is_live(s->phase) && !is_live(phase)) {
        g->live--;
        g->warm -= s->warm ? 1 : 0;
    } else if (!is_live(s->phase) && is_live(phase)) {
        g->live++;
        g->warm += s->warm ? 1 : 0;
    }
    s->phase = phase;
    s->changed_ms = time_unix_ms();
}

void gateway_enter_driver(struct gateway *g, struct gateway_sandbox *s, const char *runtime)
{
    assert(!s->in_driver);
    (void)str_copy(s->runtime, sizeof(s->runtime), runtime);
    id_map_put(&g->by_runtime, runtime, s);
    s->in_driver = true;
}

void gateway_leave_driver(struct gateway *g, struct gateway_sandbox *s)
{
    if (s->in_driver)
        (void)id_map_remove(&g->by_runtime, s->runtime);
    s->in_driver = false;
}

/* ---- results ---- */

const struct gateway_result *gateway_result_find(const struct gateway_sandbox *s, const char *op)
{
    for (size_t i = 0; i < GATEWAY_OPS_MAX; i++) {
        if (s->ops[i] != NULL && strcmp(s->ops[i]->op, op) == 0)
            return s->ops[i];
    }
    return NULL;
}

void gateway_results_trim(struct gateway_sandbox *s, size_t keep)
{
    for (size_t i = keep; i < GATEWAY_OPS_MAX; i++) {
        result_free(s->ops[i]);
        s->ops[i] = NULL;
    }
}

void gateway_result_forget(struct gateway_sandbox *s, const char *op)
{
    if (s->ops[0] == NULL || strcmp(s->ops[0]->op, op) != 0)
        return;
    result_free(s->ops[0]);
    memmove(&s->ops[0], &s->ops[1], (GATEWAY_OPS_MAX - 1) * sizeof(s->ops[0]));
    s->ops[GATEWAY_OPS_MAX - 1] = NULL;
}

static void result_push(struct gateway_sandbox *s, struct gateway_result *r)
{
    gateway_results_trim(s, GATEWAY_OPS_MAX - 1);
    memmove(&s->ops[1], &s->ops[0], (GATEWAY_OPS_MAX - 1) * sizeof(s->ops[0]));
    s->ops[0] = r;
}

void gateway_result_add(struct gateway_sandbox *s, const char *op, const struct sbx_err *err,
                        const char *body)
{
    struct gateway_result *r = mem_zalloc(sizeof(*r));

    (void)str_copy(r->op, sizeof(r->op), op);
    r->code = err->code;
    if (err->code == SBX_OK)
        r->body = mem_strdup(body);
    else
        r->msg = mem_strdup(err->msg);
    if (err->code != SBX_OK && err->field[0] != 0)
        r->field = mem_strdup(err->field);
    result_push(s, r);
}

/* ---- the journal's form ---- */

static json_t *results_json(const struct gateway_sandbox *s)
{
    json_t *list = json_array();

    for (size_t i = 0; i < GATEWAY_OPS_MAX; i++) {
        const struct gateway_result *r = s->ops[i];
        json_t *j;

        if (r == NULL)
            break;
        j = json_object();
        json_put_str(j, "op", r->op);
        if (r->code != SBX_OK)
            json_put_str(j, "code", sbx_code_name(r->code));
        json_put_str(j, "msg", r->msg);
        json_put_str(j, "field", r->field);
        json_put_str(j, "body", r->body);
        (void)json_array_append_new(list, j);
    }
    return list;
}

static json_t *process_json(const struct gateway_process *p)
{
    json_t *j = json_object();

    json_put_str(j, "id", p->id);
    if (p->state == GATEWAY_PROCESS_EXITED) {
        json_put_int(j, "exitCode", p->exit_code);
        json_put_int(j, "signal", p->signal);
    }
    return j;
}

static void parse_process(const json_t *j, struct gateway_process *out)
{
    if (!json_is_object(j))
        return;
    out->state =
        json_object_get(j, "exitCode") != NULL ? GATEWAY_PROCESS_EXITED : GATEWAY_PROCESS_STARTED;
    (void)str_copy(out->id, sizeof(out->id), json_get_str(j, "id", ""));
    out->exit_code = (int)json_get_int(j, "exitCode", 0);
    out->signal = (int)json_get_int(j, "signal", 0);
}

char *gateway_record_text(const struct gateway_sandbox *s)
{
    SCOPED_JSON json_t *j = json_object();
    struct buf text = BUF_INIT(JOURNAL_TEXT_MAX - 1);
    char key[2 * SBX_AGENT_KEY_LEN + 1];

    json_put_int(j, "generation", s->generation);
    if (s->phase != GATEWAY_PHASE_NONE)
        json_put_str(j, "phase", gateway_phase_name(s->phase));
    json_put_int(j, "at", s->changed_ms);
    json_put_true(j, "deleted", s->deleted);
    if (s->in_driver) {
        hash_hex(s->key, sizeof(s->key), key);
        json_put_str(j, "runtime", s->runtime);
        json_put_str(j, "key", key);
        secret_wipe(key, sizeof(key));
    }
    json_put_new(j, "persistence", gateway_persistence_record(&s->persistence));
    json_put_str(j, "account", s->account[0] != 0 ? s->account : NULL);
    json_put_true(j, "agent", s->agent);
    json_put_true(j, "warm", s->warm);
    json_put_true(j, "claimed", s->claimed);
    json_put_true(j, "personal", s->personal);
    json_put_true(j, "oom", s->oom);
    json_put_str(j, "reason", s->reason[0] != 0 ? s->reason : NULL);
    if (s->process.state != GATEWAY_PROCESS_NONE)
        json_put_new(j, "process", process_json(&s->process));
    json_put_new(j, "ops", results_json(s));
    if (!json_write(&text, j)) {
        buf_fini(&text);
        return NULL;
    }
    return buf_take(&text);
}

static void parse_results(struct gateway_sandbox *s, const json_t *list)
{
    size_t n = json_array_size(list);

    for (size_t i = n; i-- > 0;) {
        const json_t *j = json_array_get(list, i);
        struct gateway_result *r = mem_zalloc(sizeof(*r));
        const char *code = json_get_str(j, "code", NULL);
        const char *msg = json_get_str(j, "msg", NULL);
        const char *field = json_get_str(j, "field", NULL);
        const char *body = json_get_str(j, "body", NULL);

        (void)str_copy(r->op, sizeof(r->op), json_get_str(j, "op", ""));
        if (code != NULL && !sbx_code_parse(code, &r->code))
            r->code = SBX_E_INTERNAL; /* of a version that had more codes */
        r->msg = msg != NULL ? mem_strdup(msg) : NULL;
        r->field = field != NULL ? mem_strdup(field) : NULL;
        r->body = body != NULL ? mem_strdup(body) : NULL;
        result_push(s, r);
    }
}

struct gateway_sandbox *gateway_record_parse(const char *id, const char *text)
{
    struct gateway_sandbox *s;
    SCOPED_JSON json_t *j = NULL;
    struct sbx_err err = { 0 };
    const char *key, *runtime;

    if (json_parse_object(text, strlen(text), &j, &err) != SBX_OK)
        return NULL;
    s = mem_zalloc(sizeof(*s));
    (void)str_copy(s->id, sizeof(s->id), id);
    s->generation = json_get_int(j, "generation", -1);
    s->phase = phase_parse(json_get_str(j, "phase", ""));
    s->changed_ms = json_get_int(j, "at", 0);
    s->deleted = json_get_bool(j, "deleted", false);
    s->agent = json_get_bool(j, "agent", false);
    s->warm = json_get_bool(j, "warm", false);
    s->claimed = json_get_bool(j, "claimed", false);
    s->personal = json_get_bool(j, "personal", false);
    s->oom = json_get_bool(j, "oom", false);
    (void)str_copy(s->account, sizeof(s->account), json_get_str(j, "account", ""));
    (void)str_copy(s->reason, sizeof(s->reason), json_get_str(j, "reason", ""));
    gateway_persistence_parse(json_object_get(j, "persistence"), &s->persistence);
    runtime = json_get_str(j, "runtime", "");
    key = json_get_str(j, "key", "");
    if (id_valid(runtime) && hash_unhex(key, s->key, sizeof(s->key))) {
        (void)str_copy(s->runtime, sizeof(s->runtime), runtime);
        s->in_driver = true; /* to be seen: the start asks the driver */
    }
    parse_process(json_object_get(j, "process"), &s->process);
    parse_results(s, json_object_get(j, "ops"));
    return s;
}

enum sbx_code gateway_record(struct gateway *g, struct gateway_sandbox *s, struct sbx_err *err)
{
    SCOPED_FREE char *text = NULL;
    struct journal_entry e = { .id = s->id };

    (void)pthread_mutex_lock(&g->lock);
    text = gateway_record_text(s);
    (void)pthread_mutex_unlock(&g->lock);
    if (text == NULL)
        return err_set(err, SBX_E_TOO_LARGE, "the sandbox's record is too large");
    e.text = text;
    return journal_put(g->journal, &e, 1, err);
}

/* ---- the protocol's form ---- */

/* A failed one's reason is asked for once, when somebody looks. */
static void learn_reason(struct gateway *g, const char *id, const char *runtime)
{
    struct driver_state state = { 0 };
    struct sbx_err err = { 0 };
    struct gateway_sandbox *s;

    if (g->driver->ops->observe(g->driver, runtime, &state, &err) != SBX_OK)
        return;
    (void)pthread_mutex_lock(&g->lock);
    s = gateway_find(g, id);
    if (s != NULL && s->phase == GATEWAY_PHASE_FAILED && s->reason[0] == 0) {
        s->oom = state.oom_killed;
        (void)str_copy(s->reason, sizeof(s->reason),
                       state.reason[0] != 0 ? state.reason : "the sandbox's processes ended");
    }
    (void)pthread_mutex_unlock(&g->lock);
}

static json_t *ids_json(const char **ids)
{
    json_t *list = json_array();

    for (; *ids != NULL; ids++)
        (void)json_array_append_new(list, json_string(*ids));
    return list;
}

json_t *gateway_sandbox_json(struct gateway *g, const char *id)
{
    SCOPED_ARENA struct arena *a = arena_new();
    struct gateway_sandbox *s;
    json_t *j = NULL;
    char runtime[ID_SIZE] = "";
    bool ask;

    (void)pthread_mutex_lock(&g->lock);
    s = gateway_find(g, id);
    ask = s != NULL && s->phase == GATEWAY_PHASE_FAILED && s->reason[0] == 0 && s->in_driver;
    if (s != NULL)
        (void)str_copy(runtime, sizeof(runtime), s->runtime);
    (void)pthread_mutex_unlock(&g->lock);
    if (ask)
        learn_reason(g, id, runtime);
    (void)pthread_mutex_lock(&g->lock);
    s = gateway_find(g, id);
    if (s != NULL && s->phase != GATEWAY_PHASE_NONE) {
        j = json_object();
        json_put_str(j, "sandboxId", s->id);
        json_put_int(j, "generation", s->generation);
        json_put_str(j, "phase", gateway_phase_name(s->phase));
        json_put_bool(j, "agent", s->agent);
        json_put_str(j, "reason", s->reason[0] != 0 ? s->reason : NULL);
        json_put_true(j, "oomKilled", s->oom);
        json_put_true(j, "warm", s->warm);
        json_put_true(j, "claimed", s->claimed);
        json_put_new(j, "persistence", gateway_persistence_json(&s->persistence));
    }
    (void)pthread_mutex_unlock(&g->lock);
    if (j != NULL)
        json_put_new(j, "executions", ids_json(relay_executions(g->relay, runtime, a)));
    return j;
}
