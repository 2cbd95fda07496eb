#ifndef GATEWAY_EGRESS_H
#define GATEWAY_EGRESS_H

/* What a sandbox may reach, enforced on the region host.
 *
 *	sandbox netns --veth-- gateway netns --veth-- host --(NAT)-- outside
 *	  eth0                 forward: drop          input: drop
 *	                       resolver, proxy
 *
 * One gateway namespace for each region gateway, one namespace for each sandbox that has
 * a network.  In the gateway namespace one nftables table holds a chain for each
 * sandbox; infrastructure ranges are dropped before any of them is asked, on the way
 * from a sandbox and from resolver and proxy alike.  A sandbox's rules are made in one
 * nft transaction before its link is up, and go with it.
 *
 * Modes (the seed's networkControl; its two triggers are independent):
 *	default   no trigger: out through NAT, names by the resolver
 *	address   enabled and addresses: those addresses only, no names
 *	domain    domains, not enabled: no network at all; the proxy at 127.0.0.1:3128
 *	combined  both: the addresses by the link, the domains by the proxy
 *
 * The kernel's state (namespaces, links, rules) outlives the gateway: egress_open finds
 * it again, egress_sweep removes what no sandbox owns.  Resolver and proxy are children
 * of the gateway and end with it.
 *
 * Any thread may call.  Never two calls at once for one id. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/json.h"
#include "gateway/driver.h"
#include "sbx/error.h"

enum {
    EGRESS_TAG_MAX = 5,          /* characters of a gateway's tag */
    EGRESS_SANDBOXES_MAX = 4000, /* with a network or a proxy at once */
    EGRESS_RULES_MAX = 1024,     /* entries of one list of one sandbox */
    EGRESS_DENIED_MAX = 256,     /* destinations counted for one sandbox; more go into one line */
    EGRESS_PATH_SIZE = 128,
};

/* Connections (and UDP flows) of one sandbox that are tracked at once; a new one past it is
 * dropped: the host's table is shared by all. */
#define EGRESS_CONNECTIONS_MAX 4096

struct egress;

/* Strings are copied. */
struct egress_config {
    const char *dir;   /* absolute, private to the gateway: configurations of resolver and proxy */
    const char *tag;   /* 1-EGRESS_TAG_MAX of [a-z0-9], this gateway's own on the host: stands in
                          every namespace, link and table name */
    const char *pool;  /* IPv4 /16 to /24 that sandboxes get addresses from; NULL: 10.213.0.0/16 */
    const char *pool6; /* IPv6 /64 (unique local) for sandboxes; NULL: no IPv6 in sandboxes */
    const char *const *upstream; /* addresses of the resolver's own resolvers; NULL: the host's
                                    resolv.conf; none there either: it asks the root itself */
    const char *const *deny;     /* further infrastructure ranges, CIDR; NULL: none */
    const char *const *ports;    /* the proxy's ports; NULL: 80 and 443 */
    /* argv (NULL-ended) of the proxy's helper: a program that calls egress_helper_main with what
     * follows.  NULL: no domain mode. */
    const char *const *helper;
};

enum egress_mode {
    EGRESS_NONE = 0,
    EGRESS_DEFAULT,
    EGRESS_ADDRESS,
    EGRESS_DOMAIN,
    EGRESS_COMBINED,
};

/* What a sandbox is started with. */
struct egress_lease {
    enum egress_mode mode;
    char netns[EGRESS_PATH_SIZE];       /* "/run/netns/..."; "": run it with no network at all */
    char resolv_conf[EGRESS_PATH_SIZE]; /* host file to be seen as /etc/resolv.conf */
    bool proxy; /* the agent listens at 127.0.0.1:SBX_AGENT_PROXY_PORT, HTTP(S)_PROXY are set */
};

/* Makes or adopts the gateway namespace, starts the resolver.  SBX_E_UNAVAILABLE: a program or a
 * right is missing, the message says which. */
MUST_USE enum sbx_code egress_open(const struct egress_config *config, struct egress **out,
                                   struct sbx_err *err);
/* Denies these further ranges instead of the former ones, to sandboxes that run too; connections
 * that are there go on. check: says only whether the list would do. SBX_E_INVALID names the entry
 * that is wrong, and nothing is changed. */
MUST_USE enum sbx_code egress_set_deny(struct egress *e, const char *const *deny, bool check,
                                       struct sbx_err *err);
/* Ends resolver and proxy; sandboxes keep their namespaces and rules.  When there are none, nothing
 * of this gateway stays on the host.  NULL is allowed. */
void egress_close(struct egress *e);
/* Detaches all, then closes. */
void egress_purge(struct egress *e);

/* Namespace, link, address and rules of one sandbox.  An id that is attached already is first
 * detached.  SBX_E_INVALID: an entry is malformed or in an infrastructure range; the sentence names
 * it.  SBX_E_UNAVAILABLE: no address left, or the host refuses. */
MUST_USE enum sbx_code egress_attach(struct egress *e, const char *id,
                                     const struct driver_network *network, struct egress_lease *out,
                                     struct sbx_err *err);
/* The runtime takes addresses and routes out of the namespace when it starts: puts them
 * back.  To be called before a second start in the same namespace. */
MUST_USE enum sbx_code egress_refresh(struct egress *e, const char *id, struct sbx_err *err);
/* The lease of an attached id, also after a restart of the gateway.  SBX_E_NOT_FOUND. */
MUST_USE enum sbx_code egress_find(struct egress *e, const char *id, struct egress_lease *out,
                                   struct sbx_err *err);
/* Nothing of it is left; an id that is not attached is fine. */
MUST_USE enum sbx_code egress_detach(struct egress *e, const char *id, struct sbx_err *err);
/* A warm sandbox that is claimed goes on under another id. */
MUST_USE enum sbx_code egress_rename(struct egress *e, const char *id, const char *new_id,
                                     struct sbx_err *err);
/* After a restart: detaches every id for which keep says no. *removed counts them. */
MUST_USE enum sbx_code egress_sweep(struct egress *e, bool (*keep)(void *arg, const char *id),
                                    void *arg, size_t *removed, struct sbx_err *err);

/* For a RELAY connection: a stream socket to the proxy that already says which sandbox asks.  The
 * caller copies bytes both ways and closes it.  SBX_E_FORBIDDEN: this sandbox has no proxy. */
MUST_USE enum sbx_code egress_dial_proxy(struct egress *e, const char *id, int *out,
                                         struct sbx_err *err);

/* Denied attempts since attach, in the arena: no content, no names of what was allowed. */
struct egress_denied {
    const char *id;
    const char *destination; /* address or name; "*": further ones, past EGRESS_DENIED_MAX */
    const char *protocol;    /* "tcp" "udp" "icmp" "proxy" "other" */
    int port;                /* 0: none */
    int64_t count;
};

/* id NULL: of all sandboxes, in id order. */
MUST_USE enum sbx_code egress_denied_list(struct egress *e, const char *id, struct arena *a,
                                          struct egress_denied **out, size_t *count,
                                          struct sbx_err *err);
/* Denied attempts of all sandboxes since this gateway started, ended sandboxes included; grows only.
 * -1: it cannot be read now. */
int64_t egress_denied_total(struct egress *e);
/* A new object for /v1/capacity: which modes work and why not. */
json_t *egress_features(struct egress *e);

/* The proxy's helper role: asks the gateway over its socket (argv[0]) about each request that the
 * proxy hands it on stdin.  For the program's main. */
int egress_helper_main(int argc, char **argv);

#endif
