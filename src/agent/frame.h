#ifndef AGENT_FRAME_H
#define AGENT_FRAME_H

/* Payloads to values and values to frames (sbx/agent.h has the format). */

#include <sbx/agent.h>
#include <sbx/attr.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AGENT_TAGS = 64 };

struct agent_span {
    const char *data; /* not terminated */
    size_t len;
};

struct agent_list {
    struct agent_span *items;
    size_t count;
};

/* A parsed payload.  Spans point into the payload. */
struct agent_request {
    uint64_t present; /* bit of each tag that was there */
    uint64_t number[AGENT_TAGS];
    struct agent_span text[AGENT_TAGS];
    struct agent_list args, env, excludes, groups; /* groups: 8 bytes each */
};

static inline bool agent_request_has(const struct agent_request *r, enum sbx_agent_tag tag)
{
    return (r->present >> tag) & 1;
}

/* False: the payload is no list of fields, a number has another length than 8, a text that the
 * kernel would end early has a NUL, or memory is short.  agent_request_fini in every case. */
bool agent_request_parse(const unsigned char *payload, size_t len,
                         struct agent_request *out) MUST_USE;
void agent_request_fini(struct agent_request *r);

/* A heap copy with a NUL behind it, NULL when memory is short. */
char *agent_span_dup(struct agent_span s) MUST_USE;

/* A queue of bytes: appended at the end, taken from the front.  It grows to `max`, past which
 * appending fails and changes nothing. */
struct agent_queue {
    unsigned char *data;
    size_t at, len, cap; /* at..len is what waits */
    size_t max;
    size_t frame; /* where the frame under construction begins */
    bool failed;  /* a part of the frame under construction did not fit */
};

void agent_queue_fini(struct agent_queue *q);
static inline size_t agent_queue_size(const struct agent_queue *q)
{
    return q->len - q->at;
}
/* n writable bytes at the end, NULL when over max or out of memory. */
unsigned char *agent_queue_reserve(struct agent_queue *q, size_t n) MUST_USE;
void agent_queue_consume(struct agent_queue *q, size_t n);
void agent_queue_clear(struct agent_queue *q);

/* A frame: begin, fields, end.  end is false when it did not fit: the queue is as before. */
void agent_frame_begin(struct agent_queue *q, enum sbx_agent_type type, uint32_t stream);
void agent_frame_number(struct agent_queue *q, enum sbx_agent_tag tag, uint64_t v);
void agent_frame_bytes(struct agent_queue *q, enum sbx_agent_tag tag, const void *p, size_t n);
void agent_frame_text(struct agent_queue *q, enum sbx_agent_tag tag, const char *text);
bool agent_frame_end(struct agent_queue *q);
/* A whole frame with bare bytes. */
bool agent_frame_data(struct agent_queue *q, enum sbx_agent_type type, uint32_t stream,
                      const void *p, size_t n);

#endif
