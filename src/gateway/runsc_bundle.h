#ifndef GATEWAY_RUNSC_BUNDLE_H
#define GATEWAY_RUNSC_BUNDLE_H

/* The OCI configuration of a sandbox.  Pure: strings in, JSON out. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/json.h"
#include "gateway/driver.h"

enum { RUNSC_BINDS_MAX = 16, RUNSC_NOFILE = 65536 };

struct runsc_bind {
    const char *source; /* host path */
    const char *target;
    bool read_only;
};

struct runsc_bundle {
    const char *hostname;
    const char *rootfs; /* host path; what is written to it is the sandbox's own */
    const char *netns;  /* path; "" or NULL: no network */
    bool own_netns;     /* an unnamed namespace of its own (the network probe) */
    int64_t memory_mb;  /* bounds the memory file systems */
    /* NULL: the workload itself is the first process; else this program, as the agent */
    const char *agent;
    const struct driver_workload *workload;
    struct runsc_bind binds[RUNSC_BINDS_MAX];
    size_t bind_count;
};

/* Past RUNSC_BINDS_MAX is our bug (assert). */
void runsc_bundle_bind(struct runsc_bundle *b, const char *source, const char *target,
                       bool read_only);
/* A new object. */
json_t *runsc_bundle_json(const struct runsc_bundle *b);

/* The workload of spec on an image's own configuration: command, working directory and environment
 * of the request first.  proxy adds the proxy's variables. Strings are borrowed or in the arena. */
struct runsc_image_defaults {
    const char *const *argv; /* NULL-ended */
    const char *const *env;  /* NULL-ended */
    const char *home;
    uint32_t uid, gid;
    const uint32_t *groups;
    size_t group_count;
};
void runsc_bundle_workload(const struct driver_spec *spec, const struct runsc_image_defaults *image,
                           bool proxy, uint64_t nproc, struct arena *a,
                           struct driver_workload *out);

#endif
