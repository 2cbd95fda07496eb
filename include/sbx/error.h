#ifndef SBX_ERROR_H
#define SBX_ERROR_H

/* Errors: a code the caller can branch on, and a message a person can read.
 *
 * A fallible function takes `struct sbx_err *err` last, returns the code it put
 * there, and returns SBX_OK without touching *err when it succeeds.  The struct
 * lives on the stack of whoever handles the error and is never freed. */

#include <errno.h>
#include <stdbool.h>

#include "sbx/attr.h"

enum sbx_code {
    SBX_OK = 0,
#define SBX_ERR(name, wire, http, flags) SBX_E_##name,
#include "sbx/error.def"
#undef SBX_ERR
    SBX_CODE_COUNT
};

struct sbx_err {
    enum sbx_code code;
    int sys;          /* errno of the failing call, 0 if there is none */
    const char *file; /* where it was raised */
    int line;
    char msg[240];  /* "outer: inner: cause"; the end is cut if it is too long */
    char field[64]; /* the request field at fault, "" if there is none (400 only) */
};

/* Raise: `return err_set(err, SBX_E_NOT_FOUND, "sandbox %s", id);` */
#define err_set(err, code, ...) sbx_err_set_((err), (code), 0, __FILE__, __LINE__, __VA_ARGS__)
/* Raise where the code is looked at later, not returned: `err_put(&err, SBX_E_BUSY, "full");` */
#define err_put(err, code, ...)                                                                    \
    do {                                                                                           \
        enum sbx_code put_ = err_set((err), (code), __VA_ARGS__);                                  \
                                                                                                   \
        (void)put_;                                                                                \
    } while (0)
/* Raise from errno: the text of errno is appended. */
#define err_sys(err, code, ...) sbx_err_set_((err), (code), errno, __FILE__, __LINE__, __VA_ARGS__)
/* Add context on the way up; keeps the code: `return err_wrap(err, "create %s", id);` */
#define err_wrap(err, ...) sbx_err_wrap_((err), __VA_ARGS__)

/* Raise for one request field: `return err_field(err, "zClouds", "zClouds must be 1 to 16");` */
#define err_field(err, name, ...) sbx_err_field_((err), (name), __FILE__, __LINE__, __VA_ARGS__)

MUST_USE enum sbx_code sbx_err_set_(struct sbx_err *err, enum sbx_code code, int sys,
                                    const char *file, int line, const char *fmt, ...)
    PRINTF_LIKE(6, 7);
MUST_USE enum sbx_code sbx_err_field_(struct sbx_err *err, const char *field, const char *file,
                                      int line, const char *fmt, ...) PRINTF_LIKE(5, 6);
MUST_USE enum sbx_code sbx_err_wrap_(struct sbx_err *err, const char *fmt, ...) PRINTF_LIKE(2, 3);

const char *sbx_code_name(enum sbx_code code); /* wire name, "ok" for SBX_OK */
int sbx_code_http(enum sbx_code code);         /* HTTP status */
bool sbx_code_public(enum sbx_code code);      /* may msg be shown to the client? */
bool sbx_code_retry(enum sbx_code code);       /* may the caller try again? */
bool sbx_code_parse(const char *wire, enum sbx_code *out);

#endif
