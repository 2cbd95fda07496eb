#ifndef RECONCILE_RUNS_INTERNAL_H
#define RECONCILE_RUNS_INTERNAL_H

/* Inside reconcile only: the loop (runs.c) and the steps (runs_steps.c) of personal runs. */

#include <pthread.h>
#include <stdatomic.h>

#include "base/id.h"
#include "base/json.h"
#include "base/thread.h"
#include "reconcile/runs.h"

struct run_answer;

struct reconcile_runs {
    struct reconcile_runs_config cfg;
    struct store_conn *db; /* the loop's */
    char owner[ID_SIZE];   /* of leases */
    int wake_fd;
    struct thread thread;
    atomic_bool stopping;
    size_t calls; /* region calls under way; the loop's */
    pthread_mutex_t lock;
    struct run_answer *answers; /* under lock */
};

/* One region call about an operation, and its answer. */
struct run_answer {
    struct run_answer *next;
    struct reconcile_runs *runs;
    char operation_id[ID_SIZE];
    int64_t version; /* of the row that was looked at */
    enum run_step step;
    enum sbx_code code;
    bool answered; /* the region itself said so */
    json_t *json;  /* NULL: none */
};

/* One pass: writes what the region answered, takes due operations.  How long to wait after it. */
int reconcile_runs_pass(struct reconcile_runs *r);
/* Does the step that the plan says, or starts the call that it needs.  The row is leased. */
MUST_USE enum sbx_code reconcile_run_step(struct reconcile_runs *r,
                                          const struct store_operation *op, struct arena *a,
                                          struct sbx_err *err);
/* Writes what a region call found. */
MUST_USE enum sbx_code reconcile_run_settle(struct reconcile_runs *r,
                                            const struct run_answer *answer, struct arena *a,
                                            struct sbx_err *err);
gateway_client_fn reconcile_run_answered;
void reconcile_run_answer_free(struct run_answer *answer);

#endif
