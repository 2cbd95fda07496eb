#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "ctl/ctl.h"

enum { ENV_NAME_MAX = 80 };

static void add_value(struct ctl *c, size_t i, const char *text)
{
    struct ctl_value *v = &c->values[i];

    if (v->texts == NULL)
        v->texts = arena_zalloc(c->arena, sizeof(*v->texts) * CTL_REPEAT_MAX);
    v->texts[v->count++] = text;
}

/* --- global options: allowed anywhere before -- ------------------------------ */

static const char *const GLOBAL[] = { "--socket", "--url", "--token-file", "--state" };

static bool read_global(struct ctl *c, const char *name, const char *value)
{
    if (strcmp(name, GLOBAL[0]) == 0)
        c->socket = value;
    else if (strcmp(name, GLOBAL[1]) == 0)
        c->url = value;
    else if (strcmp(name, GLOBAL[2]) == 0)
        c->token_file = value;
    else if (strcmp(name, GLOBAL[3]) == 0)
        c->state = value;
    else
        return false;
    return true;
}

/* A verb may have an option of the same name as a global one (region create --socket): after the
 * noun it is the verb's. */
static bool is_global(const struct ctl_verb *v, const char *name)
{
    for (size_t i = 0; v != NULL && v->options[i].name != NULL; i++)
        if (strcmp(v->options[i].name, name) == 0)
            return false;
    for (size_t i = 0; i < COUNT_OF(GLOBAL); i++)
        if (strcmp(GLOBAL[i], name) == 0)
            return true;
    return false;
}

static const struct ctl_verb *find_verb(const char *noun, const char *verb)
{
    const struct ctl_verb *v;

    for (size_t i = 0; (v = ctl_verbs(i)) != NULL; i++) {
        if (strcmp(v->noun, noun) != 0)
            continue;
        if (v->verb == NULL || (verb != NULL && strcmp(v->verb, verb) == 0))
            return v;
    }
    return NULL;
}

static bool known_noun(const char *noun)
{
    const char *n;

    for (size_t i = 0; (n = ctl_nouns(i)) != NULL; i++)
        if (strcmp(n, noun) == 0)
            return true;
    return false;
}

struct words {
    int count;
    char **at;
    int next;
};

static char *take(struct words *w)
{
    return w->next < w->count ? w->at[w->next++] : NULL;
}

/* "--name=value" is cut in two; "--name value" takes the next word. */
static enum ctl_exit option_value(struct words *w, char *word, char *equals, const char **out,
                                  struct sbx_err *err)
{
    if (equals != NULL) {
        *out = equals + 1;
        return CTL_DONE;
    }
    *out = take(w);
    return *out != NULL ? CTL_DONE : ctl_fail(err, CTL_USAGE, "%s needs a value.", word);
}

static enum ctl_exit check_value(const struct ctl_option *o, const char *text, struct sbx_err *err)
{
    int64_t n;

    if (o->type == CTL_INT && !str_parse_int(text, INT64_MIN, INT64_MAX, &n))
        return ctl_fail(err, CTL_USAGE, "%s needs a number.", o->name);
    if (o->type == CTL_SWITCH && strcmp(text, "on") != 0 && strcmp(text, "off") != 0)
        return ctl_fail(err, CTL_USAGE, "%s is on or off.", o->name);
    if (o->type == CTL_PAIR && (strchr(text, '=') == NULL || text[0] == '='))
        return ctl_fail(err, CTL_USAGE, "%s needs NAME=VALUE.", o->name);
    if (!utf8_valid(text, strlen(text)))
        return ctl_fail(err, CTL_USAGE, "The value of %s is not valid UTF-8.", o->name);
    return CTL_DONE;
}

static enum ctl_exit put_value(struct ctl *c, size_t i, const char *text, struct sbx_err *err)
{
    const struct ctl_option *o = &c->verb->options[i];
    enum ctl_exit rc = check_value(o, text, err);

    if (rc != CTL_DONE)
        return rc;
    if (c->values[i].count > 0 && !(o->flags & CTL_REPEAT))
        return ctl_fail(err, CTL_USAGE, "%s was given twice.", o->name);
    if (c->values[i].count == CTL_REPEAT_MAX)
        return ctl_fail(err, CTL_USAGE, "%s was given too often.", o->name);
    add_value(c, i, text);
    return CTL_DONE;
}

static enum ctl_exit read_option(struct ctl *c, struct words *w, char *word, struct sbx_err *err)
{
    char *equals = strchr(word, '=');
    const char *name =
        equals != NULL ? arena_strndup(c->arena, word, (size_t)(equals - word)) : word;
    const char *value = NULL;
    enum ctl_exit rc;

    if (is_global(c->verb, name)) {
        rc = option_value(w, word, equals, &value, err);
        if (rc == CTL_DONE)
            (void)read_global(c, name, value);
        return rc;
    }
    for (size_t i = 0; c->verb != NULL && c->verb->options[i].name != NULL; i++) {
        const struct ctl_option *o = &c->verb->options[i];

        if ((o->flags & CTL_PLACE) != 0 || strcmp(o->name, name) != 0)
            continue;
        if (o->type == CTL_FLAG) {
            if (equals != NULL)
                return ctl_fail(err, CTL_USAGE, "%s takes no value.", name);
            add_value(c, i, "");
            return CTL_DONE;
        }
        rc = option_value(w, word, equals, &value, err);
        return rc == CTL_DONE ? put_value(c, i, value, err) : rc;
    }
    return ctl_fail(err, CTL_USAGE, "Unknown option %s (--help lists them).", name);
}

static enum ctl_exit read_place(struct ctl *c, const char *word, struct sbx_err *err)
{
    for (size_t i = 0; c->verb->options[i].name != NULL; i++)
        if ((c->verb->options[i].flags & CTL_PLACE) != 0 && c->verb->options[i].type != CTL_ARGV &&
            c->values[i].count == 0)
            return put_value(c, i, word, err);
    return ctl_fail(err, CTL_USAGE, "%s is one argument too many.", word);
}

/* What follows -- goes to the verb's CTL_ARGV option, byte for byte. */
static enum ctl_exit read_argv(struct ctl *c, struct words *w, struct sbx_err *err)
{
    for (size_t i = 0; c->verb->options[i].name != NULL; i++) {
        size_t count = (size_t)(w->count - w->next);

        if (c->verb->options[i].type != CTL_ARGV)
            continue;
        c->values[i].texts = arena_zalloc(c->arena, sizeof(char *) * (count + 1));
        c->values[i].count = count;
        for (size_t n = 0; n < count; n++) {
            c->values[i].texts[n] = take(w);
            if (!utf8_valid(c->values[i].texts[n], strlen(c->values[i].texts[n])))
                return ctl_fail(err, CTL_USAGE, "An argument after %s is not valid UTF-8.", "--");
        }
        return CTL_DONE;
    }
    return ctl_fail(err, CTL_USAGE, "This verb takes nothing after %s.", "--");
}

static enum ctl_exit pick_verb(struct ctl *c, struct words *w, const char *noun,
                               struct sbx_err *err)
{
    const char *verb = w->next < w->count && w->at[w->next][0] != '-' ? w->at[w->next] : NULL;

    if (!known_noun(noun))
        return ctl_fail(err, CTL_USAGE, "Unknown command %s (--help lists them).", noun);
    c->verb = find_verb(noun, verb);
    if (c->verb == NULL && verb == NULL)
        return ctl_fail(err, CTL_USAGE, "%s needs a verb (--help lists them).", noun);
    if (c->verb == NULL) {
        return ctl_fail(err, CTL_USAGE, "%s has no verb %s (--help lists them).", noun, verb);
    }
    if (c->verb->verb != NULL)
        (void)take(w);
    return CTL_DONE;
}

/* --account falls back to SANDBOXCTL_ACCOUNT and then to the standalone state. */
static void fill_defaults(struct ctl *c)
{
    for (size_t i = 0; c->verb->options[i].name != NULL; i++) {
        const struct ctl_option *o = &c->verb->options[i];
        char name[ENV_NAME_MAX] = "SANDBOXCTL_";
        const char *text;
        size_t n = strlen(name);

        if (!(o->flags & CTL_DEFAULTED) || c->values[i].count > 0)
            continue;
        for (const char *p = o->name + 2; *p != 0 && n < sizeof(name) - 1; p++)
            name[n++] = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
        text = getenv(name);
        if ((text == NULL || text[0] == 0) && c->verb->side != CTL_LOCAL && o->field != NULL)
            text = json_get_str(ctl_client(c), o->field, NULL);
        if (text != NULL && text[0] != 0)
            add_value(c, i, arena_strdup(c->arena, text));
    }
}

static enum ctl_exit check_required(struct ctl *c, struct sbx_err *err)
{
    for (size_t i = 0; c->verb->options[i].name != NULL; i++)
        if ((c->verb->options[i].flags & CTL_REQUIRED) != 0 && c->values[i].count == 0)
            return ctl_fail(err, CTL_USAGE, "%s is missing.", c->verb->options[i].name);
    return CTL_DONE;
}

enum ctl_exit ctl_args_parse(struct ctl *c, int argc, char **argv, bool *help, struct sbx_err *err)
{
    struct words w = { .count = argc, .at = argv, .next = 1 };
    enum ctl_exit rc = CTL_DONE;
    char *word;

    *help = false;
    while (rc == CTL_DONE && (word = take(&w)) != NULL) {
        if (strcmp(word, "--json") == 0)
            c->json = true;
        else if (strcmp(word, "--watch") == 0)
            c->watch = true;
        else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
            *help = true;
        else if (strcmp(word, "--") == 0)
            rc = c->verb != NULL ? read_argv(c, &w, err)
                                 : ctl_fail(err, CTL_USAGE, "%s must follow a verb.", "--");
        else if (word[0] == '-' && word[1] != 0)
            rc = read_option(c, &w, word, err);
        else if (c->verb == NULL)
            rc = *help ? CTL_DONE : pick_verb(c, &w, word, err);
        else
            rc = read_place(c, word, err);
    }
    if (rc != CTL_DONE || *help)
        return rc;
    if (c->verb == NULL)
        return ctl_fail(err, CTL_USAGE, "What is to be done? (--help lists the commands)");
    if (c->watch && (c->verb->method == NULL || strcmp(c->verb->method, "GET") != 0))
        return ctl_fail(err, CTL_USAGE, "%s goes with verbs that only read.", "--watch");
    fill_defaults(c);
    return check_required(c, err);
}

/* --- reading ------------------------------------------------------------------ */

const struct ctl_value *ctl_args(const struct ctl *c, const char *name)
{
    for (size_t i = 0; c->verb->options[i].name != NULL; i++)
        if (strcmp(c->verb->options[i].name, name) == 0)
            return &c->values[i];
    assert(!"an option that is not in the verb's row");
    return NULL;
}

const char *ctl_arg(const struct ctl *c, const char *name)
{
    const struct ctl_value *v = ctl_args(c, name);

    return v->count > 0 ? v->texts[0] : NULL;
}

bool ctl_flag(const struct ctl *c, const char *name)
{
    return ctl_args(c, name)->count > 0;
}

static json_t *list_of(const char *text)
{
    json_t *list = json_array();

    while (*text != 0) {
        size_t len = strcspn(text, ",");

        if (len > 0)
            (void)json_array_append_new(list, json_stringn(text, len));
        text += len + (text[len] == ',' ? 1 : 0);
    }
    return list;
}

static enum ctl_exit file_of(struct ctl *c, const struct ctl_option *o, const char *path,
                             json_t **out, struct sbx_err *err)
{
    SCOPED_SECRET struct secret *s = NULL;

    (void)c;
    if (secret_read_file(path, o->name, CTL_FILE_MAX, &s, err) != SBX_OK)
        return CTL_USAGE;
    *out = json_string(secret_reveal(s));
    return *out != NULL ? CTL_DONE
                        : ctl_fail(err, CTL_USAGE, "The file of %s is not text.", o->name);
}

static json_t *array_of(const struct ctl_value *v)
{
    json_t *list = json_array();

    for (size_t i = 0; i < v->count; i++)
        (void)json_array_append_new(list, json_string(v->texts[i]));
    return list;
}

static json_t *pairs_of(const struct ctl_value *v)
{
    json_t *object = json_object();

    for (size_t i = 0; i < v->count; i++) {
        const char *equals = strchr(v->texts[i], '=');
        SCOPED_FREE char *name = mem_printf("%.*s", (int)(equals - v->texts[i]), v->texts[i]);

        (void)json_object_set_new(object, name, json_string(equals + 1));
    }
    return object;
}

static enum ctl_exit json_of(struct ctl *c, size_t i, json_t **out, struct sbx_err *err)
{
    const struct ctl_option *o = &c->verb->options[i];
    const struct ctl_value *v = &c->values[i];
    int64_t n = 0;

    switch (o->type) {
    case CTL_INT:
        (void)str_parse_int(v->texts[0], INT64_MIN, INT64_MAX, &n); /* checked when it was read */
        *out = json_integer(n);
        return CTL_DONE;
    case CTL_SWITCH:
        *out = json_boolean(strcmp(v->texts[0], "on") == 0);
        return CTL_DONE;
    case CTL_FLAG:
        *out = json_true();
        return CTL_DONE;
    case CTL_LIST:
        *out = list_of(v->texts[0]);
        return CTL_DONE;
    case CTL_FILE:
        return file_of(c, o, v->texts[0], out, err);
    case CTL_PAIR:
        *out = pairs_of(v);
        return CTL_DONE;
    case CTL_ARGV:
        *out = array_of(v);
        return CTL_DONE;
    case CTL_TEXT:
        *out = (o->flags & CTL_REPEAT) ? array_of(v) : json_string(v->texts[0]);
        return CTL_DONE;
    }
    assert(!"an option without type");
    return CTL_USAGE;
}

/* Sets "a.b" as {"a": {"b": value}}; takes value. */
static void set_field(json_t *body, const char *field, json_t *value)
{
    const char *dot = strchr(field, '.');
    SCOPED_FREE char *outer = NULL;
    json_t *inner;

    if (dot == NULL) {
        (void)json_object_set_new(body, field, value);
        return;
    }
    outer = mem_printf("%.*s", (int)(dot - field), field);
    inner = json_object_get(body, outer);
    if (inner == NULL) {
        inner = json_object();
        (void)json_object_set_new(body, outer, inner);
    }
    set_field(inner, dot + 1, value);
}

enum ctl_exit ctl_args_body(struct ctl *c, json_t **out, struct sbx_err *err)
{
    SCOPED_JSON json_t *body = json_object();

    for (size_t i = 0; c->verb->options[i].name != NULL; i++) {
        json_t *value = NULL;
        enum ctl_exit rc;

        if (c->verb->options[i].field == NULL || c->values[i].texts == NULL)
            continue;
        rc = json_of(c, i, &value, err);
        if (rc != CTL_DONE)
            return rc;
        set_field(body, c->verb->options[i].field, value);
    }
    *out = STEAL(body);
    return CTL_DONE;
}
