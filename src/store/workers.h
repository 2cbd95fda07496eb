#ifndef STORE_WORKERS_H
#define STORE_WORKERS_H

/* Streams and the workers that check in for them (contract 7). */

#include "store/store.h"

enum { STORE_WORKERS_MAX = 64 }; /* kept for a stream: the ones that checked in last */

struct store_stream {
    const char *stream_id;
    const char *owner_user_id;
    int64_t created_at_ms;
};
struct store_streams {
    struct store_stream *rows;
    size_t count;
    bool more;
};

struct store_worker {
    const char *worker_id;
    const char *version; /* NULL: none */
    int64_t registered_at_ms, last_check_in_at_ms;
};
struct store_workers {
    struct store_worker *rows; /* by worker_id */
    size_t count;
    int64_t now_ms; /* the database's clock when they were read */
};

/* SBX_E_CONFLICT: the id is taken; SBX_E_NOT_FOUND: no such user. */
MUST_USE enum sbx_code store_stream_create(struct store_conn *db, const char *stream_id,
                                           const char *owner_user_id, struct arena *a,
                                           struct store_stream *out, struct sbx_err *err);
/* SBX_E_NOT_FOUND. Its workers go with it. */
MUST_USE enum sbx_code store_stream_remove(struct store_conn *db, const char *stream_id,
                                           struct sbx_err *err);
MUST_USE enum sbx_code store_stream_list(struct store_conn *db, const char *after, int limit,
                                         struct arena *a, struct store_streams *out,
                                         struct sbx_err *err);
/* The stream when it belongs to the person of that subject (usr_...), or of that user id. One
 * SBX_E_STREAM_NOT_FOUND for a stream that is not there and one of somebody else. */
MUST_USE enum sbx_code store_stream_of_subject(struct store_conn *db, const char *stream_id,
                                               const char *subject, struct sbx_err *err);
MUST_USE enum sbx_code store_stream_of_user(struct store_conn *db, const char *stream_id,
                                            const char *user_id, struct sbx_err *err);

/* Makes or refreshes the worker. *fresh: it was not there before. */
MUST_USE enum sbx_code store_worker_check_in(struct store_conn *db, const char *stream_id,
                                             const char *worker_id, const char *version,
                                             struct arena *a, struct store_worker *out, bool *fresh,
                                             struct sbx_err *err);
MUST_USE enum sbx_code store_worker_list(struct store_conn *db, const char *stream_id,
                                         struct arena *a, struct store_workers *out,
                                         struct sbx_err *err);
/* The gate that play code asks: may a play run for this stream now? True only when a worker is
 * healthy; false also when that cannot be found out. */
bool store_worker_gate(struct store_conn *db, const char *stream_id);

#endif
