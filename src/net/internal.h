#ifndef NET_INTERNAL_H
#define NET_INTERNAL_H

/* One transfer, on the calls thread or on the thread of a blocking caller. */

#include <curl/curl.h>

#include "base/buf.h"
#include "net/net.h"

enum {
    NET_HEADERS_MAX = 64,
    NET_HEADER_BYTES_MAX = 32 * 1024, /* of one answer; more are dropped */
    NET_ANSWER_DEFAULT = 1024 * 1024,
    NET_CONNECT_DEFAULT_MS = 5000,
    NET_TIMEOUT_DEFAULT_MS = 30000,
    NET_RECEIVE_BUFFER = 8192,
};

struct transfer {
    struct arena *arena; /* of the copies; NULL when the caller's memory is used as it is */
    struct net_spec spec;
    CURL *easy;
    struct curl_slist *headers;
    int redirects;
    bool sent;
    int status;
    struct buf body;
    size_t streamed;
    struct buf head; /* "name\0value\0" */
    size_t head_count;
    struct sbx_err failed; /* why a callback gave up */
    int64_t started_ms;
    struct net_header *header_view; /* made with the outcome */

    /* calls thread only */
    net_done_fn *done;
    void *done_arg;
    uint64_t id;
    struct transfer *next; /* pending list */
    struct transfer *bucket_next;
};

/* Checks the spec and makes the handle; spec must outlive the transfer unless copied. */
MUST_USE enum sbx_code net_transfer_init(struct transfer *t, const struct net_config *config,
                                         const struct net_spec *spec, struct sbx_err *err);
void net_transfer_fini(struct transfer *t);
/* Copies what spec points to into t->arena. */
void net_transfer_copy(struct transfer *t, const struct net_spec *spec, struct net_spec *copy);
/* True when the answer is a redirect that is to be followed: the handle is set to go again. */
bool net_transfer_again(struct transfer *t, CURLcode rc);
/* The outcome; *answer borrows from t. */
enum sbx_code net_transfer_result(struct transfer *t, CURLcode rc, struct net_answer *answer,
                                  struct sbx_err *err);
void net_global_init(void);

#endif
