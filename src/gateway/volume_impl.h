#ifndef GATEWAY_VOLUME_IMPL_H
#define GATEWAY_VOLUME_IMPL_H

/* The two kinds behind volume.h. */

#include "gateway/volume.h"

struct volume_ops {
    enum sbx_code (*writer_open)(const struct volume_backend *b, const char *key, void **out,
                                 struct sbx_err *err);
    enum sbx_code (*writer_add)(void *w, const void *data, size_t len, struct sbx_err *err);
    enum sbx_code (*writer_finish)(void *w, struct sbx_err *err);
    void (*writer_abort)(void *w);
    enum sbx_code (*read)(const struct volume_backend *b, const char *key, volume_read_fn *fn,
                          void *arg, struct sbx_err *err);
    enum sbx_code (*remove)(const struct volume_backend *b, const char *key, struct sbx_err *err);
    enum sbx_code (*list)(const struct volume_backend *b, const char *prefix, struct arena *a,
                          const char ***out, struct sbx_err *err);
    enum sbx_code (*purge)(const struct volume_backend *b, const char *prefix, struct sbx_err *err);
};

enum sbx_code volume_s3fs_mount(const struct volume_backend *b, const char *prefix,
                                const char *mounts, struct arena *a, const char **out,
                                struct sbx_err *err);

static inline bool volume_given_up(const struct volume_backend *b)
{
    return b->give_up != NULL && atomic_load(b->give_up);
}

extern const struct volume_ops volume_dir_ops, volume_s3_ops;

#endif
