/* What several requests ask in one round trip: each is answered as if it had asked alone, or is
 * told to, and nothing is done twice. */

#include <poll.h>
#include <pthread.h>
#include <string.h>

#include "store/fixture.h"

enum { COUNT = 5 };

struct batch {
    struct store_sandbox_new in[COUNT];
    struct store_created out[COUNT];
    struct store_later *later[COUNT];
};

static void leave(struct world *w, struct batch *b, int i)
{
    b->out[i] = (struct store_created){ 0 };
    b->later[i] = store_sandbox_create_later(w->db, &b->in[i], w->a, &b->out[i]);
}

static void batch_in(struct world *w, struct batch *b)
{
    world_fresh(w);
    for (int i = 0; i < COUNT; i++)
        b->in[i] = world_create_in(w, NULL);
}

static void leave_all(struct world *w, struct batch *b)
{
    for (int i = 0; i < COUNT; i++)
        leave(w, b, i);
}

static const char *rows_of(struct world *w, const char *account_id)
{
    return world_sql(w, arena_printf(w->a,
                                     "SELECT count(*) FROM sandboxd.sandboxes "
                                     "WHERE account_id = '%s'",
                                     account_id));
}

/* How many transactions the rows of the account came from. */
static const char *commits_of(struct world *w, const char *account_id)
{
    return world_sql(w, arena_printf(w->a,
                                     "SELECT count(DISTINCT xmin::text) FROM sandboxd.sandboxes "
                                     "WHERE account_id = '%s'",
                                     account_id));
}

static void creates_share_a_commit(void **state)
{
    struct world *w = *state;
    struct batch b;

    batch_in(w, &b);
    leave_all(w, &b);
    assert_string_equal(rows_of(w, w->account.account_id), "0");
    assert_true(store_settle(w->db));
    for (int i = 0; i < COUNT; i++) {
        assert_true(store_later_done(b.later[i]));
        OK(store_later_code(b.later[i], &err));
        assert_true(b.out[i].was_created);
        assert_string_equal(b.out[i].sandbox.sandbox_id, b.in[i].sandbox_id);
    }
    assert_string_equal(rows_of(w, w->account.account_id), "5");
    assert_string_equal(commits_of(w, w->account.account_id), "1");
}

/* One over the quota, one a repeat, two with one key, one of another account, one without an app:
 * each has its own answer. */
static void a_refused_create_fails_no_other(void **state)
{
    struct world *w = *state;
    struct batch b;
    struct store_created before;

    batch_in(w, &b);
    struct store_sandbox_new other = b.in[0];
    world_fresh(w);
    OK(store_account_quota(w->db, w->account.account_id, 2, w->a, &w->account, &err));
    struct store_sandbox_new repeated = world_create_in(w, "repeated");
    OK(store_sandbox_create(w->db, &repeated, w->a, &before, &err));
    b.in[0] = world_create_in(w, "last place");
    b.in[1] = world_create_in(w, "last place");
    b.in[2] = world_create_in(w, "repeated");
    b.in[3] = world_create_in(w, "too many");
    b.in[4] = other;
    b.in[4].app_id = other.account_id; /* no app */
    leave_all(w, &b);
    struct store_created of_other = { 0 };
    struct store_later *later = store_sandbox_create_later(w->db, &other, w->a, &of_other);
    assert_true(store_settle(w->db));
    for (int i = 0; i < 3; i++)
        OK(store_later_code(b.later[i], &err));
    assert_true(b.out[0].was_created);
    assert_false(b.out[1].was_created);
    assert_string_equal(b.out[1].sandbox.sandbox_id, b.in[0].sandbox_id);
    assert_false(b.out[2].was_created);
    assert_string_equal(b.out[2].sandbox.sandbox_id, before.sandbox.sandbox_id);
    FAILS(SBX_E_QUOTA, store_later_code(b.later[3], &err));
    assert_int_equal(b.out[3].quota_limit, 2);
    assert_int_equal(b.out[3].quota_active, 2);
    FAILS(SBX_E_NOT_FOUND, store_later_code(b.later[4], &err));
    OK(store_later_code(later, &err));
    assert_true(of_other.was_created);
    assert_string_equal(rows_of(w, w->account.account_id), "2");
    assert_string_equal(rows_of(w, other.account_id), "1");
}

/* A failure of the transaction: nothing of it stays, and each finds its own answer alone. */
static void a_broken_create_leaves_the_others_to_ask_alone(void **state)
{
    struct world *w = *state;
    struct batch b;

    batch_in(w, &b);
    OK(store_sandbox_create(w->db, &b.in[0], w->a, &b.out[0], &err));
    b.in[2].sandbox_id = b.in[0].sandbox_id; /* another key with an id that is taken */
    for (int i = 1; i < COUNT; i++)
        leave(w, &b, i);
    assert_true(store_settle(w->db));
    assert_string_equal(rows_of(w, w->account.account_id), "1");
    for (int i = 1; i < COUNT; i++) {
        assert_false(store_later_done(b.later[i]));
        if (i == 2)
            FAILS(SBX_E_CONFLICT, store_sandbox_create(w->db, &b.in[i], w->a, &b.out[i], &err));
        else
            OK(store_sandbox_create(w->db, &b.in[i], w->a, &b.out[i], &err));
    }
    assert_string_equal(rows_of(w, w->account.account_id), "4");
}

static void creates_are_refused_together_while_the_index_is_missing(void **state)
{
    struct world *w = *state;
    struct batch b;

    batch_in(w, &b);
    world_sql(w, "DROP INDEX sandboxd.sandboxes_idempotency");
    leave_all(w, &b);
    assert_true(store_settle(w->db));
    for (int i = 0; i < COUNT; i++) {
        assert_false(store_later_done(b.later[i]));
        FAILS(SBX_E_IDEMPOTENCY_UNAVAILABLE,
              store_sandbox_create(w->db, &b.in[i], w->a, &b.out[i], &err));
    }
    world_sql(w, "CREATE UNIQUE INDEX sandboxes_idempotency ON sandboxd.sandboxes "
                 "(account_id, app_id, caller_key, idempotency_digest)");
    assert_string_equal(rows_of(w, w->account.account_id), "0");
}

/* Somebody holds the row of one account: the group gives up soon, and the others do not wait. */
static void a_locked_account_holds_up_nobody_else(void **state)
{
    struct world *w = *state;
    struct batch b;

    batch_in(w, &b);
    const char *locked = w->account.account_id;
    world_fresh(w);
    b.in[1] = world_create_in(w, NULL);
    world_sql(w, "BEGIN");
    world_sql(w, arena_printf(w->a,
                              "SELECT 1 FROM sandboxd.accounts WHERE account_id = '%s' FOR UPDATE",
                              locked));
    leave(w, &b, 0);
    leave(w, &b, 1);
    assert_true(store_settle(w->db));
    assert_false(store_later_done(b.later[0]));
    assert_false(store_later_done(b.later[1]));
    OK(store_sandbox_create(w->db, &b.in[1], w->a, &b.out[1], &err));
    world_sql(w, "ROLLBACK");
    OK(store_sandbox_create(w->db, &b.in[0], w->a, &b.out[0], &err));
    assert_string_equal(rows_of(w, locked), "1");
}

/* --- a connection that breaks in the middle ---------------------------------- */

static void creates_cut_off_in_the_middle_are_made_once(void **state)
{
    struct world *w = *state;
    struct batch b;
    pthread_t killer;

    batch_in(w, &b);
    world_sql(w, "BEGIN");
    /* The first has made its sandbox and waits to write the event. */
    world_sql(w, "LOCK TABLE sandboxd.sandbox_events IN EXCLUSIVE MODE");
    leave_all(w, &b);
    assert_int_equal(pthread_create(&killer, NULL, world_kill_when_waiting, w), 0);
    assert_true(store_settle(w->db));
    pthread_join(killer, NULL);
    assert_string_equal(rows_of(w, w->account.account_id), "0");
    for (int i = 0; i < COUNT; i++) {
        assert_false(store_later_done(b.later[i]));
        OK(store_sandbox_create(w->db, &b.in[i], w->a, &b.out[i], &err));
        assert_true(b.out[i].was_created);
    }
    assert_string_equal(rows_of(w, w->account.account_id), "5");
}

/* Committed, but the answer is lost: the repeat finds it, and it is ours. */
static void creates_whose_answer_was_lost_are_found_again(void **state)
{
    struct world *w = *state;
    struct batch b;

    batch_in(w, &b);
    leave_all(w, &b);
    assert_true(store_settle(w->db));
    for (int i = 0; i < COUNT; i++) {
        struct store_created again;
        OK(store_sandbox_create(w->db, &b.in[i], w->a, &again, &err));
        assert_true(again.was_created);
        assert_string_equal(again.sandbox.sandbox_id, b.in[i].sandbox_id);
    }
    assert_string_equal(rows_of(w, w->account.account_id), "5");
}

static void reads_are_answered_each_for_itself(void **state)
{
    struct world *w = *state;
    struct store_sandbox a = world_create(w), b = world_create(w), got[4];
    struct store_later *l[4];

    l[0] = store_sandbox_get_later(w->db, w->account.account_id, a.sandbox_id, w->a, &got[0]);
    l[1] = store_sandbox_get_later(w->db, w->account.account_id, "none", w->a, &got[1]);
    l[2] = store_sandbox_get_later(w->db, "another", a.sandbox_id, w->a, &got[2]);
    l[3] = store_sandbox_get_later(w->db, w->account.account_id, b.sandbox_id, w->a, &got[3]);
    assert_true(store_settle(w->db));
    OK(store_later_code(l[0], &err));
    FAILS(SBX_E_NOT_FOUND, store_later_code(l[1], &err));
    FAILS(SBX_E_NOT_FOUND, store_later_code(l[2], &err));
    OK(store_later_code(l[3], &err));
    assert_string_equal(got[0].sandbox_id, a.sandbox_id);
    assert_string_equal(got[3].sandbox_id, b.sandbox_id);
}

static void a_broken_read_leaves_those_behind_it_to_ask_alone(void **state)
{
    struct world *w = *state;
    struct store_sandbox a = world_create(w), got[3];
    struct store_later *l[3];

    l[0] = store_sandbox_get_later(w->db, w->account.account_id, a.sandbox_id, w->a, &got[0]);
    l[1] = store_sandbox_get_later(w->db, w->account.account_id, "\xff", w->a, &got[1]);
    l[2] = store_sandbox_get_later(w->db, w->account.account_id, a.sandbox_id, w->a, &got[2]);
    assert_true(store_settle(w->db));
    OK(store_later_code(l[0], &err));
    assert_false(store_later_done(l[1]));
    assert_false(store_later_done(l[2]));
    OK(store_sandbox_get(w->db, w->account.account_id, a.sandbox_id, w->a, &got[2], &err));
    /* the connection is as good as before */
    l[2] = store_sandbox_get_later(w->db, w->account.account_id, a.sandbox_id, w->a, &got[2]);
    assert_true(store_settle(w->db));
    OK(store_later_code(l[2], &err));
}

static void reads_cut_off_in_the_middle_ask_again(void **state)
{
    struct world *w = *state;
    struct store_sandbox a = world_create(w), got[2];
    struct store_later *l[2];
    pthread_t killer;

    world_sql(w, "BEGIN");
    world_sql(w, "LOCK TABLE sandboxd.sandboxes");
    for (int i = 0; i < 2; i++)
        l[i] = store_sandbox_get_later(w->db, w->account.account_id, a.sandbox_id, w->a, &got[i]);
    assert_int_equal(pthread_create(&killer, NULL, world_kill_when_waiting, w), 0);
    assert_true(store_settle(w->db));
    pthread_join(killer, NULL);
    for (int i = 0; i < 2; i++) {
        assert_false(store_later_done(l[i]));
        OK(store_sandbox_get(w->db, w->account.account_id, a.sandbox_id, w->a, &got[i], &err));
    }
}

/* --- the bound of the quota ---------------------------------------------------- */

static void nothing_holds_compute_beyond_the_bound(void **state)
{
    struct world *w = *state;

    world_fresh(w);
    OK(store_account_quota(w->db, w->account.account_id, 3, w->a, &w->account, &err));
    for (int round = 0; round < 4; round++) {
        struct store_sandbox s[3];
        struct store_created out = { 0 };
        struct store_sandbox_new in = world_create_in(w, NULL);

        for (int i = 0; i < 3; i++)
            s[i] = world_create(w);
        FAILS(SBX_E_QUOTA, store_sandbox_create(w->db, &in, w->a, &out, &err));
        assert_int_equal(out.quota_active, 3);
        for (int i = 0; i < 3; i++) {
            s[i] = world_move(w, &s[i], SANDBOX_FAILED);
            struct store_move gone = world_move_in(&s[i], SANDBOX_FAILED);
            gone.compute = STORE_CLEAR;
            OK(store_sandbox_move(w->db, &gone, w->a, &s[i], &err));
        }
    }
    /* Whoever writes keeps it: rows that no function of ours made, and one that holds again. */
    world_sql(w, arena_printf(w->a,
                              "UPDATE sandboxd.sandboxes SET holds_compute = true "
                              "WHERE account_id = '%s'",
                              w->account.account_id));
    assert_string_equal(world_sql(w, "SELECT count(*) FROM sandboxd.accounts a "
                                     "WHERE a.active_bound < sandboxd.account_active(a.account_id) "
                                     "OR a.sandbox_total <> (SELECT count(*) "
                                     "FROM sandboxd.sandboxes s "
                                     "WHERE s.account_id = a.account_id)"),
                        "0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(creates_share_a_commit),
        cmocka_unit_test(a_refused_create_fails_no_other),
        cmocka_unit_test(a_broken_create_leaves_the_others_to_ask_alone),
        cmocka_unit_test(creates_are_refused_together_while_the_index_is_missing),
        cmocka_unit_test(a_locked_account_holds_up_nobody_else),
        cmocka_unit_test(creates_cut_off_in_the_middle_are_made_once),
        cmocka_unit_test(creates_whose_answer_was_lost_are_found_again),
        cmocka_unit_test(reads_are_answered_each_for_itself),
        cmocka_unit_test(a_broken_read_leaves_those_behind_it_to_ask_alone),
        cmocka_unit_test(reads_cut_off_in_the_middle_ask_again),
        cmocka_unit_test(nothing_holds_compute_beyond_the_bound),
    };
    return cmocka_run_group_tests(tests, world_new, world_free);
}
