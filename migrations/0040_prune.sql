-- Ended sandboxes whose history is still kept, in the order in which it may go.

CREATE INDEX sandboxes_history ON sandboxd.sandboxes (terminated_at) WHERE ended AND move_count > 0;
COMMENT ON INDEX sandboxd.sandboxes_history IS 'What pruning looks at: it sets move_count to 0 with the events of an ended sandbox.';
