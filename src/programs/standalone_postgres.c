/* The launcher's own PostgreSQL: made once, adopted when it still runs. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/scoped.h"
#include "base/time.h"
#include "programs/standalone_impl.h"

enum {
    INITDB_MS = 120 * 1000,
    STOP_POSTGRES_MS = 60 * 1000,
};

static const char *pg_tool(struct standalone *s, const char *name)
{
    return arena_printf(s->a, "%s/%s", config_str(s->config, "standalone", "postgres_bin"), name);
}

/* The server connects as its own user by peer authentication; nobody else can. */
static enum sbx_code write_pg_access(struct standalone *s, const char *dir, struct sbx_err *err)
{
    SCOPED_BUF struct buf hba = BUF_INIT(4096);
    SCOPED_BUF struct buf ident = BUF_INIT(4096);

    (void)buf_printf(&hba, "local all all peer map=standalone\n");
    (void)buf_printf(&ident, "standalone %s postgres\nstandalone %s sandboxd\n",
                     s->postgres_user.name, s->server_user.name);
    if (standalone_write_for(arena_printf(s->a, "%s/pg_hba.conf", dir), &hba, s->postgres_user.gid,
                             err) != SBX_OK)
        return err->code;
    return standalone_write_for(arena_printf(s->a, "%s/pg_ident.conf", dir), &ident,
                                s->postgres_user.gid, err);
}

/* A whole cluster with our role and database, or none: it is made beside and renamed. */
static enum sbx_code make_cluster(struct standalone *s, const char *data, struct sbx_err *err)
{
    const char *fresh = arena_printf(s->a, "%s.new", data);
    const char *initdb[] = { pg_tool(s, "initdb"), "-D",          fresh, "-U",
                             "postgres",           "--auth=peer", "-E",  "UTF8",
                             "--locale=C.UTF-8",   NULL };
    const char *single[] = { pg_tool(s, "postgres"), "--single", "-D", fresh, "postgres", NULL };

    log_info("making the database cluster (a few seconds)");
    if (file_remove_tree(fresh, err) != SBX_OK ||
        standalone_make_dir(fresh, 0700, s->postgres_user.uid, s->postgres_user.gid, err) != SBX_OK)
        return err->code;
    if (part_run_as(s->postgres_user.uid, s->postgres_user.gid, initdb, NULL, INITDB_MS, err) !=
        SBX_OK)
        return err_wrap(err, "initdb");
    if (part_run_as(s->postgres_user.uid, s->postgres_user.gid, single,
                    "CREATE ROLE sandboxd LOGIN\nCREATE DATABASE sandboxd OWNER sandboxd\n",
                    STANDALONE_TOOL_MS, err) != SBX_OK)
        return err_wrap(err, "make the database");
    if (rename(fresh, data) != 0)
        return err_sys(err, SBX_E_INTERNAL, "%s", data);
    return SBX_OK;
}

enum sbx_code standalone_start_postgres(struct standalone *s, struct sbx_err *err)
{
    const char *data = arena_printf(s->a, "%s/pg", s->state);
    const char *sockets = arena_printf(s->a, "%s/pg", s->run);
    const char **argv = arena_zalloc(s->a, sizeof(*argv) * STANDALONE_WORDS_MAX);
    const char *ready[] = { pg_tool(s, "pg_isready"), "-q", "-h", sockets, NULL };
    int64_t deadline = time_mono_ms() + STANDALONE_READY_MS;
    size_t n = 0;

    argv[n++] = pg_tool(s, "postgres");
    argv[n++] = "-D", argv[n++] = data;
    argv[n++] = "-k", argv[n++] = sockets;
    argv[n++] = "-c", argv[n++] = "listen_addresses=";
    argv[n++] = "-c", argv[n++] = "unix_socket_permissions=0777"; /* peer authentication decides */
    argv[n++] = "-c", argv[n++] = "max_connections=200";
    s->postgres = (struct part){ .name = "postgres",
                                 .argv = argv,
                                 .uid = s->postgres_user.uid,
                                 .gid = s->postgres_user.gid,
                                 .stop_signal = SIGINT, /* fast: rolls back what runs */
                                 .stop_timeout_ms = STOP_POSTGRES_MS };
    if (!file_exists(data) && make_cluster(s, data, err) != SBX_OK)
        return err->code;
    if (!part_adopt(&s->postgres)) {
        if (write_pg_access(s, data, err) != SBX_OK || part_start(&s->postgres, err) != SBX_OK)
            return err->code;
    }
    for (;;) {
        struct pollfd ended = { .fd = s->postgres.process.pidfd, .events = POLLIN };
        struct sbx_err not_yet = { .code = SBX_OK };

        if (part_run_as(s->postgres_user.uid, s->postgres_user.gid, ready, NULL, STANDALONE_TOOL_MS,
                        &not_yet) == SBX_OK)
            break;
        if (poll(&ended, 1, STANDALONE_READY_STEP_MS) > 0)
            return err_set(err, SBX_E_UNAVAILABLE,
                           "PostgreSQL ended at its start; its reason is above");
        if (time_mono_ms() > deadline)
            return err_set(err, SBX_E_TIMEOUT, "PostgreSQL was not ready in time");
    }
    return SBX_OK;
}
