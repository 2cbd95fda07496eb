#include <string.h>

#include "base/log.h"
#include "base/scoped.h"
#include "gateway/gateway_impl.h"

/* Volumes: made, purged, mounted.  Making and purging are idempotent by nature, so nothing of
 * them is journaled. */

static enum sbx_code read_call(struct request *req, struct volume_backend *backend,
                               char key[VOLUME_KEY_MAX], struct sbx_err *err)
{
    json_t *body;

    if (request_json(req, &body, err) != SBX_OK ||
        volume_key(json_get_str(body, "accountId", NULL), request_param(req, "name"), NULL, key,
                   err) != SBX_OK)
        return err->code;
    return volume_backend_parse(json_object_get(body, "backend"), request_arena(req), backend, err);
}

/* Is the volume in the hands of a sandbox that runs? */
static bool in_use(struct gateway *g, const char *key)
{
    bool used = false;

    (void)pthread_mutex_lock(&g->lock);
    ID_MAP_EACH(&g->by_runtime, slot)
    {
        const struct gateway_sandbox *s = slot->value;
        char its[VOLUME_KEY_MAX];
        struct sbx_err ignored = { 0 };

        if (s->persistence.volume[0] != 0 &&
            volume_key(s->account, s->persistence.volume, NULL, its, &ignored) == SBX_OK)
            used = used || strcmp(its, key) == 0;
    }
    (void)pthread_mutex_unlock(&g->lock);
    return used;
}

enum sbx_code gateway_route_volume_make(struct request *req, struct response *res,
                                        struct sbx_err *err)
{
    SCOPED(volume_backend_fini) struct volume_backend backend = { 0 };
    struct gateway *g = request_owner(req);
    char key[VOLUME_KEY_MAX];
    const char **names;
    const char *path;

    if (read_call(req, &backend, key, err) != SBX_OK)
        return err->code;
    if (backend.kind == VOLUME_DIR)
        (void)!volume_directory(&backend, key, "", request_arena(req), &path, err);
    else if (!gateway_mounts_have(g->mounts, key))
        /* A bucket has no folders: that it answers is what can be checked.  One whose volume is
         * mounted is asked by who mends the mount: many may come at once, and must not hold up
         * other calls when their storage does not answer. */
        (void)!volume_list(&backend, key, request_arena(req), &names, err);
    if (err->code != SBX_OK) {
        gateway_mounts_failed(g->mounts, key);
        return err->code;
    }
    if (backend.kind == VOLUME_S3)
        gateway_mounts_lend(g->mounts, key, &backend);
    else /* what is mounted is from before the account's backend was changed */
        gateway_mounts_failed(g->mounts, key);
    response_json(res, 200, NULL, json_pack("{s:s}", "volumeName", request_param(req, "name")));
    return SBX_OK;
}

enum sbx_code gateway_route_volume_list(struct request *req, struct response *res,
                                        struct sbx_err *err)
{
    struct gateway *g = request_owner(req);
    json_t *j = json_object();

    (void)err;
    json_put_new(j, "volumes", gateway_mounts_wanting(g->mounts));
    response_json(res, 200, NULL, j);
    return SBX_OK;
}

enum sbx_code gateway_route_volume_purge(struct request *req, struct response *res,
                                         struct sbx_err *err)
{
    SCOPED(volume_backend_fini) struct volume_backend backend = { 0 };
    char key[VOLUME_KEY_MAX];

    if (read_call(req, &backend, key, err) != SBX_OK)
        return err->code;
    if (in_use(request_owner(req), key))
        return err_set(err, SBX_E_VOLUME_IN_USE, "a sandbox uses the volume");
    if (volume_purge(&backend, key, err) != SBX_OK)
        return err->code;
    response_json(res, 200, NULL,
                  json_pack("{s:s, s:b}", "volumeName", request_param(req, "name"), "gone", 1));
    return SBX_OK;
}

static const char *mounts_of(const struct gateway *g, struct arena *a)
{
    return arena_printf(a, "%s/v", config_str(g->config, "state", "dir"));
}

enum sbx_code gateway_volume_mount(struct gateway_job *job, struct sbx_err *err)
{
    const struct gateway_persistence *p = &job->persistence;
    char key[VOLUME_KEY_MAX];

    if (!p->directory)
        return SBX_OK;
    if (volume_key(job->spec.account_id, p->volume, NULL, key, err) != SBX_OK)
        return err->code;
    job->spec.mount.target = p->mount_path;
    job->spec.mount.uncached = job->backend.kind == VOLUME_S3;
    if (job->backend.kind == VOLUME_S3) {
        job->mounting = true;
        gateway_mounts_begin(job->g->mounts, key);
    }
    if (volume_directory(&job->backend, key, mounts_of(job->g, job->arena), job->arena,
                         &job->spec.mount.source, err) == SBX_OK &&
        job->backend.kind == VOLUME_S3)
        gateway_mounts_lend(job->g->mounts, key, &job->backend);
    return err->code;
}

void gateway_volume_mounted(struct gateway_job *job)
{
    char key[VOLUME_KEY_MAX];
    struct sbx_err ignored = { 0 };

    if (job->mounting &&
        volume_key(job->spec.account_id, job->persistence.volume, NULL, key, &ignored) == SBX_OK)
        gateway_mounts_end(job->g->mounts, key);
    job->mounting = false;
}

bool gateway_volume_used(void *gateway, const char *key)
{
    struct gateway *g = gateway;

    return gateway_mounts_begun(g->mounts, key) || in_use(g, key);
}

/* Called once the sandbox has nothing in the driver any more. */
void gateway_volume_unmount(struct gateway *g, const struct gateway_sandbox *s)
{
    SCOPED_ARENA struct arena *a = arena_new();
    char key[VOLUME_KEY_MAX];
    struct sbx_err err = { 0 };

    if (!s->persistence.directory ||
        volume_key(s->account, s->persistence.volume, NULL, key, &err) != SBX_OK)
        return;
    if (!gateway_volume_used(g, key))
        gateway_mounts_leave(g->mounts, key);
    if (volume_unmount(mounts_of(g, a), key, gateway_volume_used, g, &err) != SBX_OK)
        log_err(LOG_WARN, "a volume stays mounted", &err, LOG_S("sandboxId", s->id));
    gateway_mounts_look(g->mounts);
}

void gateway_volumes_settle(struct gateway *g)
{
    SCOPED_ARENA struct arena *a = arena_new();

    volume_unmount_others(mounts_of(g, a), gateway_volume_used, g);
}
