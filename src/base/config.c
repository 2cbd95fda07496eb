#include "base/config.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"

enum { FILE_LINE_MAX = 4096, NAME_MAX_LEN = 128 };

struct config {
    const struct config_option *options;
    size_t count;
    char *_Atomic *values; /* a reload changes them under whoever reads */
    bool *set;
    char **retired; /* former values: somebody may still read them */
    size_t retired_count;
};

static bool parse_bool(const char *text, bool *out)
{
    static const char *const YES[] = { "true", "on", "yes", "1" };
    static const char *const NO[] = { "false", "off", "no", "0" };

    for (size_t i = 0; i < COUNT_OF(YES); i++) {
        if (strcmp(text, YES[i]) == 0 || strcmp(text, NO[i]) == 0) {
            *out = strcmp(text, YES[i]) == 0;
            return true;
        }
    }
    return false;
}

static enum sbx_code check_value(const struct config_option *o, const char *value,
                                 struct sbx_err *err)
{
    int64_t n;
    bool b;

    switch (o->type) {
    case CONFIG_INT:
        if (!str_parse_int(value, o->min, o->max, &n))
            return err_set(err, SBX_E_INVALID,
                           "[%s] %s must be a whole number from %" PRId64 " to %" PRId64,
                           o->section, o->key, o->min, o->max);
        break;
    case CONFIG_BOOL:
        if (!parse_bool(value, &b))
            return err_set(err, SBX_E_INVALID, "[%s] %s must be true or false", o->section, o->key);
        break;
    case CONFIG_STR:
    case CONFIG_LIST:
    case CONFIG_SECRET_FILE:
        break;
    case CONFIG_UNSET:
        return err_set(err, SBX_E_INTERNAL, "[%s] %s has no type", o->section, o->key);
    }
    return SBX_OK;
}

static enum sbx_code set_value(struct config *c, size_t i, const char *value, struct sbx_err *err)
{
    if (check_value(&c->options[i], value, err) != SBX_OK)
        return err->code;
    free(c->values[i]);
    c->values[i] = mem_strdup(value);
    c->set[i] = true;
    return SBX_OK;
}

static size_t find(const struct config *c, const char *section, const char *key)
{
    for (size_t i = 0; i < c->count; i++) {
        if (strcmp(c->options[i].section, section) == 0 && strcmp(c->options[i].key, key) == 0)
            return i;
    }
    return c->count;
}

static char *trim(char *s)
{
    char *end;

    while (*s == ' ' || *s == '\t')
        s++;
    end = s + strlen(s);
    while (end > s && strchr(" \t\r\n", end[-1]) != NULL)
        *--end = 0;
    return s;
}

static enum sbx_code read_line(struct config *c, char *line, char section[NAME_MAX_LEN],
                               struct sbx_err *err)
{
    char *s = trim(line);
    char *eq;
    size_t i;

    if (*s == 0 || *s == '#' || *s == ';')
        return SBX_OK;
    if (*s == '[') {
        char *end = strchr(s, ']');

        if (end == NULL || end[1] != 0 || (size_t)(end - s) > NAME_MAX_LEN)
            return err_set(err, SBX_E_INVALID, "a section is written [name]");
        *end = 0;
        (void)str_copy(section, NAME_MAX_LEN, s + 1);
        return SBX_OK;
    }
    eq = strchr(s, '=');
    if (eq == NULL)
        return err_set(err, SBX_E_INVALID, "expected 'key = value'");
    *eq = 0;
    s = trim(s);
    i = find(c, section, s);
    if (i == c->count)
        return err_set(err, SBX_E_INVALID, "unknown key '%s' in section [%s]", s, section);
    return set_value(c, i, trim(eq + 1), err);
}

static void file_close_p(FILE **f)
{
    if (*f != NULL)
        (void)fclose(*f);
}

static enum sbx_code read_file(struct config *c, const char *path, struct sbx_err *err)
{
    SCOPED(file_close_p) FILE *f = fopen(path, "re");
    char line[FILE_LINE_MAX];
    char section[NAME_MAX_LEN] = "";

    if (f == NULL)
        return err_sys(err, SBX_E_INVALID, "configuration file %s", path);
    for (int n = 1; fgets(line, sizeof(line), f) != NULL; n++) {
        if (strlen(line) == sizeof(line) - 1)
            return err_set(err, SBX_E_INVALID, "%s:%d: the line is too long", path, n);
        if (read_line(c, line, section, err) != SBX_OK)
            return err_wrap(err, "%s:%d", path, n);
    }
    return SBX_OK;
}

static void env_name(const char *prefix, const struct config_option *o, char out[NAME_MAX_LEN])
{
    (void)snprintf(out, NAME_MAX_LEN, "%s_%s_%s", prefix, o->section, o->key);
    for (char *p = out; *p != 0; p++)
        *p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
}

static enum sbx_code read_env(struct config *c, const char *prefix, struct sbx_err *err)
{
    for (size_t i = 0; i < c->count; i++) {
        char name[NAME_MAX_LEN];
        const char *value;

        env_name(prefix, &c->options[i], name);
        value = getenv(name);
        if (value != NULL && set_value(c, i, value, err) != SBX_OK)
            return err_wrap(err, "environment %s", name);
    }
    return SBX_OK;
}

/* The option that "--section-key[=value]" names, or count. */
static size_t find_flag(const struct config *c, const char *arg, const char **value)
{
    for (size_t i = 0; i < c->count; i++) {
        char name[NAME_MAX_LEN];
        size_t n;

        (void)snprintf(name, sizeof(name), "--%s-%s", c->options[i].section, c->options[i].key);
        n = strlen(name);
        if (strncmp(arg, name, n) != 0 || (arg[n] != 0 && arg[n] != '='))
            continue;
        *value = arg[n] == '=' ? arg + n + 1 : NULL;
        return i;
    }
    return c->count;
}

static enum sbx_code read_flags(struct config *c, int argc, char **argv, struct arena *a,
                                const char ***rest, struct sbx_err *err)
{
    const char **left = arena_zalloc(a, ((size_t)argc + 1) * sizeof(*left));
    size_t n = 0;

    for (int at = 1; at < argc; at++) {
        const char *value = NULL;
        size_t i = find_flag(c, argv[at], &value);

        if (i == c->count) {
            if (rest == NULL)
                return err_set(err, SBX_E_INVALID, "unknown option %s", argv[at]);
            left[n++] = argv[at];
            continue;
        }
        if (value == NULL && c->options[i].type == CONFIG_BOOL &&
            (at + 1 == argc || str_starts(argv[at + 1], "--")))
            value = "true";
        if (value == NULL && ++at == argc)
            return err_set(err, SBX_E_INVALID, "%s needs a value", argv[at - 1]);
        if (set_value(c, i, value != NULL ? value : argv[at], err) != SBX_OK)
            return err->code;
    }
    if (rest != NULL)
        *rest = left;
    return SBX_OK;
}

enum sbx_code config_load(const struct config_option *options, size_t count, const char *env_prefix,
                          const char *file, int argc, char **argv, struct arena *a,
                          const char ***rest, struct config **out, struct sbx_err *err)
{
    struct config *c = mem_zalloc(sizeof(*c));
    enum sbx_code code = SBX_OK;

    c->options = options;
    c->count = count;
    c->values = mem_zalloc(count * sizeof(*c->values));
    c->set = mem_zalloc(count * sizeof(*c->set));
    for (size_t i = 0; i < count && code == SBX_OK; i++) {
        if (find(c, options[i].section, options[i].key) != i)
            code = err_set(err, SBX_E_INTERNAL, "[%s] %s is listed twice", options[i].section,
                           options[i].key);
        else
            code = set_value(c, i, options[i].dflt, err);
        c->set[i] = false;
    }
    if (code == SBX_OK && file != NULL)
        code = read_file(c, file, err);
    if (code == SBX_OK)
        code = read_env(c, env_prefix, err);
    if (code == SBX_OK)
        code = read_flags(c, argc, argv, a, rest, err);
    if (code != SBX_OK) {
        config_free(c);
        return code;
    }
    *out = c;
    return SBX_OK;
}

size_t config_take(struct config *c, const struct config *fresh, struct buf *restart)
{
    size_t taken = 0;

    assert(c->options == fresh->options);
    for (size_t i = 0; i < c->count; i++) {
        const struct config_option *o = &c->options[i];

        if (strcmp(c->values[i], fresh->values[i]) == 0)
            continue;
        if (!o->reload) {
            (void)buf_printf(restart, "%s[%s] %s", restart->len > 0 ? ", " : "", o->section,
                             o->key);
            continue;
        }
        c->retired = mem_realloc(c->retired, (c->retired_count + 1) * sizeof(*c->retired));
        c->retired[c->retired_count++] = c->values[i];
        c->values[i] = mem_strdup(fresh->values[i]);
        taken++;
    }
    return taken;
}

void config_free(struct config *c)
{
    if (c == NULL)
        return;
    for (size_t i = 0; i < c->count; i++)
        free(c->values[i]);
    for (size_t i = 0; i < c->retired_count; i++)
        free(c->retired[i]);
    free(c->retired);
    free(c->values);
    free(c->set);
    free(c);
}

static size_t must_find(const struct config *c, const char *section, const char *key)
{
    size_t i = find(c, section, key);

    assert(i < c->count);
    return i;
}

const char *config_str(const struct config *c, const char *section, const char *key)
{
    size_t i = must_find(c, section, key);

    assert(c->options[i].type == CONFIG_STR || c->options[i].type == CONFIG_SECRET_FILE);
    return c->values[i];
}

int64_t config_int(const struct config *c, const char *section, const char *key)
{
    size_t i = must_find(c, section, key);
    int64_t n = 0;

    assert(c->options[i].type == CONFIG_INT);
    assert(str_parse_int(c->values[i], c->options[i].min, c->options[i].max, &n));
    return n;
}

bool config_bool(const struct config *c, const char *section, const char *key)
{
    size_t i = must_find(c, section, key);
    bool b = false;

    assert(c->options[i].type == CONFIG_BOOL);
    assert(parse_bool(c->values[i], &b));
    return b;
}

const char **config_list(const struct config *c, const char *section, const char *key,
                         struct arena *a, size_t *count)
{
    size_t i = must_find(c, section, key);
    char *copy = arena_strdup(a, c->values[i]);
    const char **items = arena_zalloc(a, (strlen(copy) + 2) * sizeof(*items));
    size_t n = 0;

    assert(c->options[i].type == CONFIG_LIST);
    for (char *next; copy != NULL; copy = next) {
        char *item;

        next = strchr(copy, ',');
        if (next != NULL)
            *next++ = 0;
        item = trim(copy);
        if (*item != 0)
            items[n++] = item;
    }
    *count = n;
    return items;
}

bool config_is_set(const struct config *c, const char *section, const char *key)
{
    return c->set[must_find(c, section, key)];
}

static void print_option(const struct config_option *o, const char *value, bool commented,
                         const char **section, struct buf *out)
{
    if (*section == NULL || strcmp(*section, o->section) != 0)
        (void)buf_printf(out, "%s[%s]\n", *section != NULL ? "\n" : "", o->section);
    *section = o->section;
    (void)buf_printf(out, "# %s", o->help);
    if (o->type == CONFIG_INT)
        (void)buf_printf(out, " (%" PRId64 " to %" PRId64 ")", o->min, o->max);
    (void)buf_printf(out, "%s\n%s%s = %s\n", o->reload ? " Reloaded by SIGHUP." : "",
                     commented ? "#" : "", o->key, value);
}

void config_print(const struct config *c, struct buf *out)
{
    const char *section = NULL;

    for (size_t i = 0; i < c->count; i++)
        print_option(&c->options[i], c->values[i], !c->set[i], &section, out);
}

void config_print_defaults(const struct config_option *options, size_t count, struct buf *out)
{
    const char *section = NULL;

    for (size_t i = 0; i < count; i++)
        print_option(&options[i], options[i].dflt, true, &section, out);
}

static void print_range(const struct config_option *o, struct buf *out)
{
    if (o->type == CONFIG_INT)
        (void)buf_printf(out, "%" PRId64 " to %" PRId64, o->min, o->max);
    else if (o->type == CONFIG_BOOL)
        (void)buf_puts(out, "true, false");
    else if (o->type == CONFIG_LIST)
        (void)buf_puts(out, "comma-separated");
    else if (o->type == CONFIG_SECRET_FILE)
        (void)buf_puts(out, "path of a file");
    else
        (void)buf_puts(out, "text");
}

void config_print_page(const struct config_option *options, size_t count, const char *program,
                       const char *env_prefix, struct buf *out)
{
    (void)buf_printf(out,
                     "# Configuration of %s\n\n"
                     "Printed by `%s --print-config-page` from its table of options; a test holds "
                     "the two together.\nAn option comes from, in this order: its default, the INI "
                     "file (`--config FILE`), the environment\n(`%s_SECTION_KEY`), a flag "
                     "(`--section-key VALUE`). An unknown one is an error with file and line.\n",
                     program, program, env_prefix);
    for (size_t i = 0; i < count; i++) {
        const struct config_option *o = &options[i];

        if (i == 0 || strcmp(o->section, options[i - 1].section) != 0)
            (void)buf_printf(out,
                             "\n## [%s]\n\n| option | default | values | what it is |\n"
                             "| --- | --- | --- | --- |\n",
                             o->section);
        (void)buf_printf(out, "| `%s` | %s%s%s | ", o->key, o->dflt[0] != '\0' ? "`" : "", o->dflt,
                         o->dflt[0] != '\0' ? "`" : "");
        print_range(o, out);
        (void)buf_printf(out, " | %s%s |\n", o->help, o->reload ? "; SIGHUP takes it over" : "");
    }
}
