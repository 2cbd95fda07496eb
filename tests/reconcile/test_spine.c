/* The reconciler on a real PostgreSQL, with a real client, against a region that can be told to
 * misbehave. */

#include "store/fixture.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/time.h"
#include "reconcile/fake_region.h"
#include "reconcile/reconcile.h"

enum { SOON_MS = 15000 };

static struct world *w;
static struct fake_region *region;
static struct net *net;
static struct gateway_client *gateways;
static struct reconcile *planes[2];
static char socket_path[64];

static const struct plan_times TIMES = {
    .allocating_s = 4,
    .starting_s = 4,
    .suspending_s = 4,
    .resuming_s = 4,
    .failed_retention_s = 2,
    .backoff_first_ms = 50,
    .backoff_max_ms = 500,
};

static void sleep_ms(int ms)
{
    struct timespec t = { 0, ms * 1000000L };

    (void)nanosleep(&t, NULL);
}

#define SOON(condition)                                                                            \
    do {                                                                                           \
        int64_t until_ = time_mono_ms() + SOON_MS;                                                 \
        while (!(condition)) {                                                                     \
            if (time_mono_ms() > until_)                                                           \
                fail_msg("not in time: %s", #condition);                                           \
            sleep_ms(10);                                                                          \
        }                                                                                          \
    } while (0)

static struct reconcile *plane_start(void)
{
    struct reconcile_config config = { .store = &w->cfg,
                                       .gateways = gateways,
                                       .times = TIMES,
                                       .lease_ms = 3000,
                                       .poll_ms = 200,
                                       .region_sweep_ms = 1000,
                                       .execution_grace_ms = 1000,
                                       .warm_total_max = 8 };
    struct reconcile *r;

    OK(reconcile_start(&config, &r, &err));
    return r;
}

static int start(void **state)
{
    struct net_config nc = { 0 };
    struct gateway_client_config gc = { 0 };

    assert_int_equal(world_new(state), 0);
    w = *state;
    (void)snprintf(socket_path, sizeof(socket_path), "/tmp/sbxfake.%d", (int)getpid());
    (void)world_sql(w,
                    arena_printf(w->a, "UPDATE sandboxd.regions SET socket = '%s'", socket_path));
    (void)unlink(socket_path);
    region = fake_region_new(socket_path);
    OK(net_start(&nc, &net, &err));
    gc.net = net;
    gateways = gateway_client_new(&gc);
    planes[0] = plane_start();
    return 0;
}

static int stop(void **state)
{
    for (size_t i = 0; i < COUNT_OF(planes); i++) {
        reconcile_stop(planes[i], 2000);
        planes[i] = NULL;
    }
    net_stop(net);
    gateway_client_free(gateways);
    fake_region_free(region);
    (void)unlink(socket_path);
    return world_free(state);
}

static enum sandbox_status status_of(const char *id)
{
    return world_get(w, id).status;
}

static struct store_sandbox create(void)
{
    struct store_sandbox s = world_create(w);

    reconcile_wake(planes[0]);
    return s;
}

static struct store_sandbox ready(void)
{
    struct store_sandbox s = create();

    SOON(status_of(s.sandbox_id) == SANDBOX_READY);
    return world_get(w, s.sandbox_id);
}

static enum sbx_code terminate(const char *id, struct store_sandbox *out)
{
    struct reconcile_ask ask = { .sandbox_id = id, .actor = w->caller, .request_id = "request-9" };
    struct sbx_err err = { 0 };

    return reconcile_terminate(planes[0], w->db, &ask, w->a, out, &err);
}

struct waited {
    atomic_int done; /* 1: reached, 2: not */
};

static void on_wait(void *arg, bool reached, enum sandbox_status status, int64_t generation,
                    const struct sbx_err *err)
{
    (void)status;
    (void)generation;
    (void)err;
    atomic_store(&((struct waited *)arg)->done, reached ? 1 : 2);
}

static void a_create_gets_ready_and_a_terminate_ends_it(void **state)
{
    struct store_sandbox s = ready(), out;
    struct waited waited = { 0 };
    struct store_events events;

    (void)state;
    assert_true(fake_region_has(region, s.sandbox_id));
    assert_true(s.claimed_at_ms > 0 && s.ready_at_ms >= s.claimed_at_ms);
    assert_null(s.lease_owner);
    assert_int_equal(terminate(s.sandbox_id, &out), SBX_OK);
    assert_int_equal(out.status, SANDBOX_TERMINATING);
    OK(reconcile_await(planes[0], s.sandbox_id, SANDBOX_SET_ENDED, 10000, on_wait, &waited, &err));
    SOON(atomic_load(&waited.done) != 0);
    assert_int_equal(atomic_load(&waited.done), 1);
    out = world_get(w, s.sandbox_id);
    assert_int_equal(out.status, SANDBOX_TERMINATED);
    assert_int_equal(out.end_reason, SANDBOX_END_USER_REQUESTED);
    assert_false(out.holds_compute);
    assert_false(fake_region_has(region, s.sandbox_id));
    OK(store_event_list(w->db, s.sandbox_id, w->a, &events, &err));
    assert_true(events.count >= 4);
    assert_int_equal(terminate(s.sandbox_id, &out), SBX_OK); /* again: unchanged */
    assert_int_equal(out.generation, world_get(w, s.sandbox_id).generation);
}

/* Case 2. */
static void a_terminate_during_the_deploy_tears_the_late_result_down(void **state)
{
    struct store_sandbox s, out;

    (void)state;
    fake_region_deploys(region, FAKE_DEPLOY_OK, 1500);
    s = create();
    SOON(fake_region_deploy_count(region) > 0 && status_of(s.sandbox_id) != SANDBOX_REQUESTED);
    assert_int_equal(terminate(s.sandbox_id, &out), SBX_OK);
    assert_int_equal(out.status, SANDBOX_TERMINATING);
    SOON(status_of(s.sandbox_id) == SANDBOX_TERMINATED);
    fake_region_deploys(region, FAKE_DEPLOY_OK, 0);
    sleep_ms(900);
    sleep_ms(900);
    assert_false(fake_region_has(region, s.sandbox_id));
}

/* Case 5. */
static void a_failed_deploy_says_why_and_frees_its_place(void **state)
{
    struct store_sandbox s;

    (void)state;
    fake_region_deploys(region, FAKE_DEPLOY_FAILS, 0);
    s = create();
    SOON(status_of(s.sandbox_id) == SANDBOX_FAILED);
    fake_region_deploys(region, FAKE_DEPLOY_OK, 0);
    SOON(!world_get(w, s.sandbox_id).holds_compute);
    s = world_get(w, s.sandbox_id);
    assert_int_equal(s.fault, SANDBOX_FAULT_UNKNOWN);
    assert_string_equal(s.status_reason, "The command exited with status 1.");
    SOON(status_of(s.sandbox_id) == SANDBOX_TERMINATED); /* after its retention */
    assert_int_equal(world_get(w, s.sandbox_id).end_reason, SANDBOX_END_FAILED);
}

/* Case 5: busy and garbage are tried again until the deadline, then it fails. */
static void a_deadline_ends_a_deploy_that_never_settles(void **state)
{
    static const enum fake_deploy how[] = { FAKE_DEPLOY_BUSY, FAKE_DEPLOY_GARBAGE };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(how); i++) {
        struct store_sandbox s;
        int before = fake_region_deploy_count(region);

        fake_region_deploys(region, how[i], 0);
        s = create();
        SOON(status_of(s.sandbox_id) == SANDBOX_FAILED);
        fake_region_deploys(region, FAKE_DEPLOY_OK, 0);
        assert_true(fake_region_deploy_count(region) - before > 1);
        s = world_get(w, s.sandbox_id);
        assert_int_equal(s.fault, SANDBOX_FAULT_AGENT_UNREACHABLE);
    }
}

static void a_busy_region_is_tried_again(void **state)
{
    struct store_sandbox s;

    (void)state;
    fake_region_deploys(region, FAKE_DEPLOY_BUSY, 0);
    s = create();
    sleep_ms(500);
    fake_region_deploys(region, FAKE_DEPLOY_OK, 0);
    SOON(status_of(s.sandbox_id) == SANDBOX_READY);
}

/* Case 5: TERMINATING is tried for ever. */
static void terminating_waits_for_the_regions_word(void **state)
{
    struct store_sandbox s = ready(), out;

    (void)state;
    fake_region_sticky(region, true);
    assert_int_equal(terminate(s.sandbox_id, &out), SBX_OK);
    sleep_ms(900);
    assert_int_equal(status_of(s.sandbox_id), SANDBOX_TERMINATING);
    assert_true(world_get(w, s.sandbox_id).holds_compute);
    fake_region_sticky(region, false);
    SOON(status_of(s.sandbox_id) == SANDBOX_TERMINATED);
}

/* Cases 4 and 10. */
static void what_vanished_fails_and_what_has_no_row_ends(void **state)
{
    struct store_sandbox a = ready(), b = ready();
    struct reconcile_stats before, after;
    char stray[ID_SIZE];

    (void)state;
    reconcile_stats(planes[0], &before);
    id_new(stray);
    fake_region_add(region, stray, 7);
    fake_region_lose(region, a.sandbox_id);
    SOON(status_of(a.sandbox_id) == SANDBOX_FAILED);
    assert_int_equal(world_get(w, a.sandbox_id).fault, SANDBOX_FAULT_SANDBOX_NOT_FOUND);
    assert_int_equal(world_get(w, a.sandbox_id).generation, a.generation + 1);
    SOON(!fake_region_has(region, stray));
    assert_int_equal(status_of(b.sandbox_id), SANDBOX_READY);
    SOON((reconcile_stats(planes[0], &after), after.lost == before.lost + 1));
    assert_true(after.strays > before.strays);
    /* An execute that finds it gone has it looked at at once. */
    fake_region_lose(region, b.sandbox_id);
    reconcile_execute_ended(planes[0], w->db, b.sandbox_id, a.sandbox_id, SBX_E_SANDBOX_NOT_FOUND);
    SOON(status_of(b.sandbox_id) == SANDBOX_FAILED);
}

/* An execution of a control plane that is dead is settled by asking the region. */
static void executions_of_dead_planes_are_settled(void **state)
{
    struct store_sandbox s = ready(), out;
    struct store_execution_new in = world_execution(w, &s);

    (void)state;
    in.instance = "01deadbeefdeadbeefdeadbeef";
    OK(store_execution_begin(w->db, &in, w->a, &out, &err));
    fake_region_execution(region, s.sandbox_id, in.execution_id);
    sleep_ms(900);
    sleep_ms(900);
    sleep_ms(900);
    assert_int_equal(status_of(s.sandbox_id), SANDBOX_BUSY); /* it still runs there */
    fake_region_execution(region, s.sandbox_id, "");
    SOON(status_of(s.sandbox_id) == SANDBOX_READY);
}

/* Case 15, 17: by the database's clock. */
static void idle_and_lifetime_end_it(void **state)
{
    struct store_sandbox a = ready(), b = ready();

    (void)state;
    (void)world_sql(w, arena_printf(w->a,
                                    "UPDATE sandboxd.sandboxes SET idle_timeout_s = 1, "
                                    "next_action_at = now() WHERE sandbox_id = '%s'",
                                    a.sandbox_id));
    (void)world_sql(w, arena_printf(w->a,
                                    "UPDATE sandboxd.sandboxes SET expires_at = now(), "
                                    "next_action_at = now() WHERE sandbox_id = '%s'",
                                    b.sandbox_id));
    SOON(status_of(a.sandbox_id) == SANDBOX_TERMINATED);
    SOON(status_of(b.sandbox_id) == SANDBOX_TERMINATED);
    assert_int_equal(world_get(w, a.sandbox_id).end_reason, SANDBOX_END_IDLE_TIMEOUT);
    assert_int_equal(world_get(w, b.sandbox_id).end_reason, SANDBOX_END_HARD_LIFETIME);
}

/* Issue 4: a second control plane goes on where the first was cut off. */
static void another_plane_takes_over(void **state)
{
    struct store_sandbox s;

    (void)state;
    fake_region_deploys(region, FAKE_DEPLOY_OK, 400);
    s = create();
    SOON(status_of(s.sandbox_id) == SANDBOX_ALLOCATING);
    /* As if its control plane had died: the lease is somebody's that does not beat. */
    reconcile_stop(planes[0], 0);
    planes[0] = plane_start();
    planes[1] = plane_start();
    (void)world_sql(w, arena_printf(w->a,
                                    "UPDATE sandboxd.sandboxes SET lease_owner = 'dead', "
                                    "lease_until = now() + interval '1 hour' WHERE sandbox_id = "
                                    "'%s' AND status <> 'READY'",
                                    s.sandbox_id));
    SOON(status_of(s.sandbox_id) == SANDBOX_READY);
    fake_region_deploys(region, FAKE_DEPLOY_OK, 0);
    for (int i = 0; i < 20; i++) {
        s = world_create(w);
        reconcile_wake(planes[i % 2]);
        SOON(status_of(s.sandbox_id) == SANDBOX_READY);
    }
    reconcile_stop(planes[1], 1000);
    planes[1] = NULL;
}

/* Case 44: the database goes, nothing is lost, and it goes on by itself. */
static void a_database_that_breaks_off_is_met_again(void **state)
{
    struct store_sandbox s = ready();

    (void)state;
    for (int i = 0; i < 5; i++) {
        struct store_sandbox t = create();

        (void)world_sql(w, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE "
                           "application_name LIKE '%reconciler%'");
        SOON(status_of(t.sandbox_id) == SANDBOX_READY);
    }
    assert_int_equal(status_of(s.sandbox_id), SANDBOX_READY);
}

/* Issue 4 point 3: the pool fills, a revision replaces it, a claim takes one. */
static void warm_pools_fill_and_drain(void **state)
{
    struct store_revision rev;

    (void)state;
    world_fresh(w);
    rev = world_revision(w);
    rev.warm_pool = true;
    rev.warm_desired = 2;
    rev.warm_min = 1;
    rev.warm_max = 3;
    rev.warm_regions = w->region;
    OK(store_revision_create(w->db, &rev, w->a, &rev, &err));
    SOON(strcmp(world_sql(w, "SELECT count(*) FROM sandboxd.warm_members WHERE status = 'READY'"),
                "2") == 0);
    assert_int_equal(fake_region_warm_count(region), 2);
    rev.warm_desired = 1;
    OK(store_revision_create(w->db, &rev, w->a, &rev, &err));
    SOON(strcmp(world_sql(w, arena_printf(w->a,
                                          "SELECT count(*) FROM sandboxd.warm_members WHERE status "
                                          "= 'READY' AND revision_id = '%s'",
                                          rev.revision_id)),
                "1") == 0);
    SOON(fake_region_warm_count(region) == 1);
    SOON(strcmp(world_sql(w, "SELECT count(*) FROM sandboxd.warm_members"), "1") == 0);
    rev.warm_desired = rev.warm_min = 0;
    OK(store_revision_create(w->db, &rev, w->a, &rev, &err));
    SOON(strcmp(world_sql(w, "SELECT count(*) FROM sandboxd.warm_members"), "0") == 0);
    SOON(fake_region_warm_count(region) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_create_gets_ready_and_a_terminate_ends_it),
        cmocka_unit_test(a_terminate_during_the_deploy_tears_the_late_result_down),
        cmocka_unit_test(a_failed_deploy_says_why_and_frees_its_place),
        cmocka_unit_test(a_deadline_ends_a_deploy_that_never_settles),
        cmocka_unit_test(a_busy_region_is_tried_again),
        cmocka_unit_test(terminating_waits_for_the_regions_word),
        cmocka_unit_test(what_vanished_fails_and_what_has_no_row_ends),
        cmocka_unit_test(executions_of_dead_planes_are_settled),
        cmocka_unit_test(idle_and_lifetime_end_it),
        cmocka_unit_test(another_plane_takes_over),
        cmocka_unit_test(a_database_that_breaks_off_is_met_again),
        cmocka_unit_test(warm_pools_fill_and_drain),
    };

    log_open("test_spine", getenv("SBX_TEST_LOG") ? LOG_DEBUG : LOG_ERROR);
    return cmocka_run_group_tests(tests, start, stop);
}
