#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "base/time.h"
#include "net/internal.h"
#include "sbx/version.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void init_curl(void)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        abort();
}

void net_global_init(void)
{
    (void)pthread_once(&once, init_curl);
}

static const char *method_of(const struct transfer *t)
{
    return t->spec.method != NULL ? t->spec.method : "GET";
}

/* --- callbacks of libcurl --- */

static int on_prereq(void *arg, char *ip, char *local_ip, int port, int local_port)
{
    struct transfer *t = arg;

    (void)ip, (void)local_ip, (void)port, (void)local_port;
    t->sent = true; /* from here on the request may reach the peer */
    return CURL_PREREQFUNC_OK;
}

static size_t give_up(struct transfer *t, enum sbx_code code, const char *why)
{
    if (t->failed.code == SBX_OK)
        err_put(&t->failed, code, "%s", why);
    return 0;
}

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
    struct transfer *t = arg;
    size_t len = size * n;

    if (t->spec.on_data == NULL || t->status < 200 || t->status >= 300)
        return buf_append(&t->body, data, len)
                   ? len
                   : give_up(t, SBX_E_TOO_LARGE, "The answer is larger than allowed.");
    if (len > t->body.max - t->streamed)
        return give_up(t, SBX_E_TOO_LARGE, "The answer is larger than allowed.");
    switch (t->spec.on_data(t->spec.data_arg, t->status, data, len)) {
    case NET_TOOK:
        t->streamed += len;
        return len;
    case NET_WAIT: /* libcurl keeps the bytes and gives them again */
        if (t->done != NULL)
            return CURL_WRITEFUNC_PAUSE;
        break; /* nobody could resume a blocking call */
    case NET_GIVE_UP:
        break;
    }
    return give_up(t, SBX_E_INTERNAL, "The answer was not taken.");
}

static void forget_answer(struct transfer *t)
{
    buf_clear(&t->head);
    buf_clear(&t->body);
    t->head_count = 0;
    t->status = 0;
}

static size_t on_header(char *data, size_t size, size_t n, void *arg)
{
    struct transfer *t = arg;
    size_t len = size * n;
    const char *colon = memchr(data, ':', len);
    const char *value, *end = data + len;
    size_t name_len;

    if (len > 9 && memcmp(data, "HTTP/", 5) == 0) {
        int64_t status = 0;
        char digits[4] = { 0 };
        const char *sp = memchr(data, ' ', len);

        forget_answer(t);
        if (sp != NULL && (size_t)(end - sp) > 3)
            memcpy(digits, sp + 1, 3);
        if (str_parse_int(digits, 200, 999, &status)) /* 100 Continue is none */
            t->status = (int)status;
        return len;
    }
    if (colon == NULL || t->head_count == NET_HEADERS_MAX)
        return len;
    name_len = (size_t)(colon - data);
    for (value = colon + 1; value < end && (*value == ' ' || *value == '\t'); value++)
        continue;
    while (end > value && (end[-1] == '\r' || end[-1] == '\n' || end[-1] == ' '))
        end--;
    if (t->head.max - t->head.len < name_len + (size_t)(end - value) + 2)
        return len;
    (void)buf_append(&t->head, data, name_len);
    (void)buf_append(&t->head, "", 1);
    (void)buf_append(&t->head, value, (size_t)(end - value));
    (void)buf_append(&t->head, "", 1);
    t->head_count++;
    return len;
}

static size_t on_read(char *to, size_t size, size_t n, void *arg)
{
    struct transfer *t = arg;
    ssize_t got = t->spec.read_body(t->spec.read_arg, to, size * n);

    if (got < 0) {
        (void)give_up(t, SBX_E_INTERNAL, "The request body could not be read.");
        return CURL_READFUNC_ABORT;
    }
    return (size_t)got;
}

/* --- the handle --- */

static void set_long(CURL *easy, CURLoption option, long value)
{
    CURLcode rc = curl_easy_setopt(easy, option, value);

    assert(rc == CURLE_OK);
}

static void add_header(struct transfer *t, const char *line)
{
    struct curl_slist *longer = curl_slist_append(t->headers, line);

    if (longer == NULL)
        abort();
    t->headers = longer;
}

static bool has_header(const struct net_spec *spec, const char *name)
{
    size_t len = strlen(name);

    for (const char *const *h = spec->headers; h != NULL && *h != NULL; h++) {
        if (strncasecmp(*h, name, len) == 0 && (*h)[len] == ':')
            return true;
    }
    return false;
}

static void set_headers(struct transfer *t)
{
    const struct net_spec *spec = &t->spec;

    for (const char *const *h = spec->headers; h != NULL && *h != NULL; h++)
        add_header(t, *h);
    add_header(t, "Expect:"); /* our bodies are sent at once */
    if (!has_header(spec, "Content-Type"))
        add_header(t, "Content-Type:"); /* none, instead of libcurl's guess */
    if (spec->bearer != NULL) {
        SCOPED_FREE char *line =
            mem_printf("Authorization: Bearer %s", secret_reveal(spec->bearer));

        add_header(t, line);
        secret_wipe(line, strlen(line));
    }
}

static void sign(struct transfer *t)
{
    const struct net_sigv4 *s = t->spec.sigv4;
    unsigned char digest[SHA256_LEN];
    char hex[SHA256_HEX_SIZE], line[sizeof("x-amz-content-sha256: ") + SHA256_HEX_SIZE];
    char provider[160];

    (void)snprintf(provider, sizeof(provider), "aws:amz:%s:%s", s->region, s->service);
    (void)curl_easy_setopt(t->easy, CURLOPT_AWS_SIGV4, provider);
    (void)curl_easy_setopt(t->easy, CURLOPT_USERNAME, s->access_key);
    (void)curl_easy_setopt(t->easy, CURLOPT_PASSWORD, secret_reveal(s->secret_key));
    if (has_header(&t->spec, "x-amz-content-sha256"))
        return;
    sha256_of(t->spec.body != NULL ? t->spec.body : "", t->spec.body_len, digest);
    hash_hex(digest, sizeof(digest), hex);
    (void)snprintf(line, sizeof(line), "x-amz-content-sha256: %s", hex);
    add_header(t, line);
}

static void set_method(struct transfer *t)
{
    const struct net_spec *spec = &t->spec;
    const char *method = method_of(t);

    if (spec->read_body != NULL) {
        set_long(t->easy, CURLOPT_UPLOAD, 1);
        (void)curl_easy_setopt(t->easy, CURLOPT_READFUNCTION, on_read);
        (void)curl_easy_setopt(t->easy, CURLOPT_READDATA, t);
        if (spec->read_size >= 0)
            (void)curl_easy_setopt(t->easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)spec->read_size);
        /* A body that cannot be read twice must not meet a connection that has died. */
        set_long(t->easy, CURLOPT_FRESH_CONNECT, 1);
    } else if (spec->body != NULL || strcmp(method, "POST") == 0 || strcmp(method, "PUT") == 0 ||
               strcmp(method, "PATCH") == 0) {
        (void)curl_easy_setopt(t->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)spec->body_len);
        (void)curl_easy_setopt(t->easy, CURLOPT_POSTFIELDS, spec->body != NULL ? spec->body : "");
    } else if (strcmp(method, "HEAD") == 0) {
        set_long(t->easy, CURLOPT_NOBODY, 1);
        return;
    }
    (void)curl_easy_setopt(t->easy, CURLOPT_CUSTOMREQUEST, method);
}

static void set_trust(struct transfer *t, const struct net_config *config)
{
    if (t->spec.ca_file != NULL) {
        (void)curl_easy_setopt(t->easy, CURLOPT_CAINFO, t->spec.ca_file);
        (void)curl_easy_setopt(t->easy, CURLOPT_CAPATH, NULL);
    } else if (config != NULL && config->ca_file != NULL) {
        (void)curl_easy_setopt(t->easy, CURLOPT_CAINFO, config->ca_file);
        (void)curl_easy_setopt(t->easy, CURLOPT_CAPATH, "/etc/ssl/certs");
    }
}

static int on_progress(void *arg, curl_off_t down, curl_off_t got, curl_off_t up, curl_off_t sent)
{
    (void)down, (void)got, (void)up, (void)sent;
    return atomic_load((const atomic_bool *)arg) ? 1 : 0;
}

static void set_limits(struct transfer *t)
{
    const struct net_spec *s = &t->spec;

    set_long(t->easy, CURLOPT_CONNECTTIMEOUT_MS,
             s->connect_timeout_ms > 0 ? s->connect_timeout_ms : NET_CONNECT_DEFAULT_MS);
    set_long(t->easy, CURLOPT_TIMEOUT_MS,
             s->timeout_ms > 0 ? s->timeout_ms : NET_TIMEOUT_DEFAULT_MS);
    if (s->stall_timeout_ms > 0) {
        set_long(t->easy, CURLOPT_LOW_SPEED_LIMIT, 1);
        set_long(t->easy, CURLOPT_LOW_SPEED_TIME, (s->stall_timeout_ms + 999) / 1000);
    }
    if (s->give_up != NULL) {
        set_long(t->easy, CURLOPT_NOPROGRESS, 0);
        (void)curl_easy_setopt(t->easy, CURLOPT_XFERINFOFUNCTION, on_progress);
        (void)curl_easy_setopt(t->easy, CURLOPT_XFERINFODATA, (void *)(uintptr_t)s->give_up);
    }
    t->body.max = s->answer_max > 0 ? s->answer_max : NET_ANSWER_DEFAULT;
    t->head.max = NET_HEADER_BYTES_MAX;
}

static enum sbx_code check_spec(const struct net_spec *spec, struct sbx_err *err)
{
    if (spec->url == NULL ||
        (strncmp(spec->url, "http://", 7) != 0 && strncmp(spec->url, "https://", 8) != 0))
        return err_set(err, SBX_E_INVALID, "The URL is not http:// or https://.");
    for (const char *const *h = spec->headers; h != NULL && *h != NULL; h++) {
        if ((*h)[strcspn(*h, "\r\n")] != '\0' || strchr(*h, ':') == NULL)
            return err_set(err, SBX_E_INVALID, "A request header is not one line.");
    }
    if (spec->bearer != NULL && strpbrk(secret_reveal(spec->bearer), "\r\n") != NULL)
        return err_set(err, SBX_E_INVALID, "The bearer secret has a line break.");
    if (spec->sigv4 != NULL && spec->read_body != NULL)
        return err_set(err, SBX_E_INVALID, "A signed body must be in memory.");
    return SBX_OK;
}

enum sbx_code net_transfer_init(struct transfer *t, const struct net_config *config,
                                const struct net_spec *spec, struct sbx_err *err)
{
    bool https = spec->url != NULL && strncmp(spec->url, "https://", 8) == 0;

    if (check_spec(spec, err) != SBX_OK)
        return err->code;
    net_global_init();
    t->spec = *spec;
    t->redirects = spec->redirects;
    t->started_ms = time_mono_ms();
    t->easy = curl_easy_init();
    if (t->easy == NULL)
        abort();
    if (curl_easy_setopt(t->easy, CURLOPT_URL, spec->url) != CURLE_OK)
        return err_set(err, SBX_E_INVALID, "The URL cannot be used.");
    (void)curl_easy_setopt(t->easy, CURLOPT_PROTOCOLS_STR, https ? "https" : "http");
    (void)curl_easy_setopt(t->easy, CURLOPT_USERAGENT,
                           config != NULL && config->user_agent != NULL ? config->user_agent
                                                                        : "sandboxd/" SBX_VERSION);
    set_long(t->easy, CURLOPT_NOSIGNAL, 1);
    set_long(t->easy, CURLOPT_PATH_AS_IS, 1);
    set_long(t->easy, CURLOPT_DISALLOW_USERNAME_IN_URL, 1);
    set_long(t->easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    set_long(t->easy, CURLOPT_TCP_KEEPALIVE, 1);
    set_long(t->easy, CURLOPT_MAXAGE_CONN, 60); /* below any server's idle timeout */
    set_long(t->easy, CURLOPT_BUFFERSIZE,
             spec->receive_buffer > 0 ? spec->receive_buffer : NET_RECEIVE_BUFFER);
    if (spec->unix_path != NULL) {
        (void)curl_easy_setopt(t->easy, CURLOPT_UNIX_SOCKET_PATH, spec->unix_path);
        (void)curl_easy_setopt(t->easy, CURLOPT_PROXY, "");
    }
    (void)curl_easy_setopt(t->easy, CURLOPT_PREREQFUNCTION, on_prereq);
    (void)curl_easy_setopt(t->easy, CURLOPT_PREREQDATA, t);
    (void)curl_easy_setopt(t->easy, CURLOPT_WRITEFUNCTION, on_body);
    (void)curl_easy_setopt(t->easy, CURLOPT_WRITEDATA, t);
    (void)curl_easy_setopt(t->easy, CURLOPT_HEADERFUNCTION, on_header);
    (void)curl_easy_setopt(t->easy, CURLOPT_HEADERDATA, t);
    (void)curl_easy_setopt(t->easy, CURLOPT_PRIVATE, t);
    set_method(t);
    set_headers(t);
    if (spec->sigv4 != NULL)
        sign(t);
    (void)curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->headers);
    set_trust(t, config);
    set_limits(t);
    return SBX_OK;
}

void net_transfer_fini(struct transfer *t)
{
    if (t->easy != NULL)
        curl_easy_cleanup(t->easy);
    for (struct curl_slist *h = t->headers; h != NULL; h = h->next) {
        if (strncasecmp(h->data, "Authorization:", 14) == 0)
            secret_wipe(h->data, strlen(h->data));
    }
    curl_slist_free_all(t->headers);
    buf_fini(&t->body);
    buf_fini(&t->head);
    free(t->header_view);
    t->header_view = NULL;
    arena_free(t->arena);
    t->easy = NULL;
    t->headers = NULL;
    t->arena = NULL;
}

static void free_secret(void *p)
{
    secret_free(p);
}

static const struct secret *copy_secret(struct arena *a, const struct secret *s)
{
    struct secret *copy;

    if (s == NULL)
        return NULL;
    copy = secret_new(secret_reveal(s), secret_len(s));
    arena_defer(a, free_secret, copy);
    return copy;
}

void net_transfer_copy(struct transfer *t, const struct net_spec *spec, struct net_spec *copy)
{
    struct arena *a = t->arena = arena_new();
    const char **headers = NULL;
    size_t n = 0;

    *copy = *spec;
    copy->method = arena_strdup(a, spec->method);
    copy->url = arena_strdup(a, spec->url);
    copy->unix_path = arena_strdup(a, spec->unix_path);
    copy->ca_file = arena_strdup(a, spec->ca_file);
    while (spec->headers != NULL && spec->headers[n] != NULL)
        n++;
    if (n > 0) {
        headers = arena_zalloc(a, (n + 1) * sizeof(*headers));
        for (size_t i = 0; i < n; i++)
            headers[i] = arena_strdup(a, spec->headers[i]);
    }
    copy->headers = headers;
    copy->bearer = copy_secret(a, spec->bearer);
    if (spec->body != NULL)
        copy->body = arena_memdup(a, spec->body, spec->body_len);
    if (spec->sigv4 != NULL) {
        struct net_sigv4 *s = arena_zalloc(a, sizeof(*s));

        s->region = arena_strdup(a, spec->sigv4->region);
        s->service = arena_strdup(a, spec->sigv4->service);
        s->access_key = arena_strdup(a, spec->sigv4->access_key);
        s->secret_key = copy_secret(a, spec->sigv4->secret_key);
        copy->sigv4 = s;
    }
}

/* --- the outcome --- */

static bool same_part(CURLU *a, CURLU *b, CURLUPart part)
{
    char *x = NULL, *y = NULL;
    bool same = curl_url_get(a, part, &x, CURLU_DEFAULT_PORT) == CURLUE_OK &&
                curl_url_get(b, part, &y, CURLU_DEFAULT_PORT) == CURLUE_OK && strcasecmp(x, y) == 0;

    curl_free(x);
    curl_free(y);
    return same;
}

/* A credential must not follow a redirect to another place. */
static bool same_place(const char *from, const char *to)
{
    CURLU *a = curl_url(), *b = curl_url();
    bool same = a != NULL && b != NULL && curl_url_set(a, CURLUPART_URL, from, 0) == CURLUE_OK &&
                curl_url_set(b, CURLUPART_URL, to, 0) == CURLUE_OK &&
                same_part(a, b, CURLUPART_SCHEME) && same_part(a, b, CURLUPART_HOST) &&
                same_part(a, b, CURLUPART_PORT);

    curl_url_cleanup(a);
    curl_url_cleanup(b);
    return same;
}

bool net_transfer_again(struct transfer *t, CURLcode rc)
{
    bool reads = strcmp(method_of(t), "GET") == 0 || strcmp(method_of(t), "HEAD") == 0;
    char *to = NULL;
    int64_t left_ms;

    if (rc != CURLE_OK || t->redirects <= 0 || t->spec.read_body != NULL)
        return false;
    if (!((reads && (t->status == 301 || t->status == 302)) || t->status == 307 ||
          t->status == 308))
        return false;
    if (curl_easy_getinfo(t->easy, CURLINFO_REDIRECT_URL, &to) != CURLE_OK || to == NULL ||
        !same_place(t->spec.url, to))
        return false;
    left_ms = (t->spec.timeout_ms > 0 ? t->spec.timeout_ms : NET_TIMEOUT_DEFAULT_MS) -
              (time_mono_ms() - t->started_ms);
    if (left_ms <= 0 || /* one deadline for all of it; libcurl's would start anew */
        curl_easy_setopt(t->easy, CURLOPT_TIMEOUT_MS, (long)left_ms) != CURLE_OK)
        return false;
    t->redirects--;
    forget_answer(t);
    return curl_easy_setopt(t->easy, CURLOPT_URL, to) == CURLE_OK; /* libcurl copies it */
}

static void fill_answer(struct transfer *t, struct net_answer *a)
{
    const char *p = t->head.data;

    *a = (struct net_answer){ .status = t->status };
    a->phase = t->status != 0 ? NET_ANSWERED : t->sent ? NET_SENT : NET_NOT_SENT;
    a->body = t->body.data != NULL ? t->body.data : "";
    a->body_len = t->body.len;
    t->header_view = mem_realloc(t->header_view, (t->head_count + 1) * sizeof(*t->header_view));
    for (size_t i = 0; i < t->head_count; i++) {
        t->header_view[i].name = p;
        p += strlen(p) + 1;
        t->header_view[i].value = p;
        p += strlen(p) + 1;
    }
    a->headers = t->header_view;
    a->header_count = t->head_count;
    a->took_ms = time_mono_ms() - t->started_ms;
}

enum sbx_code net_transfer_result(struct transfer *t, CURLcode rc, struct net_answer *answer,
                                  struct sbx_err *err)
{
    fill_answer(t, answer);
    if (t->failed.code != SBX_OK) {
        *err = t->failed;
        return err->code;
    }
    if (rc == CURLE_OK)
        return SBX_OK;
    if (rc == CURLE_OPERATION_TIMEDOUT)
        return err_set(err, SBX_E_TIMEOUT, "The peer did not answer in time.");
    if (!t->sent && (rc == CURLE_URL_MALFORMAT || rc == CURLE_UNSUPPORTED_PROTOCOL))
        return err_set(err, SBX_E_INVALID, "The URL cannot be used: %s.", curl_easy_strerror(rc));
    return err_set(err, SBX_E_UNAVAILABLE, "The peer could not be asked: %s.",
                   curl_easy_strerror(rc));
}

const char *net_header(const struct net_answer *answer, const char *name)
{
    for (size_t i = 0; i < answer->header_count; i++) {
        if (strcasecmp(answer->headers[i].name, name) == 0)
            return answer->headers[i].value;
    }
    return NULL;
}

bool net_url_escape(struct buf *b, const char *text, bool keep_slash)
{
    static const char FREE[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                               "0123456789-._~";

    for (const char *p = text; *p != '\0'; p++) {
        if (strchr(FREE, *p) != NULL || (keep_slash && *p == '/'))
            (void)buf_append(b, p, 1);
        else
            (void)buf_printf(b, "%%%02X", (unsigned)(unsigned char)*p);
    }
    return !b->full;
}
