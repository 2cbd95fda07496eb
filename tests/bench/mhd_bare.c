/* The yardstick for the HTTP figures: libmicrohttpd with as little as possible around it.
 *
 *   mhd_bare FILE                         answers FILE's bytes to every request, from the http
 * thread mhd_bare FILE URL STATEMENT [ARG..]   first runs that prepared statement of the store on
 * one of 8 workers behind a queue, as the product does
 *
 * FILE is one whole answer body, sent as JSON with the headers that the product sends. In an ARG,
 * %ID% becomes a new id and %KEY% 32 random bytes as a bytea literal.  Prints the port, then serves
 * until its standard input ends. */

#include <assert.h>
#include <libpq-fe.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/queue.h"
#include "sbx/attr.h"
#include "store/conn.h"
#include "store/db.h"

enum { WORKERS = 8, QUEUE = 1024, ARGS_MAX = STORE_ARGS_MAX, BODY_MAX = 4 * 1024 * 1024 };

struct job {
    struct MHD_Connection *c;
    bool done;
    bool failed;
};

static struct buf body = BUF_INIT(BODY_MAX);
static struct queue *queue;
static const char *url;
static const struct store_stmt *statement;
static char **args;
static int arg_count;

static const struct store_stmt *find(const char *name)
{
    for (const struct store_statements *t = STORE_STATEMENTS; t->rows != NULL; t++) {
        for (size_t i = 0; i < *t->count; i++) {
            if (t->rows[i].name != NULL && strcmp(t->rows[i].name, name) == 0)
                return &t->rows[i];
        }
    }
    return NULL;
}

static char *expand(const char *arg)
{
    unsigned char key[32];
    char id[ID_SIZE], hex[65];

    if (strcmp(arg, "%ID%") == 0) {
        id_new(id);
        return mem_strdup(id);
    }
    if (strcmp(arg, "%KEY%") == 0) {
        random_bytes(key, sizeof(key));
        hash_hex(key, sizeof(key), hex);
        return mem_printf("\\x%s", hex);
    }
    return strcmp(arg, "%NULL%") == 0 ? NULL : mem_strdup(arg);
}

static bool run(PGconn *db)
{
    char *values[ARGS_MAX];
    PGresult *res;
    bool ok;

    for (int i = 0; i < arg_count; i++)
        values[i] = expand(args[i]);
    res = PQexecPrepared(db, "s", arg_count, (const char *const *)values, NULL, NULL, 0);
    ok = PQresultStatus(res) == PGRES_TUPLES_OK && PQntuples(res) == 1;
    if (!ok)
        (void)fprintf(stderr, "%s\n", PQresultErrorMessage(res));
    PQclear(res);
    for (int i = 0; i < arg_count; i++)
        free(values[i]);
    return ok;
}

static void *work(void *arg)
{
    const char *timeout_ms = "1500";
    PGconn *db = PQconnectdb(url);
    PGresult *res;
    struct job *j;

    (void)arg;
    res = PQexecParams(db, STORE_SESSION_SQL, 1, NULL, &timeout_ms, NULL, NULL, 0);
    if (PQresultStatus(res) != PGRES_TUPLES_OK) {
        (void)fprintf(stderr, "%s\n", PQerrorMessage(db));
        exit(1);
    }
    PQclear(res);
    res = PQprepare(db, "s", statement->sql, 0, NULL);
    if (PQresultStatus(res) != PGRES_COMMAND_OK) {
        (void)fprintf(stderr, "%s\n", PQerrorMessage(db));
        exit(1);
    }
    PQclear(res);
    while ((j = queue_take(queue)) != NULL) {
        j->failed = !run(db);
        j->done = true;
        MHD_resume_connection(j->c);
    }
    PQfinish(db);
    return NULL;
}

static enum MHD_Result answer(struct MHD_Connection *c, unsigned status)
{
    struct MHD_Response *r =
        MHD_create_response_from_buffer(body.len, body.data, MHD_RESPMEM_PERSISTENT);
    enum MHD_Result ok;

    (void)MHD_add_response_header(r, "X-Request-Id", "01m8ma0m5me7a8wwhprjp7f4c3");
    (void)MHD_add_response_header(r, "Cache-Control", "no-store");
    (void)MHD_add_response_header(r, "Content-Type", "application/json");
    ok = MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    return ok;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *c, const char *path,
                                  const char *method, const char *version, const char *data,
                                  size_t *len, void **ctx)
{
    struct job *j = *ctx;

    (void)cls, (void)path, (void)method, (void)version, (void)data;
    if (j == NULL) {
        *ctx = j = mem_zalloc(sizeof(*j));
        j->c = c;
        return MHD_YES;
    }
    if (*len > 0) {
        *len = 0;
        return MHD_YES;
    }
    if (statement == NULL || j->done)
        return answer(c, j->failed ? 500 : 200);
    MHD_suspend_connection(c);
    if (!queue_put(queue, j)) {
        j->done = j->failed = true;
        MHD_resume_connection(c);
    }
    return MHD_YES;
}

static void on_done(void *cls, struct MHD_Connection *c, void **ctx,
                    enum MHD_RequestTerminationCode code)
{
    (void)cls, (void)c, (void)code;
    free(*ctx);
    *ctx = NULL;
}

int main(int argc, char **argv)
{
    struct sbx_err err = { 0 };
    struct MHD_Daemon *d;
    pthread_t threads[WORKERS];
    char line[8];

    if (argc < 2 || file_read(argv[1], &body, &err) != SBX_OK) {
        (void)fprintf(stderr, "usage: mhd_bare FILE [URL STATEMENT [ARG..]]\n");
        return 2;
    }
    queue = queue_new(QUEUE);
    if (argc >= 4) {
        url = argv[2];
        statement = find(argv[3]);
        args = argv + 4;
        arg_count = argc - 4;
        if (statement == NULL || arg_count != statement->args) {
            (void)fprintf(stderr, "no statement %s with %d arguments\n", argv[3], arg_count);
            return 2;
        }
        for (size_t i = 0; i < WORKERS; i++)
            assert(pthread_create(&threads[i], NULL, work, NULL) == 0);
    }
    d = MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_INTERNAL_POLLING_THREAD | MHD_ALLOW_SUSPEND_RESUME,
                         0, NULL, NULL, on_request, NULL, MHD_OPTION_NOTIFY_COMPLETED, on_done,
                         NULL, MHD_OPTION_CONNECTION_LIMIT, 10240u, MHD_OPTION_END);
    if (d == NULL)
        return 1;
    (void)printf("%u\n", MHD_get_daemon_info(d, MHD_DAEMON_INFO_BIND_PORT)->port);
    (void)fflush(stdout);
    while (read(STDIN_FILENO, line, sizeof(line)) > 0)
        continue;
    _exit(0);
}
