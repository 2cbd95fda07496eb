#ifndef BASE_SECRET_H
#define BASE_SECRET_H

/* Bytes that are wiped when freed and print "***". */

#include <stddef.h>

#include "sbx/error.h"

struct secret;

struct secret *secret_new(const void *data, size_t len);
/* The whole file, without one trailing newline; at most max bytes; SBX_E_INVALID names the option,
 * not the path. */
MUST_USE enum sbx_code secret_read_file(const char *path, const char *option, size_t max,
                                        struct secret **out, struct sbx_err *err);
void secret_free(struct secret *s); /* NULL is allowed */
static inline void secret_free_p(struct secret **s)
{
    secret_free(*s);
}
#define SCOPED_SECRET SCOPED(secret_free_p)

const char *secret_reveal(const struct secret *s); /* NUL-ended; look for callers when auditing */
size_t secret_len(const struct secret *s);
const char *secret_print(const struct secret *s); /* "***" */
void secret_wipe(void *data, size_t len);         /* not optimised away */

#endif
