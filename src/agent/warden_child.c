/* The warden's own process: reads requests, makes inits, reaps, ends them.
 *
 * Inits share its memory (launch.c).  Nothing here reads errno once there may be one: their C
 * library's is the same. */

#include "agent/raw.h"
#include "agent/warden_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    INITS_MAX = AGENT_EXEC_SLOTS + 1, /* and the template's command */
    KEEP_FROM = 24,                   /* above all that the agent has opened by then */
    INIT_STACK = 16 * 1024,
    COMMAND_STACK = 48 * 1024, /* until its exec: two paths and little else */
};

static struct warden {
    int wire, events, signals;
    bool own_proc;
    uint64_t nproc; /* the limit that is set, inherited by what is made */
    uint64_t caps;
    uint64_t stales; /* so far */
    struct init {
        pid_t pid;      /* 0: free */
        uint64_t stale; /* free, but its last command may still be dying in this memory: since when,
                         * counted in such ends; else 0 */
        struct agent_launch launch;
        char *payload; /* what launch points into */
    } inits[INITS_MAX];
} warden;

/* Touched when used: the lowest free place is taken, so a few stay warm. */
static struct stacks {
    _Alignas(16) char init[INIT_STACK];
    _Alignas(16) char command[COMMAND_STACK];
} stacks[INITS_MAX];

static void report(uint32_t kind, uint32_t serial, uint32_t value, uint32_t detail)
{
    struct agent_event e = { kind, serial, value, detail };

    if (send(warden.events, &e, sizeof(e), MSG_NOSIGNAL) != (ssize_t)sizeof(e))
        _exit(1); /* the agent is gone */
}

static void read_all(void *into, size_t len)
{
    unsigned char *p = into;

    while (len) {
        long n = AGENT_RAW_3(SYS_read, warden.wire, p, len);

        if (n == -EINTR)
            continue;
        if (n <= 0)
            _exit(0); /* the agent ended: end the namespace with us */
        p += n;
        len -= (size_t)n;
    }
}

static void read_request(struct agent_wire_request *r, int fds[3])
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(3 * sizeof(int))];
    } control;
    struct iovec iov = { r, sizeof(*r) };
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
    };
    struct cmsghdr *c;
    long n;

    fds[0] = fds[1] = fds[2] = -1;
    do {
        n = AGENT_RAW_3(SYS_recvmsg, warden.wire, &msg, MSG_CMSG_CLOEXEC);
    } while (n == -EINTR);
    if (n <= 0)
        _exit(0);
    c = CMSG_FIRSTHDR(&msg);
    if (c && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(3 * sizeof(int)))
        memcpy(fds, CMSG_DATA(c), 3 * sizeof(int));
    read_all((unsigned char *)r + n, sizeof(*r) - (size_t)n);
}

/* Cuts the payload's strings into v, with a NULL behind them. */
static char **take_strings(char **v, size_t count, char **at)
{
    for (size_t i = 0; i < count; i++) {
        v[i] = *at;
        *at += strlen(*at) + 1;
    }
    v[count] = NULL;
    return v + count + 1;
}

/* One block: the vectors, then what they point into. */
static void read_payload(const struct agent_wire_request *r, const int fds[3], struct init *i)
{
    size_t vectors = (r->arg_count + (size_t)r->env_count + 2) * sizeof(char *);
    struct agent_launch *l = &i->launch;
    char **v, *at;

    i->payload = malloc(vectors + r->bytes);
    if (!i->payload)
        _exit(1); /* the stream cannot be followed any more */
    v = (char **)(void *)i->payload;
    at = i->payload + vectors;
    read_all(at, r->bytes);
    *l = (struct agent_launch){
        .serial = r->serial,
        .uid = r->uid,
        .gid = r->gid,
        .groups = (const uint32_t *)(void *)at,
        .group_count = r->group_count,
        .fds = { fds[0], fds[1], fds[2] },
        .events = warden.events,
        .tell_start = r->tell_start != 0,
        .own_proc = warden.own_proc,
        .caps = warden.caps,
        .command_stack = stacks[i - warden.inits].command + COMMAND_STACK,
    };
    at += r->group_count * sizeof(uint32_t);
    l->cwd = at;
    at += strlen(at) + 1;
    if (r->has_below) {
        l->below = at;
        at += strlen(at) + 1;
    }
    l->argv = v;
    l->envp = take_strings(v, r->arg_count, &at);
    take_strings(l->envp, r->env_count, &at);
}

/* Stale ones last, and of them the one that is so for longest: a runtime may let a command outlive
 * its killed init by a moment. */
static struct init *free_init(void)
{
    struct init *stale = NULL;

    for (size_t i = 0; i < INITS_MAX; i++) {
        struct init *it = &warden.inits[i];

        if (!it->pid && !it->stale)
            return it;
        if (!it->pid && (!stale || it->stale < stale->stale))
            stale = it;
    }
    if (stale) {
        free(stale->payload);
        stale->stale = 0;
    }
    return stale;
}

static void forget(struct init *i)
{
    i->pid = 0;
    if (!i->launch.begun) {
        i->stale = ++warden.stales;
        return;
    }
    free(i->payload);
    i->payload = NULL;
}

/* Counted for each uid; the warden's own has the capability to pass it. */
static bool limit_processes(uint64_t nproc)
{
    struct rlimit limit = { nproc, nproc };

    if (!nproc || nproc == warden.nproc)
        return true;
    if (AGENT_RAW_4(SYS_prlimit64, 0, RLIMIT_NPROC, &limit, NULL) < 0)
        return false;
    warden.nproc = nproc;
    return true;
}

static void spawn(const struct agent_wire_request *r, const int fds[3])
{
    struct init *slot = free_init(); /* there is one: the agent counts */
    pid_t pid = -1;

    if (!slot)
        _exit(1);
    read_payload(r, fds, slot);
    if (limit_processes(r->nproc))
        pid = clone(agent_launch_run, stacks[slot - warden.inits].init + INIT_STACK,
                    CLONE_VM | CLONE_NEWPID | SIGCHLD, &slot->launch);
    if (pid > 0) {
        slot->pid = pid;
        return;
    }
    slot->launch.begun = true; /* by nobody */
    forget(slot);
    report(AGENT_EVENT_REFUSED, r->serial, SBX_AGENT_REASON_LIMIT, EAGAIN);
    report(AGENT_EVENT_GONE, r->serial, 0, 0);
}

static void handle_request(void)
{
    struct agent_wire_request r;
    int fds[3];

    read_request(&r, fds);
    if (r.kind == AGENT_WIRE_SPAWN) {
        spawn(&r, fds);
    } else {
        for (size_t i = 0; i < INITS_MAX; i++) {
            if (warden.inits[i].pid && warden.inits[i].launch.serial == r.serial)
                kill(warden.inits[i].pid, SIGKILL);
        }
    }
    for (int i = 0; i < 3; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
}

/* Inits, and orphans of nested namespaces that end up here. */
static void reap(void)
{
    long pid;

    while ((pid = AGENT_RAW_4(SYS_wait4, -1, NULL, WNOHANG, NULL)) > 0) {
        for (size_t i = 0; i < INITS_MAX; i++) {
            struct init *it = &warden.inits[i];

            if (it->pid == pid) {
                forget(it);
                report(AGENT_EVENT_GONE, it->launch.serial, 0, 0);
            }
        }
    }
}

/* gVisor before 2023 answers 0 to unshare(CLONE_NEWNS) and shares the mounts all the same; it
 * refuses to change their propagation, which tells it.  Slave: what the agent mounts later (the
 * private tmpfs) is seen here, and nothing the other way. */
static bool has_mount_namespaces(void)
{
    return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_SLAVE, NULL) == 0;
}

static bool confine(void)
{
    sigset_t set;

    for (int cap = 0; cap < 64; cap++) {
        if (!(agent_caps_workload() & AGENT_CAP(cap)) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
            break; /* past the last capability */
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return false;
    warden.own_proc = has_mount_namespaces();
    /* From here on /proc is that of this namespace: without the agent. */
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return false;
    if (mount("none", SBX_AGENT_DIR, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY,
              "mode=0555,size=4k") < 0)
        return false;
    if (chdir("/") < 0)
        return false;
    umask(022);
    signal(SIGPIPE, SIG_DFL); /* for what is made; the warden sends with MSG_NOSIGNAL */
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    if (sigprocmask(SIG_SETMASK, &set, NULL) < 0)
        return false;
    warden.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return warden.signals >= 0;
}

/* Root of the image can open through /proc what the warden and its inits hold and is no socket:
 * they hold the null device on 0 to 2 and sockets, nothing else of the agent's. */
static bool keep_only(int wire, int events)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (null < 0 || fcntl(wire, F_GETFD) < 0)
        return false;
    for (int i = 0; i < 3; i++) {
        if (dup2(null, i) < 0)
            return false;
    }
    wire = fcntl(wire, F_DUPFD_CLOEXEC, KEEP_FROM);
    events = fcntl(events, F_DUPFD_CLOEXEC, KEEP_FROM);
    if (wire < 0 || events < 0)
        return false;
    for (int fd = 3; fd < KEEP_FROM; fd++)
        close(fd);
    warden.wire = wire;
    warden.events = events;
    return true;
}

_Noreturn void agent_warden_run(int wire, int events)
{
    warden.events = events;
    if (!keep_only(wire, events) || !confine()) {
        report(AGENT_EVENT_REFUSED, 0, SBX_AGENT_REASON_IO, (uint32_t)errno);
        _exit(1);
    }
    warden.caps = agent_caps_permitted();
    report(AGENT_EVENT_STARTED, 0, 0, 0);
    for (;;) {
        struct pollfd p[2] = { { .fd = warden.wire, .events = POLLIN },
                               { .fd = warden.signals, .events = POLLIN } };
        struct signalfd_siginfo info[4];
        long n = AGENT_RAW_5(SYS_ppoll, p, 2, NULL, NULL, 0);

        if (n < 0 && n != -EINTR)
            _exit(1);
        if (p[1].revents) {
            reap(); /* first: somebody waits for it */
            if (AGENT_RAW_3(SYS_read, warden.signals, info, sizeof(info)) > 0)
                reap(); /* a death between the two was told by the signal that is gone */
        }
        if (p[0].revents)
            handle_request();
    }
}
