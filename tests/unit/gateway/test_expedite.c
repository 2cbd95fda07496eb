#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "gateway/runsc_expedite.h"

enum { THREADS = 4, ROUNDS = 200 };

static char dir[] = "/tmp/gw-expedite-XXXXXX";
static char path[64], lock_path[64];

static void put(char value)
{
    struct sbx_err err = { 0 };

    assert_int_equal(file_write(path, &value, 1, 0600, false, &err), SBX_OK);
}

static char get(void)
{
    FILE *f = fopen(path, "re");
    int c;

    assert_non_null(f);
    c = fgetc(f);
    (void)fclose(f);
    return (char)c;
}

static int setup(void **state)
{
    (void)state;
    put('0');
    (void)unlink(lock_path);
    return 0;
}

static void test_on_between_begin_and_end_only(void **state)
{
    struct runsc_expedite *x = runsc_expedite_open(path, lock_path);

    (void)state;
    assert_non_null(x);
    assert_int_equal(get(), '0');
    runsc_expedite_begin(x);
    runsc_expedite_begin(x);
    assert_int_equal(get(), '1');
    runsc_expedite_end(x);
    assert_int_equal(get(), '1');
    runsc_expedite_end(x);
    assert_int_equal(get(), '0');
    runsc_expedite_close(x);
}

static void test_what_the_operator_switched_on_stays_on(void **state)
{
    struct runsc_expedite *x;

    (void)state;
    put('1');
    x = runsc_expedite_open(path, lock_path);
    runsc_expedite_begin(x);
    runsc_expedite_end(x);
    runsc_expedite_close(x);
    assert_int_equal(get(), '1');
}

static void test_two_gateways_and_the_last_one_puts_it_back(void **state)
{
    struct runsc_expedite *a = runsc_expedite_open(path, lock_path);
    struct runsc_expedite *b = runsc_expedite_open(path, lock_path);

    (void)state;
    runsc_expedite_begin(a);
    runsc_expedite_begin(b);
    runsc_expedite_end(a);
    assert_int_equal(get(), '1');
    runsc_expedite_end(b);
    assert_int_equal(get(), '0');
    runsc_expedite_close(a);
    runsc_expedite_close(b);
}

static void test_a_killed_one_is_put_back_by_the_next(void **state)
{
    struct runsc_expedite *x;
    pid_t pid = fork();
    int status;

    (void)state;
    if (pid == 0) {
        runsc_expedite_begin(runsc_expedite_open(path, lock_path));
        _exit(get() == '1' ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(get(), '1');
    x = runsc_expedite_open(path, lock_path);
    assert_int_equal(get(), '0');
    runsc_expedite_close(x);
}

static void test_a_host_without_the_switch(void **state)
{
    (void)state;
    assert_null(runsc_expedite_open("/nonexistent/rcu_expedited", lock_path));
    runsc_expedite_begin(NULL);
    runsc_expedite_end(NULL);
    runsc_expedite_close(NULL);
}

static void *hurry(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        runsc_expedite_begin(arg);
        runsc_expedite_end(arg);
    }
    return NULL;
}

static void test_many_threads_and_two_gateways(void **state)
{
    struct runsc_expedite *x[2] = { runsc_expedite_open(path, lock_path),
                                    runsc_expedite_open(path, lock_path) };
    pthread_t threads[THREADS];

    (void)state;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hurry, x[i % 2]), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    runsc_expedite_begin(x[0]);
    runsc_expedite_end(x[0]);
    assert_int_equal(get(), '0');
    runsc_expedite_close(x[0]);
    runsc_expedite_close(x[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_on_between_begin_and_end_only, setup),
        cmocka_unit_test_setup(test_what_the_operator_switched_on_stays_on, setup),
        cmocka_unit_test_setup(test_two_gateways_and_the_last_one_puts_it_back, setup),
        cmocka_unit_test_setup(test_a_killed_one_is_put_back_by_the_next, setup),
        cmocka_unit_test_setup(test_a_host_without_the_switch, setup),
        cmocka_unit_test_setup(test_many_threads_and_two_gateways, setup),
    };
    int failed;

    if (mkdtemp(dir) == NULL)
        return 1;
    (void)snprintf(path, sizeof(path), "%s/rcu_expedited", dir);
    (void)snprintf(lock_path, sizeof(lock_path), "%s/lock", dir);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)unlink(path);
    (void)unlink(lock_path);
    (void)rmdir(dir);
    return failed;
}
