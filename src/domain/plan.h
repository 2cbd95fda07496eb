#ifndef DOMAIN_PLAN_H
#define DOMAIN_PLAN_H

/* plan_next(row, what was seen, now): what to do about one sandbox.  No I/O, no clock:
 * every time is milliseconds of the database's clock, which the caller read with
 * the row.  Pure; any thread. */

#include <stdbool.h>
#include <stdint.h>

#include "domain/sandbox_moves.h"
#include "domain/sandbox_state.h"
#include "sbx/error.h"

/* What the planner reads of a sandbox row; zero times mean "not set". */
struct plan_row {
    enum sandbox_status status;
    enum sandbox_status desired; /* NONE: its natural one */
    int64_t generation;
    int64_t deadline_ms; /* of the transitional status */
    int64_t expires_ms;
    int64_t last_active_ms;
    int64_t suspended_ms;
    int64_t failed_ms;
    int64_t idle_timeout_s; /* 0: never */
    int64_t suspended_retention_s;
    enum sandbox_persistence persistence;
    bool personal;     /* holder of a personal run: idle never applies (contract 6) */
    bool compute_held; /* the region has not yet confirmed that nothing is left */
    int executions;    /* rows of running executions */
    int attempts;      /* tries of the present action that did not settle it */
};

/* Seconds; rows of the configuration. */
struct plan_times {
    int64_t allocating_s;
    int64_t starting_s;
    int64_t suspending_s;
    int64_t resuming_s;
    int64_t failed_retention_s;
    int64_t backoff_first_ms; /* first retry of an action */
    int64_t backoff_max_ms;
};

extern const struct plan_times PLAN_TIMES_DEFAULT;

/* What the region has just told about it. */
enum plan_seen {
    PLAN_SEEN_NOTHING = 0, /* not asked */
    PLAN_SEEN_ACCEPTED,    /* a deploy is under way there */
    PLAN_SEEN_RUNNING,
    PLAN_SEEN_STOPPED, /* compute released, volume kept: a pause that went through */
    PLAN_SEEN_FAILED,  /* deploy or runtime failed for good */
    PLAN_SEEN_ABSENT,  /* the region has nothing of that id */
    PLAN_SEEN_GONE,    /* a DELETE was confirmed */
    PLAN_SEEN_SAVED,
    PLAN_SEEN_NOT_SAVED,
    PLAN_SEEN_AWAY, /* no answer, or one that asks for another try */
};

struct plan_observation {
    enum plan_seen seen;
    enum sandbox_fault fault; /* with FAILED */
    const char *reason;       /* with FAILED: a sentence for a person; borrowed */
    int64_t retry_after_ms;   /* with AWAY: at least this long; 0: backoff alone */
    bool executions_known;    /* the region listed them */
    int executions_alive;     /* how many of the row's executions it still runs */
    enum sandbox_event asked; /* TERMINATE, PAUSE, RESUME, EXEC: what a client asks for */
};

struct plan_step {
    const struct sandbox_move *move; /* NULL: nothing to write but due_ms */
    enum sandbox_event event;
    enum sandbox_action action; /* start this once the move is written */
    enum sandbox_status status, desired;
    bool changes;                       /* the status changes: generation + 1 */
    bool release;                       /* compute_held becomes false */
    enum sandbox_end_reason end_reason; /* NONE: keep */
    enum sandbox_fault fault;           /* with FAILED */
    const char *reason;                 /* statusReason; NULL: clear it; borrowed */
    int64_t deadline_ms;                /* of the new status, 0: none */
    int64_t due_ms;                     /* when the row wants to be looked at again; 0: never */
    bool count_attempt;                 /* the action was tried and did not settle */
};

/* jitter: any random number, spreads retries. */
struct plan_step plan_next(const struct plan_row *row, const struct plan_observation *seen,
                           const struct plan_times *times, int64_t now_ms, uint32_t jitter);

/* The next moment at which a timer of the row acts; 0: none. What next_action_at is set to. */
int64_t plan_due_ms(const struct plan_row *row, const struct plan_times *times);

/* Delay before try n (n >= 1) of an action: doubling, bounded, spread over [half, whole]. */
int64_t plan_backoff_ms(const struct plan_times *times, int attempts, uint32_t jitter);

/* The closed mapping of what a region answers to the seed's product codes; what has no
 * entry is UNKNOWN (contract 3). */
enum sandbox_fault plan_fault_of(enum sbx_code code);

/* Is the answer of a deploy final, or worth another try until the deadline? */
bool plan_deploy_retries(enum sbx_code code);

#endif
