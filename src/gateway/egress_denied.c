#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "gateway/egress_impl.h"

/* What was refused, out of the rules' own counters and the proxy's. */

enum { LISTING_MAX = 64 << 20, LINES_MAX = 20000 };

struct gather {
    struct egress *e;
    const char *id; /* NULL: all */
    struct arena *a;
    struct egress_denied *list;
    size_t count;
    int64_t *sums;   /* by slot: what the sets say */
    int64_t *totals; /* by slot: what the counter says */
};

static void add(struct gather *g, const char *id, const char *destination, const char *protocol,
                int port, int64_t count)
{
    if (g->count == LINES_MAX || count <= 0)
        return;
    g->list[g->count++] = (struct egress_denied){ .id = arena_strdup(g->a, id),
                                                  .destination = arena_strdup(g->a, destination),
                                                  .protocol = protocol,
                                                  .port = port,
                                                  .count = count };
}

static const char *protocol_of(const json_t *j)
{
    static const struct {
        const char *nft, *ours;
        int number;
    } known[] = { { "tcp", "tcp", 6 },
                  { "udp", "udp", 17 },
                  { "icmp", "icmp", 1 },
                  { "ipv6-icmp", "icmp", 58 },
                  { "icmpv6", "icmp", 58 } };
    const char *text = json_string_value(j);

    for (size_t i = 0; i < COUNT_OF(known); i++)
        if (text != NULL ? strcmp(text, known[i].nft) == 0
                         : json_integer_value(j) == known[i].number)
            return known[i].ours;
    return "other";
}

/* "d4_12": the set of slot 12; 0 when it is another set or not asked for.  Locked. */
static struct egress_entry *owner(struct gather *g, const char *name, const char *prefix)
{
    struct egress_entry *n;
    int64_t slot;

    if (!str_starts(name, prefix) ||
        !str_parse_int(name + strlen(prefix), 1, g->e->slot_max, &slot))
        return NULL;
    n = egress_entry_slot(g->e, (unsigned)slot);
    return n != NULL && (g->id == NULL || strcmp(n->id, g->id) == 0) ? n : NULL;
}

/* {"elem": {"val": {"concat": [address, protocol, port?]}, "counter": {"packets": n}}} */
static void read_set(struct gather *g, const json_t *set)
{
    static const char *const prefixes[] = { "d4_", "d6_", "e4_", "e6_" };
    const char *name = json_get_str(set, "name", "");
    const json_t *elems = json_object_get(set, "elem");
    struct egress_entry *n = NULL;

    for (size_t i = 0; n == NULL && i < COUNT_OF(prefixes); i++)
        n = owner(g, name, prefixes[i]);
    for (size_t i = 0; n != NULL && i < json_array_size(elems); i++) {
        const json_t *elem = json_object_get(json_array_get(elems, i), "elem");
        const json_t *parts = json_object_get(json_object_get(elem, "val"), "concat");
        const char *address = json_string_value(json_array_get(parts, 0));
        int64_t packets = json_get_int(json_object_get(elem, "counter"), "packets", 0);

        if (address == NULL)
            continue;
        g->sums[n->slot] += packets;
        add(g, n->id, address, protocol_of(json_array_get(parts, 1)),
            (int)json_integer_value(json_array_get(parts, 2)), packets);
    }
}

static void read_listing(struct gather *g, const json_t *root)
{
    const json_t *list = json_object_get(root, "nftables");

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        const json_t *set = json_object_get(item, "set");
        const json_t *counter = json_object_get(item, "counter");
        struct egress_entry *n;

        if (set != NULL)
            read_set(g, set);
        n = counter != NULL ? owner(g, json_get_str(counter, "name", ""), "n") : NULL;
        if (n != NULL)
            g->totals[n->slot] = json_get_int(counter, "packets", 0);
    }
}

static void read_proxy(struct gather *g)
{
    for (struct egress_entry *n = g->e->entries; n != NULL; n = n->next) {
        if (g->id != NULL && strcmp(g->id, n->id) != 0)
            continue;
        for (size_t i = 0; i < n->denial_count; i++)
            add(g, n->id, n->denials[i].destination, "proxy", n->denials[i].port,
                n->denials[i].count);
        add(g, n->id, "*", "proxy", 0, n->denials_more);
        add(g, n->id, "*", "other", 0, g->totals[n->slot] - g->sums[n->slot]);
    }
}

static int in_order(const void *a, const void *b)
{
    const struct egress_denied *x = a, *y = b;
    int d = strcmp(x->id, y->id);

    if (d == 0)
        d = strcmp(x->destination, y->destination);
    if (d == 0)
        d = strcmp(x->protocol, y->protocol);
    return d != 0 ? d : (x->port > y->port) - (x->port < y->port);
}

enum sbx_code egress_denied_list(struct egress *e, const char *id, struct arena *a,
                                 struct egress_denied **out, size_t *count, struct sbx_err *err)
{
    static const char *const args[] = { "list", "table", "inet", "sbx", NULL };
    SCOPED_BUF struct buf text = BUF_INIT(LISTING_MAX);
    SCOPED_JSON json_t *root = NULL;
    SCOPED_FREE int64_t *sums = mem_zalloc((e->slot_max + 1) * sizeof(*sums));
    SCOPED_FREE int64_t *totals = mem_zalloc((e->slot_max + 1) * sizeof(*totals));
    struct gather g = { .e = e, .id = id, .a = a, .sums = sums, .totals = totals };
    enum sbx_code code = egress_nft_json(e, args, &text, err);

    if (code == SBX_OK)
        code = json_parse_object(text.data, text.len, &root, err);
    if (code != SBX_OK)
        return egress_err_instead(err, SBX_E_INTERNAL, "the denied attempts cannot be read");
    g.list = arena_zalloc(a, LINES_MAX * sizeof(*g.list));
    pthread_mutex_lock(&e->lock);
    read_listing(&g, root);
    read_proxy(&g);
    pthread_mutex_unlock(&e->lock);
    qsort(g.list, g.count, sizeof(*g.list), in_order);
    *out = g.list;
    *count = g.count;
    return SBX_OK;
}

/* What the rules have counted since the gateway's namespace was made; -1: not to be read. */
static int64_t counted(struct egress *e)
{
    static const char *const args[] = { "list", "counter", "inet", "sbx", "denied", NULL };
    SCOPED_BUF struct buf text = BUF_INIT(LISTING_MAX);
    SCOPED_JSON json_t *root = NULL;
    struct sbx_err err = { 0 };
    const json_t *list;

    if (egress_nft_json(e, args, &text, &err) != SBX_OK ||
        json_parse_object(text.data, text.len, &root, &err) != SBX_OK)
        return -1;
    list = json_object_get(root, "nftables");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *counter = json_object_get(json_array_get(list, i), "counter");

        if (counter != NULL)
            return json_get_int(counter, "packets", -1);
    }
    return -1;
}

void egress_denied_begin(struct egress *e)
{
    int64_t now = counted(e);

    e->denied_before = now > 0 ? now : 0;
}

int64_t egress_denied_total(struct egress *e)
{
    int64_t now = counted(e), proxy;

    pthread_mutex_lock(&e->lock);
    proxy = e->proxy_denied;
    pthread_mutex_unlock(&e->lock);
    return now < 0 ? -1 : now - e->denied_before + proxy;
}

json_t *egress_features(struct egress *e)
{
    json_t *j = json_object();

    pthread_mutex_lock(&e->lock);
    json_put_bool(j, "egressDefault", e->resolver.ready);
    json_put_bool(j, "egressAddress", true);
    json_put_bool(j, "egressDomain", e->helper != NULL && e->proxy.failures == 0);
    json_put_bool(j, "egressIpv6", e->ipv6);
    if (e->proxy.why[0] != 0)
        json_put_str(j, "egressProxyReason", e->proxy.why);
    if (e->resolver.why[0] != 0)
        json_put_str(j, "egressResolverReason", e->resolver.why);
    pthread_mutex_unlock(&e->lock);
    return j;
}
