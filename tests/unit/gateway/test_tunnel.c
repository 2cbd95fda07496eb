#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gateway/tunnel.h"
#include "sbx/agent.h"

/* Socket pairs play the sandbox and the proxy. */

enum { WAIT_MS = 5000, PART = 200 * 1000, TRANSFER = 24 * 1000 * 1000, SLOW_MAX = 16 << 20 };

static const char one[] = "00000000000000000000000001", other[] = "00000000000000000000000002";

struct pair {
    int inside, outside; /* the far ends */
};

static struct tunnels *start(void)
{
    struct sbx_err err = { 0 };
    struct tunnels *t;

    assert_int_equal(tunnels_start(&t, &err), SBX_OK);
    return t;
}

static struct pair dig(struct tunnels *t, const char *id, const char *first, bool want)
{
    int a[2], b[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, a), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, b), 0);
    assert_int_equal(tunnels_add(t, id, a[1], b[1], first, strlen(first)), want);
    return (struct pair){ a[0], b[0] };
}

static void leave(struct pair p)
{
    (void)close(p.inside);
    (void)close(p.outside);
}

static void await_count(struct tunnels *t, size_t count)
{
    for (int i = 0; tunnels_count(t) != count && i < WAIT_MS; i++)
        (void)poll(NULL, 0, 1);
    assert_int_equal(tunnels_count(t), count);
}

static unsigned char byte_at(size_t at, unsigned seed)
{
    return (unsigned char)((at * 2654435761u + seed) >> 13);
}

struct sender {
    int fd;
    unsigned seed;
};

/* Parts of every size, so that some are bulk and some are not. */
static void *send_all(void *arg)
{
    const struct sender *s = arg;
    unsigned char *part = malloc(PART);
    unsigned random = s->seed;
    size_t at = 0;

    while (at < TRANSFER) {
        size_t len, sent = 0;

        random = random * 1103515245u + 12345;
        len = (random >> 8) % ((random & 64) != 0 ? PART : 500) + 1;
        if (len > TRANSFER - at)
            len = TRANSFER - at;
        for (size_t i = 0; i < len; i++)
            part[i] = byte_at(at + i, s->seed);
        while (sent < len) {
            ssize_t n = write(s->fd, part + sent, len - sent);

            assert_true(n > 0);
            sent += (size_t)n;
        }
        at += len;
    }
    (void)shutdown(s->fd, SHUT_WR);
    free(part);
    return NULL;
}

static void receive_all(int fd, unsigned seed)
{
    unsigned char *part = malloc(PART);
    size_t at = 0, wrong = 0;
    ssize_t n;

    while ((n = read(fd, part, PART)) > 0)
        for (ssize_t i = 0; i < n; i++)
            wrong += part[i] != byte_at(at++, seed) ? 1 : 0;
    assert_int_equal(n, 0);
    assert_int_equal(at, TRANSFER);
    assert_int_equal(wrong, 0);
    free(part);
}

static void test_every_byte_both_ways_and_each_way_ends_by_itself(void **state)
{
    struct tunnels *t = start();
    struct pair p = dig(t, one, "", true);
    struct sender up = { p.inside, 1 }, down = { p.outside, 2 };
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, send_all, &up), 0);
    receive_all(p.outside, 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(tunnels_count(t), 1); /* the other way is still open */
    assert_int_equal(pthread_create(&thread, NULL, send_all, &down), 0);
    receive_all(p.inside, 2);
    assert_int_equal(pthread_join(thread, NULL), 0);
    await_count(t, 0);
    leave(p);
    tunnels_free(t);
}

static void test_what_was_read_before_comes_first(void **state)
{
    struct tunnels *t = start();
    struct pair p = dig(t, one, "CONNECT ", true);
    char got[16] = "";

    (void)state;
    assert_int_equal(write(p.inside, "x:443", 5), 5);
    for (size_t at = 0; at < 13;) {
        ssize_t n = read(p.outside, got + at, sizeof(got) - at);

        assert_true(n > 0);
        at += (size_t)n;
    }
    assert_string_equal(got, "CONNECT x:443");
    leave(p);
    await_count(t, 0);
    tunnels_free(t);
}

/* Nothing is read for who does not read, and the others go on. */
static void test_a_slow_reader_is_bounded_and_holds_up_nobody(void **state)
{
    static const char part[65536];
    struct tunnels *t = start();
    struct pair slow = dig(t, one, "", true), quick = dig(t, one, "", true);
    struct sender s = { quick.outside, 3 };
    pthread_t thread;
    size_t sent = 0;
    int idle = 0;

    (void)state;
    assert_int_equal(fcntl(slow.outside, F_SETFL, O_NONBLOCK), 0);
    while (idle < 100) {
        ssize_t n = write(slow.outside, part, sizeof(part));

        idle = n > 0 ? 0 : idle + 1;
        sent += n > 0 ? (size_t)n : 0;
        assert_true(sent < SLOW_MAX);
        if (n <= 0)
            (void)poll(NULL, 0, 1);
    }
    assert_int_equal(pthread_create(&thread, NULL, send_all, &s), 0);
    receive_all(quick.inside, 3);
    assert_int_equal(pthread_join(thread, NULL), 0);
    leave(quick);
    await_count(t, 1);
    leave(slow);
    await_count(t, 0);
    tunnels_free(t);
}

static void test_an_end_is_of_one_sandbox(void **state)
{
    struct tunnels *t = start();
    struct pair a = dig(t, one, "", true), b = dig(t, other, "", true);
    char c;

    (void)state;
    tunnels_end(t, one);
    assert_true(read(a.inside, &c, 1) <= 0);
    assert_true(read(a.outside, &c, 1) <= 0);
    await_count(t, 1);
    assert_int_equal(write(b.inside, "x", 1), 1);
    assert_int_equal(read(b.outside, &c, 1), 1);
    leave(a);
    tunnels_free(t); /* with one that is open */
    assert_int_equal(read(b.outside, &c, 1), 0);
    leave(b);
}

static void test_a_sandbox_has_its_share(void **state)
{
    struct tunnels *t = start();
    struct pair all[SBX_AGENT_RELAYS_MAX], over;
    char c;

    (void)state;
    for (size_t i = 0; i < SBX_AGENT_RELAYS_MAX; i++) {
        assert_true(tunnels_room(t, one));
        all[i] = dig(t, one, "", true);
    }
    assert_false(tunnels_room(t, one));
    assert_true(tunnels_room(t, other));
    over = dig(t, one, "GET", false);
    assert_int_equal(read(over.inside, &c, 1), 0); /* closed, not left hanging */
    leave(over);
    for (size_t i = 0; i < SBX_AGENT_RELAYS_MAX; i++)
        leave(all[i]);
    await_count(t, 0);
    assert_true(tunnels_room(t, one));
    tunnels_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_byte_both_ways_and_each_way_ends_by_itself),
        cmocka_unit_test(test_what_was_read_before_comes_first),
        cmocka_unit_test(test_a_slow_reader_is_bounded_and_holds_up_nobody),
        cmocka_unit_test(test_an_end_is_of_one_sandbox),
        cmocka_unit_test(test_a_sandbox_has_its_share),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
