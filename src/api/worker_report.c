#include "api/workers.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

/* The body of a check-in, strictly: every fault is told, by JSON pointer. */

enum { POINTER_MAX = 256, MESSAGE_MAX = 160 };

/* "~" and "/" in a key are escaped (RFC 6901); a long key is cut. */
static void add_key(struct buf *b, const char *key)
{
    (void)buf_puts(b, "/");
    for (const char *p = key; *p != '\0'; p++) {
        if (*p == '~')
            (void)buf_puts(b, "~0");
        else if (*p == '/')
            (void)buf_puts(b, "~1");
        else
            (void)buf_append(b, p, 1);
    }
}

static void fault(json_t *errors, const char *parent, const char *key, const char *message)
{
    SCOPED_BUF struct buf path = BUF_INIT(POINTER_MAX);

    if (json_array_size(errors) >= API_WORKER_ERRORS_MAX)
        return;
    if (parent != NULL)
        add_key(&path, parent);
    if (key != NULL)
        add_key(&path, key);
    (void)json_array_append_new(errors,
                                json_pack("{s:s%, s:s}", "path", path.len > 0 ? path.data : "",
                                          utf8_cut(path.data, path.len), "message", message));
}

static const char *wrong_type(enum api_type type)
{
    return type == API_T_BOOL     ? "must be true or false"
           : type == API_T_STRING ? "must be a string"
                                  : "must be an object";
}

/* Every fault of the object by its table, nested ones too. parent: NULL at the top. */
static void judge(json_t *errors, const char *parent, const json_t *object,
                  const struct api_schema *schema);

static void judge_value(json_t *errors, const char *parent, const struct api_field *f,
                        const json_t *v)
{
    SCOPED_JSON json_t *alone = json_object();
    const struct api_schema one = { .fields = f, .count = 1 };
    struct sbx_err err = { 0 };

    if (f->type == API_T_OBJECT && json_is_object(v)) {
        judge(errors, f->name, v, f->of);
        return;
    }
    (void)json_object_set(alone, f->name, (json_t *)(uintptr_t)v);
    if (api_schema_check(&one, NULL, alone, &err) != SBX_OK)
        fault(errors, parent, f->name,
              f->type == API_T_STRING && json_is_string(v) ? f->doc : wrong_type(f->type));
}

static void judge(json_t *errors, const char *parent, const json_t *object,
                  const struct api_schema *schema)
{
    const char *key;
    const json_t *value;

    for (size_t i = 0; i < schema->count; i++) {
        const struct api_field *f = &schema->fields[i];

        value = json_object_get(object, f->name);
        if (value != NULL)
            judge_value(errors, parent, f, value);
        else if ((f->flags & API_REQUIRED) != 0)
            fault(errors, parent, f->name, "is required");
    }
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        if (api_schema_field(schema, key) == NULL)
            fault(errors, parent, key, "is not a field of this");
    }
}

/* Of a body without faults. */
static void take(const json_t *body, struct api_worker_report *out)
{
    const json_t *i = json_object_get(body, "isolation");

    out->isolation.host_network = json_get_bool(i, "host_network", true);
    out->isolation.credentials = json_get_bool(i, "credentials", true);
    out->isolation.profile = json_get_bool(i, "profile", true);
    out->isolation.egress_proxy = json_get_bool(i, "egress_proxy", false);
    out->isolation.workspace = json_get_str(i, "workspace", "");
    out->worker_id = json_get_str(body, "worker_id", NULL);
    out->version = json_get_str(body, "version", "");
    if (out->version[0] == '\0')
        out->version = NULL; /* an empty one tells as much as none */
}

static enum sbx_code refuse_isolation(const struct worker_isolation *i, json_t *errors,
                                      struct sbx_err *err)
{
    const char *keys[WORKER_ISOLATION_KEYS];
    size_t n = worker_isolation_refused(i, keys);
    SCOPED_BUF struct buf list = BUF_INIT(MESSAGE_MAX);

    if (n == 0)
        return SBX_OK;
    for (size_t k = 0; k < n; k++) {
        (void)buf_printf(&list, "%s%s", k > 0 ? ", " : "", keys[k]);
        fault(errors, "isolation", keys[k], "is not the value that isolation needs");
    }
    return err_set(err, SBX_E_ISOLATION_REFUSED, "The worker is not isolated: %s.", list.data);
}

enum sbx_code api_worker_report_read(const json_t *body, struct api_worker_report *out,
                                     json_t *errors, struct sbx_err *err)
{
    *out = (struct api_worker_report){ .isolation.workspace = "" };
    if (body == NULL)
        fault(errors, NULL, NULL, "a JSON object is needed");
    else
        judge(errors, NULL, body, &API_WORKER_REPORT);
    if (json_array_size(errors) > 0)
        return err_set(err, SBX_E_REQUEST_INVALID, "The request body is not a worker's report.");
    take(body, out);
    return refuse_isolation(&out->isolation, errors, err);
}

/* --- problem+json -------------------------------------------------------- */

/* What every route of ours may answer, in the words of this one. */
static const struct {
    enum sbx_code code;
    const char *name;
} GENERAL[] = {
    { SBX_E_INVALID, "request.invalid" },
    { SBX_E_METHOD_NOT_ALLOWED, "request.method_not_allowed" },
    { SBX_E_TOO_LARGE, "request.too_large" },
    { SBX_E_MEDIA_TYPE, "request.unsupported_media_type" },
    { SBX_E_HEADERS_TOO_LARGE, "request.headers_too_large" },
    { SBX_E_RATE_LIMITED, "request.rate_limited" },
    { SBX_E_UNAUTHENTICATED, "token.malformed" },
    { SBX_E_TOKEN_EXPIRED, "token.expired" },
    { SBX_E_INSUFFICIENT_SCOPE, "capability.denied" },
    { SBX_E_TOKEN_KIND, "capability.denied" },
    { SBX_E_NOT_FOUND, "stream.not_found" },
    { SBX_E_BUSY, "service.busy" },
    { SBX_E_UNAVAILABLE, "service.unavailable" },
    { SBX_E_TIMEOUT, "service.timeout" },
};

const char *api_worker_problem_name(enum sbx_code code)
{
    const char *name = sbx_code_name(code);

    for (size_t i = 0; i < COUNT_OF(GENERAL); i++) {
        if (GENERAL[i].code == code)
            return GENERAL[i].name;
    }
    return strchr(name, '.') != NULL ? name : "service.error";
}

/* "token.bad_signature" reads "Token bad signature". */
static void title_of(const char *code, char *out, size_t size)
{
    (void)str_copy(out, size, code);
    out[0] = (char)toupper((unsigned char)out[0]);
    for (char *p = out; *p != '\0'; p++) {
        if (*p == '.' || *p == '_')
            *p = ' ';
    }
}

void api_worker_problem(struct request *req, struct response *res, const struct sbx_err *err)
{
    const char *code = api_worker_problem_name(err->code), *detail = response_error_text(err);
    json_t *errors = json_object_get(response_error_data_get(res), "errors");
    int status = sbx_code_http(err->code);
    json_t *j = json_object();
    char title[64], type[128];

    title_of(code, title, sizeof(title));
    (void)snprintf(type, sizeof(type), "https://openvibe.network/problems/%s", code);
    json_put_str(j, "type", type);
    json_put_str(j, "title", title);
    json_put_int(j, "status", status);
    json_put_str(j, "code", code);
    json_put_str(j, "detail", detail);
    json_put_str(j, "request_id", request_id(req));
    if (json_array_size(errors) > 0)
        json_put_new(j, "errors", json_incref(errors));
    json_put_str(j, "error", detail[0] != '\0' ? detail : title);
    if (status == 401)
        response_header(res, "WWW-Authenticate", "Bearer");
    response_json(res, status, API_WORKER_PROBLEM_TYPE, j);
}
