#ifndef TESTS_STORE_FIXTURE_H
#define TESTS_STORE_FIXTURE_H

/* A world for store tests: a database of the test's own on the cluster that pg.sh made, with an
 * account, its user, app, region, template and revision. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <libpq-fe.h>

#include "base/id.h"
#include "store/executions.h"
#include "store/identity.h"
#include "store/places.h"
#include "store/sandboxes.h"
#include "store/templates.h"
#include "store/trail.h"
#include "store/volumes.h"
#include "store/warm.h"

struct world {
    struct arena *a;
    char *url; /* of the test's database */
    struct store_config cfg;
    struct store_conn *db;
    PGconn *raw; /* for what no function of ours does */
    struct store_account account;
    struct store_user user;
    struct store_app app;
    struct store_template template;
    struct store_revision revision;
    const char *region;
    const char *caller; /* "user:<id>" */
};

#define OK(call)                                                                                   \
    do {                                                                                           \
        struct sbx_err err = { 0 };                                                                \
        enum sbx_code code_ = (call);                                                              \
        if (code_ != SBX_OK)                                                                       \
            fail_msg("%s: %s %s", #call, sbx_code_name(code_), err.msg);                           \
    } while (0)
#define FAILS(want, call)                                                                          \
    do {                                                                                           \
        struct sbx_err err = { 0 };                                                                \
        enum sbx_code code_ = (call);                                                              \
        if (code_ != (want))                                                                       \
            fail_msg("%s: %s, not %s: %s", #call, sbx_code_name(code_), sbx_code_name(want),       \
                     err.msg);                                                                     \
    } while (0)

/* A new empty database; its connection string. */
char *fixture_database(struct arena *a);
/* cmocka set-up and tear-down of a whole group: *state is a struct world. */
int world_new(void **state);
int world_new_quick(void **state); /* with the time limits of the product */
int world_free(void **state);
/* Another account, app, template and revision in the same database: nothing of the one before. */
void world_fresh(struct world *w);
/* What the revision of a template is made from when nothing else is said. */
struct store_revision world_revision(const struct world *w);
/* A create with everything filled in; key NULL: a new one. */
struct store_sandbox_new world_create_in(const struct world *w, const char *key);
struct store_sandbox world_create(struct world *w);
/* A move that must happen. */
struct store_sandbox world_move(struct world *w, const struct store_sandbox *s,
                                enum sandbox_status to);
struct store_sandbox world_ready(struct world *w); /* created and moved to READY */
struct store_move world_move_in(const struct store_sandbox *s, enum sandbox_status to);
struct store_sandbox world_get(struct world *w, const char *sandbox_id);
struct store_execution_new world_execution(const struct world *w, const struct store_sandbox *s);

/* Runs SQL that must work; the first value of the first row, or "". */
const char *world_sql(struct world *w, const char *sql);
/* SQL that must fail; its SQLSTATE. */
const char *world_sql_fails(struct world *w, const char *sql);

/* Ends the backend of every connection with this name: "test" is the world's own. */
void world_kill(struct world *w, const char *name);
/* A thread's main; its argument is the world, whose raw connection holds a lock in a transaction:
 * kills "test" once it waits for a lock, then rolls the transaction back. Gives NULL. */
void *world_kill_when_waiting(void *world);

/* fn(i, arg) in n threads at once, each with a connection of its own. */
void world_together(struct world *w, int n, void (*fn)(int i, struct store_conn *db, void *arg),
                    void *arg);

#endif
