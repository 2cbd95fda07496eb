/* exec: the command's streams and exit code become ours. */

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/str.h"
#include "ctl/ctl.h"
#include "sbx/limits.h"

enum { EXEC_MARGIN_S = 60 }; /* past the command's own deadline */

static void put_stream(const json_t *answer, const char *name, FILE *to)
{
    SCOPED_ARENA struct arena *a = arena_new();
    const json_t *text = json_object_get(answer, name);
    const char *encoding = json_get_str(answer, arena_printf(a, "%sEncoding", name), NULL);
    SCOPED_BUF struct buf raw = BUF_INIT(CTL_ANSWER_MAX);

    if (!json_is_string(text))
        return;
    if (encoding != NULL && base64_decode(&raw, json_string_value(text), json_string_length(text)))
        (void)fwrite(raw.data != NULL ? raw.data : "", 1, raw.len, to);
    else
        (void)fwrite(json_string_value(text), 1, json_string_length(text), to);
    (void)fflush(to);
    if (json_get_bool(answer, arena_printf(a, "%sTruncated", name), false))
        (void)fprintf(stderr, "sandboxctl: %s was cut, the command wrote %lld bytes\n", name,
                      (long long)json_get_int(answer, arena_printf(a, "%sBytes", name), 0));
}

enum ctl_exit ctl_run_exec(struct ctl *c, struct sbx_err *err)
{
    SCOPED_JSON json_t *body = NULL;
    enum ctl_exit rc = ctl_args_body(c, &body, err);
    int64_t seconds;

    if (rc != CTL_DONE)
        return rc;
    seconds = json_get_int(body, "timeoutSeconds", SBX_EXEC_TIMEOUT_DEFAULT_S);
    if (seconds < 1 || seconds > SBX_EXEC_TIMEOUT_MAX_S)
        seconds = SBX_EXEC_TIMEOUT_MAX_S; /* the server says what is wrong with it */
    rc = ctl_call(c, CTL_USER, c->verb->method, c->verb->path, body,
                  (int)(seconds + EXEC_MARGIN_S) * 1000, err);
    if (rc != CTL_DONE)
        return rc;
    if (c->json) {
        ctl_print_json(c->answer);
    } else {
        put_stream(c->answer, "stdout", stdout);
        put_stream(c->answer, "stderr", stderr);
        if (json_get_bool(c->answer, "timedOut", false))
            (void)fprintf(stderr, "sandboxctl: the command was ended at its deadline\n");
    }
    /* Not one of ours: the command's own code, 0 to 255. */
    return (enum ctl_exit)(json_get_int(c->answer, "exitCode", CTL_REFUSED) & 0xff);
}
