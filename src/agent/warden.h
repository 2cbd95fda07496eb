#ifndef AGENT_WARDEN_H
#define AGENT_WARDEN_H

/* The warden starts every process of the workload.
 *
 *	agent (pid 1)              gateway channel, key, deadlines; nothing of the image sees it
 *	 `- warden                 pid 1 of a PID namespace of its own; /proc shows that one
 *	     |- init of an execution, pid 1 of a nested namespace; reaps; reports the exit
 *	     |   `- the command
 *	     `- init of the template's command ...
 *
 * The agent forks it before it has a key, so neither warden nor inits ever hold one.  Inits run
 * in the warden's memory; it is not dumpable, so nothing of the workload may look into it.  No
 * process of the workload has a number for the agent or the warden, so it cannot signal or
 * trace them, root included; what /proc lets root open of the warden are sockets, which do not
 * open.  Ending an init ends its namespace: all that the command forked, detached or not. */

#include "agent/frame.h"
#include <sbx/attr.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* What to start.  All borrowed for the call. */
struct agent_spawn {
    uint32_t serial; /* names it in events; never reused while it lives */
    uint32_t uid, gid;
    const uint32_t *groups;
    size_t group_count;
    uint64_t nproc; /* RLIMIT_NPROC, 0: as the sandbox has it */
    const char *cwd;
    const char *below; /* not NULL: cwd is relative to it and may not leave it */
    const struct agent_span *args;
    size_t arg_count;
    const struct agent_span *env;
    size_t env_count;
    int fds[3];      /* standard input, output, error */
    bool tell_start; /* STARTED at once, also before a command that ends within milliseconds */
};

/* Executions at once, and some whose EXIT was told while their init is still on its way out. */
enum { AGENT_EXEC_SLOTS = SBX_AGENT_EXECS_MAX + 32 };

enum agent_event_kind {
    AGENT_EVENT_STARTED = 1,
    AGENT_EVENT_REFUSED = 2, /* value: enum sbx_agent_reason; detail: errno; GONE follows */
    AGENT_EVENT_ENDED = 3,   /* the direct child; value: exit code, detail: signal */
    AGENT_EVENT_GONE = 4,    /* the whole tree; without an ENDED before: it was killed */
    AGENT_EVENT_LAST = 5,    /* as ENDED, of a tree that has nothing left but its init */
};

struct agent_event {
    uint32_t kind;
    uint32_t serial;
    uint32_t value;
    uint32_t detail;
};

struct agent_warden {
    pid_t pid;
    int wire;   /* requests to it */
    int events; /* from it and its inits, SOCK_SEQPACKET, not blocking: for poll and next */
};

/* Forks it.  Called while the agent has nothing to hide.  False with errno. */
bool agent_warden_start(struct agent_warden *w) MUST_USE;
/* False: the warden is gone, and the sandbox with it.  STARTED, REFUSED or its end follows. */
bool agent_warden_spawn(struct agent_warden *w, const struct agent_spawn *s) MUST_USE;
/* One that is not there is no error. */
bool agent_warden_kill(struct agent_warden *w, uint32_t serial);
/* False: nothing waits. */
bool agent_warden_next(struct agent_warden *w, struct agent_event *out) MUST_USE;

#endif
