#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/time.h"
#include "http/internal.h"

/* Workers, deferral and the timer.
 *
 * A request in PHASE_WORK is suspended and belongs to exactly one of: the jobs, a
 * worker (with its group, if it has one), or the ticket table.  Whoever takes its ticket out of the table (a
 * continue, a finish, the timer, the stop) owns it; the others find the ticket dead. */

/* --- tickets; the caller holds s->lock --- */

static struct request **bucket(struct http_server *s, uint64_t ticket)
{
    return &s->tickets[ticket % HTTP_TICKET_BUCKETS];
}

static void ticket_put(struct http_server *s, struct request *req)
{
    struct request **b;

    req->wait.ticket = ++s->last_ticket;
    b = bucket(s, req->wait.ticket);
    req->wait.next = *b;
    *b = req;
    (void)atomic_fetch_add(&s->deferred, 1);
}

/* The request of a ticket, which is dead from here on; NULL when it already was. */
static struct request *ticket_take(struct http_server *s, uint64_t ticket)
{
    for (struct request **at = bucket(s, ticket); *at != NULL; at = &(*at)->wait.next) {
        struct request *req = *at;

        if (req->wait.ticket != ticket)
            continue;
        *at = req->wait.next;
        req->wait.ticket = 0;
        (void)atomic_fetch_sub(&s->deferred, 1);
        return req;
    }
    return NULL;
}

/* --- ends of a step --- */

/* In mid-body the answer waits until the rest was dropped. */
static void fail(struct request *req, const struct sbx_err *err)
{
    if (req->job == JOB_PIECE) {
        req->auth_on_worker = false;
        req->early = *err;
        http_daemon_resume(req, PHASE_BODY);
        return;
    }
    http_response_fail(req, err);
    http_daemon_resume(req, PHASE_READY);
}

static void fail_stopping(struct request *req)
{
    struct sbx_err err = { 0 };

    err_put(&err, SBX_E_UNAVAILABLE, "The server is stopping.");
    fail(req, &err);
}

void http_work_submit(struct request *req, enum job job)
{
    struct http_server *s = req->server;
    struct sbx_err err = { 0 };
    bool grouped = job == JOB_HANDLE && s->config.worker_settle != NULL;

    req->job = job;
    /* A body that is half read was admitted with its first piece. */
    if (http_jobs_put(s->jobs, req, grouped ? route_lane(req->route) : 0, job == JOB_PIECE))
        return;
    if (atomic_load(&s->draining)) {
        fail_stopping(req);
        return;
    }
    err_put(&err, SBX_E_BUSY, "Too many requests are waiting.");
    fail(req, &err);
}

static enum sbx_code run_timeout(struct request *req, struct response *res, void *arg,
                                 struct sbx_err *err)
{
    (void)req, (void)res, (void)arg;
    return err_set(err, SBX_E_TIMEOUT, "The answer did not come in time.");
}

static enum sbx_code run_stopping(struct request *req, struct response *res, void *arg,
                                  struct sbx_err *err)
{
    (void)req, (void)res, (void)arg;
    return err_set(err, SBX_E_UNAVAILABLE, "The server is stopping.");
}

static void run_continuation(struct request *req);

/* After a handler or continuation. */
static void after_step(struct request *req, enum sbx_code code, const struct sbx_err *err)
{
    struct http_server *s = req->server;
    struct sbx_err none = { 0 };
    void *context = req->worker;
    bool resumed;

    req->worker = NULL;
    if (req->together) {
        assert(code == SBX_OK && !req->deferred);
        return; /* its group has it */
    }
    req->group = NULL;
    if (req->deferred) {
        assert(code == SBX_OK); /* a deferred request has no answer yet */
        req->deferred = false;
        (void)pthread_mutex_lock(&s->lock);
        resumed = req->wait.resumed;
        req->wait.resumed = false;
        req->wait.parked = !resumed;
        /* From the unlock on a parked request is somebody else's. */
        (void)pthread_mutex_unlock(&s->lock);
        if (!resumed)
            return;
        req->job = JOB_CONTINUE;
        if (!http_jobs_put(s->jobs, req, 0, true)) { /* closed: this worker is the last one */
            req->worker = context;
            run_continuation(req);
        }
        return;
    }
    if (code != SBX_OK) {
        http_response_fail(req, err);
    } else if (req->res.status == 0) {
        err_put(&none, SBX_E_INTERNAL, "route %s answered nothing", req->route->name);
        http_response_fail(req, &none);
    }
    http_daemon_resume(req, PHASE_READY);
}

/* --- jobs --- */

static bool authorized(struct request *req)
{
    struct http_server *s = req->server;
    enum http_auth verdict;

    if (!req->auth_on_worker)
        return true;
    req->auth_on_worker = false;
    req->early = (struct sbx_err){ 0 }; /* who calls is judged before what was wrong so far */
    verdict = s->config.auth(s->config.owner, req, req->route, &req->early);
    assert(verdict != HTTP_AUTH_ON_WORKER);
    assert((verdict == HTTP_AUTH_ALLOW) == (req->early.code == SBX_OK));
    return verdict == HTTP_AUTH_ALLOW;
}

static void run_piece(struct request *req)
{
    struct sbx_err err = { 0 };

    if (authorized(req) &&
        req->route->on_body(req, req->body.data, req->body.len, &err) != SBX_OK)
        req->early = err;
    http_request_release_body(req);
    req->worker = NULL;
    http_daemon_resume(req, PHASE_BODY);
}

static void run_handler(struct request *req)
{
    struct sbx_err err = { 0 };
    struct sbx_err early = req->early;
    enum sbx_code code;

    if (!authorized(req)) {
        after_step(req, req->early.code, &req->early);
        return;
    }
    if (early.code != SBX_OK) {
        after_step(req, early.code, &early);
        return;
    }
    if (req->route->body == HTTP_BODY_STREAM && req->body.len > 0) { /* the last piece */
        code = req->route->on_body(req, req->body.data, req->body.len, &err);
        http_request_release_body(req);
        if (code != SBX_OK) {
            after_step(req, code, &err);
            return;
        }
    }
    code = req->route->handler(req, &req->res, &err);
    after_step(req, code, &err);
}

static void run_continuation(struct request *req)
{
    struct sbx_err err = { 0 };
    request_fn *fn = req->wait.fn;
    void *arg = req->wait.arg;
    enum sbx_code code;

    req->wait.fn = NULL;
    code = fn(req, &req->res, arg, &err);
    after_step(req, code, &err);
}

static void run(struct request *req, void *context)
{
    struct http_server *s = req->server;
    bool stopping;

    (void)pthread_mutex_lock(&s->lock);
    stopping = s->stopping;
    (void)pthread_mutex_unlock(&s->lock);
    req->worker = context;
    if (stopping && req->job != JOB_CONTINUE) { /* a continuation's arg must be taken */
        req->worker = NULL;
        fail_stopping(req);
        return;
    }
    switch (req->job) {
    case JOB_PIECE:
        run_piece(req);
        break;
    case JOB_HANDLE:
        run_handler(req);
        break;
    case JOB_CONTINUE:
        run_continuation(req);
        break;
    }
}

static void run_group(struct worker *w, struct request *const *reqs, size_t count)
{
    const struct http_config *c = &w->server->config;
    struct group group = { .count = 0 };

    for (size_t i = 0; i < count; i++) {
        reqs[i]->group = &group;
        run(reqs[i], w->context); /* gone, unless it is in the group now */
    }
    if (group.count == 0)
        return;
    c->worker_settle(c->owner, w->context);
    for (size_t i = 0; i < group.count; i++) {
        struct request *req = group.waiting[i];

        req->together = false;
        req->worker = w->context;
        run_continuation(req);
    }
}

void http_work_main(void *arg)
{
    struct worker *w = arg;
    const struct http_config *c = &w->server->config;
    struct request *taken[HTTP_GROUP_MAX];
    unsigned lane = 0;
    size_t count;

    w->context = c->worker_open != NULL ? c->worker_open(c->owner) : NULL;
    while ((count = http_jobs_take(w->server->jobs, taken, &lane)) > 0) {
        if (lane > 0)
            run_group(w, taken, count);
        else
            run(taken[0], w->context);
    }
    if (c->worker_close != NULL)
        c->worker_close(c->owner, w->context);
}

/* --- together --- */

bool request_grouped(const struct request *req)
{
    return req->group != NULL;
}

void request_together(struct request *req, request_fn *fn, void *arg)
{
    struct group *g = req->group;

    assert(g != NULL && g->count < HTTP_GROUP_MAX && !req->deferred);
    req->group = NULL;
    req->together = true;
    req->wait.fn = fn;
    req->wait.arg = arg;
    g->waiting[g->count++] = req;
}

/* --- deferral --- */

uint64_t request_defer(struct request *req, int64_t timeout_ms, request_fn *on_timeout)
{
    struct http_server *s = req->server;
    uint64_t ticket;

    assert(!req->deferred && timeout_ms > 0);
    req->deferred = true;
    req->wait.on_timeout = on_timeout != NULL ? on_timeout : run_timeout;
    req->wait.deadline_ms = time_mono_ms() + timeout_ms;
    (void)pthread_mutex_lock(&s->lock);
    req->wait.parked = false;
    req->wait.resumed = false;
    ticket_put(s, req);
    ticket = req->wait.ticket;
    if (s->stopping) { /* nobody will end it any more */
        (void)ticket_take(s, ticket);
        req->wait.resumed = true;
        req->wait.fn = run_stopping;
        req->wait.arg = NULL;
    } else if (req->wait.deadline_ms < s->next_deadline_ms) {
        (void)pthread_cond_broadcast(&s->wake);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return ticket;
}

/* Takes the ticket and leaves fn for the worker. The caller holds the lock. */
static struct request *resume(struct http_server *s, uint64_t ticket, request_fn *fn, void *arg)
{
    struct request *req = ticket_take(s, ticket);

    if (req == NULL)
        return NULL;
    req->wait.fn = fn;
    req->wait.arg = arg;
    req->wait.resumed = !req->wait.parked;
    return req;
}

/* Under the lock: the stop closes the queue only after it has taken every ticket. */
static void submit_parked(struct request *req)
{
    bool ok;

    req->job = JOB_CONTINUE;
    ok = http_jobs_put(req->server->jobs, req, 0, true);
    assert(ok);
}

bool request_continue(struct http_server *s, uint64_t ticket, request_fn *fn, void *arg)
{
    struct request *req;
    bool alive;

    (void)pthread_mutex_lock(&s->lock);
    req = resume(s, ticket, fn, arg);
    alive = req != NULL;
    if (alive && req->wait.parked)
        submit_parked(req);
    (void)pthread_mutex_unlock(&s->lock);
    return alive;
}

bool request_finish(struct http_server *s, uint64_t ticket, request_fn *fn, void *arg)
{
    struct request *req;
    bool alive, parked;

    (void)pthread_mutex_lock(&s->lock);
    req = resume(s, ticket, fn, arg);
    alive = req != NULL;
    parked = alive && req->wait.parked;
    (void)pthread_mutex_unlock(&s->lock);
    if (parked)
        run_continuation(req);
    return alive;
}

/* Takes every ticket that is due at now (all when now is INT64_MAX) and leaves its end as the
 * continuation; those that are parked come back as a list by wait.next, now the caller's. The
 * caller holds the lock. *next: the next deadline, if it is earlier than what stands there. */
static struct request *take_due(struct http_server *s, int64_t now, int64_t *next)
{
    struct request *due = NULL;

    if (atomic_load(&s->deferred) == 0)
        return NULL;
    for (size_t i = 0; i < HTTP_TICKET_BUCKETS; i++) {
        for (struct request **at = &s->tickets[i]; *at != NULL;) {
            struct request *req = *at;

            if (req->wait.deadline_ms > now) {
                *next = req->wait.deadline_ms < *next ? req->wait.deadline_ms : *next;
                at = &req->wait.next;
                continue;
            }
            *at = req->wait.next;
            req->wait.ticket = 0;
            (void)atomic_fetch_sub(&s->deferred, 1);
            req->wait.fn = now == INT64_MAX ? run_stopping : req->wait.on_timeout;
            req->wait.arg = NULL;
            req->wait.resumed = !req->wait.parked;
            if (req->wait.parked) {
                req->wait.next = due;
                due = req;
            }
        }
    }
    return due;
}

void http_deferred_fail_all(struct http_server *s)
{
    int64_t next = INT64_MAX;
    struct request *due;

    (void)pthread_mutex_lock(&s->lock);
    due = take_due(s, INT64_MAX, &next);
    (void)pthread_mutex_unlock(&s->lock);
    while (due != NULL) {
        struct request *req = due;

        due = req->wait.next;
        run_continuation(req);
    }
}

/* --- the timer --- */

/* Shuts the sockets of connections that are past their deadline: libmicrohttpd then closes them. */
static void cut_slow(struct http_server *s, int64_t now)
{
    (void)pthread_mutex_lock(&s->conn_lock);
    for (struct conn *c = s->conns; c != NULL; c = c->next) {
        int64_t deadline = atomic_load(&c->deadline_ms);

        if (deadline != 0 && deadline <= now && c->fd >= 0) {
            (void)shutdown(c->fd, SHUT_RDWR);
            atomic_store(&c->deadline_ms, 0);
        }
    }
    (void)pthread_mutex_unlock(&s->conn_lock);
}

void http_timer_main(void *arg)
{
    struct http_server *s = arg;
    int64_t cut_ms = 0;

    (void)pthread_mutex_lock(&s->lock);
    while (!s->timer_stop) {
        int64_t now = time_mono_ms(), next = now + HTTP_TIMER_MS;
        struct request *due = take_due(s, now, &next);

        while (due != NULL) {
            struct request *req = due;

            due = req->wait.next;
            submit_parked(req);
        }
        if (now >= cut_ms) {
            cut_ms = now + HTTP_TIMER_MS;
            (void)pthread_mutex_unlock(&s->lock);
            cut_slow(s, now);
            (void)pthread_mutex_lock(&s->lock);
            continue; /* what changed meanwhile is looked at again */
        }
        s->next_deadline_ms = next;
        (void)pthread_cond_timedwait(
            &s->wake, &s->lock,
            &(struct timespec){ .tv_sec = next / 1000, .tv_nsec = next % 1000 * 1000000 });
    }
    (void)pthread_mutex_unlock(&s->lock);
}

bool http_wait_idle(struct http_server *s, int64_t deadline_ms)
{
    struct timespec ts = { .tv_sec = deadline_ms / 1000, .tv_nsec = deadline_ms % 1000 * 1000000 };
    bool idle;

    (void)pthread_mutex_lock(&s->lock);
    while (atomic_load(&s->requests) > 0 && time_mono_ms() < deadline_ms)
        (void)pthread_cond_timedwait(&s->wake, &s->lock, &ts);
    idle = atomic_load(&s->requests) == 0;
    (void)pthread_mutex_unlock(&s->lock);
    return idle;
}
