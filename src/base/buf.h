#ifndef BASE_BUF_H
#define BASE_BUF_H

/* A growing byte buffer with a ceiling.  An append past the ceiling appends
 * nothing and sets `full`; a zeroed buffer with `max` set is valid.
 * `data` is always followed by a NUL that `len` does not count. */

#include <stdbool.h>
#include <stddef.h>

#include "sbx/attr.h"

struct buf {
    char *data;
    size_t len;
    size_t cap;
    size_t max; /* bytes, must be set */
    bool full;  /* an append did not fit */
};

#define BUF_INIT(max_)                                                                             \
    {                                                                                              \
        .max = (max_)                                                                              \
    }

bool buf_append(struct buf *b, const void *data, size_t len);
bool buf_puts(struct buf *b, const char *s);
bool buf_printf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Room for len more bytes at data + len; NULL past the ceiling.  Add to b->len what was written. */
char *buf_reserve(struct buf *b, size_t len);
void buf_consume(struct buf *b, size_t len); /* drops the first len bytes */
void buf_clear(struct buf *b);               /* keeps the memory */
void buf_fini(struct buf *b);
char *
buf_take(struct buf *b); /* the bytes, NUL-ended, to be freed by the caller; b is empty after */
#define SCOPED_BUF SCOPED(buf_fini)

#endif
