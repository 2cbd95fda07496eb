#ifndef STORE_SANDBOXES_H
#define STORE_SANDBOXES_H

/* Sandboxes: create, read, guarded moves, due rows and leases (contract 3).
 *
 * Due rows.  `next_action_at` says when the reconciler has to look at a row again; it is the only
 * thing the sweep's index knows, so a sweep costs what is due and not what there is.  A claim
 * pushes it behind the lease, so a row whose control plane died comes back by itself.  READY and
 * BUSY rows are not rescheduled by executions: the sweep meets the row at its old idle deadline,
 * finds it not idle and reschedules it. */

#include "domain/sandbox_state.h"
#include "store/store.h"

/* What the runtime said about a volume mode. */
/* Written, what is absent (NULL, 0) keeps what the row has, the error aside. */
struct store_persistence {
    const char *mount_path;
    int64_t last_snapshot_at_ms;
    int64_t last_snapshot_bytes;
    const char *last_snapshot_error; /* of the last snapshot or restore */
    bool restore_failed;             /* a pause would overwrite the good snapshot (contract 5) */
};

/* What one pause asked for; kept with the row so that a takeover goes on with it. */
struct store_pause {
    const char *exclude; /* JSON array text; NULL: the revision's */
    int max_mb;          /* 0: the revision's */
    bool force;
};

struct store_sandbox {
    const char *sandbox_id, *account_id, *app_id, *template_id, *revision_id;
    int revision;
    const char *region;
    const char *profile; /* workloadProfile */
    const char *owner_kind;
    const char *owner_id;
    const char *external_session_id;
    const char *caller_key;
    const char *request_id; /* correlationId: of the request that created it */
    enum sandbox_persistence persistence_mode;
    const char *volume_name;
    struct store_persistence persistence;
    struct store_pause pause;
    const char *resources; /* JSON object text */
    bool personal;         /* holder of a personal run: generic endpoints refuse it */
    bool is_warm;
    const char *warm_id; /* member taken at create, to be claimed in the region; else NULL */

    enum sandbox_status status, previous;
    enum sandbox_status desired; /* NONE when there is none or it equals status */
    int64_t generation;
    const char *status_reason;
    enum sandbox_fault fault;
    enum sandbox_end_reason end_reason;
    int running;              /* executions under way */
    bool holds_compute;       /* counts in the quota, and the region may hold something of it */
    const char *operation_id; /* of the step under way; a takeover repeats it */

    int idle_timeout_s, suspended_retention_s;
    int64_t created_at_ms, updated_at_ms, claimed_at_ms, ready_at_ms, last_active_at_ms,
        suspended_at_ms, resumed_at_ms, failed_at_ms, terminated_at_ms, expires_at_ms,
        status_since_ms;
    int64_t deadline_at_ms;    /* of the transitional status; 0: none */
    int64_t next_action_at_ms; /* 0: never */
    const char *lease_owner;
    int64_t lease_until_ms;
    int attempt;            /* tries of the present step */
    const char *last_error; /* of the last try, for `why` */
    int64_t now_ms;         /* the database's clock when this was read */
};
struct store_sandboxes {
    struct store_sandbox *rows;
    size_t count;
    bool more;     /* list only */
    int64_t total; /* list only; -1 when it was not asked for */
};

/* --- create ------------------------------------------------------------ */

struct store_sandbox_new {
    const char *sandbox_id; /* made by the caller (id_new), so that a repeat after a lost answer is
                               seen as ours */
    const char *account_id, *app_id, *template_id, *region;
    const char *profile, *owner_kind, *owner_id;
    const char *external_session_id; /* or NULL */
    const char *caller_key;
    const char *idempotency_key;               /* only its SHA-256 leaves this process */
    enum sandbox_persistence persistence_mode; /* NONE: the revision's default */
    const char *volume_name;                   /* or NULL */
    const char *request_id;
    bool personal;
};
struct store_created {
    bool was_created;
    struct store_sandbox sandbox;
    int quota_limit, quota_active; /* set with SBX_E_QUOTA too */
};
/* The whole of contract 3's create in one round trip and one transaction: key look-up first,
 * account row locked, checks, quota, insert on the unique index, warm member taken.
 * SBX_E_NOT_FOUND (app or template), TEMPLATE_DISABLED, TEMPLATE_DEPRECATED, TEMPLATE_NO_REVISION,
 * TEMPLATE_OTHER_APP, REGION_UNKNOWN, REGION_FORBIDDEN, REGION_NO_SANDBOXES, REGION_DISABLED,
 * INVALID with field (volumeName with EPHEMERAL, a volume mode on a warm pool), NOT_FOUND
 * (volume), VOLUME_PENDING_PURGE, NO_STORAGE_BACKEND, QUOTA, IDEMPOTENCY_UNAVAILABLE. */
MUST_USE enum sbx_code store_sandbox_create(struct store_conn *db,
                                            const struct store_sandbox_new *in, struct arena *a,
                                            struct store_created *out, struct sbx_err *err);

/* The same, to be settled with others: a transaction of them has one commit. */
struct store_later *store_sandbox_create_later(struct store_conn *db,
                                               const struct store_sandbox_new *in, struct arena *a,
                                               struct store_created *out);

/* --- read -------------------------------------------------------------- */

/* account_id NULL: whoever owns it. SBX_E_NOT_FOUND, one message for all reasons. */
MUST_USE enum sbx_code store_sandbox_get(struct store_conn *db, const char *account_id,
                                         const char *sandbox_id, struct arena *a,
                                         struct store_sandbox *out, struct sbx_err *err);

/* The same, to be settled with others. */
struct store_later *store_sandbox_get_later(struct store_conn *db, const char *account_id,
                                            const char *sandbox_id, struct arena *a,
                                            struct store_sandbox *out);

struct store_sandbox_filter {
    const char *account_id; /* NULL: all accounts (operator) */
    const char *app_id;     /* NULL: any */
    uint32_t statuses;      /* a set; 0 matches nothing: use SANDBOX_SET_ALL for no filter */
    int limit;              /* 1..STORE_LIST_MAX */
    int64_t offset;         /* (page - 1) * limit; ignored with a cursor */
    int64_t before_ms;      /* cursor: createdAt and id of the last row seen; id NULL for none */
    const char *before_id;
    bool want_total;
};
/* Newest first by (createdAt, sandboxId). Never an empty list for a failure (case 13). */
MUST_USE enum sbx_code store_sandbox_list(struct store_conn *db,
                                          const struct store_sandbox_filter *filter,
                                          struct arena *a, struct store_sandboxes *out,
                                          struct sbx_err *err);
/* Those of ids that have a row, in id order; at most STORE_LIST_MAX ids. */
MUST_USE enum sbx_code store_sandbox_list_ids(struct store_conn *db, const char *const *ids,
                                              size_t count, struct arena *a,
                                              struct store_sandboxes *out, struct sbx_err *err);
/* Rows of a region that hold compute, in id order after `after` (NULL: from the start). */
MUST_USE enum sbx_code store_sandbox_list_held(struct store_conn *db, const char *region,
                                               const char *after, int limit, struct arena *a,
                                               struct store_sandboxes *out, struct sbx_err *err);
/* The quota rule's count (contract 3). */
MUST_USE enum sbx_code store_sandbox_count_active(struct store_conn *db, const char *account_id,
                                                  int64_t *out, struct sbx_err *err);

/* --- moves ------------------------------------------------------------- */

/* A condition that the database's clock decides inside the move's own statement. */
enum store_guard {
    STORE_GUARD_NONE = 0,
    STORE_GUARD_IDLE,      /* READY, nothing running, last_active_at + idle timeout has passed */
    STORE_GUARD_EXPIRED,   /* expires_at has passed */
    STORE_GUARD_RETENTION, /* suspended_at + retention has passed */
    STORE_GUARD_DEADLINE,  /* the transitional status's deadline has passed */
};

enum store_next {
    STORE_NEXT_TIMERS = 0, /* by the new status: idle, expires_at, retention, deadline */
    STORE_NEXT_IN,         /* next_in_ms from now, but not later than its timers */
    STORE_NEXT_NEVER,      /* TERMINATED */
};

enum store_keep { STORE_KEEP = 0, STORE_SET, STORE_CLEAR };

/* One guarded change of status: it happens when the row still has `generation` and a status in
 * `from`; generation becomes one higher and an event row is written by the same statement.  When
 * `to` is the status it has (a FAILED one's compute is released, contract 3: the generation counts
 * changes of status) generation, status_since and the status's times stay, and no event is written.
 * By the new status the statement also sets: READY sets ready_at (first time) or
 * resumed_at (from RESUMING) and last_active_at; SUSPENDED suspended_at; FAILED failed_at;
 * TERMINATED terminated_at; both release compute (holds_compute).  Execution rows stay until
 * store_execution_end: who waits for them is told by the gateway.  A move to READY or BUSY
 * lands on the one of the two that `running` says. */
struct store_move {
    const char *sandbox_id;
    int64_t generation;
    uint32_t from; /* set */
    enum sandbox_status to;
    enum store_guard guard;
    enum store_keep desired_op; /* STORE_SET: to `desired` */
    enum sandbox_status desired;
    const char *status_reason;          /* NULL: none any more */
    enum sandbox_fault fault;           /* NONE: keep */
    enum sandbox_end_reason end_reason; /* NONE: keep; the first one given stays */
    enum store_keep compute;            /* STORE_SET: holds compute; STORE_CLEAR: released */
    enum store_next next;
    int64_t next_in_ms;
    int64_t deadline_in_ms;  /* transitional statuses; 0: none */
    const char *lease_owner; /* the lease this move keeps or takes; NULL: none after it */
    int64_t lease_ms;
    const char *operation_id;                    /* NULL: none */
    bool set_warm;                               /* isWarmAllocation becomes true */
    bool set_claimed;                            /* claimed_at becomes now, if it was not set */
    const struct store_persistence *persistence; /* NULL: keep */
    const struct store_pause *pause;             /* NULL: keep */
    const char *cause;                           /* event: "idle", "user terminate", ... */
    const char *actor;                           /* event: "user:<id>", "reconciler", "operator" */
    const char *request_id;                      /* event; or NULL */
};

/* SBX_E_CHANGING: the row is not (any more) what the move says; nothing was changed.
 * SBX_E_UNAVAILABLE: whether it happened is not known, read again. out may be NULL. */
MUST_USE enum sbx_code store_sandbox_move(struct store_conn *db, const struct store_move *move,
                                          struct arena *a, struct store_sandbox *out,
                                          struct sbx_err *err);
/* Many moves in one pipeline and one commit: one that lost does not hinder the others, and a
 * failure means that none happened. moved[i] says which happened, out[i] (out may be NULL) its row.
 * At most STORE_BATCH_MAX. */
MUST_USE enum sbx_code store_sandbox_moves(struct store_conn *db, const struct store_move *moves,
                                           size_t count, bool *moved, struct arena *a,
                                           struct store_sandbox *out, struct sbx_err *err);
/* All of them or none, in order, in one transaction: FAILED then TERMINATING of one row.
 * SBX_E_CHANGING: none happened. last: the row after the last move, or NULL. */
MUST_USE enum sbx_code store_sandbox_moves_atomic(struct store_conn *db,
                                                  const struct store_move *moves, size_t count,
                                                  struct arena *a, struct store_sandbox *last,
                                                  struct sbx_err *err);

/* SUSPENDED to RESUMING under the account lock and the quota. `changed` false: it is RESUMING,
 * READY or BUSY already and comes back unchanged. SBX_E_NOT_FOUND, CONFLICT (another status),
 * QUOTA (limit and active set). */
struct store_resume {
    const char *account_id, *sandbox_id, *actor, *request_id, *operation_id;
    int64_t deadline_in_ms;
};
MUST_USE enum sbx_code store_sandbox_resume(struct store_conn *db, const struct store_resume *in,
                                            struct arena *a, struct store_sandbox *out,
                                            bool *changed, int *quota_limit, int *quota_active,
                                            struct sbx_err *err);

/* Sets desired_status (no change of status, so no new generation) and makes the row due now, while
 * its status is in `from`. SBX_E_CHANGING: it is not. */
MUST_USE enum sbx_code store_sandbox_desire(struct store_conn *db, const char *sandbox_id,
                                            uint32_t from, enum sandbox_status desired,
                                            enum sandbox_end_reason end_reason,
                                            struct sbx_err *err);
/* Persistence facts without a change of status. SBX_E_CHANGING: another generation. */
MUST_USE enum sbx_code store_sandbox_report(struct store_conn *db, const char *sandbox_id,
                                            int64_t generation,
                                            const struct store_persistence *persistence,
                                            struct sbx_err *err);

/* --- due rows and leases ----------------------------------------------- */

/* Takes up to limit due rows: lease for lease_ms, attempt + 1, next action behind the lease.
 * Skips rows that another transaction holds. */
MUST_USE enum sbx_code store_sandbox_claim_due(struct store_conn *db, const char *owner,
                                               int64_t lease_ms, int limit, struct arena *a,
                                               struct store_sandboxes *out, struct sbx_err *err);
/* Takes one row now, due or not. SBX_E_BUSY: somebody else's live lease. SBX_E_NOT_FOUND. */
MUST_USE enum sbx_code store_sandbox_claim_one(struct store_conn *db, const char *owner,
                                               int64_t lease_ms, const char *sandbox_id,
                                               struct arena *a, struct store_sandbox *out,
                                               struct sbx_err *err);
/* Milliseconds until the next row is due: 0 when one is, -1 when there is none. One index look. */
MUST_USE enum sbx_code store_sandbox_next_due(struct store_conn *db, int64_t *in_ms,
                                              struct sbx_err *err);
/* Prolongs all of owner's leases that are still alive, and their rows' next action with them. */
MUST_USE enum sbx_code store_lease_renew(struct store_conn *db, const char *owner, int64_t lease_ms,
                                         int *renewed, struct sbx_err *err);
/* Gives a lease back without a move: the row is due again at `next`. keep_attempt: a failed try
 * (backoff goes on); else attempt becomes 0. last_error NULL: none. A lease that is not ours any
 * more is left alone (SBX_OK). */
struct store_release {
    const char *sandbox_id;
    int64_t generation;
    const char *owner;
    enum store_next next;
    int64_t next_in_ms;
    bool keep_attempt;
    const char *last_error;
};
MUST_USE enum sbx_code store_lease_release(struct store_conn *db, const struct store_release *rel,
                                           size_t count, struct sbx_err *err);
/* Makes all rows of a region due now (it came back, or its listing disagrees). */
MUST_USE enum sbx_code store_sandbox_poke_region(struct store_conn *db, const char *region,
                                                 int *poked, struct sbx_err *err);

/* --- control planes ---------------------------------------------------- */

/* Says that instance (an id) lives. Call every few seconds. */
MUST_USE enum sbx_code store_instance_beat(struct store_conn *db, const char *instance,
                                           struct sbx_err *err);
/* At a clean stop: its leases are due at once. */
MUST_USE enum sbx_code store_instance_leave(struct store_conn *db, const char *instance,
                                            struct sbx_err *err);
/* Leases of instances that have not said so for stale_ms become due now. */
MUST_USE enum sbx_code store_instance_reap(struct store_conn *db, int64_t stale_ms, int *freed,
                                           struct sbx_err *err);

#endif
