#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "gateway/journal.h"

enum { MANY = 200, THREADS = 8, MOST = THREADS * MANY };

static char dir[] = "/tmp/gw-journal-XXXXXX";
static char path[64];

static struct journal *open_it(size_t *dropped)
{
    struct journal *j = NULL;
    struct sbx_err err = { 0 };

    assert_int_equal(journal_open(path, MOST, &j, dropped, &err), SBX_OK);
    return j;
}

static void put(struct journal *j, const char *id, const char *text)
{
    struct journal_entry e = { id, text };
    struct sbx_err err = { 0 };

    assert_int_equal(journal_put(j, &e, 1, &err), SBX_OK);
}

struct found {
    const char *id;
    char text[256];
    size_t count;
};

static void look(void *arg, const char *id, const char *text)
{
    struct found *f = arg;

    f->count++;
    if (f->id != NULL && strcmp(f->id, id) == 0)
        (void)snprintf(f->text, sizeof(f->text), "%s", text);
}

static struct found find(struct journal *j, const char *id)
{
    struct found f = { .id = id };

    journal_each(j, look, &f);
    return f;
}

static void test_last_text_counts_after_reopen(void **state)
{
    char a[ID_SIZE], b[ID_SIZE], c[ID_SIZE];
    struct journal *j;
    size_t dropped = 0;

    (void)state;
    (void)unlink(path);
    id_new(a), id_new(b), id_new(c);
    j = open_it(&dropped);
    put(j, a, "one");
    put(j, a, "two");
    put(j, b, "gone");
    put(j, b, NULL);
    put(j, c, "{\"k\": \"v w\"}");
    journal_close(j);
    j = open_it(&dropped);
    assert_int_equal(dropped, 0);
    assert_string_equal(find(j, a).text, "two");
    assert_string_equal(find(j, b).text, "");
    assert_string_equal(find(j, c).text, "{\"k\": \"v w\"}");
    assert_int_equal(find(j, a).count, 2);
    journal_close(j);
}

static void test_torn_tail_is_dropped(void **state)
{
    char a[ID_SIZE], b[ID_SIZE];
    struct journal *j;
    struct stat st;
    size_t dropped = 0;

    (void)state;
    (void)unlink(path);
    id_new(a), id_new(b);
    j = open_it(&dropped);
    put(j, a, "whole");
    assert_int_equal(stat(path, &st), 0);
    put(j, b, "torn away");
    journal_close(j);
    assert_int_equal(truncate(path, st.st_size + 20), 0);
    j = open_it(&dropped);
    assert_int_equal(dropped, 20);
    assert_string_equal(find(j, a).text, "whole");
    assert_int_equal(find(j, b).count, 1);
    put(j, b, "again");
    journal_close(j);
    j = open_it(&dropped);
    assert_int_equal(dropped, 0);
    assert_string_equal(find(j, b).text, "again");
    journal_close(j);
}

static void test_a_flipped_bit_costs_one_line(void **state)
{
    char a[ID_SIZE], b[ID_SIZE], c[ID_SIZE];
    struct stat before, after;
    struct journal *j;
    size_t dropped = 0;
    char byte = '#';
    int fd;

    (void)state;
    (void)unlink(path);
    id_new(a), id_new(b), id_new(c);
    j = open_it(&dropped);
    put(j, a, "good");
    assert_int_equal(stat(path, &before), 0);
    put(j, b, "damaged");
    assert_int_equal(stat(path, &after), 0);
    put(j, c, "behind it");
    journal_close(j);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, &byte, 1, after.st_size - 3), 1);
    (void)close(fd);
    for (int i = 0; i < 2; i++) {
        j = open_it(&dropped);
        assert_int_equal(dropped, after.st_size - before.st_size);
        assert_string_equal(find(j, a).text, "good");
        assert_string_equal(find(j, b).text, "");
        assert_string_equal(find(j, c).text, i == 0 ? "behind it" : "again");
        put(j, c, "again");
        journal_close(j);
    }
}

/* A full journal refuses what is new, and never what changes, or ends, what it has. */
static void test_a_full_journal_shrinks(void **state)
{
    static char ids[MOST + 1][ID_SIZE];
    static struct journal_entry entries[MOST + 1];
    struct sbx_err err = { 0 };
    struct journal *j;
    size_t dropped = 0;

    (void)state;
    (void)unlink(path);
    for (size_t i = 0; i <= MOST; i++) {
        id_new(ids[i]);
        entries[i] = (struct journal_entry){ ids[i], "x" };
    }
    j = open_it(&dropped);
    assert_int_equal(journal_put(j, entries, MOST + 1, &err), SBX_E_UNAVAILABLE);
    assert_int_equal(find(j, NULL).count, 0);
    err = (struct sbx_err){ 0 };
    assert_int_equal(journal_put(j, entries, MOST, &err), SBX_OK);
    assert_int_equal(journal_put(j, &entries[MOST], 1, &err), SBX_E_UNAVAILABLE);
    put(j, ids[0], "y");
    put(j, ids[1], NULL);
    put(j, ids[MOST], "z");
    journal_close(j);
    j = open_it(&dropped);
    assert_int_equal(find(j, NULL).count, MOST);
    assert_string_equal(find(j, ids[0]).text, "y");
    assert_string_equal(find(j, ids[MOST]).text, "z");
    journal_close(j);
}

static void *write_many(void *arg)
{
    struct journal *j = arg;

    for (int i = 0; i < MANY; i++) {
        char id[ID_SIZE];

        id_new(id);
        put(j, id, "x");
    }
    return NULL;
}

/* Writers of one moment share a sync, and none is lost. */
static void test_threads_share_syncs(void **state)
{
    pthread_t threads[THREADS];
    struct journal_stats stats;
    struct journal *j;
    size_t dropped = 0;

    (void)state;
    (void)unlink(path);
    j = open_it(&dropped);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_many, j), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    journal_stats(j, &stats);
    assert_int_equal(stats.puts, THREADS * MANY);
    assert_true(stats.syncs < stats.puts);
    journal_close(j);
    j = open_it(&dropped);
    assert_int_equal(find(j, NULL).count, THREADS * MANY);
    journal_close(j);
}

static void test_log_is_written_anew_when_it_grows(void **state)
{
    static char text[JOURNAL_TEXT_MAX];
    char a[ID_SIZE];
    struct journal_stats stats;
    struct journal *j;
    size_t dropped = 0;

    (void)state;
    (void)unlink(path);
    memset(text, 'x', sizeof(text) - 1);
    id_new(a);
    j = open_it(&dropped);
    for (int i = 0; i < MANY; i++)
        put(j, a, text);
    put(j, a, "small");
    journal_stats(j, &stats);
    assert_true(stats.bytes < JOURNAL_SLACK + 4 * sizeof(text));
    journal_close(j);
    j = open_it(&dropped);
    assert_int_equal(dropped, 0);
    assert_string_equal(find(j, a).text, "small");
    journal_close(j);
}

/* A full disk is told, and what was there stays readable. */
static void test_no_room_is_an_error(void **state)
{
    struct rlimit old, tight;
    char a[ID_SIZE], b[ID_SIZE];
    struct journal_entry e;
    struct sbx_err err = { 0 };
    struct journal *j;
    struct stat st;
    size_t dropped = 0;

    (void)state;
    (void)unlink(path);
    id_new(a), id_new(b);
    j = open_it(&dropped);
    put(j, a, "kept");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    tight = (struct rlimit){ .rlim_cur = (rlim_t)st.st_size + 10, .rlim_max = old.rlim_max };
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    e = (struct journal_entry){ b, "does not fit" };
    assert_int_equal(journal_put(j, &e, 1, &err), SBX_E_UNAVAILABLE);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    put(j, b, "fits now");
    journal_close(j);
    j = open_it(&dropped);
    assert_int_equal(dropped, 0);
    assert_string_equal(find(j, a).text, "kept");
    assert_string_equal(find(j, b).text, "fits now");
    journal_close(j);
}

/* Writing it anew with too few descriptors, none or one, loses nothing that is put later. */
static void test_few_descriptors_are_no_loss(void **state)
{
    static char text[JOURNAL_TEXT_MAX];
    char a[ID_SIZE], b[ID_SIZE];

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    id_new(a), id_new(b);
    for (rlim_t spare = 0; spare < 2; spare++) {
        struct rlimit old, tight;
        struct journal *j;
        size_t dropped = 0;
        int next;

        (void)unlink(path);
        j = open_it(&dropped);
        next = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0); /* the lowest that is free */
        (void)close(next);
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
        tight = (struct rlimit){ .rlim_cur = (rlim_t)next + spare, .rlim_max = old.rlim_max };
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
        for (int i = 0; i < MANY; i++)
            put(j, a, text);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
        put(j, b, "after it");
        journal_close(j);
        j = open_it(&dropped);
        assert_int_equal(dropped, 0);
        assert_string_equal(find(j, b).text, "after it");
        assert_int_equal(find(j, NULL).count, 2);
        journal_close(j);
    }
}

static int setup(void **state)
{
    (void)state;
    if (mkdtemp(dir) == NULL)
        return -1;
    (void)snprintf(path, sizeof(path), "%s/journal", dir);
    return 0;
}

static int teardown(void **state)
{
    struct sbx_err err = { 0 };

    (void)state;
    return file_remove_tree(dir, &err) == SBX_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_last_text_counts_after_reopen),
        cmocka_unit_test(test_torn_tail_is_dropped),
        cmocka_unit_test(test_a_flipped_bit_costs_one_line),
        cmocka_unit_test(test_a_full_journal_shrinks),
        cmocka_unit_test(test_threads_share_syncs),
        cmocka_unit_test(test_log_is_written_anew_when_it_grows),
        cmocka_unit_test(test_no_room_is_an_error),
        cmocka_unit_test(test_few_descriptors_are_no_loss),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
