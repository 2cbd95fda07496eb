#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "gateway/runsc_bundle.h"
#include "sbx/agent.h"

static const char *const IMAGE_ARGV[] = { "/entry", "cmd", NULL };
static const char *const IMAGE_ENV[] = { "PATH=/image/bin", "A=image", NULL };
static const uint32_t GROUPS[] = { 7, 8 };
static const struct runsc_image_defaults IMAGE = {
    .argv = IMAGE_ARGV,
    .env = IMAGE_ENV,
    .home = "/home/u",
    .uid = 1000,
    .gid = 100,
    .groups = GROUPS,
    .group_count = 2,
};

static bool has(const char **list, const char *text)
{
    for (; *list != NULL; list++) {
        if (strcmp(*list, text) == 0)
            return true;
    }
    return false;
}

static size_t count_name(const char **list, const char *name)
{
    size_t n = 0;

    for (; *list != NULL; list++)
        n += strncmp(*list, name, strlen(name)) == 0;
    return n;
}

static void test_request_wins_over_image(void **state)
{
    SCOPED_ARENA struct arena *a = arena_new();
    const char *command[] = { "run", NULL }, *env[] = { "A=request", "B=1", NULL };
    struct driver_spec spec = { .command = command, .env = env, .working_dir = "/srv" };
    struct driver_workload w;

    (void)state;
    runsc_bundle_workload(&spec, &IMAGE, false, 9, a, &w);
    assert_string_equal(w.argv[0], "run");
    assert_null(w.argv[1]);
    assert_string_equal(w.cwd, "/srv");
    assert_true(has(w.env, "A=request") && has(w.env, "B=1") && has(w.env, "PATH=/image/bin"));
    assert_true(has(w.env, "HOME=/home/u"));
    assert_int_equal(count_name(w.env, "A="), 1);
    assert_int_equal(count_name(w.env, "HTTP_PROXY="), 0);
    assert_int_equal(w.uid, 1000);
    assert_int_equal(w.group_count, 2);
    assert_int_equal(w.groups[1], 8);
    assert_int_equal(w.nproc, 9);
}

static void test_image_is_the_default_and_proxy_is_set(void **state)
{
    SCOPED_ARENA struct arena *a = arena_new();
    const char *env[] = { "HTTPS_PROXY=mine", NULL };
    struct driver_spec spec = { .env = env };
    struct driver_workload w;

    (void)state;
    runsc_bundle_workload(&spec, &IMAGE, true, 0, a, &w);
    assert_string_equal(w.argv[1], "cmd");
    assert_string_equal(w.cwd, "/workspace"); /* contract 4 */
    assert_true(has(w.env, "http_proxy=http://127.0.0.1:3128"));
    assert_true(has(w.env, "HTTPS_PROXY=mine"));
    assert_true(w.proxy);
}

static const json_t *mount_at(const json_t *j, const char *target)
{
    const json_t *mounts = json_object_get(j, "mounts");

    for (size_t i = 0; i < json_array_size(mounts); i++) {
        const json_t *m = json_array_get(mounts, i);

        if (strcmp(json_get_str(m, "destination", ""), target) == 0)
            return m;
    }
    return NULL;
}

static bool lists(const json_t *list, const char *text)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (strcmp(json_string_value(json_array_get(list, i)), text) == 0)
            return true;
    }
    return false;
}

static void test_agent_bundle(void **state)
{
    SCOPED_ARENA struct arena *a = arena_new();
    struct driver_spec spec = { 0 };
    struct driver_workload w;
    struct runsc_bundle b = { .hostname = "h",
                              .rootfs = "/r",
                              .netns = "/run/netns/x",
                              .memory_mb = 512,
                              .agent = SBX_AGENT_BINARY,
                              .workload = &w };
    SCOPED_JSON json_t *j = NULL;
    const json_t *p, *caps, *spaces;
    bool net = false;

    (void)state;
    runsc_bundle_workload(&spec, &IMAGE, false, 0, a, &w);
    runsc_bundle_bind(&b, "/host/a", SBX_AGENT_DIR, true);
    j = runsc_bundle_json(&b);
    p = json_object_get(j, "process");
    assert_true(json_get_bool(p, "noNewPrivileges", false));
    assert_string_equal(json_string_value(json_array_get(json_object_get(p, "args"), 0)),
                        SBX_AGENT_BINARY);
    assert_int_equal(json_get_int(json_object_get(p, "user"), "uid", -1), 0);
    caps = json_object_get(json_object_get(p, "capabilities"), "bounding");
    assert_true(lists(caps, "CAP_SYS_ADMIN"));
    assert_false(lists(caps, "CAP_NET_RAW") || lists(caps, "CAP_SYS_PTRACE"));
    assert_true(lists(json_object_get(mount_at(j, SBX_AGENT_DIR), "options"), "ro"));
    assert_true(lists(json_object_get(mount_at(j, "/tmp"), "options"), "size=256m"));
    spaces = json_object_get(json_object_get(j, "linux"), "namespaces");
    for (size_t i = 0; i < json_array_size(spaces); i++) {
        const json_t *n = json_array_get(spaces, i);

        net = net || (strcmp(json_get_str(n, "type", ""), "network") == 0 &&
                      strcmp(json_get_str(n, "path", ""), "/run/netns/x") == 0);
    }
    assert_true(net);
}

/* Without an agent the tenant's command is the first process: its own user, no capability. */
static void test_bundle_without_agent(void **state)
{
    SCOPED_ARENA struct arena *a = arena_new();
    struct driver_spec spec = { 0 };
    struct driver_workload w;
    struct runsc_bundle b = { .hostname = "h", .rootfs = "/r", .memory_mb = 64, .workload = &w };
    SCOPED_JSON json_t *j = NULL;
    const json_t *p;

    (void)state;
    runsc_bundle_workload(&spec, &IMAGE, false, 33, a, &w);
    j = runsc_bundle_json(&b);
    p = json_object_get(j, "process");
    assert_int_equal(json_get_int(json_object_get(p, "user"), "uid", -1), 1000);
    assert_int_equal(
        json_array_size(json_object_get(json_object_get(p, "capabilities"), "effective")), 0);
    assert_int_equal(json_array_size(json_object_get(p, "rlimits")), 2);
    assert_int_equal(json_array_size(json_object_get(json_object_get(j, "linux"), "namespaces")),
                     4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_request_wins_over_image),
        cmocka_unit_test(test_image_is_the_default_and_proxy_is_set),
        cmocka_unit_test(test_agent_bundle),
        cmocka_unit_test(test_bundle_without_agent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
