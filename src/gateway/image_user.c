#include <stdlib.h>
#include <string.h>

#include "base/scoped.h"
#include "base/str.h"
#include "gateway/image_impl.h"

/* USER of an image: "", "name", "uid", "name:group", "uid:gid" and mixtures, looked up in the
 * image's own passwd and group as the OCI image specification says. */

enum { ACCOUNT_FILE_MAX = 1 << 20, FIELDS_MAX = 8, NAME_MAX_LEN = 64 };

#define ID_TOP 0xfffffffeLL

/* Splits one line at ':' in place. */
static size_t fields(char *line, char *out[FIELDS_MAX])
{
    size_t n = 0;

    for (char *p = line; p != NULL && n < FIELDS_MAX; n++) {
        out[n] = p;
        p = strchr(p, ':');
        if (p != NULL)
            *p++ = 0;
    }
    return n;
}

static char *next_line(char **rest)
{
    char *line = *rest;
    char *end;

    if (line == NULL || *line == 0)
        return NULL;
    end = strchr(line, '\n');
    if (end != NULL)
        *end++ = 0;
    *rest = end;
    return line;
}

static bool number(const char *text, uint32_t *out)
{
    int64_t v;

    if (!str_parse_int(text, 0, ID_TOP, &v))
        return false;
    *out = (uint32_t)v;
    return true;
}

/* The passwd line of a name or a uid. */
static bool passwd_find(char *text, const char *who, bool numeric, uint32_t uid, char *name,
                        struct arena *a, struct image *out)
{
    for (char *rest = text, *line; (line = next_line(&rest)) != NULL;) {
        char *f[FIELDS_MAX];
        uint32_t u, g;

        if (fields(line, f) < 6 || !number(f[2], &u) || !number(f[3], &g))
            continue;
        if (numeric ? u != uid : strcmp(f[0], who) != 0)
            continue;
        out->uid = u;
        out->gid = g;
        (void)str_copy(name, NAME_MAX_LEN, f[0]);
        if (f[5][0] == '/')
            out->home = arena_strdup(a, f[5]);
        return true;
    }
    return false;
}

static bool in_list(const char *list, const char *name)
{
    size_t len = strlen(name);

    for (const char *p = list; p != NULL && len > 0;) {
        size_t n = strcspn(p, ",");

        if (n == len && strncmp(p, name, n) == 0)
            return true;
        p = p[n] == ',' ? p + n + 1 : NULL;
    }
    return false;
}

/* Finds want (when not NULL) and otherwise gathers the groups that name is a member of. */
static bool groups_read(char *text, const char *want, const char *name, struct image *out)
{
    for (char *rest = text, *line; (line = next_line(&rest)) != NULL;) {
        char *f[FIELDS_MAX];
        uint32_t g;

        if (fields(line, f) < 4 || !number(f[2], &g))
            continue;
        if (want != NULL && strcmp(f[0], want) == 0) {
            out->gid = g;
            return true;
        }
        if (want == NULL && in_list(f[3], name) && g != out->gid &&
            out->group_count < IMAGE_GROUPS_MAX)
            out->groups[out->group_count++] = g;
    }
    return false;
}

/* A missing file is an empty one: images without users are common. */
static enum sbx_code read_accounts(int root_fd, const char *path, struct buf *b,
                                   struct sbx_err *err)
{
    struct sbx_err why = { 0 };
    enum sbx_code code = image_fs_read_in(root_fd, path, ACCOUNT_FILE_MAX, b, &why);

    if (code == SBX_E_NOT_FOUND) {
        (void)buf_puts(b, "");
        return SBX_OK;
    }
    if (code != SBX_OK)
        *err = why;
    return code;
}

enum sbx_code image_user_resolve(int root_fd, const char *user, struct arena *a, struct image *out,
                                 struct sbx_err *err)
{
    SCOPED_BUF struct buf passwd = BUF_INIT(ACCOUNT_FILE_MAX * 2);
    SCOPED_BUF struct buf group = BUF_INIT(ACCOUNT_FILE_MAX * 2);
    char who[NAME_MAX_LEN * 2 + 2];
    char name[NAME_MAX_LEN] = "";
    char *want_group;
    uint32_t uid = 0;
    bool numeric;
    enum sbx_code code;

    if (!str_copy(who, sizeof(who), user[0] != 0 ? user : "0"))
        return err_set(err, SBX_E_INVALID, "the image's user is too long");
    want_group = strchr(who, ':');
    if (want_group != NULL)
        *want_group++ = 0;
    code = read_accounts(root_fd, "/etc/passwd", &passwd, err);
    if (code == SBX_OK)
        code = read_accounts(root_fd, "/etc/group", &group, err);
    if (code != SBX_OK)
        return code;
    out->uid = out->gid = 0;
    out->group_count = 0;
    out->home = "/";
    numeric = number(who, &uid);
    if (passwd.data != NULL && passwd_find(passwd.data, who, numeric, uid, name, a, out))
        ;
    else if (numeric)
        out->uid = uid;
    else
        return err_set(err, SBX_E_INVALID, "the image's user %.60s is not in its passwd", who);
    if (want_group != NULL && want_group[0] != 0) {
        if (number(want_group, &out->gid))
            return SBX_OK;
        if (group.data == NULL || !groups_read(group.data, want_group, NULL, out))
            return err_set(err, SBX_E_INVALID, "the image's group %.60s is not in its group file",
                           want_group);
    } else if (group.data != NULL) {
        (void)groups_read(group.data, NULL, name, out);
    }
    return SBX_OK;
}
