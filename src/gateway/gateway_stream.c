#include "gateway/gateway_stream.h"

#include <stdio.h>

#include "base/hash.h"
#include "base/scoped.h"
#include "base/str.h"

void gateway_stream_put(json_t *answer, const char *name, const struct buf *data, uint64_t bytes,
                        bool truncated)
{
    const char *p = data->data != NULL ? data->data : "";
    size_t len = truncated ? utf8_cut(p, data->len) : data->len;
    char key[64];

    if (utf8_valid(p, len)) {
        (void)json_object_set_new(answer, name, json_stringn_nocheck(p, len));
    } else { /* not text at all: nothing is cut off, nothing is replaced */
        SCOPED_BUF struct buf text = BUF_INIT(data->len / 3 * 4 + 16);

        (void)base64_encode(&text, p, data->len);
        (void)json_object_set_new(answer, name, json_stringn_nocheck(text.data, text.len));
        (void)snprintf(key, sizeof(key), "%sEncoding", name);
        json_put_str(answer, key, "base64");
    }
    (void)snprintf(key, sizeof(key), "%sTruncated", name);
    json_put_true(answer, key, truncated);
    (void)snprintf(key, sizeof(key), "%sBytes", name);
    json_put_int(answer, key, (int64_t)bytes);
}
