#include "gateway/journal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/id_map.h"
#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"

enum {
    CRC_LEN = 8,
    LINE_HEAD = CRC_LEN + 1 + SBX_ID_LEN + 1,
    PENDING_MAX = 256 * 1024 * 1024,
    PARENT_MAX = 4096,
    RESERVE = 1024 * 1024, /* bytes behind the log that are ours already: an end on a full disk */
};

/* One write and who waits for it. */
struct round {
    size_t waiters;
    bool done, ok;
};

struct journal {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    char *path;
    size_t count_max;
    int fd;
    struct id_map texts; /* owned strings */
    uint64_t bytes, live;
    struct buf pending;    /* lines that nobody has written yet */
    struct round *waiting; /* for them; NULL: there are none */
    uint64_t reserved;     /* bytes of the file that have room on the disk; the writer's */
    bool writing;
    uint64_t syncs, puts;
};

static bool line_put(struct buf *b, const char *id, const char *text)
{
    size_t start = b->len;
    uint32_t crc;
    char head[CRC_LEN + 2];

    if (!buf_printf(b, "%08x %s ", 0U, id) || !buf_puts(b, text) || !buf_puts(b, "\n"))
        return false;
    crc = crc32_of(b->data + start + CRC_LEN + 1, b->len - start - CRC_LEN - 2);
    (void)snprintf(head, sizeof(head), "%08x", crc);
    memcpy(b->data + start, head, CRC_LEN);
    return true;
}

static size_t line_size(const char *text)
{
    return LINE_HEAD + strlen(text) + 1;
}

/* Takes text over; NULL takes the id out. */
static void remember(struct journal *j, const char *id, char *text)
{
    char *old = id_map_remove(&j->texts, id);

    if (old != NULL)
        j->live -= line_size(old);
    free(old);
    if (text == NULL)
        return;
    j->live += line_size(text);
    id_map_put(&j->texts, id, text);
}

/* False: it is not a whole line of ours. */
static bool read_line(struct journal *j, char *line, size_t len)
{
    char id[ID_SIZE], head[CRC_LEN + 1];

    if (len < LINE_HEAD || line[CRC_LEN] != ' ' || line[LINE_HEAD - 1] != ' ')
        return false;
    (void)snprintf(head, sizeof(head), "%08x", crc32_of(line + CRC_LEN + 1, len - CRC_LEN - 1));
    memcpy(id, line + CRC_LEN + 1, SBX_ID_LEN);
    id[SBX_ID_LEN] = 0;
    if (memcmp(head, line, CRC_LEN) != 0 || !id_valid(id))
        return false;
    line[len] = 0;
    if (strcmp(line + LINE_HEAD, "-") == 0)
        remember(j, id, NULL);
    else
        remember(j, id, mem_strdup(line + LINE_HEAD));
    return true;
}

/* Best effort: a file system that cannot, or has no room now, is asked again with later writes. */
static void reserve(struct journal *j, uint64_t bytes)
{
    if (j->reserved >= bytes + RESERVE / 2)
        return;
    if (fallocate(j->fd, FALLOC_FL_KEEP_SIZE, (off_t)bytes, RESERVE) == 0)
        j->reserved = bytes + RESERVE;
}

/* Each line stands for itself: a damaged one takes no other with it.  What follows the last whole
 * line is cut, so that the next one begins where a line begins. */
static enum sbx_code load(struct journal *j, size_t *dropped, struct sbx_err *err)
{
    FILE *f = fdopen(dup(j->fd), "re");
    uint64_t at = 0, good = 0;
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    struct stat st;

    if (f == NULL || fstat(j->fd, &st) < 0) {
        if (f != NULL)
            (void)fclose(f);
        return err_sys(err, SBX_E_INTERNAL, "read the journal");
    }
    while ((n = getline(&line, &cap, f)) > 0) {
        at += (uint64_t)n;
        if (line[n - 1] != '\n' || !read_line(j, line, (size_t)n - 1))
            continue;
        j->bytes = at;
        good += (uint64_t)n;
    }
    free(line);
    (void)fclose(f);
    *dropped = (size_t)((uint64_t)st.st_size - good);
    if ((uint64_t)st.st_size > j->bytes &&
        (ftruncate(j->fd, (off_t)j->bytes) < 0 || fdatasync(j->fd) < 0))
        return err_sys(err, SBX_E_INTERNAL, "cut the journal's damaged tail");
    if (lseek(j->fd, (off_t)j->bytes, SEEK_SET) < 0)
        return err_sys(err, SBX_E_INTERNAL, "read the journal");
    reserve(j, j->bytes);
    return SBX_OK;
}

enum sbx_code journal_open(const char *path, size_t count_max, struct journal **out,
                           size_t *dropped, struct sbx_err *err)
{
    struct journal *j = mem_zalloc(sizeof(*j));
    char parent[PARENT_MAX];
    char *slash;

    (void)pthread_mutex_init(&j->lock, NULL);
    (void)pthread_cond_init(&j->changed, NULL);
    j->path = mem_strdup(path);
    j->count_max = count_max;
    j->pending.max = PENDING_MAX;
    j->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    (void)str_copy(parent, sizeof(parent), path);
    slash = strrchr(parent, '/');
    if (slash != NULL)
        *slash = 0;
    if (j->fd < 0)
        (void)!err_sys(err, SBX_E_INTERNAL, "open the journal");
    else if (slash != NULL && file_sync_dir(parent, err) == SBX_OK)
        (void)!load(j, dropped, err);
    if (err->code != SBX_OK) {
        journal_close(j);
        return err->code;
    }
    *out = j;
    return SBX_OK;
}

void journal_close(struct journal *j)
{
    if (j == NULL)
        return;
    ID_MAP_EACH(&j->texts, slot)
    {
        free(slot->value);
    }
    id_map_fini(&j->texts);
    buf_fini(&j->pending);
    fd_close(&j->fd);
    free(j->path);
    (void)pthread_cond_destroy(&j->changed);
    (void)pthread_mutex_destroy(&j->lock);
    free(j);
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

/* Under the lock: everything that lives, as a log of its own. */
static bool gather(struct journal *j, struct buf *b)
{
    ID_MAP_EACH(&j->texts, slot)
    {
        if (!line_put(b, slot->id, slot->value))
            return false;
    }
    return true;
}

/* Without the lock, by the one writer: puts lines behind the log. */
static bool append(struct journal *j, const struct buf *lines)
{
    if (write_all(j->fd, lines->data, lines->len) && fdatasync(j->fd) == 0)
        return true;
    /* What is half there must not stand before what comes next. */
    (void)!ftruncate(j->fd, (off_t)j->bytes);
    (void)lseek(j->fd, (off_t)j->bytes, SEEK_SET);
    j->reserved = j->bytes;
    return false;
}

/* A whole new log in the place of the old one.  *renamed: the name is the new log's, whose
 * descriptor is ours from then on: what is put into the old one would not be found again. */
static bool replace(struct journal *j, const struct buf *lines, bool *renamed)
{
    SCOPED_FREE char *next = mem_printf("%s.next", j->path); /* a writer that was killed left it */
    struct sbx_err err = { 0 };
    char parent[PARENT_MAX];
    SCOPED_FD int fd = open(next, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (fd < 0 || !write_all(fd, lines->data, lines->len) || fsync(fd) < 0 ||
        rename(next, j->path) < 0) {
        (void)unlink(next);
        return false;
    }
    *renamed = true;
    fd_close(&j->fd);
    j->fd = fd;
    j->reserved = 0;
    fd = -1;
    (void)str_copy(parent, sizeof(parent), j->path);
    *strrchr(parent, '/') = 0;
    return file_sync_dir(parent, &err) == SBX_OK;
}

/* Under the lock, which it lets go of meanwhile: writes all that is pending. */
static void write_round(struct journal *j)
{
    SCOPED_BUF struct buf lines = j->pending;
    SCOPED_BUF struct buf all = BUF_INIT((size_t)j->live);
    struct round *round = j->waiting;
    uint64_t bytes = j->bytes;
    bool anew = bytes + lines.len > 2 * j->live + JOURNAL_SLACK && gather(j, &all);
    bool renamed = false, ok;

    j->pending = (struct buf)BUF_INIT(PENDING_MAX);
    j->waiting = NULL;
    j->writing = true;
    (void)pthread_mutex_unlock(&j->lock);
    ok = anew && replace(j, &all, &renamed);
    if (renamed) {
        bytes = all.len;
    } else { /* also when there was no room for a second log */
        ok = append(j, &lines);
        bytes += ok ? lines.len : 0;
    }
    reserve(j, bytes);
    (void)pthread_mutex_lock(&j->lock);
    j->bytes = bytes;
    j->writing = false;
    j->syncs++;
    round->done = true;
    round->ok = ok;
    (void)pthread_cond_broadcast(&j->changed);
}

/* Under the lock: ids that these entries would add.  A full journal still takes what is known, and
 * what shrinks it. */
static size_t fresh(const struct journal *j, const struct journal_entry *entries, size_t count)
{
    size_t n = 0;

    for (size_t i = 0; i < count; i++)
        n += entries[i].text != NULL && id_map_get(&j->texts, entries[i].id) == NULL ? 1 : 0;
    return n;
}

enum sbx_code journal_put(struct journal *j, const struct journal_entry *entries, size_t count,
                          struct sbx_err *err)
{
    SCOPED_BUF struct buf lines = BUF_INIT(PENDING_MAX);
    enum sbx_code code = SBX_OK;
    struct round *round;
    size_t more;

    for (size_t i = 0; i < count; i++) {
        const char *text = entries[i].text != NULL ? entries[i].text : "-";

        assert(id_valid(entries[i].id) && strchr(text, '\n') == NULL);
        if (strlen(text) > JOURNAL_TEXT_MAX || !line_put(&lines, entries[i].id, text))
            return err_set(err, SBX_E_TOO_LARGE, "a journal entry is too large");
    }
    (void)pthread_mutex_lock(&j->lock);
    more = fresh(j, entries, count);
    if ((more > 0 && j->texts.count + more > j->count_max) ||
        !buf_append(&j->pending, lines.data, lines.len)) {
        (void)pthread_mutex_unlock(&j->lock);
        return err_set(err, SBX_E_UNAVAILABLE, "the journal is full");
    }
    for (size_t i = 0; i < count; i++)
        remember(j, entries[i].id, entries[i].text != NULL ? mem_strdup(entries[i].text) : NULL);
    j->puts++;
    if (j->waiting == NULL)
        j->waiting = mem_zalloc(sizeof(*j->waiting));
    round = j->waiting;
    round->waiters++;
    while (!round->done) {
        if (j->writing)
            (void)pthread_cond_wait(&j->changed, &j->lock);
        else
            write_round(j);
    }
    if (!round->ok)
        code = err_set(err, SBX_E_UNAVAILABLE, "the journal cannot be written");
    if (--round->waiters == 0)
        free(round);
    (void)pthread_mutex_unlock(&j->lock);
    return code;
}

void journal_each(struct journal *j, void (*fn)(void *arg, const char *id, const char *text),
                  void *arg)
{
    (void)pthread_mutex_lock(&j->lock);
    ID_MAP_EACH(&j->texts, slot)
    {
        fn(arg, slot->id, slot->value);
    }
    (void)pthread_mutex_unlock(&j->lock);
}

void journal_stats(struct journal *j, struct journal_stats *out)
{
    (void)pthread_mutex_lock(&j->lock);
    *out = (struct journal_stats){ .count = j->texts.count,
                                   .bytes = j->bytes,
                                   .live_bytes = j->live,
                                   .syncs = j->syncs,
                                   .puts = j->puts };
    (void)pthread_mutex_unlock(&j->lock);
}
