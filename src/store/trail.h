#ifndef STORE_TRAIL_H
#define STORE_TRAIL_H

/* What happened: audit rows, the bounded history of a sandbox, operator settings, counts. */

#include "domain/sandbox_state.h"
#include "store/store.h"

enum { STORE_EVENTS_MAX = 256 }; /* of one sandbox: 192 lifecycle moves, 64 flips READY - BUSY */

/* One audit row: never argv, environment, output, keys or grants (contract 3, 4). */
struct store_audit {
    int64_t audit_id;
    int64_t at_ms;
    const char *account_id;  /* or NULL */
    const char *actor;       /* "user:<id>", "operator:uid=0", "principal:<id>" */
    const char *action;      /* "sandbox.execute" */
    const char *object_kind; /* "sandbox" */
    const char *object_id;
    const char *request_id;
    const char *outcome; /* "ok" or an error's wire name */
    int exit_code;       /* execute only, else -1 */
    int64_t duration_ms; /* -1: none */
    const char *run_id;  /* personal runs, or NULL */
};
struct store_audits {
    struct store_audit *rows;
    size_t count;
    bool more;
};
/* Many rows in one round trip (at most STORE_BATCH_MAX). audit_id and at_ms are ignored. */
MUST_USE enum sbx_code store_audit_write(struct store_conn *db, const struct store_audit *rows,
                                         size_t count, struct sbx_err *err);
/* Newest first; account_id NULL: all; before: 0 or the last id seen. */
MUST_USE enum sbx_code store_audit_list(struct store_conn *db, const char *account_id,
                                        const char *object_id, int64_t before, int limit,
                                        struct arena *a, struct store_audits *out,
                                        struct sbx_err *err);

struct store_event {
    int64_t at_ms;
    int64_t generation; /* after the move */
    enum sandbox_status from, to;
    const char *cause, *actor, *request_id, *reason;
};
struct store_events {
    struct store_event *rows; /* oldest first */
    size_t count;
};
MUST_USE enum sbx_code store_event_list(struct store_conn *db, const char *sandbox_id,
                                        struct arena *a, struct store_events *out,
                                        struct sbx_err *err);

/* Operator settings: small texts by name. SBX_E_NOT_FOUND when not set. */
MUST_USE enum sbx_code store_setting_get(struct store_conn *db, const char *name, struct arena *a,
                                         const char **value, struct sbx_err *err);
MUST_USE enum sbx_code store_setting_put(struct store_conn *db, const char *name, const char *value,
                                         struct sbx_err *err);

/* For status and metrics. Costs what is live, not what ever was. */
struct store_counts {
    int64_t by_status[SANDBOX_STATUS_COUNT]; /* TERMINATED: -1, it is not counted */
    int64_t executions;
    int64_t due;           /* rows due now */
    int64_t oldest_due_ms; /* how late the oldest of them is */
    int64_t leased;
    int64_t warm_starting, warm_ready;
    int64_t instances;
};
MUST_USE enum sbx_code store_counts_get(struct store_conn *db, struct store_counts *out,
                                        struct sbx_err *err);

/* Removes what is older than keep_ms: TERMINATED sandboxes keep their row (idempotency), audit rows
 * and the events of ended sandboxes go. At most limit audit rows and limit sandboxes at a time. */
MUST_USE enum sbx_code store_trail_prune(struct store_conn *db, int64_t keep_ms, int limit,
                                         int *removed, struct sbx_err *err);

#endif
