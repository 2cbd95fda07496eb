#ifndef API_AUTH_H
#define API_AUTH_H

/* Who calls: a bounded cache of token digests, and what was found out about the
 * caller.  Revocation acts at once where a notice arrives; while notices cannot
 * arrive the cache is empty and bypassed (contract 1). Internal to api. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/hash.h"
#include "base/id.h"
#include "store/identity.h"

/* A value; lives in the request's arena. */
struct api_caller {
    enum store_token_kind kind; /* NONE: an operator */
    char token_id[ID_SIZE];     /* "" for OAuth and operators */
    char user_id[ID_SIZE];
    char principal_id[ID_SIZE];
    uint32_t scopes; /* SCOPE_... */
    uid_t uid;       /* operators */
    char actor[64];  /* "user:<id>", "principal:<id>", "operator:uid=0"; a person's callerKey */
};

struct api_tokens;

struct api_tokens *api_tokens_new(int max, int life_s, int rate_per_s, int rate_burst);
void api_tokens_rate(struct api_tokens *t, int rate_per_s, int rate_burst); /* from now on */
void api_tokens_free(struct api_tokens *t); /* NULL is allowed */

enum api_found { API_FOUND_NO = 0, API_FOUND_YES, API_FOUND_TOO_FAST };
/* *epoch is set in every case: what api_tokens_put needs after a miss. Any thread. */
enum api_found api_tokens_get(struct api_tokens *t, const unsigned char digest[SHA256_LEN],
                              struct api_caller *out, uint64_t *epoch);
/* Keeps what was found for at most the cache's life, or expires_in_ms when that is shorter (0: no
 * end of its own). Does nothing when something was revoked since `epoch`, or while bypassed. */
void api_tokens_put(struct api_tokens *t, const unsigned char digest[SHA256_LEN],
                    const struct api_caller *caller, int64_t expires_in_ms, uint64_t epoch);
void api_tokens_revoke(struct api_tokens *t, const char *token_id); /* "*" for all */
/* Off: emptied, and nothing is kept until it is on again. It begins off. */
void api_tokens_enable(struct api_tokens *t, bool on);
size_t api_tokens_count(struct api_tokens *t);

/* OAuth issuers and their keys, read from the store when they were changed. */
struct api_issuers;
struct net;
struct store_conn;

struct api_issuers *api_issuers_new(struct net *net);
void api_issuers_free(struct api_issuers *i);    /* NULL is allowed */
void api_issuers_changed(struct api_issuers *i); /* any thread, never blocks */
/* Judges a JWT and finds its user. *expires_in_ms is the token's own rest of life.
 * SBX_E_UNAUTHENTICATED, SBX_E_TOKEN_EXPIRED, SBX_E_UNAVAILABLE. On a worker. */
MUST_USE enum sbx_code api_issuers_judge(struct api_issuers *i, struct store_conn *db,
                                         const char *token, struct arena *a, struct api_caller *out,
                                         int64_t *expires_in_ms, struct sbx_err *err);

#endif
