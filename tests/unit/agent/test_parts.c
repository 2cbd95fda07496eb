/* Several messages by one call. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/parts.h"

enum { PART = 1000, PARTS = 4 };

static unsigned char data[PARTS * PART];

static void open_pair(int type, int pair[2])
{
    assert_int_equal(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, pair), 0);
}

static void close_pair(const int pair[2])
{
    (void)close(pair[0]);
    (void)close(pair[1]);
}

static void a_stream_is_read_in_order_to_its_end(void **state)
{
    unsigned char sent[10 * PART];
    int pair[2];

    (void)state;
    open_pair(SOCK_STREAM, pair);
    for (size_t i = 0; i < sizeof(sent); i++)
        sent[i] = (unsigned char)(i * 7 + i / 251);
    assert_int_equal(write(pair[0], sent, sizeof(sent)), sizeof(sent));
    (void)shutdown(pair[0], SHUT_WR);
    for (size_t at = 0; at < sizeof(sent);) {
        ssize_t n = agent_recv_parts(pair[1], data, PART, PARTS);

        assert_int_equal(n, sizeof(sent) - at < sizeof(data) ? sizeof(sent) - at : sizeof(data));
        assert_memory_equal(data, sent + at, (size_t)n);
        at += (size_t)n;
    }
    assert_int_equal(agent_recv_parts(pair[1], data, PART, PARTS), 0);
    close_pair(pair);
}

/* As when more arrives between two messages of one call. */
static void parts_that_are_not_full_leave_no_gap(void **state)
{
    static const struct {
        char byte;
        size_t len;
    } sent[] = { { 'a', PART }, { 'b', 3 }, { 'c', PART - 1 }, { 'd', 500 }, { 'e', 1 } };
    char part[PART];
    size_t at = 0;
    int pair[2];

    (void)state;
    open_pair(SOCK_SEQPACKET, pair);
    for (size_t i = 0; i < 5; i++) {
        memset(part, sent[i].byte, sent[i].len);
        assert_int_equal(send(pair[0], part, sent[i].len, 0), sent[i].len);
    }
    assert_int_equal(agent_recv_parts(pair[1], data, PART, PARTS), PART + 3 + PART - 1 + 500);
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < sent[i].len; k++)
            assert_int_equal(data[at++], sent[i].byte);
    assert_int_equal(agent_recv_parts(pair[1], data, PART, PARTS), 1);
    assert_int_equal(data[0], 'e');
    close_pair(pair);
}

static void it_waits_for_nothing(void **state)
{
    int pair[2];

    (void)state;
    open_pair(SOCK_STREAM, pair);
    errno = 0;
    assert_int_equal(agent_recv_parts(pair[1], data, PART, PARTS), -1);
    assert_int_equal(errno, EAGAIN);
    close_pair(pair);
    assert_int_equal(agent_recv_parts(pair[1], data, PART, PARTS), -1);
    assert_int_equal(errno, EBADF);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_is_read_in_order_to_its_end),
        cmocka_unit_test(parts_that_are_not_full_leave_no_gap),
        cmocka_unit_test(it_waits_for_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
