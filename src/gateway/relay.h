#ifndef GATEWAY_RELAY_H
#define GATEWAY_RELAY_H

/* The gateway's end of the agent channel (sbx/agent.h), for all sandboxes: one thread,
 * one epoll.  Executions are multiplexed on each sandbox's CONTROL connection; calls of
 * this header come from any thread and never wait for an agent, except where they say so.
 *
 * Bounds: executions in all and for each sandbox, bytes of output held (one budget for
 * all), connections that have not said HELLO yet, bytes waiting to be sent. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/id.h"
#include "gateway/driver.h"
#include "sbx/agent.h"
#include "sbx/error.h"

struct relay;

/* Told on the relay's thread; must not block.  They may call back into the relay. */
struct relay_events {
    /* The agent said READY (again after a redial). */
    void (*ready)(void *arg, const char *id);
    /* The agent has its settings: calls to it are possible, executions not yet. */
    void (*connected)(void *arg, const char *id);
    /* The command could not be started or ended at once; message is for a person. */
    void (*failed)(void *arg, const char *id, const char *message);
    /* An execution ended whose gateway or connection of its start is gone; may wait for the disk.
     */
    void (*ended)(void *arg, const char *id, const char *execution_id, int exit_code, int signal);
    /* A process inside asks for the egress proxy: a connected socket, or an error. */
    enum sbx_code (*dial_proxy)(void *arg, const char *id, int *out, struct sbx_err *err);
    void *arg;
};

struct relay_config {
    struct relay_events events;
    size_t executions_max;
    size_t executions_per_sandbox;
    size_t output_budget; /* bytes */
    int ping_interval_ms;
    int silence_timeout_ms;
    int redial_timeout_ms;
};

MUST_USE enum sbx_code relay_start(const struct relay_config *config, struct relay **out,
                                   struct sbx_err *err);
/* Ends the thread and answers what is under way with SBX_E_UNAVAILABLE; no event comes after this.
 * Calls stay allowed and find nothing.  NULL is allowed. */
void relay_stop(struct relay *r);
void relay_free(struct relay *r); /* after relay_stop; NULL is allowed */

/* ---- sandboxes ---- */

struct relay_sandbox {
    const char *id;
    int listen_fd;                          /* taken, also on failure */
    const unsigned char *key;               /* SBX_AGENT_KEY_LEN bytes */
    bool welcomed;                          /* the agent has the key already (adopted) */
    const struct driver_workload *workload; /* NULL when adopted */
    bool personal;
    bool hold;
};

MUST_USE enum sbx_code relay_add(struct relay *r, const struct relay_sandbox *s,
                                 struct sbx_err *err);
/* Closes all of it; executions under way are answered with code and sentence.  Not there: fine. */
void relay_remove(struct relay *r, const char *id, enum sbx_code code, const char *sentence);
/* Has the agent said READY on a connection that is up? */
bool relay_is_ready(struct relay *r, const char *id);

/* ---- executions ---- */

struct relay_result {
    struct sbx_err err; /* SBX_OK: it ran, the rest is valid */
    int exit_code;
    int signal; /* 0: none */
    bool timed_out;
    struct buf out, err_out;       /* the first bytes of each stream */
    uint64_t out_bytes, err_bytes; /* all that was written */
    bool out_truncated, err_truncated;
    int64_t duration_ms;
    size_t charged; /* of the budget */
};

struct relay_execution {
    const char *id;
    const char *execution_id;
    const char *const *argv; /* NULL-ended */
    const char *const *env;  /* NULL-ended, NAME=value; NULL: none */
    const char *cwd;         /* NULL: the workload's */
    const char *input;       /* on standard input; NULL: none */
    size_t input_len;
    int64_t timeout_ms;
    size_t cap; /* bytes of each stream */
    /* Once, from any thread, when relay_execute has answered SBX_OK; takes the result. */
    void (*done)(void *arg, struct relay_result *result);
    void *arg;
};

/* SBX_E_BUSY (nothing was started), SBX_E_OPERATION_KNOWN, SBX_E_SANDBOX_NOT_FOUND,
 * SBX_E_TOO_LARGE.  done's codes: SBX_E_INVALID with a field, SBX_E_PATH_ESCAPE,
 * SBX_E_AGENT_UNREACHABLE, SBX_E_BUSY, SBX_E_SANDBOX_NOT_READY, SBX_E_PERSONAL_RUNTIME, and
 * relay_remove's. */
MUST_USE enum sbx_code relay_execute(struct relay *r, const struct relay_execution *e,
                                     struct sbx_err *err);
void relay_result_free(struct relay *r, struct relay_result *result); /* gives the budget back */
/* Ids of what runs in it, in the arena, NULL-ended. */
const char **relay_executions(struct relay *r, const char *id, struct arena *a);
/* Ends one: SIGKILL for its whole tree.  False: it is not known. */
bool relay_kill(struct relay *r, const char *id, const char *execution_id);

/* ---- calls that wait for the agent ---- */

/* Sends one frame on CONTROL and waits for its DONE. payload is a list of fields.  What DATA frames
 * came before DONE is appended to data (may be NULL). SBX_E_AGENT_UNREACHABLE, SBX_E_TIMEOUT; a
 * DONE with a REASON is SBX_E_CONFLICT with *reason set and the agent's sentence. */
struct relay_call {
    const char *id;
    uint8_t type;
    const struct buf *payload; /* NULL: empty */
    int timeout_ms;
    struct buf *data;
    enum sbx_agent_reason reason; /* out */
    uint64_t bytes, members;      /* out, of DONE */
};
MUST_USE enum sbx_code relay_call(struct relay *r, struct relay_call *call, struct sbx_err *err);
/* One frame without payload that nothing answers (START).  False: the agent is not connected. */
bool relay_send(struct relay *r, const char *id, uint8_t type);
/* A BULK connection, blocking, the caller's: it sends its job on stream 0 and reads the answer. */
MUST_USE enum sbx_code relay_bulk(struct relay *r, const char *id, int timeout_ms, int *out,
                                  struct sbx_err *err);

struct relay_stats {
    size_t sandboxes, connected, executions, output_bytes, relays;
};
void relay_stats(struct relay *r, struct relay_stats *out);

/* ---- frames, for whoever speaks on a BULK connection ---- */

bool relay_put_field(struct buf *b, uint16_t tag, const void *data, size_t len);
bool relay_put_text(struct buf *b, uint16_t tag, const char *text);
bool relay_put_number(struct buf *b, uint16_t tag, uint64_t value);
/* Header and payload. */
bool relay_put_frame(struct buf *b, uint8_t type, uint32_t stream, const struct buf *payload);

#endif
