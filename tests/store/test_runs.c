#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <libpq-fe.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/time.h"
#include "store/identity.h"
#include "store/places.h"
#include "store/runs.h"
#include "store/templates.h"

/* Personal runs on a real PostgreSQL: fence, grant, claim, moves, receipt, reset. */

struct world {
    struct store_conn *db;
    struct arena *a;
    struct store_account account;
    struct store_user owner;
    struct store_app app;
    struct store_template template;
    struct store_region region;
    struct store_installation installation, other;
    struct store_principal principal;
};

static struct store_config config(void)
{
    const char *url = getenv("SBX_TEST_PG");

    assert_non_null(url);
    return (struct store_config){ .url = url };
}

#define OK(call)                                                                                   \
    do {                                                                                           \
        struct sbx_err err = { 0 };                                                                \
        enum sbx_code code_ = (call);                                                              \
        if (code_ != SBX_OK)                                                                       \
            print_error("%s\n", err.msg);                                                          \
        assert_int_equal(code_, SBX_OK);                                                           \
    } while (0)
#define FAILS(want, call)                                                                          \
    do {                                                                                           \
        struct sbx_err err = { 0 };                                                                \
        assert_int_equal((call), (want));                                                          \
    } while (0)

static int setup(void **state)
{
    struct world *w = mem_zalloc(sizeof(*w));
    struct store_config cfg = config();
    struct store_migrated migrated;
    char name[ID_SIZE];
    bool created;

    w->a = arena_new();
    w->db = store_conn_new(&cfg, "test");
    id_new(name);
    OK(store_migrate(w->db, STORE_MIGRATIONS, &migrated, &err));
    OK(store_account_create(w->db, "warren", w->a, &w->account, &err));
    OK(store_user_create(w->db, arena_printf(w->a, "%s@example.test", name), NULL, w->a, &w->owner,
                         &err));
    struct store_member member;
    OK(store_member_add(w->db, w->account.account_id, w->owner.user_id, "technical", w->a, &member,
                        &err));
    OK(store_app_create(w->db, w->account.account_id, "app", w->a, &w->app, &err));
    struct store_template_save save = { .account_id = w->account.account_id,
                                        .app_id = w->app.app_id,
                                        .name = "holder",
                                        .slug_base = "holder",
                                        .enabled = 1,
                                        .deprecated = -1 };
    OK(store_template_save(w->db, &save, w->a, &w->template, &created, &err));
    struct store_region region = { .region = arena_printf(w->a, "r-%s", name),
                                   .socket = "/nowhere",
                                   .sandboxes = true,
                                   .enabled = true };
    OK(store_region_create(w->db, &region, w->a, &w->region, &err));
    OK(store_region_grant(w->db, w->account.account_id, w->region.region, &err));
    OK(store_installation_create(w->db, w->account.account_id, "https://warren.test", "PEM", w->a,
                                 &w->installation, &err));
    OK(store_installation_create(w->db, w->account.account_id, "https://other.test", "PEM", w->a,
                                 &w->other, &err));
    OK(store_principal_create(w->db, w->installation.installation_id, "sandbox:create,sandbox:read",
                              w->a, &w->principal, &err));
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;

    store_conn_free(w->db);
    arena_free(w->a);
    free(w);
    return 0;
}

/* First of all: an empty table is never due, or the driver would never sleep. */
static void nothing_is_due_when_there_is_none(void **state)
{
    struct world *w = *state;
    int64_t in_ms = 7;

    OK(store_operation_next_due(w->db, &in_ms, &err));
    assert_int_equal(in_ms, -1);
}

static struct store_connection signed_in(struct world *w)
{
    struct store_connection_new in = { w->account.account_id,   w->installation.installation_id,
                                       w->owner.user_id,        w->app.app_id,
                                       w->template.template_id, w->region.region };
    struct store_bytes auth = { (const unsigned char *)"sealed-1", 8 };
    struct store_bytes github = { (const unsigned char *)"sealed-g", 8 };
    struct store_connection k;

    OK(store_connection_save(w->db, &in, w->a, &k, &err));
    OK(store_connection_sign_in(w->db, k.connection_id, &auth, &github, w->a, &k, &err));
    assert_string_equal(k.state, "READY");
    return k;
}

static struct store_operation reserve(struct world *w, const struct store_connection *k,
                                      const char *grant, int64_t life_s)
{
    char operation_id[ID_SIZE], sandbox_id[ID_SIZE];
    struct store_operation_new in = {
        .operation_id = operation_id,
        .sandbox_id = sandbox_id,
        .connection_id = k->connection_id,
        .generation = k->auth_generation,
        .grant_life_s = life_s,
        .repository = "o/n",
        .base_branch = "main",
        .model = "m",
        .token_limit = 1000,
        .time_limit_s = 60,
        .prompt_sealed = { (const unsigned char *)"prompt", 6 },
    };
    struct store_operation op;

    id_new(operation_id);
    id_new(sandbox_id);
    sha256_of(grant, strlen(grant), in.grant_digest);
    OK(store_operation_reserve(w->db, &in, w->a, &op, &err));
    assert_int_equal(op.facts.phase, RUN_RESERVED);
    return op;
}

static enum sbx_code claim_as(struct world *w, struct store_conn *db, const char *installation,
                              const char *grant, const char *run_id, struct store_operation *op)
{
    unsigned char digest[SHA256_LEN];
    struct sbx_err err = { 0 };
    SCOPED_ARENA struct arena *a = arena_new();
    enum sbx_code code;

    sha256_of(grant, strlen(grant), digest);
    code = store_operation_claim(db, installation, w->principal.principal_id, digest, run_id, a, op,
                                 &err);
    return code;
}

static void reset_all(struct world *w, const char *connection_id)
{
    struct store_connection k;
    struct store_operation op;
    bool dropped;

    OK(store_connection_reset(w->db, connection_id, &dropped, w->a, &k, &err));
    if (k.operation_id != NULL) {
        OK(store_operation_get(w->db, k.operation_id, w->a, &op, &err));
        OK(store_operation_finish(w->db, op.operation_id, op.version, false, RUN_CAUSE_OWNER_RESET,
                                  w->a, &op, &err));
    }
}

static void a_grant_binds_one_run_of_its_installation_once(void **state)
{
    struct world *w = *state;
    struct store_connection k = signed_in(w);
    struct store_operation op;
    const char *inst = w->installation.installation_id;

    (void)reserve(w, &k, "grant-a", 300);
    assert_int_equal(claim_as(w, w->db, inst, "grant-x", "run-a", &op), SBX_E_GRANT_DENIED);
    assert_int_equal(claim_as(w, w->db, w->other.installation_id, "grant-a", "run-a", &op),
                     SBX_E_GRANT_DENIED);
    assert_int_equal(claim_as(w, w->db, inst, "grant-a", "run-a", &op), SBX_OK);
    assert_int_equal(claim_as(w, w->db, inst, "grant-a", "run-a", &op), SBX_OK);
    assert_int_equal(op.facts.phase, RUN_CLAIMED);
    assert_int_equal(claim_as(w, w->db, inst, "grant-a", "run-b", &op), SBX_E_GRANT_DENIED);
    assert_int_equal(claim_as(w, w->db, w->other.installation_id, "grant-a", "run-a", &op),
                     SBX_E_GRANT_DENIED);
    reset_all(w, k.connection_id);
    /* The run id stays used in this installation, for ever. */
    k = signed_in(w);
    (void)reserve(w, &k, "grant-a2", 300);
    assert_int_equal(claim_as(w, w->db, inst, "grant-a2", "run-a", &op), SBX_E_GRANT_DENIED);
    assert_int_equal(claim_as(w, w->db, inst, "grant-a2", "run-a2", &op), SBX_OK);
    reset_all(w, k.connection_id);
}

static void expiry_kills_the_grant_and_nothing_else(void **state)
{
    struct world *w = *state;
    struct store_connection k = signed_in(w);
    struct store_connection after;
    struct store_operation op;
    bool dropped;

    (void)reserve(w, &k, "grant-b", 0);
    assert_int_equal(claim_as(w, w->db, w->installation.installation_id, "grant-b", "run-c", &op),
                     SBX_E_GRANT_DENIED);
    OK(store_connection_get(w->db, w->account.account_id, w->owner.user_id, k.connection_id, w->a,
                            &after, &err));
    assert_string_equal(after.state, "FENCED");
    assert_int_equal(after.operation_phase, RUN_RESERVED);
    FAILS(SBX_E_CONNECTION_BUSY, store_connection_sign_in(w->db, k.connection_id, &k.auth_sealed,
                                                          &k.github_sealed, w->a, &after, &err));
    /* An unclaimed reservation is dropped, and the sign-in kept. */
    OK(store_connection_reset(w->db, k.connection_id, &dropped, w->a, &after, &err));
    assert_true(dropped);
    assert_string_equal(after.state, "READY");
    assert_int_equal(after.auth_generation, k.auth_generation);
    assert_null(after.operation_id);
    assert_memory_equal(after.auth_sealed.data, "sealed-1", 8);
}

/* As if the grant had been issued so long ago. */
static void grant_of_age(PGconn *raw, const struct store_operation *op, const char *age)
{
    const char *const values[] = { age, op->operation_id };
    PGresult *res = PQexecParams(raw,
                                 "UPDATE sandboxd.operations SET grant_expires_at = "
                                 "clock_timestamp() + interval '5 min' - $1::interval "
                                 "WHERE operation_id = $2",
                                 2, NULL, values, NULL, NULL, 0);

    assert_string_equal(PQcmdTuples(res), "1");
    PQclear(res);
}

static void a_grant_lives_five_minutes_to_the_tenth(void **state)
{
    struct world *w = *state;
    struct store_connection k = signed_in(w);
    struct store_operation given = reserve(w, &k, "grant-t", 300), op;
    const char *inst = w->installation.installation_id;
    enum sbx_code code = SBX_E_INTERNAL;
    PGconn *raw = PQconnectdb(config().url);

    grant_of_age(raw, &given, "5 min 0.1 s");
    assert_int_equal(claim_as(w, w->db, inst, "grant-t", "run-t", &op), SBX_E_GRANT_DENIED);
    /* A machine that takes the tenth for itself has shown nothing: asked again. */
    for (int i = 0; i < 50 && code != SBX_OK; i++) {
        int64_t began = time_mono_ms();

        grant_of_age(raw, &given, "4 min 59.9 s");
        code = claim_as(w, w->db, inst, "grant-t", "run-t", &op);
        assert_true(code == SBX_OK || time_mono_ms() - began > 90);
    }
    assert_int_equal(code, SBX_OK);
    PQfinish(raw);
    reset_all(w, k.connection_id);
}

static void the_fence_is_taken_once(void **state)
{
    struct world *w = *state;
    struct store_connection k = signed_in(w);
    char a[ID_SIZE], b[ID_SIZE];
    struct store_operation_new in = { .operation_id = a,
                                      .sandbox_id = b,
                                      .connection_id = k.connection_id,
                                      .generation = k.auth_generation,
                                      .grant_life_s = 300,
                                      .repository = "o/n",
                                      .base_branch = "main",
                                      .model = "m",
                                      .token_limit = 1,
                                      .time_limit_s = 60 };
    struct store_operation op;

    (void)reserve(w, &k, "grant-d", 300);
    id_new(a);
    id_new(b);
    FAILS(SBX_E_CONNECTION_BUSY, store_operation_reserve(w->db, &in, w->a, &op, &err));
    reset_all(w, k.connection_id);
    k = signed_in(w);
    in.generation =
        k.auth_generation - 1; /* the sign-in that was looked at is not the present one */
    FAILS(SBX_E_CONFLICT, store_operation_reserve(w->db, &in, w->a, &op, &err));
}

static void a_clean_end_adds_one_generation_and_keeps_the_receipt(void **state)
{
    struct world *w = *state;
    struct store_connection k = signed_in(w);
    struct store_connection after;
    struct store_operation op, receipt;
    struct store_bytes staged = { (const unsigned char *)"sealed-2", 8 };
    struct store_operation_move m = { 0 };

    (void)reserve(w, &k, "grant-e", 300);
    assert_int_equal(claim_as(w, w->db, w->installation.installation_id, "grant-e", "run-e", &op),
                     SBX_OK);
    OK(store_operation_by_run(w->db, w->installation.installation_id, "run-e", w->a, &op, &err));
    m = (struct store_operation_move){ .operation_id = op.operation_id,
                                       .version = op.version,
                                       .set_phase = true,
                                       .phase = RUN_TERMINATING,
                                       .set_execution = true,
                                       .execution = RUN_EXEC_EXITED,
                                       .set_exit_code = true,
                                       .exit_code = 0,
                                       .cause = RUN_CAUSE_COMPLETED,
                                       .staged = &staged };
    OK(store_operation_move(w->db, &m, w->a, &op, &err));
    assert_true(op.facts.staged && op.facts.exit_known);
    FAILS(SBX_E_CHANGING,
          store_operation_move(w->db, &m, w->a, &receipt, &err)); /* a version that was */
    OK(store_operation_finish(w->db, op.operation_id, op.version, true, RUN_CAUSE_COMPLETED, w->a,
                              &receipt, &err));
    assert_int_equal(receipt.facts.phase, RUN_TERMINATED);
    assert_true(receipt.auth_preserved);
    assert_null(receipt.prompt_sealed.data);
    OK(store_connection_get(w->db, NULL, NULL, k.connection_id, w->a, &after, &err));
    assert_string_equal(after.state, "READY");
    assert_int_equal(after.auth_generation, k.auth_generation + 1);
    assert_memory_equal(after.auth_sealed.data, "sealed-2", 8);
    /* A later run does not touch the old receipt. */
    (void)reserve(w, &after, "grant-f", 300);
    OK(store_operation_by_run(w->db, w->installation.installation_id, "run-e", w->a, &receipt,
                              &err));
    assert_int_equal(receipt.facts.phase, RUN_TERMINATED);
    reset_all(w, k.connection_id);
}

static void the_owners_reset_wins_over_a_clean_end(void **state)
{
    struct world *w = *state;
    struct store_connection k = signed_in(w);
    struct store_connection after;
    struct store_operation op, receipt;
    struct store_bytes staged = { (const unsigned char *)"sealed-2", 8 };
    struct store_operation_move m = { 0 };
    bool dropped;

    (void)reserve(w, &k, "grant-g", 300);
    assert_int_equal(claim_as(w, w->db, w->installation.installation_id, "grant-g", "run-g", &op),
                     SBX_OK);
    OK(store_operation_by_run(w->db, w->installation.installation_id, "run-g", w->a, &op, &err));
    m = (struct store_operation_move){ .operation_id = op.operation_id,
                                       .version = op.version,
                                       .set_phase = true,
                                       .phase = RUN_TERMINATING,
                                       .set_execution = true,
                                       .execution = RUN_EXEC_EXITED,
                                       .set_exit_code = true,
                                       .cause = RUN_CAUSE_COMPLETED,
                                       .staged = &staged };
    OK(store_operation_move(w->db, &m, w->a, &op, &err));
    OK(store_connection_reset(w->db, k.connection_id, &dropped, w->a, &after, &err));
    assert_false(dropped);
    assert_string_equal(after.state, "RESETTING");
    FAILS(SBX_E_CHANGING, store_operation_finish(w->db, op.operation_id, op.version, true,
                                                 RUN_CAUSE_COMPLETED, w->a, &receipt, &err));
    OK(store_operation_get(w->db, op.operation_id, w->a, &op, &err));
    assert_true(op.facts.owner_reset);
    FAILS(SBX_E_CHANGING, store_operation_finish(w->db, op.operation_id, op.version, true,
                                                 RUN_CAUSE_COMPLETED, w->a, &receipt, &err));
    OK(store_operation_finish(w->db, op.operation_id, op.version, false, RUN_CAUSE_OWNER_RESET,
                              w->a, &receipt, &err));
    assert_false(receipt.auth_preserved);
    OK(store_connection_get(w->db, NULL, NULL, k.connection_id, w->a, &after, &err));
    assert_string_equal(after.state, "ABSENT");
    assert_int_equal(after.auth_generation, k.auth_generation); /* the number is kept */
    assert_null(after.auth_sealed.data);
    assert_null(after.github_sealed.data);
}

/* --- two principals race for one grant -------------------------------------- */

struct racer {
    struct world *w;
    char run_id[16];
    enum sbx_code code;
};

static void *race(void *arg)
{
    struct racer *r = arg;
    struct store_config cfg = config();
    struct store_conn *db = store_conn_new(&cfg, "racer");
    struct store_operation op;

    r->code = claim_as(r->w, db, r->w->installation.installation_id, "grant-r", r->run_id, &op);
    store_conn_free(db);
    return NULL;
}

static void of_many_claims_at_once_one_wins(void **state)
{
    enum { RACERS = 8 };
    struct world *w = *state;
    struct store_connection k = signed_in(w);
    struct racer racers[RACERS] = { 0 };
    pthread_t threads[RACERS];
    int won = 0;

    (void)reserve(w, &k, "grant-r", 300);
    for (int i = 0; i < RACERS; i++) {
        racers[i].w = w;
        (void)snprintf(racers[i].run_id, sizeof(racers[i].run_id), "race-%d", i);
        assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
    }
    for (int i = 0; i < RACERS; i++) {
        (void)pthread_join(threads[i], NULL);
        assert_true(racers[i].code == SBX_OK || racers[i].code == SBX_E_GRANT_DENIED);
        won += racers[i].code == SBX_OK;
    }
    assert_int_equal(won, 1);
    reset_all(w, k.connection_id);
}

static void due_rows_are_leased_and_found_again(void **state)
{
    struct world *w = *state;
    struct store_connection k = signed_in(w);
    struct store_operation op;
    struct store_operations due = { 0 };
    struct store_operation_move m = { .set_phase = true, .phase = RUN_PREPARING, .next_in_ms = 0 };
    int64_t in_ms = 0;

    (void)reserve(w, &k, "grant-h", 300);
    assert_int_equal(claim_as(w, w->db, w->installation.installation_id, "grant-h", "run-h", &op),
                     SBX_OK);
    OK(store_operation_by_run(w->db, w->installation.installation_id, "run-h", w->a, &op, &err));
    m.operation_id = op.operation_id;
    m.version = op.version;
    OK(store_operation_move(w->db, &m, w->a, &op, &err));
    OK(store_operation_claim_due(w->db, "me", 60000, 10, w->a, &due, &err));
    assert_int_equal(due.count, 1);
    assert_string_equal(due.rows[0].operation_id, op.operation_id);
    OK(store_operation_claim_due(w->db, "other", 60000, 10, w->a, &due, &err));
    assert_int_equal(due.count, 0);
    OK(store_operation_next_due(w->db, &in_ms, &err));
    assert_true(in_ms > 30000 && in_ms <= 60000);
    OK(store_operation_release(w->db, op.operation_id, "other", 0, &err)); /* not theirs */
    OK(store_operation_claim_due(w->db, "other", 60000, 10, w->a, &due, &err));
    assert_int_equal(due.count, 0);
    OK(store_operation_release(w->db, op.operation_id, "me", 0, &err));
    OK(store_operation_claim_due(w->db, "other", 60000, 10, w->a, &due, &err));
    assert_int_equal(due.count, 1);
    reset_all(w, k.connection_id);
}

static void the_owner_must_still_be_a_writing_member(void **state)
{
    struct world *w = *state;
    struct store_connection k = signed_in(w);
    struct store_operation op = reserve(w, &k, "grant-i", 300);
    struct store_installation inst;
    struct store_member member;
    bool ok = false;

    OK(store_operation_owner_ok(w->db, op.operation_id, &ok, &err));
    assert_true(ok);
    OK(store_installation_activate(w->db, w->installation.installation_id, false, w->a, &inst,
                                   &err));
    OK(store_operation_owner_ok(w->db, op.operation_id, &ok, &err));
    assert_false(ok);
    OK(store_installation_activate(w->db, w->installation.installation_id, true, w->a, &inst,
                                   &err));
    OK(store_member_add(w->db, w->account.account_id, w->owner.user_id, "member", w->a, &member,
                        &err));
    OK(store_operation_owner_ok(w->db, op.operation_id, &ok, &err));
    assert_false(ok);
    OK(store_member_add(w->db, w->account.account_id, w->owner.user_id, "technical", w->a, &member,
                        &err));
    reset_all(w, k.connection_id);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_due_when_there_is_none),
        cmocka_unit_test(a_grant_binds_one_run_of_its_installation_once),
        cmocka_unit_test(expiry_kills_the_grant_and_nothing_else),
        cmocka_unit_test(a_grant_lives_five_minutes_to_the_tenth),
        cmocka_unit_test(the_fence_is_taken_once),
        cmocka_unit_test(a_clean_end_adds_one_generation_and_keeps_the_receipt),
        cmocka_unit_test(the_owners_reset_wins_over_a_clean_end),
        cmocka_unit_test(of_many_claims_at_once_one_wins),
        cmocka_unit_test(due_rows_are_leased_and_found_again),
        cmocka_unit_test(the_owner_must_still_be_a_writing_member),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
