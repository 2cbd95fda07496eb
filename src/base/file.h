#ifndef BASE_FILE_H
#define BASE_FILE_H

/* Whole files and whole folders. Any thread. Messages name the last part of a path only. */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/buf.h"
#include "sbx/error.h"

/* Appends the file; SBX_E_NOT_FOUND when there is none, SBX_E_TOO_LARGE past out->max. */
MUST_USE enum sbx_code file_read(const char *path, struct buf *out, struct sbx_err *err);
/* Writes a new file or replaces one at once: after a crash either the old or the new is there.
 * sync: it is on disk when this returns (temp file, fsync, rename, fsync of the folder); without
 * it a file that holds the same already is left alone. SBX_E_UNAVAILABLE: the disk is full. */
MUST_USE enum sbx_code file_write(const char *path, const void *data, size_t len, mode_t mode,
                                  bool sync, struct sbx_err *err);
/* Removes what a file_write that was killed left in a folder where nobody writes now. */
void file_sweep(const char *folder);
/* Makes the folder and its missing parents; one that is there is fine. SBX_E_UNAVAILABLE: the disk
 * is full. */
MUST_USE enum sbx_code file_make_dirs(const char *path, mode_t mode, struct sbx_err *err);
/* Makes names in a folder durable. */
MUST_USE enum sbx_code file_sync_dir(const char *path, struct sbx_err *err);
/* Removes a file or a folder with all in it, never following a link and never leaving its file
 * system; one that is not there is fine. */
MUST_USE enum sbx_code file_remove_tree(const char *path, struct sbx_err *err);
bool file_exists(const char *path);
/* It is a file with exactly these bytes and this mode. */
bool file_holds(const char *path, const void *data, size_t len, mode_t mode);

#endif
