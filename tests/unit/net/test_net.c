#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process.h"
#include "base/str.h"
#include "base/thread.h"
#include "base/time.h"
#include "http/server.h"
#include "net/net.h"
#include "unit/http/wire.h"

/* The client against our own server, and against peers that misbehave. */

enum { AUTH_OPEN = 1, HELD_MAX = 4096 };

struct fixture {
    struct http_server *server;
    struct net *net;
    char base[64];
    char socket[64];
    atomic_int held; /* requests that wait in /hold */
    atomic_ulong tickets[HELD_MAX];
};

#define UNTIL(cond)                                                                                \
    do {                                                                                           \
        int64_t until_ = time_mono_ms() + WIRE_WAIT_MS;                                            \
        while (!(cond) && time_mono_ms() < until_)                                                 \
            (void)nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);                       \
        assert_true(cond);                                                                         \
    } while (0)

/* --- the server's side --- */

static enum sbx_code h_echo(struct request *req, struct response *res, struct sbx_err *err)
{
    size_t len, times;
    const char *body = request_body(req, &len);
    const char *type = request_header(req, "Content-Type", NULL);
    const char *auth = request_header(req, "Authorization", &times);

    (void)err;
    response_header(res, "X-Method", request_method(req));
    response_header(res, "X-Type", type != NULL ? type : "none");
    response_header(res, "X-Auth", auth != NULL ? auth : "none");
    response_header(res, "X-Port", arena_printf(request_arena(req), "%u", request_peer(req)->port));
    if (request_header(req, "x-amz-content-sha256", NULL) != NULL)
        response_header(res, "X-Sha", request_header(req, "x-amz-content-sha256", NULL));
    if (request_header(req, "User-Agent", NULL) != NULL)
        response_header(res, "X-Agent", request_header(req, "User-Agent", NULL));
    response_bytes(res, 200, "text/plain", body, len);
    return SBX_OK;
}

static enum sbx_code h_hold(struct request *req, struct response *res, struct sbx_err *err)
{
    struct fixture *f = request_owner(req);
    int at = atomic_fetch_add(&f->held, 1);

    (void)res, (void)err;
    atomic_store(&f->tickets[at % HELD_MAX], request_defer(req, 60000, NULL));
    return SBX_OK;
}

static enum sbx_code let_go(struct request *req, struct response *res, void *arg,
                            struct sbx_err *err)
{
    (void)req, (void)arg, (void)err;
    response_bytes(res, 200, "text/plain", "late", 4);
    return SBX_OK;
}

static enum sbx_code h_big(struct request *req, struct response *res, struct sbx_err *err)
{
    struct buf b = BUF_INIT(4 * 1024 * 1024);

    (void)req, (void)err;
    for (int i = 0; i < 200000; i++)
        (void)buf_puts(&b, "0123456789");
    response_buf(res, 200, "text/plain", &b);
    return SBX_OK;
}

static enum sbx_code h_status(struct request *req, struct response *res, struct sbx_err *err)
{
    int64_t status = 500;

    (void)err;
    (void)str_parse_int(request_param(req, "status"), 200, 599, &status);
    response_bytes(res, (int)status, "text/plain", "said", 4);
    return SBX_OK;
}

/* ?n=3: to itself three times, then to /echo; ?to=URL: there. */
static enum sbx_code h_redirect(struct request *req, struct response *res, struct sbx_err *err)
{
    const char *to = request_query_get(req, "to", NULL);
    int64_t n = 0, status = 301;

    (void)err;
    (void)str_parse_int(request_param(req, "status"), 300, 399, &status);
    if (to == NULL && str_parse_int(request_query_get(req, "n", NULL), 1, 9, &n) && n > 1)
        to = arena_printf(request_arena(req), "/redirect/%d?n=%d", (int)status, (int)n - 1);
    response_empty(res, (int)status);
    response_header(res, "Location", to != NULL ? to : "/echo");
    return SBX_OK;
}

static enum http_auth allow(void *owner, struct request *req, const struct route *route,
                            struct sbx_err *err)
{
    (void)owner, (void)req, (void)route, (void)err;
    return HTTP_AUTH_ALLOW;
}

/* clang-format off */
static const struct route ROUTES[] = {
    { HTTP_GET, "/echo", "echo_get", AUTH_OPEN, .flags = ROUTE_INLINE, .handler = h_echo },
    { HTTP_POST, "/echo", "echo_post", AUTH_OPEN, HTTP_BODY_ANY, 8 << 20, ROUTE_INLINE, .handler = h_echo },
    { HTTP_PUT, "/echo", "echo_put", AUTH_OPEN, HTTP_BODY_ANY, 8 << 20, ROUTE_INLINE, .handler = h_echo },
    { HTTP_DELETE, "/echo", "echo_delete", AUTH_OPEN, HTTP_BODY_ANY, 8 << 20, ROUTE_INLINE, .handler = h_echo },
    { HTTP_GET, "/hold", "hold", AUTH_OPEN, .handler = h_hold },
    { HTTP_GET, "/big", "big", AUTH_OPEN, .handler = h_big },
    { HTTP_GET, "/status/{status}", "status", AUTH_OPEN, .handler = h_status },
    { HTTP_GET, "/redirect/{status}", "redirect", AUTH_OPEN, .handler = h_redirect },
    { HTTP_POST, "/redirect/{status}", "redirect_post", AUTH_OPEN, HTTP_BODY_ANY, 1000, .handler = h_redirect },
};
/* clang-format on */
static const struct route_table TABLE = { ROUTES, COUNT_OF(ROUTES) };

static int start(void **state)
{
    struct fixture *f = mem_zalloc(sizeof(*f));
    struct http_listener l[2];
    struct net_config nc = { 0 };
    struct sbx_err err = { 0 };
    struct http_config c = { .owner = f,
                             .listeners = l,
                             .listener_count = 2,
                             .auth = allow,
                             .workers = 2,
                             .queue_max = HELD_MAX };

    (void)snprintf(f->socket, sizeof(f->socket), "/tmp/test_net_%d.sock", (int)getpid());
    l[0] = (struct http_listener){
        .name = "tcp", .address = "127.0.0.1:0", .tables = &TABLE, .table_count = 1
    };
    l[1] = l[0];
    l[1].name = "unix";
    l[1].address = mem_printf("unix:%s", f->socket);
    assert_int_equal(http_server_start(&c, &f->server, &err), SBX_OK);
    (void)snprintf(f->base, sizeof(f->base), "http://127.0.0.1:%u", http_server_port(f->server, 0));
    assert_int_equal(net_start(&nc, &f->net, &err), SBX_OK);
    free((void *)(uintptr_t)l[1].address);
    *state = f;
    return 0;
}

static int stop(void **state)
{
    struct fixture *f = *state;

    net_stop(f->net);
    http_server_stop(f->server);
    free(f);
    return 0;
}

/* --- the client's side --- */

struct outcome {
    struct net_answer answer; /* body and headers in the arena */
    struct sbx_err err;
};

/* One blocking request; path is appended to the server's address. */
static struct outcome ask(struct fixture *f, struct arena *a, struct net_spec spec,
                          const char *path)
{
    struct outcome o = { 0 };

    if (spec.url == NULL)
        spec.url = arena_printf(a, "%s%s", f->base, path != NULL ? path : "");
    if (net_request(f->net, &spec, a, &o.answer, &o.err) != SBX_OK)
        assert_int_not_equal(o.err.code, SBX_OK);
    return o;
}

struct wait {
    atomic_int done;
    int status;
    enum sbx_code code;
    enum net_phase phase;
    char body[64];
    char port[16];
};

static void on_done(void *arg, const struct net_answer *answer, const struct sbx_err *err)
{
    struct wait *w = arg;
    const char *port = net_header(answer, "x-port");

    w->status = answer->status;
    w->code = err != NULL ? err->code : SBX_OK;
    w->phase = answer->phase;
    (void)snprintf(w->body, sizeof(w->body), "%s", answer->body);
    (void)snprintf(w->port, sizeof(w->port), "%s", port != NULL ? port : "");
    (void)atomic_fetch_add(&w->done, 1);
}

static uint64_t launch(struct fixture *f, struct net_spec spec, const char *path, struct wait *w)
{
    struct sbx_err err = { 0 };
    uint64_t id = 0;
    char url[256];

    (void)snprintf(url, sizeof(url), "%s%s", f->base, path);
    spec.url = url; /* copied: the stack is gone after */
    assert_int_equal(net_request_start(f->net, &spec, on_done, w, &id, &err), SBX_OK);
    return id;
}

static void the_basics_over_tcp_and_unix(void **state)
{
    static const char *const HEADERS[] = { "Content-Type: text/x", "X-Other: 1", NULL };
    struct fixture *f = *state;
    SCOPED_ARENA struct arena *a = arena_new();

    for (int unix_socket = 0; unix_socket < 2; unix_socket++) {
        struct net_spec spec = { .unix_path = unix_socket ? f->socket : NULL };
        struct outcome o = ask(f, a, spec, "/echo");

        assert_int_equal(o.err.code, SBX_OK);
        assert_int_equal(o.answer.status, 200);
        assert_int_equal(o.answer.phase, NET_ANSWERED);
        assert_string_equal(net_header(&o.answer, "x-method"), "GET");
        assert_true(str_starts(net_header(&o.answer, "X-Agent"), "sandboxd/"));
        spec.method = "POST";
        spec.body = "a\0b";
        spec.body_len = 3;
        spec.headers = HEADERS;
        o = ask(f, a, spec, "/echo");
        assert_int_equal(o.answer.body_len, 3);
        assert_memory_equal(o.answer.body, "a\0b", 3);
        assert_string_equal(net_header(&o.answer, "X-Type"), "text/x");
        spec.method = "DELETE";
        spec.headers = NULL;
        o = ask(f, a, spec, "/echo");
        assert_string_equal(net_header(&o.answer, "X-Method"), "DELETE");
        assert_string_equal(net_header(&o.answer, "X-Type"), "none");
        assert_int_equal(o.answer.body_len, 3);
        spec = (struct net_spec){ .method = "PUT", .unix_path = spec.unix_path };
        o = ask(f, a, spec, "/echo");
        assert_string_equal(net_header(&o.answer, "X-Method"), "PUT");
        assert_int_equal(o.answer.body_len, 0);
        spec.method = "HEAD";
        o = ask(f, a, spec, "/echo");
        assert_int_equal(o.answer.status, 200);
        assert_string_equal(net_header(&o.answer, "X-Method"), "HEAD");
        assert_null(net_header(&o.answer, "X-None"));
    }
}

static void every_status_is_an_answer(void **state)
{
    static const char *const PATHS[] = { "/status/204", "/status/301", "/status/404",
                                         "/status/503" };
    static const int WANT[] = { 204, 301, 404, 503 };
    struct fixture *f = *state;
    SCOPED_ARENA struct arena *a = arena_new();

    for (size_t i = 0; i < COUNT_OF(PATHS); i++) {
        struct outcome o = ask(f, a, (struct net_spec){ 0 }, PATHS[i]);

        assert_int_equal(o.err.code, SBX_OK);
        assert_int_equal(o.answer.status, WANT[i]);
    }
}

struct source {
    size_t left;
    bool fail;
};

static ssize_t read_source(void *arg, void *to, size_t max)
{
    struct source *s = arg;
    size_t n = s->left < max ? s->left : max;

    if (s->fail && n < max)
        return -1;
    memset(to, 'u', n);
    s->left -= n;
    return (ssize_t)n;
}

static void a_body_may_come_from_a_callback(void **state)
{
    struct fixture *f = *state;
    SCOPED_ARENA struct arena *a = arena_new();
    struct source s = { .left = 300000 };
    struct net_spec spec = {
        .method = "PUT", .read_body = read_source, .read_arg = &s, .read_size = -1
    };
    struct outcome o = ask(f, a, spec, "/echo");

    assert_int_equal(o.answer.body_len, 300000);
    s.left = 300000;
    spec.read_size = 300000;
    o = ask(f, a, spec, "/echo");
    assert_int_equal(o.answer.body_len, 300000);
    s = (struct source){ .left = 300000, .fail = true };
    o = ask(f, a, spec, "/echo");
    assert_int_equal(o.err.code, SBX_E_INTERNAL);
    assert_int_equal(o.answer.phase, NET_SENT);
}

static enum net_take count_data(void *arg, int status, const void *data, size_t len)
{
    size_t *n = arg;

    (void)data;
    assert_int_equal(status, 200);
    *n += len;
    return *n < 1500000 ? NET_TOOK : NET_GIVE_UP;
}

static void answers_are_bounded(void **state)
{
    struct fixture *f = *state;
    SCOPED_ARENA struct arena *a = arena_new();
    size_t n = 0;
    struct outcome o = ask(f, a, (struct net_spec){ .answer_max = 2000000 }, "/big");

    assert_int_equal(o.answer.body_len, 2000000);
    o = ask(f, a, (struct net_spec){ .answer_max = 1999999 }, "/big");
    assert_int_equal(o.err.code, SBX_E_TOO_LARGE);
    assert_int_equal(o.answer.phase, NET_ANSWERED);
    o = ask(f, a, (struct net_spec){ 0 }, "/big"); /* the default ceiling */
    assert_int_equal(o.err.code, SBX_E_TOO_LARGE);
    o = ask(f, a, (struct net_spec){ .on_data = count_data, .data_arg = &n, .answer_max = 1000000 },
            "/big");
    assert_int_equal(o.err.code, SBX_E_TOO_LARGE);
    assert_true(n <= 1000000);
    n = 0;
    o = ask(f, a, (struct net_spec){ .on_data = count_data, .data_arg = &n, .answer_max = 1 << 30 },
            "/big");
    assert_int_equal(o.err.code, SBX_E_INTERNAL); /* the callback gave up */
    n = 1000000000;
    o = ask(f, a, (struct net_spec){ .on_data = count_data, .data_arg = &n }, "/status/404");
    assert_string_equal(o.answer.body, "said"); /* not a 2xx: kept */
}

struct slow_reader {
    atomic_ulong taken;
    atomic_int waits;
    atomic_int open;
};

static enum net_take take_slowly(void *arg, int status, const void *data, size_t len)
{
    struct slow_reader *r = arg;

    (void)status, (void)data;
    if (atomic_load(&r->taken) >= 50000 && !atomic_load(&r->open)) {
        (void)atomic_fetch_add(&r->waits, 1);
        return NET_WAIT;
    }
    (void)atomic_fetch_add(&r->taken, len);
    return NET_TOOK;
}

static void a_reader_may_hold_its_peer_back(void **state)
{
    struct fixture *f = *state;
    struct slow_reader r = { 0 };
    struct wait w = { 0 }, other = { 0 };
    struct net_spec spec = { .on_data = take_slowly, .data_arg = &r, .answer_max = 2000000 };
    uint64_t id = launch(f, spec, "/big", &w);
    unsigned long held;

    UNTIL(atomic_load(&r.waits) == 1);
    held = atomic_load(&r.taken);
    (void)launch(f, (struct net_spec){ 0 }, "/echo", &other); /* nobody else is held up */
    UNTIL(atomic_load(&other.done) == 1);
    net_resume(f->net, id); /* too early: it waits again */
    UNTIL(atomic_load(&r.waits) == 2);
    assert_int_equal(atomic_load(&r.taken), held);
    atomic_store(&r.open, 1);
    net_resume(f->net, id);
    UNTIL(atomic_load(&w.done) == 1);
    assert_int_equal(w.code, SBX_OK);
    assert_int_equal(atomic_load(&r.taken), 2000000);
    net_resume(f->net, id); /* ended: nothing */
}

/* --- peers that misbehave --- */

struct peer {
    int fd;
    uint16_t port;
    struct thread thread;
    const char *says; /* NULL: nothing; then it closes */
    bool reads;       /* a request first */
};

static void peer_main(void *arg)
{
    struct peer *p = arg;
    int c = accept4(p->fd, NULL, NULL, SOCK_CLOEXEC);
    struct buf in = BUF_INIT(65536);

    while (p->reads && (in.len == 0 || memmem(in.data, in.len, "\r\n\r\n", 4) == NULL)) {
        if (wire_more(c, &in, WIRE_WAIT_MS) <= 0)
            break;
    }
    if (p->says != NULL)
        (void)wire_puts(c, p->says);
    (void)close(c);
    buf_fini(&in);
}

static int listen_any(uint16_t *port, int backlog)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t len = sizeof(in);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)&in, sizeof(in)), 0);
    assert_int_equal(listen(fd, backlog), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &len), 0);
    *port = ntohs(in.sin_port);
    return fd;
}

static void the_phase_tells_what_may_be_repeated(void **state)
{
    static const struct {
        const char *says;
        bool reads;
        enum sbx_code code;
        enum net_phase phase;
    } ROWS[] = {
        { NULL, true, SBX_E_UNAVAILABLE, NET_SENT },
        { "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", true, SBX_E_UNAVAILABLE,
          NET_ANSWERED },
        { "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", true,
          SBX_E_UNAVAILABLE, NET_ANSWERED },
        { "HTTP/1.1 100 Continue\r\n\r\n", true, SBX_E_UNAVAILABLE, NET_SENT },
        { "garbage\r\n\r\n", true, SBX_E_UNAVAILABLE, NET_SENT },
        { "HTTP/1.1 200 OK\r\n\r\nuntil the end", true, SBX_OK, NET_ANSWERED },
    };
    struct fixture *f = *state;
    SCOPED_ARENA struct arena *a = arena_new();

    for (size_t i = 0; i < COUNT_OF(ROWS); i++) {
        struct peer p = { .says = ROWS[i].says, .reads = ROWS[i].reads };
        struct sbx_err err = { 0 };
        struct outcome o;

        p.fd = listen_any(&p.port, 4);
        assert_int_equal(thread_start(&p.thread, "peer", peer_main, &p, &err), SBX_OK);
        o = ask(f, a,
                (struct net_spec){ .url = arena_printf(a, "http://127.0.0.1:%u/x", p.port),
                                   .method = "POST",
                                   .body = "x",
                                   .body_len = 1 },
                NULL);
        thread_join(&p.thread);
        (void)close(p.fd);
        assert_int_equal(o.err.code, ROWS[i].code);
        assert_int_equal(o.answer.phase, ROWS[i].phase);
    }
}

static void a_peer_that_is_not_there_was_not_asked(void **state)
{
    struct fixture *f = *state;
    SCOPED_ARENA struct arena *a = arena_new();
    uint16_t port;
    int fd = listen_any(&port, 1);
    struct outcome o;

    (void)close(fd);
    o = ask(f, a, (struct net_spec){ .url = arena_printf(a, "http://127.0.0.1:%u/", port) }, NULL);
    assert_int_equal(o.err.code, SBX_E_UNAVAILABLE);
    assert_int_equal(o.answer.phase, NET_NOT_SENT);
    o = ask(f, a, (struct net_spec){ .url = "http://x/", .unix_path = "/nonexistent/sock" }, NULL);
    assert_int_equal(o.err.code, SBX_E_UNAVAILABLE);
    assert_int_equal(o.answer.phase, NET_NOT_SENT);
    o = ask(f, a, (struct net_spec){ .url = "http://no-such-name.invalid/" }, NULL);
    assert_int_equal(o.err.code, SBX_E_UNAVAILABLE);
    assert_int_equal(o.answer.phase, NET_NOT_SENT);
    /* A listener whose backlog is full never completes the handshake. */
    fd = listen_any(&port, 0);
    {
        int fill[4];

        for (size_t i = 0; i < COUNT_OF(fill); i++) {
            struct sockaddr_in in = { .sin_family = AF_INET,
                                      .sin_port = htons(port),
                                      .sin_addr = { htonl(INADDR_LOOPBACK) } };

            fill[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
            (void)connect(fill[i], (struct sockaddr *)&in, sizeof(in));
        }
        o = ask(f, a,
                (struct net_spec){ .url = arena_printf(a, "http://127.0.0.1:%u/", port),
                                   .connect_timeout_ms = 200 },
                NULL);
        for (size_t i = 0; i < COUNT_OF(fill); i++)
            (void)close(fill[i]);
    }
    (void)close(fd);
    assert_int_equal(o.err.code, SBX_E_TIMEOUT);
    assert_int_equal(o.answer.phase, NET_NOT_SENT);
}

static void a_late_answer_is_a_timeout(void **state)
{
    struct fixture *f = *state;
    SCOPED_ARENA struct arena *a = arena_new();
    int64_t began = time_mono_ms();
    struct outcome o = ask(f, a, (struct net_spec){ .timeout_ms = 150 }, "/hold");
    struct wait w = { 0 };

    assert_int_equal(o.err.code, SBX_E_TIMEOUT);
    assert_int_equal(o.answer.phase, NET_SENT);
    (void)launch(f, (struct net_spec){ .timeout_ms = 150 }, "/hold", &w);
    UNTIL(atomic_load(&w.done));
    assert_int_equal(w.code, SBX_E_TIMEOUT);
    assert_int_equal(w.phase, NET_SENT);
    assert_true(time_mono_ms() - began < 5000);
}

static void a_bad_request_is_not_started(void **state)
{
    static const char *const LINES[] = { "X: a\r\nY: b", NULL };
    static const char *const NONE[] = { "no colon", NULL };
    static const struct net_spec BAD[] = {
        { .url = NULL },
        { .url = "ftp://127.0.0.1/" },
        { .url = "file:///etc/passwd" },
        { .url = "http://127.0.0.1/", .headers = LINES },
        { .url = "http://127.0.0.1/", .headers = NONE },
    };
    struct fixture *f = *state;
    SCOPED_ARENA struct arena *a = arena_new();

    for (size_t i = 0; i < COUNT_OF(BAD); i++) {
        struct sbx_err err = { 0 };
        struct net_answer answer;

        assert_int_equal(net_request(f->net, &BAD[i], a, &answer, &err), SBX_E_INVALID);
        assert_int_equal(answer.phase, NET_NOT_SENT);
        err = (struct sbx_err){ 0 };
        assert_int_equal(net_request_start(f->net, &BAD[i], on_done, NULL, NULL, &err),
                         SBX_E_INVALID);
    }
}

static void redirects_stay_on_the_same_host(void **state)
{
    struct fixture *f = *state;
    SCOPED_ARENA struct arena *a = arena_new();
    SCOPED_SECRET struct secret *s = secret_new("tok", 3);
    struct net_spec spec = { .bearer = s, .redirects = 3 };
    struct outcome o = ask(f, a, spec, "/redirect/301?n=3");
    struct wait w = { 0 };

    assert_int_equal(o.answer.status, 200);
    assert_string_equal(net_header(&o.answer, "X-Auth"), "Bearer tok");
    assert_null(net_header(&o.answer, "Location"));
    assert_int_equal(ask(f, a, spec, "/redirect/301?n=4").answer.status, 301);
    assert_int_equal(ask(f, a, (struct net_spec){ 0 }, "/redirect/301?n=1").answer.status, 301);
    /* elsewhere: the answer as it is */
    o = ask(f, a, spec, arena_printf(a, "/redirect/302?to=http://localhost:%u/echo", 80));
    assert_int_equal(o.answer.status, 302);
    o = ask(f, a, spec, "/redirect/302?to=https://127.0.0.1/echo");
    assert_int_equal(o.answer.status, 302);
    o = ask(f, a, spec, "/redirect/302?to=http://127.0.0.1:1/echo");
    assert_int_equal(o.answer.status, 302);
    /* a POST is repeated only where the answer says so */
    spec.method = "POST", spec.body = "b", spec.body_len = 1;
    assert_int_equal(ask(f, a, spec, "/redirect/302?n=1").answer.status, 302);
    o = ask(f, a, spec, "/redirect/307?n=2");
    assert_int_equal(o.answer.status, 200);
    assert_string_equal(net_header(&o.answer, "X-Method"), "POST");
    assert_string_equal(o.answer.body, "b");
    (void)launch(f, (struct net_spec){ .redirects = 3 }, "/redirect/301?n=2", &w);
    UNTIL(atomic_load(&w.done));
    assert_int_equal(w.status, 200);
}

static void object_storage_calls_are_signed(void **state)
{
    struct fixture *f = *state;
    SCOPED_ARENA struct arena *a = arena_new();
    SCOPED_SECRET struct secret *key = secret_new("very secret", 11);
    struct net_sigv4 sig = { "us-east-1", "s3", "account:user", key };
    struct outcome o =
        ask(f, a, (struct net_spec){ .method = "PUT", .body = "abc", .body_len = 3, .sigv4 = &sig },
            "/echo?partNumber=1&uploadId=x");
    const char *auth = net_header(&o.answer, "X-Auth");

    assert_int_equal(o.answer.status, 200);
    assert_true(str_starts(auth, "AWS4-HMAC-SHA256 Credential=account:user/"));
    assert_non_null(strstr(auth, "/us-east-1/s3/aws4_request"));
    assert_non_null(strstr(auth, "x-amz-content-sha256"));
    assert_string_equal(net_header(&o.answer, "X-Sha"),
                        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_null(strstr(auth, "secret"));
}

static void connections_are_used_again(void **state)
{
    struct fixture *f = *state;
    struct wait one = { 0 }, two = { 0 };

    (void)launch(f, (struct net_spec){ 0 }, "/echo", &one);
    UNTIL(atomic_load(&one.done));
    (void)launch(f, (struct net_spec){ 0 }, "/echo", &two);
    UNTIL(atomic_load(&two.done));
    assert_string_equal(one.port, two.port);
}

static void a_cancelled_call_ends_once(void **state)
{
    struct fixture *f = *state;
    struct wait w = { 0 }, quick = { 0 };
    uint64_t id = launch(f, (struct net_spec){ 0 }, "/hold", &w);

    UNTIL(atomic_load(&f->held) == 1);
    net_cancel(f->net, id);
    net_cancel(f->net, id);
    UNTIL(atomic_load(&w.done) == 1);
    assert_int_equal(w.code, SBX_E_CONFLICT);
    net_cancel(f->net, id);
    net_cancel(f->net, 999999);
    (void)launch(f, (struct net_spec){ 0 }, "/echo", &quick);
    UNTIL(atomic_load(&quick.done) == 1);
    assert_int_equal(atomic_load(&w.done), 1);
}

static void thousands_wait_at_once(void **state)
{
    enum { N = 2000 };
    struct fixture *f = *state;
    struct wait *w = mem_zalloc(N * sizeof(*w));
    int64_t began = time_mono_ms();
    size_t released = 0;

    for (int i = 0; i < N; i++)
        (void)launch(f, (struct net_spec){ .connect_timeout_ms = 30000 }, "/hold", &w[i]);
    UNTIL(atomic_load(&f->held) == N);
    for (int i = 0; i < N; i++) {
        UNTIL(atomic_load(&f->tickets[i]) != 0);
        released += request_continue(f->server, atomic_load(&f->tickets[i]), let_go, NULL) ? 1 : 0;
    }
    assert_int_equal(released, N);
    for (int i = 0; i < N; i++) {
        UNTIL(atomic_load(&w[i].done) == 1);
        assert_int_equal(w[i].status, 200);
        assert_string_equal(w[i].body, "late");
    }
    print_message("%d calls held and answered in %lld ms\n", (int)N,
                  (long long)(time_mono_ms() - began));
    free(w);
}

static void the_ceiling_of_calls_is_a_busy(void **state)
{
    struct fixture *f = *state;
    struct net_config c = { .transfers_max = 2 };
    struct wait w[2] = { 0 };
    struct sbx_err err = { 0 };
    struct net_spec spec = { 0 };
    char url[128];
    struct net *n;

    (void)snprintf(url, sizeof(url), "%s/hold", f->base);
    spec.url = url;
    assert_int_equal(net_start(&c, &n, &err), SBX_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(net_request_start(n, &spec, on_done, &w[i], NULL, &err), SBX_OK);
    assert_int_equal(net_request_start(n, &spec, on_done, NULL, NULL, &err), SBX_E_BUSY);
    /* the stop ends what is under way */
    net_stop(n);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(atomic_load(&w[i].done), 1);
        assert_int_equal(w[i].code, SBX_E_UNAVAILABLE);
    }
}

struct chain {
    struct fixture *f;
    char url[128];
    atomic_int left;
};

static void next_link(void *arg, const struct net_answer *answer, const struct sbx_err *err)
{
    struct chain *c = arg;
    struct net_spec spec = { .url = c->url };
    struct sbx_err e = { 0 };

    assert_null(err);
    assert_int_equal(answer->status, 200);
    if (atomic_fetch_sub(&c->left, 1) > 1)
        assert_int_equal(net_request_start(c->f->net, &spec, next_link, c, NULL, &e), SBX_OK);
}

static void a_callback_may_start_the_next_call(void **state)
{
    struct fixture *f = *state;
    struct chain c = { .f = f };
    struct net_spec spec = { .url = c.url };
    struct sbx_err err = { 0 };

    atomic_store(&c.left, 50);
    (void)snprintf(c.url, sizeof(c.url), "%s/echo", f->base);
    assert_int_equal(net_request_start(f->net, &spec, next_link, &c, NULL, &err), SBX_OK);
    UNTIL(atomic_load(&c.left) == 0);
}

static void escaping_is_rfc_3986(void **state)
{
    SCOPED_BUF struct buf b = BUF_INIT(256);

    (void)state;
    assert_true(net_url_escape(&b, "a/b c(1)~é", false));
    assert_string_equal(b.data, "a%2Fb%20c%281%29~%C3%A9");
    buf_clear(&b);
    assert_true(net_url_escape(&b, "a/b+", true));
    assert_string_equal(b.data, "a/b%2B");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(fn) cmocka_unit_test_setup_teardown(fn, start, stop)
        T(the_basics_over_tcp_and_unix),
        T(every_status_is_an_answer),
        T(a_body_may_come_from_a_callback),
        T(answers_are_bounded),
        T(a_reader_may_hold_its_peer_back),
        T(the_phase_tells_what_may_be_repeated),
        T(a_peer_that_is_not_there_was_not_asked),
        T(a_late_answer_is_a_timeout),
        T(a_bad_request_is_not_started),
        T(redirects_stay_on_the_same_host),
        T(object_storage_calls_are_signed),
        T(connections_are_used_again),
        T(a_cancelled_call_ends_once),
        T(thousands_wait_at_once),
        T(the_ceiling_of_calls_is_a_busy),
        T(a_callback_may_start_the_next_call),
        T(escaping_is_rfc_3986),
    };

    (void)signal(SIGPIPE, SIG_IGN);
    log_open("test", LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
