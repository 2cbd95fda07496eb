#ifndef MOUNT_FILES_H
#define MOUNT_FILES_H

/* The files that are open, each with the key it has by now.  A file that is deleted or replaced
 * while it is open keeps its content for who has it open: libfuse renames it to .fuse_hidden<16
 * digits> in its folder, which then cannot be removed, and gVisor's gofer has every file open that
 * it knows, and closes late: no `rm -r` would ever end well.  So such a name (the alias) is ours to
 * place: the object goes to a key of its own at the top of the volume, and away at the last close.
 * Any thread. */

#include <stdbool.h>
#include <stdint.h>

#include "mount/names.h"

/* At the top of a volume, and nobody else's to use. */
#define FILES_DELETED ".sbx-deleted-"

struct files;
struct file; /* opaque */

/* One open(): what fi->fh is above the layer. */
struct files_handle {
    struct file *file;
    uint64_t fh;         /* below it */
    uint64_t sent, kept; /* bytes written that were uploaded, and not yet */
};

struct files *files_new(void); /* NULL: no memory */
void files_free(struct files *fs);

/* NULL: no memory. */
struct files_handle *files_open(struct files *fs, const char *key, uint64_t fh);
/* Frees h.  True: it was the last one of a deleted file that nobody else will delete now (orphan:
 * libfuse does not know its name any more), whose key is put out. */
bool files_close(struct files *fs, struct files_handle *h, bool orphan,
                 char key[NAMES_KEY_MAX + 1]);
void files_key(struct files *fs, const struct files_handle *h, char key[NAMES_KEY_MAX + 1]);

/* So much was written: should it be uploaded now?  A runtime's gofer has no way to say that a close
 * failed (gVisor's answers Flush by itself), so the upload that tells a writer of a backend that is
 * full or away is that of its first write, and then whenever a file has doubled.  One write and its
 * close are one upload, and a file of n bytes is at most log2(n / FILES_STEP) more. */
enum { FILES_STEP = 1024 * 1024 };
bool files_wrote(struct files *fs, struct files_handle *h, uint64_t bytes);

/* A file or folder has another key: what is open below it, too. */
void files_move(struct files *fs, const char *from, const char *to);

/* Is this name one that libfuse gives? */
bool files_is_alias(const char *name);
/* The key of a deleted file; false: it is none. */
bool files_find(struct files *fs, const char *alias, char key[NAMES_KEY_MAX + 1]);
/* Where an open file goes when it is deleted; false: it is not open. */
bool files_place(struct files *fs, const char *key, char place[NAMES_KEY_MAX + 1]);
/* It is there now. */
void files_hide(struct files *fs, const char *key, const char *place, const char *alias);
/* Its object is gone. */
void files_forget(struct files *fs, const char *alias);
/* The key of one that is left, and forgets it; false: there is none. */
bool files_next_left(struct files *fs, char key[NAMES_KEY_MAX + 1]);

#endif
