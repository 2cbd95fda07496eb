#include "store/sandboxes.h"

#include <assert.h>
#include <string.h>

#include "base/hash.h"
#include "base/str.h"
#include "store/db.h"

#define CREATED_COLUMNS "c.outcome, c.field, c.quota_limit, c.quota_active, "

enum {
    SANDBOX_CREATE,
    SANDBOX_RESUME,
    SANDBOX_GET,
    SANDBOX_GET_ANY,
    SANDBOX_LIST,
    SANDBOX_LIST_LIVE,
    SANDBOX_LIST_ANY,
    SANDBOX_COUNT,
    SANDBOX_COUNT_LIVE,
    SANDBOX_COUNT_ANY,
    SANDBOX_TOTAL,
    SANDBOX_LIST_IDS,
    SANDBOX_LIST_HELD,
    SANDBOX_ACTIVE,
};

#define LIST_FILTER                                                                                \
    "s.account_id = $1 AND ($2::text IS NULL OR s.app_id = $2) AND s.status = ANY($3::text[])"
/* A bound that is always there, so that a cursor is an index condition in every plan. */
#define LIST_CURSOR                                                                                \
    " AND (s.created_at, s.sandbox_id) < (coalesce(to_timestamp($4::bigint / 1000.0), "            \
    "'infinity'), coalesce($5::text, ''))"                                                         \
    " ORDER BY s.created_at DESC, s.sandbox_id DESC LIMIT $6 OFFSET $7"

const struct store_stmt STORE_STMT_SANDBOXES[] = {
    /* Repeatable: a second run finds what the first one made under the same id. */
    [SANDBOX_CREATE] = { "sandbox_create",
                         "SELECT " CREATED_COLUMNS STORE_SANDBOX_COLUMNS
                         " FROM sandboxd.sandbox_create($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, "
                         "$11, $12, $13, $14, $15) c, LATERAL (SELECT (c.sandbox).*) s",
                         15, true },
    [SANDBOX_RESUME] = { "sandbox_resume",
                         "SELECT c.outcome, NULL, c.quota_limit, "
                         "c.quota_active, " STORE_SANDBOX_COLUMNS
                         " FROM sandboxd.sandbox_resume($1, $2, $3, $4, $5, $6) c, "
                         "LATERAL (SELECT (c.sandbox).*) s",
                         6, false },
    [SANDBOX_GET] = { "sandbox_get",
                      "SELECT " STORE_SANDBOX_COLUMNS " FROM sandboxd.sandboxes s "
                      "WHERE s.sandbox_id = $1 AND s.account_id = $2",
                      2, true },
    [SANDBOX_GET_ANY] = { "sandbox_get_any",
                          "SELECT " STORE_SANDBOX_COLUMNS " FROM sandboxd.sandboxes s "
                          "WHERE s.sandbox_id = $1",
                          1, true },
    [SANDBOX_LIST] = { "sandbox_list",
                       "SELECT " STORE_SANDBOX_COLUMNS " FROM sandboxd.sandboxes s "
                       "WHERE " LIST_FILTER LIST_CURSOR,
                       7, true },
    /* Those that have not ended: an index of their own, however many have. */
    [SANDBOX_LIST_LIVE] = { "sandbox_list_live",
                            "SELECT " STORE_SANDBOX_COLUMNS " FROM sandboxd.sandboxes s "
                            "WHERE NOT s.ended AND " LIST_FILTER LIST_CURSOR,
                            7, true },
    [SANDBOX_LIST_ANY] = { "sandbox_list_any",
                           "SELECT " STORE_SANDBOX_COLUMNS " FROM sandboxd.sandboxes s "
                           "WHERE s.status = ANY($1::text[]) "
                           "AND s.sandbox_id < coalesce($2, '~') ORDER BY s.sandbox_id DESC LIMIT "
                           "$3 OFFSET $4",
                           4, true },
    [SANDBOX_COUNT] = { "sandbox_count",
                        "SELECT count(*) FROM sandboxd.sandboxes s WHERE " LIST_FILTER, 3, true },
    [SANDBOX_COUNT_LIVE] = { "sandbox_count_live",
                             "SELECT count(*) FROM sandboxd.sandboxes s "
                             "WHERE NOT s.ended AND " LIST_FILTER,
                             3, true },
    [SANDBOX_COUNT_ANY] = { "sandbox_count_any",
                            "SELECT count(*) FROM sandboxd.sandboxes s "
                            "WHERE s.status = ANY($1::text[])",
                            1, true },
    [SANDBOX_TOTAL] = { "sandbox_total",
                        "SELECT a.sandbox_total FROM sandboxd.accounts a WHERE a.account_id = $1",
                        1, true },
    [SANDBOX_LIST_IDS] = { "sandbox_list_ids",
                           "SELECT " STORE_SANDBOX_COLUMNS " FROM sandboxd.sandboxes s "
                           "WHERE s.sandbox_id = ANY(string_to_array($1, ',')) "
                           "ORDER BY s.sandbox_id",
                           1, true },
    [SANDBOX_LIST_HELD] = { "sandbox_list_held",
                            "SELECT " STORE_SANDBOX_COLUMNS " FROM sandboxd.sandboxes s "
                            "WHERE s.region = $1 AND s.holds_compute "
                            "AND s.sandbox_id > coalesce($2, '') ORDER BY s.sandbox_id LIMIT $3",
                            3, true },
    [SANDBOX_ACTIVE] = { "sandbox_active", "SELECT sandboxd.account_active($1)", 1, true },
};
const size_t STORE_STMT_SANDBOXES_COUNT = COUNT_OF(STORE_STMT_SANDBOXES);

static const struct store_stmt *const S = STORE_STMT_SANDBOXES;

/* --- rows ------------------------------------------------------------------ */

static enum sandbox_status row_status(struct store_row *r)
{
    enum sandbox_status s = SANDBOX_STATUS_NONE;
    const char *text = store_row_text(r);

    if (text)
        (void)sandbox_status_parse(text, &s);
    return s;
}

static void row_ids(struct store_row *r, struct store_sandbox *out)
{
    out->sandbox_id = store_row_text(r);
    out->account_id = store_row_text(r);
    out->app_id = store_row_text(r);
    out->template_id = store_row_text(r);
    out->revision_id = store_row_text(r);
    out->revision = store_row_int32(r);
    out->region = store_row_text(r);
    out->profile = store_row_text(r);
    out->owner_kind = store_row_text(r);
    out->owner_id = store_row_text(r);
    out->external_session_id = store_row_text(r);
    out->caller_key = store_row_text(r);
    out->request_id = store_row_text(r);
}

static void row_persistence(struct store_row *r, struct store_sandbox *out)
{
    const char *mode = store_row_text(r);

    if (mode)
        (void)sandbox_persistence_parse(mode, &out->persistence_mode);
    out->volume_name = store_row_text(r);
    out->persistence.mount_path = store_row_text(r);
    out->persistence.last_snapshot_at_ms = store_row_int(r);
    out->persistence.last_snapshot_bytes = store_row_int(r);
    out->persistence.last_snapshot_error = store_row_text(r);
    out->persistence.restore_failed = store_row_bool(r);
    out->pause.exclude = store_row_text(r);
    out->pause.max_mb = store_row_int32(r);
    out->pause.force = store_row_bool(r);
}

static void row_state(struct store_row *r, struct store_sandbox *out)
{
    out->resources = store_row_text(r);
    out->personal = store_row_bool(r);
    out->is_warm = store_row_bool(r);
    out->warm_id = store_row_text(r);
    out->status = row_status(r);
    out->previous = row_status(r);
    out->desired = row_status(r);
    if (out->desired == out->status)
        out->desired = SANDBOX_STATUS_NONE;
    out->generation = store_row_int(r);
    out->status_reason = store_row_text(r);
    const char *fault = store_row_text(r);
    if (fault)
        (void)sandbox_fault_parse(fault, &out->fault);
    const char *end = store_row_text(r);
    if (end)
        (void)sandbox_end_reason_parse(end, &out->end_reason);
    out->running = store_row_int32(r);
    out->holds_compute = store_row_bool(r);
    out->operation_id = store_row_text(r);
    out->idle_timeout_s = store_row_int32(r);
    out->suspended_retention_s = store_row_int32(r);
}

static void row_times(struct store_row *r, struct store_sandbox *out)
{
    out->created_at_ms = store_row_int(r);
    out->updated_at_ms = store_row_int(r);
    out->claimed_at_ms = store_row_int(r);
    out->ready_at_ms = store_row_int(r);
    out->last_active_at_ms = store_row_int(r);
    out->suspended_at_ms = store_row_int(r);
    out->resumed_at_ms = store_row_int(r);
    out->failed_at_ms = store_row_int(r);
    out->terminated_at_ms = store_row_int(r);
    out->expires_at_ms = store_row_int(r);
    out->status_since_ms = store_row_int(r);
    out->deadline_at_ms = store_row_int(r);
    out->next_action_at_ms = store_row_int(r);
    out->lease_owner = store_row_text(r);
    out->lease_until_ms = store_row_int(r);
    out->attempt = store_row_int32(r);
    out->last_error = store_row_text(r);
    out->now_ms = store_row_int(r);
}

void store_sandbox_row(struct store_row *r, struct store_sandbox *out)
{
    *out = (struct store_sandbox){ 0 };
    row_ids(r, out);
    row_persistence(r, out);
    row_state(r, out);
    row_times(r, out);
}

void store_sandbox_rows(const PGresult *res, struct arena *a, struct store_sandboxes *out)
{
    *out = (struct store_sandboxes){ .count = (size_t)PQntuples(res), .total = -1 };
    out->rows = arena_zalloc(a, out->count * sizeof(*out->rows));
    for (size_t i = 0; i < out->count; i++) {
        struct store_row r = { .res = res, .a = a, .row = (int)i };
        store_sandbox_row(&r, &out->rows[i]);
    }
}

/* --- create and resume -------------------------------------------------------- */

/* What the two functions refuse with, and the sentence for it. */
static const struct {
    const char *outcome;
    const char *field; /* NULL: any */
    enum sbx_code code;
    const char *says;
} REFUSALS[] = {
    { "NOT_FOUND", "accountId", SBX_E_NOT_FOUND, "Account not found" },
    { "NOT_FOUND", "appId", SBX_E_NOT_FOUND, "App not found" },
    { "NOT_FOUND", "templateId", SBX_E_NOT_FOUND, "Sandbox template not found" },
    { "NOT_FOUND", "volumeName", SBX_E_NOT_FOUND, "Shared volume not found" },
    { "NOT_FOUND", NULL, SBX_E_NOT_FOUND, "Sandbox not found" },
    { "TEMPLATE_OTHER_APP", NULL, SBX_E_TEMPLATE_OTHER_APP,
      "The sandbox template belongs to another app" },
    { "TEMPLATE_DISABLED", NULL, SBX_E_TEMPLATE_DISABLED, "The sandbox template is disabled" },
    { "TEMPLATE_DEPRECATED", NULL, SBX_E_TEMPLATE_DEPRECATED,
      "The sandbox template is deprecated" },
    { "TEMPLATE_HAS_NO_REVISION", NULL, SBX_E_TEMPLATE_NO_REVISION,
      "The sandbox template has no revision yet" },
    { "REGION_UNKNOWN", NULL, SBX_E_REGION_UNKNOWN, "Unknown region" },
    { "REGION_FORBIDDEN", NULL, SBX_E_REGION_FORBIDDEN, "The account cannot use this region" },
    { "REGION_WITHOUT_SANDBOXES", NULL, SBX_E_REGION_NO_SANDBOXES,
      "The region does not have the Agent Sandbox add-on" },
    { "REGION_DISABLED", NULL, SBX_E_REGION_DISABLED, "The region is switched off" },
    { "INVALID_REQUEST", "volumeName", SBX_E_INVALID,
      "volumeName needs a persistence mode with a volume" },
    { "INVALID_REQUEST", "persistenceMode", SBX_E_INVALID,
      "persistence modes with a volume are not available on warm pools" },
    { "VOLUME_PENDING_PURGE", NULL, SBX_E_VOLUME_PENDING_PURGE,
      "The shared volume is pending purge" },
    { "NO_OBJECT_STORAGE_BACKEND", NULL, SBX_E_NO_STORAGE_BACKEND,
      "The account has no Object Storage backend in this region" },
    { "QUOTA_EXCEEDED", NULL, SBX_E_QUOTA,
      "The account has reached its quota of active sandboxes" },
    { "PERSONAL_RUNTIME", NULL, SBX_E_PERSONAL_RUNTIME,
      "Personal-authentication runtimes are managed by their owner's connection" },
    { "CONFLICT", NULL, SBX_E_CONFLICT, "Only a suspended sandbox can be resumed" },
};

static enum sbx_code refuse(const char *outcome, const char *field, struct sbx_err *err)
{
    for (size_t i = 0; i < COUNT_OF(REFUSALS); i++) {
        if (strcmp(REFUSALS[i].outcome, outcome) != 0 ||
            (REFUSALS[i].field && (!field || strcmp(REFUSALS[i].field, field) != 0)))
            continue;
        enum sbx_code code = err_set(err, REFUSALS[i].code, "%s", REFUSALS[i].says);
        if (sbx_code_http(code) == 400 && field)
            (void)str_copy(err->field, sizeof(err->field), field);
        return code;
    }
    return err_set(err, SBX_E_INTERNAL, "the schema gave an outcome that we do not know");
}

/* The texts of q are in's and the arena's. */
static void create_args(const struct store_sandbox_new *in, struct arena *a, struct store_args *q)
{
    unsigned char *digest = arena_zalloc(a, SHA256_LEN);

    sha256_of(in->idempotency_key, strlen(in->idempotency_key), digest);
    store_arg_text(q, in->sandbox_id);
    store_arg_text(q, in->account_id);
    store_arg_text(q, in->app_id);
    store_arg_text(q, in->template_id);
    store_arg_text(q, in->region);
    store_arg_text(q, in->profile);
    store_arg_text(q, in->owner_kind);
    store_arg_text(q, in->owner_id);
    store_arg_text(q, in->external_session_id);
    store_arg_text(q, in->caller_key);
    store_arg_bytes(q, digest, SHA256_LEN);
    store_arg_text(q, in->persistence_mode ? sandbox_persistence_name(in->persistence_mode) : NULL);
    store_arg_text(q, in->volume_name);
    store_arg_text(q, in->request_id);
    store_arg_bool(q, in->personal);
}

struct creation {
    const char *sandbox_id; /* ours */
    struct store_created *out;
};

static enum sbx_code read_created(PGresult *res, struct arena *a, void *arg, struct sbx_err *err)
{
    const struct creation *c = arg;
    struct store_created *out = c->out;
    struct store_row r = { .res = res, .a = a };
    const char *outcome = store_row_text(&r);
    const char *field = store_row_text(&r);

    out->quota_limit = store_row_int32(&r);
    out->quota_active = store_row_int32(&r);
    if (strcmp(outcome, "CREATED") != 0 && strcmp(outcome, "FOUND") != 0)
        return refuse(outcome, field, err);
    store_sandbox_row(&r, &out->sandbox);
    out->was_created = strcmp(out->sandbox.sandbox_id, c->sandbox_id) == 0;
    return SBX_OK;
}

enum sbx_code store_sandbox_create(struct store_conn *db, const struct store_sandbox_new *in,
                                   struct arena *a, struct store_created *out, struct sbx_err *err)
{
    struct creation c = { in->sandbox_id, out };
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    create_args(in, a, &q);
    enum sbx_code code = store_run_one(db, &S[SANDBOX_CREATE], &q, "outcome", &res, err);
    if (code == SBX_E_IDEMPOTENCY_UNAVAILABLE)
        return store_say(err, code, "Creating sandboxes is not possible now");
    return code == SBX_OK ? read_created(res, a, &c, err) : code;
}

struct store_later *store_sandbox_create_later(struct store_conn *db,
                                               const struct store_sandbox_new *in, struct arena *a,
                                               struct store_created *out)
{
    struct creation c = { in->sandbox_id, out };
    struct store_later *l = store_later_new(db, &S[SANDBOX_CREATE], a, read_created,
                                            arena_memdup(a, &c, sizeof(c)));

    l->order = in->account_id;
    create_args(in, a, &l->args);
    return l;
}

enum sbx_code store_sandbox_resume(struct store_conn *db, const struct store_resume *in,
                                   struct arena *a, struct store_sandbox *out, bool *changed,
                                   int *quota_limit, int *quota_active, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, in->account_id);
    store_arg_text(&q, in->sandbox_id);
    store_arg_text(&q, in->actor);
    store_arg_text(&q, in->request_id);
    store_arg_text(&q, in->operation_id);
    store_arg_int(&q, in->deadline_in_ms);
    enum sbx_code code = store_run_one(db, &S[SANDBOX_RESUME], &q, "outcome", &res, err);
    if (code != SBX_OK)
        return code;
    struct store_row r = { .res = res, .a = a };
    const char *outcome = store_row_text(&r);
    (void)store_row_text(&r);
    *quota_limit = store_row_int32(&r);
    *quota_active = store_row_int32(&r);
    bool resumed = strcmp(outcome, "RESUMED") == 0;
    if (!resumed && strcmp(outcome, "UNCHANGED") != 0)
        return refuse(outcome, NULL, err);
    store_sandbox_row(&r, out);
    *changed = resumed;
    return SBX_OK;
}

/* --- read ---------------------------------------------------------------------- */

static enum sbx_code read_one(PGresult *res, struct arena *a, void *out, struct sbx_err *err)
{
    struct store_row r = { .res = res, .a = a };

    if (PQntuples(res) == 0)
        return err_set(err, SBX_E_NOT_FOUND, "Sandbox not found");
    store_sandbox_row(&r, out);
    return SBX_OK;
}

enum sbx_code store_sandbox_get(struct store_conn *db, const char *account_id,
                                const char *sandbox_id, struct arena *a, struct store_sandbox *out,
                                struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, sandbox_id);
    if (account_id)
        store_arg_text(&q, account_id);
    enum sbx_code code =
        store_run(db, &S[account_id ? SANDBOX_GET : SANDBOX_GET_ANY], &q, &res, err);

    return code == SBX_OK ? read_one(res, a, out, err) : code;
}

struct store_later *store_sandbox_get_later(struct store_conn *db, const char *account_id,
                                            const char *sandbox_id, struct arena *a,
                                            struct store_sandbox *out)
{
    struct store_later *l = store_later_new(db, &S[SANDBOX_GET], a, read_one, out);

    store_arg_text(&l->args, sandbox_id);
    store_arg_text(&l->args, account_id);
    return l;
}

static void list_args(const struct store_sandbox_filter *f, struct store_args *q)
{
    if (f->account_id) {
        store_arg_text(q, f->account_id);
        store_arg_text(q, f->app_id);
    }
    store_arg_statuses(q, f->statuses);
}

static enum sbx_code list_total(struct store_conn *db, const struct store_sandbox_filter *f,
                                bool live, int64_t *total, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    bool all = f->account_id && !f->app_id && f->statuses == SANDBOX_SET_ALL;

    if (all)
        store_arg_text(&q, f->account_id);
    else
        list_args(f, &q);
    enum sbx_code code = store_run(db,
                                   &S[all              ? SANDBOX_TOTAL
                                      : !f->account_id ? SANDBOX_COUNT_ANY
                                      : live           ? SANDBOX_COUNT_LIVE
                                                       : SANDBOX_COUNT],
                                   &q, &res, err);
    if (code != SBX_OK)
        return code;
    struct store_row r = { .res = res };
    *total = PQntuples(res) > 0 ? store_row_int(&r) : 0; /* no such account: none */
    return SBX_OK;
}

enum sbx_code store_sandbox_list(struct store_conn *db, const struct store_sandbox_filter *f,
                                 struct arena *a, struct store_sandboxes *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };
    bool live = !sandbox_status_in(SANDBOX_TERMINATED, f->statuses);
    int64_t total = -1;
    enum sbx_code code = SBX_OK;

    assert(f->limit >= 1 && f->limit <= STORE_LIST_MAX && f->offset >= 0);
    if (f->want_total)
        code = list_total(db, f, live, &total, err);
    if (code != SBX_OK)
        return code;
    list_args(f, &q);
    if (f->account_id)
        store_arg_null_int(&q, f->before_id ? f->before_ms : 0);
    store_arg_text(&q, f->before_id);
    store_arg_int(&q, f->limit + 1);
    store_arg_int(&q, f->before_id ? 0 : f->offset);
    code = store_run(db,
                     &S[!f->account_id ? SANDBOX_LIST_ANY
                        : live         ? SANDBOX_LIST_LIVE
                                       : SANDBOX_LIST],
                     &q, &res, err);
    if (code != SBX_OK)
        return code;
    store_sandbox_rows(res, a, out);
    out->more = out->count > (size_t)f->limit;
    if (out->more)
        out->count = (size_t)f->limit;
    out->total = total;
    return SBX_OK;
}

enum sbx_code store_sandbox_list_ids(struct store_conn *db, const char *const *ids, size_t count,
                                     struct arena *a, struct store_sandboxes *out,
                                     struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    SCOPED_BUF struct buf list = BUF_INIT(STORE_LIST_MAX * 64);
    struct store_args q = { 0 };

    assert(count <= STORE_LIST_MAX);
    for (size_t i = 0; i < count; i++)
        (void)buf_printf(&list, "%s%s", i ? "," : "", ids[i]);
    if (list.full)
        return err_set(err, SBX_E_INVALID, "ids are 26 characters long");
    store_arg_text(&q, list.data ? list.data : "");
    enum sbx_code code = store_run(db, &S[SANDBOX_LIST_IDS], &q, &res, err);
    if (code == SBX_OK)
        store_sandbox_rows(res, a, out);
    return code;
}

enum sbx_code store_sandbox_list_held(struct store_conn *db, const char *region, const char *after,
                                      int limit, struct arena *a, struct store_sandboxes *out,
                                      struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };
    size_t count;
    bool more;

    store_arg_text(&q, region);
    enum sbx_code code =
        store_page(db, &S[SANDBOX_LIST_HELD], &q, after, limit, &res, &count, &more, err);
    if (code != SBX_OK)
        return code;
    store_sandbox_rows(res, a, out);
    out->count = count;
    out->more = more;
    return SBX_OK;
}

enum sbx_code store_sandbox_count_active(struct store_conn *db, const char *account_id,
                                         int64_t *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, account_id);
    enum sbx_code code = store_run_one(db, &S[SANDBOX_ACTIVE], &q, "count", &res, err);
    if (code != SBX_OK)
        return code;
    struct store_row r = { .res = res };
    *out = store_row_int(&r);
    return SBX_OK;
}
