#include <string.h>

#include "base/id.h"
#include "reconcile/ask.h"

/* What handlers ask for, as guarded moves of the table. */

enum { ASK_TRIES = 4 }; /* a row that flips between READY and BUSY under the call */

static enum sbx_code read_row(const struct reconcile_ask_ops *ops, struct store_conn *db,
                              const struct reconcile_ask *ask, struct arena *a,
                              struct store_sandbox *row, struct sbx_err *err)
{
    memset(row, 0, sizeof(*row));
    return ops->get(db, ask->account_id, ask->sandbox_id, a, row, err);
}

static struct plan_step step_of(const struct plan_times *times, const struct plan_row *row,
                                enum sandbox_event asked, int64_t now_ms)
{
    struct plan_observation seen = { .asked = asked };

    return plan_next(row, &seen, times, now_ms, 0);
}

static struct store_move move_of(const struct reconcile_ask *ask, const struct plan_row *row,
                                 const struct plan_step *step, int64_t now_ms)
{
    struct store_move m = reconcile_move_of(ask->sandbox_id, row, step, now_ms);

    m.actor = ask->actor;
    m.request_id = ask->request_id;
    m.next = STORE_NEXT_IN; /* at once */
    m.next_in_ms = 0;
    return m;
}

/* The contract's two steps: what is not running is first FAILED, then TERMINATING. */
static enum sbx_code end_row(const struct reconcile_ask_ops *ops, const struct plan_times *times,
                             struct store_conn *db, const struct reconcile_ask *ask,
                             const struct store_sandbox *row, struct arena *a,
                             struct store_sandbox *out, struct sbx_err *err)
{
    struct plan_row p = reconcile_plan_row(row);
    struct plan_step step = step_of(times, &p, SANDBOX_EV_TERMINATE, row->now_ms);
    struct store_move moves[2];
    size_t count = 0;

    if (ask->end_reason != SANDBOX_END_NONE)
        step.end_reason = ask->end_reason;
    moves[count++] = move_of(ask, &p, &step, row->now_ms);
    if (step.status == SANDBOX_FAILED) {
        struct plan_row failed = p;
        struct plan_step go;

        failed.status = SANDBOX_FAILED;
        failed.desired = SANDBOX_TERMINATED;
        failed.generation++;
        go = step_of(times, &failed, SANDBOX_EV_GO, row->now_ms);
        moves[count++] = move_of(ask, &failed, &go, row->now_ms);
    }
    return ops->moves_atomic(db, moves, count, a, out, err);
}

enum sbx_code reconcile_ask_end(const struct reconcile_ask_ops *ops, const struct plan_times *times,
                                struct store_conn *db, const struct reconcile_ask *ask,
                                struct arena *a, struct store_sandbox *out, bool *changed,
                                struct sbx_err *err)
{
    *changed = false;
    for (int try = 0; try < ASK_TRIES; try++) {
        struct store_sandbox row;
        struct sbx_err lost = { 0 };
        enum sbx_code code;

        if (read_row(ops, db, ask, a, &row, err))
            return err->code;
        if (row.status == SANDBOX_TERMINATED || row.status == SANDBOX_TERMINATING) {
            *out = row;
            return SBX_OK;
        }
        if (row.status == SANDBOX_SUSPENDING) {
            code = ops->desire(
                db, ask->sandbox_id, SANDBOX_BIT(SANDBOX_SUSPENDING), SANDBOX_TERMINATED,
                ask->end_reason ? ask->end_reason : SANDBOX_END_USER_REQUESTED, &lost);
            if (code == SBX_OK) {
                *changed = true;
                return err_set(err, SBX_E_CHANGING, "Sandbox is changing state");
            }
        } else {
            code = end_row(ops, times, db, ask, &row, a, out, &lost);
            if (code == SBX_OK) {
                *changed = true;
                return SBX_OK;
            }
        }
        if (code != SBX_E_CHANGING)
            return err_set(err, code, "%s", lost.msg);
    }
    return err_set(err, SBX_E_CHANGING, "Sandbox is changing state");
}

static enum sbx_code may_pause(const struct store_sandbox *row, const struct store_pause *pause,
                               struct sbx_err *err)
{
    if (!sandbox_persistence_has_volume(row->persistence_mode))
        return err_set(err, SBX_E_INVALID,
                       "An EPHEMERAL sandbox keeps nothing: there is nothing to pause; terminate "
                       "it instead.");
    if (row->status == SANDBOX_SUSPENDING)
        return err_set(err, SBX_E_CHANGING, "Sandbox is changing state");
    if (!sandbox_status_in(row->status, SANDBOX_SET_RUNNING) || row->desired == SANDBOX_TERMINATED)
        return err_set(err, SBX_E_CONFLICT, "Only a READY or BUSY sandbox can be paused; it is %s.",
                       sandbox_status_name(row->status));
    if (sandbox_persistence_snapshots(row->persistence_mode) && row->persistence.restore_failed &&
        !(pause && pause->force))
        return err_set(err, SBX_E_SNAPSHOT_OVERWRITE,
                       "The last restore failed, so a pause would overwrite the good snapshot; "
                       "set force to do it all the same.");
    return SBX_OK;
}

enum sbx_code reconcile_ask_pause(const struct reconcile_ask_ops *ops,
                                  const struct plan_times *times, struct store_conn *db,
                                  const struct reconcile_ask *ask, struct arena *a,
                                  struct store_sandbox *out, bool *changed, struct sbx_err *err)
{
    static const struct store_pause none;

    *changed = false;
    for (int try = 0; try < ASK_TRIES; try++) {
        struct store_sandbox row;
        struct plan_row p;
        struct plan_step step;
        struct store_move move;
        char operation_id[ID_SIZE];
        struct sbx_err lost = { 0 };
        enum sbx_code code;

        if (read_row(ops, db, ask, a, &row, err))
            return err->code;
        if (row.status == SANDBOX_SUSPENDED) {
            *out = row;
            return SBX_OK;
        }
        if (may_pause(&row, ask->pause, err))
            return err->code;
        p = reconcile_plan_row(&row);
        step = step_of(times, &p, SANDBOX_EV_PAUSE, row.now_ms);
        move = move_of(ask, &p, &step, row.now_ms);
        id_new(operation_id);
        move.operation_id = operation_id;
        move.pause = ask->pause ? ask->pause : &none;
        code = ops->move(db, &move, a, out, &lost);
        if (code == SBX_OK) {
            *changed = true;
            return SBX_OK;
        }
        if (code != SBX_E_CHANGING)
            return err_set(err, code, "%s", lost.msg);
    }
    return err_set(err, SBX_E_CHANGING, "Sandbox is changing state");
}
