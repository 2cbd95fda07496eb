#include <string.h>

#include "base/id.h"
#include "store/db.h"
#include "store/identity.h"

#define TOKEN_COLUMNS                                                                              \
    "t.token_id, t.kind, t.user_id, t.account_id, t.principal_id, "                                \
    "nullif(array_to_string(t.scopes, ','), ''), t.name, " STORE_MS("t.created_at") ", " STORE_MS( \
        "t.expires_at") ", " STORE_MS("t.revoked_at") ", " STORE_MS("t.last_used_at")

enum { TOKEN_CREATE, TOKEN_FIND, TOKEN_LIST, TOKEN_REVOKE };

const struct store_stmt STORE_STMT_TOKENS[] = {
    [TOKEN_CREATE] = { "token_create",
                       "INSERT INTO sandboxd.tokens AS t (token_id, digest, kind, user_id, "
                       "account_id, principal_id, scopes, name, expires_at) "
                       "VALUES ($1, $2, $3, $4, $5, $6, ARRAY(SELECT DISTINCT x FROM "
                       "unnest(string_to_array($7, ',')) AS x ORDER BY x), $8, "
                       "now() + $9::bigint * interval '1 second') RETURNING " TOKEN_COLUMNS,
                       9, false },
    /* The hour of the last use is written at most once an hour. */
    [TOKEN_FIND] = { "token_find",
                     "WITH used AS (UPDATE sandboxd.tokens u SET last_used_at = now() "
                     "WHERE u.digest = $1 AND u.revoked_at IS NULL "
                     "AND (u.last_used_at IS NULL OR u.last_used_at < now() - interval '1 hour')) "
                     "SELECT t.expires_at <= now(), " TOKEN_COLUMNS
                     " FROM sandboxd.tokens t WHERE t.digest = $1 AND t.revoked_at IS NULL",
                     1, true },
    [TOKEN_LIST] = { "token_list",
                     "SELECT " TOKEN_COLUMNS " FROM sandboxd.tokens t "
                     "WHERE t.token_id > coalesce($1, '') ORDER BY t.token_id LIMIT $2",
                     2, true },
    [TOKEN_REVOKE] = { "token_revoke",
                       "WITH t AS (UPDATE sandboxd.tokens t "
                       "SET revoked_at = coalesce(t.revoked_at, now()) WHERE t.token_id = $1 "
                       "RETURNING t.*), "
                       "n AS (SELECT pg_notify('sandboxd_revoked', t.token_id) FROM t) "
                       "SELECT " TOKEN_COLUMNS " FROM t, n",
                       1, true },
};
const size_t STORE_STMT_TOKENS_COUNT = COUNT_OF(STORE_STMT_TOKENS);

static const struct store_stmt *const S = STORE_STMT_TOKENS;

static const char *const KINDS[] = {
    [STORE_TOKEN_NONE] = "",   [STORE_TOKEN_USER] = "user",           [STORE_TOKEN_MCP] = "mcp",
    [STORE_TOKEN_ENV] = "env", [STORE_TOKEN_PRINCIPAL] = "principal", [STORE_TOKEN_OAUTH] = "oauth",
};

const char *store_token_kind_name(enum store_token_kind kind)
{
    return KINDS[kind];
}

bool store_token_kind_parse(const char *text, enum store_token_kind *out)
{
    for (int k = STORE_TOKEN_USER; k <= STORE_TOKEN_PRINCIPAL; k++) {
        if (strcmp(KINDS[k], text) == 0) {
            *out = (enum store_token_kind)k;
            return true;
        }
    }
    return false;
}

static void token_row(struct store_row *r, void *to)
{
    struct store_token *out = to;

    *out = (struct store_token){ 0 };
    out->token_id = store_row_text(r);
    const char *kind = store_row_text(r);
    if (kind)
        (void)store_token_kind_parse(kind, &out->kind);
    out->user_id = store_row_text(r);
    out->account_id = store_row_text(r);
    out->principal_id = store_row_text(r);
    out->scopes = store_row_text(r);
    out->name = store_row_text(r);
    out->created_at_ms = store_row_int(r);
    out->expires_at_ms = store_row_int(r);
    out->revoked_at_ms = store_row_int(r);
    out->last_used_at_ms = store_row_int(r);
}

enum sbx_code store_token_create(struct store_conn *db, const struct store_token_new *in,
                                 const unsigned char digest[SHA256_LEN], struct arena *a,
                                 struct store_token *out, struct sbx_err *err)
{
    struct store_args q = { 0 };
    char id[ID_SIZE];

    id_new(id);
    store_arg_text(&q, id);
    store_arg_bytes(&q, digest, SHA256_LEN);
    store_arg_text(&q, store_token_kind_name(in->kind));
    store_arg_text(&q, in->user_id);
    store_arg_text(&q, in->account_id);
    store_arg_text(&q, in->principal_id);
    store_arg_text(&q, in->scopes);
    store_arg_text(&q, in->name);
    store_arg_null_int(&q, in->expires_in_s);
    enum sbx_code code = store_one(db, &S[TOKEN_CREATE], &q, "token", a, token_row, out, err);
    if (code == SBX_E_NOT_FOUND)
        return store_say(err, code, "user, account or principal not found");
    return code;
}

enum sbx_code store_token_find(struct store_conn *db, const unsigned char digest[SHA256_LEN],
                               struct arena *a, struct store_token *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_bytes(&q, digest, SHA256_LEN);
    enum sbx_code code = store_run_one(db, &S[TOKEN_FIND], &q, "token", &res, err);
    if (code == SBX_E_NOT_FOUND)
        return store_say(err, SBX_E_UNAUTHENTICATED, "the token is not valid");
    if (code != SBX_OK)
        return code;
    struct store_row r = { .res = res, .a = a };
    if (store_row_bool(&r))
        return err_set(err, SBX_E_TOKEN_EXPIRED, "the token has expired");
    token_row(&r, out);
    return SBX_OK;
}

enum sbx_code store_token_list(struct store_conn *db, const char *after, int limit, struct arena *a,
                               struct store_tokens *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };
    size_t count;
    bool more;

    enum sbx_code code = store_page(db, &S[TOKEN_LIST], &q, after, limit, &res, &count, &more, err);
    if (code != SBX_OK)
        return code;
    *out = (struct store_tokens){ .count = count, .more = more };
    out->rows = store_rows(res, out->count, a, token_row, sizeof(*out->rows));
    return SBX_OK;
}

enum sbx_code store_token_revoke(struct store_conn *db, const char *token_id, struct arena *a,
                                 struct store_token *out, struct sbx_err *err)
{
    struct store_args q = { 0 };

    store_arg_text(&q, token_id);
    return store_one(db, &S[TOKEN_REVOKE], &q, "token", a, token_row, out, err);
}
