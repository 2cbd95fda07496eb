#include "api/cursor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/str.h"

enum { PLAIN_MAX = 64, TEXT_MAX = 128 };

/* base64url of "1.<createdAt>.<id>"; the 1 is the form's version. */

char *api_cursor_text(struct arena *a, const struct api_cursor *cursor)
{
    struct buf b = BUF_INIT(TEXT_MAX);
    char plain[PLAIN_MAX];
    char *out;
    int n = snprintf(plain, sizeof(plain), "1.%" PRId64 ".%s", cursor->created_ms, cursor->id);

    (void)base64_url_encode(&b, plain, (size_t)n);
    out = arena_strndup(a, b.data, b.len);
    buf_fini(&b);
    return out;
}

bool api_cursor_parse(const char *text, struct api_cursor *out)
{
    SCOPED_BUF struct buf b = BUF_INIT(PLAIN_MAX);
    struct api_cursor c;
    char *dot;

    if (strlen(text) > TEXT_MAX || !base64_url_decode(&b, text, strlen(text)) || b.len < 2 ||
        strlen(b.data) != b.len || b.data[0] != '1' || b.data[1] != '.')
        return false;
    dot = strchr(b.data + 2, '.');
    if (dot == NULL || !id_valid(dot + 1))
        return false;
    *dot = '\0';
    if (!str_parse_int(b.data + 2, 0, INT64_C(1) << 52, &c.created_ms))
        return false;
    (void)str_copy(c.id, sizeof(c.id), dot + 1);
    *out = c;
    return true;
}
