#ifndef GATEWAY_VOLUME_H
#define GATEWAY_VOLUME_H

/* Object storage of volumes: a folder of this host (`dir`) or an S3 bucket (`s3`).
 * Layout, below the backend's path or prefix (contract 5):
 *
 *	<account>/<volume>/data/...                              the live directory
 *	<account>/<volume>/snapshots/<sandbox>/<generation>.tar.zst   archives
 *	<account>/<volume>/snapshots/<sandbox>/latest            which one counts
 *
 * Objects are whole or not there.  Calls block; any thread.  Credentials live as long as
 * the backend struct.  SBX_E_UNAVAILABLE: the storage does not answer or has no room, worth
 * another try; SBX_E_NOT_FOUND: no such object; SBX_E_FORBIDDEN: the credentials are refused. */

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/secret.h"
#include "sbx/error.h"

enum {
    VOLUME_KEY_MAX = 512,
    VOLUME_PART_SIZE = 8 * 1024 * 1024, /* of a multipart upload, in memory once for each upload */
    VOLUME_SMALL_MAX = 16 * 1024,       /* a small object */
    VOLUME_TRIES = 3,
    VOLUME_STALL_MS = 30000, /* no byte either way */
};

enum volume_kind { VOLUME_NONE = 0, VOLUME_DIR, VOLUME_S3 };

struct volume_backend {
    enum volume_kind kind;
    const char *path;                                /* dir */
    const char *endpoint, *bucket, *prefix, *region; /* s3; prefix without slashes at its ends */
    const char *access_key;
    struct secret *secret_key; /* owned */
    /* Borrowed and not copied with it: when it becomes true, what waits for the storage ends soon,
     * with SBX_E_UNAVAILABLE.  NULL: never. */
    const atomic_bool *give_up;
};

/* BACKEND of sbx/gateway.h; strings go into the arena. */
MUST_USE enum sbx_code volume_backend_parse(const json_t *j, struct arena *a,
                                            struct volume_backend *out, struct sbx_err *err);
/* Another of the same; its strings go into the arena. */
void volume_backend_copy(const struct volume_backend *from, struct arena *a,
                         struct volume_backend *out);
void volume_backend_fini(struct volume_backend *b);

/* <account>/<volume>[/<rest>]; both names are checked (ids, volume names): SBX_E_INVALID. */
MUST_USE enum sbx_code volume_key(const char *account, const char *volume, const char *rest,
                                  char out[VOLUME_KEY_MAX], struct sbx_err *err);

/* A streamed write.  finish makes the object appear at once; finish and abort free. */
struct volume_writer;
MUST_USE enum sbx_code volume_writer_open(const struct volume_backend *b, const char *key,
                                          struct volume_writer **out, struct sbx_err *err);
MUST_USE enum sbx_code volume_writer_add(struct volume_writer *w, const void *data, size_t len,
                                         struct sbx_err *err);
MUST_USE enum sbx_code volume_writer_finish(struct volume_writer *w, struct sbx_err *err);
void volume_writer_abort(struct volume_writer *w); /* nothing of it stays; NULL is allowed */

/* A streamed read; fn's error ends it and is the result. */
typedef enum sbx_code volume_read_fn(void *arg, const void *data, size_t len, struct sbx_err *err);
MUST_USE enum sbx_code volume_read(const struct volume_backend *b, const char *key,
                                   volume_read_fn *fn, void *arg, struct sbx_err *err);

MUST_USE enum sbx_code volume_put(const struct volume_backend *b, const char *key, const void *data,
                                  size_t len, struct sbx_err *err);
MUST_USE enum sbx_code volume_get(const struct volume_backend *b, const char *key, struct buf *out,
                                  struct sbx_err *err);
/* An object that is not there is fine. */
MUST_USE enum sbx_code volume_delete(const struct volume_backend *b, const char *key,
                                     struct sbx_err *err);
/* Names below a folder-like prefix (no slash at its end), without the prefix, in the arena,
 * NULL-ended; nothing there: empty. At most VOLUME_LIST_MAX. */
enum { VOLUME_LIST_MAX = 10000 };
MUST_USE enum sbx_code volume_list(const struct volume_backend *b, const char *prefix,
                                   struct arena *a, const char ***out, struct sbx_err *err);
/* Everything of a volume. */
MUST_USE enum sbx_code volume_purge(const struct volume_backend *b, const char *prefix,
                                    struct sbx_err *err);

/* The agent's program, an absolute path (borrowed): libfusemod_sbxnames.so, which `s3` directories
 * need, lies beside it.  Once, before the first volume_directory(). */
void volume_set_agent(const char *path);
/* The live directory of a volume as a folder of this host, made when missing; in the arena.  `dir`:
 * the folder itself.  `s3`: an s3fs mount on mounts/<account>.<volume>.<tag>, shared by all that
 * came with the same credentials; the process outlives us and has them in its memory only. */
MUST_USE enum sbx_code volume_directory(const struct volume_backend *b, const char *prefix,
                                        const char *mounts, struct arena *a, const char **out,
                                        struct sbx_err *err);
/* Does anybody use the volume?  Asked while no mount of it can come or go. */
typedef bool volume_used_fn(void *arg, const char *prefix);
/* The mounts of a volume that nobody uses any more; not mounted is fine. */
MUST_USE enum sbx_code volume_unmount(const char *mounts, const char *prefix, volume_used_fn *used,
                                      void *arg, struct sbx_err *err);
/* Unmounts all that nobody uses: after a restart. */
void volume_unmount_others(const char *mounts, volume_used_fn *used, void *arg);

/* --- what has become of the mounts ---
 *
 * A mount goes by the name of its folder, "<account>.<volume>.<tag>". */

enum { VOLUME_MOUNTS_MAX = 4096 };
/* Their names, in the arena, NULL-ended; how many. */
size_t volume_mounts(const char *mounts, struct arena *a, const char ***out);
/* "<account>/<volume>" of such a name; false: it is none. */
bool volume_mount_prefix(const char *name, char out[VOLUME_KEY_MAX]);
/* One walk through /proc: pidfds[i] is the process that serves names[i], the caller's to close, or
 * -1.  Asks no file system, so that a storage which does not answer holds up nobody. */
void volume_mount_servers(const char *mounts, const char *const *names, size_t count, int *pidfds);
/* *dead: nothing serves it any more.  For one whose process was not found: one that lives but does
 * not answer would be waited for.  False: somebody mounts or unmounts the volume just now. */
MUST_USE bool volume_mount_look(const char *mounts, const char *name, bool *dead);
/* Takes the dead mount away and makes the volume's live directory anew, unless it is not used.
 * After a failure the folder of that name is there still. */
MUST_USE enum sbx_code volume_mount_again(const struct volume_backend *b, const char *prefix,
                                          const char *mounts, const char *name,
                                          volume_used_fn *used, void *arg, struct sbx_err *err);

#endif
