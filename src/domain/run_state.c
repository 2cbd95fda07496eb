#include "domain/run_state.h"

#include <string.h>

#include "sbx/attr.h"

/* clang-format off */
const struct run_move RUN_MOVES[] = {
    /* from             event                      to                crash */
    { RUN_RESERVED,    RUN_EVENT_CLAIM,           RUN_CLAIMED,     "the same claim again gives the receipt; the binding is one statement" },
    { RUN_RESERVED,    RUN_EVENT_DROP,            RUN_DROPPED,     "the fence went in the same transaction; a reset again finds nothing to drop" },
    { RUN_CLAIMED,     RUN_EVENT_ASK_HOLDER,      RUN_PREPARING,   "the reconciler takes the due row and prepares; preparing only reads" },
    { RUN_PREPARING,   RUN_EVENT_PREPARED,        RUN_ALLOCATING,  "the reserved sandbox id makes the insert repeatable: there is one holder or none" },
    { RUN_PREPARING,   RUN_EVENT_SIGN_IN_MISSING, RUN_QUARANTINED, "stays quarantined: a missing sign-in is never made anew" },
    { RUN_ALLOCATING,  RUN_EVENT_HOLDER_READY,    RUN_READY,       "nothing was started; the next pass sees the same holder" },
    { RUN_READY,       RUN_EVENT_START_UNCERTAIN, RUN_QUARANTINED, "stays quarantined: a start is never tried twice" },

    { RUN_CLAIMED,     RUN_EVENT_CLEAN_UP,        RUN_TERMINATING, "no holder exists: the next pass releases, destructively" },
    { RUN_PREPARING,   RUN_EVENT_CLEAN_UP,        RUN_TERMINATING, "the next pass ends the holder if the insert won" },
    { RUN_ALLOCATING,  RUN_EVENT_CLEAN_UP,        RUN_TERMINATING, "the next pass ends the holder" },
    { RUN_READY,       RUN_EVENT_CLEAN_UP,        RUN_TERMINATING, "a witnessed exit 0 is read back first; then the holder is ended" },
    { RUN_QUARANTINED, RUN_EVENT_CLEAN_UP,        RUN_TERMINATING, "the next pass ends the holder, destructively" },

    { RUN_CLAIMED,     RUN_EVENT_OWNER_RESET,     RUN_TERMINATING, "no holder exists: the next pass releases, destructively" },
    { RUN_PREPARING,   RUN_EVENT_OWNER_RESET,     RUN_TERMINATING, "the next pass ends the holder if the insert won" },
    { RUN_ALLOCATING,  RUN_EVENT_OWNER_RESET,     RUN_TERMINATING, "the next pass ends the holder" },
    { RUN_READY,       RUN_EVENT_OWNER_RESET,     RUN_TERMINATING, "the next pass ends the holder; nothing is read back" },
    { RUN_QUARANTINED, RUN_EVENT_OWNER_RESET,     RUN_TERMINATING, "the next pass ends the holder" },
    { RUN_TERMINATING, RUN_EVENT_OWNER_RESET,     RUN_TERMINATING, "the mark stands in the row: the release is destructive" },

    { RUN_ALLOCATING,  RUN_EVENT_HOLDER_LOST,     RUN_TERMINATING, "the next pass finds it gone and releases, destructively" },
    { RUN_READY,       RUN_EVENT_HOLDER_LOST,     RUN_TERMINATING, "the next pass finds it gone and releases, destructively" },
    { RUN_QUARANTINED, RUN_EVENT_HOLDER_LOST,     RUN_QUARANTINED, "stays quarantined until DELETE or the owner's reset" },
    { RUN_ALLOCATING,  RUN_EVENT_TIME_LIMIT,      RUN_TERMINATING, "the next pass ends the holder, destructively" },
    { RUN_READY,       RUN_EVENT_TIME_LIMIT,      RUN_TERMINATING, "the next pass ends the holder" },
    { RUN_QUARANTINED, RUN_EVENT_TIME_LIMIT,      RUN_TERMINATING, "the next pass ends the holder, destructively" },

    { RUN_TERMINATING, RUN_EVENT_HOLDER_GONE,     RUN_TERMINATED,  "generation, fence and receipt went in one transaction; DELETE again gives the receipt" },
};
/* clang-format on */
const size_t RUN_MOVE_COUNT = COUNT_OF(RUN_MOVES);

static const char *const PHASES[RUN_PHASE_COUNT] = {
#define X(name, text) [RUN_##name] = text,
    RUN_PHASES(X)
#undef X
};

static const char *const EXECUTIONS[RUN_EXEC_COUNT] = {
#define X(name, text, shown) [RUN_EXEC_##name] = text,
    RUN_EXECUTIONS(X)
#undef X
};

static const char *const SHOWN[RUN_EXEC_COUNT] = {
#define X(name, text, shown) [RUN_EXEC_##name] = shown,
    RUN_EXECUTIONS(X)
#undef X
};

static const char *const CAUSES[RUN_CAUSE_COUNT] = {
#define X(name) [RUN_CAUSE_##name] = #name,
    RUN_CAUSES(X)
#undef X
};

static const char *const EVENTS[RUN_EVENT_COUNT] = {
#define X(name, text) [RUN_EVENT_##name] = text,
    RUN_EVENTS(X)
#undef X
};

static const char *const STEPS[RUN_STEP_COUNT] = {
#define X(name, text) [RUN_STEP_##name] = text,
    RUN_STEPS(X)
#undef X
};

static bool parse(const char *const *names, size_t count, const char *text, int *out)
{
    for (size_t i = 0; i < count; i++) {
        if (names[i] != NULL && strcmp(names[i], text) == 0) {
            *out = (int)i;
            return true;
        }
    }
    return false;
}

const char *run_phase_name(enum run_phase phase)
{
    return PHASES[phase];
}

bool run_phase_parse(const char *text, enum run_phase *out)
{
    int i;

    if (!parse(PHASES, COUNT_OF(PHASES), text, &i))
        return false;
    *out = (enum run_phase)i;
    return true;
}

const char *run_execution_name(enum run_execution e)
{
    return EXECUTIONS[e];
}

const char *run_execution_shown(enum run_execution e)
{
    return SHOWN[e];
}

bool run_execution_parse(const char *text, enum run_execution *out)
{
    int i;

    if (!parse(EXECUTIONS, COUNT_OF(EXECUTIONS), text, &i))
        return false;
    *out = (enum run_execution)i;
    return true;
}

const char *run_cause_name(enum run_cause cause)
{
    return CAUSES[cause];
}

bool run_cause_parse(const char *text, enum run_cause *out)
{
    int i;

    if (!parse(CAUSES, COUNT_OF(CAUSES), text, &i))
        return false;
    *out = (enum run_cause)i;
    return true;
}

const char *run_event_text(enum run_event event)
{
    return EVENTS[event];
}

const char *run_step_text(enum run_step step)
{
    return STEPS[step];
}

const struct run_move *run_next(enum run_phase from, enum run_event event)
{
    for (size_t i = 0; i < RUN_MOVE_COUNT; i++) {
        if (RUN_MOVES[i].from == from && RUN_MOVES[i].event == event)
            return &RUN_MOVES[i];
    }
    return NULL;
}

bool run_phase_done(enum run_phase phase)
{
    return phase == RUN_TERMINATED || phase == RUN_DROPPED;
}

static bool exited_well(const struct run_facts *run)
{
    return run->execution == RUN_EXEC_EXITED && run->exit_known && run->exit_code == 0;
}

bool run_preserves(const struct run_facts *run)
{
    return exited_well(run) && run->staged && !run->owner_reset;
}

enum run_cause run_teardown_cause(const struct run_facts *run, enum run_event event)
{
    if (run->owner_reset || event == RUN_EVENT_OWNER_RESET)
        return RUN_CAUSE_OWNER_RESET;
    if (run->cause != RUN_CAUSE_NONE)
        return run->cause;
    if (event == RUN_EVENT_CLEAN_UP)
        return RUN_CAUSE_CANCELLED;
    if (event == RUN_EVENT_TIME_LIMIT)
        return RUN_CAUSE_TIME_LIMIT;
    if (event == RUN_EVENT_START_UNCERTAIN)
        return RUN_CAUSE_START_UNCERTAIN;
    return RUN_CAUSE_LOST;
}

static bool holder_lost(enum run_holder holder)
{
    return holder == RUN_HOLDER_FAILED || holder == RUN_HOLDER_ENDING || holder == RUN_HOLDER_GONE;
}

static bool wants_read_back(const struct run_facts *run, enum run_holder holder)
{
    return exited_well(run) && !run->staged && !run->read_failed && !run->owner_reset &&
           holder == RUN_HOLDER_UP;
}

static enum run_step plan_ready(const struct run_facts *run, enum run_holder holder)
{
    if (holder_lost(holder))
        return RUN_STEP_LOSE;
    switch (run->execution) {
    case RUN_EXEC_STARTING:
        return RUN_STEP_ASK_START;
    case RUN_EXEC_RUNNING:
        return RUN_STEP_POLL;
    case RUN_EXEC_EXITED:
        return wants_read_back(run, holder) ? RUN_STEP_READ_BACK : RUN_STEP_WAIT;
    case RUN_EXEC_PENDING:
    case RUN_EXEC_COUNT:
        break;
    }
    return RUN_STEP_WAIT;
}

static enum run_step plan_teardown(const struct run_facts *run, enum run_holder holder)
{
    switch (holder) {
    case RUN_HOLDER_NONE:
    case RUN_HOLDER_GONE:
        return run_preserves(run) ? RUN_STEP_RELEASE_CLEAN : RUN_STEP_RELEASE_DESTRUCTIVE;
    case RUN_HOLDER_UP:
        return wants_read_back(run, holder) ? RUN_STEP_READ_BACK : RUN_STEP_TERMINATE;
    case RUN_HOLDER_COMING:
    case RUN_HOLDER_FAILED:
        return RUN_STEP_TERMINATE;
    case RUN_HOLDER_ENDING:
        break;
    }
    return RUN_STEP_WAIT;
}

enum run_step run_plan(const struct run_facts *run, enum run_holder holder)
{
    switch (run->phase) {
    case RUN_PREPARING:
        return RUN_STEP_PREPARE;
    case RUN_ALLOCATING:
        if (holder == RUN_HOLDER_NONE)
            return RUN_STEP_ALLOCATE;
        if (holder == RUN_HOLDER_UP)
            return RUN_STEP_MARK_READY;
        return holder_lost(holder) ? RUN_STEP_LOSE : RUN_STEP_WAIT;
    case RUN_READY:
        return plan_ready(run, holder);
    case RUN_TERMINATING:
        return plan_teardown(run, holder);
    case RUN_RESERVED:
    case RUN_CLAIMED:
    case RUN_TERMINATED:
    case RUN_QUARANTINED:
    case RUN_DROPPED:
    case RUN_PHASE_COUNT:
        break;
    }
    return RUN_STEP_WAIT;
}
