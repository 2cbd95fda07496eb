#ifndef BASE_ARENA_H
#define BASE_ARENA_H

/* A region that is freed all at once: one for each request, one for each
 * reconcile pass.  Pointers into it never outlive it and never cross threads.
 * Allocation never returns NULL: the process ends when memory runs out. */

#include <stdarg.h>
#include <stddef.h>

#include "sbx/attr.h"

struct arena;

struct arena *arena_new(void);
void arena_free(struct arena *a); /* NULL is allowed */
static inline void arena_free_p(struct arena **a)
{
    arena_free(*a);
}
#define SCOPED_ARENA SCOPED(arena_free_p)

void *arena_zalloc(struct arena *a, size_t size);
void *arena_memdup(struct arena *a, const void *p, size_t size);
char *arena_strdup(struct arena *a, const char *s); /* NULL gives NULL */
char *arena_strndup(struct arena *a, const char *s, size_t len);
char *arena_printf(struct arena *a, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Runs fn(p) when the arena is freed, last registered first. */
void arena_defer(struct arena *a, void (*fn)(void *), void *p);

#endif
