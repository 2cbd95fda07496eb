#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/metrics.h"
#include "sbx/attr.h"

enum { M_CALLS, M_OPEN, M_TIME, M_MANY };

static const struct metrics_def DEFS[] = {
    [M_CALLS] = { "calls_total", METRICS_COUNTER, "Calls.", { "route", "status" } },
    [M_OPEN] = { "open", METRICS_GAUGE, "Open.", { NULL } },
    [M_TIME] = { "time_seconds", METRICS_HISTOGRAM, "Time.", { "route" } },
    [M_MANY] = { "many_total", METRICS_COUNTER, "Many.", { "value" } },
};

static void prints_prometheus_text(void **state)
{
    struct metrics *m = metrics_new();
    struct metrics_table *t = metrics_register(m, DEFS, COUNT_OF(DEFS));
    SCOPED_BUF struct buf out = BUF_INIT(1024 * 1024);

    (void)state;
    metrics_add(t, M_CALLS, METRICS_LABELS("a\"b\\c\n", "200"), 2);
    metrics_add(t, M_CALLS, METRICS_LABELS("a\"b\\c\n", "200"), 1);
    metrics_set(t, M_OPEN, METRICS_PLAIN, -4);
    metrics_observe_ms(t, M_TIME, METRICS_LABELS("x"), 3);
    metrics_observe_ms(t, M_TIME, METRICS_LABELS("x"), 1500);
    metrics_observe_ms(t, M_TIME, METRICS_LABELS("x"), 10000000);
    assert_true(metrics_print(m, &out));
    assert_non_null(strstr(out.data, "# HELP calls_total Calls.\n# TYPE calls_total counter\n"
                                     "calls_total{route=\"a\\\"b\\\\c\\n\",status=\"200\"} 3\n"));
    assert_non_null(strstr(out.data, "# TYPE open gauge\nopen -4\n"));
    assert_non_null(strstr(out.data, "time_seconds_bucket{route=\"x\",le=\"0.002\"} 0\n"
                                     "time_seconds_bucket{route=\"x\",le=\"0.005\"} 1\n"));
    assert_non_null(strstr(out.data, "time_seconds_bucket{route=\"x\",le=\"2.500\"} 2\n"));
    assert_non_null(strstr(out.data, "time_seconds_bucket{route=\"x\",le=\"+Inf\"} 3\n"
                                     "time_seconds_sum{route=\"x\"} 10001.503\n"
                                     "time_seconds_count{route=\"x\"} 3\n"));
    metrics_free(m);
}

static void the_ceiling_gives_false(void **state)
{
    struct metrics *m = metrics_new();
    SCOPED_BUF struct buf out = BUF_INIT(64);

    (void)state;
    (void)metrics_register(m, DEFS, COUNT_OF(DEFS));
    assert_false(metrics_print(m, &out));
    metrics_free(m);
}

static void series_are_bounded(void **state)
{
    struct metrics *m = metrics_new();
    struct metrics_table *t = metrics_register(m, DEFS, COUNT_OF(DEFS));
    char value[32];

    (void)state;
    for (int i = 0; i < 10000; i++) {
        (void)snprintf(value, sizeof(value), "v%d", i);
        metrics_add(t, M_MANY, METRICS_LABELS(value), 1);
    }
    assert_int_equal(metrics_get(t, M_MANY, METRICS_LABELS("v0")), 1);
    assert_int_equal(metrics_get(t, M_MANY, METRICS_LABELS("other")),
                     10000 - (METRICS_SERIES_MAX - 1));
    metrics_free(m);
}

static void *count(void *arg)
{
    char value[8];

    for (int i = 0; i < 20000; i++) {
        (void)snprintf(value, sizeof(value), "%d", i % 50);
        metrics_add(arg, M_MANY, METRICS_LABELS(value), 1);
    }
    return NULL;
}

static void threads_count_together(void **state)
{
    struct metrics *m = metrics_new();
    struct metrics_table *t = metrics_register(m, DEFS, COUNT_OF(DEFS));
    pthread_t threads[4];
    SCOPED_BUF struct buf out = BUF_INIT(1024 * 1024);

    (void)state;
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count, t), 0);
    assert_true(metrics_print(m, &out));
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        (void)pthread_join(threads[i], NULL);
    assert_int_equal(metrics_get(t, M_MANY, METRICS_LABELS("7")), 1600);
    metrics_free(m);
}

static void set_open(void *arg)
{
    metrics_set(arg, M_OPEN, METRICS_PLAIN, 7);
}

static void collectors_run_before_a_print(void **state)
{
    struct metrics *m = metrics_new();
    struct metrics_table *t = metrics_register(m, DEFS, COUNT_OF(DEFS));
    SCOPED_BUF struct buf out = BUF_INIT(1024 * 1024);

    (void)state;
    metrics_on_print(m, set_open, t);
    assert_true(metrics_print(m, &out));
    assert_non_null(strstr(out.data, "\nopen 7\n"));
    metrics_set(t, M_OPEN, METRICS_PLAIN, 1);
    metrics_off_print(m, t);
    assert_true(metrics_print(m, &out));
    assert_int_equal(metrics_get(t, M_OPEN, METRICS_PLAIN), 1);
    metrics_free(m);
}

static void no_metrics_is_fine(void **state)
{
    (void)state;
    assert_null(metrics_register(NULL, DEFS, COUNT_OF(DEFS)));
    metrics_add(NULL, M_CALLS, METRICS_PLAIN, 1);
    metrics_observe_ms(NULL, M_TIME, METRICS_PLAIN, 1);
    metrics_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prints_prometheus_text),
        cmocka_unit_test(the_ceiling_gives_false),
        cmocka_unit_test(series_are_bounded),
        cmocka_unit_test(threads_count_together),
        cmocka_unit_test(collectors_run_before_a_print),
        cmocka_unit_test(no_metrics_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
