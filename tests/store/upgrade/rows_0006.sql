INSERT INTO sandboxd.audit (account_id, actor, action, object_kind, object_id, outcome)
    VALUES ('01ACCOUNT00000000000000000', 'user:01USER00000000000000000000', 'sandbox.create', 'sandbox',
            '01SANDBOX00000000000000001', 'ok');
INSERT INTO sandboxd.settings (name, value) VALUES ('bootstrap', 'done');
