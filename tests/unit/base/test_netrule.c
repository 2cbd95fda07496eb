#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/netrule.h"

/* want NULL: refused; kind NULL: no infrastructure. */
static const struct {
    const char *text, *want, *kind;
} addresses[] = {
    { "203.0.113.8", "203.0.113.8", NULL },
    { " 203.0.113.8\n", "203.0.113.8", NULL },
    { "203.0.113.8/32", "203.0.113.8", NULL },
    { "203.0.113.0/24", "203.0.113.0/24", NULL },
    { "0.0.0.0/0", "0.0.0.0/0", NULL },
    { "8.0.0.0/5", "8.0.0.0/5", NULL },
    { "::/0", "::/0", NULL },
    { "2001:db8::1", "2001:db8::1", NULL },
    { "2001:DB8:0:0::/64", "2001:db8::/64", NULL },
    { "::ffff:203.0.113.8", "203.0.113.8", NULL },
    { "::ffff:cb00:7108", "203.0.113.8", NULL },
    { "::ffff:203.0.113.0/120", "203.0.113.0/24", NULL },
    { "::ffff:10.0.0.1", "10.0.0.1", "private" },
    { "10.0.0.0/8", "10.0.0.0/8", "private" },
    { "172.31.255.255", "172.31.255.255", "private" },
    { "172.32.0.0", "172.32.0.0", NULL },
    { "192.168.1.1", "192.168.1.1", "private" },
    { "127.0.0.1", "127.0.0.1", "loopback" },
    { "0.0.0.0", "0.0.0.0", "this network" },
    { "169.254.169.254", "169.254.169.254", "link-local (cloud metadata)" },
    { "168.63.129.16", "168.63.129.16", "cloud metadata" },
    { "100.100.100.200", "100.100.100.200", "shared (carrier NAT)" },
    { "224.0.0.1", "224.0.0.1", "multicast" },
    { "255.255.255.255", "255.255.255.255", "reserved" },
    { "::1", "::1", "loopback or IPv4-compatible" },
    { "::", "::", "loopback or IPv4-compatible" },
    { "::10.0.0.1", "::10.0.0.1", "loopback or IPv4-compatible" },
    { "64:ff9b::a00:1", "64:ff9b::a00:1", "NAT64" },
    { "64:ff9b::203.0.113.8", "64:ff9b::cb00:7108", "NAT64" },
    { "2002:a00:1::", "2002:a00:1::", "6to4" },
    { "2001:0:a00:1::", "2001:0:a00:1::", "Teredo" },
    { "fe80::1", "fe80::1", "link-local" },
    { "fd00:ec2::254", "fd00:ec2::254", "private (unique local)" },
    { "ff02::1", "ff02::1", "multicast" },
    { "198.51.100.0/28", "198.51.100.0/28", "reserved by the operator" },
    { "", NULL, NULL },
    { "  ", NULL, NULL },
    { "203.0.113.8/24", NULL, NULL },
    { "203.0.113.8/33", NULL, NULL },
    { "203.0.113.8/-1", NULL, NULL },
    { "203.0.113.8/", NULL, NULL },
    { "203.0.113.0/024", NULL, NULL },
    { "203.0.113.8/24/24", NULL, NULL },
    { "203.0.113", NULL, NULL },
    { "203.0.113.8.9", NULL, NULL },
    { "203.0.113.256", NULL, NULL },
    { "203.0.113.08", NULL, NULL },
    { "0313.0.0161.010", NULL, NULL },
    { "010.0.0.1", NULL, NULL },
    { "0x0a.0.0.1", NULL, NULL },
    { "0x7f000001", NULL, NULL },
    { "2130706433", NULL, NULL },
    { "127.1", NULL, NULL },
    { "fe80::1%eth0", NULL, NULL },
    { "[2001:db8::1]", NULL, NULL },
    { "2001:db8::1/129", NULL, NULL },
    { "2001:db8::1::2", NULL, NULL },
    { "::ffff:203.0.113.08", NULL, NULL },
    { "203.0.113.8-203.0.113.9", NULL, NULL },
    { "203.0.113.8, 203.0.113.9", NULL, NULL },
    { "example.com", NULL, NULL },
    { "\xef\xbc\x91.2.3.4", NULL, NULL },
};

static void addresses_are_read_strictly(void **state)
{
    struct netrule_cidr extra;
    struct sbx_err e = { 0 };

    (void)state;
    assert_int_equal(netrule_cidr_parse("198.51.100.0/24", &extra, &e), SBX_OK);
    for (size_t i = 0; i < COUNT_OF(addresses); i++) {
        struct sbx_err err = { 0 };
        struct netrule_cidr c;
        char text[NETRULE_TEXT_SIZE];
        enum sbx_code code = netrule_cidr_parse(addresses[i].text, &c, &err);
        const char *kind;

        if (addresses[i].want == NULL) {
            if (code != SBX_E_INVALID)
                fail_msg("%s was read", addresses[i].text);
            continue;
        }
        if (code != SBX_OK)
            fail_msg("%s", err.msg);
        netrule_cidr_print(&c, text);
        assert_string_equal(text, addresses[i].want);
        kind = netrule_infrastructure(&c, &extra, 1);
        assert_string_equal(kind != NULL ? kind : "-",
                            addresses[i].kind != NULL ? addresses[i].kind : "-");
    }
}

static void every_range_of_the_table_parses(void **state)
{
    (void)state;
    for (const struct netrule_range *r = netrule_ranges; r->text != NULL; r++) {
        struct sbx_err err = { 0 };
        struct netrule_cidr c;

        if (netrule_cidr_parse(r->text, &c, &err) != SBX_OK)
            fail_msg("%s", err.msg);
        assert_non_null(netrule_infrastructure(&c, NULL, 0));
    }
}

/* Case 40 and its kind. */
static const struct {
    const char *rule, *host;
    int match; /* 1 yes, 0 no, -1 the rule is refused, -2 the host is refused */
} names[] = {
    { "github.com", "github.com", 1 },
    { "github.com", "GitHub.COM", 1 },
    { "github.com", "github.com.", 1 },
    { "GitHub.com.", "github.com", 1 },
    { " github.com ", "github.com", 1 },
    { "github.com", "api.github.com", 0 },
    { "github.com", "evilgithub.com", 0 },
    { "github.com", "github.com.evil.test", 0 },
    { "*.github.com", "api.github.com", 1 },
    { "*.github.com", "a.b.github.com", 1 },
    { "*.github.com", "github.com", 0 },
    { "*.github.com", "evilgithub.com", 0 },
    { "*.github.com", "xgithub.com", 0 },
    { "b\xc3\xbc"
      "cher.example",
      "xn--bcher-kva.example", 1 },
    { "xn--bcher-kva.example",
      "B\xc3\x9c"
      "CHER.example",
      1 },
    { "github.com",
      "github\xe3\x80\x82"
      "com",
      1 },                                    /* the ideographic full stop */
    { "github.com", "g\xd1\x96thub.com", 0 }, /* a Cyrillic letter */
    { "github.com", "github.com..", -2 },
    { "github.com", ".github.com", -2 },
    { "github.com", "github.com/", -2 },
    { "github.com", "github.com:443", -2 },
    { "github.com", "user@github.com", -2 },
    { "github.com", "github.com\xff", -2 },
    { "github.com", "127.0.0.1", -2 },
    { "github.com", "2130706433", -2 },
    { "github.com", "0x7f.1", -2 },
    { "github.com", "1.2.3.0x4", -2 },
    { "github.com", "", -2 },
    { "*", "github.com", -1 },
    { "*.com", "github.com", -1 },
    { "a*.github.com", "ab.github.com", -1 },
    { "*.*.github.com", "a.b.github.com", -1 },
    { "localhost", "localhost", -1 },
    { "https://github.com", "github.com", -1 },
    { "github.com/path", "github.com", -1 },
    { "github.com:443", "github.com", -1 },
    { "-a.github.com", "github.com", -1 },
    { "a_b.github.com", "github.com", -1 },
    { "203.0.113.8", "203.0.113.8", -1 },
    { "", "github.com", -1 },
};

static void names_match_on_a_label_border(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        struct sbx_err err = { 0 };
        char rule[NETRULE_NAME_SIZE], host[NETRULE_NAME_SIZE];
        bool below = false;
        int got;

        if (netrule_domain_parse(names[i].rule, rule, &below, &err) != SBX_OK)
            got = -1;
        else if (netrule_host_parse(names[i].host, host, &err) != SBX_OK)
            got = -2;
        else
            got = netrule_domain_matches(rule, below, host);
        if (got != names[i].match)
            fail_msg("%s, %s: %d, not %d", names[i].rule, names[i].host, got, names[i].match);
    }
}

static void long_names(void **state)
{
    char label[80], out[NETRULE_NAME_SIZE], name[400] = "";
    bool below;
    struct sbx_err err = { 0 };

    (void)state;
    memset(label, 'a', sizeof(label));
    memcpy(label + 64, ".example", 9);
    assert_int_equal(netrule_domain_parse(label, out, &below, &err), SBX_E_INVALID);
    err = (struct sbx_err){ 0 };
    assert_int_equal(netrule_domain_parse(label + 1, out, &below, &err), SBX_OK);
    memset(name, 'a', 399);
    for (int i = 50; i < 399; i += 51)
        name[i] = '.';
    assert_int_equal(netrule_domain_parse(name, out, &below, &err), SBX_E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_read_strictly),
        cmocka_unit_test(every_range_of_the_table_parses),
        cmocka_unit_test(names_match_on_a_label_border),
        cmocka_unit_test(long_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
