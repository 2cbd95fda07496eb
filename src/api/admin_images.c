#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "api/handlers.h"
#include "base/mem.h"
#include "base/scoped.h"
#include "sbx/gateway.h"

/* The image store of a region, relayed.  An imported image waits in an unnamed file of
 * the spool folder until its body is complete: the region sees whole images only, and a
 * client that gives up leaves nothing. */

struct spool {
    int fd;
    int64_t size;
};

static void spool_close(void *p)
{
    struct spool *s = p;

    fd_close(&s->fd);
}

static enum sbx_code spool_of(struct request *req, struct spool **out, struct sbx_err *err)
{
    const struct api *api = request_owner(req);
    struct spool *s = request_slot(req);

    if (s == NULL) {
        s = arena_zalloc(request_arena(req), sizeof(*s));
        s->fd = open(api->cfg.spool_dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (s->fd < 0)
            return err_sys(err, SBX_E_INTERNAL, "a file in the spool folder");
        arena_defer(request_arena(req), spool_close, s);
        request_set_slot(req, s);
    }
    *out = s;
    return SBX_OK;
}

enum sbx_code api_image_body(struct request *req, const void *data, size_t len, struct sbx_err *err)
{
    const char *at = data;
    struct spool *s = NULL;

    if (spool_of(req, &s, err) != SBX_OK)
        return err->code;
    while (len > 0) {
        ssize_t n = write(s->fd, at, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, SBX_E_INTERNAL, "writing to the spool folder");
        at += n;
        len -= (size_t)n;
        s->size += n;
    }
    return SBX_OK;
}

static ssize_t read_spool(void *arg, void *to, size_t max)
{
    struct spool *s = arg;

    return read(s->fd, to, max);
}

enum sbx_code api_image_import(struct api_call *c, struct sbx_err *err)
{
    json_t *made = NULL;
    struct spool *s = NULL;

    c->object_kind = "image";
    if (spool_of(c->req, &s, err) != SBX_OK)
        return err->code;
    if (s->size == 0)
        return err_set(err, SBX_E_INVALID, "The body must be a tar stream.");
    if (lseek(s->fd, 0, SEEK_SET) != 0)
        return err_sys(err, SBX_E_INTERNAL, "the spool file");
    if (gateway_client_image_import(c->api->cfg.gateway, json_get_str(c->args, "region", ""),
                                    json_get_str(c->args, "name", ""),
                                    json_get_str(c->args, "kind", "layout"), read_spool, s, s->size,
                                    c->a, &made, err) != SBX_OK)
        return err->code;
    c->object_id = arena_strdup(c->a, json_get_str(made, "reference", NULL));
    response_ok(c->res, 200, made);
    return SBX_OK;
}

/* --- calls that wait for the region ------------------------------------ */

struct relay {
    struct api *api;
    struct http_server *server;
    uint64_t ticket;
    enum sbx_code code;
    char message[200];
    json_t *json;
};

static void relay_free(struct relay *r)
{
    json_decref(r->json);
    free(r);
}
DEFINE_SCOPED(struct relay, relay_free)

static enum sbx_code relay_answer(struct request *req, struct response *res, void *arg,
                                  struct sbx_err *err)
{
    SCOPED(relay_free_p) struct relay *r = arg;
    struct api_call *c = request_slot(req);
    enum sbx_code code = r->code;

    c->res = res;
    if (code == SBX_OK)
        response_ok(res, 200, STEAL(r->json));
    else
        (void)!err_set(err, code, "%s", r->message);
    api_call_audit(c, code);
    return code;
}

static void on_relay(void *arg, const struct gateway_client_answer *answer)
{
    struct relay *r = arg;

    r->code = answer->code;
    (void)snprintf(r->message, sizeof(r->message), "%s",
                   answer->message != NULL ? answer->message : "");
    if (answer->json != NULL)
        r->json = json_deep_copy(answer->json);
    if (!api_continue(r->api, r->server, r->ticket, relay_answer, r))
        relay_free(r);
}

static struct relay *relay_new(struct api_call *c)
{
    struct relay *r = mem_zalloc(sizeof(*r));

    c->deferred = true;
    request_set_slot(c->req, c);
    r->api = c->api;
    r->server = request_server(c->req);
    r->ticket = request_defer(c->req, (SBX_GATEWAY_CALL_TIMEOUT_S + 5) * 1000, NULL);
    return r;
}

static enum sbx_code relay_started(struct relay *r, const struct sbx_err *err)
{
    if (err->code != SBX_OK)
        on_relay(r, &(struct gateway_client_answer){ .code = err->code, .message = err->msg });
    return SBX_OK;
}

enum sbx_code api_image_list(struct api_call *c, struct sbx_err *err)
{
    struct relay *r = relay_new(c);
    struct sbx_err why = { 0 };

    (void)err;
    (void)!gateway_client_read(c->api->cfg.gateway, json_get_str(c->args, "region", ""),
                               "/v1/images", on_relay, r, &why);
    return relay_started(r, &why);
}

enum sbx_code api_image_remove(struct api_call *c, struct sbx_err *err)
{
    struct relay *r = relay_new(c);
    struct sbx_err why = { 0 };

    (void)err;
    c->object_kind = "image";
    c->object_id = json_get_str(c->args, "reference", NULL);
    (void)!gateway_client_image_remove(c->api->cfg.gateway, json_get_str(c->args, "region", ""),
                                       c->object_id, on_relay, r, &why);
    return relay_started(r, &why);
}
