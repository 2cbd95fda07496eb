-- The worker check-in (live.agent_sandbox.register, contract 7): streams, their owners, and the
-- workers that have checked in for them.

CREATE TABLE sandboxd.streams (
    stream_id     text COLLATE "C" PRIMARY KEY CHECK (stream_id ~ '^[A-Za-z0-9_-]{1,64}$'),
    owner_user_id text COLLATE "C" NOT NULL REFERENCES sandboxd.users (user_id),
    created_at    timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now())
);
CREATE INDEX streams_owner ON sandboxd.streams (owner_user_id);
COMMENT ON TABLE sandboxd.streams IS 'Agent streams that workers check in for; an operator makes them.';
COMMENT ON COLUMN sandboxd.streams.stream_id IS 'The id in the path, as the other side names it.';
COMMENT ON COLUMN sandboxd.streams.owner_user_id IS 'The person whose stream it is; users.subject names them in X-OV-Subject.';
COMMENT ON COLUMN sandboxd.streams.created_at IS 'When it was made.';

CREATE TABLE sandboxd.workers (
    stream_id        text COLLATE "C" NOT NULL REFERENCES sandboxd.streams (stream_id) ON DELETE CASCADE,
    worker_id        text COLLATE "C" NOT NULL CHECK (worker_id ~ '^[A-Za-z0-9._-]{1,64}$'),
    version          text CHECK (length(version) BETWEEN 1 AND 64),
    registered_at    timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    last_check_in_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    PRIMARY KEY (stream_id, worker_id)
);
COMMENT ON TABLE sandboxd.workers IS 'Workers that checked in with the isolation that is wanted. Nothing of the report is kept beside their version; whether one is healthy is computed when it is read.';
COMMENT ON COLUMN sandboxd.workers.stream_id IS 'The stream it serves.';
COMMENT ON COLUMN sandboxd.workers.worker_id IS 'Its own name, unique in the stream.';
COMMENT ON COLUMN sandboxd.workers.version IS 'What it says of itself; null when it does not.';
COMMENT ON COLUMN sandboxd.workers.registered_at IS 'Its first check-in.';
COMMENT ON COLUMN sandboxd.workers.last_check_in_at IS 'Its last check-in, by the clock of this database.';
