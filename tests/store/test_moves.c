/* Guarded moves, executions, history: contract 3 and 4, cases 15 and 17 (the store's part). */

#include <string.h>

#include "store/fixture.h"

static void each_change_adds_one_and_leaves_its_trace(void **state)
{
    struct world *w = *state;
    world_fresh(w);
    struct store_sandbox s = world_create(w);
    s = world_move(w, &s, SANDBOX_ALLOCATING);
    assert_int_equal(s.generation, 1);
    assert_int_equal(s.previous, SANDBOX_REQUESTED);
    s = world_move(w, &s, SANDBOX_STARTING);
    struct store_move up = world_move_in(&s, SANDBOX_READY);
    up.cause = "agent ready";
    up.actor = "reconciler";
    up.set_warm = true;
    up.request_id = "request-9";
    OK(store_sandbox_move(w->db, &up, w->a, &s, &err));
    assert_int_equal(s.generation, 3);
    assert_true(s.ready_at_ms > 0 && s.last_active_at_ms == s.ready_at_ms);
    assert_true(s.is_warm);
    /* READY: the next look is at the idle timeout, which is before expiry */
    assert_int_equal(s.next_action_at_ms, s.last_active_at_ms + 1800 * 1000);

    struct store_events events;
    OK(store_event_list(w->db, s.sandbox_id, w->a, &events, &err));
    assert_int_equal(events.count, 4);
    assert_int_equal(events.rows[0].to, SANDBOX_REQUESTED);
    assert_int_equal(events.rows[0].from, SANDBOX_STATUS_NONE);
    assert_string_equal(events.rows[0].actor, w->caller);
    assert_int_equal(events.rows[3].generation, 3);
    assert_int_equal(events.rows[3].from, SANDBOX_STARTING);
    assert_string_equal(events.rows[3].cause, "agent ready");
    assert_string_equal(events.rows[3].request_id, "request-9");
}

static void a_move_that_lost_changes_nothing(void **state)
{
    struct world *w = *state;
    world_fresh(w);
    struct store_sandbox s = world_ready(w);
    struct store_move stale = world_move_in(&s, SANDBOX_TERMINATING);
    stale.generation--;
    FAILS(SBX_E_CHANGING, store_sandbox_move(w->db, &stale, w->a, NULL, &err));
    struct store_move other = world_move_in(&s, SANDBOX_TERMINATING);
    other.from = SANDBOX_BIT(SANDBOX_BUSY);
    FAILS(SBX_E_CHANGING, store_sandbox_move(w->db, &other, w->a, NULL, &err));
    struct store_sandbox now = world_get(w, s.sandbox_id);
    assert_int_equal(now.generation, s.generation);
    assert_int_equal(now.status, SANDBOX_READY);
    struct store_events events;
    OK(store_event_list(w->db, s.sandbox_id, w->a, &events, &err));
    assert_int_equal(events.count, 4);
}

struct both {
    struct world *w;
    struct store_sandbox s;
    enum sbx_code code[32];
};

static void move_ready_away(int i, struct store_conn *db, void *arg)
{
    struct both *b = arg;
    struct sbx_err err = { 0 };
    struct store_move m = world_move_in(&b->s, i % 2 ? SANDBOX_TERMINATING : SANDBOX_SUSPENDING);

    b->code[i] = store_sandbox_move(db, &m, NULL, NULL, &err);
}

static void of_many_at_once_one_wins(void **state)
{
    struct world *w = *state;
    world_fresh(w);
    struct both b = { .w = w, .s = world_ready(w) };
    int won = 0;

    world_together(w, 16, move_ready_away, &b);
    for (int i = 0; i < 16; i++) {
        assert_true(b.code[i] == SBX_OK || b.code[i] == SBX_E_CHANGING);
        won += b.code[i] == SBX_OK;
    }
    assert_int_equal(won, 1);
    assert_int_equal(world_get(w, b.s.sandbox_id).generation, b.s.generation + 1);
}

static void moves_in_a_batch_stand_alone(void **state)
{
    struct world *w = *state;
    enum { N = 100 };
    struct store_move *m = arena_zalloc(w->a, N * sizeof(*m));
    struct store_sandbox *out = arena_zalloc(w->a, N * sizeof(*out));
    bool moved[N];
    world_fresh(w);
    OK(store_account_quota(w->db, w->account.account_id, 1000, w->a, &w->account, &err));
    for (int i = 0; i < N; i++) {
        struct store_sandbox s = world_create(w);
        m[i] = world_move_in(&s, SANDBOX_ALLOCATING);
        m[i].generation += i % 10 == 0; /* these have lost */
        m[i].set_claimed = true;
    }
    OK(store_sandbox_moves(w->db, m, N, moved, w->a, out, &err));
    for (int i = 0; i < N; i++) {
        assert_int_equal(moved[i], i % 10 != 0);
        if (moved[i]) {
            assert_string_equal(out[i].sandbox_id, m[i].sandbox_id);
            assert_int_equal(out[i].status, SANDBOX_ALLOCATING);
            assert_true(out[i].claimed_at_ms > 0);
        }
    }
    assert_int_equal(world_get(w, m[0].sandbox_id).status, SANDBOX_REQUESTED);
}

static void a_chain_happens_whole_or_not_at_all(void **state)
{
    struct world *w = *state;
    world_fresh(w);
    struct store_sandbox s = world_create(w), last;
    struct store_move chain[2] = { world_move_in(&s, SANDBOX_FAILED),
                                   world_move_in(&s, SANDBOX_TERMINATING) };
    chain[0].fault = SANDBOX_FAULT_UNKNOWN;
    chain[1].generation = s.generation + 2; /* wrong */
    chain[1].from = SANDBOX_BIT(SANDBOX_FAILED);
    FAILS(SBX_E_CHANGING, store_sandbox_moves_atomic(w->db, chain, 2, w->a, &last, &err));
    assert_int_equal(world_get(w, s.sandbox_id).status, SANDBOX_REQUESTED);
    chain[1].generation = s.generation + 1;
    chain[1].end_reason = SANDBOX_END_USER_REQUESTED;
    OK(store_sandbox_moves_atomic(w->db, chain, 2, w->a, &last, &err));
    assert_int_equal(last.status, SANDBOX_TERMINATING);
    assert_int_equal(last.generation, 2);
    assert_int_equal(last.fault, SANDBOX_FAULT_UNKNOWN);
    assert_int_equal(last.end_reason, SANDBOX_END_USER_REQUESTED);
    assert_true(last.failed_at_ms > 0);
    assert_true(last.next_action_at_ms <= last.now_ms);
    last = world_move(w, &last, SANDBOX_TERMINATED);
    assert_true(last.terminated_at_ms > 0);
    assert_int_equal(last.next_action_at_ms, 0);
    assert_false(last.holds_compute);
}

static void execution_makes_busy_and_the_last_one_ready(void **state)
{
    struct world *w = *state;
    world_fresh(w);
    struct store_sandbox s = world_ready(w), busy;
    struct store_execution_new one = world_execution(w, &s), two = world_execution(w, &s);
    bool there;
    OK(store_execution_begin(w->db, &one, w->a, &busy, &err));
    assert_int_equal(busy.status, SANDBOX_BUSY);
    assert_int_equal(busy.generation, s.generation + 1);
    assert_int_equal(busy.running, 1);
    assert_int_equal(busy.next_action_at_ms, s.next_action_at_ms);
    OK(store_execution_begin(w->db, &two, w->a, &busy, &err));
    assert_int_equal(busy.generation, s.generation + 1);
    assert_int_equal(busy.running, 2);
    struct store_executions list;
    OK(store_execution_list(w->db, s.sandbox_id, w->a, &list, &err));
    assert_int_equal(list.count, 2);
    assert_int_equal(list.rows[0].deadline_at_ms - list.rows[0].started_at_ms, 120000);
    OK(store_execution_end(w->db, one.execution_id, &there, &err));
    assert_true(there);
    assert_int_equal(world_get(w, s.sandbox_id).status, SANDBOX_BUSY);
    OK(store_execution_end(w->db, one.execution_id, &there, &err));
    assert_false(there);
    assert_int_equal(world_get(w, s.sandbox_id).running, 1);
    OK(store_execution_end(w->db, two.execution_id, NULL, &err));
    struct store_sandbox now = world_get(w, s.sandbox_id);
    assert_int_equal(now.status, SANDBOX_READY);
    assert_int_equal(now.generation, s.generation + 2);
    assert_true(now.last_active_at_ms >= busy.last_active_at_ms);
}

static void a_status_that_takes_no_command_says_why(void **state)
{
    struct world *w = *state;
    world_fresh(w);
    struct store_sandbox s = world_create(w), out;
    struct store_execution_new e = world_execution(w, &s);
    FAILS(SBX_E_SANDBOX_NOT_READY, store_execution_begin(w->db, &e, w->a, &out, &err));
    e.account_id = "other";
    FAILS(SBX_E_NOT_FOUND, store_execution_begin(w->db, &e, w->a, &out, &err));
    e.account_id = s.account_id;
    s = world_move(w, &s, SANDBOX_READY);
    s = world_move(w, &s, SANDBOX_SUSPENDING);
    FAILS(SBX_E_SANDBOX_SUSPENDED, store_execution_begin(w->db, &e, w->a, &out, &err));
    s = world_move(w, &s, SANDBOX_SUSPENDED);
    FAILS(SBX_E_SANDBOX_SUSPENDED, store_execution_begin(w->db, &e, w->a, &out, &err));
    s = world_move(w, &s, SANDBOX_FAILED);
    FAILS(SBX_E_SANDBOX_NOT_FOUND, store_execution_begin(w->db, &e, w->a, &out, &err));
    assert_string_equal(world_sql(w, "SELECT count(*) FROM sandboxd.executions e "
                                     "JOIN sandboxd.sandboxes s USING (sandbox_id) "
                                     "WHERE s.status = 'FAILED'"),
                        "0");
    struct store_sandbox_new in = world_create_in(w, NULL);
    in.personal = true;
    struct store_created made;
    OK(store_sandbox_create(w->db, &in, w->a, &made, &err));
    s = world_move(w, &made.sandbox, SANDBOX_READY);
    e = world_execution(w, &s);
    FAILS(SBX_E_PERSONAL_RUNTIME, store_execution_begin(w->db, &e, w->a, &out, &err));
}

/* Back from a pause that failed: READY or BUSY by what runs, whatever the move asked for. */
static void a_failed_pause_lands_where_it_was(void **state)
{
    struct world *w = *state;
    world_fresh(w);
    struct store_sandbox s = world_ready(w);
    struct store_execution_new e = world_execution(w, &s);
    OK(store_execution_begin(w->db, &e, w->a, &s, &err));
    s = world_move(w, &s, SANDBOX_SUSPENDING);
    s = world_move(w, &s, SANDBOX_READY);
    assert_int_equal(s.status, SANDBOX_BUSY);
    s = world_move(w, &s, SANDBOX_SUSPENDING);
    OK(store_execution_end(w->db, e.execution_id, NULL, &err)); /* ended while frozen */
    s = world_get(w, s.sandbox_id);
    assert_int_equal(s.status, SANDBOX_SUSPENDING);
    s = world_move(w, &s, SANDBOX_BUSY);
    assert_int_equal(s.status, SANDBOX_READY);
}

struct storm {
    struct world *w;
    struct store_sandbox s;
};

static void begin_and_end(int i, struct store_conn *db, void *arg)
{
    struct storm *t = arg;
    SCOPED_ARENA struct arena *a = arena_new();
    (void)i;

    for (int k = 0; k < 20; k++) {
        char id[ID_SIZE];
        struct store_sandbox out;
        struct store_execution_new e = { .execution_id = id,
                                         .account_id = t->s.account_id,
                                         .sandbox_id = t->s.sandbox_id,
                                         .instance = "i",
                                         .actor = "a",
                                         .timeout_ms = 1000 };
        id_new(id);
        OK(store_execution_begin(db, &e, a, &out, &err));
        OK(store_execution_end(db, id, NULL, &err));
    }
}

static void executions_at_once_never_lose_count(void **state)
{
    struct world *w = *state;
    world_fresh(w);
    struct storm t = { .w = w, .s = world_ready(w) };

    world_together(w, 8, begin_and_end, &t);
    struct store_sandbox now = world_get(w, t.s.sandbox_id);
    assert_int_equal(now.status, SANDBOX_READY);
    assert_int_equal(now.running, 0);
    /* 160 commands: the history keeps the start of its life and at most 64 flips. */
    struct store_events events;
    OK(store_event_list(w->db, now.sandbox_id, w->a, &events, &err));
    assert_true(events.count <= 4 + 64);
    assert_int_equal(events.rows[0].to, SANDBOX_REQUESTED);
}

struct duel {
    struct world *w;
    struct store_sandbox s;
    struct store_execution_new e;
    enum sbx_code idle, execute;
};

static void idle_or_execute(int i, struct store_conn *db, void *arg)
{
    struct duel *d = arg;
    SCOPED_ARENA struct arena *a = arena_new();
    struct sbx_err err = { 0 };
    struct store_sandbox out;

    if (i == 0) {
        struct store_move m = world_move_in(&d->s, SANDBOX_TERMINATING);
        m.guard = STORE_GUARD_IDLE;
        m.end_reason = SANDBOX_END_IDLE_TIMEOUT;
        d->idle = store_sandbox_move(db, &m, a, &out, &err);
    } else {
        d->execute = store_execution_begin(db, &d->e, a, &out, &err);
    }
}

/* Contract 3: an execution that starts as the idle timer fires wins or loses cleanly. */
static void idle_and_execute_at_once_have_one_winner(void **state)
{
    struct world *w = *state;
    world_fresh(w);
    int idle = 0;

    for (int i = 0; i < 20; i++) {
        struct duel d = { .w = w, .s = world_ready(w) };
        world_sql(w, arena_printf(w->a,
                                  "UPDATE sandboxd.sandboxes SET last_active_at = "
                                  "now() - interval '1 hour' WHERE sandbox_id = '%s'",
                                  d.s.sandbox_id));
        d.e = world_execution(w, &d.s);
        world_together(w, 2, idle_or_execute, &d);
        struct store_sandbox now = world_get(w, d.s.sandbox_id);
        if (d.idle == SBX_OK) {
            idle++;
            assert_int_equal(d.execute, SBX_E_SANDBOX_NOT_FOUND);
            assert_int_equal(now.status, SANDBOX_TERMINATING);
            assert_int_equal(now.end_reason, SANDBOX_END_IDLE_TIMEOUT);
        } else {
            assert_int_equal(d.idle, SBX_E_CHANGING);
            assert_int_equal(d.execute, SBX_OK);
            assert_int_equal(now.status, SANDBOX_BUSY);
        }
    }
    print_message("idle won %d of 20\n", idle);
}

static void shift(struct world *w, const struct store_sandbox *s, const char *column)
{
    world_sql(w, arena_printf(w->a,
                              "UPDATE sandboxd.sandboxes SET %s = now() - interval '1 hour' "
                              "WHERE sandbox_id = '%s'",
                              column, s->sandbox_id));
}

static enum sbx_code guarded(struct world *w, const struct store_sandbox *s, enum store_guard guard)
{
    struct store_move m = world_move_in(s, SANDBOX_TERMINATING);
    struct sbx_err err = { 0 };

    m.guard = guard;
    return store_sandbox_move(w->db, &m, w->a, NULL, &err);
}

static void guards_ask_the_database_clock(void **state)
{
    struct world *w = *state;
    world_fresh(w);
    struct store_sandbox s = world_ready(w);
    assert_int_equal(guarded(w, &s, STORE_GUARD_IDLE), SBX_E_CHANGING);
    assert_int_equal(guarded(w, &s, STORE_GUARD_EXPIRED), SBX_E_CHANGING);
    assert_int_equal(guarded(w, &s, STORE_GUARD_DEADLINE), SBX_E_CHANGING);
    shift(w, &s, "expires_at");
    assert_int_equal(guarded(w, &s, STORE_GUARD_EXPIRED), SBX_OK);

    /* BUSY is never idle, however old its activity is (case 15) */
    s = world_ready(w);
    struct store_execution_new e = world_execution(w, &s);
    OK(store_execution_begin(w->db, &e, w->a, &s, &err));
    shift(w, &s, "last_active_at");
    assert_int_equal(guarded(w, &s, STORE_GUARD_IDLE), SBX_E_CHANGING);

    /* SUSPENDED is not idle either, and its own retention counts from the suspension (case 17) */
    s = world_ready(w);
    s = world_move(w, &s, SANDBOX_SUSPENDING);
    s = world_move(w, &s, SANDBOX_SUSPENDED);
    shift(w, &s, "last_active_at");
    assert_int_equal(guarded(w, &s, STORE_GUARD_RETENTION), SBX_E_CHANGING);
    world_sql(w, arena_printf(w->a,
                              "UPDATE sandboxd.sandboxes SET suspended_at = now() - "
                              "interval '8 days' WHERE sandbox_id = '%s'",
                              s.sandbox_id));
    assert_int_equal(guarded(w, &s, STORE_GUARD_RETENTION), SBX_OK);

    s = world_create(w);
    struct store_move m = world_move_in(&s, SANDBOX_ALLOCATING);
    m.deadline_in_ms = 60000;
    OK(store_sandbox_move(w->db, &m, w->a, &s, &err));
    assert_int_equal(s.deadline_at_ms, s.status_since_ms + 60000);
    assert_int_equal(s.next_action_at_ms, s.deadline_at_ms);
    assert_int_equal(guarded(w, &s, STORE_GUARD_DEADLINE), SBX_E_CHANGING);
    shift(w, &s, "deadline_at");
    assert_int_equal(guarded(w, &s, STORE_GUARD_DEADLINE), SBX_OK);
}

static void what_a_pause_reports_is_kept(void **state)
{
    struct world *w = *state;
    world_fresh(w);
    struct store_sandbox s = world_ready(w);
    struct store_pause pause = { .exclude = "[\"*.log\"]", .max_mb = 7, .force = true };
    struct store_move m = world_move_in(&s, SANDBOX_SUSPENDING);
    m.pause = &pause;
    m.desired_op = STORE_SET;
    m.desired = SANDBOX_SUSPENDED;
    m.operation_id = "op-1";
    OK(store_sandbox_move(w->db, &m, w->a, &s, &err));
    assert_string_equal(s.pause.exclude, "[\"*.log\"]");
    assert_int_equal(s.pause.max_mb, 7);
    assert_true(s.pause.force);
    assert_int_equal(s.desired, SANDBOX_SUSPENDED);
    assert_string_equal(s.operation_id, "op-1");

    /* terminate in SUSPENDING: wanted, not done; and due as soon as the pause has settled */
    FAILS(SBX_E_CHANGING, store_sandbox_desire(w->db, s.sandbox_id, SANDBOX_BIT(SANDBOX_READY),
                                               SANDBOX_TERMINATED, SANDBOX_END_NONE, &err));
    OK(store_sandbox_desire(w->db, s.sandbox_id, SANDBOX_BIT(SANDBOX_SUSPENDING),
                            SANDBOX_TERMINATED, SANDBOX_END_USER_REQUESTED, &err));
    struct store_persistence p = { .mount_path = "/workspace/persist",
                                   .last_snapshot_at_ms = 1789000000123,
                                   .last_snapshot_bytes = 5242880 };
    m = world_move_in(&s, SANDBOX_SUSPENDED);
    m.persistence = &p;
    OK(store_sandbox_move(w->db, &m, w->a, &s, &err));
    assert_int_equal(s.persistence.last_snapshot_at_ms, 1789000000123);
    assert_int_equal(s.persistence.last_snapshot_bytes, 5242880);
    assert_int_equal(s.desired, SANDBOX_TERMINATED);
    assert_true(s.next_action_at_ms <= s.now_ms);
    assert_false(s.holds_compute);
    p.restore_failed = true;
    p.last_snapshot_error = "no space";
    OK(store_sandbox_report(w->db, s.sandbox_id, s.generation, &p, &err));
    assert_true(world_get(w, s.sandbox_id).persistence.restore_failed);
    FAILS(SBX_E_CHANGING, store_sandbox_report(w->db, s.sandbox_id, s.generation + 1, &p, &err));
}

/* A pause that fails says why, and takes nothing of what is known of the good snapshot. */
static void a_failed_pause_keeps_the_good_snapshot(void **state)
{
    struct world *w = *state;
    world_fresh(w);
    struct store_sandbox s = world_ready(w);
    struct store_persistence known = { .mount_path = "/workspace/persist",
                                       .last_snapshot_at_ms = 1789000000123,
                                       .last_snapshot_bytes = 5242880,
                                       .restore_failed = true };
    struct store_persistence failed = { .last_snapshot_error = "no space" };
    struct store_persistence taken = { .last_snapshot_at_ms = 1789000009000,
                                       .last_snapshot_bytes = 7 };

    OK(store_sandbox_report(w->db, s.sandbox_id, s.generation, &known, &err));
    s = world_move(w, &s, SANDBOX_SUSPENDING);
    struct store_move m = world_move_in(&s, SANDBOX_READY);
    m.persistence = &failed;
    OK(store_sandbox_move(w->db, &m, w->a, &s, &err));
    assert_string_equal(s.persistence.last_snapshot_error, "no space");
    assert_string_equal(s.persistence.mount_path, "/workspace/persist");
    assert_int_equal(s.persistence.last_snapshot_at_ms, 1789000000123);
    assert_int_equal(s.persistence.last_snapshot_bytes, 5242880);
    assert_true(s.persistence.restore_failed);

    s = world_move(w, &s, SANDBOX_SUSPENDING);
    m = world_move_in(&s, SANDBOX_SUSPENDED);
    m.persistence = &taken;
    OK(store_sandbox_move(w->db, &m, w->a, &s, &err));
    assert_null(s.persistence.last_snapshot_error);
    assert_string_equal(s.persistence.mount_path, "/workspace/persist");
    assert_int_equal(s.persistence.last_snapshot_at_ms, 1789000009000);
    assert_int_equal(s.persistence.last_snapshot_bytes, 7);
    assert_false(s.persistence.restore_failed);
}

/* case 13, the store's part: newest first, pages and cursor agree, and a failure is not a list */
static void lists_are_whole(void **state)
{
    struct world *w = *state;
    world_fresh(w);
    OK(store_account_quota(w->db, w->account.account_id, 1000, w->a, &w->account, &err));
    const char *ids[25];
    for (int i = 0; i < 25; i++)
        ids[i] = world_create(w).sandbox_id;
    struct store_sandbox_filter f = { .account_id = w->account.account_id,
                                      .statuses = SANDBOX_SET_ALL,
                                      .limit = 10,
                                      .want_total = true };
    struct store_sandboxes page;
    OK(store_sandbox_list(w->db, &f, w->a, &page, &err));
    assert_int_equal(page.total, 25);
    assert_int_equal(page.count, 10);
    assert_true(page.more);
    assert_string_equal(page.rows[0].sandbox_id, ids[24]);
    int seen = 0;
    f.want_total = false;
    for (bool more = true; more; more = page.more) {
        OK(store_sandbox_list(w->db, &f, w->a, &page, &err));
        for (size_t i = 0; i < page.count; i++)
            assert_string_equal(page.rows[i].sandbox_id, ids[24 - seen++]);
        assert_int_equal(page.total, -1);
        f.before_id = page.rows[page.count - 1].sandbox_id;
        f.before_ms = page.rows[page.count - 1].created_at_ms;
    }
    assert_int_equal(seen, 25);
    f = (struct store_sandbox_filter){
        .account_id = f.account_id, .statuses = SANDBOX_SET_ALL, .limit = 10, .offset = 20
    };
    OK(store_sandbox_list(w->db, &f, w->a, &page, &err));
    assert_int_equal(page.count, 5);
    assert_false(page.more);
    f.statuses = SANDBOX_BIT(SANDBOX_READY);
    f.offset = 0;
    f.want_total = true;
    OK(store_sandbox_list(w->db, &f, w->a, &page, &err));
    assert_int_equal(page.total, 0);
    f.statuses = 0;
    OK(store_sandbox_list(w->db, &f, w->a, &page, &err));
    assert_int_equal(page.count, 0);
    f.statuses = SANDBOX_SET_ALL;
    f.app_id = "other";
    OK(store_sandbox_list(w->db, &f, w->a, &page, &err));
    assert_int_equal(page.total, 0);

    OK(store_sandbox_list_ids(w->db, ids, 25, w->a, &page, &err));
    assert_int_equal(page.count, 25);
    OK(store_sandbox_list_held(w->db, w->region, ids[20], 10, w->a, &page, &err));
    assert_int_equal(page.count, 4);
    f = (struct store_sandbox_filter){ .statuses = SANDBOX_SET_ALL, .limit = 5 };
    OK(store_sandbox_list(w->db, &f, w->a, &page, &err));
    assert_string_equal(page.rows[0].sandbox_id, ids[24]);
    assert_true(page.more);

    FAILS(SBX_E_NOT_FOUND, store_sandbox_get(w->db, "other", ids[0], w->a, page.rows, &err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_change_adds_one_and_leaves_its_trace),
        cmocka_unit_test(a_move_that_lost_changes_nothing),
        cmocka_unit_test(of_many_at_once_one_wins),
        cmocka_unit_test(moves_in_a_batch_stand_alone),
        cmocka_unit_test(a_chain_happens_whole_or_not_at_all),
        cmocka_unit_test(execution_makes_busy_and_the_last_one_ready),
        cmocka_unit_test(a_status_that_takes_no_command_says_why),
        cmocka_unit_test(a_failed_pause_lands_where_it_was),
        cmocka_unit_test(executions_at_once_never_lose_count),
        cmocka_unit_test(idle_and_execute_at_once_have_one_winner),
        cmocka_unit_test(guards_ask_the_database_clock),
        cmocka_unit_test(what_a_pause_reports_is_kept),
        cmocka_unit_test(a_failed_pause_keeps_the_good_snapshot),
        cmocka_unit_test(lists_are_whole),
    };
    return cmocka_run_group_tests(tests, world_new, world_free);
}
