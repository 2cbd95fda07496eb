#ifndef REGION_GITHUB_H
#define REGION_GITHUB_H

/* The repository recheck of personal runs (contract 6): GitHub says, with the owner's
 * credential, that the repository is private and the owner may push.
 * `GET /repos/{owner}/{repo}`; one question, no state. */

#include <stdbool.h>

#include "base/secret.h"
#include "net/net.h"
#include "sbx/error.h"

enum {
    GITHUB_TIMEOUT_MS = 10000, /* in all, redirects included */
    GITHUB_REDIRECTS_MAX = 3,  /* a renamed repository answers 301; same host only */
    GITHUB_ANSWER_MAX = 256 * 1024,
    GITHUB_REPOSITORY_MAX = 200, /* bytes of "owner/name" */
};

/* "owner/name": each part 1 or more of [A-Za-z0-9._-], neither "." nor "..". */
bool github_repository_valid(const char *repository);

/* What an answer means.  Pure.
 * SBX_OK: private, the owner may push.
 * SBX_E_REPOSITORY_NOT_PRIVATE: anything but `private: true`.
 * SBX_E_REPOSITORY_NO_PUSH: no push permission, archived, no permissions told, 404, another 403.
 * SBX_E_GITHUB_CREDENTIAL: 401.
 * SBX_E_UNAVAILABLE: rate limits (429, or 403 with Retry-After or no calls remaining), 5xx, an
 * answer that cannot be read: nothing may change, the caller may try again. */
MUST_USE enum sbx_code github_judge(const struct net_answer *answer, struct sbx_err *err);

/* Ends exactly once, on the calls thread: must not block.  err is NULL for SBX_OK. */
typedef void github_done_fn(void *arg, const struct sbx_err *err);

/* Any thread.  base_url has no trailing slash.  SBX_E_UNAVAILABLE, SBX_E_BUSY: nothing was sent and
 * done never runs. */
MUST_USE enum sbx_code github_check_start(struct net *n, const char *base_url, const char *ca_file,
                                          const char *repository, const struct secret *credential,
                                          github_done_fn *done, void *arg, struct sbx_err *err);

#endif
