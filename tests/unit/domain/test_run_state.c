#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "domain/run_state.h"
#include "unit/domain/page.h"

static const char PAGE[] = "personal-runs.md";

static void names_parse_back(void **state)
{
    (void)state;
    for (int i = 0; i < RUN_PHASE_COUNT; i++) {
        enum run_phase got;

        assert_true(run_phase_parse(run_phase_name((enum run_phase)i), &got));
        assert_int_equal(got, i);
    }
    for (int i = RUN_CAUSE_NONE + 1; i < RUN_CAUSE_COUNT; i++) {
        enum run_cause got;

        assert_true(run_cause_parse(run_cause_name((enum run_cause)i), &got));
        assert_int_equal(got, i);
    }
}

static void no_two_rows_answer_the_same_question_and_each_tells_its_crash(void **state)
{
    (void)state;
    for (size_t i = 0; i < RUN_MOVE_COUNT; i++) {
        assert_non_null(RUN_MOVES[i].crash);
        for (size_t j = 0; j < i; j++)
            assert_false(RUN_MOVES[i].from == RUN_MOVES[j].from &&
                         RUN_MOVES[i].event == RUN_MOVES[j].event);
    }
}

/* The owner's reset is heard in every phase that holds the fence. */
static void owner_reset_or_drop_is_heard_wherever_the_fence_is_held(void **state)
{
    (void)state;
    for (int p = 0; p < RUN_PHASE_COUNT; p++) {
        enum run_phase phase = (enum run_phase)p;
        bool heard = run_next(phase, RUN_EVENT_OWNER_RESET) != NULL ||
                     run_next(phase, RUN_EVENT_DROP) != NULL;

        assert_int_equal(heard, !run_phase_done(phase));
    }
}

/* A claim binds once: no other phase takes it. */
static void a_claim_is_taken_from_reserved_only(void **state)
{
    (void)state;
    for (int p = 0; p < RUN_PHASE_COUNT; p++)
        assert_int_equal(run_next((enum run_phase)p, RUN_EVENT_CLAIM) != NULL, p == RUN_RESERVED);
}

/* Every combination of facts: a clean release needs a witnessed exit 0, a staged generation and no
 * reset. */
static void only_a_witnessed_staged_exit_zero_is_released_clean(void **state)
{
    (void)state;
    for (int bits = 0; bits < 1 << 5; bits++) {
        for (int e = 0; e < RUN_EXEC_COUNT; e++) {
            for (int h = RUN_HOLDER_NONE; h <= RUN_HOLDER_GONE; h++) {
                struct run_facts f = {
                    .phase = RUN_TERMINATING,
                    .execution = (enum run_execution)e,
                    .exit_known = bits & 1,
                    .exit_code = bits & 2 ? 1 : 0,
                    .staged = bits & 4,
                    .read_failed = bits & 8,
                    .owner_reset = bits & 16,
                };
                enum run_step step = run_plan(&f, (enum run_holder)h);
                bool good = e == RUN_EXEC_EXITED && f.exit_known && f.exit_code == 0 && f.staged &&
                            !f.owner_reset;

                if (step == RUN_STEP_RELEASE_CLEAN)
                    assert_true(good && (h == RUN_HOLDER_GONE || h == RUN_HOLDER_NONE));
                if (step == RUN_STEP_RELEASE_DESTRUCTIVE)
                    assert_true(!good && (h == RUN_HOLDER_GONE || h == RUN_HOLDER_NONE));
                if (step == RUN_STEP_READ_BACK)
                    assert_true(h == RUN_HOLDER_UP && !f.owner_reset && e == RUN_EXEC_EXITED);
                if (h == RUN_HOLDER_GONE)
                    assert_true(step == RUN_STEP_RELEASE_CLEAN ||
                                step == RUN_STEP_RELEASE_DESTRUCTIVE);
            }
        }
    }
}

/* No plan ever starts the entrypoint: only the request that carries the callback tokens does, once.
 */
static void planning_asks_about_a_start_and_never_repeats_it(void **state)
{
    struct run_facts f = { .phase = RUN_READY, .execution = RUN_EXEC_STARTING };

    (void)state;
    assert_int_equal(run_plan(&f, RUN_HOLDER_UP), RUN_STEP_ASK_START);
    f.phase = RUN_QUARANTINED;
    assert_int_equal(run_plan(&f, RUN_HOLDER_UP), RUN_STEP_WAIT);
}

static void the_first_cause_stays_but_the_owners_reset_wins(void **state)
{
    struct run_facts f = { .phase = RUN_READY, .cause = RUN_CAUSE_COMPLETED };

    (void)state;
    assert_int_equal(run_teardown_cause(&f, RUN_EVENT_CLEAN_UP), RUN_CAUSE_COMPLETED);
    assert_int_equal(run_teardown_cause(&f, RUN_EVENT_OWNER_RESET), RUN_CAUSE_OWNER_RESET);
    f.cause = RUN_CAUSE_NONE;
    assert_int_equal(run_teardown_cause(&f, RUN_EVENT_CLEAN_UP), RUN_CAUSE_CANCELLED);
    assert_int_equal(run_teardown_cause(&f, RUN_EVENT_TIME_LIMIT), RUN_CAUSE_TIME_LIMIT);
    f.owner_reset = true;
    assert_int_equal(run_teardown_cause(&f, RUN_EVENT_CLEAN_UP), RUN_CAUSE_OWNER_RESET);
}

static void the_page_is_the_table(void **state)
{
    (void)state;
    page_holds(__FILE__, PAGE, run_page_print);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_parse_back),
        cmocka_unit_test(no_two_rows_answer_the_same_question_and_each_tells_its_crash),
        cmocka_unit_test(owner_reset_or_drop_is_heard_wherever_the_fence_is_held),
        cmocka_unit_test(a_claim_is_taken_from_reserved_only),
        cmocka_unit_test(only_a_witnessed_staged_exit_zero_is_released_clean),
        cmocka_unit_test(planning_asks_about_a_start_and_never_repeats_it),
        cmocka_unit_test(the_first_cause_stays_but_the_owners_reset_wins),
        cmocka_unit_test(the_page_is_the_table),
    };

    if (argc == 2 && strcmp(argv[1], "--write") == 0)
        return page_write(__FILE__, PAGE, run_page_print);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
