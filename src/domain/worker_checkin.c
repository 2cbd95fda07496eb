#include "domain/worker_checkin.h"

#include <string.h>

#include "base/str.h"

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
#define DIGITS  "0123456789"

static bool consists_of(const char *text, const char *set, size_t max)
{
    size_t len = strspn(text, set);

    return len >= 1 && len <= max && text[len] == '\0';
}

bool worker_id_valid(const char *text)
{
    return consists_of(text, LETTERS DIGITS "._-", WORKER_ID_MAX);
}

bool worker_stream_id_valid(const char *text)
{
    return consists_of(text, LETTERS DIGITS "_-", WORKER_STREAM_ID_MAX);
}

bool worker_subject_valid(const char *text)
{
    enum { ULID_LEN = 26 };

    if (!str_starts(text, "usr_"))
        return false;
    text += 4;
    return strlen(text) == ULID_LEN && text[0] <= '7' &&
           strspn(text, DIGITS "ABCDEFGHJKMNPQRSTVWXYZ") == ULID_LEN;
}

bool worker_capability_grants(const char *cap)
{
    size_t len = strlen(cap);

    if (strcmp(cap, WORKER_CAPABILITY) == 0)
        return true;
    /* "live.*": the dot stays part of the prefix, so that no word is cut in the middle */
    return len > 2 && strcmp(cap + len - 2, ".*") == 0 &&
           strncmp(cap, WORKER_CAPABILITY, len - 1) == 0;
}

bool worker_token_in_time(int64_t now_s, int64_t issued, int64_t expires, int64_t not_before)
{
    int64_t ahead = now_s + WORKER_TOKEN_SKEW_S;

    return expires >= now_s - WORKER_TOKEN_SKEW_S && issued <= ahead && not_before <= ahead;
}

const char *const WORKER_ISOLATION_NAMES[WORKER_ISOLATION_KEYS] = {
    "host_network", "credentials", "profile", "egress_proxy", "workspace",
};

size_t worker_isolation_refused(const struct worker_isolation *i,
                                const char *keys[WORKER_ISOLATION_KEYS])
{
    const bool good[WORKER_ISOLATION_KEYS] = { !i->host_network, !i->credentials, !i->profile,
                                               i->egress_proxy,
                                               strcmp(i->workspace, "ephemeral") == 0 };
    size_t n = 0;

    for (size_t k = 0; k < WORKER_ISOLATION_KEYS; k++) {
        if (!good[k])
            keys[n++] = WORKER_ISOLATION_NAMES[k];
    }
    return n;
}

bool worker_healthy(int64_t last_check_in_ms, int64_t now_ms)
{
    return last_check_in_ms <= now_ms && now_ms - last_check_in_ms <= WORKER_HEALTHY_MS;
}
