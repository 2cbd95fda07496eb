#include <string.h>

#include "base/str.h"
#include "sim/sim.h"

/* The store stand-in: the semantics of src/store's statements (moves.c, leases.c,
 * executions.c), in memory.  A call may fail before or after its effect, as one over a
 * connection that breaks does. */

const char *const SIM_REGION_NAMES[SIM_REGIONS] = { "here", "there" };

int sim_region_index(const char *name)
{
    return name[0] == 't';
}

struct store_conn *sim_conn_of(struct sim *s, int plane)
{
    struct sim_conn *c = &s->conns[plane < 0 ? SIM_PLANES : plane];

    c->sim = s;
    c->plane = plane;
    return (struct store_conn *)(void *)c;
}

static struct sim *sim_of(struct store_conn *db, int *plane)
{
    struct sim_conn *c = (struct sim_conn *)(void *)db;

    *plane = c->plane;
    return c->sim;
}

int64_t sim_db_now(const struct sim *s)
{
    /* Never 0: 0 means "not set" in a row. */
    return s->now + s->db_shift + 1000;
}

enum sim_effect sim_enter(struct store_conn *db, struct sim **out)
{
    int plane;
    struct sim *s = sim_of(db, &plane);
    struct sim_plane *p = plane >= 0 ? &s->planes[plane] : NULL;

    *out = s;
    s->steps++;
    if (p && p->killed)
        return SIM_FAILS_BEFORE;
    if (p && p->kill_countdown > 0 && --p->kill_countdown == 0) {
        p->killed = true;
        sim_trace(s, "plane %d is killed", plane);
        return sim_below(s, 2) ? SIM_FAILS_AFTER : SIM_FAILS_BEFORE;
    }
    if (s->database_down || (p && p->cut))
        return SIM_FAILS_BEFORE;
    if (sim_chance(s, s->weather.unknown)) {
        sim_note_fault(s);
        return sim_below(s, 2) ? SIM_FAILS_AFTER : SIM_FAILS_BEFORE;
    }
    return SIM_WORKS;
}

int sim_id_number(const char *id)
{
    int n = 0;

    for (int i = 0; i < 6; i++)
        n = n * 10 + (id[i] - '0');
    return n;
}

struct sim_row *sim_row_of(struct sim *s, const char *id)
{
    int at = s->row_at[sim_id_number(id)];

    return at > 0 ? &s->rows[at - 1] : NULL;
}

struct sim_row *sim_row_new(struct sim *s, const char *id)
{
    struct sim_row *r;

    if (s->row_count == SIM_ROWS)
        return NULL;
    r = &s->rows[s->row_count++];
    memset(r, 0, sizeof(*r));
    (void)str_copy(r->id, ID_SIZE, id);
    s->row_at[sim_id_number(id)] = (int16_t)s->row_count;
    r->status = SANDBOX_REQUESTED;
    r->holds = true;
    r->since = s->now;
    r->next_action = sim_db_now(s);
    sim_trace(s, "%s REQUESTED", r->id);
    return r;
}

int sim_active(const struct sim *s, int account)
{
    int n = 0;

    for (int i = 0; i < s->row_count; i++)
        n += s->rows[i].account == account && s->rows[i].holds ? 1 : 0;
    return n;
}

void sim_row_give(const struct sim *s, const struct sim_row *r, struct arena *a,
                  struct store_sandbox *out)
{
    *out = (struct store_sandbox){
        .sandbox_id = arena_strdup(a, r->id),
        .account_id = "account",
        .revision_id = "revision",
        .region = SIM_REGION_NAMES[r->region],
        .personal = r->personal,
        .warm_id = r->warm ? arena_strdup(a, s->warms[r->warm - 1].id) : NULL,
        .persistence.restore_failed = r->restore_failed,
        .persistence_mode = r->persistence,
        .status = r->status,
        .previous = r->previous,
        .desired = r->desired,
        .generation = r->generation,
        .fault = r->fault,
        .end_reason = r->end_reason,
        .running = r->running,
        .holds_compute = r->holds,
        .operation_id = r->operation_id[0] ? arena_strdup(a, r->operation_id) : NULL,
        .idle_timeout_s = 60,
        .suspended_retention_s = 100,
        .last_active_at_ms = r->last_active,
        .suspended_at_ms = r->suspended,
        .failed_at_ms = r->failed,
        .expires_at_ms = r->expires,
        .deadline_at_ms = r->deadline,
        .next_action_at_ms = r->next_action,
        .lease_owner = r->lease_owner[0] ? arena_strdup(a, r->lease_owner) : NULL,
        .lease_until_ms = r->lease_until,
        .attempt = r->attempt,
        .now_ms = sim_db_now(s),
    };
}

/* sandboxd.due_at */
static int64_t due_at(const struct sim *s, const struct sim_row *r)
{
    int64_t due = 0, now = sim_db_now(s);

    if (r->desired == SANDBOX_TERMINATED && r->status != SANDBOX_TERMINATED)
        return now;
    switch (r->status) {
    case SANDBOX_READY:
        due = r->personal ? 0 : r->last_active + 60000;
        break;
    case SANDBOX_BUSY:
        due = r->personal ? 0 : now + 60000;
        break;
    case SANDBOX_SUSPENDED:
        due = r->suspended + 100000;
        break;
    case SANDBOX_FAILED:
    case SANDBOX_TERMINATING:
        return now;
    case SANDBOX_TERMINATED:
        return 0;
    case SANDBOX_REQUESTED:
    case SANDBOX_ALLOCATING:
    case SANDBOX_STARTING:
    case SANDBOX_SUSPENDING:
    case SANDBOX_RESUMING:
    case SANDBOX_STATUS_NONE:
    case SANDBOX_STATUS_COUNT:
        due = r->deadline;
        break;
    }
    return due == 0 || r->expires < due ? r->expires : due;
}

/* sandboxd.next_action */
static int64_t next_action(const struct sim *s, const struct sim_row *r, enum store_next mode,
                           int64_t in_ms)
{
    int64_t due = due_at(s, r), now = sim_db_now(s);

    if (mode == STORE_NEXT_NEVER)
        return 0;
    if (mode == STORE_NEXT_TIMERS)
        return due > now ? due : now;
    return due > now && due < now + in_ms ? due : now + in_ms;
}

/* --- moves ------------------------------------------------------------- */

static bool guard_holds(const struct sim *s, const struct sim_row *r, enum store_guard guard)
{
    int64_t now = sim_db_now(s);

    switch (guard) {
    case STORE_GUARD_NONE:
        return true;
    case STORE_GUARD_IDLE:
        return !r->personal && r->running == 0 && r->last_active + 60000 <= now;
    case STORE_GUARD_EXPIRED:
        return r->expires <= now;
    case STORE_GUARD_RETENTION:
        return r->suspended + 100000 <= now;
    case STORE_GUARD_DEADLINE:
        return r->deadline != 0 && r->deadline <= now;
    }
    return false;
}

static void drop_executions(struct sim *s, struct sim_row *r)
{
    for (int i = 0; i < SIM_EXECUTIONS; i++) {
        if (s->executions[i].used && s->executions[i].row == (int)(r - s->rows))
            s->executions[i].used = false;
    }
    r->running = 0;
}

/* The status' own effects. */
static void land(struct sim *s, struct sim_row *r, enum sandbox_status to)
{
    int64_t now = sim_db_now(s);
    bool came_up = sandbox_status_in(r->previous, SANDBOX_SET_COMING_UP);

    if (sandbox_status_in(to, SANDBOX_SET_RUNNING) && came_up)
        r->last_active = now;
    if (sandbox_status_in(to, SANDBOX_SET_RUNNING))
        r->came_up = true;
    if (to == SANDBOX_SUSPENDED)
        r->suspended = now;
    if (to == SANDBOX_FAILED)
        r->failed = now;
    if (to == SANDBOX_SUSPENDED || to == SANDBOX_TERMINATED)
        drop_executions(s, r);
}

static bool apply(struct sim *s, const struct store_move *m)
{
    struct sim_row *r = sim_row_of(s, m->sandbox_id);
    enum sandbox_status from, to = m->to;
    int64_t generation, now = sim_db_now(s);

    if (!r || !sandbox_status_in(r->status, m->from) || !guard_holds(s, r, m->guard))
        return false;
    if (r->generation != m->generation && s->mutation != SIM_NO_GENERATION_GUARD)
        return false;
    from = r->status;
    generation = r->generation;
    if (sandbox_status_in(to, SANDBOX_SET_RUNNING))
        to = r->running > 0 ? SANDBOX_BUSY : SANDBOX_READY;
    if (to != from) {
        r->previous = from;
        r->status = to;
        r->generation++;
        land(s, r, to);
    }
    if (m->desired_op != STORE_KEEP &&
        !(r->desired == SANDBOX_TERMINATED && m->to != SANDBOX_TERMINATED))
        r->desired = m->desired_op == STORE_SET ? m->desired : SANDBOX_STATUS_NONE;
    if (m->fault)
        r->fault = m->fault;
    if (m->end_reason && !r->end_reason)
        r->end_reason = m->end_reason;
    if (to == SANDBOX_SUSPENDED || to == SANDBOX_TERMINATED || m->compute == STORE_CLEAR)
        r->holds = false;
    else if (m->compute == STORE_SET)
        r->holds = true;
    if (m->persistence)
        r->restore_failed = m->persistence->restore_failed;
    (void)str_copy(r->operation_id, ID_SIZE, m->operation_id ? m->operation_id : "");
    r->attempt = 0;
    r->deadline = m->deadline_in_ms > 0 ? now + m->deadline_in_ms : 0;
    (void)str_copy(r->lease_owner, ID_SIZE, m->lease_owner ? m->lease_owner : "");
    r->lease_until = m->lease_owner ? now + m->lease_ms : 0;
    r->next_action = m->lease_owner ? r->lease_until : next_action(s, r, m->next, m->next_in_ms);
    sim_trace(s, "%s %s -> %s gen %lld by %s (%s)", r->id, sandbox_status_name(from),
              sandbox_status_name(to), (long long)r->generation, m->actor, m->cause);
    sim_check_move(s, r, from, generation, m->cause);
    return true;
}

static enum sbx_code moves(struct store_conn *db, const struct store_move *list, size_t count,
                           bool *moved, struct arena *a, struct store_sandbox *out,
                           struct sbx_err *err)
{
    ENTER(db);
    for (size_t i = 0; i < count; i++) {
        moved[i] = apply(s, &list[i]);
        if (moved[i] && out)
            sim_row_give(s, sim_row_of(s, list[i].sandbox_id), a, &out[i]);
    }
    LEAVE();
}

static enum sbx_code move(struct store_conn *db, const struct store_move *m, struct arena *a,
                          struct store_sandbox *out, struct sbx_err *err)
{
    ENTER(db);
    if (!apply(s, m))
        return err_set(err, SBX_E_CHANGING, "not any more");
    if (out)
        sim_row_give(s, sim_row_of(s, m->sandbox_id), a, out);
    LEAVE();
}

static enum sbx_code moves_atomic(struct store_conn *db, const struct store_move *list,
                                  size_t count, struct arena *a, struct store_sandbox *last,
                                  struct sbx_err *err)
{
    ENTER(db);
    for (size_t i = 0; i < count; i++) {
        /* Only the first can fail: the ones after it are made for what it leaves. */
        if (!apply(s, &list[i])) {
            if (i > 0)
                sim_break(s, "half of an atomic pair of moves failed");
            return err_set(err, SBX_E_CHANGING, "not any more");
        }
    }
    sim_row_give(s, sim_row_of(s, list[0].sandbox_id), a, last);
    LEAVE();
}

static enum sbx_code desire(struct store_conn *db, const char *id, uint32_t from,
                            enum sandbox_status desired, enum sandbox_end_reason end_reason,
                            struct sbx_err *err)
{
    struct sim_row *r;

    ENTER(db);
    r = sim_row_of(s, id);
    if (!r || !sandbox_status_in(r->status, from))
        return err_set(err, SBX_E_CHANGING, "not any more");
    r->desired = desired;
    if (!r->end_reason)
        r->end_reason = end_reason;
    if (r->lease_until <= sim_db_now(s))
        r->next_action = sim_db_now(s);
    LEAVE();
}

/* --- reading ----------------------------------------------------------- */

static enum sbx_code get(struct store_conn *db, const char *account, const char *id,
                         struct arena *a, struct store_sandbox *out, struct sbx_err *err)
{
    struct sim_row *r;

    (void)account;
    ENTER(db);
    r = sim_row_of(s, id);
    if (!r)
        return err_set(err, SBX_E_NOT_FOUND, "no such sandbox");
    sim_row_give(s, r, a, out);
    LEAVE();
}

/* The ids of all rows, in order. */
static int sorted(const struct sim *s, const struct sim_row **out)
{
    int n = 0;

    for (int i = 0; i < s->row_count; i++) {
        int at = n++;

        while (at > 0 && strcmp(out[at - 1]->id, s->rows[i].id) > 0) {
            out[at] = out[at - 1];
            at--;
        }
        out[at] = &s->rows[i];
    }
    return n;
}

static enum sbx_code list_ids(struct store_conn *db, const char *const *ids, size_t count,
                              struct arena *a, struct store_sandboxes *out, struct sbx_err *err)
{
    const struct sim_row *all[SIM_ROWS];
    int n;

    ENTER(db);
    n = sorted(s, all);
    out->rows = arena_zalloc(a, (size_t)(n + 1) * sizeof(*out->rows));
    out->count = 0;
    for (int i = 0; i < n; i++) {
        bool wanted = false;

        for (size_t k = 0; k < count && !wanted; k++)
            wanted = strcmp(ids[k], all[i]->id) == 0;
        if (wanted)
            sim_row_give(s, all[i], a, &out->rows[out->count++]);
    }
    LEAVE();
}

static enum sbx_code list_held(struct store_conn *db, const char *region, const char *after,
                               int limit, struct arena *a, struct store_sandboxes *out,
                               struct sbx_err *err)
{
    const struct sim_row *all[SIM_ROWS];
    int n;

    ENTER(db);
    n = sorted(s, all);
    out->rows = arena_zalloc(a, (size_t)(n + 1) * sizeof(*out->rows));
    out->count = 0;
    for (int i = 0; i < n && (int)out->count < limit; i++) {
        if (all[i]->holds && all[i]->region == sim_region_index(region) &&
            (!after || strcmp(all[i]->id, after) > 0))
            sim_row_give(s, all[i], a, &out->rows[out->count++]);
    }
    LEAVE();
}

/* --- leases ------------------------------------------------------------ */

static void lease(const struct sim *s, struct sim_row *r, const char *owner, int64_t ms)
{
    (void)str_copy(r->lease_owner, ID_SIZE, owner);
    r->lease_until = sim_db_now(s) + ms;
    r->next_action = r->lease_until;
    r->attempt++;
}

static enum sbx_code claim_due(struct store_conn *db, const char *owner, int64_t lease_ms,
                               int limit, struct arena *a, struct store_sandboxes *out,
                               struct sbx_err *err)
{
    ENTER(db);
    out->rows = arena_zalloc(a, (SIM_ROWS + 1) * sizeof(*out->rows));
    out->count = 0;
    while ((int)out->count < limit) {
        struct sim_row *first = NULL;

        for (int i = 0; i < s->row_count; i++) {
            struct sim_row *r = &s->rows[i];

            if (r->next_action != 0 && r->next_action <= sim_db_now(s) &&
                (!first || r->next_action < first->next_action))
                first = r;
        }
        if (!first)
            break;
        lease(s, first, owner, lease_ms);
        sim_row_give(s, first, a, &out->rows[out->count++]);
    }
    LEAVE();
}

static enum sbx_code claim_one(struct store_conn *db, const char *owner, int64_t lease_ms,
                               const char *id, struct arena *a, struct store_sandbox *out,
                               struct sbx_err *err)
{
    struct sim_row *r;

    ENTER(db);
    r = sim_row_of(s, id);
    if (!r || r->next_action == 0)
        return err_set(err, SBX_E_NOT_FOUND, "ended");
    if (r->lease_owner[0] && strcmp(r->lease_owner, owner) != 0 && r->lease_until > sim_db_now(s))
        return err_set(err, SBX_E_BUSY, "another control plane is at work");
    lease(s, r, owner, lease_ms);
    sim_row_give(s, r, a, out);
    LEAVE();
}

static enum sbx_code release(struct store_conn *db, const struct store_release *rel, size_t count,
                             struct sbx_err *err)
{
    ENTER(db);
    for (size_t i = 0; i < count; i++) {
        struct sim_row *r = sim_row_of(s, rel[i].sandbox_id);

        if (!r || r->generation != rel[i].generation || strcmp(r->lease_owner, rel[i].owner) != 0)
            continue;
        r->lease_owner[0] = '\0';
        r->lease_until = 0;
        if (!rel[i].keep_attempt)
            r->attempt = 0;
        r->next_action = next_action(s, r, rel[i].next, rel[i].next_in_ms);
    }
    LEAVE();
}

static enum sbx_code renew(struct store_conn *db, const char *owner, int64_t lease_ms, int *renewed,
                           struct sbx_err *err)
{
    ENTER(db);
    *renewed = 0;
    for (int i = 0; i < s->row_count; i++) {
        struct sim_row *r = &s->rows[i];

        if (strcmp(r->lease_owner, owner) == 0 && r->lease_until > sim_db_now(s)) {
            r->lease_until = r->next_action = sim_db_now(s) + lease_ms;
            ++*renewed;
        }
    }
    LEAVE();
}

static enum sbx_code next_due(struct store_conn *db, int64_t *in_ms, struct sbx_err *err)
{
    int64_t first = 0, now;

    ENTER(db);
    now = sim_db_now(s);
    for (int i = 0; i < s->row_count; i++) {
        if (s->rows[i].next_action != 0 && (first == 0 || s->rows[i].next_action < first))
            first = s->rows[i].next_action;
    }
    *in_ms = first == 0 ? -1 : first > now ? first - now : 0;
    LEAVE();
}

static enum sbx_code poke_region(struct store_conn *db, const char *region, int *poked,
                                 struct sbx_err *err)
{
    ENTER(db);
    *poked = 0;
    for (int i = 0; i < s->row_count; i++) {
        if (s->rows[i].holds && s->rows[i].region == sim_region_index(region) &&
            s->rows[i].lease_until <= sim_db_now(s)) {
            s->rows[i].next_action = sim_db_now(s);
            ++*poked;
        }
    }
    LEAVE();
}

/* --- control planes ---------------------------------------------------- */

static struct sim_instance *instance_of(struct sim *s, const char *id)
{
    int at = s->instance_at[sim_id_number(id)];

    return at > 0 ? &s->instances[at - 1] : NULL;
}

static enum sbx_code beat(struct store_conn *db, const char *instance, struct sbx_err *err)
{
    struct sim_instance *i;

    ENTER(db);
    i = instance_of(s, instance);
    if (!i) {
        i = &s->instances[s->instance_count++];
        (void)str_copy(i->id, ID_SIZE, instance);
        s->instance_at[sim_id_number(instance)] = (int16_t)s->instance_count;
    }
    i->beat = sim_db_now(s);
    LEAVE();
}

static bool is_stale(struct sim *s, const char *instance, int64_t stale_ms)
{
    const struct sim_instance *i = instance_of(s, instance);

    return !i || i->beat < sim_db_now(s) - stale_ms;
}

static enum sbx_code reap(struct store_conn *db, int64_t stale_ms, int *freed, struct sbx_err *err)
{
    ENTER(db);
    *freed = 0;
    for (int i = 0; i < s->row_count; i++) {
        struct sim_row *r = &s->rows[i];

        if (r->lease_owner[0] && is_stale(s, r->lease_owner, stale_ms)) {
            r->lease_owner[0] = '\0';
            r->lease_until = 0;
            r->next_action = sim_db_now(s);
            ++*freed;
        }
    }
    LEAVE();
}

/* --- executions -------------------------------------------------------- */

enum sbx_code sim_execution_begin(struct sim *s, struct sim_row *r, int plane,
                                  char execution_id[ID_SIZE])
{
    struct sim_execution *e = NULL;

    if (s->database_down)
        return SBX_E_UNAVAILABLE;
    for (int i = 0; i < SIM_EXECUTIONS && !e; i++) {
        if (!s->executions[i].used)
            e = &s->executions[i];
    }
    if (!e || !sandbox_status_in(r->status, SANDBOX_SET_RUNNING))
        return SBX_E_SANDBOX_NOT_READY;
    sim_id(s, execution_id);
    memset(e, 0, sizeof(*e));
    e->used = true;
    e->row = (int)(r - s->rows);
    (void)str_copy(e->id, ID_SIZE, execution_id);
    e->plane = plane;
    e->life = s->planes[plane].life;
    (void)str_copy(e->instance, ID_SIZE, s->planes[plane].instance);
    e->deadline = sim_db_now(s) + 10000;
    r->running++;
    r->last_active = sim_db_now(s);
    if (r->status == SANDBOX_READY) {
        r->previous = SANDBOX_READY;
        r->status = SANDBOX_BUSY;
        r->generation++;
        sim_check_move(s, r, SANDBOX_READY, r->generation - 1, "EXEC");
    }
    return SBX_OK;
}

static enum sbx_code execution_end(struct store_conn *db, const char *id, bool *was_there,
                                   struct sbx_err *err)
{
    ENTER(db);
    if (was_there)
        *was_there = false;
    for (int i = 0; i < SIM_EXECUTIONS; i++) {
        struct sim_execution *e = &s->executions[i];
        struct sim_row *r = &s->rows[e->row];

        if (!e->used || strcmp(e->id, id) != 0)
            continue;
        e->used = false;
        r->running--;
        if (r->status == SANDBOX_BUSY)
            r->last_active = sim_db_now(s);
        if (r->status == SANDBOX_BUSY && r->running == 0) {
            r->previous = SANDBOX_BUSY;
            r->status = SANDBOX_READY;
            r->generation++;
            sim_check_move(s, r, SANDBOX_BUSY, r->generation - 1, "EXEC_END");
        }
        if (was_there)
            *was_there = true;
    }
    LEAVE();
}

static enum sbx_code execution_claim_stale(struct store_conn *db, const char *instance,
                                           int64_t stale_ms, int64_t grace_ms, int limit,
                                           struct arena *a, struct store_executions *out,
                                           struct sbx_err *err)
{
    ENTER(db);
    out->rows = arena_zalloc(a, SIM_EXECUTIONS * sizeof(*out->rows));
    out->count = 0;
    for (int i = 0; i < SIM_EXECUTIONS && (int)out->count < limit; i++) {
        struct sim_execution *e = &s->executions[i];

        if (!e->used ||
            !(e->deadline < sim_db_now(s) - grace_ms ||
              (strcmp(e->instance, instance) != 0 && is_stale(s, e->instance, stale_ms))))
            continue;
        (void)str_copy(e->instance, ID_SIZE, instance);
        if (e->deadline < sim_db_now(s))
            e->deadline = sim_db_now(s);
        out->rows[out->count++] = (struct store_execution){
            .execution_id = arena_strdup(a, e->id),
            .sandbox_id = arena_strdup(a, s->rows[e->row].id),
        };
    }
    LEAVE();
}

/* --- creates and resumes ----------------------------------------------- */

/* The look-up by key and the count. *existing: index of the row that the key names, -1: none. */
enum sbx_code sim_create_check(struct sim *s, int account, int key, int *existing)
{
    *existing = -1;
    if (s->database_down)
        return SBX_E_UNAVAILABLE;
    for (int i = 0; i < s->row_count; i++) {
        if (s->rows[i].account == account && s->rows[i].key == key)
            *existing = i;
    }
    if (*existing >= 0)
        return SBX_OK;
    return sim_active(s, account) >= s->quota ? SBX_E_QUOTA : SBX_OK;
}

enum sbx_code sim_create_insert(struct sim *s, int account, int key, bool check_quota)
{
    char id[ID_SIZE];
    struct sim_row *r;
    int existing;
    enum sbx_code code = sim_create_check(s, account, key, &existing);

    if (code == SBX_E_QUOTA && !check_quota)
        code = SBX_OK;
    if (code || existing >= 0)
        return code;
    sim_id(s, id);
    r = sim_row_new(s, id);
    if (!r)
        return SBX_E_QUOTA;
    r->account = account;
    r->key = key;
    r->region = sim_below(s, 3) == 0;
    r->revision = s->revision;
    r->persistence = s->weather.pool || sim_below(s, 4) == 0 ? SANDBOX_PERSISTENCE_EPHEMERAL
                                                             : SANDBOX_PERSISTENCE_SNAPSHOT;
    r->expires = sim_db_now(s) + (sim_below(s, 4) ? 400000 : 1000 + sim_below(s, 60000));
    if (r->persistence != SANDBOX_PERSISTENCE_EPHEMERAL && !sim_volume_take(s, r)) {
        r->persistence = SANDBOX_PERSISTENCE_EPHEMERAL;
    } else if (s->weather.pool) {
        sim_warm_take(s, r);
    }
    return SBX_OK;
}

enum sbx_code sim_resume(struct sim *s, struct sim_row *r)
{
    if (s->database_down)
        return SBX_E_UNAVAILABLE;
    if (r->status != SANDBOX_SUSPENDED || r->desired == SANDBOX_TERMINATED)
        return SBX_E_CONFLICT;
    if (sim_active(s, r->account) >= s->quota)
        return SBX_E_QUOTA;
    r->previous = r->status;
    r->status = SANDBOX_RESUMING;
    r->desired = SANDBOX_READY;
    r->generation++;
    r->holds = true;
    r->lease_owner[0] = '\0';
    r->lease_until = 0;
    r->attempt = 0;
    sim_id(s, r->operation_id);
    r->deadline = sim_db_now(s) + s->times.resuming_s * 1000;
    r->next_action = sim_db_now(s);
    r->acknowledged = false;
    sim_trace(s, "%s SUSPENDED -> RESUMING gen %lld by a client", r->id, (long long)r->generation);
    sim_check_move(s, r, SANDBOX_SUSPENDED, r->generation - 1, "RESUME");
    return SBX_OK;
}

/* --- the tables -------------------------------------------------------- */

const struct reconcile_store_ops SIM_STORE = {
    .claim_due = claim_due,
    .claim_one = claim_one,
    .moves = moves,
    .release = release,
    .desire = desire,
    .list_ids = list_ids,
    .list_held = list_held,
    .next_due = next_due,
    .poke_region = poke_region,
    .renew = renew,
    .beat = beat,
    .reap = reap,
    .execution_claim_stale = execution_claim_stale,
    .execution_end = execution_end,
    .warm_pools = sim_warm_pools,
    .warm_add = sim_warm_add,
    .warm_set = sim_warm_set,
    .warm_drain = sim_warm_drain,
    .warm_claim_drain = sim_warm_claim_drain,
    .warm_remove = sim_warm_remove,
    .warm_list = sim_warm_list,
    .claim_purge = sim_claim_purge,
    .purged = sim_purged,
};

const struct reconcile_ask_ops SIM_ASK = {
    .get = get,
    .move = move,
    .moves_atomic = moves_atomic,
    .desire = desire,
};
