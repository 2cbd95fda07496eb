#ifndef AGENT_WARDEN_WIRE_H
#define AGENT_WARDEN_WIRE_H

/* Between the two halves of the warden (warden.c in the agent, warden_child.c in the child). */

#include "agent/warden.h"

/* Goes with three fds.  `bytes` of payload follow: groups (u32 each), then strings with their
 * NUL: cwd, below (when `has_below`), arguments, environment. */
struct agent_wire_request {
    uint32_t kind; /* enum agent_wire_kind */
    uint32_t serial;
    uint32_t uid, gid;
    uint64_t nproc;
    uint32_t group_count, arg_count, env_count;
    uint32_t has_below;
    uint32_t tell_start;
    uint32_t bytes;
};

enum agent_wire_kind { AGENT_WIRE_SPAWN = 1, AGENT_WIRE_KILL = 2 };

enum { AGENT_WIRE_MAX = 2 * SBX_AGENT_FRAME_MAX };

/* fds: three, or NULL.  False: nobody reads. */
bool agent_wire_send(int wire, const struct agent_wire_request *r, const int fds[3],
                     const unsigned char *payload) MUST_USE;

/* The child's life; never returns. */
_Noreturn void agent_warden_run(int wire, int events);

/* What the init of a namespace is to start.  It reads this while the warden goes on: the warden
 * keeps all of it unchanged until the init is reaped. */
struct agent_launch {
    uint32_t serial;
    uint32_t uid, gid;
    const uint32_t *groups;
    size_t group_count;
    const char *cwd;
    const char *below;
    char **argv;
    char **envp;
    int fds[3];
    int events;
    bool tell_start;     /* STARTED at once */
    bool own_proc;       /* the runtime has mount namespaces: the init gets a /proc of its own */
    uint64_t caps;       /* what the init has, and its command at most */
    void *command_stack; /* its end */
    bool begun;          /* set by the init: its command has left this memory */
};

/* The life of an init, started by clone(CLONE_VM | CLONE_NEWPID) with a stack of its own: starts
 * the command, reaps, reports, ends.  launch: a struct agent_launch.  Never returns. */
int agent_launch_run(void *launch);

/* Capabilities that the workload may have at most: what OCI runtimes give by default, without
 * those that make devices or raw packets. */
#define AGENT_CAP(n) (UINT64_C(1) << (n))
bool agent_caps_set(uint64_t permitted, uint64_t inheritable);
uint64_t agent_caps_workload(void);
uint64_t agent_caps_permitted(void);

#endif
