#include "region/worker_token.h"

#include <string.h>

#include "base/str.h"
#include "domain/worker_checkin.h"

static bool all_strings(const json_t *list)
{
    const json_t *one;
    size_t i;

    json_array_foreach(list, i, one)
    {
        if (!json_is_string(one))
            return false;
    }
    return json_is_array(list);
}

static bool holds(const json_t *list, const char *text)
{
    const json_t *one;
    size_t i;

    json_array_foreach(list, i, one)
    {
        if (strcmp(json_string_value(one), text) == 0)
            return true;
    }
    return false;
}

/* The earlier checks speak only on claims of the right type; a wrong type is told later. */
static enum sbx_code check_time(const json_t *claims, int64_t now_s, struct sbx_err *err)
{
    int64_t issued = json_get_int(claims, "iat", INT64_MIN);
    int64_t expires = json_get_int(claims, "exp", INT64_MAX);
    int64_t not_before = json_get_int(claims, "nbf", INT64_MIN);

    return worker_token_in_time(now_s, issued, expires, not_before)
               ? SBX_OK
               : err_set(err, SBX_E_WORKER_TOKEN_EXPIRED,
                         "The token has expired or is not valid yet.");
}

static enum sbx_code check_schema(const json_t *claims, struct sbx_err *err)
{
    static const char *const STRINGS[] = { "iss", "sub", "actor_type", "jti" };
    const json_t *nbf = json_object_get(claims, "nbf"), *env = json_object_get(claims, "env");
    const char *wrong = NULL;

    for (size_t i = 0; i < COUNT_OF(STRINGS) && wrong == NULL; i++) {
        if (json_get_str(claims, STRINGS[i], "")[0] == '\0')
            wrong = STRINGS[i];
    }
    if (wrong == NULL && !all_strings(json_object_get(claims, "aud")))
        wrong = "aud";
    if (wrong == NULL && !all_strings(json_object_get(claims, "cap")))
        wrong = "cap";
    if (wrong == NULL && !json_is_integer(json_object_get(claims, "iat")))
        wrong = "iat";
    if (wrong == NULL && !json_is_integer(json_object_get(claims, "exp")))
        wrong = "exp";
    if (wrong == NULL && nbf != NULL && !json_is_integer(nbf))
        wrong = "nbf";
    if (wrong == NULL && env != NULL && !json_is_string(env))
        wrong = "env";
    if (wrong == NULL && utf8_count(json_get_str(claims, "jti", "")) < WORKER_TOKEN_JTI_MIN)
        wrong = "jti";
    return wrong == NULL ? SBX_OK
                         : err_set(err, SBX_E_WORKER_TOKEN_CLAIMS,
                                   "The token's claim %s is missing or of another form.", wrong);
}

static bool is_first_party(const json_t *claims)
{
    const json_t *cap;
    size_t i;

    if (strcmp(json_get_str(claims, "actor_type", ""), "service") != 0 ||
        !str_starts(json_get_str(claims, "sub", ""), "svc:"))
        return false;
    json_array_foreach(json_object_get(claims, "cap"), i, cap)
    {
        if (worker_capability_grants(json_string_value(cap)))
            return true;
    }
    return false;
}

enum sbx_code region_worker_claims_judge(const char *issuer, const json_t *claims, int64_t now_s,
                                         struct sbx_err *err)
{
    const json_t *aud = json_object_get(claims, "aud");

    if (check_time(claims, now_s, err) != SBX_OK)
        return err->code;
    if (strcmp(json_get_str(claims, "iss", issuer), issuer) != 0)
        return err_set(err, SBX_E_WORKER_TOKEN_ISSUER, "The token is of another issuer.");
    if (all_strings(aud) && !holds(aud, WORKER_AUDIENCE))
        return err_set(err, SBX_E_WORKER_TOKEN_AUDIENCE, "The token is for another audience.");
    if (check_schema(claims, err) != SBX_OK)
        return err->code;
    if (strcmp(json_get_str(claims, "env", ""), "sandbox") == 0)
        return err_set(err, SBX_E_WORKER_TOKEN_SANDBOX, "A sandbox token is not taken here.");
    if (!is_first_party(claims))
        return err_set(err, SBX_E_CAPABILITY_DENIED,
                       "The token is no service token with the capability " WORKER_CAPABILITY ".");
    return SBX_OK;
}

enum sbx_code region_worker_token_judge(const struct region_worker_issuer *issuer,
                                        const char *token, int64_t now_s, struct arena *a,
                                        struct region_worker_token *out, struct sbx_err *err)
{
    SCOPED_JSON json_t *claims = NULL;
    enum jose_verdict v;
    bool again;

    if (token == NULL || token[0] == '\0')
        return err_set(err, SBX_E_WORKER_TOKEN_MISSING, "Send a service token.");
    v = issuer->keys != NULL ? jwks_verify(issuer->keys, JOSE_RS256, token, true, &claims, &again)
                             : jose_verify(NULL, JOSE_RS256, token, &claims);
    switch (v) {
    case JOSE_OK:
        break;
    case JOSE_MALFORMED:
    case JOSE_ALG_REFUSED:
        return err_set(err, SBX_E_WORKER_TOKEN_MALFORMED, "The token is no RS256 JWT.");
    case JOSE_KID_UNKNOWN:
    case JOSE_BAD_SIGNATURE:
        return err_set(err, SBX_E_WORKER_TOKEN_SIGNATURE, "The token's signature does not verify.");
    case JOSE_NO_KEYS:
        return err_set(err, SBX_E_IDENTITY_UNAVAILABLE, "No key to verify tokens with is loaded.");
    }
    if (region_worker_claims_judge(issuer->issuer, claims, now_s, err) != SBX_OK)
        return err->code;
    out->subject = arena_strdup(a, json_get_str(claims, "sub", ""));
    out->token_id = arena_strdup(a, json_get_str(claims, "jti", ""));
    return SBX_OK;
}
