#include <string.h>

#include "ctl/ctl.h"
#include "ctl/tables.h"

const struct ctl_verb *ctl_verbs(size_t i)
{
    if (i < ctl_operator_count)
        return &ctl_operator_verbs[i];
    i -= ctl_operator_count;
    return i < ctl_user_count ? &ctl_user_verbs[i] : NULL;
}

/* The nouns in order of first appearance: a row counts when no row before it has its noun. */
const char *ctl_nouns(size_t n)
{
    const struct ctl_verb *v, *before;

    for (size_t i = 0; (v = ctl_verbs(i)) != NULL; i++) {
        size_t k = 0;

        while ((before = ctl_verbs(k)) != v && strcmp(before->noun, v->noun) != 0)
            k++;
        if (before == v && n-- == 0)
            return v->noun;
    }
    return NULL;
}
