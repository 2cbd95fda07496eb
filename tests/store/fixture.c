#include "store/fixture.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static PGconn *raw_connect(const char *url)
{
    PGconn *pg = PQconnectdb(url);

    if (PQstatus(pg) != CONNECTION_OK)
        fail_msg("tests need a cluster: %s", PQerrorMessage(pg));
    return pg;
}

char *fixture_database(struct arena *a)
{
    const char *admin = getenv("SBX_TEST_PG");
    char id[ID_SIZE];

    if (!admin)
        fail_msg("run this by tests/lib/pg.sh run");
    id_new(id);
    PGconn *pg = raw_connect(admin);
    PGresult *res = PQexec(pg, arena_printf(a, "CREATE DATABASE t%s", id));
    assert_int_equal(PQresultStatus(res), PGRES_COMMAND_OK);
    PQclear(res);
    PQfinish(pg);
    return arena_printf(a, "%s dbname=t%s", admin, id);
}

static int world_make(void **state, int timeout_ms)
{
    struct world *w = mem_zalloc(sizeof(*w));
    struct store_migrated done;

    w->a = arena_new();
    w->url = fixture_database(w->a);
    w->cfg = (struct store_config){ .url = w->url,
                                    .statement_timeout_ms = timeout_ms,
                                    .connect_timeout_ms = timeout_ms };
    w->db = store_conn_new(&w->cfg, "test");
    OK(store_migrate(w->db, STORE_MIGRATIONS, &done, &err));
    w->raw = raw_connect(w->url);
    w->region = "here-1";
    struct store_region region = {
        .region = w->region, .socket = "/nowhere/gateway.sock", .sandboxes = true, .enabled = true
    };
    OK(store_region_create(w->db, &region, w->a, &region, &err));
    world_fresh(w);
    *state = w;
    return 0;
}

int world_new(void **state)
{
    return world_make(state, 30000); /* a busy machine is no fault */
}

int world_new_quick(void **state)
{
    return world_make(state, 0);
}

int world_free(void **state)
{
    struct world *w = *state;

    PQfinish(w->raw);
    store_conn_free(w->db);
    arena_free(w->a);
    free(w);
    return 0;
}

struct store_revision world_revision(const struct world *w)
{
    return (struct store_revision){
        .account_id = w->account.account_id,
        .template_id = w->template.template_id,
        .image_digest = "library/tiny@sha256:"
                        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        .resources = "{\"zClouds\": 1}",
        .z_clouds = 1,
        .persistence = SANDBOX_PERSISTENCE_EPHEMERAL,
        .volume_size_mb = 10240,
        .snapshot_max_mb = 2048,
        .idle_timeout_s = 1800,
        .hard_lifetime_s = 3600,
        .suspended_retention_s = 604800,
    };
}

void world_fresh(struct world *w)
{
    char id[ID_SIZE];

    id_new(id);
    OK(store_account_create(w->db, "Acme", w->a, &w->account, &err));
    OK(store_user_create(w->db, arena_printf(w->a, "%s@example.org", id), NULL, w->a, &w->user,
                         &err));
    struct store_member member;
    OK(store_member_add(w->db, w->account.account_id, w->user.user_id, "technical", w->a, &member,
                        &err));
    OK(store_app_create(w->db, w->account.account_id, "app", w->a, &w->app, &err));
    OK(store_region_grant(w->db, w->account.account_id, w->region, &err));
    struct store_template_save save = { .account_id = w->account.account_id,
                                        .name = "Tiny",
                                        .slug_base = "tiny",
                                        .enabled = -1,
                                        .deprecated = -1 };
    bool created;
    OK(store_template_save(w->db, &save, w->a, &w->template, &created, &err));
    struct store_revision revision = world_revision(w);
    OK(store_revision_create(w->db, &revision, w->a, &w->revision, &err));
    w->caller = arena_printf(w->a, "user:%s", w->user.user_id);
}

struct store_sandbox_new world_create_in(const struct world *w, const char *key)
{
    char id[ID_SIZE];

    id_new(id);
    return (struct store_sandbox_new){
        .sandbox_id = arena_strdup(w->a, id),
        .account_id = w->account.account_id,
        .app_id = w->app.app_id,
        .template_id = w->template.template_id,
        .region = w->region,
        .profile = "TESS_CODE_TURN",
        .owner_kind = "EXTERNAL_SESSION",
        .owner_id = "owner",
        .caller_key = w->caller,
        .idempotency_key = key ? key : arena_printf(w->a, "key-%s", id),
        .request_id = "request-1",
    };
}

struct store_sandbox world_create(struct world *w)
{
    struct store_sandbox_new in = world_create_in(w, NULL);
    struct store_created out;

    OK(store_sandbox_create(w->db, &in, w->a, &out, &err));
    assert_true(out.was_created);
    return out.sandbox;
}

struct store_move world_move_in(const struct store_sandbox *s, enum sandbox_status to)
{
    return (struct store_move){ .sandbox_id = s->sandbox_id,
                                .generation = s->generation,
                                .from = SANDBOX_BIT(s->status),
                                .to = to,
                                .cause = "test",
                                .actor = "test" };
}

struct store_sandbox world_move(struct world *w, const struct store_sandbox *s,
                                enum sandbox_status to)
{
    struct store_move move = world_move_in(s, to);
    struct store_sandbox out;

    OK(store_sandbox_move(w->db, &move, w->a, &out, &err));
    return out;
}

struct store_sandbox world_ready(struct world *w)
{
    struct store_sandbox s = world_create(w);

    s = world_move(w, &s, SANDBOX_ALLOCATING);
    s = world_move(w, &s, SANDBOX_STARTING);
    return world_move(w, &s, SANDBOX_READY);
}

struct store_sandbox world_get(struct world *w, const char *sandbox_id)
{
    struct store_sandbox s;

    OK(store_sandbox_get(w->db, NULL, sandbox_id, w->a, &s, &err));
    return s;
}

struct store_execution_new world_execution(const struct world *w, const struct store_sandbox *s)
{
    char id[ID_SIZE];

    id_new(id);
    return (struct store_execution_new){ .execution_id = arena_strdup(w->a, id),
                                         .account_id = s->account_id,
                                         .sandbox_id = s->sandbox_id,
                                         .instance = "instance-1",
                                         .actor = w->caller,
                                         .request_id = "request-2",
                                         .timeout_ms = 120000 };
}

const char *world_sql(struct world *w, const char *sql)
{
    PGresult *res = PQexec(w->raw, sql);
    ExecStatusType st = PQresultStatus(res);

    if (st != PGRES_COMMAND_OK && st != PGRES_TUPLES_OK)
        fail_msg("%s: %s", sql, PQerrorMessage(w->raw));
    const char *value = PQntuples(res) > 0 ? arena_strdup(w->a, PQgetvalue(res, 0, 0)) : "";
    PQclear(res);
    return value;
}

const char *world_sql_fails(struct world *w, const char *sql)
{
    PGresult *res = PQexec(w->raw, sql);
    const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);

    if (!state)
        fail_msg("this worked: %s", sql);
    state = arena_strdup(w->a, state);
    PQclear(res);
    return state;
}

void world_kill(struct world *w, const char *name)
{
    world_sql(w, arena_printf(w->a,
                              "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                              "WHERE application_name = '%s'",
                              name));
}

void *world_kill_when_waiting(void *world)
{
    struct world mine = *(struct world *)world, *w = &mine;

    mine.a = arena_new(); /* an arena is of one thread */
    for (int i = 0; i < 2000; i++) {
        const char *n = world_sql(w, "SELECT count(*) FROM pg_stat_activity "
                                     "WHERE application_name = 'test' "
                                     "AND wait_event_type = 'Lock'");
        if (strcmp(n, "0") != 0)
            break;
        (void)poll(NULL, 0, 2);
    }
    world_kill(w, "test");
    world_sql(w, "ROLLBACK");
    arena_free(mine.a);
    return NULL;
}

struct together {
    struct world *w;
    int i;
    void (*fn)(int i, struct store_conn *db, void *arg);
    void *arg;
    pthread_barrier_t *start;
};

static void *together_main(void *p)
{
    struct together *t = p;
    struct store_config cfg = t->w->cfg;
    int64_t now;

    cfg.statement_timeout_ms = 30000; /* the threads wait for each other */
    cfg.connect_timeout_ms = 30000;
    struct store_conn *db = store_conn_new(&cfg, "together");
    OK(store_conn_check(db, &now, &err));
    pthread_barrier_wait(t->start);
    t->fn(t->i, db, t->arg);
    store_conn_free(db);
    return NULL;
}

void world_together(struct world *w, int n, void (*fn)(int i, struct store_conn *db, void *arg),
                    void *arg)
{
    struct together *t = arena_zalloc(w->a, (size_t)n * sizeof(*t));
    pthread_t *threads = arena_zalloc(w->a, (size_t)n * sizeof(*threads));
    pthread_barrier_t start;

    pthread_barrier_init(&start, NULL, (unsigned)n);
    for (int i = 0; i < n; i++) {
        t[i] = (struct together){ .w = w, .i = i, .fn = fn, .arg = arg, .start = &start };
        assert_int_equal(pthread_create(&threads[i], NULL, together_main, &t[i]), 0);
    }
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&start);
}
