#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "base/time.h"
#include "gateway/gateway_impl.h"

/* A live directory on S3 is as alive as the s3fs process behind it.  One thread holds a pidfd of
 * each and looks at them every few seconds; only when one has ended is the mount itself asked,
 * which then answers at once.  What mending takes is kept beside it.  Each is mended on a thread of
 * its own, few at once of an account: its storage may take long to answer, or never do. */

enum {
    LOOK_MS = 2000,
    AGAIN_MS = 5000, /* after credentials that did not work; doubled up to */
    AGAIN_MAX_MS = 60000,
    TRIES_MAX = 16,
    MENDS_MAX = 16, /* at once */
    MENDS_ACCOUNT = 2,
};

/* What is known of a volume. */
struct lent {
    struct lent *next;
    char key[VOLUME_KEY_MAX];
    struct arena *arena;           /* of the backend's strings; NULL: no backend */
    struct volume_backend backend; /* VOLUME_NONE: none */
    uint64_t serial;               /* of the backend: how many were lent before */
    size_t deploys;                /* that are mounting it */
    int tries;                     /* that failed in a row */
    int64_t again_ms;              /* monotonic: not asked for before */
};

/* One mount. */
struct served {
    struct served *next;
    char name[VOLUME_KEY_MAX];
    int pidfd; /* -1: not found yet, or ended */
    bool dead; /* and that was counted */
    bool there;
    /* the one that mends it */
    struct gateway_mounts *mounts;
    struct thread mender; /* started and joined by the thread; it keeps this in the list */
    bool mended;          /* it has nothing more to do */
    atomic_bool give_up;
};

struct gateway_mounts {
    struct gateway *g;
    const char *folder;
    pthread_mutex_t lock; /* all below; the list `served` is changed by the thread only */
    pthread_cond_t wake;
    struct lent *lent;
    struct served *served;
    struct thread thread;
    bool stopping, look;
};

struct gateway_mounts *gateway_mounts_new(struct gateway *g, const char *folder)
{
    struct gateway_mounts *m = mem_zalloc(sizeof(*m));
    pthread_condattr_t attr;

    m->g = g;
    m->folder = folder;
    (void)pthread_mutex_init(&m->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&m->wake, &attr);
    (void)pthread_condattr_destroy(&attr);
    return m;
}

/* ---- credentials; with the lock ---- */

static struct lent *lent_find(const struct gateway_mounts *m, const char *key)
{
    struct lent *l = m->lent;

    while (l != NULL && strcmp(l->key, key) != 0)
        l = l->next;
    return l;
}

static struct lent *lent_make(struct gateway_mounts *m, const char *key)
{
    struct lent *l = lent_find(m, key);

    if (l != NULL)
        return l;
    l = mem_zalloc(sizeof(*l));
    (void)str_copy(l->key, sizeof(l->key), key);
    l->next = m->lent;
    m->lent = l;
    return l;
}

static void lent_drop(struct lent *l)
{
    volume_backend_fini(&l->backend);
    arena_free(l->arena);
    l->arena = NULL;
}

static void lent_failed(struct lent *l)
{
    int64_t wait = AGAIN_MS;

    lent_drop(l); /* others may be right by now */
    for (int i = 0; i < l->tries && wait < AGAIN_MAX_MS; i++)
        wait *= 2;
    l->again_ms = time_mono_ms() + (wait < AGAIN_MAX_MS ? wait : AGAIN_MAX_MS);
    l->tries += l->tries < TRIES_MAX;
}

static bool is_mounted(const struct gateway_mounts *m, const char *key)
{
    char its[VOLUME_KEY_MAX];

    for (const struct served *s = m->served; s != NULL; s = s->next) {
        if (volume_mount_prefix(s->name, its) && strcmp(its, key) == 0)
            return true;
    }
    return false;
}

/* What belongs to no mount any more. */
static void lent_prune(struct gateway_mounts *m)
{
    for (struct lent **p = &m->lent; *p != NULL;) {
        struct lent *l = *p;

        if (l->deploys > 0 || is_mounted(m, l->key)) {
            p = &l->next;
            continue;
        }
        *p = l->next;
        lent_drop(l);
        free(l);
    }
}

/* ---- the thread ---- */

static void served_free(struct served *s)
{
    fd_close(&s->pidfd);
    free(s);
}

static struct served *served_find(const struct gateway_mounts *m, const char *name)
{
    struct served *s = m->served;

    while (s != NULL && strcmp(s->name, name) != 0)
        s = s->next;
    return s;
}

/* The list as the folder has it. */
static void read_folder(struct gateway_mounts *m, struct arena *a)
{
    const char **names;

    (void)pthread_mutex_lock(&m->lock); /* a deploy that ends after this look is still counted */
    (void)volume_mounts(m->folder, a, &names);
    for (struct served *s = m->served; s != NULL; s = s->next)
        s->there = false;
    for (; *names != NULL; names++) {
        struct served *s = served_find(m, *names);

        if (s == NULL && strlen(*names) < VOLUME_KEY_MAX) {
            s = mem_zalloc(sizeof(*s));
            (void)str_copy(s->name, sizeof(s->name), *names);
            s->pidfd = -1;
            s->mounts = m;
            s->next = m->served;
            m->served = s;
        }
        if (s != NULL)
            s->there = true;
    }
    for (struct served **p = &m->served; *p != NULL;) {
        struct served *s = *p;

        if (s->there || s->mender.started) {
            p = &s->next;
        } else {
            *p = s->next;
            served_free(s);
        }
    }
    lent_prune(m);
    (void)pthread_mutex_unlock(&m->lock);
}

static bool has_ended(int pidfd)
{
    struct pollfd p = { .fd = pidfd, .events = POLLIN };

    return poll(&p, 1, 0) > 0;
}

/* Finds the processes of those that have none. */
static void find_servers(struct gateway_mounts *m, struct arena *a)
{
    struct served **who = arena_zalloc(a, VOLUME_MOUNTS_MAX * sizeof(struct served *));
    const char **names = arena_zalloc(a, VOLUME_MOUNTS_MAX * sizeof(*names));
    int *pidfds = arena_zalloc(a, VOLUME_MOUNTS_MAX * sizeof(*pidfds));
    size_t n = 0;

    for (struct served *s = m->served; s != NULL && n < VOLUME_MOUNTS_MAX; s = s->next) {
        if (s->pidfd >= 0 && has_ended(s->pidfd))
            fd_close(&s->pidfd);
        if (s->pidfd < 0 && !s->mender.started && !s->dead) {
            names[n] = s->name;
            who[n++] = s;
        }
    }
    if (n == 0)
        return;
    volume_mount_servers(m->folder, names, n, pidfds);
    for (size_t i = 0; i < n; i++)
        who[i]->pidfd = pidfds[i];
}

static void try_mend(struct gateway_mounts *m, struct served *s, const char *key,
                     struct sbx_err *err)
{
    SCOPED_ARENA struct arena *a = arena_new();
    SCOPED(volume_backend_fini) struct volume_backend backend = { 0 };
    uint64_t serial = 0;
    struct lent *l;

    (void)pthread_mutex_lock(&m->lock);
    l = lent_find(m, key);
    if (l != NULL) {
        volume_backend_copy(&l->backend, a, &backend);
        serial = l->serial;
    }
    (void)pthread_mutex_unlock(&m->lock);
    backend.give_up = &s->give_up;
    if (backend.kind == VOLUME_NONE)
        err_put(err, SBX_E_UNAVAILABLE, "the credentials are gone");
    else
        (void)!volume_mount_again(&backend, key, m->folder, s->name, gateway_volume_used, m->g,
                                  err);
    (void)pthread_mutex_lock(&m->lock);
    l = lent_find(m, key);
    if (l != NULL && l->serial == serial && err->code != SBX_OK)
        lent_failed(l);
    else if (l != NULL && err->code == SBX_OK)
        l->tries = 0;
    s->dead = err->code != SBX_OK;
    (void)pthread_mutex_unlock(&m->lock);
}

/* A thread: makes a dead one again. */
static void mend(void *arg)
{
    struct served *s = arg;
    struct gateway_mounts *m = s->mounts;
    char key[VOLUME_KEY_MAX];
    struct sbx_err err = { 0 };

    (void)volume_mount_prefix(s->name, key);
    try_mend(m, s, key, &err);
    if (err.code != SBX_OK) {
        log_err(LOG_WARN, "a live directory cannot be mounted again yet", &err,
                LOG_S("volume", key));
    } else {
        metrics_add(m->g->counters, GATEWAY_M_MOUNTS_MENDED, METRICS_PLAIN, 1);
        log_info("a live directory is mounted again", LOG_S("volume", key));
    }
    (void)pthread_mutex_lock(&m->lock);
    s->mended = true;
    m->look = true;
    (void)pthread_cond_broadcast(&m->wake);
    (void)pthread_mutex_unlock(&m->lock);
}

static bool may_mend(struct gateway_mounts *m, const char *key)
{
    size_t account = strcspn(key, "/"), all = 0, its = 0;
    const struct lent *l;
    bool can;

    for (const struct served *s = m->served; s != NULL; s = s->next) {
        all += s->mender.started;
        its += s->mender.started && strncmp(s->name, key, account) == 0 && s->name[account] == '.';
    }
    (void)pthread_mutex_lock(&m->lock);
    l = lent_find(m, key);
    can = !m->stopping && l != NULL && l->backend.kind != VOLUME_NONE && all < MENDS_MAX &&
          its < MENDS_ACCOUNT;
    (void)pthread_mutex_unlock(&m->lock);
    return can;
}

static void start_mend(struct served *s)
{
    struct sbx_err err = { 0 };

    s->mended = false;
    atomic_store(&s->give_up, false);
    if (thread_start(&s->mender, "gw-mend", mend, s, &err) != SBX_OK)
        log_err(LOG_WARN, "a live directory cannot be mounted again yet", &err);
}

static void end_mends(struct gateway_mounts *m)
{
    for (struct served *s = m->served; s != NULL; s = s->next) {
        bool ended;

        (void)pthread_mutex_lock(&m->lock);
        ended = s->mended;
        (void)pthread_mutex_unlock(&m->lock);
        if (ended)
            thread_join(&s->mender);
    }
}

static void look_at(struct gateway_mounts *m, struct served *s)
{
    char key[VOLUME_KEY_MAX];
    bool dead;

    if (!volume_mount_prefix(s->name, key) || !gateway_volume_used(m->g, key))
        return; /* on its way out */
    if (!volume_mount_look(m->folder, s->name, &dead))
        return; /* on its way in */
    if (dead && !s->dead) {
        metrics_add(m->g->counters, GATEWAY_M_MOUNTS_LOST, METRICS_PLAIN, 1);
        log_warn("a live directory lost its s3fs; sandboxes that have it get errors until they "
                 "are paused and resumed",
                 LOG_S("volume", key));
    }
    (void)pthread_mutex_lock(&m->lock);
    s->dead = dead;
    (void)pthread_mutex_unlock(&m->lock);
    if (dead && may_mend(m, key))
        start_mend(s);
}

static void look(struct gateway_mounts *m)
{
    SCOPED_ARENA struct arena *a = arena_new();

    end_mends(m);
    read_folder(m, a);
    find_servers(m, a);
    for (struct served *s = m->served; s != NULL; s = s->next) {
        if (s->pidfd < 0 && !s->mender.started)
            look_at(m, s);
    }
}

static void work(void *arg)
{
    struct gateway_mounts *m = arg;

    (void)pthread_mutex_lock(&m->lock);
    while (!m->stopping) {
        int64_t at_ms = time_mono_ms() + LOOK_MS;
        struct timespec at = { .tv_sec = at_ms / 1000, .tv_nsec = at_ms % 1000 * 1000000 };

        m->look = false;
        (void)pthread_mutex_unlock(&m->lock);
        look(m);
        (void)pthread_mutex_lock(&m->lock);
        while (!m->stopping && !m->look && time_mono_ms() < at_ms)
            (void)pthread_cond_timedwait(&m->wake, &m->lock, &at);
    }
    (void)pthread_mutex_unlock(&m->lock);
}

enum sbx_code gateway_mounts_start(struct gateway_mounts *m, struct sbx_err *err)
{
    return thread_start(&m->thread, "gw-mounts", work, m, err);
}

void gateway_mounts_free(struct gateway_mounts *m)
{
    if (m == NULL)
        return;
    (void)pthread_mutex_lock(&m->lock);
    m->stopping = true;
    (void)pthread_cond_broadcast(&m->wake);
    (void)pthread_mutex_unlock(&m->lock);
    thread_join(&m->thread);
    for (struct served *s = m->served; s != NULL; s = s->next)
        atomic_store(&s->give_up, true);
    while (m->served != NULL) {
        struct served *next = m->served->next;

        thread_join(&m->served->mender);
        served_free(m->served);
        m->served = next;
    }
    while (m->lent != NULL) {
        struct lent *next = m->lent->next;

        lent_drop(m->lent);
        free(m->lent);
        m->lent = next;
    }
    (void)pthread_cond_destroy(&m->wake);
    (void)pthread_mutex_destroy(&m->lock);
    free(m);
}

/* ---- for the rest of the gateway ---- */

void gateway_mounts_look(struct gateway_mounts *m)
{
    (void)pthread_mutex_lock(&m->lock);
    m->look = true;
    (void)pthread_cond_broadcast(&m->wake);
    (void)pthread_mutex_unlock(&m->lock);
}

void gateway_mounts_lend(struct gateway_mounts *m, const char *key,
                         const struct volume_backend *backend)
{
    struct lent *l;

    (void)pthread_mutex_lock(&m->lock);
    l = lent_make(m, key);
    lent_drop(l);
    l->arena = arena_new();
    volume_backend_copy(backend, l->arena, &l->backend);
    l->serial++;
    l->again_ms = 0;
    (void)pthread_mutex_unlock(&m->lock);
    gateway_mounts_look(m);
}

bool gateway_mounts_have(struct gateway_mounts *m, const char *key)
{
    bool have;

    (void)pthread_mutex_lock(&m->lock);
    have = is_mounted(m, key);
    (void)pthread_mutex_unlock(&m->lock);
    return have;
}

void gateway_mounts_leave(struct gateway_mounts *m, const char *key)
{
    char its[VOLUME_KEY_MAX];

    (void)pthread_mutex_lock(&m->lock);
    for (struct served *s = m->served; s != NULL; s = s->next) {
        if (volume_mount_prefix(s->name, its) && strcmp(its, key) == 0)
            atomic_store(&s->give_up, true);
    }
    (void)pthread_mutex_unlock(&m->lock);
}

void gateway_mounts_failed(struct gateway_mounts *m, const char *key)
{
    (void)pthread_mutex_lock(&m->lock);
    if (is_mounted(m, key))
        lent_failed(lent_make(m, key));
    (void)pthread_mutex_unlock(&m->lock);
}

void gateway_mounts_begin(struct gateway_mounts *m, const char *key)
{
    (void)pthread_mutex_lock(&m->lock);
    lent_make(m, key)->deploys++;
    (void)pthread_mutex_unlock(&m->lock);
}

void gateway_mounts_end(struct gateway_mounts *m, const char *key)
{
    (void)pthread_mutex_lock(&m->lock);
    lent_make(m, key)->deploys--;
    (void)pthread_mutex_unlock(&m->lock);
}

bool gateway_mounts_begun(struct gateway_mounts *m, const char *key)
{
    const struct lent *l;
    bool begun;

    (void)pthread_mutex_lock(&m->lock);
    l = lent_find(m, key);
    begun = l != NULL && l->deploys > 0;
    (void)pthread_mutex_unlock(&m->lock);
    return begun;
}

json_t *gateway_mounts_wanting(struct gateway_mounts *m)
{
    json_t *list = json_array();
    int64_t now = time_mono_ms();

    (void)pthread_mutex_lock(&m->lock);
    for (const struct served *s = m->served;
         s != NULL && json_array_size(list) < SBX_GATEWAY_LIST_MAX; s = s->next) {
        char key[VOLUME_KEY_MAX];
        const struct lent *l;
        char *slash;
        json_t *j;

        if (!volume_mount_prefix(s->name, key))
            continue;
        l = lent_find(m, key);
        if (l != NULL && (l->backend.kind != VOLUME_NONE || now < l->again_ms))
            continue;
        slash = strchr(key, '/');
        *slash = 0;
        j = json_object();
        json_put_str(j, "accountId", key);
        json_put_str(j, "volumeName", slash + 1);
        (void)json_array_append_new(list, j);
    }
    (void)pthread_mutex_unlock(&m->lock);
    return list;
}

size_t gateway_mounts_dead(struct gateway_mounts *m)
{
    size_t n = 0;

    (void)pthread_mutex_lock(&m->lock);
    for (const struct served *s = m->served; s != NULL; s = s->next)
        n += s->dead;
    (void)pthread_mutex_unlock(&m->lock);
    return n;
}
