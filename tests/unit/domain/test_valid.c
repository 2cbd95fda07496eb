#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "domain/access.h"
#include "domain/resources.h"
#include "domain/slug.h"
#include "domain/valid.h"
#include "sbx/attr.h"
#include "sbx/limits.h"

#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void good(valid_text_fn *fn, const char *text)
{
    struct sbx_err err = { 0 };

    if (fn("f", text, &err) != SBX_OK)
        fail_msg("%.80s: %s", text, err.msg);
}

static void bad(valid_text_fn *fn, const char *text)
{
    struct sbx_err err = { 0 };

    if (fn("f", text, &err) != SBX_E_INVALID)
        fail_msg("%.80s was accepted", text);
    assert_string_equal(err.field, "f");
    assert_true(err.msg[0] != '\0');
}

static char *repeat(const char *s, size_t n)
{
    char *out = calloc(n + 1, strlen(s));

    assert_non_null(out);
    for (size_t i = 0; i < n; i++)
        memcpy(out + i * strlen(s), s, strlen(s));
    return out;
}

static void lengths(valid_text_fn *fn, const char *unit, size_t max)
{
    char *most = repeat(unit, max), *more = repeat(unit, max + 1);

    good(fn, most);
    bad(fn, more);
    free(most);
    free(more);
}

static void names_and_keys(void **state)
{
    (void)state;
    good(valid_name, "python repl");
    bad(valid_name, "");
    bad(valid_name, " \t ");
    bad(valid_name, "a\nb");
    lengths(valid_name, "\xc3\xa9", 120); /* characters, not bytes */
    good(valid_description, "");
    lengths(valid_description, "\xe2\x98\x95", 2000);
    good(valid_key, " ");
    bad(valid_key, "");
    lengths(valid_key, "\xf0\x9f\x8d\xba", 255);
    good(valid_id, "01abcdefghjkmnpqrstvwxyz01");
    bad(valid_id, "01abcdefghjkmnpqrstvwxyz0");
    bad(valid_id, "01ABCDEFGHJKMNPQRSTVWXYZ01");
    good(valid_volume_name, "sbvol-01abc");
    bad(valid_volume_name, "");
    bad(valid_volume_name, "1a");
    bad(valid_volume_name, "-a");
    bad(valid_volume_name, "a_b");
    bad(valid_volume_name, "A");
    lengths(valid_volume_name, "a", 63);
    good(valid_region_name, "us-5");
    good(valid_run_id, "a.b_c-D9");
    bad(valid_run_id, "claim");
    bad(valid_run_id, "a/b");
    bad(valid_run_id, "");
    lengths(valid_run_id, "r", 128);
    assert_true(valid_request_id("abcd.EF-_9"));
    assert_false(valid_request_id("abcdefg"));
    assert_false(valid_request_id("abcd efgh"));
}

static void images(void **state)
{
    static const char *const goods[] = {
        "debian@sha256:" HEX64,
        "docker.io/library/debian:bookworm-slim@sha256:" HEX64,
        "localhost:5000/a/b@sha256:" HEX64,
        "localhost:5000/a/b:1.2-x@sha256:" HEX64,
        "a_b/c--d@sha256:" HEX64,
    };
    static const char *const bads[] = {
        "",
        "debian",
        "debian:12",
        "@sha256:" HEX64,
        "debian@sha256:0123",
        "debian@sha256:" HEX64 "0",
        "debian@sha512:" HEX64,
        "debian@sha256:0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef",
        "Debian@sha256:" HEX64,
        "a//b@sha256:" HEX64,
        "../a@sha256:" HEX64,
        "a/../b@sha256:" HEX64,
        "-a@sha256:" HEX64,
        "/a@sha256:" HEX64,
        "a/@sha256:" HEX64,
        "a b@sha256:" HEX64,
        "a:@sha256:" HEX64,
        "a:-t@sha256:" HEX64,
        "host:port/a@sha256:" HEX64,
        "a;b@sha256:" HEX64,
        "a@b@sha256:" HEX64,
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(goods); i++)
        good(valid_image_digest, goods[i]);
    for (size_t i = 0; i < COUNT_OF(bads); i++)
        bad(valid_image_digest, bads[i]);
}

static void paths(void **state)
{
    static const char *const bads[] = {
        "",
        "workspace/x",
        "/",
        "/workspace",
        "/workspace/",
        "/workspace//x",
        "/workspace/../x",
        "/./x",
        "/proc",
        "/proc/1",
        "/sys/x",
        "/dev/shm",
        "/etc/x",
        "/usr",
        "/run",
        "/run/sandboxd",
        "/var/run/x",
        "/bin",
        "/sbin/x",
        "/lib/x",
        "/a\nb",
    };
    struct sbx_err err = { 0 };
    char out[VALID_PATH_MAX], longest[VALID_PATH_MAX];

    (void)state;
    good(valid_mount_path, "/workspace/persist");
    good(valid_mount_path, "/data");
    good(valid_mount_path, "/processes");
    good(valid_mount_path, "/library");
    for (size_t i = 0; i < COUNT_OF(bads); i++)
        bad(valid_mount_path, bads[i]);
    good(valid_working_dir, "/");
    good(valid_working_dir, "/usr/src/app");
    bad(valid_working_dir, "src");

    assert_int_equal(valid_cwd("/etc/../tmp", out, &err), SBX_OK);
    assert_string_equal(out, "/etc/../tmp"); /* absolute is taken as it is */
    assert_int_equal(valid_cwd("a/./b//c/../d/", out, &err), SBX_OK);
    assert_string_equal(out, "a/b/d");
    assert_int_equal(valid_cwd("a/..", out, &err), SBX_OK);
    assert_string_equal(out, ".");
    assert_int_equal(valid_cwd("./a/../bb/..//c", out, &err), SBX_OK);
    assert_string_equal(out, "c");
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    assert_int_equal(valid_cwd(longest, out, &err), SBX_OK);
    assert_string_equal(out, longest);
    assert_int_equal(valid_cwd("a/../../etc", out, &err), SBX_E_PATH_ESCAPE);
    assert_string_equal(err.field, "cwd");
    err.code = SBX_OK;
    assert_int_equal(valid_cwd("..", out, &err), SBX_E_PATH_ESCAPE);
    err.code = SBX_OK;
    assert_int_equal(valid_cwd("", out, &err), SBX_E_INVALID);
}

/* Case 33. */
static void environment_and_commands(void **state)
{
    static const char *const two[] = { "sh", "" };
    static const char *const empty_first[] = { "", "x" };
    const char *many[SBX_COMMAND_MAX + 1];
    char *most = repeat("x", SBX_ARG_MAX), *more = repeat("x", SBX_ARG_MAX + 1);
    const char *big[] = { "sh", more };
    struct sbx_err err = { 0 };

    (void)state;
    good(valid_env_name, "A");
    good(valid_env_name, "_a9");
    bad(valid_env_name, "");
    bad(valid_env_name, "9A");
    bad(valid_env_name, "X;touch /x");
    bad(valid_env_name, "E=F");
    bad(valid_env_name, "\xc3\xa9");
    good(valid_argument, most);
    bad(valid_argument, more);
    for (size_t i = 0; i < COUNT_OF(many); i++)
        many[i] = "x";
    assert_int_equal(valid_command("command", two, 2, &err), SBX_OK);
    assert_int_equal(valid_command("command", many, SBX_COMMAND_MAX, &err), SBX_OK);
    assert_int_equal(valid_command("command", many, SBX_COMMAND_MAX + 1, &err), SBX_E_INVALID);
    err.code = SBX_OK;
    assert_int_equal(valid_command("command", many, 0, &err), SBX_E_INVALID);
    err.code = SBX_OK;
    assert_int_equal(valid_command("command", empty_first, 2, &err), SBX_E_INVALID);
    err.code = SBX_OK;
    assert_int_equal(valid_exec_command("command", big, 2, &err), SBX_E_INVALID);
    assert_string_equal(err.field, "command");
    err.code = SBX_OK;
    assert_int_equal(valid_exec_command("command", many, SBX_COMMAND_MAX + 1, &err), SBX_OK);
    free(most);
    free(more);
}

static void numbers_pools_and_networks(void **state)
{
    static const char *const blank[] = { " ", "" };
    static const char *const one[] = { "", "203.0.113.8" };
    struct sbx_err err = { 0 };

    (void)state;
    assert_int_equal(valid_range("zClouds", 1, 1, 16, &err), SBX_OK);
    assert_int_equal(valid_range("zClouds", 16, 1, 16, &err), SBX_OK);
    assert_int_equal(valid_range("zClouds", 17, 1, 16, &err), SBX_E_INVALID);
    assert_string_equal(err.msg, "zClouds must be 1 to 16");
    err.code = SBX_OK;
    assert_int_equal(valid_warm_pool("warmPool", 2, 1, 3, &err), SBX_OK);
    assert_int_equal(valid_warm_pool("warmPool", 0, 0, 0, &err), SBX_OK);
    assert_int_equal(valid_warm_pool("warmPool", 0, 1, 3, &err), SBX_E_INVALID);
    err.code = SBX_OK;
    assert_int_equal(valid_warm_pool("warmPool", 2, 1, 101, &err), SBX_E_INVALID);
    err.code = SBX_OK;
    assert_int_equal(valid_warm_pool("warmPool", 2, -1, 3, &err), SBX_E_INVALID);
    err.code = SBX_OK;
    assert_int_equal(valid_network(true, one, 2, NULL, 0, &err), SBX_OK);
    assert_int_equal(valid_network(false, NULL, 0, one, 2, &err), SBX_OK);
    assert_int_equal(valid_network(false, blank, 2, NULL, 0, &err), SBX_OK);
    assert_int_equal(valid_network(true, blank, 2, one, 2, &err), SBX_E_INVALID);
    err.code = SBX_OK;
    assert_int_equal(valid_network(true, NULL, 0, NULL, 0, &err), SBX_E_INVALID);
    err.code = SBX_OK;
    assert_int_equal(valid_network(false, NULL, 0, blank, 2, &err), SBX_E_INVALID);
    assert_string_equal(err.field, "networkControl.domainAllowlist");
    err.code = SBX_OK;
    assert_int_equal(valid_owner_kind("TESS_CODE_TURN", "EXTERNAL_SESSION", &err), SBX_OK);
    assert_int_equal(valid_owner_kind("TESS_CODE_TURN", "AGENT_RUN", &err), SBX_E_INVALID);
    assert_string_equal(err.field, "ownerKind");
    err.code = SBX_OK;
    assert_int_equal(valid_owner_kind("X", "AGENT_RUN", &err), SBX_E_INVALID);
    assert_string_equal(err.field, "workloadProfile");
    good(valid_exclude, "!keep.log");
    bad(valid_exclude, "");
    bad(valid_exclude, "a\nb");
    lengths(valid_exclude, "x", 1024);
}

static void slugs(void **state)
{
    static const struct {
        const char *name, *slug;
    } cases[] = {
        { "Python REPL", "python-repl" }, { "  a -- b  ", "a-b" },
        { "\xe6\x97\xa5", "template" },   { "---", "template" },
        { "a\xc3\xa9z_9", "a-z-9" },
    };
    char out[SLUG_SIZE], numbered[SLUG_SIZE];
    char *longest = repeat("ab-", 40);

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        slug_from_name(cases[i].name, out);
        assert_string_equal(out, cases[i].slug);
    }
    slug_from_name(longest, out);
    assert_true(strlen(out) <= SLUG_MAX);
    assert_int_not_equal(out[strlen(out) - 1], '-');
    slug_numbered(out, 1, numbered);
    assert_string_equal(out, numbered);
    slug_numbered("x", 2, numbered);
    assert_string_equal(numbered, "x-2");
    slug_numbered(out, 12345, numbered);
    assert_true(strlen(numbered) <= SLUG_MAX);
    assert_string_equal(numbered + strlen(numbered) - 6, "-12345");
    assert_null(strstr(numbered, "--"));
    free(longest);
}

static void sets_and_sizes(void **state)
{
    struct resources r = resources_of(3);

    (void)state;
    assert_int_equal(roles_parse("pod-access"), ROLE_POD_ACCESS);
    assert_int_equal(roles_parse("root"), 0);
    assert_string_equal(roles_name(ROLE_TECHNICAL | ROLE_MEMBER), "technical");
    assert_null(roles_name(0));
    assert_int_equal(scopes_parse_list("quave:read  x quave:write:dangerous "),
                     SCOPE_READ | SCOPE_WRITE_DANGEROUS);
    assert_int_equal(scopes_parse_list(""), 0);
    assert_int_equal(scopes_parse("quave:write"), 0);
    assert_int_equal(scopes_permission_parse("sandbox:read"), PERMISSION_SANDBOX_READ);
    assert_int_equal(r.cpu_limit_millis, 1500);
    assert_int_equal(r.cpu_request_millis, 750);
    assert_int_equal(r.memory_limit_mb, 1536);
    assert_int_equal(r.memory_request_mb, 768);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_keys),
        cmocka_unit_test(images),
        cmocka_unit_test(paths),
        cmocka_unit_test(environment_and_commands),
        cmocka_unit_test(numbers_pools_and_networks),
        cmocka_unit_test(slugs),
        cmocka_unit_test(sets_and_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
