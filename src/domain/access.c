#include "domain/access.h"

#include <stddef.h>
#include <string.h>

#include "sbx/attr.h"

static const char *const ROLE_NAMES[] = {
#define X(name, text) text,
    ROLES(X)
#undef X
};

static const char *const SCOPE_NAMES[] = {
#define X(name, text) text,
    SCOPES(X)
#undef X
};

static const char *const PERMISSION_NAMES[] = {
#define X(name, text) text,
    PERMISSIONS(X)
#undef X
};

static uint32_t parse(const char *const *names, size_t count, const char *text, size_t len)
{
    for (size_t i = 0; i < count; i++) {
        if (strlen(names[i]) == len && memcmp(names[i], text, len) == 0)
            return UINT32_C(1) << i;
    }
    return 0;
}

static const char *lowest(const char *const *names, size_t count, uint32_t set)
{
    for (size_t i = 0; i < count; i++) {
        if (set & (UINT32_C(1) << i))
            return names[i];
    }
    return NULL;
}

uint32_t roles_parse(const char *text)
{
    return parse(ROLE_NAMES, COUNT_OF(ROLE_NAMES), text, strlen(text));
}

uint32_t scopes_parse(const char *text)
{
    return parse(SCOPE_NAMES, COUNT_OF(SCOPE_NAMES), text, strlen(text));
}

uint32_t scopes_permission_parse(const char *text)
{
    return parse(PERMISSION_NAMES, COUNT_OF(PERMISSION_NAMES), text, strlen(text));
}

const char *roles_name(uint32_t set)
{
    return lowest(ROLE_NAMES, COUNT_OF(ROLE_NAMES), set);
}

const char *scopes_name(uint32_t set)
{
    return lowest(SCOPE_NAMES, COUNT_OF(SCOPE_NAMES), set);
}

const char *scopes_permission_name(uint32_t set)
{
    return lowest(PERMISSION_NAMES, COUNT_OF(PERMISSION_NAMES), set);
}

uint32_t scopes_parse_list(const char *text)
{
    uint32_t set = 0;

    while (*text) {
        size_t len = strcspn(text, " ");

        set |= parse(SCOPE_NAMES, COUNT_OF(SCOPE_NAMES), text, len);
        text += len;
        text += strspn(text, " ");
    }
    return set;
}
