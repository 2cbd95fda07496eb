#include <arpa/inet.h>
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/id.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/time.h"
#include "http/internal.h"

/* The callbacks of libmicrohttpd.  They run on the listener's http threads and never
 * block.  A request's life:
 *
 *   on_uri       the first line is there: the request is made, with the raw URI
 *   on_headers   edges, routing, authentication, what the body may be
 *   on_body      kept, streamed or dropped
 *   on_end       the body has ended: answered here, or suspended and given to a worker;
 *                called again when it was resumed: answered
 *   on_completed the answer has left, or the client has
 *
 * An answer that is known early waits until the body has ended (libmicrohttpd refuses one before),
 * unless the connection is to be closed anyway: then it goes out at once, from on_headers. */

static void deadline_in(struct request *req, int ms)
{
    atomic_store(&req->conn->deadline_ms, ms > 0 ? time_mono_ms() + ms : 0);
}

/* --- the answer --- */

static void add(struct MHD_Response *r, const char *name, const char *value)
{
    (void)MHD_add_response_header(r, name, value);
}

static bool origin_allowed(const struct request *req, const char **origin)
{
    const char *const *o = req->server->config.cors_origins;

    *origin = request_header(req, "Origin", NULL);
    while (*origin != NULL && o != NULL && *o != NULL && strcmp(*o, *origin) != 0)
        o++;
    return *origin != NULL && o != NULL && *o != NULL;
}

static void add_headers(struct request *req, struct MHD_Response *r)
{
    const struct response *res = &req->res;
    const char *origin;
    char number[16];

    add(r, "X-Request-Id", req->id);
    add(r, "Cache-Control", "no-store");
    if (res->content_type != NULL)
        add(r, "Content-Type", res->content_type);
    for (size_t i = 0; i < res->header_count; i++)
        add(r, res->headers[i].name, res->headers[i].value);
    if (res->retry_after > 0 && (res->status == 429 || res->status == 503)) {
        (void)snprintf(number, sizeof(number), "%d", res->retry_after);
        add(r, "Retry-After", number);
    }
    if (origin_allowed(req, &origin)) {
        add(r, "Access-Control-Allow-Origin", origin);
        add(r, "Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
        add(r, "Vary", "Origin");
    }
    if (req->close || atomic_load(&req->server->draining))
        add(r, "Connection", "close");
}

struct file {
    int fd;
    struct conn *conn;
    int send_timeout_ms;
};

static ssize_t read_file(void *arg, uint64_t pos, char *to, size_t max)
{
    struct file *f = arg;
    ssize_t n = pread(f->fd, to, max, (off_t)pos);

    atomic_store(&f->conn->deadline_ms, time_mono_ms() + f->send_timeout_ms);
    return n > 0 ? n : MHD_CONTENT_READER_END_WITH_ERROR; /* shorter than was promised */
}

static void close_file(void *arg)
{
    struct file *f = arg;

    (void)close(f->fd);
    free(f);
}

static struct MHD_Response *to_mhd(struct request *req)
{
    struct response *res = &req->res;
    size_t len = res->body.len;

    if (res->stream != NULL)
        return http_stream_to_mhd(res->stream, req);
    if (res->fd >= 0) {
        struct file *f = mem_zalloc(sizeof(*f));

        *f = (struct file){ res->fd, req->conn, req->server->config.send_timeout_ms };
        res->fd = -1;
        return MHD_create_response_from_callback(res->fd_size, 64 * 1024, read_file, f, close_file);
    }
    if (len == 0)
        return MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    return MHD_create_response_from_buffer(len, buf_take(&res->body), MHD_RESPMEM_MUST_FREE);
}

static enum MHD_Result answer(struct request *req)
{
    struct MHD_Response *r;
    enum MHD_Result ok;

    assert(req->res.status != 0);
    r = to_mhd(req);
    if (r == NULL)
        return MHD_NO;
    add_headers(req, r);
    req->phase = PHASE_SENT;
    deadline_in(req, req->server->config.send_timeout_ms);
    ok = MHD_queue_response(req->mhd, (unsigned)req->res.status, r);
    MHD_destroy_response(r);
    return ok;
}

static enum MHD_Result answer_early(struct request *req)
{
    http_response_fail(req, &req->early);
    return answer(req);
}

static enum MHD_Result answer_and_close(struct request *req)
{
    req->close = true;
    return answer_early(req);
}

/* --- headers --- */

static enum MHD_Result keep_header(void *arg, enum MHD_ValueKind kind, const char *key,
                                   const char *value)
{
    static const char TOKEN[] = "!#$%&'*+-.^_`|~0123456789"
                                "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    struct request *req = arg;

    (void)kind;
    if (req->header_count == HTTP_HEADERS_MAX) {
        req->headers_overflow = true;
        return MHD_NO;
    }
    if (key[0] == '\0' || key[strspn(key, TOKEN)] != '\0')
        req->headers_bad = true; /* "Content-Length :" is read differently by different servers */
    req->headers[req->header_count].name = key;
    req->headers[req->header_count++].value = value != NULL ? value : "";
    return MHD_YES;
}

static size_t header_count(const struct request *req)
{
    int n = MHD_get_connection_values(req->mhd, MHD_HEADER_KIND, NULL, NULL);

    return n > HTTP_HEADERS_MAX ? HTTP_HEADERS_MAX : n > 0 ? (size_t)n : 1;
}

static const char *choose_id(struct request *req)
{
    const char *given = request_header(req, "X-Request-Id", NULL);
    size_t len = given != NULL ? strlen(given) : 0;
    char made[ID_SIZE];

    if (len >= HTTP_REQUEST_ID_MIN && len <= HTTP_REQUEST_ID_MAX &&
        strspn(given, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == len)
        return arena_strdup(req->arena, given);
    id_new(made);
    return arena_strdup(req->arena, made);
}

struct body_claim {
    bool chunked;
    uint64_t length; /* 0 when chunked */
};

/* What could make two servers see two different requests is refused (RFC 9112, 6.3). */
static enum sbx_code check_edges(struct request *req, const char *version, struct body_claim *body,
                                 struct sbx_err *err)
{
    size_t lengths, codings, hosts;
    const char *length = request_header(req, "Content-Length", &lengths);
    const char *coding = request_header(req, "Transfer-Encoding", &codings);
    int64_t n = 0;

    (void)request_header(req, "Host", &hosts);
    if (req->headers_overflow)
        return err_set(err, SBX_E_HEADERS_TOO_LARGE, "The request has more than %d headers.",
                       HTTP_HEADERS_MAX);
    if (req->headers_bad)
        return err_set(err, SBX_E_INVALID, "A header name has a character that it may not have.");
    if (lengths > 1)
        return err_set(err, SBX_E_INVALID, "The request has two Content-Length headers.");
    if (lengths > 0 && codings > 0)
        return err_set(err, SBX_E_INVALID,
                       "The request has both Content-Length and Transfer-Encoding.");
    if (codings > 1 || (codings == 1 && (strcasecmp(coding, "chunked") != 0 ||
                                         strcmp(version, MHD_HTTP_VERSION_1_1) != 0)))
        return err_set(err, SBX_E_INVALID,
                       "The request has a Transfer-Encoding other than one "
                       "chunked.");
    if (hosts > 1)
        return err_set(err, SBX_E_INVALID, "The request has two Host headers.");
    if (lengths == 1 &&
        (length[strspn(length, "0123456789")] != '\0' || !str_parse_int(length, 0, INT64_MAX, &n)))
        return err_set(err, SBX_E_INVALID, "Content-Length is not a number.");
    body->chunked = codings == 1;
    body->length = (uint64_t)n;
    return SBX_OK;
}

static void add_allow(struct request *req, unsigned allow)
{
    char text[80] = "";
    size_t n = 0;

    for (int m = HTTP_METHOD_UNSET + 1; m < HTTP_METHOD_COUNT; m++) {
        if ((allow & 1u << m) == 0)
            continue;
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s%s", n > 0 ? ", " : "",
                              http_method_name((enum http_method)m), m == HTTP_GET ? ", HEAD" : "");
    }
    if (req->server->config.cors_origins != NULL)
        (void)snprintf(text + n, sizeof(text) - n, ", OPTIONS");
    response_header(&req->res, "Allow", text);
}

static void preflight(struct request *req, unsigned allow)
{
    req->preflight = true;
    add_allow(req, allow);
    response_header(&req->res, "Access-Control-Allow-Methods", "GET, POST, PUT, PATCH, DELETE");
    response_header(&req->res, "Access-Control-Allow-Headers",
                    "Authorization, Content-Type, X-Request-Id");
    response_header(&req->res, "Access-Control-Max-Age", "600");
}

static enum sbx_code find_route(struct request *req, char *const *segments, size_t count,
                                struct sbx_err *err)
{
    struct router_match m;
    enum http_method method = http_method_parse(req->method);

    req->head = strcmp(req->method, "HEAD") == 0;
    m = route_find(&req->listener->router, req->head ? HTTP_GET : method, segments, count);
    if (m.path == NULL)
        return err_set(err, SBX_E_NOT_FOUND, "There is nothing at this path.");
    if (m.path->route->on_error != NULL)
        req->on_error = m.path->route->on_error;
    if (m.row == NULL && strcmp(req->method, "OPTIONS") == 0 &&
        req->server->config.cors_origins != NULL) {
        preflight(req, m.allow);
        return SBX_OK;
    }
    if (m.row == NULL) {
        add_allow(req, m.allow);
        return err_set(err, SBX_E_METHOD_NOT_ALLOWED, "This path does not take that method.");
    }
    req->route = m.row->route;
    for (size_t i = 0; i < m.row->count; i++) {
        if (!m.row->segment[i].param)
            continue;
        req->params[req->param_count].name =
            arena_strndup(req->arena, m.row->segment[i].text, m.row->segment[i].len);
        req->params[req->param_count++].value = segments[i];
    }
    if (req->route->on_error != NULL)
        req->on_error = req->route->on_error;
    return SBX_OK;
}

/* application/json, whatever parameters follow. */
static bool is_json(const char *type)
{
    size_t len = strlen("application/json");

    if (strncasecmp(type, "application/json", len) != 0)
        return false;
    type += len;
    type += strspn(type, " \t");
    return *type == '\0' || *type == ';';
}

static enum sbx_code check_body(const struct request *req, const struct body_claim *body,
                                struct sbx_err *err)
{
    const struct route *r = req->route;
    const char *type = request_header(req, "Content-Type", NULL);
    const char *coding = request_header(req, "Content-Encoding", NULL);

    if (!body->chunked && body->length == 0)
        return SBX_OK;
    if (r->body == HTTP_BODY_NONE)
        return body->chunked ? SBX_OK /* it may turn out empty */
                             : err_set(err, SBX_E_INVALID, "This path takes no request body.");
    if (body->length > r->body_max)
        return err_set(err, SBX_E_TOO_LARGE, "The request body is larger than %zu bytes.",
                       r->body_max);
    if (r->body == HTTP_BODY_JSON && (type == NULL || !is_json(type)))
        return err_set(err, SBX_E_MEDIA_TYPE, "The Content-Type must be application/json.");
    if (coding != NULL && strcasecmp(coding, "identity") != 0) /* RFC 9110, 8.4 */
        return err_set(err, SBX_E_MEDIA_TYPE, "The body may not have a Content-Encoding.");
    return SBX_OK;
}

/* Who calls comes before what is wrong with the request (contract 1, order of checks). */
static void judge(struct request *req, const struct body_claim *body)
{
    struct http_server *s = req->server;
    struct sbx_err denied = { 0 };

    switch (s->config.auth(s->config.owner, req, req->route, &denied)) {
    case HTTP_AUTH_DENY:
        assert(denied.code != SBX_OK);
        req->early = denied;
        return;
    case HTTP_AUTH_ON_WORKER:
        req->auth_on_worker = true;
        break;
    case HTTP_AUTH_ALLOW:
        break;
    }
    if (req->early.code != SBX_OK)
        return;
    if (check_body(req, body, &req->early) == SBX_OK &&
        atomic_load(&s->deferred) >= s->config.deferred_max &&
        (req->route->flags & ROUTE_INLINE) == 0)
        err_put(&req->early, SBX_E_BUSY, "Too many requests are waiting.");
}

static enum MHD_Result on_headers(struct request *req, const char *method, const char *version)
{
    char **segments = arena_zalloc(req->arena, (ROUTE_SEGMENTS_MAX + 1) * sizeof(*segments));
    struct sbx_err bad_uri = { 0 };
    struct body_claim body = { 0 };
    size_t count = 0;
    bool fatal = false;

    req->counted = true;
    (void)atomic_fetch_add(&req->server->requests, 1);
    req->phase = PHASE_BODY;
    req->method = arena_strdup(req->arena, method);
    req->headers = arena_zalloc(req->arena, header_count(req) * sizeof(*req->headers));
    (void)MHD_get_connection_values(req->mhd, MHD_HEADER_KIND, keep_header, req);
    req->id = choose_id(req);
    deadline_in(req, req->server->config.body_timeout_ms);
    if (check_edges(req, version, &body, &req->early) != SBX_OK)
        return answer_and_close(req);
    if (http_request_parse_uri(req, segments, &count, &fatal, &bad_uri) != SBX_OK && fatal) {
        req->early = bad_uri;
        return answer_and_close(req);
    }
    if (find_route(req, segments, count, &req->early) == SBX_OK && !req->preflight) {
        req->early = bad_uri;
        judge(req, &body);
    }
    if (req->early.code != SBX_OK &&
        (body.length > SBX_BODY_DROP_MAX || request_header(req, "Expect", NULL) != NULL))
        return answer_and_close(req); /* the body is not worth its way */
    return MHD_YES;
}

/* --- body --- */

static enum MHD_Result drop_body(struct request *req, size_t *len)
{
    http_request_release_body(req);
    *len = 0;
    return req->body_seen <= SBX_BODY_DROP_MAX ? MHD_YES : MHD_NO;
}

/* Takes what fits into the piece.  The piece is given to a worker only when bytes are left over:
 * libmicrohttpd 0.9.75 goes on with the next chunk, suspended or not, after one that was taken
 * whole, and stops at one that was not. */
static enum MHD_Result stream_body(struct request *req, const char *data, size_t *len)
{
    size_t room = HTTP_STREAM_PIECE - req->body.len;
    size_t n = *len < room ? *len : room;

    deadline_in(req, req->server->config.body_timeout_ms);
    if (req->body_seen + *len > req->route->body_max) {
        err_put(&req->early, SBX_E_TOO_LARGE, "The request body is larger than %zu bytes.",
                req->route->body_max);
        req->body_seen = *len; /* from here on it is dropped, up to the drop limit */
        return drop_body(req, len);
    }
    if (http_request_take_body(req, data, n, HTTP_STREAM_PIECE, &req->early) != SBX_OK) {
        req->body_seen = *len;
        return drop_body(req, len);
    }
    req->body_seen += n;
    *len -= n;
    if (*len > 0) {
        req->phase = PHASE_WORK;
        deadline_in(req, 0);
        MHD_suspend_connection(req->mhd);
        http_work_submit(req, JOB_PIECE);
    }
    return MHD_YES;
}

static enum MHD_Result on_body(struct request *req, const char *data, size_t *len)
{
    enum http_body body = req->route != NULL ? req->route->body : HTTP_BODY_ANY;

    assert(req->phase == PHASE_BODY);
    if (req->early.code == SBX_OK && body == HTTP_BODY_STREAM)
        return stream_body(req, data, len);
    req->body_seen += *len;
    if (req->early.code != SBX_OK || req->route == NULL)
        return drop_body(req, len);
    if (body == HTTP_BODY_NONE) {
        err_put(&req->early, SBX_E_INVALID, "This path takes no request body.");
        return drop_body(req, len);
    }
    if (http_request_take_body(req, data, *len, req->route->body_max, &req->early) != SBX_OK)
        return drop_body(req, len);
    *len = 0;
    return MHD_YES;
}

/* --- the end of the request --- */

static void run_inline(struct request *req)
{
    struct sbx_err err = { 0 };

    if (req->route->handler(req, &req->res, &err) != SBX_OK) {
        http_response_fail(req, &err);
    } else if (req->res.status == 0) {
        err_put(&err, SBX_E_INTERNAL, "route %s answered nothing", req->route->name);
        http_response_fail(req, &err);
    }
    assert(!req->deferred); /* an inline route has no worker to go on with */
}

static enum MHD_Result on_end(struct request *req)
{
    if (req->phase == PHASE_READY)
        return answer(req);
    assert(req->phase == PHASE_BODY); /* a suspended connection is not called */
    if (req->preflight) {
        response_empty(&req->res, MHD_HTTP_NO_CONTENT);
        return answer(req);
    }
    if (req->early.code != SBX_OK && !req->auth_on_worker)
        return answer_early(req);
    if ((req->route->flags & ROUTE_INLINE) != 0 && !req->auth_on_worker) {
        run_inline(req);
        return answer(req);
    }
    req->phase = PHASE_WORK;
    deadline_in(req, 0); /* the client has done its part */
    MHD_suspend_connection(req->mhd);
    http_work_submit(req, JOB_HANDLE);
    return MHD_YES;
}

void http_daemon_resume(struct request *req, enum phase phase)
{
    struct MHD_Connection *c = req->mhd;

    req->phase = phase;
    if (phase == PHASE_BODY)
        deadline_in(req, req->server->config.body_timeout_ms);
    MHD_resume_connection(c); /* the request is its http thread's from here on */
}

/* --- libmicrohttpd's side --- */

static void *on_uri(void *arg, const char *uri, struct MHD_Connection *c)
{
    struct listener *l = arg;
    struct request *req = http_request_new(l, c, uri);

    deadline_in(req, l->server->config.header_timeout_ms);
    return req;
}

static enum MHD_Result on_access(void *arg, struct MHD_Connection *c, const char *url,
                                 const char *method, const char *version, const char *data,
                                 size_t *len, void **ctx)
{
    struct request *req = *ctx;

    (void)arg, (void)c, (void)url;
    if (req->phase == PHASE_HEADERS)
        return on_headers(req, method, version);
    if (*len > 0)
        return on_body(req, data, len);
    return on_end(req);
}

static void on_completed(void *arg, struct MHD_Connection *c, void **ctx,
                         enum MHD_RequestTerminationCode code)
{
    struct listener *l = arg;
    struct http_server *s = l->server;
    struct request *req = *ctx;

    (void)c;
    if (req == NULL)
        return;
    *ctx = NULL;
    assert(req->phase != PHASE_WORK);
    deadline_in(req, s->config.idle_timeout_ms + s->config.header_timeout_ms);
    if (req->counted) {
        http_log_end(req, code == MHD_REQUEST_TERMINATED_COMPLETED_OK);
        http_request_free(req);
        if (atomic_fetch_sub(&s->requests, 1) == 1 && atomic_load(&s->draining)) {
            (void)pthread_mutex_lock(&s->lock);
            (void)pthread_cond_broadcast(&s->wake);
            (void)pthread_mutex_unlock(&s->lock);
        }
        return;
    }
    http_request_free(req);
}

static void learn_peer(struct listener *l, struct MHD_Connection *mhd, struct conn *c)
{
    const union MHD_ConnectionInfo *addr =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    struct ucred cred;
    socklen_t len = sizeof(cred);

    c->peer.tls = l->tls != NULL;
    if (l->unix_path != NULL) {
        c->peer.local = true;
        c->peer.uid = (uid_t)-1; /* nobody, until the kernel says who */
        c->peer.gid = (gid_t)-1;
        if (getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0) {
            c->peer.pid = cred.pid;
            c->peer.uid = cred.uid;
            c->peer.gid = cred.gid;
        }
    } else if (addr != NULL && addr->client_addr->sa_family == AF_INET) {
        struct sockaddr_in in;

        memcpy(&in, addr->client_addr, sizeof(in));
        (void)inet_ntop(AF_INET, &in.sin_addr, c->peer.address, sizeof(c->peer.address));
        c->peer.port = ntohs(in.sin_port);
    } else if (addr != NULL && addr->client_addr->sa_family == AF_INET6) {
        struct sockaddr_in6 in6;

        memcpy(&in6, addr->client_addr, sizeof(in6));
        (void)inet_ntop(AF_INET6, &in6.sin6_addr, c->peer.address, sizeof(c->peer.address));
        c->peer.port = ntohs(in6.sin6_port);
    }
}

static void conn_open(struct listener *l, struct MHD_Connection *mhd, void **ctx)
{
    const union MHD_ConnectionInfo *fd =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct http_server *s = l->server;
    struct conn *c = mem_zalloc(sizeof(*c));

    c->fd = fd != NULL ? fd->connect_fd : -1;
    learn_peer(l, mhd, c);
    atomic_store(&c->deadline_ms, time_mono_ms() + s->config.header_timeout_ms);
    (void)pthread_mutex_lock(&s->conn_lock);
    c->next = s->conns;
    if (c->next != NULL)
        c->next->prev = c;
    s->conns = c;
    (void)pthread_mutex_unlock(&s->conn_lock);
    (void)atomic_fetch_add(&s->connections, 1);
    *ctx = c;
}

static void conn_close(struct listener *l, void **ctx)
{
    struct http_server *s = l->server;
    struct conn *c = *ctx;

    if (c == NULL)
        return;
    (void)pthread_mutex_lock(&s->conn_lock);
    if (c->prev != NULL)
        c->prev->next = c->next;
    else
        s->conns = c->next;
    if (c->next != NULL)
        c->next->prev = c->prev;
    (void)pthread_mutex_unlock(&s->conn_lock);
    (void)atomic_fetch_sub(&s->connections, 1);
    free(c);
    *ctx = NULL;
}

/* The closed notice comes before the descriptor is closed, so the timer, which works under
 * conn_lock, never shuts another connection's. */
static void on_connection(void *arg, struct MHD_Connection *c, void **ctx,
                          enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        conn_open(arg, c, ctx);
    else
        conn_close(arg, ctx);
}

static void on_log(void *arg, const char *fmt, va_list ap)
{
    (void)arg, (void)fmt, (void)ap; /* faults of peers; what matters stands in the access log */
}

enum sbx_code http_daemon_start(struct listener *l, const struct http_listener *spec,
                                struct sbx_err *err)
{
    const struct http_config *c = &l->server->config;
    unsigned flags = MHD_USE_EPOLL | MHD_USE_INTERNAL_POLLING_THREAD | MHD_ALLOW_SUSPEND_RESUME |
                     MHD_USE_ERROR_LOG | (l->tls != NULL ? MHD_USE_TLS : 0);
    struct MHD_OptionItem options[6] = { { MHD_OPTION_END, 0, NULL } };
    size_t n = 0;

    if (spec->threads > 1)
        options[n++] = (struct MHD_OptionItem){ MHD_OPTION_THREAD_POOL_SIZE, spec->threads, NULL };
    if (c->connections_per_ip > 0 && l->unix_path == NULL)
        options[n++] = (struct MHD_OptionItem){ MHD_OPTION_PER_IP_CONNECTION_LIMIT,
                                                c->connections_per_ip, NULL };
    if (l->tls != NULL) {
        static char priorities[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";

        options[n++] =
            (struct MHD_OptionItem){ MHD_OPTION_HTTPS_CERT_CALLBACK, 0, http_tls_callback() };
        options[n++] = (struct MHD_OptionItem){ MHD_OPTION_HTTPS_PRIORITIES, 0, priorities };
    }
    options[n] = (struct MHD_OptionItem){ MHD_OPTION_END, 0, NULL };
    l->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, on_access, l, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
        MHD_OPTION_LISTEN_SOCKET, l->fd, MHD_OPTION_URI_LOG_CALLBACK, on_uri, l,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, l, MHD_OPTION_NOTIFY_CONNECTION, on_connection,
        l, MHD_OPTION_CONNECTION_LIMIT, c->connections_max, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        c->header_max, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_ARRAY, options, MHD_OPTION_END);
    if (l->daemon == NULL)
        return err_set(err, SBX_E_INTERNAL, "start the http threads of listener %s", l->name);
    return SBX_OK;
}
