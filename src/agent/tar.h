#ifndef AGENT_TAR_H
#define AGENT_TAR_H

/* Writes tar members (POSIX.1-2001, pax) through zstd into a sink.  Names and attribute values are
 * kept byte for byte. */

#include "agent/archive.h"
#include <sys/stat.h>

struct agent_tar;

struct agent_tar_xattr {
    const char *name;
    const void *value;
    size_t len;
};

/* NULL when memory is short. */
struct agent_tar *agent_tar_new(struct agent_sink sink) MUST_USE;
void agent_tar_free(struct agent_tar *t);

/* A member's head.  type: '0' file, '1' hard link, '2' symbolic link, '5' folder.  A file's content
 * follows in exactly st_size bytes by agent_tar_data, then agent_tar_data_end.  target: of a link,
 * else NULL. */
bool agent_tar_member(struct agent_tar *t, const char *path, char type, const struct stat *st,
                      const char *target, const struct agent_tar_xattr *xattrs,
                      size_t xattr_count) MUST_USE;
bool agent_tar_data(struct agent_tar *t, const void *data, size_t len) MUST_USE;
bool agent_tar_data_end(struct agent_tar *t) MUST_USE;
/* The archive's end; all of it has gone into the sink then. */
bool agent_tar_end(struct agent_tar *t) MUST_USE;

#endif
