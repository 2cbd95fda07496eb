#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/time.h"
#include "http/internal.h"

/* The end of a request: one log line and the metrics.  The route's name stands for the
 * path; query values, bodies and tokens are never written. */

enum { M_REQUESTS, M_SECONDS, M_CONNECTIONS, M_IN_FLIGHT, M_QUEUED, M_DEFERRED, M_BODY_BYTES };

static const struct metrics_def DEFS[] = {
    [M_REQUESTS] = { "http_requests_total",
                     METRICS_COUNTER,
                     "Requests that have ended; status 0: the client left first.",
                     { "listener", "route", "status" } },
    [M_SECONDS] = { "http_request_seconds",
                    METRICS_HISTOGRAM,
                    "From a request's first line to the end of its answer.",
                    { "listener", "route" } },
    [M_CONNECTIONS] = { "http_connections", METRICS_GAUGE, "Open connections.", { NULL } },
    [M_IN_FLIGHT] = { "http_requests_under_way",
                      METRICS_GAUGE,
                      "Requests not answered yet, deferred ones included.",
                      { NULL } },
    [M_QUEUED] = { "http_queue_depth",
                   METRICS_GAUGE,
                   "Requests that wait for a worker.",
                   { NULL } },
    [M_DEFERRED] = { "http_requests_deferred",
                     METRICS_GAUGE,
                     "Requests that wait for somebody else's answer.",
                     { NULL } },
    [M_BODY_BYTES] = { "http_body_bytes",
                       METRICS_GAUGE,
                       "Bytes of request bodies in memory.",
                       { NULL } },
};

static void collect(void *arg)
{
    struct http_server *s = arg;
    struct http_stats st;

    http_server_stats(s, &st);
    metrics_set(s->metrics, M_CONNECTIONS, METRICS_PLAIN, (int64_t)st.connections);
    metrics_set(s->metrics, M_IN_FLIGHT, METRICS_PLAIN, (int64_t)st.requests);
    metrics_set(s->metrics, M_QUEUED, METRICS_PLAIN, (int64_t)st.queued);
    metrics_set(s->metrics, M_DEFERRED, METRICS_PLAIN, (int64_t)st.deferred);
    metrics_set(s->metrics, M_BODY_BYTES, METRICS_PLAIN, (int64_t)st.body_bytes);
}

struct metrics_table *http_metrics_register(struct http_server *s)
{
    struct metrics_table *t = metrics_register(s->config.metrics, DEFS, COUNT_OF(DEFS));

    metrics_on_print(s->config.metrics, collect, s);
    return t;
}

static void write_line(struct request *req, const char *route, int status, bool complete,
                       int64_t ms)
{
    bool ours = req->failed.code != SBX_OK && status >= 500;
    struct log_field f[10 + HTTP_LOG_FIELDS_MAX + 1] = {
        LOG_S("requestId", req->id),
        LOG_S("method", req->method),
        LOG_S("route", route),
        LOG_I("status", status),
        LOG_I("ms", ms),
        LOG_S("listener", req->listener->name),
    };
    size_t n = 6;

    if (req->failed.code != SBX_OK)
        f[n++] = LOG_S("code", sbx_code_name(req->failed.code));
    if (ours) {
        f[n++] = LOG_S("error", req->failed.msg);
        f[n++] = LOG_S("file", req->failed.file);
        f[n++] = LOG_I("line", req->failed.line);
    }
    if (!complete && n < 10)
        f[n++] = LOG_B("clientLeft", true);
    for (size_t i = 0; i < req->log_count; i++)
        f[n++] = LOG_S(req->log[i].name, req->log[i].value);
    log_write(ours && req->failed.code == SBX_E_INTERNAL ? LOG_ERROR : LOG_INFO, "request", f);
}

void http_log_end(struct request *req, bool complete)
{
    struct http_server *s = req->server;
    const char *route = req->route != NULL ? req->route->name : "none";
    bool quiet = req->route != NULL && (req->route->flags & ROUTE_QUIET) != 0;
    int64_t ms = time_mono_ms() - req->started_ms;
    int status = req->phase == PHASE_SENT ? req->res.status : 0;
    char text[8];

    if (s->metrics != NULL) {
        (void)snprintf(text, sizeof(text), "%d", status);
        metrics_add(s->metrics, M_REQUESTS, METRICS_LABELS(req->listener->name, route, text), 1);
        metrics_observe_ms(s->metrics, M_SECONDS, METRICS_LABELS(req->listener->name, route), ms);
    }
    if (s->access_log && !(quiet && status < 400))
        write_line(req, route, status, complete, ms);
}
