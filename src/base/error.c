#include "sbx/error.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { P = 1 << 0, R = 1 << 1 };

static const struct {
    const char *wire;
    int http;
    int flags;
} CODES[SBX_CODE_COUNT] = {
    [SBX_OK] = { "OK", 200, 0 },
#define SBX_ERR(name, wire_, http_, flags_) [SBX_E_##name] = { wire_, http_, flags_ },
#include "sbx/error.def"
#undef SBX_ERR
};

static void raise_at(struct sbx_err *err, enum sbx_code code, int sys, const char *file, int line,
                     const char *fmt, va_list ap)
    __attribute__((format(printf, 6, 0)));

static void raise_at(struct sbx_err *err, enum sbx_code code, int sys, const char *file, int line,
                     const char *fmt, va_list ap)
{
    int n;

    assert(code > SBX_OK && code < SBX_CODE_COUNT);
    assert(err->code == SBX_OK); /* raised twice: the first error would be lost */

    err->code = code;
    err->sys = sys;
    err->file = file;
    err->line = line;
    n = vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
    if (sys != 0 && n >= 0 && (size_t)n < sizeof(err->msg)) {
        char text[64];

        (void)snprintf(err->msg + n, sizeof(err->msg) - (size_t)n, ": %s",
                       strerror_r(sys, text, sizeof(text)));
    }
}

enum sbx_code sbx_err_set_(struct sbx_err *err, enum sbx_code code, int sys, const char *file,
                           int line, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    raise_at(err, code, sys, file, line, fmt, ap);
    va_end(ap);
    return code;
}

enum sbx_code sbx_err_field_(struct sbx_err *err, const char *field, const char *file, int line,
                             const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    raise_at(err, SBX_E_INVALID, 0, file, line, fmt, ap);
    va_end(ap);
    (void)snprintf(err->field, sizeof(err->field), "%s", field);
    return SBX_E_INVALID;
}

enum sbx_code sbx_err_wrap_(struct sbx_err *err, const char *fmt, ...)
{
    char outer[sizeof(err->msg)];
    va_list ap;
    size_t used;

    assert(err->code != SBX_OK);

    va_start(ap, fmt);
    (void)vsnprintf(outer, sizeof(outer) / 2, fmt, ap);
    va_end(ap);

    used = strlen(outer);
    (void)snprintf(outer + used, sizeof(outer) - used, ": %s", err->msg);
    memcpy(err->msg, outer, sizeof(outer));
    return err->code;
}

const char *sbx_code_name(enum sbx_code code)
{
    return CODES[code].wire;
}

int sbx_code_http(enum sbx_code code)
{
    return CODES[code].http;
}

bool sbx_code_public(enum sbx_code code)
{
    return (CODES[code].flags & P) != 0;
}

bool sbx_code_retry(enum sbx_code code)
{
    return (CODES[code].flags & R) != 0;
}

bool sbx_code_parse(const char *wire, enum sbx_code *out)
{
    for (int i = 0; i < SBX_CODE_COUNT; i++) {
        if (strcmp(CODES[i].wire, wire) == 0) {
            *out = (enum sbx_code)i;
            return true;
        }
    }
    return false;
}
