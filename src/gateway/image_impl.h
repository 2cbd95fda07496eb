#ifndef GATEWAY_IMAGE_IMPL_H
#define GATEWAY_IMAGE_IMPL_H

/* Shared by the image_*.c files only. */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/json.h"
#include "gateway/image.h"

enum {
    IMAGE_NAMES_MAX = 64,               /* references that name one digest */
    IMAGE_TOOL_OUTPUT_MAX = 1 << 20,    /* bytes kept of a program's output */
    IMAGE_VERIFIED_MS = 10 * 60 * 1000, /* a registry's yes to credentials is good for that */
    IMAGE_DU_INTERVAL_MS = 300,         /* between two looks at a growing folder */
    IMAGE_WORK_SIZE = 64,               /* "tmp/<id>" and a little more */
};

/* How a name came to be known. */
enum image_origin { IMAGE_LOCAL = 1, IMAGE_PUBLIC, IMAGE_PRIVATE };

struct image_name {
    char *reference;
    enum image_origin origin;
    unsigned char proof[SHA256_LEN]; /* PRIVATE: keyed digest of the credentials that were good */
    int64_t proved_ms;               /* monotonic; 0: not since the start */
};

struct image_entry {
    struct image_entry *next;
    char digest[IMAGE_DIGEST_SIZE];
    bool present; /* root/<digest> is whole */
    bool busy;    /* somebody pulls, unpacks, checks or removes it */
    int held;
    int64_t bytes;
    int64_t used_ms; /* wall clock, for eviction */
    struct image_name names[IMAGE_NAMES_MAX];
    size_t name_count;
};

struct image_store {
    const struct image_store_config *_Atomic config; /* of the last of configs */
    struct image_configs *configs; /* the former ones too: somebody may still read them */
    int dir_fd;                    /* config->dir */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* an entry is no longer busy */
    struct image_entry *entries;
    unsigned char proof_key[SHA256_LEN]; /* of this process */
};

/* A callee's error told anew, in words of ours: the first story is dropped. */
#define image_err_instead(err, code, ...)                                                          \
    (*(err) = (struct sbx_err){ 0 }, err_set((err), (code), __VA_ARGS__))

/* image_store.c */
struct image_entry *image_entry_find(struct image_store *s, const char *digest); /* locked */
struct image_entry *image_entry_get(struct image_store *s, const char *digest);  /* locked; makes */
struct image_name *image_entry_name(struct image_entry *e, const char *reference);
/* Waits until it is not busy and takes it: locked.  The entry may be gone after the wait. */
struct image_entry *image_entry_claim(struct image_store *s, const char *digest);
void image_entry_unclaim(struct image_store *s, struct image_entry *e); /* locked */
/* Adds or renews a name and writes it down; entry claimed and present. */
MUST_USE enum sbx_code image_entry_add_name(struct image_store *s, struct image_entry *e,
                                            const char *reference, enum image_origin origin,
                                            struct sbx_err *err);
/* Removes unused images until want more bytes fit under the cache's bound. */
MUST_USE enum sbx_code image_make_room(struct image_store *s, int64_t want, struct sbx_err *err);
/* A fresh folder tmp/<id>, relative to the store's folder. */
MUST_USE enum sbx_code image_work_begin(struct image_store *s, char work[IMAGE_WORK_SIZE],
                                        struct sbx_err *err);
void image_work_end(struct image_store *s, const char *work);
void image_folder_name(const char *digest, char out[IMAGE_DIGEST_SIZE + 8]); /* root/sha256-hex */

/* image_tool.c: runs a program in the store's folder with a minimal environment, its largest file
 * bounded.  output (may be NULL) gets both streams.  watch: a folder relative to the store's that
 * may not grow over watch_max bytes.  SBX_E_INTERNAL: it ended badly (the output tells);
 * SBX_E_TIMEOUT; SBX_E_TOO_LARGE: the folder grew too large. */
struct image_tool {
    const char *const *argv;
    const int *keep;   /* as process_spec's */
    int fd_in, fd_out; /* -1: none, the output buffer */
    int timeout_ms;
    int64_t file_max;
    const char *watch;
    int64_t watch_max;
};
#define IMAGE_TOOL_INIT                                                                            \
    {                                                                                              \
        .fd_in = -1, .fd_out = -1                                                                  \
    }
MUST_USE enum sbx_code image_tool_run(struct image_store *s, const struct image_tool *tool,
                                      struct buf *output, struct sbx_err *err);

/* image_fs.c; paths are relative to the store's folder unless they say otherwise. */
enum { IMAGE_FS_CLEAN = 1 }; /* removes what is special, clears set-id bits */
MUST_USE enum sbx_code image_fs_measure(struct image_store *s, const char *path, int flags,
                                        int64_t *bytes, struct sbx_err *err);
void image_fs_remove(struct image_store *s, const char *path); /* a whole tree */
MUST_USE enum sbx_code image_fs_read(int dir_fd, const char *path, size_t max, struct buf *out,
                                     struct sbx_err *err);
/* Inside a root: links are followed as a process in it would. */
MUST_USE enum sbx_code image_fs_read_in(int root_fd, const char *path, size_t max, struct buf *out,
                                        struct sbx_err *err);
MUST_USE enum sbx_code image_fs_write(int dir_fd, const char *path, const void *data, size_t len,
                                      struct sbx_err *err); /* new file 0600, synced */
MUST_USE enum sbx_code image_fs_point(int root_fd, const char *path, bool folder,
                                      struct sbx_err *err);
/* Removes path when it is a link itself; whatever else is there stays. */
MUST_USE enum sbx_code image_fs_drop_link(int root_fd, const char *path, struct sbx_err *err);

/* image_user.c */
MUST_USE enum sbx_code image_user_resolve(int root_fd, const char *user, struct arena *a,
                                          struct image *out, struct sbx_err *err);

/* image_unpack.c: the layout at <work>/layout (one image, tag "image", or the only one) becomes
 * root/<digest>; the entry is claimed and not present. */
MUST_USE enum sbx_code image_unpack(struct image_store *s, const char *work,
                                    struct image_entry *entry, const char *reference,
                                    enum image_origin origin, struct sbx_err *err);
/* Reads <layout>/index.json: the one manifest's digest. */
MUST_USE enum sbx_code image_layout_digest(struct image_store *s, const char *layout,
                                           char digest[IMAGE_DIGEST_SIZE], struct sbx_err *err);
/* Sum of layers; refuses too many, too large. */
MUST_USE enum sbx_code image_manifest_check(struct image_store *s, const json_t *manifest,
                                            struct sbx_err *err);
MUST_USE enum sbx_code image_json_load(struct image_store *s, const char *digest, json_t **out,
                                       struct sbx_err *err);
MUST_USE enum sbx_code image_json_store(struct image_store *s, const char *digest, json_t *j,
                                        struct sbx_err *err);
const char *image_architecture(void); /* in OCI's words */

#endif
