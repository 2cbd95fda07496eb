#ifndef PROGRAMS_SUPERVISE_H
#define PROGRAMS_SUPERVISE_H

/* One supervised part: found again by its command line and user, started, watched by its
 * pidfd, started again with backoff, stopped with a deadline. One thread. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/process.h"
#include "sbx/error.h"

enum {
    SUPERVISE_BACKOFF_MIN_MS = 500,
    SUPERVISE_BACKOFF_MAX_MS = 30 * 1000,
    SUPERVISE_STEADY_MS = 60 * 1000, /* a part that ran so long starts again at once */
};

struct part {
    const char *name;
    const char *const *argv; /* NULL-ended; argv[0] is a path */
    uid_t uid;               /* run as this user, without any capability unless it is 0 */
    gid_t gid;
    int stop_signal;
    int stop_timeout_ms;

    struct process process; /* pid 0: it does not run */
    bool adopted;
    int64_t started_ms; /* time_mono_ms */
    int backoff_ms;
    int64_t retry_at_ms; /* 0: none planned */
};

/* Takes over a process with exactly this command line and user that already runs. */
bool part_adopt(struct part *p);
MUST_USE enum sbx_code part_start(struct part *p, struct sbx_err *err);
bool part_running(const struct part *p);
/* Its pidfd became readable: reaps it, plans the next start, logs. */
void part_ended(struct part *p, int64_t now_ms);
/* Starts it when its time has come; a start that fails plans the next one. */
void part_retry(struct part *p, int64_t now_ms);
/* Signal, wait, SIGKILL. True when it ended by itself in time. A part that does not run is fine. */
bool part_stop(struct part *p);

/* argv run as that user to its end: for the tools of PostgreSQL. */
MUST_USE enum sbx_code part_run_as(uid_t uid, gid_t gid, const char *const *argv, const char *input,
                                   int timeout_ms, struct sbx_err *err);

#endif
