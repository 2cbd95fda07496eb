#include "base/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* Each block is twice the one before: ten thousand requests that wait keep their arenas. */
enum { BLOCK_FIRST = 1024, BLOCK_LAST = 8192, ALIGN = 16 };

struct block {
    struct block *next;
    size_t used;
    size_t size;
    _Alignas(16) unsigned char data[];
};

struct deferred {
    struct deferred *next;
    void (*fn)(void *);
    void *p;
};

struct arena {
    struct block *blocks;
    struct deferred *deferred;
};

struct arena *arena_new(void)
{
    return mem_zalloc(sizeof(struct arena));
}

void arena_free(struct arena *a)
{
    if (a == NULL)
        return;
    for (struct deferred *d = a->deferred; d != NULL; d = d->next)
        d->fn(d->p);
    for (struct block *b = a->blocks, *next; b != NULL; b = next) {
        next = b->next;
        free(b);
    }
    free(a);
}

void *arena_zalloc(struct arena *a, size_t size)
{
    size_t want = (size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    struct block *b = a->blocks;
    void *p;

    if (b == NULL || b->size - b->used < want) {
        size_t room = b == NULL ? BLOCK_FIRST : b->size < BLOCK_LAST / 2 ? 2 * b->size : BLOCK_LAST;

        if (room < want)
            room = want;
        b = mem_realloc(NULL, sizeof(*b) + room); /* what is not used is not touched */
        b->used = 0;
        b->size = room;
        b->next = a->blocks;
        a->blocks = b;
    }
    p = b->data + b->used;
    b->used += want;
    return memset(p, 0, want);
}

void *arena_memdup(struct arena *a, const void *p, size_t size)
{
    void *copy = arena_zalloc(a, size > 0 ? size : 1);

    if (size > 0)
        memcpy(copy, p, size);
    return copy;
}

char *arena_strndup(struct arena *a, const char *s, size_t len)
{
    char *copy = arena_zalloc(a, len + 1);

    if (len > 0)
        memcpy(copy, s, len);
    return copy;
}

char *arena_strdup(struct arena *a, const char *s)
{
    return s != NULL ? arena_strndup(a, s, strlen(s)) : NULL;
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    char *text = NULL;
    char *copy;
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0)
        abort();
    va_end(ap);
    copy = arena_strdup(a, text);
    free(text);
    return copy;
}

void arena_defer(struct arena *a, void (*fn)(void *), void *p)
{
    struct deferred *d = arena_zalloc(a, sizeof(*d));

    d->fn = fn;
    d->p = p;
    d->next = a->deferred;
    a->deferred = d;
}
