#include "net/net.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/thread.h"
#include "base/time.h"
#include "net/internal.h"

/* The calls thread waits at one place, epoll: libcurl tells which sockets and which
 * time-out it needs (curl_multi_socket_action), so a wake-up costs what happened, not
 * what is under way.  curl_multi_poll walks all transfers at each wake-up, which ten
 * thousand of them make too slow. */

enum {
    BUCKETS = 4096,
    EVENTS = 256,
    IDLE_DEFAULT = 256,
    TRANSFERS_DEFAULT = 20000,
    BEAT_MS = 60000, /* longest wait */
};

struct order {
    struct order *next;
    uint64_t id;
    bool cancel; /* else: resume */
};

struct net {
    struct net_config config;
    char *user_agent, *ca_file;
    struct thread thread;
    int epoll, wake;

    pthread_mutex_t lock; /* what other threads hand in */
    struct transfer *pending, **pending_tail;
    struct order *orders, **orders_tail;
    uint64_t last_id;
    size_t count; /* pending and under way */
    bool stopping;

    /* calls thread only */
    CURLM *multi;
    int64_t due_ms; /* of libcurl's timer; -1: none */
    struct transfer *buckets[BUCKETS];
};

/* --- libcurl's requests to us --- */

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *known)
{
    struct net *n = arg;
    struct epoll_event e = { .data.fd = fd };

    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        (void)epoll_ctl(n->epoll, EPOLL_CTL_DEL, fd, NULL); /* it may be closed already */
        (void)curl_multi_assign(n->multi, fd, NULL);
        return 0;
    }
    e.events =
        ((what & CURL_POLL_IN) != 0 ? EPOLLIN : 0u) | ((what & CURL_POLL_OUT) != 0 ? EPOLLOUT : 0u);
    if (known == NULL)
        (void)curl_multi_assign(n->multi, fd, n); /* any pointer: it is in the set */
    if (epoll_ctl(n->epoll, known == NULL ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &e) != 0) {
        /* the number was closed and given out again without our being told, or the reverse */
        if (epoll_ctl(n->epoll, known == NULL ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &e) != 0)
            return -1;
    }
    return 0;
}

static int on_timer(CURLM *multi, long timeout_ms, void *arg)
{
    struct net *n = arg;

    (void)multi;
    n->due_ms = timeout_ms < 0 ? -1 : time_mono_ms() + timeout_ms;
    return 0;
}

/* --- transfers --- */

static void bucket_put(struct net *n, struct transfer *t)
{
    struct transfer **b = &n->buckets[t->id % BUCKETS];

    t->bucket_next = *b;
    *b = t;
}

static void bucket_drop(struct net *n, struct transfer *t)
{
    struct transfer **at = &n->buckets[t->id % BUCKETS];

    while (*at != t)
        at = &(*at)->bucket_next;
    *at = t->bucket_next;
}

static void transfer_free(struct transfer *t)
{
    net_transfer_fini(t);
    free(t);
}

/* done runs without the lock: it may start other requests. */
static void end(struct net *n, struct transfer *t, CURLcode rc, const struct sbx_err *instead)
{
    struct net_answer answer;
    struct sbx_err err = { 0 };
    enum sbx_code code = net_transfer_result(t, rc, &answer, &err);

    if (instead != NULL) {
        err = *instead;
        code = err.code;
    }
    t->done(t->done_arg, &answer, code == SBX_OK ? NULL : &err);
    transfer_free(t);
    (void)pthread_mutex_lock(&n->lock);
    n->count--;
    (void)pthread_mutex_unlock(&n->lock);
}

static void begin(struct net *n, struct transfer *t)
{
    struct sbx_err err = { 0 };

    if (curl_multi_add_handle(n->multi, t->easy) == CURLM_OK) {
        bucket_put(n, t);
        return;
    }
    err_put(&err, SBX_E_UNAVAILABLE, "The request could not be started.");
    end(n, t, CURLE_OK, &err);
}

static void finish_done(struct net *n)
{
    CURLMsg *msg;
    int left;

    while ((msg = curl_multi_info_read(n->multi, &left)) != NULL) {
        CURLcode rc = msg->data.result;
        struct transfer *t = NULL;

        if (msg->msg != CURLMSG_DONE)
            continue;
        (void)curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, (char **)&t);
        (void)curl_multi_remove_handle(n->multi, t->easy); /* msg is gone from here on */
        bucket_drop(n, t);
        if (net_transfer_again(t, rc))
            begin(n, t);
        else
            end(n, t, rc, NULL);
    }
}

static void obey(struct net *n, const struct order *o)
{
    struct transfer *t = n->buckets[o->id % BUCKETS];
    struct sbx_err err = { 0 };

    while (t != NULL && t->id != o->id)
        t = t->bucket_next;
    if (t == NULL)
        return; /* it has ended */
    if (!o->cancel) {
        (void)curl_easy_pause(t->easy, CURLPAUSE_CONT); /* may call on_data at once */
        return;
    }
    (void)curl_multi_remove_handle(n->multi, t->easy);
    bucket_drop(n, t);
    err_put(&err, SBX_E_CONFLICT, "The request was given up.");
    end(n, t, CURLE_OK, &err);
}

/* Takes what other threads have handed in; true when the thread is to stop. */
static bool take_orders(struct net *n)
{
    struct transfer *t;
    struct order *o;
    bool stop;

    (void)pthread_mutex_lock(&n->lock);
    t = n->pending;
    n->pending = NULL;
    n->pending_tail = &n->pending;
    o = n->orders;
    n->orders = NULL;
    n->orders_tail = &n->orders;
    stop = n->stopping;
    (void)pthread_mutex_unlock(&n->lock);
    while (t != NULL) {
        struct transfer *next = t->next;

        begin(n, t);
        t = next;
    }
    while (o != NULL) {
        struct order *next = o->next;

        obey(n, o);
        free(o);
        o = next;
    }
    return stop;
}

static void end_all(struct net *n)
{
    for (size_t i = 0; i < BUCKETS; i++) {
        while (n->buckets[i] != NULL) {
            struct transfer *t = n->buckets[i];
            struct sbx_err err = { 0 };

            (void)curl_multi_remove_handle(n->multi, t->easy);
            bucket_drop(n, t);
            err_put(&err, SBX_E_UNAVAILABLE, "The program is stopping.");
            end(n, t, CURLE_OK, &err);
        }
    }
}

static void handle_events(struct net *n, const struct epoll_event *events, int count)
{
    int running;

    for (int i = 0; i < count; i++) {
        uint32_t e = events[i].events;
        uint64_t drained;
        int what = ((e & EPOLLIN) != 0 ? CURL_CSELECT_IN : 0) |
                   ((e & EPOLLOUT) != 0 ? CURL_CSELECT_OUT : 0) |
                   ((e & (EPOLLERR | EPOLLHUP)) != 0 ? CURL_CSELECT_ERR : 0);

        if (events[i].data.fd == n->wake) {
            if (read(n->wake, &drained, sizeof(drained)) < 0)
                continue; /* nothing in it: another wake-up has drained it */
        } else {
            (void)curl_multi_socket_action(n->multi, events[i].data.fd, what, &running);
        }
    }
    if (n->due_ms >= 0 && time_mono_ms() >= n->due_ms) {
        n->due_ms = -1;
        (void)curl_multi_socket_action(n->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
}

static void calls_main(void *arg)
{
    struct net *n = arg;
    struct epoll_event events[EVENTS];

    while (!take_orders(n)) {
        int64_t wait = n->due_ms < 0 ? BEAT_MS : n->due_ms - time_mono_ms();
        int count;

        wait = wait < 0 ? 0 : wait > BEAT_MS ? BEAT_MS : wait;
        count = epoll_wait(n->epoll, events, EVENTS, (int)wait);
        handle_events(n, events, count);
        finish_done(n);
    }
    end_all(n);
}

/* --- the public side --- */

static void wake(struct net *n)
{
    uint64_t one = 1;
    ssize_t rc = write(n->wake, &one, sizeof(one));

    (void)rc; /* full means that it will wake anyway */
}

static void net_free(struct net *n)
{
    if (n->multi != NULL)
        (void)curl_multi_cleanup(n->multi);
    if (n->epoll >= 0)
        (void)close(n->epoll);
    if (n->wake >= 0)
        (void)close(n->wake);
    (void)pthread_mutex_destroy(&n->lock);
    free(n->user_agent);
    free(n->ca_file);
    free(n);
}

static enum sbx_code open_multi(struct net *n, struct sbx_err *err)
{
    struct epoll_event e = { .events = EPOLLIN };

    n->epoll = epoll_create1(EPOLL_CLOEXEC);
    n->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    e.data.fd = n->wake;
    if (n->epoll < 0 || n->wake < 0 || epoll_ctl(n->epoll, EPOLL_CTL_ADD, n->wake, &e) != 0)
        return err_sys(err, SBX_E_INTERNAL, "make the calls thread's epoll");
    n->multi = curl_multi_init();
    if (n->multi == NULL)
        abort();
    (void)curl_multi_setopt(n->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    (void)curl_multi_setopt(n->multi, CURLMOPT_SOCKETDATA, n);
    (void)curl_multi_setopt(n->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    (void)curl_multi_setopt(n->multi, CURLMOPT_TIMERDATA, n);
    (void)curl_multi_setopt(n->multi, CURLMOPT_MAXCONNECTS, (long)n->config.idle_max);
    (void)curl_multi_setopt(n->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    return SBX_OK;
}

enum sbx_code net_start(const struct net_config *config, struct net **out, struct sbx_err *err)
{
    struct net *n = mem_zalloc(sizeof(*n));

    net_global_init();
    n->config = *config;
    n->config.idle_max = config->idle_max > 0 ? config->idle_max : IDLE_DEFAULT;
    n->config.transfers_max = config->transfers_max > 0 ? config->transfers_max : TRANSFERS_DEFAULT;
    if (config->user_agent != NULL)
        n->config.user_agent = n->user_agent = mem_strdup(config->user_agent);
    if (config->ca_file != NULL)
        n->config.ca_file = n->ca_file = mem_strdup(config->ca_file);
    (void)pthread_mutex_init(&n->lock, NULL);
    n->pending_tail = &n->pending;
    n->orders_tail = &n->orders;
    n->due_ms = -1;
    if (open_multi(n, err) != SBX_OK ||
        thread_start(&n->thread, "calls", calls_main, n, err) != SBX_OK) {
        net_free(n);
        return err->code;
    }
    *out = n;
    return SBX_OK;
}

void net_stop(struct net *n)
{
    if (n == NULL)
        return;
    (void)pthread_mutex_lock(&n->lock);
    n->stopping = true;
    (void)pthread_mutex_unlock(&n->lock);
    wake(n);
    thread_join(&n->thread);
    assert(n->count == 0);
    net_free(n);
}

enum sbx_code net_request_start(struct net *n, const struct net_spec *spec, net_done_fn *done,
                                void *arg, uint64_t *id, struct sbx_err *err)
{
    struct transfer *t = mem_zalloc(sizeof(*t));
    struct net_spec copy;
    enum sbx_code code = SBX_OK;

    net_transfer_copy(t, spec, &copy);
    t->done = done;
    t->done_arg = arg;
    if (net_transfer_init(t, &n->config, &copy, err) != SBX_OK) {
        transfer_free(t);
        return err->code;
    }
    (void)pthread_mutex_lock(&n->lock);
    if (n->stopping) {
        code = err_set(err, SBX_E_UNAVAILABLE, "The program is stopping.");
    } else if (n->count >= n->config.transfers_max) {
        code = err_set(err, SBX_E_BUSY, "Too many calls are under way.");
    } else {
        n->count++;
        t->id = ++n->last_id;
        if (id != NULL)
            *id = t->id;
        *n->pending_tail = t;
        n->pending_tail = &t->next;
    }
    (void)pthread_mutex_unlock(&n->lock);
    if (code != SBX_OK) {
        transfer_free(t);
        return code;
    }
    wake(n);
    return SBX_OK;
}

static void give_order(struct net *n, uint64_t id, bool cancel)
{
    struct order *o = mem_zalloc(sizeof(*o));

    o->id = id;
    o->cancel = cancel;
    (void)pthread_mutex_lock(&n->lock);
    if (n->stopping) {
        free(o); /* the stop ends it anyway */
    } else {
        *n->orders_tail = o;
        n->orders_tail = &o->next;
    }
    (void)pthread_mutex_unlock(&n->lock);
    wake(n);
}

void net_resume(struct net *n, uint64_t id)
{
    give_order(n, id, false);
}

void net_cancel(struct net *n, uint64_t id)
{
    give_order(n, id, true);
}

/* The answer outlives the transfer. */
static void keep_answer(struct arena *a, struct net_answer *answer)
{
    struct net_header *headers = arena_zalloc(a, (answer->header_count + 1) * sizeof(*headers));

    answer->body = arena_strndup(a, answer->body, answer->body_len);
    for (size_t i = 0; i < answer->header_count; i++) {
        headers[i].name = arena_strdup(a, answer->headers[i].name);
        headers[i].value = arena_strdup(a, answer->headers[i].value);
    }
    answer->headers = headers;
}

enum sbx_code net_request(struct net *n, const struct net_spec *spec, struct arena *a,
                          struct net_answer *out, struct sbx_err *err)
{
    struct transfer *t = mem_zalloc(sizeof(*t));
    enum sbx_code code;
    CURLcode rc;

    *out = (struct net_answer){ .body = "" };
    code = net_transfer_init(t, n != NULL ? &n->config : NULL, spec, err);
    if (code == SBX_OK) {
        do {
            rc = curl_easy_perform(t->easy);
        } while (net_transfer_again(t, rc));
        code = net_transfer_result(t, rc, out, err);
        keep_answer(a, out);
    }
    transfer_free(t);
    return code;
}
