#ifndef REGION_GATEWAY_CLIENT_H
#define REGION_GATEWAY_CLIENT_H

/* The client of the region gateways: one typed call for each row of sbx/gateway.h.
 *
 * Calls start from any thread and never block; `done` runs exactly once, on the calls
 * thread, and must not block: it hands the answer's values on (request_continue, a
 * queue).  A call that could not be started answers an error at once and `done` never
 * runs.  What the region says is checked before anybody sees it: an answer that is not
 * what the protocol says is SBX_E_UNAVAILABLE ("garbage").
 *
 * Endpoints (url with secret, or unix socket) are kept by region name; whoever reads
 * them from the store sets them here (the reconciler, at start and on a notice).
 *
 * The output budget bounds the bytes of all execute answers in memory: past it a new
 * command is refused with SBX_E_BUSY before it starts. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/id.h"
#include "base/json.h"
#include "base/metrics.h"
#include "base/secret.h"
#include "domain/sandbox_state.h"
#include "net/net.h"
#include "sbx/error.h"
#include "sbx/gateway.h"

struct gateway_client;

struct gateway_client_config {
    struct net *net;         /* must outlive the client */
    size_t output_budget;    /* bytes; 0: 256 MiB */
    size_t executions_max;   /* under way; 0: 16384 */
    struct metrics *metrics; /* NULL: none */
};

enum { GATEWAY_CLIENT_OUTPUT_BUDGET = 256 * 1024 * 1024, GATEWAY_CLIENT_EXECUTIONS_MAX = 16384 };

struct gateway_client *gateway_client_new(const struct gateway_client_config *config);
/* No call may be under way (net_stop first). NULL is allowed. */
void gateway_client_free(struct gateway_client *c);

/* --- endpoints --------------------------------------------------------- */

struct gateway_client_endpoint {
    const char *region;
    const char *url;             /* "https://host:port"; NULL with a socket */
    const char *socket;          /* path of a unix socket; NULL with a url */
    const struct secret *secret; /* NULL on a socket */
    const char *ca_file;         /* NULL: net's */
};
/* Adds or replaces; all is copied. SBX_E_INVALID: not exactly one of url and socket. */
MUST_USE enum sbx_code gateway_client_endpoint_set(struct gateway_client *c,
                                                   const struct gateway_client_endpoint *endpoint,
                                                   struct sbx_err *err);
void gateway_client_endpoint_drop(struct gateway_client *c, const char *region);

/* --- what a region answers --------------------------------------------- */

enum region_phase {
    REGION_PHASE_NONE = 0,
    REGION_PHASE_STARTING,
    REGION_PHASE_RUNNING,
    REGION_PHASE_STOPPED,
    REGION_PHASE_FAILED,
};

/* SANDBOX of sbx/gateway.h. Texts are "" or NULL when absent. */
struct region_sandbox {
    char id[ID_SIZE];
    int64_t generation;
    enum region_phase phase;
    bool agent;
    bool oom_killed;
    bool warm;    /* a member of a pool */
    bool claimed; /* it was one: this sandbox came from the pool */
    const char *reason;
    const char *const *executions; /* NULL-ended */
    size_t execution_count;
    bool has_persistence;
    const char *mount_path;
    int64_t last_snapshot_at_ms; /* 0: none */
    int64_t last_snapshot_bytes;
    const char *last_snapshot_error; /* NULL: none */
    bool restore_failed;
    int64_t denied_egress;
};

/* A live directory whose credentials the region asks for. */
struct region_volume {
    char account_id[ID_SIZE];
    const char *volume_name;
};

/* The body of an execute answer, counted in the budget until it is freed. Any thread. */
struct gateway_client_output;
size_t gateway_client_output_len(const struct gateway_client_output *o);
/* Parses and checks it: an object of exactly the fields that contract 4 names, without "success".
 * SBX_E_AGENT_UNREACHABLE when the region's answer is not that: an exit code is never invented. Not
 * on the calls thread: it may be 12 MiB. */
MUST_USE enum sbx_code gateway_client_output_json(const struct gateway_client_output *o,
                                                  json_t **out, struct sbx_err *err);
void gateway_client_output_free(struct gateway_client_output *o); /* NULL is allowed */

/* Borrowed for the callback, but `output`. */
struct gateway_client_answer {
    enum sbx_code
        code; /* SBX_OK, the region's code, or UNAVAILABLE, TIMEOUT, CONFLICT (cancelled) */
    const char *message;                    /* "" for SBX_OK */
    const char *field;                      /* the request field at fault, or "" */
    int retry_after_s;                      /* 0: not said */
    bool answered;                          /* the region itself said so; else no answer came */
    bool sent;                              /* the call may have taken effect */
    const struct region_sandbox *sandboxes; /* deploy get stop warm: one; list: count */
    size_t sandbox_count;
    const struct region_volume *volumes; /* volumes_wanting: volume_count */
    size_t volume_count;
    const char *next;       /* list: where to go on; NULL: that was all */
    int64_t snapshot_bytes; /* snapshot */
    int64_t snapshot_archived_bytes;
    int64_t snapshot_at_ms;
    struct gateway_client_output *output; /* execute: the callback owns it; NULL otherwise */
    const json_t *json;                   /* process, capacity, images, egress: the object */
};
typedef void gateway_client_fn(void *arg, const struct gateway_client_answer *answer);

/* --- calls about sandboxes --------------------------------------------- */

/* Where a volume's objects are. Texts are copied by the call. */
struct region_backend {
    const char *kind; /* "dir" or "s3"; NULL: none */
    const char *path;
    const char *endpoint, *bucket, *prefix, *s3_region;
    const char *access_key, *secret_key; /* revealed: live only as long as the call's body */
};

struct region_deploy {
    const char *operation_id;
    int64_t generation;
    const char *account_id;
    const char *image;
    const char *registry_host, *registry_username, *registry_password; /* NULL host: none */
    const char *command;     /* JSON array text, or NULL */
    const char *working_dir; /* or NULL */
    const char *env;         /* JSON object text, or NULL */
    int cpu_millis, memory_mb, disk_mb;
    const char *network; /* JSON object text, or NULL */
    enum sandbox_persistence persistence;
    const char *volume_name;
    const char *mount_path; /* or NULL */
    int volume_size_mb;
    bool restore;
    int snapshot_max_mb;
    struct region_backend backend;
    bool personal;
    bool no_agent;
    const char *warm_id; /* or NULL */
};
MUST_USE enum sbx_code gateway_client_deploy(struct gateway_client *c, const char *region,
                                             const char *sandbox_id,
                                             const struct region_deploy *spec,
                                             gateway_client_fn *done, void *arg,
                                             struct sbx_err *err);
/* A warm pool member: spec without persistence and warm_id. */
MUST_USE enum sbx_code gateway_client_warm(struct gateway_client *c, const char *region,
                                           const char *warm_id, const struct region_deploy *spec,
                                           gateway_client_fn *done, void *arg, struct sbx_err *err);
/* SBX_E_NOT_FOUND: the region has nothing of it. */
MUST_USE enum sbx_code gateway_client_get(struct gateway_client *c, const char *region,
                                          const char *sandbox_id, gateway_client_fn *done,
                                          void *arg, struct sbx_err *err);
/* In id order after `after` (NULL: from the start), at most SBX_GATEWAY_LIST_MAX. */
MUST_USE enum sbx_code gateway_client_list(struct gateway_client *c, const char *region,
                                           const char *after, int limit, gateway_client_fn *done,
                                           void *arg, struct sbx_err *err);
/* SBX_OK: nothing of it is left. SBX_E_STALE: the region has seen a newer generation. */
MUST_USE enum sbx_code gateway_client_destroy(struct gateway_client *c, const char *region,
                                              const char *sandbox_id, const char *operation_id,
                                              int64_t generation, gateway_client_fn *done,
                                              void *arg, struct sbx_err *err);

struct region_snapshot {
    const char *operation_id;
    int64_t generation;
    const char *exclude; /* JSON array text, or NULL */
    int max_mb;
    bool force;
    struct region_backend backend;
};
MUST_USE enum sbx_code gateway_client_snapshot(struct gateway_client *c, const char *region,
                                               const char *sandbox_id,
                                               const struct region_snapshot *spec,
                                               gateway_client_fn *done, void *arg,
                                               struct sbx_err *err);
MUST_USE enum sbx_code gateway_client_stop(struct gateway_client *c, const char *region,
                                           const char *sandbox_id, const char *operation_id,
                                           int64_t generation, gateway_client_fn *done, void *arg,
                                           struct sbx_err *err);

struct region_execute {
    const char *execution_id;
    int64_t generation;
    const json_t *command; /* array of strings; borrowed for the call */
    const char *cwd;       /* or NULL */
    const json_t *env;     /* object, or NULL */
    int timeout_s;
    size_t output_max; /* of one stream */
};
/* SBX_E_BUSY: past the output budget or executions_max; nothing was started. No answer comes before
 * the command's own deadline and SBX_GATEWAY_EXECUTE_GRACE_S. */
MUST_USE enum sbx_code gateway_client_execute(struct gateway_client *c, const char *region,
                                              const char *sandbox_id,
                                              const struct region_execute *spec,
                                              gateway_client_fn *done, void *arg,
                                              struct sbx_err *err);
/* The owner-only process path of personal runs (src/gateway/process.h says the body). */
MUST_USE enum sbx_code gateway_client_process(struct gateway_client *c, const char *region,
                                              const char *sandbox_id, const json_t *body,
                                              const struct secret *process_secret, int timeout_s,
                                              gateway_client_fn *done, void *arg,
                                              struct sbx_err *err);

/* --- calls about the region -------------------------------------------- */

MUST_USE enum sbx_code gateway_client_volume_make(struct gateway_client *c, const char *region,
                                                  const char *volume_name, const char *account_id,
                                                  const char *operation_id,
                                                  const struct region_backend *backend,
                                                  gateway_client_fn *done, void *arg,
                                                  struct sbx_err *err);
/* The volumes whose credentials the region lacks: answered with volume_make. */
MUST_USE enum sbx_code gateway_client_volumes_wanting(struct gateway_client *c, const char *region,
                                                      gateway_client_fn *done, void *arg,
                                                      struct sbx_err *err);
MUST_USE enum sbx_code gateway_client_volume_purge(struct gateway_client *c, const char *region,
                                                   const char *volume_name, const char *account_id,
                                                   const char *operation_id,
                                                   const struct region_backend *backend,
                                                   gateway_client_fn *done, void *arg,
                                                   struct sbx_err *err);
/* GET of any path of the protocol that answers an object: "/v1/health", "/v1/capacity",
 * "/v1/images", "/v1/egress/denied?sandboxId=ID". */
MUST_USE enum sbx_code gateway_client_read(struct gateway_client *c, const char *region,
                                           const char *path, gateway_client_fn *done, void *arg,
                                           struct sbx_err *err);
MUST_USE enum sbx_code gateway_client_image_remove(struct gateway_client *c, const char *region,
                                                   const char *reference, gateway_client_fn *done,
                                                   void *arg, struct sbx_err *err);
/* Streams an image in; blocks the caller (a worker), read runs on the caller's thread. size -1:
 * not known. *out: {reference, bytes}. kind: "layout" or "rootfs". */
MUST_USE enum sbx_code gateway_client_image_import(struct gateway_client *c, const char *region,
                                                   const char *name, const char *kind,
                                                   net_read_fn *read, void *read_arg, int64_t size,
                                                   struct arena *a, json_t **out,
                                                   struct sbx_err *err);

/* For metrics and tests. Any thread. */
struct gateway_client_stats {
    size_t calls;        /* under way */
    size_t executions;   /* under way */
    size_t output_bytes; /* of execute answers in memory */
};
void gateway_client_stats(struct gateway_client *c, struct gateway_client_stats *out);

#endif
