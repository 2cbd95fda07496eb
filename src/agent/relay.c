/* PROXY: listens where a process expects the egress proxy and relays each connection over one of
 * its own to the gateway.  A process by itself, so that much traffic holds up no execution. */

#include "agent/agent.h"
#include "agent/parts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* A system call is dear in here, and one read of the gateway's socket gives 208 KiB at most:
 * several by one call. */
enum {
    RELAY_PART = 192 * 1024,
    RELAY_IN_PARTS = 4,                               /* from the gateway; one from inside */
    RELAY_BUFFER = (1 + RELAY_IN_PARTS) * RELAY_PART, /* of a connection */
    RELAY_ROUNDS = 16, /* of one flow before the others are looked at */
    RELAY_BACKLOG = 128,
    RELAY_EVENTS = 32,
};

enum { INSIDE, OUTSIDE };

/* One direction: bytes at..len wait to be written. */
struct flow {
    size_t at, len;
    bool ended; /* the reading side is at its end */
    bool shut;  /* and the writing side was told */
};

struct relay {
    bool used;
    int fds[2];          /* the process INSIDE, the gateway OUTSIDE */
    struct flow flow[2]; /* flow[i] reads from fds[i] and writes to the other */
    uint32_t watched[2];
};

/* One for each connection; what nobody uses takes no memory. */
static _Alignas(4096) unsigned char buffers[SBX_AGENT_RELAYS_MAX][RELAY_BUFFER];

static struct relays {
    struct agent *agent;
    int epoll, listener;
    size_t count;
    bool full; /* the listener is not watched */
    struct relay all[SBX_AGENT_RELAYS_MAX];
} relays;

/* The runtime may leave the loopback interface down when there is no network. */
static void raise_loopback(int fd)
{
    struct ifreq r = { .ifr_name = "lo", .ifr_flags = IFF_UP };

    (void)ioctl(fd, SIOCSIFFLAGS, &r);
}

static int listen_inside(void)
{
    struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons(SBX_AGENT_PROXY_PORT) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;

    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0)
        return -1;
    raise_loopback(fd);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 || listen(fd, RELAY_BACKLOG) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static void watch_listener(bool on)
{
    struct epoll_event ev = { .events = on ? EPOLLIN : 0, .data.u64 = UINT64_MAX };

    epoll_ctl(relays.epoll, EPOLL_CTL_MOD, relays.listener, &ev);
    relays.full = !on;
}

static void finish(struct relay *r)
{
    close(r->fds[0]);
    close(r->fds[1]);
    (void)madvise(buffers[r - relays.all], sizeof(buffers[0]), MADV_DONTNEED);
    *r = (struct relay){ 0 };
    relays.count--;
    if (relays.full)
        watch_listener(true);
}

/* Reads when there is room, writes what waits.  False: this connection is over. */
static bool move(struct relay *r, int from)
{
    struct flow *f = &r->flow[from];
    unsigned char *data = buffers[r - relays.all] + (from == INSIDE ? 0 : RELAY_PART);
    int to = 1 - from;
    ssize_t n;

    if (f->at == f->len && !f->ended) {
        f->at = f->len = 0;
        n = from == INSIDE ? recv(r->fds[from], data, RELAY_PART, 0)
                           : agent_recv_parts(r->fds[from], data, RELAY_PART, RELAY_IN_PARTS);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        f->ended = n == 0;
        f->len = n > 0 ? (size_t)n : 0;
    }
    if (f->at < f->len) {
        n = send(r->fds[to], data + f->at, f->len - f->at, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        f->at += n > 0 ? (size_t)n : 0;
    }
    if (f->ended && f->at == f->len && !f->shut) {
        f->shut = true;
        if (shutdown(r->fds[to], SHUT_WR) < 0)
            return false;
    }
    return true;
}

/* Each side is watched for what the flows can use now. */
static void watch(struct relay *r)
{
    for (int i = 0; i < 2; i++) {
        const struct flow *in = &r->flow[i], *out = &r->flow[1 - i];
        uint32_t want = (in->at == in->len && !in->ended ? (uint32_t)EPOLLIN : 0) |
                        (out->at < out->len ? (uint32_t)EPOLLOUT : 0);
        struct epoll_event ev = { .events = want,
                                  .data.u64 = (uint64_t)(r - relays.all) * 2 + (uint64_t)i };

        if (want == r->watched[i])
            continue;
        /* A side that nobody waits for would still report its hang-up, for ever. */
        epoll_ctl(relays.epoll,
                  !want            ? EPOLL_CTL_DEL
                  : !r->watched[i] ? EPOLL_CTL_ADD
                                   : EPOLL_CTL_MOD,
                  r->fds[i], &ev);
        r->watched[i] = want;
    }
}

/* A system call is dear in here: only the flow that the event is about, and all that it has. */
static bool run_flow(struct relay *r, int from)
{
    struct flow *f = &r->flow[from];

    for (int i = 0; i < RELAY_ROUNDS; i++) {
        if (!move(r, from))
            return false;
        /* Less than a part came, or not all of it went: there is no more to do now. */
        if (f->at < f->len || f->len < RELAY_PART)
            break;
    }
    return true;
}

static void turn(struct relay *r, int side, uint32_t events)
{
    bool both = (events & (EPOLLHUP | EPOLLERR)) != 0;

    if (!r->used)
        return;
    if (((both || (events & EPOLLIN) != 0) && !run_flow(r, side)) ||
        ((both || (events & EPOLLOUT) != 0) && !run_flow(r, 1 - side)) ||
        (r->flow[0].shut && r->flow[1].shut))
        finish(r);
    else
        watch(r);
}

static bool say_relay(int fd)
{
    struct agent_queue q = { .max = SBX_AGENT_DATA_MAX };
    bool ok;

    agent_frame_begin(&q, SBX_AGENT_RELAY, 0);
    agent_frame_number(&q, SBX_TAG_PORT, SBX_AGENT_PROXY_PORT);
    ok = agent_frame_end(&q) && send(fd, q.data, q.len, MSG_NOSIGNAL) == (ssize_t)q.len;
    agent_queue_fini(&q);
    return ok;
}

/* The gateway is away: the process inside sees its connection closed, as by a proxy that is. */
static bool begin(struct relay *r, int inside)
{
    int outside = agent_dial(relays.agent, SBX_AGENT_RELAY_KIND, 0, SOCK_NONBLOCK), on = 1;

    if (outside < 0 || !say_relay(outside)) {
        if (outside >= 0)
            close(outside);
        return false;
    }
    setsockopt(inside, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    *r = (struct relay){ .used = true, .fds = { inside, outside } };
    return true;
}

static void accept_one(void)
{
    struct relay *r = relays.all;
    int fd;

    if (relays.count == SBX_AGENT_RELAYS_MAX) {
        watch_listener(false); /* the others wait in the backlog */
        return;
    }
    fd = accept4(relays.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    while (r->used)
        r++;
    if (!begin(r, fd)) {
        close(fd);
        return;
    }
    relays.count++;
    watch(r);
}

_Noreturn static void relay_run(struct agent *a, int listener)
{
    struct epoll_event ev = { .events = EPOLLIN, .data.u64 = UINT64_MAX };
    struct epoll_event events[RELAY_EVENTS];
    int n;

    relays.agent = a;
    relays.listener = listener;
    relays.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (relays.epoll < 0 || epoll_ctl(relays.epoll, EPOLL_CTL_ADD, listener, &ev) < 0)
        _exit(1);
    for (;;) {
        n = epoll_wait(relays.epoll, events, RELAY_EVENTS, -1);
        if (n < 0 && errno != EINTR)
            _exit(1);
        for (int i = 0; i < n; i++) {
            if (events[i].data.u64 == UINT64_MAX)
                accept_one();
            else
                turn(&relays.all[events[i].data.u64 / 2], (int)(events[i].data.u64 % 2),
                     events[i].events);
        }
    }
}

bool agent_relay_start(struct agent *a)
{
    int listener = listen_inside();
    sigset_t none;

    if (listener < 0)
        return false;
    a->relay = fork();
    if (a->relay == 0) {
        agent_close_inherited(a);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        relay_run(a, listener);
    }
    close(listener);
    return a->relay > 0;
}
