#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "gateway/gateway_impl.h"

/* One number field: bounds, and what an absent one means. */
static enum sbx_code number(const json_t *body, const char *key, int64_t min, int64_t max,
                            int64_t dflt, int64_t *out, struct sbx_err *err)
{
    const json_t *j = json_object_get(body, key);

    if (j == NULL && dflt >= min) {
        *out = dflt;
        return SBX_OK;
    }
    if (!json_is_integer(j) || json_integer_value(j) < min || json_integer_value(j) > max)
        return err_field(err, key, "%s must be a whole number from %" PRId64 " to %" PRId64, key,
                         min, max);
    *out = json_integer_value(j);
    return SBX_OK;
}

enum { REQUIRED = -1 }; /* a default below every minimum here */

static enum sbx_code text(const json_t *body, const char *key, bool required, struct arena *a,
                          const char **out, struct sbx_err *err)
{
    const json_t *j = json_object_get(body, key);

    *out = NULL;
    if (j == NULL && !required)
        return SBX_OK;
    if (!json_is_string(j))
        return err_field(err, key, "%s must be a string", key);
    *out = arena_strdup(a, json_string_value(j));
    return SBX_OK;
}

static enum sbx_code id_text(const json_t *body, const char *key, bool required, char out[ID_SIZE],
                             struct sbx_err *err)
{
    const char *value = json_get_str(body, key, "");

    out[0] = 0;
    if (value[0] == 0 && !required)
        return SBX_OK;
    if (!id_valid(value))
        return err_field(err, key, "%s must be an id", key);
    (void)str_copy(out, ID_SIZE, value);
    return SBX_OK;
}

static enum sbx_code strings(const json_t *body, const char *key, size_t max, struct arena *a,
                             const char ***out, struct sbx_err *err)
{
    const json_t *j = json_object_get(body, key);
    size_t count = 0;

    *out = NULL;
    if (j == NULL)
        return SBX_OK;
    *out = json_strings(a, j, &count);
    if (*out == NULL || count > max)
        return err_field(err, key, "%s must be at most %zu strings", key, max);
    for (size_t i = 0; i < count; i++) {
        if (strlen((*out)[i]) > SBX_ARG_MAX)
            return err_field(err, key, "one of %s is too long", key);
        (*out)[i] = arena_strdup(a, (*out)[i]);
    }
    return SBX_OK;
}

static bool name_ok(const char *name)
{
    if (*name != '_' && !((*name | 32) >= 'a' && (*name | 32) <= 'z'))
        return false;
    for (; *name != 0; name++) {
        if (*name != '_' && !((*name | 32) >= 'a' && (*name | 32) <= 'z') &&
            !(*name >= '0' && *name <= '9'))
            return false;
    }
    return true;
}

/* {"NAME": "value"} to NAME=value. */
static enum sbx_code environment(const json_t *body, struct arena *a, const char ***out,
                                 struct sbx_err *err)
{
    json_t *j = json_object_get(body, "env");
    const char *name;
    json_t *value;
    size_t n = 0;

    *out = NULL;
    if (j == NULL)
        return SBX_OK;
    if (!json_is_object(j) || json_object_size(j) > GATEWAY_ENV_MAX)
        return err_field(err, "env", "env must be an object of at most %d strings",
                         GATEWAY_ENV_MAX);
    *out = arena_zalloc(a, (json_object_size(j) + 1) * sizeof(**out));
    json_object_foreach(j, name, value)
    {
        if (!name_ok(name) || !json_is_string(value))
            return err_field(err, "env", "env must be an object of names and strings");
        if (strlen(name) + 1 + json_string_length(value) > SBX_ARG_MAX)
            return err_field(err, "env", "a variable of env is too long");
        (*out)[n++] = arena_printf(a, "%s=%s", name, json_string_value(value));
    }
    return SBX_OK;
}

enum sbx_code gateway_parse_operation(const json_t *body, char op[ID_SIZE], int64_t *generation,
                                      struct sbx_err *err)
{
    if (id_text(body, "operationId", true, op, err) != SBX_OK)
        return err->code;
    return number(body, "generation", 0, INT64_MAX, REQUIRED, generation, err);
}

static enum sbx_code parse_registry(struct gateway_job *job, const json_t *body,
                                    struct sbx_err *err)
{
    const json_t *j = json_object_get(body, "registry");
    struct driver_registry *r;
    const char *password;

    if (j == NULL)
        return SBX_OK;
    if (!json_is_object(j))
        return err_field(err, "registry", "registry must be an object");
    r = arena_zalloc(job->arena, sizeof(*r));
    if (text(j, "host", true, job->arena, &r->host, err) != SBX_OK ||
        text(j, "username", true, job->arena, &r->username, err) != SBX_OK)
        return err->code;
    password = json_get_str(j, "password", NULL);
    if (password == NULL)
        return err_field(err, "registry", "registry.password must be a string");
    job->password = secret_new(password, strlen(password));
    r->password = job->password;
    job->spec.registry = r;
    return SBX_OK;
}

static enum sbx_code parse_network(struct gateway_job *job, const json_t *body, struct sbx_err *err)
{
    const json_t *j = json_object_get(body, "network");
    const char **addresses, **domains;

    if (j == NULL)
        return SBX_OK;
    if (!json_is_object(j))
        return err_field(err, "network", "network must be an object");
    if (strings(j, "addressAllowlist", 4096, job->arena, &addresses, err) != SBX_OK ||
        strings(j, "domainAllowlist", 4096, job->arena, &domains, err) != SBX_OK)
        return err->code;
    job->spec.network = (struct driver_network){ .enabled = json_get_bool(j, "enabled", false),
                                                 .addresses = addresses,
                                                 .domains = domains };
    return SBX_OK;
}

static bool below(const char *path, const char *folder)
{
    size_t n = strlen(folder);

    return strncmp(path, folder, n) == 0 && (path[n] == 0 || path[n] == '/');
}

static enum sbx_code parse_persistence(struct gateway_job *job, const json_t *body,
                                       struct sbx_err *err)
{
    const json_t *j = json_object_get(body, "persistence");
    struct gateway_persistence *p = &job->persistence;
    const char *mode = json_get_str(j, "mode", "");
    const char *mount = json_get_str(j, "mountPath", "/workspace/persist");
    char key[VOLUME_KEY_MAX];

    if (j == NULL)
        return SBX_OK;
    p->directory = strcmp(mode, "DIRECTORY") == 0 || strcmp(mode, "BOTH") == 0;
    p->snapshot = strcmp(mode, "SNAPSHOT") == 0 || strcmp(mode, "BOTH") == 0;
    if (!p->directory && !p->snapshot)
        return err_field(err, "persistence",
                         "persistence.mode must be DIRECTORY, SNAPSHOT or BOTH");
    if (mount[0] != '/' || strlen(mount) >= sizeof(p->mount_path))
        return err_field(err, "persistence", "persistence.mountPath must be absolute");
    if (below(mount, "/run") || below(mount, "/var/run")) /* the agent's place */
        return err_field(err, "persistence", "persistence.mountPath may not be below /run");
    if (number(j, "snapshotMaxMb", 1, INT64_MAX >> 20, 2048, &p->snapshot_max_mb, err) != SBX_OK ||
        volume_key(job->spec.account_id, json_get_str(j, "volumeName", NULL), NULL, key, err) !=
            SBX_OK)
        return err->code;
    (void)str_copy(p->volume, sizeof(p->volume), json_get_str(j, "volumeName", ""));
    (void)str_copy(p->mount_path, sizeof(p->mount_path), mount);
    p->restore = json_get_bool(j, "restore", false);
    job->hold = p->snapshot && p->restore;
    return volume_backend_parse(json_object_get(j, "backend"), job->arena, &job->backend, err);
}

enum sbx_code gateway_parse_snapshot(struct gateway_job *job, const json_t *body,
                                     struct sbx_err *err)
{
    if (strings(body, "exclude", GATEWAY_EXCLUDE_MAX, job->arena, &job->exclude, err) != SBX_OK ||
        number(body, "maxMb", 1, INT64_MAX >> 20, REQUIRED, &job->max_mb, err) != SBX_OK)
        return err->code;
    job->force = json_get_bool(body, "force", false);
    return volume_backend_parse(json_object_get(body, "backend"), job->arena, &job->backend, err);
}

static enum sbx_code parse_resources(struct gateway_job *job, const json_t *body,
                                     struct sbx_err *err)
{
    const json_t *j = json_object_get(body, "resources");
    struct driver_spec *s = &job->spec;

    if (!json_is_object(j))
        return err_field(err, "resources", "resources must be an object");
    if (number(j, "cpuMillis", 1, 1000000, REQUIRED, &s->cpu_millis, err) != SBX_OK ||
        number(j, "memoryMb", 16, 16 * 1024 * 1024, REQUIRED, &s->memory_mb, err) != SBX_OK)
        return err->code;
    return number(j, "diskMb", 1, 16 * 1024 * 1024, REQUIRED, &s->disk_mb, err);
}

enum sbx_code gateway_parse_deploy(struct gateway_job *job, const json_t *body, struct sbx_err *err)
{
    struct driver_spec *s = &job->spec;
    const char **command, **env;

    if (text(body, "accountId", false, job->arena, &s->account_id, err) != SBX_OK ||
        text(body, "image", true, job->arena, &s->image, err) != SBX_OK ||
        text(body, "workingDir", false, job->arena, &s->working_dir, err) != SBX_OK ||
        strings(body, "command", SBX_COMMAND_MAX, job->arena, &command, err) != SBX_OK ||
        environment(body, job->arena, &env, err) != SBX_OK ||
        id_text(body, "warmId", false, job->warm_id, err) != SBX_OK ||
        parse_registry(job, body, err) != SBX_OK || parse_network(job, body, err) != SBX_OK ||
        parse_resources(job, body, err) != SBX_OK || parse_persistence(job, body, err) != SBX_OK)
        return err->code;
    if (s->working_dir != NULL && s->working_dir[0] != '/')
        return err_field(err, "workingDir", "workingDir must be absolute");
    s->command = command != NULL && command[0] != NULL ? (const char *const *)command : NULL;
    s->env = (const char *const *)env;
    s->personal = json_get_bool(body, "personal", false);
    s->agent = json_get_bool(body, "agent", true);
    return SBX_OK;
}

enum sbx_code gateway_parse_execute(const json_t *body, size_t cap_max, struct arena *a,
                                    struct gateway_execute *out, struct sbx_err *err)
{
    int64_t timeout_s = 0, cap = 0;

    if (id_text(body, "executionId", true, out->execution_id, err) != SBX_OK ||
        number(body, "generation", 0, INT64_MAX, REQUIRED, &out->generation, err) != SBX_OK ||
        strings(body, "command", SBX_EXEC_ARGS_MAX, a, &out->argv, err) != SBX_OK ||
        environment(body, a, &out->env, err) != SBX_OK ||
        text(body, "cwd", false, a, &out->cwd, err) != SBX_OK ||
        number(body, "timeoutSeconds", 1, SBX_EXEC_TIMEOUT_MAX_S, SBX_EXEC_TIMEOUT_DEFAULT_S,
               &timeout_s, err) != SBX_OK ||
        number(body, "outputMax", 1, INT64_MAX, SBX_OUTPUT_MAX, &cap, err) != SBX_OK)
        return err->code;
    if (out->argv == NULL || out->argv[0] == NULL || out->argv[0][0] == 0)
        return err_field(err, "command", "command must be strings, the first not empty");
    out->timeout_ms = timeout_s * 1000;
    out->cap = (uint64_t)cap < cap_max ? (size_t)cap : cap_max;
    return SBX_OK;
}
