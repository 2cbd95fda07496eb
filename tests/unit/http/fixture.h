#ifndef TESTS_HTTP_FIXTURE_H
#define TESTS_HTTP_FIXTURE_H

/* A real server with a small route table, and what its handlers and the tests share. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <time.h>

#include "base/log.h"
#include "base/mem.h"
#include "http/server.h"
#include "sbx/limits.h"
#include "unit/http/wire.h"

enum { AUTH_OPEN = 1, AUTH_TOKEN, AUTH_SLOW };

struct fixture {
    struct http_server *server;
    uint16_t port;
    struct metrics *metrics;
    atomic_ulong ticket;     /* the last deferred request's */
    atomic_int deferrals;    /* handlers that have deferred */
    atomic_int gate;         /* /block waits until it is 1 */
    atomic_int blocked;      /* handlers in /block */
    atomic_int open_workers; /* opened minus closed contexts */
    atomic_ulong streamed;   /* bytes that /upload saw */
    atomic_int arena_ends;   /* deferred frees of /upload */
    atomic_int timeout_ms;   /* of deferrals */
    atomic_int settling;     /* workers that settle their group */
    atomic_int settled;      /* groups */
    atomic_int grouped;      /* handlers that wait together, since the last settling */
    atomic_int largest;      /* group */
    _Atomic(struct response_stream *) stream;
};

static inline void fixture_pause(void)
{
    (void)nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

/* Polls until the condition holds; fails the test after WIRE_WAIT_MS. */
#define UNTIL(cond)                                                                                \
    do {                                                                                           \
        int64_t until_ = time_mono_ms() + WIRE_WAIT_MS;                                            \
        while (!(cond) && time_mono_ms() < until_)                                                 \
            fixture_pause();                                                                       \
        assert_true(cond);                                                                         \
    } while (0)

/* --- handlers --- */

static inline enum sbx_code h_hello(struct request *req, struct response *res, struct sbx_err *err)
{
    (void)req, (void)err;
    response_ok(res, 200, json_pack("{s:s}", "hello", "world"));
    return SBX_OK;
}

static inline enum sbx_code h_echo(struct request *req, struct response *res, struct sbx_err *err)
{
    size_t n, times;
    const struct request_query *q = request_query(req, &n);
    json_t *j = json_object();
    const char *seen = request_header(req, "x-seen", &times);

    (void)err;
    json_put_str(j, "id", request_param(req, "id"));
    json_put_str(j, "path", request_path(req));
    json_put_str(j, "seen", seen);
    json_put_int(j, "times", (int64_t)times);
    json_put_int(j, "query", (int64_t)n);
    if (n > 0) {
        json_put_str(j, "name", q[0].name);
        json_put_str(j, "value", q[0].value);
    }
    json_put_bool(j, "worker", request_worker(req) != NULL);
    response_ok(res, 200, j);
    return SBX_OK;
}

static inline enum sbx_code h_json(struct request *req, struct response *res, struct sbx_err *err)
{
    json_t *body = NULL;

    if (request_json(req, &body, err) != SBX_OK)
        return err->code;
    if (body == NULL)
        return err_field(err, "name", "A body is needed.");
    response_ok(res, 201, json_deep_copy(body));
    return SBX_OK;
}

static inline enum sbx_code h_raw(struct request *req, struct response *res, struct sbx_err *err)
{
    size_t len;
    const char *body = request_body(req, &len);

    (void)err;
    response_bytes(res, 200, "application/octet-stream", body, len);
    return SBX_OK;
}

static inline enum sbx_code h_fail(struct request *req, struct response *res, struct sbx_err *err)
{
    const char *how = request_param(req, "how");

    if (strcmp(how, "quota") == 0) {
        json_put_int(response_error_data(res), "limit", 2);
        response_retry_after(res, 7);
        return err_set(err, SBX_E_QUOTA, "The account has 2 active sandboxes.");
    }
    if (strcmp(how, "conflict") == 0)
        return err_set(err, SBX_E_CHANGING, "Sandbox is changing state");
    if (strcmp(how, "nothing") == 0)
        return SBX_OK;
    if (strcmp(how, "code") == 0) {
        response_error_code(res, "stream.not_found");
        return err_set(err, SBX_E_NOT_FOUND, "No such stream.");
    }
    return err_set(err, SBX_E_INTERNAL, "the secret inside");
}

static inline enum sbx_code h_block(struct request *req, struct response *res, struct sbx_err *err)
{
    struct fixture *f = request_owner(req);

    (void)err;
    (void)atomic_fetch_add(&f->blocked, 1);
    while (atomic_load(&f->gate) == 0)
        fixture_pause();
    (void)atomic_fetch_sub(&f->blocked, 1);
    response_empty(res, 204);
    return SBX_OK;
}

static inline enum sbx_code h_defer(struct request *req, struct response *res, struct sbx_err *err)
{
    struct fixture *f = request_owner(req);

    (void)res, (void)err;
    atomic_store(&f->ticket, request_defer(req, atomic_load(&f->timeout_ms), NULL));
    (void)atomic_fetch_add(&f->deferrals, 1);
    return SBX_OK;
}

static inline enum sbx_code late(struct request *req, struct response *res, void *arg,
                                 struct sbx_err *err)
{
    (void)req, (void)arg, (void)err;
    response_ok(res, 200, json_pack("{s:b}", "late", 1));
    return SBX_OK;
}

static inline enum sbx_code h_late(struct request *req, struct response *res, struct sbx_err *err)
{
    struct fixture *f = request_owner(req);

    (void)res, (void)err;
    atomic_store(&f->ticket, request_defer(req, atomic_load(&f->timeout_ms), late));
    return SBX_OK;
}

static inline enum sbx_code answer_arg(struct request *req, struct response *res, void *arg,
                                       struct sbx_err *err)
{
    char *text = arg;

    (void)err;
    response_ok(res, 200,
                json_pack("{s:s, s:b}", "text", text, "worker", request_worker(req) != NULL));
    free(text);
    return SBX_OK;
}

/* Continued by "somebody else" before the handler has returned. */
static inline enum sbx_code h_early(struct request *req, struct response *res, struct sbx_err *err)
{
    struct fixture *f = request_owner(req);
    uint64_t ticket = request_defer(req, 60000, NULL);

    (void)res, (void)err;
    assert_true(request_continue(f->server, ticket, answer_arg, mem_strdup("early")));
    assert_false(request_continue(f->server, ticket, answer_arg, NULL)); /* dead */
    return SBX_OK;
}

static inline enum sbx_code on_upload(struct request *req, const void *data, size_t len,
                                      struct sbx_err *err);
static inline void upload_end(void *arg)
{
    struct fixture *f = arg;

    (void)atomic_fetch_add(&f->arena_ends, 1);
}

static inline enum sbx_code on_upload(struct request *req, const void *data, size_t len,
                                      struct sbx_err *err)
{
    struct fixture *f = request_owner(req);

    if (request_slot(req) == NULL) {
        request_set_slot(req, arena_zalloc(request_arena(req), 1));
        arena_defer(request_arena(req), upload_end, f);
    }
    assert_true(len > 0);
    (void)atomic_fetch_add(&f->streamed, len);
    if (memchr(data, '!', len) != NULL)
        return err_field(err, "archive", "The archive has a bang.");
    return SBX_OK;
}

static inline enum sbx_code h_upload(struct request *req, struct response *res, struct sbx_err *err)
{
    struct fixture *f = request_owner(req);

    (void)err;
    response_ok(res, 200, json_pack("{s:I}", "bytes", (json_int_t)atomic_load(&f->streamed)));
    return SBX_OK;
}

static inline enum sbx_code h_download(struct request *req, struct response *res,
                                       struct sbx_err *err)
{
    struct fixture *f = request_owner(req);

    (void)err;
    atomic_store(&f->stream, response_stream(res, 200, "text/plain", RESPONSE_SIZE_UNKNOWN, 4096));
    return SBX_OK;
}

static inline enum sbx_code h_file(struct request *req, struct response *res, struct sbx_err *err)
{
    FILE *tmp = tmpfile();
    int fd;

    (void)req;
    if (tmp == NULL)
        return err_sys(err, SBX_E_INTERNAL, "tmpfile");
    for (int i = 0; i < 100000; i++)
        (void)fputs("0123456789", tmp);
    (void)fflush(tmp);
    fd = dup(fileno(tmp));
    (void)fclose(tmp);
    response_fd(res, 200, "application/octet-stream", fd, 1000000);
    return SBX_OK;
}

static inline enum sbx_code h_peer(struct request *req, struct response *res, struct sbx_err *err)
{
    const struct request_peer *p = request_peer(req);

    (void)err;
    response_ok(res, 200,
                json_pack("{s:s, s:b, s:i, s:b, s:s}", "address", p->address, "local", p->local,
                          "uid", (int)p->uid, "tls", p->tls, "listener", request_listener(req)));
    return SBX_OK;
}

static inline enum sbx_code after_settling(struct request *req, struct response *res, void *arg,
                                           struct sbx_err *err)
{
    struct fixture *f = request_owner(req);
    const char *id = request_param(req, "id");

    assert_ptr_equal(arg, f);
    assert_false(request_grouped(req));
    assert_non_null(request_worker(req));
    if (strcmp(id, "late") == 0) {
        atomic_store(&f->ticket, request_defer(req, 60000, NULL));
        return SBX_OK;
    }
    if (strcmp(id, "fails") == 0)
        return err_set(err, SBX_E_NOT_FOUND, "It is not there.");
    response_ok(res, 200, json_pack("{s:s, s:b}", "id", id, "together", 1));
    return SBX_OK;
}

/* Leaves its answer to after the settling, unless it is "refused" before. */
static inline enum sbx_code h_together(struct request *req, struct response *res,
                                       struct sbx_err *err)
{
    struct fixture *f = request_owner(req);

    (void)res;
    assert_true(request_grouped(req));
    if (strcmp(request_param(req, "id"), "refused") == 0)
        return err_field(err, "id", "The id is refused.");
    (void)atomic_fetch_add(&f->grouped, 1);
    request_together(req, after_settling, f);
    return SBX_OK;
}

/* Waits for the gate, so that a test can let requests gather. */
static inline void fixture_settle(void *owner, void *worker)
{
    struct fixture *f = owner;
    int size = atomic_exchange(&f->grouped, 0);

    assert_non_null(worker);
    if (size > atomic_load(&f->largest))
        atomic_store(&f->largest, size);
    (void)atomic_fetch_add(&f->settling, 1);
    while (atomic_load(&f->gate) == 0)
        fixture_pause();
    (void)atomic_fetch_sub(&f->settling, 1);
    (void)atomic_fetch_add(&f->settled, 1);
}

static inline void e_problem(struct request *req, struct response *res, const struct sbx_err *err)
{
    response_json(
        res, sbx_code_http(err->code), "application/problem+json",
        json_pack("{s:s, s:s}", "title", response_error_text(err), "request_id", request_id(req)));
}

/* clang-format off */
static const struct route FIXTURE_ROUTES[] = {
    { HTTP_GET, "/hello", "hello", AUTH_OPEN, .flags = ROUTE_INLINE, .handler = h_hello },
    { HTTP_GET, "/private", "private", AUTH_TOKEN, .handler = h_hello },
    { HTTP_POST, "/private", "private_post", AUTH_TOKEN, HTTP_BODY_JSON, 1024, .handler = h_json },
    { HTTP_POST, "/slow", "slow", AUTH_SLOW, HTTP_BODY_JSON, 1024, .handler = h_json },
    { HTTP_GET, "/things/{id}", "thing", AUTH_OPEN, .handler = h_echo },
    { HTTP_POST, "/things/create", "create", AUTH_OPEN, HTTP_BODY_JSON, SBX_BODY_MAX, .handler = h_json },
    { HTTP_PUT, "/raw", "raw", AUTH_OPEN, HTTP_BODY_ANY, 100000, .handler = h_raw },
    { HTTP_GET, "/fail/{how}", "fail", AUTH_OPEN, .handler = h_fail },
    { HTTP_GET, "/block", "block", AUTH_OPEN, .handler = h_block },
    { HTTP_GET, "/defer", "defer", AUTH_OPEN, .handler = h_defer },
    { HTTP_GET, "/late", "late", AUTH_OPEN, .handler = h_late },
    { HTTP_GET, "/early", "early", AUTH_OPEN, .handler = h_early },
    { HTTP_GET, "/together/{id}", "together", AUTH_OPEN, .flags = ROUTE_LANE(1), .handler = h_together },
    { HTTP_POST, "/upload", "upload", AUTH_SLOW, HTTP_BODY_STREAM, 40 * 1024 * 1024, .handler = h_upload, .on_body = on_upload },
    { HTTP_GET, "/download", "download", AUTH_OPEN, .handler = h_download },
    { HTTP_GET, "/file", "file", AUTH_OPEN, .handler = h_file },
    { HTTP_GET, "/peer", "peer", AUTH_OPEN, .flags = ROUTE_QUIET, .handler = h_peer },
    { HTTP_POST, "/problem", "problem", AUTH_OPEN, HTTP_BODY_JSON, 100, .handler = h_json, .on_error = e_problem },
};
/* clang-format on */
static const struct route_table FIXTURE_TABLE = { FIXTURE_ROUTES, COUNT_OF(FIXTURE_ROUTES) };

static inline enum http_auth fixture_auth(void *owner, struct request *req,
                                          const struct route *route, struct sbx_err *err)
{
    const char *token = request_header(req, "Authorization", NULL);

    (void)owner;
    if (route->auth == AUTH_SLOW && request_worker(req) == NULL)
        return HTTP_AUTH_ON_WORKER;
    if (route->auth == AUTH_OPEN || (token != NULL && strcmp(token, "good") == 0)) {
        request_set_caller(req, arena_strdup(request_arena(req), "somebody"));
        return HTTP_AUTH_ALLOW;
    }
    (void)!err_set(err, SBX_E_UNAUTHENTICATED, "The token is missing or not known.");
    return HTTP_AUTH_DENY;
}

static inline void *fixture_open(void *owner)
{
    struct fixture *f = owner;

    (void)atomic_fetch_add(&f->open_workers, 1);
    return mem_zalloc(1);
}

static inline void fixture_close(void *owner, void *worker)
{
    struct fixture *f = owner;

    (void)atomic_fetch_sub(&f->open_workers, 1);
    free(worker);
}

static inline void fixture_config(struct fixture *f, struct http_config *c, struct http_listener *l)
{
    *l = (struct http_listener){ .name = "public",
                                 .address = "127.0.0.1:0",
                                 .tables = &FIXTURE_TABLE,
                                 .table_count = 1,
                                 .threads = 2 };
    *c = (struct http_config){ .owner = f,
                               .listeners = l,
                               .listener_count = 1,
                               .auth = fixture_auth,
                               .worker_open = fixture_open,
                               .worker_close = fixture_close,
                               .worker_settle = fixture_settle,
                               .workers = 3,
                               .metrics = f->metrics };
}

static inline void fixture_start(struct fixture *f, const struct http_config *c)
{
    struct sbx_err err = { 0 };

    assert_int_equal(http_server_start(c, &f->server, &err), SBX_OK);
    f->port = http_server_port(f->server, 0);
    atomic_store(&f->timeout_ms, 60000);
}

static inline struct http_stats fixture_stats(struct fixture *f)
{
    struct http_stats st;

    http_server_stats(f->server, &st);
    return st;
}

static inline void fixture_stop(struct fixture *f)
{
    http_server_stop(f->server);
    f->server = NULL;
    assert_int_equal(atomic_load(&f->open_workers), 0);
}

/* One request on its own connection; the answer must be freed. */
static inline struct wire_answer PRINTF_LIKE(2, 3)
    fixture_ask(struct fixture *f, const char *fmt, ...)
{
    char *text = NULL;
    struct wire_answer a;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vasprintf(&text, fmt, ap);
    va_end(ap);
    a = wire_once(wire_tcp(f->port), text, (size_t)n);
    free(text);
    return a;
}

/* Status of one request, and its code in the envelope if want_code is not NULL. */
static inline void expect_answer(struct wire_answer a, int status, const char *want_code)
{
    assert_int_equal(a.status, status);
    if (want_code != NULL) {
        struct sbx_err err = { 0 };
        json_t *j = NULL;

        (void)!json_parse_object(a.body, a.len, &j, &err);
        assert_non_null(j);
        assert_true(json_is_false(json_object_get(j, "success")));
        assert_string_equal(json_get_str(j, "code", ""), want_code);
        assert_string_equal(json_get_str(j, "requestId", ""), wire_header(&a, "X-Request-Id"));
        assert_true(strlen(json_get_str(j, "error", "")) > 5);
        json_decref(j);
    }
    wire_free(&a);
}

#define HOST "Host: test\r\n"
#define END  "\r\n"
#define JSON "Content-Type: application/json\r\n"

static inline int fixture_group(const struct CMUnitTest *tests, size_t count)
{
    (void)signal(SIGPIPE, SIG_IGN);
    log_open("test", LOG_ERROR);
    return _cmocka_run_group_tests("http", tests, count, NULL, NULL);
}

#endif
