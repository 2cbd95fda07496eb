#include <assert.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "base/time.h"
#include "gateway/egress_impl.h"

static bool linked(enum egress_mode mode)
{
    return mode == EGRESS_DEFAULT || mode == EGRESS_ADDRESS || mode == EGRESS_COMBINED;
}

static void lease_of(const struct egress *e, const struct egress_entry *n, struct egress_lease *out)
{
    char ns[EGRESS_NAME_SIZE];

    *out = (struct egress_lease){ .mode = n->rules.mode, .proxy = n->rules.domain_count > 0 };
    (void)snprintf(out->resolv_conf, sizeof(out->resolv_conf), "%.100s/%s", e->dir,
                   n->rules.mode == EGRESS_DEFAULT ? "resolv.conf" : "resolv.none");
    if (!linked(n->rules.mode))
        return;
    egress_ns_name(e, n->slot, ns);
    (void)snprintf(out->netns, sizeof(out->netns), "/run/netns/%s", ns);
}

/* The sandbox's own end: also after a runtime has taken it over once. */
static enum sbx_code inner_end(const struct egress *e, unsigned slot, struct sbx_err *err)
{
    SCOPED_BUF struct buf script = BUF_INIT(EGRESS_SCRIPT_MAX);
    char ns[EGRESS_NAME_SIZE], own4[INET_ADDRSTRLEN], gw4[INET_ADDRSTRLEN];
    char own6[INET6_ADDRSTRLEN], gw6[INET6_ADDRSTRLEN];

    egress_ns_name(e, slot, ns);
    egress_addr4(e, slot, 1, gw4);
    egress_addr4(e, slot, 2, own4);
    egress_addr6(e, slot, 1, gw6);
    egress_addr6(e, slot, 2, own6);
    (void)buf_printf(&script, "link set lo up\naddr replace %s/30 dev eth0\nlink set eth0 up\n",
                     own4);
    if (e->ipv6)
        (void)buf_printf(&script, "addr replace %s/126 dev eth0 nodad\n", own6);
    (void)buf_printf(&script, "route replace default via %s\n", gw4);
    if (e->ipv6)
        (void)buf_printf(&script, "route replace default via %s\n", gw6);
    return egress_ip(ns, &script, err);
}

static enum sbx_code make_rules(const struct egress *e, const struct egress_entry *n,
                                struct sbx_err *err)
{
    SCOPED_BUF struct buf script = BUF_INIT(EGRESS_SCRIPT_MAX);

    egress_nft_attach(e, n, &script);
    return egress_nft(e, false, &script, err);
}

static enum sbx_code make_links(const struct egress *e, unsigned slot, struct sbx_err *err)
{
    SCOPED_BUF struct buf script = BUF_INIT(EGRESS_SCRIPT_MAX);
    char ns[EGRESS_NAME_SIZE], gw4[INET_ADDRSTRLEN], gw6[INET6_ADDRSTRLEN];
    enum sbx_code code;

    egress_ns_name(e, slot, ns);
    egress_addr4(e, slot, 1, gw4);
    egress_addr6(e, slot, 1, gw6);
    (void)buf_printf(&script,
                     "netns add %s\nlink add s%u type veth peer name eth0 netns %s\n"
                     "addr add %s/30 dev s%u\n",
                     ns, slot, ns, gw4, slot);
    if (!e->ipv6) {
        (void)buf_printf(&script, "link set s%u up\n", slot);
        code = egress_ip(e->ns, &script, err);
        return code == SBX_OK ? inner_end(e, slot, err) : code;
    }
    (void)buf_printf(&script, "addr add %s/126 dev s%u nodad\n", gw6, slot);
    code = egress_ip(e->ns, &script, err);
    /* The inner end first: the gateway's then has its carrier as it comes up, and with it the
     * link-local address that IPv6 forwarding needs; the other way round that takes a second. */
    if (code == SBX_OK)
        code = inner_end(e, slot, err);
    buf_clear(&script);
    (void)buf_printf(&script, "link set s%u up\n", slot);
    return code == SBX_OK ? egress_ip(e->ns, &script, err) : code;
}

/* Nothing of the slot is left; what is gone already is fine.  The link by its name: with the
 * namespace alone it would go some time later. */
static enum sbx_code kernel_remove(const struct egress *e, unsigned slot, struct sbx_err *err)
{
    SCOPED_BUF struct buf script = BUF_INIT(EGRESS_SCRIPT_MAX);
    char ns[EGRESS_NAME_SIZE];
    enum sbx_code code;

    egress_ns_name(e, slot, ns);
    (void)buf_printf(&script, "link del s%u\nnetns del %s\n", slot, ns);
    egress_ip_try(e->ns, &script);
    if (egress_ns_there(ns))
        return err_set(err, SBX_E_INTERNAL, "the sandbox's network is still in use");
    buf_clear(&script);
    egress_nft_detach(e, slot, &script);
    code = egress_nft(e, false, &script, err);
    return code == SBX_OK ? egress_flows_end(e, slot, err) : code;
}

/* A free slot, spare ones first when a link is wanted; 0: none.  Locked. */
static unsigned slot_take(struct egress *e, bool spare)
{
    for (unsigned slot = 1; spare && e->spares > 0 && slot <= e->slot_max; slot++)
        if (e->slots[slot] == EGRESS_SLOT_SPARE) {
            e->spares--;
            e->slots[slot] = EGRESS_SLOT_TAKEN;
            return slot;
        }
    for (unsigned slot = 1; slot <= e->slot_max; slot++)
        if (e->slots[slot] == EGRESS_SLOT_FREE) {
            e->slots[slot] = EGRESS_SLOT_TAKEN;
            return slot;
        }
    return 0;
}

/* A slot for the id; the entry is in the table when this is SBX_OK. */
static enum sbx_code reserve(struct egress *e, struct egress_entry *n, bool *spare,
                             struct sbx_err *err)
{
    unsigned before;
    enum sbx_code code = SBX_OK;

    pthread_mutex_lock(&e->lock);
    before = e->spares;
    n->slot = slot_take(e, *spare);
    *spare = e->spares < before;
    e->spare_ms = time_mono_ms() + EGRESS_SPARE_PAUSE_MS;
    if (n->slot == 0) {
        code = err_set(err, SBX_E_UNAVAILABLE, "the region has no network address left");
    } else {
        n->next = e->entries;
        e->entries = n;
    }
    pthread_mutex_unlock(&e->lock);
    if (*spare)
        egress_service_wake(e);
    return code;
}

static void slot_free(struct egress *e, unsigned slot)
{
    pthread_mutex_lock(&e->lock);
    e->slots[slot] = EGRESS_SLOT_FREE;
    pthread_mutex_unlock(&e->lock);
}

enum sbx_code egress_attach(struct egress *e, const char *id, const struct driver_network *network,
                            struct egress_lease *out, struct sbx_err *err)
{
    struct egress_entry *n;
    struct egress_rules rules;
    struct egress_lease lease;
    bool link, spare;
    enum sbx_code code;

    pthread_mutex_lock(&e->lock);
    code = egress_rules_parse(e, network, &rules, err);
    pthread_mutex_unlock(&e->lock);
    if (code != SBX_OK)
        return code;
    assert(id_valid(id));
    code = egress_detach(e, id, err);
    if (code == SBX_OK && rules.domain_count > 0)
        code = egress_proxy_need(e, true, err);
    if (code != SBX_OK) {
        egress_rules_fini(&rules);
        return code;
    }
    n = mem_zalloc(sizeof(*n));
    n->rules = rules;
    (void)str_copy(n->id, sizeof(n->id), id);
    link = spare = linked(rules.mode);
    code = reserve(e, n, &spare, err);
    if (code != SBX_OK) {
        egress_entry_free(n);
        return code;
    }
    lease_of(e, n, &lease);
    code = egress_entry_write(e, n, err);
    /* The rules are whole before a link can carry anything; nobody is there to use a spare's. */
    if (code == SBX_OK && link && !(spare && rules.mode == EGRESS_DEFAULT))
        code = make_rules(e, n, err);
    if (code == SBX_OK && link && !spare)
        code = make_links(e, n->slot, err);
    if (code != SBX_OK) {
        struct sbx_err undo = { 0 };

        if (egress_detach(e, id, &undo) != SBX_OK)
            log_err(LOG_WARN, "a half-made network stays until the next sweep", &undo,
                    LOG_S("sandboxId", id));
        return code;
    }
    *out = lease;
    return SBX_OK;
}

enum sbx_code egress_detach(struct egress *e, const char *id, struct sbx_err *err)
{
    struct egress_entry *n;
    enum sbx_code code = SBX_OK;

    pthread_mutex_lock(&e->lock);
    n = egress_entry_take(e, id);
    pthread_mutex_unlock(&e->lock);
    if (n == NULL)
        return SBX_OK;
    if (linked(n->rules.mode))
        code = kernel_remove(e, n->slot, err);
    if (code != SBX_OK) { /* it is still there: the next try finds it again */
        pthread_mutex_lock(&e->lock);
        n->next = e->entries;
        e->entries = n;
        pthread_mutex_unlock(&e->lock);
        return code;
    }
    egress_entry_unlink(e, id);
    slot_free(e, n->slot);
    egress_entry_free(n);
    return SBX_OK;
}

enum sbx_code egress_refresh(struct egress *e, const char *id, struct sbx_err *err)
{
    struct egress_entry *n;
    unsigned slot = 0;
    bool link = false;

    pthread_mutex_lock(&e->lock);
    n = egress_entry_find(e, id);
    if (n != NULL) {
        slot = n->slot;
        link = linked(n->rules.mode);
    }
    pthread_mutex_unlock(&e->lock);
    if (slot == 0)
        return err_set(err, SBX_E_NOT_FOUND, "the sandbox has no network");
    return link ? inner_end(e, slot, err) : SBX_OK;
}

enum sbx_code egress_find(struct egress *e, const char *id, struct egress_lease *out,
                          struct sbx_err *err)
{
    struct egress_entry *n;

    pthread_mutex_lock(&e->lock);
    n = egress_entry_find(e, id);
    if (n != NULL)
        lease_of(e, n, out);
    pthread_mutex_unlock(&e->lock);
    return n != NULL ? SBX_OK : err_set(err, SBX_E_NOT_FOUND, "the sandbox has no network");
}

enum sbx_code egress_rename(struct egress *e, const char *id, const char *new_id,
                            struct sbx_err *err)
{
    struct egress_entry *n;
    struct egress_entry copy = { 0 };
    enum sbx_code code = SBX_OK;

    assert(id_valid(new_id));
    pthread_mutex_lock(&e->lock);
    n = egress_entry_find(e, id);
    if (n == NULL)
        code = err_set(err, SBX_E_NOT_FOUND, "the sandbox has no network");
    else if (egress_entry_find(e, new_id) != NULL)
        code = err_set(err, SBX_E_CONFLICT, "the sandbox has a network already");
    if (code == SBX_OK) {
        /* The new file first: of two files with one slot the reader keeps one and the kernel's
         * part, which knows the slot only, fits both. */
        copy = *n;
        (void)str_copy(copy.id, sizeof(copy.id), new_id);
        code = egress_entry_write(e, &copy, err);
    }
    if (code == SBX_OK) {
        egress_entry_unlink(e, id);
        (void)str_copy(n->id, sizeof(n->id), new_id);
    }
    pthread_mutex_unlock(&e->lock);
    return code;
}

enum sbx_code egress_strays_remove(struct egress *e, size_t *removed, struct sbx_err *err)
{
    char prefix[EGRESS_NAME_SIZE];
    DIR *dir = opendir("/run/netns");
    struct dirent *d;
    enum sbx_code code = SBX_OK;

    if (dir == NULL)
        return SBX_OK;
    (void)snprintf(prefix, sizeof(prefix), "sbx-%s-s", e->tag);
    while (code == SBX_OK && (d = readdir(dir)) != NULL) {
        int64_t slot;
        bool known;

        if (!str_starts(d->d_name, prefix) ||
            !str_parse_int(d->d_name + strlen(prefix), 1, EGRESS_SANDBOXES_MAX, &slot))
            continue;
        pthread_mutex_lock(&e->lock);
        known = (unsigned)slot <= e->slot_max && e->slots[slot] != EGRESS_SLOT_FREE;
        pthread_mutex_unlock(&e->lock);
        if (known)
            continue;
        code = kernel_remove(e, (unsigned)slot, err);
        (*removed)++;
    }
    (void)closedir(dir);
    return code;
}

enum sbx_code egress_sweep(struct egress *e, bool (*keep)(void *arg, const char *id), void *arg,
                           size_t *removed, struct sbx_err *err)
{
    enum sbx_code code = SBX_OK;
    size_t n = 0;

    while (code == SBX_OK) {
        char id[ID_SIZE] = "";

        pthread_mutex_lock(&e->lock);
        for (struct egress_entry *x = e->entries; x != NULL && id[0] == 0; x = x->next)
            if (!keep(arg, x->id))
                (void)str_copy(id, sizeof(id), x->id);
        pthread_mutex_unlock(&e->lock);
        if (id[0] == 0)
            break;
        code = egress_detach(e, id, err);
        n++;
    }
    if (code == SBX_OK)
        code = egress_strays_remove(e, &n, err);
    *removed = n;
    return code;
}

void egress_spare_make(struct egress *e)
{
    struct egress_entry n = { .rules = { .mode = EGRESS_DEFAULT } };
    struct sbx_err err = { 0 };
    enum sbx_code code;
    unsigned slot;

    pthread_mutex_lock(&e->lock);
    slot = n.slot = slot_take(e, false);
    pthread_mutex_unlock(&e->lock);
    if (slot == 0)
        return;
    code = make_rules(e, &n, &err);
    if (code == SBX_OK)
        code = make_links(e, slot, &err);
    if (code != SBX_OK) {
        struct sbx_err undo = { 0 };

        log_err(LOG_WARN, "a network in reserve could not be made", &err);
        (void)!kernel_remove(e, slot, &undo);
    }
    pthread_mutex_lock(&e->lock);
    e->slots[slot] = code == SBX_OK ? EGRESS_SLOT_SPARE : EGRESS_SLOT_FREE;
    e->spares += code == SBX_OK;
    if (code != SBX_OK)
        e->spare_ms = time_mono_ms() + EGRESS_TOOL_MS;
    pthread_mutex_unlock(&e->lock);
}

void egress_spares_remove(struct egress *e)
{
    for (unsigned slot = 1; e->slots != NULL && slot <= e->slot_max; slot++) {
        struct sbx_err err = { 0 };

        if (e->slots[slot] != EGRESS_SLOT_SPARE)
            continue;
        if (kernel_remove(e, slot, &err) != SBX_OK)
            log_err(LOG_WARN, "a network in reserve stays until the next start", &err);
        e->slots[slot] = EGRESS_SLOT_FREE;
        e->spares--;
    }
}
