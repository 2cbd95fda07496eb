#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "gateway/image_impl.h"

enum { PATH_SIZE = 256, COPY_STEP = 256 * 1024, TAR_BLOCK = 512, TAR_MAGIC_AT = 257 };

struct image_import {
    struct image_store *store;
    enum image_import_kind kind;
    char name[IMAGE_REFERENCE_MAX];
    char work[IMAGE_WORK_SIZE];
    int fd; /* the stream as it came */
    int64_t bytes;
};

enum sbx_code image_import_begin(struct image_store *s, enum image_import_kind kind,
                                 const char *name, struct image_import **out, struct sbx_err *err)
{
    static const char zeros[] = "0000000000000000000000000000000000000000000000000000000000000000";
    SCOPED_FREE char *probe = mem_printf("%s@sha256:%s", name, zeros);
    char digest[IMAGE_DIGEST_SIZE], path[PATH_SIZE];
    struct image_import *i;
    enum sbx_code code = image_reference_check(probe, digest, err);

    if (code != SBX_OK)
        return image_err_instead(err, SBX_E_INVALID, "the image's name is malformed");
    i = mem_zalloc(sizeof(*i));
    i->store = s;
    i->kind = kind;
    i->fd = -1;
    (void)str_copy(i->name, sizeof(i->name), name);
    code = image_work_begin(s, i->work, err);
    if (code == SBX_OK) {
        (void)snprintf(path, sizeof(path), "%s/stream", i->work);
        i->fd = openat(s->dir_fd, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (i->fd < 0)
            code = err_sys(err, SBX_E_INTERNAL, "write to the image store");
    }
    if (code != SBX_OK) {
        image_import_abort(i);
        return code;
    }
    *out = i;
    return SBX_OK;
}

void image_import_abort(struct image_import *i)
{
    if (i == NULL)
        return;
    fd_close(&i->fd);
    if (i->work[0] != 0)
        image_work_end(i->store, i->work);
    free(i);
}

static enum sbx_code write_all(int fd, const void *data, size_t len, struct sbx_err *err)
{
    const char *p = data;

    while (len > 0) {
        ssize_t n = write(fd, p, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == ENOSPC)
            return err_set(err, SBX_E_UNAVAILABLE, "the region has no room for the image");
        if (n < 0)
            return err_sys(err, SBX_E_INTERNAL, "write to the image store");
        p += n;
        len -= (size_t)n;
    }
    return SBX_OK;
}

enum sbx_code image_import_add(struct image_import *i, const void *data, size_t len,
                               struct sbx_err *err)
{
    if ((int64_t)len > i->store->config->image_max_bytes - i->bytes)
        return err_set(err, SBX_E_TOO_LARGE, "the image is larger than this region allows");
    i->bytes += (int64_t)len;
    return write_all(i->fd, data, len, err);
}

/* A compressed stream becomes a plain one, in place. */
static enum sbx_code decompress(struct image_import *i, struct sbx_err *err)
{
    static const struct {
        const char *magic;
        size_t len;
        const char *argv[4];
    } kinds[] = { { "\x1f\x8b", 2, { "gzip", "-dc", NULL } },
                  { "\x28\xb5\x2f\xfd", 4, { "zstd", "-dc", NULL } },
                  { "\xfd"
                    "7zXZ",
                    5,
                    { "xz", "-dc", NULL } } };
    char head[8] = "";
    char path[PATH_SIZE];

    if (pread(i->fd, head, sizeof(head), 0) < 2)
        return err_set(err, SBX_E_INVALID, "the archive is empty");
    for (size_t k = 0; k < COUNT_OF(kinds); k++) {
        struct image_tool tool = IMAGE_TOOL_INIT;
        SCOPED_FD int plain = -1;
        enum sbx_code code;

        if (memcmp(head, kinds[k].magic, kinds[k].len) != 0)
            continue;
        (void)snprintf(path, sizeof(path), "%s/plain", i->work);
        plain = openat(i->store->dir_fd, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (plain < 0 || lseek(i->fd, 0, SEEK_SET) < 0)
            return err_sys(err, SBX_E_INTERNAL, "write to the image store");
        tool.argv = kinds[k].argv;
        tool.fd_in = i->fd;
        tool.fd_out = plain;
        tool.timeout_ms = i->store->config->unpack_timeout_ms;
        tool.file_max = i->store->config->image_max_bytes;
        code = image_tool_run(i->store, &tool, NULL, err);
        if (code == SBX_E_INTERNAL || code == SBX_E_TIMEOUT)
            return image_err_instead(err, SBX_E_INVALID, "the archive is damaged");
        if (code != SBX_OK)
            return code;
        fd_close(&i->fd);
        i->fd = plain;
        plain = -1;
        return SBX_OK;
    }
    return SBX_OK;
}

static enum sbx_code check_tar(struct image_import *i, struct sbx_err *err)
{
    char head[TAR_BLOCK];

    if (pread(i->fd, head, sizeof(head), 0) != (ssize_t)sizeof(head) ||
        memcmp(head + TAR_MAGIC_AT, "ustar", 5) != 0)
        return err_set(err, SBX_E_INVALID, "the archive is not a tar archive");
    return SBX_OK;
}

static enum sbx_code extract_layout(struct image_import *i, struct sbx_err *err)
{
    SCOPED_BUF struct buf output = BUF_INIT(IMAGE_TOOL_OUTPUT_MAX * 2);
    char in[PATH_SIZE], from[PATH_SIZE], to[PATH_SIZE];
    /* Only what a layout has; whatever else the archive holds stays in it. */
    const char *tar[] = { "tar",
                          "-x",
                          "-C",
                          in,
                          "--no-same-owner",
                          "--no-same-permissions",
                          "--wildcards",
                          "--no-wildcards-match-slash",
                          "--transform=s,^\\./,,",
                          "--exclude=../*",
                          "index.json",
                          "./index.json",
                          "oci-layout",
                          "./oci-layout",
                          "blobs/sha256/*",
                          "./blobs/sha256/*",
                          NULL };
    const char *copy[] = { i->store->config->skopeo, "copy", "--quiet", from, to, NULL };
    struct image_tool tool = IMAGE_TOOL_INIT;
    char digest[IMAGE_DIGEST_SIZE];
    enum sbx_code code;

    (void)snprintf(in, sizeof(in), "%s/in", i->work);
    (void)snprintf(from, sizeof(from), "oci:%s", in);
    (void)snprintf(to, sizeof(to), "oci:%s/layout:image", i->work);
    if (mkdirat(i->store->dir_fd, in, 0700) < 0 || lseek(i->fd, 0, SEEK_SET) < 0)
        return err_sys(err, SBX_E_INTERNAL, "write to the image store");
    tool.argv = tar;
    tool.fd_in = i->fd;
    tool.timeout_ms = i->store->config->unpack_timeout_ms;
    tool.file_max = i->store->config->image_max_bytes;
    /* tar says 2 when one of the spellings above is not in the archive: what counts is whether the
     * layout is whole, and that is looked at next. */
    code = image_tool_run(i->store, &tool, &output, err);
    if (code != SBX_OK && code != SBX_E_INTERNAL)
        return code == SBX_E_TIMEOUT
                   ? image_err_instead(err, SBX_E_INVALID, "the archive took too long")
                   : code;
    *err = (struct sbx_err){ 0 };
    code = image_layout_digest(i->store, in, digest, err);
    if (code != SBX_OK)
        return code;
    /* skopeo checks every blob against its digest on the way. */
    tool.argv = copy;
    tool.fd_in = -1;
    code = image_tool_run(i->store, &tool, &output, err);
    if (code == SBX_E_INTERNAL || code == SBX_E_TIMEOUT)
        return image_err_instead(err, SBX_E_INVALID,
                                 "the layout is damaged: a part is missing or does not "
                                 "match its digest");
    image_fs_remove(i->store, in);
    return code;
}

static enum sbx_code put_blob(struct image_store *s, const char *layout, const struct buf *b,
                              char digest[IMAGE_DIGEST_SIZE], struct sbx_err *err)
{
    unsigned char sum[SHA256_LEN];
    char path[PATH_SIZE];

    sha256_of(b->data, b->len, sum);
    (void)str_copy(digest, IMAGE_DIGEST_SIZE, "sha256:");
    hash_hex(sum, sizeof(sum), digest + 7);
    (void)snprintf(path, sizeof(path), "%s/blobs/sha256/%s", layout, digest + 7);
    return image_fs_write(s->dir_fd, path, b->data, b->len, err);
}

static enum sbx_code sum_of(int fd, char digest[IMAGE_DIGEST_SIZE], int64_t *size,
                            struct sbx_err *err)
{
    SCOPED_FREE char *part = mem_zalloc(COPY_STEP);
    unsigned char sum[SHA256_LEN];
    struct sha256 *h = sha256_new();
    int64_t at = 0;

    for (;;) {
        ssize_t n = pread(fd, part, COPY_STEP, at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            sha256_free(h);
            return err_sys(err, SBX_E_INTERNAL, "read from the image store");
        }
        if (n == 0)
            break;
        sha256_add(h, part, (size_t)n);
        at += n;
    }
    sha256_finish(h, sum);
    (void)str_copy(digest, IMAGE_DIGEST_SIZE, "sha256:");
    hash_hex(sum, sizeof(sum), digest + 7);
    *size = at;
    return SBX_OK;
}

/* The stream itself becomes the one layer: same bytes, same digest, whoever imports it. */
static enum sbx_code wrap_rootfs(struct image_import *i, struct sbx_err *err)
{
    struct image_store *s = i->store;
    SCOPED_BUF struct buf text = BUF_INIT(IMAGE_CONFIG_MAX);
    char layer[IMAGE_DIGEST_SIZE], config[IMAGE_DIGEST_SIZE], manifest[IMAGE_DIGEST_SIZE];
    char layout[PATH_SIZE], path[PATH_SIZE], from[PATH_SIZE];
    int64_t size = 0;
    size_t config_len, manifest_len;
    enum sbx_code code = sum_of(i->fd, layer, &size, err);

    (void)snprintf(layout, sizeof(layout), "%s/layout", i->work);
    if (code == SBX_OK && mkdirat(s->dir_fd, layout, 0700) < 0)
        code = err_sys(err, SBX_E_INTERNAL, "write to the image store");
    for (int k = 0; code == SBX_OK && k < 2; k++) {
        (void)snprintf(path, sizeof(path), "%s/%s", layout, k ? "blobs/sha256" : "blobs");
        if (mkdirat(s->dir_fd, path, 0700) < 0)
            code = err_sys(err, SBX_E_INTERNAL, "write to the image store");
    }
    if (code != SBX_OK)
        return code;
    (void)snprintf(path, sizeof(path), "%s/blobs/sha256/%s", layout, layer + 7);
    (void)snprintf(from, sizeof(from), "%s/plain", i->work);
    if (renameat(s->dir_fd, from, s->dir_fd, path) < 0) {
        (void)snprintf(from, sizeof(from), "%s/stream", i->work);
        if (renameat(s->dir_fd, from, s->dir_fd, path) < 0)
            return err_sys(err, SBX_E_INTERNAL, "write to the image store");
    }
    (void)buf_printf(&text,
                     "{\"architecture\":\"%s\",\"os\":\"linux\",\"config\":{\"Env\":[\"PATH="
                     "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\"]},"
                     "\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[\"%s\"]}}",
                     image_architecture(), layer);
    config_len = text.len;
    code = put_blob(s, layout, &text, config, err);
    buf_clear(&text);
    (void)buf_printf(&text,
                     "{\"schemaVersion\":2,\"mediaType\":"
                     "\"application/vnd.oci.image.manifest.v1+json\",\"config\":{\"mediaType\":"
                     "\"application/vnd.oci.image.config.v1+json\",\"digest\":\"%s\",\"size\":%zu},"
                     "\"layers\":[{\"mediaType\":\"application/vnd.oci.image.layer.v1.tar\","
                     "\"digest\":\"%s\",\"size\":%lld}]}",
                     config, config_len, layer, (long long)size);
    manifest_len = text.len;
    if (code == SBX_OK)
        code = put_blob(s, layout, &text, manifest, err);
    buf_clear(&text);
    (void)buf_printf(&text,
                     "{\"schemaVersion\":2,\"manifests\":[{\"mediaType\":"
                     "\"application/vnd.oci.image.manifest.v1+json\",\"digest\":\"%s\","
                     "\"size\":%zu,\"annotations\":{\"org.opencontainers.image.ref.name\":"
                     "\"image\"}}]}",
                     manifest, manifest_len);
    (void)snprintf(path, sizeof(path), "%s/index.json", layout);
    if (code == SBX_OK)
        code = image_fs_write(s->dir_fd, path, text.data, text.len, err);
    (void)snprintf(path, sizeof(path), "%s/oci-layout", layout);
    buf_clear(&text);
    (void)buf_puts(&text, "{\"imageLayoutVersion\":\"1.0.0\"}");
    if (code == SBX_OK)
        code = image_fs_write(s->dir_fd, path, text.data, text.len, err);
    return code;
}

static enum sbx_code keep(struct image_import *i, const char *digest, const char *reference,
                          int64_t *bytes, struct sbx_err *err)
{
    struct image_store *s = i->store;
    struct image_entry *e;
    enum sbx_code code;

    pthread_mutex_lock(&s->lock);
    e = image_entry_claim(s, digest);
    pthread_mutex_unlock(&s->lock);
    if (e->present)
        code = image_entry_add_name(s, e, reference, IMAGE_LOCAL, err);
    else
        code = image_unpack(s, i->work, e, reference, IMAGE_LOCAL, err);
    pthread_mutex_lock(&s->lock);
    if (code == SBX_OK && !e->present) {
        e->present = true;
        e->name_count = 0;
        e->names[e->name_count++] =
            (struct image_name){ .reference = mem_strdup(reference), .origin = IMAGE_LOCAL };
    }
    if (code == SBX_OK)
        *bytes = e->bytes;
    image_entry_unclaim(s, e);
    pthread_mutex_unlock(&s->lock);
    return code;
}

enum sbx_code image_import_finish(struct image_import *i, char *reference, int64_t *bytes,
                                  struct sbx_err *err)
{
    char digest[IMAGE_DIGEST_SIZE], layout[PATH_SIZE];
    char full[IMAGE_REFERENCE_MAX + IMAGE_DIGEST_SIZE];
    enum sbx_code code = decompress(i, err);

    if (code == SBX_OK)
        code = check_tar(i, err);
    if (code == SBX_OK)
        code = image_make_room(i->store, i->bytes, err);
    if (code == SBX_OK)
        code = i->kind == IMAGE_IMPORT_LAYOUT ? extract_layout(i, err) : wrap_rootfs(i, err);
    (void)snprintf(layout, sizeof(layout), "%s/layout", i->work);
    if (code == SBX_OK)
        code = image_layout_digest(i->store, layout, digest, err);
    if (code == SBX_OK) {
        (void)snprintf(full, sizeof(full), "%s@%s", i->name, digest);
        code = keep(i, digest, full, bytes, err);
    }
    if (code == SBX_OK)
        (void)str_copy(reference, IMAGE_REFERENCE_MAX, full);
    image_import_abort(i);
    return code;
}
