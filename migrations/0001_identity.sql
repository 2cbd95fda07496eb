-- Who: accounts, users, members, tokens, apps, OAuth issuers and links.
-- Ids are 26 characters compared bytewise: they are time-ordered, and no locale changes that.

CREATE TABLE sandboxd.accounts (
    account_id   text COLLATE "C" PRIMARY KEY,
    name         text NOT NULL CHECK (length(name) BETWEEN 1 AND 255),
    entitled     boolean NOT NULL DEFAULT true,
    active_quota integer NOT NULL DEFAULT 100 CHECK (active_quota >= 0),
    created_at   timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now())
);
COMMENT ON TABLE sandboxd.accounts IS 'Who owns everything else. Creates and resumes lock the row (FOR NO KEY UPDATE) to take a place in the quota.';
COMMENT ON COLUMN sandboxd.accounts.account_id IS 'Id.';
COMMENT ON COLUMN sandboxd.accounts.name IS 'For people.';
COMMENT ON COLUMN sandboxd.accounts.entitled IS 'The sandboxes entitlement.';
COMMENT ON COLUMN sandboxd.accounts.active_quota IS 'Active sandboxes the account may have at once.';
COMMENT ON COLUMN sandboxd.accounts.created_at IS 'When it was made.';

CREATE TABLE sandboxd.users (
    user_id    text COLLATE "C" PRIMARY KEY,
    email      text NOT NULL CHECK (length(email) BETWEEN 1 AND 320),
    subject    text COLLATE "C" UNIQUE,
    created_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now())
);
CREATE UNIQUE INDEX users_email ON sandboxd.users (lower(email));
COMMENT ON TABLE sandboxd.users IS 'People.';
COMMENT ON COLUMN sandboxd.users.user_id IS 'Id; callerKey is user:<id>.';
COMMENT ON COLUMN sandboxd.users.email IS 'Unique without regard to case.';
COMMENT ON COLUMN sandboxd.users.subject IS 'usr_<ULID> of the worker check-in, when there is one.';
COMMENT ON COLUMN sandboxd.users.created_at IS 'When it was made.';

CREATE TABLE sandboxd.members (
    account_id text COLLATE "C" NOT NULL REFERENCES sandboxd.accounts,
    user_id    text COLLATE "C" NOT NULL REFERENCES sandboxd.users,
    roles      text[] NOT NULL CHECK (cardinality(roles) > 0 AND roles <@ ARRAY['admin', 'technical',
               'billing', 'pod-access', 'manage-members', 'audit', 'manage-credentials', 'member']),
    created_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    PRIMARY KEY (account_id, user_id)
);
CREATE INDEX members_user ON sandboxd.members (user_id);
COMMENT ON TABLE sandboxd.members IS 'Which user belongs to which account, with which roles.';
COMMENT ON COLUMN sandboxd.members.account_id IS 'The account.';
COMMENT ON COLUMN sandboxd.members.user_id IS 'The user.';
COMMENT ON COLUMN sandboxd.members.roles IS 'At least one; admin or technical may write and execute.';
COMMENT ON COLUMN sandboxd.members.created_at IS 'When the user was added.';

CREATE TABLE sandboxd.tokens (
    token_id     text COLLATE "C" PRIMARY KEY,
    digest       bytea NOT NULL UNIQUE CHECK (length(digest) = 32),
    kind         text NOT NULL CHECK (kind IN ('user', 'mcp', 'env', 'principal')),
    user_id      text COLLATE "C" REFERENCES sandboxd.users,
    account_id   text COLLATE "C" REFERENCES sandboxd.accounts,
    principal_id text COLLATE "C",
    scopes       text[] NOT NULL DEFAULT '{}' CHECK (scopes <@ ARRAY['quave:read', 'quave:write:deploy',
                 'quave:write:config', 'quave:write:dangerous']),
    name         text CHECK (length(name) <= 255),
    created_at   timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    expires_at   timestamptz,
    revoked_at   timestamptz,
    last_used_at timestamptz,
    CHECK (CASE kind WHEN 'user' THEN num_nonnulls(user_id) = 1 AND num_nonnulls(account_id, principal_id) = 0
                     WHEN 'mcp' THEN num_nonnulls(user_id) = 1 AND num_nonnulls(account_id, principal_id) = 0
                     WHEN 'env' THEN num_nonnulls(account_id) = 1 AND num_nonnulls(user_id, principal_id) = 0
                     WHEN 'principal' THEN num_nonnulls(principal_id) = 1 AND num_nonnulls(user_id, account_id) = 0
           END)
);
COMMENT ON TABLE sandboxd.tokens IS 'Opaque tokens, by digest only.';
COMMENT ON COLUMN sandboxd.tokens.token_id IS 'Id, for lists and revocation; not the secret.';
COMMENT ON COLUMN sandboxd.tokens.digest IS 'SHA-256 of the secret.';
COMMENT ON COLUMN sandboxd.tokens.kind IS 'user, mcp, env or principal.';
COMMENT ON COLUMN sandboxd.tokens.user_id IS 'Whose it is (user, mcp).';
COMMENT ON COLUMN sandboxd.tokens.account_id IS 'The account of an environment token.';
COMMENT ON COLUMN sandboxd.tokens.principal_id IS 'The service principal of a principal token.';
COMMENT ON COLUMN sandboxd.tokens.scopes IS 'Scopes of an mcp token.';
COMMENT ON COLUMN sandboxd.tokens.name IS 'For people.';
COMMENT ON COLUMN sandboxd.tokens.created_at IS 'When it was made.';
COMMENT ON COLUMN sandboxd.tokens.expires_at IS 'From when on it is refused; null: never.';
COMMENT ON COLUMN sandboxd.tokens.revoked_at IS 'When it was revoked.';
COMMENT ON COLUMN sandboxd.tokens.last_used_at IS 'Last look-up, to the hour.';

CREATE TABLE sandboxd.apps (
    app_id     text COLLATE "C" PRIMARY KEY,
    account_id text COLLATE "C" NOT NULL REFERENCES sandboxd.accounts,
    name       text NOT NULL CHECK (length(name) BETWEEN 1 AND 255),
    created_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now())
);
CREATE INDEX apps_account ON sandboxd.apps (account_id, app_id);
COMMENT ON TABLE sandboxd.apps IS 'Apps that sandboxes and templates belong to.';
COMMENT ON COLUMN sandboxd.apps.app_id IS 'Id.';
COMMENT ON COLUMN sandboxd.apps.account_id IS 'The owning account.';
COMMENT ON COLUMN sandboxd.apps.name IS 'For people.';
COMMENT ON COLUMN sandboxd.apps.created_at IS 'When it was made.';

CREATE TABLE sandboxd.oauth_issuers (
    issuer     text COLLATE "C" PRIMARY KEY CHECK (length(issuer) BETWEEN 1 AND 1024),
    audience   text NOT NULL CHECK (length(audience) BETWEEN 1 AND 1024),
    jwks       jsonb,
    jwks_url   text,
    created_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    CHECK (num_nonnulls(jwks, jwks_url) = 1)
);
COMMENT ON TABLE sandboxd.oauth_issuers IS 'Issuers whose access tokens are taken.';
COMMENT ON COLUMN sandboxd.oauth_issuers.issuer IS 'The iss claim, exactly.';
COMMENT ON COLUMN sandboxd.oauth_issuers.audience IS 'The aud claim that is wanted.';
COMMENT ON COLUMN sandboxd.oauth_issuers.jwks IS 'The public keys, when given as a file.';
COMMENT ON COLUMN sandboxd.oauth_issuers.jwks_url IS 'Where the public keys are, when given as a URL.';
COMMENT ON COLUMN sandboxd.oauth_issuers.created_at IS 'When it was made.';

CREATE TABLE sandboxd.oauth_links (
    issuer     text COLLATE "C" NOT NULL REFERENCES sandboxd.oauth_issuers ON DELETE CASCADE,
    subject    text COLLATE "C" NOT NULL CHECK (length(subject) BETWEEN 1 AND 1024),
    user_id    text COLLATE "C" NOT NULL REFERENCES sandboxd.users,
    created_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    PRIMARY KEY (issuer, subject)
);
COMMENT ON TABLE sandboxd.oauth_links IS 'Which user an OAuth subject is; an administrator says so.';
COMMENT ON COLUMN sandboxd.oauth_links.issuer IS 'The iss claim.';
COMMENT ON COLUMN sandboxd.oauth_links.subject IS 'The sub claim.';
COMMENT ON COLUMN sandboxd.oauth_links.user_id IS 'The user.';
COMMENT ON COLUMN sandboxd.oauth_links.created_at IS 'When the link was made.';
