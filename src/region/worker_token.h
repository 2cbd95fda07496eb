#ifndef REGION_WORKER_TOKEN_H
#define REGION_WORKER_TOKEN_H

/* The service token of the worker check-in: a compact JWT, RS256 only (contract 7).  The checks
 * run in the contract's order and the first that fails speaks. */

#include "base/arena.h"
#include "region/jwks.h"

struct region_worker_token {
    const char *subject;  /* sub, "svc:..." */
    const char *token_id; /* jti */
};

struct region_worker_issuer {
    struct jwks *keys;  /* NULL: none configured, SBX_E_IDENTITY_UNAVAILABLE */
    const char *issuer; /* the iss wanted */
};

/* token is what stands in Authorization, NULL or "" when nothing does. SBX_E_WORKER_TOKEN_... (401)
 * in the contract's order, SBX_E_IDENTITY_UNAVAILABLE (503), SBX_E_CAPABILITY_DENIED (403). May
 * block. out is in the arena. */
MUST_USE enum sbx_code region_worker_token_judge(const struct region_worker_issuer *issuer,
                                                 const char *token, int64_t now_s, struct arena *a,
                                                 struct region_worker_token *out,
                                                 struct sbx_err *err);
/* The rules on claims alone, for tests of every refusal. */
MUST_USE enum sbx_code region_worker_claims_judge(const char *issuer, const json_t *claims,
                                                  int64_t now_s, struct sbx_err *err);

#endif
