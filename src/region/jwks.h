#ifndef REGION_JWKS_H
#define REGION_JWKS_H

/* Keys of one issuer from a JWKS or PEM file, or a URL: cached, refetched when they
 * are old, and for an unknown kid at most every refetch_s.  When the source is away
 * the last good keys go on. */

#include <stdbool.h>

#include "net/net.h"
#include "region/jose.h"

struct jwks;

struct jwks_config {
    const char *file; /* JWKS or PEM; or */
    const char *url;  /* JWKS or PEM; exactly one of the two */
    int refetch_s;    /* least time between two fetches; 0: 30 */
    int refresh_s;    /* keys older than this are fetched again; 0: 300 */
    int timeout_ms;   /* of one fetch; 0: 5000 */
};

/* Reads a file at once (SBX_E_INVALID when it is bad); a URL is fetched at the first use that may
 * block, so that a start does not depend on somebody else's server. n may be NULL for a file. */
MUST_USE enum sbx_code jwks_open(const struct jwks_config *config, struct net *n, struct jwks **out,
                                 struct sbx_err *err);
void jwks_close(struct jwks *j); /* NULL is allowed; no call may be under way */

/* jose_verify with the cached keys. Any thread.
 * may_block false: never does I/O; *again (set in every case) is true when the verdict could change
 * by a fetch that is due now: then the verdict is not
 * final and never JOSE_OK: ask again on a thread that may block, with may_block true, which
 * fetches first (one at a time; others wait for it) and then decides. */
enum jose_verdict jwks_verify(struct jwks *j, unsigned algs, const char *token, bool may_block,
                              json_t **claims, bool *again);

#endif
