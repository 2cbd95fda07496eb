#define FUSE_USE_VERSION 26

#include <errno.h>
#include <fuse.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mount/files.h"
#include "mount/names.h"

/* libfusemod_sbxnames.so: a layer over a file system of libfuse 2 (s3fs) in its own process, loaded
 * by `-o modules=sbxnames`.  File names become keys and back (names.h), and a file that is deleted
 * while it is open leaves its folder (files.h).  It keeps nothing else, so what close, caches and
 * errors mean is s3fs' business.
 *
 *	-o sbxnames_max=N   bytes of a path as key; a longer one is ENAMETOOLONG */

struct layer {
    struct fuse_fs *next;
    struct files *files;
    unsigned max;
};

struct listing {
    void *buf;
    fuse_fill_dir_t fill;
    bool top;
};

/* Before anything below is called: that leaves the context with its own data. */
static struct layer *layer(void)
{
    return fuse_get_context()->private_data;
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

static bool is_place(const char *path)
{
    return strncmp(path, "/" FILES_DELETED, sizeof(FILES_DELETED)) == 0;
}

/* 0, or why there is none. */
static int key_of(const char *path, char out[NAMES_KEY_MAX + 1])
{
    const char *name = name_of(path);

    if (files_is_alias(name) && files_find(layer()->files, name, out))
        return 0;
    if (is_place(path))
        return -EPERM;
    return names_encode(path, layer()->max, out) ? 0 : -ENAMETOOLONG;
}

/* An operation on a path: the same on its key. */
#define ON_PATH(name, call, ...)                                                                   \
    static int on_##name(__VA_ARGS__)                                                              \
    {                                                                                              \
        struct fuse_fs *next = layer()->next;                                                      \
        char key[NAMES_KEY_MAX + 1];                                                               \
        int why = key_of(path, key);                                                               \
                                                                                                   \
        return why == 0 ? (call) : why;                                                            \
    }

ON_PATH(getattr, fuse_fs_getattr(next, key, st), const char *path, struct stat *st)
ON_PATH(access, fuse_fs_access(next, key, mask), const char *path, int mask)
ON_PATH(readlink, fuse_fs_readlink(next, key, out, size), const char *path, char *out, size_t size)
ON_PATH(opendir, fuse_fs_opendir(next, key, fi), const char *path, struct fuse_file_info *fi)
ON_PATH(mknod, fuse_fs_mknod(next, key, mode, dev), const char *path, mode_t mode, dev_t dev)
ON_PATH(mkdir, fuse_fs_mkdir(next, key, mode), const char *path, mode_t mode)
ON_PATH(rmdir, fuse_fs_rmdir(next, key), const char *path)
ON_PATH(chmod, fuse_fs_chmod(next, key, mode), const char *path, mode_t mode)
ON_PATH(chown, fuse_fs_chown(next, key, uid, gid), const char *path, uid_t uid, gid_t gid)
ON_PATH(truncate, fuse_fs_truncate(next, key, size), const char *path, off_t size)
ON_PATH(utimens, fuse_fs_utimens(next, key, at), const char *path, const struct timespec at[2])
ON_PATH(statfs, fuse_fs_statfs(next, key, st), const char *path, struct statvfs *st)

/* An operation on an open file.  libfuse gives no path of one whose folder is gone. */
#define ON_FILE(name, call, ...)                                                                   \
    static int on_##name(__VA_ARGS__)                                                              \
    {                                                                                              \
        const struct files_handle *h = (const void *)(uintptr_t)fi->fh;                            \
        struct fuse_fs *next = layer()->next;                                                      \
        struct fuse_file_info below = *fi;                                                         \
        char key[NAMES_KEY_MAX + 1];                                                               \
        int why = 0;                                                                               \
                                                                                                   \
        below.fh = h->fh;                                                                          \
        if (path != NULL && path[0] == '/')                                                        \
            why = key_of(path, key);                                                               \
        else                                                                                       \
            files_key(layer()->files, h, key);                                                     \
        return why == 0 ? (call) : why;                                                            \
    }

ON_FILE(read_buf, fuse_fs_read_buf(next, key, out, size, at, &below), const char *path,
        struct fuse_bufvec **out, size_t size, off_t at, struct fuse_file_info *fi)
ON_FILE(write_below, fuse_fs_write_buf(next, key, data, at, &below), const char *path,
        struct fuse_bufvec *data, off_t at, struct fuse_file_info *fi)
ON_FILE(flush, fuse_fs_flush(next, key, &below), const char *path, struct fuse_file_info *fi)
ON_FILE(fsync, fuse_fs_fsync(next, key, datasync, &below), const char *path, int datasync,
        struct fuse_file_info *fi)
ON_FILE(release_below, fuse_fs_release(next, key, &below), const char *path,
        struct fuse_file_info *fi)

static int on_write_buf(const char *path, struct fuse_bufvec *data, off_t at,
                        struct fuse_file_info *fi)
{
    struct layer *l = layer();
    struct fuse_context *context = fuse_get_context();
    int n = on_write_below(path, data, at, fi), why = 0;

    if (n > 0 && files_wrote(l->files, (struct files_handle *)(uintptr_t)fi->fh, (uint64_t)n)) {
        context->private_data = l; /* what is below left its own */
        /* A sentry writes as nobody to what its gofer opened as root, and s3fs asks who flushes. */
        context->uid = 0;
        context->gid = 0;
        why = on_flush(path, fi);
    }
    return why == 0 ? n : why;
}

static int on_release(const char *path, struct fuse_file_info *fi)
{
    struct layer *l = layer();
    char key[NAMES_KEY_MAX + 1];
    int result = on_release_below(path, fi);

    if (files_close(l->files, (struct files_handle *)(uintptr_t)fi->fh,
                    path == NULL || path[0] != '/', key))
        (void)fuse_fs_unlink(l->next, key);
    return result;
}

/* What was opened below gets our handle. */
static int opened(struct layer *l, const char *key, struct fuse_file_info *fi)
{
    struct files_handle *h = files_open(l->files, key, fi->fh);

    if (h == NULL) {
        (void)fuse_fs_release(l->next, key, fi);
        return -ENOMEM;
    }
    fi->fh = (uintptr_t)h;
    return 0;
}

static int on_open(const char *path, struct fuse_file_info *fi)
{
    struct layer *l = layer();
    char key[NAMES_KEY_MAX + 1];
    int why = key_of(path, key);

    if (why == 0)
        why = fuse_fs_open(l->next, key, fi);
    return why == 0 ? opened(l, key, fi) : why;
}

static int on_create(const char *path, mode_t mode, struct fuse_file_info *fi)
{
    struct layer *l = layer();
    char key[NAMES_KEY_MAX + 1];
    int why = key_of(path, key);

    if (why == 0)
        why = fuse_fs_create(l->next, key, mode, fi);
    return why == 0 ? opened(l, key, fi) : why;
}

static int on_unlink(const char *path)
{
    struct layer *l = layer();
    const char *name = name_of(path);
    char key[NAMES_KEY_MAX + 1];
    int why = key_of(path, key);

    if (why == 0)
        why = fuse_fs_unlink(l->next, key);
    if (why == 0 && files_is_alias(name))
        files_forget(l->files, name);
    return why;
}

static int on_rename(const char *from, const char *to)
{
    struct layer *l = layer();
    char key[NAMES_KEY_MAX + 1], new_key[NAMES_KEY_MAX + 1];
    int why = key_of(from, key);
    bool hide;

    if (why != 0)
        return why;
    hide = files_is_alias(name_of(to)) && files_place(l->files, key, new_key);
    if (!hide)
        why = key_of(to, new_key);
    if (why == 0)
        why = fuse_fs_rename(l->next, key, new_key);
    if (why == 0 && hide)
        files_hide(l->files, key, new_key, name_of(to));
    else if (why == 0)
        files_move(l->files, key, new_key);
    return why;
}

static int on_link(const char *from, const char *to)
{
    char key[NAMES_KEY_MAX + 1], new_key[NAMES_KEY_MAX + 1];
    int why = key_of(from, key);

    if (why == 0)
        why = key_of(to, new_key);
    return why == 0 ? fuse_fs_link(layer()->next, key, new_key) : why;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static int on_symlink(const char *target, const char *path)
{
    char key[NAMES_KEY_MAX + 1];
    size_t n = strlen(target);
    int why = key_of(path, key);

    /* s3fs would cut these off and say nothing (s3fs_symlink of 1.90) */
    if (n > 0 && (is_blank(target[0]) || is_blank(target[n - 1])))
        return -EINVAL;
    return why == 0 ? fuse_fs_symlink(layer()->next, target, key) : why;
}

static int fill(void *arg, const char *component, const struct stat *st, off_t offset)
{
    const struct listing *l = arg;
    char name[NAMES_KEY_MAX + 1];

    if (l->top && strncmp(component, FILES_DELETED, sizeof(FILES_DELETED) - 1) == 0)
        return 0;
    return names_decode(component, name) ? l->fill(l->buf, name, st, offset) : 0;
}

static int on_readdir(const char *path, void *buf, fuse_fill_dir_t next_fill, off_t offset,
                      struct fuse_file_info *fi)
{
    struct listing l = { .buf = buf, .fill = next_fill, .top = strcmp(path, "/") == 0 };
    char key[NAMES_KEY_MAX + 1];
    int why = key_of(path, key);

    return why == 0 ? fuse_fs_readdir(layer()->next, key, &l, fill, offset, fi) : why;
}

static void *on_init(struct fuse_conn_info *conn)
{
    struct layer *l = layer();

    fuse_fs_init(l->next, conn);
    return l;
}

static void layer_free(struct layer *l)
{
    if (l->files != NULL)
        files_free(l->files);
    free(l);
}

static void on_destroy(void *data)
{
    struct layer *l = data;
    char key[NAMES_KEY_MAX + 1];

    while (files_next_left(l->files, key)) /* unmounted before it was closed */
        (void)fuse_fs_unlink(l->next, key);
    fuse_fs_destroy(l->next);
    layer_free(l);
}

static const struct fuse_operations OPS = {
    .init = on_init,
    .destroy = on_destroy,
    .getattr = on_getattr,
    .access = on_access,
    .readlink = on_readlink,
    .opendir = on_opendir,
    .readdir = on_readdir,
    .mknod = on_mknod,
    .mkdir = on_mkdir,
    .symlink = on_symlink,
    .unlink = on_unlink,
    .rmdir = on_rmdir,
    .rename = on_rename,
    .link = on_link,
    .chmod = on_chmod,
    .chown = on_chown,
    .truncate = on_truncate,
    .utimens = on_utimens,
    .create = on_create,
    .open = on_open,
    .read_buf = on_read_buf,
    .write_buf = on_write_buf,
    .statfs = on_statfs,
    .flush = on_flush,
    .release = on_release,
    .fsync = on_fsync,
};

static const struct fuse_opt OPTIONS[] = {
    { "sbxnames_max=%u", offsetof(struct layer, max), 0 },
    FUSE_OPT_END,
};

static struct fuse_fs *layer_new(struct fuse_args *args, struct fuse_fs *next[])
{
    struct layer *l = calloc(1, sizeof(*l));
    struct fuse_fs *fs = NULL;

    if (l == NULL)
        return NULL;
    l->files = files_new();
    if (l->files != NULL && fuse_opt_parse(args, l, OPTIONS, NULL) == 0 &&
        l->max <= NAMES_KEY_MAX && next[0] != NULL && next[1] == NULL) {
        l->next = next[0];
        fs = fuse_fs_new(&OPS, sizeof(OPS), l);
    }
    if (fs == NULL) {
        (void)fputs("sbxnames: wants one file system below it, and sbxnames_max\n", stderr);
        layer_free(l);
    }
    return fs;
}

FUSE_REGISTER_MODULE(sbxnames, layer_new)
