#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/scoped.h"
#include "gateway/egress_impl.h"

enum { ARGS_MAX = 16 };

const char *egress_program(const char *name, char path[EGRESS_PATH_SIZE])
{
    static const char *const folders[] = { "/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
                                           "/usr/bin",        "/sbin",          "/bin" };

    for (size_t i = 0; i < COUNT_OF(folders); i++) {
        (void)snprintf(path, EGRESS_PATH_SIZE, "%s/%s", folders[i], name);
        if (access(path, X_OK) == 0)
            return path;
    }
    return NULL;
}

bool egress_ns_there(const char *ns)
{
    char path[EGRESS_PATH_SIZE];

    (void)snprintf(path, sizeof(path), "/run/netns/%s", ns);
    return access(path, F_OK) == 0;
}

/* What the tool said stays in the log: it names links and addresses of the host. */
static enum sbx_code told(const char *what, enum sbx_code code, struct buf *output,
                          struct sbx_err *err)
{
    if (code == SBX_OK)
        return SBX_OK;
    log_warn("a network tool failed", LOG_S("tool", what),
             LOG_S("output", output->data != NULL ? output->data : ""));
    return egress_err_instead(err, code == SBX_E_TIMEOUT ? SBX_E_TIMEOUT : SBX_E_INTERNAL,
                              "the host's network could not be set up (%s)", what);
}

/* nsenter and not "ip -n": that one also leaves the mount namespace, and a namespace that is named
 * there would be seen by nobody else. */
static enum sbx_code run_ip(const char *ns, bool force, const struct buf *batch, struct buf *output,
                            struct sbx_err *err)
{
    char net[EGRESS_PATH_SIZE];
    const char *argv[] = { "nsenter", net, "ip", "-batch", "-", NULL, NULL };

    (void)snprintf(net, sizeof(net), "--net=/run/netns/%s", ns != NULL ? ns : "");
    if (force)
        argv[5] = "-force";
    return process_run(ns != NULL ? argv : argv + 2, batch->data, batch->len, output,
                       EGRESS_TOOL_MS, err);
}

enum sbx_code egress_ip(const char *ns, const struct buf *batch, struct sbx_err *err)
{
    SCOPED_BUF struct buf output = BUF_INIT(EGRESS_SCRIPT_MAX);

    return told("ip", run_ip(ns, false, batch, &output, err), &output, err);
}

void egress_ip_try(const char *ns, const struct buf *batch)
{
    SCOPED_BUF struct buf output = BUF_INIT(EGRESS_SCRIPT_MAX);
    struct sbx_err err = { 0 };

    (void)!run_ip(ns, true, batch, &output, &err);
}

enum sbx_code egress_nft(const struct egress *e, bool host, const struct buf *script,
                         struct sbx_err *err)
{
    SCOPED_BUF struct buf output = BUF_INIT(EGRESS_SCRIPT_MAX);
    char net[EGRESS_PATH_SIZE + 8];
    const char *inside[] = { "nsenter", net, "nft", "-f", "-", NULL };
    enum sbx_code code;

    if (script->full)
        return err_set(err, SBX_E_INVALID, "the network rules are too large");
    (void)snprintf(net, sizeof(net), "--net=%s", e->ns_path);
    code = process_run(host ? inside + 2 : inside, script->data, script->len, &output,
                       EGRESS_TOOL_MS, err);
    return told("nft", code, &output, err);
}

enum sbx_code egress_nft_json(const struct egress *e, const char *const *args, struct buf *out,
                              struct sbx_err *err)
{
    char net[EGRESS_PATH_SIZE + 8];
    const char *argv[ARGS_MAX] = { "nsenter", net, "nft", "-j" };

    (void)snprintf(net, sizeof(net), "--net=%s", e->ns_path);
    for (size_t i = 0; args[i] != NULL && i + 5 < ARGS_MAX; i++)
        argv[4 + i] = args[i];
    return process_run(argv, NULL, 0, out, EGRESS_TOOL_MS, err);
}

enum sbx_code egress_sysctl(const char *ns, const char *name, const char *value,
                            struct sbx_err *err)
{
    SCOPED_BUF struct buf output = BUF_INIT(EGRESS_SCRIPT_MAX);
    char net[EGRESS_PATH_SIZE], set[EGRESS_PATH_SIZE];
    const char *argv[] = { "nsenter", net, "sysctl", "-qw", set, NULL };
    enum sbx_code code;

    (void)snprintf(net, sizeof(net), "--net=/run/netns/%s", ns != NULL ? ns : "");
    (void)snprintf(set, sizeof(set), "%s=%s", name, value);
    code = process_run(ns != NULL ? argv : argv + 2, NULL, 0, &output, EGRESS_TOOL_MS, err);
    return told("sysctl", code, &output, err);
}

enum sbx_code egress_file_write(const struct egress *e, const char *name, const char *text,
                                size_t len, mode_t mode, struct sbx_err *err)
{
    char path[EGRESS_PATH_SIZE * 2], next[EGRESS_PATH_SIZE * 2];
    SCOPED_FD int fd = -1;

    (void)snprintf(path, sizeof(path), "%s/%s", e->dir, name);
    (void)snprintf(next, sizeof(next), "%s/%s.next", e->dir, name);
    if (file_holds(path, text, len, mode))
        return SBX_OK; /* a gateway that starts on a full disk keeps its network */
    fd = open(next, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    if (fd < 0 || fchmod(fd, mode) < 0 || write(fd, text, len) != (ssize_t)len || fsync(fd) < 0)
        return err_sys(err, SBX_E_INTERNAL, "write a network file");
    if (rename(next, path) < 0)
        return err_sys(err, SBX_E_INTERNAL, "write a network file");
    return SBX_OK;
}
