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
    uint32_t bytes;
};

enum agent_wire_kind { AGENT_WIRE_SPAWN = 1, AGENT_WIRE_KILL = 2 };

enum { AGENT_WIRE_MAX = 2 * SBX_AGENT_FRAME_MAX };

/* fds: three, or NULL.  False: nobody reads. */
bool agent_wire_send(int wire, const struct agent_wire_request *r, const int fds[3],
                     const unsigned char *payload) MUST_USE;

/* The child's life; never returns. */
_Noreturn void agent_warden_run(int wire, int events);

/* The init of a namespace: starts the command, reaps, reports, ends. */
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
};
/* What needs no command yet.  own_proc: the runtime has mount namespaces, so the init gets a /proc
 * of its own. */
void agent_launch_prepare(bool own_proc);
/* After it; never returns. */
_Noreturn void agent_launch_run(const struct agent_launch *l);

/* Capabilities that the workload may have at most: what OCI runtimes give by default, without
 * those that make devices or raw packets. */
#define AGENT_CAP(n) (UINT64_C(1) << (n))
bool agent_caps_set(uint64_t permitted, uint64_t inheritable);
uint64_t agent_caps_workload(void);
uint64_t agent_caps_permitted(void);

#endif
