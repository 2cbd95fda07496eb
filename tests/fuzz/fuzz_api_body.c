/* A request body: the JSON codec, then the field table that the first byte picks. What is refused
 * is named in valid UTF-8, and what is taken can be written again. */

#include <stdlib.h>
#include <string.h>

#include "api/fields.h"
#include "api/options.h"
#include "base/json.h"
#include "base/str.h"
#include "fuzz.h"
#include "sbx/limits.h"

static const struct api_schema *const SCHEMAS[] = {
    &API_SANDBOX_CREATE, &API_EXECUTE,       &API_REVISION_CREATE, &API_TEMPLATE_SAVE,
    &API_SANDBOX_PAUSE,  &API_VOLUME_CREATE, &API_SANDBOXES_QUERY, &API_TEMPLATES_QUERY,
};

static void check(const struct api_schema *schema, const json_t *body)
{
    struct api_bounds bounds;
    struct sbx_err err = { 0 };
    struct buf b = BUF_INIT((size_t)8 * SBX_BODY_MAX);

    api_bounds_default(&bounds);
    if (api_schema_check(schema, &bounds, body, &err) == SBX_OK) {
        if (!json_write(&b, body))
            abort();
    } else if (err.code != SBX_E_INVALID || err.field[0] == '\0' ||
               !utf8_valid(err.field, strlen(err.field))) {
        abort();
    }
    buf_fini(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sbx_err err = { 0 };
    json_t *body = NULL;

    if (size == 0)
        return 0;
    if (json_parse_object(data + 1, size - 1, &body, &err) == SBX_OK)
        check(SCHEMAS[data[0] % COUNT_OF(SCHEMAS)], body);
    else if (err.code != SBX_E_INVALID || err.msg[0] == '\0')
        abort();
    json_decref(body);
    return 0;
}
