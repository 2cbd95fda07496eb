#ifndef BASE_HASH_H
#define BASE_HASH_H

/* Digests, encodings and random bytes, over OpenSSL. Any thread. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum { SHA256_LEN = 32, SHA256_HEX_SIZE = 65 };

void sha256_of(const void *data, size_t len, unsigned char out[SHA256_LEN]);
void hmac_sha256(const void *key, size_t key_len, const void *data, size_t len,
                 unsigned char out[SHA256_LEN]);
/* A digest over several pieces: new, add..., finish (which frees it) or free. */
struct sha256;
struct sha256 *sha256_new(void);
void sha256_add(struct sha256 *h, const void *data, size_t len);
void sha256_finish(struct sha256 *h, unsigned char out[SHA256_LEN]);
void sha256_free(struct sha256 *h);

void hash_hex(const void *data, size_t len, char *out /* 2 * len + 1 */);
bool hash_unhex(const char *text, void *out, size_t len); /* lower or upper case, exact length */
uint32_t crc32_of(const void *data, size_t len);          /* IEEE, as zlib's */

/* From the kernel; never fails. */
void random_bytes(void *out, size_t len);
uint64_t random_u64(void);

/* digits characters of [0-9A-Za-z], unbiased. out has digits + 1. */
void base62_random(char *out, size_t digits);
/* v in base 62, most significant first, left-padded with '0' to digits. */
void base62_number(uint64_t v, char *out, size_t digits);

/* Appends standard base64 with padding. */
bool base64_encode(struct buf *b, const void *data, size_t len);
/* base64url without padding (RFC 7515). */
bool base64_url_encode(struct buf *b, const void *data, size_t len);
/* Either alphabet; false and nothing appended when the text is not base64. */
bool base64_decode(struct buf *b, const char *text, size_t len);
bool base64_url_decode(struct buf *b, const char *text, size_t len);

#endif
