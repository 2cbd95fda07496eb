/* PUT_FILE and GET_FILE: the private files of a personal run, on a tmpfs of their own. */

#include "agent/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_LEN_MAX = 100 };

/* The folder is kept open: whatever the workload does to the path, this one stays meant. */
bool agent_files_init(struct agent *a)
{
    struct pollfd warden = { .fd = a->warden.events, .events = POLLIN };
    char options[128];

    while (!a->confined) { /* its mounts follow ours from then on; without it the agent ends */
        (void)poll(&warden, 1, -1);
        agent_read_events(a);
    }
    if (mkdir("/run", 0755) < 0 && errno != EEXIST)
        return false;
    if (mkdir(SBX_AGENT_PRIVATE_DIR, 0700) < 0 && errno != EEXIST)
        return false;
    (void)snprintf(options, sizeof(options), "mode=0700,uid=%u,gid=%u,size=%dk", a->workload.uid,
                   a->workload.gid, SBX_AGENT_PRIVATE_KIB);
    if (mount("none", SBX_AGENT_PRIVATE_DIR, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, options) <
        0)
        return false;
    a->private_dir = open(SBX_AGENT_PRIVATE_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return a->private_dir >= 0;
}

/* The last part of a path right below the private folder; NULL: not one. */
static const char *name_of(const char *path)
{
    size_t len = strlen(SBX_AGENT_PRIVATE_DIR);
    const char *name = path + len + 1;

    if (strncmp(path, SBX_AGENT_PRIVATE_DIR "/", len + 1) != 0 || !*name ||
        strlen(name) > NAME_LEN_MAX || name[0] == '.' || strchr(name, '/'))
        return NULL;
    return name;
}

static bool write_all(int fd, const char *p, size_t len)
{
    while (len) {
        ssize_t n = write(fd, p, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        p += n;
        len -= (size_t)n;
    }
    return true;
}

/* Under another name first: a reader never meets half a file. */
static bool put(const struct agent *a, const char *name, mode_t mode, struct agent_span content)
{
    char temporary[NAME_LEN_MAX + 8];
    int fd;
    bool ok;

    (void)snprintf(temporary, sizeof(temporary), ".%s.new", name);
    (void)unlinkat(a->private_dir, temporary, 0);
    fd = openat(a->private_dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                0600);
    if (fd < 0)
        return false;
    ok = write_all(fd, content.data, content.len) &&
         fchown(fd, a->workload.uid, a->workload.gid) == 0 && fchmod(fd, mode) == 0;
    close(fd);
    ok = ok && renameat(a->private_dir, temporary, a->private_dir, name) == 0;
    if (!ok)
        (void)unlinkat(a->private_dir, temporary, 0);
    return ok;
}

static const char *requested(struct agent *a, uint32_t stream, const struct agent_request *r,
                             char **path_out)
{
    const char *name;

    *path_out = agent_span_dup(r->text[SBX_TAG_PATH]);
    name = *path_out ? name_of(*path_out) : NULL;
    if (a->private_dir < 0)
        agent_done(a, stream, SBX_AGENT_REASON_FORBIDDEN,
                   "only a holder of a personal run has private files");
    else if (!name)
        agent_done(a, stream, SBX_AGENT_REASON_PATH_ESCAPE, "not a private file's path");
    return a->private_dir < 0 ? NULL : name;
}

void agent_files_put(struct agent *a, uint32_t stream, const struct agent_request *r)
{
    mode_t mode =
        agent_request_has(r, SBX_TAG_MODE) ? (mode_t)r->number[SBX_TAG_MODE] & 0777 : 0600;
    char *path;
    const char *name = requested(a, stream, r, &path);

    if (name && put(a, name, mode, r->text[SBX_TAG_STDIN]))
        agent_done(a, stream, SBX_AGENT_REASON_NONE, NULL);
    else if (name)
        agent_done(a, stream, SBX_AGENT_REASON_IO, "the private file could not be written");
    free(path);
}

/* A plain file of the workload's own: no link to what only the agent may read. */
static int open_plain(const struct agent *a, const char *name, struct stat *st)
{
    int fd = openat(a->private_dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (fd >= 0 && (fstat(fd, st) < 0 || !S_ISREG(st->st_mode) || st->st_nlink != 1 ||
                    st->st_uid != a->workload.uid)) {
        close(fd);
        errno = EPERM;
        return -1;
    }
    return fd;
}

static void send_content(struct agent *a, uint32_t stream, const unsigned char *p, size_t len)
{
    struct agent_queue *q = &a->control.queue;

    for (size_t at = 0; at < len; at += SBX_AGENT_DATA_MAX) {
        size_t n = len - at < SBX_AGENT_DATA_MAX ? len - at : SBX_AGENT_DATA_MAX;

        if (!agent_frame_data(q, SBX_AGENT_DATA, stream, p + at, n)) {
            agent_done(a, stream, SBX_AGENT_REASON_LIMIT, "too much waits to be sent");
            return;
        }
    }
    agent_frame_begin(q, SBX_AGENT_DONE, stream);
    agent_frame_number(q, SBX_TAG_BYTES, len);
    agent_frame_end(q);
}

static void get(struct agent *a, uint32_t stream, const char *name, uint64_t max)
{
    struct stat st;
    int fd = open_plain(a, name, &st);
    size_t limit = max < SBX_AGENT_FILE_MAX ? (size_t)max : SBX_AGENT_FILE_MAX;
    unsigned char *content = fd < 0 ? NULL : malloc(limit + 1);
    size_t len = 0;
    ssize_t n = 1;

    while (content && n > 0 && len <= limit) {
        n = read(fd, content + len, limit + 1 - len);
        if (n > 0)
            len += (size_t)n;
    }
    if (fd < 0 && errno == ENOENT)
        agent_done(a, stream, SBX_AGENT_REASON_MISSING, "no such private file");
    else if (!content || n < 0)
        agent_done(a, stream, SBX_AGENT_REASON_IO, "the private file could not be read");
    else if (len > limit)
        agent_done(a, stream, SBX_AGENT_REASON_TOO_LARGE, "the private file is too large");
    else
        send_content(a, stream, content, len);
    if (content)
        explicit_bzero(content, len);
    free(content);
    if (fd >= 0)
        close(fd);
}

void agent_files_get(struct agent *a, uint32_t stream, const struct agent_request *r)
{
    uint64_t max =
        agent_request_has(r, SBX_TAG_MAX_BYTES) ? r->number[SBX_TAG_MAX_BYTES] : UINT64_MAX;
    char *path;
    const char *name = requested(a, stream, r, &path);

    if (name)
        get(a, stream, name, max);
    free(path);
}
