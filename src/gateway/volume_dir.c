#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "gateway/volume_impl.h"

/* The `dir` kind: an object is a file, written beside its name and renamed.  A writer that was
 * killed leaves its part; the next one in the same folder takes it away: the lock on it is gone. */

#define PART ".part"

enum { READ_SIZE = 256 * 1024 };

struct dir_writer {
    char path[PATH_MAX], temp[PATH_MAX];
    int fd;
};

static enum sbx_code trouble(struct sbx_err *err, const char *what)
{
    switch (errno) {
    case ENOENT:
        return err_set(err, SBX_E_NOT_FOUND, "the storage has no such object");
    case EACCES:
    case EPERM:
        return err_sys(err, SBX_E_FORBIDDEN, "%s", what);
    default:
        return err_sys(err, SBX_E_UNAVAILABLE, "%s", what);
    }
}

static enum sbx_code path_of(const struct volume_backend *b, const char *key, char out[PATH_MAX],
                             struct sbx_err *err)
{
    if (snprintf(out, PATH_MAX, "%s/%s", b->path, key) >= PATH_MAX)
        return err_set(err, SBX_E_INVALID, "the object's name is too long");
    return SBX_OK;
}

static void parent_of(const char *path, char out[PATH_MAX])
{
    (void)str_copy(out, PATH_MAX, path);
    *strrchr(out, '/') = 0;
}

static enum sbx_code make_parent(const char *path, struct sbx_err *err)
{
    char parent[PATH_MAX];

    parent_of(path, parent);
    if (file_make_dirs(parent, 0700, err) != SBX_OK) {
        err->code = SBX_E_UNAVAILABLE;
        return err_wrap(err, "the storage folder");
    }
    return SBX_OK;
}

static void sweep_parts(const char *folder)
{
    DIR *d = opendir(folder);
    struct dirent *e;

    while (d != NULL && (e = readdir(d)) != NULL) {
        SCOPED_FD int fd = -1;

        if (!str_ends(e->d_name, PART))
            continue;
        fd = openat(dirfd(d), e->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
            (void)unlinkat(dirfd(d), e->d_name, 0);
    }
    if (d != NULL)
        (void)closedir(d);
}

static enum sbx_code dir_open(const struct volume_backend *b, const char *key, void **out,
                              struct sbx_err *err)
{
    struct dir_writer *w = mem_zalloc(sizeof(*w));
    char parent[PATH_MAX];

    w->fd = -1;
    if (path_of(b, key, w->path, err) == SBX_OK && make_parent(w->path, err) == SBX_OK) {
        (void)snprintf(w->temp, sizeof(w->temp), "%s.%016" PRIx64 PART, w->path, random_u64());
        parent_of(w->path, parent);
        sweep_parts(parent);
        w->fd = open(w->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (w->fd < 0)
            (void)!trouble(err, "write to the storage folder");
        else
            (void)flock(w->fd, LOCK_EX | LOCK_NB); /* where there are no locks, nothing is swept */
    }
    if (err->code != SBX_OK) {
        free(w);
        return err->code;
    }
    *out = w;
    return SBX_OK;
}

static enum sbx_code dir_add(void *impl, const void *data, size_t len, struct sbx_err *err)
{
    struct dir_writer *w = impl;
    const char *p = data;

    while (len > 0) {
        ssize_t n = write(w->fd, p, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return trouble(err, "write to the storage folder");
        p += n;
        len -= (size_t)n;
    }
    return SBX_OK;
}

static void dir_abort(void *impl)
{
    struct dir_writer *w = impl;

    fd_close(&w->fd);
    (void)unlink(w->temp);
    free(w);
}

static enum sbx_code dir_finish(void *impl, struct sbx_err *err)
{
    struct dir_writer *w = impl;
    char parent[PATH_MAX];
    struct sbx_err sync = { 0 };

    if (fsync(w->fd) < 0 || rename(w->temp, w->path) < 0) {
        (void)!trouble(err, "write to the storage folder");
        dir_abort(w);
        return err->code;
    }
    parent_of(w->path, parent);
    if (file_sync_dir(parent, &sync) != SBX_OK)
        err_put(err, SBX_E_UNAVAILABLE, "write to the storage folder: %s", sync.msg);
    fd_close(&w->fd);
    free(w);
    return err->code;
}

static enum sbx_code dir_read(const struct volume_backend *b, const char *key, volume_read_fn *fn,
                              void *arg, struct sbx_err *err)
{
    SCOPED_FREE char *part = mem_zalloc(READ_SIZE);
    char path[PATH_MAX];
    SCOPED_FD int fd = -1;

    if (path_of(b, key, path, err) != SBX_OK)
        return err->code;
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return trouble(err, "read from the storage folder");
    for (;;) {
        ssize_t n = read(fd, part, READ_SIZE);

        if (n == 0)
            return SBX_OK;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return trouble(err, "read from the storage folder");
        if (fn(arg, part, (size_t)n, err) != SBX_OK)
            return err->code;
    }
}

static enum sbx_code dir_remove(const struct volume_backend *b, const char *key,
                                struct sbx_err *err)
{
    char path[PATH_MAX];

    if (path_of(b, key, path, err) != SBX_OK)
        return err->code;
    if (unlink(path) < 0 && errno != ENOENT)
        return trouble(err, "remove from the storage folder");
    return SBX_OK;
}

static enum sbx_code dir_list(const struct volume_backend *b, const char *prefix, struct arena *a,
                              const char ***out, struct sbx_err *err)
{
    const char **names = arena_zalloc(a, (VOLUME_LIST_MAX + 1) * sizeof(*names));
    char path[PATH_MAX];
    struct dirent *e;
    size_t n = 0;
    DIR *d;

    if (path_of(b, prefix, path, err) != SBX_OK)
        return err->code;
    d = opendir(path);
    if (d == NULL && errno != ENOENT)
        return trouble(err, "list the storage folder");
    while (d != NULL && n < VOLUME_LIST_MAX && (e = readdir(d)) != NULL) {
        if (e->d_name[0] != '.')
            names[n++] = arena_strdup(a, e->d_name);
    }
    if (d != NULL)
        (void)closedir(d);
    *out = names;
    return SBX_OK;
}

static enum sbx_code dir_purge(const struct volume_backend *b, const char *prefix,
                               struct sbx_err *err)
{
    char path[PATH_MAX];

    if (path_of(b, prefix, path, err) != SBX_OK)
        return err->code;
    if (file_remove_tree(path, err) != SBX_OK) {
        err->code = SBX_E_UNAVAILABLE;
        return err->code;
    }
    return SBX_OK;
}

const struct volume_ops volume_dir_ops = {
    .writer_open = dir_open,
    .writer_add = dir_add,
    .writer_finish = dir_finish,
    .writer_abort = dir_abort,
    .read = dir_read,
    .remove = dir_remove,
    .list = dir_list,
    .purge = dir_purge,
};
