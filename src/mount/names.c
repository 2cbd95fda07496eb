#include "mount/names.h"

#include <string.h>

struct text {
    char bytes[NAMES_KEY_MAX + 1];
    size_t len;
    bool cut; /* it did not fit */
};

static void put(struct text *t, const char *bytes, size_t n)
{
    if (t->cut || n > NAMES_KEY_MAX - t->len) {
        t->cut = true;
        return;
    }
    memcpy(t->bytes + t->len, bytes, n);
    t->len += n;
    t->bytes[t->len] = 0;
}

static void put_escape(struct text *t, unsigned char byte)
{
    static const char HEX[] = "0123456789ABCDEF";

    put(t, (const char[]){ '%', HEX[byte >> 4], HEX[byte & 15] }, 3);
}

/* The bytes of the UTF-8 character at s that XML 1.0 can carry; 0: there is none. */
static size_t character(const unsigned char *s, size_t n)
{
    size_t len = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    unsigned long c;

    if (len < 2)
        return s[0] >= 0x20 && s[0] != 0x7f ? len : 0;
    if (s[0] > 0xf4 || len > n)
        return 0;
    c = s[0] & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (s[i] & 0x3f);
    }
    if ((len == 3 && c < 0x800) || (len == 4 && (c < 0x10000 || c > 0x10ffff)))
        return 0; /* longer than it need be, or no character */
    return (c >= 0xd800 && c < 0xe000) || c == 0xfffe || c == 0xffff ? 0 : len;
}

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The byte that an escape at s stands for; -1: it is not one that we write. */
static int escape_at(const char *s, size_t n)
{
    int high, low, byte;

    if (n < 3 || s[0] != '%' || (high = hex(s[1])) < 0 || (low = hex(s[2])) < 0)
        return -1;
    byte = high << 4 | low;
    return (byte > 0 && byte < 0x20) || byte >= 0x7f || byte == '%' || byte == '$' ? byte : -1;
}

static void escape(const char *s, size_t n, struct text *out)
{
    static const char MARK[] = "_$folder$";

    *out = (struct text){ 0 };
    for (size_t i = 0, len; i < n; i += len) {
        bool mark =
            i > 0 && n - i >= sizeof(MARK) - 2 && memcmp(s + i - 1, MARK, sizeof(MARK) - 1) == 0;

        len = character((const unsigned char *)s + i, n - i);
        if (len > 0 && !mark && escape_at(s + i, n - i) < 0) {
            put(out, s + i, len);
        } else {
            put_escape(out, (unsigned char)s[i]);
            len = 1;
        }
    }
}

static void unescape(const char *s, size_t n, struct text *out)
{
    *out = (struct text){ 0 };
    for (size_t i = 0, len; i < n; i += len) {
        int byte = escape_at(s + i, n - i);

        len = byte < 0 ? 1 : 3;
        put(out, byte < 0 ? s + i : (const char[]){ (char)byte }, 1);
    }
}

static bool same(const struct text *t, const char *s, size_t n)
{
    return !t->cut && t->len == n && memcmp(t->bytes, s, n) == 0;
}

/* Is this what some other name is escaped to? */
static bool is_escaped(const char *s, size_t n)
{
    struct text plain, again;

    unescape(s, n, &plain);
    if (same(&plain, s, n))
        return false;
    escape(plain.bytes, plain.len, &again);
    return same(&again, s, n);
}

static bool has_escape(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (escape_at(s + i, n - i) >= 0)
            return true;
    return false;
}

static void encode(const char *s, size_t n, struct text *out)
{
    bool plain = true;

    for (size_t i = 0, len; i < n && plain; i += len) {
        len = character((const unsigned char *)s + i, n - i);
        plain = len > 0;
    }
    escape(s, n, out);
    /* Only what looks like an escape was escaped, and nobody else has that key. */
    if (plain && has_escape(s, n) && memmem(s, n, "_$folder$", 9) == NULL && !is_escaped(s, n)) {
        *out = (struct text){ 0 };
        put(out, s, n);
    }
}

bool names_encode(const char *path, size_t max, char out[NAMES_KEY_MAX + 1])
{
    struct text key = { 0 };

    for (;;) {
        size_t n = strcspn(path, "/");
        struct text part;

        encode(path, n, &part);
        key.cut = key.cut || part.cut;
        put(&key, part.bytes, part.len);
        if (path[n] == 0 || key.cut)
            break;
        put(&key, "/", 1);
        path += n + 1;
    }
    if (key.cut || key.len > max)
        return false;
    memcpy(out, key.bytes, key.len + 1);
    return true;
}

bool names_decode(const char *component, char out[NAMES_KEY_MAX + 1])
{
    size_t n = strlen(component);
    struct text plain, key;

    if (n > NAMES_KEY_MAX)
        return false;
    unescape(component, n, &plain);
    encode(plain.bytes, plain.len, &key);
    if (!same(&key, component, n)) {
        plain = (struct text){ 0 };
        put(&plain, component, n);
    }
    memcpy(out, plain.bytes, plain.len + 1);
    return true;
}
