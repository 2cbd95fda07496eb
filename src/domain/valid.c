#include "domain/valid.h"

#include <stdio.h>
#include <string.h>

#include "base/id.h"
#include "base/str.h"
#include "domain/sandbox_state.h"
#include "sbx/limits.h"

static const char LOWER[] = "abcdefghijklmnopqrstuvwxyz";
static const char LOWER_DIGIT_HYPHEN[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
static const char WORD[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
static const char TOKEN[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
static const char REPOSITORY[] = "abcdefghijklmnopqrstuvwxyz0123456789._-/";

/* Where a volume may not be mounted (contract 2); each also stands for what is below it. */
static const char *const SYSTEM_PATHS[] = { "/proc", "/sys",  "/dev", "/etc", "/usr",
                                            "/bin",  "/sbin", "/lib", "/run", "/var/run" };

static bool only(const char *text, const char *set)
{
    return text[strspn(text, set)] == '\0';
}

static bool blank(const char *text)
{
    return text[strspn(text, " \t\r\n")] == '\0';
}

static bool has_control(const char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            return true;
    }
    return false;
}

enum sbx_code valid_name(const char *field, const char *text, struct sbx_err *err)
{
    if (blank(text) || has_control(text) || utf8_count(text) > VALID_NAME_MAX)
        return err_field(err, field, "%s must be 1 to %d characters, without control characters",
                         field, VALID_NAME_MAX);
    return SBX_OK;
}

enum sbx_code valid_description(const char *field, const char *text, struct sbx_err *err)
{
    if (utf8_count(text) > VALID_DESCRIPTION_MAX)
        return err_field(err, field, "%s must be at most %d characters", field,
                         VALID_DESCRIPTION_MAX);
    return SBX_OK;
}

enum sbx_code valid_key(const char *field, const char *text, struct sbx_err *err)
{
    if (!*text || utf8_count(text) > VALID_KEY_MAX)
        return err_field(err, field, "%s must be 1 to %d characters", field, VALID_KEY_MAX);
    return SBX_OK;
}

enum sbx_code valid_id(const char *field, const char *text, struct sbx_err *err)
{
    if (!id_valid(text))
        return err_field(err, field, "%s must be an id of %d lower-case letters and digits", field,
                         SBX_ID_LEN);
    return SBX_OK;
}

/* host[:port]/path[:tag] as image references are written; only the digest decides anything. */
static bool repository_valid(const char *text, size_t len)
{
    char copy[VALID_IMAGE_MAX + 1];
    char *slash, *colon;

    if (len == 0 || len > VALID_IMAGE_MAX)
        return false;
    memcpy(copy, text, len);
    copy[len] = '\0';
    slash = strrchr(copy, '/');
    colon = strrchr(copy, ':');
    if (colon && (!slash || colon > slash)) { /* a tag */
        if (colon[1] == '\0' || strlen(colon + 1) > 128 || !only(colon + 1, TOKEN) ||
            colon[1] == '.' || colon[1] == '-')
            return false;
        *colon = '\0';
    }
    slash = strchr(copy, '/');
    colon = strchr(copy, ':');
    if (colon) { /* a port, in the first part only */
        char *end = colon + 1 + strspn(colon + 1, "0123456789");

        if (!slash || end != slash || end == colon + 1 || colon == copy)
            return false;
        memmove(colon, end, strlen(end) + 1);
    }
    if (!only(copy, REPOSITORY) || copy[0] == '/' || copy[0] == '-' || copy[0] == '.')
        return false;
    return copy[0] != '\0' && copy[strlen(copy) - 1] != '/' && !strstr(copy, "//") &&
           !strstr(copy, "..");
}

enum sbx_code valid_image_digest(const char *field, const char *text, struct sbx_err *err)
{
    static const char mark[] = "@sha256:";
    const char *at = strchr(text, '@');

    if (strlen(text) > VALID_IMAGE_MAX || !at || strncmp(at, mark, sizeof(mark) - 1) != 0 ||
        strlen(at) != sizeof(mark) - 1 + 64 || !only(at + sizeof(mark) - 1, "0123456789abcdef") ||
        !repository_valid(text, (size_t)(at - text)))
        return err_field(err, field,
                         "%s must be repository@sha256:<64 lower-case hexadecimal digits>", field);
    return SBX_OK;
}

enum sbx_code valid_image_ref(const char *field, const char *text, struct sbx_err *err)
{
    if (!*text || strlen(text) > VALID_IMAGE_MAX || has_control(text))
        return err_field(err, field, "%s must be 1 to %d bytes", field, VALID_IMAGE_MAX);
    return SBX_OK;
}

/* Absolute, no empty part, no "." or "..", no slash at the end (but "/" itself), no control. */
static bool path_normal(const char *text)
{
    if (text[0] != '/' || strlen(text) >= VALID_PATH_MAX || has_control(text))
        return false;
    if (text[1] == '\0')
        return true;
    for (const char *p = text; *p;) {
        size_t len = strcspn(p + 1, "/");

        if (len == 0 || (len == 1 && p[1] == '.') || (len == 2 && p[1] == '.' && p[2] == '.'))
            return false;
        p += 1 + len;
    }
    return true;
}

static bool below(const char *path, const char *folder)
{
    size_t len = strlen(folder);

    return strncmp(path, folder, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

enum sbx_code valid_mount_path(const char *field, const char *text, struct sbx_err *err)
{
    if (!path_normal(text))
        return err_field(err, field, "%s must be an absolute path without . or .. parts", field);
    if (strcmp(text, "/") == 0 || strcmp(text, "/workspace") == 0)
        return err_field(err, field, "%s may not be %s", field, text);
    for (size_t i = 0; i < COUNT_OF(SYSTEM_PATHS); i++) {
        if (below(text, SYSTEM_PATHS[i]))
            return err_field(err, field, "%s may not be %s or below it", field, SYSTEM_PATHS[i]);
    }
    return SBX_OK;
}

enum sbx_code valid_working_dir(const char *field, const char *text, struct sbx_err *err)
{
    if (!path_normal(text))
        return err_field(err, field, "%s must be an absolute path without . or .. parts", field);
    return SBX_OK;
}

enum sbx_code valid_volume_name(const char *field, const char *text, struct sbx_err *err)
{
    size_t len = strlen(text);

    if (len == 0 || len > VALID_VOLUME_NAME_MAX || !only(text, LOWER_DIGIT_HYPHEN) ||
        !strchr(LOWER, text[0]))
        return err_field(err, field,
                         "%s must be 1 to %d of a-z, 0-9 and hyphen, starting with a letter", field,
                         VALID_VOLUME_NAME_MAX);
    return SBX_OK;
}

enum sbx_code valid_region_name(const char *field, const char *text, struct sbx_err *err)
{
    return valid_volume_name(field, text, err);
}

enum sbx_code valid_env_name(const char *field, const char *text, struct sbx_err *err)
{
    if (text[0] == '\0' || !only(text, WORD) || strchr("0123456789", text[0]))
        return err_field(err, field,
                         "%s: a variable name is a letter or underscore, then letters, digits and "
                         "underscores",
                         field);
    return SBX_OK;
}

enum sbx_code valid_argument(const char *field, const char *text, struct sbx_err *err)
{
    if (strlen(text) > SBX_ARG_MAX)
        return err_field(err, field, "%s: one argument or value may have at most %d bytes", field,
                         SBX_ARG_MAX);
    return SBX_OK;
}

enum sbx_code valid_run_id(const char *field, const char *text, struct sbx_err *err)
{
    size_t len = strlen(text);

    if (len == 0 || len > VALID_RUN_ID_MAX || !only(text, TOKEN) || strcmp(text, "claim") == 0)
        return err_field(err, field, "%s must be 1 to %d of A-Z, a-z, 0-9, dot, underscore, hyphen",
                         field, VALID_RUN_ID_MAX);
    return SBX_OK;
}

enum sbx_code valid_exclude(const char *field, const char *text, struct sbx_err *err)
{
    if (blank(text) || strlen(text) > VALID_EXCLUDE_MAX || strpbrk(text, "\r\n"))
        return err_field(err, field, "%s: a pattern is one line of 1 to %d bytes", field,
                         VALID_EXCLUDE_MAX);
    return SBX_OK;
}

enum sbx_code valid_network_entry(const char *field, const char *text, struct sbx_err *err)
{
    if (strlen(text) > VALID_NETWORK_ENTRY_MAX)
        return err_field(err, field, "%s: an entry has at most %d bytes", field,
                         VALID_NETWORK_ENTRY_MAX);
    return SBX_OK;
}

static enum sbx_code valid_argv(const char *field, const char *const *argv, size_t count, int max,
                                struct sbx_err *err)
{
    if (count == 0 || count > (size_t)max)
        return err_field(err, field, "%s must have 1 to %d strings", field, max);
    if (!argv[0][0])
        return err_field(err, field, "%s: the first string may not be empty", field);
    for (size_t i = 0; i < count; i++) {
        if (valid_argument(field, argv[i], err))
            return err->code;
    }
    return SBX_OK;
}

enum sbx_code valid_command(const char *field, const char *const *argv, size_t count,
                            struct sbx_err *err)
{
    return valid_argv(field, argv, count, SBX_COMMAND_MAX, err);
}

enum sbx_code valid_exec_command(const char *field, const char *const *argv, size_t count,
                                 struct sbx_err *err)
{
    return valid_argv(field, argv, count, SBX_EXEC_ARGS_MAX, err);
}

enum sbx_code valid_excludes(const char *field, const char *const *patterns, size_t count,
                             struct sbx_err *err)
{
    if (count > VALID_EXCLUDES_MAX)
        return err_field(err, field, "%s may have at most %d patterns", field, VALID_EXCLUDES_MAX);
    for (size_t i = 0; i < count; i++) {
        if (valid_exclude(field, patterns[i], err))
            return err->code;
    }
    return SBX_OK;
}

enum sbx_code valid_range(const char *field, int64_t v, int64_t min, int64_t max,
                          struct sbx_err *err)
{
    if (v < min || v > max)
        return err_field(err, field, "%s must be %lld to %lld", field, (long long)min,
                         (long long)max);
    return SBX_OK;
}

enum sbx_code valid_warm_pool(const char *field, int64_t desired, int64_t min, int64_t max,
                              struct sbx_err *err)
{
    if (min < 0 || desired < min || max < desired || max > VALID_WARM_MAX)
        return err_field(err, field, "%s must have 0 <= min <= desired <= max <= %d", field,
                         VALID_WARM_MAX);
    return SBX_OK;
}

static bool any_filled(const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!blank(list[i]))
            return true;
    }
    return false;
}

enum sbx_code valid_network(bool enabled, const char *const *addresses, size_t naddresses,
                            const char *const *domains, size_t ndomains, struct sbx_err *err)
{
    static const char field[] = "networkControl";

    if (naddresses > VALID_NETWORK_ENTRIES_MAX || ndomains > VALID_NETWORK_ENTRIES_MAX)
        return err_field(err, field, "%s: a list has at most %d entries", field,
                         VALID_NETWORK_ENTRIES_MAX);
    if (enabled && !any_filled(addresses, naddresses))
        return err_field(err, "networkControl.addressAllowlist",
                         "enabled address restrictions need at least one address that is not "
                         "blank");
    if (ndomains > 0 && !any_filled(domains, ndomains))
        return err_field(err, "networkControl.domainAllowlist",
                         "domainAllowlist may not be made of blank entries only");
    for (size_t i = 0; i < naddresses; i++) {
        if (valid_network_entry("networkControl.addressAllowlist", addresses[i], err))
            return err->code;
    }
    for (size_t i = 0; i < ndomains; i++) {
        if (valid_network_entry("networkControl.domainAllowlist", domains[i], err))
            return err->code;
    }
    return SBX_OK;
}

enum sbx_code valid_owner_kind(const char *profile, const char *owner_kind, struct sbx_err *err)
{
    enum sandbox_profile p;

    if (!sandbox_profile_parse(profile, &p))
        return err_field(err, "workloadProfile",
                         "workloadProfile must be TESS_CODE_TURN, QUAVE_INTERACTIVE_AGENT or "
                         "QUAVE_AUTOMATION_RUN");
    if (strcmp(owner_kind, sandbox_profile_owner_kind(p)) != 0)
        return err_field(err, "ownerKind", "ownerKind must be %s for %s",
                         sandbox_profile_owner_kind(p), profile);
    return SBX_OK;
}

enum sbx_code valid_cwd(const char *text, char out[VALID_PATH_MAX], struct sbx_err *err)
{
    size_t len = 0; /* of out, without the slash before the next part */

    if (!*text || strlen(text) >= VALID_PATH_MAX)
        return err_field(err, "cwd", "cwd must be 1 to %d bytes", VALID_PATH_MAX - 1);
    if (text[0] == '/') {
        (void)str_copy(out, VALID_PATH_MAX, text);
        return SBX_OK;
    }
    for (const char *p = text; *p;) {
        size_t part = strcspn(p, "/");

        if (part == 2 && p[0] == '.' && p[1] == '.') {
            if (len == 0) {
                (void)str_copy(err->field, sizeof(err->field), "cwd");
                return err_set(err, SBX_E_PATH_ESCAPE, "cwd may not leave /workspace");
            }
            while (len > 0 && out[len - 1] != '/')
                len--;
            len -= len > 0;
        } else if (part > 0 && !(part == 1 && p[0] == '.')) {
            if (len > 0)
                out[len++] = '/';
            memcpy(out + len, p, part);
            len += part;
        }
        p += part;
        p += strspn(p, "/");
    }
    out[len] = '\0';
    if (len == 0)
        (void)str_copy(out, VALID_PATH_MAX, ".");
    return SBX_OK;
}

bool valid_request_id(const char *text)
{
    size_t len = strlen(text);

    return len >= VALID_REQUEST_ID_MIN && len <= VALID_REQUEST_ID_MAX && only(text, TOKEN);
}
