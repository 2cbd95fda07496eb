#ifndef HTTP_ROUTE_H
#define HTTP_ROUTE_H

/* Routes as rows of const tables.  Both daemons use this; what `auth` means is the
 * server owner's, which gives a callback that judges it. */

#include <stdbool.h>
#include <stddef.h>

#include "http/request.h"
#include "http/response.h"
#include "sbx/error.h"

enum http_method {
    HTTP_METHOD_UNSET = 0, /* not a method: a row that forgets it is refused at start */
    HTTP_GET,              /* serves HEAD too */
    HTTP_POST,
    HTTP_PUT,
    HTTP_PATCH,
    HTTP_DELETE,
    HTTP_METHOD_COUNT
};

/* What a request body may be. */
enum http_body {
    HTTP_BODY_NONE = 0, /* a body that is not empty is a 400 */
    HTTP_BODY_JSON, /* application/json, parameters allowed, else 415; empty is the route's case */
    HTTP_BODY_ANY,  /* any content type, in memory */
    HTTP_BODY_STREAM, /* any content type, given piece by piece to on_body */
};

enum route_flags {
    ROUTE_WORKER = 0,      /* the handler runs on a worker and may block */
    ROUTE_INLINE = 1 << 0, /* the handler runs on an http thread: it must never block */
    ROUTE_QUIET = 1 << 1,  /* a success writes no access log line (health probes) */
};

/* Requests of one lane, 1 to HTTP_LANES_MAX, may be handled together (request_together). */
#define ROUTE_LANE(n) ((unsigned)(n) << 8)

/* A handler returns SBX_OK with the response set (or the request deferred), or an error, which the
 * server writes in the route's form. A handler runs straight through; *err is zeroed before. */
typedef enum sbx_code route_fn(struct request *req, struct response *res, struct sbx_err *err);

/* One piece of a streamed body, on a worker, in order, len > 0, at most HTTP_STREAM_PIECE bytes.
 * After the last piece the route's handler runs. An error ends the request with that error. State
 * between pieces: request_slot; clean up with arena_defer on the request's arena. */
typedef enum sbx_code route_body_fn(struct request *req, const void *data, size_t len,
                                    struct sbx_err *err);

/* Writes err into res: status, headers, body. Any thread; must not block. */
typedef void route_error_fn(struct request *req, struct response *res, const struct sbx_err *err);

struct route {
    enum http_method method;
    const char *path; /* "/v1/sandboxes/{id}": a parameter is one whole segment */
    const char *name; /* unique in its table; the metrics label and log field; [a-z0-9_]+ */
    int auth;         /* the owner's enum; 0 is not a value */
    enum http_body body;
    size_t body_max; /* bytes; must be 0 for HTTP_BODY_NONE, must not for the others */
    unsigned flags;  /* enum route_flags, ROUTE_LANE(n) */
    route_fn *handler;
    route_body_fn *on_body;   /* HTTP_BODY_STREAM only */
    route_error_fn *on_error; /* NULL: the server's */
    const void *spec;         /* the owner's: schemas, scopes, audit action ... */
};

struct route_table {
    const struct route *routes;
    size_t count;
};

enum {
    ROUTE_SEGMENTS_MAX = 16, /* of a pattern and of a request's path */
    ROUTE_PARAMS_MAX = 8,
    ROUTE_TOTAL_MAX = 512, /* rows of one listener */
    HTTP_LANES_MAX = 4,    /* lanes are 1 to this */
};

/* Checks every row: method, path, name, auth, handler and body columns complete; no two rows with
 * the same method and an equal pattern (parameter names aside), no name twice. SBX_E_INTERNAL. */
MUST_USE enum sbx_code route_check(const struct route_table *tables, size_t count,
                                   struct sbx_err *err);

const char *http_method_name(enum http_method m);     /* "GET" */
enum http_method http_method_parse(const char *name); /* HTTP_METHOD_UNSET when unknown */

#endif
