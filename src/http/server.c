#include "http/server.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/time.h"
#include "http/internal.h"

static void set_defaults(struct http_config *c)
{
    c->on_error = c->on_error != NULL ? c->on_error : response_envelope_error;
    c->workers = c->workers > 0 ? c->workers : 8;
    c->queue_max = c->queue_max > 0 ? c->queue_max : 1024;
    c->deferred_max = c->deferred_max > 0 ? c->deferred_max : 20000;
    c->connections_max = c->connections_max > 0 ? c->connections_max : 10240;
    c->header_max = c->header_max > 0 ? c->header_max : SBX_KIB(32);
    c->body_budget = c->body_budget > 0 ? c->body_budget : SBX_MIB(256);
    c->idle_timeout_ms = c->idle_timeout_ms > 0 ? c->idle_timeout_ms : 75000;
    c->header_timeout_ms = c->header_timeout_ms > 0 ? c->header_timeout_ms : 15000;
    c->body_timeout_ms = c->body_timeout_ms > 0 ? c->body_timeout_ms : 60000;
    c->send_timeout_ms = c->send_timeout_ms > 0 ? c->send_timeout_ms : 60000;
}

static struct http_server *server_new(const struct http_config *config)
{
    struct http_server *s = mem_zalloc(sizeof(*s));
    pthread_condattr_t attr;

    s->config = *config;
    s->access_log = config->access_log;
    set_defaults(&s->config);
    s->config.listeners = NULL; /* the caller's, for the start only */
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_mutex_init(&s->conn_lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&s->wake, &attr);
    (void)pthread_condattr_destroy(&attr);
    s->jobs = http_jobs_new(s->config.queue_max);
    s->metrics = http_metrics_register(s);
    return s;
}

/* Binds everything before anything serves. */
static enum sbx_code bind_listener(struct http_server *s, const struct http_listener *spec,
                                   struct sbx_err *err)
{
    struct listener *l = &s->listeners[s->listener_count];

    if (route_check(spec->tables, spec->table_count, err) != SBX_OK)
        return err_wrap(err, "listener %s", spec->name);
    *l = (struct listener){ .server = s, .fd = -1, .quiet = true };
    l->name = mem_strdup(spec->name);
    s->listener_count++;
    if (http_listen(spec, &l->fd, &l->port, &l->unix_path, err) != SBX_OK)
        return err_wrap(err, "listener %s", spec->name);
    if (spec->cert_file != NULL &&
        http_tls_open(spec->cert_file, spec->key_file, l->port, &l->tls, err) != SBX_OK)
        return err_wrap(err, "listener %s", spec->name);
    route_compile(&l->router, spec->tables, spec->table_count);
    return SBX_OK;
}

static enum sbx_code start_threads(struct http_server *s, struct sbx_err *err)
{
    if (thread_start(&s->timer, "http-timer", http_timer_main, s, err) != SBX_OK)
        return err->code;
    s->workers = mem_zalloc(s->config.workers * sizeof(*s->workers));
    for (; s->worker_count < s->config.workers; s->worker_count++) {
        struct worker *w = &s->workers[s->worker_count];
        char name[16];

        w->server = s;
        (void)snprintf(name, sizeof(name), "worker-%zu", s->worker_count % 1000);
        if (thread_start(&w->thread, name, http_work_main, w, err) != SBX_OK)
            return err->code;
    }
    return SBX_OK;
}

enum sbx_code http_server_start(const struct http_config *config, struct http_server **out,
                                struct sbx_err *err)
{
    struct http_server *s;

    assert(config->auth != NULL);
    if (config->listener_count == 0 || config->listener_count > HTTP_LISTENERS_MAX)
        return err_set(err, SBX_E_INTERNAL, "%zu listeners", config->listener_count);
    s = server_new(config);
    *out = s; /* a handler may ask for it as soon as the first listener is up */
    for (size_t i = 0; i < config->listener_count; i++) {
        if (bind_listener(s, &config->listeners[i], err) != SBX_OK)
            goto failed;
    }
    if (start_threads(s, err) != SBX_OK)
        goto failed;
    for (size_t i = 0; i < s->listener_count; i++) {
        if (http_daemon_start(&s->listeners[i], &config->listeners[i], err) != SBX_OK)
            goto failed;
        s->listeners[i].quiet = false;
    }
    return SBX_OK;
failed:
    for (size_t i = 0; i < s->listener_count; i++) {
        if (s->listeners[i].quiet && s->listeners[i].unix_path != NULL && s->listeners[i].fd >= 0)
            (void)unlink(s->listeners[i].unix_path);
    }
    http_server_stop(s);
    *out = NULL;
    return err->code;
}

uint16_t http_server_port(const struct http_server *s, size_t i)
{
    assert(i < s->listener_count);
    return s->listeners[i].port;
}

void http_server_set_access_log(struct http_server *s, bool on)
{
    s->access_log = on;
}

enum sbx_code http_server_reload_tls(struct http_server *s, struct sbx_err *err)
{
    for (size_t i = 0; i < s->listener_count; i++) {
        struct listener *l = &s->listeners[i];

        if (l->tls != NULL && http_tls_reload(l->tls, err) != SBX_OK)
            return err_wrap(err, "listener %s", l->name);
    }
    return SBX_OK;
}

void http_server_quiesce(struct http_server *s)
{
    atomic_store(&s->draining, true);
    for (size_t i = 0; i < s->listener_count; i++) {
        struct listener *l = &s->listeners[i];

        if (l->quiet)
            continue;
        l->quiet = true;
        (void)MHD_quiesce_daemon(l->daemon); /* the socket is ours again */
        if (l->unix_path != NULL)
            (void)unlink(l->unix_path);
    }
}

bool http_server_drain(struct http_server *s, int timeout_ms)
{
    return http_wait_idle(s, time_mono_ms() + timeout_ms);
}

static void server_free(struct http_server *s)
{
    for (size_t i = 0; i < s->listener_count; i++) {
        struct listener *l = &s->listeners[i];

        if (l->daemon != NULL)
            MHD_stop_daemon(l->daemon);
        http_tls_close(l->tls);
        route_fini(&l->router);
        if (l->fd >= 0)
            (void)close(l->fd);
        free(l->unix_path);
        free(l->name);
    }
    assert(atomic_load(&s->requests) == 0 && atomic_load(&s->connections) == 0);
    metrics_off_print(s->config.metrics, s);
    http_jobs_free(s->jobs);
    free(s->workers);
    (void)pthread_cond_destroy(&s->wake);
    (void)pthread_mutex_destroy(&s->conn_lock);
    (void)pthread_mutex_destroy(&s->lock);
    free(s);
}

void http_server_stop(struct http_server *s)
{
    if (s == NULL)
        return;
    http_server_quiesce(s);
    (void)pthread_mutex_lock(&s->lock);
    s->stopping = true; /* from here on no ticket is put into the table */
    (void)pthread_mutex_unlock(&s->lock);
    http_deferred_fail_all(s);
    http_jobs_close(s->jobs);
    for (size_t i = 0; i < s->worker_count; i++)
        thread_join(&s->workers[i].thread);
    http_streams_abort(s);
    (void)http_wait_idle(s, time_mono_ms() + HTTP_LAST_WORDS_MS);
    (void)pthread_mutex_lock(&s->lock);
    s->timer_stop = true;
    (void)pthread_cond_broadcast(&s->wake);
    (void)pthread_mutex_unlock(&s->lock);
    thread_join(&s->timer);
    http_streams_abort(s); /* one may have begun to wait meanwhile */
    server_free(s);
}

void http_server_stats(struct http_server *s, struct http_stats *out)
{
    *out = (struct http_stats){
        .connections = atomic_load(&s->connections),
        .requests = atomic_load(&s->requests),
        .queued = http_jobs_depth(s->jobs),
        .deferred = atomic_load(&s->deferred),
        .body_bytes = atomic_load(&s->body_bytes),
    };
}
