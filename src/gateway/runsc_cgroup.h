#ifndef GATEWAY_RUNSC_CGROUP_H
#define GATEWAY_RUNSC_CGROUP_H

/* Control groups of the runsc driver, v1 and v2.  Each sandbox has one of its own,
 * <mount>[/<controller>]/<parent>/<tag>/<id>, that the runtime's processes are started
 * in; runsc itself is told to leave control groups alone, which saves a third of a cold
 * start (measured: 120 ms against 205).  The cpu quota is set once the sandbox runs:
 * under it the runtime's own start would be throttled. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/id.h"
#include "sbx/error.h"

struct runsc_cgroups;

struct runsc_limits {
    int64_t memory_bytes; /* 0: none */
    int64_t cpu_millis;   /* 0: none */
    int64_t pids;         /* 0: none */
};

/* mount: "/sys/fs/cgroup". parent "": no control groups at all.
 * SBX_E_UNAVAILABLE: a controller is missing or may not be written; the message says which. */
MUST_USE enum sbx_code runsc_cgroups_open(const char *mount, const char *parent, const char *tag,
                                          struct runsc_cgroups **out, struct sbx_err *err);
void runsc_cgroups_close(struct runsc_cgroups *g);             /* NULL is allowed */
const char *runsc_cgroups_kind(const struct runsc_cgroups *g); /* "v1", "v2", "none" */

/* Makes it, with memory and pids limits; *procs gets what the shim needs (in the arena). */
MUST_USE enum sbx_code runsc_cgroup_make(struct runsc_cgroups *g, const char *id,
                                         const struct runsc_limits *limits, struct arena *a,
                                         const char **procs, struct sbx_err *err);
/* The quota of a running one.  What it leaves unused, up to one period's worth, may be used later
 * where the kernel can (5.14): a short command after a pause is not stopped in its middle, and over
 * time nobody gets more. */
MUST_USE enum sbx_code runsc_cgroup_set_cpu(struct runsc_cgroups *g, const char *id,
                                            int64_t cpu_millis, struct sbx_err *err);
/* Kills all in it, again until none is left or the deadline has passed; the processes' parent reaps
 * them. */
MUST_USE enum sbx_code runsc_cgroup_kill(struct runsc_cgroups *g, const char *id, int timeout_ms,
                                         struct sbx_err *err);
MUST_USE enum sbx_code runsc_cgroup_remove(struct runsc_cgroups *g, const char *id, int timeout_ms,
                                           struct sbx_err *err);
/* Has the kernel killed in it for memory? */
bool runsc_cgroup_oom(struct runsc_cgroups *g, const char *id);
/* Calls fn for the name of every group that is there. */
void runsc_cgroups_each(struct runsc_cgroups *g, void (*fn)(void *arg, const char *id), void *arg);

#endif
