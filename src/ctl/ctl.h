#ifndef CTL_CTL_H
#define CTL_CTL_H

/* sandboxctl: the operator's and the user's command line, HTTP only.
 *
 * The grammar is data: one const row for each verb (ctl_verbs), from which parsing,
 * help, shell completion and the man page come. Most verbs are one call and need
 * nothing else; the others name a function. One thread. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/secret.h"
#include "sbx/error.h"

enum {
    CTL_OPTIONS_MAX = 24,              /* of one verb */
    CTL_REPEAT_MAX = 256,              /* values of one option that may stand more than once */
    CTL_COLUMNS_MAX = 12,              /* of one table */
    CTL_ANSWER_MAX = 64 * 1024 * 1024, /* bytes of an answer: two full output streams in base64 */
    CTL_FILE_MAX = 1024 * 1024,        /* bytes of a file that an option names */
    CTL_CALL_TIMEOUT_MS = 120 * 1000,
    CTL_WATCH_MS = 2000,
};

enum ctl_exit {
    CTL_DONE = 0,
    CTL_REFUSED = 1,     /* the server answered, and said no */
    CTL_USAGE = 2,       /* the command line, or a file it names, cannot be used */
    CTL_UNREACHABLE = 3, /* no answer */
};

enum ctl_side {
    CTL_SIDE_UNSET = 0, /* not a side: a row that forgets it is refused at start */
    CTL_LOCAL,          /* calls nobody by itself */
    CTL_ADMIN,          /* the admin socket */
    CTL_USER,           /* the public API with a token */
};

enum ctl_type {
    CTL_TEXT = 1,
    CTL_INT,
    CTL_SWITCH, /* on or off */
    CTL_FLAG,   /* no value */
    CTL_LIST,   /* comma-separated, becomes an array */
    CTL_FILE,   /* a file's text; a secret or a key, never an argument itself */
    CTL_PAIR,   /* NAME=VALUE, becomes a member of an object */
    CTL_ARGV,   /* everything after -- */
};

enum ctl_option_flags {
    CTL_REQUIRED = 1,
    CTL_REPEAT = 2,    /* may stand more than once: an array (CTL_PAIR: an object) */
    CTL_DEFAULTED = 4, /* else SANDBOXCTL_<NAME>, else what the standalone state says */
    CTL_PLACE = 8,     /* a positional argument; `name` is what help calls it */
};

struct ctl_option {
    const char *name; /* "--account", or "ID" for a positional one */
    enum ctl_type type;
    unsigned flags;
    const char *field; /* of the body or query, dots nest; NULL: the verb's function reads it */
    const char *value; /* what help calls the value; NULL for a flag */
    const char *help;
};

struct ctl;

struct ctl_verb {
    const char *noun;
    const char *verb; /* NULL: the noun alone */
    enum ctl_side side;
    const char *method;  /* NULL: `run` does it all */
    const char *path;    /* below the side's prefix */
    const char *help;    /* one line, no full stop */
    const char *answer;  /* the member that is shown; NULL: the whole answer */
    const char *columns; /* "field:TITLE ..." when the answer is a list */
    struct ctl_option options[CTL_OPTIONS_MAX + 1];           /* ends with a NULL name */
    enum ctl_exit (*run)(struct ctl *c, struct sbx_err *err); /* NULL: the call, then print */
    bool hidden;                                              /* for our own scripts: not in help */
};

const struct ctl_verb *ctl_verbs(size_t i); /* NULL past the end */
/* The nouns in order, each once. */
const char *ctl_nouns(size_t i);

struct ctl_value {
    const char **texts; /* count of them; NULL when not given */
    size_t count;
};

/* One run of the program. */
struct ctl {
    struct arena *arena;
    const struct ctl_verb *verb;
    struct ctl_value values[CTL_OPTIONS_MAX];
    /* global options */
    bool json;
    bool watch;
    const char *socket;     /* --socket */
    const char *url;        /* --url */
    const char *token_file; /* --token-file */
    const char *state;      /* --state: folder of a standalone server */
    const char *ca_file;    /* bootstrap's: trusted at url, NULL: the system's anchors */
    /* what was found */
    json_t *client; /* <state>/client.json, NULL when there is none */
    json_t *answer; /* the last answer's body, also a refusal; NULL when none came */
};

/* The whole program; gives its exit code. */
int ctl_main(int argc, char **argv);

/* Sets the message (a sentence for a person) and the code that goes with rc, and gives rc. */
enum ctl_exit ctl_fail(struct sbx_err *err, enum ctl_exit rc, const char *fmt, ...)
    PRINTF_LIKE(3, 4);

/* --- args.c ---------------------------------------------------------------- */

/* Reads the command line into c. CTL_USAGE with the reason. `*help` is set when help was asked
 * for. */
enum ctl_exit ctl_args_parse(struct ctl *c, int argc, char **argv, bool *help, struct sbx_err *err);
/* The option's first value, or NULL. It must be in the verb's row (assert). */
const char *ctl_arg(const struct ctl *c, const char *name);
bool ctl_flag(const struct ctl *c, const char *name);
const struct ctl_value *ctl_args(const struct ctl *c, const char *name);
/* The options that have a field, as the call's body or query; gives a new reference. */
enum ctl_exit ctl_args_body(struct ctl *c, json_t **out, struct sbx_err *err);

/* --- call.c ---------------------------------------------------------------- */

/* One call; the body (borrowed, may be NULL) is the query for a GET. On CTL_DONE and CTL_REFUSED
 * c->answer is the answer. */
enum ctl_exit ctl_call(struct ctl *c, enum ctl_side side, const char *method, const char *path,
                       const json_t *body, int timeout_ms, struct sbx_err *err);
/* A call whose body is what fd gives until its end. */
enum ctl_exit ctl_call_stream(struct ctl *c, const char *path, const json_t *query,
                              const char *content_type, int fd, struct sbx_err *err);
/* The folder of a standalone server: --state, SANDBOXCTL_STATE, or the default. */
const char *ctl_state_dir(const struct ctl *c);
/* <state>/client.json once read, or NULL. */
json_t *ctl_client(struct ctl *c);
/* The admin socket that would be used. */
const char *ctl_admin_socket(struct ctl *c);

/* --- print.c --------------------------------------------------------------- */

/* The answer of the verb: a table, an object's lines, or JSON with --json. */
void ctl_print_answer(struct ctl *c);
/* list: objects; columns as in ctl_verb. */
void ctl_print_table(const json_t *list, const char *columns);
void ctl_print_object(const json_t *object);
void ctl_print_json(const json_t *j);
/* A line about long work, on stderr when that is a terminal; NULL removes it. */
void ctl_progress(const char *text);

/* --- help.c ---------------------------------------------------------------- */

void ctl_help(const char *noun);              /* NULL: all nouns */
void ctl_help_verb(const struct ctl_verb *v); /* one verb, its options */

/* --- the verbs with a function of their own --------------------------------- */

enum ctl_exit ctl_run_exec(struct ctl *c, struct sbx_err *err);
enum ctl_exit ctl_run_sandbox_create(struct ctl *c, struct sbx_err *err);
enum ctl_exit ctl_run_sandbox_resume(struct ctl *c, struct sbx_err *err);
enum ctl_exit ctl_run_sandbox_drain(struct ctl *c, struct sbx_err *err);
enum ctl_exit ctl_run_template_revision(struct ctl *c, struct sbx_err *err);
enum ctl_exit ctl_run_image_import(struct ctl *c, struct sbx_err *err);
enum ctl_exit ctl_run_token_create(struct ctl *c, struct sbx_err *err);
enum ctl_exit ctl_run_issuer_add(struct ctl *c, struct sbx_err *err);
enum ctl_exit ctl_run_states(struct ctl *c, struct sbx_err *err);
enum ctl_exit ctl_run_doctor(struct ctl *c, struct sbx_err *err);
enum ctl_exit ctl_run_bootstrap(struct ctl *c, struct sbx_err *err);
enum ctl_exit ctl_run_completion(struct ctl *c, struct sbx_err *err);
enum ctl_exit ctl_run_man(struct ctl *c, struct sbx_err *err);

#endif
