/* The listeners, and the secrets and uids that may call on them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/scoped.h"
#include "base/str.h"
#include "gateway/gateway_impl.h"

enum {
    SECRET_MAX = 4096,
    SECRET_MIN = 16, /* bytes */
};

void gateway_who_fini(struct gateway_who *who)
{
    secret_free(who->secret);
    secret_free(who->process_secret);
    *who = (struct gateway_who){ 0 };
}

/* Each line of a secret file is a secret: the old and the new one while they are being changed. */
static enum sbx_code read_secret(const struct config *c, const char *key, struct secret **out,
                                 struct sbx_err *err)
{
    const char *path = config_str(c, "listen", key), *line;
    char name[64];

    (void)snprintf(name, sizeof(name), "[listen] %s", key);
    if (path[0] == 0)
        return SBX_OK;
    if (secret_read_file(path, name, SECRET_MAX, out, err) != SBX_OK)
        return err->code;
    line = secret_reveal(*out);
    do {
        size_t len = strcspn(line, "\n");

        if (len < SECRET_MIN)
            return err_set(err, SBX_E_INVALID, "%s must hold at least %d bytes on each line", name,
                           SECRET_MIN);
        line += len + (line[len] == '\n');
    } while (*line != 0);
    return SBX_OK;
}

enum sbx_code gateway_who_read(const struct config *c, struct gateway_who *who, struct sbx_err *err)
{
    SCOPED_ARENA struct arena *a = arena_new();
    const char **texts;

    if (read_secret(c, "secret_file", &who->secret, err) != SBX_OK ||
        read_secret(c, "process_secret_file", &who->process_secret, err) != SBX_OK)
        return err->code;
    texts = config_list(c, "listen", "socket_uids", a, &who->uid_count);
    for (size_t i = 0; i < who->uid_count; i++) {
        int64_t uid;

        if (i == GATEWAY_UIDS_MAX || !str_parse_int(texts[i], 0, UINT32_MAX, &uid))
            return err_set(err, SBX_E_INVALID, "[listen] socket_uids must be at most %d uids",
                           GATEWAY_UIDS_MAX);
        who->uids[i] = (uint32_t)uid;
    }
    return SBX_OK;
}

static enum sbx_code write_port(struct gateway *g, struct sbx_err *err)
{
    const char *path = config_str(g->config, "listen", "port_file");
    char text[16];

    if (path[0] == 0)
        return SBX_OK;
    (void)snprintf(text, sizeof(text), "%u\n", gateway_port(g));
    return file_write(path, text, strlen(text), 0644, false, err);
}

enum sbx_code gateway_serve(struct gateway *g, struct sbx_err *err)
{
    const struct config *c = g->config;
    const char *socket = config_str(c, "listen", "socket");
    const char *cert = config_str(c, "listen", "tls_cert_file");
    struct http_listener listeners[2];
    struct http_config config = {
        .owner = g,
        .listeners = listeners,
        .auth = gateway_authenticate,
        .on_error = response_gateway_error,
        .workers = (unsigned)config_int(c, "limits", "http_workers"),
        .deferred_max = (size_t)(config_int(c, "limits", "executions") +
                                 config_int(c, "limits", "deploy_queue") * 2),
        .connections_max = (unsigned)(config_int(c, "limits", "executions") +
                                      config_int(c, "limits", "deploy_queue") * 2),
        .access_log = true,
        .metrics = g->metrics,
    };
    size_t n = 0;

    if (config_int(c, "listen", "port") != 0 || config_str(c, "listen", "port_file")[0] != 0) {
        if (g->who.secret == NULL)
            return err_set(err, SBX_E_INVALID, "the TCP listener needs [listen] secret_file");
        listeners[n++] = (struct http_listener){
            .name = "region",
            .address = arena_printf(g->arena, "%s:%" PRId64, config_str(c, "listen", "address"),
                                    config_int(c, "listen", "port")),
            .cert_file = cert[0] != 0 ? cert : NULL,
            .key_file = cert[0] != 0 ? config_str(c, "listen", "tls_key_file") : NULL,
            .tables = &gateway_route_table,
            .table_count = 1,
        };
    }
    if (socket[0] != 0) /* anybody may connect; the peer's uid decides */
        listeners[n++] =
            (struct http_listener){ .name = "local",
                                    .address = arena_printf(g->arena, "unix:%s", socket),
                                    .mode = 0666,
                                    .tables = &gateway_route_table,
                                    .table_count = 1 };
    if (n == 0)
        return err_set(err, SBX_E_INVALID, "set [listen] socket, or port and secret_file");
    config.listener_count = n;
    if (http_server_start(&config, &g->http, err) != SBX_OK)
        return err->code;
    return write_port(g, err);
}

uint16_t gateway_port(const struct gateway *g)
{
    return http_server_port(g->http, 0);
}
