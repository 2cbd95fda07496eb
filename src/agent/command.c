/* The template's command: started once, told once, told again after a redial. */

#include "agent/agent.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void announce_end(struct agent *a, enum sbx_agent_type type)
{
    struct agent_queue *q = &a->control.queue;

    agent_frame_begin(q, type, 0);
    if (type == SBX_AGENT_FAILED)
        agent_frame_text(q, SBX_TAG_MESSAGE, a->command.message);
    agent_frame_number(q, SBX_TAG_EXIT_CODE, a->command.exit_code);
    if (a->command.signal)
        agent_frame_number(q, SBX_TAG_SIGNAL, a->command.signal);
    agent_frame_end(q);
}

void agent_command_announce(struct agent *a)
{
    if (a->control.state != AGENT_LINK_UP)
        return;
    switch (a->command.state) {
    case AGENT_COMMAND_HELD:
    case AGENT_COMMAND_STARTING:
    case AGENT_COMMAND_SETTLING:
        break;
    case AGENT_COMMAND_FAILED:
        announce_end(a, SBX_AGENT_FAILED);
        break;
    case AGENT_COMMAND_RUNNING:
    case AGENT_COMMAND_ENDED:
        agent_frame_data(&a->control.queue, SBX_AGENT_READY, 0, NULL, 0);
        if (a->command.state == AGENT_COMMAND_ENDED)
            announce_end(a, SBX_AGENT_ENDED);
        break;
    }
}

static void fail(struct agent *a, const char *why)
{
    (void)snprintf(a->command.message, sizeof(a->command.message), "%s", why);
    a->command.state = AGENT_COMMAND_FAILED;
    agent_command_announce(a);
}

void agent_command_start(struct agent *a)
{
    const struct agent_workload *w = &a->workload;
    const struct agent_list none = { 0 };
    char home[PATH_MAX];
    struct agent_spawn s = {
        .serial = AGENT_SERIAL_COMMAND,
        .uid = w->uid,
        .gid = w->gid,
        .groups = w->groups,
        .group_count = w->group_count,
        .nproc = w->nproc,
        .cwd = w->cwd,
        .args = w->request.args.items,
        .arg_count = w->request.args.count,
        .fds = { a->null, a->null, a->null },
        .tell_start = true,
    };
    struct agent_span *env;

    if (a->command.state != AGENT_COMMAND_HELD || !w->known)
        return;
    if (s.arg_count == 0) {
        a->command.state = AGENT_COMMAND_RUNNING;
        agent_command_announce(a);
        return;
    }
    a->command.state = AGENT_COMMAND_STARTING;
    env = agent_workload_env(a, w->uid, &none, home, &s.env_count);
    s.env = env;
    if (!env || !agent_warden_spawn(&a->warden, &s))
        fail(a, "The command could not be started: the sandbox is out of memory.");
    free(env);
}

static void ended_at_once(struct agent *a)
{
    char text[sizeof(a->command.message)];
    const struct agent_command *c = &a->command;

    if (c->signal)
        (void)snprintf(text, sizeof(text), "The template's command ended at once, by signal %u.",
                       c->signal);
    else if (c->exit_code == 127)
        (void)snprintf(text, sizeof(text),
                       "The template's command ended at once with exit code 127: the program was "
                       "not found in the image.");
    else
        (void)snprintf(text, sizeof(text),
                       "The template's command ended at once with exit code %u.", c->exit_code);
    fail(a, text);
}

static void refused(struct agent *a, const struct agent_event *e)
{
    a->command.exit_code = 126;
    if (e->value == SBX_AGENT_REASON_CWD_MISSING)
        fail(a, "The template's command could not be started: its working directory is not there.");
    else if (e->value == SBX_AGENT_REASON_LIMIT)
        fail(a, "The template's command could not be started: the process limit is too low.");
    else
        fail(a, "The template's command could not be started.");
}

void agent_command_event(struct agent *a, const struct agent_event *e)
{
    struct agent_command *c = &a->command;
    bool ended = e->kind == AGENT_EVENT_ENDED || e->kind == AGENT_EVENT_LAST;

    if (c->state == AGENT_COMMAND_FAILED || c->state == AGENT_COMMAND_ENDED)
        return;
    if (e->kind == AGENT_EVENT_STARTED) {
        c->state = AGENT_COMMAND_SETTLING;
        c->look_ms = agent_now_ms() + AGENT_LOOK_MS;
        c->settled_ms = c->look_ms - AGENT_LOOK_MS + AGENT_SETTLE_MS;
        c->asleep = false;
        return;
    }
    if (e->kind == AGENT_EVENT_REFUSED) {
        refused(a, e);
        return;
    }
    c->exit_code = ended ? e->value : 128 + 9;
    c->signal = ended ? e->detail : 9;
    if (c->state == AGENT_COMMAND_RUNNING) {
        c->state = AGENT_COMMAND_ENDED;
        if (a->control.state == AGENT_LINK_UP)
            announce_end(a, SBX_AGENT_ENDED);
    } else {
        ended_at_once(a);
    }
}

uint64_t agent_command_due(const struct agent *a)
{
    const struct agent_command *c = &a->command;

    if (c->state != AGENT_COMMAND_SETTLING)
        return UINT64_MAX;
    return c->look_ms < c->settled_ms ? c->look_ms : c->settled_ms;
}

/* Has it come to where it waits?  Of two looks in a row the first may have met a process between
 * its last step and the waking of another. */
static bool settled(struct agent *a, uint64_t now_ms)
{
    struct agent_command *c = &a->command;
    bool before = c->asleep;

    if (now_ms >= c->settled_ms)
        return true;
    c->asleep = agent_asleep(a);
    c->look_ms = agent_now_ms() + (c->asleep ? AGENT_LOOK_AGAIN_MS : AGENT_LOOK_MS);
    return before && c->asleep;
}

void agent_command_tick(struct agent *a, uint64_t now_ms)
{
    if (now_ms < agent_command_due(a) || !settled(a, now_ms))
        return;
    a->command.state = AGENT_COMMAND_RUNNING;
    agent_command_announce(a);
}
