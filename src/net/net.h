#ifndef NET_NET_H
#define NET_NET_H

/* An HTTP client over libcurl: one "calls" thread drives ten thousand transfers.
 * Shared by sandboxd (gateways, GitHub, JWKS, object storage), the gateway and ctl. */

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/secret.h"
#include "sbx/error.h"

struct net;

struct net_config {
    const char *user_agent; /* NULL: "sandboxd/<version>" */
    const char *ca_file;    /* trust anchors beside the system's; NULL: the system's */
    unsigned idle_max;      /* kept idle connections; 0: 256 */
    size_t transfers_max;   /* under way; 0: 20000; past it SBX_E_BUSY */
};

/* How far a call came: retries depend on it. */
enum net_phase {
    NET_NOT_SENT = 0, /* no byte of the request left: it has no effect at the peer */
    NET_SENT,         /* it may have taken effect */
    NET_ANSWERED,     /* a status line came */
};

/* AWS signature version 4 for object storage. net signs; the query must come sorted and encoded as
 * RFC 3986 says, keys without a value as "key=" (libcurl 7.88 signs nothing else right). */
struct net_sigv4 {
    const char *region;  /* "us-east-1" */
    const char *service; /* "s3" */
    const char *access_key;
    const struct secret *secret_key;
};

enum net_take {
    NET_GIVE_UP = 0, /* ends the transfer: SBX_E_INTERNAL */
    NET_TOOK,
    NET_WAIT, /* took nothing: the same bytes come again after net_resume; the peer is held back */
};
/* A piece of the answer's body, on the calls thread; must not block. */
typedef enum net_take net_data_fn(void *arg, int status, const void *data, size_t len);
/* The next piece of the request's body: bytes written to `to` (1..max), 0 at its end, -1 to give
 * up.  On the calls thread; may read a local file, not wait for anybody. */
typedef ssize_t net_read_fn(void *arg, void *to, size_t max);

/* All that is pointed to is copied by net_request_start, except the callbacks' args. Zero is the
 * default. */
struct net_spec {
    const char *method;          /* NULL: GET */
    const char *url;             /* http:// or https:// */
    const char *unix_path;       /* connect to this socket; the url gives Host and path */
    const char *const *headers;  /* "Name: value", NULL-ended */
    const struct secret *bearer; /* Authorization: Bearer ...; never logged */
    const struct net_sigv4 *sigv4;
    const char *ca_file; /* instead of the config's */
    const void *body;
    size_t body_len;
    net_read_fn *read_body; /* instead of body */
    void *read_arg;
    int64_t read_size;    /* -1: chunked */
    net_data_fn *on_data; /* instead of keeping the answer's body (a 2xx's; others are kept) */
    void *data_arg;
    size_t answer_max;      /* bytes kept, or given to on_data; 0: 1 MiB; past it SBX_E_TOO_LARGE */
    int connect_timeout_ms; /* 0: 5 s */
    int timeout_ms;         /* in all; 0: 30 s */
    int stall_timeout_ms;   /* no byte either way; 0: none */
    int receive_buffer;     /* bytes, from 1024; 0: 8192 */
    int redirects;          /* at most so many, on the same scheme and host; 0: none */
    const atomic_bool *give_up; /* of net_request: when it becomes true the call ends within a
                                 * second, SBX_E_UNAVAILABLE; NULL: never */
};

struct net_header {
    const char *name; /* as sent */
    const char *value;
};

/* Valid during the callback only, or as long as the arena for net_request. */
struct net_answer {
    enum net_phase phase;
    int status;       /* 0 when none came */
    const char *body; /* NUL-ended past len */
    size_t body_len;
    const struct net_header *headers; /* of the last answer, at most 64 */
    size_t header_count;
    int64_t took_ms;
};
/* First value, name in any case, or NULL. */
const char *net_header(const struct net_answer *answer, const char *name);

/* Ends exactly once for each started request, on the calls thread: must not block.  err is NULL
 * when an answer came, of whatever status. Otherwise: SBX_E_UNAVAILABLE (no connection, or it
 * broke), SBX_E_TIMEOUT, SBX_E_TOO_LARGE, SBX_E_CONFLICT (cancelled), SBX_E_INTERNAL (a callback
 * gave up). answer->phase is valid in every case. */
typedef void net_done_fn(void *arg, const struct net_answer *answer, const struct sbx_err *err);

MUST_USE enum sbx_code net_start(const struct net_config *config, struct net **out,
                                 struct sbx_err *err);
/* Cancels what is under way (each done runs, SBX_E_UNAVAILABLE), joins. NULL is allowed. */
void net_stop(struct net *n);

/* Any thread. id (may be NULL) names the request for net_cancel. SBX_E_INVALID for a bad url,
 * SBX_E_BUSY past the ceiling, SBX_E_UNAVAILABLE when stopping; done then never runs. */
MUST_USE enum sbx_code net_request_start(struct net *n, const struct net_spec *spec,
                                         net_done_fn *done, void *arg, uint64_t *id,
                                         struct sbx_err *err);
/* Goes on with a transfer whose on_data said NET_WAIT; no harm for any other. Any thread. */
void net_resume(struct net *n, uint64_t id);
/* done runs with SBX_E_CONFLICT unless it already has or is about to. Any thread. */
void net_cancel(struct net *n, uint64_t id);

/* Blocks the caller, on its own handle (n may be NULL); callbacks of spec run on the caller's
 * thread. Not from the calls thread. Codes as net_done_fn; *out is set in every case (phase). */
MUST_USE enum sbx_code net_request(struct net *n, const struct net_spec *spec, struct arena *a,
                                   struct net_answer *out, struct sbx_err *err);

/* Appends text as a query value or path segment, encoded as RFC 3986 says; slash kept if asked. */
bool net_url_escape(struct buf *b, const char *text, bool keep_slash);

#endif
