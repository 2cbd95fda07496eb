/* Reads an archive, which anybody may have written, into a folder.  Every step down goes through
 * openat with O_NOFOLLOW, so a link is never followed, and `..` and absolute names are refused
 * before that.  libarchive parses tar; decompression is ours, so that its window and end are
 * checked. */

#include "agent/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <zstd.h>

enum {
    IN_SIZE = 128 * 1024,
    OUT_SIZE = 256 * 1024,
    WINDOW_LOG_MAX = 23, /* 8 MiB; ours needs 21 */
    MODE_UNKNOWN = 0100000,
    HOLE = 4096, /* zeros of this size are not written */
};

/* The folders from the root down to the one that was used last. */
struct trail {
    int fds[AGENT_DEPTH_MAX];
    char path[AGENT_MEMBER_PATH_MAX]; /* with a slash behind each part */
    size_t ends[AGENT_DEPTH_MAX];     /* where in path the parts end */
    size_t depth;
};

struct unpacker {
    int root;
    uint64_t max_bytes;
    struct agent_feed feed;
    struct agent_archive_result *result;
    struct archive *archive;
    ZSTD_DCtx *zstd;
    unsigned char *in, *out;
    ZSTD_inBuffer pending;
    bool frame_ended, input_ended;
    struct trail trail;
};

static bool corrupt(struct unpacker *u, const char *what, const char *path)
{
    return agent_archive_fail(u->result, SBX_AGENT_REASON_CORRUPT, what, path, 0);
}

static bool escape(struct unpacker *u, const char *path)
{
    return agent_archive_fail(u->result, SBX_AGENT_REASON_PATH_ESCAPE,
                              "the archive has a member that would leave the workspace", path, 0);
}

static bool broken(struct unpacker *u, const char *what, const char *path)
{
    return agent_archive_fail(u->result, SBX_AGENT_REASON_IO, what, path, errno);
}

/* More compressed input.  False at the end or when it broke off. */
static bool refill(struct unpacker *u)
{
    ssize_t n = u->feed.read(u->feed.ctx, u->in, IN_SIZE);

    if (n < 0)
        agent_archive_fail(u->result, SBX_AGENT_REASON_IO, "the archive broke off", NULL, 0);
    if (n <= 0) {
        u->input_ended = true;
        return false;
    }
    u->pending = (ZSTD_inBuffer){ u->in, (size_t)n, 0 };
    return true;
}

/* Some decompressed bytes; 0 at the end, -1 when the input is no whole zstd stream. */
static ssize_t inflate(struct unpacker *u)
{
    ZSTD_outBuffer out = { u->out, OUT_SIZE, 0 };

    while (out.pos == 0) {
        size_t left;

        if (u->pending.pos == u->pending.size && !u->input_ended)
            (void)refill(u);
        if (u->pending.pos == u->pending.size && u->input_ended)
            return u->frame_ended ? 0 : -1;
        left = ZSTD_decompressStream(u->zstd, &out, &u->pending);
        if (ZSTD_isError(left))
            return -1;
        u->frame_ended = left == 0;
    }
    return (ssize_t)out.pos;
}

static la_ssize_t feed_archive(struct archive *a, void *ctx, const void **block)
{
    struct unpacker *u = ctx;
    ssize_t n = inflate(u);

    *block = u->out;
    if (n < 0)
        archive_set_error(a, EINVAL, "not a whole zstd stream");
    return n;
}

/* Where the parts of the trail end that path shares. */
static size_t shared(const struct trail *t, const char *path, size_t parent_len)
{
    size_t n = 0;

    while (n < t->depth && t->ends[n] <= parent_len && memcmp(t->path, path, t->ends[n]) == 0)
        n++;
    return n;
}

static void trail_cut(struct trail *t, size_t depth)
{
    while (t->depth > depth)
        close(t->fds[--t->depth]);
}

static int trail_fd(const struct unpacker *u)
{
    return u->trail.depth ? u->trail.fds[u->trail.depth - 1] : u->root;
}

/* Why a folder could not be opened: a link there is an attempt to leave. */
static bool no_folder(struct unpacker *u, int dir, const char *name, const char *path)
{
    int error = errno;
    struct stat st;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(st.st_mode))
        return S_ISLNK(st.st_mode) ? escape(u, path)
                                   : corrupt(u, "a member lies below one that is no folder", path);
    errno = error;
    return broken(u, "a folder could not be opened", path);
}

/* One step down, made when it is not there: its own member comes later and says its mode. */
static bool step_down(struct unpacker *u, const char *path, size_t begin, size_t end)
{
    struct trail *t = &u->trail;
    char name[NAME_MAX + 1];
    int fd, dir = trail_fd(u);

    if (end - begin > NAME_MAX)
        return corrupt(u, "a name is too long", NULL);
    if (t->depth == AGENT_DEPTH_MAX)
        return corrupt(u, "folders are nested too deeply", NULL);
    memcpy(name, path + begin, end - begin);
    name[end - begin] = '\0';
    fd = agent_open_folder(dir, name);
    if (fd < 0 && errno == ENOENT && mkdirat(dir, name, 0700) == 0)
        fd = agent_open_folder(dir, name);
    if (fd < 0)
        return no_folder(u, dir, name, path);
    memcpy(t->path + begin, path + begin, end - begin);
    t->path[end] = '/';
    t->ends[t->depth] = end + 1;
    t->fds[t->depth++] = fd;
    return true;
}

/* The clean form of a member's name: no empty part, no `.`; `..` and `/` in front are refused. */
static bool normalise(struct unpacker *u, const char *raw, char out[AGENT_MEMBER_PATH_MAX])
{
    size_t len = 0;

    if (raw[0] == '/')
        return escape(u, raw);
    while (*raw) {
        size_t n = strcspn(raw, "/");

        if (n == 2 && raw[0] == '.' && raw[1] == '.')
            return escape(u, raw);
        if (n && !(n == 1 && raw[0] == '.')) {
            if (len + n + 2 > AGENT_MEMBER_PATH_MAX)
                return corrupt(u, "a path is too long", NULL);
            if (len)
                out[len++] = '/';
            memcpy(out + len, raw, n);
            len += n;
        }
        raw += n + (raw[n] == '/');
    }
    out[len] = '\0';
    return true;
}

/* The folder that holds path, and path's last part in it. */
static bool enter_parent(struct unpacker *u, const char *path, int *dir, const char **name)
{
    const char *slash = strrchr(path, '/');
    size_t parent = slash ? (size_t)(slash - path) + 1 : 0;
    size_t at;

    trail_cut(&u->trail, shared(&u->trail, path, parent));
    at = u->trail.depth ? u->trail.ends[u->trail.depth - 1] : 0;
    while (at < parent) {
        size_t end = at + strcspn(path + at, "/");

        if (!step_down(u, path, at, end))
            return false;
        at = end + 1;
    }
    *dir = trail_fd(u);
    *name = path + parent;
    if (strlen(*name) > NAME_MAX)
        return corrupt(u, "a name is too long", NULL);
    return true;
}

/* A second member of one name replaces the first, unless that is a folder. */
static bool make_room(struct unpacker *u, int dir, const char *name, const char *path)
{
    struct stat st;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
        return corrupt(u, "a member would replace a folder", path);
    if (unlinkat(dir, name, 0) < 0 && errno != ENOENT)
        return broken(u, "a member could not be replaced", path);
    return true;
}

static struct timespec mtime_of(struct archive_entry *e)
{
    return (struct timespec){ archive_entry_mtime(e), archive_entry_mtime_nsec(e) };
}

/* Owner before mode, since a new owner clears set-id bits; time last.  mode: what it was made with.
 */
static bool set_attributes(struct unpacker *u, int fd, struct archive_entry *e, mode_t mode,
                           const char *path)
{
    struct timespec times[2] = { { 0, UTIME_OMIT }, mtime_of(e) };
    const char *name;
    const void *value;
    size_t size;

    if (fchown(fd, (uid_t)archive_entry_uid(e), (gid_t)archive_entry_gid(e)) < 0 ||
        (archive_entry_perm(e) != mode && fchmod(fd, archive_entry_perm(e)) < 0))
        return broken(u, "owner or mode could not be set", path);
    archive_entry_xattr_reset(e);
    while (archive_entry_xattr_next(e, &name, &value, &size) == ARCHIVE_OK) {
        /* A file system without them, or a name that is not for us, loses them. */
        if (fsetxattr(fd, name, value, size, 0) < 0 && errno == ENOSPC)
            return broken(u, "an attribute could not be set", path);
    }
    if (futimens(fd, times) < 0)
        return broken(u, "a time could not be set", path);
    return true;
}

static bool all_zero(const unsigned char *p, size_t n)
{
    return n && p[0] == 0 && memcmp(p, p + 1, n - 1) == 0;
}

/* Writes what is not zero: holes of a sparse file come back as holes.  *end: behind the last byte
 * that was written. */
static bool write_block(int fd, const unsigned char *p, size_t len, uint64_t at, uint64_t *end)
{
    while (len) {
        size_t n = len < HOLE ? len : HOLE;
        ssize_t written;

        if (all_zero(p, n)) {
            p += n;
            at += n;
            len -= n;
            continue;
        }
        while (n < len && !all_zero(p + n, len - n < HOLE ? len - n : HOLE))
            n += len - n < HOLE ? len - n : HOLE;
        written = pwrite(fd, p, n, (off_t)at);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        p += written;
        at += (uint64_t)written;
        len -= (size_t)written;
        *end = at;
    }
    return true;
}

static bool write_content(struct unpacker *u, int fd, uint64_t size, const char *path)
{
    const void *block;
    size_t len;
    la_int64_t at;
    uint64_t end = 0;
    int r;

    while ((r = archive_read_data_block(u->archive, &block, &len, &at)) == ARCHIVE_OK) {
        if (at < 0 || (uint64_t)at > size || len > size - (uint64_t)at)
            return corrupt(u, "a file is longer than it says", path);
        if (!write_block(fd, block, len, (uint64_t)at, &end))
            return broken(u, "a file could not be written", path);
    }
    if (r != ARCHIVE_EOF)
        return corrupt(u, "the archive is damaged", path);
    if (end < size && ftruncate(fd, (off_t)size) < 0)
        return broken(u, "a file could not be written", path);
    return true;
}

static bool unpack_file(struct unpacker *u, struct archive_entry *e, int dir, const char *name,
                        const char *path)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    la_int64_t size = archive_entry_size(e);
    mode_t mode = archive_entry_perm(e) & 0777;
    bool ok;
    int fd;

    if (size < 0)
        return corrupt(u, "a size is negative", path);
    if ((uint64_t)size > u->max_bytes - u->result->bytes)
        return agent_archive_fail(u->result, SBX_AGENT_REASON_TOO_LARGE,
                                  "the archive unpacks to more than its limit", NULL, 0);
    u->result->bytes += (uint64_t)size;
    fd = openat(dir, name, flags, mode);
    if (fd < 0 && errno == EEXIST) {
        if (!make_room(u, dir, name, path))
            return false;
        fd = openat(dir, name, flags, mode);
    }
    if (fd < 0)
        return broken(u, "a file could not be made", path);
    ok = write_content(u, fd, (uint64_t)size, path) && set_attributes(u, fd, e, mode, path);
    close(fd);
    return ok;
}

static bool unpack_folder(struct unpacker *u, struct archive_entry *e, int dir, const char *name,
                          const char *path)
{
    bool ok;
    int fd;

    if (mkdirat(dir, name, 0700) < 0 && errno != EEXIST)
        return broken(u, "a folder could not be made", path);
    fd = agent_open_folder(dir, name);
    if (fd < 0)
        return no_folder(u, dir, name, path);
    ok = set_attributes(u, fd, e, MODE_UNKNOWN, path);
    close(fd);
    return ok;
}

/* Its target is text: it may point anywhere, since nothing here follows it. */
static bool unpack_symlink(struct unpacker *u, struct archive_entry *e, int dir, const char *name,
                           const char *path)
{
    const char *target = archive_entry_symlink(e);
    struct timespec times[2] = { { 0, UTIME_OMIT }, mtime_of(e) };

    if (!target || !*target || strlen(target) >= PATH_MAX)
        return corrupt(u, "a link has no target", path);
    if (!make_room(u, dir, name, path))
        return false;
    if (symlinkat(target, dir, name) < 0 ||
        fchownat(dir, name, (uid_t)archive_entry_uid(e), (gid_t)archive_entry_gid(e),
                 AT_SYMLINK_NOFOLLOW) < 0)
        return broken(u, "a link could not be made", path);
    /* Some file systems have no times of links. */
    if (utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW) < 0 && errno != EOPNOTSUPP &&
        errno != EINVAL)
        return broken(u, "a time could not be set", path);
    return true;
}

/* The target is a member that came before; it is found in the same careful way. */
static bool unpack_hard_link(struct unpacker *u, struct archive_entry *e, const char *path)
{
    static char target[AGENT_MEMBER_PATH_MAX];
    const char *raw = archive_entry_hardlink(e), *name;
    struct stat st;
    int dir, from;
    const char *from_name;
    bool ok;

    if (!normalise(u, raw, target) || !enter_parent(u, target, &dir, &from_name))
        return false;
    if (!*from_name || fstatat(dir, from_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISDIR(st.st_mode))
        return corrupt(u, "a hard link's target is not there", path);
    from = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (from < 0)
        return broken(u, "a folder could not be opened", path);
    ok = enter_parent(u, path, &dir, &name) &&
         (strcmp(path, target) == 0 || make_room(u, dir, name, path));
    if (ok && strcmp(path, target) != 0 && linkat(from, from_name, dir, name, 0) < 0)
        ok = broken(u, "a hard link could not be made", path);
    close(from);
    return ok;
}

static bool unpack_member(struct unpacker *u, struct archive_entry *e)
{
    static char path[AGENT_MEMBER_PATH_MAX];
    const char *raw = archive_entry_pathname(e), *name;
    int dir;

    if (!raw)
        return corrupt(u, "a name cannot be read", NULL);
    if (++u->result->members > AGENT_MEMBERS_MAX)
        return agent_archive_fail(u->result, SBX_AGENT_REASON_TOO_LARGE,
                                  "the archive has too many members", NULL, 0);
    if (!normalise(u, raw, path))
        return false;
    if (archive_entry_hardlink(e))
        return *path ? unpack_hard_link(u, e, path) : corrupt(u, "a name is empty", NULL);
    if (!*path)
        return archive_entry_filetype(e) == AE_IFDIR
                   ? set_attributes(u, u->root, e, MODE_UNKNOWN, ".")
                   : corrupt(u, "a name is empty", NULL);
    if (!enter_parent(u, path, &dir, &name))
        return false;
    switch (archive_entry_filetype(e)) {
    case AE_IFREG:
        return unpack_file(u, e, dir, name, path);
    case AE_IFDIR:
        return unpack_folder(u, e, dir, name, path);
    case AE_IFLNK:
        return unpack_symlink(u, e, dir, name, path);
    default: /* PACK writes none */
        return corrupt(u, "the archive has a device, pipe or socket", path);
    }
}

/* What follows the archive's end must still be one whole zstd stream. */
static bool read_rest(struct unpacker *u)
{
    ssize_t n;

    while ((n = inflate(u)) > 0)
        ;
    return n == 0 || corrupt(u, "the archive is damaged", NULL);
}

static bool unpack_all(struct unpacker *u)
{
    struct archive_entry *e;
    int r;

    while ((r = archive_read_next_header(u->archive, &e)) == ARCHIVE_OK || r == ARCHIVE_WARN) {
        if (!unpack_member(u, e))
            return false;
    }
    if (r != ARCHIVE_EOF)
        return corrupt(u, "the archive is damaged", NULL);
    if (u->result->members == 0)
        return corrupt(u, "the archive is empty", NULL);
    return read_rest(u);
}

static bool open_archive(struct unpacker *u)
{
    u->zstd = ZSTD_createDCtx();
    u->in = malloc(IN_SIZE);
    u->out = malloc(OUT_SIZE);
    u->archive = archive_read_new();
    if (!u->zstd || !u->in || !u->out || !u->archive ||
        ZSTD_isError(ZSTD_DCtx_setParameter(u->zstd, ZSTD_d_windowLogMax, WINDOW_LOG_MAX)))
        return agent_archive_fail(u->result, SBX_AGENT_REASON_IO, "out of memory", NULL, 0);
    if (archive_read_support_format_tar(u->archive) != ARCHIVE_OK ||
        archive_read_open(u->archive, u, NULL, feed_archive, NULL) != ARCHIVE_OK)
        return corrupt(u, "this is no archive of a workspace", NULL);
    return true;
}

void agent_unpack(int root, uint64_t max_bytes, struct agent_feed feed,
                  struct agent_archive_result *out)
{
    struct unpacker *u = calloc(1, sizeof(*u));
    mode_t mask = umask(0); /* modes are the archive's */

    *out = (struct agent_archive_result){ 0 };
    if (!u) {
        agent_archive_fail(out, SBX_AGENT_REASON_IO, "out of memory", NULL, 0);
        return;
    }
    u->root = root;
    u->max_bytes = max_bytes;
    u->feed = feed;
    u->result = out;
    u->frame_ended = true;
    if (open_archive(u))
        (void)unpack_all(u);
    trail_cut(&u->trail, 0);
    archive_read_free(u->archive);
    ZSTD_freeDCtx(u->zstd);
    free(u->in);
    free(u->out);
    free(u);
    umask(mask);
    if (out->reason != SBX_AGENT_REASON_NONE)
        (void)agent_empty(root);
}

static bool remove_below(int fd, unsigned depth)
{
    int copy =
        depth > 2 * AGENT_DEPTH_MAX ? -1 : openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    struct stat own, its;
    struct dirent *e;
    bool ok = true;

    if (!d) {
        if (copy >= 0)
            close(copy);
        return false;
    }
    if (fstat(fd, &own) < 0) {
        closedir(d);
        return false;
    }
    while ((e = readdir(d))) {
        int sub;

        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            unlinkat(fd, e->d_name, 0) == 0)
            continue;
        sub = agent_open_folder(fd, e->d_name);
        if (sub >= 0 && fstat(sub, &its) == 0 && its.st_dev != own.st_dev) {
            close(sub); /* a volume that is mounted here is not the workspace's */
            continue;
        }
        ok = sub >= 0 && remove_below(sub, depth + 1) && ok;
        if (sub >= 0)
            close(sub);
        ok = unlinkat(fd, e->d_name, AT_REMOVEDIR) == 0 && ok;
    }
    closedir(d);
    return ok;
}

bool agent_empty(int root)
{
    return remove_below(root, 0);
}
