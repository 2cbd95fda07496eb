#ifndef AGENT_ARCHIVE_H
#define AGENT_ARCHIVE_H

/* PACK and UNPACK: a folder's content as tar (pax) under zstd, streamed; memory does not grow with
 * the archive's size.  Both run in a process of their own that has the folder as its root (bulk.c),
 * and are safe without that too: nothing is reached through a symbolic link or `..`. */

#include "agent/ignore.h"
#include <sbx/agent.h>
#include <sbx/attr.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    AGENT_DEPTH_MAX = 1000,        /* folders within folders */
    AGENT_MEMBERS_MAX = 4000000,   /* in an archive that is unpacked */
    AGENT_MEMBER_PATH_MAX = 65536, /* bytes of one */
    AGENT_XATTR_MAX = 65536,       /* bytes of one file's extended attributes, each way */
    AGENT_LINKS_MAX = 1 << 20,     /* files with several names; more are packed once for each */
};

struct agent_archive_result {
    enum sbx_agent_reason reason; /* NONE: all of it went well */
    char message[192];            /* for a person; the path it names is relative to the folder */
    uint64_t bytes;               /* of the regular files' content, not compressed */
    uint64_t members;
};

/* Where an archive goes.  False: nobody wants it any more. */
struct agent_sink {
    bool (*write)(void *ctx, const void *data, size_t len);
    void *ctx;
};

/* Where one comes from: the number of bytes, 0 at its end, -1 when it broke off. */
struct agent_feed {
    ssize_t (*read)(void *ctx, void *into, size_t size);
    void *ctx;
};

void agent_pack(int root, const struct agent_ignore *ignore, uint64_t max_bytes,
                struct agent_sink sink, struct agent_archive_result *out);

/* Into a folder that nobody else changes meanwhile.  On failure its content is removed. */
void agent_unpack(int root, uint64_t max_bytes, struct agent_feed feed,
                  struct agent_archive_result *out);

/* Removes all that is below the folder, following nothing. */
bool agent_empty(int root);

/* Opens a folder without following a link in its last part; -1 with errno, ENOTDIR or ELOOP for
 * what is none.  gVisor of 2022 follows the link when O_DIRECTORY stands beside O_NOFOLLOW. */
int agent_open_folder(int dir, const char *name) MUST_USE;

/* The first failure stays; false, to return with. */
bool agent_archive_fail(struct agent_archive_result *r, enum sbx_agent_reason reason,
                        const char *what, const char *path, int error);

#endif
