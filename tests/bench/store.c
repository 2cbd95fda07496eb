/* bench_store URL: what the store costs, and that it does not depend on what else is stored.
 *
 *   sweep   one that finds nothing, a claim of 50 due rows with their release, and the look at
 *           the next due time, with 1,000 and with 1,000,000 rows: the ratio (aim: at most 1.2).
 *           Two databases of one server, in turns, vacuumed alike: a slow moment meets both
 *   create  creates a second at 8 connections: one account, and eight
 *   moves   a create driven to READY by batches of guarded moves, sandboxes a second
 *   execute begin and end of a command, pairs a second at 8 connections
 *   list    a page of 50 by cursor, and get, in an account of 100,000
 *
 * Run: SBX_TEST_PG_FSYNC=on tests/lib/pg.sh run sh -c 'build/bench_store "$SBX_TEST_PG"' */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/time.h"
#include "store/executions.h"
#include "store/fixture.h"

enum { ROUNDS = 200, VACUUM_EVERY = 10, DUE = 50, THREADS = 8, SECONDS = 4 };

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *v, size_t n)
{
    qsort(v, n, sizeof(*v), by_value);
    return v[n / 2];
}

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Rows as of n sandboxes that live and are not due for an hour. */
static void fill(struct world *w, long n)
{
    world_sql(w, arena_printf(w->a,
                              "INSERT INTO sandboxd.sandboxes (sandbox_id, account_id, app_id, "
                              "template_id, revision_id, revision, region, profile, owner_kind, "
                              "owner_id, caller_key, idempotency_digest, persistence_mode, "
                              "resources, status, idle_timeout_s, suspended_retention_s, "
                              "created_at, updated_at, last_active_at, expires_at, status_since, "
                              "next_action_at) SELECT '0' || lpad(md5(i::text), 25, '0'), '%s', "
                              "'%s', '%s', '%s', 1, '%s', 'TESS_CODE_TURN', 'EXTERNAL_SESSION', "
                              "'o', 'user:x', sha256(i::text::bytea), 'EPHEMERAL', '{}', 'READY', "
                              "1800, 604800, now() - i * interval '1 ms', now(), now(), "
                              "now() + interval '2 hours', now(), "
                              "now() + interval '1 hour' + (i %% 3600) * interval '1 s' "
                              "FROM generate_series(1, %ld) i",
                              w->account.account_id, w->app.app_id, w->template.template_id,
                              w->revision.revision_id, w->region, n));
    world_sql(w, "VACUUM ANALYZE sandboxd.sandboxes");
}

struct sweep {
    double none[ROUNDS], claim[ROUNDS], next[ROUNDS], list[ROUNDS], get[ROUNDS];
};

static void make_due(struct world *w)
{
    world_sql(w, arena_printf(w->a,
                              "UPDATE sandboxd.sandboxes SET next_action_at = now() "
                              "WHERE sandbox_id IN (SELECT sandbox_id FROM sandboxd.sandboxes "
                              "ORDER BY sandbox_id LIMIT %d)",
                              DUE));
}

static void measure_round(struct world *w, struct sweep *m, int i)
{
    SCOPED_ARENA struct arena *a = arena_new();
    struct store_release rel[DUE];
    struct store_sandboxes due, page;
    struct store_sandbox one;
    int64_t in_ms;

    double t = now_us();
    OK(store_sandbox_claim_due(w->db, "bench", 60000, DUE, a, &due, &err));
    m->none[i] = now_us() - t;
    assert_int_equal(due.count, 0);
    make_due(w);
    t = now_us();
    OK(store_sandbox_claim_due(w->db, "bench", 60000, DUE, a, &due, &err));
    for (size_t k = 0; k < due.count; k++)
        rel[k] = (struct store_release){ .sandbox_id = due.rows[k].sandbox_id,
                                         .generation = due.rows[k].generation,
                                         .owner = "bench" };
    OK(store_lease_release(w->db, rel, due.count, &err));
    m->claim[i] = now_us() - t;
    assert_int_equal(due.count, DUE);
    t = now_us();
    OK(store_sandbox_next_due(w->db, &in_ms, &err));
    m->next[i] = now_us() - t;
    struct store_sandbox_filter f = { .account_id = w->account.account_id,
                                      .statuses = SANDBOX_SET_ALL,
                                      .limit = 50,
                                      .before_ms = due.rows[i % DUE].created_at_ms,
                                      .before_id = due.rows[i % DUE].sandbox_id };
    t = now_us();
    OK(store_sandbox_list(w->db, &f, a, &page, &err));
    m->list[i] = now_us() - t;
    t = now_us();
    OK(store_sandbox_get(w->db, w->account.account_id, f.before_id, a, &one, &err));
    m->get[i] = now_us() - t;
}

static void measure_sweeps(struct world *worlds[2], struct sweep m[2])
{
    for (int i = 0; i < ROUNDS; i++) {
        for (int k = 0; k < 2; k++) {
            if (i % VACUUM_EVERY == 0)
                world_sql(worlds[k], "VACUUM sandboxd.sandboxes");
            measure_round(worlds[k], &m[k], i);
        }
    }
}

static void bench_sweep(struct world *small, struct world *big)
{
    struct world *worlds[2] = { small, big };
    static struct sweep m[2];

    fill(small, 1000);
    fill(big, 1000000);
    world_sql(big, "CHECKPOINT");
    measure_sweeps(worlds, m); /* warm */
    measure_sweeps(worlds, m);
    printf("%-34s %10s %10s %7s\n", "median, us", "10^3 rows", "10^6 rows", "ratio");
#define LINE(name, field)                                                                          \
    do {                                                                                           \
        double few = median(m[0].field, ROUNDS), many = median(m[1].field, ROUNDS);                \
        printf("%-34s %10.0f %10.0f %7.2f\n", name, few, many, many / few);                        \
    } while (0)
    LINE("sweep that finds nothing due", none);
    LINE("claim and release of 50 due rows", claim);
    LINE("next due time", next);
    LINE("page of 50 by cursor", list);
    LINE("get", get);
    world_sql(small, "TRUNCATE sandboxd.sandboxes");
}

/* --- rates ------------------------------------------------------------------ */

struct rate {
    struct world *w;
    struct world worlds[THREADS];
    struct store_sandbox s[THREADS];
    long done[THREADS];
};

static void rate_create(int i, struct store_conn *db, void *arg)
{
    struct rate *r = arg;
    int64_t until = time_mono_ms() + SECONDS * 1000;

    while (time_mono_ms() < until) {
        SCOPED_ARENA struct arena *a = arena_new();
        struct world w = r->worlds[i];
        w.a = a;
        struct store_sandbox_new in = world_create_in(&w, NULL);
        struct store_created out;
        OK(store_sandbox_create(db, &in, a, &out, &err));
        r->done[i]++;
    }
}

static void rate_execute(int i, struct store_conn *db, void *arg)
{
    struct rate *r = arg;
    int64_t until = time_mono_ms() + SECONDS * 1000;

    while (time_mono_ms() < until) {
        SCOPED_ARENA struct arena *a = arena_new();
        struct world w = r->worlds[i];
        w.a = a;
        struct store_execution_new e = world_execution(&w, &r->s[i]);
        struct store_sandbox out;
        OK(store_execution_begin(db, &e, a, &out, &err));
        OK(store_execution_end(db, e.execution_id, NULL, &err));
        r->done[i]++;
    }
}

static double together(struct rate *r, void (*fn)(int, struct store_conn *, void *))
{
    long sum = 0;

    memset(r->done, 0, sizeof(r->done));
    world_together(r->w, THREADS, fn, r);
    for (int i = 0; i < THREADS; i++)
        sum += r->done[i];
    return (double)sum / SECONDS;
}

static void accounts(struct world *w, struct rate *r, bool each)
{
    for (int i = 0; i < THREADS; i++) {
        if (i == 0 || each) {
            world_fresh(w);
            OK(store_account_quota(w->db, w->account.account_id, 1000000, w->a, &w->account, &err));
        }
        r->worlds[i] = *w;
    }
}

/* One reconciler's share of a create: claim, ALLOCATING, STARTING, READY, in batches. */
static double rate_moves(struct world *w)
{
    static const enum sandbox_status PATH[] = { SANDBOX_ALLOCATING, SANDBOX_STARTING,
                                                SANDBOX_READY };
    struct store_sandboxes due;
    int64_t start = time_mono_ms();
    long done = 0;

    do {
        SCOPED_ARENA struct arena *a = arena_new();
        struct store_move m[STORE_BATCH_MAX];
        bool moved[STORE_BATCH_MAX];
        OK(store_sandbox_claim_due(w->db, "bench", 60000, 100, a, &due, &err));
        for (size_t step = 0; step < COUNT_OF(PATH) && due.count > 0; step++) {
            for (size_t i = 0; i < due.count; i++) {
                m[i] = world_move_in(&due.rows[i], PATH[step]);
                m[i].lease_owner = step < 2 ? "bench" : NULL;
                m[i].lease_ms = 60000;
            }
            OK(store_sandbox_moves(w->db, m, due.count, moved, a, due.rows, &err));
        }
        done += (long)due.count;
    } while (due.count > 0 && time_mono_ms() - start < SECONDS * 1000);
    return (double)done * 1000 / (double)(time_mono_ms() - start);
}

int main(int argc, char **argv)
{
    void *state = NULL, *big = NULL;
    struct rate r = { 0 };

    if (argc > 1)
        setenv("SBX_TEST_PG", argv[1], 1);
    (void)world_new(&state);
    struct world *w = state;
    r.w = w;
    (void)world_new(&big);
    bench_sweep(w, big);
    (void)world_free(&big);
    printf("%-34s %10s\n", "a second, 8 connections", "");
    accounts(w, &r, false);
    printf("%-34s %10.0f\n", "creates, one account", together(&r, rate_create));
    world_sql(w, "TRUNCATE sandboxd.sandboxes");
    accounts(w, &r, true);
    printf("%-34s %10.0f\n", "creates, eight accounts", together(&r, rate_create));
    printf("%-34s %10.0f\n", "driven to READY, 1 connection", rate_moves(w));
    for (int i = 0; i < THREADS; i++)
        r.s[i] = world_ready(&r.worlds[i]);
    printf("%-34s %10.0f\n", "execution begin and end", together(&r, rate_execute));
    return world_free(&state);
}
