#include "api/access.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "api/call.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/time.h"

enum { WAYS = 4 };

struct entry {
    char account_id[ID_SIZE];
    char user_id[ID_SIZE];
    int64_t until_ms; /* monotonic; 0: free */
    struct api_access access;
};

struct api_accesses {
    pthread_mutex_t lock;
    struct entry *entries;
    size_t sets; /* a power of two */
    int64_t life_ms;
    uint64_t epoch; /* grows with every change */
    bool on;
};

struct api_accesses *api_accesses_new(int max, int life_s)
{
    struct api_accesses *t = mem_zalloc(sizeof(*t));

    t->sets = 1;
    while (t->sets * WAYS < (size_t)max)
        t->sets *= 2;
    t->entries = mem_zalloc(t->sets * WAYS * sizeof(*t->entries));
    t->life_ms = (int64_t)life_s * 1000;
    assert(pthread_mutex_init(&t->lock, NULL) == 0);
    return t;
}

void api_accesses_free(struct api_accesses *t)
{
    if (t == NULL)
        return;
    assert(pthread_mutex_destroy(&t->lock) == 0);
    free(t->entries);
    free(t);
}

/* FNV-1a over both ids; only ids of our own form are kept, so nobody can aim at a set. */
static struct entry *set_of(struct api_accesses *t, const char *account_id, const char *user_id)
{
    uint64_t h = UINT64_C(14695981039346656037);

    for (size_t i = 0; i < SBX_ID_LEN; i++) {
        h = (h ^ (unsigned char)account_id[i]) * UINT64_C(1099511628211);
        h = (h ^ (unsigned char)user_id[i]) * UINT64_C(1099511628211);
    }
    return t->entries + ((h ^ (h >> 32)) & (t->sets - 1)) * WAYS;
}

static bool same(const struct entry *e, const char *account_id, const char *user_id)
{
    return memcmp(e->account_id, account_id, SBX_ID_LEN) == 0 &&
           memcmp(e->user_id, user_id, SBX_ID_LEN) == 0;
}

bool api_accesses_get(struct api_accesses *t, const char *account_id, const char *user_id,
                      struct api_access *out, uint64_t *epoch)
{
    int64_t now_ms = time_mono_ms();
    bool found = false;
    struct entry *set;

    *epoch = 0;
    if (!id_valid(account_id) || !id_valid(user_id))
        return false;
    set = set_of(t, account_id, user_id);
    (void)pthread_mutex_lock(&t->lock);
    *epoch = t->epoch;
    for (int i = 0; i < WAYS && !found; i++) {
        found = set[i].until_ms > now_ms && same(&set[i], account_id, user_id);
        if (found)
            *out = set[i].access;
    }
    (void)pthread_mutex_unlock(&t->lock);
    return found;
}

void api_accesses_put(struct api_accesses *t, const char *account_id, const char *user_id,
                      const struct api_access *access, uint64_t epoch)
{
    struct entry *set, *e;

    if (!access->member || !id_valid(account_id) || !id_valid(user_id))
        return;
    set = e = set_of(t, account_id, user_id);
    (void)pthread_mutex_lock(&t->lock);
    if (t->on && t->epoch == epoch) {
        for (int i = 0; i < WAYS; i++) {
            if (same(&set[i], account_id, user_id)) {
                e = &set[i];
                break;
            }
            if (set[i].until_ms < e->until_ms)
                e = &set[i];
        }
        memcpy(e->account_id, account_id, ID_SIZE);
        memcpy(e->user_id, user_id, ID_SIZE);
        e->access = *access;
        e->until_ms = time_mono_ms() + t->life_ms;
    }
    (void)pthread_mutex_unlock(&t->lock);
}

void api_accesses_enable(struct api_accesses *t, bool on)
{
    (void)pthread_mutex_lock(&t->lock);
    t->epoch++;
    t->on = on;
    for (size_t i = 0; i < t->sets * WAYS; i++)
        t->entries[i].until_ms = 0;
    (void)pthread_mutex_unlock(&t->lock);
}

void api_accesses_forget(struct api_accesses *t)
{
    (void)pthread_mutex_lock(&t->lock);
    t->epoch++;
    for (size_t i = 0; i < t->sets * WAYS; i++)
        t->entries[i].until_ms = 0;
    (void)pthread_mutex_unlock(&t->lock);
}

static uint32_t role_set(const char *list)
{
    uint32_t set = 0;
    char one[32];

    while (list != NULL && *list != '\0') {
        size_t n = strcspn(list, ",");

        if (n < sizeof(one)) {
            memcpy(one, list, n);
            one[n] = '\0';
            set |= roles_parse(one);
        }
        list += n + (list[n] == ',');
    }
    return set;
}

enum sbx_code api_access_get(struct api_call *c, struct sbx_err *err)
{
    struct api_accesses *kept = c->api->accesses;
    struct store_access row;
    uint64_t epoch;

    if (api_accesses_get(kept, c->account_id, c->caller->user_id, &c->access, &epoch))
        return SBX_OK;
    if (store_access_get(c->db, c->account_id, c->caller->user_id, c->a, &row, err) != SBX_OK)
        return err->code;
    c->access = (struct api_access){ .member = row.member,
                                     .entitled = row.entitled,
                                     .roles = role_set(row.roles) };
    api_accesses_put(kept, c->account_id, c->caller->user_id, &c->access, epoch);
    return SBX_OK;
}
