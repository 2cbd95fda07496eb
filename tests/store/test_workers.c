#include "store/fixture.h"

#include <stdio.h>
#include <string.h>

#include "store/workers.h"

/* Streams, check-ins and the gate, on a real PostgreSQL. */

static const char *subject = "usr_01ARZ3NDEKTSV4RRFFQ69G5FAV";

static void make(struct world *w)
{
    struct store_stream row;
    struct store_user user;

    world_fresh(w);
    (void)world_sql(w, "DELETE FROM sandboxd.streams");
    (void)world_sql(w, "UPDATE sandboxd.users SET subject = NULL");
    OK(store_user_create(w->db, "worker-owner@example.test", NULL, w->a, &user, &err));
    (void)world_sql(w, "UPDATE sandboxd.users SET subject = 'usr_01ARZ3NDEKTSV4RRFFQ69G5FAV' "
                       "WHERE email = 'worker-owner@example.test'");
    OK(store_stream_create(w->db, "s1", user.user_id, w->a, &row, &err));
    OK(store_stream_of_user(w->db, "s1", user.user_id, &err));
    (void)world_sql(w, "UPDATE sandboxd.users SET email = 'x' || user_id WHERE email = "
                       "'worker-owner@example.test'");
}

static void a_stream_belongs_to_one_person(void **state)
{
    struct world *w = *state;
    struct store_stream row;

    make(w);
    OK(store_stream_of_subject(w->db, "s1", subject, &err));
    FAILS(SBX_E_STREAM_NOT_FOUND, store_stream_of_subject(w->db, "s2", subject, &err));
    FAILS(SBX_E_STREAM_NOT_FOUND,
          store_stream_of_subject(w->db, "s1", "usr_7ZZZZZZZZZZZZZZZZZZZZZZZZZ", &err));
    FAILS(SBX_E_STREAM_NOT_FOUND, store_stream_of_user(w->db, "s1", w->user.user_id, &err));
    FAILS(SBX_E_CONFLICT, store_stream_create(w->db, "s1", w->user.user_id, w->a, &row, &err));
    FAILS(SBX_E_NOT_FOUND,
          store_stream_create(w->db, "s3", "00000000000000000000000000", w->a, &row, &err));
    OK(store_stream_remove(w->db, "s1", &err));
    FAILS(SBX_E_NOT_FOUND, store_stream_remove(w->db, "s1", &err));
}

static void a_check_in_makes_then_refreshes(void **state)
{
    struct world *w = *state;
    struct store_worker first, again;
    bool fresh = false;

    make(w);
    OK(store_worker_check_in(w->db, "s1", "w1", "1", w->a, &first, &fresh, &err));
    assert_true(fresh);
    (void)world_sql(w,
                    "UPDATE sandboxd.workers SET registered_at = registered_at - interval '1 h', "
                    "last_check_in_at = last_check_in_at - interval '1 h'");
    OK(store_worker_check_in(w->db, "s1", "w1", NULL, w->a, &again, &fresh, &err));
    assert_false(fresh);
    assert_int_equal(again.registered_at_ms, first.registered_at_ms - 3600000);
    assert_true(again.last_check_in_at_ms >= first.last_check_in_at_ms);
    assert_null(again.version);
    FAILS(SBX_E_NOT_FOUND,
          store_worker_check_in(w->db, "no", "w1", NULL, w->a, &again, &fresh, &err));
}

static void the_gate_is_open_only_with_a_healthy_worker(void **state)
{
    struct world *w = *state;
    struct store_worker row;
    struct store_config nowhere = { .url = "host=/nonexistent dbname=x",
                                    .connect_timeout_ms = 300 };
    struct store_conn *away = store_conn_new(&nowhere, "away");
    bool fresh;

    make(w);
    assert_false(store_worker_gate(w->db, "s1"));
    assert_false(store_worker_gate(w->db, "no-such"));
    OK(store_worker_check_in(w->db, "s1", "w1", NULL, w->a, &row, &fresh, &err));
    assert_true(store_worker_gate(w->db, "s1"));
    (void)world_sql(w, "UPDATE sandboxd.workers SET last_check_in_at = last_check_in_at - "
                       "interval '61 s'");
    assert_false(store_worker_gate(w->db, "s1"));
    OK(store_worker_check_in(w->db, "s1", "w2", NULL, w->a, &row, &fresh, &err));
    assert_true(store_worker_gate(w->db, "s1")); /* one of two is enough */
    (void)world_sql(w, "UPDATE sandboxd.workers SET last_check_in_at = now() + interval '1 h'");
    assert_false(store_worker_gate(w->db, "s1")); /* a time in the future */
    assert_false(store_worker_gate(away, "s1"));  /* cannot be found out */
    store_conn_free(away);
}

static void only_the_latest_workers_are_kept(void **state)
{
    struct world *w = *state;
    struct store_workers rows;
    struct store_worker row;
    char name[16];
    bool fresh;

    make(w);
    for (int i = 0; i < STORE_WORKERS_MAX + 5; i++) {
        (void)snprintf(name, sizeof(name), "w%03d", i);
        OK(store_worker_check_in(w->db, "s1", name, NULL, w->a, &row, &fresh, &err));
        (void)world_sql(w, "UPDATE sandboxd.workers SET last_check_in_at = last_check_in_at - "
                           "interval '1 s'");
    }
    OK(store_worker_list(w->db, "s1", w->a, &rows, &err));
    assert_int_equal(rows.count, STORE_WORKERS_MAX);
    assert_string_equal(rows.rows[0].worker_id, "w005");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_belongs_to_one_person),
        cmocka_unit_test(a_check_in_makes_then_refreshes),
        cmocka_unit_test(the_gate_is_open_only_with_a_healthy_worker),
        cmocka_unit_test(only_the_latest_workers_are_kept),
    };
    return cmocka_run_group_tests(tests, world_new, world_free);
}
