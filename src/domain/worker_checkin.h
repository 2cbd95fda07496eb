#ifndef DOMAIN_WORKER_CHECKIN_H
#define DOMAIN_WORKER_CHECKIN_H

/* The worker check-in (live.agent_sandbox.register, contract 7): what is a good id, which
 * capability grants, which isolation is enough, who is healthy.  Pure; any thread. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WORKER_HEALTHY_MS = 60000, /* since the last check-in; 60.000 s is healthy */
    WORKER_ID_MAX = 64,
    WORKER_VERSION_MAX = 64, /* characters */
    WORKER_STREAM_ID_MAX = 64,
    WORKER_TOKEN_SKEW_S = 30,
    WORKER_TOKEN_JTI_MIN = 8, /* characters */
};

#define WORKER_CAPABILITY "live.agent_sandbox.register"
#define WORKER_AUDIENCE   "openvibe.live"

bool worker_id_valid(const char *text);        /* 1-64 of [A-Za-z0-9._-] */
bool worker_stream_id_valid(const char *text); /* 1-64 of [A-Za-z0-9_-] */
bool worker_subject_valid(const char *text);   /* usr_<ULID>, upper case */

/* The exact id, or a trailing ".*" of its prefix; a bare "*" never. */
bool worker_capability_grants(const char *cap);

/* Whole seconds. False: expired, or issued or valid more than 30 s in the future. not_before is
 * INT64_MIN when the token has none. */
bool worker_token_in_time(int64_t now_s, int64_t issued, int64_t expires, int64_t not_before);

struct worker_isolation {
    bool host_network;
    bool credentials;
    bool profile;
    bool egress_proxy;
    const char *workspace;
};
enum { WORKER_ISOLATION_KEYS = 5 };
/* The keys whose value is not the one wanted, in this order; how many. */
size_t worker_isolation_refused(const struct worker_isolation *i,
                                const char *keys[WORKER_ISOLATION_KEYS]);
/* The five keys in order; all but the last are booleans. */
extern const char *const WORKER_ISOLATION_NAMES[WORKER_ISOLATION_KEYS];

/* By the receiver's clock, when it is read; a time in the future is not healthy. */
bool worker_healthy(int64_t last_check_in_ms, int64_t now_ms);

#endif
