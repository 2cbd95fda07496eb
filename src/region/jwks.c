#include "region/jwks.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/time.h"

enum { REFETCH_DEFAULT_S = 30, REFRESH_DEFAULT_S = 300, TIMEOUT_DEFAULT_MS = 5000 };

/* A set of keys is replaced as a whole; a verification that runs keeps its own reference. */
struct key_set {
    struct jose_keys *keys;
    int refs; /* under the lock */
};

struct jwks {
    char *file, *url;
    int64_t refetch_ms, refresh_ms;
    int timeout_ms;
    struct net *net;

    pthread_mutex_t lock;
    pthread_cond_t fetched;
    struct key_set *now; /* NULL before the first good fetch */
    bool fetching;
    int64_t tried_ms; /* time_mono_ms of the last fetch, good or not; 0: never */
};

static void set_put(struct key_set *s)
{
    if (s != NULL && --s->refs == 0) {
        jose_keys_free(s->keys);
        free(s);
    }
}

/* The new keys, or NULL and the reason; outside the lock. */
static struct jose_keys *read_keys(struct jwks *j, struct sbx_err *err)
{
    struct jose_keys *keys = NULL;
    SCOPED_ARENA struct arena *a = arena_new();

    if (j->file != NULL) {
        SCOPED_SECRET struct secret *text = NULL; /* public, but this reads a bounded file */

        if (secret_read_file(j->file, "jwks", JOSE_KEYS_TEXT_MAX, &text, err) == SBX_OK &&
            jose_keys_parse(secret_reveal(text), secret_len(text), &keys, err) != SBX_OK)
            return NULL;
    } else {
        struct net_spec spec = { .url = j->url,
                                 .answer_max = JOSE_KEYS_TEXT_MAX,
                                 .connect_timeout_ms = j->timeout_ms,
                                 .timeout_ms = j->timeout_ms };
        struct net_answer answer;

        if (net_request(j->net, &spec, a, &answer, err) != SBX_OK)
            return NULL;
        if (answer.status != 200)
            err_put(err, SBX_E_UNAVAILABLE, "the key source answered %d", answer.status);
        else if (jose_keys_parse(answer.body, answer.body_len, &keys, err) != SBX_OK)
            return NULL;
    }
    return keys;
}

/* The caller holds the lock and has set fetching. */
static enum sbx_code fetch(struct jwks *j, struct sbx_err *err)
{
    struct jose_keys *keys;

    (void)pthread_mutex_unlock(&j->lock);
    keys = read_keys(j, err);
    (void)pthread_mutex_lock(&j->lock);
    j->fetching = false;
    j->tried_ms = time_mono_ms();
    if (keys != NULL) {
        set_put(j->now);
        j->now = mem_zalloc(sizeof(*j->now));
        *j->now = (struct key_set){ keys, 1 };
    }
    (void)pthread_cond_broadcast(&j->fetched);
    return err->code;
}

enum sbx_code jwks_open(const struct jwks_config *config, struct net *n, struct jwks **out,
                        struct sbx_err *err)
{
    struct jwks *j = mem_zalloc(sizeof(*j));
    enum sbx_code code = SBX_OK;

    assert((config->file == NULL) != (config->url == NULL));
    j->file = config->file != NULL ? mem_strdup(config->file) : NULL;
    j->url = config->url != NULL ? mem_strdup(config->url) : NULL;
    j->refetch_ms = 1000 * (int64_t)(config->refetch_s > 0 ? config->refetch_s : REFETCH_DEFAULT_S);
    j->refresh_ms = 1000 * (int64_t)(config->refresh_s > 0 ? config->refresh_s : REFRESH_DEFAULT_S);
    j->timeout_ms = config->timeout_ms > 0 ? config->timeout_ms : TIMEOUT_DEFAULT_MS;
    j->net = n;
    (void)pthread_mutex_init(&j->lock, NULL);
    (void)pthread_cond_init(&j->fetched, NULL);
    if (j->file != NULL) {
        (void)pthread_mutex_lock(&j->lock);
        j->fetching = true;
        code = fetch(j, err);
        (void)pthread_mutex_unlock(&j->lock);
    }
    if (code != SBX_OK) {
        jwks_close(j);
        return code;
    }
    *out = j;
    return SBX_OK;
}

void jwks_close(struct jwks *j)
{
    if (j == NULL)
        return;
    set_put(j->now);
    (void)pthread_cond_destroy(&j->fetched);
    (void)pthread_mutex_destroy(&j->lock);
    free(j->file);
    free(j->url);
    free(j);
}

/* A fetch may happen now: never more often than refetch says. The caller holds the lock. */
static bool may_fetch(const struct jwks *j)
{
    return j->tried_ms == 0 || time_mono_ms() - j->tried_ms >= j->refetch_ms;
}

static bool is_old(const struct jwks *j)
{
    return j->now == NULL || time_mono_ms() - j->tried_ms >= j->refresh_ms;
}

/* Fetches once for all who ask at the same time; the caller holds the lock. */
static void refresh(struct jwks *j)
{
    struct sbx_err err = { 0 };

    if (j->fetching) {
        while (j->fetching)
            (void)pthread_cond_wait(&j->fetched, &j->lock);
        return;
    }
    if (!may_fetch(j))
        return;
    j->fetching = true;
    if (fetch(j, &err) != SBX_OK)
        log_err(LOG_WARN, "key source not readable", &err, LOG_B("lastGoodKeys", j->now != NULL));
}

static enum jose_verdict verify_now(struct jwks *j, unsigned algs, const char *token,
                                    json_t **claims)
{
    struct key_set *s = j->now;
    enum jose_verdict v;

    if (s != NULL)
        s->refs++;
    (void)pthread_mutex_unlock(&j->lock);
    v = jose_verify(s != NULL ? s->keys : NULL, algs, token, claims);
    (void)pthread_mutex_lock(&j->lock);
    set_put(s);
    return v;
}

/* Would other keys change the verdict? */
static bool depends_on_keys(enum jose_verdict v)
{
    return v == JOSE_NO_KEYS || v == JOSE_KID_UNKNOWN;
}

enum jose_verdict jwks_verify(struct jwks *j, unsigned algs, const char *token, bool may_block,
                              json_t **claims, bool *again)
{
    enum jose_verdict v;

    (void)pthread_mutex_lock(&j->lock);
    if (may_block && is_old(j))
        refresh(j);
    v = verify_now(j, algs, token, claims);
    if (may_block && depends_on_keys(v) && (j->fetching || may_fetch(j))) {
        refresh(j);
        v = verify_now(j, algs, token, claims);
    }
    *again = !may_block && v != JOSE_MALFORMED && v != JOSE_ALG_REFUSED &&
             (j->fetching || may_fetch(j)) && (depends_on_keys(v) || is_old(j));
    if (*again && v == JOSE_OK) { /* not final */
        json_decref(*claims);
        *claims = NULL;
        v = JOSE_NO_KEYS;
    }
    (void)pthread_mutex_unlock(&j->lock);
    return v;
}
