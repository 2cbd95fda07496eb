#ifndef MOUNT_NAMES_H
#define MOUNT_NAMES_H

/* File names as object names.  A file name is any bytes; an object's name is UTF-8, and goes
 *through XML 1.0 when a bucket is listed: a server that has to list a control character answers 500
 *for the whole bucket (swift), or what no parser takes (S3), to everybody who has volumes in it. So
 *what XML cannot carry is written %XX, byte by byte (upper case); everything else stays as it is,
 *so that a bucket reads well from outside.  Escaped are
 *
 *	bytes that are not UTF-8; U+0001 to U+001F, U+007F, U+FFFE, U+FFFF
 *	the $ of _$folder$, which s3fs takes for a mark of its own
 *	a % that begins what would be read as an escape, and only in names that hold an escape or
 *look as if they were one: "100%", "a%20b" and "caf%C3%A9" stay
 *
 * Different names have different keys, and each comes back as it was.  Pure; any thread. */

#include <stdbool.h>
#include <stddef.h>

enum { NAMES_KEY_MAX = 1024 }; /* bytes of an object's name: the limit of S3, and of swift */

/* A path to the end of its key, in at most max (up to NAMES_KEY_MAX) bytes; false: it is too long.
 */
bool names_encode(const char *path, size_t max, char out[NAMES_KEY_MAX + 1]);
/* One component of a key to its file name; what we did not write ourselves stays as it is.  At most
 * NAMES_KEY_MAX bytes; false: it is too long. */
bool names_decode(const char *component, char out[NAMES_KEY_MAX + 1]);

#endif
