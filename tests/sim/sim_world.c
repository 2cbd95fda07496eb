#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "sim/sim.h"

/* The scheduler: one seed decides who acts when, what the network does, and what breaks. */

enum {
    CLIENTS_UNTIL_MS = 120000, /* clients and faults stop */
    END_MS = 1200000,
    SWEEP_MS = 40000,
    POOL_OFF_MS = 200000, /* in the calm the pools are given up, so that all can end */
    RESET_AGAIN_MS = 5000,
    PASSES_MAX = 250, /* of a plane in a second */
};

enum sim_fault {
    FAULT_KILL,
    FAULT_DATABASE,
    FAULT_REGION,
    FAULT_CLOCK,
    FAULT_CRASH,
    FAULT_STRAY,
    FAULT_AMNESIA,
    FAULT_PARTITION,
};

/* --- chance ------------------------------------------------------------ */

/* splitmix64 */
uint64_t sim_random(struct sim *s)
{
    uint64_t z = (s->rng += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

int sim_below(struct sim *s, int n)
{
    return (int)(sim_random(s) % (uint64_t)n);
}

bool sim_chance(struct sim *s, int per_thousand)
{
    return !s->calm && per_thousand > 0 && sim_below(s, 1000) < per_thousand;
}

void sim_id(struct sim *s, char out[ID_SIZE])
{
    int n = ++s->next_id;

    if (n == SIM_IDS)
        sim_break(s, "the simulation has too few ids");
    /* In the order they are made, and different early on. */
    memset(out, '0', ID_SIZE - 1);
    out[ID_SIZE - 1] = '\0';
    for (int i = 5; n; n /= 10)
        out[i--] = (char)('0' + n % 10);
}

void sim_trace(struct sim *s, const char *fmt, ...)
{
    va_list ap;

    if (!s->verbose)
        return;
    va_start(ap, fmt);
    printf("%8lld ", (long long)s->now);
    (void)vprintf(fmt, ap);
    printf("\n");
    va_end(ap);
}

void sim_break(struct sim *s, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(s->why, sizeof(s->why), fmt, ap);
    va_end(ap);
    longjmp(s->broken, 1);
}

void sim_note_fault(struct sim *s)
{
    s->quiet_since = s->now;
}

/* --- the event heap ---------------------------------------------------- */

static bool earlier(const struct sim_slot *a, const struct sim_slot *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

/* The event to fill in. */
struct sim_event *sim_schedule(struct sim *s, int64_t in_ms, enum sim_event_kind kind)
{
    int i = s->event_count++;
    /* What happens in one millisecond happens in any order. */
    struct sim_slot slot = { .at = s->now + in_ms,
                             .order = (sim_random(s) & 0xff) << 32 | ++s->next_order };
    struct sim_event *e;

    if (s->event_count == SIM_EVENTS)
        sim_break(s, "the simulation has too few events");
    slot.event = s->free_count ? s->free_events[--s->free_count] : s->event_top++;
    while (i > 0 && earlier(&slot, &s->heap[(i - 1) / 2])) {
        s->heap[i] = s->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    s->heap[i] = slot;
    e = &s->events[slot.event];
    memset(e, 0, sizeof(*e));
    e->at = slot.at;
    e->kind = kind;
    return e;
}

static struct sim_event take(struct sim *s)
{
    struct sim_slot first = s->heap[0], last = s->heap[--s->event_count];
    int i = 0;

    for (;;) {
        int c = 2 * i + 1;

        if (c + 1 < s->event_count && earlier(&s->heap[c + 1], &s->heap[c]))
            c++;
        if (c >= s->event_count || !earlier(&s->heap[c], &last))
            break;
        s->heap[i] = s->heap[c];
        i = c;
    }
    s->heap[i] = last;
    s->free_events[s->free_count++] = first.event;
    return s->events[first.event];
}

/* --- control planes ---------------------------------------------------- */

static int64_t mono(void *arg)
{
    const struct sim_conn *c = arg;

    return c->sim->now + c->sim->planes[c->plane].skew;
}

void sim_pass_soon(struct sim *s, int plane)
{
    struct sim_plane *p = &s->planes[plane];
    struct sim_event *e;

    if (!p->core || (p->pass_at >= 0 && p->pass_at <= s->now))
        return;
    p->pass_at = s->now;
    e = sim_schedule(s, 0, SIM_EV_PASS);
    e->plane = plane;
    e->life = p->life;
}

static void plane_start(struct sim *s, int plane)
{
    struct sim_plane *p = &s->planes[plane];
    struct reconcile_core_config cc = {
        .times = s->times,
        .lease_ms = 5000,
        .poll_ms = 2000,
        .accept_ms = 250,
        .region_sweep_ms = SWEEP_MS,
        .stale_ms = 6000,
        .execution_grace_ms = 3000,
        .actions_max = 64,
        .warm_total_max = s->pool.max * SIM_REGIONS,
        .warm_deadline_ms = 30000,
        .store = &SIM_STORE,
        .db = sim_conn_of(s, plane),
        .region = &SIM_REGION,
        .region_self = &s->conns[plane],
        .mono_ms = mono,
        .clock_arg = &s->conns[plane],
        .seed = sim_random(s),
        .skip_undo = s->mutation == SIM_NO_UNDO,
    };

    p->life++;
    p->killed = false;
    p->kill_countdown = 0;
    p->cut = false;
    p->pass_at = -1;
    p->skew = 1 + sim_below(s, 1000000);
    sim_id(s, p->instance);
    (void)str_copy(cc.instance, ID_SIZE, p->instance);
    p->core = reconcile_core_new(&cc);
    reconcile_core_regions(p->core, SIM_REGION_NAMES, SIM_REGIONS);
    sim_trace(s, "plane %d starts", plane);
    sim_pass_soon(s, plane);
    if (s->weather.runs) {
        p->runs = sim_runs_new(s, plane);
        p->runs_at = -1;
        sim_runs_soon(s, plane);
    }
}

static void plane_die(struct sim *s, int plane)
{
    struct sim_plane *p = &s->planes[plane];
    struct sim_event *e;

    reconcile_core_free(p->core);
    p->core = NULL;
    sim_runs_free(p->runs);
    p->runs = NULL;
    sim_note_fault(s);
    for (int i = 0; i < s->box_count; i++)
        s->boxes[i].answered_at = 0; /* who was told may be the one that died */
    e = sim_schedule(s, 500 + sim_below(s, 15000), SIM_EV_FAULT_ENDS);
    e->a = FAULT_KILL;
    e->plane = plane;
}

static void plane_pass(struct sim *s, const struct sim_event *e)
{
    struct sim_plane *p = &s->planes[e->plane];
    struct sim_event *next;
    int64_t wait;

    if (!p->core || p->life != e->life || p->pass_at != e->at)
        return;
    p->pass_at = -1;
    if (s->now / 1000 != p->second)
        p->passes = 0;
    p->second = s->now / 1000;
    if (++p->passes > PASSES_MAX)
        sim_break(s, "plane %d spins", e->plane);
    wait = reconcile_core_pass(p->core);
    if (p->killed) {
        plane_die(s, e->plane);
        return;
    }
    if (wait < 1)
        wait = 1;
    if (p->pass_at >= 0)
        return;
    next = sim_schedule(s, wait, SIM_EV_PASS);
    next->plane = e->plane;
    next->life = p->life;
    p->pass_at = next->at;
}

void sim_runs_soon(struct sim *s, int plane)
{
    struct sim_plane *p = &s->planes[plane];
    struct sim_event *e;

    if (!p->runs || (p->runs_at >= 0 && p->runs_at <= s->now))
        return;
    p->runs_at = s->now;
    e = sim_schedule(s, 0, SIM_EV_RUNS);
    e->plane = plane;
    e->life = p->life;
}

void sim_plane_pass_runs(struct sim *s, int plane)
{
    struct sim_plane *p = &s->planes[plane];
    struct sim_event *next;
    int64_t wait;

    p->runs_at = -1;
    wait = reconcile_runs_pass(p->runs);
    if (p->killed) {
        plane_die(s, plane);
        return;
    }
    if (p->runs_at >= 0)
        return;
    next = sim_schedule(s, wait < 1 ? 1 : wait, SIM_EV_RUNS);
    next->plane = plane;
    next->life = p->life;
    p->runs_at = next->at;
}

static void plane_runs(struct sim *s, const struct sim_event *e)
{
    const struct sim_plane *p = &s->planes[e->plane];

    if (p->core && p->life == e->life && p->runs_at == e->at)
        sim_plane_pass_runs(s, e->plane);
}

static void plane_answer(struct sim *s, struct sim_event *e)
{
    struct sim_plane *p = &s->planes[e->plane];

    if (!p->core || p->life != e->life) {
        reconcile_answer_free(e->answer);
        return;
    }
    if (e->from.kind == RECONCILE_DEPLOY && e->answer->code == SBX_OK && e->answer->count)
        sim_box_of(s, e->answer->seen[0].id)->answered_at = s->now;
    reconcile_core_answer_take(p->core, e->answer);
    sim_pass_soon(s, e->plane);
}

int sim_alive_plane(struct sim *s)
{
    int start = sim_below(s, SIM_PLANES);

    for (int i = 0; i < SIM_PLANES; i++) {
        int p = (start + i) % SIM_PLANES;

        if (s->planes[p].core && !s->planes[p].killed)
            return p;
    }
    return -1;
}

/* --- clients ----------------------------------------------------------- */

static void client_create(struct sim *s, int plane)
{
    int account = sim_below(s, SIM_ACCOUNTS), key = sim_below(s, SIM_KEYS), existing;
    enum sbx_code code;

    if (s->mutation == SIM_QUOTA_OUTSIDE) {
        code = sim_create_check(s, account, key, &existing);
        if (code == SBX_OK && existing < 0) {
            struct sim_event *e = sim_schedule(s, sim_below(s, 20), SIM_EV_INSERT);

            e->a = account * SIM_KEYS + key;
            e->plane = plane;
        }
        return;
    }
    if (sim_create_insert(s, account, key, true) == SBX_OK) {
        reconcile_core_wake(s->planes[plane].core);
        sim_pass_soon(s, plane);
    }
}

static void client_execute(struct sim *s, struct sim_row *r, int plane)
{
    char id[ID_SIZE];
    struct sim_event *e;

    if (sim_execution_begin(s, r, plane, id))
        return;
    e = sim_schedule(s, 1 + sim_below(s, 10), SIM_EV_EXEC_ARRIVES);
    (void)str_copy(e->id, ID_SIZE, r->id);
    (void)str_copy(e->operation_id, ID_SIZE, id);
}

/* The answer of an execute reaches whoever waits for it, if he lives. */
static void execute_answered(struct sim *s, const struct sim_event *e)
{
    for (int i = 0; i < SIM_EXECUTIONS; i++) {
        struct sim_execution *x = &s->executions[i];
        struct sim_plane *p = &s->planes[x->plane];
        struct sbx_err err = { 0 };

        if (!x->used || strcmp(x->id, e->operation_id) != 0)
            continue;
        if (!p->core || p->life != x->life)
            return; /* another control plane asks the region for it */
        if (SIM_STORE.execution_end(sim_conn_of(s, -1), x->id, NULL, &err))
            reconcile_core_execution_ended(p->core, e->operation_id);
        if (e->a != SBX_OK)
            reconcile_core_probe(p->core, e->id);
        sim_pass_soon(s, (int)(p - s->planes));
        return;
    }
}

static void client_ask(struct sim *s, struct sim_row *r, int plane, bool pause)
{
    SCOPED_ARENA struct arena *a = arena_new();
    struct reconcile_ask ask = { .sandbox_id = r->id, .actor = "client" };
    struct store_sandbox out;
    struct sbx_err err = { 0 };
    bool changed;
    enum sbx_code code;

    if (pause)
        code = reconcile_ask_pause(&SIM_ASK, &s->times, sim_conn_of(s, -1), &ask, a, &out, &changed,
                                   &err);
    else
        code = reconcile_ask_end(&SIM_ASK, &s->times, sim_conn_of(s, -1), &ask, a, &out, &changed,
                                 &err);
    if (pause && code == SBX_OK && out.status == SANDBOX_SUSPENDING)
        r->waits_until = s->now + 60000;
    if (pause && code == SBX_OK && out.status == SANDBOX_SUSPENDED)
        r->acknowledged = true;
    if (changed) {
        reconcile_core_wake(s->planes[plane].core);
        sim_pass_soon(s, plane);
    }
}

static void client_acts(struct sim *s)
{
    int plane = sim_alive_plane(s), what = sim_below(s, 100);
    struct sim_row *r;

    if (plane < 0)
        return;
    if (s->weather.restless && s->row_count >= 2)
        what = 25 + what * 63 / 100; /* hardly a create, hardly an end */
    if (s->row_count == 0 || what < 25) {
        int burst = sim_below(s, 4) ? 1 : 3;

        while (burst-- > 0)
            client_create(s, plane);
        return;
    }
    if (sim_below(s, 12) == 0) {
        sim_volume_client(s);
        return;
    }
    r = &s->rows[sim_below(s, s->weather.restless && s->row_count > 2 ? 2 : s->row_count)];
    if (r->personal) /* generic endpoints refuse a holder */
        return;
    if (what < 45) {
        client_execute(s, r, plane);
    } else if (what < 65) {
        client_ask(s, r, plane, true);
    } else if (what < 85) {
        if (sim_resume(s, r) == SBX_OK) {
            reconcile_core_wake(s->planes[plane].core);
            sim_pass_soon(s, plane);
        }
    } else {
        client_ask(s, r, plane, false);
    }
}

static void client_inserts(struct sim *s, const struct sim_event *e)
{
    if (sim_create_insert(s, e->a / SIM_KEYS, e->a % SIM_KEYS, false) == SBX_OK &&
        s->planes[e->plane].core) {
        reconcile_core_wake(s->planes[e->plane].core);
        sim_pass_soon(s, e->plane);
    }
}

/* --- faults ------------------------------------------------------------ */

static void fault_end(struct sim *s, int64_t in_ms, enum sim_fault fault)
{
    sim_schedule(s, in_ms, SIM_EV_FAULT_ENDS)->a = (int)fault;
}

static void strike(struct sim *s, enum sim_fault fault)
{
    int plane = sim_alive_plane(s), region;
    struct sim_box *b;
    struct sim_event *e;
    char id[ID_SIZE];

    if (s->calm)
        return;
    if (fault != FAULT_CRASH && fault != FAULT_STRAY && fault != FAULT_AMNESIA)
        sim_note_fault(s);
    switch (fault) {
    case FAULT_KILL:
        if (plane < 0)
            return;
        if (sim_below(s, 2)) {
            s->planes[plane].kill_countdown = 1 + sim_below(s, 12);
            sim_pass_soon(s, plane);
        } else {
            sim_trace(s, "plane %d is killed between passes", plane);
            plane_die(s, plane);
        }
        break;
    case FAULT_DATABASE:
        sim_trace(s, "the database goes");
        s->database_down = true;
        fault_end(s, 200 + sim_below(s, 15000), fault);
        break;
    case FAULT_REGION:
        region = sim_below(s, SIM_REGIONS);
        sim_trace(s, "region %d goes", region);
        s->region_down[region] = true;
        if (sim_below(s, 2))
            sim_region_restart(s, region);
        e = sim_schedule(s, 200 + sim_below(s, 30000), SIM_EV_FAULT_ENDS);
        e->a = (int)fault;
        e->region = region;
        break;
    case FAULT_CLOCK:
        s->db_shift += sim_below(s, 2) ? sim_below(s, 10000) : sim_below(s, 400000);
        sim_trace(s, "the database's clock is at +%lld", (long long)s->db_shift);
        break;
    case FAULT_CRASH:
        if (s->box_count)
            sim_region_crash(s, &s->boxes[sim_below(s, s->box_count)]);
        break;
    case FAULT_STRAY:
        sim_id(s, id);
        b = sim_box_of(s, id);
        b->compute = b->stray = true;
        b->phase = REGION_PHASE_RUNNING;
        b->region = sim_below(s, SIM_REGIONS);
        b->seen = 3;
        break;
    case FAULT_AMNESIA:
        sim_region_amnesia(s);
        break;
    case FAULT_PARTITION:
        if (plane < 0)
            return;
        sim_trace(s, "plane %d is cut off from the database", plane);
        s->planes[plane].cut = true;
        e = sim_schedule(s, 1000 + sim_below(s, 20000), SIM_EV_FAULT_ENDS);
        e->a = (int)fault;
        e->plane = plane;
        break;
    }
}

static void region_returns(struct sim *s, int region)
{
    if (s->region_down[region])
        s->region_since[region] = s->now;
    s->region_down[region] = false;
}

static void relieve(struct sim *s, const struct sim_event *e)
{
    if (e->a == FAULT_KILL && !s->planes[e->plane].core)
        plane_start(s, e->plane);
    else if (e->a == FAULT_PARTITION)
        s->planes[e->plane].cut = false;
    else if (e->a == FAULT_DATABASE)
        s->database_down = false;
    else if (e->a == FAULT_REGION)
        region_returns(s, e->region);
    sim_note_fault(s);
}

static void calm_down(struct sim *s)
{
    sim_trace(s, "faults and clients stop");
    s->calm = true;
    s->calm_since = s->now;
    s->database_down = false;
    region_returns(s, 0);
    if (!s->weather.one_away)
        region_returns(s, 1);
    if (s->weather.runs)
        sim_schedule(s, 20000, SIM_EV_RESET_ALL);
    sim_schedule(s, POOL_OFF_MS, SIM_EV_POOL_OFF);
    for (int i = 0; i < SIM_PLANES; i++) {
        s->planes[i].kill_countdown = 0;
        s->planes[i].cut = false;
        if (!s->planes[i].core)
            plane_start(s, i);
    }
}

/* --- one history ------------------------------------------------------- */

static void forecast(struct sim *s)
{
    struct sim_weather *w = &s->weather;

    *w = (struct sim_weather){
        .drop = sim_below(s, 3) * 20,
        .duplicate = sim_below(s, 3) * 30,
        .slow = sim_below(s, 4) * 40,
        .unknown = sim_below(s, 3) * 4,
        .deploy_fails = sim_below(s, 3) * 60,
        .save_fails = sim_below(s, 3) * 100,
        .kills = sim_below(s, 5),
        .database_outages = sim_below(s, 3),
        .region_outages = sim_below(s, 3),
        .clock_jumps = sim_below(s, 4) == 0 ? 1 + sim_below(s, 2) : 0,
        .crashes = sim_below(s, 4),
        .strays = sim_below(s, 3),
    };
    w->partitions = sim_below(s, 3);
    w->exec_errors = sim_below(s, 2) * 200;
    if (sim_below(s, 4) == 0) {
        w->restless = true;
        w->slow = 300;
        w->exec_errors = 500;
        w->crashes = 0;
    } else if (sim_below(s, 5) ==
               0) { /* a region that loses its memory, in otherwise fair weather */
        *w = (struct sim_weather){ .slow = 300, .amnesia = true, .kills = sim_below(s, 2) };
    }
}

/* What is at work beside plain sandboxes. */
static void forecast_more(struct sim *s)
{
    struct sim_weather *w = &s->weather;
    int kind = sim_below(s, 5);

    w->restore_fails = sim_below(s, 4) ? 0 : 300;
    if (w->amnesia)
        return;
    w->runs = kind == 0 || kind == 1;
    w->pool = kind == 1 || kind == 2;
    w->interleave = sim_below(s, 2) * 30;
    w->one_away = sim_below(s, 8) == 0;
    s->pool = (struct store_warm_pool){ .max = 1 + sim_below(s, 3) };
    s->pool.desired = 1 + sim_below(s, s->pool.max);
    s->pool.min = sim_below(s, s->pool.desired + 1);
    s->pool_on = w->pool;
    if (w->runs)
        sim_runs_begin(s);
}

static void at_random(struct sim *s, enum sim_event_kind kind, int a, int count)
{
    for (int i = 0; i < count; i++)
        sim_schedule(s, 1000 + sim_below(s, CLIENTS_UNTIL_MS - 1000), kind)->a = a;
}

static void populate(struct sim *s)
{
    const struct sim_weather *w = &s->weather;

    at_random(s, SIM_EV_CLIENT, 0, w->restless ? 150 : 20 + sim_below(s, 80));
    at_random(s, SIM_EV_FAULT, FAULT_PARTITION, w->partitions);
    at_random(s, SIM_EV_FAULT, FAULT_KILL, w->kills);
    at_random(s, SIM_EV_FAULT, FAULT_DATABASE, w->database_outages);
    at_random(s, SIM_EV_FAULT, FAULT_REGION, w->region_outages);
    at_random(s, SIM_EV_FAULT, FAULT_CLOCK, w->clock_jumps);
    at_random(s, SIM_EV_FAULT, FAULT_CRASH, w->crashes);
    at_random(s, SIM_EV_FAULT, FAULT_STRAY, w->strays);
    at_random(s, SIM_EV_FAULT, FAULT_AMNESIA, w->amnesia ? 20 : 0);
    at_random(s, SIM_EV_PEOPLE, 0, w->runs ? 80 : 0);
    at_random(s, SIM_EV_REVISION, 0, w->pool ? sim_below(s, 3) : 0);
    if (w->one_away) {
        struct sim_event *e = sim_schedule(s, CLIENTS_UNTIL_MS + 60000, SIM_EV_FAULT_ENDS);

        e->a = FAULT_REGION;
        e->region = 1;
        s->region_down[1] = sim_below(s, 2) != 0;
    }
    for (int i = 0; i < SIM_PLANES; i++)
        plane_start(s, i);
}

static void happen(struct sim *s, struct sim_event *e)
{
    switch (e->kind) {
    case SIM_EV_PASS:
        plane_pass(s, e);
        break;
    case SIM_EV_REQUEST:
        sim_region_request(s, e);
        break;
    case SIM_EV_WORK:
        sim_region_work(s, e);
        break;
    case SIM_EV_ANSWER:
        plane_answer(s, e);
        break;
    case SIM_EV_CLIENT:
        if (!s->calm)
            client_acts(s);
        break;
    case SIM_EV_INSERT:
        client_inserts(s, e);
        break;
    case SIM_EV_EXEC_ARRIVES:
        sim_region_exec_arrives(s, e);
        break;
    case SIM_EV_EXEC_ENDS:
        sim_region_exec_ends(s, e);
        break;
    case SIM_EV_EXEC_ANSWER:
        execute_answered(s, e);
        break;
    case SIM_EV_PACKED:
        sim_region_packed(s, e);
        break;
    case SIM_EV_REVISION:
        if (!s->calm)
            s->revision++;
        break;
    case SIM_EV_POOL_OFF:
        s->pool_on = false;
        break;
    case SIM_EV_RUNS:
        plane_runs(s, e);
        break;
    case SIM_EV_PEOPLE:
        if (!s->calm)
            sim_people_act(s);
        break;
    case SIM_EV_PROCESS:
        sim_process_arrives(s, e);
        break;
    case SIM_EV_PROCESS_ANSWERS:
        sim_process_answers(s, e);
        break;
    case SIM_EV_PROCESS_EXITS:
        sim_process_exits(s, e);
        break;
    case SIM_EV_RESET_ALL:
        sim_reset_all(s);
        if (!sim_runs_over(s))
            sim_schedule(s, RESET_AGAIN_MS, SIM_EV_RESET_ALL);
        break;
    case SIM_EV_FAULT:
        strike(s, (enum sim_fault)e->a);
        break;
    case SIM_EV_FAULT_ENDS:
        relieve(s, e);
        break;
    }
}

static bool all_over(const struct sim *s)
{
    if (!sim_runs_over(s))
        return false;
    for (int i = 0; i < s->row_count; i++) {
        if (s->rows[i].status != SANDBOX_TERMINATED)
            return false;
    }
    for (int i = 0; i < s->box_count; i++) {
        if (s->boxes[i].compute)
            return false;
    }
    for (int i = 0; i < SIM_EXECUTIONS; i++) {
        if (s->executions[i].used)
            return false;
    }
    return true;
}

static void play(struct sim *s)
{
    forecast(s);
    forecast_more(s);
    populate(s);
    while (s->event_count > 0 && s->now < END_MS) {
        struct sim_event e = take(s);

        s->now = e.at;
        if (!s->calm && s->now > CLIENTS_UNTIL_MS)
            calm_down(s);
        happen(s, &e);
        sim_check_step(s);
        if (s->calm && all_over(s))
            break;
    }
    sim_check_ended(s);
}

static void clean_up(struct sim *s)
{
    for (int i = 0; i < SIM_PLANES; i++) {
        reconcile_core_free(s->planes[i].core);
        s->planes[i].core = NULL;
        sim_runs_free(s->planes[i].runs);
        s->planes[i].runs = NULL;
    }
    for (int i = 0; i < s->event_count; i++)
        reconcile_answer_free(s->events[s->heap[i].event].answer);
    sim_process_forget(s);
}

const char *sim_play(struct sim *s, uint64_t seed, enum sim_mutation mutation, bool verbose)
{
    struct sim_event *events = s->events ? s->events : mem_zalloc(SIM_EVENTS * sizeof(*events));
    struct sim_slot *heap = s->heap ? s->heap : mem_zalloc(SIM_EVENTS * sizeof(*heap));
    int *free_events = s->free_events ? s->free_events : mem_zalloc(SIM_EVENTS * sizeof(int));
    long steps = s->steps;

    memset(s, 0, sizeof(*s));
    s->events = events;
    s->heap = heap;
    s->free_events = free_events;
    s->steps = steps;
    s->seed = s->rng = seed;
    s->mutation = mutation;
    s->verbose = verbose;
    s->quota = 2 + sim_below(s, 2);
    s->times = (struct plan_times){ .allocating_s = 20,
                                    .starting_s = 20,
                                    .suspending_s = 30,
                                    .resuming_s = 20,
                                    .failed_retention_s = 30,
                                    .backoff_first_ms = 100,
                                    .backoff_max_ms = 3000 };
    if (setjmp(s->broken) == 0)
        play(s);
    clean_up(s);
    return s->why[0] ? s->why : NULL;
}
