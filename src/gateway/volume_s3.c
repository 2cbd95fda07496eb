#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "base/time.h"
#include "gateway/volume_impl.h"
#include "net/net.h"

/* The `s3` kind, path-style addressing.  Uploads go in parts from memory, each part with its
 * own digest and its own retries; a single part is a plain PUT. */

enum {
    CALL_MS = 60000,
    PART_MS = 300000,
    READ_MS = 900000,
    RETRY_MS = 200, /* doubled at each try */
    PARTS_MAX = 10000,
    ETAG_SIZE = 72,
    ANSWER_MAX = 8 * 1024 * 1024,
};

struct call {
    const char *method;
    const char *key;   /* below the prefix; "" for the bucket */
    const char *query; /* sorted and encoded; NULL: none */
    const void *body;
    size_t body_len;
    net_data_fn *on_data;
    void *data_arg;
    int timeout_ms;
};

static enum sbx_code url_of(const struct volume_backend *b, const struct call *c, struct buf *url,
                            struct sbx_err *err)
{
    bool ok =
        buf_puts(url, b->endpoint) && buf_puts(url, "/") && net_url_escape(url, b->bucket, false);

    if (c->key[0] != 0 && b->prefix[0] != 0)
        ok = ok && buf_puts(url, "/") && net_url_escape(url, b->prefix, true);
    if (c->key[0] != 0)
        ok = ok && buf_puts(url, "/") && net_url_escape(url, c->key, true);
    if (c->query != NULL)
        ok = ok && buf_puts(url, "?") && buf_puts(url, c->query);
    return ok ? SBX_OK : err_set(err, SBX_E_INVALID, "the object's name is too long");
}

static enum sbx_code judge(int status, const char *method, struct sbx_err *err)
{
    if (status >= 200 && status < 300)
        return SBX_OK;
    if (status == 404)
        return err_set(err, SBX_E_NOT_FOUND, "the storage has no such object");
    if (status == 401 || status == 403)
        return err_set(err, SBX_E_FORBIDDEN, "the storage refuses the credentials");
    return err_set(err, SBX_E_UNAVAILABLE, "the storage answered %d to %s", status, method);
}

/* AWS signature version 4 over host, date and digest of the body.  By hand and not by libcurl:
 * 7.88's was refused by a real server (swift) for every request, and a canonical request of four
 * lines is easier to hold right than its list of exceptions. */
static void sign(const struct volume_backend *b, const struct call *c, const char *url,
                 const char *digest, struct buf *date_header, struct buf *auth_header)
{
    static const char SIGNED[] = "host;x-amz-content-sha256;x-amz-date";
    SCOPED_BUF struct buf text = BUF_INIT(16384);
    const char *host = strstr(url, "://") + 3;
    const char *path = host + strcspn(host, "/");
    size_t path_len = strcspn(path, "?");
    unsigned char mac[SHA256_LEN];
    char hex[SHA256_HEX_SIZE], stamp[20], secret[512];
    time_t now = (time_t)(time_unix_ms() / 1000);
    struct tm tm;

    (void)gmtime_r(&now, &tm);
    (void)strftime(stamp, sizeof(stamp), "%Y%m%dT%H%M%SZ", &tm);
    (void)buf_printf(&text,
                     "%s\n%.*s\n%s\nhost:%.*s\nx-amz-content-sha256:%s\nx-amz-date:%s\n\n%s\n%s",
                     c->method, (int)path_len, path, c->query != NULL ? c->query : "",
                     (int)(path - host), host, digest, stamp, SIGNED, digest);
    sha256_of(text.data, text.len, mac);
    hash_hex(mac, sizeof(mac), hex);
    buf_clear(&text);
    (void)buf_printf(&text, "AWS4-HMAC-SHA256\n%s\n%.8s/%s/s3/aws4_request\n%s", stamp, stamp,
                     b->region, hex);
    (void)snprintf(secret, sizeof(secret), "AWS4%s", secret_reveal(b->secret_key));
    hmac_sha256(secret, strlen(secret), stamp, 8, mac);
    secret_wipe(secret, sizeof(secret));
    hmac_sha256(mac, sizeof(mac), b->region, strlen(b->region), mac);
    hmac_sha256(mac, sizeof(mac), "s3", 2, mac);
    hmac_sha256(mac, sizeof(mac), "aws4_request", strlen("aws4_request"), mac);
    hmac_sha256(mac, sizeof(mac), text.data, text.len, mac);
    hash_hex(mac, sizeof(mac), hex);
    (void)buf_printf(date_header, "x-amz-date: %s", stamp);
    (void)buf_printf(auth_header,
                     "Authorization: AWS4-HMAC-SHA256 Credential=%s/%.8s/%s/s3/aws4_request, "
                     "SignedHeaders=%s, Signature=%s",
                     b->access_key, stamp, b->region, SIGNED, hex);
}

/* One call, tried again when the storage is in trouble and nothing was handed on yet. */
static enum sbx_code call(const struct volume_backend *b, const struct call *c, struct arena *a,
                          struct net_answer *answer, struct sbx_err *err)
{
    SCOPED_BUF struct buf url = BUF_INIT(8192);
    unsigned char digest[SHA256_LEN];
    char hex[SHA256_HEX_SIZE], digest_header[128];
    const char *headers[] = { digest_header, "Content-Type: application/octet-stream", NULL, NULL,
                              NULL };
    struct net_spec spec = { .method = c->method,
                             .headers = headers,
                             .body = c->body,
                             .body_len = c->body_len,
                             .on_data = c->on_data,
                             .data_arg = c->data_arg,
                             .answer_max = c->on_data != NULL ? SIZE_MAX / 2 : ANSWER_MAX,
                             .timeout_ms = c->timeout_ms,
                             .stall_timeout_ms = VOLUME_STALL_MS,
                             .give_up = b->give_up };

    if (url_of(b, c, &url, err) != SBX_OK)
        return err->code;
    spec.url = url.data;
    sha256_of(c->body != NULL ? c->body : "", c->body_len, digest);
    hash_hex(digest, sizeof(digest), hex);
    (void)snprintf(digest_header, sizeof(digest_header), "x-amz-content-sha256: %s", hex);
    for (int i = 0;; i++) {
        SCOPED_BUF struct buf date = BUF_INIT(64);
        SCOPED_BUF struct buf auth = BUF_INIT(2048);
        struct sbx_err one = { 0 };

        sign(b, c, url.data, hex, &date, &auth);
        headers[2] = date.data;
        headers[3] = auth.data;
        *answer = (struct net_answer){ 0 };
        if (net_request(NULL, &spec, a, answer, &one) == SBX_OK)
            (void)!judge(answer->status, c->method, &one);
        if (one.code == SBX_OK)
            return SBX_OK;
        if (one.code == SBX_E_NOT_FOUND || one.code == SBX_E_FORBIDDEN || c->on_data != NULL ||
            i + 1 == VOLUME_TRIES || one.code == SBX_E_INTERNAL || volume_given_up(b))
            return err_set(err, one.code == SBX_E_TIMEOUT ? SBX_E_UNAVAILABLE : one.code, "%s",
                           one.msg);
        (void)poll(NULL, 0, RETRY_MS << i);
    }
}

/* ---- writing ---- */

struct s3_writer {
    const struct volume_backend *backend;
    char key[VOLUME_KEY_MAX];
    char *upload_id; /* encoded for the query; NULL: no part was sent */
    struct buf part;
    char (*etags)[ETAG_SIZE];
    size_t count;
};

static enum sbx_code s3_open(const struct volume_backend *b, const char *key, void **out,
                             struct sbx_err *err)
{
    struct s3_writer *w = mem_zalloc(sizeof(*w));

    (void)err;
    w->backend = b;
    (void)str_copy(w->key, sizeof(w->key), key);
    w->part.max = VOLUME_PART_SIZE;
    *out = w;
    return SBX_OK;
}

static void s3_free(struct s3_writer *w)
{
    buf_fini(&w->part);
    free(w->upload_id);
    free(w->etags);
    free(w);
}

/* The text of the first <tag>...</tag>, in the arena; NULL: not there. */
static const char *tag_text(struct arena *a, const char *xml, const char *tag)
{
    char open[64];
    const char *start, *end;

    (void)snprintf(open, sizeof(open), "<%s>", tag);
    start = xml != NULL ? strstr(xml, open) : NULL;
    if (start == NULL)
        return NULL;
    start += strlen(open);
    end = strchr(start, '<');
    return end != NULL ? arena_strndup(a, start, (size_t)(end - start)) : NULL;
}

static enum sbx_code begin_upload(struct s3_writer *w, struct sbx_err *err)
{
    SCOPED_ARENA struct arena *a = arena_new();
    struct call c = { .method = "POST", .key = w->key, .query = "uploads=", .timeout_ms = CALL_MS };
    struct buf id = BUF_INIT(2048);
    struct net_answer answer;
    const char *text;

    if (call(w->backend, &c, a, &answer, err) != SBX_OK)
        return err->code;
    text = tag_text(a, answer.body, "UploadId");
    if (text == NULL || !net_url_escape(&id, text, false)) {
        buf_fini(&id);
        return err_set(err, SBX_E_UNAVAILABLE, "the storage gave no upload id");
    }
    w->upload_id = buf_take(&id);
    w->etags = mem_zalloc(PARTS_MAX * sizeof(*w->etags));
    return SBX_OK;
}

static enum sbx_code send_part(struct s3_writer *w, struct sbx_err *err)
{
    SCOPED_ARENA struct arena *a = arena_new();
    struct call c = { .method = "PUT",
                      .key = w->key,
                      .body = w->part.data,
                      .body_len = w->part.len,
                      .timeout_ms = PART_MS };
    struct net_answer answer;
    const char *etag;

    if (w->upload_id == NULL && begin_upload(w, err) != SBX_OK)
        return err->code;
    if (w->count == PARTS_MAX)
        return err_set(err, SBX_E_TOO_LARGE, "the archive is too large for the storage");
    c.query = arena_printf(a, "partNumber=%zu&uploadId=%s", w->count + 1, w->upload_id);
    if (call(w->backend, &c, a, &answer, err) != SBX_OK)
        return err->code;
    etag = net_header(&answer, "ETag");
    if (etag == NULL || !str_copy(w->etags[w->count], ETAG_SIZE, etag))
        return err_set(err, SBX_E_UNAVAILABLE, "the storage gave no tag for a part");
    w->count++;
    buf_clear(&w->part);
    return SBX_OK;
}

static enum sbx_code s3_add(void *impl, const void *data, size_t len, struct sbx_err *err)
{
    struct s3_writer *w = impl;
    const char *p = data;

    while (len > 0) {
        size_t room = VOLUME_PART_SIZE - w->part.len;
        size_t n = len < room ? len : room;

        (void)buf_append(&w->part, p, n);
        p += n;
        len -= n;
        if (w->part.len == VOLUME_PART_SIZE && send_part(w, err) != SBX_OK)
            return err->code;
    }
    return SBX_OK;
}

static void s3_abort(void *impl)
{
    SCOPED_ARENA struct arena *a = arena_new();
    struct s3_writer *w = impl;
    struct call c = { .method = "DELETE", .key = w->key, .timeout_ms = CALL_MS };
    struct net_answer answer;
    struct sbx_err ignored = { 0 };

    if (w->upload_id != NULL) {
        c.query = arena_printf(a, "uploadId=%s", w->upload_id);
        (void)!call(w->backend, &c, a, &answer, &ignored);
    }
    s3_free(w);
}

static enum sbx_code complete(struct s3_writer *w, struct sbx_err *err)
{
    SCOPED_ARENA struct arena *a = arena_new();
    SCOPED_BUF struct buf xml = BUF_INIT(4 * 1024 * 1024);
    struct call c = { .method = "POST", .key = w->key, .timeout_ms = PART_MS };
    struct net_answer answer;

    (void)buf_puts(&xml, "<CompleteMultipartUpload>");
    for (size_t i = 0; i < w->count; i++)
        (void)buf_printf(&xml, "<Part><PartNumber>%zu</PartNumber><ETag>%s</ETag></Part>", i + 1,
                         w->etags[i]);
    (void)buf_puts(&xml, "</CompleteMultipartUpload>");
    c.query = arena_printf(a, "uploadId=%s", w->upload_id);
    c.body = xml.data;
    c.body_len = xml.len;
    if (call(w->backend, &c, a, &answer, err) != SBX_OK)
        return err->code;
    /* The status comes before the work: the body tells how it went. */
    if (answer.body != NULL && strstr(answer.body, "<Error>") != NULL)
        return err_set(err, SBX_E_UNAVAILABLE, "the storage could not put the parts together");
    return SBX_OK;
}

static enum sbx_code s3_finish(void *impl, struct sbx_err *err)
{
    struct s3_writer *w = impl;

    if (w->upload_id == NULL) {
        SCOPED_ARENA struct arena *a = arena_new();
        struct call c = { .method = "PUT",
                          .key = w->key,
                          .body = w->part.data,
                          .body_len = w->part.len,
                          .timeout_ms = PART_MS };
        struct net_answer answer;

        (void)!call(w->backend, &c, a, &answer, err);
    } else {
        if (w->part.len == 0 || send_part(w, err) == SBX_OK)
            (void)!complete(w, err);
    }
    if (err->code != SBX_OK)
        s3_abort(w);
    else
        s3_free(w);
    return err->code;
}

/* ---- reading ---- */

struct reader {
    volume_read_fn *fn;
    void *arg;
    struct sbx_err err;
};

static enum net_take take(void *arg, int status, const void *data, size_t len)
{
    struct reader *r = arg;

    if (status < 200 || status >= 300)
        return NET_TOOK; /* the body of a refusal: the status says it all */
    return r->fn(r->arg, data, len, &r->err) == SBX_OK ? NET_TOOK : NET_GIVE_UP;
}

static enum sbx_code s3_read(const struct volume_backend *b, const char *key, volume_read_fn *fn,
                             void *arg, struct sbx_err *err)
{
    SCOPED_ARENA struct arena *a = arena_new();
    struct reader r = { .fn = fn, .arg = arg };
    struct call c = {
        .method = "GET", .key = key, .on_data = take, .data_arg = &r, .timeout_ms = READ_MS
    };
    struct net_answer answer;
    struct sbx_err one = { 0 };

    if (call(b, &c, a, &answer, &one) == SBX_OK)
        return SBX_OK;
    *err = r.err.code != SBX_OK ? r.err : one;
    return err->code;
}

static enum sbx_code s3_remove(const struct volume_backend *b, const char *key, struct sbx_err *err)
{
    SCOPED_ARENA struct arena *a = arena_new();
    struct call c = { .method = "DELETE", .key = key, .timeout_ms = CALL_MS };
    struct net_answer answer;
    struct sbx_err one = { 0 };

    if (call(b, &c, a, &answer, &one) != SBX_OK && one.code != SBX_E_NOT_FOUND)
        return err_set(err, one.code, "%s", one.msg);
    return SBX_OK;
}

/* Undoes the five entities of XML in place. */
static void unescape(char *text)
{
    static const struct {
        const char *name;
        char c;
    } ENTITIES[] = {
        { "&amp;", '&' }, { "&lt;", '<' }, { "&gt;", '>' }, { "&quot;", '"' }, { "&apos;", '\'' }
    };
    char *to = text;

    while (*text != 0) {
        size_t i = 0;

        while (i < COUNT_OF(ENTITIES) && !str_starts(text, ENTITIES[i].name))
            i++;
        if (i < COUNT_OF(ENTITIES)) {
            *to++ = ENTITIES[i].c;
            text += strlen(ENTITIES[i].name);
        } else {
            *to++ = *text++;
        }
    }
    *to = 0;
}

/* One page of keys below prefix, whole keys without the backend's own prefix. */
static enum sbx_code list_page(const struct volume_backend *b, const char *prefix,
                               const char *token, struct arena *a, const char **names,
                               size_t *count, const char **next, struct sbx_err *err)
{
    SCOPED_BUF struct buf query = BUF_INIT(8192);
    SCOPED_BUF struct buf full = BUF_INIT(2048);
    struct call c = { .method = "GET", .key = "", .timeout_ms = CALL_MS };
    struct net_answer answer;
    const char *p;

    (void)buf_printf(&full, "%s%s%s/", b->prefix, b->prefix[0] != 0 ? "/" : "", prefix);
    if (token != NULL) {
        (void)buf_puts(&query, "continuation-token=");
        (void)net_url_escape(&query, token, false);
        (void)buf_puts(&query, "&");
    }
    (void)buf_puts(&query, "list-type=2&prefix=");
    (void)net_url_escape(&query, full.data, false);
    c.query = query.data;
    if (call(b, &c, a, &answer, err) != SBX_OK)
        return err->code;
    for (p = answer.body; p != NULL && *count < VOLUME_LIST_MAX; p++) {
        p = strstr(p, "<Key>");
        if (p == NULL)
            break;
        char *key = arena_strdup(a, tag_text(a, p, "Key"));

        unescape(key);
        if (str_starts(key, full.data))
            names[(*count)++] = key + full.len;
    }
    *next = tag_text(a, answer.body, "NextContinuationToken");
    return SBX_OK;
}

static enum sbx_code s3_list(const struct volume_backend *b, const char *prefix, struct arena *a,
                             const char ***out, struct sbx_err *err)
{
    const char **names = arena_zalloc(a, (VOLUME_LIST_MAX + 1) * sizeof(*names));
    const char *token = NULL;
    size_t count = 0;

    do {
        if (list_page(b, prefix, token, a, names, &count, &token, err) != SBX_OK)
            return err->code;
    } while (token != NULL && count < VOLUME_LIST_MAX);
    *out = names;
    return SBX_OK;
}

static enum sbx_code s3_purge(const struct volume_backend *b, const char *prefix,
                              struct sbx_err *err)
{
    for (;;) {
        SCOPED_ARENA struct arena *a = arena_new();
        const char **names;

        if (s3_list(b, prefix, a, &names, err) != SBX_OK)
            return err->code;
        if (names[0] == NULL)
            return SBX_OK;
        for (; *names != NULL; names++) {
            if (s3_remove(b, arena_printf(a, "%s/%s", prefix, *names), err) != SBX_OK)
                return err->code;
        }
    }
}

const struct volume_ops volume_s3_ops = {
    .writer_open = s3_open,
    .writer_add = s3_add,
    .writer_finish = s3_finish,
    .writer_abort = s3_abort,
    .read = s3_read,
    .remove = s3_remove,
    .list = s3_list,
    .purge = s3_purge,
};
