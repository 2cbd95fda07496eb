#include <arpa/inet.h>
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "gateway/egress_impl.h"

enum { POOL_BITS_MIN = 16, POOL_BITS_MAX = 24, POOL6_BITS = 64, RESERVED_SLOTS = 2 };

static const char default_pool[] = "10.213.0.0/16";

static const char DENY_NAME[] = "[egress] deny";

/* The strings of a configuration as ranges. */
static enum sbx_code read_ranges(const char *what, const char *const *list, size_t max,
                                 struct netrule_cidr *out, size_t *count, struct sbx_err *err)
{
    for (size_t i = 0; list != NULL && list[i] != NULL; i++) {
        enum sbx_code code;

        if (*count == max)
            return err_set(err, SBX_E_INVALID, "too many entries in %s", what);
        code = netrule_cidr_parse(list[i], &out[*count], err);
        if (code != SBX_OK)
            return err_wrap(err, "%s", what);
        (*count)++;
    }
    return SBX_OK;
}

static enum sbx_code read_pools(struct egress *e, const struct egress_config *c,
                                struct sbx_err *err)
{
    struct netrule_cidr pool;
    enum sbx_code code = netrule_cidr_parse(c->pool != NULL ? c->pool : default_pool, &pool, err);

    if (code != SBX_OK)
        return err_wrap(err, "the sandboxes' address pool");
    if (pool.family != 4 || pool.bits < POOL_BITS_MIN || pool.bits > POOL_BITS_MAX)
        return err_set(err, SBX_E_INVALID, "the sandboxes' address pool must be IPv4, /%d to /%d",
                       POOL_BITS_MIN, POOL_BITS_MAX);
    memcpy(&e->pool, pool.addr, sizeof(e->pool));
    e->pool_bits = pool.bits;
    e->slot_max = (1U << (32 - pool.bits)) / EGRESS_SLOT_ADDRESSES - RESERVED_SLOTS;
    if (e->slot_max > EGRESS_SANDBOXES_MAX)
        e->slot_max = EGRESS_SANDBOXES_MAX;
    e->slots = mem_zalloc(e->slot_max + 1);
    if (c->pool6 == NULL || c->pool6[0] == 0)
        return SBX_OK;
    code = netrule_cidr_parse(c->pool6, &pool, err);
    if (code != SBX_OK)
        return err_wrap(err, "the sandboxes' IPv6 pool");
    if (pool.family != 6 || pool.bits != POOL6_BITS || (pool.addr[0] & 0xfe) != 0xfc)
        return err_set(err, SBX_E_INVALID, "the sandboxes' IPv6 pool must be a unique local /%d",
                       POOL6_BITS);
    memcpy(&e->pool6, pool.addr, sizeof(e->pool6));
    e->ipv6 = true;
    return SBX_OK;
}

static char **strings_copy(const char *const *list)
{
    size_t n = 0;
    char **out;

    while (list[n] != NULL)
        n++;
    out = mem_zalloc((n + 1) * sizeof(*out));
    for (size_t i = 0; i < n; i++)
        out[i] = mem_strdup(list[i]);
    return out;
}

static bool tag_valid(const char *tag)
{
    size_t len = strspn(tag, "abcdefghijklmnopqrstuvwxyz0123456789");

    return len > 0 && len <= EGRESS_TAG_MAX && tag[len] == 0;
}

static enum sbx_code read_config(struct egress *e, const struct egress_config *c,
                                 struct sbx_err *err)
{
    enum sbx_code code;

    if (!tag_valid(c->tag))
        return err_set(err, SBX_E_INVALID, "the gateway's network tag must be 1 to %d of [a-z0-9]",
                       EGRESS_TAG_MAX);
    (void)str_copy(e->tag, sizeof(e->tag), c->tag);
    if (!str_copy(e->dir, sizeof(e->dir), c->dir))
        return err_set(err, SBX_E_INVALID, "the egress folder's path is too long");
    (void)snprintf(e->ns, sizeof(e->ns), "sbx-%s-gw", e->tag);
    (void)snprintf(e->ns_path, sizeof(e->ns_path), "/run/netns/%s", e->ns);
    (void)snprintf(e->host_link, sizeof(e->host_link), "sbx%sh", e->tag);
    code = read_pools(e, c, err);
    if (code == SBX_OK)
        code = read_ranges(DENY_NAME, c->deny, EGRESS_DENY_MAX, e->deny,
                           &e->deny_count, err);
    if (code == SBX_OK && c->upstream != NULL && c->upstream[0] != NULL)
        code = read_ranges("the resolver's upstream", c->upstream, EGRESS_UPSTREAM_MAX, e->upstream,
                           &e->upstream_count, err);
    else if (code == SBX_OK)
        egress_upstream_from_host(e);
    for (size_t i = 0; code == SBX_OK && c->ports != NULL && c->ports[i] != NULL; i++) {
        int64_t port;

        if (e->port_count == EGRESS_PORTS_MAX || !str_parse_int(c->ports[i], 1, 65535, &port))
            return err_set(err, SBX_E_INVALID, "%.20s cannot be a port of the proxy", c->ports[i]);
        e->ports[e->port_count++] = (int)port;
    }
    if (e->port_count == 0) {
        e->ports[e->port_count++] = 80;
        e->ports[e->port_count++] = 443;
    }
    if (c->helper != NULL)
        e->helper = strings_copy(c->helper);
    return code;
}

/* Our own links know no duplicates: without this nothing is sent for a second or two. */
static enum sbx_code ipv6_links(struct egress *e, struct sbx_err *err)
{
    char name[EGRESS_NAME_SIZE];
    enum sbx_code code = egress_sysctl(e->ns, "net.ipv6.conf.all.forwarding", "1", err);

    if (code == SBX_OK)
        code = egress_sysctl(e->ns, "net.ipv6.conf.default.accept_dad", "0", err);
    if (code == SBX_OK)
        code = egress_sysctl(e->ns, "net.ipv6.conf.up0.accept_dad", "0", err);
    (void)snprintf(name, sizeof(name), "net.ipv6.conf.%s.accept_dad", e->host_link);
    return code == SBX_OK ? egress_sysctl(NULL, name, "0", err) : code;
}

static enum sbx_code make_gateway(struct egress *e, struct sbx_err *err)
{
    SCOPED_BUF struct buf script = BUF_INIT(EGRESS_SCRIPT_MAX);
    char host4[INET_ADDRSTRLEN], gw4[INET_ADDRSTRLEN], host6[INET6_ADDRSTRLEN];
    char gw6[INET6_ADDRSTRLEN], resolver[INET_ADDRSTRLEN];
    enum sbx_code code;

    egress_uplink4(e, false, host4);
    egress_uplink4(e, true, gw4);
    egress_uplink6(e, false, host6);
    egress_uplink6(e, true, gw6);
    egress_resolver_addr(e, resolver);
    (void)buf_printf(&script, "netns add %s\nlink add %s type veth peer name up0 netns %s\n", e->ns,
                     e->host_link, e->ns);
    code = egress_ip(NULL, &script, err);
    buf_clear(&script);
    /* Rules before links: nothing is forwarded for a moment without them. */
    egress_nft_gateway(e, &script);
    if (code == SBX_OK)
        code = egress_nft(e, false, &script, err);
    if (code == SBX_OK)
        code = egress_sysctl(e->ns, "net.ipv4.ip_forward", "1", err);
    if (code == SBX_OK)
        code = egress_sysctl(e->ns, "net.ipv4.ip_unprivileged_port_start", "53", err);
    if (code == SBX_OK && e->ipv6)
        code = ipv6_links(e, err);
    buf_clear(&script);
    (void)buf_printf(&script,
                     "link set lo up\naddr add %s/32 dev lo\naddr add %s/30 dev up0\n"
                     "link set up0 up\nroute add default via %s\n",
                     resolver, gw4, host4);
    if (e->ipv6)
        (void)buf_printf(&script, "addr add %s/126 dev up0 nodad\nroute add default via %s\n", gw6,
                         host6);
    if (code == SBX_OK) {
        SCOPED_BUF struct buf host = BUF_INIT(EGRESS_SCRIPT_MAX);

        (void)buf_printf(&host, "addr add %s/30 dev %s\nlink set %s up\n", host4, e->host_link,
                         e->host_link);
        if (e->ipv6)
            (void)buf_printf(&host, "addr add %s/126 dev %s nodad\n", host6, e->host_link);
        code = egress_ip(NULL, &host, err);
    }
    if (code == SBX_OK)
        code = egress_ip(e->ns, &script, err);
    return code;
}

static bool read_flag(const char *path)
{
    char c = '0';
    SCOPED_FD int fd = open(path, O_RDONLY | O_CLOEXEC);

    return fd >= 0 && read(fd, &c, 1) == 1 && c == '1';
}

/* The host's part: forwarding and NAT.  A host that forwarded nothing before goes on to forward
 * nothing else; that it was us who switched it on is written down. */
static void mark_path(const struct egress *e, char out[EGRESS_PATH_SIZE * 2])
{
    (void)snprintf(out, EGRESS_PATH_SIZE * 2, "%s/switched-forwarding-on", e->dir);
}

static enum sbx_code prepare_host(struct egress *e, struct sbx_err *err)
{
    SCOPED_BUF struct buf script = BUF_INIT(EGRESS_SCRIPT_MAX);
    char mark[EGRESS_PATH_SIZE * 2];
    bool forwards = read_flag("/proc/sys/net/ipv4/ip_forward");
    enum sbx_code code = SBX_OK;

    mark_path(e, mark);
    if (!forwards)
        code = egress_file_write(e, "switched-forwarding-on", "", 0, 0600, err);
    egress_nft_host(e, !forwards || access(mark, F_OK) == 0, &script);
    if (code == SBX_OK)
        code = egress_nft(e, true, &script, err);
    if (code == SBX_OK && !forwards)
        code = egress_sysctl(NULL, "net.ipv4.ip_forward", "1", err);
    if (code == SBX_OK && e->ipv6 && !read_flag("/proc/sys/net/ipv6/conf/all/forwarding"))
        code = egress_sysctl(NULL, "net.ipv6.conf.all.forwarding", "1", err);
    return code;
}

static enum sbx_code write_resolv(struct egress *e, struct sbx_err *err)
{
    static const char none[] = "# Names are resolved outside of this sandbox.\n";
    char text[128], resolver[INET_ADDRSTRLEN];
    int len;
    enum sbx_code code;

    egress_resolver_addr(e, resolver);
    len = snprintf(text, sizeof(text), "nameserver %s\noptions timeout:3 attempts:2\n", resolver);
    code = egress_file_write(e, "resolv.conf", text, (size_t)len, 0644, err);
    if (code == SBX_OK)
        code = egress_file_write(e, "resolv.none", none, sizeof(none) - 1, 0644, err);
    return code;
}

static enum sbx_code adopt_or_make(struct egress *e, struct sbx_err *err)
{
    SCOPED_BUF struct buf script = BUF_INIT(EGRESS_SCRIPT_MAX);
    bool whole = egress_ns_there(e->ns);

    if (whole) {
        struct sbx_err why = { 0 };

        (void)buf_puts(&script, "link show dev up0\n");
        whole = egress_ip(e->ns, &script, &why) == SBX_OK;
        buf_clear(&script);
    }
    if (whole) {
        egress_nft_gateway(e, &script); /* this gateway's idea of the ranges, in one step */
        return egress_nft(e, false, &script, err);
    }
    /* Half of one, from a start that was cut short. */
    (void)buf_printf(&script, "link del %s\nnetns del %s\n", e->host_link, e->ns);
    if (egress_ns_there(e->ns))
        egress_ip_try(NULL, &script);
    return make_gateway(e, err);
}

enum sbx_code egress_open(const struct egress_config *config, struct egress **out,
                          struct sbx_err *err)
{
    static const char *const programs[] = { "ip", "nft", "nsenter", "setpriv", "sysctl" };
    struct egress *e = mem_zalloc(sizeof(*e));
    char path[EGRESS_PATH_SIZE];
    pthread_condattr_t attr;
    size_t strays = 0;
    enum sbx_code code = SBX_OK;

    e->helper_fd = e->wake_fd = -1;
    e->resolver.process.pidfd = e->proxy.process.pidfd = -1;
    e->resolver.config_fd = e->proxy.config_fd = -1;
    (void)pthread_mutex_init(&e->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&e->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    for (size_t i = 0; code == SBX_OK && i < COUNT_OF(programs); i++)
        if (egress_program(programs[i], path) == NULL)
            code = err_set(err, SBX_E_UNAVAILABLE, "egress needs the program %s", programs[i]);
    if (code == SBX_OK)
        code = read_config(e, config, err);
    if (code == SBX_OK)
        code = egress_entries_read(e, err);
    if (code == SBX_OK)
        code = egress_uplink_choose(e, err);
    if (code == SBX_OK)
        code = write_resolv(e, err);
    if (code == SBX_OK)
        code = adopt_or_make(e, err);
    if (code == SBX_OK)
        code = prepare_host(e, err);
    if (code == SBX_OK)
        code = egress_strays_remove(e, &strays, err);
    if (code == SBX_OK) {
        egress_denied_begin(e);
        code = egress_service_start(e, err);
    }
    if (code != SBX_OK) {
        egress_close(e);
        return code;
    }
    *out = e;
    return SBX_OK;
}

static void deny_swap(struct egress *e, const struct netrule_cidr *deny, size_t count)
{
    pthread_mutex_lock(&e->lock);
    memcpy(e->deny, deny, count * sizeof(*deny));
    e->deny_count = count;
    pthread_mutex_unlock(&e->lock);
}

enum sbx_code egress_set_deny(struct egress *e, const char *const *deny, bool check,
                              struct sbx_err *err)
{
    SCOPED_BUF struct buf inside = BUF_INIT(EGRESS_SCRIPT_MAX);
    SCOPED_BUF struct buf host = BUF_INIT(EGRESS_SCRIPT_MAX);
    struct netrule_cidr fresh[EGRESS_DENY_MAX], old[EGRESS_DENY_MAX];
    size_t count = 0, old_count = e->deny_count;
    enum sbx_code code = read_ranges(DENY_NAME, deny, EGRESS_DENY_MAX, fresh, &count, err);

    if (code != SBX_OK || check)
        return code;
    memcpy(old, e->deny, sizeof(old));
    deny_swap(e, fresh, count);
    egress_nft_deny(e, false, &inside);
    egress_nft_deny(e, true, &host);
    code = egress_nft(e, false, &inside, err);
    if (code == SBX_OK)
        code = egress_nft(e, true, &host, err);
    if (code != SBX_OK)
        deny_swap(e, old, old_count);
    else
        egress_service_reconfigure(e);
    return code;
}

/* Puts the host's forwarding back to what it was, unless somebody else has rules for it by now. */
static void restore_forwarding(struct egress *e)
{
    static const char *const argv[] = { "nft", "list", "chains", NULL };
    SCOPED_BUF struct buf out = BUF_INIT(EGRESS_SCRIPT_MAX);
    struct sbx_err err = { 0 };
    char mark[EGRESS_PATH_SIZE * 2];

    mark_path(e, mark);
    if (access(mark, F_OK) < 0 ||
        process_run(argv, NULL, 0, &out, EGRESS_TOOL_MS, &err) != SBX_OK ||
        (out.data != NULL && strstr(out.data, "hook forward") != NULL))
        return;
    if (egress_sysctl(NULL, "net.ipv4.ip_forward", "0", &err) == SBX_OK)
        (void)unlink(mark);
}

/* Everything of this gateway on the host, sandboxes apart. */
static void take_down(struct egress *e)
{
    SCOPED_BUF struct buf script = BUF_INIT(EGRESS_SCRIPT_MAX);
    struct sbx_err err = { 0 };

    (void)buf_printf(&script, "add table inet sbx_%s\ndelete table inet sbx_%s\n", e->tag, e->tag);
    if (egress_nft(e, true, &script, &err) != SBX_OK)
        log_err(LOG_WARN, "the host's rules stay", &err);
    else
        restore_forwarding(e);
    buf_clear(&script);
    (void)buf_printf(&script, "link del %s\nnetns del %s\n", e->host_link, e->ns);
    egress_ip_try(NULL, &script);
    if (egress_ns_there(e->ns))
        log_warn("the gateway's network namespace stays", LOG_S("tag", e->tag));
}

void egress_close(struct egress *e)
{
    if (e == NULL)
        return;
    egress_service_stop(e);
    egress_spares_remove(e);
    if (e->entries == NULL && egress_ns_there(e->ns))
        take_down(e);
    while (e->entries != NULL) {
        struct egress_entry *n = e->entries;

        e->entries = n->next;
        egress_entry_free(n);
    }
    for (size_t i = 0; e->helper != NULL && e->helper[i] != NULL; i++)
        free(e->helper[i]);
    free(e->helper);
    free(e->slots);
    (void)pthread_cond_destroy(&e->changed);
    (void)pthread_mutex_destroy(&e->lock);
    free(e);
}

static bool keep_none(void *arg, const char *id)
{
    (void)arg;
    (void)id;
    return false;
}

void egress_purge(struct egress *e)
{
    struct sbx_err err = { 0 };
    size_t removed;

    if (e == NULL)
        return;
    if (egress_sweep(e, keep_none, NULL, &removed, &err) != SBX_OK)
        log_err(LOG_WARN, "not every sandbox's network could be removed", &err);
    egress_close(e);
}
