#include "reconcile/runs.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/scoped.h"
#include "base/thread.h"
#include "base/time.h"
#include "reconcile/runs_internal.h"

enum {
    LEASE_MS = 25000, /* longer than any process call */
    CLAIM_MAX = 32,   /* operations of one pass */
    IDLE_WAIT_MS = 1000,
    AWAY_WAIT_MS = 2000,
};

static void drain(int fd)
{
    uint64_t n;

    while (read(fd, &n, sizeof(n)) < 0 && errno == EINTR)
        continue;
}

void reconcile_runs_wake(struct reconcile_runs *r)
{
    uint64_t one = 1;

    if (r != NULL)
        (void)!write(r->wake_fd, &one, sizeof(one));
}

/* --- answers of the region, handed from the calls thread ------------------ */

static struct run_answer *take_answers(struct reconcile_runs *r)
{
    struct run_answer *list;

    (void)pthread_mutex_lock(&r->lock);
    list = r->answers;
    r->answers = NULL;
    (void)pthread_mutex_unlock(&r->lock);
    return list;
}

void reconcile_run_answered(void *arg, const struct gateway_client_answer *answer)
{
    struct run_answer *mine = arg;
    struct reconcile_runs *r = mine->runs;

    mine->code = answer->code;
    mine->answered = answer->answered;
    mine->json = answer->json != NULL ? json_deep_copy(answer->json) : NULL;
    (void)pthread_mutex_lock(&r->lock);
    mine->next = r->answers;
    r->answers = mine;
    reconcile_runs_wake(r); /* under the lock: the loop may end, and r with it, right after it */
    (void)pthread_mutex_unlock(&r->lock);
}

void reconcile_run_answer_free(struct run_answer *answer)
{
    json_decref(answer->json);
    free(answer);
}

static void handle_answers(struct reconcile_runs *r)
{
    for (struct run_answer *answer = take_answers(r), *next; answer != NULL; answer = next) {
        SCOPED_ARENA struct arena *a = arena_new();
        struct sbx_err err = { 0 };

        next = answer->next;
        r->calls--;
        if (reconcile_run_settle(r, answer, a, &err) != SBX_OK && err.code != SBX_E_CHANGING)
            log_err(LOG_WARN, "personal run step", &err,
                    LOG_S("operationId", answer->operation_id));
        reconcile_run_answer_free(answer);
    }
}

/* --- the loop -------------------------------------------------------------- */

static void step_all(struct reconcile_runs *r, int *wait_ms)
{
    SCOPED_ARENA struct arena *a = arena_new();
    struct store_operations due = { 0 };
    struct sbx_err err = { 0 };
    int64_t in_ms = -1;

    if (store_operation_claim_due(r->db, r->owner, LEASE_MS, CLAIM_MAX, a, &due, &err) != SBX_OK) {
        *wait_ms = AWAY_WAIT_MS;
        return;
    }
    for (size_t i = 0; i < due.count; i++) {
        struct sbx_err why = { 0 };

        if (reconcile_run_step(r, &due.rows[i], a, &why) != SBX_OK && why.code != SBX_E_CHANGING) {
            struct sbx_err ignored = { 0 };

            log_err(LOG_WARN, "personal run step", &why,
                    LOG_S("operationId", due.rows[i].operation_id),
                    LOG_S("phase", run_phase_name(due.rows[i].facts.phase)));
            (void)!store_operation_release(r->db, due.rows[i].operation_id, r->owner, AWAY_WAIT_MS,
                                           &ignored);
        }
    }
    if (due.count == CLAIM_MAX)
        *wait_ms = 0;
    else if (store_operation_next_due(r->db, &in_ms, &err) == SBX_OK && in_ms >= 0 &&
             in_ms < *wait_ms)
        *wait_ms = (int)in_ms;
}

int reconcile_runs_pass(struct reconcile_runs *r)
{
    int wait_ms = IDLE_WAIT_MS;

    handle_answers(r);
    step_all(r, &wait_ms);
    return wait_ms;
}

static void loop(void *arg)
{
    struct reconcile_runs *r = arg;

    while (!atomic_load(&r->stopping)) {
        int wait_ms = reconcile_runs_pass(r);
        struct pollfd fd = { .fd = r->wake_fd, .events = POLLIN };

        if (poll(&fd, 1, wait_ms) > 0)
            drain(r->wake_fd);
    }
    while (r->calls > 0) { /* each call ends by its own deadline */
        struct pollfd fd = { .fd = r->wake_fd, .events = POLLIN };

        if (poll(&fd, 1, IDLE_WAIT_MS) > 0)
            drain(r->wake_fd);
        handle_answers(r);
    }
}

enum sbx_code reconcile_runs_start(const struct reconcile_runs_config *config,
                                   struct reconcile_runs **out, struct sbx_err *err)
{
    struct reconcile_runs *r = mem_zalloc(sizeof(*r));

    r->cfg = *config;
    (void)pthread_mutex_init(&r->lock, NULL);
    id_new(r->owner);
    r->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (r->wake_fd < 0) {
        free(r);
        return err_sys(err, SBX_E_INTERNAL, "eventfd");
    }
    r->db = store_conn_new(config->store, "runs");
    if (thread_start(&r->thread, "runs", loop, r, err) != SBX_OK) {
        reconcile_runs_stop(r);
        return err->code;
    }
    *out = r;
    return SBX_OK;
}

void reconcile_runs_stop(struct reconcile_runs *r)
{
    if (r == NULL)
        return;
    atomic_store(&r->stopping, true);
    reconcile_runs_wake(r);
    thread_join(&r->thread);
    store_conn_free(r->db);
    fd_close(&r->wake_fd);
    (void)pthread_mutex_destroy(&r->lock);
    free(r);
}
