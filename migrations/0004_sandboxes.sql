-- Sandboxes, their executions under way and their bounded history, warm pool members.

CREATE TABLE sandboxd.sandboxes (
    sandbox_id            text COLLATE "C" PRIMARY KEY,
    account_id            text COLLATE "C" NOT NULL REFERENCES sandboxd.accounts,
    app_id                text COLLATE "C" NOT NULL REFERENCES sandboxd.apps,
    template_id           text COLLATE "C" NOT NULL REFERENCES sandboxd.templates,
    revision_id           text COLLATE "C" NOT NULL REFERENCES sandboxd.revisions,
    revision              integer NOT NULL,
    region                text COLLATE "C" NOT NULL REFERENCES sandboxd.regions,
    profile               text NOT NULL CHECK (profile IN ('TESS_CODE_TURN', 'QUAVE_INTERACTIVE_AGENT', 'QUAVE_AUTOMATION_RUN')),
    owner_kind            text NOT NULL CHECK (owner_kind IN ('EXTERNAL_SESSION', 'AGENT_CONVERSATION', 'AGENT_RUN')),
    owner_id              text NOT NULL,
    external_session_id   text,
    caller_key            text COLLATE "C" NOT NULL,
    idempotency_digest    bytea NOT NULL CHECK (length(idempotency_digest) = 32),
    request_id            text,
    persistence_mode      text NOT NULL CHECK (persistence_mode IN ('EPHEMERAL', 'DIRECTORY', 'SNAPSHOT', 'BOTH')),
    volume_name           text COLLATE "C",
    mount_path            text,
    last_snapshot_at      timestamptz,
    last_snapshot_bytes   bigint,
    last_snapshot_error   text,
    restore_failed        boolean NOT NULL DEFAULT false,
    pause_exclude         jsonb,
    pause_max_mb          integer NOT NULL DEFAULT 0,
    pause_force           boolean NOT NULL DEFAULT false,
    resources             jsonb NOT NULL,
    personal              boolean NOT NULL DEFAULT false,
    is_warm               boolean NOT NULL DEFAULT false,
    warm_id               text COLLATE "C",
    status                text NOT NULL CHECK (status IN ('REQUESTED', 'ALLOCATING', 'STARTING', 'READY', 'BUSY',
                          'SUSPENDING', 'SUSPENDED', 'RESUMING', 'FAILED', 'TERMINATING', 'TERMINATED')),
    previous_status       text,
    desired_status        text CHECK (desired_status IN ('READY', 'SUSPENDED', 'TERMINATED')),
    generation            bigint NOT NULL DEFAULT 0,
    status_reason         text,
    error_code            text CHECK (error_code IN ('SANDBOX_SUSPENDED', 'SANDBOX_NOT_READY', 'AGENT_UNREACHABLE',
                          'SANDBOX_NOT_FOUND', 'NAMESPACE_DENIED', 'UNAUTHENTICATED', 'TOKEN_EXPIRED',
                          'INSUFFICIENT_SCOPE', 'PATH_ESCAPE', 'UNKNOWN')),
    termination_reason    text CHECK (termination_reason IN ('USER_REQUESTED', 'IDLE_TIMEOUT', 'HARD_LIFETIME',
                          'SUSPENDED_RETENTION', 'FAILED', 'OWNER_RESET', 'RUN_COMPLETED', 'RUN_CANCELLED')),
    running               integer NOT NULL DEFAULT 0 CHECK (running >= 0),
    holds_compute         boolean NOT NULL DEFAULT true,
    operation_id          text COLLATE "C",
    move_count            integer NOT NULL DEFAULT 1,
    idle_timeout_s        integer NOT NULL,
    suspended_retention_s integer NOT NULL,
    created_at            timestamptz NOT NULL,
    updated_at            timestamptz NOT NULL,
    claimed_at            timestamptz,
    ready_at              timestamptz,
    last_active_at        timestamptz,
    suspended_at          timestamptz,
    resumed_at            timestamptz,
    failed_at             timestamptz,
    terminated_at         timestamptz,
    expires_at            timestamptz NOT NULL,
    status_since          timestamptz NOT NULL,
    deadline_at           timestamptz,
    next_action_at        timestamptz,
    lease_owner           text COLLATE "C",
    lease_until           timestamptz,
    attempt               integer NOT NULL DEFAULT 0,
    last_error            text,
    ended                 boolean GENERATED ALWAYS AS (status = 'TERMINATED') STORED,
    CHECK (status <> 'READY' OR running = 0),
    CHECK (status <> 'BUSY' OR running > 0),
    CHECK ((persistence_mode = 'EPHEMERAL') = (volume_name IS NULL)),
    CHECK (status <> 'TERMINATED' OR (NOT holds_compute AND terminated_at IS NOT NULL))
) WITH (fillfactor = 80);
-- Room on each page, and no index over status or last_active_at: a command's READY - BUSY - READY
-- is then two in-page updates that touch no index.

CREATE UNIQUE INDEX sandboxes_idempotency ON sandboxd.sandboxes (account_id, app_id, caller_key, idempotency_digest);
COMMENT ON INDEX sandboxd.sandboxes_idempotency IS 'One sandbox for an idempotency key. Creates are refused while it is missing.';
CREATE INDEX sandboxes_list ON sandboxd.sandboxes (account_id, created_at DESC, sandbox_id DESC);
CREATE INDEX sandboxes_list_live ON sandboxd.sandboxes (account_id, created_at DESC, sandbox_id DESC) WHERE NOT ended;
CREATE INDEX sandboxes_due ON sandboxd.sandboxes (next_action_at) WHERE next_action_at IS NOT NULL;
CREATE INDEX sandboxes_leased ON sandboxd.sandboxes (lease_owner) WHERE lease_owner IS NOT NULL;
CREATE INDEX sandboxes_held ON sandboxd.sandboxes (region, sandbox_id) WHERE holds_compute;
CREATE INDEX sandboxes_active ON sandboxd.sandboxes (account_id) WHERE holds_compute;
CREATE INDEX sandboxes_volume ON sandboxd.sandboxes (account_id, region, volume_name) WHERE volume_name IS NOT NULL AND NOT ended;

COMMENT ON TABLE sandboxd.sandboxes IS 'One row for each sandbox ever asked for: an idempotency key keeps naming it, so rows stay.';
COMMENT ON COLUMN sandboxd.sandboxes.sandbox_id IS 'Id.';
COMMENT ON COLUMN sandboxd.sandboxes.account_id IS 'The owning account.';
COMMENT ON COLUMN sandboxd.sandboxes.app_id IS 'The app it belongs to.';
COMMENT ON COLUMN sandboxd.sandboxes.template_id IS 'The template it was made from.';
COMMENT ON COLUMN sandboxd.sandboxes.revision_id IS 'The revision it runs.';
COMMENT ON COLUMN sandboxd.sandboxes.revision IS 'That revision''s number.';
COMMENT ON COLUMN sandboxd.sandboxes.region IS 'The region it runs in.';
COMMENT ON COLUMN sandboxd.sandboxes.profile IS 'Workload profile.';
COMMENT ON COLUMN sandboxd.sandboxes.owner_kind IS 'Kind of its owner, as the profile wants.';
COMMENT ON COLUMN sandboxd.sandboxes.owner_id IS 'The owner, byte for byte.';
COMMENT ON COLUMN sandboxd.sandboxes.external_session_id IS 'The caller''s own session, byte for byte.';
COMMENT ON COLUMN sandboxd.sandboxes.caller_key IS 'user:<id> of whoever asked for it.';
COMMENT ON COLUMN sandboxd.sandboxes.idempotency_digest IS 'SHA-256 of the idempotency key, which is kept nowhere.';
COMMENT ON COLUMN sandboxd.sandboxes.request_id IS 'The request that made it.';
COMMENT ON COLUMN sandboxd.sandboxes.persistence_mode IS 'Resolved at creation.';
COMMENT ON COLUMN sandboxd.sandboxes.volume_name IS 'Its shared volume, in the volume modes.';
COMMENT ON COLUMN sandboxd.sandboxes.mount_path IS 'Where the runtime mounted it.';
COMMENT ON COLUMN sandboxd.sandboxes.last_snapshot_at IS 'The last good snapshot.';
COMMENT ON COLUMN sandboxd.sandboxes.last_snapshot_bytes IS 'Its size.';
COMMENT ON COLUMN sandboxd.sandboxes.last_snapshot_error IS 'Why the last snapshot or restore failed.';
COMMENT ON COLUMN sandboxd.sandboxes.restore_failed IS 'Its workspace is not what the last good snapshot holds.';
COMMENT ON COLUMN sandboxd.sandboxes.pause_exclude IS 'The pause under way: patterns, or null for the revision''s.';
COMMENT ON COLUMN sandboxd.sandboxes.pause_max_mb IS 'The pause under way: cap, or 0 for the revision''s.';
COMMENT ON COLUMN sandboxd.sandboxes.pause_force IS 'The pause under way: also after a failed restore.';
COMMENT ON COLUMN sandboxd.sandboxes.resources IS 'What it was given.';
COMMENT ON COLUMN sandboxd.sandboxes.personal IS 'Holder of a personal run: generic endpoints refuse it, and idle never ends it.';
COMMENT ON COLUMN sandboxd.sandboxes.is_warm IS 'It came from a warm pool.';
COMMENT ON COLUMN sandboxd.sandboxes.warm_id IS 'The warm member its create took.';
COMMENT ON COLUMN sandboxd.sandboxes.status IS 'Where it is in its life.';
COMMENT ON COLUMN sandboxd.sandboxes.previous_status IS 'Where it was before.';
COMMENT ON COLUMN sandboxd.sandboxes.desired_status IS 'Where it is driven to, when that is not where it is.';
COMMENT ON COLUMN sandboxd.sandboxes.generation IS 'One more with each change of status.';
COMMENT ON COLUMN sandboxd.sandboxes.status_reason IS 'A short sentence for people.';
COMMENT ON COLUMN sandboxd.sandboxes.error_code IS 'Product error code, once it failed.';
COMMENT ON COLUMN sandboxd.sandboxes.termination_reason IS 'Why it ended.';
COMMENT ON COLUMN sandboxd.sandboxes.running IS 'Executions under way.';
COMMENT ON COLUMN sandboxd.sandboxes.holds_compute IS 'It counts in the quota, and the region may have something of it.';
COMMENT ON COLUMN sandboxd.sandboxes.operation_id IS 'Operation of the step under way, for the gateway.';
COMMENT ON COLUMN sandboxd.sandboxes.move_count IS 'Changes of status other than READY - BUSY; its place in the history ring.';
COMMENT ON COLUMN sandboxd.sandboxes.idle_timeout_s IS 'From the revision.';
COMMENT ON COLUMN sandboxd.sandboxes.suspended_retention_s IS 'From the revision.';
COMMENT ON COLUMN sandboxd.sandboxes.created_at IS 'When it was asked for, to the millisecond (list cursors compare it).';
COMMENT ON COLUMN sandboxd.sandboxes.updated_at IS 'When something that is shown last changed.';
COMMENT ON COLUMN sandboxd.sandboxes.claimed_at IS 'When capacity was taken for it.';
COMMENT ON COLUMN sandboxd.sandboxes.ready_at IS 'When it first became READY.';
COMMENT ON COLUMN sandboxd.sandboxes.last_active_at IS 'Start or end of its last execution, or when it became READY.';
COMMENT ON COLUMN sandboxd.sandboxes.suspended_at IS 'Its last suspension.';
COMMENT ON COLUMN sandboxd.sandboxes.resumed_at IS 'Its last resume.';
COMMENT ON COLUMN sandboxd.sandboxes.failed_at IS 'When it failed.';
COMMENT ON COLUMN sandboxd.sandboxes.terminated_at IS 'When the region confirmed that nothing is left.';
COMMENT ON COLUMN sandboxd.sandboxes.expires_at IS 'Hard lifetime.';
COMMENT ON COLUMN sandboxd.sandboxes.status_since IS 'When its status last changed.';
COMMENT ON COLUMN sandboxd.sandboxes.deadline_at IS 'By when its transitional status must have ended.';
COMMENT ON COLUMN sandboxd.sandboxes.next_action_at IS 'When a reconciler must look at it; null: never again.';
COMMENT ON COLUMN sandboxd.sandboxes.lease_owner IS 'The control plane at work on it.';
COMMENT ON COLUMN sandboxd.sandboxes.lease_until IS 'Until when it may be.';
COMMENT ON COLUMN sandboxd.sandboxes.attempt IS 'Tries of the present step.';
COMMENT ON COLUMN sandboxd.sandboxes.last_error IS 'What the last try met.';
COMMENT ON COLUMN sandboxd.sandboxes.ended IS 'It is TERMINATED (for partial indexes).';

CREATE TABLE sandboxd.executions (
    execution_id text COLLATE "C" PRIMARY KEY,
    sandbox_id   text COLLATE "C" NOT NULL,
    account_id   text COLLATE "C" NOT NULL,
    instance     text COLLATE "C" NOT NULL,
    actor        text NOT NULL,
    request_id   text,
    generation   bigint NOT NULL,
    started_at   timestamptz NOT NULL DEFAULT now(),
    deadline_at  timestamptz NOT NULL
);
CREATE INDEX executions_sandbox ON sandboxd.executions (sandbox_id);
CREATE INDEX executions_instance ON sandboxd.executions (instance);
CREATE INDEX executions_deadline ON sandboxd.executions (deadline_at);
COMMENT ON TABLE sandboxd.executions IS 'Commands under way; nothing of their content. No foreign key: sandboxes are never deleted, and its row locks would make every command''s update a multixact.';
COMMENT ON COLUMN sandboxd.executions.execution_id IS 'Id.';
COMMENT ON COLUMN sandboxd.executions.sandbox_id IS 'Where it runs.';
COMMENT ON COLUMN sandboxd.executions.account_id IS 'The sandbox''s account.';
COMMENT ON COLUMN sandboxd.executions.instance IS 'The control plane that waits for it.';
COMMENT ON COLUMN sandboxd.executions.actor IS 'Who asked for it.';
COMMENT ON COLUMN sandboxd.executions.request_id IS 'The request that asked for it.';
COMMENT ON COLUMN sandboxd.executions.generation IS 'The sandbox''s generation when it began.';
COMMENT ON COLUMN sandboxd.executions.started_at IS 'When it began.';
COMMENT ON COLUMN sandboxd.executions.deadline_at IS 'When the command is ended.';

CREATE TABLE sandboxd.sandbox_events (
    sandbox_id  text COLLATE "C" NOT NULL,
    slot        integer NOT NULL CHECK (slot BETWEEN 0 AND 255),
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    generation  bigint NOT NULL,
    from_status text,
    to_status   text NOT NULL,
    cause       text NOT NULL,
    actor       text NOT NULL,
    request_id  text,
    reason      text,
    PRIMARY KEY (sandbox_id, slot)
) WITH (fillfactor = 90);
COMMENT ON TABLE sandboxd.sandbox_events IS 'The history of a sandbox, bounded: a ring of 192 lifecycle moves (slots 0-191) and one of 64 flips between READY and BUSY (192-255).';
COMMENT ON COLUMN sandboxd.sandbox_events.sandbox_id IS 'The sandbox.';
COMMENT ON COLUMN sandboxd.sandbox_events.slot IS 'Place in its ring; a newer event takes an older one''s place.';
COMMENT ON COLUMN sandboxd.sandbox_events.at IS 'When.';
COMMENT ON COLUMN sandboxd.sandbox_events.generation IS 'Generation after the move.';
COMMENT ON COLUMN sandboxd.sandbox_events.from_status IS 'Status before; null for the create.';
COMMENT ON COLUMN sandboxd.sandbox_events.to_status IS 'Status after.';
COMMENT ON COLUMN sandboxd.sandbox_events.cause IS 'What led to it.';
COMMENT ON COLUMN sandboxd.sandbox_events.actor IS 'Who did it.';
COMMENT ON COLUMN sandboxd.sandbox_events.request_id IS 'The request behind it, if any.';
COMMENT ON COLUMN sandboxd.sandbox_events.reason IS 'statusReason after the move.';

CREATE TABLE sandboxd.warm_members (
    warm_id     text COLLATE "C" PRIMARY KEY,
    account_id  text COLLATE "C" NOT NULL REFERENCES sandboxd.accounts,
    revision_id text COLLATE "C" NOT NULL REFERENCES sandboxd.revisions,
    region      text COLLATE "C" NOT NULL REFERENCES sandboxd.regions,
    status      text NOT NULL CHECK (status IN ('STARTING', 'READY', 'CLAIMED', 'DRAINING')),
    generation  bigint NOT NULL DEFAULT 1,
    sandbox_id  text COLLATE "C" UNIQUE,
    created_at  timestamptz NOT NULL DEFAULT now(),
    ready_at    timestamptz,
    deadline_at timestamptz NOT NULL,
    lease_owner text COLLATE "C",
    lease_until timestamptz,
    CHECK ((status = 'CLAIMED') <= (sandbox_id IS NOT NULL))
);
CREATE INDEX warm_members_pool ON sandboxd.warm_members (revision_id, region, status, ready_at);
CREATE INDEX warm_members_region ON sandboxd.warm_members (region, warm_id);
CREATE INDEX warm_members_claimed ON sandboxd.warm_members (status) WHERE status <> 'READY';
COMMENT ON TABLE sandboxd.warm_members IS 'Sandboxes started ahead of their create.';
COMMENT ON COLUMN sandboxd.warm_members.warm_id IS 'Id; the region knows it by this until it is claimed.';
COMMENT ON COLUMN sandboxd.warm_members.account_id IS 'The revision''s account.';
COMMENT ON COLUMN sandboxd.warm_members.revision_id IS 'What it runs.';
COMMENT ON COLUMN sandboxd.warm_members.region IS 'Where it runs.';
COMMENT ON COLUMN sandboxd.warm_members.status IS 'STARTING, READY, CLAIMED by a create, or DRAINING.';
COMMENT ON COLUMN sandboxd.warm_members.generation IS 'For the gateway''s fence.';
COMMENT ON COLUMN sandboxd.warm_members.sandbox_id IS 'The one sandbox that took it.';
COMMENT ON COLUMN sandboxd.warm_members.created_at IS 'When it was asked for.';
COMMENT ON COLUMN sandboxd.warm_members.ready_at IS 'When it was READY.';
COMMENT ON COLUMN sandboxd.warm_members.deadline_at IS 'By when it must be READY.';
COMMENT ON COLUMN sandboxd.warm_members.lease_owner IS 'The control plane that drains it.';
COMMENT ON COLUMN sandboxd.warm_members.lease_until IS 'Until when it may.';

CREATE TABLE sandboxd.instances (
    instance text COLLATE "C" PRIMARY KEY,
    beat_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE sandboxd.instances IS 'Control planes that live.';
COMMENT ON COLUMN sandboxd.instances.instance IS 'Id of one process''s life.';
COMMENT ON COLUMN sandboxd.instances.beat_at IS 'When it last said so.';
