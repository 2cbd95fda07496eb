#include <assert.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "reconcile/state.h"

/* The moves and releases of one pass: collected, written in one pipeline, and what follows. */

struct plan_row reconcile_plan_row(const struct store_sandbox *row)
{
    return (struct plan_row){
        .status = row->status,
        .desired = row->desired,
        .generation = row->generation,
        .deadline_ms = row->deadline_at_ms,
        .expires_ms = row->expires_at_ms,
        .last_active_ms = row->last_active_at_ms,
        .suspended_ms = row->suspended_at_ms,
        .failed_ms = row->failed_at_ms,
        .idle_timeout_s = row->idle_timeout_s,
        .suspended_retention_s = row->suspended_retention_s,
        .persistence = row->persistence_mode,
        .personal = row->personal,
        .compute_held = row->holds_compute,
        .executions = row->running,
        .attempts = row->attempt,
    };
}

static enum store_guard guard_of(enum sandbox_event event)
{
    if (event == SANDBOX_EV_IDLE)
        return STORE_GUARD_IDLE;
    if (event == SANDBOX_EV_LIFETIME)
        return STORE_GUARD_EXPIRED;
    if (event == SANDBOX_EV_RETENTION)
        return STORE_GUARD_RETENTION;
    if (event == SANDBOX_EV_LATE)
        return STORE_GUARD_DEADLINE;
    return STORE_GUARD_NONE;
}

struct store_move reconcile_move_of(const char *sandbox_id, const struct plan_row *row,
                                    const struct plan_step *step, int64_t now_ms)
{
    struct store_move m = {
        .sandbox_id = sandbox_id,
        .generation = row->generation,
        .from = SANDBOX_BIT(row->status),
        .to = step->status,
        .guard = guard_of(step->event),
        .desired_op = step->desired == SANDBOX_STATUS_NONE ? STORE_CLEAR : STORE_SET,
        .desired = step->desired,
        .status_reason = step->reason,
        .fault = step->fault,
        .end_reason = step->end_reason,
        .compute = step->release ? STORE_CLEAR : STORE_KEEP,
        .set_claimed = step->status == SANDBOX_ALLOCATING,
        .cause = sandbox_event_name(step->event),
        .actor = "reconciler",
    };

    if (step->deadline_ms > now_ms)
        m.deadline_in_ms = step->deadline_ms - now_ms;
    if (step->status == SANDBOX_TERMINATED) {
        m.next = STORE_NEXT_NEVER;
    } else if (step->status == SANDBOX_FAILED && step->desired != SANDBOX_TERMINATED) {
        m.next = STORE_NEXT_IN;
        m.next_in_ms = step->due_ms > now_ms ? step->due_ms - now_ms : 0;
    } else if (step->desired == SANDBOX_TERMINATED) {
        m.next = STORE_NEXT_IN; /* at once */
    }
    return m;
}

struct reconcile_intent *reconcile_intent_new(struct reconcile_core *c, const char *id,
                                              const char *region, const struct plan_row *row,
                                              const struct plan_step *step, struct reconcile_op *op,
                                              enum reconcile_fate fate)
{
    struct reconcile_intent *in = &c->batch.intents[c->batch.count++];

    assert(c->batch.count <= RECONCILE_BATCH);
    memset(in, 0, sizeof(*in));
    (void)str_copy(in->id, sizeof(in->id), id);
    (void)str_copy(in->region, sizeof(in->region), region);
    in->op = op;
    in->fate = fate;
    in->step = *step;
    if (step->reason) {
        (void)str_copy(in->reason, sizeof(in->reason), step->reason);
        in->step.reason = in->reason;
    }
    if (step->status == SANDBOX_FAILED && row->failed_ms)
        in->step.due_ms = row->failed_ms + c->cfg.times.failed_retention_s * 1000;
    in->move = reconcile_move_of(in->id, row, &in->step, reconcile_db_now(c));
    if (step->action != SANDBOX_ACT_NONE || fate == RECONCILE_OP_STAYS) {
        in->move.lease_owner = c->cfg.instance;
        in->move.lease_ms = c->cfg.lease_ms;
        in->move.next = STORE_NEXT_IN;
        in->move.next_in_ms = c->cfg.lease_ms;
    }
    if (fate == RECONCILE_OP_STAYS)
        (void)str_copy(in->operation_id, sizeof(in->operation_id), op->operation_id);
    else if (step->action != SANDBOX_ACT_NONE)
        id_new(in->operation_id);
    in->move.operation_id = in->operation_id[0] ? in->operation_id : NULL;
    return in;
}

void reconcile_release(struct reconcile_core *c, const char *sandbox_id, const struct plan_row *row,
                       const struct plan_step *step, const char *last_error)
{
    struct reconcile_batch *b = &c->batch;
    struct store_release *rel;
    int64_t now = reconcile_db_now(c);

    if (b->release_count == RECONCILE_BATCH) {
        (void)reconcile_ids_add(&c->recover, sandbox_id);
        return;
    }
    rel = &b->releases[b->release_count];
    (void)str_copy(b->release_ids[b->release_count], ID_SIZE, sandbox_id);
    (void)str_copy(b->release_errors[b->release_count], RECONCILE_MESSAGE_SIZE,
                   last_error ? last_error : "");
    *rel = (struct store_release){
        .sandbox_id = b->release_ids[b->release_count],
        .generation = row->generation,
        .owner = c->cfg.instance,
        .keep_attempt = step->count_attempt,
        .last_error = last_error && last_error[0] ? b->release_errors[b->release_count] : NULL,
    };
    b->release_count++;
    if (row->status == SANDBOX_TERMINATED) {
        rel->next = STORE_NEXT_NEVER;
    } else if (step->count_attempt || row->status == SANDBOX_FAILED || step->move) {
        rel->next = STORE_NEXT_IN;
        rel->next_in_ms = !step->move && step->due_ms > now ? step->due_ms - now : 0;
    }
}

void reconcile_flush_releases(struct reconcile_core *c)
{
    struct reconcile_batch *b = &c->batch;
    struct sbx_err err = { 0 };

    if (b->release_count == 0)
        return;
    if (c->cfg.store->release(c->cfg.db, b->releases, b->release_count, &err)) {
        reconcile_db_failed(c, &err, "release");
        for (size_t i = 0; i < b->release_count; i++)
            (void)reconcile_ids_add(&c->recover, b->release_ids[i]);
    }
    b->release_count = 0;
}

static void op_fate(struct reconcile_core *c, const struct reconcile_intent *in)
{
    if (in->op && in->fate == RECONCILE_OP_ENDS)
        reconcile_op_free(c, in->op);
}

static void intent_moved(struct reconcile_core *c, const struct reconcile_intent *in,
                         const struct store_sandbox *row)
{
    c->counts.moves++;
    c->db_offset_ms = row->now_ms - reconcile_mono(c);
    if (in->step.event == SANDBOX_EV_LOST) {
        c->counts.lost++;
        log_warn("a sandbox vanished from its region", LOG_S("sandboxId", in->id),
                 LOG_S("region", in->region));
    }
    log_info("moved", LOG_S("sandboxId", in->id), LOG_S("status", sandbox_status_name(row->status)),
             LOG_S("cause", in->move.cause), LOG_I("generation", row->generation),
             LOG_S("reason", in->move.status_reason));
    if (in->op && in->fate == RECONCILE_OP_STAYS) {
        in->op->row = reconcile_plan_row(row);
        in->op->generation = row->generation;
        reconcile_scan_at(c, reconcile_mono(c) + 1);
    }
    if (in->op && in->fate == RECONCILE_OP_LOSES)
        in->op->lost = true;
    op_fate(c, in);
    if (c->cfg.on_move)
        c->cfg.on_move(c->cfg.move_arg, row);
    if (in->step.action != SANDBOX_ACT_NONE)
        reconcile_act(c, row, in->step.action);
}

static void intent_lost(struct reconcile_core *c, const struct reconcile_intent *in)
{
    c->counts.moves_lost++;
    (void)reconcile_ids_add(&c->recover, in->id);
    if (in->op && in->fate != RECONCILE_OP_ENDS)
        reconcile_scan_at(c, in->op->timer_ms);
    if (in->deployed)
        reconcile_late_add(c, in->id, in->region, in->move.generation, 0);
    op_fate(c, in);
}

/* Writes the batch's moves in one pipeline and does what follows from each. */
void reconcile_flush_moves(struct reconcile_core *c, struct arena *a)
{
    struct reconcile_batch *b = &c->batch;
    struct store_move moves[RECONCILE_BATCH];
    bool moved[RECONCILE_BATCH] = { false };
    struct store_sandbox *rows;
    struct sbx_err err = { 0 };
    size_t count = b->count;

    if (count == 0)
        return;
    rows = arena_zalloc(a, count * sizeof(*rows));
    for (size_t i = 0; i < count; i++)
        moves[i] = b->intents[i].move;
    if (c->cfg.store->moves(c->cfg.db, moves, count, moved, a, rows, &err)) {
        /* Some may have been written: every row is read again once the database answers. */
        reconcile_db_failed(c, &err, "moves");
        for (size_t i = 0; i < count; i++) {
            (void)reconcile_ids_add(&c->recover, b->intents[i].id);
            if (b->intents[i].deployed)
                reconcile_late_add(c, b->intents[i].id, b->intents[i].region,
                                   b->intents[i].move.generation, 0);
            op_fate(c, &b->intents[i]);
        }
        b->count = 0;
        return;
    }
    b->count = 0; /* what follows may fill the next one */
    for (size_t i = 0; i < count; i++) {
        if (moved[i])
            intent_moved(c, &b->intents[i], &rows[i]);
        else
            intent_lost(c, &b->intents[i]);
    }
}
