#include "isolation.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "sbx/agent.h"

/* Static, in a root that may hold nothing else: the C library only. */

enum { CONNECT_MS = 1000, ANSWER_MS = 3000, TARGETS_MAX = 64, PATH_MAX_BYTES = 512 };

#define MARKER "/workspace/.check-in-marker"

extern char **environ;

/* --- what can be reached --- */

/* "1.2.3.4:80" or "[::1]:80"; a descriptor that connects, or -1. */
static int start_connect(const char *target)
{
    struct sockaddr_in in = { .sin_family = AF_INET };
    struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };
    const char *colon = strrchr(target, ':');
    char host[64];
    size_t len = colon != NULL ? (size_t)(colon - target) : 0;
    bool six = target[0] == '[';
    int fd, rc;

    if (len == 0 || len >= sizeof(host))
        return -1;
    memcpy(host, target + (six ? 1 : 0), len - (six ? 2 : 0));
    host[len - (six ? 2 : 0)] = '\0';
    in.sin_port = in6.sin6_port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
    if (inet_pton(six ? AF_INET6 : AF_INET, host,
                  six ? (void *)&in6.sin6_addr : (void *)&in.sin_addr) != 1)
        return -1;
    fd = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    rc = six ? connect(fd, (struct sockaddr *)&in6, sizeof(in6))
             : connect(fd, (struct sockaddr *)&in, sizeof(in));
    if (rc != 0 && errno != EINPROGRESS) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

static bool is_connected(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLOUT };
    socklen_t len = sizeof(int);
    int error = 0;

    return poll(&p, 1, 0) == 1 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 &&
           error == 0 && (p.revents & POLLOUT) != 0 && (p.revents & (POLLERR | POLLHUP)) == 0;
}

/* Prints the targets of a comma-separated list that take a connection. */
static void reach(const char *key, const char *list)
{
    struct pollfd p[TARGETS_MAX];
    char copy[4096], *names[TARGETS_MAX], *save = NULL;
    nfds_t n = 0;

    (void)snprintf(copy, sizeof(copy), "%s", list);
    for (char *t = strtok_r(copy, ",", &save); t != NULL && n < TARGETS_MAX;
         t = strtok_r(NULL, ",", &save)) {
        p[n] = (struct pollfd){ .fd = start_connect(t), .events = POLLOUT };
        names[n++] = t;
    }
    for (int left = CONNECT_MS; left > 0; left -= 50)
        (void)poll(NULL, 0, 50); /* all of them get the same second */
    printf("%s=", key);
    for (nfds_t i = 0; i < n; i++) {
        if (p[i].fd < 0)
            continue;
        if (is_connected(p[i].fd))
            printf("%s ", names[i]);
        (void)close(p[i].fd);
    }
    printf("\n");
}

/* Does the proxy on our loopback speak HTTP?  Its verdict on the domain does not matter. */
static void ask_proxy(const char *domain)
{
    char text[512], target[32];
    struct pollfd p = { .events = POLLOUT };
    ssize_t n = 0;

    (void)snprintf(target, sizeof(target), "127.0.0.1:%d", SBX_AGENT_PROXY_PORT);
    (void)snprintf(text, sizeof(text), "CONNECT %s:443 HTTP/1.1\r\nHost: %s:443\r\n\r\n", domain,
                   domain);
    p.fd = start_connect(target);
    if (p.fd >= 0 && poll(&p, 1, CONNECT_MS) == 1 &&
        write(p.fd, text, strlen(text)) == (ssize_t)strlen(text)) {
        p.events = POLLIN;
        if (poll(&p, 1, ANSWER_MS) == 1)
            n = read(p.fd, text, sizeof(text) - 1);
    }
    printf("proxy=%d\n", n >= 9 && memcmp(text, "HTTP/1.", 7) == 0 ? 1 : 0);
    if (p.fd >= 0)
        (void)close(p.fd);
}

static void interfaces(void)
{
    FILE *f = fopen("/proc/net/dev", "re");
    char line[512];

    printf("interfaces=");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        char *colon = strchr(line, ':'), *name = line + strspn(line, " ");

        if (colon == NULL)
            continue;
        *colon = '\0';
        if (strcmp(name, "lo") != 0)
            printf("%s ", name);
    }
    printf("\n");
    if (f != NULL)
        (void)fclose(f);
}

/* --- what lies here --- */

static bool contains(const char *name, const char *word)
{
    size_t n = strlen(word);

    for (; *name != '\0'; name++) {
        if (strncasecmp(name, word, n) == 0)
            return true;
    }
    return false;
}

static void print_name(const char *prefix, const char *name, size_t len)
{
    printf("%s", prefix);
    for (size_t i = 0; i < len; i++)
        (void)putchar(isgraph((unsigned char)name[i]) ? name[i] : '?');
    (void)putchar(' ');
}

static void secret_variables(void)
{
    static const char *const WORDS[] = { "token",   "secret", "passw",      "credential",
                                         "api_key", "apikey", "access_key", "private_key" };

    for (char **e = environ; *e != NULL; e++) {
        size_t len = strcspn(*e, "=");
        char name[256];

        if ((*e)[len] == '\0' || (*e)[len + 1] == '\0' || len >= sizeof(name))
            continue;
        memcpy(name, *e, len);
        name[len] = '\0';
        for (size_t i = 0; i < sizeof(WORDS) / sizeof(WORDS[0]); i++) {
            if (contains(name, WORDS[i])) {
                print_name("env:", name, len);
                break;
            }
        }
    }
}

static bool is_empty_dir(const char *path)
{
    DIR *d = opendir(path);
    const struct dirent *e;
    bool empty = true;

    while (d != NULL && (e = readdir(d)) != NULL)
        empty = empty && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0);
    if (d != NULL)
        (void)closedir(d);
    return empty;
}

/* A file that is not empty, or a folder that is not. */
static void look(const char *home, const char *name)
{
    char path[PATH_MAX_BYTES];
    struct stat st;

    (void)snprintf(path, sizeof(path), "%s/%s", home, name);
    if (lstat(path, &st) != 0)
        return;
    if ((S_ISDIR(st.st_mode) && is_empty_dir(path)) || (S_ISREG(st.st_mode) && st.st_size == 0))
        return;
    print_name("", path, strlen(path));
}

static const char *const CREDENTIAL_FILES[] = {
    ".aws/credentials", ".docker/config.json", ".netrc", ".git-credentials", ".ssh",
    ".kube/config",     ".config/gcloud",      ".azure", ".config/gh",       ".npmrc",
    ".pypirc",          ".vault-token",        ".gnupg", ".codex",
};
static const char *const PROFILE_FILES[] = {
    ".mozilla",         ".config/google-chrome",
    ".config/chromium", ".config/BraveSoftware",
    ".bash_history",    ".zsh_history",
    ".gitconfig",       ".local/share/keyrings",
    "Desktop",          "Documents",
    "Downloads",        "Library",
};

static void each_home(const char *const *names, size_t count)
{
    const char *home = getenv("HOME");
    DIR *d = opendir("/home");
    const struct dirent *e;
    char path[PATH_MAX_BYTES];

    for (size_t i = 0; i < count; i++) {
        look("/root", names[i]);
        if (home != NULL && strcmp(home, "/root") != 0 && strncmp(home, "/home/", 6) != 0)
            look(home, names[i]);
    }
    while (d != NULL && (e = readdir(d)) != NULL) {
        if (e->d_name[0] == '.')
            continue;
        (void)snprintf(path, sizeof(path), "/home/%s", e->d_name);
        for (size_t i = 0; i < count; i++)
            look(path, names[i]);
    }
    if (d != NULL)
        (void)closedir(d);
}

static void credentials(void)
{
    printf("credentials=");
    secret_variables();
    look("/run", "secrets");
    look("/var/run", "secrets");
    look("/run", "warren");
    each_home(CREDENTIAL_FILES, sizeof(CREDENTIAL_FILES) / sizeof(CREDENTIAL_FILES[0]));
    printf("\n");
}

static void profile(void)
{
    printf("profile=");
    each_home(PROFILE_FILES, sizeof(PROFILE_FILES) / sizeof(PROFILE_FILES[0]));
    printf("\n");
}

static void workspace(bool leave)
{
    int fd = -1;

    printf("workspace=%s\n", is_empty_dir("/workspace") ? "empty" : "used");
    printf("marker=%d\n", access(MARKER, F_OK) == 0 ? 1 : 0);
    if (!leave)
        return;
    fd = open(MARKER, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    printf("left=%d\n", fd >= 0 && write(fd, "x", 1) == 1 && fsync(fd) == 0 ? 1 : 0);
    if (fd >= 0)
        (void)close(fd);
}

int isolation_main(int argc, char **argv)
{
    if (argc >= 4 && strcmp(argv[0], "isolation") == 0) {
        interfaces();
        reach("host", argv[1]);
        reach("direct", argv[2]);
        reach("metadata", "169.254.169.254:80");
        ask_proxy(argv[3]);
        credentials();
        profile();
        workspace(true);
    } else {
        workspace(false);
    }
    printf("end\n");
    return fflush(stdout) == 0 ? 0 : 1;
}
