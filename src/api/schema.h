#ifndef API_SCHEMA_H
#define API_SCHEMA_H

/* Field tables: what a request may hold and what an answer holds.  One table
 * validates a body or a query string and prints the endpoint's part of
 * openapi.json, so that the two cannot part.  Tables are const; any thread. */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "domain/valid.h"
#include "sbx/error.h"

enum api_type {
    API_T_UNSET = 0, /* not a type: a row that forgets it is refused by a test */
    API_T_STRING,    /* min..max characters */
    API_T_INT,       /* min..max */
    API_T_BOOL,
    API_T_STRINGS,    /* array: min..max items, each of at most item_max bytes */
    API_T_OBJECT,     /* of */
    API_T_OBJECTS,    /* array: min..max items of `of` */
    API_T_STRING_MAP, /* object of strings: at most max members, each value at most item_max bytes
                       */
    API_T_TIME,       /* answers only: ISO 8601 UTC with milliseconds */
    API_T_ANY,        /* an object that is checked elsewhere */
};

/* Bounds that the operator sets: a field that names one takes min and max from
 * the configuration (contract 2). */
enum api_bound {
    API_BOUND_NONE = 0,
    API_BOUND_IDLE,
    API_BOUND_HARD,
    API_BOUND_RETENTION,
    API_BOUND_COUNT
};

struct api_bounds {
    struct {
        int64_t min, max, dflt;
    } of[API_BOUND_COUNT];
};

/* Judges one value whose type and bounds are right already. `path` names the field. */
typedef enum sbx_code api_check_fn(const json_t *value, const char *path, struct sbx_err *err);

struct api_schema;

enum { API_REQUIRED = 1, API_NULLABLE = 2, API_SECRET = 4 };

struct api_field {
    const char *name;
    enum api_type type;
    unsigned flags;
    int64_t min, max;          /* both 0: no bound */
    int64_t item_max;          /* bytes */
    enum api_bound bound;      /* instead of min and max */
    const char *const *values; /* the only ones allowed, NULL-ended */
    valid_text_fn *text;       /* judges a string, or each string of an array or map */
    api_check_fn *check;       /* judges the whole value, last */
    const char *pattern;       /* what text enforces, for openapi.json */
    const struct api_schema *of;
    const char *doc; /* one sentence */
};

struct api_schema {
    const char *name; /* of the component in openapi.json */
    const struct api_field *fields;
    size_t count;
};

/* SBX_E_INVALID with err->field for the first unknown field, missing field, wrong
 * type or value out of bounds. `object` is a JSON object. */
MUST_USE enum sbx_code api_schema_check(const struct api_schema *schema,
                                        const struct api_bounds *bounds, const json_t *object,
                                        struct sbx_err *err);

/* Turns one query parameter's text into the JSON value of its field's type, and
 * refuses what is not of that type, unknown names and repeated ones. A NULL
 * schema knows no parameter. */
MUST_USE enum sbx_code api_schema_add_query(const struct api_schema *schema, json_t *object,
                                            const char *name, const char *text,
                                            struct sbx_err *err);

const struct api_field *api_schema_field(const struct api_schema *schema, const char *name);
/* "a string", "an array of strings": for messages. */
const char *api_type_words(enum api_type type);

/* The JSON schema (draft 2020-12, as OpenAPI 3.1 has it) of one table; the caller owns it.
 * `used` collects the nested schemas by name: {"Resources": pointer} is not kept. */
json_t *api_schema_json(const struct api_schema *schema, const struct api_bounds *bounds,
                        bool request);
json_t *api_field_json(const struct api_field *field, const struct api_bounds *bounds,
                       bool request);

#endif
