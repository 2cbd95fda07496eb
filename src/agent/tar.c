#include "agent/tar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum {
    BLOCK = 512,
    NAME_LEN = 100, /* of the classic head; longer ones go into pax records */
    LEVEL = 3,      /* zstd's and tar's default */
    IN_SIZE = 256 * 1024,
};

#define SIZE_CLASSIC_MAX UINT64_C(077777777777)
#define ID_CLASSIC_MAX   07777777U

/* Offsets of the classic head. */
enum {
    AT_MODE = 100,
    AT_UID = 108,
    AT_GID = 116,
    AT_SIZE = 124,
    AT_MTIME = 136,
    AT_SUM = 148,
    AT_TYPE = 156,
    AT_LINK = 157,
    AT_MAGIC = 257,
};

struct agent_tar {
    struct agent_sink sink;
    ZSTD_CCtx *zstd;
    unsigned char *in, *out;
    size_t in_len, out_size;
    uint64_t pad; /* of the file whose content is being written */
    struct agent_queue records;
};

struct agent_tar *agent_tar_new(struct agent_sink sink)
{
    struct agent_tar *t = calloc(1, sizeof(*t));

    if (!t)
        return NULL;
    t->sink = sink;
    t->zstd = ZSTD_createCCtx();
    t->in = malloc(IN_SIZE);
    t->out_size = SBX_AGENT_DATA_MAX;
    t->out = malloc(t->out_size);
    t->records.max = 4 * AGENT_MEMBER_PATH_MAX;
    if (!t->zstd || !t->in || !t->out ||
        ZSTD_isError(ZSTD_CCtx_setParameter(t->zstd, ZSTD_c_compressionLevel, LEVEL)) ||
        ZSTD_isError(ZSTD_CCtx_setParameter(t->zstd, ZSTD_c_checksumFlag, 1))) {
        agent_tar_free(t);
        return NULL;
    }
    return t;
}

void agent_tar_free(struct agent_tar *t)
{
    if (!t)
        return;
    ZSTD_freeCCtx(t->zstd);
    free(t->in);
    free(t->out);
    agent_queue_fini(&t->records);
    free(t);
}

static bool compress(struct agent_tar *t, const void *data, size_t len, ZSTD_EndDirective how)
{
    ZSTD_inBuffer in = { data, len, 0 };
    size_t left;

    do {
        ZSTD_outBuffer out = { t->out, t->out_size, 0 };

        left = ZSTD_compressStream2(t->zstd, &out, &in, how);
        if (ZSTD_isError(left))
            return false;
        if (out.pos && !t->sink.write(t->sink.ctx, t->out, out.pos))
            return false;
    } while (in.pos < in.size || (how == ZSTD_e_end && left));
    return true;
}

static bool flush(struct agent_tar *t)
{
    size_t len = t->in_len;

    t->in_len = 0;
    return compress(t, t->in, len, ZSTD_e_continue);
}

static bool put(struct agent_tar *t, const void *data, size_t len)
{
    if (len >= IN_SIZE)
        return flush(t) && compress(t, data, len, ZSTD_e_continue);
    if (t->in_len + len > IN_SIZE && !flush(t))
        return false;
    memcpy(t->in + t->in_len, data, len);
    t->in_len += len;
    return true;
}

static bool put_zeros(struct agent_tar *t, size_t len)
{
    static const unsigned char zeros[2 * BLOCK];

    return put(t, zeros, len);
}

/* `LEN KEY=VALUE\n`, where LEN counts itself. */
static bool record(struct agent_tar *t, const char *key, const void *value, size_t len)
{
    struct agent_queue *q = &t->records;
    char head[512];
    size_t body = strlen(key) + len + 3; /* space, equals, newline */
    size_t digits = 1, total;
    unsigned char *p;
    int n;

    for (size_t limit = 10; body + digits >= limit; limit *= 10)
        digits++;
    total = body + digits;
    n = snprintf(head, sizeof(head), "%zu %s=", total, key);
    if (n < 0 || (size_t)n >= sizeof(head) || !(p = agent_queue_reserve(q, total)))
        return false;
    memcpy(p, head, (size_t)n);
    memcpy(p + n, value, len);
    p[total - 1] = '\n';
    q->len += total;
    return true;
}

static bool record_number(struct agent_tar *t, const char *key, uint64_t v)
{
    char text[32];
    int n = snprintf(text, sizeof(text), "%llu", (unsigned long long)v);

    return record(t, key, text, (size_t)n);
}

/* Readers disagree about fractions before 1970: those times lose them. */
static bool record_mtime(struct agent_tar *t, const struct stat *st)
{
    char text[64];
    int n = st->st_mtim.tv_sec < 0
                ? snprintf(text, sizeof(text), "%lld", (long long)st->st_mtim.tv_sec)
                : snprintf(text, sizeof(text), "%lld.%09ld", (long long)st->st_mtim.tv_sec,
                           st->st_mtim.tv_nsec);

    return record(t, "mtime", text, (size_t)n);
}

static bool ascii(const char *s)
{
    for (; *s; s++) {
        if ((unsigned char)*s >= 0x80)
            return false;
    }
    return true;
}

static bool records_make(struct agent_tar *t, const char *path, const struct stat *st,
                         uint64_t size, const char *target, const struct agent_tar_xattr *xattrs,
                         size_t count)
{
    bool long_path = strlen(path) > NAME_LEN, long_target = target && strlen(target) > NAME_LEN;
    bool classic_time = st->st_mtim.tv_nsec == 0 && st->st_mtim.tv_sec >= 0 &&
                        (uint64_t)st->st_mtim.tv_sec <= SIZE_CLASSIC_MAX;
    bool ok = true;

    agent_queue_clear(&t->records);
    if ((long_path && !ascii(path)) || (long_target && !ascii(target)))
        ok = record(t, "hdrcharset", "BINARY", 6);
    if (long_path)
        ok = ok && record(t, "path", path, strlen(path));
    if (long_target)
        ok = ok && record(t, "linkpath", target, strlen(target));
    if (size > SIZE_CLASSIC_MAX)
        ok = ok && record_number(t, "size", size);
    if (st->st_uid > ID_CLASSIC_MAX)
        ok = ok && record_number(t, "uid", st->st_uid);
    if (st->st_gid > ID_CLASSIC_MAX)
        ok = ok && record_number(t, "gid", st->st_gid);
    if (!classic_time)
        ok = ok && record_mtime(t, st);
    for (size_t i = 0; ok && i < count; i++) {
        char key[300];
        int n = snprintf(key, sizeof(key), "SCHILY.xattr.%s", xattrs[i].name);

        ok = (size_t)n < sizeof(key) && record(t, key, xattrs[i].value, xattrs[i].len);
    }
    return ok;
}

static void octal(unsigned char *field, int digits, uint64_t v)
{
    char text[32];

    (void)snprintf(text, sizeof(text), "%0*llo", digits, (unsigned long long)v);
    memcpy(field, text, (size_t)digits);
}

static bool head(struct agent_tar *t, const char *path, char type, const struct stat *st,
                 uint64_t size, const char *target)
{
    unsigned char h[BLOCK] = { 0 };
    unsigned sum = 0;
    bool classic_time = st->st_mtim.tv_sec >= 0 && (uint64_t)st->st_mtim.tv_sec <= SIZE_CLASSIC_MAX;

    memcpy(h, path, strnlen(path, NAME_LEN));
    octal(h + AT_MODE, 7, st->st_mode & 07777);
    octal(h + AT_UID, 7, st->st_uid > ID_CLASSIC_MAX ? 0 : st->st_uid);
    octal(h + AT_GID, 7, st->st_gid > ID_CLASSIC_MAX ? 0 : st->st_gid);
    octal(h + AT_SIZE, 11, size > SIZE_CLASSIC_MAX ? 0 : size);
    octal(h + AT_MTIME, 11, classic_time ? (uint64_t)st->st_mtim.tv_sec : 0);
    memset(h + AT_SUM, ' ', 8);
    h[AT_TYPE] = (unsigned char)type;
    if (target)
        memcpy(h + AT_LINK, target, strnlen(target, NAME_LEN));
    memcpy(h + AT_MAGIC, "ustar\00000", 8);
    for (size_t i = 0; i < BLOCK; i++)
        sum += h[i];
    octal(h + AT_SUM, 6, sum);
    h[AT_SUM + 6] = '\0';
    return put(t, h, BLOCK);
}

static size_t padding(uint64_t size)
{
    return (size_t)((BLOCK - size % BLOCK) % BLOCK);
}

bool agent_tar_member(struct agent_tar *t, const char *path, char type, const struct stat *st,
                      const char *target, const struct agent_tar_xattr *xattrs, size_t xattr_count)
{
    uint64_t size = type == '0' ? (uint64_t)st->st_size : 0;
    size_t len;

    if (!records_make(t, path, st, size, target, xattrs, xattr_count))
        return false;
    len = agent_queue_size(&t->records);
    if (len) {
        const struct stat plain = { .st_mode = 0644 };

        if (!head(t, "././@PaxHeader", 'x', &plain, len, NULL) ||
            !put(t, t->records.data + t->records.at, len) || !put_zeros(t, padding(len)))
            return false;
    }
    t->pad = padding(size);
    return head(t, path, type, st, size, target);
}

bool agent_tar_data(struct agent_tar *t, const void *data, size_t len)
{
    return put(t, data, len);
}

bool agent_tar_data_end(struct agent_tar *t)
{
    size_t pad = (size_t)t->pad;

    t->pad = 0;
    return put_zeros(t, pad);
}

bool agent_tar_end(struct agent_tar *t)
{
    return put_zeros(t, (size_t)(2 * BLOCK)) && flush(t) && compress(t, NULL, 0, ZSTD_e_end);
}
