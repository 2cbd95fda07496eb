#include "base/str.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool str_parse_int(const char *text, int64_t min, int64_t max, int64_t *out)
{
    const char *digits = *text == '-' ? text + 1 : text;
    char *end;
    long long v;

    if (*digits < '0' || *digits > '9')
        return false;
    errno = 0;
    v = strtoll(text, &end, 10);
    if (errno != 0 || *end != 0 || v < min || v > max)
        return false;
    *out = v;
    return true;
}

bool str_starts(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

bool str_ends(const char *text, const char *suffix)
{
    size_t n = strlen(text);
    size_t m = strlen(suffix);

    return n >= m && memcmp(text + n - m, suffix, m) == 0;
}

bool str_copy(char *to, size_t size, const char *from)
{
    size_t n = strnlen(from, size);
    bool fits = n < size;

    if (!fits)
        n = size - 1;
    memcpy(to, from, n);
    to[n] = 0;
    return fits;
}

bool str_equal_secret(const void *a, const void *b, size_t len)
{
    const volatile unsigned char *x = a;
    const volatile unsigned char *y = b;
    unsigned char diff = 0;

    for (size_t i = 0; i < len; i++)
        diff = (unsigned char)(diff | (x[i] ^ y[i]));
    return diff == 0;
}

/* Length of the character that starts at p, 0 if it is not well formed in n bytes. */
static size_t char_len(const unsigned char *p, size_t n)
{
    size_t want;
    uint32_t cp;

    if (p[0] < 0x80)
        return 1;
    if (p[0] >= 0xc2 && p[0] <= 0xdf)
        want = 2, cp = p[0] & 0x1fU;
    else if (p[0] >= 0xe0 && p[0] <= 0xef)
        want = 3, cp = p[0] & 0x0fU;
    else if (p[0] >= 0xf0 && p[0] <= 0xf4)
        want = 4, cp = p[0] & 0x07U;
    else
        return 0;
    if (n < want)
        return 0;
    for (size_t i = 1; i < want; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        cp = cp << 6 | (p[i] & 0x3fU);
    }
    if ((want == 3 && cp < 0x800) || (want == 4 && cp < 0x10000) || cp > 0x10ffff ||
        (cp >= 0xd800 && cp <= 0xdfff))
        return 0;
    return want;
}

bool utf8_valid(const void *data, size_t len)
{
    const unsigned char *p = data;

    for (size_t at = 0; at < len;) {
        size_t n = char_len(p + at, len - at);

        if (n == 0)
            return false;
        at += n;
    }
    return true;
}

size_t utf8_cut(const void *data, size_t len)
{
    const unsigned char *p = data;
    size_t back = 0;

    while (back < 3 && back < len && (p[len - 1 - back] & 0xc0) == 0x80)
        back++;
    if (back < len) {
        unsigned char lead = p[len - 1 - back];
        size_t want = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;

        if (want > back + 1)
            return len - 1 - back;
    }
    return len;
}

size_t utf8_count(const char *text)
{
    size_t n = 0;

    for (; *text != 0; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

void str_json_quote(struct buf *b, const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t left = strlen(text);

    (void)buf_puts(b, "\"");
    while (left > 0) {
        size_t n = char_len(p, left);

        if (n == 0) {
            (void)buf_puts(b, "\xef\xbf\xbd");
            n = 1;
        } else if (*p == '"' || *p == '\\') {
            (void)buf_printf(b, "\\%c", *p);
        } else if (*p < 0x20 || *p == 0x7f) {
            (void)buf_printf(b, "\\u%04x", *p);
        } else {
            (void)buf_append(b, p, n);
        }
        p += n;
        left -= n;
    }
    (void)buf_puts(b, "\"");
}
