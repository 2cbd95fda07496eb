#ifndef STORE_CONN_H
#define STORE_CONN_H

/* Inside the store only: the connection's parts that migrate.c and statements.c need. */

#include "base/secret.h"
#include "store/db.h"

struct store_statements {
    const struct store_stmt *rows;
    const size_t *count;
};
extern const struct store_statements STORE_STATEMENTS[]; /* ended by rows NULL */

/* Connects, without preparing anything: the schema may not be there yet. */
MUST_USE enum sbx_code store_conn_connect(struct store_conn *db, struct sbx_err *err);

/* Closes the session; the next call makes a new one. Not inside a transaction. */
void store_conn_close(struct store_conn *db);

#endif
