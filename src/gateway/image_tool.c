#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"
#include "base/scoped.h"
#include "base/time.h"
#include "gateway/image_impl.h"

enum { ARGS_MAX = 40, DU_SHARE = 5 /* at most a fifth of the time goes into looking */ };

/* What skopeo and umoci need of the environment; nothing of ours reaches them. */
static const char *const tool_env[] = { "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/"
                                        "sbin:/bin",
                                        "HOME=/nonexistent", "TMPDIR=tmp", "LC_ALL=C", NULL };

static enum sbx_code watch(struct image_store *s, const struct image_tool *tool, struct process *p,
                           int *status, struct sbx_err *err)
{
    int64_t deadline = time_mono_ms() + tool->timeout_ms;
    int64_t pause_ms = IMAGE_DU_INTERVAL_MS;

    for (;;) {
        int64_t left = deadline - time_mono_ms();
        int64_t began, bytes;
        struct sbx_err why = { 0 };
        enum sbx_code code;

        if (left <= 0)
            return err_set(err, SBX_E_TIMEOUT, "%s took too long", tool->argv[0]);
        if (tool->watch == NULL)
            return process_wait(p, (int)left, status, err);
        code = process_wait(p, (int)(left < pause_ms ? left : pause_ms), status, &why);
        if (code == SBX_OK)
            return SBX_OK;
        if (code != SBX_E_TIMEOUT) {
            *err = why;
            return code;
        }
        why = (struct sbx_err){ 0 };
        began = time_mono_ms();
        /* What is being written may vanish while it is measured: only a sum counts here. */
        if (image_fs_measure(s, tool->watch, 0, &bytes, &why) == SBX_OK && bytes > tool->watch_max)
            return err_set(err, SBX_E_TOO_LARGE, "the image is larger than this region allows");
        pause_ms = (time_mono_ms() - began) * DU_SHARE;
        if (pause_ms < IMAGE_DU_INTERVAL_MS)
            pause_ms = IMAGE_DU_INTERVAL_MS;
    }
}

static void keep_output(int fd, struct buf *output)
{
    off_t size = lseek(fd, 0, SEEK_END);
    char *room;
    ssize_t n;

    if (size <= 0 || output == NULL)
        return;
    if (size > IMAGE_TOOL_OUTPUT_MAX)
        size = IMAGE_TOOL_OUTPUT_MAX;
    room = buf_reserve(output, (size_t)size);
    if (room == NULL)
        return;
    n = pread(fd, room, (size_t)size, 0);
    if (n > 0)
        output->len += (size_t)n;
    output->data[output->len] = 0;
}

enum sbx_code image_tool_run(struct image_store *s, const struct image_tool *tool,
                             struct buf *output, struct sbx_err *err)
{
    SCOPED_FD int log = memfd_create("image-tool", MFD_CLOEXEC);
    struct process_spec spec = PROCESS_SPEC_INIT;
    struct process p = { .pidfd = -1 };
    char fsize[48];
    const char *argv[ARGS_MAX + 3];
    size_t n = 0;
    int status = 0;
    enum sbx_code code;

    if (log < 0)
        return err_sys(err, SBX_E_INTERNAL, "memfd");
    (void)snprintf(fsize, sizeof(fsize), "--fsize=%lld", (long long)tool->file_max);
    argv[n++] = "prlimit";
    argv[n++] = fsize;
    for (size_t i = 0; tool->argv[i] != NULL && i < ARGS_MAX; i++)
        argv[n++] = tool->argv[i];
    argv[n] = NULL;
    spec.argv = argv;
    spec.env = tool_env;
    spec.cwd = s->config->dir;
    spec.fd_in = tool->fd_in;
    spec.fd_out = tool->fd_out >= 0 ? tool->fd_out : log;
    spec.fd_err = log;
    spec.keep = tool->keep;
    spec.new_session = true;
    code = process_start(&spec, &p, err);
    if (code != SBX_OK)
        return code;
    code = watch(s, tool, &p, &status, err);
    if (code != SBX_OK) {
        process_end(&p);
        return code;
    }
    keep_output(log, output);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ)
        return err_set(err, SBX_E_TOO_LARGE, "the image is larger than this region allows");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return err_set(err, SBX_E_INTERNAL, "%s failed", tool->argv[0]);
    return SBX_OK;
}
