#ifndef RECONCILE_CALLS_H
#define RECONCILE_CALLS_H

/* The core's region calls, made through the gateway client: what a deploy needs beside
 * the row (revision, registry and storage credentials) is read and unsealed here.
 * Starts on the reconciler's thread; answers come on the calls thread. */

#include "base/seal.h"
#include "reconcile/core.h"

struct reconcile_calls;

struct reconcile_calls_config {
    struct gateway_client *gateways;
    struct store_conn *db; /* the reconciler's own */
    const struct seal_keys *keys;
    int disk_mb;
    /* Takes the answer; on the calls thread, under a lock of ours: must only put it away. Never
     * runs after reconcile_calls_free. */
    void (*on_answer)(void *arg, struct reconcile_answer *answer);
    void *arg;
};

struct reconcile_calls *reconcile_calls_new(const struct reconcile_calls_config *config);
void reconcile_calls_free(struct reconcile_calls *c); /* NULL is allowed */
extern const struct reconcile_region_ops RECONCILE_CALLS;

/* Reads the regions, tells the gateway client their endpoints and forgets cached credentials.
 * names: in a. */
MUST_USE enum sbx_code reconcile_calls_regions(struct reconcile_calls *c, struct arena *a,
                                               const char *const **names, size_t *count,
                                               struct sbx_err *err);

#endif
