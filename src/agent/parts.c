/* recvmmsg of a stream.  gVisor reads no more of a host's socket at once than the socket's
 * SO_SNDBUF was when it was opened (208 KiB by default), however much room there is. */

#include "agent/parts.h"

#include <string.h>
#include <sys/socket.h>

ssize_t agent_recv_parts(int fd, unsigned char *data, size_t part, unsigned parts)
{
    struct mmsghdr got[AGENT_PARTS_MAX] = { 0 };
    struct iovec room[AGENT_PARTS_MAX];
    size_t len = 0;
    int n;

    for (unsigned i = 0; i < parts; i++) {
        room[i] = (struct iovec){ data + i * part, part };
        got[i].msg_hdr.msg_iov = &room[i];
        got[i].msg_hdr.msg_iovlen = 1;
    }
    n = recvmmsg(fd, got, parts, MSG_DONTWAIT, NULL);
    for (int i = 0; i < n; i++) {
        if (data + len != room[i].iov_base) /* the one before was not full */
            memmove(data + len, room[i].iov_base, got[i].msg_len);
        len += got[i].msg_len;
    }
    return n < 0 ? -1 : (ssize_t)len;
}
