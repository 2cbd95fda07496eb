#ifndef API_FIELDS_ROW_H
#define API_FIELDS_ROW_H

/* Short forms for the rows of field tables; only fields_*.c include this. */

#include "api/schema.h"
#include "sbx/attr.h"

#define F_STR(n, fl, lo, hi, about)                                                                \
    {                                                                                              \
        .name = (n), .type = API_T_STRING, .flags = (fl), .min = (lo), .max = (hi), .doc = (about) \
    }
#define F_TEXT(n, fl, fn, pat, about)                                                              \
    {                                                                                              \
        .name = (n), .type = API_T_STRING, .flags = (fl), .text = (fn), .pattern = (pat),          \
        .doc = (about)                                                                             \
    }
#define F_ENUM(n, fl, list, about)                                                                 \
    {                                                                                              \
        .name = (n), .type = API_T_STRING, .flags = (fl), .values = (list), .doc = (about)         \
    }
#define F_INT(n, fl, lo, hi, about)                                                                \
    {                                                                                              \
        .name = (n), .type = API_T_INT, .flags = (fl), .min = (lo), .max = (hi), .doc = (about)    \
    }
#define F_INT_BOUND(n, fl, b, about)                                                               \
    {                                                                                              \
        .name = (n), .type = API_T_INT, .flags = (fl), .bound = (b), .doc = (about)                \
    }
#define F_BOOL(n, fl, about)                                                                       \
    {                                                                                              \
        .name = (n), .type = API_T_BOOL, .flags = (fl), .doc = (about)                             \
    }
#define F_STRS(n, fl, lo, hi, each, fn, about)                                                     \
    {                                                                                              \
        .name = (n), .type = API_T_STRINGS, .flags = (fl), .min = (lo), .max = (hi),               \
        .item_max = (each), .check = (fn), .doc = (about)                                          \
    }
#define F_OBJ(n, fl, sub, fn, about)                                                               \
    {                                                                                              \
        .name = (n), .type = API_T_OBJECT, .flags = (fl), .of = (sub), .check = (fn),              \
        .doc = (about)                                                                             \
    }
#define F_OBJS(n, fl, lo, hi, sub, about)                                                          \
    {                                                                                              \
        .name = (n), .type = API_T_OBJECTS, .flags = (fl), .min = (lo), .max = (hi), .of = (sub),  \
        .doc = (about)                                                                             \
    }
#define F_MAP(n, fl, hi, each, fn, about)                                                          \
    {                                                                                              \
        .name = (n), .type = API_T_STRING_MAP, .flags = (fl), .max = (hi), .item_max = (each),     \
        .check = (fn), .doc = (about)                                                              \
    }
#define F_TIME(n, fl, about)                                                                       \
    {                                                                                              \
        .name = (n), .type = API_T_TIME, .flags = (fl), .doc = (about)                             \
    }
#define F_ANY(n, fl, about)                                                                        \
    {                                                                                              \
        .name = (n), .type = API_T_ANY, .flags = (fl), .doc = (about)                              \
    }

/* An id that a client sends: any short string; what does not exist is judged later, not here. */
#define F_ID(n, fl, about) F_STR(n, fl, 1, API_ID_TEXT_MAX, about)

#define SCHEMA(symbol, component, table)                                                           \
    const struct api_schema symbol = { .name = (component),                                        \
                                       .fields = (table),                                          \
                                       .count = COUNT_OF(table) }

enum {
    REQ = API_REQUIRED,
    OPT = 0,
    API_ID_TEXT_MAX = 255,
    API_IDS_MAX = 64,
    API_PAGE_MAX = 1000000000,
    API_LIMIT_MAX = 1000000000, /* above 100 is served as 100 */
    API_CURSOR_MAX = 256,
};

#endif
