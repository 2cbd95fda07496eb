/* The start: what the journal says against what the driver has. */
#include <stdatomic.h>

#include "base/log.h"
#include "base/scoped.h"
#include "base/str.h"
#include "base/time.h"
#include "gateway/gateway_impl.h"

enum { RECONCILE_THREADS = 8 };

static void load_record(void *arg, const char *id, const char *text)
{
    struct gateway *g = arg;
    struct gateway_sandbox *s = gateway_record_parse(id, text);
    struct gateway_sandbox *other;
    enum gateway_phase phase;
    int64_t changed_ms;

    if (s == NULL) {
        log_warn("a journal entry cannot be read", LOG_S("sandboxId", id));
        return;
    }
    phase = s->phase;
    changed_ms = s->changed_ms;
    s->phase = GATEWAY_PHASE_NONE;
    id_map_put(&g->sandboxes, id, s);
    if (s->in_driver) {
        s->in_driver = false;
        other = gateway_find_runtime(g, s->runtime);
        /* A claim that was cut between its two lines: the claimer owns the runtime. */
        if (other != NULL && other->warm) {
            gateway_leave_driver(g, other);
            gateway_set_phase(g, other, GATEWAY_PHASE_NONE);
            other = NULL;
        }
        if (other == NULL)
            gateway_enter_driver(g, s, s->runtime);
        else
            phase = GATEWAY_PHASE_NONE;
    }
    if (phase == GATEWAY_PHASE_STARTING && s->in_driver)
        phase = GATEWAY_PHASE_RUNNING; /* a claim is written down while it starts */
    gateway_set_phase(g, s, phase);
    s->changed_ms = changed_ms; /* a restart makes no tombstone younger */
}

/* A record says that it runs; does it? */
static bool adopt(struct gateway *g, struct gateway_sandbox *s)
{
    struct relay_sandbox channel = {
        .id = s->runtime, .listen_fd = -1, .key = s->key, .welcomed = true, .personal = s->personal
    };
    struct sbx_err err = { 0 };

    if (g->driver->ops->adopt(g->driver, s->runtime, &channel.listen_fd, &err) != SBX_OK)
        return false;
    if (s->agent && relay_add(g->relay, &channel, &err) != SBX_OK) {
        log_err(LOG_WARN, "a sandbox's channel cannot be opened again", &err,
                LOG_S("sandboxId", s->id));
        return false;
    }
    metrics_add(g->counters, GATEWAY_M_ADOPTED, METRICS_PLAIN, 1);
    return true;
}

static void reconcile_one(struct gateway *g, const char *runtime)
{
    struct gateway_sandbox *s;
    struct sbx_err err = { 0 };
    bool stray, runs;

    (void)pthread_mutex_lock(&g->lock);
    s = gateway_find_runtime(g, runtime);
    stray = s == NULL;
    runs = s != NULL && s->phase == GATEWAY_PHASE_RUNNING;
    (void)pthread_mutex_unlock(&g->lock);
    if (runs && adopt(g, s))
        return;
    if (stray) {
        log_warn("a stray sandbox is ended", LOG_S("sandboxId", runtime));
        metrics_add(g->counters, GATEWAY_M_STRAYS, METRICS_PLAIN, 1);
    }
    if (g->driver->ops->destroy(g->driver, runtime, &err) != SBX_OK) {
        log_err(LOG_ERROR, "what is left of a sandbox cannot be taken away", &err,
                LOG_S("sandboxId", runtime));
        return;
    }
    (void)pthread_mutex_lock(&g->lock);
    s = gateway_find_runtime(g, runtime);
    if (s != NULL)
        gateway_leave_driver(g, s);
    (void)pthread_mutex_unlock(&g->lock);
}

struct reconcile {
    struct gateway *g;
    const char **ids;
    size_t count;
    atomic_size_t next;
};

static void reconcile_work(void *arg)
{
    struct reconcile *r = arg;

    for (;;) {
        size_t i = atomic_fetch_add(&r->next, 1);

        if (i >= r->count)
            return;
        reconcile_one(r->g, r->ids[i]);
    }
}

/* Whoever was said to run and is not in the driver's hands now was lost while we were away. */
static void mark_lost(struct gateway *g)
{
    (void)pthread_mutex_lock(&g->lock);
    ID_MAP_EACH(&g->sandboxes, slot)
    {
        struct gateway_sandbox *s = slot->value;
        struct driver_state state = { 0 };
        struct sbx_err err = { 0 };

        if (s->phase != GATEWAY_PHASE_RUNNING)
            continue;
        if (s->in_driver &&
            g->driver->ops->observe(g->driver, s->runtime, &state, &err) == SBX_OK && state.alive)
            continue;
        if (!state.exists) /* else delete and deploy still have to take it away */
            gateway_leave_driver(g, s);
        gateway_set_phase(g, s, GATEWAY_PHASE_FAILED);
        (void)str_copy(s->reason, sizeof(s->reason), "the sandbox was lost");
        metrics_add(g->counters, GATEWAY_M_LOST, METRICS_PLAIN, 1);
        log_warn("a sandbox was lost", LOG_S("sandboxId", s->id));
    }
    (void)pthread_mutex_unlock(&g->lock);
}

enum sbx_code gateway_reconcile(struct gateway *g, struct sbx_err *err)
{
    SCOPED_ARENA struct arena *a = arena_new();
    struct reconcile r = { .g = g };
    struct thread threads[RECONCILE_THREADS] = { { 0 } };
    struct sbx_err ignored = { 0 };
    int64_t began = time_mono_ms();

    journal_each(g->journal, load_record, g);
    if (g->driver->ops->list(g->driver, a, &r.ids, err) != SBX_OK)
        return err->code;
    while (r.ids[r.count] != NULL)
        r.count++;
    for (size_t i = 0; i < RECONCILE_THREADS && i < r.count; i++) {
        if (thread_start(&threads[i], "gw-reconcile", reconcile_work, &r, &ignored) != SBX_OK)
            break;
    }
    if (!threads[0].started)
        reconcile_work(&r);
    for (size_t i = 0; i < RECONCILE_THREADS; i++)
        thread_join(&threads[i]);
    mark_lost(g);
    if (g->driver->ops->settle != NULL && g->driver->ops->settle(g->driver, &ignored) != SBX_OK)
        log_err(LOG_WARN, "what belongs to no sandbox stays", &ignored);
    gateway_volumes_settle(g);
    log_info("reconciled", LOG_I("sandboxes", g->live),
             LOG_I("adopted", metrics_get(g->counters, GATEWAY_M_ADOPTED, METRICS_PLAIN)),
             LOG_I("strays", metrics_get(g->counters, GATEWAY_M_STRAYS, METRICS_PLAIN)),
             LOG_I("lost", metrics_get(g->counters, GATEWAY_M_LOST, METRICS_PLAIN)),
             LOG_I("ms", time_mono_ms() - began));
    return SBX_OK;
}
