#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"
#include "ctl/ctl.h"

enum { CELL_MAX = 4096 };

/* What acts on the terminal, or turns the text around it, instead of being seen: C1 controls, line
 * separators, Unicode's bidirectional marks. */
static const struct {
    const char *utf8;
    unsigned first, last; /* of the last byte */
    unsigned code;        /* of first */
} UNSEEN[] = {
    { "\xc2", 0x80, 0x9f, 0x80 },
    { "\xe2\x80", 0x8e, 0x8f, 0x200e },
    { "\xe2\x80", 0xa8, 0xae, 0x2028 },
    { "\xe2\x81", 0xa6, 0xa9, 0x2066 },
};

/* The bytes of an unseen character that text begins with; 0: it is none. */
static size_t unseen(const char *text, unsigned *code)
{
    for (size_t i = 0; i < COUNT_OF(UNSEEN); i++) {
        size_t len = strlen(UNSEEN[i].utf8);
        unsigned last;

        if (strncmp(text, UNSEEN[i].utf8, len) != 0)
            continue;
        last = (unsigned char)text[len];
        if (last < UNSEEN[i].first || last > UNSEEN[i].last)
            continue;
        *code = UNSEEN[i].code + last - UNSEEN[i].first;
        return len + 1;
    }
    return 0;
}

/* What a server sent never reaches the terminal as something else than what it shows. */
static void put_clean(struct buf *b, const char *text)
{
    while (*text != 0) {
        unsigned code = 0;
        size_t len = unseen(text, &code);

        if (len > 0)
            (void)buf_printf(b, "\\u%04x", code);
        else if ((unsigned char)*text < 0x20 || *text == 0x7f)
            (void)buf_printf(b, "\\x%02x", (unsigned)(unsigned char)*text);
        else
            (void)buf_append(b, text, 1);
        text += len > 0 ? len : 1;
    }
}

static void put_object(struct buf *b, const json_t *v)
{
    SCOPED_BUF struct buf text = BUF_INIT(CELL_MAX);

    if (json_write(&text, v) && text.data != NULL)
        put_clean(b, text.data);
}

static void put_value(struct buf *b, const json_t *v)
{
    size_t i;
    json_t *item;

    switch (v != NULL ? json_typeof(v) : JSON_NULL) {
    case JSON_STRING:
        put_clean(b, json_string_value(v));
        break;
    case JSON_INTEGER:
        (void)buf_printf(b, "%lld", (long long)json_integer_value(v));
        break;
    case JSON_REAL:
        (void)buf_printf(b, "%g", json_real_value(v));
        break;
    case JSON_TRUE:
        (void)buf_puts(b, "yes");
        break;
    case JSON_FALSE:
        (void)buf_puts(b, "no");
        break;
    case JSON_NULL:
        (void)buf_puts(b, "-");
        break;
    case JSON_ARRAY:
        json_array_foreach((json_t *)(uintptr_t)v, i, item)
        {
            if (i > 0)
                (void)buf_puts(b, ",");
            put_value(b, item);
        }
        break;
    case JSON_OBJECT:
        put_object(b, v);
        break;
    }
}

static char *cell_of(struct arena *a, const json_t *v)
{
    SCOPED_BUF struct buf b = BUF_INIT(CELL_MAX);

    put_value(&b, v);
    return arena_strdup(a, b.data != NULL && b.len > 0 ? b.data : "");
}

void ctl_print_json(const json_t *j)
{
    (void)json_dumpf(j, stdout, isatty(STDOUT_FILENO) ? JSON_INDENT(2) : JSON_COMPACT);
    (void)putchar('\n');
}

struct column {
    char *field;
    char *title;
    size_t width;
};

static size_t read_columns(struct arena *a, const char *text, struct column *out)
{
    size_t n = 0;

    while (*text != 0 && n < CTL_COLUMNS_MAX) {
        size_t len = strcspn(text, " ");
        const char *colon = memchr(text, ':', len);

        out[n].field = arena_strndup(a, text, (size_t)(colon - text));
        out[n].title = arena_strndup(a, colon + 1, len - (size_t)(colon - text) - 1);
        out[n].width = strlen(out[n].title);
        n++;
        text += len + (text[len] == ' ' ? 1 : 0);
    }
    return n;
}

static void put_cell(const char *text, size_t width, bool last)
{
    size_t have = utf8_valid(text, strlen(text)) ? utf8_count(text) : strlen(text);

    (void)fputs(text, stdout);
    if (last)
        (void)putchar('\n');
    else
        (void)printf("%*s", (int)(width > have ? width - have : 0) + 2, "");
}

static void print_rows(struct arena *a, const json_t *list, struct column *col, size_t n,
                       const char *indent)
{
    size_t rows = json_array_size(list);
    const char **cells = arena_zalloc(a, sizeof(*cells) * (rows * n + 1));

    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < n; i++) {
            const char *text = cell_of(a, json_object_get(json_array_get(list, r), col[i].field));
            size_t width = utf8_count(text);

            cells[r * n + i] = text;
            if (width > col[i].width)
                col[i].width = width;
        }
    }
    (void)fputs(indent, stdout);
    for (size_t i = 0; i < n; i++)
        put_cell(col[i].title, col[i].width, i + 1 == n);
    for (size_t r = 0; r < rows; r++) {
        (void)fputs(indent, stdout);
        for (size_t i = 0; i < n; i++)
            put_cell(cells[r * n + i], col[i].width, i + 1 == n);
    }
}

void ctl_print_table(const json_t *list, const char *columns)
{
    SCOPED_ARENA struct arena *a = arena_new();
    struct column col[CTL_COLUMNS_MAX];

    print_rows(a, list, col, read_columns(a, columns, col), "");
}

static bool is_list(const json_t *value)
{
    return json_is_array(value) && json_is_object(json_array_get(value, 0));
}

/* A list inside an object: its members' own names are the columns, in the order they come. */
static void print_list(const json_t *list, const char *name)
{
    SCOPED_ARENA struct arena *a = arena_new();
    struct column col[CTL_COLUMNS_MAX];
    size_t n = 0;

    for (size_t r = 0; r < json_array_size(list); r++) {
        const char *key;
        json_t *value;

        json_object_foreach(json_array_get(list, r), key, value)
        {
            size_t i = 0;

            while (i < n && strcmp(col[i].field, key) != 0)
                i++;
            if (i == n && n < CTL_COLUMNS_MAX) {
                col[n].field = col[n].title = arena_strdup(a, key);
                col[n++].width = strlen(key);
            }
        }
    }
    (void)printf("\n%s\n", name);
    print_rows(a, list, col, n, "  ");
}

static size_t widest(const json_t *object, size_t prefix)
{
    size_t most = 0;
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        size_t width = prefix + strlen(key);

        if (json_is_object(value))
            width = widest(value, width + 1);
        else if (is_list(value))
            width = 0;
        if (width > most)
            most = width;
    }
    return most;
}

static void print_members(const json_t *object, const char *prefix, size_t width)
{
    SCOPED_ARENA struct arena *a = arena_new();
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        const char *name = arena_printf(a, "%s%s", prefix, key);

        if (json_is_object(value))
            print_members(value, arena_printf(a, "%s.", name), width);
        else if (!is_list(value))
            (void)printf("%-*s  %s\n", (int)width, name, cell_of(a, value));
    }
}

static void print_lists(const json_t *object, const char *prefix)
{
    SCOPED_ARENA struct arena *a = arena_new();
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        if (json_is_object(value))
            print_lists(value, arena_printf(a, "%s%s.", prefix, key));
        else if (is_list(value))
            print_list(value, arena_printf(a, "%s%s", prefix, key));
    }
}

void ctl_print_object(const json_t *object)
{
    print_members(object, "", widest(object, 0));
    print_lists(object, "");
}

void ctl_print_answer(struct ctl *c)
{
    const json_t *shown =
        c->verb->answer != NULL ? json_object_get(c->answer, c->verb->answer) : NULL;
    const char *secret = json_get_str(c->answer, "secret", NULL);

    if (c->json) {
        ctl_print_json(c->answer);
        return;
    }
    if (json_is_array(shown) && c->verb->columns != NULL) {
        ctl_print_table(shown, c->verb->columns);
        if (json_object_get(c->answer, "next") != NULL ||
            json_object_get(c->answer, "nextCursor") != NULL)
            (void)fprintf(stderr, "There is more: see --limit, --after and --cursor.\n");
        return;
    }
    if (shown == NULL) {
        (void)json_object_del(c->answer, "success");
        shown = c->answer;
    }
    if (json_object_size(shown) == 0)
        (void)puts("done");
    ctl_print_object(shown);
    if (secret != NULL && c->verb->answer != NULL)
        (void)printf("secret (shown this once)  %s\n", secret);
}

void ctl_progress(const char *text)
{
    static bool shown;

    if (!isatty(STDERR_FILENO))
        return;
    if (text != NULL)
        (void)fprintf(stderr, "\r\033[K%s", text);
    else if (shown)
        (void)fputs("\r\033[K", stderr);
    shown = text != NULL;
    (void)fflush(stderr);
}
