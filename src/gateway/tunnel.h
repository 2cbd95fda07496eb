#ifndef GATEWAY_TUNNEL_H
#define GATEWAY_TUNNEL_H

/* The connections of sandboxes to the egress proxy: bytes both ways between two sockets, on one
 * thread of its own, so that traffic holds up no execution.
 *
 * Bounds: connections in all and for each sandbox; what waits for a slow reader is at most a chunk
 * or a pipe (1 MB) each way beside the sockets' own buffers, and nothing more is read until it is
 * gone. */

#include <stdbool.h>
#include <stddef.h>

#include "base/id.h"
#include "sbx/error.h"

struct tunnels;

MUST_USE enum sbx_code tunnels_start(struct tunnels **out, struct sbx_err *err);
void tunnels_free(struct tunnels *t); /* ends the thread and all connections; NULL is allowed */

/* May this sandbox have one more?  Once half of all are in use, each may have a few only. */
bool tunnels_room(struct tunnels *t, const char *id);
/* Takes both sockets, also on failure (there is no room any more: both are closed).  first is what
 * was read from inside already. */
bool tunnels_add(struct tunnels *t, const char *id, int inside, int outside, const void *first,
                 size_t first_len);
/* No byte passes once this has returned; any thread. */
void tunnels_end(struct tunnels *t, const char *id);
size_t tunnels_count(struct tunnels *t);

#endif
