-- What a program at this schema may have left: one row of each kind. Ids are fixed, 26 characters.
INSERT INTO sandboxd.accounts (account_id, name, active_quota) VALUES ('01ACCOUNT00000000000000000', 'Acme', 7);
INSERT INTO sandboxd.users (user_id, email, subject)
    VALUES ('01USER00000000000000000000', 'ann@example.org', 'usr_01ARZ3NDEKTSV4RRFFQ69G5FAV');
INSERT INTO sandboxd.members (account_id, user_id, roles)
    VALUES ('01ACCOUNT00000000000000000', '01USER00000000000000000000', '{admin,technical}');
INSERT INTO sandboxd.tokens (token_id, digest, kind, user_id, scopes)
    VALUES ('01TOKEN0000000000000000000', sha256('a token'), 'user', '01USER00000000000000000000', '{quave:read}');
INSERT INTO sandboxd.apps (app_id, account_id, name)
    VALUES ('01APP000000000000000000000', '01ACCOUNT00000000000000000', 'app');
INSERT INTO sandboxd.oauth_issuers (issuer, audience, jwks) VALUES ('https://issuer.example', 'sandboxd', '{"keys": []}');
INSERT INTO sandboxd.oauth_links (issuer, subject, user_id)
    VALUES ('https://issuer.example', 'ann', '01USER00000000000000000000');
