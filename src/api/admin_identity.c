#include <string.h>

#include "api/handlers.h"
#include "api/render.h"
#include "api/token.h"
#include "base/secret.h"
#include "region/jose.h"

/* The operator's calls about who: accounts, users, members, tokens, apps, issuers. */

static enum sbx_code answer(struct api_call *c, int status, const char *name, json_t *object)
{
    response_ok(c->res, status, json_pack("{s:o}", name, object));
    return SBX_OK;
}

static const char *text(const struct api_call *c, const char *name)
{
    return json_get_str(c->args, name, NULL);
}

static int page_limit(const struct api_call *c)
{
    return (int)json_get_int(c->args, "limit", STORE_LIST_MAX);
}

static void about(struct api_call *c, const char *kind, const char *id)
{
    c->object_kind = kind;
    c->object_id = id;
}

/* {name: [..], next?: last id} */
#define ANSWER_PAGE(c, name, rows_, id_field, render)                                              \
    do {                                                                                           \
        json_t *list_ = json_array();                                                              \
        json_t *body_;                                                                             \
                                                                                                   \
        for (size_t i_ = 0; i_ < (rows_).count; i_++)                                              \
            (void)json_array_append_new(list_, render(&(rows_).rows[i_]));                         \
        body_ = json_pack("{s:o}", name, list_);                                                   \
        if ((rows_).more && (rows_).count > 0)                                                     \
            json_put_str(body_, "next", (rows_).rows[(rows_).count - 1].id_field);                 \
        response_ok((c)->res, 200, body_);                                                         \
    } while (0)

#define RENDER_LIST(rows_, render)                                                                 \
    (__extension__({                                                                               \
        json_t *list_ = json_array();                                                              \
                                                                                                   \
        for (size_t i_ = 0; i_ < (rows_).count; i_++)                                              \
            (void)json_array_append_new(list_, render(&(rows_).rows[i_]));                         \
        list_;                                                                                     \
    }))

/* --- accounts ---------------------------------------------------------- */

enum sbx_code api_account_create(struct api_call *c, struct sbx_err *err)
{
    struct store_account row;

    if (store_account_create(c->db, text(c, "name"), c->a, &row, err) != SBX_OK)
        return err->code;
    about(c, "account", row.account_id);
    return answer(c, 201, "account", api_render_account(&row));
}

enum sbx_code api_account_list(struct api_call *c, struct sbx_err *err)
{
    struct store_accounts rows;

    if (store_account_list(c->db, text(c, "after"), page_limit(c), c->a, &rows, err) != SBX_OK)
        return err->code;
    ANSWER_PAGE(c, "accounts", rows, account_id, api_render_account);
    return SBX_OK;
}

enum sbx_code api_account_show(struct api_call *c, struct sbx_err *err)
{
    struct store_account row;
    struct store_members members;
    struct store_apps apps;
    struct store_regions regions;

    if (store_account_get(c->db, c->account_id, c->a, &row, err) != SBX_OK ||
        store_member_list(c->db, c->account_id, c->a, &members, err) != SBX_OK ||
        store_app_list(c->db, c->account_id, c->a, &apps, err) != SBX_OK ||
        store_region_list_of(c->db, c->account_id, c->a, &regions, err) != SBX_OK)
        return err->code;
    response_ok(c->res, 200,
                json_pack("{s:o, s:o, s:o, s:o}", "account", api_render_account(&row), "members",
                          RENDER_LIST(members, api_render_member), "apps",
                          RENDER_LIST(apps, api_render_app), "regions",
                          RENDER_LIST(regions, api_render_region)));
    return SBX_OK;
}

enum sbx_code api_account_entitle(struct api_call *c, struct sbx_err *err)
{
    struct store_account row;

    about(c, "account", c->account_id);
    if (store_account_entitle(c->db, c->account_id, json_get_bool(c->args, "sandboxes", false),
                              c->a, &row, err) != SBX_OK)
        return err->code;
    api_accesses_forget(c->api->accesses);
    return answer(c, 200, "account", api_render_account(&row));
}

enum sbx_code api_account_quota(struct api_call *c, struct sbx_err *err)
{
    struct store_account row;

    about(c, "account", c->account_id);
    if (store_account_quota(c->db, c->account_id, (int)json_get_int(c->args, "active", 0), c->a,
                            &row, err) != SBX_OK)
        return err->code;
    return answer(c, 200, "account", api_render_account(&row));
}

/* --- users and members -------------------------------------------------- */

enum sbx_code api_user_create(struct api_call *c, struct sbx_err *err)
{
    struct store_user row;

    if (store_user_create(c->db, text(c, "email"), text(c, "subject"), c->a, &row, err) != SBX_OK)
        return err->code;
    about(c, "user", row.user_id);
    return answer(c, 201, "user", api_render_user(&row));
}

enum sbx_code api_user_list(struct api_call *c, struct sbx_err *err)
{
    struct store_users rows;

    if (store_user_list(c->db, text(c, "after"), page_limit(c), c->a, &rows, err) != SBX_OK)
        return err->code;
    ANSWER_PAGE(c, "users", rows, user_id, api_render_user);
    return SBX_OK;
}

/* Names of a request's array as the set's own sorted, comma-separated text. */
static const char *joined(struct api_call *c, const char *field, uint32_t (*parse)(const char *),
                          const char *(*name)(uint32_t))
{
    const json_t *list = json_object_get(c->args, field);
    const char *out = NULL;
    uint32_t set = 0;

    for (size_t i = 0; i < json_array_size(list); i++)
        set |= parse(json_string_value(json_array_get(list, i)));
    for (; set != 0; set &= set - 1)
        out = out == NULL ? name(set) : arena_printf(c->a, "%s,%s", out, name(set));
    return out;
}

enum sbx_code api_member_add(struct api_call *c, struct sbx_err *err)
{
    struct store_member row;

    about(c, "user", text(c, "userId"));
    if (store_member_add(c->db, c->account_id, text(c, "userId"),
                         joined(c, "roles", roles_parse, roles_name), c->a, &row, err) != SBX_OK)
        return err->code;
    api_accesses_forget(c->api->accesses); /* here at once; elsewhere by the notice */
    return answer(c, 200, "member", api_render_member(&row));
}

enum sbx_code api_member_remove(struct api_call *c, struct sbx_err *err)
{
    about(c, "user", text(c, "userId"));
    if (store_member_remove(c->db, c->account_id, text(c, "userId"), err) != SBX_OK)
        return err->code;
    api_accesses_forget(c->api->accesses);
    response_ok(c->res, 200, NULL);
    return SBX_OK;
}

enum sbx_code api_member_list(struct api_call *c, struct sbx_err *err)
{
    struct store_members rows;

    if (store_member_list(c->db, c->account_id, c->a, &rows, err) != SBX_OK)
        return err->code;
    return answer(c, 200, "members", RENDER_LIST(rows, api_render_member));
}

/* --- tokens ------------------------------------------------------------ */

/* The one owner field that each kind needs. */
static const char *owner_field(const char *kind)
{
    if (strcmp(kind, "env") == 0)
        return "accountId";
    return strcmp(kind, "principal") == 0 ? "principalId" : "userId";
}

enum sbx_code api_token_shape(const json_t *args, struct sbx_err *err)
{
    static const char *const owners[] = { "userId", "accountId", "principalId" };
    const char *kind = json_get_str(args, "kind", "");
    const char *needs = owner_field(kind);
    bool mcp = strcmp(kind, "mcp") == 0;

    for (size_t i = 0; i < COUNT_OF(owners); i++) {
        bool given = json_object_get(args, owners[i]) != NULL;

        if (given != (strcmp(owners[i], needs) == 0))
            return err_field(err, owners[i], "A token of kind %s needs %s and no other owner.",
                             kind, needs);
    }
    if (mcp != (json_object_get(args, "scopes") != NULL))
        return err_field(err, "scopes", "scopes are given for kind mcp, and only for it.");
    return SBX_OK;
}

enum sbx_code api_token_create(struct api_call *c, struct sbx_err *err)
{
    struct store_token_new in = {
        .user_id = text(c, "userId"),
        .account_id = text(c, "accountId"),
        .principal_id = text(c, "principalId"),
        .scopes = joined(c, "scopes", scopes_parse, scopes_name),
        .name = text(c, "name"),
        .expires_in_s = json_get_int(c->args, "expiresInSeconds", 0),
    };
    unsigned char digest[SHA256_LEN];
    enum api_token_kind kind = API_TOKEN_NONE;
    char secret[API_TOKEN_SIZE];
    struct store_token row;

    (void)api_token_kind_parse(text(c, "kind"), &kind);
    (void)store_token_kind_parse(text(c, "kind"), &in.kind);
    api_token_make(kind, secret);
    api_token_digest(secret, strlen(secret), digest);
    c->object_kind = "token";
    if (store_token_create(c->db, &in, digest, c->a, &row, err) == SBX_OK) {
        c->object_id = row.token_id;
        response_ok(c->res, 201,
                    json_pack("{s:o, s:s}", "token", api_render_token(&row), "secret", secret));
    }
    secret_wipe(secret, sizeof(secret));
    return err->code;
}

enum sbx_code api_token_list(struct api_call *c, struct sbx_err *err)
{
    struct store_tokens rows;

    if (store_token_list(c->db, text(c, "after"), page_limit(c), c->a, &rows, err) != SBX_OK)
        return err->code;
    ANSWER_PAGE(c, "tokens", rows, token_id, api_render_token);
    return SBX_OK;
}

enum sbx_code api_token_revoke(struct api_call *c, struct sbx_err *err)
{
    struct store_token row;

    about(c, "token", text(c, "tokenId"));
    if (store_token_revoke(c->db, text(c, "tokenId"), c->a, &row, err) != SBX_OK)
        return err->code;
    api_tokens_revoke(c->api->tokens, row.token_id); /* here at once; elsewhere by the notice */
    return answer(c, 200, "token", api_render_token(&row));
}

/* --- apps -------------------------------------------------------------- */

enum sbx_code api_app_create(struct api_call *c, struct sbx_err *err)
{
    struct store_app row;

    if (store_app_create(c->db, c->account_id, text(c, "name"), c->a, &row, err) != SBX_OK)
        return err->code;
    about(c, "app", row.app_id);
    return answer(c, 201, "app", api_render_app(&row));
}

enum sbx_code api_app_list(struct api_call *c, struct sbx_err *err)
{
    struct store_apps rows;

    if (store_app_list(c->db, c->account_id, c->a, &rows, err) != SBX_OK)
        return err->code;
    return answer(c, 200, "apps", RENDER_LIST(rows, api_render_app));
}

/* --- issuers ----------------------------------------------------------- */

enum sbx_code api_issuer_shape(const json_t *args, struct sbx_err *err)
{
    const json_t *jwks = json_object_get(args, "jwks");
    struct jose_keys *keys = NULL;
    SCOPED_BUF struct buf b = BUF_INIT(JOSE_KEYS_TEXT_MAX);

    if ((jwks != NULL) == (json_object_get(args, "jwksUrl") != NULL))
        return err_field(err, "jwks", "Give one of jwks and jwksUrl.");
    if (jwks == NULL)
        return SBX_OK;
    if (!json_write(&b, jwks))
        return err_field(err, "jwks", "jwks is larger than %d bytes.", JOSE_KEYS_TEXT_MAX);
    if (jose_keys_parse(b.data, b.len, &keys, err) != SBX_OK) {
        *err = (struct sbx_err){ 0 };
        return err_field(err, "jwks", "jwks has no usable RS256, ES256 or EdDSA key.");
    }
    jose_keys_free(keys);
    return SBX_OK;
}

enum sbx_code api_issuer_add(struct api_call *c, struct sbx_err *err)
{
    const json_t *jwks = json_object_get(c->args, "jwks");
    struct store_issuer row;

    about(c, "issuer", text(c, "issuer"));
    if (store_issuer_add(c->db, text(c, "issuer"), text(c, "audience"),
                         jwks != NULL ? api_json_text(c->a, jwks) : NULL, text(c, "jwksUrl"), c->a,
                         &row, err) != SBX_OK)
        return err->code;
    api_issuers_changed(c->api->issuers);
    api_tokens_revoke(c->api->tokens, "*");
    return answer(c, 201, "issuer", api_render_issuer(&row));
}

enum sbx_code api_issuer_link(struct api_call *c, struct sbx_err *err)
{
    about(c, "issuer", text(c, "issuer"));
    if (store_issuer_link(c->db, text(c, "issuer"), text(c, "subject"), text(c, "userId"), err) !=
        SBX_OK)
        return err->code;
    api_tokens_revoke(c->api->tokens, "*");
    return answer(c, 201, "link",
                  json_pack("{s:s, s:s, s:s}", "issuer", text(c, "issuer"), "subject",
                            text(c, "subject"), "userId", text(c, "userId")));
}

enum sbx_code api_issuer_remove(struct api_call *c, struct sbx_err *err)
{
    about(c, "issuer", text(c, "issuer"));
    if (store_issuer_remove(c->db, text(c, "issuer"), err) != SBX_OK)
        return err->code;
    api_issuers_changed(c->api->issuers);
    api_tokens_revoke(c->api->tokens, "*");
    response_ok(c->res, 200, NULL);
    return SBX_OK;
}

enum sbx_code api_issuer_list(struct api_call *c, struct sbx_err *err)
{
    struct store_issuers rows;

    if (store_issuer_list(c->db, c->a, &rows, err) != SBX_OK)
        return err->code;
    return answer(c, 200, "issuers", RENDER_LIST(rows, api_render_issuer));
}
