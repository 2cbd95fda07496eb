#ifndef TESTS_SIM_SIM_H
#define TESTS_SIM_SIM_H

/* A deterministic simulation of several control planes on one store and two regions
 * (architecture: tests/sim).  Real: the move tables, both plans, the reconciler's core, what
 * handlers ask for, the driver of personal runs with its steps.  Stand-ins: the store (same
 * guarded-update semantics), the regions (same fencing), the network, the clocks.  One seed is
 * one history. */

#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "reconcile/ask.h"
#include "reconcile/core.h"
#include "reconcile/runs_internal.h"

enum {
    SIM_PLANES = 3,
    SIM_REGIONS = 2,
    SIM_ROWS = 24,
    SIM_ACCOUNTS = 2,
    SIM_KEYS = 8,
    SIM_BOXES = 96,
    SIM_IDS = 8192, /* ids of one history */
    SIM_WARMS = 48,
    SIM_VOLUMES = 32,
    SIM_ARCHIVES = 8,
    SIM_CONNECTIONS = 2,
    SIM_OPERATIONS = 24,
    SIM_RUN_IDS = 12, /* few, so that they are tried again */
    SIM_CALLS = 256,  /* process calls under way */
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
    SIM_LATEST_FIRST,        /* `latest` is switched before the archive is whole */
    SIM_WARM_TWICE,          /* two creates may take one warm member */
    SIM_START_AGAIN,         /* a start whose outcome is not known is tried again */
    SIM_EXIT_INVENTED,       /* an end that nobody witnessed counts as exit 0 */
    SIM_FENCE_BY_AGE,        /* an old reservation loses the fence */
    SIM_HOLDER_LATE,         /* a holder is inserted whatever its run has become */
    SIM_MUTATION_COUNT
};

struct sim_row {
    char id[ID_SIZE];
    int account, key; /* key -1: a holder */
    int region;
    bool personal;
    int warm;        /* index of the member it took + 1 */
    int warm_serial; /* the number of that member's id */
    int revision;    /* of its template */
    int volume;      /* index + 1 */
    bool came_up;    /* it was READY once */
    bool restore_failed;
    int64_t kept; /* content of the workspace that its last pause kept */
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

/* The entrypoint of a holder. */
struct sim_process {
    char execution_id[ID_SIZE]; /* "": none was started */
    bool running;
    int exit_code;
    int64_t file; /* what its sign-in file holds; 0: nothing that can be read */
};

/* The archives of a sandbox on its volume, by generation, the oldest first. */
struct sim_archives {
    int64_t generation[SIM_ARCHIVES], content[SIM_ARCHIVES];
    int count;
    int64_t latest; /* names one; 0: none */
};

struct sim_box {
    char id[ID_SIZE];
    int region;
    bool warm;    /* a member of a pool */
    bool claimed; /* it was one */
    bool restored, restore_failed;
    int64_t work; /* content of its workspace */
    bool packed;  /* the archive of the pause under way is there */
    struct sim_archives archives;
    struct sim_process process;
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
    uint64_t work_number; /* names the EV_WORK that ends it */
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
    int64_t second;
    int passes;         /* in it */
    bool killed;        /* in the middle of a pass: nothing it does has an effect any more */
    int kill_countdown; /* store calls until it is killed; 0: not */
    struct reconcile_runs *runs;
    int64_t runs_at;
    bool cut; /* it cannot reach the database, others can */
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
    SIM_EV_PACKED, /* the archive of a pause is written */
    SIM_EV_REVISION,
    SIM_EV_POOL_OFF,
    SIM_EV_RUNS,            /* a pass of a plane's driver of personal runs */
    SIM_EV_PEOPLE,          /* an owner or a principal acts */
    SIM_EV_PROCESS,         /* a process call reaches the region */
    SIM_EV_PROCESS_ANSWERS, /* its answer, or that none came, reaches the caller */
    SIM_EV_PROCESS_EXITS,
    SIM_EV_RESET_ALL, /* calm: what is unfinished is ended */
};

/* What a region is asked about an entrypoint. */
enum sim_process_ask {
    SIM_PROCESS_CHECK = 1,
    SIM_PROCESS_START,
    SIM_PROCESS_STATUS,
    SIM_PROCESS_READ,
};

/* A process call under way, for whoever waits for it. */
struct sim_call {
    uint64_t number; /* 0: settled */
    int plane, life;
    gateway_client_fn *done;
    void *arg; /* freed when the plane has died */
};

/* One connection of an owner. */
struct sim_connection {
    char id[ID_SIZE];
    const char *state;
    int generation;
    int64_t auth;        /* which sign-in it holds; 0: none */
    bool owner_away;     /* the owner has no writing role now */
    int seen_generation; /* the highest there was */
};

struct sim_operation {
    char id[ID_SIZE], sandbox_id[ID_SIZE];
    int connection, installation;
    int64_t grant_expires;
    struct run_facts facts;
    int64_t version;
    char run_id[8];
    int run; /* 0: unclaimed */
    char execution_id[ID_SIZE];
    int64_t started, auth_generation, staged;
    int64_t next_action; /* 0: never */
    char lease_owner[ID_SIZE];
    bool preserved;
    /* what was true in the region, for the checks */
    bool dropped;    /* by the owner */
    int starts;      /* of its entrypoint, ever */
    int starts_told; /* start calls with different execution ids that reached the region */
    bool exited;
    int exit_code;
    int64_t wrote;
    int64_t since; /* of its last change, in the history's time */
};

struct sim_warm {
    char id[ID_SIZE];
    bool used;
    int revision, region;
    enum store_warm_status status;
    int64_t generation, lease_until, deadline;
    int row; /* who took it + 1 */
};

struct sim_volume {
    bool used, pending, purging;
    int account, region;
    int64_t purge_at, lease_until;
};

struct sim_event {
    int64_t at;
    enum sim_event_kind kind;
    int plane, life;
    int a;      /* box, row, fault, or what a process is asked */
    int region; /* of a request */
    bool restore;
    char warm_id[ID_SIZE]; /* of a deploy that claims */
    struct sim_waiter from;
    int64_t generation;
    char id[ID_SIZE];           /* sandbox */
    char operation_id[ID_SIZE]; /* or execution */
    uint64_t work;
    struct reconcile_answer *answer;
    /* of a process answer */
    enum sbx_code code;
    bool answered, sent, known, running;
    int exit_code;
    int64_t file;
};

/* A place in the heap. */
struct sim_slot {
    int64_t at;
    uint64_t order; /* ties: random, then by number */
    int event;
};

/* How unkind this history is. Probabilities in 1/1000. */
struct sim_weather {
    int drop, duplicate, slow, unknown, deploy_fails, save_fails, exec_errors;
    bool amnesia;  /* the region loses its fences now and then */
    bool restless; /* clients pause and resume a few sandboxes all the time */
    bool runs;     /* owners and principals are at work too */
    bool pool;     /* creates of one revision after another have a warm pool */
    bool one_away; /* a region stays away for long, in the calm too */
    int restore_fails, interleave;
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
    bool database_down, region_down[SIM_REGIONS], amnesia_struck;
    int64_t region_since[SIM_REGIONS]; /* it answers again */
    int64_t quiet_since;               /* no fault since */
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
    int64_t next_content;
    int next_id;
    /* index + 1 by the number that an id begins with */
    int16_t row_at[SIM_IDS], box_at[SIM_IDS], instance_at[SIM_IDS], operation_at[SIM_IDS];

    struct sim_warm warms[SIM_WARMS];
    struct store_warm_pool pool; /* desired, min, max of each region */
    bool pool_on;
    int revision;
    struct sim_volume volumes[SIM_VOLUMES];

    struct sim_connection connections[SIM_CONNECTIONS];
    struct sim_operation operations[SIM_OPERATIONS];
    int operation_count;
    struct sim_call calls[SIM_CALLS];
    uint64_t next_call;
    bool nested; /* somebody acts between two store calls of a plane's pass */

    struct sim_event *events;
    struct sim_slot *heap;
    int *free_events; /* those of events that wait for nothing */
    int free_count, event_top;
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

void sim_runs_soon(struct sim *s, int plane);
int sim_alive_plane(struct sim *s); /* -1: none */
void sim_plane_pass_runs(struct sim *s, int plane);

/* --- sim_store.c ------------------------------------------------------- */
extern const struct reconcile_store_ops SIM_STORE;
extern const struct reconcile_ask_ops SIM_ASK;
struct store_conn *sim_conn_of(struct sim *s, int plane);
int64_t sim_db_now(const struct sim *s);
/* What becomes of a store call of that connection; kills a control plane whose time has come. */
enum sim_effect { SIM_WORKS, SIM_FAILS_BEFORE, SIM_FAILS_AFTER };
enum sim_effect sim_enter(struct store_conn *db, struct sim **out);
#define ENTER(db)                                                                                  \
    struct sim *s;                                                                                 \
    enum sim_effect effect_ = sim_enter((db), &s);                                                 \
    if (effect_ == SIM_FAILS_BEFORE)                                                               \
    return err_set(err, SBX_E_UNAVAILABLE, "no database")
#define LEAVE()                                                                                    \
    do {                                                                                           \
        if (effect_ == SIM_FAILS_AFTER)                                                            \
            return err_set(err, SBX_E_UNAVAILABLE, "outcome not known");                           \
        return SBX_OK;                                                                             \
    } while (0)
int sim_id_number(const char *id); /* of an id of ours */
struct sim_row *sim_row_of(struct sim *s, const char *id);
/* A row that is to be filled in; NULL: too many. */
struct sim_row *sim_row_new(struct sim *s, const char *id);
void sim_row_give(const struct sim *s, const struct sim_row *r, struct arena *a,
                  struct store_sandbox *out);
extern const char *const SIM_REGION_NAMES[SIM_REGIONS];
int sim_region_index(const char *name);
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
void sim_region_packed(struct sim *s, const struct sim_event *e);
void sim_region_crash(struct sim *s, struct sim_box *b);
void sim_region_amnesia(struct sim *s);
void sim_region_restart(struct sim *s, int region);
/* Content of the archive that `latest` names; 0: none, or it is not there. */
int64_t sim_latest(const struct sim_box *b);

/* --- sim_warm.c: pools and volumes of the store ------------------------ */
/* The statements of the tables reconcile_store_ops names. */
enum sbx_code sim_warm_pools(struct store_conn *db, struct arena *a, struct store_warm_pools *out,
                             struct sbx_err *err);
enum sbx_code sim_warm_add(struct store_conn *db, const struct store_warm_pool *pool, int count,
                           int total_max, int64_t deadline_ms, struct arena *a,
                           struct store_warms *out, struct sbx_err *err);
enum sbx_code sim_warm_set(struct store_conn *db, const char *warm_id, enum store_warm_status to,
                           struct sbx_err *err);
enum sbx_code sim_warm_drain(struct store_conn *db, const struct store_warm_pool *pool, int count,
                             int *drained, struct sbx_err *err);
enum sbx_code sim_warm_claim_drain(struct store_conn *db, const char *owner, int64_t lease_ms,
                                   int limit, struct arena *a, struct store_warms *out,
                                   struct sbx_err *err);
enum sbx_code sim_warm_remove(struct store_conn *db, const char *warm_id, struct sbx_err *err);
enum sbx_code sim_warm_list(struct store_conn *db, const char *region, const char *after, int limit,
                            struct arena *a, struct store_warms *out, struct sbx_err *err);
enum sbx_code sim_claim_purge(struct store_conn *db, const char *owner, int64_t lease_ms, int limit,
                              struct arena *a, struct store_volumes *out, struct sbx_err *err);
enum sbx_code sim_purged(struct store_conn *db, const char *account_id, const char *region,
                         const char *volume_name, struct sbx_err *err);
struct sim_warm *sim_warm_of(struct sim *s, const char *id); /* NULL: none */
/* In the transaction of a create. */
void sim_warm_take(struct sim *s, struct sim_row *r);
bool sim_volume_take(struct sim *s, struct sim_row *r);
void sim_volume_client(struct sim *s); /* somebody removes or restores one */
bool sim_volume_in_use(const struct sim *s, int volume);
void sim_volume_purge(struct sim *s, int volume); /* the region deletes its objects */
void sim_check_warm(struct sim *s);

/* --- sim_runs.c: personal runs in the store ---------------------------- */
void sim_runs_begin(struct sim *s);
struct reconcile_runs *sim_runs_new(struct sim *s, int plane);
void sim_runs_free(struct reconcile_runs *r);
struct sim_operation *sim_operation_of_box(struct sim *s, const char *sandbox_id); /* NULL: none */
enum sbx_code sim_sign_in(struct sim *s, struct sim_connection *k);
enum sbx_code sim_reserve(struct sim *s, struct sim_connection *k);
enum sbx_code sim_reset(struct sim *s, struct sim_connection *k);
enum sbx_code sim_claim(struct sim *s, int grant, int installation, int run);
/* The row of a run as a handler reads it. */
enum sbx_code sim_run_find(struct sim *s, struct store_conn *db, int installation, int run,
                           struct arena *a, struct store_operation *out, struct sbx_err *err);
bool sim_runs_over(const struct sim *s);
void sim_check_runs(struct sim *s);
void sim_check_runs_ended(struct sim *s);

/* --- sim_owners.c: who uses personal runs, and the region's process path - */
void sim_people_act(struct sim *s);
void sim_reset_all(struct sim *s);
void sim_process_call(struct sim *s, int plane, const char *sandbox_id, enum sim_process_ask ask,
                      const char *execution_id, gateway_client_fn *done, void *arg);
void sim_process_arrives(struct sim *s, const struct sim_event *e);
void sim_process_answers(struct sim *s, const struct sim_event *e);
void sim_process_exits(struct sim *s, const struct sim_event *e);
void sim_process_forget(struct sim *s); /* frees what still waits */

/* --- sim_check.c ------------------------------------------------------- */
/* A change of status, as it is written. */
void sim_check_move(struct sim *s, const struct sim_row *row, enum sandbox_status from,
                    int64_t from_generation, const char *cause);
void sim_check_step(struct sim *s); /* after every event */
/* Every lifetime has passed and faults have stopped long ago. */
void sim_check_ended(struct sim *s);

#endif
