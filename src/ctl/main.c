#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/scoped.h"
#include "ctl/ctl.h"
#include "sbx/version.h"

enum ctl_exit ctl_fail(struct sbx_err *err, enum ctl_exit rc, const char *fmt, ...)
{
    va_list args;

    *err = (struct sbx_err){ .code = rc == CTL_USAGE         ? SBX_E_INVALID
                                     : rc == CTL_UNREACHABLE ? SBX_E_UNAVAILABLE
                                                             : SBX_E_UNKNOWN };
    va_start(args, fmt);
    (void)vsnprintf(err->msg, sizeof(err->msg), fmt, args);
    va_end(args);
    return rc;
}

/* The generic verb: its options are the call. */
static enum ctl_exit plain_call(struct ctl *c, struct sbx_err *err)
{
    SCOPED_JSON json_t *body = NULL;
    enum ctl_exit rc = ctl_args_body(c, &body, err);

    if (rc == CTL_DONE)
        rc = ctl_call(c, c->verb->side, c->verb->method, c->verb->path, body, CTL_CALL_TIMEOUT_MS,
                      err);
    if (rc == CTL_DONE)
        ctl_print_answer(c);
    return rc;
}

static enum ctl_exit run_once(struct ctl *c, struct sbx_err *err)
{
    return c->verb->run != NULL ? c->verb->run(c, err) : plain_call(c, err);
}

/* Until a signal or an error. */
static enum ctl_exit watch(struct ctl *c, struct sbx_err *err)
{
    struct timespec pause = { .tv_sec = CTL_WATCH_MS / 1000 };
    enum ctl_exit rc;

    for (;;) {
        if (!c->json && isatty(STDOUT_FILENO))
            (void)fputs("\033[H\033[J", stdout);
        rc = run_once(c, err);
        if (rc != CTL_DONE || fflush(stdout) != 0)
            return rc;
        (void)nanosleep(&pause, NULL);
    }
}

/* What went wrong: a sentence for people; with --json the server's own object, or one like it. */
static void tell(const struct ctl *c, enum ctl_exit rc, const struct sbx_err *err)
{
    SCOPED_JSON json_t *own = NULL;

    if (err->msg[0] == 0)
        return;
    if (!c->json) {
        (void)fprintf(stderr, "sandboxctl: %s\n", err->msg);
        return;
    }
    if (rc == CTL_REFUSED && c->answer != NULL && json_object_get(c->answer, "error") != NULL) {
        ctl_print_json(c->answer);
        return;
    }
    own = json_object();
    (void)json_object_set_new(own, "success", json_false());
    json_put_str(own, "error", err->msg);
    json_put_str(own, "code", rc == CTL_UNREACHABLE ? "UNREACHABLE" : sbx_code_name(err->code));
    ctl_print_json(own);
}

int ctl_main(int argc, char **argv)
{
    SCOPED_ARENA struct arena *a = arena_new();
    struct ctl c = { .arena = a };
    struct sbx_err err = { .code = SBX_OK };
    enum ctl_exit rc;
    bool help;

    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        (void)puts("sandboxctl " SBX_VERSION);
        return CTL_DONE;
    }
    rc = ctl_args_parse(&c, argc, argv, &help, &err);
    if (rc == CTL_DONE && help) {
        if (c.verb != NULL)
            ctl_help_verb(c.verb);
        else
            ctl_help(NULL);
    } else if (rc == CTL_DONE) {
        rc = c.watch ? watch(&c, &err) : run_once(&c, &err);
    }
    if (rc != CTL_DONE)
        tell(&c, rc, &err);
    if (fflush(stdout) != 0 && rc == CTL_DONE)
        rc = CTL_UNREACHABLE; /* the reader is gone */
    json_decref(c.answer);
    json_decref(c.client);
    return (int)rc;
}
