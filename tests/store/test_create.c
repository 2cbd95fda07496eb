/* Create: contract 3, cases 11 and 38. */

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "store/fixture.h"

static void a_create_gives_the_whole_row(void **state)
{
    struct world *w = *state;
    world_fresh(w);
    struct store_sandbox_new in = world_create_in(w, NULL);
    struct store_created out;

    in.owner_id = "own\xc3\xa9r \"'\\ ";
    in.external_session_id = "ext";
    OK(store_sandbox_create(w->db, &in, w->a, &out, &err));
    const struct store_sandbox *s = &out.sandbox;
    assert_true(out.was_created);
    assert_int_equal(out.quota_active, 1);
    assert_string_equal(s->sandbox_id, in.sandbox_id);
    assert_string_equal(s->owner_id, in.owner_id);
    assert_string_equal(s->external_session_id, "ext");
    assert_string_equal(s->revision_id, w->revision.revision_id);
    assert_int_equal(s->revision, 1);
    assert_int_equal(s->status, SANDBOX_REQUESTED);
    assert_int_equal(s->desired, SANDBOX_STATUS_NONE);
    assert_int_equal(s->generation, 0);
    assert_int_equal(s->persistence_mode, SANDBOX_PERSISTENCE_EPHEMERAL);
    assert_null(s->volume_name);
    assert_true(s->holds_compute);
    assert_int_equal(s->expires_at_ms - s->created_at_ms, 3600 * 1000);
    assert_string_equal(s->request_id, "request-1");
    assert_true(s->next_action_at_ms <= s->now_ms);
    assert_int_equal(s->terminated_at_ms, 0);

    struct store_sandbox again = world_get(w, in.sandbox_id);
    assert_int_equal(again.created_at_ms, s->created_at_ms);
}

static void a_repeat_finds_it_whatever_became_of_the_rest(void **state)
{
    struct world *w = *state;
    world_fresh(w);
    struct store_sandbox_new in = world_create_in(w, "conversation-42-turn-7");
    struct store_created first, out;
    OK(store_sandbox_create(w->db, &in, w->a, &first, &err));
    struct store_sandbox s = first.sandbox;
    s = world_move(w, &s, SANDBOX_FAILED);
    s = world_move(w, &s, SANDBOX_TERMINATING);
    s = world_move(w, &s, SANDBOX_TERMINATED);

    struct store_template_save off = { .account_id = in.account_id,
                                       .template_id = in.template_id,
                                       .name = "Tiny",
                                       .enabled = 0,
                                       .deprecated = 1 };
    bool created;
    OK(store_template_save(w->db, &off, w->a, &w->template, &created, &err));
    OK(store_account_quota(w->db, in.account_id, 0, w->a, &w->account, &err));
    in = world_create_in(w, "conversation-42-turn-7");
    in.region = "nowhere";
    in.template_id = "gone";
    in.persistence_mode = SANDBOX_PERSISTENCE_BOTH;
    OK(store_sandbox_create(w->db, &in, w->a, &out, &err));
    assert_false(out.was_created);
    assert_string_equal(out.sandbox.sandbox_id, first.sandbox.sandbox_id);
    assert_int_equal(out.sandbox.status, SANDBOX_TERMINATED);
}

/* The same call twice with one id, as after a lost answer, is still ours. */
static void a_repeat_with_its_own_id_was_created(void **state)
{
    struct world *w = *state;
    world_fresh(w);
    struct store_sandbox_new in = world_create_in(w, NULL);
    struct store_created out;

    OK(store_sandbox_create(w->db, &in, w->a, &out, &err));
    OK(store_sandbox_create(w->db, &in, w->a, &out, &err));
    assert_true(out.was_created);
}

static void another_caller_app_or_account_is_another_key(void **state)
{
    struct world *w = *state;
    world_fresh(w);
    struct store_sandbox_new in = world_create_in(w, "k");
    struct store_created a, b;
    OK(store_sandbox_create(w->db, &in, w->a, &a, &err));
    in = world_create_in(w, "k");
    in.caller_key = "user:other";
    OK(store_sandbox_create(w->db, &in, w->a, &b, &err));
    assert_string_not_equal(a.sandbox.sandbox_id, b.sandbox.sandbox_id);
    struct store_app app;
    OK(store_app_create(w->db, w->account.account_id, "two", w->a, &app, &err));
    in = world_create_in(w, "k");
    in.app_id = app.app_id;
    OK(store_sandbox_create(w->db, &in, w->a, &b, &err));
    assert_true(b.was_created);
}

static void the_key_is_nowhere(void **state)
{
    struct world *w = *state;
    world_fresh(w);
    struct store_sandbox_new in = world_create_in(w, "needle-4711");
    struct store_created out;
    OK(store_sandbox_create(w->db, &in, w->a, &out, &err));
    assert_string_equal(world_sql(w, "SELECT count(*) FROM sandboxd.sandboxes s "
                                     "WHERE s::text LIKE '%needle-4711%'"),
                        "0");
    assert_string_equal(world_sql(w, "SELECT count(*) FROM sandboxd.sandbox_events s "
                                     "WHERE s::text LIKE '%needle-4711%'"),
                        "0");
}

static enum sbx_code try(struct world *w, const struct store_sandbox_new *in, struct sbx_err *err)
{
    struct store_created out;

    return store_sandbox_create(w->db, in, w->a, &out, err);
}

static void each_refusal_has_its_code_and_writes_nothing(void **state)
{
    struct world *w = *state;
    world_fresh(w);
    const char *account = w->account.account_id;
    struct store_region r;
    struct store_template t;
    bool created;
#define REFUSED(want, change)                                                                      \
    do {                                                                                           \
        struct store_sandbox_new in = world_create_in(w, NULL);                                    \
        change;                                                                                    \
        FAILS(want, try(w, &in, &err));                                                            \
    } while (0)
    REFUSED(SBX_E_NOT_FOUND, in.app_id = "nope");
    REFUSED(SBX_E_NOT_FOUND, in.template_id = "nope");
    REFUSED(SBX_E_NOT_FOUND, in.account_id = "nope");
    REFUSED(SBX_E_REGION_UNKNOWN, in.region = "nope");
    REFUSED(SBX_E_INVALID, in.volume_name = "v");
    REFUSED(SBX_E_NO_STORAGE_BACKEND, in.persistence_mode = SANDBOX_PERSISTENCE_DIRECTORY);
    REFUSED(SBX_E_NOT_FOUND,
            (in.persistence_mode = SANDBOX_PERSISTENCE_BOTH, in.volume_name = "nope"));

    OK(store_region_deny(w->db, account, w->region, &err));
    REFUSED(SBX_E_REGION_FORBIDDEN, (void)0);
    OK(store_region_grant(w->db, account, w->region, &err));
    OK(store_region_addon(w->db, w->region, false, w->a, &r, &err));
    REFUSED(SBX_E_REGION_NO_SANDBOXES, (void)0);
    OK(store_region_addon(w->db, w->region, true, w->a, &r, &err));
    OK(store_region_enable(w->db, w->region, false, w->a, &r, &err));
    REFUSED(SBX_E_REGION_DISABLED, (void)0);
    OK(store_region_enable(w->db, w->region, true, w->a, &r, &err));

    struct store_template_save save = { .account_id = account,
                                        .template_id = w->template.template_id,
                                        .name = "Tiny",
                                        .enabled = 0,
                                        .deprecated = -1 };
    OK(store_template_save(w->db, &save, w->a, &t, &created, &err));
    REFUSED(SBX_E_TEMPLATE_DISABLED, (void)0);
    save.enabled = 1;
    save.deprecated = 1;
    OK(store_template_save(w->db, &save, w->a, &t, &created, &err));
    REFUSED(SBX_E_TEMPLATE_DEPRECATED, (void)0);

    struct store_app other;
    OK(store_app_create(w->db, account, "other", w->a, &other, &err));
    struct store_template_save fresh = { .account_id = account,
                                         .app_id = other.app_id,
                                         .name = "Other",
                                         .slug_base = "other",
                                         .enabled = -1,
                                         .deprecated = -1 };
    OK(store_template_save(w->db, &fresh, w->a, &t, &created, &err));
    REFUSED(SBX_E_TEMPLATE_OTHER_APP, in.template_id = t.template_id);
    REFUSED(SBX_E_TEMPLATE_NO_REVISION, (in.template_id = t.template_id, in.app_id = other.app_id));
#undef REFUSED
    int64_t active;
    OK(store_sandbox_count_active(w->db, account, &active, &err));
    assert_int_equal(active, 0);
}

static void a_volume_mode_is_refused_on_a_warm_pool(void **state)
{
    struct world *w = *state;
    world_fresh(w);
    struct store_revision rev = world_revision(w);
    rev.warm_pool = true;
    OK(store_revision_create(w->db, &rev, w->a, &w->revision, &err));
    struct store_sandbox_new in = world_create_in(w, NULL);
    in.persistence_mode = SANDBOX_PERSISTENCE_SNAPSHOT;
    struct sbx_err err = { 0 };
    assert_int_equal(try(w, &in, &err), SBX_E_INVALID);
    assert_string_equal(err.msg, "persistence modes with a volume are not available on warm pools");
}

static void volumes_are_made_or_taken(void **state)
{
    struct world *w = *state;
    world_fresh(w);
    const char *account = w->account.account_id;
    char id[ID_SIZE];
    id_new(id);
    struct store_backend backend = {
        .backend_id = id, .account_id = account, .region = w->region, .kind = "dir", .path = "/srv"
    };
    OK(store_backend_create(w->db, &backend, w->a, &backend, &err));
    struct store_sandbox_new in = world_create_in(w, NULL);
    in.persistence_mode = SANDBOX_PERSISTENCE_BOTH;
    struct store_created out;
    OK(store_sandbox_create(w->db, &in, w->a, &out, &err));
    const char *made = arena_printf(w->a, "sbvol-%s", in.sandbox_id);
    assert_string_equal(out.sandbox.volume_name, made);
    struct store_volume v;
    OK(store_volume_get(w->db, account, w->region, made, w->a, &v, &err));
    assert_int_equal(v.size_mb, 10240);
    assert_false(v.pending_purge);

    FAILS(SBX_E_VOLUME_IN_USE,
          store_volume_remove(w->db, account, w->region, made, 1000, w->a, &v, &err));
    OK(store_volume_create(w->db, account, w->region, "mine", 5, w->a, &v, &err));
    FAILS(SBX_E_VOLUME_EXISTS,
          store_volume_create(w->db, account, w->region, "mine", 5, w->a, &v, &err));
    OK(store_volume_remove(w->db, account, w->region, "mine", 60000, w->a, &v, &err));
    assert_true(v.pending_purge);
    struct store_sandbox_new second = world_create_in(w, NULL);
    second.persistence_mode = SANDBOX_PERSISTENCE_DIRECTORY;
    second.volume_name = "mine";
    FAILS(SBX_E_VOLUME_PENDING_PURGE, try(w, &second, &err));
    OK(store_volume_restore(w->db, account, w->region, "mine", w->a, &v, &err));
    OK(store_sandbox_create(w->db, &second, w->a, &out, &err));
    assert_string_equal(out.sandbox.volume_name, "mine");

    struct store_sandbox s = out.sandbox;
    bool held = false;
    OK(store_volume_held(w->db, account, w->region, "mine", &held, &err));
    assert_true(held);
    OK(store_volume_held(w->db, s.sandbox_id, w->region, "mine", &held, &err));
    assert_false(held); /* no account of that id */
    s = world_move(w, &s, SANDBOX_FAILED);
    s = world_move(w, &s, SANDBOX_TERMINATING);
    world_move(w, &s, SANDBOX_TERMINATED);
    OK(store_volume_held(w->db, account, w->region, "mine", &held, &err));
    assert_false(held);
    OK(store_volume_remove(w->db, account, w->region, "mine", 1, w->a, &v, &err));
    struct store_volumes due = { 0 };
    for (int i = 0; i < 100 && due.count == 0; i++)
        OK(store_volume_claim_purge(w->db, "me", 60000, 10, w->a, &due, &err));
    assert_int_equal(due.count, 1);
    FAILS(SBX_E_CONFLICT, store_volume_restore(w->db, account, w->region, "mine", w->a, &v, &err));
    OK(store_volume_claim_purge(w->db, "other", 60000, 10, w->a, &due, &err));
    assert_int_equal(due.count, 0);
    OK(store_volume_purged(w->db, account, w->region, "mine", &err));
    FAILS(SBX_E_NOT_FOUND, store_volume_get(w->db, account, w->region, "mine", w->a, &v, &err));
}

struct race {
    struct world *w;
    const char *key;
    struct store_sandbox_new *in;
    enum sbx_code code[64];
    bool created[64];
    char id[64][ID_SIZE];
    char warm[64][ID_SIZE];
};

static void race_create(int i, struct store_conn *db, void *arg)
{
    struct race *r = arg;
    SCOPED_ARENA struct arena *a = arena_new();
    struct store_created out;
    struct sbx_err err = { 0 };

    r->code[i] = store_sandbox_create(db, &r->in[i], a, &out, &err);
    if (r->code[i] == SBX_OK) {
        r->created[i] = out.was_created;
        snprintf(r->id[i], ID_SIZE, "%s", out.sandbox.sandbox_id);
        if (out.sandbox.warm_id)
            snprintf(r->warm[i], ID_SIZE, "%s", out.sandbox.warm_id);
    }
}

static void race_in(struct race *r, struct world *w, int n, const char *key)
{
    memset(r, 0, sizeof(*r));
    r->in = arena_zalloc(w->a, (size_t)n * sizeof(*r->in));
    for (int i = 0; i < n; i++)
        r->in[i] = world_create_in(w, key);
}

/* case 11: 50 creates at once with one key make one sandbox */
static void fifty_creates_of_one_key_make_one(void **state)
{
    struct world *w = *state;
    world_fresh(w);
    struct race r;
    int created = 0;

    race_in(&r, w, 50, "one");
    world_together(w, 50, race_create, &r);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(r.code[i], SBX_OK);
        assert_string_equal(r.id[i], r.id[0]);
        created += r.created[i];
    }
    assert_int_equal(created, 1);
}

/* case 38: limit 2, 20 creates at once: two places, never a third */
static void the_quota_holds_under_twenty_at_once(void **state)
{
    struct world *w = *state;
    world_fresh(w);
    struct race r;
    int made = 0, refused = 0;

    OK(store_account_quota(w->db, w->account.account_id, 2, w->a, &w->account, &err));
    race_in(&r, w, 20, NULL);
    world_together(w, 20, race_create, &r);
    for (int i = 0; i < 20; i++) {
        made += r.code[i] == SBX_OK;
        refused += r.code[i] == SBX_E_QUOTA;
    }
    assert_int_equal(made, 2);
    assert_int_equal(refused, 18);

    /* a refusal says how full it is; a place comes free with the compute, not with the status */
    struct store_sandbox_new in = world_create_in(w, NULL);
    struct store_created out = { 0 };
    FAILS(SBX_E_QUOTA, store_sandbox_create(w->db, &in, w->a, &out, &err));
    assert_int_equal(out.quota_limit, 2);
    assert_int_equal(out.quota_active, 2);
    struct store_sandbox s = { 0 };
    for (int i = 0; i < 20 && !s.sandbox_id; i++) {
        if (r.code[i] == SBX_OK)
            s = world_get(w, r.id[i]);
    }
    s = world_move(w, &s, SANDBOX_FAILED);
    FAILS(SBX_E_QUOTA, store_sandbox_create(w->db, &in, w->a, &out, &err));
    struct store_move gone = world_move_in(&s, SANDBOX_FAILED);
    gone.compute = STORE_CLEAR;
    OK(store_sandbox_move(w->db, &gone, w->a, &s, &err));
    assert_int_equal(s.generation, 1); /* no change of status, no new generation */
    OK(store_sandbox_create(w->db, &in, w->a, &out, &err));
}

/* case 38: resume is checked as create is; a suspended one is free */
static void resume_needs_a_place(void **state)
{
    struct world *w = *state;
    world_fresh(w);
    OK(store_account_quota(w->db, w->account.account_id, 1, w->a, &w->account, &err));
    struct store_sandbox s = world_ready(w);
    s = world_move(w, &s, SANDBOX_SUSPENDING);
    s = world_move(w, &s, SANDBOX_SUSPENDED);
    assert_true(s.suspended_at_ms > 0);
    struct store_sandbox other = world_ready(w);

    struct store_resume in = { .account_id = s.account_id,
                               .sandbox_id = s.sandbox_id,
                               .actor = w->caller,
                               .deadline_in_ms = 60000 };
    struct store_sandbox out;
    bool changed;
    int limit, active;
    FAILS(SBX_E_QUOTA,
          store_sandbox_resume(w->db, &in, w->a, &out, &changed, &limit, &active, &err));
    assert_int_equal(limit, 1);
    assert_int_equal(active, 1);
    other = world_move(w, &other, SANDBOX_TERMINATING);
    world_move(w, &other, SANDBOX_TERMINATED);
    OK(store_sandbox_resume(w->db, &in, w->a, &out, &changed, &limit, &active, &err));
    assert_true(changed);
    assert_int_equal(out.status, SANDBOX_RESUMING);
    assert_int_equal(out.generation, s.generation + 1);
    assert_true(out.holds_compute);
    OK(store_sandbox_resume(w->db, &in, w->a, &out, &changed, &limit, &active, &err));
    assert_false(changed);
    out = world_move(w, &out, SANDBOX_READY);
    assert_true(out.resumed_at_ms > 0);
    out = world_move(w, &out, SANDBOX_TERMINATING);
    FAILS(SBX_E_CONFLICT,
          store_sandbox_resume(w->db, &in, w->a, &out, &changed, &limit, &active, &err));
    in.account_id = "other";
    FAILS(SBX_E_NOT_FOUND,
          store_sandbox_resume(w->db, &in, w->a, &out, &changed, &limit, &active, &err));
}

/* case 35, the store's part: 20 creates at once, one warm member: exactly one takes it */
static void one_create_takes_a_warm_member(void **state)
{
    struct world *w = *state;
    world_fresh(w);
    struct store_revision rev = world_revision(w);
    rev.warm_pool = true;
    rev.warm_desired = rev.warm_min = 1;
    rev.warm_max = 2;
    rev.warm_regions = w->region;
    OK(store_revision_create(w->db, &rev, w->a, &w->revision, &err));
    struct store_warm_pools pools;
    OK(store_warm_pool_list(w->db, w->a, &pools, &err));
    assert_int_equal(pools.count, 1);
    assert_int_equal(pools.rows[0].desired, 1);
    struct store_warms added;
    OK(store_warm_add(w->db, &pools.rows[0], 5, 100, 60000, w->a, &added, &err));
    assert_int_equal(added.count, 2); /* max */
    OK(store_warm_add(w->db, &pools.rows[0], 5, 100, 60000, w->a, &added, &err));
    assert_int_equal(added.count, 0);
    struct store_warms all;
    OK(store_warm_list(w->db, w->region, NULL, 10, w->a, &all, &err));
    assert_int_equal(all.count, 2);
    OK(store_warm_set(w->db, all.rows[0].warm_id, STORE_WARM_READY, &err));

    struct race r;
    race_in(&r, w, 20, NULL);
    world_together(w, 20, race_create, &r);
    int warm = 0;
    for (int i = 0; i < 20; i++) {
        assert_int_equal(r.code[i], SBX_OK);
        warm += r.warm[i][0] != '\0';
    }
    assert_int_equal(warm, 1);
    FAILS(SBX_E_CHANGING, store_warm_set(w->db, all.rows[0].warm_id, STORE_WARM_READY, &err));
    /* The unclaimed one never counts. */
    int64_t active;
    OK(store_sandbox_count_active(w->db, w->account.account_id, &active, &err));
    assert_int_equal(active, 20);
    int drained;
    OK(store_warm_pool_list(w->db, w->a, &pools, &err));
    assert_int_equal(pools.rows[0].starting, 1);
    OK(store_warm_drain(w->db, &pools.rows[0], 9, &drained, &err));
    assert_int_equal(drained, 1);
    struct store_warms drain;
    OK(store_warm_claim_drain(w->db, "me", 60000, 10, w->a, &drain, &err));
    assert_int_equal(drain.count, 1);
    OK(store_warm_remove(w->db, drain.rows[0].warm_id, &err));
}

/* Its own index serves the look-up in a session whose plans were made when the table had no row,
 * and nothing has looked at it since. */
static void the_lookup_is_by_its_index_whatever_the_statistics(void **state)
{
    struct world *w = *state;
    struct store_conn *db;
    enum { CREATES = 20 };

    world_fresh(w);
    world_sql(w, "ALTER TABLE sandboxd.sandboxes SET (autovacuum_enabled = false)");
    world_sql(w, "DELETE FROM sandboxd.executions");
    world_sql(w, "DELETE FROM sandboxd.sandboxes");
    world_sql(w, "VACUUM ANALYZE sandboxd.sandboxes");
    world_sql(w, "SELECT pg_stat_reset()");
    db = store_conn_new(&w->cfg, "lookups");
    for (int i = 0; i < CREATES; i++) {
        struct store_sandbox_new in = world_create_in(w, NULL);
        struct store_created out;

        OK(store_sandbox_create(db, &in, w->a, &out, &err));
    }
    store_conn_free(db); /* with it its statistics are written */
    /* Two look-ups a create, since no key was there before; in one walk of a list there were more.
     */
    for (int i = 0; i < 500; i++) {
        if (strcmp(world_sql(w,
                             "SELECT (sum(idx_scan) >= 40)::text FROM pg_stat_user_indexes WHERE "
                             "indexrelname IN ('sandboxes_idempotency', 'sandboxes_list')"),
                   "true") == 0)
            break;
        (void)poll(NULL, 0, 10);
    }
    assert_string_equal(world_sql(w, "SELECT string_agg(indexrelname, ' ') FROM "
                                     "pg_stat_user_indexes WHERE idx_scan > 0 AND indexrelname IN "
                                     "('sandboxes_idempotency', 'sandboxes_list', "
                                     "'sandboxes_list_live', 'sandboxes_active')"),
                        "sandboxes_idempotency");
    assert_string_equal(world_sql(w, "SELECT seq_scan FROM pg_stat_user_tables "
                                     "WHERE relname = 'sandboxes'"),
                        "0");
}

/* Contract 3: without the index nothing is allocated, and the answer says so. Last: it breaks it.
 */
static void without_the_index_nothing_is_made(void **state)
{
    struct world *w = *state;
    world_fresh(w);
    struct store_sandbox_new in = world_create_in(w, NULL);
    struct store_schema schema;

    OK(store_schema_check(w->db, &schema, &err));
    assert_true(schema.idempotency_index);
    assert_int_equal(schema.have, schema.want);
    world_sql(w, "DROP INDEX sandboxd.sandboxes_idempotency");
    OK(store_schema_check(w->db, &schema, &err));
    assert_false(schema.idempotency_index);
    FAILS(SBX_E_IDEMPOTENCY_UNAVAILABLE, try(w, &in, &err));
    int64_t active;
    OK(store_sandbox_count_active(w->db, w->account.account_id, &active, &err));
    assert_int_equal(active, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_create_gives_the_whole_row),
        cmocka_unit_test(a_repeat_finds_it_whatever_became_of_the_rest),
        cmocka_unit_test(a_repeat_with_its_own_id_was_created),
        cmocka_unit_test(another_caller_app_or_account_is_another_key),
        cmocka_unit_test(the_key_is_nowhere),
        cmocka_unit_test(each_refusal_has_its_code_and_writes_nothing),
        cmocka_unit_test(a_volume_mode_is_refused_on_a_warm_pool),
        cmocka_unit_test(volumes_are_made_or_taken),
        cmocka_unit_test(fifty_creates_of_one_key_make_one),
        cmocka_unit_test(the_quota_holds_under_twenty_at_once),
        cmocka_unit_test(resume_needs_a_place),
        cmocka_unit_test(one_create_takes_a_warm_member),
        cmocka_unit_test(the_lookup_is_by_its_index_whatever_the_statistics),
        cmocka_unit_test(without_the_index_nothing_is_made),
    };
    return cmocka_run_group_tests(tests, world_new, world_free);
}
