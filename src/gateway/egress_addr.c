#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "gateway/egress_impl.h"

/* The pool in pieces of four addresses.  Piece 0: .1 is the resolver.  Piece n: .1 the
 * gateway's end, .2 the sandbox's.  The last piece: .1 the host's end of the uplink, .2
 * the gateway's.  IPv6 the same, 65,536 addresses a piece. */

enum { UPLINK6 = 0xffffff };

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
    egress_addr4(e, e->slot_max + 1, gateway ? 2 : 1, out);
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
