#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/time.h"
#include "gateway/relay.h"

/* The test is the agent: it dials the relay's socket and speaks frames by hand. */

enum { WAIT_MS = 5000, BUDGET = 256 * 1024 };

struct rig {
    struct relay *relay;
    struct sockaddr_un address;
    socklen_t address_len;
    char id[ID_SIZE];
    unsigned char key[SBX_AGENT_KEY_LEN];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int readies, results;
    struct relay_result last;
    char failed[200];
};

static void on_ready(void *arg, const char *id)
{
    struct rig *r = arg;

    assert_string_equal(id, r->id);
    (void)pthread_mutex_lock(&r->lock);
    r->readies++;
    (void)pthread_cond_broadcast(&r->changed);
    (void)pthread_mutex_unlock(&r->lock);
}

/* No test here loses a gateway in the middle of an execution. */
static void on_ended(void *arg, const char *id, const char *execution_id, int exit_code, int signal)
{
    (void)arg;
    (void)id;
    (void)execution_id;
    (void)exit_code;
    (void)signal;
}

static void on_connected(void *arg, const char *id)
{
    struct rig *r = arg;

    assert_string_equal(id, r->id);
}

static void on_failed(void *arg, const char *id, const char *message)
{
    struct rig *r = arg;

    (void)id;
    (void)pthread_mutex_lock(&r->lock);
    (void)snprintf(r->failed, sizeof(r->failed), "%s", message);
    (void)pthread_cond_broadcast(&r->changed);
    (void)pthread_mutex_unlock(&r->lock);
}

static enum sbx_code no_proxy(void *arg, const char *id, int *out, struct sbx_err *err)
{
    (void)arg, (void)id, (void)out;
    return err_set(err, SBX_E_FORBIDDEN, "none");
}

static void on_done(void *arg, struct relay_result *result)
{
    struct rig *r = arg;

    (void)pthread_mutex_lock(&r->lock);
    r->results++;
    r->last = *result;
    (void)pthread_cond_broadcast(&r->changed);
    (void)pthread_mutex_unlock(&r->lock);
}

static void wait_until(struct rig *r, const int *counter, int value)
{
    struct timespec at;

    (void)clock_gettime(CLOCK_REALTIME, &at);
    at.tv_sec += WAIT_MS / 1000;
    (void)pthread_mutex_lock(&r->lock);
    while (*counter < value)
        assert_int_equal(pthread_cond_timedwait(&r->changed, &r->lock, &at), 0);
    (void)pthread_mutex_unlock(&r->lock);
}

static int setup(void **state)
{
    static const char *none[] = { NULL };
    struct rig *r = calloc(1, sizeof(*r));
    struct driver_workload w = { .argv = none, .env = none, .cwd = "/workspace" };
    struct relay_config config = { .events = { .ready = on_ready,
                                               .connected = on_connected,
                                               .failed = on_failed,
                                               .ended = on_ended,
                                               .dial_proxy = no_proxy,
                                               .arg = r },
                                   .executions_max = 4,
                                   .executions_per_sandbox = 3,
                                   .output_budget = BUDGET,
                                   .ping_interval_ms = 300,
                                   .silence_timeout_ms = 600,
                                   .redial_timeout_ms = 700 };
    struct sockaddr_un any = { .sun_family = AF_UNIX };
    struct relay_sandbox s = { .id = r->id, .key = r->key, .workload = &w };
    struct sbx_err err = { 0 };

    id_new(r->id);
    memset(r->key, 7, sizeof(r->key));
    (void)pthread_mutex_init(&r->lock, NULL);
    (void)pthread_cond_init(&r->changed, NULL);
    assert_int_equal(relay_start(&config, &r->relay, &err), SBX_OK);
    s.listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(s.listen_fd, (struct sockaddr *)&any, sizeof(any.sun_family)), 0);
    assert_int_equal(listen(s.listen_fd, 8), 0);
    r->address_len = sizeof(r->address);
    assert_int_equal(getsockname(s.listen_fd, (struct sockaddr *)&r->address, &r->address_len), 0);
    assert_int_equal(relay_add(r->relay, &s, &err), SBX_OK);
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;

    relay_stop(r->relay);
    relay_free(r->relay);
    (void)pthread_cond_destroy(&r->changed);
    (void)pthread_mutex_destroy(&r->lock);
    free(r);
    return 0;
}

static int dial(struct rig *r)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&r->address, r->address_len), 0);
    return fd;
}

static void say(int fd, uint8_t type, uint32_t stream, const struct buf *payload)
{
    struct buf frame = BUF_INIT(SBX_AGENT_FRAME_MAX + 1024);

    assert_true(relay_put_frame(&frame, type, stream, payload));
    assert_int_equal(send(fd, frame.data, frame.len, MSG_NOSIGNAL), frame.len);
    buf_fini(&frame);
}

static void hello(int fd, uint64_t kind, const unsigned char *key)
{
    struct buf p = BUF_INIT(256);

    (void)relay_put_number(&p, SBX_TAG_KIND, kind);
    if (key != NULL)
        (void)relay_put_field(&p, SBX_TAG_KEY, key, SBX_AGENT_KEY_LEN);
    say(fd, SBX_AGENT_HELLO, 0, &p);
    buf_fini(&p);
}

/* False: the peer closed. */
static bool read_all(int fd, void *out, size_t len)
{
    for (size_t at = 0; at < len;) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        ssize_t n;

        assert_true(poll(&p, 1, WAIT_MS) > 0);
        n = read(fd, (char *)out + at, len - at);
        if (n <= 0)
            return false;
        at += (size_t)n;
    }
    return true;
}

/* The next frame but PING; its payload in out. */
static bool hear(int fd, struct sbx_agent_header *h, struct buf *out)
{
    unsigned char head[SBX_AGENT_HEADER_LEN];

    do {
        buf_clear(out);
        if (!read_all(fd, head, sizeof(head)))
            return false;
        assert_true(sbx_agent_header_parse(head, h));
        if (h->length > 0) {
            assert_true(read_all(fd, buf_reserve(out, h->length), h->length));
            out->len += h->length;
        }
    } while (h->type == SBX_AGENT_PING);
    return true;
}

static int ready_agent(struct rig *r)
{
    struct buf p = BUF_INIT(SBX_AGENT_FRAME_MAX);
    struct sbx_agent_header h;
    int fd = dial(r);

    hello(fd, SBX_AGENT_CONTROL, NULL);
    assert_true(hear(fd, &h, &p));
    assert_int_equal(h.type, SBX_AGENT_WELCOME);
    say(fd, SBX_AGENT_READY, 0, NULL);
    wait_until(r, &r->readies, 1);
    buf_fini(&p);
    return fd;
}

static enum sbx_code execute(struct rig *r, const char *exec_id, int64_t timeout_ms)
{
    static const char *const argv[] = { "x", "", "a b", NULL };
    static const char *const env[] = { "A=b", NULL };
    struct relay_execution e = { .id = r->id,
                                 .execution_id = exec_id,
                                 .argv = argv,
                                 .env = env,
                                 .timeout_ms = timeout_ms,
                                 .cap = 1024 * 1024,
                                 .done = on_done,
                                 .arg = r };
    struct sbx_err err = { 0 };

    return relay_execute(r->relay, &e, &err);
}

static void test_first_connection_gets_the_key_and_no_other_does(void **state)
{
    struct rig *r = *state;
    struct buf p = BUF_INIT(SBX_AGENT_FRAME_MAX);
    struct sbx_agent_field f;
    struct sbx_agent_header h;
    unsigned char wrong[SBX_AGENT_KEY_LEN] = { 0 };
    size_t at = 0;
    bool bad = false;
    int first = dial(r), second, third;

    hello(first, SBX_AGENT_CONTROL, NULL);
    assert_true(hear(first, &h, &p));
    assert_int_equal(h.type, SBX_AGENT_WELCOME);
    assert_true(sbx_agent_field_next((unsigned char *)p.data, p.len, &at, &f, &bad));
    assert_int_equal(f.tag, SBX_TAG_KEY);
    assert_memory_equal(f.data, r->key, sizeof(r->key));
    second = dial(r);
    hello(second, SBX_AGENT_CONTROL, NULL);
    assert_false(hear(second, &h, &p));
    third = dial(r);
    hello(third, SBX_AGENT_CONTROL, wrong);
    assert_false(hear(third, &h, &p));
    say(first, SBX_AGENT_READY, 0, NULL); /* the impostors did it no harm */
    wait_until(r, &r->readies, 1);
    (void)close(first), (void)close(second), (void)close(third);
    buf_fini(&p);
}

static void test_garbage_closes(void **state)
{
    struct rig *r = *state;
    struct buf p = BUF_INIT(1024);
    struct sbx_agent_header h;
    unsigned char head[SBX_AGENT_HEADER_LEN];
    int fd = dial(r);

    sbx_agent_header_pack(head, SBX_AGENT_HELLO, 0, (uint32_t)SBX_AGENT_FRAME_MAX + 1);
    assert_int_equal(send(fd, head, sizeof(head), MSG_NOSIGNAL), sizeof(head));
    assert_false(hear(fd, &h, &p));
    (void)close(fd);
    fd = dial(r);
    say(fd, SBX_AGENT_READY, 0, NULL); /* before HELLO */
    assert_false(hear(fd, &h, &p));
    (void)close(fd);
    fd = dial(r);
    (void)buf_append(&p, "\1\0\377\377\377\377", 6); /* a field longer than its payload */
    say(fd, SBX_AGENT_HELLO, 0, &p);
    assert_false(hear(fd, &h, &p));
    (void)close(fd);
    assert_int_equal(r->readies, 0);
    buf_fini(&p);
}

static void test_execution_and_its_bytes(void **state)
{
    struct rig *r = *state;
    struct buf p = BUF_INIT(SBX_AGENT_FRAME_MAX), out = BUF_INIT(1024);
    struct sbx_agent_header h;
    char exec_id[ID_SIZE];
    int fd = ready_agent(r);

    id_new(exec_id);
    assert_int_equal(execute(r, exec_id, 5000), SBX_OK);
    assert_int_equal(execute(r, exec_id, 5000), SBX_E_OPERATION_KNOWN);
    assert_true(hear(fd, &h, &p));
    assert_int_equal(h.type, SBX_AGENT_EXEC);
    (void)buf_puts(&out, "hello");
    say(fd, SBX_AGENT_STARTED, h.stream, NULL);
    say(fd, SBX_AGENT_STDOUT, h.stream, &out);
    say(fd, SBX_AGENT_STDOUT, h.stream + 99, &out); /* of nobody */
    buf_clear(&out);
    (void)relay_put_number(&out, SBX_TAG_EXIT_CODE, 3);
    (void)relay_put_number(&out, SBX_TAG_STDOUT_BYTES, 9);
    say(fd, SBX_AGENT_EXIT, h.stream, &out);
    wait_until(r, &r->results, 1);
    assert_int_equal(r->last.err.code, SBX_OK);
    assert_int_equal(r->last.exit_code, 3);
    assert_string_equal(r->last.out.data, "hello");
    assert_int_equal(r->last.out_bytes, 9);
    assert_true(r->last.out_truncated);
    relay_result_free(r->relay, &r->last);
    (void)close(fd);
    buf_fini(&p), buf_fini(&out);
}

/* Never an invented exit code: a lost connection answers AGENT_UNREACHABLE, without output. */
static void test_lost_connection(void **state)
{
    struct rig *r = *state;
    struct buf p = BUF_INIT(SBX_AGENT_FRAME_MAX);
    struct sbx_agent_header h;
    char exec_id[ID_SIZE];
    int fd = ready_agent(r);

    id_new(exec_id);
    assert_int_equal(execute(r, exec_id, 60000), SBX_OK);
    assert_true(hear(fd, &h, &p));
    (void)buf_puts(&p, "partial");
    say(fd, SBX_AGENT_STDOUT, h.stream, &p);
    (void)close(fd);
    wait_until(r, &r->results, 1);
    assert_int_equal(r->last.err.code, SBX_E_AGENT_UNREACHABLE);
    assert_int_equal(r->last.out.len, 0);
    relay_result_free(r->relay, &r->last);
    /* nobody dials again: the next one is told so within the redial time */
    id_new(exec_id);
    assert_int_equal(execute(r, exec_id, 60000), SBX_OK);
    wait_until(r, &r->results, 2);
    assert_int_equal(r->last.err.code, SBX_E_AGENT_UNREACHABLE);
    buf_fini(&p);
}

static void test_silence_is_loss(void **state)
{
    struct rig *r = *state;
    char exec_id[ID_SIZE];
    int fd = ready_agent(r);
    int64_t began = time_mono_ms();

    id_new(exec_id);
    assert_int_equal(execute(r, exec_id, 600000), SBX_OK);
    wait_until(r, &r->results, 1); /* the pings are not answered */
    assert_int_equal(r->last.err.code, SBX_E_AGENT_UNREACHABLE);
    assert_true(time_mono_ms() - began < 3000);
    (void)close(fd);
}

static void test_redial_finishes_what_waited(void **state)
{
    struct rig *r = *state;
    struct buf p = BUF_INIT(SBX_AGENT_FRAME_MAX);
    struct sbx_agent_header h;
    char exec_id[ID_SIZE];
    int fd = ready_agent(r);

    (void)close(fd);
    while (relay_is_ready(r->relay, r->id))
        (void)poll(NULL, 0, 5);
    id_new(exec_id);
    assert_int_equal(execute(r, exec_id, 5000), SBX_OK);
    fd = dial(r);
    hello(fd, SBX_AGENT_CONTROL, r->key);
    assert_true(hear(fd, &h, &p));
    assert_int_equal(h.type, SBX_AGENT_WELCOME);
    assert_int_equal(h.length, 0); /* no key a second time */
    assert_true(hear(fd, &h, &p));
    assert_int_equal(h.type, SBX_AGENT_LIST);
    say(fd, SBX_AGENT_LISTED, h.stream, NULL);
    say(fd, SBX_AGENT_READY, 0, NULL);
    assert_true(hear(fd, &h, &p));
    assert_int_equal(h.type, SBX_AGENT_EXEC);
    buf_clear(&p);
    (void)relay_put_number(&p, SBX_TAG_REASON, SBX_AGENT_REASON_CWD_MISSING);
    (void)relay_put_text(&p, SBX_TAG_MESSAGE, "no such folder");
    say(fd, SBX_AGENT_REFUSED, h.stream, &p);
    wait_until(r, &r->results, 1);
    assert_int_equal(r->last.err.code, SBX_E_INVALID);
    assert_string_equal(r->last.err.field, "cwd");
    (void)close(fd);
    buf_fini(&p);
}

static void test_bounds(void **state)
{
    struct rig *r = *state;
    static char block[SBX_AGENT_DATA_MAX];
    struct buf p = BUF_INIT(SBX_AGENT_FRAME_MAX), data = BUF_INIT(sizeof(block));
    struct sbx_agent_header h;
    struct relay_stats stats;
    char id[ID_SIZE];
    int fd = ready_agent(r);

    (void)buf_append(&data, block, sizeof(block));
    for (int i = 0; i < 3; i++) {
        id_new(id);
        assert_int_equal(execute(r, id, 60000), SBX_OK);
    }
    id_new(id);
    assert_int_equal(execute(r, id, 60000), SBX_E_BUSY); /* executions_per_sandbox */
    assert_true(hear(fd, &h, &p));
    for (int i = 0; i < 6; i++)
        say(fd, SBX_AGENT_STDOUT, h.stream, &data);
    buf_clear(&p);
    (void)relay_put_number(&p, SBX_TAG_EXIT_CODE, 0);
    (void)relay_put_number(&p, SBX_TAG_STDOUT_BYTES, 6 * sizeof(block));
    say(fd, SBX_AGENT_EXIT, h.stream, &p);
    wait_until(r, &r->results, 1);
    relay_stats(r->relay, &stats);
    assert_int_equal(stats.output_bytes, BUDGET); /* never more, whatever comes */
    assert_true(r->last.out_truncated);
    assert_int_equal(r->last.out_bytes, 6 * sizeof(block));
    assert_int_equal(execute(r, id, 60000), SBX_E_BUSY); /* the budget is used up */
    relay_result_free(r->relay, &r->last);
    assert_int_equal(execute(r, id, 60000), SBX_OK);
    relay_remove(r->relay, r->id, SBX_E_SANDBOX_NOT_FOUND, "gone");
    wait_until(r, &r->results, 4);
    assert_int_equal(r->last.err.code, SBX_E_SANDBOX_NOT_FOUND);
    assert_int_equal(execute(r, id, 60000), SBX_E_SANDBOX_NOT_FOUND);
    (void)close(fd);
    buf_fini(&p), buf_fini(&data);
}

int main(void)
{
#define WITH(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH(test_first_connection_gets_the_key_and_no_other_does),
        WITH(test_garbage_closes),
        WITH(test_execution_and_its_bytes),
        WITH(test_lost_connection),
        WITH(test_silence_is_loss),
        WITH(test_redial_finishes_what_waited),
        WITH(test_bounds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
