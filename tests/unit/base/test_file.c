#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

static char dir[] = "/tmp/base-file-XXXXXX";

static const char *in_dir(const char *name)
{
    static char path[256];

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

static void test_write_replaces_and_reads_back(void **state)
{
    struct buf b = BUF_INIT(100);
    struct sbx_err err = { 0 };
    struct stat st;

    (void)state;
    assert_int_equal(file_write(in_dir("f"), "one", 3, 0600, true, &err), SBX_OK);
    assert_int_equal(file_write(in_dir("f"), "second", 6, 0640, false, &err), SBX_OK);
    assert_int_equal(file_read(in_dir("f"), &b, &err), SBX_OK);
    assert_string_equal(b.data, "second");
    assert_int_equal(stat(in_dir("f"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    buf_fini(&b);
}

/* So that a full disk does not keep a program from starting with what it has. */
static void test_what_is_there_is_left_alone(void **state)
{
    struct sbx_err err = { 0 };
    struct stat before, after;

    (void)state;
    assert_int_equal(file_write(in_dir("same"), "text", 4, 0644, false, &err), SBX_OK);
    assert_int_equal(stat(in_dir("same"), &before), 0);
    assert_int_equal(file_write(in_dir("same"), "text", 4, 0644, false, &err), SBX_OK);
    assert_int_equal(stat(in_dir("same"), &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_true(file_holds(in_dir("same"), "text", 4, 0644));
    assert_false(file_holds(in_dir("same"), "tex2", 4, 0644));
    assert_false(file_holds(in_dir("same"), "text", 4, 0600));
    assert_false(file_holds(in_dir("same"), "texts", 5, 0644));
    assert_false(file_holds(in_dir("none"), "", 0, 0644));
}

static void test_sweep_takes_what_killed_writers_left(void **state)
{
    static const struct {
        const char *name;
        bool stays;
    } FILES[] = { { "w/f.0123456789abcdef", false }, { "w/f", true },
                  { "w/.0123456789abcdef", true },   { "w/f.0123456789abcdeg", true },
                  { "w/f-0123456789abcdef", true },  { "w/f.img.00000000000000ff", false } };
    struct sbx_err err = { 0 };

    (void)state;
    file_sweep(in_dir("w")); /* it is not there yet */
    assert_int_equal(mkdir(in_dir("w"), 0700), 0);
    for (size_t i = 0; i < sizeof(FILES) / sizeof(FILES[0]); i++)
        assert_int_equal(file_write(in_dir(FILES[i].name), "x", 1, 0600, false, &err), SBX_OK);
    file_sweep(in_dir("w"));
    for (size_t i = 0; i < sizeof(FILES) / sizeof(FILES[0]); i++)
        assert_int_equal(file_exists(in_dir(FILES[i].name)), FILES[i].stays);
}

static void test_read_is_bounded_and_tells_absence(void **state)
{
    struct buf b = BUF_INIT(2);
    struct sbx_err err = { 0 };

    (void)state;
    assert_int_equal(file_read(in_dir("f"), &b, &err), SBX_E_TOO_LARGE);
    err = (struct sbx_err){ 0 };
    assert_int_equal(file_read(in_dir("none"), &b, &err), SBX_E_NOT_FOUND);
    assert_null(strstr(err.msg, dir));
    buf_fini(&b);
}

static void test_remove_tree_does_not_follow_links(void **state)
{
    char target[256];
    struct sbx_err err = { 0 };

    (void)state;
    assert_int_equal(file_make_dirs(in_dir("t/a/b"), 0700, &err), SBX_OK);
    assert_int_equal(file_make_dirs(in_dir("t/a/b"), 0700, &err), SBX_OK);
    assert_int_equal(file_write(in_dir("keep"), "k", 1, 0600, false, &err), SBX_OK);
    (void)snprintf(target, sizeof(target), "%s", dir);
    assert_int_equal(symlink(target, in_dir("t/a/link")), 0);
    assert_int_equal(file_remove_tree(in_dir("t"), &err), SBX_OK);
    assert_false(file_exists(in_dir("t")));
    assert_true(file_exists(in_dir("keep")));
    assert_int_equal(file_remove_tree(in_dir("t"), &err), SBX_OK);
}

static int setup(void **state)
{
    (void)state;
    return mkdtemp(dir) == NULL ? -1 : 0;
}

static int teardown(void **state)
{
    struct sbx_err err = { 0 };

    (void)state;
    return file_remove_tree(dir, &err) == SBX_OK ? 0 : -1;
}

/* How deep a tree is may be a tenant's choice. */
static void test_remove_tree_of_any_depth(void **state)
{
    struct sbx_err err = { 0 };
    int at, next;

    (void)state;
    assert_int_equal(file_make_dirs(in_dir("deep"), 0700, &err), SBX_OK);
    at = open(in_dir("deep"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < 1000; i++) {
        assert_true(at >= 0);
        assert_int_equal(mkdirat(at, "d", 0700), 0);
        next = openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        (void)close(at);
        at = next;
    }
    (void)close(at);
    assert_int_equal(file_remove_tree(in_dir("deep"), &err), SBX_OK);
    assert_false(file_exists(in_dir("deep")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_write_replaces_and_reads_back),
        cmocka_unit_test(test_what_is_there_is_left_alone),
        cmocka_unit_test(test_sweep_takes_what_killed_writers_left),
        cmocka_unit_test(test_read_is_bounded_and_tells_absence),
        cmocka_unit_test(test_remove_tree_does_not_follow_links),
        cmocka_unit_test(test_remove_tree_of_any_depth),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
