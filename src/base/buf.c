#include "base/buf.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

char *buf_reserve(struct buf *b, size_t len)
{
    assert(b->max > 0);
    if (b->full || len > b->max || b->len > b->max - len) {
        b->full = true;
        return NULL;
    }
    if (b->data == NULL || b->cap - b->len < len) {
        size_t cap = b->cap > 0 ? b->cap : 256;

        while (cap < b->len + len)
            cap *= 2;
        if (cap > b->max)
            cap = b->max;
        b->data = mem_realloc(b->data, cap + 1);
        b->cap = cap;
        b->data[b->len] = 0;
    }
    return b->data + b->len;
}

bool buf_append(struct buf *b, const void *data, size_t len)
{
    char *to = buf_reserve(b, len);

    if (to == NULL)
        return false;
    if (len > 0)
        memcpy(to, data, len);
    b->len += len;
    b->data[b->len] = 0;
    return true;
}

bool buf_puts(struct buf *b, const char *s)
{
    return buf_append(b, s, strlen(s));
}

bool buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    int n;
    char *to;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    assert(n >= 0);
    to = buf_reserve(b, (size_t)n);
    if (to == NULL)
        return false;
    va_start(ap, fmt);
    (void)vsnprintf(to, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
    return true;
}

void buf_consume(struct buf *b, size_t len)
{
    assert(len <= b->len);
    if (len == 0)
        return;
    memmove(b->data, b->data + len, b->len - len);
    b->len -= len;
    b->data[b->len] = 0;
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    b->full = false;
    if (b->data != NULL)
        b->data[0] = 0;
}

void buf_fini(struct buf *b)
{
    free(b->data);
    *b = (struct buf){ .max = b->max };
}

char *buf_take(struct buf *b)
{
    char *data = b->data != NULL ? b->data : mem_zalloc(1);

    *b = (struct buf){ .max = b->max };
    return data;
}
