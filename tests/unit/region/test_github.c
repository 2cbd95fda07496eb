#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "region/github.h"

struct expected {
    int status;
    const char *header;
    const char *value;
    const char *body;
    enum sbx_code code;
};

static const struct expected ANSWERS[] = {
    { 200, NULL, NULL, "{\"private\":true,\"archived\":false,\"permissions\":{\"push\":true}}",
      SBX_OK },
    { 200, NULL, NULL, "{\"private\":true,\"permissions\":{\"push\":true}}", SBX_OK },
    { 200, NULL, NULL, "{\"private\":false,\"permissions\":{\"push\":true}}",
      SBX_E_REPOSITORY_NOT_PRIVATE },
    { 200, NULL, NULL, "{\"private\":\"true\",\"permissions\":{\"push\":true}}",
      SBX_E_UNAVAILABLE },
    { 200, NULL, NULL, "{\"visibility\":\"private\"}", SBX_E_UNAVAILABLE },
    { 200, NULL, NULL, "{\"private\":true,\"permissions\":{\"push\":false}}",
      SBX_E_REPOSITORY_NO_PUSH },
    { 200, NULL, NULL, "{\"private\":true}", SBX_E_REPOSITORY_NO_PUSH },
    { 200, NULL, NULL, "{\"private\":true,\"archived\":true,\"permissions\":{\"push\":true}}",
      SBX_E_REPOSITORY_NO_PUSH },
    { 200, NULL, NULL, "<html>", SBX_E_UNAVAILABLE },
    { 401, NULL, NULL, "{}", SBX_E_GITHUB_CREDENTIAL },
    { 403, NULL, NULL, "{}", SBX_E_REPOSITORY_NO_PUSH },
    { 403, "Retry-After", "60", "{}", SBX_E_UNAVAILABLE },
    { 403, "x-ratelimit-remaining", "0", "{}", SBX_E_UNAVAILABLE },
    { 403, "x-ratelimit-remaining", "12", "{}", SBX_E_REPOSITORY_NO_PUSH },
    { 404, NULL, NULL, "{}", SBX_E_REPOSITORY_NO_PUSH },
    { 429, NULL, NULL, "{}", SBX_E_UNAVAILABLE },
    { 301, NULL, NULL, "{}", SBX_E_UNAVAILABLE },
    { 500, NULL, NULL, "{}", SBX_E_UNAVAILABLE },
    { 503, NULL, NULL, "", SBX_E_UNAVAILABLE },
};

static void each_answer_means_what_the_contract_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(ANSWERS); i++) {
        const struct expected *e = &ANSWERS[i];
        const struct net_header header = { e->header, e->value };
        const struct net_answer answer = {
            .phase = NET_ANSWERED,
            .status = e->status,
            .body = e->body,
            .body_len = strlen(e->body),
            .headers = &header,
            .header_count = e->header != NULL ? 1 : 0,
        };
        struct sbx_err err = { 0 };

        assert_int_equal(github_judge(&answer, &err), e->code);
    }
}

static void a_repository_is_an_owner_and_a_name(void **state)
{
    static const char *const BAD[] = { "",     "a",    "/",     "a/",      "/b",   "a/b/c",
                                       "../b", "a/..", "a/b?c", "a/b%2fc", "a b/c" };

    (void)state;
    assert_true(github_repository_valid("owner/name"));
    assert_true(github_repository_valid("o-1/n.a_me"));
    for (size_t i = 0; i < COUNT_OF(BAD); i++)
        assert_false(github_repository_valid(BAD[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_answer_means_what_the_contract_says),
        cmocka_unit_test(a_repository_is_an_owner_and_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
