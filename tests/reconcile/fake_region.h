#ifndef TESTS_RECONCILE_FAKE_REGION_H
#define TESTS_RECONCILE_FAKE_REGION_H

/* A region that is told how to misbehave: the gateway protocol over a unix socket,
 * with nothing behind it.  It exists only to inject faults (slow, away, garbage,
 * dying sandboxes); real regions are met in tests/system. */

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"

struct fake_region;

struct fake_region *fake_region_new(const char *socket_path);
void fake_region_free(struct fake_region *r);

enum fake_deploy { FAKE_DEPLOY_OK, FAKE_DEPLOY_FAILS, FAKE_DEPLOY_BUSY, FAKE_DEPLOY_GARBAGE };
void fake_region_deploys(struct fake_region *r, enum fake_deploy how, int delay_ms);
/* DELETE answers 503 as long as it is set. */
void fake_region_sticky(struct fake_region *r, bool deletes_fail);
/* A sandbox that nobody asked for, and one that dies by itself. */
void fake_region_add(struct fake_region *r, const char *id, int64_t generation);
void fake_region_lose(struct fake_region *r, const char *id);
/* The executions it says that it runs in id. */
void fake_region_execution(struct fake_region *r, const char *id, const char *execution_id);

bool fake_region_has(struct fake_region *r, const char *id);
int fake_region_count(struct fake_region *r);
int fake_region_deploy_count(struct fake_region *r); /* that it began */
int fake_region_warm_count(struct fake_region *r);

#endif
