#include "store/db.h"
#include "store/runs.h"

#include "base/id.h"

#define INSTALLATION_COLUMNS                                                                       \
    "i.installation_id, i.account_id, i.control_host, i.callback_key, i.status = "                 \
    "'ACTIVE', " STORE_MS("i.created_at")
#define PRINCIPAL_COLUMNS                                                                          \
    "p.principal_id, p.installation_id, array_to_string(p.permissions, ','), " STORE_MS(           \
        "p.created_at")

enum stmt {
    INSTALLATION_CREATE,
    INSTALLATION_GET,
    INSTALLATION_LIST,
    INSTALLATION_ACTIVATE,
    PRINCIPAL_CREATE,
    PRINCIPAL_GET,
    PRINCIPAL_LIST,
    STMT_COUNT
};

const struct store_stmt STORE_STMT_INSTALLATIONS[] = {
    [INSTALLATION_CREATE] = { "installation_create",
                              "INSERT INTO sandboxd.installations AS i (installation_id, "
                              "account_id, control_host, "
                              "callback_key) VALUES ($1, $2, $3, $4) "
                              "RETURNING " INSTALLATION_COLUMNS,
                              4, false },
    [INSTALLATION_GET] = { "installation_get",
                           "SELECT " INSTALLATION_COLUMNS
                           " FROM sandboxd.installations i WHERE i.installation_id = $1",
                           1, true },
    [INSTALLATION_LIST] = { "installation_list",
                            "SELECT " INSTALLATION_COLUMNS " FROM sandboxd.installations i "
                            "WHERE i.account_id = $1 ORDER BY i.installation_id LIMIT 500",
                            1, true },
    [INSTALLATION_ACTIVATE] = { "installation_activate",
                                "UPDATE sandboxd.installations i SET status = CASE WHEN "
                                "$2::boolean THEN 'ACTIVE' "
                                "ELSE 'SUSPENDED' END, updated_at = date_trunc('milliseconds', "
                                "now()) "
                                "WHERE i.installation_id = $1 RETURNING " INSTALLATION_COLUMNS,
                                2, true },
    [PRINCIPAL_CREATE] = { "principal_create",
                           "INSERT INTO sandboxd.principals AS p (principal_id, installation_id, "
                           "permissions) "
                           "VALUES ($1, $2, string_to_array($3, ',')) RETURNING " PRINCIPAL_COLUMNS,
                           3, false },
    [PRINCIPAL_GET] = { "principal_get",
                        "SELECT " PRINCIPAL_COLUMNS ", " INSTALLATION_COLUMNS
                        " FROM sandboxd.principals p JOIN sandboxd.installations i USING "
                        "(installation_id) "
                        "WHERE p.principal_id = $1",
                        1, true },
    [PRINCIPAL_LIST] = { "principal_list",
                         "SELECT " PRINCIPAL_COLUMNS " FROM sandboxd.principals p "
                         "WHERE p.installation_id = $1 ORDER BY p.principal_id LIMIT 500",
                         1, true },
};
const size_t STORE_STMT_INSTALLATIONS_COUNT = STMT_COUNT;

static void read_installation(struct store_row *r, struct store_installation *out)
{
    out->installation_id = store_row_text(r);
    out->account_id = store_row_text(r);
    out->control_host = store_row_text(r);
    out->callback_key = store_row_text(r);
    out->active = store_row_bool(r);
    out->created_at_ms = store_row_int(r);
}

static void read_principal(struct store_row *r, struct store_principal *out)
{
    out->principal_id = store_row_text(r);
    out->installation_id = store_row_text(r);
    out->permissions = store_row_text(r);
    out->created_at_ms = store_row_int(r);
}

static enum sbx_code one_installation(struct store_conn *db, enum stmt which,
                                      const struct store_args *q, const char *what, struct arena *a,
                                      struct store_installation *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_row row = { .a = a };

    if (store_run_one(db, &STORE_STMT_INSTALLATIONS[which], q, what, &res, err) != SBX_OK)
        return err->code;
    row.res = res;
    *out = (struct store_installation){ 0 };
    read_installation(&row, out);
    return SBX_OK;
}

enum sbx_code store_installation_create(struct store_conn *db, const char *account_id,
                                        const char *control_host, const char *callback_key,
                                        struct arena *a, struct store_installation *out,
                                        struct sbx_err *err)
{
    struct store_args q = { 0 };
    char id[ID_SIZE];

    id_new(id);
    store_arg_text(&q, id);
    store_arg_text(&q, account_id);
    store_arg_text(&q, control_host);
    store_arg_text(&q, callback_key);
    return one_installation(db, INSTALLATION_CREATE, &q, "account", a, out, err);
}

enum sbx_code store_installation_get(struct store_conn *db, const char *installation_id,
                                     struct arena *a, struct store_installation *out,
                                     struct sbx_err *err)
{
    struct store_args q = { 0 };

    store_arg_text(&q, installation_id);
    return one_installation(db, INSTALLATION_GET, &q, "installation", a, out, err);
}

enum sbx_code store_installation_activate(struct store_conn *db, const char *installation_id,
                                          bool active, struct arena *a,
                                          struct store_installation *out, struct sbx_err *err)
{
    struct store_args q = { 0 };

    store_arg_text(&q, installation_id);
    store_arg_bool(&q, active);
    return one_installation(db, INSTALLATION_ACTIVATE, &q, "installation", a, out, err);
}

enum sbx_code store_installation_list(struct store_conn *db, const char *account_id,
                                      struct arena *a, struct store_installations *out,
                                      struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, account_id);
    if (store_run(db, &STORE_STMT_INSTALLATIONS[INSTALLATION_LIST], &q, &res, err) != SBX_OK)
        return err->code;
    out->count = (size_t)PQntuples(res);
    out->rows = arena_zalloc(a, out->count * sizeof(*out->rows));
    for (size_t i = 0; i < out->count; i++) {
        struct store_row row = { .res = res, .a = a, .row = (int)i };

        read_installation(&row, &out->rows[i]);
    }
    return SBX_OK;
}

enum sbx_code store_principal_create(struct store_conn *db, const char *installation_id,
                                     const char *permissions, struct arena *a,
                                     struct store_principal *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_row row = { .a = a };
    struct store_args q = { 0 };
    char id[ID_SIZE];

    id_new(id);
    store_arg_text(&q, id);
    store_arg_text(&q, installation_id);
    store_arg_text(&q, permissions);
    if (store_run_one(db, &STORE_STMT_INSTALLATIONS[PRINCIPAL_CREATE], &q, "installation", &res,
                      err) != SBX_OK)
        return err->code;
    row.res = res;
    *out = (struct store_principal){ 0 };
    read_principal(&row, out);
    return SBX_OK;
}

enum sbx_code store_principal_get(struct store_conn *db, const char *principal_id, struct arena *a,
                                  struct store_principal *out, struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_row row = { .a = a };
    struct store_args q = { 0 };

    store_arg_text(&q, principal_id);
    if (store_run_one(db, &STORE_STMT_INSTALLATIONS[PRINCIPAL_GET], &q, "principal", &res, err) !=
        SBX_OK)
        return err->code;
    row.res = res;
    *out = (struct store_principal){ 0 };
    read_principal(&row, out);
    read_installation(&row, &out->installation);
    return SBX_OK;
}

enum sbx_code store_principal_list(struct store_conn *db, const char *installation_id,
                                   struct arena *a, struct store_principals *out,
                                   struct sbx_err *err)
{
    SCOPED_RESULT PGresult *res = NULL;
    struct store_args q = { 0 };

    store_arg_text(&q, installation_id);
    if (store_run(db, &STORE_STMT_INSTALLATIONS[PRINCIPAL_LIST], &q, &res, err) != SBX_OK)
        return err->code;
    out->count = (size_t)PQntuples(res);
    out->rows = arena_zalloc(a, out->count * sizeof(*out->rows));
    for (size_t i = 0; i < out->count; i++) {
        struct store_row row = { .res = res, .a = a, .row = (int)i };

        read_principal(&row, &out->rows[i]);
    }
    return SBX_OK;
}
