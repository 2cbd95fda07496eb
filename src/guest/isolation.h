#ifndef GUEST_ISOLATION_H
#define GUEST_ISOLATION_H

/* `probe isolation HOSTS DIRECT DOMAIN` and `probe workspace`: what a sandbox can reach and what
 * lies in it, measured from inside and written to standard output as key=value lines, the last one
 * "end".  Names only, never a value. */
int isolation_main(int argc, char **argv);

#endif
