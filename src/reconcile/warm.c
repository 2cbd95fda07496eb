#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "reconcile/state.h"

/* Warm pools: kept between min and max around desired, by revision and region; stale ones
 * drained; and the purge of volumes whose delay has passed. */

enum {
    WARM_EVERY_MS = 500,
    WARM_NONE_MS = 2000, /* while nothing asks for a pool */
    WARM_BACKOFF_FIRST_MS = 1000,
    WARM_BACKOFF_MAX_MS = 60000,
    WARM_AT_ONCE = 8, /* members started for one pool in one pass */
    DRAIN_AT_ONCE = 64,
    DRAIN_LEASE_MS = 90000, /* longer than a DELETE may take */
    PURGE_EVERY_MS = 10000,
    PURGE_LEASE_MS = 960000,
    PURGE_AT_ONCE = 16,
};

static void warm_failed(struct reconcile_core *c)
{
    c->warm_backoff_ms = c->warm_backoff_ms ? 2 * c->warm_backoff_ms : WARM_BACKOFF_FIRST_MS;
    if (c->warm_backoff_ms > WARM_BACKOFF_MAX_MS)
        c->warm_backoff_ms = WARM_BACKOFF_MAX_MS;
    c->next_warm_ms = reconcile_mono(c) + c->warm_backoff_ms;
}

static void start_member(struct reconcile_core *c, const struct store_warm *w)
{
    struct reconcile_op *op =
        reconcile_op_new(c, RECONCILE_WARM, RECONCILE_FOR_WARM, w->warm_id, w->region);
    struct reconcile_call call;
    struct sbx_err err = { 0 };

    op->generation = w->generation;
    call = reconcile_call_of(op);
    call.warm = w;
    if (c->cfg.region->start(c->cfg.region_self, &call, &err)) {
        struct sbx_err ignored = { 0 };

        (void)!c->cfg.store->warm_set(c->cfg.db, w->warm_id, STORE_WARM_DRAINING, &ignored);
        reconcile_op_free(c, op);
        warm_failed(c);
    }
}

static enum sbx_code fill(struct reconcile_core *c, struct arena *a,
                          const struct store_warm_pool *pool, struct sbx_err *err)
{
    int missing = pool->desired - pool->starting - pool->ready;
    struct store_warms added = { 0 };

    if (missing > pool->max - pool->starting - pool->ready)
        missing = pool->max - pool->starting - pool->ready;
    if (missing > WARM_AT_ONCE)
        missing = WARM_AT_ONCE;
    /* Rows for what cannot start would only pile up. */
    if (missing <= 0 || reconcile_region_away(c, pool->region))
        return SBX_OK;
    if (c->cfg.store->warm_add(c->cfg.db, pool, missing, c->cfg.warm_total_max,
                               c->cfg.warm_deadline_ms, a, &added, err))
        return err->code;
    for (size_t i = 0; i < added.count; i++)
        start_member(c, &added.rows[i]);
    return SBX_OK;
}

static enum sbx_code drain(struct reconcile_core *c, struct arena *a, struct sbx_err *err)
{
    struct store_warms gone = { 0 };

    if (c->cfg.store->warm_claim_drain(c->cfg.db, c->cfg.instance, DRAIN_LEASE_MS, DRAIN_AT_ONCE, a,
                                       &gone, err))
        return err->code;
    for (size_t i = 0; i < gone.count; i++) {
        struct reconcile_op *op = reconcile_op_new(c, RECONCILE_DESTROY, RECONCILE_FOR_DRAIN,
                                                   gone.rows[i].warm_id, gone.rows[i].region);
        struct reconcile_call call;
        struct sbx_err ignored = { 0 };

        op->generation = gone.rows[i].generation + 1;
        call = reconcile_call_of(op);
        if (c->cfg.region->start(c->cfg.region_self, &call, &ignored))
            reconcile_op_free(c, op); /* its lease ends, then it is tried again */
    }
    return SBX_OK;
}

void reconcile_warm_pass(struct reconcile_core *c, struct arena *a)
{
    struct store_warm_pools pools = { 0 };
    struct sbx_err err = { 0 };
    int64_t mono = reconcile_mono(c);

    if (mono < c->next_warm_ms || !reconcile_db_usable(c) || c->op_count >= c->cfg.actions_max)
        return;
    c->next_warm_ms = mono + WARM_EVERY_MS;
    if (c->cfg.store->warm_pools(c->cfg.db, a, &pools, &err)) {
        reconcile_db_failed(c, &err, "warm pools");
        return;
    }
    if (pools.count == 0)
        c->next_warm_ms = mono + WARM_NONE_MS;
    /* Below min is urgent: those pools are filled first. */
    for (int urgent = 1; urgent >= 0 && err.code == SBX_OK; urgent--) {
        for (size_t i = 0; i < pools.count && err.code == SBX_OK; i++) {
            const struct store_warm_pool *p = &pools.rows[i];
            int drained = 0;

            if ((p->ready + p->starting < p->min) != (urgent == 1))
                continue;
            if (p->starting + p->ready > p->desired)
                (void)!c->cfg.store->warm_drain(c->cfg.db, p, p->starting + p->ready - p->desired,
                                                &drained, &err);
            else if (c->cfg.warm_total_max > 0)
                (void)!fill(c, a, p, &err);
        }
    }
    if (err.code == SBX_OK)
        (void)!drain(c, a, &err);
    if (err.code != SBX_OK)
        reconcile_db_failed(c, &err, "warm pools");
}

void reconcile_warm_answer(struct reconcile_core *c, const struct reconcile_op *op,
                           const struct reconcile_answer *answer)
{
    struct sbx_err err = { 0 };
    bool up =
        answer->code == SBX_OK && answer->count && answer->seen[0].phase == REGION_PHASE_RUNNING;

    if (answer->code != SBX_OK && !answer->answered)
        reconcile_region_silent(c, op->region);
    if (op->purpose == RECONCILE_FOR_DRAIN) {
        if (answer->code == SBX_OK && c->cfg.store->warm_remove(c->cfg.db, op->id, &err))
            reconcile_db_failed(c, &err, "warm remove");
        return;
    }
    if (up) {
        c->warm_backoff_ms = 0;
        c->next_warm_ms = 0;
    } else {
        log_warn("a warm member did not start", LOG_S("warmId", op->id),
                 LOG_S("region", op->region), LOG_S("error", answer->message));
        warm_failed(c);
    }
    if (c->cfg.store->warm_set(c->cfg.db, op->id, up ? STORE_WARM_READY : STORE_WARM_DRAINING,
                               &err) &&
        err.code != SBX_E_CHANGING)
        reconcile_db_failed(c, &err, "warm set"); /* past its deadline it is drained */
}

/* --- volumes ----------------------------------------------------------- */

void reconcile_purge_pass(struct reconcile_core *c, struct arena *a)
{
    struct store_volumes due = { 0 };
    struct sbx_err err = { 0 };
    int64_t mono = reconcile_mono(c);

    if (mono < c->next_purge_ms || !reconcile_db_usable(c))
        return;
    c->next_purge_ms = mono + PURGE_EVERY_MS;
    if (c->cfg.store->claim_purge(c->cfg.db, c->cfg.instance, PURGE_LEASE_MS, PURGE_AT_ONCE, a,
                                  &due, &err)) {
        reconcile_db_failed(c, &err, "claim purge");
        return;
    }
    for (size_t i = 0; i < due.count; i++) {
        struct reconcile_op *op =
            reconcile_op_new(c, RECONCILE_PURGE, RECONCILE_FOR_PURGE, "", due.rows[i].region);
        struct reconcile_call call;
        struct sbx_err ignored = { 0 };

        (void)str_copy(op->volume, sizeof(op->volume), due.rows[i].volume_name);
        (void)str_copy(op->account, sizeof(op->account), due.rows[i].account_id);
        call = reconcile_call_of(op);
        call.volume = &due.rows[i];
        if (c->cfg.region->start(c->cfg.region_self, &call, &ignored))
            reconcile_op_free(c, op); /* its lease ends, then it is tried again */
    }
}

void reconcile_purge_answer(struct reconcile_core *c, const struct reconcile_op *op,
                            const struct reconcile_answer *answer)
{
    struct sbx_err err = { 0 };

    if (answer->code != SBX_OK) {
        log_warn("a volume could not be purged yet", LOG_S("volumeName", op->volume),
                 LOG_S("region", op->region), LOG_S("error", answer->message));
        return;
    }
    if (c->cfg.store->purged(c->cfg.db, op->account, op->region, op->volume, &err))
        reconcile_db_failed(c, &err, "purged");
    else
        log_info("a volume was purged", LOG_S("volumeName", op->volume),
                 LOG_S("region", op->region));
}
