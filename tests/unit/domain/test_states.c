/* The move table, and docs/states.md printed from it (run with --write to write it again). */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "domain/sandbox_moves.h"
#include "unit/domain/page.h"

static const char PAGE[] = "states.md";

static bool wants_meet(enum sandbox_want a, enum sandbox_want b)
{
    return a == b || a == SANDBOX_WANT_ANY || b == SANDBOX_WANT_ANY;
}

static void every_name_parses_back(void **state)
{
    enum sandbox_status s;
    enum sandbox_end_reason r;
    enum sandbox_persistence m;
    enum sandbox_profile p;
    enum sandbox_fault f;

    (void)state;
    for (int i = 1; i < SANDBOX_STATUS_COUNT; i++) {
        assert_true(sandbox_status_parse(sandbox_status_name((enum sandbox_status)i), &s));
        assert_int_equal(s, i);
    }
    for (int i = 1; i < SANDBOX_END_COUNT; i++) {
        assert_true(
            sandbox_end_reason_parse(sandbox_end_reason_name((enum sandbox_end_reason)i), &r));
        assert_int_equal(r, i);
    }
    for (int i = 1; i < SANDBOX_PERSISTENCE_COUNT; i++) {
        assert_true(
            sandbox_persistence_parse(sandbox_persistence_name((enum sandbox_persistence)i), &m));
        assert_int_equal(m, i);
    }
    for (int i = 1; i < SANDBOX_PROFILE_COUNT; i++) {
        assert_true(sandbox_profile_parse(sandbox_profile_name((enum sandbox_profile)i), &p));
        assert_int_equal(p, i);
    }
    for (int i = 1; i < SANDBOX_FAULT_COUNT; i++) {
        assert_true(sandbox_fault_parse(sandbox_fault_name((enum sandbox_fault)i), &f));
        assert_int_equal(f, i);
    }
    assert_false(sandbox_status_parse("", &s));
    assert_false(sandbox_status_parse("ready", &s));
    assert_true(sandbox_persistence_parse("PERSISTENT_VOLUME", &m));
    assert_int_equal(m, SANDBOX_PERSISTENCE_DIRECTORY);
    assert_string_equal(sandbox_profile_owner_kind(SANDBOX_PROFILE_TESS_CODE_TURN),
                        "EXTERNAL_SESSION");
}

/* The seed's table "Retryable errors", in full: no code more, none less. */
static void the_error_codes_are_the_published_ones(void **state)
{
    static const struct {
        const char *code;
        bool retryable;
    } PUBLISHED[] = {
        { "SANDBOX_SUSPENDED", true }, { "SANDBOX_NOT_READY", true },
        { "AGENT_UNREACHABLE", true }, { "SANDBOX_NOT_FOUND", false },
        { "NAMESPACE_DENIED", false }, { "UNAUTHENTICATED", false },
        { "TOKEN_EXPIRED", false },    { "INSUFFICIENT_SCOPE", false },
        { "PATH_ESCAPE", false },      { "UNKNOWN", false },
    };

    (void)state;
    assert_int_equal(SANDBOX_FAULT_COUNT - 1, COUNT_OF(PUBLISHED));
    for (size_t i = 0; i < COUNT_OF(PUBLISHED); i++) {
        enum sandbox_fault f;

        assert_true(sandbox_fault_parse(PUBLISHED[i].code, &f));
        assert_int_equal(sandbox_fault_retryable(f), PUBLISHED[i].retryable);
    }
}

static void every_row_is_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < SANDBOX_MOVE_COUNT; i++) {
        const struct sandbox_move *m = &SANDBOX_MOVES[i];

        assert_in_range(m->from, 1, SANDBOX_STATUS_COUNT - 1);
        assert_in_range(m->to, 1, SANDBOX_BACK);
        assert_in_range(m->event, 1, SANDBOX_EVENT_COUNT - 1);
        assert_int_not_equal(m->want, SANDBOX_WANT_UNSET);
        assert_true(strlen(m->why) > 0);
        /* A status that something is under way in has a deadline, or is retried for ever. */
        if (m->to != (int)m->from && m->to < SANDBOX_BACK &&
            sandbox_status_in((enum sandbox_status)m->to, SANDBOX_SET_TRANSITIONAL) &&
            m->to != SANDBOX_TERMINATING)
            assert_int_not_equal(m->deadline, SANDBOX_DEADLINE_NONE);
        /* A failure has a code: the row's or the region's. */
        if (m->to == SANDBOX_FAILED && m->from != SANDBOX_FAILED)
            assert_true(m->fault != SANDBOX_FAULT_NONE || m->event == SANDBOX_EV_REFUSED);
        /* TERMINATED only when the region has confirmed (contract 3). */
        if (m->to == SANDBOX_TERMINATED && m->from != SANDBOX_TERMINATED)
            assert_int_equal(m->event, SANDBOX_EV_GONE);
        /* Nothing leads out of TERMINATED. */
        if (m->from == SANDBOX_TERMINATED)
            assert_int_equal(m->to, SANDBOX_TERMINATED);
    }
}

static void no_two_rows_answer_the_same_question(void **state)
{
    (void)state;
    for (size_t i = 0; i < SANDBOX_MOVE_COUNT; i++)
        for (size_t j = 0; j < i; j++)
            assert_false(SANDBOX_MOVES[i].from == SANDBOX_MOVES[j].from &&
                         SANDBOX_MOVES[i].event == SANDBOX_MOVES[j].event &&
                         wants_meet(SANDBOX_MOVES[i].want, SANDBOX_MOVES[j].want));
}

/* Case 5: terminate means something in every status, and leads to the end in few moves. */
static void terminate_always_ends(void **state)
{
    (void)state;
    for (int s = 1; s < SANDBOX_STATUS_COUNT; s++) {
        const struct sandbox_move *m =
            sandbox_move_find((enum sandbox_status)s, SANDBOX_STATUS_NONE, SANDBOX_EV_TERMINATE);
        enum sandbox_status at, desired;
        int moves = 0;

        assert_non_null(m);
        at = (enum sandbox_status)m->to;
        desired = m->desired;
        while (at != SANDBOX_TERMINATED) {
            enum sandbox_event ev = SANDBOX_EV_GO;

            if (at == SANDBOX_TERMINATING)
                ev = SANDBOX_EV_GONE;
            else if (at == SANDBOX_SUSPENDING)
                ev = moves % 2 ? SANDBOX_EV_SAVED : SANDBOX_EV_NOT_SAVED;
            m = sandbox_move_find(at, desired, ev);
            assert_non_null(m);
            at = m->to == SANDBOX_BACK ? SANDBOX_READY : (enum sandbox_status)m->to;
            desired = m->desired;
            assert_true(++moves < SANDBOX_STATUS_COUNT);
        }
    }
}

/* Contract 3: what was not running is first FAILED; SUSPENDING stays; the rest is TERMINATING. */
static void terminate_goes_by_the_contract(void **state)
{
    (void)state;
    for (int s = 1; s < SANDBOX_STATUS_COUNT; s++) {
        const struct sandbox_move *m =
            sandbox_move_find((enum sandbox_status)s, SANDBOX_STATUS_NONE, SANDBOX_EV_TERMINATE);
        int want = SANDBOX_TERMINATING;

        if (sandbox_status_in((enum sandbox_status)s, SANDBOX_SET_COMING_UP))
            want = SANDBOX_FAILED;
        else if (s == SANDBOX_SUSPENDING || s == SANDBOX_TERMINATED)
            want = s;
        assert_int_equal(m->to, want);
    }
}

/* Case 15: idle never touches BUSY or SUSPENDED. */
static void idle_ends_ready_only(void **state)
{
    (void)state;
    for (int s = 1; s < SANDBOX_STATUS_COUNT; s++) {
        const struct sandbox_move *m =
            sandbox_move_find((enum sandbox_status)s, SANDBOX_STATUS_NONE, SANDBOX_EV_IDLE);

        if (s == SANDBOX_READY)
            assert_int_equal(m->to, SANDBOX_TERMINATING);
        else
            assert_null(m);
    }
}

static void the_page_is_the_table(void **state)
{
    (void)state;
    page_holds(__FILE__, PAGE, sandbox_moves_print);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_name_parses_back),
        cmocka_unit_test(the_error_codes_are_the_published_ones),
        cmocka_unit_test(every_row_is_whole),
        cmocka_unit_test(no_two_rows_answer_the_same_question),
        cmocka_unit_test(terminate_always_ends),
        cmocka_unit_test(terminate_goes_by_the_contract),
        cmocka_unit_test(idle_ends_ready_only),
        cmocka_unit_test(the_page_is_the_table),
    };

    if (argc == 2 && strcmp(argv[1], "--write") == 0)
        return page_write(__FILE__, PAGE, sandbox_moves_print);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
