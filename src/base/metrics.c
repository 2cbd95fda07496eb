#include "base/metrics.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "sbx/attr.h"

enum {
    SLOTS = 2 * METRICS_SERIES_MAX, /* of a row's hash table: never more than half full */
    TABLES_MAX = 64,
    COLLECTORS_MAX = 16,
};

static const int64_t BOUNDS_MS[] = { 1,   2,    5,    10,   25,    50,    100,   250,
                                     500, 1000, 2500, 5000, 10000, 30000, 60000, 300000 };

struct series {
    uint64_t hash;
    char *value[METRICS_LABELS_MAX];
    atomic_int_least64_t n; /* the value; of a histogram: the count */
    atomic_int_least64_t sum_ms;
    atomic_int_least64_t bucket[COUNT_OF(BOUNDS_MS)]; /* not cumulative */
};

struct row {
    _Atomic(struct series *) *slots;
    size_t used;
};

struct metrics_table {
    struct metrics *owner;
    const struct metrics_def *defs;
    size_t count;
    struct row *rows;
};

struct metrics {
    pthread_mutex_t lock;       /* new series, tables */
    pthread_mutex_t collecting; /* collectors; taken before lock */
    struct metrics_table *tables[TABLES_MAX];
    size_t table_count;
    struct {
        void (*fn)(void *arg);
        void *arg;
    } collectors[COLLECTORS_MAX];
    size_t collector_count;
};

struct metrics *metrics_new(void)
{
    struct metrics *m = mem_zalloc(sizeof(*m));

    (void)pthread_mutex_init(&m->lock, NULL);
    (void)pthread_mutex_init(&m->collecting, NULL);
    return m;
}

static void table_free(struct metrics_table *t)
{
    for (size_t i = 0; i < t->count; i++) {
        for (size_t s = 0; t->rows[i].slots != NULL && s < SLOTS; s++) {
            struct series *x = atomic_load(&t->rows[i].slots[s]);

            for (size_t v = 0; x != NULL && v < METRICS_LABELS_MAX; v++)
                free(x->value[v]);
            free(x);
        }
        free(t->rows[i].slots);
    }
    free(t->rows);
    free(t);
}

void metrics_free(struct metrics *m)
{
    if (m == NULL)
        return;
    for (size_t i = 0; i < m->table_count; i++)
        table_free(m->tables[i]);
    (void)pthread_mutex_destroy(&m->collecting);
    (void)pthread_mutex_destroy(&m->lock);
    free(m);
}

struct metrics_table *metrics_register(struct metrics *m, const struct metrics_def *defs,
                                       size_t count)
{
    struct metrics_table *t;

    if (m == NULL)
        return NULL;
    t = mem_zalloc(sizeof(*t));
    *t = (struct metrics_table){ .owner = m, .defs = defs, .count = count };
    t->rows = mem_zalloc(count * sizeof(*t->rows));
    for (size_t i = 0; i < count; i++) {
        assert(defs[i].type != METRICS_UNSET && defs[i].name != NULL && defs[i].help != NULL);
        t->rows[i].slots = mem_zalloc(SLOTS * sizeof(*t->rows[i].slots));
    }
    (void)pthread_mutex_lock(&m->lock);
    assert(m->table_count < TABLES_MAX);
    m->tables[m->table_count++] = t;
    (void)pthread_mutex_unlock(&m->lock);
    return t;
}

void metrics_on_print(struct metrics *m, void (*fn)(void *arg), void *arg)
{
    if (m == NULL)
        return;
    (void)pthread_mutex_lock(&m->collecting);
    assert(m->collector_count < COLLECTORS_MAX);
    m->collectors[m->collector_count].fn = fn;
    m->collectors[m->collector_count++].arg = arg;
    (void)pthread_mutex_unlock(&m->collecting);
}

void metrics_off_print(struct metrics *m, void *arg)
{
    size_t kept = 0;

    if (m == NULL)
        return;
    (void)pthread_mutex_lock(&m->collecting);
    for (size_t i = 0; i < m->collector_count; i++) {
        if (m->collectors[i].arg != arg)
            m->collectors[kept++] = m->collectors[i];
    }
    m->collector_count = kept;
    (void)pthread_mutex_unlock(&m->collecting);
}

static size_t label_count(const struct metrics_def *def)
{
    size_t n = 0;

    while (n < METRICS_LABELS_MAX && def->labels[n] != NULL)
        n++;
    return n;
}

/* FNV-1a over the values, each ended by its NUL. */
static uint64_t hash_values(const char *const *values, size_t n)
{
    uint64_t h = 14695981039346656037u;

    for (size_t i = 0; i < n; i++) {
        const char *p = values[i];

        do {
            h = (h ^ (unsigned char)*p) * 1099511628211u;
        } while (*p++ != '\0');
    }
    return h;
}

static bool same(const struct series *x, uint64_t hash, const char *const *values, size_t n)
{
    if (x->hash != hash)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(x->value[i], values[i]) != 0)
            return false;
    }
    return true;
}

/* The series, or the first free slot in *at and NULL. */
static struct series *find(struct row *r, uint64_t hash, const char *const *values, size_t n,
                           size_t *at)
{
    for (*at = hash % SLOTS;; *at = (*at + 1) % SLOTS) {
        struct series *x = atomic_load_explicit(&r->slots[*at], memory_order_acquire);

        if (x == NULL || same(x, hash, values, n))
            return x;
    }
}

static struct series *series_get(struct metrics_table *t, size_t row, struct metrics_labels l)
{
    const char *values[METRICS_LABELS_MAX] = { NULL };
    struct row *r = &t->rows[row];
    struct series *x;
    size_t n, at;
    uint64_t hash;

    assert(row < t->count);
    n = label_count(&t->defs[row]);
    for (size_t i = 0; i < n; i++)
        values[i] = l.value[i] != NULL ? l.value[i] : "";
    hash = hash_values(values, n);
    x = find(r, hash, values, n, &at);
    if (x != NULL)
        return x;
    (void)pthread_mutex_lock(&t->owner->lock);
    if (r->used >= METRICS_SERIES_MAX - 1) { /* the last series counts all others */
        for (size_t i = 0; i < n; i++)
            values[i] = "other";
        hash = hash_values(values, n);
    }
    x = find(r, hash, values, n, &at);
    if (x == NULL) {
        x = mem_zalloc(sizeof(*x));
        x->hash = hash;
        for (size_t i = 0; i < n; i++)
            x->value[i] = mem_strdup(values[i]);
        r->used++;
        atomic_store_explicit(&r->slots[at], x, memory_order_release);
    }
    (void)pthread_mutex_unlock(&t->owner->lock);
    return x;
}

void metrics_add(struct metrics_table *t, size_t row, struct metrics_labels l, int64_t n)
{
    if (t != NULL)
        (void)atomic_fetch_add_explicit(&series_get(t, row, l)->n, n, memory_order_relaxed);
}

void metrics_set(struct metrics_table *t, size_t row, struct metrics_labels l, int64_t value)
{
    if (t != NULL)
        atomic_store_explicit(&series_get(t, row, l)->n, value, memory_order_relaxed);
}

void metrics_observe_ms(struct metrics_table *t, size_t row, struct metrics_labels l, int64_t ms)
{
    struct series *x;

    if (t == NULL)
        return;
    assert(t->defs[row].type == METRICS_HISTOGRAM);
    x = series_get(t, row, l);
    for (size_t i = 0; i < COUNT_OF(BOUNDS_MS); i++) {
        if (ms <= BOUNDS_MS[i]) {
            (void)atomic_fetch_add_explicit(&x->bucket[i], 1, memory_order_relaxed);
            break;
        }
    }
    (void)atomic_fetch_add_explicit(&x->sum_ms, ms, memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&x->n, 1, memory_order_relaxed);
}

int64_t metrics_get(struct metrics_table *t, size_t row, struct metrics_labels l)
{
    return t == NULL ? 0 : atomic_load(&series_get(t, row, l)->n);
}

/* {a="x",b="y",extra}: extra is le="..." or NULL. */
static void put_labels(struct buf *out, const struct metrics_def *def, const struct series *x,
                       const char *extra)
{
    size_t n = label_count(def);
    const char *sep = "{";

    for (size_t i = 0; i < n; i++) {
        (void)buf_printf(out, "%s%s=\"", sep, def->labels[i]);
        for (const char *p = x->value[i]; *p != '\0'; p++) {
            if (*p == '\n')
                (void)buf_puts(out, "\\n");
            else if (*p == '"' || *p == '\\')
                (void)buf_printf(out, "\\%c", *p);
            else
                (void)buf_append(out, p, 1);
        }
        (void)buf_puts(out, "\"");
        sep = ",";
    }
    if (extra != NULL)
        (void)buf_printf(out, "%s%s", sep, extra);
    if (n > 0 || extra != NULL)
        (void)buf_puts(out, "}");
}

static void print_histogram(struct buf *out, const struct metrics_def *def, struct series *x)
{
    int64_t total = 0;
    char le[48];

    for (size_t i = 0; i < COUNT_OF(BOUNDS_MS); i++) {
        total += atomic_load(&x->bucket[i]);
        (void)snprintf(le, sizeof(le), "le=\"%" PRId64 ".%03" PRId64 "\"", BOUNDS_MS[i] / 1000,
                       BOUNDS_MS[i] % 1000);
        (void)buf_printf(out, "%s_bucket", def->name);
        put_labels(out, def, x, le);
        (void)buf_printf(out, " %" PRId64 "\n", total);
    }
    (void)buf_printf(out, "%s_bucket", def->name);
    put_labels(out, def, x, "le=\"+Inf\"");
    (void)buf_printf(out, " %" PRId64 "\n%s_sum", atomic_load(&x->n), def->name);
    put_labels(out, def, x, NULL);
    (void)buf_printf(out, " %.3f\n%s_count", (double)atomic_load(&x->sum_ms) / 1000.0, def->name);
    put_labels(out, def, x, NULL);
    (void)buf_printf(out, " %" PRId64 "\n", atomic_load(&x->n));
}

static void print_row(struct buf *out, const struct metrics_def *def, struct row *r)
{
    static const char *const TYPES[] = {
        [METRICS_COUNTER] = "counter", [METRICS_GAUGE] = "gauge", [METRICS_HISTOGRAM] = "histogram"
    };

    (void)buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", def->name, def->help, def->name,
                     TYPES[def->type]);
    for (size_t s = 0; s < SLOTS; s++) {
        struct series *x = atomic_load_explicit(&r->slots[s], memory_order_acquire);

        if (x == NULL)
            continue;
        if (def->type == METRICS_HISTOGRAM) {
            print_histogram(out, def, x);
            continue;
        }
        (void)buf_puts(out, def->name);
        put_labels(out, def, x, NULL);
        (void)buf_printf(out, " %" PRId64 "\n", atomic_load(&x->n));
    }
}

bool metrics_print(struct metrics *m, struct buf *out)
{
    size_t tables;

    (void)pthread_mutex_lock(&m->collecting);
    for (size_t i = 0; i < m->collector_count; i++)
        m->collectors[i].fn(m->collectors[i].arg);
    (void)pthread_mutex_unlock(&m->collecting);
    (void)pthread_mutex_lock(&m->lock);
    tables = m->table_count; /* only grows */
    (void)pthread_mutex_unlock(&m->lock);
    for (size_t i = 0; i < tables; i++) {
        for (size_t r = 0; r < m->tables[i]->count; r++)
            print_row(out, &m->tables[i]->defs[r], &m->tables[i]->rows[r]);
    }
    return !out->full;
}
