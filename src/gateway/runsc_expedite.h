#ifndef GATEWAY_RUNSC_EXPEDITE_H
#define GATEWAY_RUNSC_EXPEDITE_H

/* Short grace periods while a sandbox starts or ends.
 *
 * A start waits about ten times for an RCU grace period of the kernel: each of the runtime's five
 * programs registers for membarrier(2) with threads running, tables of descriptors grow under
 * threads, packet sockets are bound, a process changes its control group.  Each wait is some 10 ms
 * of doing nothing (measured: half of a start).  /sys/kernel/rcu_expedited makes the kernel ask its
 * processors at once instead of waiting for them to pass by.  That is a switch of the whole host,
 * so it is on only while somebody is between begin and end, and what it was before comes back.
 *
 * Several gateways of one host share a lock file: a shared lock is held between begin and end, and
 * who finds himself alone at the end puts the switch back, also for one that was killed. */

#include <stdbool.h>

struct runsc_expedite;

/* NULL: the host does not let us (no such switch, or it is read-only); begin and end do nothing
 * then.  Puts back what a killed gateway left switched on. */
struct runsc_expedite *runsc_expedite_open(const char *path, const char *lock_path);
void runsc_expedite_close(struct runsc_expedite *x); /* NULL is allowed */

/* Any thread; may be nested and overlap.  A hint: neither waits nor fails. */
void runsc_expedite_begin(struct runsc_expedite *x);
void runsc_expedite_end(struct runsc_expedite *x);

#endif
