#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/thread.h"
#include "base/time.h"
#include "store/conn.h"

enum {
    LISTEN_CONNECT_MS = 5000,
    LISTEN_RETRY_MS = 500,
    LISTEN_PROBE_MS = 5000, /* a silent connection is asked whether it is still one */
    WAKE_GAP_MS = 2,        /* kicks within it become one NOTIFY */
    WAKE_RETRY_MS = 200,
};

static const char LISTEN_SQL[] =
    "LISTEN sandboxd_wake; LISTEN sandboxd_revoked; LISTEN sandboxd_config";

static const struct {
    const char *channel;
    enum store_notice_kind kind;
} CHANNELS[] = {
    { "sandboxd_wake", STORE_NOTICE_WAKE },
    { "sandboxd_revoked", STORE_NOTICE_REVOKED },
    { "sandboxd_config", STORE_NOTICE_CONFIG },
};

/* --- listener ------------------------------------------------------------- */

enum listen_state { LISTEN_OFF = 0, LISTEN_CONNECTING, LISTEN_ASKED, LISTEN_UP, LISTEN_PROBED };

struct store_listener {
    char *url;
    PGconn *pg;
    enum listen_state state;
    PostgresPollingStatusType wants;
    int64_t since;    /* monotonic ms: of the state, or of the last sign of life */
    int64_t retry_at; /* monotonic ms */
    atomic_bool up;
};

struct store_listener *store_listener_new(const struct store_config *cfg)
{
    struct store_listener *l = mem_zalloc(sizeof(*l));

    l->url = mem_strdup(cfg->url);
    atomic_init(&l->up, false);
    return l;
}

void store_listener_free(struct store_listener *l)
{
    if (!l)
        return;
    PQfinish(l->pg);
    secret_wipe(l->url, strlen(l->url));
    free(l->url);
    free(l);
}

int store_listener_fd(const struct store_listener *l)
{
    return l->pg ? PQsocket(l->pg) : -1;
}

short store_listener_events(const struct store_listener *l)
{
    if (l->state == LISTEN_CONNECTING && l->wants == PGRES_POLLING_WRITING)
        return POLLOUT;
    return POLLIN;
}

bool store_listener_up(const struct store_listener *l)
{
    return atomic_load(&l->up);
}

static void listener_drop(struct store_listener *l,
                          void (*on)(void *arg, const struct store_notice *notice), void *arg)
{
    PQfinish(l->pg);
    l->pg = NULL;
    l->state = LISTEN_OFF;
    l->retry_at = time_mono_ms() + LISTEN_RETRY_MS;
    if (atomic_exchange(&l->up, false))
        on(arg, &(struct store_notice){ .kind = STORE_NOTICE_DOWN, .payload = "" });
}

static void to_state(struct store_listener *l, enum listen_state state)
{
    l->state = state;
    l->since = time_mono_ms();
}

/* Answers to what we asked; true when all of it has come and was good. */
static bool answers_done(struct store_listener *l, bool *failed)
{
    while (!PQisBusy(l->pg)) {
        PGresult *res = PQgetResult(l->pg);

        if (!res)
            return true;
        ExecStatusType st = PQresultStatus(res);
        PQclear(res);
        if (st != PGRES_COMMAND_OK && st != PGRES_TUPLES_OK && st != PGRES_EMPTY_QUERY)
            *failed = true;
    }
    return false;
}

static void deliver(struct store_listener *l,
                    void (*on)(void *arg, const struct store_notice *notice), void *arg)
{
    PGnotify *n;

    while ((n = PQnotifies(l->pg)) != NULL) {
        for (size_t i = 0; i < COUNT_OF(CHANNELS); i++) {
            if (strcmp(n->relname, CHANNELS[i].channel) == 0)
                on(arg, &(struct store_notice){ .kind = CHANNELS[i].kind, .payload = n->extra });
        }
        PQfreemem(n);
    }
}

/* One step of connecting; false when it failed. */
static bool step_connect(struct store_listener *l)
{
    l->wants = PQconnectPoll(l->pg);
    if (l->wants == PGRES_POLLING_FAILED)
        return false;
    if (l->wants != PGRES_POLLING_OK)
        return time_mono_ms() - l->since < LISTEN_CONNECT_MS;
    if (PQsetnonblocking(l->pg, 1) != 0 || !PQsendQuery(l->pg, LISTEN_SQL))
        return false;
    to_state(l, LISTEN_ASKED);
    return true;
}

/* One step of a connection that exists; false when it is gone. */
static bool step_connected(struct store_listener *l,
                           void (*on)(void *arg, const struct store_notice *notice), void *arg)
{
    bool failed = false;

    if (PQflush(l->pg) < 0 || !PQconsumeInput(l->pg))
        return false;
    if (l->state != LISTEN_UP && answers_done(l, &failed)) {
        bool first = l->state == LISTEN_ASKED;

        if (failed)
            return false;
        to_state(l, LISTEN_UP);
        if (first) {
            atomic_store(&l->up, true);
            on(arg, &(struct store_notice){ .kind = STORE_NOTICE_UP, .payload = "" });
        }
    }
    deliver(l, on, arg);
    if (PQstatus(l->pg) != CONNECTION_OK)
        return false;
    if (time_mono_ms() - l->since < LISTEN_PROBE_MS)
        return true;
    if (l->state != LISTEN_UP)
        return false; /* asked long ago, and no answer */
    to_state(l, LISTEN_PROBED);
    return PQsendQuery(l->pg, "") == 1;
}

void store_listener_pump(struct store_listener *l,
                         void (*on)(void *arg, const struct store_notice *notice), void *arg)
{
    if (l->state == LISTEN_OFF) {
        if (time_mono_ms() < l->retry_at)
            return;
        l->pg = store_connect_start(l->url, "sandboxd listen");
        if (!l->pg || PQstatus(l->pg) == CONNECTION_BAD) {
            listener_drop(l, on, arg);
            return;
        }
        l->wants = PGRES_POLLING_WRITING;
        to_state(l, LISTEN_CONNECTING);
        return;
    }
    if (l->state == LISTEN_CONNECTING) {
        struct pollfd fd = { .fd = PQsocket(l->pg), .events = store_listener_events(l) };

        if (poll(&fd, 1, 0) == 0) {
            if (time_mono_ms() - l->since >= LISTEN_CONNECT_MS)
                listener_drop(l, on, arg);
            return;
        }
        if (!step_connect(l))
            listener_drop(l, on, arg);
        return;
    }
    if (!step_connected(l, on, arg))
        listener_drop(l, on, arg);
}

/* --- waker ------------------------------------------------------------------ */

struct store_waker {
    struct thread thread;
    struct store_conn *db;
    int event;
    atomic_bool kicked, stop;
};

static void waker_main(void *arg)
{
    struct store_waker *w = arg;

    while (!atomic_load(&w->stop)) {
        struct pollfd fd = { .fd = w->event, .events = POLLIN };
        struct sbx_err err = { 0 };
        SCOPED_RESULT PGresult *res = NULL;
        uint64_t n;

        (void)poll(&fd, 1, -1);
        (void)!read(w->event, &n, sizeof(n));
        if (!atomic_exchange(&w->kicked, false))
            continue;
        bool sent = store_run_text(w->db, "NOTIFY sandboxd_wake", &res, &err) == SBX_OK;
        (void)poll(&(struct pollfd){ .fd = -1 }, 1, sent ? WAKE_GAP_MS : WAKE_RETRY_MS);
    }
}

enum sbx_code store_waker_start(const struct store_config *cfg, struct store_waker **out,
                                struct sbx_err *err)
{
    struct store_waker *w = mem_zalloc(sizeof(*w));

    atomic_init(&w->kicked, false);
    atomic_init(&w->stop, false);
    w->db = store_conn_new(cfg, "sandboxd wake");
    w->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    enum sbx_code code = SBX_OK;
    if (w->event < 0)
        code = err_sys(err, SBX_E_INTERNAL, "eventfd");
    else
        code = thread_start(&w->thread, "store-wake", waker_main, w, err);
    if (code != SBX_OK) {
        store_waker_stop(w);
        return code;
    }
    *out = w;
    return SBX_OK;
}

void store_waker_kick(struct store_waker *w)
{
    uint64_t one = 1;

    if (!atomic_exchange(&w->kicked, true))
        (void)!write(w->event, &one, sizeof(one));
}

void store_waker_stop(struct store_waker *w)
{
    uint64_t one = 1;

    if (!w)
        return;
    atomic_store(&w->stop, true);
    if (w->event >= 0)
        (void)!write(w->event, &one, sizeof(one));
    thread_join(&w->thread);
    store_conn_free(w->db);
    if (w->event >= 0)
        (void)close(w->event);
    free(w);
}
