#ifndef AGENT_PARTS_H
#define AGENT_PARTS_H

#include <stddef.h>
#include <sys/types.h>

enum { AGENT_PARTS_MAX = 8 };

/* As recv without waiting, of as many messages as there are, at most `parts` (AGENT_PARTS_MAX) of
 * `part` bytes each, by one system call; data has room for all.  What came is one after the other
 * at its beginning; the answer is its length, 0 at the end, -1 with errno. */
ssize_t agent_recv_parts(int fd, unsigned char *data, size_t part, unsigned parts);

#endif
