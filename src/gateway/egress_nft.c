#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "gateway/egress_impl.h"

/* The rules as nft text.  Every script may be applied over what is there: add is
 * idempotent, so each thing is added before it is flushed or deleted, and one script is
 * one transaction.
 *
 * Names in the gateway namespace's table: sandbox of slot N has the link sN, the chain
 * cN (what it may), xN (what becomes of the rest), the sets a4_N a6_N (allowed), d4_N
 * d6_N (denied tcp and udp), e4_N e6_N (denied others) and the counter nN. */

static const char table_gateway[] = "inet sbx";

#define TEXT_OF_(x) #x
#define TEXT_OF(x)  TEXT_OF_(x)
#define LIMIT       TEXT_OF(EGRESS_CONNECTIONS_MAX)

static const char gateway_base[] =
    "add table inet sbx\n"
    "add set inet sbx infra4 { type ipv4_addr; flags interval; auto-merge; }\n"
    "add set inet sbx infra6 { type ipv6_addr; flags interval; auto-merge; }\n"
    "add set inet sbx upstream4 { type ipv4_addr; }\n"
    "add set inet sbx upstream6 { type ipv6_addr; }\n"
    "add set inet sbx pairs4 { type ifname . ipv4_addr; }\n"
    "add set inet sbx pairs6 { type ifname . ipv6_addr; }\n"
    "add set inet sbx named { type ifname; }\n"
    "add set inet sbx conns { type ifname; size 65535; flags dynamic; }\n"
    "add map inet sbx go { type ifname : verdict; }\n"
    "add map inet sbx deny { type ifname : verdict; }\n"
    "add map inet sbx marks { type ifname : mark; }\n"
    "add chain inet sbx pre { type filter hook prerouting priority -300; policy accept; }\n"
    "add chain inet sbx owner { type filter hook prerouting priority -150; policy accept; }\n"
    "add chain inet sbx input { type filter hook input priority 0; policy drop; }\n"
    "add chain inet sbx forward { type filter hook forward priority 0; policy drop; }\n"
    "add chain inet sbx output { type filter hook output priority 0; policy drop; }\n"
    "add chain inet sbx post { type nat hook postrouting priority 100; policy accept; }\n"
    "add counter inet sbx denied\n"
    "flush set inet sbx infra4\nflush set inet sbx infra6\n"
    "flush set inet sbx upstream4\nflush set inet sbx upstream6\n"
    "flush chain inet sbx pre\nflush chain inet sbx owner\nflush chain inet sbx input\n"
    /* Connections carry the number of their sandbox: they end with it. */
    "add rule inet sbx owner ct state new ct mark set iifname map @marks\n"
    "flush chain inet sbx forward\nflush chain inet sbx output\nflush chain inet sbx post\n"
    "add rule inet sbx post oifname \"up0\" masquerade\n"
    /* A sandbox speaks with its own address only. */
    "add rule inet sbx pre iifname { \"lo\", \"up0\" } accept\n"
    "add rule inet sbx pre icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept\n"
    "add rule inet sbx pre meta nfproto ipv4 iifname . ip saddr != @pairs4 drop\n"
    "add rule inet sbx pre meta nfproto ipv6 iifname . ip6 saddr != @pairs6 drop\n"
    "add rule inet sbx input iifname \"lo\" accept\n"
    "add rule inet sbx input ct state established,related accept\n"
    "add rule inet sbx input icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept\n"
    "add rule inet sbx forward ct state established,related accept\n"
    /* Before any sandbox's own rule is asked. */
    "add rule inet sbx forward ip daddr @infra4 iifname vmap @deny\n"
    "add rule inet sbx forward ip6 daddr @infra6 iifname vmap @deny\n"
    "add rule inet sbx forward oifname != \"up0\" iifname vmap @deny\n"
    "add rule inet sbx forward ct state new add @conns { iifname ct count over " LIMIT " } drop\n"
    "add rule inet sbx forward iifname vmap @go\n"
    /* Resolver and proxy. */
    "add rule inet sbx output oifname \"lo\" accept\n"
    "add rule inet sbx output ct state established,related accept\n"
    "add rule inet sbx output icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept\n"
    "add rule inet sbx output ip daddr @upstream4 meta l4proto { tcp, udp } th dport 53 accept\n"
    "add rule inet sbx output ip6 daddr @upstream6 meta l4proto { tcp, udp } th dport 53 accept\n"
    "add rule inet sbx output ip daddr @infra4 reject with icmpx admin-prohibited\n"
    "add rule inet sbx output ip6 daddr @infra6 reject with icmpx admin-prohibited\n"
    "add rule inet sbx output meta l4proto { tcp, udp } accept\n";

static void add_ranges(const struct egress *e, int family, const char *table, const char *set,
                       struct buf *out)
{
    (void)buf_printf(out, "add element %s %s { ", table, set);
    for (const struct netrule_range *r = netrule_ranges; r->text != NULL; r++)
        if ((strchr(r->text, ':') != NULL) == (family == 6))
            (void)buf_printf(out, "%s, ", r->text);
    for (size_t i = 0; i < e->deny_count; i++)
        if (e->deny[i].family == family) {
            char text[NETRULE_TEXT_SIZE];

            netrule_cidr_print(&e->deny[i], text);
            (void)buf_printf(out, "%s, ", text);
        }
    /* IPv4-mapped addresses have no place on a wire; the table of ranges knows them as IPv4. */
    (void)buf_puts(out, family == 6 ? "::ffff:0:0/96 }\n" : "255.255.255.255 }\n");
}

void egress_nft_deny(const struct egress *e, bool host, struct buf *out)
{
    char table[32];

    if (host)
        (void)snprintf(table, sizeof(table), "inet sbx_%s", e->tag);
    else
        (void)str_copy(table, sizeof(table), table_gateway);
    (void)buf_printf(out, "flush set %s infra4\nflush set %s infra6\n", table, table);
    add_ranges(e, 4, table, "infra4", out);
    add_ranges(e, 6, table, "infra6", out);
}

static void add_upstream(const struct egress *e, const char *table, struct buf *out)
{
    for (size_t i = 0; i < e->upstream_count; i++) {
        char text[NETRULE_TEXT_SIZE];

        netrule_cidr_print(&e->upstream[i], text);
        (void)buf_printf(out, "add element %s upstream%d { %s }\n", table, e->upstream[i].family,
                         text);
    }
}

void egress_nft_gateway(const struct egress *e, struct buf *out)
{
    char resolver[INET_ADDRSTRLEN];

    egress_resolver_addr(e, resolver);
    (void)buf_puts(out, gateway_base);
    add_ranges(e, 4, table_gateway, "infra4", out);
    add_ranges(e, 6, table_gateway, "infra6", out);
    add_upstream(e, table_gateway, out);
    (void)buf_printf(out,
                     "add rule inet sbx input iifname @named ip daddr %s meta l4proto { tcp, udp } "
                     "th dport 53 accept\n"
                     "add rule inet sbx input iifname vmap @deny\n",
                     resolver);
}

void egress_nft_host(const struct egress *e, bool close_forwarding, struct buf *out)
{
    char up4[INET_ADDRSTRLEN], up6[INET6_ADDRSTRLEN], table[32];
    const char *t = e->tag, *h = e->host_link;

    (void)snprintf(table, sizeof(table), "inet sbx_%s", e->tag);
    egress_uplink4(e, true, up4);
    egress_uplink6(e, true, up6);
    (void)buf_printf(
        out,
        "add table inet sbx_%s\ndelete table inet sbx_%s\nadd table inet sbx_%s\n"
        "add set inet sbx_%s infra4 { type ipv4_addr; flags interval; auto-merge; }\n"
        "add set inet sbx_%s infra6 { type ipv6_addr; flags interval; auto-merge; }\n"
        "add set inet sbx_%s upstream4 { type ipv4_addr; }\n"
        "add set inet sbx_%s upstream6 { type ipv6_addr; }\n"
        "add chain inet sbx_%s pre { type filter hook prerouting priority -300; policy accept; }\n"
        "add chain inet sbx_%s input { type filter hook input priority 0; policy accept; }\n"
        "add chain inet sbx_%s forward { type filter hook forward priority 0; policy accept; }\n"
        "add chain inet sbx_%s post { type nat hook postrouting priority 100; policy accept; }\n",
        t, t, t, t, t, t, t, t, t, t, t);
    add_ranges(e, 4, table, "infra4", out);
    add_ranges(e, 6, table, "infra6", out);
    add_upstream(e, table, out);
    /* Nothing to the host itself, by whatever address it has, port forwardings included; but for
     * the resolver's questions when the host is its upstream. */
    for (int hook = 0; hook < 2; hook++) {
        const char *chain = hook == 0 ? "pre" : "input";

        (void)buf_printf(
            out,
            "add rule inet sbx_%s %s iifname != \"%s\" accept\n"
            "add rule inet sbx_%s %s icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } "
            "accept\n"
            "add rule inet sbx_%s %s ip daddr @upstream4 meta l4proto { tcp, udp } th dport 53 "
            "accept\n"
            "add rule inet sbx_%s %s ip6 daddr @upstream6 meta l4proto { tcp, udp } th dport 53 "
            "accept\n"
            "add rule inet sbx_%s %s %s\n",
            t, chain, h, t, chain, t, chain, t, chain, t, chain,
            hook == 0 ? "fib daddr type != unicast drop" : "drop");
    }
    (void)buf_printf(
        out,
        "add rule inet sbx_%s forward oifname \"%s\" ct state established,related accept\n"
        "add rule inet sbx_%s forward oifname \"%s\" drop\n"
        "add rule inet sbx_%s forward iifname \"%s\" ip daddr @upstream4 meta l4proto { tcp, udp } "
        "th dport 53 accept\n"
        "add rule inet sbx_%s forward iifname \"%s\" ip6 daddr @upstream6 meta l4proto { tcp, udp "
        "} th dport 53 accept\n"
        "add rule inet sbx_%s forward iifname \"%s\" ip daddr @infra4 drop\n"
        "add rule inet sbx_%s forward iifname \"%s\" ip6 daddr @infra6 drop\n"
        "add rule inet sbx_%s forward iifname \"%s\" accept\n"
        "add rule inet sbx_%s post ip saddr %s oifname != \"%s\" masquerade\n",
        t, h, t, h, t, h, t, h, t, h, t, h, t, h, t, up4, h);
    if (e->ipv6)
        (void)buf_printf(out,
                         "add rule inet sbx_%s post ip6 saddr %s oifname != \"%s\" masquerade\n", t,
                         up6, h);
    /* The host forwarded nothing before the gateway needed it: it is not to become a router. Other
     * gateways on it have tables of their own. */
    if (close_forwarding)
        (void)buf_printf(out,
                         "add rule inet sbx_%s forward iifname \"sbx*\" accept\n"
                         "add rule inet sbx_%s forward oifname \"sbx*\" accept\n"
                         "add rule inet sbx_%s forward drop\n",
                         t, t, t);
}

static void remove_slot(const struct egress *e, unsigned n, struct buf *out)
{
    char a4[INET_ADDRSTRLEN], a6[INET6_ADDRSTRLEN];

    egress_addr4(e, n, 2, a4);
    egress_addr6(e, n, 2, a6);
    (void)buf_printf(
        out,
        "add chain inet sbx c%u\nadd chain inet sbx x%u\n"
        "add element inet sbx go { \"s%u\" : goto c%u }\ndelete element inet sbx go { \"s%u\" }\n"
        "add element inet sbx deny { \"s%u\" : goto x%u }\n"
        "delete element inet sbx deny { \"s%u\" }\n"
        "add element inet sbx marks { \"s%u\" : %u }\ndelete element inet sbx marks { \"s%u\" }\n"
        "add element inet sbx named { \"s%u\" }\ndelete element inet sbx named { \"s%u\" }\n"
        "add element inet sbx pairs4 { \"s%u\" . %s }\n"
        "delete element inet sbx pairs4 { \"s%u\" . %s }\n"
        "add element inet sbx pairs6 { \"s%u\" . %s }\n"
        "delete element inet sbx pairs6 { \"s%u\" . %s }\n"
        "flush chain inet sbx c%u\nflush chain inet sbx x%u\n"
        "delete chain inet sbx c%u\ndelete chain inet sbx x%u\n",
        n, n, n, n, n, n, n, n, n, n, n, n, n, n, a4, n, a4, n, a6, n, a6, n, n, n, n);
}

static void add_sets(unsigned n, struct buf *out)
{
    (void)buf_printf(
        out,
        "add set inet sbx a4_%u { type ipv4_addr; flags interval; auto-merge; }\n"
        "add set inet sbx a6_%u { type ipv6_addr; flags interval; auto-merge; }\n"
        "add set inet sbx d4_%u { type ipv4_addr . inet_proto . inet_service; size %d; flags "
        "dynamic; counter; }\n"
        "add set inet sbx d6_%u { type ipv6_addr . inet_proto . inet_service; size %d; flags "
        "dynamic; counter; }\n"
        "add set inet sbx e4_%u { type ipv4_addr . inet_proto; size %d; flags dynamic; counter; }\n"
        "add set inet sbx e6_%u { type ipv6_addr . inet_proto; size %d; flags dynamic; counter; }\n"
        "add counter inet sbx n%u\n",
        n, n, n, EGRESS_DENIED_MAX, n, EGRESS_DENIED_MAX, n, EGRESS_DENIED_MAX, n,
        EGRESS_DENIED_MAX, n);
}

static void delete_sets(unsigned n, struct buf *out)
{
    (void)buf_printf(out,
                     "delete set inet sbx a4_%u\ndelete set inet sbx a6_%u\n"
                     "delete set inet sbx d4_%u\ndelete set inet sbx d6_%u\n"
                     "delete set inet sbx e4_%u\ndelete set inet sbx e6_%u\n"
                     "delete counter inet sbx n%u\n",
                     n, n, n, n, n, n, n);
}

void egress_nft_detach(const struct egress *e, unsigned slot, struct buf *out)
{
    remove_slot(e, slot, out);
    add_sets(slot, out);
    delete_sets(slot, out);
}

static void add_allowed(const struct egress_rules *r, int family, unsigned n, struct buf *out)
{
    bool any = false;

    for (size_t i = 0; i < r->cidr_count; i++) {
        char text[NETRULE_TEXT_SIZE];

        if (r->cidrs[i].family != family)
            continue;
        netrule_cidr_print(&r->cidrs[i], text);
        if (any)
            (void)buf_printf(out, ", %s", text);
        else
            (void)buf_printf(out, "add element inet sbx a%d_%u { %s", family, n, text);
        any = true;
    }
    if (any)
        (void)buf_puts(out, " }\n");
}

void egress_nft_attach(const struct egress *e, const struct egress_entry *entry, struct buf *out)
{
    unsigned n = entry->slot;
    char a4[INET_ADDRSTRLEN], a6[INET6_ADDRSTRLEN];
    bool open = entry->rules.mode == EGRESS_DEFAULT;

    egress_addr4(e, n, 2, a4);
    egress_addr6(e, n, 2, a6);
    egress_nft_detach(e, n, out); /* what a crash in the middle may have left */
    add_sets(n, out);
    (void)buf_printf(
        out,
        "add chain inet sbx c%u\nadd chain inet sbx x%u\n"
        "add rule inet sbx x%u counter name n%u\nadd rule inet sbx x%u counter name denied\n"
        "add rule inet sbx x%u meta nfproto ipv4 meta l4proto { tcp, udp } update @d4_%u { ip "
        "daddr "
        ". meta l4proto . th dport }\n"
        "add rule inet sbx x%u meta nfproto ipv6 meta l4proto { tcp, udp } update @d6_%u { ip6 "
        "daddr . meta l4proto . th dport }\n"
        "add rule inet sbx x%u meta nfproto ipv4 meta l4proto != { tcp, udp } update @e4_%u { ip "
        "daddr . meta l4proto }\n"
        "add rule inet sbx x%u meta nfproto ipv6 meta l4proto != { tcp, udp } update @e6_%u { ip6 "
        "daddr . meta l4proto }\n"
        "add rule inet sbx x%u meta l4proto tcp reject with tcp reset\n"
        "add rule inet sbx x%u drop\n",
        n, n, n, n, n, n, n, n, n, n, n, n, n, n, n);
    add_allowed(&entry->rules, 4, n, out);
    add_allowed(&entry->rules, 6, n, out);
    if (open)
        (void)buf_printf(
            out, "add rule inet sbx c%u accept\nadd element inet sbx named { \"s%u\" }\n", n, n);
    else
        (void)buf_printf(out,
                         "add rule inet sbx c%u ip daddr @a4_%u accept\n"
                         "add rule inet sbx c%u ip6 daddr @a6_%u accept\n"
                         "add rule inet sbx c%u goto x%u\n",
                         n, n, n, n, n, n);
    (void)buf_printf(out,
                     "add element inet sbx pairs4 { \"s%u\" . %s }\n"
                     "add element inet sbx pairs6 { \"s%u\" . %s }\n"
                     "add element inet sbx marks { \"s%u\" : %u }\n"
                     "add element inet sbx deny { \"s%u\" : goto x%u }\n"
                     "add element inet sbx go { \"s%u\" : goto c%u }\n",
                     n, a4, n, a6, n, n, n, n, n, n);
}
