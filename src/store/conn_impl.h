#ifndef STORE_CONN_IMPL_H
#define STORE_CONN_IMPL_H

/* What the connection's own files share: conn.c (session, and what is sent and received), run.c
 * (single statements, transactions), batch.c (many in one round trip).  A connection belongs to one
 * thread at a time. */

#include "store/conn.h"

enum {
    STORE_CONN_NAME_SIZE = 33,
    STORE_CONN_TROUBLE_SIZE = 512,
};

struct store_conn {
    PGconn *pg; /* NULL: not connected */
    char *url;
    char name[STORE_CONN_NAME_SIZE];
    int64_t statement_timeout_ms;
    int64_t connect_timeout_ms;
    int64_t budget_until; /* monotonic ms, 0: none */
    int64_t retry_at;     /* monotonic ms of the earliest next connect */
    int64_t patience_ms;  /* of the next statement, 0: statement_timeout_ms */
    bool prepared;        /* the statement table is prepared on pg */
    bool in_tx;
    bool broken;                           /* inside a transaction: the connection was lost */
    bool late;                             /* it was given up because no answer came in time */
    char trouble[STORE_CONN_TROUBLE_SIZE]; /* of the last connect that failed */
    bool conflict; /* the last failure was one between transactions: a repeat may cure it */
    struct store_later_list later;
};

/* Connected and prepared. SBX_E_UNAVAILABLE, or what a statement's prepare says. */
MUST_USE enum sbx_code store_conn_ready(struct store_conn *db, struct sbx_err *err);

/* Monotonic ms until which the next statement's answer is waited for; uses up the patience. */
int64_t store_conn_until(struct store_conn *db);

/* Reads all results of the one statement that was sent; *out is the last one, the caller's. */
MUST_USE enum sbx_code store_conn_collect(struct store_conn *db, const char *what, int64_t until,
                                          PGresult **out, struct sbx_err *err);

/* Reads `count` statements' results in pipeline mode and the sync behind them. out NULL: they are
 * dropped; else those that succeeded, the caller's also after a failure. The first failure is the
 * error. */
MUST_USE enum sbx_code store_conn_collect_all(struct store_conn *db, const char *what, size_t count,
                                              int64_t until, PGresult **out, struct sbx_err *err);

/* Gives the connection up, since no answer came or can come; SBX_E_UNAVAILABLE that says what. */
MUST_USE enum sbx_code store_conn_lost(struct store_conn *db, const char *what,
                                       struct sbx_err *err);

/* Ends the session; inside a transaction that one is broken from now on. */
void store_conn_drop(struct store_conn *db);

#endif
