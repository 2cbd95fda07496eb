#include "base/notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/scoped.h"

void process_notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    size_t len = path != NULL ? strlen(path) : 0;
    SCOPED_FD int fd = -1;

    if (len < 2 || len >= sizeof(to.sun_path) || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(to.sun_path, path, len);
    if (path[0] == '@')
        to.sun_path[0] = 0; /* the abstract namespace */
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    /* A manager that does not listen is its own trouble, not ours. */
    (void)!sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&to,
                  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
}
