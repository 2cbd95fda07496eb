-- What a next release may do to the schema, for sandboxd_next of tests/system/test_upgrade.py: it adds.
DO $$
DECLARE t regclass;
BEGIN
    FOR t IN SELECT c.oid FROM pg_class c WHERE c.relnamespace = 'sandboxd'::regnamespace AND c.relkind = 'r' LOOP
        EXECUTE format('ALTER TABLE %s ADD COLUMN next_text text, ADD COLUMN next_number integer NOT NULL DEFAULT 7', t);
    END LOOP;
END $$;
CREATE INDEX next_index ON sandboxd.sandboxes (next_number);
CREATE TABLE sandboxd.next (x integer);
