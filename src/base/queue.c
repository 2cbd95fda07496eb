#include "base/queue.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/mem.h"

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    void **ring; /* grows past max only for admitted work */
    size_t cap;
    size_t head;
    size_t count;
    size_t max;
    bool closed;
};

struct queue *queue_new(size_t max)
{
    struct queue *q = mem_zalloc(sizeof(*q));

    assert(max > 0);
    (void)pthread_mutex_init(&q->lock, NULL);
    (void)pthread_cond_init(&q->filled, NULL);
    q->max = q->cap = max;
    q->ring = mem_zalloc(max * sizeof(*q->ring));
    return q;
}

void queue_free(struct queue *q)
{
    if (q == NULL)
        return;
    assert(q->count == 0);
    (void)pthread_cond_destroy(&q->filled);
    (void)pthread_mutex_destroy(&q->lock);
    free(q->ring);
    free(q);
}

static void grow(struct queue *q)
{
    void **ring = mem_zalloc(2 * q->cap * sizeof(*ring));

    for (size_t i = 0; i < q->count; i++)
        ring[i] = q->ring[(q->head + i) % q->cap];
    free(q->ring);
    q->ring = ring;
    q->head = 0;
    q->cap *= 2;
}

static bool put(struct queue *q, void *item, bool admitted)
{
    bool ok;

    assert(item != NULL);
    (void)pthread_mutex_lock(&q->lock);
    ok = !q->closed && (admitted || q->count < q->max);
    if (ok) {
        if (q->count == q->cap)
            grow(q);
        q->ring[(q->head + q->count) % q->cap] = item;
        q->count++;
        (void)pthread_cond_signal(&q->filled);
    }
    (void)pthread_mutex_unlock(&q->lock);
    return ok;
}

bool queue_put(struct queue *q, void *item)
{
    return put(q, item, false);
}

bool queue_put_admitted(struct queue *q, void *item)
{
    return put(q, item, true);
}

void *queue_take(struct queue *q)
{
    void *item = NULL;

    (void)pthread_mutex_lock(&q->lock);
    while (q->count == 0 && !q->closed)
        (void)pthread_cond_wait(&q->filled, &q->lock);
    if (q->count > 0) {
        item = q->ring[q->head];
        q->head = (q->head + 1) % q->cap;
        q->count--;
    }
    (void)pthread_mutex_unlock(&q->lock);
    return item;
}

void queue_close(struct queue *q)
{
    (void)pthread_mutex_lock(&q->lock);
    q->closed = true;
    (void)pthread_cond_broadcast(&q->filled);
    (void)pthread_mutex_unlock(&q->lock);
}

size_t queue_depth(struct queue *q)
{
    size_t n;

    (void)pthread_mutex_lock(&q->lock);
    n = q->count;
    (void)pthread_mutex_unlock(&q->lock);
    return n;
}
