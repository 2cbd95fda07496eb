/* The fake driver: no runtime, but the real channel.  Each sandbox is an agent of the
 * agent protocol that lives in one thread of ours and dials the gateway's socket, so that
 * everything above the driver is the real thing under thousands of sandboxes, and faults
 * can be asked for ([fake]).  Its sandboxes die with the gateway.
 *
 * Commands it knows: true, false, echo WORDS, sleep SECONDS, spin BYTES (that much output),
 * die (its sandbox ends); all others end with 0 and nothing said. */

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/id_map.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "base/thread.h"
#include "base/time.h"
#include "gateway/driver.h"
#include "gateway/relay.h"

enum {
    EVENTS = 128,
    READ_SIZE = 64 * 1024,
    SPIN_MAX = 64 * 1024 * 1024,
    ARGS_MAX = 16, /* words that a fake command looks at */
};

struct fake_exec {
    struct fake_exec *next;
    char id[ID_SIZE];
    uint32_t stream;
    int64_t due_ms;
    uint64_t exit_code, signal, out_bytes;
    bool timed_out;
};

struct fake_agent {
    struct fake_agent *grave;
    char id[ID_SIZE];
    int fd; /* -1: not dialled, or dead */
    struct sockaddr_un address;
    socklen_t address_len;
    bool alive, ready, dead;
    int64_t ready_ms; /* when it says READY; 0: has, or never will */
    int64_t die_ms;   /* when it ends by itself; 0: never */
    struct buf in, out;
    struct fake_exec *execs;
};

struct fake {
    struct driver base;
    struct driver_events events;
    const struct config *config;
    pthread_mutex_t lock;
    struct id_map agents;
    struct fake_agent *grave;
    uint64_t prepared, started;
    int64_t due_ms; /* the earliest time at which something may be due */
    int epoll, wake;
    bool stopping;
    struct thread thread;
};

static struct fake *of(struct driver *d)
{
    return (struct fake *)(void *)d;
}

static int64_t knob(const struct fake *f, const char *key)
{
    return config_int(f->config, "fake", key);
}

static bool every(uint64_t n, int64_t each)
{
    return each > 0 && n % (uint64_t)each == 0;
}

static void wake(struct fake *f)
{
    const uint64_t one = 1;

    (void)!write(f->wake, &one, sizeof(one));
}

/* ---- the agent's side of the channel; under the lock ---- */

static void schedule(struct fake *f, int64_t at_ms)
{
    if (at_ms < f->due_ms)
        f->due_ms = at_ms;
}

static void flush(struct fake *f, struct fake_agent *a)
{
    struct epoll_event e = { .events = EPOLLIN, .data.ptr = a };

    while (a->out.len > 0) {
        ssize_t n = send(a->fd, a->out.data, a->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n <= 0)
            break;
        buf_consume(&a->out, (size_t)n);
    }
    if (a->out.len > 0)
        e.events |= EPOLLOUT;
    else
        buf_fini(&a->out);
    (void)epoll_ctl(f->epoll, EPOLL_CTL_MOD, a->fd, &e);
}

static void say(struct fake *f, struct fake_agent *a, uint8_t type, uint32_t stream,
                const struct buf *payload)
{
    if (a->fd >= 0 && relay_put_frame(&a->out, type, stream, payload))
        flush(f, a);
}

static void say_exit(struct fake *f, struct fake_agent *a, const struct fake_exec *x)
{
    SCOPED_BUF struct buf p = BUF_INIT(512);

    (void)relay_put_number(&p, SBX_TAG_EXIT_CODE, x->exit_code);
    if (x->signal != 0)
        (void)relay_put_number(&p, SBX_TAG_SIGNAL, x->signal);
    if (x->timed_out)
        (void)relay_put_number(&p, SBX_TAG_TIMED_OUT, 1);
    (void)relay_put_number(&p, SBX_TAG_STDOUT_BYTES, x->out_bytes);
    (void)relay_put_number(&p, SBX_TAG_STDERR_BYTES, 0);
    (void)relay_put_number(&p, SBX_TAG_DURATION_MS, 1);
    (void)relay_put_text(&p, SBX_TAG_EXEC_ID, x->id);
    say(f, a, SBX_AGENT_EXIT, x->stream, &p);
}

static void say_out(struct fake *f, struct fake_agent *a, struct fake_exec *x, const void *data,
                    size_t len)
{
    struct buf part = { .data = (char *)(uintptr_t)data, .len = len, .max = len };

    say(f, a, SBX_AGENT_STDOUT, x->stream, &part);
    x->out_bytes += len;
}

struct request {
    char args[ARGS_MAX][256];
    size_t count;
    uint64_t timeout_ms, cap;
};

static void parse_exec(const unsigned char *payload, size_t len, struct request *r,
                       struct fake_exec *x)
{
    struct sbx_agent_field field;
    size_t at = 0;
    bool bad = false;

    *r = (struct request){ .timeout_ms = 1000, .cap = SBX_OUTPUT_MAX };
    while (sbx_agent_field_next(payload, len, &at, &field, &bad)) {
        size_t n = field.len < 255 ? field.len : 255;

        if (field.tag == SBX_TAG_ARG && r->count < ARGS_MAX)
            memcpy(r->args[r->count++], field.data, n);
        else if (field.tag == SBX_TAG_TIMEOUT_MS && field.len == 8)
            r->timeout_ms = sbx_agent_get_u64(field.data);
        else if (field.tag == SBX_TAG_CAP_STDOUT && field.len == 8)
            r->cap = sbx_agent_get_u64(field.data);
        else if (field.tag == SBX_TAG_EXEC_ID && field.len == SBX_ID_LEN)
            memcpy(x->id, field.data, SBX_ID_LEN);
    }
}

static void say_words(struct fake *f, struct fake_agent *a, struct fake_exec *x,
                      const struct request *r)
{
    for (size_t i = 1; i < r->count; i++) {
        if (i > 1)
            say_out(f, a, x, " ", 1);
        say_out(f, a, x, r->args[i], strlen(r->args[i]));
    }
    say_out(f, a, x, "\n", 1);
}

static void say_bytes(struct fake *f, struct fake_agent *a, struct fake_exec *x, uint64_t total,
                      uint64_t cap)
{
    static const char BLOCK[SBX_AGENT_DATA_MAX] = { 0 };
    uint64_t sent = total < cap ? total : cap;

    for (uint64_t at = 0; at < sent; at += sizeof(BLOCK)) {
        size_t n = sent - at < sizeof(BLOCK) ? (size_t)(sent - at) : sizeof(BLOCK);

        say_out(f, a, x, BLOCK, n);
    }
    x->out_bytes = total;
}

static void on_exec(struct fake *f, struct fake_agent *a, uint32_t stream,
                    const unsigned char *payload, size_t len)
{
    struct fake_exec *x = mem_zalloc(sizeof(*x));
    int64_t takes = knob(f, "execute_delay_ms");
    struct request r;
    int64_t n = 0;

    parse_exec(payload, len, &r, x);
    x->stream = stream;
    say(f, a, SBX_AGENT_STARTED, stream, NULL);
    if (strcmp(r.args[0], "false") == 0)
        x->exit_code = 1;
    else if (strcmp(r.args[0], "echo") == 0)
        say_words(f, a, x, &r);
    else if (strcmp(r.args[0], "sleep") == 0 && str_parse_int(r.args[1], 0, 86400, &n))
        takes += n * 1000;
    else if (strcmp(r.args[0], "spin") == 0 && str_parse_int(r.args[1], 0, SPIN_MAX, &n))
        say_bytes(f, a, x, (uint64_t)n, r.cap);
    else if (strcmp(r.args[0], "die") == 0)
        schedule(f, a->die_ms = time_mono_ms());
    if ((uint64_t)takes >= r.timeout_ms) {
        takes = (int64_t)r.timeout_ms;
        x->timed_out = true;
        x->exit_code = 124;
    }
    x->due_ms = time_mono_ms() + takes;
    x->next = a->execs;
    a->execs = x;
    schedule(f, x->due_ms);
}

static void on_kill(struct fake *f, struct fake_agent *a, uint32_t stream)
{
    for (struct fake_exec *x = a->execs; x != NULL; x = x->next) {
        if (x->stream != stream)
            continue;
        x->exit_code = 137;
        x->signal = 9;
        schedule(f, x->due_ms = 0);
    }
}

static void on_frame(struct fake *f, struct fake_agent *a, const struct sbx_agent_header *h,
                     const unsigned char *payload)
{
    SCOPED_BUF struct buf p = BUF_INIT(READ_SIZE);

    switch (h->type) {
    case SBX_AGENT_WELCOME:
        if (a->ready)
            break;
        a->ready_ms = time_mono_ms() + knob(f, "deploy_delay_ms");
        if (every(f->started, knob(f, "hang_every")))
            a->ready_ms = 0;
        else
            schedule(f, a->ready_ms);
        break;
    case SBX_AGENT_EXEC:
        on_exec(f, a, h->stream, payload, h->length);
        break;
    case SBX_AGENT_KILL:
        on_kill(f, a, h->stream);
        break;
    case SBX_AGENT_PING:
        say(f, a, SBX_AGENT_PONG, h->stream, NULL);
        break;
    case SBX_AGENT_LIST:
        for (struct fake_exec *x = a->execs; x != NULL; x = x->next)
            (void)relay_put_text(&p, SBX_TAG_EXEC_ID, x->id);
        say(f, a, SBX_AGENT_LISTED, h->stream, &p);
        break;
    case SBX_AGENT_FREEZE:
    case SBX_AGENT_THAW:
    case SBX_AGENT_PUT_FILE:
        say(f, a, SBX_AGENT_DONE, h->stream, NULL);
        break;
    case SBX_AGENT_DIAL:
    case SBX_AGENT_GET_FILE:
        (void)relay_put_number(&p, SBX_TAG_REASON, SBX_AGENT_REASON_LIMIT);
        say(f, a, SBX_AGENT_DONE, h->stream, &p);
        break;
    default:
        break;
    }
}

static void hang_up(struct fake *f, struct fake_agent *a)
{
    if (a->fd >= 0)
        (void)epoll_ctl(f->epoll, EPOLL_CTL_DEL, a->fd, NULL);
    fd_close(&a->fd);
    buf_fini(&a->in);
    buf_fini(&a->out);
    while (a->execs != NULL) {
        struct fake_exec *next = a->execs->next;

        free(a->execs);
        a->execs = next;
    }
    a->ready_ms = a->die_ms = 0;
}

static void on_readable(struct fake *f, struct fake_agent *a)
{
    char *room = buf_reserve(&a->in, READ_SIZE);
    ssize_t n = room != NULL ? recv(a->fd, room, READ_SIZE, MSG_DONTWAIT) : 0;
    size_t at = 0;

    if (n == 0 || (n < 0 && errno != EAGAIN)) {
        hang_up(f, a);
        return;
    }
    if (n > 0)
        a->in.len += (size_t)n;
    while (a->in.len - at >= SBX_AGENT_HEADER_LEN) {
        const unsigned char *p = (const unsigned char *)a->in.data + at;
        struct sbx_agent_header h;

        if (!sbx_agent_header_parse(p, &h) || a->in.len - at - SBX_AGENT_HEADER_LEN < h.length)
            break;
        at += SBX_AGENT_HEADER_LEN + (size_t)h.length;
        on_frame(f, a, &h, p + SBX_AGENT_HEADER_LEN);
    }
    buf_consume(&a->in, at);
    if (a->in.len == 0)
        buf_fini(&a->in);
}

/* What is due of one agent; the next time something will be, or INT64_MAX.  *died: it ended. */
static int64_t run_due(struct fake *f, struct fake_agent *a, int64_t now, bool *died)
{
    int64_t next = INT64_MAX;

    if (a->ready_ms != 0 && now >= a->ready_ms) {
        a->ready_ms = 0;
        a->ready = true;
        say(f, a, SBX_AGENT_READY, 0, NULL);
        if (every(f->started, knob(f, "lose_every")))
            a->die_ms = now;
    }
    for (struct fake_exec **at = &a->execs; *at != NULL;) {
        struct fake_exec *x = *at;

        if (now < x->due_ms) {
            next = x->due_ms < next ? x->due_ms : next;
            at = &x->next;
            continue;
        }
        *at = x->next;
        say_exit(f, a, x);
        free(x);
    }
    if (a->die_ms != 0 && now >= a->die_ms) {
        hang_up(f, a);
        a->alive = false;
        *died = true;
    }
    return a->ready_ms != 0 && a->ready_ms < next ? a->ready_ms : next;
}

/* Tells of every death outside the lock, one at a time: they are rare. */
static int64_t run_all(struct fake *f)
{
    char id[ID_SIZE];
    int64_t next;
    bool died;

    do {
        int64_t now = time_mono_ms();

        died = false;
        (void)pthread_mutex_lock(&f->lock);
        if (now < f->due_ms) {
            next = f->due_ms;
            (void)pthread_mutex_unlock(&f->lock);
            return next;
        }
        next = INT64_MAX;
        ID_MAP_EACH(&f->agents, slot)
        {
            struct fake_agent *a = slot->value;
            int64_t due = a->alive && !died ? run_due(f, a, now, &died) : INT64_MAX;

            if (died && id_map_get(&f->agents, a->id) != NULL && !a->alive)
                (void)str_copy(id, sizeof(id), a->id);
            next = due < next ? due : next;
            if (died)
                break;
        }
        f->due_ms = died ? now : next;
        (void)pthread_mutex_unlock(&f->lock);
        if (died)
            f->events.exited(f->events.arg, id);
    } while (died);
    return next;
}

static void bury(struct fake *f)
{
    while (f->grave != NULL) {
        struct fake_agent *a = f->grave;

        f->grave = a->grave;
        free(a);
    }
}

static void run(void *arg)
{
    struct fake *f = arg;

    for (;;) {
        struct epoll_event events[EVENTS];
        int64_t next = run_all(f);
        int64_t left = next - time_mono_ms();
        int n;

        (void)pthread_mutex_lock(&f->lock);
        bury(f);
        n = f->stopping ? -1 : 0;
        (void)pthread_mutex_unlock(&f->lock);
        if (n < 0)
            return;
        n = epoll_wait(f->epoll, events, EVENTS, next == INT64_MAX ? -1 : left < 0 ? 0 : (int)left);
        (void)pthread_mutex_lock(&f->lock);
        for (int i = 0; i < n; i++) {
            struct fake_agent *a = events[i].data.ptr;
            uint64_t count;

            if (a == NULL) {
                (void)!read(f->wake, &count, sizeof(count));
                continue;
            }
            if (a->dead || a->fd < 0)
                continue;
            if ((events[i].events & EPOLLOUT) != 0)
                flush(f, a);
            if ((events[i].events & ~(uint32_t)EPOLLOUT) != 0)
                on_readable(f, a);
        }
        (void)pthread_mutex_unlock(&f->lock);
    }
}

/* ---- the driver ---- */

static void fake_close(struct driver *d)
{
    struct fake *f = of(d);

    (void)pthread_mutex_lock(&f->lock);
    f->stopping = true;
    (void)pthread_mutex_unlock(&f->lock);
    wake(f);
    thread_join(&f->thread);
    ID_MAP_EACH(&f->agents, slot)
    {
        hang_up(f, slot->value);
        free(slot->value);
    }
    id_map_fini(&f->agents);
    bury(f);
    fd_close(&f->epoll);
    fd_close(&f->wake);
    (void)pthread_mutex_destroy(&f->lock);
    free(f);
}

static enum sbx_code fake_open(const struct config *config, const struct driver_events *events,
                               struct driver **out, struct sbx_err *err)
{
    struct fake *f = mem_zalloc(sizeof(*f));
    struct epoll_event e = { .events = EPOLLIN };

    f->base.ops = &driver_fake;
    f->events = *events;
    f->config = config;
    f->due_ms = INT64_MAX;
    (void)pthread_mutex_init(&f->lock, NULL);
    f->epoll = epoll_create1(EPOLL_CLOEXEC);
    f->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (f->epoll < 0 || f->wake < 0 || epoll_ctl(f->epoll, EPOLL_CTL_ADD, f->wake, &e) < 0)
        err_put(err, SBX_E_INTERNAL, "start the fake driver");
    else
        (void)!thread_start(&f->thread, "fake-agents", run, f, err);
    if (err->code != SBX_OK) {
        fake_close(&f->base);
        return err->code;
    }
    *out = &f->base;
    return SBX_OK;
}

/* A name in the abstract namespace that the kernel picks: no file, no limit of folders. */
static enum sbx_code listen_at(struct fake_agent *a, int *out, struct sbx_err *err)
{
    SCOPED_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un any = { .sun_family = AF_UNIX };

    a->address_len = sizeof(a->address);
    if (fd < 0 || bind(fd, (struct sockaddr *)&any, sizeof(any.sun_family)) < 0 ||
        listen(fd, 8) < 0 || getsockname(fd, (struct sockaddr *)&a->address, &a->address_len) < 0)
        return err_sys(err, SBX_E_UNAVAILABLE, "make a fake agent's socket");
    *out = fd;
    fd = -1;
    return SBX_OK;
}

static enum sbx_code fake_prepare(struct driver *d, const struct driver_spec *spec,
                                  struct arena *arena, struct driver_prepared *out,
                                  struct sbx_err *err)
{
    struct fake *f = of(d);
    struct fake_agent *a = mem_zalloc(sizeof(*a));
    int64_t delay = knob(f, "prepare_delay_ms");
    uint64_t number;

    out->listen_fd = a->fd = -1;
    (void)str_copy(a->id, sizeof(a->id), spec->id);
    a->in.max = a->out.max = SPIN_MAX * 2;
    out->workload = (struct driver_workload){ .argv = arena_zalloc(arena, sizeof(char *)),
                                              .env = arena_zalloc(arena, sizeof(char *)),
                                              .cwd = "/workspace" };
    (void)pthread_mutex_lock(&f->lock);
    assert(id_map_get(&f->agents, spec->id) == NULL);
    id_map_put(&f->agents, spec->id, a);
    number = ++f->prepared;
    (void)pthread_mutex_unlock(&f->lock);
    if (delay > 0)
        (void)poll(NULL, 0, (int)delay); /* the fault that was asked for: a slow runtime */
    if (every(number, knob(f, "fail_every")))
        return err_set(err, SBX_E_UNAVAILABLE, "the fake driver fails this one");
    return spec->agent ? listen_at(a, &out->listen_fd, err) : SBX_OK;
}

static enum sbx_code fake_start(struct driver *d, const struct driver_spec *spec,
                                struct sbx_err *err)
{
    struct fake *f = of(d);
    SCOPED_BUF struct buf hello = BUF_INIT(256);
    struct epoll_event e = { .events = EPOLLIN };
    struct fake_agent *a;
    enum sbx_code code = SBX_OK;

    (void)relay_put_number(&hello, SBX_TAG_KIND, SBX_AGENT_CONTROL);
    (void)pthread_mutex_lock(&f->lock);
    a = id_map_get(&f->agents, spec->id);
    assert(a != NULL && !a->alive);
    e.data.ptr = a;
    a->alive = true;
    f->started++;
    if (spec->agent) {
        a->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (a->fd < 0 || connect(a->fd, (struct sockaddr *)&a->address, a->address_len) < 0 ||
            epoll_ctl(f->epoll, EPOLL_CTL_ADD, a->fd, &e) < 0)
            code = err_sys(err, SBX_E_UNAVAILABLE, "start a fake agent");
        else
            say(f, a, SBX_AGENT_HELLO, 0, &hello);
    }
    (void)pthread_mutex_unlock(&f->lock);
    return code;
}

static enum sbx_code fake_destroy(struct driver *d, const char *id, struct sbx_err *err)
{
    struct fake *f = of(d);
    struct fake_agent *a;

    (void)err;
    (void)pthread_mutex_lock(&f->lock);
    a = id_map_remove(&f->agents, id);
    if (a != NULL) {
        hang_up(f, a);
        a->dead = true;
        a->grave = f->grave;
        f->grave = a;
    }
    (void)pthread_mutex_unlock(&f->lock);
    if (a != NULL)
        wake(f);
    return SBX_OK;
}

static enum sbx_code fake_observe(struct driver *d, const char *id, struct driver_state *out,
                                  struct sbx_err *err)
{
    struct fake *f = of(d);
    struct fake_agent *a;

    (void)err;
    *out = (struct driver_state){ 0 };
    (void)pthread_mutex_lock(&f->lock);
    a = id_map_get(&f->agents, id);
    out->exists = a != NULL;
    out->alive = a != NULL && a->alive;
    (void)pthread_mutex_unlock(&f->lock);
    return SBX_OK;
}

static enum sbx_code fake_list(struct driver *d, struct arena *a, const char ***out,
                               struct sbx_err *err)
{
    (void)d;
    (void)err;
    *out = arena_zalloc(a, sizeof(**out)); /* a new process has none */
    return SBX_OK;
}

static enum sbx_code fake_adopt(struct driver *d, const char *id, int *listen_fd,
                                struct sbx_err *err)
{
    (void)d;
    (void)listen_fd;
    return err_set(err, SBX_E_NOT_FOUND, "%s does not run", id);
}

static json_t *fake_features(struct driver *d)
{
    (void)d;
    return json_pack("{s:b}", "fake", 1);
}

static int64_t fake_disk_free(struct driver *d)
{
    (void)d;
    return 1 << 20; /* it uses none */
}

const struct driver_ops driver_fake = {
    .name = "fake",
    .open = fake_open,
    .close = fake_close,
    .prepare = fake_prepare,
    .start = fake_start,
    .destroy = fake_destroy,
    .observe = fake_observe,
    .list = fake_list,
    .adopt = fake_adopt,
    .features = fake_features,
    .disk_free_mb = fake_disk_free,
};
