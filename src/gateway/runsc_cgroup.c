#include "gateway/runsc_cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "base/time.h"

enum {
    PROCS_MAX = 1024 * 1024, /* bytes of cgroup.procs */
    POLL_MS = 2,
    CPU_PERIOD_US = 100000,
    V1_COUNT = 3,
};

enum kind { KIND_NONE, KIND_V1, KIND_V2 };

static const char *const V1_NAMES[V1_COUNT] = { "memory", "cpu", "pids" };

struct runsc_cgroups {
    enum kind kind;
    size_t count;          /* of roots: one for v2, one for each controller for v1 */
    char *roots[V1_COUNT]; /* <mount>[/<controller>]/<parent>/<tag> */
};

static enum sbx_code write_value(const char *dir, const char *file, const char *value,
                                 struct sbx_err *err)
{
    char path[PATH_MAX];
    SCOPED_FD int fd = -1;

    (void)snprintf(path, sizeof(path), "%s/%s", dir, file);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, value, strlen(value)) < 0)
        return err_sys(err, SBX_E_UNAVAILABLE, "control group file %s", file);
    return SBX_OK;
}

static enum sbx_code write_number(const char *dir, const char *file, int64_t value,
                                  struct sbx_err *err)
{
    char text[32];

    (void)snprintf(text, sizeof(text), "%" PRId64, value);
    return write_value(dir, file, text, err);
}

/* v2: a controller acts in a folder when every parent hands it down. */
static enum sbx_code hand_down(const char *mount, const char *parent, const char *tag,
                               struct sbx_err *err)
{
    char path[PATH_MAX];
    size_t base = strlen(mount);

    (void)snprintf(path, sizeof(path), "%s/%s/%s", mount, parent, tag);
    for (char *p = strchr(path + base, '/'); p != NULL; p = strchr(p + 1, '/')) {
        *p = 0;
        for (size_t i = 0; i < V1_COUNT; i++) {
            char add[32];
            struct sbx_err one = { 0 };

            (void)snprintf(add, sizeof(add), "+%s", V1_NAMES[i]);
            if (write_value(path, "cgroup.subtree_control", add, &one) != SBX_OK)
                return err_set(err, SBX_E_UNAVAILABLE,
                               "the control group tree does not hand down %s: %s", V1_NAMES[i],
                               one.msg);
        }
        *p = '/';
    }
    return SBX_OK;
}

static enum sbx_code open_v2(struct runsc_cgroups *g, const char *mount, const char *parent,
                             const char *tag, struct sbx_err *err)
{
    g->kind = KIND_V2;
    g->count = 1;
    g->roots[0] = mem_printf("%s/%s/%s", mount, parent, tag);
    if (file_make_dirs(g->roots[0], 0755, err) != SBX_OK ||
        hand_down(mount, parent, tag, err) != SBX_OK)
        return err->code;
    for (size_t i = 0; i < V1_COUNT; i++) {
        char add[32];

        (void)snprintf(add, sizeof(add), "+%s", V1_NAMES[i]);
        if (write_value(g->roots[0], "cgroup.subtree_control", add, err) != SBX_OK)
            return err->code;
    }
    return SBX_OK;
}

static enum sbx_code open_v1(struct runsc_cgroups *g, const char *mount, const char *parent,
                             const char *tag, struct sbx_err *err)
{
    g->kind = KIND_V1;
    g->count = V1_COUNT;
    for (size_t i = 0; i < V1_COUNT; i++) {
        SCOPED_FREE char *controller = mem_printf("%s/%s", mount, V1_NAMES[i]);

        g->roots[i] = mem_printf("%s/%s/%s", controller, parent, tag);
        if (!file_exists(controller))
            return err_set(err, SBX_E_UNAVAILABLE, "the control group controller %s is missing",
                           V1_NAMES[i]);
        if (file_make_dirs(g->roots[i], 0755, err) != SBX_OK)
            return err_wrap(err, "control group controller %s", V1_NAMES[i]);
    }
    return SBX_OK;
}

enum sbx_code runsc_cgroups_open(const char *mount, const char *parent, const char *tag,
                                 struct runsc_cgroups **out, struct sbx_err *err)
{
    struct runsc_cgroups *g = mem_zalloc(sizeof(*g));
    SCOPED_FREE char *v2 = mem_printf("%s/cgroup.controllers", mount);
    enum sbx_code code = SBX_OK;

    if (parent[0] == 0)
        g->kind = KIND_NONE;
    else if (file_exists(v2))
        code = open_v2(g, mount, parent, tag, err);
    else
        code = open_v1(g, mount, parent, tag, err);
    if (code != SBX_OK) {
        runsc_cgroups_close(g);
        return code == SBX_E_INTERNAL ? (err->code = SBX_E_UNAVAILABLE) : code;
    }
    *out = g;
    return SBX_OK;
}

void runsc_cgroups_close(struct runsc_cgroups *g)
{
    if (g == NULL)
        return;
    for (size_t i = 0; i < g->count; i++) {
        char *slash = g->roots[i] != NULL ? strrchr(g->roots[i], '/') : NULL;

        if (slash != NULL && rmdir(g->roots[i]) == 0) { /* empty: no sandbox runs on */
            *slash = 0;
            (void)rmdir(g->roots[i]); /* the parent too, when no other gateway has it */
        }
        free(g->roots[i]);
    }
    free(g);
}

const char *runsc_cgroups_kind(const struct runsc_cgroups *g)
{
    static const char *const NAMES[] = { "none", "v1", "v2" };

    return NAMES[g->kind];
}

static void dir_of(const struct runsc_cgroups *g, size_t i, const char *id, char out[PATH_MAX])
{
    (void)snprintf(out, PATH_MAX, "%s/%s", g->roots[i], id);
}

static enum sbx_code set_v1(const char *dir, size_t i, const struct runsc_limits *l,
                            struct sbx_err *err)
{
    struct sbx_err ignored = { 0 };

    if (i == 0 && l->memory_bytes > 0) {
        if (write_number(dir, "memory.limit_in_bytes", l->memory_bytes, err) != SBX_OK)
            return err->code;
        /* not there without swap accounting */
        (void)!write_number(dir, "memory.memsw.limit_in_bytes", l->memory_bytes, &ignored);
    }
    if (i == 2 && l->pids > 0)
        return write_number(dir, "pids.max", l->pids, err);
    return SBX_OK;
}

static enum sbx_code set_v2(const char *dir, const struct runsc_limits *l, struct sbx_err *err)
{
    struct sbx_err ignored = { 0 };

    if (l->memory_bytes > 0) {
        if (write_number(dir, "memory.max", l->memory_bytes, err) != SBX_OK)
            return err->code;
        (void)!write_number(dir, "memory.swap.max", 0, &ignored);
        ignored = (struct sbx_err){ 0 };
        (void)!write_number(dir, "memory.oom.group", 1, &ignored);
    }
    return l->pids > 0 ? write_number(dir, "pids.max", l->pids, err) : SBX_OK;
}

enum sbx_code runsc_cgroup_make(struct runsc_cgroups *g, const char *id,
                                const struct runsc_limits *limits, struct arena *a,
                                const char **procs, struct sbx_err *err)
{
    SCOPED_BUF struct buf list = BUF_INIT(4 * (size_t)PATH_MAX);

    for (size_t i = 0; i < g->count; i++) {
        char dir[PATH_MAX];
        struct sbx_err made = { 0 };
        enum sbx_code code;

        /* The last sandbox of another gateway's stop may have taken our parent with it. */
        if (file_make_dirs(g->roots[i], 0755, &made) != SBX_OK)
            return err_set(err, SBX_E_UNAVAILABLE, "%s", made.msg);
        dir_of(g, i, id, dir);
        if (mkdir(dir, 0755) < 0 && errno != EEXIST)
            return err_sys(err, SBX_E_UNAVAILABLE, "make a control group");
        code = g->kind == KIND_V2 ? set_v2(dir, limits, err) : set_v1(dir, i, limits, err);
        if (code != SBX_OK)
            return code;
        /* A lone thread that moves itself by v1's tasks needs no lock on all thread groups, and
         * with it no grace period (kernel 5.4, "cgroup: Optimize single thread migration"). */
        (void)buf_printf(&list, "%s%s/%s", i > 0 ? "," : "", dir,
                         g->kind == KIND_V1 ? "tasks" : "cgroup.procs");
    }
    *procs = g->count > 0 ? arena_strdup(a, list.data) : "-";
    return SBX_OK;
}

enum sbx_code runsc_cgroup_set_cpu(struct runsc_cgroups *g, const char *id, int64_t cpu_millis,
                                   struct sbx_err *err)
{
    int64_t quota = cpu_millis * CPU_PERIOD_US / 1000;
    struct sbx_err ignored = { 0 };
    char dir[PATH_MAX], text[64];

    if (g->kind == KIND_NONE || cpu_millis <= 0)
        return SBX_OK;
    dir_of(g, g->kind == KIND_V1 ? 1 : 0, id, dir);
    if (g->kind == KIND_V2) {
        (void)snprintf(text, sizeof(text), "%" PRId64 " %d", quota, CPU_PERIOD_US);
        if (write_value(dir, "cpu.max", text, err) == SBX_OK)
            (void)!write_number(dir, "cpu.max.burst", quota, &ignored);
        return err->code;
    }
    if (write_number(dir, "cpu.cfs_period_us", CPU_PERIOD_US, err) != SBX_OK)
        return err->code;
    if (write_number(dir, "cpu.cfs_quota_us", quota, err) == SBX_OK)
        (void)!write_number(dir, "cpu.cfs_burst_us", quota, &ignored);
    return err->code;
}

/* Kills what root i has of it; the number of processes seen. */
static size_t kill_once(const struct runsc_cgroups *g, size_t i, const char *id)
{
    char path[PATH_MAX + 16], dir[PATH_MAX];
    SCOPED_BUF struct buf b = BUF_INIT(PROCS_MAX);
    struct sbx_err ignored = { 0 };
    size_t seen = 0;

    dir_of(g, i, id, dir);
    (void)snprintf(path, sizeof(path), "%s/cgroup.procs", dir);
    if (file_read(path, &b, &ignored) != SBX_OK || b.data == NULL)
        return 0;
    for (char *p = b.data, *end; *p != 0; p = end) {
        long pid = strtol(p, &end, 10);

        if (end == p)
            break;
        while (*end == '\n')
            end++;
        if (pid <= 1)
            continue;
        seen++;
        (void)kill((pid_t)pid, SIGKILL); /* it is in the group: no other process has its number */
    }
    return seen;
}

enum sbx_code runsc_cgroup_kill(struct runsc_cgroups *g, const char *id, int timeout_ms,
                                struct sbx_err *err)
{
    int64_t deadline = time_mono_ms() + timeout_ms;

    for (;;) {
        size_t seen = 0;

        for (size_t i = 0; i < g->count; i++)
            seen += kill_once(g, i, id);
        if (seen == 0)
            return SBX_OK;
        if (time_mono_ms() > deadline)
            return err_set(err, SBX_E_TIMEOUT, "processes of a sandbox do not end");
        (void)poll(NULL, 0, POLL_MS); /* there is nothing to wait on but the list itself */
    }
}

enum sbx_code runsc_cgroup_remove(struct runsc_cgroups *g, const char *id, int timeout_ms,
                                  struct sbx_err *err)
{
    int64_t deadline = time_mono_ms() + timeout_ms;

    for (size_t i = 0; i < g->count; i++) {
        char dir[PATH_MAX];

        dir_of(g, i, id, dir);
        while (rmdir(dir) < 0 && errno != ENOENT) {
            if (errno != EBUSY || time_mono_ms() > deadline)
                return err_sys(err, SBX_E_INTERNAL, "remove a control group");
            (void)poll(NULL, 0, POLL_MS); /* its dead are not gone yet */
        }
    }
    return SBX_OK;
}

bool runsc_cgroup_oom(struct runsc_cgroups *g, const char *id)
{
    char path[PATH_MAX + 32], dir[PATH_MAX];
    SCOPED_BUF struct buf b = BUF_INIT(4096);
    struct sbx_err ignored = { 0 };
    const char *p;

    if (g->kind == KIND_NONE)
        return false;
    dir_of(g, 0, id, dir);
    (void)snprintf(path, sizeof(path), "%s/%s", dir,
                   g->kind == KIND_V2 ? "memory.events" : "memory.oom_control");
    if (file_read(path, &b, &ignored) != SBX_OK || b.data == NULL)
        return false;
    p = strstr(b.data, "oom_kill ");
    return p != NULL && strtoull(p + strlen("oom_kill "), NULL, 10) > 0;
}

void runsc_cgroups_each(struct runsc_cgroups *g, void (*fn)(void *arg, const char *id), void *arg)
{
    for (size_t i = 0; i < g->count; i++) {
        DIR *d = opendir(g->roots[i]);
        struct dirent *e;

        if (d == NULL)
            continue;
        while ((e = readdir(d)) != NULL) {
            if (e->d_type == DT_DIR && id_valid(e->d_name))
                fn(arg, e->d_name);
        }
        (void)closedir(d);
    }
}
