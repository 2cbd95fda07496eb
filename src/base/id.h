#ifndef BASE_ID_H
#define BASE_ID_H

/* Ids: a UUIDv7's 128 bits (RFC 9562) as 26 lower-case Crockford base32 characters. */

#include <stdbool.h>

#include "sbx/limits.h"

enum { ID_SIZE = SBX_ID_LEN + 1 };

/* A new id; ids of one process are strictly increasing. Any thread. */
void id_new(char out[ID_SIZE]);
/* 26 characters of the alphabet (no i, l, o, u), the first at most '7'. */
bool id_valid(const char *text);

#endif
