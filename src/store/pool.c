#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/mem.h"
#include "store/store.h"

struct store_pool {
    pthread_mutex_t lock;
    pthread_cond_t freed; /* on the monotonic clock */
    size_t size, free_count;
    struct store_conn **all;
    struct store_conn **free; /* the last one given back is taken first: it is warm */
};

struct store_pool *store_pool_new(const struct store_config *cfg, const char *name, size_t size)
{
    struct store_pool *p = mem_zalloc(sizeof(*p));
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->freed, &attr);
    pthread_condattr_destroy(&attr);
    p->size = p->free_count = size;
    p->all = mem_zalloc(size * sizeof(struct store_conn *));
    p->free = mem_zalloc(size * sizeof(struct store_conn *));
    for (size_t i = 0; i < size; i++)
        p->all[i] = p->free[i] = store_conn_new(cfg, name);
    return p;
}

void store_pool_free(struct store_pool *p)
{
    if (!p)
        return;
    assert(p->free_count == p->size);
    for (size_t i = 0; i < p->size; i++)
        store_conn_free(p->all[i]);
    pthread_cond_destroy(&p->freed);
    pthread_mutex_destroy(&p->lock);
    free((void *)p->all);
    free((void *)p->free);
    free(p);
}

enum sbx_code store_pool_take(struct store_pool *p, int64_t wait_ms, struct store_conn **out,
                              struct sbx_err *err)
{
    struct timespec until;
    struct store_conn *db = NULL;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += wait_ms / 1000;
    until.tv_nsec += wait_ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&p->lock);
    int rc = 0;
    while (p->free_count == 0 && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&p->freed, &p->lock, &until);
    if (p->free_count > 0)
        db = p->free[--p->free_count];
    pthread_mutex_unlock(&p->lock);
    if (!db)
        return err_set(err, SBX_E_BUSY, "all database connections are in use");
    *out = db;
    return SBX_OK;
}

void store_pool_give(struct store_pool *p, struct store_conn *db)
{
    store_conn_budget(db, 0);
    pthread_mutex_lock(&p->lock);
    assert(p->free_count < p->size);
    p->free[p->free_count++] = db;
    pthread_cond_signal(&p->freed);
    pthread_mutex_unlock(&p->lock);
}
