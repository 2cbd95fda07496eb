#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <netinet/in.h>

#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "http/internal.h"

enum { BACKLOG = 1024 };

/* A socket file that nobody listens on is left over from a kill: it is removed. */
static enum sbx_code clear_path(const struct sockaddr_un *addr, struct sbx_err *err)
{
    SCOPED_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct stat st;

    if (lstat(addr->sun_path, &st) != 0)
        return SBX_OK;
    if (!S_ISSOCK(st.st_mode))
        return err_set(err, SBX_E_INVALID, "%s is there and is no socket", addr->sun_path);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) == 0)
        return err_set(err, SBX_E_INVALID, "another program listens on %s", addr->sun_path);
    if (unlink(addr->sun_path) != 0 && errno != ENOENT)
        return err_sys(err, SBX_E_INVALID, "remove the old socket %s", addr->sun_path);
    return SBX_OK;
}

static enum sbx_code listen_unix(const struct http_listener *l, const char *path, int *out,
                                 struct sbx_err *err)
{
    SCOPED_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un addr = { .sun_family = AF_UNIX };

    if (fd < 0)
        return err_sys(err, SBX_E_INTERNAL, "make a socket");
    if (!str_copy(addr.sun_path, sizeof(addr.sun_path), path) || path[0] != '/')
        return err_set(err, SBX_E_INVALID, "%s is no absolute path of at most %zu bytes", path,
                       sizeof(addr.sun_path) - 1);
    if (clear_path(&addr, err) != SBX_OK)
        return err->code;
    /* Nobody can connect before listen(): the mode is set in between. */
    if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0)
        return err_sys(err, SBX_E_INVALID, "bind %s", path);
    if (chmod(path, l->mode != 0 ? l->mode : 0600) != 0 ||
        (l->gid != 0 && chown(path, (uid_t)-1, l->gid) != 0))
        return err_sys(err, SBX_E_INVALID, "set mode and group of %s", path);
    if (listen(fd, BACKLOG) != 0)
        return err_sys(err, SBX_E_INVALID, "listen on %s", path);
    *out = fd_steal(&fd);
    return SBX_OK;
}

/* "host:port", "[v6]:port", ":port". */
static bool split_address(const char *address, char host[256], char port[8])
{
    const char *colon = strrchr(address, ':');
    size_t len = colon != NULL ? (size_t)(colon - address) : 0;
    int64_t n;

    if (colon == NULL || !str_parse_int(colon + 1, 0, 65535, &n) || !str_copy(port, 8, colon + 1))
        return false;
    if (len >= 2 && address[0] == '[' && address[len - 1] == ']') {
        address++;
        len -= 2;
    } else if (memchr(address, ':', len) != NULL) {
        return false;
    }
    if (len >= 256)
        return false;
    memcpy(host, address, len);
    host[len] = '\0';
    return true;
}

static enum sbx_code bind_one(const struct addrinfo *ai, const char *address, int *out,
                              struct sbx_err *err)
{
    SCOPED_FD int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1, off = 0;

    if (fd < 0)
        return err_sys(err, SBX_E_INVALID, "make a socket for %s", address);
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (ai->ai_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) != 0)
        return err_sys(err, SBX_E_INVALID, "bind %s", address);
    if (listen(fd, BACKLOG) != 0)
        return err_sys(err, SBX_E_INVALID, "listen on %s", address);
    *out = fd_steal(&fd);
    return SBX_OK;
}

static enum sbx_code listen_tcp(const char *address, int *fd, uint16_t *port, struct sbx_err *err)
{
    struct addrinfo hints = { .ai_family = AF_UNSPEC,
                              .ai_socktype = SOCK_STREAM,
                              .ai_flags = AI_PASSIVE | AI_NUMERICSERV };
    struct addrinfo *list = NULL;
    struct sockaddr_storage ss = { 0 };
    socklen_t len = sizeof(ss);
    char host[256], service[8];
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
    enum sbx_code code = SBX_OK;
    int rc;

    if (!split_address(address, host, service))
        return err_set(err, SBX_E_INVALID, "%s is no host:port", address);
    rc = getaddrinfo(host[0] != '\0' ? host : NULL, service, &hints, &list);
    if (rc != 0)
        return err_set(err, SBX_E_INVALID, "%s: %s", address, gai_strerror(rc));
    for (const struct addrinfo *ai = list; ai != NULL; ai = ai->ai_next) {
        /* ":port": the IPv6 socket takes both families, where there is IPv6 */
        if (host[0] == '\0' && ai->ai_family != AF_INET6 && ai->ai_next != NULL)
            continue;
        err->code = SBX_OK;
        code = bind_one(ai, address, fd, err);
        if (code == SBX_OK)
            break;
    }
    freeaddrinfo(list);
    if (code != SBX_OK)
        return code;
    *err = (struct sbx_err){ 0 };
    if (getsockname(*fd, (struct sockaddr *)&ss, &len) != 0)
        *port = 0;
    memcpy(&in, &ss, sizeof(in));
    memcpy(&in6, &ss, sizeof(in6));
    *port = ntohs(ss.ss_family == AF_INET6 ? in6.sin6_port : in.sin_port);
    return SBX_OK;
}

enum sbx_code http_listen(const struct http_listener *l, int *fd, uint16_t *port, char **path,
                          struct sbx_err *err)
{
    if (!str_starts(l->address, "unix:"))
        return listen_tcp(l->address, fd, port, err);
    if (l->cert_file != NULL)
        return err_set(err, SBX_E_INVALID, "%s: no TLS on a unix socket", l->address);
    if (listen_unix(l, l->address + 5, fd, err) != SBX_OK)
        return err->code;
    *port = 0;
    *path = mem_strdup(l->address + 5);
    return SBX_OK;
}
