-- Personal Warren runs (seed "Personal Warren run admission", contract 6): installations,
-- service principals, connections with their sealed sign-in, operations and their receipts.

CREATE TABLE sandboxd.installations (
    installation_id text COLLATE "C" PRIMARY KEY,
    account_id      text COLLATE "C" NOT NULL REFERENCES sandboxd.accounts (account_id),
    control_host    text NOT NULL,
    callback_key    text NOT NULL,
    status          text NOT NULL DEFAULT 'ACTIVE' CHECK (status IN ('ACTIVE', 'SUSPENDED')),
    created_at      timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    updated_at      timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now())
);
CREATE INDEX installations_account ON sandboxd.installations (account_id);
COMMENT ON TABLE sandboxd.installations IS 'A Warren Solution installed in an account';
COMMENT ON COLUMN sandboxd.installations.installation_id IS 'Id';
COMMENT ON COLUMN sandboxd.installations.account_id IS 'The account that installed it';
COMMENT ON COLUMN sandboxd.installations.control_host IS 'URL that runs call back to; iss of callback tokens';
COMMENT ON COLUMN sandboxd.installations.callback_key IS 'PEM public key that callback tokens are signed with';
COMMENT ON COLUMN sandboxd.installations.status IS 'ACTIVE or SUSPENDED: a suspended one is refused on every orchestrator endpoint';
COMMENT ON COLUMN sandboxd.installations.created_at IS 'When it was made';
COMMENT ON COLUMN sandboxd.installations.updated_at IS 'When it was last changed';

CREATE TABLE sandboxd.principals (
    principal_id    text COLLATE "C" PRIMARY KEY,
    installation_id text COLLATE "C" NOT NULL REFERENCES sandboxd.installations (installation_id),
    permissions     text[] NOT NULL CHECK (cardinality(permissions) > 0
                    AND permissions <@ ARRAY['sandbox:create', 'sandbox:read', 'sandbox:terminate']),
    created_at      timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now())
);
CREATE INDEX principals_installation ON sandboxd.principals (installation_id);
COMMENT ON TABLE sandboxd.principals IS 'A service principal of one installation; its tokens are rows of tokens';
COMMENT ON COLUMN sandboxd.principals.principal_id IS 'Id';
COMMENT ON COLUMN sandboxd.principals.installation_id IS 'The installation it belongs to';
COMMENT ON COLUMN sandboxd.principals.permissions IS 'What it may do';
COMMENT ON COLUMN sandboxd.principals.created_at IS 'When it was made';

ALTER TABLE sandboxd.tokens ADD FOREIGN KEY (principal_id) REFERENCES sandboxd.principals;

CREATE TABLE sandboxd.connections (
    connection_id   text COLLATE "C" PRIMARY KEY,
    account_id      text COLLATE "C" NOT NULL REFERENCES sandboxd.accounts (account_id),
    installation_id text COLLATE "C" NOT NULL REFERENCES sandboxd.installations (installation_id),
    owner_user_id   text COLLATE "C" NOT NULL REFERENCES sandboxd.users (user_id),
    app_id          text COLLATE "C" NOT NULL,
    template_id     text COLLATE "C" NOT NULL,
    region          text NOT NULL,
    state           text NOT NULL DEFAULT 'ABSENT'
                    CHECK (state IN ('ABSENT', 'READY', 'FENCED', 'QUARANTINED', 'RESETTING')),
    auth_generation integer NOT NULL DEFAULT 0 CHECK (auth_generation >= 0),
    auth_sealed     bytea,
    github_sealed   bytea,
    created_at      timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    updated_at      timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    UNIQUE (installation_id, owner_user_id),
    CHECK (state <> 'READY' OR (auth_sealed IS NOT NULL AND github_sealed IS NOT NULL))
);
CREATE INDEX connections_owner ON sandboxd.connections (account_id, owner_user_id);
COMMENT ON TABLE sandboxd.connections IS 'One owner''s personal sign-in at one installation';
COMMENT ON COLUMN sandboxd.connections.connection_id IS 'Id';
COMMENT ON COLUMN sandboxd.connections.account_id IS 'Account of the installation';
COMMENT ON COLUMN sandboxd.connections.installation_id IS 'The installation';
COMMENT ON COLUMN sandboxd.connections.owner_user_id IS 'The person whose sign-in it is; nobody acts for them';
COMMENT ON COLUMN sandboxd.connections.app_id IS 'App that holders belong to';
COMMENT ON COLUMN sandboxd.connections.template_id IS 'Template of the holders';
COMMENT ON COLUMN sandboxd.connections.region IS 'Region of the holders';
COMMENT ON COLUMN sandboxd.connections.state IS 'ABSENT: no sign-in; READY; FENCED: an operation holds it; QUARANTINED: it does not open; RESETTING: its holder is being ended';
COMMENT ON COLUMN sandboxd.connections.auth_generation IS 'Number of the stored sign-in; grows by one with each sign-in and each clean run; kept by a reset';
COMMENT ON COLUMN sandboxd.connections.auth_sealed IS 'The sign-in file, AES-256-GCM; context connections.auth_sealed:<connection id>';
COMMENT ON COLUMN sandboxd.connections.github_sealed IS 'The owner''s GitHub credential, AES-256-GCM; context connections.github_sealed:<connection id>';
COMMENT ON COLUMN sandboxd.connections.created_at IS 'When it was made';
COMMENT ON COLUMN sandboxd.connections.updated_at IS 'When it was last changed';

CREATE TABLE sandboxd.operations (
    operation_id     text COLLATE "C" PRIMARY KEY,
    connection_id    text COLLATE "C" NOT NULL REFERENCES sandboxd.connections (connection_id),
    account_id       text COLLATE "C" NOT NULL,
    installation_id  text COLLATE "C" NOT NULL,
    owner_user_id    text COLLATE "C" NOT NULL,
    app_id           text COLLATE "C" NOT NULL,
    template_id      text COLLATE "C" NOT NULL,
    region           text NOT NULL,
    sandbox_id       text COLLATE "C" NOT NULL UNIQUE,
    phase            text NOT NULL DEFAULT 'reserved'
                     CHECK (phase IN ('reserved', 'claimed', 'preparing', 'allocating', 'ready', 'terminating',
                                      'terminated', 'quarantined', 'dropped')),
    execution        text NOT NULL DEFAULT 'pending'
                     CHECK (execution IN ('pending', 'starting', 'running', 'exited')),
    version          bigint NOT NULL DEFAULT 0,
    run_id           text COLLATE "C",
    principal_id     text COLLATE "C",
    grant_digest     bytea NOT NULL UNIQUE,
    grant_expires_at timestamptz NOT NULL,
    claimed_at       timestamptz,
    repository       text NOT NULL,
    base_branch      text NOT NULL,
    model            text NOT NULL,
    token_limit      integer NOT NULL,
    time_limit_s     integer NOT NULL,
    prompt_sealed    bytea,
    auth_generation  integer NOT NULL,
    execution_id     text COLLATE "C",
    started_at       timestamptz,
    exited_at        timestamptz,
    exit_code        integer,
    cause            text CHECK (cause IN ('COMPLETED', 'FAILED', 'TIME_LIMIT', 'CANCELLED', 'OWNER_RESET',
                                           'LOST', 'START_UNCERTAIN')),
    staged_sealed    bytea,
    read_failed      boolean NOT NULL DEFAULT false,
    owner_reset      boolean NOT NULL DEFAULT false,
    auth_preserved   boolean,
    created_at       timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    updated_at       timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    terminated_at    timestamptz,
    next_action_at   timestamptz,
    lease_owner      text,
    attempt          integer NOT NULL DEFAULT 0,
    CHECK ((run_id IS NULL) = (claimed_at IS NULL)),
    CHECK (phase NOT IN ('terminated', 'dropped')
           OR (prompt_sealed IS NULL AND staged_sealed IS NULL AND next_action_at IS NULL)),
    CHECK (phase <> 'terminated' OR (auth_preserved IS NOT NULL AND cause IS NOT NULL))
);
CREATE UNIQUE INDEX operations_run ON sandboxd.operations (installation_id, run_id) WHERE run_id IS NOT NULL;
CREATE UNIQUE INDEX operations_fence ON sandboxd.operations (connection_id)
    WHERE phase NOT IN ('terminated', 'dropped');
CREATE INDEX operations_due ON sandboxd.operations (next_action_at) WHERE next_action_at IS NOT NULL;
COMMENT ON TABLE sandboxd.operations IS 'One reserved task of a connection, from its reservation to the receipt that outlives it';
COMMENT ON COLUMN sandboxd.operations.operation_id IS 'Id';
COMMENT ON COLUMN sandboxd.operations.connection_id IS 'The connection whose fence it holds until terminated or dropped';
COMMENT ON COLUMN sandboxd.operations.account_id IS 'Account, as of the reservation';
COMMENT ON COLUMN sandboxd.operations.installation_id IS 'Installation, as of the reservation';
COMMENT ON COLUMN sandboxd.operations.owner_user_id IS 'Owner, as of the reservation';
COMMENT ON COLUMN sandboxd.operations.app_id IS 'App of the holder, frozen';
COMMENT ON COLUMN sandboxd.operations.template_id IS 'Template of the holder, frozen';
COMMENT ON COLUMN sandboxd.operations.region IS 'Region of the holder, frozen';
COMMENT ON COLUMN sandboxd.operations.sandbox_id IS 'Id of the one holder it may ever have, fixed at reservation';
COMMENT ON COLUMN sandboxd.operations.phase IS 'As the move table in src/domain/run_state.c says';
COMMENT ON COLUMN sandboxd.operations.execution IS 'The entrypoint: starting is written before the start is tried, once';
COMMENT ON COLUMN sandboxd.operations.version IS 'Grows with every change; guards each move';
COMMENT ON COLUMN sandboxd.operations.run_id IS 'Warren''s run id, bound by the claim for ever';
COMMENT ON COLUMN sandboxd.operations.principal_id IS 'The principal that claimed it';
COMMENT ON COLUMN sandboxd.operations.grant_digest IS 'SHA-256 of the grant';
COMMENT ON COLUMN sandboxd.operations.grant_expires_at IS 'An unclaimed grant is dead from then on; nothing else ends by it';
COMMENT ON COLUMN sandboxd.operations.claimed_at IS 'When it was bound';
COMMENT ON COLUMN sandboxd.operations.repository IS 'owner/name, as reserved';
COMMENT ON COLUMN sandboxd.operations.base_branch IS 'Branch the task starts from';
COMMENT ON COLUMN sandboxd.operations.model IS 'Model the owner approved';
COMMENT ON COLUMN sandboxd.operations.token_limit IS 'Tokens the owner approved';
COMMENT ON COLUMN sandboxd.operations.time_limit_s IS 'Seconds the owner approved';
COMMENT ON COLUMN sandboxd.operations.prompt_sealed IS 'The prompt, AES-256-GCM; dropped at cleanup; context operations.prompt_sealed:<operation id>';
COMMENT ON COLUMN sandboxd.operations.auth_generation IS 'The sign-in generation it was reserved on';
COMMENT ON COLUMN sandboxd.operations.execution_id IS 'Id of the one start';
COMMENT ON COLUMN sandboxd.operations.started_at IS 'When the start was written down';
COMMENT ON COLUMN sandboxd.operations.exited_at IS 'When the exit was witnessed or given up';
COMMENT ON COLUMN sandboxd.operations.exit_code IS 'Witnessed exit code; never invented';
COMMENT ON COLUMN sandboxd.operations.cause IS 'Why it ended; the first one stays, but the owner''s reset wins';
COMMENT ON COLUMN sandboxd.operations.staged_sealed IS 'The next sign-in, read back after exit 0; context connections.auth_sealed:<connection id>';
COMMENT ON COLUMN sandboxd.operations.read_failed IS 'The next sign-in could not be read back: the release is destructive';
COMMENT ON COLUMN sandboxd.operations.owner_reset IS 'The owner asked for a reset: it wins over a clean end';
COMMENT ON COLUMN sandboxd.operations.auth_preserved IS 'Receipt: this cleanup kept the sign-in';
COMMENT ON COLUMN sandboxd.operations.created_at IS 'When it was reserved';
COMMENT ON COLUMN sandboxd.operations.updated_at IS 'When it was last changed';
COMMENT ON COLUMN sandboxd.operations.terminated_at IS 'Receipt: when cleanup was complete';
COMMENT ON COLUMN sandboxd.operations.next_action_at IS 'When a control plane looks at it again; behind its lease while one works on it';
COMMENT ON COLUMN sandboxd.operations.lease_owner IS 'The control plane that works on it';
COMMENT ON COLUMN sandboxd.operations.attempt IS 'Tries of the present step';
