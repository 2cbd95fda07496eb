#include "mount/files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define NAME ".fuse_hidden0000000300000001"

static void handles_know_their_key(void **state)
{
    struct files *fs = files_new();
    struct files_handle *one = files_open(fs, "/d/f", 7), *two = files_open(fs, "/d/f", 8);
    struct files_handle *other = files_open(fs, "/dd/f", 9);
    char key[NAMES_KEY_MAX + 1];

    (void)state;
    assert_ptr_equal(one->file, two->file);
    assert_int_equal(one->fh, 7);
    assert_int_equal(two->fh, 8);
    files_move(fs, "/d/f", "/d/g");
    files_key(fs, one, key);
    assert_string_equal(key, "/d/g");
    files_move(fs, "/d", "/e/e"); /* with what is in it, and not its neighbours */
    files_key(fs, two, key);
    assert_string_equal(key, "/e/e/g");
    files_key(fs, other, key);
    assert_string_equal(key, "/dd/f");
    assert_false(files_close(fs, one, false, key));
    assert_false(files_close(fs, two, false, key));
    assert_false(files_close(fs, other, true, key)); /* it was not deleted */
    assert_false(files_place(fs, "/e/e/g", key));    /* nobody has it open */
    files_free(fs);
}

static struct files_handle *deleted(struct files *fs, char place[NAMES_KEY_MAX + 1])
{
    struct files_handle *h = files_open(fs, "/d/f", 7);
    struct files_handle *second;
    char key[NAMES_KEY_MAX + 1];

    assert_false(files_find(fs, NAME, key));
    assert_true(files_place(fs, "/d/f", place));
    files_hide(fs, "/d/f", place, NAME);
    assert_true(files_find(fs, NAME, key));
    assert_string_equal(key, place);
    second = files_open(fs, "/d/f", 8); /* a new one of that name is another file */
    assert_ptr_not_equal(h->file, second->file);
    assert_false(files_close(fs, second, false, key));
    files_key(fs, h, key);
    assert_string_equal(key, place);
    return h;
}

static void deleted_files_end_with_their_last_close(void **state)
{
    struct files *fs = files_new();
    char place[NAMES_KEY_MAX + 1], key[NAMES_KEY_MAX + 1];
    struct files_handle *h = deleted(fs, place);

    (void)state;
    assert_false(files_close(fs, h, false, key)); /* libfuse deletes it next */
    assert_true(files_find(fs, NAME, key));
    files_forget(fs, NAME);
    assert_false(files_find(fs, NAME, key));

    h = deleted(fs, place);
    assert_true(files_close(fs, h, true, key)); /* its folder is gone: we do */
    assert_string_equal(key, place);
    assert_false(files_find(fs, NAME, key));

    h = deleted(fs, place);
    files_forget(fs, NAME); /* deleted by its alias, and still open */
    files_key(fs, h, key);
    assert_false(files_close(fs, h, true, key));
    assert_false(files_next_left(fs, key));
    files_free(fs);
}

static void what_is_left_is_told_once(void **state)
{
    struct files *fs = files_new();
    char place[NAMES_KEY_MAX + 1], key[NAMES_KEY_MAX + 1];
    struct files_handle *h = deleted(fs, place);

    (void)state;
    assert_true(files_next_left(fs, key));
    assert_string_equal(key, place);
    assert_false(files_next_left(fs, key));
    assert_false(files_close(fs, h, true, key));
    files_free(fs);
}

static void uploads_come_early_and_then_seldom(void **state)
{
    struct files *fs = files_new();
    struct files_handle *h = files_open(fs, "/f", 1);
    char key[NAMES_KEY_MAX + 1];
    unsigned uploads = 0;

    (void)state;
    assert_true(files_wrote(fs, h, 1));
    for (uint64_t n = 0; n < 1 << 30; n += 4096)
        uploads += files_wrote(fs, h, 4096);
    assert_int_equal(uploads, 10); /* 1 MB, 2, 4, ... 512 */
    assert_false(files_close(fs, h, false, key));
    files_free(fs);
}

static void places_differ_and_aliases_are_known(void **state)
{
    struct files *a = files_new(), *b = files_new();
    char one[NAMES_KEY_MAX + 1], two[NAMES_KEY_MAX + 1], three[NAMES_KEY_MAX + 1];

    (void)state;
    (void)files_place(a, "/f", one);
    (void)files_place(a, "/f", two);
    (void)files_place(b, "/f", three);
    assert_string_not_equal(one, two);
    assert_string_not_equal(one, three);
    assert_int_equal(strncmp(one, "/" FILES_DELETED, strlen(FILES_DELETED) + 1), 0);
    assert_true(files_is_alias(".fuse_hidden0123456789abcdef"));
    assert_false(files_is_alias(".fuse_hidden0123456789abcdef0"));
    assert_false(files_is_alias(".fuse_hidden0123"));
    assert_false(files_is_alias("fuse_hidden0123456789abcdef"));
    files_free(a);
    files_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handles_know_their_key),
        cmocka_unit_test(deleted_files_end_with_their_last_close),
        cmocka_unit_test(what_is_left_is_told_once),
        cmocka_unit_test(uploads_come_early_and_then_seldom),
        cmocka_unit_test(places_differ_and_aliases_are_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
