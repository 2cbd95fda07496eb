#ifndef GATEWAY_EGRESS_IMPL_H
#define GATEWAY_EGRESS_IMPL_H

/* Shared by the egress_*.c files only. */

#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/netrule.h"
#include "base/process.h"
#include "base/thread.h"
#include "gateway/egress.h"

enum {
    EGRESS_NAME_SIZE = 48,       /* of a namespace or link */
    EGRESS_TOOL_MS = 20000,      /* one ip or nft call */
    EGRESS_SCRIPT_MAX = 1 << 20, /* bytes of one nft transaction */
    EGRESS_DENY_MAX = 256,       /* the operator's further ranges */
    EGRESS_UPSTREAM_MAX = 8,
    EGRESS_PORTS_MAX = 16,
    EGRESS_READY_MS = 10000,       /* until resolver or proxy answers */
    EGRESS_FILE_MAX = 1 << 20,     /* a sandbox's file */
    EGRESS_SLOT_ADDRESSES = 4,     /* one /30 each */
    EGRESS_PROXY_PORT = 3128,      /* squid, on the gateway namespace's loopback */
    EGRESS_CONFIG_MAX = 64 * 1024, /* bytes of a child's configuration */
};

/* A spare slot has its namespace, its links and the rules of default egress already, and nobody
 * inside who could use them: a default attach needs nothing more, any other its own nft
 * transaction. */
enum egress_slot { EGRESS_SLOT_FREE = 0, EGRESS_SLOT_TAKEN, EGRESS_SLOT_SPARE };
enum {
    EGRESS_SPARES = 4,
    EGRESS_SPARE_PAUSE_MS = 250, /* after an attach: the sandbox's start goes first */
};

/* What one sandbox asked for, checked. */
struct egress_rules {
    enum egress_mode mode;
    struct netrule_cidr *cidrs;
    size_t cidr_count;
    struct egress_domain {
        char name[NETRULE_NAME_SIZE];
        bool below;
    } * domains;
    size_t domain_count;
};

struct egress_proxy_denial {
    char destination[NETRULE_NAME_SIZE];
    int port;
    int64_t count;
};

struct egress_entry {
    struct egress_entry *next;
    char id[ID_SIZE];
    unsigned slot; /* 1.. : address, link s<slot>, and the proxy's name for it */
    struct egress_rules rules;
    struct egress_proxy_denial *denials; /* EGRESS_DENIED_MAX at most */
    size_t denial_count;
    int64_t denials_more;
};

struct egress {
    char dir[EGRESS_PATH_SIZE];
    char tag[EGRESS_TAG_MAX + 1];
    char ns[EGRESS_NAME_SIZE];      /* gateway namespace */
    char ns_path[EGRESS_PATH_SIZE]; /* /run/netns/... */
    char host_link[16];             /* host side of the uplink */
    struct in_addr pool;            /* first address */
    unsigned pool_bits;
    unsigned slot_max;
    struct in_addr uplink; /* first address of its /30 */
    bool ipv6;
    struct in6_addr pool6;
    struct netrule_cidr deny[EGRESS_DENY_MAX]; /* with lock, once the service runs */
    size_t deny_count;
    struct netrule_cidr upstream[EGRESS_UPSTREAM_MAX];
    size_t upstream_count;
    int ports[EGRESS_PORTS_MAX];
    size_t port_count;
    char **helper; /* NULL-ended; NULL: none */

    pthread_mutex_t lock; /* entries and what hangs on them */
    struct egress_entry *entries;
    unsigned char *slots; /* enum egress_slot, by number */
    unsigned spares;
    int64_t proxy_denied;  /* by the proxy since the start */
    int64_t denied_before; /* by the rules before it */
    int64_t spare_ms; /* monotonic: no new spare before */

    /* The service thread: starts, watches and restarts resolver and proxy (they die with it), and
     * answers the proxy's helper. */
    struct thread service;
    int wake_fd;            /* eventfd: stop or wanted changed */
    int helper_fd;          /* listening, in the gateway namespace */
    pthread_cond_t changed; /* with lock */
    bool stop, proxy_wanted;
    struct egress_child {
        struct process process;
        int config_fd; /* its configuration, a memory file; -1: it never ran */
        bool ready;
        int64_t started_ms, retry_ms; /* monotonic */
        int failures;
        char why[120]; /* it does not run because */
    } resolver, proxy;
};

struct egress_child_kind {
    const char *name;     /* also its program */
    const char *user;     /* and group */
    int port;             /* it listens there when it is ready */
    const char *flags[4]; /* before the configuration's path */
    void (*configure)(const struct egress *e, struct buf *out);
};
extern const struct egress_child_kind egress_child_resolver, egress_child_proxy;

/* A callee's error told anew: the first story is dropped. */
#define egress_err_instead(err, code, ...)                                                         \
    (*(err) = (struct sbx_err){ 0 }, err_set((err), (code), __VA_ARGS__))

/* egress_rules.c */
MUST_USE enum sbx_code egress_rules_parse(const struct egress *e, const struct driver_network *n,
                                          struct egress_rules *out, struct sbx_err *err);
void egress_rules_fini(struct egress_rules *r);
/* The proxy's question: may this sandbox reach host (as the client wrote it) at port? name gets the
 * form that is counted and shown. */
bool egress_rules_allow(const struct egress *e, const struct egress_rules *r, const char *host,
                        int port, char name[NETRULE_NAME_SIZE]);
json_t *egress_rules_json(const struct egress_rules *r);
bool egress_rules_from_json(const json_t *j, struct egress_rules *out);

/* egress_addr.c: who has which address. */
void egress_addr4(const struct egress *e, unsigned slot, unsigned which, char out[INET_ADDRSTRLEN]);
void egress_addr6(const struct egress *e, unsigned slot, unsigned which,
                  char out[INET6_ADDRSTRLEN]);
void egress_resolver_addr(const struct egress *e, char out[INET_ADDRSTRLEN]);
void egress_uplink4(const struct egress *e, bool gateway, char out[INET_ADDRSTRLEN]);
void egress_uplink6(const struct egress *e, bool gateway, char out[INET6_ADDRSTRLEN]);
MUST_USE enum sbx_code egress_uplink_choose(struct egress *e, struct sbx_err *err);
void egress_pool_text(const struct egress *e, bool v6, char out[NETRULE_TEXT_SIZE]);
void egress_ns_name(const struct egress *e, unsigned slot, char out[EGRESS_NAME_SIZE]);

/* egress_tool.c */
MUST_USE enum sbx_code egress_ip(const char *ns /* NULL: the host's */, const struct buf *batch,
                                 struct sbx_err *err);
/* As egress_ip, for what may be gone already. */
void egress_ip_try(const char *ns, const struct buf *batch);
MUST_USE enum sbx_code egress_nft(const struct egress *e, bool host, const struct buf *script,
                                  struct sbx_err *err);
MUST_USE enum sbx_code egress_nft_json(const struct egress *e, const char *const *args,
                                       struct buf *out, struct sbx_err *err);
MUST_USE enum sbx_code egress_sysctl(const char *ns, const char *name, const char *value,
                                     struct sbx_err *err);
bool egress_ns_there(const char *ns);
const char *egress_program(const char *name, char path[EGRESS_PATH_SIZE]); /* NULL: not there */
MUST_USE enum sbx_code egress_file_write(const struct egress *e, const char *name, const char *text,
                                         size_t len, mode_t mode, struct sbx_err *err);

/* egress_denied.c: what was counted before this gateway is not its own. */
void egress_denied_begin(struct egress *e);

/* egress_nft.c: rule texts. */
/* The denied ranges of both tables anew, in the host's or the gateway's. */
void egress_nft_deny(const struct egress *e, bool host, struct buf *out);
void egress_nft_gateway(const struct egress *e, struct buf *out); /* base, also over an older one */
void egress_nft_host(const struct egress *e, bool close_forwarding, struct buf *out);
void egress_nft_attach(const struct egress *e, const struct egress_entry *n, struct buf *out);
void egress_nft_detach(const struct egress *e, unsigned slot, struct buf *out);

/* egress_resolver.c */
void egress_upstream_from_host(struct egress *e);

/* egress_attach.c */
/* Makes one spare; a failure is logged and tried again later. Without the lock. */
void egress_spare_make(struct egress *e);
void egress_spares_remove(struct egress *e);
/* Namespaces of this gateway whose slot nobody has. */
MUST_USE enum sbx_code egress_strays_remove(struct egress *e, size_t *removed, struct sbx_err *err);

/* egress_service.c */
MUST_USE enum sbx_code egress_service_start(struct egress *e, struct sbx_err *err);
void egress_service_stop(struct egress *e);
void egress_service_wake(struct egress *e); /* what it waits for has changed */
/* Resolver and proxy, when they run, take over the denied ranges of now and go on. */
void egress_service_reconfigure(struct egress *e);
/* A proxy that runs and answers, started when it is first needed. */
MUST_USE enum sbx_code egress_proxy_need(struct egress *e, bool wait, struct sbx_err *err);
/* A socket of the gateway namespace, whatever namespace the caller is in; -1 with errno. */
int egress_socket(const struct egress *e, int domain, int type);
int egress_socket_of(const struct egress *e, int domain, int type, int protocol);

/* egress_flows.c */
MUST_USE enum sbx_code egress_flows_end(const struct egress *e, unsigned slot, struct sbx_err *err);

/* egress_proxy.c: one line of the helper's ("SRC DST PORT ask|note") gets its answer. */
bool egress_proxy_answer(struct egress *e, char *line);

/* egress_entry.c */
struct egress_entry *egress_entry_find(struct egress *e, const char *id); /* locked */
struct egress_entry *egress_entry_slot(struct egress *e, unsigned slot);  /* locked */
/* Out of the table; its slot stays taken until the kernel's part is gone.  NULL: none.  Locked. */
struct egress_entry *egress_entry_take(struct egress *e, const char *id);
void egress_entry_free(struct egress_entry *n);
MUST_USE enum sbx_code egress_entry_write(const struct egress *e, const struct egress_entry *n,
                                          struct sbx_err *err);
void egress_entry_unlink(const struct egress *e, const char *id);
MUST_USE enum sbx_code egress_entries_read(struct egress *e, struct sbx_err *err);

#endif
