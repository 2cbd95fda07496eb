#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/str.h"
#include "base/time.h"

enum { LINE_MAX_BYTES = 8192 };

static const char *const NAMES[] = { "debug", "info", "warn", "error" };
static const char *program_name = "";
static enum log_level least_level = LOG_INFO;

void log_open(const char *program, enum log_level least)
{
    program_name = program;
    least_level = least;
}

bool log_level_parse(const char *text, enum log_level *out)
{
    for (size_t i = 0; i < COUNT_OF(NAMES); i++) {
        if (strcmp(text, NAMES[i]) == 0) {
            *out = (enum log_level)i;
            return true;
        }
    }
    return false;
}

static void put_field(struct buf *b, const struct log_field *f)
{
    if (f->type == LOG_STR && f->str == NULL)
        return;
    (void)buf_puts(b, ",");
    str_json_quote(b, f->key);
    (void)buf_puts(b, ":");
    switch (f->type) {
    case LOG_STR:
        str_json_quote(b, f->str);
        break;
    case LOG_INT:
        (void)buf_printf(b, "%" PRId64, f->num);
        break;
    case LOG_BOOL:
        (void)buf_puts(b, f->num != 0 ? "true" : "false");
        break;
    case LOG_END:
        break;
    }
}

void log_write(enum log_level level, const char *msg, const struct log_field *fields)
{
    SCOPED_BUF struct buf b = BUF_INIT(LINE_MAX_BYTES);
    char now[TIME_ISO_SIZE];

    if (level < least_level)
        return;
    time_iso(time_unix_ms(), now);
    (void)buf_printf(&b, "{\"time\":\"%s\",\"level\":\"%s\",\"program\":\"%s\",\"msg\":", now,
                     NAMES[level], program_name);
    str_json_quote(&b, msg);
    for (const struct log_field *f = fields; f->key != NULL; f++)
        put_field(&b, f);
    if (b.full) /* cut at the ceiling: the line stays one JSON object */
        b.len = strlen("{\"time\":\"\"") + TIME_ISO_SIZE - 1, b.full = false;
    (void)buf_puts(&b, "}\n");
    for (size_t at = 0; at < b.len;) {
        ssize_t n = write(STDERR_FILENO, b.data + at, b.len - at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        at += (size_t)n;
    }
}
