#ifndef STORE_STORE_H
#define STORE_STORE_H

/* PostgreSQL: connections, transactions, migrations, notices.  The aggregates are in
 * store/identity.h (accounts, users, members, tokens, apps, issuers), store/places.h
 * (regions, backends, registries), store/templates.h, store/sandboxes.h,
 * store/executions.h, store/volumes.h, store/warm.h and store/trail.h (audit, events,
 * settings, counts).
 *
 * Conventions of all of them:
 *  - Rows come out as plain structs in the caller's arena.  A text that has no value
 *    is NULL, a time that has none is 0.  Times are unix milliseconds of the
 *    database's clock, which is the only one that decides anything (contract 1).
 *  - A connection belongs to one thread at a time.
 *  - Every call may fail with SBX_E_UNAVAILABLE: the database is away, slower than the
 *    deadline, or the outcome of a write is not known (the message says which; whoever
 *    wrote reads again).  The connection is then closed and made anew by a later call.
 *  - SBX_E_CONFLICT: a serialization failure or deadlock that did not go away in
 *    STORE_TRIES tries.  SBX_E_INTERNAL: our own statement or schema is wrong.
 *  - Outputs are untouched on failure. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "sbx/error.h"

enum {
    STORE_TRIES = 5, /* of one transaction that met a conflict */
    STORE_CONNECT_TIMEOUT_MS = 1500,
    STORE_STATEMENT_TIMEOUT_MS = 1500, /* default; also set in the session */
    STORE_LIST_MAX = 500,              /* rows of one list call */
    STORE_BATCH_MAX = 256,             /* statements of one pipeline */
};

struct store_config {
    const char *url; /* libpq connection string or URI; may hold a password: never logged */
    int statement_timeout_ms; /* 0: STORE_STATEMENT_TIMEOUT_MS */
    int connect_timeout_ms;   /* 0: STORE_CONNECT_TIMEOUT_MS */
};

/* Bytes in an arena; data is NULL when absent. */
struct store_bytes {
    const unsigned char *data;
    size_t len;
};

/* --- connections ------------------------------------------------------- */

struct store_conn;

/* Makes no connection yet: the first call does, and later ones again after a loss. `name` (at most
 * 32 characters) is seen in pg_stat_activity. The texts of cfg are copied. */
struct store_conn *store_conn_new(const struct store_config *cfg, const char *name);
void store_conn_free(struct store_conn *db); /* NULL is allowed */
/* What libpq said of the last connect that failed, "" when none did: it may name host, database and
 * user, so it is for the log and not for a client. Valid until the next call with db. */
const char *store_conn_trouble(const struct store_conn *db);
/* Everything until the next call of this must end within ms from now (0: no common bound, each
 * statement has its own). A handler sets it first, so that an answer comes in time (case 44). */
void store_conn_budget(struct store_conn *db, int64_t ms);
/* It is connected now: after SBX_E_UNAVAILABLE, false says that the database is away, and not what
 * a handler asked elsewhere. Asks nobody. */
bool store_conn_up(const struct store_conn *db);
/* Connects if need be and asks the server for its time. */
MUST_USE enum sbx_code store_conn_check(struct store_conn *db, int64_t *now_ms,
                                        struct sbx_err *err);

/* --- together: what several requests ask, in one round trip ----------------
 * A ..._later call (store/sandboxes.h) leaves its statement with the connection; store_settle runs
 * all that are left there, reads in one pipeline, writes in another with one commit. At most
 * STORE_BATCH_MAX are left at a time, and arguments, arena and out live until they are settled. */

struct store_later; /* in the arena of its call */
/* False: the database was not reached, or did not answer in time; asking again will not help. */
bool store_settle(struct store_conn *db);
/* False: what became of it is not known (another one failed, the connection broke): nothing was
 * written to out, and the caller asks again by the call that runs it alone, which finds what was
 * done already. */
bool store_later_done(const struct store_later *l);
/* Of one that is done: as the call that runs it alone would have returned. */
MUST_USE enum sbx_code store_later_code(const struct store_later *l, struct sbx_err *err);

/* A bounded set of connections for callers that have no thread of their own. */
struct store_pool;
struct store_pool *store_pool_new(const struct store_config *cfg, const char *name, size_t size);
void store_pool_free(struct store_pool *pool); /* all connections must be back; NULL is allowed */
/* Waits at most wait_ms for one; SBX_E_BUSY when none came free. */
MUST_USE enum sbx_code store_pool_take(struct store_pool *pool, int64_t wait_ms,
                                       struct store_conn **out, struct sbx_err *err);
void store_pool_give(struct store_pool *pool, struct store_conn *db);

/* Runs fn in a transaction, again from the start (at most STORE_TRIES times, with jitter) when
 * fn or the commit fails by a conflict.  fn must have no effect outside the database and its own
 * arg.  When fn fails, everything is rolled back. A connection lost at COMMIT is
 * SBX_E_UNAVAILABLE: whether it was done is not known. */
MUST_USE enum sbx_code store_tx(struct store_conn *db,
                                enum sbx_code (*fn)(struct store_conn *db, void *arg,
                                                    struct sbx_err *err),
                                void *arg, struct sbx_err *err);

/* --- migrations -------------------------------------------------------- */

struct store_migration {
    int number;
    const char *name; /* "0001_base" */
    const char *sql;
};
/* Those embedded at build time, in order, ended by number 0. */
extern const struct store_migration STORE_MIGRATIONS[];

struct store_migrated {
    int schema;  /* highest number that is applied now */
    int applied; /* how many this call applied */
    int ahead;   /* how many the database has that the list does not know */
};

/* Applies what is missing of list, each in its own transaction, under an advisory lock (two at
 * once: the second waits, then finds nothing to do). A migration never waits long for a table's
 * lock, so others go on meanwhile; SBX_E_UNAVAILABLE when it was not free in some 30 s. What the
 * list does not know came from a newer program and only added.  SBX_E_CONFLICT: an applied one was
 * changed, or an unknown one is named *_contract (it took away what this program uses). */
MUST_USE enum sbx_code store_migrate(struct store_conn *db, const struct store_migration *list,
                                     struct store_migrated *out, struct sbx_err *err);

struct store_schema {
    int have, want;         /* the newest migration: all up to it are applied; that we know */
    int ahead;              /* migrations of a newer program */
    bool idempotency_index; /* the unique index of creates is there and valid */
};
/* At start.  SBX_E_UNAVAILABLE when the database is away; a schema that was never made has 0.
 * SBX_E_CONFLICT as store_migrate says. */
MUST_USE enum sbx_code store_schema_check(struct store_conn *db, struct store_schema *out,
                                          struct sbx_err *err);

/* --- notices between control planes ------------------------------------ */

enum store_notice_kind {
    STORE_NOTICE_UP = 1,  /* the LISTEN connection was (re)made: notices may have been missed */
    STORE_NOTICE_DOWN,    /* it was lost: empty and bypass what notices keep right (contract 1) */
    STORE_NOTICE_WAKE,    /* some row is due */
    STORE_NOTICE_REVOKED, /* payload: token id, or "*" for all */
    STORE_NOTICE_CONFIG,  /* regions, issuers, settings changed; payload names the kind */
};
struct store_notice {
    enum store_notice_kind kind;
    const char *payload; /* for the call */
};

/* The one LISTEN connection of a process.  One thread: poll store_listener_fd for reading and call
 * store_listener_pump when it is readable and at least every second; it reconnects by itself
 * (never blocks: connecting is asynchronous). */
struct store_listener;
struct store_listener *store_listener_new(const struct store_config *cfg);
void store_listener_free(struct store_listener *l);    /* NULL is allowed */
int store_listener_fd(const struct store_listener *l); /* -1 while there is none; may change */
/* POLLIN or POLLOUT: what to poll the fd for now. */
short store_listener_events(const struct store_listener *l);
bool store_listener_up(const struct store_listener *l); /* any thread */
void store_listener_pump(struct store_listener *l,
                         void (*on)(void *arg, const struct store_notice *notice), void *arg);

/* Wakes the reconcilers of all control planes.  Kicks are coalesced: a thread of its own with a
 * connection of its own sends at most one NOTIFY at a time (a NOTIFY inside each insert more than
 * halved the inserts when measured). Lost kicks are harmless: polling is the truth. */
struct store_waker;
MUST_USE enum sbx_code store_waker_start(const struct store_config *cfg, struct store_waker **out,
                                         struct sbx_err *err);
void store_waker_kick(struct store_waker *w); /* any thread, never blocks */
void store_waker_stop(struct store_waker *w); /* NULL is allowed */

/* "table.column:row id", the context that a sealed value is bound to (base/seal.h). */
const char *store_seal_context(struct arena *a, const char *table_column, const char *row_id);

#endif
