/* The Authorization header and what is in it; a list's cursor; one query parameter. */

#include <stdlib.h>
#include <string.h>

#include "api/cursor.h"
#include "api/fields.h"
#include "api/token.h"
#include "base/json.h"
#include "fuzz.h"

static void header(const char *text)
{
    enum api_token_kind kind = API_TOKEN_NONE;
    const char *token = NULL;
    size_t len = 0;

    if (!api_token_from_header(text, &token, &len))
        return;
    if (len == 0 || token < text || token + len > text + strlen(text))
        abort();
    if (api_token_parse(token, len, &kind) &&
        (kind <= API_TOKEN_NONE || kind >= API_TOKEN_KIND_COUNT))
        abort();
}

/* What parses is what we would have written. */
static void cursor(const char *text)
{
    struct api_cursor c, again;
    struct arena *a = arena_new();

    if (api_cursor_parse(text, &c) &&
        (!api_cursor_parse(api_cursor_text(a, &c), &again) || c.created_ms != again.created_ms ||
         strcmp(c.id, again.id) != 0))
        abort();
    arena_free(a);
}

static void query(char *text)
{
    char *value = strchr(text, '=');
    json_t *args = json_object();
    struct sbx_err err = { 0 };

    if (value != NULL) {
        *value++ = '\0';
        if (api_schema_add_query(&API_SANDBOXES_QUERY, args, text, value, &err) != SBX_OK &&
            err.code != SBX_E_INVALID)
            abort();
    }
    json_decref(args);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    if (text == NULL)
        abort();
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    header(text);
    cursor(text);
    query(text);
    free(text);
    return 0;
}
