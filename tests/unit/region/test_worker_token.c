#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "region/worker_token.h"
#include "unit/region/jwt.h"

/* Every refusal of a service token, in the contract's order. */

enum { NOW = 1800000000 };
#define ISSUER "https://openvibe.network"

static json_t *good(void)
{
    return json_pack("{s:s, s:s, s:s, s:[s,s], s:[s], s:i, s:i, s:s}", "iss", ISSUER, "sub",
                     "svc:codes-worker", "actor_type", "service", "aud", "openvibe.codes",
                     "openvibe.live", "cap", "live.agent_sandbox.register", "iat", NOW - 10, "exp",
                     NOW + 300, "jti", "12345678");
}

static enum sbx_code judge(json_t *claims)
{
    struct sbx_err err = { 0 };
    enum sbx_code code = region_worker_claims_judge(ISSUER, claims, NOW, &err);

    json_decref(claims);
    return code;
}

/* The good claims with one changed; value NULL: left out. */
static enum sbx_code with(const char *name, json_t *value)
{
    json_t *j = good();

    if (value == NULL)
        (void)json_object_del(j, name);
    else
        (void)json_object_set_new(j, name, value);
    return judge(j);
}

static void good_claims_pass(void **state)
{
    (void)state;
    assert_int_equal(judge(good()), SBX_OK);
    assert_int_equal(with("env", json_string("production")), SBX_OK);
    assert_int_equal(with("nbf", json_integer(NOW + 30)), SBX_OK);
    assert_int_equal(with("exp", json_integer(NOW - 30)), SBX_OK);
    assert_int_equal(with("cap", json_pack("[s,s]", "codes.run", "live.*")), SBX_OK);
    assert_int_equal(
        with("jti",
             json_string("\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9")),
        SBX_OK);
    assert_int_equal(with("other", json_true()), SBX_OK);
}

static void each_claim_has_its_refusal(void **state)
{
    (void)state;
    assert_int_equal(with("exp", json_integer(NOW - 31)), SBX_E_WORKER_TOKEN_EXPIRED);
    assert_int_equal(with("iat", json_integer(NOW + 31)), SBX_E_WORKER_TOKEN_EXPIRED);
    assert_int_equal(with("nbf", json_integer(NOW + 31)), SBX_E_WORKER_TOKEN_EXPIRED);
    assert_int_equal(with("iss", json_string("https://evil.example")), SBX_E_WORKER_TOKEN_ISSUER);
    assert_int_equal(with("iss", json_string(ISSUER "/")), SBX_E_WORKER_TOKEN_ISSUER);
    assert_int_equal(with("aud", json_pack("[s]", "openvibe.codes")), SBX_E_WORKER_TOKEN_AUDIENCE);
    assert_int_equal(with("aud", json_array()), SBX_E_WORKER_TOKEN_AUDIENCE);
    assert_int_equal(with("env", json_string("sandbox")), SBX_E_WORKER_TOKEN_SANDBOX);
    assert_int_equal(with("actor_type", json_string("person")), SBX_E_CAPABILITY_DENIED);
    assert_int_equal(with("sub", json_string("usr_01ARZ3NDEKTSV4RRFFQ69G5FAV")),
                     SBX_E_CAPABILITY_DENIED);
    assert_int_equal(with("cap", json_array()), SBX_E_CAPABILITY_DENIED);
    assert_int_equal(with("cap", json_pack("[s]", "*")), SBX_E_CAPABILITY_DENIED);
}

static void a_missing_or_mistyped_claim_is_invalid(void **state)
{
    static const char *const REQUIRED[] = { "iss", "sub", "actor_type", "aud",
                                            "cap", "iat", "exp",        "jti" };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(REQUIRED); i++) {
        assert_int_equal(with(REQUIRED[i], NULL), SBX_E_WORKER_TOKEN_CLAIMS);
        assert_int_equal(with(REQUIRED[i], json_null()), SBX_E_WORKER_TOKEN_CLAIMS);
        assert_int_equal(with(REQUIRED[i], json_true()), SBX_E_WORKER_TOKEN_CLAIMS);
        assert_int_equal(with(REQUIRED[i], json_object()), SBX_E_WORKER_TOKEN_CLAIMS);
    }
    assert_int_equal(with("aud", json_string("openvibe.live")), SBX_E_WORKER_TOKEN_CLAIMS);
    assert_int_equal(with("aud", json_pack("[s,i]", "openvibe.live", 1)),
                     SBX_E_WORKER_TOKEN_CLAIMS);
    assert_int_equal(with("cap", json_string("live.*")), SBX_E_WORKER_TOKEN_CLAIMS);
    assert_int_equal(with("cap", json_pack("[i]", 1)), SBX_E_WORKER_TOKEN_CLAIMS);
    assert_int_equal(with("exp", json_string("1900000000")), SBX_E_WORKER_TOKEN_CLAIMS);
    assert_int_equal(with("exp", json_real(NOW + 100.5)), SBX_E_WORKER_TOKEN_CLAIMS);
    assert_int_equal(with("nbf", json_string("0")), SBX_E_WORKER_TOKEN_CLAIMS);
    assert_int_equal(with("jti", json_string("1234567")), SBX_E_WORKER_TOKEN_CLAIMS);
    assert_int_equal(with("sub", json_string("")), SBX_E_WORKER_TOKEN_CLAIMS);
    assert_int_equal(with("env", json_true()), SBX_E_WORKER_TOKEN_CLAIMS);
}

static void the_first_failing_check_speaks(void **state)
{
    json_t *j = good();

    (void)state;
    /* everything is wrong; mended from the front, the next one speaks */
    (void)json_object_set_new(j, "exp", json_integer(1));
    (void)json_object_set_new(j, "iss", json_string("x"));
    (void)json_object_set_new(j, "aud", json_array());
    (void)json_object_set_new(j, "jti", json_integer(1));
    (void)json_object_set_new(j, "env", json_string("sandbox"));
    (void)json_object_set_new(j, "cap", json_array());
    assert_int_equal(judge(json_deep_copy(j)), SBX_E_WORKER_TOKEN_EXPIRED);
    (void)json_object_set_new(j, "exp", json_integer(NOW + 1));
    assert_int_equal(judge(json_deep_copy(j)), SBX_E_WORKER_TOKEN_ISSUER);
    (void)json_object_set_new(j, "iss", json_string(ISSUER));
    assert_int_equal(judge(json_deep_copy(j)), SBX_E_WORKER_TOKEN_AUDIENCE);
    (void)json_object_set_new(j, "aud", json_pack("[s]", "openvibe.live"));
    assert_int_equal(judge(json_deep_copy(j)), SBX_E_WORKER_TOKEN_CLAIMS);
    (void)json_object_set_new(j, "jti", json_string("123456789"));
    assert_int_equal(judge(json_deep_copy(j)), SBX_E_WORKER_TOKEN_SANDBOX);
    (void)json_object_del(j, "env");
    assert_int_equal(judge(j), SBX_E_CAPABILITY_DENIED);
}

static enum sbx_code judge_token(const struct region_worker_issuer *issuer, char *token)
{
    SCOPED_ARENA struct arena *a = arena_new();
    struct region_worker_token out = { 0 };
    struct sbx_err err = { 0 };
    enum sbx_code code = region_worker_token_judge(issuer, token, NOW, a, &out, &err);

    if (code == SBX_OK)
        assert_string_equal(out.subject, "svc:codes-worker");
    free(token);
    return code;
}

static void tokens_are_verified_before_their_claims(void **state)
{
    EVP_PKEY *key = jwt_rsa(2048), *other = jwt_rsa(2048), *ec = jwt_ec("P-256");
    json_t *claims = good();
    char *text = json_dumps(claims, 0), *pem = jwt_pem(key);
    char path[64];
    struct jwks_config c = { .file = path };
    struct jwks *keys = NULL;
    struct sbx_err err = { 0 };
    struct region_worker_issuer issuer = { NULL, ISSUER };
    FILE *f;
    char *jwks = jwt_jwks(jwt_jwk(key, "one"), jwt_jwk(ec, "two"));

    (void)state;
    (void)snprintf(path, sizeof(path), "/tmp/test_worker_token_%d", (int)getpid());
    f = fopen(path, "w");
    (void)fputs(jwks, f);
    (void)fclose(f);
    assert_int_equal(jwks_open(&c, NULL, &keys, &err), SBX_OK);

    /* no key: the form is still judged first */
    assert_int_equal(judge_token(&issuer, NULL), SBX_E_WORKER_TOKEN_MISSING);
    assert_int_equal(judge_token(&issuer, mem_strdup("wpt_0123456789")),
                     SBX_E_WORKER_TOKEN_MALFORMED);
    assert_int_equal(judge_token(&issuer, jwt_sign(key, "{\"alg\":\"RS256\"}", text)),
                     SBX_E_IDENTITY_UNAVAILABLE);
    issuer.keys = keys;
    assert_int_equal(judge_token(&issuer, NULL), SBX_E_WORKER_TOKEN_MISSING);
    assert_int_equal(judge_token(&issuer, mem_strdup("")), SBX_E_WORKER_TOKEN_MISSING);
    assert_int_equal(judge_token(&issuer, mem_strdup("hbt_0123456789")),
                     SBX_E_WORKER_TOKEN_MALFORMED);
    assert_int_equal(judge_token(&issuer, jwt_sign(key, "{\"alg\":\"none\"}", text)),
                     SBX_E_WORKER_TOKEN_MALFORMED);
    assert_int_equal(judge_token(&issuer, jwt_hmac(pem, "{\"alg\":\"HS256\"}", text)),
                     SBX_E_WORKER_TOKEN_MALFORMED);
    assert_int_equal(
        judge_token(&issuer, jwt_sign(ec, "{\"alg\":\"ES256\",\"kid\":\"two\"}", text)),
        SBX_E_WORKER_TOKEN_MALFORMED); /* RS256 only, though the key is there */
    assert_int_equal(judge_token(&issuer, jwt_sign(other, "{\"alg\":\"RS256\"}", "{}")),
                     SBX_E_WORKER_TOKEN_SIGNATURE);
    assert_int_equal(
        judge_token(&issuer, jwt_sign(key, "{\"alg\":\"RS256\",\"kid\":\"none\"}", text)),
        SBX_E_WORKER_TOKEN_SIGNATURE);
    assert_int_equal(judge_token(&issuer, jwt_sign(key, "{\"alg\":\"RS256\"}", "{}")),
                     SBX_E_WORKER_TOKEN_CLAIMS);
    assert_int_equal(judge_token(&issuer, jwt_sign(key, "{\"alg\":\"RS256\"}", text)), SBX_OK);
    assert_int_equal(
        judge_token(&issuer, jwt_sign(key, "{\"alg\":\"RS256\",\"kid\":\"one\"}", text)), SBX_OK);

    jwks_close(keys);
    (void)unlink(path);
    json_decref(claims);
    free(text);
    free(pem);
    free(jwks);
    EVP_PKEY_free(key);
    EVP_PKEY_free(other);
    EVP_PKEY_free(ec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_claims_pass),
        cmocka_unit_test(each_claim_has_its_refusal),
        cmocka_unit_test(a_missing_or_mistyped_claim_is_invalid),
        cmocka_unit_test(the_first_failing_check_speaks),
        cmocka_unit_test(tokens_are_verified_before_their_claims),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
