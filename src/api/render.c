#include "api/render.h"

#include <string.h>

/* The default of persistentWorkspace.mountPath (seed). */
static const char MOUNT_PATH[] = "/workspace/persist";

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

static json_t *persistence(const struct store_sandbox *s)
{
    const struct store_persistence *p = &s->persistence;
    json_t *j;

    if (!sandbox_persistence_has_volume(s->persistence_mode))
        return NULL;
    j = json_object();
    json_put_str(j, "mountPath", p->mount_path);
    json_put_time(j, "lastSnapshotAt", p->last_snapshot_at_ms);
    if (p->last_snapshot_at_ms != 0)
        json_put_int(j, "lastSnapshotBytes", p->last_snapshot_bytes);
    json_put_str(j, "lastSnapshotError", p->last_snapshot_error);
    if (json_object_size(j) == 0) {
        json_decref(j);
        return NULL;
    }
    return j;
}

static void put_outcome(json_t *j, const struct store_sandbox *s)
{
    const uint32_t ended = SANDBOX_BIT(SANDBOX_TERMINATING) | SANDBOX_BIT(SANDBOX_TERMINATED);

    if (s->end_reason != SANDBOX_END_NONE && sandbox_status_in(s->status, ended))
        json_put_str(j, "terminationReason", sandbox_end_reason_name(s->end_reason));
    if (s->fault != SANDBOX_FAULT_NONE) {
        json_put_str(j, "errorCode", sandbox_fault_name(s->fault));
        json_put_bool(j, "errorRetryable", sandbox_fault_retryable(s->fault));
    }
}

static void put_times(json_t *j, const struct store_sandbox *s)
{
    json_put_time(j, "claimedAt", s->claimed_at_ms);
    json_put_time(j, "readyAt", s->ready_at_ms);
    json_put_time(j, "lastActiveAt", s->last_active_at_ms);
    json_put_time(j, "suspendedAt", s->suspended_at_ms);
    json_put_time(j, "resumedAt", s->resumed_at_ms);
    json_put_time(j, "terminatedAt", s->terminated_at_ms);
    json_put_time(j, "expiresAt", s->expires_at_ms);
    json_put_time(j, "createdAt", s->created_at_ms);
    json_put_time(j, "updatedAt", s->updated_at_ms);
}

json_t *api_render_sandbox(const struct store_sandbox *s)
{
    json_t *j = json_object();

    json_put_str(j, "sandboxId", s->sandbox_id);
    json_put_str(j, "accountId", s->account_id);
    json_put_str(j, "appId", s->app_id);
    json_put_str(j, "templateId", s->template_id);
    json_put_str(j, "templateRevisionId", s->revision_id);
    json_put_int(j, "templateRevisionNumber", s->revision);
    json_put_str(j, "region", s->region);
    json_put_str(j, "workloadProfile", s->profile);
    json_put_str(j, "isolationProfile", "GVISOR");
    json_put_str(j, "persistenceMode", sandbox_persistence_name(s->persistence_mode));
    json_put_str(j, "volumeName", s->volume_name);
    json_put_new(j, "persistence", persistence(s));
    json_put_str(j, "ownerKind", s->owner_kind);
    json_put_str(j, "ownerId", s->owner_id);
    json_put_str(j, "externalSessionId", s->external_session_id);
    json_put_str(j, "callerKey", s->caller_key);
    json_put_str(j, "status", sandbox_status_name(s->status));
    json_put_str(j, "statusReason", or_null(s->status_reason));
    if (s->desired != SANDBOX_STATUS_NONE && s->desired != s->status)
        json_put_str(j, "desiredStatus", sandbox_status_name(s->desired));
    json_put_int(j, "generation", s->generation);
    json_put_bool(j, "isWarmAllocation", s->is_warm);
    json_put_new(j, "resources", json_from_text(s->resources));
    put_times(j, s);
    put_outcome(j, s);
    json_put_str(j, "correlationId", s->request_id);
    return j;
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
