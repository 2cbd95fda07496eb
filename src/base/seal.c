#include "base/seal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>

#include "base/hash.h"
#include "base/mem.h"

enum { NONCE = 12, TAG = 16 };

struct key {
    char id[SEAL_KEY_ID_MAX + 1];
    unsigned char bytes[SEAL_KEY_LEN];
};

struct seal_keys {
    size_t count;
    struct key keys[SEAL_KEYS_MAX];
};

void seal_keys_free(struct seal_keys *keys)
{
    if (keys == NULL)
        return;
    secret_wipe(keys, sizeof(*keys));
    free(keys);
}

enum sbx_code seal_keys_parse(const char *text, struct seal_keys **out, struct sbx_err *err)
{
    struct seal_keys *keys = mem_zalloc(sizeof(*keys));
    enum sbx_code code = SBX_OK;

    while (*text != 0 && code == SBX_OK) {
        size_t line = strcspn(text, "\n");
        char id[SEAL_KEY_ID_MAX + 1];
        char hex[2 * SEAL_KEY_LEN + 1];
        int used = 0;
        char copy[SEAL_KEY_ID_MAX + 2 * SEAL_KEY_LEN + 8];

        if (line >= sizeof(copy)) {
            code = err_set(err, SBX_E_INVALID, "a line of the key file is too long");
            break;
        }
        memcpy(copy, text, line);
        copy[line] = 0;
        text += line + (text[line] == '\n');
        if (copy[0] == 0 || copy[0] == '#')
            continue;
        if (keys->count == SEAL_KEYS_MAX)
            code = err_set(err, SBX_E_INVALID, "the key file has more than %d keys", SEAL_KEYS_MAX);
        else if (sscanf(copy, "%32[A-Za-z0-9._-] %64[0-9a-fA-F]%n", id, hex, &used) != 2 ||
                 copy[used] != 0 || !hash_unhex(hex, keys->keys[keys->count].bytes, SEAL_KEY_LEN))
            code =
                err_set(err, SBX_E_INVALID, "a line of the key file is not '<id> <64 hex digits>'");
        else
            memcpy(keys->keys[keys->count++].id, id, sizeof(id));
        secret_wipe(copy, sizeof(copy));
        secret_wipe(hex, sizeof(hex));
    }
    if (code == SBX_OK && keys->count == 0)
        code = err_set(err, SBX_E_INVALID, "the key file has no key");
    if (code != SBX_OK) {
        seal_keys_free(keys);
        return code;
    }
    *out = keys;
    return SBX_OK;
}

enum sbx_code seal_close(const struct seal_keys *keys, const char *context, const void *data,
                         size_t len, struct buf *out, struct sbx_err *err)
{
    const struct key *k;
    unsigned char nonce[NONCE];
    unsigned char tag[TAG];
    unsigned char id_len;
    EVP_CIPHER_CTX *ctx;
    char *to;
    int n = 0;
    bool ok;

    if (keys == NULL)
        return err_set(err, SBX_E_UNAVAILABLE, "no sealing key is loaded");
    k = &keys->keys[0];
    id_len = (unsigned char)strlen(k->id);
    random_bytes(nonce, sizeof(nonce));
    if (!buf_puts(out, "v1") || !buf_append(out, &id_len, 1) || !buf_puts(out, k->id) ||
        !buf_append(out, nonce, sizeof(nonce)) || (to = buf_reserve(out, len + TAG)) == NULL)
        return err_set(err, SBX_E_TOO_LARGE, "the value is too large to seal");
    ctx = EVP_CIPHER_CTX_new();
    assert(ctx != NULL);
    ok = EVP_EncryptInit_ex(ctx, EVP_aes_256_gcm(), NULL, k->bytes, nonce) == 1 &&
         EVP_EncryptUpdate(ctx, NULL, &n, (const unsigned char *)context, (int)strlen(context)) ==
             1 &&
         EVP_EncryptUpdate(ctx, (unsigned char *)to, &n, data, (int)len) == 1 &&
         EVP_EncryptFinal_ex(ctx, (unsigned char *)to + n, &n) == 1 &&
         EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_GET_TAG, TAG, tag) == 1;
    EVP_CIPHER_CTX_free(ctx);
    assert(ok);
    out->len += len;
    return buf_append(out, tag, sizeof(tag))
               ? SBX_OK
               : err_set(err, SBX_E_TOO_LARGE, "the value is too large to seal");
}

/* The key that a sealed value names and where its nonce begins; NULL when there is none. */
static const struct key *find(const struct seal_keys *keys, const unsigned char *p, size_t len,
                              size_t *at)
{
    if (keys == NULL || len < 3 || memcmp(p, "v1", 2) != 0 || len < 3U + p[2] + NONCE + TAG)
        return NULL;
    *at = 3U + p[2];
    for (size_t i = 0; i < keys->count; i++) {
        if (strlen(keys->keys[i].id) == p[2] && memcmp(keys->keys[i].id, p + 3, p[2]) == 0)
            return &keys->keys[i];
    }
    return NULL;
}

enum sbx_code seal_open(const struct seal_keys *keys, const char *context, const void *sealed,
                        size_t len, struct secret **out, struct sbx_err *err)
{
    const unsigned char *p = sealed;
    size_t at = 0;
    const struct key *k = find(keys, p, len, &at);
    unsigned char tag[TAG];
    unsigned char *plain;
    size_t body;
    EVP_CIPHER_CTX *ctx;
    int n = 0;
    bool ok;

    if (k == NULL)
        return err_set(err, SBX_E_INTERNAL, "a sealed value names a key that is not loaded");
    body = len - at - NONCE - TAG;
    memcpy(tag, p + len - TAG, TAG);
    plain = mem_zalloc(body + 1);
    ctx = EVP_CIPHER_CTX_new();
    assert(ctx != NULL);
    ok = EVP_DecryptInit_ex(ctx, EVP_aes_256_gcm(), NULL, k->bytes, p + at) == 1 &&
         EVP_DecryptUpdate(ctx, NULL, &n, (const unsigned char *)context, (int)strlen(context)) ==
             1 &&
         EVP_DecryptUpdate(ctx, plain, &n, p + at + NONCE, (int)body) == 1 &&
         EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_SET_TAG, TAG, tag) == 1 &&
         EVP_DecryptFinal_ex(ctx, plain + n, &n) == 1;
    EVP_CIPHER_CTX_free(ctx);
    if (ok)
        *out = secret_new(plain, body);
    secret_wipe(plain, body);
    free(plain);
    return ok ? SBX_OK : err_set(err, SBX_E_INTERNAL, "a sealed value does not open");
}

bool seal_is_old(const struct seal_keys *keys, const void *sealed, size_t len)
{
    size_t at = 0;

    return keys == NULL || find(keys, sealed, len, &at) != &keys->keys[0];
}
