#ifndef API_API_H
#define API_API_H

/* The HTTP API of sandboxd: its route tables, who may call, the handlers behind
 * them.  sandboxd makes one `struct api`, gives it to the http server as owner and
 * hands it the notices of the store's listener. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "api/schema.h"
#include "base/buf.h"
#include "base/metrics.h"
#include "base/seal.h"
#include "http/server.h"
#include "reconcile/reconcile.h"
#include "reconcile/runs.h"
#include "region/gateway_client.h"
#include "store/store.h"

struct api;
struct net;

/* What is pointed to is borrowed and must outlive the api, except texts, which are copied. */
struct api_config {
    struct store_config store;
    struct net *net;                     /* JWKS */
    struct gateway_client *gateway;      /* executions and images */
    struct store_waker *waker;           /* the other control planes */
    const struct seal_keys *seal;        /* NULL: what must be sealed is refused */
    const struct secret *process_secret; /* of the regions' process path; NULL: on sockets */
    const char *github_url;              /* base, without a trailing slash */
    const char *github_ca_file;          /* NULL: net's */
    struct metrics *metrics;
    struct api_bounds bounds;
    const uid_t *admin_uids; /* beside root and our own */
    size_t admin_uid_count;
    int64_t output_max;     /* bytes kept of one stream of an execution */
    int64_t purge_delay_ms; /* of a removed volume */
    int64_t terminate_wait_ms;
    int account_templates, template_revisions, account_volumes; /* at most, 0: no limit */
    int token_cache_max; /* entries */
    int token_cache_s;   /* the longest life of an entry */
    int rate_per_s;      /* requests a second of one token, 0: no limit */
    int rate_burst;
    int account_requests; /* of one account under way at once, 0: no limit */
    const char *worker_issuer;    /* iss of the worker check-in's service tokens */
    const char *worker_keys_file; /* JWKS or PEM of that issuer, or */
    const char *worker_keys_url;  /* NULL both: check-ins answer 503 identity.unavailable */
    const char *spool_dir;        /* imported images wait here, unnamed */
};

MUST_USE enum sbx_code api_new(const struct api_config *config, struct api **out,
                               struct sbx_err *err);
/* Woken after a write; waited for by terminate, pause, resume. Before the server starts: the
 * reconciler's notices come to the api, so it is made later. */
void api_set_reconcile(struct api *api, struct reconcile *reconcile);
void api_set_runs(struct api *api, struct reconcile_runs *runs); /* likewise; NULL: off */
/* After the server's drain and before its stop: an answer of a region that comes later finds no
 * server any more. What it was for is settled by the reconciler, here or elsewhere. */
void api_detach(struct api *api);
/* The server must have stopped. NULL is allowed. */
void api_free(struct api *api);

/* For http_config: owner is the api. */
enum http_auth api_auth(void *owner, struct request *req, const struct route *route,
                        struct sbx_err *err);
void *api_worker_open(void *owner);
void api_worker_close(void *owner, void *worker);
void api_worker_settle(void *owner, void *worker);
void api_error(struct request *req, struct response *res, const struct sbx_err *err);

/* The tables of the two listeners. */
extern const struct route_table API_PUBLIC[], API_ADMIN[];
extern const size_t API_PUBLIC_COUNT, API_ADMIN_COUNT;

/* Each notice of the store's listener, on its thread: revocation, changed issuers. Never blocks. */
void api_notice(struct api *api, const struct store_notice *notice);

/* The database was reached and its schema fits: what /readyz says. Any thread. */
void api_set_ready(struct api *api, bool ready);
/* The limits of one token and of one account from now on, as in api_config. Any thread. */
void api_set_rate(struct api *api, int rate_per_s, int rate_burst, int account_requests);

/* docs/openapi.json and GET /openapi.json of the public API, from the route table and the schemas.
 */
void api_print_openapi(const struct api_bounds *bounds, struct buf *out);
/* docs/errors.md, from the error table. */
void api_print_errors(struct buf *out);

#endif
