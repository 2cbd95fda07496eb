/* Due rows, leases, control planes that die. */

#include <string.h>

#include "store/fixture.h"

enum { LEASE_MS = 60000 };

/* Every test begins without due rows, whatever the one before left. */
static int nothing_due(void **state)
{
    struct world *w = *state;

    world_fresh(w);
    OK(store_account_quota(w->db, w->account.account_id, 10000, w->a, &w->account, &err));
    world_sql(w, "UPDATE sandboxd.sandboxes SET next_action_at = NULL, lease_owner = NULL, "
                 "lease_until = NULL");
    world_sql(w, "DELETE FROM sandboxd.executions");
    world_sql(w, "DELETE FROM sandboxd.instances");
    return 0;
}

static void a_create_is_due_at_once_and_for_one(void **state)
{
    struct world *w = *state;
    struct store_sandbox s = world_create(w), one;
    struct store_sandboxes due;
    int64_t in_ms;

    OK(store_sandbox_next_due(w->db, &in_ms, &err));
    assert_int_equal(in_ms, 0);
    OK(store_sandbox_claim_due(w->db, "a", LEASE_MS, 10, w->a, &due, &err));
    assert_int_equal(due.count, 1);
    assert_string_equal(due.rows[0].sandbox_id, s.sandbox_id);
    assert_string_equal(due.rows[0].lease_owner, "a");
    assert_int_equal(due.rows[0].attempt, 1);
    OK(store_sandbox_claim_due(w->db, "b", LEASE_MS, 10, w->a, &due, &err));
    assert_int_equal(due.count, 0);
    FAILS(SBX_E_BUSY,
          store_sandbox_claim_one(w->db, "b", LEASE_MS, s.sandbox_id, w->a, &one, &err));
    OK(store_sandbox_claim_one(w->db, "a", LEASE_MS, s.sandbox_id, w->a, &one, &err));
    FAILS(SBX_E_NOT_FOUND, store_sandbox_claim_one(w->db, "b", LEASE_MS, "nope", w->a, &one, &err));
    OK(store_sandbox_next_due(w->db, &in_ms, &err));
    assert_true(in_ms > LEASE_MS - 10000 && in_ms <= LEASE_MS);
}

struct sharing {
    char taken[4][256][ID_SIZE];
    int count[4];
};

static void claim_all(int i, struct store_conn *db, void *arg)
{
    struct sharing *s = arg;
    char owner[] = { (char)('a' + i), '\0' };

    for (;;) {
        SCOPED_ARENA struct arena *a = arena_new();
        struct store_sandboxes due;
        OK(store_sandbox_claim_due(db, owner, LEASE_MS, 7, a, &due, &err));
        if (due.count == 0)
            return;
        for (size_t k = 0; k < due.count; k++)
            memcpy(s->taken[i][s->count[i]++], due.rows[k].sandbox_id, ID_SIZE);
    }
}

static void four_planes_share_without_a_double(void **state)
{
    struct world *w = *state;
    static struct sharing s;
    int all = 0;

    for (int i = 0; i < 120; i++)
        world_create(w);
    world_together(w, 4, claim_all, &s);
    for (int p = 0; p < 4; p++) {
        all += s.count[p];
        for (int q = 0; q < p; q++) {
            for (int i = 0; i < s.count[p]; i++) {
                for (int k = 0; k < s.count[q]; k++)
                    assert_string_not_equal(s.taken[p][i], s.taken[q][k]);
            }
        }
    }
    /* Skipped while another had it locked, one may be left: it is still due. */
    struct store_sandboxes rest;
    OK(store_sandbox_claim_due(w->db, "z", LEASE_MS, 200, w->a, &rest, &err));
    assert_int_equal(all + (int)rest.count, 120);
}

static void a_lease_that_ends_gives_the_row_back(void **state)
{
    struct world *w = *state;
    struct store_sandbox s = world_create(w);
    struct store_sandboxes due = { 0 };
    int64_t in_ms;

    OK(store_sandbox_claim_due(w->db, "dead", 30, 10, w->a, &due, &err));
    assert_int_equal(due.count, 1);
    (void)world_sql(w, "SELECT pg_sleep(0.1)");
    OK(store_sandbox_next_due(w->db, &in_ms, &err));
    assert_int_equal(in_ms, 0);
    OK(store_sandbox_claim_due(w->db, "heir", LEASE_MS, 10, w->a, &due, &err));
    assert_int_equal(due.count, 1);
    assert_int_equal(due.rows[0].attempt, 2);
    /* The dead one's late release is not an answer any more. */
    struct store_release late = { .sandbox_id = s.sandbox_id,
                                  .generation = s.generation,
                                  .owner = "dead",
                                  .next = STORE_NEXT_NEVER };
    OK(store_lease_release(w->db, &late, 1, &err));
    assert_string_equal(world_get(w, s.sandbox_id).lease_owner, "heir");
}

static void renewing_keeps_and_releasing_gives(void **state)
{
    struct world *w = *state;
    struct store_sandbox s = world_create(w);
    struct store_sandboxes due;
    int renewed;

    OK(store_sandbox_claim_due(w->db, "a", 5000, 10, w->a, &due, &err));
    OK(store_lease_renew(w->db, "a", LEASE_MS, &renewed, &err));
    assert_int_equal(renewed, 1);
    s = world_get(w, s.sandbox_id);
    assert_true(s.lease_until_ms > s.now_ms + 30000);
    assert_int_equal(s.next_action_at_ms, s.lease_until_ms);
    struct store_release r = { .sandbox_id = s.sandbox_id,
                               .generation = s.generation,
                               .owner = "a",
                               .next = STORE_NEXT_IN,
                               .next_in_ms = 10000,
                               .keep_attempt = true,
                               .last_error = "the region is away" };
    OK(store_lease_release(w->db, &r, 1, &err));
    s = world_get(w, s.sandbox_id);
    assert_null(s.lease_owner);
    assert_int_equal(s.attempt, 1);
    assert_string_equal(s.last_error, "the region is away");
    assert_true(s.next_action_at_ms > s.now_ms + 5000 && s.next_action_at_ms <= s.now_ms + 10000);
    OK(store_lease_renew(w->db, "a", LEASE_MS, &renewed, &err));
    assert_int_equal(renewed, 0);
}

static void a_move_may_keep_the_lease(void **state)
{
    struct world *w = *state;
    struct store_sandbox s = world_create(w);
    struct store_move m = world_move_in(&s, SANDBOX_ALLOCATING);

    m.lease_owner = "a";
    m.lease_ms = LEASE_MS;
    OK(store_sandbox_move(w->db, &m, w->a, &s, &err));
    assert_string_equal(s.lease_owner, "a");
    assert_int_equal(s.next_action_at_ms, s.lease_until_ms);
    s = world_move(w, &s, SANDBOX_STARTING);
    assert_null(s.lease_owner);
}

/* Idle timers do not move with each command: the sweep looks once, and again at the new time. */
static void a_busy_row_is_looked_at_once_in_its_idle_time(void **state)
{
    struct world *w = *state;
    struct store_sandbox s = world_ready(w);
    struct store_execution_new e = world_execution(w, &s);
    struct store_sandboxes due;

    OK(store_execution_begin(w->db, &e, w->a, &s, &err));
    world_sql(w, arena_printf(w->a,
                              "UPDATE sandboxd.sandboxes SET next_action_at = now() "
                              "WHERE sandbox_id = '%s'",
                              s.sandbox_id));
    OK(store_sandbox_claim_due(w->db, "a", LEASE_MS, 10, w->a, &due, &err));
    assert_int_equal(due.count, 1);
    struct store_release r = { .sandbox_id = s.sandbox_id,
                               .generation = s.generation,
                               .owner = "a",
                               .next = STORE_NEXT_TIMERS };
    OK(store_lease_release(w->db, &r, 1, &err));
    s = world_get(w, s.sandbox_id);
    assert_true(s.next_action_at_ms > s.now_ms + 1790 * 1000);
}

static void a_plane_that_stopped_beating_loses_everything(void **state)
{
    struct world *w = *state;
    struct store_sandbox a = world_ready(w);
    struct store_execution_new e = world_execution(w, &a);
    struct store_sandboxes due;
    struct store_executions stale;
    int freed;

    world_create(w);
    OK(store_instance_beat(w->db, "live", &err));
    OK(store_instance_beat(w->db, "dead", &err));
    e.instance = "dead";
    OK(store_execution_begin(w->db, &e, w->a, &a, &err));
    OK(store_sandbox_claim_due(w->db, "dead", LEASE_MS, 10, w->a, &due, &err));
    assert_int_equal(due.count, 1);
    OK(store_instance_reap(w->db, 10000, &freed, &err));
    assert_int_equal(freed, 0);
    OK(store_execution_claim_stale(w->db, "live", 10000, 10000, 10, w->a, &stale, &err));
    assert_int_equal(stale.count, 0);

    world_sql(w, "UPDATE sandboxd.instances SET beat_at = now() - interval '1 minute' "
                 "WHERE instance = 'dead'");
    OK(store_instance_reap(w->db, 10000, &freed, &err));
    assert_int_equal(freed, 1);
    OK(store_sandbox_claim_due(w->db, "live", LEASE_MS, 10, w->a, &due, &err));
    assert_int_equal(due.count, 1);
    OK(store_execution_claim_stale(w->db, "live", 10000, 10000, 10, w->a, &stale, &err));
    assert_int_equal(stale.count, 1);
    assert_string_equal(stale.rows[0].execution_id, e.execution_id);
    OK(store_execution_claim_stale(w->db, "third", 10000, 10000, 10, w->a, &stale, &err));
    assert_int_equal(stale.count, 0);
    OK(store_execution_end(w->db, e.execution_id, NULL, &err));
    assert_int_equal(world_get(w, a.sandbox_id).status, SANDBOX_READY);
    OK(store_instance_leave(w->db, "live", &err));
    OK(store_sandbox_claim_due(w->db, "third", LEASE_MS, 10, w->a, &due, &err));
    assert_int_equal(due.count, 1);
}

static void a_region_that_came_back_is_looked_at(void **state)
{
    struct world *w = *state;
    struct store_sandbox a = world_ready(w), b = world_ready(w);
    struct store_sandboxes due;
    int poked;

    b = world_move(w, &b, SANDBOX_TERMINATING);
    b = world_move(w, &b, SANDBOX_TERMINATED);
    world_sql(w, "UPDATE sandboxd.sandboxes SET holds_compute = false WHERE status <> 'READY'");
    OK(store_sandbox_poke_region(w->db, w->region, &poked, &err));
    assert_true(poked >= 1);
    OK(store_sandbox_claim_due(w->db, "a", LEASE_MS, 200, w->a, &due, &err));
    bool found = false;
    for (size_t i = 0; i < due.count; i++)
        found = found || strcmp(due.rows[i].sandbox_id, a.sandbox_id) == 0;
    assert_true(found);
}

static void counts_say_what_there_is(void **state)
{
    struct world *w = *state;
    struct store_counts before, after;

    OK(store_counts_get(w->db, &before, &err));
    world_create(w);
    OK(store_counts_get(w->db, &after, &err));
    assert_int_equal(after.by_status[SANDBOX_REQUESTED] - before.by_status[SANDBOX_REQUESTED], 1);
    assert_int_equal(after.due - before.due, 1);
    assert_int_equal(after.by_status[SANDBOX_TERMINATED], -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_create_is_due_at_once_and_for_one, nothing_due),
        cmocka_unit_test_setup(four_planes_share_without_a_double, nothing_due),
        cmocka_unit_test_setup(a_lease_that_ends_gives_the_row_back, nothing_due),
        cmocka_unit_test_setup(renewing_keeps_and_releasing_gives, nothing_due),
        cmocka_unit_test_setup(a_move_may_keep_the_lease, nothing_due),
        cmocka_unit_test_setup(a_busy_row_is_looked_at_once_in_its_idle_time, nothing_due),
        cmocka_unit_test_setup(a_plane_that_stopped_beating_loses_everything, nothing_due),
        cmocka_unit_test_setup(a_region_that_came_back_is_looked_at, nothing_due),
        cmocka_unit_test_setup(counts_say_what_there_is, nothing_due),
    };
    return cmocka_run_group_tests(tests, world_new, world_free);
}
