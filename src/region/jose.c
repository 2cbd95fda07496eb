#include "region/jose.h"

#include <pthread.h>
#include <rhonabwy.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"

enum { RSA_BITS_MAX = 8192, REMOTE = R_FLAG_IGNORE_REMOTE };

struct key {
    jwk_t *jwk;
    enum jose_alg alg; /* the only one that the key serves */
    char *kid;         /* NULL: none */
};

struct jose_keys {
    struct key keys[JOSE_KEYS_MAX];
    size_t count;
};

static const struct {
    const char *name;
    enum jose_alg alg;
    jwa_alg theirs;
    const char *kty;
    const char *crv; /* NULL: none */
    const char *members[4];
} ALGS[] = {
    { "RS256", JOSE_RS256, R_JWA_ALG_RS256, "RSA", NULL, { "n", "e" } },
    { "ES256", JOSE_ES256, R_JWA_ALG_ES256, "EC", "P-256", { "crv", "x", "y" } },
    { "EdDSA", JOSE_EDDSA, R_JWA_ALG_EDDSA, "OKP", "Ed25519", { "crv", "x" } },
};

static void init_library(void)
{
    if (r_global_init() != RHN_OK)
        abort();
}

static void init_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, init_library);
}

/* --- keys --- */

static void free_jwk(jwk_t **jwk)
{
    if (*jwk != NULL)
        r_jwk_free(*jwk);
}

static size_t bits_of(const char *base64url)
{
    SCOPED_BUF struct buf b = BUF_INIT(4096);
    size_t zeros = 0;

    if (!base64_url_decode(&b, base64url, strlen(base64url)))
        return 0;
    while (zeros < b.len && b.data[zeros] == 0)
        zeros++;
    return 8 * (b.len - zeros);
}

static bool lists_verify(const json_t *ops)
{
    const json_t *op;
    size_t i;

    json_array_foreach(ops, i, op)
    {
        if (json_is_string(op) && strcmp(json_string_value(op), "verify") == 0)
            return true;
    }
    return false;
}

/* The row of ALGS that the key serves, or -1: another kind, another use, not public. */
static int row_of(const json_t *key)
{
    const char *kty = json_get_str(key, "kty", ""), *crv = json_get_str(key, "crv", NULL);
    const char *use = json_get_str(key, "use", "sig"), *alg = json_get_str(key, "alg", NULL);
    const json_t *ops = json_object_get(key, "key_ops");

    if (json_object_get(key, "d") != NULL || json_object_get(key, "k") != NULL ||
        strcmp(use, "sig") != 0 || (ops != NULL && !lists_verify(ops)))
        return -1;
    for (size_t i = 0; i < COUNT_OF(ALGS); i++) {
        if (strcmp(kty, ALGS[i].kty) != 0 ||
            (ALGS[i].crv != NULL && (crv == NULL || strcmp(crv, ALGS[i].crv) != 0)) ||
            (alg != NULL && strcmp(alg, ALGS[i].name) != 0))
            continue;
        if (ALGS[i].alg == JOSE_RS256) {
            size_t bits = bits_of(json_get_str(key, "n", ""));

            return bits >= JOSE_RSA_BITS_MIN && bits <= RSA_BITS_MAX ? (int)i : -1;
        }
        return (int)i;
    }
    return -1;
}

/* Takes jwk. */
static bool add_key(struct jose_keys *k, jwk_t *jwk, int row, const char *kid)
{
    if (k->count == JOSE_KEYS_MAX) {
        r_jwk_free(jwk);
        return false;
    }
    k->keys[k->count++] = (struct key){ jwk, ALGS[row].alg, kid != NULL ? mem_strdup(kid) : NULL };
    return true;
}

/* Only the public members are given to the library. */
static bool add_json_key(struct jose_keys *k, const json_t *key)
{
    int row = json_is_object(key) ? row_of(key) : -1;
    SCOPED_JSON json_t *clean = json_object();
    SCOPED(free_jwk) jwk_t *jwk = NULL;

    if (row < 0)
        return true;
    json_put_str(clean, "kty", ALGS[row].kty);
    for (size_t i = 0; i < COUNT_OF(ALGS[row].members) && ALGS[row].members[i] != NULL; i++)
        json_put_str(clean, ALGS[row].members[i], json_get_str(key, ALGS[row].members[i], ""));
    if (r_jwk_init(&jwk) != RHN_OK)
        abort();
    if (r_jwk_import_from_json_t(jwk, clean) != RHN_OK ||
        (r_jwk_key_type(jwk, NULL, REMOTE) & R_KEY_TYPE_PUBLIC) == 0)
        return true; /* not a key after all: skipped as other kinds are */
    return add_key(k, STEAL(jwk), row, json_get_str(key, "kid", NULL));
}

static bool add_jwks(struct jose_keys *k, const json_t *set)
{
    const json_t *keys = json_object_get(set, "keys"), *key;
    size_t i;

    if (keys == NULL)
        return add_json_key(k, set); /* one bare key */
    json_array_foreach(keys, i, key)
    {
        if (!add_json_key(k, key))
            return false;
    }
    return true;
}

/* A PEM key goes through its JWK form, so that both ways are judged by the same rows. */
static bool add_pem_block(struct jose_keys *k, const char *block, size_t len)
{
    int type = len > 27 && memcmp(block, "-----BEGIN CERTIFICATE-----", 27) == 0
                   ? R_X509_TYPE_CERTIFICATE
                   : R_X509_TYPE_PUBKEY;
    SCOPED(free_jwk) jwk_t *jwk = NULL;
    SCOPED_JSON json_t *j = NULL;

    if (r_jwk_init(&jwk) != RHN_OK)
        abort();
    if (r_jwk_import_from_pem_der(jwk, type, R_FORMAT_PEM, (const unsigned char *)block, len) !=
        RHN_OK)
        return true;
    j = r_jwk_export_to_json_t(jwk);
    if (j == NULL)
        return true;
    (void)json_object_del(j, "kid"); /* made up by the library */
    (void)json_object_del(j, "alg");
    return add_json_key(k, j);
}

static bool add_pem(struct jose_keys *k, const char *text, size_t len)
{
    static const char BEGIN[] = "-----BEGIN ", END[] = "-----END ", DASHES[] = "-----";
    const char *p = text, *end = text + len;

    for (;;) {
        const char *from = memmem(p, (size_t)(end - p), BEGIN, strlen(BEGIN));
        const char *to = from != NULL ? memmem(from, (size_t)(end - from), END, strlen(END)) : NULL;
        const char *past = to != NULL ? memmem(to + strlen(END), (size_t)(end - to) - strlen(END),
                                               DASHES, strlen(DASHES))
                                      : NULL;

        if (past == NULL)
            return true;
        p = past + strlen(DASHES);
        if (!add_pem_block(k, from, (size_t)(p - from)))
            return false;
    }
}

enum sbx_code jose_keys_parse(const void *text, size_t len, struct jose_keys **out,
                              struct sbx_err *err)
{
    struct jose_keys *k;
    SCOPED_JSON json_t *j = NULL;
    struct sbx_err why = { 0 };
    const char *p = text;
    size_t blank = 0;
    bool fits;

    while (blank < len && strchr(" \t\r\n", p[blank]) != NULL)
        blank++;
    if (len > JOSE_KEYS_TEXT_MAX)
        return err_set(err, SBX_E_INVALID, "the key text is larger than %d bytes",
                       JOSE_KEYS_TEXT_MAX);
    init_once();
    if (blank < len && p[blank] == '{' && json_parse_object(text, len, &j, &why) != SBX_OK)
        return err_set(err, SBX_E_INVALID, "the key text is no JWKS: %s", why.msg);
    k = mem_zalloc(sizeof(*k));
    fits = j != NULL ? add_jwks(k, j) : add_pem(k, text, len);
    if (!fits || k->count == 0) {
        jose_keys_free(k);
        return err_set(err, SBX_E_INVALID,
                       fits ? "the key text has no usable public key (RSA of at least 2048 bits, "
                              "P-256 or Ed25519)"
                            : "the key text has too many keys");
    }
    *out = k;
    return SBX_OK;
}

void jose_keys_free(struct jose_keys *k)
{
    if (k == NULL)
        return;
    for (size_t i = 0; i < k->count; i++) {
        r_jwk_free(k->keys[i].jwk);
        free(k->keys[i].kid);
    }
    free(k);
}

size_t jose_keys_count(const struct jose_keys *k)
{
    return k->count;
}

/* --- tokens --- */

struct parts {
    const char *part[3];
    size_t len[3];
};

static bool split(const char *token, struct parts *p)
{
    static const char ALPHABET[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                   "0123456789-_";
    const char *at = token;

    if (strnlen(token, JOSE_TOKEN_MAX + 1) > JOSE_TOKEN_MAX)
        return false;
    for (size_t i = 0; i < 3; i++) {
        p->part[i] = at;
        p->len[i] = strspn(at, ALPHABET);
        at += p->len[i];
        if (p->len[i] == 0 || *at != (i < 2 ? '.' : '\0'))
            return false;
        at++;
    }
    return true;
}

bool jose_looks_like_jws(const char *token)
{
    struct parts p;

    return split(token, &p);
}

static json_t *decode_object(const char *text, size_t len)
{
    SCOPED_BUF struct buf b = BUF_INIT(JOSE_TOKEN_MAX);
    struct sbx_err ignored = { 0 };
    json_t *j = NULL;

    if (!base64_url_decode(&b, text, len) ||
        json_parse_object(b.data, b.len, &j, &ignored) != SBX_OK)
        return NULL;
    return j;
}

json_t *jose_peek_claims(const char *token)
{
    struct parts p;

    return split(token, &p) ? decode_object(p.part[1], p.len[1]) : NULL;
}

static int alg_row(const char *name)
{
    for (size_t i = 0; name != NULL && i < COUNT_OF(ALGS); i++) {
        if (strcmp(name, ALGS[i].name) == 0)
            return (int)i;
    }
    return -1;
}

static bool verify_with(const char *token, const struct key *key, int row)
{
    jws_t *jws = NULL;
    bool ok;

    if (r_jws_init(&jws) != RHN_OK)
        abort();
    ok = r_jws_advanced_parse(jws, token, R_PARSE_NONE, REMOTE) == RHN_OK &&
         r_jws_get_alg(jws) == ALGS[row].theirs &&
         r_jws_verify_signature(jws, key->jwk, REMOTE) == RHN_OK;
    r_jws_free(jws);
    return ok;
}

static bool kid_fits(const struct key *key, const char *kid)
{
    return kid == NULL || key->kid == NULL || strcmp(key->kid, kid) == 0;
}

static enum jose_verdict try_keys(const struct jose_keys *k, int row, const char *kid,
                                  const char *token)
{
    bool known = kid == NULL;

    for (size_t i = 0; i < k->count; i++) {
        known = known || (k->keys[i].kid != NULL && strcmp(k->keys[i].kid, kid) == 0);
        if (k->keys[i].alg == ALGS[row].alg && kid_fits(&k->keys[i], kid) &&
            verify_with(token, &k->keys[i], row))
            return JOSE_OK;
    }
    return known ? JOSE_BAD_SIGNATURE : JOSE_KID_UNKNOWN;
}

enum jose_verdict jose_verify(const struct jose_keys *keys, unsigned algs, const char *token,
                              json_t **claims)
{
    SCOPED_JSON json_t *header = NULL;
    SCOPED_JSON json_t *payload = NULL;
    enum jose_verdict verdict;
    const json_t *kid;
    struct parts p;
    int row;

    if (!split(token, &p))
        return JOSE_MALFORMED;
    header = decode_object(p.part[0], p.len[0]);
    payload = decode_object(p.part[1], p.len[1]);
    kid = json_object_get(header, "kid");
    if (header == NULL || payload == NULL || (kid != NULL && !json_is_string(kid)) ||
        json_object_get(header, "crit") != NULL || json_object_get(header, "b64") != NULL ||
        json_object_get(header, "zip") != NULL)
        return JOSE_MALFORMED;
    row = alg_row(json_get_str(header, "alg", NULL));
    if (row < 0 || (algs & (unsigned)ALGS[row].alg) == 0)
        return JOSE_ALG_REFUSED;
    if (keys == NULL || keys->count == 0)
        return JOSE_NO_KEYS;
    verdict = try_keys(keys, row, json_string_value(kid), token);
    if (verdict == JOSE_OK)
        *claims = STEAL(payload);
    return verdict;
}
