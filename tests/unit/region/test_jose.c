#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "region/jose.h"
#include "unit/region/jwt.h"

enum { ALL = JOSE_RS256 | JOSE_ES256 | JOSE_EDDSA };

static EVP_PKEY *rsa, *rsa2, *ec, *ed, *p384, *small;

static int make_keys(void **state)
{
    (void)state;
    rsa = jwt_rsa(2048);
    rsa2 = jwt_rsa(2048);
    ec = jwt_ec("P-256");
    ed = jwt_ed25519();
    p384 = jwt_ec("P-384");
    small = jwt_rsa(1024);
    return 0;
}

static int free_keys(void **state)
{
    EVP_PKEY *const all[] = { rsa, rsa2, ec, ed, p384, small };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(all); i++)
        EVP_PKEY_free(all[i]);
    return 0;
}

static struct jose_keys *parse(char *text)
{
    struct jose_keys *k = NULL;
    struct sbx_err err = { 0 };

    if (jose_keys_parse(text, strlen(text), &k, &err) != SBX_OK)
        assert_null(k);
    free(text);
    return k;
}

/* Verifies and forgets the token. */
static enum jose_verdict verify(const struct jose_keys *k, unsigned algs, char *token)
{
    json_t *claims = NULL;
    enum jose_verdict v = jose_verify(k, algs, token, &claims);

    assert_int_equal(v == JOSE_OK, claims != NULL);
    json_decref(claims);
    free(token);
    return v;
}

#define CLAIMS "{\"sub\":\"x\"}"

static void each_algorithm_verifies_with_jwks_and_pem(void **state)
{
    const struct {
        EVP_PKEY *key;
        const char *alg;
        unsigned flag;
    } ROWS[] = { { rsa, "RS256", JOSE_RS256 },
                 { ec, "ES256", JOSE_ES256 },
                 { ed, "EdDSA", JOSE_EDDSA } };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(ROWS); i++) {
        for (int pem = 0; pem < 2; pem++) {
            struct jose_keys *k =
                parse(pem ? jwt_pem(ROWS[i].key) : jwt_jwks(jwt_jwk(ROWS[i].key, "one"), NULL));
            char header[64];

            assert_non_null(k);
            assert_int_equal(jose_keys_count(k), 1);
            (void)snprintf(header, sizeof(header), "{\"alg\":\"%s\"}", ROWS[i].alg);
            assert_int_equal(verify(k, ALL, jwt_sign(ROWS[i].key, header, CLAIMS)), JOSE_OK);
            assert_int_equal(verify(k, ROWS[i].flag, jwt_sign(ROWS[i].key, header, CLAIMS)),
                             JOSE_OK);
            /* not in the allowed set */
            assert_int_equal(verify(k, ALL & ~ROWS[i].flag, jwt_sign(ROWS[i].key, header, CLAIMS)),
                             JOSE_ALG_REFUSED);
            jose_keys_free(k);
        }
    }
}

static void a_changed_token_is_refused(void **state)
{
    EVP_PKEY *const keys[] = { rsa, ec, ed };
    const char *const headers[] = { "{\"alg\":\"RS256\"}", "{\"alg\":\"ES256\"}",
                                    "{\"alg\":\"EdDSA\"}" };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        struct jose_keys *k = parse(jwt_jwks(jwt_jwk(keys[i], NULL), NULL));
        char *good = jwt_sign(keys[i], headers[i], CLAIMS);
        size_t len = strlen(good);

        /* any character of the payload or the signature (its last one may hold unused bits) */
        for (char *p = strchr(good, '.') + 1; p < good + len - 1; p += 7) {
            char kept = *p;

            if (kept == '.')
                continue;
            *p = kept == 'A' ? 'B' : 'A';
            assert_int_not_equal(verify(k, ALL, mem_strdup(good)), JOSE_OK);
            *p = kept;
        }
        assert_int_equal(verify(k, ALL, mem_strdup(good)), JOSE_OK);
        *strrchr(good, '.') = '\0';
        assert_int_equal(verify(k, ALL, mem_printf("%s.", good)), JOSE_MALFORMED);
        assert_int_equal(verify(k, ALL, mem_printf("%s.AAAA", good)), JOSE_BAD_SIGNATURE);
        free(good);
        jose_keys_free(k);
    }
}

static void none_and_hmac_are_refused(void **state)
{
    static const char *const HEADERS[] = {
        "{\"alg\":\"none\"}",  "{\"alg\":\"None\"}",    "{\"alg\":\"NONE\"}",
        "{\"alg\":\"HS256\"}", "{\"alg\":\"HS384\"}",   "{\"alg\":\"HS512\"}",
        "{\"alg\":\"RS512\"}", "{\"alg\":\"PS256\"}",   "{\"alg\":\"ES384\"}",
        "{\"alg\":\"rs256\"}", "{\"alg\":\"\"}",        "{\"alg\":1}",
        "{\"alg\":null}",      "{\"alg\":[\"RS256\"]}", "{\"typ\":\"JWT\"}",
    };
    struct jose_keys *k = parse(jwt_jwks(jwt_jwk(rsa, NULL), jwt_jwk(ec, NULL)));

    (void)state;
    for (size_t i = 0; i < COUNT_OF(HEADERS); i++) {
        char *unsigned_token = jwt_join(HEADERS[i], CLAIMS);

        assert_int_equal(verify(k, ALL, jwt_sign(rsa, HEADERS[i], CLAIMS)), JOSE_ALG_REFUSED);
        assert_int_equal(verify(k, ALL, mem_printf("%s.AAAA", unsigned_token)), JOSE_ALG_REFUSED);
        assert_int_equal(verify(k, ALL, mem_printf("%s.", unsigned_token)), JOSE_MALFORMED);
        assert_int_equal(verify(NULL, ALL, mem_printf("%s.AAAA", unsigned_token)),
                         JOSE_ALG_REFUSED);
        free(unsigned_token);
    }
    jose_keys_free(k);
}

/* The public key, known to everybody, must never serve as an HMAC secret. */
static void the_public_key_is_no_secret(void **state)
{
    char *pem = jwt_pem(rsa);
    char *jwk = jwt_jwks(jwt_jwk(rsa, "k"), NULL);
    struct jose_keys *k = parse(mem_strdup(pem));

    (void)state;
    assert_int_equal(verify(k, ALL, jwt_hmac(pem, "{\"alg\":\"HS256\"}", CLAIMS)),
                     JOSE_ALG_REFUSED);
    assert_int_equal(verify(k, ALL, jwt_hmac(jwk, "{\"alg\":\"HS256\"}", CLAIMS)),
                     JOSE_ALG_REFUSED);
    assert_int_equal(verify(k, ALL, jwt_hmac(pem, "{\"alg\":\"RS256\"}", CLAIMS)),
                     JOSE_BAD_SIGNATURE);
    free(pem);
    free(jwk);
    jose_keys_free(k);
}

/* A key serves only the algorithm of its own type, whatever the header says. */
static void algorithms_are_not_confused(void **state)
{
    EVP_PKEY *const keys[] = { rsa, ec, ed };
    const char *const algs[] = { "RS256", "ES256", "EdDSA" };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        struct jose_keys *k = parse(jwt_jwks(jwt_jwk(keys[i], "kid"), NULL));

        for (size_t j = 0; j < COUNT_OF(algs); j++) {
            char header[64];

            if (i == j)
                continue;
            (void)snprintf(header, sizeof(header), "{\"alg\":\"%s\",\"kid\":\"kid\"}", algs[j]);
            assert_int_equal(verify(k, ALL, jwt_sign(keys[i], header, CLAIMS)), JOSE_BAD_SIGNATURE);
            assert_int_equal(verify(k, ALL, jwt_sign(keys[j], header, CLAIMS)), JOSE_BAD_SIGNATURE);
        }
        jose_keys_free(k);
    }
}

/* A key that the token brings along is not looked at. */
static void a_key_in_the_header_is_ignored(void **state)
{
    json_t *jwk = jwt_jwk(rsa2, NULL);
    char *text = json_dumps(jwk, JSON_COMPACT);
    char *header = mem_printf("{\"alg\":\"RS256\",\"jwk\":%s}", text);
    struct jose_keys *k = parse(jwt_jwks(jwt_jwk(rsa, NULL), NULL));

    (void)state;
    assert_int_equal(verify(k, ALL, jwt_sign(rsa2, header, CLAIMS)), JOSE_BAD_SIGNATURE);
    assert_int_equal(
        verify(k, ALL,
               jwt_sign(rsa2, "{\"alg\":\"RS256\",\"jku\":\"http://127.0.0.1:1/\"}", CLAIMS)),
        JOSE_BAD_SIGNATURE);
    json_decref(jwk);
    free(text);
    free(header);
    jose_keys_free(k);
}

static void kids_choose_the_key(void **state)
{
    struct jose_keys *k = parse(jwt_jwks(jwt_jwk(rsa, "old"), jwt_jwk(rsa2, "new")));
    struct jose_keys *pem = parse(jwt_pem(rsa));

    (void)state;
    assert_int_equal(verify(k, ALL, jwt_sign(rsa, "{\"alg\":\"RS256\",\"kid\":\"old\"}", CLAIMS)),
                     JOSE_OK);
    assert_int_equal(verify(k, ALL, jwt_sign(rsa2, "{\"alg\":\"RS256\",\"kid\":\"new\"}", CLAIMS)),
                     JOSE_OK);
    assert_int_equal(verify(k, ALL, jwt_sign(rsa2, "{\"alg\":\"RS256\",\"kid\":\"old\"}", CLAIMS)),
                     JOSE_BAD_SIGNATURE);
    assert_int_equal(verify(k, ALL, jwt_sign(rsa, "{\"alg\":\"RS256\",\"kid\":\"other\"}", CLAIMS)),
                     JOSE_KID_UNKNOWN);
    assert_int_equal(verify(k, ALL, jwt_sign(rsa2, "{\"alg\":\"RS256\"}", CLAIMS)), JOSE_OK);
    assert_int_equal(verify(k, ALL, jwt_sign(rsa2, "{\"alg\":\"RS256\",\"kid\":7}", CLAIMS)),
                     JOSE_MALFORMED);
    /* a PEM key has no kid: it serves any */
    assert_int_equal(verify(pem, ALL, jwt_sign(rsa, "{\"alg\":\"RS256\",\"kid\":\"any\"}", CLAIMS)),
                     JOSE_OK);
    jose_keys_free(k);
    jose_keys_free(pem);
}

static void malformed_tokens(void **state)
{
    static const char *const BAD[] = {
        "",
        ".",
        "..",
        "...",
        "a.b",
        "a.b.c.d",
        "wpt_0123456789",
        "hbt_0123456789",
        "a.b.",
        ".b.c",
        "a..c",
        "a b.c.d",
        "a=.b.c",
        "a+.b/.c",
        "eyJhbGciOiJSUzI1NiJ9.e30.A\n",
        "eyJhbGciOiJSUzI1NiJ9.bm90IGpzb24.AAAA",
        "bm90IGpzb24.e30.AAAA",
        "W10.e30.AAAA",
        "eyJhbGciOiJSUzI1NiJ9.W10.AAAA",
    };
    static const char *const HEADERS[] = {
        "{\"alg\":\"RS256\",\"crit\":[\"b64\"]}",
        "{\"alg\":\"RS256\",\"b64\":false}",
        "{\"alg\":\"RS256\",\"zip\":\"DEF\"}",
        "{\"alg\":\"RS256\",\"alg\":\"RS256\"}",
        "{\"alg\":\"RS256\"} x",
    };
    struct jose_keys *k = parse(jwt_pem(rsa));
    char *huge = mem_zalloc(JOSE_TOKEN_MAX + 2);

    (void)state;
    for (size_t i = 0; i < COUNT_OF(BAD); i++)
        assert_int_equal(verify(k, ALL, mem_strdup(BAD[i])), JOSE_MALFORMED);
    for (size_t i = 0; i < COUNT_OF(HEADERS); i++)
        assert_int_equal(verify(k, ALL, jwt_sign(rsa, HEADERS[i], CLAIMS)), JOSE_MALFORMED);
    assert_int_equal(verify(k, ALL, jwt_sign(rsa, "{\"alg\":\"RS256\"}", "[]")), JOSE_MALFORMED);
    assert_int_equal(verify(k, ALL, jwt_sign(rsa, "{\"alg\":\"RS256\"}", "{\"a\":1,\"a\":1}")),
                     JOSE_MALFORMED);
    memset(huge, 'a', JOSE_TOKEN_MAX + 1);
    huge[5] = huge[9] = '.';
    assert_int_equal(verify(k, ALL, huge), JOSE_MALFORMED);
    assert_false(jose_looks_like_jws("wpt_0123"));
    assert_true(jose_looks_like_jws("a.b.c"));
    assert_null(jose_peek_claims("a.b.c"));
    jose_keys_free(k);
}

static void no_keys_is_told_apart(void **state)
{
    (void)state;
    assert_int_equal(verify(NULL, ALL, jwt_sign(rsa, "{\"alg\":\"RS256\"}", CLAIMS)), JOSE_NO_KEYS);
}

static json_t *with(json_t *jwk, const char *name, json_t *value)
{
    json_put_new(jwk, name, value);
    return jwk;
}

static void unusable_keys_are_skipped(void **state)
{
    struct jose_keys *k;
    char *text;

    (void)state;
    assert_null(parse(mem_strdup("")));
    assert_null(parse(mem_strdup("{")));
    assert_null(parse(mem_strdup("{}")));
    assert_null(parse(mem_strdup("{\"keys\":[]}")));
    assert_null(parse(mem_strdup("{\"keys\":[1,null,{\"kty\":\"RSA\"}]}")));
    assert_null(parse(mem_strdup("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n")));
    assert_null(parse(jwt_jwks(jwt_jwk(small, NULL), NULL))); /* 1024 bits */
    assert_null(parse(jwt_pem(small)));
    assert_null(parse(jwt_jwks(jwt_jwk(p384, NULL), NULL)));
    assert_null(parse(jwt_pem(p384)));
    assert_null(parse(jwt_jwks(with(jwt_jwk(rsa, NULL), "use", json_string("enc")), NULL)));
    assert_null(
        parse(jwt_jwks(with(jwt_jwk(rsa, NULL), "key_ops", json_pack("[s]", "encrypt")), NULL)));
    assert_null(parse(jwt_jwks(with(jwt_jwk(rsa, NULL), "alg", json_string("RS512")), NULL)));
    assert_null(parse(jwt_jwks(with(jwt_jwk(rsa, NULL), "d", json_string("AQAB")), NULL)));
    assert_null(parse(jwt_jwks(json_pack("{s:s,s:s}", "kty", "oct", "k", "c2VjcmV0"), NULL)));
    k = parse(jwt_jwks(
        with(with(jwt_jwk(rsa, NULL), "use", json_string("sig")), "alg", json_string("RS256")),
        json_pack("{s:s,s:s}", "kty", "oct", "k", "c2VjcmV0")));
    assert_int_equal(jose_keys_count(k), 1);
    jose_keys_free(k);
    /* several PEM blocks, with words between them */
    {
        char *one = jwt_pem(rsa), *two = jwt_pem(ed);

        text = mem_printf("first\n%ssecond\n%s", one, two);
        free(one);
        free(two);
    }
    k = parse(text);
    assert_int_equal(jose_keys_count(k), 2);
    assert_int_equal(verify(k, ALL, jwt_sign(ed, "{\"alg\":\"EdDSA\"}", CLAIMS)), JOSE_OK);
    jose_keys_free(k);
}

static void key_sets_are_bounded(void **state)
{
    json_t *keys = json_array(), *set = json_pack("{s:o}", "keys", keys);

    (void)state;
    for (int i = 0; i <= JOSE_KEYS_MAX; i++) {
        (void)json_array_append_new(keys, jwt_jwk(ed, NULL));
        if (i >= JOSE_KEYS_MAX - 1) {
            struct jose_keys *k = parse(json_dumps(set, 0));

            assert_int_equal(k != NULL, i == JOSE_KEYS_MAX - 1);
            jose_keys_free(k);
        }
    }
    json_decref(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_algorithm_verifies_with_jwks_and_pem),
        cmocka_unit_test(a_changed_token_is_refused),
        cmocka_unit_test(none_and_hmac_are_refused),
        cmocka_unit_test(the_public_key_is_no_secret),
        cmocka_unit_test(algorithms_are_not_confused),
        cmocka_unit_test(a_key_in_the_header_is_ignored),
        cmocka_unit_test(kids_choose_the_key),
        cmocka_unit_test(malformed_tokens),
        cmocka_unit_test(no_keys_is_told_apart),
        cmocka_unit_test(unusable_keys_are_skipped),
        cmocka_unit_test(key_sets_are_bounded),
    };
    return cmocka_run_group_tests(tests, make_keys, free_keys);
}
