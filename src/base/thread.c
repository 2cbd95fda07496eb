#include "base/thread.h"

#include <signal.h>
#include <stdlib.h>

#include "base/mem.h"

struct boot {
    void (*fn)(void *);
    void *arg;
};

static void *enter(void *p)
{
    struct boot boot = *(struct boot *)p;

    free(p);
    boot.fn(boot.arg);
    return NULL;
}

enum sbx_code thread_start(struct thread *t, const char *name, void (*fn)(void *), void *arg,
                           struct sbx_err *err)
{
    struct boot *boot = mem_zalloc(sizeof(*boot));
    sigset_t all, old;
    int rc;

    *boot = (struct boot){ fn, arg };
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&t->id, NULL, enter, boot);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0) {
        free(boot);
        errno = rc;
        return err_sys(err, SBX_E_INTERNAL, "start thread %s", name);
    }
    (void)pthread_setname_np(t->id, name);
    t->started = true;
    return SBX_OK;
}

void thread_join(struct thread *t)
{
    if (t->started)
        (void)pthread_join(t->id, NULL);
    t->started = false;
}
