/* The agent's process: takes its own uid, forks the warden, then waits in one place. */

#include "agent/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/warden_wire.h"

enum { EVENTS_AT_ONCE = 32 };

uint64_t agent_now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

bool agent_watch(struct agent *a, int fd, uint32_t events, enum agent_source kind, uint32_t index)
{
    struct epoll_event ev = { .events = events,
                              .data.u64 = (uint64_t)kind | (uint64_t)index << 32 };

    return epoll_ctl(a->epoll, EPOLL_CTL_ADD, fd, &ev) == 0;
}

/* Another uid than any process of the image, with the capabilities it was given. */
static bool take_own_uid(void)
{
    uint64_t caps = agent_caps_permitted();
    struct rlimit none = { 0, 0 };

    return prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) == 0 && syscall(SYS_setgroups, 0, NULL) == 0 &&
           syscall(SYS_setresgid, SBX_AGENT_UID, SBX_AGENT_UID, SBX_AGENT_UID) == 0 &&
           syscall(SYS_setresuid, SBX_AGENT_UID, SBX_AGENT_UID, SBX_AGENT_UID) == 0 &&
           agent_caps_set(caps, 0) && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0 &&
           setrlimit(RLIMIT_CORE, &none) == 0;
}

/* Standard streams become /dev/null before any image code runs: what the host gave would
 * otherwise be seen, and opened, through /proc. */
static bool open_basics(struct agent *a)
{
    if (chdir(SBX_AGENT_DIR) < 0)
        return false;
    a->null = open("/dev/null", O_RDWR | O_CLOEXEC);
    a->proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (a->null < 0 || a->proc < 0)
        return false;
    /* The spawned get fds above 2: dup2 onto 0 to 2 then never meets one of them. */
    while (a->null < 3 || a->proc < 3) {
        int *low = a->null < 3 ? &a->null : &a->proc;
        int high = fcntl(*low, F_DUPFD_CLOEXEC, 3);

        if (high < 0)
            return false;
        *low = high;
    }
    return dup2(a->null, STDIN_FILENO) >= 0 && dup2(a->null, STDOUT_FILENO) >= 0;
}

static bool open_loop(struct agent *a)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    if (sigprocmask(SIG_SETMASK, &set, NULL) < 0)
        return false;
    a->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    a->epoll = epoll_create1(EPOLL_CLOEXEC);
    a->key = mmap(NULL, AGENT_KEY_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return a->signals >= 0 && a->epoll >= 0 && a->key != MAP_FAILED &&
           agent_watch(a, a->signals, EPOLLIN, AGENT_SOURCE_SIGNALS, 0) &&
           agent_watch(a, a->warden.events, EPOLLIN, AGENT_SOURCE_EVENTS, 0);
}

void agent_close_inherited(struct agent *a)
{
    close(a->epoll);
    close(a->signals);
    close(a->proc);
    close(a->warden.wire);
    close(a->warden.events);
    if (a->control.fd >= 0)
        close(a->control.fd);
    if (a->private_dir >= 0)
        close(a->private_dir);
    for (size_t i = 0; i < AGENT_EXEC_SLOTS; i++) {
        for (int s = 0; s < AGENT_STREAMS; s++) {
            if (a->execs[i].out[s].fd >= 0)
                close(a->execs[i].out[s].fd);
        }
    }
}

_Noreturn static void give_up(const char *step)
{
    dprintf(STDERR_FILENO, "sandbox-agent: %s: %s\n", step, strerror(errno));
    _exit(1);
}

void agent_read_events(struct agent *a)
{
    struct agent_event e;

    /* One a turn: a second look for none costs as much as the next turn does. */
    if (agent_warden_next(&a->warden, &e)) {
        if (e.serial == AGENT_SERIAL_WARDEN && e.kind == AGENT_EVENT_REFUSED) {
            errno = (int)e.detail;
            give_up("the workload cannot be confined here");
        }
        if (e.serial == AGENT_SERIAL_WARDEN)
            a->confined = true;
        else if (e.serial == AGENT_SERIAL_COMMAND)
            agent_command_event(a, &e);
        else
            agent_exec_event(a, &e);
    }
}

static void read_signals(struct agent *a)
{
    struct signalfd_siginfo info;
    pid_t pid;

    while (read(a->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGTERM)
            _exit(0);
    }
    while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
        if (pid == a->warden.pid) {
            agent_read_events(a); /* its last word, if it had one */
            errno = ECHILD;
            give_up("the warden ended");
        }
        if (pid == a->relay && !agent_relay_start(a))
            give_up("starting the relay again");
        agent_bulk_reaped(a, pid);
    }
}

static int timeout_ms(const struct agent *a, uint64_t now_ms)
{
    const uint64_t dues[] = { agent_control_due(a), agent_exec_due(a), agent_command_due(a) };
    uint64_t due = UINT64_MAX;

    for (size_t i = 0; i < COUNT_OF(dues); i++)
        due = dues[i] < due ? dues[i] : due;
    if (due == UINT64_MAX)
        return -1;
    if (due <= now_ms)
        return 0;
    return due - now_ms > 60000 ? 60000 : (int)(due - now_ms);
}

static void dispatch(struct agent *a, const struct epoll_event *ev)
{
    uint32_t index = (uint32_t)(ev->data.u64 >> 32);

    switch ((enum agent_source)(ev->data.u64 & 0xffffffff)) {
    case AGENT_SOURCE_CONTROL:
        agent_control_event(a, ev->events);
        break;
    case AGENT_SOURCE_EVENTS:
        agent_read_events(a);
        break;
    case AGENT_SOURCE_SIGNALS:
        read_signals(a);
        break;
    case AGENT_SOURCE_OUT:
        agent_exec_output(a, index);
        break;
    }
}

static void turn(struct agent *a)
{
    struct epoll_event events[EVENTS_AT_ONCE];
    uint64_t now = agent_now_ms();
    int n;

    agent_control_tick(a, now);
    agent_exec_tick(a, now);
    agent_command_tick(a, now);
    agent_control_flush(a);
    n = epoll_wait(a->epoll, events, EVENTS_AT_ONCE, timeout_ms(a, agent_now_ms()));
    if (n < 0 && errno != EINTR)
        give_up("waiting");
    for (int i = 0; i < n; i++)
        dispatch(a, &events[i]);
}

int agent_main(void)
{
    static struct agent agent;
    struct agent *a = &agent;

    for (size_t i = 0; i < AGENT_EXEC_SLOTS; i++)
        a->execs[i].out[AGENT_STDOUT].fd = a->execs[i].out[AGENT_STDERR].fd = -1;
    a->private_dir = -1;
    signal(SIGPIPE, SIG_IGN);
    if (!open_basics(a))
        give_up("opening " SBX_AGENT_DIR " and /proc");
    if (!take_own_uid())
        give_up("taking a uid");
    /* The warden's mounts follow the agent's; a runtime that refuses has one table for all. */
    (void)mount("none", "/", NULL, MS_REC | MS_SHARED, NULL);
    if (!agent_warden_start(&a->warden))
        give_up("starting the warden");
    if (!open_loop(a))
        give_up("opening the loop");
    agent_control_init(a);
    for (;;)
        turn(a);
}
