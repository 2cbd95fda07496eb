#include "programs/standalone.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/options.h"
#include "base/config.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/notify.h"
#include "base/scoped.h"
#include "base/str.h"
#include "base/time.h"
#include "net/net.h"
#include "programs/standalone_impl.h"
#include "sbx/limits.h"
#include "sbx/version.h"

enum {
    BOOTSTRAP_MS = 15 * 60 * 1000, /* an image is imported in it */
    STOP_SERVER_MS = 60 * 1000,
    STOP_REGION_MS = 60 * 1000,
};

static const struct config_option OPTIONS[] = {
    { "standalone", "state", CONFIG_STR, "/var/lib/sandboxd", 0, 0, false,
      "Folder of everything that lasts" },
    { "standalone", "address", CONFIG_STR, "127.0.0.1", 0, 0, false,
      "Address of the public listener" },
    { "standalone", "port", CONFIG_INT, "8080", 0, 65535, false,
      "Port of the public listener; 0: any free one, the same at the next start when it is free" },
    { "standalone", "public_url", CONFIG_STR, "", 0, 0, false,
      "URL that clients use; empty: the public listener's, https when server_extra gives it a "
      "certificate" },
    { "standalone", "region", CONFIG_STR, "local", 0, 0, false, "Name of the one region" },
    { "standalone", "rootfs", CONFIG_STR, "", 0, 0, false,
      "Root file system that becomes the first image; empty: no image and no template is made" },
    { "standalone", "user", CONFIG_STR, "sandboxd", 0, 0, false,
      "The HTTP server runs as this user" },
    { "standalone", "postgres_user", CONFIG_STR, "postgres", 0, 0, false,
      "PostgreSQL runs as this user" },
    { "standalone", "postgres_bin", CONFIG_STR, "/usr/lib/postgresql/15/bin", 0, 0, false,
      "Folder of PostgreSQL's programs" },
    { "standalone", "server_extra", CONFIG_STR, "", 0, 0, false,
      "An INI file whose text is put behind the server's generated one" },
    { "standalone", "region_extra", CONFIG_STR, "", 0, 0, false,
      "An INI file whose text is put behind the region's generated one" },
    { "database", "url", CONFIG_STR, "", 0, 0, false,
      "A database of yours: then no PostgreSQL is run" },
    { "region", "socket", CONFIG_STR, "", 0, 0, false,
      "The socket of a region gateway of yours: then none is run" },
    { "log", "level", CONFIG_STR, "info", 0, 0, false, "debug, info, warn or error" },
};

/* ---- folders, files, users ------------------------------------------------------ */

static enum sbx_code find_user(struct standalone *s, const char *key, struct standalone_user *out,
                               struct sbx_err *err)
{
    const char *name = config_str(s->config, "standalone", key);
    const struct passwd *pw = getpwnam(name);

    if (pw == NULL)
        return err_set(err, SBX_E_INVALID, "there is no user %s: run config/install run user",
                       name);
    if (pw->pw_uid == 0)
        return err_set(err, SBX_E_INVALID, "[standalone] %s must not be root", key);
    *out = (struct standalone_user){ .name = name, .uid = pw->pw_uid, .gid = pw->pw_gid };
    return SBX_OK;
}

enum sbx_code standalone_make_dir(const char *path, mode_t mode, uid_t uid, gid_t gid,
                                  struct sbx_err *err)
{
    if (file_make_dirs(path, mode, err) != SBX_OK)
        return err_wrap(err, "%s", path);
    if (chmod(path, mode) != 0 || chown(path, uid, gid) != 0)
        return err_sys(err, SBX_E_INTERNAL, "%s", path);
    return SBX_OK;
}

enum sbx_code standalone_write_for(const char *path, struct buf *text, gid_t gid,
                                   struct sbx_err *err)
{
    if (file_write(path, text->data, text->len, 0640, true, err) != SBX_OK)
        return err_wrap(err, "%s", path);
    if (chown(path, 0, gid) != 0)
        return err_sys(err, SBX_E_INTERNAL, "%s", path);
    return SBX_OK;
}

/* One launcher on one state folder. The lock goes with the process, whatever ends it. */
static enum sbx_code take_lock(struct standalone *s, struct sbx_err *err)
{
    SCOPED_FD int fd = -1;
    char text[32];
    ssize_t n;

    fd = open(arena_printf(s->a, "%s/lock", s->state), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_sys(err, SBX_E_INTERNAL, "%s/lock", s->state);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        n = pread(fd, text, sizeof(text) - 1, 0);
        text[n > 0 ? n : 0] = 0;
        text[strcspn(text, "\n")] = 0;
        return err_set(err, SBX_E_CONFLICT, "another sandboxd (pid %s) runs on %s", text, s->state);
    }
    n = snprintf(text, sizeof(text), "%d\n", (int)getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n)
        return err_sys(err, SBX_E_INTERNAL, "%s/lock", s->state);
    s->lock_fd = fd;
    fd = -1;
    return SBX_OK;
}

/* Sockets live in a short folder whose name follows from the state folder's; <state>/run leads
 * there. */
static enum sbx_code make_run_dir(struct standalone *s, struct sbx_err *err)
{
    unsigned char digest[SHA256_LEN];
    char hex[9];
    const char *link = arena_printf(s->a, "%s/run", s->state);
    const char *postgres, *server;

    sha256_of(s->state, strlen(s->state), digest);
    hash_hex(digest, 4, hex);
    s->run = arena_printf(s->a, "/run/sandboxd-%s", hex);
    postgres = arena_printf(s->a, "%s/pg", s->run);
    server = arena_printf(s->a, "%s/server", s->run);
    if (standalone_make_dir(s->run, 0755, 0, 0, err) != SBX_OK ||
        standalone_make_dir(postgres, 0755, s->postgres_user.uid, s->postgres_user.gid, err) !=
            SBX_OK ||
        standalone_make_dir(server, 0755, s->server_user.uid, s->server_user.gid, err) != SBX_OK)
        return err->code;
    (void)unlink(link);
    if (symlink(s->run, link) != 0)
        return err_sys(err, SBX_E_INTERNAL, "%s", link);
    s->admin_socket = arena_printf(s->a, "%s/server/admin.sock", s->run);
    s->port_file = arena_printf(s->a, "%s/server/port", s->run);
    (void)unlink(s->port_file);
    (void)unlink(arena_printf(s->a, "%s/ready", s->run));
    return SBX_OK;
}

/* A file of 256 random bits behind prefix, made once. */
static enum sbx_code make_secret(struct standalone *s, const char *name, const char *prefix,
                                 struct sbx_err *err)
{
    const char *path = arena_printf(s->a, "%s/%s", s->state, name);
    SCOPED_BUF struct buf text = BUF_INIT(256);
    unsigned char key[32];
    char hex[65];

    if (file_exists(path))
        return SBX_OK;
    random_bytes(key, sizeof(key));
    hash_hex(key, sizeof(key), hex);
    (void)buf_printf(&text, "%s%s\n", prefix, hex);
    return standalone_write_for(path, &text, s->server_user.gid, err);
}

/* What secrets are sealed with at rest, and the credential of the region's process path. */
static enum sbx_code make_secrets(struct standalone *s, struct sbx_err *err)
{
    if (make_secret(s, "seal.keys", "first ", err) != SBX_OK)
        return err->code;
    return make_secret(s, "process.secret", "", err);
}

static enum sbx_code append_extra(struct standalone *s, const char *key, struct buf *text,
                                  struct sbx_err *err)
{
    const char *path = config_str(s->config, "standalone", key);

    if (path[0] == 0)
        return SBX_OK;
    if (file_read(path, text, err) != SBX_OK)
        return err_wrap(err, "[standalone] %s", key);
    return SBX_OK;
}

/* ---- region and server ---------------------------------------------------------------- */

static const char *own_program(struct standalone *s, const char *name)
{
    const char *installed = arena_printf(s->a, "%s/../lib/sandboxd/%s", s->bin, name);

    return file_exists(installed) ? installed : arena_printf(s->a, "%s/%s", s->bin, name);
}

static const char **program_argv(struct standalone *s, const char *program, const char *conf)
{
    const char **argv = arena_zalloc(s->a, sizeof(*argv) * 4);

    argv[0] = program;
    argv[1] = "--config";
    argv[2] = conf;
    return argv;
}

/* Any status counts: whoever answers lives, and says itself what it still waits for. */
static bool answers(const char *socket, const char *path, int *status)
{
    SCOPED_ARENA struct arena *a = arena_new();
    struct net_spec spec = { .url = arena_printf(a, "http://localhost%s", path),
                             .unix_path = socket,
                             .timeout_ms = STANDALONE_TOOL_MS };
    struct net_answer answer = { 0 };
    struct sbx_err err = { .code = SBX_OK };

    if (net_request(NULL, &spec, a, &answer, &err) != SBX_OK)
        return false;
    *status = answer.status;
    return true;
}

static enum sbx_code wait_ready(struct part *p, const char *socket, const char *path,
                                struct sbx_err *err)
{
    int64_t deadline = time_mono_ms() + STANDALONE_READY_MS;
    int status = 0;

    while (!answers(socket, path, &status) || status != 200) {
        struct pollfd ended = { .fd = p->process.pidfd, .events = POLLIN };

        if (poll(&ended, 1, STANDALONE_READY_STEP_MS) > 0)
            return err_set(err, SBX_E_UNAVAILABLE, "%s ended at its start; its reason is above",
                           p->name);
        if (time_mono_ms() > deadline)
            return err_set(err, SBX_E_TIMEOUT, "%s was not ready in time (%s answered %d)", p->name,
                           path, status);
    }
    return SBX_OK;
}

static enum sbx_code write_region_conf(struct standalone *s, struct sbx_err *err)
{
    SCOPED_BUF struct buf text = BUF_INIT(SBX_KIB(256));

    (void)buf_printf(&text,
                     "[listen]\nsocket = %s\nsocket_uids = 0,%u\n"
                     "process_secret_file = %s/process.secret\n[state]\ndir = %s/region\n"
                     "[agent]\npath = %s\n",
                     s->region_socket, s->server_user.uid, s->state, s->state,
                     own_program(s, "sandbox-agent"));
    if (append_extra(s, "region_extra", &text, err) != SBX_OK)
        return err->code;
    return standalone_write_for(s->region_conf, &text, 0, err);
}

static enum sbx_code start_region(struct standalone *s, struct sbx_err *err)
{
    const char *dir = arena_printf(s->a, "%s/region", s->state);

    s->region_conf = arena_printf(s->a, "%s/region.conf", s->state);
    s->region_socket = arena_printf(s->a, "%s/region.sock", s->run);
    if (write_region_conf(s, err) != SBX_OK ||
        standalone_make_dir(dir, 0711, 0, 0, err) != SBX_OK ||
        standalone_make_dir(arena_printf(s->a, "%s/backend", s->state), 0700, 0, 0, err) != SBX_OK)
        return err->code;
    s->region =
        (struct part){ .name = "region",
                       .argv = program_argv(s, own_program(s, "sandbox-region"), s->region_conf),
                       .stop_signal = SIGTERM,
                       .stop_timeout_ms = STOP_REGION_MS };
    if (part_adopt(&s->region)) /* with the configuration of its own start */
        process_kill(&s->region.process, SIGHUP);
    else if (part_start(&s->region, err) != SBX_OK)
        return err->code;
    return wait_ready(&s->region, s->region_socket, "/v1/health", err);
}

/* With port 0 the port of the last time is tried first, so that addresses people wrote down stay.
 */
static int64_t last_port(struct standalone *s)
{
    SCOPED_BUF struct buf text = BUF_INIT(64);
    int64_t port = config_int(s->config, "standalone", "port");
    struct sbx_err err = { .code = SBX_OK };

    if (port != 0 || file_read(arena_printf(s->a, "%s/port", s->state), &text, &err) != SBX_OK)
        return port;
    return str_parse_int(text.data != NULL ? text.data : "", 1, 65535, &port) ? port : 0;
}

static enum sbx_code write_server_conf(struct standalone *s, struct sbx_err *err)
{
    SCOPED_BUF struct buf text = BUF_INIT(SBX_KIB(256));

    (void)buf_printf(&text,
                     "[listen]\naddress = %s\nport = %lld\nport_file = %s\n"
                     "[admin]\nsocket = %s\n[database]\nurl = %s\nmigrate = true\n"
                     "[seal]\nkeys_file = %s/seal.keys\n"
                     "[runs]\nprocess_secret_file = %s/process.secret\n[log]\nlevel = %s\n",
                     config_str(s->config, "standalone", "address"), (long long)s->port,
                     s->port_file, s->admin_socket, s->database_url, s->state, s->state,
                     config_str(s->config, "log", "level"));
    if (append_extra(s, "server_extra", &text, err) != SBX_OK)
        return err->code;
    return standalone_write_for(s->server_conf, &text, s->server_user.gid, err);
}

static enum sbx_code run_server(struct standalone *s, int64_t port, struct sbx_err *err)
{
    s->port = port;
    if (write_server_conf(s, err) != SBX_OK || part_start(&s->server, err) != SBX_OK)
        return err->code;
    return wait_ready(&s->server, s->admin_socket, "/readyz", err);
}

/* A server of an earlier launcher is not adopted but ended: it takes a second, and the new one has
 * the configuration of today. */
static enum sbx_code start_server(struct standalone *s, struct sbx_err *err)
{
    int64_t port = last_port(s);
    struct sbx_err first = { .code = SBX_OK };

    s->server_conf = arena_printf(s->a, "%s/sandboxd.conf", s->state);
    s->server = (struct part){ .name = "server",
                               .argv = program_argv(s, own_program(s, "sandboxd"), s->server_conf),
                               .uid = s->server_user.uid,
                               .gid = s->server_user.gid,
                               .stop_signal = SIGTERM,
                               .stop_timeout_ms = STOP_SERVER_MS };
    if (part_adopt(&s->server))
        (void)part_stop(&s->server);
    if (run_server(s, port, &first) == SBX_OK)
        return SBX_OK;
    if (port == config_int(s->config, "standalone", "port")) {
        *err = first;
        return err->code;
    }
    (void)part_stop(&s->server); /* somebody has the old port by now: any free one */
    return run_server(s, 0, err);
}

/* Where clients find the server, in the words of its whole configuration: server_extra may have
 * changed address and TLS. *ca_file is the certificate that is shown there, NULL without TLS; a URL
 * of the operator's own may lead through somebody else's, so the system's trust anchors decide. */
static enum sbx_code find_public(struct standalone *s, const char *port, const char **url,
                                 const char **ca_file, struct sbx_err *err)
{
    struct config *server = NULL;
    const char *given = config_str(s->config, "standalone", "public_url"), *cert;

    if (config_load(API_OPTIONS, API_OPTION_COUNT, "SANDBOXD", s->server_conf, 0, NULL, s->a, NULL,
                    &server, err) != SBX_OK)
        return err->code;
    cert = config_str(server, "listen", "tls_cert_file");
    *ca_file = NULL;
    *url = given;
    if (given[0] == 0) {
        *ca_file = cert[0] != 0 ? arena_strdup(s->a, cert) : NULL;
        *url = arena_printf(s->a, "%s://%s:%s", *ca_file != NULL ? "https" : "http",
                            config_str(server, "listen", "address"), port);
    }
    config_free(server);
    return SBX_OK;
}

static enum sbx_code bootstrap(struct standalone *s, struct sbx_err *err)
{
    SCOPED_BUF struct buf port = BUF_INIT(64);
    const char *rootfs = config_str(s->config, "standalone", "rootfs");
    const char *url = NULL, *ca_file = NULL;
    const char *argv[STANDALONE_WORDS_MAX] = { own_program(s, "sandboxctl"), "--socket",
                                               s->admin_socket };
    size_t n = 3;

    if (file_read(s->port_file, &port, err) != SBX_OK)
        return err_wrap(err, "the server's port");
    port.data[strcspn(port.data, "\n")] = 0;
    if (file_write(arena_printf(s->a, "%s/port", s->state), port.data, strlen(port.data), 0644,
                   false, err) != SBX_OK ||
        find_public(s, port.data, &url, &ca_file, err) != SBX_OK)
        return err->code;
    argv[n++] = "bootstrap";
    argv[n++] = "--dir", argv[n++] = s->state;
    argv[n++] = "--public-url", argv[n++] = url;
    if (ca_file != NULL)
        argv[n++] = "--public-ca", argv[n++] = ca_file;
    argv[n++] = "--region-name", argv[n++] = config_str(s->config, "standalone", "region");
    argv[n++] = "--region-socket", argv[n++] = s->region_socket;
    if (rootfs[0] != 0)
        argv[n++] = "--rootfs", argv[n++] = rootfs;
    if (process_run(argv, NULL, 0, NULL, BOOTSTRAP_MS, err) != SBX_OK)
        return err_wrap(err, "make the first objects");
    return SBX_OK;
}

/* ---- the life of the launcher ------------------------------------------------------------ */

static enum sbx_code start_all(struct standalone *s, struct sbx_err *err)
{
    s->database_url = config_str(s->config, "database", "url");
    s->region_socket = config_str(s->config, "region", "socket");
    if (s->database_url[0] == 0) {
        if (standalone_start_postgres(s, err) != SBX_OK)
            return err_wrap(err, "database");
        s->database_url =
            arena_printf(s->a, "postgresql:///sandboxd?host=%s/pg&user=sandboxd", s->run);
    }
    if (s->region_socket[0] == 0 && start_region(s, err) != SBX_OK)
        return err_wrap(err, "region");
    if (start_server(s, err) != SBX_OK)
        return err_wrap(err, "server");
    return bootstrap(s, err);
}

static void remove_run_dir(struct standalone *s)
{
    struct sbx_err err = { .code = SBX_OK };

    (void)unlink(arena_printf(s->a, "%s/run", s->state));
    if (file_remove_tree(s->run, &err) != SBX_OK)
        log_err(LOG_WARN, "remove the sockets' folder", &err);
}

static void stop_all(struct standalone *s)
{
    (void)part_stop(&s->server);
    (void)part_stop(&s->region);
    (void)part_stop(&s->postgres);
}

/* The files that the operator adds to ours are read anew; the parts say what they took over. */
static void reload(struct standalone *s)
{
    struct sbx_err err = { .code = SBX_OK };

    process_notify_reloading();
    if (write_server_conf(s, &err) != SBX_OK ||
        (part_running(&s->region) && write_region_conf(s, &err) != SBX_OK)) {
        log_err(LOG_ERROR, "reload refused", &err);
    } else {
        if (part_running(&s->server))
            process_kill(&s->server.process, SIGHUP);
        if (part_running(&s->region))
            process_kill(&s->region.process, SIGHUP);
        log_info("reload passed on");
    }
    process_notify("READY=1");
}

static int retry_wait_ms(struct part *const *parts, size_t count, int64_t now)
{
    int64_t wait = -1;

    for (size_t i = 0; i < count; i++) {
        int64_t left = parts[i]->retry_at_ms - now;

        if (parts[i]->retry_at_ms != 0 && (wait < 0 || left < wait))
            wait = left > 0 ? left : 0;
    }
    return (int)wait;
}

/* One place to wait: signals, the parts' ends, the next start. */
static void supervise(struct standalone *s)
{
    struct part *const parts[] = { &s->postgres, &s->region, &s->server };
    struct signalfd_siginfo info;

    for (;;) {
        struct pollfd fds[COUNT_OF(parts) + 1] = { { .fd = s->signal_fd, .events = POLLIN } };

        for (size_t i = 0; i < COUNT_OF(parts); i++)
            fds[i + 1] =
                (struct pollfd){ .fd = part_running(parts[i]) ? parts[i]->process.pidfd : -1,
                                 .events = POLLIN };
        (void)poll(fds, COUNT_OF(fds), retry_wait_ms(parts, COUNT_OF(parts), time_mono_ms()));
        if (fds[0].revents != 0 && read(s->signal_fd, &info, sizeof(info)) == sizeof(info)) {
            if (info.ssi_signo != SIGHUP)
                return;
            reload(s);
        }
        for (size_t i = 0; i < COUNT_OF(parts); i++) {
            if (fds[i + 1].revents != 0)
                part_ended(parts[i], time_mono_ms());
            part_retry(parts[i], time_mono_ms());
        }
    }
}

static enum sbx_code catch_signals(struct standalone *s, struct sbx_err *err)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC);
    return s->signal_fd >= 0 ? SBX_OK : err_sys(err, SBX_E_INTERNAL, "signalfd");
}

static enum sbx_code prepare(struct standalone *s, struct sbx_err *err)
{
    char path[PATH_MAX];

    if (geteuid() != 0)
        return err_set(err, SBX_E_FORBIDDEN, "--standalone needs root: it runs a region host");
    if (realpath("/proc/self/exe", path) == NULL)
        return err_sys(err, SBX_E_INTERNAL, "find this program");
    *strrchr(path, '/') = 0;
    s->bin = arena_strdup(s->a, path);
    if (find_user(s, "user", &s->server_user, err) != SBX_OK ||
        find_user(s, "postgres_user", &s->postgres_user, err) != SBX_OK)
        return err->code;
    s->state = config_str(s->config, "standalone", "state");
    if (standalone_make_dir(s->state, 0755, 0, 0, err) != SBX_OK)
        return err->code;
    if (realpath(s->state, path) == NULL)
        return err_sys(err, SBX_E_INTERNAL, "%s", s->state);
    s->state = arena_strdup(s->a, path);
    if (take_lock(s, err) != SBX_OK || make_run_dir(s, err) != SBX_OK ||
        make_secrets(s, err) != SBX_OK)
        return err->code;
    return catch_signals(s, err);
}

/* Every option but "--standalone" is the table's. */
static enum sbx_code load(struct standalone *s, int argc, char **argv, struct sbx_err *err)
{
    const char *file = NULL;
    char **rest = arena_zalloc(s->a, sizeof(*rest) * (size_t)(argc + 1));
    enum log_level level;
    int n = 0;

    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--config") == 0 && i + 1 < argc)
            file = argv[++i];
        else if (strcmp(argv[i], "--standalone") != 0)
            rest[n++] = argv[i];
    }
    if (config_load(OPTIONS, COUNT_OF(OPTIONS), "SANDBOXD", file, n, rest, s->a, NULL, &s->config,
                    err) != SBX_OK)
        return err->code;
    if (!log_level_parse(config_str(s->config, "log", "level"), &level))
        return err_set(err, SBX_E_INVALID, "[log] level is debug, info, warn or error");
    log_open("sandboxd-standalone", level);
    return SBX_OK;
}

bool standalone_wanted(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--standalone") == 0)
            return true;
    return false;
}

/* Whoever started us may wait for this file. */
static enum sbx_code say_ready(struct standalone *s, struct sbx_err *err)
{
    const char *pid = arena_printf(s->a, "%d\n", (int)getpid());

    log_info("ready", LOG_S("state", s->state), LOG_S("version", SBX_VERSION));
    process_notify("READY=1");
    return file_write(arena_printf(s->a, "%s/ready", s->run), pid, strlen(pid), 0644, false, err);
}

int standalone_main(int argc, char **argv)
{
    SCOPED_ARENA struct arena *a = arena_new();
    struct standalone s = { .a = a, .lock_fd = -1, .signal_fd = -1 };
    struct sbx_err err = { .code = SBX_OK };
    enum sbx_code code = load(&s, argc, argv, &err);

    if (code == SBX_OK)
        code = prepare(&s, &err);
    if (code == SBX_OK) {
        code = start_all(&s, &err);
        if (code == SBX_OK)
            code = say_ready(&s, &err);
        if (code == SBX_OK)
            supervise(&s);
        process_notify("STOPPING=1");
        log_info("stopping");
        stop_all(&s);
        remove_run_dir(&s);
    }
    if (code != SBX_OK)
        (void)fprintf(stderr, "sandboxd --standalone: %s\n", err.msg);
    fd_close(&s.signal_fd);
    fd_close(&s.lock_fd);
    config_free(s.config);
    return code == SBX_OK ? 0 : 1;
}
