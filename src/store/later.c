#include <assert.h>
#include <string.h>

#include "store/db.h"

struct store_later *store_later_new(struct store_conn *db, const struct store_stmt *stmt,
                                    struct arena *a, store_read_fn *read, void *out)
{
    struct store_later_list *list = store_conn_later(db);
    struct store_later *l = arena_zalloc(a, sizeof(*l));

    assert(list->count < STORE_BATCH_MAX);
    l->stmt = stmt;
    l->a = a;
    l->read = read;
    l->out = out;
    list->items[list->count++] = l;
    return l;
}

bool store_later_done(const struct store_later *l)
{
    return l->done;
}

enum sbx_code store_later_code(const struct store_later *l, struct sbx_err *err)
{
    assert(l->done);
    if (l->err.code != SBX_OK)
        *err = l->err;
    return l->err.code;
}

/* Of one transaction, so that two groups lock the rows that they share in the same order. */
static void sort(struct store_later **items, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        struct store_later *l = items[i];
        size_t at = i;

        for (; at > 0 && strcmp(items[at - 1]->order, l->order) > 0; at--)
            items[at] = items[at - 1];
        items[at] = l;
    }
}

static bool run(struct store_conn *db, struct store_later **items, size_t count, bool writes)
{
    PGresult *res[STORE_BATCH_MAX] = { NULL };

    bool answered;

    if (count == 0)
        return true;
    if (writes)
        sort(items, count);
    answered = store_run_group(db, items, count, writes, res);
    for (size_t i = 0; i < count; i++) {
        struct store_later *l = items[i];

        if (!res[i])
            continue;
        l->done = true;
        if (l->read(res[i], l->a, l->out, &l->err) != SBX_OK)
            assert(l->err.code != SBX_OK);
        PQclear(res[i]);
    }
    return answered;
}

bool store_settle(struct store_conn *db)
{
    struct store_later_list *list = store_conn_later(db);
    struct store_later *reads[STORE_BATCH_MAX], *writes[STORE_BATCH_MAX];
    size_t read_count = 0, write_count = 0;

    for (size_t i = 0; i < list->count; i++) {
        struct store_later *l = list->items[i];

        if (l->order)
            writes[write_count++] = l;
        else
            reads[read_count++] = l;
    }
    list->count = 0;
    bool answered = run(db, reads, read_count, false);
    return run(db, writes, write_count, true) && answered;
}
