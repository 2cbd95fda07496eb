/* plan_next(): every status, desired status, observation and state of the timers. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "domain/plan.h"
#include "domain/quota.h"
#include "sbx/attr.h"

enum { NOW = 1000000000 };

static const struct plan_times TIMES = {
    .allocating_s = 10,
    .starting_s = 20,
    .suspending_s = 30,
    .resuming_s = 40,
    .failed_retention_s = 50,
    .backoff_first_ms = 100,
    .backoff_max_ms = 1000,
};

static struct plan_row row_of(enum sandbox_status s)
{
    return (struct plan_row){
        .status = s,
        .generation = 3,
        .expires_ms = NOW + 100000,
        .last_active_ms = NOW - 1000,
        .suspended_ms = NOW - 1000,
        .failed_ms = s == SANDBOX_FAILED ? NOW - 1000 : 0,
        .deadline_ms = sandbox_status_in(s, SANDBOX_SET_TRANSITIONAL) ? NOW + 5000 : 0,
        .idle_timeout_s = 60,
        .suspended_retention_s = 60,
        .persistence = SANDBOX_PERSISTENCE_SNAPSHOT,
        .compute_held = s != SANDBOX_SUSPENDED && s != SANDBOX_TERMINATED,
        .executions = s == SANDBOX_BUSY ? 1 : 0,
        .attempts = 1,
    };
}

static struct plan_step ask(const struct plan_row *row, struct plan_observation seen)
{
    return plan_next(row, &seen, &TIMES, NOW, 7);
}

#define SEEN(...) ((struct plan_observation){ __VA_ARGS__ })

static void check_step(const struct plan_row *row, const struct plan_observation *seen,
                       const struct plan_step *s)
{
    assert_in_range(s->status, 1, SANDBOX_STATUS_COUNT - 1);
    assert_int_equal(s->changes, s->move && s->status != row->status);
    if (!s->move) {
        assert_int_equal(s->status, row->status);
        assert_int_equal(s->action, SANDBOX_ACT_NONE);
        assert_false(s->release);
    }
    /* Out of TERMINATED nothing leads, into it only the region's word (contract 3). */
    if (row->status == SANDBOX_TERMINATED)
        assert_false(s->changes);
    if (s->status == SANDBOX_TERMINATED && s->changes)
        assert_int_equal(seen->seen, PLAN_SEEN_GONE);
    /* Compute is only released on the region's word. */
    if (s->release)
        assert_true(seen->seen == PLAN_SEEN_GONE || seen->seen == PLAN_SEEN_SAVED ||
                    seen->seen == PLAN_SEEN_STOPPED);
    /* An end that was asked for is not forgotten. */
    if (row->desired == SANDBOX_TERMINATED)
        assert_true(s->desired == SANDBOX_TERMINATED || s->status == SANDBOX_TERMINATED);
    /* A failure says why. */
    if (s->status == SANDBOX_FAILED && s->changes) {
        assert_int_not_equal(s->fault, SANDBOX_FAULT_NONE);
        assert_non_null(s->reason);
    }
    /* A transitional status that is entered has a deadline ahead, TERMINATING is retried. */
    if (s->changes && sandbox_status_in(s->status, SANDBOX_SET_TRANSITIONAL) &&
        s->status != SANDBOX_TERMINATING)
        assert_true(s->deadline_ms > NOW);
    /* Nothing is forgotten: something happens now, or there is a next time. */
    if (!s->move && row->status != SANDBOX_TERMINATED)
        if (s->due_ms <= NOW)
            fail_msg("%s has no next time after seeing %d", sandbox_status_name(row->status),
                     (int)seen->seen);
    /* Idle and retention never end BUSY. */
    if (row->status == SANDBOX_BUSY && s->changes && seen->seen == PLAN_SEEN_NOTHING &&
        row->expires_ms > NOW && row->desired != SANDBOX_TERMINATED)
        fail();
}

static void every_combination_is_sound(void **state)
{
    long checked = 0;

    (void)state;
    for (int s = 1; s < SANDBOX_STATUS_COUNT; s++)
        for (int end = 0; end < 2; end++)
            for (int seen = PLAN_SEEN_NOTHING; seen <= PLAN_SEEN_AWAY; seen++)
                for (unsigned timers = 0; timers < 64; timers++) {
                    struct plan_row row = row_of((enum sandbox_status)s);
                    struct plan_observation o =
                        SEEN(.seen = (enum plan_seen)seen, .fault = SANDBOX_FAULT_PATH_ESCAPE);
                    struct plan_step step;

                    if (end)
                        row.desired = SANDBOX_TERMINATED;
                    if (timers & 1)
                        row.expires_ms = NOW;
                    if (timers & 2 && row.deadline_ms)
                        row.deadline_ms = NOW - 1;
                    if (timers & 4)
                        row.last_active_ms = NOW - 60000;
                    if (timers & 8)
                        row.suspended_ms = NOW - 60000;
                    if (timers & 16 && row.failed_ms)
                        row.failed_ms = NOW - 50000;
                    if (timers & 32)
                        row.compute_held = !row.compute_held;
                    step = plan_next(&row, &o, &TIMES, NOW, (uint32_t)checked);
                    check_step(&row, &o, &step);
                    checked++;
                }
    assert_int_equal(checked, 11L * 2 * 10 * 64);
}

static void a_create_is_taken_up_and_gets_ready(void **state)
{
    struct plan_row row = row_of(SANDBOX_REQUESTED);
    struct plan_step s = ask(&row, SEEN(0));

    (void)state;
    assert_int_equal(s.status, SANDBOX_ALLOCATING);
    assert_int_equal(s.action, SANDBOX_ACT_DEPLOY);
    assert_int_equal(s.desired, SANDBOX_READY);
    assert_int_equal(s.deadline_ms, NOW + 10000);
    row = row_of(SANDBOX_ALLOCATING);
    assert_int_equal(ask(&row, SEEN(.seen = PLAN_SEEN_ACCEPTED)).status, SANDBOX_STARTING);
    assert_int_equal(ask(&row, SEEN(.seen = PLAN_SEEN_RUNNING)).status, SANDBOX_READY);
    row = row_of(SANDBOX_STARTING);
    assert_int_equal(ask(&row, SEEN(.seen = PLAN_SEEN_RUNNING)).status, SANDBOX_READY);
    row = row_of(SANDBOX_RESUMING);
    assert_int_equal(ask(&row, SEEN(.seen = PLAN_SEEN_RUNNING)).status, SANDBOX_READY);
}

/* Case 5: an entrypoint that exits at once fails with a sentence, and its compute is released. */
static void a_refused_deploy_fails_and_is_cleared(void **state)
{
    struct plan_row row = row_of(SANDBOX_STARTING);
    struct plan_step s = ask(&row, SEEN(.seen = PLAN_SEEN_FAILED, .fault = SANDBOX_FAULT_UNKNOWN,
                                        .reason = "The command exited with status 1."));

    (void)state;
    assert_int_equal(s.status, SANDBOX_FAILED);
    assert_int_equal(s.fault, SANDBOX_FAULT_UNKNOWN);
    assert_string_equal(s.reason, "The command exited with status 1.");
    assert_int_equal(s.action, SANDBOX_ACT_DESTROY);
    assert_false(s.release);
    row = row_of(SANDBOX_FAILED);
    s = ask(&row, SEEN(0));
    assert_int_equal(s.action, SANDBOX_ACT_DESTROY);
    assert_int_equal(s.status, SANDBOX_FAILED);
    s = ask(&row, SEEN(.seen = PLAN_SEEN_GONE));
    assert_true(s.release);
    assert_int_equal(s.status, SANDBOX_FAILED);
    row.compute_held = false;
    s = ask(&row, SEEN(0));
    assert_null(s.move);
    assert_int_equal(s.due_ms, NOW - 1000 + 50000);
    row.failed_ms = NOW - 50000;
    s = ask(&row, SEEN(0));
    assert_int_equal(s.status, SANDBOX_TERMINATING);
    assert_int_equal(s.end_reason, SANDBOX_END_FAILED);
}

/* Case 5: TERMINATING retries for ever, with growing, bounded, spread delays. */
static void terminating_retries_for_ever(void **state)
{
    struct plan_row row = row_of(SANDBOX_TERMINATING);

    (void)state;
    row.deadline_ms = 0;
    row.expires_ms = NOW - 1;
    for (int attempt = 1; attempt < 1000; attempt++) {
        struct plan_step s;

        row.attempts = attempt;
        s = plan_next(&row, &SEEN(.seen = PLAN_SEEN_AWAY), &TIMES, NOW, (uint32_t)attempt * 7919);
        assert_null(s.move);
        assert_true(s.count_attempt);
        assert_in_range(s.due_ms, NOW + 50, NOW + 1000);
        assert_int_equal(ask(&row, SEEN(0)).action, SANDBOX_ACT_DESTROY);
    }
    assert_in_range(plan_backoff_ms(&TIMES, 1, 0), 50, 50);
    assert_in_range(plan_backoff_ms(&TIMES, 2, UINT32_MAX), 100, 200);
    assert_in_range(plan_backoff_ms(&TIMES, 1 << 30, UINT32_MAX), 500, 1000);
    row.attempts = 1;
    assert_int_equal(ask(&row, SEEN(.seen = PLAN_SEEN_AWAY, .retry_after_ms = 9000)).due_ms,
                     NOW + 9000);
}

static void a_deadline_ends_what_hangs(void **state)
{
    static const enum sandbox_status statuses[] = { SANDBOX_REQUESTED, SANDBOX_ALLOCATING,
                                                    SANDBOX_STARTING, SANDBOX_RESUMING };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(statuses); i++) {
        struct plan_row row = row_of(statuses[i]);

        row.deadline_ms = NOW;
        assert_int_equal(ask(&row, SEEN(0)).status, SANDBOX_FAILED);
        /* Also when the region is away: a failed try does not put it off. */
        assert_int_equal(ask(&row, SEEN(.seen = PLAN_SEEN_AWAY)).status, SANDBOX_FAILED);
        /* But an answer that came in time wins. */
        if (i > 0)
            assert_int_equal(ask(&row, SEEN(.seen = PLAN_SEEN_RUNNING)).status, SANDBOX_READY);
    }
}

static void a_pause_that_took_too_long_asks_first(void **state)
{
    struct plan_row row = row_of(SANDBOX_SUSPENDING);
    struct plan_step s;

    (void)state;
    row.executions = 1;
    assert_int_equal(ask(&row, SEEN(0)).action, SANDBOX_ACT_SAVE);
    assert_int_equal(ask(&row, SEEN(.seen = PLAN_SEEN_RUNNING)).action, SANDBOX_ACT_SAVE);
    row.deadline_ms = NOW;
    assert_int_equal(ask(&row, SEEN(0)).action, SANDBOX_ACT_ASK);
    s = ask(&row, SEEN(.seen = PLAN_SEEN_AWAY));
    assert_null(s.move);
    assert_true(s.due_ms > 0);
    assert_int_equal(ask(&row, SEEN(.seen = PLAN_SEEN_RUNNING)).status, SANDBOX_BUSY);
    row.executions = 0;
    assert_int_equal(ask(&row, SEEN(.seen = PLAN_SEEN_RUNNING)).status, SANDBOX_READY);
    s = ask(&row, SEEN(.seen = PLAN_SEEN_STOPPED));
    assert_int_equal(s.status, SANDBOX_SUSPENDED);
    assert_true(s.release);
    assert_int_equal(ask(&row, SEEN(.seen = PLAN_SEEN_ABSENT)).status, SANDBOX_FAILED);
}

/* Contract 3: terminate in SUSPENDING acts when the pause has settled, whichever way. */
static void an_end_asked_for_in_a_pause_comes_after_it(void **state)
{
    struct plan_row row = row_of(SANDBOX_SUSPENDING);
    struct plan_step s = ask(&row, SEEN(.asked = SANDBOX_EV_TERMINATE));

    (void)state;
    assert_int_equal(s.status, SANDBOX_SUSPENDING);
    assert_int_equal(s.desired, SANDBOX_TERMINATED);
    row.desired = SANDBOX_TERMINATED;
    s = ask(&row, SEEN(.seen = PLAN_SEEN_SAVED));
    assert_int_equal(s.status, SANDBOX_SUSPENDED);
    assert_int_equal(s.desired, SANDBOX_TERMINATED);
    row.status = SANDBOX_SUSPENDED;
    assert_int_equal(ask(&row, SEEN(0)).status, SANDBOX_TERMINATING);
    row.status = SANDBOX_SUSPENDING;
    assert_int_equal(ask(&row, SEEN(.seen = PLAN_SEEN_NOT_SAVED)).status, SANDBOX_READY);
    row.status = SANDBOX_READY;
    assert_int_equal(ask(&row, SEEN(0)).status, SANDBOX_TERMINATING);
}

/* Cases 15, 17. */
static void idle_ends_only_what_is_idle(void **state)
{
    struct plan_row row = row_of(SANDBOX_READY);

    (void)state;
    row.last_active_ms = NOW - 59999;
    assert_null(ask(&row, SEEN(0)).move);
    assert_int_equal(ask(&row, SEEN(0)).due_ms, NOW + 1);
    row.last_active_ms = NOW - 60000;
    assert_int_equal(ask(&row, SEEN(0)).end_reason, SANDBOX_END_IDLE_TIMEOUT);
    row.personal = true;
    assert_null(ask(&row, SEEN(0)).move);
    row.personal = false;
    row.executions = 1;
    assert_null(ask(&row, SEEN(0)).move);
    row = row_of(SANDBOX_BUSY);
    row.last_active_ms = NOW - 600000;
    assert_null(ask(&row, SEEN(0)).move);
    row = row_of(SANDBOX_SUSPENDED);
    row.last_active_ms = NOW - 600000;
    assert_null(ask(&row, SEEN(0)).move);
}

static void lifetime_ends_every_live_status(void **state)
{
    (void)state;
    for (int s = 1; s < SANDBOX_STATUS_COUNT; s++) {
        struct plan_row row = row_of((enum sandbox_status)s);
        struct plan_step step;

        row.expires_ms = NOW;
        step = ask(&row, SEEN(0));
        if (!sandbox_status_in(row.status, SANDBOX_SET_LIVE)) {
            assert_int_not_equal(step.event, SANDBOX_EV_LIFETIME);
            continue;
        }
        assert_int_equal(step.end_reason, SANDBOX_END_HARD_LIFETIME);
        assert_int_equal(step.desired, SANDBOX_TERMINATED);
    }
}

static void retention_ends_suspended(void **state)
{
    struct plan_row row = row_of(SANDBOX_SUSPENDED);

    (void)state;
    assert_int_equal(ask(&row, SEEN(0)).due_ms, NOW + 59000);
    row.suspended_ms = NOW - 60000;
    assert_int_equal(ask(&row, SEEN(0)).end_reason, SANDBOX_END_SUSPENDED_RETENTION);
}

/* Cases 4, 10. */
static void what_vanished_fails_once(void **state)
{
    static const enum plan_seen gone[] = { PLAN_SEEN_ABSENT, PLAN_SEEN_FAILED, PLAN_SEEN_STOPPED };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(gone); i++)
        for (int s = SANDBOX_READY; s <= SANDBOX_BUSY; s++) {
            struct plan_row row = row_of((enum sandbox_status)s);
            struct plan_step step =
                ask(&row, SEEN(.seen = gone[i], .fault = SANDBOX_FAULT_UNKNOWN));

            assert_int_equal(step.status, SANDBOX_FAILED);
            assert_int_equal(step.fault, SANDBOX_FAULT_SANDBOX_NOT_FOUND);
        }
}

static void the_fault_list_is_closed(void **state)
{
    (void)state;
    for (int c = 1; c < SBX_CODE_COUNT; c++)
        assert_in_range(plan_fault_of((enum sbx_code)c), 1, SANDBOX_FAULT_COUNT - 1);
    assert_int_equal(plan_fault_of(SBX_E_PATH_ESCAPE), SANDBOX_FAULT_PATH_ESCAPE);
    assert_int_equal(plan_fault_of(SBX_E_INTERNAL), SANDBOX_FAULT_UNKNOWN);
    assert_int_equal(plan_fault_of(SBX_E_INVALID), SANDBOX_FAULT_UNKNOWN);
    assert_true(plan_deploy_retries(SBX_E_UNAVAILABLE));
    assert_false(plan_deploy_retries(SBX_E_INVALID));
    assert_false(plan_deploy_retries(SBX_E_PATH_ESCAPE));
}

/* Case 38, contract 3. */
static void quota_counts_what_holds_a_place(void **state)
{
    (void)state;
    for (int s = 1; s < SANDBOX_STATUS_COUNT; s++) {
        bool always =
            sandbox_status_in((enum sandbox_status)s, SANDBOX_SET_LIVE) && s != SANDBOX_SUSPENDED;
        bool held = s == SANDBOX_FAILED || s == SANDBOX_TERMINATING;

        assert_int_equal(quota_counts((enum sandbox_status)s, true), always || held);
        assert_int_equal(quota_counts((enum sandbox_status)s, false), always);
    }
    assert_true(quota_admits(2, 1));
    assert_false(quota_admits(2, 2));
    assert_false(quota_admits(0, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_combination_is_sound),
        cmocka_unit_test(a_create_is_taken_up_and_gets_ready),
        cmocka_unit_test(a_refused_deploy_fails_and_is_cleared),
        cmocka_unit_test(terminating_retries_for_ever),
        cmocka_unit_test(a_deadline_ends_what_hangs),
        cmocka_unit_test(a_pause_that_took_too_long_asks_first),
        cmocka_unit_test(an_end_asked_for_in_a_pause_comes_after_it),
        cmocka_unit_test(idle_ends_only_what_is_idle),
        cmocka_unit_test(lifetime_ends_every_live_status),
        cmocka_unit_test(retention_ends_suspended),
        cmocka_unit_test(what_vanished_fails_once),
        cmocka_unit_test(the_fault_list_is_closed),
        cmocka_unit_test(quota_counts_what_holds_a_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
