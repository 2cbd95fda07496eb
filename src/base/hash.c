#include "base/hash.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include "base/mem.h"

struct sha256 {
    EVP_MD_CTX *ctx;
};

void sha256_of(const void *data, size_t len, unsigned char out[SHA256_LEN])
{
    (void)SHA256(data, len, out);
}

void hmac_sha256(const void *key, size_t key_len, const void *data, size_t len,
                 unsigned char out[SHA256_LEN])
{
    unsigned int n = SHA256_LEN;

    assert(HMAC(EVP_sha256(), key, (int)key_len, data, len, out, &n) != NULL);
}

struct sha256 *sha256_new(void)
{
    struct sha256 *h = mem_zalloc(sizeof(*h));

    h->ctx = EVP_MD_CTX_new();
    assert(h->ctx != NULL && EVP_DigestInit_ex(h->ctx, EVP_sha256(), NULL) == 1);
    return h;
}

void sha256_add(struct sha256 *h, const void *data, size_t len)
{
    assert(EVP_DigestUpdate(h->ctx, data, len) == 1);
}

void sha256_finish(struct sha256 *h, unsigned char out[SHA256_LEN])
{
    assert(EVP_DigestFinal_ex(h->ctx, out, NULL) == 1);
    sha256_free(h);
}

void sha256_free(struct sha256 *h)
{
    if (h == NULL)
        return;
    EVP_MD_CTX_free(h->ctx);
    free(h);
}

void hash_hex(const void *data, size_t len, char *out)
{
    static const char DIGITS[] = "0123456789abcdef";
    const unsigned char *p = data;

    for (size_t i = 0; i < len; i++) {
        out[2 * i] = DIGITS[p[i] >> 4];
        out[2 * i + 1] = DIGITS[p[i] & 15];
    }
    out[2 * len] = 0;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

bool hash_unhex(const char *text, void *out, size_t len)
{
    unsigned char *to = out;

    if (strlen(text) != 2 * len)
        return false;
    for (size_t i = 0; i < len; i++) {
        int hi = hex_digit(text[2 * i]);
        int lo = hex_digit(text[2 * i + 1]);

        if (hi < 0 || lo < 0)
            return false;
        to[i] = (unsigned char)(hi << 4 | lo);
    }
    return true;
}

uint32_t crc32_of(const void *data, size_t len)
{
    /* Of each half byte; every request's token is checked. */
    static const uint32_t HALF[] = { 0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac,
                                     0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
                                     0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                     0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c };
    const unsigned char *p = data;
    uint32_t crc = 0xffffffffU;

    for (size_t i = 0; i < len; i++) {
        crc ^= p[i];
        crc = crc >> 4 ^ HALF[crc & 15];
        crc = crc >> 4 ^ HALF[crc & 15];
    }
    return ~crc;
}

void random_bytes(void *out, size_t len)
{
    unsigned char *to = out;

    while (len > 0) {
        ssize_t n = getrandom(to, len, 0);

        if (n < 0) {
            assert(errno == EINTR);
            continue;
        }
        to += n;
        len -= (size_t)n;
    }
}

uint64_t random_u64(void)
{
    uint64_t v;

    random_bytes(&v, sizeof(v));
    return v;
}

static const char BASE62[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

void base62_random(char *out, size_t digits)
{
    for (size_t i = 0; i < digits;) {
        unsigned char v;

        random_bytes(&v, 1);
        if (v >= 248) /* 248 = 4 * 62: the rest would favour the first digits */
            continue;
        out[i++] = BASE62[v % 62];
    }
    out[digits] = 0;
}

void base62_number(uint64_t v, char *out, size_t digits)
{
    out[digits] = 0;
    while (digits > 0) {
        out[--digits] = BASE62[v % 62];
        v /= 62;
    }
}

bool base64_encode(struct buf *b, const void *data, size_t len)
{
    size_t want = (len + 2) / 3 * 4;
    char *to = buf_reserve(b, want + 1); /* EVP_EncodeBlock ends with a NUL */

    if (to == NULL)
        return false;
    (void)EVP_EncodeBlock((unsigned char *)to, data, (int)len);
    b->len += want;
    return true;
}

bool base64_url_encode(struct buf *b, const void *data, size_t len)
{
    size_t start = b->len;

    if (!base64_encode(b, data, len))
        return false;
    for (size_t i = start; i < b->len; i++) {
        if (b->data[i] == '+')
            b->data[i] = '-';
        else if (b->data[i] == '/')
            b->data[i] = '_';
    }
    while (b->len > start && b->data[b->len - 1] == '=')
        b->len--;
    b->data[b->len] = 0;
    return true;
}

static int base64_value(char c, bool url)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    if (c == (url ? '-' : '+'))
        return 62;
    if (c == (url ? '_' : '/'))
        return 63;
    return -1;
}

static bool decode(struct buf *b, const char *text, size_t len, bool url)
{
    unsigned char *to = (unsigned char *)buf_reserve(b, len / 4 * 3 + 3);
    size_t n = 0;
    uint32_t bits = 0;

    if (to == NULL || len % 4 == 1)
        return false;
    for (size_t i = 0; i < len; i++) {
        int v = base64_value(text[i], url);

        if (v < 0)
            return false;
        bits = bits << 6 | (uint32_t)v;
        if (i % 4 == 3) {
            to[n++] = (unsigned char)(bits >> 16);
            to[n++] = (unsigned char)(bits >> 8);
            to[n++] = (unsigned char)bits;
            bits = 0;
        }
    }
    if (len % 4 == 2) {
        if ((bits & 15) != 0) /* two texts must not decode to the same bytes */
            return false;
        to[n++] = (unsigned char)(bits >> 4);
    } else if (len % 4 == 3) {
        if ((bits & 3) != 0)
            return false;
        to[n++] = (unsigned char)(bits >> 10);
        to[n++] = (unsigned char)(bits >> 2);
    }
    b->len += n;
    b->data[b->len] = 0;
    return true;
}

bool base64_decode(struct buf *b, const char *text, size_t len)
{
    if (len % 4 != 0)
        return false;
    while (len > 0 && text[len - 1] == '=' && len % 4 != 2)
        len--;
    return decode(b, text, len, false);
}

bool base64_url_decode(struct buf *b, const char *text, size_t len)
{
    return decode(b, text, len, true);
}
