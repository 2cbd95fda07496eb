#include "region/github.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/scoped.h"

static bool part_valid(const char *p, size_t len)
{
    static const char ALLOWED[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

    return len > 0 && strspn(p, ALLOWED) >= len && !(len == 1 && p[0] == '.') &&
           !(len == 2 && p[0] == '.' && p[1] == '.');
}

bool github_repository_valid(const char *repository)
{
    const char *slash = strchr(repository, '/');

    return slash != NULL &&
           strnlen(repository, GITHUB_REPOSITORY_MAX + 1) <= GITHUB_REPOSITORY_MAX &&
           part_valid(repository, (size_t)(slash - repository)) &&
           part_valid(slash + 1, strlen(slash + 1));
}

static bool rate_limited(const struct net_answer *answer)
{
    const char *remaining = net_header(answer, "X-RateLimit-Remaining");

    return answer->status == 429 ||
           (answer->status == 403 && (net_header(answer, "Retry-After") != NULL ||
                                      (remaining != NULL && strcmp(remaining, "0") == 0)));
}

static enum sbx_code judge_repository(const json_t *repo, struct sbx_err *err)
{
    const json_t *permissions = json_object_get(repo, "permissions");

    if (!json_is_boolean(json_object_get(repo, "private")))
        return err_set(err, SBX_E_UNAVAILABLE,
                       "GitHub's answer about the repository could not be read.");
    if (!json_get_bool(repo, "private", false))
        return err_set(err, SBX_E_REPOSITORY_NOT_PRIVATE, "The repository is not private.");
    if (json_get_bool(repo, "archived", false))
        return err_set(err, SBX_E_REPOSITORY_NO_PUSH, "The repository is archived.");
    if (!json_get_bool(permissions, "push", false))
        return err_set(err, SBX_E_REPOSITORY_NO_PUSH, "The owner may not push to the repository.");
    return SBX_OK;
}

enum sbx_code github_judge(const struct net_answer *answer, struct sbx_err *err)
{
    SCOPED_JSON json_t *repo = NULL;
    struct sbx_err why = { 0 };

    if (rate_limited(answer))
        return err_set(err, SBX_E_UNAVAILABLE, "GitHub's rate limit is reached. Try again later.");
    if (answer->status == 401)
        return err_set(err, SBX_E_GITHUB_CREDENTIAL,
                       "GitHub does not accept the owner's credential.");
    if (answer->status == 403 || answer->status == 404)
        return err_set(err, SBX_E_REPOSITORY_NO_PUSH, "The owner may not push to the repository.");
    if (answer->status != 200)
        return err_set(err, SBX_E_UNAVAILABLE, "GitHub could not answer. Try again later.");
    if (json_parse_object(answer->body, answer->body_len, &repo, &why) != SBX_OK)
        return err_set(err, SBX_E_UNAVAILABLE,
                       "GitHub's answer about the repository could not be read.");
    return judge_repository(repo, err);
}

struct check {
    github_done_fn *done;
    void *arg;
};

static void answered(void *arg, const struct net_answer *answer, const struct sbx_err *err)
{
    struct check check = *(struct check *)arg;
    struct sbx_err mine = { 0 };
    enum sbx_code code;

    free(arg);
    if (err != NULL)
        code = err_set(&mine, SBX_E_UNAVAILABLE, "GitHub could not be reached. Try again later.");
    else
        code = github_judge(answer, &mine);
    check.done(check.arg, code == SBX_OK ? NULL : &mine);
}

enum sbx_code github_check_start(struct net *n, const char *base_url, const char *ca_file,
                                 const char *repository, const struct secret *credential,
                                 github_done_fn *done, void *arg, struct sbx_err *err)
{
    static const char *const HEADERS[] = { "Accept: application/vnd.github+json",
                                           "X-GitHub-Api-Version: 2022-11-28", NULL };
    struct check *check;
    SCOPED_FREE char *url = NULL;
    struct net_spec spec = { 0 };
    enum sbx_code code;

    if (!github_repository_valid(repository))
        return err_field(err, "task.repository", "task.repository must be owner/name.");
    check = mem_zalloc(sizeof(*check));
    *check = (struct check){ .done = done, .arg = arg };
    url = mem_printf("%s/repos/%s", base_url, repository);
    spec.url = url;
    spec.headers = HEADERS;
    spec.bearer = credential;
    spec.ca_file = ca_file;
    spec.answer_max = GITHUB_ANSWER_MAX;
    spec.timeout_ms = GITHUB_TIMEOUT_MS;
    spec.redirects = GITHUB_REDIRECTS_MAX;
    code = net_request_start(n, &spec, answered, check, NULL, err);
    if (code != SBX_OK)
        free(check);
    return code;
}
