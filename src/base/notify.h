#ifndef BASE_NOTIFY_H
#define BASE_NOTIFY_H

/* Tells the service manager how we are, as sd_notify(3) does, without its library: "READY=1",
 * "STOPPING=1". Nothing happens when none listens
 * (NOTIFY_SOCKET is not set). Any thread. */
void process_notify(const char *state);
/* "RELOADING=1" with the time that Type=notify-reload wants; READY=1 ends it. */
void process_notify_reloading(void);

#endif
