#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/scoped.h"
#include "base/str.h"

enum {
    READ_PART = 64 * 1024,
    TREE_DEPTH_MAX = 256,
    TREE_ROUNDS_MAX = 65536,
    /* of one removal, each TREE_DEPTH_MAX levels deep */
    TEMP_DIGITS = 16, /* what file_write puts behind a name, after a dot */
};

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL && slash[1] != 0 ? slash + 1 : path;
}

enum sbx_code file_read(const char *path, struct buf *out, struct sbx_err *err)
{
    SCOPED_FD int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return err_sys(err, errno == ENOENT ? SBX_E_NOT_FOUND : SBX_E_INTERNAL, "open %s",
                       last_part(path));
    for (;;) {
        char part[READ_PART];
        ssize_t n = read(fd, part, sizeof(part));

        if (n == 0)
            return SBX_OK;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, SBX_E_INTERNAL, "read %s", last_part(path));
        if (!buf_append(out, part, (size_t)n))
            return err_set(err, SBX_E_TOO_LARGE, "%s is too large", last_part(path));
    }
}

static bool write_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        data += n;
        len -= (size_t)n;
    }
    return true;
}

/* The folder that holds path. */
static void parent_of(const char *path, char out[PATH_MAX])
{
    char *slash;

    (void)str_copy(out, PATH_MAX, path);
    slash = strrchr(out, '/');
    if (slash == NULL)
        (void)str_copy(out, PATH_MAX, ".");
    else
        slash[slash == out ? 1 : 0] = 0;
}

enum sbx_code file_sync_dir(const char *path, struct sbx_err *err)
{
    SCOPED_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0 || fsync(fd) < 0)
        return err_sys(err, SBX_E_INTERNAL, "sync folder %s", last_part(path));
    return SBX_OK;
}

/* A full disk is nobody's bug, and worth another try. */
static enum sbx_code code_now(void)
{
    return errno == ENOSPC || errno == EDQUOT ? SBX_E_UNAVAILABLE : SBX_E_INTERNAL;
}

bool file_holds(const char *path, const void *data, size_t len, mode_t mode)
{
    SCOPED_BUF struct buf have = BUF_INIT(len);
    struct sbx_err ignored = { 0 };
    struct stat st;

    if (lstat(path, &st) < 0 || !S_ISREG(st.st_mode) || (st.st_mode & 07777) != mode ||
        (size_t)st.st_size != len)
        return false;
    return len == 0 || (file_read(path, &have, &ignored) == SBX_OK && have.len == len &&
                        memcmp(have.data, data, len) == 0);
}

enum sbx_code file_write(const char *path, const void *data, size_t len, mode_t mode, bool sync,
                         struct sbx_err *err)
{
    char temp[PATH_MAX], parent[PATH_MAX];
    SCOPED_FD int fd = -1;

    if (!sync && file_holds(path, data, len, mode))
        return SBX_OK; /* also on a full disk */
    if (snprintf(temp, sizeof(temp), "%s.%016llx", path, (unsigned long long)random_u64()) >=
        (int)sizeof(temp))
        return err_set(err, SBX_E_INTERNAL, "the path of %s is too long", last_part(path));
    fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0)
        return err_sys(err, code_now(), "create %s", last_part(path));
    if (!write_all(fd, data, len) || fchmod(fd, mode) < 0 || (sync && fsync(fd) < 0) ||
        rename(temp, path) < 0) {
        enum sbx_code code = err_sys(err, code_now(), "write %s", last_part(path));

        (void)unlink(temp);
        return code;
    }
    if (!sync)
        return SBX_OK;
    parent_of(path, parent);
    return file_sync_dir(parent, err);
}

static bool is_temp(const char *name)
{
    size_t len = strlen(name);
    const char *tail = len > TEMP_DIGITS + 1 ? name + len - TEMP_DIGITS : "";

    return tail[0] != 0 && tail[-1] == '.' && strspn(tail, "0123456789abcdef") == TEMP_DIGITS;
}

void file_sweep(const char *folder)
{
    DIR *d = opendir(folder);
    struct dirent *e;

    while (d != NULL && (e = readdir(d)) != NULL) {
        if (is_temp(e->d_name))
            (void)unlinkat(dirfd(d), e->d_name, 0);
    }
    if (d != NULL)
        (void)closedir(d);
}

enum sbx_code file_make_dirs(const char *path, mode_t mode, struct sbx_err *err)
{
    char part[PATH_MAX];
    struct stat st;

    if (!str_copy(part, sizeof(part), path))
        return err_set(err, SBX_E_INTERNAL, "the path of %s is too long", last_part(path));
    for (char *p = part + 1; *p != 0; p++) {
        if (*p != '/')
            continue;
        *p = 0;
        if (mkdir(part, mode) < 0 && errno != EEXIST)
            return err_sys(err, code_now(), "make folder %s", last_part(part));
        *p = '/';
    }
    if (mkdir(part, mode) < 0 && errno != EEXIST)
        return err_sys(err, code_now(), "make folder %s", last_part(part));
    if (stat(part, &st) < 0 || !S_ISDIR(st.st_mode))
        return err_set(err, SBX_E_INTERNAL, "%s is not a folder", last_part(part));
    return SBX_OK;
}

static int remove_at(int top, int at, const char *name, dev_t dev, int depth);

static int remove_inside(int top, int fd, dev_t dev, int depth)
{
    DIR *d = fdopendir(fd);
    struct dirent *e;
    int rc = 0;

    if (d == NULL) {
        fd_close(&fd);
        return -1;
    }
    while (rc == 0 && (errno = 0, e = readdir(d)) != NULL) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            rc = remove_at(top, dirfd(d), e->d_name, dev, depth + 1);
    }
    if (rc == 0 && errno != 0)
        rc = -1;
    (void)closedir(d);
    return rc;
}

/* How deep a tree is may be a tenant's choice: what is too deep is moved to the top, for the next
 * round. */
static int put_aside(int top, int at, const char *name)
{
    char aside[40];

    (void)snprintf(aside, sizeof(aside), ".deep.%016" PRIx64, random_u64());
    return renameat(at, name, top, aside);
}

static int remove_at(int top, int at, const char *name, dev_t dev, int depth)
{
    struct stat st;
    int rc = -1;

    if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -1;
    if (!S_ISDIR(st.st_mode))
        return unlinkat(at, name, 0) < 0 && errno != ENOENT ? -1 : 0;
    if (dev != 0 && st.st_dev != dev) {
        errno = EXDEV;
        return -1;
    }
    if (depth > TREE_DEPTH_MAX)
        return put_aside(top, at, name);
    for (int round = 0; round < TREE_ROUNDS_MAX; round++) {
        int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

        if (fd < 0 || remove_inside(depth == 0 ? fd : top, fd, st.st_dev, depth) < 0)
            return -1;
        rc = unlinkat(at, name, AT_REMOVEDIR);
        if (rc == 0 || depth > 0 || (errno != ENOTEMPTY && errno != EEXIST))
            break;
    }
    return rc < 0 && errno != ENOENT ? -1 : 0;
}

enum sbx_code file_remove_tree(const char *path, struct sbx_err *err)
{
    if (remove_at(-1, AT_FDCWD, path, 0, 0) < 0)
        return err_sys(err, SBX_E_INTERNAL, "remove %s", last_part(path));
    return SBX_OK;
}

bool file_exists(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0;
}
