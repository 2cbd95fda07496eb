#ifndef GATEWAY_IMAGE_H
#define GATEWAY_IMAGE_H

/* The image store of a region host: content-addressed, shared by all sandboxes.
 *
 * An image is known by the digest of its OCI manifest.  It comes in by a pull from a
 * registry (skopeo) or by an import (a tar stream of an OCI layout or of a root file
 * system), is unpacked once (umoci), and every sandbox of that digest uses the one
 * unpacked root read-only, under the runtime's own overlay.
 *
 * On disk, all below `dir` (0700, so nothing in an image's root is reachable by another
 * user of the host, whatever its mode bits say):
 *
 *	root/sha256-<hex>/   rootfs/ and image.json (what struct image says, and names)
 *	tmp/                 work in progress; emptied at open
 *
 * Everything is made in tmp/, synced and renamed, so a crash leaves a whole image or
 * none.  Any thread may call; two deploys of one digest pull and unpack once, the second
 * waits.  Of a layer nothing special is kept: device nodes, sockets and pipes are removed,
 * set-id bits and file capabilities are cleared.
 *
 * A name that was pulled with credentials is private: whoever asks for it again shows
 * the registry credentials that it accepts, also when the image is here already.
 *
 * Hold counts: image_acquire and image_hold count one use of the digest, image_release
 * takes one back.  What is held is neither removed nor evicted.  The counts live in
 * memory: after a restart the driver calls image_hold for every sandbox it adopts,
 * before it takes requests.
 *
 * Errors are short sentences for a person: no host path, no address, no credential. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/secret.h"
#include "sbx/error.h"

enum {
    IMAGE_DIGEST_SIZE = 72,     /* "sha256:" + 64 hex + NUL */
    IMAGE_REFERENCE_MAX = 512,  /* bytes of "name@sha256:hex" */
    IMAGE_GROUPS_MAX = 32,      /* supplementary groups that are kept */
    IMAGE_ENV_MAX = 1024,       /* variables in an image's configuration */
    IMAGE_ARGS_MAX = 256,       /* strings in entrypoint and cmd together */
    IMAGE_CONFIG_MAX = 1 << 20, /* bytes of a manifest or configuration */
    IMAGE_LAYERS_MAX = 128,
    IMAGE_FILES_MAX = 2000000, /* members of an unpacked root */
};

struct image_store;

/* Copied by whoever takes it. */
struct image_store_config {
    const char *dir;         /* absolute; made when missing */
    const char *skopeo;      /* program; NULL: "skopeo" from PATH */
    const char *umoci;       /* program; NULL: "umoci" from PATH */
    int64_t cache_max_bytes; /* all images together: what is over it and unused is evicted at
                                the next acquire or import, oldest use first; imports never */
    int64_t image_max_bytes; /* one image, packed or unpacked; more is refused */
    int pull_timeout_ms;     /* one pull */
    int unpack_timeout_ms;   /* one unpack */
    /* host[:port] of registries that may speak plain HTTP or show an unknown certificate;
     * NULL-ended, NULL: none */
    const char *const *insecure_registries;
    /* host[:port] of further registries that may have an address in an infrastructure range (a
     * tenant's image reference must not make this host ask its own network); NULL: none */
    const char *const *internal_registries;
};

/* Credentials for one pull; written to a file 0600 for its length, never an argument. */
struct image_registry {
    const char *host; /* NULL: the reference's own */
    const char *username;
    const struct secret *password;
};

/* An unpacked image.  Lives in the caller's arena; the digest is held. */
struct image {
    char digest[IMAGE_DIGEST_SIZE]; /* for image_release */
    const char *rootfs;             /* absolute host path, to be used read-only */
    const char **argv;              /* entrypoint then cmd, NULL-ended, may be empty */
    const char **env;               /* NAME=value, NULL-ended; PATH is always there */
    const char *working_dir;        /* absolute; "/" when the image says nothing */
    uint32_t uid, gid;              /* of the image's USER, looked up in its own passwd and group */
    uint32_t groups[IMAGE_GROUPS_MAX];
    size_t group_count;
    const char *home; /* of that uid, "/" when unknown */
};

struct image_info {
    const char *reference; /* "name@sha256:hex" */
    int64_t bytes;         /* on disk */
    bool unpacked;
    int held;
};

/* SBX_E_UNAVAILABLE: a program is missing; SBX_E_INTERNAL: the folder cannot be used. */
MUST_USE enum sbx_code image_store_open(const struct image_store_config *config,
                                        struct image_store **out, struct sbx_err *err);
/* Bounds, time limits and registries from now on; the folder stays. One thread at a time, others may
 * use the store meanwhile. */
void image_store_configure(struct image_store *s, const struct image_store_config *config);
void image_store_close(struct image_store *s); /* NULL is allowed; no call may be under way */

/* "name@sha256:hex", a tag before the @ allowed: splits and checks the form.
 * SBX_E_INVALID with a sentence. */
MUST_USE enum sbx_code image_reference_check(const char *reference, char digest[IMAGE_DIGEST_SIZE],
                                             struct sbx_err *err);

/* Pulls what is missing, unpacks it once, holds it.  registry may be NULL.
 * SBX_E_INVALID: the reference is malformed, or the image is not one we can run (no
 * such architecture, too large, too many layers, a damaged layer, a USER that its passwd
 * does not know); SBX_E_NOT_FOUND: the registry says there is none; SBX_E_FORBIDDEN: it refuses
 * the credentials; SBX_E_UNAVAILABLE: not reachable, timed out, or no room: worth another try. */
MUST_USE enum sbx_code image_acquire(struct image_store *s, const char *reference,
                                     const struct image_registry *registry, struct arena *a,
                                     struct image *out, struct sbx_err *err);
/* One more use of a digest that is unpacked (an adopted sandbox).  SBX_E_NOT_FOUND. */
MUST_USE enum sbx_code image_hold(struct image_store *s, const char *digest, struct sbx_err *err);
void image_release(struct image_store *s, const char *digest);
/* Makes a place to bind something over in the shared root of a held digest: a folder, or an empty
 * file.  The usual ones are there already (/workspace /proc /dev /sys /tmp /run /run/sandboxd
 * /run/warren /etc/resolv.conf /etc/hosts /etc/hostname).  path is absolute and normalised; links
 * in it are followed inside the root only.  SBX_E_INVALID: something of another kind is there. */
MUST_USE enum sbx_code image_mount_point(struct image_store *s, const char *digest,
                                         const char *path, bool folder, struct sbx_err *err);

/* A streamed import: begin, add pieces in order, then finish or abort (either frees it).
 * name is the repository part of the reference that finish gives.  An import past
 * image_max_bytes is SBX_E_TOO_LARGE; a stream that is no such tar SBX_E_INVALID. */
enum image_import_kind {
    IMAGE_IMPORT_LAYOUT = 1, /* an OCI layout with one image */
    IMAGE_IMPORT_ROOTFS = 2, /* a root file system; runs as root, without a command */
};

struct image_import;

MUST_USE enum sbx_code image_import_begin(struct image_store *s, enum image_import_kind kind,
                                          const char *name, struct image_import **out,
                                          struct sbx_err *err);
MUST_USE enum sbx_code image_import_add(struct image_import *i, const void *data, size_t len,
                                        struct sbx_err *err);
/* reference (IMAGE_REFERENCE_MAX) gets "name@sha256:hex"; bytes what it takes on disk.
 * The image is unpacked too, so a first deploy need not wait for it. */
MUST_USE enum sbx_code image_import_finish(struct image_import *i, char *reference, int64_t *bytes,
                                           struct sbx_err *err);
void image_import_abort(struct image_import *i); /* NULL is allowed */

MUST_USE enum sbx_code image_list(struct image_store *s, struct arena *a, struct image_info **out,
                                  size_t *count, struct sbx_err *err);
/* SBX_E_CONFLICT while held, SBX_E_NOT_FOUND when the store does not know the reference.
 * The digest's files go when no reference names it any more. */
MUST_USE enum sbx_code image_remove(struct image_store *s, const char *reference,
                                    struct sbx_err *err);

#endif
