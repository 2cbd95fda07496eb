#include <fcntl.h>
#include <fts.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/scoped.h"
#include "gateway/image_impl.h"

enum { BLOCK = 512, READ_STEP = 64 * 1024 };

static FTS *walk(struct image_store *s, const char *path, char **full)
{
    char *paths[2] = { NULL, NULL };

    *full = mem_printf("%s/%s", s->config->dir, path);
    paths[0] = *full;
    return fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
}

/* One member of an unpacked root.  A fifo would be a channel between the tenants that share the
 * root, a device node or a set-id bit a gift to whoever finds a way to the folder. */
static enum sbx_code clean(const FTSENT *f, struct sbx_err *err)
{
    mode_t mode = f->fts_statp->st_mode;

    if (f->fts_info == FTS_DEFAULT && unlink(f->fts_accpath) < 0)
        return err_sys(err, SBX_E_INTERNAL, "remove a special file of the image");
    if (f->fts_info != FTS_F)
        return SBX_OK;
    if ((mode & (S_ISUID | S_ISGID)) != 0 && chmod(f->fts_accpath, mode & 0777) < 0)
        return err_sys(err, SBX_E_INTERNAL, "clear a set-id bit of the image");
    (void)lremovexattr(f->fts_accpath, "security.capability");
    return SBX_OK;
}

enum sbx_code image_fs_measure(struct image_store *s, const char *path, int flags, int64_t *bytes,
                               struct sbx_err *err)
{
    SCOPED_FREE char *full = NULL;
    FTS *fts = walk(s, path, &full);
    enum sbx_code code = SBX_OK;
    int64_t sum = 0;
    size_t files = 0;
    FTSENT *f;

    if (fts == NULL)
        return err_sys(err, SBX_E_INTERNAL, "walk the image");
    while (code == SBX_OK && (f = fts_read(fts)) != NULL) {
        if (f->fts_info == FTS_DP)
            continue;
        if (f->fts_info == FTS_ERR || f->fts_info == FTS_DNR || f->fts_info == FTS_NS) {
            errno = f->fts_errno;
            if ((flags & IMAGE_FS_CLEAN) != 0)
                code = err_sys(err, SBX_E_INVALID, "a member of the image cannot be read");
            continue;
        }
        if (++files > IMAGE_FILES_MAX)
            code = err_set(err, SBX_E_INVALID, "the image has too many files");
        /* A file with several links is counted for each: too much, never too little. */
        sum += (int64_t)f->fts_statp->st_blocks * BLOCK;
        if (code == SBX_OK && (flags & IMAGE_FS_CLEAN) != 0)
            code = clean(f, err);
    }
    (void)fts_close(fts);
    if (code == SBX_OK)
        *bytes = sum;
    return code;
}

void image_fs_remove(struct image_store *s, const char *path)
{
    SCOPED_FREE char *full = NULL;
    FTS *fts = walk(s, path, &full);
    FTSENT *f;

    if (fts == NULL)
        return;
    while ((f = fts_read(fts)) != NULL) {
        if (f->fts_info == FTS_D)
            continue;
        if (f->fts_info == FTS_DP)
            (void)rmdir(f->fts_accpath);
        else
            (void)unlink(f->fts_accpath);
    }
    (void)fts_close(fts);
}

static enum sbx_code read_all(int fd, size_t max, struct buf *out, struct sbx_err *err)
{
    for (;;) {
        char *room = buf_reserve(out, READ_STEP);
        ssize_t n;

        if (room == NULL)
            return err_set(err, SBX_E_INVALID, "a file of the image is too large");
        n = read(fd, room, READ_STEP);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, SBX_E_INTERNAL, "read a file of the image");
        out->len += (size_t)n;
        out->data[out->len] = 0;
        if (out->len > max)
            return err_set(err, SBX_E_INVALID, "a file of the image is too large");
        if (n == 0)
            return SBX_OK;
    }
}

static int open_in(int root_fd, const char *path, int flags, mode_t mode)
{
    struct open_how how = { .flags = (unsigned)flags | O_CLOEXEC,
                            .mode = mode,
                            .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };

    return (int)syscall(SYS_openat2, root_fd, path, &how, sizeof(how));
}

enum sbx_code image_fs_read(int dir_fd, const char *path, size_t max, struct buf *out,
                            struct sbx_err *err)
{
    SCOPED_FD int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    if (fd < 0)
        return err_sys(err, errno == ENOENT ? SBX_E_NOT_FOUND : SBX_E_INTERNAL,
                       "open a file of the image");
    return read_all(fd, max, out, err);
}

enum sbx_code image_fs_read_in(int root_fd, const char *path, size_t max, struct buf *out,
                               struct sbx_err *err)
{
    SCOPED_FD int fd = open_in(root_fd, path, O_RDONLY | O_NONBLOCK, 0);

    if (fd < 0)
        return err_sys(err, errno == ENOENT ? SBX_E_NOT_FOUND : SBX_E_INVALID, "%s of the image",
                       path);
    return read_all(fd, max, out, err);
}

enum sbx_code image_fs_write(int dir_fd, const char *path, const void *data, size_t len,
                             struct sbx_err *err)
{
    SCOPED_FD int fd = openat(dir_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    const char *p = data;

    if (fd < 0)
        return err_sys(err, SBX_E_INTERNAL, "write to the image store");
    while (len > 0) {
        ssize_t n = write(fd, p, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, errno == ENOSPC ? SBX_E_UNAVAILABLE : SBX_E_INTERNAL,
                           "write to the image store");
        p += n;
        len -= (size_t)n;
    }
    if (fsync(fd) < 0)
        return err_sys(err, SBX_E_INTERNAL, "write to the image store");
    return SBX_OK;
}

/* Opens the parent of path's last part inside the root, making folders on the way. */
static enum sbx_code open_parent(int root_fd, const char *path, const char **last, int *out,
                                 struct sbx_err *err)
{
    SCOPED_FREE char *copy = mem_strdup(path);
    int at = open_in(root_fd, "/", O_PATH | O_DIRECTORY, 0);
    char *slash = copy;

    while (at >= 0 && (slash = strchr(slash + 1, '/')) != NULL) {
        int next;

        *slash = 0;
        next = open_in(root_fd, copy, O_PATH | O_DIRECTORY, 0);
        if (next < 0 && errno == ENOENT) {
            const char *name = strrchr(copy, '/') + 1;

            (void)mkdirat(at, name, 0755);
            next = open_in(root_fd, copy, O_PATH | O_DIRECTORY, 0);
        }
        fd_close(&at);
        at = next;
        *slash = '/';
    }
    if (at < 0)
        return err_sys(err, SBX_E_INVALID, "the image has something else at %.100s", path);
    *last = strrchr(path, '/') + 1;
    *out = at;
    return SBX_OK;
}

enum sbx_code image_fs_drop_link(int root_fd, const char *path, struct sbx_err *err)
{
    SCOPED_FD int parent = -1;
    const char *last = NULL;
    struct stat st;

    if (open_parent(root_fd, path, &last, &parent, err) != SBX_OK)
        return err->code;
    if (fstatat(parent, last, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode) &&
        unlinkat(parent, last, 0) < 0)
        return err_sys(err, SBX_E_INTERNAL, "make a mount point in the image");
    return SBX_OK;
}

enum sbx_code image_fs_point(int root_fd, const char *path, bool folder, struct sbx_err *err)
{
    SCOPED_FD int parent = -1;
    const char *last = NULL;
    struct stat st;
    enum sbx_code code;

    if (path[0] != '/' || path[1] == 0 || strstr(path, "/../") != NULL)
        return err_set(err, SBX_E_INVALID, "%.100s cannot be a mount point", path);
    code = open_parent(root_fd, path, &last, &parent, err);
    if (code != SBX_OK)
        return code;
    if (folder) {
        SCOPED_FD int there = -1;

        if (mkdirat(parent, last, 0755) < 0 && errno != EEXIST)
            return err_sys(err, SBX_E_INTERNAL, "make a mount point in the image");
        there = open_in(root_fd, path, O_PATH | O_DIRECTORY, 0);
        if (there < 0)
            return err_sys(err, SBX_E_INVALID, "the image has something else at %.100s", path);
        return SBX_OK;
    }
    /* A link is replaced: what it names is often on a file system that is mounted later. */
    if (fstatat(parent, last, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        if (S_ISREG(st.st_mode))
            return SBX_OK;
        if (S_ISLNK(st.st_mode) && unlinkat(parent, last, 0) < 0)
            return err_sys(err, SBX_E_INTERNAL, "make a mount point in the image");
    }
    {
        SCOPED_FD int fd =
            openat(parent, last, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0644);

        if (fd < 0)
            return err_sys(err, SBX_E_INVALID, "the image has something else at %.100s", path);
    }
    return SBX_OK;
}
