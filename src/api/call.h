#ifndef API_CALL_H
#define API_CALL_H

/* What stands between a route row and its handler: the spec of an operation, and the
 * call that a handler gets once token, shape, account, entitlement and role were judged
 * in the contract's order (contract 1). Internal to api. */

#include <pthread.h>

#include "api/access.h"
#include "api/api.h"
#include "api/audit.h"
#include "api/auth.h"
#include "api/busy.h"
#include "base/arena.h"
#include "base/json.h"
#include "domain/access.h"
#include "store/identity.h"
#include "store/runs.h"
#include "store/trail.h"

/* Who may call. Zero is not a value: a row that forgets it is refused at start. */
enum api_auth_kind {
    API_AUTH_UNSET = 0,
    API_AUTH_NONE,      /* nothing of anybody is told */
    API_AUTH_PERSON,    /* user, MCP and OAuth tokens */
    API_AUTH_OWNER,     /* user tokens only: the owner of a personal connection acts alone */
    API_AUTH_PRINCIPAL, /* service principals */
    API_AUTH_WORKER,    /* service tokens of worker check-ins; reading: the stream's owner too */
    API_AUTH_OPERATOR,  /* peer credentials of the admin socket */
};

struct api_call;
typedef enum sbx_code api_handler_fn(struct api_call *c, struct sbx_err *err);
/* Judges what one field table cannot: fields against each other. Part of the shape check. */
typedef enum sbx_code api_shape_fn(const json_t *args, struct sbx_err *err);

enum {
    API_ERRORS_MAX = 16,
    API_DB_BUDGET_MS = 1600, /* of one handler: the answer comes within 2 s (case 44) */
};

struct api_spec {
    const char *summary;
    uint32_t scope;      /* SCOPE_...: one bit; persons only */
    uint32_t roles;      /* any of these; persons only */
    uint32_t permission; /* principals only */
    const struct api_schema *query;
    const struct api_schema *body;
    api_shape_fn *shape; /* NULL: none */
    const struct api_schema *answer;
    int status[2];                        /* of success; 0 ends */
    enum sbx_code errors[API_ERRORS_MAX]; /* beyond those that every operation has; 0 ends */
    const char *action;                   /* of the audit row; NULL: reads are not audited */
    api_handler_fn *handler;
};

struct api_call {
    struct api *api;
    struct request *req;
    struct response *res;
    struct arena *a;
    struct store_conn *db; /* the worker's; set again in a continuation */
    const struct api_spec *spec;
    const struct api_caller *caller;
    const json_t *args;
    const char *account_id; /* "" for operators where it is not given */
    struct api_access access;
    const struct store_principal *principal; /* API_AUTH_PRINCIPAL only, its installation active */
    void *note;                              /* a deferred handler's own, for its continuation */
    const char *object_kind, *object_id;     /* for the audit row; set by the handler */
    int exit_code;                           /* execute; else -1 */
    int64_t duration_ms;                     /* execute; else -1 */
    bool db_asked;
    bool ran;      /* the handler was reached: the audit has a row of it */
    bool deferred; /* the handler will settle audit and answer later */
};

/* Before and after the store is used in a handler: sets the time it may take, and fails at once
 * while the database was just seen to be away, so that a queue of requests drains instead of each
 * waiting for its own timeout (case 44: 503 within 2 s). api_db_end passes its code through; what a
 * region or GitHub could not answer says nothing about the database. */
MUST_USE enum sbx_code api_db_begin(struct api *api, struct request *req, struct sbx_err *err);
MUST_USE enum sbx_code api_db_end(struct api *api, const struct store_conn *db, enum sbx_code code);

/* The database was seen to be away. */
void api_db_down(struct api *api);

/* The route handler of every row: runs the checks, then spec->handler. */
route_fn api_dispatch;

/* Judges a user, MCP or OAuth token with the reading scope, whatever the route says. On a worker.
 */
enum http_auth api_auth_reader(struct api *api, struct request *req, struct sbx_err *err);

/* The caller in this account, from the store or what was just read of it (see api_access_*). */
MUST_USE enum sbx_code api_access_get(struct api_call *c, struct sbx_err *err);

/* Writes the audit row of a call that has ended with code. */
void api_call_audit(struct api_call *c, enum sbx_code code);

/* Defers the call until the sandbox has one of `statuses` or timeout_ms have passed, then runs
 * `then` on a worker, with a fresh c->db. The handler returns what this returns. */
typedef enum sbx_code api_then_fn(struct api_call *c, struct sbx_err *err);
MUST_USE enum sbx_code api_wait_status(struct api_call *c, const char *sandbox_id,
                                       uint32_t statuses, int64_t timeout_ms, api_then_fn *then);
/* request_continue, and false once the api was detached. Any thread. */
bool api_continue(struct api *api, struct http_server *server, uint64_t ticket, request_fn *fn,
                  void *arg);
/* For continuations: c for a request that was deferred; ends it as api_dispatch would. */
MUST_USE enum sbx_code api_call_resume(struct request *req, struct response *res, api_then_fn *then,
                                       struct sbx_err *err);

/* For a handler whose request was taken together with others (request_grouped): later was left with
 * c->db, and once it is settled `then` runs with *err as the statement's outcome; when that is not
 * known, `alone` runs instead, by itself. The handler returns what this returns. */
MUST_USE enum sbx_code api_together(struct api_call *c, struct store_later *later,
                                    api_then_fn *then, api_then_fn *alone);

/* Compact JSON text in the arena. */
char *api_json_text(struct arena *a, const json_t *j);

struct api {
    struct api_config cfg;
    struct reconcile *reconcile;
    struct reconcile_runs *runs; /* NULL: personal runs are off */
    pthread_rwlock_t attached_lock;
    bool detached;
    struct api_tokens *tokens; /* the digest cache */
    struct api_accesses *accesses;
    struct api_busy *busy;
    struct api_issuers *issuers;
    struct jwks *worker_keys; /* of service tokens; NULL: none configured */
    struct api_audit *audit;
    struct metrics_table *metrics;
    char *openapi; /* as served */
    size_t openapi_len;
    _Atomic bool ready;
    _Atomic int64_t db_down_until_ms; /* monotonic: fail at once until then (case 44) */
};

#endif
