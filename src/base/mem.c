#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *checked(void *p)
{
    if (p == NULL) {
        (void)fputs("out of memory\n", stderr);
        abort();
    }
    return p;
}

void *mem_zalloc(size_t size)
{
    return checked(calloc(1, size > 0 ? size : 1));
}

void *mem_realloc(void *p, size_t size)
{
    return checked(realloc(p, size > 0 ? size : 1));
}

char *mem_strdup(const char *s)
{
    return checked(strdup(s));
}

char *mem_printf(const char *fmt, ...)
{
    char *s = NULL;
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&s, fmt, ap) < 0)
        s = NULL;
    va_end(ap);
    return checked(s);
}
