#ifndef GATEWAY_RUNSC_H
#define GATEWAY_RUNSC_H

/* The runsc driver's own header: what its files share.  Nobody else includes it.
 *
 * Folders below [state] dir (0700 all of them):
 *
 *	x/<id>/     one sandbox: config.json, meta, shim, exit, log, hosts, hostname
 *	  a/        bound read-only on SBX_AGENT_DIR: agent.sock, agent
 *	  disk.img  its disk, mounted on d/ (workspace/, layer/, work/)
 *	  m/        its root: the image's under the layer
 *	r/          runsc's own state
 *	t/          empty disks by size; the programs that go into sandboxes
 *	p/          the root of probe sandboxes
 *	i/          the image store (image.h)
 *	e/          egress (egress.h)
 *	probe       what the probes found, for this runsc on this kernel */

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/id_map.h"
#include "base/process.h"
#include "base/thread.h"
#include "gateway/driver.h"
#include "gateway/egress.h"
#include "gateway/image.h"
#include "gateway/runsc_bundle.h"
#include "gateway/runsc_cgroup.h"
#include "gateway/runsc_expedite.h"

enum {
    RUNSC_MEMORY_OVERHEAD_MB = 48, /* sandbox and gofer themselves (measured: 41 MiB resident) */
    RUNSC_KILL_MS = 5000,
    RUNSC_DELETE_MS = 20000,
    RUNSC_PATH_SIZE = 256, /* of anything below the state folder */
    RUNSC_META_MAX = 4096,
    RUNSC_BACKLOG = 64, /* of an agent socket */
};

/* What the probes found. */
struct runsc_features {
    char platform[16];
    bool network;     /* --network=sandbox works */
    bool mask_net;    /* ... behind an empty /proc/sys/net (gVisor issue 10704) */
    bool statx_fault; /* statx refuses AT_NO_AUTOMOUNT: the preload cure is used */
    bool disk;        /* loop devices and overlayfs work; else no limit, and a root in memory */
    char version[64];
};

/* One sandbox whose shim we watch. */
struct runsc_box {
    char id[ID_SIZE];
    struct process shim;
    bool alive;
};

struct runsc {
    struct driver base;
    struct driver_events events;
    const struct config *config;
    struct arena *arena; /* strings below */
    const char *dir;
    const char *program;   /* runsc */
    const char *agent;     /* the agent's binary */
    const char *guest_dir; /* folder of sandbox-probe and sandbox-statx.so */
    struct runsc_features features;
    struct runsc_cgroups *cgroups;
    struct runsc_expedite *expedite; /* NULL: switched off, or the host has none */
    struct image_store *images;
    struct egress *egress; /* NULL: this host cannot; egress_error says why */
    char egress_error[DRIVER_REASON_SIZE];

    pthread_mutex_t lock; /* boxes, and the fields of each; holds */
    struct id_map boxes;
    struct id_map holds; /* image digests (owned text) that this life of the gateway holds, by id */
    int epoll, wake;
    struct thread watcher;
};

/* --- runsc_prepare.c: what a sandbox needs before its processes --- */

/* driver_ops.prepare (driver.h). */
MUST_USE enum sbx_code runsc_prepare(struct driver *d, const struct driver_spec *spec,
                                     struct arena *a, struct driver_prepared *out,
                                     struct sbx_err *err);
/* The socket that the agent of id dials; *out is the caller's. */
MUST_USE enum sbx_code runsc_listen_agent(struct runsc *r, const char *id, int *out,
                                          struct sbx_err *err);
/* Remembers the use of an image that was counted for id. */
void runsc_hold_note(struct runsc *r, const char *id, const char *digest);
/* Gives it back, if there is one: what an earlier life held is forgotten with it. */
void runsc_hold_drop(struct runsc *r, const char *id);

/* --- runsc_run.c: one sandbox's processes --- */

/* PATH = <dir>/x/<id>[/<name>]; name NULL: the folder. */
void runsc_path(const struct runsc *r, const char *id, const char *name, char out[RUNSC_PATH_SIZE]);
/* How to start, beside config.json that stands in the folder. */
struct runsc_start {
    const char *platform;
    bool network;
    bool mask_net;
    bool overlay;        /* the runtime itself keeps what is written to the root, in memory */
    bool uncached;       /* no dentry cache: every close reaches the folders bound in */
    const char *cgroups; /* for the shim */
    int timeout_ms;
};
MUST_USE enum sbx_code runsc_run_start(struct runsc *r, const char *id,
                                       const struct runsc_start *how, struct process *shim,
                                       struct sbx_err *err);
MUST_USE enum sbx_code runsc_run_write_config(struct runsc *r, const char *id,
                                              const struct runsc_bundle *b, struct sbx_err *err);
/* Ends all processes of id and takes away what runtime and kernel have of it: everything but
 * egress, image and folder.  shim may be empty. */
MUST_USE enum sbx_code runsc_run_end(struct runsc *r, const char *id, struct process *shim,
                                     struct sbx_err *err);
/* Every id of which there is a folder, a control group or runtime state, sorted, once each. */
const char **runsc_run_list(struct runsc *r, struct arena *a);

/* What of a sandbox must be known again after a restart. */
struct runsc_meta {
    char digest[IMAGE_DIGEST_SIZE];
    bool network;
    int64_t cpu_millis;
};
MUST_USE enum sbx_code runsc_meta_write(struct runsc *r, const char *id, const struct runsc_meta *m,
                                        struct sbx_err *err);
bool runsc_meta_read(struct runsc *r, const char *id, struct runsc_meta *m);

/* --- runsc_watch.c: who has ended --- */

MUST_USE enum sbx_code runsc_watch_open(struct runsc *r, struct sbx_err *err);
void runsc_watch_close(struct runsc *r);
/* Takes the shim and watches it.  The id must not be watched yet (assert). */
MUST_USE enum sbx_code runsc_watch_add(struct runsc *r, const char *id, struct process *shim,
                                       struct sbx_err *err);
/* Watches it no more and gives the shim back (empty when there is none, or it was reaped). */
void runsc_watch_take(struct runsc *r, const char *id, struct process *out);
/* False: not watched. */
bool runsc_watch_alive(struct runsc *r, const char *id, bool *alive);

/* --- runsc_probe.c --- */

/* Finds out what works here, or takes it from the last start when neither runsc nor kernel changed.
 * SBX_E_UNAVAILABLE: nothing does. */
MUST_USE enum sbx_code runsc_probe(struct runsc *r, struct sbx_err *err);

#endif
