#ifndef REGION_JOSE_H
#define REGION_JOSE_H

/* Compact JWS verification over rhonabwy: RS256, ES256, EdDSA (Ed25519) and nothing
 * else.  `none`, HMAC and every other algorithm are refused before a key is looked
 * at, and a key only ever serves the algorithm of its own type, so a token cannot
 * choose how it is checked.  Claims are judged by the caller. */

#include <stdbool.h>
#include <stddef.h>

#include "base/json.h"
#include "sbx/error.h"

enum jose_alg { /* a set */
                JOSE_RS256 = 1 << 0,
                JOSE_ES256 = 1 << 1,
                JOSE_EDDSA = 1 << 2,
};

enum {
    JOSE_TOKEN_MAX = 16 * 1024, /* bytes of a token; longer is malformed */
    JOSE_KEYS_MAX = 64,         /* keys of one set; more are refused */
    JOSE_KEYS_TEXT_MAX = 256 * 1024,
    JOSE_RSA_BITS_MIN = 2048,
};

enum jose_verdict {
    JOSE_OK = 0,
    JOSE_MALFORMED,     /* not three base64url parts, not JSON objects, a `crit` header, too long */
    JOSE_ALG_REFUSED,   /* alg missing, unknown or not in the allowed set */
    JOSE_KID_UNKNOWN,   /* the header names a kid that no key of the set has */
    JOSE_BAD_SIGNATURE, /* no key fits */
    JOSE_NO_KEYS,       /* the set is empty: nothing can be judged */
};

/* An immutable set of public keys; may be used by several threads at once. */
struct jose_keys;

/* JWKS JSON, or PEM public keys and certificates (told apart by the first byte). Keys of other
 * kinds or uses are skipped; private and symmetric keys too; SBX_E_INVALID when the text is
 * neither, or when no usable key is left. */
MUST_USE enum sbx_code jose_keys_parse(const void *text, size_t len, struct jose_keys **out,
                                       struct sbx_err *err);
void jose_keys_free(struct jose_keys *k); /* NULL is allowed */
size_t jose_keys_count(const struct jose_keys *k);

/* Verifies token (NUL-ended) with keys (NULL: JOSE_NO_KEYS) under one of algs. With a kid in the
 * header the keys of that kid are tried, and keys that have none; without one all are. On JOSE_OK
 * *claims is the payload object, the caller's. */
enum jose_verdict jose_verify(const struct jose_keys *keys, unsigned algs, const char *token,
                              json_t **claims);
/* The payload without any check: only to find the issuer whose keys are to be asked. NULL when it
 * is malformed. */
json_t *jose_peek_claims(const char *token);
/* Looks like a compact JWS: three parts of base64url characters. */
bool jose_looks_like_jws(const char *token);

#endif
