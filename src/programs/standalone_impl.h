#ifndef PROGRAMS_STANDALONE_IMPL_H
#define PROGRAMS_STANDALONE_IMPL_H

/* What the launcher's files share: standalone.c (its life, region and server) and
 * standalone_postgres.c.  One thread; texts are the arena's. */

#include <stdint.h>
#include <sys/types.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/config.h"
#include "programs/supervise.h"
#include "sbx/attr.h"

enum {
    STANDALONE_TOOL_MS = 30 * 1000,
    STANDALONE_READY_MS = 120 * 1000, /* PostgreSQL after a crash replays its log first */
    STANDALONE_READY_STEP_MS = 50,
    STANDALONE_WORDS_MAX = 40, /* of a part's command line */
};

struct standalone_user {
    const char *name;
    uid_t uid;
    gid_t gid;
};

struct standalone {
    struct arena *a;
    struct config *config;
    const char *state; /* absolute */
    const char *run;   /* short folder of the sockets, below /run */
    const char *bin;   /* folder of this program */
    struct standalone_user server_user, postgres_user;
    const char *admin_socket, *region_socket, *database_url, *port_file, *server_conf, *region_conf;
    int64_t port; /* that the server was told; 0: any */
    int lock_fd, signal_fd;
    struct part postgres, region, server;
};

/* The folder, with its parents, mode and owner, also when it was there. */
MUST_USE enum sbx_code standalone_make_dir(const char *path, mode_t mode, uid_t uid, gid_t gid,
                                           struct sbx_err *err);

/* Writes path whole or not at all, for root and the readers of gid. */
MUST_USE enum sbx_code standalone_write_for(const char *path, struct buf *text, gid_t gid,
                                            struct sbx_err *err);

/* Makes the cluster when there is none, adopts or starts PostgreSQL, waits until it answers. */
MUST_USE enum sbx_code standalone_start_postgres(struct standalone *s, struct sbx_err *err);

#endif
