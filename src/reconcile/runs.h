#ifndef RECONCILE_RUNS_H
#define RECONCILE_RUNS_H

/* The driver of personal runs (contract 6): one thread that takes due operations,
 * asks `run_plan` for the step, does it, and writes the guarded move.  It never starts
 * an entrypoint: only the request that carries the callback tokens does, once. */

#include "base/seal.h"
#include "base/secret.h"
#include "reconcile/reconcile.h"
#include "region/gateway_client.h"
#include "store/runs.h"

/* What is at which place inside a holder (contract 6). */
#define RECONCILE_RUN_ENTRYPOINT "/opt/warren/run"
#define RECONCILE_RUN_FILES      "/run/warren"
#define RECONCILE_RUN_AUTH       RECONCILE_RUN_FILES "/auth.json"
#define RECONCILE_RUN_GITHUB     RECONCILE_RUN_FILES "/github-token"
#define RECONCILE_RUN_CALLBACK   RECONCILE_RUN_FILES "/callback-token"
#define RECONCILE_RUN_EVENTS     RECONCILE_RUN_FILES "/event-ingest-token"

enum {
    RECONCILE_RUN_AUTH_MAX = 64 * 1024, /* bytes of a sign-in file */
    RECONCILE_RUN_START_MS = 45000,     /* a start written down is asked about only after it */
    RECONCILE_RUN_CALL_S = 20,          /* one process call */
};

struct reconcile_runs;

struct reconcile_runs_config {
    const struct store_config *store;
    struct reconcile *reconcile; /* ends holders; must outlive this */
    struct gateway_client *gateways;
    const struct seal_keys *keys;        /* NULL: personal runs are off, nothing is started */
    const struct secret *process_secret; /* of the region's process path; NULL: on a socket */
};

MUST_USE enum sbx_code reconcile_runs_start(const struct reconcile_runs_config *config,
                                            struct reconcile_runs **out, struct sbx_err *err);
void reconcile_runs_stop(struct reconcile_runs *r); /* before reconcile_stop; NULL is allowed */
void reconcile_runs_wake(struct reconcile_runs *r); /* any thread; NULL is allowed */

/* --- the moves of an operation, for the driver and the handlers (run_moves.c) --- */

/* What the holder's row says of it. */
enum run_holder reconcile_run_holder(const struct store_sandbox *row /* NULL: none */);
/* The terminationReason of a holder whose run ended by that cause. */
enum sandbox_end_reason reconcile_run_end_reason(enum run_cause cause);
/* The move of an event that the table allows in the row's phase; next_in_ms -1: never due. */
struct store_operation_move reconcile_run_move(const struct store_operation *op,
                                               enum run_event event, int64_t next_in_ms);
/* Adds the end of a start or a run that nobody will witness any more. */
void reconcile_run_give_up(const struct store_operation *op, struct store_operation_move *m);

/* The one start: STARTING is written before it is tried, then what became of the try. */
bool reconcile_run_may_start(const struct store_operation *op);
struct store_operation_move reconcile_run_start(const struct store_operation *op,
                                                const char *execution_id);
enum reconcile_run_outcome {
    RECONCILE_RUN_BEGUN,
    RECONCILE_RUN_NEVER,   /* nothing was started: the request may be repeated */
    RECONCILE_RUN_UNKNOWN, /* quarantined, never repeated */
};
/* code, answered, sent: of the region's answer. */
enum reconcile_run_outcome reconcile_run_outcome(enum sbx_code code, bool answered, bool sent);
/* op: the row as the start left it. */
struct store_operation_move reconcile_run_started(const struct store_operation *op,
                                                  enum reconcile_run_outcome outcome);

#endif
