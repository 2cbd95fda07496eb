#include "base/seal.h"

#include <assert.h>
#include <pthread.h>
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
    pthread_rwlock_t *lock; /* of what follows: a rotation changes it under whoever seals */
    size_t count;
    struct key keys[SEAL_KEYS_MAX];
};

void seal_keys_free(struct seal_keys *keys)
{
    if (keys == NULL)
        return;
    (void)pthread_rwlock_destroy(keys->lock);
    free(keys->lock);
    secret_wipe(keys, sizeof(*keys));
    free(keys);
}

void seal_keys_take(struct seal_keys *keys, const struct seal_keys *fresh)
{
    (void)pthread_rwlock_wrlock(keys->lock);
    keys->count = fresh->count;
    memcpy(keys->keys, fresh->keys, sizeof(keys->keys));
    (void)pthread_rwlock_unlock(keys->lock);
}

enum sbx_code seal_keys_parse(const char *text, struct seal_keys **out, struct sbx_err *err)
{
    struct seal_keys *keys = mem_zalloc(sizeof(*keys));
    enum sbx_code code = SBX_OK;

    keys->lock = mem_zalloc(sizeof(*keys->lock));
    (void)pthread_rwlock_init(keys->lock, NULL);

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
    struct key k;
    unsigned char nonce[NONCE];
    unsigned char tag[TAG];
    unsigned char id_len;
    EVP_CIPHER_CTX *ctx;
    char *to;
    int n = 0;
    bool ok;

    if (keys == NULL)
        return err_set(err, SBX_E_UNAVAILABLE, "no sealing key is loaded");
    (void)pthread_rwlock_rdlock(keys->lock);
    k = keys->keys[0];
    (void)pthread_rwlock_unlock(keys->lock);
    id_len = (unsigned char)strlen(k.id);
    random_bytes(nonce, sizeof(nonce));
    if (!buf_puts(out, "v1") || !buf_append(out, &id_len, 1) || !buf_puts(out, k.id) ||
        !buf_append(out, nonce, sizeof(nonce)) || (to = buf_reserve(out, len + TAG)) == NULL) {
        secret_wipe(&k, sizeof(k));
        return err_set(err, SBX_E_TOO_LARGE, "the value is too large to seal");
    }
    ctx = EVP_CIPHER_CTX_new();
    assert(ctx != NULL);
    ok = EVP_EncryptInit_ex(ctx, EVP_aes_256_gcm(), NULL, k.bytes, nonce) == 1 &&
         EVP_EncryptUpdate(ctx, NULL, &n, (const unsigned char *)context, (int)strlen(context)) ==
             1 &&
         EVP_EncryptUpdate(ctx, (unsigned char *)to, &n, data, (int)len) == 1 &&
         EVP_EncryptFinal_ex(ctx, (unsigned char *)to + n, &n) == 1 &&
         EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_GET_TAG, TAG, tag) == 1;
    EVP_CIPHER_CTX_free(ctx);
    secret_wipe(&k, sizeof(k));
    assert(ok);
    out->len += len;
    return buf_append(out, tag, sizeof(tag))
               ? SBX_OK
               : err_set(err, SBX_E_TOO_LARGE, "the value is too large to seal");
}

/* A copy of the key that a sealed value names, its place in the list, and where the value's nonce
 * begins; false when there is none. */
static bool find(const struct seal_keys *keys, const unsigned char *p, size_t len, struct key *out,
                 size_t *place, size_t *at)
{
    bool found = false;

    if (keys == NULL || len < 3 || memcmp(p, "v1", 2) != 0 || len < 3U + p[2] + NONCE + TAG)
        return false;
    *at = 3U + p[2];
    (void)pthread_rwlock_rdlock(keys->lock);
    for (size_t i = 0; i < keys->count && !found; i++) {
        if (strlen(keys->keys[i].id) == p[2] && memcmp(keys->keys[i].id, p + 3, p[2]) == 0) {
            *out = keys->keys[i];
            *place = i;
            found = true;
        }
    }
    (void)pthread_rwlock_unlock(keys->lock);
    return found;
}

enum sbx_code seal_open(const struct seal_keys *keys, const char *context, const void *sealed,
                        size_t len, struct secret **out, struct sbx_err *err)
{
    const unsigned char *p = sealed;
    size_t at = 0, place;
    struct key k;
    unsigned char tag[TAG];
    unsigned char *plain;
    size_t body;
    EVP_CIPHER_CTX *ctx;
    int n = 0;
    bool ok;

    if (!find(keys, p, len, &k, &place, &at))
        return err_set(err, SBX_E_INTERNAL, "a sealed value names a key that is not loaded");
    body = len - at - NONCE - TAG;
    memcpy(tag, p + len - TAG, TAG);
    plain = mem_zalloc(body + 1);
    ctx = EVP_CIPHER_CTX_new();
    assert(ctx != NULL);
    ok = EVP_DecryptInit_ex(ctx, EVP_aes_256_gcm(), NULL, k.bytes, p + at) == 1 &&
         EVP_DecryptUpdate(ctx, NULL, &n, (const unsigned char *)context, (int)strlen(context)) ==
             1 &&
         EVP_DecryptUpdate(ctx, plain, &n, p + at + NONCE, (int)body) == 1 &&
         EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_SET_TAG, TAG, tag) == 1 &&
         EVP_DecryptFinal_ex(ctx, plain + n, &n) == 1;
    EVP_CIPHER_CTX_free(ctx);
    secret_wipe(&k, sizeof(k));
    if (ok)
        *out = secret_new(plain, body);
    secret_wipe(plain, body);
    free(plain);
    return ok ? SBX_OK : err_set(err, SBX_E_INTERNAL, "a sealed value does not open");
}

bool seal_is_old(const struct seal_keys *keys, const void *sealed, size_t len)
{
    size_t at = 0, place = 0;
    struct key k;
    bool found = find(keys, sealed, len, &k, &place, &at);

    secret_wipe(&k, sizeof(k));
    return !found || place != 0;
}
