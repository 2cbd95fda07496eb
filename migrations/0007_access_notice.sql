-- What a control plane keeps of who may do what ends with a notice, whoever changed it.

CREATE FUNCTION sandboxd.notify_access() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('sandboxd_config', 'access');
    RETURN NULL;
END $$;
COMMENT ON FUNCTION sandboxd.notify_access() IS 'Tells all control planes that members or entitlements changed.';

CREATE TRIGGER members_notice AFTER INSERT OR UPDATE OR DELETE ON sandboxd.members
    FOR EACH STATEMENT EXECUTE FUNCTION sandboxd.notify_access();
CREATE TRIGGER accounts_notice AFTER UPDATE OF entitled OR DELETE ON sandboxd.accounts
    FOR EACH STATEMENT EXECUTE FUNCTION sandboxd.notify_access();
