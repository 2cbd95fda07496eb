-- Audit, operator settings.

CREATE TABLE sandboxd.audit (
    audit_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    account_id  text COLLATE "C",
    actor       text NOT NULL,
    action      text NOT NULL,
    object_kind text,
    object_id   text COLLATE "C",
    request_id  text,
    outcome     text NOT NULL,
    exit_code   integer,
    duration_ms bigint,
    run_id      text COLLATE "C"
);
CREATE INDEX audit_account ON sandboxd.audit (account_id, audit_id DESC);
CREATE INDEX audit_object ON sandboxd.audit (object_id, audit_id DESC);
COMMENT ON TABLE sandboxd.audit IS 'Who did what. Never argv, environment, output, keys, grants or prompts.';
COMMENT ON COLUMN sandboxd.audit.audit_id IS 'Order.';
COMMENT ON COLUMN sandboxd.audit.at IS 'When.';
COMMENT ON COLUMN sandboxd.audit.account_id IS 'In which account, if any.';
COMMENT ON COLUMN sandboxd.audit.actor IS 'Who.';
COMMENT ON COLUMN sandboxd.audit.action IS 'What.';
COMMENT ON COLUMN sandboxd.audit.object_kind IS 'To what kind of object.';
COMMENT ON COLUMN sandboxd.audit.object_id IS 'To which object.';
COMMENT ON COLUMN sandboxd.audit.request_id IS 'In which request.';
COMMENT ON COLUMN sandboxd.audit.outcome IS 'ok, or the error''s wire name.';
COMMENT ON COLUMN sandboxd.audit.exit_code IS 'Of an execution.';
COMMENT ON COLUMN sandboxd.audit.duration_ms IS 'Of an execution.';
COMMENT ON COLUMN sandboxd.audit.run_id IS 'Of a personal run.';

CREATE TABLE sandboxd.settings (
    name       text COLLATE "C" PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 128),
    value      text NOT NULL CHECK (length(value) <= 65536),
    updated_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE sandboxd.settings IS 'What all control planes of one database share and no configuration file says.';
COMMENT ON COLUMN sandboxd.settings.name IS 'Name.';
COMMENT ON COLUMN sandboxd.settings.value IS 'Value.';
COMMENT ON COLUMN sandboxd.settings.updated_at IS 'When it was last set.';
