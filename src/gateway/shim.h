#ifndef GATEWAY_SHIM_H
#define GATEWAY_SHIM_H

/* The shim of one sandbox: this program in another role.  It is the subreaper of the
 * runtime's processes, outlives the gateway, and ends with the last of them, so that its
 * own end (a pidfd) is the sandbox's end.
 *
 *	sandbox-region shim FOLDER FLAGS CGROUPS FD -- runsc ...
 *
 * FOLDER/shim   "<pid> <start time>": who it is, to be found again (written first)
 * FOLDER/exit   "<pid> <wait status> <unix ms>", one line for each process it reaped
 * FLAGS         "-", or letters: m = start behind an empty /proc/sys/net (runsc_probe.h)
 * CGROUPS       "-", or files of control groups, comma-separated: the runtime writes itself into
 *               them
 *
 * On descriptor FD it tells how the start went: "ok\n", or a sentence and the end.
 * SIGTERM: it kills every child, reaps them and ends. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/process.h"
#include "sbx/error.h"

enum { SHIM_FOLDER_MAX = 200 };

/* The role's main; argv[0] is "shim". */
int shim_main(int argc, char **argv);

struct shim_spec {
    const char *folder;         /* absolute, at most SHIM_FOLDER_MAX bytes */
    bool mask_net;              /* flag m */
    const char *cgroups;        /* "-" or the list */
    const char *const *runtime; /* NULL-ended */
    int timeout_ms;             /* for the runtime to say that it runs */
};

/* Starts a shim and waits until its sandbox runs.  On failure nothing of the shim is left, what the
 * runtime left is the caller's to delete.  SBX_E_TIMEOUT, SBX_E_UNAVAILABLE. */
MUST_USE enum sbx_code shim_start(const struct shim_spec *spec, struct process *out,
                                  struct sbx_err *err);
/* Finds a shim again by its folder: pid and start time must match.  *pidfd is the caller's.
 * SBX_E_NOT_FOUND: it is gone. */
MUST_USE enum sbx_code shim_find(const char *folder, pid_t *pid, int *pidfd, struct sbx_err *err);
/* The start time of a process in clock ticks since boot; false when there is none. */
bool shim_start_time(pid_t pid, uint64_t *out);

#endif
