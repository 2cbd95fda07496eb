/* The init of one execution's PID namespace, and its command.
 *
 * An init has the warden's memory (CLONE_VM): under ptrace a memory of its own costs more than a
 * short command takes.  It runs beside the warden and other inits, so what runs in it calls the
 * kernel without the C library, whose errno they share, and neither allocates nor frees. */

#include "agent/raw.h"
#include "agent/warden_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    EXIT_NOT_FOUND = 127,
    EXIT_NOT_EXECUTABLE = 126,
    SHORT_MS = 10, /* a command that ends within it is not told as started before */
    SIGSET_BYTES = 8,
};

/* The child of clone(CLONE_VM) writes it, the init reads it when the child has exec'ed or ended. */
struct outcome {
    const struct agent_launch *launch;
    int reason; /* enum sbx_agent_reason: nothing was started */
    int error;
    bool executed;
};

uint64_t agent_caps_workload(void)
{
    return AGENT_CAP(CAP_CHOWN) | AGENT_CAP(CAP_DAC_OVERRIDE) | AGENT_CAP(CAP_FOWNER) |
           AGENT_CAP(CAP_FSETID) | AGENT_CAP(CAP_KILL) | AGENT_CAP(CAP_SETGID) |
           AGENT_CAP(CAP_SETUID) | AGENT_CAP(CAP_SETPCAP) | AGENT_CAP(CAP_SETFCAP) |
           AGENT_CAP(CAP_NET_BIND_SERVICE) | AGENT_CAP(CAP_SYS_CHROOT);
}

uint64_t agent_caps_permitted(void)
{
    struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct data[2] = { { 0 } };

    if (syscall(SYS_capget, &head, data) < 0)
        return 0;
    return data[0].permitted | (uint64_t)data[1].permitted << 32;
}

static long caps_set(uint64_t permitted, uint64_t inheritable)
{
    struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct data[2] = {
        { (uint32_t)permitted, (uint32_t)permitted, (uint32_t)inheritable },
        { (uint32_t)(permitted >> 32), (uint32_t)(permitted >> 32), (uint32_t)(inheritable >> 32) },
    };

    return AGENT_RAW_2(SYS_capset, &head, data);
}

bool agent_caps_set(uint64_t permitted, uint64_t inheritable)
{
    long n = caps_set(permitted, inheritable);

    if (n < 0)
        errno = (int)-n;
    return n == 0;
}

/* -error: what the kernel answered. */
static bool refuse(struct outcome *o, enum sbx_agent_reason reason, long answer)
{
    o->reason = (int)reason;
    o->error = (int)-answer;
    return false;
}

static bool enter_cwd(struct outcome *o)
{
    const struct agent_launch *l = o->launch;
    char path[PATH_MAX];
    size_t len = l->below ? strlen(l->below) : 0;
    long n = l->below ? AGENT_RAW_1(SYS_chdir, l->below) : 0;

    if (n == 0)
        n = AGENT_RAW_1(SYS_chdir, l->cwd);
    if (n < 0)
        return refuse(o, SBX_AGENT_REASON_CWD_MISSING, n);
    if (!l->below)
        return true;
    n = AGENT_RAW_2(SYS_getcwd, path, sizeof(path));
    if (n <= 0 || strncmp(path, l->below, len) != 0 || (path[len] != '\0' && path[len] != '/'))
        return refuse(o, SBX_AGENT_REASON_CWD_ESCAPE, n < 0 ? n : 0);
    return true;
}

/* The workload's user, without privilege beside root's default set. */
static bool become_workload(struct outcome *o)
{
    const struct agent_launch *l = o->launch;
    uint64_t caps = l->uid == 0 ? agent_caps_workload() & l->caps : 0;
    long n = l->group_count ? AGENT_RAW_2(SYS_setgroups, l->group_count, l->groups) : 0;

    if (n == 0)
        n = AGENT_RAW_3(SYS_setresgid, l->gid, l->gid, l->gid);
    if (n == 0)
        n = AGENT_RAW_3(SYS_setresuid, l->uid, l->uid, l->uid);
    if (n == 0)
        n = caps_set(caps, 0);
    return n == 0 || refuse(o, SBX_AGENT_REASON_IO, n);
}

static bool take_stdio(struct outcome *o)
{
    for (int i = 0; i < 3; i++) { /* the three are above 2: the warden has 0 to 2 open */
        long n = AGENT_RAW_3(SYS_dup3, o->launch->fds[i], i, 0);

        if (n < 0)
            return refuse(o, SBX_AGENT_REASON_IO, n);
    }
    return true;
}

static const char *env_path(char *const *envp)
{
    for (; *envp; envp++) {
        if (strncmp(*envp, "PATH=", 5) == 0)
            return *envp + 5;
    }
    return "";
}

static bool is_there(const char *file)
{
    return AGENT_RAW_3(SYS_faccessat, AT_FDCWD, file, F_OK) == 0;
}

/* dir/name; false: too long. */
static bool join(char out[PATH_MAX], const char *dir, size_t len, const char *name)
{
    size_t n = strlen(name);

    if (len + 1 + n + 1 > PATH_MAX)
        return false;
    memcpy(out, dir, len);
    if (len)
        out[len++] = '/';
    memcpy(out + len, name, n + 1);
    return true;
}

/* As execvpe, but a script without an interpreter is an error: there is no shell anywhere.  The
 * error number of the failure. */
static int execute(char *const *argv, char *const *envp)
{
    char file[PATH_MAX];
    int error = ENOENT;

    if (strchr(argv[0], '/')) {
        error = (int)-AGENT_RAW_3(SYS_execve, argv[0], argv, envp);
        return error == ENOENT && is_there(argv[0]) ? ENOEXEC : error;
    }
    for (const char *dir = env_path(envp); *argv[0];) {
        size_t len = strcspn(dir, ":");

        if (join(file, dir, len, argv[0]) && is_there(file)) { /* where it is not, one call tells */
            error = (int)-AGENT_RAW_3(SYS_execve, file, argv, envp);
            if (error == ENOENT || error == ENOTDIR)
                error = ENOEXEC; /* it is there; its interpreter is not */
            if (error != EACCES)
                return error;
        }
        if (!dir[len])
            break;
        dir += len + 1;
    }
    return error;
}

_Noreturn static void leave(int status)
{
    for (;;)
        (void)AGENT_RAW_1(SYS_exit_group, status);
}

static int command(void *arg)
{
    struct outcome *o = arg;
    const struct agent_launch *l = o->launch;
    uint64_t none = 0;

    if (!take_stdio(o) || !become_workload(o) || !enter_cwd(o))
        leave(EXIT_NOT_EXECUTABLE);
    (void)AGENT_RAW_4(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, SIGSET_BYTES);
    (void)AGENT_RAW_2(SYS_setpgid, 0, 0);
    o->executed = true; /* until proved wrong: success does not return */
    o->error = execute(l->argv, l->envp);
    o->executed = false;
    leave(EXIT_NOT_EXECUTABLE);
}

/* When nobody reads, the agent is gone: SIGPIPE or the answer ends the init. */
static void report(const struct agent_launch *l, uint32_t kind, uint32_t value, uint32_t detail)
{
    struct agent_event e = { kind, l->serial, value, detail };

    if (AGENT_RAW_3(SYS_write, l->events, &e, sizeof(e)) != (long)sizeof(e))
        leave(1);
}

/* One line on the command's own standard error, as a shell would. */
static void explain(const struct agent_launch *l, int error)
{
    const char *why = error == ENOENT    ? "command not found"
                      : error == ENOEXEC ? "cannot be executed: no interpreter for it"
                                         : strerrordesc_np(error);
    const char *const parts[] = { l->argv[0], ": ", why ? why : "cannot be executed", "\n" };
    char line[512];
    size_t len = 0;

    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        size_t n = strnlen(parts[i], 400);

        if (len + n <= sizeof(line)) {
            memcpy(line + len, parts[i], n);
            len += n;
        }
    }
    (void)AGENT_RAW_3(SYS_write, l->fds[2], line, len); /* maybe nobody reads it */
}

/* Starts the command; ends the init when there is nothing to wait for. */
static pid_t start(struct agent_launch *l, struct outcome *o)
{
    pid_t pid = clone(command, l->command_stack, CLONE_VM | CLONE_VFORK | SIGCHLD, o);

    l->begun = true;
    if (pid < 0 || o->reason || (!o->executed && o->error == EAGAIN)) {
        int reason = pid < 0 || !o->reason ? SBX_AGENT_REASON_LIMIT : o->reason;

        report(l, AGENT_EVENT_REFUSED, (uint32_t)reason, (uint32_t)(pid < 0 ? EAGAIN : o->error));
        leave(1);
    }
    if (!o->executed) {
        report(l, AGENT_EVENT_STARTED, 0, 0);
        explain(l, o->error);
        report(l, AGENT_EVENT_ENDED, o->error == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE, 0);
        leave(0);
    }
    return pid;
}

/* Reaps until the command has ended; false: it cannot be waited for.  STARTED is not told of one
 * that ends at once, unless somebody counts on it: its end tells both, and the agent is woken once.
 */
static bool wait_for(const struct agent_launch *l, pid_t child, int *status)
{
    uint64_t set = UINT64_C(1) << (SIGCHLD - 1); /* blocked since the warden */
    struct timespec patience = { .tv_nsec = SHORT_MS * 1000000 };
    long pid;

    if (!l->tell_start &&
        AGENT_RAW_4(SYS_rt_sigtimedwait, &set, NULL, &patience, SIGSET_BYTES) > 0 &&
        AGENT_RAW_4(SYS_wait4, child, status, WNOHANG, NULL) == child)
        return true;
    report(l, AGENT_EVENT_STARTED, 0, 0);
    do {
        pid = AGENT_RAW_4(SYS_wait4, -1, status, 0, NULL);
    } while (pid != child && (pid > 0 || pid == -EINTR));
    return pid == child;
}

int agent_launch_run(void *launch)
{
    struct agent_launch *l = launch;
    struct outcome o = { .launch = l };
    enum agent_event_kind kind;
    pid_t child;
    int status = 0;

    if (l->own_proc && AGENT_RAW_1(SYS_unshare, CLONE_NEWNS) == 0)
        (void)AGENT_RAW_5(SYS_mount, "proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC,
                          NULL);
    /* The session is the init's and the command leads a group in it: a group whose leader led its
     * session would count as orphaned, and gVisor sends SIGHUP to all of such a group when one of
     * it ends while another is stopped, as happens during a freeze. */
    (void)AGENT_RAW_1(SYS_setsid, 0);
    child = start(l, &o);
    /* While the command runs: root could open the pipes through /proc. */
    for (int i = 0; i < 3; i++)
        (void)AGENT_RAW_1(SYS_close, l->fds[i]);
    if (wait_for(l, child, &status)) {
        /* What the command left behind are the init's children by now. */
        kind = AGENT_RAW_4(SYS_wait4, -1, NULL, WNOHANG | __WALL, NULL) == -ECHILD
                   ? AGENT_EVENT_LAST
                   : AGENT_EVENT_ENDED;
        if (WIFSIGNALED(status))
            report(l, kind, 128 + (uint32_t)WTERMSIG(status), (uint32_t)WTERMSIG(status));
        else
            report(l, kind, (uint32_t)WEXITSTATUS(status), 0);
    }
    leave(0); /* and with it all that the command left behind */
}
