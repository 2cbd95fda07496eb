#include "api/options.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "sbx/attr.h"

/* clang-format off */
const struct config_option API_OPTIONS[] = {
    /* Listeners */
    { "listen", "address", CONFIG_STR, "127.0.0.1", 0, 0, false, "Address of the public listener" },
    { "listen", "port", CONFIG_INT, "8080", 0, 65535, false, "Port of the public listener; 0: any free one" },
    { "listen", "port_file", CONFIG_STR, "", 0, 0, false, "A file that receives the port once it listens" },
    { "listen", "tls_cert_file", CONFIG_STR, "", 0, 0, false, "PEM certificate chain; empty: no TLS. SIGHUP reads the file again" },
    { "listen", "tls_key_file", CONFIG_STR, "", 0, 0, false, "PEM key of the certificate. SIGHUP reads the file again" },
    { "listen", "threads", CONFIG_INT, "1", 1, 8, false, "HTTP threads of the public listener" },
    { "listen", "connections_max", CONFIG_INT, "10240", 16, 1000000, false, "Connections of each listener" },
    { "listen", "connections_per_ip", CONFIG_INT, "0", 0, 1000000, false, "Connections of one address; 0: no limit of its own" },
    { "listen", "cors_origins", CONFIG_LIST, "", 0, 0, false, "Origins that browsers may call from; empty: CORS is off" },
    { "admin", "socket", CONFIG_STR, "/run/sandboxd/admin.sock", 0, 0, false, "Unix socket of the admin listener" },
    { "admin", "socket_gid", CONFIG_INT, "0", 0, 4294967294, false, "Group that may connect to it beside our own user; 0: none" },
    { "admin", "uids", CONFIG_LIST, "", 0, 0, false, "Users, by number, that are operators beside root and our own" },
    { "admin", "spool_dir", CONFIG_STR, "/var/tmp", 0, 0, false, "Imported images wait here, in unnamed files" },

    /* Database */
    { "database", "url", CONFIG_STR, "", 0, 0, false, "PostgreSQL connection string or URI; without a password in it" },
    { "database", "url_file", CONFIG_SECRET_FILE, "", 0, 0, false, "A file that holds it instead, when it has a password" },
    { "database", "migrate", CONFIG_BOOL, "true", 0, 0, false, "Apply missing migrations at start" },
    { "database", "statement_timeout_ms", CONFIG_INT, "1500", 100, 60000, false, "Longest statement, milliseconds" },
    { "database", "connect_timeout_ms", CONFIG_INT, "1500", 100, 60000, false, "Longest connection attempt, milliseconds" },

    /* Work */
    { "work", "workers", CONFIG_INT, "8", 1, 128, false, "Threads that run handlers, each with a database connection" },
    { "work", "queue_max", CONFIG_INT, "1024", 1, 100000, false, "Requests that may wait for a worker; more: 503" },
    { "work", "deferred_max", CONFIG_INT, "20000", 1, 1000000, false, "Requests that may wait for a region; more: 503" },
    { "work", "output_budget_mb", CONFIG_INT, "256", 16, 65536, false, "Output of all executions in memory, MiB; past it a command is refused" },
    { "work", "body_budget_mb", CONFIG_INT, "256", 2, 65536, false, "Request bodies in memory, MiB; past it 503" },
    { "work", "drain_timeout_s", CONFIG_INT, "20", 0, 3600, true, "How long a stop waits for requests under way, seconds" },

    /* Security */
    { "seal", "keys_file", CONFIG_SECRET_FILE, "", 0, 0, true, "Keys that secrets are sealed with at rest: '<id> <64 hex digits>', newest first; the file is read again" },
    { "auth", "token_cache_max", CONFIG_INT, "8192", 8, 1000000, false, "Tokens kept in memory" },
    { "auth", "token_cache_s", CONFIG_INT, "30", 1, 3600, false, "Longest life of a kept token, seconds" },
    { "auth", "requests_per_s", CONFIG_INT, "0", 0, 1000000, true, "Requests a second of one token; 0: no limit" },
    { "auth", "requests_burst", CONFIG_INT, "0", 0, 1000000, true, "Requests at once of one token; 0: as many as a second has" },
    { "auth", "ca_file", CONFIG_STR, "", 0, 0, false, "Trust anchors beside the system's, for JWKS and regions" },

    /* Limits of what clients may ask for */
    { "limits", "idle_timeout_min_s", CONFIG_INT, "30", 1, 31536000, false, "Least idleTimeoutSeconds" },
    { "limits", "idle_timeout_max_s", CONFIG_INT, "86400", 1, 31536000, false, "Greatest idleTimeoutSeconds" },
    { "limits", "idle_timeout_s", CONFIG_INT, "1800", 1, 31536000, false, "Default idleTimeoutSeconds" },
    { "limits", "hard_lifetime_min_s", CONFIG_INT, "60", 1, 31536000, false, "Least hardLifetimeSeconds" },
    { "limits", "hard_lifetime_max_s", CONFIG_INT, "2592000", 1, 31536000, false, "Greatest hardLifetimeSeconds" },
    { "limits", "hard_lifetime_s", CONFIG_INT, "3600", 1, 31536000, false, "Default hardLifetimeSeconds" },
    { "limits", "suspended_retention_min_s", CONFIG_INT, "60", 1, 31536000, false, "Least suspendedRetentionSeconds" },
    { "limits", "suspended_retention_max_s", CONFIG_INT, "7776000", 1, 31536000, false, "Greatest suspendedRetentionSeconds" },
    { "limits", "suspended_retention_s", CONFIG_INT, "604800", 1, 31536000, false, "Default suspendedRetentionSeconds" },
    { "limits", "output_max", CONFIG_INT, "4194304", 1024, 67108864, false, "Bytes kept of one output stream of a command" },
    { "limits", "account_requests", CONFIG_INT, "0", 0, 1000000, true, "Requests of one account under way at once, commands included; more: 429; 0: no limit" },
    { "limits", "account_templates", CONFIG_INT, "1000", 0, 1000000, false, "Templates of an account, deprecated ones too; more: 409; 0: no limit" },
    { "limits", "template_revisions", CONFIG_INT, "10000", 0, 1000000, false, "Revisions of a template; more: 409; 0: no limit" },
    { "limits", "account_volumes", CONFIG_INT, "10000", 0, 1000000, false, "Shared volumes of an account, those made for sandboxes and those pending purge too; past it none is made by name: 409; 0: no limit" },
    { "limits", "terminate_wait_s", CONFIG_INT, "30", 1, 300, false, "How long a terminate waits for the region, seconds" },

    /* Sandboxes */
    { "sandboxes", "allocating_s", CONFIG_INT, "360", 1, 86400, false, "Deadline of ALLOCATING, seconds" },
    { "sandboxes", "starting_s", CONFIG_INT, "300", 1, 86400, false, "Deadline of STARTING, seconds" },
    { "sandboxes", "suspending_s", CONFIG_INT, "960", 1, 86400, false, "Deadline of SUSPENDING, seconds" },
    { "sandboxes", "resuming_s", CONFIG_INT, "360", 1, 86400, false, "Deadline of RESUMING, seconds" },
    { "sandboxes", "failed_retention_s", CONFIG_INT, "3600", 1, 31536000, false, "How long a FAILED sandbox stays before it is TERMINATED, seconds" },
    { "sandboxes", "backoff_first_ms", CONFIG_INT, "250", 10, 60000, false, "First retry of a region call, milliseconds" },
    { "sandboxes", "backoff_max_ms", CONFIG_INT, "30000", 10, 3600000, false, "Longest wait between two tries, milliseconds" },
    { "sandboxes", "lease_ms", CONFIG_INT, "15000", 500, 600000, false, "A dead control plane's rows are taken over after it, milliseconds" },
    { "sandboxes", "poll_ms", CONFIG_INT, "1000", 20, 60000, false, "At least so often the due rows are looked at, milliseconds" },
    { "sandboxes", "region_sweep_ms", CONFIG_INT, "60000", 100, 86400000, false, "Both-ways reconciliation of every region, milliseconds" },
    { "sandboxes", "execution_grace_ms", CONFIG_INT, "60000", 1000, 3600000, false, "Past its deadline an execution is settled by asking, milliseconds" },
    { "sandboxes", "disk_mb", CONFIG_INT, "10240", 16, 10485760, false, "Local disk of a sandbox, MiB" },
    { "sandboxes", "warm_total_max", CONFIG_INT, "20", 0, 100000, false, "Warm members of all pools together; 0: none are kept" },
    { "runs", "process_secret_file", CONFIG_SECRET_FILE, "", 0, 0, false, "Credential of the regions' process path; without it personal runs do not start" },
    { "github", "url", CONFIG_STR, "https://api.github.com", 0, 0, false, "Base URL of GitHub's API" },
    { "github", "ca_file", CONFIG_STR, "", 0, 0, false, "Trust anchors for it instead of the system's" },
    { "openvibe", "issuer", CONFIG_STR, "https://openvibe.network", 0, 0, false, "iss of the service tokens of worker check-ins" },
    { "openvibe", "keys_file", CONFIG_STR, "", 0, 0, false, "JWKS or PEM file with that issuer's public keys" },
    { "openvibe", "jwks_url", CONFIG_STR, "", 0, 0, false, "Or where they are; neither: worker check-ins are off" },
    { "volumes", "purge_delay_s", CONFIG_INT, "604800", 1, 31536000, false, "A removed volume stays restorable so long, seconds" },
    { "audit", "keep_days", CONFIG_INT, "30", 1, 36500, true, "Audit rows and the history of ended sandboxes, days" },
    { "log", "level", CONFIG_STR, "info", 0, 0, true, "debug, info, warn or error" },
    { "log", "access", CONFIG_BOOL, "true", 0, 0, true, "One line at the end of each request" },
};
/* clang-format on */
const size_t API_OPTION_COUNT = COUNT_OF(API_OPTIONS);

static const char *const BOUND_KEYS[API_BOUND_COUNT] = {
    [API_BOUND_IDLE] = "idle_timeout",
    [API_BOUND_HARD] = "hard_lifetime",
    [API_BOUND_RETENTION] = "suspended_retention",
};

static int64_t value(const struct config *c, const char *key)
{
    int64_t v = 0;

    if (c != NULL)
        return config_int(c, "limits", key);
    for (size_t i = 0; i < API_OPTION_COUNT; i++) {
        const struct config_option *o = &API_OPTIONS[i];

        if (strcmp(o->section, "limits") == 0 && strcmp(o->key, key) == 0)
            assert(str_parse_int(o->dflt, o->min, o->max, &v));
    }
    return v;
}

void api_bounds_from(const struct config *c, struct api_bounds *out)
{
    char key[64];

    *out = (struct api_bounds){ 0 };
    for (int b = API_BOUND_NONE + 1; b < API_BOUND_COUNT; b++) {
        (void)snprintf(key, sizeof(key), "%s_min_s", BOUND_KEYS[b]);
        out->of[b].min = value(c, key);
        (void)snprintf(key, sizeof(key), "%s_max_s", BOUND_KEYS[b]);
        out->of[b].max = value(c, key);
        (void)snprintf(key, sizeof(key), "%s_s", BOUND_KEYS[b]);
        out->of[b].dflt = value(c, key);
    }
}

void api_bounds_default(struct api_bounds *out)
{
    api_bounds_from(NULL, out);
}
