#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/str.h"
#include "sim/sim.h"
#include "store/runs.h"

/* Personal runs in the store stand-in: the semantics of store/operations.c and
 * store/connections.c, under the names of the real functions, so that the real driver
 * (reconcile/runs.c, runs_steps.c) is linked against them.  And what must hold of a run. */

enum {
    GRANT_LIFE_MS = 60000, /* five minutes in the product; a history is shorter */
    HOLDER_LIFE_MS = 200000,
    SETTLE_MS = 90000,
};

static struct sim_operation *operation_of(struct sim *s, const char *id)
{
    int at = s->operation_at[sim_id_number(id)];

    return at > 0 ? &s->operations[at - 1] : NULL;
}

struct sim_operation *sim_operation_of_box(struct sim *s, const char *sandbox_id)
{
    for (int i = 0; i < s->operation_count; i++) {
        if (strcmp(s->operations[i].sandbox_id, sandbox_id) == 0)
            return &s->operations[i];
    }
    return NULL;
}

static struct sim_connection *connection_of(struct sim *s, const char *id)
{
    return &s->connections[atoi(id)];
}

static struct sim_operation *unfinished(struct sim *s, const struct sim_connection *k)
{
    for (int i = 0; i < s->operation_count; i++) {
        struct sim_operation *o = &s->operations[i];

        if (o->connection == (int)(k - s->connections) && !run_phase_done(o->facts.phase))
            return o;
    }
    return NULL;
}

/* Somebody else acts between two store calls of a pass, now and then. */
static void interleave(struct store_conn *db)
{
    struct sim_conn *c = (struct sim_conn *)(void *)db;
    struct sim *s = c->sim;
    int other;

    if (s->nested || c->plane < 0 || !sim_chance(s, s->weather.interleave))
        return;
    s->nested = true;
    if (sim_below(s, 2))
        sim_people_act(s);
    other = sim_alive_plane(s);
    if (other >= 0 && other != c->plane)
        sim_plane_pass_runs(s, other);
    s->nested = false;
}

static void give(const struct sim *s, const struct sim_operation *o, struct arena *a,
                 struct store_operation *out)
{
    *out = (struct store_operation){
        .operation_id = arena_strdup(a, o->id),
        .connection_id = arena_strdup(a, s->connections[o->connection].id),
        .account_id = "account",
        .installation_id = "installation",
        .owner_user_id = "owner",
        .app_id = "app",
        .template_id = "template",
        .region = SIM_REGION_NAMES[0],
        .sandbox_id = arena_strdup(a, o->sandbox_id),
        .facts = o->facts,
        .version = o->version,
        .run_id = o->run ? arena_strdup(a, o->run_id) : NULL,
        .time_limit_s = 60,
        .auth_generation = (int)o->auth_generation,
        .execution_id = o->execution_id[0] ? arena_strdup(a, o->execution_id) : NULL,
        .started_at_ms = o->started,
        .auth_preserved = o->preserved,
        .now_ms = sim_db_now(s),
    };
    if (s->mutation == SIM_EXIT_INVENTED && out->facts.execution == RUN_EXEC_EXITED &&
        !out->facts.exit_known) {
        out->facts.exit_known = true;
        out->facts.exit_code = 0;
    }
}

/* --- what must hold of a change ---------------------------------------- */

static bool legal(enum run_phase from, enum run_phase to)
{
    for (size_t i = 0; i < RUN_MOVE_COUNT; i++) {
        if (RUN_MOVES[i].from == from && RUN_MOVES[i].to == to)
            return true;
    }
    return from == to;
}

static void changed(struct sim *s, struct sim_operation *o, const struct sim_operation *before,
                    const char *by)
{
    const struct run_facts *now = &o->facts, *was = &before->facts;

    o->since = s->now;
    sim_trace(s, "run %s %s/%s -> %s/%s by %s", o->id, run_phase_name(was->phase),
              run_execution_name(was->execution), run_phase_name(now->phase),
              run_execution_name(now->execution), by);
    if (!legal(was->phase, now->phase))
        sim_break(s, "run %s: %s -> %s is no move of the table", o->id, run_phase_name(was->phase),
                  run_phase_name(now->phase));
    if (run_phase_done(was->phase))
        sim_break(s, "run %s: changed after its end", o->id);
    if (o->version != before->version + 1)
        sim_break(s, "run %s: the version did not grow by one", o->id);
    if (was->execution == RUN_EXEC_EXITED && now->execution != RUN_EXEC_EXITED)
        sim_break(s, "run %s: exited, and %s again", o->id, run_execution_name(now->execution));
    if (now->exit_known && (!o->exited || now->exit_code != o->exit_code))
        sim_break(s, "run %s: an exit code that nobody witnessed", o->id);
    if (was->exit_known && (!now->exit_known || now->exit_code != was->exit_code))
        sim_break(s, "run %s: a witnessed exit was forgotten", o->id);
    if (was->owner_reset && !now->owner_reset)
        sim_break(s, "run %s: the owner's reset was forgotten", o->id);
    if (was->phase == RUN_QUARANTINED && now->phase != RUN_QUARANTINED &&
        now->phase != RUN_TERMINATING)
        sim_break(s, "run %s: it left the quarantine by itself", o->id);
}

/* The release: what the sign-in has become, and that nothing of the holder is left. */
static void released(struct sim *s, const struct sim_operation *o)
{
    const struct sim_connection *k = &s->connections[o->connection];
    const struct sim_row *r = sim_row_of(s, o->sandbox_id);
    const struct run_facts *f = &o->facts;

    if ((r && r->status != SANDBOX_TERMINATED) ||
        (!s->amnesia_struck && sim_box_of(s, o->sandbox_id)->compute))
        sim_break(s, "run %s: released while its holder is there", o->id);
    if (o->preserved) {
        if (!o->exited || o->exit_code != 0 || !f->exit_known || f->exit_code != 0)
            sim_break(s, "run %s: the sign-in survived without a witnessed exit 0", o->id);
        if (f->owner_reset)
            sim_break(s, "run %s: the sign-in survived the owner's reset", o->id);
        if (k->auth != o->wrote || k->generation != (int)o->auth_generation + 1)
            sim_break(s, "run %s: the next generation is not what the run left", o->id);
        return;
    }
    if (k->auth != 0 || k->generation != (int)o->auth_generation)
        sim_break(s, "run %s: a destructive release left a sign-in", o->id);
    if (f->exit_known && f->exit_code == 0 && f->staged && !f->owner_reset)
        sim_break(s, "run %s: a generation was lost", o->id);
}

/* --- the owner --------------------------------------------------------- */

static void set_auth(struct sim *s, struct sim_connection *k, int64_t auth, int generation)
{
    k->auth = auth;
    k->generation = generation;
    if (generation < k->seen_generation)
        sim_break(s, "connection %s: the generation went back", k->id);
    k->seen_generation = generation;
}

/* Owner and principal come by a connection of nobody's pass. */
#define CLIENT(s_)                                                                                 \
    struct sbx_err err_ = { 0 };                                                                   \
    struct sbx_err *err = &err_;                                                                   \
    ENTER(sim_conn_of((s_), -1))

enum sbx_code sim_sign_in(struct sim *s_, struct sim_connection *k)
{
    CLIENT(s_);
    if (unfinished(s, k))
        return SBX_E_CONNECTION_BUSY;
    set_auth(s, k, ++s->next_content, k->generation + 1);
    k->state = "READY";
    sim_trace(s, "connection %s: sign-in %lld, generation %d", k->id, (long long)k->auth,
              k->generation);
    LEAVE();
}

enum sbx_code sim_reserve(struct sim *s_, struct sim_connection *k)
{
    struct sim_operation *o;

    CLIENT(s_);
    o = unfinished(s, k);
    if (o && s->mutation == SIM_FENCE_BY_AGE && o->facts.phase == RUN_RESERVED &&
        o->grant_expires < sim_db_now(s)) {
        o->facts.phase = RUN_DROPPED;
        k->state = "READY";
    }
    if (strcmp(k->state, "READY") != 0 || s->operation_count == SIM_OPERATIONS)
        return SBX_E_CONNECTION_BUSY;
    o = &s->operations[s->operation_count++];
    memset(o, 0, sizeof(*o));
    sim_id(s, o->id);
    s->operation_at[sim_id_number(o->id)] = (int16_t)s->operation_count;
    sim_id(s, o->sandbox_id);
    o->connection = (int)(k - s->connections);
    o->installation = o->connection;
    o->grant_expires = sim_db_now(s) + GRANT_LIFE_MS;
    o->auth_generation = k->generation;
    o->since = s->now;
    k->state = "FENCED";
    sim_trace(s, "run %s reserved on connection %s", o->id, k->id);
    LEAVE();
}

enum sbx_code sim_reset(struct sim *s_, struct sim_connection *k)
{
    struct sim_operation *o, before;

    CLIENT(s_);
    o = unfinished(s, k);
    if (!o) {
        set_auth(s, k, 0, k->generation);
        k->state = "ABSENT";
        LEAVE();
    }
    before = *o;
    o->version++;
    if (o->facts.phase == RUN_RESERVED) {
        o->facts.phase = RUN_DROPPED;
        o->dropped = true;
        o->next_action = 0;
        k->state = "READY";
    } else {
        o->facts.phase = RUN_TERMINATING;
        o->facts.owner_reset = true;
        o->facts.cause = RUN_CAUSE_OWNER_RESET;
        o->next_action = sim_db_now(s);
        k->state = "RESETTING";
    }
    changed(s, o, &before, "the owner's reset");
    LEAVE();
}

/* --- the principal ----------------------------------------------------- */

/* Grants are as many as operations, so one is named by its operation's index. */
enum sbx_code sim_claim(struct sim *s_, int grant, int installation, int run)
{
    struct sim_operation *o, before;
    bool used = false;

    CLIENT(s_);
    o = &s->operations[grant];
    for (int i = 0; i < s->operation_count; i++)
        used = used || (s->operations[i].installation == installation &&
                        s->operations[i].run == run && &s->operations[i] != o);
    if (o->installation != installation || used)
        return SBX_E_GRANT_DENIED;
    if (o->run == run)
        LEAVE(); /* the receipt */
    if (o->facts.phase != RUN_RESERVED || o->grant_expires <= sim_db_now(s))
        return SBX_E_GRANT_DENIED;
    if (s->connections[o->connection].owner_away)
        return SBX_E_OWNER_ACCESS_LOST;
    if (o->run != 0)
        sim_break(s, "run %s: bound to a second run id", o->id);
    before = *o;
    o->run = run;
    (void)snprintf(o->run_id, sizeof(o->run_id), "run%d", run);
    o->facts.phase = RUN_CLAIMED;
    o->version++;
    changed(s, o, &before, "a claim");
    LEAVE();
}

enum sbx_code sim_run_find(struct sim *s_, struct store_conn *db, int installation, int run,
                           struct arena *a, struct store_operation *out, struct sbx_err *err)
{
    (void)s_;
    ENTER(db);
    for (int i = 0; i < s->operation_count; i++) {
        const struct sim_operation *o = &s->operations[i];

        if (o->run == run && o->installation == installation) {
            give(s, o, a, out);
            LEAVE();
        }
    }
    return err_set(err, SBX_E_RUN_NOT_FOUND, "no such run");
}

/* --- store/runs.h ------------------------------------------------------ */

enum sbx_code store_operation_get(struct store_conn *db, const char *operation_id, struct arena *a,
                                  struct store_operation *out, struct sbx_err *err)
{
    interleave(db);
    ENTER(db);
    give(s, operation_of(s, operation_id), a, out);
    LEAVE();
}

enum sbx_code store_operation_owner_ok(struct store_conn *db, const char *operation_id, bool *out,
                                       struct sbx_err *err)
{
    interleave(db);
    ENTER(db);
    *out = !s->connections[operation_of(s, operation_id)->connection].owner_away;
    LEAVE();
}

/* OPERATION_MOVE */
static void apply(struct sim *s, struct sim_operation *o, const struct store_operation_move *m)
{
    struct run_facts *f = &o->facts;

    if (m->set_phase)
        f->phase = m->phase;
    if (m->set_execution)
        f->execution = m->execution;
    if (m->execution_id)
        (void)str_copy(o->execution_id, ID_SIZE, m->execution_id);
    if (m->set_started)
        o->started = sim_db_now(s);
    if (m->set_exit_code) {
        f->exit_known = true;
        f->exit_code = m->exit_code;
    }
    if (m->cause != RUN_CAUSE_NONE)
        f->cause = m->cause;
    if (m->staged) {
        f->staged = true;
        o->staged = atoll((const char *)m->staged->data);
    }
    f->read_failed = f->read_failed || m->read_failed;
    f->owner_reset = f->owner_reset || m->owner_reset;
    if (m->connection_state)
        s->connections[o->connection].state = m->connection_state;
}

enum sbx_code store_operation_move(struct store_conn *db, const struct store_operation_move *m,
                                   struct arena *a, struct store_operation *out,
                                   struct sbx_err *err)
{
    struct sim_operation *o, before;

    interleave(db);
    ENTER(db);
    o = operation_of(s, m->operation_id);
    if (o->version != m->version || run_phase_done(o->facts.phase))
        return err_set(err, SBX_E_CHANGING, "not any more");
    before = *o;
    apply(s, o, m);
    o->lease_owner[0] = '\0';
    o->next_action = m->next_in_ms < 0 ? 0 : sim_db_now(s) + m->next_in_ms;
    o->version++;
    changed(s, o, &before, "a move");
    give(s, o, a, out);
    LEAVE();
}

enum sbx_code store_operation_finish(struct store_conn *db, const char *operation_id,
                                     int64_t version, bool clean, enum run_cause cause,
                                     struct arena *a, struct store_operation *out,
                                     struct sbx_err *err)
{
    struct sim_operation *o, before;
    struct sim_connection *k;

    interleave(db);
    ENTER(db);
    o = operation_of(s, operation_id);
    if (o->version != version || o->facts.phase != RUN_TERMINATING ||
        (clean && (o->facts.owner_reset || !o->facts.staged)))
        return err_set(err, SBX_E_CHANGING, "not any more");
    before = *o;
    k = &s->connections[o->connection];
    set_auth(s, k, clean ? o->staged : 0, k->generation + (clean ? 1 : 0));
    k->state = clean ? "READY" : "ABSENT";
    o->facts.phase = RUN_TERMINATED;
    o->facts.cause = cause;
    o->preserved = clean;
    if (o->facts.execution == RUN_EXEC_STARTING || o->facts.execution == RUN_EXEC_RUNNING)
        o->facts.execution = RUN_EXEC_EXITED;
    o->next_action = 0;
    o->lease_owner[0] = '\0';
    o->version++;
    changed(s, o, &before, clean ? "a clean release" : "a destructive release");
    released(s, o);
    give(s, o, a, out);
    LEAVE();
}

enum sbx_code store_operation_claim_due(struct store_conn *db, const char *owner, int64_t lease_ms,
                                        int limit, struct arena *a, struct store_operations *out,
                                        struct sbx_err *err)
{
    ENTER(db);
    out->rows = NULL;
    out->count = 0;
    for (int i = 0; i < s->operation_count && (int)out->count < limit; i++) {
        struct sim_operation *o = &s->operations[i];

        if (o->next_action == 0 || o->next_action > sim_db_now(s))
            continue;
        if (!out->rows)
            out->rows = arena_zalloc(a, SIM_OPERATIONS * sizeof(*out->rows));
        (void)str_copy(o->lease_owner, ID_SIZE, owner);
        o->next_action = sim_db_now(s) + lease_ms;
        give(s, o, a, &out->rows[out->count++]);
    }
    LEAVE();
}

enum sbx_code store_operation_release(struct store_conn *db, const char *operation_id,
                                      const char *owner, int64_t next_in_ms, struct sbx_err *err)
{
    struct sim_operation *o;

    ENTER(db);
    o = operation_of(s, operation_id);
    if (strcmp(o->lease_owner, owner) == 0 && o->next_action != 0) {
        o->lease_owner[0] = '\0';
        o->next_action = next_in_ms < 0 ? 0 : sim_db_now(s) + next_in_ms;
    }
    LEAVE();
}

enum sbx_code store_operation_next_due(struct store_conn *db, int64_t *in_ms, struct sbx_err *err)
{
    int64_t first = 0, now;

    ENTER(db);
    now = sim_db_now(s);
    for (int i = 0; i < s->operation_count; i++) {
        int64_t at = s->operations[i].next_action;

        if (at != 0 && (first == 0 || at < first))
            first = at;
    }
    *in_ms = first == 0 ? -1 : first > now ? first - now : 0;
    LEAVE();
}

enum sbx_code store_connection_get(struct store_conn *db, const char *account_id,
                                   const char *owner_user_id, const char *connection_id,
                                   struct arena *a, struct store_connection *out,
                                   struct sbx_err *err)
{
    const struct sim_connection *k;

    (void)account_id;
    (void)owner_user_id;
    interleave(db);
    ENTER(db);
    k = connection_of(s, connection_id);
    *out = (struct store_connection){
        .connection_id = arena_strdup(a, k->id),
        .state = k->state,
        .auth_generation = k->generation,
    };
    if (k->auth != 0) {
        const char *text = arena_printf(a, "%lld", (long long)k->auth);

        out->auth_sealed = (struct store_bytes){ (const unsigned char *)text, strlen(text) };
    }
    LEAVE();
}

const char *store_seal_context(struct arena *a, const char *table_column, const char *row_id)
{
    (void)a;
    (void)row_id;
    return table_column;
}

/* Sealing keeps the bytes as they are, with an end: a history is about which ones. */
enum sbx_code seal_open(const struct seal_keys *keys, const char *context, const void *sealed,
                        size_t len, struct secret **out, struct sbx_err *err)
{
    (void)keys;
    (void)context;
    (void)err;
    *out = secret_new(sealed, len);
    return SBX_OK;
}

enum sbx_code seal_close(const struct seal_keys *keys, const char *context, const void *data,
                         size_t len, struct buf *out, struct sbx_err *err)
{
    (void)keys;
    (void)context;
    (void)err;
    (void)buf_append(out, data, len);
    return SBX_OK;
}

/* --- the holder -------------------------------------------------------- */

enum sbx_code store_sandbox_get(struct store_conn *db, const char *account_id,
                                const char *sandbox_id, struct arena *a, struct store_sandbox *out,
                                struct sbx_err *err)
{
    const struct sim_row *r;

    (void)account_id;
    interleave(db);
    ENTER(db);
    r = sim_row_of(s, sandbox_id);
    if (!r)
        return err_set(err, SBX_E_NOT_FOUND, "no such sandbox");
    sim_row_give(s, r, a, out);
    LEAVE();
}

enum sbx_code store_sandbox_create(struct store_conn *db, const struct store_sandbox_new *in,
                                   struct arena *a, struct store_created *out, struct sbx_err *err)
{
    const struct sim_operation *o;
    struct sim_row *r;

    (void)a;
    (void)out;
    interleave(db);
    ENTER(db);
    if (sim_row_of(s, in->sandbox_id))
        LEAVE(); /* the same key again */
    o = sim_operation_of_box(s, in->sandbox_id);
    if (o->facts.phase != RUN_ALLOCATING && s->mutation != SIM_HOLDER_LATE)
        return err_set(err, SBX_E_CONFLICT, "the run does not allocate any more");
    if (sim_active(s, o->connection) >= s->quota)
        return err_set(err, SBX_E_QUOTA, "no place");
    r = sim_row_new(s, in->sandbox_id);
    if (!r)
        return err_set(err, SBX_E_QUOTA, "too many rows");
    r->account = o->connection;
    r->key = -1;
    r->personal = true;
    r->persistence = SANDBOX_PERSISTENCE_EPHEMERAL;
    r->expires = sim_db_now(s) + HOLDER_LIFE_MS;
    LEAVE();
}

static struct sim_conn *conn_of(struct reconcile *r)
{
    return (struct sim_conn *)(void *)r;
}

void reconcile_wake(struct reconcile *r)
{
    struct sim_plane *p = &conn_of(r)->sim->planes[conn_of(r)->plane];

    if (p->core)
        reconcile_core_wake(p->core);
    sim_pass_soon(conn_of(r)->sim, conn_of(r)->plane);
}

void reconcile_probe(struct reconcile *r, const char *sandbox_id)
{
    struct sim_plane *p = &conn_of(r)->sim->planes[conn_of(r)->plane];

    if (p->core)
        reconcile_core_probe(p->core, sandbox_id);
    sim_pass_soon(conn_of(r)->sim, conn_of(r)->plane);
}

enum sbx_code reconcile_terminate(struct reconcile *r, struct store_conn *db,
                                  const struct reconcile_ask *ask, struct arena *a,
                                  struct store_sandbox *out, struct sbx_err *err)
{
    bool changes;
    enum sbx_code code;

    interleave(db);
    code = reconcile_ask_end(&SIM_ASK, &conn_of(r)->sim->times, db, ask, a, out, &changes, err);
    if (changes)
        reconcile_wake(r);
    return code;
}

enum sbx_code gateway_client_process(struct gateway_client *c, const char *region,
                                     const char *sandbox_id, const json_t *body,
                                     const struct secret *process_secret, int timeout_s,
                                     gateway_client_fn *done, void *arg, struct sbx_err *err)
{
    struct sim_conn *conn = (struct sim_conn *)(void *)c;
    bool read = strcmp(json_get_str(body, "action", ""), "read") == 0;

    (void)region;
    (void)process_secret;
    (void)timeout_s;
    (void)err;
    sim_process_call(conn->sim, conn->plane, sandbox_id,
                     read ? SIM_PROCESS_READ : SIM_PROCESS_STATUS,
                     json_get_str(body, "executionId", ""), done, arg);
    return SBX_OK;
}

/* The driver opens its own connection only in the thread that the simulation does not start. */
struct store_conn *store_conn_new(const struct store_config *config, const char *name)
{
    (void)config;
    (void)name;
    abort();
}

void store_conn_free(struct store_conn *db)
{
    (void)db;
    abort();
}

/* --- a plane's driver --------------------------------------------------- */

struct reconcile_runs *sim_runs_new(struct sim *s, int plane)
{
    struct reconcile_runs *r = mem_zalloc(sizeof(*r));

    r->db = sim_conn_of(s, plane);
    r->cfg.reconcile = (struct reconcile *)(void *)r->db;
    r->cfg.gateways = (struct gateway_client *)(void *)r->db;
    (void)str_copy(r->owner, ID_SIZE, s->planes[plane].instance);
    r->wake_fd = -1;
    (void)pthread_mutex_init(&r->lock, NULL);
    return r;
}

void sim_runs_free(struct reconcile_runs *r)
{
    if (!r)
        return;
    while (r->answers) {
        struct run_answer *next = r->answers->next;

        reconcile_run_answer_free(r->answers);
        r->answers = next;
    }
    (void)pthread_mutex_destroy(&r->lock);
    free(r);
}

void sim_runs_begin(struct sim *s)
{
    for (int i = 0; i < SIM_CONNECTIONS; i++) {
        (void)snprintf(s->connections[i].id, ID_SIZE, "%d", i);
        s->connections[i].state = "ABSENT";
    }
}

/* --- what must hold ---------------------------------------------------- */

static void check_connection(struct sim *s, const struct sim_connection *k)
{
    int open = 0;
    bool fenced = strcmp(k->state, "READY") != 0 && strcmp(k->state, "ABSENT") != 0;

    for (int i = 0; i < s->operation_count; i++)
        open += s->operations[i].connection == (int)(k - s->connections) &&
                !run_phase_done(s->operations[i].facts.phase);
    if (open > 1)
        sim_break(s, "connection %s: %d unfinished operations", k->id, open);
    if ((open == 1) != fenced)
        sim_break(s, "connection %s: %s with %d unfinished operations", k->id, k->state, open);
    if ((strcmp(k->state, "READY") == 0 && k->auth == 0) ||
        (strcmp(k->state, "ABSENT") == 0 && k->auth != 0))
        sim_break(s, "connection %s: %s with sign-in %lld", k->id, k->state, (long long)k->auth);
}

static void check_operation(struct sim *s, struct sim_operation *o)
{
    const struct run_facts *f = &o->facts;
    const struct sim_row *r = sim_row_of(s, o->sandbox_id);
    int64_t since = o->since > s->calm_since ? o->since : s->calm_since;

    if (o->starts > 1 || o->starts_told > 1)
        sim_break(s, "run %s: started %d times, tried %d times", o->id, o->starts, o->starts_told);
    if (f->phase == RUN_DROPPED && !o->dropped)
        sim_break(s, "run %s: its fence was dropped, and not by the owner", o->id);
    if (run_phase_done(f->phase) && r && r->status != SANDBOX_TERMINATED)
        sim_break(s, "run %s: a holder after its end", o->id);
    if (!s->calm || s->now - since < 2 * SETTLE_MS || s->region_down[0] ||
        s->now - s->region_since[0] < 2 * SETTLE_MS)
        return;
    if (f->phase == RUN_PREPARING || f->phase == RUN_TERMINATING ||
        (f->phase == RUN_ALLOCATING && r))
        sim_break(s, "run %s: stuck in %s", o->id, run_phase_name(f->phase));
    if (f->phase == RUN_READY &&
        (f->execution == RUN_EXEC_STARTING || (f->execution == RUN_EXEC_RUNNING && o->exited)))
        sim_break(s, "run %s: nobody asks what became of its start", o->id);
}

void sim_check_runs(struct sim *s)
{
    for (int i = 0; i < SIM_CONNECTIONS; i++)
        check_connection(s, &s->connections[i]);
    for (int i = 0; i < s->operation_count; i++)
        check_operation(s, &s->operations[i]);
}

bool sim_runs_over(const struct sim *s)
{
    for (int i = 0; i < s->operation_count; i++) {
        if (!run_phase_done(s->operations[i].facts.phase))
            return false;
    }
    return true;
}

void sim_check_runs_ended(struct sim *s)
{
    for (int i = 0; i < s->operation_count; i++) {
        if (!run_phase_done(s->operations[i].facts.phase))
            sim_break(s, "run %s: %s long after the owner's reset", s->operations[i].id,
                      run_phase_name(s->operations[i].facts.phase));
    }
}
