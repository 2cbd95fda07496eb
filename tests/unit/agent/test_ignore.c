/* Exclude patterns; `git check-ignore` is the oracle (case 23). */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/ignore.h"

enum { PATTERNS_MAX = 8, PATHS = 400, ROUNDS = 200 };

static char dir[64];

static struct agent_ignore *compile(const char *const *patterns, size_t n)
{
    struct agent_span spans[PATTERNS_MAX];
    struct agent_list list = { spans, n };
    struct agent_ignore *ig;

    for (size_t i = 0; i < n; i++)
        spans[i] = (struct agent_span){ patterns[i], strlen(patterns[i]) };
    ig = agent_ignore_new(&list);
    assert_non_null(ig);
    return ig;
}

/* As the walker asks: from the top, and not below an excluded folder. */
static bool excluded(const struct agent_ignore *ig, const char *path, bool folder)
{
    char part[1024];

    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        (void)snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
        if (agent_ignore_excludes(ig, part, true))
            return true;
    }
    return agent_ignore_excludes(ig, path, folder);
}

static void check(const char *pattern, const char *path, bool folder, bool want)
{
    struct agent_ignore *ig = compile(&pattern, 1);

    if (excluded(ig, path, folder) != want)
        fail_msg("%s on %s", pattern, path);
    agent_ignore_free(ig);
}

static void case_23_only_matches_are_left_out(void **state)
{
    static const char *const patterns[] = {
        ".cache/foo/*/node_modules", "**/dist", "*.log", "!keep.log", "build/tmp", "/only-root"
    };
    static const struct {
        const char *path;
        bool folder, want;
    } cases[] = {
        { ".cache", true, false },
        { ".cache/foo", true, false },
        { ".cache/foo/a", true, false },
        { ".cache/foo/a/node_modules", true, true },
        { ".cache/foo/a/b/node_modules", true, false },
        { "dist", true, true },
        { "a/b/dist", false, true },
        { "distant", false, false },
        { "x.log", false, true },
        { "a/x.log", false, true },
        { "keep.log", false, false },
        { "a/keep.log", false, false },
        { "build", true, false },
        { "build/tmp", true, true },
        { "a/build/tmp", true, false },
        { "only-root", false, true },
        { "a/only-root", false, false },
    };
    struct agent_ignore *ig = compile(patterns, 6);

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (excluded(ig, cases[i].path, cases[i].folder) != cases[i].want)
            fail_msg("%s", cases[i].path);
    }
    agent_ignore_free(ig);
}

static void the_details_of_the_format(void **state)
{
    (void)state;
    check("#x", "#x", false, false);
    check("\\#x", "#x", false, true);
    check("\\!x", "!x", false, true);
    check("x ", "x", false, true);
    check("x\\ ", "x ", false, true);
    check("x/", "x", false, false);
    check("x/", "a/x", true, true);
    check("a/**", "a", true, false);
    check("a/**", "a/b/c", false, true);
    check("a/**/b", "a/b", false, true);
    check("a/**/b", "a/x/y/b", false, true);
    check("**", "a/b", false, true);
    check("a?**b/c", "ax/b/c", false, false);
    check("a**/c", "ab/b/c", false, true);
    check("[a-c]x", "bx", false, true);
    check("[!a-c]x", "bx", false, false);
    check("[]]x", "]x", false, true);
    check("[[:digit:]]", "7", false, true);
    check("[", "[", false, false);
    check("x\\", "x\\", false, false);
    check("", "x", false, false);
    check("/", "x", true, false);
    check("*", "a/b", false, true);
}

static void a_hostile_pattern_costs_little(void **state)
{
    char pattern[1024] = "", path[4000];
    clock_t began = clock();

    (void)state;
    for (int i = 0; i < 250; i++)
        memcpy(pattern + i * 4, "*a**", 5);
    memcpy(pattern + 1000, "b", 2);
    memset(path, 'a', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    check(pattern, path, false, false);
    for (int i = 0; i < 250; i++)
        memcpy(pattern + i * 4, "**/a", 5);
    memcpy(pattern + 1000, "b", 2);
    for (size_t i = 1; i < sizeof(path) - 1; i += 2)
        path[i] = '/';
    check(pattern, path, false, false);
    /* Backtracking would take for ever; a sanitizer takes some seconds. */
    assert_true(clock() - began < 30 * CLOCKS_PER_SEC);
}

/* The oracle ------------------------------------------------------------------------------------
 */

static int run_git(const char *const *argv, const char *in, const char *out)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        int i = open(in, O_RDONLY), o = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600);

        dup2(i, 0);
        dup2(o, 1);
        if (chdir(dir) == 0)
            execvp(argv[0], (char *const *)(uintptr_t)argv);
        _exit(99);
    }
    assert_true(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static const char *word(unsigned *seed, const char *const *words, size_t n)
{
    return words[(size_t)rand_r(seed) % n];
}

static void random_pattern(unsigned *seed, char *out, size_t size)
{
    static const char *const words[] = { "a",  "b",  "ab",  "*",     "**",   "?",          "a*",
                                         "*b", "/",  "/",   "/**/",  "[ab]", "[!a]",       "\\a",
                                         "x",  ".c", "***", "[a-b]", "b/",   "[[:alpha:]]" };
    int parts = 1 + rand_r(seed) % 5;

    out[0] = '\0';
    if (rand_r(seed) % 5 == 0)
        strncat(out, "!", size - 1);
    if (rand_r(seed) % 4 == 0)
        strncat(out, "/", size - strlen(out) - 1);
    for (int i = 0; i < parts; i++)
        strncat(out, word(seed, words, 20), size - strlen(out) - 1);
    if (rand_r(seed) % 6 == 0)
        strncat(out, "/", size - strlen(out) - 1);
}

static void random_path(unsigned *seed, char *out, size_t size)
{
    static const char *const words[] = { "a", "b", "ab", "ba", "abb", "x", ".c", "axb", "aab" };
    int parts = 1 + rand_r(seed) % 4;

    out[0] = '\0';
    for (int i = 0; i < parts; i++) {
        if (i)
            strncat(out, "/", size - strlen(out) - 1);
        strncat(out, word(seed, words, 9), size - strlen(out) - 1);
    }
}

static void spool(const char *name, const char *const *lines, size_t n, char end)
{
    char path[128];
    FILE *f;

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, "w");
    assert_non_null(f);
    for (size_t i = 0; i < n; i++)
        assert_true(fprintf(f, "%s%c", lines[i], end) > 0);
    assert_int_equal(fclose(f), 0);
}

/* git's answer for each path: excluded or not.  Paths that are not there count as files. */
static void ask_git(const char *const *paths, size_t n, bool *out)
{
    static const char *const argv[] = { "git", "check-ignore", "--no-index",     "--stdin",
                                        "-z",  "--verbose",    "--non-matching", NULL };
    char in[128], answers[128], source[256], line[32], pattern[256], path[1024];
    FILE *f;

    spool("paths", paths, n, '\0');
    (void)snprintf(in, sizeof(in), "%s/paths", dir);
    (void)snprintf(answers, sizeof(answers), "%s/answers", dir);
    assert_in_range(run_git(argv, in, answers), 0, 1);
    f = fopen(answers, "r");
    assert_non_null(f);
    for (size_t i = 0; i < n; i++) {
        char *fields[4] = { source, line, pattern, path };
        size_t sizes[4] = { sizeof(source), sizeof(line), sizeof(pattern), sizeof(path) };

        for (int k = 0; k < 4; k++) {
            size_t len = 0;
            int c;

            while ((c = fgetc(f)) != 0 && c != EOF && len + 1 < sizes[k])
                fields[k][len++] = (char)c;
            fields[k][len] = '\0';
        }
        assert_string_equal(path, paths[i]);
        out[i] = pattern[0] && pattern[0] != '!';
    }
    (void)fclose(f);
}

static void git_agrees(void **state)
{
    static char text[PATHS][64], rules[PATTERNS_MAX][64];
    const char *paths[PATHS], *patterns[PATTERNS_MAX];
    bool want[PATHS];
    unsigned seed = 20261129;

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        size_t n = 1 + (size_t)rand_r(&seed) % PATTERNS_MAX;
        struct agent_ignore *ig;

        for (size_t i = 0; i < n; i++) {
            random_pattern(&seed, rules[i], sizeof(rules[i]));
            patterns[i] = rules[i];
        }
        for (size_t i = 0; i < PATHS; i++) {
            random_path(&seed, text[i], sizeof(text[i]));
            paths[i] = text[i];
        }
        spool(".gitignore", patterns, n, '\n');
        ask_git(paths, PATHS, want);
        ig = compile(patterns, n);
        for (size_t i = 0; i < PATHS; i++) {
            if (excluded(ig, paths[i], false) == want[i])
                continue;
            for (size_t k = 0; k < n; k++)
                print_error("pattern %zu: %s\n", k, patterns[k]);
            fail_msg("round %d: %s: git says %d", round, paths[i], want[i]);
        }
        agent_ignore_free(ig);
    }
}

static int setup(void **state)
{
    static const char *const init[] = { "git", "init", "-q", ".", NULL };

    (void)state;
    (void)snprintf(dir, sizeof(dir), "/tmp/ignore-XXXXXX");
    return mkdtemp(dir) && run_git(init, "/dev/null", "/dev/null") == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    static const char *const wipe[] = { "rm", "-rf", dir, NULL };

    (void)state;
    return run_git(wipe, "/dev/null", "/dev/null");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_23_only_matches_are_left_out),
        cmocka_unit_test(the_details_of_the_format),
        cmocka_unit_test(a_hostile_pattern_costs_little),
        cmocka_unit_test(git_agrees),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
