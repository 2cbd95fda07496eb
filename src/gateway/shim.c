#include "gateway/shim.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/scoped.h"
#include "base/str.h"
#include "base/time.h"

enum {
    STATUS_MAX = 400,     /* bytes of the shim's sentence */
    CHILDREN_MAX = 65536, /* bytes of a list of children */
    SHIM_END_MS = 5000,
    RUNTIME_ARGS_MAX = 64,
};

bool shim_start_time(pid_t pid, uint64_t *out)
{
    char path[64];
    SCOPED_BUF struct buf b = BUF_INIT(4096);
    struct sbx_err err = { 0 };
    const char *p;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    if (file_read(path, &b, &err) != SBX_OK || (p = strrchr(b.data, ')')) == NULL)
        return false;
    if (p[1] == ' ' && (p[2] == 'Z' || p[2] == 'X'))
        return false; /* dead, and not yet reaped by whoever inherited it */
    for (int field = 2; field < 22; field++) { /* the 22nd field is the start time: proc(5) */
        p = strchr(p + 1, ' ');
        if (p == NULL)
            return false;
    }
    *out = strtoull(p + 1, NULL, 10);
    return true;
}

/* ---- the role ---- */

struct shim {
    const char *folder;
    int status_fd;
};

static void say(struct shim *s, const char *text)
{
    if (s->status_fd < 0)
        return;
    (void)!write(s->status_fd, text, strlen(text));
    fd_close(&s->status_fd);
}

static void note_exit(const struct shim *s, pid_t pid, int status)
{
    char path[SHIM_FOLDER_MAX + 16], line[96];
    SCOPED_FD int fd = -1;

    (void)snprintf(path, sizeof(path), "%s/exit", s->folder);
    (void)snprintf(line, sizeof(line), "%d %d %" PRId64 "\n", (int)pid, status, time_unix_ms());
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0)
        (void)!write(fd, line, strlen(line));
}

/* gVisor issue 10704 (fixed in 20240801): with --network=sandbox an old runsc refuses to start on
 * kernels from 6.11, because it cannot open what it expects below /proc/sys/net.  An empty folder
 * in its place, seen by the runtime alone, makes it skip that step. */
static int mask_net(void)
{
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return -1;
    return mount("none", "/proc/sys/net", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=64k");
}

static int join_cgroups(char *list)
{
    for (char *next, *path = list; path != NULL; path = next) {
        int fd;

        next = strchr(path, ',');
        if (next != NULL)
            *next++ = 0;
        fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0 || write(fd, "0", 1) != 1)
            return -1;
        fd_close(&fd);
    }
    return 0;
}

/* fork and not posix_spawn: between the two the child has to enter control groups and perhaps a
 * mount namespace, and the shim has one thread, so anything may be called there. */
static pid_t fork_runtime(const char *flags, char *cgroups, char **argv)
{
    pid_t pid = fork();
    sigset_t none;

    if (pid != 0)
        return pid;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    if (strcmp(cgroups, "-") != 0 && join_cgroups(cgroups) < 0)
        _exit(121);
    if (strchr(flags, 'm') != NULL && mask_net() < 0)
        _exit(122);
    (void)execvp(argv[0], argv);
    _exit(123);
}

static void kill_children(void)
{
    char path[64];
    SCOPED_BUF struct buf b = BUF_INIT(CHILDREN_MAX);
    struct sbx_err err = { 0 };

    (void)snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    if (file_read(path, &b, &err) != SBX_OK || b.data == NULL)
        return;
    for (char *p = b.data, *end; *p != 0; p = end) {
        long pid = strtol(p, &end, 10);

        if (end == p)
            return;
        if (pid > 1)
            (void)kill((pid_t)pid, SIGKILL);
        while (*end == ' ')
            end++;
    }
}

/* Reaps what has ended.  False: there is no child any more. */
static bool reap_all(struct shim *s, pid_t runtime, int *runtime_status)
{
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);

        if (pid == 0)
            return true;
        if (pid < 0)
            return errno == EINTR;
        if (pid == runtime)
            *runtime_status = status;
        else
            note_exit(s, pid, status);
    }
}

static const char *start_failure(int status)
{
    if (WIFEXITED(status)) {
        switch (WEXITSTATUS(status)) {
        case 121:
            return "the sandbox could not enter its control groups\n";
        case 122:
            return "the mount namespace of the runtime could not be made\n";
        case 123:
            return "the runtime program could not be run\n";
        default:
            break;
        }
    }
    return "the runtime refused to start the sandbox\n";
}

static int supervise(struct shim *s, pid_t runtime, int signals)
{
    int status = -1;
    bool told = false, ending = false;

    for (;;) {
        struct pollfd fd = { .fd = signals, .events = POLLIN };
        struct signalfd_siginfo info;
        bool any = reap_all(s, runtime, &status);

        if (!told && status != -1) {
            told = true;
            ending = ending || !WIFEXITED(status) || WEXITSTATUS(status) != 0;
            say(s, ending ? start_failure(status) : "ok\n");
        }
        if (!any)
            return ending ? 1 : 0;
        if (ending)
            kill_children();
        (void)poll(&fd, 1, ending ? 50 : -1); /* again: a child may have forked meanwhile */
        if (read(signals, &info, sizeof(info)) == sizeof(info) && info.ssi_signo == SIGTERM)
            ending = true;
    }
}

static bool write_record(const char *folder)
{
    char path[SHIM_FOLDER_MAX + 16], text[64];
    struct sbx_err err = { 0 };
    uint64_t start;

    if (!shim_start_time(getpid(), &start))
        return false;
    (void)snprintf(path, sizeof(path), "%s/shim", folder);
    (void)snprintf(text, sizeof(text), "%d %" PRIu64 "\n", (int)getpid(), start);
    return file_write(path, text, strlen(text), 0600, false, &err) == SBX_OK;
}

int shim_main(int argc, char **argv)
{
    struct shim s = { .status_fd = -1 };
    int64_t fd;
    SCOPED_FD int signals = -1;
    sigset_t set;
    pid_t runtime;

    if (argc < 7 || strcmp(argv[5], "--") != 0 || strlen(argv[1]) > SHIM_FOLDER_MAX ||
        !str_parse_int(argv[4], 3, INT_MAX, &fd))
        return 2;
    s.folder = argv[1];
    s.status_fd = (int)fd;
    (void)fcntl(s.status_fd, F_SETFD, FD_CLOEXEC);
    (void)prctl(PR_SET_NAME, "sandbox-shim");
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGCHLD);
    (void)sigaddset(&set, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0 || !write_record(s.folder)) {
        say(&s, "the shim could not get ready\n");
        return 1;
    }
    runtime = fork_runtime(argv[2], argv[3], argv + 6);
    if (runtime < 0) {
        say(&s, "the shim could not fork\n");
        return 1;
    }
    return supervise(&s, runtime, signals);
}

/* ---- the gateway's side ---- */

static enum sbx_code read_status(int fd, int timeout_ms, struct sbx_err *err)
{
    int64_t deadline = time_mono_ms() + timeout_ms;
    char text[STATUS_MAX] = "";
    size_t len = 0;

    while (len < sizeof(text) - 1) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int64_t left = deadline - time_mono_ms();
        ssize_t n;

        if (left <= 0)
            return err_set(err, SBX_E_TIMEOUT, "the runtime did not start the sandbox in time");
        if (poll(&p, 1, (int)left) <= 0)
            continue;
        n = read(fd, text + len, sizeof(text) - 1 - len);
        if (n == 0)
            break;
        if (n > 0)
            len += (size_t)n;
        else if (errno != EINTR)
            return err_sys(err, SBX_E_INTERNAL, "hear from the shim");
    }
    text[strcspn(text, "\n")] = 0;
    if (strcmp(text, "ok") == 0)
        return SBX_OK;
    return err_set(err, SBX_E_UNAVAILABLE, "%s",
                   text[0] != 0 ? text : "the shim ended without a word");
}

enum sbx_code shim_start(const struct shim_spec *spec, struct process *out, struct sbx_err *err)
{
    char fd_text[16];
    const char *argv[RUNTIME_ARGS_MAX] = {
        "/proc/self/exe", "shim",  spec->folder, spec->mask_net ? "m" : "-",
        spec->cgroups,    fd_text, "--",
    };
    struct process_spec child = PROCESS_SPEC_INIT;
    struct process p = { .pidfd = -1 };
    int ends[2];
    int keep[2] = { -1, -1 };
    size_t n = 7;
    enum sbx_code code;

    for (const char *const *r = spec->runtime; *r != NULL; r++) {
        if (n == COUNT_OF(argv) - 1)
            return err_set(err, SBX_E_INTERNAL, "the runtime's command is too long");
        argv[n++] = *r;
    }
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(err, SBX_E_INTERNAL, "pipe");
    keep[0] = ends[1];
    (void)snprintf(fd_text, sizeof(fd_text), "%d", ends[1]);
    child.argv = argv;
    child.keep = keep;
    child.new_session = true;
    code = process_start(&child, &p, err);
    fd_close(&ends[1]);
    if (code == SBX_OK)
        code = read_status(ends[0], spec->timeout_ms, err);
    fd_close(&ends[0]);
    if (code == SBX_OK) {
        *out = p;
        return SBX_OK;
    }
    if (p.pid > 0) {
        struct sbx_err ignored = { 0 };
        int status;

        process_kill(&p, SIGTERM);
        if (process_wait(&p, SHIM_END_MS, &status, &ignored) != SBX_OK)
            process_end(&p);
    }
    return code;
}

enum sbx_code shim_find(const char *folder, pid_t *pid, int *pidfd, struct sbx_err *err)
{
    char path[SHIM_FOLDER_MAX + 16];
    SCOPED_BUF struct buf b = BUF_INIT(128);
    struct sbx_err ignored = { 0 };
    uint64_t start = 0, now;
    int number = 0;
    SCOPED_FD int fd = -1;

    (void)snprintf(path, sizeof(path), "%s/shim", folder);
    if (file_read(path, &b, &ignored) != SBX_OK || b.data == NULL ||
        sscanf(b.data, "%d %" SCNu64, &number, &start) != 2 || number <= 1)
        return err_set(err, SBX_E_NOT_FOUND, "there is no shim");
    fd = (int)syscall(SYS_pidfd_open, number, 0);
    /* The start time is read after the pidfd is open: it speaks of the process that pidfd holds. */
    if (fd < 0 || !shim_start_time(number, &now) || now != start)
        return err_set(err, SBX_E_NOT_FOUND, "the shim is gone");
    *pid = number;
    *pidfd = fd;
    fd = -1;
    return SBX_OK;
}
