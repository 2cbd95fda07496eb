/* Runs as the only process of a probe sandbox and writes what it finds to /out/result:
 * "statx=0" or "statx=<errno>", then "end".  Static: its root holds nothing else.  With arguments
 * it measures the sandbox it was executed in (isolation.h). */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "isolation.h"

int main(int argc, char **argv)
{
    struct statx st;
    char text[64];
    int fd, rc;

    if (argc > 1)
        return isolation_main(argc - 1, argv + 1);
    fd = open("/out/result", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return 1;
    errno = 0;
    rc = statx(AT_FDCWD, "/", AT_NO_AUTOMOUNT, STATX_BASIC_STATS, &st);
    (void)snprintf(text, sizeof(text), "statx=%d\nend\n", rc == 0 ? 0 : errno);
    return write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : 1;
}
