#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/call.h"
#include "api/fields.h"
#include "api/workers.h"
#include "sbx/version.h"

/* GET /openapi.json: OpenAPI 3.1 from the route rows and the field tables that also
 * validate requests, so that the two cannot part. */

enum { STATUS_SLOTS = 600 };

/* What every operation may answer, beside its own list, by who calls it (contract 1, 6, 7). */
static const enum sbx_code PERSONS[] = {
    SBX_E_INVALID,           SBX_E_UNAUTHENTICATED,    SBX_E_TOKEN_EXPIRED, SBX_E_TOKEN_KIND,
    SBX_E_ACCOUNT_FORBIDDEN, SBX_E_INSUFFICIENT_SCOPE, SBX_E_NOT_ENTITLED,  SBX_E_ROLE_FORBIDDEN,
    SBX_E_RATE_LIMITED,      SBX_E_UNAVAILABLE,
};
static const enum sbx_code PRINCIPALS[] = {
    SBX_E_INVALID,      SBX_E_UNAUTHENTICATED,    SBX_E_TOKEN_EXPIRED,
    SBX_E_TOKEN_KIND,   SBX_E_INSUFFICIENT_SCOPE, SBX_E_INSTALLATION_SUSPENDED,
    SBX_E_RATE_LIMITED, SBX_E_UNAVAILABLE,
};
static const enum sbx_code WORKERS[] = {
    SBX_E_WORKER_TOKEN_MISSING,  SBX_E_WORKER_TOKEN_MALFORMED,
    SBX_E_IDENTITY_UNAVAILABLE,  SBX_E_WORKER_TOKEN_SIGNATURE,
    SBX_E_WORKER_TOKEN_EXPIRED,  SBX_E_WORKER_TOKEN_ISSUER,
    SBX_E_WORKER_TOKEN_AUDIENCE, SBX_E_WORKER_TOKEN_CLAIMS,
    SBX_E_WORKER_TOKEN_SANDBOX,  SBX_E_CAPABILITY_DENIED,
    SBX_E_SUBJECT_REQUIRED,      SBX_E_SUBJECT_INVALID,
    SBX_E_STREAM_NOT_FOUND,      SBX_E_RATE_LIMITED,
    SBX_E_UNAVAILABLE,           SBX_E_BUSY,
};
static const enum sbx_code PUBLIC[] = { SBX_E_INVALID };
static const enum sbx_code WITH_BODY[] = { SBX_E_TOO_LARGE, SBX_E_MEDIA_TYPE };

static const char *const METHOD_KEYS[HTTP_METHOD_COUNT] = {
    [HTTP_GET] = "get",     [HTTP_POST] = "post",     [HTTP_PUT] = "put",
    [HTTP_PATCH] = "patch", [HTTP_DELETE] = "delete",
};

static json_t *schema_ref(const char *name)
{
    return json_pack("{s:o}", "$ref", json_sprintf("#/components/schemas/%s", name));
}

static json_t *content(const char *type, const char *name)
{
    return json_pack("{s:{s:o}}", type, "schema", schema_ref(name));
}

/* Is it a problem, or our own envelope? */
static bool has_problems(const struct route *route)
{
    return route->auth == API_AUTH_WORKER;
}

static void add_error(json_t *responses, const struct route *route, enum sbx_code code)
{
    const char *name = has_problems(route) ? api_worker_problem_name(code) : sbx_code_name(code);
    char status[8];
    json_t *have;

    (void)snprintf(status, sizeof(status), "%d", sbx_code_http(code));
    have = json_object_get(responses, status);
    if (have == NULL) {
        json_put_new(responses, status,
                     json_pack("{s:s, s:o}", "description", name, "content",
                               has_problems(route)
                                   ? content(API_WORKER_PROBLEM_TYPE, API_WORKER_PROBLEM.name)
                                   : content("application/json", API_ERROR_ANSWER.name)));
        return;
    }
    json_put_new(have, "description",
                 json_sprintf("%s, %s", json_get_str(have, "description", ""), name));
}

static void add_errors(json_t *responses, const struct route *route, const enum sbx_code *codes,
                       size_t max)
{
    for (size_t i = 0; i < max && codes[i] != SBX_OK; i++)
        add_error(responses, route, codes[i]);
}

static json_t *responses_of(const struct route *route)
{
    const struct api_spec *spec = route->spec;
    json_t *responses = json_object();

    for (size_t i = 0; i < COUNT_OF(spec->status) && spec->status[i] != 0; i++) {
        char status[8];

        (void)snprintf(status, sizeof(status), "%d", spec->status[i]);
        json_put_new(responses, status,
                     json_pack("{s:s, s:o}", "description", spec->summary, "content",
                               content("application/json", spec->answer->name)));
    }
    if (route->auth == API_AUTH_WORKER)
        add_errors(responses, route, WORKERS, COUNT_OF(WORKERS));
    else if (route->auth == API_AUTH_PRINCIPAL)
        add_errors(responses, route, PRINCIPALS, COUNT_OF(PRINCIPALS));
    else if (route->auth == API_AUTH_NONE)
        add_errors(responses, route, PUBLIC, COUNT_OF(PUBLIC));
    else
        add_errors(responses, route, PERSONS, COUNT_OF(PERSONS));
    if (route->body == HTTP_BODY_JSON)
        add_errors(responses, route, WITH_BODY, COUNT_OF(WITH_BODY));
    add_errors(responses, route, spec->errors, API_ERRORS_MAX);
    return responses;
}

static void add_query_parameters(const struct api_schema *query, const struct api_bounds *bounds,
                                 json_t *list)
{
    for (size_t i = 0; i < query->count; i++) {
        const struct api_field *f = &query->fields[i];
        json_t *p =
            json_pack("{s:s, s:s, s:b, s:o}", "name", f->name, "in", "query", "required",
                      (f->flags & API_REQUIRED) != 0, "schema", api_field_json(f, bounds, true));

        json_put_str(p, "description", f->doc);
        (void)json_array_append_new(list, p);
    }
}

/* Each {name} of the path. */
static void add_path_parameters(const char *path, json_t *list)
{
    for (const char *at = strchr(path, '{'); at != NULL; at = strchr(at + 1, '{'))
        (void)json_array_append_new(list,
                                    json_pack("{s:o, s:s, s:b, s:{s:s}}", "name",
                                              json_stringn(at + 1, strcspn(at + 1, "}")), "in",
                                              "path", "required", 1, "schema", "type", "string"));
}

/* The person whom a service works for; an owner who reads names nobody. */
static void add_subject(const struct route *route, json_t *list)
{
    if (route->auth != API_AUTH_WORKER)
        return;
    (void)json_array_append_new(
        list, json_pack("{s:s, s:s, s:b, s:s, s:{s:s, s:s}}", "name", "X-OV-Subject", "in",
                        "header", "required", route->method == HTTP_POST, "description",
                        "The person a service works for, who must own the stream.", "schema",
                        "type", "string", "pattern", API_WORKER_SUBJECT_PATTERN));
}

static json_t *description_of(const struct route *route)
{
    const struct api_spec *spec = route->spec;
    const char *who = spec->roles == ROLES_ANY
                          ? "Any member of the account may call it."
                          : "An admin or technical member of the account may call it.";

    switch ((enum api_auth_kind)route->auth) {
    case API_AUTH_PERSON:
        return json_sprintf("MCP keys and OAuth tokens need the %s scope. %s",
                            scopes_name(spec->scope), who);
    case API_AUTH_OWNER:
        return json_string("User tokens of the connection's owner only.");
    case API_AUTH_PRINCIPAL:
        return json_sprintf("Service principals of the installation with the %s permission only.",
                            scopes_permission_name(spec->permission));
    case API_AUTH_WORKER:
        return json_string(
            route->method == HTTP_POST
                ? "First-party service tokens whose principal holds " WORKER_CAPABILITY " only."
                : "The same service tokens, or a token of the stream's owner; MCP keys and OAuth "
                  "tokens need the quave:read scope.");
    case API_AUTH_NONE:
    case API_AUTH_UNSET:
    case API_AUTH_OPERATOR:
        break;
    }
    return json_string("Public.");
}

static json_t *operation(const struct route *route, const struct api_bounds *bounds)
{
    const struct api_spec *spec = route->spec;
    json_t *parameters = json_array();
    json_t *op = json_pack("{s:s, s:s, s:o}", "operationId", route->name, "summary", spec->summary,
                           "description", description_of(route));

    add_path_parameters(route->path, parameters);
    add_subject(route, parameters);
    if (spec->query != NULL)
        add_query_parameters(spec->query, bounds, parameters);
    json_put_new(op, "parameters", parameters);
    if (spec->body != NULL) /* one without fields may be left out */
        json_put_new(op, "requestBody",
                     json_pack("{s:b, s:o}", "required", spec->body->count > 0, "content",
                               content("application/json", spec->body->name)));
    json_put_new(op, "responses", responses_of(route));
    if (route->auth == API_AUTH_NONE)
        json_put_new(op, "security", json_array());
    else if (route->auth == API_AUTH_WORKER && route->method == HTTP_POST)
        json_put_new(op, "security", json_pack("[{s:[]}]", "service"));
    else if (route->auth == API_AUTH_WORKER)
        json_put_new(op, "security", json_pack("[{s:[]}, {s:[]}]", "service", "token"));
    return op;
}

/* The schema and what it is made of, each once. */
static void add_schema(json_t *schemas, const struct api_schema *schema,
                       const struct api_bounds *bounds, bool request)
{
    if (schema == NULL || (schema->name != NULL && json_object_get(schemas, schema->name) != NULL))
        return;
    if (schema->name != NULL)
        json_put_new(schemas, schema->name, api_schema_json(schema, bounds, request));
    for (size_t i = 0; i < schema->count; i++)
        add_schema(schemas, schema->fields[i].of, bounds, request);
}

static void add_route(json_t *paths, json_t *schemas, const struct route *route,
                      const struct api_bounds *bounds)
{
    const struct api_spec *spec = route->spec;
    json_t *path = json_object_get(paths, route->path);

    if (spec == NULL || spec->answer == NULL)
        return; /* this description, health probes */
    if (path == NULL) {
        path = json_object();
        json_put_new(paths, route->path, path);
    }
    json_put_new(path, METHOD_KEYS[route->method], operation(route, bounds));
    add_schema(schemas, spec->body, bounds, true);
    add_schema(schemas, spec->answer, bounds, false);
}

void api_print_openapi(const struct api_bounds *bounds, struct buf *out)
{
    json_t *paths = json_object();
    json_t *schemas = json_object();
    SCOPED_JSON json_t *doc = NULL;
    char *text;

    add_schema(schemas, &API_ERROR_ANSWER, bounds, false);
    add_schema(schemas, &API_WORKER_PROBLEM, bounds, false);
    for (size_t t = 0; t < API_PUBLIC_COUNT; t++) {
        for (size_t i = 0; i < API_PUBLIC[t].count; i++)
            add_route(paths, schemas, &API_PUBLIC[t].routes[i], bounds);
    }
    doc = json_pack("{s:s, s:{s:s, s:s, s:s, s:{s:s, s:s}}, s:[{s:s}], s:o,"
                    " s:{s:o, s:{s:{s:s, s:s, s:s}, s:{s:s, s:s, s:s, s:s}}}, s:[{s:[]}]}",
                    "openapi", "3.1.0", "info", "title", "Agent Sandboxes API", "version",
                    SBX_VERSION, "description",
                    "Isolated gVisor sandboxes for agent workloads, made from versioned templates.",
                    "license", "name", "See the repository", "identifier", "LicenseRef-sandboxd",
                    "servers", "url", "/", "paths", paths, "components", "schemas", schemas,
                    "securitySchemes", "token", "type", "http", "scheme", "bearer", "description",
                    "A user token, MCP key or OAuth access token; with or without 'Bearer '.",
                    "service", "type", "http", "scheme", "bearer", "bearerFormat", "JWT",
                    "description", "An RS256 service token of the configured issuer.", "security",
                    "token");
    assert(doc != NULL);
    text = json_dumps(doc, JSON_INDENT(2));
    assert(text != NULL);
    (void)buf_puts(out, text);
    (void)buf_puts(out, "\n");
    free(text);
}

static const char *yes(bool b)
{
    return b ? "yes" : "no";
}

void api_print_errors(struct buf *out)
{
    (void)buf_puts(out, "# Errors\n\nPrinted by `sandboxd --print-errors` from "
                        "`include/sbx/error.def`; a test holds the two together.\n\n"
                        "| code | HTTP | retryable | message shown |\n"
                        "| --- | --- | --- | --- |\n");
    for (int i = SBX_OK + 1; i < SBX_CODE_COUNT; i++) {
        enum sbx_code code = (enum sbx_code)i;

        (void)buf_printf(out, "| `%s` | %d | %s | %s |\n", sbx_code_name(code), sbx_code_http(code),
                         yes(sbx_code_retry(code)), yes(sbx_code_public(code)));
    }
}
