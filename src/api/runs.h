#ifndef API_RUNS_H
#define API_RUNS_H

/* Personal Warren runs (seed, contract 6): what the owner's endpoints, the
 * orchestrator's endpoints and the recheck with GitHub share.  Internal to api. */

#include "api/call.h"
#include "reconcile/runs.h"
#include "store/runs.h"

extern const struct api_schema API_CONNECTIONS_QUERY, API_CONNECTION_SAVE, API_CONNECTION_SIGN_IN,
    API_CONNECTION_RESERVE, API_CONNECTION_NAMED, API_CONNECTION_ANSWER, API_CONNECTIONS_ANSWER,
    API_RESERVED, API_RUN_CLAIM, API_RUN_ANSWER, API_HOLDER_ANSWER, API_RUN_EMPTY,
    API_RUN_EXECUTION_START, API_RUN_EXECUTION_ANSWER, API_ADMIN_INSTALLATION_CREATE,
    API_ADMIN_INSTALLATION_NAMED, API_ADMIN_PRINCIPAL_CREATE;

/* The owner's. */
api_handler_fn api_connection_save, api_connection_list, api_connection_sign_in,
    api_connection_reserve, api_connection_reset;
/* The principal's. */
api_handler_fn api_run_claim, api_run_get, api_holder_post, api_holder_get, api_holder_delete,
    api_run_execution_post, api_run_execution_get;
/* The operator's. */
api_handler_fn api_installation_create, api_installation_suspend, api_installation_activate,
    api_installation_list, api_principal_create;

enum { API_RUN_ROUTE_COUNT = 12, API_RUN_ADMIN_ROUTE_COUNT = 5 };
extern const struct route API_RUN_ROUTES[API_RUN_ROUTE_COUNT];
extern const struct route API_RUN_ADMIN_ROUTES[API_RUN_ADMIN_ROUTE_COUNT];

json_t *api_render_connection(const struct store_connection *k);
json_t *api_render_run(const struct store_operation *op);
json_t *api_render_installation(const struct store_installation *i);
json_t *api_render_principal(const struct store_principal *p);

/* Seals text for a column of a row, in the call's arena. SBX_E_UNAVAILABLE: no key is configured.
 */
MUST_USE enum sbx_code api_seal(struct api_call *c, const char *column, const char *row_id,
                                const char *text, struct store_bytes *out, struct sbx_err *err);

/* Asks GitHub with the connection's credential, deferred, then runs `then` on a worker with a fresh
 * c->db, or ends the call with the refusal. The handler returns what this returns. */
MUST_USE enum sbx_code api_recheck(struct api_call *c, const struct store_connection *k,
                                   const char *repository, api_then_fn *then, struct sbx_err *err);

/* Is the owner still a member with a writing role, the installation active?
 * SBX_E_OWNER_ACCESS_LOST. */
MUST_USE enum sbx_code api_run_owner_ok(struct api_call *c, const struct store_operation *op,
                                        struct sbx_err *err);

/* The run that the path names, of the caller's installation. SBX_E_RUN_NOT_FOUND. */
MUST_USE enum sbx_code api_run_find(struct api_call *c, struct store_operation *out,
                                    struct sbx_err *err);

#endif
