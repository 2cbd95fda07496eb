#ifndef BASE_STR_H
#define BASE_STR_H

/* Small text helpers: bounded parsing, UTF-8, JSON quoting. Any thread. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* The whole text is a decimal number in [min, max]; no sign but '-', no space. */
bool str_parse_int(const char *text, int64_t min, int64_t max, int64_t *out);
bool str_starts(const char *text, const char *prefix);
bool str_ends(const char *text, const char *suffix);
/* Copies at most size - 1 bytes and always ends with NUL; false when it was cut. */
bool str_copy(char *to, size_t size, const char *from);
/* Same length of time whatever differs. */
bool str_equal_secret(const void *a, const void *b, size_t len);

/* Strict UTF-8 (RFC 3629): no overlong forms, no surrogates, at most U+10FFFF. */
bool utf8_valid(const void *data, size_t len);
/* The largest n <= len such that data[0..n) does not end inside a character. */
size_t utf8_cut(const void *data, size_t len);
/* Number of characters of valid UTF-8. */
size_t utf8_count(const char *text);

/* Appends text as a JSON string, quotes included; bytes that are not UTF-8 become U+FFFD. */
void str_json_quote(struct buf *b, const char *text);

#endif
