#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "gateway/checkin.h"

/* What a probe wrote becomes a report: a finding, or a line that is not there, is not isolated. */

static const char GOOD[] =
    "interfaces=\nhost=\ndirect=\nmetadata=\nproxy=1\ncredentials=\nprofile=\nworkspace=empty\n"
    "marker=0\nleft=1\nend\n";

/* GOOD with one text replaced by another. */
static struct gateway_checkin_report read_with(const char *from, const char *to, bool *whole)
{
    struct gateway_checkin_report r = { .host_network = true,
                                        .credentials = true,
                                        .profile = true };
    char text[1024];
    const char *at = strstr(GOOD, from);

    assert_non_null(at);
    (void)snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - GOOD), GOOD, to, at + strlen(from));
    *whole = gateway_checkin_read(text, &r);
    return r;
}

static void a_clean_probe_is_isolated(void **state)
{
    bool whole = false;
    struct gateway_checkin_report r = read_with("end\n", "end\n", &whole);

    (void)state;
    assert_true(whole);
    assert_false(r.host_network || r.credentials || r.profile);
    assert_true(r.egress_proxy);
    assert_string_equal(r.why, "");
}

static void each_finding_is_told(void **state)
{
    static const struct {
        const char *from, *to, *why;
        bool host, credentials, profile, proxy, whole;
    } ROWS[] = {
        { "interfaces=", "interfaces=eth0 ", "interfaces: eth0", true, false, false, true, true },
        { "host=", "host=10.0.0.1:80 [::1]:80 ", "host: 10.0.0.1:80 [::1]:80", true, false, false,
          true, true },
        { "direct=", "direct=1.1.1.1:443 ", "direct: 1.1.1.1:443", false, false, false, false,
          true },
        { "metadata=", "metadata=169.254.169.254:80 ", "metadata: 169.254.169.254:80", false, true,
          false, true, true },
        { "proxy=1", "proxy=0", "proxy is 0", false, false, false, false, true },
        { "credentials=", "credentials=env:TOKEN ", "credentials: env:TOKEN", false, true, false,
          true, true },
        { "profile=", "profile=/root/.mozilla ", "profile: /root/.mozilla", false, false, true,
          true, true },
        { "marker=0", "marker=1", "marker is 1", false, false, false, true, false },
        { "left=1", "left=0", "left is 0", false, false, false, true, false },
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(ROWS); i++) {
        bool whole = false;
        struct gateway_checkin_report r = read_with(ROWS[i].from, ROWS[i].to, &whole);

        assert_string_equal(r.why, ROWS[i].why);
        assert_int_equal(r.host_network, ROWS[i].host);
        assert_int_equal(r.credentials, ROWS[i].credentials);
        assert_int_equal(r.profile, ROWS[i].profile);
        assert_int_equal(r.egress_proxy, ROWS[i].proxy);
        assert_int_equal(whole, ROWS[i].whole);
    }
}

static void what_is_missing_is_not_isolated(void **state)
{
    static const char *const LINES[] = { "interfaces=\n", "host=\n",    "direct=\n",
                                         "metadata=\n",   "proxy=1\n",  "credentials=\n",
                                         "profile=\n",    "marker=0\n", "left=1\n" };
    bool whole = true;
    struct gateway_checkin_report r;

    (void)state;
    for (size_t i = 0; i < COUNT_OF(LINES); i++) {
        r = read_with(LINES[i], "", &whole);
        assert_non_null(strstr(r.why, "not measured"));
        assert_true(r.host_network || r.credentials || r.profile || !r.egress_proxy || !whole);
    }
    r = read_with("end\n", "", &whole);
    assert_false(whole);
    assert_true(r.host_network && r.credentials && r.profile && !r.egress_proxy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_clean_probe_is_isolated),
        cmocka_unit_test(each_finding_is_told),
        cmocka_unit_test(what_is_missing_is_not_isolated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
