#ifndef BASE_TIME_H
#define BASE_TIME_H

/* Two clocks.  Deadlines inside one process use the monotonic one.  What decides
 * anything about a sandbox is the database's clock (contract 1); the wall clock
 * here serves log lines and token checks only. */

#include <stdbool.h>
#include <stdint.h>

enum { TIME_ISO_SIZE = 25 }; /* "2026-08-07T13:00:00.000Z" and NUL */

int64_t time_mono_ms(void);
int64_t time_unix_ms(void);
/* ISO 8601 UTC with milliseconds and Z. */
void time_iso(int64_t unix_ms, char out[TIME_ISO_SIZE]);
/* Reads what time_iso writes. */
bool time_iso_parse(const char *text, int64_t *unix_ms);

#endif
