#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "store/conn.h"

enum {
    LOCK_WAIT_MS = 120000, /* for another program that migrates */
    APPLY_MS = 600000,     /* one migration */
    BUSY_TRIES = 40,       /* of one migration that meets a lock; some 30 s */
};

/* A statement that waits for a table's lock holds up all who come behind it: so it waits less than
 * their own statements may take, and lets them pass before it tries again. */
static const char BEGIN_BRIEF[] = "BEGIN; SET LOCAL lock_timeout = '400ms'";
static const char LET_PASS[] = "SELECT pg_sleep(0.4)";
/* Nearly every transaction takes this table first: a migration that took another before it and met
 * one halfway would wait for it while it waits for us, and again with the next one. */
static const char FIRST_OF_ALL[] =
    "DO $$ BEGIN IF to_regclass('sandboxd.sandboxes') IS NOT NULL THEN "
    "LOCK TABLE sandboxd.sandboxes IN ACCESS EXCLUSIVE MODE; END IF; END $$";
/* Ends the name of a migration that takes away what older programs use. */
static const char CONTRACT[] = "_contract";

/* 0x73616e64 0x6d696772: "sand" "migr" */
static const char LOCK[] = "SELECT pg_advisory_lock(1935764068, 1835624306)";
static const char UNLOCK[] = "SELECT pg_advisory_unlock(1935764068, 1835624306)";
static const char PATIENT[] =
    "SET statement_timeout = 0; SET lock_timeout = 0; SET client_min_messages = warning";
static const char BASE[] =
    "CREATE SCHEMA IF NOT EXISTS sandboxd;"
    "COMMENT ON SCHEMA sandboxd IS 'Agent sandboxes: the control plane''s state.';"
    "CREATE TABLE IF NOT EXISTS sandboxd.schema_migrations ("
    "number integer PRIMARY KEY, name text NOT NULL, checksum bytea NOT NULL, "
    "applied_at timestamptz NOT NULL DEFAULT now());"
    "COMMENT ON TABLE sandboxd.schema_migrations IS 'Migrations that were applied, forward only.';"
    "COMMENT ON COLUMN sandboxd.schema_migrations.number IS 'Order.';"
    "COMMENT ON COLUMN sandboxd.schema_migrations.name IS 'File name without its ending.';"
    "COMMENT ON COLUMN sandboxd.schema_migrations.checksum IS 'SHA-256 of the file.';"
    "COMMENT ON COLUMN sandboxd.schema_migrations.applied_at IS 'When.';";
static const char APPLIED[] = "SELECT m.number, m.checksum, m.name "
                              "FROM sandboxd.schema_migrations m ORDER BY m.number";
static const char RECORD[] =
    "INSERT INTO sandboxd.schema_migrations (number, name, checksum) VALUES ($1, $2, $3)";
static const char CHECK[] =
    "SELECT to_regclass('sandboxd.schema_migrations') IS NOT NULL, "
    "EXISTS (SELECT FROM pg_index i WHERE i.indexrelid = "
    "to_regclass('sandboxd.sandboxes_idempotency') AND i.indisunique AND i.indisvalid "
    "AND i.indisready)";

static enum sbx_code text(struct store_conn *db, const char *sql, int64_t patience_ms,
                          struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;

    store_conn_patience(db, patience_ms);
    return store_run_text(db, sql, &res, err);
}

static const struct store_migration *find(const struct store_migration *list, int number)
{
    for (; list->number; list++) {
        if (list->number == number)
            return list;
    }
    return NULL;
}

static void checksum(const struct store_migration *m, unsigned char out[SHA256_LEN])
{
    sha256_of(m->sql, strlen(m->sql), out);
}

static bool applied(const PGresult *res, int number)
{
    for (int i = 0; i < PQntuples(res); i++) {
        struct store_row r = { .res = res, .row = i };
        if (store_row_int32(&r) == number)
            return true;
    }
    return false;
}

static bool ends_with(const char *text, const char *end)
{
    size_t len = strlen(text), n = strlen(end);

    return len >= n && strcmp(text + len - n, end) == 0;
}

/* What was applied is what the list says. What the list does not know came from a newer program and
 * only added, or says by its name that it did not. *ahead counts those. */
static enum sbx_code verify(const PGresult *res, const struct store_migration *list, int *ahead,
                            struct sbx_err *err)
{
    SCOPED_ARENA struct arena *a = arena_new();

    for (int i = 0; i < PQntuples(res); i++) {
        struct store_row r = { .res = res, .a = a, .row = i };
        int number = store_row_int32(&r);
        struct store_bytes sum = store_row_bytes(&r);
        const char *name = store_row_text(&r);
        const struct store_migration *m = find(list, number);
        unsigned char want[SHA256_LEN];

        if (!m && ends_with(name, CONTRACT))
            return err_set(err, SBX_E_CONFLICT,
                           "the database has migration %s, which takes away what this program "
                           "uses: it is older than the database",
                           name);
        if (!m) {
            (*ahead)++;
            continue;
        }
        checksum(m, want);
        if (sum.len != sizeof(want) || memcmp(sum.data, want, sizeof(want)) != 0)
            return err_set(err, SBX_E_CONFLICT, "migration %s was changed after it was applied",
                           m->name);
    }
    return SBX_OK;
}

/* again: a lock was not free before. *busy: one was not free in time now, and nothing was changed.
 */
static enum sbx_code try_apply(struct store_conn *db, const struct store_migration *m, bool again,
                               bool *busy, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct sbx_err ignored = { 0 };
    struct store_args q = { 0 };
    unsigned char sum[SHA256_LEN];
    enum sbx_code code = text(db, BEGIN_BRIEF, 0, err);

    *busy = false;
    if (code != SBX_OK)
        return code;
    checksum(m, sum);
    store_arg_int(&q, m->number);
    store_arg_text(&q, m->name);
    store_arg_bytes(&q, sum, sizeof(sum));
    if (again)
        code = text(db, FIRST_OF_ALL, APPLY_MS, err);
    if (code == SBX_OK)
        code = text(db, m->sql, APPLY_MS, err);
    if (code == SBX_OK)
        code = store_run_once(db, RECORD, &q, &res, err);
    if (code == SBX_OK)
        return text(db, "COMMIT", APPLY_MS, err);
    /* A connection that still answers did not cause it. */
    *busy = text(db, "ROLLBACK", 0, &ignored) == SBX_OK && code == SBX_E_UNAVAILABLE;
    return code;
}

static enum sbx_code apply(struct store_conn *db, const struct store_migration *m,
                           struct sbx_err *err)
{
    struct sbx_err ignored = { 0 };
    enum sbx_code code = SBX_OK;
    bool busy = false;

    for (int i = 0; i < BUSY_TRIES; i++) {
        *err = (struct sbx_err){ 0 };
        code = try_apply(db, m, i > 0, &busy, err);
        if (!busy || text(db, LET_PASS, 0, &ignored) != SBX_OK)
            break;
    }
    return code == SBX_OK ? code : err_wrap(err, "migration %s", m->name);
}

static enum sbx_code locked(struct store_conn *db, const struct store_migration *list,
                            struct store_migrated *out, struct sbx_err *err)
{
    static const struct store_args NONE;
    SCOPED_RESULT PGresult *res = NULL;
    struct store_migrated done = { 0 };
    enum sbx_code code = text(db, BASE, 0, err);

    if (code == SBX_OK)
        code = store_run_once(db, APPLIED, &NONE, &res, err);
    if (code == SBX_OK)
        code = verify(res, list, &done.ahead, err);
    for (; code == SBX_OK && list->number; list++) {
        if (!applied(res, list->number)) {
            code = apply(db, list, err);
            done.applied++;
        }
        done.schema = list->number;
    }
    if (code == SBX_OK)
        *out = done;
    return code;
}

enum sbx_code store_migrate(struct store_conn *db, const struct store_migration *list,
                            struct store_migrated *out, struct sbx_err *err)
{
    struct sbx_err ignored = { 0 };

    store_conn_budget(db, 0);
    enum sbx_code code = text(db, PATIENT, 0, err);
    if (code == SBX_OK)
        code = text(db, LOCK, LOCK_WAIT_MS, err);
    if (code != SBX_OK) {
        store_conn_close(db);
        return code;
    }
    code = locked(db, list, out, err);
    (void)text(db, UNLOCK, 0, &ignored);
    store_conn_close(db); /* the session's own time limits come back with the next one */
    return code;
}

enum sbx_code store_schema_check(struct store_conn *db, struct store_schema *out,
                                 struct sbx_err *err)
{
    static const struct store_args NONE;
    SCOPED_RESULT PGresult *res = NULL, *there = NULL;
    SCOPED_ARENA struct arena *a = arena_new();
    struct store_schema found = { 0 };

    for (const struct store_migration *m = STORE_MIGRATIONS; m->number; m++)
        found.want = m->number;
    enum sbx_code code = store_run_once(db, CHECK, &NONE, &res, err);
    if (code != SBX_OK)
        return code;
    struct store_row r = { .res = res, .a = a };
    bool made = store_row_bool(&r);
    found.idempotency_index = store_row_bool(&r);
    if (made) {
        code = store_run_once(db, APPLIED, &NONE, &there, err);
        if (code == SBX_OK)
            code = verify(there, STORE_MIGRATIONS, &found.ahead, err);
        if (code != SBX_OK)
            return code;
        const struct store_migration *m = STORE_MIGRATIONS;
        for (; m->number && applied(there, m->number); m++)
            found.have = m->number;
    }
    *out = found;
    return SBX_OK;
}
