#ifndef HTTP_SERVER_H
#define HTTP_SERVER_H

/* An HTTP/1.1 server over libmicrohttpd, for both daemons: listeners (TCP, TLS, unix
 * socket) with route tables, http threads that never block, a bounded queue with
 * workers that may, deferred requests, and a written order of shutdown.
 *
 * Threads: each listener has its own http threads; `workers` run handlers; one
 * "http-timer" thread ends what is overdue.  Rules of the HTTP edge: contract 1. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/metrics.h"
#include "http/request.h"
#include "http/response.h"
#include "http/route.h"
#include "sbx/error.h"

struct http_server;

enum http_auth {
    HTTP_AUTH_DENY = 0, /* *err says why */
    HTTP_AUTH_ALLOW,
    HTTP_AUTH_ON_WORKER, /* cannot be judged without blocking: ask again on a worker */
};
/* Judges route->auth for this request, after its headers and before its body.  First on an http
 * thread (request_worker is NULL): must not block.  Again on a worker after HTTP_AUTH_ON_WORKER. */
typedef enum http_auth http_auth_fn(void *owner, struct request *req, const struct route *route,
                                    struct sbx_err *err);

/* Each worker's own context (a database connection). Called on the worker's thread. */
typedef void *http_worker_open_fn(void *owner);
typedef void http_worker_close_fn(void *owner, void *worker);
/* Settles what the handlers of a group left to be done together (request_together). */
typedef void http_worker_settle_fn(void *owner, void *worker);

struct http_listener {
    const char *name;      /* "public", "admin": log field */
    const char *address;   /* "host:port", "[v6]:port", ":port" for all; or "unix:/path" */
    mode_t mode;           /* of the unix socket; 0: 0600 */
    gid_t gid;             /* of the unix socket; 0: as it is */
    const char *cert_file; /* PEM chain and key: TLS; NULL: plain */
    const char *key_file;
    const struct route_table *tables;
    size_t table_count;
    unsigned threads; /* 0: 1 */
};

/* Zero means the default in parentheses, unless said otherwise. */
struct http_config {
    void *owner;
    const struct http_listener *listeners;
    size_t listener_count;
    http_auth_fn *auth;               /* must be set */
    route_error_fn *on_error;         /* (response_envelope_error) */
    http_worker_open_fn *worker_open; /* NULL: no context */
    http_worker_close_fn *worker_close;
    http_worker_settle_fn *worker_settle; /* NULL: requests are never handled together */
    unsigned workers;            /* (8) */
    size_t queue_max;            /* requests that wait for a worker (1024); more: 503 */
    size_t deferred_max;         /* deferred requests (20000): past it a worker route is 503 */
    unsigned connections_max;    /* of each listener (10240) */
    unsigned connections_per_ip; /* 0: no limit of its own; TCP only */
    size_t header_max;           /* bytes of a request's line and headers (32 KiB): more is 431 */
    size_t body_budget;          /* bytes of all bodies in memory (256 MiB): past it 503 */
    int idle_timeout_ms;         /* a kept connection without a request (75 s) */
    int header_timeout_ms;       /* until a request's headers are complete (15 s) */
    int body_timeout_ms;         /* until its body is (60 s); streams: without any byte */
    int send_timeout_ms;         /* until the answer is taken (60 s); streams: without any byte */
    const char *const *cors_origins; /* NULL-ended; NULL: CORS is off */
    bool access_log;                 /* one line at the end of each request */
    struct metrics *metrics;         /* NULL: none */
};

/* Checks the tables, binds every listener, starts all threads, then serves. SBX_E_INVALID when an
 * address cannot be bound or a certificate not be read; SBX_E_INTERNAL for a bad table. *out is set
 * before any thread starts, so that the first request finds it there; NULL after a failure. */
MUST_USE enum sbx_code http_server_start(const struct http_config *config, struct http_server **out,
                                         struct sbx_err *err);
/* The TCP port that listener i got; 0 for a unix socket. */
uint16_t http_server_port(const struct http_server *s, size_t i);
/* Reads the certificate files again; running connections keep theirs. On an error all stays as it
 * is. Any thread. */
MUST_USE enum sbx_code http_server_reload_tls(struct http_server *s, struct sbx_err *err);

/* Switches the line at the end of each request on or off. Any thread. */
void http_server_set_access_log(struct http_server *s, bool on);

/* The stop, in this order, from one thread:
 *   quiesce  no new connection; answers carry Connection: close
 *   drain    waits until no request is under way, at most timeout_ms; true when none is left
 *   stop     answers what still waits with 503, lets running handlers end, joins, frees
 * http_server_stop alone does all three with no time to drain; NULL is allowed. */
void http_server_quiesce(struct http_server *s);
bool http_server_drain(struct http_server *s, int timeout_ms);
void http_server_stop(struct http_server *s);

struct http_stats {
    size_t connections;
    size_t requests; /* under way, deferred included */
    size_t queued;   /* wait for a worker */
    size_t deferred;
    size_t body_bytes;
};
void http_server_stats(struct http_server *s, struct http_stats *out); /* any thread */

#endif
