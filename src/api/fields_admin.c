#include "api/fields_admin.h"

#include <string.h>

#include "api/fields_row.h"
#include "base/str.h"
#include "domain/access.h"
#include "store/store.h"

enum {
    EMAIL_MAX = 254,
    URL_MAX = 1024,
    SOCKET_MAX = 107, /* sun_path */
    SECRET_MAX = 4096,
    HOST_MAX = 255,
    QUOTA_MAX = 1000000,
    TOKEN_LIFE_MAX = 10 * 366 * 24 * 3600,
};

static enum sbx_code email(const char *field, const char *text, struct sbx_err *err)
{
    const char *at = strchr(text, '@');

    if (at == NULL || at == text || at[1] == '\0' || strchr(at + 1, '@') != NULL ||
        strlen(text) > EMAIL_MAX || strpbrk(text, " \t\r\n") != NULL)
        return err_field(err, field, "%s must be an email address.", field);
    return SBX_OK;
}

static enum sbx_code subject(const char *field, const char *text, struct sbx_err *err)
{
    static const char ulid[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

    if (strlen(text) != 4 + 26 || !str_starts(text, "usr_") || strspn(text + 4, ulid) != 26 ||
        text[4] > '7')
        return err_field(err, field, "%s must be usr_ and a ULID of 26 characters.", field);
    return SBX_OK;
}

static enum sbx_code http_url(const char *field, const char *text, struct sbx_err *err)
{
    if ((!str_starts(text, "http://") && !str_starts(text, "https://")) || strlen(text) > URL_MAX ||
        strpbrk(text, " \t\r\n") != NULL)
        return err_field(err, field, "%s must be an http or https URL.", field);
    return SBX_OK;
}

static enum sbx_code absolute(const char *field, const char *text, struct sbx_err *err)
{
    if (text[0] != '/' || strlen(text) >= VALID_PATH_MAX)
        return err_field(err, field, "%s must be an absolute path.", field);
    return SBX_OK;
}

static enum sbx_code socket_path(const char *field, const char *text, struct sbx_err *err)
{
    if (text[0] != '/' || strlen(text) > SOCKET_MAX)
        return err_field(err, field, "%s must be an absolute path of at most %d bytes.", field,
                         SOCKET_MAX);
    return SBX_OK;
}

static enum sbx_code words(const json_t *v, const char *path, uint32_t (*parse)(const char *),
                           const char *what, struct sbx_err *err)
{
    for (size_t i = 0; i < json_array_size(v); i++) {
        if (parse(json_string_value(json_array_get(v, i))) == 0)
            return err_field(err, path, "%s: item %zu is not a %s.", path, i, what);
    }
    return SBX_OK;
}

static enum sbx_code roles(const json_t *v, const char *path, struct sbx_err *err)
{
    return words(v, path, roles_parse, "role", err);
}

static enum sbx_code scopes(const json_t *v, const char *path, struct sbx_err *err)
{
    return words(v, path, scopes_parse, "scope", err);
}

static const char *const TOKEN_KINDS[] = { "user", "mcp", "env", "principal", NULL };
static const char *const BACKEND_KINDS[] = { "dir", "s3", NULL };
static const char *const IMAGE_KINDS[] = { "layout", "rootfs", NULL };

#define ACCOUNT F_ID("accountId", REQ, "Account ID.")
#define USER    F_ID("userId", REQ, "User ID.")
#define REGION  F_ID("region", REQ, "Region name.")
#define AFTER   F_ID("after", OPT, "The last id of the page before.")
#define LIMIT   F_INT("limit", OPT, 1, STORE_LIST_MAX, "Rows of this page.")

const struct api_schema API_ADMIN_NOTHING = { .name = NULL, .fields = NULL, .count = 0 };

static const struct api_field page_query[] = { AFTER, LIMIT };
SCHEMA(API_ADMIN_PAGE_QUERY, NULL, page_query);

static const struct api_field account_query[] = { ACCOUNT };
SCHEMA(API_ADMIN_ACCOUNT_QUERY, NULL, account_query);

static const struct api_field account_create[] = {
    F_TEXT("name", REQ, valid_name, NULL, "Name."),
};
SCHEMA(API_ADMIN_ACCOUNT_CREATE, NULL, account_create);

static const struct api_field entitle[] = {
    ACCOUNT,
    F_BOOL("sandboxes", REQ, "The sandboxes entitlement."),
};
SCHEMA(API_ADMIN_ENTITLE, NULL, entitle);

static const struct api_field quota[] = {
    ACCOUNT,
    F_INT("active", REQ, 0, QUOTA_MAX, "Active sandboxes at most."),
};
SCHEMA(API_ADMIN_QUOTA, NULL, quota);

static const struct api_field user_create[] = {
    F_TEXT("email", REQ, email, NULL, "Email address."),
    F_TEXT("subject", OPT, subject, NULL, "usr_<ULID> of the worker check-in."),
};
SCHEMA(API_ADMIN_USER_CREATE, NULL, user_create);

static const struct api_field member_add[] = {
    ACCOUNT,
    USER,
    F_STRS("roles", REQ, 1, ROLES_COUNT, 32, roles, "Roles."),
};
SCHEMA(API_ADMIN_MEMBER_ADD, NULL, member_add);

static const struct api_field member_named[] = { ACCOUNT, USER };
SCHEMA(API_ADMIN_MEMBER_NAMED, NULL, member_named);

static const struct api_field token_create[] = {
    F_ENUM("kind", REQ, TOKEN_KINDS, "Kind."),
    F_ID("userId", OPT, "user and mcp: whose it is."),
    F_ID("accountId", OPT, "env: the account."),
    F_ID("principalId", OPT, "principal: the service principal."),
    F_STRS("scopes", OPT, 1, SCOPES_COUNT, 32, scopes, "mcp: scopes."),
    F_TEXT("name", OPT, valid_name, NULL, "What it is for."),
    F_INT("expiresInSeconds", OPT, 1, TOKEN_LIFE_MAX, "Life; without it, it does not expire."),
};
SCHEMA(API_ADMIN_TOKEN_CREATE, NULL, token_create);

static const struct api_field token_named[] = { F_ID("tokenId", REQ, "Token ID.") };
SCHEMA(API_ADMIN_TOKEN_NAMED, NULL, token_named);

static const struct api_field app_create[] = {
    ACCOUNT,
    F_TEXT("name", REQ, valid_name, NULL, "Name."),
};
SCHEMA(API_ADMIN_APP_CREATE, NULL, app_create);

static const struct api_field region_create[] = {
    F_TEXT("name", REQ, valid_region_name, NULL, "Region name."),
    F_TEXT("url", OPT, http_url, NULL, "The gateway's URL."),
    F_TEXT("socket", OPT, socket_path, NULL, "Or its unix socket."),
    F_STR("secret", OPT | API_SECRET, 1, SECRET_MAX, "The region's shared secret; with url."),
    F_BOOL("sandboxes", OPT, "The Agent Sandbox add-on; default true."),
};
SCHEMA(API_ADMIN_REGION_CREATE, NULL, region_create);

static const struct api_field region_update[] = {
    REGION,
    F_TEXT("url", OPT, http_url, NULL, "The gateway's URL from now on."),
    F_TEXT("socket", OPT, socket_path, NULL, "Or its unix socket."),
    F_STR("secret", OPT | API_SECRET, 1, SECRET_MAX, "The region's shared secret; with url."),
};
SCHEMA(API_ADMIN_REGION_UPDATE, NULL, region_update);

static const struct api_field region_access[] = { ACCOUNT, REGION };
SCHEMA(API_ADMIN_REGION_ACCESS, NULL, region_access);

static const struct api_field region_named[] = { REGION };
SCHEMA(API_ADMIN_REGION_NAMED, NULL, region_named);

static const struct api_field backend_create[] = {
    ACCOUNT,
    REGION,
    F_ENUM("kind", REQ, BACKEND_KINDS, "Kind."),
    F_TEXT("path", OPT, absolute, NULL, "dir: a folder of the region host."),
    F_TEXT("endpoint", OPT, http_url, NULL, "s3: URL."),
    F_STR("bucket", OPT, 1, 255, "s3: bucket."),
    F_STR("prefix", OPT, 0, 512, "s3: prefix of all objects."),
    F_STR("s3Region", OPT, 1, 63, "s3: signing region."),
    F_STR("accessKey", OPT | API_SECRET, 1, SECRET_MAX, "s3: access key."),
    F_STR("secretKey", OPT | API_SECRET, 1, SECRET_MAX, "s3: secret key."),
};
SCHEMA(API_ADMIN_BACKEND_CREATE, NULL, backend_create);

static const struct api_field registry_create[] = {
    ACCOUNT,
    F_STR("host", REQ, 1, HOST_MAX, "Registry host, with its port."),
    F_STR("username", REQ, 1, 255, "User name."),
    F_STR("password", REQ | API_SECRET, 1, SECRET_MAX, "Password or token."),
};
SCHEMA(API_ADMIN_REGISTRY_CREATE, NULL, registry_create);

static const struct api_field registry_named[] = { F_ID("registryId", REQ, "Registry ID.") };
SCHEMA(API_ADMIN_REGISTRY_NAMED, NULL, registry_named);

static const struct api_field image_query[] = { REGION };
SCHEMA(API_ADMIN_IMAGE_QUERY, NULL, image_query);

static const struct api_field image_import_query[] = {
    REGION,
    F_STR("name", REQ, 1, VALID_IMAGE_MAX, "Repository name of the image."),
    F_ENUM("kind", OPT, IMAGE_KINDS, "layout (default): an OCI layout; rootfs: a root folder."),
};
SCHEMA(API_ADMIN_IMAGE_IMPORT_QUERY, NULL, image_import_query);

static const struct api_field image_named[] = {
    REGION,
    F_STR("reference", REQ, 1, VALID_IMAGE_MAX, "repository@sha256:digest"),
};
SCHEMA(API_ADMIN_IMAGE_NAMED, NULL, image_named);

static const struct api_field issuer_add[] = {
    F_TEXT("issuer", REQ, http_url, NULL, "The iss claim."),
    F_STR("audience", REQ, 1, URL_MAX, "One of the aud claim."),
    F_ANY("jwks", OPT, "The keys themselves."),
    F_TEXT("jwksUrl", OPT, http_url, NULL, "Or where they are."),
};
SCHEMA(API_ADMIN_ISSUER_ADD, NULL, issuer_add);

static const struct api_field issuer_link[] = {
    F_STR("issuer", REQ, 1, URL_MAX, "The iss claim."),
    F_STR("subject", REQ, 1, 255, "The sub claim."),
    USER,
};
SCHEMA(API_ADMIN_ISSUER_LINK, NULL, issuer_link);

static const struct api_field issuer_named[] = { F_STR("issuer", REQ, 1, URL_MAX,
                                                       "The iss claim.") };
SCHEMA(API_ADMIN_ISSUER_NAMED, NULL, issuer_named);

static const struct api_field sandboxes_query[] = {
    F_ID("accountId", OPT, "Account filter."),
    F_STR("status", OPT, 0, 1024, "One status or comma-separated statuses."),
    LIMIT,
    F_STR("cursor", OPT, 1, API_CURSOR_MAX, "nextCursor of the answer before."),
};
SCHEMA(API_ADMIN_SANDBOXES_QUERY, NULL, sandboxes_query);

static const struct api_field sandbox_named[] = { F_ID("sandboxId", REQ, "Sandbox ID.") };
SCHEMA(API_ADMIN_SANDBOX_NAMED, NULL, sandbox_named);

static const struct api_field audit_query[] = {
    F_ID("accountId", OPT, "Account filter."),
    F_ID("objectId", OPT, "Object filter, a sandbox id for instance."),
    LIMIT,
    F_STR("cursor", OPT, 1, API_CURSOR_MAX, "nextCursor of the answer before."),
};
SCHEMA(API_ADMIN_AUDIT_QUERY, NULL, audit_query);
