#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "gateway/runsc.h"

enum { EVENTS = 64 };

static bool has_ended(const struct runsc_box *box)
{
    struct pollfd p = { .fd = box->shim.pidfd, .events = POLLIN };

    return box->shim.pid > 0 && poll(&p, 1, 0) > 0;
}

/* Marks the box of that descriptor as dead and reaps its shim; its id in out.  Descriptors are
 * reused, so the box is asked itself whether it has ended. */
static bool settle_one(struct runsc *r, int pidfd, char out[ID_SIZE])
{
    bool found = false;

    (void)pthread_mutex_lock(&r->lock);
    ID_MAP_EACH(&r->boxes, slot)
    {
        struct runsc_box *box = slot->value;

        if (box->shim.pidfd != pidfd || !has_ended(box))
            continue;
        (void)epoll_ctl(r->epoll, EPOLL_CTL_DEL, pidfd, NULL);
        process_end(&box->shim); /* it has ended: this reaps */
        found = box->alive;
        box->alive = false;
        (void)str_copy(out, ID_SIZE, box->id);
        break;
    }
    (void)pthread_mutex_unlock(&r->lock);
    return found;
}

static void watch(void *arg)
{
    struct runsc *r = arg;

    for (;;) {
        struct epoll_event events[EVENTS];
        int n = epoll_wait(r->epoll, events, EVENTS, -1);

        for (int i = 0; i < n; i++) {
            char id[ID_SIZE];

            if (events[i].data.fd == r->wake)
                return;
            if (settle_one(r, events[i].data.fd, id))
                r->events.exited(r->events.arg, id);
        }
    }
}

enum sbx_code runsc_watch_open(struct runsc *r, struct sbx_err *err)
{
    struct epoll_event e = { .events = EPOLLIN };

    r->epoll = epoll_create1(EPOLL_CLOEXEC);
    r->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    e.data.fd = r->wake;
    if (r->epoll < 0 || r->wake < 0 || epoll_ctl(r->epoll, EPOLL_CTL_ADD, r->wake, &e) < 0)
        return err_sys(err, SBX_E_INTERNAL, "watch sandboxes");
    return thread_start(&r->watcher, "runsc-watch", watch, r, err);
}

void runsc_watch_close(struct runsc *r)
{
    const uint64_t one = 1;

    if (r->watcher.started)
        (void)!write(r->wake, &one, sizeof(one));
    thread_join(&r->watcher);
    ID_MAP_EACH(&r->boxes, slot)
    {
        struct runsc_box *box = slot->value;

        fd_close(&box->shim.pidfd); /* it runs on, and will be found again by its folder */
        free(box);
    }
    id_map_fini(&r->boxes);
    fd_close(&r->epoll);
    fd_close(&r->wake);
}

enum sbx_code runsc_watch_add(struct runsc *r, const char *id, struct process *shim,
                              struct sbx_err *err)
{
    struct runsc_box *box = mem_zalloc(sizeof(*box));
    struct epoll_event e = { .events = EPOLLIN, .data.fd = shim->pidfd };
    enum sbx_code code = SBX_OK;

    (void)str_copy(box->id, sizeof(box->id), id);
    box->shim = *shim;
    box->alive = true;
    (void)pthread_mutex_lock(&r->lock);
    assert(id_map_get(&r->boxes, id) == NULL);
    if (epoll_ctl(r->epoll, EPOLL_CTL_ADD, shim->pidfd, &e) < 0)
        code = err_sys(err, SBX_E_INTERNAL, "watch a sandbox");
    else
        id_map_put(&r->boxes, id, box);
    (void)pthread_mutex_unlock(&r->lock);
    if (code != SBX_OK)
        free(box);
    else
        *shim = (struct process){ .pidfd = -1 };
    return code;
}

void runsc_watch_take(struct runsc *r, const char *id, struct process *out)
{
    struct runsc_box *box;

    *out = (struct process){ .pidfd = -1 };
    (void)pthread_mutex_lock(&r->lock);
    box = id_map_remove(&r->boxes, id);
    if (box != NULL && box->shim.pid > 0) {
        (void)epoll_ctl(r->epoll, EPOLL_CTL_DEL, box->shim.pidfd, NULL);
        *out = box->shim;
    }
    (void)pthread_mutex_unlock(&r->lock);
    free(box);
}

bool runsc_watch_alive(struct runsc *r, const char *id, bool *alive)
{
    struct runsc_box *box;

    (void)pthread_mutex_lock(&r->lock);
    box = id_map_get(&r->boxes, id);
    *alive = box != NULL && box->alive;
    (void)pthread_mutex_unlock(&r->lock);
    return box != NULL;
}
