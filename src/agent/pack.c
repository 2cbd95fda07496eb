/* Walks a folder and writes it as an archive.  A folder's own member comes behind its content, so
 * that who unpacks sets its time once. */

#include "agent/archive.h"
#include "agent/tar.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { READ_SIZE = 1024 * 1024, LINK_SLOTS_FIRST = 1024, TEXT_FIRST = 4096, XATTRS_MAX = 256 };

struct link {
    dev_t dev;
    ino_t ino;
    size_t path; /* where in the text of paths, and one; 0: free */
};

/* Strings, one behind the other. */
struct text {
    char *data;
    size_t len, cap;
};

struct packer {
    struct agent_tar *tar;
    const struct agent_ignore *ignore;
    struct agent_archive_result *result;
    uint64_t max_bytes;
    unsigned char *buffer;
    char *path; /* of what is being packed; AGENT_MEMBER_PATH_MAX */
    size_t path_len;
    struct link *links;
    size_t link_count, link_slots;
    struct text link_paths;
    bool no_xattrs; /* the file system has none: do not ask for each file */
    char *xattr_names, *xattr_values;
    struct agent_tar_xattr xattrs[XATTRS_MAX];
};

bool agent_archive_fail(struct agent_archive_result *r, enum sbx_agent_reason reason,
                        const char *what, const char *path, int error)
{
    if (r->reason != SBX_AGENT_REASON_NONE)
        return false;
    r->reason = reason;
    (void)snprintf(r->message, sizeof(r->message), "%s%s%.100s%s%s", what, path ? ": " : "",
                   path ? path : "", error ? ": " : "", error ? strerror(error) : "");
    return false;
}

int agent_open_folder(int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat st;

    if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISDIR(st.st_mode))) {
        close(fd);
        errno = ENOTDIR;
        return -1;
    }
    return fd;
}

static bool broken(struct packer *p, const char *what)
{
    return agent_archive_fail(p->result, SBX_AGENT_REASON_IO, what, p->path, errno);
}

static bool unwanted(struct packer *p)
{
    return agent_archive_fail(p->result, SBX_AGENT_REASON_IO, "the archive could not be sent", NULL,
                              0);
}

/* Appends n bytes and a NUL. */
static bool text_add(struct text *t, const char *s, size_t n)
{
    if (t->cap - t->len < n + 1) {
        size_t cap = t->cap ? t->cap * 2 : TEXT_FIRST;
        char *grown;

        while (cap - t->len < n + 1)
            cap *= 2;
        grown = realloc(t->data, cap);
        if (!grown)
            return false;
        t->data = grown;
        t->cap = cap;
    }
    memcpy(t->data + t->len, s, n);
    t->data[t->len + n] = '\0';
    t->len += n + 1;
    return true;
}

static size_t link_slot(const struct link *links, size_t slots, dev_t dev, ino_t ino)
{
    size_t at = (size_t)((ino * UINT64_C(0x9e3779b97f4a7c15)) ^ dev) & (slots - 1);

    while (links[at].path && (links[at].dev != dev || links[at].ino != ino))
        at = (at + 1) & (slots - 1);
    return at;
}

static bool links_grow(struct packer *p)
{
    size_t slots = p->link_slots ? p->link_slots * 2 : LINK_SLOTS_FIRST;
    struct link *links = calloc(slots, sizeof(*links));

    if (!links)
        return false;
    for (size_t i = 0; i < p->link_slots; i++) {
        if (p->links[i].path)
            links[link_slot(links, slots, p->links[i].dev, p->links[i].ino)] = p->links[i];
    }
    free(p->links);
    p->links = links;
    p->link_slots = slots;
    return true;
}

/* The path under which this file was packed before; NULL: remember it under this one. */
static const char *known_link(struct packer *p, const struct stat *st)
{
    size_t at, path = p->link_paths.len;

    if (p->link_count * 2 >= p->link_slots && !links_grow(p))
        return NULL;
    at = link_slot(p->links, p->link_slots, st->st_dev, st->st_ino);
    if (p->links[at].path)
        return p->link_paths.data + p->links[at].path - 1;
    if (p->link_count < AGENT_LINKS_MAX && text_add(&p->link_paths, p->path, p->path_len)) {
        p->links[at] = (struct link){ st->st_dev, st->st_ino, path + 1 };
        p->link_count++;
    }
    return NULL;
}

static size_t read_xattrs(struct packer *p, int fd)
{
    size_t count = 0, used = 0;
    ssize_t len;

    if (p->no_xattrs)
        return 0;
    len = flistxattr(fd, p->xattr_names, AGENT_XATTR_MAX);
    if (len < 0 && (errno == ENOTSUP || errno == ENOSYS))
        p->no_xattrs = true;
    for (ssize_t at = 0; at < len && count < XATTRS_MAX;) {
        const char *name = p->xattr_names + at;
        ssize_t n = fgetxattr(fd, name, p->xattr_values + used, AGENT_XATTR_MAX - used);

        at += (ssize_t)strlen(name) + 1;
        if (n < 0)
            continue; /* gone, or not for us (security.*) */
        p->xattrs[count++] = (struct agent_tar_xattr){ name, p->xattr_values + used, (size_t)n };
        used += (size_t)n;
    }
    return count;
}

static bool member(struct packer *p, char type, const struct stat *st, const char *target,
                   size_t xattr_count)
{
    if (!agent_tar_member(p->tar, p->path, type, st, target, p->xattrs, xattr_count))
        return unwanted(p);
    p->result->members++;
    return true;
}

/* Exactly what the head promised: who reads on finds the next head there. */
static bool content(struct packer *p, int fd, uint64_t left)
{
    while (left) {
        ssize_t n = read(fd, p->buffer, left < READ_SIZE ? (size_t)left : READ_SIZE);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return broken(p, "a file could not be read");
        if (n == 0) {
            errno = 0;
            return broken(p, "a file became shorter while it was read");
        }
        if (!agent_tar_data(p->tar, p->buffer, (size_t)n))
            return unwanted(p);
        left -= (uint64_t)n;
    }
    return agent_tar_data_end(p->tar) || unwanted(p);
}

static bool pack_open_file(struct packer *p, int fd)
{
    struct stat st;
    const char *known;

    if (fstat(fd, &st) < 0)
        return broken(p, "a file could not be looked at");
    if (!S_ISREG(st.st_mode))
        return true; /* became something else: left out as that */
    known = st.st_nlink > 1 ? known_link(p, &st) : NULL;
    if (known)
        return member(p, '1', &st, known, 0);
    if ((uint64_t)st.st_size > p->max_bytes - p->result->bytes)
        return agent_archive_fail(p->result, SBX_AGENT_REASON_TOO_LARGE,
                                  "the workspace is larger than the snapshot limit", NULL, 0);
    p->result->bytes += (uint64_t)st.st_size;
    return member(p, '0', &st, NULL, read_xattrs(p, fd)) && content(p, fd, (uint64_t)st.st_size);
}

static bool pack_file(struct packer *p, int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    bool ok;

    if (fd < 0)
        return errno == ENOENT || errno == ELOOP || errno == ENXIO
                   ? true
                   : broken(p, "a file could not be opened");
    ok = pack_open_file(p, fd);
    close(fd);
    return ok;
}

static bool pack_symlink(struct packer *p, int dir, const char *name)
{
    char target[PATH_MAX];
    struct stat st;
    const char *known;
    ssize_t n;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        (n = readlinkat(dir, name, target, sizeof(target) - 1)) < 0)
        return errno == ENOENT || errno == EINVAL ? true : broken(p, "a link could not be read");
    target[n] = '\0';
    known = st.st_nlink > 1 ? known_link(p, &st) : NULL;
    return known ? member(p, '1', &st, known, 0) : member(p, '2', &st, target, 0);
}

static unsigned char type_of(int dir, const struct dirent *e)
{
    struct stat st;

    if (e->d_type != DT_UNKNOWN)
        return e->d_type;
    if (fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return DT_UNKNOWN;
    return (unsigned char)IFTODT(st.st_mode);
}

/* A type byte, then the name. */
static bool name_add(struct text *names, unsigned char type, const char *name)
{
    const char first[1] = { (char)type };

    if (!text_add(names, first, 1))
        return false;
    names->len--; /* the name goes where the NUL was */
    return text_add(names, name, strlen(name));
}

static bool names_read(struct packer *p, int fd, struct text *out)
{
    int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *e;
    bool ok = true;

    if (!d) {
        if (copy >= 0)
            close(copy);
        return broken(p, "a folder could not be listed");
    }
    while (ok && (errno = 0, e = readdir(d))) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            ok = name_add(out, type_of(fd, e), e->d_name);
    }
    ok = ok && errno == 0;
    closedir(d);
    return ok || broken(p, "a folder could not be listed");
}

static bool path_push(struct packer *p, const char *name)
{
    size_t n = strlen(name), slash = p->path_len ? 1 : 0;

    if (p->path_len + n + slash + 2 > AGENT_MEMBER_PATH_MAX) {
        errno = ENAMETOOLONG;
        return broken(p, "a path is too long");
    }
    if (slash)
        p->path[p->path_len] = '/';
    memcpy(p->path + p->path_len + slash, name, n + 1);
    p->path_len += n + slash;
    return true;
}

static bool pack_folder(struct packer *p, int fd, unsigned depth);

static bool pack_subfolder(struct packer *p, int dir, const char *name, unsigned depth)
{
    int fd = agent_open_folder(dir, name);
    bool ok;

    if (fd < 0)
        return errno == ENOENT ? true : broken(p, "a folder could not be opened");
    ok = pack_folder(p, fd, depth);
    close(fd);
    return ok;
}

static bool pack_entry(struct packer *p, int dir, unsigned char type, const char *name,
                       unsigned depth)
{
    size_t len = p->path_len;
    bool ok = path_push(p, name);

    if (ok && !agent_ignore_excludes(p->ignore, p->path, type == DT_DIR)) {
        if (type == DT_DIR)
            ok = pack_subfolder(p, dir, name, depth);
        else if (type == DT_REG)
            ok = pack_file(p, dir, name);
        else if (type == DT_LNK)
            ok = pack_symlink(p, dir, name);
    }
    p->path_len = len;
    p->path[len] = '\0';
    return ok;
}

/* The folder's own member: its name ends with a slash, the root's is `./`. */
static bool pack_folder_itself(struct packer *p, int fd)
{
    struct stat st;
    size_t len = p->path_len;
    bool ok;

    if (fstat(fd, &st) < 0)
        return broken(p, "a folder could not be looked at");
    memcpy(p->path + len, len ? "/" : "./", len ? 2 : 3);
    ok = member(p, '5', &st, NULL, read_xattrs(p, fd));
    p->path[len] = '\0';
    return ok;
}

static bool pack_folder(struct packer *p, int fd, unsigned depth)
{
    struct text names = { 0 };
    bool ok;

    errno = 0;
    if (depth > AGENT_DEPTH_MAX)
        return broken(p, "folders are nested too deeply");
    ok = names_read(p, fd, &names);
    for (size_t at = 0; ok && at < names.len; at += strlen(names.data + at + 1) + 2)
        ok = pack_entry(p, fd, (unsigned char)names.data[at], names.data + at + 1, depth + 1);
    free(names.data);
    return ok && pack_folder_itself(p, fd);
}

void agent_pack(int root, const struct agent_ignore *ignore, uint64_t max_bytes,
                struct agent_sink sink, struct agent_archive_result *out)
{
    struct packer p = { .ignore = ignore, .result = out, .max_bytes = max_bytes };

    *out = (struct agent_archive_result){ 0 };
    p.tar = agent_tar_new(sink);
    p.buffer = malloc(READ_SIZE);
    p.path = calloc(1, AGENT_MEMBER_PATH_MAX);
    p.xattr_names = malloc(AGENT_XATTR_MAX);
    p.xattr_values = malloc(AGENT_XATTR_MAX);
    if (!p.tar || !p.buffer || !p.path || !p.xattr_names || !p.xattr_values)
        agent_archive_fail(out, SBX_AGENT_REASON_IO, "out of memory", NULL, 0);
    else if (pack_folder(&p, root, 0) && !agent_tar_end(p.tar))
        unwanted(&p);
    free(p.links);
    free(p.link_paths.data);
    free(p.buffer);
    free(p.path);
    free(p.xattr_names);
    free(p.xattr_values);
    agent_tar_free(p.tar);
}
