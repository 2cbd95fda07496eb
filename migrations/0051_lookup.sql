-- The look-up of a create by its key: on a database whose table had few rows when a session planned it,
-- the walk of the account's list cost the same as the unique index and was taken, and with each row
-- that came it cost more, until autovacuum looked at the table for the first time.

-- Creates a sandbox, or finds the one that the key names.  outcome: CREATED, FOUND, or the wire
-- name of the refusal, with `field` for a 400; nothing is written then.
-- quota_active is what the quota was held against: the bound, or the count when that was made.
-- The account row is locked before the second look-up, so two creates of one key, and two that
-- want the last place, go one after the other.  When the unique index is missing the insert's own
-- conflict clause fails (42P10) and the transaction with it.
-- The look-up is an ordered walk of one digest, and sorting is off: only the unique index has that
-- order, so it serves in every plan, whatever the statistics say when a session makes its plan.
CREATE OR REPLACE FUNCTION sandboxd.sandbox_create(p_sandbox_id text, p_account_id text, p_app_id text,
    p_template_id text, p_region text, p_profile text, p_owner_kind text, p_owner_id text,
    p_external_session_id text, p_caller_key text, p_digest bytea, p_mode text, p_volume_name text,
    p_request_id text, p_personal boolean)
RETURNS TABLE (outcome text, field text, quota_limit integer, quota_active integer,
    sandbox sandboxd.sandboxes)
LANGUAGE plpgsql SET search_path = pg_catalog SET enable_sort = off AS $$
DECLARE
    v_template sandboxd.templates;
    v_revision sandboxd.revisions;
    v_region sandboxd.regions;
    v_now timestamptz;
    v_status text;
    v_backend text;
    v_count integer;
BEGIN
    SELECT s.* INTO sandbox FROM sandboxd.sandboxes s
        WHERE s.account_id = p_account_id AND s.app_id = p_app_id AND s.caller_key = p_caller_key
            AND s.idempotency_digest BETWEEN p_digest AND p_digest
        ORDER BY s.idempotency_digest;
    IF FOUND THEN
        outcome := 'FOUND';
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT a.active_quota, a.active_bound INTO quota_limit, quota_active FROM sandboxd.accounts a
        WHERE a.account_id = p_account_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        outcome := 'NOT_FOUND'; field := 'accountId';
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT s.* INTO sandbox FROM sandboxd.sandboxes s
        WHERE s.account_id = p_account_id AND s.app_id = p_app_id AND s.caller_key = p_caller_key
            AND s.idempotency_digest BETWEEN p_digest AND p_digest
        ORDER BY s.idempotency_digest;
    IF FOUND THEN
        outcome := 'FOUND';
        RETURN NEXT;
        RETURN;
    END IF;
    -- A holder comes to be only while its run allocates: a late try after the cleanup finds that out.
    IF p_personal THEN
        SELECT o.phase INTO v_status FROM sandboxd.operations o WHERE o.sandbox_id = p_sandbox_id
            FOR SHARE;
        IF FOUND AND v_status <> 'allocating' THEN
            outcome := 'CONFLICT';
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;

    PERFORM FROM sandboxd.apps a WHERE a.app_id = p_app_id AND a.account_id = p_account_id;
    IF NOT FOUND THEN
        outcome := 'NOT_FOUND'; field := 'appId';
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT t.* INTO v_template FROM sandboxd.templates t
        WHERE t.template_id = p_template_id AND t.account_id = p_account_id;
    IF NOT FOUND THEN
        outcome := 'NOT_FOUND'; field := 'templateId';
    ELSIF v_template.app_id <> p_app_id THEN
        outcome := 'TEMPLATE_OTHER_APP';
    ELSIF NOT v_template.enabled THEN
        outcome := 'TEMPLATE_DISABLED';
    ELSIF v_template.deprecated_at IS NOT NULL THEN
        outcome := 'TEMPLATE_DEPRECATED';
    ELSIF v_template.current_revision = 0 THEN
        outcome := 'TEMPLATE_HAS_NO_REVISION';
    END IF;
    IF outcome IS NOT NULL THEN
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT r.* INTO STRICT v_revision FROM sandboxd.revisions r
        WHERE r.template_id = p_template_id AND r.revision = v_template.current_revision;

    SELECT r.* INTO v_region FROM sandboxd.regions r WHERE r.region = p_region;
    IF NOT FOUND THEN
        outcome := 'REGION_UNKNOWN'; field := 'region';
    ELSIF NOT EXISTS (SELECT FROM sandboxd.region_access x
            WHERE x.account_id = p_account_id AND x.region = p_region) THEN
        outcome := 'REGION_FORBIDDEN';
    ELSIF NOT v_region.sandboxes THEN
        outcome := 'REGION_WITHOUT_SANDBOXES';
    ELSIF NOT v_region.enabled THEN
        outcome := 'REGION_DISABLED';
    END IF;
    IF outcome IS NOT NULL THEN
        RETURN NEXT;
        RETURN;
    END IF;

    p_mode := coalesce(p_mode, v_revision.persistence_mode);
    IF p_mode = 'EPHEMERAL' THEN
        IF p_volume_name IS NOT NULL THEN
            outcome := 'INVALID_REQUEST'; field := 'volumeName';
            RETURN NEXT;
            RETURN;
        END IF;
    ELSE
        IF v_revision.warm_pool THEN
            outcome := 'INVALID_REQUEST'; field := 'persistenceMode';
            RETURN NEXT;
            RETURN;
        END IF;
        IF p_volume_name IS NOT NULL THEN
            SELECT v.status INTO v_status FROM sandboxd.volumes v
                WHERE v.account_id = p_account_id AND v.region = p_region
                    AND v.volume_name = p_volume_name FOR SHARE;
            IF NOT FOUND THEN
                outcome := 'NOT_FOUND'; field := 'volumeName';
            ELSIF v_status <> 'ACTIVE' THEN
                outcome := 'VOLUME_PENDING_PURGE';
            END IF;
        END IF;
        IF outcome IS NULL AND NOT EXISTS (SELECT FROM sandboxd.storage_backends b
                WHERE b.account_id = p_account_id AND b.region = p_region) THEN
            outcome := 'NO_OBJECT_STORAGE_BACKEND';
        END IF;
        IF outcome IS NOT NULL THEN
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;

    IF quota_active >= quota_limit THEN
        quota_active := sandboxd.account_recount(p_account_id);
        IF quota_active >= quota_limit THEN
            outcome := 'QUOTA_EXCEEDED';
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;

    v_now := date_trunc('milliseconds', clock_timestamp());
    INSERT INTO sandboxd.sandboxes AS s (sandbox_id, account_id, app_id, template_id, revision_id,
            revision, region, profile, owner_kind, owner_id, external_session_id, caller_key,
            idempotency_digest, request_id, persistence_mode, volume_name, resources, personal,
            status, desired_status, idle_timeout_s, suspended_retention_s, created_at, updated_at,
            expires_at, status_since, next_action_at)
        VALUES (p_sandbox_id, p_account_id, p_app_id, p_template_id, v_revision.revision_id,
            v_revision.revision, p_region, p_profile, p_owner_kind, p_owner_id,
            p_external_session_id, p_caller_key, p_digest, p_request_id, p_mode,
            CASE WHEN p_mode <> 'EPHEMERAL' THEN coalesce(p_volume_name, 'sbvol-' || p_sandbox_id) END,
            v_revision.resources, p_personal, 'REQUESTED', NULL, v_revision.idle_timeout_s,
            v_revision.suspended_retention_s, v_now, v_now,
            v_now + v_revision.hard_lifetime_s * interval '1 second', v_now, v_now)
        ON CONFLICT (account_id, app_id, caller_key, idempotency_digest) DO NOTHING
        RETURNING s.* INTO sandbox;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    IF v_count = 0 THEN
        -- Only an insert that did not go through here can get before us: the account row is ours.
        SELECT s.* INTO STRICT sandbox FROM sandboxd.sandboxes s
            WHERE s.account_id = p_account_id AND s.app_id = p_app_id AND s.caller_key = p_caller_key
                AND s.idempotency_digest BETWEEN p_digest AND p_digest
            ORDER BY s.idempotency_digest;
        outcome := 'FOUND';
        RETURN NEXT;
        RETURN;
    END IF;

    IF p_mode <> 'EPHEMERAL' AND p_volume_name IS NULL THEN
        INSERT INTO sandboxd.volumes (account_id, region, volume_name, size_mb)
            VALUES (p_account_id, p_region, sandbox.volume_name, v_revision.volume_size_mb);
    END IF;
    IF v_revision.warm_pool AND NOT p_personal THEN
        UPDATE sandboxd.warm_members w
            SET status = 'CLAIMED', sandbox_id = p_sandbox_id, generation = w.generation + 1
            WHERE w.warm_id = (SELECT m.warm_id FROM sandboxd.warm_members m
                WHERE m.revision_id = v_revision.revision_id AND m.region = p_region
                    AND m.status = 'READY'
                ORDER BY m.ready_at LIMIT 1 FOR UPDATE SKIP LOCKED)
            RETURNING w.warm_id INTO sandbox.warm_id;
        IF FOUND THEN
            UPDATE sandboxd.sandboxes s SET warm_id = sandbox.warm_id WHERE s.sandbox_id = p_sandbox_id;
        END IF;
    END IF;
    INSERT INTO sandboxd.sandbox_events (sandbox_id, slot, generation, to_status, cause, actor, request_id)
        VALUES (p_sandbox_id, 0, 0, 'REQUESTED', 'create', p_caller_key, p_request_id);
    outcome := 'CREATED';
    quota_active := quota_active + 1;
    RETURN NEXT;
END
$$;
