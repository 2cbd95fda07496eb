/* What the gateway may say on CONTROL after WELCOME. */

#include "agent/agent.h"

#include <stddef.h>
#include <unistd.h>

typedef void handler(struct agent *a, uint32_t stream, const struct agent_request *r);

static void on_start(struct agent *a, uint32_t stream, const struct agent_request *r)
{
    (void)stream;
    (void)r;
    agent_command_start(a);
}

static void on_kill(struct agent *a, uint32_t stream, const struct agent_request *r)
{
    agent_exec_kill(a, stream, r->text[SBX_TAG_EXEC_ID]);
}

static void on_list(struct agent *a, uint32_t stream, const struct agent_request *r)
{
    (void)r;
    agent_exec_list(a, stream);
}

static void on_freeze(struct agent *a, uint32_t stream, const struct agent_request *r)
{
    (void)r;
    if (agent_freeze(a))
        agent_done(a, stream, SBX_AGENT_REASON_NONE, NULL);
    else
        agent_done(a, stream, SBX_AGENT_REASON_IO, "the processes did not all stand still");
}

static void on_thaw(struct agent *a, uint32_t stream, const struct agent_request *r)
{
    (void)r;
    agent_thaw(a);
    agent_done(a, stream, SBX_AGENT_REASON_NONE, NULL);
}

static void on_stop(struct agent *a, uint32_t stream, const struct agent_request *r)
{
    (void)a;
    (void)stream;
    (void)r;
    _exit(0); /* the first process: everything ends with it */
}

static const struct {
    enum sbx_agent_type type;
    handler *handle;
} handlers[] = {
    { SBX_AGENT_START, on_start },
    { SBX_AGENT_EXEC, agent_exec_request },
    { SBX_AGENT_KILL, on_kill },
    { SBX_AGENT_LIST, on_list },
    { SBX_AGENT_FREEZE, on_freeze },
    { SBX_AGENT_THAW, on_thaw },
    { SBX_AGENT_DIAL, agent_bulk_dial },
    { SBX_AGENT_PUT_FILE, agent_files_put },
    { SBX_AGENT_GET_FILE, agent_files_get },
    { SBX_AGENT_STOP, on_stop },
};

bool agent_handle(struct agent *a, uint8_t type, uint32_t stream, const unsigned char *payload,
                  size_t len)
{
    struct agent_request r;
    bool ok;

    if (type == SBX_AGENT_PING)
        return agent_frame_data(&a->control.queue, SBX_AGENT_PONG, stream, payload, len);
    if (type == SBX_AGENT_PONG)
        return true;
    for (size_t i = 0; i < COUNT_OF(handlers); i++) {
        if (handlers[i].type != type)
            continue;
        ok = agent_request_parse(payload, len, &r);
        if (ok)
            handlers[i].handle(a, stream, &r);
        agent_request_fini(&r);
        return ok;
    }
    return false; /* a gateway of another time: it will hear so */
}
