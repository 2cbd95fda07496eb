#ifndef GATEWAY_STREAM_H
#define GATEWAY_STREAM_H

/* One output stream in an execute answer (contract 4): UTF-8 as it is, or base64; what was cut is
 * cut on a character's border. */

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json.h"

/* Sets <name>, <name>Bytes and, where they apply, <name>Encoding and <name>Truncated.
 * bytes: all that was written; data holds the first of them. */
void gateway_stream_put(json_t *answer, const char *name, const struct buf *data, uint64_t bytes,
                        bool truncated);

#endif
