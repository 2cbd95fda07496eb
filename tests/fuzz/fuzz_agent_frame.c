/* A stream of frames as the gateway could send it, and exclude patterns with a path. */

#include <stdlib.h>
#include <string.h>

#include "agent/frame.h"
#include "agent/ignore.h"
#include "fuzz.h"

static void payload(const uint8_t *data, size_t len)
{
    struct agent_request r;
    struct agent_ignore *ignore;

    if (agent_request_parse(data, len, &r)) {
        char *path = agent_span_dup(r.text[SBX_TAG_PATH]);

        ignore = agent_ignore_new(&r.excludes);
        if (ignore && path)
            (void)agent_ignore_excludes(ignore, path, r.present & 1);
        agent_ignore_free(ignore);
        free(path);
        for (size_t i = 0; i < r.args.count; i++) {
            if (r.args.items[i].len && memchr(r.args.items[i].data, '\0', r.args.items[i].len))
                abort();
        }
    }
    agent_request_fini(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sbx_agent_header h;

    while (size >= SBX_AGENT_HEADER_LEN && sbx_agent_header_parse(data, &h) &&
           h.length <= size - SBX_AGENT_HEADER_LEN) {
        payload(data + SBX_AGENT_HEADER_LEN, h.length);
        data += SBX_AGENT_HEADER_LEN + h.length;
        size -= SBX_AGENT_HEADER_LEN + h.length;
    }
    payload(data, size);
    return 0;
}
