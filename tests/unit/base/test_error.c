#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/scoped.h"
#include "sbx/error.h"

static enum sbx_code open_it(const char *path, struct sbx_err *err)
{
    SCOPED_FD int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return err_sys(err, SBX_E_NOT_FOUND, "open %s", path);
    return SBX_OK;
}

static void raise_wraps_and_keeps_the_code(void **state)
{
    struct sbx_err err = { 0 };

    (void)state;
    assert_int_equal(open_it("/nonexistent", &err), SBX_E_NOT_FOUND);
    assert_int_equal(err_wrap(&err, "load config"), SBX_E_NOT_FOUND);
    assert_string_equal(err.msg, "load config: open /nonexistent: No such file or directory");
    assert_int_equal(err.sys, ENOENT);
    assert_int_equal(sbx_code_http(err.code), 404);
    assert_true(sbx_code_public(err.code));
}

static void success_leaves_the_error_alone(void **state)
{
    struct sbx_err err = { 0 };

    (void)state;
    assert_int_equal(open_it("/dev/null", &err), SBX_OK);
    assert_int_equal(err.code, SBX_OK);
    assert_int_equal(err.msg[0], 0);
}

static void long_messages_stay_inside(void **state)
{
    struct sbx_err err = { 0 };
    char big[1000];

    (void)state;
    memset(big, 'x', sizeof(big) - 1);
    big[sizeof(big) - 1] = 0;
    assert_int_equal(err_set(&err, SBX_E_INTERNAL, "%s", big), SBX_E_INTERNAL);
    for (int i = 0; i < 10; i++)
        assert_int_equal(err_wrap(&err, "%s", big), SBX_E_INTERNAL);
    assert_true(strlen(err.msg) < sizeof(err.msg));
}

static void wire_names_are_unique_and_parse_back(void **state)
{
    (void)state;
    for (int i = 0; i < SBX_CODE_COUNT; i++) {
        enum sbx_code got;

        assert_true(sbx_code_parse(sbx_code_name((enum sbx_code)i), &got));
        assert_int_equal(got, i);
        assert_in_range(sbx_code_http((enum sbx_code)i), 200, 599);
    }
}

static void a_field_error_names_its_field(void **state)
{
    struct sbx_err err = { 0 };

    (void)state;
    assert_int_equal(err_field(&err, "zClouds", "zClouds must be %d to %d.", 1, 16), SBX_E_INVALID);
    assert_string_equal(err.field, "zClouds");
    assert_string_equal(err.msg, "zClouds must be 1 to 16.");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(raise_wraps_and_keeps_the_code),
        cmocka_unit_test(success_leaves_the_error_alone),
        cmocka_unit_test(long_messages_stay_inside),
        cmocka_unit_test(wire_names_are_unique_and_parse_back),
        cmocka_unit_test(a_field_error_names_its_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
