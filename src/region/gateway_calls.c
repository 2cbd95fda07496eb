#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "region/gateway_client_call.h"

/* The calls of sbx/gateway.h, one function each: a path, a body, what to expect. */

enum {
    PATH_MAX_LEN = 1024,
    SMALL_ANSWER_MAX = 256 * 1024,
    LIST_ANSWER_MAX = 16 * 1024 * 1024,
    /* One byte of output is at most six of JSON (\u0001); beside that the fields. */
    EXECUTE_EXPANSION = 6,
    EXECUTE_FIELDS_MAX = 4096,
    VOLUME_PURGE_TIMEOUT_S = 900,
    VOLUME_MAKE_TIMEOUT_S = 120, /* the region tries a storage that does not answer three times */
    DEPLOY_MARGIN_S = 10,        /* the region's own deadline comes first, with a reason */
};

/* --- bodies ------------------------------------------------------------ */

static void put_text_json(json_t *j, const char *key, const char *text)
{
    if (text)
        json_put_new(j, key, json_from_text(text));
}

static json_t *operation_body(const char *operation_id, int64_t generation)
{
    json_t *j = json_object();

    json_put_str(j, "operationId", operation_id);
    json_put_int(j, "generation", generation);
    return j;
}

static json_t *backend_body(const struct region_backend *b)
{
    json_t *j;

    if (!b->kind)
        return NULL;
    j = json_object();
    json_put_str(j, "kind", b->kind);
    json_put_str(j, "path", b->path);
    json_put_str(j, "endpoint", b->endpoint);
    json_put_str(j, "bucket", b->bucket);
    json_put_str(j, "prefix", b->prefix);
    json_put_str(j, "region", b->s3_region);
    json_put_str(j, "accessKey", b->access_key);
    json_put_str(j, "secretKey", b->secret_key);
    return j;
}

static json_t *persistence_body(const struct region_deploy *spec)
{
    json_t *j;

    if (!sandbox_persistence_has_volume(spec->persistence))
        return NULL;
    j = json_object();
    json_put_str(j, "mode", sandbox_persistence_name(spec->persistence));
    json_put_str(j, "volumeName", spec->volume_name);
    json_put_str(j, "mountPath", spec->mount_path);
    json_put_int(j, "sizeMb", spec->volume_size_mb);
    json_put_bool(j, "restore", spec->restore);
    json_put_int(j, "snapshotMaxMb", spec->snapshot_max_mb);
    json_put_new(j, "backend", backend_body(&spec->backend));
    return j;
}

static json_t *deploy_body(const struct region_deploy *spec)
{
    json_t *j = operation_body(spec->operation_id, spec->generation);
    json_t *resources = json_object();

    json_put_str(j, "accountId", spec->account_id);
    json_put_str(j, "image", spec->image);
    if (spec->registry_host) {
        json_t *registry = json_object();

        json_put_str(registry, "host", spec->registry_host);
        json_put_str(registry, "username", spec->registry_username);
        json_put_str(registry, "password", spec->registry_password);
        json_put_new(j, "registry", registry);
    }
    put_text_json(j, "command", spec->command);
    json_put_str(j, "workingDir", spec->working_dir);
    put_text_json(j, "env", spec->env);
    json_put_int(resources, "cpuMillis", spec->cpu_millis);
    json_put_int(resources, "memoryMb", spec->memory_mb);
    json_put_int(resources, "diskMb", spec->disk_mb);
    json_put_new(j, "resources", resources);
    put_text_json(j, "network", spec->network);
    json_put_new(j, "persistence", persistence_body(spec));
    json_put_true(j, "personal", spec->personal);
    if (spec->no_agent)
        json_put_bool(j, "agent", false);
    json_put_str(j, "warmId", spec->warm_id);
    return j;
}

/* --- sandboxes --------------------------------------------------------- */

static enum sbx_code on_sandbox(struct gateway_client *c, const char *region, const char *id,
                                const char *tail, struct region_request req,
                                gateway_client_fn *done, void *arg, struct sbx_err *err)
{
    char path[PATH_MAX_LEN];

    if (!id_valid(id))
        return err_set(err, SBX_E_INVALID, "not a sandbox id");
    (void)snprintf(path, sizeof(path), "/v1/sandboxes/%s%s", id, tail);
    req.region = region;
    req.path = path;
    req.id = id;
    if (!req.timeout_s)
        req.timeout_s = SBX_GATEWAY_CALL_TIMEOUT_S;
    if (!req.answer_max)
        req.answer_max = SMALL_ANSWER_MAX;
    return region_call_start(c, &req, done, arg, err);
}

enum sbx_code gateway_client_deploy(struct gateway_client *c, const char *region,
                                    const char *sandbox_id, const struct region_deploy *spec,
                                    gateway_client_fn *done, void *arg, struct sbx_err *err)
{
    SCOPED_JSON json_t *body = deploy_body(spec);
    struct region_request req = { .method = "PUT",
                                  .body = body,
                                  .kind = REGION_ANSWER_SANDBOX,
                                  .timeout_s = SBX_GATEWAY_DEPLOY_TIMEOUT_S + DEPLOY_MARGIN_S };

    return on_sandbox(c, region, sandbox_id, "", req, done, arg, err);
}

enum sbx_code gateway_client_warm(struct gateway_client *c, const char *region, const char *warm_id,
                                  const struct region_deploy *spec, gateway_client_fn *done,
                                  void *arg, struct sbx_err *err)
{
    SCOPED_JSON json_t *body = deploy_body(spec);
    struct region_request req = { .region = region,
                                  .method = "POST",
                                  .path = "/v1/warm",
                                  .body = body,
                                  .kind = REGION_ANSWER_SANDBOX,
                                  .id = warm_id,
                                  .timeout_s = SBX_GATEWAY_DEPLOY_TIMEOUT_S + DEPLOY_MARGIN_S,
                                  .answer_max = SMALL_ANSWER_MAX };

    json_put_str(body, "warmId", warm_id);
    return region_call_start(c, &req, done, arg, err);
}

enum sbx_code gateway_client_get(struct gateway_client *c, const char *region,
                                 const char *sandbox_id, gateway_client_fn *done, void *arg,
                                 struct sbx_err *err)
{
    struct region_request req = { .method = "GET", .kind = REGION_ANSWER_SANDBOX };

    return on_sandbox(c, region, sandbox_id, "", req, done, arg, err);
}

enum sbx_code gateway_client_list(struct gateway_client *c, const char *region, const char *after,
                                  int limit, gateway_client_fn *done, void *arg,
                                  struct sbx_err *err)
{
    char path[PATH_MAX_LEN];
    struct region_request req = { .region = region,
                                  .method = "GET",
                                  .path = path,
                                  .kind = REGION_ANSWER_LIST,
                                  .timeout_s = SBX_GATEWAY_CALL_TIMEOUT_S,
                                  .answer_max = LIST_ANSWER_MAX };

    if (after && !id_valid(after))
        return err_set(err, SBX_E_INVALID, "not a sandbox id");
    (void)snprintf(path, sizeof(path), "/v1/sandboxes?limit=%d%s%s", limit, after ? "&after=" : "",
                   after ? after : "");
    return region_call_start(c, &req, done, arg, err);
}

enum sbx_code gateway_client_destroy(struct gateway_client *c, const char *region,
                                     const char *sandbox_id, const char *operation_id,
                                     int64_t generation, gateway_client_fn *done, void *arg,
                                     struct sbx_err *err)
{
    SCOPED_JSON json_t *body = operation_body(operation_id, generation);
    struct region_request req = { .method = "DELETE",
                                  .body = body,
                                  .kind = REGION_ANSWER_GONE,
                                  .timeout_s = SBX_GATEWAY_DELETE_TIMEOUT_S };

    return on_sandbox(c, region, sandbox_id, "", req, done, arg, err);
}

enum sbx_code gateway_client_snapshot(struct gateway_client *c, const char *region,
                                      const char *sandbox_id, const struct region_snapshot *spec,
                                      gateway_client_fn *done, void *arg, struct sbx_err *err)
{
    SCOPED_JSON json_t *body = operation_body(spec->operation_id, spec->generation);
    struct region_request req = { .method = "POST",
                                  .body = body,
                                  .kind = REGION_ANSWER_SNAPSHOT,
                                  .timeout_s = SBX_GATEWAY_SNAPSHOT_TIMEOUT_S + DEPLOY_MARGIN_S };

    json_put_new(body, "exclude", spec->exclude ? json_from_text(spec->exclude) : json_array());
    json_put_int(body, "maxMb", spec->max_mb);
    json_put_bool(body, "force", spec->force);
    json_put_new(body, "backend", backend_body(&spec->backend));
    return on_sandbox(c, region, sandbox_id, "/snapshot", req, done, arg, err);
}

enum sbx_code gateway_client_stop(struct gateway_client *c, const char *region,
                                  const char *sandbox_id, const char *operation_id,
                                  int64_t generation, gateway_client_fn *done, void *arg,
                                  struct sbx_err *err)
{
    SCOPED_JSON json_t *body = operation_body(operation_id, generation);
    struct region_request req = { .method = "POST",
                                  .body = body,
                                  .kind = REGION_ANSWER_SANDBOX,
                                  .timeout_s = SBX_GATEWAY_DELETE_TIMEOUT_S };

    return on_sandbox(c, region, sandbox_id, "/stop", req, done, arg, err);
}

enum sbx_code gateway_client_execute(struct gateway_client *c, const char *region,
                                     const char *sandbox_id, const struct region_execute *spec,
                                     gateway_client_fn *done, void *arg, struct sbx_err *err)
{
    SCOPED_JSON json_t *body = json_object();
    struct region_request req = {
        .method = "POST",
        .body = body,
        .kind = REGION_ANSWER_EXECUTE,
        .timeout_s = spec->timeout_s + SBX_GATEWAY_EXECUTE_GRACE_S,
        .answer_max = 2 * spec->output_max * EXECUTE_EXPANSION + EXECUTE_FIELDS_MAX,
        .execution = true,
    };

    json_put_str(body, "executionId", spec->execution_id);
    json_put_int(body, "generation", spec->generation);
    json_put_new(body, "command", json_deep_copy(spec->command));
    json_put_str(body, "cwd", spec->cwd);
    if (spec->env)
        json_put_new(body, "env", json_deep_copy(spec->env));
    json_put_int(body, "timeoutSeconds", spec->timeout_s);
    json_put_int(body, "outputMax", (int64_t)spec->output_max);
    return on_sandbox(c, region, sandbox_id, "/execute", req, done, arg, err);
}

enum sbx_code gateway_client_process(struct gateway_client *c, const char *region,
                                     const char *sandbox_id, const json_t *body,
                                     const struct secret *process_secret, int timeout_s,
                                     gateway_client_fn *done, void *arg, struct sbx_err *err)
{
    struct region_request req = { .method = "POST",
                                  .body = body,
                                  .bearer = process_secret,
                                  .kind = REGION_ANSWER_JSON,
                                  .timeout_s = timeout_s };

    return on_sandbox(c, region, sandbox_id, "/process", req, done, arg, err);
}

/* --- the region -------------------------------------------------------- */

static enum sbx_code on_volume(struct gateway_client *c, const char *method, int timeout_s,
                               const char *region, const char *volume_name, const char *account_id,
                               const char *operation_id, const struct region_backend *backend,
                               gateway_client_fn *done, void *arg, struct sbx_err *err)
{
    SCOPED_JSON json_t *body = json_object();
    SCOPED_BUF struct buf path = BUF_INIT(PATH_MAX_LEN);
    struct region_request req = { .region = region,
                                  .method = method,
                                  .body = body,
                                  .kind = REGION_ANSWER_ANY,
                                  .timeout_s = timeout_s,
                                  .answer_max = SMALL_ANSWER_MAX };

    json_put_str(body, "operationId", operation_id);
    json_put_str(body, "accountId", account_id);
    json_put_new(body, "backend", backend_body(backend));
    if (!buf_puts(&path, "/v1/volumes/") || !net_url_escape(&path, volume_name, false))
        return err_set(err, SBX_E_INVALID, "the volume's name is too long");
    req.path = path.data;
    return region_call_start(c, &req, done, arg, err);
}

enum sbx_code gateway_client_volume_make(struct gateway_client *c, const char *region,
                                         const char *volume_name, const char *account_id,
                                         const char *operation_id,
                                         const struct region_backend *backend,
                                         gateway_client_fn *done, void *arg, struct sbx_err *err)
{
    return on_volume(c, "PUT", VOLUME_MAKE_TIMEOUT_S, region, volume_name, account_id, operation_id,
                     backend, done, arg, err);
}

enum sbx_code gateway_client_volume_purge(struct gateway_client *c, const char *region,
                                          const char *volume_name, const char *account_id,
                                          const char *operation_id,
                                          const struct region_backend *backend,
                                          gateway_client_fn *done, void *arg, struct sbx_err *err)
{
    return on_volume(c, "DELETE", VOLUME_PURGE_TIMEOUT_S, region, volume_name, account_id,
                     operation_id, backend, done, arg, err);
}

enum sbx_code gateway_client_volumes_wanting(struct gateway_client *c, const char *region,
                                             gateway_client_fn *done, void *arg,
                                             struct sbx_err *err)
{
    struct region_request req = { .region = region,
                                  .method = "GET",
                                  .path = "/v1/volumes",
                                  .kind = REGION_ANSWER_VOLUMES,
                                  .timeout_s = SBX_GATEWAY_CALL_TIMEOUT_S,
                                  .answer_max = SMALL_ANSWER_MAX };

    return region_call_start(c, &req, done, arg, err);
}

enum sbx_code gateway_client_read(struct gateway_client *c, const char *region, const char *path,
                                  gateway_client_fn *done, void *arg, struct sbx_err *err)
{
    struct region_request req = { .region = region,
                                  .method = "GET",
                                  .path = path,
                                  .kind = REGION_ANSWER_JSON,
                                  .timeout_s = SBX_GATEWAY_CALL_TIMEOUT_S,
                                  .answer_max = LIST_ANSWER_MAX };

    return region_call_start(c, &req, done, arg, err);
}

enum sbx_code gateway_client_image_remove(struct gateway_client *c, const char *region,
                                          const char *reference, gateway_client_fn *done, void *arg,
                                          struct sbx_err *err)
{
    SCOPED_BUF struct buf path = BUF_INIT(PATH_MAX_LEN * 2);
    struct region_request req = { .region = region,
                                  .method = "DELETE",
                                  .kind = REGION_ANSWER_ANY,
                                  .timeout_s = SBX_GATEWAY_CALL_TIMEOUT_S,
                                  .answer_max = SMALL_ANSWER_MAX };

    if (!buf_puts(&path, "/v1/images?reference=") || !net_url_escape(&path, reference, false))
        return err_set(err, SBX_E_INVALID, "the reference is too long");
    req.path = path.data;
    return region_call_start(c, &req, done, arg, err);
}

enum { IMPORT_TIMEOUT_S = 3600, IMPORT_STALL_S = 120 };

enum sbx_code gateway_client_image_import(struct gateway_client *c, const char *region,
                                          const char *name, const char *kind, net_read_fn *read,
                                          void *read_arg, int64_t size, struct arena *a,
                                          json_t **out, struct sbx_err *err)
{
    SCOPED_BUF struct buf path = BUF_INIT(PATH_MAX_LEN * 2);
    SCOPED_BUF struct buf url = BUF_INIT(PATH_MAX_LEN * 4);
    SCOPED_JSON json_t *json = NULL;
    struct region_endpoint *e;
    struct gateway_client_answer answer;
    struct net_answer got = { 0 };
    struct sbx_err call_err = { 0 };
    static const char *const headers[] = { "Content-Type: application/x-tar", NULL };
    struct net_spec spec = { .method = "POST",
                             .headers = headers,
                             .read_body = read,
                             .read_arg = read_arg,
                             .read_size = size,
                             .answer_max = SMALL_ANSWER_MAX,
                             .timeout_ms = IMPORT_TIMEOUT_S * 1000,
                             .stall_timeout_ms = IMPORT_STALL_S * 1000 };
    enum sbx_code code;

    if (!buf_puts(&path, "/v1/images?kind=") || !net_url_escape(&path, kind, false) ||
        !buf_puts(&path, "&name=") || !net_url_escape(&path, name, false))
        return err_set(err, SBX_E_INVALID, "the image's name is too long");
    e = region_endpoint_take(c, region);
    if (!e)
        return err_set(err, SBX_E_UNAVAILABLE, "region %s is not known here yet", region);
    code = region_address(e, path.data, &url, &spec, err);
    if (code == SBX_OK) {
        code = net_request(NULL, &spec, a, &got, &call_err);
        region_answer_read(REGION_ANSWER_JSON, NULL, &got, code ? &call_err : NULL, a, &json,
                           &answer);
        if (answer.code)
            code = err_set(err, answer.code, "%s", answer.message);
    }
    region_endpoint_give(e);
    if (code == SBX_OK)
        *out = STEAL(json);
    return code;
}
