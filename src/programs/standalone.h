#ifndef PROGRAMS_STANDALONE_H
#define PROGRAMS_STANDALONE_H

/* `sandboxd --standalone`: a small root launcher that only supervises.
 *
 * It runs, on one state folder: a private PostgreSQL cluster as the user postgres, one
 * sandbox-region as root, and the HTTP server (this program again, with --config) as the
 * user sandboxd; it makes the first objects by `sandboxctl bootstrap`. A part that dies is
 * started again with backoff. A start after kill -9 adopts the PostgreSQL and the region
 * that still run. With [database] url it runs no PostgreSQL, with [region] socket no
 * region. SIGTERM stops server, region, PostgreSQL in this order; sandboxes stay.
 *
 * It writes <state>/sandboxd.conf and <state>/region.conf at each start, and
 * <state>/run/ready (its pid) once all is up. The first line of sandboxd's main is
 *
 *	if (standalone_wanted(argc, argv))
 *		return standalone_main(argc, argv); */

#include <stdbool.h>

bool standalone_wanted(int argc, char **argv);

/* The whole program after "--standalone" was seen in argv; gives its exit code. */
int standalone_main(int argc, char **argv);

#endif
