/* Payloads, frames and the queue that bounds what waits. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "agent/frame.h"

static struct agent_queue queue(void)
{
    return (struct agent_queue){ .max = 1 << 20 };
}

/* The payload of the one frame in q. */
static const unsigned char *payload(const struct agent_queue *q, size_t *len)
{
    struct sbx_agent_header h;

    assert_true(sbx_agent_header_parse(q->data + q->at, &h));
    assert_int_equal(agent_queue_size(q), SBX_AGENT_HEADER_LEN + h.length);
    *len = h.length;
    return q->data + q->at + SBX_AGENT_HEADER_LEN;
}

static void what_is_written_is_read(void **state)
{
    struct agent_queue q = queue();
    struct agent_request r;
    const unsigned char *p;
    size_t len;

    (void)state;
    agent_frame_begin(&q, SBX_AGENT_EXEC, 7);
    agent_frame_text(&q, SBX_TAG_ARG, "sh");
    agent_frame_text(&q, SBX_TAG_ARG, "");
    agent_frame_bytes(&q, SBX_TAG_STDIN, "a\0b", 3);
    agent_frame_number(&q, SBX_TAG_TIMEOUT_MS, UINT64_MAX - 1);
    agent_frame_number(&q, SBX_TAG_GROUPS, 5);
    assert_true(agent_frame_end(&q));
    p = payload(&q, &len);
    assert_true(agent_request_parse(p, len, &r));
    assert_int_equal(r.args.count, 2);
    assert_int_equal(r.args.items[0].len, 2);
    assert_memory_equal(r.args.items[0].data, "sh", 2);
    assert_int_equal(r.args.items[1].len, 0);
    assert_memory_equal(r.text[SBX_TAG_STDIN].data, "a\0b", 3);
    assert_true(r.number[SBX_TAG_TIMEOUT_MS] == UINT64_MAX - 1);
    assert_int_equal(r.groups.count, 1);
    assert_false(agent_request_has(&r, SBX_TAG_CWD));
    agent_request_fini(&r);
    agent_queue_fini(&q);
}

static bool parses(const void *bytes, size_t len)
{
    unsigned char *copy = malloc(len ? len : 1); /* its end is the sanitizer's to watch */
    struct agent_request r;
    bool ok;

    assert_non_null(copy);
    memcpy(copy, bytes, len);
    ok = agent_request_parse(copy, len, &r);
    agent_request_fini(&r);
    free(copy);
    return ok;
}

static void bad_payloads_are_refused(void **state)
{
    (void)state;
    assert_true(parses("", 0));
    assert_false(parses("\x0a", 1));
    assert_false(parses("\x0a\0\1\0\0", 5));
    assert_false(parses("\x0a\0\1\0\0\0", 6));                 /* a byte is promised */
    assert_false(parses("\x0a\0\xff\xff\xff\xff", 6));         /* many are */
    assert_true(parses("\x0a\0\1\0\0\0x", 7));                 /* ARG x */
    assert_false(parses("\x0a\0\1\0\0\0\0", 7));               /* a NUL in it */
    assert_false(parses("\x0c\0\2\0\0\0a\0", 8));              /* in a directory */
    assert_true(parses("\x11\0\1\0\0\0\0", 7));                /* STDIN may */
    assert_false(parses("\x0d\0\1\0\0\0x", 7));                /* a number of one byte */
    assert_false(parses("\x2d\0\1\0\0\0x", 7));                /* a group of one byte */
    assert_true(parses("\xff\xff\1\0\0\0x", 7));               /* an unknown tag */
    assert_true(parses("\x3f\0\1\0\0\0x", 7));                 /* and one in range */
    assert_false(parses("\x0a\0\1\0\0\0x\x0a\0\1\0\0\0", 13)); /* a second one cut */
}

static void a_header_is_checked_before_its_length_is_believed(void **state)
{
    unsigned char h[SBX_AGENT_HEADER_LEN];
    struct sbx_agent_header out;

    (void)state;
    sbx_agent_header_pack(h, SBX_AGENT_EXEC, 3, SBX_AGENT_FRAME_MAX);
    assert_true(sbx_agent_header_parse(h, &out));
    sbx_agent_header_pack(h, SBX_AGENT_EXEC, 3, SBX_AGENT_FRAME_MAX + 1);
    assert_false(sbx_agent_header_parse(h, &out));
    sbx_agent_header_pack(h, SBX_AGENT_EXEC, 3, 0);
    h[0] = 2;
    assert_false(sbx_agent_header_parse(h, &out));
    h[0] = SBX_AGENT_VERSION;
    h[3] = 1;
    assert_false(sbx_agent_header_parse(h, &out));
}

static void the_queue_never_passes_its_limit(void **state)
{
    struct agent_queue q = { .max = 10000 };
    static const unsigned char chunk[1000];
    int taken = 0;

    (void)state;
    while (agent_frame_data(&q, SBX_AGENT_STDOUT, 1, chunk, sizeof(chunk)))
        taken++;
    assert_int_equal(taken, 9);
    agent_frame_begin(&q, SBX_AGENT_EXIT, 1);
    agent_frame_bytes(&q, SBX_TAG_MESSAGE, chunk, sizeof(chunk));
    assert_false(agent_frame_end(&q));
    assert_int_equal(agent_queue_size(&q), 9 * (1000 + SBX_AGENT_HEADER_LEN));
    agent_queue_consume(&q, 1012);
    assert_true(agent_frame_data(&q, SBX_AGENT_STDOUT, 1, chunk, sizeof(chunk)));
    assert_int_equal(agent_queue_size(&q), 9 * (1000 + SBX_AGENT_HEADER_LEN));
    assert_true(q.cap <= 2 * q.max);
    agent_queue_fini(&q);
}

static void a_frame_that_is_being_built_survives_growing(void **state)
{
    struct agent_queue q = queue();
    struct agent_request r;
    const unsigned char *p;
    char text[3000];
    size_t len;

    (void)state;
    memset(text, 'x', sizeof(text));
    assert_true(agent_frame_data(&q, SBX_AGENT_STDOUT, 1, text, sizeof(text)));
    agent_queue_consume(&q, 2000); /* the rest is moved to the front when it grows */
    agent_frame_begin(&q, SBX_AGENT_EXEC, 2);
    for (int i = 0; i < 5; i++)
        agent_frame_bytes(&q, SBX_TAG_ARG, text, sizeof(text));
    assert_true(agent_frame_end(&q));
    agent_queue_consume(&q, 1012);
    p = payload(&q, &len);
    assert_true(agent_request_parse(p, len, &r));
    assert_int_equal(r.args.count, 5);
    assert_memory_equal(r.args.items[4].data, text, sizeof(text));
    agent_request_fini(&r);
    agent_queue_fini(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(bad_payloads_are_refused),
        cmocka_unit_test(a_header_is_checked_before_its_length_is_believed),
        cmocka_unit_test(the_queue_never_passes_its_limit),
        cmocka_unit_test(a_frame_that_is_being_built_survives_growing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
