#include "domain/slug.h"

#include <stdio.h>
#include <string.h>

void slug_from_name(const char *name, char out[SLUG_SIZE])
{
    size_t n = 0;

    for (const char *p = name; *p && n < SLUG_MAX; p++) {
        char c = *p;

        if (c >= 'A' && c <= 'Z')
            c = (char)(c - 'A' + 'a');
        if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))
            out[n++] = c;
        else if (n > 0 && out[n - 1] != '-')
            out[n++] = '-';
    }
    while (n > 0 && out[n - 1] == '-')
        n--;
    out[n] = '\0';
    if (n == 0)
        (void)snprintf(out, SLUG_SIZE, "template");
}

void slug_numbered(const char *stem, uint32_t n, char out[SLUG_SIZE])
{
    char tail[16] = "";
    int keep;

    if (n > 1)
        (void)snprintf(tail, sizeof(tail), "-%u", n);
    keep = SLUG_MAX - (int)strlen(tail);
    if ((int)strlen(stem) < keep)
        keep = (int)strlen(stem);
    if (tail[0])
        while (keep > 0 && stem[keep - 1] == '-')
            keep--;
    (void)snprintf(out, SLUG_SIZE, "%.*s%s", keep, stem, tail);
}
