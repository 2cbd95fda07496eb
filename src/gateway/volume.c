#include "gateway/volume.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/str.h"
#include "gateway/volume_impl.h"

enum { VOLUME_NAME_MAX = 63, TEXT_MAX = 1024 };

struct volume_writer {
    const struct volume_ops *ops;
    void *impl;
};

static const struct volume_ops *ops_of(const struct volume_backend *b)
{
    return b->kind == VOLUME_S3 ? &volume_s3_ops : &volume_dir_ops;
}

static enum sbx_code need(const json_t *j, const char *key, struct arena *a, const char **out,
                          struct sbx_err *err)
{
    const char *text = json_get_str(j, key, "");

    if (text[0] == 0 || strlen(text) > TEXT_MAX)
        return err_field(err, "backend", "backend.%s must be a string", key);
    *out = arena_strdup(a, text);
    return SBX_OK;
}

static const char *trimmed(struct arena *a, const char *text)
{
    size_t n = strlen(text);

    while (*text == '/')
        text++, n--;
    while (n > 0 && text[n - 1] == '/')
        n--;
    return arena_strndup(a, text, n);
}

static enum sbx_code parse_s3(const json_t *j, struct arena *a, struct volume_backend *b,
                              struct sbx_err *err)
{
    const char *secret = json_get_str(j, "secretKey", "");

    if (need(j, "endpoint", a, &b->endpoint, err) != SBX_OK ||
        need(j, "bucket", a, &b->bucket, err) != SBX_OK ||
        need(j, "accessKey", a, &b->access_key, err) != SBX_OK)
        return err->code;
    if (secret[0] == 0)
        return err_field(err, "backend", "backend.secretKey must be a string");
    if (!str_starts(b->endpoint, "http://") && !str_starts(b->endpoint, "https://"))
        return err_field(err, "backend", "backend.endpoint must be a URL");
    b->endpoint =
        arena_strndup(a, b->endpoint, strlen(b->endpoint) - (str_ends(b->endpoint, "/") ? 1 : 0));
    b->bucket = trimmed(a, b->bucket);
    b->prefix = trimmed(a, json_get_str(j, "prefix", ""));
    b->region = arena_strdup(a, json_get_str(j, "region", "us-east-1"));
    b->secret_key = secret_new(secret, strlen(secret));
    return SBX_OK;
}

enum sbx_code volume_backend_parse(const json_t *j, struct arena *a, struct volume_backend *out,
                                   struct sbx_err *err)
{
    const char *kind = json_get_str(j, "kind", "");

    *out = (struct volume_backend){ 0 };
    if (!json_is_object(j))
        return err_field(err, "backend", "backend must be an object");
    if (strcmp(kind, "s3") == 0) {
        out->kind = VOLUME_S3;
        return parse_s3(j, a, out, err);
    }
    if (strcmp(kind, "dir") != 0)
        return err_field(err, "backend", "backend.kind must be dir or s3");
    out->kind = VOLUME_DIR;
    if (need(j, "path", a, &out->path, err) != SBX_OK)
        return err->code;
    if (out->path[0] != '/' || strstr(out->path, "/..") != NULL)
        return err_field(err, "backend", "backend.path must be absolute");
    return SBX_OK;
}

void volume_backend_copy(const struct volume_backend *from, struct arena *a,
                         struct volume_backend *out)
{
    *out = (struct volume_backend){
        .kind = from->kind,
        .path = arena_strdup(a, from->path),
        .endpoint = arena_strdup(a, from->endpoint),
        .bucket = arena_strdup(a, from->bucket),
        .prefix = arena_strdup(a, from->prefix),
        .region = arena_strdup(a, from->region),
        .access_key = arena_strdup(a, from->access_key),
    };
    if (from->secret_key != NULL)
        out->secret_key = secret_new(secret_reveal(from->secret_key), secret_len(from->secret_key));
}

void volume_backend_fini(struct volume_backend *b)
{
    secret_free(b->secret_key);
    *b = (struct volume_backend){ 0 };
}

static bool name_ok(const char *name)
{
    size_t n = strlen(name);

    if (n == 0 || n > VOLUME_NAME_MAX || name[0] < 'a' || name[0] > 'z')
        return false;
    return strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
}

enum sbx_code volume_key(const char *account, const char *volume, const char *rest,
                         char out[VOLUME_KEY_MAX], struct sbx_err *err)
{
    if (account == NULL || !id_valid(account))
        return err_field(err, "accountId", "accountId must be an id");
    if (volume == NULL || !name_ok(volume))
        return err_field(err, "volumeName", "the volume's name is malformed");
    if (snprintf(out, VOLUME_KEY_MAX, "%s/%s%s%s", account, volume, rest != NULL ? "/" : "",
                 rest != NULL ? rest : "") >= VOLUME_KEY_MAX)
        return err_set(err, SBX_E_INVALID, "the object's name is too long");
    return SBX_OK;
}

enum sbx_code volume_writer_open(const struct volume_backend *b, const char *key,
                                 struct volume_writer **out, struct sbx_err *err)
{
    const struct volume_ops *ops = ops_of(b);
    void *impl = NULL;

    if (ops->writer_open(b, key, &impl, err) != SBX_OK)
        return err->code;
    *out = mem_zalloc(sizeof(**out));
    **out = (struct volume_writer){ ops, impl };
    return SBX_OK;
}

enum sbx_code volume_writer_add(struct volume_writer *w, const void *data, size_t len,
                                struct sbx_err *err)
{
    return w->ops->writer_add(w->impl, data, len, err);
}

enum sbx_code volume_writer_finish(struct volume_writer *w, struct sbx_err *err)
{
    enum sbx_code code = w->ops->writer_finish(w->impl, err);

    free(w);
    return code;
}

void volume_writer_abort(struct volume_writer *w)
{
    if (w == NULL)
        return;
    w->ops->writer_abort(w->impl);
    free(w);
}

enum sbx_code volume_read(const struct volume_backend *b, const char *key, volume_read_fn *fn,
                          void *arg, struct sbx_err *err)
{
    return ops_of(b)->read(b, key, fn, arg, err);
}

enum sbx_code volume_put(const struct volume_backend *b, const char *key, const void *data,
                         size_t len, struct sbx_err *err)
{
    struct volume_writer *w = NULL;

    if (volume_writer_open(b, key, &w, err) != SBX_OK)
        return err->code;
    if (volume_writer_add(w, data, len, err) != SBX_OK) {
        volume_writer_abort(w);
        return err->code;
    }
    return volume_writer_finish(w, err);
}

static enum sbx_code keep(void *arg, const void *data, size_t len, struct sbx_err *err)
{
    if (!buf_append(arg, data, len))
        return err_set(err, SBX_E_TOO_LARGE, "the object is too large");
    return SBX_OK;
}

enum sbx_code volume_get(const struct volume_backend *b, const char *key, struct buf *out,
                         struct sbx_err *err)
{
    return volume_read(b, key, keep, out, err);
}

enum sbx_code volume_delete(const struct volume_backend *b, const char *key, struct sbx_err *err)
{
    return ops_of(b)->remove(b, key, err);
}

enum sbx_code volume_list(const struct volume_backend *b, const char *prefix, struct arena *a,
                          const char ***out, struct sbx_err *err)
{
    return ops_of(b)->list(b, prefix, a, out, err);
}

enum sbx_code volume_purge(const struct volume_backend *b, const char *prefix, struct sbx_err *err)
{
    return ops_of(b)->purge(b, prefix, err);
}

static enum sbx_code plain_directory(const struct volume_backend *b, const char *prefix,
                                     struct arena *a, const char **out, struct sbx_err *err)
{
    char *path = arena_printf(a, "%s/%s/data", b->path, prefix);

    if (file_make_dirs(path, 0700, err) != SBX_OK) {
        err->code = SBX_E_UNAVAILABLE;
        return err_wrap(err, "the volume's directory");
    }
    /* Sandboxes with different users share a volume; the folders above it keep everybody else out.
     */
    if (chmod(path, 0777) < 0)
        return err_sys(err, SBX_E_UNAVAILABLE, "the volume's directory");
    *out = path;
    return SBX_OK;
}

enum sbx_code volume_directory(const struct volume_backend *b, const char *prefix,
                               const char *mounts, struct arena *a, const char **out,
                               struct sbx_err *err)
{
    if (b->kind == VOLUME_S3)
        return volume_s3fs_mount(b, prefix, mounts, a, out, err);
    return plain_directory(b, prefix, a, out, err);
}
