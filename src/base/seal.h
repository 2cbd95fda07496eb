#ifndef BASE_SEAL_H
#define BASE_SEAL_H

/* Sealing at rest: AES-256-GCM with a key from the configuration.
 *
 * A key file holds one key a line, "<key id> <64 hex digits>", newest first: the
 * first seals, all open, so a rotation is: put a new line on top, reload, reseal,
 * drop the old line.  A sealed value is
 * "v1" | key id length | key id | 12-byte nonce | ciphertext | 16-byte tag,
 * bound to `context` (table, column and row id) as additional data, so that a
 * value moved to another row does not open. */

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/secret.h"
#include "sbx/error.h"

enum {
    SEAL_KEY_LEN = 32,
    SEAL_KEY_ID_MAX = 32,
    SEAL_KEYS_MAX = 16,
    SEAL_OVERHEAD_MAX = 3 + SEAL_KEY_ID_MAX + 12 + 16
};

struct seal_keys;

/* SBX_E_INVALID: the text is not such a list. */
MUST_USE enum sbx_code seal_keys_parse(const char *text, struct seal_keys **out,
                                       struct sbx_err *err);
void seal_keys_free(struct seal_keys *keys); /* NULL is allowed */
/* A rotation: keys holds what fresh holds from now on. Other threads may seal and open meanwhile. */
void seal_keys_take(struct seal_keys *keys, const struct seal_keys *fresh);

/* keys NULL: none are loaded; closing is SBX_E_UNAVAILABLE then, opening SBX_E_INTERNAL. */
/* Appends the sealed value to out (whose max must allow SEAL_OVERHEAD_MAX more). */
MUST_USE enum sbx_code seal_close(const struct seal_keys *keys, const char *context,
                                  const void *data, size_t len, struct buf *out,
                                  struct sbx_err *err);
/* SBX_E_INTERNAL: unknown key id, another context, or changed bytes; nothing of the plaintext is
 * given. */
MUST_USE enum sbx_code seal_open(const struct seal_keys *keys, const char *context,
                                 const void *sealed, size_t len, struct secret **out,
                                 struct sbx_err *err);
/* True when the value is sealed with another key than the first: reseal it. */
bool seal_is_old(const struct seal_keys *keys, const void *sealed, size_t len);

#endif
