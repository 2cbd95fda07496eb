#include "api/fields_admin.h"
#include "api/fields_row.h"
#include "domain/worker_checkin.h"

/* The operator's calls on streams (contract 7). */

static const struct api_field STREAM_CREATE[] = {
    F_STR("streamId", REQ, 1, WORKER_STREAM_ID_MAX, "The stream's id in the path."),
    F_ID("ownerUserId", REQ, "The user whose stream it is; needs a subject to be checked in for."),
};
SCHEMA(API_ADMIN_STREAM_CREATE, "AdminStreamCreate", STREAM_CREATE);
static const struct api_field STREAM_NAMED[] = {
    F_STR("streamId", REQ, 1, WORKER_STREAM_ID_MAX, "Stream ID."),
};
SCHEMA(API_ADMIN_STREAM_NAMED, "AdminStreamNamed", STREAM_NAMED);
static const struct api_field STREAM_PAGE[] = {
    F_STR("after", OPT, 1, WORKER_STREAM_ID_MAX, "The last id of the page before."),
    F_INT("limit", OPT, 1, API_LIMIT_MAX, "Rows of the page."),
};
SCHEMA(API_ADMIN_STREAM_PAGE, "AdminStreamPage", STREAM_PAGE);
