#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "sim/sim.h"

/* The store stand-in's warm pools and volumes: the semantics of store/warm.c, store/volumes.c and
 * of what a create takes of both (migrations/0005), and what must hold of them. */

enum { SETTLE_MS = 90000 };

/* --- warm pools -------------------------------------------------------- */

static bool fills(const struct sim_warm *w)
{
    return w->used && (w->status == STORE_WARM_STARTING || w->status == STORE_WARM_READY);
}

struct sim_warm *sim_warm_of(struct sim *s, const char *id)
{
    for (int i = 0; i < SIM_WARMS; i++) {
        if (s->warms[i].used && strcmp(s->warms[i].id, id) == 0)
            return &s->warms[i];
    }
    return NULL;
}

static void give(const struct sim_warm *w, struct arena *a, struct store_warm *out)
{
    *out = (struct store_warm){
        .warm_id = arena_strdup(a, w->id),
        .account_id = "account",
        .revision_id = arena_printf(a, "%d", w->revision),
        .region = SIM_REGION_NAMES[w->region],
        .status = w->status,
        .generation = w->generation,
        .deadline_at_ms = w->deadline,
    };
}

static void count(const struct sim *s, int revision, int region, int *starting, int *ready)
{
    *starting = *ready = 0;
    for (int i = 0; i < SIM_WARMS; i++) {
        const struct sim_warm *w = &s->warms[i];

        if (!w->used || w->revision != revision || w->region != region)
            continue;
        *starting += w->status == STORE_WARM_STARTING;
        *ready += w->status == STORE_WARM_READY;
    }
}

enum sbx_code sim_warm_pools(struct store_conn *db, struct arena *a, struct store_warm_pools *out,
                             struct sbx_err *err)
{
    ENTER(db);
    out->count = 0;
    if (!s->weather.pool)
        LEAVE();
    out->rows = arena_zalloc(a, (size_t)(s->revision + 1) * SIM_REGIONS * sizeof(*out->rows));
    for (int revision = 0; revision <= s->revision; revision++) {
        for (int region = 0; region < SIM_REGIONS; region++) {
            struct store_warm_pool p = { 0 };
            bool wanted = s->pool_on && revision == s->revision;

            if (wanted)
                p = s->pool;
            count(s, revision, region, &p.starting, &p.ready);
            p.account_id = "account";
            p.revision_id = arena_printf(a, "%d", revision);
            p.region = SIM_REGION_NAMES[region];
            if (wanted || p.starting + p.ready > 0)
                out->rows[out->count++] = p;
        }
    }
    LEAVE();
}

enum sbx_code sim_warm_add(struct store_conn *db, const struct store_warm_pool *pool, int n,
                           int total_max, int64_t deadline_ms, struct arena *a,
                           struct store_warms *out, struct sbx_err *err)
{
    int revision = atoi(pool->revision_id), region = sim_region_index(pool->region);
    int starting, ready, all = 0;

    ENTER(db);
    out->rows = arena_zalloc(a, (size_t)n * sizeof(*out->rows));
    out->count = 0;
    count(s, revision, region, &starting, &ready);
    for (int i = 0; i < SIM_WARMS; i++)
        all += fills(&s->warms[i]);
    for (int i = 0; i < SIM_WARMS && (int)out->count < n; i++) {
        struct sim_warm *w = &s->warms[i];

        if (w->used || starting + ready >= pool->max || all >= total_max)
            continue;
        memset(w, 0, sizeof(*w));
        w->used = true;
        sim_id(s, w->id);
        w->revision = revision;
        w->region = region;
        w->status = STORE_WARM_STARTING;
        w->deadline = sim_db_now(s) + deadline_ms;
        give(w, a, &out->rows[out->count++]);
        starting++;
        all++;
        sim_trace(s, "%s warm STARTING revision %d in %s", w->id, revision, pool->region);
    }
    LEAVE();
}

enum sbx_code sim_warm_set(struct store_conn *db, const char *warm_id, enum store_warm_status to,
                           struct sbx_err *err)
{
    struct sim_warm *w;

    ENTER(db);
    w = sim_warm_of(s, warm_id);
    if (!w || !fills(w))
        return err_set(err, SBX_E_CHANGING, "taken");
    w->status = to;
    sim_trace(s, "%s warm %s", w->id, to == STORE_WARM_READY ? "READY" : "DRAINING");
    LEAVE();
}

enum sbx_code sim_warm_drain(struct store_conn *db, const struct store_warm_pool *pool, int n,
                             int *drained, struct sbx_err *err)
{
    ENTER(db);
    *drained = 0;
    for (int i = 0; i < SIM_WARMS && *drained < n; i++) {
        struct sim_warm *w = &s->warms[i];

        if (!fills(w) || w->revision != atoi(pool->revision_id) ||
            w->region != sim_region_index(pool->region))
            continue;
        w->status = STORE_WARM_DRAINING;
        sim_trace(s, "%s warm DRAINING, of an old revision or too many", w->id);
        ++*drained;
    }
    LEAVE();
}

static bool to_drain(const struct sim *s, const struct sim_warm *w)
{
    const struct sim_row *r = w->row ? &s->rows[w->row - 1] : NULL;

    return w->status == STORE_WARM_DRAINING ||
           (w->status == STORE_WARM_STARTING && w->deadline <= sim_db_now(s)) ||
           (w->status == STORE_WARM_CLAIMED &&
            (!r || r->came_up ||
             sandbox_status_in(r->status, SANDBOX_BIT(SANDBOX_FAILED) |
                                              SANDBOX_BIT(SANDBOX_TERMINATING) |
                                              SANDBOX_BIT(SANDBOX_TERMINATED))));
}

enum sbx_code sim_warm_claim_drain(struct store_conn *db, const char *owner, int64_t lease_ms,
                                   int limit, struct arena *a, struct store_warms *out,
                                   struct sbx_err *err)
{
    (void)owner;
    ENTER(db);
    out->count = 0;
    if (!s->weather.pool)
        LEAVE();
    out->rows = arena_zalloc(a, SIM_WARMS * sizeof(*out->rows));
    for (int i = 0; i < SIM_WARMS && (int)out->count < limit; i++) {
        struct sim_warm *w = &s->warms[i];

        if (!w->used || !to_drain(s, w) || w->lease_until > sim_db_now(s))
            continue;
        w->status = STORE_WARM_DRAINING;
        w->generation++;
        w->lease_until = sim_db_now(s) + lease_ms;
        sim_trace(s, "%s warm to be deleted", w->id);
        give(w, a, &out->rows[out->count++]);
    }
    LEAVE();
}

enum sbx_code sim_warm_remove(struct store_conn *db, const char *warm_id, struct sbx_err *err)
{
    struct sim_warm *w;

    ENTER(db);
    w = sim_warm_of(s, warm_id);
    if (w) {
        sim_trace(s, "%s warm row removed", w->id);
        w->used = false;
    }
    LEAVE();
}

enum sbx_code sim_warm_list(struct store_conn *db, const char *region, const char *after, int limit,
                            struct arena *a, struct store_warms *out, struct sbx_err *err)
{
    ENTER(db);
    out->rows = arena_zalloc(a, SIM_WARMS * sizeof(*out->rows));
    out->count = 0;
    for (int i = 0; i < SIM_WARMS && (int)out->count < limit; i++) {
        const struct sim_warm *w = &s->warms[i];

        if (w->used && w->region == sim_region_index(region) &&
            (!after || strcmp(w->id, after) > 0))
            give(w, a, &out->rows[out->count++]);
    }
    LEAVE();
}

void sim_warm_take(struct sim *s, struct sim_row *r)
{
    for (int i = 0; i < SIM_WARMS; i++) {
        struct sim_warm *w = &s->warms[i];
        bool free_one = w->used && w->status == STORE_WARM_READY;

        if (s->mutation == SIM_WARM_TWICE && w->used && w->status == STORE_WARM_CLAIMED)
            free_one = true;
        if (!free_one || w->revision != s->revision || w->region != r->region)
            continue;
        w->status = STORE_WARM_CLAIMED;
        w->generation++;
        w->row = (int)(r - s->rows) + 1;
        r->warm = i + 1;
        r->warm_serial = sim_id_number(w->id);
        sim_trace(s, "%s takes the warm %s", r->id, w->id);
        return;
    }
}

void sim_check_warm(struct sim *s)
{
    int all = 0;

    if (!s->weather.pool)
        return;
    for (int i = 0; i < SIM_WARMS; i++)
        all += fills(&s->warms[i]);
    if (all > s->pool.max * SIM_REGIONS)
        sim_break(s, "%d warm members, more than all pools together may have", all);
    for (int region = 0; region < SIM_REGIONS; region++) {
        int starting, ready;
        int64_t quiet = s->now - s->calm_since;

        count(s, s->revision, region, &starting, &ready);
        if (starting + ready > s->pool.max)
            sim_break(s, "a warm pool of %d, its most is %d", starting + ready, s->pool.max);
        if (s->calm && s->pool_on && quiet > SETTLE_MS && !s->region_down[region] &&
            s->now - s->region_since[region] > SETTLE_MS && ready < s->pool.min)
            sim_break(s, "a warm pool of %d ready ones, its least is %d", ready, s->pool.min);
    }
    for (int i = 0; i < SIM_WARMS && s->calm && s->now - s->calm_since > 2 * SETTLE_MS; i++) {
        if (fills(&s->warms[i]) && s->warms[i].revision != s->revision)
            sim_break(s, "%s: a warm member of an old revision stays", s->warms[i].id);
    }
}

/* --- volumes ----------------------------------------------------------- */

enum { PURGE_DELAY_MS = 15000 };

bool sim_volume_in_use(const struct sim *s, int volume)
{
    for (int i = 0; i < s->row_count; i++) {
        if (s->rows[i].volume == volume + 1 && s->rows[i].status != SANDBOX_TERMINATED)
            return true;
    }
    return false;
}

/* One that is there and ACTIVE, or a new one. */
bool sim_volume_take(struct sim *s, struct sim_row *r)
{
    int fresh = -1;
    bool share = sim_below(s, 3) == 0;

    for (int i = 0; i < SIM_VOLUMES; i++) {
        struct sim_volume *v = &s->volumes[i];

        if (share && v->used && !v->pending && v->account == r->account && v->region == r->region) {
            r->volume = i + 1;
            return true;
        }
        if (!v->used && fresh < 0)
            fresh = i;
    }
    if (fresh < 0)
        return false;
    s->volumes[fresh] =
        (struct sim_volume){ .used = true, .account = r->account, .region = r->region };
    r->volume = fresh + 1;
    return true;
}

void sim_volume_client(struct sim *s)
{
    int i = sim_below(s, 6); /* the first ones, so that some come twice */
    struct sim_volume *v = &s->volumes[i];

    if (!v->used || s->database_down)
        return;
    if (!v->pending && !sim_volume_in_use(s, i)) {
        v->pending = true;
        v->purge_at = sim_db_now(s) + PURGE_DELAY_MS;
        sim_trace(s, "volume %d is to be purged", i);
    } else if (v->pending && !v->purging && v->purge_at > sim_db_now(s)) {
        v->pending = false;
        sim_trace(s, "volume %d is restored", i);
    }
}

enum sbx_code sim_claim_purge(struct store_conn *db, const char *owner, int64_t lease_ms, int limit,
                              struct arena *a, struct store_volumes *out, struct sbx_err *err)
{
    (void)owner;
    ENTER(db);
    out->rows = NULL;
    out->count = 0;
    for (int i = 0; i < SIM_VOLUMES && (int)out->count < limit; i++) {
        struct sim_volume *v = &s->volumes[i];

        if (!v->used || !v->pending || v->purge_at > sim_db_now(s) ||
            v->lease_until > sim_db_now(s))
            continue;
        if (!out->rows)
            out->rows = arena_zalloc(a, SIM_VOLUMES * sizeof(*out->rows));
        v->purging = true;
        v->lease_until = sim_db_now(s) + lease_ms;
        out->rows[out->count++] = (struct store_volume){
            .volume_name = arena_printf(a, "%d", i),
            .account_id = "account",
            .region = SIM_REGION_NAMES[v->region],
            .pending_purge = true,
        };
    }
    LEAVE();
}

enum sbx_code sim_purged(struct store_conn *db, const char *account_id, const char *region,
                         const char *volume_name, struct sbx_err *err)
{
    struct sim_volume *v;

    (void)account_id;
    (void)region;
    ENTER(db);
    v = &s->volumes[atoi(volume_name)];
    if (v->used && v->purging)
        v->used = false;
    LEAVE();
}

void sim_volume_purge(struct sim *s, int volume)
{
    if (sim_volume_in_use(s, volume))
        sim_break(s, "volume %d is purged under a sandbox that uses it", volume);
    sim_trace(s, "volume %d is purged", volume);
    for (int i = 0; i < s->row_count; i++) {
        if (s->rows[i].volume == volume + 1)
            sim_box_of(s, s->rows[i].id)->archives = (struct sim_archives){ 0 };
    }
}
