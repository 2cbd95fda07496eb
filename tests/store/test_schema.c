/* Migrations, and what the schema promises of itself. */

#include <string.h>

#include "store/fixture.h"

struct fresh {
    struct arena *a;
    struct store_config cfg;
    struct store_conn *db;
};

static struct fresh fresh_new(void)
{
    struct fresh f = { .a = arena_new() };

    f.cfg.url = fixture_database(f.a);
    f.db = store_conn_new(&f.cfg, "test");
    return f;
}

static void fresh_free(struct fresh *f)
{
    store_conn_free(f->db);
    arena_free(f->a);
}

static void migrating_twice_is_migrating_once(void **state)
{
    (void)state;
    struct fresh f = fresh_new();
    struct store_schema schema;
    struct store_migrated done;

    OK(store_schema_check(f.db, &schema, &err));
    assert_int_equal(schema.have, 0);
    assert_false(schema.idempotency_index);
    OK(store_migrate(f.db, STORE_MIGRATIONS, &done, &err));
    assert_int_equal(done.schema, schema.want);
    assert_true(done.applied >= 6);
    OK(store_migrate(f.db, STORE_MIGRATIONS, &done, &err));
    assert_int_equal(done.applied, 0);
    OK(store_schema_check(f.db, &schema, &err));
    assert_int_equal(schema.have, schema.want);
    assert_true(schema.idempotency_index);
    fresh_free(&f);
}

static const struct store_migration ONE[] = { { 1, "0001_a", "CREATE TABLE public.a (x int)" },
                                              { 0, NULL, NULL } };
static const struct store_migration CHANGED[] = {
    { 1, "0001_a", "CREATE TABLE public.a (x int, y int)" }, { 0, NULL, NULL }
};
static const struct store_migration BROKEN[] = { { 1, "0001_a", "CREATE TABLE public.a (x int)" },
                                                 { 2, "0002_b",
                                                   "CREATE TABLE public.b (x int); SELECT 1/0" },
                                                 { 0, NULL, NULL } };
static const struct store_migration MENDED[] = { { 1, "0001_a", "CREATE TABLE public.a (x int)" },
                                                 { 3, "0003_c", "CREATE TABLE public.c (x int)" },
                                                 { 0, NULL, NULL } };
static const struct store_migration MIDDLE[] = { { 1, "0001_a", "CREATE TABLE public.a (x int)" },
                                                 { 2, "0002_b", "CREATE TABLE public.b (x int)" },
                                                 { 3, "0003_c", "CREATE TABLE public.c (x int)" },
                                                 { 0, NULL, NULL } };

static void what_was_applied_may_not_change(void **state)
{
    (void)state;
    struct fresh f = fresh_new();
    struct store_migrated done;

    OK(store_migrate(f.db, ONE, &done, &err));
    FAILS(SBX_E_CONFLICT, store_migrate(f.db, CHANGED, &done, &err));
    /* one that fails leaves nothing behind and can be mended */
    FAILS(SBX_E_INTERNAL, store_migrate(f.db, BROKEN, &done, &err));
    OK(store_migrate(f.db, MENDED, &done, &err));
    assert_int_equal(done.applied, 1);
    assert_int_equal(done.schema, 3);
    /* one that came into the middle is applied too */
    OK(store_migrate(f.db, MIDDLE, &done, &err));
    assert_int_equal(done.applied, 1);
    assert_int_equal(done.schema, 3);
    /* an older program on a newer database goes on: what it does not know only added */
    OK(store_migrate(f.db, ONE, &done, &err));
    assert_int_equal(done.applied, 0);
    assert_int_equal(done.ahead, 2);
    fresh_free(&f);
}

struct many {
    int applied[6];
};

static void migrate_at_once(int i, struct store_conn *db, void *arg)
{
    struct many *m = arg;
    struct store_migrated done;

    OK(store_migrate(db, STORE_MIGRATIONS, &done, &err));
    m->applied[i] = done.applied;
}

static void six_at_once_migrate_once(void **state)
{
    (void)state;
    struct fresh f = fresh_new();
    struct world w = { .a = f.a, .cfg = f.cfg };
    struct many m = { { 0 } };
    int workers = 0;

    world_together(&w, 6, migrate_at_once, &m);
    for (int i = 0; i < 6; i++)
        workers += m.applied[i] > 0;
    assert_int_equal(workers, 1);
    fresh_free(&f);
}

static void everything_has_a_comment(void **state)
{
    struct world *w = *state;

    assert_string_equal(
        world_sql(w, "SELECT coalesce(string_agg(c.relname || coalesce('.' || a.attname, ''), ', "
                     "'), '') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
                     "LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 "
                     "AND NOT a.attisdropped "
                     "WHERE n.nspname = 'sandboxd' AND c.relkind = 'r' "
                     "AND (obj_description(c.oid, 'pg_class') IS NULL "
                     "OR col_description(c.oid, a.attnum) IS NULL)"),
        "");
}

/* The words that a CHECK allows, for each of the domain's tables. */
static void check_words(struct world *w, const char *column, const char *(*name)(int), int count)
{
    const char *def = world_sql(
        w, arena_printf(w->a,
                        "SELECT string_agg(pg_get_constraintdef(c.oid), ' ') FROM pg_constraint c "
                        "WHERE c.conrelid = 'sandboxd.sandboxes'::regclass AND c.contype = 'c' "
                        "AND cardinality(c.conkey) = 1 AND c.conkey[1] = (SELECT a.attnum "
                        "FROM pg_attribute a WHERE a.attrelid = c.conrelid "
                        "AND a.attname = '%s')",
                        column));
    int quoted = 0;

    for (const char *p = def; (p = strchr(p, '\'')) != NULL; p++)
        quoted++;
    assert_int_equal(quoted / 2, count - 1);
    for (int i = 1; i < count; i++)
        assert_non_null(strstr(def, arena_printf(w->a, "'%s'", name(i))));
}

static const char *status_name(int i)
{
    return sandbox_status_name((enum sandbox_status)i);
}
static const char *end_name(int i)
{
    return sandbox_end_reason_name((enum sandbox_end_reason)i);
}
static const char *fault_name(int i)
{
    return sandbox_fault_name((enum sandbox_fault)i);
}
static const char *mode_name(int i)
{
    return sandbox_persistence_name((enum sandbox_persistence)i);
}
static const char *profile_name(int i)
{
    return sandbox_profile_name((enum sandbox_profile)i);
}

static void checks_say_what_the_domain_says(void **state)
{
    struct world *w = *state;

    check_words(w, "status", status_name, SANDBOX_STATUS_COUNT);
    check_words(w, "termination_reason", end_name, SANDBOX_END_COUNT);
    check_words(w, "error_code", fault_name, SANDBOX_FAULT_COUNT);
    check_words(w, "persistence_mode", mode_name, SANDBOX_PERSISTENCE_COUNT);
    check_words(w, "profile", profile_name, SANDBOX_PROFILE_COUNT);
}

static void the_search_path_is_ours(void **state)
{
    struct world *w = *state;
    struct store_account a;

    /* A table of the same name elsewhere, and a database whose path leads there. */
    world_sql(w, "CREATE TABLE public.accounts (x int)");
    world_sql(w, "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = public', "
                 "current_database()); END $$");
    struct store_conn *db = store_conn_new(&w->cfg, "path");
    OK(store_account_get(db, w->account.account_id, w->a, &a, &err));
    store_conn_free(db);
    assert_string_equal(world_sql(w, "SELECT count(DISTINCT application_name) FROM "
                                     "pg_stat_activity WHERE application_name = 'test'"),
                        "1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(migrating_twice_is_migrating_once),
        cmocka_unit_test(what_was_applied_may_not_change),
        cmocka_unit_test(six_at_once_migrate_once),
        cmocka_unit_test_setup_teardown(everything_has_a_comment, world_new, world_free),
        cmocka_unit_test_setup_teardown(checks_say_what_the_domain_says, world_new, world_free),
        cmocka_unit_test_setup_teardown(the_search_path_is_ours, world_new, world_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
