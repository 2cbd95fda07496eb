#ifndef BASE_QUEUE_H
#define BASE_QUEUE_H

/* A bounded queue of pointers between threads.  Closing lets takers drain it. */

#include <stdbool.h>
#include <stddef.h>

struct queue;

struct queue *queue_new(size_t max);
void queue_free(struct queue *q); /* must be empty and without waiters; NULL is allowed */
/* False when the queue is full or closed: the item stays the caller's. */
bool queue_put(struct queue *q, void *item);
/* As queue_put, and also past max: for work that was already admitted. False only when closed. */
bool queue_put_admitted(struct queue *q, void *item);
/* Waits; NULL once the queue is closed and empty. */
void *queue_take(struct queue *q);
void queue_close(struct queue *q);
size_t queue_depth(struct queue *q);

#endif
