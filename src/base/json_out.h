#ifndef BASE_JSON_OUT_H
#define BASE_JSON_OUT_H

/* Compact JSON written straight into a buffer, for the answers that are made most often: jansson's
 * tree of a sandbox cost more than everything else in its answer. The same text as json_write gives
 * of the same members in the same order.
 *
 * key: the member's name, a literal that needs no escape; NULL in an array and at the top. What
 * does not fit sets to->full, and the text is then of no use. Strings must be UTF-8. */

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct json_out {
    struct buf *to;
    bool more; /* the open object or array has a member */
};

void json_out_open(struct json_out *o, const char *key, char bracket); /* '{' or '[' */
void json_out_close(struct json_out *o, char bracket);                 /* '}' or ']' */
/* As the json_put functions: a NULL string and a time of 0 are left out. */
void json_out_str(struct json_out *o, const char *key, const char *value);
void json_out_int(struct json_out *o, const char *key, int64_t value);
void json_out_bool(struct json_out *o, const char *key, bool value);
void json_out_time(struct json_out *o, const char *key, int64_t unix_ms);
/* Stored JSON text, without the space that PostgreSQL puts into it; NULL is left out. */
void json_out_text(struct json_out *o, const char *key, const char *json);

#endif
