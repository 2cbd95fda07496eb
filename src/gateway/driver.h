#ifndef GATEWAY_DRIVER_H
#define GATEWAY_DRIVER_H

/* The seam under the region gateway: what it asks of a runtime.
 *
 * Everything that knows a runtime or a host path lives behind this table; above it
 * are ids, generations, the journal, the agent channel and HTTP.  A driver keeps no
 * truth of its own beyond what its runtime has: the gateway tells it what to end.
 *
 * Order for one sandbox, never two calls at once for one id (the gateway sees to it):
 *
 *	prepare -> start -> (observe)* -> destroy
 *
 * and destroy is allowed after any of them, also twice, also for an id that is not
 * there.  Calls for different ids come from several threads at once and may block
 * for as long as a pull takes. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/config.h"
#include "base/id.h"
#include "base/json.h"
#include "base/secret.h"
#include "sbx/error.h"

enum {
    DRIVER_GROUPS_MAX = 32,   /* supplementary groups of a workload */
    DRIVER_REASON_SIZE = 200, /* a sentence for a person, no host path */
};

/* Credentials of one registry, for one pull; never stored. */
struct driver_registry {
    const char *host;
    const char *username;
    const struct secret *password;
};

/* As networkControl says.  Not enabled: default egress (NAT and resolver, infrastructure
 * ranges denied).  Enabled: only what the lists allow. */
struct driver_network {
    bool enabled;
    const char *const *addresses; /* NULL-ended, CIDR or address; NULL: none */
    const char *const *domains;   /* NULL-ended; NULL: none */
};

/* A host folder that is to be seen inside (a volume's live directory).  NULL path: none. */
struct driver_mount {
    const char *source; /* on the region host, already there */
    const char *target; /* inside, absolute and normalised */
    bool uncached;      /* every close must reach the source (directory mode) */
};

/* What to run.  Borrowed for the call. */
struct driver_spec {
    const char *id;
    const char *account_id;
    const char *image;                      /* repository@sha256:hex */
    const struct driver_registry *registry; /* NULL: none */
    const char *const *command;             /* NULL-ended; NULL: the image's own, if any */
    const char *working_dir;                /* NULL: /workspace */
    const char *const *env; /* NAME=value, NULL-ended, over the image's; NULL: none */
    int64_t cpu_millis;
    int64_t memory_mb;
    int64_t disk_mb;
    struct driver_network network;
    struct driver_mount mount;
    bool personal;
    bool agent; /* false: the command itself is the first process */
};

/* What the agent is told in WELCOME; resolved from spec and image, in the caller's arena. */
struct driver_workload {
    const char **argv; /* NULL-ended, may be empty: nothing but executions */
    const char **env;  /* NULL-ended */
    const char *cwd;
    uint32_t uid, gid;
    uint32_t groups[DRIVER_GROUPS_MAX];
    size_t group_count;
    uint64_t nproc;
    bool proxy; /* listen on 127.0.0.1:SBX_AGENT_PROXY_PORT and relay */
};

struct driver_prepared {
    struct driver_workload workload;
    int listen_fd; /* the agent's unix socket, listening; the caller's. -1 without agent */
};

/* What the runtime has of one id. */
struct driver_state {
    bool exists;                     /* anything at all: processes, files, cgroups */
    bool alive;                      /* its processes run */
    bool oom_killed;                 /* the kernel ended it for its memory limit */
    char reason[DRIVER_REASON_SIZE]; /* why it is not alive, "" when not known */
};

/* Told to the gateway, from a driver's own thread.  Must not call back into the driver. */
struct driver_events {
    void (*exited)(void *arg, const char *id); /* the sandbox's processes ended by themselves */
    void *arg;
};

struct driver; /* one open driver; each driver embeds it as its first member */
struct image_store;
struct egress;

struct driver_ops {
    const char *name; /* [driver] kind */

    /* Probes the runtime (bounded by deadlines) and gets ready.  events outlives the driver. */
    enum sbx_code (*open)(const struct config *config, const struct driver_events *events,
                          struct driver **out, struct sbx_err *err);
    void (*close)(struct driver *d); /* leaves every sandbox running */
    /* Takes over what is marked reload, is the driver's, and is not read anew each time. check: says
     * only whether it could. On an error nothing is changed. NULL: there is nothing. */
    enum sbx_code (*reload)(struct driver *d, const struct config *fresh, bool check,
                            struct sbx_err *err);

    /* Everything up to the point where starting is one step: image, disk, network, bundle.
     * SBX_E_INVALID: the request names an image or address that cannot be; SBX_E_UNAVAILABLE: worth
     * another try.  A failure leaves what destroy will take away. */
    enum sbx_code (*prepare)(struct driver *d, const struct driver_spec *spec, struct arena *a,
                             struct driver_prepared *out, struct sbx_err *err);
    /* Starts it; returns when the runtime has taken it, not when the agent is ready. */
    enum sbx_code (*start)(struct driver *d, const struct driver_spec *spec, struct sbx_err *err);
    /* It is ready now: limits that would have slowed its start. NULL: nothing to do. */
    enum sbx_code (*running)(struct driver *d, const struct driver_spec *spec, struct sbx_err *err);
    /* Nothing is left when this returns SBX_OK: processes, cgroups, mounts, namespaces, folders. */
    enum sbx_code (*destroy)(struct driver *d, const char *id, struct sbx_err *err);
    enum sbx_code (*observe)(struct driver *d, const char *id, struct driver_state *out,
                             struct sbx_err *err);

    /* After a restart: every id of which the runtime has anything, NULL-ended, in the arena. */
    enum sbx_code (*list)(struct driver *d, struct arena *a, const char ***out,
                          struct sbx_err *err);
    /* Takes over one that runs: watches its exit and listens on its agent socket again.
     * SBX_E_NOT_FOUND: it does not run any more. */
    enum sbx_code (*adopt)(struct driver *d, const char *id, int *listen_fd, struct sbx_err *err);

    /* Once all of list's ids were adopted or destroyed: takes away what belongs to none of them. */
    enum sbx_code (*settle)(struct driver *d, struct sbx_err *err);

    /* Probe results and free room, for /v1/capacity; a new object. */
    json_t *(*features)(struct driver *d);
    int64_t (*disk_free_mb)(struct driver *d);
    /* Does the image of this id have a program at that absolute path?  NULL: the driver cannot say,
     * yes is assumed. */
    enum sbx_code (*has_program)(struct driver *d, const char *id, const char *path, bool *out,
                                 struct sbx_err *err);
    /* A TCP connection to this sandbox's egress proxy, for the agent's relay.
     * SBX_E_FORBIDDEN: it has none.  NULL: the driver has no network. */
    enum sbx_code (*dial_proxy)(struct driver *d, const char *id, int *out, struct sbx_err *err);
    /* For the image and egress routes; borrowed. NULL: the driver has none. */
    struct image_store *(*images)(struct driver *d);
    struct egress *(*egress)(struct driver *d);
};

struct driver {
    const struct driver_ops *ops;
};

extern const struct driver_ops driver_runsc; /* gVisor on this host */
extern const struct driver_ops driver_fake;  /* no runtime: faults and load */

#endif
