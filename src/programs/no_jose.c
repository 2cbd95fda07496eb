#include "region/jwks.h"

/* Linked only while src/region/jose.c is not there (programs.cmake): every JWT is refused. */

enum sbx_code jose_keys_parse(const void *text, size_t len, struct jose_keys **out,
                              struct sbx_err *err)
{
    (void)text, (void)len, (void)out;
    return err_set(err, SBX_E_INVALID, "this build reads no keys");
}

void jose_keys_free(struct jose_keys *k)
{
    (void)k;
}

enum jose_verdict jose_verify(const struct jose_keys *keys, unsigned algs, const char *token,
                              json_t **claims)
{
    (void)keys, (void)algs, (void)token, (void)claims;
    return JOSE_NO_KEYS;
}

json_t *jose_peek_claims(const char *token)
{
    (void)token;
    return NULL;
}

bool jose_looks_like_jws(const char *token)
{
    (void)token;
    return false;
}

enum sbx_code jwks_open(const struct jwks_config *config, struct net *n, struct jwks **out,
                        struct sbx_err *err)
{
    (void)config, (void)n, (void)out;
    return err_set(err, SBX_E_INVALID, "this build reads no keys");
}

void jwks_close(struct jwks *j)
{
    (void)j;
}

enum jose_verdict jwks_verify(struct jwks *j, unsigned algs, const char *token, bool may_block,
                              json_t **claims, bool *again)
{
    (void)j, (void)algs, (void)token, (void)may_block, (void)claims;
    *again = false;
    return JOSE_NO_KEYS;
}
