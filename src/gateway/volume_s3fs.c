#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/process.h"
#include "base/scoped.h"
#include "base/str.h"
#include "base/time.h"
#include "gateway/volume_impl.h"

/* Live directories of `s3` volumes.  s3fs uploads a file when it is flushed, so with the
 * sandbox's dentry cache off it is on the backend when close returns to the writer.  A layer of
 * ours in its process (src/mount) makes object names of file names. */

enum {
    MOUNT_MS = 30000,
    MOUNT_STEP_MS = 20,
    GIVE_UP_STEP_MS = 200,
    UNMOUNT_MS = 15000,
    MOUNT_TAG_SIZE = 17,
    CMDLINE_MAX = 16 * 1024,
    KEY_MAX = 1024,     /* bytes of an object's name: S3's limit */
    STAT_CACHE_S = 30,  /* how long another mount's change of what was looked at can go unseen */
    DISK_FREE_MB = 256, /* s3fs leaves so much, and uploads its parts instead of keeping them */
};

static const char *agent; /* set once, before the first mount */

void volume_set_agent(const char *path)
{
    agent = path;
}

/* One at a time mounts or unmounts a volume: two sandboxes of it share what the first one mounted.
 * Other volumes do not wait, as long as the storage of this one may take to answer. */
struct turn {
    struct turn *next;
    const char *prefix; /* the volume; borrowed for the turn */
};

static struct turns {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    struct turn *all;
} turns = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL };

/* With the lock. */
static bool has_turn(const char *prefix)
{
    const struct turn *t = turns.all;

    while (t != NULL && strcmp(t->prefix, prefix) != 0)
        t = t->next;
    return t != NULL;
}

/* False: another has it, and there is to be no waiting. */
static bool take_turn(struct turn *t, const char *prefix, bool wait)
{
    bool taken;

    (void)pthread_mutex_lock(&turns.lock);
    while (wait && has_turn(prefix))
        (void)pthread_cond_wait(&turns.ended, &turns.lock);
    taken = !has_turn(prefix);
    if (taken) {
        *t = (struct turn){ turns.all, prefix };
        turns.all = t;
    }
    (void)pthread_mutex_unlock(&turns.lock);
    return taken;
}

static void end_turn(struct turn *t)
{
    struct turn **at = &turns.all;

    (void)pthread_mutex_lock(&turns.lock);
    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    (void)pthread_cond_broadcast(&turns.ended);
    (void)pthread_mutex_unlock(&turns.lock);
}

static void mount_name(const char *prefix, char out[VOLUME_KEY_MAX])
{
    (void)str_copy(out, VOLUME_KEY_MAX, prefix);
    for (char *p = out; *p != 0; p++)
        *p = *p == '/' ? '.' : *p;
}

/* s3fs cannot be given another key: a volume whose backend changed gets a mount of its own for who
 * comes then, and the old one stays for those that have it. */
static void mount_tag(const struct volume_backend *b, char out[MOUNT_TAG_SIZE])
{
    const char *parts[] = { b->endpoint, b->bucket,     b->prefix,
                            b->region,   b->access_key, secret_reveal(b->secret_key) };
    struct sha256 *sum = sha256_new();
    unsigned char digest[SHA256_LEN];
    char hex[SHA256_HEX_SIZE];

    for (size_t i = 0; i < COUNT_OF(parts); i++)
        sha256_add(sum, parts[i], strlen(parts[i]) + 1);
    sha256_finish(sum, digest);
    hash_hex(digest, sizeof(digest), hex);
    (void)str_copy(out, MOUNT_TAG_SIZE, hex);
}

/* A folder on another file system than its parent; a mount whose server died counts too. */
static bool is_mounted(const char *path, bool *dead)
{
    struct stat own, above;
    SCOPED_FREE char *parent = NULL;

    *dead = false;
    if (stat(path, &own) < 0) {
        *dead = errno == ENOTCONN || errno == ECONNABORTED;
        return *dead;
    }
    parent = strdup(path);
    if (parent == NULL || strrchr(parent, '/') == NULL)
        return false;
    *strrchr(parent, '/') = 0;
    return stat(parent, &above) == 0 && own.st_dev != above.st_dev;
}

static enum sbx_code unmount(const char *path, struct sbx_err *err)
{
    int64_t deadline = time_mono_ms() + UNMOUNT_MS;

    while (umount2(path, UMOUNT_NOFOLLOW) < 0) {
        if (errno == EINVAL || errno == ENOENT)
            break; /* nothing is mounted there */
        if (errno != EBUSY)
            return err_sys(err, SBX_E_INTERNAL, "unmount a volume");
        if (time_mono_ms() > deadline) { /* its last user is gone: whoever holds it is not ours */
            (void)umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW);
            break;
        }
        (void)poll(NULL, 0, MOUNT_STEP_MS); /* a sandbox's gofer is on its way out */
    }
    (void)rmdir(path);
    return SBX_OK;
}

/* It goes into the background itself. */
static enum sbx_code await(const struct volume_backend *b, struct process *p, int *status,
                           struct sbx_err *err)
{
    int64_t deadline = time_mono_ms() + MOUNT_MS;
    enum sbx_code code;

    do {
        *err = (struct sbx_err){ 0 };
        code = process_wait(p, GIVE_UP_STEP_MS, status, err);
    } while (code == SBX_E_TIMEOUT && time_mono_ms() < deadline && !volume_given_up(b));
    return code;
}

static enum sbx_code start_s3fs(const struct volume_backend *b, const char *prefix,
                                const char *path, struct sbx_err *err)
{
    SCOPED_ARENA struct arena *a = arena_new();
    const char *folder =
        arena_printf(a, "%s%s%s/data", b->prefix, b->prefix[0] != 0 ? "/" : "", prefix);
    const char *source = arena_printf(a, "%s:/%s", b->bucket, folder);
    const char *slash = strrchr(agent, '/'); /* the layer lies beside it */
    size_t taken = strlen(folder) + 1;       /* of each key, and a folder's own ends with a slash */
    const char *options = arena_printf(
        a,
        "url=%s,endpoint=%s,use_path_request_style,allow_other,mp_umask=0,nosuid,nodev,"
        "retries=1,connect_timeout=5,readwrite_timeout=15,logfile=/dev/null,"
        "stat_cache_expire=%d,tmpdir=%.*s,ensure_diskfree=%d,modules=sbxnames,sbxnames_max=%zu",
        b->endpoint, b->region, STAT_CACHE_S, (int)(strrchr(path, '/') - path), path, DISK_FREE_MB,
        taken < KEY_MAX ? KEY_MAX - taken : 0);
    /* By the environment and not a file: an access key may hold a colon, and nothing is on disk. */
    const char *env[] = { "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                          arena_printf(a, "AWSACCESSKEYID=%s", b->access_key),
                          arena_printf(a, "AWSSECRETACCESSKEY=%s", secret_reveal(b->secret_key)),
                          arena_printf(a, "LD_LIBRARY_PATH=%.*s",
                                       slash != NULL ? (int)(slash - agent) : 0, agent),
                          NULL };
    const char *argv[] = { "s3fs", source, path, "-o", options, NULL };
    struct process_spec spec = PROCESS_SPEC_INIT;
    struct process p = { .pidfd = -1 };
    enum sbx_code code;
    int status = 0;

    spec.argv = argv;
    spec.env = env;
    spec.new_session = true;
    code = process_start(&spec, &p, err);
    if (code == SBX_OK)
        code = await(b, &p, &status, err);
    process_end(&p);
    secret_wipe((char *)(uintptr_t)env[2], strlen(env[2]));
    if (code != SBX_OK || status != 0) {
        *err = (struct sbx_err){ 0 };
        return err_set(err, SBX_E_UNAVAILABLE, "the volume's storage cannot be mounted");
    }
    return SBX_OK;
}

/* With the volume's turn. */
static enum sbx_code mount_it(const struct volume_backend *b, const char *prefix, const char *path,
                              struct sbx_err *err)
{
    SCOPED_ARENA struct arena *a = arena_new();
    int64_t deadline = time_mono_ms() + MOUNT_MS;
    bool dead = false;

    if (is_mounted(path, &dead) && dead)
        (void)!unmount(path, err);
    if (err->code != SBX_OK || is_mounted(path, &dead))
        return err->code;
    /* s3fs mounts a folder of the bucket only when there is an object of its name */
    if (volume_put(b, arena_printf(a, "%s/data/", prefix), "", 0, err) == SBX_OK &&
        file_make_dirs(path, 0700, err) == SBX_OK)
        (void)!start_s3fs(b, prefix, path, err);
    while (err->code == SBX_OK && !is_mounted(path, &dead)) {
        if (time_mono_ms() > deadline || volume_given_up(b))
            err_put(err, SBX_E_UNAVAILABLE, "the volume's storage cannot be mounted");
        (void)poll(NULL, 0, MOUNT_STEP_MS); /* it tells nobody when it is there */
    }
    return err->code;
}

static const char *mount_path(const struct volume_backend *b, const char *prefix,
                              const char *mounts, struct arena *a)
{
    char name[VOLUME_KEY_MAX], tag[MOUNT_TAG_SIZE];

    mount_name(prefix, name);
    mount_tag(b, tag);
    return arena_printf(a, "%s/%s.%s", mounts, name, tag);
}

enum sbx_code volume_s3fs_mount(const struct volume_backend *b, const char *prefix,
                                const char *mounts, struct arena *a, const char **out,
                                struct sbx_err *err)
{
    struct turn turn;

    *out = mount_path(b, prefix, mounts, a);
    (void)take_turn(&turn, prefix, true);
    (void)!mount_it(b, prefix, *out, err);
    end_turn(&turn);
    return err->code;
}

enum sbx_code volume_unmount(const char *mounts, const char *prefix, volume_used_fn *used,
                             void *arg, struct sbx_err *err)
{
    SCOPED_ARENA struct arena *a = arena_new();
    const char **names;
    struct turn turn;

    (void)take_turn(&turn, prefix, true);
    (void)volume_mounts(mounts, a, &names);
    for (; err->code == SBX_OK && *names != NULL; names++) {
        char its[VOLUME_KEY_MAX];

        if (volume_mount_prefix(*names, its) && strcmp(its, prefix) == 0 && !used(arg, prefix))
            (void)!unmount(arena_printf(a, "%s/%s", mounts, *names), err);
    }
    end_turn(&turn);
    return err->code;
}

void volume_unmount_others(const char *mounts, volume_used_fn *used, void *arg)
{
    SCOPED_ARENA struct arena *a = arena_new();
    const char **names;

    (void)volume_mounts(mounts, a, &names);
    for (; *names != NULL; names++) {
        char prefix[VOLUME_KEY_MAX];
        struct sbx_err err = { 0 };
        bool named = volume_mount_prefix(*names, prefix);
        struct turn turn;

        (void)take_turn(&turn, named ? prefix : *names, true);
        if (!(named && used(arg, prefix)) &&
            unmount(arena_printf(a, "%s/%s", mounts, *names), &err) != SBX_OK)
            log_err(LOG_WARN, "a volume stays mounted", &err);
        end_turn(&turn);
    }
}

size_t volume_mounts(const char *mounts, struct arena *a, const char ***out)
{
    const char **names = arena_zalloc(a, (VOLUME_MOUNTS_MAX + 1) * sizeof(*names));
    DIR *d = opendir(mounts);
    struct dirent *e;
    size_t n = 0;

    *out = names;
    if (d == NULL) /* no s3 volume was ever mounted */
        return 0;
    while (n < VOLUME_MOUNTS_MAX && (e = readdir(d)) != NULL) {
        if (e->d_name[0] != '.')
            names[n++] = arena_strdup(a, e->d_name);
    }
    (void)closedir(d);
    return n;
}

bool volume_mount_prefix(const char *name, char out[VOLUME_KEY_MAX])
{
    char *dot;

    if (!str_copy(out, VOLUME_KEY_MAX, name))
        return false;
    dot = strchr(out, '.');
    if (dot == NULL)
        return false;
    *dot = '/';
    dot = strchr(dot, '.');
    if (dot != NULL)
        *dot = 0; /* which credentials it was mounted with */
    return true;
}

/* Which of names the process serves; count: none. */
static size_t served_by(const char *pid, const char *mounts, const char *const *names, size_t count)
{
    SCOPED_BUF struct buf words = BUF_INIT(CMDLINE_MAX);
    size_t len = strlen(mounts);
    struct sbx_err ignored = { 0 };
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/%s/cmdline", pid);
    if (file_read(path, &words, &ignored) != SBX_OK || words.len == 0 ||
        strcmp(words.data, "s3fs") != 0)
        return count;
    for (const char *p = words.data; p < words.data + words.len; p += strlen(p) + 1) {
        if (strncmp(p, mounts, len) != 0 || p[len] != '/')
            continue;
        for (size_t i = 0; i < count; i++) {
            if (strcmp(p + len + 1, names[i]) == 0)
                return i;
        }
    }
    return count;
}

void volume_mount_servers(const char *mounts, const char *const *names, size_t count, int *pidfds)
{
    DIR *d = opendir("/proc");
    struct dirent *e;

    for (size_t i = 0; i < count; i++)
        pidfds[i] = -1;
    while (d != NULL && (e = readdir(d)) != NULL) {
        size_t i;
        int64_t pid;
        int fd;

        if (!str_parse_int(e->d_name, 1, INT32_MAX, &pid))
            continue;
        i = served_by(e->d_name, mounts, names, count);
        if (i == count || pidfds[i] >= 0)
            continue;
        fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
        /* The number may be another's by now. */
        if (fd >= 0 && served_by(e->d_name, mounts, names, count) == i)
            pidfds[i] = fd;
        else
            fd_close(&fd);
    }
    if (d != NULL)
        (void)closedir(d);
}

/* With the volume's turn, or the folder of a mount under way would look dead. */
static bool is_dead(const char *path)
{
    bool dead;

    return !is_mounted(path, &dead) || dead;
}

bool volume_mount_look(const char *mounts, const char *name, bool *dead)
{
    SCOPED_ARENA struct arena *a = arena_new();
    const char *path = arena_printf(a, "%s/%s", mounts, name);
    char prefix[VOLUME_KEY_MAX];
    struct turn turn;
    struct stat st;

    if (!volume_mount_prefix(name, prefix) || !take_turn(&turn, prefix, false))
        return false;
    *dead = (stat(path, &st) == 0 || errno != ENOENT) && is_dead(path);
    end_turn(&turn);
    return true;
}

enum sbx_code volume_mount_again(const struct volume_backend *b, const char *prefix,
                                 const char *mounts, const char *name, volume_used_fn *used,
                                 void *arg, struct sbx_err *err)
{
    SCOPED_ARENA struct arena *a = arena_new();
    const char *path = arena_printf(a, "%s/%s", mounts, name);
    struct turn turn;

    (void)take_turn(&turn, prefix, true);
    if (used(arg, prefix)) {
        if (is_dead(path))
            (void)!unmount(path, err);
        if (err->code == SBX_OK)
            (void)!mount_it(b, prefix, mount_path(b, prefix, mounts, a), err);
        if (err->code != SBX_OK)
            (void)mkdir(path, 0700); /* which tells that it is to be mended */
    }
    end_turn(&turn);
    return err->code;
}
