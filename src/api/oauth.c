#include "api/auth.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/time.h"
#include "domain/access.h"
#include "region/jose.h"
#include "region/jwks.h"

/* OAuth access tokens (contract 1): a JWT of a configured issuer; (iss, sub) is
 * linked to a user of ours.  The set of issuers is read from the store and immutable;
 * a change makes the next token read it again. */

enum {
    ISSUERS_MAX = 64,
    NOT_BEFORE_SKEW_S = 5, /* two machines' clocks */
};

struct issuer {
    char *name;
    char *audience;
    struct jose_keys *keys; /* given inline */
    struct jwks *jwks;      /* or from a URL */
};

struct set {
    int refs; /* under the lock of api_issuers */
    size_t count;
    struct issuer issuers[ISSUERS_MAX];
};

struct api_issuers {
    pthread_mutex_t lock;
    struct net *net;
    struct set *now;  /* NULL before the first read */
    uint64_t changes; /* how often something changed; `now` was read at `read_at` */
    uint64_t read_at;
};

struct api_issuers *api_issuers_new(struct net *net)
{
    struct api_issuers *i = mem_zalloc(sizeof(*i));

    i->net = net;
    assert(pthread_mutex_init(&i->lock, NULL) == 0);
    return i;
}

static void set_free(struct set *s)
{
    for (size_t i = 0; i < s->count; i++) {
        jose_keys_free(s->issuers[i].keys);
        jwks_close(s->issuers[i].jwks);
        free(s->issuers[i].name);
        free(s->issuers[i].audience);
    }
    free(s);
}

static void set_put(struct api_issuers *i, struct set *s)
{
    bool last;

    if (s == NULL)
        return;
    (void)pthread_mutex_lock(&i->lock);
    last = --s->refs == 0;
    (void)pthread_mutex_unlock(&i->lock);
    if (last)
        set_free(s);
}

void api_issuers_free(struct api_issuers *i)
{
    if (i == NULL)
        return;
    set_put(i, i->now);
    assert(pthread_mutex_destroy(&i->lock) == 0);
    free(i);
}

void api_issuers_changed(struct api_issuers *i)
{
    (void)pthread_mutex_lock(&i->lock);
    i->changes++;
    (void)pthread_mutex_unlock(&i->lock);
}

/* One whose keys cannot be read is left out: its tokens are refused, others' are not. */
static void add_issuer(struct api_issuers *i, struct set *s, const struct store_issuer *row)
{
    struct issuer *to = &s->issuers[s->count];
    struct sbx_err err = { 0 };
    enum sbx_code code;

    if (row->jwks != NULL) {
        code = jose_keys_parse(row->jwks, strlen(row->jwks), &to->keys, &err);
    } else {
        const struct jwks_config cfg = { .url = row->jwks_url };

        code = jwks_open(&cfg, i->net, &to->jwks, &err);
    }
    if (code != SBX_OK)
        return;
    to->name = mem_strdup(row->issuer);
    to->audience = mem_strdup(row->audience);
    s->count++;
}

static enum sbx_code read_set(struct api_issuers *i, struct store_conn *db, struct arena *a,
                              struct set **out, struct sbx_err *err)
{
    struct store_issuers rows;
    struct set *s;

    if (store_issuer_list(db, a, &rows, err) != SBX_OK)
        return err->code;
    s = mem_zalloc(sizeof(*s));
    for (size_t k = 0; k < rows.count && s->count < ISSUERS_MAX; k++)
        add_issuer(i, s, &rows.rows[k]);
    s->refs = 1;
    *out = s;
    return SBX_OK;
}

/* The present set with a reference for the caller. */
static enum sbx_code take_set(struct api_issuers *i, struct store_conn *db, struct arena *a,
                              struct set **out, struct sbx_err *err)
{
    struct set *fresh = NULL, *old;
    uint64_t at;

    (void)pthread_mutex_lock(&i->lock);
    at = i->changes;
    if (i->now != NULL && i->read_at == at) {
        i->now->refs++;
        *out = i->now;
        (void)pthread_mutex_unlock(&i->lock);
        return SBX_OK;
    }
    (void)pthread_mutex_unlock(&i->lock);
    if (read_set(i, db, a, &fresh, err) != SBX_OK)
        return err->code;
    (void)pthread_mutex_lock(&i->lock);
    old = i->now;
    i->now = fresh;
    i->read_at = at;
    fresh->refs++;
    *out = fresh;
    (void)pthread_mutex_unlock(&i->lock);
    set_put(i, old);
    return SBX_OK;
}

static bool has_audience(const json_t *claims, const char *audience)
{
    const json_t *aud = json_object_get(claims, "aud");

    if (json_is_string(aud))
        return strcmp(json_string_value(aud), audience) == 0;
    for (size_t k = 0; k < json_array_size(aud); k++) {
        const char *one = json_string_value(json_array_get(aud, k));

        if (one != NULL && strcmp(one, audience) == 0)
            return true;
    }
    return false;
}

/* A NumericDate; 0 when it is none. */
static int64_t seconds(const json_t *claims, const char *name)
{
    const json_t *v = json_object_get(claims, name);
    double d = json_number_value(v);

    return json_is_number(v) && d > 0 && d < 1e15 ? (int64_t)d : 0;
}

static enum sbx_code refuse(struct sbx_err *err)
{
    return err_set(err, SBX_E_UNAUTHENTICATED, "The access token is not valid.");
}

static enum sbx_code check_claims(const struct issuer *is, const json_t *claims,
                                  int64_t *expires_in_ms, struct sbx_err *err)
{
    int64_t now_ms = time_unix_ms();
    int64_t exp = seconds(claims, "exp");
    int64_t nbf = seconds(claims, "nbf");
    const char *sub = json_get_str(claims, "sub", "");

    if (!has_audience(claims, is->audience) || exp == 0 || sub[0] == '\0')
        return refuse(err);
    if (json_object_get(claims, "nbf") != NULL &&
        (nbf == 0 || nbf * 1000 > now_ms + NOT_BEFORE_SKEW_S * 1000))
        return refuse(err);
    if (exp * 1000 <= now_ms)
        return err_set(err, SBX_E_TOKEN_EXPIRED, "The access token has expired.");
    *expires_in_ms = exp * 1000 - now_ms;
    return SBX_OK;
}

static const struct issuer *issuer_named(const struct set *s, const char *name)
{
    for (size_t k = 0; k < s->count; k++) {
        if (strcmp(s->issuers[k].name, name) == 0)
            return &s->issuers[k];
    }
    return NULL;
}

static enum jose_verdict verify(const struct issuer *is, const char *token, json_t **claims)
{
    const unsigned algs = JOSE_RS256 | JOSE_ES256 | JOSE_EDDSA;
    bool again;

    if (is->keys != NULL)
        return jose_verify(is->keys, algs, token, claims);
    return jwks_verify(is->jwks, algs, token, true, claims, &again);
}

static enum sbx_code judge(const struct set *s, struct store_conn *db, const char *token,
                           struct arena *a, struct api_caller *out, int64_t *expires_in_ms,
                           struct sbx_err *err)
{
    SCOPED_JSON json_t *peek = jose_peek_claims(token);
    SCOPED_JSON json_t *claims = NULL;
    const struct issuer *is;
    const char *user_id;

    is = peek == NULL ? NULL : issuer_named(s, json_get_str(peek, "iss", ""));
    if (is == NULL)
        return refuse(err);
    switch (verify(is, token, &claims)) {
    case JOSE_OK:
        break;
    case JOSE_NO_KEYS:
        return err_set(err, SBX_E_UNAVAILABLE, "The issuer's keys cannot be read now.");
    case JOSE_MALFORMED:
    case JOSE_ALG_REFUSED:
    case JOSE_KID_UNKNOWN:
    case JOSE_BAD_SIGNATURE:
        return refuse(err);
    }
    if (check_claims(is, claims, expires_in_ms, err) != SBX_OK)
        return err->code;
    if (store_issuer_user(db, is->name, json_get_str(claims, "sub", ""), a, &user_id, err) !=
        SBX_OK)
        return err->code;
    *out = (struct api_caller){ .kind = STORE_TOKEN_OAUTH };
    (void)str_copy(out->user_id, sizeof(out->user_id), user_id);
    (void)snprintf(out->actor, sizeof(out->actor), "user:%s", user_id);
    out->scopes = scopes_parse_list(json_get_str(claims, "scope", ""));
    return SBX_OK;
}

enum sbx_code api_issuers_judge(struct api_issuers *i, struct store_conn *db, const char *token,
                                struct arena *a, struct api_caller *out, int64_t *expires_in_ms,
                                struct sbx_err *err)
{
    struct set *s = NULL;
    enum sbx_code code;

    if (!jose_looks_like_jws(token))
        return refuse(err);
    if (take_set(i, db, a, &s, err) != SBX_OK)
        return err->code;
    code = judge(s, db, token, a, out, expires_in_ms, err);
    set_put(i, s);
    return code;
}
