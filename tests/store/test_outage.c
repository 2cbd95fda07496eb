/* PostgreSQL away, slow, restarted; connections broken in mid-transaction; notices (case 44). */

#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/time.h"
#include "store/fixture.h"

extern char **environ;

static void pg(const char *verb)
{
    char script[] = TEST_PG_SH;
    char *argv[] = { (char[]){ "sh" }, script, strdup(verb), getenv("SBX_TEST_PG_DIR"), NULL };
    pid_t pid;
    int status = -1;

    assert_int_equal(posix_spawnp(&pid, "sh", NULL, NULL, argv, environ), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    free(argv[2]);
}

static void a_connection_lost_while_idle_costs_nothing(void **state)
{
    struct world *w = *state;
    struct store_account a;

    world_kill(w, "test");
    OK(store_account_create(w->db, "a write", w->a, &a, &err)); /* found dead before it was sent */
    world_kill(w, "test");
    OK(store_account_get(w->db, a.account_id, w->a, &a, &err));
}

struct cut {
    struct world *w;
    struct store_account account;
    bool at_end;
};

static enum sbx_code cut_tx(struct store_conn *db, void *arg, struct sbx_err *err)
{
    struct cut *c = arg;
    enum sbx_code code = store_account_create(db, "half", c->w->a, &c->account, err);

    if (code != SBX_OK)
        return code;
    world_kill(c->w, "test");
    if (c->at_end)
        return SBX_OK; /* the COMMIT meets the dead connection */
    return store_account_get(db, c->account.account_id, c->w->a, &c->account, err);
}

static void a_connection_lost_in_mid_transaction_leaves_nothing(void **state)
{
    struct world *w = *state;
    struct cut c = { .w = w };

    FAILS(SBX_E_UNAVAILABLE, store_tx(w->db, cut_tx, &c, &err));
    FAILS(SBX_E_NOT_FOUND, store_account_get(w->db, c.account.account_id, w->a, &c.account, &err));
    c.at_end = true;
    FAILS(SBX_E_UNAVAILABLE, store_tx(w->db, cut_tx, &c, &err));
    FAILS(SBX_E_NOT_FOUND, store_account_get(w->db, c.account.account_id, w->a, &c.account, &err));
}

/* A create that waits for the account's lock when its backend dies: nothing was made, and the
 * repeat makes one. */
static void a_create_cut_off_in_the_middle_makes_one_when_repeated(void **state)
{
    struct world *w = *state;
    world_fresh(w);
    struct store_sandbox_new in = world_create_in(w, NULL);
    struct store_created out;
    pthread_t killer;

    world_sql(w, "BEGIN");
    world_sql(w, arena_printf(w->a,
                              "SELECT 1 FROM sandboxd.accounts WHERE account_id = '%s' FOR UPDATE",
                              in.account_id));
    assert_int_equal(pthread_create(&killer, NULL, world_kill_when_waiting, w), 0);
    /* The store repeats it by itself, since a repeat is harmless: one sandbox, and it is ours. */
    OK(store_sandbox_create(w->db, &in, w->a, &out, &err));
    pthread_join(killer, NULL);
    assert_true(out.was_created);
    int64_t active;
    OK(store_sandbox_count_active(w->db, in.account_id, &active, &err));
    assert_int_equal(active, 1);
}

static void a_slow_database_is_unavailable_in_time(void **state)
{
    struct world *w = *state;
    struct store_template t;
    struct store_template_save in = { .account_id = w->account.account_id,
                                      .template_id = w->template.template_id,
                                      .name = "Late",
                                      .enabled = -1,
                                      .deprecated = -1 };
    bool created;

    world_sql(w, "BEGIN");
    world_sql(w, "LOCK TABLE sandboxd.templates");
    int64_t start = time_mono_ms();
    FAILS(SBX_E_UNAVAILABLE, store_template_save(w->db, &in, w->a, &t, &created, &err));
    assert_in_range(time_mono_ms() - start, 1000, 2000);
    /* a budget is kept too, whatever the statement's own limit */
    store_conn_budget(w->db, 300);
    start = time_mono_ms();
    FAILS(SBX_E_UNAVAILABLE, store_template_save(w->db, &in, w->a, &t, &created, &err));
    assert_in_range(time_mono_ms() - start, 200, 1000);
    store_conn_budget(w->db, 0);
    world_sql(w, "ROLLBACK");
    OK(store_template_save(w->db, &in, w->a, &t, &created, &err));
}

/* A conflict between transactions is tried again. */
struct swap {
    struct world *w;
    const char *id[2];
    int tries;
};

static enum sbx_code lock_both(struct store_conn *db, void *arg, struct sbx_err *err)
{
    struct swap *s = arg;
    struct store_account a;
    enum sbx_code code;

    s->tries++;
    code = store_account_quota(db, s->id[0], 5, s->w->a, &a, err);
    if (code == SBX_OK && s->tries == 1)
        (void)poll(NULL, 0, 50);
    if (code == SBX_OK)
        code = store_account_quota(db, s->id[1], 5, s->w->a, &a, err);
    return code;
}

static void lock_across(int i, struct store_conn *db, void *arg)
{
    const struct swap *both = arg;
    SCOPED_ARENA struct arena *a = arena_new();
    struct world w = { .a = a };
    struct swap mine = { .w = &w, .id = { both->id[i], both->id[1 - i] } };

    OK(store_tx(db, lock_both, &mine, &err));
}

static void a_deadlock_is_tried_again(void **state)
{
    struct world *w = *state;
    struct store_account a, b;

    OK(store_account_create(w->db, "a", w->a, &a, &err));
    OK(store_account_create(w->db, "b", w->a, &b, &err));
    struct swap s = { .w = w, .id = { a.account_id, b.account_id } };
    world_together(w, 2, lock_across, &s);
    assert_string_not_equal(world_sql(w, "SELECT deadlocks FROM pg_stat_database "
                                         "WHERE datname = current_database()"),
                            "");
}

struct heard {
    int up, down, wake, revoked;
    char token[ID_SIZE];
};

static void hear(void *arg, const struct store_notice *n)
{
    struct heard *h = arg;

    h->up += n->kind == STORE_NOTICE_UP;
    h->down += n->kind == STORE_NOTICE_DOWN;
    h->wake += n->kind == STORE_NOTICE_WAKE;
    if (n->kind == STORE_NOTICE_REVOKED) {
        h->revoked++;
        snprintf(h->token, sizeof(h->token), "%s", n->payload);
    }
}

/* Pumps until *counter reaches n; milliseconds it took. */
static int64_t pump_until(struct store_listener *l, struct heard *h, const int *counter, int n)
{
    int64_t start = time_mono_ms();

    while (*counter < n) {
        struct pollfd fd = { .fd = store_listener_fd(l), .events = store_listener_events(l) };
        (void)poll(&fd, 1, 100);
        store_listener_pump(l, hear, h);
        if (time_mono_ms() - start > 20000)
            fail_msg("not heard: up %d down %d wake %d revoked %d", h->up, h->down, h->wake,
                     h->revoked);
    }
    return time_mono_ms() - start;
}

static void revocation_and_wake_ups_are_heard(void **state)
{
    struct world *w = *state;
    struct store_listener *l = store_listener_new(&w->cfg);
    struct store_waker *waker;
    struct heard h = { 0 };
    unsigned char digest[SHA256_LEN] = { 1 };
    struct store_token t;

    pump_until(l, &h, &h.up, 1);
    assert_true(store_listener_up(l));
    struct store_token_new in = { .kind = STORE_TOKEN_USER, .user_id = w->user.user_id };
    OK(store_token_create(w->db, &in, digest, w->a, &t, &err));
    OK(store_token_revoke(w->db, t.token_id, w->a, &t, &err));
    assert_in_range(pump_until(l, &h, &h.revoked, 1), 0, 1000); /* contract 1: within 1 s */
    assert_string_equal(h.token, t.token_id);

    OK(store_waker_start(&w->cfg, &waker, &err));
    for (int i = 0; i < 1000; i++)
        store_waker_kick(waker);
    pump_until(l, &h, &h.wake, 1);
    assert_true(h.wake < 100); /* a thousand kicks, few notices */
    int before = h.wake;
    (void)poll(NULL, 0, 20);
    store_waker_kick(waker);
    pump_until(l, &h, &h.wake, before + 1);

    world_kill(w, "sandboxd listen");
    pump_until(l, &h, &h.down, 1);
    assert_false(store_listener_up(l));
    pump_until(l, &h, &h.up, 2);
    store_waker_stop(waker);
    store_listener_free(l);
}

static void a_pool_gives_and_takes(void **state)
{
    struct world *w = *state;
    struct store_pool *pool = store_pool_new(&w->cfg, "pool", 2);
    struct store_conn *a, *b, *c;

    OK(store_pool_take(pool, 0, &a, &err));
    OK(store_pool_take(pool, 0, &b, &err));
    FAILS(SBX_E_BUSY, store_pool_take(pool, 20, &c, &err));
    store_pool_give(pool, b);
    OK(store_pool_take(pool, 0, &c, &err));
    assert_ptr_equal(b, c);
    store_pool_give(pool, a);
    store_pool_give(pool, c);
    store_pool_free(pool);
}

/* case 44: stopped, then back; every call fails within 2 s, and the same connection recovers. */
static void a_stopped_server_is_unavailable_until_it_is_back(void **state)
{
    struct world *w = *state;
    struct store_account a;
    struct store_sandbox_new in;
    struct store_created out;
    struct store_sandboxes list;
    struct store_sandbox_filter f = { .statuses = SANDBOX_SET_ALL, .limit = 10 };

    world_fresh(w);
    in = world_create_in(w, NULL);
    f.account_id = w->account.account_id;
    PQfinish(w->raw);
    w->raw = NULL;
    pg("crash");
    int64_t start = time_mono_ms();
    FAILS(SBX_E_UNAVAILABLE, store_sandbox_create(w->db, &in, w->a, &out, &err));
    assert_in_range(time_mono_ms() - start, 0, 2000);
    FAILS(SBX_E_UNAVAILABLE, store_sandbox_list(w->db, &f, w->a, &list, &err)); /* case 13 */
    assert_string_not_equal(store_conn_trouble(w->db), "");
    start = time_mono_ms();
    for (int i = 0; i < 50; i++)
        FAILS(SBX_E_UNAVAILABLE, store_account_get(w->db, "x", w->a, &a, &err));
    assert_in_range(time_mono_ms() - start, 0, 2000);
    pg("start");
    struct sbx_err last = { .code = SBX_E_UNAVAILABLE };
    for (int i = 0; i < 100 && last.code != SBX_OK; i++) {
        last = (struct sbx_err){ 0 };
        if (store_sandbox_create(w->db, &in, w->a, &out, &last) != SBX_OK)
            (void)poll(NULL, 0, 50);
    }
    if (last.code != SBX_OK)
        fail_msg("still %s: %s", sbx_code_name(last.code), last.msg);
    assert_true(out.was_created);
    OK(store_sandbox_list(w->db, &f, w->a, &list, &err));
    assert_int_equal(list.count, 1);
    w->raw = PQconnectdb(w->url);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_lost_while_idle_costs_nothing),
        cmocka_unit_test(a_connection_lost_in_mid_transaction_leaves_nothing),
        cmocka_unit_test(a_create_cut_off_in_the_middle_makes_one_when_repeated),
        cmocka_unit_test(a_slow_database_is_unavailable_in_time),
        cmocka_unit_test(a_deadlock_is_tried_again),
        cmocka_unit_test(revocation_and_wake_ups_are_heard),
        cmocka_unit_test(a_pool_gives_and_takes),
        cmocka_unit_test(a_stopped_server_is_unavailable_until_it_is_back),
    };
    return cmocka_run_group_tests(tests, world_new_quick, world_free);
}
