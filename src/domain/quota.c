#include "domain/quota.h"

bool quota_counts(enum sandbox_status status, bool compute_held)
{
    if (sandbox_status_in(status, SANDBOX_BIT(SANDBOX_FAILED) | SANDBOX_BIT(SANDBOX_TERMINATING)))
        return compute_held;
    return sandbox_status_in(status, SANDBOX_SET_LIVE & ~SANDBOX_BIT(SANDBOX_SUSPENDED));
}

bool quota_admits(int64_t limit, int64_t active)
{
    return active < limit;
}
