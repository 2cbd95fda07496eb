#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

/* Children: posix_spawn with explicit descriptors, a pidfd, and a deadline.
 * Never a shell.  Any thread. */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/buf.h"
#include "sbx/error.h"

struct process {
    pid_t pid; /* 0: none */
    int pidfd;
};

struct process_spec {
    const char *const *argv; /* NULL-ended; argv[0] is looked up in PATH unless it has a slash */
    const char *const *env;  /* NULL-ended; NULL: the caller's */
    const char *cwd;         /* NULL: the caller's */
    int fd_in;               /* -1: /dev/null */
    int fd_out;              /* -1: /dev/null */
    int fd_err;              /* -1: /dev/null */
    const int *keep; /* further descriptors that keep their number, ended by -1; NULL: none */
    bool new_session;
};

#define PROCESS_SPEC_INIT                                                                          \
    {                                                                                              \
        .fd_in = -1, .fd_out = -1, .fd_err = -1                                                    \
    }

/* From here on this process and its children leave nothing of their memory in a core file: they
 * hold credentials of others.  First in main. */
void process_no_core(void);

MUST_USE enum sbx_code process_start(const struct process_spec *spec, struct process *out,
                                     struct sbx_err *err);
/* Waits until the child has ended or the deadline passed (timeout_ms < 0: no deadline).
 * SBX_E_TIMEOUT leaves it running. *status is waitpid's. The child is reaped and *p emptied. */
MUST_USE enum sbx_code process_wait(struct process *p, int timeout_ms, int *status,
                                    struct sbx_err *err);
void process_kill(struct process *p,
                  int signal); /* by pidfd: never another process of that number */
/* SIGKILL, reap, empty. No process is fine. */
void process_end(struct process *p);

/* Runs to the end; what it wrote on both streams is collected (output may be NULL).
 * At the deadline the child and its session are killed: SBX_E_TIMEOUT. A status other
 * than exit 0 is SBX_E_INTERNAL with the last line of its output. */
MUST_USE enum sbx_code process_run(const char *const *argv, const void *input, size_t input_len,
                                   struct buf *output, int timeout_ms, struct sbx_err *err);

#endif
