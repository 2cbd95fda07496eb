/* Runs inside a sandbox: reads attempts from standard input, makes all of them at once, prints one
 * line "<number> open|shut" for each.  Open means that something of the outside world answered: its
 * answers hold the word "world", a DNS answer holds an address.
 *
 *	tcp ADDRESS PORT     udp ADDRESS PORT     ping ADDRESS     dns NAME SERVER
 *	get NAME[/PATH]      by the resolver of /etc/resolv.conf, redirects followed
 *	proxy AUTHORITY      CONNECT through the proxy, then a GET in the tunnel
 *	proxyget URL [HOST]  a plain GET through the proxy, with that Host header
 *	wget URL             the same, redirects followed */

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    ATTEMPTS_MAX = 256,
    LINE_SIZE = 512,
    ANSWER_SIZE = 8192,
    PATIENCE_MS = 4000,
    PROXY_MS = 8000,
    HOPS = 3
};

static socklen_t address_of(const char *text, int port, struct sockaddr_storage *out)
{
    struct sockaddr_in *a4 = (struct sockaddr_in *)out;
    struct sockaddr_in6 *a6 = (struct sockaddr_in6 *)out;

    memset(out, 0, sizeof(*out));
    if (inet_pton(AF_INET, text, &a4->sin_addr) == 1) {
        a4->sin_family = AF_INET;
        a4->sin_port = htons((uint16_t)port);
        return sizeof(*a4);
    }
    if (inet_pton(AF_INET6, text, &a6->sin6_addr) != 1)
        return 0;
    a6->sin6_family = AF_INET6;
    a6->sin6_port = htons((uint16_t)port);
    return sizeof(*a6);
}

static bool ready(int fd, short events, int ms)
{
    struct pollfd p = { .fd = fd, .events = events };

    return poll(&p, 1, ms) > 0;
}

static int dial(const char *address, int port, int type)
{
    struct sockaddr_storage to;
    socklen_t len = address_of(address, port, &to);
    int error = 0, fd = len == 0 ? -1 : socket(to.ss_family, type | SOCK_NONBLOCK, 0);
    socklen_t size = sizeof(error);

    if (fd < 0 || (connect(fd, (struct sockaddr *)&to, len) < 0 && errno != EINPROGRESS))
        return -1;
    if (!ready(fd, POLLOUT, PATIENCE_MS) ||
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0 || error != 0)
        return -1;
    return fd;
}

/* Sends, reads until the peer closes or until `until` is seen. */
static void exchange(int fd, const char *request, const char *until, int ms,
                     char answer[ANSWER_SIZE])
{
    size_t len = 0;

    answer[0] = 0;
    if (write(fd, request, strlen(request)) < 0)
        return;
    while (len < ANSWER_SIZE - 1 && ready(fd, POLLIN, ms)) {
        ssize_t n = read(fd, answer + len, ANSWER_SIZE - 1 - len);

        if (n <= 0)
            return;
        len += (size_t)n;
        answer[len] = 0;
        if (until != NULL && strstr(answer, until) != NULL)
            return;
    }
}

static bool world(const char *answer)
{
    return strstr(answer, "world ") != NULL;
}

static bool try_tcp(const char *address, int port)
{
    char answer[ANSWER_SIZE] = "";
    int fd = dial(address, port, SOCK_STREAM);

    if (fd >= 0)
        exchange(fd, "GET / HTTP/1.0\r\n\r\n", "world ", PATIENCE_MS, answer);
    return world(answer);
}

static bool try_udp(const char *address, int port)
{
    char answer[ANSWER_SIZE] = "";
    int fd = dial(address, port, SOCK_DGRAM);

    if (fd >= 0)
        exchange(fd, "hello", "world ", PATIENCE_MS, answer);
    return world(answer);
}

/* Any way to send an echo request: the raw socket and the one without rights. */
static bool try_ping(const char *address)
{
    static const int types[] = { SOCK_RAW, SOCK_DGRAM };
    struct sockaddr_storage to;
    socklen_t len = address_of(address, 0, &to);

    for (int i = 0; i < 2; i++) {
        struct icmphdr echo = { .type = ICMP_ECHO,
                                .un.echo = { .id = htons(77), .sequence = htons(1) } };
        int fd = socket(AF_INET, types[i], IPPROTO_ICMP);
        char back[256];

        echo.checksum = (uint16_t) ~(uint16_t)(echo.type + echo.un.echo.id + echo.un.echo.sequence);
        if (fd >= 0 && sendto(fd, &echo, sizeof(echo), 0, (struct sockaddr *)&to, len) > 0 &&
            ready(fd, POLLIN, PATIENCE_MS / 2) && read(fd, back, sizeof(back)) > 0)
            return true;
    }
    return false;
}

/* The first address of an answer, A then AAAA. */
static bool resolve(const char *name, const char *server, char out[INET6_ADDRSTRLEN])
{
    for (int kind = 1; kind <= 28; kind += 27) {
        unsigned char q[512] = { 0x12, 0x34, 1, 0, 0, 1 }, r[1500];
        int fd = dial(server, 53, SOCK_DGRAM);
        size_t at = 12;
        ssize_t n;

        for (const char *l = name; *l != 0 && at < 400;) {
            size_t part = strcspn(l, ".");

            q[at++] = (unsigned char)part;
            memcpy(q + at, l, part);
            at += part;
            l += part + (l[part] == '.');
        }
        q[at + 2] = (unsigned char)kind;
        q[at + 4] = 1;
        at += 5;
        if (fd < 0 || write(fd, q, at) < 0 || !ready(fd, POLLIN, PATIENCE_MS))
            return false;
        n = read(fd, r, sizeof(r));
        if (n < (ssize_t)at + 12 + 4 || (r[6] << 8 | r[7]) == 0)
            continue;
        return inet_ntop(kind == 1 ? AF_INET : AF_INET6, r + at + 12, out, INET6_ADDRSTRLEN) !=
               NULL;
    }
    return false;
}

static bool try_dns(const char *name, const char *server)
{
    char address[INET6_ADDRSTRLEN];

    return resolve(name, server, address);
}

/* "http://host[:port]/path", or without the scheme. */
static bool split(const char *url, char host[LINE_SIZE], char path[LINE_SIZE])
{
    path[0] = 0;
    if (strncmp(url, "http://", 7) == 0)
        url += 7;
    return sscanf(url, "%511[^/]%511s", host, path) >= 1;
}

static bool location(const char *answer, char url[LINE_SIZE])
{
    const char *at = strstr(answer, "Location: ");

    return at != NULL && sscanf(at + 10, "%511s", url) == 1;
}

static bool try_get(const char *where)
{
    char url[LINE_SIZE], host[LINE_SIZE], path[LINE_SIZE], server[LINE_SIZE] = "", line[LINE_SIZE];
    FILE *conf = fopen("/etc/resolv.conf", "r");

    while (conf != NULL && fgets(line, sizeof(line), conf) != NULL)
        if (sscanf(line, "nameserver %511s", server) == 1)
            break;
    (void)snprintf(url, sizeof(url), "%s", where);
    for (int hop = 0; hop < HOPS && split(url, host, path); hop++) {
        char request[LINE_SIZE * 3], answer[ANSWER_SIZE] = "", address[INET6_ADDRSTRLEN];
        struct sockaddr_storage literal;
        int fd;

        if (address_of(host, 80, &literal) != 0)
            (void)snprintf(address, sizeof(address), "%s", host);
        else if (server[0] == 0 || !resolve(host, server, address))
            return false;
        fd = dial(address, 80, SOCK_STREAM);
        if (fd < 0)
            return false;
        (void)snprintf(request, sizeof(request), "GET %s HTTP/1.0\r\nHost: %s\r\n\r\n",
                       path[0] ? path : "/", host);
        exchange(fd, request, NULL, PATIENCE_MS, answer);
        if (world(answer) || !location(answer, url))
            return world(answer);
    }
    return false;
}

static bool try_proxy(const char *authority)
{
    char request[LINE_SIZE * 2], answer[ANSWER_SIZE] = "";
    int fd = dial("127.0.0.1", 3128, SOCK_STREAM);

    if (fd < 0)
        return false;
    (void)snprintf(request, sizeof(request), "CONNECT %s HTTP/1.1\r\nHost: good.example\r\n\r\n",
                   authority);
    exchange(fd, request, "\r\n\r\n", PROXY_MS, answer);
    if (strncmp(answer, "HTTP/1.1 200", 12) != 0)
        return false;
    exchange(fd, "GET / HTTP/1.0\r\n\r\n", "world ", PROXY_MS, answer);
    return world(answer);
}

static bool try_proxyget(const char *first, const char *host, int hops)
{
    char url[LINE_SIZE];

    (void)snprintf(url, sizeof(url), "%s", first);
    for (int hop = 0; hop < hops; hop++) {
        char request[LINE_SIZE * 3], answer[ANSWER_SIZE] = "";
        int fd = dial("127.0.0.1", 3128, SOCK_STREAM);

        if (fd < 0)
            return false;
        (void)snprintf(request, sizeof(request),
                       "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", url, host);
        exchange(fd, request, NULL, PROXY_MS, answer);
        if (world(answer) || !location(answer, url))
            return world(answer);
    }
    return false;
}

static bool attempt(const char *line)
{
    char how[32] = "", a[LINE_SIZE] = "", b[LINE_SIZE] = "";
    int n = sscanf(line, "%31s %511s %511s", how, a, b);

    if (n < 2)
        return false;
    if (strcmp(how, "tcp") == 0)
        return try_tcp(a, (int)strtol(b, NULL, 10));
    if (strcmp(how, "udp") == 0)
        return try_udp(a, (int)strtol(b, NULL, 10));
    if (strcmp(how, "ping") == 0)
        return try_ping(a);
    if (strcmp(how, "dns") == 0)
        return try_dns(a, b);
    if (strcmp(how, "get") == 0)
        return try_get(a);
    if (strcmp(how, "proxy") == 0)
        return try_proxy(a);
    if (strcmp(how, "proxyget") == 0)
        return try_proxyget(a, n > 2 ? b : "good.example", 1);
    if (strcmp(how, "wget") == 0)
        return try_proxyget(a, "good.example", HOPS);
    (void)fprintf(stderr, "what is %s\n", how);
    exit(2);
}

/* "pull direct|proxy ADDRESS BYTES": the milliseconds that so many bytes take from port 80,
 * directly or through a tunnel of the proxy. */
static int pull(const char *how, const char *address, const char *bytes)
{
    static char part[1 << 20];
    char request[LINE_SIZE * 2], answer[ANSWER_SIZE] = "";
    bool proxy = strcmp(how, "proxy") == 0;
    int fd = proxy ? dial("127.0.0.1", 3128, SOCK_STREAM) : dial(address, 80, SOCK_STREAM);
    struct timespec began, ended;
    long long left = strtoll(bytes, NULL, 10), n;

    (void)clock_gettime(CLOCK_MONOTONIC, &began);
    if (fd < 0)
        return 1;
    if (proxy) {
        (void)snprintf(request, sizeof(request), "CONNECT %s:80 HTTP/1.1\r\n\r\n", address);
        exchange(fd, request, "\r\n\r\n", PROXY_MS, answer);
        if (strncmp(answer, "HTTP/1.1 200", 12) != 0)
            return 1;
    }
    (void)snprintf(request, sizeof(request), "GET /?size=%s HTTP/1.0\r\n\r\n", bytes);
    if (write(fd, request, strlen(request)) < 0)
        return 1;
    while (ready(fd, POLLIN, PROXY_MS) && (n = read(fd, part, sizeof(part))) > 0)
        left -= n;
    (void)clock_gettime(CLOCK_MONOTONIC, &ended);
    (void)printf("%lld\n", (long long)(ended.tv_sec - began.tv_sec) * 1000 +
                               (ended.tv_nsec - began.tv_nsec) / 1000000);
    return left <= 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    char line[LINE_SIZE];
    pid_t children[ATTEMPTS_MAX];
    int n = 0, status;

    if (argc == 5 && strcmp(argv[1], "pull") == 0)
        return pull(argv[2], argv[3], argv[4]);
    (void)setvbuf(stdin, NULL, _IONBF, 0);
    while (n < ATTEMPTS_MAX && fgets(line, sizeof(line), stdin) != NULL) {
        children[n] = fork();
        if (children[n] == 0)
            _exit(attempt(line) ? 0 : 1);
        n++;
    }
    for (int i = 0; i < n; i++) {
        if (children[i] < 0 || waitpid(children[i], &status, 0) < 0 || !WIFEXITED(status) ||
            WEXITSTATUS(status) > 1)
            (void)printf("%d broken\n", i + 1);
        else
            (void)printf("%d %s\n", i + 1, WEXITSTATUS(status) == 0 ? "open" : "shut");
    }
    return 0;
}
