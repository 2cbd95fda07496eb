#include "base/json.h"

#include <assert.h>
#include <string.h>

#include "base/str.h"
#include "base/time.h"
#include "sbx/limits.h"

/* jansson recurses: the depth is checked before it sees the text. */
static bool depth_ok(const char *text, size_t len)
{
    int depth = 0;
    bool quoted = false;

    for (size_t i = 0; i < len; i++) {
        char c = text[i];

        if (quoted) {
            if (c == '\\')
                i++;
            else if (c == '"')
                quoted = false;
        } else if (c == '"') {
            quoted = true;
        } else if (c == '{' || c == '[') {
            if (++depth > SBX_JSON_DEPTH_MAX)
                return false;
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return true;
}

static enum sbx_code parse_object(const void *text, size_t len, size_t flags, json_t **out,
                                  struct sbx_err *err)
{
    json_error_t why;
    SCOPED_JSON json_t *j = NULL;

    if (!depth_ok(text, len))
        return err_set(err, SBX_E_INVALID, "The body is nested deeper than %d levels.",
                       SBX_JSON_DEPTH_MAX);
    if (!utf8_valid(text, len))
        return err_set(err, SBX_E_INVALID, "The body is not valid UTF-8.");
    j = json_loadb(text, len, JSON_REJECT_DUPLICATES | flags, &why);
    if (j == NULL) {
        if (json_error_code(&why) == json_error_duplicate_key)
            return err_set(err, SBX_E_INVALID, "The body has a duplicate key at line %d.",
                           why.line);
        if (json_error_code(&why) == json_error_null_character ||
            json_error_code(&why) == json_error_null_byte_in_key)
            return err_set(err, SBX_E_INVALID, "The body has a NUL character in a string.");
        if (json_error_code(&why) == json_error_numeric_overflow)
            return err_set(err, SBX_E_INVALID,
                           "The body has a number that is too large at line %d, column %d.",
                           why.line, why.column);
        return err_set(err, SBX_E_INVALID, "The body is not valid JSON at line %d, column %d.",
                       why.line, why.column);
    }
    if (!json_is_object(j))
        return err_set(err, SBX_E_INVALID, "The body must be a JSON object.");
    *out = STEAL(j);
    return SBX_OK;
}

enum sbx_code json_parse_object(const void *text, size_t len, json_t **out, struct sbx_err *err)
{
    return parse_object(text, len, 0, out, err);
}

enum sbx_code json_parse_object_nul(const void *text, size_t len, json_t **out, struct sbx_err *err)
{
    return parse_object(text, len, JSON_ALLOW_NUL, out, err);
}

static int write_part(const char *data, size_t len, void *arg)
{
    return buf_append(arg, data, len) ? 0 : -1;
}

bool json_write(struct buf *b, const json_t *j)
{
    return json_dump_callback(j, write_part, b, JSON_COMPACT | JSON_ENCODE_ANY) == 0;
}

const char *json_get_str(const json_t *j, const char *key, const char *dflt)
{
    const json_t *v = json_object_get(j, key);

    return json_is_string(v) ? json_string_value(v) : dflt;
}

int64_t json_get_int(const json_t *j, const char *key, int64_t dflt)
{
    const json_t *v = json_object_get(j, key);

    return json_is_integer(v) ? (int64_t)json_integer_value(v) : dflt;
}

bool json_get_bool(const json_t *j, const char *key, bool dflt)
{
    const json_t *v = json_object_get(j, key);

    return json_is_boolean(v) ? json_is_true(v) : dflt;
}

void json_put_new(json_t *j, const char *key, json_t *value)
{
    if (value != NULL)
        assert(json_object_set_new(j, key, value) == 0);
}

void json_put_str(json_t *j, const char *key, const char *value)
{
    if (value != NULL)
        json_put_new(j, key, json_string(value));
}

void json_put_int(json_t *j, const char *key, int64_t value)
{
    json_put_new(j, key, json_integer(value));
}

void json_put_bool(json_t *j, const char *key, bool value)
{
    json_put_new(j, key, json_boolean(value));
}

void json_put_true(json_t *j, const char *key, bool value)
{
    if (value)
        json_put_new(j, key, json_true());
}

void json_put_time(json_t *j, const char *key, int64_t unix_ms)
{
    char text[TIME_ISO_SIZE];

    if (unix_ms == 0)
        return;
    time_iso(unix_ms, text);
    json_put_new(j, key, json_string(text));
}

json_t *json_from_text(const char *text)
{
    json_t *j;

    if (text == NULL)
        return NULL;
    j = json_loads(text, JSON_DECODE_ANY, NULL);
    assert(j != NULL);
    return j;
}

const char **json_strings(struct arena *a, const json_t *j, size_t *count)
{
    size_t n = json_array_size(j);
    const char **out;

    if (!json_is_array(j))
        return NULL;
    out = arena_zalloc(a, (n + 1) * sizeof(*out));
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(j, i);

        if (!json_is_string(v))
            return NULL;
        out[i] = arena_strdup(a, json_string_value(v));
    }
    if (count != NULL)
        *count = n;
    return out;
}
