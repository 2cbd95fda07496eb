#include "api/busy.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/id_map.h"
#include "base/mem.h"

struct api_busy {
    pthread_mutex_t lock;
    struct id_map accounts; /* struct under_way, while there are any */
    int max;                /* 0: no limit */
};

struct under_way {
    struct api_busy *busy;
    char account_id[ID_SIZE];
    int count;
};

struct api_busy *api_busy_new(int max)
{
    struct api_busy *b = mem_zalloc(sizeof(*b));

    assert(pthread_mutex_init(&b->lock, NULL) == 0);
    b->max = max;
    return b;
}

void api_busy_free(struct api_busy *b)
{
    if (b == NULL)
        return;
    assert(b->accounts.count == 0);
    id_map_fini(&b->accounts);
    assert(pthread_mutex_destroy(&b->lock) == 0);
    free(b);
}

void api_busy_limit(struct api_busy *b, int max)
{
    (void)pthread_mutex_lock(&b->lock);
    b->max = max;
    (void)pthread_mutex_unlock(&b->lock);
}

static void leave(void *arg)
{
    struct under_way *u = arg;
    struct api_busy *b = u->busy;

    (void)pthread_mutex_lock(&b->lock);
    if (--u->count == 0) {
        (void)id_map_remove(&b->accounts, u->account_id);
        free(u);
    }
    (void)pthread_mutex_unlock(&b->lock);
}

enum sbx_code api_busy_enter(struct api_busy *b, const char *account_id, struct arena *request,
                             struct sbx_err *err)
{
    struct under_way *u = NULL;
    bool full = false;

    if (!id_valid(account_id))
        return SBX_OK;
    (void)pthread_mutex_lock(&b->lock);
    if (b->max > 0) {
        u = id_map_get(&b->accounts, account_id);
        full = u != NULL && u->count >= b->max;
        if (u == NULL) {
            u = mem_zalloc(sizeof(*u));
            u->busy = b;
            memcpy(u->account_id, account_id, ID_SIZE);
            id_map_put(&b->accounts, account_id, u);
        }
        u->count += full ? 0 : 1;
    }
    (void)pthread_mutex_unlock(&b->lock);
    if (full)
        return err_set(err, SBX_E_RATE_LIMITED,
                       "Too many requests of this account are under way.");
    if (u != NULL)
        arena_defer(request, leave, u);
    return SBX_OK;
}
