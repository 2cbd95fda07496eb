#ifndef HTTP_INTERNAL_H
#define HTTP_INTERNAL_H

/* The insides of the server, for the files of this folder only. */

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/thread.h"
#include "http/server.h"
#include "sbx/limits.h"

enum {
    HTTP_HEADERS_MAX = 128,  /* fields of a request; more: 431 */
    HTTP_QUERY_MAX = 64,     /* parameters; more: 400 */
    HTTP_REQUEST_ID_MIN = 8, /* contract 1 */
    HTTP_REQUEST_ID_MAX = 128,
    HTTP_STREAM_PIECE = 256 * 1024,       /* of a streamed body, in memory at once */
    HTTP_ANSWER_MAX = 1024 * 1024 * 1024, /* bytes of an answer in memory: our own ceiling */
    HTTP_LOG_FIELDS_MAX = 4,
    HTTP_RESPONSE_HEADERS_MAX = 16,
    HTTP_LISTENERS_MAX = 8,
    HTTP_TICKET_BUCKETS = 4096,
    HTTP_TIMER_MS = 500,       /* the timer's slowest beat */
    HTTP_LAST_WORDS_MS = 1000, /* at the stop: for 503s to leave */
    HTTP_GROUP_MAX = 32,       /* requests of a lane that a worker takes at once */
};

/* --- router.c --- */

/* 0: its requests are handled alone. */
static inline unsigned route_lane(const struct route *r)
{
    return r->flags >> 8;
}

struct router_row {
    const struct route *route;
    size_t count;
    struct {
        const char *text;
        size_t len;
        bool param; /* text is its name */
    } segment[ROUTE_SEGMENTS_MAX];
};

struct router {
    struct router_row *rows; /* by number of segments, the more specific first */
    size_t count;
    size_t first[ROUTE_SEGMENTS_MAX + 2];
};

struct router_match {
    const struct router_row *row;  /* path and method fit; NULL: no */
    const struct router_row *path; /* the path fits; NULL: 404 */
    unsigned allow;                /* bits 1 << enum http_method, when only the path fits */
};

void route_compile(struct router *r, const struct route_table *tables, size_t count);
void route_fini(struct router *r);
/* segments: decoded, NUL-ended. */
struct router_match route_find(const struct router *r, enum http_method method,
                               char *const *segments, size_t count);

/* --- tls.c --- */

struct http_tls;
MUST_USE enum sbx_code http_tls_open(const char *cert_file, const char *key_file, uint16_t port,
                                     struct http_tls **out, struct sbx_err *err);
MUST_USE enum sbx_code http_tls_reload(struct http_tls *t, struct sbx_err *err);
void http_tls_close(struct http_tls *t); /* after its daemon has stopped; NULL is allowed */
void *http_tls_callback(void);           /* for MHD_OPTION_HTTPS_CERT_CALLBACK */

/* --- listen.c --- */

/* Binds and listens; *port is 0 and *path set (the caller's) for a unix socket. */
MUST_USE enum sbx_code http_listen(const struct http_listener *l, int *fd, uint16_t *port,
                                   char **path, struct sbx_err *err);

/* --- jobs.c: requests that wait for a worker --- */

struct http_jobs;
struct http_jobs *http_jobs_new(size_t max);
void http_jobs_free(struct http_jobs *j); /* empty; NULL is allowed */
/* lane: the route's, or 0: to be taken alone. False when full (admitted work never is) or closed. */
bool http_jobs_put(struct http_jobs *j, struct request *req, unsigned lane, bool admitted);
/* Waits. One request, or up to HTTP_GROUP_MAX of one lane; 0: closed and empty. *lane: 0 at first;
 * it says of which lane the worker has a group, and ends that one with the next call. */
size_t http_jobs_take(struct http_jobs *j, struct request *out[HTTP_GROUP_MAX], unsigned *lane);
void http_jobs_close(struct http_jobs *j);
size_t http_jobs_depth(struct http_jobs *j);

/* --- the server --- */

struct listener {
    struct http_server *server;
    char *name;
    char *unix_path;
    uint16_t port;
    int fd;
    struct http_tls *tls;
    struct router router;
    struct MHD_Daemon *daemon;
    bool quiet; /* quiesced: fd is ours to close */
};

/* One accepted connection. The timer cuts it when its deadline has passed. */
struct conn {
    struct conn *prev, *next; /* server's list, under conn_lock */
    int fd;
    atomic_int_least64_t deadline_ms; /* time_mono_ms; 0: none */
    struct request_peer peer;
};

struct http_server {
    struct http_config config;
    struct listener listeners[HTTP_LISTENERS_MAX];
    size_t listener_count;

    struct http_jobs *jobs;
    struct worker *workers;
    size_t worker_count;
    struct thread timer;

    atomic_size_t connections, requests, body_bytes, deferred;
    atomic_bool draining; /* answers carry Connection: close */
    atomic_bool access_log;

    pthread_mutex_t lock; /* what follows, and request.wait */
    pthread_cond_t wake;  /* the timer, and drain */
    struct request *tickets[HTTP_TICKET_BUCKETS];
    uint64_t last_ticket;
    int64_t next_deadline_ms;
    bool stopping;
    bool timer_stop;
    struct response_stream *streams;

    pthread_mutex_t conn_lock;
    struct conn *conns;

    struct metrics_table *metrics;
};

struct worker {
    struct http_server *server;
    struct thread thread;
    void *context;
};

enum phase {
    PHASE_HEADERS = 0, /* the http thread's */
    PHASE_BODY,
    PHASE_WORK,  /* suspended: a worker's, or deferred */
    PHASE_READY, /* resumed: to be answered by the http thread */
    PHASE_SENT,
};

enum job { JOB_PIECE, JOB_HANDLE, JOB_CONTINUE };

/* Requests that one worker has taken together and that wait for their settling. */
struct group {
    struct request *waiting[HTTP_GROUP_MAX];
    size_t count;
};

struct header {
    const char *name;
    const char *value;
};

struct response {
    struct request *request;
    int status;
    const char *content_type;
    struct buf body;
    struct json_out out; /* between response_ok_begin and response_ok_end */
    int fd;              /* -1: none */
    uint64_t fd_size;
    struct response_stream *stream;
    struct header headers[HTTP_RESPONSE_HEADERS_MAX];
    size_t header_count;
    json_t *error_data;
    char *error_code;
    int retry_after;
};

struct request {
    struct http_server *server;
    struct listener *listener;
    struct conn *conn;
    struct MHD_Connection *mhd;
    struct arena *arena;

    /* as it came */
    const char *id;
    const char *method;
    const char *uri;  /* raw */
    const char *path; /* raw, without the query */
    struct request_query *query;
    size_t query_count;
    struct header *headers;
    size_t header_count;
    bool headers_overflow;
    bool headers_bad;
    bool head;
    bool preflight; /* of CORS */

    /* what it is */
    const struct route *route;
    route_error_fn *on_error;
    struct header params[ROUTE_PARAMS_MAX];
    size_t param_count;
    void *caller;
    void *slot;
    int64_t started_ms;

    /* where it is */
    enum phase phase;
    bool counted;
    bool auth_on_worker;
    bool close;
    struct sbx_err early; /* the answer, when it is known before the handler runs */
    struct buf body;
    size_t body_seen;    /* bytes, dropped ones included */
    size_t body_charged; /* bytes taken from the budget */
    bool json_parsed;
    json_t *json;

    enum job job;
    struct request *job_next; /* in its list; under the lock of the jobs */
    uint64_t job_seq;
    void *worker;
    struct group *group; /* it was taken together with others, and its worker can settle them */
    struct {
        uint64_t ticket; /* 0: none; under server->lock */
        bool parked;     /* the handler has returned */
        bool resumed;    /* a continuation came before it had */
        int64_t deadline_ms;
        request_fn *on_timeout;
        struct request *next; /* in its bucket */
        request_fn *fn;
        void *arg;
    } wait;
    bool deferred; /* this run of the handler deferred */
    bool together; /* it waits for its group's settling */

    struct response res;
    struct sbx_err failed; /* for the log line */
    struct header log[HTTP_LOG_FIELDS_MAX];
    size_t log_count;
};

/* request.c */
struct request *http_request_new(struct listener *l, struct MHD_Connection *c, const char *uri);
void http_request_free(struct request *req);
/* Splits and decodes the raw URI; *segments in the arena. SBX_E_INVALID; *fatal: close too. */
MUST_USE enum sbx_code http_request_parse_uri(struct request *req, char **segments, size_t *count,
                                              bool *fatal, struct sbx_err *err);
/* Appends body bytes under the route's limit and the server's budget. */
MUST_USE enum sbx_code http_request_take_body(struct request *req, const char *data, size_t len,
                                              size_t max, struct sbx_err *err);
void http_request_release_body(struct request *req);

/* response.c */
void http_response_reset(struct response *res); /* drops what a setter left */
void http_response_fini(struct response *res);
/* Writes err in the request's form. */
void http_response_fail(struct request *req, const struct sbx_err *err);
/* stream.c */
struct MHD_Response *http_stream_to_mhd(struct response_stream *s, struct request *req);
void http_stream_drop(struct response_stream *s); /* the consumer's part, never sent */
void http_streams_abort(struct http_server *s);

/* work.c */
/* The request is suspended; when the queue is full or closed it is answered 503. */
void http_work_submit(struct request *req, enum job job);
void http_work_main(void *worker);
void http_timer_main(void *server);
/* Ends every deferred request with err. */
void http_deferred_fail_all(struct http_server *s);
bool http_wait_idle(struct http_server *s, int64_t deadline_ms);

/* daemon.c: the libmicrohttpd callbacks */
MUST_USE enum sbx_code http_daemon_start(struct listener *l, const struct http_listener *spec,
                                         struct sbx_err *err);
/* A worker, the timer or anybody else gives the request back to its http thread. */
void http_daemon_resume(struct request *req, enum phase phase);

/* log.c */
void http_log_end(struct request *req, bool complete);
struct metrics_table *http_metrics_register(struct http_server *s);

#endif
