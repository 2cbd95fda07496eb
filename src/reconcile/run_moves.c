#include <assert.h>

#include "reconcile/runs.h"

/* The moves of an operation as guarded changes of its row: what the driver and the handlers write
 * is made here, from the table.  Pure; any thread. */

enum run_holder reconcile_run_holder(const struct store_sandbox *row)
{
    if (row == NULL)
        return RUN_HOLDER_NONE;
    if (sandbox_status_in(row->status, SANDBOX_SET_RUNNING))
        return RUN_HOLDER_UP;
    if (row->status == SANDBOX_FAILED)
        return RUN_HOLDER_FAILED;
    if (row->status == SANDBOX_TERMINATED)
        return RUN_HOLDER_GONE;
    if (row->status == SANDBOX_TERMINATING)
        return RUN_HOLDER_ENDING;
    return RUN_HOLDER_COMING;
}

enum sandbox_end_reason reconcile_run_end_reason(enum run_cause cause)
{
    switch (cause) {
    case RUN_CAUSE_COMPLETED:
        return SANDBOX_END_RUN_COMPLETED;
    case RUN_CAUSE_CANCELLED:
        return SANDBOX_END_RUN_CANCELLED;
    case RUN_CAUSE_OWNER_RESET:
        return SANDBOX_END_OWNER_RESET;
    case RUN_CAUSE_TIME_LIMIT:
        return SANDBOX_END_HARD_LIFETIME;
    case RUN_CAUSE_NONE:
    case RUN_CAUSE_FAILED:
    case RUN_CAUSE_LOST:
    case RUN_CAUSE_START_UNCERTAIN:
    case RUN_CAUSE_COUNT:
        break;
    }
    return SANDBOX_END_FAILED;
}

struct store_operation_move reconcile_run_move(const struct store_operation *op,
                                               enum run_event event, int64_t next_in_ms)
{
    const struct run_move *row = run_next(op->facts.phase, event);
    struct store_operation_move m = { .operation_id = op->operation_id,
                                      .version = op->version,
                                      .next_in_ms = next_in_ms };

    assert(row != NULL);
    m.set_phase = true;
    m.phase = row->to;
    if (m.phase == RUN_TERMINATING || m.phase == RUN_QUARANTINED)
        m.cause = event == RUN_EVENT_SIGN_IN_MISSING ? RUN_CAUSE_NONE
                                                     : run_teardown_cause(&op->facts, event);
    if (m.phase == RUN_QUARANTINED)
        m.connection_state = "QUARANTINED";
    return m;
}

void reconcile_run_give_up(const struct store_operation *op, struct store_operation_move *m)
{
    if (op->facts.execution != RUN_EXEC_STARTING && op->facts.execution != RUN_EXEC_RUNNING)
        return;
    m->set_execution = true;
    m->execution = RUN_EXEC_EXITED;
    m->set_exited = true;
}

bool reconcile_run_may_start(const struct store_operation *op)
{
    return op->facts.phase == RUN_READY && op->facts.execution == RUN_EXEC_PENDING;
}

struct store_operation_move reconcile_run_start(const struct store_operation *op,
                                                const char *execution_id)
{
    return (struct store_operation_move){
        .operation_id = op->operation_id,
        .version = op->version,
        .set_execution = true,
        .execution = RUN_EXEC_STARTING,
        .execution_id = execution_id,
        .set_started = true,
        .next_in_ms = RECONCILE_RUN_START_MS,
    };
}

enum reconcile_run_outcome reconcile_run_outcome(enum sbx_code code, bool answered, bool sent)
{
    if (code == SBX_OK)
        return RECONCILE_RUN_BEGUN;
    if (answered ? code == SBX_E_ENTRYPOINT_MISSING || code == SBX_E_SANDBOX_NOT_READY : !sent)
        return RECONCILE_RUN_NEVER;
    return RECONCILE_RUN_UNKNOWN;
}

struct store_operation_move reconcile_run_started(const struct store_operation *op,
                                                  enum reconcile_run_outcome outcome)
{
    struct store_operation_move m = { .operation_id = op->operation_id, .version = op->version };

    if (outcome == RECONCILE_RUN_UNKNOWN)
        m = reconcile_run_move(op, RUN_EVENT_START_UNCERTAIN, -1);
    m.set_execution = true;
    m.execution = outcome == RECONCILE_RUN_BEGUN   ? RUN_EXEC_RUNNING
                  : outcome == RECONCILE_RUN_NEVER ? RUN_EXEC_PENDING
                                                   : RUN_EXEC_EXITED;
    m.set_exited = outcome == RECONCILE_RUN_UNKNOWN;
    return m;
}
