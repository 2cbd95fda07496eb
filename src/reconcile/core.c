#include "reconcile/core.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "reconcile/state.h"

enum {
    ROUNDS_MAX = 64, /* batches of one pass */
    REAP_EVERY_MS = 2000,
    BEAT_EVERY_MS = 1000,
    ORPHANS_EVERY_MS = 1000,
    PRUNE_EVERY_MS = 60000,
    PRUNE_AGAIN_MS = 200, /* after a full batch: more is old than a minute's batch takes */
    PRUNE_ROWS = 1000,
    DUE_AGAIN_MS = 5, /* a due row that another control plane has just locked */
};

/* --- where moves come from --------------------------------------------- */

/* A row whose lease we have just got. */
static void consider_row(struct reconcile_core *c, const struct store_sandbox *row)
{
    struct plan_row p = reconcile_plan_row(row);
    struct plan_observation nothing = { 0 };
    struct reconcile_op *op = reconcile_op_of(c, row->sandbox_id);
    struct plan_step step;
    struct sbx_err err = { 0 };

    if (op && op->generation == row->generation && !op->lost)
        return; /* the lease had run out under our own call */
    step = plan_next(&p, &nothing, &c->cfg.times, row->now_ms, reconcile_jitter(c));
    if (step.changes) {
        (void)reconcile_intent_new(c, row->sandbox_id, row->region, &p, &step, NULL,
                                   RECONCILE_OP_ENDS);
        return;
    }
    if (step.move && step.desired == SANDBOX_TERMINATED && p.desired != SANDBOX_TERMINATED) {
        if (c->cfg.store->desire(c->cfg.db, row->sandbox_id, SANDBOX_BIT(p.status),
                                 SANDBOX_TERMINATED, step.end_reason, &err) &&
            err.code != SBX_E_CHANGING)
            reconcile_db_failed(c, &err, "desire");
        reconcile_release(c, row->sandbox_id, &p, &step, NULL);
        return;
    }
    if (step.action != SANDBOX_ACT_NONE)
        reconcile_act(c, row, step.action);
    else
        reconcile_release(c, row->sandbox_id, &p, &step, NULL);
}

static size_t claim_due(struct reconcile_core *c, struct arena *a, size_t room)
{
    struct store_sandboxes rows = { 0 };
    struct sbx_err err = { 0 };

    if (c->quiet || c->op_count >= c->cfg.actions_max)
        return 0;
    if (room > c->cfg.actions_max - c->op_count)
        room = c->cfg.actions_max - c->op_count;
    if (c->cfg.store->claim_due(c->cfg.db, c->cfg.instance, c->cfg.lease_ms, (int)room, a, &rows,
                                &err)) {
        reconcile_db_failed(c, &err, "claim");
        return 0;
    }
    reconcile_db_worked(c);
    for (size_t i = 0; i < rows.count; i++) {
        c->db_offset_ms = rows.rows[i].now_ms - reconcile_mono(c);
        consider_row(c, &rows.rows[i]);
    }
    c->counts.claims += rows.count;
    return rows.count;
}

static void note_persistence(struct reconcile_intent *in, const struct reconcile_answer *answer)
{
    const struct reconcile_seen *s = answer->count ? &answer->seen[0] : NULL;
    struct store_persistence *p = &in->persistence;

    if (in->op->row.persistence == SANDBOX_PERSISTENCE_EPHEMERAL)
        return;
    if (s && s->has_persistence) {
        p->mount_path = s->mount_path[0] ? s->mount_path : NULL;
        p->last_snapshot_at_ms = s->last_snapshot_at_ms;
        p->last_snapshot_bytes = s->last_snapshot_bytes;
        p->last_snapshot_error = s->snapshot_error[0] ? s->snapshot_error : NULL;
        p->restore_failed = s->restore_failed;
        in->move.persistence = p;
    } else if (in->op->kind == RECONCILE_SAVE && answer->code == SBX_OK && answer->snapshot_at_ms) {
        p->last_snapshot_at_ms = answer->snapshot_at_ms;
        p->last_snapshot_bytes = answer->snapshot_bytes;
        in->move.persistence = p;
    } else if (in->op->kind == RECONCILE_SAVE && in->step.event == SANDBOX_EV_NOT_SAVED) {
        p->last_snapshot_error = answer->message;
        in->move.persistence = p;
    }
}

/* The answer of a call that drives a row. */
static void settle_row(struct reconcile_core *c, struct reconcile_op *op,
                       const struct reconcile_answer *answer)
{
    struct plan_observation seen = reconcile_observe(op, answer);
    bool deployed = op->kind == RECONCILE_DEPLOY && (answer->code == SBX_OK || !answer->answered);
    struct reconcile_intent *in;
    struct plan_step step;

    if (op->lost) {
        if (deployed)
            reconcile_late_add(c, op->id, op->region, op->generation, 0);
        reconcile_op_free(c, op);
        return;
    }
    step = plan_next(&op->row, &seen, &c->cfg.times, reconcile_db_now(c), reconcile_jitter(c));
    if (!step.changes && !step.release) {
        reconcile_release(c, op->id, &op->row, &step, answer->code ? answer->message : NULL);
        reconcile_op_free(c, op);
        return;
    }
    op->settled = true;
    in = reconcile_intent_new(c, op->id, op->region, &op->row, &step, op, RECONCILE_OP_ENDS);
    in->deployed = op->kind == RECONCILE_DEPLOY && answer->code == SBX_OK;
    in->move.set_warm = in->deployed && answer->count && answer->seen[0].claimed;
    note_persistence(in, answer);
    if (step.event == SANDBOX_EV_NOT_SAVED) {
        in->move.status_reason =
            answer->code == SBX_E_SNAPSHOT_FAILED || answer->code == SBX_E_SNAPSHOT_OVERWRITE
                ? RECONCILE_PAUSE_FAILED
                : RECONCILE_PAUSE_NOT_NOW;
    }
}

static void settle(struct reconcile_core *c, struct reconcile_op *op,
                   const struct reconcile_answer *answer)
{
    switch (op->purpose) {
    case RECONCILE_FOR_ROW:
        settle_row(c, op, answer);
        return;
    case RECONCILE_FOR_UNDO:
        if (answer->code == SBX_OK || answer->code == SBX_E_STALE) {
            c->counts.undone++;
            log_info("a late result was torn down", LOG_S("sandboxId", op->id));
        } else {
            reconcile_late_add(c, op->id, op->region, op->generation, op->tries + 1);
        }
        break;
    case RECONCILE_FOR_STRAY: /* the next sweep sees it again when this failed */
        if (answer->code == SBX_OK)
            log_info("a stray was destroyed", LOG_S("sandboxId", op->id));
        break;
    case RECONCILE_FOR_SWEEP:
        reconcile_sweep_answer(c, op, answer);
        break;
    case RECONCILE_FOR_ORPHANS:
        reconcile_orphan_answer(c, op, answer);
        break;
    case RECONCILE_FOR_WARM:
    case RECONCILE_FOR_DRAIN:
        reconcile_warm_answer(c, op, answer);
        break;
    case RECONCILE_FOR_PURGE:
        reconcile_purge_answer(c, op, answer);
        break;
    case RECONCILE_FOR_WANTS:
        reconcile_wants_answer(c, op, answer);
        break;
    case RECONCILE_FOR_LEND:
        reconcile_lend_answer(c, op, answer);
        break;
    }
    reconcile_op_free(c, op);
}

/* Works on waiting answers while the batch has room. They are freed with the arena: moves borrow
 * their texts. */
static size_t take_answers(struct reconcile_core *c, struct arena *a)
{
    size_t taken = 0;

    while (c->answers && c->batch.count < RECONCILE_BATCH - 1) {
        struct reconcile_answer *answer = c->answers;
        struct reconcile_op *op = reconcile_op_by_token(c, answer->token);

        c->answers = answer->link;
        if (!c->answers)
            c->answers_end = &c->answers;
        arena_defer(a, (void (*)(void *))reconcile_answer_free, answer);
        if (op && !op->settled)
            settle(c, op, answer);
        taken++;
    }
    return taken;
}

/* When the timers of a row under a call act, on the monotonic clock; 0: never. */
static int64_t op_due_ms(const struct reconcile_core *c, const struct reconcile_op *op)
{
    int64_t due = plan_due_ms(&op->row, &c->cfg.times);
    int64_t at = 0;

    if (op->purpose != RECONCILE_FOR_ROW || op->lost || op->settled)
        return 0;
    if (due != 0 && op->row.status != SANDBOX_FAILED && op->row.status != SANDBOX_TERMINATING)
        at = due - c->db_offset_ms;
    if (op->kind == RECONCILE_DEPLOY && op->row.status == SANDBOX_ALLOCATING &&
        (at == 0 || op->started_ms + c->cfg.accept_ms < at))
        at = op->started_ms + c->cfg.accept_ms;
    return at == 0 || at > op->timer_ms ? at : op->timer_ms;
}

/* A deploy that takes a while is STARTING; a call whose row is overdue loses it. */
static void scan_ops(struct reconcile_core *c)
{
    int64_t mono = reconcile_mono(c), now = reconcile_db_now(c);

    if (c->next_scan_ms == 0 || mono < c->next_scan_ms)
        return;
    c->next_scan_ms = 0;
    for (struct reconcile_op *op = c->ops; op; op = op->next) {
        struct plan_observation seen = { 0 };
        enum reconcile_fate fate = RECONCILE_OP_LOSES;
        struct plan_step step;
        int64_t at = op_due_ms(c, op);

        if (at == 0)
            continue;
        if (at > mono || c->batch.count >= RECONCILE_BATCH / 2) {
            reconcile_scan_at(c, at > mono ? at : mono + 1);
            continue;
        }
        if (op->kind == RECONCILE_DEPLOY && op->row.status == SANDBOX_ALLOCATING &&
            mono - op->started_ms >= c->cfg.accept_ms) {
            seen.seen = PLAN_SEEN_ACCEPTED;
            fate = RECONCILE_OP_STAYS;
        }
        step = plan_next(&op->row, &seen, &c->cfg.times, now, reconcile_jitter(c));
        op->timer_ms = mono + RECONCILE_TIMER_AGAIN_MS;
        reconcile_scan_at(c, op->timer_ms);
        if (step.changes)
            (void)reconcile_intent_new(c, op->id, op->region, &op->row, &step, op, fate);
    }
}

/* Rows that a failed write or a lost move left: what is still leased by us and has no call is given
 * back. */
static void recover(struct reconcile_core *c, struct arena *a)
{
    const char *ids[STORE_LIST_MAX];
    struct store_sandboxes rows = { 0 };
    struct sbx_err err = { 0 };
    size_t n = c->recover.count < STORE_LIST_MAX ? c->recover.count : STORE_LIST_MAX;
    struct plan_step now = { .move = &SANDBOX_MOVES[0] }; /* due at once */

    if (n > RECONCILE_BATCH / 2)
        n = RECONCILE_BATCH / 2;
    if (n == 0)
        return;
    for (size_t i = 0; i < n; i++)
        ids[i] = arena_strdup(a, c->recover.ids[i]);
    if (c->cfg.store->list_ids(c->cfg.db, ids, n, a, &rows, &err)) {
        reconcile_db_failed(c, &err, "recover");
        return;
    }
    reconcile_db_worked(c);
    reconcile_ids_drop(&c->recover, n);
    for (size_t i = 0; i < rows.count; i++) {
        const struct store_sandbox *row = &rows.rows[i];
        struct reconcile_op *op = reconcile_op_of(c, row->sandbox_id);
        struct plan_row p = reconcile_plan_row(row);

        if (op && op->generation != row->generation)
            op->lost = true;
        if (row->lease_owner && strcmp(row->lease_owner, c->cfg.instance) == 0 && (!op || op->lost))
            reconcile_release(c, row->sandbox_id, &p, &now, NULL);
        if (c->cfg.on_move)
            c->cfg.on_move(c->cfg.move_arg, row);
    }
}

/* Rows to be asked about now: an execute found them gone. */
static void take_probes(struct reconcile_core *c, struct arena *a)
{
    size_t n = 0;

    while (n < c->probes.count && c->op_count < c->cfg.actions_max && !c->quiet) {
        struct store_sandbox row = { 0 };
        struct sbx_err err = { 0 };
        enum sbx_code code;

        code = c->cfg.store->claim_one(c->cfg.db, c->cfg.instance, c->cfg.lease_ms,
                                       c->probes.ids[n], a, &row, &err);
        if (code == SBX_OK && sandbox_status_in(row.status, SANDBOX_SET_RUNNING)) {
            reconcile_act(c, &row, SANDBOX_ACT_ASK);
        } else if (code == SBX_OK) {
            (void)reconcile_ids_add(&c->recover, row.sandbox_id);
        } else if (code != SBX_E_BUSY && code != SBX_E_NOT_FOUND) {
            reconcile_db_failed(c, &err, "probe");
            break;
        }
        n++;
    }
    reconcile_ids_drop(&c->probes, n);
}

static void end_executions(struct reconcile_core *c)
{
    size_t n = 0;

    while (n < c->ended.count) {
        struct sbx_err err = { 0 };

        if (c->cfg.store->execution_end(c->cfg.db, c->ended.ids[n], NULL, &err)) {
            reconcile_db_failed(c, &err, "end execution");
            break;
        }
        n++;
    }
    reconcile_ids_drop(&c->ended, n);
}

/* --- what happens now and then ----------------------------------------- */

static bool every(struct reconcile_core *c, int64_t *next, int64_t ms)
{
    int64_t mono = reconcile_mono(c);

    if (mono < *next || !reconcile_db_usable(c))
        return false;
    *next = mono + ms;
    return true;
}

static void prune(struct reconcile_core *c)
{
    struct sbx_err err = { 0 };
    int n = 0;

    if (!c->cfg.trail_keep_ms || !every(c, &c->next_prune_ms, PRUNE_EVERY_MS))
        return;
    if (c->cfg.store->prune(c->cfg.db, c->cfg.trail_keep_ms, PRUNE_ROWS, &n, &err))
        reconcile_db_failed(c, &err, "prune");
    else if (n >= PRUNE_ROWS)
        c->next_prune_ms = reconcile_mono(c) + PRUNE_AGAIN_MS;
}

static void beat(struct reconcile_core *c)
{
    struct sbx_err err = { 0 };

    if (every(c, &c->next_beat_ms, BEAT_EVERY_MS) &&
        c->cfg.store->beat(c->cfg.db, c->cfg.instance, &err))
        reconcile_db_failed(c, &err, "beat");
}

static void housekeeping(struct reconcile_core *c, struct arena *a)
{
    struct sbx_err err = { 0 };
    int n;

    if (every(c, &c->next_renew_ms, c->cfg.lease_ms / 3) && c->op_count > 0 &&
        c->cfg.store->renew(c->cfg.db, c->cfg.instance, c->cfg.lease_ms, &n, &err))
        reconcile_db_failed(c, &err, "renew");
    err.code = SBX_OK;
    if (every(c, &c->next_reap_ms, REAP_EVERY_MS) &&
        c->cfg.store->reap(c->cfg.db, c->cfg.stale_ms, &n, &err))
        reconcile_db_failed(c, &err, "reap");
    if (every(c, &c->next_orphan_ms, ORPHANS_EVERY_MS))
        reconcile_orphan_pass(c, a);
    reconcile_late_pass(c, a);
    if (c->quiet)
        return;
    reconcile_sweep_pass(c);
    reconcile_warm_pass(c, a);
    reconcile_purge_pass(c, a);
    reconcile_lend_pass(c);
    prune(c);
}

void reconcile_core_keep_trail(struct reconcile_core *c, int64_t ms)
{
    if (c->cfg.trail_keep_ms != ms)
        c->next_prune_ms = 0;
    c->cfg.trail_keep_ms = ms;
}

/* Milliseconds until the next row is due, as far as the poll allows. */
static int64_t wait_ms(struct reconcile_core *c)
{
    int64_t due = -1, wait = c->cfg.poll_ms, mono = reconcile_mono(c);
    struct sbx_err err = { 0 };

    if (c->answers || c->wake || c->probes.count)
        return 0;
    if (c->next_scan_ms != 0 && c->next_scan_ms - mono < wait)
        wait = c->next_scan_ms > mono ? c->next_scan_ms - mono : 1;
    if (c->quiet)
        return wait;
    if (c->cfg.store->next_due(c->cfg.db, &due, &err)) {
        reconcile_db_failed(c, &err, "next due");
    } else if (due >= 0 && due < wait && c->op_count < c->cfg.actions_max) {
        wait = due > DUE_AGAIN_MS ? due : DUE_AGAIN_MS;
        if (mono + wait < c->next_poll_ms) /* else passes spin until the poll */
            c->next_poll_ms = mono + wait;
    }
    return wait;
}

int64_t reconcile_core_pass(struct reconcile_core *c)
{
    bool poll = c->wake || reconcile_mono(c) >= c->next_poll_ms;

    if (!reconcile_db_usable(c))
        return c->db_retry_ms - reconcile_mono(c);
    c->wake = false;
    beat(c); /* first: whoever holds leases without a beat is taken for dead */
    for (int round = 0; round < ROUNDS_MAX && reconcile_db_usable(c); round++) {
        SCOPED_ARENA struct arena *a = arena_new();
        size_t work;

        recover(c, a);
        if (!c->db_up && c->recover.count)
            break;
        work = take_answers(c, a);
        scan_ops(c);
        take_probes(c, a);
        if (poll && c->batch.count < RECONCILE_BATCH / 2) {
            size_t room = RECONCILE_BATCH / 2;
            size_t got = claim_due(c, a, room);

            poll = got == room;
            work += got;
            c->next_poll_ms = reconcile_mono(c) + c->cfg.poll_ms;
        }
        reconcile_flush_moves(c, a);
        reconcile_flush_releases(c);
        if (work == 0)
            break;
    }
    {
        SCOPED_ARENA struct arena *a = arena_new();

        end_executions(c);
        housekeeping(c, a);
        reconcile_flush_releases(c);
    }
    return wait_ms(c);
}

/* --- the rest of the surface ------------------------------------------- */

struct reconcile_core *reconcile_core_new(const struct reconcile_core_config *config)
{
    struct reconcile_core *c = mem_zalloc(sizeof(*c));

    c->cfg = *config;
    c->rng = config->seed | 1;
    c->answers_end = &c->answers;
    c->recover.max = RECONCILE_RECOVER_MAX;
    c->probes.max = RECONCILE_RECOVER_MAX;
    c->ended.max = RECONCILE_RECOVER_MAX;
    c->wake = true;
    c->db_up = true;
    return c;
}

void reconcile_core_free(struct reconcile_core *c)
{
    if (!c)
        return;
    while (c->ops)
        reconcile_op_free(c, c->ops);
    while (c->answers) {
        struct reconcile_answer *next = c->answers->link;

        reconcile_answer_free(c->answers);
        c->answers = next;
    }
    for (size_t i = 0; i < c->sweep_count; i++)
        free(c->sweeps[i].items);
    free(c->recover.ids);
    free(c->probes.ids);
    free(c->ended.ids);
    free(c->orphans);
    free(c);
}

void reconcile_core_wake(struct reconcile_core *c)
{
    c->wake = true;
}

void reconcile_core_probe(struct reconcile_core *c, const char *sandbox_id)
{
    (void)reconcile_ids_add(&c->probes, sandbox_id);
}

void reconcile_core_execution_ended(struct reconcile_core *c, const char *execution_id)
{
    (void)reconcile_ids_add(&c->ended, execution_id);
}

void reconcile_core_answer_take(struct reconcile_core *c, struct reconcile_answer *answer)
{
    answer->link = NULL;
    *c->answers_end = answer;
    c->answers_end = &answer->link;
}

void reconcile_core_quiesce(struct reconcile_core *c)
{
    c->quiet = true;
}

size_t reconcile_core_actions(const struct reconcile_core *c)
{
    return c->op_count;
}

bool reconcile_core_database_up(const struct reconcile_core *c)
{
    return c->db_up;
}

void reconcile_core_counts(const struct reconcile_core *c, struct reconcile_counts *out)
{
    *out = c->counts;
}
