-- Statements that programs of schema 0041 prepare.
-- account_create
INSERT INTO sandboxd.accounts AS a (account_id, name) VALUES ($1, $2) RETURNING a.account_id, a.name, a.entitled, a.active_quota, a.created_at
;
-- account_get
SELECT a.account_id, a.name, a.entitled, a.active_quota, a.created_at FROM sandboxd.accounts a WHERE a.account_id = $1
;
-- account_list
SELECT a.account_id, a.name, a.entitled, a.active_quota, a.created_at FROM sandboxd.accounts a WHERE a.account_id > coalesce($1, '') ORDER BY a.account_id LIMIT $2
;
-- account_entitle
UPDATE sandboxd.accounts a SET entitled = $2 WHERE a.account_id = $1 RETURNING a.account_id, a.name, a.entitled, a.active_quota, a.created_at
;
-- account_quota
UPDATE sandboxd.accounts a SET active_quota = $2 WHERE a.account_id = $1 RETURNING a.account_id, a.name, a.entitled, a.active_quota, a.created_at
;
-- user_create
INSERT INTO sandboxd.users AS u (user_id, email, subject) VALUES ($1, $2, $3) RETURNING u.user_id, u.email, u.subject, u.created_at
;
-- user_get
SELECT u.user_id, u.email, u.subject, u.created_at FROM sandboxd.users u WHERE u.user_id = $1
;
-- user_list
SELECT u.user_id, u.email, u.subject, u.created_at FROM sandboxd.users u WHERE u.user_id > coalesce($1, '') ORDER BY u.user_id LIMIT $2
;
-- member_add
WITH m AS (INSERT INTO sandboxd.members AS m (account_id, user_id, roles) VALUES ($1, $2, ARRAY(SELECT DISTINCT x FROM unnest(string_to_array($3, ',')) AS x ORDER BY x)) ON CONFLICT (account_id, user_id) DO UPDATE SET roles = excluded.roles RETURNING m.*) SELECT m.account_id, m.user_id, u.email, array_to_string(m.roles, ','), m.created_at FROM m JOIN sandboxd.users u USING (user_id)
;
-- member_remove
DELETE FROM sandboxd.members m WHERE m.account_id = $1 AND m.user_id = $2 RETURNING m.user_id
;
-- member_list
SELECT m.account_id, m.user_id, u.email, array_to_string(m.roles, ','), m.created_at FROM sandboxd.members m JOIN sandboxd.users u USING (user_id) WHERE m.account_id = $1 ORDER BY m.user_id LIMIT $2
;
-- access_get
SELECT a.entitled, array_to_string(m.roles, ','), a.active_quota FROM sandboxd.accounts a JOIN sandboxd.members m USING (account_id) WHERE a.account_id = $1 AND m.user_id = $2
;
-- app_create
INSERT INTO sandboxd.apps AS p (app_id, account_id, name) VALUES ($1, $2, $3) RETURNING p.app_id, p.account_id, p.name, p.created_at
;
-- app_get
SELECT p.app_id, p.account_id, p.name, p.created_at FROM sandboxd.apps p WHERE p.account_id = $1 AND p.app_id = $2
;
-- app_list
SELECT p.app_id, p.account_id, p.name, p.created_at FROM sandboxd.apps p WHERE p.account_id = $1 ORDER BY p.app_id LIMIT $2
;
-- issuer_add
WITH i AS (INSERT INTO sandboxd.oauth_issuers AS i (issuer, audience, jwks, jwks_url) VALUES ($1, $2, $3::jsonb, $4) ON CONFLICT (issuer) DO UPDATE SET audience = excluded.audience, jwks = excluded.jwks, jwks_url = excluded.jwks_url RETURNING i.*), n AS (SELECT pg_notify('sandboxd_config', 'issuer')) SELECT i.issuer, i.audience, i.jwks, i.jwks_url, i.created_at FROM i, n
;
-- issuer_remove
WITH i AS (DELETE FROM sandboxd.oauth_issuers i WHERE i.issuer = $1 RETURNING i.issuer) SELECT pg_notify('sandboxd_config', 'issuer'), pg_notify('sandboxd_revoked', '*') FROM i
;
-- issuer_list
SELECT i.issuer, i.audience, i.jwks, i.jwks_url, i.created_at FROM sandboxd.oauth_issuers i ORDER BY i.issuer LIMIT $1
;
-- issuer_link
WITH l AS (INSERT INTO sandboxd.oauth_links AS l (issuer, subject, user_id) VALUES ($1, $2, $3) ON CONFLICT (issuer, subject) DO UPDATE SET user_id = excluded.user_id RETURNING l.user_id) SELECT pg_notify('sandboxd_revoked', '*') FROM l
;
-- issuer_user
SELECT l.user_id FROM sandboxd.oauth_links l WHERE l.issuer = $1 AND l.subject = $2
;
-- token_create
INSERT INTO sandboxd.tokens AS t (token_id, digest, kind, user_id, account_id, principal_id, scopes, name, expires_at) VALUES ($1, $2, $3, $4, $5, $6, ARRAY(SELECT DISTINCT x FROM unnest(string_to_array($7, ',')) AS x ORDER BY x), $8, now() + $9::bigint * interval '1 second') RETURNING t.token_id, t.kind, t.user_id, t.account_id, t.principal_id, nullif(array_to_string(t.scopes, ','), ''), t.name, t.created_at, t.expires_at, t.revoked_at, t.last_used_at
;
-- token_find
WITH used AS (UPDATE sandboxd.tokens u SET last_used_at = now() WHERE u.digest = $1 AND u.revoked_at IS NULL AND (u.last_used_at IS NULL OR u.last_used_at < now() - interval '1 hour')) SELECT t.expires_at <= now(), t.token_id, t.kind, t.user_id, t.account_id, t.principal_id, nullif(array_to_string(t.scopes, ','), ''), t.name, t.created_at, t.expires_at, t.revoked_at, t.last_used_at FROM sandboxd.tokens t WHERE t.digest = $1 AND t.revoked_at IS NULL
;
-- token_list
SELECT t.token_id, t.kind, t.user_id, t.account_id, t.principal_id, nullif(array_to_string(t.scopes, ','), ''), t.name, t.created_at, t.expires_at, t.revoked_at, t.last_used_at FROM sandboxd.tokens t WHERE t.token_id > coalesce($1, '') ORDER BY t.token_id LIMIT $2
;
-- token_revoke
WITH t AS (UPDATE sandboxd.tokens t SET revoked_at = coalesce(t.revoked_at, now()) WHERE t.token_id = $1 RETURNING t.*), n AS (SELECT pg_notify('sandboxd_revoked', t.token_id) FROM t) SELECT t.token_id, t.kind, t.user_id, t.account_id, t.principal_id, nullif(array_to_string(t.scopes, ','), ''), t.name, t.created_at, t.expires_at, t.revoked_at, t.last_used_at FROM t, n
;
-- region_create
WITH r AS (INSERT INTO sandboxd.regions AS r (region, url, socket, secret, sandboxes, enabled) VALUES ($1, $2, $3, $4, $5, $6) RETURNING r.*), n AS (SELECT pg_notify('sandboxd_config', 'region')) SELECT r.region, r.url, r.socket, r.secret, r.sandboxes, r.enabled, r.created_at FROM r, n
;
-- region_get
SELECT r.region, r.url, r.socket, r.secret, r.sandboxes, r.enabled, r.created_at FROM sandboxd.regions r WHERE r.region = $1
;
-- region_list
SELECT r.region, r.url, r.socket, r.secret, r.sandboxes, r.enabled, r.created_at FROM sandboxd.regions r ORDER BY r.region LIMIT $1
;
-- region_list_of
SELECT r.region, r.url, r.socket, r.secret, r.sandboxes, r.enabled, r.created_at FROM sandboxd.regions r JOIN sandboxd.region_access x USING (region) WHERE x.account_id = $1 ORDER BY r.region LIMIT $2
;
-- region_enable
WITH r AS (UPDATE sandboxd.regions r SET enabled = $2 WHERE r.region = $1 RETURNING r.*), n AS (SELECT pg_notify('sandboxd_config', 'region')) SELECT r.region, r.url, r.socket, r.secret, r.sandboxes, r.enabled, r.created_at FROM r, n
;
-- region_addon
WITH r AS (UPDATE sandboxd.regions r SET sandboxes = $2 WHERE r.region = $1 RETURNING r.*), n AS (SELECT pg_notify('sandboxd_config', 'region')) SELECT r.region, r.url, r.socket, r.secret, r.sandboxes, r.enabled, r.created_at FROM r, n
;
-- region_grant
INSERT INTO sandboxd.region_access (account_id, region) VALUES ($1, $2) ON CONFLICT (account_id, region) DO NOTHING
;
-- region_deny
DELETE FROM sandboxd.region_access x WHERE x.account_id = $1 AND x.region = $2
;
-- backend_create
INSERT INTO sandboxd.storage_backends AS b (backend_id, account_id, region, kind, path, endpoint, bucket, prefix, s3_region, access_key, secret_key) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (account_id, region) DO UPDATE SET backend_id = excluded.backend_id, kind = excluded.kind, path = excluded.path, endpoint = excluded.endpoint, bucket = excluded.bucket, prefix = excluded.prefix, s3_region = excluded.s3_region, access_key = excluded.access_key, secret_key = excluded.secret_key RETURNING b.backend_id, b.account_id, b.region, b.kind, b.path, b.endpoint, b.bucket, b.prefix, b.s3_region, b.access_key, b.secret_key, b.created_at
;
-- backend_get
SELECT b.backend_id, b.account_id, b.region, b.kind, b.path, b.endpoint, b.bucket, b.prefix, b.s3_region, b.access_key, b.secret_key, b.created_at FROM sandboxd.storage_backends b WHERE b.account_id = $1 AND b.region = $2
;
-- backend_list
SELECT b.backend_id, b.account_id, b.region, b.kind, b.path, b.endpoint, b.bucket, b.prefix, b.s3_region, b.access_key, b.secret_key, b.created_at FROM sandboxd.storage_backends b WHERE b.account_id = $1 ORDER BY b.region LIMIT $2
;
-- registry_create
INSERT INTO sandboxd.registry_credentials AS c (registry_id, account_id, host, username, password) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (account_id, host) DO UPDATE SET registry_id = excluded.registry_id, username = excluded.username, password = excluded.password RETURNING c.registry_id, c.account_id, c.host, c.username, c.password, c.created_at
;
-- registry_get
SELECT c.registry_id, c.account_id, c.host, c.username, c.password, c.created_at FROM sandboxd.registry_credentials c WHERE c.account_id = $1 AND c.host = $2
;
-- registry_list
SELECT c.registry_id, c.account_id, c.host, c.username, c.password, c.created_at FROM sandboxd.registry_credentials c WHERE c.account_id = $1 ORDER BY c.host LIMIT $2
;
-- registry_remove
DELETE FROM sandboxd.registry_credentials c WHERE c.registry_id = $1 RETURNING c.registry_id
;
-- template_create
SELECT t.template_id, t.account_id, t.app_id, t.name, t.slug, t.description, t.enabled, t.deprecated_at, t.current_revision, t.created_at, t.updated_at FROM sandboxd.template_create($1, $2, $3, $4, $5, $6, $7, $8) t
;
-- template_update
UPDATE sandboxd.templates t SET name = coalesce($3, t.name), description = coalesce($4, t.description), enabled = coalesce($5, t.enabled), deprecated_at = CASE $6::boolean WHEN true THEN coalesce(t.deprecated_at, now()) WHEN false THEN NULL ELSE t.deprecated_at END, updated_at = date_trunc('milliseconds', now()) WHERE t.account_id = $1 AND t.template_id = $2 RETURNING t.template_id, t.account_id, t.app_id, t.name, t.slug, t.description, t.enabled, t.deprecated_at, t.current_revision, t.created_at, t.updated_at
;
-- template_get
SELECT t.template_id, t.account_id, t.app_id, t.name, t.slug, t.description, t.enabled, t.deprecated_at, t.current_revision, t.created_at, t.updated_at, r.revision_id, r.template_id, r.account_id, r.revision, r.image_digest, r.image_ref, r.command, r.working_dir, r.ports, r.resources, r.z_clouds, r.persistence_mode, r.volume_size_mb, r.mount_path, r.snapshot_exclude, r.snapshot_max_mb, r.idle_timeout_s, r.hard_lifetime_s, r.suspended_retention_s, r.warm_pool, r.warm_desired, r.warm_min, r.warm_max, nullif(array_to_string(r.warm_regions, ','), ''), r.network_control, r.created_at FROM sandboxd.templates t LEFT JOIN sandboxd.revisions r ON r.template_id = t.template_id AND r.revision = t.current_revision WHERE t.account_id = $1 AND t.template_id = $2
;
-- template_list
SELECT t.template_id, t.account_id, t.app_id, t.name, t.slug, t.description, t.enabled, t.deprecated_at, t.current_revision, t.created_at, t.updated_at FROM sandboxd.templates t WHERE t.account_id = $1 AND ($2::text IS NULL OR t.app_id = $2) AND ($3::boolean OR t.deprecated_at IS NULL) ORDER BY t.created_at DESC, t.template_id DESC LIMIT $4
;
-- revision_create
WITH t AS (UPDATE sandboxd.templates t SET current_revision = t.current_revision + 1, updated_at = date_trunc('milliseconds', now()) WHERE t.account_id = $2 AND t.template_id = $3 RETURNING t.account_id, t.template_id, t.current_revision) INSERT INTO sandboxd.revisions AS r (revision_id, template_id, account_id, revision, image_digest, image_ref, command, working_dir, ports, resources, z_clouds, persistence_mode, volume_size_mb, mount_path, snapshot_exclude, snapshot_max_mb, idle_timeout_s, hard_lifetime_s, suspended_retention_s, warm_pool, warm_desired, warm_min, warm_max, warm_regions, network_control) SELECT $1, t.template_id, t.account_id, t.current_revision, $4, $5, $6::jsonb, $7, $8::jsonb, $9::jsonb, $10::integer, $11, $12::integer, $13, $14::jsonb, $15::integer, $16::integer, $17::integer, $18::integer, $19::boolean, $20::integer, $21::integer, $22::integer, coalesce(string_to_array($23, ','), '{}'), $24::jsonb FROM t RETURNING r.revision_id, r.template_id, r.account_id, r.revision, r.image_digest, r.image_ref, r.command, r.working_dir, r.ports, r.resources, r.z_clouds, r.persistence_mode, r.volume_size_mb, r.mount_path, r.snapshot_exclude, r.snapshot_max_mb, r.idle_timeout_s, r.hard_lifetime_s, r.suspended_retention_s, r.warm_pool, r.warm_desired, r.warm_min, r.warm_max, nullif(array_to_string(r.warm_regions, ','), ''), r.network_control, r.created_at
;
-- revision_get
SELECT r.revision_id, r.template_id, r.account_id, r.revision, r.image_digest, r.image_ref, r.command, r.working_dir, r.ports, r.resources, r.z_clouds, r.persistence_mode, r.volume_size_mb, r.mount_path, r.snapshot_exclude, r.snapshot_max_mb, r.idle_timeout_s, r.hard_lifetime_s, r.suspended_retention_s, r.warm_pool, r.warm_desired, r.warm_min, r.warm_max, nullif(array_to_string(r.warm_regions, ','), ''), r.network_control, r.created_at FROM sandboxd.revisions r WHERE r.revision_id = $1
;
-- sandbox_create
SELECT c.outcome, c.field, c.quota_limit, c.quota_active, s.sandbox_id, s.account_id, s.app_id, s.template_id, s.revision_id, s.revision, s.region, s.profile, s.owner_kind, s.owner_id, s.external_session_id, s.caller_key, s.request_id, s.persistence_mode, s.volume_name, s.mount_path, s.last_snapshot_at, s.last_snapshot_bytes, s.last_snapshot_error, s.restore_failed, s.pause_exclude, s.pause_max_mb, s.pause_force, s.resources, s.personal, s.is_warm, s.warm_id, s.status, s.previous_status, s.desired_status, s.generation, s.status_reason, s.error_code, s.termination_reason, s.running, s.holds_compute, s.operation_id, s.idle_timeout_s, s.suspended_retention_s, s.created_at, s.updated_at, s.claimed_at, s.ready_at, s.last_active_at, s.suspended_at, s.resumed_at, s.failed_at, s.terminated_at, s.expires_at, s.status_since, s.deadline_at, s.next_action_at, s.lease_owner, s.lease_until, s.attempt, s.last_error, clock_timestamp() FROM sandboxd.sandbox_create($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) c, LATERAL (SELECT (c.sandbox).*) s
;
-- sandbox_resume
SELECT c.outcome, NULL, c.quota_limit, c.quota_active, s.sandbox_id, s.account_id, s.app_id, s.template_id, s.revision_id, s.revision, s.region, s.profile, s.owner_kind, s.owner_id, s.external_session_id, s.caller_key, s.request_id, s.persistence_mode, s.volume_name, s.mount_path, s.last_snapshot_at, s.last_snapshot_bytes, s.last_snapshot_error, s.restore_failed, s.pause_exclude, s.pause_max_mb, s.pause_force, s.resources, s.personal, s.is_warm, s.warm_id, s.status, s.previous_status, s.desired_status, s.generation, s.status_reason, s.error_code, s.termination_reason, s.running, s.holds_compute, s.operation_id, s.idle_timeout_s, s.suspended_retention_s, s.created_at, s.updated_at, s.claimed_at, s.ready_at, s.last_active_at, s.suspended_at, s.resumed_at, s.failed_at, s.terminated_at, s.expires_at, s.status_since, s.deadline_at, s.next_action_at, s.lease_owner, s.lease_until, s.attempt, s.last_error, clock_timestamp() FROM sandboxd.sandbox_resume($1, $2, $3, $4, $5, $6) c, LATERAL (SELECT (c.sandbox).*) s
;
-- sandbox_get
SELECT s.sandbox_id, s.account_id, s.app_id, s.template_id, s.revision_id, s.revision, s.region, s.profile, s.owner_kind, s.owner_id, s.external_session_id, s.caller_key, s.request_id, s.persistence_mode, s.volume_name, s.mount_path, s.last_snapshot_at, s.last_snapshot_bytes, s.last_snapshot_error, s.restore_failed, s.pause_exclude, s.pause_max_mb, s.pause_force, s.resources, s.personal, s.is_warm, s.warm_id, s.status, s.previous_status, s.desired_status, s.generation, s.status_reason, s.error_code, s.termination_reason, s.running, s.holds_compute, s.operation_id, s.idle_timeout_s, s.suspended_retention_s, s.created_at, s.updated_at, s.claimed_at, s.ready_at, s.last_active_at, s.suspended_at, s.resumed_at, s.failed_at, s.terminated_at, s.expires_at, s.status_since, s.deadline_at, s.next_action_at, s.lease_owner, s.lease_until, s.attempt, s.last_error, clock_timestamp() FROM sandboxd.sandboxes s WHERE s.sandbox_id = $1 AND s.account_id = $2
;
-- sandbox_get_any
SELECT s.sandbox_id, s.account_id, s.app_id, s.template_id, s.revision_id, s.revision, s.region, s.profile, s.owner_kind, s.owner_id, s.external_session_id, s.caller_key, s.request_id, s.persistence_mode, s.volume_name, s.mount_path, s.last_snapshot_at, s.last_snapshot_bytes, s.last_snapshot_error, s.restore_failed, s.pause_exclude, s.pause_max_mb, s.pause_force, s.resources, s.personal, s.is_warm, s.warm_id, s.status, s.previous_status, s.desired_status, s.generation, s.status_reason, s.error_code, s.termination_reason, s.running, s.holds_compute, s.operation_id, s.idle_timeout_s, s.suspended_retention_s, s.created_at, s.updated_at, s.claimed_at, s.ready_at, s.last_active_at, s.suspended_at, s.resumed_at, s.failed_at, s.terminated_at, s.expires_at, s.status_since, s.deadline_at, s.next_action_at, s.lease_owner, s.lease_until, s.attempt, s.last_error, clock_timestamp() FROM sandboxd.sandboxes s WHERE s.sandbox_id = $1
;
-- sandbox_list
SELECT s.sandbox_id, s.account_id, s.app_id, s.template_id, s.revision_id, s.revision, s.region, s.profile, s.owner_kind, s.owner_id, s.external_session_id, s.caller_key, s.request_id, s.persistence_mode, s.volume_name, s.mount_path, s.last_snapshot_at, s.last_snapshot_bytes, s.last_snapshot_error, s.restore_failed, s.pause_exclude, s.pause_max_mb, s.pause_force, s.resources, s.personal, s.is_warm, s.warm_id, s.status, s.previous_status, s.desired_status, s.generation, s.status_reason, s.error_code, s.termination_reason, s.running, s.holds_compute, s.operation_id, s.idle_timeout_s, s.suspended_retention_s, s.created_at, s.updated_at, s.claimed_at, s.ready_at, s.last_active_at, s.suspended_at, s.resumed_at, s.failed_at, s.terminated_at, s.expires_at, s.status_since, s.deadline_at, s.next_action_at, s.lease_owner, s.lease_until, s.attempt, s.last_error, clock_timestamp() FROM sandboxd.sandboxes s WHERE s.account_id = $1 AND ($2::text IS NULL OR s.app_id = $2) AND s.status = ANY($3::text[]) AND (s.created_at, s.sandbox_id) < (coalesce(to_timestamp($4::bigint / 1000.0), 'infinity'), coalesce($5::text, '')) ORDER BY s.created_at DESC, s.sandbox_id DESC LIMIT $6 OFFSET $7
;
-- sandbox_list_live
SELECT s.sandbox_id, s.account_id, s.app_id, s.template_id, s.revision_id, s.revision, s.region, s.profile, s.owner_kind, s.owner_id, s.external_session_id, s.caller_key, s.request_id, s.persistence_mode, s.volume_name, s.mount_path, s.last_snapshot_at, s.last_snapshot_bytes, s.last_snapshot_error, s.restore_failed, s.pause_exclude, s.pause_max_mb, s.pause_force, s.resources, s.personal, s.is_warm, s.warm_id, s.status, s.previous_status, s.desired_status, s.generation, s.status_reason, s.error_code, s.termination_reason, s.running, s.holds_compute, s.operation_id, s.idle_timeout_s, s.suspended_retention_s, s.created_at, s.updated_at, s.claimed_at, s.ready_at, s.last_active_at, s.suspended_at, s.resumed_at, s.failed_at, s.terminated_at, s.expires_at, s.status_since, s.deadline_at, s.next_action_at, s.lease_owner, s.lease_until, s.attempt, s.last_error, clock_timestamp() FROM sandboxd.sandboxes s WHERE NOT s.ended AND s.account_id = $1 AND ($2::text IS NULL OR s.app_id = $2) AND s.status = ANY($3::text[]) AND (s.created_at, s.sandbox_id) < (coalesce(to_timestamp($4::bigint / 1000.0), 'infinity'), coalesce($5::text, '')) ORDER BY s.created_at DESC, s.sandbox_id DESC LIMIT $6 OFFSET $7
;
-- sandbox_list_any
SELECT s.sandbox_id, s.account_id, s.app_id, s.template_id, s.revision_id, s.revision, s.region, s.profile, s.owner_kind, s.owner_id, s.external_session_id, s.caller_key, s.request_id, s.persistence_mode, s.volume_name, s.mount_path, s.last_snapshot_at, s.last_snapshot_bytes, s.last_snapshot_error, s.restore_failed, s.pause_exclude, s.pause_max_mb, s.pause_force, s.resources, s.personal, s.is_warm, s.warm_id, s.status, s.previous_status, s.desired_status, s.generation, s.status_reason, s.error_code, s.termination_reason, s.running, s.holds_compute, s.operation_id, s.idle_timeout_s, s.suspended_retention_s, s.created_at, s.updated_at, s.claimed_at, s.ready_at, s.last_active_at, s.suspended_at, s.resumed_at, s.failed_at, s.terminated_at, s.expires_at, s.status_since, s.deadline_at, s.next_action_at, s.lease_owner, s.lease_until, s.attempt, s.last_error, clock_timestamp() FROM sandboxd.sandboxes s WHERE s.status = ANY($1::text[]) AND s.sandbox_id < coalesce($2, '~') ORDER BY s.sandbox_id DESC LIMIT $3 OFFSET $4
;
-- sandbox_count
SELECT count(*) FROM sandboxd.sandboxes s WHERE s.account_id = $1 AND ($2::text IS NULL OR s.app_id = $2) AND s.status = ANY($3::text[])
;
-- sandbox_count_live
SELECT count(*) FROM sandboxd.sandboxes s WHERE NOT s.ended AND s.account_id = $1 AND ($2::text IS NULL OR s.app_id = $2) AND s.status = ANY($3::text[])
;
-- sandbox_count_any
SELECT count(*) FROM sandboxd.sandboxes s WHERE s.status = ANY($1::text[])
;
-- sandbox_list_ids
SELECT s.sandbox_id, s.account_id, s.app_id, s.template_id, s.revision_id, s.revision, s.region, s.profile, s.owner_kind, s.owner_id, s.external_session_id, s.caller_key, s.request_id, s.persistence_mode, s.volume_name, s.mount_path, s.last_snapshot_at, s.last_snapshot_bytes, s.last_snapshot_error, s.restore_failed, s.pause_exclude, s.pause_max_mb, s.pause_force, s.resources, s.personal, s.is_warm, s.warm_id, s.status, s.previous_status, s.desired_status, s.generation, s.status_reason, s.error_code, s.termination_reason, s.running, s.holds_compute, s.operation_id, s.idle_timeout_s, s.suspended_retention_s, s.created_at, s.updated_at, s.claimed_at, s.ready_at, s.last_active_at, s.suspended_at, s.resumed_at, s.failed_at, s.terminated_at, s.expires_at, s.status_since, s.deadline_at, s.next_action_at, s.lease_owner, s.lease_until, s.attempt, s.last_error, clock_timestamp() FROM sandboxd.sandboxes s WHERE s.sandbox_id = ANY(string_to_array($1, ',')) ORDER BY s.sandbox_id
;
-- sandbox_list_held
SELECT s.sandbox_id, s.account_id, s.app_id, s.template_id, s.revision_id, s.revision, s.region, s.profile, s.owner_kind, s.owner_id, s.external_session_id, s.caller_key, s.request_id, s.persistence_mode, s.volume_name, s.mount_path, s.last_snapshot_at, s.last_snapshot_bytes, s.last_snapshot_error, s.restore_failed, s.pause_exclude, s.pause_max_mb, s.pause_force, s.resources, s.personal, s.is_warm, s.warm_id, s.status, s.previous_status, s.desired_status, s.generation, s.status_reason, s.error_code, s.termination_reason, s.running, s.holds_compute, s.operation_id, s.idle_timeout_s, s.suspended_retention_s, s.created_at, s.updated_at, s.claimed_at, s.ready_at, s.last_active_at, s.suspended_at, s.resumed_at, s.failed_at, s.terminated_at, s.expires_at, s.status_since, s.deadline_at, s.next_action_at, s.lease_owner, s.lease_until, s.attempt, s.last_error, clock_timestamp() FROM sandboxd.sandboxes s WHERE s.region = $1 AND s.holds_compute AND s.sandbox_id > coalesce($2, '') ORDER BY s.sandbox_id LIMIT $3
;
-- sandbox_active
SELECT sandboxd.account_active($1)
;
-- sandbox_move
WITH moved AS (UPDATE sandboxd.sandboxes s SET status = CASE WHEN $4::text NOT IN ('READY', 'BUSY') THEN $4::text WHEN s.running > 0 THEN 'BUSY' ELSE 'READY' END, previous_status = CASE WHEN s.status <> CASE WHEN $4::text NOT IN ('READY', 'BUSY') THEN $4::text WHEN s.running > 0 THEN 'BUSY' ELSE 'READY' END THEN s.status ELSE s.previous_status END, generation = s.generation + CASE WHEN s.status <> CASE WHEN $4::text NOT IN ('READY', 'BUSY') THEN $4::text WHEN s.running > 0 THEN 'BUSY' ELSE 'READY' END THEN 1 ELSE 0 END, move_count = s.move_count + CASE WHEN s.status <> CASE WHEN $4::text NOT IN ('READY', 'BUSY') THEN $4::text WHEN s.running > 0 THEN 'BUSY' ELSE 'READY' END THEN 1 ELSE 0 END, status_since = CASE WHEN s.status <> CASE WHEN $4::text NOT IN ('READY', 'BUSY') THEN $4::text WHEN s.running > 0 THEN 'BUSY' ELSE 'READY' END THEN now() ELSE s.status_since END, status_reason = CASE WHEN s.status <> CASE WHEN $4::text NOT IN ('READY', 'BUSY') THEN $4::text WHEN s.running > 0 THEN 'BUSY' ELSE 'READY' END THEN $8::text ELSE coalesce($8::text, s.status_reason) END, desired_status = CASE WHEN s.desired_status = 'TERMINATED' AND $4::text <> 'TERMINATED' THEN s.desired_status WHEN $6::integer = 0 THEN s.desired_status WHEN $6::integer = 1 THEN $7::text END, error_code = coalesce($9::text, s.error_code), termination_reason = coalesce(s.termination_reason, $10::text), holds_compute = CASE WHEN $4::text IN ('SUSPENDED', 'TERMINATED') THEN false WHEN $11::integer = 1 THEN true WHEN $11::integer = 2 THEN false ELSE s.holds_compute END, operation_id = $17, is_warm = s.is_warm OR $18::boolean, mount_path = CASE WHEN $20::boolean THEN $21 ELSE s.mount_path END, last_snapshot_at = CASE WHEN $20::boolean THEN to_timestamp($22::bigint / 1000.0) ELSE s.last_snapshot_at END, last_snapshot_bytes = CASE WHEN $20::boolean THEN $23::bigint ELSE s.last_snapshot_bytes END, last_snapshot_error = CASE WHEN $20::boolean THEN $24 ELSE s.last_snapshot_error END, restore_failed = CASE WHEN $20::boolean THEN $25::boolean ELSE s.restore_failed END, pause_exclude = CASE WHEN $26::boolean THEN $27::jsonb ELSE s.pause_exclude END, pause_max_mb = CASE WHEN $26::boolean THEN $28::integer ELSE s.pause_max_mb END, pause_force = CASE WHEN $26::boolean THEN $29::boolean ELSE s.pause_force END, updated_at = now(), attempt = 0, last_error = NULL, claimed_at = CASE WHEN $19::boolean THEN coalesce(s.claimed_at, now()) ELSE s.claimed_at END, ready_at = CASE WHEN $4::text IN ('READY', 'BUSY') THEN coalesce(s.ready_at, now()) ELSE s.ready_at END, resumed_at = CASE WHEN $4::text IN ('READY', 'BUSY') AND s.status = 'RESUMING' THEN now() ELSE s.resumed_at END, last_active_at = CASE WHEN $4::text IN ('READY', 'BUSY') AND s.status IN ('STARTING', 'ALLOCATING', 'RESUMING') THEN now() ELSE s.last_active_at END, suspended_at = CASE WHEN $4::text = 'SUSPENDED' AND s.status <> $4::text THEN now() ELSE s.suspended_at END, failed_at = CASE WHEN $4::text = 'FAILED' AND s.status <> $4::text THEN now() ELSE s.failed_at END, terminated_at = CASE WHEN $4::text = 'TERMINATED' AND s.status <> $4::text THEN now() ELSE s.terminated_at END, deadline_at = CASE WHEN $14::bigint > 0 THEN now() + sandboxd.span($14::bigint) END, lease_owner = $15, lease_until = CASE WHEN $15::text IS NOT NULL THEN now() + sandboxd.span($16::bigint) END, next_action_at = CASE WHEN $15::text IS NOT NULL THEN now() + sandboxd.span($16::bigint) ELSE sandboxd.next_action($12::integer, $13::bigint, sandboxd.due_at(CASE WHEN $4::text NOT IN ('READY', 'BUSY') THEN $4::text WHEN s.running > 0 THEN 'BUSY' ELSE 'READY' END, CASE WHEN s.desired_status = 'TERMINATED' AND $4::text <> 'TERMINATED' THEN s.desired_status WHEN $6::integer = 0 THEN s.desired_status WHEN $6::integer = 1 THEN $7::text END, s.personal, CASE WHEN $4::text IN ('READY', 'BUSY') AND s.status IN ('STARTING', 'ALLOCATING', 'RESUMING') THEN now() ELSE s.last_active_at END, s.idle_timeout_s, s.expires_at, now(), s.suspended_retention_s, CASE WHEN $14::bigint > 0 THEN now() + sandboxd.span($14::bigint) END)) END WHERE s.sandbox_id = $1 AND s.generation = $2 AND s.status = ANY($3::text[]) AND CASE $5::integer WHEN 0 THEN true WHEN 1 THEN s.running = 0 AND NOT s.personal AND s.last_active_at + s.idle_timeout_s * interval '1 second' <= now() WHEN 2 THEN s.expires_at <= now() WHEN 3 THEN s.suspended_at + s.suspended_retention_s * interval '1 second' <= now() WHEN 4 THEN s.deadline_at <= now() END RETURNING s.*), event AS (INSERT INTO sandboxd.sandbox_events (sandbox_id, slot, generation, from_status, to_status, cause, actor, request_id, reason) SELECT m.sandbox_id, (m.move_count - 1) % 192, m.generation, m.previous_status, m.status, $30, $31, $32, m.status_reason FROM moved m WHERE m.generation <> $2 ON CONFLICT (sandbox_id, slot) DO UPDATE SET at = excluded.at, generation = excluded.generation, from_status = excluded.from_status, to_status = excluded.to_status, cause = excluded.cause, actor = excluded.actor, request_id = excluded.request_id, reason = excluded.reason) SELECT s.sandbox_id, s.account_id, s.app_id, s.template_id, s.revision_id, s.revision, s.region, s.profile, s.owner_kind, s.owner_id, s.external_session_id, s.caller_key, s.request_id, s.persistence_mode, s.volume_name, s.mount_path, s.last_snapshot_at, s.last_snapshot_bytes, s.last_snapshot_error, s.restore_failed, s.pause_exclude, s.pause_max_mb, s.pause_force, s.resources, s.personal, s.is_warm, s.warm_id, s.status, s.previous_status, s.desired_status, s.generation, s.status_reason, s.error_code, s.termination_reason, s.running, s.holds_compute, s.operation_id, s.idle_timeout_s, s.suspended_retention_s, s.created_at, s.updated_at, s.claimed_at, s.ready_at, s.last_active_at, s.suspended_at, s.resumed_at, s.failed_at, s.terminated_at, s.expires_at, s.status_since, s.deadline_at, s.next_action_at, s.lease_owner, s.lease_until, s.attempt, s.last_error, clock_timestamp() FROM moved s
;
-- sandbox_desire
UPDATE sandboxd.sandboxes s SET desired_status = $3, termination_reason = coalesce(s.termination_reason, $4::text), updated_at = now(), next_action_at = CASE WHEN s.lease_until > now() THEN s.next_action_at ELSE now() END WHERE s.sandbox_id = $1 AND s.status = ANY($2::text[]) RETURNING s.sandbox_id
;
-- sandbox_report
UPDATE sandboxd.sandboxes s SET mount_path = $3, last_snapshot_at = to_timestamp($4::bigint / 1000.0), last_snapshot_bytes = $5, last_snapshot_error = $6, restore_failed = $7, updated_at = now() WHERE s.sandbox_id = $1 AND s.generation = $2 RETURNING s.sandbox_id
;
-- claim_due
UPDATE sandboxd.sandboxes s SET lease_owner = $1, lease_until = now() + sandboxd.span($2::bigint), next_action_at = now() + sandboxd.span($2::bigint), attempt = s.attempt + 1 WHERE s.sandbox_id = ANY(ARRAY(SELECT d.sandbox_id FROM sandboxd.sandboxes d WHERE d.next_action_at <= now() ORDER BY d.next_action_at LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED)) RETURNING s.sandbox_id, s.account_id, s.app_id, s.template_id, s.revision_id, s.revision, s.region, s.profile, s.owner_kind, s.owner_id, s.external_session_id, s.caller_key, s.request_id, s.persistence_mode, s.volume_name, s.mount_path, s.last_snapshot_at, s.last_snapshot_bytes, s.last_snapshot_error, s.restore_failed, s.pause_exclude, s.pause_max_mb, s.pause_force, s.resources, s.personal, s.is_warm, s.warm_id, s.status, s.previous_status, s.desired_status, s.generation, s.status_reason, s.error_code, s.termination_reason, s.running, s.holds_compute, s.operation_id, s.idle_timeout_s, s.suspended_retention_s, s.created_at, s.updated_at, s.claimed_at, s.ready_at, s.last_active_at, s.suspended_at, s.resumed_at, s.failed_at, s.terminated_at, s.expires_at, s.status_since, s.deadline_at, s.next_action_at, s.lease_owner, s.lease_until, s.attempt, s.last_error, clock_timestamp()
;
-- claim_one
UPDATE sandboxd.sandboxes s SET lease_owner = $1, lease_until = now() + sandboxd.span($2::bigint), next_action_at = now() + sandboxd.span($2::bigint), attempt = s.attempt + 1 WHERE s.sandbox_id = $3 AND s.next_action_at IS NOT NULL AND (s.lease_owner IS NULL OR s.lease_owner = $1 OR s.lease_until <= now()) RETURNING s.sandbox_id, s.account_id, s.app_id, s.template_id, s.revision_id, s.revision, s.region, s.profile, s.owner_kind, s.owner_id, s.external_session_id, s.caller_key, s.request_id, s.persistence_mode, s.volume_name, s.mount_path, s.last_snapshot_at, s.last_snapshot_bytes, s.last_snapshot_error, s.restore_failed, s.pause_exclude, s.pause_max_mb, s.pause_force, s.resources, s.personal, s.is_warm, s.warm_id, s.status, s.previous_status, s.desired_status, s.generation, s.status_reason, s.error_code, s.termination_reason, s.running, s.holds_compute, s.operation_id, s.idle_timeout_s, s.suspended_retention_s, s.created_at, s.updated_at, s.claimed_at, s.ready_at, s.last_active_at, s.suspended_at, s.resumed_at, s.failed_at, s.terminated_at, s.expires_at, s.status_since, s.deadline_at, s.next_action_at, s.lease_owner, s.lease_until, s.attempt, s.last_error, clock_timestamp()
;
-- next_due
SELECT greatest(0, ceil(extract(epoch FROM d.next_action_at - clock_timestamp()) * 1000))::bigint FROM sandboxd.sandboxes d WHERE d.next_action_at IS NOT NULL ORDER BY d.next_action_at LIMIT 1
;
-- lease_renew
UPDATE sandboxd.sandboxes s SET lease_until = now() + sandboxd.span($2::bigint), next_action_at = now() + sandboxd.span($2::bigint) WHERE s.sandbox_id = ANY(ARRAY(SELECT d.sandbox_id FROM sandboxd.sandboxes d WHERE d.lease_owner = $1 AND d.lease_until > now() ORDER BY d.sandbox_id FOR NO KEY UPDATE SKIP LOCKED))
;
-- lease_release
UPDATE sandboxd.sandboxes s SET lease_owner = NULL, lease_until = NULL, attempt = CASE WHEN $6::boolean THEN s.attempt ELSE 0 END, last_error = $7, next_action_at = sandboxd.next_action($4::integer, $5::bigint, sandboxd.due_at(s.status, s.desired_status, s.personal, s.last_active_at, s.idle_timeout_s, s.expires_at, s.suspended_at, s.suspended_retention_s, s.deadline_at)) WHERE s.sandbox_id = $1 AND s.generation = $2 AND s.lease_owner = $3
;
-- poke_region
UPDATE sandboxd.sandboxes s SET next_action_at = now() WHERE s.sandbox_id = ANY(ARRAY(SELECT d.sandbox_id FROM sandboxd.sandboxes d WHERE d.region = $1 AND d.holds_compute AND (d.lease_until IS NULL OR d.lease_until <= now()) ORDER BY d.sandbox_id FOR NO KEY UPDATE SKIP LOCKED))
;
-- instance_beat
INSERT INTO sandboxd.instances AS i (instance, beat_at) VALUES ($1, clock_timestamp()) ON CONFLICT (instance) DO UPDATE SET beat_at = excluded.beat_at
;
-- instance_leave
WITH gone AS (DELETE FROM sandboxd.instances i WHERE i.instance = $1) UPDATE sandboxd.sandboxes s SET lease_owner = NULL, lease_until = NULL, next_action_at = now() WHERE s.sandbox_id = ANY(ARRAY(SELECT d.sandbox_id FROM sandboxd.sandboxes d WHERE d.lease_owner = $1 ORDER BY d.sandbox_id FOR NO KEY UPDATE))
;
-- instance_reap
WITH gone AS (DELETE FROM sandboxd.instances i WHERE i.beat_at < now() - sandboxd.span($1::bigint)) UPDATE sandboxd.sandboxes s SET lease_owner = NULL, lease_until = NULL, next_action_at = now() WHERE s.sandbox_id = ANY(ARRAY(SELECT d.sandbox_id FROM sandboxd.sandboxes d WHERE d.lease_owner IS NOT NULL AND NOT EXISTS (SELECT FROM sandboxd.instances i WHERE i.instance = d.lease_owner AND i.beat_at >= now() - sandboxd.span($1::bigint)) ORDER BY d.sandbox_id FOR NO KEY UPDATE OF d SKIP LOCKED))
;
-- execution_begin
WITH s AS (UPDATE sandboxd.sandboxes s SET status = 'BUSY', previous_status = s.status, running = s.running + 1, generation = s.generation + CASE WHEN s.status = 'READY' THEN 1 ELSE 0 END, status_reason = CASE WHEN s.status = 'READY' THEN NULL ELSE s.status_reason END, status_since = CASE WHEN s.status = 'READY' THEN now() ELSE s.status_since END, last_active_at = now(), updated_at = now() WHERE s.sandbox_id = $2 AND s.account_id = $3 AND s.status IN ('READY', 'BUSY') AND NOT s.personal RETURNING s.*), e AS (INSERT INTO sandboxd.executions (execution_id, sandbox_id, account_id, instance, actor, request_id, generation, deadline_at) SELECT $1, s.sandbox_id, s.account_id, $4, $5, $6, s.generation, now() + sandboxd.span($7::bigint) FROM s), ev AS (INSERT INTO sandboxd.sandbox_events (sandbox_id, slot, generation, from_status, to_status, cause, actor, request_id) SELECT s.sandbox_id, 192 + s.generation % 64, s.generation, 'READY', 'BUSY', 'execute', $5, $6 FROM s WHERE s.previous_status = 'READY' ON CONFLICT (sandbox_id, slot) DO UPDATE SET at = excluded.at, generation = excluded.generation, from_status = excluded.from_status, to_status = excluded.to_status, cause = excluded.cause, actor = excluded.actor, request_id = excluded.request_id, reason = excluded.reason) SELECT s.sandbox_id, s.account_id, s.app_id, s.template_id, s.revision_id, s.revision, s.region, s.profile, s.owner_kind, s.owner_id, s.external_session_id, s.caller_key, s.request_id, s.persistence_mode, s.volume_name, s.mount_path, s.last_snapshot_at, s.last_snapshot_bytes, s.last_snapshot_error, s.restore_failed, s.pause_exclude, s.pause_max_mb, s.pause_force, s.resources, s.personal, s.is_warm, s.warm_id, s.status, s.previous_status, s.desired_status, s.generation, s.status_reason, s.error_code, s.termination_reason, s.running, s.holds_compute, s.operation_id, s.idle_timeout_s, s.suspended_retention_s, s.created_at, s.updated_at, s.claimed_at, s.ready_at, s.last_active_at, s.suspended_at, s.resumed_at, s.failed_at, s.terminated_at, s.expires_at, s.status_since, s.deadline_at, s.next_action_at, s.lease_owner, s.lease_until, s.attempt, s.last_error, clock_timestamp() FROM s
;
-- execution_end
WITH e AS (DELETE FROM sandboxd.executions e WHERE e.execution_id = $1 RETURNING e.sandbox_id, e.actor, e.request_id), s AS (UPDATE sandboxd.sandboxes s SET running = s.running - 1, status = CASE WHEN s.status = 'BUSY' AND s.running = 1 THEN 'READY' ELSE s.status END, previous_status = CASE WHEN s.status = 'BUSY' AND s.running = 1 THEN 'BUSY' ELSE s.previous_status END, generation = s.generation + CASE WHEN s.status = 'BUSY' AND s.running = 1 THEN 1 ELSE 0 END, status_since = CASE WHEN s.status = 'BUSY' AND s.running = 1 THEN now() ELSE s.status_since END, last_active_at = CASE WHEN s.status = 'BUSY' THEN now() ELSE s.last_active_at END, updated_at = now() FROM e WHERE s.sandbox_id = e.sandbox_id RETURNING s.sandbox_id, s.generation, s.status, e.actor, e.request_id), ev AS (INSERT INTO sandboxd.sandbox_events (sandbox_id, slot, generation, from_status, to_status, cause, actor, request_id) SELECT s.sandbox_id, 192 + s.generation % 64, s.generation, 'BUSY', 'READY', 'execution ended', s.actor, s.request_id FROM s WHERE s.status = 'READY' ON CONFLICT (sandbox_id, slot) DO UPDATE SET at = excluded.at, generation = excluded.generation, from_status = excluded.from_status, to_status = excluded.to_status, cause = excluded.cause, actor = excluded.actor, request_id = excluded.request_id, reason = excluded.reason) SELECT count(*) FROM e
;
-- execution_claim_stale
UPDATE sandboxd.executions e SET instance = $1, deadline_at = greatest(e.deadline_at, now()) WHERE e.execution_id = ANY(ARRAY(SELECT d.execution_id FROM sandboxd.executions d WHERE d.deadline_at < now() - sandboxd.span($3::bigint) OR (d.instance <> $1 AND NOT EXISTS (SELECT FROM sandboxd.instances i WHERE i.instance = d.instance AND i.beat_at >= now() - sandboxd.span($2::bigint))) ORDER BY d.deadline_at LIMIT $4 FOR UPDATE OF d SKIP LOCKED)) RETURNING e.execution_id, e.sandbox_id, e.account_id, e.instance, e.request_id, e.actor, e.generation, e.started_at, e.deadline_at
;
-- execution_list
SELECT e.execution_id, e.sandbox_id, e.account_id, e.instance, e.request_id, e.actor, e.generation, e.started_at, e.deadline_at FROM sandboxd.executions e WHERE e.sandbox_id = $1 ORDER BY e.started_at LIMIT $2
;
-- volume_list
SELECT v.volume_name, v.account_id, v.region, v.status = 'PENDING_PURGE', v.size_mb, v.created_at, v.updated_at, v.purge_at FROM sandboxd.volumes v WHERE v.account_id = $1 AND ($2::text IS NULL OR v.region = $2) ORDER BY v.region, v.volume_name LIMIT $3
;
-- volume_get
SELECT v.volume_name, v.account_id, v.region, v.status = 'PENDING_PURGE', v.size_mb, v.created_at, v.updated_at, v.purge_at FROM sandboxd.volumes v WHERE v.account_id = $1 AND ($2::text IS NULL OR v.region = $2) AND v.volume_name = $3 ORDER BY v.region LIMIT 1
;
-- volume_create
WITH may AS (SELECT EXISTS (SELECT FROM sandboxd.regions r WHERE r.region = $2) AS known, EXISTS (SELECT FROM sandboxd.region_access x WHERE x.account_id = $1 AND x.region = $2) AS granted, EXISTS (SELECT FROM sandboxd.storage_backends b WHERE b.account_id = $1 AND b.region = $2) AS backed), made AS (INSERT INTO sandboxd.volumes AS v (account_id, region, volume_name, size_mb) SELECT $1, $2, $3, $4::integer FROM may WHERE may.known AND may.granted AND may.backed ON CONFLICT (account_id, region, volume_name) DO NOTHING RETURNING v.*) SELECT may.known, may.granted, may.backed, v.volume_name, v.account_id, v.region, v.status = 'PENDING_PURGE', v.size_mb, v.created_at, v.updated_at, v.purge_at FROM may LEFT JOIN made v ON true
;
-- volume_remove
SELECT c.outcome, v.volume_name, v.account_id, v.region, v.status = 'PENDING_PURGE', v.size_mb, v.created_at, v.updated_at, v.purge_at FROM sandboxd.volume_remove($1, $2, $3, $4) c, LATERAL (SELECT (c.volume).*) v
;
-- volume_restore
UPDATE sandboxd.volumes v SET status = 'ACTIVE', purge_at = NULL, updated_at = now(), lease_owner = NULL, lease_until = NULL WHERE v.account_id = $1 AND v.region = $2 AND v.volume_name = $3 AND NOT v.purging AND (v.purge_at IS NULL OR v.purge_at > now()) RETURNING v.volume_name, v.account_id, v.region, v.status = 'PENDING_PURGE', v.size_mb, v.created_at, v.updated_at, v.purge_at
;
-- volume_claim_purge
WITH due AS (SELECT d.account_id, d.region, d.volume_name FROM sandboxd.volumes d WHERE d.purge_at <= now() AND (d.lease_until IS NULL OR d.lease_until <= now()) ORDER BY d.purge_at LIMIT $3 FOR UPDATE SKIP LOCKED) UPDATE sandboxd.volumes v SET purging = true, lease_owner = $1, lease_until = now() + sandboxd.span($2::bigint) FROM due WHERE v.account_id = due.account_id AND v.region = due.region AND v.volume_name = due.volume_name RETURNING v.volume_name, v.account_id, v.region, v.status = 'PENDING_PURGE', v.size_mb, v.created_at, v.updated_at, v.purge_at
;
-- volume_purged
DELETE FROM sandboxd.volumes v WHERE v.account_id = $1 AND v.region = $2 AND v.volume_name = $3 AND v.purging
;
-- warm_pool_list
WITH wanted AS (SELECT r.account_id, r.revision_id, x.region, r.warm_desired, r.warm_min, r.warm_max FROM sandboxd.revisions r JOIN sandboxd.templates t ON t.template_id = r.template_id AND t.current_revision = r.revision AND t.enabled AND t.deprecated_at IS NULL JOIN sandboxd.accounts c ON c.account_id = r.account_id AND c.entitled CROSS JOIN LATERAL unnest(r.warm_regions) AS x (region) JOIN sandboxd.regions g ON g.region = x.region AND g.enabled AND g.sandboxes JOIN sandboxd.region_access y ON y.account_id = r.account_id AND y.region = x.region WHERE r.warm_pool AND r.warm_max > 0), there AS (SELECT w.account_id, w.revision_id, w.region, count(*) FILTER (WHERE w.status = 'STARTING') AS starting, count(*) FILTER (WHERE w.status = 'READY') AS ready FROM sandboxd.warm_members w WHERE w.status IN ('STARTING', 'READY') GROUP BY w.account_id, w.revision_id, w.region) SELECT coalesce(d.account_id, h.account_id), coalesce(d.revision_id, h.revision_id), coalesce(d.region, h.region), d.warm_desired, d.warm_min, d.warm_max, h.starting, h.ready FROM wanted d FULL JOIN there h ON h.revision_id = d.revision_id AND h.region = d.region ORDER BY 2, 3 LIMIT $1
;
-- warm_lock
SELECT pg_advisory_xact_lock(7235061, 1)
;
-- warm_room
SELECT count(*) FILTER (WHERE w.revision_id = $1 AND w.region = $2), count(*) FROM sandboxd.warm_members w WHERE w.status IN ('STARTING', 'READY')
;
-- warm_add
INSERT INTO sandboxd.warm_members AS w (warm_id, account_id, revision_id, region, status, deadline_at) VALUES ($1, $2, $3, $4, 'STARTING', now() + sandboxd.span($5::bigint)) RETURNING w.warm_id, w.account_id, w.revision_id, w.region, w.status, w.generation, w.sandbox_id, w.created_at, w.ready_at, w.deadline_at
;
-- warm_set
UPDATE sandboxd.warm_members w SET status = $2, ready_at = CASE WHEN $2::text = 'READY' THEN now() ELSE w.ready_at END WHERE w.warm_id = $1 AND w.status IN ('STARTING', 'READY') RETURNING w.warm_id
;
-- warm_drain
UPDATE sandboxd.warm_members w SET status = 'DRAINING' WHERE w.warm_id = ANY(ARRAY(SELECT d.warm_id FROM sandboxd.warm_members d WHERE d.revision_id = $1 AND d.region = $2 AND d.status IN ('STARTING', 'READY') ORDER BY d.created_at LIMIT $3 FOR UPDATE SKIP LOCKED))
;
-- warm_claim_drain
UPDATE sandboxd.warm_members w SET status = 'DRAINING', lease_owner = $1, generation = w.generation + 1, lease_until = now() + sandboxd.span($2::bigint) WHERE w.warm_id = ANY(ARRAY(SELECT d.warm_id FROM sandboxd.warm_members d LEFT JOIN sandboxd.sandboxes s ON s.sandbox_id = d.sandbox_id WHERE (d.status = 'DRAINING' OR (d.status = 'STARTING' AND d.deadline_at <= now()) OR (d.status = 'CLAIMED' AND (s.sandbox_id IS NULL OR s.ready_at IS NOT NULL OR s.status IN ('FAILED', 'TERMINATING', 'TERMINATED')))) AND (d.lease_until IS NULL OR d.lease_until <= now()) ORDER BY d.warm_id LIMIT $3 FOR UPDATE OF d SKIP LOCKED)) RETURNING w.warm_id, w.account_id, w.revision_id, w.region, w.status, w.generation, w.sandbox_id, w.created_at, w.ready_at, w.deadline_at
;
-- warm_remove
DELETE FROM sandboxd.warm_members w WHERE w.warm_id = $1
;
-- warm_list
SELECT w.warm_id, w.account_id, w.revision_id, w.region, w.status, w.generation, w.sandbox_id, w.created_at, w.ready_at, w.deadline_at FROM sandboxd.warm_members w WHERE w.region = $1 AND w.warm_id > coalesce($2, '') ORDER BY w.warm_id LIMIT $3
;
-- audit_write
INSERT INTO sandboxd.audit (account_id, actor, action, object_kind, object_id, request_id, outcome, exit_code, duration_ms, run_id) VALUES ($1, $2, $3, $4, $5, $6, $7, nullif($8::integer, -1), nullif($9::bigint, -1), $10)
;
-- audit_list_account
SELECT d.audit_id, d.at, d.account_id, d.actor, d.action, d.object_kind, d.object_id, d.request_id, d.outcome, coalesce(d.exit_code, -1), coalesce(d.duration_ms, -1), d.run_id FROM sandboxd.audit d WHERE d.account_id = $1 AND ($2::text IS NULL OR d.object_id = $2) AND d.audit_id < $3 ORDER BY d.audit_id DESC LIMIT $4
;
-- audit_list_object
SELECT d.audit_id, d.at, d.account_id, d.actor, d.action, d.object_kind, d.object_id, d.request_id, d.outcome, coalesce(d.exit_code, -1), coalesce(d.duration_ms, -1), d.run_id FROM sandboxd.audit d WHERE d.object_id = $1 AND d.audit_id < $2 ORDER BY d.audit_id DESC LIMIT $3
;
-- audit_list_all
SELECT d.audit_id, d.at, d.account_id, d.actor, d.action, d.object_kind, d.object_id, d.request_id, d.outcome, coalesce(d.exit_code, -1), coalesce(d.duration_ms, -1), d.run_id FROM sandboxd.audit d WHERE d.audit_id < $1 ORDER BY d.audit_id DESC LIMIT $2
;
-- event_list
SELECT e.at, e.generation, e.from_status, e.to_status, e.cause, e.actor, e.request_id, e.reason FROM sandboxd.sandbox_events e WHERE e.sandbox_id = $1 ORDER BY e.generation
;
-- setting_get
SELECT t.value FROM sandboxd.settings t WHERE t.name = $1
;
-- setting_put
WITH p AS (INSERT INTO sandboxd.settings AS t (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value, updated_at = now() RETURNING t.name) SELECT pg_notify('sandboxd_config', 'setting') FROM p
;
-- count_status
SELECT s.status, count(*) FROM sandboxd.sandboxes s WHERE NOT s.ended GROUP BY s.status
;
-- count_other
SELECT (SELECT count(*) FROM sandboxd.executions), (SELECT count(*) FROM sandboxd.sandboxes s WHERE s.next_action_at <= now()), (SELECT (extract(epoch FROM now() - min(s.next_action_at)) * 1000)::bigint FROM sandboxd.sandboxes s WHERE s.next_action_at <= now()), (SELECT count(*) FROM sandboxd.sandboxes s WHERE s.lease_owner IS NOT NULL), (SELECT count(*) FROM sandboxd.warm_members w WHERE w.status = 'STARTING'), (SELECT count(*) FROM sandboxd.warm_members w WHERE w.status = 'READY'), (SELECT count(*) FROM sandboxd.instances)
;
-- prune_audit
DELETE FROM sandboxd.audit d WHERE d.audit_id = ANY(ARRAY(SELECT o.audit_id FROM (SELECT i.audit_id, i.at FROM sandboxd.audit i ORDER BY i.audit_id LIMIT $2) o WHERE o.at < now() - sandboxd.span($1::bigint)))
;
-- prune_events
WITH old AS (UPDATE sandboxd.sandboxes s SET move_count = 0 WHERE s.sandbox_id = ANY(ARRAY(SELECT o.sandbox_id FROM sandboxd.sandboxes o WHERE o.ended AND o.move_count > 0 AND o.terminated_at < now() - sandboxd.span($1::bigint) ORDER BY o.terminated_at LIMIT $2 FOR UPDATE SKIP LOCKED)) RETURNING s.sandbox_id) DELETE FROM sandboxd.sandbox_events e USING old WHERE e.sandbox_id = old.sandbox_id
;
-- installation_create
INSERT INTO sandboxd.installations AS i (installation_id, account_id, control_host, callback_key) VALUES ($1, $2, $3, $4) RETURNING i.installation_id, i.account_id, i.control_host, i.callback_key, i.status = 'ACTIVE', i.created_at
;
-- installation_get
SELECT i.installation_id, i.account_id, i.control_host, i.callback_key, i.status = 'ACTIVE', i.created_at FROM sandboxd.installations i WHERE i.installation_id = $1
;
-- installation_list
SELECT i.installation_id, i.account_id, i.control_host, i.callback_key, i.status = 'ACTIVE', i.created_at FROM sandboxd.installations i WHERE i.account_id = $1 ORDER BY i.installation_id LIMIT 500
;
-- installation_activate
UPDATE sandboxd.installations i SET status = CASE WHEN $2::boolean THEN 'ACTIVE' ELSE 'SUSPENDED' END, updated_at = date_trunc('milliseconds', now()) WHERE i.installation_id = $1 RETURNING i.installation_id, i.account_id, i.control_host, i.callback_key, i.status = 'ACTIVE', i.created_at
;
-- principal_create
INSERT INTO sandboxd.principals AS p (principal_id, installation_id, permissions) VALUES ($1, $2, string_to_array($3, ',')) RETURNING p.principal_id, p.installation_id, array_to_string(p.permissions, ','), p.created_at
;
-- principal_get
SELECT p.principal_id, p.installation_id, array_to_string(p.permissions, ','), p.created_at, i.installation_id, i.account_id, i.control_host, i.callback_key, i.status = 'ACTIVE', i.created_at FROM sandboxd.principals p JOIN sandboxd.installations i USING (installation_id) WHERE p.principal_id = $1
;
-- principal_list
SELECT p.principal_id, p.installation_id, array_to_string(p.permissions, ','), p.created_at FROM sandboxd.principals p WHERE p.installation_id = $1 ORDER BY p.principal_id LIMIT 500
;
-- connection_parts
SELECT EXISTS (SELECT FROM sandboxd.installations WHERE installation_id = $2 AND account_id = $1), EXISTS (SELECT FROM sandboxd.apps WHERE app_id = $3 AND account_id = $1), EXISTS (SELECT FROM sandboxd.templates WHERE template_id = $4 AND account_id = $1 AND (app_id IS NULL OR app_id = $3)), EXISTS (SELECT FROM sandboxd.region_access WHERE region = $5 AND account_id = $1)
;
-- connection_save
INSERT INTO sandboxd.connections AS k (connection_id, account_id, installation_id, owner_user_id, app_id, template_id, region) VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (installation_id, owner_user_id) DO UPDATE SET app_id = excluded.app_id, template_id = excluded.template_id, region = excluded.region, updated_at = date_trunc('milliseconds', clock_timestamp()) WHERE k.state IN ('ABSENT', 'READY') AND NOT EXISTS (SELECT FROM sandboxd.operations o WHERE o.connection_id = k.connection_id AND o.phase NOT IN ('terminated', 'dropped')) RETURNING k.connection_id
;
-- connection_get
SELECT k.connection_id, k.account_id, k.installation_id, k.owner_user_id, k.app_id, k.template_id, k.region, k.state, k.auth_generation, k.auth_sealed, k.github_sealed, k.created_at, k.updated_at, o.operation_id, o.phase, o.run_id, o.grant_expires_at FROM sandboxd.connections k LEFT JOIN sandboxd.operations o ON o.connection_id = k.connection_id AND o.phase NOT IN ('terminated', 'dropped') WHERE k.connection_id = $1 AND ($2::text IS NULL OR k.account_id = $2) AND ($3::text IS NULL OR k.owner_user_id = $3)
;
-- connection_list
SELECT k.connection_id, k.account_id, k.installation_id, k.owner_user_id, k.app_id, k.template_id, k.region, k.state, k.auth_generation, k.auth_sealed, k.github_sealed, k.created_at, k.updated_at, o.operation_id, o.phase, o.run_id, o.grant_expires_at FROM sandboxd.connections k LEFT JOIN sandboxd.operations o ON o.connection_id = k.connection_id AND o.phase NOT IN ('terminated', 'dropped') WHERE k.account_id = $1 AND k.owner_user_id = $2 ORDER BY k.connection_id LIMIT 500
;
-- connection_sign_in
UPDATE sandboxd.connections k SET auth_sealed = $2::bytea, github_sealed = $3::bytea, auth_generation = k.auth_generation + 1, state = 'READY', updated_at = date_trunc('milliseconds', clock_timestamp()) WHERE k.connection_id = $1 AND k.state IN ('ABSENT', 'READY') AND NOT EXISTS (SELECT FROM sandboxd.operations o WHERE o.connection_id = k.connection_id AND o.phase NOT IN ('terminated', 'dropped')) RETURNING k.connection_id
;
-- connection_lock
SELECT k.connection_id FROM sandboxd.connections k WHERE k.connection_id = $1 FOR UPDATE
;
-- connection_state
UPDATE sandboxd.connections k SET state = $2, updated_at = date_trunc('milliseconds', clock_timestamp()) WHERE k.connection_id = $1
;
-- connection_destroy
UPDATE sandboxd.connections k SET state = 'ABSENT', auth_sealed = NULL, github_sealed = NULL, updated_at = date_trunc('milliseconds', clock_timestamp()) WHERE k.connection_id = $1
;
-- operation_drop
UPDATE sandboxd.operations o SET phase = 'dropped', prompt_sealed = NULL, next_action_at = NULL, lease_owner = NULL, version = o.version + 1, terminated_at = date_trunc('milliseconds', clock_timestamp()), updated_at = date_trunc('milliseconds', clock_timestamp()) WHERE o.connection_id = $1 AND o.phase = 'reserved' RETURNING o.operation_id
;
-- operation_reset
UPDATE sandboxd.operations o SET phase = 'terminating', owner_reset = true, cause = 'OWNER_RESET', next_action_at = clock_timestamp(), version = o.version + 1, attempt = 0, updated_at = date_trunc('milliseconds', clock_timestamp()) WHERE o.connection_id = $1 AND o.phase NOT IN ('terminated', 'dropped') RETURNING o.operation_id
;
-- operation_reserve
WITH k AS (UPDATE sandboxd.connections k SET state = 'FENCED', updated_at = date_trunc('milliseconds', clock_timestamp()) WHERE k.connection_id = $3 AND k.state = 'READY' AND k.auth_generation = $4::integer RETURNING k.*) INSERT INTO sandboxd.operations AS o (operation_id, sandbox_id, connection_id, account_id, installation_id, owner_user_id, app_id, template_id, region, auth_generation, grant_digest, grant_expires_at, repository, base_branch, model, token_limit, time_limit_s, prompt_sealed) SELECT $1, $2, k.connection_id, k.account_id, k.installation_id, k.owner_user_id, k.app_id, k.template_id, k.region, k.auth_generation, $5::bytea, clock_timestamp() + $6::bigint * interval '1 second', $7, $8, $9, $10::integer, $11::integer, $12::bytea FROM k RETURNING o.operation_id, o.connection_id, o.account_id, o.installation_id, o.owner_user_id, o.app_id, o.template_id, o.region, o.sandbox_id, o.phase, o.execution, o.exit_code, o.staged_sealed IS NOT NULL, o.read_failed, o.owner_reset, o.cause, o.version, o.run_id, o.grant_expires_at, o.claimed_at, o.repository, o.base_branch, o.model, o.token_limit, o.time_limit_s, o.prompt_sealed, o.staged_sealed, o.auth_generation, o.execution_id, o.started_at, o.exited_at, o.terminated_at, o.auth_preserved, o.attempt, clock_timestamp()
;
-- operation_by_grant
SELECT o.operation_id, o.connection_id, o.account_id, o.installation_id, o.owner_user_id, o.app_id, o.template_id, o.region, o.sandbox_id, o.phase, o.execution, o.exit_code, o.staged_sealed IS NOT NULL, o.read_failed, o.owner_reset, o.cause, o.version, o.run_id, o.grant_expires_at, o.claimed_at, o.repository, o.base_branch, o.model, o.token_limit, o.time_limit_s, o.prompt_sealed, o.staged_sealed, o.auth_generation, o.execution_id, o.started_at, o.exited_at, o.terminated_at, o.auth_preserved, o.attempt, clock_timestamp() FROM sandboxd.operations o WHERE o.installation_id = $1 AND o.grant_digest = $2::bytea AND (o.run_id = $3 OR (o.phase = 'reserved' AND o.grant_expires_at > clock_timestamp() AND NOT EXISTS (SELECT FROM sandboxd.operations u WHERE u.installation_id = $1 AND u.run_id = $3)))
;
-- operation_claim
UPDATE sandboxd.operations o SET phase = 'claimed', run_id = $4, principal_id = $3, claimed_at = date_trunc('milliseconds', clock_timestamp()), version = o.version + 1, updated_at = date_trunc('milliseconds', clock_timestamp()) WHERE o.installation_id = $1 AND o.grant_digest = $2::bytea AND o.phase = 'reserved' AND o.grant_expires_at > clock_timestamp() RETURNING o.operation_id, o.connection_id, o.account_id, o.installation_id, o.owner_user_id, o.app_id, o.template_id, o.region, o.sandbox_id, o.phase, o.execution, o.exit_code, o.staged_sealed IS NOT NULL, o.read_failed, o.owner_reset, o.cause, o.version, o.run_id, o.grant_expires_at, o.claimed_at, o.repository, o.base_branch, o.model, o.token_limit, o.time_limit_s, o.prompt_sealed, o.staged_sealed, o.auth_generation, o.execution_id, o.started_at, o.exited_at, o.terminated_at, o.auth_preserved, o.attempt, clock_timestamp()
;
-- operation_by_run
SELECT o.operation_id, o.connection_id, o.account_id, o.installation_id, o.owner_user_id, o.app_id, o.template_id, o.region, o.sandbox_id, o.phase, o.execution, o.exit_code, o.staged_sealed IS NOT NULL, o.read_failed, o.owner_reset, o.cause, o.version, o.run_id, o.grant_expires_at, o.claimed_at, o.repository, o.base_branch, o.model, o.token_limit, o.time_limit_s, o.prompt_sealed, o.staged_sealed, o.auth_generation, o.execution_id, o.started_at, o.exited_at, o.terminated_at, o.auth_preserved, o.attempt, clock_timestamp() FROM sandboxd.operations o WHERE o.installation_id = $1 AND o.run_id = $2
;
-- operation_get
SELECT o.operation_id, o.connection_id, o.account_id, o.installation_id, o.owner_user_id, o.app_id, o.template_id, o.region, o.sandbox_id, o.phase, o.execution, o.exit_code, o.staged_sealed IS NOT NULL, o.read_failed, o.owner_reset, o.cause, o.version, o.run_id, o.grant_expires_at, o.claimed_at, o.repository, o.base_branch, o.model, o.token_limit, o.time_limit_s, o.prompt_sealed, o.staged_sealed, o.auth_generation, o.execution_id, o.started_at, o.exited_at, o.terminated_at, o.auth_preserved, o.attempt, clock_timestamp() FROM sandboxd.operations o WHERE o.operation_id = $1
;
-- operation_by_sandbox
SELECT o.operation_id, o.connection_id, o.account_id, o.installation_id, o.owner_user_id, o.app_id, o.template_id, o.region, o.sandbox_id, o.phase, o.execution, o.exit_code, o.staged_sealed IS NOT NULL, o.read_failed, o.owner_reset, o.cause, o.version, o.run_id, o.grant_expires_at, o.claimed_at, o.repository, o.base_branch, o.model, o.token_limit, o.time_limit_s, o.prompt_sealed, o.staged_sealed, o.auth_generation, o.execution_id, o.started_at, o.exited_at, o.terminated_at, o.auth_preserved, o.attempt, clock_timestamp() FROM sandboxd.operations o WHERE o.sandbox_id = $1
;
-- operation_owner_ok
SELECT EXISTS (SELECT FROM sandboxd.operations o JOIN sandboxd.installations i USING (installation_id) JOIN sandboxd.accounts c ON c.account_id = o.account_id JOIN sandboxd.members m ON m.account_id = o.account_id AND m.user_id = o.owner_user_id WHERE o.operation_id = $1 AND i.status = 'ACTIVE' AND c.entitled AND m.roles && ARRAY['admin', 'technical'])
;
-- operation_move
WITH moved AS (UPDATE sandboxd.operations o SET phase = coalesce($3, o.phase), execution = coalesce($4, o.execution), execution_id = coalesce($5, o.execution_id), started_at = CASE WHEN $6::boolean THEN date_trunc('milliseconds', clock_timestamp()) ELSE o.started_at END, exited_at = CASE WHEN $7::boolean THEN date_trunc('milliseconds', clock_timestamp()) ELSE o.exited_at END, exit_code = coalesce($8::integer, o.exit_code), cause = coalesce($9, o.cause), staged_sealed = coalesce($10::bytea, o.staged_sealed), read_failed = o.read_failed OR $11::boolean, owner_reset = o.owner_reset OR $12::boolean, next_action_at = CASE WHEN $13::bigint < 0 THEN NULL ELSE clock_timestamp() + $13::bigint * interval '1 millisecond' END, lease_owner = NULL, attempt = 0, version = o.version + 1, updated_at = date_trunc('milliseconds', clock_timestamp()) WHERE o.operation_id = $1 AND o.version = $2::bigint AND o.phase NOT IN ('terminated', 'dropped') RETURNING o.*), k AS (UPDATE sandboxd.connections k SET state = $14, updated_at = date_trunc('milliseconds', clock_timestamp()) FROM moved WHERE k.connection_id = moved.connection_id AND $14::text IS NOT NULL) SELECT o.operation_id, o.connection_id, o.account_id, o.installation_id, o.owner_user_id, o.app_id, o.template_id, o.region, o.sandbox_id, o.phase, o.execution, o.exit_code, o.staged_sealed IS NOT NULL, o.read_failed, o.owner_reset, o.cause, o.version, o.run_id, o.grant_expires_at, o.claimed_at, o.repository, o.base_branch, o.model, o.token_limit, o.time_limit_s, o.prompt_sealed, o.staged_sealed, o.auth_generation, o.execution_id, o.started_at, o.exited_at, o.terminated_at, o.auth_preserved, o.attempt, clock_timestamp() FROM moved o
;
-- operation_finish
WITH prior AS (SELECT o.operation_id, o.connection_id, o.staged_sealed FROM sandboxd.operations o WHERE o.operation_id = $1 AND o.version = $2::bigint AND o.phase = 'terminating' AND NOT ($3::boolean AND (o.owner_reset OR o.staged_sealed IS NULL)) FOR UPDATE), k AS (UPDATE sandboxd.connections k SET state = CASE WHEN $3 THEN 'READY' ELSE 'ABSENT' END, auth_generation = k.auth_generation + CASE WHEN $3 THEN 1 ELSE 0 END, auth_sealed = CASE WHEN $3 THEN prior.staged_sealed END, github_sealed = CASE WHEN $3 THEN k.github_sealed END, updated_at = date_trunc('milliseconds', clock_timestamp()) FROM prior WHERE k.connection_id = prior.connection_id) UPDATE sandboxd.operations o SET phase = 'terminated', cause = $4, auth_preserved = $3, execution = CASE WHEN o.execution IN ('starting', 'running') THEN 'exited' ELSE o.execution END, exited_at = CASE WHEN o.execution IN ('starting', 'running') THEN date_trunc('milliseconds', clock_timestamp()) ELSE o.exited_at END, prompt_sealed = NULL, staged_sealed = NULL, next_action_at = NULL, lease_owner = NULL, terminated_at = date_trunc('milliseconds', clock_timestamp()), updated_at = date_trunc('milliseconds', clock_timestamp()), version = o.version + 1 FROM prior WHERE o.operation_id = prior.operation_id RETURNING o.operation_id, o.connection_id, o.account_id, o.installation_id, o.owner_user_id, o.app_id, o.template_id, o.region, o.sandbox_id, o.phase, o.execution, o.exit_code, o.staged_sealed IS NOT NULL, o.read_failed, o.owner_reset, o.cause, o.version, o.run_id, o.grant_expires_at, o.claimed_at, o.repository, o.base_branch, o.model, o.token_limit, o.time_limit_s, o.prompt_sealed, o.staged_sealed, o.auth_generation, o.execution_id, o.started_at, o.exited_at, o.terminated_at, o.auth_preserved, o.attempt, clock_timestamp()
;
-- operation_claim_due
UPDATE sandboxd.operations o SET lease_owner = $1, next_action_at = clock_timestamp() + $2::bigint * interval '1 millisecond', attempt = o.attempt + 1 WHERE o.operation_id IN (SELECT d.operation_id FROM sandboxd.operations d WHERE d.next_action_at <= clock_timestamp() ORDER BY d.next_action_at LIMIT $3::integer FOR UPDATE SKIP LOCKED) RETURNING o.operation_id, o.connection_id, o.account_id, o.installation_id, o.owner_user_id, o.app_id, o.template_id, o.region, o.sandbox_id, o.phase, o.execution, o.exit_code, o.staged_sealed IS NOT NULL, o.read_failed, o.owner_reset, o.cause, o.version, o.run_id, o.grant_expires_at, o.claimed_at, o.repository, o.base_branch, o.model, o.token_limit, o.time_limit_s, o.prompt_sealed, o.staged_sealed, o.auth_generation, o.execution_id, o.started_at, o.exited_at, o.terminated_at, o.auth_preserved, o.attempt, clock_timestamp()
;
-- operation_release
UPDATE sandboxd.operations o SET lease_owner = NULL, next_action_at = CASE WHEN $3::bigint < 0 THEN NULL ELSE clock_timestamp() + $3::bigint * interval '1 millisecond' END WHERE o.operation_id = $1 AND o.lease_owner = $2 AND o.next_action_at IS NOT NULL
;
-- operation_next_due
SELECT CASE WHEN n.at IS NULL THEN -1 ELSE greatest(0, floor(extract(epoch FROM n.at - clock_timestamp()) * 1000)::bigint) END FROM (SELECT min(o.next_action_at) AS at FROM sandboxd.operations o WHERE o.next_action_at IS NOT NULL) n
;
-- operation_unfinished
SELECT EXISTS (SELECT FROM sandboxd.operations o WHERE o.connection_id = $1 AND o.phase NOT IN ('terminated', 'dropped'))
;
-- stream_create
INSERT INTO sandboxd.streams AS s (stream_id, owner_user_id) VALUES ($1, $2) RETURNING s.stream_id, s.owner_user_id, s.created_at
;
-- stream_remove
DELETE FROM sandboxd.streams s WHERE s.stream_id = $1 RETURNING s.stream_id
;
-- stream_list
SELECT s.stream_id, s.owner_user_id, s.created_at FROM sandboxd.streams s WHERE $1::text IS NULL OR s.stream_id > $1 ORDER BY s.stream_id LIMIT $2
;
-- stream_of_subject
SELECT s.stream_id FROM sandboxd.streams s JOIN sandboxd.users u ON u.user_id = s.owner_user_id WHERE s.stream_id = $1 AND u.subject = $2
;
-- stream_of_user
SELECT s.stream_id FROM sandboxd.streams s WHERE s.stream_id = $1 AND s.owner_user_id = $2
;
-- worker_check_in
INSERT INTO sandboxd.workers AS w (stream_id, worker_id, version) VALUES ($1, $2, $3) ON CONFLICT (stream_id, worker_id) DO UPDATE SET version = EXCLUDED.version, last_check_in_at = date_trunc('milliseconds', now()) RETURNING w.worker_id, w.version, w.registered_at, w.last_check_in_at, w.xmax = 0
;
-- worker_prune
DELETE FROM sandboxd.workers w WHERE w.stream_id = $1 AND w.worker_id IN (SELECT o.worker_id FROM sandboxd.workers o WHERE o.stream_id = $1 ORDER BY o.last_check_in_at DESC, o.worker_id OFFSET $2)
;
-- worker_list
SELECT w.worker_id, w.version, w.registered_at, w.last_check_in_at, date_trunc('milliseconds', now()) FROM sandboxd.workers w WHERE w.stream_id = $1 ORDER BY w.worker_id LIMIT $2
;
