#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "gateway/egress_impl.h"

static size_t count_of(const char *const *list)
{
    size_t n = 0;

    for (size_t i = 0; list != NULL && list[i] != NULL; i++)
        n += netrule_blank(list[i]) ? 0 : 1;
    return n;
}

static enum sbx_code parse_address(const struct egress *e, const char *text,
                                   struct netrule_cidr *out, struct sbx_err *err)
{
    const char *kind;
    enum sbx_code code = netrule_cidr_parse(text, out, err);

    if (code != SBX_OK)
        return err_wrap(err, "addressAllowlist");
    kind = netrule_infrastructure(out, e->deny, e->deny_count);
    if (kind != NULL)
        return err_set(err, SBX_E_INVALID,
                       "addressAllowlist: %.60s is in an infrastructure range (%s)", text, kind);
    return SBX_OK;
}

enum sbx_code egress_rules_parse(const struct egress *e, const struct driver_network *n,
                                 struct egress_rules *out, struct sbx_err *err)
{
    struct egress_rules r = { .mode = EGRESS_DEFAULT };
    size_t addresses = n->enabled ? count_of(n->addresses) : 0;
    size_t domains = count_of(n->domains);
    enum sbx_code code = SBX_OK;

    if (n->enabled && addresses == 0)
        return err_set(err, SBX_E_INVALID,
                       "networkControl: enabled needs at least one address in addressAllowlist");
    if (addresses > EGRESS_RULES_MAX || domains > EGRESS_RULES_MAX)
        return err_set(err, SBX_E_INVALID, "networkControl: at most %d entries in a list",
                       EGRESS_RULES_MAX);
    r.cidrs = mem_zalloc((addresses + 1) * sizeof(*r.cidrs));
    r.domains = mem_zalloc((domains + 1) * sizeof(*r.domains));
    for (size_t i = 0; addresses > 0 && n->addresses[i] != NULL && code == SBX_OK; i++)
        if (!netrule_blank(n->addresses[i]))
            code = parse_address(e, n->addresses[i], &r.cidrs[r.cidr_count++], err);
    for (size_t i = 0; domains > 0 && n->domains[i] != NULL && code == SBX_OK; i++) {
        struct egress_domain *d = &r.domains[r.domain_count];

        if (netrule_blank(n->domains[i]))
            continue;
        r.domain_count++;
        code = netrule_domain_parse(n->domains[i], d->name, &d->below, err);
        if (code != SBX_OK)
            code = err_wrap(err, "domainAllowlist");
    }
    if (code != SBX_OK) {
        egress_rules_fini(&r);
        return code;
    }
    if (addresses > 0)
        r.mode = domains > 0 ? EGRESS_COMBINED : EGRESS_ADDRESS;
    else if (domains > 0)
        r.mode = EGRESS_DOMAIN;
    *out = r;
    return SBX_OK;
}

void egress_rules_fini(struct egress_rules *r)
{
    free(r->cidrs);
    free(r->domains);
    *r = (struct egress_rules){ 0 };
}

static bool port_good(const struct egress *e, int port)
{
    for (size_t i = 0; i < e->port_count; i++)
        if (e->ports[i] == port)
            return true;
    return false;
}

bool egress_rules_allow(const struct egress *e, const struct egress_rules *r, const char *host,
                        int port, char name[NETRULE_NAME_SIZE])
{
    struct sbx_err err = { 0 };
    struct netrule_cidr literal;
    char bare[NETRULE_NAME_SIZE];
    size_t len = strlen(host);

    (void)str_copy(bare, sizeof(bare), host);
    if (len > 2 && len < sizeof(bare) && host[0] == '[' && host[len - 1] == ']') {
        memcpy(bare, host + 1, len - 2);
        bare[len - 2] = 0;
    }
    if (netrule_cidr_parse(bare, &literal, &err) == SBX_OK) {
        netrule_cidr_print(&literal, name);
        if (!port_good(e, port) || strchr(bare, '/') != NULL ||
            netrule_infrastructure(&literal, e->deny, e->deny_count) != NULL)
            return false;
        for (size_t i = 0; i < r->cidr_count; i++)
            if (netrule_cidr_contains(&r->cidrs[i], &literal))
                return true;
        return false;
    }
    err = (struct sbx_err){ 0 };
    if (netrule_host_parse(host, name, &err) != SBX_OK) {
        (void)str_copy(name, NETRULE_NAME_SIZE, "(malformed)");
        return false;
    }
    if (!port_good(e, port))
        return false;
    for (size_t i = 0; i < r->domain_count; i++)
        if (netrule_domain_matches(r->domains[i].name, r->domains[i].below, name))
            return true;
    return false;
}

json_t *egress_rules_json(const struct egress_rules *r)
{
    json_t *j = json_object(), *addresses = json_array(), *domains = json_array();

    for (size_t i = 0; i < r->cidr_count; i++) {
        char text[NETRULE_TEXT_SIZE];

        netrule_cidr_print(&r->cidrs[i], text);
        (void)json_array_append_new(addresses, json_string(text));
    }
    for (size_t i = 0; i < r->domain_count; i++) {
        char text[NETRULE_NAME_SIZE + 2] = "*.";

        (void)str_copy(text + (r->domains[i].below ? 2 : 0), NETRULE_NAME_SIZE, r->domains[i].name);
        (void)json_array_append_new(domains, json_string(text));
    }
    json_put_int(j, "mode", r->mode);
    json_put_new(j, "addresses", addresses);
    json_put_new(j, "domains", domains);
    return j;
}

bool egress_rules_from_json(const json_t *j, struct egress_rules *out)
{
    const json_t *addresses = json_object_get(j, "addresses");
    const json_t *domains = json_object_get(j, "domains");
    struct egress_rules r = { 0 };
    struct sbx_err err = { 0 };
    int64_t mode = json_get_int(j, "mode", 0);
    bool ok = mode > EGRESS_NONE && mode <= EGRESS_COMBINED &&
              json_array_size(addresses) <= EGRESS_RULES_MAX &&
              json_array_size(domains) <= EGRESS_RULES_MAX;

    if (!ok)
        return false;
    r.mode = (enum egress_mode)mode;
    r.cidrs = mem_zalloc((json_array_size(addresses) + 1) * sizeof(*r.cidrs));
    r.domains = mem_zalloc((json_array_size(domains) + 1) * sizeof(*r.domains));
    for (size_t i = 0; ok && i < json_array_size(addresses); i++) {
        const char *text = json_string_value(json_array_get(addresses, i));

        ok = text != NULL && netrule_cidr_parse(text, &r.cidrs[r.cidr_count++], &err) == SBX_OK;
    }
    for (size_t i = 0; ok && i < json_array_size(domains); i++) {
        const char *text = json_string_value(json_array_get(domains, i));
        struct egress_domain *d = &r.domains[r.domain_count++];

        ok = text != NULL && netrule_domain_parse(text, d->name, &d->below, &err) == SBX_OK;
    }
    if (!ok) {
        egress_rules_fini(&r);
        return false;
    }
    *out = r;
    return true;
}
