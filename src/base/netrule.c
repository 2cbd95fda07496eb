#include "base/netrule.h"

#include <arpa/inet.h>
#include <idn2.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

enum { BITS4 = 32, BITS6 = 128, MAPPED_BITS = 96, NAME_MAX_LEN = 253, LABEL_MAX_LEN = 63 };

const struct netrule_range netrule_ranges[] = {
    { "0.0.0.0/8", "this network" },
    { "10.0.0.0/8", "private" },
    { "100.64.0.0/10", "shared (carrier NAT)" },
    { "127.0.0.0/8", "loopback" },
    { "168.63.129.16", "cloud metadata" },
    { "169.254.0.0/16", "link-local (cloud metadata)" },
    { "172.16.0.0/12", "private" },
    { "192.0.0.0/24", "protocol assignments" },
    { "192.88.99.0/24", "6to4 relay" },
    { "192.168.0.0/16", "private" },
    { "198.18.0.0/15", "benchmarking" },
    { "224.0.0.0/4", "multicast" },
    { "240.0.0.0/4", "reserved" },
    { "::/96", "loopback or IPv4-compatible" },
    { "64:ff9b::/96", "NAT64" },
    { "64:ff9b:1::/48", "NAT64" },
    { "100::/64", "discard" },
    { "2001::/32", "Teredo" },
    { "2001:10::/28", "ORCHID" },
    { "2002::/16", "6to4" },
    { "fc00::/7", "private (unique local)" },
    { "fe80::/10", "link-local" },
    { "fec0::/10", "site-local" },
    { "ff00::/8", "multicast" },
    { NULL, NULL },
};

static const unsigned char mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };

static unsigned width(const struct netrule_cidr *c)
{
    return c->family == 4 ? BITS4 : BITS6;
}

static bool prefix_equal(const unsigned char *a, const unsigned char *b, unsigned bits)
{
    unsigned whole = bits / 8, rest = bits % 8;

    if (memcmp(a, b, whole) != 0)
        return false;
    return rest == 0 || ((a[whole] ^ b[whole]) >> (8 - rest)) == 0;
}

static bool host_bits_set(const struct netrule_cidr *c)
{
    for (unsigned i = c->bits; i < width(c); i++)
        if ((c->addr[i / 8] >> (7 - i % 8) & 1) != 0)
            return true;
    return false;
}

bool netrule_blank(const char *text)
{
    return text[strspn(text, " \t\r\n")] == 0;
}

/* Without the spaces around it; false when it does not fit. */
static bool trimmed(const char *text, char *out, size_t size)
{
    size_t len;

    text += strspn(text, " \t\r\n");
    len = strlen(text);
    while (len > 0 && strchr(" \t\r\n", text[len - 1]) != NULL)
        len--;
    if (len == 0 || len >= size)
        return false;
    memcpy(out, text, len);
    out[len] = 0;
    return true;
}

/* "::ffff:192.0.2.1/120" is 192.0.2.1/24: one address must not have two rules. */
static void unmap(struct netrule_cidr *c)
{
    if (c->family != 6 || c->bits < MAPPED_BITS || memcmp(c->addr, mapped, sizeof(mapped)) != 0)
        return;
    memmove(c->addr, c->addr + sizeof(mapped), 4);
    memset(c->addr + 4, 0, NETRULE_ADDR_LEN - 4);
    c->family = 4;
    c->bits = (unsigned char)(c->bits - MAPPED_BITS);
}

enum sbx_code netrule_cidr_parse(const char *text, struct netrule_cidr *out, struct sbx_err *err)
{
    struct netrule_cidr c = { 0 };
    char t[NETRULE_TEXT_SIZE];
    char *slash;
    int64_t bits = -1;

    if (!trimmed(text, t, sizeof(t)))
        return err_set(err, SBX_E_INVALID, "%.60s is not an address or a range", text);
    slash = strchr(t, '/');
    if (slash != NULL)
        *slash++ = 0;
    c.family = strchr(t, ':') != NULL ? 6 : 4;
    /* inet_pton takes four decimal octets without leading zeros and nothing else for IPv4. */
    if (inet_pton(c.family == 6 ? AF_INET6 : AF_INET, t, c.addr) != 1)
        return err_set(err, SBX_E_INVALID, "%.60s is not an address or a range", text);
    if (slash != NULL &&
        ((slash[0] == '0' && slash[1] != 0) || !str_parse_int(slash, 0, width(&c), &bits)))
        return err_set(err, SBX_E_INVALID, "%.60s has a prefix length that cannot be", text);
    c.bits = (unsigned char)(bits < 0 ? width(&c) : (unsigned)bits);
    if (host_bits_set(&c))
        return err_set(err, SBX_E_INVALID, "%.60s has address bits past its prefix length", text);
    unmap(&c);
    *out = c;
    return SBX_OK;
}

void netrule_cidr_print(const struct netrule_cidr *c, char out[NETRULE_TEXT_SIZE])
{
    char a[INET6_ADDRSTRLEN] = "";

    (void)inet_ntop(c->family == 6 ? AF_INET6 : AF_INET, c->addr, a, sizeof(a));
    if (c->bits == width(c))
        (void)str_copy(out, NETRULE_TEXT_SIZE, a);
    else
        (void)snprintf(out, NETRULE_TEXT_SIZE, "%s/%u", a, c->bits);
}

bool netrule_cidr_contains(const struct netrule_cidr *outer, const struct netrule_cidr *inner)
{
    return outer->family == inner->family && outer->bits <= inner->bits &&
           prefix_equal(outer->addr, inner->addr, outer->bits);
}

bool netrule_cidr_overlaps(const struct netrule_cidr *a, const struct netrule_cidr *b)
{
    return netrule_cidr_contains(a, b) || netrule_cidr_contains(b, a);
}

const char *netrule_infrastructure(const struct netrule_cidr *c, const struct netrule_cidr *extra,
                                   size_t extra_count)
{
    for (const struct netrule_range *r = netrule_ranges; r->text != NULL; r++) {
        struct sbx_err err = { 0 };
        struct netrule_cidr range;

        if (netrule_cidr_parse(r->text, &range, &err) == SBX_OK && netrule_cidr_contains(&range, c))
            return r->kind;
    }
    for (size_t i = 0; i < extra_count; i++)
        if (netrule_cidr_contains(&extra[i], c))
            return "reserved by the operator";
    return NULL;
}

/* WHATWG's "ends in a number": many resolvers take such a name for an IPv4 address. */
static bool ends_in_number(const char *name)
{
    const char *dot = strrchr(name, '.');
    const char *last = dot != NULL ? dot + 1 : name;

    if (last[0] == '0' && (last[1] == 'x' || last[1] == 'X') &&
        last[2 + strspn(last + 2, "0123456789abcdefABCDEF")] == 0)
        return true;
    return last[strspn(last, "0123456789")] == 0;
}

static bool labels_valid(const char *name)
{
    size_t len = 0;

    if (name[0] == 0 || strlen(name) > NAME_MAX_LEN)
        return false;
    for (const char *p = name;; p++) {
        bool end = *p == '.' || *p == 0;

        if (end && (len == 0 || len > LABEL_MAX_LEN || p[-1] == '-'))
            return false;
        if (*p == 0)
            return true;
        if (end) {
            len = 0;
            continue;
        }
        if (!((*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9') || (*p == '-' && len > 0)))
            return false;
        len++;
    }
}

enum sbx_code netrule_host_parse(const char *text, char out[NETRULE_NAME_SIZE], struct sbx_err *err)
{
    char t[NETRULE_NAME_SIZE * 4];
    char *ascii = NULL;
    size_t len;
    bool good;

    if (!trimmed(text, t, sizeof(t)) || !utf8_valid(t, strlen(t)))
        return err_set(err, SBX_E_INVALID, "%.60s is not a host name", text);
    /* UTS 46 mapping: case, width, and the dots that are not '.'. */
    if (idn2_to_ascii_8z(t, &ascii, IDN2_NONTRANSITIONAL | IDN2_NFC_INPUT) != IDN2_OK)
        return err_set(err, SBX_E_INVALID, "%.60s is not a host name", text);
    len = strlen(ascii);
    if (len > 1 && ascii[len - 1] == '.')
        ascii[len - 1] = 0;
    for (char *p = ascii; *p != 0; p++)
        if (*p >= 'A' && *p <= 'Z')
            *p = (char)(*p - 'A' + 'a');
    good = labels_valid(ascii) && !ends_in_number(ascii) && str_copy(out, NETRULE_NAME_SIZE, ascii);
    idn2_free(ascii);
    if (!good)
        return err_set(err, SBX_E_INVALID, "%.60s is not a host name", text);
    return SBX_OK;
}

enum sbx_code netrule_domain_parse(const char *text, char out[NETRULE_NAME_SIZE], bool *below,
                                   struct sbx_err *err)
{
    char name[NETRULE_NAME_SIZE];
    const char *t = text + strspn(text, " \t\r\n");
    bool star = str_starts(t, "*.");
    enum sbx_code code;

    if (strchr(star ? t + 2 : t, '*') != NULL)
        return err_set(err, SBX_E_INVALID, "%.60s: a * stands only in front, as in *.example.com",
                       text);
    code = netrule_host_parse(star ? t + 2 : t, name, err);
    if (code != SBX_OK)
        return code;
    if (strchr(name, '.') == NULL)
        return err_set(err, SBX_E_INVALID, "%.60s: a domain has at least two parts", text);
    (void)str_copy(out, NETRULE_NAME_SIZE, name);
    *below = star;
    return SBX_OK;
}

bool netrule_domain_matches(const char *rule, bool below, const char *host)
{
    size_t r = strlen(rule), h = strlen(host);

    if (!below)
        return strcmp(rule, host) == 0;
    return h > r + 1 && host[h - r - 1] == '.' && strcmp(host + h - r, rule) == 0;
}
