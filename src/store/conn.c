#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "base/time.h"
#include "store/conn_impl.h"

enum {
    RETRY_AFTER_MS = 200,  /* after a failed connect, calls fail at once for so long */
    CLIENT_GRACE_MS = 100, /* the server's own time-out speaks first */
};

const char STORE_SESSION_SQL[] =
    "SELECT set_config('search_path', 'pg_catalog', false), set_config('TimeZone', 'UTC', false), "
    "set_config('statement_timeout', $1, false), set_config('lock_timeout', $1, false), "
    "set_config('idle_in_transaction_session_timeout', '60000', false), "
    "set_config('client_connection_check_interval', '1000', false), "
    /* Our statements are points and ordered walks of an index; a plan that sorts all that is due,
     * or is compiled, is a wrong guess of the planner. */
    "set_config('enable_bitmapscan', 'off', false), set_config('jit', 'off', false)";

struct store_conn *store_conn_new(const struct store_config *cfg, const char *name)
{
    struct store_conn *db = mem_zalloc(sizeof(*db));

    db->url = mem_strdup(cfg->url);
    (void)str_copy(db->name, sizeof(db->name), name);
    db->statement_timeout_ms =
        cfg->statement_timeout_ms ? cfg->statement_timeout_ms : STORE_STATEMENT_TIMEOUT_MS;
    db->connect_timeout_ms =
        cfg->connect_timeout_ms ? cfg->connect_timeout_ms : STORE_CONNECT_TIMEOUT_MS;
    return db;
}

bool store_conn_up(const struct store_conn *db)
{
    return db->pg != NULL;
}

void store_conn_drop(struct store_conn *db)
{
    PQfinish(db->pg);
    db->pg = NULL;
    db->prepared = false;
    if (db->in_tx)
        db->broken = true;
}

void store_conn_close(struct store_conn *db)
{
    assert(!db->in_tx);
    store_conn_drop(db);
}

void store_conn_free(struct store_conn *db)
{
    if (!db)
        return;
    assert(!db->in_tx);
    PQfinish(db->pg);
    secret_wipe(db->url, strlen(db->url));
    free(db->url);
    free(db);
}

struct store_later_list *store_conn_later(struct store_conn *db)
{
    return &db->later;
}

const char *store_conn_trouble(const struct store_conn *db)
{
    return db->trouble;
}

void store_conn_budget(struct store_conn *db, int64_t ms)
{
    db->budget_until = ms ? time_mono_ms() + ms : 0;
}

void store_conn_patience(struct store_conn *db, int64_t ms)
{
    db->patience_ms = ms;
}

/* libpq writes notices to stderr, where only our log lines belong. */
static void ignore_notice(void *arg, const PGresult *res)
{
    (void)arg, (void)res;
}

PGconn *store_connect_start(const char *url, const char *name)
{
    /* What stands after dbname wins over the URL; what stands before it is only a default. */
    static const char *const KEYS[] = {
        "target_session_attrs", "keepalives_idle",  "keepalives_interval",
        "keepalives_count",     "tcp_user_timeout", "dbname",
        "application_name",     "client_encoding",  NULL
    };
    const char *values[] = { "read-write", "5", "2", "2", "5000", url, name, "UTF8", NULL };

    PGconn *pg = PQconnectStartParams(KEYS, values, 1);

    if (pg)
        PQsetNoticeReceiver(pg, ignore_notice, NULL);
    return pg;
}

/* Waits until the socket is ready or the monotonic time `until`; false when that came first. */
static bool wait_socket(PGconn *pg, short events, int64_t until)
{
    for (;;) {
        struct pollfd fd = { .fd = PQsocket(pg), .events = events };
        int64_t left = until - time_mono_ms();

        if (fd.fd < 0 || left <= 0)
            return false;
        int n = poll(&fd, 1, (int)left);
        if (n > 0)
            return true;
        if (n < 0 && errno != EINTR)
            return false;
    }
}

static bool finish_connect(PGconn *pg, int64_t until)
{
    PostgresPollingStatusType st = PGRES_POLLING_WRITING;

    if (!pg || PQstatus(pg) == CONNECTION_BAD)
        return false;
    while (st != PGRES_POLLING_OK) {
        if (st == PGRES_POLLING_FAILED ||
            !wait_socket(pg, st == PGRES_POLLING_READING ? POLLIN : POLLOUT, until))
            return false;
        st = PQconnectPoll(pg);
    }
    return true;
}

/* --- what went wrong --------------------------------------------------- */

static const struct {
    const char *state; /* a prefix of SQLSTATE */
    enum sbx_code code;
    const char *says;
} SQLSTATES[] = {
    { "40001", SBX_E_CONFLICT, "serialization failure" },
    { "40P01", SBX_E_CONFLICT, "deadlock" },
    { "0A000", SBX_E_CONFLICT, "the schema changed meanwhile" },
    { "42804", SBX_E_CONFLICT, "the schema changed meanwhile" },
    { "23505", SBX_E_CONFLICT, "it exists already" },
    { "23503", SBX_E_NOT_FOUND, "what it refers to does not exist" },
    { "42P10", SBX_E_IDEMPOTENCY_UNAVAILABLE, "a unique index is missing" },
    { "08", SBX_E_UNAVAILABLE, "the database closed the connection" },
    { "25006", SBX_E_UNAVAILABLE, "the database takes no writes now" },
    { "53", SBX_E_UNAVAILABLE, "the database is out of resources" },
    { "55P03", SBX_E_UNAVAILABLE, "a lock was not free in time" },
    { "57014", SBX_E_UNAVAILABLE, "the database took too long" },
    { "57", SBX_E_UNAVAILABLE, "the database is shutting down or starting" },
    { "58", SBX_E_UNAVAILABLE, "the database met a system error" },
};

enum sbx_code store_raise(const PGresult *res, const char *what, struct sbx_err *err)
{
    const char *state = res ? PQresultErrorField(res, PG_DIAG_SQLSTATE) : NULL;
    const char *constraint = res ? PQresultErrorField(res, PG_DIAG_CONSTRAINT_NAME) : NULL;

    if (!state)
        return err_set(err, SBX_E_UNAVAILABLE, "the connection to the database was lost");
    for (size_t i = 0; i < COUNT_OF(SQLSTATES); i++) {
        if (strncmp(state, SQLSTATES[i].state, strlen(SQLSTATES[i].state)) == 0)
            return err_set(err, SQLSTATES[i].code, "%s", SQLSTATES[i].says);
    }
    /* The server's own text may hold values; that of class 42 (names, syntax) does not. */
    const char *text =
        strncmp(state, "42", 2) == 0 ? PQresultErrorField(res, PG_DIAG_MESSAGE_PRIMARY) : NULL;
    return err_set(err, SBX_E_INTERNAL, "%s: SQLSTATE %s %s", what, state,
                   text         ? text
                   : constraint ? constraint
                                : "");
}

/* A newer program added a column while the statement waited for the table: its plan, or a function's
 * row, is of the table as it was, and the next try's is not. */
static bool changed_under_us(const char *state)
{
    return strcmp(state, "0A000") == 0 || strcmp(state, "42804") == 0;
}

static enum sbx_code raise_in(struct store_conn *db, const PGresult *res, const char *what,
                              struct sbx_err *err)
{
    const char *state = res ? PQresultErrorField(res, PG_DIAG_SQLSTATE) : NULL;

    *err = (struct sbx_err){ 0 };
    db->conflict = state && (strncmp(state, "40", 2) == 0 || changed_under_us(state));
    return store_raise(res, what, err);
}

/* The server takes no writes any more: after a failover the next connection finds the one that does
 * (target_session_attrs). */
static bool demoted(const PGresult *res)
{
    const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);

    return state && strcmp(state, "25006") == 0;
}

/* --- sending and receiving with a deadline ------------------------------ */

int64_t store_conn_until(struct store_conn *db)
{
    int64_t ms = db->patience_ms ? db->patience_ms : db->statement_timeout_ms;
    int64_t until = time_mono_ms() + ms + CLIENT_GRACE_MS;

    db->patience_ms = 0;
    return db->budget_until && db->budget_until < until ? db->budget_until : until;
}

/* The next result, NULL at the end of one statement's; false when time or connection is over. */
static bool next_result(PGconn *pg, int64_t until, PGresult **out)
{
    for (;;) {
        int rest = PQflush(pg);

        if (rest < 0)
            return false;
        if (rest == 0 && !PQisBusy(pg)) {
            *out = PQgetResult(pg);
            return true;
        }
        if (!wait_socket(pg, (short)(POLLIN | (rest ? POLLOUT : 0)), until) || !PQconsumeInput(pg))
            return false;
    }
}

enum sbx_code store_conn_lost(struct store_conn *db, const char *what, struct sbx_err *err)
{
    db->late = db->pg && PQstatus(db->pg) == CONNECTION_OK;
    store_conn_drop(db);
    return store_say(err, SBX_E_UNAVAILABLE, "the database %s; what %s did is not known",
                     db->late ? "did not answer in time" : "closed the connection", what);
}

enum sbx_code store_conn_collect(struct store_conn *db, const char *what, int64_t until,
                                 PGresult **out, struct sbx_err *err)
{
    PGresult *last = NULL;

    for (;;) {
        PGresult *res = NULL;

        if (!next_result(db->pg, until, &res)) {
            PQclear(last);
            return store_conn_lost(db, what, err);
        }
        if (!res)
            break;
        PQclear(last);
        last = res;
        ExecStatusType st = PQresultStatus(res);
        if (st == PGRES_COPY_IN || st == PGRES_COPY_OUT || st == PGRES_COPY_BOTH)
            break; /* no statement of ours copies: treated as lost below */
    }
    ExecStatusType st = PQresultStatus(last);
    if (st == PGRES_COMMAND_OK || st == PGRES_TUPLES_OK) {
        *out = last;
        return SBX_OK;
    }
    enum sbx_code code = raise_in(db, last, what, err);
    bool moved = demoted(last);
    PQclear(last);
    if (moved || PQstatus(db->pg) != CONNECTION_OK || st == PGRES_COPY_IN || st == PGRES_COPY_OUT ||
        st == PGRES_COPY_BOTH)
        store_conn_drop(db);
    return code;
}

/* --- connecting and preparing ------------------------------------------- */

static enum sbx_code open_session(struct store_conn *db, int64_t until, struct sbx_err *err)
{
    char ms[STORE_NUMBER_SIZE];
    const char *values[] = { ms };
    SCOPED_RESULT PGresult *res = NULL;

    snprintf(ms, sizeof(ms), "%lld", (long long)db->statement_timeout_ms);
    if (PQsetnonblocking(db->pg, 1) != 0 ||
        !PQsendQueryParams(db->pg, STORE_SESSION_SQL, 1, NULL, values, NULL, NULL, 0))
        return store_conn_lost(db, "session", err);
    return store_conn_collect(db, "session", until, &res, err);
}

/* A server that went away while the connection was idle has left its farewell in the socket: better
 * seen before a write is sent than after, when its outcome is not known. */
static bool still_there(struct store_conn *db)
{
    enum { LOOKS = 4 };

    for (int i = 0; db->pg && PQstatus(db->pg) == CONNECTION_OK && i < LOOKS; i++) {
        struct pollfd fd = { .fd = PQsocket(db->pg), .events = POLLIN };

        if (poll(&fd, 1, 0) <= 0)
            return true;
        if (!PQconsumeInput(db->pg))
            return false;
        (void)PQisBusy(db->pg); /* parses what came */
    }
    return db->pg && PQstatus(db->pg) == CONNECTION_OK;
}

enum sbx_code store_conn_connect(struct store_conn *db, struct sbx_err *err)
{
    int64_t now = time_mono_ms();
    int64_t until = now + db->connect_timeout_ms;

    if (still_there(db))
        return SBX_OK;
    if (db->in_tx) {
        db->broken = true;
        return err_set(err, SBX_E_UNAVAILABLE, "the connection to the database was lost");
    }
    store_conn_drop(db);
    if (now < db->retry_at)
        return err_set(err, SBX_E_UNAVAILABLE, "the database is not reachable");
    if (db->budget_until && db->budget_until < until)
        until = db->budget_until;
    db->pg = store_connect_start(db->url, db->name);
    if (!finish_connect(db->pg, until)) {
        const char *why = db->pg ? PQerrorMessage(db->pg) : "";

        (void)str_copy(db->trouble, sizeof(db->trouble), why[0] ? why : "no answer in time");
        store_conn_drop(db);
        db->retry_at = time_mono_ms() + RETRY_AFTER_MS;
        return err_set(err, SBX_E_UNAVAILABLE, "the database is not reachable");
    }
    enum sbx_code code = open_session(db, until, err);
    if (code != SBX_OK)
        db->retry_at = time_mono_ms() + RETRY_AFTER_MS;
    return code;
}

static bool send_all_prepares(PGconn *pg, size_t *sent)
{
    for (size_t t = 0; STORE_STATEMENTS[t].rows; t++) {
        for (size_t i = 0; i < *STORE_STATEMENTS[t].count; i++) {
            const struct store_stmt *s = &STORE_STATEMENTS[t].rows[i];

            if (!PQsendPrepare(pg, s->name, s->sql, 0, NULL))
                return false;
            (*sent)++;
        }
    }
    return PQpipelineSync(pg) == 1;
}

enum sbx_code store_conn_collect_all(struct store_conn *db, const char *what, size_t count,
                                     int64_t until, PGresult **out, struct sbx_err *err)
{
    enum sbx_code code = SBX_OK;

    for (size_t i = 0; i < count; i++) {
        PGresult *res = NULL, *end = NULL;

        if (!next_result(db->pg, until, &res) || !res)
            return store_conn_lost(db, what, err);
        ExecStatusType st = PQresultStatus(res);
        if (st == PGRES_COMMAND_OK || st == PGRES_TUPLES_OK) {
            if (out)
                out[i] = STEAL(res);
        } else if (code == SBX_OK && st != PGRES_PIPELINE_ABORTED) {
            code = raise_in(db, res, what, err);
        }
        PQclear(res);
        if (!next_result(db->pg, until, &end) || end) {
            PQclear(end);
            return store_conn_lost(db, what, err);
        }
    }
    PGresult *sync = NULL;
    if (!next_result(db->pg, until, &sync))
        return store_conn_lost(db, what, err);
    ExecStatusType st = PQresultStatus(sync);
    /* A failure of the commit itself comes in the place of the sync's answer. */
    if (st != PGRES_PIPELINE_SYNC) {
        if (code == SBX_OK)
            code = raise_in(db, sync, what, err);
        PQclear(sync);
        store_conn_drop(db);
        return code;
    }
    PQclear(sync);
    return code;
}

static enum sbx_code prepare(struct store_conn *db, struct sbx_err *err)
{
    int64_t until = store_conn_until(db);
    size_t sent = 0;

    if (PQenterPipelineMode(db->pg) != 1 || !send_all_prepares(db->pg, &sent))
        return store_conn_lost(db, "prepare", err);
    enum sbx_code code = store_conn_collect_all(db, "prepare", sent, until, NULL, err);
    if (code == SBX_OK && PQexitPipelineMode(db->pg) != 1)
        return store_conn_lost(db, "prepare", err);
    if (code != SBX_OK) {
        store_conn_drop(db);
        return code;
    }
    db->prepared = true;
    return SBX_OK;
}

enum sbx_code store_conn_ready(struct store_conn *db, struct sbx_err *err)
{
    enum sbx_code code = store_conn_connect(db, err);

    if (code == SBX_OK && !db->prepared) {
        int64_t patience = db->patience_ms;

        code = prepare(db, err);
        db->patience_ms = patience;
    }
    return code;
}
