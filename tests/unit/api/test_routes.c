#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "api/access.h"
#include "api/auth.h"
#include "api/call.h"
#include "api/options.h"
#include "base/id.h"
#include "base/json.h"
#include "http/route.h"

static void both_tables_are_complete(void **state)
{
    struct sbx_err err = { 0 };

    (void)state;
    if (route_check(API_PUBLIC, API_PUBLIC_COUNT, &err) != SBX_OK)
        fail_msg("%s", err.msg);
    if (route_check(API_ADMIN, API_ADMIN_COUNT, &err) != SBX_OK)
        fail_msg("%s", err.msg);
}

/* The column that protects: exactly one scope and some role for a person, a permission for a
 * principal, nothing of an account without either. */
static void every_public_row_says_who_may_call(void **state)
{
    (void)state;
    for (size_t t = 0; t < API_PUBLIC_COUNT; t++) {
        for (size_t i = 0; i < API_PUBLIC[t].count; i++) {
            const struct route *r = &API_PUBLIC[t].routes[i];
            const struct api_spec *s = r->spec;

            assert_int_not_equal(r->auth, API_AUTH_UNSET);
            if (r->auth == API_AUTH_PERSON) {
                assert_int_not_equal(s->scope, 0);
                assert_int_equal(s->scope & (s->scope - 1), 0);
            }
            if (r->auth == API_AUTH_PERSON || r->auth == API_AUTH_OWNER)
                assert_int_not_equal(s->roles, 0);
            if (r->auth == API_AUTH_PRINCIPAL)
                assert_int_not_equal(s->permission, 0);
            if (r->auth != API_AUTH_NONE && r->method == HTTP_GET && s != NULL)
                assert_int_not_equal(s->scope, SCOPE_WRITE_DANGEROUS);
            if (r->auth == API_AUTH_PERSON && r->method == HTTP_POST) {
                assert_int_equal(s->roles, ROLES_WRITE);
                assert_int_not_equal(s->scope, SCOPE_READ);
                assert_non_null(s->action);
                assert_non_null(s->answer);
            }
        }
    }
}

static void the_admin_table_is_for_operators(void **state)
{
    (void)state;
    for (size_t t = 0; t < API_ADMIN_COUNT; t++) {
        for (size_t i = 0; i < API_ADMIN[t].count; i++) {
            const struct route *r = &API_ADMIN[t].routes[i];

            if (strncmp(r->path, "/admin/", 7) == 0)
                assert_int_equal(r->auth, API_AUTH_OPERATOR);
        }
    }
}

static struct api_caller caller(const char *token_id)
{
    struct api_caller c = { .kind = STORE_TOKEN_USER };

    memcpy(c.token_id, token_id, strlen(token_id));
    return c;
}

static const unsigned char DIGEST[SHA256_LEN] = { 7 };

static void a_token_is_kept_until_it_is_revoked(void **state)
{
    struct api_tokens *t = api_tokens_new(64, 30, 0, 0);
    struct api_caller in = caller("a"), out;
    uint64_t epoch;

    (void)state;
    assert_int_equal(api_tokens_get(t, DIGEST, &out, &epoch), API_FOUND_NO);
    api_tokens_put(t, DIGEST, &in, 0, epoch);
    assert_int_equal(api_tokens_count(t), 0); /* it begins off */
    api_tokens_enable(t, true);
    (void)api_tokens_get(t, DIGEST, &out, &epoch);
    api_tokens_put(t, DIGEST, &in, 0, epoch);
    assert_int_equal(api_tokens_get(t, DIGEST, &out, &epoch), API_FOUND_YES);
    assert_string_equal(out.token_id, "a");
    api_tokens_revoke(t, "b");
    assert_int_equal(api_tokens_get(t, DIGEST, &out, &epoch), API_FOUND_YES);
    api_tokens_revoke(t, "a");
    assert_int_equal(api_tokens_get(t, DIGEST, &out, &epoch), API_FOUND_NO);
    api_tokens_free(t);
}

/* Looked up before the revocation, put after it: it must not come back. */
static void what_was_read_before_a_revocation_is_not_kept(void **state)
{
    struct api_tokens *t = api_tokens_new(64, 30, 0, 0);
    struct api_caller in = caller("a"), out;
    uint64_t epoch;

    (void)state;
    api_tokens_enable(t, true);
    (void)api_tokens_get(t, DIGEST, &out, &epoch);
    api_tokens_revoke(t, "a");
    api_tokens_put(t, DIGEST, &in, 0, epoch);
    assert_int_equal(api_tokens_get(t, DIGEST, &out, &epoch), API_FOUND_NO);
    api_tokens_put(t, DIGEST, &in, 0, epoch);
    api_tokens_enable(t, false);
    assert_int_equal(api_tokens_get(t, DIGEST, &out, &epoch), API_FOUND_NO);
    api_tokens_free(t);
}

static void the_cache_is_bounded(void **state)
{
    struct api_tokens *t = api_tokens_new(64, 30, 0, 0);
    struct api_caller in = caller("a"), out;
    unsigned char digest[SHA256_LEN];
    uint64_t epoch;

    (void)state;
    api_tokens_enable(t, true);
    for (int i = 0; i < 1000; i++) {
        random_bytes(digest, sizeof(digest));
        (void)api_tokens_get(t, digest, &out, &epoch);
        api_tokens_put(t, digest, &in, 0, epoch);
    }
    assert_true(api_tokens_count(t) <= 64);
    assert_int_equal(api_tokens_get(t, digest, &out, &epoch), API_FOUND_YES); /* the last one */
    api_tokens_free(t);
}

static void a_rate_is_held(void **state)
{
    struct api_tokens *t = api_tokens_new(64, 30, 1, 3);
    struct api_caller in = caller("a"), out;
    uint64_t epoch;
    int served = 0;

    (void)state;
    api_tokens_enable(t, true);
    (void)api_tokens_get(t, DIGEST, &out, &epoch);
    api_tokens_put(t, DIGEST, &in, 0, epoch);
    for (int i = 0; i < 10; i++)
        served += api_tokens_get(t, DIGEST, &out, &epoch) == API_FOUND_YES;
    assert_true(served >= 2 &&
                served <= 3); /* the one that made the entry was the first of three */
    api_tokens_free(t);
}

static void access_is_kept_for_members_only(void **state)
{
    struct api_accesses *t = api_accesses_new(16, 30);
    struct api_access in = { .member = true, .entitled = true, .roles = ROLE_ADMIN }, out;
    char account[ID_SIZE], user[ID_SIZE];
    uint64_t epoch;

    (void)state;
    id_new(account);
    id_new(user);
    api_accesses_enable(t, true);
    assert_false(api_accesses_get(t, account, user, &out, &epoch));
    api_accesses_put(t, account, user, &(struct api_access){ 0 }, epoch);
    assert_false(api_accesses_get(t, account, user, &out, &epoch));
    api_accesses_put(t, account, user, &in, epoch);
    assert_true(api_accesses_get(t, account, user, &out, &epoch));
    assert_false(api_accesses_get(t, user, account, &out, &epoch));
    assert_false(api_accesses_get(t, "not an id", user, &out, &epoch));
    (void)api_accesses_get(t, account, user, &out, &epoch);
    api_accesses_forget(t);
    assert_false(api_accesses_get(t, account, user, &out, &epoch));
    api_accesses_free(t);
}

static void the_description_names_every_public_path(void **state)
{
    struct api_bounds bounds;
    struct buf b = BUF_INIT((size_t)4 * 1024 * 1024);
    json_t *doc, *paths;

    (void)state;
    api_bounds_default(&bounds);
    api_print_openapi(&bounds, &b);
    doc = json_from_text(b.data);
    paths = json_object_get(doc, "paths");
    for (size_t t = 0; t < API_PUBLIC_COUNT; t++) {
        for (size_t i = 0; i < API_PUBLIC[t].count; i++) {
            const struct route *r = &API_PUBLIC[t].routes[i];
            bool told = r->auth == API_AUTH_PERSON || r->auth == API_AUTH_OWNER ||
                        r->auth == API_AUTH_PRINCIPAL;

            if (told)
                assert_non_null(json_object_get(paths, r->path));
        }
    }
    json_decref(doc);
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_tables_are_complete),
        cmocka_unit_test(every_public_row_says_who_may_call),
        cmocka_unit_test(the_admin_table_is_for_operators),
        cmocka_unit_test(a_token_is_kept_until_it_is_revoked),
        cmocka_unit_test(what_was_read_before_a_revocation_is_not_kept),
        cmocka_unit_test(the_cache_is_bounded),
        cmocka_unit_test(a_rate_is_held),
        cmocka_unit_test(access_is_kept_for_members_only),
        cmocka_unit_test(the_description_names_every_public_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
