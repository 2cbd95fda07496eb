#ifndef STORE_WARM_H
#define STORE_WARM_H

/* Warm pool members: sandboxes started ahead of their create, by revision and region. */

#include "store/store.h"

enum store_warm_status {
    STORE_WARM_NONE = 0,
    STORE_WARM_STARTING,
    STORE_WARM_READY,
    STORE_WARM_CLAIMED,  /* a create took it: the region gives it the sandbox's id */
    STORE_WARM_DRAINING, /* to be deleted in the region, then the row goes */
};
const char *store_warm_status_name(enum store_warm_status s);

struct store_warm {
    const char *warm_id; /* the region knows it by this id */
    const char *account_id, *revision_id, *region;
    enum store_warm_status status;
    int64_t generation;
    const char *sandbox_id; /* claimed only */
    int64_t created_at_ms, ready_at_ms, deadline_at_ms;
};
struct store_warms {
    struct store_warm *rows;
    size_t count;
};

/* One pool: what its latest revision asks for and what there is. A pool that nothing asks for any
 * more (older revision, template disabled or deprecated, region not named or off) has desired,
 * min, max 0. */
struct store_warm_pool {
    const char *account_id, *revision_id, *region;
    int desired, min, max;
    int starting, ready;
};
struct store_warm_pools {
    struct store_warm_pool *rows;
    size_t count;
};

MUST_USE enum sbx_code store_warm_pool_list(struct store_conn *db, struct arena *a,
                                            struct store_warm_pools *out, struct sbx_err *err);
/* Inserts up to `count` STARTING members while the pool has fewer than max and all pools together
 * fewer than total_max; for several control planes at once (the pool is locked). */
MUST_USE enum sbx_code store_warm_add(struct store_conn *db, const struct store_warm_pool *pool,
                                      int count, int total_max, int64_t deadline_ms,
                                      struct arena *a, struct store_warms *out,
                                      struct sbx_err *err);
/* Status to `to` while it is STARTING or READY. SBX_E_CHANGING
 * when it is not there or was claimed. */
MUST_USE enum sbx_code store_warm_set(struct store_conn *db, const char *warm_id,
                                      enum store_warm_status to, struct sbx_err *err);
/* Marks up to count members of a pool DRAINING, the oldest first, READY ones included. */
MUST_USE enum sbx_code store_warm_drain(struct store_conn *db, const struct store_warm_pool *pool,
                                        int count, int *drained, struct sbx_err *err);
/* Takes DRAINING members, STARTING ones past their deadline and CLAIMED ones whose sandbox has
 * ended or got READY, for lease_ms: delete them in the region, then store_warm_remove. */
MUST_USE enum sbx_code store_warm_claim_drain(struct store_conn *db, const char *owner,
                                              int64_t lease_ms, int limit, struct arena *a,
                                              struct store_warms *out, struct sbx_err *err);
MUST_USE enum sbx_code store_warm_remove(struct store_conn *db, const char *warm_id,
                                         struct sbx_err *err);
/* Members of a region in id order, for both-ways reconciliation. */
MUST_USE enum sbx_code store_warm_list(struct store_conn *db, const char *region, const char *after,
                                       int limit, struct arena *a, struct store_warms *out,
                                       struct sbx_err *err);

#endif
