/* The verbs of sandboxes, templates, tokens and issuers that are more than one plain call. */

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "base/str.h"
#include "base/time.h"
#include "ctl/ctl.h"

enum {
    WAIT_TIMEOUT_MS = 360 * 1000, /* past the longest deploy */
    WAIT_STEP_MS = 100,
    KEY_DIGITS = 24,
};

static const struct {
    const char *profile;
    const char *owner_kind;
} PROFILES[] = {
    { "QUAVE_INTERACTIVE_AGENT", "AGENT_CONVERSATION" },
    { "TESS_CODE_TURN", "EXTERNAL_SESSION" },
    { "QUAVE_AUTOMATION_RUN", "AGENT_RUN" },
};

static void wait_step(void)
{
    struct timespec step = { .tv_nsec = WAIT_STEP_MS * 1000L * 1000L };

    (void)nanosleep(&step, NULL); /* polling: the API has no other way to learn of a change */
}

static bool is_final(const char *status)
{
    return strcmp(status, "FAILED") == 0 || strcmp(status, "TERMINATING") == 0 ||
           strcmp(status, "TERMINATED") == 0;
}

/* Asks until the sandbox of c->answer is READY. */
static enum ctl_exit wait_ready(struct ctl *c, const char *account, struct sbx_err *err)
{
    SCOPED_JSON json_t *query = json_object();
    int64_t began = time_mono_ms();
    const json_t *box = json_object_get(c->answer, "sandbox");
    char text[96];

    json_put_str(query, "accountId", account);
    json_put_str(query, "sandboxId", json_get_str(box, "sandboxId", ""));
    for (;;) {
        const char *status = json_get_str(box, "status", "");
        enum ctl_exit rc;

        if (strcmp(status, "READY") == 0 || strcmp(status, "BUSY") == 0)
            break;
        if (is_final(status) || time_mono_ms() - began > WAIT_TIMEOUT_MS) {
            ctl_progress(NULL);
            return ctl_fail(err, CTL_REFUSED, "The sandbox is %s: %s (sandboxctl why %s).", status,
                            json_get_str(box, "statusReason", "no reason given"),
                            json_get_str(query, "sandboxId", ""));
        }
        (void)snprintf(text, sizeof(text), "%s for %.1f s", status,
                       (double)(time_mono_ms() - began) / 1000);
        ctl_progress(text);
        wait_step();
        rc = ctl_call(c, CTL_USER, "GET", "/sandbox", query, CTL_CALL_TIMEOUT_MS, err);
        if (rc != CTL_DONE) {
            ctl_progress(NULL);
            return rc;
        }
        box = json_object_get(c->answer, "sandbox");
    }
    ctl_progress(NULL);
    return CTL_DONE;
}

static enum ctl_exit call_and_wait(struct ctl *c, const json_t *body, struct sbx_err *err)
{
    enum ctl_exit rc =
        ctl_call(c, CTL_USER, c->verb->method, c->verb->path, body, CTL_CALL_TIMEOUT_MS, err);

    if (rc == CTL_DONE && ctl_flag(c, "--wait"))
        rc = wait_ready(c, json_get_str(body, "accountId", ""), err);
    if (rc == CTL_DONE)
        ctl_print_answer(c);
    return rc;
}

enum ctl_exit ctl_run_sandbox_create(struct ctl *c, struct sbx_err *err)
{
    SCOPED_JSON json_t *body = NULL;
    char key[KEY_DIGITS + 1];
    const char *profile;
    enum ctl_exit rc = ctl_args_body(c, &body, err);

    if (rc != CTL_DONE)
        return rc;
    if (json_object_get(body, "workloadProfile") == NULL)
        json_put_str(body, "workloadProfile", PROFILES[0].profile);
    profile = json_get_str(body, "workloadProfile", "");
    for (size_t i = 0; i < COUNT_OF(PROFILES); i++)
        if (strcmp(PROFILES[i].profile, profile) == 0)
            json_put_str(body, "ownerKind", PROFILES[i].owner_kind);
    if (json_object_get(body, "ownerId") == NULL)
        json_put_str(body, "ownerId", "sandboxctl");
    if (json_object_get(body, "idempotencyKey") == NULL) {
        base62_random(key, KEY_DIGITS);
        json_put_str(body, "idempotencyKey", key);
    }
    rc = call_and_wait(c, body, err);
    /* Whether it was made is not known: only the same key finds out without making a second one. */
    if (rc == CTL_UNREACHABLE)
        (void)fprintf(stderr, "sandboxctl: repeat it with --key %s\n",
                      json_get_str(body, "idempotencyKey", ""));
    return rc;
}

enum ctl_exit ctl_run_sandbox_resume(struct ctl *c, struct sbx_err *err)
{
    SCOPED_JSON json_t *body = NULL;
    enum ctl_exit rc = ctl_args_body(c, &body, err);

    return rc == CTL_DONE ? call_and_wait(c, body, err) : rc;
}

enum ctl_exit ctl_run_template_revision(struct ctl *c, struct sbx_err *err)
{
    SCOPED_JSON json_t *body = NULL;
    json_t *network;
    const json_t *warnings;
    enum ctl_exit rc = ctl_args_body(c, &body, err);

    if (rc != CTL_DONE)
        return rc;
    network = json_object_get(body, "networkControl");
    if (network != NULL && json_object_get(network, "enabled") == NULL)
        (void)json_object_set_new(network, "enabled", json_false());
    rc = ctl_call(c, CTL_USER, c->verb->method, c->verb->path, body, CTL_CALL_TIMEOUT_MS, err);
    if (rc != CTL_DONE)
        return rc;
    warnings = json_object_get(c->answer, "warnings");
    for (size_t i = 0; !c->json && i < json_array_size(warnings); i++)
        if (json_is_string(json_array_get(warnings, i)))
            (void)fprintf(stderr, "note: %s\n", json_string_value(json_array_get(warnings, i)));
    ctl_print_answer(c);
    return CTL_DONE;
}

enum ctl_exit ctl_run_token_create(struct ctl *c, struct sbx_err *err)
{
    SCOPED_JSON json_t *body = NULL;
    enum ctl_exit rc = ctl_args_body(c, &body, err);

    if (rc != CTL_DONE)
        return rc;
    if (json_object_get(body, "kind") == NULL && ctl_arg(c, "--principal") != NULL)
        json_put_str(body, "kind", "principal");
    rc = ctl_call(c, CTL_ADMIN, c->verb->method, c->verb->path, body, CTL_CALL_TIMEOUT_MS, err);
    if (rc == CTL_DONE)
        ctl_print_answer(c);
    return rc;
}

enum ctl_exit ctl_run_issuer_add(struct ctl *c, struct sbx_err *err)
{
    const char *from = ctl_arg(c, "--jwks");
    SCOPED_JSON json_t *body = NULL;
    enum ctl_exit rc = ctl_args_body(c, &body, err);
    json_t *keys;

    if (rc != CTL_DONE)
        return rc;
    if (str_starts(from, "http://") || str_starts(from, "https://")) {
        json_put_str(body, "jwksUrl", from);
    } else {
        keys = json_load_file(from, JSON_REJECT_DUPLICATES, NULL);
        if (keys == NULL) {
            return ctl_fail(err, CTL_USAGE, "The file of --jwks cannot be read as JSON.");
        }
        json_put_new(body, "jwks", keys);
    }
    rc = ctl_call(c, CTL_ADMIN, c->verb->method, c->verb->path, body, CTL_CALL_TIMEOUT_MS, err);
    if (rc == CTL_DONE)
        ctl_print_answer(c);
    return rc;
}

/* How many sandboxes of c->answer still live; each is told to end when `tell` is set. A refusal is
 * fine: it may be changing, and the next round asks again. */
static enum ctl_exit end_each(struct ctl *c, bool tell, size_t *live, struct sbx_err *err)
{
    SCOPED_JSON json_t *list = json_incref(json_object_get(c->answer, "sandboxes"));
    size_t i;
    json_t *box;

    json_array_foreach(list, i, box)
    {
        SCOPED_JSON json_t *body = json_object();
        enum ctl_exit rc = CTL_DONE;

        if (strcmp(json_get_str(box, "status", ""), "TERMINATED") == 0)
            continue;
        (*live)++;
        json_put_str(body, "sandboxId", json_get_str(box, "sandboxId", ""));
        if (tell)
            rc = ctl_call(c, CTL_ADMIN, "POST", "/sandbox/terminate", body, CTL_CALL_TIMEOUT_MS,
                          err);
        if (rc == CTL_UNREACHABLE)
            return rc;
    }
    return CTL_DONE;
}

/* One walk over all pages. */
static enum ctl_exit drain_round(struct ctl *c, bool tell, size_t *live, struct sbx_err *err)
{
    SCOPED_JSON json_t *query = json_object();
    enum ctl_exit rc;
    const char *next;

    *live = 0;
    do {
        rc = ctl_call(c, CTL_ADMIN, "GET", "/sandboxes", query, CTL_CALL_TIMEOUT_MS, err);
        if (rc != CTL_DONE)
            return rc;
        next = arena_strdup(c->arena, json_get_str(c->answer, "next", NULL));
        rc = end_each(c, tell, live, err);
        json_put_str(query, "after", next);
    } while (rc == CTL_DONE && next != NULL);
    return rc;
}

enum ctl_exit ctl_run_sandbox_drain(struct ctl *c, struct sbx_err *err)
{
    int64_t began = time_mono_ms();
    size_t live = 0;
    enum ctl_exit rc = drain_round(c, true, &live, err);

    for (int round = 1; rc == CTL_DONE && live > 0; round++) {
        char text[64];

        if (time_mono_ms() - began > WAIT_TIMEOUT_MS)
            return ctl_fail(err, CTL_REFUSED, "%zu sandboxes did not end (sandboxctl sandbox all).",
                            live);
        (void)snprintf(text, sizeof(text), "%zu sandboxes left", live);
        ctl_progress(text);
        wait_step();
        rc = drain_round(c, round % 50 == 0, &live, err);
    }
    ctl_progress(NULL);
    if (rc == CTL_DONE && c->json)
        (void)puts("{\"success\":true}");
    return rc;
}

enum ctl_exit ctl_run_states(struct ctl *c, struct sbx_err *err)
{
    enum ctl_exit rc = ctl_call(c, CTL_ADMIN, "GET", c->verb->path, NULL, CTL_CALL_TIMEOUT_MS, err);
    const json_t *moves;

    if (rc != CTL_DONE)
        return rc;
    moves = json_object_get(c->answer, "moves");
    if (c->json)
        ctl_print_json(c->answer);
    else if (ctl_flag(c, "--dot"))
        (void)fputs(json_get_str(c->answer, "dot", ""), stdout);
    else
        ctl_print_table(moves, "status:STATUS event:EVENT next:NEXT action:ACTION reason:REASON");
    return CTL_DONE;
}
