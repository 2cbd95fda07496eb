#ifndef RECONCILE_ASK_H
#define RECONCILE_ASK_H

/* What handlers ask for, without the reconciler's thread: the product calls it on the
 * handler's connection (reconcile.h), the simulation on its store. */

#include "reconcile/core.h"
#include "reconcile/reconcile.h"

struct reconcile_ask_ops {
    enum sbx_code (*get)(struct store_conn *db, const char *account_id, const char *sandbox_id,
                         struct arena *a, struct store_sandbox *out, struct sbx_err *err);
    enum sbx_code (*move)(struct store_conn *db, const struct store_move *move, struct arena *a,
                          struct store_sandbox *out, struct sbx_err *err);
    enum sbx_code (*moves_atomic)(struct store_conn *db, const struct store_move *moves,
                                  size_t count, struct arena *a, struct store_sandbox *last,
                                  struct sbx_err *err);
    enum sbx_code (*desire)(struct store_conn *db, const char *sandbox_id, uint32_t from,
                            enum sandbox_status desired, enum sandbox_end_reason end_reason,
                            struct sbx_err *err);
};
extern const struct reconcile_ask_ops RECONCILE_ASK_STORE; /* the real one */

/* As reconcile_terminate and reconcile_pause; *changed: rows are due now. */
MUST_USE enum sbx_code reconcile_ask_end(const struct reconcile_ask_ops *ops,
                                         const struct plan_times *times, struct store_conn *db,
                                         const struct reconcile_ask *ask, struct arena *a,
                                         struct store_sandbox *out, bool *changed,
                                         struct sbx_err *err);
MUST_USE enum sbx_code reconcile_ask_pause(const struct reconcile_ask_ops *ops,
                                           const struct plan_times *times, struct store_conn *db,
                                           const struct reconcile_ask *ask, struct arena *a,
                                           struct store_sandbox *out, bool *changed,
                                           struct sbx_err *err);

#endif
