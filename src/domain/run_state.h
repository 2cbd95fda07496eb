#ifndef DOMAIN_RUN_STATE_H
#define DOMAIN_RUN_STATE_H

/* The life of one personal Warren operation (seed "Personal Warren run admission",
 * contract 6): from the owner's reservation to the receipt that outlives it.  The
 * table is the only place where a phase may change; what a control plane does
 * between two rows of it is `run_plan`.  Pure: no I/O, no clock. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RUN_PHASES(X)                                                                              \
    X(RESERVED, "reserved")       /* the grant is out, nobody has claimed it */                    \
    X(CLAIMED, "claimed")         /* bound to one run id for ever */                               \
    X(PREPARING, "preparing")     /* the sign-in's generation is being made ready */               \
    X(ALLOCATING, "allocating")   /* the reserved holder is being deployed */                      \
    X(READY, "ready")             /* the holder is up, supervised */                               \
    X(TERMINATING, "terminating") /* the holder goes, then the generation is settled */            \
    X(TERMINATED, "terminated")   /* the receipt; nothing of it runs */                            \
    X(QUARANTINED, "quarantined") /* waits for DELETE or the owner's reset */                      \
    X(DROPPED, "dropped")         /* a reservation that the owner took back unclaimed */

enum run_phase {
#define X(name, text) RUN_##name,
    RUN_PHASES(X)
#undef X
        RUN_PHASE_COUNT
};

/* The fixed entrypoint inside the holder.  STARTING is written before the start is tried. */
#define RUN_EXECUTIONS(X)                                                                          \
    X(PENDING, "pending", "pending")                                                               \
    X(STARTING, "starting", "running")                                                             \
    X(RUNNING, "running", "running")                                                               \
    X(EXITED, "exited", "exited")

enum run_execution {
#define X(name, text, shown) RUN_EXEC_##name,
    RUN_EXECUTIONS(X)
#undef X
        RUN_EXEC_COUNT
};

#define RUN_CAUSES(X)                                                                              \
    X(COMPLETED)                                                                                   \
    X(FAILED)                                                                                      \
    X(TIME_LIMIT)                                                                                  \
    X(CANCELLED)                                                                                   \
    X(OWNER_RESET)                                                                                 \
    X(LOST)                                                                                        \
    X(START_UNCERTAIN)

enum run_cause {
    RUN_CAUSE_NONE = 0,
#define X(name) RUN_CAUSE_##name,
    RUN_CAUSES(X)
#undef X
        RUN_CAUSE_COUNT
};

#define RUN_EVENTS(X)                                                                              \
    X(CLAIM, "the principal claims with the grant")                                                \
    X(DROP, "the owner drops the unclaimed reservation")                                           \
    X(ASK_HOLDER, "the principal asks for the holder")                                             \
    X(PREPARED, "the sign-in of the reserved generation opens")                                    \
    X(SIGN_IN_MISSING, "the sign-in of the reserved generation is not there")                      \
    X(HOLDER_READY, "the holder's sandbox is READY")                                               \
    X(HOLDER_LOST, "the holder's sandbox failed or is gone")                                       \
    X(START_UNCERTAIN, "a start was written down and its outcome is not known")                    \
    X(TIME_LIMIT, "the holder's hard lifetime has ended")                                          \
    X(CLEAN_UP, "the principal deletes the holder")                                                \
    X(OWNER_RESET, "the owner resets the connection")                                              \
    X(HOLDER_GONE, "the region confirmed that nothing of the holder is left")

enum run_event {
#define X(name, text) RUN_EVENT_##name,
    RUN_EVENTS(X)
#undef X
        RUN_EVENT_COUNT
};

struct run_move {
    enum run_phase from;
    enum run_event event;
    enum run_phase to;
    const char *crash; /* what happens when the control plane dies right after this move */
};

extern const struct run_move RUN_MOVES[];
extern const size_t RUN_MOVE_COUNT;

const char *run_phase_name(enum run_phase phase);
bool run_phase_parse(const char *text, enum run_phase *out);
const char *run_execution_name(enum run_execution e);  /* as stored */
const char *run_execution_shown(enum run_execution e); /* as answered: pending, running, exited */
bool run_execution_parse(const char *text, enum run_execution *out);
const char *run_cause_name(enum run_cause cause); /* NULL for none */
bool run_cause_parse(const char *text, enum run_cause *out);
const char *run_event_text(enum run_event event);

/* The one move that the event makes from the phase, or NULL: the event is refused there. */
const struct run_move *run_next(enum run_phase from, enum run_event event);
bool run_phase_done(enum run_phase phase); /* TERMINATED or DROPPED: the fence is released */

/* What is written down of an operation, as far as planning needs it. */
struct run_facts {
    enum run_phase phase;
    enum run_execution execution;
    bool exit_known; /* a witnessed exit code stands in the row */
    int exit_code;
    bool staged;      /* the next generation was read back and sealed */
    bool read_failed; /* it could not be read back */
    bool owner_reset; /* the owner asked: wins over everything */
    enum run_cause cause;
};

/* What the holder's sandbox row says. */
enum run_holder {
    RUN_HOLDER_NONE,
    RUN_HOLDER_COMING,
    RUN_HOLDER_UP,
    RUN_HOLDER_FAILED,
    RUN_HOLDER_ENDING,
    RUN_HOLDER_GONE
};

#define RUN_STEPS(X)                                                                               \
    X(WAIT, "nothing to do now")                                                                   \
    X(PREPARE, "open the sealed sign-in of the reserved generation")                               \
    X(ALLOCATE, "insert the reserved sandbox, once")                                               \
    X(MARK_READY, "write that the holder is up")                                                   \
    X(ASK_START, "ask the region whether the start that was written down took place")              \
    X(POLL, "ask the region for the exit of the entrypoint")                                       \
    X(READ_BACK, "read the refreshed sign-in and seal it beside the row")                          \
    X(TERMINATE, "end the holder's sandbox")                                                       \
    X(RELEASE_CLEAN, "install the staged generation, release the fence, write the receipt")        \
    X(RELEASE_DESTRUCTIVE, "destroy the sign-in, release the fence, write the receipt")            \
    X(LOSE, "write that the holder was lost and begin the teardown")

enum run_step {
#define X(name, text) RUN_STEP_##name,
    RUN_STEPS(X)
#undef X
        RUN_STEP_COUNT
};

const char *run_step_text(enum run_step step);
enum run_step run_plan(const struct run_facts *run, enum run_holder holder);

/* The sign-in survives only a witnessed exit 0 whose next generation was staged, without the
 * owner's reset. */
bool run_preserves(const struct run_facts *run);
/* The cause that a teardown writes down: the first one stays, but the owner's reset wins. */
enum run_cause run_teardown_cause(const struct run_facts *run, enum run_event event);

struct buf;
void run_page_print(struct buf *out); /* docs/personal-runs.md */

#endif
