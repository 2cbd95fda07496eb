#ifndef BASE_LOG_H
#define BASE_LOG_H

#pragma GCC system_header /* __VA_OPT__ is C23; gcc and clang have it, -Wpedantic says no */

/* JSON lines on stderr: {"time","level","msg","requestId"?,"sandboxId"?,...}.
 * Only edges log: the end of a request, the end of a reconcile action, start, stop.
 * Never a secret, a host path of a tenant, argv, environment or output. Any thread. */

#include <stdint.h>

#include "sbx/error.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

enum log_type { LOG_END = 0, LOG_STR, LOG_INT, LOG_BOOL };

/* One field of a line; a string that is NULL is left out. */
struct log_field {
    const char *key;
    enum log_type type;
    const char *str;
    int64_t num;
};

#define LOG_S(k, v) ((struct log_field){ .key = (k), .type = LOG_STR, .str = (v) })
#define LOG_I(k, v) ((struct log_field){ .key = (k), .type = LOG_INT, .num = (int64_t)(v) })
#define LOG_B(k, v) ((struct log_field){ .key = (k), .type = LOG_BOOL, .num = (v) ? 1 : 0 })

void log_open(const char *program, enum log_level least);
bool log_level_parse(const char *text, enum log_level *out);
void log_write(enum log_level level, const char *msg, const struct log_field *fields);

/* log_info("started", LOG_S("listen", addr), LOG_I("port", port)); */
#define log_at(level, msg, ...)                                                                    \
    log_write((level), (msg),                                                                      \
              (const struct log_field[]){ __VA_ARGS__ __VA_OPT__(, ){ .key = NULL } })
#define log_debug(...) log_at(LOG_DEBUG, __VA_ARGS__)
#define log_info(...)  log_at(LOG_INFO, __VA_ARGS__)
#define log_warn(...)  log_at(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_at(LOG_ERROR, __VA_ARGS__)
/* The error's own text, place and code beside further fields. */
#define log_err(level_, text_, err_, ...)                                                          \
    log_write((level_), (text_),                                                                   \
              (const struct log_field[]){ LOG_S("error", (err_)->msg),                             \
                                          LOG_S("code", sbx_code_name((err_)->code)),              \
                                          LOG_S("file", (err_)->file),                             \
                                          LOG_I("line", (err_)->line) __VA_OPT__(, ) __VA_ARGS__,  \
                                          { .key = NULL } })

#endif
