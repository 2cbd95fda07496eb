#include <string.h>

#include "base/id.h"
#include "reconcile/ask.h"

/* --- on the handler's connection --------------------------------------- */

const struct reconcile_ask_ops RECONCILE_ASK_STORE = {
    .get = store_sandbox_get,
    .move = store_sandbox_move,
    .moves_atomic = store_sandbox_moves_atomic,
    .desire = store_sandbox_desire,
};

enum sbx_code reconcile_terminate(struct reconcile *r, struct store_conn *db,
                                  const struct reconcile_ask *ask, struct arena *a,
                                  struct store_sandbox *out, struct sbx_err *err)
{
    bool changed;
    enum sbx_code code =
        reconcile_ask_end(&RECONCILE_ASK_STORE, reconcile_times(r), db, ask, a, out, &changed, err);

    if (changed)
        reconcile_wake(r);
    return code;
}

enum sbx_code reconcile_pause(struct reconcile *r, struct store_conn *db,
                              const struct reconcile_ask *ask, struct arena *a,
                              struct store_sandbox *out, struct sbx_err *err)
{
    bool changed;
    enum sbx_code code = reconcile_ask_pause(&RECONCILE_ASK_STORE, reconcile_times(r), db, ask, a,
                                             out, &changed, err);

    if (changed)
        reconcile_wake(r);
    return code;
}

enum sbx_code reconcile_pause_failure(const struct store_sandbox *row, struct sbx_err *err)
{
    const char *why = row->persistence.last_snapshot_error;

    if (row->status_reason && strcmp(row->status_reason, RECONCILE_PAUSE_FAILED) == 0)
        return err_set(err, SBX_E_SNAPSHOT_FAILED, "%s", why ? why : RECONCILE_PAUSE_FAILED);
    return err_set(err, SBX_E_UNAVAILABLE, "%s",
                   why                  ? why
                   : row->status_reason ? row->status_reason
                                        : "The sandbox cannot be paused now.");
}

enum sbx_code reconcile_resume(struct reconcile *r, struct store_conn *db,
                               const struct reconcile_ask *ask, struct arena *a,
                               struct store_sandbox *out, bool *changed, int *quota_limit,
                               int *quota_active, struct sbx_err *err)
{
    char operation_id[ID_SIZE];
    struct store_resume in = {
        .account_id = ask->account_id,
        .sandbox_id = ask->sandbox_id,
        .actor = ask->actor,
        .request_id = ask->request_id,
        .operation_id = operation_id,
        .deadline_in_ms = reconcile_times(r)->resuming_s * 1000,
    };

    id_new(operation_id);
    if (store_sandbox_resume(db, &in, a, out, changed, quota_limit, quota_active, err))
        return err->code;
    if (*changed)
        reconcile_wake(r);
    return SBX_OK;
}
