#ifndef TESTS_REGION_JWT_H
#define TESTS_REGION_JWT_H

/* Keys and tokens made with OpenSSL's EVP, not with the library under test. */

#include <assert.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"

static inline EVP_PKEY *jwt_rsa(int bits)
{
    return EVP_RSA_gen((unsigned)bits);
}

static inline EVP_PKEY *jwt_ec(const char *curve)
{
    return EVP_EC_gen(curve);
}

static inline EVP_PKEY *jwt_ed25519(void)
{
    return EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
}

static inline char *jwt_b64(const void *data, size_t len)
{
    struct buf b = BUF_INIT(65536);
    bool ok = base64_url_encode(&b, data, len);

    assert(ok);
    return buf_take(&b);
}

static inline void jwt_put_bn(json_t *j, const char *name, EVP_PKEY *key, const char *param,
                              int pad)
{
    BIGNUM *n = NULL;
    unsigned char raw[2048];
    int len;
    char *text;

    if (EVP_PKEY_get_bn_param(key, param, &n) != 1)
        abort();
    len = pad > 0 ? BN_bn2binpad(n, raw, pad) : BN_bn2bin(n, raw);
    text = jwt_b64(raw, (size_t)len);
    json_put_str(j, name, text);
    free(text);
    BN_free(n);
}

/* The public key as a JWK; kid may be NULL. */
static inline json_t *jwt_jwk(EVP_PKEY *key, const char *kid)
{
    json_t *j = json_object();

    json_put_str(j, "kid", kid);
    if (EVP_PKEY_is_a(key, "RSA")) {
        json_put_str(j, "kty", "RSA");
        jwt_put_bn(j, "n", key, OSSL_PKEY_PARAM_RSA_N, 0);
        jwt_put_bn(j, "e", key, OSSL_PKEY_PARAM_RSA_E, 0);
    } else if (EVP_PKEY_is_a(key, "EC")) {
        char curve[64];
        size_t len;
        int bytes = (EVP_PKEY_get_bits(key) + 7) / 8;

        (void)EVP_PKEY_get_group_name(key, curve, sizeof(curve), &len);
        json_put_str(j, "kty", "EC");
        json_put_str(j, "crv", strcmp(curve, "prime256v1") == 0 ? "P-256" : "P-384");
        jwt_put_bn(j, "x", key, OSSL_PKEY_PARAM_EC_PUB_X, bytes);
        jwt_put_bn(j, "y", key, OSSL_PKEY_PARAM_EC_PUB_Y, bytes);
    } else {
        unsigned char raw[64];
        size_t len = sizeof(raw);
        char *text;

        (void)EVP_PKEY_get_raw_public_key(key, raw, &len);
        text = jwt_b64(raw, len);
        json_put_str(j, "kty", "OKP");
        json_put_str(j, "crv", "Ed25519");
        json_put_str(j, "x", text);
        free(text);
    }
    return j;
}

/* {"keys":[...]}; takes the keys. */
static inline char *jwt_jwks(json_t *a, json_t *b)
{
    json_t *j = json_pack("{s:[o]}", "keys", a);
    char *text;

    if (b != NULL)
        (void)json_array_append_new(json_object_get(j, "keys"), b);
    text = json_dumps(j, JSON_COMPACT);
    json_decref(j);
    return text;
}

static inline char *jwt_pem(EVP_PKEY *key)
{
    BIO *bio = BIO_new(BIO_s_mem());
    char *data, *copy;
    long len;

    (void)PEM_write_bio_PUBKEY(bio, key);
    len = BIO_get_mem_data(bio, &data);
    copy = mem_zalloc((size_t)len + 1);
    memcpy(copy, data, (size_t)len);
    BIO_free(bio);
    return copy;
}

static inline size_t jwt_raw_signature(EVP_PKEY *key, const char *input, unsigned char *sig,
                                       size_t size)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool ed = EVP_PKEY_is_a(key, "ED25519");
    size_t len = size;

    if (EVP_DigestSignInit(ctx, NULL, ed ? NULL : EVP_sha256(), NULL, key) != 1 ||
        EVP_DigestSign(ctx, sig, &len, (const unsigned char *)input, strlen(input)) != 1)
        abort();
    EVP_MD_CTX_free(ctx);
    if (EVP_PKEY_is_a(key, "EC")) { /* DER to r || s */
        const unsigned char *p = sig;
        ECDSA_SIG *ec = d2i_ECDSA_SIG(NULL, &p, (long)len);
        int bytes = (EVP_PKEY_get_bits(key) + 7) / 8;
        unsigned char raw[256];

        (void)BN_bn2binpad(ECDSA_SIG_get0_r(ec), raw, bytes);
        (void)BN_bn2binpad(ECDSA_SIG_get0_s(ec), raw + bytes, bytes);
        len = (size_t)(2 * bytes);
        memcpy(sig, raw, len);
        ECDSA_SIG_free(ec);
    }
    return len;
}

static inline char *jwt_join(const char *header, const char *claims)
{
    char *h = jwt_b64(header, strlen(header)), *c = jwt_b64(claims, strlen(claims));
    char *out = mem_printf("%s.%s", h, c);

    free(h);
    free(c);
    return out;
}

/* header and claims as JSON text; key signs whatever the header says. */
static inline char *jwt_sign(EVP_PKEY *key, const char *header, const char *claims)
{
    char *input = jwt_join(header, claims);
    unsigned char sig[2048];
    char *s = jwt_b64(sig, jwt_raw_signature(key, input, sig, sizeof(sig)));
    char *out = mem_printf("%s.%s", input, s);

    free(input);
    free(s);
    return out;
}

/* HMAC-SHA256 with any bytes as the secret: the confusion attack. */
static inline char *jwt_hmac(const char *secret, const char *header, const char *claims)
{
    char *input = jwt_join(header, claims);
    unsigned char mac[SHA256_LEN];
    char *s, *out;

    hmac_sha256(secret, strlen(secret), input, strlen(input), mac);
    s = jwt_b64(mac, sizeof(mac));
    out = mem_printf("%s.%s", input, s);
    free(input);
    free(s);
    return out;
}

#endif
