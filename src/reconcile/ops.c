#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "reconcile/state.h"

/* Time, the database's health, and the tables of calls under way. */

enum { DB_RETRY_MS = 500 };

int64_t reconcile_mono(const struct reconcile_core *c)
{
    return c->cfg.mono_ms(c->cfg.clock_arg);
}

int64_t reconcile_db_now(const struct reconcile_core *c)
{
    return reconcile_mono(c) + c->db_offset_ms;
}

/* xorshift64*: good enough to spread retries, and the same for the same seed. */
uint32_t reconcile_jitter(struct reconcile_core *c)
{
    c->rng ^= c->rng >> 12;
    c->rng ^= c->rng << 25;
    c->rng ^= c->rng >> 27;
    return (uint32_t)((c->rng * UINT64_C(2685821657736338717)) >> 32);
}

void reconcile_db_failed(struct reconcile_core *c, const struct sbx_err *err, const char *what)
{
    if (c->db_up)
        log_err(LOG_WARN, "the database does not answer; reaping waits", err, LOG_S("step", what));
    c->db_up = false;
    c->db_retry_ms = reconcile_mono(c) + DB_RETRY_MS;
}

bool reconcile_db_usable(const struct reconcile_core *c)
{
    return c->db_up || reconcile_mono(c) >= c->db_retry_ms;
}

void reconcile_db_worked(struct reconcile_core *c)
{
    if (!c->db_up)
        log_info("the database answers");
    c->db_up = true;
}

/* --- ids --------------------------------------------------------------- */

bool reconcile_ids_add(struct reconcile_ids *l, const char *id)
{
    if (l->count == l->max)
        return false;
    if (l->count == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 64;
        if (l->cap > l->max)
            l->cap = l->max;
        l->ids = mem_realloc(l->ids, l->cap * sizeof(*l->ids));
    }
    (void)str_copy(l->ids[l->count++], ID_SIZE, id);
    return true;
}

void reconcile_ids_drop(struct reconcile_ids *l, size_t first)
{
    if (first == 0)
        return; /* also the list that has no memory yet */
    memmove(l->ids, l->ids + first, (l->count - first) * sizeof(*l->ids));
    l->count -= first;
}

/* --- ops --------------------------------------------------------------- */

static size_t token_bucket(uint64_t token)
{
    return (size_t)(token % OP_BUCKETS);
}

static size_t id_bucket(const char *id)
{
    return crc32_of(id, strlen(id)) % OP_BUCKETS;
}

struct reconcile_op *reconcile_op_of(const struct reconcile_core *c, const char *sandbox_id)
{
    struct reconcile_op *op = c->ids[id_bucket(sandbox_id)];

    while (op && strcmp(op->id, sandbox_id) != 0)
        op = op->by_id;
    return op;
}

static void unlink_id(struct reconcile_core *c, const struct reconcile_op *op)
{
    struct reconcile_op **p = &c->ids[id_bucket(op->id)];

    while (*p && *p != op)
        p = &(*p)->by_id;
    if (*p)
        *p = op->by_id;
}

struct reconcile_op *reconcile_op_new(struct reconcile_core *c, enum reconcile_call_kind kind,
                                      enum reconcile_purpose purpose, const char *id,
                                      const char *region)
{
    struct reconcile_op *op = mem_zalloc(sizeof(*op));
    size_t t;

    op->token = ++c->next_token;
    op->kind = kind;
    op->purpose = purpose;
    op->started_ms = reconcile_mono(c);
    (void)str_copy(op->id, sizeof(op->id), id);
    (void)str_copy(op->region, sizeof(op->region), region);
    id_new(op->operation_id);
    t = token_bucket(op->token);
    op->by_token = c->tokens[t];
    c->tokens[t] = op;
    if (purpose == RECONCILE_FOR_ROW) {
        struct reconcile_op *old = reconcile_op_of(c, id);

        if (old) { /* the row was moved under it: its answer only matters for the undo */
            old->lost = true;
            unlink_id(c, old);
        }
        op->by_id = c->ids[id_bucket(id)];
        c->ids[id_bucket(id)] = op;
    }
    op->next = c->ops;
    if (op->next)
        op->next->prev = op;
    c->ops = op;
    c->op_count++;
    return op;
}

void reconcile_op_free(struct reconcile_core *c, struct reconcile_op *op)
{
    struct reconcile_op **p = &c->tokens[token_bucket(op->token)];

    while (*p != op)
        p = &(*p)->by_token;
    *p = op->by_token;
    if (op->purpose == RECONCILE_FOR_ROW)
        unlink_id(c, op);
    if (op->next)
        op->next->prev = op->prev;
    if (op->prev)
        op->prev->next = op->next;
    else
        c->ops = op->next;
    c->op_count--;
    free(op);
}

void reconcile_scan_at(struct reconcile_core *c, int64_t mono_ms)
{
    if (c->next_scan_ms == 0 || mono_ms < c->next_scan_ms)
        c->next_scan_ms = mono_ms;
}

struct reconcile_op *reconcile_op_by_token(const struct reconcile_core *c, uint64_t token)
{
    struct reconcile_op *op = c->tokens[token_bucket(token)];

    while (op && op->token != token)
        op = op->by_token;
    return op;
}

void reconcile_answer_free(struct reconcile_answer *a)
{
    if (!a)
        return;
    free(a->seen);
    free(a->executions);
    free(a->wants);
    free(a);
}
