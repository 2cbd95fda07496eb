-- What must be one transaction and is worth only one round trip.

CREATE FUNCTION sandboxd.span(p_ms bigint) RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN p_ms * interval '1 millisecond';
COMMENT ON FUNCTION sandboxd.span(bigint) IS 'Milliseconds as an interval.';

CREATE FUNCTION sandboxd.due_at(p_status text, p_desired text, p_personal boolean,
    p_last_active_at timestamptz, p_idle_timeout_s integer, p_expires_at timestamptz, p_suspended_at timestamptz,
    p_retention_s integer, p_deadline_at timestamptz)
RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE
    WHEN p_desired = 'TERMINATED' AND p_status IN ('READY', 'BUSY', 'SUSPENDED') THEN now()
    WHEN p_status = 'READY' THEN least(p_expires_at,
        CASE WHEN NOT p_personal THEN p_last_active_at + p_idle_timeout_s * interval '1 second' END)
    WHEN p_status = 'BUSY' THEN least(p_expires_at,
        CASE WHEN NOT p_personal THEN now() + p_idle_timeout_s * interval '1 second' END)
    WHEN p_status = 'SUSPENDED' THEN least(p_expires_at, p_suspended_at + p_retention_s * interval '1 second')
    WHEN p_status IN ('FAILED', 'TERMINATING') THEN now()
    WHEN p_status <> 'TERMINATED' THEN least(p_expires_at, p_deadline_at)
END;
COMMENT ON FUNCTION sandboxd.due_at(text, text, boolean, timestamptz, integer, timestamptz, timestamptz, integer, timestamptz)
    IS 'When the timers of a status want a look at the row: idle, hard lifetime, retention, deadline.';

CREATE FUNCTION sandboxd.next_action(p_mode integer, p_in_ms bigint, p_due timestamptz)
RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE
    WHEN p_mode = 2 THEN NULL
    WHEN p_mode = 0 THEN greatest(p_due, now())
    WHEN p_due > now() THEN least(p_due, now() + sandboxd.span(p_in_ms))
    ELSE now() + sandboxd.span(p_in_ms)
END;
COMMENT ON FUNCTION sandboxd.next_action(integer, bigint, timestamptz)
    IS 'Mode 0: by the timers. 1: p_in_ms from now, or at a timer that comes sooner. 2: never.';

CREATE FUNCTION sandboxd.account_active(p_account_id text) RETURNS bigint
LANGUAGE sql STABLE
RETURN (SELECT count(*) FROM sandboxd.sandboxes s WHERE s.account_id = p_account_id AND s.holds_compute);
COMMENT ON FUNCTION sandboxd.account_active(text) IS 'What counts in the quota: sandboxes that hold compute or are about to.';

-- Creates a sandbox, or finds the one that the key names.  outcome: CREATED, FOUND, or the wire
-- name of the refusal, with `field` for a 400; nothing is written then.
-- The account row is locked before the second look-up, so two creates of one key, and two that
-- want the last place, go one after the other.  When the unique index is missing the insert's own
-- conflict clause fails (42P10) and the transaction with it.
CREATE FUNCTION sandboxd.sandbox_create(p_sandbox_id text, p_account_id text, p_app_id text,
    p_template_id text, p_region text, p_profile text, p_owner_kind text, p_owner_id text,
    p_external_session_id text, p_caller_key text, p_digest bytea, p_mode text, p_volume_name text,
    p_request_id text, p_personal boolean)
RETURNS TABLE (outcome text, field text, quota_limit integer, quota_active integer,
    sandbox sandboxd.sandboxes)
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
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
        WHERE s.account_id = p_account_id AND s.app_id = p_app_id
            AND s.caller_key = p_caller_key AND s.idempotency_digest = p_digest;
    IF FOUND THEN
        outcome := 'FOUND';
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT a.active_quota INTO quota_limit FROM sandboxd.accounts a
        WHERE a.account_id = p_account_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        outcome := 'NOT_FOUND'; field := 'accountId';
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT s.* INTO sandbox FROM sandboxd.sandboxes s
        WHERE s.account_id = p_account_id AND s.app_id = p_app_id
            AND s.caller_key = p_caller_key AND s.idempotency_digest = p_digest;
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

    quota_active := sandboxd.account_active(p_account_id);
    IF quota_active >= quota_limit THEN
        outcome := 'QUOTA_EXCEEDED';
        RETURN NEXT;
        RETURN;
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
            WHERE s.account_id = p_account_id AND s.app_id = p_app_id
                AND s.caller_key = p_caller_key AND s.idempotency_digest = p_digest;
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
COMMENT ON FUNCTION sandboxd.sandbox_create(text, text, text, text, text, text, text, text, text, text, bytea, text, text, text, boolean)
    IS 'Creates a sandbox, or finds the one that its idempotency key names.';

-- SUSPENDED to RESUMING under the same lock and count as a create.  outcome: RESUMED, UNCHANGED, or
-- the wire name of the refusal.
CREATE FUNCTION sandboxd.sandbox_resume(p_account_id text, p_sandbox_id text, p_actor text,
    p_request_id text, p_operation_id text, p_deadline_ms bigint)
RETURNS TABLE (outcome text, quota_limit integer, quota_active integer, sandbox sandboxd.sandboxes)
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    SELECT a.active_quota INTO quota_limit FROM sandboxd.accounts a
        WHERE a.account_id = p_account_id FOR NO KEY UPDATE;
    SELECT s.* INTO sandbox FROM sandboxd.sandboxes s
        WHERE s.sandbox_id = p_sandbox_id AND s.account_id = p_account_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        outcome := 'NOT_FOUND';
    ELSIF sandbox.personal THEN
        outcome := 'PERSONAL_RUNTIME';
    ELSIF sandbox.status IN ('RESUMING', 'READY', 'BUSY') THEN
        outcome := 'UNCHANGED';
    ELSIF sandbox.status <> 'SUSPENDED' OR sandbox.desired_status = 'TERMINATED' THEN
        outcome := 'CONFLICT'; -- also: an end was asked for while the pause was under way
    ELSE
        quota_active := sandboxd.account_active(p_account_id);
        IF quota_active >= quota_limit THEN
            outcome := 'QUOTA_EXCEEDED';
        END IF;
    END IF;
    IF outcome IS NOT NULL THEN
        RETURN NEXT;
        RETURN;
    END IF;
    UPDATE sandboxd.sandboxes s SET status = 'RESUMING', previous_status = s.status,
            desired_status = 'READY', generation = s.generation + 1, status_reason = NULL,
            holds_compute = true, operation_id = p_operation_id, move_count = s.move_count + 1,
            updated_at = now(), status_since = now(), next_action_at = now(), lease_owner = NULL,
            lease_until = NULL, attempt = 0, last_error = NULL,
            deadline_at = now() + sandboxd.span(p_deadline_ms)
        WHERE s.sandbox_id = p_sandbox_id AND s.generation = sandbox.generation
            AND s.status = 'SUSPENDED'
        RETURNING s.* INTO STRICT sandbox;
    INSERT INTO sandboxd.sandbox_events AS e (sandbox_id, slot, generation, from_status, to_status,
            cause, actor, request_id)
        VALUES (p_sandbox_id, (sandbox.move_count - 1) % 192, sandbox.generation, 'SUSPENDED',
            'RESUMING', 'resume', p_actor, p_request_id)
        ON CONFLICT (sandbox_id, slot) DO UPDATE SET at = excluded.at, generation = excluded.generation,
            from_status = excluded.from_status, to_status = excluded.to_status, cause = excluded.cause,
            actor = excluded.actor, request_id = excluded.request_id, reason = excluded.reason;
    outcome := 'RESUMED';
    quota_active := quota_active + 1;
    RETURN NEXT;
END
$$;
COMMENT ON FUNCTION sandboxd.sandbox_resume(text, text, text, text, text, bigint)
    IS 'SUSPENDED to RESUMING, when the quota has a place.';

-- ACTIVE to PENDING_PURGE unless a sandbox that has not ended has it.
CREATE FUNCTION sandboxd.volume_remove(p_account_id text, p_region text, p_volume_name text, p_delay_ms bigint)
RETURNS TABLE (outcome text, volume sandboxd.volumes)
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    -- A create that takes the volume holds it FOR SHARE until it has committed.
    SELECT v.* INTO volume FROM sandboxd.volumes v
        WHERE v.account_id = p_account_id AND v.region = p_region AND v.volume_name = p_volume_name
        FOR UPDATE;
    IF NOT FOUND THEN
        outcome := 'NOT_FOUND';
    ELSIF volume.status = 'PENDING_PURGE' THEN
        outcome := 'OK';
    ELSIF EXISTS (SELECT FROM sandboxd.sandboxes s WHERE s.account_id = p_account_id
            AND s.region = p_region AND s.volume_name = p_volume_name AND NOT s.ended) THEN
        outcome := 'VOLUME_IN_USE';
    ELSE
        UPDATE sandboxd.volumes v SET status = 'PENDING_PURGE', updated_at = now(),
                purge_at = now() + sandboxd.span(p_delay_ms)
            WHERE v.account_id = p_account_id AND v.region = p_region AND v.volume_name = p_volume_name
            RETURNING v.* INTO volume;
        outcome := 'OK';
    END IF;
    RETURN NEXT;
END
$$;
COMMENT ON FUNCTION sandboxd.volume_remove(text, text, text, bigint) IS 'ACTIVE to PENDING_PURGE unless the volume is in use.';
