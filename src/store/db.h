#ifndef STORE_DB_H
#define STORE_DB_H

/* Inside the store only: statements, parameters, rows, and the one place that talks to libpq. */

#include <libpq-fe.h>

#include "domain/sandbox_state.h"
#include "sbx/attr.h"
#include "store/store.h"

enum {
    STORE_ARGS_MAX = 40,
    STORE_NUMBER_SIZE = 24,
    STORE_SET_SIZE = 160, /* a set of statuses as an array literal */
};

#define STORE_GROUP_LOCK_MS "100"

/* One prepared statement. Each file of the store has one const table of them; statements.c lists
 * the tables, and a connection prepares them all before its first use. */
struct store_stmt {
    const char *name;
    const char *sql;
    int args;
    /* May be repeated when the connection was lost under it: it only reads, or doing it twice is
     * the same as once. */
    bool repeatable;
};

extern const struct store_stmt STORE_STMT_IDENTITY[];
extern const size_t STORE_STMT_IDENTITY_COUNT;
extern const struct store_stmt STORE_STMT_TOKENS[];
extern const size_t STORE_STMT_TOKENS_COUNT;
extern const struct store_stmt STORE_STMT_PLACES[];
extern const size_t STORE_STMT_PLACES_COUNT;
extern const struct store_stmt STORE_STMT_TEMPLATES[];
extern const size_t STORE_STMT_TEMPLATES_COUNT;
extern const struct store_stmt STORE_STMT_SANDBOXES[];
extern const size_t STORE_STMT_SANDBOXES_COUNT;
extern const struct store_stmt STORE_STMT_MOVES[];
extern const size_t STORE_STMT_MOVES_COUNT;
extern const struct store_stmt STORE_STMT_LEASES[];
extern const size_t STORE_STMT_LEASES_COUNT;
extern const struct store_stmt STORE_STMT_EXECUTIONS[];
extern const size_t STORE_STMT_EXECUTIONS_COUNT;
extern const struct store_stmt STORE_STMT_VOLUMES[];
extern const size_t STORE_STMT_VOLUMES_COUNT;
extern const struct store_stmt STORE_STMT_WARM[];
extern const size_t STORE_STMT_WARM_COUNT;
extern const struct store_stmt STORE_STMT_TRAIL[];
extern const size_t STORE_STMT_TRAIL_COUNT;
extern const struct store_stmt STORE_STMT_INSTALLATIONS[];
extern const size_t STORE_STMT_INSTALLATIONS_COUNT;
extern const struct store_stmt STORE_STMT_CONNECTIONS[];
extern const size_t STORE_STMT_CONNECTIONS_COUNT;
extern const struct store_stmt STORE_STMT_OPERATIONS[];
extern const size_t STORE_STMT_OPERATIONS_COUNT;
extern const struct store_stmt STORE_STMT_WORKERS[];
extern const size_t STORE_STMT_WORKERS_COUNT;

/* --- parameters, in order ---------------------------------------------- */

struct store_args {
    const char *values[STORE_ARGS_MAX];
    int lengths[STORE_ARGS_MAX];
    int formats[STORE_ARGS_MAX];
    char numbers[STORE_ARGS_MAX][STORE_NUMBER_SIZE];
    char set[STORE_SET_SIZE]; /* at most one set in a statement */
    int count;
};

void store_arg_text(struct store_args *q, const char *text); /* NULL: null */
void store_arg_int(struct store_args *q, int64_t n);
void store_arg_null_int(struct store_args *q, int64_t n); /* 0: null */
void store_arg_bool(struct store_args *q, bool b);
void store_arg_bytes(struct store_args *q, const void *data, size_t len); /* NULL: null */
void store_arg_statuses(struct store_args *q, uint32_t set);

/* --- rows -------------------------------------------------------------- */

static inline void store_result_free(PGresult **res)
{
    PQclear(*res);
}
#define SCOPED_RESULT SCOPED(store_result_free)

/* Reads one row's columns in order, each by the reader of its type: text or jsonb; integer, bigint
 * or timestamptz (unix milliseconds); boolean; bytea. */
struct store_row {
    const PGresult *res;
    struct arena *a;
    int row;
    int col;
};
const char *store_row_text(struct store_row *r); /* NULL for null */
int64_t store_row_int(struct store_row *r);      /* 0 for null */
int store_row_int32(struct store_row *r);
bool store_row_bool(struct store_row *r);
struct store_bytes store_row_bytes(struct store_row *r);

/* Reads the columns of a row, in their order, into the struct that `out` is. */
typedef void store_read(struct store_row *r, void *out);
/* The first `count` rows of a result, each read into one element of `size` bytes: an array of the
 * arena, never NULL. */
void *store_rows(const PGresult *res, size_t count, struct arena *a, store_read *read, size_t size);

/* How many rows an INSERT, UPDATE or DELETE touched. */
int store_changed(PGresult *res);

/* --- running ----------------------------------------------------------- */

/* Runs one statement, on its own or in the transaction that is open. *out is set on success only
 * and holds what it returned. Constraint failures: 23505 SBX_E_CONFLICT, 23503 SBX_E_NOT_FOUND. */
MUST_USE enum sbx_code store_run(struct store_conn *db, const struct store_stmt *stmt,
                                 const struct store_args *args, PGresult **out,
                                 struct sbx_err *err);
/* Same, for a statement that must return exactly one row: SBX_E_NOT_FOUND with `what` otherwise. */
MUST_USE enum sbx_code store_run_one(struct store_conn *db, const struct store_stmt *stmt,
                                     const struct store_args *args, const char *what,
                                     PGresult **out, struct sbx_err *err);
/* Same, and reads the row into *out, its texts into the arena. SBX_E_NOT_FOUND also says `what`
 * when a key names a row that is not there. */
MUST_USE enum sbx_code store_one(struct store_conn *db, const struct store_stmt *stmt,
                                 const struct store_args *args, const char *what, struct arena *a,
                                 store_read *read, void *out, struct sbx_err *err);
/* One page of a list: adds `after` and limit + 1 to args, runs, and says how many rows of the page
 * there are and whether there is one more. limit is brought into 1..STORE_LIST_MAX. */
MUST_USE enum sbx_code store_page(struct store_conn *db, const struct store_stmt *stmt,
                                  struct store_args *args, const char *after, int limit,
                                  PGresult **out, size_t *count, bool *more, struct sbx_err *err);
/* The same statement count times in one pipeline and one commit: all of them or, on failure, none.
 * out[0..count) are set on success only and are the caller's to clear. */
MUST_USE enum sbx_code store_run_many(struct store_conn *db, const struct store_stmt *stmt,
                                      const struct store_args *args, size_t count, PGresult **out,
                                      struct sbx_err *err);
/* Same, where nothing that the statement returns is wanted. */
MUST_USE enum sbx_code store_do_many(struct store_conn *db, const struct store_stmt *stmt,
                                     const struct store_args *args, size_t count,
                                     struct sbx_err *err);
/* One text as it is, for migrations and BEGIN, COMMIT, ROLLBACK: may hold several statements. */
MUST_USE enum sbx_code store_run_text(struct store_conn *db, const char *sql, PGresult **out,
                                      struct sbx_err *err);
/* A statement of (account, up_to) whose one value is a count. */
MUST_USE enum sbx_code store_count(struct store_conn *db, const struct store_stmt *stmt,
                                   const char *account_id, int up_to, int *out,
                                   struct sbx_err *err);
/* As store_run, not prepared, by a connection whose schema may be older than the program. */
MUST_USE enum sbx_code store_run_once(struct store_conn *db, const char *sql,
                                      const struct store_args *args, PGresult **out,
                                      struct sbx_err *err);
/* The next statement of this connection may take ms (migrations wait for the lock). */
void store_conn_patience(struct store_conn *db, int64_t ms);

/* --- what several requests ask, in one round trip (store.h, store_settle) --- */

/* Reads what one statement answered into out: its code, as the call that runs it alone. */
typedef enum sbx_code store_read_fn(PGresult *res, struct arena *a, void *out, struct sbx_err *err);

struct store_later {
    const struct store_stmt *stmt;
    struct store_args args; /* the texts are the caller's, until it is settled */
    const char *order;      /* of writes: whose row they lock first; NULL: it only reads */
    struct arena *a;
    store_read_fn *read;
    void *out;
    bool done;
    struct sbx_err err;
};
struct store_later_list {
    struct store_later *items[STORE_BATCH_MAX];
    size_t count;
};
struct store_later_list *store_conn_later(struct store_conn *db);

/* Leaves stmt with the connection; the caller adds its arguments. */
struct store_later *store_later_new(struct store_conn *db, const struct store_stmt *stmt,
                                    struct arena *a, store_read_fn *read, void *out);

/* All of items in one pipeline and one commit, tried once. res[i] is the caller's where it is known
 * what the statement did, else NULL: of reads those that came before a failure, of writes all or
 * none. Writes wait for a row's lock no longer than STORE_GROUP_LOCK_MS. False: the database was
 * not reached, or did not answer in time. */
bool store_run_group(struct store_conn *db, struct store_later *const *items, size_t count,
                     bool writes, PGresult **res);

/* Connecting without blocking, shared with the listener. */
PGconn *store_connect_start(const char *url, const char *name);
/* statement_timeout and what else a session of ours has; 0: none. */
extern const char STORE_SESSION_SQL[];
/* Raises what the server or libpq said, without any value of a parameter. */
MUST_USE enum sbx_code store_raise(const PGresult *res, const char *what, struct sbx_err *err);

/* Columns of a sandbox, of the alias s; read by store_sandbox_row in the same order. */
/* A time as it is read: store_row_int gives unix milliseconds, 0 for null. */
#define STORE_MS(column) column
/* A time as a number, where SQL reckons with it. */
#define STORE_MS_NUMBER(column) "floor(extract(epoch FROM " column ") * 1000)::bigint"
/* clang-format off */
#define STORE_SANDBOX_COLUMNS                                                                      \
    "s.sandbox_id, s.account_id, s.app_id, s.template_id, s.revision_id, s.revision, s.region, "   \
    "s.profile, s.owner_kind, s.owner_id, s.external_session_id, s.caller_key, s.request_id, "     \
    "s.persistence_mode, s.volume_name, s.mount_path, " STORE_MS("s.last_snapshot_at") ", "        \
    "s.last_snapshot_bytes, s.last_snapshot_error, s.restore_failed, s.pause_exclude, "            \
    "s.pause_max_mb, s.pause_force, s.resources, s.personal, s.is_warm, s.warm_id, s.status, "     \
    "s.previous_status, s.desired_status, s.generation, s.status_reason, s.error_code, "           \
    "s.termination_reason, s.running, s.holds_compute, s.operation_id, s.idle_timeout_s, "         \
    "s.suspended_retention_s, " STORE_MS("s.created_at") ", " STORE_MS("s.updated_at") ", "        \
    STORE_MS("s.claimed_at") ", " STORE_MS("s.ready_at") ", " STORE_MS("s.last_active_at") ", "    \
    STORE_MS("s.suspended_at") ", " STORE_MS("s.resumed_at") ", " STORE_MS("s.failed_at") ", "     \
    STORE_MS("s.terminated_at") ", " STORE_MS("s.expires_at") ", "                                 \
    STORE_MS("s.status_since") ", " STORE_MS("s.deadline_at") ", "                                 \
    STORE_MS("s.next_action_at") ", s.lease_owner, " STORE_MS("s.lease_until") ", s.attempt, "     \
    "s.last_error, " STORE_MS("clock_timestamp()")
/* clang-format on */

/* A newer event takes an older one's place in its ring. */
#define STORE_EVENT_RING                                                                           \
    "ON CONFLICT (sandbox_id, slot) DO UPDATE SET at = excluded.at, "                              \
    "generation = excluded.generation, from_status = excluded.from_status, "                       \
    "to_status = excluded.to_status, cause = excluded.cause, actor = excluded.actor, "             \
    "request_id = excluded.request_id, reason = excluded.reason"

struct store_sandbox;
struct store_sandboxes;
void store_sandbox_row(struct store_row *r, struct store_sandbox *out);
void store_sandbox_rows(const PGresult *res, struct arena *a, struct store_sandboxes *out);

/* Says in other words what a statement below has already raised: the first error gives way. */
#define store_say(err, ...) (*(err) = (struct sbx_err){ 0 }, err_set((err), __VA_ARGS__))

#endif
