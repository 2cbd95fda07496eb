#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/time.h"
#include "http/internal.h"

/* The pipe behind a streamed answer.  Two owners: the producer (response_stream_write,
 * response_stream_end) and the consumer (the response, then libmicrohttpd's).  When the
 * pipe is empty the consumer suspends its connection, and the next write resumes it;
 * both under the pipe's lock, so that no resume comes before its suspend. */
struct response_stream {
    pthread_mutex_t lock;
    pthread_cond_t room;
    struct buf data;
    int refs;
    bool ended; /* by the producer */
    bool ok;
    bool gone;    /* no consumer any more */
    bool waiting; /* the connection is suspended */
    int64_t size;
    struct MHD_Connection *mhd; /* once it is being sent */
    struct conn *conn;
    struct http_server *server;
    struct response_stream *prev, *next; /* server's list, under its lock, while not gone */
};

struct response_stream *response_stream(struct response *res, int status, const char *content_type,
                                        int64_t size, size_t max)
{
    struct response_stream *s = mem_zalloc(sizeof(*s));
    struct http_server *server = res->request->server;
    pthread_condattr_t attr;

    assert(max > 0);
    response_empty(res, status);
    res->content_type = content_type;
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&s->room, &attr);
    (void)pthread_condattr_destroy(&attr);
    s->data.max = max;
    s->size = size;
    s->refs = 2;
    s->server = server;
    s->conn = res->request->conn;
    (void)pthread_mutex_lock(&server->lock);
    s->next = server->streams;
    if (s->next != NULL)
        s->next->prev = s;
    server->streams = s;
    (void)pthread_mutex_unlock(&server->lock);
    res->stream = s;
    return s;
}

/* The caller holds the lock; it is released. */
static void unref(struct response_stream *s)
{
    bool last = --s->refs == 0;

    (void)pthread_mutex_unlock(&s->lock);
    if (!last)
        return;
    buf_fini(&s->data);
    (void)pthread_cond_destroy(&s->room);
    (void)pthread_mutex_destroy(&s->lock);
    free(s);
}

/* The caller holds the lock. */
static void wake_consumer(struct response_stream *s)
{
    if (s->waiting) {
        s->waiting = false;
        MHD_resume_connection(s->mhd);
    }
}

enum sbx_code response_stream_write(struct response_stream *s, const void *data, size_t len,
                                    int timeout_ms, struct sbx_err *err)
{
    int64_t until = time_mono_ms() + timeout_ms;
    struct timespec ts = { .tv_sec = until / 1000, .tv_nsec = until % 1000 * 1000000 };
    enum sbx_code code = SBX_OK;

    assert(len <= s->data.max);
    (void)pthread_mutex_lock(&s->lock);
    assert(!s->ended || s->gone);
    while (!s->gone && s->data.len > s->data.max - len && time_mono_ms() < until)
        (void)pthread_cond_timedwait(&s->room, &s->lock, &ts);
    if (s->gone) {
        code = err_set(err, SBX_E_CONFLICT, "The client is gone.");
    } else if (s->data.len > s->data.max - len) {
        code = err_set(err, SBX_E_TIMEOUT, "The client is slow.");
    } else if (len > 0) {
        (void)buf_append(&s->data, data, len);
        wake_consumer(s);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return code;
}

void response_stream_end(struct response_stream *s, bool ok)
{
    if (s == NULL)
        return;
    (void)pthread_mutex_lock(&s->lock);
    s->ended = true;
    s->ok = ok;
    wake_consumer(s);
    unref(s);
}

static ssize_t read_stream(void *arg, uint64_t pos, char *to, size_t max)
{
    struct response_stream *s = arg;
    ssize_t n = 0;

    (void)pos;
    (void)pthread_mutex_lock(&s->lock);
    if (s->data.len > 0) {
        n = (ssize_t)(s->data.len < max ? s->data.len : max);
        memcpy(to, s->data.data, (size_t)n);
        buf_consume(&s->data, (size_t)n);
        (void)pthread_cond_signal(&s->room);
        atomic_store(&s->conn->deadline_ms, time_mono_ms() + s->server->config.send_timeout_ms);
    } else if (s->ended) {
        n = s->ok ? MHD_CONTENT_READER_END_OF_STREAM : MHD_CONTENT_READER_END_WITH_ERROR;
    } else {
        atomic_store(&s->conn->deadline_ms, 0);
        s->waiting = true;
        MHD_suspend_connection(s->mhd);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return n;
}

/* The consumer's part ends: on an http thread, or with a response that was never sent. */
void http_stream_drop(struct response_stream *s)
{
    struct http_server *server = s->server;

    (void)pthread_mutex_lock(&server->lock);
    if (s->prev != NULL)
        s->prev->next = s->next;
    else
        server->streams = s->next;
    if (s->next != NULL)
        s->next->prev = s->prev;
    (void)pthread_mutex_unlock(&server->lock);
    (void)pthread_mutex_lock(&s->lock);
    assert(!s->waiting);
    s->gone = true;
    (void)pthread_cond_broadcast(&s->room);
    unref(s);
}

static void drop(void *arg)
{
    http_stream_drop(arg);
}

struct MHD_Response *http_stream_to_mhd(struct response_stream *s, struct request *req)
{
    uint64_t size = s->size == RESPONSE_SIZE_UNKNOWN ? MHD_SIZE_UNKNOWN : (uint64_t)s->size;

    s->mhd = req->mhd;
    req->res.stream = NULL;
    return MHD_create_response_from_callback(size, 32 * 1024, read_stream, s, drop);
}

/* At the stop: what its producer has not ended is cut. */
void http_streams_abort(struct http_server *server)
{
    (void)pthread_mutex_lock(&server->lock);
    for (struct response_stream *s = server->streams; s != NULL; s = s->next) {
        (void)pthread_mutex_lock(&s->lock);
        if (!s->ended) {
            s->ended = true;
            s->ok = false;
            s->gone = true;
        }
        wake_consumer(s);
        (void)pthread_cond_broadcast(&s->room);
        (void)pthread_mutex_unlock(&s->lock);
    }
    (void)pthread_mutex_unlock(&server->lock);
}
