#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "gateway/egress_impl.h"

/* The egress proxy: squid, in the gateway namespace, shared by all sandboxes.
 *
 * It learns which sandbox asks from the PROXY header that egress_dial_proxy sends ahead
 * of the sandbox's own bytes (the sandbox's address in the pool, which it can neither
 * choose nor send); it asks the gateway about every request through its external ACL
 * helper; it resolves names by the gateway's resolver, which drops infrastructure
 * answers, looks at the addresses once more (acl dst), and what still gets out meets the
 * namespace's output chain. */

enum { FIELDS = 4, HOST_FIELD_MAX = 1024 };

static void configure(const struct egress *e, struct buf *out)
{
    (void)buf_printf(
        out,
        "http_port 127.0.0.1:%d require-proxy-header\n"
        "acl near src 127.0.0.1\nproxy_protocol_access allow near\nproxy_protocol_access deny all\n"
        "external_acl_type sandbox ttl=0 negative_ttl=0 cache=0 children-max=1 children-startup=1 "
        "concurrency=4096 queue-size=8192 ipv4 %%SRC %%DST %%PORT",
        EGRESS_PROXY_PORT);
    for (size_t i = 0; e->helper[i] != NULL; i++)
        (void)buf_printf(out, " %s", e->helper[i]);
    (void)buf_printf(out, " sbx-%s-egress\n", e->tag);
    (void)buf_puts(out, "acl allowed external sandbox ask\nacl noted external sandbox note\n"
                        "acl tunnel method CONNECT\nacl web proto HTTP\n");
    for (const struct netrule_range *r = netrule_ranges; r->text != NULL; r++)
        (void)buf_printf(out, "acl infra dst %s\n", r->text);
    for (size_t i = 0; i < e->deny_count; i++) {
        char text[NETRULE_TEXT_SIZE];

        netrule_cidr_print(&e->deny[i], text);
        (void)buf_printf(out, "acl infra dst %s\n", text);
    }
    (void)buf_puts(out,
                   "http_access deny manager\nhttp_access deny !allowed\n"
                   "http_access deny !tunnel !web noted\nhttp_access deny infra noted\n"
                   "http_access deny infra\nhttp_access allow all\n"
                   "dns_nameservers 127.0.0.1\nhosts_file none\ndns_defnames off\n"
                   "positive_dns_ttl 1 minute\nnegative_dns_ttl 1 second\n"
                   "cache deny all\ncache_mem 8 MB\nmemory_pools off\nclient_db off\n"
                   "access_log none\ncache_log /dev/null\ncache_store_log none\npid_filename none\n"
                   "netdb_filename none\ncoredump_dir none\npinger_enable off\n"
                   "icp_port 0\nsnmp_port 0\nvia off\nforwarded_for delete\n"
                   "httpd_suppress_version_string on\nvisible_hostname egress\n"
                   "shutdown_lifetime 0 seconds\nconnect_timeout 20 seconds\n"
                   "max_filedescriptors 16384\nhalf_closed_clients off\n"
                   "server_persistent_connections off\nquick_abort_min 0 KB\n"
                   "read_ahead_gap 1 MB\ntcp_recv_bufsize 1 MB\n");
}

const struct egress_child_kind egress_child_proxy = {
    .name = "squid",
    .user = "proxy",
    .port = EGRESS_PROXY_PORT,
    .flags = { "-N", "-f" },
    .configure = configure,
};

/* squid writes fields with %XX escapes. */
static bool unescape(const char *text, char *out, size_t size)
{
    size_t n = 0;

    for (const char *p = text; *p != 0; p++) {
        char c = *p;

        if (c == '%') {
            char hex[3] = { p[1], p[1] != 0 ? p[2] : (char)0, 0 };

            if (!hash_unhex(hex, &c, 1) || c == 0)
                return false;
            p += 2;
        }
        if (n + 1 >= size)
            return false;
        out[n++] = c;
    }
    out[n] = 0;
    return true;
}

static void count(struct egress_entry *n, const char *name, int port)
{
    for (size_t i = 0; i < n->denial_count; i++)
        if (n->denials[i].port == port && strcmp(n->denials[i].destination, name) == 0) {
            n->denials[i].count++;
            return;
        }
    if (n->denial_count == EGRESS_DENIED_MAX) {
        n->denials_more++;
        return;
    }
    if (n->denials == NULL)
        n->denials = mem_zalloc(EGRESS_DENIED_MAX * sizeof(*n->denials));
    (void)str_copy(n->denials[n->denial_count].destination, NETRULE_NAME_SIZE, name);
    n->denials[n->denial_count].port = port;
    n->denials[n->denial_count++].count = 1;
}

/* The address of the PROXY header, back to a sandbox: locked. */
static struct egress_entry *who(struct egress *e, const char *src)
{
    struct in_addr a;
    uint32_t offset;

    if (inet_pton(AF_INET, src, &a) != 1)
        return NULL;
    offset = ntohl(a.s_addr) - ntohl(e->pool.s_addr);
    if (offset % EGRESS_SLOT_ADDRESSES != 2 || offset / EGRESS_SLOT_ADDRESSES > e->slot_max)
        return NULL;
    return egress_entry_slot(e, offset / EGRESS_SLOT_ADDRESSES);
}

bool egress_proxy_answer(struct egress *e, char *line)
{
    char *field[FIELDS], *rest = line;
    char host[HOST_FIELD_MAX], name[NETRULE_NAME_SIZE] = "(malformed)";
    struct egress_entry *n;
    int64_t port;
    bool ask, allowed = false;

    for (int i = 0; i < FIELDS; i++) {
        field[i] = rest;
        rest = rest != NULL ? strchr(rest, ' ') : NULL;
        if (rest != NULL)
            *rest++ = 0;
        if (field[i] == NULL)
            return false;
    }
    ask = strcmp(field[3], "ask") == 0;
    if (!str_parse_int(field[2], 0, 65535, &port))
        port = 0;
    pthread_mutex_lock(&e->lock);
    n = who(e, field[0]);
    if (n != NULL) {
        if (unescape(field[1], host, sizeof(host)))
            allowed = egress_rules_allow(e, &n->rules, host, (int)port, name);
        if (!ask || !allowed) {
            count(n, name, (int)port);
            e->proxy_denied++;
        }
    }
    pthread_mutex_unlock(&e->lock);
    return n != NULL && (allowed || !ask);
}

enum sbx_code egress_dial_proxy(struct egress *e, const char *id, int *out, struct sbx_err *err)
{
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons(EGRESS_PROXY_PORT),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    SCOPED_FD int fd = -1;
    const struct timeval patience = { .tv_sec = 1 };
    char src[INET_ADDRSTRLEN] = "", header[96];
    struct egress_entry *n;
    enum sbx_code code;
    int len;

    pthread_mutex_lock(&e->lock);
    n = egress_entry_find(e, id);
    if (n != NULL && n->rules.domain_count > 0)
        egress_addr4(e, n->slot, 2, src);
    pthread_mutex_unlock(&e->lock);
    if (src[0] == 0)
        return err_set(err, SBX_E_FORBIDDEN, "this sandbox has no egress proxy");
    code = egress_proxy_need(e, false, err);
    if (code != SBX_OK)
        return code;
    fd = egress_socket(e, AF_INET, SOCK_STREAM);
    if (fd >= 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
        return err_sys(err, SBX_E_UNAVAILABLE, "the egress proxy does not answer");
    len = snprintf(header, sizeof(header), "PROXY TCP4 %s 127.0.0.1 1 %d\r\n", src,
                   EGRESS_PROXY_PORT);
    if (write(fd, header, (size_t)len) != len)
        return err_sys(err, SBX_E_UNAVAILABLE, "the egress proxy does not answer");
    *out = fd;
    fd = -1;
    return SBX_OK;
}

/* Bytes both ways between the proxy's pipes and the gateway's socket; nothing is decided here. */
int egress_helper_main(int argc, char **argv)
{
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    struct pollfd fds[2] = { { .fd = STDIN_FILENO, .events = POLLIN }, { .events = POLLIN } };
    size_t len = argc > 0 ? strlen(argv[0]) : 0;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || len == 0 || len + 1 >= sizeof(to.sun_path))
        return EXIT_FAILURE;
    memcpy(to.sun_path + 1, argv[0], len);
    if (connect(fd, (struct sockaddr *)&to,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len)) < 0)
        return EXIT_FAILURE;
    fds[1].fd = fd;
    for (;;) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return EXIT_FAILURE;
        for (int i = 0; i < 2; i++) {
            char part[8192];
            ssize_t n, done = 0;

            if (fds[i].revents == 0)
                continue;
            n = read(fds[i].fd, part, sizeof(part));
            if (n <= 0)
                return n == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
            while (done < n) {
                ssize_t w = write(i == 0 ? fd : STDOUT_FILENO, part + done, (size_t)(n - done));

                if (w <= 0)
                    return EXIT_FAILURE;
                done += w;
            }
        }
    }
}
