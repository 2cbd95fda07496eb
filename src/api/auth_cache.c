#include "api/auth.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/time.h"

/* Sets of WAYS entries by digest: bounded without a list to keep; a full set
 * gives up its entry that ends first. */
enum { WAYS = 8 };

struct entry {
    unsigned char digest[SHA256_LEN];
    int64_t until_ms;  /* monotonic; 0: free */
    int64_t bucket_ms; /* rate: when the bucket was last filled */
    int64_t bucket;    /* rate: thousandths of a request */
    struct api_caller caller;
};

struct api_tokens {
    pthread_mutex_t lock;
    struct entry *entries;
    size_t sets; /* a power of two */
    int64_t life_ms;
    int rate_per_s, rate_burst;
    uint64_t epoch; /* grows with every revocation */
    bool on;
};

struct api_tokens *api_tokens_new(int max, int life_s, int rate_per_s, int rate_burst)
{
    struct api_tokens *t = mem_zalloc(sizeof(*t));

    t->sets = 1;
    while (t->sets * WAYS < (size_t)max)
        t->sets *= 2;
    t->entries = mem_zalloc(t->sets * WAYS * sizeof(*t->entries));
    t->life_ms = (int64_t)life_s * 1000;
    assert(pthread_mutex_init(&t->lock, NULL) == 0);
    api_tokens_rate(t, rate_per_s, rate_burst);
    return t;
}

void api_tokens_rate(struct api_tokens *t, int rate_per_s, int rate_burst)
{
    (void)pthread_mutex_lock(&t->lock);
    t->rate_per_s = rate_per_s;
    t->rate_burst = rate_burst > 0 ? rate_burst : rate_per_s;
    (void)pthread_mutex_unlock(&t->lock);
}

void api_tokens_free(struct api_tokens *t)
{
    if (t == NULL)
        return;
    assert(pthread_mutex_destroy(&t->lock) == 0);
    free(t->entries);
    free(t);
}

static struct entry *set_of(struct api_tokens *t, const unsigned char digest[SHA256_LEN])
{
    uint64_t h;

    memcpy(&h, digest, sizeof(h));
    return t->entries + (h & (t->sets - 1)) * WAYS;
}

static struct entry *find(struct api_tokens *t, const unsigned char digest[SHA256_LEN],
                          int64_t now_ms)
{
    struct entry *set = set_of(t, digest);

    for (int i = 0; i < WAYS; i++) {
        if (set[i].until_ms > now_ms && memcmp(set[i].digest, digest, SHA256_LEN) == 0)
            return &set[i];
    }
    return NULL;
}

static bool admit(const struct api_tokens *t, struct entry *e, int64_t now_ms)
{
    const int64_t full = (int64_t)t->rate_burst * 1000;

    if (t->rate_per_s == 0)
        return true;
    e->bucket += (now_ms - e->bucket_ms) * t->rate_per_s;
    e->bucket_ms = now_ms;
    if (e->bucket > full)
        e->bucket = full;
    if (e->bucket < 1000)
        return false;
    e->bucket -= 1000;
    return true;
}

enum api_found api_tokens_get(struct api_tokens *t, const unsigned char digest[SHA256_LEN],
                              struct api_caller *out, uint64_t *epoch)
{
    int64_t now_ms = time_mono_ms();
    enum api_found found = API_FOUND_NO;
    struct entry *e;

    (void)pthread_mutex_lock(&t->lock);
    *epoch = t->epoch;
    e = find(t, digest, now_ms);
    if (e != NULL) {
        found = admit(t, e, now_ms) ? API_FOUND_YES : API_FOUND_TOO_FAST;
        *out = e->caller;
    }
    (void)pthread_mutex_unlock(&t->lock);
    return found;
}

void api_tokens_put(struct api_tokens *t, const unsigned char digest[SHA256_LEN],
                    const struct api_caller *caller, int64_t expires_in_ms, uint64_t epoch)
{
    int64_t now_ms = time_mono_ms();
    int64_t life_ms = t->life_ms;
    struct entry *set = set_of(t, digest);
    struct entry *e;

    if (expires_in_ms != 0 && expires_in_ms < life_ms)
        life_ms = expires_in_ms;
    (void)pthread_mutex_lock(&t->lock);
    if (t->on && t->epoch == epoch && life_ms > 0) {
        e = find(t, digest, now_ms);
        if (e == NULL) {
            e = set;
            for (int i = 1; i < WAYS; i++) {
                if (set[i].until_ms < e->until_ms)
                    e = &set[i];
            }
            /* A new entry's bucket is full but for the request that made it. */
            e->bucket = ((int64_t)t->rate_burst - 1) * 1000;
            e->bucket_ms = now_ms;
        }
        memcpy(e->digest, digest, SHA256_LEN);
        e->caller = *caller;
        e->until_ms = now_ms + life_ms;
    }
    (void)pthread_mutex_unlock(&t->lock);
}

/* Under the lock. */
static void empty(struct api_tokens *t)
{
    for (size_t i = 0; i < t->sets * WAYS; i++)
        t->entries[i].until_ms = 0;
}

void api_tokens_revoke(struct api_tokens *t, const char *token_id)
{
    bool all = strcmp(token_id, "*") == 0;

    (void)pthread_mutex_lock(&t->lock);
    t->epoch++;
    if (all)
        empty(t);
    for (size_t i = 0; !all && i < t->sets * WAYS; i++) {
        if (strcmp(t->entries[i].caller.token_id, token_id) == 0)
            t->entries[i].until_ms = 0;
    }
    (void)pthread_mutex_unlock(&t->lock);
}

void api_tokens_enable(struct api_tokens *t, bool on)
{
    (void)pthread_mutex_lock(&t->lock);
    t->epoch++;
    t->on = on;
    empty(t);
    (void)pthread_mutex_unlock(&t->lock);
}

size_t api_tokens_count(struct api_tokens *t)
{
    int64_t now_ms = time_mono_ms();
    size_t n = 0;

    (void)pthread_mutex_lock(&t->lock);
    for (size_t i = 0; i < t->sets * WAYS; i++)
        n += t->entries[i].until_ms > now_ms;
    (void)pthread_mutex_unlock(&t->lock);
    return n;
}
