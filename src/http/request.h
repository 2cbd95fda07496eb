#ifndef HTTP_REQUEST_H
#define HTTP_REQUEST_H

/* A request as a handler sees it.  It belongs to the server; all pointers given out
 * live as long as the request.  One thread at a time works on a request (http
 * thread, worker, continuation), never two; nothing here locks. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/arena.h"
#include "base/json.h"
#include "sbx/error.h"

struct request;
struct response;
struct route;
struct http_server;

/* Freed when the request ends, on an http thread: deferred frees must be quick. */
struct arena *request_arena(struct request *req);
const struct route *request_route(const struct request *req); /* NULL before routing */
const char *request_id(const struct request *req);     /* X-Request-Id, or made (contract 1) */
const char *request_method(const struct request *req); /* as sent: "GET" */
const char *request_path(const struct request *req);   /* raw: as sent, without the query */
/* The decoded segment that stood for {name}; the pattern must have it (assert). */
const char *request_param(const struct request *req, const char *name);

/* Query parameters, decoded, in order; a key without '=' has the value "". */
struct request_query {
    const char *name;
    const char *value;
};
const struct request_query *request_query(const struct request *req, size_t *count);
/* The first value of name or NULL; *times (may be NULL) tells how often it stands there. */
const char *request_query_get(const struct request *req, const char *name, size_t *times);
/* The first query name that is not in allowed (NULL-ended), or that stands there twice; NULL when
 * all is well. */
const char *request_query_unknown(const struct request *req, const char *const *allowed);

/* First value of a header, name in any case, or NULL; *times as above. On a worker too. */
const char *request_header(const struct request *req, const char *name, size_t *times);

/* The whole body, NUL-ended past len; "" and 0 when there is none. Not for HTTP_BODY_STREAM. */
const char *request_body(const struct request *req, size_t *len);
/* The body as a JSON object (base/json.h rules), borrowed; *out is NULL when the body is empty.
 * SBX_E_INVALID otherwise. */
MUST_USE enum sbx_code request_json(struct request *req, json_t **out, struct sbx_err *err);
/* Gives the body's memory and its JSON back early: before a long deferral. */
void request_body_release(struct request *req);

struct request_peer {
    char address[64]; /* numeric host, "" on a unix socket */
    uint16_t port;
    bool local; /* a unix socket: pid, uid, gid are the peer's (SO_PEERCRED) */
    pid_t pid;
    uid_t uid;
    gid_t gid;
    bool tls;
};
const struct request_peer *request_peer(const struct request *req);
const char *request_listener(const struct request *req); /* the listener's name */

/* Who calls: set by the auth callback, in the request's arena. */
void request_set_caller(struct request *req, void *caller);
void *request_caller(const struct request *req);
/* Free for the route's own use: streamed bodies, continuations. */
void request_set_slot(struct request *req, void *slot);
void *request_slot(const struct request *req);
/* Further fields for the access log line (sandbox id, actor); strings are copied; at most 4, more
 * are dropped. */
void request_log(struct request *req, const char *key, const char *value);

void *request_owner(const struct request *req);  /* http_config.owner */
void *request_worker(const struct request *req); /* this worker's context; NULL on http threads */
struct http_server *request_server(const struct request *req);
int64_t request_started_ms(const struct request *req); /* time_mono_ms */

/* --- Deferral ---------------------------------------------------------------
 * A handler that waits for somebody else's answer defers its request and returns
 * SBX_OK: the worker and its context are free again, the request costs memory only.
 * The ticket names the request from any thread, and goes dead when the request was
 * continued, finished, timed out or ended by the stop; using a dead one is fine. */

typedef enum sbx_code request_fn(struct request *req, struct response *res, void *arg,
                                 struct sbx_err *err);

/* Once in a handler or continuation on a worker; it must return SBX_OK after.  When timeout_ms
 * pass first, on_timeout (NULL: SBX_E_TIMEOUT is answered) runs on a worker with arg NULL. At the
 * stop a request still waiting is answered SBX_E_UNAVAILABLE. A continue that comes before the
 * handler has returned is kept until it has. */
uint64_t request_defer(struct request *req, int64_t timeout_ms, request_fn *on_timeout);

/* From any thread: fn(arg) runs on a worker, as admitted work (the queue's bound does not apply),
 * and may defer again.  False: the ticket is dead, fn never runs, arg stays the caller's. */
bool request_continue(struct http_server *s, uint64_t ticket, request_fn *fn, void *arg);
/* As request_continue, but fn runs at once on the calling thread (request_worker is NULL), or on
 * the worker when the handler that deferred has not returned yet: it must not block and not defer.
 */
bool request_finish(struct http_server *s, uint64_t ticket, request_fn *fn, void *arg);

/* --- Together ---------------------------------------------------------------
 * Requests of a lane (struct route) that wait at the same time are taken by one worker, so that
 * what they ask of somebody else can be asked at once. */

/* The handler may wait for the others. Never in a continuation. */
bool request_grouped(const struct request *req);
/* In such a handler, which then returns SBX_OK: when all handlers of the group have run and
 * http_config.worker_settle has, fn(arg) runs on the same worker; it may defer. */
void request_together(struct request *req, request_fn *fn, void *arg);

#endif
