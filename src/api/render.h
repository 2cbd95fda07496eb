#ifndef API_RENDER_H
#define API_RENDER_H

/* Rows of the store as the objects of answers: the seed's field names, absent values
 * left out (contract 1). The caller owns what is returned. Internal to api. */

#include "base/json.h"
#include "base/json_out.h"
#include "domain/resources.h"
#include "store/identity.h"
#include "store/places.h"
#include "store/sandboxes.h"
#include "store/templates.h"
#include "store/trail.h"
#include "store/volumes.h"

/* Defaults of a revision (contract 2). */
enum { API_VOLUME_MB_DEFAULT = 10240, API_SNAPSHOT_MB_DEFAULT = 2048 };

json_t *api_render_sandbox(const struct store_sandbox *s);
/* The same as text: the answers that are made most often. key: see base/json_out.h. */
void api_write_sandbox(struct json_out *o, const char *key, const struct store_sandbox *s);
json_t *api_render_template(const struct store_template *t);
json_t *api_render_revision(const struct store_revision *r);
json_t *api_render_resources(struct resources r);
json_t *api_render_volume(const struct store_volume *v);
json_t *api_render_account(const struct store_account *r);
json_t *api_render_user(const struct store_user *r);
json_t *api_render_member(const struct store_member *r);
json_t *api_render_token(const struct store_token *r);
json_t *api_render_app(const struct store_app *r);
json_t *api_render_region(const struct store_region *r);
json_t *api_render_backend(const struct store_backend *r);
json_t *api_render_registry(const struct store_registry *r);
json_t *api_render_issuer(const struct store_issuer *r);
json_t *api_render_audit(const struct store_audit *r);

/* "a,b" as ["a", "b"]; NULL gives NULL. */
json_t *api_render_list(const char *comma_separated);

#endif
