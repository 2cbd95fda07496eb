#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "base/time.h"
#include "gateway/gateway_impl.h"

static const char *const KIND_NAMES[] = {
    [GATEWAY_JOB_DEPLOY] = "deploy",
    [GATEWAY_JOB_DELETE] = "delete",
    [GATEWAY_JOB_STOP] = "stop",
    [GATEWAY_JOB_SNAPSHOT] = "snapshot",
};

struct gateway_job *gateway_job_new(struct gateway *g, enum gateway_job_kind kind, const char *id,
                                    const char *op, int64_t generation)
{
    struct gateway_job *job = mem_zalloc(sizeof(*job));

    job->g = g;
    job->kind = kind;
    job->generation = generation;
    job->arena = arena_new();
    (void)str_copy(job->id, sizeof(job->id), id);
    (void)str_copy(job->op, sizeof(job->op), op);
    return job;
}

void gateway_job_free(struct gateway_job *job)
{
    if (job == NULL)
        return;
    secret_free(job->password);
    volume_backend_fini(&job->backend);
    arena_free(job->arena);
    free(job);
}

static void answer_all(struct gateway_job *job, const struct sbx_err *err, const char *body)
{
    for (size_t i = 0; i < job->ticket_count; i++)
        gateway_answer(job->g, job->tickets[i], err, body);
}

/* Under the lock: may this operation touch this sandbox? */
static enum sbx_code fence(const struct gateway_sandbox *s, const struct gateway_job *job,
                           struct sbx_err *err)
{
    bool buried = s->deleted && job->kind != GATEWAY_JOB_DELETE;

    if (job->generation < s->generation || (buried && job->generation == s->generation))
        return err_set(err, SBX_E_STALE, "the region has seen a newer generation of the sandbox");
    return SBX_OK;
}

/* Under the lock: the same operation, under way or waiting. */
static struct gateway_job *same_operation(struct gateway_sandbox *s, const char *op)
{
    if (s->busy != NULL && strcmp(s->busy->op, op) == 0)
        return s->busy;
    for (struct gateway_job *j = s->waiting; j != NULL; j = j->next) {
        if (strcmp(j->op, op) == 0)
            return j;
    }
    return NULL;
}

/* Under the lock.  SBX_OK: the job was taken. */
static enum sbx_code enqueue(struct gateway *g, struct gateway_sandbox *s, struct gateway_job *job,
                             struct sbx_err *err)
{
    struct gateway_job **at = &s->waiting;

    job->sandbox = s;
    if (s->busy == NULL) {
        s->busy = job;
        if (queue_put(g->jobs, job))
            return SBX_OK;
        s->busy = NULL;
        return err_set(err, SBX_E_BUSY, "the region has as many operations under way as it may");
    }
    if (s->waiting_count >= GATEWAY_WAITING_MAX)
        return err_set(err, SBX_E_BUSY, "too many operations wait for the sandbox");
    while (*at != NULL)
        at = &(*at)->next;
    *at = job;
    s->waiting_count++;
    if (job->kind == GATEWAY_JOB_DELETE && s->busy->kind != GATEWAY_JOB_DELETE) {
        s->busy->cancelled = true;
        gateway_job_wake(s->busy);
    }
    return SBX_OK;
}

bool gateway_job_cancelled(struct gateway_job *job)
{
    bool cancelled;

    (void)pthread_mutex_lock(&job->g->lock);
    cancelled = job->cancelled;
    (void)pthread_mutex_unlock(&job->g->lock);
    return cancelled;
}

void gateway_job_wake(struct gateway_job *job)
{
    if (!job->awaiting)
        return;
    job->awaiting = false;
    if (!queue_put_admitted(job->g->jobs, job))
        job->awaiting = true; /* we are stopping: the start will find what is left */
}

void gateway_job_submit(struct gateway *g, struct gateway_job *job, uint64_t ticket)
{
    const struct gateway_result *known = NULL;
    struct gateway_job *same;
    struct gateway_sandbox *s;
    struct sbx_err err = { 0 };
    SCOPED_FREE char *body = NULL;
    bool taken = false, made = false;

    job->tickets[job->ticket_count++] = ticket;
    (void)pthread_mutex_lock(&g->lock);
    s = gateway_find(g, job->id);
    made = s == NULL;
    if (made)
        s = gateway_make(g, job->id);
    known = gateway_result_find(s, job->op);
    same = same_operation(s, job->op);
    if (known != NULL && known->code != SBX_OK) {
        err_put(&err, known->code, "%s", known->msg != NULL ? known->msg : "");
        (void)str_copy(err.field, sizeof(err.field), known->field != NULL ? known->field : "");
    } else if (known != NULL) {
        body = mem_strdup(known->body != NULL ? known->body : "{}");
    } else if (same != NULL && same->ticket_count < GATEWAY_TICKETS_MAX) {
        same->tickets[same->ticket_count++] = ticket;
        job->ticket_count = 0; /* the other one answers it */
    } else if (same != NULL) {
        err_put(&err, SBX_E_BUSY, "too many requests wait for this operation");
    } else if (fence(s, job, &err) == SBX_OK) {
        taken = enqueue(g, s, job, &err) == SBX_OK;
    }
    if (made && !taken) { /* nothing is known of it still */
        (void)id_map_remove(&g->sandboxes, job->id);
        gateway_sandbox_free(s);
    }
    (void)pthread_mutex_unlock(&g->lock);
    if (taken)
        return;
    answer_all(job, &err, body);
    gateway_job_free(job);
}

/* A result that belongs to the moment and not to the operation: the caller may try again with the
 * same id. */
static void count(struct gateway_job *job, const struct sbx_err *err)
{
    metrics_add(job->g->counters, GATEWAY_M_OPERATIONS,
                METRICS_LABELS(KIND_NAMES[job->kind], sbx_code_name(err->code)), 1);
    if (err->code != SBX_OK)
        log_err(LOG_WARN, "operation failed", err, LOG_S("operation", KIND_NAMES[job->kind]),
                LOG_S("sandboxId", job->id), LOG_S("operationId", job->op));
}

void gateway_job_done(struct gateway_job *job, struct sbx_err *err, const char *body, bool keep)
{
    struct gateway *g = job->g;
    struct gateway_sandbox *s = job->sandbox;
    struct sbx_err written = { 0 };
    struct gateway_job *next;

    if (keep) {
        (void)pthread_mutex_lock(&g->lock);
        gateway_result_add(s, job->op, err, body);
        if (s->deleted)
            gateway_results_trim(s, 1);
        (void)pthread_mutex_unlock(&g->lock);
        if (gateway_record(g, s, &written) != SBX_OK) {
            (void)pthread_mutex_lock(&g->lock);
            gateway_result_forget(s, job->op); /* asked again, it is tried and written again */
            (void)pthread_mutex_unlock(&g->lock);
            if (err->code == SBX_OK)
                *err = written; /* what is not written down was not promised */
        }
    }
    count(job, err);
    (void)pthread_mutex_lock(&g->lock);
    assert(s->busy == job);
    next = s->waiting;
    if (next != NULL) {
        s->waiting = next->next;
        s->waiting_count--;
        next->next = NULL;
    }
    s->busy = next;
    if (next != NULL && !queue_put_admitted(g->jobs, next))
        s->busy = NULL;
    else
        next = NULL;
    (void)pthread_mutex_unlock(&g->lock);
    answer_all(job, err, body);
    gateway_job_free(job);
    if (next != NULL) {
        err_put(&written, SBX_E_UNAVAILABLE, "the region gateway is stopping");
        answer_all(next, &written, NULL);
        gateway_job_free(next);
    }
}

static void run_job(struct gateway_job *job)
{
    struct gateway *g = job->g;
    struct sbx_err err = { 0 };

    if (job->ready_deadline_ms != 0) { /* it was started, and waited for its agent */
        gateway_deploy_finish(job);
        return;
    }
    (void)pthread_mutex_lock(&g->lock);
    if (fence(job->sandbox, job, &err) == SBX_OK && job->generation > job->sandbox->generation)
        job->sandbox->generation = job->generation;
    (void)pthread_mutex_unlock(&g->lock);
    if (err.code != SBX_OK) {
        gateway_job_done(job, &err, NULL, false);
        return;
    }
    switch (job->kind) {
    case GATEWAY_JOB_DEPLOY:
        gateway_deploy_run(job);
        break;
    case GATEWAY_JOB_DELETE:
        gateway_delete_run(job);
        break;
    case GATEWAY_JOB_STOP:
        gateway_stop_run(job);
        break;
    case GATEWAY_JOB_SNAPSHOT:
        if (!queue_put_admitted(g->archives, job)) {
            err_put(&err, SBX_E_UNAVAILABLE, "the region gateway is stopping");
            gateway_job_done(job, &err, NULL, false);
        }
        break;
    }
}

void gateway_job_work(void *gateway)
{
    struct gateway *g = gateway;
    struct gateway_job *job;

    while ((job = queue_take(g->jobs)) != NULL)
        run_job(job);
}
