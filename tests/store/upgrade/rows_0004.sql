INSERT INTO sandboxd.sandboxes (sandbox_id, account_id, app_id, template_id, revision_id, revision, region, profile,
        owner_kind, owner_id, caller_key, idempotency_digest, persistence_mode, volume_name, resources, status, running,
        holds_compute, idle_timeout_s, suspended_retention_s, created_at, updated_at, terminated_at, expires_at, status_since)
    SELECT '01SANDBOX0000000000000000' || n, '01ACCOUNT00000000000000000', '01APP000000000000000000000',
           '01TEMPLATE0000000000000000', '01REVISION0000000000000000', 1, 'here-1', 'TESS_CODE_TURN', 'EXTERNAL_SESSION',
           'owner', 'user:01USER00000000000000000000', sha256(status::bytea), 'SNAPSHOT', 'sbvol-one', '{"zClouds": 1}',
           status, CASE status WHEN 'BUSY' THEN 1 ELSE 0 END, status NOT IN ('SUSPENDED', 'TERMINATED'), 1800, 604800,
           now(), now(), CASE status WHEN 'TERMINATED' THEN now() END, now() + interval '1 hour', now()
      FROM unnest(ARRAY['REQUESTED', 'READY', 'BUSY', 'SUSPENDED', 'FAILED', 'TERMINATED']) WITH ORDINALITY AS s (status, n);
INSERT INTO sandboxd.executions (execution_id, sandbox_id, account_id, instance, actor, generation, deadline_at)
    VALUES ('01EXECUTION000000000000000', '01SANDBOX00000000000000003', '01ACCOUNT00000000000000000', 'instance-1',
            'user:01USER00000000000000000000', 4, now() + interval '2 minutes');
INSERT INTO sandboxd.sandbox_events (sandbox_id, slot, generation, to_status, cause, actor)
    VALUES ('01SANDBOX00000000000000001', 0, 0, 'REQUESTED', 'create', 'user:01USER00000000000000000000');
INSERT INTO sandboxd.warm_members (warm_id, account_id, revision_id, region, status, deadline_at)
    VALUES ('01WARM00000000000000000000', '01ACCOUNT00000000000000000', '01REVISION0000000000000000', 'here-1', 'READY',
            now() + interval '1 hour');
INSERT INTO sandboxd.instances (instance) VALUES ('instance-1');
