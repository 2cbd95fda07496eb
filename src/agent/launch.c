/* The init of one execution's PID namespace, and its command. */

#include "agent/warden_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILD_STACK = 64 * 1024, EXIT_NOT_FOUND = 127, EXIT_NOT_EXECUTABLE = 126 };

static uint64_t init_caps; /* what the init has, and its command at most */

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

bool agent_caps_set(uint64_t permitted, uint64_t inheritable)
{
    struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct data[2] = {
        { (uint32_t)permitted, (uint32_t)permitted, (uint32_t)inheritable },
        { (uint32_t)(permitted >> 32), (uint32_t)(permitted >> 32), (uint32_t)(inheritable >> 32) },
    };

    return syscall(SYS_capset, &head, data) == 0;
}

static bool refuse(struct outcome *o, enum sbx_agent_reason reason)
{
    o->reason = (int)reason;
    o->error = errno;
    return false;
}

static bool enter_cwd(struct outcome *o)
{
    const struct agent_launch *l = o->launch;
    char path[PATH_MAX];
    size_t len = l->below ? strlen(l->below) : 0;

    if ((l->below && chdir(l->below) < 0) || chdir(l->cwd) < 0)
        return refuse(o, SBX_AGENT_REASON_CWD_MISSING);
    if (!l->below)
        return true;
    if (!getcwd(path, sizeof(path)) || strncmp(path, l->below, len) != 0 ||
        (path[len] != '\0' && path[len] != '/'))
        return refuse(o, SBX_AGENT_REASON_CWD_ESCAPE);
    return true;
}

/* The workload's user, without privilege beside root's default set.  Raw calls: the C library's
 * wrappers reach for other threads, and this child shares memory with its parent. */
static bool become_workload(struct outcome *o)
{
    const struct agent_launch *l = o->launch;
    uint64_t caps = l->uid == 0 ? agent_caps_workload() & init_caps : 0;

    if ((l->group_count && syscall(SYS_setgroups, l->group_count, l->groups) < 0) ||
        syscall(SYS_setresgid, l->gid, l->gid, l->gid) < 0 ||
        syscall(SYS_setresuid, l->uid, l->uid, l->uid) < 0 || !agent_caps_set(caps, 0))
        return refuse(o, SBX_AGENT_REASON_IO);
    return true;
}

static bool take_stdio(struct outcome *o)
{
    for (int i = 0; i < 3; i++) { /* the three are above 2: the warden has 0 to 2 open */
        if (dup2(o->launch->fds[i], i) < 0)
            return refuse(o, SBX_AGENT_REASON_IO);
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

/* As execvpe, but a script without an interpreter is an error: there is no shell anywhere. */
static int execute(char *const *argv, char *const *envp)
{
    char file[PATH_MAX];
    int error = ENOENT;

    if (strchr(argv[0], '/')) {
        execve(argv[0], argv, envp);
        error = errno;
        return error == ENOENT && faccessat(AT_FDCWD, argv[0], F_OK, 0) == 0 ? ENOEXEC : error;
    }
    for (const char *dir = env_path(envp); *argv[0];) {
        size_t len = strcspn(dir, ":");
        int n = snprintf(file, sizeof(file), "%.*s%s%s", (int)len, dir, len ? "/" : "", argv[0]);

        /* Where it is not, one call tells. */
        if (n > 0 && (size_t)n < sizeof(file) && faccessat(AT_FDCWD, file, F_OK, 0) == 0) {
            execve(file, argv, envp);
            /* It is there; its interpreter is not. */
            error = errno == ENOENT || errno == ENOTDIR ? ENOEXEC : errno;
            if (error != EACCES)
                return error;
        }
        if (!dir[len])
            break;
        dir += len + 1;
    }
    return error;
}

static int command(void *arg)
{
    struct outcome *o = arg;
    const struct agent_launch *l = o->launch;
    sigset_t none;

    if (!take_stdio(o) || !become_workload(o) || !enter_cwd(o))
        _exit(EXIT_NOT_EXECUTABLE);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    o->executed = true; /* until proved wrong: success does not return */
    o->error = execute(l->argv, l->envp);
    o->executed = false;
    _exit(EXIT_NOT_EXECUTABLE);
}

static void report(const struct agent_launch *l, uint32_t kind, uint32_t value, uint32_t detail)
{
    struct agent_event e = { kind, l->serial, value, detail };

    if (send(l->events, &e, sizeof(e), MSG_NOSIGNAL) != (ssize_t)sizeof(e))
        _exit(1);
}

/* One line on the command's own standard error, as a shell would. */
static void explain(const struct agent_launch *l, int error)
{
    char line[512];
    int n = snprintf(line, sizeof(line), "%.400s: %s\n", l->argv[0],
                     error == ENOENT    ? "command not found"
                     : error == ENOEXEC ? "cannot be executed: no interpreter for it"
                                        : strerror(error));

    if (n > 0 && write(l->fds[2], line, (size_t)n) < 0)
        return; /* nobody reads it */
}

/* Starts the command; ends the init when there is nothing to wait for. */
static pid_t start(const struct agent_launch *l, struct outcome *o)
{
    static _Alignas(16) char stack[CHILD_STACK];
    pid_t pid;

    pid = clone(command, stack + CHILD_STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, o);
    if (pid < 0 || o->reason || (!o->executed && o->error == EAGAIN)) {
        int reason = pid < 0 || !o->reason ? SBX_AGENT_REASON_LIMIT : o->reason;

        report(l, AGENT_EVENT_REFUSED, (uint32_t)reason, (uint32_t)(pid < 0 ? errno : o->error));
        _exit(1);
    }
    report(l, AGENT_EVENT_STARTED, 0, 0);
    if (!o->executed) {
        explain(l, o->error);
        report(l, AGENT_EVENT_ENDED, o->error == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE, 0);
        _exit(0);
    }
    return pid;
}

void agent_launch_prepare(bool own_proc)
{
    init_caps = agent_caps_permitted();
    if (own_proc && unshare(CLONE_NEWNS) == 0)
        (void)mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
    /* The session is the init's and the command leads a group in it: a group whose leader led its
     * session would count as orphaned, and gVisor sends SIGHUP to all of such a group when one of
     * it ends while another is stopped, as happens during a freeze. */
    setsid();
}

_Noreturn void agent_launch_run(const struct agent_launch *l)
{
    struct outcome o = { .launch = l };
    enum agent_event_kind ended;
    pid_t pid, child;
    int status = 0;

    child = start(l, &o);
    for (int i = 0; i < 3;
         i++) /* while the command runs: root could open the pipes through /proc */
        close(l->fds[i]);
    do {
        pid = waitpid(-1, &status, 0);
    } while (pid != child && (pid > 0 || errno == EINTR));
    /* What the command left behind are the init's children by now. */
    ended = waitpid(-1, NULL, WNOHANG | __WALL) < 0 && errno == ECHILD ? AGENT_EVENT_LAST
                                                                       : AGENT_EVENT_ENDED;
    if (pid == child && WIFSIGNALED(status))
        report(l, ended, 128 + (uint32_t)WTERMSIG(status), (uint32_t)WTERMSIG(status));
    else if (pid == child)
        report(l, ended, (uint32_t)WEXITSTATUS(status), 0);
    _exit(0); /* and with it all that the command left behind */
}
