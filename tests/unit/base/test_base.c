#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/config.h"
#include "base/hash.h"
#include "base/id.h"
#include "base/json.h"
#include "base/json_out.h"
#include "base/process.h"
#include "base/queue.h"
#include "base/seal.h"
#include "base/str.h"
#include "base/time.h"

static void a_buffer_never_passes_its_ceiling(void **state)
{
    SCOPED_BUF struct buf b = BUF_INIT(8);

    (void)state;
    assert_true(buf_puts(&b, "12345678"));
    assert_false(buf_puts(&b, "9"));
    assert_true(b.full);
    assert_string_equal(b.data, "12345678");
    buf_clear(&b);
    assert_true(buf_printf(&b, "%d", 42));
    buf_consume(&b, 1);
    assert_string_equal(b.data, "2");
}

static void ids_are_valid_unique_and_ordered(void **state)
{
    char last[ID_SIZE] = "";

    (void)state;
    for (int i = 0; i < 10000; i++) {
        char id[ID_SIZE];

        id_new(id);
        assert_true(id_valid(id));
        assert_true(strcmp(last, id) < 0);
        memcpy(last, id, sizeof(last));
    }
    assert_false(id_valid(""));
    assert_false(id_valid("01ARZ3NDEKTSV4RRFFQ69G5FAV"));
    assert_false(id_valid("8zzzzzzzzzzzzzzzzzzzzzzzzz"));
    assert_false(id_valid("01arz3ndektsv4rrffq69g5fai"));
}

static void utf8_is_strict_and_cuts_on_a_border(void **state)
{
    (void)state;
    assert_true(utf8_valid("\xe2\x98\x95", 3));
    assert_false(utf8_valid("\xc0\x80", 2));
    assert_false(utf8_valid("\xed\xa0\x80", 3));
    assert_false(utf8_valid("\xf4\x90\x80\x80", 4));
    assert_int_equal(utf8_cut("a\xe2\x98\x95", 3), 1);
    assert_int_equal(utf8_cut("a\xe2\x98\x95", 4), 4);
    assert_int_equal(utf8_cut("abc", 3), 3);
}

static void base64_round_trips_and_refuses_rubbish(void **state)
{
    unsigned char data[70];

    (void)state;
    for (size_t len = 0; len <= sizeof(data); len++) {
        SCOPED_BUF struct buf text = BUF_INIT(256);
        SCOPED_BUF struct buf back = BUF_INIT(256);

        random_bytes(data, sizeof(data));
        assert_true(base64_encode(&text, data, len));
        assert_true(base64_decode(&back, text.data, text.len));
        assert_int_equal(back.len, len);
        assert_memory_equal(back.data, data, len);
        buf_clear(&text);
        buf_clear(&back);
        assert_true(base64_url_encode(&text, data, len));
        assert_true(base64_url_decode(&back, text.data, text.len));
        assert_int_equal(back.len, len);
        assert_memory_equal(back.data, data, len);
    }
    SCOPED_BUF struct buf b = BUF_INIT(64);
    assert_false(base64_url_decode(&b, "A", 1));
    assert_false(base64_url_decode(&b, "AB", 2)); /* bits left over */
    assert_false(base64_url_decode(&b, "A*==", 4));
    assert_false(base64_decode(&b, "AA=", 3));
}

static void crc32_is_the_known_one(void **state)
{
    (void)state;
    assert_int_equal(crc32_of("123456789", 9), 0xcbf43926U);
}

static void a_sealed_value_opens_only_where_it_was_closed(void **state)
{
    struct sbx_err err = { 0 };
    struct seal_keys *keys = NULL;
    struct secret *plain = NULL;
    SCOPED_BUF struct buf sealed = BUF_INIT(256);

    (void)state;
    assert_int_equal(
        seal_keys_parse("k2 0000000000000000000000000000000000000000000000000000000000000002\n"
                        "k1 0000000000000000000000000000000000000000000000000000000000000001\n",
                        &keys, &err),
        SBX_OK);
    assert_int_equal(seal_close(keys, "t.c.1", "hush", 4, &sealed, &err), SBX_OK);
    assert_int_equal(seal_open(keys, "t.c.1", sealed.data, sealed.len, &plain, &err), SBX_OK);
    assert_string_equal(secret_reveal(plain), "hush");
    assert_string_equal(secret_print(plain), "***");
    assert_false(seal_is_old(keys, sealed.data, sealed.len));
    secret_free(plain);
    assert_int_equal(seal_open(keys, "t.c.2", sealed.data, sealed.len, &plain, &err),
                     SBX_E_INTERNAL);
    err = (struct sbx_err){ 0 };
    sealed.data[sealed.len - 20] ^= 1;
    assert_int_equal(seal_open(keys, "t.c.1", sealed.data, sealed.len, &plain, &err),
                     SBX_E_INTERNAL);
    err = (struct sbx_err){ 0 };
    for (size_t n = 0; n < sealed.len; n++) {
        assert_int_equal(seal_open(keys, "t.c.1", sealed.data, n, &plain, &err), SBX_E_INTERNAL);
        err = (struct sbx_err){ 0 };
    }
    assert_int_equal(seal_open(NULL, "t.c.1", sealed.data, sealed.len, &plain, &err),
                     SBX_E_INTERNAL);
    err = (struct sbx_err){ 0 };
    assert_int_equal(seal_close(NULL, "t.c.1", "hush", 4, &sealed, &err), SBX_E_UNAVAILABLE);
    err = (struct sbx_err){ 0 };
    seal_keys_free(keys);
    assert_int_equal(seal_keys_parse("k1 12", &keys, &err), SBX_E_INVALID);
}

/* The writer gives what jansson gives of the same members, whatever is in them. */
static void json_is_written_as_jansson_does(void **state)
{
    SCOPED_BUF struct buf mine = BUF_INIT(8192), theirs = BUF_INIT(8192);
    struct json_out o = { .to = &mine };
    SCOPED_JSON json_t *j = json_object();
    char odd[128];
    size_t n = 0;

    (void)state;
    for (int c = 1; c < 128; c++)
        odd[n++] = (char)c;
    odd[n] = '\0';
    json_out_open(&o, NULL, '{');
    json_out_str(&o, "odd", odd);
    json_out_str(&o, "absent", NULL);
    json_out_str(&o, "empty", "");
    json_out_str(&o, "wide", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    json_out_int(&o, "least", INT64_MIN);
    json_out_int(&o, "none", 0);
    json_out_int(&o, "most", INT64_MAX);
    json_out_bool(&o, "yes", true);
    json_out_time(&o, "at", 1786108800123);
    json_out_time(&o, "never", 0);
    json_out_text(&o, "stored", "{\"a b\": [1, 2, \"x \\\" y\", \"\\\\\"], \"c\": {}}");
    json_out_text(&o, "nothing", NULL);
    json_out_open(&o, "list", '[');
    json_out_int(&o, NULL, -1);
    json_out_open(&o, NULL, '{');
    json_out_close(&o, '}');
    json_out_str(&o, NULL, "end");
    json_out_close(&o, ']');
    json_out_bool(&o, "no", false);
    json_out_close(&o, '}');
    json_put_str(j, "odd", odd);
    json_put_str(j, "empty", "");
    json_put_str(j, "wide", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    json_put_int(j, "least", INT64_MIN);
    json_put_int(j, "none", 0);
    json_put_int(j, "most", INT64_MAX);
    json_put_bool(j, "yes", true);
    json_put_time(j, "at", 1786108800123);
    json_put_new(j, "stored", json_from_text("{\"a b\":[1,2,\"x \\\" y\",\"\\\\\"],\"c\":{}}"));
    json_put_new(j, "list", json_from_text("[-1,{},\"end\"]"));
    json_put_bool(j, "no", false);
    assert_true(json_write(&theirs, j));
    assert_false(mine.full);
    assert_string_equal(mine.data, theirs.data);

    SCOPED_BUF struct buf small = BUF_INIT(10);
    o = (struct json_out){ .to = &small };
    json_out_open(&o, NULL, '{');
    json_out_str(&o, "key", "more than fits");
    assert_true(small.full);
}

static void json_is_strict(void **state)
{
    static const char *const BAD[] = {
        "",
        "[]",
        "{\"a\":",
        "{\"a\":1,\"a\":2}",
        "{} {}",
        "{\"a\":\"\\ud800\"}",
        "{\"a\":\"\\u0000\"}",
        "{\"a\":\"\xff\"}",
        "{\"a\":NaN}",
    };
    char deep[20000];

    (void)state;
    for (size_t i = 0; i < COUNT_OF(BAD); i++) {
        struct sbx_err err = { 0 };
        json_t *j = NULL;

        assert_int_equal(json_parse_object(BAD[i], strlen(BAD[i]), &j, &err), SBX_E_INVALID);
        assert_null(j);
    }
    memset(deep, '[', sizeof(deep));
    memcpy(deep, "{\"a\":", 5);
    struct sbx_err err = { 0 };
    json_t *j = NULL;
    assert_int_equal(json_parse_object(deep, sizeof(deep), &j, &err), SBX_E_INVALID);
    err = (struct sbx_err){ 0 };
    assert_int_equal(json_parse_object("{\"a\":\"[[[[\\\"\"}", 14, &j, &err), SBX_OK);
    json_decref(j);
}

static void times_round_trip(void **state)
{
    char text[TIME_ISO_SIZE];
    int64_t ms;

    (void)state;
    /* each day of a century and more, before and after 1970 */
    for (int64_t day = -30000; day < 60000; day++) {
        time_t s = day * 86400 + 86399;
        struct tm tm;
        char theirs[TIME_ISO_SIZE];

        time_iso((int64_t)s * 1000 + 7, text);
        assert_non_null(gmtime_r(&s, &tm));
        assert_true(strftime(theirs, sizeof(theirs), "%Y-%m-%dT%H:%M:%S.007Z", &tm) > 0);
        assert_string_equal(text, theirs);
    }
    time_iso(1786108800123, text);
    assert_string_equal(text, "2026-08-07T13:20:00.123Z");
    assert_true(time_iso_parse(text, &ms));
    assert_int_equal(ms, 1786108800123);
    assert_false(time_iso_parse("2026-08-07", &ms));
}

static void a_child_is_run_fed_and_killed_at_its_deadline(void **state)
{
    struct sbx_err err = { 0 };
    SCOPED_BUF struct buf out = BUF_INIT(1024);
    int64_t start = time_mono_ms();

    (void)state;
    assert_int_equal(process_run((const char *[]){ "cat", NULL }, "hello", 5, &out, 5000, &err),
                     SBX_OK);
    assert_string_equal(out.data, "hello");
    assert_int_equal(process_run((const char *[]){ "sleep", "30", NULL }, NULL, 0, NULL, 100, &err),
                     SBX_E_TIMEOUT);
    assert_true(time_mono_ms() - start < 10000);
    err = (struct sbx_err){ 0 };
    assert_int_equal(process_run((const char *[]){ "sh", "-c", "echo broken >&2; exit 3", NULL },
                                 NULL, 0, NULL, 5000, &err),
                     SBX_E_INTERNAL);
    assert_string_equal(err.msg, "sh: broken");
    err = (struct sbx_err){ 0 };
    assert_int_equal(
        process_run((const char *[]){ "/nonexistent/x", NULL }, NULL, 0, NULL, 100, &err),
        SBX_E_INTERNAL);
}

static void a_queue_is_bounded_and_drains_when_closed(void **state)
{
    struct queue *q = queue_new(2);
    int a, b, c;

    (void)state;
    assert_true(queue_put(q, &a));
    assert_true(queue_put(q, &b));
    assert_false(queue_put(q, &c));
    assert_true(queue_put_admitted(q, &c));
    queue_close(q);
    assert_false(queue_put_admitted(q, &c));
    assert_ptr_equal(queue_take(q), &a);
    assert_ptr_equal(queue_take(q), &b);
    assert_ptr_equal(queue_take(q), &c);
    assert_null(queue_take(q));
    queue_free(q);
}

static const struct config_option OPTIONS[] = {
    { "http", "port", CONFIG_INT, "8080", 0, 65535, false, "TCP port." },
    { "http", "tls", CONFIG_BOOL, "false", 0, 0, false, "Use TLS." },
    { "net", "deny", CONFIG_LIST, "", 0, 0, true, "More ranges." },
};

static void configuration_comes_from_file_environment_and_flags_in_that_order(void **state)
{
    struct sbx_err err = { 0 };
    SCOPED_ARENA struct arena *a = arena_new();
    struct config *c = NULL;
    char path[] = "/tmp/sbx-config-XXXXXX";
    int fd = mkstemp(path);
    const char **list;
    size_t n;
    const char *text = "# x\n[http]\nport = 81\ntls = on\n[net]\ndeny = a, b ,\n";
    char *argv[] = { (char[]){ "p" }, (char[]){ "--http-port=83" }, NULL };

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(setenv("SBXT_HTTP_PORT", "82", 1), 0);
    assert_int_equal(
        config_load(OPTIONS, COUNT_OF(OPTIONS), "SBXT", path, 2, argv, a, NULL, &c, &err), SBX_OK);
    assert_int_equal(config_int(c, "http", "port"), 83);
    assert_true(config_bool(c, "http", "tls"));
    list = config_list(c, "net", "deny", a, &n);
    assert_int_equal(n, 2);
    assert_string_equal(list[1], "b");
    config_free(c);
    assert_int_equal(unsetenv("SBXT_HTTP_PORT"), 0);
    assert_int_equal(write(fd, "bogus = 1\n", 10), 10);
    assert_int_equal(
        config_load(OPTIONS, COUNT_OF(OPTIONS), "SBXT", path, 1, argv, a, NULL, &c, &err),
        SBX_E_INVALID);
    assert_non_null(strstr(err.msg, ":7: unknown key 'bogus' in section [net]"));
    (void)close(fd);
    (void)unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_buffer_never_passes_its_ceiling),
        cmocka_unit_test(ids_are_valid_unique_and_ordered),
        cmocka_unit_test(utf8_is_strict_and_cuts_on_a_border),
        cmocka_unit_test(base64_round_trips_and_refuses_rubbish),
        cmocka_unit_test(crc32_is_the_known_one),
        cmocka_unit_test(a_sealed_value_opens_only_where_it_was_closed),
        cmocka_unit_test(json_is_written_as_jansson_does),
        cmocka_unit_test(json_is_strict),
        cmocka_unit_test(times_round_trip),
        cmocka_unit_test(a_child_is_run_fed_and_killed_at_its_deadline),
        cmocka_unit_test(a_queue_is_bounded_and_drains_when_closed),
        cmocka_unit_test(configuration_comes_from_file_environment_and_flags_in_that_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
