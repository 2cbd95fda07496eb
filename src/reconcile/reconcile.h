#ifndef RECONCILE_RECONCILE_H
#define RECONCILE_RECONCILE_H

/* The reconciler of one control plane: one thread that drives every due row toward
 * what is wanted, through the region gateways (architecture "Threads", contract 3).
 *
 * It owns the process' LISTEN connection; others hear its notices by on_notice. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/metrics.h"
#include "base/seal.h"
#include "domain/plan.h"
#include "region/gateway_client.h"
#include "store/executions.h"
#include "store/sandboxes.h"
#include "store/store.h"

struct reconcile;

/* Zero means the default in parentheses. */
struct reconcile_config {
    const struct store_config *store;
    struct gateway_client *gateways;
    const struct seal_keys *keys; /* opens region secrets, storage and registry credentials */
    const char *instance;         /* an id; NULL: a new one */
    struct plan_times times;      /* (PLAN_TIMES_DEFAULT when backoff_first_ms is 0) */
    int64_t lease_ms;             /* (15000) a dead control plane's rows are taken over after it */
    int64_t poll_ms;              /* (1000) at least so often the due rows are looked at */
    int64_t region_sweep_ms;      /* (60000) both-ways reconciliation of every region */
    int64_t execution_grace_ms;   /* (60000) past its deadline an execution is settled by asking */
    size_t actions_max;           /* (2000) region calls under way */
    int warm_total_max;           /* (0: none) warm members of all pools together */
    int disk_mb;                  /* (10240) local disk of a sandbox */
    int64_t trail_keep_ms;        /* (30 days) audit and events of ended sandboxes */
    void (*on_notice)(void *arg, const struct store_notice *notice); /* its thread; NULL: none */
    void *notice_arg;
    struct metrics *metrics; /* NULL: none */
};

/* Connects by itself and again after a loss: a database or region that is away at start is no
 * error. */
MUST_USE enum sbx_code reconcile_start(const struct reconcile_config *config,
                                       struct reconcile **out, struct sbx_err *err);
/* Takes no new row, waits at most drain_ms for calls under way, gives the leases back, answers all
 * waiters (SBX_E_UNAVAILABLE), joins. Before net_stop. NULL is allowed. */
void reconcile_stop(struct reconcile *r, int64_t drain_ms);

/* This control plane's id: for store_execution_new.instance. */
const char *reconcile_instance(const struct reconcile *r);
/* How long statuses may last. */
const struct plan_times *reconcile_times(const struct reconcile *r);
/* The LISTEN connection is up: caches that notices keep right may be used (contract 1). */
bool reconcile_listening(const struct reconcile *r);

/* Some row is due now: after a create, a terminate, a pause. Any thread, never blocks. */
void reconcile_wake(struct reconcile *r);
/* Look at this sandbox at the region now: an execute found it gone or unreachable (case 10). */
void reconcile_probe(struct reconcile *r, const char *sandbox_id);
/* Regions, backends or their credentials changed. */
void reconcile_reload_regions(struct reconcile *r);
/* How long audit and events are kept from now on. Any thread. */
void reconcile_keep_trail(struct reconcile *r, int64_t ms);

/* --- waiting ----------------------------------------------------------- */

/* Runs once on the reconciler's thread: must not block (request_continue).  reached: the status is
 * one of those waited for.  err NULL: ended by status or time; else why nothing is known.  status
 * and generation are the last ones seen (NONE when no row was). */
typedef void reconcile_wait_fn(void *arg, bool reached, enum sandbox_status status,
                               int64_t generation, const struct sbx_err *err);
/* Waits until the sandbox has a status of the set, at most timeout_ms. SBX_E_BUSY past the bound
 * of waiters; fn then never runs. Also sees what other control planes did. */
MUST_USE enum sbx_code reconcile_await(struct reconcile *r, const char *sandbox_id,
                                       uint32_t statuses, int64_t timeout_ms, reconcile_wait_fn *fn,
                                       void *arg, struct sbx_err *err);

/* --- what handlers ask for: guarded moves by the move table ------------- */

struct reconcile_ask {
    const char *account_id; /* NULL: whoever owns it */
    const char *sandbox_id;
    const char *actor; /* "user:<id>" */
    const char *request_id;
    enum sandbox_end_reason end_reason; /* terminate; NONE: USER_REQUESTED */
    const struct store_pause *pause;    /* pause; NULL: the revision's settings */
};

/* Terminate (contract 3).  On the caller's connection.  SBX_OK: *out is TERMINATED, or TERMINATING
 * and now `reconcile_await(TERMINATED, 30 s)`.  SBX_E_CHANGING: it is SUSPENDING, and will be
 * terminated once the pause has settled; or it changed under the call.  SBX_E_NOT_FOUND. Holders of
 * personal runs are the caller's check. */
MUST_USE enum sbx_code reconcile_terminate(struct reconcile *r, struct store_conn *db,
                                           const struct reconcile_ask *ask, struct arena *a,
                                           struct store_sandbox *out, struct sbx_err *err);
/* Pause.  SBX_OK: *out is SUSPENDED (unchanged), or SUSPENDING and now await everything but
 * SUSPENDING; what it then is: SUSPENDED, or READY or BUSY with the failure in last_error's code
 * (reconcile_pause_failure).  SBX_E_INVALID: EPHEMERAL; CONFLICT: another status;
 * SNAPSHOT_OVERWRITE: the restore failed and force was not given; NOT_FOUND. */
MUST_USE enum sbx_code reconcile_pause(struct reconcile *r, struct store_conn *db,
                                       const struct reconcile_ask *ask, struct arena *a,
                                       struct store_sandbox *out, struct sbx_err *err);
/* Why the last pause of that sandbox did not go through, from its row: SNAPSHOT_FAILED (502) or
 * UNAVAILABLE (503), with the sentence. */
enum sbx_code reconcile_pause_failure(const struct store_sandbox *row, struct sbx_err *err);
/* Resume: store_sandbox_resume with the deadline of the table, and a wake. */
MUST_USE enum sbx_code reconcile_resume(struct reconcile *r, struct store_conn *db,
                                        const struct reconcile_ask *ask, struct arena *a,
                                        struct store_sandbox *out, bool *changed, int *quota_limit,
                                        int *quota_active, struct sbx_err *err);

/* An execute has ended, however it ended: removes its row (BUSY to READY with the last), and probes
 * the sandbox when the answer says that it is gone or unreachable.  Safe to repeat.  When the
 * database is away it is kept (bounded) and done later by the reconciler. */
void reconcile_execute_ended(struct reconcile *r, struct store_conn *db, const char *sandbox_id,
                             const char *execution_id, enum sbx_code answer);

/* For metrics and `sandboxctl status`. Any thread. */
struct reconcile_stats {
    size_t actions; /* region calls under way */
    size_t waiters;
    uint64_t moves;
    uint64_t moves_lost; /* guarded updates that came too late */
    uint64_t undone;     /* late deploys torn down */
    uint64_t lost;       /* rows whose compute had vanished */
    uint64_t strays;     /* compute without a row, destroyed */
    uint64_t claims;
    uint64_t lent; /* storage credentials that were sent again */
};
void reconcile_stats(struct reconcile *r, struct reconcile_stats *out);

#endif
