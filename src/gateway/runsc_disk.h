#ifndef GATEWAY_RUNSC_DISK_H
#define GATEWAY_RUNSC_DISK_H

/* The disk of one sandbox: a sparse ext4 image on a loop device, so that its size is a
 * limit that nobody can pass.  It holds the workspace and the writable layer over the
 * image's root.  An empty image of each size is made once and copied (measured: copy
 * 3 ms, mount 6 ms; mkfs 6 ms). */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "sbx/error.h"

enum { RUNSC_DISK_MIN_MB = 16 };

/* Makes image and mounts it on mount_dir (made too), with the folders workspace/ (owned by uid and
 * gid) and layer/ in it.  templates: a folder for empty images.  SBX_E_UNAVAILABLE: no room, no
 * loop device. */
MUST_USE enum sbx_code runsc_disk_make(const char *templates, const char *image,
                                       const char *mount_dir, int64_t size_mb, uid_t uid, gid_t gid,
                                       struct sbx_err *err);
/* The sandbox's root on root_dir (made): the image's own root below, the disk's layer above.  By
 * the kernel's overlayfs and not by the runtime's: with its layer in a file on a full disk this
 * runtime dies, here the writer gets ENOSPC. */
MUST_USE enum sbx_code runsc_disk_overlay(const char *image_root, const char *mount_dir,
                                          const char *root_dir, struct sbx_err *err);
/* runsc_disk_make without a limit: plain folders. For hosts without loop devices. */
MUST_USE enum sbx_code runsc_disk_make_plain(const char *mount_dir, uid_t uid, gid_t gid,
                                             struct sbx_err *err);
/* Unmounts what is mounted on mount_dir, if anything; the loop device goes with it. */
MUST_USE enum sbx_code runsc_disk_drop(const char *mount_dir, struct sbx_err *err);
/* Takes away what a probe that was killed left.  Nothing else may be at work there. */
void runsc_disk_sweep(const char *templates);
/* Can this host do the two?  The sentence in *err says why not.  Nothing else may be at work there.
 */
MUST_USE enum sbx_code runsc_disk_probe(const char *templates, struct sbx_err *err);

#endif
