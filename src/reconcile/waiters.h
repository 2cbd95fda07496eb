#ifndef RECONCILE_WAITERS_H
#define RECONCILE_WAITERS_H

/* Who waits for a sandbox to get a status.  Added from any thread, ended on the
 * reconciler's. */

#include "reconcile/core.h"
#include "reconcile/reconcile.h"

struct reconcile_waiters;

struct reconcile_waiters *reconcile_waiters_new(void);
void reconcile_waiters_free(struct reconcile_waiters *w); /* none may wait; NULL is allowed */
MUST_USE enum sbx_code reconcile_waiters_add(struct reconcile_waiters *w, const char *sandbox_id,
                                             uint32_t statuses, int64_t timeout_ms,
                                             reconcile_wait_fn *fn, void *arg, struct sbx_err *err);
size_t reconcile_waiters_count(struct reconcile_waiters *w);
/* A row was seen: ends those that it satisfies. */
void reconcile_waiters_seen(struct reconcile_waiters *w, const char *sandbox_id,
                            enum sandbox_status status, int64_t generation);
/* Ends those whose time is up; reads the rows of those not seen for a while, since another control
 * plane may have moved them. Milliseconds until it wants to be called again, -1: nobody waits. */
int64_t reconcile_waiters_pass(struct reconcile_waiters *w, struct store_conn *db, bool db_usable);
/* Ends all of them; later ones are refused. */
void reconcile_waiters_close(struct reconcile_waiters *w);

#endif
