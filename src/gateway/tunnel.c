#include "gateway/tunnel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "base/thread.h"
#include "sbx/agent.h"

enum {
    TUNNELS_MAX = 1024,               /* of all sandboxes */
    TUNNELS_FAIR = 16,                /* of one sandbox, once half of them are in use */
    EVENTS = 128,                     /* of one round */
    CHUNK = 512 * 1024,               /* read at once, and what may wait for a slow reader */
    INSIDE_BUFFER = 1024 * 1024,      /* of the socket: bytes on the way into the sandbox */
    OUTSIDE_BUFFER = 3 * 1024 * 1024, /* and those that the proxy may be ahead */
    PIPE_SIZE = 1024 * 1024,
    BULK = 32 * 1024,           /* a read of so much is part of a transfer */
    BULK_PAUSE_NS = 150 * 1000, /* until the next look at one */
    FAST = 64 * 1024,           /* a read of more from the proxy: that much came in one pause */
    FAST_PAUSE_NS = 400 * 1000, /* then; the way out has not the buffers for it */
};

/* A system call inside a sandbox is dear (30 us under ptrace), and the proxy writes 64 KiB at a
 * time: passed on one by one, each costs the sandbox several.  So a flow that carries much is not
 * looked at again before a pause, in which more gathers; what was read is never held back.  The
 * first pauses are short, so that an answer of some 100 KiB is not much later. */

enum { INSIDE, OUTSIDE };

struct tunnel;

/* From one end to the other. */
struct flow {
    struct tunnel *tunnel;
    struct flow *next;   /* of those that pause, by due_ns */
    int64_t due_ns;      /* of one that pauses, else 0 */
    unsigned char *held; /* read and not yet taken by the other end: at..len */
    size_t at, len;
    int pipe[2];  /* of a flow that carries much: its bytes pass without being copied; or -1 */
    size_t piped; /* in it, not yet taken */
    bool ended;   /* nothing more comes */
    bool shut;    /* and the other end was told */
};

struct tunnel {
    struct tunnel *next, *prev;
    char id[ID_SIZE];
    bool over, closed;
    struct end {
        struct tunnel *tunnel;
        int fd;
        uint32_t armed; /* what epoll will report, once */
    } ends[2];
    struct flow flows[2]; /* [i] reads from ends[i] */
};

struct tunnels {
    struct thread thread;
    int epoll, wake;
    pthread_mutex_t lock; /* list, count, stopping, over, and closing of descriptors */
    bool stopping;
    struct tunnel *all;
    size_t count;
    /* the thread's own */
    struct tunnel *closed; /* freed between two rounds: events may name them */
    struct flow *pausing;
    unsigned char chunk[CHUNK];
};

static int64_t now_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- the thread's work; it alone closes descriptors, so it needs no lock to use them ---- */

static void unpause(struct tunnels *t, struct flow *f)
{
    struct flow **at = &t->pausing;

    if (f->due_ns == 0)
        return;
    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
    f->next = NULL;
    f->due_ns = 0;
}

/* With those that pause, the first that is due first. */
static void pause_flow(struct tunnels *t, struct flow *f, int64_t pause_ns)
{
    struct flow **at = &t->pausing;

    f->due_ns = now_ns() + pause_ns;
    while (*at != NULL && (*at)->due_ns <= f->due_ns)
        at = &(*at)->next;
    f->next = *at;
    *at = f;
}

static void finish(struct tunnels *t, struct tunnel *c)
{
    (void)pthread_mutex_lock(&t->lock);
    if (c->prev != NULL)
        c->prev->next = c->next;
    else
        t->all = c->next;
    if (c->next != NULL)
        c->next->prev = c->prev;
    t->count--;
    for (int i = 0; i < 2; i++)
        fd_close(&c->ends[i].fd);
    (void)pthread_mutex_unlock(&t->lock);
    for (int i = 0; i < 2; i++) {
        unpause(t, &c->flows[i]);
        free(c->flows[i].held);
        fd_close(&c->flows[i].pipe[0]);
        fd_close(&c->flows[i].pipe[1]);
    }
    c->closed = true;
    c->next = t->closed;
    t->closed = c;
}

/* Each event is reported once, so that neither a flow that pauses nor the hang-up of an end that
 * nobody waits for wakes the thread. */
static void arm(struct tunnels *t, struct end *e, uint32_t events)
{
    struct epoll_event ev = { .events = e->armed | events | EPOLLONESHOT, .data.ptr = e };

    if ((e->armed & events) == events)
        return;
    e->armed |= events;
    (void)epoll_ctl(t->epoll, EPOLL_CTL_MOD, e->fd, &ev);
}

/* False: that end is broken. */
static bool pass(int fd, const unsigned char *data, size_t len, size_t *passed)
{
    ssize_t n = send(fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);

    *passed = n > 0 ? (size_t)n : 0;
    return n >= 0 || errno == EAGAIN || errno == EINTR;
}

static bool pass_held(struct flow *f, int to)
{
    size_t passed;

    if (f->held == NULL)
        return true;
    if (!pass(to, f->held + f->at, f->len - f->at, &passed))
        return false;
    f->at += passed;
    if (f->at == f->len) {
        free(f->held);
        f->held = NULL;
    }
    return true;
}

/* As pass_held and pass_more, through the pipe. */
static bool splice_held(struct flow *f, int to)
{
    while (f->piped > 0) {
        ssize_t n = splice(f->pipe[0], NULL, to, NULL, f->piped, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);

        if (n == 0 || (n < 0 && errno != EINTR))
            return n < 0 && errno == EAGAIN;
        f->piped -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

static bool splice_more(struct flow *f, int from, int to, size_t *n)
{
    ssize_t got =
        splice(from, NULL, f->pipe[1], NULL, PIPE_SIZE, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);

    *n = got > 0 ? (size_t)got : 0;
    f->ended = got == 0;
    if (got < 0)
        return errno == EAGAIN || errno == EINTR;
    f->piped = *n;
    return splice_held(f, to);
}

static void open_pipe(struct flow *f)
{
    if (f->pipe[0] < 0 && pipe2(f->pipe, O_CLOEXEC | O_NONBLOCK) == 0)
        (void)fcntl(f->pipe[0], F_SETPIPE_SZ, PIPE_SIZE); /* a smaller one works too */
}

static void hold(struct flow *f, const unsigned char *data, size_t len)
{
    f->held = mem_realloc(NULL, len);
    memcpy(f->held, data, len);
    f->at = 0;
    f->len = len;
}

/* One read and one write.  *n: bytes read, 0 when there were none.  False: an end is broken. */
static bool pass_more(struct tunnels *t, struct flow *f, int from, int to, size_t *n)
{
    ssize_t got = recv(from, t->chunk, sizeof(t->chunk), MSG_DONTWAIT);
    size_t passed;

    *n = got > 0 ? (size_t)got : 0;
    f->ended = got == 0;
    if (got < 0)
        return errno == EAGAIN || errno == EINTR;
    if (got == 0)
        return true;
    if (!pass(to, t->chunk, *n, &passed))
        return false;
    if (passed < *n)
        hold(f, t->chunk + passed, *n - passed);
    return true;
}

static bool waits(const struct flow *f)
{
    return f->held != NULL || f->piped > 0;
}

static bool run_flow(struct tunnels *t, struct flow *f)
{
    struct tunnel *c = f->tunnel;
    int i = (int)(f - c->flows);
    struct end *from = &c->ends[i], *to = &c->ends[1 - i];
    size_t n = 0;

    if (!pass_held(f, to->fd) || !splice_held(f, to->fd))
        return false;
    if (!waits(f) && !f->ended && f->pipe[0] >= 0 && !splice_more(f, from->fd, to->fd, &n))
        return false;
    if (!waits(f) && !f->ended && f->pipe[0] < 0 && !pass_more(t, f, from->fd, to->fd, &n))
        return false;
    if (n >= BULK)
        open_pipe(f);
    if (waits(f))
        arm(t, to, EPOLLOUT);
    else if (f->ended && !f->shut)
        f->shut = true, (void)shutdown(to->fd, SHUT_WR);
    else if (!f->ended && n >= BULK)
        pause_flow(t, f, i == OUTSIDE && n > FAST ? FAST_PAUSE_NS : BULK_PAUSE_NS);
    else if (!f->ended)
        arm(t, from, EPOLLIN);
    return true;
}

/* Flows that can go on: bit i is flows[i]. */
static void turn(struct tunnels *t, struct tunnel *c, unsigned which)
{
    if (c->closed)
        return;
    for (unsigned i = 0; i < 2; i++) {
        if ((which & (1u << i)) == 0 || c->flows[i].due_ns != 0)
            continue;
        if (!run_flow(t, &c->flows[i])) {
            finish(t, c);
            return;
        }
    }
    if (c->flows[0].shut && c->flows[1].shut)
        finish(t, c);
}

static void on_event(struct tunnels *t, const struct epoll_event *ev)
{
    struct end *e = ev->data.ptr;
    struct tunnel *c;
    unsigned i;

    if (e == NULL) {
        uint64_t n;

        (void)!read(t->wake, &n, sizeof(n));
        return;
    }
    c = e->tunnel;
    i = (unsigned)(e - c->ends);
    e->armed = 0; /* both flows of this end have their turn, so each arms what it waits for */
    turn(t, c, 1u << i | (waits(&c->flows[1 - i]) ? 1u << (1 - i) : 0));
}

static void run_due(struct tunnels *t)
{
    int64_t now = t->pausing != NULL ? now_ns() : 0;

    while (t->pausing != NULL && t->pausing->due_ns <= now) {
        struct flow *f = t->pausing;

        unpause(t, f);
        turn(t, f->tunnel, 1u << (unsigned)(f - f->tunnel->flows));
    }
}

static void end_marked(struct tunnels *t)
{
    struct tunnel *c;

    for (;;) {
        (void)pthread_mutex_lock(&t->lock);
        for (c = t->all; c != NULL && !c->over && !t->stopping; c = c->next)
            continue;
        (void)pthread_mutex_unlock(&t->lock);
        if (c == NULL)
            return;
        finish(t, c);
    }
}

static void bury(struct tunnels *t)
{
    while (t->closed != NULL) {
        struct tunnel *c = t->closed;

        t->closed = c->next;
        free(c);
    }
}

/* Waits for events, at most until the oldest pause is over.  Two calls: epoll_pwait2 is not there
 * before Linux 5.11, and epoll_wait knows whole milliseconds only. */
static int next_events(struct tunnels *t, struct epoll_event *events)
{
    struct pollfd p = { .fd = t->epoll, .events = POLLIN };
    struct timespec wait = { 0 };
    int64_t left;

    if (t->pausing == NULL)
        return epoll_wait(t->epoll, events, EVENTS, -1);
    left = t->pausing->due_ns - now_ns();
    wait.tv_nsec = left > 0 ? (long)left : 0;
    return ppoll(&p, 1, &wait, NULL) > 0 ? epoll_wait(t->epoll, events, EVENTS, 0) : 0;
}

static void run(void *arg)
{
    struct tunnels *t = arg;
    bool stopping = false;

    (void)prctl(PR_SET_TIMERSLACK, 10000UL); /* the pause is of that order */
    while (!stopping) {
        struct epoll_event events[EVENTS];
        bool woken = false;
        int n = next_events(t, events);

        for (int i = 0; i < n; i++) {
            woken = woken || events[i].data.ptr == NULL;
            on_event(t, &events[i]);
        }
        run_due(t);
        if (woken) {
            end_marked(t);
            (void)pthread_mutex_lock(&t->lock);
            stopping = t->stopping;
            (void)pthread_mutex_unlock(&t->lock);
        }
        bury(t);
    }
}

/* ---- from any thread ---- */

enum sbx_code tunnels_start(struct tunnels **out, struct sbx_err *err)
{
    struct tunnels *t = mem_zalloc(sizeof(*t));
    struct epoll_event e = { .events = EPOLLIN };
    enum sbx_code code = SBX_OK;

    (void)pthread_mutex_init(&t->lock, NULL);
    t->epoll = epoll_create1(EPOLL_CLOEXEC);
    t->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (t->epoll < 0 || t->wake < 0 || epoll_ctl(t->epoll, EPOLL_CTL_ADD, t->wake, &e) < 0)
        code = err_sys(err, SBX_E_INTERNAL, "start the tunnels");
    if (code == SBX_OK)
        code = thread_start(&t->thread, "tunnels", run, t, err);
    if (code != SBX_OK) {
        tunnels_free(t);
        return code;
    }
    *out = t;
    return SBX_OK;
}

static void wake(struct tunnels *t)
{
    const uint64_t one = 1;

    (void)!write(t->wake, &one, sizeof(one));
}

void tunnels_free(struct tunnels *t)
{
    if (t == NULL)
        return;
    (void)pthread_mutex_lock(&t->lock);
    t->stopping = true;
    (void)pthread_mutex_unlock(&t->lock);
    if (t->wake >= 0)
        wake(t);
    thread_join(&t->thread);
    end_marked(t);
    bury(t);
    fd_close(&t->epoll);
    fd_close(&t->wake);
    (void)pthread_mutex_destroy(&t->lock);
    free(t);
}

static bool has_room(const struct tunnels *t, const char *id)
{
    size_t own = 0;

    for (const struct tunnel *c = t->all; c != NULL; c = c->next)
        own += strcmp(c->id, id) == 0 ? 1 : 0;
    return !t->stopping && t->count < TUNNELS_MAX &&
           (own < TUNNELS_FAIR || (t->count < TUNNELS_MAX / 2 && own < SBX_AGENT_RELAYS_MAX));
}

bool tunnels_room(struct tunnels *t, const char *id)
{
    bool room;

    (void)pthread_mutex_lock(&t->lock);
    room = has_room(t, id);
    (void)pthread_mutex_unlock(&t->lock);
    return room;
}

static void set_up(struct tunnel *c, const char *id, int inside, int outside, const void *first,
                   size_t first_len)
{
    const int in_buffer = INSIDE_BUFFER, out_buffer = OUTSIDE_BUFFER;

    (void)str_copy(c->id, sizeof(c->id), id);
    c->ends[INSIDE].fd = inside;
    c->ends[OUTSIDE].fd = outside;
    /* Past the host's own limits (root may); a fixed size keeps the kernel from growing it. */
    (void)setsockopt(inside, SOL_SOCKET, SO_SNDBUFFORCE, &in_buffer, sizeof(in_buffer));
    (void)setsockopt(outside, SOL_SOCKET, SO_RCVBUFFORCE, &out_buffer, sizeof(out_buffer));
    for (int i = 0; i < 2; i++) {
        int fd = c->ends[i].fd;

        c->ends[i].tunnel = c->flows[i].tunnel = c;
        c->ends[i].armed = EPOLLIN;
        c->flows[i].pipe[0] = c->flows[i].pipe[1] = -1;
        (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    }
    if (first_len > 0) {
        hold(&c->flows[INSIDE], first, first_len);
        c->ends[OUTSIDE].armed |= EPOLLOUT;
    }
}

bool tunnels_add(struct tunnels *t, const char *id, int inside, int outside, const void *first,
                 size_t first_len)
{
    struct tunnel *c = mem_zalloc(sizeof(*c));
    bool ok = true;

    set_up(c, id, inside, outside, first, first_len);
    (void)pthread_mutex_lock(&t->lock);
    if (!has_room(t, id)) {
        (void)pthread_mutex_unlock(&t->lock);
        for (int i = 0; i < 2; i++)
            fd_close(&c->ends[i].fd);
        free(c->flows[INSIDE].held);
        free(c);
        return false;
    }
    c->next = t->all;
    if (c->next != NULL)
        c->next->prev = c;
    t->all = c;
    t->count++;
    /* From here on the thread may know it: it alone can take it back. */
    for (int i = 0; i < 2; i++) {
        struct epoll_event e = { .events = c->ends[i].armed | EPOLLONESHOT,
                                 .data.ptr = &c->ends[i] };

        ok = epoll_ctl(t->epoll, EPOLL_CTL_ADD, c->ends[i].fd, &e) == 0 && ok;
    }
    c->over = !ok;
    (void)pthread_mutex_unlock(&t->lock);
    if (!ok)
        wake(t);
    return ok;
}

void tunnels_end(struct tunnels *t, const char *id)
{
    bool any = false;

    (void)pthread_mutex_lock(&t->lock);
    for (struct tunnel *c = t->all; c != NULL; c = c->next) {
        if (strcmp(c->id, id) != 0)
            continue;
        c->over = any = true;
        for (int i = 0; i < 2; i++)
            (void)shutdown(c->ends[i].fd, SHUT_RDWR);
    }
    (void)pthread_mutex_unlock(&t->lock);
    if (any)
        wake(t);
}

size_t tunnels_count(struct tunnels *t)
{
    size_t n;

    (void)pthread_mutex_lock(&t->lock);
    n = t->count;
    (void)pthread_mutex_unlock(&t->lock);
    return n;
}
