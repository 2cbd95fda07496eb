#include "api/call.h"

/* What the caller may do in one account. */

enum sbx_code api_access_get(struct api_call *c, struct sbx_err *err)
{
    return store_access_get(c->db, c->account_id, c->caller->user_id, c->a, &c->access, err);
}
