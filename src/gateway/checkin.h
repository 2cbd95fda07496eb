#ifndef GATEWAY_CHECKIN_H
#define GATEWAY_CHECKIN_H

/* The region host as a sandbox worker (live.agent_sandbox.register, contract 7): it
 * checks in for the streams it is given and says of its isolation what it has measured.
 *
 * The check-in speaks for one dedicated, EPHEMERAL, proxy-only template, [openvibe]
 * image; a probe sandbox of it is deployed through our own protocol on our own unix
 * socket, looks around from inside (guest/isolation.h), and ends; a second one sees
 * whether the first one's workspace is gone.  What could not be measured is reported as
 * not isolated, and the log says which.
 *
 * One thread, "check-in"; it waits for the next check-in, never under a lock. */

#include "base/config.h"
#include "sbx/error.h"

/* The account of probe sandboxes: none of ours has such an id.  They stay out of the list that the
 * control plane reconciles with. */
#define GATEWAY_CHECKIN_ACCOUNT "openvibe-probe"
/* Where they find the program that measures, "probe". */
#define GATEWAY_CHECKIN_DIR "/run/sandboxd-probe"

struct gateway_checkin;

/* After the gateway serves. *out is NULL without [openvibe] url. SBX_E_INVALID names the option at
 * fault. */
MUST_USE enum sbx_code gateway_checkin_start(const struct config *config,
                                             struct gateway_checkin **out, struct sbx_err *err);
/* Before the gateway stops: the probe that runs is taken away. NULL is allowed. */
void gateway_checkin_stop(struct gateway_checkin *c);

/* --- shared by its two files --- */

/* What the report says; `why` names what was found where a value is not the one wanted. */
struct gateway_checkin_report {
    bool host_network, credentials, profile, egress_proxy, ephemeral;
    char why[240];
};

struct gateway_checkin_probe {
    const char *socket; /* our own listener */
    const char *image;
    const char *const *domains; /* NULL-ended, at least one */
};
/* Measures; never fails: what could not be measured has the value that is refused. Blocks for
 * seconds. */
void gateway_checkin_measure(const struct gateway_checkin_probe *p,
                             struct gateway_checkin_report *out);
/* Reads what the probe has written; false when it is not whole. */
bool gateway_checkin_read(const char *text, struct gateway_checkin_report *out);

#endif
