#include "gateway/checkin.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <netinet/in.h>

#include "base/id.h"
#include "base/json.h"
#include "base/scoped.h"
#include "base/str.h"
#include "net/net.h"

enum {
    DEPLOY_MS = 60000,
    CALL_MS = 30000,
    PROBE_S = 20,
    TARGETS_TEXT_MAX = 3000,
    TARGETS_MAX = 48,
    MEMORY_MB = 256,
    DISK_MB = 64,
    CPU_MILLIS = 500,
};

/* Well-known addresses: whoever reaches one has a way out beside the proxy. */
#define DIRECT "1.1.1.1:443,8.8.8.8:53"

static void PRINTF_LIKE(2, 3) say(struct gateway_checkin_report *r, const char *fmt, ...)
{
    size_t used = strlen(r->why);
    va_list ap;

    if (used > 0 && used + 2 < sizeof(r->why)) {
        (void)snprintf(r->why + used, sizeof(r->why) - used, "; ");
        used += 2;
    }
    va_start(ap, fmt);
    (void)vsnprintf(r->why + used, sizeof(r->why) - used, fmt, ap);
    va_end(ap);
}

/* --- our own protocol ---------------------------------------------------- */

static enum sbx_code call(const struct gateway_checkin_probe *p, struct arena *a,
                          const char *method, const char *path, const json_t *body, int timeout_ms,
                          json_t **out, struct sbx_err *err)
{
    static const char *const JSON[] = { "Content-Type: application/json", NULL };
    SCOPED_BUF struct buf text = BUF_INIT(65536);
    struct net_spec spec = { .method = method,
                             .url = arena_printf(a, "http://region%s", path),
                             .unix_path = p->socket,
                             .headers = JSON,
                             .timeout_ms = timeout_ms };
    struct net_answer answer;
    json_t *j = NULL;

    if (body != NULL) {
        if (!json_write(&text, body))
            return err_set(err, SBX_E_INTERNAL, "a request did not fit");
        spec.body = text.data;
        spec.body_len = text.len;
    }
    if (net_request(NULL, &spec, a, &answer, err) != SBX_OK)
        return err_wrap(err, "%s", method);
    if (json_parse_object(answer.body, answer.body_len, &j, err) != SBX_OK)
        return err_wrap(err, "%s answered %d", method, answer.status);
    if (answer.status != 200) {
        enum sbx_code code = answer.status == 404 ? SBX_E_NOT_FOUND : SBX_E_UNAVAILABLE;

        (void)!err_set(err, code, "%s answered %d: %s", method, answer.status,
                       json_get_str(j, "error", ""));
        json_decref(j);
        return code;
    }
    *out = j;
    return SBX_OK;
}

static json_t *operation(int64_t generation)
{
    json_t *j = json_object();
    char op[ID_SIZE];

    id_new(op);
    json_put_str(j, "operationId", op);
    json_put_int(j, "generation", generation);
    return j;
}

static enum sbx_code deploy(const struct gateway_checkin_probe *p, struct arena *a, const char *id,
                            struct sbx_err *err)
{
    SCOPED_JSON json_t *body = operation(1);
    SCOPED_JSON json_t *answer = NULL;
    json_t *domains = json_array();

    for (const char *const *d = p->domains; *d != NULL; d++)
        (void)json_array_append_new(domains, json_string(*d));
    json_put_str(body, "accountId", GATEWAY_CHECKIN_ACCOUNT);
    json_put_str(body, "image", p->image);
    json_put_new(body, "resources",
                 json_pack("{s:i, s:i, s:i}", "cpuMillis", CPU_MILLIS, "memoryMb", MEMORY_MB,
                           "diskMb", DISK_MB));
    /* Domains without addresses: no network at all, only the proxy. */
    json_put_new(body, "network",
                 json_pack("{s:b, s:o}", "enabled", 0, "domainAllowlist", domains));
    return call(p, a, "PUT", arena_printf(a, "/v1/sandboxes/%s", id), body, DEPLOY_MS, &answer,
                err);
}

/* Nothing is left when this answers SBX_OK. */
static enum sbx_code end(const struct gateway_checkin_probe *p, struct arena *a, const char *id,
                         struct sbx_err *err)
{
    SCOPED_JSON json_t *body = operation(2);
    SCOPED_JSON json_t *answer = NULL;

    return call(p, a, "DELETE", arena_printf(a, "/v1/sandboxes/%s", id), body, CALL_MS, &answer,
                err);
}

static enum sbx_code run(const struct gateway_checkin_probe *p, struct arena *a, const char *id,
                         json_t *command, const char **text, struct sbx_err *err)
{
    SCOPED_JSON json_t *body = json_object();
    SCOPED_JSON json_t *answer = NULL;
    char execution[ID_SIZE];

    id_new(execution);
    json_put_str(body, "executionId", execution);
    json_put_int(body, "generation", 1);
    json_put_int(body, "timeoutSeconds", PROBE_S);
    json_put_str(body, "cwd", "/");
    json_put_new(body, "command", command);
    if (call(p, a, "POST", arena_printf(a, "/v1/sandboxes/%s/execute", id), body,
             CALL_MS + PROBE_S * 1000, &answer, err) != SBX_OK)
        return err->code;
    if (json_get_int(answer, "exitCode", -1) != 0)
        return err_set(err, SBX_E_UNAVAILABLE, "the probe ended with %d",
                       (int)json_get_int(answer, "exitCode", -1));
    *text = arena_strdup(a, json_get_str(answer, "stdout", ""));
    return SBX_OK;
}

/* Probes of a gateway that died. */
static void end_leftovers(const struct gateway_checkin_probe *p, struct arena *a)
{
    SCOPED_JSON json_t *answer = NULL;
    struct sbx_err err = { 0 };
    const json_t *box;
    size_t i;

    if (call(p, a, "GET", "/v1/sandboxes?probes=true", NULL, CALL_MS, &answer, &err) != SBX_OK)
        return;
    json_array_foreach(json_object_get(answer, "sandboxes"), i, box)
    {
        struct sbx_err ignored = { 0 };

        (void)!end(p, a, json_get_str(box, "sandboxId", ""), &ignored);
    }
}

/* --- what must not be reached -------------------------------------------- */

/* A listener on every address of the host: a probe that reaches it shares the host's network. */
static int host_listener(uint16_t *port)
{
    struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT };
    struct sockaddr_in in = { .sin_family = AF_INET };
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), off = 0;
    socklen_t len = sizeof(in6);

    if (fd >= 0 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) == 0 &&
        bind(fd, (struct sockaddr *)&in6, sizeof(in6)) == 0 && listen(fd, TARGETS_MAX) == 0 &&
        getsockname(fd, (struct sockaddr *)&in6, &len) == 0) {
        *port = ntohs(in6.sin6_port);
        return fd;
    }
    fd_close(&fd);
    len = sizeof(in);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&in, sizeof(in)) == 0 &&
        listen(fd, TARGETS_MAX) == 0 && getsockname(fd, (struct sockaddr *)&in, &len) == 0) {
        *port = ntohs(in.sin_port);
        return fd;
    }
    fd_close(&fd);
    return -1;
}

/* Every address of the host with that port, loopback included. */
static const char *host_targets(struct arena *a, uint16_t port)
{
    SCOPED_BUF struct buf b = BUF_INIT(TARGETS_TEXT_MAX);
    struct ifaddrs *list = NULL;
    char text[INET6_ADDRSTRLEN];
    int n = 0;

    (void)buf_printf(&b, "127.0.0.1:%u,[::1]:%u", port, port);
    if (getifaddrs(&list) != 0)
        return arena_strdup(a, b.data);
    for (const struct ifaddrs *i = list; i != NULL && n < TARGETS_MAX; i = i->ifa_next) {
        struct sockaddr_in in;
        struct sockaddr_in6 in6;

        if (i->ifa_addr == NULL)
            continue;
        if (i->ifa_addr->sa_family == AF_INET) {
            memcpy(&in, i->ifa_addr, sizeof(in));
            if (inet_ntop(AF_INET, &in.sin_addr, text, sizeof(text)) != NULL)
                (void)buf_printf(&b, ",%s:%u", text, port);
            n++;
        } else if (i->ifa_addr->sa_family == AF_INET6) {
            memcpy(&in6, i->ifa_addr, sizeof(in6));
            if (!IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr) &&
                inet_ntop(AF_INET6, &in6.sin6_addr, text, sizeof(text)) != NULL)
                (void)buf_printf(&b, ",[%s]:%u", text, port);
            n++;
        }
    }
    freeifaddrs(list);
    return arena_strdup(a, b.data);
}

/* --- reading what it found ------------------------------------------------ */

/* The value of a line "key=value", in out; false when there is no such line. */
static bool value_of(const char *text, const char *key, char *out, size_t size)
{
    size_t len = strlen(key), n;

    for (const char *p = text; p != NULL && *p != '\0'; p = strchr(p, '\n') + 1) {
        if (strncmp(p, key, len) == 0 && p[len] == '=') {
            n = strcspn(p + len + 1, "\n");
            while (n > 0 && p[len + n] == ' ')
                n--;
            n = n < size - 1 ? n : size - 1;
            memcpy(out, p + len + 1, n);
            out[n] = '\0';
            return true;
        }
        if (strchr(p, '\n') == NULL)
            break;
    }
    return false;
}

/* True and told in `why` when the line names anything. */
static bool found(const char *text, const char *key, struct gateway_checkin_report *r)
{
    char value[160];

    if (!value_of(text, key, value, sizeof(value))) {
        say(r, "%s was not measured", key);
        return true;
    }
    if (value[0] != '\0')
        say(r, "%s: %s", key, value);
    return value[0] != '\0';
}

static bool is(const char *text, const char *key, const char *want,
               struct gateway_checkin_report *r)
{
    char value[32] = "";

    if (value_of(text, key, value, sizeof(value)) && strcmp(value, want) == 0)
        return true;
    say(r, "%s is %s", key, value[0] != '\0' ? value : "not measured");
    return false;
}

bool gateway_checkin_read(const char *text, struct gateway_checkin_report *r)
{
    bool interfaces, host, direct, metadata, files;

    if (!str_ends(text, "end\n")) {
        say(r, "the probe did not finish");
        return false;
    }
    interfaces = found(text, "interfaces", r);
    host = found(text, "host", r);
    direct = found(text, "direct", r);
    r->host_network = interfaces || host;
    metadata = found(text, "metadata", r);
    files = found(text, "credentials", r);
    r->credentials = metadata || files;
    r->profile = found(text, "profile", r);
    r->egress_proxy = is(text, "proxy", "1", r) && !direct;
    return is(text, "marker", "0", r) && is(text, "left", "1", r);
}

/* --- the measurement ------------------------------------------------------ */

static enum sbx_code first_sandbox(const struct gateway_checkin_probe *p, struct arena *a,
                                   const char *id, struct gateway_checkin_report *r, bool *whole,
                                   struct sbx_err *err)
{
    uint16_t port = 0;
    SCOPED_FD int listener = host_listener(&port);
    const char *text = "";

    if (listener < 0)
        return err_set(err, SBX_E_UNAVAILABLE, "the host has no port to try");
    if (run(p, a, id,
            json_pack("[s, s, s, s, s]", GATEWAY_CHECKIN_DIR "/probe", "isolation",
                      host_targets(a, port), DIRECT, p->domains[0]),
            &text, err) != SBX_OK)
        return err->code;
    *whole = gateway_checkin_read(text, r);
    return SBX_OK;
}

/* Is what the first one left gone? */
static enum sbx_code second_sandbox(const struct gateway_checkin_probe *p, struct arena *a,
                                    const char *id, struct gateway_checkin_report *r, bool *gone,
                                    struct sbx_err *err)
{
    const char *text = "";

    if (run(p, a, id, json_pack("[s, s]", GATEWAY_CHECKIN_DIR "/probe", "workspace"), &text, err) !=
        SBX_OK)
        return err->code;
    *gone =
        str_ends(text, "end\n") && is(text, "marker", "0", r) && is(text, "workspace", "empty", r);
    return SBX_OK;
}

static enum sbx_code measure(const struct gateway_checkin_probe *p, struct arena *a,
                             struct gateway_checkin_report *r, struct sbx_err *err)
{
    struct sbx_err late = { 0 };
    SCOPED_JSON json_t *seen = NULL;
    char first[ID_SIZE], second[ID_SIZE];
    bool whole = false, gone = false;
    enum sbx_code code;

    id_new(first);
    code = deploy(p, a, first, err);
    if (code == SBX_OK)
        code = first_sandbox(p, a, first, r, &whole, err);
    if (end(p, a, first, &late) != SBX_OK && code == SBX_OK)
        return *err = late, err->code;
    if (code != SBX_OK)
        return code;
    if (call(p, a, "GET", arena_printf(a, "/v1/sandboxes/%s", first), NULL, CALL_MS, &seen,
             &late) != SBX_E_NOT_FOUND)
        return err_set(err, SBX_E_UNAVAILABLE, "the region still has the probe after its end");
    id_new(second);
    code = deploy(p, a, second, err);
    if (code == SBX_OK)
        code = second_sandbox(p, a, second, r, &gone, err);
    late = (struct sbx_err){ 0 };
    if (end(p, a, second, &late) != SBX_OK && code == SBX_OK)
        return *err = late, err->code;
    r->ephemeral = whole && gone;
    return code;
}

void gateway_checkin_measure(const struct gateway_checkin_probe *p,
                             struct gateway_checkin_report *out)
{
    /* What is not measured is not isolated. */
    const struct gateway_checkin_report worst = { .host_network = true,
                                                  .credentials = true,
                                                  .profile = true };
    SCOPED_ARENA struct arena *a = arena_new();
    struct sbx_err err = { 0 };

    *out = worst;
    end_leftovers(p, a);
    if (measure(p, a, out, &err) != SBX_OK) {
        *out = worst;
        say(out, "not measured: %s", err.msg);
    }
}
