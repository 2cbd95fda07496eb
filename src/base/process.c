#include "base/process.h"

#include <assert.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/scoped.h"
#include "base/time.h"

extern char **environ;

enum { KEEP_MAX = 16, OUTPUT_KEPT = 4096 };

static int pidfd_of(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

static int add_files(posix_spawn_file_actions_t *fa, const struct process_spec *spec)
{
    const int fds[3] = { spec->fd_in, spec->fd_out, spec->fd_err };
    int rc = 0;

    for (int i = 0; i < 3 && rc == 0; i++) {
        if (fds[i] < 0)
            rc = posix_spawn_file_actions_addopen(fa, i, "/dev/null", i == 0 ? O_RDONLY : O_WRONLY,
                                                  0);
        else
            rc = posix_spawn_file_actions_adddup2(fa, fds[i], i);
    }
    for (const int *k = spec->keep; rc == 0 && k != NULL && *k >= 0; k++)
        rc = posix_spawn_file_actions_adddup2(fa, *k, *k); /* same number: clears close-on-exec */
    if (rc == 0 && spec->cwd != NULL)
        rc = posix_spawn_file_actions_addchdir_np(fa, spec->cwd);
    return rc;
}

enum sbx_code process_start(const struct process_spec *spec, struct process *out,
                            struct sbx_err *err)
{
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    sigset_t none, dflt;
    short flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
    pid_t pid;
    int rc;

    (void)posix_spawn_file_actions_init(&fa);
    (void)posix_spawnattr_init(&attr);
    (void)sigemptyset(&none);
    (void)sigfillset(&dflt);
    (void)posix_spawnattr_setsigmask(&attr, &none);
    (void)posix_spawnattr_setsigdefault(&attr, &dflt);
    if (spec->new_session)
        flags |= POSIX_SPAWN_SETSID;
    (void)posix_spawnattr_setflags(&attr, flags);
    rc = add_files(&fa, spec);
    if (rc == 0)
        rc = posix_spawnp(&pid, spec->argv[0], &fa, &attr, (char *const *)(uintptr_t)spec->argv,
                          spec->env != NULL ? (char *const *)(uintptr_t)spec->env : environ);
    (void)posix_spawn_file_actions_destroy(&fa);
    (void)posix_spawnattr_destroy(&attr);
    if (rc != 0) {
        errno = rc;
        return err_sys(err, SBX_E_INTERNAL, "start %s", spec->argv[0]);
    }
    *out = (struct process){ .pid = pid, .pidfd = pidfd_of(pid) };
    if (out->pidfd < 0) {
        enum sbx_code code = err_sys(err, SBX_E_INTERNAL, "pidfd of %s", spec->argv[0]);

        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
        *out = (struct process){ .pidfd = -1 };
        return code;
    }
    return SBX_OK;
}

static void reap(struct process *p, int *status)
{
    while (waitpid(p->pid, status, 0) < 0 && errno == EINTR)
        continue;
    fd_close(&p->pidfd);
    p->pid = 0;
}

enum sbx_code process_wait(struct process *p, int timeout_ms, int *status, struct sbx_err *err)
{
    int64_t deadline = time_mono_ms() + timeout_ms;

    assert(p->pid > 0);
    for (;;) {
        struct pollfd fd = { .fd = p->pidfd, .events = POLLIN };
        int64_t left = timeout_ms < 0 ? -1 : deadline - time_mono_ms();
        int n = poll(&fd, 1, left < 0 && timeout_ms >= 0 ? 0 : (int)left);

        if (n > 0)
            break;
        if (n < 0 && errno != EINTR)
            return err_sys(err, SBX_E_INTERNAL, "wait for a child");
        if (n == 0)
            return err_set(err, SBX_E_TIMEOUT, "a child did not end in time");
    }
    reap(p, status);
    return SBX_OK;
}

void process_kill(struct process *p, int signal)
{
    if (p->pid > 0)
        (void)syscall(SYS_pidfd_send_signal, p->pidfd, signal, NULL, 0);
}

void process_end(struct process *p)
{
    int status;

    if (p->pid <= 0)
        return;
    process_kill(p, SIGKILL);
    reap(p, &status);
}

/* Feeds input, gathers output, until the output ends, then waits. */
static enum sbx_code pump(struct process *p, int in, int out, const char *input, size_t left,
                          struct buf *kept, int64_t deadline, struct sbx_err *err)
{
    SCOPED_FD int in_fd = in;

    for (;;) {
        struct pollfd fds[2] = { { .fd = out, .events = POLLIN },
                                 { .fd = in_fd, .events = POLLOUT } };
        int64_t wait = deadline - time_mono_ms();
        char part[4096];

        if (left == 0)
            fd_close(&in_fd), fds[1].fd = -1;
        if (wait <= 0)
            return err_set(err, SBX_E_TIMEOUT, "a child did not end in time");
        if (poll(fds, 2, (int)wait) < 0 && errno != EINTR)
            return err_sys(err, SBX_E_INTERNAL, "wait for a child");
        if (fds[1].fd >= 0 && fds[1].revents != 0) {
            ssize_t n = write(in_fd, input, left < PIPE_BUF ? left : PIPE_BUF);

            if (n > 0)
                input += n, left -= (size_t)n;
            else if (n < 0 && errno != EINTR && errno != EAGAIN)
                left = 0; /* it reads no more: its exit status tells why */
        }
        if (fds[0].revents != 0) {
            ssize_t n = read(out, part, sizeof(part));

            if (n == 0)
                return SBX_OK;
            if (n > 0)
                (void)buf_append(kept, part, (size_t)n);
            else if (errno != EINTR && errno != EAGAIN)
                return err_sys(err, SBX_E_INTERNAL, "read a child's output");
        }
    }
    (void)p;
}

static const char *last_line(struct buf *b)
{
    size_t end = b->len;
    size_t start;

    while (end > 0 && (b->data[end - 1] == '\n' || b->data[end - 1] == '\r'))
        end--;
    start = end;
    while (start > 0 && b->data[start - 1] != '\n')
        start--;
    if (b->data == NULL)
        return "";
    b->data[end] = 0;
    return b->data + start;
}

enum sbx_code process_run(const char *const *argv, const void *input, size_t input_len,
                          struct buf *output, int timeout_ms, struct sbx_err *err)
{
    SCOPED_BUF struct buf own = BUF_INIT(OUTPUT_KEPT * 16);
    struct buf *kept = output != NULL ? output : &own;
    int64_t deadline = time_mono_ms() + timeout_ms;
    struct process_spec spec = PROCESS_SPEC_INIT;
    struct process p = { .pidfd = -1 };
    int in[2], out[2];
    int status = 0;
    enum sbx_code code;

    if (pipe2(in, O_CLOEXEC) < 0)
        return err_sys(err, SBX_E_INTERNAL, "pipe");
    if (pipe2(out, O_CLOEXEC) < 0) {
        fd_close(&in[0]), fd_close(&in[1]);
        return err_sys(err, SBX_E_INTERNAL, "pipe");
    }
    spec.argv = argv;
    spec.fd_in = in[0];
    spec.fd_out = spec.fd_err = out[1];
    spec.new_session = true;
    code = process_start(&spec, &p, err);
    fd_close(&in[0]), fd_close(&out[1]);
    if (code == SBX_OK)
        code = pump(&p, in[1], out[0], input, input_len, kept, deadline, err);
    else
        fd_close(&in[1]);
    fd_close(&out[0]);
    if (code == SBX_OK) {
        int64_t left = deadline - time_mono_ms();

        code = process_wait(&p, left > 0 ? (int)left : 0, &status, err);
    }
    if (code != SBX_OK) {
        if (p.pid > 0)
            (void)kill(-p.pid, SIGKILL); /* its own session: what it started goes with it */
        process_end(&p);
        return err_wrap(err, "%s", argv[0]);
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return err_set(err, SBX_E_INTERNAL, "%s: %s", argv[0], last_line(kept));
    return SBX_OK;
}

void process_no_core(void)
{
    static const struct rlimit none;
    /* A program that cores are piped to need not heed the limit: it gets no memory. */
    SCOPED_FD int filter = open("/proc/self/coredump_filter", O_WRONLY | O_CLOEXEC);

    (void)setrlimit(RLIMIT_CORE, &none);
    if (filter >= 0)
        (void)!write(filter, "0", 1);
}
