#ifndef BASE_CONFIG_H
#define BASE_CONFIG_H

/* Configuration as rows.  Each program has one const table of options; the parser,
 * --print-config, config/<program>.conf and docs/config.md all come from it.
 * Order: the option's default, INI file, environment (<PREFIX>_<SECTION>_<KEY>),
 * flags (--section-key=value or --section-key value).  Unknown keys are errors with
 * file and line. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "sbx/error.h"

enum config_type {
    CONFIG_UNSET = 0, /* not a type: a row that forgets it is refused at start */
    CONFIG_STR,
    CONFIG_INT,         /* min..max */
    CONFIG_BOOL,        /* true false on off yes no 1 0 */
    CONFIG_LIST,        /* comma-separated */
    CONFIG_SECRET_FILE, /* a path to a file that holds a secret; the value never stands in the
                           configuration */
};

struct config_option {
    const char *section;
    const char *key;
    enum config_type type;
    const char *dflt; /* text form; "" for none */
    int64_t min, max; /* CONFIG_INT only, inclusive */
    bool reload;      /* SIGHUP takes it over */
    const char *help; /* one sentence, unit included */
};

struct config;

/* Checks the table, then reads file (NULL: none), environment and flags. What is not an option of
 * the table is left in rest (NULL-ended, in order), which may be NULL when nothing may be left. */
MUST_USE enum sbx_code config_load(const struct config_option *options, size_t count,
                                   const char *env_prefix, const char *file, int argc, char **argv,
                                   struct arena *a, const char ***rest, struct config **out,
                                   struct sbx_err *err);
void config_free(struct config *c); /* NULL is allowed */

/* A reload: takes over what differs in fresh (of the same table) and is marked reload; other threads
 * may read c meanwhile, and a text they got stays theirs until config_free. What differs and is not
 * marked is named in restart, separated by commas. One thread. Gives how many were taken over. */
size_t config_take(struct config *c, const struct config *fresh, struct buf *restart);

/* The option must exist in the table and have that type: anything else is our bug (assert). */
const char *config_str(const struct config *c, const char *section,
                       const char *key); /* "" when not set */
int64_t config_int(const struct config *c, const char *section, const char *key);
bool config_bool(const struct config *c, const char *section, const char *key);
const char **config_list(const struct config *c, const char *section, const char *key,
                         struct arena *a, size_t *count);
/* True when something other than the default gave the value. */
bool config_is_set(const struct config *c, const char *section, const char *key);

/* The whole configuration as a commented INI file: what --print-config prints. */
void config_print(const struct config *c, struct buf *out);
/* The table with its defaults: what config/<program>.conf is generated from. */
void config_print_defaults(const struct config_option *options, size_t count, struct buf *out);

/* The same as a page of documentation, a table for each section. */
void config_print_page(const struct config_option *options, size_t count, const char *program,
                       const char *env_prefix, struct buf *out);

#endif
