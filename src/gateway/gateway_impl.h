#ifndef GATEWAY_GATEWAY_IMPL_H
#define GATEWAY_GATEWAY_IMPL_H

/* What the files of the gateway's core share.
 *
 * A sandbox is guarded by the gateway's lock; an operation on it (deploy, delete, stop)
 * is alone on it (`busy`), others wait in its queue in the order of their coming.  What
 * an operation reads and writes of its sandbox beside the flags it does as the one that
 * is busy on it. */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/config.h"
#include "base/id_map.h"
#include "base/json.h"
#include "base/metrics.h"
#include "base/queue.h"
#include "base/secret.h"
#include "base/thread.h"
#include "gateway/driver.h"
#include "gateway/gateway.h"
#include "gateway/journal.h"
#include "gateway/relay.h"
#include "gateway/volume.h"
#include "http/server.h"
#include "sbx/agent.h"
#include "sbx/gateway.h"

enum {
    GATEWAY_OPS_MAX = 8,      /* results that a sandbox remembers */
    GATEWAY_TICKETS_MAX = 16, /* requests that wait for one operation */
    GATEWAY_WAITING_MAX = 64, /* operations that wait for one sandbox */
    GATEWAY_JOB_THREADS_MAX = 256,
    GATEWAY_TEXT_MAX = 200, /* bytes of a sentence that is kept */
    GATEWAY_RESULT_MAX = 16 * 1024,
    GATEWAY_ENV_MAX = 1024,
    GATEWAY_MOUNT_MAX = 256,
    GATEWAY_ARCHIVE_THREADS_MAX = 64,
    GATEWAY_EXCLUDE_MAX = 256,
    GATEWAY_UIDS_MAX = 64,
    GATEWAY_KNOWN_MAX = 1024 * 1024, /* sandboxes and tombstones (about 1.5 KB each) */
};

enum gateway_phase {
    GATEWAY_PHASE_NONE = 0, /* known by its generation only: gone, or never came to be */
    GATEWAY_PHASE_STARTING,
    GATEWAY_PHASE_RUNNING,
    GATEWAY_PHASE_STOPPED,
    GATEWAY_PHASE_FAILED, /* its processes ended by themselves */
};
const char *gateway_phase_name(enum gateway_phase p); /* the protocol's word; "" for NONE */

/* The first result of an operation id. */
struct gateway_result {
    char op[ID_SIZE];
    enum sbx_code code;
    char *msg;   /* SBX_OK: NULL */
    char *field; /* NULL: none */
    char *body;  /* JSON text when code is SBX_OK */
};

struct gateway_job;

/* The entry point of a personal run: started at most once in the life of its holder. */
enum gateway_process_state {
    GATEWAY_PROCESS_NONE = 0,
    GATEWAY_PROCESS_STARTED,
    GATEWAY_PROCESS_EXITED
};
struct gateway_process {
    enum gateway_process_state state;
    char id[ID_SIZE];
    int exit_code, signal;
    int64_t missing_since_ms; /* monotonic; the agent does not name it; not journaled */
};

/* What a sandbox keeps on a volume, and how the last archive went. */
struct gateway_persistence {
    bool directory, snapshot; /* the mode; neither: none */
    char volume[64];
    char mount_path[GATEWAY_MOUNT_MAX];
    int64_t snapshot_max_mb;
    bool restore;       /* of this deploy */
    int64_t last_at_ms; /* 0: never */
    int64_t last_bytes;
    char last_error[GATEWAY_TEXT_MAX]; /* "": none */
    bool restore_failed;
};

struct gateway_sandbox {
    char id[ID_SIZE];
    char runtime[ID_SIZE]; /* its id in the driver: the warm one's after a claim */
    char account[ID_SIZE];
    int64_t generation;
    enum gateway_phase phase;
    int64_t changed_ms; /* wall clock of the last change, for the tombstone's age */
    bool deleted;       /* a tombstone: its generation never comes back */
    bool agent, warm, claimed, personal, oom;
    bool in_driver; /* the driver may have something of it; it stands in by_runtime */
    char reason[GATEWAY_TEXT_MAX];
    unsigned char key[SBX_AGENT_KEY_LEN];
    struct gateway_process process;
    struct gateway_persistence persistence;
    struct gateway_result *ops[GATEWAY_OPS_MAX]; /* newest first */

    struct gateway_job *busy;    /* the operation under way, NULL: none */
    struct gateway_job *waiting; /* in order */
    size_t waiting_count;
    bool ended;     /* the driver said so while an operation was under way */
    json_t *denied; /* attempts that were refused before its last pause, or NULL; not journaled */
};

enum gateway_job_kind {
    GATEWAY_JOB_DEPLOY,
    GATEWAY_JOB_DELETE,
    GATEWAY_JOB_STOP,
    GATEWAY_JOB_SNAPSHOT,
};

/* One operation.  Owned by whoever holds it: the queue, its sandbox, or the thread that runs it. */
struct gateway_job {
    struct gateway_job *next; /* waiting for the same sandbox */
    enum gateway_job_kind kind;
    struct gateway *g;
    struct gateway_sandbox *sandbox;
    char id[ID_SIZE];
    char op[ID_SIZE];
    int64_t generation;
    uint64_t tickets[GATEWAY_TICKETS_MAX];
    size_t ticket_count;

    /* SNAPSHOT */
    const char **exclude; /* NULL-ended, or NULL */
    int64_t max_mb;
    bool force;

    /* DEPLOY */
    struct arena *arena; /* everything of the request */
    struct driver_spec spec;
    struct secret *password;
    bool warm;
    bool hold;                     /* the command waits for a restore */
    bool connected;                /* the agent can be spoken to */
    bool restored;                 /* the restore is over, however it went */
    struct sbx_err refusal;        /* a restore that must not be served */
    struct volume_backend backend; /* of the volume, and of SNAPSHOT */
    struct gateway_persistence persistence;
    char warm_id[ID_SIZE]; /* claim this one; "": none */
    bool awaiting;         /* started, the agent's READY is awaited; no thread runs it */
    int64_t ready_deadline_ms;
    int64_t began_ms, prepared_ms, started_ms, ready_ms; /* of the monotonic clock */
    bool cancelled;                                      /* a delete wants it to end */
    bool mounting; /* between gateway_volume_mount and gateway_volume_mounted */
    bool agent_ready, agent_failed;
    char agent_message[GATEWAY_TEXT_MAX];
};

/* Who may call. */
struct gateway_who {
    struct secret *secret, *process_secret; /* NULL: none; one a line, each is accepted */
    uint32_t uids[GATEWAY_UIDS_MAX];        /* that the unix socket serves */
    size_t uid_count;
};

struct gateway_mounts;

struct gateway {
    const struct config *config;
    struct arena *arena;
    int lock_fd; /* of the state folder */
    struct driver *driver;
    struct journal *journal;
    struct relay *relay;
    struct gateway_mounts *mounts;
    struct http_server *http;
    struct metrics *metrics;
    struct metrics_table *counters;
    pthread_rwlock_t who_lock; /* of who: a reload changes it under the HTTP threads */
    struct gateway_who who;

    pthread_mutex_t lock;
    size_t sandboxes_max;
    struct id_map sandboxes;  /* by id, tombstones included */
    struct id_map by_runtime; /* those that have something in the driver */
    size_t live, warm;        /* with a phase, not NONE */
    struct queue *jobs;
    struct thread workers[GATEWAY_JOB_THREADS_MAX];
    size_t worker_count;
    struct queue *archives; /* jobs that stream an archive */
    struct thread archivers[GATEWAY_ARCHIVE_THREADS_MAX];
    size_t archiver_count;
    struct thread timer;
    pthread_cond_t timer_wake;
    bool stopping;
};

/* --- gateway_table.c; all but the JSON writer under the lock --- */

struct gateway_sandbox *gateway_find(struct gateway *g, const char *id);
struct gateway_sandbox *gateway_find_runtime(struct gateway *g, const char *runtime);
struct gateway_sandbox *gateway_make(struct gateway *g, const char *id);
/* Frees it; it must be in neither map, without an operation. */
void gateway_sandbox_free(struct gateway_sandbox *s);
/* Keeps the counts of live and warm ones. */
void gateway_set_phase(struct gateway *g, struct gateway_sandbox *s, enum gateway_phase phase);
/* Into and out of by_runtime. */
void gateway_enter_driver(struct gateway *g, struct gateway_sandbox *s, const char *runtime);
void gateway_leave_driver(struct gateway *g, struct gateway_sandbox *s);
const struct gateway_result *gateway_result_find(const struct gateway_sandbox *s, const char *op);
/* Keeps it as the newest; err SBX_OK: body, which is copied. */
void gateway_result_add(struct gateway_sandbox *s, const char *op, const struct sbx_err *err,
                        const char *body);
/* The newest one, if it is op's. */
void gateway_result_forget(struct gateway_sandbox *s, const char *op);
/* A tombstone needs its last result only. */
void gateway_results_trim(struct gateway_sandbox *s, size_t keep);

/* The journal's text of one sandbox, owned by the caller; NULL: too large. */
char *gateway_record_text(const struct gateway_sandbox *s);
/* A sandbox from the journal's text, in no map yet; NULL: not ours. */
struct gateway_sandbox *gateway_record_parse(const char *id, const char *text);
/* Writes it down.  Not under the lock: it waits for the disk. */
MUST_USE enum sbx_code gateway_record(struct gateway *g, struct gateway_sandbox *s,
                                      struct sbx_err *err);

/* SANDBOX of sbx/gateway.h. Not under the lock; asks the driver why a failed one ended. */
json_t *gateway_sandbox_json(struct gateway *g, const char *id);

/* --- gateway_reconcile.c --- */

/* At the start, before anybody calls: reads the journal, adopts what runs, ends what nobody knows,
 * says of the rest that it was lost. */
MUST_USE enum sbx_code gateway_reconcile(struct gateway *g, struct sbx_err *err);

/* --- gateway_listen.c --- */

/* Reads [listen]'s secrets and uids.  On a failure too, who holds what gateway_who_fini takes away.
 */
MUST_USE enum sbx_code gateway_who_read(const struct config *c, struct gateway_who *who,
                                        struct sbx_err *err);
void gateway_who_fini(struct gateway_who *who);
/* Opens the listeners of [listen]; g->who must be read. */
MUST_USE enum sbx_code gateway_serve(struct gateway *g, struct sbx_err *err);

/* --- gateway_job.c, gateway_deploy.c --- */

struct gateway_job *gateway_job_new(struct gateway *g, enum gateway_job_kind kind, const char *id,
                                    const char *op, int64_t generation);
void gateway_job_free(struct gateway_job *job);
/* Takes the job, to whose ticket the answer goes. */
void gateway_job_submit(struct gateway *g, struct gateway_job *job, uint64_t ticket);
/* Runs until the queue is closed: the worker threads' main. */
void gateway_job_work(void *gateway);
/* The end of an operation: remembers (keep) and writes down the result, answers, starts the next.
 * Takes the job. */
void gateway_job_done(struct gateway_job *job, struct sbx_err *err, const char *body, bool keep);
/* Under the lock: an awaiting deploy goes on. */
void gateway_job_wake(struct gateway_job *job);

void gateway_deploy_run(struct gateway_job *job);
void gateway_deploy_finish(struct gateway_job *job);
void gateway_delete_run(struct gateway_job *job);
void gateway_stop_run(struct gateway_job *job);
bool gateway_job_cancelled(struct gateway_job *job);
/* Ends and takes away what the driver has of it; the caller is busy on s. */
MUST_USE enum sbx_code gateway_release(struct gateway *g, struct gateway_sandbox *s,
                                       enum sbx_code code, const char *sentence,
                                       struct sbx_err *err);
/* A started deploy waits for its agent's next word. */
void gateway_deploy_await(struct gateway_job *job);

/* --- gateway_snapshot.c --- */

void gateway_archive_work(void *gateway); /* the archive threads' main */
json_t *gateway_persistence_json(const struct gateway_persistence *p); /* NULL: none */
void gateway_persistence_parse(const json_t *j, struct gateway_persistence *p);
/* The journal's form of the same. */
json_t *gateway_persistence_record(const struct gateway_persistence *p);

/* --- gateway_volumes.c --- */

route_fn gateway_route_volume_list, gateway_route_volume_make, gateway_route_volume_purge;
/* Fills spec.mount of a deploy in directory mode. */
MUST_USE enum sbx_code gateway_volume_mount(struct gateway_job *job, struct sbx_err *err);
/* The deploy's sandbox is in the driver, or will not be: from here on that says who uses it. */
void gateway_volume_mounted(struct gateway_job *job);
/* After a sandbox is gone from the driver: its volume's mount, unless another one uses it. */
void gateway_volume_unmount(struct gateway *g, const struct gateway_sandbox *s);
void gateway_volumes_settle(struct gateway *g); /* the start: mounts without a user */
volume_used_fn gateway_volume_used;             /* arg: the gateway */

/* --- gateway_mounts.c ---
 *
 * The s3fs mounts of live directories: their processes are watched, a dead mount is made again, and
 * what that takes, the backend's credentials, is kept here as long as the volume is mounted, in
 * memory only.  A gateway that has them not (after its start, or because they failed) says so, and
 * the control plane sends them.  Volumes go by their key, "<account>/<volume>".  Any thread. */

struct gateway_mounts *gateway_mounts_new(struct gateway *g, const char *folder);
MUST_USE enum sbx_code gateway_mounts_start(struct gateway_mounts *m, struct sbx_err *err);
void gateway_mounts_free(struct gateway_mounts *m); /* a mend under way gives up; NULL is allowed */
/* Keeps a copy; it goes when nothing of the volume is mounted. */
void gateway_mounts_lend(struct gateway_mounts *m, const char *key,
                         const struct volume_backend *backend);
/* Is it mounted, alive or dead?  As of the last look. */
bool gateway_mounts_have(struct gateway_mounts *m, const char *key);
/* Nobody uses it any more: a mend under way gives up. */
void gateway_mounts_leave(struct gateway_mounts *m, const char *key);
/* Credentials that came did not work: a while passes before they are asked for again. */
void gateway_mounts_failed(struct gateway_mounts *m, const char *key);
/* A deploy begins to mount the volume; its sandbox is known to the driver, or it gave up. */
void gateway_mounts_begin(struct gateway_mounts *m, const char *key);
void gateway_mounts_end(struct gateway_mounts *m, const char *key);
bool gateway_mounts_begun(struct gateway_mounts *m, const char *key);
void gateway_mounts_look(struct gateway_mounts *m);       /* soon, and not at the next tick */
json_t *gateway_mounts_wanting(struct gateway_mounts *m); /* [{accountId, volumeName}] */
size_t gateway_mounts_dead(struct gateway_mounts *m);     /* how many nothing serves now */

/* --- gateway_answer.c --- */

/* Answers a deferred request; err SBX_OK: body. */
void gateway_answer(struct gateway *g, uint64_t ticket, const struct sbx_err *err,
                    const char *body);

/* --- gateway_parse.c --- */

/* Fills a deploy job from the body of PUT /v1/sandboxes/{id} or POST /v1/warm. */
MUST_USE enum sbx_code gateway_parse_deploy(struct gateway_job *job, const json_t *body,
                                            struct sbx_err *err);
struct gateway_execute {
    char execution_id[ID_SIZE];
    int64_t generation;
    const char **argv;
    const char **env; /* NAME=value */
    const char *cwd;
    int64_t timeout_ms;
    size_t cap;
};
MUST_USE enum sbx_code gateway_parse_execute(const json_t *body, size_t cap_max, struct arena *a,
                                             struct gateway_execute *out, struct sbx_err *err);
/* {exclude, maxMb, force, backend} of a snapshot. */
MUST_USE enum sbx_code gateway_parse_snapshot(struct gateway_job *job, const json_t *body,
                                              struct sbx_err *err);
/* {operationId, generation} */
MUST_USE enum sbx_code gateway_parse_operation(const json_t *body, char op[ID_SIZE],
                                               int64_t *generation, struct sbx_err *err);

/* --- gateway_execute.c --- */

route_fn gateway_route_execute;

/* --- gateway_process.c --- */

route_fn gateway_route_process;
/* On the relay's thread: an execution ended that nobody waited for, or an entry point did. */
void gateway_process_ended(struct gateway *g, const char *runtime, const char *execution_id,
                           int exit_code, int signal);

/* --- gateway_images.c --- */

route_fn gateway_route_image_list, gateway_route_image_remove, gateway_route_image_import;
route_body_fn gateway_route_image_piece;

/* --- gateway_denied.c --- */

route_fn gateway_route_denied;
/* Attempts of a sandbox that its network refused, since its create. */
int64_t gateway_denied_count(struct gateway *g, const char *id);
/* Before a pause releases its compute: what its counters say is kept for its next run. */
void gateway_denied_keep(struct gateway *g, struct gateway_sandbox *s);

/* --- gateway_routes.c --- */

enum gateway_auth {
    GATEWAY_AUTH_REGION = 1, /* the region's secret, or a peer's uid */
    GATEWAY_AUTH_PROCESS,    /* the process credential, on either listener */
    GATEWAY_AUTH_OPEN,       /* anybody: says nothing that is worth hiding */
};
extern const struct route_table gateway_route_table;
http_auth_fn gateway_authenticate;

/* --- counters --- */

enum {
    GATEWAY_M_OPERATIONS,
    GATEWAY_M_EXECUTIONS,
    GATEWAY_M_STRAYS,
    GATEWAY_M_ADOPTED,
    GATEWAY_M_LOST,
    GATEWAY_M_MOUNTS_LOST,
    GATEWAY_M_MOUNTS_MENDED,
    GATEWAY_M_MOUNTS_DEAD,
    GATEWAY_M_SANDBOXES,
    GATEWAY_M_WARM,
    GATEWAY_M_RUNNING,
    GATEWAY_M_OUTPUT,
    GATEWAY_M_DENIED,
    GATEWAY_M_READY,
    GATEWAY_M_DELETE,
};
extern const struct metrics_def gateway_metrics[];
extern const size_t gateway_metrics_count;

#endif
