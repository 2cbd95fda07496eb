#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/scoped.h"
#include "base/str.h"
#include "base/time.h"
#include "gateway/egress_impl.h"

enum {
    HELPERS_MAX = 4,
    LINE_MAX_LEN = 4096,
    POLL_MS = 20,   /* while a child gets ready */
    RETRY_MS = 500, /* times failures, between two starts */
    RETRY_MAX_MS = 30000,
    STEADY_MS = 60000, /* a child that ran that long did not fail to start */
};

/* A connection of the proxy's helper: lines in, lines out. */
struct helper {
    int fd; /* -1: free */
    struct buf in;
};

int egress_socket_of(const struct egress *e, int domain, int type, int protocol)
{
    SCOPED_FD int home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    SCOPED_FD int there = open(e->ns_path, O_RDONLY | O_CLOEXEC);
    int fd = -1, saved;

    if (home < 0 || there < 0 || setns(there, CLONE_NEWNET) < 0)
        return -1;
    fd = socket(domain, type | SOCK_CLOEXEC, protocol);
    saved = errno;
    /* A thread that cannot come back would make everything else in the wrong namespace. */
    if (setns(home, CLONE_NEWNET) < 0)
        abort();
    errno = saved;
    return fd;
}

int egress_socket(const struct egress *e, int domain, int type)
{
    return egress_socket_of(e, domain, type, 0);
}

/* Has the child's port come up, in the gateway namespace? */
static bool listens(const struct egress *e, const struct egress_child_kind *kind)
{
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)kind->port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    SCOPED_FD int fd = egress_socket(e, AF_INET, SOCK_STREAM);

    return fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0;
}

static bool write_config(struct egress *e, const struct egress_child_kind *kind, int fd)
{
    SCOPED_BUF struct buf text = BUF_INIT(EGRESS_CONFIG_MAX);

    kind->configure(e, &text);
    return !text.full && fd >= 0 && ftruncate(fd, 0) == 0 &&
           pwrite(fd, text.data, text.len, 0) == (ssize_t)text.len;
}

static enum sbx_code spawn(struct egress *e, const struct egress_child_kind *kind,
                           struct egress_child *c, struct sbx_err *err)
{
    char program[EGRESS_PATH_SIZE], net[EGRESS_PATH_SIZE + 8], path[64];
    struct process_spec spec = PROCESS_SPEC_INIT;
    int keep[2] = { -1, -1 };
    /* Its own user; it dies with this thread. */
    const char *argv[] = { "nsenter", net,        "setpriv",        "--reuid",        kind->user,
                           "--regid", kind->user, "--clear-groups", "--no-new-privs", "--pdeathsig",
                           "KILL",    program,    kind->flags[0],   kind->flags[1],   path,
                           NULL };

    if (egress_program(kind->name, program) == NULL)
        return err_set(err, SBX_E_UNAVAILABLE, "the program %s is not installed", kind->name);
    if (c->config_fd < 0)
        c->config_fd = memfd_create(kind->name, MFD_CLOEXEC);
    keep[0] = c->config_fd;
    if (!write_config(e, kind, c->config_fd))
        return err_set(err, SBX_E_INTERNAL, "the configuration of %s", kind->name);
    (void)snprintf(net, sizeof(net), "--net=%s", e->ns_path);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", c->config_fd);
    spec.argv = argv;
    spec.keep = keep;

    return process_start(&spec, &c->process, err);
}

static void child_failed(struct egress_child *c, const struct egress_child_kind *kind,
                         const char *why)
{
    int64_t pause = RETRY_MS;

    process_end(&c->process);
    if (time_mono_ms() - c->started_ms > STEADY_MS)
        c->failures = 0;
    for (int i = 0; i < c->failures && pause < RETRY_MAX_MS; i++)
        pause *= 2;
    c->failures++;
    c->retry_ms = time_mono_ms() + pause;
    c->ready = false;
    (void)str_copy(c->why, sizeof(c->why), why);
    log_warn("a network service does not run", LOG_S("service", kind->name), LOG_S("why", why));
}

/* One step of a child's life; called with the lock, which it leaves while it works. */
static void child_step(struct egress *e, const struct egress_child_kind *kind,
                       struct egress_child *c)
{
    struct sbx_err err = { 0 };
    int status;

    if (c->process.pid == 0) {
        if (time_mono_ms() < c->retry_ms)
            return;
        c->started_ms = time_mono_ms();
        if (spawn(e, kind, c, &err) != SBX_OK)
            child_failed(c, kind, err.msg);
        return;
    }
    if (process_wait(&c->process, 0, &status, &err) == SBX_OK) {
        child_failed(c, kind, "it ended");
    } else if (!c->ready) {
        pthread_mutex_unlock(&e->lock);
        bool up = listens(e, kind);

        pthread_mutex_lock(&e->lock);
        c->ready = up;
        if (up)
            c->why[0] = 0;
        else if (time_mono_ms() - c->started_ms > EGRESS_READY_MS)
            child_failed(c, kind, "it was not ready in time");
    }
    pthread_cond_broadcast(&e->changed);
}

static void helper_close(struct helper *h)
{
    fd_close(&h->fd);
    buf_fini(&h->in);
}

/* "12 10.213.0.6 example.com 443 ask" is answered "12 OK" or "12 ERR". */
static bool helper_line(struct egress *e, struct helper *h, char *line)
{
    char *rest = strchr(line, ' ');
    char answer[64];
    int len;

    if (rest == NULL || rest - line > 20)
        return false;
    *rest++ = 0;
    len = snprintf(answer, sizeof(answer), "%s %s\n", line,
                   egress_proxy_answer(e, rest) ? "OK" : "ERR");
    return write(h->fd, answer, (size_t)len) == len;
}

static void helper_read(struct egress *e, struct helper *h)
{
    char *room = buf_reserve(&h->in, LINE_MAX_LEN);
    ssize_t n = room == NULL ? -1 : read(h->fd, room, LINE_MAX_LEN);
    char *end;

    if (n <= 0) {
        helper_close(h);
        return;
    }
    h->in.len += (size_t)n;
    h->in.data[h->in.len] = 0;
    while (h->in.len > 0 && (end = memchr(h->in.data, '\n', h->in.len)) != NULL) {
        *end = 0;
        if (!helper_line(e, h, h->in.data)) {
            helper_close(h);
            return;
        }
        buf_consume(&h->in, (size_t)(end - h->in.data) + 1);
    }
}

static void helper_accept(struct egress *e, struct helper helpers[HELPERS_MAX])
{
    SCOPED_FD int fd = accept4(e->helper_fd, NULL, NULL, SOCK_CLOEXEC);

    for (int i = 0; fd >= 0 && i < HELPERS_MAX; i++)
        if (helpers[i].fd < 0) {
            helpers[i] = (struct helper){ .fd = fd, .in = BUF_INIT(LINE_MAX_LEN * 4) };
            fd = -1;
        }
}

/* Until a child wants its next step; -1: its pidfd tells. */
static int child_wait(const struct egress_child *c)
{
    int64_t left = c->retry_ms - time_mono_ms();

    if (c->process.pid == 0)
        return left > 0 ? (int)left : 0;
    return c->ready ? -1 : POLL_MS;
}

static int wait_ms(const struct egress *e)
{
    int64_t spare = e->spare_ms - time_mono_ms();
    int waits[] = { child_wait(&e->resolver), e->proxy_wanted ? child_wait(&e->proxy) : -1,
                    e->spares == EGRESS_SPARES ? -1
                    : spare > 0                ? (int)spare
                                               : 0 };
    int least = -1;

    for (size_t i = 0; i < COUNT_OF(waits); i++)
        if (waits[i] >= 0 && (least < 0 || waits[i] < least))
            least = waits[i];
    return least;
}

static bool spare_due(struct egress *e)
{
    bool due;

    pthread_mutex_lock(&e->lock);
    due = e->spares < EGRESS_SPARES && time_mono_ms() >= e->spare_ms;
    pthread_mutex_unlock(&e->lock);
    return due;
}

static void serve(void *arg)
{
    struct egress *e = arg;
    struct helper helpers[HELPERS_MAX];

    for (int i = 0; i < HELPERS_MAX; i++)
        helpers[i].fd = -1;
    pthread_mutex_lock(&e->lock);
    while (!e->stop) {
        struct pollfd fds[4 + HELPERS_MAX] = {
            { .fd = e->wake_fd, .events = POLLIN },
            { .fd = e->helper_fd, .events = POLLIN },
            { .fd = -1, .events = POLLIN },
            { .fd = -1, .events = POLLIN },
        };
        uint64_t wakes;
        int wait;

        child_step(e, &egress_child_resolver, &e->resolver);
        if (e->proxy_wanted)
            child_step(e, &egress_child_proxy, &e->proxy);
        wait = wait_ms(e);
        if (e->resolver.process.pid != 0)
            fds[2].fd = e->resolver.process.pidfd;
        if (e->proxy.process.pid != 0)
            fds[3].fd = e->proxy.process.pidfd;
        pthread_mutex_unlock(&e->lock);
        for (int i = 0; i < HELPERS_MAX; i++)
            fds[4 + i] = (struct pollfd){ .fd = helpers[i].fd, .events = POLLIN };
        if (poll(fds, COUNT_OF(fds), wait) == 0 && spare_due(e))
            egress_spare_make(e); /* nobody asks for anything */
        if (fds[0].revents != 0)
            (void)!read(e->wake_fd, &wakes, sizeof(wakes));
        if (fds[1].revents != 0)
            helper_accept(e, helpers);
        for (int i = 0; i < HELPERS_MAX; i++)
            if (fds[4 + i].fd >= 0 && fds[4 + i].revents != 0)
                helper_read(e, &helpers[i]);
        pthread_mutex_lock(&e->lock);
    }
    process_end(&e->proxy.process);
    process_end(&e->resolver.process);
    e->proxy.ready = e->resolver.ready = false;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
    for (int i = 0; i < HELPERS_MAX; i++)
        if (helpers[i].fd >= 0)
            helper_close(&helpers[i]);
}

void egress_service_wake(struct egress *e)
{
    uint64_t one = 1;

    (void)!write(e->wake_fd, &one, sizeof(one));
}

/* With the lock: until the child is ready, or has failed, or too much time went. */
static void await(struct egress *e, const struct egress_child *c)
{
    int64_t deadline = time_mono_ms() + EGRESS_READY_MS;
    int failures = c->failures;

    while (!c->ready && !e->stop && c->failures == failures && time_mono_ms() < deadline) {
        struct timespec t;

        (void)clock_gettime(CLOCK_MONOTONIC, &t);
        t.tv_sec += 1;
        (void)pthread_cond_timedwait(&e->changed, &e->lock, &t);
    }
}

enum sbx_code egress_proxy_need(struct egress *e, bool wait, struct sbx_err *err)
{
    enum sbx_code code = SBX_OK;

    if (e->helper == NULL)
        return err_set(err, SBX_E_UNAVAILABLE, "this region has no egress proxy");
    pthread_mutex_lock(&e->lock);
    if (!e->proxy_wanted) {
        e->proxy_wanted = true;
        egress_service_wake(e);
    }
    if (wait) /* the relay's thread must not: it asks again with the next connection */
        await(e, &e->proxy);
    if (!e->proxy.ready)
        code = err_set(err, SBX_E_UNAVAILABLE, "this region's egress proxy does not run%s%s",
                       e->proxy.why[0] != 0 ? ": " : "", e->proxy.why);
    pthread_mutex_unlock(&e->lock);
    return code;
}

static enum sbx_code listen_helper(struct egress *e, struct sbx_err *err)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    int len = snprintf(at.sun_path + 1, sizeof(at.sun_path) - 1, "sbx-%s-egress", e->tag);

    e->helper_fd = egress_socket(e, AF_UNIX, SOCK_STREAM);
    if (e->helper_fd < 0 ||
        bind(e->helper_fd, (struct sockaddr *)&at,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len)) < 0 ||
        listen(e->helper_fd, HELPERS_MAX) < 0)
        return err_sys(err, SBX_E_UNAVAILABLE,
                       "another gateway with this tag runs, or its namespace is damaged");
    return SBX_OK;
}

enum sbx_code egress_service_start(struct egress *e, struct sbx_err *err)
{
    enum sbx_code code = listen_helper(e, err);

    if (code != SBX_OK)
        return code;
    e->wake_fd = eventfd(0, EFD_CLOEXEC);
    if (e->wake_fd < 0)
        return err_sys(err, SBX_E_INTERNAL, "eventfd");
    code = thread_start(&e->service, "egress", serve, e, err);
    if (code != SBX_OK)
        return code;
    pthread_mutex_lock(&e->lock);
    await(e, &e->resolver);
    if (!e->resolver.ready)
        code = err_set(err, SBX_E_UNAVAILABLE, "default egress needs the resolver unbound: %s",
                       e->resolver.why[0] != 0 ? e->resolver.why : "it was not ready in time");
    pthread_mutex_unlock(&e->lock);
    return code;
}

static void reconfigure(struct egress *e, const struct egress_child_kind *kind,
                        struct egress_child *c)
{
    if (c->process.pid == 0) /* its next start does it */
        return;
    if (write_config(e, kind, c->config_fd))
        process_kill(&c->process, SIGHUP);
    else
        child_failed(c, kind, "its configuration could not be written");
}

void egress_service_reconfigure(struct egress *e)
{
    pthread_mutex_lock(&e->lock);
    reconfigure(e, &egress_child_resolver, &e->resolver);
    reconfigure(e, &egress_child_proxy, &e->proxy);
    pthread_mutex_unlock(&e->lock);
    egress_service_wake(e);
}

void egress_service_stop(struct egress *e)
{
    pthread_mutex_lock(&e->lock);
    e->stop = true;
    pthread_mutex_unlock(&e->lock);
    if (e->wake_fd >= 0)
        egress_service_wake(e);
    thread_join(&e->service);
    fd_close(&e->helper_fd);
    fd_close(&e->wake_fd);
    fd_close(&e->resolver.config_fd);
    fd_close(&e->proxy.config_fd);
}
