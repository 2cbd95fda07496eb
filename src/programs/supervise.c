#include "programs/supervise.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/scoped.h"
#include "base/str.h"
#include "base/time.h"

enum { PREFIX_MAX = 12, ARGS_MAX = 48, CMDLINE_MAX = 16384 };

/* Words of setpriv (util-linux), which changes the user and then becomes argv: same pid. */
struct prefix {
    char uid[16], gid[16];
    const char *argv[PREFIX_MAX + ARGS_MAX + 1];
};

static void prefix_fill(struct prefix *p, uid_t uid, gid_t gid, const char *const *argv)
{
    size_t n = 0;

    if (uid != 0) {
        (void)snprintf(p->uid, sizeof(p->uid), "%u", uid);
        (void)snprintf(p->gid, sizeof(p->gid), "%u", gid);
        p->argv[n++] = "setpriv";
        p->argv[n++] = "--reuid", p->argv[n++] = p->uid;
        p->argv[n++] = "--regid", p->argv[n++] = p->gid;
        p->argv[n++] = "--clear-groups", p->argv[n++] = "--no-new-privs";
        p->argv[n++] = "--inh-caps=-all", p->argv[n++] = "--bounding-set=-all";
        p->argv[n++] = "--";
    }
    for (size_t i = 0; argv[i] != NULL && i < ARGS_MAX; i++)
        p->argv[n++] = argv[i];
    p->argv[n] = NULL;
}

/* --- finding ------------------------------------------------------------------- */

static bool same_command(pid_t pid, const char *const *argv)
{
    SCOPED_BUF struct buf line = BUF_INIT(CMDLINE_MAX);
    struct sbx_err err = { .code = SBX_OK };
    char path[48];
    size_t at = 0;

    (void)snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
    if (file_read(path, &line, &err) != SBX_OK)
        return false;
    for (; *argv != NULL; argv++) {
        size_t len = strlen(*argv) + 1;

        if (line.len - at < len || memcmp(line.data + at, *argv, len) != 0)
            return false;
        at += len;
    }
    return at == line.len;
}

static bool same_user(pid_t pid, uid_t uid)
{
    char path[32];
    struct stat st;

    (void)snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    return stat(path, &st) == 0 && st.st_uid == uid;
}

bool part_adopt(struct part *p)
{
    DIR *dir = opendir("/proc");
    struct dirent *entry;

    while (dir != NULL && p->process.pid == 0 && (entry = readdir(dir)) != NULL) {
        int64_t pid;
        SCOPED_FD int fd = -1;

        if (!str_parse_int(entry->d_name, 1, INT32_MAX, &pid) || pid == getpid() ||
            !same_command((pid_t)pid, p->argv))
            continue;
        /* The pidfd first, then the user: after that the number cannot come to mean another. */
        fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
        if (fd < 0 || !same_user((pid_t)pid, p->uid) || !same_command((pid_t)pid, p->argv))
            continue;
        p->process = (struct process){ .pid = (pid_t)pid, .pidfd = fd };
        p->adopted = true;
        p->started_ms = time_mono_ms();
        fd = -1;
        log_info("adopted", LOG_S("part", p->name), LOG_I("pid", pid));
    }
    if (dir != NULL)
        (void)closedir(dir);
    return p->process.pid != 0;
}

/* --- running -------------------------------------------------------------------- */

enum sbx_code part_start(struct part *p, struct sbx_err *err)
{
    struct process_spec spec = PROCESS_SPEC_INIT;
    struct prefix words;

    prefix_fill(&words, p->uid, p->gid, p->argv);
    spec.argv = words.argv;
    spec.cwd = "/";
    spec.fd_out = spec.fd_err = STDERR_FILENO;
    spec.new_session = true; /* a signal to the launcher's terminal is the launcher's to pass on */
    if (process_start(&spec, &p->process, err) != SBX_OK)
        return err_wrap(err, "%s", p->name);
    p->adopted = false;
    p->started_ms = time_mono_ms();
    p->retry_at_ms = 0;
    log_info("started", LOG_S("part", p->name), LOG_I("pid", p->process.pid));
    return SBX_OK;
}

bool part_running(const struct part *p)
{
    return p->process.pid != 0;
}

static void plan(struct part *p, int64_t now_ms)
{
    if (now_ms - p->started_ms > SUPERVISE_STEADY_MS || p->backoff_ms == 0)
        p->backoff_ms = SUPERVISE_BACKOFF_MIN_MS;
    else if (p->backoff_ms < SUPERVISE_BACKOFF_MAX_MS)
        p->backoff_ms *= 2;
    p->retry_at_ms = now_ms + p->backoff_ms;
}

void part_ended(struct part *p, int64_t now_ms)
{
    struct sbx_err err = { .code = SBX_OK };
    int status = -1;

    if (process_wait(&p->process, 0, &status, &err) != SBX_OK)
        return;
    plan(p, now_ms);
    log_error("a part ended and will be started again", LOG_S("part", p->name),
              LOG_I("status", status), LOG_I("inMs", p->backoff_ms));
}

void part_retry(struct part *p, int64_t now_ms)
{
    struct sbx_err err = { .code = SBX_OK };

    if (part_running(p) || p->retry_at_ms == 0 || now_ms < p->retry_at_ms)
        return;
    if (part_start(p, &err) == SBX_OK)
        return;
    plan(p, now_ms);
    log_err(LOG_ERROR, "start", &err, LOG_S("part", p->name));
}

bool part_stop(struct part *p)
{
    struct sbx_err err = { .code = SBX_OK };
    int status;

    p->retry_at_ms = 0;
    if (!part_running(p))
        return true;
    process_kill(&p->process, p->stop_signal);
    if (process_wait(&p->process, p->stop_timeout_ms, &status, &err) == SBX_OK) {
        log_info("stopped", LOG_S("part", p->name));
        return true;
    }
    log_error("did not stop in time, killed", LOG_S("part", p->name),
              LOG_I("timeoutMs", p->stop_timeout_ms));
    process_end(&p->process);
    return false;
}

enum sbx_code part_run_as(uid_t uid, gid_t gid, const char *const *argv, const char *input,
                          int timeout_ms, struct sbx_err *err)
{
    struct prefix words;

    prefix_fill(&words, uid, gid, argv);
    return process_run(words.argv, input, input != NULL ? strlen(input) : 0, NULL, timeout_ms, err);
}
