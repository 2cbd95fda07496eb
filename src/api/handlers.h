#ifndef API_HANDLERS_H
#define API_HANDLERS_H

/* Every handler, for the route tables. Internal to api. */

#include "api/call.h"

api_handler_fn api_sandbox_create, api_sandbox_get, api_sandbox_list, api_sandbox_terminate,
    api_sandbox_pause, api_sandbox_resume, api_sandbox_execute;
api_shape_fn api_sandbox_create_shape, api_cursor_shape, api_execute_shape,
    api_template_save_shape, api_revision_shape, api_token_shape, api_region_shape,
    api_backend_shape, api_issuer_shape;
api_handler_fn api_template_save, api_template_get, api_template_list, api_revision_create;
api_handler_fn api_volume_list, api_volume_get, api_volume_create, api_volume_remove,
    api_volume_restore;

/* The operator's. */
api_handler_fn api_account_create, api_account_list, api_account_show, api_account_entitle,
    api_account_quota, api_user_create, api_user_list, api_member_add, api_member_remove,
    api_member_list, api_token_create, api_token_list, api_token_revoke, api_app_create,
    api_app_list, api_issuer_add, api_issuer_link, api_issuer_remove, api_issuer_list;
api_handler_fn api_region_create, api_region_update, api_region_list, api_region_grant, api_region_deny,
    api_region_enable, api_region_disable, api_backend_create, api_backend_list,
    api_registry_create, api_registry_list, api_registry_remove, api_image_import, api_image_list,
    api_image_remove;
api_handler_fn api_admin_sandboxes, api_admin_terminate, api_admin_status, api_admin_why,
    api_admin_audit, api_admin_migrate, api_admin_doctor, api_admin_states;
route_body_fn api_image_body;

/* A status filter as a set: unknown names are ignored, none given is all. */
uint32_t api_statuses_of(const char *list);
struct store_sandboxes;
/* The cursor of what follows these rows, or NULL. */
const char *api_next_cursor(struct arena *a, const struct store_sandboxes *rows);
/* SBX_E_LIMIT_REACHED when there are `max` of them (0: no limit), `what` in words; data names the row
 * of [limits]. Requests of one moment may pass it together. */
MUST_USE enum sbx_code api_limit_held(struct api_call *c, const char *name, int max, int have,
                                      const char *what, struct sbx_err *err);

api_handler_fn api_openapi, api_ready;
route_fn api_health, api_metrics;

#endif
