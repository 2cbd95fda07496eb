#include "region/gateway_client.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "region/gateway_client_call.h"

enum {
    REGIONS_MAX = 1024,
    BODY_MAX = 2 * 1024 * 1024, /* of a request: an execute's argv is at most 1 MiB, escaped */
    URL_MAX = 2048,
    OUTPUT_BUFFER = 1024, /* of libcurl, of each command under way */
    RESUME_AT_ONCE = 16, /* waiting transfers that one freed output lets go on */
};

enum { M_CALLS, M_CALL_MS, M_OUTPUT, M_EXECUTIONS };
static const struct metrics_def METRICS[] = {
    [M_CALLS] = { "sandboxd_region_calls_total",
                  METRICS_COUNTER,
                  "Calls to region gateways by outcome.",
                  { "outcome" } },
    [M_CALL_MS] = { "sandboxd_region_call_seconds",
                    METRICS_HISTOGRAM,
                    "How long a call to a region gateway took.",
                    { NULL } },
    [M_OUTPUT] = { "sandboxd_output_bytes",
                   METRICS_GAUGE,
                   "Bytes of execute answers in memory (the output budget bounds them).",
                   { NULL } },
    [M_EXECUTIONS] = { "sandboxd_executions_waiting",
                       METRICS_GAUGE,
                       "Execute calls this control plane waits for.",
                       { NULL } },
};

struct gateway_client {
    struct net *net;
    size_t budget;
    size_t executions_max;
    struct metrics_table *metrics;

    pthread_mutex_t lock; /* endpoints */
    struct region_endpoint *endpoints[REGIONS_MAX];
    size_t endpoint_count;

    atomic_size_t calls;
    atomic_size_t executions;

    pthread_mutex_t budget_lock; /* the rest */
    size_t used;
    struct gateway_client_output *overdraws; /* the one that may go past the budget, so that there
                                                is always one that gets to its end */
    struct gateway_client_output *waiting, **waiting_end;
};

static void print_gauges(void *arg)
{
    struct gateway_client *c = arg;
    struct gateway_client_stats s;

    gateway_client_stats(c, &s);
    metrics_set(c->metrics, M_OUTPUT, METRICS_PLAIN, (int64_t)s.output_bytes);
    metrics_set(c->metrics, M_EXECUTIONS, METRICS_PLAIN, (int64_t)s.executions);
}

struct gateway_client *gateway_client_new(const struct gateway_client_config *config)
{
    struct gateway_client *c = mem_zalloc(sizeof(*c));

    c->net = config->net;
    c->budget = config->output_budget ? config->output_budget : GATEWAY_CLIENT_OUTPUT_BUDGET;
    c->executions_max =
        config->executions_max ? config->executions_max : GATEWAY_CLIENT_EXECUTIONS_MAX;
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)pthread_mutex_init(&c->budget_lock, NULL);
    c->waiting_end = &c->waiting;
    if (config->metrics) {
        c->metrics = metrics_register(config->metrics, METRICS, COUNT_OF(METRICS));
        metrics_on_print(config->metrics, print_gauges, c);
    }
    return c;
}

void gateway_client_free(struct gateway_client *c)
{
    if (!c)
        return;
    assert(atomic_load(&c->calls) == 0);
    for (size_t i = 0; i < c->endpoint_count; i++)
        region_endpoint_give(c->endpoints[i]);
    (void)pthread_mutex_destroy(&c->lock);
    (void)pthread_mutex_destroy(&c->budget_lock);
    free(c);
}

struct net *region_net(struct gateway_client *c)
{
    return c->net;
}

/* --- endpoints --------------------------------------------------------- */

void region_endpoint_give(struct region_endpoint *e)
{
    if (!e || atomic_fetch_sub(&e->refs, 1) != 1)
        return;
    free(e->region);
    free(e->url);
    free(e->socket);
    free(e->ca_file);
    secret_free(e->secret);
    free(e);
}

struct region_endpoint *region_endpoint_take(struct gateway_client *c, const char *region)
{
    struct region_endpoint *found = NULL;

    (void)pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < c->endpoint_count && !found; i++) {
        if (strcmp(c->endpoints[i]->region, region) == 0)
            found = c->endpoints[i];
    }
    if (found)
        (void)atomic_fetch_add(&found->refs, 1);
    (void)pthread_mutex_unlock(&c->lock);
    return found;
}

static char *copy_or_null(const char *s)
{
    return s && s[0] ? mem_strdup(s) : NULL;
}

static struct region_endpoint *endpoint_new(const struct gateway_client_endpoint *in)
{
    struct region_endpoint *e = mem_zalloc(sizeof(*e));
    size_t len;

    atomic_init(&e->refs, 1);
    e->region = mem_strdup(in->region);
    e->socket = copy_or_null(in->socket);
    e->ca_file = copy_or_null(in->ca_file);
    e->url = mem_strdup(e->socket ? "http://gateway" : in->url);
    len = strlen(e->url);
    while (len > 0 && e->url[len - 1] == '/')
        e->url[--len] = '\0';
    if (in->secret)
        e->secret = secret_new(secret_reveal(in->secret), secret_len(in->secret));
    return e;
}

enum sbx_code gateway_client_endpoint_set(struct gateway_client *c,
                                          const struct gateway_client_endpoint *endpoint,
                                          struct sbx_err *err)
{
    bool has_url = endpoint->url && endpoint->url[0];
    bool has_socket = endpoint->socket && endpoint->socket[0];
    struct region_endpoint *fresh, *old = NULL;
    bool full = false;
    size_t i;

    if (has_url == has_socket)
        return err_set(err, SBX_E_INVALID, "region %s needs a url or a socket", endpoint->region);
    if (has_url && !str_starts(endpoint->url, "http://") && !str_starts(endpoint->url, "https://"))
        return err_set(err, SBX_E_INVALID, "region %s: the url must be http or https",
                       endpoint->region);
    fresh = endpoint_new(endpoint);
    (void)pthread_mutex_lock(&c->lock);
    for (i = 0; i < c->endpoint_count; i++) {
        if (strcmp(c->endpoints[i]->region, endpoint->region) == 0)
            break;
    }
    if (i < REGIONS_MAX) {
        old = c->endpoints[i];
        c->endpoints[i] = fresh;
        if (i == c->endpoint_count)
            c->endpoint_count++;
    } else {
        full = true;
        old = fresh;
    }
    (void)pthread_mutex_unlock(&c->lock);
    region_endpoint_give(old);
    if (full)
        return err_set(err, SBX_E_INVALID, "more than %d regions", REGIONS_MAX);
    return SBX_OK;
}

void gateway_client_endpoint_drop(struct gateway_client *c, const char *region)
{
    struct region_endpoint *old = NULL;

    (void)pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < c->endpoint_count; i++) {
        if (strcmp(c->endpoints[i]->region, region) != 0)
            continue;
        old = c->endpoints[i];
        c->endpoints[i] = c->endpoints[--c->endpoint_count];
        c->endpoints[c->endpoint_count] = NULL;
        break;
    }
    (void)pthread_mutex_unlock(&c->lock);
    region_endpoint_give(old);
}

enum sbx_code region_address(const struct region_endpoint *e, const char *path, struct buf *url,
                             struct net_spec *spec, struct sbx_err *err)
{
    if (!buf_puts(url, e->url) || !buf_puts(url, path))
        return err_set(err, SBX_E_INVALID, "region path is too long");
    spec->url = url->data;
    spec->unix_path = e->socket;
    spec->bearer = e->secret;
    spec->ca_file = e->ca_file;
    return SBX_OK;
}

/* --- the output budget ------------------------------------------------- */

enum net_take region_output_add(struct gateway_client_output *o, const void *data, size_t len)
{
    struct gateway_client *c = o->client;
    size_t before = o->body.cap;
    bool took = false;

    (void)pthread_mutex_lock(&c->budget_lock);
    if (c->used + len <= c->budget || !c->overdraws || c->overdraws == o) {
        if (c->used + len > c->budget)
            c->overdraws = o;
        took = true;
    } else if (!o->waiting) {
        o->waiting = true;
        o->next_waiting = NULL;
        *c->waiting_end = o;
        c->waiting_end = &o->next_waiting;
    }
    (void)pthread_mutex_unlock(&c->budget_lock);
    if (!took)
        return NET_WAIT;
    if (!buf_append(&o->body, data, len))
        return NET_GIVE_UP;
    (void)pthread_mutex_lock(&c->budget_lock);
    c->used += o->body.cap - before;
    o->counted += o->body.cap - before;
    (void)pthread_mutex_unlock(&c->budget_lock);
    return NET_TOOK;
}

/* Takes o out of the queue of those that wait; the lock is held. */
static void unwait(struct gateway_client *c, const struct gateway_client_output *o)
{
    struct gateway_client_output **p = &c->waiting;

    while (*p && *p != o)
        p = &(*p)->next_waiting;
    if (!*p)
        return;
    *p = o->next_waiting;
    if (c->waiting_end == &o->next_waiting)
        c->waiting_end = p;
}

size_t gateway_client_output_len(const struct gateway_client_output *o)
{
    return o->body.len;
}

void gateway_client_output_free(struct gateway_client_output *o)
{
    struct gateway_client *c;
    uint64_t resume[RESUME_AT_ONCE];
    size_t count = 0;

    if (!o)
        return;
    c = o->client;
    (void)pthread_mutex_lock(&c->budget_lock);
    if (o->waiting)
        unwait(c, o);
    c->used -= o->counted;
    if (c->overdraws == o)
        c->overdraws = NULL;
    while (c->waiting && count < RESUME_AT_ONCE) {
        struct gateway_client_output *w = c->waiting;

        c->waiting = w->next_waiting;
        if (!c->waiting)
            c->waiting_end = &c->waiting;
        w->waiting = false;
        resume[count++] = w->transfer;
    }
    (void)pthread_mutex_unlock(&c->budget_lock);
    for (size_t i = 0; i < count; i++)
        net_resume(c->net, resume[i]);
    buf_fini(&o->body);
    free(o);
}

static enum net_take on_output(void *arg, int status, const void *data, size_t len)
{
    struct region_call *call = arg;

    (void)status;
    return region_output_add(call->output, data, len);
}

/* --- one call ---------------------------------------------------------- */

static void call_free(struct region_call *call)
{
    (void)atomic_fetch_sub(&call->client->calls, 1);
    if (call->execution)
        (void)atomic_fetch_sub(&call->client->executions, 1);
    gateway_client_output_free(call->output);
    free(call);
}

static void on_done(void *arg, const struct net_answer *got, const struct sbx_err *err)
{
    struct region_call *call = arg;
    struct gateway_client_answer answer = { 0 };
    SCOPED_ARENA struct arena *a = arena_new();
    SCOPED_JSON json_t *json = NULL;

    region_answer_read(call->kind, call->id, got, err, a, &json, &answer);
    if (answer.code == SBX_OK)
        answer.output = STEAL(call->output);
    metrics_add(call->client->metrics, M_CALLS, METRICS_LABELS(sbx_code_name(answer.code)), 1);
    metrics_observe_ms(call->client->metrics, M_CALL_MS, METRICS_PLAIN, got->took_ms);
    call->done(call->arg, &answer);
    call_free(call);
}

static struct region_call *call_new(struct gateway_client *c, const struct region_request *req,
                                    gateway_client_fn *done, void *arg)
{
    struct region_call *call = mem_zalloc(sizeof(*call));

    call->client = c;
    call->kind = req->kind;
    call->done = done;
    call->arg = arg;
    call->execution = req->execution;
    if (req->id)
        (void)str_copy(call->id, sizeof(call->id), req->id);
    if (req->kind == REGION_ANSWER_EXECUTE) {
        call->output = mem_zalloc(sizeof(*call->output));
        call->output->client = c;
        call->output->body.max = req->answer_max;
    }
    (void)atomic_fetch_add(&c->calls, 1);
    if (call->execution)
        (void)atomic_fetch_add(&c->executions, 1);
    return call;
}

/* Past the budget, or past the number, a command is refused before it starts. */
static enum sbx_code admit(struct gateway_client *c, struct sbx_err *err)
{
    size_t used;

    (void)pthread_mutex_lock(&c->budget_lock);
    used = c->used;
    (void)pthread_mutex_unlock(&c->budget_lock);
    if (used >= c->budget)
        return err_set(err, SBX_E_BUSY,
                       "The output of other commands fills the memory set aside "
                       "for it; try again shortly.");
    if (atomic_load(&c->executions) >= c->executions_max)
        return err_set(err, SBX_E_BUSY, "Too many commands are under way; try again shortly.");
    return SBX_OK;
}

enum sbx_code region_call_start(struct gateway_client *c, const struct region_request *req,
                                gateway_client_fn *done, void *arg, struct sbx_err *err)
{
    static const char *const json_headers[] = { "Content-Type: application/json", NULL };
    struct region_endpoint *e;
    struct region_call *call;
    struct net_spec spec = { .method = req->method,
                             .timeout_ms = req->timeout_s * 1000,
                             .answer_max = req->answer_max };
    SCOPED_BUF struct buf url = BUF_INIT(URL_MAX);
    SCOPED_BUF struct buf body = BUF_INIT(BODY_MAX);
    uint64_t *transfer;
    enum sbx_code code;

    if (req->execution && admit(c, err))
        return err->code;
    if (req->body && !json_write(&body, req->body))
        return err_set(err, SBX_E_TOO_LARGE, "the request is too large for the region");
    e = region_endpoint_take(c, req->region);
    if (!e)
        return err_set(err, SBX_E_UNAVAILABLE, "region %s is not known here yet", req->region);
    call = call_new(c, req, done, arg);
    code = region_address(e, req->path, &url, &spec, err);
    if (code == SBX_OK) {
        if (req->body) {
            spec.body = body.data;
            spec.body_len = body.len;
            spec.headers = json_headers;
        }
        if (req->bearer)
            spec.bearer = req->bearer;
        if (call->output) {
            spec.on_data = on_output;
            spec.receive_buffer = OUTPUT_BUFFER;
            spec.data_arg = call;
        }
        /* The id is written before the transfer can need it: net sets it before it queues. */
        transfer = call->output ? &call->output->transfer : &call->transfer;
        code = net_request_start(c->net, &spec, on_done, call, transfer, err);
    }
    region_endpoint_give(e);
    if (body.data)
        secret_wipe(body.data, body.len); /* storage and registry credentials may be in it */
    if (code)
        call_free(call);
    return code;
}

void gateway_client_stats(struct gateway_client *c, struct gateway_client_stats *out)
{
    out->calls = atomic_load(&c->calls);
    out->executions = atomic_load(&c->executions);
    (void)pthread_mutex_lock(&c->budget_lock);
    out->output_bytes = c->used;
    (void)pthread_mutex_unlock(&c->budget_lock);
}
