/* The warden's own process: reads requests, makes inits, reaps, ends them. */

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
    READY_MS = 10,                    /* of quiet, until the one in reserve is made again */
};

static struct warden {
    int wire, events, signals;
    bool own_proc;
    uint64_t nproc; /* the limit that is set, inherited by what is made */
    struct init {
        pid_t pid; /* 0: free */
        uint32_t serial;
    } inits[INITS_MAX];
    /* One that is made already and waits on the other end of wire for what it is to start: making
     * one costs as much as a short command takes. */
    struct {
        pid_t pid; /* 0: none */
        int wire;
        bool failed; /* none could be made: not tried again before an execution has ended */
    } ready;
} warden;

static void report(uint32_t kind, uint32_t serial, uint32_t value, uint32_t detail)
{
    struct agent_event e = { kind, serial, value, detail };

    if (send(warden.events, &e, sizeof(e), MSG_NOSIGNAL) != (ssize_t)sizeof(e))
        _exit(1); /* the agent is gone */
}

static void read_all(int wire, void *into, size_t len)
{
    unsigned char *p = into;

    while (len) {
        ssize_t n = recv(wire, p, len, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            _exit(0); /* the agent ended: end the namespace with us */
        p += n;
        len -= (size_t)n;
    }
}

static void read_request(int wire, struct agent_wire_request *r, int fds[3])
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
    ssize_t n;

    fds[0] = fds[1] = fds[2] = -1;
    do {
        n = recvmsg(wire, &msg, MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    if (n <= 0)
        _exit(0);
    c = CMSG_FIRSTHDR(&msg);
    if (c && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(3 * sizeof(int)))
        memcpy(fds, CMSG_DATA(c), 3 * sizeof(int));
    read_all(wire, (unsigned char *)r + n, sizeof(*r) - (size_t)n);
}

/* Cuts the payload's strings into a vector that ends with NULL. */
static char **take_strings(char **at, size_t count)
{
    char **v = calloc(count + 1, sizeof(*v));

    if (!v)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        v[i] = *at;
        *at += strlen(*at) + 1;
    }
    return v;
}

_Noreturn static void become_init(const struct agent_wire_request *r, const int fds[3],
                                  char *payload)
{
    char *at = payload + r->group_count * sizeof(uint32_t);
    struct agent_launch l = {
        .serial = r->serial,
        .uid = r->uid,
        .gid = r->gid,
        .groups = (const uint32_t *)(void *)payload,
        .group_count = r->group_count,
        .fds = { fds[0], fds[1], fds[2] },
        .events = warden.events,
    };

    l.cwd = at;
    at += strlen(at) + 1;
    if (r->has_below) {
        l.below = at;
        at += strlen(at) + 1;
    }
    l.argv = take_strings(&at, r->arg_count);
    l.envp = take_strings(&at, r->env_count);
    if (!l.argv || !l.envp)
        _exit(1);
    agent_launch_run(&l);
}

static struct init *free_init(void)
{
    for (size_t i = 0; i < INITS_MAX; i++) {
        if (!warden.inits[i].pid)
            return &warden.inits[i];
    }
    return NULL;
}

/* Counted for each uid; the warden's own has the capability to pass it. */
static bool limit_processes(uint64_t nproc)
{
    struct rlimit limit = { nproc, nproc };

    if (!nproc || nproc == warden.nproc)
        return true;
    if (setrlimit(RLIMIT_NPROC, &limit) < 0)
        return false;
    warden.nproc = nproc;
    return true;
}

static pid_t make_init(void)
{
    pid_t pid = (pid_t)syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);

    if (pid == 0)
        agent_launch_prepare(warden.own_proc);
    return pid;
}

/* The life of one that was made before it was needed.  It ends with the warden, by the end of the
 * wire. */
_Noreturn static void wait_as_init(int wire)
{
    struct agent_wire_request r;
    char *payload;
    int fds[3];

    read_request(wire, &r, fds);
    payload = malloc(r.bytes ? r.bytes : 1);
    if (!payload)
        _exit(1);
    read_all(wire, payload, r.bytes);
    if (!limit_processes(r.nproc)) {
        report(AGENT_EVENT_REFUSED, r.serial, SBX_AGENT_REASON_LIMIT, (uint32_t)errno);
        _exit(1);
    }
    become_init(&r, fds, payload);
}

/* One in reserve, made while nobody waits.  A failure costs the next command a little time. */
static void make_ready(void)
{
    int wire[2];

    if (warden.ready.pid || warden.ready.failed)
        return;
    warden.ready.failed = true;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, wire) < 0)
        return;
    warden.ready.pid = make_init();
    if (warden.ready.pid == 0) {
        close(wire[0]);
        wait_as_init(wire[1]);
    }
    close(wire[1]);
    if (warden.ready.pid < 0) {
        warden.ready.pid = 0;
        close(wire[0]);
        return;
    }
    warden.ready.wire = wire[0];
    warden.ready.failed = false;
}

/* Hands the request to the one in reserve, which is gone from there.  0: there was none, or it
 * died. */
static pid_t take_ready(const struct agent_wire_request *r, const int fds[3], const char *payload)
{
    pid_t pid = warden.ready.pid;

    if (!pid)
        return 0;
    warden.ready.pid = 0;
    if (!agent_wire_send(warden.ready.wire, r, fds, (const unsigned char *)payload)) {
        kill(pid, SIGKILL);
        pid = 0;
    }
    close(warden.ready.wire);
    return pid;
}

static void spawn(const struct agent_wire_request *r, const int fds[3])
{
    struct init *slot = free_init();
    char *payload = malloc(r->bytes ? r->bytes : 1);
    pid_t pid = -1;

    if (!payload)
        _exit(1); /* the stream cannot be followed any more */
    read_all(warden.wire, payload, r->bytes);
    errno = EAGAIN;
    if (slot && limit_processes(r->nproc)) {
        pid = take_ready(r, fds, payload);
        if (pid == 0) {
            pid = make_init();
            if (pid == 0)
                become_init(r, fds, payload);
        }
    }
    if (pid > 0) {
        slot->pid = pid;
        slot->serial = r->serial;
    } else {
        report(AGENT_EVENT_REFUSED, r->serial, SBX_AGENT_REASON_LIMIT, (uint32_t)errno);
        report(AGENT_EVENT_GONE, r->serial, 0, 0);
    }
    free(payload);
}

static void handle_request(void)
{
    struct agent_wire_request r;
    int fds[3];

    read_request(warden.wire, &r, fds);
    if (r.kind == AGENT_WIRE_SPAWN) {
        spawn(&r, fds);
    } else {
        for (size_t i = 0; i < INITS_MAX; i++) {
            if (warden.inits[i].pid && warden.inits[i].serial == r.serial)
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
    pid_t pid;

    while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
        if (pid == warden.ready.pid) {
            warden.ready.pid = 0;
            close(warden.ready.wire);
        }
        for (size_t i = 0; i < INITS_MAX; i++) {
            if (warden.inits[i].pid == pid) {
                warden.inits[i].pid = 0;
                report(AGENT_EVENT_GONE, warden.inits[i].serial, 0, 0);
            }
        }
    }
    warden.ready.failed = false;
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
    report(AGENT_EVENT_STARTED, 0, 0, 0);
    make_ready();
    for (;;) {
        struct pollfd p[2] = { { .fd = warden.wire, .events = POLLIN },
                               { .fd = warden.signals, .events = POLLIN } };
        struct signalfd_siginfo info[4];

        int n = poll(p, 2, warden.ready.pid || warden.ready.failed ? -1 : READY_MS);

        if (n < 0 && errno != EINTR)
            _exit(1);
        if (p[1].revents) {
            reap(); /* first: somebody waits for it */
            if (read(warden.signals, info, sizeof(info)) > 0)
                reap(); /* a death between the two was told by the signal that is gone */
        }
        if (p[0].revents)
            handle_request();
        else if (n == 0 || p[1].revents) /* an execution's answer is on its way */
            make_ready();
    }
}
