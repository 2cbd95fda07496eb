#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "gateway/gateway_impl.h"

/* What a request is answered with, in its own memory. */
struct reply {
    struct sbx_err err;
    char *body;
};

static void reply_free(struct reply *r)
{
    free(r->body);
    free(r);
}

static enum sbx_code write_reply(struct request *req, struct response *res, void *arg,
                                 struct sbx_err *err)
{
    struct reply *r = arg;

    (void)req;
    if (r->err.code == SBX_OK)
        response_bytes(res, 200, "application/json", r->body, strlen(r->body));
    else
        *err = r->err;
    reply_free(r);
    return err->code;
}

void gateway_answer(struct gateway *g, uint64_t ticket, const struct sbx_err *err, const char *body)
{
    struct reply *r = mem_zalloc(sizeof(*r));

    r->err = *err;
    r->body = err->code == SBX_OK ? mem_strdup(body) : NULL;
    if (!request_finish(g->http, ticket, write_reply, r))
        reply_free(r); /* whoever asked is gone; the result stays in the journal */
}
