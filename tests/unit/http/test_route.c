#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "http/internal.h"

static enum sbx_code handler(struct request *req, struct response *res, struct sbx_err *err)
{
    (void)req, (void)res, (void)err;
    return SBX_OK;
}

static enum sbx_code on_body(struct request *req, const void *data, size_t len, struct sbx_err *err)
{
    (void)req, (void)data, (void)len, (void)err;
    return SBX_OK;
}

#define ROW(m, p, n)                                                                               \
    {                                                                                              \
        .method = (m), .path = (p), .name = (n), .auth = 1, .handler = handler                     \
    }

static enum sbx_code check(const struct route *rows, size_t count)
{
    struct route_table t = { rows, count };
    struct sbx_err err = { 0 };

    return route_check(&t, 1, &err);
}

static void an_incomplete_row_is_refused(void **state)
{
    const struct route good = ROW(HTTP_GET, "/x", "x");
    struct route bad[] = { good, good, good, good, good, good, good, good, good, good, good, good };

    (void)state;
    assert_int_equal(check(&good, 1), SBX_OK);
    bad[0].method = HTTP_METHOD_UNSET;
    bad[1].path = NULL;
    bad[2].auth = 0;
    bad[3].handler = NULL;
    bad[4].name = NULL;
    bad[5].name = "Not A Name";
    bad[6].body = HTTP_BODY_JSON; /* without body_max */
    bad[7].body_max = 10;         /* without a body */
    bad[8].on_body = on_body;
    bad[9].body = HTTP_BODY_STREAM, bad[9].body_max = 1;
    bad[10].path = "x";
    bad[11].body = HTTP_BODY_STREAM, bad[11].body_max = 1, bad[11].on_body = on_body,
    bad[11].flags = ROUTE_INLINE;
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        assert_int_equal(check(&bad[i], 1), SBX_E_INTERNAL);
}

static void a_pattern_must_be_one(void **state)
{
    static const char *const BAD[] = {
        "", "/a//b", "/a/", "/{}", "/a{b}", "/{a}b", "/a?b/", "/1/2/3/4/5/6/7/8/9/a/b/c/d/e/f/g/h"
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(BAD); i++) {
        struct route r = ROW(HTTP_GET, BAD[i], "x");

        if (strchr(BAD[i], '?') == NULL)
            assert_int_equal(check(&r, 1), SBX_E_INTERNAL);
    }
}

static void rows_are_unique(void **state)
{
    const struct route same[] = { ROW(HTTP_GET, "/a/{x}", "one"), ROW(HTTP_GET, "/a/{y}", "two") };
    const struct route names[] = { ROW(HTTP_GET, "/a", "one"), ROW(HTTP_GET, "/b", "one") };
    const struct route fine[] = { ROW(HTTP_GET, "/a/{x}", "one"), ROW(HTTP_POST, "/a/{x}", "two"),
                                  ROW(HTTP_GET, "/a/b", "three") };

    (void)state;
    assert_int_equal(check(same, 2), SBX_E_INTERNAL);
    assert_int_equal(check(names, 2), SBX_E_INTERNAL);
    assert_int_equal(check(fine, 3), SBX_OK);
}

static const char *find(const struct router *r, enum http_method m, const char *a, const char *b)
{
    char left[64], right[64];
    char *segments[2] = { left, right };
    struct router_match match;

    (void)snprintf(left, sizeof(left), "%s", a);
    (void)snprintf(right, sizeof(right), "%s", b != NULL ? b : "");
    match = route_find(r, m, segments, b != NULL ? 2 : 1);
    if (match.path == NULL)
        return "404";
    return match.row != NULL ? match.row->route->name : "405";
}

static void the_more_specific_pattern_decides(void **state)
{
    static const struct route ROWS[] = {
        ROW(HTTP_GET, "/{any}/{id}", "any"),   ROW(HTTP_GET, "/runs/{id}", "get"),
        ROW(HTTP_DELETE, "/runs/{id}", "del"), ROW(HTTP_POST, "/runs/claim", "claim"),
        ROW(HTTP_GET, "/runs", "list"),        ROW(HTTP_GET, "/", "root"),
    };
    const struct route_table t = { ROWS, COUNT_OF(ROWS) };
    struct router_match m;
    struct router r;

    (void)state;
    route_compile(&r, &t, 1);
    assert_string_equal(find(&r, HTTP_GET, "runs", NULL), "list");
    assert_string_equal(find(&r, HTTP_GET, "run", NULL), "404");
    assert_string_equal(find(&r, HTTP_GET, "runsx", NULL), "404");
    assert_string_equal(find(&r, HTTP_GET, "runs", "a"), "get");
    assert_string_equal(find(&r, HTTP_DELETE, "runs", "a"), "del");
    assert_string_equal(find(&r, HTTP_POST, "runs", "claim"), "claim");
    assert_string_equal(find(&r, HTTP_GET, "runs", "claim"), "405"); /* claim is no id */
    assert_string_equal(find(&r, HTTP_POST, "runs", "a"), "405");
    assert_string_equal(find(&r, HTTP_GET, "other", "a"), "any");
    m = route_find(&r, HTTP_PUT, (char *[]){ (char[]){ "runs" }, (char[]){ "a" } }, 2);
    assert_int_equal(m.allow, 1u << HTTP_GET | 1u << HTTP_DELETE);
    assert_non_null(route_find(&r, HTTP_GET, NULL, 0).row);
    assert_null(route_find(&r, HTTP_GET, NULL, ROUTE_SEGMENTS_MAX + 1).path);
    route_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_incomplete_row_is_refused),
        cmocka_unit_test(a_pattern_must_be_one),
        cmocka_unit_test(rows_are_unique),
        cmocka_unit_test(the_more_specific_pattern_decides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
