#ifndef BASE_METRICS_H
#define BASE_METRICS_H

/* Counters, gauges and histograms, registered as const tables and printed as
 * Prometheus text (0.0.4).  Updates take no lock once a series is there.
 *
 *	enum { M_REQUESTS, M_LATENCY };
 *	static const struct metrics_def DEFS[] = {
 *	    [M_REQUESTS] = { "sandboxd_requests_total", METRICS_COUNTER, "Requests.", { "route" } },
 *	    ...
 *	};
 *	struct metrics_table *t = metrics_register(m, DEFS, COUNT_OF(DEFS));
 *	metrics_add(t, M_REQUESTS, METRICS_LABELS("sandbox_get"), 1);
 *
 * Label values must come from a small fixed set (a route's name, a status): past
 * METRICS_SERIES_MAX series a metric counts under the value "other". */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum {
    METRICS_LABELS_MAX = 3,
    METRICS_SERIES_MAX = 2048, /* of one metric */
};

enum metrics_type {
    METRICS_UNSET = 0, /* not a type: refused (assert) */
    METRICS_COUNTER,
    METRICS_GAUGE,
    METRICS_HISTOGRAM, /* of milliseconds; printed in seconds */
};

struct metrics_def {
    const char *name; /* [a-z_][a-z0-9_]*, unit at the end: _total, _seconds, _bytes */
    enum metrics_type type;
    const char *help;
    const char *labels[METRICS_LABELS_MAX]; /* names; NULL: fewer */
};

struct metrics;
struct metrics_table;

struct metrics *metrics_new(void);
void metrics_free(struct metrics *m); /* NULL is allowed; nobody may update any more */
/* defs must live as long as m. NULL m gives NULL, and updates of a NULL table do nothing. */
struct metrics_table *metrics_register(struct metrics *m, const struct metrics_def *defs,
                                       size_t count);

/* Values for the row's labels, in order; any thread. */
struct metrics_labels {
    const char *value[METRICS_LABELS_MAX];
};
#define METRICS_LABELS(...) ((struct metrics_labels){ { __VA_ARGS__ } })
#define METRICS_PLAIN       ((struct metrics_labels){ { NULL } })

void metrics_add(struct metrics_table *t, size_t row, struct metrics_labels l, int64_t n);
void metrics_set(struct metrics_table *t, size_t row, struct metrics_labels l, int64_t value);
void metrics_observe_ms(struct metrics_table *t, size_t row, struct metrics_labels l, int64_t ms);
int64_t metrics_get(struct metrics_table *t, size_t row, struct metrics_labels l); /* for tests */

/* fn(arg) runs before each print, to set gauges that are cheap to read. m may be NULL. */
void metrics_on_print(struct metrics *m, void (*fn)(void *arg), void *arg);
void metrics_off_print(struct metrics *m, void *arg); /* no fn of arg runs any more */
/* Appends all of it. False when it did not fit under out->max. */
bool metrics_print(struct metrics *m, struct buf *out);

#endif
