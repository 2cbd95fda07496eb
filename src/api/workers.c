#include "api/workers.h"

#include <stdio.h>
#include <string.h>

#include "api/fields_admin.h"
#include "api/token.h"
#include "base/time.h"
#include "region/worker_token.h"
#include "store/workers.h"

/* The worker check-in.  The order of checks is the contract's: token, capability,
 * subject, stream (api_worker_auth, so that a foreign stream equals a missing one
 * whatever the body is), then body and isolation (the handler). */

/* --- who ----------------------------------------------------------------- */

/* The credential, NUL-ended; NULL when there is none. A second header, a cookie: ignored. */
static const char *credential(struct request *req)
{
    const char *value = request_header(req, "Authorization", NULL), *token;
    size_t len;

    return api_token_from_header(value, &token, &len)
               ? arena_strndup(request_arena(req), token, len)
               : NULL;
}

static enum sbx_code read_subject(struct request *req, const char **out, struct sbx_err *err)
{
    size_t times = 0;
    const char *subject = request_header(req, "X-OV-Subject", &times);

    if (times == 0 || subject[0] == '\0')
        return err_set(err, SBX_E_SUBJECT_REQUIRED,
                       "X-OV-Subject must name the person the worker works for.");
    if (times > 1 || !worker_subject_valid(subject))
        return err_set(err, SBX_E_SUBJECT_INVALID,
                       "X-OV-Subject must be one id of the form usr_<ULID>.");
    *out = subject;
    return SBX_OK;
}

static enum sbx_code judge_service(struct api *api, struct request *req, const char *token,
                                   struct sbx_err *err)
{
    const struct region_worker_issuer issuer = { api->worker_keys, api->cfg.worker_issuer };
    struct region_worker_token *who = arena_zalloc(request_arena(req), sizeof(*who));
    const char *stream = request_param(req, "id"), *subject = NULL;

    if (region_worker_token_judge(&issuer, token, time_unix_ms() / 1000, request_arena(req), who,
                                  err) != SBX_OK ||
        read_subject(req, &subject, err) != SBX_OK)
        return err->code;
    if (!worker_stream_id_valid(stream))
        return err_set(err, SBX_E_STREAM_NOT_FOUND, "There is no such stream.");
    if (api_db_begin(api, req, err) != SBX_OK)
        return err->code;
    request_set_slot(req, who);
    request_log(req, "actor", who->subject);
    return api_db_end(api, request_worker(req),
                      store_stream_of_subject(request_worker(req), stream, subject, err));
}

/* Reading only: the owner's own user, MCP or OAuth token. */
static enum sbx_code judge_owner(struct api *api, struct request *req, struct sbx_err *err)
{
    const char *stream = request_param(req, "id");
    const struct api_caller *caller;

    if (api_auth_reader(api, req, err) != HTTP_AUTH_ALLOW)
        return err->code;
    caller = request_caller(req);
    if (!worker_stream_id_valid(stream))
        return err_set(err, SBX_E_STREAM_NOT_FOUND, "There is no such stream.");
    if (api_db_begin(api, req, err) != SBX_OK)
        return err->code;
    return api_db_end(api, request_worker(req),
                      store_stream_of_user(request_worker(req), stream, caller->user_id, err));
}

/* A token of ours, or a JWT of another issuer than the network's: a person's. */
static bool is_persons(const struct api *api, const char *token)
{
    enum api_token_kind kind;
    SCOPED_JSON json_t *claims = NULL;

    if (api_token_parse(token, strlen(token), &kind))
        return true;
    claims = jose_peek_claims(token);
    return claims != NULL &&
           strcmp(json_get_str(claims, "iss", api->cfg.worker_issuer), api->cfg.worker_issuer) != 0;
}

enum http_auth api_worker_auth(struct api *api, struct request *req, const struct route *route,
                               struct sbx_err *err)
{
    const char *token = credential(req);
    enum sbx_code code;

    if (token != NULL && request_worker(req) == NULL)
        return HTTP_AUTH_ON_WORKER; /* keys may have to be fetched, the stream be looked up */
    if (token != NULL && route->method == HTTP_GET && is_persons(api, token))
        code = judge_owner(api, req, err);
    else
        code = judge_service(api, req, token, err);
    return code == SBX_OK ? HTTP_AUTH_ALLOW : HTTP_AUTH_DENY;
}

/* --- what ---------------------------------------------------------------- */

static void audit_first(struct api *api, struct request *req)
{
    const struct region_worker_token *who = request_slot(req);
    char actor[64];
    struct store_audit row = {
        .actor = actor,
        .action = "worker.register",
        .object_kind = "stream",
        .object_id = request_param(req, "id"),
        .request_id = request_id(req),
        .outcome = "ok",
        .exit_code = -1,
        .duration_ms = -1,
    };

    (void)snprintf(actor, sizeof(actor), "service:%.50s", who->subject);
    api_audit_add(api->audit, &row);
}

/* SBX_E_REQUEST_INVALID with the parser's own sentence as the one fault. */
static enum sbx_code read_body(struct request *req, json_t **body, json_t *errors,
                               struct sbx_err *err)
{
    struct sbx_err why = { 0 };

    if (request_json(req, body, &why) == SBX_OK)
        return SBX_OK;
    (void)json_array_append_new(errors, json_pack("{s:s, s:s}", "path", "", "message", why.msg));
    return err_set(err, SBX_E_REQUEST_INVALID, "%s", why.msg);
}

static enum sbx_code check_in(struct request *req, struct response *res, struct sbx_err *err)
{
    struct api *api = request_owner(req);
    const char *stream = request_param(req, "id");
    json_t *errors = json_array(), *body = NULL, *answer;
    struct api_worker_report report;
    struct store_worker row;
    bool fresh = false;

    json_put_new(response_error_data(res), "errors", errors);
    if (read_body(req, &body, errors, err) != SBX_OK ||
        api_worker_report_read(body, &report, errors, err) != SBX_OK ||
        api_db_begin(api, req, err) != SBX_OK)
        return err->code;
    if (api_db_end(api, request_worker(req),
                   store_worker_check_in(request_worker(req), stream, report.worker_id,
                                         report.version, request_arena(req), &row, &fresh, err)) !=
        SBX_OK)
        return err->code == SBX_E_NOT_FOUND /* removed since it was looked up */
                   ? (err->code = SBX_E_STREAM_NOT_FOUND)
                   : err->code;
    if (fresh)
        audit_first(api, req);
    answer = json_object();
    json_put_str(answer, "worker_id", row.worker_id);
    json_put_str(answer, "stream_id", stream);
    json_put_time(answer, "registered_at", row.registered_at_ms);
    json_put_time(answer, "last_check_in_at", row.last_check_in_at_ms);
    json_put_time(answer, "healthy_until", row.last_check_in_at_ms + WORKER_HEALTHY_MS);
    response_json(res, fresh ? 201 : 200, NULL, answer);
    return SBX_OK;
}

static json_t *render_worker(const struct store_worker *row, int64_t now_ms)
{
    json_t *j = json_object();

    json_put_str(j, "worker_id", row->worker_id);
    json_put_str(j, "version", row->version);
    json_put_time(j, "registered_at", row->registered_at_ms);
    json_put_time(j, "last_check_in_at", row->last_check_in_at_ms);
    json_put_bool(j, "healthy", worker_healthy(row->last_check_in_at_ms, now_ms));
    json_put_time(j, "healthy_until", row->last_check_in_at_ms + WORKER_HEALTHY_MS);
    return j;
}

static enum sbx_code list_workers(struct request *req, struct response *res, struct sbx_err *err)
{
    struct api *api = request_owner(req);
    const char *stream = request_param(req, "id");
    struct store_workers rows;
    json_t *list;

    if (api_db_begin(api, req, err) != SBX_OK ||
        api_db_end(api, request_worker(req),
                   store_worker_list(request_worker(req), stream, request_arena(req), &rows,
                                     err)) != SBX_OK)
        return err->code;
    list = json_array();
    for (size_t i = 0; i < rows.count; i++)
        (void)json_array_append_new(list, render_worker(&rows.rows[i], rows.now_ms));
    response_json(res, 200, NULL, json_pack("{s:s, s:o}", "stream_id", stream, "workers", list));
    return SBX_OK;
}

/* The seed's own values. */
static enum sbx_code manifest(struct request *req, struct response *res, struct sbx_err *err)
{
    static const char DESCRIPTION[] =
        "The chat plays sandbox worker checks in for the person it works for on OpenVibe.Live "
        "(Agent Streams S6): POST /api/streams/agent/:id/plays/worker. Only a first-party service "
        "token whose principal holds this capability may register one, and it names the person in "
        "X-OV-Subject, who must own the stream. The owner's own session, a desk ticket (wpt_) and "
        "a person token are refused: an owner who could register a worker would declare their own "
        "unisolated machine a sandbox, and the gate would mean nothing. The body is "
        "live.agent-sandbox-worker-request@1, the worker's own report; Live requires isolation to "
        "say exactly host_network false, credentials false, profile false, egress_proxy true and "
        "workspace 'ephemeral', and refuses a worker that does not. Health comes only from a "
        "check-in within the last minute; Live stores no endpoint, never calls the worker and "
        "never accepts an isolation code it cannot read. The capability is internal because no "
        "person or app calls it: OpenVibe.Codes' sandbox worker holds it through its own Network "
        "service client for the audience openvibe.live.";

    (void)req, (void)err;
    response_json(
        res, 200, NULL,
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:[s], s:[s], s:s, s:[], s:s, s:s, s:s, s:[s]}", "id",
                  WORKER_CAPABILITY, "version", "1.0", "owner", "live", "status", "active",
                  "visibility", "internal", "permissions", "live:write", "resourceConstraints",
                  "owner", "quotaClass", "standard", "events", "description", DESCRIPTION,
                  "inputSchema", "live.agent-sandbox-worker-request@1", "outputSchema",
                  "live.agent-sandbox-worker-result@1", "implementedBy",
                  "POST /api/streams/agent/:id/plays/worker"));
    return SBX_OK;
}

#define WORKER_PATH "/api/streams/agent/{id}/plays/worker"

/* The handlers are called without api_dispatch: the specs say what openapi.json needs. */
const struct route API_WORKER_ROUTES[API_WORKER_ROUTE_COUNT] = {
    { .method = HTTP_POST,
      .path = WORKER_PATH,
      .name = "worker_check_in",
      .auth = API_AUTH_WORKER,
      .body = HTTP_BODY_JSON,
      .body_max = SBX_BODY_MAX,
      .handler = check_in,
      .on_error = api_worker_problem,
      .spec = &(
          const struct api_spec){ .summary = "Check a sandbox worker in",
                                  .body = &API_WORKER_REPORT,
                                  .answer = &API_WORKER_CHECKED_IN,
                                  .status = { 201, 200 },
                                  .errors = { SBX_E_REQUEST_INVALID, SBX_E_ISOLATION_REFUSED } } },
    { .method = HTTP_GET,
      .path = WORKER_PATH,
      .name = "worker_list",
      .auth = API_AUTH_WORKER,
      .handler = list_workers,
      .on_error = api_worker_problem,
      .spec = &(const struct api_spec){ .summary = "List the workers of a stream",
                                        .answer = &API_WORKERS_ANSWER,
                                        .status = { 200 } } },
    { .method = HTTP_GET,
      .path = "/.well-known/capabilities/" WORKER_CAPABILITY,
      .name = "worker_manifest",
      .auth = API_AUTH_NONE,
      .flags = ROUTE_INLINE,
      .handler = manifest,
      .spec = &(const struct api_spec){ .summary = "The capability's manifest",
                                        .answer = &API_WORKER_MANIFEST,
                                        .status = { 200 } } },
};

/* --- the operator's streams ---------------------------------------------- */

static json_t *render_stream(const struct store_stream *row)
{
    json_t *j = json_object();

    json_put_str(j, "streamId", row->stream_id);
    json_put_str(j, "ownerUserId", row->owner_user_id);
    json_put_time(j, "createdAt", row->created_at_ms);
    return j;
}

enum sbx_code api_stream_create(struct api_call *c, struct sbx_err *err)
{
    const char *id = json_get_str(c->args, "streamId", "");
    struct store_stream row;

    c->object_kind = "stream";
    c->object_id = id;
    if (!worker_stream_id_valid(id))
        return err_field(err, "streamId", "streamId must be 1 to 64 characters of [A-Za-z0-9_-]");
    if (store_stream_create(c->db, id, json_get_str(c->args, "ownerUserId", ""), c->a, &row, err) !=
        SBX_OK)
        return err->code;
    response_ok(c->res, 201, json_pack("{s:o}", "stream", render_stream(&row)));
    return SBX_OK;
}

enum sbx_code api_stream_remove(struct api_call *c, struct sbx_err *err)
{
    c->object_kind = "stream";
    c->object_id = json_get_str(c->args, "streamId", "");
    if (store_stream_remove(c->db, c->object_id, err) != SBX_OK)
        return err->code;
    response_ok(c->res, 200, NULL);
    return SBX_OK;
}

enum sbx_code api_stream_list(struct api_call *c, struct sbx_err *err)
{
    int limit = (int)json_get_int(c->args, "limit", STORE_LIST_MAX);
    struct store_streams rows;
    json_t *list, *body;

    if (store_stream_list(c->db, json_get_str(c->args, "after", NULL), limit, c->a, &rows, err) !=
        SBX_OK)
        return err->code;
    list = json_array();
    for (size_t i = 0; i < rows.count; i++)
        (void)json_array_append_new(list, render_stream(&rows.rows[i]));
    body = json_pack("{s:o}", "streams", list);
    if (rows.more && rows.count > 0)
        json_put_str(body, "next", rows.rows[rows.count - 1].stream_id);
    response_ok(c->res, 200, body);
    return SBX_OK;
}

#define ADMIN(method_, path_, name_, query_, body_, act, fn)                                       \
    {                                                                                              \
        .method = (method_), .path = "/admin/v1" path_, .name = (name_),                           \
        .auth = API_AUTH_OPERATOR,                                                                 \
        .body = (method_) == HTTP_GET ? HTTP_BODY_NONE : HTTP_BODY_JSON,                           \
        .body_max = (method_) == HTTP_GET ? 0 : SBX_BODY_MAX, .handler = api_dispatch,             \
        .spec = &(const struct api_spec)                                                           \
        {                                                                                          \
            .query = (query_), .body = (body_), .action = (act), .handler = (fn)                   \
        }                                                                                          \
    }

const struct route API_WORKER_ADMIN_ROUTES[API_WORKER_ADMIN_ROUTE_COUNT] = {
    ADMIN(HTTP_POST, "/stream/create", "stream_create", NULL, &API_ADMIN_STREAM_CREATE,
          "stream.create", api_stream_create),
    ADMIN(HTTP_POST, "/stream/remove", "stream_remove", NULL, &API_ADMIN_STREAM_NAMED,
          "stream.remove", api_stream_remove),
    ADMIN(HTTP_GET, "/streams", "stream_list", &API_ADMIN_STREAM_PAGE, NULL, NULL, api_stream_list),
};
