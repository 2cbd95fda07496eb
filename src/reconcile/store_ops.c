#include "reconcile/core.h"
#include "store/trail.h"

const struct reconcile_store_ops RECONCILE_STORE = {
    .claim_due = store_sandbox_claim_due,
    .claim_one = store_sandbox_claim_one,
    .moves = store_sandbox_moves,
    .release = store_lease_release,
    .desire = store_sandbox_desire,
    .list_ids = store_sandbox_list_ids,
    .list_held = store_sandbox_list_held,
    .next_due = store_sandbox_next_due,
    .poke_region = store_sandbox_poke_region,
    .renew = store_lease_renew,
    .beat = store_instance_beat,
    .reap = store_instance_reap,
    .execution_claim_stale = store_execution_claim_stale,
    .execution_end = store_execution_end,
    .warm_pools = store_warm_pool_list,
    .warm_add = store_warm_add,
    .warm_set = store_warm_set,
    .warm_drain = store_warm_drain,
    .warm_claim_drain = store_warm_claim_drain,
    .warm_remove = store_warm_remove,
    .warm_list = store_warm_list,
    .claim_purge = store_volume_claim_purge,
    .purged = store_volume_purged,
    .prune = store_trail_prune,
};
