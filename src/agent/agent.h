#ifndef AGENT_AGENT_H
#define AGENT_AGENT_H

/* The agent's one process: one thread, one place to wait (loop.c). */

#include "agent/frame.h"
#include "agent/warden.h"
#include <sbx/agent.h>
#include <sys/types.h>

enum {
    AGENT_ENV_MAX = 4096,     /* variables of WELCOME */
    AGENT_GROUPS_MAX = 256,   /* supplementary groups */
    AGENT_ID_MAX = 64,        /* an EXEC_ID */
    AGENT_SETTLE_MS = 50,     /* a command that ends within it ended at once, unless */
    AGENT_LOOK_MS = 3,        /* one of the looks taken so often finds all of it asleep */
    AGENT_LOOK_AGAIN_MS = 1,  /* and a second one, so much later, too */
    AGENT_WELCOME_MS = 10000, /* HELLO to WELCOME */
    AGENT_REDIAL_MIN_MS = 20, /* after a lost connection, doubled up to */
    AGENT_REDIAL_MAX_MS = 1000,
    AGENT_KILL_GRACE_MS = 10000,   /* from a kill to EXIT, if a process hangs in the file system */
    AGENT_DRAIN_MAX = 1024 * 1024, /* what a pipe can hold at most when its writers are gone */
    AGENT_KEY_PAGE = 4096,         /* the key has a page of its own */
    AGENT_QUEUE_MAX = 4 * SBX_AGENT_BACKLOG_MAX, /* control frames pass the soft backlog */
};

enum agent_stream { AGENT_STDOUT, AGENT_STDERR, AGENT_STREAMS };

struct agent_output {
    int fd;      /* -1: closed */
    bool paused; /* not watched: the gateway is slow */
    uint64_t cap, total;
};

struct agent_exec {
    uint32_t serial; /* 0: free */
    uint32_t stream; /* 0: of an earlier connection */
    bool gone;       /* its EXIT waits for a connection */
    bool told;       /* EXIT was sent although the tree is not gone yet: GONE frees the slot */
    bool leaving;    /* told, and nothing but its init is left: it takes no place */
    bool started, refused, ended, timed_out;
    uint32_t exit_code, signal;
    uint64_t began_ms, ended_ms;
    uint64_t deadline_ms; /* UINT64_MAX: none */
    uint64_t given_up_ms; /* after a kill: when EXIT is sent at the latest; else UINT64_MAX */
    struct agent_output out[AGENT_STREAMS];
    char id[AGENT_ID_MAX + 1];
};

enum agent_command_state {
    AGENT_COMMAND_HELD, /* no WELCOME yet, or HOLD */
    AGENT_COMMAND_STARTING,
    AGENT_COMMAND_SETTLING,
    AGENT_COMMAND_RUNNING, /* or there is none */
    AGENT_COMMAND_ENDED,
    AGENT_COMMAND_FAILED,
};

/* The template's command and what every process of the workload gets. */
struct agent_workload {
    bool known; /* WELCOME came */
    uint32_t uid, gid;
    uint32_t groups[AGENT_GROUPS_MAX];
    size_t group_count;
    uint64_t nproc;
    bool proxy, personal;
    char *cwd, *workspace;
    struct agent_request request; /* WELCOME's: command and environment point into payload */
    unsigned char *payload;
};

struct agent_command {
    enum agent_command_state state;
    uint32_t exit_code, signal;
    uint64_t look_ms, settled_ms; /* SETTLING: the next look; when it is over anyway */
    bool asleep;                  /* the last look found it so */
    char message[256];
};

enum agent_link { AGENT_LINK_DOWN, AGENT_LINK_HELLO, AGENT_LINK_UP };

struct agent_control {
    int fd;
    enum agent_link state;
    bool want_write;
    uint64_t due_ms; /* DOWN: dial; HELLO: give up */
    uint64_t backoff_ms;
    unsigned char header[SBX_AGENT_HEADER_LEN];
    size_t have; /* bytes of header and payload read so far */
    struct sbx_agent_header frame;
    unsigned char *payload;
    struct agent_queue queue;
};

struct agent_stopped {
    pid_t pid, group;
};

struct agent {
    int epoll, signals, null;
    int proc; /* the folder /proc as the agent sees it */
    struct agent_warden warden;
    struct agent_workload workload;
    struct agent_command command;
    struct agent_control control;
    struct agent_exec execs[AGENT_EXEC_SLOTS];
    uint32_t last_serial;
    bool confined; /* the warden has its mounts and limits */
    bool frozen;
    struct agent_stopped *stopped; /* while frozen: what its owner had stopped before */
    size_t stopped_count;
    pid_t bulk[SBX_AGENT_BULK_MAX]; /* 0: free */
    pid_t relay;                    /* 0: none */
    int private_dir;                /* -1: no holder of a personal run */
    bool has_key;
    unsigned char *key; /* a page of its own, which children drop first */
};

enum { AGENT_SERIAL_WARDEN = 0, AGENT_SERIAL_COMMAND = 1 };

/* What epoll events carry: a kind and, for outputs, execution and stream. */
enum agent_source {
    AGENT_SOURCE_CONTROL,
    AGENT_SOURCE_EVENTS,
    AGENT_SOURCE_SIGNALS,
    AGENT_SOURCE_OUT
};

uint64_t agent_now_ms(void);
bool agent_watch(struct agent *a, int fd, uint32_t events, enum agent_source kind, uint32_t index);

/* loop.c: events of the warden that wait, at once. */
void agent_read_events(struct agent *a);

/* In a child of the agent that keeps its key: away with the rest. */
void agent_close_inherited(struct agent *a);

/* control.c: the connection.  Losing it detaches executions and thaws. */
void agent_control_init(struct agent *a);
uint64_t agent_control_due(const struct agent *a);
void agent_control_tick(struct agent *a, uint64_t now_ms);
void agent_control_event(struct agent *a, uint32_t events);
/* Sends what waits as far as it goes; called once for each turn of the loop. */
void agent_control_flush(struct agent *a);
/* A connected socket that has said HELLO, -1 with errno.  flags: SOCK_NONBLOCK or 0. */
int agent_dial(struct agent *a, enum sbx_agent_kind kind, uint64_t dial_id, int flags);
void agent_done(struct agent *a, uint32_t stream, enum sbx_agent_reason reason,
                const char *message);

/* handlers.c: one for each frame of the gateway.  False ends the connection. */
bool agent_handle(struct agent *a, uint8_t type, uint32_t stream, const unsigned char *payload,
                  size_t len);

/* workload.c: settings out of WELCOME, the environment of a process. */
bool agent_workload_set(struct agent *a, unsigned char *payload_take, size_t len) MUST_USE;
/* Defaults, WELCOME's and `over`, by name; the spans borrow from `home_out` (PATH_MAX bytes). */
struct agent_span *agent_workload_env(const struct agent *a, uint32_t uid,
                                      const struct agent_list *over, char *home_out,
                                      size_t *count_out) MUST_USE;

/* command.c: the template's command. */
void agent_command_start(struct agent *a);
void agent_command_event(struct agent *a, const struct agent_event *e);
void agent_command_announce(struct agent *a); /* READY, FAILED, ENDED as they stand */
uint64_t agent_command_due(const struct agent *a);
void agent_command_tick(struct agent *a, uint64_t now_ms);

/* freeze.c: false: they did not all stand still in time, and go on. */
bool agent_freeze(struct agent *a) MUST_USE;
void agent_thaw(struct agent *a);
/* Every thread of the workload waits for something. */
bool agent_asleep(struct agent *a) MUST_USE;

/* bulk.c: jobs on connections of their own. */
void agent_bulk_dial(struct agent *a, uint32_t stream, const struct agent_request *r);
void agent_bulk_reaped(struct agent *a, pid_t pid);

/* relay.c: the proxy's address inside. */
bool agent_relay_start(struct agent *a) MUST_USE;

/* files.c: private files. */
bool agent_files_init(struct agent *a) MUST_USE;
void agent_files_put(struct agent *a, uint32_t stream, const struct agent_request *r);
void agent_files_get(struct agent *a, uint32_t stream, const struct agent_request *r);

/* exec.c: executions. */
void agent_exec_request(struct agent *a, uint32_t stream, const struct agent_request *r);
void agent_exec_event(struct agent *a, const struct agent_event *e);
void agent_exec_output(struct agent *a, uint32_t index);
/* Some EXEC has neither started nor been refused. */
bool agent_exec_starting(const struct agent *a);
void agent_exec_kill(struct agent *a, uint32_t stream, struct agent_span id);
void agent_exec_list(struct agent *a, uint32_t stream);
void agent_exec_detach_all(struct agent *a);
void agent_exec_flush_exits(struct agent *a);
void agent_exec_resume_all(struct agent *a);
uint64_t agent_exec_due(const struct agent *a);
void agent_exec_tick(struct agent *a, uint64_t now_ms);

/* The whole program; returns its exit code. */
int agent_main(void);

#endif
