#include "unit/http/fixture.h"

/* Workers, deferral, streams, limits of time and number, and the order of the stop. */

static struct http_config config;
static struct http_listener listener;

static struct fixture *prepare(void)
{
    struct fixture *f = mem_zalloc(sizeof(*f));

    f->metrics = metrics_new();
    fixture_config(f, &config, &listener);
    return f;
}

static int start(void **state)
{
    struct fixture *f = prepare();

    fixture_start(f, &config);
    *state = f;
    return 0;
}

static int prepare_only(void **state)
{
    *state = prepare();
    return 0;
}

static int stop(void **state)
{
    struct fixture *f = *state;

    if (f->server != NULL)
        fixture_stop(f);
    metrics_free(f->metrics);
    free(f);
    return 0;
}

static int ask_for(struct fixture *f, const char *path)
{
    char text[256];
    int fd = wire_tcp(f->port);

    (void)snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\n" HOST END, path);
    assert_true(wire_puts(fd, text));
    return fd;
}

static struct wire_answer answer_of(int fd)
{
    return wire_once(fd, "", 0);
}

/* --- the queue --- */

static void a_full_queue_is_503_and_recovers(void **state)
{
    struct fixture *f = *state;
    int running[2], waiting[2];
    struct wire_answer a;

    config.workers = 2;
    config.queue_max = 2;
    fixture_start(f, &config);
    for (int i = 0; i < 2; i++)
        running[i] = ask_for(f, "/block");
    UNTIL(atomic_load(&f->blocked) == 2);
    for (int i = 0; i < 2; i++)
        waiting[i] = ask_for(f, "/things/1");
    UNTIL(fixture_stats(f).queued == 2);
    a = fixture_ask(f, "GET /things/2 HTTP/1.1\r\n" HOST END);
    assert_string_equal(wire_header(&a, "Retry-After"), "1");
    assert_non_null(strstr(a.body, "\"retryable\":true,\"retryAfterSeconds\":1"));
    expect_answer(a, 503, "BUSY");
    /* the http threads are free all the while */
    expect_answer(fixture_ask(f, "GET /hello HTTP/1.1\r\n" HOST END), 200, NULL);
    atomic_store(&f->gate, 1);
    for (int i = 0; i < 2; i++) {
        expect_answer(answer_of(running[i]), 204, NULL);
        expect_answer(answer_of(waiting[i]), 200, NULL);
    }
    expect_answer(fixture_ask(f, "GET /things/2 HTTP/1.1\r\n" HOST END), 200, NULL);
}

/* --- together --- */

static void expect_together(int fd)
{
    struct wire_answer a = answer_of(fd);

    assert_non_null(strstr(a.body, "\"together\":true"));
    expect_answer(a, 200, NULL);
}

static void what_waits_is_handled_together_and_answered_each_for_itself(void **state)
{
    struct fixture *f = *state;
    int first, others[8], refused, fails, late;
    struct wire_answer a;

    first = ask_for(f, "/together/1");
    UNTIL(atomic_load(&f->settling) == 1);
    for (int i = 0; i < 8; i++)
        others[i] = ask_for(f, "/together/2");
    refused = ask_for(f, "/together/refused");
    fails = ask_for(f, "/together/fails");
    late = ask_for(f, "/together/late");
    UNTIL(fixture_stats(f).queued == 11); /* the two other workers leave them to gather */
    expect_answer(fixture_ask(f, "GET /things/1 HTTP/1.1\r\n" HOST END), 200, NULL);
    assert_int_equal(atomic_load(&f->settling), 1);
    atomic_store(&f->gate, 1);
    expect_together(first);
    for (int i = 0; i < 8; i++)
        expect_together(others[i]);
    expect_answer(answer_of(refused), 400, "INVALID_REQUEST");
    expect_answer(answer_of(fails), 404, "NOT_FOUND");
    assert_int_equal(atomic_load(&f->settled), 2);
    assert_int_equal(atomic_load(&f->largest), 10);
    UNTIL(fixture_stats(f).deferred == 1);
    assert_true(request_continue(f->server, atomic_load(&f->ticket), answer_arg, mem_strdup("l")));
    a = answer_of(late);
    assert_non_null(strstr(a.body, "\"text\":\"l\""));
    expect_answer(a, 200, NULL);
}

static void a_slow_group_does_not_hold_up_a_whole_next_one(void **state)
{
    struct fixture *f = *state;
    int fds[1 + 32 + 5];

    fds[0] = ask_for(f, "/together/0");
    UNTIL(atomic_load(&f->settling) == 1);
    for (size_t i = 1; i < COUNT_OF(fds); i++)
        fds[i] = ask_for(f, "/together/1");
    UNTIL(atomic_load(&f->settling) == 2);
    assert_true(fixture_stats(f).queued <= 5);
    atomic_store(&f->gate, 1);
    for (size_t i = 0; i < COUNT_OF(fds); i++)
        expect_together(fds[i]);
    assert_int_equal(atomic_load(&f->largest), 32);
}

/* The stop waits for the group that is under way, and ends what has not begun. */
static void *open_gate(void *arg)
{
    struct fixture *f = arg;

    for (int i = 0; i < 50; i++)
        fixture_pause();
    atomic_store(&f->gate, 1);
    return NULL;
}

static void the_stop_settles_the_group_under_way(void **state)
{
    struct fixture *f = *state;
    int under_way, waiting;
    pthread_t opener;

    under_way = ask_for(f, "/together/1");
    UNTIL(atomic_load(&f->settling) == 1);
    waiting = ask_for(f, "/together/2");
    UNTIL(fixture_stats(f).queued == 1);
    assert_int_equal(pthread_create(&opener, NULL, open_gate, f), 0);
    fixture_stop(f);
    assert_int_equal(pthread_join(opener, NULL), 0);
    expect_together(under_way);
    expect_answer(answer_of(waiting), 503, "UNAVAILABLE");
}

/* --- deferral --- */

static void a_deferred_request_is_continued_on_a_worker(void **state)
{
    struct fixture *f = *state;
    int fd = ask_for(f, "/defer");
    uint64_t ticket;
    struct wire_answer a;
    char *unused = mem_strdup("unused");

    UNTIL(fixture_stats(f).deferred == 1 && atomic_load(&f->deferrals) == 1);
    ticket = atomic_load(&f->ticket);
    assert_false(request_continue(f->server, ticket + 1, answer_arg, unused));
    assert_true(request_continue(f->server, ticket, answer_arg, mem_strdup("here")));
    a = answer_of(fd);
    assert_string_equal(a.body, "{\"success\":true,\"text\":\"here\",\"worker\":true}");
    wire_free(&a);
    assert_false(request_continue(f->server, ticket, answer_arg, unused));
    assert_false(request_finish(f->server, ticket, answer_arg, unused));
    free(unused);
}

static void a_deferred_request_is_finished_by_the_caller(void **state)
{
    struct fixture *f = *state;
    int fd = ask_for(f, "/defer");
    struct wire_answer a;

    UNTIL(atomic_load(&f->deferrals) == 1);
    assert_true(request_finish(f->server, atomic_load(&f->ticket), answer_arg, mem_strdup("x")));
    a = answer_of(fd);
    assert_int_equal(a.status, 200);
    wire_free(&a);
}

static void a_continue_before_the_handler_has_returned_is_kept(void **state)
{
    for (int i = 0; i < 50; i++) {
        struct wire_answer a = fixture_ask(*state, "GET /early HTTP/1.1\r\n" HOST END);

        assert_string_equal(a.body, "{\"success\":true,\"text\":\"early\",\"worker\":true}");
        wire_free(&a);
    }
}

static enum sbx_code defer_again(struct request *req, struct response *res, void *arg,
                                 struct sbx_err *err)
{
    struct fixture *f = arg;

    (void)res, (void)err;
    atomic_store(&f->ticket, request_defer(req, 60000, NULL));
    (void)atomic_fetch_add(&f->deferrals, 1);
    return SBX_OK;
}

static enum sbx_code refuse(struct request *req, struct response *res, void *arg,
                            struct sbx_err *err)
{
    (void)req, (void)res, (void)arg;
    return err_set(err, SBX_E_AGENT_UNREACHABLE, "The sandbox agent is not reachable.");
}

static void a_continuation_may_defer_again_and_fail(void **state)
{
    struct fixture *f = *state;
    int fd = ask_for(f, "/defer");

    for (int i = 1; i <= 3; i++) {
        UNTIL(atomic_load(&f->deferrals) == i);
        assert_true(request_continue(f->server, atomic_load(&f->ticket), defer_again, f));
    }
    UNTIL(atomic_load(&f->deferrals) == 4);
    assert_true(request_continue(f->server, atomic_load(&f->ticket), refuse, NULL));
    expect_answer(answer_of(fd), 502, "AGENT_UNREACHABLE");
}

static void a_deferral_has_a_deadline(void **state)
{
    struct fixture *f = *state;
    int64_t began = time_mono_ms();
    struct wire_answer a;

    atomic_store(&f->timeout_ms, 100);
    expect_answer(fixture_ask(f, "GET /defer HTTP/1.1\r\n" HOST END), 504, "TIMEOUT");
    a = fixture_ask(f, "GET /late HTTP/1.1\r\n" HOST END);
    assert_string_equal(a.body, "{\"success\":true,\"late\":true}");
    wire_free(&a);
    assert_true(time_mono_ms() - began >= 200 && time_mono_ms() - began < 5000);
    assert_false(request_continue(f->server, atomic_load(&f->ticket), refuse, NULL));
}

static void a_lost_client_harms_nothing(void **state)
{
    struct fixture *f = *state;
    int fd = ask_for(f, "/defer");

    UNTIL(atomic_load(&f->deferrals) == 1);
    (void)close(fd);
    assert_true(request_continue(f->server, atomic_load(&f->ticket), answer_arg, mem_strdup("?")));
    UNTIL(fixture_stats(f).requests == 0 && fixture_stats(f).connections == 0);
}

static void thousands_of_deferred_requests_hold_no_worker(void **state)
{
    enum { N = 3000 };
    struct fixture *f = *state;
    int *fds = mem_zalloc(N * sizeof(*fds));

    config.workers = 2;
    config.queue_max = N;
    fixture_start(f, &config);
    atomic_store(&f->timeout_ms, 2000 + N / 2);
    for (int i = 0; i < N; i++)
        fds[i] = ask_for(f, "/late");
    UNTIL(fixture_stats(f).deferred == N);
    expect_answer(fixture_ask(f, "GET /things/1 HTTP/1.1\r\n" HOST END), 200, NULL);
    for (int i = 0; i < N; i++)
        expect_answer(answer_of(fds[i]), 200, NULL);
    assert_int_equal(fixture_stats(f).deferred, 0);
    free(fds);
}

static void deferred_requests_are_bounded(void **state)
{
    struct fixture *f = *state;
    int fd;

    config.deferred_max = 1;
    fixture_start(f, &config);
    fd = ask_for(f, "/defer");
    UNTIL(fixture_stats(f).deferred == 1);
    expect_answer(fixture_ask(f, "GET /defer HTTP/1.1\r\n" HOST END), 503, "BUSY");
    assert_true(request_continue(f->server, atomic_load(&f->ticket), answer_arg, mem_strdup("")));
    expect_answer(answer_of(fd), 200, NULL);
}

/* --- the stop --- */

static void drain_waits_for_what_is_under_way(void **state)
{
    struct fixture *f = *state;
    int blocked = ask_for(f, "/block"), deferred = ask_for(f, "/defer"), idle = wire_tcp(f->port);
    struct buf in = { .max = 65536 };
    struct wire_answer a;

    UNTIL(atomic_load(&f->blocked) == 1 && atomic_load(&f->deferrals) == 1);
    assert_true(wire_puts(idle, "GET /hello HTTP/1.1\r\n" HOST END));
    a = wire_read(idle, &in, false);
    assert_null(wire_header(&a, "Connection"));
    wire_free(&a);
    http_server_quiesce(f->server);
    assert_false(http_server_drain(f->server, 50));
    /* a kept connection is still served, and told to go */
    assert_true(wire_puts(idle, "GET /hello HTTP/1.1\r\n" HOST END));
    a = wire_read(idle, &in, false);
    assert_string_equal(wire_header(&a, "Connection"), "close");
    wire_free(&a);
    buf_fini(&in);
    (void)close(idle);
    atomic_store(&f->gate, 1);
    assert_true(request_continue(f->server, atomic_load(&f->ticket), answer_arg, mem_strdup("e")));
    assert_true(http_server_drain(f->server, WIRE_WAIT_MS));
    fixture_stop(f);
    expect_answer(answer_of(blocked), 204, NULL);
    expect_answer(answer_of(deferred), 200, NULL);
}

static void stop_answers_what_waits(void **state)
{
    struct fixture *f = *state;
    int blocked, queued[3], deferred[3], half = wire_tcp(f->port);

    config.workers = 1;
    fixture_start(f, &config);
    (void)close(half);
    half = wire_tcp(f->port);
    assert_true(wire_puts(half, "POST /things/create HTTP/1.1\r\n" HOST JSON
                                "Content-Length: 100\r\n" END "{"));
    for (int i = 0; i < 3; i++)
        deferred[i] = ask_for(f, "/defer");
    UNTIL(fixture_stats(f).deferred == 3);
    blocked = ask_for(f, "/block");
    UNTIL(atomic_load(&f->blocked) == 1);
    for (int i = 0; i < 3; i++)
        queued[i] = ask_for(f, "/things/1");
    UNTIL(fixture_stats(f).queued == 3);
    atomic_store(&f->gate, 1);
    fixture_stop(f);
    expect_answer(answer_of(blocked), 204, NULL); /* it was running: it ends as it would have */
    for (int i = 0; i < 3; i++) {
        struct wire_answer a = answer_of(queued[i]);

        assert_true(a.status == 200 || a.status == 503);
        wire_free(&a);
        expect_answer(answer_of(deferred[i]), 503, "UNAVAILABLE");
    }
    assert_true(wire_closed(half, WIRE_WAIT_MS));
    (void)close(half);
}

struct racer {
    struct fixture *f;
    atomic_int stop;
};

static void *race_continue(void *arg)
{
    struct racer *r = arg;

    for (uint64_t t = 1; !atomic_load(&r->stop); t = t < 400 ? t + 1 : 1) {
        char *text = mem_strdup("raced");

        if (!request_continue(r->f->server, t, answer_arg, text))
            free(text);
    }
    return NULL;
}

/* Continues from another thread race with the deadline and with the stop: each request is answered
 * once, each arg is taken once (the leak checker counts). */
static void continues_race_with_deadlines_and_the_stop(void **state)
{
    struct fixture *f = *state;

    for (int round = 0; round < 8; round++) {
        enum { N = 40 };
        struct racer r = { .f = f };
        pthread_t thread;
        int fds[N];

        fixture_start(f, &config);
        atomic_store(&f->timeout_ms, 5);
        assert_int_equal(pthread_create(&thread, NULL, race_continue, &r), 0);
        for (int i = 0; i < N; i++)
            fds[i] = ask_for(f, i % 2 == 0 ? "/defer" : "/late");
        (void)http_server_drain(f->server, round * 3);
        http_server_quiesce(f->server);
        atomic_store(&r.stop, 1);
        (void)pthread_join(thread, NULL);
        fixture_stop(f);
        for (int i = 0; i < N; i++) {
            struct wire_answer a = answer_of(fds[i]);

            assert_true(a.status == 200 || a.status == 503 || a.status == 504 || a.status == 0);
            wire_free(&a);
        }
    }
}

/* --- streams --- */

static int begin_upload(struct fixture *f, size_t len, bool chunked, const char *token)
{
    int fd = wire_tcp(f->port);
    char head[256];

    if (chunked)
        (void)snprintf(head, sizeof(head),
                       "POST /upload HTTP/1.1\r\n" HOST "Authorization: %s\r\n"
                       "Transfer-Encoding: chunked\r\n" END,
                       token);
    else
        (void)snprintf(head, sizeof(head),
                       "POST /upload HTTP/1.1\r\n" HOST "Authorization: %s\r\n"
                       "Content-Length: %zu\r\n" END,
                       token, len);
    assert_true(wire_puts(fd, head));
    return fd;
}

static void send_filler(int fd, size_t len, bool chunked)
{
    char *piece = mem_zalloc(65536), head[32];

    memset(piece, 'u', 65536);
    for (size_t at = 0; at < len; at += 65536) {
        size_t n = len - at < 65536 ? len - at : 65536;

        (void)snprintf(head, sizeof(head), "%zx\r\n", n);
        if ((chunked && !wire_puts(fd, head)) || !wire_send(fd, piece, n) ||
            (chunked && !wire_puts(fd, "\r\n")))
            break;
    }
    if (chunked)
        (void)wire_puts(fd, "0\r\n\r\n");
    free(piece);
}

static void a_large_body_is_streamed_in_pieces(void **state)
{
    enum { LEN = 20 * 1000 * 1000 };
    struct fixture *f = *state;

    for (int chunked = 0; chunked < 2; chunked++) {
        int fd = begin_upload(f, LEN, chunked, "good");
        struct wire_answer a;

        atomic_store(&f->streamed, 0);
        send_filler(fd, LEN, chunked);
        a = answer_of(fd);
        assert_string_equal(a.body, "{\"success\":true,\"bytes\":20000000}");
        wire_free(&a);
        UNTIL(atomic_load(&f->arena_ends) == chunked + 1);
        assert_int_equal(fixture_stats(f).body_bytes, 0);
    }
    expect_answer(answer_of(begin_upload(f, 0, false, "good")), 200, NULL);
}

static void a_streamed_body_may_be_refused(void **state)
{
    struct fixture *f = *state;
    struct buf in = { .max = 65536 };
    int fd = begin_upload(f, 3000000, false, "bad");

    /* no token: nothing of it is read by the route, and the connection goes on */
    send_filler(fd, 3000000, false);
    expect_answer(wire_read(fd, &in, false), 401, "UNAUTHENTICATED");
    assert_int_equal(atomic_load(&f->streamed), 0);
    assert_true(wire_puts(fd, "GET /hello HTTP/1.1\r\n" HOST END));
    expect_answer(wire_read(fd, &in, false), 200, NULL);
    (void)close(fd);
    /* the route refuses a piece: the rest is dropped */
    fd = begin_upload(f, 3000000, false, "good");
    assert_true(wire_puts(fd, "!"));
    send_filler(fd, 2999999, false);
    expect_answer(wire_read(fd, &in, false), 400, "INVALID_REQUEST");
    assert_true(atomic_load(&f->streamed) <= 512 * 1024);
    (void)close(fd);
    /* the last piece is refused */
    fd = begin_upload(f, 5, false, "good");
    assert_true(wire_puts(fd, "abcd!"));
    expect_answer(answer_of(fd), 400, "INVALID_REQUEST");
    /* over the limit: told at once when it is announced, else 413 or closed */
    expect_answer(answer_of(begin_upload(f, 41 * 1024 * 1024, false, "good")), 413,
                  "REQUEST_TOO_LARGE");
    fd = begin_upload(f, 0, true, "good");
    send_filler(fd, 41 * 1024 * 1024, true);
    expect_answer(answer_of(fd), 413, "REQUEST_TOO_LARGE");
    buf_fini(&in);
}

static void a_client_may_leave_in_mid_body(void **state)
{
    struct fixture *f = *state;
    int fd;

    /* libmicrohttpd may miss an end that came together with bytes: then the deadline acts */
    config.body_timeout_ms = 1000;
    fixture_start(f, &config);
    fd = begin_upload(f, 3000000, false, "good");
    send_filler(fd, 600000, false);
    UNTIL(atomic_load(&f->streamed) > 0);
    (void)close(fd);
    UNTIL(atomic_load(&f->arena_ends) == 1);
    UNTIL(fixture_stats(f).requests == 0);
    assert_int_equal(fixture_stats(f).body_bytes, 0);
}

static void an_answer_may_be_streamed(void **state)
{
    struct fixture *f = *state;
    int fd = ask_for(f, "/download");
    struct sbx_err err = { 0 };
    struct response_stream *s;
    struct wire_answer a;
    char piece[1000];

    UNTIL(atomic_load(&f->stream) != NULL);
    s = atomic_load(&f->stream);
    memset(piece, 'p', sizeof(piece));
    for (int i = 0; i < 500; i++)
        assert_int_equal(response_stream_write(s, piece, sizeof(piece), WIRE_WAIT_MS, &err),
                         SBX_OK);
    response_stream_end(s, true);
    a = answer_of(fd);
    assert_int_equal(a.status, 200);
    assert_int_equal(a.len, 500000);
    wire_free(&a);
}

static void a_streamed_answer_holds_its_writer_back(void **state)
{
    struct fixture *f = *state;
    int fd = ask_for(f, "/download");
    char *piece = mem_zalloc(4096);
    struct sbx_err err = { 0 };
    struct response_stream *s;
    size_t wrote = 0;

    UNTIL(atomic_load(&f->stream) != NULL);
    s = atomic_load(&f->stream);
    /* a client that does not read: the sockets fill, then the pipe, then there is no room */
    while (response_stream_write(s, piece, 4096, 200, &err) == SBX_OK) {
        wrote += 4096;
        assert_true(wrote < 64 * 1024 * 1024);
    }
    assert_int_equal(err.code, SBX_E_TIMEOUT);
    (void)close(fd);
    err = (struct sbx_err){ 0 };
    for (int i = 0; i < 1000 && err.code != SBX_E_CONFLICT; i++) {
        err = (struct sbx_err){ 0 };
        if (response_stream_write(s, piece, 4096, 20, &err) == SBX_OK)
            continue;
    }
    assert_int_equal(err.code, SBX_E_CONFLICT); /* the client is gone */
    response_stream_end(s, false);
    free(piece);
}

static void an_answer_that_breaks_off_is_seen_to(void **state)
{
    struct fixture *f = *state;
    int fd = ask_for(f, "/download");
    struct sbx_err err = { 0 };
    struct response_stream *s;

    UNTIL(atomic_load(&f->stream) != NULL);
    s = atomic_load(&f->stream);
    assert_int_equal(response_stream_write(s, "half", 4, 1000, &err), SBX_OK);
    response_stream_end(s, false);
    expect_answer(answer_of(fd), 0, NULL); /* no last chunk: no whole answer */
}

static void the_stop_cuts_an_endless_stream(void **state)
{
    struct fixture *f = *state;
    int fd = ask_for(f, "/download");
    struct sbx_err err = { 0 };
    struct response_stream *s;

    UNTIL(atomic_load(&f->stream) != NULL);
    s = atomic_load(&f->stream);
    assert_int_equal(response_stream_write(s, "x", 1, 1000, &err), SBX_OK);
    fixture_stop(f);
    assert_int_equal(response_stream_write(s, "y", 1, 1000, &err), SBX_E_CONFLICT);
    response_stream_end(s, true);
    (void)close(fd);
}

static void a_file_is_sent_whole(void **state)
{
    struct wire_answer a = fixture_ask(*state, "GET /file HTTP/1.1\r\n" HOST END);

    assert_int_equal(a.status, 200);
    assert_int_equal(a.len, 1000000);
    assert_memory_equal(a.body + 999990, "0123456789", 10);
    wire_free(&a);
}

/* --- limits of time and number --- */

static void slow_clients_are_cut(void **state)
{
    static const char *const SLOW[] = {
        "",                                   /* says nothing */
        "GET /hel",                           /* half a line */
        "GET /hello HTTP/1.1\r\n" HOST "X: ", /* half a header */
        "PUT /raw HTTP/1.1\r\n" HOST "Content-Length: 10\r\n" END "abc",
        "GET /hello HTTP/1.1\r\n" HOST END, /* idle after its answer */
    };
    struct fixture *f = *state;
    int fds[COUNT_OF(SLOW)], trickle;
    int64_t began;

    config.header_timeout_ms = 300;
    config.body_timeout_ms = 300;
    config.idle_timeout_ms = 300;
    fixture_start(f, &config);
    began = time_mono_ms();
    for (size_t i = 0; i < COUNT_OF(SLOW); i++) {
        fds[i] = wire_tcp(f->port);
        assert_true(wire_puts(fds[i], SLOW[i]));
    }
    /* a byte now and then does not help */
    trickle = wire_tcp(f->port);
    (void)wire_puts(trickle, "GET /hello HTTP/1.1\r\nX: ");
    while (wire_puts(trickle, "x") && !wire_closed(trickle, 50))
        assert_true(time_mono_ms() - began < WIRE_WAIT_MS);
    (void)close(trickle);
    for (size_t i = 0; i < COUNT_OF(SLOW); i++) {
        assert_true(wire_closed(fds[i], WIRE_WAIT_MS));
        (void)close(fds[i]);
    }
    assert_true(time_mono_ms() - began < 5000);
    UNTIL(fixture_stats(f).connections == 0);
}

static void a_waiting_client_is_not_cut(void **state)
{
    struct fixture *f = *state;
    int fd;

    config.header_timeout_ms = config.body_timeout_ms = config.idle_timeout_ms =
        config.send_timeout_ms = 100;
    fixture_start(f, &config);
    atomic_store(&f->timeout_ms, 1500);
    fd = ask_for(f, "/late");
    expect_answer(answer_of(fd), 200, NULL); /* 1.5 s later */
}

static void connections_are_bounded(void **state)
{
    struct fixture *f = *state;
    int fds[20];
    size_t open = 0;

    config.connections_max = 8;
    listener.threads = 1;
    fixture_start(f, &config);
    for (size_t i = 0; i < COUNT_OF(fds); i++)
        fds[i] = wire_tcp(f->port);
    UNTIL(fixture_stats(f).connections >= 8);
    open = fixture_stats(f).connections;
    assert_true(open <= 8);
    for (size_t i = 0; i < COUNT_OF(fds); i++)
        (void)close(fds[i]);
    UNTIL(fixture_stats(f).connections == 0);
    expect_answer(fixture_ask(f, "GET /hello HTTP/1.1\r\n" HOST END), 200, NULL);
}

static void bodies_share_one_budget(void **state)
{
    struct fixture *f = *state;
    char pad[60001];
    int fd;

    config.body_budget = 100000;
    fixture_start(f, &config);
    memset(pad, 'x', 60000);
    pad[60000] = 0;
    fd = wire_tcp(f->port);
    assert_true(wire_puts(fd, "PUT /raw HTTP/1.1\r\n" HOST "Content-Length: 60001\r\n" END));
    assert_true(wire_puts(fd, pad));
    UNTIL(fixture_stats(f).body_bytes == 60000);
    expect_answer(
        fixture_ask(f, "PUT /raw HTTP/1.1\r\n" HOST "Content-Length: 60000\r\n" END "%s", pad), 503,
        "BUSY");
    assert_true(wire_puts(fd, "y"));
    expect_answer(answer_of(fd), 200, NULL);
    UNTIL(fixture_stats(f).body_bytes == 0);
    expect_answer(
        fixture_ask(f, "PUT /raw HTTP/1.1\r\n" HOST "Content-Length: 60000\r\n" END "%s", pad), 200,
        NULL);
}

/* --- cross-origin, metrics --- */

static void cors_is_on_only_for_configured_origins(void **state)
{
    static const char *const ORIGINS[] = { "https://console.example", NULL };
    struct fixture *f = *state;
    struct wire_answer a;

    config.cors_origins = ORIGINS;
    fixture_start(f, &config);
    a = fixture_ask(f, "OPTIONS /private HTTP/1.1\r\n" HOST "Origin: https://console.example\r\n"
                       "Access-Control-Request-Method: POST\r\n" END);
    assert_int_equal(a.status, 204);
    assert_string_equal(wire_header(&a, "Access-Control-Allow-Origin"), "https://console.example");
    assert_string_equal(wire_header(&a, "Allow"), "GET, HEAD, POST, OPTIONS");
    wire_free(&a);
    a = fixture_ask(f, "GET /hello HTTP/1.1\r\n" HOST "Origin: https://console.example\r\n" END);
    assert_string_equal(wire_header(&a, "Vary"), "Origin");
    wire_free(&a);
    a = fixture_ask(f, "GET /hello HTTP/1.1\r\n" HOST "Origin: https://evil.example\r\n" END);
    assert_null(wire_header(&a, "Access-Control-Allow-Origin"));
    wire_free(&a);
    expect_answer(fixture_ask(f, "OPTIONS /nothing HTTP/1.1\r\n" HOST END), 404, "NOT_FOUND");
}

static void requests_are_counted(void **state)
{
    struct fixture *f = *state;
    SCOPED_BUF struct buf out = BUF_INIT(1024 * 1024);

    for (int i = 0; i < 3; i++)
        expect_answer(fixture_ask(f, "GET /hello HTTP/1.1\r\n" HOST END), 200, NULL);
    expect_answer(fixture_ask(f, "GET /x HTTP/1.1\r\n" HOST END), 404, NULL);
    UNTIL(fixture_stats(f).requests == 0);
    assert_true(metrics_print(f->metrics, &out));
    assert_non_null(strstr(out.data, "http_requests_total{listener=\"public\",route=\"hello\","
                                     "status=\"200\"} 3\n"));
    assert_non_null(strstr(out.data, "http_requests_total{listener=\"public\",route=\"none\","
                                     "status=\"404\"} 1\n"));
    assert_non_null(strstr(out.data, "http_request_seconds_count{listener=\"public\","
                                     "route=\"hello\"} 3\n"));
    assert_non_null(strstr(out.data, "# TYPE http_queue_depth gauge\nhttp_queue_depth 0\n"));
}

/* What log lines say, and what they never say. */
static void the_access_log_names_the_route_not_the_path(void **state)
{
    struct fixture *f = *state;
    char text[4096] = "";
    int pipe_fds[2], saved = dup(STDERR_FILENO);
    ssize_t n;

    config.access_log = true;
    fixture_start(f, &config);
    assert_int_equal(pipe(pipe_fds), 0);
    (void)dup2(pipe_fds[1], STDERR_FILENO);
    log_open("test", LOG_INFO);
    expect_answer(fixture_ask(f, "GET /things/hidden-id?secret=hidden-value HTTP/1.1\r\n" HOST
                                 "X-Request-Id: request-0001\r\n"
                                 "Authorization: hidden-token\r\n" END),
                  200, NULL);
    expect_answer(fixture_ask(f, "GET /fail/internal HTTP/1.1\r\n" HOST END), 500, NULL);
    expect_answer(fixture_ask(f, "GET /peer HTTP/1.1\r\n" HOST END), 200, NULL); /* quiet */
    UNTIL(fixture_stats(f).requests == 0);
    log_open("test", LOG_ERROR);
    (void)dup2(saved, STDERR_FILENO);
    (void)close(saved);
    (void)close(pipe_fds[1]);
    n = read(pipe_fds[0], text, sizeof(text) - 1);
    (void)close(pipe_fds[0]);
    assert_true(n > 0);
    assert_non_null(strstr(text, "\"requestId\":\"request-0001\",\"method\":\"GET\","
                                 "\"route\":\"thing\",\"status\":200,"));
    assert_null(strstr(text, "hidden"));
    assert_non_null(strstr(text, "\"level\":\"error\""));
    assert_non_null(strstr(text, "the secret inside")); /* for the operator, not for the client */
    assert_null(strstr(text, "\"route\":\"peer\""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(fn) cmocka_unit_test_setup_teardown(fn, start, stop)
#define P(fn) cmocka_unit_test_setup_teardown(fn, prepare_only, stop)
        P(a_full_queue_is_503_and_recovers),
        T(what_waits_is_handled_together_and_answered_each_for_itself),
        T(a_slow_group_does_not_hold_up_a_whole_next_one),
        T(the_stop_settles_the_group_under_way),
        T(a_deferred_request_is_continued_on_a_worker),
        T(a_deferred_request_is_finished_by_the_caller),
        T(a_continue_before_the_handler_has_returned_is_kept),
        T(a_continuation_may_defer_again_and_fail),
        T(a_deferral_has_a_deadline),
        T(a_lost_client_harms_nothing),
        P(thousands_of_deferred_requests_hold_no_worker),
        P(deferred_requests_are_bounded),
        T(drain_waits_for_what_is_under_way),
        P(stop_answers_what_waits),
        P(continues_race_with_deadlines_and_the_stop),
        T(a_large_body_is_streamed_in_pieces),
        T(a_streamed_body_may_be_refused),
        P(a_client_may_leave_in_mid_body),
        T(an_answer_may_be_streamed),
        T(a_streamed_answer_holds_its_writer_back),
        T(an_answer_that_breaks_off_is_seen_to),
        T(the_stop_cuts_an_endless_stream),
        T(a_file_is_sent_whole),
        P(slow_clients_are_cut),
        P(a_waiting_client_is_not_cut),
        P(connections_are_bounded),
        P(bodies_share_one_budget),
        P(cors_is_on_only_for_configured_origins),
        T(requests_are_counted),
        P(the_access_log_names_the_route_not_the_path),
    };
    return fixture_group(tests, COUNT_OF(tests));
}
