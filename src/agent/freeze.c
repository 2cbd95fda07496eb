/* FREEZE and THAW: SIGSTOP and SIGCONT for every process of the workload, a process group at a
 * time: gVisor hangs up an orphaned group (a daemon's) when one of it ends while another is
 * stopped. */

#include "agent/agent.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    FREEZE_MS = 5000, /* until all stand still, or the freeze has failed */
    FREEZE_PAUSE_US = 2000,
    SETTLE_POLL_MS = 50,
    STOPPED_MAX = 4096, /* processes that their owner had stopped before; more are continued */
};

struct process {
    pid_t pid, parent, group;
    char state;
};

/* How one look at all processes went. */
struct look {
    size_t moving;  /* not seen standing still */
    size_t waiting; /* told to stop, and waiting for another that is stopped (vfork) */
};

static bool read_stat(int dir, const char *path, struct process *out)
{
    char text[512];
    const char *p;
    int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd < 0)
        return false;
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    p = strrchr(text, ')'); /* the name may hold anything */
    return p && sscanf(p + 1, " %c %d %d", &out->state, &out->parent, &out->group) == 3;
}

static bool stands(char state)
{
    return state == 'T' || state == 't' || state == 'Z' || state == 'X';
}

/* The agent, its children, and the inits of executions, which are children of the warden.  No
 * process of the workload can be one: orphans go to their own init. */
static bool ours(const struct agent *a, const struct process *p)
{
    return p->pid == getpid() || p->parent == getpid() || p->parent == a->warden.pid;
}

static bool sleeps(char state)
{
    return state == 'S' || state == 'T' || state == 't';
}

/* The state of a process is that of a thread of it that is not in the wanted one, if there is any.
 */
static char threads_state(int proc, pid_t pid, char state, bool (*wanted)(char state))
{
    char path[300];
    struct dirent *e;
    int fd;
    DIR *d;

    (void)snprintf(path, sizeof(path), "%d/task", pid);
    fd = openat(proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        if (fd >= 0)
            close(fd);
        return state;
    }
    while (wanted(state) && (e = readdir(d))) {
        struct process t;

        (void)snprintf(path, sizeof(path), "%s/stat", e->d_name);
        if (e->d_name[0] >= '0' && e->d_name[0] <= '9' && read_stat(fd, path, &t) &&
            !wanted(t.state))
            state = t.state;
    }
    closedir(d);
    return state;
}

static bool each_process(struct agent *a,
                         void (*visit)(struct agent *a, const struct process *p, void *ctx),
                         void *ctx)
{
    int fd = openat(a->proc, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;

    if (!d) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    while ((e = readdir(d))) {
        struct process p = { .pid = (pid_t)strtol(e->d_name, NULL, 10) };
        char path[300];

        (void)snprintf(path, sizeof(path), "%s/stat", e->d_name);
        if (p.pid > 0 && read_stat(a->proc, path, &p) && !ours(a, &p))
            visit(a, &p, ctx);
    }
    closedir(d);
    return true;
}

static bool was_stopped(const struct agent *a, pid_t pid)
{
    for (size_t i = 0; i < a->stopped_count; i++) {
        if (a->stopped[i].pid == pid)
            return true;
    }
    return false;
}

/* All of it is the workload's and was moving. */
static bool is_plain_group(const struct agent *a, pid_t group)
{
    struct process leader = { .pid = group };
    char path[32];

    (void)snprintf(path, sizeof(path), "%d/stat", group);
    if (group <= 1 || (read_stat(a->proc, path, &leader) && ours(a, &leader)))
        return false;
    for (size_t i = 0; i < a->stopped_count; i++) {
        if (a->stopped[i].group == group)
            return false;
    }
    return true;
}

static void signal_one(const struct agent *a, const struct process *p, int sig)
{
    if (!is_plain_group(a, p->group) || kill(-p->group, sig) < 0)
        kill(p->pid, sig);
}

/* Before the first signal: what stands still already is not ours to continue. */
static void note_stopped(struct agent *a, const struct process *p, void *ctx)
{
    (void)ctx;
    if (p->state == 'T' && a->stopped_count < STOPPED_MAX)
        a->stopped[a->stopped_count++] = (struct agent_stopped){ p->pid, p->group };
}

static void stop_one(struct agent *a, const struct process *p, void *ctx)
{
    struct look *look = ctx;
    char state = stands(p->state) ? threads_state(a->proc, p->pid, p->state, stands) : p->state;

    if (stands(state))
        return;
    signal_one(a, p, SIGSTOP);
    if (state == 'D')
        look->waiting++;
    else
        look->moving++;
}

static void continue_one(struct agent *a, const struct process *p, void *ctx)
{
    (void)ctx;
    if (p->state != 'Z' && p->state != 'X' && !was_stopped(a, p->pid))
        signal_one(a, p, SIGCONT);
}

static void look_for_moving(struct agent *a, const struct process *p, void *ctx)
{
    bool *moving = ctx;

    if (!*moving)
        *moving = !sleeps(threads_state(a->proc, p->pid, p->state, sleeps));
}

/* A dead process counts as moving: its parent is about to hear of it. */
bool agent_asleep(struct agent *a)
{
    bool moving = false;

    return each_process(a, look_for_moving, &moving) && !moving;
}

/* What was asked to start before must have done so, to be seen. */
static void settle(struct agent *a, uint64_t deadline)
{
    struct pollfd p = { .fd = a->warden.events, .events = POLLIN };

    while ((agent_exec_starting(a) || a->command.state == AGENT_COMMAND_STARTING) &&
           agent_now_ms() < deadline) {
        (void)poll(&p, 1, SETTLE_POLL_MS);
        agent_read_events(a);
    }
}

/* Two looks in a row at which nothing moved: who was still moving at the first could have
 * continued one that had been looked at before. */
bool agent_freeze(struct agent *a)
{
    const struct timespec pause = { 0, FREEZE_PAUSE_US * 1000 };
    uint64_t deadline = agent_now_ms() + FREEZE_MS;
    unsigned still = 0;

    if (a->frozen)
        return true;
    a->stopped = calloc(STOPPED_MAX, sizeof(*a->stopped));
    a->stopped_count = 0;
    a->frozen = true;
    settle(a, deadline);
    if (!a->stopped || !each_process(a, note_stopped, NULL)) {
        agent_thaw(a);
        return false;
    }
    while (still < 2 && agent_now_ms() < deadline) {
        struct look look = { 0 };

        if (!each_process(a, stop_one, &look))
            break;
        still = look.moving ? 0 : still + 1;
        if (look.moving || look.waiting)
            nanosleep(&pause, NULL);
    }
    if (still < 2)
        agent_thaw(a);
    return a->frozen;
}

void agent_thaw(struct agent *a)
{
    if (!a->frozen)
        return;
    (void)each_process(a, continue_one, NULL);
    free(a->stopped);
    a->stopped = NULL;
    a->stopped_count = 0;
    a->frozen = false;
}
