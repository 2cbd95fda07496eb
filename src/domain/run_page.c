#include "base/buf.h"
#include "domain/run_state.h"
#include "sbx/attr.h"

/* docs/personal-runs.md, printed from the tables. */

static const char INTRO[] =
    "# Personal Warren runs\n"
    "\n"
    "This page is printed from `src/domain/run_state.c`; `unit_domain_test_run_state --write` "
    "writes it\n"
    "again and the test fails when the two differ. Endpoints: docs/api.md. The rules: contract 6.\n"
    "\n"
    "An operation is one reserved task of an owner's connection. Each phase is a row in\n"
    "`sandboxd.operations`; each change of it is one guarded statement (the row's `version`), so "
    "of two\n"
    "that want to change it at once one loses and looks again. The connection's fence is held from "
    "the\n"
    "reservation until the operation is terminated or dropped; no clock releases it.\n"
    "\n"
    "The entrypoint is started by the one request that brings the callback tokens, after the start "
    "was\n"
    "written down, and never by the plan: a start whose outcome is not known is quarantined.\n";

static void print_moves(struct buf *out)
{
    (void)buf_puts(out, "\n## Moves, and what if it dies right after\n\n"
                        "| phase | when | next phase | if the control plane dies here |\n"
                        "| --- | --- | --- | --- |\n");
    for (size_t i = 0; i < RUN_MOVE_COUNT; i++)
        (void)buf_printf(out, "| %s | %s | %s | %s |\n", run_phase_name(RUN_MOVES[i].from),
                         run_event_text(RUN_MOVES[i].event), run_phase_name(RUN_MOVES[i].to),
                         RUN_MOVES[i].crash);
}

static void print_steps(struct buf *out)
{
    static const char *const AGAIN[RUN_STEP_COUNT] = {
        [RUN_STEP_WAIT] = "nothing was begun",
        [RUN_STEP_PREPARE] = "it only reads: repeated",
        [RUN_STEP_ALLOCATE] =
            "the holder's id and its idempotency key are the operation's: repeated, one holder",
        [RUN_STEP_MARK_READY] = "repeated",
        [RUN_STEP_ASK_START] =
            "it only asks: repeated; an answer of 'never heard of it' quarantines",
        [RUN_STEP_POLL] = "it only asks: repeated; the region keeps the exit until it is asked",
        [RUN_STEP_READ_BACK] =
            ("the file is still in the holder: repeated; a holder that is gone makes the release "
             "destructive"),
        [RUN_STEP_TERMINATE] = "ending what is ending or gone changes nothing: repeated",
        [RUN_STEP_RELEASE_CLEAN] = "one transaction: it happened or it is repeated",
        [RUN_STEP_RELEASE_DESTRUCTIVE] = "one transaction: it happened or it is repeated",
        [RUN_STEP_LOSE] = "repeated",
    };

    (void)buf_puts(out, "\n## Steps that the runs thread takes\n\n"
                        "It takes due rows under a lease (25 s); a dead control plane's rows come "
                        "back by themselves.\n\n"
                        "| step | if it dies in the middle |\n| --- | --- |\n");
    for (int i = 0; i < RUN_STEP_COUNT; i++)
        (void)buf_printf(out, "| %s | %s |\n", run_step_text((enum run_step)i), AGAIN[i]);
}

/* Method, path, request, answer, errors beyond those of every operation (docs/api.md). */
static const struct {
    const char *call, *request, *answer, *errors;
} ENDPOINTS[] = {
    { "POST /solution-connections/save", "{accountId, installationId, appId, templateId, region}",
      "200 {connection}", "404 NOT_FOUND, 409 CONNECTION_BUSY" },
    { "GET /solution-connections", "?accountId=", "200 {connections}", "" },
    { "POST /solution-connections/sign-in", "{accountId, connectionId, authFile, githubToken}",
      "200 {connection}: generation + 1, READY", "404 NOT_FOUND, 409 CONNECTION_BUSY" },
    { "POST /solution-connections/reserve",
      "{accountId, connectionId, task: {repository, baseBranch, model, tokenLimit, "
      "timeLimitSeconds, prompt}}",
      "201 {operationId, grant, expiresAt}; the grant is shown this once",
      "409 CONNECTION_BUSY, CONFLICT (no sign-in); 403 REPOSITORY_NOT_PRIVATE, REPOSITORY_NO_PUSH, "
      "GITHUB_CREDENTIAL_REJECTED; 503 UNAVAILABLE (GitHub away, rate limit)" },
    { "POST /solution-connections/reset", "{accountId, connectionId}", "200 {connection}",
      "404 NOT_FOUND" },
    { "POST /sandbox-orchestrator/codex-runs/claim", "{grant, runId}", "200 {run}, a repeat too",
      "403 GRANT_DENIED, OWNER_ACCESS_LOST and GitHub's as above; 409 RUN_COMPLETED; 503 "
      "UNAVAILABLE" },
    { "GET /sandbox-orchestrator/codex-runs/{runId}", "", "200 {run}",
      "404 RUN_NOT_FOUND, 409 RUN_COMPLETED" },
    { "POST /sandbox-orchestrator/codex-runs/{runId}/sandbox", "empty",
      "200 {sandboxId, supervised, phase}",
      "404 RUN_NOT_FOUND; 409 RUN_COMPLETED; 403 OWNER_ACCESS_LOST and GitHub's; 503 UNAVAILABLE" },
    { "GET /sandbox-orchestrator/codex-runs/{runId}/sandbox", "",
      "200 {sandboxId, supervised, phase, cleanupComplete?, authPreserved?}", "404 RUN_NOT_FOUND" },
    { "DELETE /sandbox-orchestrator/codex-runs/{runId}/sandbox", "empty",
      "200 {sandboxId, supervised, phase, cleanupComplete, authPreserved?}: repeat it until "
      "cleanupComplete",
      "404 RUN_NOT_FOUND, 409 SANDBOX_CHANGING_STATE" },
    { "POST /sandbox-orchestrator/codex-runs/{runId}/execution",
      "{callbackToken, eventIngestToken}", "200 {runId, executionId, phase, ..}, a repeat too",
      "404 RUN_NOT_FOUND; 403 CALLBACK_TOKEN_DENIED; 409 SANDBOX_NOT_READY, ENTRYPOINT_MISSING, "
      "RUN_COMPLETED, "
      "CONFLICT; 503 UNAVAILABLE (nothing was started)" },
    { "GET /sandbox-orchestrator/codex-runs/{runId}/execution", "",
      "200 {runId, executionId?, phase, exitCode?, cause?, startedAt?, exitedAt?}",
      "404 RUN_NOT_FOUND" },
};

static void print_endpoints(struct buf *out)
{
    (void)buf_puts(
        out,
        "\n## Endpoints\n\nBelow `/api/public/v1`. The owner's take a user token of the owner "
        "alone; the "
        "orchestrator's the installation's\nservice principal (`sandbox:create`, `sandbox:read`, "
        "`sandbox:terminate`), which a suspended installation turns\ninto 403 "
        "INSTALLATION_SUSPENDED right "
        "after the token kind. `test_personal_runs.py` makes every call and meets\nmost of the "
        "errors, "
        "`test_personal_attacks.py` the others.\n\n"
        "| call | request | answer | errors of its own |\n| --- | --- | --- | --- |\n");
    for (size_t i = 0; i < COUNT_OF(ENDPOINTS); i++)
        (void)buf_printf(out, "| `%s` | %s | %s | %s |\n", ENDPOINTS[i].call, ENDPOINTS[i].request,
                         ENDPOINTS[i].answer, ENDPOINTS[i].errors);
}

void run_page_print(struct buf *out)
{
    (void)buf_puts(out, INTRO);
    print_endpoints(out);
    print_moves(out);
    print_steps(out);
    (void)buf_puts(
        out, "\n## The start of the entrypoint\n\n"
             "| after | if the control plane or the region dies here |\n"
             "| --- | --- |\n"
             "| the callback tokens were checked | nothing was written: the request is repeated |\n"
             "| the entrypoint was found | nothing was written: the request is repeated |\n"
             "| `starting` was written | 45 s later the region is asked: running and exited are "
             "taken over, "
             "anything else is quarantined (START_UNCERTAIN) |\n"
             "| the region answered | as above; the answer of the region is what is asked for |\n"
             "| `running` was written | the exit is asked for |\n"
             "\n## When the sign-in survives\n\n"
             "Only after a witnessed exit 0 whose refreshed sign-in was read back and sealed, and "
             "only when the "
             "owner\ndid not ask for a reset meanwhile. Everything else ends with the sign-in "
             "destroyed and the "
             "generation's\nnumber kept.\n");
}
