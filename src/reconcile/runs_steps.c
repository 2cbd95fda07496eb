#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "reconcile/runs_internal.h"

enum {
    POLL_MS = 1000,    /* between two questions about a running entrypoint */
    WATCH_MS = 5000,   /* between two looks at a holder that only stands there */
    ENDING_MS = 300,   /* between two looks at a holder that is being ended */
    BLOCKED_MS = 5000, /* a holder that may not be inserted now (quota, owner) */
    ANSWER_MAX = 2 * RECONCILE_RUN_AUTH_MAX,
};

static enum sbx_code move(struct reconcile_runs *r, struct store_operation_move *m, struct arena *a,
                          struct sbx_err *err)
{
    struct store_operation after;

    return store_operation_move(r->db, m, a, &after, err);
}

static enum sbx_code wait(struct reconcile_runs *r, const struct store_operation *op, int64_t ms,
                          struct sbx_err *err)
{
    return store_operation_release(r->db, op->operation_id, r->owner, ms, err);
}

/* --- steps that need the database only ------------------------------------- */

static enum sbx_code prepare(struct reconcile_runs *r, const struct store_operation *op,
                             struct arena *a, struct sbx_err *err)
{
    SCOPED_SECRET struct secret *auth = NULL;
    struct store_connection k;
    struct store_operation_move m;
    struct sbx_err why = { 0 };
    bool good;

    if (store_connection_get(r->db, NULL, NULL, op->connection_id, a, &k, err) != SBX_OK)
        return err->code;
    good =
        k.auth_sealed.data != NULL && k.auth_generation == op->auth_generation &&
        seal_open(r->cfg.keys, store_seal_context(a, "connections.auth_sealed", op->connection_id),
                  k.auth_sealed.data, k.auth_sealed.len, &auth, &why) == SBX_OK;
    m = reconcile_run_move(op, good ? RUN_EVENT_PREPARED : RUN_EVENT_SIGN_IN_MISSING,
                           good ? 0 : -1);
    return move(r, &m, a, err);
}

static enum sbx_code allocate(struct reconcile_runs *r, const struct store_operation *op,
                              struct arena *a, struct sbx_err *err)
{
    struct store_created made = { 0 };
    struct sbx_err why = { 0 };
    bool owner_ok = false;
    struct store_sandbox_new in = {
        .sandbox_id = op->sandbox_id,
        .account_id = op->account_id,
        .app_id = op->app_id,
        .template_id = op->template_id,
        .region = op->region,
        .profile = sandbox_profile_name(SANDBOX_PROFILE_QUAVE_AUTOMATION_RUN),
        .owner_kind = sandbox_profile_owner_kind(SANDBOX_PROFILE_QUAVE_AUTOMATION_RUN),
        .owner_id = op->run_id,
        .caller_key = arena_printf(a, "user:%s", op->owner_user_id),
        .idempotency_key = arena_printf(a, "run:%s", op->operation_id),
        .persistence_mode = SANDBOX_PERSISTENCE_EPHEMERAL,
        .request_id = op->operation_id,
        .personal = true,
    };

    if (store_operation_owner_ok(r->db, op->operation_id, &owner_ok, err) != SBX_OK)
        return err->code;
    if (!owner_ok)
        return wait(r, op, BLOCKED_MS, err); /* the principal's next POST tells why */
    if (store_sandbox_create(r->db, &in, a, &made, &why) != SBX_OK) {
        if (why.code == SBX_E_UNAVAILABLE) {
            *err = why;
            return err->code;
        }
        log_err(LOG_WARN, "holder not allocated", &why, LOG_S("operationId", op->operation_id));
        return wait(r, op, BLOCKED_MS, err);
    }
    reconcile_wake(r->cfg.reconcile);
    return wait(r, op, ENDING_MS, err);
}

static enum sbx_code lose(struct reconcile_runs *r, const struct store_operation *op,
                          const struct store_sandbox *holder, struct arena *a, struct sbx_err *err)
{
    bool timed = holder != NULL && holder->end_reason == SANDBOX_END_HARD_LIFETIME;
    struct store_operation_move m =
        reconcile_run_move(op, timed ? RUN_EVENT_TIME_LIMIT : RUN_EVENT_HOLDER_LOST, 0);

    reconcile_run_give_up(op, &m);
    return move(r, &m, a, err);
}

static enum sbx_code end_holder(struct reconcile_runs *r, const struct store_operation *op,
                                struct arena *a, struct sbx_err *err)
{
    struct store_sandbox after;
    struct sbx_err why = { 0 };
    struct reconcile_ask ask = {
        .sandbox_id = op->sandbox_id,
        .actor = "runs",
        .request_id = op->operation_id,
        .end_reason = reconcile_run_end_reason(op->facts.cause),
    };

    if (reconcile_terminate(r->cfg.reconcile, r->db, &ask, a, &after, &why) != SBX_OK &&
        why.code != SBX_E_CHANGING) {
        *err = why;
        return err->code;
    }
    return wait(r, op, ENDING_MS, err);
}

static enum sbx_code release(struct reconcile_runs *r, const struct store_operation *op, bool clean,
                             struct arena *a, struct sbx_err *err)
{
    struct store_operation after;
    enum run_cause cause = run_teardown_cause(&op->facts, RUN_EVENT_HOLDER_GONE);

    if (store_operation_finish(r->db, op->operation_id, op->version, clean, cause, a, &after,
                               err) != SBX_OK)
        return err->code;
    log_info("personal run ended", LOG_S("operationId", op->operation_id),
             LOG_S("runId", op->run_id), LOG_S("cause", run_cause_name(cause)),
             LOG_B("authPreserved", clean));
    return SBX_OK;
}

/* --- steps that ask the region ---------------------------------------------- */

static enum sbx_code ask_region(struct reconcile_runs *r, const struct store_operation *op,
                                enum run_step step, json_t *body_taken, struct sbx_err *err)
{
    SCOPED_JSON json_t *body = body_taken;
    struct run_answer *answer = mem_zalloc(sizeof(*answer));

    answer->runs = r;
    answer->version = op->version;
    answer->step = step;
    (void)str_copy(answer->operation_id, sizeof(answer->operation_id), op->operation_id);
    r->calls++;
    if (gateway_client_process(r->cfg.gateways, op->region, op->sandbox_id, body,
                               r->cfg.process_secret, RECONCILE_RUN_CALL_S, reconcile_run_answered,
                               answer, err) != SBX_OK) {
        r->calls--;
        free(answer);
        return err->code;
    }
    return SBX_OK; /* the lease stands until the answer is written */
}

static enum sbx_code ask_status(struct reconcile_runs *r, const struct store_operation *op,
                                enum run_step step, struct sbx_err *err)
{
    return ask_region(r, op, step,
                      json_pack("{s:s, s:s}", "action", "status", "executionId", op->execution_id),
                      err);
}

static bool past_time_limit(const struct store_operation *op)
{
    return op->facts.execution == RUN_EXEC_RUNNING &&
           op->now_ms - op->started_at_ms > (int64_t)op->time_limit_s * 1000;
}

static enum sbx_code end_by_time(struct reconcile_runs *r, const struct store_operation *op,
                                 struct arena *a, struct sbx_err *err)
{
    struct store_operation_move m = reconcile_run_move(op, RUN_EVENT_TIME_LIMIT, 0);

    reconcile_run_give_up(op, &m);
    return move(r, &m, a, err);
}

enum sbx_code reconcile_run_step(struct reconcile_runs *r, const struct store_operation *op,
                                 struct arena *a, struct sbx_err *err)
{
    struct store_sandbox row;
    struct sbx_err why = { 0 };
    const struct store_sandbox *holder = &row;
    struct store_operation_move m;
    enum run_step step;

    if (store_sandbox_get(r->db, NULL, op->sandbox_id, a, &row, &why) != SBX_OK) {
        if (why.code != SBX_E_NOT_FOUND) {
            *err = why;
            return err->code;
        }
        holder = NULL;
    }
    if (op->facts.phase == RUN_READY && past_time_limit(op))
        return end_by_time(r, op, a, err);
    step = run_plan(&op->facts, reconcile_run_holder(holder));
    switch (step) {
    case RUN_STEP_PREPARE:
        return prepare(r, op, a, err);
    case RUN_STEP_ALLOCATE:
        return allocate(r, op, a, err);
    case RUN_STEP_MARK_READY:
        m = reconcile_run_move(op, RUN_EVENT_HOLDER_READY, WATCH_MS);
        return move(r, &m, a, err);
    case RUN_STEP_ASK_START:
    case RUN_STEP_POLL:
        return ask_status(r, op, step, err);
    case RUN_STEP_READ_BACK:
        return ask_region(r, op, step,
                          json_pack("{s:s, s:s, s:i}", "action", "read", "path", RECONCILE_RUN_AUTH,
                                    "maxBytes", RECONCILE_RUN_AUTH_MAX),
                          err);
    case RUN_STEP_TERMINATE:
        return end_holder(r, op, a, err);
    case RUN_STEP_RELEASE_CLEAN:
    case RUN_STEP_RELEASE_DESTRUCTIVE:
        return release(r, op, step == RUN_STEP_RELEASE_CLEAN, a, err);
    case RUN_STEP_LOSE:
        return lose(r, op, holder, a, err);
    case RUN_STEP_WAIT:
    case RUN_STEP_COUNT:
        break;
    }
    return wait(r, op,
                op->facts.phase == RUN_READY || op->facts.phase == RUN_QUARANTINED ? WATCH_MS
                                                                                   : ENDING_MS,
                err);
}

/* --- what the region answered ------------------------------------------------ */

/* The region knows the execution: running, or exited with a code that it witnessed. */
static enum sbx_code write_status(struct reconcile_runs *r, const struct store_operation *op,
                                  const json_t *status, struct arena *a, struct sbx_err *err)
{
    const json_t *code = json_object_get(status, "exitCode");
    struct store_operation_move m = { .operation_id = op->operation_id,
                                      .version = op->version,
                                      .next_in_ms = POLL_MS };

    if (json_get_bool(status, "running", false)) {
        if (op->facts.execution == RUN_EXEC_RUNNING)
            return wait(r, op, POLL_MS, err);
        m.set_execution = true;
        m.execution = RUN_EXEC_RUNNING;
        return move(r, &m, a, err);
    }
    if (!json_is_integer(code))
        return err_set(err, SBX_E_UNAVAILABLE,
                       "the region's word on the entrypoint could not be read");
    m.set_execution = true;
    m.execution = RUN_EXEC_EXITED;
    m.set_exited = true;
    m.set_exit_code = true;
    m.exit_code = (int)json_integer_value(code);
    m.cause = m.exit_code == 0 ? RUN_CAUSE_COMPLETED : RUN_CAUSE_FAILED;
    m.next_in_ms = 0;
    return move(r, &m, a, err);
}

static enum sbx_code settle_status(struct reconcile_runs *r, const struct store_operation *op,
                                   const struct run_answer *answer, struct arena *a,
                                   struct sbx_err *err)
{
    struct store_operation_move m;
    bool starting = op->facts.execution == RUN_EXEC_STARTING;

    if (json_get_bool(answer->json, "known", false))
        return write_status(r, op, answer->json, a, err);
    /* It never heard of the start, or lost what it knew: nobody can witness the end any more. */
    m = reconcile_run_move(op, starting ? RUN_EVENT_START_UNCERTAIN : RUN_EVENT_HOLDER_LOST,
                           starting ? -1 : 0);
    reconcile_run_give_up(op, &m);
    return move(r, &m, a, err);
}

static enum sbx_code settle_read_back(struct reconcile_runs *r, const struct store_operation *op,
                                      const struct run_answer *answer, struct arena *a,
                                      struct sbx_err *err)
{
    SCOPED_BUF struct buf plain = BUF_INIT(ANSWER_MAX);
    SCOPED_BUF struct buf sealed = BUF_INIT(RECONCILE_RUN_AUTH_MAX + SEAL_OVERHEAD_MAX + 64);
    struct store_bytes staged;
    struct store_operation_move m = { .operation_id = op->operation_id,
                                      .version = op->version,
                                      .next_in_ms = 0 };
    const char *content = json_get_str(answer->json, "content", NULL);
    bool good = answer->code == SBX_OK && content != NULL &&
                base64_decode(&plain, content, strlen(content)) && plain.len > 0 &&
                plain.len <= RECONCILE_RUN_AUTH_MAX && utf8_valid(plain.data, plain.len) &&
                memchr(plain.data, 0, plain.len) == NULL;

    if (good) {
        enum sbx_code code = seal_close(
            r->cfg.keys, store_seal_context(a, "connections.auth_sealed", op->connection_id),
            plain.data, plain.len, &sealed, err);

        secret_wipe(plain.data, plain.len);
        if (code != SBX_OK)
            return code;
        staged = (struct store_bytes){ (const unsigned char *)sealed.data, sealed.len };
        m.staged = &staged;
    } else {
        m.read_failed = true; /* the release will be destructive */
    }
    return move(r, &m, a, err);
}

enum sbx_code reconcile_run_settle(struct reconcile_runs *r, const struct run_answer *answer,
                                   struct arena *a, struct sbx_err *err)
{
    struct store_operation op;
    bool final = answer->code == SBX_OK ||
                 (answer->answered && !sbx_code_retry(answer->code)); /* else: ask again later */

    if (store_operation_get(r->db, answer->operation_id, a, &op, err) != SBX_OK)
        return err->code;
    if (op.version != answer->version)
        return SBX_OK; /* something else moved it; its next look decides anew */
    if (!final)
        return wait(r, &op, POLL_MS, err);
    if (answer->step == RUN_STEP_READ_BACK)
        return settle_read_back(r, &op, answer, a, err);
    if (answer->code != SBX_OK) { /* the region says that it has no such holder */
        reconcile_probe(r->cfg.reconcile, op.sandbox_id);
        return wait(r, &op, POLL_MS, err);
    }
    return settle_status(r, &op, answer, a, err);
}
