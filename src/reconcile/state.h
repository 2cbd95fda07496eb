#ifndef RECONCILE_STATE_H
#define RECONCILE_STATE_H

/* Inside the core: its state, and the pieces that core.c, act.c, sweep.c and warm.c share. */

#include "base/arena.h"
#include "base/id.h"
#include "reconcile/core.h"

enum {
    OP_BUCKETS = 4096,
    RECONCILE_TIMER_AGAIN_MS = 200, /* after a timer's move that the database's clock refused */
};

enum reconcile_purpose {
    RECONCILE_FOR_ROW = 1, /* drives a row we have the lease of */
    RECONCILE_FOR_UNDO,    /* tears down what came too late */
    RECONCILE_FOR_STRAY,   /* tears down what has no row */
    RECONCILE_FOR_SWEEP,
    RECONCILE_FOR_ORPHANS, /* asks after executions of dead control planes */
    RECONCILE_FOR_WARM,
    RECONCILE_FOR_DRAIN,
    RECONCILE_FOR_PURGE,
    RECONCILE_FOR_WANTS,
    RECONCILE_FOR_LEND,
};

/* One call under way. */
struct reconcile_op {
    struct reconcile_op *by_token, *by_id; /* hash chains */
    struct reconcile_op *next, *prev;      /* all of them */
    uint64_t token;
    enum reconcile_call_kind kind;
    enum reconcile_purpose purpose;
    char id[ID_SIZE];
    char region[RECONCILE_REGION_NAME_SIZE];
    int64_t generation;  /* the row's, as last moved by us */
    struct plan_row row; /* as last known */
    int64_t started_ms;  /* monotonic */
    int64_t timer_ms;    /* monotonic: its timers are not looked at before */
    char operation_id[ID_SIZE];
    bool lost;                         /* the row has moved on without us */
    bool settled;                      /* a move of the present batch comes from its answer */
    int tries;                         /* undo */
    char volume[72], account[ID_SIZE]; /* PURGE, LEND */
};

struct reconcile_late {
    char id[ID_SIZE];
    char region[RECONCILE_REGION_NAME_SIZE];
    int64_t generation;
    int64_t at_ms;
    int tries;
};

struct reconcile_orphan {
    char execution_id[ID_SIZE];
    char sandbox_id[ID_SIZE];
    char region[RECONCILE_REGION_NAME_SIZE]; /* "": not looked up yet */
    bool asked;
};

struct reconcile_sweep {
    char region[RECONCILE_REGION_NAME_SIZE];
    bool present; /* still among the regions */
    bool listing;
    bool away;
    int64_t next_ms;
    struct reconcile_seen *items;
    size_t count, cap;
    bool asking;    /* after the volumes that it wants credentials for */
    size_t lending; /* of those, under way to it */
    int64_t next_ask_ms;
};

/* A list of ids with a bound; what does not fit is found by polling. */
struct reconcile_ids {
    char (*ids)[ID_SIZE];
    size_t count, cap, max;
};

/* What becomes of the op that led to a move. */
enum reconcile_fate {
    RECONCILE_OP_ENDS = 0, /* its answer is in: it is freed */
    RECONCILE_OP_STAYS,    /* the call goes on for the row as moved */
    RECONCILE_OP_LOSES,    /* the call goes on, but the row is moved away under it */
};

/* A move to be written, and what follows from it. */
struct reconcile_intent {
    char id[ID_SIZE];
    char region[RECONCILE_REGION_NAME_SIZE];
    struct reconcile_op *op; /* NULL: none led to it */
    enum reconcile_fate fate;
    struct plan_step step;
    struct store_move move;
    struct store_persistence persistence;
    char reason[RECONCILE_MESSAGE_SIZE];
    char operation_id[ID_SIZE];
    bool deployed; /* the region runs it because of us: a lost move is undone */
};

/* The moves and releases of one pass, written together. */
struct reconcile_batch {
    struct reconcile_intent intents[RECONCILE_BATCH];
    size_t count;
    struct store_release releases[RECONCILE_BATCH];
    char release_ids[RECONCILE_BATCH][ID_SIZE];
    char release_errors[RECONCILE_BATCH][RECONCILE_MESSAGE_SIZE];
    size_t release_count;
};

struct reconcile_core {
    struct reconcile_core_config cfg;
    bool quiet; /* takes no new row */
    bool wake;
    uint64_t next_token;
    uint64_t rng;
    int64_t db_offset_ms; /* database clock - monotonic */
    bool db_up;
    int64_t db_retry_ms; /* monotonic: not before */
    int64_t next_poll_ms, next_renew_ms, next_beat_ms, next_reap_ms, next_orphan_ms, next_warm_ms,
        next_prune_ms, next_purge_ms, next_scan_ms;
    int64_t warm_backoff_ms;

    struct reconcile_op *tokens[OP_BUCKETS];
    struct reconcile_op *ids[OP_BUCKETS]; /* RECONCILE_FOR_ROW only, the newest of each id */
    struct reconcile_op *ops;             /* all of them */
    size_t op_count;

    struct reconcile_batch batch;
    struct reconcile_answer *answers, **answers_end;
    struct reconcile_ids recover; /* our lease may still be on these */
    struct reconcile_ids probes;
    struct reconcile_ids ended; /* executions to remove */
    struct reconcile_late late[RECONCILE_LATE_MAX];
    size_t late_count;
    struct reconcile_orphan *orphans;
    size_t orphan_count, orphan_cap;
    struct reconcile_sweep sweeps[RECONCILE_REGIONS_MAX];
    size_t sweep_count;
    struct reconcile_counts counts;
};

int64_t reconcile_mono(const struct reconcile_core *c);
int64_t reconcile_db_now(const struct reconcile_core *c);
uint32_t reconcile_jitter(struct reconcile_core *c);
/* Notes a failed store call: the database is left alone for a moment. */
void reconcile_db_failed(struct reconcile_core *c, const struct sbx_err *err, const char *what);
void reconcile_db_worked(struct reconcile_core *c);
bool reconcile_db_usable(const struct reconcile_core *c);

bool reconcile_ids_add(struct reconcile_ids *l, const char *id);
void reconcile_ids_drop(struct reconcile_ids *l, size_t first);

struct reconcile_op *reconcile_op_new(struct reconcile_core *c, enum reconcile_call_kind kind,
                                      enum reconcile_purpose purpose, const char *id,
                                      const char *region);
void reconcile_op_free(struct reconcile_core *c, struct reconcile_op *op);
/* An op's timers want a look at that time (monotonic). */
void reconcile_scan_at(struct reconcile_core *c, int64_t mono_ms);
struct reconcile_op *reconcile_op_by_token(const struct reconcile_core *c, uint64_t token);
struct reconcile_op *reconcile_op_of(const struct reconcile_core *c, const char *sandbox_id);
/* The call of an op; kind, token, ids and generation are filled in. */
struct reconcile_call reconcile_call_of(const struct reconcile_op *op);

/* Adds a move to the batch, which must have room. */
struct reconcile_intent *reconcile_intent_new(struct reconcile_core *c, const char *id,
                                              const char *region, const struct plan_row *row,
                                              const struct plan_step *step, struct reconcile_op *op,
                                              enum reconcile_fate fate);
/* Write what the batch holds. */
void reconcile_flush_moves(struct reconcile_core *c, struct arena *a);
void reconcile_flush_releases(struct reconcile_core *c);
/* What an answer says about a row. Texts are borrowed from answer. */
struct plan_observation reconcile_observe(const struct reconcile_op *op,
                                          const struct reconcile_answer *answer);
/* Starts the action of a row whose lease is ours. */
void reconcile_act(struct reconcile_core *c, const struct store_sandbox *row,
                   enum sandbox_action action);
/* Gives the lease back as step says; written with the pass's batch. */
void reconcile_release(struct reconcile_core *c, const char *sandbox_id, const struct plan_row *row,
                       const struct plan_step *step, const char *last_error);
void reconcile_late_add(struct reconcile_core *c, const char *id, const char *region,
                        int64_t generation, int tries);
void reconcile_late_pass(struct reconcile_core *c, struct arena *a);
void reconcile_orphan_pass(struct reconcile_core *c, struct arena *a);
void reconcile_orphan_answer(struct reconcile_core *c, const struct reconcile_op *op,
                             const struct reconcile_answer *answer);
struct reconcile_sweep *reconcile_sweep_of(struct reconcile_core *c, const char *region);
void reconcile_sweep_pass(struct reconcile_core *c);
void reconcile_sweep_answer(struct reconcile_core *c, const struct reconcile_op *op,
                            const struct reconcile_answer *answer);
/* It did not answer the last time that it was asked; the sweep asks until it does. */
bool reconcile_region_away(struct reconcile_core *c, const char *region);
void reconcile_region_silent(struct reconcile_core *c, const char *region);
void reconcile_warm_pass(struct reconcile_core *c, struct arena *a);
void reconcile_warm_answer(struct reconcile_core *c, const struct reconcile_op *op,
                           const struct reconcile_answer *answer);
void reconcile_purge_pass(struct reconcile_core *c, struct arena *a);
void reconcile_purge_answer(struct reconcile_core *c, const struct reconcile_op *op,
                            const struct reconcile_answer *answer);
void reconcile_lend_pass(struct reconcile_core *c);
void reconcile_wants_answer(struct reconcile_core *c, const struct reconcile_op *op,
                            const struct reconcile_answer *answer);
void reconcile_lend_answer(struct reconcile_core *c, const struct reconcile_op *op,
                           const struct reconcile_answer *answer);

#endif
