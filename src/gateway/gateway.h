#ifndef GATEWAY_GATEWAY_H
#define GATEWAY_GATEWAY_H

/* The region gateway as a whole: sandboxes, operations, HTTP.  sandbox-region's main
 * starts it, waits for a signal and stops it.
 *
 * Threads: http (src/http), its workers, "relay" (agent channels), "gw-job" (deploys,
 * deletes; may block), "gw-timer" (deadlines), and the driver's own.
 *
 * Order of the stop: no new requests; requests under way get time to drain; job threads
 * end; the channel closes; the driver lets go.  Sandboxes run on. */

#include <stdint.h>

#include "base/config.h"
#include "sbx/error.h"

struct gateway;

/* Takes the lock of the state folder, reads the journal, opens the driver, brings both into
 * agreement (adopts, ends strays), then serves.  config must outlive it. */
MUST_USE enum sbx_code gateway_start(const struct config *config, struct gateway **out,
                                     struct sbx_err *err);
/* Takes over from fresh what is marked reload and is not read anew each time; certificates and secret
 * files are read again. SBX_E_INVALID: something of it cannot be, and nothing was changed. The caller
 * then brings the rest into config (config_take). */
MUST_USE enum sbx_code gateway_reload(struct gateway *g, const struct config *fresh,
                                      struct sbx_err *err);
void gateway_stop(struct gateway *g, int drain_ms); /* NULL is allowed */
/* The TCP port, 0 without that listener. */
uint16_t gateway_port(const struct gateway *g);

#endif
