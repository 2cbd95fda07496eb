/* /opt/warren/run of the test image: proves what a run receives, then does what its prompt says.
 *
 * The prompt is a JSON object: {"expect": {"auth", "github", "callbackToken", "eventIngestToken",
 * "runId", "controlHost", "repository"}, "refresh": "next sign-in", "exit": n, "hang": bool,
 * "attack": bool, "signal": n}. Exit 100 + n: check n below failed; the test reads it as a
 * witnessed exit code.
 */

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <jansson.h>

#include "sbx/agent.h"

enum { INPUT_MAX = 1024 * 1024, TEXT_MAX = 128 * 1024, TMPFS = 0x01021994 };

extern char **environ;

static void check(int number, bool ok)
{
    if (!ok)
        exit(100 + number);
}

static char *read_all(int fd, size_t max, size_t *len)
{
    char *data = calloc(1, max + 1);
    ssize_t n;

    check(1, data != NULL);
    *len = 0;
    while (*len < max && (n = read(fd, data + *len, max - *len)) > 0)
        *len += (size_t)n;
    return data;
}

static const char *text(const json_t *j, const char *key)
{
    const char *s = json_string_value(json_object_get(j, key));

    return s != NULL ? s : "";
}

/* 0600, ours, on a tmpfs, and with the content that the owner stored. */
static void check_file(int number, const char *path, const char *want)
{
    FILE *f = fopen(path, "r");
    struct stat st;
    struct statfs fs;
    size_t len;
    char *got;

    check(number, f != NULL && fstat(fileno(f), &st) == 0 && fstatfs(fileno(f), &fs) == 0);
    check(number, (st.st_mode & 07777) == 0600 && st.st_uid == geteuid() && fs.f_type == TMPFS);
    got = read_all(fileno(f), TEXT_MAX, &len);
    check(number, strcmp(got, want) == 0);
    free(got);
    (void)fclose(f);
}

static bool mentions(const char *where, const json_t *expect)
{
    const char *const secrets[] = { "auth", "github", "callbackToken", "eventIngestToken" };

    for (size_t i = 0; i < sizeof(secrets) / sizeof(secrets[0]); i++) {
        if (strstr(where, text(expect, secrets[i])) != NULL)
            return true;
    }
    return false;
}

/* Says HELLO to the agent's socket; true when the gateway answers with anything. */
static bool dial(const unsigned char *key)
{
    struct sockaddr_un to = { .sun_family = AF_UNIX, .sun_path = SBX_AGENT_SOCKET };
    unsigned char frame[SBX_AGENT_HEADER_LEN + 14 + 6 + SBX_AGENT_KEY_LEN];
    unsigned char *p = frame + SBX_AGENT_HEADER_LEN;
    struct timeval limit = { .tv_sec = 2 };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char answer;
    bool got;

    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
        if (fd >= 0)
            (void)close(fd);
        return false;
    }
    sbx_agent_put_u16(p, SBX_TAG_KIND);
    sbx_agent_put_u32(p + 2, 8);
    sbx_agent_put_u64(p + 6, SBX_AGENT_CONTROL);
    p += 14;
    if (key != NULL) {
        sbx_agent_put_u16(p, SBX_TAG_KEY);
        sbx_agent_put_u32(p + 2, SBX_AGENT_KEY_LEN);
        memcpy(p + 6, key, SBX_AGENT_KEY_LEN);
        p += 6 + SBX_AGENT_KEY_LEN;
    }
    sbx_agent_header_pack(frame, SBX_AGENT_HELLO, 0, (uint32_t)(p - frame - SBX_AGENT_HEADER_LEN));
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    (void)!write(fd, frame, (size_t)(p - frame));
    got = read(fd, &answer, 1) == 1;
    (void)close(fd);
    return got;
}

static int open_memory_of_init(void)
{
    int fd = open("/proc/1/mem", O_RDWR | O_CLOEXEC);

    if (fd >= 0 && getppid() == 1) { /* our own namespace's init is ours to read, not the agent */
        (void)close(fd);
        return -1;
    }
    return fd;
}

/* What a hostile entrypoint tries: nothing of it may change how its own exit is witnessed. */
static void attack(void)
{
    const unsigned char wrong[SBX_AGENT_KEY_LEN] = { 1, 2, 3 };

    check(20, !dial(NULL));
    check(21, !dial(wrong));
    for (int pid = 1; pid < 100; pid++) {
        if (pid == getpid() || pid == getppid()) /* ending its own namespace ends itself, as 137 */
            continue;
        (void)kill(pid, SIGKILL);
        check(22, ptrace(PTRACE_ATTACH, pid, NULL, NULL) != 0 || pid != 1);
    }
    check(23, open_memory_of_init() < 0);
}

int main(int argc, char **argv)
{
    size_t len;
    char *input = read_all(STDIN_FILENO, INPUT_MAX, &len);
    json_t *job = json_loads(input, 0, NULL);
    json_t *task = json_object_get(job, "task");
    json_t *files = json_object_get(job, "files");
    json_t *prompt = json_loads(text(task, "prompt"), 0, NULL);
    json_t *expect = json_object_get(prompt, "expect");
    FILE *f;

    check(2, argc == 1);
    check(3, job != NULL && prompt != NULL && expect != NULL);
    check(4, strcmp(text(job, "runId"), text(expect, "runId")) == 0 &&
                 strcmp(text(job, "controlHost"), text(expect, "controlHost")) == 0 &&
                 strcmp(text(task, "repository"), text(expect, "repository")) == 0 &&
                 json_integer_value(json_object_get(task, "tokenLimit")) > 0);
    check_file(5, text(files, "auth"), text(expect, "auth"));
    check_file(6, text(files, "github"), text(expect, "github"));
    check_file(7, text(files, "callbackToken"), text(expect, "callbackToken"));
    check_file(8, text(files, "eventIngestToken"), text(expect, "eventIngestToken"));
    for (char **e = environ; *e != NULL; e++)
        check(9, !mentions(*e, expect));
    check(10, !mentions(argv[0], expect));
    if (json_is_true(json_object_get(prompt, "attack")))
        attack();
    if (json_is_integer(json_object_get(prompt, "signal")))
        (void)kill(getpid(), (int)json_integer_value(json_object_get(prompt, "signal")));
    if (json_is_true(json_object_get(prompt, "hang"))) {
        for (;;)
            (void)pause();
    }
    f = fopen(text(files, "auth"), "w");
    check(11, f != NULL && fputs(text(prompt, "refresh"), f) >= 0 && fclose(f) == 0);
    return (int)json_integer_value(json_object_get(prompt, "exit"));
}
