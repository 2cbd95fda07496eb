#ifndef API_TOKEN_H
#define API_TOKEN_H

/* Our own opaque tokens: sbx_<kind>_<43 base62 random><6 base62 CRC32> (contract 1).
 * The CRC covers everything before it, so that a mistyped or made-up token is
 * refused without a look-up. Only the SHA-256 is stored. Any thread. */

#include <stdbool.h>
#include <stddef.h>

#include "base/hash.h"

enum api_token_kind {
    API_TOKEN_NONE = 0,
    API_TOKEN_USER,
    API_TOKEN_MCP,
    API_TOKEN_ENV,
    API_TOKEN_PRINCIPAL,
    API_TOKEN_KIND_COUNT
};

enum {
    API_TOKEN_RANDOM = 43,
    API_TOKEN_CHECK = 6,
    API_TOKEN_SIZE = 4 + 9 + 1 + API_TOKEN_RANDOM + API_TOKEN_CHECK + 1 /* the longest, with NUL */
};

/* The word in the token: "user", "mcp", "env", "principal". */
const char *api_token_kind_word(enum api_token_kind kind);
bool api_token_kind_parse(const char *word, enum api_token_kind *out);

/* A new token of that kind. Wipe it when it was shown. */
void api_token_make(enum api_token_kind kind, char out[API_TOKEN_SIZE]);

/* True when text has the form, a known kind and the right checksum. */
bool api_token_parse(const char *text, size_t len, enum api_token_kind *kind);

void api_token_digest(const char *text, size_t len, unsigned char out[SHA256_LEN]);

/* The credential of an Authorization header: "TOKEN" and "Bearer TOKEN" mean the same;
 * the scheme in any case. Gives a pointer into value and its length; false when there is none. */
bool api_token_from_header(const char *value, const char **token, size_t *len);

#endif
