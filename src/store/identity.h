#ifndef STORE_IDENTITY_H
#define STORE_IDENTITY_H

/* Who: accounts, users, members, tokens, apps, OAuth issuers and links. */

#include "base/hash.h"
#include "store/store.h"

struct store_account {
    const char *account_id;
    const char *name;
    bool entitled; /* the sandboxes entitlement */
    int active_quota;
    int64_t created_at_ms;
};
struct store_accounts {
    struct store_account *rows;
    size_t count;
    bool more; /* there is a page after the last row's id */
};

struct store_user {
    const char *user_id;
    const char *email;
    const char *subject; /* "usr_<ULID>" or NULL */
    int64_t created_at_ms;
};
struct store_users {
    struct store_user *rows;
    size_t count;
    bool more;
};

struct store_member {
    const char *account_id;
    const char *user_id;
    const char *email;
    const char *roles; /* comma-separated, sorted */
    int64_t created_at_ms;
};
struct store_members {
    struct store_member *rows;
    size_t count;
};

enum store_token_kind {
    STORE_TOKEN_NONE = 0,
    STORE_TOKEN_USER,
    STORE_TOKEN_MCP,
    STORE_TOKEN_ENV,
    STORE_TOKEN_PRINCIPAL,
    STORE_TOKEN_OAUTH, /* never in a row: given by the JWT path */
};
const char *
store_token_kind_name(enum store_token_kind kind); /* "user", "mcp", "env", "principal" */
bool store_token_kind_parse(const char *text, enum store_token_kind *out);

struct store_token {
    const char *token_id;
    enum store_token_kind kind;
    const char *user_id;      /* user, mcp */
    const char *account_id;   /* env */
    const char *principal_id; /* principal */
    const char *scopes;       /* mcp: comma-separated, sorted */
    const char *name;
    int64_t created_at_ms, expires_at_ms, revoked_at_ms;
    int64_t last_used_at_ms; /* to the hour */
};
struct store_tokens {
    struct store_token *rows;
    size_t count;
    bool more;
};

struct store_app {
    const char *app_id;
    const char *account_id;
    const char *name;
    int64_t created_at_ms;
};
struct store_apps {
    struct store_app *rows;
    size_t count;
};

struct store_issuer {
    const char *issuer;
    const char *audience;
    const char *jwks;     /* JSON text, or NULL */
    const char *jwks_url; /* or NULL */
    int64_t created_at_ms;
};
struct store_issuers {
    struct store_issuer *rows;
    size_t count;
};

/* What a request needs to know of the caller in one account, in one query (contract 1: order of
 * checks). `member` false: no such account, or not theirs; one answer for both. */
struct store_access {
    bool member;
    bool entitled;
    const char *roles; /* comma-separated */
    int active_quota;
};

/* --- accounts; after: NULL or the last id of the page before; limit <= STORE_LIST_MAX --- */
MUST_USE enum sbx_code store_account_create(struct store_conn *db, const char *name,
                                            struct arena *a, struct store_account *out,
                                            struct sbx_err *err);
/* SBX_E_NOT_FOUND */
MUST_USE enum sbx_code store_account_get(struct store_conn *db, const char *account_id,
                                         struct arena *a, struct store_account *out,
                                         struct sbx_err *err);
MUST_USE enum sbx_code store_account_list(struct store_conn *db, const char *after, int limit,
                                          struct arena *a, struct store_accounts *out,
                                          struct sbx_err *err);
MUST_USE enum sbx_code store_account_entitle(struct store_conn *db, const char *account_id,
                                             bool entitled, struct arena *a,
                                             struct store_account *out, struct sbx_err *err);
MUST_USE enum sbx_code store_account_quota(struct store_conn *db, const char *account_id,
                                           int active, struct arena *a, struct store_account *out,
                                           struct sbx_err *err);

/* --- users.  SBX_E_CONFLICT: the email or subject is taken. --- */
MUST_USE enum sbx_code store_user_create(struct store_conn *db, const char *email,
                                         const char *subject, struct arena *a,
                                         struct store_user *out, struct sbx_err *err);
MUST_USE enum sbx_code store_user_get(struct store_conn *db, const char *user_id, struct arena *a,
                                      struct store_user *out, struct sbx_err *err);
MUST_USE enum sbx_code store_user_list(struct store_conn *db, const char *after, int limit,
                                       struct arena *a, struct store_users *out,
                                       struct sbx_err *err);

/* --- members.  roles: comma-separated, already validated. Again: replaces the roles.
 * SBX_E_NOT_FOUND: no such account or user. --- */
MUST_USE enum sbx_code store_member_add(struct store_conn *db, const char *account_id,
                                        const char *user_id, const char *roles, struct arena *a,
                                        struct store_member *out, struct sbx_err *err);
MUST_USE enum sbx_code store_member_remove(struct store_conn *db, const char *account_id,
                                           const char *user_id, struct sbx_err *err);
MUST_USE enum sbx_code store_member_list(struct store_conn *db, const char *account_id,
                                         struct arena *a, struct store_members *out,
                                         struct sbx_err *err);
MUST_USE enum sbx_code store_access_get(struct store_conn *db, const char *account_id,
                                        const char *user_id, struct arena *a,
                                        struct store_access *out, struct sbx_err *err);

/* --- tokens: only the SHA-256 of the secret gets here --- */
struct store_token_new {
    enum store_token_kind kind;
    const char *user_id, *account_id, *principal_id; /* the one that the kind needs */
    const char *scopes;                              /* comma-separated, or NULL */
    const char *name;
    int64_t expires_in_s; /* 0: never */
};
/* SBX_E_NOT_FOUND: no such user, account or principal. */
MUST_USE enum sbx_code store_token_create(struct store_conn *db, const struct store_token_new *in,
                                          const unsigned char digest[SHA256_LEN], struct arena *a,
                                          struct store_token *out, struct sbx_err *err);
/* Everything authentication needs, in one query.  SBX_E_UNAUTHENTICATED: unknown or revoked;
 * SBX_E_TOKEN_EXPIRED. */
MUST_USE enum sbx_code store_token_find(struct store_conn *db,
                                        const unsigned char digest[SHA256_LEN], struct arena *a,
                                        struct store_token *out, struct sbx_err *err);
MUST_USE enum sbx_code store_token_list(struct store_conn *db, const char *after, int limit,
                                        struct arena *a, struct store_tokens *out,
                                        struct sbx_err *err);
/* Also notifies every control plane. A token that was revoked before keeps its time. */
MUST_USE enum sbx_code store_token_revoke(struct store_conn *db, const char *token_id,
                                          struct arena *a, struct store_token *out,
                                          struct sbx_err *err);

/* --- apps.  SBX_E_NOT_FOUND: no such account (create), or not in this account (get). --- */
MUST_USE enum sbx_code store_app_create(struct store_conn *db, const char *account_id,
                                        const char *name, struct arena *a, struct store_app *out,
                                        struct sbx_err *err);
MUST_USE enum sbx_code store_app_get(struct store_conn *db, const char *account_id,
                                     const char *app_id, struct arena *a, struct store_app *out,
                                     struct sbx_err *err);
MUST_USE enum sbx_code store_app_list(struct store_conn *db, const char *account_id,
                                      struct arena *a, struct store_apps *out, struct sbx_err *err);

/* --- OAuth issuers --- */
/* Again: replaces. One of jwks (JSON text) and jwks_url. */
MUST_USE enum sbx_code store_issuer_add(struct store_conn *db, const char *issuer,
                                        const char *audience, const char *jwks,
                                        const char *jwks_url, struct arena *a,
                                        struct store_issuer *out, struct sbx_err *err);
/* Links go too. */
MUST_USE enum sbx_code store_issuer_remove(struct store_conn *db, const char *issuer,
                                           struct sbx_err *err);
MUST_USE enum sbx_code store_issuer_list(struct store_conn *db, struct arena *a,
                                         struct store_issuers *out, struct sbx_err *err);
/* Again: moves the link. SBX_E_NOT_FOUND: no such issuer or user. */
MUST_USE enum sbx_code store_issuer_link(struct store_conn *db, const char *issuer,
                                         const char *subject, const char *user_id,
                                         struct sbx_err *err);
/* SBX_E_UNAUTHENTICATED: not linked. */
MUST_USE enum sbx_code store_issuer_user(struct store_conn *db, const char *issuer,
                                         const char *subject, struct arena *a, const char **user_id,
                                         struct sbx_err *err);

#endif
