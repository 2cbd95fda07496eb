#ifndef DOMAIN_SLUG_H
#define DOMAIN_SLUG_H

/* A template's slug (contract 2): lower case, ASCII letters, digits and single
 * hyphens, at most 63.  What gives no letter or digit becomes "template". Pure. */

#include <stdint.h>

enum { SLUG_MAX = 63, SLUG_SIZE = SLUG_MAX + 1 };

void slug_from_name(const char *name, char out[SLUG_SIZE]);
/* The n-th slug of that stem: the stem itself for n <= 1, else "stem-n", cut so that it fits. */
void slug_numbered(const char *stem, uint32_t n, char out[SLUG_SIZE]);

#endif
