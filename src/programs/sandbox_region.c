/* sandbox-region: wires the region gateway.  Three more roles of the same program are
 * started by the gateway itself and never by a person: `shim` (gateway/shim.h) and
 * `egress-helper` (gateway/egress.h). */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/config.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/notify.h"
#include "base/process.h"
#include "gateway/checkin.h"
#include "gateway/egress.h"
#include "gateway/gateway.h"
#include "gateway/options.h"
#include "gateway/shim.h"
#include "sbx/version.h"

enum { DRAIN_MS = 5000, EXIT_USAGE = 2, PRINT_MAX = 1024 * 1024, RESTART_MAX = 8192 };

static const char USAGE[] =
    "usage: sandbox-region [--config FILE] [--section-key VALUE ...]\n"
    "       sandbox-region --check-config | --print-config | --print-defaults | --version\n";

struct wish {
    const char *file;
    bool check, print, defaults, version;
    int argc; /* what is left of the command line: options of the table */
    char **argv;
};

/* --config FILE is read before the options that override it. */
static bool read_wish(int argc, char **argv, struct wish *w)
{
    int n = 1;

    w->argv[0] = argv[0];
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--config") == 0 && i + 1 < argc)
            w->file = argv[++i];
        else if (strncmp(argv[i], "--config=", 9) == 0)
            w->file = argv[i] + 9;
        else if (strcmp(argv[i], "--check-config") == 0)
            w->check = true;
        else if (strcmp(argv[i], "--print-config") == 0)
            w->print = true;
        else if (strcmp(argv[i], "--print-defaults") == 0)
            w->defaults = true;
        else if (strcmp(argv[i], "--version") == 0)
            w->version = true;
        else if (strcmp(argv[i], "--help") == 0)
            return false;
        else
            w->argv[n++] = argv[i];
    }
    w->argv[n] = NULL;
    w->argc = n;
    return true;
}

static int print(struct buf *text)
{
    return fwrite(text->data, 1, text->len, stdout) == text->len ? 0 : 1;
}

/* Thousands of sandboxes have a few descriptors each. */
static void raise_descriptors(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static enum sbx_code load(const struct wish *w, struct arena *a, struct config **out,
                          struct sbx_err *err)
{
    enum log_level level;
    size_t count;
    const struct config_option *options = gateway_options(&count);

    if (config_load(options, count, GATEWAY_ENV_PREFIX, w->file, w->argc, w->argv, a, NULL, out,
                    err) != SBX_OK)
        return err->code;
    if (log_level_parse(config_str(*out, "log", "level"), &level))
        return SBX_OK;
    config_free(*out);
    return err_set(err, SBX_E_INVALID, "[log] level must be debug, info, warn or error");
}

static void open_log(const struct config *config)
{
    enum log_level level = LOG_INFO;

    (void)log_level_parse(config_str(config, "log", "level"), &level);
    log_open("sandbox-region", level);
}

static void reload(struct gateway *g, struct config *config, const struct wish *w)
{
    SCOPED_ARENA struct arena *a = arena_new();
    SCOPED_BUF struct buf restart = BUF_INIT(RESTART_MAX);
    struct config *fresh = NULL;
    struct sbx_err err = { 0 };

    process_notify_reloading();
    if (load(w, a, &fresh, &err) != SBX_OK) {
        log_err(LOG_ERROR, "reload refused, nothing was changed", &err);
    } else {
        if (gateway_reload(g, fresh, &err) != SBX_OK) {
            log_err(LOG_ERROR, "reload refused, nothing was changed", &err);
        } else {
            size_t taken = config_take(config, fresh, &restart);

            open_log(config);
            log_info("reloaded", LOG_I("changed", taken),
                     LOG_S("needsRestart", restart.len > 0 ? restart.data : NULL));
        }
        config_free(fresh);
    }
    process_notify("READY=1");
}

static int run(struct config *config, const struct wish *w)
{
    struct gateway *g = NULL;
    struct gateway_checkin *checkin = NULL;
    struct sbx_err err = { 0 };
    sigset_t set;
    int sig = 0;

    raise_descriptors();
    (void)signal(SIGPIPE, SIG_IGN);
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    if (gateway_start(config, &g, &err) != SBX_OK) {
        log_err(LOG_ERROR, "cannot start", &err);
        return 1;
    }
    if (gateway_checkin_start(config, &checkin, &err) != SBX_OK) {
        log_err(LOG_ERROR, "cannot start", &err);
        gateway_stop(g, DRAIN_MS);
        return 1;
    }
    log_info("started", LOG_I("pid", getpid()), LOG_I("port", gateway_port(g)));
    process_notify("READY=1");
    while (sigwait(&set, &sig) == 0 && sig == SIGHUP)
        reload(g, config, w);
    process_notify("STOPPING=1");
    log_info("stopping", LOG_I("signal", sig));
    gateway_checkin_stop(checkin);
    gateway_stop(g, DRAIN_MS);
    log_info("stopped");
    return 0;
}

static int with_config(const struct wish *w)
{
    SCOPED_ARENA struct arena *a = arena_new();
    SCOPED_BUF struct buf text = BUF_INIT(PRINT_MAX);
    struct config *config = NULL;
    struct sbx_err err = { 0 };
    const struct config_option *options;
    size_t count;
    int status = 0;

    options = gateway_options(&count);
    if (w->defaults) {
        config_print_defaults(options, count, &text);
        return print(&text);
    }
    if (load(w, a, &config, &err) != SBX_OK) {
        (void)fprintf(stderr, "sandbox-region: %s\n", err.msg);
        return EXIT_USAGE;
    }
    if (w->print) {
        config_print(config, &text);
        status = print(&text);
    } else if (!w->check) {
        open_log(config);
        status = run(config, w);
    }
    config_free(config);
    return status;
}

int main(int argc, char **argv)
{
    struct wish w = { 0 };
    int status;

    process_no_core();
    if (argc > 1 && strcmp(argv[1], "shim") == 0)
        return shim_main(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "egress-helper") == 0)
        return egress_helper_main(argc - 2, argv + 2);
    w.argv = mem_zalloc(((size_t)argc + 1) * sizeof(*w.argv));
    if (!read_wish(argc, argv, &w))
        status = fputs(USAGE, stdout) < 0;
    else if (w.version)
        status = printf("sandbox-region %s\n", SBX_VERSION) < 0;
    else
        status = with_config(&w);
    free(w.argv);
    return status;
}
