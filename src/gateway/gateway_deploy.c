#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "base/time.h"
#include "gateway/gateway_impl.h"

static char *body_of(json_t *j)
{
    struct buf text = BUF_INIT(GATEWAY_RESULT_MAX);

    if (!json_write(&text, j))
        buf_clear(&text); /* GATEWAY_RESULT_MAX holds any SANDBOX but one with many executions */
    json_decref(j);
    return text.len > 0 ? buf_take(&text) : (buf_fini(&text), mem_strdup("{}"));
}

enum sbx_code gateway_release(struct gateway *g, struct gateway_sandbox *s, enum sbx_code code,
                              const char *sentence, struct sbx_err *err)
{
    relay_remove(g->relay, s->runtime, code, sentence);
    if (g->driver->ops->destroy(g->driver, s->runtime, err) != SBX_OK)
        return err->code;
    (void)pthread_mutex_lock(&g->lock);
    gateway_leave_driver(g, s);
    s->ended = false;
    secret_wipe(s->key, sizeof(s->key));
    (void)pthread_mutex_unlock(&g->lock);
    gateway_volume_unmount(g, s);
    return SBX_OK;
}

/* ---- deploy ---- */

/* Nothing is left of it; the sentence stays as the operation's result. */
static void deploy_failed(struct gateway_job *job, struct sbx_err *err)
{
    struct gateway *g = job->g;
    struct gateway_sandbox *s = job->sandbox;
    struct sbx_err left = { 0 };
    bool clean = !s->in_driver || gateway_release(g, s, SBX_E_SANDBOX_NOT_FOUND,
                                                  "the sandbox did not start", &left) == SBX_OK;

    if (!clean)
        log_err(LOG_ERROR, "a failed deploy left something behind", &left,
                LOG_S("sandboxId", s->id));
    (void)pthread_mutex_lock(&g->lock);
    gateway_set_phase(g, s, clean ? GATEWAY_PHASE_NONE : GATEWAY_PHASE_FAILED);
    if (!clean)
        (void)str_copy(s->reason, sizeof(s->reason), "the sandbox did not start");
    (void)pthread_mutex_unlock(&g->lock);
    gateway_job_done(job, err, NULL, true);
}

static void note_times(const struct gateway_job *job)
{
    int64_t now = time_mono_ms();

    if (job->began_ms == 0)
        return;
    metrics_observe_ms(job->g->counters, GATEWAY_M_READY, METRICS_PLAIN, now - job->began_ms);
    log_debug("deployed", LOG_S("sandboxId", job->id),
              LOG_I("prepareMs", job->prepared_ms - job->began_ms),
              LOG_I("startMs", job->started_ms - job->prepared_ms),
              LOG_I("readyMs", job->ready_ms != 0 ? job->ready_ms - job->started_ms : 0),
              LOG_I("totalMs", now - job->began_ms));
}

static void deploy_succeeded(struct gateway_job *job)
{
    struct gateway *g = job->g;
    struct gateway_sandbox *s = job->sandbox;
    struct sbx_err err = { 0 };
    SCOPED_FREE char *body = NULL;
    bool ended;

    (void)pthread_mutex_lock(&g->lock);
    ended = s->ended;
    if (!ended)
        gateway_set_phase(g, s, GATEWAY_PHASE_RUNNING);
    (void)pthread_mutex_unlock(&g->lock);
    if (ended) { /* between the last look and this one */
        err_put(&err, SBX_E_UNKNOWN, "the sandbox ended before it was ready");
        deploy_failed(job, &err);
        return;
    }
    body = body_of(gateway_sandbox_json(g, s->id));
    note_times(job);
    gateway_job_done(job, &err, body, true);
}

/* Under the lock: a sandbox that is there already takes the new generation. */
static bool already_there(const struct gateway_sandbox *s)
{
    return s->phase == GATEWAY_PHASE_RUNNING && !s->ended;
}

/* The warm one becomes this sandbox: the same runtime, another id.  Both records are one write.
 * False: it is not there any more, or not well; a cold start follows. */
static bool claim(struct gateway_job *job)
{
    struct gateway *g = job->g;
    struct gateway_sandbox *s = job->sandbox, *w;
    struct journal_entry entries[2];
    SCOPED_FREE char *mine = NULL, *its = NULL;
    struct sbx_err err = { 0 };
    bool claimed = false;

    (void)pthread_mutex_lock(&g->lock);
    w = gateway_find(g, job->warm_id);
    if (w != NULL && w != s && w->warm && w->phase == GATEWAY_PHASE_RUNNING && w->busy == NULL &&
        !w->ended && w->in_driver && relay_is_ready(g->relay, w->runtime)) {
        char runtime[ID_SIZE];

        (void)str_copy(runtime, sizeof(runtime), w->runtime);
        gateway_leave_driver(g, w);
        gateway_set_phase(g, w, GATEWAY_PHASE_NONE);
        w->deleted = true;
        gateway_set_phase(g, s, GATEWAY_PHASE_STARTING);
        gateway_enter_driver(g, s, runtime);
        s->ended = false;
        memcpy(s->key, w->key, sizeof(s->key));
        secret_wipe(w->key, sizeof(w->key));
        s->agent = w->agent;
        s->claimed = true;
        its = gateway_record_text(w);
        mine = gateway_record_text(s);
        claimed = its != NULL && mine != NULL;
    }
    (void)pthread_mutex_unlock(&g->lock);
    if (!claimed)
        return false;
    entries[0] = (struct journal_entry){ job->warm_id, its };
    entries[1] = (struct journal_entry){ s->id, mine };
    if (journal_put(g->journal, entries, 2, &err) != SBX_OK)
        log_err(LOG_ERROR, "a claim was not written down", &err, LOG_S("sandboxId", s->id));
    return true;
}

static enum sbx_code admit(struct gateway *g, struct gateway_job *job, struct sbx_err *err)
{
    struct gateway_sandbox *s = job->sandbox;

    (void)pthread_mutex_lock(&g->lock);
    if (g->live >= g->sandboxes_max && s->phase == GATEWAY_PHASE_NONE)
        err_put(err, SBX_E_BUSY, "the region holds as many sandboxes as it may");
    else if (g->sandboxes.count > GATEWAY_KNOWN_MAX && s->phase == GATEWAY_PHASE_NONE)
        err_put(err, SBX_E_BUSY, "the region remembers as many ended sandboxes as it may");
    s->deleted = false;
    s->agent = job->spec.agent;
    s->warm = s->phase == GATEWAY_PHASE_NONE ? job->warm : s->warm;
    s->claimed = false;
    s->personal = job->spec.personal;
    s->oom = false;
    s->reason[0] = 0;
    s->persistence = job->persistence;
    (void)str_copy(s->account, sizeof(s->account),
                   job->spec.account_id != NULL ? job->spec.account_id : "");
    (void)pthread_mutex_unlock(&g->lock);
    return err->code;
}

/* From nothing to a runtime that was told to start. */
static enum sbx_code bring_up(struct gateway_job *job, struct sbx_err *err)
{
    struct gateway *g = job->g;
    struct gateway_sandbox *s = job->sandbox;
    struct driver_prepared prepared = { .listen_fd = -1 };
    struct relay_sandbox channel;

    (void)pthread_mutex_lock(&g->lock);
    gateway_set_phase(g, s, GATEWAY_PHASE_STARTING);
    gateway_enter_driver(g, s, s->id);
    random_bytes(s->key, sizeof(s->key));
    s->ended = false;
    (void)pthread_mutex_unlock(&g->lock);
    job->began_ms = time_mono_ms();
    if (g->driver->ops->prepare(g->driver, &job->spec, job->arena, &prepared, err) != SBX_OK)
        return err->code;
    job->prepared_ms = time_mono_ms();
    if (gateway_job_cancelled(job)) {
        fd_close(&prepared.listen_fd);
        return err_set(err, SBX_E_CONFLICT, "the sandbox was deleted before it was ready");
    }
    channel = (struct relay_sandbox){ .id = s->id,
                                      .listen_fd = prepared.listen_fd,
                                      .key = s->key,
                                      .workload = &prepared.workload,
                                      .personal = job->spec.personal,
                                      .hold = job->hold };
    if (job->spec.agent && relay_add(g->relay, &channel, err) != SBX_OK)
        return err->code;
    if (g->driver->ops->start(g->driver, &job->spec, err) != SBX_OK)
        return err->code;
    job->started_ms = time_mono_ms();
    return SBX_OK;
}

void gateway_deploy_run(struct gateway_job *job)
{
    struct gateway *g = job->g;
    struct gateway_sandbox *s = job->sandbox;
    struct sbx_err err = { 0 };
    bool there;

    (void)pthread_mutex_lock(&g->lock);
    there = already_there(s);
    (void)pthread_mutex_unlock(&g->lock);
    if (there) {
        deploy_succeeded(job);
        return;
    }
    if (s->in_driver &&
        gateway_release(g, s, SBX_E_SANDBOX_NOT_FOUND, "the sandbox ended", &err) != SBX_OK) {
        gateway_job_done(job, &err, NULL, false);
        return;
    }
    if (admit(g, job, &err) != SBX_OK) {
        gateway_job_done(job, &err, NULL, false);
        return;
    }
    job->spec.id = s->id;
    if (job->warm_id[0] != 0 && claim(job)) {
        deploy_succeeded(job);
        return;
    }
    if (gateway_volume_mount(job, &err) == SBX_OK)
        (void)!bring_up(job, &err);
    gateway_volume_mounted(job);
    if (err.code != SBX_OK) {
        if (!s->in_driver) /* else its release does it */
            gateway_volume_unmount(g, s);
        deploy_failed(job, &err);
        return;
    }
    gateway_deploy_await(job);
}

void gateway_deploy_await(struct gateway_job *job)
{
    struct gateway *g = job->g;
    struct gateway_sandbox *s = job->sandbox;
    bool word, awaits;

    (void)pthread_mutex_lock(&g->lock);
    job->ready_deadline_ms =
        time_mono_ms() + config_int(g->config, "agent", "ready_timeout_s") * 1000;
    word = job->hold && !job->restored ? job->connected : job->agent_ready;
    awaits = job->spec.agent && !word && !job->agent_failed && !job->cancelled && !s->ended &&
             job->refusal.code == SBX_OK;
    job->awaiting = awaits;
    (void)pthread_mutex_unlock(&g->lock);
    if (!awaits)
        gateway_deploy_finish(job);
}

/* Why a deploy that was started does not succeed; SBX_OK: it does. */
static enum sbx_code verdict(struct gateway_job *job, struct sbx_err *err)
{
    struct gateway *g = job->g;
    struct gateway_sandbox *s = job->sandbox;
    struct driver_state state = { 0 };
    struct sbx_err ignored = { 0 };
    bool ended;

    (void)pthread_mutex_lock(&g->lock);
    ended = s->ended;
    if (job->cancelled)
        err_put(err, SBX_E_CONFLICT, "the sandbox was deleted before it was ready");
    else if (job->refusal.code != SBX_OK)
        *err = job->refusal;
    else if (job->agent_failed)
        err_put(err, SBX_E_UNKNOWN, "%s", job->agent_message);
    else if (!ended && job->spec.agent &&
             (job->hold && !job->restored ? !job->connected : !job->agent_ready))
        err_put(err, SBX_E_TIMEOUT, "the sandbox was not ready in time");
    (void)pthread_mutex_unlock(&g->lock);
    if (err->code != SBX_OK || !ended)
        return err->code;
    (void)!g->driver->ops->observe(g->driver, s->runtime, &state, &ignored);
    return err_set(err, SBX_E_UNKNOWN, "the sandbox ended before it was ready%s%s",
                   state.oom_killed ? ": " : "", state.oom_killed ? "out of memory" : "");
}

void gateway_deploy_finish(struct gateway_job *job)
{
    struct gateway *g = job->g;
    struct sbx_err err = { 0 };

    if (verdict(job, &err) != SBX_OK) {
        deploy_failed(job, &err);
        return;
    }
    if (job->hold && !job->restored) { /* the archive first, the command after it */
        if (queue_put_admitted(g->archives, job))
            return;
        err_put(&err, SBX_E_UNAVAILABLE, "the region gateway is stopping");
        deploy_failed(job, &err);
        return;
    }
    if (g->driver->ops->running != NULL &&
        g->driver->ops->running(g->driver, &job->spec, &err) != SBX_OK) {
        deploy_failed(job, &err);
        return;
    }
    deploy_succeeded(job);
}

/* ---- delete and stop ---- */

/* An id of which we know nothing may still be in the driver. */
static bool may_be_there(struct gateway *g, const struct gateway_sandbox *s)
{
    struct driver_state state = { 0 };
    struct sbx_err err = { 0 };

    return s->in_driver ||
           (!s->deleted && g->driver->ops->observe(g->driver, s->id, &state, &err) == SBX_OK &&
            state.exists);
}

void gateway_delete_run(struct gateway_job *job)
{
    struct gateway *g = job->g;
    struct gateway_sandbox *s = job->sandbox;
    int64_t began = time_mono_ms();
    struct sbx_err err = { 0 };
    SCOPED_FREE char *body = NULL;

    (void)pthread_mutex_lock(&g->lock);
    if (!s->in_driver)
        (void)str_copy(s->runtime, sizeof(s->runtime), s->id);
    (void)pthread_mutex_unlock(&g->lock);
    if (may_be_there(g, s) && gateway_release(g, s, SBX_E_SANDBOX_NOT_FOUND,
                                              "the sandbox was terminated", &err) != SBX_OK) {
        gateway_job_done(job, &err, NULL, false); /* it may be asked again */
        return;
    }
    (void)pthread_mutex_lock(&g->lock);
    gateway_set_phase(g, s, GATEWAY_PHASE_NONE);
    s->deleted = true;
    s->reason[0] = 0;
    (void)pthread_mutex_unlock(&g->lock);
    metrics_observe_ms(g->counters, GATEWAY_M_DELETE, METRICS_PLAIN, time_mono_ms() - began);
    body = body_of(json_pack("{s:s, s:b}", "sandboxId", s->id, "gone", 1));
    gateway_job_done(job, &err, body, true);
}

void gateway_stop_run(struct gateway_job *job)
{
    struct gateway *g = job->g;
    struct gateway_sandbox *s = job->sandbox;
    struct sbx_err err = { 0 };
    SCOPED_FREE char *body = NULL;

    if (s->phase == GATEWAY_PHASE_NONE)
        err_put(&err, SBX_E_NOT_FOUND, "the region has nothing of the sandbox");
    else if (s->in_driver) {
        gateway_denied_keep(g, s);
        (void)!gateway_release(g, s, SBX_E_SANDBOX_SUSPENDED, "the sandbox was suspended", &err);
    }
    if (err.code != SBX_OK) {
        gateway_job_done(job, &err, NULL, false);
        return;
    }
    (void)pthread_mutex_lock(&g->lock);
    gateway_set_phase(g, s, GATEWAY_PHASE_STOPPED);
    s->reason[0] = 0;
    (void)pthread_mutex_unlock(&g->lock);
    body = body_of(gateway_sandbox_json(g, s->id));
    gateway_job_done(job, &err, body, true);
}
