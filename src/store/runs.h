#ifndef STORE_RUNS_H
#define STORE_RUNS_H

/* Personal Warren runs (contract 6): installations, service principals, connections,
 * operations.  Sealed bytes come and go sealed: the store cannot read them. */

#include "base/hash.h"
#include "domain/run_state.h"
#include "store/store.h"

/* --- installations and principals -------------------------------------- */

struct store_installation {
    const char *installation_id, *account_id;
    const char *control_host;
    const char *callback_key; /* PEM */
    bool active;
    int64_t created_at_ms;
};
struct store_installations {
    struct store_installation *rows;
    size_t count;
};
/* SBX_E_NOT_FOUND: no such account. */
MUST_USE enum sbx_code store_installation_create(struct store_conn *db, const char *account_id,
                                                 const char *control_host, const char *callback_key,
                                                 struct arena *a, struct store_installation *out,
                                                 struct sbx_err *err);
MUST_USE enum sbx_code store_installation_get(struct store_conn *db, const char *installation_id,
                                              struct arena *a, struct store_installation *out,
                                              struct sbx_err *err);
MUST_USE enum sbx_code store_installation_list(struct store_conn *db, const char *account_id,
                                               struct arena *a, struct store_installations *out,
                                               struct sbx_err *err);
MUST_USE enum sbx_code store_installation_activate(struct store_conn *db,
                                                   const char *installation_id, bool active,
                                                   struct arena *a, struct store_installation *out,
                                                   struct sbx_err *err);

struct store_principal {
    const char *principal_id, *installation_id;
    const char *permissions; /* comma-separated, sorted */
    int64_t created_at_ms;
    struct store_installation installation; /* principal_get only */
};
struct store_principals {
    struct store_principal *rows;
    size_t count;
};
/* SBX_E_NOT_FOUND: no such installation. */
MUST_USE enum sbx_code store_principal_create(struct store_conn *db, const char *installation_id,
                                              const char *permissions, struct arena *a,
                                              struct store_principal *out, struct sbx_err *err);
/* With its installation: what an orchestrator request needs, in one query. */
MUST_USE enum sbx_code store_principal_get(struct store_conn *db, const char *principal_id,
                                           struct arena *a, struct store_principal *out,
                                           struct sbx_err *err);
MUST_USE enum sbx_code store_principal_list(struct store_conn *db, const char *installation_id,
                                            struct arena *a, struct store_principals *out,
                                            struct sbx_err *err);

/* --- connections -------------------------------------------------------- */

struct store_connection {
    const char *connection_id, *account_id, *installation_id, *owner_user_id;
    const char *app_id, *template_id, *region;
    const char *state;
    int auth_generation;
    struct store_bytes auth_sealed, github_sealed;
    int64_t created_at_ms, updated_at_ms;
    /* its unfinished operation, NULL id when there is none */
    const char *operation_id;
    enum run_phase operation_phase;
    const char *run_id;
    int64_t grant_expires_at_ms;
};
struct store_connections {
    struct store_connection *rows;
    size_t count;
};

struct store_connection_new {
    const char *account_id, *installation_id, *owner_user_id;
    const char *app_id, *template_id, *region;
};
/* One for an owner and an installation; again updates it.  SBX_E_NOT_FOUND: no such installation,
 * app or template in this account, or region; SBX_E_CONNECTION_BUSY: an operation is unfinished. */
MUST_USE enum sbx_code store_connection_save(struct store_conn *db,
                                             const struct store_connection_new *in, struct arena *a,
                                             struct store_connection *out, struct sbx_err *err);
/* SBX_E_NOT_FOUND: not in this account, or another owner's. owner NULL: any (reconciler). */
MUST_USE enum sbx_code store_connection_get(struct store_conn *db, const char *account_id,
                                            const char *owner_user_id, const char *connection_id,
                                            struct arena *a, struct store_connection *out,
                                            struct sbx_err *err);
MUST_USE enum sbx_code store_connection_list(struct store_conn *db, const char *account_id,
                                             const char *owner_user_id, struct arena *a,
                                             struct store_connections *out, struct sbx_err *err);
/* Generation + 1, state READY.  SBX_E_CONNECTION_BUSY while an operation is unfinished. */
MUST_USE enum sbx_code store_connection_sign_in(struct store_conn *db, const char *connection_id,
                                                const struct store_bytes *auth_sealed,
                                                const struct store_bytes *github_sealed,
                                                struct arena *a, struct store_connection *out,
                                                struct sbx_err *err);

/* --- operations --------------------------------------------------------- */

struct store_operation {
    const char *operation_id, *connection_id, *account_id, *installation_id, *owner_user_id;
    const char *app_id, *template_id, *region, *sandbox_id;
    struct run_facts facts;
    int64_t version;
    const char *run_id;
    int64_t grant_expires_at_ms, claimed_at_ms;
    const char *repository, *base_branch, *model;
    int token_limit, time_limit_s;
    struct store_bytes prompt_sealed, staged_sealed;
    int auth_generation;
    const char *execution_id;
    int64_t started_at_ms, exited_at_ms, terminated_at_ms;
    bool auth_preserved; /* when terminated */
    int attempt;
    int64_t now_ms;
};
struct store_operations {
    struct store_operation *rows;
    size_t count;
};

struct store_operation_new {
    const char *operation_id, *sandbox_id; /* made by the caller */
    const char *connection_id;
    int64_t generation; /* of the sign-in that was looked at */
    unsigned char grant_digest[SHA256_LEN];
    int64_t grant_life_s;
    const char *repository, *base_branch, *model;
    int token_limit, time_limit_s;
    struct store_bytes prompt_sealed;
};
/* Takes the fence: connection READY at that generation becomes FENCED.  SBX_E_CONNECTION_BUSY: an
 * operation is unfinished; SBX_E_CONFLICT: there is no such sign-in (any more). */
MUST_USE enum sbx_code store_operation_reserve(struct store_conn *db,
                                               const struct store_operation_new *in,
                                               struct arena *a, struct store_operation *out,
                                               struct sbx_err *err);

/* The operation that the grant may bind for this run id and installation, without binding it: one
 * that is bound to that very pair, or an unclaimed one whose grant lives by the database's clock.
 * SBX_E_GRANT_DENIED in every other case, one message. */
MUST_USE enum sbx_code store_operation_by_grant(struct store_conn *db, const char *installation_id,
                                                const unsigned char digest[SHA256_LEN],
                                                const char *run_id, struct arena *a,
                                                struct store_operation *out, struct sbx_err *err);
/* Binds in one statement, judging the grant's life again.  The same pair again gives the row.
 * SBX_E_GRANT_DENIED, also when the run id was used in this installation before. */
MUST_USE enum sbx_code store_operation_claim(struct store_conn *db, const char *installation_id,
                                             const char *principal_id,
                                             const unsigned char digest[SHA256_LEN],
                                             const char *run_id, struct arena *a,
                                             struct store_operation *out, struct sbx_err *err);
/* SBX_E_RUN_NOT_FOUND: unknown, or another installation's. */
MUST_USE enum sbx_code store_operation_by_run(struct store_conn *db, const char *installation_id,
                                              const char *run_id, struct arena *a,
                                              struct store_operation *out, struct sbx_err *err);
MUST_USE enum sbx_code store_operation_get(struct store_conn *db, const char *operation_id,
                                           struct arena *a, struct store_operation *out,
                                           struct sbx_err *err);
/* The operation of a holder's sandbox. SBX_E_NOT_FOUND. */
MUST_USE enum sbx_code store_operation_by_sandbox(struct store_conn *db, const char *sandbox_id,
                                                  struct arena *a, struct store_operation *out,
                                                  struct sbx_err *err);

/* Is the owner still a member of the operation's account with a writing role, the installation
 * active and the account entitled? */
MUST_USE enum sbx_code store_operation_owner_ok(struct store_conn *db, const char *operation_id,
                                                bool *out, struct sbx_err *err);

/* What one guarded change writes; happens when the row still has `version`.  Unset parts stay. */
struct store_operation_move {
    const char *operation_id;
    int64_t version;
    bool set_phase;
    enum run_phase phase;
    bool set_execution;
    enum run_execution execution;
    const char *execution_id;     /* NULL: keep */
    bool set_started, set_exited; /* to now */
    bool set_exit_code;
    int exit_code;
    enum run_cause cause;             /* NONE: keep */
    const struct store_bytes *staged; /* NULL: keep */
    bool read_failed, owner_reset;    /* true: set */
    int64_t next_in_ms;               /* when to look again; -1: never */
    const char *connection_state;     /* NULL: keep; in the same transaction */
};
/* SBX_E_CHANGING: another version by now; nothing was changed. */
MUST_USE enum sbx_code store_operation_move(struct store_conn *db,
                                            const struct store_operation_move *move,
                                            struct arena *a, struct store_operation *out,
                                            struct sbx_err *err);
/* The end: receipt, generation, fence, prompt, in one transaction.  clean: the staged sign-in
 * becomes the connection's with generation + 1 (state READY); else the sign-in is destroyed (state
 * ABSENT, number kept). Guarded as above, and by the owner's mark: a clean end that meets it is
 * SBX_E_CHANGING. */
MUST_USE enum sbx_code store_operation_finish(struct store_conn *db, const char *operation_id,
                                              int64_t version, bool clean, enum run_cause cause,
                                              struct arena *a, struct store_operation *out,
                                              struct sbx_err *err);
/* The owner's reset.  An unclaimed reservation is dropped, the sign-in kept (*dropped); a claimed
 * or quarantined one is marked and goes to TERMINATING; without an operation the sign-in is
 * destroyed at once.  out: the connection after. */
MUST_USE enum sbx_code store_connection_reset(struct store_conn *db, const char *connection_id,
                                              bool *dropped, struct arena *a,
                                              struct store_connection *out, struct sbx_err *err);

/* Takes due operations for lease_ms, as store_sandbox_claim_due does. */
MUST_USE enum sbx_code store_operation_claim_due(struct store_conn *db, const char *owner,
                                                 int64_t lease_ms, int limit, struct arena *a,
                                                 struct store_operations *out, struct sbx_err *err);
/* Looks at it again in next_in_ms; the lease is given back. */
MUST_USE enum sbx_code store_operation_release(struct store_conn *db, const char *operation_id,
                                               const char *owner, int64_t next_in_ms,
                                               struct sbx_err *err);
/* Milliseconds until the next operation is due; -1: none. */
MUST_USE enum sbx_code store_operation_next_due(struct store_conn *db, int64_t *in_ms,
                                                struct sbx_err *err);

#endif
