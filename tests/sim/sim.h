#ifndef TESTS_SIM_SIM_H
#define TESTS_SIM_SIM_H

/* A deterministic simulation of several control planes on one store and one region
 * (architecture: tests/sim).  Real: the move table, plan, the reconciler's core, what
 * handlers ask for.  Stand-ins: the store (same guarded-update semantics), the region
 * (same fencing), the network, the clocks.  One seed is one history. */

#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "reconcile/ask.h"
#include "reconcile/core.h"

enum {
    SIM_PLANES = 3,
    SIM_ROWS = 24,
    SIM_ACCOUNTS = 2,
    SIM_KEYS = 8,
    SIM_BOXES = 32,
    SIM_EXECUTIONS = 64,
    SIM_JOURNAL = 64,
    SIM_EVENTS = 65536,
    SIM_WAITERS = 16,
    SIM_REASON = 96,
};

enum sim_mutation {
    SIM_MUTATION_NONE = 0,
    SIM_NO_GENERATION_GUARD, /* moves ignore the generation */
    SIM_NO_UNDO,             /* a late deploy is not torn down */
    SIM_QUOTA_OUTSIDE,       /* the quota is counted before the transaction of the insert */
    SIM_MUTATION_COUNT
};

struct sim_row {
    char id[ID_SIZE];
    int account, key;
    enum sandbox_status status, previous, desired;
    int64_t generation;
    enum sandbox_fault fault;
    enum sandbox_end_reason end_reason;
    enum sandbox_persistence persistence;
    int running;
    bool holds;
    char operation_id[ID_SIZE];
    char lease_owner[ID_SIZE];
    int64_t lease_until, next_action; /* 0: never */
    int64_t deadline, expires, last_active, suspended, failed;
    int attempt;
    int64_t since;        /* of the status, in the history's time */
    int64_t leased_since; /* 0: no lease */
    bool acknowledged;    /* a client was told that it is SUSPENDED */
    int64_t waits_until;  /* a client waits for its pause */
};

struct sim_execution {
    char id[ID_SIZE];
    int row;
    int plane, life; /* who waits for it */
    char instance[ID_SIZE];
    int64_t deadline;
    bool used;
};

struct sim_instance {
    char id[ID_SIZE];
    int64_t beat;
};

/* Who waits for an operation in the region. */
struct sim_waiter {
    int plane;
    int life;
    uint64_t token;
    enum reconcile_call_kind kind;
};

struct sim_done {
    char operation_id[ID_SIZE];
    enum sbx_code code;
};

struct sim_box {
    char id[ID_SIZE];
    int64_t seen; /* highest generation */
    int64_t tomb; /* deletes up to this one; -1: none */
    bool compute; /* the runtime has something of it */
    enum region_phase phase;
    bool crashed; /* it died by itself since it was deployed */
    bool stray;   /* put there by the simulation */
    int computes; /* ever started */
    /* the operation under way */
    enum reconcile_call_kind busy; /* 0: none */
    char operation_id[ID_SIZE];
    int64_t generation;
    uint64_t work; /* names the EV_WORK that ends it */
    struct sim_waiter waiters[SIM_WAITERS];
    int waiter_count;
    struct sim_done journal[SIM_JOURNAL];
    int journal_count;
    char executions[SIM_EXECUTIONS][ID_SIZE];
    int execution_count;
    int64_t unwanted_since; /* its row has ended; 0: it has not */
    int64_t answered_at;    /* a living control plane was told that it runs */
};

struct sim_plane {
    struct reconcile_core *core; /* NULL: dead */
    int life;                    /* one more with each start */
    char instance[ID_SIZE];
    int64_t skew;
    int64_t pass_at;
    bool killed;        /* in the middle of a pass: nothing it does has an effect any more */
    int kill_countdown; /* store calls until it is killed; 0: not */
    bool cut;           /* it cannot reach the database, others can */
};

/* The `struct store_conn` of the stand-in. */
struct sim_conn {
    struct sim *sim;
    int plane; /* -1: a client's */
};

enum sim_event_kind {
    SIM_EV_PASS = 1,
    SIM_EV_REQUEST, /* reaches the region */
    SIM_EV_WORK,    /* an operation of the region ends */
    SIM_EV_ANSWER,
    SIM_EV_CLIENT,
    SIM_EV_INSERT, /* the second half of a create whose quota was counted outside */
    SIM_EV_EXEC_ARRIVES,
    SIM_EV_EXEC_ENDS,
    SIM_EV_EXEC_ANSWER,
    SIM_EV_FAULT,
    SIM_EV_FAULT_ENDS,
};

struct sim_event {
    int64_t at;
    uint64_t order; /* ties: random, then by number */
    enum sim_event_kind kind;
    int plane, life;
    int a; /* box, row, or fault */
    struct sim_waiter from;
    int64_t generation;
    char id[ID_SIZE];           /* sandbox */
    char operation_id[ID_SIZE]; /* or execution */
    uint64_t work;
    struct reconcile_answer *answer;
};

/* How unkind this history is. Probabilities in 1/1000. */
struct sim_weather {
    int drop, duplicate, slow, unknown, deploy_fails, save_fails, exec_errors;
    bool amnesia;  /* the region loses its fences now and then */
    bool restless; /* clients pause and resume a few sandboxes all the time */
    int kills, partitions, database_outages, region_outages, clock_jumps, crashes, strays;
};

struct sim {
    uint64_t seed, rng;
    enum sim_mutation mutation;
    bool verbose;
    int64_t now;      /* ms since the start of the history */
    int64_t db_shift; /* the database's clock is ahead by so much */
    bool calm;        /* faults and clients have stopped */
    struct sim_weather weather;
    bool database_down, region_down, amnesia_struck;
    int64_t quiet_since; /* no fault since */
    int64_t calm_since;

    struct sim_plane planes[SIM_PLANES];
    struct sim_conn conns[SIM_PLANES + 1];
    struct plan_times times;
    struct sim_row rows[SIM_ROWS];
    int row_count;
    struct sim_execution executions[SIM_EXECUTIONS];
    struct sim_instance instances[SIM_PLANES * 64];
    int instance_count;
    int quota;

    struct sim_box boxes[SIM_BOXES];
    int box_count;
    uint64_t next_work;
    int next_id;

    struct sim_event *events; /* heap */
    int event_count;
    uint64_t next_order;

    long steps;
    jmp_buf broken;
    char why[256];
};

/* --- sim_world.c ------------------------------------------------------- */
/* Plays one history; NULL, or why it is broken (kept in s). */
const char *sim_play(struct sim *s, uint64_t seed, enum sim_mutation mutation, bool verbose);
uint64_t sim_random(struct sim *s);
int sim_below(struct sim *s, int n);              /* 0..n-1 */
bool sim_chance(struct sim *s, int per_thousand); /* never when calm */
void sim_id(struct sim *s, char out[ID_SIZE]);
struct sim_event *sim_schedule(struct sim *s, int64_t in_ms, enum sim_event_kind kind);
void sim_pass_soon(struct sim *s, int plane);
void sim_note_fault(struct sim *s);
void sim_trace(struct sim *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
void sim_break(struct sim *s, const char *fmt, ...) PRINTF_LIKE(2, 3) __attribute__((noreturn));

/* --- sim_store.c ------------------------------------------------------- */
extern const struct reconcile_store_ops SIM_STORE;
extern const struct reconcile_ask_ops SIM_ASK;
struct store_conn *sim_conn_of(struct sim *s, int plane);
int64_t sim_db_now(const struct sim *s);
struct sim_row *sim_row_of(struct sim *s, const char *id);
int sim_active(const struct sim *s, int account);
/* A create in one transaction; with the quota mutation its two halves. */
enum sbx_code sim_create_check(struct sim *s, int account, int key, int *existing);
enum sbx_code sim_create_insert(struct sim *s, int account, int key, bool check_quota);
enum sbx_code sim_resume(struct sim *s, struct sim_row *row);
enum sbx_code sim_execution_begin(struct sim *s, struct sim_row *row, int plane,
                                  char execution_id[ID_SIZE]);

/* --- sim_region.c ------------------------------------------------------ */
extern const struct reconcile_region_ops SIM_REGION;
struct sim_box *sim_box_of(struct sim *s, const char *id); /* made when it is not there */
void sim_region_request(struct sim *s, const struct sim_event *e);
void sim_region_work(struct sim *s, const struct sim_event *e);
void sim_region_exec_arrives(struct sim *s, const struct sim_event *e);
void sim_region_exec_ends(struct sim *s, const struct sim_event *e);
void sim_region_crash(struct sim *s, struct sim_box *b);
void sim_region_amnesia(struct sim *s);

/* --- sim_check.c ------------------------------------------------------- */
/* A change of status, as it is written. */
void sim_check_move(struct sim *s, const struct sim_row *row, enum sandbox_status from,
                    int64_t from_generation, const char *cause);
void sim_check_step(struct sim *s); /* after every event */
/* Every lifetime has passed and faults have stopped long ago. */
void sim_check_ended(struct sim *s);

#endif
