#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "base/thread.h"
#include "base/time.h"
#include "reconcile/calls.h"
#include "reconcile/reconcile.h"
#include "reconcile/state.h"
#include "reconcile/waiters.h"

/* The reconciler's thread: one wait for the LISTEN socket, due time and wake-ups. */

enum {
    LEASE_MS = 15000,
    STALE_MS = 10000,
    POLL_MS = 1000,
    ACCEPT_MS = 250,
    SWEEP_MS = 60000,
    GRACE_MS = 60000,
    ACTIONS_MAX = 2000,
    DISK_MB = 10240,
    REGIONS_RETRY_MS = 1000,
    REGIONS_EVERY_MS = 60000, /* a lost notice is made good */
    LISTEN_PUMP_MS = 1000,
    INBOX_MAX = 65536,
    AGAIN_MAX = 256,
    SEEN_MAX = 8192,
};
static const int64_t AGAIN_MS[] = { 500, 2000, 8000, 30000 };
static const int64_t TRAIL_KEEP_MS = INT64_C(30) * 24 * 3600 * 1000;

enum {
    M_MOVES,
    M_LOST_MOVES,
    M_UNDONE,
    M_LOST,
    M_STRAYS,
    M_CLAIMS,
    M_LENT,
    M_ACTIONS,
    M_WAITERS,
    M_TRANSITIONS,
    M_READY_MS,
    M_ENDED_MS,
    M_STATUS_MS,
};
static const struct metrics_def METRICS[] = {
    [M_MOVES] = { "sandboxd_moves_total",
                  METRICS_COUNTER,
                  "Changes of status this control plane wrote since its start.",
                  { NULL } },
    [M_LOST_MOVES] = { "sandboxd_moves_lost_total",
                       METRICS_COUNTER,
                       "Moves that came too late for their row.",
                       { NULL } },
    [M_UNDONE] = { "sandboxd_late_undone_total",
                   METRICS_COUNTER,
                   "Late deploys that were torn down.",
                   { NULL } },
    [M_LOST] = { "sandboxd_sandboxes_lost_total",
                 METRICS_COUNTER,
                 "Sandboxes that had vanished from their region.",
                 { NULL } },
    [M_STRAYS] = { "sandboxd_strays_total",
                   METRICS_COUNTER,
                   "Compute in a region that no row wanted, ended.",
                   { NULL } },
    [M_CLAIMS] = { "sandboxd_claims_total",
                   METRICS_COUNTER,
                   "Due rows this control plane took.",
                   { NULL } },
    [M_LENT] = { "sandboxd_credentials_sent_total",
                 METRICS_COUNTER,
                 "Storage credentials of live directories that a region asked for and got.",
                 { NULL } },
    [M_ACTIONS] = { "sandboxd_region_actions",
                    METRICS_GAUGE,
                    "Region calls of the reconciler under way.",
                    { NULL } },
    [M_WAITERS] = { "sandboxd_waiters",
                    METRICS_GAUGE,
                    "Requests that wait for a status.",
                    { NULL } },
    [M_TRANSITIONS] = { "sandboxd_transitions_total",
                        METRICS_COUNTER,
                        "Changes of status that this control plane saw, by the new status.",
                        { "status" } },
    [M_READY_MS] = { "sandboxd_sandbox_ready_seconds",
                     METRICS_HISTOGRAM,
                     "From a create to READY; kind: cold or warm.",
                     { "kind" } },
    [M_ENDED_MS] = { "sandboxd_sandbox_life_seconds",
                     METRICS_HISTOGRAM,
                     "From a create to TERMINATED, by reason.",
                     { "reason" } },
    [M_STATUS_MS] = { "sandboxd_status_seconds",
                      METRICS_HISTOGRAM,
                      "Time in a status, of those that this control plane saw begin and end.",
                      { "status" } },
};

/* A row as the reconciler saw it last. */
struct seen {
    char sandbox_id[ID_SIZE];
    int64_t generation, since_ms;
};

struct reconcile {
    struct reconcile_config cfg;
    struct seen seen[SEEN_MAX]; /* by hash; the reconciler's thread only */
    char instance[ID_SIZE];
    struct store_conn *db;
    struct store_listener *listener;
    struct store_waker *waker;
    struct reconcile_calls *calls;
    struct reconcile_core *core;
    struct reconcile_waiters *waiters;
    struct metrics_table *metrics;
    struct thread thread;
    int wake_fd;
    int64_t regions_ms; /* monotonic: when the regions are read next */

    atomic_bool listening;
    atomic_bool saturated; /* others may take rows that this one cannot now */
    atomic_bool waking;    /* a wake-up is on its way */

    pthread_mutex_t lock; /* the inbox: from other threads to the reconciler's */
    struct reconcile_answer *answers, **answers_end;
    struct reconcile_ids probes, ended;
    struct {
        char id[ID_SIZE];
        int64_t due_ms; /* monotonic */
        size_t step;    /* of AGAIN_MS */
    } again[AGAIN_MAX];
    size_t again_count;
    bool wake, reload, stop;
    int64_t drain_ms;
    struct reconcile_counts counts; /* as of the last pass */
    size_t actions;
};

/* --- from other threads ------------------------------------------------ */

static void poke(struct reconcile *r)
{
    uint64_t one = 1;

    /* One byte in the pipe is enough: the reconciler clears the flag before it looks. */
    if (!atomic_exchange(&r->waking, true))
        (void)!write(r->wake_fd, &one, sizeof(one));
}

static void on_answer(void *arg, struct reconcile_answer *answer)
{
    struct reconcile *r = arg;

    answer->link = NULL;
    (void)pthread_mutex_lock(&r->lock);
    *r->answers_end = answer;
    r->answers_end = &answer->link;
    (void)pthread_mutex_unlock(&r->lock);
    poke(r);
}

void reconcile_wake(struct reconcile *r)
{
    (void)pthread_mutex_lock(&r->lock);
    r->wake = true;
    (void)pthread_mutex_unlock(&r->lock);
    poke(r);
    if (atomic_load(&r->saturated) && r->waker)
        store_waker_kick(r->waker);
}

void reconcile_probe(struct reconcile *r, const char *sandbox_id)
{
    (void)pthread_mutex_lock(&r->lock);
    (void)reconcile_ids_add(&r->probes, sandbox_id); /* past the bound the sweep finds it */
    (void)pthread_mutex_unlock(&r->lock);
    poke(r);
}

/* A region may say "lost" of the agent a moment before it sees that the sandbox has ended: one look
 * at once is too early then. */
static void probe_again(struct reconcile *r, const char *sandbox_id)
{
    (void)pthread_mutex_lock(&r->lock);
    if (r->again_count < AGAIN_MAX) { /* past the bound the sweep finds it */
        (void)str_copy(r->again[r->again_count].id, ID_SIZE, sandbox_id);
        r->again[r->again_count].due_ms = time_mono_ms() + AGAIN_MS[0];
        r->again[r->again_count].step = 0;
        r->again_count++;
    }
    (void)pthread_mutex_unlock(&r->lock);
}

/* Looks again at what is due; milliseconds until the next one, or -1. */
static int64_t again_pass(struct reconcile *r)
{
    int64_t now = time_mono_ms();
    int64_t wait = -1;
    size_t kept = 0;

    (void)pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < r->again_count; i++) {
        if (r->again[i].due_ms <= now) {
            reconcile_core_probe(r->core, r->again[i].id);
            if (++r->again[i].step == COUNT_OF(AGAIN_MS))
                continue;
            r->again[i].due_ms = now + AGAIN_MS[r->again[i].step];
        }
        if (wait < 0 || r->again[i].due_ms - now < wait)
            wait = r->again[i].due_ms - now;
        r->again[kept++] = r->again[i];
    }
    r->again_count = kept;
    (void)pthread_mutex_unlock(&r->lock);
    return wait;
}

void reconcile_reload_regions(struct reconcile *r)
{
    (void)pthread_mutex_lock(&r->lock);
    r->reload = true;
    (void)pthread_mutex_unlock(&r->lock);
    poke(r);
}

void reconcile_keep_trail(struct reconcile *r, int64_t ms)
{
    (void)pthread_mutex_lock(&r->lock);
    r->cfg.trail_keep_ms = ms;
    (void)pthread_mutex_unlock(&r->lock);
}

void reconcile_execute_ended(struct reconcile *r, struct store_conn *db, const char *sandbox_id,
                             const char *execution_id, enum sbx_code answer)
{
    struct sbx_err err = { 0 };

    if (!db || store_execution_end(db, execution_id, NULL, &err)) {
        (void)pthread_mutex_lock(&r->lock);
        (void)reconcile_ids_add(&r->ended,
                                execution_id); /* past the bound its deadline settles it */
        (void)pthread_mutex_unlock(&r->lock);
        poke(r);
    }
    if (answer == SBX_E_SANDBOX_NOT_FOUND || answer == SBX_E_AGENT_UNREACHABLE ||
        answer == SBX_E_NOT_FOUND || answer == SBX_E_UNAVAILABLE) {
        probe_again(r, sandbox_id);
        reconcile_probe(r, sandbox_id);
    }
}

enum sbx_code reconcile_await(struct reconcile *r, const char *sandbox_id, uint32_t statuses,
                              int64_t timeout_ms, reconcile_wait_fn *fn, void *arg,
                              struct sbx_err *err)
{
    if (reconcile_waiters_add(r->waiters, sandbox_id, statuses, timeout_ms, fn, arg, err))
        return err->code;
    poke(r);
    return SBX_OK;
}

const char *reconcile_instance(const struct reconcile *r)
{
    return r->instance;
}

const struct plan_times *reconcile_times(const struct reconcile *r)
{
    return &r->cfg.times;
}

bool reconcile_listening(const struct reconcile *r)
{
    return atomic_load(&r->listening);
}

void reconcile_stats(struct reconcile *r, struct reconcile_stats *out)
{
    (void)pthread_mutex_lock(&r->lock);
    *out = (struct reconcile_stats){
        .actions = r->actions,
        .moves = r->counts.moves,
        .moves_lost = r->counts.moves_lost,
        .undone = r->counts.undone,
        .lost = r->counts.lost,
        .strays = r->counts.strays,
        .claims = r->counts.claims,
        .lent = r->counts.lent,
    };
    (void)pthread_mutex_unlock(&r->lock);
    out->waiters = reconcile_waiters_count(r->waiters);
}

static void print_gauges(void *arg)
{
    struct reconcile *r = arg;
    struct reconcile_stats s;

    reconcile_stats(r, &s);
    metrics_set(r->metrics, M_MOVES, METRICS_PLAIN, (int64_t)s.moves);
    metrics_set(r->metrics, M_LOST_MOVES, METRICS_PLAIN, (int64_t)s.moves_lost);
    metrics_set(r->metrics, M_UNDONE, METRICS_PLAIN, (int64_t)s.undone);
    metrics_set(r->metrics, M_LOST, METRICS_PLAIN, (int64_t)s.lost);
    metrics_set(r->metrics, M_STRAYS, METRICS_PLAIN, (int64_t)s.strays);
    metrics_set(r->metrics, M_CLAIMS, METRICS_PLAIN, (int64_t)s.claims);
    metrics_set(r->metrics, M_LENT, METRICS_PLAIN, (int64_t)s.lent);
    metrics_set(r->metrics, M_ACTIONS, METRICS_PLAIN, (int64_t)s.actions);
    metrics_set(r->metrics, M_WAITERS, METRICS_PLAIN, (int64_t)s.waiters);
}

/* --- the thread -------------------------------------------------------- */

/* When the status that ends here began is known when its row was the last one with that slot; a
 * move in between that another control plane wrote shows in the generation. */
static void observe_status(struct reconcile *r, const struct store_sandbox *row)
{
    struct seen *s = &r->seen[crc32_of(row->sandbox_id, strlen(row->sandbox_id)) % SEEN_MAX];

    if (strcmp(s->sandbox_id, row->sandbox_id) == 0 && s->generation + 1 == row->generation)
        metrics_observe_ms(r->metrics, M_STATUS_MS,
                           METRICS_LABELS(sandbox_status_name(row->previous)),
                           row->status_since_ms - s->since_ms);
    (void)str_copy(s->sandbox_id, sizeof(s->sandbox_id), row->sandbox_id);
    s->generation = row->generation;
    s->since_ms = row->status_since_ms;
}

static void observe(struct reconcile *r, const struct store_sandbox *row)
{
    observe_status(r, row);
    metrics_add(r->metrics, M_TRANSITIONS, METRICS_LABELS(sandbox_status_name(row->status)), 1);
    if (row->status == SANDBOX_READY && row->resumed_at_ms == 0 && row->suspended_at_ms == 0)
        metrics_observe_ms(r->metrics, M_READY_MS, METRICS_LABELS(row->is_warm ? "warm" : "cold"),
                           row->ready_at_ms - row->created_at_ms);
    if (row->status == SANDBOX_TERMINATED)
        metrics_observe_ms(r->metrics, M_ENDED_MS,
                           METRICS_LABELS(sandbox_end_reason_name(row->end_reason)),
                           row->terminated_at_ms - row->created_at_ms);
}

static void on_move(void *arg, const struct store_sandbox *row)
{
    struct reconcile *r = arg;

    observe(r, row);
    reconcile_waiters_seen(r->waiters, row->sandbox_id, row->status, row->generation);
}

static void on_notice(void *arg, const struct store_notice *notice)
{
    struct reconcile *r = arg;

    switch (notice->kind) {
    case STORE_NOTICE_UP:
        atomic_store(&r->listening, true);
        r->regions_ms = 0;
        reconcile_core_wake(r->core);
        break;
    case STORE_NOTICE_DOWN:
        atomic_store(&r->listening, false);
        break;
    case STORE_NOTICE_WAKE:
        reconcile_core_wake(r->core);
        break;
    case STORE_NOTICE_CONFIG:
        r->regions_ms = 0;
        break;
    case STORE_NOTICE_REVOKED:
        break;
    }
    if (r->cfg.on_notice)
        r->cfg.on_notice(r->cfg.notice_arg, notice);
}

static int64_t mono(void *arg)
{
    (void)arg;
    return time_mono_ms();
}

/* Takes what other threads left. True: the stop was asked for. */
static bool take_inbox(struct reconcile *r)
{
    struct reconcile_answer *answers;
    bool stop;

    (void)pthread_mutex_lock(&r->lock);
    answers = r->answers;
    r->answers = NULL;
    r->answers_end = &r->answers;
    for (size_t i = 0; i < r->probes.count; i++)
        reconcile_core_probe(r->core, r->probes.ids[i]);
    r->probes.count = 0;
    for (size_t i = 0; i < r->ended.count; i++)
        reconcile_core_execution_ended(r->core, r->ended.ids[i]);
    r->ended.count = 0;
    if (r->wake)
        reconcile_core_wake(r->core);
    r->wake = false;
    if (r->reload)
        r->regions_ms = 0;
    r->reload = false;
    reconcile_core_keep_trail(r->core, r->cfg.trail_keep_ms);
    stop = r->stop;
    (void)pthread_mutex_unlock(&r->lock);
    while (answers) {
        struct reconcile_answer *next = answers->link;

        reconcile_core_answer_take(r->core, answers);
        answers = next;
    }
    return stop;
}

static void read_regions(struct reconcile *r)
{
    SCOPED_ARENA struct arena *a = arena_new();
    const char *const *names;
    size_t count;
    struct sbx_err err = { 0 };
    int64_t now = time_mono_ms();

    if (now < r->regions_ms)
        return;
    r->regions_ms = now + REGIONS_EVERY_MS;
    if (reconcile_calls_regions(r->calls, a, &names, &count, &err))
        r->regions_ms = now + REGIONS_RETRY_MS;
    else
        reconcile_core_regions(r->core, names, count);
}

static void publish(struct reconcile *r)
{
    struct reconcile_counts counts;

    reconcile_core_counts(r->core, &counts);
    (void)pthread_mutex_lock(&r->lock);
    r->counts = counts;
    r->actions = reconcile_core_actions(r->core);
    (void)pthread_mutex_unlock(&r->lock);
    atomic_store(&r->saturated, r->actions >= r->cfg.actions_max);
}

static void wait_for_work(struct reconcile *r, int64_t wait_ms)
{
    struct pollfd fds[2] = {
        { .fd = r->wake_fd, .events = POLLIN },
        { .fd = store_listener_fd(r->listener), .events = store_listener_events(r->listener) },
    };
    uint64_t n;

    if (wait_ms > LISTEN_PUMP_MS)
        wait_ms = LISTEN_PUMP_MS;
    if (poll(fds, 2, wait_ms > 0 ? (int)wait_ms : 0) < 0 && errno != EINTR)
        log_warn("poll failed", LOG_I("errno", errno));
    (void)!read(r->wake_fd, &n, sizeof(n));
    atomic_store(&r->waking, false);
    store_listener_pump(r->listener, on_notice, r);
}

static int64_t sooner(int64_t a, int64_t b)
{
    return b >= 0 && b < a ? b : a;
}

static void run(void *arg)
{
    struct reconcile *r = arg;
    int64_t stop_at = 0;

    for (;;) {
        bool stop = take_inbox(r);
        int64_t wait;

        if (stop && stop_at == 0) {
            stop_at = time_mono_ms() + r->drain_ms;
            reconcile_core_quiesce(r->core);
            reconcile_waiters_close(r->waiters);
        }
        if (!stop)
            read_regions(r);
        wait = again_pass(r);
        wait = sooner(reconcile_core_pass(r->core), wait);
        wait = sooner(
            wait, reconcile_waiters_pass(r->waiters, r->db, reconcile_core_database_up(r->core)));
        publish(r);
        if (stop && (reconcile_core_actions(r->core) == 0 || time_mono_ms() >= stop_at))
            break;
        wait_for_work(r, stop ? sooner(wait, 50) : wait);
    }
}

/* --- start and stop ---------------------------------------------------- */

static void set_defaults(struct reconcile_config *c)
{
    if (c->times.backoff_first_ms == 0)
        c->times = PLAN_TIMES_DEFAULT;
    if (!c->lease_ms)
        c->lease_ms = LEASE_MS;
    if (!c->poll_ms)
        c->poll_ms = POLL_MS;
    if (!c->region_sweep_ms)
        c->region_sweep_ms = SWEEP_MS;
    if (!c->execution_grace_ms)
        c->execution_grace_ms = GRACE_MS;
    if (!c->actions_max)
        c->actions_max = ACTIONS_MAX;
    if (!c->disk_mb)
        c->disk_mb = DISK_MB;
    if (!c->trail_keep_ms)
        c->trail_keep_ms = TRAIL_KEEP_MS;
}

static struct reconcile_core *core_new(struct reconcile *r)
{
    struct reconcile_core_config cc = {
        .times = r->cfg.times,
        .lease_ms = r->cfg.lease_ms,
        .poll_ms = r->cfg.poll_ms,
        .accept_ms = ACCEPT_MS,
        .region_sweep_ms = r->cfg.region_sweep_ms,
        .stale_ms = STALE_MS < r->cfg.lease_ms ? STALE_MS : r->cfg.lease_ms,
        .execution_grace_ms = r->cfg.execution_grace_ms,
        .trail_keep_ms = r->cfg.trail_keep_ms,
        .actions_max = r->cfg.actions_max,
        .warm_total_max = r->cfg.warm_total_max,
        .warm_deadline_ms = r->cfg.times.starting_s * 1000,
        .store = &RECONCILE_STORE,
        .db = r->db,
        .region = &RECONCILE_CALLS,
        .region_self = r->calls,
        .mono_ms = mono,
        .seed = random_u64(),
        .on_move = on_move,
        .move_arg = r,
    };

    (void)str_copy(cc.instance, sizeof(cc.instance), r->instance);
    return reconcile_core_new(&cc);
}

static void destroy(struct reconcile *r)
{
    store_waker_stop(r->waker);
    reconcile_core_free(r->core);
    reconcile_calls_free(r->calls);
    reconcile_waiters_free(r->waiters);
    store_listener_free(r->listener);
    store_conn_free(r->db);
    while (r->answers) {
        struct reconcile_answer *next = r->answers->link;

        reconcile_answer_free(r->answers);
        r->answers = next;
    }
    free(r->probes.ids);
    free(r->ended.ids);
    fd_close(&r->wake_fd);
    (void)pthread_mutex_destroy(&r->lock);
    free(r);
}

enum sbx_code reconcile_start(const struct reconcile_config *config, struct reconcile **out,
                              struct sbx_err *err)
{
    struct reconcile *r = mem_zalloc(sizeof(*r));
    struct reconcile_calls_config calls;

    r->cfg = *config;
    set_defaults(&r->cfg);
    (void)pthread_mutex_init(&r->lock, NULL);
    r->answers_end = &r->answers;
    r->probes.max = INBOX_MAX;
    r->ended.max = INBOX_MAX;
    if (config->instance)
        (void)str_copy(r->instance, sizeof(r->instance), config->instance);
    else
        id_new(r->instance);
    r->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (r->wake_fd < 0) {
        enum sbx_code code = err_sys(err, SBX_E_INTERNAL, "eventfd");

        destroy(r);
        return code;
    }
    r->db = store_conn_new(config->store, "reconciler");
    r->listener = store_listener_new(config->store);
    r->waiters = reconcile_waiters_new();
    calls = (struct reconcile_calls_config){ .gateways = config->gateways,
                                             .db = r->db,
                                             .keys = config->keys,
                                             .disk_mb = r->cfg.disk_mb,
                                             .on_answer = on_answer,
                                             .arg = r };
    r->calls = reconcile_calls_new(&calls);
    r->core = core_new(r);
    if (config->metrics) {
        r->metrics = metrics_register(config->metrics, METRICS, COUNT_OF(METRICS));
        metrics_on_print(config->metrics, print_gauges, r);
    }
    if (store_waker_start(config->store, &r->waker, err) ||
        thread_start(&r->thread, "reconciler", run, r, err)) {
        destroy(r);
        return err_wrap(err, "reconciler");
    }
    *out = r;
    return SBX_OK;
}

void reconcile_stop(struct reconcile *r, int64_t drain_ms)
{
    struct sbx_err err = { 0 };

    if (!r)
        return;
    (void)pthread_mutex_lock(&r->lock);
    r->stop = true;
    r->drain_ms = drain_ms;
    (void)pthread_mutex_unlock(&r->lock);
    poke(r);
    thread_join(&r->thread);
    if (store_instance_leave(r->db, r->instance, &err))
        log_err(LOG_WARN, "the leases could not be given back; they run out", &err);
    destroy(r);
}
