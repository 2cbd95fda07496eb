#include "reconcile/waiters.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/time.h"

enum {
    WAITERS_MAX = 16384,
    BUCKETS = 1024,
    LOOK_MS = 250, /* how often a waiter's row is read when nobody here moves it */
};

struct waiter {
    struct waiter *next;
    char id[ID_SIZE];
    uint32_t statuses;
    int64_t deadline_ms;
    int64_t look_ms;
    enum sandbox_status status; /* last seen */
    int64_t generation;
    bool failed; /* the last look failed */
    reconcile_wait_fn *fn;
    void *arg;
};

struct reconcile_waiters {
    pthread_mutex_t lock;
    struct waiter *buckets[BUCKETS];
    size_t count;
    bool closed;
};

struct reconcile_waiters *reconcile_waiters_new(void)
{
    struct reconcile_waiters *w = mem_zalloc(sizeof(*w));

    (void)pthread_mutex_init(&w->lock, NULL);
    return w;
}

void reconcile_waiters_free(struct reconcile_waiters *w)
{
    if (!w)
        return;
    (void)pthread_mutex_destroy(&w->lock);
    free(w);
}

static struct waiter **bucket(struct reconcile_waiters *w, const char *id)
{
    return &w->buckets[crc32_of(id, strlen(id)) % BUCKETS];
}

enum sbx_code reconcile_waiters_add(struct reconcile_waiters *w, const char *sandbox_id,
                                    uint32_t statuses, int64_t timeout_ms, reconcile_wait_fn *fn,
                                    void *arg, struct sbx_err *err)
{
    struct waiter *n = mem_zalloc(sizeof(*n));
    bool closed, full;

    (void)str_copy(n->id, sizeof(n->id), sandbox_id);
    n->statuses = statuses;
    n->deadline_ms = time_mono_ms() + timeout_ms;
    n->fn = fn;
    n->arg = arg;
    (void)pthread_mutex_lock(&w->lock);
    closed = w->closed;
    full = w->count >= WAITERS_MAX;
    if (!closed && !full) {
        struct waiter **b = bucket(w, sandbox_id);

        n->next = *b;
        *b = n;
        w->count++;
        n = NULL;
    }
    (void)pthread_mutex_unlock(&w->lock);
    free(n);
    if (closed)
        return err_set(err, SBX_E_UNAVAILABLE, "This control plane is stopping; try again.");
    if (full)
        return err_set(err, SBX_E_BUSY, "Too many requests wait already; try again shortly.");
    return SBX_OK;
}

size_t reconcile_waiters_count(struct reconcile_waiters *w)
{
    size_t n;

    (void)pthread_mutex_lock(&w->lock);
    n = w->count;
    (void)pthread_mutex_unlock(&w->lock);
    return n;
}

/* Ends a list that was taken out; without the lock. */
static void end_all(struct waiter *list, bool reached, const struct sbx_err *err)
{
    while (list) {
        struct waiter *next = list->next;
        struct sbx_err away = { 0 };

        if (!reached && !err && list->failed) {
            (void)!err_set(&away, SBX_E_UNAVAILABLE,
                           "The state of the sandbox cannot be read now.");
            list->fn(list->arg, false, list->status, list->generation, &away);
        } else {
            list->fn(list->arg, reached, list->status, list->generation, err);
        }
        free(list);
        list = next;
    }
}

void reconcile_waiters_seen(struct reconcile_waiters *w, const char *sandbox_id,
                            enum sandbox_status status, int64_t generation)
{
    struct waiter *done = NULL;
    struct waiter **p;

    (void)pthread_mutex_lock(&w->lock);
    p = bucket(w, sandbox_id);
    while (*p) {
        struct waiter *n = *p;

        if (strcmp(n->id, sandbox_id) != 0) {
            p = &n->next;
            continue;
        }
        n->status = status;
        n->generation = generation;
        n->failed = false;
        if (!sandbox_status_in(status, n->statuses)) {
            p = &n->next;
            continue;
        }
        *p = n->next;
        n->next = done;
        done = n;
        w->count--;
    }
    (void)pthread_mutex_unlock(&w->lock);
    end_all(done, true, NULL);
}

/* Takes out the overdue; collects ids to be looked at. */
static struct waiter *collect(struct reconcile_waiters *w, int64_t now, char (*ids)[ID_SIZE],
                              size_t *count, int64_t *next)
{
    struct waiter *late = NULL;

    *count = 0;
    *next = -1;
    (void)pthread_mutex_lock(&w->lock);
    for (size_t b = 0; b < BUCKETS && w->count > 0; b++) {
        for (struct waiter **p = &w->buckets[b]; *p;) {
            struct waiter *n = *p;
            int64_t wait;

            if (n->deadline_ms <= now) {
                *p = n->next;
                n->next = late;
                late = n;
                w->count--;
                continue;
            }
            if (n->look_ms <= now && *count < STORE_LIST_MAX) {
                memcpy(ids[(*count)++], n->id, ID_SIZE);
                n->look_ms = now + LOOK_MS;
            }
            wait = (n->look_ms < n->deadline_ms ? n->look_ms : n->deadline_ms) - now;
            if (wait < 1)
                wait = 1;
            if (*next < 0 || wait < *next)
                *next = wait;
            p = &n->next;
        }
    }
    (void)pthread_mutex_unlock(&w->lock);
    return late;
}

static void mark_failed(struct reconcile_waiters *w)
{
    (void)pthread_mutex_lock(&w->lock);
    for (size_t b = 0; b < BUCKETS; b++) {
        for (struct waiter *n = w->buckets[b]; n; n = n->next)
            n->failed = true;
    }
    (void)pthread_mutex_unlock(&w->lock);
}

int64_t reconcile_waiters_pass(struct reconcile_waiters *w, struct store_conn *db, bool db_usable)
{
    char ids[STORE_LIST_MAX][ID_SIZE];
    const char *list[STORE_LIST_MAX];
    SCOPED_ARENA struct arena *a = NULL;
    struct store_sandboxes rows = { 0 };
    struct sbx_err err = { 0 };
    size_t count;
    int64_t next;

    end_all(collect(w, time_mono_ms(), ids, &count, &next), false, NULL);
    if (count == 0)
        return next;
    for (size_t i = 0; i < count; i++)
        list[i] = ids[i];
    a = arena_new();
    if (!db_usable || store_sandbox_list_ids(db, list, count, a, &rows, &err)) {
        mark_failed(w);
        return next;
    }
    for (size_t i = 0; i < rows.count; i++)
        reconcile_waiters_seen(w, rows.rows[i].sandbox_id, rows.rows[i].status,
                               rows.rows[i].generation);
    return next;
}

void reconcile_waiters_close(struct reconcile_waiters *w)
{
    struct waiter *all = NULL;
    struct sbx_err stopping = { 0 };

    (void)pthread_mutex_lock(&w->lock);
    w->closed = true;
    for (size_t b = 0; b < BUCKETS; b++) {
        while (w->buckets[b]) {
            struct waiter *n = w->buckets[b];

            w->buckets[b] = n->next;
            n->next = all;
            all = n;
        }
    }
    w->count = 0;
    (void)pthread_mutex_unlock(&w->lock);
    (void)!err_set(&stopping, SBX_E_UNAVAILABLE, "This control plane is stopping; try again.");
    end_all(all, false, &stopping);
}
