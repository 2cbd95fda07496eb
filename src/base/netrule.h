#ifndef BASE_NETRULE_H
#define BASE_NETRULE_H

/* The words of egress rules: addresses, ranges, names.  Strict on purpose: what one
 * reader could take for another address than the next one does (octal, decimal, hex
 * spellings, zone ids, bits past the prefix) is refused, never guessed.  Pure; any
 * thread. */

#include <stdbool.h>
#include <stddef.h>

#include "sbx/error.h"

enum {
    NETRULE_ADDR_LEN = 16,
    NETRULE_TEXT_SIZE = 64,  /* a range as text */
    NETRULE_NAME_SIZE = 256, /* a DNS name as text, without trailing dot */
};

/* family 4: the address is in the first 4 bytes. */
struct netrule_cidr {
    unsigned char family;                 /* 4 or 6 */
    unsigned char bits;                   /* prefix length, 32 or 128 for one address */
    unsigned char addr[NETRULE_ADDR_LEN]; /* network order */
};

/* "203.0.113.8", "203.0.113.0/24", "2001:db8::/32".  Spaces around it are dropped.  An
 * IPv4-mapped IPv6 address or range is the IPv4 one.  SBX_E_INVALID with a sentence. */
MUST_USE enum sbx_code netrule_cidr_parse(const char *text, struct netrule_cidr *out,
                                          struct sbx_err *err);
/* The one spelling; without "/32" or "/128". */
void netrule_cidr_print(const struct netrule_cidr *c, char out[NETRULE_TEXT_SIZE]);
bool netrule_cidr_contains(const struct netrule_cidr *outer, const struct netrule_cidr *inner);
bool netrule_cidr_overlaps(const struct netrule_cidr *a, const struct netrule_cidr *b);

/* A range that no sandbox reaches, whatever its list says. */
struct netrule_range {
    const char *text;
    const char *kind; /* for a person: "private", "link-local (cloud metadata)" ... */
};

/* IANA's special registries (RFC 6890 and successors) but for the documentation ranges, and the
 * metadata addresses of clouds that lie elsewhere. Ended by a NULL text. */
extern const struct netrule_range netrule_ranges[];

/* Why c lies wholly in an infrastructure range: its kind, or NULL when it does not.  extra are the
 * operator's own ranges. A range that merely holds one (0.0.0.0/0) is none. */
const char *netrule_infrastructure(const struct netrule_cidr *c, const struct netrule_cidr *extra,
                                   size_t extra_count);

/* A domain rule: exact, or "*." and a name, which means every name below it and not itself.  out is
 * lower-case ASCII (IDNA 2008), without the "*." and without trailing dot.  A name of one label,
 * one that ends in a number (an address in disguise) and one that is no host name are
 * SBX_E_INVALID. */
MUST_USE enum sbx_code netrule_domain_parse(const char *text, char out[NETRULE_NAME_SIZE],
                                            bool *below, struct sbx_err *err);
/* A host as a client names it, in the same form; one label is allowed here. */
MUST_USE enum sbx_code netrule_host_parse(const char *text, char out[NETRULE_NAME_SIZE],
                                          struct sbx_err *err);
/* Both in the form above: matches on a label border only. */
bool netrule_domain_matches(const char *rule, bool below, const char *host);

/* The text is nothing but spaces, or empty. */
bool netrule_blank(const char *text);

#endif
