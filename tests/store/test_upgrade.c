/* Upgrades: a database of each earlier schema goes forward with what is in it, and programs that run
 * already go on beside it.
 *
 * tests/store/upgrade/ keeps rows as programs left them (rows_NNNN.sql: in the tables that migration
 * NNNN made) and the statements that releases prepare (statements_NNNN.sql, NNNN their schema). A
 * release adds its own: store_test_upgrade --write. */

#include <pthread.h>
#include <regex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/scoped.h"
#include "base/time.h"
#include "store/conn.h"
#include "store/fixture.h"

enum { MIGRATIONS_MAX = 256, FILE_MAX = 1 << 20, STATEMENTS_MIN = 90, STATEMENTS_MAX = 4096 };

static size_t migration_count(void)
{
    size_t n = 0;

    while (STORE_MIGRATIONS[n].number)
        n++;
    assert_true(n < MIGRATIONS_MAX);
    return n;
}

/* The text of upgrade/<kind>_<number>.sql, NULL when there is none. */
static char *kept(struct arena *a, const char *kind, int number)
{
    SCOPED_BUF struct buf text = BUF_INIT(FILE_MAX);
    struct sbx_err err = { 0 };
    enum sbx_code code =
        file_read(arena_printf(a, UPGRADE_DIR "/%s_%04d.sql", kind, number), &text, &err);

    if (code == SBX_E_NOT_FOUND)
        return NULL;
    assert_int_equal(code, SBX_OK);
    return arena_printf(a, "%.*s", (int)text.len, text.data);
}

static const char *ask(struct arena *a, PGconn *pg, const char *sql)
{
    PGresult *res = PQexec(pg, sql);

    if (PQresultStatus(res) != PGRES_TUPLES_OK && PQresultStatus(res) != PGRES_COMMAND_OK)
        fail_msg("%.200s: %s", sql, PQerrorMessage(pg));
    const char *value = PQntuples(res) > 0 ? arena_strdup(a, PQgetvalue(res, 0, 0)) : "";
    PQclear(res);
    return value;
}

/* One query whose answer is all that the present columns of all tables hold, as a checksum. */
static const char *content_query(struct arena *a, PGconn *pg)
{
    return ask(a, pg,
               "SELECT 'SELECT ' || string_agg(format('(SELECT count(*) || md5(coalesce("
               "string_agg(t::text, E''\\n'' ORDER BY t::text), '''')) FROM (SELECT %s FROM "
               "sandboxd.%I) t)', c.names, c.relname), ' || ' ORDER BY c.relname) FROM (SELECT "
               "r.relname, string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) AS names "
               "FROM pg_class r JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum > 0 AND "
               "NOT a.attisdropped WHERE r.relnamespace = 'sandboxd'::regnamespace AND "
               "r.relkind = 'r' AND r.relname <> 'schema_migrations' GROUP BY r.relname) c");
}

/* Every table has a row, so that "all is still there" says something. */
static void nothing_is_empty(struct arena *a, PGconn *pg)
{
    const char *tables =
        ask(a, pg,
            "SELECT string_agg(format('(SELECT CASE WHEN NOT EXISTS (SELECT FROM sandboxd.%I) THEN "
            "%L ELSE '''' END)', relname, relname || ' '), ' || ') FROM pg_class WHERE "
            "relnamespace = 'sandboxd'::regnamespace AND relkind = 'r'");

    assert_string_equal(ask(a, pg, arena_printf(a, "SELECT %s", tables)), "");
}

struct statement {
    int schema;
    const char *name, *sql;
};
struct statements {
    struct statement rows[STATEMENTS_MAX];
    size_t count;
};

/* All that are kept; in the arena. */
static struct statements *kept_statements(struct arena *a)
{
    struct statements *all = arena_zalloc(a, sizeof(*all));

    for (const struct store_migration *m = STORE_MIGRATIONS; m->number; m++) {
        char *text = kept(a, "statements", m->number), *next;

        for (char *at = text ? strstr(text, "\n-- ") : NULL; at; at = next) {
            char *name = at + 4, *sql = strchr(name, '\n') + 1, *end = strstr(sql, "\n;\n");

            assert_non_null(end);
            assert_true(all->count < STATEMENTS_MAX);
            next = end[3] ? end + 2 : NULL;
            *end = 0;
            sql[-1] = 0;
            all->rows[all->count++] = (struct statement){ m->number, name, sql };
        }
    }
    return all;
}

/* Run with nothing but nulls: what it names is there (class 42) and what it calls works with what it
 * names (0A, 42); a null where none may be is the test's own doing. */
static void run_with_nulls(struct arena *a, PGconn *pg, const struct statement *s)
{
    PGresult *res = PQdescribePrepared(pg, s->name);
    int params = PQnparams(res);
    const char **nulls = arena_zalloc(a, ((size_t)params + 1) * sizeof(*nulls));

    PQclear(res);
    ask(a, pg, "BEGIN");
    res = PQexecPrepared(pg, s->name, params, nulls, NULL, NULL, 0);
    const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);
    if (state && (strncmp(state, "42", 2) == 0 || strncmp(state, "0A", 2) == 0))
        fail_msg("%s of schema %d: %s", s->name, s->schema, PQerrorMessage(pg));
    PQclear(res);
    ask(a, pg, "ROLLBACK");
}

/* Prepares those that are not left out; one that cannot be is left out from then on (no program of
 * this schema has it) or, when `must`, is a failure. Gives how many there are. */
static size_t prepare(PGconn *pg, struct statements *all, bool must)
{
    size_t count = 0;

    for (size_t i = 0; i < all->count; i++) {
        struct statement *s = &all->rows[i];

        if (!s->sql)
            continue;
        PGresult *res = PQprepare(pg, s->name, s->sql, 0, NULL);
        bool there = PQresultStatus(res) == PGRES_COMMAND_OK;
        PQclear(res);
        if (!there && must)
            fail_msg("%s of schema %d: %s", s->name, s->schema, PQerrorMessage(pg));
        if (!there)
            s->sql = NULL;
        count += there;
    }
    return count;
}

static void each_earlier_schema_goes_forward(void **state)
{
    (void)state;
    size_t all = migration_count();

    for (size_t n = 1; n <= all; n++) {
        SCOPED_ARENA struct arena *a = arena_new();
        struct store_config cfg = { .url = fixture_database(a), .statement_timeout_ms = 30000 };
        struct store_conn *db = store_conn_new(&cfg, "upgrade");
        struct store_migration some[MIGRATIONS_MAX] = { { 0 } };
        PGconn *pg = PQconnectdb(cfg.url);
        struct store_migrated done;
        struct store_schema schema;
        char *rows;

        /* Made and filled step by step, as it grew. */
        for (size_t i = 0; i < n; i++) {
            some[i] = STORE_MIGRATIONS[i];
            rows = kept(a, "rows", some[i].number);
            if (rows || i + 1 == n)
                OK(store_migrate(db, some, &done, &err));
            if (rows)
                ask(a, pg, rows);
        }
        nothing_is_empty(a, pg);
        struct statements *all_statements = kept_statements(a);
        size_t before = prepare(pg, all_statements, false);
        assert_true(some[n - 1].number < 7 || before >= STATEMENTS_MIN);
        const char *query = content_query(a, pg);
        const char *content = ask(a, pg, query);
        OK(store_schema_check(db, &schema, &err));
        assert_int_equal(schema.have, some[n - 1].number);

        OK(store_migrate(db, STORE_MIGRATIONS, &done, &err));
        assert_int_equal(done.applied, all - n);
        OK(store_schema_check(db, &schema, &err));
        assert_int_equal(schema.have, schema.want);
        assert_true(schema.idempotency_index);
        assert_string_equal(ask(a, pg, query), content);
        /* A session that prepared them before, and one that does so now. */
        for (size_t i = 0; i < all_statements->count; i++) {
            if (all_statements->rows[i].sql)
                run_with_nulls(a, pg, &all_statements->rows[i]);
        }
        PGconn *fresh = PQconnectdb(cfg.url);
        assert_int_equal(prepare(fresh, all_statements, true), before);
        PQfinish(fresh);
        PQfinish(pg);
        store_conn_free(db);
    }
}

/* --- a newer version comes ------------------------------------------------------------------- */

/* What a release may do: a column in every table, one with a default, an index, a table. */
static const char EXPAND[] =
    "DO $$ DECLARE t regclass; BEGIN FOR t IN SELECT c.oid FROM pg_class c WHERE c.relnamespace = "
    "'sandboxd'::regnamespace AND c.relkind = 'r' LOOP EXECUTE format('ALTER TABLE %s ADD COLUMN "
    "next_text text, ADD COLUMN next_number integer NOT NULL DEFAULT 7', t); END LOOP; END $$;"
    "CREATE INDEX next_index ON sandboxd.sandboxes (next_number);"
    "CREATE TABLE sandboxd.next (x int)";

static const struct store_migration *with_next(struct arena *a, const char *name, const char *sql)
{
    size_t n = migration_count();
    struct store_migration *list = arena_zalloc(a, (n + 2) * sizeof(*list));

    for (size_t i = 0; i < n; i++)
        list[i] = STORE_MIGRATIONS[i];
    list[n] = (struct store_migration){ 9001, name, sql };
    return list;
}

struct traffic {
    struct world *w;
    pthread_t thread;
    _Atomic bool *stop;
    int lives, after; /* whole lives of sandboxes; those that began when the schema was new */
    _Atomic bool *migrated;
    int64_t slowest_ms;
};

static void one_life(struct traffic *t, struct store_conn *db)
{
    SCOPED_ARENA struct arena *a = arena_new();
    struct world w = *t->w;
    struct store_created made;
    struct store_sandbox s;
    bool was_there;

    w.a = a;
    struct store_sandbox_new in = world_create_in(&w, NULL);
    OK(store_sandbox_create(db, &in, a, &made, &err));
    s = made.sandbox;
    static const enum sandbox_status WAY[] = { SANDBOX_ALLOCATING, SANDBOX_STARTING,
                                               SANDBOX_READY };
    for (size_t i = 0; i < COUNT_OF(WAY); i++) {
        struct store_move move = world_move_in(&s, WAY[i]);
        OK(store_sandbox_move(db, &move, a, &s, &err));
    }
    struct store_execution_new run = world_execution(&w, &s);
    OK(store_execution_begin(db, &run, a, &s, &err));
    OK(store_execution_end(db, run.execution_id, &was_there, &err));
    assert_true(was_there);
    OK(store_sandbox_get(db, NULL, s.sandbox_id, a, &s, &err));
    struct store_move move = world_move_in(&s, SANDBOX_TERMINATING);
    OK(store_sandbox_move(db, &move, a, &s, &err));
    move = world_move_in(&s, SANDBOX_TERMINATED);
    OK(store_sandbox_move(db, &move, a, &s, &err));
    struct store_template_save save = { .account_id = w.account.account_id,
                                        .name = in.sandbox_id,
                                        .slug_base = "next",
                                        .enabled = -1,
                                        .deprecated = -1 };
    struct store_template template;
    OK(store_template_save(db, &save, a, &template, &was_there, &err));
}

/* A program of the present version, with the time limits of the product. */
static void *old_program(void *arg)
{
    struct traffic *t = arg;
    struct store_conn *db = store_conn_new(&t->w->cfg, "old");

    while (!atomic_load(t->stop)) {
        bool after = atomic_load(t->migrated);
        int64_t began = time_mono_ms();

        one_life(t, db);
        t->lives++;
        t->after += after;
        if (time_mono_ms() - began > t->slowest_ms)
            t->slowest_ms = time_mono_ms() - began;
    }
    store_conn_free(db);
    return NULL;
}

static void programs_that_run_go_on_under_a_newer_schema(void **state)
{
    struct world *w = *state;
    enum { PROGRAMS = 2, HOLD_MS = 2500, AFTER_MS = 500 };
    struct traffic t[PROGRAMS];
    _Atomic bool stop = false, migrated = false;
    struct store_migrated done;

    OK(store_account_quota(w->db, w->account.account_id, 100000, w->a, &w->account, &err));
    for (int i = 0; i < PROGRAMS; i++) {
        t[i] = (struct traffic){ .w = w, .stop = &stop, .migrated = &migrated };
        assert_int_equal(pthread_create(&t[i].thread, NULL, old_program, &t[i]), 0);
    }
    /* A backup reads every table meanwhile: the migration has to wait for it, and nobody else may
     * have to wait for the migration. */
    PGconn *backup = PQconnectdb(w->url);
    ask(w->a, backup, "BEGIN");
    ask(w->a, backup, "LOCK TABLE sandboxd.sandboxes, sandboxd.templates IN ACCESS SHARE MODE");
    assert_int_equal(PQsendQuery(backup, "SELECT pg_sleep(2.5); COMMIT"), 1);

    int64_t began = time_mono_ms();
    struct store_conn *db = store_conn_new(&w->cfg, "new");
    OK(store_migrate(db, with_next(w->a, "9001_next", EXPAND), &done, &err));
    assert_int_equal(done.applied, 1);
    assert_true(time_mono_ms() - began >= HOLD_MS - 500);
    atomic_store(&migrated, true);
    ask(w->a, w->raw, arena_printf(w->a, "SELECT pg_sleep(%d / 1000.0)", AFTER_MS));
    atomic_store(&stop, true);
    for (int i = 0; i < PROGRAMS; i++) {
        assert_int_equal(pthread_join(t[i].thread, NULL), 0);
        assert_true(t[i].lives > t[i].after && t[i].after > 0);
        print_message("%d lives, %d after the migration, slowest %lld ms\n", t[i].lives, t[i].after,
                      (long long)t[i].slowest_ms);
    }
    PQfinish(backup);

    /* One that starts again finds a newer schema and serves; its own list adds nothing. */
    struct store_schema schema;
    OK(store_migrate(db, STORE_MIGRATIONS, &done, &err));
    assert_int_equal(done.applied, 0);
    assert_int_equal(done.ahead, 1);
    OK(store_schema_check(db, &schema, &err));
    assert_int_equal(schema.have, schema.want);
    assert_int_equal(schema.ahead, 1);
    store_conn_free(db);
}

static void a_program_whose_columns_were_taken_away_does_not_start(void **state)
{
    struct world *w = *state;
    struct store_conn *db = store_conn_new(&w->cfg, "new");
    struct store_migrated done;
    struct store_schema schema;

    OK(store_migrate(db, with_next(w->a, "9001_drop_contract", "SELECT 1"), &done, &err));
    FAILS(SBX_E_CONFLICT, store_migrate(db, STORE_MIGRATIONS, &done, &err));
    FAILS(SBX_E_CONFLICT, store_schema_check(db, &schema, &err));
    store_conn_free(db);
}

/* --- what a migration may be --------------------------------------------------------------------- */

static bool matches(const char *text, const char *pattern)
{
    regex_t re;

    assert_int_equal(regcomp(&re, pattern, REG_EXTENDED | REG_ICASE | REG_NOSUB), 0);
    bool found = regexec(&re, text, 0, NULL, 0) == 0;
    regfree(&re);
    return found;
}

/* "" or the word that takes something away from a program that runs. */
static const char *takes_away(const char *sql)
{
    static const char *const WORDS[] = {
        "DROP +(TABLE|COLUMN|VIEW|FUNCTION|TRIGGER|SCHEMA|TYPE|INDEX|CONSTRAINT)",
        "RENAME +(TO|COLUMN|CONSTRAINT)",
        "ALTER +COLUMN +[a-z_]+ +(TYPE|SET +DATA|SET +NOT)",
        "SET +SCHEMA",
        "TRUNCATE +(TABLE|sandboxd)",
    };

    for (size_t i = 0; i < COUNT_OF(WORDS); i++) {
        if (matches(sql, WORDS[i]))
            return WORDS[i];
    }
    return "";
}

static void migrations_only_add(void **state)
{
    (void)state;
    assert_string_not_equal(takes_away("ALTER TABLE sandboxd.a DROP COLUMN b"), "");
    assert_string_not_equal(takes_away("ALTER TABLE sandboxd.a RENAME COLUMN b TO c"), "");
    assert_string_not_equal(takes_away("ALTER TABLE sandboxd.a ALTER COLUMN b SET NOT NULL"), "");
    assert_string_equal(takes_away(EXPAND), "");
    for (const struct store_migration *m = STORE_MIGRATIONS; m->number; m++) {
        if (!matches(m->name, "_contract$") && takes_away(m->sql)[0])
            fail_msg("%s: \"%s\" takes something away from programs that run; see \"Changing the "
                     "schema\" in docs/architecture.md",
                     m->name, takes_away(m->sql));
    }
}

/* Migrations that databases have are not edited: a change is a new one. */
static void released_migrations_stay_as_they_are(void **state)
{
    (void)state;
    SCOPED_ARENA struct arena *a = arena_new();
    SCOPED_BUF struct buf list = BUF_INIT(FILE_MAX);
    size_t seen = 0;

    OK(file_read(UPGRADE_DIR "/released.sha256", &list, &err));
    char *text = arena_printf(a, "%.*s", (int)list.len, list.data), *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        const struct store_migration *m = STORE_MIGRATIONS;
        unsigned char sum[SHA256_LEN];
        char hex[2 * SHA256_LEN + 1];
        char *name = strchr(line, ' ');

        assert_non_null(name);
        *name++ = 0;
        while (m->number && strcmp(m->name, name) != 0)
            m++;
        if (!m->number)
            fail_msg("migration %s is gone", name);
        sha256_of(m->sql, strlen(m->sql), sum);
        hash_hex(sum, sizeof(sum), hex);
        if (strcmp(hex, line) != 0)
            fail_msg("migration %s was changed: databases have it as it was; add a new one", name);
        seen++;
    }
    assert_true(seen >= 11);
}

/* --- at a release -------------------------------------------------------------------------------- */

static int write_release(void)
{
    size_t n = migration_count();
    struct buf sums = BUF_INIT(FILE_MAX), out = BUF_INIT(FILE_MAX);
    struct sbx_err err = { 0 };
    char path[512];

    for (size_t i = 0; i < n; i++) {
        const struct store_migration *m = &STORE_MIGRATIONS[i];
        unsigned char sum[SHA256_LEN];
        char hex[2 * SHA256_LEN + 1];

        sha256_of(m->sql, strlen(m->sql), sum);
        hash_hex(sum, sizeof(sum), hex);
        (void)buf_printf(&sums, "%s %s\n", hex, m->name);
    }
    (void)buf_printf(&out, "-- Statements that programs of schema %04d prepare.\n",
                     STORE_MIGRATIONS[n - 1].number);
    for (size_t t = 0; STORE_STATEMENTS[t].rows; t++) {
        for (size_t i = 0; i < *STORE_STATEMENTS[t].count; i++)
            (void)buf_printf(&out, "-- %s\n%s\n;\n", STORE_STATEMENTS[t].rows[i].name,
                             STORE_STATEMENTS[t].rows[i].sql);
    }
    (void)snprintf(path, sizeof(path), UPGRADE_DIR "/statements_%04d.sql",
                   STORE_MIGRATIONS[n - 1].number);
    if (file_write(path, out.data, out.len, 0644, false, &err) != SBX_OK ||
        file_write(UPGRADE_DIR "/released.sha256", sums.data, sums.len, 0644, false, &err) !=
            SBX_OK)
        (void)fprintf(stderr, "%s\n", err.msg);
    buf_fini(&out);
    buf_fini(&sums);
    return err.code == SBX_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(migrations_only_add),
        cmocka_unit_test(released_migrations_stay_as_they_are),
        cmocka_unit_test(each_earlier_schema_goes_forward),
        cmocka_unit_test_setup_teardown(programs_that_run_go_on_under_a_newer_schema,
                                        world_new_quick, world_free),
        cmocka_unit_test_setup_teardown(a_program_whose_columns_were_taken_away_does_not_start,
                                        world_new, world_free),
    };

    if (argc > 1 && strcmp(argv[1], "--write") == 0)
        return write_release();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
