#ifndef BASE_NOTIFY_H
#define BASE_NOTIFY_H

/* Tells the service manager how we are, as sd_notify(3) does, without its library: "READY=1",
 * "RELOADING=1\nMONOTONIC_USEC=...", "STOPPING=1". Nothing happens when none listens
 * (NOTIFY_SOCKET is not set). Any thread. */
void process_notify(const char *state);

#endif
