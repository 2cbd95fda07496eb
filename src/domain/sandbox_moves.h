#ifndef DOMAIN_SANDBOX_MOVES_H
#define DOMAIN_SANDBOX_MOVES_H

/* The move table: the only description of the lifecycle (seed "Sandbox statuses",
 * contract 3).  docs/states.md is printed from it.  Pure; any thread.
 *
 * A move is chosen by (actual status, desired status, event).  What it writes is one
 * guarded UPDATE ... WHERE generation = $ AND status = ANY($), which adds one to the
 * generation when the status changes. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "domain/sandbox_state.h"

#define SANDBOX_EVENTS(X)                                                                          \
    X(GO, "its turn: nothing has to happen first")                                                 \
    X(ACCEPTED, "the region works on the deploy")                                                  \
    X(UP, "the region says it runs")                                                               \
    X(REFUSED, "the deploy failed for good")                                                       \
    X(LATE, "the deadline of the status has passed")                                               \
    X(LOST, "the region has nothing of it")                                                        \
    X(GONE, "the region confirms that nothing is left")                                            \
    X(SAVED, "archived as the mode wants, compute released")                                       \
    X(NOT_SAVED, "the pause failed; it runs as before")                                            \
    X(EXEC, "an execution starts")                                                                 \
    X(EXEC_END, "the last execution has ended")                                                    \
    X(TERMINATE, "a client asks for its end")                                                      \
    X(PAUSE, "a client asks for a pause")                                                          \
    X(RESUME, "a client asks for a resume")                                                        \
    X(IDLE, "idle for longer than its timeout")                                                    \
    X(LIFETIME, "expiresAt has passed")                                                            \
    X(RETENTION, "suspended for longer than its retention")                                        \
    X(FAILED_RETENTION, "failed for longer than the operator keeps it")

enum sandbox_event {
    SANDBOX_EVENT_NONE = 0,
#define X(name, text) SANDBOX_EV_##name,
    SANDBOX_EVENTS(X)
#undef X
        SANDBOX_EVENT_COUNT
};

const char *sandbox_event_name(enum sandbox_event e);
const char *sandbox_event_text(enum sandbox_event e);

/* What has to be done at the region after the move is written (before it, for none of them). */
#define SANDBOX_ACTIONS(X)                                                                         \
    X(DEPLOY, "PUT the sandbox: deploy or adopt, restore when it resumes")                         \
    X(DESTROY, "DELETE the sandbox; repeated until the region confirms")                           \
    X(SAVE, "snapshot or stop, as the persistence mode says")                                      \
    X(ASK, "GET the sandbox: what does the runtime have?")

enum sandbox_action {
    SANDBOX_ACT_NONE = 0,
#define X(name, text) SANDBOX_ACT_##name,
    SANDBOX_ACTIONS(X)
#undef X
        SANDBOX_ACT_COUNT
};

const char *sandbox_action_name(enum sandbox_action a);
const char *sandbox_action_text(enum sandbox_action a);

/* Which desired status a row of the table is for. */
enum sandbox_want {
    SANDBOX_WANT_UNSET = 0, /* not a value: a row that forgets it is refused by the test */
    SANDBOX_WANT_ANY,
    SANDBOX_WANT_LIFE, /* desired is not TERMINATED */
    SANDBOX_WANT_END,  /* desired is TERMINATED */
};

/* Status after the move: a status, or back to what it was before the pause. */
enum { SANDBOX_BACK = SANDBOX_STATUS_COUNT };

/* How long the new status may last; plan_times gives the seconds. */
enum sandbox_deadline {
    SANDBOX_DEADLINE_NONE = 0,
    SANDBOX_DEADLINE_ALLOCATING,
    SANDBOX_DEADLINE_STARTING,
    SANDBOX_DEADLINE_SUSPENDING,
    SANDBOX_DEADLINE_RESUMING,
    SANDBOX_DEADLINE_KEEP, /* the status does not change and neither does its deadline */
    SANDBOX_DEADLINE_COUNT
};

struct sandbox_move {
    enum sandbox_status from;
    enum sandbox_want want;
    enum sandbox_event event;
    enum sandbox_action action;
    int to;                      /* enum sandbox_status or SANDBOX_BACK; equal to from: stays */
    enum sandbox_status desired; /* after the move; NONE: nothing it is driven toward */
    enum sandbox_deadline deadline;
    enum sandbox_end_reason end_reason; /* set by the move; NONE: kept */
    enum sandbox_fault fault; /* errorCode of a move to FAILED; NONE: the region's answer maps */
    const char *why;          /* statusReason when it fails, the event's text else */
};

extern const struct sandbox_move SANDBOX_MOVES[];
extern const size_t SANDBOX_MOVE_COUNT;

/* The one move that applies, or NULL: the event means nothing in that status. */
const struct sandbox_move *sandbox_move_find(enum sandbox_status actual,
                                             enum sandbox_status desired, enum sandbox_event event);
/* The status that a stable or transitional status is driven toward when nobody asked for its
 * end: READY while coming up, SUSPENDED while suspending, TERMINATED while terminating, else NONE.
 */
enum sandbox_status sandbox_natural_desired(enum sandbox_status s);

/* docs/states.md, whole. */
void sandbox_moves_print(struct buf *out);

#endif
