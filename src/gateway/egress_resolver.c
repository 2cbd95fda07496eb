#include <stdio.h>
#include <string.h>

#include "gateway/egress_impl.h"

/* The resolver of sandboxes with default egress, and of the proxy: unbound, in the
 * gateway namespace, as its own user, a child of the gateway.  Chosen over dnsmasq
 * because the ranges whose answers are dropped are ours to name (private-address);
 * dnsmasq's are built in and lack the shared range and the operator's. */

enum { LINE_MAX_LEN = 512 };

static void read_nameservers(struct egress *e, const char *path)
{
    FILE *f = fopen(path, "re");
    char line[LINE_MAX_LEN];

    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        struct sbx_err err = { 0 };
        struct netrule_cidr c;
        char word[LINE_MAX_LEN];

        if (e->upstream_count == EGRESS_UPSTREAM_MAX ||
            sscanf(line, "nameserver %511s", word) != 1 ||
            netrule_cidr_parse(word, &c, &err) != SBX_OK)
            continue;
        /* The host's loopback is not the gateway namespace's. */
        if ((c.family == 4 && c.addr[0] == IN_LOOPBACKNET) || strcmp(word, "::1") == 0)
            continue;
        e->upstream[e->upstream_count++] = c;
    }
    if (f != NULL)
        (void)fclose(f);
}

void egress_upstream_from_host(struct egress *e)
{
    read_nameservers(e, "/etc/resolv.conf");
    if (e->upstream_count == 0)
        read_nameservers(e, "/run/systemd/resolve/resolv.conf");
}

static void write_config(const struct egress *e, struct buf *out)
{
    char address[INET_ADDRSTRLEN], pool[NETRULE_TEXT_SIZE];

    egress_resolver_addr(e, address);
    egress_pool_text(e, false, pool);
    (void)buf_printf(out,
                     "server:\n interface: %s\n interface: 127.0.0.1\n"
                     " access-control: 0.0.0.0/0 refuse\n access-control: %s allow\n"
                     " access-control: 127.0.0.0/8 allow\n"
                     " do-daemonize: no\n username: \"\"\n chroot: \"\"\n directory: \"\"\n"
                     " pidfile: \"\"\n use-syslog: no\n logfile: \"\"\n verbosity: 0\n"
                     " num-threads: 1\n module-config: \"iterator\"\n"
                     " do-ip6: %s\n hide-identity: yes\n hide-version: yes\n"
                     " do-not-query-localhost: yes\n cache-max-ttl: 3600\n"
                     " msg-cache-size: 4m\n rrset-cache-size: 8m\n outgoing-range: 512\n"
                     " ip-ratelimit: 2000\n",
                     address, pool, e->ipv6 ? "yes" : "no");
    for (const struct netrule_range *r = netrule_ranges; r->text != NULL; r++)
        (void)buf_printf(out, " private-address: %s\n", r->text);
    (void)buf_puts(out, " private-address: ::ffff:0:0/96\n");
    for (size_t i = 0; i < e->deny_count; i++) {
        char text[NETRULE_TEXT_SIZE];

        netrule_cidr_print(&e->deny[i], text);
        (void)buf_printf(out, " private-address: %s\n", text);
    }
    (void)buf_puts(out, "remote-control:\n control-enable: no\n");
    if (e->upstream_count > 0)
        (void)buf_puts(out, "forward-zone:\n name: \".\"\n");
    for (size_t i = 0; i < e->upstream_count; i++) {
        char text[NETRULE_TEXT_SIZE];

        netrule_cidr_print(&e->upstream[i], text);
        (void)buf_printf(out, " forward-addr: %s\n", text);
    }
}

const struct egress_child_kind egress_child_resolver = {
    .name = "unbound",
    .user = "unbound",
    .port = 53,
    .flags = { "-d", "-c" },
    .configure = write_config,
};
