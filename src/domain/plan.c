#include "domain/plan.h"

#include <assert.h>

#include "sbx/attr.h"
#include "sbx/gateway.h"

const struct plan_times PLAN_TIMES_DEFAULT = {
    .allocating_s = SBX_GATEWAY_DEPLOY_TIMEOUT_S + 60,
    .starting_s = SBX_GATEWAY_DEPLOY_TIMEOUT_S,
    .suspending_s = SBX_GATEWAY_SNAPSHOT_TIMEOUT_S + 60,
    .resuming_s = SBX_GATEWAY_DEPLOY_TIMEOUT_S + 60,
    .failed_retention_s = 3600,
    .backoff_first_ms = 250,
    .backoff_max_ms = 30000,
};

enum { DOUBLINGS_MAX = 20 };

static bool passed(int64_t when_ms, int64_t now_ms)
{
    return when_ms != 0 && when_ms <= now_ms;
}

/* The event that what was seen means in that status; NONE when it changes nothing. */
static enum sandbox_event seen_event(const struct plan_row *row,
                                     const struct plan_observation *seen, int64_t now_ms)
{
    bool coming_up = sandbox_status_in(row->status, SANDBOX_SET_COMING_UP);
    bool running = sandbox_status_in(row->status, SANDBOX_SET_RUNNING);
    bool suspending = row->status == SANDBOX_SUSPENDING;

    switch (seen->seen) {
    case PLAN_SEEN_NOTHING:
    case PLAN_SEEN_AWAY:
        return SANDBOX_EVENT_NONE;
    case PLAN_SEEN_ACCEPTED:
        return row->status == SANDBOX_ALLOCATING ? SANDBOX_EV_ACCEPTED : SANDBOX_EVENT_NONE;
    case PLAN_SEEN_RUNNING:
        if (suspending && passed(row->deadline_ms, now_ms))
            return SANDBOX_EV_NOT_SAVED;
        return coming_up ? SANDBOX_EV_UP : SANDBOX_EVENT_NONE;
    case PLAN_SEEN_STOPPED:
        if (suspending)
            return SANDBOX_EV_SAVED;
        return running ? SANDBOX_EV_LOST : SANDBOX_EVENT_NONE;
    case PLAN_SEEN_FAILED:
        if (coming_up)
            return SANDBOX_EV_REFUSED;
        return running || suspending ? SANDBOX_EV_LOST : SANDBOX_EVENT_NONE;
    case PLAN_SEEN_ABSENT:
        return running || suspending ? SANDBOX_EV_LOST : SANDBOX_EVENT_NONE;
    case PLAN_SEEN_GONE:
        return row->status == SANDBOX_FAILED || row->status == SANDBOX_TERMINATING
                   ? SANDBOX_EV_GONE
                   : SANDBOX_EVENT_NONE;
    case PLAN_SEEN_SAVED:
        return suspending ? SANDBOX_EV_SAVED : SANDBOX_EVENT_NONE;
    case PLAN_SEEN_NOT_SAVED:
        return suspending ? SANDBOX_EV_NOT_SAVED : SANDBOX_EVENT_NONE;
    }
    return SANDBOX_EVENT_NONE;
}

static int64_t idle_at_ms(const struct plan_row *row)
{
    if (row->status != SANDBOX_READY || row->executions > 0 || row->personal ||
        row->idle_timeout_s == 0)
        return 0;
    return row->last_active_ms + row->idle_timeout_s * 1000;
}

static int64_t retention_at_ms(const struct plan_row *row)
{
    if (row->status != SANDBOX_SUSPENDED || row->suspended_retention_s == 0)
        return 0;
    return row->suspended_ms + row->suspended_retention_s * 1000;
}

/* The event that time, and what is wanted, mean. */
static enum sandbox_event timer_event(const struct plan_row *row, const struct plan_times *times,
                                      int64_t now_ms)
{
    bool end = row->desired == SANDBOX_TERMINATED;

    if (end && sandbox_status_in(row->status, SANDBOX_SET_COMING_UP))
        return SANDBOX_EV_TERMINATE;
    if (end && sandbox_status_in(row->status, SANDBOX_SET_RUNNING | SANDBOX_BIT(SANDBOX_SUSPENDED) |
                                                  SANDBOX_BIT(SANDBOX_FAILED)))
        return SANDBOX_EV_GO;
    if (!end && sandbox_status_in(row->status, SANDBOX_SET_LIVE) && passed(row->expires_ms, now_ms))
        return SANDBOX_EV_LIFETIME;
    if (row->status != SANDBOX_TERMINATING &&
        sandbox_status_in(row->status, SANDBOX_SET_TRANSITIONAL) &&
        passed(row->deadline_ms, now_ms))
        return SANDBOX_EV_LATE;
    if (passed(idle_at_ms(row), now_ms))
        return SANDBOX_EV_IDLE;
    if (passed(retention_at_ms(row), now_ms))
        return SANDBOX_EV_RETENTION;
    if (row->status == SANDBOX_FAILED && !row->compute_held)
        return passed(row->failed_ms + times->failed_retention_s * 1000, now_ms)
                   ? SANDBOX_EV_FAILED_RETENTION
                   : SANDBOX_EVENT_NONE;
    if (sandbox_status_in(row->status, SANDBOX_SET_TRANSITIONAL | SANDBOX_BIT(SANDBOX_FAILED)))
        return SANDBOX_EV_GO;
    return SANDBOX_EVENT_NONE;
}

static int64_t deadline_ms(const struct plan_row *row, const struct plan_times *times,
                           enum sandbox_deadline which, int64_t now_ms)
{
    switch (which) {
    case SANDBOX_DEADLINE_ALLOCATING:
        return now_ms + times->allocating_s * 1000;
    case SANDBOX_DEADLINE_STARTING:
        return now_ms + times->starting_s * 1000;
    case SANDBOX_DEADLINE_SUSPENDING:
        return now_ms + times->suspending_s * 1000;
    case SANDBOX_DEADLINE_RESUMING:
        return now_ms + times->resuming_s * 1000;
    case SANDBOX_DEADLINE_KEEP:
        return row->deadline_ms;
    case SANDBOX_DEADLINE_NONE:
    case SANDBOX_DEADLINE_COUNT:
        break;
    }
    return 0;
}

int64_t plan_backoff_ms(const struct plan_times *times, int attempts, uint32_t jitter)
{
    int64_t delay = times->backoff_first_ms;

    for (int i = 1; i < attempts && i < DOUBLINGS_MAX && delay < times->backoff_max_ms; i++)
        delay *= 2;
    if (delay > times->backoff_max_ms)
        delay = times->backoff_max_ms;
    return delay / 2 + (int64_t)(jitter % (uint32_t)(delay / 2 + 1));
}

static int64_t sooner(int64_t a, int64_t b)
{
    if (a == 0 || b == 0)
        return a == 0 ? b : a;
    return a < b ? a : b;
}

int64_t plan_due_ms(const struct plan_row *row, const struct plan_times *times)
{
    int64_t due = 0;

    if (sandbox_status_in(row->status, SANDBOX_SET_LIVE))
        due = row->expires_ms;
    if (sandbox_status_in(row->status, SANDBOX_SET_TRANSITIONAL))
        due = sooner(due, row->deadline_ms);
    due = sooner(due, idle_at_ms(row));
    due = sooner(due, retention_at_ms(row));
    if (row->status == SANDBOX_FAILED && row->failed_ms != 0)
        due = row->failed_ms + times->failed_retention_s * 1000;
    return due;
}

static enum sandbox_status next_status(const struct plan_row *row, const struct sandbox_move *m)
{
    if (m->to != SANDBOX_BACK)
        return (enum sandbox_status)m->to;
    return row->executions > 0 ? SANDBOX_BUSY : SANDBOX_READY;
}

/* Nothing to write: the present action is tried again later. */
static struct plan_step later(const struct plan_row *row, const struct plan_observation *seen,
                              const struct plan_times *times, int64_t now_ms, uint32_t jitter)
{
    int64_t delay = plan_backoff_ms(times, row->attempts, jitter);
    int64_t timer = plan_due_ms(row, times);

    if (delay < seen->retry_after_ms)
        delay = seen->retry_after_ms;
    return (struct plan_step){
        .status = row->status,
        .desired = row->desired,
        .deadline_ms = row->deadline_ms,
        .due_ms = sooner(now_ms + delay, timer > now_ms ? timer : 0),
        .count_attempt = true,
    };
}

struct plan_step plan_next(const struct plan_row *row, const struct plan_observation *seen,
                           const struct plan_times *times, int64_t now_ms, uint32_t jitter)
{
    struct plan_step step = { .status = row->status, .desired = row->desired };
    const struct sandbox_move *move;

    step.event = seen->asked != SANDBOX_EVENT_NONE ? seen->asked : seen_event(row, seen, now_ms);
    if (step.event == SANDBOX_EVENT_NONE ||
        (seen->asked == SANDBOX_EVENT_NONE &&
         !sandbox_move_find(row->status, row->desired, step.event)))
        step.event = timer_event(row, times, now_ms);
    if (seen->seen == PLAN_SEEN_AWAY &&
        (step.event == SANDBOX_EV_GO || step.event == SANDBOX_EVENT_NONE ||
         (step.event == SANDBOX_EV_LATE && row->status == SANDBOX_SUSPENDING)))
        return later(row, seen, times, now_ms, jitter);

    move = step.event == SANDBOX_EVENT_NONE
               ? NULL
               : sandbox_move_find(row->status, row->desired, step.event);
    if (!move) {
        step.event = SANDBOX_EVENT_NONE;
        step.deadline_ms = row->deadline_ms;
        step.due_ms = plan_due_ms(row, times);
        return step;
    }
    step.move = move;
    step.action = move->action;
    step.status = next_status(row, move);
    step.desired = move->desired;
    if (row->desired == SANDBOX_TERMINATED && step.status != SANDBOX_TERMINATED)
        step.desired = SANDBOX_TERMINATED; /* an end that was asked for is never forgotten */
    step.changes = step.status != row->status;
    step.release = step.event == SANDBOX_EV_GONE || step.event == SANDBOX_EV_SAVED;
    step.end_reason = move->end_reason;
    step.deadline_ms = deadline_ms(row, times, move->deadline, now_ms);
    if (step.status == SANDBOX_FAILED && step.changes) {
        step.fault = move->fault != SANDBOX_FAULT_NONE ? move->fault : seen->fault;
        if (step.fault == SANDBOX_FAULT_NONE)
            step.fault = SANDBOX_FAULT_UNKNOWN;
        step.reason = seen->reason && seen->reason[0] ? seen->reason : move->why;
    }
    return step;
}

/* clang-format off */
static const struct {
    enum sbx_code code;
    enum sandbox_fault fault;
} FAULTS[] = {
    { SBX_E_SANDBOX_SUSPENDED,  SANDBOX_FAULT_SANDBOX_SUSPENDED },
    { SBX_E_SANDBOX_NOT_READY,  SANDBOX_FAULT_SANDBOX_NOT_READY },
    { SBX_E_AGENT_UNREACHABLE,  SANDBOX_FAULT_AGENT_UNREACHABLE },
    { SBX_E_UNAVAILABLE,        SANDBOX_FAULT_AGENT_UNREACHABLE },
    { SBX_E_TIMEOUT,            SANDBOX_FAULT_AGENT_UNREACHABLE },
    { SBX_E_BUSY,               SANDBOX_FAULT_AGENT_UNREACHABLE },
    { SBX_E_SANDBOX_NOT_FOUND,  SANDBOX_FAULT_SANDBOX_NOT_FOUND },
    { SBX_E_NAMESPACE_DENIED,   SANDBOX_FAULT_NAMESPACE_DENIED },
    { SBX_E_UNAUTHENTICATED,    SANDBOX_FAULT_UNAUTHENTICATED },
    { SBX_E_TOKEN_EXPIRED,      SANDBOX_FAULT_TOKEN_EXPIRED },
    { SBX_E_INSUFFICIENT_SCOPE, SANDBOX_FAULT_INSUFFICIENT_SCOPE },
    { SBX_E_PATH_ESCAPE,        SANDBOX_FAULT_PATH_ESCAPE },
};
/* clang-format on */

enum sandbox_fault plan_fault_of(enum sbx_code code)
{
    for (size_t i = 0; i < COUNT_OF(FAULTS); i++) {
        if (FAULTS[i].code == code)
            return FAULTS[i].fault;
    }
    return SANDBOX_FAULT_UNKNOWN;
}

bool plan_deploy_retries(enum sbx_code code)
{
    return code == SBX_E_UNAVAILABLE || code == SBX_E_TIMEOUT || code == SBX_E_BUSY ||
           code == SBX_E_RATE_LIMITED || code == SBX_E_CONFLICT;
}
