#include "gateway/runsc_bundle.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "sbx/agent.h"

#define DEFAULT_PATH  "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define DEFAULT_CWD   "/workspace"
#define TEXT_OF(x)    TEXT_OF_(x)
#define TEXT_OF_(x)   #x
#define PROXY_ADDRESS "http://127.0.0.1:" TEXT_OF(SBX_AGENT_PROXY_PORT)

/* An OCI runtime's default set without what gVisor gives no use for (raw sockets, device nodes,
 * audit).  For a first process that is the tenant's own. */
static const char *const WORKLOAD_CAPABILITIES[] = {
    "CAP_CHOWN",  "CAP_DAC_OVERRIDE", "CAP_FOWNER",  "CAP_FSETID",           "CAP_KILL",
    "CAP_SETGID", "CAP_SETUID",       "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT",
};
static const char *const AGENT_CAPABILITIES[] = { SBX_AGENT_CAPABILITIES };

static const char *const PROXY_VARIABLES[] = {
    "HTTP_PROXY=" PROXY_ADDRESS,
    "HTTPS_PROXY=" PROXY_ADDRESS,
    "http_proxy=" PROXY_ADDRESS,
    "https_proxy=" PROXY_ADDRESS,
};

void runsc_bundle_bind(struct runsc_bundle *b, const char *source, const char *target,
                       bool read_only)
{
    assert(b->bind_count < RUNSC_BINDS_MAX);
    b->binds[b->bind_count++] = (struct runsc_bind){ source, target, read_only };
}

static json_t *strings_of(const char *const *items, size_t count)
{
    json_t *list = json_array();

    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(list, json_string(items[i]));
    return list;
}

static size_t count_of(const char *const *items)
{
    size_t n = 0;

    while (items != NULL && items[n] != NULL)
        n++;
    return n;
}

static json_t *capabilities(bool agent, bool root)
{
    const char *const *names = agent ? AGENT_CAPABILITIES : WORKLOAD_CAPABILITIES;
    size_t count = agent ? COUNT_OF(AGENT_CAPABILITIES) : COUNT_OF(WORKLOAD_CAPABILITIES);
    json_t *set = json_object();

    if (!agent && !root)
        count = 0;
    (void)json_object_set_new(set, "bounding", strings_of(names, count));
    (void)json_object_set_new(set, "effective", strings_of(names, count));
    (void)json_object_set_new(set, "permitted", strings_of(names, count));
    return set;
}

static json_t *rlimit(const char *type, uint64_t value)
{
    return json_pack("{s:s, s:I, s:I}", "type", type, "soft", (json_int_t)value, "hard",
                     (json_int_t)value);
}

static json_t *user_of(const struct runsc_bundle *b)
{
    json_t *user = json_object();
    json_t *groups = json_array();
    bool agent = b->agent != NULL;

    json_put_int(user, "uid", agent ? 0 : b->workload->uid);
    json_put_int(user, "gid", agent ? 0 : b->workload->gid);
    for (size_t i = 0; !agent && i < b->workload->group_count; i++)
        (void)json_array_append_new(groups, json_integer(b->workload->groups[i]));
    json_put_new(user, "additionalGids", groups);
    return user;
}

static json_t *process(const struct runsc_bundle *b)
{
    const char *agent_args[] = { b->agent };
    const char *agent_env[] = { DEFAULT_PATH };
    bool agent = b->agent != NULL;
    json_t *p = json_object();
    json_t *limits = json_array();

    json_put_bool(p, "terminal", false);
    json_put_bool(p, "noNewPrivileges", true);
    json_put_new(p, "user", user_of(b));
    json_put_str(p, "cwd", agent ? "/" : b->workload->cwd);
    if (agent) {
        json_put_new(p, "args", strings_of(agent_args, 1));
        json_put_new(p, "env", strings_of(agent_env, 1));
    } else {
        json_put_new(p, "args", strings_of(b->workload->argv, count_of(b->workload->argv)));
        json_put_new(p, "env", strings_of(b->workload->env, count_of(b->workload->env)));
    }
    json_put_new(p, "capabilities", capabilities(agent, !agent && b->workload->uid == 0));
    (void)json_array_append_new(limits, rlimit("RLIMIT_NOFILE", RUNSC_NOFILE));
    if (!agent && b->workload->nproc > 0)
        (void)json_array_append_new(limits, rlimit("RLIMIT_NPROC", b->workload->nproc));
    json_put_new(p, "rlimits", limits);
    return p;
}

static void add_mount(json_t *mounts, const char *target, const char *type, const char *source,
                      json_t *options)
{
    json_t *m = json_object();

    json_put_str(m, "destination", target);
    json_put_str(m, "type", type);
    json_put_str(m, "source", source);
    json_put_new(m, "options", options);
    (void)json_array_append_new(mounts, m);
}

static json_t *tmpfs_options(const char *mode, int64_t size_mb)
{
    char mode_text[32], size_text[48];

    (void)snprintf(mode_text, sizeof(mode_text), "mode=%s", mode);
    (void)snprintf(size_text, sizeof(size_text), "size=%" PRId64 "m", size_mb);
    return json_pack("[s, s, s, s]", "nosuid", "nodev", mode_text, size_text);
}

static json_t *mounts_of(const struct runsc_bundle *b)
{
    int64_t half = b->memory_mb / 2 > 16 ? b->memory_mb / 2 : 16;
    json_t *mounts = json_array();

    add_mount(mounts, "/proc", "proc", "proc", json_pack("[s, s, s]", "nosuid", "noexec", "nodev"));
    add_mount(mounts, "/sys", "sysfs", "sysfs",
              json_pack("[s, s, s, s]", "nosuid", "noexec", "nodev", "ro"));
    add_mount(mounts, "/dev/shm", "tmpfs", "shm", tmpfs_options("1777", half));
    add_mount(mounts, "/tmp", "tmpfs", "tmp", tmpfs_options("1777", half));
    add_mount(mounts, "/run", "tmpfs", "run", tmpfs_options("0755", 16));
    for (size_t i = 0; i < b->bind_count; i++)
        add_mount(mounts, b->binds[i].target, "bind", b->binds[i].source,
                  b->binds[i].read_only ? json_pack("[s, s]", "rbind", "ro")
                                        : json_pack("[s, s]", "rbind", "rw"));
    return mounts;
}

static json_t *namespaces(const struct runsc_bundle *b)
{
    json_t *list = json_pack("[{s:s}, {s:s}, {s:s}, {s:s}]", "type", "pid", "type", "ipc", "type",
                             "uts", "type", "mount");

    if (b->netns != NULL && b->netns[0] != 0)
        (void)json_array_append_new(list,
                                    json_pack("{s:s, s:s}", "type", "network", "path", b->netns));
    else if (b->own_netns)
        (void)json_array_append_new(list, json_pack("{s:s}", "type", "network"));
    return list;
}

json_t *runsc_bundle_json(const struct runsc_bundle *b)
{
    json_t *j = json_object();

    json_put_str(j, "ociVersion", "1.0.2");
    json_put_str(j, "hostname", b->hostname);
    json_put_new(j, "process", process(b));
    json_put_new(j, "root", json_pack("{s:s, s:b}", "path", b->rootfs, "readonly", 0));
    json_put_new(j, "mounts", mounts_of(b));
    json_put_new(j, "linux", json_pack("{s:o}", "namespaces", namespaces(b)));
    return j;
}

static bool same_name(const char *a, const char *b)
{
    size_t n = strcspn(a, "=");

    return strncmp(a, b, n) == 0 && b[n] == '=';
}

/* Sets a variable, in place of one of that name. */
static void env_set(const char **env, size_t *count, const char *value)
{
    for (size_t i = 0; i < *count; i++) {
        if (same_name(value, env[i])) {
            env[i] = value;
            return;
        }
    }
    env[(*count)++] = value;
}

static const char **merge_env(const struct driver_spec *spec,
                              const struct runsc_image_defaults *image, bool proxy, struct arena *a)
{
    size_t room = count_of(image->env) + count_of(spec->env) + COUNT_OF(PROXY_VARIABLES) + 3;
    const char **env = arena_zalloc(a, room * sizeof(*env));
    size_t n = 0;

    env_set(env, &n, DEFAULT_PATH);
    if (image->home != NULL)
        env_set(env, &n, arena_printf(a, "HOME=%s", image->home));
    for (size_t i = 0; i < count_of(image->env); i++)
        env_set(env, &n, image->env[i]);
    for (size_t i = 0; proxy && i < COUNT_OF(PROXY_VARIABLES); i++)
        env_set(env, &n, PROXY_VARIABLES[i]);
    for (size_t i = 0; i < count_of(spec->env); i++)
        env_set(env, &n, spec->env[i]);
    return env;
}

void runsc_bundle_workload(const struct driver_spec *spec, const struct runsc_image_defaults *image,
                           bool proxy, uint64_t nproc, struct arena *a, struct driver_workload *out)
{
    const char *const *command = spec->command != NULL ? spec->command : image->argv;
    size_t count = count_of(command);
    const char **argv = arena_zalloc(a, (count + 1) * sizeof(*argv));

    assert(image->group_count <= DRIVER_GROUPS_MAX);
    for (size_t i = 0; i < count; i++)
        argv[i] = command[i];
    *out = (struct driver_workload){
        .argv = argv,
        .env = merge_env(spec, image, proxy, a),
        /* contract 4: the revision's, else /workspace; the image's own is not asked */
        .cwd = spec->working_dir != NULL ? spec->working_dir : DEFAULT_CWD,
        .uid = image->uid,
        .gid = image->gid,
        .group_count = image->group_count,
        .nproc = nproc,
        .proxy = proxy,
    };
    for (size_t i = 0; i < image->group_count; i++)
        out->groups[i] = image->groups[i];
}
