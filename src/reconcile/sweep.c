#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "reconcile/state.h"

/* Both-ways reconciliation with a region: what it runs against what there are rows for.
 * The region is listed first and the rows are read after, so a row that is missing was
 * never there (rows are committed before anything is deployed and are never deleted);
 * a sandbox that is missing is asked for by its id before its row is touched. */

enum { SWEEP_PAGE = 500, SWEEP_AGAIN_MS = 2000 };

void reconcile_core_regions(struct reconcile_core *c, const char *const *names, size_t count)
{
    for (size_t i = 0; i < c->sweep_count; i++)
        c->sweeps[i].present = false;
    for (size_t n = 0; n < count; n++) {
        struct reconcile_sweep *s = NULL;

        for (size_t i = 0; i < c->sweep_count && !s; i++) {
            if (strcmp(c->sweeps[i].region, names[n]) == 0)
                s = &c->sweeps[i];
        }
        if (!s && c->sweep_count < RECONCILE_REGIONS_MAX) {
            s = &c->sweeps[c->sweep_count++];
            memset(s, 0, sizeof(*s));
            (void)str_copy(s->region, sizeof(s->region), names[n]);
        }
        if (s)
            s->present = true;
    }
}

struct reconcile_sweep *reconcile_sweep_of(struct reconcile_core *c, const char *region)
{
    for (size_t i = 0; i < c->sweep_count; i++) {
        if (strcmp(c->sweeps[i].region, region) == 0)
            return &c->sweeps[i];
    }
    return NULL;
}

/* Asks for the page after `after`; false: the region cannot be asked now. */
static bool ask_page(struct reconcile_core *c, const char *region, const char *after)
{
    struct reconcile_op *op =
        reconcile_op_new(c, RECONCILE_LIST, RECONCILE_FOR_SWEEP, after, region);
    struct reconcile_call call = reconcile_call_of(op);
    struct sbx_err err = { 0 };

    if (c->cfg.region->start(c->cfg.region_self, &call, &err) == SBX_OK)
        return true;
    reconcile_op_free(c, op);
    return false;
}

static void away(struct reconcile_core *c, struct reconcile_sweep *s)
{
    if (!s->away)
        log_warn("a region does not answer; reaping waits", LOG_S("region", s->region));
    s->away = true;
    s->listing = false;
    s->count = 0;
    s->next_ms = reconcile_mono(c) + SWEEP_AGAIN_MS;
}

bool reconcile_region_away(struct reconcile_core *c, const char *region)
{
    const struct reconcile_sweep *s = reconcile_sweep_of(c, region);

    return s && s->away;
}

void reconcile_region_silent(struct reconcile_core *c, const char *region)
{
    struct reconcile_sweep *s = reconcile_sweep_of(c, region);

    if (s && !s->away)
        away(c, s);
}

void reconcile_sweep_pass(struct reconcile_core *c)
{
    int64_t mono = reconcile_mono(c);

    for (size_t i = 0; i < c->sweep_count; i++) {
        struct reconcile_sweep *s = &c->sweeps[i];

        if (!s->present || s->listing || mono < s->next_ms || !reconcile_db_usable(c))
            continue;
        s->count = 0;
        s->listing = ask_page(c, s->region, "");
        if (!s->listing)
            away(c, s);
    }
}

static int by_id(const void *key, const void *item)
{
    return strcmp(key, ((const struct reconcile_seen *)item)->id);
}

static const struct reconcile_seen *find_item(const struct reconcile_sweep *s, const char *id)
{
    return s->count ? bsearch(id, s->items, s->count, sizeof(*s->items), by_id) : NULL;
}

static void destroy_stray(struct reconcile_core *c, const char *region, const char *id,
                          int64_t generation, const char *why)
{
    struct reconcile_op *op =
        reconcile_op_new(c, RECONCILE_DESTROY, RECONCILE_FOR_STRAY, id, region);
    struct reconcile_call call;
    struct sbx_err err = { 0 };

    op->generation = generation;
    call = reconcile_call_of(op);
    c->counts.strays++;
    log_warn("a stray in the region is ended", LOG_S("sandboxId", id), LOG_S("region", region),
             LOG_S("why", why));
    if (c->cfg.region->start(c->cfg.region_self, &call, &err))
        reconcile_op_free(c, op);
}

/* One thing of the region against its row (NULL: none). */
static void compare_item(struct reconcile_core *c, const struct reconcile_sweep *s,
                         const struct reconcile_seen *item, const struct store_sandbox *row)
{
    bool ended = row && (row->status == SANDBOX_TERMINATED ||
                         (sandbox_status_in(row->status, SANDBOX_BIT(SANDBOX_SUSPENDED) |
                                                             SANDBOX_BIT(SANDBOX_FAILED)) &&
                          !row->holds_compute));

    if (!row)
        destroy_stray(c, s->region, item->id, item->generation, "it has no row");
    else if (ended && item->phase != REGION_PHASE_STOPPED)
        destroy_stray(c, s->region, item->id, row->generation, "its row has no compute");
    else if (sandbox_status_in(row->status, SANDBOX_SET_RUNNING) &&
             (item->phase == REGION_PHASE_FAILED || item->phase == REGION_PHASE_STOPPED))
        reconcile_core_probe(c, item->id);
}

/* Rows for the items of the region, a page of ids at a time. */
static enum sbx_code compare_items(struct reconcile_core *c, const struct reconcile_sweep *s,
                                   const struct store_warms *warms, struct sbx_err *err)
{
    for (size_t from = 0; from < s->count; from += SWEEP_PAGE) {
        SCOPED_ARENA struct arena *a = arena_new();
        const char *ids[SWEEP_PAGE];
        struct store_sandboxes rows = { 0 };
        size_t n = s->count - from < SWEEP_PAGE ? s->count - from : SWEEP_PAGE;
        size_t r = 0;

        for (size_t i = 0; i < n; i++)
            ids[i] = s->items[from + i].id;
        if (c->cfg.store->list_ids(c->cfg.db, ids, n, a, &rows, err))
            return err->code;
        for (size_t i = 0; i < n; i++) {
            const struct reconcile_seen *item = &s->items[from + i];
            bool member = false;

            for (size_t w = 0; w < warms->count && !member; w++)
                member = strcmp(warms->rows[w].warm_id, item->id) == 0;
            while (r < rows.count && strcmp(rows.rows[r].sandbox_id, item->id) < 0)
                r++;
            if (member)
                continue;
            compare_item(c, s, item,
                         r < rows.count && strcmp(rows.rows[r].sandbox_id, item->id) == 0
                             ? &rows.rows[r]
                             : NULL);
        }
    }
    return SBX_OK;
}

/* Rows that should have compute, against what the region runs. */
static enum sbx_code compare_rows(struct reconcile_core *c, const struct reconcile_sweep *s,
                                  struct sbx_err *err)
{
    char after[ID_SIZE] = "";

    for (;;) {
        SCOPED_ARENA struct arena *a = arena_new();
        struct store_sandboxes rows = { 0 };

        if (c->cfg.store->list_held(c->cfg.db, s->region, after[0] ? after : NULL, SWEEP_PAGE, a,
                                    &rows, err))
            return err->code;
        for (size_t i = 0; i < rows.count; i++) {
            if (sandbox_status_in(rows.rows[i].status, SANDBOX_SET_RUNNING) &&
                !find_item(s, rows.rows[i].sandbox_id))
                reconcile_core_probe(c, rows.rows[i].sandbox_id);
        }
        if (rows.count < SWEEP_PAGE)
            return SBX_OK;
        (void)str_copy(after, sizeof(after), rows.rows[rows.count - 1].sandbox_id);
    }
}

/* Members of the warm pools in this region; a READY one that is gone there is drained. */
static enum sbx_code read_warms(struct reconcile_core *c, const struct reconcile_sweep *s,
                                struct arena *a, struct store_warms *all, struct sbx_err *err)
{
    const char *after = NULL;
    struct store_warms page = { 0 };
    size_t cap = 0;

    all->count = 0;
    do {
        if (c->cfg.store->warm_list(c->cfg.db, s->region, after, SWEEP_PAGE, a, &page, err))
            return err->code;
        if (all->count + page.count > cap) {
            struct store_warm *grown;

            cap = 2 * (all->count + page.count);
            grown = arena_zalloc(a, cap * sizeof(*grown));
            if (all->count)
                memcpy(grown, all->rows, all->count * sizeof(*grown));
            all->rows = grown;
        }
        if (page.count)
            memcpy(all->rows + all->count, page.rows, page.count * sizeof(*page.rows));
        all->count += page.count;
        if (page.count)
            after = page.rows[page.count - 1].warm_id;
    } while (page.count == SWEEP_PAGE);
    for (size_t i = 0; i < all->count; i++) {
        struct sbx_err ignored = { 0 }; /* claimed meanwhile: the claim itself finds it dead */

        if (all->rows[i].status == STORE_WARM_READY && !find_item(s, all->rows[i].warm_id))
            (void)!c->cfg.store->warm_set(c->cfg.db, all->rows[i].warm_id, STORE_WARM_DRAINING,
                                          &ignored);
    }
    return SBX_OK;
}

static void finish(struct reconcile_core *c, struct reconcile_sweep *s)
{
    SCOPED_ARENA struct arena *a = arena_new();
    struct store_warms warms = { 0 };
    struct sbx_err err = { 0 };
    int poked = 0;

    s->listing = false;
    s->next_ms = reconcile_mono(c) + c->cfg.region_sweep_ms;
    if (read_warms(c, s, a, &warms, &err) || compare_items(c, s, &warms, &err) ||
        compare_rows(c, s, &err) ||
        (s->away && c->cfg.store->poke_region(c->cfg.db, s->region, &poked, &err))) {
        reconcile_db_failed(c, &err, "sweep");
        s->next_ms = reconcile_mono(c) + SWEEP_AGAIN_MS;
    } else if (s->away) {
        log_info("a region answers again", LOG_S("region", s->region));
        s->away = false;
        s->next_ask_ms = 0;
        c->wake = true;
    }
    s->count = 0;
}

void reconcile_sweep_answer(struct reconcile_core *c, const struct reconcile_op *op,
                            const struct reconcile_answer *answer)
{
    struct reconcile_sweep *s = reconcile_sweep_of(c, op->region);

    if (!s || !s->listing)
        return;
    if (answer->code != SBX_OK || s->count + answer->count > RECONCILE_SWEEP_ITEMS_MAX) {
        away(c, s);
        return;
    }
    if (s->count + answer->count > s->cap) {
        s->cap = 2 * (s->count + answer->count);
        s->items = mem_realloc(s->items, s->cap * sizeof(*s->items));
    }
    if (answer->count)
        memcpy(s->items + s->count, answer->seen, answer->count * sizeof(*s->items));
    s->count += answer->count;
    if (!answer->next[0])
        finish(c, s);
    else if (!ask_page(c, s->region, answer->next))
        away(c, s);
}
