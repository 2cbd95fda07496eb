/* Runs as the only process of a probe sandbox and writes what it finds to /out/result:
 * "statx=0" or "statx=<errno>", then "end".  Static: its root holds nothing else. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int main(void)
{
    struct statx st;
    char text[64];
    int fd = open("/out/result", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int rc;

    if (fd < 0)
        return 1;
    errno = 0;
    rc = statx(AT_FDCWD, "/", AT_NO_AUTOMOUNT, STATX_BASIC_STATS, &st);
    (void)snprintf(text, sizeof(text), "statx=%d\nend\n", rc == 0 ? 0 : errno);
    return write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : 1;
}
