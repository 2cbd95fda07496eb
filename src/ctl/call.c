#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "ctl/ctl.h"
#include "net/net.h"
#include "sbx/limits.h"

#define STATE_DEFAULT  "/var/lib/sandboxd"
#define SOCKET_SERVICE "/run/sandboxd/admin.sock"
#define PREFIX_ADMIN   "/admin/v1"
#define PREFIX_USER    "/api/public/v1"

const char *ctl_state_dir(const struct ctl *c)
{
    const char *env = getenv("SANDBOXCTL_STATE");

    if (c->state != NULL)
        return c->state;
    return env != NULL && env[0] != 0 ? env : STATE_DEFAULT;
}

json_t *ctl_client(struct ctl *c)
{
    SCOPED_FREE char *path = NULL;

    if (c->client != NULL)
        return c->client;
    path = mem_printf("%s/client.json", ctl_state_dir(c));
    c->client = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(c->client)) {
        json_decref(c->client);
        c->client = NULL;
    }
    return c->client;
}

/* A path that is too long for a socket address may still be reached by the link it is. */
static const char *short_path(struct ctl *c, const char *path)
{
    char target[PATH_MAX];

    if (strlen(path) < sizeof(((struct sockaddr_un *)0)->sun_path))
        return path;
    if (realpath(path, target) == NULL)
        return path;
    return arena_strdup(c->arena, target);
}

const char *ctl_admin_socket(struct ctl *c)
{
    const char *env = getenv("SANDBOXCTL_SOCKET");
    const char *named;
    struct stat st;

    if (c->socket != NULL)
        return short_path(c, c->socket);
    if (env != NULL && env[0] != 0)
        return short_path(c, env);
    named = json_get_str(ctl_client(c), "adminSocket", NULL);
    /* A standalone server that was here before does not hide the service that runs now. */
    if (named != NULL && (c->state != NULL || stat(named, &st) == 0))
        return named;
    if (c->state == NULL && stat(SOCKET_SERVICE, &st) == 0)
        return SOCKET_SERVICE;
    if (named != NULL)
        return named;
    return short_path(c, arena_printf(c->arena, "%s/run/admin.sock", ctl_state_dir(c)));
}

/* Where a call goes. The strings live in the arena; the caller frees bearer. */
struct target {
    const char *base; /* scheme and host */
    const char *unix_path;
    const char *ca_file; /* NULL: the system's trust anchors */
    struct secret *bearer;
};

static enum ctl_exit user_target(struct ctl *c, struct target *t, struct sbx_err *err)
{
    const char *url = c->url != NULL ? c->url : getenv("SANDBOXCTL_URL");
    const char *file = c->token_file != NULL ? c->token_file : getenv("SANDBOXCTL_TOKEN_FILE");

    t->ca_file = c->ca_file;
    if ((url == NULL || url[0] == 0) && ctl_client(c) != NULL) {
        url = json_get_str(ctl_client(c), "url", NULL);
        t->ca_file = json_get_str(ctl_client(c), "caFile", NULL);
    }
    if (url == NULL || url[0] == 0) {
        return ctl_fail(
            err, CTL_USAGE,
            "No server is named: give --url and --token-file, or set SANDBOXCTL_URL and "
            "SANDBOXCTL_TOKEN_FILE.");
    }
    if (file == NULL || file[0] == 0)
        file = json_get_str(ctl_client(c), "tokenFile", NULL);
    if (file == NULL) {
        return ctl_fail(err, CTL_USAGE,
                        "No token is named: give --token-file or set SANDBOXCTL_TOKEN_FILE.");
    }
    if (secret_read_file(file, "--token-file", 4096, &t->bearer, err) != SBX_OK)
        return CTL_USAGE;
    t->base = url;
    return CTL_DONE;
}

static enum ctl_exit find_target(struct ctl *c, enum ctl_side side, struct target *t,
                                 struct sbx_err *err)
{
    *t = (struct target){ .base = "http://localhost" };
    if (side == CTL_USER)
        return user_target(c, t, err);
    t->unix_path = ctl_admin_socket(c);
    return CTL_DONE;
}

static void put_query(struct buf *b, const json_t *query)
{
    const char *key;
    json_t *value;
    char mark = '?';

    json_object_foreach((json_t *)(uintptr_t)query, key, value)
    {
        (void)buf_printf(b, "%c%s=", mark, key);
        mark = '&';
        if (json_is_string(value))
            (void)net_url_escape(b, json_string_value(value), false);
        else if (json_is_integer(value))
            (void)buf_printf(b, "%lld", (long long)json_integer_value(value));
        else
            (void)buf_puts(b, json_is_true(value) ? "true" : "false");
    }
}

static enum ctl_exit unreachable(const struct target *t, struct sbx_err *err)
{
    struct sbx_err inner = *err;

    if (t->unix_path != NULL)
        return ctl_fail(err, CTL_UNREACHABLE,
                        "No answer on %s (%s). Does sandboxd run, and may you use its socket?",
                        t->unix_path, inner.msg);
    return ctl_fail(err, CTL_UNREACHABLE, "No answer from %s (%s).", t->base, inner.msg);
}

static enum ctl_exit refused(struct ctl *c, const struct net_answer *answer, struct sbx_err *err)
{
    const char *text = json_get_str(c->answer, "error", NULL);

    if (text == NULL)
        return ctl_fail(err, CTL_REFUSED, "The server answered %d.", answer->status);
    return ctl_fail(err, CTL_REFUSED, "%s (%s)", text, json_get_str(c->answer, "code", ""));
}

static enum ctl_exit send_to(struct ctl *c, const struct target *t, struct net_spec *spec,
                             struct sbx_err *err)
{
    struct net_answer answer = { 0 };
    struct sbx_err why = { .code = SBX_OK };

    *err = (struct sbx_err){ .code = SBX_OK }; /* an earlier call of this run may have failed */

    spec->unix_path = t->unix_path;
    spec->ca_file = t->ca_file;
    spec->bearer = t->bearer;
    spec->answer_max = CTL_ANSWER_MAX;
    if (net_request(NULL, spec, c->arena, &answer, err) != SBX_OK)
        return unreachable(t, err);
    json_decref(c->answer);
    c->answer = NULL;
    if (json_parse_object(answer.body != NULL ? answer.body : "", answer.body_len, &c->answer,
                          &why) != SBX_OK &&
        answer.status < 300) {
        return ctl_fail(err, CTL_UNREACHABLE, "The answer of %s is not sandboxd's.",
                        t->unix_path != NULL ? t->unix_path : t->base);
    }
    return answer.status < 300 ? CTL_DONE : refused(c, &answer, err);
}

static const char *full_url(struct ctl *c, const struct target *t, enum ctl_side side,
                            const char *path, const json_t *query)
{
    struct buf b = BUF_INIT(SBX_KIB(64));
    size_t base = strlen(t->base);
    const char *out;

    while (base > 0 && t->base[base - 1] == '/')
        base--;
    (void)buf_append(&b, t->base, base);
    (void)buf_puts(&b, path[0] == '!' ? "" : side == CTL_USER ? PREFIX_USER : PREFIX_ADMIN);
    (void)buf_puts(&b, path[0] == '!' ? path + 1 : path);
    if (query != NULL)
        put_query(&b, query);
    out = arena_strdup(c->arena, b.data);
    buf_fini(&b);
    return out;
}

enum ctl_exit ctl_call(struct ctl *c, enum ctl_side side, const char *method, const char *path,
                       const json_t *body, int timeout_ms, struct sbx_err *err)
{
    static const char *const JSON[] = { "Content-Type: application/json", NULL };
    bool get = strcmp(method, "GET") == 0;
    SCOPED_BUF struct buf text = BUF_INIT(CTL_ANSWER_MAX);
    struct net_spec spec = { .method = method, .timeout_ms = timeout_ms };
    SCOPED_SECRET struct secret *bearer = NULL;
    struct target t;
    enum ctl_exit rc = find_target(c, side, &t, err);

    bearer = t.bearer; /* wiped on the way out */
    if (rc != CTL_DONE)
        return rc;
    spec.url = full_url(c, &t, side, path, get ? body : NULL);
    if (!get) {
        (void)(body != NULL ? json_write(&text, body) : buf_puts(&text, "{}"));
        spec.body = text.data;
        spec.body_len = text.len;
        spec.headers = JSON;
    }
    return send_to(c, &t, &spec, err);
}

/* --- streamed bodies ----------------------------------------------------------- */

struct upload {
    int fd;
    uint64_t sent;
};

static ssize_t read_piece(void *arg, void *to, size_t max)
{
    struct upload *u = arg;
    ssize_t n = read(u->fd, to, max);
    char text[64];

    if (n > 0 && (u->sent >> 24) != ((u->sent + (uint64_t)n) >> 24)) {
        (void)snprintf(text, sizeof(text), "sent %llu MiB",
                       (unsigned long long)((u->sent + (uint64_t)n) >> 20));
        ctl_progress(text);
    }
    u->sent += n > 0 ? (uint64_t)n : 0;
    return n;
}

enum ctl_exit ctl_call_stream(struct ctl *c, const char *path, const json_t *query,
                              const char *content_type, int fd, struct sbx_err *err)
{
    struct upload u = { .fd = fd };
    const char *headers[] = { content_type, NULL };
    struct net_spec spec = { .method = "POST",
                             .headers = headers,
                             .read_body = read_piece,
                             .read_arg = &u,
                             .read_size = -1,
                             .timeout_ms = 3600 * 1000,
                             .stall_timeout_ms = 600 * 1000 };
    struct target t;
    enum ctl_exit rc = find_target(c, CTL_ADMIN, &t, err);

    if (rc != CTL_DONE)
        return rc;
    spec.url = full_url(c, &t, CTL_ADMIN, path, query);
    rc = send_to(c, &t, &spec, err);
    ctl_progress(NULL);
    return rc;
}
