#ifndef HTTP_RESPONSE_H
#define HTTP_RESPONSE_H

/* What a handler answers.  Exactly one of the setters below is used; a later one
 * replaces an earlier one. The server adds X-Request-Id and Cache-Control. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/json_out.h"
#include "sbx/error.h"

struct request;
struct response;

/* Headers: name must be a literal; the value is copied; CR or LF in it is our bug (assert). */
void response_header(struct response *res, const char *name, const char *value);
int response_status(const struct response *res); /* 0 before a setter */

/* {"success": true, ...body}; takes body, an object (NULL: empty). */
void response_ok(struct response *res, int status, json_t *body);
/* The same, written member by member between the two calls. */
struct json_out *response_ok_begin(struct response *res, int status);
void response_ok_end(struct response *res);
/* body as it is, any JSON, takes it; content_type NULL: application/json. */
void response_json(struct response *res, int status, const char *content_type, json_t *body);
/* Bytes, copied; content_type must be a literal. */
void response_bytes(struct response *res, int status, const char *content_type, const void *data,
                    size_t len);
/* The buffer's bytes without a copy; b is empty after. */
void response_buf(struct response *res, int status, const char *content_type, struct buf *b);
void response_empty(struct response *res, int status); /* no body: 204 and the like */
/* size bytes of fd from its start; takes fd. */
void response_fd(struct response *res, int status, const char *content_type, int fd, uint64_t size);

/* --- Errors -----------------------------------------------------------------
 * A handler returns an error code; the route's error form writes it.  To say more,
 * it first adds to `data`. */

/* The `data` object of the error answer, made at first use; borrowed. */
json_t *response_error_data(struct response *res);
/* Retry-After and data.retryAfterSeconds; without it a 429 or 503 says 1. */
void response_retry_after(struct response *res, int seconds);
/* Another wire code than the error table's (contract 7: "stream.not_found"); copied. */
void response_error_code(struct response *res, const char *code);

/* The envelope of contract 1: {"success":false,"error","code","requestId","data"?}. The default
 * error form; never shows the message of a code that is not public. */
void response_envelope_error(struct request *req, struct response *res, const struct sbx_err *err);
/* {"error","code","retryable","retryAfterSeconds"?,"field"?}: sbx/gateway.h. */
void response_gateway_error(struct request *req, struct response *res, const struct sbx_err *err);

/* For writers of another form: what the setters above left. */
const char *response_error_code_get(const struct response *res); /* NULL: none */
json_t *response_error_data_get(const struct response *res);     /* NULL: none; borrowed */
int response_retry_after_get(const struct response *res);        /* 0: none */
/* The sentence that may be shown: err's, or a general one when its code is not public. */
const char *response_error_text(const struct sbx_err *err);

/* --- Streaming --------------------------------------------------------------
 * The answer's bytes come later, from any thread, through a bounded pipe. The status
 * and headers are sent when the handler returns. */

struct response_stream;
enum { RESPONSE_SIZE_UNKNOWN = -1 };

/* The caller owns the pipe and must end it with response_stream_end. size in bytes, or
 * RESPONSE_SIZE_UNKNOWN (chunked). max: bytes that may wait in the pipe. */
struct response_stream *response_stream(struct response *res, int status, const char *content_type,
                                        int64_t size, size_t max);
/* Waits until all of data fits, at most timeout_ms (0: does not wait). SBX_E_TIMEOUT: no room, and
 * nothing was taken; SBX_E_CONFLICT: the client is gone, give up. len at most max. */
MUST_USE enum sbx_code response_stream_write(struct response_stream *s, const void *data,
                                             size_t len, int timeout_ms, struct sbx_err *err);
/* ok: the answer is complete; false: the connection is cut so that the client sees it is not.
 * Frees the caller's part. NULL is allowed. */
void response_stream_end(struct response_stream *s, bool ok);

#endif
