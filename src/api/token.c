#include "api/token.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/secret.h"
#include "sbx/attr.h"

static const char *const WORDS[API_TOKEN_KIND_COUNT] = {
    [API_TOKEN_USER] = "user",
    [API_TOKEN_MCP] = "mcp",
    [API_TOKEN_ENV] = "env",
    [API_TOKEN_PRINCIPAL] = "principal",
};

static const char BASE62[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

const char *api_token_kind_word(enum api_token_kind kind)
{
    assert(kind > API_TOKEN_NONE && kind < API_TOKEN_KIND_COUNT);
    return WORDS[kind];
}

static bool kind_of(const char *word, size_t len, enum api_token_kind *out)
{
    for (int k = API_TOKEN_NONE + 1; k < API_TOKEN_KIND_COUNT; k++) {
        if (strlen(WORDS[k]) == len && memcmp(WORDS[k], word, len) == 0) {
            *out = (enum api_token_kind)k;
            return true;
        }
    }
    return false;
}

bool api_token_kind_parse(const char *word, enum api_token_kind *out)
{
    return kind_of(word, strlen(word), out);
}

void api_token_make(enum api_token_kind kind, char out[API_TOKEN_SIZE])
{
    int n = snprintf(out, API_TOKEN_SIZE, "sbx_%s_", api_token_kind_word(kind));
    size_t len = (size_t)n;

    base62_random(out + len, API_TOKEN_RANDOM);
    len += API_TOKEN_RANDOM;
    base62_number(crc32_of(out, len), out + len, API_TOKEN_CHECK);
}

bool api_token_parse(const char *text, size_t len, enum api_token_kind *kind)
{
    const size_t tail = API_TOKEN_RANDOM + API_TOKEN_CHECK;
    enum api_token_kind k;
    char check[API_TOKEN_CHECK + 1];

    if (len >= API_TOKEN_SIZE || len < 4 + 1 + tail || memcmp(text, "sbx_", 4) != 0)
        return false;
    if (text[len - tail - 1] != '_' || !kind_of(text + 4, len - tail - 5, &k))
        return false;
    for (size_t i = len - tail; i < len; i++) {
        if (memchr(BASE62, text[i], sizeof(BASE62) - 1) == NULL)
            return false;
    }
    base62_number(crc32_of(text, len - API_TOKEN_CHECK), check, API_TOKEN_CHECK);
    if (memcmp(check, text + len - API_TOKEN_CHECK, API_TOKEN_CHECK) != 0)
        return false;
    *kind = k;
    return true;
}

void api_token_digest(const char *text, size_t len, unsigned char out[SHA256_LEN])
{
    sha256_of(text, len, out);
}

bool api_token_from_header(const char *value, const char **token, size_t *len)
{
    size_t n;

    if (value == NULL)
        return false;
    if (strncasecmp(value, "Bearer", 6) == 0 && (value[6] == ' ' || value[6] == '\t'))
        value += 6;
    value += strspn(value, " \t");
    n = strcspn(value, " \t");
    if (n == 0 || value[n + strspn(value + n, " \t")] != '\0')
        return false;
    *token = value;
    *len = n;
    return true;
}
