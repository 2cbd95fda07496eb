#ifndef CTL_TABLES_H
#define CTL_TABLES_H

/* The two halves of the grammar; ctl_verbs() in ctl.h walks both. */

#include "ctl/ctl.h"

extern const struct ctl_verb ctl_operator_verbs[];
extern const size_t ctl_operator_count;
extern const struct ctl_verb ctl_user_verbs[];
extern const size_t ctl_user_count;

/* One row. The last arguments are its options, CTL_NO_OPTIONS for none. */
#define CTL_VERB(noun_, verb_, side_, method_, path_, help_, answer_, columns_, run_, ...)         \
    {                                                                                              \
        .noun = (noun_), .verb = (verb_), .side = (side_), .method = (method_), .path = (path_),   \
        .help = (help_), .answer = (answer_), .columns = (columns_), .run = (run_), .options = {   \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
/* The same for our own scripts only. */
#define CTL_HIDDEN(noun_, verb_, side_, method_, path_, help_, answer_, columns_, run_, ...)       \
    {                                                                                              \
        .noun = (noun_), .verb = (verb_), .side = (side_), .method = (method_), .path = (path_),   \
        .help = (help_), .answer = (answer_), .columns = (columns_), .run = (run_),                \
        .hidden = true, .options = {                                                               \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define CTL_NO_OPTIONS                                                                             \
    {                                                                                              \
        .name = NULL                                                                               \
    }

/* Options that many verbs share. */
#define CTL_OPT_ACCOUNT                                                                            \
    {                                                                                              \
        "--account", CTL_TEXT, CTL_REQUIRED | CTL_DEFAULTED, "accountId", "ID", "the account"      \
    }
#define CTL_OPT_REGION                                                                             \
    {                                                                                              \
        "--region", CTL_TEXT, CTL_REQUIRED | CTL_DEFAULTED, "region", "NAME", "the region"         \
    }
#define CTL_OPT_NAME                                                                               \
    {                                                                                              \
        "--name", CTL_TEXT, CTL_REQUIRED, "name", "NAME", "its name"                               \
    }
#define CTL_OPT_LIMIT                                                                              \
    {                                                                                              \
        "--limit", CTL_INT, 0, "limit", "N", "rows at most"                                        \
    }
#define CTL_OPT_AFTER                                                                              \
    {                                                                                              \
        "--after", CTL_TEXT, 0, "after", "ID", "the last id of the page before"                    \
    }
#define CTL_OPT_PLACE(what, to, text)                                                              \
    {                                                                                              \
        what, CTL_TEXT, CTL_REQUIRED | CTL_PLACE, to, NULL, text                                   \
    }

#endif
