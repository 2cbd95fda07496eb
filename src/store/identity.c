#include "store/identity.h"

#include <string.h>

#include "base/id.h"
#include "store/db.h"

#define ACCOUNT_COLUMNS                                                                            \
    "a.account_id, a.name, a.entitled, a.active_quota, " STORE_MS("a.created_at")
#define USER_COLUMNS "u.user_id, u.email, u.subject, " STORE_MS("u.created_at")
#define MEMBER_COLUMNS                                                                             \
    "m.account_id, m.user_id, u.email, array_to_string(m.roles, ','), " STORE_MS("m.created_at")
#define APP_COLUMNS    "p.app_id, p.account_id, p.name, " STORE_MS("p.created_at")
#define ISSUER_COLUMNS "i.issuer, i.audience, i.jwks, i.jwks_url, " STORE_MS("i.created_at")
/* Sorted and without doubles, whatever the caller's order. */
#define SORTED_LIST(param)                                                                         \
    "ARRAY(SELECT DISTINCT x FROM unnest(string_to_array(" param ", ',')) AS x ORDER BY x)"

enum {
    ACCOUNT_CREATE,
    ACCOUNT_GET,
    ACCOUNT_LIST,
    ACCOUNT_ENTITLE,
    ACCOUNT_QUOTA,
    USER_CREATE,
    USER_GET,
    USER_LIST,
    MEMBER_ADD,
    MEMBER_REMOVE,
    MEMBER_LIST,
    ACCESS_GET,
    APP_CREATE,
    APP_GET,
    APP_LIST,
    ISSUER_ADD,
    ISSUER_REMOVE,
    ISSUER_LIST,
    ISSUER_LINK,
    ISSUER_USER,
};

const struct store_stmt STORE_STMT_IDENTITY[] = {
    [ACCOUNT_CREATE] = { "account_create",
                         "INSERT INTO sandboxd.accounts AS a (account_id, name) VALUES ($1, $2) "
                         "RETURNING " ACCOUNT_COLUMNS,
                         2, false },
    [ACCOUNT_GET] = { "account_get",
                      "SELECT " ACCOUNT_COLUMNS " FROM sandboxd.accounts a WHERE a.account_id = $1",
                      1, true },
    [ACCOUNT_LIST] = { "account_list",
                       "SELECT " ACCOUNT_COLUMNS " FROM sandboxd.accounts a "
                       "WHERE a.account_id > coalesce($1, '') ORDER BY a.account_id LIMIT $2",
                       2, true },
    [ACCOUNT_ENTITLE] = { "account_entitle",
                          "UPDATE sandboxd.accounts a SET entitled = $2 WHERE a.account_id = $1 "
                          "RETURNING " ACCOUNT_COLUMNS,
                          2, true },
    [ACCOUNT_QUOTA] = { "account_quota",
                        "UPDATE sandboxd.accounts a SET active_quota = $2 WHERE a.account_id = $1 "
                        "RETURNING " ACCOUNT_COLUMNS,
                        2, true },
    [USER_CREATE] = { "user_create",
                      "INSERT INTO sandboxd.users AS u (user_id, email, subject) "
                      "VALUES ($1, $2, $3) RETURNING " USER_COLUMNS,
                      3, false },
    [USER_GET] = { "user_get", "SELECT " USER_COLUMNS " FROM sandboxd.users u WHERE u.user_id = $1",
                   1, true },
    [USER_LIST] = { "user_list",
                    "SELECT " USER_COLUMNS " FROM sandboxd.users u "
                    "WHERE u.user_id > coalesce($1, '') ORDER BY u.user_id LIMIT $2",
                    2, true },
    [MEMBER_ADD] = { "member_add",
                     "WITH m AS (INSERT INTO sandboxd.members AS m (account_id, user_id, roles) "
                     "VALUES ($1, $2, " SORTED_LIST(
                         "$3") ") "
                               "ON CONFLICT (account_id, user_id) DO UPDATE SET roles = "
                               "excluded.roles "
                               "RETURNING m.*) "
                               "SELECT " MEMBER_COLUMNS
                               " FROM m JOIN sandboxd.users u USING (user_id)",
                     3, true },
    [MEMBER_REMOVE] = { "member_remove",
                        "DELETE FROM sandboxd.members m WHERE m.account_id = $1 "
                        "AND m.user_id = $2 RETURNING m.user_id",
                        2, false },
    [MEMBER_LIST] = { "member_list",
                      "SELECT " MEMBER_COLUMNS " FROM sandboxd.members m "
                      "JOIN sandboxd.users u USING (user_id) WHERE m.account_id = $1 "
                      "ORDER BY m.user_id LIMIT $2",
                      2, true },
    [ACCESS_GET] = { "access_get",
                     "SELECT a.entitled, array_to_string(m.roles, ','), a.active_quota "
                     "FROM sandboxd.accounts a JOIN sandboxd.members m USING (account_id) "
                     "WHERE a.account_id = $1 AND m.user_id = $2",
                     2, true },
    [APP_CREATE] = { "app_create",
                     "INSERT INTO sandboxd.apps AS p (app_id, account_id, name) "
                     "VALUES ($1, $2, $3) RETURNING " APP_COLUMNS,
                     3, false },
    [APP_GET] = { "app_get",
                  "SELECT " APP_COLUMNS " FROM sandboxd.apps p "
                  "WHERE p.account_id = $1 AND p.app_id = $2",
                  2, true },
    [APP_LIST] = { "app_list",
                   "SELECT " APP_COLUMNS " FROM sandboxd.apps p WHERE p.account_id = $1 "
                   "ORDER BY p.app_id LIMIT $2",
                   2, true },
    [ISSUER_ADD] = { "issuer_add",
                     "WITH i AS (INSERT INTO sandboxd.oauth_issuers AS i "
                     "(issuer, audience, jwks, jwks_url) VALUES ($1, $2, $3::jsonb, $4) "
                     "ON CONFLICT (issuer) DO UPDATE SET audience = excluded.audience, "
                     "jwks = excluded.jwks, jwks_url = excluded.jwks_url RETURNING i.*), "
                     "n AS (SELECT pg_notify('sandboxd_config', 'issuer')) "
                     "SELECT " ISSUER_COLUMNS " FROM i, n",
                     4, true },
    [ISSUER_REMOVE] = { "issuer_remove",
                        "WITH i AS (DELETE FROM sandboxd.oauth_issuers i WHERE i.issuer = $1 "
                        "RETURNING i.issuer) SELECT pg_notify('sandboxd_config', 'issuer'), "
                        "pg_notify('sandboxd_revoked', '*') FROM i",
                        1, false },
    [ISSUER_LIST] = { "issuer_list",
                      "SELECT " ISSUER_COLUMNS " FROM sandboxd.oauth_issuers i ORDER BY i.issuer "
                      "LIMIT $1",
                      1, true },
    [ISSUER_LINK] = { "issuer_link",
                      "WITH l AS (INSERT INTO sandboxd.oauth_links AS l "
                      "(issuer, subject, user_id) VALUES ($1, $2, $3) "
                      "ON CONFLICT (issuer, subject) DO UPDATE SET user_id = excluded.user_id "
                      "RETURNING l.user_id) SELECT pg_notify('sandboxd_revoked', '*') FROM l",
                      3, true },
    [ISSUER_USER] = { "issuer_user",
                      "SELECT l.user_id FROM sandboxd.oauth_links l "
                      "WHERE l.issuer = $1 AND l.subject = $2",
                      2, true },
};
const size_t STORE_STMT_IDENTITY_COUNT = COUNT_OF(STORE_STMT_IDENTITY);

static const struct store_stmt *const S = STORE_STMT_IDENTITY;

static void account_row(struct store_row *r, void *to)
{
    struct store_account *out = to;

    out->account_id = store_row_text(r);
    out->name = store_row_text(r);
    out->entitled = store_row_bool(r);
    out->active_quota = store_row_int32(r);
    out->created_at_ms = store_row_int(r);
}

static void user_row(struct store_row *r, void *to)
{
    struct store_user *out = to;

    out->user_id = store_row_text(r);
    out->email = store_row_text(r);
    out->subject = store_row_text(r);
    out->created_at_ms = store_row_int(r);
}

static void member_row(struct store_row *r, void *to)
{
    struct store_member *out = to;

    out->account_id = store_row_text(r);
    out->user_id = store_row_text(r);
    out->email = store_row_text(r);
    out->roles = store_row_text(r);
    out->created_at_ms = store_row_int(r);
}

static void app_row(struct store_row *r, void *to)
{
    struct store_app *out = to;

    out->app_id = store_row_text(r);
    out->account_id = store_row_text(r);
    out->name = store_row_text(r);
    out->created_at_ms = store_row_int(r);
}

static void issuer_row(struct store_row *r, void *to)
{
    struct store_issuer *out = to;

    out->issuer = store_row_text(r);
    out->audience = store_row_text(r);
    out->jwks = store_row_text(r);
    out->jwks_url = store_row_text(r);
    out->created_at_ms = store_row_int(r);
}

/* --- accounts ----------------------------------------------------------- */

enum sbx_code store_account_create(struct store_conn *db, const char *name, struct arena *a,
                                   struct store_account *out, struct sbx_err *err)
{
    struct store_args q = { 0 };
    char id[ID_SIZE];

    id_new(id);
    store_arg_text(&q, id);
    store_arg_text(&q, name);
    return store_one(db, &S[ACCOUNT_CREATE], &q, "account", a, account_row, out, err);
}

enum sbx_code store_account_get(struct store_conn *db, const char *account_id, struct arena *a,
                                struct store_account *out, struct sbx_err *err)
{
    struct store_args q = { 0 };

    store_arg_text(&q, account_id);
    return store_one(db, &S[ACCOUNT_GET], &q, "account", a, account_row, out, err);
}

enum sbx_code store_account_entitle(struct store_conn *db, const char *account_id, bool entitled,
                                    struct arena *a, struct store_account *out, struct sbx_err *err)
{
    struct store_args q = { 0 };

    store_arg_text(&q, account_id);
    store_arg_bool(&q, entitled);
    return store_one(db, &S[ACCOUNT_ENTITLE], &q, "account", a, account_row, out, err);
}

enum sbx_code store_account_quota(struct store_conn *db, const char *account_id, int active,
                                  struct arena *a, struct store_account *out, struct sbx_err *err)
{
    struct store_args q = { 0 };

    store_arg_text(&q, account_id);
    store_arg_int(&q, active);
    return store_one(db, &S[ACCOUNT_QUOTA], &q, "account", a, account_row, out, err);
}

enum sbx_code store_account_list(struct store_conn *db, const char *after, int limit,
                                 struct arena *a, struct store_accounts *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };
    size_t count;
    bool more;

    enum sbx_code code =
        store_page(db, &S[ACCOUNT_LIST], &q, after, limit, &res, &count, &more, err);
    if (code != SBX_OK)
        return code;
    *out = (struct store_accounts){ .count = count, .more = more };
    out->rows = store_rows(res, out->count, a, account_row, sizeof(*out->rows));
    return SBX_OK;
}

/* --- users --------------------------------------------------------------- */

enum sbx_code store_user_create(struct store_conn *db, const char *email, const char *subject,
                                struct arena *a, struct store_user *out, struct sbx_err *err)
{
    struct store_args q = { 0 };
    char id[ID_SIZE];

    id_new(id);
    store_arg_text(&q, id);
    store_arg_text(&q, email);
    store_arg_text(&q, subject);
    enum sbx_code code = store_one(db, &S[USER_CREATE], &q, "user", a, user_row, out, err);
    if (code == SBX_E_CONFLICT)
        return store_say(err, code, "a user with this email or subject exists already");
    return code;
}

enum sbx_code store_user_get(struct store_conn *db, const char *user_id, struct arena *a,
                             struct store_user *out, struct sbx_err *err)
{
    struct store_args q = { 0 };

    store_arg_text(&q, user_id);
    return store_one(db, &S[USER_GET], &q, "user", a, user_row, out, err);
}

enum sbx_code store_user_list(struct store_conn *db, const char *after, int limit, struct arena *a,
                              struct store_users *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };
    size_t count;
    bool more;

    enum sbx_code code = store_page(db, &S[USER_LIST], &q, after, limit, &res, &count, &more, err);
    if (code != SBX_OK)
        return code;
    *out = (struct store_users){ .count = count, .more = more };
    out->rows = store_rows(res, out->count, a, user_row, sizeof(*out->rows));
    return SBX_OK;
}

/* --- members -------------------------------------------------------------- */

enum sbx_code store_member_add(struct store_conn *db, const char *account_id, const char *user_id,
                               const char *roles, struct arena *a, struct store_member *out,
                               struct sbx_err *err)
{
    struct store_args q = { 0 };

    store_arg_text(&q, account_id);
    store_arg_text(&q, user_id);
    store_arg_text(&q, roles);
    enum sbx_code code = store_one(db, &S[MEMBER_ADD], &q, "member", a, member_row, out, err);
    if (code == SBX_E_NOT_FOUND)
        return store_say(err, code, "account or user not found");
    return code;
}

enum sbx_code store_member_remove(struct store_conn *db, const char *account_id,
                                  const char *user_id, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, account_id);
    store_arg_text(&q, user_id);
    return store_run_one(db, &S[MEMBER_REMOVE], &q, "member", &res, err);
}

enum sbx_code store_member_list(struct store_conn *db, const char *account_id, struct arena *a,
                                struct store_members *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, account_id);
    store_arg_int(&q, STORE_LIST_MAX);
    enum sbx_code code = store_run(db, &S[MEMBER_LIST], &q, &res, err);
    if (code != SBX_OK)
        return code;
    out->count = (size_t)PQntuples(res);
    out->rows = store_rows(res, out->count, a, member_row, sizeof(*out->rows));
    return SBX_OK;
}

enum sbx_code store_access_get(struct store_conn *db, const char *account_id, const char *user_id,
                               struct arena *a, struct store_access *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, account_id);
    store_arg_text(&q, user_id);
    enum sbx_code code = store_run(db, &S[ACCESS_GET], &q, &res, err);
    if (code != SBX_OK)
        return code;
    *out = (struct store_access){ .member = PQntuples(res) == 1 };
    if (out->member) {
        struct store_row r = { .res = res, .a = a };
        out->entitled = store_row_bool(&r);
        out->roles = store_row_text(&r);
        out->active_quota = store_row_int32(&r);
    }
    return SBX_OK;
}

/* --- apps ------------------------------------------------------------------ */

enum sbx_code store_app_create(struct store_conn *db, const char *account_id, const char *name,
                               struct arena *a, struct store_app *out, struct sbx_err *err)
{
    struct store_args q = { 0 };
    char id[ID_SIZE];

    id_new(id);
    store_arg_text(&q, id);
    store_arg_text(&q, account_id);
    store_arg_text(&q, name);
    return store_one(db, &S[APP_CREATE], &q, "account", a, app_row, out, err);
}

enum sbx_code store_app_get(struct store_conn *db, const char *account_id, const char *app_id,
                            struct arena *a, struct store_app *out, struct sbx_err *err)
{
    struct store_args q = { 0 };

    store_arg_text(&q, account_id);
    store_arg_text(&q, app_id);
    return store_one(db, &S[APP_GET], &q, "app", a, app_row, out, err);
}

enum sbx_code store_app_list(struct store_conn *db, const char *account_id, struct arena *a,
                             struct store_apps *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, account_id);
    store_arg_int(&q, STORE_LIST_MAX);
    enum sbx_code code = store_run(db, &S[APP_LIST], &q, &res, err);
    if (code != SBX_OK)
        return code;
    out->count = (size_t)PQntuples(res);
    out->rows = store_rows(res, out->count, a, app_row, sizeof(*out->rows));
    return SBX_OK;
}

/* --- OAuth issuers ----------------------------------------------------------- */

enum sbx_code store_issuer_add(struct store_conn *db, const char *issuer, const char *audience,
                               const char *jwks, const char *jwks_url, struct arena *a,
                               struct store_issuer *out, struct sbx_err *err)
{
    struct store_args q = { 0 };

    store_arg_text(&q, issuer);
    store_arg_text(&q, audience);
    store_arg_text(&q, jwks);
    store_arg_text(&q, jwks_url);
    return store_one(db, &S[ISSUER_ADD], &q, "issuer", a, issuer_row, out, err);
}

enum sbx_code store_issuer_remove(struct store_conn *db, const char *issuer, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, issuer);
    return store_run_one(db, &S[ISSUER_REMOVE], &q, "issuer", &res, err);
}

enum sbx_code store_issuer_list(struct store_conn *db, struct arena *a, struct store_issuers *out,
                                struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_int(&q, STORE_LIST_MAX);
    enum sbx_code code = store_run(db, &S[ISSUER_LIST], &q, &res, err);
    if (code != SBX_OK)
        return code;
    out->count = (size_t)PQntuples(res);
    out->rows = store_rows(res, out->count, a, issuer_row, sizeof(*out->rows));
    return SBX_OK;
}

enum sbx_code store_issuer_link(struct store_conn *db, const char *issuer, const char *subject,
                                const char *user_id, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, issuer);
    store_arg_text(&q, subject);
    store_arg_text(&q, user_id);
    enum sbx_code code = store_run_one(db, &S[ISSUER_LINK], &q, "issuer", &res, err);
    if (code == SBX_E_NOT_FOUND)
        return store_say(err, code, "issuer or user not found");
    return code;
}

enum sbx_code store_issuer_user(struct store_conn *db, const char *issuer, const char *subject,
                                struct arena *a, const char **user_id, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, issuer);
    store_arg_text(&q, subject);
    enum sbx_code code = store_run_one(db, &S[ISSUER_USER], &q, "link", &res, err);
    if (code == SBX_E_NOT_FOUND)
        return store_say(err, SBX_E_UNAUTHENTICATED, "this identity is not linked to a user");
    if (code != SBX_OK)
        return code;
    struct store_row r = { .res = res, .a = a };
    *user_id = store_row_text(&r);
    return SBX_OK;
}
