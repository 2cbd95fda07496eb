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
#include "gateway/checkin.h"
#include "gateway/egress.h"
#include "gateway/gateway.h"
#include "gateway/options.h"
#include "gateway/shim.h"
#include "sbx/version.h"

enum { DRAIN_MS = 5000, EXIT_USAGE = 2, PRINT_MAX = 1024 * 1024 };

static const char USAGE[] =
    "usage: sandbox-region [--config FILE] [--section-key VALUE ...]\n"
    "       sandbox-region --check-config | --print-config | --print-defaults | --version\n";

struct wish {
    const char *file;
    bool check, print, defaults, version;
};

/* --config FILE is read before the options that override it. */
static bool read_wish(int argc, char **argv, struct wish *w, int *rest_count, char **rest)
{
    int n = 1;

    rest[0] = argv[0];
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
            rest[n++] = argv[i];
    }
    rest[n] = NULL;
    *rest_count = n;
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

static int run(const struct config *config)
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
    do {
        if (sigwait(&set, &sig) != 0)
            break;
    } while (sig == SIGHUP); /* nothing is reloaded yet that a restart would lose */
    process_notify("STOPPING=1");
    log_info("stopping", LOG_I("signal", sig));
    gateway_checkin_stop(checkin);
    gateway_stop(g, DRAIN_MS);
    log_info("stopped");
    return 0;
}

static int with_config(const struct wish *w, int argc, char **argv)
{
    SCOPED_ARENA struct arena *a = arena_new();
    SCOPED_BUF struct buf text = BUF_INIT(PRINT_MAX);
    struct config *config = NULL;
    enum log_level level = LOG_INFO;
    struct sbx_err err = { 0 };
    const struct config_option *options;
    size_t count;
    int status = 0;

    options = gateway_options(&count);
    if (w->defaults) {
        config_print_defaults(options, count, &text);
        return print(&text);
    }
    if (config_load(options, count, GATEWAY_ENV_PREFIX, w->file, argc, argv, a, NULL, &config,
                    &err) != SBX_OK) {
        (void)fprintf(stderr, "sandbox-region: %s\n", err.msg);
        return EXIT_USAGE;
    }
    if (!log_level_parse(config_str(config, "log", "level"), &level)) {
        (void)fprintf(stderr, "sandbox-region: [log] level must be debug, info, warn or error\n");
        status = EXIT_USAGE;
    } else if (w->print) {
        config_print(config, &text);
        status = print(&text);
    } else if (!w->check) {
        log_open("sandbox-region", level);
        status = run(config);
    }
    config_free(config);
    return status;
}

int main(int argc, char **argv)
{
    struct wish w = { 0 };
    char **rest;
    int rest_count = 0, status;

    if (argc > 1 && strcmp(argv[1], "shim") == 0)
        return shim_main(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "egress-helper") == 0)
        return egress_helper_main(argc - 2, argv + 2);
    rest = mem_zalloc(((size_t)argc + 1) * sizeof(*rest));
    if (!read_wish(argc, argv, &w, &rest_count, rest))
        status = fputs(USAGE, stdout) < 0;
    else if (w.version)
        status = printf("sandbox-region %s\n", SBX_VERSION) < 0;
    else
        status = with_config(&w, rest_count, rest);
    free(rest);
    return status;
}
