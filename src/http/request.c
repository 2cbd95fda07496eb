#include "http/request.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/hash.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/time.h"
#include "http/internal.h"

struct request *http_request_new(struct listener *l, struct MHD_Connection *c, const char *uri)
{
    struct arena *a = arena_new();
    struct request *req = arena_zalloc(a, sizeof(*req));
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    req->arena = a;
    req->server = l->server;
    req->listener = l;
    req->mhd = c;
    req->conn = info != NULL ? info->socket_context : NULL;
    req->uri = arena_strdup(a, uri);
    req->path = "";
    req->id = "";
    req->on_error = l->server->config.on_error;
    req->res.request = req;
    req->res.fd = -1;
    req->started_ms = time_mono_ms();
    return req;
}

void http_request_free(struct request *req)
{
    http_response_fini(&req->res);
    http_request_release_body(req);
    arena_free(req->arena); /* req itself lies in it */
}

/* --- the raw URI --- */

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Decodes text in place of a copy in the arena; NULL when an escape is none, or gives a byte of
 * refuse (NUL always), or the result is not UTF-8. */
static char *decode(struct arena *a, const char *text, size_t len, bool plus, char refuse,
                    bool *refused)
{
    char *out = arena_strndup(a, text, len);
    size_t n = 0;

    for (size_t i = 0; i < len; i++) {
        char c = text[i];

        if (c == '%') {
            int hi = i + 2 < len ? hex(text[i + 1]) : -1;
            int lo = hi >= 0 ? hex(text[i + 2]) : -1;

            if (lo < 0)
                return NULL;
            c = (char)(hi * 16 + lo);
            i += 2;
            if (c == '\0' || (refuse != '\0' && c == refuse)) {
                *refused = true;
                return NULL;
            }
        } else if (c == '+' && plus) {
            c = ' ';
        }
        out[n++] = c;
    }
    out[n] = '\0';
    return utf8_valid(out, n) ? out : NULL;
}

static size_t query_room(const char *q)
{
    size_t n = 1;

    for (; *q != '\0' && n < HTTP_QUERY_MAX; q++)
        n += *q == '&';
    return n;
}

static enum sbx_code parse_query(struct request *req, const char *q, struct sbx_err *err)
{
    bool refused = false;

    req->query = arena_zalloc(req->arena, query_room(q) * sizeof(*req->query));
    while (*q != '\0') {
        size_t len = strcspn(q, "&");
        size_t key = strcspn(q, "=&");
        const char *value = key < len ? q + key + 1 : q + len;
        struct request_query *to = &req->query[req->query_count];

        if (len > 0) {
            if (req->query_count == HTTP_QUERY_MAX)
                return err_set(err, SBX_E_INVALID, "The query has more than %d parameters.",
                               HTTP_QUERY_MAX);
            to->name = decode(req->arena, q, key, true, '\0', &refused);
            to->value = decode(req->arena, value, (size_t)(q + len - value), true, '\0', &refused);
            if (to->name == NULL || to->value == NULL)
                return err_set(err, SBX_E_INVALID,
                               "The query has a percent escape that is not one, a NUL, or text "
                               "that is not UTF-8.");
            req->query_count++;
        }
        q += len;
        q += *q == '&' ? 1 : 0;
    }
    return SBX_OK;
}

/* "http://host/path" is as good as "/path" (RFC 9112, 3.2.2). */
static const char *skip_authority(const char *uri)
{
    size_t scheme = strncasecmp(uri, "http://", 7) == 0    ? 7
                    : strncasecmp(uri, "https://", 8) == 0 ? 8
                                                           : 0;

    return scheme > 0 ? uri + scheme + strcspn(uri + scheme, "/?") : uri;
}

enum sbx_code http_request_parse_uri(struct request *req, char **segments, size_t *count,
                                     bool *fatal, struct sbx_err *err)
{
    const char *p = skip_authority(req->uri);
    size_t path_len = strcspn(p, "?");
    const char *end = p + path_len;

    *count = 0;
    *fatal = true;
    req->path = arena_strndup(req->arena, p, path_len);
    for (const char *c = p; *c != '\0'; c++) {
        if ((unsigned char)*c <= ' ' || (unsigned char)*c >= 0x7f)
            return err_set(err, SBX_E_INVALID,
                           "The request target has a character that must be "
                           "percent-encoded.");
    }
    if (path_len == 0 && p != req->uri)
        return SBX_OK; /* "http://host" */
    if (*p != '/')
        return err_set(err, SBX_E_INVALID, "The request target must begin with a slash.");
    if (path_len > 1 && end[-1] == '/')
        end--; /* one slash at the end means nothing */
    while (p < end && path_len > 1) {
        size_t len = strcspn(++p, "/?");
        bool refused = false;
        char *text;

        if (*count == ROUTE_SEGMENTS_MAX) {
            *count = ROUTE_SEGMENTS_MAX + 1; /* no pattern is so long: 404 */
            break;
        }
        text = decode(req->arena, p, len, false, '/', &refused);
        if (text == NULL)
            return err_set(err, SBX_E_INVALID,
                           refused ? "The path has an encoded NUL or slash."
                                   : "The path has a percent escape that is not one, or text that "
                                     "is not UTF-8.");
        segments[(*count)++] = text;
        p += len;
    }
    *fatal = false;
    p = strchr(req->uri, '?');
    return p != NULL ? parse_query(req, p + 1, err) : SBX_OK;
}

/* --- the body --- */

enum sbx_code http_request_take_body(struct request *req, const char *data, size_t len, size_t max,
                                     struct sbx_err *err)
{
    struct http_server *s = req->server;

    if (len > max || req->body.len > max - len)
        return err_set(err, SBX_E_TOO_LARGE, "The request body is larger than %zu bytes.", max);
    if (atomic_fetch_add(&s->body_bytes, len) + len > s->config.body_budget) {
        (void)atomic_fetch_sub(&s->body_bytes, len);
        return err_set(err, SBX_E_BUSY, "Too many large requests are under way.");
    }
    req->body_charged += len;
    req->body.max = max;
    if (!buf_append(&req->body, data, len))
        abort(); /* the limit was checked above */
    return SBX_OK;
}

void http_request_release_body(struct request *req)
{
    json_decref(req->json);
    req->json = NULL;
    buf_fini(&req->body);
    (void)atomic_fetch_sub(&req->server->body_bytes, req->body_charged);
    req->body_charged = 0;
}

void request_body_release(struct request *req)
{
    req->json_parsed = true;
    http_request_release_body(req);
}

const char *request_body(const struct request *req, size_t *len)
{
    *len = req->body.len;
    return req->body.data != NULL ? req->body.data : "";
}

enum sbx_code request_json(struct request *req, json_t **out, struct sbx_err *err)
{
    if (!req->json_parsed && req->body.len > 0 &&
        json_parse_object(req->body.data, req->body.len, &req->json, err) != SBX_OK)
        return err->code;
    req->json_parsed = true;
    *out = req->json;
    return SBX_OK;
}

/* --- what handlers read --- */

struct arena *request_arena(struct request *req)
{
    return req->arena;
}

const struct route *request_route(const struct request *req)
{
    return req->route;
}

const char *request_id(const struct request *req)
{
    return req->id;
}

const char *request_method(const struct request *req)
{
    return req->method;
}

const char *request_path(const struct request *req)
{
    return req->path;
}

const char *request_param(const struct request *req, const char *name)
{
    for (size_t i = 0; i < req->param_count; i++) {
        if (strcmp(req->params[i].name, name) == 0)
            return req->params[i].value;
    }
    assert(0 && "the route's pattern has no such parameter");
    return NULL;
}

const struct request_query *request_query(const struct request *req, size_t *count)
{
    *count = req->query_count;
    return req->query;
}

const char *request_query_get(const struct request *req, const char *name, size_t *times)
{
    const char *first = NULL;
    size_t n = 0;

    for (size_t i = 0; i < req->query_count; i++) {
        if (strcmp(req->query[i].name, name) != 0)
            continue;
        if (n++ == 0)
            first = req->query[i].value;
    }
    if (times != NULL)
        *times = n;
    return first;
}

const char *request_query_unknown(const struct request *req, const char *const *allowed)
{
    for (size_t i = 0; i < req->query_count; i++) {
        const char *name = req->query[i].name;
        size_t at = 0, times;

        while (allowed[at] != NULL && strcmp(allowed[at], name) != 0)
            at++;
        (void)request_query_get(req, name, &times);
        if (allowed[at] == NULL || times > 1)
            return name;
    }
    return NULL;
}

const char *request_header(const struct request *req, const char *name, size_t *times)
{
    const char *first = NULL;
    size_t n = 0;

    for (size_t i = 0; i < req->header_count; i++) {
        if (strcasecmp(req->headers[i].name, name) != 0)
            continue;
        if (n++ == 0)
            first = req->headers[i].value;
    }
    if (times != NULL)
        *times = n;
    return first;
}

const struct request_peer *request_peer(const struct request *req)
{
    return &req->conn->peer;
}

const char *request_listener(const struct request *req)
{
    return req->listener->name;
}

void request_set_caller(struct request *req, void *caller)
{
    req->caller = caller;
}

void *request_caller(const struct request *req)
{
    return req->caller;
}

void request_set_slot(struct request *req, void *slot)
{
    req->slot = slot;
}

void *request_slot(const struct request *req)
{
    return req->slot;
}

void request_log(struct request *req, const char *key, const char *value)
{
    if (req->log_count == HTTP_LOG_FIELDS_MAX || value == NULL)
        return;
    req->log[req->log_count].name = arena_strdup(req->arena, key);
    req->log[req->log_count++].value = arena_strdup(req->arena, value);
}

void *request_owner(const struct request *req)
{
    return req->server->config.owner;
}

void *request_worker(const struct request *req)
{
    return req->worker;
}

struct http_server *request_server(const struct request *req)
{
    return req->server;
}

int64_t request_started_ms(const struct request *req)
{
    return req->started_ms;
}
