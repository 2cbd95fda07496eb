/* What WELCOME says about the workload, and the environment of its processes. */

#include "agent/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PASSWD_MAX = 1024 * 1024 };

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static uint32_t id_of(const struct agent_request *r, enum sbx_agent_tag tag)
{
    return agent_request_has(r, tag) ? (uint32_t)r->number[tag] : 0;
}

static bool ids_valid(const struct agent_request *r)
{
    return r->number[SBX_TAG_UID] < SBX_AGENT_UID && r->number[SBX_TAG_GID] < SBX_AGENT_UID;
}

bool agent_workload_set(struct agent *a, unsigned char *payload_take, size_t len)
{
    struct agent_workload *w = &a->workload;
    struct agent_request r;
    struct agent_span workspace = { "/workspace", 10 };

    if (!agent_request_parse(payload_take, len, &r) || !ids_valid(&r) ||
        r.text[SBX_TAG_KEY].len != SBX_AGENT_KEY_LEN || r.groups.count > AGENT_GROUPS_MAX ||
        r.env.count > AGENT_ENV_MAX)
        goto fail;
    if (agent_request_has(&r, SBX_TAG_WORKSPACE))
        workspace = r.text[SBX_TAG_WORKSPACE];
    w->workspace = agent_span_dup(workspace);
    w->cwd = agent_span_dup(agent_request_has(&r, SBX_TAG_CWD) ? r.text[SBX_TAG_CWD] : workspace);
    if (!w->workspace || !w->cwd)
        goto fail;
    w->uid = id_of(&r, SBX_TAG_UID);
    w->gid = id_of(&r, SBX_TAG_GID);
    for (size_t i = 0; i < r.groups.count; i++)
        w->groups[w->group_count++] =
            (uint32_t)sbx_agent_get_u64((const unsigned char *)r.groups.items[i].data);
    w->nproc = r.number[SBX_TAG_NPROC];
    w->proxy = r.number[SBX_TAG_PROXY] == 1;
    w->personal = r.number[SBX_TAG_PERSONAL] == 1;
    if (w->personal && !agent_files_init(a))
        goto fail; /* a holder without a private place would leak: better none */
    memcpy(a->key, r.text[SBX_TAG_KEY].data, SBX_AGENT_KEY_LEN);
    explicit_bzero(payload_take + (r.text[SBX_TAG_KEY].data - (const char *)payload_take),
                   SBX_AGENT_KEY_LEN);
    a->has_key = true;
    if (w->proxy && !agent_relay_start(a))
        goto fail;
    w->known = true;
    w->request = r;
    w->payload = payload_take;
    if (r.number[SBX_TAG_HOLD] != 1)
        agent_command_start(a);
    return true;
fail:
    free(w->workspace);
    free(w->cwd);
    w->workspace = w->cwd = NULL;
    w->group_count = 0;
    agent_request_fini(&r);
    free(payload_take);
    return false;
}

/* name:password:uid:gid:gecos:home:shell.  False: not this user's line. */
static bool passwd_line(char *line, uint32_t uid, char *home, size_t size)
{
    char *field[7] = { line };
    size_t n = 1;
    char *end;

    for (char *p = line; *p && n < 7; p++) {
        if (*p == ':') {
            *p = '\0';
            field[n++] = p + 1;
        }
    }
    if (n < 6 || !field[2][0] || strtoul(field[2], &end, 10) != uid || *end || field[5][0] != '/')
        return false;
    return snprintf(home, size, "%s", field[5]) < (int)size;
}

/* The image's /etc/passwd is tenant's data: a plain file of a bounded size, else "/". */
static void read_home(uint32_t uid, char *home, size_t size)
{
    int fd = open("/etc/passwd", O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    char *text = NULL;
    ssize_t len = -1;
    char *rest;
    bool found = false;

    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size < PASSWD_MAX) {
        text = malloc((size_t)st.st_size + 1);
        if (text)
            len = read(fd, text, (size_t)st.st_size);
    }
    if (fd >= 0)
        close(fd);
    if (len > 0) {
        text[len] = '\0';
        rest = text;
        for (char *line; !found && (line = strsep(&rest, "\n"));)
            found = passwd_line(line, uid, home, size);
    }
    free(text);
    if (!found)
        (void)snprintf(home, size, "%s", uid == 0 ? "/root" : "/");
}

/* The answer for the last uid is kept while the file stays as it is. */
static void find_home(uint32_t uid, char *home, size_t size)
{
    static char last[PATH_MAX];
    static uint32_t last_uid = UINT32_MAX;
    static struct stat seen;
    struct stat st = { 0 };

    (void)stat("/etc/passwd", &st);
    if (uid != last_uid || st.st_ino != seen.st_ino || st.st_size != seen.st_size ||
        st.st_mtim.tv_sec != seen.st_mtim.tv_sec || st.st_mtim.tv_nsec != seen.st_mtim.tv_nsec) {
        read_home(uid, last, sizeof(last));
        last_uid = uid;
        seen = st;
    }
    (void)snprintf(home, size, "%s", last);
}

static bool same_name(struct agent_span a, struct agent_span b)
{
    const char *end = memchr(a.data, '=', a.len);
    size_t n = end ? (size_t)(end - a.data) + 1 : a.len;

    return b.len >= n && memcmp(a.data, b.data, n) == 0;
}

static bool has_name(const struct agent_list *list, struct agent_span s)
{
    for (size_t i = 0; i < list->count; i++) {
        if (same_name(s, list->items[i]))
            return true;
    }
    return false;
}

struct agent_span *agent_workload_env(const struct agent *a, uint32_t uid,
                                      const struct agent_list *over, char *home_out,
                                      size_t *count_out)
{
    const struct agent_list *base = &a->workload.request.env;
    struct agent_span defaults[2] = { { "PATH=" DEFAULT_PATH, sizeof("PATH=" DEFAULT_PATH) - 1 } };
    struct agent_span *env = calloc(base->count + over->count + 2, sizeof(*env));
    size_t n = 0;

    if (!env)
        return NULL;
    memcpy(home_out, "HOME=", 5);
    find_home(uid, home_out + 5, PATH_MAX - 5);
    defaults[1] = (struct agent_span){ home_out, strlen(home_out) };
    for (size_t i = 0; i < 2; i++) {
        if (!has_name(base, defaults[i]) && !has_name(over, defaults[i]))
            env[n++] = defaults[i];
    }
    for (size_t i = 0; i < base->count; i++) {
        if (!has_name(over, base->items[i]))
            env[n++] = base->items[i];
    }
    for (size_t i = 0; i < over->count; i++)
        env[n++] = over->items[i];
    *count_out = n;
    return env;
}
