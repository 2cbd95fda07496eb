#include "api/audit.h"

#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/queue.h"
#include "base/scoped.h"
#include "base/thread.h"

enum {
    RETRY_MS = 250,     /* while the database is away */
    STOP_TRIES_MAX = 8, /* after the stop was asked for */
    BATCH_MAX = 128,    /* rows of one round trip, below STORE_BATCH_MAX */
};

struct api_audit {
    struct queue *rows; /* of struct item */
    struct store_conn *db;
    struct thread thread;
    int stop_fd; /* readable once the stop was asked for */
};

/* A row with its texts behind it, in one piece. */
struct item {
    struct store_audit row;
    char text[];
};

static size_t text_size(const char *s)
{
    return s == NULL ? 0 : strlen(s) + 1;
}

static const char *keep(char **at, const char *s)
{
    char *to = *at;

    if (s == NULL)
        return NULL;
    memcpy(to, s, strlen(s) + 1);
    *at += strlen(s) + 1;
    return to;
}

static struct item *item_new(const struct store_audit *r)
{
    struct item *it =
        mem_zalloc(sizeof(*it) + text_size(r->account_id) + text_size(r->actor) +
                   text_size(r->action) + text_size(r->object_kind) + text_size(r->object_id) +
                   text_size(r->request_id) + text_size(r->outcome) + text_size(r->run_id));
    char *at = it->text;

    it->row = *r;
    it->row.account_id = keep(&at, r->account_id);
    it->row.actor = keep(&at, r->actor);
    it->row.action = keep(&at, r->action);
    it->row.object_kind = keep(&at, r->object_kind);
    it->row.object_id = keep(&at, r->object_id);
    it->row.request_id = keep(&at, r->request_id);
    it->row.outcome = keep(&at, r->outcome);
    it->row.run_id = keep(&at, r->run_id);
    return it;
}

static void log_row(const char *why, const struct store_audit *r)
{
    log_error(why, LOG_S("accountId", r->account_id), LOG_S("actor", r->actor),
              LOG_S("action", r->action), LOG_S("objectId", r->object_id),
              LOG_S("requestId", r->request_id), LOG_S("outcome", r->outcome));
}

void api_audit_add(struct api_audit *w, const struct store_audit *row)
{
    struct item *it = item_new(row);

    if (!queue_put(w->rows, it)) {
        log_row("audit row not kept", row);
        free(it);
    }
}

/* True once the stop was asked for; waits at most RETRY_MS for it. */
static bool pause_or_stop(struct api_audit *w)
{
    struct pollfd p = { .fd = w->stop_fd, .events = POLLIN };

    return poll(&p, 1, RETRY_MS) > 0;
}

static void write_batch(struct api_audit *w, struct item **items, size_t count)
{
    struct store_audit rows[BATCH_MAX];
    int tries = 0;

    for (size_t i = 0; i < count; i++)
        rows[i] = items[i]->row;
    for (;;) {
        struct sbx_err err = { 0 };
        enum sbx_code code = store_audit_write(w->db, rows, count, &err);
        bool stopping;

        if (code == SBX_OK)
            return;
        stopping = pause_or_stop(w);
        if ((code != SBX_E_UNAVAILABLE && code != SBX_E_CONFLICT) ||
            (stopping && ++tries >= STOP_TRIES_MAX)) {
            log_err(LOG_ERROR, "audit rows not written", &err);
            for (size_t i = 0; i < count; i++)
                log_row("audit row not kept", &rows[i]);
            return;
        }
    }
}

static void run(void *arg)
{
    struct api_audit *w = arg;

    for (;;) {
        struct item *items[BATCH_MAX];
        size_t count = 0;

        items[count] = queue_take(w->rows);
        if (items[count] == NULL)
            return;
        count++;
        while (count < BATCH_MAX && queue_depth(w->rows) > 0)
            items[count++] = queue_take(w->rows); /* the only taker: there is one */
        write_batch(w, items, count);
        for (size_t i = 0; i < count; i++)
            free(items[i]);
    }
}

enum sbx_code api_audit_start(const struct store_config *store, struct api_audit **out,
                              struct sbx_err *err)
{
    struct api_audit *w = mem_zalloc(sizeof(*w));

    w->rows = queue_new(API_AUDIT_QUEUE_MAX);
    w->db = store_conn_new(store, "sandboxd-audit");
    w->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (w->stop_fd < 0) {
        (void)!err_sys(err, SBX_E_INTERNAL, "eventfd");
        api_audit_stop(w);
        return err->code;
    }
    if (thread_start(&w->thread, "audit", run, w, err) != SBX_OK) {
        api_audit_stop(w);
        return err->code;
    }
    *out = w;
    return SBX_OK;
}

void api_audit_stop(struct api_audit *w)
{
    if (w == NULL)
        return;
    queue_close(w->rows);
    if (w->stop_fd >= 0)
        (void)eventfd_write(w->stop_fd, 1);
    thread_join(&w->thread);
    queue_free(w->rows);
    store_conn_free(w->db);
    fd_close(&w->stop_fd);
    free(w);
}
