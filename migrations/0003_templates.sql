-- Templates, and revisions that nothing changes once they are there.

CREATE TABLE sandboxd.templates (
    template_id      text COLLATE "C" PRIMARY KEY,
    account_id       text COLLATE "C" NOT NULL REFERENCES sandboxd.accounts,
    app_id           text COLLATE "C" REFERENCES sandboxd.apps,
    name             text NOT NULL CHECK (length(name) BETWEEN 1 AND 120),
    slug             text COLLATE "C" NOT NULL CHECK (slug ~ '^[a-z0-9]+(-[a-z0-9]+)*$' AND length(slug) <= 63),
    description      text CHECK (length(description) <= 2000),
    enabled          boolean NOT NULL DEFAULT true,
    deprecated_at    timestamptz,
    current_revision integer NOT NULL DEFAULT 0,
    created_at       timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    updated_at       timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    UNIQUE (account_id, slug)
);
CREATE INDEX templates_account ON sandboxd.templates (account_id, created_at DESC, template_id DESC);
COMMENT ON TABLE sandboxd.templates IS 'Named definitions; what runs is in their revisions.';
COMMENT ON COLUMN sandboxd.templates.template_id IS 'Id.';
COMMENT ON COLUMN sandboxd.templates.account_id IS 'The owning account.';
COMMENT ON COLUMN sandboxd.templates.app_id IS 'The only app that may use it, or null for all of the account.';
COMMENT ON COLUMN sandboxd.templates.name IS 'For people.';
COMMENT ON COLUMN sandboxd.templates.slug IS 'From the first name; never changes.';
COMMENT ON COLUMN sandboxd.templates.description IS 'For people.';
COMMENT ON COLUMN sandboxd.templates.enabled IS 'Whether new sandboxes may be made from it.';
COMMENT ON COLUMN sandboxd.templates.deprecated_at IS 'When it was deprecated.';
COMMENT ON COLUMN sandboxd.templates.current_revision IS 'Number of the newest revision, 0 for none; taking the next one locks the row.';
COMMENT ON COLUMN sandboxd.templates.created_at IS 'When it was made.';
COMMENT ON COLUMN sandboxd.templates.updated_at IS 'When it was last saved or given a revision.';

CREATE TABLE sandboxd.revisions (
    revision_id           text COLLATE "C" PRIMARY KEY,
    template_id           text COLLATE "C" NOT NULL REFERENCES sandboxd.templates,
    account_id            text COLLATE "C" NOT NULL REFERENCES sandboxd.accounts,
    revision              integer NOT NULL CHECK (revision > 0),
    image_digest          text NOT NULL,
    image_ref             text,
    command               jsonb,
    working_dir           text,
    ports                 jsonb,
    resources             jsonb NOT NULL,
    z_clouds              integer NOT NULL,
    persistence_mode      text NOT NULL CHECK (persistence_mode IN ('EPHEMERAL', 'DIRECTORY', 'SNAPSHOT', 'BOTH')),
    volume_size_mb        integer NOT NULL CHECK (volume_size_mb > 0),
    mount_path            text,
    snapshot_exclude      jsonb,
    snapshot_max_mb       integer NOT NULL CHECK (snapshot_max_mb > 0),
    idle_timeout_s        integer NOT NULL CHECK (idle_timeout_s > 0),
    hard_lifetime_s       integer NOT NULL CHECK (hard_lifetime_s > 0),
    suspended_retention_s integer NOT NULL CHECK (suspended_retention_s > 0),
    warm_pool             boolean NOT NULL DEFAULT false,
    warm_desired          integer NOT NULL DEFAULT 0,
    warm_min              integer NOT NULL DEFAULT 0,
    warm_max              integer NOT NULL DEFAULT 0,
    warm_regions          text[] NOT NULL DEFAULT '{}',
    network_control       jsonb,
    created_at            timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    UNIQUE (template_id, revision),
    CHECK (0 <= warm_min AND warm_min <= warm_desired AND warm_desired <= warm_max),
    CHECK (NOT warm_pool OR persistence_mode = 'EPHEMERAL')
);
CREATE INDEX revisions_warm ON sandboxd.revisions (template_id, revision) WHERE warm_pool AND warm_max > 0;
COMMENT ON TABLE sandboxd.revisions IS 'Runtime configurations, numbered without gap in a template; immutable (a trigger refuses any change).';
COMMENT ON COLUMN sandboxd.revisions.revision_id IS 'Id.';
COMMENT ON COLUMN sandboxd.revisions.template_id IS 'The template.';
COMMENT ON COLUMN sandboxd.revisions.account_id IS 'The template''s account.';
COMMENT ON COLUMN sandboxd.revisions.revision IS 'From 1.';
COMMENT ON COLUMN sandboxd.revisions.image_digest IS 'repository@sha256:<64 hex>.';
COMMENT ON COLUMN sandboxd.revisions.image_ref IS 'For people.';
COMMENT ON COLUMN sandboxd.revisions.command IS 'argv, or null for the image''s own.';
COMMENT ON COLUMN sandboxd.revisions.working_dir IS 'Working folder inside.';
COMMENT ON COLUMN sandboxd.revisions.ports IS 'Declared ports.';
COMMENT ON COLUMN sandboxd.revisions.resources IS 'cpu and memory, requests and limits.';
COMMENT ON COLUMN sandboxd.revisions.z_clouds IS 'The size that resources were made from.';
COMMENT ON COLUMN sandboxd.revisions.persistence_mode IS 'Default mode of its sandboxes.';
COMMENT ON COLUMN sandboxd.revisions.volume_size_mb IS 'Nominal size of a volume that is made for a sandbox.';
COMMENT ON COLUMN sandboxd.revisions.mount_path IS 'Where the volume''s folder is mounted.';
COMMENT ON COLUMN sandboxd.revisions.snapshot_exclude IS 'Patterns left out of a snapshot.';
COMMENT ON COLUMN sandboxd.revisions.snapshot_max_mb IS 'Cap of a snapshot, uncompressed.';
COMMENT ON COLUMN sandboxd.revisions.idle_timeout_s IS 'Idle seconds after which a sandbox ends.';
COMMENT ON COLUMN sandboxd.revisions.hard_lifetime_s IS 'Seconds after its creation at which a sandbox ends.';
COMMENT ON COLUMN sandboxd.revisions.suspended_retention_s IS 'Seconds a suspended sandbox is kept.';
COMMENT ON COLUMN sandboxd.revisions.warm_pool IS 'A warm pool was given, so volume modes are refused.';
COMMENT ON COLUMN sandboxd.revisions.warm_desired IS 'Target of a pool.';
COMMENT ON COLUMN sandboxd.revisions.warm_min IS 'Below it a refill is urgent.';
COMMENT ON COLUMN sandboxd.revisions.warm_max IS 'Bound of starting plus ready members.';
COMMENT ON COLUMN sandboxd.revisions.warm_regions IS 'Regions that keep a pool.';
COMMENT ON COLUMN sandboxd.revisions.network_control IS 'Egress restrictions, or null for the default.';
COMMENT ON COLUMN sandboxd.revisions.created_at IS 'When it was made.';

CREATE FUNCTION sandboxd.revision_is_immutable() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    RAISE EXCEPTION 'revisions are immutable' USING ERRCODE = 'integrity_constraint_violation';
END
$$;
COMMENT ON FUNCTION sandboxd.revision_is_immutable() IS 'Refuses any change of a revision.';
CREATE TRIGGER immutable BEFORE UPDATE OR DELETE ON sandboxd.revisions
    FOR EACH ROW EXECUTE FUNCTION sandboxd.revision_is_immutable();
CREATE TRIGGER immutable_all BEFORE TRUNCATE ON sandboxd.revisions
    FOR EACH STATEMENT EXECUTE FUNCTION sandboxd.revision_is_immutable();

CREATE FUNCTION sandboxd.template_create(p_template_id text, p_account_id text, p_app_id text,
    p_name text, p_slug_base text, p_description text, p_enabled boolean, p_deprecated boolean)
RETURNS SETOF sandboxd.templates
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
    v_suffix text := '';
    v_row sandboxd.templates;
BEGIN
    IF p_app_id IS NOT NULL AND NOT EXISTS (SELECT FROM sandboxd.apps a
            WHERE a.app_id = p_app_id AND a.account_id = p_account_id) THEN
        RETURN;
    END IF;
    FOR i IN 2 .. 10001 LOOP
        INSERT INTO sandboxd.templates AS t (template_id, account_id, app_id, name, slug,
                description, enabled, deprecated_at)
            VALUES (p_template_id, p_account_id, p_app_id, p_name,
                rtrim(left(p_slug_base, 63 - length(v_suffix)), '-') || v_suffix, p_description,
                p_enabled, CASE WHEN p_deprecated THEN now() END)
            ON CONFLICT (account_id, slug) DO NOTHING
            RETURNING t.* INTO v_row;
        IF FOUND THEN
            RETURN NEXT v_row;
            RETURN;
        END IF;
        v_suffix := '-' || i;
    END LOOP;
    RAISE EXCEPTION 'no free slug' USING ERRCODE = 'unique_violation';
END
$$;
COMMENT ON FUNCTION sandboxd.template_create(text, text, text, text, text, text, boolean, boolean)
    IS 'Inserts a template under the first free slug; no row when the app is not the account''s.';
