#ifndef REGION_GATEWAY_CLIENT_CALL_H
#define REGION_GATEWAY_CLIENT_CALL_H

/* Inside the gateway client: one call under way, and reading what came back. */

#include <pthread.h>
#include <stdatomic.h>

#include "region/gateway_client.h"

/* What a 2xx body has to be. */
enum region_answer_kind {
    REGION_ANSWER_SANDBOX = 1,
    REGION_ANSWER_LIST,
    REGION_ANSWER_GONE,
    REGION_ANSWER_SNAPSHOT,
    REGION_ANSWER_VOLUMES,
    REGION_ANSWER_JSON,
    REGION_ANSWER_EXECUTE, /* kept as bytes, counted in the budget */
    REGION_ANSWER_ANY,     /* the status alone */
};

struct region_endpoint {
    atomic_int refs;
    char *region;
    char *url; /* "http://gateway" on a socket */
    char *socket;
    char *ca_file;
    struct secret *secret;
};

struct gateway_client_output {
    struct gateway_client *client;
    struct buf body;
    size_t counted; /* bytes of the budget that it holds */
    struct gateway_client_output *next_waiting;
    uint64_t transfer; /* to be resumed; valid while it waits */
    bool waiting;
};

struct region_call {
    struct gateway_client *client;
    enum region_answer_kind kind;
    char id[ID_SIZE]; /* the sandbox asked about; "" for none */
    gateway_client_fn *done;
    void *arg;
    struct gateway_client_output *output; /* execute only */
    uint64_t transfer;
    bool execution;
};

struct region_request {
    const char *region;
    const char *method;
    const char *path;
    const json_t *body;          /* NULL: none */
    const struct secret *bearer; /* instead of the endpoint's; NULL: the endpoint's */
    enum region_answer_kind kind;
    const char *id; /* or NULL */
    int timeout_s;
    size_t answer_max;
    bool execution;
};

/* Starts it on the calls thread. */
MUST_USE enum sbx_code region_call_start(struct gateway_client *c, const struct region_request *req,
                                         gateway_client_fn *done, void *arg, struct sbx_err *err);
/* The endpoint by name, one reference more; NULL when there is none. */
struct region_endpoint *region_endpoint_take(struct gateway_client *c, const char *region);
void region_endpoint_give(struct region_endpoint *e); /* NULL is allowed */
struct net *region_net(struct gateway_client *c);
/* Fills spec's address and credential from e. url goes into out. */
MUST_USE enum sbx_code region_address(const struct region_endpoint *e, const char *path,
                                      struct buf *url, struct net_spec *spec, struct sbx_err *err);

/* Reads an answer into out; texts are borrowed from *json and a, which must outlive out. */
void region_answer_read(enum region_answer_kind kind, const char *id, const struct net_answer *got,
                        const struct sbx_err *err, struct arena *a, json_t **json,
                        struct gateway_client_answer *out);

/* The budget. */
enum net_take region_output_add(struct gateway_client_output *o, const void *data, size_t len);

#endif
