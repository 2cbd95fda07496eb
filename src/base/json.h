#ifndef BASE_JSON_H
#define BASE_JSON_H

/* Strict JSON over jansson.  json_t belongs to codecs: it does not cross a module's
 * public header except here. */

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "sbx/error.h"

static inline void json_decref_p(json_t **j)
{
    json_decref(*j);
}
#define SCOPED_JSON SCOPED(json_decref_p)

/* One JSON object: UTF-8, no duplicate key, no lone surrogate, no \u0000, depth at
 * most SBX_JSON_DEPTH_MAX (contract 1). SBX_E_INVALID with a sentence otherwise. */
MUST_USE enum sbx_code json_parse_object(const void *text, size_t len, json_t **out,
                                         struct sbx_err *err);
/* The same, but a string may hold \u0000: what a command has written (contract 4). Read such a
 * string with its length. */
MUST_USE enum sbx_code json_parse_object_nul(const void *text, size_t len, json_t **out,
                                             struct sbx_err *err);

/* Appends compact JSON; false when it did not fit under b->max. */
bool json_write(struct buf *b, const json_t *j);

/* Reading a peer's object: absent or of another type gives the default. Strings are borrowed from
 * j. */
const char *json_get_str(const json_t *j, const char *key, const char *dflt);
int64_t json_get_int(const json_t *j, const char *key, int64_t dflt);
bool json_get_bool(const json_t *j, const char *key, bool dflt);

/* Writing: a NULL string or a false flag is left out (contract 1: absent values are left out). */
void json_put_str(json_t *j, const char *key, const char *value);
void json_put_int(json_t *j, const char *key, int64_t value);
void json_put_bool(json_t *j, const char *key, bool value);
void json_put_true(json_t *j, const char *key, bool value);      /* left out when false */
void json_put_time(json_t *j, const char *key, int64_t unix_ms); /* left out when 0 */
void json_put_new(json_t *j, const char *key, json_t *value); /* takes value; left out when NULL */
/* Parses stored JSON text; NULL text gives NULL. Asserts that our own text parses. */
json_t *json_from_text(const char *text);
/* Array of strings, NULL-ended, in the arena; NULL unless j is an array of strings only. */
const char **json_strings(struct arena *a, const json_t *j, size_t *count);

#endif
