#include "unit/http/fixture.h"

#include "base/str.h"

/* What arrives on the wire, and what is answered: contract 1, "HTTP edges", "body", "other codes".
 */

static int start(void **state)
{
    struct fixture *f = mem_zalloc(sizeof(*f));
    struct http_config c;
    struct http_listener l;

    f->metrics = metrics_new();
    fixture_config(f, &c, &l);
    fixture_start(f, &c);
    *state = f;
    return 0;
}

static int stop(void **state)
{
    struct fixture *f = *state;

    fixture_stop(f);
    metrics_free(f->metrics);
    free(f);
    return 0;
}

static void a_success_is_the_documented_json(void **state)
{
    struct wire_answer a = fixture_ask(*state, "GET /hello HTTP/1.1\r\n" HOST END);

    assert_int_equal(a.status, 200);
    assert_string_equal(a.body, "{\"success\":true,\"hello\":\"world\"}");
    assert_string_equal(wire_header(&a, "Content-Type"), "application/json");
    assert_string_equal(wire_header(&a, "Cache-Control"), "no-store");
    assert_int_equal(strlen(wire_header(&a, "X-Request-Id")), 26);
    wire_free(&a);
}

static void the_request_id_is_echoed_when_it_is_good(void **state)
{
    static const struct {
        const char *id;
        bool echoed;
    } ROWS[] = { { "abc-DEF_1.9", true },
                 { "12345678", true },
                 { "1234567", false },
                 { "with space", false },
                 { "semi;colon", false } };
    char longest[130];

    for (size_t i = 0; i < COUNT_OF(ROWS); i++) {
        struct wire_answer a = fixture_ask(
            *state, "GET /things/1 HTTP/1.1\r\n" HOST "X-Request-Id: %s\r\n" END, ROWS[i].id);

        assert_int_equal(strcmp(wire_header(&a, "X-Request-Id"), ROWS[i].id) == 0, ROWS[i].echoed);
        wire_free(&a);
    }
    memset(longest, 'a', 129);
    longest[129] = 0;
    for (int cut = 129; cut >= 128; cut--) {
        struct wire_answer a;

        longest[cut] = 0;
        a = fixture_ask(*state, "GET /hello HTTP/1.1\r\n" HOST "X-Request-Id: %s\r\n" END, longest);
        assert_int_equal(strcmp(wire_header(&a, "X-Request-Id"), longest) == 0, cut == 128);
        wire_free(&a);
    }
}

static void unknown_paths_and_methods(void **state)
{
    struct wire_answer a;

    expect_answer(fixture_ask(*state, "GET /nothing HTTP/1.1\r\n" HOST END), 404, "NOT_FOUND");
    expect_answer(fixture_ask(*state, "GET /hello/x HTTP/1.1\r\n" HOST END), 404, "NOT_FOUND");
    expect_answer(fixture_ask(*state, "GET //hello HTTP/1.1\r\n" HOST END), 404, "NOT_FOUND");
    expect_answer(
        fixture_ask(*state, "GET /a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r HTTP/1.1\r\n" HOST END), 404,
        "NOT_FOUND");
    expect_answer(fixture_ask(*state, "BREW /nothing HTTP/1.1\r\n" HOST END), 404, "NOT_FOUND");
    expect_answer(fixture_ask(*state, "GET /things/create HTTP/1.1\r\n" HOST END), 405,
                  "METHOD_NOT_ALLOWED");
    expect_answer(fixture_ask(*state, "OPTIONS /hello HTTP/1.1\r\n" HOST END), 405,
                  "METHOD_NOT_ALLOWED");
    a = fixture_ask(*state, "DELETE /private HTTP/1.1\r\n" HOST END);
    assert_string_equal(wire_header(&a, "Allow"), "GET, HEAD, POST");
    expect_answer(a, 405, "METHOD_NOT_ALLOWED");
    a = fixture_ask(*state, "BREW /private HTTP/1.1\r\n" HOST "Content-Length: 3\r\n" END "abc");
    assert_string_equal(wire_header(&a, "Allow"), "GET, HEAD, POST");
    expect_answer(a, 405, "METHOD_NOT_ALLOWED");
    expect_answer(fixture_ask(*state, "GET /hello/ HTTP/1.1\r\n" HOST END), 200, NULL);
    expect_answer(fixture_ask(*state, "GET http://test/hello HTTP/1.1\r\n" HOST END), 200, NULL);
}

static void head_is_get_without_a_body(void **state)
{
    struct fixture *f = *state;
    struct buf in = { .max = 65536 };
    int fd = wire_tcp(f->port);
    struct wire_answer a;

    assert_true(
        wire_puts(fd, "HEAD /hello HTTP/1.1\r\n" HOST END "GET /hello HTTP/1.1\r\n" HOST END));
    a = wire_read(fd, &in, true);
    assert_int_equal(a.status, 200);
    assert_string_equal(wire_header(&a, "Content-Length"), "32");
    wire_free(&a);
    a = wire_read(fd, &in, false);
    assert_int_equal(a.status, 200);
    wire_free(&a);
    buf_fini(&in);
    (void)close(fd);
}

static void parameters_and_query_are_decoded_once(void **state)
{
    struct wire_answer a = fixture_ask(
        *state, "GET /things/a%%20b%%2525%%c3%%a9?x=1%%262+3&x=%%00 HTTP/1.1\r\n" HOST END);

    expect_answer(a, 400, "INVALID_REQUEST"); /* a NUL in the query */
    a = fixture_ask(*state, "GET /things/a%%20b%%2525%%c3%%a9?x=1%%262+3&y&=&& HTTP/1.1\r\n" HOST
                            "X-Seen: one\r\nx-seen: two\r\n" END);
    assert_int_equal(a.status, 200);
    assert_string_equal(a.body, "{\"success\":true,\"id\":\"a b%25é\",\"path\":\"/things/"
                                "a%20b%2525%c3%a9\",\"seen\":\"one\",\"times\":2,\"query\":3,"
                                "\"name\":\"x\",\"value\":\"1&2 3\",\"worker\":true}");
    wire_free(&a);
}

/* Each is answered 400 and the connection closed, so that nothing after it is taken for a request.
 */
static void what_two_servers_may_read_differently_is_refused(void **state)
{
    static const char *const BAD[] = {
        "PUT /raw HTTP/1.1\r\n" HOST "Content-Length: 3\r\nContent-Length: 3\r\n" END "abc",
        "PUT /raw HTTP/1.1\r\n" HOST "Content-Length: 3\r\nContent-Length: 30\r\n" END "abc",
        "PUT /raw HTTP/1.1\r\n" HOST "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n" END
        "0\r\n\r\n",
        "PUT /raw HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n" END
        "0\r\n\r\n",
        "PUT /raw HTTP/1.1\r\n" HOST
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n" END "0\r\n\r\n",
        "PUT /raw HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n" END "0\r\n\r\n",
        "PUT /raw HTTP/1.1\r\n" HOST "Transfer-Encoding: identity\r\n" END "abc",
        "PUT /raw HTTP/1.1\r\n" HOST "Content-Length : 3\r\n" END "abc",
        "PUT /raw HTTP/1.1\r\n" HOST "Content Length: 3\r\n" END "abc",
        "GET /things/a%00b HTTP/1.1\r\n" HOST END,
        "GET /things/a%2fb HTTP/1.1\r\n" HOST END,
        "GET /things/a%2Fb HTTP/1.1\r\n" HOST END,
        "GET /things/%zz HTTP/1.1\r\n" HOST END,
        "GET /things/%4 HTTP/1.1\r\n" HOST END,
        "GET /things/% HTTP/1.1\r\n" HOST END,
        "GET /things/%ff HTTP/1.1\r\n" HOST END,
        "GET /things/\xff HTTP/1.1\r\n" HOST END,
        "GET things HTTP/1.1\r\n" HOST END,
        "GET /hello HTTP/1.1\r\n" HOST "Host: other\r\n" END,
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < COUNT_OF(BAD); i++) {
        struct buf in = { .max = 65536 };
        int fd = wire_tcp(f->port);
        struct wire_answer a;

        assert_true(wire_puts(fd, BAD[i]));
        assert_true(wire_puts(fd, "GET /hello HTTP/1.1\r\n" HOST END));
        a = wire_read(fd, &in, false);
        if (a.status != 400)
            print_error("%s\n", BAD[i]);
        assert_int_equal(a.status, 400);
        wire_free(&a);
        a = wire_read(fd, &in, false);
        assert_int_equal(a.status, 0); /* closed; the second request was not served */
        wire_free(&a);
        buf_fini(&in);
        (void)close(fd);
    }
}

/* What libmicrohttpd itself refuses need not be JSON, but is never 5xx and never served. */
static void what_the_parser_refuses(void **state)
{
    static const char *const BAD[] = {
        "\x16\x03\x01\x02\r\n\r\n",
        "GET\r\n\r\n",
        "GET /hello HTTP/1.1\r\n" END, /* no Host */
        "PUT /raw HTTP/1.1\r\n" HOST "Content-Length: -1\r\n" END,
        "PUT /raw HTTP/1.1\r\n" HOST "Content-Length: 1x\r\n" END "a",
        "PUT /raw HTTP/1.1\r\n" HOST "Content-Length: 99999999999999999999999\r\n" END "a",
        "PUT /raw HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n" END "zz\r\nabc\r\n0\r\n\r\n",
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < COUNT_OF(BAD); i++) {
        struct wire_answer a = wire_once(wire_tcp(f->port), BAD[i], strlen(BAD[i]));

        if (!(a.status == 0 || (a.status >= 400 && a.status < 500)))
            print_error("%d for %s\n", a.status, BAD[i]);
        assert_true(a.status == 0 || (a.status >= 400 && a.status < 500));
        wire_free(&a);
    }
}

static void headers_are_bounded(void **state)
{
    struct buf big = { .max = 1024 * 1024 };
    struct fixture *f = *state;
    struct wire_answer a;

    (void)buf_puts(&big, "GET /hello HTTP/1.1\r\n" HOST);
    for (int i = 0; i < 200; i++)
        (void)buf_printf(&big, "X-%d: y\r\n", i);
    (void)buf_puts(&big, END);
    expect_answer(wire_once(wire_tcp(f->port), big.data, big.len), 431, "HEADERS_TOO_LARGE");
    buf_clear(&big);
    (void)buf_puts(&big, "GET /hello HTTP/1.1\r\n" HOST "X-Big: ");
    for (int i = 0; i < 5000; i++)
        (void)buf_puts(&big, "0123456789");
    (void)buf_puts(&big, "\r\n" END);
    a = wire_once(wire_tcp(f->port), big.data, big.len);
    assert_true(a.status == 431 || a.status == 413 || a.status == 0); /* the parser's own answer */
    wire_free(&a);
    buf_fini(&big);
}

#define CREATE "POST /things/create HTTP/1.1\r\n" HOST

static void a_json_body_comes_through(void **state)
{
    struct wire_answer a;

    a = fixture_ask(*state, CREATE JSON "Content-Length: 10\r\n" END "{\"name\":1}");
    assert_int_equal(a.status, 201);
    assert_string_equal(a.body, "{\"success\":true,\"name\":1}");
    wire_free(&a);
    a = fixture_ask(*state, CREATE "content-type: Application/JSON ; charset=utf-8\r\n"
                                   "Transfer-Encoding: chunked\r\n" END
                                   "5\r\n{\"nam\r\n5\r\ne\":1}\r\n0\r\n\r\n");
    assert_int_equal(a.status, 201);
    assert_string_equal(a.body, "{\"success\":true,\"name\":1}");
    wire_free(&a);
    a = fixture_ask(*state, CREATE "Content-Length: 0\r\n" END);
    assert_non_null(strstr(a.body, "\"data\":{\"field\":\"name\"}"));
    expect_answer(a, 400, "INVALID_REQUEST");
}

static void another_content_type_is_415(void **state)
{
    static const char *const BAD[] = { "Content-Type: text/plain\r\n",
                                       "Content-Type: application/jsonx\r\n",
                                       "Content-Type: application/json2\r\n",
                                       "Content-Type: application/x-www-form-urlencoded\r\n", "" };

    for (size_t i = 0; i < COUNT_OF(BAD); i++)
        expect_answer(fixture_ask(*state, CREATE "%sContent-Length: 2\r\n" END "{}", BAD[i]), 415,
                      "UNSUPPORTED_MEDIA_TYPE");
}

static void a_body_where_none_belongs_is_400(void **state)
{
    expect_answer(
        fixture_ask(*state, "GET /hello HTTP/1.1\r\n" HOST "Content-Length: 2\r\n" END "{}"), 400,
        "INVALID_REQUEST");
    expect_answer(fixture_ask(*state, "GET /hello HTTP/1.1\r\n" HOST
                                      "Transfer-Encoding: chunked\r\n" END "2\r\n{}\r\n0\r\n\r\n"),
                  400, "INVALID_REQUEST");
    expect_answer(fixture_ask(*state, "GET /hello HTTP/1.1\r\n" HOST
                                      "Transfer-Encoding: chunked\r\n" END "0\r\n\r\n"),
                  200, NULL);
}

/* Case 45: malformed input is answered 400 or 413, fast, never 5xx. */
static void case_45_malformed_json(void **state)
{
    static const char *const BAD[] = {
        "{\"a\":",
        "[]",
        "1",
        "\"x\"",
        "null",
        "{\"a\":1}x",
        "{\"a\":1,\"a\":2}",
        "{\"a\":\"\\ud800\"}",
        "{\"a\":\"\\u0000\"}",
        "{\"a\":\"\xff\"}",
        "{\"a\":NaN}",
        "{'a':1}",
        "{\"a\":1e999}",
        " ",
        "{\"a\":\"\xed\xa0\x80\"}",
        "\xef\xbb\xbf{}",
    };
    struct buf deep = { .max = 1024 * 1024 };

    for (size_t i = 0; i < COUNT_OF(BAD); i++) {
        struct wire_answer a = fixture_ask(*state, CREATE JSON "Content-Length: %zu\r\n" END "%s",
                                           strlen(BAD[i]), BAD[i]);

        if (a.status != 400)
            print_error("%d for %s\n", a.status, BAD[i]);
        expect_answer(a, 400, "INVALID_REQUEST");
    }
    for (int i = 0; i < 10000; i++)
        (void)buf_puts(&deep, "{\"a\":");
    expect_answer(
        fixture_ask(*state, CREATE JSON "Content-Length: %zu\r\n" END "%s", deep.len, deep.data),
        400, "INVALID_REQUEST");
    buf_fini(&deep);
}

static struct wire_answer post_zeros(struct fixture *f, bool chunked, size_t total, bool expect)
{
    int fd = wire_tcp(f->port);
    struct buf in = { .max = 65536 };
    struct wire_answer a;
    char head[256], piece[65536];

    memset(piece, ' ', sizeof(piece));
    if (chunked)
        (void)snprintf(head, sizeof(head), CREATE JSON "Transfer-Encoding: chunked\r\n" END);
    else
        (void)snprintf(head, sizeof(head), CREATE JSON "%sContent-Length: %zu\r\n" END,
                       expect ? "Expect: 100-continue\r\n" : "", total);
    assert_true(wire_puts(fd, head));
    for (size_t at = 0; !expect && at < total; at += sizeof(piece)) {
        size_t n = total - at < sizeof(piece) ? total - at : sizeof(piece);

        if ((chunked && (snprintf(head, sizeof(head), "%zx\r\n", n), !wire_puts(fd, head))) ||
            !wire_send(fd, piece, n) || (chunked && !wire_puts(fd, "\r\n")))
            break;
    }
    if (chunked)
        (void)wire_puts(fd, "0\r\n\r\n");
    a = wire_read(fd, &in, false);
    buf_fini(&in);
    (void)close(fd);
    return a;
}

static void case_45_large_bodies(void **state)
{
    struct fixture *f = *state;
    int64_t began = time_mono_ms();
    struct wire_answer a;

    /* at the limit: read; one byte over, or up to the drop limit: read, dropped, 413 */
    expect_answer(post_zeros(f, false, SBX_BODY_MAX, false), 400, "INVALID_REQUEST");
    expect_answer(post_zeros(f, true, SBX_BODY_MAX, false), 400, "INVALID_REQUEST");
    expect_answer(post_zeros(f, false, SBX_BODY_MAX + 1, false), 413, "REQUEST_TOO_LARGE");
    expect_answer(post_zeros(f, true, SBX_BODY_MAX + 1, false), 413, "REQUEST_TOO_LARGE");
    expect_answer(post_zeros(f, true, 4 * SBX_BODY_MAX, false), 413, "REQUEST_TOO_LARGE");
    /* past it: 413 or closed */
    a = post_zeros(f, false, 50 * 1024 * 1024, false);
    assert_true(a.status == 413 || a.status == 0);
    wire_free(&a);
    a = post_zeros(f, true, 50 * 1024 * 1024, false);
    assert_true(a.status == 413 || a.status == 0);
    wire_free(&a);
    /* a client that asks first is told at once */
    expect_answer(post_zeros(f, false, 50 * 1024 * 1024, true), 413, "REQUEST_TOO_LARGE");
    assert_true(time_mono_ms() - began < 10000);
    assert_int_equal(fixture_stats(f).body_bytes, 0);
}

static void the_connection_goes_on_after_a_dropped_body(void **state)
{
    struct fixture *f = *state;
    struct buf in = { .max = 65536 };
    int fd = wire_tcp(f->port);
    char big[3001];

    memset(big, 'x', 3000);
    big[3000] = 0;
    assert_true(wire_puts(fd, "POST /private HTTP/1.1\r\n" HOST "Content-Length: 3000\r\n" END));
    assert_true(wire_puts(fd, big));
    assert_true(wire_puts(fd, "GET /hello HTTP/1.1\r\n" HOST END));
    expect_answer(wire_read(fd, &in, false), 401, "UNAUTHENTICATED");
    expect_answer(wire_read(fd, &in, false), 200, NULL);
    buf_fini(&in);
    (void)close(fd);
}

static void expect_100_continue(void **state)
{
    struct fixture *f = *state;
    struct buf in = { .max = 65536 };
    int fd = wire_tcp(f->port);

    assert_true(wire_puts(fd, CREATE JSON "Content-Length: 2\r\nExpect: 100-continue\r\n" END));
    expect_answer(wire_read(fd, &in, false), 100, NULL);
    assert_true(wire_puts(fd, "{}"));
    expect_answer(wire_read(fd, &in, false), 201, NULL);
    buf_fini(&in);
    (void)close(fd);
}

static void pipelined_requests_are_answered_in_order(void **state)
{
    struct fixture *f = *state;
    struct buf in = { .max = 65536 };
    int fd = wire_tcp(f->port);

    for (int i = 0; i < 20; i++) {
        char text[256];

        (void)snprintf(text, sizeof(text),
                       "GET /things/n%d HTTP/1.1\r\n" HOST END CREATE JSON
                       "Content-Length: 9\r\n" END "{\"n\":%3d}",
                       i, i);
        assert_true(wire_puts(fd, text));
    }
    for (int i = 0; i < 20; i++) {
        struct wire_answer a = wire_read(fd, &in, false);
        char want[64];

        assert_int_equal(a.status, 200);
        (void)snprintf(want, sizeof(want), "\"id\":\"n%d\"", i);
        assert_non_null(strstr(a.body, want));
        wire_free(&a);
        a = wire_read(fd, &in, false);
        assert_int_equal(a.status, 201);
        wire_free(&a);
    }
    buf_fini(&in);
    (void)close(fd);
}

static void http_1_0_and_close(void **state)
{
    struct fixture *f = *state;
    struct buf in = { .max = 65536 };
    int fd = wire_tcp(f->port);

    assert_true(wire_puts(fd, "GET /hello HTTP/1.0\r\n\r\n"));
    expect_answer(wire_read(fd, &in, false), 200, NULL);
    assert_true(wire_closed(fd, 5000));
    (void)close(fd);
    fd = wire_tcp(f->port);
    assert_true(wire_puts(fd, "GET /hello HTTP/1.1\r\n" HOST "Connection: close\r\n" END));
    expect_answer(wire_read(fd, &in, false), 200, NULL);
    assert_true(wire_closed(fd, 5000));
    (void)close(fd);
    buf_fini(&in);
}

static void who_calls_is_judged_before_the_body(void **state)
{
    expect_answer(fixture_ask(*state, "GET /private HTTP/1.1\r\n" HOST END), 401,
                  "UNAUTHENTICATED");
    expect_answer(
        fixture_ask(*state, "GET /private HTTP/1.1\r\n" HOST "Authorization: good\r\n" END), 200,
        NULL);
    expect_answer(fixture_ask(*state, "POST /private?%%zz HTTP/1.1\r\n" HOST
                                      "Content-Type: text/x\r\nContent-Length: 2\r\n" END "{}"),
                  401, "UNAUTHENTICATED");
    expect_answer(fixture_ask(*state, "POST /private HTTP/1.1\r\n" HOST "Authorization: good\r\n"
                                      "Content-Type: text/x\r\nContent-Length: 2\r\n" END "{}"),
                  415, "UNSUPPORTED_MEDIA_TYPE");
    /* the same when only a worker can judge */
    expect_answer(fixture_ask(*state, "POST /slow HTTP/1.1\r\n" HOST
                                      "Content-Type: text/x\r\nContent-Length: 2\r\n" END "{}"),
                  401, "UNAUTHENTICATED");
    expect_answer(fixture_ask(*state, "POST /slow HTTP/1.1\r\n" HOST "Authorization: good\r\n"
                                      "Content-Type: text/x\r\nContent-Length: 2\r\n" END "{}"),
                  415, "UNSUPPORTED_MEDIA_TYPE");
    expect_answer(fixture_ask(*state, "POST /slow HTTP/1.1\r\n" HOST "Authorization: good\r\n" JSON
                                      "Content-Length: 2\r\n" END "{}"),
                  201, NULL);
}

static void errors_say_what_the_contract_says(void **state)
{
    struct wire_answer a = fixture_ask(*state, "GET /fail/quota HTTP/1.1\r\n" HOST END);

    assert_string_equal(wire_header(&a, "Retry-After"), "7");
    assert_non_null(
        strstr(a.body, "\"data\":{\"retryable\":true,\"retryAfterSeconds\":7,\"limit\":2}"));
    expect_answer(a, 429, "QUOTA_EXCEEDED");
    a = fixture_ask(*state, "GET /fail/conflict HTTP/1.1\r\n" HOST END);
    assert_null(wire_header(&a, "Retry-After"));
    assert_non_null(strstr(a.body, "\"error\":\"Sandbox is changing state\""));
    assert_non_null(strstr(a.body, "\"data\":{\"retryable\":true}"));
    expect_answer(a, 409, "SANDBOX_CHANGING_STATE");
    expect_answer(fixture_ask(*state, "GET /fail/code HTTP/1.1\r\n" HOST END), 404,
                  "stream.not_found");
    log_open("test", LOG_ERROR + 1);
    a = fixture_ask(*state, "GET /fail/internal HTTP/1.1\r\n" HOST END);
    assert_null(strstr(a.body, "secret"));
    expect_answer(a, 500, "INTERNAL");
    expect_answer(fixture_ask(*state, "GET /fail/nothing HTTP/1.1\r\n" HOST END), 500, "INTERNAL");
    log_open("test", LOG_ERROR);
}

static void a_route_may_have_its_own_error_form(void **state)
{
    static const char *const BAD[] = {
        "POST /problem HTTP/1.1\r\n" HOST END, "GET /problem HTTP/1.1\r\n" HOST END,
        "POST /problem HTTP/1.1\r\n" HOST "Content-Length: 1\r\n" END "x",
        "POST /problem HTTP/1.1\r\n" HOST JSON "Content-Length: 1000\r\n" END
    };
    static const int WANT[] = { 400, 405, 415, 413 };
    char pad[1001];

    memset(pad, ' ', 1000);
    pad[1000] = 0;
    for (size_t i = 0; i < COUNT_OF(BAD); i++) {
        struct wire_answer a = fixture_ask(*state, "%s%s", BAD[i], i == 3 ? pad : "");

        assert_int_equal(a.status, WANT[i]);
        assert_string_equal(wire_header(&a, "Content-Type"), "application/problem+json");
        wire_free(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(fn) cmocka_unit_test_setup_teardown(fn, start, stop)
        T(a_success_is_the_documented_json),
        T(the_request_id_is_echoed_when_it_is_good),
        T(unknown_paths_and_methods),
        T(head_is_get_without_a_body),
        T(parameters_and_query_are_decoded_once),
        T(what_two_servers_may_read_differently_is_refused),
        T(what_the_parser_refuses),
        T(headers_are_bounded),
        T(a_json_body_comes_through),
        T(another_content_type_is_415),
        T(a_body_where_none_belongs_is_400),
        T(case_45_malformed_json),
        T(case_45_large_bodies),
        T(the_connection_goes_on_after_a_dropped_body),
        T(expect_100_continue),
        T(pipelined_requests_are_answered_in_order),
        T(http_1_0_and_close),
        T(who_calls_is_judged_before_the_body),
        T(errors_say_what_the_contract_says),
        T(a_route_may_have_its_own_error_form),
    };
    return fixture_group(tests, COUNT_OF(tests));
}
