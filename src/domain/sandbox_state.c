#include "domain/sandbox_state.h"

#include <stddef.h>
#include <string.h>

#include "sbx/attr.h"

static const char *const STATUS[] = { "",
#define X(name) #name,
                                      SANDBOX_STATUSES(X)
#undef X
};

static const char *const END_REASON[] = { "",
#define X(name) #name,
                                          SANDBOX_END_REASONS(X)
#undef X
};

static const char *const PERSISTENCE[] = { "",
#define X(name) #name,
                                           SANDBOX_PERSISTENCE_MODES(X)
#undef X
};

static const char *const PROFILE[] = { "",
#define X(name, owner) #name,
                                       SANDBOX_PROFILES(X)
#undef X
};

static const char *const OWNER_KIND[] = { "",
#define X(name, owner) #owner,
                                          SANDBOX_PROFILES(X)
#undef X
};

static const char *const FAULT[] = { "",
#define X(name, retryable) #name,
                                     SANDBOX_FAULTS(X)
#undef X
};

static const bool FAULT_RETRYABLE[] = { false,
#define X(name, retryable) retryable,
                                        SANDBOX_FAULTS(X)
#undef X
};

/* The index of text in names, 0 when it is none of them. */
static size_t find(const char *const *names, size_t count, const char *text)
{
    for (size_t i = 1; i < count; i++) {
        if (strcmp(names[i], text) == 0)
            return i;
    }
    return 0;
}

#define PARSE(names, type, text, out)                                                              \
    do {                                                                                           \
        size_t i_ = find((names), COUNT_OF(names), (text));                                        \
        if (i_ == 0)                                                                               \
            return false;                                                                          \
        *(out) = (type)i_;                                                                         \
        return true;                                                                               \
    } while (0)

const char *sandbox_status_name(enum sandbox_status s)
{
    return STATUS[s];
}

bool sandbox_status_parse(const char *text, enum sandbox_status *out)
{
    PARSE(STATUS, enum sandbox_status, text, out);
}

const char *sandbox_end_reason_name(enum sandbox_end_reason r)
{
    return END_REASON[r];
}

bool sandbox_end_reason_parse(const char *text, enum sandbox_end_reason *out)
{
    PARSE(END_REASON, enum sandbox_end_reason, text, out);
}

const char *sandbox_persistence_name(enum sandbox_persistence m)
{
    return PERSISTENCE[m];
}

bool sandbox_persistence_parse(const char *text, enum sandbox_persistence *out)
{
    if (strcmp(text, "PERSISTENT_VOLUME") == 0)
        text = "DIRECTORY";
    PARSE(PERSISTENCE, enum sandbox_persistence, text, out);
}

const char *sandbox_profile_name(enum sandbox_profile p)
{
    return PROFILE[p];
}

bool sandbox_profile_parse(const char *text, enum sandbox_profile *out)
{
    PARSE(PROFILE, enum sandbox_profile, text, out);
}

const char *sandbox_profile_owner_kind(enum sandbox_profile p)
{
    return OWNER_KIND[p];
}

bool sandbox_owner_kind_valid(const char *text)
{
    return find(OWNER_KIND, COUNT_OF(OWNER_KIND), text) != 0;
}

const char *sandbox_fault_name(enum sandbox_fault f)
{
    return FAULT[f];
}

bool sandbox_fault_parse(const char *text, enum sandbox_fault *out)
{
    PARSE(FAULT, enum sandbox_fault, text, out);
}

bool sandbox_fault_retryable(enum sandbox_fault f)
{
    return FAULT_RETRYABLE[f];
}
