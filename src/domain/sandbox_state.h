#ifndef DOMAIN_SANDBOX_STATE_H
#define DOMAIN_SANDBOX_STATE_H

/* The words of a sandbox's life: statuses and sets of them, reasons, persistence
 * modes, profiles and the closed list of product error codes (seed: "Sandbox
 * statuses", "Persistence modes", "Retryable errors"; contract 3).  Pure; any thread.
 *
 * Zero is "absent" in every enum here, so a zeroed row says nothing by accident. */

#include <stdbool.h>
#include <stdint.h>

/* In the order of a life; the wire name is the enum's. */
#define SANDBOX_STATUSES(X)                                                                        \
    X(REQUESTED)                                                                                   \
    X(ALLOCATING)                                                                                  \
    X(STARTING)                                                                                    \
    X(READY)                                                                                       \
    X(BUSY)                                                                                        \
    X(SUSPENDING)                                                                                  \
    X(SUSPENDED)                                                                                   \
    X(RESUMING)                                                                                    \
    X(FAILED)                                                                                      \
    X(TERMINATING)                                                                                 \
    X(TERMINATED)

enum sandbox_status {
    SANDBOX_STATUS_NONE = 0,
#define X(name) SANDBOX_##name,
    SANDBOX_STATUSES(X)
#undef X
        SANDBOX_STATUS_COUNT
};

/* A set of statuses, one bit each. */
#define SANDBOX_BIT(status) (UINT32_C(1) << (status))

enum {
    SANDBOX_SET_ALL = (1 << SANDBOX_STATUS_COUNT) - 2,
    SANDBOX_SET_ENDED = 1 << SANDBOX_TERMINATED,
    /* Can serve a command. */
    SANDBOX_SET_RUNNING = 1 << SANDBOX_READY | 1 << SANDBOX_BUSY,
    /* Not up yet, or not up again: terminate goes by FAILED (contract 3). */
    SANDBOX_SET_COMING_UP = 1 << SANDBOX_REQUESTED | 1 << SANDBOX_ALLOCATING |
                            1 << SANDBOX_STARTING | 1 << SANDBOX_RESUMING,
    /* Carries a deadline: something of ours is under way. */
    SANDBOX_SET_TRANSITIONAL =
        SANDBOX_SET_COMING_UP | 1 << SANDBOX_SUSPENDING | 1 << SANDBOX_TERMINATING,
    /* Not failed and not ending: expiresAt ends these. */
    SANDBOX_SET_LIVE = SANDBOX_SET_COMING_UP | SANDBOX_SET_RUNNING | 1 << SANDBOX_SUSPENDING |
                       1 << SANDBOX_SUSPENDED,
    /* The region may hold compute in these: what reconciliation expects to find or to clear. */
    SANDBOX_SET_COMPUTE = 1 << SANDBOX_ALLOCATING | 1 << SANDBOX_STARTING | SANDBOX_SET_RUNNING |
                          1 << SANDBOX_SUSPENDING | 1 << SANDBOX_RESUMING,
};

static inline bool sandbox_status_in(enum sandbox_status s, uint32_t set)
{
    return (set & SANDBOX_BIT(s)) != 0;
}

const char *sandbox_status_name(enum sandbox_status s); /* "" for NONE */
bool sandbox_status_parse(const char *text, enum sandbox_status *out);

#define SANDBOX_END_REASONS(X)                                                                     \
    X(USER_REQUESTED)                                                                              \
    X(IDLE_TIMEOUT)                                                                                \
    X(HARD_LIFETIME)                                                                               \
    X(SUSPENDED_RETENTION)                                                                         \
    X(FAILED)                                                                                      \
    X(OWNER_RESET)                                                                                 \
    X(RUN_COMPLETED)                                                                               \
    X(RUN_CANCELLED)

enum sandbox_end_reason {
    SANDBOX_END_NONE = 0,
#define X(name) SANDBOX_END_##name,
    SANDBOX_END_REASONS(X)
#undef X
        SANDBOX_END_COUNT
};

const char *sandbox_end_reason_name(enum sandbox_end_reason r); /* "" for NONE */
bool sandbox_end_reason_parse(const char *text, enum sandbox_end_reason *out);

#define SANDBOX_PERSISTENCE_MODES(X)                                                               \
    X(EPHEMERAL)                                                                                   \
    X(DIRECTORY)                                                                                   \
    X(SNAPSHOT)                                                                                    \
    X(BOTH)

enum sandbox_persistence {
    SANDBOX_PERSISTENCE_NONE = 0,
#define X(name) SANDBOX_PERSISTENCE_##name,
    SANDBOX_PERSISTENCE_MODES(X)
#undef X
        SANDBOX_PERSISTENCE_COUNT
};

const char *sandbox_persistence_name(enum sandbox_persistence m); /* "" for NONE */
/* Also takes PERSISTENT_VOLUME, the alias of DIRECTORY (seed). */
bool sandbox_persistence_parse(const char *text, enum sandbox_persistence *out);

static inline bool sandbox_persistence_has_volume(enum sandbox_persistence m)
{
    return m > SANDBOX_PERSISTENCE_EPHEMERAL;
}
static inline bool sandbox_persistence_snapshots(enum sandbox_persistence m)
{
    return m == SANDBOX_PERSISTENCE_SNAPSHOT || m == SANDBOX_PERSISTENCE_BOTH;
}
static inline bool sandbox_persistence_mounts(enum sandbox_persistence m)
{
    return m == SANDBOX_PERSISTENCE_DIRECTORY || m == SANDBOX_PERSISTENCE_BOTH;
}

/* Workload profile and the owner kind it requires (contract 3). */
#define SANDBOX_PROFILES(X)                                                                        \
    X(TESS_CODE_TURN, EXTERNAL_SESSION)                                                            \
    X(QUAVE_INTERACTIVE_AGENT, AGENT_CONVERSATION)                                                 \
    X(QUAVE_AUTOMATION_RUN, AGENT_RUN)

enum sandbox_profile {
    SANDBOX_PROFILE_NONE = 0,
#define X(name, owner) SANDBOX_PROFILE_##name,
    SANDBOX_PROFILES(X)
#undef X
        SANDBOX_PROFILE_COUNT
};

const char *sandbox_profile_name(enum sandbox_profile p); /* "" for NONE */
bool sandbox_profile_parse(const char *text, enum sandbox_profile *out);
/* The owner kind's wire name that the profile requires. */
const char *sandbox_profile_owner_kind(enum sandbox_profile p);
/* One of the three owner kinds, whatever the profile. */
bool sandbox_owner_kind_valid(const char *text);

/* The product error codes of a FAILED sandbox: a closed list (seed). */
#define SANDBOX_FAULTS(X)                                                                          \
    X(SANDBOX_SUSPENDED, true)                                                                     \
    X(SANDBOX_NOT_READY, true)                                                                     \
    X(AGENT_UNREACHABLE, true)                                                                     \
    X(SANDBOX_NOT_FOUND, false)                                                                    \
    X(NAMESPACE_DENIED, false)                                                                     \
    X(UNAUTHENTICATED, false)                                                                      \
    X(TOKEN_EXPIRED, false)                                                                        \
    X(INSUFFICIENT_SCOPE, false)                                                                   \
    X(PATH_ESCAPE, false)                                                                          \
    X(UNKNOWN, false)

enum sandbox_fault {
    SANDBOX_FAULT_NONE = 0,
#define X(name, retryable) SANDBOX_FAULT_##name,
    SANDBOX_FAULTS(X)
#undef X
        SANDBOX_FAULT_COUNT
};

const char *sandbox_fault_name(enum sandbox_fault f); /* "" for NONE */
bool sandbox_fault_parse(const char *text, enum sandbox_fault *out);
bool sandbox_fault_retryable(enum sandbox_fault f);

#endif
