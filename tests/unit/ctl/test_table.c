/* The grammar: every row is complete, and the command line is read as cli.md says. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ctl/ctl.h"

static void check_option(const struct ctl_verb *v, const struct ctl_option *o)
{
    assert_true(o->type >= CTL_TEXT && o->type <= CTL_ARGV);
    assert_non_null(o->help);
    if (o->flags & CTL_PLACE)
        assert_true(o->type == CTL_ARGV || o->name[0] != '-');
    else
        assert_memory_equal(o->name, "--", 2);
    if (o->type != CTL_FLAG && !(o->flags & CTL_PLACE))
        assert_non_null(o->value);
    if (o->flags & CTL_DEFAULTED)
        assert_non_null(o->field);
    if (o->field == NULL)
        assert_non_null(v->run); /* else nobody would read it */
    for (const struct ctl_option *other = v->options; other != o; other++)
        assert_string_not_equal(other->name, o->name);
}

static void every_row_is_complete(void **state)
{
    const struct ctl_verb *v, *w;

    (void)state;
    for (size_t i = 0; (v = ctl_verbs(i)) != NULL; i++) {
        assert_int_not_equal(v->side, CTL_SIDE_UNSET);
        assert_non_null(v->help);
        assert_true(v->run != NULL || (v->method != NULL && v->path != NULL));
        if (v->columns != NULL)
            assert_non_null(v->answer);
        for (const struct ctl_option *o = v->options; o->name != NULL; o++)
            check_option(v, o);
        for (size_t k = 0; k < i; k++) {
            w = ctl_verbs(k);
            if (strcmp(w->noun, v->noun) == 0) {
                assert_non_null(v->verb); /* a noun alone has no verbs beside it */
                assert_non_null(w->verb);
                assert_string_not_equal(w->verb, v->verb);
            }
        }
    }
}

static void nouns_come_once_and_in_order(void **state)
{
    size_t n = 0;

    (void)state;
    assert_string_equal(ctl_nouns(0), "account");
    for (; ctl_nouns(n) != NULL; n++)
        for (size_t k = 0; k < n; k++)
            assert_string_not_equal(ctl_nouns(n), ctl_nouns(k));
    assert_true(n > 15);
}

struct parse {
    const char *words; /* separated by | */
    enum ctl_exit want;
    const char *body; /* as compact JSON with sorted keys, or part of the message */
};

static const struct parse CASES[] = {
    { "account|create|--name|a b", CTL_DONE, "{\"name\":\"a b\"}" },
    { "account|create|--name=a=b", CTL_DONE, "{\"name\":\"a=b\"}" },
    { "--json|account|list|--limit|5", CTL_DONE, "{\"limit\":5}" },
    { "account|list|--limit|five", CTL_USAGE, "needs a number" },
    { "account|list|--limit", CTL_USAGE, "needs a value" },
    { "account|create", CTL_USAGE, "--name is missing" },
    { "account|create|--name|a|--name|b", CTL_USAGE, "twice" },
    { "account|create|--nmae|a", CTL_USAGE, "Unknown option" },
    { "account|create|extra|--name|a", CTL_USAGE, "too many" },
    { "account|entitle|A|--sandboxes|on", CTL_DONE, "{\"accountId\":\"A\",\"sandboxes\":true}" },
    { "account|entitle|A|--sandboxes|maybe", CTL_USAGE, "on or off" },
    { "member|add|--account|A|--user|U|--roles|admin,technical", CTL_DONE,
      "{\"accountId\":\"A\",\"roles\":[\"admin\",\"technical\"],\"userId\":\"U\"}" },
    { "nothing", CTL_USAGE, "Unknown command" },
    { "account", CTL_USAGE, "needs a verb" },
    { "account|nothing", CTL_USAGE, "no verb" },
    { "", CTL_USAGE, "What is to be done" },
    { "region|create|--name|r|--socket|/s", CTL_DONE, "{\"name\":\"r\",\"socket\":\"/s\"}" },
    { "exec|S|--account|A|--env|X=1|--env|Y=a=b|--env|Z=|--|sh|-c|--json", CTL_DONE,
      "{\"accountId\":\"A\",\"command\":[\"sh\",\"-c\",\"--json\"],"
      "\"envVars\":{\"X\":\"1\",\"Y\":\"a=b\",\"Z\":\"\"},\"sandboxId\":\"S\"}" },
    { "exec|S|--account|A|--env|X|--|true", CTL_USAGE, "NAME=VALUE" },
    { "exec|S|--account|A|--timeout|5|--|true|", CTL_DONE,
      "{\"accountId\":\"A\",\"command\":[\"true\",\"\"],\"sandboxId\":\"S\",\"timeoutSeconds\":"
      "5}" },
    { "exec|S|--account|A", CTL_USAGE, "-- is missing" },
    { "exec|S|--account|A|--|\xff", CTL_USAGE, "UTF-8" },
    { "account|list|--|x", CTL_USAGE, "nothing after" },
    { "template|revision|T|--account|A|--image|i|--allow-domain|a|--allow-domain|b|--warm|2",
      CTL_DONE,
      "{\"accountId\":\"A\",\"imageDigest\":\"i\",\"networkControl\":{\"domainAllowlist\":[\"a\","
      "\"b\"]},"
      "\"templateId\":\"T\",\"warmPool\":{\"desired\":2}}" },
    { "sandbox|create|--watch", CTL_USAGE, "only read" },
    { "volume|remove|v", CTL_USAGE, "--account is missing" },
};

static int split(char *text, char **argv)
{
    int n = 0;

    argv[n++] = text; /* the program's name: not looked at */
    if (*text == 0)
        return n;
    for (char *at = text;; at++) {
        argv[n++] = at;
        at = at + strcspn(at, "|");
        if (*at == 0)
            return n;
        *at = 0;
    }
}

static void command_lines_are_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        SCOPED_ARENA struct arena *a = arena_new();
        struct ctl c = { .arena = a };
        struct sbx_err err = { .code = SBX_OK };
        SCOPED_JSON json_t *body = NULL;
        char *argv[64];
        bool help;
        int argc = split(arena_strdup(a, CASES[i].words), argv);
        enum ctl_exit rc = ctl_args_parse(&c, argc, argv, &help, &err);

        if (rc == CTL_DONE)
            rc = ctl_args_body(&c, &body, &err);
        if (rc != CASES[i].want)
            fail_msg("%s: gave %d: %s", CASES[i].words, (int)rc, err.msg);
        if (rc == CTL_DONE) {
            char *text = json_dumps(body, JSON_COMPACT | JSON_SORT_KEYS);

            assert_string_equal(text, CASES[i].body);
            free(text);
        } else if (strstr(err.msg, CASES[i].body) == NULL) {
            fail_msg("%s: said: %s", CASES[i].words, err.msg);
        }
        json_decref(c.client);
    }
}

/* --account falls back to the environment, and to nothing else when there is no state. */
static void defaults_come_from_the_environment(void **state)
{
    char *argv[] = { (char[]){ "ctl" }, (char[]){ "sandbox" }, (char[]){ "list" }, NULL };
    SCOPED_ARENA struct arena *a = arena_new();
    struct ctl c = { .arena = a };
    struct sbx_err err;
    bool help;

    (void)state;
    assert_int_equal(setenv("SANDBOXCTL_ACCOUNT", "from-env", 1), 0);
    assert_int_equal(ctl_args_parse(&c, 3, argv, &help, &err), CTL_DONE);
    assert_string_equal(ctl_arg(&c, "--account"), "from-env");
    assert_int_equal(unsetenv("SANDBOXCTL_ACCOUNT"), 0);
    json_decref(c.client);
}

static int setup(void **state)
{
    (void)state;
    return setenv("SANDBOXCTL_STATE", "/nonexistent", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_complete),
        cmocka_unit_test(nouns_come_once_and_in_order),
        cmocka_unit_test(command_lines_are_read),
        cmocka_unit_test(defaults_come_from_the_environment),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
