#include "base/json_out.h"

#include <string.h>

#include "base/time.h"

static void put(struct json_out *o, const char *text, size_t len)
{
    (void)buf_append(o->to, text, len);
}

static void begin(struct json_out *o, const char *key)
{
    size_t len = key != NULL ? strlen(key) : 0;
    char *to = buf_reserve(o->to, len + 4);
    size_t n = 0;

    if (to == NULL)
        return;
    if (o->more)
        to[n++] = ',';
    if (key != NULL) {
        to[n++] = '"';
        memcpy(to + n, key, len);
        n += len;
        to[n++] = '"';
        to[n++] = ':';
    }
    to[n] = '\0';
    o->to->len += n;
    o->more = true;
}

void json_out_open(struct json_out *o, const char *key, char bracket)
{
    begin(o, key);
    put(o, &bracket, 1);
    o->more = false;
}

void json_out_close(struct json_out *o, char bracket)
{
    put(o, &bracket, 1);
    o->more = true;
}

static void put_escape(struct json_out *o, unsigned char c)
{
    static const char HEX[] = "0123456789ABCDEF";
    static const char NAMED[] = "\"\\\b\f\n\r\t";
    static const char LETTER[] = "\"\\bfnrt";
    const char *at = memchr(NAMED, c, sizeof(NAMED) - 1);
    char text[6] = { '\\', 'u', '0', '0', HEX[c >> 4], HEX[c & 15] };

    if (at == NULL) {
        put(o, text, sizeof(text));
        return;
    }
    text[1] = LETTER[at - NAMED];
    put(o, text, 2);
}

static bool plain(unsigned char c)
{
    return c >= ' ' && c != '"' && c != '\\';
}

static void put_quoted(struct json_out *o, const char *s)
{
    put(o, "\"", 1);
    while (*s != '\0') {
        size_t n = 0;

        while (s[n] != '\0' && plain((unsigned char)s[n]))
            n++;
        put(o, s, n);
        s += n;
        if (*s != '\0')
            put_escape(o, (unsigned char)*s++);
    }
    put(o, "\"", 1);
}

void json_out_str(struct json_out *o, const char *key, const char *value)
{
    if (value == NULL)
        return;
    begin(o, key);
    put_quoted(o, value);
}

void json_out_int(struct json_out *o, const char *key, int64_t value)
{
    char text[24];
    size_t at = sizeof(text);
    uint64_t n = value < 0 ? -(uint64_t)value : (uint64_t)value;

    do {
        text[--at] = (char)('0' + n % 10);
        n /= 10;
    } while (n > 0);
    if (value < 0)
        text[--at] = '-';
    begin(o, key);
    put(o, text + at, sizeof(text) - at);
}

void json_out_bool(struct json_out *o, const char *key, bool value)
{
    begin(o, key);
    put(o, value ? "true" : "false", value ? 4 : 5);
}

void json_out_time(struct json_out *o, const char *key, int64_t unix_ms)
{
    char text[TIME_ISO_SIZE];

    if (unix_ms == 0)
        return;
    time_iso(unix_ms, text);
    json_out_str(o, key, text);
}

void json_out_text(struct json_out *o, const char *key, const char *json)
{
    bool quoted = false;
    size_t from = 0, at = 0;

    if (json == NULL)
        return;
    begin(o, key);
    for (; json[at] != '\0'; at++) {
        if (json[at] == '"') {
            quoted = !quoted;
        } else if (quoted && json[at] == '\\') {
            at++; /* what is escaped is no end; valid text has a character there */
        } else if (!quoted && json[at] == ' ') {
            put(o, json + from, at - from);
            from = at + 1;
        }
    }
    put(o, json + from, at - from);
}
