#ifndef API_AUDIT_H
#define API_AUDIT_H

/* The audit trail's writer: rows are handed over and written in batches by a thread
 * with a connection of its own, so that no request waits for them. While the database
 * is away rows wait, at most AUDIT_QUEUE_MAX of them; past it one is logged instead of
 * kept. A stop writes what waits. Internal to api. */

#include "base/metrics.h"
#include "store/trail.h"

struct api_audit;

enum { API_AUDIT_QUEUE_MAX = 16384 };

MUST_USE enum sbx_code api_audit_start(const struct store_config *store, struct api_audit **out,
                                       struct sbx_err *err);
/* Copies row. Any thread, never blocks. */
void api_audit_add(struct api_audit *w, const struct store_audit *row);
void api_audit_stop(struct api_audit *w); /* NULL is allowed */

#endif
