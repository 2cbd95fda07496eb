#include "agent/ignore.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

struct pattern {
    char *text;          /* owned; parts point into it */
    const char *literal; /* what it begins with up to its first wildcard, `literal_len` bytes */
    size_t literal_len;
    char **parts; /* the rest, between slashes, NUL-terminated */
    size_t part_count;
    bool negated, folders_only;
    bool anywhere; /* no slash within: the last part of the path is matched */
};

struct agent_ignore {
    size_t count;
    struct pattern patterns[];
};

static const struct {
    const char *name;
    int (*has)(int);
} classes[] = {
    { "alnum", isalnum }, { "alpha", isalpha }, { "blank", isblank }, { "cntrl", iscntrl },
    { "digit", isdigit }, { "graph", isgraph }, { "lower", islower }, { "print", isprint },
    { "punct", ispunct }, { "space", isspace }, { "upper", isupper }, { "xdigit", isxdigit },
};

/* `[:name:]` at p.  Its end, with *matched; p itself when it is no class; NULL: an unknown one. */
static const char *match_class(const char *p, unsigned char c, bool *matched)
{
    const char *name = p + 2;
    const char *end = strchr(name, ']');

    if (!end)
        return NULL;
    if (end == name || end[-1] != ':')
        return p;
    for (size_t i = 0; i < COUNT_OF(classes); i++) {
        size_t len = strlen(classes[i].name);

        if ((size_t)(end - 1 - name) == len && memcmp(name, classes[i].name, len) == 0) {
            *matched |= classes[i].has(c) != 0;
            return end + 1;
        }
    }
    return NULL;
}

/* A set at p, which is behind its `[`.  What is behind its `]`, or NULL when it has none. */
static const char *match_set(const char *p, unsigned char c, bool *matched)
{
    bool negated = *p == '!' || *p == '^';
    bool any = false;
    unsigned char low = 0; /* what a `-` would range from */

    p += negated;
    for (bool first = true; first || *p != ']'; first = false) {
        bool range = *p == '-' && low && p[1] && p[1] != ']';

        if (p[0] == '[' && p[1] == ':' && !range) {
            const char *end = match_class(p, c, &any);

            if (!end)
                return NULL;
            if (end != p) {
                p = end;
                low = 0;
                continue;
            }
        }
        p += range;
        p += *p == '\\';
        if (!*p)
            return NULL;
        any |= range ? low <= c && c <= (unsigned char)*p : c == (unsigned char)*p;
        low = range ? 0 : (unsigned char)*p;
        p++;
    }
    *matched = any != negated;
    return p + 1;
}

/* One element of a part against one character; NULL when it does not match. */
static const char *match_one(const char *p, unsigned char c)
{
    bool matched = false;

    if (*p == '[') {
        p = match_set(p + 1, c, &matched);
        return p && matched ? p : NULL;
    }
    if (*p == '?')
        return p + 1;
    p += *p == '\\';
    return *p && (unsigned char)*p == c ? p + 1 : NULL;
}

/* A part without slashes: going back to the last star only is enough. */
static bool match_part(const char *p, const char *text, size_t len)
{
    const char *star = NULL, *end = text + len, *from = text;

    while (text < end) {
        const char *next;

        if (*p == '*') {
            star = ++p;
            from = text;
            continue;
        }
        next = match_one(p, (unsigned char)*text);
        if (next) {
            p = next;
            text++;
        } else if (star) {
            p = star;
            text = ++from;
        } else {
            return false;
        }
    }
    while (*p == '*')
        p++;
    return !*p;
}

/* Two stars or more, alone between slashes: any number of folders. */
static bool is_any(const char *part)
{
    return part[0] == '*' && part[1] == '*' && part[strspn(part, "*")] == '\0';
}

/* Parts against the parts of the path; again the last `**` is the only one to go back to. */
static bool match_path(const struct pattern *pat, const char *path)
{
    size_t at = 0, star = SIZE_MAX;
    const char *from = NULL;

    if (strncmp(path, pat->literal, pat->literal_len) != 0)
        return false;
    path += pat->literal_len;
    while (path) {
        const char *slash = strchr(path, '/');
        size_t len = slash ? (size_t)(slash - path) : strlen(path);

        if (at < pat->part_count && is_any(pat->parts[at])) {
            if (at + 1 == pat->part_count)
                return true; /* what is below, and there is something */
            star = ++at;
            from = path;
            continue;
        }
        if (at < pat->part_count && match_part(pat->parts[at], path, len)) {
            at++;
            path = slash ? slash + 1 : NULL;
            continue;
        }
        if (star == SIZE_MAX || !(from = strchr(from, '/')))
            return false;
        at = star;
        path = ++from;
    }
    return at == pat->part_count;
}

/* Spaces at the end do not count, unless the first of them is escaped. */
static size_t trimmed(const char *s, size_t len)
{
    size_t keep = 0;

    for (size_t i = 0; i < len; i++) {
        if (s[i] == '\\' && i + 1 < len)
            keep = ++i + 1;
        else if (s[i] != ' ')
            keep = i + 1;
    }
    return keep;
}

/* The end of a set at p (behind its `[`), so that a slash within is not taken for a separator. */
static char *set_end(char *p)
{
    bool matched;
    const char *end = match_set(p, 'x', &matched);

    return end ? p + (end - p) : p;
}

static bool split(struct pattern *pat, char *p)
{
    pat->parts = calloc(strlen(p) + 1, sizeof(*pat->parts));
    if (!pat->parts)
        return false;
    pat->parts[pat->part_count++] = p;
    while (*p) {
        if (*p == '[') {
            p = set_end(p + 1);
        } else if (*p == '/' || (p[0] == '\\' && p[1] == '/')) {
            char *next = p + (*p == '/' ? 1 : 2);

            *p = '\0';
            pat->parts[pat->part_count++] = p = next;
        } else {
            p += p[0] == '\\' && p[1] ? 2 : 1;
        }
    }
    return true;
}

/* False: no memory.  An empty line or a comment leaves part_count 0: it matches nothing. */
static bool compile(struct pattern *pat, struct agent_span s)
{
    char *p;
    size_t len;

    if (s.len == 0 || s.data[0] == '#')
        return true;
    pat->text = agent_span_dup(s);
    if (!pat->text)
        return false;
    p = pat->text;
    if (*p == '!') {
        pat->negated = true;
        p++;
    }
    len = trimmed(p, strlen(p));
    p[len] = '\0';
    if (len && p[len - 1] == '/') {
        pat->folders_only = true;
        p[--len] = '\0';
    }
    if (!len)
        return true;
    pat->anywhere = !strchr(p, '/');
    if (*p == '/')
        p++;
    /* git compares what comes before the first wildcard alone, so that the `**` of `lib**` has
     * nothing before it and crosses slashes, whatever its manual says. */
    pat->literal = p;
    pat->literal_len = pat->anywhere ? 0 : strcspn(p, "*?[\\");
    return split(pat, p + pat->literal_len);
}

struct agent_ignore *agent_ignore_new(const struct agent_list *patterns)
{
    struct agent_ignore *ig = calloc(1, sizeof(*ig) + patterns->count * sizeof(ig->patterns[0]));

    if (!ig)
        return NULL;
    for (size_t i = 0; i < patterns->count; i++) {
        ig->count = i + 1;
        if (!compile(&ig->patterns[i], patterns->items[i])) {
            agent_ignore_free(ig);
            return NULL;
        }
    }
    return ig;
}

void agent_ignore_free(struct agent_ignore *ig)
{
    if (!ig)
        return;
    for (size_t i = 0; i < ig->count; i++) {
        free(ig->patterns[i].text);
        free(ig->patterns[i].parts);
    }
    free(ig);
}

bool agent_ignore_excludes(const struct agent_ignore *ig, const char *path, bool folder)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;

    for (size_t i = ig->count; i-- > 0;) {
        const struct pattern *pat = &ig->patterns[i];

        if (!pat->part_count || (pat->folders_only && !folder))
            continue;
        if (pat->anywhere ? match_part(pat->parts[0], name, strlen(name)) : match_path(pat, path))
            return !pat->negated;
    }
    return false;
}
