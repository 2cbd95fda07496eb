#ifndef RECONCILE_CORE_H
#define RECONCILE_CORE_H

/* The reconciler without threads, sockets and clock: what one control plane decides and
 * writes, one pass at a time.  The loop (loop.c) drives it in the product, the
 * simulation (tests/sim) drives several of them against one store and one region.
 *
 * One thread at a time.  Store and region are behind tables; time is a function. */

#include "base/id.h"
#include "domain/plan.h"
#include "region/gateway_client.h"
#include "store/executions.h"
#include "store/sandboxes.h"
#include "store/volumes.h"
#include "store/warm.h"

enum {
    RECONCILE_BATCH = 128,        /* rows claimed and moves written at once */
    RECONCILE_RECOVER_MAX = 4096, /* ids that a failed write left to be looked at again */
    RECONCILE_LATE_MAX = 1024,    /* late results waiting to be torn down */
    RECONCILE_LATE_TRIES = 20,
    RECONCILE_ORPHANS_MAX = 16384, /* executions of dead control planes */
    RECONCILE_REGIONS_MAX = 256,
    RECONCILE_SWEEP_ITEMS_MAX = 200000,
    RECONCILE_REGION_NAME_SIZE = 64,
    RECONCILE_MESSAGE_SIZE = 240,
};

/* statusReason after a pause that did not go through, by which of the two it was: the archive could
 * not be written, or the region could not try. */
#define RECONCILE_PAUSE_FAILED  "The pause failed; the sandbox runs as before."
#define RECONCILE_PAUSE_NOT_NOW "The sandbox cannot be paused now; it runs as before."

/* --- what the core asks of a region ------------------------------------ */

enum reconcile_call_kind {
    RECONCILE_DEPLOY = 1,
    RECONCILE_DESTROY,
    RECONCILE_SAVE, /* snapshot or stop, as the row's mode says */
    RECONCILE_ASK,
    RECONCILE_LIST,
    RECONCILE_WARM,
    RECONCILE_PURGE,
    RECONCILE_WANTS, /* which volumes the region lacks credentials for */
    RECONCILE_LEND,  /* those of one */
};

/* Borrowed for the call of start. */
struct reconcile_call {
    enum reconcile_call_kind kind;
    uint64_t token; /* comes back with the answer */
    const char *region;
    const char *id; /* sandbox or warm member; LIST: after it ("" from the start) */
    int64_t generation;
    const char *operation_id;
    const struct store_sandbox *row;   /* DEPLOY, SAVE */
    const struct store_warm *warm;     /* WARM */
    const struct store_volume *volume; /* PURGE; LEND: its names */
};

/* One sandbox as the region reports it. */
struct reconcile_seen {
    char id[ID_SIZE];
    int64_t generation;
    enum region_phase phase;
    bool warm, claimed;
    bool has_persistence;
    bool restore_failed;
    char mount_path[256];
    int64_t last_snapshot_at_ms, last_snapshot_bytes;
    char snapshot_error[RECONCILE_MESSAGE_SIZE];
    char reason[RECONCILE_MESSAGE_SIZE];
};

/* A volume that a region wants credentials for. */
struct reconcile_want {
    char account[ID_SIZE];
    char volume[72];
};

struct reconcile_answer {
    struct reconcile_answer *link;
    uint64_t token;
    enum sbx_code code;
    bool answered; /* the region itself said so */
    int retry_after_s;
    char message[RECONCILE_MESSAGE_SIZE];
    struct reconcile_seen *seen; /* DEPLOY ASK SAVE WARM: one or none; LIST: count */
    size_t count;
    char next[ID_SIZE];          /* LIST: where to go on, "" at the end */
    char (*executions)[ID_SIZE]; /* ASK: those it runs */
    size_t execution_count;
    int64_t snapshot_bytes, snapshot_at_ms; /* SAVE */
    struct reconcile_want *wants;           /* WANTS */
    size_t want_count;
};
void reconcile_answer_free(struct reconcile_answer *a); /* NULL is allowed */

struct reconcile_region_ops {
    /* Starts a call; its answer comes by reconcile_core_answer. An error: it was not started. */
    enum sbx_code (*start)(void *self, const struct reconcile_call *call, struct sbx_err *err);
};

/* --- what the core asks of the store: the functions of store/ ---------- */

struct reconcile_store_ops {
    enum sbx_code (*claim_due)(struct store_conn *db, const char *owner, int64_t lease_ms,
                               int limit, struct arena *a, struct store_sandboxes *out,
                               struct sbx_err *err);
    enum sbx_code (*claim_one)(struct store_conn *db, const char *owner, int64_t lease_ms,
                               const char *sandbox_id, struct arena *a, struct store_sandbox *out,
                               struct sbx_err *err);
    enum sbx_code (*moves)(struct store_conn *db, const struct store_move *moves, size_t count,
                           bool *moved, struct arena *a, struct store_sandbox *out,
                           struct sbx_err *err);
    enum sbx_code (*release)(struct store_conn *db, const struct store_release *rel, size_t count,
                             struct sbx_err *err);
    enum sbx_code (*desire)(struct store_conn *db, const char *sandbox_id, uint32_t from,
                            enum sandbox_status desired, enum sandbox_end_reason end_reason,
                            struct sbx_err *err);
    enum sbx_code (*list_ids)(struct store_conn *db, const char *const *ids, size_t count,
                              struct arena *a, struct store_sandboxes *out, struct sbx_err *err);
    enum sbx_code (*list_held)(struct store_conn *db, const char *region, const char *after,
                               int limit, struct arena *a, struct store_sandboxes *out,
                               struct sbx_err *err);
    enum sbx_code (*next_due)(struct store_conn *db, int64_t *in_ms, struct sbx_err *err);
    enum sbx_code (*poke_region)(struct store_conn *db, const char *region, int *poked,
                                 struct sbx_err *err);
    enum sbx_code (*renew)(struct store_conn *db, const char *owner, int64_t lease_ms, int *renewed,
                           struct sbx_err *err);
    enum sbx_code (*beat)(struct store_conn *db, const char *instance, struct sbx_err *err);
    enum sbx_code (*reap)(struct store_conn *db, int64_t stale_ms, int *freed, struct sbx_err *err);
    enum sbx_code (*execution_claim_stale)(struct store_conn *db, const char *instance,
                                           int64_t stale_ms, int64_t grace_ms, int limit,
                                           struct arena *a, struct store_executions *out,
                                           struct sbx_err *err);
    enum sbx_code (*execution_end)(struct store_conn *db, const char *execution_id, bool *was_there,
                                   struct sbx_err *err);
    enum sbx_code (*warm_pools)(struct store_conn *db, struct arena *a,
                                struct store_warm_pools *out, struct sbx_err *err);
    enum sbx_code (*warm_add)(struct store_conn *db, const struct store_warm_pool *pool, int count,
                              int total_max, int64_t deadline_ms, struct arena *a,
                              struct store_warms *out, struct sbx_err *err);
    enum sbx_code (*warm_set)(struct store_conn *db, const char *warm_id, enum store_warm_status to,
                              struct sbx_err *err);
    enum sbx_code (*warm_drain)(struct store_conn *db, const struct store_warm_pool *pool,
                                int count, int *drained, struct sbx_err *err);
    enum sbx_code (*warm_claim_drain)(struct store_conn *db, const char *owner, int64_t lease_ms,
                                      int limit, struct arena *a, struct store_warms *out,
                                      struct sbx_err *err);
    enum sbx_code (*warm_remove)(struct store_conn *db, const char *warm_id, struct sbx_err *err);
    enum sbx_code (*warm_list)(struct store_conn *db, const char *region, const char *after,
                               int limit, struct arena *a, struct store_warms *out,
                               struct sbx_err *err);
    enum sbx_code (*claim_purge)(struct store_conn *db, const char *owner, int64_t lease_ms,
                                 int limit, struct arena *a, struct store_volumes *out,
                                 struct sbx_err *err);
    enum sbx_code (*purged)(struct store_conn *db, const char *account_id, const char *region,
                            const char *volume_name, struct sbx_err *err);
    enum sbx_code (*prune)(struct store_conn *db, int64_t keep_ms, int limit, int *removed,
                           struct sbx_err *err);
};
extern const struct reconcile_store_ops RECONCILE_STORE; /* the real one */

/* --- the core ---------------------------------------------------------- */

struct reconcile_core;

struct reconcile_core_config {
    struct plan_times times;
    char instance[ID_SIZE];
    int64_t lease_ms;
    int64_t poll_ms;   /* due rows are looked for at least so often */
    int64_t accept_ms; /* a deploy under way for so long is STARTING */
    int64_t region_sweep_ms;
    int64_t stale_ms; /* a control plane silent for so long is dead */
    int64_t execution_grace_ms;
    int64_t trail_keep_ms; /* 0: never prune */
    size_t actions_max;
    int warm_total_max;
    int64_t warm_deadline_ms;
    const struct reconcile_store_ops *store;
    struct store_conn *db;
    const struct reconcile_region_ops *region;
    void *region_self;
    int64_t (*mono_ms)(void *arg);
    void *clock_arg;
    uint64_t seed; /* jitter */
    /* Runs for each row a move of ours changed; NULL: none. */
    void (*on_move)(void *arg, const struct store_sandbox *row);
    void *move_arg;
    bool skip_undo; /* the simulation's mutation: a late deploy is not torn down */
};

struct reconcile_counts {
    uint64_t moves, moves_lost, undone, lost, strays, claims, lent;
};

struct reconcile_core *reconcile_core_new(const struct reconcile_core_config *config);
void reconcile_core_free(struct reconcile_core *c); /* NULL is allowed */

/* The regions there are; unknown ones are forgotten, new ones swept soon. */
void reconcile_core_regions(struct reconcile_core *c, const char *const *names, size_t count);
/* Due rows may be there: look now. */
void reconcile_core_wake(struct reconcile_core *c);
void reconcile_core_keep_trail(struct reconcile_core *c,
                               int64_t ms); /* trail_keep_ms from now on */
void reconcile_core_probe(struct reconcile_core *c, const char *sandbox_id);
/* An execution whose end could not be written: done with the next pass. */
void reconcile_core_execution_ended(struct reconcile_core *c, const char *execution_id);
/* Takes the answer; it is worked on in the next pass. */
void reconcile_core_answer_take(struct reconcile_core *c, struct reconcile_answer *answer);
/* One pass. Milliseconds until the next one is wanted, if nothing comes first. */
int64_t reconcile_core_pass(struct reconcile_core *c);
/* No new row is taken any more; answers are still worked on. */
void reconcile_core_quiesce(struct reconcile_core *c);
size_t reconcile_core_actions(const struct reconcile_core *c); /* calls under way */
bool reconcile_core_database_up(const struct reconcile_core *c);
void reconcile_core_counts(const struct reconcile_core *c, struct reconcile_counts *out);

/* The planner's view of a stored row. */
struct plan_row reconcile_plan_row(const struct store_sandbox *row);
/* The guarded move of a step; texts are borrowed. */
struct store_move reconcile_move_of(const char *sandbox_id, const struct plan_row *row,
                                    const struct plan_step *step, int64_t now_ms);

#endif
