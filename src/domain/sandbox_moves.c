#include "domain/sandbox_moves.h"

#include "sbx/attr.h"

/* Short forms for the table only. */
#define ANY  SANDBOX_WANT_ANY
#define LIFE SANDBOX_WANT_LIFE
#define END  SANDBOX_WANT_END

/* clang-format off */
#define MOVE(from_, want_, event_, action_, to_, desired_, deadline_, reason_, fault_, why_)       \
    { .from = SANDBOX_##from_, .want = want_, .event = SANDBOX_EV_##event_,                        \
      .action = SANDBOX_ACT_##action_, .to = SANDBOX_##to_, .desired = SANDBOX_##desired_,         \
      .deadline = SANDBOX_DEADLINE_##deadline_, .end_reason = SANDBOX_END_##reason_,               \
      .fault = SANDBOX_FAULT_##fault_, .why = why_ }

#define SANDBOX_SAME SANDBOX_STATUS_NONE /* no desired status beside the status itself */

const struct sandbox_move SANDBOX_MOVES[] = {
    /*   actual       desired event            action   next         then desired deadline    end reason        error code */
    /* Coming up */
    MOVE(REQUESTED,   LIFE, GO,               DEPLOY,  ALLOCATING,  READY,       ALLOCATING,  NONE,                NONE,              "a region is asked for it"),
    MOVE(REQUESTED,   LIFE, LATE,             DESTROY, FAILED,      SAME,        NONE,        NONE,                SANDBOX_NOT_READY, "No control plane took the sandbox up in time."),
    MOVE(REQUESTED,   ANY,  TERMINATE,        NONE,    FAILED,      TERMINATED,  NONE,        USER_REQUESTED,      SANDBOX_NOT_READY, "Terminated before it was running."),
    MOVE(REQUESTED,   ANY,  LIFETIME,         NONE,    FAILED,      TERMINATED,  NONE,        HARD_LIFETIME,       SANDBOX_NOT_READY, "Its lifetime ended before it was running."),

    MOVE(ALLOCATING,  LIFE, GO,               DEPLOY,  ALLOCATING,  READY,       KEEP,        NONE,                NONE,              "the region is asked again"),
    MOVE(ALLOCATING,  LIFE, ACCEPTED,         NONE,    STARTING,    READY,       STARTING,    NONE,                NONE,              "the region works on it"),
    MOVE(ALLOCATING,  LIFE, UP,               NONE,    READY,       SAME,        NONE,        NONE,                NONE,              "it runs"),
    MOVE(ALLOCATING,  LIFE, REFUSED,          DESTROY, FAILED,      SAME,        NONE,        NONE,                NONE,              "the deploy failed"),
    MOVE(ALLOCATING,  LIFE, LATE,             DESTROY, FAILED,      SAME,        NONE,        NONE,                AGENT_UNREACHABLE, "The region did not allocate the sandbox in time."),
    MOVE(ALLOCATING,  ANY,  TERMINATE,        NONE,    FAILED,      TERMINATED,  NONE,        USER_REQUESTED,      SANDBOX_NOT_READY, "Terminated before it was running."),
    MOVE(ALLOCATING,  ANY,  LIFETIME,         NONE,    FAILED,      TERMINATED,  NONE,        HARD_LIFETIME,       SANDBOX_NOT_READY, "Its lifetime ended before it was running."),

    MOVE(STARTING,    LIFE, GO,               DEPLOY,  STARTING,    READY,       KEEP,        NONE,                NONE,              "the region is asked again"),
    MOVE(STARTING,    LIFE, UP,               NONE,    READY,       SAME,        NONE,        NONE,                NONE,              "it runs"),
    MOVE(STARTING,    LIFE, REFUSED,          DESTROY, FAILED,      SAME,        NONE,        NONE,                NONE,              "the deploy failed"),
    MOVE(STARTING,    LIFE, LATE,             DESTROY, FAILED,      SAME,        NONE,        NONE,                AGENT_UNREACHABLE, "The sandbox did not become ready in time."),
    MOVE(STARTING,    ANY,  TERMINATE,        NONE,    FAILED,      TERMINATED,  NONE,        USER_REQUESTED,      SANDBOX_NOT_READY, "Terminated before it was running."),
    MOVE(STARTING,    ANY,  LIFETIME,         NONE,    FAILED,      TERMINATED,  NONE,        HARD_LIFETIME,       SANDBOX_NOT_READY, "Its lifetime ended before it was running."),

    /* Running */
    MOVE(READY,       LIFE, EXEC,             NONE,    BUSY,        SAME,        NONE,        NONE,                NONE,              "the first execution starts"),
    MOVE(READY,       LIFE, IDLE,             DESTROY, TERMINATING, TERMINATED,  NONE,        IDLE_TIMEOUT,        NONE,              "idle for longer than its timeout"),
    MOVE(READY,       ANY,  LIFETIME,         DESTROY, TERMINATING, TERMINATED,  NONE,        HARD_LIFETIME,       NONE,              "its lifetime has ended"),
    MOVE(READY,       ANY,  TERMINATE,        DESTROY, TERMINATING, TERMINATED,  NONE,        USER_REQUESTED,      NONE,              "asked for by a client"),
    MOVE(READY,       END,  GO,               DESTROY, TERMINATING, TERMINATED,  NONE,        NONE,                NONE,              "its end was asked for during the pause"),
    MOVE(READY,       ANY,  LOST,             DESTROY, FAILED,      SAME,        NONE,        NONE,                SANDBOX_NOT_FOUND, "The sandbox is not there any more in its region."),
    MOVE(READY,       LIFE, PAUSE,            SAVE,    SUSPENDING,  SUSPENDED,   SUSPENDING,  NONE,                NONE,              "asked for by a client"),

    MOVE(BUSY,        LIFE, EXEC,             NONE,    BUSY,        SAME,        KEEP,        NONE,                NONE,              "one more execution starts"),
    MOVE(BUSY,        ANY,  EXEC_END,         NONE,    READY,       SAME,        NONE,        NONE,                NONE,              "the last execution has ended"),
    MOVE(BUSY,        ANY,  LIFETIME,         DESTROY, TERMINATING, TERMINATED,  NONE,        HARD_LIFETIME,       NONE,              "its lifetime has ended"),
    MOVE(BUSY,        ANY,  TERMINATE,        DESTROY, TERMINATING, TERMINATED,  NONE,        USER_REQUESTED,      NONE,              "asked for by a client"),
    MOVE(BUSY,        END,  GO,               DESTROY, TERMINATING, TERMINATED,  NONE,        NONE,                NONE,              "its end was asked for during the pause"),
    MOVE(BUSY,        ANY,  LOST,             DESTROY, FAILED,      SAME,        NONE,        NONE,                SANDBOX_NOT_FOUND, "The sandbox is not there any more in its region."),
    MOVE(BUSY,        LIFE, PAUSE,            SAVE,    SUSPENDING,  SUSPENDED,   SUSPENDING,  NONE,                NONE,              "asked for by a client"),

    /* Pausing and paused */
    MOVE(SUSPENDING,  ANY,  GO,               SAVE,    SUSPENDING,  SUSPENDED,   KEEP,        NONE,                NONE,              "the pause is asked for again"),
    MOVE(SUSPENDING,  LIFE, SAVED,            NONE,    SUSPENDED,   SAME,        NONE,        NONE,                NONE,              "paused"),
    MOVE(SUSPENDING,  END,  SAVED,            NONE,    SUSPENDED,   TERMINATED,  NONE,        NONE,                NONE,              "paused; its end was asked for meanwhile"),
    MOVE(SUSPENDING,  LIFE, NOT_SAVED,        NONE,    BACK,        SAME,        NONE,        NONE,                NONE,              "the pause failed; it runs as before"),
    MOVE(SUSPENDING,  END,  NOT_SAVED,        NONE,    BACK,        TERMINATED,  NONE,        NONE,                NONE,              "the pause failed; its end was asked for meanwhile"),
    MOVE(SUSPENDING,  ANY,  LATE,             ASK,     SUSPENDING,  SUSPENDED,   KEEP,        NONE,                NONE,              "the pause took too long: what does the runtime have?"),
    MOVE(SUSPENDING,  ANY,  LOST,             DESTROY, FAILED,      SAME,        NONE,        NONE,                SANDBOX_NOT_FOUND, "The sandbox vanished while it was paused."),
    MOVE(SUSPENDING,  ANY,  TERMINATE,        NONE,    SUSPENDING,  TERMINATED,  KEEP,        USER_REQUESTED,      NONE,              "ends as soon as the pause has settled"),
    MOVE(SUSPENDING,  LIFE, LIFETIME,         NONE,    SUSPENDING,  TERMINATED,  KEEP,        HARD_LIFETIME,       NONE,              "ends as soon as the pause has settled"),

    MOVE(SUSPENDED,   LIFE, RESUME,           DEPLOY,  RESUMING,    READY,       RESUMING,    NONE,                NONE,              "asked for by a client"),
    MOVE(SUSPENDED,   ANY,  LIFETIME,         DESTROY, TERMINATING, TERMINATED,  NONE,        HARD_LIFETIME,       NONE,              "its lifetime has ended"),
    MOVE(SUSPENDED,   LIFE, RETENTION,        DESTROY, TERMINATING, TERMINATED,  NONE,        SUSPENDED_RETENTION, NONE,              "suspended for longer than its retention"),
    MOVE(SUSPENDED,   ANY,  TERMINATE,        DESTROY, TERMINATING, TERMINATED,  NONE,        USER_REQUESTED,      NONE,              "asked for by a client"),
    MOVE(SUSPENDED,   END,  GO,               DESTROY, TERMINATING, TERMINATED,  NONE,        NONE,                NONE,              "its end was asked for during the pause"),

    MOVE(RESUMING,    LIFE, GO,               DEPLOY,  RESUMING,    READY,       KEEP,        NONE,                NONE,              "the region is asked again"),
    MOVE(RESUMING,    LIFE, UP,               NONE,    READY,       SAME,        NONE,        NONE,                NONE,              "it runs again"),
    MOVE(RESUMING,    LIFE, REFUSED,          DESTROY, FAILED,      SAME,        NONE,        NONE,                NONE,              "the deploy failed"),
    MOVE(RESUMING,    LIFE, LATE,             DESTROY, FAILED,      SAME,        NONE,        NONE,                AGENT_UNREACHABLE, "The sandbox did not become ready in time."),
    MOVE(RESUMING,    ANY,  TERMINATE,        NONE,    FAILED,      TERMINATED,  NONE,        USER_REQUESTED,      SANDBOX_NOT_READY, "Terminated before it was running again."),
    MOVE(RESUMING,    ANY,  LIFETIME,         NONE,    FAILED,      TERMINATED,  NONE,        HARD_LIFETIME,       SANDBOX_NOT_READY, "Its lifetime ended before it was running again."),

    /* Ending */
    MOVE(FAILED,      LIFE, GO,               DESTROY, FAILED,      SAME,        KEEP,        NONE,                NONE,              "its compute is released at once"),
    MOVE(FAILED,      ANY,  GONE,             NONE,    FAILED,      SAME,        KEEP,        NONE,                NONE,              "released; kept for its retention"),
    MOVE(FAILED,      END,  GO,               DESTROY, TERMINATING, TERMINATED,  NONE,        NONE,                NONE,              "its end was asked for"),
    MOVE(FAILED,      LIFE, FAILED_RETENTION, DESTROY, TERMINATING, TERMINATED,  NONE,        FAILED,              NONE,              "failed for longer than it is kept"),
    MOVE(FAILED,      ANY,  TERMINATE,        DESTROY, TERMINATING, TERMINATED,  NONE,        USER_REQUESTED,      NONE,              "asked for by a client"),

    MOVE(TERMINATING, ANY,  GO,               DESTROY, TERMINATING, TERMINATED,  NONE,        NONE,                NONE,              "the region is asked until it confirms"),
    MOVE(TERMINATING, ANY,  GONE,             NONE,    TERMINATED,  SAME,        NONE,        NONE,                NONE,              "the region confirms that nothing is left"),
    MOVE(TERMINATING, ANY,  TERMINATE,        NONE,    TERMINATING, TERMINATED,  NONE,        NONE,                NONE,              "it ends already"),
    MOVE(TERMINATED,  ANY,  TERMINATE,        NONE,    TERMINATED,  SAME,        NONE,        NONE,                NONE,              "it has ended already"),
};
/* clang-format on */
const size_t SANDBOX_MOVE_COUNT = COUNT_OF(SANDBOX_MOVES);

static const char *const EVENT_NAMES[] = { "",
#define X(name, text) #name,
                                           SANDBOX_EVENTS(X)
#undef X
};
static const char *const EVENT_TEXTS[] = { "",
#define X(name, text) text,
                                           SANDBOX_EVENTS(X)
#undef X
};
static const char *const ACTION_NAMES[] = { "",
#define X(name, text) #name,
                                            SANDBOX_ACTIONS(X)
#undef X
};
static const char *const ACTION_TEXTS[] = { "",
#define X(name, text) text,
                                            SANDBOX_ACTIONS(X)
#undef X
};

const char *sandbox_event_name(enum sandbox_event e)
{
    return EVENT_NAMES[e];
}

const char *sandbox_event_text(enum sandbox_event e)
{
    return EVENT_TEXTS[e];
}

const char *sandbox_action_name(enum sandbox_action a)
{
    return ACTION_NAMES[a];
}

const char *sandbox_action_text(enum sandbox_action a)
{
    return ACTION_TEXTS[a];
}

const struct sandbox_move *sandbox_move_find(enum sandbox_status actual,
                                             enum sandbox_status desired, enum sandbox_event event)
{
    enum sandbox_want other = desired == SANDBOX_TERMINATED ? LIFE : END;

    for (size_t i = 0; i < SANDBOX_MOVE_COUNT; i++) {
        const struct sandbox_move *m = &SANDBOX_MOVES[i];

        if (m->from == actual && m->event == event && m->want != other)
            return m;
    }
    return NULL;
}

enum sandbox_status sandbox_natural_desired(enum sandbox_status s)
{
    if (sandbox_status_in(s, SANDBOX_SET_COMING_UP))
        return SANDBOX_READY;
    if (s == SANDBOX_SUSPENDING)
        return SANDBOX_SUSPENDED;
    if (s == SANDBOX_TERMINATING)
        return SANDBOX_TERMINATED;
    return SANDBOX_STATUS_NONE;
}

/* --- docs/states.md ---------------------------------------------------- */

static const char *to_name(const struct sandbox_move *m)
{
    if (m->to == SANDBOX_BACK)
        return "READY or BUSY";
    return sandbox_status_name((enum sandbox_status)m->to);
}

static const char *want_name(enum sandbox_want w)
{
    switch (w) {
    case SANDBOX_WANT_ANY:
        return "any";
    case SANDBOX_WANT_LIFE:
        return "not TERMINATED";
    case SANDBOX_WANT_END:
        return "TERMINATED";
    case SANDBOX_WANT_UNSET:
        break;
    }
    return "?";
}

static void print_diagram(struct buf *out)
{
    (void)buf_puts(out, "```mermaid\nstateDiagram-v2\n    [*] --> REQUESTED\n");
    for (int from = 1; from < SANDBOX_STATUS_COUNT; from++) {
        for (int to = 1; to <= SANDBOX_BACK; to++) {
            const char *sep = "";
            uint32_t shown = 0;

            for (size_t i = 0; i < SANDBOX_MOVE_COUNT; i++) {
                const struct sandbox_move *m = &SANDBOX_MOVES[i];

                if ((int)m->from != from || m->to != to || m->to == (int)m->from ||
                    (shown & SANDBOX_BIT(m->event)))
                    continue;
                if (!shown)
                    (void)buf_printf(out, "    %s --> %s: ", sandbox_status_name(m->from),
                                     m->to == SANDBOX_BACK ? "READY" : to_name(m));
                (void)buf_printf(out, "%s%s", sep, sandbox_event_name(m->event));
                sep = ", ";
                shown |= SANDBOX_BIT(m->event);
            }
            if (shown)
                (void)buf_puts(out, "\n");
        }
    }
    (void)buf_puts(out, "    TERMINATED --> [*]\n```\n");
}

static void print_table(struct buf *out)
{
    (void)buf_puts(out, "| status | desired | event | action | next status | then desired | reason "
                        "or error code | why |\n"
                        "| --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (size_t i = 0; i < SANDBOX_MOVE_COUNT; i++) {
        const struct sandbox_move *m = &SANDBOX_MOVES[i];
        const char *reason = sandbox_end_reason_name(m->end_reason);
        const char *fault = sandbox_fault_name(m->fault);

        (void)buf_printf(
            out, "| %s | %s | %s | %s | %s | %s | %s%s%s | %s |\n", sandbox_status_name(m->from),
            want_name(m->want), sandbox_event_name(m->event), sandbox_action_name(m->action),
            m->to == (int)m->from ? "(stays)" : to_name(m), sandbox_status_name(m->desired), reason,
            reason[0] && fault[0] ? ", " : "", fault, m->why);
    }
}

void sandbox_moves_print(struct buf *out)
{
    (void)buf_puts(out,
                   "# Sandbox states\n\n"
                   "Printed from `src/domain/sandbox_moves.c` by `build/unit_domain_test_states "
                   "--write`; a test compares the two. Do not edit by hand.\n\n"
                   "A move is one guarded update: it happens only while the row still has the "
                   "generation and status it was planned for, and a change of status adds one to "
                   "the generation. The action is done at the region after the move is "
                   "written.\n\n");
    print_diagram(out);
    (void)buf_puts(out, "\n## Events\n\n| event | meaning |\n| --- | --- |\n");
    for (int e = 1; e < SANDBOX_EVENT_COUNT; e++)
        (void)buf_printf(out, "| %s | %s |\n", EVENT_NAMES[e], EVENT_TEXTS[e]);
    (void)buf_puts(out, "\n## Actions\n\n| action | meaning |\n| --- | --- |\n");
    for (int a = 1; a < SANDBOX_ACT_COUNT; a++)
        (void)buf_printf(out, "| %s | %s |\n", ACTION_NAMES[a], ACTION_TEXTS[a]);
    (void)buf_puts(out, "\n## Moves\n\n");
    print_table(out);
}
