#include "http/response.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "http/internal.h"

enum { ANSWER_ROOM = 2048 }; /* bytes at first: enough for one object */

void http_response_reset(struct response *res)
{
    buf_fini(&res->body);
    if (res->fd >= 0)
        (void)close(res->fd);
    res->fd = -1;
    if (res->stream != NULL)
        http_stream_drop(res->stream);
    res->stream = NULL;
    res->status = 0;
    res->content_type = NULL;
}

void http_response_fini(struct response *res)
{
    http_response_reset(res);
    json_decref(res->error_data);
    res->error_data = NULL;
}

void response_header(struct response *res, const char *name, const char *value)
{
    assert(value[strcspn(value, "\r\n")] == '\0');
    assert(res->header_count < HTTP_RESPONSE_HEADERS_MAX);
    res->headers[res->header_count].name = name;
    res->headers[res->header_count++].value = arena_strdup(res->request->arena, value);
}

int response_status(const struct response *res)
{
    return res->status;
}

static void begin(struct response *res, int status, const char *content_type)
{
    assert(status >= 200 && status <= 599);
    http_response_reset(res);
    res->status = status;
    res->content_type = content_type;
    res->body.max = HTTP_ANSWER_MAX;
}

/* Past our own ceiling: a 500, not a part of the answer. */
static void too_large(struct response *res)
{
    struct sbx_err err = { 0 };

    err_put(&err, SBX_E_INTERNAL, "an answer is larger than %d bytes", HTTP_ANSWER_MAX);
    http_response_fail(res->request, &err);
}

void response_json(struct response *res, int status, const char *content_type, json_t *body)
{
    begin(res, status, content_type != NULL ? content_type : "application/json");
    if (!json_write(&res->body, body))
        too_large(res);
    json_decref(body);
}

void response_ok(struct response *res, int status, json_t *body)
{
    json_t *j = json_object();

    json_put_bool(j, "success", true);
    if (body != NULL) {
        assert(json_is_object(body));
        (void)json_object_update(j, body);
        json_decref(body);
    }
    response_json(res, status, NULL, j);
}

struct json_out *response_ok_begin(struct response *res, int status)
{
    begin(res, status, "application/json");
    (void)buf_reserve(&res->body, ANSWER_ROOM);
    res->out = (struct json_out){ .to = &res->body };
    json_out_open(&res->out, NULL, '{');
    json_out_bool(&res->out, "success", true);
    return &res->out;
}

void response_ok_end(struct response *res)
{
    json_out_close(&res->out, '}');
    if (res->body.full)
        too_large(res);
}

void response_bytes(struct response *res, int status, const char *content_type, const void *data,
                    size_t len)
{
    begin(res, status, content_type);
    if (!buf_append(&res->body, data, len))
        too_large(res);
}

void response_buf(struct response *res, int status, const char *content_type, struct buf *b)
{
    begin(res, status, content_type);
    res->body = *b;
    *b = (struct buf){ .max = b->max };
}

void response_empty(struct response *res, int status)
{
    begin(res, status, NULL);
}

void response_fd(struct response *res, int status, const char *content_type, int fd, uint64_t size)
{
    begin(res, status, content_type);
    res->fd = fd;
    res->fd_size = size;
}

/* --- errors --- */

json_t *response_error_data(struct response *res)
{
    if (res->error_data == NULL)
        res->error_data = json_object();
    return res->error_data;
}

json_t *response_error_data_get(const struct response *res)
{
    return res->error_data;
}

void response_retry_after(struct response *res, int seconds)
{
    res->retry_after = seconds;
}

int response_retry_after_get(const struct response *res)
{
    return res->retry_after;
}

void response_error_code(struct response *res, const char *code)
{
    res->error_code = arena_strdup(res->request->arena, code);
}

const char *response_error_code_get(const struct response *res)
{
    return res->error_code;
}

const char *response_error_text(const struct sbx_err *err)
{
    if (sbx_code_public(err->code))
        return err->msg;
    return sbx_code_http(err->code) < 500 ? "The request was refused."
                                          : "Something went wrong on our side.";
}

static const char *wire_code(const struct response *res, const struct sbx_err *err)
{
    return res->error_code != NULL ? res->error_code : sbx_code_name(err->code);
}

/* retryable is said where a client may wonder: conflicts, limits and our own failures. */
static bool says_retryable(int status)
{
    return status == 409 || status == 429 || status >= 500;
}

void response_envelope_error(struct request *req, struct response *res, const struct sbx_err *err)
{
    json_t *j = json_object();
    json_t *data = json_object();
    int status = sbx_code_http(err->code);

    if (err->field[0] != '\0')
        json_put_str(data, "field", err->field);
    if (says_retryable(status))
        json_put_bool(data, "retryable", sbx_code_retry(err->code));
    if (res->retry_after > 0)
        json_put_int(data, "retryAfterSeconds", res->retry_after);
    if (res->error_data != NULL)
        (void)json_object_update(data, res->error_data);
    json_put_bool(j, "success", false);
    json_put_str(j, "error", response_error_text(err));
    json_put_str(j, "code", wire_code(res, err));
    json_put_str(j, "requestId", request_id(req));
    if (json_object_size(data) > 0)
        json_put_new(j, "data", data);
    else
        json_decref(data);
    response_json(res, status, NULL, j);
}

void response_gateway_error(struct request *req, struct response *res, const struct sbx_err *err)
{
    json_t *j = json_object();

    (void)req;
    if (res->error_data != NULL)
        (void)json_object_update(j, res->error_data);
    json_put_str(j, "error", response_error_text(err));
    json_put_str(j, "code", wire_code(res, err));
    json_put_bool(j, "retryable", sbx_code_retry(err->code));
    if (res->retry_after > 0)
        json_put_int(j, "retryAfterSeconds", res->retry_after);
    if (err->field[0] != '\0')
        json_put_str(j, "field", err->field);
    response_json(res, sbx_code_http(err->code), NULL, j);
}

void http_response_fail(struct request *req, const struct sbx_err *err)
{
    int status = sbx_code_http(err->code);

    assert(err->code != SBX_OK);
    req->failed = *err;
    if ((status == 429 || status == 503) && req->res.retry_after == 0)
        req->res.retry_after = 1;
    req->on_error(req, &req->res, err);
    assert(req->res.status >= 400);
}
