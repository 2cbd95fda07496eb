#include "api/render.h"

#include <assert.h>
#include <string.h>

#include "sbx/limits.h"

/* The default of persistentWorkspace.mountPath (seed). */
static const char MOUNT_PATH[] = "/workspace/persist";

enum { SANDBOX_TEXT_MAX = SBX_MIB(1) }; /* its texts are bounded by the field tables */

static const char *or_null(const char *text)
{
    return text != NULL && text[0] != '\0' ? text : NULL;
}

json_t *api_render_list(const char *list)
{
    json_t *j = NULL;

    if (list == NULL)
        return NULL;
    j = json_array();
    while (*list != '\0') {
        size_t n = strcspn(list, ",");

        (void)json_array_append_new(j, json_stringn(list, n));
        list += n + (list[n] == ',');
    }
    return j;
}

json_t *api_render_resources(struct resources r)
{
    return json_pack("{s:i, s:{s:i, s:i}, s:{s:i, s:i}}", "zClouds", r.zclouds, "cpu",
                     "requestMillicores", r.cpu_request_millis, "limitMillicores",
                     r.cpu_limit_millis, "memory", "requestMb", r.memory_request_mb, "limitMb",
                     r.memory_limit_mb);
}

static void write_persistence(struct json_out *o, const struct store_sandbox *s)
{
    const struct store_persistence *p = &s->persistence;

    if (!sandbox_persistence_has_volume(s->persistence_mode) ||
        (p->mount_path == NULL && p->last_snapshot_at_ms == 0 && p->last_snapshot_error == NULL))
        return;
    json_out_open(o, "persistence", '{');
    json_out_str(o, "mountPath", p->mount_path);
    json_out_time(o, "lastSnapshotAt", p->last_snapshot_at_ms);
    if (p->last_snapshot_at_ms != 0)
        json_out_int(o, "lastSnapshotBytes", p->last_snapshot_bytes);
    json_out_str(o, "lastSnapshotError", p->last_snapshot_error);
    json_out_close(o, '}');
}

static void write_outcome(struct json_out *o, const struct store_sandbox *s)
{
    const uint32_t ended = SANDBOX_BIT(SANDBOX_TERMINATING) | SANDBOX_BIT(SANDBOX_TERMINATED);

    if (s->end_reason != SANDBOX_END_NONE && sandbox_status_in(s->status, ended))
        json_out_str(o, "terminationReason", sandbox_end_reason_name(s->end_reason));
    if (s->fault != SANDBOX_FAULT_NONE) {
        json_out_str(o, "errorCode", sandbox_fault_name(s->fault));
        json_out_bool(o, "errorRetryable", sandbox_fault_retryable(s->fault));
    }
}

static void write_times(struct json_out *o, const struct store_sandbox *s)
{
    json_out_time(o, "claimedAt", s->claimed_at_ms);
    json_out_time(o, "readyAt", s->ready_at_ms);
    json_out_time(o, "lastActiveAt", s->last_active_at_ms);
    json_out_time(o, "suspendedAt", s->suspended_at_ms);
    json_out_time(o, "resumedAt", s->resumed_at_ms);
    json_out_time(o, "terminatedAt", s->terminated_at_ms);
    json_out_time(o, "expiresAt", s->expires_at_ms);
    json_out_time(o, "createdAt", s->created_at_ms);
    json_out_time(o, "updatedAt", s->updated_at_ms);
}

void api_write_sandbox(struct json_out *o, const char *key, const struct store_sandbox *s)
{
    json_out_open(o, key, '{');
    json_out_str(o, "sandboxId", s->sandbox_id);
    json_out_str(o, "accountId", s->account_id);
    json_out_str(o, "appId", s->app_id);
    json_out_str(o, "templateId", s->template_id);
    json_out_str(o, "templateRevisionId", s->revision_id);
    json_out_int(o, "templateRevisionNumber", s->revision);
    json_out_str(o, "region", s->region);
    json_out_str(o, "workloadProfile", s->profile);
    json_out_str(o, "isolationProfile", "GVISOR");
    json_out_str(o, "persistenceMode", sandbox_persistence_name(s->persistence_mode));
    json_out_str(o, "volumeName", s->volume_name);
    write_persistence(o, s);
    json_out_str(o, "ownerKind", s->owner_kind);
    json_out_str(o, "ownerId", s->owner_id);
    json_out_str(o, "externalSessionId", s->external_session_id);
    json_out_str(o, "callerKey", s->caller_key);
    json_out_str(o, "status", sandbox_status_name(s->status));
    json_out_str(o, "statusReason", or_null(s->status_reason));
    if (s->desired != SANDBOX_STATUS_NONE && s->desired != s->status)
        json_out_str(o, "desiredStatus", sandbox_status_name(s->desired));
    json_out_int(o, "generation", s->generation);
    json_out_bool(o, "isWarmAllocation", s->is_warm);
    json_out_text(o, "resources", s->resources);
    write_times(o, s);
    write_outcome(o, s);
    json_out_str(o, "correlationId", s->request_id);
    json_out_close(o, '}');
}

json_t *api_render_sandbox(const struct store_sandbox *s)
{
    SCOPED_BUF struct buf text = BUF_INIT(SANDBOX_TEXT_MAX);
    struct json_out o = { .to = &text };

    api_write_sandbox(&o, NULL, s);
    assert(!text.full);
    return json_from_text(text.data);
}

json_t *api_render_template(const struct store_template *t)
{
    json_t *j = json_object();

    json_put_str(j, "templateId", t->template_id);
    json_put_str(j, "accountId", t->account_id);
    json_put_str(j, "appId", t->app_id);
    json_put_str(j, "name", t->name);
    json_put_str(j, "slug", t->slug);
    json_put_str(j, "description", or_null(t->description)); /* "" cleared it */
    json_put_bool(j, "enabled", t->enabled);
    json_put_time(j, "deprecatedAt", t->deprecated_at_ms);
    if (t->current_revision != 0)
        json_put_int(j, "currentRevisionNumber", t->current_revision);
    json_put_time(j, "createdAt", t->created_at_ms);
    json_put_time(j, "updatedAt", t->updated_at_ms);
    return j;
}

/* Volume and snapshot settings are shown where the default mode uses them, or where they were
 * given (and are not the default) for a sandbox that overrides the mode. */
static void put_workspace(json_t *j, const struct store_revision *r)
{
    if (sandbox_persistence_has_volume(r->persistence) || r->mount_path != NULL ||
        r->volume_size_mb != API_VOLUME_MB_DEFAULT) {
        json_t *w = json_object();

        json_put_int(w, "sizeMb", r->volume_size_mb);
        json_put_str(w, "mountPath", r->mount_path != NULL ? r->mount_path : MOUNT_PATH);
        json_put_new(j, "persistentWorkspace", w);
    }
    json_put_new(j, "snapshotExclude", json_from_text(r->snapshot_exclude));
    if (sandbox_persistence_snapshots(r->persistence) || r->snapshot_exclude != NULL ||
        r->snapshot_max_mb != API_SNAPSHOT_MB_DEFAULT)
        json_put_int(j, "snapshotMaxMb", r->snapshot_max_mb);
}

json_t *api_render_revision(const struct store_revision *r)
{
    json_t *j = json_object();

    json_put_str(j, "revisionId", r->revision_id);
    json_put_str(j, "templateId", r->template_id);
    json_put_int(j, "revision", r->revision);
    json_put_str(j, "imageDigest", r->image_digest);
    json_put_str(j, "imageRef", r->image_ref);
    json_put_new(j, "command", json_from_text(r->command));
    json_put_str(j, "workingDir", r->working_dir);
    json_put_new(j, "ports", json_from_text(r->ports));
    json_put_new(j, "resources", json_from_text(r->resources));
    json_put_str(j, "persistenceMode", sandbox_persistence_name(r->persistence));
    put_workspace(j, r);
    json_put_str(j, "isolationProfile", "GVISOR");
    json_put_int(j, "idleTimeoutSeconds", r->idle_timeout_s);
    json_put_int(j, "hardLifetimeSeconds", r->hard_lifetime_s);
    json_put_int(j, "suspendedRetentionSeconds", r->suspended_retention_s);
    if (r->warm_pool) {
        json_t *w = json_object();

        json_put_int(w, "desired", r->warm_desired);
        json_put_int(w, "min", r->warm_min);
        json_put_int(w, "max", r->warm_max);
        json_put_new(w, "regions", api_render_list(or_null(r->warm_regions)));
        json_put_new(j, "warmPool", w);
    }
    json_put_new(j, "networkControl", json_from_text(r->network_control));
    json_put_time(j, "createdAt", r->created_at_ms);
    return j;
}

json_t *api_render_volume(const struct store_volume *v)
{
    json_t *j = json_object();

    json_put_str(j, "volumeName", v->volume_name);
    json_put_str(j, "accountId", v->account_id);
    json_put_str(j, "region", v->region);
    json_put_str(j, "status", v->pending_purge ? "PENDING_PURGE" : "ACTIVE");
    json_put_int(j, "sizeMb", v->size_mb);
    json_put_time(j, "createdAt", v->created_at_ms);
    json_put_time(j, "updatedAt", v->updated_at_ms);
    if (v->pending_purge)
        json_put_time(j, "purgeAt", v->purge_at_ms);
    return j;
}
