#include "api/schema.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"

/* A path such as "ports[3].protocol"; longer ones are cut. */
enum { PATH_SIZE = 64 };

static const char *const TYPE_WORDS[] = {
    [API_T_UNSET] = "nothing",
    [API_T_STRING] = "a string",
    [API_T_INT] = "an integer",
    [API_T_BOOL] = "a boolean",
    [API_T_STRINGS] = "an array of strings",
    [API_T_OBJECT] = "an object",
    [API_T_OBJECTS] = "an array of objects",
    [API_T_STRING_MAP] = "an object of strings",
    [API_T_TIME] = "a time",
    [API_T_ANY] = "an object",
};

const char *api_type_words(enum api_type type)
{
    return TYPE_WORDS[type];
}

const struct api_field *api_schema_field(const struct api_schema *schema, const char *name)
{
    for (size_t i = 0; schema != NULL && i < schema->count; i++) {
        if (strcmp(schema->fields[i].name, name) == 0)
            return &schema->fields[i];
    }
    return NULL;
}

/* A name that came from the client: cut on a character border, so that it stays valid UTF-8. */
static void copy_name(char out[PATH_SIZE], const char *prefix, const char *name)
{
    size_t used = strlen(prefix);
    size_t len = strlen(name);

    (void)str_copy(out, PATH_SIZE, prefix);
    used = strlen(out);
    if (len > PATH_SIZE - 1 - used)
        len = utf8_cut(name, PATH_SIZE - 1 - used);
    memcpy(out + used, name, len);
    out[used + len] = '\0';
}

static void bounds_of(const struct api_field *f, const struct api_bounds *bounds, int64_t *min,
                      int64_t *max)
{
    *min = f->min;
    *max = f->max;
    if (f->bound != API_BOUND_NONE && bounds != NULL) {
        *min = bounds->of[f->bound].min;
        *max = bounds->of[f->bound].max;
    }
}

static bool type_fits(enum api_type type, const json_t *v)
{
    switch (type) {
    case API_T_STRING:
    case API_T_TIME:
        return json_is_string(v);
    case API_T_INT:
        return json_is_integer(v);
    case API_T_BOOL:
        return json_is_boolean(v);
    case API_T_STRINGS:
    case API_T_OBJECTS:
        return json_is_array(v);
    case API_T_OBJECT:
    case API_T_STRING_MAP:
    case API_T_ANY:
        return json_is_object(v);
    case API_T_UNSET:
        break;
    }
    return false;
}

static enum sbx_code wrong_type(const struct api_field *f, const char *path, struct sbx_err *err)
{
    return err_field(err, path, "%s must be %s.", path, TYPE_WORDS[f->type]);
}

static enum sbx_code check_string(const struct api_field *f, int64_t min, int64_t max,
                                  const json_t *v, const char *path, struct sbx_err *err)
{
    const char *text = json_string_value(v);

    if (min != 0 || max != 0) {
        int64_t n = (int64_t)utf8_count(text);

        if (n < min || n > max)
            return err_field(err, path, "%s must be %" PRId64 " to %" PRId64 " characters long.",
                             path, min, max);
    }
    if (f->text != NULL)
        return f->text(path, text, err);
    if (f->values == NULL)
        return SBX_OK;
    for (size_t i = 0; f->values[i] != NULL; i++) {
        if (strcmp(f->values[i], text) == 0)
            return SBX_OK;
    }
    {
        char list[160] = "";
        size_t used = 0;

        for (size_t i = 0; f->values[i] != NULL && used < sizeof(list); i++)
            used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", i == 0 ? "" : ", ",
                                     f->values[i]);
        return err_field(err, path, "%s must be one of %s.", path, list);
    }
}

static enum sbx_code check_item(const struct api_field *f, const json_t *item, const char *path,
                                struct sbx_err *err)
{
    if (!json_is_string(item))
        return err_field(err, path, "%s must be a string.", path);
    if (f->item_max > 0 && (int64_t)json_string_length(item) > f->item_max)
        return err_field(err, path, "%s must be at most %" PRId64 " bytes long.", path,
                         f->item_max);
    return f->text != NULL ? f->text(path, json_string_value(item), err) : SBX_OK;
}

static enum sbx_code check_array(const struct api_field *f, const struct api_bounds *bounds,
                                 int64_t min, int64_t max, const json_t *v, const char *path,
                                 struct sbx_err *err);

static enum sbx_code check_map(const struct api_field *f, int64_t max, const json_t *v,
                               const char *path, struct sbx_err *err)
{
    const char *key;
    json_t *item;

    if (max != 0 && (int64_t)json_object_size(v) > max)
        return err_field(err, path, "%s must have at most %" PRId64 " members.", path, max);
    json_object_foreach((json_t *)(uintptr_t)v, key, item)
    {
        char prefix[PATH_SIZE], at[PATH_SIZE];

        (void)snprintf(prefix, sizeof(prefix), "%.40s.", path);
        copy_name(at, prefix, key);
        if (check_item(f, item, at, err) != SBX_OK)
            return err->code;
    }
    return SBX_OK;
}

static enum sbx_code check_object(const struct api_schema *schema, const struct api_bounds *bounds,
                                  const json_t *object, const char *prefix, struct sbx_err *err);

static enum sbx_code check_value(const struct api_field *f, const struct api_bounds *bounds,
                                 const json_t *v, const char *path, struct sbx_err *err)
{
    char prefix[PATH_SIZE];
    int64_t min, max;
    enum sbx_code code = SBX_OK;

    if (!type_fits(f->type, v))
        return wrong_type(f, path, err);
    bounds_of(f, bounds, &min, &max);
    switch (f->type) {
    case API_T_STRING:
        code = check_string(f, min, max, v, path, err);
        break;
    case API_T_INT:
        if ((min == 0 && max == 0) ||
            (json_integer_value(v) >= min && json_integer_value(v) <= max))
            break;
        if (max == INT64_MAX)
            return err_field(err, path, "%s must be at least %" PRId64 ".", path, min);
        return err_field(err, path, "%s must be %" PRId64 " to %" PRId64 ".", path, min, max);
        break;
    case API_T_STRINGS:
    case API_T_OBJECTS:
        code = check_array(f, bounds, min, max, v, path, err);
        break;
    case API_T_OBJECT:
        (void)snprintf(prefix, sizeof(prefix), "%.40s.", path);
        code = check_object(f->of, bounds, v, prefix, err);
        break;
    case API_T_STRING_MAP:
        code = check_map(f, max, v, path, err);
        break;
    case API_T_BOOL:
    case API_T_TIME:
    case API_T_ANY:
    case API_T_UNSET:
        break;
    }
    if (code == SBX_OK && f->check != NULL)
        code = f->check(v, path, err);
    return code;
}

static enum sbx_code check_array(const struct api_field *f, const struct api_bounds *bounds,
                                 int64_t min, int64_t max, const json_t *v, const char *path,
                                 struct sbx_err *err)
{
    int64_t n = (int64_t)json_array_size(v);

    if ((min != 0 || max != 0) && (n < min || n > max))
        return err_field(err, path, "%s must have %" PRId64 " to %" PRId64 " items.", path, min,
                         max);
    for (int64_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(v, (size_t)i);
        char at[PATH_SIZE], prefix[PATH_SIZE];
        enum sbx_code code;

        (void)snprintf(at, sizeof(at), "%.40s[%" PRId64 "]", path, i);
        if (f->type == API_T_STRINGS) {
            code = check_item(f, item, at, err);
        } else if (!json_is_object(item)) {
            code = err_field(err, at, "%s must be an object.", at);
        } else {
            (void)snprintf(prefix, sizeof(prefix), "%.58s.", at);
            code = check_object(f->of, bounds, item, prefix, err);
        }
        if (code != SBX_OK)
            return code;
    }
    return SBX_OK;
}

static enum sbx_code check_object(const struct api_schema *schema, const struct api_bounds *bounds,
                                  const json_t *object, const char *prefix, struct sbx_err *err)
{
    char path[PATH_SIZE];
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)object, key, v)
    {
        if (api_schema_field(schema, key) == NULL) {
            copy_name(path, prefix, key);
            return err_field(err, path, "Unknown field %s.", path);
        }
    }
    for (size_t i = 0; schema != NULL && i < schema->count; i++) {
        const struct api_field *f = &schema->fields[i];

        copy_name(path, prefix, f->name);
        v = json_object_get(object, f->name);
        if (v == NULL && (f->flags & API_REQUIRED) != 0)
            return err_field(err, path, "%s is required.", path);
        if (v == NULL || (json_is_null(v) && (f->flags & API_NULLABLE) != 0))
            continue;
        if (check_value(f, bounds, v, path, err) != SBX_OK)
            return err->code;
    }
    return SBX_OK;
}

enum sbx_code api_schema_check(const struct api_schema *schema, const struct api_bounds *bounds,
                               const json_t *object, struct sbx_err *err)
{
    assert(json_is_object(object));
    return check_object(schema, bounds, object, "", err);
}

/* A decimal number; one too large for 64 bits is as large as can be. */
static bool parse_int(const char *text, int64_t *out)
{
    const char *p = text + (text[0] == '-');

    if (*p == '\0' || strspn(p, "0123456789") != strlen(p))
        return false;
    errno = 0;
    *out = strtoll(text, NULL, 10); /* saturates at the ends */
    return true;
}

enum sbx_code api_schema_add_query(const struct api_schema *schema, json_t *object,
                                   const char *name, const char *text, struct sbx_err *err)
{
    const struct api_field *f = api_schema_field(schema, name);
    char path[PATH_SIZE];
    int64_t n;

    copy_name(path, "", name);
    if (f == NULL)
        return err_field(err, path, "Unknown query parameter %s.", path);
    if (json_object_get(object, name) != NULL)
        return err_field(err, path, "%s is given twice.", path);
    switch (f->type) {
    case API_T_STRING:
        json_put_str(object, name, text);
        break;
    case API_T_INT:
        if (!parse_int(text, &n))
            return wrong_type(f, path, err);
        json_put_int(object, name, n);
        break;
    case API_T_BOOL:
        if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
            return wrong_type(f, path, err);
        json_put_bool(object, name, text[0] == 't');
        break;
    case API_T_STRINGS:
    case API_T_OBJECT:
    case API_T_OBJECTS:
    case API_T_STRING_MAP:
    case API_T_TIME:
    case API_T_ANY:
    case API_T_UNSET:
        assert(!"a query parameter is a string, an integer or a boolean");
    }
    return SBX_OK;
}

static json_t *typed(const char *type)
{
    return json_pack("{s:s}", "type", type);
}

static void put_range(json_t *j, const char *low, const char *high, int64_t min, int64_t max)
{
    if (min == 0 && max == 0)
        return;
    json_put_int(j, low, min);
    if (max != INT64_MAX)
        json_put_int(j, high, max);
}

static json_t *string_json(const struct api_field *f, int64_t min, int64_t max)
{
    json_t *j = typed("string");

    put_range(j, "minLength", "maxLength", min, max);
    json_put_str(j, "pattern", f->pattern);
    if (f->values != NULL) {
        json_t *list = json_array();

        for (size_t i = 0; f->values[i] != NULL; i++)
            (void)json_array_append_new(list, json_string(f->values[i]));
        json_put_new(j, "enum", list);
    }
    return j;
}

static json_t *ref_or_inline(const struct api_field *f, const struct api_bounds *bounds,
                             bool request)
{
    if (f->of->name != NULL)
        return json_pack("{s:o}", "$ref", json_sprintf("#/components/schemas/%s", f->of->name));
    return api_schema_json(f->of, bounds, request);
}

json_t *api_field_json(const struct api_field *f, const struct api_bounds *bounds, bool request)
{
    int64_t min, max;
    json_t *j = NULL;

    bounds_of(f, bounds, &min, &max);
    switch (f->type) {
    case API_T_STRING:
        j = string_json(f, min, max);
        break;
    case API_T_TIME:
        j = json_pack("{s:s, s:s}", "type", "string", "format", "date-time");
        break;
    case API_T_INT:
        j = typed("integer");
        put_range(j, "minimum", "maximum", min, max);
        if (f->bound != API_BOUND_NONE && bounds != NULL && request)
            json_put_int(j, "default", bounds->of[f->bound].dflt);
        break;
    case API_T_BOOL:
        j = typed("boolean");
        break;
    case API_T_STRINGS:
        j = json_pack("{s:s, s:{s:s}}", "type", "array", "items", "type", "string");
        put_range(j, "minItems", "maxItems", min, max);
        break;
    case API_T_OBJECTS:
        j = json_pack("{s:s, s:o}", "type", "array", "items", ref_or_inline(f, bounds, request));
        put_range(j, "minItems", "maxItems", min, max);
        break;
    case API_T_OBJECT:
        j = ref_or_inline(f, bounds, request);
        break;
    case API_T_STRING_MAP:
        j = json_pack("{s:s, s:{s:s}}", "type", "object", "additionalProperties", "type", "string");
        break;
    case API_T_ANY:
        j = typed("object");
        break;
    case API_T_UNSET:
        assert(!"a field without a type");
    }
    if ((f->flags & API_NULLABLE) != 0)
        j = json_pack("{s:[o, {s:s}]}", "oneOf", j, "type", "null");
    if (f->doc != NULL)
        json_put_str(j, "description", f->doc);
    if ((f->flags & API_SECRET) != 0)
        json_put_true(j, "writeOnly", request);
    return j;
}

json_t *api_schema_json(const struct api_schema *schema, const struct api_bounds *bounds,
                        bool request)
{
    json_t *properties = json_object();
    json_t *required = json_array();
    json_t *j = typed("object");

    for (size_t i = 0; i < schema->count; i++) {
        const struct api_field *f = &schema->fields[i];

        json_put_new(properties, f->name, api_field_json(f, bounds, request));
        if ((f->flags & API_REQUIRED) != 0)
            (void)json_array_append_new(required, json_string(f->name));
    }
    json_put_new(j, "properties", properties);
    if (json_array_size(required) > 0)
        json_put_new(j, "required", required);
    else
        json_decref(required);
    json_put_bool(j, "additionalProperties", false);
    return j;
}
