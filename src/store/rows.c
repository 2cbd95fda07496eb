#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "store/db.h"

static void add(struct store_args *q, const char *value, int len, int format)
{
    assert(q->count < STORE_ARGS_MAX);
    q->values[q->count] = value;
    q->lengths[q->count] = len;
    q->formats[q->count] = format;
    q->count++;
}

void store_arg_text(struct store_args *q, const char *text)
{
    add(q, text, 0, 0);
}

void store_arg_int(struct store_args *q, int64_t n)
{
    assert(q->count < STORE_ARGS_MAX);
    snprintf(q->numbers[q->count], STORE_NUMBER_SIZE, "%" PRId64, n);
    add(q, q->numbers[q->count], 0, 0);
}

void store_arg_null_int(struct store_args *q, int64_t n)
{
    if (n)
        store_arg_int(q, n);
    else
        add(q, NULL, 0, 0);
}

void store_arg_bool(struct store_args *q, bool b)
{
    add(q, b ? "t" : "f", 0, 0);
}

void store_arg_bytes(struct store_args *q, const void *data, size_t len)
{
    add(q, data, (int)len, 1);
}

void store_arg_statuses(struct store_args *q, uint32_t set)
{
    size_t len = 1;

    assert(q->set[0] == '\0');
    q->set[0] = '{';
    for (int s = SANDBOX_STATUS_NONE + 1; s < SANDBOX_STATUS_COUNT; s++) {
        if (!sandbox_status_in((enum sandbox_status)s, set))
            continue;
        len += (size_t)snprintf(q->set + len, sizeof(q->set) - len, "%s%s", len > 1 ? "," : "",
                                sandbox_status_name((enum sandbox_status)s));
        assert(len < sizeof(q->set) - 1);
    }
    q->set[len] = '}';
    q->set[len + 1] = '\0';
    add(q, q->set, 0, 0);
}

/* The next column's text, NULL for null. */
static const char *column(struct store_row *r)
{
    int col = r->col++;

    assert(col < PQnfields(r->res));
    return PQgetisnull(r->res, r->row, col) ? NULL : PQgetvalue(r->res, r->row, col);
}

const char *store_row_text(struct store_row *r)
{
    return arena_strdup(r->a, column(r));
}

int64_t store_row_int(struct store_row *r)
{
    const char *text = column(r);

    return text ? strtoll(text, NULL, 10) : 0;
}

int store_row_int32(struct store_row *r)
{
    return (int)store_row_int(r);
}

bool store_row_bool(struct store_row *r)
{
    const char *text = column(r);

    return text && text[0] == 't';
}

struct store_bytes store_row_bytes(struct store_row *r)
{
    const char *text = column(r);

    if (!text)
        return (struct store_bytes){ 0 };
    assert(strncmp(text, "\\x", 2) == 0);
    size_t len = strlen(text + 2) / 2;
    unsigned char *data = arena_zalloc(r->a, len + 1);
    bool hex = hash_unhex(text + 2, data, len);
    assert(hex);
    (void)hex;
    return (struct store_bytes){ .data = data, .len = len };
}

int store_changed(PGresult *res)
{
    return (int)strtol(PQcmdTuples(res), NULL, 10);
}

const char *store_seal_context(struct arena *a, const char *table_column, const char *row_id)
{
    return arena_printf(a, "%s:%s", table_column, row_id);
}
