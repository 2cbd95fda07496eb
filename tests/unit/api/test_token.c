#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "api/token.h"

static void a_made_token_parses_as_its_kind(void **state)
{
    (void)state;
    for (int k = API_TOKEN_NONE + 1; k < API_TOKEN_KIND_COUNT; k++) {
        char token[API_TOKEN_SIZE];
        enum api_token_kind kind = API_TOKEN_NONE;

        api_token_make((enum api_token_kind)k, token);
        assert_true(api_token_parse(token, strlen(token), &kind));
        assert_int_equal(kind, k);
    }
}

/* Any one changed character is noticed: the kind, the random part, the checksum. */
static void a_changed_token_is_refused(void **state)
{
    char token[API_TOKEN_SIZE];
    enum api_token_kind kind;
    size_t len;

    (void)state;
    api_token_make(API_TOKEN_USER, token);
    len = strlen(token);
    for (size_t i = 0; i < len; i++) {
        char was = token[i];

        token[i] = was == 'a' ? 'b' : 'a';
        assert_false(api_token_parse(token, len, &kind));
        token[i] = was;
    }
    assert_true(api_token_parse(token, len, &kind));
    assert_false(api_token_parse(token, len - 1, &kind));
}

static void other_text_is_refused(void **state)
{
    static const char *const texts[] = {
        "",
        "sbx_",
        "sbx_user_",
        "sbx_user",
        "Bearer",
        "sbx__0000",
        "eyJhbGciOiJub25lIn0.e30.",
        "sbx_root_0000000000000000000000000000000000000000000000000",
    };
    enum api_token_kind kind;

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        assert_false(api_token_parse(texts[i], strlen(texts[i]), &kind));
}

/* Contract 1: "Authorization: TOKEN" and "Authorization: Bearer TOKEN" mean the same. */
static void the_header_has_two_forms(void **state)
{
    static const char *const good[] = { "abc.def", "Bearer abc.def", "bearer  abc.def ",
                                        "BEARER\tabc.def", " abc.def" };
    static const char *const bad[] = { "", " ", "Bearer ", "Basic abc", "Bearer a b", "a b" };
    const char *token;
    size_t len;

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_true(api_token_from_header(good[i], &token, &len));
        assert_int_equal(len, 7);
        assert_memory_equal(token, "abc.def", 7);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(api_token_from_header(bad[i], &token, &len));
    assert_false(api_token_from_header(NULL, &token, &len));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_made_token_parses_as_its_kind),
        cmocka_unit_test(a_changed_token_is_refused),
        cmocka_unit_test(other_text_is_refused),
        cmocka_unit_test(the_header_has_two_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
