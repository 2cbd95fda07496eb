#ifndef GATEWAY_RELAY_IMPL_H
#define GATEWAY_RELAY_IMPL_H

/* What the relay's files share.
 *
 * One lock guards everything; it is held for memory work and non-blocking sends only.
 * What ends under it is gathered in a `finished` list and told after it is released.
 * Objects that epoll may still name are marked dead and freed by the relay's thread
 * between two rounds. */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/id_map.h"
#include "base/thread.h"
#include "gateway/relay.h"
#include "gateway/tunnel.h"

enum {
    RELAY_TICK_MS = 250,
    RELAY_HELLO_MS = 10000,           /* from accept to HELLO */
    RELAY_PENDING_MAX = 16,           /* connections of one sandbox before HELLO */
    RELAY_OUT_MAX = 64 * 1024 * 1024, /* bytes waiting to be sent on one connection */
    RELAY_READ_MAX = 256 * 1024,      /* read from one connection in one round */
    RELAY_RECENT = 64,                /* execution ids of a sandbox that are remembered */
    RELAY_FOREIGN_MAX = 256,          /* executions of an earlier gateway's life */
    RELAY_START_ROOM = 64 * 1024,     /* of the budget that must be free to start an execution */
};

enum relay_source { RELAY_SOURCE_WAKE, RELAY_SOURCE_LISTEN, RELAY_SOURCE_CONN };

enum relay_conn_kind {
    RELAY_CONN_PENDING, /* no HELLO yet */
    RELAY_CONN_CONTROL,
    RELAY_CONN_TUNNEL_HELLO, /* said HELLO, RELAY comes */
};

struct relay_box;

struct relay_conn {
    enum relay_source source; /* first: what epoll's pointer is */
    struct relay_box *box;
    struct relay_conn *next, *prev; /* of the box */
    struct relay_conn *grave;
    enum relay_conn_kind kind;
    bool dead;
    int fd;
    uint32_t events; /* what epoll watches */
    struct buf in, out;
    int64_t opened_ms, heard_ms, pinged_ms;
};

struct relay_exec {
    struct relay_exec *next;
    char id[ID_SIZE];
    uint32_t stream;
    size_t cap;
    int64_t deadline_ms; /* the gateway's own: past the agent's, or for the redial */
    int64_t timeout_ms;
    bool sent;
    struct buf frame; /* until sent */
    struct relay_result result;
    void (*done)(void *arg, struct relay_result *result);
    void *arg;
};

struct relay_pending_call {
    struct relay_pending_call *next;
    struct relay_call *call;
    uint32_t stream;
    bool done;
    struct sbx_err err;
    uint64_t dial_id; /* of a BULK request, else 0 */
    int fd;           /* its connection */
};

struct relay_box {
    enum relay_source source; /* first */
    struct relay_box *grave;
    char id[ID_SIZE];
    bool dead;
    int listen_fd;
    unsigned char key[SBX_AGENT_KEY_LEN];
    bool welcomed, ready, was_ready;
    struct buf settings; /* fields of WELCOME; empty when adopted */
    struct relay_conn *conns, *control;
    size_t pending;
    struct relay_exec *execs;
    size_t exec_count;
    struct relay_pending_call *calls;
    uint32_t next_stream;
    uint32_t list_stream; /* of the LIST that is under way */
    char recent[RELAY_RECENT][ID_SIZE];
    size_t recent_at;
    char (*foreign)[ID_SIZE];
    size_t foreign_count;
};

enum relay_event {
    RELAY_TOLD_CONNECTED,
    RELAY_TOLD_READY,
    RELAY_TOLD_FAILED,
    RELAY_TOLD_ENDED,
    RELAY_TOLD_TUNNEL
};

/* Events to tell once the lock is free. */
struct relay_told {
    struct relay_told *next;
    enum relay_event what;
    char id[ID_SIZE];
    char message[DRIVER_REASON_SIZE];
    struct relay_conn *conn;    /* TUNNEL */
    char execution_id[ID_SIZE]; /* ENDED */
    int exit_code, signal;
};

struct relay {
    enum relay_source wake_source;
    struct relay_config config;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a call ended */
    struct thread thread;
    int epoll, wake;
    bool stopping;
    struct id_map boxes;
    struct relay_conn *grave;
    struct relay_box *box_grave;
    size_t executions, output, calls, pending;
    uint64_t next_dial;
    struct tunnels *tunnels;
    struct relay_told *told;
};

/* relay_conn.c; all under the lock */
void relay_accept(struct relay *r, struct relay_box *box);
void relay_conn_event(struct relay *r, struct relay_conn *c, uint32_t events,
                      struct relay_exec **finished);
/* False: the connection broke and is closed. */
bool relay_conn_send(struct relay *r, struct relay_conn *c, const struct buf *frame,
                     struct relay_exec **finished);
void relay_conn_close(struct relay *r, struct relay_conn *c, struct relay_exec **finished);
/* proxy_fd is taken. */
void relay_tunnel_open(struct relay *r, struct relay_conn *c, int proxy_fd);
void relay_tell_ended(struct relay *r, const struct relay_box *box, const char *execution_id,
                      int exit_code, int signal);
void relay_tell(struct relay *r, const struct relay_box *box, enum relay_event what,
                const char *message, struct relay_conn *conn);

/* relay_exec.c; all under the lock */
void relay_frame(struct relay *r, struct relay_conn *c, const struct sbx_agent_header *h,
                 const unsigned char *payload, struct relay_exec **finished);
/* Sends what waited for READY. */
void relay_exec_flush(struct relay *r, struct relay_box *box, struct relay_exec **finished);
/* Ends all of a box: those that were sent, or all. */
void relay_exec_end_all(struct relay *r, struct relay_box *box, bool sent_only, enum sbx_code code,
                        const char *sentence, struct relay_exec **finished);
void relay_calls_end_all(struct relay *r, struct relay_box *box, enum sbx_code code,
                         const char *sentence);
void relay_exec_tick(struct relay *r, struct relay_box *box, int64_t now,
                     struct relay_exec **finished);

/* Without the lock: calls done for each and frees them. */
void relay_finish(struct relay_exec *finished);

#endif
