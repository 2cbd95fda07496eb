/* bootstrap: the first objects of a standalone server, made once.  Each step looks for what is
 * there by name before it makes it, so a run that was interrupted goes on where it stopped.  Its
 * result is <state>/client.json (where, the certificate there, token file, ids) and <state>/token,
 * both for their owner only. */

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/process.h"
#include "base/scoped.h"
#include "ctl/ctl.h"
#include "sbx/limits.h"

#define FIRST_NAME  "default"
#define FIRST_EMAIL "admin@localhost"
#define FIRST_IMAGE "python3"

enum { IMPORT_MS = 600 * 1000 };

/* The object in `list` (a member of c->answer) whose `key` is `value`; NULL when there is none. */
static const json_t *find(const struct ctl *c, const char *list, const char *key, const char *value)
{
    size_t i;
    json_t *item;

    json_array_foreach(json_object_get(c->answer, list), i,
                       item) if (strcmp(json_get_str(item, key, ""), value) == 0) return item;
    return NULL;
}

/* One thing to find or make: a GET with `query`, then a POST with `body`. */
struct thing {
    enum ctl_side side;
    const char *list_path, *list; /* NULL: make it without looking */
    const char *key, *value;      /* how it is known */
    const char *make_path, *made;
    const char *id; /* the member that is its id */
};

/* Gives the id, in the arena. query and body are taken. */
static enum ctl_exit ensure(struct ctl *c, const struct thing *t, json_t *query, json_t *body,
                            const char **id, struct sbx_err *err)
{
    SCOPED_JSON json_t *q = query;
    SCOPED_JSON json_t *b = body;
    const json_t *got = NULL;
    enum ctl_exit rc = CTL_DONE;

    if (t->list_path != NULL) {
        rc = ctl_call(c, t->side, "GET", t->list_path, q, CTL_CALL_TIMEOUT_MS, err);
        got = rc == CTL_DONE ? find(c, t->list, t->key, t->value) : NULL;
    }
    if (rc == CTL_DONE && got == NULL) {
        rc = ctl_call(c, t->side, "POST", t->make_path, b, CTL_CALL_TIMEOUT_MS, err);
        got = json_object_get(c->answer, t->made);
    }
    if (rc == CTL_DONE)
        *id = arena_strdup(c->arena, json_get_str(got, t->id, ""));
    return rc;
}

struct first {
    const char *account, *user, *app, *region, *template, *image;
};

static enum ctl_exit post(struct ctl *c, const char *path, json_t *body, struct sbx_err *err)
{
    SCOPED_JSON json_t *b = body;

    return ctl_call(c, CTL_ADMIN, "POST", path, b, CTL_CALL_TIMEOUT_MS, err);
}

static enum ctl_exit make_account(struct ctl *c, struct first *f, struct sbx_err *err)
{
    static const struct thing ACCOUNT = { CTL_ADMIN,  "/accounts",       "accounts", "name",
                                          FIRST_NAME, "/account/create", "account",  "accountId" };
    static const struct thing USER = { CTL_ADMIN,   "/users",       "users", "email",
                                       FIRST_EMAIL, "/user/create", "user",  "userId" };
    static const struct thing APP = { CTL_ADMIN,  "/apps",       "apps", "name",
                                      FIRST_NAME, "/app/create", "app",  "appId" };
    enum ctl_exit rc =
        ensure(c, &ACCOUNT, NULL, json_pack("{s:s}", "name", FIRST_NAME), &f->account, err);

    if (rc == CTL_DONE)
        rc = ensure(c, &USER, NULL, json_pack("{s:s}", "email", FIRST_EMAIL), &f->user, err);
    if (rc == CTL_DONE)
        rc = ensure(c, &APP, json_pack("{s:s}", "accountId", f->account),
                    json_pack("{s:s,s:s}", "accountId", f->account, "name", FIRST_NAME), &f->app,
                    err);
    if (rc == CTL_DONE)
        rc = post(c, "/account/entitle",
                  json_pack("{s:s,s:b}", "accountId", f->account, "sandboxes", 1), err);
    if (rc == CTL_DONE)
        rc = post(c, "/member/add",
                  json_pack("{s:s,s:s,s:[s]}", "accountId", f->account, "userId", f->user, "roles",
                            "admin"),
                  err);
    return rc;
}

static enum ctl_exit make_region(struct ctl *c, struct first *f, const char *backend_dir,
                                 struct sbx_err *err)
{
    const char *name = ctl_arg(c, "--region-name");
    const struct thing region = { CTL_ADMIN, "/regions",       "regions", "region",
                                  name,      "/region/create", "region",  "region" };
    const struct thing backend = { CTL_ADMIN, "/backends",       "backends", "region",
                                   name,      "/backend/create", "backend",  "backendId" };
    const char *id;
    enum ctl_exit rc = ensure(c, &region, NULL,
                              json_pack("{s:s,s:s,s:b}", "name", name, "socket",
                                        ctl_arg(c, "--region-socket"), "sandboxes", 1),
                              &f->region, err);

    if (rc == CTL_DONE)
        rc = post(c, "/region/grant",
                  json_pack("{s:s,s:s}", "accountId", f->account, "region", name), err);
    if (rc == CTL_DONE)
        rc = ensure(c, &backend, json_pack("{s:s}", "accountId", f->account),
                    json_pack("{s:s,s:s,s:s,s:s}", "accountId", f->account, "region", name, "kind",
                              "dir", "path", backend_dir),
                    &id, err);
    return rc;
}

/* The token file is written before anything relies on it; a token whose file was lost stays unused.
 */
static enum ctl_exit make_token(struct ctl *c, const struct first *f, const char *path,
                                struct sbx_err *err)
{
    enum ctl_exit rc;
    const char *secret;

    if (access(path, R_OK) == 0)
        return CTL_DONE;
    rc = post(c, "/token/create",
              json_pack("{s:s,s:s,s:s}", "kind", "user", "userId", f->user, "name", "bootstrap"),
              err);
    if (rc != CTL_DONE)
        return rc;
    secret = json_get_str(c->answer, "secret", "");
    if (file_write(path, secret, strlen(secret), 0600, true, err) != SBX_OK)
        return CTL_USAGE;
    return CTL_DONE;
}

/* The image goes in by our own import verb: one place knows how. */
static enum ctl_exit import_image(struct ctl *c, struct first *f, struct sbx_err *err)
{
    const char *argv[] = { "/proc/self/exe",
                           "--json",
                           "--socket",
                           ctl_admin_socket(c),
                           "image",
                           "import",
                           "--region",
                           f->region,
                           "--name",
                           FIRST_IMAGE,
                           "--rootfs",
                           ctl_arg(c, "--rootfs"),
                           NULL };
    SCOPED_BUF struct buf out = BUF_INIT(SBX_KIB(64));
    SCOPED_JSON json_t *answer = NULL;

    if (process_run(argv, NULL, 0, &out, IMPORT_MS, err) != SBX_OK ||
        json_parse_object(out.data, out.len, &answer, err) != SBX_OK) {
        SCOPED_FREE char *why = mem_strdup(err->msg);

        return ctl_fail(err, CTL_REFUSED, "import the first image: %s", why);
    }
    f->image = arena_strdup(c->arena, json_get_str(answer, "reference", ""));
    return CTL_DONE;
}

static enum ctl_exit make_template(struct ctl *c, struct first *f, struct sbx_err *err)
{
    static const struct thing TEMPLATE = { CTL_USER,    "/sandbox-templates",
                                           "templates", "name",
                                           FIRST_IMAGE, "/sandbox-template/save",
                                           "template",  "templateId" };
    SCOPED_JSON json_t *body = NULL;
    enum ctl_exit rc = import_image(c, f, err);

    if (rc == CTL_DONE)
        rc = ensure(c, &TEMPLATE, json_pack("{s:s}", "accountId", f->account),
                    json_pack("{s:s,s:s,s:s}", "accountId", f->account, "name", FIRST_IMAGE,
                              "description", "python3 and a shell, made by the bootstrap"),
                    &f->template, err);
    if (rc != CTL_DONE)
        return rc;
    body =
        json_pack("{s:s,s:s,s:s,s:s,s:[s,s]}", "accountId", f->account, "templateId", f->template,
                  "imageDigest", f->image, "imageRef", FIRST_IMAGE, "command", "sleep", "infinity");
    return ctl_call(c, CTL_USER, "POST", "/sandbox-template/revision", body, CTL_CALL_TIMEOUT_MS,
                    err);
}

static enum ctl_exit write_client(struct ctl *c, const struct first *f, const char *path,
                                  const char *token_file, struct sbx_err *err)
{
    SCOPED_JSON json_t *j = json_object();
    SCOPED_FREE char *text = NULL;

    json_put_str(j, "url", ctl_arg(c, "--public-url"));
    json_put_str(j, "caFile", ctl_arg(c, "--public-ca"));
    json_put_str(j, "adminSocket", ctl_admin_socket(c));
    json_put_str(j, "tokenFile", token_file);
    json_put_str(j, "accountId", f->account);
    json_put_str(j, "userId", f->user);
    json_put_str(j, "appId", f->app);
    json_put_str(j, "region", f->region);
    json_put_str(j, "templateId", f->template);
    json_put_str(j, "imageDigest", f->image);
    text = json_dumps(j, JSON_INDENT(2));
    if (file_write(path, text, strlen(text), 0600, true, err) != SBX_OK)
        return CTL_USAGE;
    return CTL_DONE;
}

/* A later start may have another port: only where we are reached is taken over. */
static enum ctl_exit renew(struct ctl *c, const char *path, struct sbx_err *err)
{
    json_t *j = c->client;
    const struct first f = {
        .account = json_get_str(j, "accountId", NULL),
        .user = json_get_str(j, "userId", NULL),
        .app = json_get_str(j, "appId", NULL),
        .region = json_get_str(j, "region", NULL),
        .template = json_get_str(j, "templateId", NULL),
        .image = json_get_str(j, "imageDigest", NULL),
    };

    return write_client(c, &f, path, json_get_str(j, "tokenFile", ""), err);
}

enum ctl_exit ctl_run_bootstrap(struct ctl *c, struct sbx_err *err)
{
    const char *dir = ctl_arg(c, "--dir");
    const char *path = arena_printf(c->arena, "%s/client.json", dir);
    const char *token = arena_printf(c->arena, "%s/token", dir);
    struct first f = { 0 };
    enum ctl_exit rc;

    c->state = dir;
    if (ctl_client(c) != NULL)
        return renew(c, path, err);
    rc = make_account(c, &f, err);
    if (rc == CTL_DONE)
        rc = make_token(c, &f, token, err);
    if (rc == CTL_DONE)
        rc = make_region(c, &f, arena_printf(c->arena, "%s/backend", dir), err);
    c->url = ctl_arg(c, "--public-url");
    c->ca_file = ctl_arg(c, "--public-ca");
    c->token_file = token;
    if (rc == CTL_DONE && ctl_arg(c, "--rootfs") != NULL)
        rc = make_template(c, &f, err);
    return rc == CTL_DONE ? write_client(c, &f, path, token, err) : rc;
}
