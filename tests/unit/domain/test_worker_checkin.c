#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "domain/worker_checkin.h"
#include "sbx/attr.h"

static void ids_have_their_form(void **state)
{
    char longest[66];

    (void)state;
    assert_true(worker_id_valid("a"));
    assert_true(worker_id_valid("Host-1.example_2"));
    assert_false(worker_id_valid(""));
    assert_false(worker_id_valid("a b"));
    assert_false(worker_id_valid("a/b"));
    assert_false(worker_id_valid("\xc3\xa9"));
    assert_true(worker_stream_id_valid("st_1-A"));
    assert_false(worker_stream_id_valid("st.1"));
    memset(longest, 'a', 65);
    longest[65] = 0;
    assert_false(worker_id_valid(longest));
    assert_false(worker_stream_id_valid(longest));
    longest[64] = 0;
    assert_true(worker_id_valid(longest));
    assert_true(worker_stream_id_valid(longest));
}

static void a_subject_is_an_upper_case_ulid(void **state)
{
    static const char *const BAD[] = {
        "",
        "usr_",
        "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "usr_01ARZ3NDEKTSV4RRFFQ69G5FA",   /* short */
        "usr_01ARZ3NDEKTSV4RRFFQ69G5FAVV", /* long */
        "usr_01arz3ndektsv4rrffq69g5fav",  /* lower case */
        "usr_81ARZ3NDEKTSV4RRFFQ69G5FAV",  /* above 128 bits */
        "usr_01ARZ3NDEKTSV4RRFFQ69G5FAI",  /* no I, L, O, U */
        "usr_01ARZ3NDEKTSV4RRFFQ69G5FAL",
        "usr_01ARZ3NDEKTSV4RRFFQ69G5FAO",
        "usr_01ARZ3NDEKTSV4RRFFQ69G5FAU",
        "svc_01ARZ3NDEKTSV4RRFFQ69G5FAV",
        " usr_01ARZ3NDEKTSV4RRFFQ69G5FAV",
    };

    (void)state;
    assert_true(worker_subject_valid("usr_01ARZ3NDEKTSV4RRFFQ69G5FAV"));
    assert_true(worker_subject_valid("usr_7ZZZZZZZZZZZZZZZZZZZZZZZZZ"));
    for (size_t i = 0; i < COUNT_OF(BAD); i++)
        assert_false(worker_subject_valid(BAD[i]));
}

static void capabilities_grant_by_whole_words(void **state)
{
    static const char *const GOOD[] = { "live.agent_sandbox.register", "live.*",
                                        "live.agent_sandbox.*" };
    static const char *const BAD[] = { "",
                                       "*",
                                       ".*",
                                       "live",
                                       "live.",
                                       "live*",
                                       "liv.*",
                                       "live.agent.*",
                                       "live.agent_sandbox.reg*",
                                       "live.agent_sandbox.register.*",
                                       "live.agent_sandbox.registerx",
                                       "live.agent_sandbox.registe",
                                       "LIVE.*",
                                       "codes.*",
                                       "live.*.register",
                                       "live:write" };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(GOOD); i++)
        assert_true(worker_capability_grants(GOOD[i]));
    for (size_t i = 0; i < COUNT_OF(BAD); i++)
        assert_false(worker_capability_grants(BAD[i]));
}

static void tokens_have_thirty_seconds_of_skew(void **state)
{
    enum { NOW = 1000000 };

    (void)state;
    assert_true(worker_token_in_time(NOW, NOW - 60, NOW + 60, INT64_MIN));
    assert_true(worker_token_in_time(NOW, NOW - 60, NOW - 30, INT64_MIN));
    assert_false(worker_token_in_time(NOW, NOW - 60, NOW - 31, INT64_MIN));
    assert_true(worker_token_in_time(NOW, NOW + 30, NOW + 60, INT64_MIN));
    assert_false(worker_token_in_time(NOW, NOW + 31, NOW + 60, INT64_MIN));
    assert_true(worker_token_in_time(NOW, NOW, NOW + 60, NOW + 30));
    assert_false(worker_token_in_time(NOW, NOW, NOW + 60, NOW + 31));
    /* claims that are missing say nothing here, and no sum overflows */
    assert_true(worker_token_in_time(NOW, INT64_MIN, INT64_MAX, INT64_MIN));
    assert_false(worker_token_in_time(NOW, INT64_MAX, INT64_MAX, INT64_MIN));
    assert_false(worker_token_in_time(NOW, 0, INT64_MIN, INT64_MIN));
}

static void isolation_must_be_exactly_that(void **state)
{
    const struct worker_isolation good = { false, false, false, true, "ephemeral" };
    const char *keys[WORKER_ISOLATION_KEYS];
    struct worker_isolation bad[5] = { good, good, good, good, good };
    const struct worker_isolation all = { true, true, true, false, "persistent" };

    (void)state;
    assert_int_equal(worker_isolation_refused(&good, keys), 0);
    bad[0].host_network = true;
    bad[1].credentials = true;
    bad[2].profile = true;
    bad[3].egress_proxy = false;
    bad[4].workspace = "Ephemeral";
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(worker_isolation_refused(&bad[i], keys), 1);
        assert_string_equal(keys[0], WORKER_ISOLATION_NAMES[i]);
    }
    assert_int_equal(worker_isolation_refused(&all, keys), 5);
    assert_string_equal(keys[4], "workspace");
}

static void health_ends_after_sixty_seconds(void **state)
{
    (void)state;
    assert_true(worker_healthy(1000, 1000));
    assert_true(worker_healthy(1000, 61000));
    assert_false(worker_healthy(1000, 61001));
    assert_false(worker_healthy(1001, 1000)); /* in the future */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_have_their_form),
        cmocka_unit_test(a_subject_is_an_upper_case_ulid),
        cmocka_unit_test(capabilities_grant_by_whole_words),
        cmocka_unit_test(tokens_have_thirty_seconds_of_skew),
        cmocka_unit_test(isolation_must_be_exactly_that),
        cmocka_unit_test(health_ends_after_sixty_seconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
