#ifndef DOMAIN_QUOTA_H
#define DOMAIN_QUOTA_H

/* The active-sandbox quota of an account (contract 3). Pure. */

#include <stdbool.h>
#include <stdint.h>

#include "domain/sandbox_state.h"

/* Does this row take a place?  `compute_held` is false from the moment the region has
 * confirmed that nothing of it is left (FAILED and TERMINATING rows count until then).
 * Warm, unclaimed sandboxes have no row of this kind and never count. */
bool quota_counts(enum sandbox_status status, bool compute_held);

/* May one more be admitted beside `active` ones? */
bool quota_admits(int64_t limit, int64_t active);

#endif
