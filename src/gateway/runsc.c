#include "gateway/runsc.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "gateway/runsc_disk.h"
#include "gateway/shim.h"

static const char expedite_path[] = "/sys/kernel/rcu_expedited",
                  expedite_lock[] = "/run/sandboxd-expedite.lock";

enum { CONFIG_MAX = 4 * 1024 * 1024, TAG_LEN = 5, GUEST_PROGRAM_MAX = 64 * 1024 * 1024 };

static struct runsc *of(struct driver *d)
{
    return (struct runsc *)(void *)d;
}

/* ---- open and close ---- */

static const char *find_program(struct arena *a, const char *name)
{
    const char *path = getenv("PATH");
    char *list = arena_strdup(a, path != NULL ? path : "/usr/sbin:/usr/bin:/sbin:/bin");
    char *save = NULL;

    if (strchr(name, '/') != NULL)
        return arena_strdup(a, name);
    for (char *dir = strtok_r(list, ":", &save); dir != NULL; dir = strtok_r(NULL, ":", &save)) {
        char *full = arena_printf(a, "%s/%s", dir, name);

        if (access(full, X_OK) == 0)
            return full;
    }
    return arena_strdup(a, name);
}

static enum sbx_code make_folders(struct runsc *r, struct sbx_err *err)
{
    static const char *const NAMES[] = { "x", "r", "t", "p", "i", "e" };
    struct sockaddr_un un;
    char longest[RUNSC_PATH_SIZE];

    runsc_path(r, "00000000000000000000000000", "a/agent.sock", longest);
    if (strlen(longest) >= sizeof(un.sun_path))
        return err_set(err, SBX_E_INVALID,
                       "[state] dir is too long: unix sockets live below it, use at most %zu bytes",
                       sizeof(un.sun_path) - 1 - (strlen(longest) - strlen(r->dir)));
    if (file_make_dirs(r->dir, 0700, err) != SBX_OK)
        return err->code;
    file_sweep(r->dir);
    for (size_t i = 0; i < COUNT_OF(NAMES); i++) {
        char path[RUNSC_PATH_SIZE];

        (void)snprintf(path, sizeof(path), "%s/%s", r->dir, NAMES[i]);
        if (file_make_dirs(path, 0700, err) != SBX_OK)
            return err->code;
        file_sweep(path);
    }
    runsc_disk_sweep(arena_printf(r->arena, "%s/t", r->dir));
    return SBX_OK;
}

static struct image_store_config images_of(const struct runsc *r, const struct config *config,
                                           struct arena *a)
{
    size_t count;

    return (struct image_store_config){
        .dir = arena_printf(a, "%s/i", r->dir),
        .cache_max_bytes = config_int(config, "images", "cache_max_mb") << 20,
        .image_max_bytes = config_int(config, "images", "image_max_mb") << 20,
        .pull_timeout_ms = (int)config_int(config, "images", "pull_timeout_s") * 1000,
        .unpack_timeout_ms = (int)config_int(config, "images", "unpack_timeout_s") * 1000,
        .insecure_registries = config_list(config, "images", "insecure_registries", a, &count),
        .internal_registries = config_list(config, "images", "internal_registries", a, &count),
    };
}

static enum sbx_code open_images(struct runsc *r, struct sbx_err *err)
{
    struct image_store_config c = images_of(r, r->config, r->arena);

    return image_store_open(&c, &r->images, err);
}

/* A region host can do without a network: then every sandbox is without one, or refused. */
static void open_egress(struct runsc *r, const char *tag)
{
    size_t count;
    const char *pool = config_str(r->config, "egress", "pool");
    const char *helper[] = { "/proc/self/exe", "egress-helper", NULL };
    struct egress_config c = {
        .dir = arena_printf(r->arena, "%s/e", r->dir),
        .tag = tag,
        .pool = pool[0] != 0 ? pool : NULL,
        .pool6 = config_str(r->config, "egress", "pool6"),
        .upstream = config_list(r->config, "egress", "upstream", r->arena, &count),
        .deny = config_list(r->config, "egress", "deny", r->arena, &count),
        .ports = config_list(r->config, "egress", "proxy_ports", r->arena, &count),
    };
    struct sbx_err err = { 0 };
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (n > 0) {
        self[n] = 0;
        helper[0] = arena_strdup(r->arena, self);
        c.helper = helper;
    }
    if (c.upstream[0] == NULL)
        c.upstream = NULL;
    if (!config_bool(r->config, "egress", "enabled")) {
        (void)str_copy(r->egress_error, sizeof(r->egress_error), "switched off");
        return;
    }
    if (!r->features.network) {
        (void)str_copy(r->egress_error, sizeof(r->egress_error),
                       "this runsc starts no sandbox with a network here");
        return;
    }
    if (egress_open(&c, &r->egress, &err) != SBX_OK) {
        (void)str_copy(r->egress_error, sizeof(r->egress_error), err.msg);
        log_err(LOG_WARN, "sandboxes have no network", &err);
    }
}

static void runsc_close(struct driver *d)
{
    struct runsc *r = of(d);

    bool empty = r->boxes.count == 0;

    runsc_watch_close(r);
    if (empty) /* nothing needs the kernel's part: a stop without sandboxes leaves a clean host */
        egress_purge(r->egress);
    else
        egress_close(r->egress);
    image_store_close(r->images);
    ID_MAP_EACH(&r->holds, slot)
    {
        free(slot->value);
    }
    id_map_fini(&r->holds);
    runsc_cgroups_close(r->cgroups);
    runsc_expedite_close(r->expedite);
    (void)pthread_mutex_destroy(&r->lock);
    arena_free(r->arena);
    free(r);
}

/* A copy of what goes into sandboxes, on the file system where they can link to it. */
static enum sbx_code keep_guest(struct runsc *r, const char *from, const char *name,
                                struct sbx_err *err)
{
    SCOPED_BUF struct buf program = BUF_INIT(GUEST_PROGRAM_MAX);
    char path[RUNSC_PATH_SIZE];

    (void)snprintf(path, sizeof(path), "%s/t/%s", r->dir, name);
    if (file_read(from, &program, err) != SBX_OK)
        return err_wrap(err, "[agent] path");
    return file_write(path, program.data, program.len, 0755, false, err);
}

static enum sbx_code open_parts(struct runsc *r, struct sbx_err *err)
{
    unsigned char digest[SHA256_LEN];
    char hex[SHA256_HEX_SIZE], tag[TAG_LEN + 1];

    /* Two gateways of one host never share a name in the kernel: the tag comes from the folder. */
    sha256_of(r->dir, strlen(r->dir), digest);
    hash_hex(digest, sizeof(digest), hex);
    (void)str_copy(tag, sizeof(tag), hex);
    if (make_folders(r, err) != SBX_OK || keep_guest(r, r->agent, "agent", err) != SBX_OK ||
        keep_guest(r, arena_printf(r->arena, "%s/sandbox-statx.so", r->guest_dir), "statx.so",
                   err) != SBX_OK ||
        keep_guest(r, arena_printf(r->arena, "%s/sandbox-probe", r->guest_dir), "probe", err) !=
            SBX_OK)
        return err->code;
    if (config_bool(r->config, "runsc", "expedite"))
        r->expedite = runsc_expedite_open(expedite_path, expedite_lock);
    if (runsc_cgroups_open("/sys/fs/cgroup", config_str(r->config, "runsc", "cgroup_parent"), tag,
                           &r->cgroups, err) != SBX_OK ||
        runsc_watch_open(r, err) != SBX_OK || runsc_probe(r, err) != SBX_OK ||
        open_images(r, err) != SBX_OK)
        return err->code;
    open_egress(r, tag);
    return SBX_OK;
}

static enum sbx_code runsc_open(const struct config *config, const struct driver_events *events,
                                struct driver **out, struct sbx_err *err)
{
    struct runsc *r = mem_zalloc(sizeof(*r));
    char *slash;

    r->base.ops = &driver_runsc;
    r->events = *events;
    r->config = config;
    r->arena = arena_new();
    r->epoll = r->wake = -1;
    r->dir = config_str(config, "state", "dir");
    r->program = find_program(r->arena, config_str(config, "runsc", "path"));
    r->agent = config_str(config, "agent", "path");
    r->guest_dir = arena_strdup(r->arena, r->agent);
    slash = strrchr(r->guest_dir, '/');
    if (slash != NULL)
        *slash = 0;
    (void)pthread_mutex_init(&r->lock, NULL);
    if (open_parts(r, err) != SBX_OK) {
        runsc_close(&r->base);
        return err->code;
    }
    *out = &r->base;
    return SBX_OK;
}

static enum sbx_code runsc_reload(struct driver *d, const struct config *fresh, bool check,
                                  struct sbx_err *err)
{
    SCOPED_ARENA struct arena *a = arena_new();
    struct runsc *r = of(d);
    struct image_store_config images = images_of(r, fresh, a);
    size_t count;

    if (r->egress != NULL &&
        egress_set_deny(r->egress, config_list(fresh, "egress", "deny", a, &count), check, err) !=
            SBX_OK)
        return err->code;
    if (!check)
        image_store_configure(r->images, &images);
    return SBX_OK;
}

/* ---- start, destroy, observe ---- */

static enum sbx_code runsc_start(struct driver *d, const struct driver_spec *spec,
                                 struct sbx_err *err)
{
    struct runsc *r = of(d);
    SCOPED_ARENA struct arena *a = arena_new();
    struct egress_lease lease = { 0 };
    struct sbx_err ignored = { 0 };
    struct runsc_start how = {
        .platform = r->features.platform,
        .mask_net = r->features.mask_net,
        .overlay = !r->features.disk,
        .uncached = spec->mount.source != NULL && spec->mount.uncached,
        .timeout_ms = (int)config_int(r->config, "runsc", "start_timeout_s") * 1000,
    };
    struct runsc_limits limits = {
        .memory_bytes = (spec->memory_mb + RUNSC_MEMORY_OVERHEAD_MB) << 20,
        .pids = config_int(r->config, "runsc", "pids_max"),
    };
    struct process shim = { .pidfd = -1 };

    if (r->egress != NULL && egress_find(r->egress, spec->id, &lease, &ignored) == SBX_OK)
        how.network = lease.netns[0] != 0;
    how.mask_net = how.mask_net && how.network;
    if (runsc_cgroup_make(r->cgroups, spec->id, &limits, a, &how.cgroups, err) != SBX_OK)
        return err->code;
    runsc_expedite_begin(r->expedite);
    (void)!runsc_run_start(r, spec->id, &how, &shim, err);
    runsc_expedite_end(r->expedite);
    if (err->code != SBX_OK)
        return err->code;
    if (runsc_watch_add(r, spec->id, &shim, err) != SBX_OK) {
        fd_close(&shim.pidfd); /* destroy finds it by its folder */
        return err->code;
    }
    return SBX_OK;
}

static enum sbx_code runsc_running(struct driver *d, const struct driver_spec *spec,
                                   struct sbx_err *err)
{
    return runsc_cgroup_set_cpu(of(d)->cgroups, spec->id, spec->cpu_millis, err);
}

static enum sbx_code take_away(struct runsc *r, const char *id, struct sbx_err *err)
{
    struct process shim;
    char path[RUNSC_PATH_SIZE];

    runsc_watch_take(r, id, &shim);
    if (runsc_run_end(r, id, &shim, err) != SBX_OK)
        return err->code;
    if (r->egress != NULL && egress_detach(r->egress, id, err) != SBX_OK)
        return err->code;
    runsc_hold_drop(r, id);
    runsc_path(r, id, NULL, path);
    return file_remove_tree(path, err);
}

static enum sbx_code runsc_destroy(struct driver *d, const char *id, struct sbx_err *err)
{
    struct runsc *r = of(d);

    runsc_expedite_begin(r->expedite);
    (void)!take_away(r, id, err);
    runsc_expedite_end(r->expedite);
    return err->code;
}

static enum sbx_code runsc_observe(struct driver *d, const char *id, struct driver_state *out,
                                   struct sbx_err *err)
{
    struct runsc *r = of(d);
    char path[RUNSC_PATH_SIZE];

    (void)err;
    runsc_path(r, id, NULL, path);
    *out = (struct driver_state){ .exists = file_exists(path) };
    (void)runsc_watch_alive(r, id, &out->alive);
    out->oom_killed = out->exists && runsc_cgroup_oom(r->cgroups, id);
    if (out->exists && !out->alive)
        (void)str_copy(out->reason, sizeof(out->reason),
                       out->oom_killed ? "the sandbox ran out of memory and was ended"
                                       : "the sandbox's processes ended");
    return SBX_OK;
}

/* ---- after a restart ---- */

static enum sbx_code runsc_list(struct driver *d, struct arena *a, const char ***out,
                                struct sbx_err *err)
{
    (void)err;
    *out = runsc_run_list(of(d), a);
    return SBX_OK;
}

static enum sbx_code runsc_adopt(struct driver *d, const char *id, int *listen_fd,
                                 struct sbx_err *err)
{
    struct runsc *r = of(d);
    struct process shim = { .pidfd = -1 };
    struct runsc_meta meta;
    char path[RUNSC_PATH_SIZE];
    SCOPED_FD int fd = -1;

    runsc_path(r, id, NULL, path);
    if (!runsc_meta_read(r, id, &meta) || shim_find(path, &shim.pid, &shim.pidfd, err) != SBX_OK)
        return err->code != SBX_OK ? err->code : err_set(err, SBX_E_NOT_FOUND, "it does not run");
    runsc_path(r, id, "a/agent.sock", path);
    if (image_hold(r->images, meta.digest, err) == SBX_OK)
        runsc_hold_note(r, id, meta.digest);
    if (err->code != SBX_OK ||
        (file_exists(path) && runsc_listen_agent(r, id, &fd, err) != SBX_OK) ||
        runsc_watch_add(r, id, &shim, err) != SBX_OK) {
        fd_close(&shim.pidfd);
        err->code = SBX_E_NOT_FOUND; /* destroy takes away what is left, and the hold */
        return err->code;
    }
    *listen_fd = fd;
    fd = -1;
    return SBX_OK;
}

static bool is_ours(void *arg, const char *id)
{
    bool alive;

    return runsc_watch_alive(arg, id, &alive);
}

static enum sbx_code runsc_settle(struct driver *d, struct sbx_err *err)
{
    struct runsc *r = of(d);
    size_t removed = 0;

    if (r->egress == NULL)
        return SBX_OK;
    return egress_sweep(r->egress, is_ours, r, &removed, err);
}

/* ---- what it is ---- */

static json_t *runsc_features_json(struct driver *d)
{
    struct runsc *r = of(d);
    const struct runsc_features *f = &r->features;
    json_t *j = json_object();

    json_put_str(j, "runsc", f->version);
    json_put_str(j, "platform", f->platform);
    json_put_bool(j, "statxCure", f->statx_fault);
    json_put_bool(j, "networkCure", f->mask_net);
    json_put_bool(j, "diskLimit", f->disk);
    json_put_str(j, "cgroups", runsc_cgroups_kind(r->cgroups));
    json_put_bool(j, "expedite", r->expedite != NULL);
    if (r->egress != NULL)
        json_put_new(j, "egress", egress_features(r->egress));
    else
        json_put_str(j, "egressMissing", r->egress_error);
    return j;
}

static int64_t runsc_disk_free(struct driver *d)
{
    struct statvfs v;

    if (statvfs(of(d)->dir, &v) < 0)
        return 0;
    return (int64_t)(v.f_bavail * (v.f_frsize >> 10) >> 10);
}

/* Looks into the image's own root, which nothing inside can change. */
static enum sbx_code runsc_has_program(struct driver *d, const char *id, const char *path,
                                       bool *out, struct sbx_err *err)
{
    struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT };
    SCOPED_BUF struct buf text = BUF_INIT(CONFIG_MAX);
    SCOPED_JSON json_t *config = NULL;
    char file[RUNSC_PATH_SIZE];
    struct stat st;

    runsc_path(of(d), id, "config.json", file);
    if (file_read(file, &text, err) != SBX_OK ||
        json_parse_object(text.data, text.len, &config, err) != SBX_OK)
        return err->code;
    SCOPED_FD int root = open(json_get_str(json_object_get(config, "root"), "path", ""),
                              O_PATH | O_DIRECTORY | O_CLOEXEC);
    SCOPED_FD int fd = root < 0 ? -1 : (int)syscall(SYS_openat2, root, path, &how, sizeof(how));

    *out = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 0111) != 0;
    return SBX_OK;
}

static enum sbx_code runsc_dial_proxy(struct driver *d, const char *id, int *out,
                                      struct sbx_err *err)
{
    struct runsc *r = of(d);

    if (r->egress == NULL)
        return err_set(err, SBX_E_FORBIDDEN, "this region has no proxy");
    return egress_dial_proxy(r->egress, id, out, err);
}

static struct image_store *runsc_images(struct driver *d)
{
    return of(d)->images;
}

static struct egress *runsc_egress(struct driver *d)
{
    return of(d)->egress;
}

const struct driver_ops driver_runsc = {
    .name = "runsc",
    .open = runsc_open,
    .close = runsc_close,
    .reload = runsc_reload,
    .prepare = runsc_prepare,
    .start = runsc_start,
    .running = runsc_running,
    .destroy = runsc_destroy,
    .observe = runsc_observe,
    .list = runsc_list,
    .adopt = runsc_adopt,
    .settle = runsc_settle,
    .features = runsc_features_json,
    .disk_free_mb = runsc_disk_free,
    .has_program = runsc_has_program,
    .dial_proxy = runsc_dial_proxy,
    .images = runsc_images,
    .egress = runsc_egress,
};
