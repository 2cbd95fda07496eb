/* Egress in namespaces of its own: this process moves into a fresh one that plays the host, another
 * plays the outside world.  Real nftables, unbound and squid.  Needs root. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/id.h"
#include "base/process.h"
#include "base/scoped.h"
#include "base/str.h"
#include "base/time.h"
#include "gateway/egress.h"

enum {
    RUN_MS = 30000,
    CONNECT_MS = 1500,
    PROXY_START_MS = 10000,
    MANY_MAX = 200,
    MANY = 40,
    RESERVE = 4,
    RESERVE_MS = 10000,
    SLOTS = 200
};

static struct {
    char dir[64], tag[8], outside[16], self[256];
    struct process dns;
    int servers[8];
    size_t server_count;
    struct egress *e;
} t;

static void run(const char *const *argv)
{
    struct sbx_err err = { 0 };

    if (process_run(argv, NULL, 0, NULL, RUN_MS, &err) != SBX_OK)
        fail_msg("%s %s: %s", argv[0], argv[1], err.msg);
}
#define RUN(...) run((const char *const[]){ __VA_ARGS__, NULL })

/* A socket in a namespace given by its path. */
static int socket_in(const char *ns, int domain, int type)
{
    SCOPED_FD int home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    SCOPED_FD int there = open(ns, O_RDONLY | O_CLOEXEC);
    int fd;

    assert_true(home >= 0 && there >= 0);
    assert_int_equal(setns(there, CLONE_NEWNET), 0);
    fd = socket(domain, type | SOCK_CLOEXEC, 0);
    assert_int_equal(setns(home, CLONE_NEWNET), 0);
    assert_true(fd >= 0);
    return fd;
}

static socklen_t address_of(const char *text, int port, struct sockaddr_storage *out)
{
    struct sockaddr_in *a4 = (struct sockaddr_in *)out;
    struct sockaddr_in6 *a6 = (struct sockaddr_in6 *)out;

    memset(out, 0, sizeof(*out));
    if (inet_pton(AF_INET, text, &a4->sin_addr) == 1) {
        a4->sin_family = AF_INET;
        a4->sin_port = htons((uint16_t)port);
        return sizeof(*a4);
    }
    assert_int_equal(inet_pton(AF_INET6, text, &a6->sin6_addr), 1);
    a6->sin6_family = AF_INET6;
    a6->sin6_port = htons((uint16_t)port);
    return sizeof(*a6);
}

/* 'c' connected, 'r' refused at once, 't' nothing within CONNECT_MS, 'u' unreachable. */
static char attempt(const char *ns, const char *address, int port)
{
    struct sockaddr_storage to;
    socklen_t len = address_of(address, port, &to);
    SCOPED_FD int fd = socket_in(ns, to.ss_family, SOCK_STREAM | SOCK_NONBLOCK);
    struct pollfd p = { .fd = fd, .events = POLLOUT };
    int error = 0;
    socklen_t size = sizeof(error);

    if (connect(fd, (struct sockaddr *)&to, len) < 0 && errno != EINPROGRESS)
        return 'u';
    if (poll(&p, 1, CONNECT_MS) == 0)
        return 't';
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size), 0);
    return error == 0 ? 'c' : error == ECONNREFUSED ? 'r' : 'u';
}

/* A listener of the outside world; the kernel's backlog answers for it. */
static void serve(const char *address, int port)
{
    struct sockaddr_storage at;
    socklen_t len = address_of(address, port, &at);
    char ns[64];
    int one = 1, fd;

    (void)snprintf(ns, sizeof(ns), "/run/netns/%s", t.outside);
    fd = socket_in(ns, at.ss_family, SOCK_STREAM);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(fd, 512), 0);
    t.servers[t.server_count++] = fd;
}

static void make_world(void)
{
    char net[64];
    struct process_spec spec = PROCESS_SPEC_INIT;
    struct sbx_err err = { 0 };
    const char *dns[] = { "nsenter",
                          net,
                          "dnsmasq",
                          "-k",
                          "-u",
                          "root",
                          "--no-resolv",
                          "--no-hosts",
                          "--pid-file=",
                          "--listen-address=203.0.113.53",
                          "--bind-interfaces",
                          "--address=/good.example/203.0.113.8",
                          "--address=/inside.example/10.99.0.1",
                          "--address=/meta.example/169.254.169.254",
                          "--address=/mapped.example/::ffff:10.99.0.1",
                          "--local-ttl=1",
                          NULL };

    RUN("ip", "link", "set", "lo", "up");
    RUN("ip", "netns", "add", t.outside);
    RUN("sysctl", "-qw", "net.ipv6.conf.default.accept_dad=0", "net.ipv4.ip_forward=0");
    RUN("ip", "netns", "exec", t.outside, "sysctl", "-qw", "net.ipv6.conf.default.accept_dad=0");
    RUN("ip", "link", "add", "wan0", "type", "veth", "peer", "name", "eth0", "netns", t.outside);
    RUN("ip", "addr", "add", "203.0.113.1/24", "dev", "wan0");
    RUN("ip", "addr", "add", "2001:db8:1::1/64", "dev", "wan0", "nodad");
    RUN("ip", "link", "set", "wan0", "up");
    RUN("ip", "-n", t.outside, "link", "set", "lo", "up");
    for (const char *const *a =
             (const char *const[]){ "203.0.113.8/24", "203.0.113.9/24", "203.0.113.53/24",
                                    "10.99.0.1/32", "169.254.169.254/32", "192.168.7.7/32",
                                    "2001:db8:1::8/64", "2001:db8:1::9/64", "fd77::7/128", NULL };
         *a != NULL; a++)
        if (strchr(*a, ':') != NULL)
            RUN("ip", "-n", t.outside, "addr", "add", *a, "dev", "eth0", "nodad");
        else
            RUN("ip", "-n", t.outside, "addr", "add", *a, "dev", "eth0");
    RUN("ip", "-n", t.outside, "link", "set", "eth0", "up");
    RUN("ip", "route", "add", "default", "via", "203.0.113.8");
    RUN("ip", "-6", "route", "add", "default", "via", "2001:db8:1::8");
    serve("203.0.113.8", 443);
    serve("203.0.113.9", 443);
    serve("10.99.0.1", 443);
    serve("169.254.169.254", 80);
    serve("2001:db8:1::8", 443);
    serve("fd77::7", 443);
    (void)snprintf(net, sizeof(net), "--net=/run/netns/%s", t.outside);
    spec.argv = dns;
    assert_int_equal(process_start(&spec, &t.dns, &err), SBX_OK);
}

static void open_egress(void)
{
    static const char *const upstream[] = { "203.0.113.53", NULL };
    static const char *const deny[] = { "192.168.7.0/24", "203.0.113.200", NULL };
    const char *const helper[] = { t.self, "helper", NULL };
    struct egress_config c = { .dir = t.dir,
                               .tag = t.tag,
                               .pool6 = "fd5b:1234:5678:9::/64",
                               .upstream = upstream,
                               .deny = deny,
                               .helper = helper };
    struct sbx_err err = { 0 };

    if (egress_open(&c, &t.e, &err) != SBX_OK)
        fail_msg("%s", err.msg);
}

static int setup(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        (void)fprintf(stderr, "egress needs root\n");
        return -1;
    }
    if (unshare(CLONE_NEWNET) < 0 || readlink("/proc/self/exe", t.self, sizeof(t.self) - 1) < 0)
        return -1;
    (void)snprintf(t.dir, sizeof(t.dir), "/var/tmp/sbx-egress-XXXXXX");
    if (mkdtemp(t.dir) == NULL)
        return -1;
    (void)snprintf(t.tag, sizeof(t.tag), "u%d", (int)getpid() % 10000);
    (void)snprintf(t.outside, sizeof(t.outside), "sbxo%s", t.tag);
    make_world();
    open_egress();
    return 0;
}

static int teardown(void **state)
{
    char ns[64], forwards = 0;
    SCOPED_FD int fd = -1;

    (void)state;
    egress_purge(t.e);
    /* Nothing is left: no namespace, no rule, and the host forwards no more than before. */
    (void)snprintf(ns, sizeof(ns), "/run/netns/sbx-%s-gw", t.tag);
    fd = open("/proc/sys/net/ipv4/ip_forward", O_RDONLY | O_CLOEXEC);
    if (access(ns, F_OK) == 0 || read(fd, &forwards, 1) != 1 || forwards != '0')
        return -1;
    for (size_t i = 0; i < t.server_count; i++)
        fd_close(&t.servers[i]);
    process_end(&t.dns);
    RUN("ip", "netns", "del", t.outside);
    RUN("rm", "-rf", t.dir);
    return 0;
}

static const char *new_id(void)
{
    static char ring[8][ID_SIZE];
    static int at;

    at = (at + 1) % 8;
    id_new(ring[at]);
    return ring[at];
}

static struct egress_lease attach(const char *id, bool enabled, const char *const *addresses,
                                  const char *const *domains)
{
    struct driver_network n = { .enabled = enabled, .addresses = addresses, .domains = domains };
    struct egress_lease lease = { 0 };
    struct sbx_err err = { 0 };

    if (egress_attach(t.e, id, &n, &lease, &err) != SBX_OK)
        fail_msg("%s", err.msg);
    return lease;
}

static void detach(const char *id)
{
    struct sbx_err err = { 0 };

    if (egress_detach(t.e, id, &err) != SBX_OK)
        fail_msg("%s", err.msg);
}
#define LIST(...) ((const char *const[]){ __VA_ARGS__, NULL })

static int64_t denied(const char *id, const char *destination, const char *protocol, int port)
{
    SCOPED_ARENA struct arena *a = arena_new();
    struct egress_denied *list;
    struct sbx_err err = { 0 };
    size_t n;

    if (egress_denied_list(t.e, id, a, &list, &n, &err) != SBX_OK)
        fail_msg("%s", err.msg);
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i].destination, destination) == 0 && list[i].port == port &&
            strcmp(list[i].protocol, protocol) == 0)
            return list[i].count;
    return 0;
}

/* One A or AAAA question to the sandbox's resolver: number of answers, -1 none in time. */
static int ask(const char *ns, const char *resolver, const char *name)
{
    unsigned char q[300] = { 0x12, 0x34, 1, 0, 0, 1 }, r[1500];
    struct sockaddr_storage to;
    socklen_t len = address_of(resolver, 53, &to);
    SCOPED_FD int fd = socket_in(ns, to.ss_family, SOCK_DGRAM);
    struct pollfd p = { .fd = fd, .events = POLLIN };
    size_t at = 12;

    for (const char *l = name; *l != 0;) {
        size_t n = strcspn(l, ".");

        q[at++] = (unsigned char)n;
        memcpy(q + at, l, n);
        at += n;
        l += n + (l[n] == '.');
    }
    q[at + 2] = q[at + 4] = 1;
    if (sendto(fd, q, at + 5, 0, (struct sockaddr *)&to, len) < 0 || poll(&p, 1, 3000) <= 0)
        return -1;
    if (recv(fd, r, sizeof(r), 0) < 12)
        return -1;
    return r[6] << 8 | r[7];
}

static void default_mode(void **state)
{
    const char *id = new_id(), *other = new_id();
    struct egress_lease a = attach(id, false, NULL, NULL), b = attach(other, false, NULL, NULL);
    struct sbx_err err = { 0 };

    (void)state;
    assert_int_equal(a.mode, EGRESS_DEFAULT);
    assert_false(a.proxy);
    assert_int_equal(attempt(a.netns, "203.0.113.8", 443), 'c');
    assert_int_equal(attempt(a.netns, "203.0.113.9", 443), 'c');
    assert_int_equal(attempt(a.netns, "2001:db8:1::8", 443), 'c');
    assert_int_equal(attempt(a.netns, "10.99.0.1", 443), 'r');
    assert_int_equal(attempt(a.netns, "169.254.169.254", 80), 'r');
    assert_int_equal(attempt(a.netns, "192.168.7.7", 443), 'r');
    assert_int_equal(attempt(a.netns, "fd77::7", 443), 'r');
    assert_int_equal(attempt(a.netns, "10.213.0.10", 443), 'r'); /* the other sandbox */
    assert_int_equal(attempt(a.netns, "10.213.0.5", 3128), 'r'); /* the gateway's own end */
    assert_int_equal(attempt(a.netns, "10.213.0.1", 3128), 'r'); /* the resolver's address */
    assert_int_equal(attempt(a.netns, "203.0.113.1", 443), 't'); /* the host */
    assert_int_equal(ask(a.netns, "10.213.0.1", "good.example"), 1);
    assert_int_equal(ask(a.netns, "10.213.0.1", "inside.example"), 0);
    assert_int_equal(ask(a.netns, "10.213.0.1", "meta.example"), 0);
    assert_int_equal(denied(id, "10.99.0.1", "tcp", 443), 1);
    assert_int_equal(denied(id, "169.254.169.254", "tcp", 80), 1);
    assert_int_equal(denied(other, "10.99.0.1", "tcp", 443), 0);
    assert_int_equal(egress_refresh(t.e, id, &err), SBX_OK);
    assert_int_equal(attempt(a.netns, "203.0.113.8", 443), 'c');
    detach(id);
    assert_int_equal(access(a.netns, F_OK), -1);
    assert_int_equal(attempt(b.netns, "203.0.113.8", 443), 'c');
    detach(other);
    detach(other);
}

static void one_sandbox_cannot_fill_the_table(void **state)
{
    const char *id = new_id(), *other = new_id();
    struct egress_lease a = attach(id, false, NULL, NULL), b = attach(other, false, NULL, NULL);
    struct sockaddr_storage to;
    socklen_t len = address_of("203.0.113.8", 9, &to);

    (void)state;
    for (int i = 0; i < EGRESS_CONNECTIONS_MAX + 8; i++) {
        SCOPED_FD int fd = socket_in(a.netns, AF_INET, SOCK_DGRAM);
        struct sockaddr_in from = { .sin_family = AF_INET,
                                    .sin_port = htons((uint16_t)(20000 + i)) };

        assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
        (void)sendto(fd, "x", 1, 0, (struct sockaddr *)&to, len);
    }
    assert_int_equal(attempt(a.netns, "203.0.113.8", 443), 't');
    assert_int_equal(attempt(b.netns, "203.0.113.8", 443), 'c');
    detach(id);
    detach(other);
}

static void address_mode(void **state)
{
    const char *id = new_id(), *wide = new_id();
    struct egress_lease a = attach(id, true, LIST("203.0.113.8", " ", "2001:db8:1::8/128"), NULL);
    struct egress_lease b = attach(wide, true, LIST("0.0.0.0/0", "::/0", "203.0.113.8"), NULL);

    (void)state;
    assert_int_equal(a.mode, EGRESS_ADDRESS);
    assert_int_equal(attempt(a.netns, "203.0.113.8", 443), 'c');
    assert_int_equal(attempt(a.netns, "203.0.113.9", 443), 'r');
    assert_int_equal(attempt(a.netns, "2001:db8:1::8", 443), 'c');
    assert_int_equal(attempt(a.netns, "2001:db8:1::9", 443), 'r');
    assert_int_equal(ask(a.netns, "10.213.0.1", "good.example"), -1);
    assert_int_equal(ask(a.netns, "203.0.113.53", "good.example"), -1);
    assert_int_equal(denied(id, "203.0.113.53", "udp", 53), 1);
    assert_int_equal(attempt(b.netns, "203.0.113.9", 443), 'c');
    assert_int_equal(attempt(b.netns, "10.99.0.1", 443), 'r');
    assert_int_equal(attempt(b.netns, "169.254.169.254", 80), 'r');
    assert_int_equal(attempt(b.netns, "fd77::7", 443), 'r');
    detach(id);
    detach(wide);
}

/* Namespaces of sandboxes, attached or in reserve. */
static unsigned namespaces(void)
{
    char prefix[32];
    DIR *dir = opendir("/run/netns");
    struct dirent *d;
    unsigned count = 0;

    (void)snprintf(prefix, sizeof(prefix), "sbx-%s-s", t.tag);
    assert_non_null(dir);
    while ((d = readdir(dir)) != NULL)
        count += str_starts(d->d_name, prefix);
    (void)closedir(dir);
    return count;
}

static void await_reserve(unsigned attached)
{
    int64_t deadline = time_mono_ms() + RESERVE_MS;

    while (namespaces() != attached + RESERVE && time_mono_ms() < deadline)
        (void)usleep(20000);
    assert_int_equal(namespaces(), attached + RESERVE);
}

static ino_t inode_of(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 ? st.st_ino : 0;
}

static int slot_of(const char *netns)
{
    int slot = atoi(strrchr(netns, 's') + 1);

    assert_in_range(slot, 1, SLOTS - 1);
    return slot;
}

/* One in reserve has the default's rules: they are right for who takes it as it is, and gone for
 * who may do less. */
static void networks_in_reserve(void **state)
{
    const char *id = new_id(), *strict = new_id();
    struct egress_lease a, b;
    ino_t made[SLOTS] = { 0 };

    (void)state;
    await_reserve(0);
    for (int i = 0; i < SLOTS; i++) {
        char path[64];

        (void)snprintf(path, sizeof(path), "/run/netns/sbx-%s-s%d", t.tag, i);
        made[i] = inode_of(path);
    }
    a = attach(id, false, NULL, NULL);
    b = attach(strict, true, LIST("203.0.113.8"), NULL);
    assert_int_equal(made[slot_of(a.netns)], inode_of(a.netns));
    assert_int_equal(made[slot_of(b.netns)], inode_of(b.netns));
    assert_int_equal(attempt(a.netns, "203.0.113.9", 443), 'c');
    assert_int_equal(attempt(a.netns, "10.99.0.1", 443), 'r');
    assert_int_equal(ask(a.netns, "10.213.0.1", "good.example"), 1);
    assert_int_equal(denied(id, "10.99.0.1", "tcp", 443), 1);
    assert_int_equal(attempt(b.netns, "203.0.113.8", 443), 'c');
    assert_int_equal(attempt(b.netns, "203.0.113.9", 443), 'r');
    assert_int_equal(ask(b.netns, "10.213.0.1", "good.example"), -1);
    await_reserve(2);
    detach(id);
    detach(strict);
    await_reserve(0);
}

static void refusals(void **state)
{
    static const char *const bad[] = { "10.0.0.0/8",    "169.254.169.254", "::ffff:10.0.0.1",
                                       "192.168.7.7",   "203.0.113.200",   "2130706433",
                                       "010.0.0.1",     "fe80::1",         "example.com",
                                       "64:ff9b::a00:1" };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct driver_network n = { .enabled = true, .addresses = LIST("203.0.113.8", bad[i]) };
        struct egress_lease lease;
        struct sbx_err err = { 0 };

        assert_int_equal(egress_attach(t.e, new_id(), &n, &lease, &err), SBX_E_INVALID);
        assert_non_null(strstr(err.msg, bad[i]));
    }
    {
        struct driver_network n = { .enabled = true, .addresses = LIST(" ") };
        struct egress_lease lease;
        struct sbx_err err = { 0 };

        assert_int_equal(egress_attach(t.e, new_id(), &n, &lease, &err), SBX_E_INVALID);
    }
}

/* The proxy starts anew with the gateway: until then a connection is refused, and the relay says so
 * to the sandbox. */
static int dial_proxy(const char *id)
{
    int64_t deadline = time_mono_ms() + PROXY_START_MS;
    struct sbx_err err = { 0 };
    int fd = -1;

    while (egress_dial_proxy(t.e, id, &fd, &err) == SBX_E_UNAVAILABLE &&
           time_mono_ms() < deadline) {
        err = (struct sbx_err){ 0 };
        (void)usleep(50000);
    }
    if (fd < 0)
        fail_msg("%s", err.msg);
    return fd;
}

/* One request through the proxy, as the sandbox's relay would send it: the answer's status. */
static int through_proxy(const char *id, const char *request)
{
    char answer[4096] = "";
    SCOPED_FD int fd = dial_proxy(id);
    struct pollfd p = { .fd = fd, .events = POLLIN };
    size_t len = 0;
    int status = 0;

    assert_int_equal(write(fd, request, strlen(request)), (ssize_t)strlen(request));
    while (len < 12 && poll(&p, 1, 5000) > 0) {
        ssize_t n = read(fd, answer + len, sizeof(answer) - len - 1);

        if (n <= 0)
            break;
        len += (size_t)n;
    }
    (void)sscanf(answer, "HTTP/%*d.%*d %d", &status);
    return status;
}

static void domain_mode(void **state)
{
    const char *id = new_id(), *none = new_id();
    struct egress_lease a =
        attach(id, false, NULL, LIST("good.example", "*.inside.example", "meta.example"));
    struct sbx_err err = { 0 };
    int fd;

    (void)state;
    assert_int_equal(a.mode, EGRESS_DOMAIN);
    assert_true(a.proxy);
    assert_string_equal(a.netns, "");
    assert_int_equal(through_proxy(id, "CONNECT good.example:443 HTTP/1.1\r\n\r\n"), 200);
    assert_int_equal(through_proxy(id, "CONNECT GOOD.example.:443 HTTP/1.1\r\n\r\n"), 200);
    assert_int_equal(through_proxy(id, "CONNECT good.example:22 HTTP/1.1\r\n\r\n"), 403);
    assert_int_equal(through_proxy(id, "CONNECT evilgood.example:443 HTTP/1.1\r\n\r\n"), 403);
    assert_int_equal(through_proxy(id, "CONNECT good.example.evil.test:443 HTTP/1.1\r\n\r\n"), 403);
    assert_int_equal(through_proxy(id, "CONNECT 203.0.113.8:443 HTTP/1.1\r\nHost: good.example\r\n"
                                       "\r\n"),
                     403);
    assert_int_not_equal(through_proxy(id, "CONNECT a.inside.example:443 HTTP/1.1\r\n\r\n"), 200);
    assert_int_not_equal(through_proxy(id, "GET http://meta.example/ HTTP/1.1\r\n\r\n"), 200);
    assert_int_equal(denied(id, "evilgood.example", "proxy", 443), 1);
    assert_int_equal(denied(id, "good.example", "proxy", 22), 1);
    assert_int_equal(denied(id, "good.example", "proxy", 443), 0);
    (void)attach(none, false, NULL, NULL);
    assert_int_equal(egress_dial_proxy(t.e, none, &fd, &err), SBX_E_FORBIDDEN);
    detach(none);
    detach(id);
    err = (struct sbx_err){ 0 };
    assert_int_equal(egress_dial_proxy(t.e, id, &fd, &err), SBX_E_FORBIDDEN);
}

static void combined_mode(void **state)
{
    const char *id = new_id();
    struct egress_lease a = attach(id, true, LIST("203.0.113.9"), LIST("good.example"));

    (void)state;
    assert_int_equal(a.mode, EGRESS_COMBINED);
    assert_true(a.proxy);
    assert_int_equal(attempt(a.netns, "203.0.113.9", 443), 'c');
    assert_int_equal(attempt(a.netns, "203.0.113.8", 443), 'r');
    assert_int_equal(through_proxy(id, "CONNECT good.example:443 HTTP/1.1\r\n\r\n"), 200);
    assert_int_equal(through_proxy(id, "CONNECT 203.0.113.9:443 HTTP/1.1\r\n\r\n"), 200);
    assert_int_equal(through_proxy(id, "CONNECT 203.0.113.8:443 HTTP/1.1\r\n\r\n"), 403);
    detach(id);
}

static const char *kept;

static bool keep(void *arg, const char *id)
{
    (void)arg;
    return strcmp(id, kept) == 0;
}

static void a_restart_adopts(void **state)
{
    const char *id = new_id(), *stray = new_id(), *renamed = new_id();
    struct egress_lease a = attach(id, true, LIST("203.0.113.8"), LIST("good.example"));
    struct egress_lease b = attach(stray, false, NULL, NULL), again;
    struct sbx_err err = { 0 };
    char ns[64], path[96];
    size_t removed;

    (void)state;
    egress_close(t.e);
    t.e = NULL;
    assert_int_equal(attempt(a.netns, "203.0.113.8", 443), 'c'); /* without any gateway */
    assert_int_equal(attempt(a.netns, "203.0.113.9", 443), 'r');
    (void)snprintf(ns, sizeof(ns), "sbx-%s-s77", t.tag); /* one that nobody knows */
    RUN("ip", "netns", "add", ns);
    open_egress();
    (void)snprintf(path, sizeof(path), "/run/netns/%s", ns);
    assert_int_equal(access(path, F_OK), -1);
    kept = id;
    assert_int_equal(egress_sweep(t.e, keep, NULL, &removed, &err), SBX_OK);
    assert_int_equal(removed, 1);
    assert_int_equal(access(b.netns, F_OK), -1);
    assert_int_equal(egress_find(t.e, id, &again, &err), SBX_OK);
    assert_memory_equal(&again, &a, sizeof(a));
    assert_int_equal(egress_rename(t.e, id, renamed, &err), SBX_OK);
    assert_int_equal(egress_find(t.e, id, &again, &err), SBX_E_NOT_FOUND);
    assert_int_equal(attempt(a.netns, "203.0.113.8", 443), 'c');
    assert_int_equal(attempt(a.netns, "203.0.113.9", 443), 'r');
    assert_int_equal(through_proxy(renamed, "CONNECT good.example:443 HTTP/1.1\r\n\r\n"), 200);
    assert_true(denied(renamed, "203.0.113.9", "tcp", 443) >= 2);
    detach(renamed);
}

static void many_with_rules(void **state)
{
    static char ids[MANY_MAX][ID_SIZE];
    const char *want = getenv("SBX_EGRESS_MANY"); /* tests/system asks for all of them */
    int many = want != NULL ? (int)strtol(want, NULL, 10) : MANY;
    char own[32], other[32];
    struct egress_lease last = { 0 };
    int64_t began = time_mono_ms(), half;

    (void)state;
    assert_in_range(many, 2, MANY_MAX);
    for (int i = 0; i < many; i++) {
        id_new(ids[i]);
        (void)snprintf(own, sizeof(own), "198.51.100.%d", i);
        last = attach(ids[i], true, LIST(own, "203.0.113.8", "2001:db8:1::8"), NULL);
    }
    half = time_mono_ms();
    (void)snprintf(other, sizeof(other), "198.51.100.%d", 0);
    assert_int_equal(attempt(last.netns, "203.0.113.8", 443), 'c');
    assert_int_equal(attempt(last.netns, "203.0.113.9", 443), 'r');
    assert_int_equal(attempt(last.netns, other, 443), 'r');
    assert_int_equal(denied(ids[many - 1], other, "tcp", 443), 1);
    for (int i = 0; i < many; i++)
        detach(ids[i]);
    (void)printf("%d attached in %lld ms each, detached in %lld ms each\n", many,
                 (long long)(half - began) / many, (long long)(time_mono_ms() - half) / many);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(default_mode),    cmocka_unit_test(one_sandbox_cannot_fill_the_table),
        cmocka_unit_test(address_mode),    cmocka_unit_test(networks_in_reserve),
        cmocka_unit_test(refusals),        cmocka_unit_test(domain_mode),
        cmocka_unit_test(combined_mode),   cmocka_unit_test(a_restart_adopts),
        cmocka_unit_test(many_with_rules),
    };

    if (argc > 2 && strcmp(argv[1], "helper") == 0)
        return egress_helper_main(argc - 2, argv + 2);
    return cmocka_run_group_tests(tests, setup, teardown);
}
