#ifndef BASE_THREAD_H
#define BASE_THREAD_H

/* A named thread with an owner.  All signals are blocked in it: main handles them. */

#include <pthread.h>
#include <stdbool.h>

#include "sbx/error.h"

struct thread {
    pthread_t id;
    bool started;
};

MUST_USE enum sbx_code thread_start(struct thread *t, const char *name /* at most 15 characters */,
                                    void (*fn)(void *), void *arg, struct sbx_err *err);
void thread_join(struct thread *t); /* a thread that was not started is fine */

#endif
