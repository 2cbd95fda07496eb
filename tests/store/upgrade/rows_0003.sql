INSERT INTO sandboxd.templates (template_id, account_id, app_id, name, slug, current_revision)
    VALUES ('01TEMPLATE0000000000000000', '01ACCOUNT00000000000000000', '01APP000000000000000000000', 'Tiny', 'tiny', 1);
INSERT INTO sandboxd.revisions (revision_id, template_id, account_id, revision, image_digest, command, resources, z_clouds,
        persistence_mode, volume_size_mb, snapshot_max_mb, idle_timeout_s, hard_lifetime_s, suspended_retention_s)
    VALUES ('01REVISION0000000000000000', '01TEMPLATE0000000000000000', '01ACCOUNT00000000000000000', 1,
            'library/tiny@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef', '["sleep", "9"]',
            '{"zClouds": 1}', 1, 'SNAPSHOT', 10240, 2048, 1800, 3600, 604800);
