#include <assert.h>
#include <stdlib.h>

#include "base/mem.h"
#include "http/internal.h"

/* What waits for a worker.
 *
 * A request whose route has a lane is taken together with the others of its lane, by one worker
 * at a time: while that one is at work the next ones gather. A second worker takes from a lane only
 * when a whole group is waiting, so that one slow group does not hold up many. Everything else is
 * taken one by one. The oldest goes first. */

struct list {
    struct request *head;
    struct request **end; /* &head when empty */
    size_t count;
    size_t workers; /* that have a group of this lane */
};

/* A worker that has nothing to do. */
struct idle {
    struct idle *next;
    pthread_cond_t wake;
    bool woken;
};

struct http_jobs {
    pthread_mutex_t lock;
    struct list lists[HTTP_LANES_MAX + 1]; /* by lane; 0: alone */
    size_t count, max;
    struct idle *idle; /* the last to come is woken first: its caches and its session are warm */
    bool waking;       /* one was woken and has not come yet */
    uint64_t last_seq; /* of the newest */
    bool closed;
};

struct http_jobs *http_jobs_new(size_t max)
{
    struct http_jobs *j = mem_zalloc(sizeof(*j));

    assert(max > 0);
    (void)pthread_mutex_init(&j->lock, NULL);
    for (size_t i = 0; i <= HTTP_LANES_MAX; i++)
        j->lists[i].end = &j->lists[i].head;
    j->max = max;
    return j;
}

void http_jobs_free(struct http_jobs *j)
{
    if (j == NULL)
        return;
    assert(j->count == 0);
    (void)pthread_mutex_destroy(&j->lock);
    free(j);
}

/* The list to take from now, -1: none. Under the lock. */
static int choose(const struct http_jobs *j)
{
    int best = -1;

    for (int i = 0; i <= HTTP_LANES_MAX; i++) {
        const struct list *l = &j->lists[i];

        if (l->count == 0)
            continue;
        if (i > 0 && !j->closed && l->count < l->workers * HTTP_GROUP_MAX)
            continue;
        if (best < 0 || l->head->job_seq < j->lists[best].head->job_seq)
            best = i;
    }
    return best;
}

/* Under the lock. */
static void wake(struct http_jobs *j)
{
    struct idle *w = j->idle;

    j->idle = w->next;
    w->woken = true;
    (void)pthread_cond_signal(&w->wake);
}

/* One worker is woken at a time; it wakes the next when there is more. Under the lock. */
static void wake_one(struct http_jobs *j)
{
    if (j->idle == NULL || j->waking || choose(j) < 0)
        return;
    j->waking = true;
    wake(j);
}

/* Under the lock. */
static void wait_idle(struct http_jobs *j)
{
    struct idle self = { .next = j->idle, .wake = PTHREAD_COND_INITIALIZER };

    j->idle = &self;
    while (!self.woken)
        (void)pthread_cond_wait(&self.wake, &j->lock);
    (void)pthread_cond_destroy(&self.wake);
    j->waking = false;
}

bool http_jobs_put(struct http_jobs *j, struct request *req, unsigned lane, bool admitted)
{
    struct list *l = &j->lists[lane];
    bool ok;

    assert(lane <= HTTP_LANES_MAX);
    (void)pthread_mutex_lock(&j->lock);
    ok = !j->closed && (admitted || j->count < j->max);
    if (ok) {
        req->job_next = NULL;
        req->job_seq = ++j->last_seq;
        *l->end = req;
        l->end = &req->job_next;
        l->count++;
        j->count++;
        wake_one(j);
    }
    (void)pthread_mutex_unlock(&j->lock);
    return ok;
}

size_t http_jobs_take(struct http_jobs *j, struct request *out[HTTP_GROUP_MAX], unsigned *lane)
{
    size_t n = 0;
    int from;

    (void)pthread_mutex_lock(&j->lock);
    if (*lane > 0)
        j->lists[*lane].workers--;
    while ((from = choose(j)) < 0 && !j->closed)
        wait_idle(j);
    *lane = from > 0 ? (unsigned)from : 0;
    while (from >= 0 && j->lists[from].count > 0 && n < (from > 0 ? HTTP_GROUP_MAX : 1)) {
        struct list *l = &j->lists[from];

        out[n++] = l->head;
        l->head = l->head->job_next;
        if (l->head == NULL)
            l->end = &l->head;
        l->count--;
        j->count--;
    }
    if (from > 0)
        j->lists[from].workers++;
    wake_one(j);
    (void)pthread_mutex_unlock(&j->lock);
    return n;
}

void http_jobs_close(struct http_jobs *j)
{
    (void)pthread_mutex_lock(&j->lock);
    j->closed = true;
    while (j->idle != NULL)
        wake(j);
    (void)pthread_mutex_unlock(&j->lock);
}

size_t http_jobs_depth(struct http_jobs *j)
{
    size_t n;

    (void)pthread_mutex_lock(&j->lock);
    n = j->count;
    (void)pthread_mutex_unlock(&j->lock);
    return n;
}
