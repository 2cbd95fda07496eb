#include "agent/frame.h"

#include <stdlib.h>
#include <string.h>

enum { QUEUE_FIRST = 4096 };

enum field_kind { FIELD_UNKNOWN, FIELD_NUMBER, FIELD_BYTES, FIELD_TEXT, FIELD_LIST };

/* TEXT and LIST reach the kernel as strings, so they have no NUL. */
static const unsigned char kinds[AGENT_TAGS] = {
    [SBX_TAG_KIND] = FIELD_NUMBER,
    [SBX_TAG_KEY] = FIELD_BYTES,
    [SBX_TAG_DIAL_ID] = FIELD_NUMBER,
    [SBX_TAG_AGENT_VERSION] = FIELD_TEXT,
    [SBX_TAG_ARG] = FIELD_LIST,
    [SBX_TAG_ENV] = FIELD_LIST,
    [SBX_TAG_CWD] = FIELD_TEXT,
    [SBX_TAG_TIMEOUT_MS] = FIELD_NUMBER,
    [SBX_TAG_CAP_STDOUT] = FIELD_NUMBER,
    [SBX_TAG_CAP_STDERR] = FIELD_NUMBER,
    [SBX_TAG_EXEC_ID] = FIELD_TEXT,
    [SBX_TAG_STDIN] = FIELD_BYTES,
    [SBX_TAG_UID] = FIELD_NUMBER,
    [SBX_TAG_GID] = FIELD_NUMBER,
    [SBX_TAG_EXIT_CODE] = FIELD_NUMBER,
    [SBX_TAG_SIGNAL] = FIELD_NUMBER,
    [SBX_TAG_TIMED_OUT] = FIELD_NUMBER,
    [SBX_TAG_STDOUT_BYTES] = FIELD_NUMBER,
    [SBX_TAG_STDERR_BYTES] = FIELD_NUMBER,
    [SBX_TAG_DURATION_MS] = FIELD_NUMBER,
    [SBX_TAG_REASON] = FIELD_NUMBER,
    [SBX_TAG_MESSAGE] = FIELD_BYTES,
    [SBX_TAG_PATH] = FIELD_TEXT,
    [SBX_TAG_MODE] = FIELD_NUMBER,
    [SBX_TAG_EXCLUDE] = FIELD_LIST,
    [SBX_TAG_MAX_BYTES] = FIELD_NUMBER,
    [SBX_TAG_BYTES] = FIELD_NUMBER,
    [SBX_TAG_MEMBERS] = FIELD_NUMBER,
    [SBX_TAG_PORT] = FIELD_NUMBER,
    [SBX_TAG_NPROC] = FIELD_NUMBER,
    [SBX_TAG_PROXY] = FIELD_NUMBER,
    [SBX_TAG_WORKSPACE] = FIELD_TEXT,
    [SBX_TAG_PERSONAL] = FIELD_NUMBER,
    [SBX_TAG_HOLD] = FIELD_NUMBER,
    [SBX_TAG_GROUPS] = FIELD_LIST,
};

static struct agent_list *list_of(struct agent_request *r, unsigned tag)
{
    return tag == SBX_TAG_ARG       ? &r->args
           : tag == SBX_TAG_ENV     ? &r->env
           : tag == SBX_TAG_EXCLUDE ? &r->excludes
                                    : &r->groups;
}

static bool field_valid(const struct sbx_agent_field *f, unsigned kind)
{
    if (f->tag == SBX_TAG_GROUPS || kind == FIELD_NUMBER)
        return f->len == 8;
    if (kind == FIELD_TEXT || kind == FIELD_LIST)
        return f->len == 0 || !memchr(f->data, '\0', f->len);
    return true;
}

/* Checks everything and counts what the lists need, so that each is allocated once. */
static bool first_pass(const unsigned char *payload, size_t len, struct agent_request *out)
{
    struct sbx_agent_field f;
    size_t at = 0;
    bool bad = false;

    while (sbx_agent_field_next(payload, len, &at, &f, &bad)) {
        unsigned kind = f.tag < AGENT_TAGS ? kinds[f.tag] : FIELD_UNKNOWN;

        if (!field_valid(&f, kind))
            return false;
        if (kind == FIELD_LIST)
            list_of(out, f.tag)->count++;
    }
    return !bad;
}

static bool list_alloc(struct agent_list *list)
{
    if (list->count) {
        list->items = calloc(list->count, sizeof(*list->items));
        if (!list->items)
            return false;
    }
    list->count = 0;
    return true;
}

bool agent_request_parse(const unsigned char *payload, size_t len, struct agent_request *out)
{
    struct sbx_agent_field f;
    size_t at = 0;
    bool bad = false;

    *out = (struct agent_request){ 0 };
    if (!first_pass(payload, len, out) || !list_alloc(&out->args) || !list_alloc(&out->env) ||
        !list_alloc(&out->excludes) || !list_alloc(&out->groups))
        return false;
    while (sbx_agent_field_next(payload, len, &at, &f, &bad)) {
        unsigned kind = f.tag < AGENT_TAGS ? kinds[f.tag] : FIELD_UNKNOWN;
        struct agent_span span = { (const char *)f.data, f.len };

        if (kind == FIELD_UNKNOWN)
            continue;
        out->present |= UINT64_C(1) << f.tag;
        if (kind == FIELD_NUMBER) {
            out->number[f.tag] = sbx_agent_get_u64(f.data);
        } else if (kind == FIELD_LIST) {
            struct agent_list *list = list_of(out, f.tag);

            list->items[list->count++] = span;
        } else {
            out->text[f.tag] = span;
        }
    }
    return true;
}

void agent_request_fini(struct agent_request *r)
{
    free(r->args.items);
    free(r->env.items);
    free(r->excludes.items);
    free(r->groups.items);
    *r = (struct agent_request){ 0 };
}

char *agent_span_dup(struct agent_span s)
{
    char *copy = malloc(s.len + 1);

    if (copy) {
        if (s.len)
            memcpy(copy, s.data, s.len);
        copy[s.len] = '\0';
    }
    return copy;
}

void agent_queue_fini(struct agent_queue *q)
{
    free(q->data);
    *q = (struct agent_queue){ .max = q->max };
}

void agent_queue_clear(struct agent_queue *q)
{
    q->at = q->len = q->frame = 0;
    q->failed = false;
}

unsigned char *agent_queue_reserve(struct agent_queue *q, size_t n)
{
    unsigned char *grown;
    size_t cap = q->cap ? q->cap : QUEUE_FIRST;

    if (n > q->max || agent_queue_size(q) > q->max - n)
        return NULL;
    if (q->cap - q->len >= n)
        return q->data + q->len;
    if (q->at) { /* move what waits to the front before growing */
        memmove(q->data, q->data + q->at, q->len - q->at);
        q->len -= q->at;
        q->frame -= q->at < q->frame ? q->at : q->frame;
        q->at = 0;
        if (q->cap - q->len >= n)
            return q->data + q->len;
    }
    while (cap - q->len < n)
        cap *= 2;
    grown = realloc(q->data, cap);
    if (!grown)
        return NULL;
    q->data = grown;
    q->cap = cap;
    return q->data + q->len;
}

void agent_queue_consume(struct agent_queue *q, size_t n)
{
    q->at += n;
    if (q->at < q->len)
        return;
    agent_queue_clear(q);
    if (q->cap > SBX_AGENT_DATA_MAX * 4) /* an idle agent stays small */
        agent_queue_fini(q);
}

void agent_frame_begin(struct agent_queue *q, enum sbx_agent_type type, uint32_t stream)
{
    unsigned char *p = agent_queue_reserve(q, SBX_AGENT_HEADER_LEN);

    q->failed = !p;
    if (!p)
        return;
    q->frame = q->len;
    sbx_agent_header_pack(p, (uint8_t)type, stream, 0);
    q->len += SBX_AGENT_HEADER_LEN;
}

void agent_frame_bytes(struct agent_queue *q, enum sbx_agent_tag tag, const void *data, size_t n)
{
    unsigned char *p = q->failed || n > SBX_AGENT_FRAME_MAX ? NULL : agent_queue_reserve(q, n + 6);

    if (!p) {
        if (!q->failed)
            q->len = q->frame;
        q->failed = true;
        return;
    }
    sbx_agent_put_u16(p, (uint16_t)tag);
    sbx_agent_put_u32(p + 2, (uint32_t)n);
    if (n)
        memcpy(p + 6, data, n);
    q->len += n + 6;
}

void agent_frame_number(struct agent_queue *q, enum sbx_agent_tag tag, uint64_t v)
{
    unsigned char bytes[8];

    sbx_agent_put_u64(bytes, v);
    agent_frame_bytes(q, tag, bytes, sizeof(bytes));
}

void agent_frame_text(struct agent_queue *q, enum sbx_agent_tag tag, const char *text)
{
    agent_frame_bytes(q, tag, text, strlen(text));
}

bool agent_frame_end(struct agent_queue *q)
{
    size_t length;

    if (q->failed)
        return false;
    length = q->len - q->frame - SBX_AGENT_HEADER_LEN;
    if (length > SBX_AGENT_FRAME_MAX) {
        q->len = q->frame;
        return false;
    }
    sbx_agent_put_u32(q->data + q->frame + 8, (uint32_t)length);
    return true;
}

bool agent_frame_data(struct agent_queue *q, enum sbx_agent_type type, uint32_t stream,
                      const void *data, size_t n)
{
    unsigned char *p = agent_queue_reserve(q, SBX_AGENT_HEADER_LEN + n);

    if (!p)
        return false;
    sbx_agent_header_pack(p, (uint8_t)type, stream, (uint32_t)n);
    if (n)
        memcpy(p + SBX_AGENT_HEADER_LEN, data, n);
    q->len += SBX_AGENT_HEADER_LEN + n;
    return true;
}
