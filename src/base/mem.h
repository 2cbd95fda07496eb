#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stddef.h>

#include "sbx/attr.h"

/* Allocation that never returns NULL: the process ends when memory runs out.
 * What is bounded elsewhere cannot exhaust it; what is not is a bug. */
void *mem_zalloc(size_t size);
void *mem_realloc(void *p, size_t size);
char *mem_strdup(const char *s);
char *mem_printf(const char *fmt, ...) PRINTF_LIKE(1, 2);

#endif
