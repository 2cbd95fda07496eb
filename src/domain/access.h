#ifndef DOMAIN_ACCESS_H
#define DOMAIN_ACCESS_H

/* Roles of a member and scopes of a token, as bit sets (contract 1). Pure; any thread. */

#include <stdbool.h>
#include <stdint.h>

#define ROLES(X)                                                                                   \
    X(ADMIN, "admin")                                                                              \
    X(TECHNICAL, "technical")                                                                      \
    X(BILLING, "billing")                                                                          \
    X(POD_ACCESS, "pod-access")                                                                    \
    X(MANAGE_MEMBERS, "manage-members")                                                            \
    X(AUDIT, "audit")                                                                              \
    X(MANAGE_CREDENTIALS, "manage-credentials")                                                    \
    X(MEMBER, "member")

enum roles_index {
#define X(name, text) ROLES_INDEX_##name,
    ROLES(X)
#undef X
        ROLES_COUNT
};

enum {
#define X(name, text) ROLE_##name = 1 << ROLES_INDEX_##name,
    ROLES(X)
#undef X
        ROLES_ANY = (1 << ROLES_COUNT) - 1,
    /* Everything that writes or executes (contract 1). */
    ROLES_WRITE = ROLE_ADMIN | ROLE_TECHNICAL,
};

/* No scope implies another. */
#define SCOPES(X)                                                                                  \
    X(READ, "quave:read")                                                                          \
    X(WRITE_DEPLOY, "quave:write:deploy")                                                          \
    X(WRITE_CONFIG, "quave:write:config")                                                          \
    X(WRITE_DANGEROUS, "quave:write:dangerous")

enum scopes_index {
#define X(name, text) SCOPES_INDEX_##name,
    SCOPES(X)
#undef X
        SCOPES_COUNT
};

enum {
#define X(name, text) SCOPE_##name = 1 << SCOPES_INDEX_##name,
    SCOPES(X)
#undef X
        SCOPES_ALL = (1 << SCOPES_COUNT) - 1,
};

/* Permissions of a service principal (contract 6). */
#define PERMISSIONS(X)                                                                             \
    X(SANDBOX_CREATE, "sandbox:create")                                                            \
    X(SANDBOX_READ, "sandbox:read")                                                                \
    X(SANDBOX_TERMINATE, "sandbox:terminate")

enum scopes_permission_index {
#define X(name, text) SCOPES_PERMISSION_INDEX_##name,
    PERMISSIONS(X)
#undef X
        SCOPES_PERMISSION_COUNT
};

enum {
#define X(name, text) PERMISSION_##name = 1 << SCOPES_PERMISSION_INDEX_##name,
    PERMISSIONS(X)
#undef X
        PERMISSIONS_ALL = (1 << SCOPES_PERMISSION_COUNT) - 1,
};

/* One name to its bit; 0 when there is no such role, scope or permission. */
uint32_t roles_parse(const char *text);
uint32_t scopes_parse(const char *text);
uint32_t scopes_permission_parse(const char *text);
/* The name of the set's lowest bit, NULL for the empty set: walk a set with set &= set - 1. */
const char *roles_name(uint32_t set);
const char *scopes_name(uint32_t set);
const char *scopes_permission_name(uint32_t set);
/* A space-separated list, as the `scope` claim of a token is; unknown words are passed over. */
uint32_t scopes_parse_list(const char *text);

#endif
