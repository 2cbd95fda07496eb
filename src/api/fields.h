#ifndef API_FIELDS_H
#define API_FIELDS_H

/* Every request and answer of the API as field tables (seed: the field tables of
 * each operation; contract 2 to 5 for bounds and our additions). */

#include "api/schema.h"

/* Objects of answers. */
extern const struct api_schema API_SANDBOX, API_TEMPLATE, API_REVISION, API_RESOURCES, API_VOLUME;

/* Requests: bodies, and query strings where the name ends in _QUERY. */
extern const struct api_schema API_SANDBOX_CREATE, API_SANDBOXES_QUERY, API_SANDBOX_QUERY,
    API_SANDBOX_TERMINATE, API_SANDBOX_PAUSE, API_SANDBOX_RESUME, API_EXECUTE;
extern const struct api_schema API_TEMPLATES_QUERY, API_TEMPLATE_QUERY, API_TEMPLATE_SAVE,
    API_REVISION_CREATE;
extern const struct api_schema API_VOLUMES_QUERY, API_VOLUME_QUERY, API_VOLUME_CREATE,
    API_VOLUME_NAMED;

/* Answers. */
extern const struct api_schema API_SANDBOX_CREATED, API_SANDBOX_ANSWER, API_SANDBOXES_ANSWER,
    API_EXECUTE_ANSWER, API_TEMPLATE_ANSWER, API_TEMPLATES_ANSWER, API_TEMPLATE_SAVED,
    API_REVISION_CREATED, API_VOLUME_ANSWER, API_VOLUMES_ANSWER, API_ERROR_ANSWER;

#endif
