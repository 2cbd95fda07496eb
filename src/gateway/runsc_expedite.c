#include "gateway/runsc_expedite.h"

#include <assert.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/scoped.h"

struct runsc_expedite {
    pthread_mutex_t lock;
    char *path, *lock_path;
    unsigned users;
    int held; /* the lock file under a shared lock; -1: not expedited */
};

static char value_of(const char *path)
{
    SCOPED_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    char c = 0;

    return fd >= 0 && read(fd, &c, 1) == 1 ? c : 0;
}

static bool set_value(const char *path, const char *value)
{
    SCOPED_FD int fd = open(path, O_WRONLY | O_CLOEXEC);

    return fd >= 0 && write(fd, value, 1) == 1;
}

/* The lock file holds a byte while the switch is on by our doing and not by the operator's. */
static bool marked(int fd)
{
    char c;

    return pread(fd, &c, 1, 0) == 1;
}

static void switch_on(struct runsc_expedite *x)
{
    SCOPED_FD int fd = open(x->lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    /* Not to be had: somebody is putting the switch back, and one start goes without it. */
    if (fd < 0 || flock(fd, LOCK_SH | LOCK_NB) < 0)
        return;
    if (value_of(x->path) == '0' && (pwrite(fd, "1", 1, 0) != 1 || !set_value(x->path, "1")))
        return;
    x->held = fd_steal(&fd);
}

static void switch_off(struct runsc_expedite *x)
{
    /* A lock that cannot be raised is given up in the attempt: flock(2). */
    if (flock(x->held, LOCK_EX | LOCK_NB) == 0) {
        if (marked(x->held) && set_value(x->path, "0"))
            (void)!ftruncate(x->held, 0);
        (void)flock(x->held, LOCK_UN); /* a child on its way to exec may hold the file, too */
    }
    fd_close(&x->held);
}

struct runsc_expedite *runsc_expedite_open(const char *path, const char *lock_path)
{
    struct runsc_expedite *x;

    if (access(path, W_OK) < 0)
        return NULL;
    x = mem_zalloc(sizeof(*x));
    x->held = -1;
    x->path = mem_strdup(path);
    x->lock_path = mem_strdup(lock_path);
    (void)pthread_mutex_init(&x->lock, NULL);
    runsc_expedite_begin(x);
    runsc_expedite_end(x);
    return x;
}

void runsc_expedite_close(struct runsc_expedite *x)
{
    if (x == NULL)
        return;
    assert(x->users == 0);
    free(x->path);
    free(x->lock_path);
    (void)pthread_mutex_destroy(&x->lock);
    free(x);
}

void runsc_expedite_begin(struct runsc_expedite *x)
{
    if (x == NULL)
        return;
    (void)pthread_mutex_lock(&x->lock);
    if (x->users++ == 0)
        switch_on(x);
    (void)pthread_mutex_unlock(&x->lock);
}

void runsc_expedite_end(struct runsc_expedite *x)
{
    if (x == NULL)
        return;
    (void)pthread_mutex_lock(&x->lock);
    assert(x->users > 0);
    if (--x->users == 0 && x->held >= 0)
        switch_off(x);
    (void)pthread_mutex_unlock(&x->lock);
}
