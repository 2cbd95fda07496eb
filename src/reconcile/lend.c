#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "reconcile/state.h"

/* Storage credentials for live directories.  A region gateway holds them in memory only, so after
 * its restart, or when those it has do not work, it names the volumes that it lacks them for.  It
 * is asked every few seconds and gets those of volumes that a sandbox of its region really has; how
 * often a volume is named again is its business.  Every control plane does this: to get them twice
 * is nothing. */

enum {
    ASK_EVERY_MS = 5000,
    ASK_LATER_MS = 60000, /* a region of before there was this question */
    LEND_AT_ONCE = 64,    /* each is two reads of the database */
};

void reconcile_lend_pass(struct reconcile_core *c)
{
    int64_t mono = reconcile_mono(c);

    for (size_t i = 0; i < c->sweep_count; i++) {
        struct reconcile_sweep *s = &c->sweeps[i];
        struct reconcile_op *op;
        struct reconcile_call call;
        struct sbx_err ignored = { 0 };

        if (!s->present || s->away || s->asking || s->lending > 0 || mono < s->next_ask_ms ||
            c->op_count >= c->cfg.actions_max)
            continue;
        op = reconcile_op_new(c, RECONCILE_WANTS, RECONCILE_FOR_WANTS, "", s->region);
        call = reconcile_call_of(op);
        s->next_ask_ms = mono + ASK_EVERY_MS;
        s->asking = c->cfg.region->start(c->cfg.region_self, &call, &ignored) == SBX_OK;
        if (!s->asking)
            reconcile_op_free(c, op);
    }
}

static void lend(struct reconcile_core *c, struct reconcile_sweep *s,
                 const struct reconcile_want *want)
{
    struct reconcile_op *op =
        reconcile_op_new(c, RECONCILE_LEND, RECONCILE_FOR_LEND, "", s->region);
    struct store_volume volume = { .volume_name = want->volume,
                                   .account_id = want->account,
                                   .region = s->region };
    struct reconcile_call call;
    struct sbx_err err = { 0 };

    (void)str_copy(op->volume, sizeof(op->volume), want->volume);
    (void)str_copy(op->account, sizeof(op->account), want->account);
    call = reconcile_call_of(op);
    call.volume = &volume;
    if (c->cfg.region->start(c->cfg.region_self, &call, &err) == SBX_OK) {
        s->lending++;
        return;
    }
    if (err.code != SBX_E_NOT_FOUND) /* else its last sandbox has just ended */
        log_err(LOG_WARN, "storage credentials cannot be sent", &err, LOG_S("region", s->region),
                LOG_S("volumeName", want->volume));
    reconcile_op_free(c, op);
}

void reconcile_wants_answer(struct reconcile_core *c, const struct reconcile_op *op,
                            const struct reconcile_answer *answer)
{
    struct reconcile_sweep *s = reconcile_sweep_of(c, op->region);

    if (!s)
        return;
    s->asking = false;
    if (answer->answered && answer->code != SBX_OK)
        s->next_ask_ms = reconcile_mono(c) + ASK_LATER_MS;
    if (c->quiet)
        return;
    for (size_t i = 0; i < answer->want_count && i < LEND_AT_ONCE; i++)
        lend(c, s, &answer->wants[i]);
    if (answer->want_count > LEND_AT_ONCE)
        s->next_ask_ms = reconcile_mono(c); /* for the others, once these have arrived */
}

void reconcile_lend_answer(struct reconcile_core *c, const struct reconcile_op *op,
                           const struct reconcile_answer *answer)
{
    struct reconcile_sweep *s = reconcile_sweep_of(c, op->region);

    if (s && s->lending > 0)
        s->lending--;
    if (answer->code == SBX_OK) {
        c->counts.lent++;
        log_info("storage credentials were sent again", LOG_S("region", op->region),
                 LOG_S("accountId", op->account), LOG_S("volumeName", op->volume));
    } else {
        log_warn("storage credentials did not help a region", LOG_S("region", op->region),
                 LOG_S("accountId", op->account), LOG_S("volumeName", op->volume),
                 LOG_S("error", answer->message));
    }
}
