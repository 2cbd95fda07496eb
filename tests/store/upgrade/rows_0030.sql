INSERT INTO sandboxd.streams (stream_id, owner_user_id) VALUES ('stream-1', '01USER00000000000000000000');
INSERT INTO sandboxd.workers (stream_id, worker_id, version) VALUES ('stream-1', 'worker-1', '0.1.0');
