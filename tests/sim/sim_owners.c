#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "sim/sim.h"

/* Owners and principals, who ask for anything at any time and mostly for what comes next, and the
 * process path of the region that the one start takes. */

enum {
    CALL_MS = RECONCILE_RUN_CALL_S * 1000,
    RUNS_MS = 8000, /* an entrypoint that ends takes at most so long */
};

/* --- the process path -------------------------------------------------- */

static struct sim_call *call_of(struct sim *s, uint64_t number)
{
    struct sim_call *c = &s->calls[number % SIM_CALLS];

    return number != 0 && c->number == number ? c : NULL;
}

static struct sim_event *answer_in(struct sim *s, uint64_t number, int64_t in_ms)
{
    struct sim_event *e = sim_schedule(s, in_ms, SIM_EV_PROCESS_ANSWERS);

    e->work = number;
    return e;
}

void sim_process_call(struct sim *s, int plane, const char *sandbox_id, enum sim_process_ask ask,
                      const char *execution_id, gateway_client_fn *done, void *arg)
{
    uint64_t number = ++s->next_call;
    struct sim_call *c = &s->calls[number % SIM_CALLS];
    struct sim_event *e;
    int64_t delay = 1 + sim_below(s, 10);

    s->steps++;
    if (c->number)
        sim_break(s, "the simulation has too few process calls");
    *c = (struct sim_call){ number, plane, s->planes[plane].life, done, arg };
    e = answer_in(s, number, CALL_MS);
    e->code = SBX_E_TIMEOUT;
    e->sent = true;
    if (s->planes[plane].killed)
        return;
    if (s->region_down[0]) { /* connection refused: it was not sent */
        answer_in(s, number, delay)->code = SBX_E_UNAVAILABLE;
        return;
    }
    if (sim_chance(s, s->weather.drop)) {
        sim_note_fault(s);
        return;
    }
    if (sim_chance(s, s->weather.slow))
        delay += sim_below(s, 20000);
    e = sim_schedule(s, delay, SIM_EV_PROCESS);
    e->work = number;
    e->a = (int)ask;
    (void)str_copy(e->id, ID_SIZE, sandbox_id);
    (void)str_copy(e->operation_id, ID_SIZE, execution_id);
}

static enum sbx_code start_process(struct sim *s, struct sim_box *b, struct sim_operation *o,
                                   const char *execution_id)
{
    struct sim_event *e;

    if (sim_chance(s, s->weather.exec_errors)) /* its agent is not connected now */
        return SBX_E_SANDBOX_NOT_READY;
    o->starts_told++;
    if (b->process.execution_id[0])
        return SBX_E_OPERATION_KNOWN;
    (void)str_copy(b->process.execution_id, ID_SIZE, execution_id);
    b->process.running = true;
    o->starts++;
    sim_trace(s, "run %s: its entrypoint starts", o->id);
    if (sim_below(s, 5) != 0) { /* else it hangs */
        e = sim_schedule(s, sim_below(s, RUNS_MS), SIM_EV_PROCESS_EXITS);
        (void)str_copy(e->id, ID_SIZE, b->id);
        (void)str_copy(e->operation_id, ID_SIZE, execution_id);
    }
    return SBX_OK;
}

void sim_process_exits(struct sim *s, const struct sim_event *e)
{
    struct sim_box *b = sim_box_of(s, e->id);
    struct sim_operation *o = sim_operation_of_box(s, e->id);

    if (!b->compute || strcmp(b->process.execution_id, e->operation_id) != 0)
        return;
    b->process.running = false;
    b->process.exit_code = sim_below(s, 3) ? 0 : 1;
    b->process.file = sim_below(s, 8) ? ++s->next_content : 0;
    o->exited = true;
    o->exit_code = b->process.exit_code;
    o->wrote = b->process.file;
    sim_trace(s, "run %s: its entrypoint exits with %d", o->id, o->exit_code);
}

void sim_process_arrives(struct sim *s, const struct sim_event *e)
{
    struct sim_box *b = sim_box_of(s, e->id);
    struct sim_operation *o = sim_operation_of_box(s, e->id);
    enum sim_process_ask ask = (enum sim_process_ask)e->a;
    enum sbx_code code = SBX_OK;
    struct sim_event *back;

    if (s->region_down[0]) { /* the connection broke */
        back = answer_in(s, e->work, 1);
        back->code = SBX_E_UNAVAILABLE;
        back->sent = true;
        return;
    }
    if (!b->compute || b->phase != REGION_PHASE_RUNNING)
        code = SBX_E_SANDBOX_NOT_FOUND;
    else if (ask == SIM_PROCESS_START)
        code = start_process(s, b, o, e->operation_id);
    else if (ask == SIM_PROCESS_READ && b->process.file == 0)
        code = SBX_E_NOT_FOUND;
    if (sim_chance(s, s->weather.drop)) {
        sim_note_fault(s);
        return;
    }
    back = answer_in(s, e->work, 1 + sim_below(s, 10));
    back->code = code;
    back->answered = back->sent = true;
    back->a = (int)ask;
    back->known = strcmp(b->process.execution_id, e->operation_id) == 0;
    back->running = b->process.running;
    back->exit_code = b->process.exit_code;
    back->file = b->process.file;
}

static json_t *answer_json(const struct sim_event *e)
{
    char text[32], encoded[64];
    json_t *j = json_object();

    if (e->a == SIM_PROCESS_STATUS) {
        json_put_bool(j, "known", e->known);
        json_put_bool(j, "running", e->known && e->running);
        if (e->known && !e->running)
            json_put_int(j, "exitCode", e->exit_code);
    } else if (e->a == SIM_PROCESS_READ) {
        SCOPED_BUF struct buf b = BUF_INIT(sizeof(encoded));

        (void)snprintf(text, sizeof(text), "%lld", (long long)e->file);
        (void)base64_encode(&b, text, strlen(text));
        json_put_str(j, "content", b.data);
    }
    return j;
}

void sim_process_answers(struct sim *s, const struct sim_event *e)
{
    struct sim_call *c = call_of(s, e->work), call;
    struct sim_plane *p;
    SCOPED_JSON json_t *json = NULL;
    struct gateway_client_answer answer = {
        .code = e->code, .message = "", .answered = e->answered, .sent = e->sent
    };

    if (!c)
        return; /* settled: this one comes late */
    call = *c;
    c->number = 0;
    p = &s->planes[call.plane];
    if (!p->core || p->life != call.life) {
        free(call.arg);
        return;
    }
    json = e->code == SBX_OK ? answer_json(e) : NULL;
    answer.json = json;
    call.done(call.arg, &answer);
    sim_runs_soon(s, call.plane);
}

void sim_process_forget(struct sim *s)
{
    for (int i = 0; i < SIM_CALLS; i++) {
        if (s->calls[i].number)
            free(s->calls[i].arg);
        s->calls[i].number = 0;
    }
}

/* --- POST execution ---------------------------------------------------- */

/* A request that waits for the region, as run_execution.c goes on with it. */
struct posted {
    struct sim *sim;
    int plane, installation, run;
    char operation_id[ID_SIZE], execution_id[ID_SIZE];
    struct store_operation op; /* the row as the start left it */
};

static void started(void *arg, const struct gateway_client_answer *answer)
{
    struct posted *r = arg;
    SCOPED_ARENA struct arena *a = arena_new();
    struct sbx_err err = { 0 };
    struct store_operation out;
    struct store_operation_move m = reconcile_run_started(
        &r->op, reconcile_run_outcome(answer->code, answer->answered, answer->sent));

    m.operation_id = r->operation_id;
    (void)!store_operation_move(sim_conn_of(r->sim, r->plane), &m, a, &out, &err);
    free(r);
}

static void begin(void *arg, const struct gateway_client_answer *answer)
{
    struct posted *r = arg;
    struct sim *s = r->sim;
    SCOPED_ARENA struct arena *a = arena_new();
    struct store_conn *db = sim_conn_of(s, r->plane);
    struct sbx_err err = { 0 };
    struct store_operation op, after;
    struct store_operation_move m;
    bool may;

    if (answer->code != SBX_OK ||
        sim_run_find(s, db, r->installation, r->run, a, &op, &err) != SBX_OK) {
        free(r);
        return;
    }
    may = reconcile_run_may_start(&op);
    if (s->mutation == SIM_START_AGAIN && op.facts.phase == RUN_READY &&
        op.facts.execution == RUN_EXEC_STARTING)
        may = true;
    sim_id(s, r->execution_id);
    m = reconcile_run_start(&op, r->execution_id);
    if (!may || store_operation_move(db, &m, a, &after, &err) != SBX_OK) {
        free(r);
        return;
    }
    (void)str_copy(r->operation_id, ID_SIZE, after.operation_id);
    r->op = (struct store_operation){ .operation_id = r->operation_id,
                                      .facts = after.facts,
                                      .version = after.version };
    sim_process_call(s, r->plane, after.sandbox_id, SIM_PROCESS_START, r->execution_id, started, r);
}

static void post_execution(struct sim *s, int plane, int installation, int run)
{
    SCOPED_ARENA struct arena *a = arena_new();
    struct sbx_err err = { 0 };
    struct store_operation op;
    struct posted *r;

    if (sim_run_find(s, sim_conn_of(s, plane), installation, run, a, &op, &err) != SBX_OK ||
        op.facts.phase != RUN_READY)
        return;
    r = mem_zalloc(sizeof(*r));
    r->sim = s;
    r->plane = plane;
    r->installation = installation;
    r->run = run;
    sim_process_call(s, plane, op.sandbox_id, SIM_PROCESS_CHECK, "", begin, r);
}

/* POST and DELETE of the holder: the event's move, when the table has one. */
static void run_event(struct sim *s, int plane, int installation, int run, enum run_event event)
{
    SCOPED_ARENA struct arena *a = arena_new();
    struct store_conn *db = sim_conn_of(s, plane);
    struct sbx_err err = { 0 };
    struct store_operation op, after;
    struct store_operation_move m;
    bool owner_ok = false;

    if (sim_run_find(s, db, installation, run, a, &op, &err) != SBX_OK ||
        !run_next(op.facts.phase, event))
        return;
    if (event == RUN_EVENT_ASK_HOLDER &&
        (store_operation_owner_ok(db, op.operation_id, &owner_ok, &err) != SBX_OK || !owner_ok))
        return;
    m = reconcile_run_move(&op, event, 0);
    (void)!store_operation_move(db, &m, a, &after, &err);
    sim_runs_soon(s, plane);
}

/* --- what they want ---------------------------------------------------- */

static void act(struct sim *s, int plane, int what, struct sim_connection *k,
                const struct sim_operation *o)
{
    int installation = o ? o->installation : sim_below(s, SIM_CONNECTIONS);
    int run = o && o->run ? o->run : 1 + sim_below(s, SIM_RUN_IDS);

    if (sim_below(s, 12) == 0) /* somebody else tries */
        installation = sim_below(s, SIM_CONNECTIONS);
    switch (what) {
    case 0:
        (void)sim_sign_in(s, k);
        break;
    case 1:
        (void)sim_reserve(s, k);
        break;
    case 2:
        if (o)
            (void)sim_claim(s, (int)(o - s->operations), installation, run);
        break;
    case 3:
        run_event(s, plane, installation, run, RUN_EVENT_ASK_HOLDER);
        break;
    case 4:
        post_execution(s, plane, installation, run);
        break;
    case 5:
        run_event(s, plane, installation, run, RUN_EVENT_CLEAN_UP);
        break;
    case 6:
        (void)sim_reset(s, k);
        sim_runs_soon(s, plane);
        break;
    default:
        k->owner_away = !s->calm && sim_below(s, 4) == 0;
        break;
    }
}

/* What a patient pair would do next. */
static int sensible(struct sim *s, const struct sim_connection *k, const struct sim_operation *o)
{
    if (!o)
        return strcmp(k->state, "READY") == 0 ? 1 : 0;
    switch (o->facts.phase) {
    case RUN_RESERVED:
        return 2;
    case RUN_CLAIMED:
        return 3;
    case RUN_READY:
        if (o->facts.execution == RUN_EXEC_PENDING)
            return 4;
        return o->facts.execution == RUN_EXEC_EXITED || sim_below(s, 8) == 0 ? 5 : 7;
    case RUN_QUARANTINED:
        return sim_below(s, 2) ? 5 : 6;
    case RUN_PREPARING:
    case RUN_ALLOCATING:
    case RUN_TERMINATING:
    case RUN_TERMINATED:
    case RUN_DROPPED:
    case RUN_PHASE_COUNT:
        break;
    }
    return 7;
}

static const struct sim_operation *newest(const struct sim *s, const struct sim_connection *k)
{
    for (int i = s->operation_count; i-- > 0;) {
        if (s->operations[i].connection == (int)(k - s->connections))
            return &s->operations[i];
    }
    return NULL;
}

void sim_people_act(struct sim *s)
{
    struct sim_connection *k = &s->connections[sim_below(s, SIM_CONNECTIONS)];
    const struct sim_operation *o = newest(s, k);
    int plane = sim_alive_plane(s);

    if (plane < 0)
        return;
    if (sim_below(s, 10) < 8) {
        if (o && run_phase_done(o->facts.phase))
            o = NULL;
        act(s, plane, sensible(s, k, o), k, o);
        return;
    }
    if (s->operation_count && sim_below(s, 3) == 0) /* an old one: a replay */
        o = &s->operations[sim_below(s, s->operation_count)];
    act(s, plane, sim_below(s, 8), k, o);
}

/* Half are cleaned up by their principals; what stays is the owner's to end. */
void sim_reset_all(struct sim *s)
{
    int plane = sim_alive_plane(s);

    for (int i = 0; i < SIM_CONNECTIONS; i++) {
        const struct sim_operation *o = newest(s, &s->connections[i]);

        s->connections[i].owner_away = false;
        if (plane < 0 || !o || run_phase_done(o->facts.phase) || o->facts.owner_reset)
            continue;
        if (run_next(o->facts.phase, RUN_EVENT_CLEAN_UP) && sim_below(s, 2))
            act(s, plane, 5, &s->connections[i], o);
        else if (o->facts.phase != RUN_TERMINATING)
            act(s, plane, 6, &s->connections[i], o);
    }
}
