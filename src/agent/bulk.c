/* Bulk jobs: each on a connection of its own, in a process of its own that has the folder as its
 * root, another uid than agent and workload, and what it needs of the capabilities. */

#include "agent/agent.h"
#include "agent/archive.h"
#include "agent/warden_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

enum {
    JOB_WAIT_S = 60,    /* for the job on a fresh connection */
    DROP_WAIT_S = 30,   /* after a failure, for the gateway to stop sending */
    FDS_KEPT = 4,       /* 0 to 2 and the connection */
    FDS_CLOSED = 1024,  /* where the runtime has no close_range */
    WORKER_FILES = 4096 /* one for each folder of a path, and some */
};

struct wire {
    int fd;
    uint32_t left; /* of the DATA frame that is being read */
    bool ended;    /* DATA_END came */
};

static bool recv_all(int fd, void *into, size_t len)
{
    unsigned char *p = into;

    while (len) {
        ssize_t n = recv(fd, p, len, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        p += n;
        len -= (size_t)n;
    }
    return true;
}

static bool send_all(int fd, const void *data, size_t len)
{
    const unsigned char *p = data;

    while (len) {
        ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        p += n;
        len -= (size_t)n;
    }
    return true;
}

static bool read_header(int fd, struct sbx_agent_header *out)
{
    unsigned char head[SBX_AGENT_HEADER_LEN];

    return recv_all(fd, head, sizeof(head)) && sbx_agent_header_parse(head, out);
}

/* One DATA frame around what the packer gives, at most SBX_AGENT_DATA_MAX. */
static bool sink_write(void *ctx, const void *data, size_t len)
{
    const struct wire *w = ctx;
    unsigned char head[SBX_AGENT_HEADER_LEN];

    sbx_agent_header_pack(head, SBX_AGENT_DATA, 0, (uint32_t)len);
    return send_all(w->fd, head, sizeof(head)) && send_all(w->fd, data, len);
}

static ssize_t feed_read(void *ctx, void *into, size_t size)
{
    struct wire *w = ctx;
    ssize_t n;

    while (!w->left && !w->ended) {
        struct sbx_agent_header h;

        if (!read_header(w->fd, &h) || (h.type != SBX_AGENT_DATA && h.type != SBX_AGENT_DATA_END))
            return -1;
        w->ended = h.type == SBX_AGENT_DATA_END;
        w->left = w->ended ? 0 : h.length;
    }
    if (w->ended)
        return 0;
    do {
        n = recv(w->fd, into, w->left < size ? w->left : size, 0);
    } while (n < 0 && errno == EINTR);
    if (n <= 0)
        return -1;
    w->left -= (uint32_t)n;
    return n;
}

static bool send_done(int fd, const struct agent_archive_result *r)
{
    struct agent_queue q = { .max = SBX_AGENT_DATA_MAX };
    bool ok;

    agent_frame_begin(&q, SBX_AGENT_DONE, 0);
    if (r->reason != SBX_AGENT_REASON_NONE) {
        agent_frame_number(&q, SBX_TAG_REASON, (uint64_t)r->reason);
        agent_frame_text(&q, SBX_TAG_MESSAGE, r->message);
    }
    agent_frame_number(&q, SBX_TAG_BYTES, r->bytes);
    agent_frame_number(&q, SBX_TAG_MEMBERS, r->members);
    ok = agent_frame_end(&q) && send_all(fd, q.data, q.len);
    agent_queue_fini(&q);
    return ok;
}

/* The folder becomes the root: even a fault of ours could not reach past it. */
static int enter_folder(const char *path)
{
    int fd = agent_open_folder(AT_FDCWD, path);

    if (fd >= 0 && (fchdir(fd) < 0 || chroot(".") < 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

static bool become_worker(void)
{
    uint64_t caps = AGENT_CAP(CAP_CHOWN) | AGENT_CAP(CAP_DAC_OVERRIDE) | AGENT_CAP(CAP_FOWNER) |
                    AGENT_CAP(CAP_FSETID) | AGENT_CAP(CAP_SETFCAP);

    return syscall(SYS_setresgid, SBX_AGENT_WORKER_UID, SBX_AGENT_WORKER_UID,
                   SBX_AGENT_WORKER_UID) == 0 &&
           syscall(SYS_setresuid, SBX_AGENT_WORKER_UID, SBX_AGENT_WORKER_UID,
                   SBX_AGENT_WORKER_UID) == 0 &&
           agent_caps_set(caps & agent_caps_permitted(), 0) &&
           prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0;
}

static void run_job(struct wire *w, uint8_t type, const struct agent_request *r, int root,
                    struct agent_archive_result *out)
{
    uint64_t max =
        agent_request_has(r, SBX_TAG_MAX_BYTES) ? r->number[SBX_TAG_MAX_BYTES] : UINT64_MAX;
    struct agent_ignore *ignore;

    if (type == SBX_AGENT_UNPACK) {
        agent_unpack(root, max, (struct agent_feed){ feed_read, w }, out);
        return;
    }
    ignore = agent_ignore_new(&r->excludes);
    if (ignore)
        agent_pack(root, ignore, max, (struct agent_sink){ sink_write, w }, out);
    else
        agent_archive_fail(out, SBX_AGENT_REASON_IO, "out of memory", NULL, 0);
    agent_ignore_free(ignore);
}

static void job(const struct agent *a, struct wire *w, uint8_t type, const struct agent_request *r)
{
    struct agent_archive_result result = { 0 };
    char *path = agent_request_has(r, SBX_TAG_PATH) ? agent_span_dup(r->text[SBX_TAG_PATH])
                                                    : strdup(a->workload.workspace);
    int root = path ? enter_folder(path) : -1;

    if (root < 0)
        agent_archive_fail(&result, SBX_AGENT_REASON_IO, "the folder could not be opened", NULL,
                           errno);
    else if (!become_worker())
        agent_archive_fail(&result, SBX_AGENT_REASON_IO, "privileges could not be dropped", NULL,
                           errno);
    else
        run_job(w, type, r, root, &result);
    if (!send_done(w->fd, &result))
        _exit(1);
    if (result.reason != SBX_AGENT_REASON_NONE && type == SBX_AGENT_UNPACK) {
        static unsigned char dropped[SBX_AGENT_DATA_MAX];
        struct timeval wait = { DROP_WAIT_S, 0 };

        setsockopt(w->fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
        while (feed_read(w, dropped, sizeof(dropped)) > 0)
            ;
    }
    _exit(0);
}

/* Away with all that is the agent's: the key first. */
static int shed(struct agent *a, int sock)
{
    const struct rlimit files = { WORKER_FILES, WORKER_FILES };
    sigset_t none;

    munmap(a->key, AGENT_KEY_PAGE);
    if (dup2(sock, FDS_KEPT - 1) < 0)
        _exit(1);
    if (syscall(SYS_close_range, FDS_KEPT, ~0U, 0) < 0) {
        for (int fd = FDS_KEPT; fd < FDS_CLOSED; fd++)
            close(fd);
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    (void)setrlimit(RLIMIT_NOFILE, &files); /* a lower one stays: then depth ends earlier */
    return FDS_KEPT - 1;
}

_Noreturn static void worker(struct agent *a, int sock)
{
    struct wire w = { .fd = shed(a, sock) };
    struct timeval wait = { JOB_WAIT_S, 0 }, forever = { 0, 0 };
    struct sbx_agent_header h;
    unsigned char *payload;
    struct agent_request r;

    setsockopt(w.fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    if (!read_header(w.fd, &h) || (h.type != SBX_AGENT_PACK && h.type != SBX_AGENT_UNPACK))
        _exit(1);
    payload = malloc(h.length ? h.length : 1);
    if (!payload || !recv_all(w.fd, payload, h.length) ||
        !agent_request_parse(payload, h.length, &r))
        _exit(1);
    setsockopt(w.fd, SOL_SOCKET, SO_RCVTIMEO, &forever, sizeof(forever));
    job(a, &w, h.type, &r);
    _exit(1);
}

void agent_bulk_dial(struct agent *a, uint32_t stream, const struct agent_request *r)
{
    pid_t *slot = NULL;
    pid_t pid;
    int sock;

    for (size_t i = 0; i < SBX_AGENT_BULK_MAX && !slot; i++)
        slot = a->bulk[i] ? NULL : &a->bulk[i];
    if (!slot) {
        agent_done(a, stream, SBX_AGENT_REASON_LIMIT, "too many bulk jobs at once");
        return;
    }
    sock = agent_dial(a, SBX_AGENT_BULK, r->number[SBX_TAG_DIAL_ID], 0);
    pid = sock < 0 ? -1 : fork();
    if (pid == 0)
        worker(a, sock);
    if (sock >= 0)
        close(sock);
    if (pid < 0)
        agent_done(a, stream, SBX_AGENT_REASON_IO, "a bulk connection could not be made");
    else
        *slot = pid;
}

void agent_bulk_reaped(struct agent *a, pid_t pid)
{
    for (size_t i = 0; i < SBX_AGENT_BULK_MAX; i++) {
        if (a->bulk[i] == pid)
            a->bulk[i] = 0;
    }
}
