#include <stdlib.h>
#include <string.h>

#include "api/cursor.h"
#include "api/handlers.h"
#include "api/render.h"
#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "domain/valid.h"

enum {
    LIST_DEFAULT = 50,
    LIST_MAX = 100,
    STATUS_NAME_MAX = 32,
    WARM_WAIT_MS = 500, /* a create that took a warm member answers READY when it is by then */
    PAUSE_RETRY_S = 5,  /* told while the region is away */
    PAUSE_LOOK_MS = 10 * 1000, /* so often a pause under way looks whether its region answers */
};

static void answer_sandbox(struct api_call *c, int status, const struct store_sandbox *row)
{
    api_write_sandbox(response_ok_begin(c->res, status), "sandbox", row);
    response_ok_end(c->res);
}

static enum sbx_code quota_refused(struct api_call *c, int limit, int active, struct sbx_err *err)
{
    json_t *data = response_error_data(c->res);

    json_put_int(data, "limit", limit);
    json_put_int(data, "active", active);
    json_put_bool(data, "retryable", true);
    return err->code;
}

/* --- create ------------------------------------------------------------ */

enum sbx_code api_sandbox_create_shape(const json_t *args, struct sbx_err *err)
{
    return valid_owner_kind(json_get_str(args, "workloadProfile", ""),
                            json_get_str(args, "ownerKind", ""), err);
}

/* in's texts are the request's. */
static void creation(const struct api_call *c, struct store_sandbox_new *in)
{
    const char *mode = json_get_str(c->args, "persistenceMode", NULL);
    char *id = arena_zalloc(c->a, ID_SIZE);

    id_new(id);
    *in = (struct store_sandbox_new){
        .sandbox_id = id,
        .account_id = c->account_id,
        .app_id = json_get_str(c->args, "appId", NULL),
        .template_id = json_get_str(c->args, "templateId", NULL),
        .region = json_get_str(c->args, "region", NULL),
        .profile = json_get_str(c->args, "workloadProfile", NULL),
        .owner_kind = json_get_str(c->args, "ownerKind", NULL),
        .owner_id = json_get_str(c->args, "ownerId", NULL),
        .external_session_id = json_get_str(c->args, "externalSessionId", NULL),
        .caller_key = c->caller->actor,
        .idempotency_key = json_get_str(c->args, "idempotencyKey", NULL),
        .volume_name = json_get_str(c->args, "volumeName", NULL),
        .request_id = request_id(c->req),
    };
    if (mode != NULL)
        (void)sandbox_persistence_parse(mode, &in->persistence_mode); /* the schema's enum */
}

struct create {
    struct store_sandbox_new in; /* the same id in each try, so that ours is known again */
    struct store_created made;
};

static void answer_created(struct api_call *c, const struct store_sandbox *row, bool was_created)
{
    struct json_out *o = response_ok_begin(c->res, was_created ? 201 : 200);

    json_out_bool(o, "wasCreated", was_created);
    api_write_sandbox(o, "sandbox", row);
    response_ok_end(c->res);
}

static enum sbx_code warm_claimed(struct api_call *c, struct sbx_err *err)
{
    struct store_sandbox row;

    if (store_sandbox_get(c->db, c->account_id, c->object_id, c->a, &row, err) != SBX_OK)
        return err->code;
    answer_created(c, &row, true);
    return SBX_OK;
}

static enum sbx_code created(struct api_call *c, struct sbx_err *err)
{
    const uint32_t coming = SANDBOX_BIT(SANDBOX_REQUESTED) | SANDBOX_BIT(SANDBOX_ALLOCATING) |
                            SANDBOX_BIT(SANDBOX_STARTING);
    struct store_created *made = &((struct create *)c->note)->made;

    if (err->code == SBX_E_QUOTA)
        return quota_refused(c, made->quota_limit, made->quota_active, err);
    if (err->code != SBX_OK)
        return err->code;
    c->object_id = made->sandbox.sandbox_id;
    request_log(c->req, "sandboxId", made->sandbox.sandbox_id);
    if (made->was_created) {
        reconcile_wake(c->api->reconcile);
        if (c->api->cfg.waker != NULL)
            store_waker_kick(c->api->cfg.waker);
    }
    if (made->was_created && made->sandbox.warm_id != NULL)
        return api_wait_status(c, c->object_id, SANDBOX_SET_ALL & ~coming, WARM_WAIT_MS,
                               warm_claimed);
    answer_created(c, &made->sandbox, made->was_created);
    return SBX_OK;
}

static enum sbx_code create_alone(struct api_call *c, struct sbx_err *err)
{
    struct create *k = c->note;

    (void)!store_sandbox_create(c->db, &k->in, c->a, &k->made, err);
    return created(c, err);
}

enum sbx_code api_sandbox_create(struct api_call *c, struct sbx_err *err)
{
    struct create *k = arena_zalloc(c->a, sizeof(*k));

    creation(c, &k->in);
    c->note = k;
    c->object_kind = "sandbox";
    if (!request_grouped(c->req))
        return create_alone(c, err);
    return api_together(c, store_sandbox_create_later(c->db, &k->in, c->a, &k->made), created,
                        create_alone);
}

/* --- read -------------------------------------------------------------- */

static enum sbx_code got(struct api_call *c, struct sbx_err *err)
{
    if (err->code != SBX_OK)
        return err->code;
    answer_sandbox(c, 200, c->note);
    return SBX_OK;
}

static enum sbx_code get_alone(struct api_call *c, struct sbx_err *err)
{
    struct store_sandbox row;

    if (store_sandbox_get(c->db, c->account_id, json_get_str(c->args, "sandboxId", ""), c->a, &row,
                          err) != SBX_OK)
        return err->code;
    answer_sandbox(c, 200, &row);
    return SBX_OK;
}

enum sbx_code api_sandbox_get(struct api_call *c, struct sbx_err *err)
{
    struct store_sandbox *row;

    if (!request_grouped(c->req))
        return get_alone(c, err);
    c->note = row = arena_zalloc(c->a, sizeof(*row));
    return api_together(c,
                        store_sandbox_get_later(c->db, c->account_id,
                                                json_get_str(c->args, "sandboxId", ""), c->a, row),
                        got, get_alone);
}

/* Comma-separated names, spaces around them aside; unknown ones are ignored, and when none is left
 * nothing matches. */
uint32_t api_statuses_of(const char *list)
{
    uint32_t set = 0;
    char name[STATUS_NAME_MAX];

    if (list == NULL || list[0] == '\0')
        return SANDBOX_SET_ALL;
    while (*list != '\0') {
        size_t n, len;
        enum sandbox_status status;

        list += strspn(list, " ");
        n = len = strcspn(list, ",");
        while (len > 0 && list[len - 1] == ' ')
            len--;
        if (len < sizeof(name)) {
            memcpy(name, list, len);
            name[len] = '\0';
            if (sandbox_status_parse(name, &status))
                set |= SANDBOX_BIT(status);
        }
        list += n + (list[n] == ',');
    }
    return set;
}

const char *api_next_cursor(struct arena *a, const struct store_sandboxes *rows)
{
    struct api_cursor cursor;

    if (!rows->more || rows->count == 0)
        return NULL;
    cursor.created_ms = rows->rows[rows->count - 1].created_at_ms;
    (void)str_copy(cursor.id, sizeof(cursor.id), rows->rows[rows->count - 1].sandbox_id);
    return api_cursor_text(a, &cursor);
}

enum sbx_code api_cursor_shape(const json_t *args, struct sbx_err *err)
{
    const char *text = json_get_str(args, "cursor", NULL);
    struct api_cursor cursor;

    if (text != NULL && !api_cursor_parse(text, &cursor))
        return err_field(err, "cursor", "cursor is not one that a list has answered.");
    return SBX_OK;
}

enum sbx_code api_sandbox_list(struct api_call *c, struct sbx_err *err)
{
    const char *cursor_text = json_get_str(c->args, "cursor", NULL);
    int64_t limit = json_get_int(c->args, "limit", LIST_DEFAULT);
    int64_t page = json_get_int(c->args, "page", 1);
    struct store_sandboxes rows = { 0 };
    struct api_cursor cursor;
    struct store_sandbox_filter filter = {
        .account_id = c->account_id,
        .app_id = json_get_str(c->args, "appId", NULL),
        .statuses = api_statuses_of(json_get_str(c->args, "status", NULL)),
        .want_total = cursor_text == NULL,
    };
    struct json_out *o;

    if (limit > LIST_MAX)
        limit = LIST_MAX;
    filter.limit = (int)limit;
    filter.offset = (page - 1) * limit;
    if (cursor_text != NULL && api_cursor_parse(cursor_text, &cursor)) {
        filter.before_ms = cursor.created_ms;
        filter.before_id = cursor.id;
    }
    if (filter.statuses != 0 && store_sandbox_list(c->db, &filter, c->a, &rows, err) != SBX_OK)
        return err->code;
    o = response_ok_begin(c->res, 200);
    json_out_str(o, "accountId", c->account_id);
    json_out_int(o, "limit", limit);
    json_out_open(o, "sandboxes", '[');
    for (size_t i = 0; i < rows.count; i++)
        api_write_sandbox(o, NULL, &rows.rows[i]);
    json_out_close(o, ']');
    if (cursor_text == NULL) {
        json_out_int(o, "page", page);
        json_out_int(o, "totalCount", rows.total);
    }
    json_out_str(o, "nextCursor", api_next_cursor(c->a, &rows));
    response_ok_end(c->res);
    return SBX_OK;
}

/* --- terminate, pause, resume ------------------------------------------ */

/* The row of this account, refused when it holds a personal run: its own endpoints end it. */
static enum sbx_code get_generic(struct api_call *c, struct store_sandbox *row, struct sbx_err *err)
{
    c->object_kind = "sandbox";
    if (store_sandbox_get(c->db, c->account_id, json_get_str(c->args, "sandboxId", ""), c->a, row,
                          err) != SBX_OK)
        return err->code;
    if (row->personal)
        return err_set(err, SBX_E_PERSONAL_RUNTIME,
                       "This sandbox belongs to a personal run; its owning Solution manages it.");
    return SBX_OK;
}

static struct reconcile_ask ask_of(const struct api_call *c)
{
    return (struct reconcile_ask){
        .account_id = c->account_id,
        .sandbox_id = json_get_str(c->args, "sandboxId", ""),
        .actor = c->caller->actor,
        .request_id = request_id(c->req),
    };
}

enum sbx_code api_sandbox_terminate(struct api_call *c, struct sbx_err *err)
{
    struct reconcile_ask ask = ask_of(c);
    struct store_sandbox row;

    if (get_generic(c, &row, err) != SBX_OK ||
        reconcile_terminate(c->api->reconcile, c->db, &ask, c->a, &row, err) != SBX_OK)
        return err->code;
    if (row.status != SANDBOX_TERMINATED)
        return api_wait_status(c, ask.sandbox_id, SANDBOX_SET_ENDED, c->api->cfg.terminate_wait_ms,
                               get_alone);
    answer_sandbox(c, 200, &row);
    return SBX_OK;
}

static enum sbx_code region_away(struct api_call *c, const char *says, struct sbx_err *err)
{
    json_put_bool(response_error_data(c->res), "retryable", true);
    response_retry_after(c->res, PAUSE_RETRY_S);
    return err_set(err, SBX_E_UNAVAILABLE, "%s", says);
}

static enum sbx_code pause_settled(struct api_call *c, struct sbx_err *err);

static enum sbx_code pause_wait(struct api_call *c, const char *sandbox_id)
{
    return api_wait_status(c, sandbox_id, SANDBOX_SET_ALL & ~SANDBOX_BIT(SANDBOX_SUSPENDING),
                           PAUSE_LOOK_MS, pause_settled);
}

/* The status has changed, or some time has gone by: a region that died under the pause is told
 * then, one that still writes is waited for. */
static enum sbx_code pause_settled(struct api_call *c, struct sbx_err *err)
{
    struct store_sandbox row;

    if (store_sandbox_get(c->db, c->account_id, json_get_str(c->args, "sandboxId", ""), c->a, &row,
                          err) != SBX_OK)
        return err->code;
    if (row.status == SANDBOX_SUSPENDED) {
        answer_sandbox(c, 200, &row);
        return SBX_OK;
    }
    if (sandbox_status_in(row.status, SANDBOX_SET_RUNNING)) {
        enum sbx_code code = reconcile_pause_failure(&row, err);

        json_put_bool(response_error_data(c->res), "retryable", true);
        return code;
    }
    if (row.status != SANDBOX_SUSPENDING)
        return err_set(err, SBX_E_CHANGING, "Sandbox is changing state");
    if (row.last_error != NULL)
        return region_away(c,
                           "The sandbox's region went away under the pause; what became of it is "
                           "known when the region is back.",
                           err);
    if (row.now_ms - row.status_since_ms > SBX_GATEWAY_SNAPSHOT_TIMEOUT_S * 1000)
        return err_set(err, SBX_E_CHANGING, "Sandbox is changing state");
    return pause_wait(c, row.sandbox_id);
}

static enum sbx_code pause_begin(struct api_call *c, struct sbx_err *err)
{
    const json_t *exclude = json_object_get(c->args, "snapshotExclude");
    struct reconcile_ask ask = ask_of(c);
    struct store_pause pause = {
        .max_mb = (int)json_get_int(c->args, "snapshotMaxMb", 0),
        .force = json_get_bool(c->args, "force", false),
    };
    struct store_sandbox row;

    if (exclude != NULL)
        pause.exclude = api_json_text(c->a, exclude);
    ask.pause = &pause;
    if (reconcile_pause(c->api->reconcile, c->db, &ask, c->a, &row, err) != SBX_OK)
        return err->code;
    if (row.status != SANDBOX_SUSPENDED)
        return pause_wait(c, ask.sandbox_id);
    answer_sandbox(c, 200, &row);
    return SBX_OK;
}

/* Whether the region answers, asked before anything is changed. */
struct look {
    struct api *api;
    struct http_server *server;
    uint64_t ticket;
    bool answered;
};

static enum sbx_code not_begun(struct api_call *c, struct sbx_err *err)
{
    return region_away(c, "The sandbox's region cannot be reached now; the sandbox is as it was.",
                       err);
}

static enum sbx_code looked(struct request *req, struct response *res, void *arg,
                            struct sbx_err *err)
{
    SCOPED_FREE struct look *look = arg;

    return api_call_resume(req, res, look->answered ? pause_begin : not_begun, err);
}

static void on_look(void *arg, const struct gateway_client_answer *answer)
{
    struct look *look = arg;

    look->answered = answer->answered;
    if (!api_continue(look->api, look->server, look->ticket, looked, look))
        free(look);
}

/* A region that is away is told at once (seed: 503, the status as before): once SUSPENDING is
 * written, the pause waits until the region says what became of it. */
enum sbx_code api_sandbox_pause(struct api_call *c, struct sbx_err *err)
{
    struct store_sandbox row;
    struct look *look;
    struct sbx_err lost = { 0 };

    if (get_generic(c, &row, err) != SBX_OK)
        return err->code;
    if (!sandbox_status_in(row.status, SANDBOX_SET_RUNNING) ||
        !sandbox_persistence_has_volume(row.persistence_mode))
        return pause_begin(c, err);
    look = mem_zalloc(sizeof(*look));
    look->api = c->api;
    look->server = request_server(c->req);
    c->deferred = true;
    request_set_slot(c->req, c);
    look->ticket = request_defer(c->req, 2 * SBX_GATEWAY_CALL_TIMEOUT_S * 1000, NULL);
    if (gateway_client_get(c->api->cfg.gateway, row.region, row.sandbox_id, on_look, look, &lost) !=
        SBX_OK)
        on_look(look, &(struct gateway_client_answer){ .code = lost.code });
    return SBX_OK;
}

enum sbx_code api_sandbox_resume(struct api_call *c, struct sbx_err *err)
{
    struct reconcile_ask ask = ask_of(c);
    struct store_sandbox row;
    int limit = 0, active = 0;
    bool changed = false;

    if (get_generic(c, &row, err) != SBX_OK)
        return err->code;
    if (reconcile_resume(c->api->reconcile, c->db, &ask, c->a, &row, &changed, &limit, &active,
                         err) != SBX_OK) {
        if (err->code == SBX_E_QUOTA)
            return quota_refused(c, limit, active, err);
        return err->code;
    }
    answer_sandbox(c, 200, &row);
    return SBX_OK;
}
