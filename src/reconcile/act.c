#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "reconcile/state.h"

/* Doing what the plan says at the region, and reading what the region said. */

enum {
    LATE_FIRST_MS = 250,
    LATE_MAX_MS = 30000,
    ORPHANS_AT_ONCE = 64,
};

struct reconcile_call reconcile_call_of(const struct reconcile_op *op)
{
    return (struct reconcile_call){
        .kind = op->kind,
        .token = op->token,
        .region = op->region,
        .id = op->id,
        .generation = op->generation,
        .operation_id = op->operation_id,
    };
}

static enum plan_seen seen_of_phase(enum region_phase phase)
{
    switch (phase) {
    case REGION_PHASE_RUNNING:
        return PLAN_SEEN_RUNNING;
    case REGION_PHASE_STOPPED:
        return PLAN_SEEN_STOPPED;
    case REGION_PHASE_FAILED:
        return PLAN_SEEN_FAILED;
    case REGION_PHASE_STARTING:
    case REGION_PHASE_NONE:
        break;
    }
    return PLAN_SEEN_AWAY; /* not settled: asked again */
}

static enum plan_seen observe_success(const struct reconcile_op *op,
                                      const struct reconcile_answer *answer)
{
    switch (op->kind) {
    case RECONCILE_DEPLOY:
    case RECONCILE_ASK:
        return answer->count ? seen_of_phase(answer->seen[0].phase) : PLAN_SEEN_AWAY;
    case RECONCILE_DESTROY:
        return PLAN_SEEN_GONE;
    case RECONCILE_SAVE:
        return PLAN_SEEN_SAVED;
    case RECONCILE_LIST:
    case RECONCILE_WARM:
    case RECONCILE_PURGE:
    case RECONCILE_WANTS:
    case RECONCILE_LEND:
        break;
    }
    return PLAN_SEEN_NOTHING;
}

static enum plan_seen observe_failure(const struct reconcile_op *op,
                                      const struct reconcile_answer *answer)
{
    if (!answer->answered || answer->code == SBX_E_STALE)
        return PLAN_SEEN_AWAY;
    switch (op->kind) {
    case RECONCILE_DEPLOY:
        return plan_deploy_retries(answer->code) ? PLAN_SEEN_AWAY : PLAN_SEEN_FAILED;
    case RECONCILE_ASK:
        return answer->code == SBX_E_NOT_FOUND || answer->code == SBX_E_SANDBOX_NOT_FOUND
                   ? PLAN_SEEN_ABSENT
                   : PLAN_SEEN_AWAY;
    case RECONCILE_SAVE:
        if (answer->code == SBX_E_NOT_FOUND || answer->code == SBX_E_SANDBOX_NOT_FOUND)
            return PLAN_SEEN_ABSENT;
        return answer->code == SBX_E_OPERATION_KNOWN ? PLAN_SEEN_AWAY : PLAN_SEEN_NOT_SAVED;
    case RECONCILE_DESTROY:
    case RECONCILE_LIST:
    case RECONCILE_WARM:
    case RECONCILE_PURGE:
    case RECONCILE_WANTS:
    case RECONCILE_LEND:
        break;
    }
    return PLAN_SEEN_AWAY;
}

struct plan_observation reconcile_observe(const struct reconcile_op *op,
                                          const struct reconcile_answer *answer)
{
    struct plan_observation o = { .retry_after_ms = (int64_t)answer->retry_after_s * 1000 };

    if (answer->code == SBX_OK) {
        o.seen = observe_success(op, answer);
        o.fault = SANDBOX_FAULT_UNKNOWN;
        if (answer->count && answer->seen[0].reason[0])
            o.reason = answer->seen[0].reason;
    } else {
        o.seen = observe_failure(op, answer);
        o.fault = plan_fault_of(answer->code);
        o.reason = answer->message;
    }
    if (op->kind == RECONCILE_ASK && o.seen == PLAN_SEEN_FAILED && o.reason == NULL)
        o.reason = "The sandbox has ended in its region.";
    if (o.seen == PLAN_SEEN_ABSENT)
        o.reason = NULL;
    return o;
}

static enum reconcile_call_kind kind_of(enum sandbox_action action)
{
    switch (action) {
    case SANDBOX_ACT_DEPLOY:
        return RECONCILE_DEPLOY;
    case SANDBOX_ACT_DESTROY:
        return RECONCILE_DESTROY;
    case SANDBOX_ACT_SAVE:
        return RECONCILE_SAVE;
    case SANDBOX_ACT_ASK:
    case SANDBOX_ACT_NONE:
    case SANDBOX_ACT_COUNT:
        break;
    }
    return RECONCILE_ASK;
}

void reconcile_act(struct reconcile_core *c, const struct store_sandbox *row,
                   enum sandbox_action action)
{
    struct reconcile_op *op =
        reconcile_op_new(c, kind_of(action), RECONCILE_FOR_ROW, row->sandbox_id, row->region);
    struct reconcile_call call;
    struct sbx_err err = { 0 };

    op->generation = row->generation;
    op->row = reconcile_plan_row(row);
    /* The first try carries the row's operation, so that a takeover repeats it; a later one of a
     * deploy is a new operation, or the region would repeat its first refusal for ever. */
    if (row->operation_id && (action == SANDBOX_ACT_SAVE || row->attempt <= 1))
        (void)str_copy(op->operation_id, sizeof(op->operation_id), row->operation_id);
    reconcile_scan_at(c, op->started_ms + 1);
    call = reconcile_call_of(op);
    call.row = row;
    if (c->cfg.region->start(c->cfg.region_self, &call, &err)) {
        struct plan_observation away = { .seen = PLAN_SEEN_AWAY };
        struct plan_step step =
            plan_next(&op->row, &away, &c->cfg.times, reconcile_db_now(c), reconcile_jitter(c));

        reconcile_release(c, op->id, &op->row, &step, err.msg);
        reconcile_op_free(c, op);
    }
}

/* --- late results ------------------------------------------------------ */

void reconcile_late_add(struct reconcile_core *c, const char *id, const char *region,
                        int64_t generation, int tries)
{
    struct reconcile_late *l;
    int64_t delay = 0;

    if (c->cfg.skip_undo)
        return;
    if (tries >= RECONCILE_LATE_TRIES || c->late_count == RECONCILE_LATE_MAX) {
        log_warn("a late result is left to the sweep", LOG_S("sandboxId", id));
        return;
    }
    for (int i = 0; i < tries; i++)
        delay = delay ? (delay * 2 > LATE_MAX_MS ? LATE_MAX_MS : delay * 2) : LATE_FIRST_MS;
    l = &c->late[c->late_count++];
    (void)str_copy(l->id, sizeof(l->id), id);
    (void)str_copy(l->region, sizeof(l->region), region);
    l->generation = generation;
    l->tries = tries;
    l->at_ms = reconcile_mono(c) + delay;
}

/* The row has moved on: does anything still want what the late deploy made? */
static bool unwanted(const struct store_sandbox *row)
{
    return sandbox_status_in(row->status,
                             SANDBOX_BIT(SANDBOX_FAILED) | SANDBOX_BIT(SANDBOX_TERMINATING) |
                                 SANDBOX_BIT(SANDBOX_TERMINATED) | SANDBOX_BIT(SANDBOX_SUSPENDED));
}

static void undo(struct reconcile_core *c, const struct reconcile_late *late,
                 const struct store_sandbox *row)
{
    struct reconcile_op *op;
    struct reconcile_call call;
    struct sbx_err err = { 0 };

    if (row && !unwanted(row))
        return;
    op = reconcile_op_new(c, RECONCILE_DESTROY, RECONCILE_FOR_UNDO, late->id, late->region);
    op->generation = row ? row->generation : late->generation;
    op->tries = late->tries;
    call = reconcile_call_of(op);
    if (c->cfg.region->start(c->cfg.region_self, &call, &err)) {
        reconcile_late_add(c, late->id, late->region, late->generation, late->tries + 1);
        reconcile_op_free(c, op);
    }
}

void reconcile_late_pass(struct reconcile_core *c, struct arena *a)
{
    int64_t mono = reconcile_mono(c);

    for (size_t i = 0; i < c->late_count && c->op_count < c->cfg.actions_max;) {
        struct reconcile_late late = c->late[i];
        struct store_sandboxes rows = { 0 };
        const char *id = late.id;
        struct sbx_err err = { 0 };

        if (late.at_ms > mono) {
            i++;
            continue;
        }
        if (c->cfg.store->list_ids(c->cfg.db, &id, 1, a, &rows, &err)) {
            reconcile_db_failed(c, &err, "undo");
            return;
        }
        c->late[i] = c->late[--c->late_count];
        undo(c, &late, rows.count ? &rows.rows[0] : NULL);
    }
}

/* --- executions of dead control planes --------------------------------- */

static void orphan_drop(struct reconcile_core *c, size_t i)
{
    c->orphans[i] = c->orphans[--c->orphan_count];
}

static void orphans_claim(struct reconcile_core *c, struct arena *a)
{
    struct store_executions rows = { 0 };
    struct sbx_err err = { 0 };
    size_t room = RECONCILE_ORPHANS_MAX - c->orphan_count;

    if (room > STORE_LIST_MAX)
        room = STORE_LIST_MAX;
    if (room == 0 || c->quiet)
        return;
    if (c->cfg.store->execution_claim_stale(c->cfg.db, c->cfg.instance, c->cfg.stale_ms,
                                            c->cfg.execution_grace_ms, (int)room, a, &rows, &err)) {
        reconcile_db_failed(c, &err, "claim executions");
        return;
    }
    for (size_t i = 0; i < rows.count; i++) {
        struct reconcile_orphan *o;
        bool known = false;

        for (size_t k = 0; k < c->orphan_count && !known; k++)
            known = strcmp(c->orphans[k].execution_id, rows.rows[i].execution_id) == 0;
        if (known)
            continue;
        if (c->orphan_count == c->orphan_cap) {
            c->orphan_cap = c->orphan_cap ? 2 * c->orphan_cap : 64;
            c->orphans = mem_realloc(c->orphans, c->orphan_cap * sizeof(*c->orphans));
        }
        o = &c->orphans[c->orphan_count++];
        memset(o, 0, sizeof(*o));
        (void)str_copy(o->execution_id, ID_SIZE, rows.rows[i].execution_id);
        (void)str_copy(o->sandbox_id, ID_SIZE, rows.rows[i].sandbox_id);
    }
}

/* Finds the region of those that do not have it; one whose row has ended needs no question. */
static bool orphans_place(struct reconcile_core *c, struct arena *a)
{
    const char *ids[ORPHANS_AT_ONCE];
    struct store_sandboxes rows = { 0 };
    struct sbx_err err = { 0 };
    size_t n = 0;

    for (size_t i = 0; i < c->orphan_count && n < ORPHANS_AT_ONCE; i++) {
        bool listed = c->orphans[i].region[0] != '\0';

        for (size_t k = 0; k < n && !listed; k++)
            listed = strcmp(ids[k], c->orphans[i].sandbox_id) == 0;
        if (!listed)
            ids[n++] = arena_strdup(a, c->orphans[i].sandbox_id);
    }
    if (n == 0)
        return true;
    if (c->cfg.store->list_ids(c->cfg.db, ids, n, a, &rows, &err)) {
        reconcile_db_failed(c, &err, "place executions");
        return false;
    }
    for (size_t k = 0; k < n; k++) {
        const struct store_sandbox *row = NULL;

        for (size_t i = 0; i < rows.count && !row; i++) {
            if (strcmp(rows.rows[i].sandbox_id, ids[k]) == 0)
                row = &rows.rows[i];
        }
        for (size_t i = c->orphan_count; i-- > 0;) {
            if (strcmp(c->orphans[i].sandbox_id, ids[k]) != 0)
                continue;
            if (row && sandbox_status_in(row->status,
                                         SANDBOX_SET_RUNNING | SANDBOX_BIT(SANDBOX_SUSPENDING))) {
                (void)str_copy(c->orphans[i].region, RECONCILE_REGION_NAME_SIZE, row->region);
            } else if (reconcile_ids_add(&c->ended, c->orphans[i].execution_id)) {
                orphan_drop(c, i);
            }
        }
    }
    return true;
}

void reconcile_orphan_pass(struct reconcile_core *c, struct arena *a)
{
    size_t asked = 0;

    orphans_claim(c, a);
    if (c->orphan_count == 0 || !orphans_place(c, a))
        return;
    for (size_t i = 0; i < c->orphan_count && asked < ORPHANS_AT_ONCE; i++) {
        struct reconcile_orphan *o = &c->orphans[i];
        struct reconcile_op *op;
        struct reconcile_call call;
        struct sbx_err err = { 0 };
        bool under_way = o->asked;

        for (size_t k = 0; k < i && !under_way; k++)
            under_way = strcmp(c->orphans[k].sandbox_id, o->sandbox_id) == 0;
        if (under_way || !o->region[0])
            continue;
        op = reconcile_op_new(c, RECONCILE_ASK, RECONCILE_FOR_ORPHANS, o->sandbox_id, o->region);
        call = reconcile_call_of(op);
        asked++;
        if (c->cfg.region->start(c->cfg.region_self, &call, &err)) {
            reconcile_op_free(c, op);
            continue;
        }
        for (size_t k = i; k < c->orphan_count; k++) {
            if (strcmp(c->orphans[k].sandbox_id, o->sandbox_id) == 0)
                c->orphans[k].asked = true;
        }
    }
}

static bool still_runs(const struct reconcile_answer *answer, const char *execution_id)
{
    for (size_t i = 0; i < answer->execution_count; i++) {
        if (strcmp(answer->executions[i], execution_id) == 0)
            return true;
    }
    return false;
}

void reconcile_orphan_answer(struct reconcile_core *c, const struct reconcile_op *op,
                             const struct reconcile_answer *answer)
{
    bool absent = answer->answered &&
                  (answer->code == SBX_E_NOT_FOUND || answer->code == SBX_E_SANDBOX_NOT_FOUND);
    bool known = answer->code == SBX_OK || absent;
    bool dead = absent || (answer->code == SBX_OK && answer->count &&
                           answer->seen[0].phase != REGION_PHASE_RUNNING);

    for (size_t i = c->orphan_count; i-- > 0;) {
        struct reconcile_orphan *o = &c->orphans[i];

        if (strcmp(o->sandbox_id, op->id) != 0)
            continue;
        o->asked = false;
        o->region[0] = '\0'; /* its row is looked at again before the next question */
        if (known && (dead || !still_runs(answer, o->execution_id)) &&
            reconcile_ids_add(&c->ended, o->execution_id))
            orphan_drop(c, i);
    }
    if (dead)
        reconcile_core_probe(c, op->id);
}
