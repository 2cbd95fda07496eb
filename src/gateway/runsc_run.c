#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/scoped.h"
#include "base/str.h"
#include "gateway/runsc.h"
#include "gateway/runsc_disk.h"
#include "gateway/shim.h"

enum { CONFIG_MAX = 8 * 1024 * 1024, STATE_NAME_MAX = 128 };

void runsc_path(const struct runsc *r, const char *id, const char *name, char out[RUNSC_PATH_SIZE])
{
    (void)snprintf(out, RUNSC_PATH_SIZE, "%s/x/%s%s%s", r->dir, id, name != NULL ? "/" : "",
                   name != NULL ? name : "");
}

enum sbx_code runsc_run_write_config(struct runsc *r, const char *id, const struct runsc_bundle *b,
                                     struct sbx_err *err)
{
    SCOPED_JSON json_t *j = runsc_bundle_json(b);
    SCOPED_BUF struct buf text = BUF_INIT(CONFIG_MAX);
    char path[RUNSC_PATH_SIZE];

    if (!json_write(&text, j))
        return err_set(err, SBX_E_TOO_LARGE, "the sandbox's configuration is too large");
    runsc_path(r, id, "config.json", path);
    return file_write(path, text.data, text.len, 0600, false, err);
}

enum sbx_code runsc_run_start(struct runsc *r, const char *id, const struct runsc_start *how,
                              struct process *shim, struct sbx_err *err)
{
    SCOPED_ARENA struct arena *a = arena_new();
    char folder[RUNSC_PATH_SIZE], log[RUNSC_PATH_SIZE];
    const char *argv[24];
    size_t n = 0;
    struct shim_spec spec;

    runsc_path(r, id, NULL, folder);
    runsc_path(r, id, "log", log);
    argv[n++] = r->program;
    argv[n++] = arena_printf(a, "--root=%s/r", r->dir);
    argv[n++] = arena_printf(a, "--platform=%s", how->platform);
    argv[n++] = how->network ? "--network=sandbox" : "--network=none";
    argv[n++] = "--ignore-cgroups";
    argv[n++] = "--host-uds=open";
    argv[n++] = how->overlay ? "--overlay2=root:memory" : "--overlay2=none";
    argv[n++] = arena_printf(a, "--log=%s", log);
    if (how->uncached)
        argv[n++] = "--dcache=0";
    argv[n++] = "run";
    argv[n++] = "--detach";
    argv[n++] = "--bundle";
    argv[n++] = folder;
    argv[n++] = id;
    argv[n] = NULL;
    spec = (struct shim_spec){ .folder = folder,
                               .mask_net = how->mask_net,
                               .cgroups = how->cgroups,
                               .runtime = argv,
                               .timeout_ms = how->timeout_ms };
    return shim_start(&spec, shim, err);
}

static void state_path(const struct runsc *r, const char *id, const char *kind,
                       char out[RUNSC_PATH_SIZE])
{
    (void)snprintf(out, RUNSC_PATH_SIZE, "%s/r/%s_sandbox:%s.%s", r->dir, id, id, kind);
}

static enum sbx_code delete_state(struct runsc *r, const char *id, struct sbx_err *err)
{
    SCOPED_ARENA struct arena *a = arena_new();
    const char *argv[] = { r->program, arena_printf(a, "--root=%s/r", r->dir),
                           "delete",   "--force",
                           id,         NULL };
    char path[RUNSC_PATH_SIZE];

    state_path(r, id, "state", path);
    if (file_exists(path) && process_run(argv, NULL, 0, NULL, RUNSC_DELETE_MS, err) != SBX_OK)
        return err->code;
    state_path(r, id, "lock", path); /* a start that was killed leaves it behind */
    (void)unlink(path);
    return SBX_OK;
}

/* The shim ends by itself once its last child is reaped. */
static void end_shim(struct process *shim)
{
    struct sbx_err ignored = { 0 };
    int status = 0;

    if (shim->pid <= 0)
        return;
    process_kill(shim, SIGTERM);
    if (process_wait(shim, RUNSC_KILL_MS, &status, &ignored) != SBX_OK)
        process_end(shim);
}

enum sbx_code runsc_run_end(struct runsc *r, const char *id, struct process *shim,
                            struct sbx_err *err)
{
    char path[RUNSC_PATH_SIZE];
    struct sbx_err ignored = { 0 };

    if (shim->pid <= 0) {
        runsc_path(r, id, NULL, path);
        (void)!shim_find(path, &shim->pid, &shim->pidfd, &ignored);
    }
    if (runsc_cgroup_kill(r->cgroups, id, RUNSC_KILL_MS, err) != SBX_OK)
        return err->code;
    end_shim(shim);
    /* A runtime that was being started when the first round ran. */
    if (runsc_cgroup_kill(r->cgroups, id, RUNSC_KILL_MS, err) != SBX_OK)
        return err->code;
    if (delete_state(r, id, err) != SBX_OK)
        return err_wrap(err, "delete a sandbox");
    if (runsc_cgroup_remove(r->cgroups, id, RUNSC_KILL_MS, err) != SBX_OK)
        return err->code;
    runsc_path(r, id, "m", path);
    if (runsc_disk_drop(path, err) != SBX_OK)
        return err->code;
    runsc_path(r, id, "d", path);
    return runsc_disk_drop(path, err);
}

struct ids {
    struct arena *arena;
    const char **items;
    size_t count, cap;
};

static void add_id(void *arg, const char *id)
{
    struct ids *ids = arg;

    if (ids->count + 1 >= ids->cap) {
        size_t cap = ids->cap == 0 ? 64 : ids->cap * 2;
        const char **items = arena_zalloc(ids->arena, cap * sizeof(*items));

        if (ids->count > 0)
            memcpy(items, ids->items, ids->count * sizeof(*items));
        ids->items = items;
        ids->cap = cap;
    }
    ids->items[ids->count++] = arena_strdup(ids->arena, id);
    ids->items[ids->count] = NULL;
}

/* Names in a folder that begin with an id. */
static void add_folder(struct ids *ids, const char *path)
{
    DIR *d = opendir(path);
    struct dirent *e;

    if (d == NULL)
        return;
    while ((e = readdir(d)) != NULL) {
        char id[ID_SIZE];

        (void)str_copy(id, sizeof(id), e->d_name);
        if (id_valid(id))
            add_id(ids, id);
    }
    (void)closedir(d);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

const char **runsc_run_list(struct runsc *r, struct arena *a)
{
    struct ids ids = { .arena = a };
    char path[RUNSC_PATH_SIZE];
    size_t kept = 0;

    add_id(&ids, "");
    ids.count = 0;
    (void)snprintf(path, sizeof(path), "%s/x", r->dir);
    add_folder(&ids, path);
    (void)snprintf(path, sizeof(path), "%s/r", r->dir);
    add_folder(&ids, path);
    runsc_cgroups_each(r->cgroups, add_id, &ids);
    if (ids.count > 0)
        qsort(ids.items, ids.count, sizeof(*ids.items), by_text);
    for (size_t i = 0; i < ids.count; i++) {
        if (kept == 0 || strcmp(ids.items[kept - 1], ids.items[i]) != 0)
            ids.items[kept++] = ids.items[i];
    }
    ids.items[kept] = NULL;
    return ids.items;
}

/* ---- meta ---- */

enum sbx_code runsc_meta_write(struct runsc *r, const char *id, const struct runsc_meta *m,
                               struct sbx_err *err)
{
    SCOPED_JSON json_t *j = json_object();
    SCOPED_BUF struct buf text = BUF_INIT(RUNSC_META_MAX);
    char path[RUNSC_PATH_SIZE];

    json_put_str(j, "digest", m->digest);
    json_put_bool(j, "network", m->network);
    json_put_int(j, "cpuMillis", m->cpu_millis);
    (void)json_write(&text, j);
    runsc_path(r, id, "meta", path);
    return file_write(path, text.data, text.len, 0600, false, err);
}

bool runsc_meta_read(struct runsc *r, const char *id, struct runsc_meta *m)
{
    SCOPED_BUF struct buf text = BUF_INIT(RUNSC_META_MAX);
    SCOPED_JSON json_t *j = NULL;
    struct sbx_err err = { 0 };
    char path[RUNSC_PATH_SIZE];

    *m = (struct runsc_meta){ 0 };
    runsc_path(r, id, "meta", path);
    if (file_read(path, &text, &err) != SBX_OK ||
        json_parse_object(text.data, text.len, &j, &err) != SBX_OK)
        return false;
    (void)str_copy(m->digest, sizeof(m->digest), json_get_str(j, "digest", ""));
    m->network = json_get_bool(j, "network", false);
    m->cpu_millis = json_get_int(j, "cpuMillis", 0);
    return true;
}
