#include "gateway/gateway.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "base/time.h"
#include "gateway/egress.h"
#include "gateway/gateway_impl.h"

enum {
    TIMER_S = 1,
    PURGE_EVERY_S = 3600,
    PURGE_SOON_S = 60, /* when there are too many tombstones */
    PURGE_BATCH = 8192,
    LOCK_TRIES = 50,
    LOCK_WAIT_MS = 20,
};

const struct metrics_def gateway_metrics[] = {
    [GATEWAY_M_OPERATIONS] = { "sandbox_region_operations_total",
                               METRICS_COUNTER,
                               "Operations by kind and result.",
                               { "operation", "code" } },
    [GATEWAY_M_EXECUTIONS] = { "sandbox_region_executions_total",
                               METRICS_COUNTER,
                               "Executions by result.",
                               { "code" } },
    [GATEWAY_M_STRAYS] = { "sandbox_region_strays_total",
                           METRICS_COUNTER,
                           "Runtime objects without a record, ended at the start.",
                           { NULL } },
    [GATEWAY_M_ADOPTED] = { "sandbox_region_adopted_total",
                            METRICS_COUNTER,
                            "Sandboxes found running at the start.",
                            { NULL } },
    [GATEWAY_M_LOST] = { "sandbox_region_lost_total",
                         METRICS_COUNTER,
                         "Sandboxes that ended without being asked to.",
                         { NULL } },
    [GATEWAY_M_MOUNTS_LOST] = { "sandbox_region_mounts_lost_total",
                                METRICS_COUNTER,
                                "Live directories on S3 whose s3fs ended without being asked to.",
                                { NULL } },
    [GATEWAY_M_MOUNTS_MENDED] = { "sandbox_region_mounts_mended_total",
                                  METRICS_COUNTER,
                                  "Live directories that were mounted again after that.",
                                  { NULL } },
    [GATEWAY_M_MOUNTS_DEAD] = { "sandbox_region_mounts_dead",
                                METRICS_GAUGE,
                                "Live directories that nothing serves now.",
                                { NULL } },
    [GATEWAY_M_SANDBOXES] = { "sandbox_region_sandboxes",
                              METRICS_GAUGE,
                              "Sandboxes that the region has, warm ones apart.",
                              { NULL } },
    [GATEWAY_M_WARM] = { "sandbox_region_warm", METRICS_GAUGE, "Warm sandboxes.", { NULL } },
    [GATEWAY_M_RUNNING] = { "sandbox_region_executions",
                            METRICS_GAUGE,
                            "Executions under way.",
                            { NULL } },
    [GATEWAY_M_OUTPUT] = { "sandbox_region_output_bytes",
                           METRICS_GAUGE,
                           "Output held in memory.",
                           { NULL } },
    [GATEWAY_M_DENIED] = { "sandbox_region_denied_egress_total",
                           METRICS_COUNTER,
                           "Attempts of sandboxes to get out that were refused.",
                           { NULL } },
    [GATEWAY_M_READY] = { "sandbox_region_ready_seconds",
                          METRICS_HISTOGRAM,
                          "From the start of a deploy to READY.",
                          { NULL } },
    [GATEWAY_M_DELETE] = { "sandbox_region_delete_seconds",
                           METRICS_HISTOGRAM,
                           "Time to take a sandbox away.",
                           { NULL } },
};
const size_t gateway_metrics_count = COUNT_OF(gateway_metrics);

static void set_gauges(void *arg)
{
    struct gateway *g = arg;
    struct relay_stats stats;
    int64_t denied = -1;

    relay_stats(g->relay, &stats);
    (void)pthread_mutex_lock(&g->lock);
    metrics_set(g->counters, GATEWAY_M_SANDBOXES, METRICS_PLAIN, (int64_t)(g->live - g->warm));
    metrics_set(g->counters, GATEWAY_M_WARM, METRICS_PLAIN, (int64_t)g->warm);
    (void)pthread_mutex_unlock(&g->lock);
    metrics_set(g->counters, GATEWAY_M_MOUNTS_DEAD, METRICS_PLAIN,
                (int64_t)gateway_mounts_dead(g->mounts));
    metrics_set(g->counters, GATEWAY_M_RUNNING, METRICS_PLAIN, (int64_t)stats.executions);
    metrics_set(g->counters, GATEWAY_M_OUTPUT, METRICS_PLAIN, (int64_t)stats.output_bytes);
    if (g->driver->ops->egress != NULL && g->driver->ops->egress(g->driver) != NULL)
        denied = egress_denied_total(g->driver->ops->egress(g->driver));
    if (denied >= 0)
        metrics_set(g->counters, GATEWAY_M_DENIED, METRICS_PLAIN, denied);
}

/* ---- what driver and agents tell ---- */

static void on_ready(void *arg, const char *runtime)
{
    struct gateway *g = arg;
    struct gateway_sandbox *s;

    (void)pthread_mutex_lock(&g->lock);
    s = gateway_find_runtime(g, runtime);
    if (s != NULL && s->busy != NULL && s->busy->kind == GATEWAY_JOB_DEPLOY) {
        s->busy->agent_ready = true;
        s->busy->ready_ms = time_mono_ms();
        gateway_job_wake(s->busy);
    }
    (void)pthread_mutex_unlock(&g->lock);
}

static void on_connected(void *arg, const char *runtime)
{
    struct gateway *g = arg;
    struct gateway_sandbox *s;

    (void)pthread_mutex_lock(&g->lock);
    s = gateway_find_runtime(g, runtime);
    if (s != NULL && s->busy != NULL && s->busy->kind == GATEWAY_JOB_DEPLOY && s->busy->hold &&
        !s->busy->restored) {
        s->busy->connected = true;
        gateway_job_wake(s->busy);
    }
    (void)pthread_mutex_unlock(&g->lock);
}

static void on_failed(void *arg, const char *runtime, const char *message)
{
    struct gateway *g = arg;
    struct gateway_sandbox *s;

    (void)pthread_mutex_lock(&g->lock);
    s = gateway_find_runtime(g, runtime);
    if (s != NULL && s->busy != NULL && s->busy->kind == GATEWAY_JOB_DEPLOY) {
        s->busy->agent_failed = true;
        (void)str_copy(s->busy->agent_message, sizeof(s->busy->agent_message), message);
        gateway_job_wake(s->busy);
    }
    (void)pthread_mutex_unlock(&g->lock);
}

static void on_exited(void *arg, const char *runtime)
{
    struct gateway *g = arg;
    struct gateway_sandbox *s;
    bool lost = false;

    (void)pthread_mutex_lock(&g->lock);
    s = gateway_find_runtime(g, runtime);
    if (s != NULL) {
        s->ended = true;
        lost = s->phase == GATEWAY_PHASE_RUNNING;
        if (lost)
            gateway_set_phase(g, s, GATEWAY_PHASE_FAILED);
        if (s->busy != NULL && s->busy->kind == GATEWAY_JOB_DEPLOY)
            gateway_job_wake(s->busy);
    }
    (void)pthread_mutex_unlock(&g->lock);
    if (!lost)
        return;
    relay_remove(g->relay, runtime, SBX_E_AGENT_UNREACHABLE, "the sandbox ended");
    metrics_add(g->counters, GATEWAY_M_LOST, METRICS_PLAIN, 1);
    log_warn("sandbox ended by itself", LOG_S("sandboxId", runtime));
}

static enum sbx_code dial_proxy(void *arg, const char *runtime, int *out, struct sbx_err *err)
{
    struct gateway *g = arg;

    if (g->driver->ops->dial_proxy == NULL)
        return err_set(err, SBX_E_FORBIDDEN, "this region has no proxy");
    return g->driver->ops->dial_proxy(g->driver, runtime, out, err);
}

/* ---- time ---- */

static void end_overdue(struct gateway *g, int64_t now)
{
    ID_MAP_EACH(&g->by_runtime, slot)
    {
        struct gateway_sandbox *s = slot->value;

        if (s->busy != NULL && s->busy->awaiting && now >= s->busy->ready_deadline_ms)
            gateway_job_wake(s->busy);
    }
}

/* Under the lock: takes what is past its time out of the table. */
static size_t bury(struct gateway *g, int64_t before, char ids[PURGE_BATCH][ID_SIZE])
{
    size_t n = 0;

    ID_MAP_EACH(&g->sandboxes, slot)
    {
        const struct gateway_sandbox *s = slot->value;

        if (n < PURGE_BATCH && s->phase == GATEWAY_PHASE_NONE && s->busy == NULL && !s->in_driver &&
            s->changed_ms < before)
            (void)str_copy(ids[n++], ID_SIZE, s->id);
    }
    for (size_t i = 0; i < n; i++)
        gateway_sandbox_free(id_map_remove(&g->sandboxes, ids[i]));
    return n;
}

/* Tombstones past their time: out of the table and out of the journal.  True: the region has so
 * many that their time was cut short. */
static bool purge(struct gateway *g)
{
    SCOPED_FREE char(*ids)[ID_SIZE] = mem_zalloc(PURGE_BATCH * ID_SIZE);
    SCOPED_FREE struct journal_entry *entries = mem_zalloc(PURGE_BATCH * sizeof(*entries));
    struct sbx_err err = { 0 };
    bool full;
    size_t n;

    do {
        int64_t keep_s;

        (void)pthread_mutex_lock(&g->lock);
        full = g->sandboxes.count > GATEWAY_KNOWN_MAX / 4 * 3;
        keep_s = full ? SBX_GATEWAY_TOMBSTONE_MIN_S : SBX_GATEWAY_TOMBSTONE_S;
        n = bury(g, time_unix_ms() - keep_s * 1000, ids);
        (void)pthread_mutex_unlock(&g->lock);
        for (size_t i = 0; i < n; i++)
            entries[i] = (struct journal_entry){ .id = ids[i] };
        if (n > 0 && journal_put(g->journal, entries, n, &err) != SBX_OK)
            return full;
    } while (n == PURGE_BATCH);
    return full;
}

static void timer(void *arg)
{
    struct gateway *g = arg;
    int64_t purge_ms = time_mono_ms();

    (void)pthread_mutex_lock(&g->lock);
    while (!g->stopping) {
        int64_t now = time_mono_ms();
        struct timespec at = { .tv_sec = now / 1000 + TIMER_S, .tv_nsec = now % 1000 * 1000000 };

        end_overdue(g, now);
        if (now >= purge_ms) {
            bool full;

            (void)pthread_mutex_unlock(&g->lock);
            full = purge(g);
            (void)pthread_mutex_lock(&g->lock);
            purge_ms = now + (int64_t)(full ? PURGE_SOON_S : PURGE_EVERY_S) * 1000;
        }
        if (!g->stopping)
            (void)pthread_cond_timedwait(&g->timer_wake, &g->lock, &at);
    }
    (void)pthread_mutex_unlock(&g->lock);
}

/* ---- start and stop ---- */

static enum sbx_code open_state(struct gateway *g, struct sbx_err *err)
{
    const char *dir = config_str(g->config, "state", "dir");
    size_t dropped = 0;

    if (dir[0] != '/')
        return err_set(err, SBX_E_INVALID, "[state] dir must be absolute");
    if (file_make_dirs(dir, 0700, err) != SBX_OK)
        return err->code;
    g->lock_fd = open(arena_printf(g->arena, "%s/lock", dir), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (g->lock_fd < 0)
        return err_sys(err, SBX_E_INVALID, "[state] dir");
    /* A gateway that was killed may have a child between fork and exec, which holds the lock yet.
     */
    for (int i = 0; flock(g->lock_fd, LOCK_EX | LOCK_NB) < 0; i++) {
        if (i == LOCK_TRIES)
            return err_set(err, SBX_E_CONFLICT, "another region gateway uses this [state] dir");
        (void)poll(NULL, 0, LOCK_WAIT_MS);
    }
    /* A quarter more than deploys are let in for: what is deleted must be written down. */
    if (journal_open(arena_printf(g->arena, "%s/journal", dir),
                     GATEWAY_KNOWN_MAX + GATEWAY_KNOWN_MAX / 4, &g->journal, &dropped,
                     err) != SBX_OK)
        return err->code;
    if (dropped > 0)
        log_warn("damaged lines of the journal were dropped", LOG_I("bytes", dropped));
    return SBX_OK;
}

static void on_process_ended(void *arg, const char *id, const char *execution_id, int exit_code,
                             int signal)
{
    gateway_process_ended(arg, id, execution_id, exit_code, signal);
}

static enum sbx_code open_relay(struct gateway *g, struct sbx_err *err)
{
    const struct config *c = g->config;
    struct relay_config config = {
        .events = { .ready = on_ready,
                    .connected = on_connected,
                    .failed = on_failed,
                    .ended = on_process_ended,
                    .dial_proxy = dial_proxy,
                    .arg = g },
        .executions_max = (size_t)config_int(c, "limits", "executions"),
        .executions_per_sandbox = (size_t)config_int(c, "limits", "executions_per_sandbox"),
        .output_budget = (size_t)config_int(c, "limits", "output_budget_mb") << 20,
        .ping_interval_ms = (int)config_int(c, "agent", "ping_interval_s") * 1000,
        .silence_timeout_ms = (int)config_int(c, "agent", "silence_timeout_s") * 1000,
        .redial_timeout_ms = (int)config_int(c, "agent", "redial_timeout_s") * 1000,
    };

    return relay_start(&config, &g->relay, err);
}

static enum sbx_code open_driver(struct gateway *g, struct sbx_err *err)
{
    static const struct driver_ops *const DRIVERS[] = { &driver_runsc, &driver_fake };
    const char *kind = config_str(g->config, "driver", "kind");
    struct driver_events events = { .exited = on_exited, .arg = g };

    for (size_t i = 0; i < COUNT_OF(DRIVERS); i++) {
        if (strcmp(DRIVERS[i]->name, kind) == 0)
            return DRIVERS[i]->open(g->config, &events, &g->driver, err);
    }
    return err_set(err, SBX_E_INVALID, "[driver] kind must be runsc or fake");
}

static enum sbx_code start_workers(struct gateway *g, struct sbx_err *err)
{
    size_t count = (size_t)config_int(g->config, "limits", "deploy_workers");

    for (size_t i = 0; i < count && i < GATEWAY_JOB_THREADS_MAX; i++) {
        if (thread_start(&g->workers[i], "gw-job", gateway_job_work, g, err) != SBX_OK)
            return err->code;
        g->worker_count++;
    }
    count = (size_t)config_int(g->config, "limits", "archive_workers");
    for (size_t i = 0; i < count && i < GATEWAY_ARCHIVE_THREADS_MAX; i++) {
        if (thread_start(&g->archivers[i], "gw-archive", gateway_archive_work, g, err) != SBX_OK)
            return err->code;
        g->archiver_count++;
    }
    if (gateway_mounts_start(g->mounts, err) != SBX_OK)
        return err->code;
    return thread_start(&g->timer, "gw-timer", timer, g, err);
}

enum sbx_code gateway_start(const struct config *config, struct gateway **out, struct sbx_err *err)
{
    struct gateway *g = mem_zalloc(sizeof(*g));
    pthread_condattr_t attr;

    g->config = config;
    g->arena = arena_new();
    g->lock_fd = -1;
    g->metrics = metrics_new();
    g->counters = metrics_register(g->metrics, gateway_metrics, gateway_metrics_count);
    volume_set_agent(config_str(config, "agent", "path"));
    /* An increase is seen only over a zero that was there. */
    metrics_add(g->counters, GATEWAY_M_MOUNTS_LOST, METRICS_PLAIN, 0);
    metrics_add(g->counters, GATEWAY_M_MOUNTS_MENDED, METRICS_PLAIN, 0);
    g->sandboxes_max = (size_t)config_int(config, "limits", "sandboxes");
    g->jobs = queue_new((size_t)config_int(config, "limits", "deploy_queue"));
    g->archives = queue_new((size_t)config_int(config, "limits", "deploy_queue"));
    g->mounts =
        gateway_mounts_new(g, arena_printf(g->arena, "%s/v", config_str(config, "state", "dir")));
    (void)pthread_mutex_init(&g->lock, NULL);
    (void)pthread_rwlock_init(&g->who_lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&g->timer_wake, &attr);
    (void)pthread_condattr_destroy(&attr);
    /* HTTP comes before the workers: a job answers through it, and finds none before a request. */
    if (gateway_who_read(config, &g->who, err) != SBX_OK || open_state(g, err) != SBX_OK ||
        open_relay(g, err) != SBX_OK || open_driver(g, err) != SBX_OK ||
        gateway_reconcile(g, err) != SBX_OK || gateway_serve(g, err) != SBX_OK ||
        start_workers(g, err) != SBX_OK) {
        gateway_stop(g, 0);
        return err->code;
    }
    metrics_on_print(g->metrics, set_gauges, g);
    *out = g;
    return SBX_OK;
}

enum sbx_code gateway_reload(struct gateway *g, const struct config *fresh, struct sbx_err *err)
{
    const struct driver_ops *ops = g->driver->ops;
    struct gateway_who who = { 0 }, old;
    enum sbx_code code = gateway_who_read(fresh, &who, err);

    if (code == SBX_OK && who.secret == NULL && gateway_port(g) != 0)
        code = err_set(err, SBX_E_INVALID, "the TCP listener needs [listen] secret_file");
    if (code == SBX_OK && ops->reload != NULL)
        code = ops->reload(g->driver, fresh, true, err);
    if (code == SBX_OK)
        code = http_server_reload_tls(g->http, err);
    if (code == SBX_OK && ops->reload != NULL)
        code = ops->reload(g->driver, fresh, false, err);
    if (code != SBX_OK) {
        gateway_who_fini(&who);
        return code;
    }
    (void)pthread_rwlock_wrlock(&g->who_lock);
    old = g->who;
    g->who = who;
    (void)pthread_rwlock_unlock(&g->who_lock);
    gateway_who_fini(&old);
    (void)pthread_mutex_lock(&g->lock);
    g->sandboxes_max = (size_t)config_int(fresh, "limits", "sandboxes");
    (void)pthread_mutex_unlock(&g->lock);
    return SBX_OK;
}

/* What was never run, and what waits for its agent: the next start finds what is left of it. */
static void drop_jobs(struct gateway *g)
{
    ID_MAP_EACH(&g->sandboxes, slot)
    {
        struct gateway_sandbox *s = slot->value;

        while (s->waiting != NULL) {
            struct gateway_job *next = s->waiting->next;

            gateway_job_free(s->waiting);
            s->waiting = next;
        }
        gateway_job_free(s->busy);
        s->busy = NULL;
        gateway_sandbox_free(s);
    }
    id_map_fini(&g->sandboxes);
    id_map_fini(&g->by_runtime);
}

void gateway_stop(struct gateway *g, int drain_ms)
{
    if (g == NULL)
        return;
    (void)pthread_mutex_lock(&g->lock);
    g->stopping = true;
    (void)pthread_cond_broadcast(&g->timer_wake);
    (void)pthread_mutex_unlock(&g->lock);
    if (g->http != NULL) {
        http_server_quiesce(g->http);
        (void)http_server_drain(g->http, drain_ms);
    }
    thread_join(&g->timer);
    queue_close(g->archives);
    for (size_t i = 0; i < g->archiver_count; i++)
        thread_join(&g->archivers[i]);
    queue_close(g->jobs);
    for (size_t i = 0; i < g->worker_count; i++)
        thread_join(&g->workers[i]);
    relay_stop(g->relay); /* answers through HTTP, asks the driver no more */
    if (g->driver != NULL)
        g->driver->ops->close(g->driver); /* its events still find the relay's table */
    http_server_stop(g->http);
    relay_free(g->relay);
    gateway_mounts_free(g->mounts); /* the last jobs have asked it */
    drop_jobs(g);
    queue_free(g->jobs);
    queue_free(g->archives);
    journal_close(g->journal);
    metrics_free(g->metrics);
    gateway_who_fini(&g->who);
    (void)pthread_rwlock_destroy(&g->who_lock);
    fd_close(&g->lock_fd);
    (void)pthread_cond_destroy(&g->timer_wake);
    (void)pthread_mutex_destroy(&g->lock);
    arena_free(g->arena);
    free(g);
}
