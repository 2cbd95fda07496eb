#ifndef STORE_EXECUTIONS_H
#define STORE_EXECUTIONS_H

/* Executions under way: id, sandbox, owner, deadline; no content (contract 4). */

#include "store/sandboxes.h"

struct store_execution {
    const char *execution_id;
    const char *sandbox_id;
    const char *account_id;
    const char *instance; /* the control plane that waits for it */
    const char *request_id;
    const char *actor;
    int64_t generation; /* the sandbox's when it began */
    int64_t started_at_ms, deadline_at_ms;
};
struct store_executions {
    struct store_execution *rows;
    size_t count;
};

struct store_execution_new {
    const char *execution_id; /* made by the caller */
    const char *account_id, *sandbox_id;
    const char *instance, *actor, *request_id;
    int64_t timeout_ms;
};
/* READY becomes BUSY (or BUSY stays) and the row is inserted, in one statement; counts as activity.
 * SBX_E_NOT_FOUND; SANDBOX_SUSPENDED, SANDBOX_NOT_READY, SANDBOX_NOT_FOUND by the status
 * (contract 4); PERSONAL_RUNTIME for a holder. out: the row after. */
MUST_USE enum sbx_code store_execution_begin(struct store_conn *db,
                                             const struct store_execution_new *in, struct arena *a,
                                             struct store_sandbox *out, struct sbx_err *err);
/* Removes the row; the last one makes BUSY READY. Counts as activity. Again, or for one that is
 * gone: SBX_OK, nothing changed, *was_there false (was_there may be NULL). */
MUST_USE enum sbx_code store_execution_end(struct store_conn *db, const char *execution_id,
                                           bool *was_there, struct sbx_err *err);
/* Takes over executions whose control plane has not beaten for stale_ms, or whose deadline passed
 * grace_ms ago: they are `instance`'s from now on, to be settled by asking the gateway. */
MUST_USE enum sbx_code store_execution_claim_stale(struct store_conn *db, const char *instance,
                                                   int64_t stale_ms, int64_t grace_ms, int limit,
                                                   struct arena *a, struct store_executions *out,
                                                   struct sbx_err *err);
MUST_USE enum sbx_code store_execution_list(struct store_conn *db, const char *sandbox_id,
                                            struct arena *a, struct store_executions *out,
                                            struct sbx_err *err);

#endif
