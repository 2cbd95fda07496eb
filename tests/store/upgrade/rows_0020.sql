INSERT INTO sandboxd.installations (installation_id, account_id, control_host, callback_key)
    VALUES ('01INSTALLATION000000000000', '01ACCOUNT00000000000000000', 'https://warren.example', 'PEM');
INSERT INTO sandboxd.principals (principal_id, installation_id, permissions)
    VALUES ('01PRINCIPAL000000000000000', '01INSTALLATION000000000000', '{sandbox:create,sandbox:read}');
INSERT INTO sandboxd.connections (connection_id, account_id, installation_id, owner_user_id, app_id, template_id, region,
        state, auth_generation, auth_sealed, github_sealed)
    VALUES ('01CONNECTION00000000000000', '01ACCOUNT00000000000000000', '01INSTALLATION000000000000',
            '01USER00000000000000000000', '01APP000000000000000000000', '01TEMPLATE0000000000000000', 'here-1', 'FENCED', 3,
            '\x763104', '\x763105');
INSERT INTO sandboxd.operations (operation_id, connection_id, account_id, installation_id, owner_user_id, app_id,
        template_id, region, sandbox_id, phase, run_id, claimed_at, grant_digest, grant_expires_at, repository, base_branch,
        model, token_limit, time_limit_s, prompt_sealed, auth_generation)
    VALUES ('01OPERATION000000000000000', '01CONNECTION00000000000000', '01ACCOUNT00000000000000000',
            '01INSTALLATION000000000000', '01USER00000000000000000000', '01APP000000000000000000000',
            '01TEMPLATE0000000000000000', 'here-1', '01SANDBOX00000000000000009', 'claimed', 'run-1', now(),
            sha256('a grant'), now() + interval '5 minutes', 'acme/widgets', 'main', 'model', 1000, 600, '\x763106', 3);
