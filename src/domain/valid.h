#ifndef DOMAIN_VALID_H
#define DOMAIN_VALID_H

/* Validation of what clients send: one function for each kind of value, which the
 * api's schemas name.  Each answers SBX_OK, or SBX_E_INVALID with `field` set and a
 * sentence that says what would be right (contract 1-3).  Text is NUL-ended UTF-8
 * that the JSON parser has accepted.  Pure; any thread. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sbx/attr.h"
#include "sbx/error.h"

enum {
    VALID_NAME_MAX = 120,         /* characters */
    VALID_DESCRIPTION_MAX = 2000, /* characters */
    VALID_KEY_MAX = 255,          /* characters: idempotencyKey, ownerId, externalSessionId */
    VALID_IMAGE_MAX = 512,        /* bytes */
    VALID_VOLUME_NAME_MAX = 63,
    VALID_ENV_COUNT_MAX = 1024,
    VALID_PATH_MAX = 4096,    /* bytes */
    VALID_EXCLUDES_MAX = 256, /* patterns */
    VALID_EXCLUDE_MAX = 1024, /* bytes of one pattern */
    VALID_RUN_ID_MAX = 128,
    VALID_REQUEST_ID_MIN = 8,
    VALID_REQUEST_ID_MAX = 128,
    VALID_NETWORK_ENTRIES_MAX = 1024,
    VALID_NETWORK_ENTRY_MAX = 255, /* bytes */
    VALID_WARM_MAX = 100,
    VALID_PORTS_MAX = 64,
};

typedef enum sbx_code valid_text_fn(const char *field, const char *text, struct sbx_err *err);

MUST_USE valid_text_fn valid_name;          /* 1-120 characters, not blank, no control character */
MUST_USE valid_text_fn valid_description;   /* at most 2,000 characters */
MUST_USE valid_text_fn valid_key;           /* 1-255 characters, kept byte for byte */
MUST_USE valid_text_fn valid_id;            /* one of our ids */
MUST_USE valid_text_fn valid_image_digest;  /* repository[:tag]@sha256:<64 lower-case hex> */
MUST_USE valid_text_fn valid_image_ref;     /* 1-512 bytes, informational */
MUST_USE valid_text_fn valid_mount_path;    /* absolute, normalised, not a system folder */
MUST_USE valid_text_fn valid_working_dir;   /* absolute, normalised */
MUST_USE valid_text_fn valid_volume_name;   /* 1-63 of [a-z0-9-], a letter first */
MUST_USE valid_text_fn valid_region_name;   /* the same form as a volume's */
MUST_USE valid_text_fn valid_env_name;      /* [A-Za-z_][A-Za-z0-9_]* */
MUST_USE valid_text_fn valid_argument;      /* at most SBX_ARG_MAX bytes: argv and env values */
MUST_USE valid_text_fn valid_run_id;        /* 1-128 of [A-Za-z0-9._-], and not "claim" */
MUST_USE valid_text_fn valid_exclude;       /* one gitignore pattern: not blank, no newline */
MUST_USE valid_text_fn valid_network_entry; /* one allow-list entry: at most 255 bytes */

/* 1-256 strings, the first not empty: a revision's command. */
MUST_USE enum sbx_code valid_command(const char *field, const char *const *argv, size_t count,
                                     struct sbx_err *err);
/* 1 to SBX_EXEC_ARGS_MAX strings of at most SBX_ARG_MAX bytes, the first not empty: execute. */
MUST_USE enum sbx_code valid_exec_command(const char *field, const char *const *argv, size_t count,
                                          struct sbx_err *err);
MUST_USE enum sbx_code valid_excludes(const char *field, const char *const *patterns, size_t count,
                                      struct sbx_err *err);
/* min <= v <= max, said with the field's name. */
MUST_USE enum sbx_code valid_range(const char *field, int64_t v, int64_t min, int64_t max,
                                   struct sbx_err *err);
/* 0 <= min <= desired <= max <= VALID_WARM_MAX (contract 2). */
MUST_USE enum sbx_code valid_warm_pool(const char *field, int64_t desired, int64_t min, int64_t max,
                                       struct sbx_err *err);
/* A networkControl at revision time (contract 2): enabled needs at least one non-blank address; a
 * domain list that is given but all blank is refused; an empty one is inactive. NULL: not given. */
MUST_USE enum sbx_code valid_network(bool enabled, const char *const *addresses, size_t naddresses,
                                     const char *const *domains, size_t ndomains,
                                     struct sbx_err *err);
/* The owner kind that the profile requires (contract 3); field ownerKind. */
MUST_USE enum sbx_code valid_owner_kind(const char *profile, const char *owner_kind,
                                        struct sbx_err *err);

/* The folder a command runs in (contract 4): absolute text as it is; relative text without its
 * dots, "." for /workspace itself, SBX_E_PATH_ESCAPE when it names a place above.  The agent, which
 * alone sees links, refuses those that lead out of /workspace. */
MUST_USE enum sbx_code valid_cwd(const char *text, char out[VALID_PATH_MAX], struct sbx_err *err);

/* [A-Za-z0-9._-]{8,128}: an X-Request-Id we echo. */
bool valid_request_id(const char *text);

#endif
