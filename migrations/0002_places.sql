-- Where: regions, who may use them, object storage backends, registry credentials, volumes.
-- Secrets are sealed by the program (AES-256-GCM, bound to table, column and row).

CREATE TABLE sandboxd.regions (
    region     text COLLATE "C" PRIMARY KEY CHECK (region ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    url        text,
    socket     text,
    secret     bytea,
    sandboxes  boolean NOT NULL DEFAULT true,
    enabled    boolean NOT NULL DEFAULT true,
    created_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    CHECK (num_nonnulls(url, socket) = 1)
);
COMMENT ON TABLE sandboxd.regions IS 'Region gateways.';
COMMENT ON COLUMN sandboxd.regions.region IS 'Name, which is the id.';
COMMENT ON COLUMN sandboxd.regions.url IS 'Where the gateway is, over TCP.';
COMMENT ON COLUMN sandboxd.regions.socket IS 'Where the gateway is, on this host.';
COMMENT ON COLUMN sandboxd.regions.secret IS 'Bearer secret, sealed.';
COMMENT ON COLUMN sandboxd.regions.sandboxes IS 'The Agent Sandbox add-on.';
COMMENT ON COLUMN sandboxd.regions.enabled IS 'Switched on by the operator.';
COMMENT ON COLUMN sandboxd.regions.created_at IS 'When it was made.';

CREATE TABLE sandboxd.region_access (
    account_id text COLLATE "C" NOT NULL REFERENCES sandboxd.accounts,
    region     text COLLATE "C" NOT NULL REFERENCES sandboxd.regions,
    created_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    PRIMARY KEY (account_id, region)
);
COMMENT ON TABLE sandboxd.region_access IS 'Which account may use which region.';
COMMENT ON COLUMN sandboxd.region_access.account_id IS 'The account.';
COMMENT ON COLUMN sandboxd.region_access.region IS 'The region.';
COMMENT ON COLUMN sandboxd.region_access.created_at IS 'When it was granted.';

CREATE TABLE sandboxd.storage_backends (
    backend_id text COLLATE "C" PRIMARY KEY,
    account_id text COLLATE "C" NOT NULL REFERENCES sandboxd.accounts,
    region     text COLLATE "C" NOT NULL REFERENCES sandboxd.regions,
    kind       text NOT NULL CHECK (kind IN ('dir', 's3')),
    path       text,
    endpoint   text,
    bucket     text,
    prefix     text,
    s3_region  text,
    access_key bytea,
    secret_key bytea,
    created_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    UNIQUE (account_id, region),
    CHECK (CASE kind WHEN 'dir' THEN path IS NOT NULL
                     ELSE num_nonnulls(endpoint, bucket, access_key, secret_key) = 4 END)
);
COMMENT ON TABLE sandboxd.storage_backends IS 'Object storage of an account in a region.';
COMMENT ON COLUMN sandboxd.storage_backends.backend_id IS 'Id.';
COMMENT ON COLUMN sandboxd.storage_backends.account_id IS 'The account.';
COMMENT ON COLUMN sandboxd.storage_backends.region IS 'The region.';
COMMENT ON COLUMN sandboxd.storage_backends.kind IS 's3, or dir: a folder of the region host.';
COMMENT ON COLUMN sandboxd.storage_backends.path IS 'dir: the folder.';
COMMENT ON COLUMN sandboxd.storage_backends.endpoint IS 's3: URL.';
COMMENT ON COLUMN sandboxd.storage_backends.bucket IS 's3: bucket.';
COMMENT ON COLUMN sandboxd.storage_backends.prefix IS 's3: prefix of every key.';
COMMENT ON COLUMN sandboxd.storage_backends.s3_region IS 's3: region to sign for.';
COMMENT ON COLUMN sandboxd.storage_backends.access_key IS 's3: access key, sealed.';
COMMENT ON COLUMN sandboxd.storage_backends.secret_key IS 's3: secret key, sealed.';
COMMENT ON COLUMN sandboxd.storage_backends.created_at IS 'When it was made.';

CREATE TABLE sandboxd.registry_credentials (
    registry_id text COLLATE "C" PRIMARY KEY,
    account_id  text COLLATE "C" NOT NULL REFERENCES sandboxd.accounts,
    host        text COLLATE "C" NOT NULL CHECK (length(host) BETWEEN 1 AND 255),
    username    text NOT NULL,
    password    bytea NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    UNIQUE (account_id, host)
);
COMMENT ON TABLE sandboxd.registry_credentials IS 'Image registry credentials of an account.';
COMMENT ON COLUMN sandboxd.registry_credentials.registry_id IS 'Id.';
COMMENT ON COLUMN sandboxd.registry_credentials.account_id IS 'The account.';
COMMENT ON COLUMN sandboxd.registry_credentials.host IS 'Registry host, with port when it has one.';
COMMENT ON COLUMN sandboxd.registry_credentials.username IS 'User name.';
COMMENT ON COLUMN sandboxd.registry_credentials.password IS 'Password, sealed.';
COMMENT ON COLUMN sandboxd.registry_credentials.created_at IS 'When it was made.';

CREATE TABLE sandboxd.volumes (
    account_id  text COLLATE "C" NOT NULL REFERENCES sandboxd.accounts,
    region      text COLLATE "C" NOT NULL REFERENCES sandboxd.regions,
    volume_name text COLLATE "C" NOT NULL CHECK (volume_name ~ '^[a-z][a-z0-9-]{0,62}$'),
    status      text NOT NULL DEFAULT 'ACTIVE' CHECK (status IN ('ACTIVE', 'PENDING_PURGE')),
    size_mb     integer NOT NULL CHECK (size_mb > 0),
    created_at  timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    updated_at  timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    purge_at    timestamptz,
    purging     boolean NOT NULL DEFAULT false,
    lease_owner text COLLATE "C",
    lease_until timestamptz,
    PRIMARY KEY (account_id, region, volume_name),
    CHECK ((status = 'PENDING_PURGE') = (purge_at IS NOT NULL)),
    CHECK (status = 'PENDING_PURGE' OR NOT purging)
);
CREATE INDEX volumes_purge ON sandboxd.volumes (purge_at) WHERE purge_at IS NOT NULL;
COMMENT ON TABLE sandboxd.volumes IS 'Shared volumes: a name on the account''s backend in a region.';
COMMENT ON COLUMN sandboxd.volumes.account_id IS 'The owning account.';
COMMENT ON COLUMN sandboxd.volumes.region IS 'The region it lives in.';
COMMENT ON COLUMN sandboxd.volumes.volume_name IS 'Unique in account and region.';
COMMENT ON COLUMN sandboxd.volumes.status IS 'ACTIVE, or PENDING_PURGE after its removal.';
COMMENT ON COLUMN sandboxd.volumes.size_mb IS 'Nominal size.';
COMMENT ON COLUMN sandboxd.volumes.created_at IS 'When it was made.';
COMMENT ON COLUMN sandboxd.volumes.updated_at IS 'When its status last changed.';
COMMENT ON COLUMN sandboxd.volumes.purge_at IS 'Until when it can be restored.';
COMMENT ON COLUMN sandboxd.volumes.purging IS 'Objects are being deleted: no way back.';
COMMENT ON COLUMN sandboxd.volumes.lease_owner IS 'The control plane that purges it.';
COMMENT ON COLUMN sandboxd.volumes.lease_until IS 'Until when it may.';
