#ifndef API_BUSY_H
#define API_BUSY_H

/* How many requests of one account may be under way at once, commands that run included: one
 * tenant's burst does not take the workers and waiting places of all. Any thread. */

#include "base/arena.h"
#include "sbx/error.h"

struct api_busy;

struct api_busy *api_busy_new(int max); /* 0: no limit */
void api_busy_free(struct api_busy *b); /* no request may be under way; NULL is allowed */
void api_busy_limit(struct api_busy *b, int max); /* for requests from now on */
/* Counts one until the request's arena ends. SBX_E_RATE_LIMITED. */
MUST_USE enum sbx_code api_busy_enter(struct api_busy *b, const char *account_id,
                                      struct arena *request, struct sbx_err *err);

#endif
