#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/scoped.h"
#include "base/str.h"
#include "gateway/runsc.h"
#include "gateway/runsc_disk.h"
#include "gateway/shim.h"

enum { VERSION_MAX = 4096, VERSION_MS = 10000, PROBE_FORMAT = 3 };

/* kvm is not among them: it may hang for ever although its device opens and makes machines, so
 * it is used only when the operator names it, and then the probe's deadline judges. */
static const char *const AUTO_PLATFORMS[] = { "systrap", "ptrace" };

/* One way to start a sandbox, tried for real. */
struct attempt {
    const char *platform;
    bool network;
    bool mask_net;
};

static enum sbx_code prepare_root(struct runsc *r, char root[RUNSC_PATH_SIZE], struct sbx_err *err)
{
    static const char *const FOLDERS[] = { "proc", "sys", "dev", "tmp", "run", "out" };
    SCOPED_ARENA struct arena *a = arena_new();
    SCOPED_BUF struct buf program = BUF_INIT(16 * 1024 * 1024);

    (void)snprintf(root, RUNSC_PATH_SIZE, "%s/p", r->dir);
    for (size_t i = 0; i < COUNT_OF(FOLDERS); i++) {
        if (file_make_dirs(arena_printf(a, "%s/%s", root, FOLDERS[i]), 0755, err) != SBX_OK)
            return err->code;
    }
    if (file_read(arena_printf(a, "%s/sandbox-probe", r->guest_dir), &program, err) != SBX_OK)
        return err_wrap(err, "read the probe program");
    return file_write(arena_printf(a, "%s/probe", root), program.data, program.len, 0755, false,
                      err);
}

/* Runs it and waits for its end; what it wrote is in *result. */
static enum sbx_code run_probe(struct runsc *r, const char *id, const struct attempt *t,
                               const char *root, struct buf *result, struct sbx_err *err)
{
    SCOPED_ARENA struct arena *a = arena_new();
    int timeout_ms = (int)config_int(r->config, "runsc", "probe_timeout_s") * 1000;
    const char *argv[] = { "/probe", NULL };
    const char *env[] = { NULL };
    struct driver_workload workload = { .argv = argv, .env = env, .cwd = "/" };
    struct runsc_bundle bundle = { .hostname = "probe",
                                   .rootfs = root,
                                   .own_netns = t->network,
                                   .memory_mb = 64,
                                   .workload = &workload };
    struct runsc_start how = { .platform = t->platform,
                               .network = t->network,
                               .mask_net = t->mask_net,
                               .overlay = true,
                               .timeout_ms = timeout_ms };
    struct runsc_limits limits = { 0 };
    struct process shim = { .pidfd = -1 };
    char path[RUNSC_PATH_SIZE];
    struct sbx_err end = { 0 };
    enum sbx_code code;
    int status = 0;

    runsc_path(r, id, "out", path);
    runsc_bundle_bind(&bundle, path, "/out", false);
    runsc_path(r, id, "d", path);
    code = file_make_dirs(path, 0700, err);
    if (code == SBX_OK)
        code = runsc_disk_make_plain(path, 0, 0, err);
    runsc_path(r, id, "out", path);
    if (code == SBX_OK)
        code = file_make_dirs(path, 0700, err);
    if (code == SBX_OK)
        code = runsc_run_write_config(r, id, &bundle, err);
    if (code == SBX_OK)
        code = runsc_cgroup_make(r->cgroups, id, &limits, a, &how.cgroups, err);
    if (code == SBX_OK)
        code = runsc_run_start(r, id, &how, &shim, err);
    if (code == SBX_OK)
        code = process_wait(&shim, timeout_ms, &status, err);
    runsc_path(r, id, "out/result", path);
    if (code == SBX_OK)
        code = file_read(path, result, err);
    if (runsc_run_end(r, id, &shim, &end) != SBX_OK && code == SBX_OK)
        code = err_set(err, end.code, "%s", end.msg);
    runsc_path(r, id, NULL, path);
    end = (struct sbx_err){ 0 };
    (void)!file_remove_tree(path, &end);
    return code;
}

static bool attempt(struct runsc *r, const struct attempt *t, const char *root, bool *statx_fault)
{
    SCOPED_BUF struct buf result = BUF_INIT(4096);
    struct sbx_err err = { 0 };
    char id[ID_SIZE];

    id_new(id);
    if (run_probe(r, id, t, root, &result, &err) != SBX_OK) {
        log_err(LOG_DEBUG, "probe failed", &err, LOG_S("platform", t->platform),
                LOG_B("network", t->network), LOG_B("maskNet", t->mask_net));
        return false;
    }
    if (result.data == NULL || strstr(result.data, "end\n") == NULL)
        return false;
    *statx_fault = strstr(result.data, "statx=0\n") == NULL;
    return true;
}

static enum sbx_code probe_platform(struct runsc *r, const char *root, struct sbx_err *err)
{
    const char *wanted = config_str(r->config, "runsc", "platform");
    bool chosen = strcmp(wanted, "auto") != 0;
    size_t count = chosen ? 1 : COUNT_OF(AUTO_PLATFORMS);

    for (size_t i = 0; i < count; i++) {
        struct attempt t = { .platform = chosen ? wanted : AUTO_PLATFORMS[i] };

        if (attempt(r, &t, root, &r->features.statx_fault)) {
            (void)str_copy(r->features.platform, sizeof(r->features.platform), t.platform);
            return SBX_OK;
        }
    }
    return err_set(err, SBX_E_UNAVAILABLE, "runsc runs no sandbox here (platform %s)", wanted);
}

static void probe_network(struct runsc *r, const char *root)
{
    struct attempt t = { .platform = r->features.platform, .network = true };
    bool ignored;

    for (int mask = 0; mask <= 1 && !r->features.network; mask++) {
        t.mask_net = mask == 1;
        r->features.network = attempt(r, &t, root, &ignored);
        r->features.mask_net = r->features.network && t.mask_net;
    }
}

static enum sbx_code read_version(struct runsc *r, struct sbx_err *err)
{
    SCOPED_BUF struct buf out = BUF_INIT(VERSION_MAX);
    const char *argv[] = { r->program, "--version", NULL };
    struct sbx_err run = { 0 };
    const char *text;

    if (process_run(argv, NULL, 0, &out, VERSION_MS, &run) != SBX_OK)
        return err_set(err, SBX_E_UNAVAILABLE, "the runsc program cannot be run; set [runsc] path");
    text = strstr(out.data, "version ");
    (void)str_copy(r->features.version, sizeof(r->features.version),
                   text != NULL ? text + strlen("version ") : out.data);
    r->features.version[strcspn(r->features.version, "\n")] = 0;
    return SBX_OK;
}

/* What the cache is good for: this runsc, this kernel, this wish. */
static const char *cache_key(struct runsc *r, struct arena *a)
{
    struct utsname u;
    struct stat st = { 0 };

    (void)uname(&u);
    (void)stat(r->program, &st);
    return arena_printf(a, "%d %s %s %s %" PRId64 " %" PRId64 ".%09ld", PROBE_FORMAT, u.release,
                        r->program, config_str(r->config, "runsc", "platform"), (int64_t)st.st_size,
                        (int64_t)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
}

static bool read_cache(struct runsc *r, const char *path, const char *key)
{
    SCOPED_BUF struct buf text = BUF_INIT(RUNSC_META_MAX);
    SCOPED_JSON json_t *j = NULL;
    struct sbx_err err = { 0 };
    struct runsc_features *f = &r->features;

    if (file_read(path, &text, &err) != SBX_OK ||
        json_parse_object(text.data, text.len, &j, &err) != SBX_OK ||
        strcmp(json_get_str(j, "key", ""), key) != 0)
        return false;
    (void)str_copy(f->platform, sizeof(f->platform), json_get_str(j, "platform", ""));
    (void)str_copy(f->version, sizeof(f->version), json_get_str(j, "version", ""));
    f->network = json_get_bool(j, "network", false);
    f->mask_net = json_get_bool(j, "maskNet", false);
    f->statx_fault = json_get_bool(j, "statxFault", false);
    f->disk = json_get_bool(j, "disk", false);
    return f->platform[0] != 0;
}

static void write_cache(struct runsc *r, const char *path, const char *key)
{
    const struct runsc_features *f = &r->features;
    SCOPED_JSON json_t *j = json_object();
    SCOPED_BUF struct buf text = BUF_INIT(RUNSC_META_MAX);
    struct sbx_err err = { 0 };

    json_put_str(j, "key", key);
    json_put_str(j, "platform", f->platform);
    json_put_str(j, "version", f->version);
    json_put_bool(j, "network", f->network);
    json_put_bool(j, "maskNet", f->mask_net);
    json_put_bool(j, "statxFault", f->statx_fault);
    json_put_bool(j, "disk", f->disk);
    if (json_write(&text, j))
        (void)!file_write(path, text.data, text.len, 0600, false, &err);
}

enum sbx_code runsc_probe(struct runsc *r, struct sbx_err *err)
{
    SCOPED_ARENA struct arena *a = arena_new();
    char root[RUNSC_PATH_SIZE], templates[RUNSC_PATH_SIZE];
    const char *cache = arena_printf(a, "%s/probe", r->dir);
    const char *key = cache_key(r, a);
    struct sbx_err disk = { 0 };
    bool known;

    (void)snprintf(templates, sizeof(templates), "%s/t", r->dir);
    known = read_cache(r, cache, key);
    /* Only success is remembered: a disk that is full now says nothing of the host. */
    if (!r->features.disk)
        r->features.disk = runsc_disk_probe(templates, &disk) == SBX_OK;
    if (!r->features.disk)
        log_err(LOG_WARN, "sandboxes have no disk limit on this host", &disk);
    if (known)
        return SBX_OK;
    if (read_version(r, err) != SBX_OK || prepare_root(r, root, err) != SBX_OK ||
        probe_platform(r, root, err) != SBX_OK)
        return err->code;
    probe_network(r, root);
    write_cache(r, cache, key);
    return SBX_OK;
}
