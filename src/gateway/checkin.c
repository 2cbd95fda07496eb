#include "gateway/checkin.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/thread.h"
#include "base/time.h"
#include "net/net.h"
#include "sbx/version.h"

enum {
    STREAMS_MAX = 64,
    SECRET_MAX = 4096,
    TOKEN_MAX = 16 * 1024,
    TOKEN_EARLY_MS = 60000, /* a token is renewed so long before its end */
    TOKEN_DEFAULT_S = 300,  /* its life when the server does not say */
    BACKOFF_MAX_MS = 300000,
    CALL_MS = 10000,
    ANSWER_MAX = 64 * 1024,
};

struct stream {
    const char *id;
    const char *subject;
};

struct gateway_checkin {
    struct arena *arena;
    const char *url, *token_url, *client_id, *worker_id, *ca_file;
    struct secret *client_secret;
    struct stream streams[STREAMS_MAX];
    size_t stream_count;
    int64_t interval_ms, probe_interval_ms;
    struct gateway_checkin_probe probe;

    struct thread thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stopping; /* under the lock */

    /* the thread's own */
    struct secret *token;
    int64_t token_until_ms;
    struct gateway_checkin_report report;
    int64_t measured_ms; /* 0: never */
    int failures;        /* in a row */
};

/* --- the token ------------------------------------------------------------ */

static void forget_token(struct gateway_checkin *c)
{
    secret_free(c->token);
    c->token = NULL;
}

/* OAuth 2.0 client credentials (RFC 6749, 4.4), the client by HTTP Basic. */
static enum sbx_code fetch_token(struct gateway_checkin *c, struct arena *a, struct sbx_err *err)
{
    static const char FORM[] = "grant_type=client_credentials&audience=openvibe.live"
                               "&scope=live.agent_sandbox.register";
    SCOPED_BUF struct buf pair = BUF_INIT(SECRET_MAX * 4);
    SCOPED_BUF struct buf basic = BUF_INIT(SECRET_MAX * 8);
    SCOPED_JSON json_t *j = NULL;
    const char *headers[] = { "Content-Type: application/x-www-form-urlencoded", NULL, NULL };
    struct net_spec spec = { .method = "POST",
                             .url = c->token_url,
                             .headers = headers,
                             .ca_file = c->ca_file,
                             .body = FORM,
                             .body_len = sizeof(FORM) - 1,
                             .answer_max = ANSWER_MAX,
                             .timeout_ms = CALL_MS };
    struct net_answer answer;
    const char *token;
    enum sbx_code code;

    (void)net_url_escape(&pair, c->client_id, false);
    (void)buf_puts(&pair, ":");
    (void)net_url_escape(&pair, secret_reveal(c->client_secret), false);
    (void)buf_puts(&basic, "Authorization: Basic ");
    (void)base64_encode(&basic, pair.data, pair.len);
    headers[1] = basic.data;
    code = net_request(NULL, &spec, a, &answer, err);
    secret_wipe(pair.data, pair.len);
    secret_wipe(basic.data, basic.len);
    if (code != SBX_OK)
        return err_wrap(err, "token");
    if (answer.status != 200)
        return err_set(err, SBX_E_UNAVAILABLE, "the token server answered %d", answer.status);
    if (json_parse_object(answer.body, answer.body_len, &j, err) != SBX_OK)
        return err_wrap(err, "token");
    token = json_get_str(j, "access_token", "");
    if (token[0] == '\0' || strlen(token) > TOKEN_MAX)
        return err_set(err, SBX_E_UNAVAILABLE, "the token server gave no access_token");
    c->token = secret_new(token, strlen(token));
    c->token_until_ms =
        time_mono_ms() + json_get_int(j, "expires_in", TOKEN_DEFAULT_S) * 1000 - TOKEN_EARLY_MS;
    return SBX_OK;
}

/* --- one check-in --------------------------------------------------------- */

static json_t *report_json(const struct gateway_checkin *c)
{
    const struct gateway_checkin_report *r = &c->report;
    json_t *j = json_object();

    json_put_str(j, "worker_id", c->worker_id);
    json_put_str(j, "version", "sandbox-region/" SBX_VERSION);
    json_put_new(j, "isolation",
                 json_pack("{s:b, s:b, s:b, s:b, s:s}", "host_network", r->host_network,
                           "credentials", r->credentials, "profile", r->profile, "egress_proxy",
                           r->egress_proxy, "workspace",
                           r->ephemeral ? "ephemeral" : "persistent"));
    return j;
}

static enum sbx_code check_in(struct gateway_checkin *c, const struct stream *s, struct arena *a,
                              struct sbx_err *err)
{
    SCOPED_BUF struct buf body = BUF_INIT(4096);
    SCOPED_JSON json_t *report = report_json(c);
    SCOPED_JSON json_t *j = NULL;
    const char *headers[] = { "Content-Type: application/json",
                              arena_printf(a, "X-OV-Subject: %s", s->subject), NULL };
    struct net_spec spec = { .method = "POST",
                             .url = arena_printf(a, "%s/api/streams/agent/%s/plays/worker", c->url,
                                                 s->id),
                             .headers = headers,
                             .bearer = c->token,
                             .ca_file = c->ca_file,
                             .answer_max = ANSWER_MAX,
                             .timeout_ms = CALL_MS };
    struct net_answer answer;
    struct sbx_err ignored = { 0 };

    (void)json_write(&body, report);
    spec.body = body.data;
    spec.body_len = body.len;
    if (net_request(NULL, &spec, a, &answer, err) != SBX_OK)
        return err->code;
    if (answer.status == 200 || answer.status == 201)
        return SBX_OK;
    if (answer.status == 401)
        forget_token(c);
    (void)!json_parse_object(answer.body, answer.body_len, &j, &ignored);
    return err_set(err, SBX_E_FORBIDDEN, "refused with %d %s: %s", answer.status,
                   json_get_str(j, "code", ""), json_get_str(j, "detail", ""));
}

static void log_failure(const struct gateway_checkin *c, const struct stream *s,
                        const struct sbx_err *err)
{
    log_write(LOG_WARN, "check-in failed",
              (const struct log_field[]){
                  LOG_S("streamId", s != NULL ? s->id : NULL),
                  LOG_S("error", err->msg),
                  LOG_S("measured", c->report.why[0] != '\0' ? c->report.why : NULL),
                  { .key = NULL } });
}

/* All streams; false when any was not accepted. */
static bool check_in_all(struct gateway_checkin *c)
{
    SCOPED_ARENA struct arena *a = arena_new();
    struct sbx_err err = { 0 };
    bool ok = true;

    if (c->token == NULL || time_mono_ms() >= c->token_until_ms) {
        forget_token(c);
        if (fetch_token(c, a, &err) != SBX_OK) {
            log_failure(c, NULL, &err);
            return false;
        }
    }
    for (size_t i = 0; i < c->stream_count && c->token != NULL; i++) {
        err = (struct sbx_err){ 0 };
        if (check_in(c, &c->streams[i], a, &err) != SBX_OK) {
            log_failure(c, &c->streams[i], &err);
            ok = false;
        }
    }
    return ok && c->token != NULL;
}

/* --- the thread ----------------------------------------------------------- */

/* The interval with a tenth of jitter either way; after refusals it doubles. */
static int64_t next_wait(const struct gateway_checkin *c)
{
    int64_t wait = c->interval_ms;

    for (int i = 0; i < c->failures && wait < BACKOFF_MAX_MS; i++)
        wait *= 2;
    if (c->failures > 0 && wait > BACKOFF_MAX_MS)
        wait = BACKOFF_MAX_MS;
    return wait - wait / 10 + (int64_t)(random_u64() % (uint64_t)(wait / 5 + 1));
}

static void measure_if_due(struct gateway_checkin *c)
{
    int64_t now = time_mono_ms();

    if (c->measured_ms != 0 && now - c->measured_ms < c->probe_interval_ms)
        return;
    gateway_checkin_measure(&c->probe, &c->report);
    c->measured_ms = time_mono_ms();
    log_write(
        c->report.why[0] == '\0' ? LOG_INFO : LOG_WARN, "isolation measured",
        (const struct log_field[]){ LOG_B("hostNetwork", c->report.host_network),
                                    LOG_B("credentials", c->report.credentials),
                                    LOG_B("profile", c->report.profile),
                                    LOG_B("egressProxy", c->report.egress_proxy),
                                    LOG_B("ephemeral", c->report.ephemeral),
                                    LOG_S("found", c->report.why[0] != '\0' ? c->report.why : NULL),
                                    LOG_I("ms", c->measured_ms - now),
                                    { .key = NULL } });
}

static bool wait_ms(struct gateway_checkin *c, int64_t ms)
{
    int64_t until = time_mono_ms() + ms;
    struct timespec ts = { .tv_sec = until / 1000, .tv_nsec = until % 1000 * 1000000 };
    bool go_on;

    (void)pthread_mutex_lock(&c->lock);
    while (!c->stopping && time_mono_ms() < until)
        (void)pthread_cond_timedwait(&c->wake, &c->lock, &ts);
    go_on = !c->stopping;
    (void)pthread_mutex_unlock(&c->lock);
    return go_on;
}

static void checkin_main(void *arg)
{
    struct gateway_checkin *c = arg;

    do {
        measure_if_due(c);
        if (!wait_ms(c, 0))
            return;
        c->failures = check_in_all(c) ? 0 : c->failures + 1;
    } while (wait_ms(c, next_wait(c)));
}

/* --- start and stop ------------------------------------------------------- */

static enum sbx_code read_streams(struct gateway_checkin *c, const struct config *config,
                                  struct sbx_err *err)
{
    size_t count = 0;
    const char **list = config_list(config, "openvibe", "streams", c->arena, &count);

    if (count == 0 || count > STREAMS_MAX)
        return err_set(err, SBX_E_INVALID, "[openvibe] streams must name 1 to %d of them",
                       STREAMS_MAX);
    for (size_t i = 0; i < count; i++) {
        char *eq;

        c->streams[i].id = arena_strdup(c->arena, list[i]);
        eq = strchr(c->streams[i].id, '=');
        if (eq == NULL || eq == c->streams[i].id || !str_starts(eq, "=usr_"))
            return err_set(err, SBX_E_INVALID, "[openvibe] streams: %s is no stream=usr_...",
                           list[i]);
        *eq = '\0';
        c->streams[i].subject = eq + 1;
    }
    c->stream_count = count;
    return SBX_OK;
}

static const char *text(struct gateway_checkin *c, const struct config *config, const char *key)
{
    return arena_strdup(c->arena, config_str(config, "openvibe", key));
}

static enum sbx_code read_config(struct gateway_checkin *c, const struct config *config,
                                 struct sbx_err *err)
{
    static const char *const NEEDED[] = { "token_url", "client_id", "client_secret_file", "image" };
    const char *secret = config_str(config, "openvibe", "client_secret_file");
    char host[65] = "region";
    size_t domains = 0;

    for (size_t i = 0; i < COUNT_OF(NEEDED); i++) {
        if (config_str(config, "openvibe", NEEDED[i])[0] == '\0')
            return err_set(err, SBX_E_INVALID, "[openvibe] %s is not set", NEEDED[i]);
    }
    if (config_str(config, "listen", "socket")[0] == '\0')
        return err_set(err, SBX_E_INVALID, "[openvibe] needs [listen] socket for its probe");
    (void)gethostname(host, sizeof(host) - 1);
    c->url = text(c, config, "url");
    c->token_url = text(c, config, "token_url");
    c->client_id = text(c, config, "client_id");
    c->worker_id = config_str(config, "openvibe", "worker_id")[0] != '\0'
                       ? text(c, config, "worker_id")
                       : arena_strdup(c->arena, host);
    c->ca_file =
        config_str(config, "openvibe", "ca_file")[0] != '\0' ? text(c, config, "ca_file") : NULL;
    c->interval_ms = config_int(config, "openvibe", "interval_s") * 1000;
    c->probe_interval_ms = config_int(config, "openvibe", "probe_interval_s") * 1000;
    c->probe.socket = arena_strdup(c->arena, config_str(config, "listen", "socket"));
    c->probe.image = text(c, config, "image");
    c->probe.domains = config_list(config, "openvibe", "domains", c->arena, &domains);
    if (domains == 0)
        return err_set(err, SBX_E_INVALID, "[openvibe] domains must name at least one");
    if (secret_read_file(secret, "[openvibe] client_secret_file", SECRET_MAX, &c->client_secret,
                         err) != SBX_OK)
        return err->code;
    return read_streams(c, config, err);
}

static void checkin_free(struct gateway_checkin *c)
{
    secret_free(c->token);
    secret_free(c->client_secret);
    (void)pthread_cond_destroy(&c->wake);
    (void)pthread_mutex_destroy(&c->lock);
    arena_free(c->arena);
    free(c);
}

enum sbx_code gateway_checkin_start(const struct config *config, struct gateway_checkin **out,
                                    struct sbx_err *err)
{
    struct gateway_checkin *c;
    pthread_condattr_t attr;

    *out = NULL;
    if (config_str(config, "openvibe", "url")[0] == '\0')
        return SBX_OK;
    c = mem_zalloc(sizeof(*c));
    c->arena = arena_new();
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&c->wake, &attr);
    (void)pthread_condattr_destroy(&attr);
    if (read_config(c, config, err) != SBX_OK ||
        thread_start(&c->thread, "check-in", checkin_main, c, err) != SBX_OK) {
        checkin_free(c);
        return err->code;
    }
    *out = c;
    return SBX_OK;
}

void gateway_checkin_stop(struct gateway_checkin *c)
{
    if (c == NULL)
        return;
    (void)pthread_mutex_lock(&c->lock);
    c->stopping = true;
    (void)pthread_cond_broadcast(&c->wake);
    (void)pthread_mutex_unlock(&c->lock);
    thread_join(&c->thread);
    checkin_free(c);
}
