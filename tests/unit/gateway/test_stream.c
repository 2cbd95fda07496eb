#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "gateway/gateway_stream.h"

static json_t *put(const char *bytes, size_t len, uint64_t total, bool truncated)
{
    struct buf data = BUF_INIT(1024);
    json_t *j = json_object();

    assert_true(buf_append(&data, bytes, len));
    gateway_stream_put(j, "stdout", &data, total, truncated);
    buf_fini(&data);
    return j;
}

static void test_text_is_itself(void **state)
{
    SCOPED_JSON json_t *j = put("a\0b\xe2\x98\x95", 6, 6, false);
    const json_t *text = json_object_get(j, "stdout");

    (void)state;
    assert_int_equal(json_string_length(text), 6);
    assert_memory_equal(json_string_value(text), "a\0b\xe2\x98\x95", 6);
    assert_null(json_object_get(j, "stdoutEncoding"));
    assert_null(json_object_get(j, "stdoutTruncated"));
    assert_int_equal(json_get_int(j, "stdoutBytes", -1), 6);
}

static void test_bytes_become_base64(void **state)
{
    SCOPED_JSON json_t *j = put("\377\376\0ok\033", 6, 6, false);

    (void)state;
    assert_string_equal(json_get_str(j, "stdout", ""), "//4Ab2sb");
    assert_string_equal(json_get_str(j, "stdoutEncoding", ""), "base64");
}

static void test_cut_text_ends_at_a_character(void **state)
{
    SCOPED_JSON json_t *j = put("\xe2\x98\x95\xe2\x98", 5, 600, true);

    (void)state;
    assert_string_equal(json_get_str(j, "stdout", ""), "\xe2\x98\x95");
    assert_true(json_get_bool(j, "stdoutTruncated", false));
    assert_int_equal(json_get_int(j, "stdoutBytes", -1), 600);
}

/* What is not cut and ends inside a character is no text: nothing is lost. */
static void test_incomplete_text_is_bytes(void **state)
{
    SCOPED_JSON json_t *j = put("ok\xe2\x98", 4, 4, false);

    (void)state;
    assert_string_equal(json_get_str(j, "stdout", ""), "b2vimA==");
    assert_string_equal(json_get_str(j, "stdoutEncoding", ""), "base64");
}

static void test_empty(void **state)
{
    json_t *j = json_object();
    struct buf none = BUF_INIT(10);

    (void)state;
    gateway_stream_put(j, "stderr", &none, 0, false);
    assert_string_equal(json_get_str(j, "stderr", "x"), "");
    assert_int_equal(json_get_int(j, "stderrBytes", -1), 0);
    json_decref(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_is_itself),
        cmocka_unit_test(test_bytes_become_base64),
        cmocka_unit_test(test_cut_text_ends_at_a_character),
        cmocka_unit_test(test_incomplete_text_is_bytes),
        cmocka_unit_test(test_empty),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
