#include "reconcile/calls.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/time.h"
#include "domain/resources.h"
#include "reconcile/state.h"
#include "store/places.h"
#include "store/templates.h"
#include "store/volumes.h"

enum {
    REVISIONS_CACHED = 256,
    REGISTRIES_CACHED = 64,
    REGISTRY_FRESH_MS = 30000,
    HOST_SIZE = 256,
};

/* Revisions never change, so they are kept until another takes their place. */
struct cached_revision {
    struct arena *arena; /* NULL: empty */
    struct store_revision row;
};

struct cached_registry {
    char account[ID_SIZE];
    char host[HOST_SIZE];
    int64_t read_ms;
    char *username;
    struct secret *password; /* NULL: none for that host */
};

struct reconcile_calls {
    struct reconcile_calls_config cfg;
    atomic_size_t refs;   /* the owner's and one for each call under way, which may outlive it */
    pthread_mutex_t lock; /* closed */
    bool closed;          /* answers go nowhere any more */
    struct cached_revision revisions[REVISIONS_CACHED];
    struct cached_registry registries[REGISTRIES_CACHED];
    char (*known)[RECONCILE_REGION_NAME_SIZE];
    size_t known_count;
};

/* One call under way: whose it is. */
struct pending {
    struct reconcile_calls *calls;
    uint64_t token;
};

struct reconcile_calls *reconcile_calls_new(const struct reconcile_calls_config *config)
{
    struct reconcile_calls *c = mem_zalloc(sizeof(*c));

    c->cfg = *config;
    atomic_init(&c->refs, 1);
    (void)pthread_mutex_init(&c->lock, NULL);
    return c;
}

static void registry_clear(struct cached_registry *r)
{
    free(r->username);
    secret_free(r->password);
    memset(r, 0, sizeof(*r));
}

static void unref(struct reconcile_calls *c)
{
    if (atomic_fetch_sub(&c->refs, 1) != 1)
        return;
    for (size_t i = 0; i < REVISIONS_CACHED; i++)
        arena_free(c->revisions[i].arena);
    for (size_t i = 0; i < REGISTRIES_CACHED; i++)
        registry_clear(&c->registries[i]);
    free(c->known);
    (void)pthread_mutex_destroy(&c->lock);
    free(c);
}

void reconcile_calls_free(struct reconcile_calls *c)
{
    if (!c)
        return;
    (void)pthread_mutex_lock(&c->lock);
    c->closed = true;
    (void)pthread_mutex_unlock(&c->lock);
    unref(c);
}

/* One call under way holds the calls object. */
static struct pending *pending_new(struct reconcile_calls *c, uint64_t token)
{
    struct pending *p = mem_zalloc(sizeof(*p));

    p->calls = c;
    p->token = token;
    (void)atomic_fetch_add(&c->refs, 1);
    return p;
}

static void pending_free(struct pending *p)
{
    unref(p->calls);
    free(p);
}

/* --- answers ----------------------------------------------------------- */

static void copy_seen(const struct region_sandbox *from, struct reconcile_seen *to)
{
    memcpy(to->id, from->id, sizeof(to->id));
    to->generation = from->generation;
    to->phase = from->phase;
    to->warm = from->warm;
    to->claimed = from->claimed;
    to->has_persistence = from->has_persistence;
    to->restore_failed = from->restore_failed;
    to->last_snapshot_at_ms = from->last_snapshot_at_ms;
    to->last_snapshot_bytes = from->last_snapshot_bytes;
    (void)str_copy(to->mount_path, sizeof(to->mount_path),
                   from->mount_path ? from->mount_path : "");
    (void)str_copy(to->snapshot_error, sizeof(to->snapshot_error),
                   from->last_snapshot_error ? from->last_snapshot_error : "");
    (void)str_copy(to->reason, sizeof(to->reason),
                   from->oom_killed ? "The sandbox ran out of memory."
                   : from->reason   ? from->reason
                                    : "");
}

static void on_done(void *arg, const struct gateway_client_answer *got)
{
    struct pending *p = arg;
    struct reconcile_answer *a = mem_zalloc(sizeof(*a));

    a->token = p->token;
    a->code = got->code;
    a->answered = got->answered;
    a->retry_after_s = got->retry_after_s;
    a->snapshot_bytes = got->snapshot_bytes;
    a->snapshot_at_ms = got->snapshot_at_ms;
    (void)str_copy(a->message, sizeof(a->message), got->message);
    (void)str_copy(a->next, sizeof(a->next), got->next ? got->next : "");
    if (got->sandbox_count) {
        a->count = got->sandbox_count;
        a->seen = mem_zalloc(a->count * sizeof(*a->seen));
        for (size_t i = 0; i < a->count; i++)
            copy_seen(&got->sandboxes[i], &a->seen[i]);
    }
    if (got->sandbox_count == 1 && got->sandboxes[0].execution_count) {
        a->execution_count = got->sandboxes[0].execution_count;
        a->executions = mem_zalloc(a->execution_count * sizeof(*a->executions));
        for (size_t i = 0; i < a->execution_count; i++)
            (void)str_copy(a->executions[i], ID_SIZE, got->sandboxes[0].executions[i]);
    }
    if (got->volume_count) {
        a->wants = mem_zalloc(got->volume_count * sizeof(*a->wants));
        for (size_t i = 0; i < got->volume_count; i++) {
            struct reconcile_want *want = &a->wants[a->want_count];

            (void)str_copy(want->account, sizeof(want->account), got->volumes[i].account_id);
            if (str_copy(want->volume, sizeof(want->volume), got->volumes[i].volume_name))
                a->want_count++; /* a longer one is no volume of ours */
        }
    }
    (void)pthread_mutex_lock(&p->calls->lock);
    if (p->calls->closed)
        reconcile_answer_free(a);
    else
        p->calls->cfg.on_answer(p->calls->cfg.arg, a);
    (void)pthread_mutex_unlock(&p->calls->lock);
    pending_free(p);
}

/* --- what a deploy needs ----------------------------------------------- */

static enum sbx_code revision_get(struct reconcile_calls *c, const char *id,
                                  const struct store_revision **out, struct sbx_err *err)
{
    unsigned char digest[SHA256_LEN];
    struct cached_revision *slot;
    struct store_revision row = { 0 };
    struct arena *a;

    sha256_of(id, strlen(id), digest);
    slot = &c->revisions[digest[0] % REVISIONS_CACHED];
    if (slot->arena && strcmp(slot->row.revision_id, id) == 0) {
        *out = &slot->row;
        return SBX_OK;
    }
    a = arena_new();
    if (store_revision_get(c->cfg.db, id, a, &row, err)) {
        arena_free(a);
        return err_wrap(err, "revision of the sandbox");
    }
    arena_free(slot->arena);
    slot->arena = a;
    slot->row = row;
    *out = &slot->row;
    return SBX_OK;
}

/* The registry of an image reference: what stands before the first slash, if it is a host. */
static void registry_host(const char *image, char out[HOST_SIZE])
{
    size_t len = strcspn(image, "/");
    char host[HOST_SIZE];

    (void)str_copy(out, HOST_SIZE, "docker.io");
    if (image[len] == '\0' || len >= sizeof(host))
        return;
    memcpy(host, image, len);
    host[len] = '\0';
    if (strpbrk(host, ".:") || strcmp(host, "localhost") == 0)
        (void)str_copy(out, HOST_SIZE, host);
}

static enum sbx_code open_text(struct reconcile_calls *c, struct arena *a, const char *column,
                               const char *row_id, const struct store_bytes *sealed,
                               struct secret **out, struct sbx_err *err)
{
    if (!sealed->data)
        return SBX_OK;
    return seal_open(c->cfg.keys, store_seal_context(a, column, row_id), sealed->data, sealed->len,
                     out, err);
}

static enum sbx_code registry_get(struct reconcile_calls *c, struct arena *a, const char *account,
                                  const char *image, const struct cached_registry **out,
                                  struct sbx_err *err)
{
    struct store_registry row = { 0 };
    char host[HOST_SIZE];
    struct cached_registry *slot;
    struct sbx_err miss = { 0 };
    enum sbx_code code;

    registry_host(image, host);
    slot = &c->registries[(crc32_of(account, strlen(account)) ^ crc32_of(host, strlen(host))) %
                          REGISTRIES_CACHED];
    if (strcmp(slot->account, account) != 0 || strcmp(slot->host, host) != 0 ||
        time_mono_ms() - slot->read_ms > REGISTRY_FRESH_MS) {
        registry_clear(slot);
        code = store_registry_get(c->cfg.db, account, host, a, &row, &miss);
        if (code != SBX_OK && code != SBX_E_NOT_FOUND)
            return err_set(err, code, "%s", miss.msg);
        if (code == SBX_OK) {
            if (open_text(c, a, "registry_credentials.password", row.registry_id, &row.password,
                          &slot->password, err))
                return err_wrap(err, "registry credential");
            slot->username = mem_strdup(row.username);
        }
        (void)str_copy(slot->account, sizeof(slot->account), account);
        (void)str_copy(slot->host, sizeof(slot->host), host);
        slot->read_ms = time_mono_ms();
    }
    *out = slot->password ? slot : NULL;
    return SBX_OK;
}

static void free_secret(void *s)
{
    secret_free(s);
}

static enum sbx_code backend_get(struct reconcile_calls *c, struct arena *a, const char *account,
                                 const char *region, struct region_backend *out,
                                 struct sbx_err *err)
{
    struct store_backend row = { 0 };
    struct secret *access = NULL, *key = NULL;

    if (store_backend_get(c->cfg.db, account, region, a, &row, err))
        return err_wrap(err, "storage backend");
    if (open_text(c, a, "storage_backends.access_key", row.backend_id, &row.access_key, &access,
                  err))
        return err_wrap(err, "storage access key");
    arena_defer(a, free_secret, access);
    if (open_text(c, a, "storage_backends.secret_key", row.backend_id, &row.secret_key, &key, err))
        return err_wrap(err, "storage secret key");
    arena_defer(a, free_secret, key);
    *out = (struct region_backend){
        .kind = row.kind,
        .path = row.path,
        .endpoint = row.endpoint,
        .bucket = row.bucket,
        .prefix = row.prefix,
        .s3_region = row.s3_region,
        .access_key = access ? secret_reveal(access) : NULL,
        .secret_key = key ? secret_reveal(key) : NULL,
    };
    return SBX_OK;
}

static enum sbx_code spec_of(struct reconcile_calls *c, struct arena *a,
                             const struct reconcile_call *call, const char *account,
                             const char *revision_id, struct region_deploy *out,
                             struct sbx_err *err)
{
    const struct store_revision *rev;
    const struct cached_registry *registry;
    struct resources size;

    if (revision_get(c, revision_id, &rev, err) ||
        registry_get(c, a, account, rev->image_digest, &registry, err))
        return err->code;
    size = resources_of(rev->z_clouds);
    *out = (struct region_deploy){
        .operation_id = call->operation_id,
        .generation = call->generation,
        .account_id = account,
        .image = rev->image_digest,
        .command = rev->command,
        .working_dir = rev->working_dir,
        .cpu_millis = size.cpu_limit_millis,
        .memory_mb = size.memory_limit_mb,
        .disk_mb = c->cfg.disk_mb,
        .network = rev->network_control,
        .mount_path = rev->mount_path,
        .volume_size_mb = rev->volume_size_mb,
        .snapshot_max_mb = rev->snapshot_max_mb,
        .persistence = SANDBOX_PERSISTENCE_EPHEMERAL,
    };
    if (registry) {
        out->registry_host = registry->host;
        out->registry_username = registry->username;
        out->registry_password = secret_reveal(registry->password);
    }
    return SBX_OK;
}

/* What one pause was allowed beyond the revision's cap comes back as well. */
static int restore_cap_mb(int revision_mb, int64_t snapshot_bytes)
{
    int64_t kept_mb = (snapshot_bytes + (1 << 20) - 1) >> 20;

    return kept_mb > revision_mb ? (int)kept_mb : revision_mb;
}

static enum sbx_code start_deploy(struct reconcile_calls *c, struct arena *a,
                                  const struct reconcile_call *call, struct pending *p,
                                  struct sbx_err *err)
{
    const struct store_sandbox *row = call->row;
    struct region_deploy spec;

    if (spec_of(c, a, call, row->account_id, row->revision_id, &spec, err))
        return err->code;
    spec.persistence = row->persistence_mode;
    spec.volume_name = row->volume_name;
    spec.personal = row->personal;
    spec.warm_id = row->suspended_at_ms == 0 ? row->warm_id : NULL;
    /* Only its own archive is restored (contract 5): it has one when it was paused before. */
    spec.restore = sandbox_persistence_snapshots(row->persistence_mode) && row->suspended_at_ms > 0;
    spec.snapshot_max_mb =
        restore_cap_mb(spec.snapshot_max_mb, row->persistence.last_snapshot_bytes);
    if (sandbox_persistence_has_volume(row->persistence_mode) &&
        backend_get(c, a, row->account_id, row->region, &spec.backend, err))
        return err->code;
    return gateway_client_deploy(c->cfg.gateways, call->region, call->id, &spec, on_done, p, err);
}

static enum sbx_code start_save(struct reconcile_calls *c, struct arena *a,
                                const struct reconcile_call *call, struct pending *p,
                                struct sbx_err *err)
{
    const struct store_sandbox *row = call->row;
    const struct store_revision *rev;
    struct region_snapshot spec = {
        .operation_id = call->operation_id,
        .generation = call->generation,
        .force = row->pause.force,
    };

    if (!sandbox_persistence_snapshots(row->persistence_mode))
        return gateway_client_stop(c->cfg.gateways, call->region, call->id, call->operation_id,
                                   call->generation, on_done, p, err);
    if (revision_get(c, row->revision_id, &rev, err) ||
        backend_get(c, a, row->account_id, row->region, &spec.backend, err))
        return err->code;
    spec.exclude = row->pause.exclude ? row->pause.exclude : rev->snapshot_exclude;
    spec.max_mb = row->pause.max_mb ? row->pause.max_mb : rev->snapshot_max_mb;
    return gateway_client_snapshot(c->cfg.gateways, call->region, call->id, &spec, on_done, p, err);
}

static enum sbx_code start_warm(struct reconcile_calls *c, struct arena *a,
                                const struct reconcile_call *call, struct pending *p,
                                struct sbx_err *err)
{
    struct region_deploy spec;

    if (spec_of(c, a, call, call->warm->account_id, call->warm->revision_id, &spec, err))
        return err->code;
    return gateway_client_warm(c->cfg.gateways, call->region, call->id, &spec, on_done, p, err);
}

static enum sbx_code start_purge(struct reconcile_calls *c, struct arena *a,
                                 const struct reconcile_call *call, struct pending *p,
                                 struct sbx_err *err)
{
    struct region_backend backend;

    if (backend_get(c, a, call->volume->account_id, call->region, &backend, err))
        return err->code;
    return gateway_client_volume_purge(c->cfg.gateways, call->region, call->volume->volume_name,
                                       call->volume->account_id, call->operation_id, &backend,
                                       on_done, p, err);
}

/* Only for a volume that compute of that region has: a gateway gets no credentials by asking. */
static enum sbx_code start_lend(struct reconcile_calls *c, struct arena *a,
                                const struct reconcile_call *call, struct pending *p,
                                struct sbx_err *err)
{
    const struct store_volume *v = call->volume;
    struct region_backend backend;
    bool held = false;

    if (store_volume_held(c->cfg.db, v->account_id, call->region, v->volume_name, &held, err))
        return err->code;
    if (!held)
        return err_set(err, SBX_E_NOT_FOUND, "no sandbox of the region has the volume");
    if (backend_get(c, a, v->account_id, call->region, &backend, err))
        return err->code;
    return gateway_client_volume_make(c->cfg.gateways, call->region, v->volume_name, v->account_id,
                                      call->operation_id, &backend, on_done, p, err);
}

static enum sbx_code start(void *self, const struct reconcile_call *call, struct sbx_err *err)
{
    struct reconcile_calls *c = self;
    struct gateway_client *g = c->cfg.gateways;
    SCOPED_ARENA struct arena *a = arena_new();
    struct pending *p = pending_new(c, call->token);
    enum sbx_code code = SBX_OK;

    switch (call->kind) {
    case RECONCILE_DEPLOY:
        code = start_deploy(c, a, call, p, err);
        break;
    case RECONCILE_DESTROY:
        code = gateway_client_destroy(g, call->region, call->id, call->operation_id,
                                      call->generation, on_done, p, err);
        break;
    case RECONCILE_SAVE:
        code = start_save(c, a, call, p, err);
        break;
    case RECONCILE_ASK:
        code = gateway_client_get(g, call->region, call->id, on_done, p, err);
        break;
    case RECONCILE_LIST:
        code = gateway_client_list(g, call->region, call->id[0] ? call->id : NULL,
                                   SBX_GATEWAY_LIST_MAX, on_done, p, err);
        break;
    case RECONCILE_WARM:
        code = start_warm(c, a, call, p, err);
        break;
    case RECONCILE_PURGE:
        code = start_purge(c, a, call, p, err);
        break;
    case RECONCILE_WANTS:
        code = gateway_client_volumes_wanting(g, call->region, on_done, p, err);
        break;
    case RECONCILE_LEND:
        code = start_lend(c, a, call, p, err);
        break;
    }
    if (code)
        pending_free(p);
    return code;
}

const struct reconcile_region_ops RECONCILE_CALLS = { .start = start };

/* --- regions ----------------------------------------------------------- */

static void set_endpoint(struct reconcile_calls *c, struct arena *a, const struct store_region *row)
{
    SCOPED_SECRET struct secret *secret = NULL;
    struct gateway_client_endpoint endpoint = { .region = row->region,
                                                .url = row->url,
                                                .socket = row->socket };
    struct sbx_err err = { 0 };

    if (open_text(c, a, "regions.secret", row->region, &row->secret, &secret, &err) == SBX_OK) {
        endpoint.secret = secret;
        if (gateway_client_endpoint_set(c->cfg.gateways, &endpoint, &err) == SBX_OK)
            return;
    }
    log_err(LOG_ERROR, "a region cannot be used", &err, LOG_S("region", row->region));
}

enum sbx_code reconcile_calls_regions(struct reconcile_calls *c, struct arena *a,
                                      const char *const **names, size_t *count, struct sbx_err *err)
{
    struct store_regions rows = { 0 };
    const char **list;

    if (store_region_list(c->cfg.db, a, &rows, err))
        return err_wrap(err, "regions");
    list = arena_zalloc(a, (rows.count + 1) * sizeof(*list));
    for (size_t i = 0; i < rows.count; i++) {
        list[i] = rows.rows[i].region;
        set_endpoint(c, a, &rows.rows[i]);
    }
    for (size_t k = 0; k < c->known_count; k++) {
        bool there = false;

        for (size_t i = 0; i < rows.count && !there; i++)
            there = strcmp(rows.rows[i].region, c->known[k]) == 0;
        if (!there)
            gateway_client_endpoint_drop(c->cfg.gateways, c->known[k]);
    }
    c->known = mem_realloc(c->known, (rows.count + 1) * sizeof(*c->known));
    for (size_t i = 0; i < rows.count; i++)
        (void)str_copy(c->known[i], sizeof(*c->known), rows.rows[i].region);
    c->known_count = rows.count;
    for (size_t i = 0; i < REGISTRIES_CACHED; i++)
        registry_clear(&c->registries[i]);
    *names = list;
    *count = rows.count;
    return SBX_OK;
}
