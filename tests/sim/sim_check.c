#include <string.h>

#include "sim/sim.h"

/* What must hold, whatever dies, comes late, comes twice or comes at once. */

enum {
    UNDO_MS = 10000,  /* a late result is gone after so long without a fault (case 2) */
    SETTLE_MS = 90000 /* without faults nothing hangs for longer */
};

static bool legal(enum sandbox_status from, enum sandbox_status to)
{
    for (size_t i = 0; i < SANDBOX_MOVE_COUNT; i++) {
        const struct sandbox_move *m = &SANDBOX_MOVES[i];

        if (m->from == from &&
            (m->to == (int)to ||
             (m->to == SANDBOX_BACK && sandbox_status_in(to, SANDBOX_SET_RUNNING)) ||
             /* a move to READY lands on BUSY when something runs */
             (m->to == SANDBOX_READY && to == SANDBOX_BUSY)))
            return true;
    }
    return false;
}

void sim_check_move(struct sim *s, const struct sim_row *row, enum sandbox_status from,
                    int64_t from_generation, const char *cause)
{
    struct sim_row *r = &s->rows[row - s->rows];
    const struct sim_box *b = sim_box_of(s, row->id);
    bool runs = b->compute && b->phase == REGION_PHASE_RUNNING;

    if (row->status == from) {
        if (row->generation != from_generation)
            sim_break(s, "%s: the generation changed without the status", row->id);
        return;
    }
    r->since = s->now;
    if (row->generation != from_generation + 1)
        sim_break(s, "%s: the generation did not grow by one", row->id);
    if (!legal(from, row->status))
        sim_break(s, "%s: %s -> %s is no move of the table", row->id, sandbox_status_name(from),
                  sandbox_status_name(row->status));
    if (row->status == SANDBOX_TERMINATED && row->holds)
        sim_break(s, "%s: TERMINATED holds its place", row->id);
    if (from == SANDBOX_SUSPENDED && row->acknowledged && row->status != SANDBOX_TERMINATING)
        sim_break(s, "%s: an acknowledged pause was undone", row->id);
    r->acknowledged = row->status == SANDBOX_SUSPENDED && row->waits_until > s->now;
    if (s->amnesia_struck)
        return;
    if (row->status == SANDBOX_SUSPENDED) {
        r->kept = sim_latest(b);
        if (r->kept == 0 || r->kept != b->work)
            sim_break(s, "%s: SUSPENDED with %lld kept, its workspace was %lld", row->id,
                      (long long)r->kept, (long long)b->work);
    }
    if ((row->status == SANDBOX_TERMINATED || row->status == SANDBOX_SUSPENDED) && b->compute)
        sim_break(s, "%s: %s while the region still has it", row->id,
                  sandbox_status_name(row->status));
    if (strcmp(cause, "UP") == 0 && !runs && !b->crashed)
        sim_break(s, "%s: READY while the region does not run it", row->id);
    if (strcmp(cause, "LOST") == 0 && runs)
        sim_break(s, "%s: given up as lost while the region runs it", row->id);
}

/* Has its row no use for it (any more)? */
static bool unwanted(const struct sim_row *r)
{
    return !r || r->status == SANDBOX_TERMINATED || r->status == SANDBOX_SUSPENDED ||
           (r->status == SANDBOX_FAILED && !r->holds);
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void check_box(struct sim *s, struct sim_box *b)
{
    const struct sim_row *r = b->compute ? sim_row_of(s, b->id) : NULL;

    if (b->archives.latest && !sim_latest(b))
        sim_break(s, "%s: `latest` names an archive that is not there", b->id);
    if (b->compute && b->warm && !s->amnesia_struck && !sim_warm_of(s, b->id))
        sim_break(s, "%s: a warm member runs without a row", b->id);
    if (!b->compute || (b->warm && sim_warm_of(s, b->id)) || (!b->warm && !unwanted(r))) {
        b->unwanted_since = 0;
        return;
    }
    if (!r && !b->stray && !b->warm)
        sim_break(s, "%s: compute without a row", b->id);
    if (r && !s->amnesia_struck)
        sim_break(s, "%s: compute while its row is %s", b->id, sandbox_status_name(r->status));
    if (b->unwanted_since == 0)
        b->unwanted_since = s->now;
    if (r && b->answered_at != 0 && b->phase == REGION_PHASE_RUNNING && !s->database_down &&
        !s->region_down[b->region] &&
        s->now - later(later(b->unwanted_since, b->answered_at), s->quiet_since) > UNDO_MS)
        sim_break(s, "%s: a late deploy was not torn down (row %s)", b->id,
                  sandbox_status_name(r->status));
    if (s->calm && !s->region_down[b->region] &&
        s->now - later(later(b->unwanted_since, s->region_since[b->region]), s->calm_since) >
            SETTLE_MS)
        sim_break(s, "%s: compute that nobody wants stays", b->id);
}

static void check_row(struct sim *s, struct sim_row *r)
{
    const struct sim_box *b;
    int64_t base = later(later(r->since, s->calm_since), s->region_since[r->region]);

    if (r->status != SANDBOX_TERMINATED && r->next_action == 0)
        sim_break(s, "%s: %s and never looked at again", r->id, sandbox_status_name(r->status));
    if (!r->lease_owner[0])
        r->leased_since = 0;
    else if (r->leased_since == 0)
        r->leased_since = s->now;
    if (!s->calm)
        return;
    if (r->leased_since && s->now - later(r->leased_since, s->calm_since) > SETTLE_MS)
        sim_break(s, "%s: its lease is kept for ever", r->id);
    if (s->now - s->calm_since > SETTLE_MS && r->next_action != 0 &&
        sim_db_now(s) - r->next_action > SETTLE_MS)
        sim_break(s, "%s: due, and nobody takes it", r->id);
    if (s->now - base <= SETTLE_MS || s->region_down[r->region])
        return;
    if (sandbox_status_in(r->status, SANDBOX_SET_TRANSITIONAL | SANDBOX_BIT(SANDBOX_BUSY)) ||
        (r->status == SANDBOX_FAILED && r->holds))
        sim_break(s, "%s: stuck in %s", r->id, sandbox_status_name(r->status));
    b = sim_box_of(s, r->id);
    if (r->status == SANDBOX_READY && !(b->compute && b->phase == REGION_PHASE_RUNNING))
        sim_break(s, "%s: READY, but the region does not run it", r->id);
}

void sim_check_step(struct sim *s)
{
    uint64_t named = 0;

    for (int a = 0; a < SIM_ACCOUNTS; a++) {
        if (sim_active(s, a) > s->quota)
            sim_break(s, "account %d has %d active sandboxes, its quota is %d", a, sim_active(s, a),
                      s->quota);
    }
    for (int i = 0; i < s->row_count; i++) {
        int name = s->rows[i].account * SIM_KEYS + s->rows[i].key;

        for (int k = 0; k < i && s->rows[i].warm; k++) {
            if (s->rows[k].warm_serial == s->rows[i].warm_serial)
                sim_break(s, "%s and %s took one warm member", s->rows[k].id, s->rows[i].id);
        }
        check_row(s, &s->rows[i]);
        if (s->rows[i].personal)
            continue;
        if (named & (UINT64_C(1) << name))
            sim_break(s, "an idempotency key names two sandboxes");
        named |= UINT64_C(1) << name;
    }
    sim_check_warm(s);
    if (s->weather.runs)
        sim_check_runs(s);
    for (int i = 0; i < s->box_count; i++)
        check_box(s, &s->boxes[i]);
}

void sim_check_ended(struct sim *s)
{
    sim_check_runs_ended(s);
    for (int i = 0; i < s->row_count; i++) {
        if (s->rows[i].status != SANDBOX_TERMINATED)
            sim_break(s, "%s: %s long after its lifetime", s->rows[i].id,
                      sandbox_status_name(s->rows[i].status));
        if (s->rows[i].lease_owner[0])
            sim_break(s, "%s: ended, and leased", s->rows[i].id);
    }
    for (int i = 0; i < s->box_count; i++) {
        if (s->boxes[i].compute)
            sim_break(s, "%s: left in the region", s->boxes[i].id);
    }
    for (int i = 0; i < SIM_EXECUTIONS; i++) {
        if (s->executions[i].used)
            sim_break(s, "an execution is under way for ever");
    }
}
