#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "sim/sim.h"

/* The stand-in of the regions: fenced by generation and tombstone, a repeated operation repeats
 * its first result, one operation at a time for one sandbox (sbx/gateway.h). Between it
 * and the control planes is a network that drops, delays and doubles. */

enum {
    TIMEOUT_MS = 30000, /* of a call, as the client sees it */
    AGAIN_MS = 20,      /* what finds the sandbox busy waits so long */
};

struct sim_box *sim_box_of(struct sim *s, const char *id)
{
    struct sim_box *b;
    const struct sim_row *r;
    int at = s->box_at[sim_id_number(id)];

    if (at > 0)
        return &s->boxes[at - 1];
    if (s->box_count == SIM_BOXES)
        sim_break(s, "the simulation has too few boxes");
    b = &s->boxes[s->box_count++];
    memset(b, 0, sizeof(*b));
    (void)str_copy(b->id, ID_SIZE, id);
    s->box_at[sim_id_number(id)] = (int16_t)s->box_count;
    b->tomb = -1;
    r = sim_row_of(s, id);
    b->region = r ? r->region : 0;
    return b;
}

/* --- the way there ----------------------------------------------------- */

static int latency(struct sim *s)
{
    return 1 + sim_below(s, 10);
}

static struct reconcile_answer *answer_new(const struct sim_waiter *w, enum sbx_code code)
{
    struct reconcile_answer *a = mem_zalloc(sizeof(*a));

    a->token = w->token;
    a->code = code;
    a->answered = true;
    return a;
}

static void answer_in(struct sim *s, const struct sim_waiter *w, int64_t in_ms,
                      struct reconcile_answer *a)
{
    struct sim_event *e = sim_schedule(s, in_ms, SIM_EV_ANSWER);

    e->plane = w->plane;
    e->life = w->life;
    e->from = *w;
    e->answer = a;
}

static void answer(struct sim *s, const struct sim_waiter *w, struct reconcile_answer *a)
{
    if (sim_chance(s, s->weather.drop)) { /* the time-out that waits for every call is its answer */
        sim_note_fault(s);
        reconcile_answer_free(a);
        return;
    }
    answer_in(s, w, latency(s) + (sim_chance(s, s->weather.slow) ? sim_below(s, 8000) : 0), a);
}

static void send(struct sim *s, const struct reconcile_call *call, const struct sim_waiter *w,
                 int64_t in_ms)
{
    struct sim_event *e = sim_schedule(s, in_ms, SIM_EV_REQUEST);

    e->from = *w;
    e->generation = call->generation;
    e->region = sim_region_index(call->region);
    (void)str_copy(e->id, ID_SIZE, call->id);
    (void)str_copy(e->operation_id, ID_SIZE, call->operation_id);
    if (call->kind == RECONCILE_DEPLOY) { /* as calls.c makes it of the row */
        e->restore = call->row->suspended_at_ms != 0;
        if (call->row->warm_id && !e->restore)
            (void)str_copy(e->warm_id, ID_SIZE, call->row->warm_id);
    }
    if (call->kind == RECONCILE_PURGE)
        e->a = atoi(call->volume->volume_name);
}

static enum sbx_code start(void *self, const struct reconcile_call *call, struct sbx_err *err)
{
    struct sim_conn *c = self;
    struct sim *s = c->sim;
    struct sim_plane *p = &s->planes[c->plane];
    struct sim_waiter w = { c->plane, p->life, call->token, call->kind };
    struct reconcile_answer *late = answer_new(&w, SBX_E_TIMEOUT);
    int64_t delay = latency(s);

    s->steps++;
    late->answered = false;
    answer_in(s, &w, TIMEOUT_MS, late);
    if (p->killed)
        return SBX_OK;
    if (s->region_down[sim_region_index(call->region)]) {
        struct reconcile_answer *refused = answer_new(&w, SBX_E_UNAVAILABLE);

        refused->answered = false;
        answer_in(s, &w, latency(s), refused);
        return SBX_OK;
    }
    (void)err;
    if (sim_chance(s, s->weather.drop)) {
        sim_note_fault(s);
        return SBX_OK;
    }
    if (sim_chance(s, s->weather.slow) && (!s->weather.amnesia || call->kind == RECONCILE_DEPLOY))
        delay += sim_below(s, 20000);
    send(s, call, &w, delay);
    /* A purge is named by nothing but its volume: its connection cannot double it. */
    if (call->kind != RECONCILE_PURGE && sim_chance(s, s->weather.duplicate))
        send(s, call, &w, delay + sim_below(s, 8000));
    return SBX_OK;
}

const struct reconcile_region_ops SIM_REGION = { .start = start };

/* --- inside ------------------------------------------------------------ */

static struct reconcile_answer *tell(const struct sim_waiter *w, const struct sim_box *b)
{
    struct reconcile_answer *a = answer_new(w, SBX_OK);

    a->seen = mem_zalloc(sizeof(*a->seen));
    a->count = 1;
    (void)str_copy(a->seen->id, ID_SIZE, b->id);
    a->seen->generation = b->seen;
    a->seen->phase = b->phase;
    a->seen->warm = b->warm;
    a->seen->claimed = b->claimed;
    a->seen->has_persistence = b->restored;
    a->seen->restore_failed = b->restore_failed;
    a->execution_count = (size_t)b->execution_count;
    a->executions = mem_zalloc((a->execution_count + 1) * sizeof(*a->executions));
    memcpy(a->executions, b->executions, a->execution_count * sizeof(*a->executions));
    return a;
}

static void journal(struct sim_box *b, const char *operation_id, enum sbx_code code)
{
    struct sim_done *d = &b->journal[b->journal_count++ % SIM_JOURNAL];

    (void)str_copy(d->operation_id, ID_SIZE, operation_id);
    d->code = code;
}

static const struct sim_done *journaled(const struct sim_box *b, const char *operation_id)
{
    for (int i = 0; i < b->journal_count && i < SIM_JOURNAL; i++) {
        if (strcmp(b->journal[i].operation_id, operation_id) == 0)
            return &b->journal[i];
    }
    return NULL;
}

/* What ran in it has ended with it. */
static void executions_die(struct sim *s, struct sim_box *b)
{
    for (int i = 0; i < b->execution_count; i++) {
        struct sim_event *e = sim_schedule(s, latency(s), SIM_EV_EXEC_ANSWER);

        (void)str_copy(e->operation_id, ID_SIZE, b->executions[i]);
        (void)str_copy(e->id, ID_SIZE, b->id);
        e->a = SBX_E_AGENT_UNREACHABLE;
    }
    b->execution_count = 0;
}

static void end_compute(struct sim *s, struct sim_box *b, enum region_phase phase)
{
    b->compute = false;
    b->phase = phase;
    b->process = (struct sim_process){ 0 };
    executions_die(s, b);
}

static struct reconcile_answer *result(const struct sim_waiter *w, const struct sim_box *b,
                                       enum sbx_code code)
{
    struct reconcile_answer *a;

    if (code)
        return answer_new(w, code);
    a = tell(w, b);
    if (w->kind == RECONCILE_SAVE) {
        a->snapshot_bytes = 1;
        a->snapshot_at_ms = 1;
    }
    return a;
}

static void finish(struct sim *s, struct sim_box *b, enum sbx_code code)
{
    journal(b, b->operation_id, code);
    b->busy = 0;
    for (int i = 0; i < b->waiter_count; i++)
        answer(s, &b->waiters[i], result(&b->waiters[i], b, code));
    b->waiter_count = 0;
}

/* A deploy under way gives way to a newer call; what it started is gone. */
static void cancel(struct sim *s, struct sim_box *b)
{
    if (b->busy == RECONCILE_DEPLOY || b->busy == RECONCILE_WARM)
        end_compute(s, b, REGION_PHASE_NONE);
    finish(s, b, SBX_E_STALE);
}

static void begin(struct sim *s, struct sim_box *b, const struct sim_event *e, int64_t takes_ms)
{
    struct sim_event *done;

    b->busy = e->from.kind;
    b->generation = e->generation;
    (void)str_copy(b->operation_id, ID_SIZE, e->operation_id);
    b->waiters[0] = e->from;
    b->waiter_count = 1;
    b->work_number = ++s->next_work;
    done = sim_schedule(s, takes_ms, SIM_EV_WORK);
    done->work = b->work_number;
    (void)str_copy(done->id, ID_SIZE, b->id);
}

static void again(struct sim *s, const struct sim_event *e)
{
    struct sim_event copy = *e;
    struct sim_event *later = sim_schedule(s, AGAIN_MS, SIM_EV_REQUEST);

    copy.at = later->at;
    *later = copy;
}

static void join(struct sim_box *b, const struct sim_event *e)
{
    if (b->waiter_count < SIM_WAITERS)
        b->waiters[b->waiter_count++] = e->from;
}

/* --- archives ---------------------------------------------------------- */

int64_t sim_latest(const struct sim_box *b)
{
    for (int i = 0; i < b->archives.count; i++) {
        if (b->archives.generation[i] == b->archives.latest)
            return b->archives.content[i];
    }
    return 0;
}

static void archive_drop(struct sim_archives *a, int at)
{
    memmove(&a->generation[at], &a->generation[at + 1],
            (size_t)(a->count - at - 1) * sizeof(a->generation[0]));
    memmove(&a->content[at], &a->content[at + 1],
            (size_t)(a->count - at - 1) * sizeof(a->content[0]));
    a->count--;
}

static void archive_write(struct sim *s, struct sim_box *b)
{
    struct sim_archives *a = &b->archives;

    for (int i = 0; i < a->count; i++) {
        if (a->generation[i] == b->generation)
            archive_drop(a, i--);
    }
    if (a->count == SIM_ARCHIVES)
        sim_break(s, "%s: archives are kept for ever", b->id);
    a->generation[a->count] = b->generation;
    a->content[a->count++] = b->work;
}

/* The last two are kept, and what `latest` names. */
static void archive_prune(struct sim *s, struct sim_box *b)
{
    struct sim_archives *a = &b->archives;

    for (int i = 0; i < a->count - 2; i++) {
        if (a->generation[i] != a->latest)
            archive_drop(a, i--);
    }
    if (a->count < 1 || a->count > 3 || !sim_latest(b))
        sim_break(s, "%s: %d archives after a pause", b->id, a->count);
}

static void restore(struct sim *s, struct sim_box *b)
{
    const struct sim_row *r = sim_row_of(s, b->id);

    b->restored = true;
    b->restore_failed = sim_chance(s, s->weather.restore_fails);
    b->work = b->restore_failed ? 0 : sim_latest(b);
    if (r && r->kept && !b->restore_failed && b->work != r->kept && !s->amnesia_struck)
        sim_break(s, "%s: the resume restored %lld, the pause kept %lld", b->id, (long long)b->work,
                  (long long)r->kept);
}

/* A warm member becomes this sandbox, if it runs and nobody has it. */
static bool claim_warm(struct sim *s, struct sim_box *b, const struct sim_event *e)
{
    struct sim_box *w = e->warm_id[0] ? sim_box_of(s, e->warm_id) : NULL;

    if (!w || !w->warm || !w->compute || w->phase != REGION_PHASE_RUNNING || w->busy)
        return false;
    w->compute = false;
    w->phase = REGION_PHASE_NONE;
    b->compute = b->claimed = true;
    b->computes++;
    b->crashed = false;
    b->answered_at = 0;
    b->unwanted_since = 0;
    b->phase = REGION_PHASE_RUNNING;
    b->work = ++s->next_content;
    sim_trace(s, "%s runs in what was the warm %s", b->id, w->id);
    return true;
}

static void deploy(struct sim *s, struct sim_box *b, const struct sim_event *e)
{
    if (b->busy == RECONCILE_DEPLOY || b->busy == RECONCILE_WARM) {
        join(b, e);
    } else if (b->busy) {
        again(s, e);
    } else if (b->compute && b->phase == REGION_PHASE_RUNNING) {
        journal(b, e->operation_id, SBX_OK); /* adopted */
        answer(s, &e->from, tell(&e->from, b));
    } else if (!b->compute && claim_warm(s, b, e)) {
        journal(b, e->operation_id, SBX_OK);
        answer(s, &e->from, tell(&e->from, b));
    } else {
        if (b->compute)
            end_compute(s, b, REGION_PHASE_NONE);
        b->compute = true;
        b->claimed = false;
        b->restored = b->restore_failed = false;
        b->work = ++s->next_content;
        if (e->restore)
            restore(s, b);
        b->computes++;
        b->crashed = false;
        b->answered_at = 0;
        b->unwanted_since = 0;
        b->phase = REGION_PHASE_STARTING;
        begin(s, b, e, sim_below(s, 3) ? sim_below(s, 300) : sim_below(s, 4000));
    }
}

static void list(struct sim *s, const struct sim_event *e)
{
    struct reconcile_answer *a = answer_new(&e->from, SBX_OK);

    a->seen = mem_zalloc(SIM_BOXES * sizeof(*a->seen));
    for (int i = 0; i < s->box_count; i++) {
        size_t at = a->count;
        const struct sim_box *b = &s->boxes[i];

        if (b->phase == REGION_PHASE_NONE || b->region != e->region)
            continue;
        while (at > 0 && strcmp(a->seen[at - 1].id, b->id) > 0) {
            a->seen[at] = a->seen[at - 1];
            at--;
        }
        memset(&a->seen[at], 0, sizeof(a->seen[at]));
        (void)str_copy(a->seen[at].id, ID_SIZE, b->id);
        a->seen[at].generation = b->seen;
        a->seen[at].phase = b->phase;
        a->seen[at].warm = b->warm;
        a->count++;
    }
    answer(s, &e->from, a);
}

static void pack_in(struct sim *s, const struct sim_box *b, int64_t in_ms)
{
    struct sim_event *e = sim_schedule(s, in_ms, SIM_EV_PACKED);

    e->work = b->work_number;
    (void)str_copy(e->id, ID_SIZE, b->id);
}

void sim_region_packed(struct sim *s, const struct sim_event *e)
{
    struct sim_box *b = sim_box_of(s, e->id);

    if (b->busy != RECONCILE_SAVE || b->work_number != e->work || b->crashed)
        return;
    if (s->mutation == SIM_LATEST_FIRST) {
        b->archives.latest = b->generation;
        return;
    }
    archive_write(s, b);
    b->packed = true;
}

static void mutate(struct sim *s, struct sim_box *b, const struct sim_event *e)
{
    const struct sim_done *done = journaled(b, e->operation_id);

    if (b->busy && strcmp(b->operation_id, e->operation_id) == 0) {
        join(b, e);
        return;
    }
    if (done) {
        answer(s, &e->from, result(&e->from, b, done->code));
        return;
    }
    if (e->generation < b->seen ||
        ((e->from.kind == RECONCILE_DEPLOY || e->from.kind == RECONCILE_WARM) &&
         e->generation <= b->tomb)) {
        answer(s, &e->from, answer_new(&e->from, SBX_E_STALE));
        return;
    }
    b->region = e->region;
    if (e->from.kind == RECONCILE_DEPLOY || e->from.kind == RECONCILE_WARM) {
        b->warm = e->from.kind == RECONCILE_WARM;
        b->seen = e->generation;
        deploy(s, b, e);
    } else if (e->from.kind == RECONCILE_DESTROY) {
        b->seen = e->generation;
        if (e->generation > b->tomb)
            b->tomb = e->generation;
        if (b->busy && b->busy != RECONCILE_DESTROY)
            cancel(s, b);
        if (b->busy)
            again(s, e);
        else
            begin(s, b, e, sim_below(s, 300));
    } else if (b->busy) {
        again(s, e);
    } else if (!b->compute || b->phase != REGION_PHASE_RUNNING) {
        answer(s, &e->from, answer_new(&e->from, SBX_E_SANDBOX_NOT_FOUND));
    } else {
        b->seen = e->generation;
        b->packed = false;
        begin(s, b, e, 100 + sim_below(s, 2000));
        pack_in(s, b, sim_below(s, 100));
    }
}

void sim_region_request(struct sim *s, const struct sim_event *e)
{
    if (s->region_down[e->region]) { /* the connection broke on the way */
        struct reconcile_answer *a = answer_new(&e->from, SBX_E_UNAVAILABLE);

        a->answered = false;
        answer_in(s, &e->from, latency(s), a);
        return;
    }
    if (e->from.kind == RECONCILE_LIST) {
        list(s, e);
    } else if (e->from.kind == RECONCILE_PURGE) {
        sim_volume_purge(s, e->a);
        answer(s, &e->from, answer_new(&e->from, SBX_OK));
    } else if (e->from.kind == RECONCILE_WANTS) {
        answer(s, &e->from, answer_new(&e->from, SBX_OK)); /* it lacks nothing */
    } else if (e->from.kind == RECONCILE_ASK) {
        struct sim_box *b = sim_box_of(s, e->id);

        answer(s, &e->from,
               b->phase == REGION_PHASE_NONE ? answer_new(&e->from, SBX_E_NOT_FOUND)
                                             : tell(&e->from, b));
    } else {
        mutate(s, sim_box_of(s, e->id), e);
    }
}

void sim_region_work(struct sim *s, const struct sim_event *e)
{
    struct sim_box *b = sim_box_of(s, e->id);

    if (!b->busy || b->work_number != e->work)
        return;
    switch (b->busy) {
    case RECONCILE_DEPLOY:
    case RECONCILE_WARM:
        if (b->crashed || sim_chance(s, s->weather.deploy_fails)) {
            end_compute(s, b, REGION_PHASE_NONE);
            finish(s, b, sim_below(s, 2) ? SBX_E_BUSY : SBX_E_UNKNOWN);
        } else {
            b->phase = REGION_PHASE_RUNNING;
            finish(s, b, SBX_OK);
        }
        break;
    case RECONCILE_DESTROY:
        end_compute(s, b, REGION_PHASE_NONE);
        b->stray = false;
        finish(s, b, SBX_OK);
        break;
    case RECONCILE_SAVE:
        if (b->crashed) {
            finish(s, b, SBX_E_SANDBOX_NOT_FOUND);
        } else if (sim_chance(s, s->weather.save_fails)) {
            for (int i = 0; b->packed && i < b->archives.count; i++) { /* no object is left */
                if (b->archives.generation[i] == b->generation)
                    archive_drop(&b->archives, i--);
            }
            finish(s, b, SBX_E_SNAPSHOT_FAILED);
        } else {
            if (s->mutation == SIM_LATEST_FIRST)
                archive_write(s, b);
            b->archives.latest = b->generation;
            archive_prune(s, b);
            end_compute(s, b, REGION_PHASE_STOPPED);
            finish(s, b, SBX_OK);
        }
        break;
    case RECONCILE_ASK:
    case RECONCILE_LIST:
    case RECONCILE_PURGE:
    case RECONCILE_WANTS:
    case RECONCILE_LEND:
        break;
    }
}

/* --- executions -------------------------------------------------------- */

void sim_region_exec_arrives(struct sim *s, const struct sim_event *e)
{
    struct sim_box *b = sim_box_of(s, e->id);
    struct sim_event *next;

    if (s->region_down[b->region] || !b->compute || b->phase != REGION_PHASE_RUNNING ||
        b->busy == RECONCILE_SAVE || b->execution_count == SIM_EXECUTIONS) {
        next = sim_schedule(s, latency(s), SIM_EV_EXEC_ANSWER);
        next->a = SBX_E_SANDBOX_NOT_FOUND;
    } else {
        (void)str_copy(b->executions[b->execution_count++], ID_SIZE, e->operation_id);
        next = sim_schedule(s, sim_below(s, 5000), SIM_EV_EXEC_ENDS);
    }
    (void)str_copy(next->id, ID_SIZE, e->id);
    (void)str_copy(next->operation_id, ID_SIZE, e->operation_id);
}

void sim_region_exec_ends(struct sim *s, const struct sim_event *e)
{
    struct sim_box *b = sim_box_of(s, e->id);

    if (b->busy == RECONCILE_SAVE) { /* frozen while the archive is written */
        struct sim_event *thawed = sim_schedule(s, AGAIN_MS, SIM_EV_EXEC_ENDS);

        (void)str_copy(thawed->id, ID_SIZE, e->id);
        (void)str_copy(thawed->operation_id, ID_SIZE, e->operation_id);
        return;
    }
    for (int i = 0; i < b->execution_count; i++) {
        struct sim_event *next;

        if (strcmp(b->executions[i], e->operation_id) != 0)
            continue;
        memmove(b->executions[i], b->executions[b->execution_count - 1], ID_SIZE);
        b->execution_count--;
        b->work = ++s->next_content; /* it left something in the workspace */
        next = sim_schedule(s, latency(s), SIM_EV_EXEC_ANSWER);
        /* A connection that broke says nothing about the sandbox: it is looked at. */
        next->a = sim_chance(s, s->weather.exec_errors) ? SBX_E_AGENT_UNREACHABLE : SBX_OK;
        (void)str_copy(next->id, ID_SIZE, e->id);
        (void)str_copy(next->operation_id, ID_SIZE, e->operation_id);
        return;
    }
}

/* --- faults ------------------------------------------------------------ */

void sim_region_crash(struct sim *s, struct sim_box *b)
{
    if (!b->compute)
        return;
    sim_trace(s, "%s dies in the region", b->id);
    b->crashed = true;
    if (b->phase == REGION_PHASE_RUNNING)
        end_compute(s, b, sim_below(s, 2) ? REGION_PHASE_FAILED : REGION_PHASE_NONE);
}

void sim_region_amnesia(struct sim *s)
{
    sim_trace(s, "the region forgets its fences");
    s->amnesia_struck = true;
    for (int i = 0; i < s->box_count; i++) {
        s->boxes[i].seen = 0;
        s->boxes[i].tomb = -1;
        s->boxes[i].journal_count = 0;
    }
}

/* The gateway dies and starts again: what it was at is not finished by it, what runs goes on. */
void sim_region_restart(struct sim *s, int region)
{
    for (int i = 0; i < s->box_count; i++) {
        struct sim_box *b = &s->boxes[i];

        if (b->region != region || !b->busy)
            continue;
        if (b->busy == RECONCILE_DEPLOY || b->busy == RECONCILE_WARM)
            end_compute(s, b, REGION_PHASE_NONE);
        sim_trace(s, "%s: the region died at it", b->id);
        b->busy = 0;
        b->waiter_count = 0;
    }
}
