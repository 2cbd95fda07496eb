#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Results come in PostgreSQL's binary form: the server prints nothing and we parse nothing. */
enum pg_type {
    PG_BOOL = 16,
    PG_BYTEA = 17,
    PG_INT8 = 20,
    PG_INT4 = 23,
    PG_TEXT = 25,
    PG_TIMESTAMPTZ = 1184,
    PG_JSONB = 3802,
};

enum { JSONB_VERSION = 1 };
/* Between PostgreSQL's epoch, 2000-01-01, and Unix's. */
#define PG_EPOCH_MS INT64_C(946684800000)

struct column {
    const unsigned char *data; /* NULL for null */
    size_t len;
    Oid type;
};

static struct column column(struct store_row *r)
{
    int col = r->col++;

    assert(col < PQnfields(r->res) && PQfformat(r->res, col) == 1);
    struct column c = { .type = PQftype(r->res, col) };
    if (!PQgetisnull(r->res, r->row, col)) {
        c.data = (const unsigned char *)PQgetvalue(r->res, r->row, col);
        c.len = (size_t)PQgetlength(r->res, r->row, col);
    }
    return c;
}

const char *store_row_text(struct store_row *r)
{
    struct column c = column(r);

    assert(c.type == PG_TEXT || c.type == PG_JSONB);
    if (!c.data)
        return NULL;
    if (c.type == PG_JSONB) {
        assert(c.len > 0 && c.data[0] == JSONB_VERSION);
        return arena_strndup(r->a, (const char *)c.data + 1, c.len - 1);
    }
    return arena_strndup(r->a, (const char *)c.data, c.len);
}

static int64_t big_endian(const struct column *c)
{
    uint64_t n = c->data[0] & 0x80 ? UINT64_MAX : 0;

    for (size_t i = 0; i < c->len; i++)
        n = n << 8 | c->data[i];
    return (int64_t)n;
}

int64_t store_row_int(struct store_row *r)
{
    struct column c = column(r);

    assert(c.type == PG_INT4 || c.type == PG_INT8 || c.type == PG_TIMESTAMPTZ);
    if (!c.data)
        return 0;
    int64_t n = big_endian(&c);
    if (c.type != PG_TIMESTAMPTZ)
        return n;
    return n / 1000 - (n % 1000 < 0) + PG_EPOCH_MS; /* microseconds; cut, also before 2000 */
}

int store_row_int32(struct store_row *r)
{
    return (int)store_row_int(r);
}

bool store_row_bool(struct store_row *r)
{
    struct column c = column(r);

    assert(c.type == PG_BOOL);
    return c.data && c.data[0] != 0;
}

struct store_bytes store_row_bytes(struct store_row *r)
{
    struct column c = column(r);

    assert(c.type == PG_BYTEA);
    if (!c.data)
        return (struct store_bytes){ 0 };
    unsigned char *data = arena_zalloc(r->a, c.len + 1);
    memcpy(data, c.data, c.len);
    return (struct store_bytes){ .data = data, .len = c.len };
}

void *store_rows(const PGresult *res, size_t count, struct arena *a, store_read *read, size_t size)
{
    char *rows = arena_zalloc(a, count * size);

    for (size_t i = 0; i < count; i++) {
        struct store_row r = { .res = res, .a = a, .row = (int)i };
        read(&r, rows + i * size);
    }
    return rows;
}

int store_changed(PGresult *res)
{
    return (int)strtol(PQcmdTuples(res), NULL, 10);
}

const char *store_seal_context(struct arena *a, const char *table_column, const char *row_id)
{
    return arena_printf(a, "%s:%s", table_column, row_id);
}
