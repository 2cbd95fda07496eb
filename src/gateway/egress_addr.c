#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/scoped.h"
#include "gateway/egress_impl.h"

/* The pool in pieces of four addresses.  Piece 0: .1 is the resolver.  Piece n: .1 the
 * gateway's end, .2 the sandbox's.  IPv6 the same, 65,536 addresses a piece, and the last
 * piece is the uplink.
 *
 * The pool is seen inside the gateway namespace only (it is masqueraded on its way out),
 * so gateways on one host may have the same.  What the host sees is the IPv4 uplink: a /30
 * out of 169.254.192.0/18, of which no network that the host could be in routes anything. */

enum { UPLINK6 = 0xffffff, UPLINK_PIECES = 4096, UPLINK_TRIES = 64 };
static const uint32_t uplink_base = 0xa9fec000; /* 169.254.192.0 */

static void text4(const struct egress *e, uint32_t offset, char out[INET_ADDRSTRLEN])
{
    struct in_addr a = { .s_addr = htonl(ntohl(e->pool.s_addr) + offset) };

    (void)inet_ntop(AF_INET, &a, out, INET_ADDRSTRLEN);
}

void egress_addr4(const struct egress *e, unsigned slot, unsigned which, char out[INET_ADDRSTRLEN])
{
    text4(e, slot * EGRESS_SLOT_ADDRESSES + which, out);
}

void egress_addr6(const struct egress *e, unsigned slot, unsigned which, char out[INET6_ADDRSTRLEN])
{
    struct in6_addr a = e->pool6;

    a.s6_addr[11] = (unsigned char)(slot >> 16 & 0xff);
    a.s6_addr[12] = (unsigned char)(slot >> 8 & 0xff);
    a.s6_addr[13] = (unsigned char)(slot & 0xff);
    a.s6_addr[15] = (unsigned char)which;
    (void)inet_ntop(AF_INET6, &a, out, INET6_ADDRSTRLEN);
}

void egress_resolver_addr(const struct egress *e, char out[INET_ADDRSTRLEN])
{
    egress_addr4(e, 0, 1, out);
}

void egress_uplink4(const struct egress *e, bool gateway, char out[INET_ADDRSTRLEN])
{
    struct in_addr a = { .s_addr = htonl(ntohl(e->uplink.s_addr) + (gateway ? 2 : 1)) };

    (void)inet_ntop(AF_INET, &a, out, INET_ADDRSTRLEN);
}

static bool read_uplink(struct egress *e)
{
    char path[EGRESS_PATH_SIZE * 2], text[INET_ADDRSTRLEN] = "";
    SCOPED_FD int fd = -1;

    (void)snprintf(path, sizeof(path), "%s/uplink", e->dir);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 &&
           inet_pton(AF_INET, text, &e->uplink) == 1;
}

enum sbx_code egress_uplink_choose(struct egress *e, struct sbx_err *err)
{
    unsigned piece = crc32_of(e->tag, strlen(e->tag)) % UPLINK_PIECES;

    if (read_uplink(e))
        return SBX_OK;
    for (int i = 0; i < UPLINK_TRIES; i++, piece = (piece + 1) % UPLINK_PIECES) {
        SCOPED_BUF struct buf out = BUF_INIT(EGRESS_SCRIPT_MAX);
        char text[INET_ADDRSTRLEN], net[INET_ADDRSTRLEN + 3];
        const char *argv[] = { "ip", "-4", "-o", "addr", "show", "to", net, NULL };
        enum sbx_code code;

        e->uplink.s_addr = htonl(uplink_base + piece * EGRESS_SLOT_ADDRESSES);
        (void)inet_ntop(AF_INET, &e->uplink, text, sizeof(text));
        (void)snprintf(net, sizeof(net), "%s/30", text);
        code = process_run(argv, NULL, 0, &out, EGRESS_TOOL_MS, err);
        if (code != SBX_OK)
            return code;
        if (out.len == 0)
            return egress_file_write(e, "uplink", text, strlen(text), 0600, err);
    }
    return err_set(err, SBX_E_UNAVAILABLE, "no address is left for the gateway's uplink");
}

void egress_uplink6(const struct egress *e, bool gateway, char out[INET6_ADDRSTRLEN])
{
    egress_addr6(e, UPLINK6, gateway ? 2 : 1, out);
}

void egress_pool_text(const struct egress *e, bool v6, char out[NETRULE_TEXT_SIZE])
{
    struct netrule_cidr c = { .family = v6 ? 6 : 4,
                              .bits = (unsigned char)(v6 ? 64 : e->pool_bits) };

    if (v6)
        memcpy(c.addr, &e->pool6, sizeof(e->pool6));
    else
        memcpy(c.addr, &e->pool, sizeof(e->pool));
    netrule_cidr_print(&c, out);
}

void egress_ns_name(const struct egress *e, unsigned slot, char out[EGRESS_NAME_SIZE])
{
    (void)snprintf(out, EGRESS_NAME_SIZE, "sbx-%s-s%u", e->tag, slot);
}
