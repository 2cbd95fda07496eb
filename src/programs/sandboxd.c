#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "api/api.h"
#include "api/options.h"
#include "base/config.h"
#include "base/file.h"
#include "base/log.h"
#include "base/notify.h"
#include "base/process.h"
#include "base/scoped.h"
#include "base/seal.h"
#include "base/secret.h"
#include "base/str.h"
#include "domain/sandbox_moves.h"
#include "http/server.h"
#include "net/net.h"
#include "programs/standalone.h"
#include "reconcile/reconcile.h"
#include "reconcile/runs.h"
#include "sbx/version.h"

/* sandboxd: the control plane.  Wiring only: configuration, the parts in their order,
 * signals, and the shutdown in the opposite order. */

enum {
    SECRET_FILE_MAX = 64 * 1024,
    PRINT_MAX = 4 * 1024 * 1024,
    ADMIN_UIDS_MAX = 64,
    MIGRATE_RETRY_MS = 500,
    MIGRATE_BUDGET_MS = 10 * 60 * 1000,
    RECONCILE_DRAIN_MS = 5000,
    RESTART_MAX = 8192, /* bytes of the names of options that want a restart */
};

struct daemon {
    struct arena *a;
    struct config *config;
    struct seal_keys *keys;
    struct secret *process_secret;
    struct store_config store;
    struct metrics *metrics;
    struct net *net;
    struct gateway_client *gateways;
    struct store_waker *waker;
    struct reconcile *reconcile;
    struct reconcile_runs *runs;
    struct api *api;
    struct http_server *server;
    uid_t uids[ADMIN_UIDS_MAX];
    size_t uid_count;
    bool migrated;
};

/* ---- printing ---------------------------------------------------------- */

static void print_defaults(struct buf *out)
{
    config_print_defaults(API_OPTIONS, API_OPTION_COUNT, out);
}

static void print_openapi(struct buf *out)
{
    struct api_bounds bounds;

    api_bounds_default(&bounds);
    api_print_openapi(&bounds, out);
}

static void print_config_page(struct buf *out)
{
    config_print_page(API_OPTIONS, API_OPTION_COUNT, "sandboxd", "SANDBOXD", out);
}

static const struct {
    const char *flag;
    void (*print)(struct buf *out);
    const char *help;
} PRINTS[] = {
    { "--print-defaults", print_defaults, "config/sandboxd.conf: every option, commented" },
    { "--print-config-page", print_config_page, "docs/config.md" },
    { "--print-states", sandbox_moves_print, "docs/states.md" },
    { "--print-errors", api_print_errors, "docs/errors.md" },
    { "--print-openapi", print_openapi, "docs/openapi.json" },
};

static int print_buf(const struct buf *b)
{
    return fwrite(b->data, 1, b->len, stdout) == b->len && fflush(stdout) == 0 ? 0 : 1;
}

static int usage(void)
{
    printf("sandboxd " SBX_VERSION "\n\n"
           "  sandboxd --config FILE        run the control plane\n"
           "  sandboxd --standalone ...     run everything on this machine\n"
           "  sandboxd --check-config       read the configuration, say what is wrong\n"
           "  sandboxd --print-config       the configuration as it is read\n");
    for (size_t i = 0; i < COUNT_OF(PRINTS); i++)
        printf("  sandboxd %-20s %s\n", PRINTS[i].flag, PRINTS[i].help);
    printf("\nEvery option is also a flag (--section-key VALUE) and an environment variable\n"
           "(SANDBOXD_SECTION_KEY).\n");
    return 0;
}

/* ---- configuration ------------------------------------------------------ */

static const char *config_file_of(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--config") == 0 && i + 1 < argc)
            return argv[i + 1];
        if (str_starts(argv[i], "--config="))
            return argv[i] + strlen("--config=");
    }
    return NULL;
}

static enum sbx_code read_secret(struct daemon *d, const char *section, const char *key,
                                 struct secret **out, struct sbx_err *err)
{
    const char *path = config_str(d->config, section, key);
    char name[64];

    (void)snprintf(name, sizeof(name), "[%s] %s", section, key);
    return secret_read_file(path, name, SECRET_FILE_MAX, out, err);
}

static enum sbx_code read_database(struct daemon *d, struct sbx_err *err)
{
    SCOPED_SECRET struct secret *url = NULL;

    d->store.url = config_str(d->config, "database", "url");
    d->store.statement_timeout_ms = (int)config_int(d->config, "database", "statement_timeout_ms");
    d->store.connect_timeout_ms = (int)config_int(d->config, "database", "connect_timeout_ms");
    if (config_is_set(d->config, "database", "url_file")) {
        if (read_secret(d, "database", "url_file", &url, err) != SBX_OK)
            return err->code;
        d->store.url = arena_strdup(d->a, secret_reveal(url));
    }
    if (d->store.url[0] == '\0')
        return err_set(err, SBX_E_INVALID, "[database] url is not set");
    return SBX_OK;
}

static enum sbx_code read_uids(struct daemon *d, struct sbx_err *err)
{
    size_t count = 0;
    const char **list = config_list(d->config, "admin", "uids", d->a, &count);

    if (count > ADMIN_UIDS_MAX)
        return err_set(err, SBX_E_INVALID, "[admin] uids has more than %d users", ADMIN_UIDS_MAX);
    for (size_t i = 0; i < count; i++) {
        int64_t uid;

        if (!str_parse_int(list[i], 0, UINT32_MAX - 1, &uid))
            return err_set(err, SBX_E_INVALID, "[admin] uids: %s is not a number", list[i]);
        d->uids[d->uid_count++] = (uid_t)uid;
    }
    return SBX_OK;
}

static enum sbx_code read_config(struct daemon *d, int argc, char **argv, const char ***rest,
                                 struct sbx_err *err)
{
    return config_load(API_OPTIONS, API_OPTION_COUNT, "SANDBOXD", config_file_of(argc, argv), argc,
                       argv, d->a, rest, &d->config, err);
}

static enum sbx_code check_config(struct daemon *d, struct sbx_err *err)
{
    SCOPED_SECRET struct secret *keys = NULL;
    enum log_level level;

    if (!log_level_parse(config_str(d->config, "log", "level"), &level))
        return err_set(err, SBX_E_INVALID, "[log] level must be debug, info, warn or error");
    if (read_database(d, err) != SBX_OK || read_uids(d, err) != SBX_OK)
        return err->code;
    if (config_is_set(d->config, "seal", "keys_file")) {
        if (read_secret(d, "seal", "keys_file", &keys, err) != SBX_OK ||
            seal_keys_parse(secret_reveal(keys), &d->keys, err) != SBX_OK)
            return err->code;
    }
    if (config_is_set(d->config, "runs", "process_secret_file") &&
        read_secret(d, "runs", "process_secret_file", &d->process_secret, err) != SBX_OK)
        return err->code;
    return SBX_OK;
}

static const char *or_null(const char *text)
{
    return text[0] != '\0' ? text : NULL;
}

/* ---- the parts ---------------------------------------------------------- */

static enum sbx_code migrate(struct daemon *d, struct sbx_err *err)
{
    struct store_conn *db = store_conn_new(&d->store, "sandboxd-migrate");
    struct store_migrated done = { 0 };
    struct store_schema schema = { 0 };
    enum sbx_code code = SBX_OK;

    if (config_bool(d->config, "database", "migrate")) {
        store_conn_budget(db, MIGRATE_BUDGET_MS);
        code = store_migrate(db, STORE_MIGRATIONS, &done, err);
        if (code == SBX_OK && done.applied > 0)
            log_info("migrated", LOG_I("schema", done.schema), LOG_I("applied", done.applied));
    }
    if (code == SBX_OK)
        code = store_schema_check(db, &schema, err);
    if (code == SBX_OK && schema.have != schema.want)
        code = err_set(err, SBX_E_UNAVAILABLE, "the schema is %d, this program wants %d: migrate",
                       schema.have, schema.want);
    if (code == SBX_OK && schema.ahead > 0)
        log_info("a newer version has added to the schema", LOG_I("migrations", schema.ahead));
    if (code == SBX_OK && !schema.idempotency_index)
        log_error("the index that makes creates idempotent is missing: creates are refused");
    if (code == SBX_E_UNAVAILABLE)
        log_err(LOG_WARN, "the database is not ready", err,
                LOG_S("reason", store_conn_trouble(db)));
    store_conn_free(db);
    return code;
}

/* Tried at start and then until it is done; until then /readyz answers 503. A schema that this
 * program must not touch ends it. */
static enum sbx_code try_migrate(struct daemon *d, struct sbx_err *err)
{
    enum sbx_code code = migrate(d, err);

    d->migrated = code == SBX_OK;
    api_set_ready(d->api, d->migrated);
    if (code == SBX_E_UNAVAILABLE) {
        *err = (struct sbx_err){ 0 };
        return SBX_OK;
    }
    return code;
}

static void on_notice(void *arg, const struct store_notice *notice)
{
    api_notice(arg, notice);
}

static struct plan_times times_of(const struct config *c)
{
    return (struct plan_times){
        .allocating_s = config_int(c, "sandboxes", "allocating_s"),
        .starting_s = config_int(c, "sandboxes", "starting_s"),
        .suspending_s = config_int(c, "sandboxes", "suspending_s"),
        .resuming_s = config_int(c, "sandboxes", "resuming_s"),
        .failed_retention_s = config_int(c, "sandboxes", "failed_retention_s"),
        .backoff_first_ms = config_int(c, "sandboxes", "backoff_first_ms"),
        .backoff_max_ms = config_int(c, "sandboxes", "backoff_max_ms"),
    };
}

static int64_t trail_keep_ms(const struct config *c)
{
    return config_int(c, "audit", "keep_days") * 24 * 3600 * 1000;
}

static enum sbx_code start_reconcile(struct daemon *d, struct sbx_err *err)
{
    const struct config *c = d->config;
    const struct reconcile_config cfg = {
        .store = &d->store,
        .gateways = d->gateways,
        .keys = d->keys,
        .times = times_of(c),
        .lease_ms = config_int(c, "sandboxes", "lease_ms"),
        .poll_ms = config_int(c, "sandboxes", "poll_ms"),
        .region_sweep_ms = config_int(c, "sandboxes", "region_sweep_ms"),
        .execution_grace_ms = config_int(c, "sandboxes", "execution_grace_ms"),
        .warm_total_max = (int)config_int(c, "sandboxes", "warm_total_max"),
        .disk_mb = (int)config_int(c, "sandboxes", "disk_mb"),
        .trail_keep_ms = trail_keep_ms(c),
        .on_notice = on_notice,
        .notice_arg = d->api,
        .metrics = d->metrics,
    };

    if (reconcile_start(&cfg, &d->reconcile, err) != SBX_OK)
        return err->code;
    api_set_reconcile(d->api, d->reconcile);
    return SBX_OK;
}

static enum sbx_code start_runs(struct daemon *d, struct sbx_err *err)
{
    const struct reconcile_runs_config cfg = {
        .store = &d->store,
        .reconcile = d->reconcile,
        .gateways = d->gateways,
        .keys = d->keys,
        .process_secret = d->process_secret,
    };

    if (reconcile_runs_start(&cfg, &d->runs, err) != SBX_OK)
        return err->code;
    api_set_runs(d->api, d->runs);
    return SBX_OK;
}

static enum sbx_code start_api(struct daemon *d, struct sbx_err *err)
{
    const struct config *c = d->config;
    struct api_config cfg = {
        .store = d->store,
        .net = d->net,
        .gateway = d->gateways,
        .waker = d->waker,
        .seal = d->keys,
        .process_secret = d->process_secret,
        .github_url = config_str(c, "github", "url"),
        .github_ca_file = or_null(config_str(c, "github", "ca_file")),
        .metrics = d->metrics,
        .admin_uids = d->uids,
        .admin_uid_count = d->uid_count,
        .output_max = config_int(c, "limits", "output_max"),
        .purge_delay_ms = config_int(c, "volumes", "purge_delay_s") * 1000,
        .account_templates = (int)config_int(c, "limits", "account_templates"),
        .template_revisions = (int)config_int(c, "limits", "template_revisions"),
        .account_volumes = (int)config_int(c, "limits", "account_volumes"),
        .terminate_wait_ms = config_int(c, "limits", "terminate_wait_s") * 1000,
        .token_cache_max = (int)config_int(c, "auth", "token_cache_max"),
        .token_cache_s = (int)config_int(c, "auth", "token_cache_s"),
        .rate_per_s = (int)config_int(c, "auth", "requests_per_s"),
        .rate_burst = (int)config_int(c, "auth", "requests_burst"),
        .account_requests = (int)config_int(c, "limits", "account_requests"),
        .worker_issuer = config_str(c, "openvibe", "issuer"),
        .worker_keys_file = or_null(config_str(c, "openvibe", "keys_file")),
        .worker_keys_url = or_null(config_str(c, "openvibe", "jwks_url")),
        .spool_dir = config_str(c, "admin", "spool_dir"),
    };

    api_bounds_from(c, &cfg.bounds);
    return api_new(&cfg, &d->api, err);
}

static enum sbx_code start_server(struct daemon *d, struct sbx_err *err)
{
    const struct config *c = d->config;
    size_t origin_count = 0;
    const char **origins = config_list(c, "listen", "cors_origins", d->a, &origin_count);
    const struct http_listener listeners[] = {
        { .name = "public",
          .address = arena_printf(d->a, "%s:%d", config_str(c, "listen", "address"),
                                  (int)config_int(c, "listen", "port")),
          .cert_file = or_null(config_str(c, "listen", "tls_cert_file")),
          .key_file = or_null(config_str(c, "listen", "tls_key_file")),
          .tables = API_PUBLIC,
          .table_count = API_PUBLIC_COUNT,
          .threads = (unsigned)config_int(c, "listen", "threads") },
        { .name = "admin",
          .address = arena_printf(d->a, "unix:%s", config_str(c, "admin", "socket")),
          .mode = config_int(c, "admin", "socket_gid") != 0 ? 0660 : 0600,
          .gid = (gid_t)config_int(c, "admin", "socket_gid"),
          .tables = API_ADMIN,
          .table_count = API_ADMIN_COUNT },
    };
    const struct http_config cfg = {
        .owner = d->api,
        .listeners = listeners,
        .listener_count = COUNT_OF(listeners),
        .auth = api_auth,
        .on_error = api_error,
        .worker_open = api_worker_open,
        .worker_close = api_worker_close,
        .worker_settle = api_worker_settle,
        .workers = (unsigned)config_int(c, "work", "workers"),
        .queue_max = (size_t)config_int(c, "work", "queue_max"),
        .deferred_max = (size_t)config_int(c, "work", "deferred_max"),
        .connections_max = (unsigned)config_int(c, "listen", "connections_max"),
        .connections_per_ip = (unsigned)config_int(c, "listen", "connections_per_ip"),
        .body_budget = SBX_MIB(config_int(c, "work", "body_budget_mb")),
        .cors_origins = origin_count > 0 ? origins : NULL,
        .access_log = config_bool(c, "log", "access"),
        .metrics = d->metrics,
    };

    return http_server_start(&cfg, &d->server, err);
}

static enum sbx_code write_port_file(struct daemon *d, struct sbx_err *err)
{
    const char *path = config_str(d->config, "listen", "port_file");
    char text[16];
    int n = snprintf(text, sizeof(text), "%u\n", http_server_port(d->server, 0));

    return path[0] == '\0' ? SBX_OK : file_write(path, text, (size_t)n, 0644, false, err);
}

static enum sbx_code start(struct daemon *d, struct sbx_err *err)
{
    const char *ca = or_null(config_str(d->config, "auth", "ca_file"));
    const struct net_config net = { .ca_file = ca };
    struct gateway_client_config gateways = {
        .output_budget = SBX_MIB(config_int(d->config, "work", "output_budget_mb")),
    };

    d->metrics = metrics_new();
    if (net_start(&net, &d->net, err) != SBX_OK)
        return err->code;
    gateways.net = d->net;
    gateways.metrics = d->metrics;
    d->gateways = gateway_client_new(&gateways);
    if (store_waker_start(&d->store, &d->waker, err) != SBX_OK || start_api(d, err) != SBX_OK ||
        try_migrate(d, err) != SBX_OK || start_reconcile(d, err) != SBX_OK ||
        start_runs(d, err) != SBX_OK || start_server(d, err) != SBX_OK ||
        write_port_file(d, err) != SBX_OK)
        return err->code;
    log_info("started", LOG_S("version", SBX_VERSION),
             LOG_S("instance", reconcile_instance(d->reconcile)),
             LOG_I("port", http_server_port(d->server, 0)), LOG_B("ready", d->migrated));
    process_notify("READY=1");
    return SBX_OK;
}

/* The order matters: no new connection, what is under way ends, what still waits is answered, then
 * the parts that others call, last those that everybody calls. */
static void stop(struct daemon *d)
{
    process_notify("STOPPING=1");
    if (d->server != NULL) {
        http_server_quiesce(d->server);
        (void)http_server_drain(d->server,
                                (int)config_int(d->config, "work", "drain_timeout_s") * 1000);
        api_detach(d->api);
        http_server_stop(d->server);
    }
    reconcile_runs_stop(d->runs);
    reconcile_stop(d->reconcile, RECONCILE_DRAIN_MS);
    store_waker_stop(d->waker);
    net_stop(d->net);
    api_free(d->api);
    gateway_client_free(d->gateways);
    metrics_free(d->metrics);
}

/* ---- signals ------------------------------------------------------------ */

/* Keys of the new file, NULL when sealing is off now: then nothing is there to be rotated. */
static enum sbx_code read_fresh_keys(struct daemon *d, const struct config *fresh,
                                     struct seal_keys **out, struct sbx_err *err)
{
    SCOPED_SECRET struct secret *text = NULL;
    const char *path = config_str(fresh, "seal", "keys_file");

    if (d->keys == NULL)
        return SBX_OK;
    if (secret_read_file(path, "[seal] keys_file", SECRET_FILE_MAX, &text, err) != SBX_OK)
        return err->code;
    return seal_keys_parse(secret_reveal(text), out, err);
}

/* Everything that can fail comes first, so that an error leaves all as it was. */
static enum sbx_code take_over(struct daemon *d, const struct config *fresh, struct buf *restart,
                               size_t *taken, struct sbx_err *err)
{
    struct seal_keys *keys = NULL;
    enum log_level level;

    if (!log_level_parse(config_str(fresh, "log", "level"), &level))
        return err_set(err, SBX_E_INVALID, "[log] level must be debug, info, warn or error");
    if (read_fresh_keys(d, fresh, &keys, err) != SBX_OK)
        return err->code;
    if (http_server_reload_tls(d->server, err) != SBX_OK) {
        seal_keys_free(keys);
        return err->code;
    }
    if (keys != NULL)
        seal_keys_take(d->keys, keys);
    seal_keys_free(keys);
    *taken = config_take(d->config, fresh, restart);
    log_open("sandboxd", level);
    http_server_set_access_log(d->server, config_bool(d->config, "log", "access"));
    api_set_rate(d->api, (int)config_int(d->config, "auth", "requests_per_s"),
                 (int)config_int(d->config, "auth", "requests_burst"),
                 (int)config_int(d->config, "limits", "account_requests"));
    reconcile_keep_trail(d->reconcile, trail_keep_ms(d->config));
    return SBX_OK;
}

static void reload(struct daemon *d, int argc, char **argv)
{
    SCOPED_ARENA struct arena *a = arena_new();
    SCOPED_BUF struct buf restart = BUF_INIT(RESTART_MAX);
    struct config *fresh = NULL;
    struct sbx_err err = { 0 };
    const char **rest;
    size_t taken = 0;

    process_notify_reloading();
    if (config_load(API_OPTIONS, API_OPTION_COUNT, "SANDBOXD", config_file_of(argc, argv), argc,
                    argv, a, &rest, &fresh, &err) != SBX_OK ||
        take_over(d, fresh, &restart, &taken, &err) != SBX_OK)
        log_err(LOG_ERROR, "reload refused, nothing was changed", &err);
    else
        log_info("reloaded", LOG_I("changed", taken),
                 LOG_S("needsRestart", restart.len > 0 ? restart.data : NULL));
    config_free(fresh);
    process_notify("READY=1");
}

static int open_signals(void)
{
    sigset_t set;

    (void)signal(SIGPIPE, SIG_IGN);
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC);
}

/* Until SIGTERM or SIGINT. */
static enum sbx_code serve(struct daemon *d, int signals, int argc, char **argv,
                           struct sbx_err *err)
{
    for (;;) {
        struct pollfd p = { .fd = signals, .events = POLLIN };
        struct signalfd_siginfo info;
        int n = poll(&p, 1, d->migrated ? -1 : MIGRATE_RETRY_MS);

        if (n == 0 && try_migrate(d, err) != SBX_OK)
            return err->code;
        if (n <= 0 || read(signals, &info, sizeof(info)) != (ssize_t)sizeof(info))
            continue;
        if (info.ssi_signo != SIGHUP) {
            log_info("stopping", LOG_I("signal", info.ssi_signo));
            return SBX_OK;
        }
        reload(d, argc, argv);
    }
}

static int run(struct daemon *d, int argc, char **argv)
{
    enum log_level level = LOG_INFO;
    SCOPED_FD int signals = open_signals();
    struct sbx_err err = { 0 };
    enum sbx_code code;

    (void)log_level_parse(config_str(d->config, "log", "level"), &level);
    log_open("sandboxd", level);
    code = start(d, &err);
    if (code == SBX_OK)
        code = serve(d, signals, argc, argv, &err);
    if (code != SBX_OK)
        log_err(LOG_ERROR, "ended", &err);
    stop(d);
    if (code == SBX_OK)
        log_info("stopped");
    return code == SBX_OK ? 0 : 1;
}

static int complain(const struct sbx_err *err)
{
    fprintf(stderr, "sandboxd: %s\n", err->msg);
    return 2;
}

/* What is not an option: one word of ours, or nothing. */
static int act(struct daemon *d, const char **rest, int argc, char **argv)
{
    SCOPED_BUF struct buf b = BUF_INIT(PRINT_MAX);
    struct sbx_err err = { 0 };
    const char *word = NULL;

    for (; *rest != NULL; rest++) {
        if (str_starts(*rest, "--config=")) {
            continue;
        } else if (strcmp(*rest, "--config") == 0) {
            rest += rest[1] != NULL;
        } else if (word != NULL || !str_starts(*rest, "--")) {
            fprintf(stderr, "sandboxd: %s is not an option; see --help\n", *rest);
            return 2;
        } else {
            word = *rest;
        }
    }
    if (word != NULL && strcmp(word, "--print-config") == 0) {
        config_print(d->config, &b);
        return print_buf(&b);
    }
    if (check_config(d, &err) != SBX_OK)
        return complain(&err);
    if (word == NULL)
        return run(d, argc, argv);
    if (strcmp(word, "--check-config") == 0)
        return 0;
    fprintf(stderr, "sandboxd: %s is not an option; see --help\n", word);
    return 2;
}

int main(int argc, char **argv)
{
    struct daemon d = { 0 };
    struct sbx_err err = { 0 };
    const char **rest = NULL;
    int status;

    process_no_core();
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--standalone") == 0)
            return standalone_main(argc, argv);
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "--version") == 0)
            return usage();
        for (size_t k = 0; k < COUNT_OF(PRINTS); k++) {
            if (strcmp(argv[i], PRINTS[k].flag) == 0) {
                SCOPED_BUF struct buf b = BUF_INIT(PRINT_MAX);

                PRINTS[k].print(&b);
                return print_buf(&b);
            }
        }
    }
    d.a = arena_new();
    status = read_config(&d, argc, argv, &rest, &err) == SBX_OK ? act(&d, rest, argc, argv)
                                                                : complain(&err);
    secret_free(d.process_secret);
    seal_keys_free(d.keys);
    config_free(d.config);
    arena_free(d.a);
    return status;
}
