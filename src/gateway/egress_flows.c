#include <arpa/inet.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/scoped.h"
#include "gateway/egress_impl.h"

/* Ends the tracked connections of one slot, so that what a peer of the last sandbox still
 * sends never reaches the next one that gets its address.  nft has no word for it and
 * conntrack-tools would be one more package for one message. */

struct request {
    struct nlmsghdr head;
    struct nfgenmsg family;
    struct nlattr mark_head;
    uint32_t mark;
    struct nlattr mask_head;
    uint32_t mask;
};

struct answer {
    struct nlmsghdr head;
    struct nlmsgerr error;
};

enum sbx_code egress_flows_end(const struct egress *e, unsigned slot, struct sbx_err *err)
{
    SCOPED_FD int fd = egress_socket_of(e, AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER);
    struct request q = {
        .head = { .nlmsg_len = sizeof(q),
                  .nlmsg_type = NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_DELETE,
                  .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK },
        .family = { .nfgen_family = AF_UNSPEC, .version = NFNETLINK_V0 },
        .mark_head = { .nla_len = sizeof(struct nlattr) + sizeof(uint32_t), .nla_type = CTA_MARK },
        .mark = htonl(slot),
        .mask_head = { .nla_len = sizeof(struct nlattr) + sizeof(uint32_t),
                       .nla_type = CTA_MARK_MASK },
        .mask = htonl(UINT32_MAX),
    };
    struct answer a = { 0 };
    char room[sizeof(a) + sizeof(q)];
    ssize_t n;

    if (fd < 0 || send(fd, &q, sizeof(q), 0) != (ssize_t)sizeof(q))
        return err_sys(err, SBX_E_INTERNAL, "end a sandbox's connections");
    n = recv(fd, room, sizeof(room), 0);
    if (n < (ssize_t)sizeof(a))
        return err_set(err, SBX_E_INTERNAL, "end a sandbox's connections: no answer");
    memcpy(&a, room, sizeof(a));
    /* ENOENT: there was none. */
    if (a.head.nlmsg_type != NLMSG_ERROR || (a.error.error != 0 && a.error.error != -ENOENT))
        return err_set(err, SBX_E_INTERNAL, "end a sandbox's connections: refused (%d)",
                       -a.error.error);
    return SBX_OK;
}
