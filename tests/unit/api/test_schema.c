#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "api/cursor.h"
#include "api/fields.h"
#include "api/options.h"
#include "base/id.h"
#include "base/json.h"

static struct api_bounds bounds;

static int setup(void **state)
{
    (void)state;
    api_bounds_default(&bounds);
    return 0;
}

#define DIGEST   "repo@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define REVISION "{\"accountId\":\"a\",\"templateId\":\"t\",\"imageDigest\":\"" DIGEST "\""
#define EXECUTE  "{\"accountId\":\"a\",\"sandboxId\":\"s\",\"command\":[\"true\"]"

/* body, and the field that the 400 names; NULL: it is accepted. */
struct row {
    const struct api_schema *schema;
    const char *body;
    const char *field;
};

static const struct row ROWS[] = {
    { &API_REVISION_CREATE, REVISION "}", NULL },
    { &API_REVISION_CREATE, REVISION ",\"zClouds\":16}", NULL },
    { &API_REVISION_CREATE, REVISION ",\"zClouds\":17}", "zClouds" },
    { &API_REVISION_CREATE, REVISION ",\"zClouds\":0}", "zClouds" },
    { &API_REVISION_CREATE, REVISION ",\"zClouds\":\"1\"}", "zClouds" },
    { &API_REVISION_CREATE, REVISION ",\"zClouds\":1.0}", "zClouds" },
    { &API_REVISION_CREATE, REVISION ",\"zClouds\":null}", "zClouds" },
    { &API_REVISION_CREATE, REVISION ",\"zcloud\":1}", "zcloud" },
    { &API_REVISION_CREATE, REVISION ",\"idleTimeoutSeconds\":29}", "idleTimeoutSeconds" },
    { &API_REVISION_CREATE, REVISION ",\"idleTimeoutSeconds\":30}", NULL },
    { &API_REVISION_CREATE, REVISION ",\"idleTimeoutSeconds\":86400}", NULL },
    { &API_REVISION_CREATE, REVISION ",\"idleTimeoutSeconds\":86401}", "idleTimeoutSeconds" },
    { &API_REVISION_CREATE, REVISION ",\"hardLifetimeSeconds\":59}", "hardLifetimeSeconds" },
    { &API_REVISION_CREATE, REVISION ",\"hardLifetimeSeconds\":2592000}", NULL },
    { &API_REVISION_CREATE, REVISION ",\"suspendedRetentionSeconds\":7776001}",
      "suspendedRetentionSeconds" },
    { &API_REVISION_CREATE, REVISION ",\"snapshotMaxMb\":0}", "snapshotMaxMb" },
    { &API_REVISION_CREATE, REVISION ",\"snapshotMaxMb\":-1}", "snapshotMaxMb" },
    { &API_REVISION_CREATE, REVISION ",\"snapshotMaxMb\":1048577}", "snapshotMaxMb" },
    { &API_REVISION_CREATE, REVISION ",\"volumeSizeMb\":10485761}", "volumeSizeMb" },
    { &API_REVISION_CREATE, REVISION ",\"command\":[]}", "command" },
    { &API_REVISION_CREATE, REVISION ",\"command\":[\"\"]}", "command" },
    { &API_REVISION_CREATE, REVISION ",\"command\":\"sh\"}", "command" },
    { &API_REVISION_CREATE, REVISION ",\"command\":[\"a\",1]}", "command[1]" },
    { &API_REVISION_CREATE, REVISION ",\"mountPath\":\"/workspace\"}", "mountPath" },
    { &API_REVISION_CREATE, REVISION ",\"mountPath\":\"/etc/x\"}", "mountPath" },
    { &API_REVISION_CREATE, REVISION ",\"mountPath\":\"/data\"}", NULL },
    { &API_REVISION_CREATE, REVISION ",\"persistenceMode\":\"PERSISTENT_VOLUME\"}", NULL },
    { &API_REVISION_CREATE, REVISION ",\"persistenceMode\":\"directory\"}", "persistenceMode" },
    { &API_REVISION_CREATE, REVISION ",\"ports\":[{\"port\":80,\"protocol\":\"TCP\"}]}", NULL },
    { &API_REVISION_CREATE, REVISION ",\"ports\":[{\"port\":80},{\"port\":0}]}", "ports[1].port" },
    { &API_REVISION_CREATE, REVISION ",\"ports\":[{\"port\":80,\"x\":1}]}", "ports[0].x" },
    { &API_REVISION_CREATE, REVISION ",\"ports\":[80]}", "ports[0]" },
    { &API_REVISION_CREATE, REVISION ",\"warmPool\":{\"desired\":1,\"min\":0,\"max\":2}}", NULL },
    { &API_REVISION_CREATE, REVISION ",\"warmPool\":{\"desired\":1,\"min\":2,\"max\":2}}",
      "warmPool" },
    { &API_REVISION_CREATE, REVISION ",\"warmPool\":{\"desired\":1,\"min\":0,\"max\":101}}",
      "warmPool.max" },
    { &API_REVISION_CREATE, REVISION ",\"warmPool\":{\"desired\":1,\"min\":0}}", "warmPool.max" },
    { &API_REVISION_CREATE, REVISION ",\"networkControl\":{\"enabled\":true}}",
      "networkControl.addressAllowlist" },
    { &API_REVISION_CREATE,
      REVISION ",\"networkControl\":{\"enabled\":true,\"addressAllowlist\":[\" \"]}}",
      "networkControl.addressAllowlist" },
    { &API_REVISION_CREATE,
      REVISION ",\"networkControl\":{\"enabled\":false,\"domainAllowlist\":[\" \"]}}",
      "networkControl.domainAllowlist" },
    { &API_REVISION_CREATE,
      REVISION ",\"networkControl\":{\"enabled\":false,\"domainAllowlist\":[]}}", NULL },
    { &API_EXECUTE, EXECUTE "}", NULL },
    { &API_EXECUTE, EXECUTE ",\"timeoutSeconds\":0}", "timeoutSeconds" },
    { &API_EXECUTE, EXECUTE ",\"timeoutSeconds\":901}", "timeoutSeconds" },
    { &API_EXECUTE, EXECUTE ",\"timeoutSeconds\":\"5\"}", "timeoutSeconds" },
    { &API_EXECUTE, EXECUTE ",\"timeoutSeconds\":900}", NULL },
    { &API_EXECUTE, EXECUTE ",\"envVars\":{\"A\":\"a\\nb\",\"B\":\" $HOME \",\"D\":\"\"}}", NULL },
    { &API_EXECUTE, EXECUTE ",\"envVars\":{\"X;touch /x\":\"\"}}", "envVars" },
    { &API_EXECUTE, EXECUTE ",\"envVars\":{\"E=F\":\"\"}}", "envVars" },
    { &API_EXECUTE, EXECUTE ",\"envVars\":{\"\":\"\"}}", "envVars" },
    { &API_EXECUTE, EXECUTE ",\"envVars\":{\"A\":1}}", "envVars.A" },
    { &API_EXECUTE, EXECUTE ",\"envVars\":[]}", "envVars" },
    { &API_EXECUTE, "{\"accountId\":\"a\",\"sandboxId\":\"s\"}", "command" },
    { &API_EXECUTE, "{\"accountId\":1,\"sandboxId\":\"s\",\"command\":[\"x\"]}", "accountId" },
    { &API_EXECUTE, "{}", "accountId" },
    { &API_TEMPLATE_SAVE, "{\"accountId\":\"a\",\"name\":\"x\"}", NULL },
    { &API_TEMPLATE_SAVE, "{\"accountId\":\"a\",\"name\":\"\"}", "name" },
    { &API_TEMPLATE_SAVE, "{\"accountId\":\"a\",\"name\":\"x\",\"enabled\":\"true\"}", "enabled" },
    { &API_VOLUME_CREATE,
      "{\"accountId\":\"a\",\"region\":\"r\",\"volumeName\":\"9x\",\"sizeMb\":1}", "volumeName" },
};

static void each_body_is_judged_as_its_row_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(ROWS); i++) {
        const struct row *r = &ROWS[i];
        struct sbx_err err = { 0 };
        json_t *body = NULL;
        enum sbx_code code;

        assert_int_equal(json_parse_object(r->body, strlen(r->body), &body, &err), SBX_OK);
        code = api_schema_check(r->schema, &bounds, body, &err);
        json_decref(body);
        if (r->field == NULL) {
            if (code != SBX_OK)
                fail_msg("%s: %s", r->body, err.msg);
            continue;
        }
        if (code != SBX_E_INVALID || strcmp(err.field, r->field) != 0)
            fail_msg("%s: code %d field %s", r->body, code, err.field);
        assert_non_null(strstr(err.msg, strchr(r->field, '.') == NULL ? r->field : ""));
    }
}

/* A name of the client's is cut on a character border: the answer stays valid UTF-8. */
static void a_long_unknown_field_is_named_as_far_as_it_fits(void **state)
{
    struct sbx_err err = { 0 };
    json_t *body = json_object();
    char name[200];

    (void)state;
    for (size_t i = 0; i + 3 < sizeof(name); i += 3)
        memcpy(name + i, "\xe2\x98\x95", 3);
    name[198] = '\0';
    json_put_int(body, name, 1);
    assert_int_equal(api_schema_check(&API_EXECUTE, &bounds, body, &err), SBX_E_INVALID);
    assert_int_equal(strlen(err.field), 63);
    json_decref(body);
}

static void a_query_is_turned_into_typed_values(void **state)
{
    struct sbx_err err = { 0 };
    json_t *args = json_object();

    (void)state;
    assert_int_equal(api_schema_add_query(&API_SANDBOXES_QUERY, args, "limit", "7", &err), SBX_OK);
    assert_int_equal(json_get_int(args, "limit", 0), 7);
    assert_int_equal(api_schema_add_query(&API_SANDBOXES_QUERY, args, "limit", "8", &err),
                     SBX_E_INVALID);
    assert_string_equal(err.field, "limit");
    json_decref(args);
}

static void a_bad_query_value_names_its_parameter(void **state)
{
    static const struct {
        const struct api_schema *schema;
        const char *name, *text;
        bool good;
    } rows[] = {
        { &API_SANDBOXES_QUERY, "limit", "x", false },
        { &API_SANDBOXES_QUERY, "limit", "", false },
        { &API_SANDBOXES_QUERY, "limit", "0", false },
        { &API_SANDBOXES_QUERY, "limit", "-1", false },
        { &API_SANDBOXES_QUERY, "limit", "1.5", false },
        { &API_SANDBOXES_QUERY, "limit", "101", true },
        { &API_SANDBOXES_QUERY, "limit", "99999999999999999999999", true },
        { &API_SANDBOXES_QUERY, "page", "0", false },
        { &API_SANDBOXES_QUERY, "nope", "1", false },
        { &API_TEMPLATES_QUERY, "includeDeprecated", "yes", false },
        { &API_TEMPLATES_QUERY, "includeDeprecated", "true", true },
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct sbx_err err = { 0 };
        json_t *args = json_object();
        enum sbx_code code;

        json_put_str(args, "accountId", "a");
        code = api_schema_add_query(rows[i].schema, args, rows[i].name, rows[i].text, &err);
        if (code == SBX_OK)
            code = api_schema_check(rows[i].schema, &bounds, args, &err);
        assert_int_equal(code, rows[i].good ? SBX_OK : SBX_E_INVALID);
        if (!rows[i].good)
            assert_string_equal(err.field, rows[i].name);
        json_decref(args);
    }
}

static void check_rows(const struct api_schema *schema, int depth)
{
    assert_true(depth < 6);
    for (size_t i = 0; i < schema->count; i++) {
        const struct api_field *f = &schema->fields[i];

        assert_non_null(f->name);
        assert_non_null(f->doc);
        assert_int_not_equal(f->type, API_T_UNSET);
        assert_int_equal(f->of != NULL, f->type == API_T_OBJECT || f->type == API_T_OBJECTS);
        if (f->of != NULL)
            check_rows(f->of, depth + 1);
    }
}

static void every_row_is_complete(void **state)
{
    static const struct api_schema *const requests[] = {
        &API_SANDBOX_CREATE, &API_SANDBOXES_QUERY, &API_SANDBOX_QUERY,   &API_SANDBOX_PAUSE,
        &API_EXECUTE,        &API_TEMPLATE_SAVE,   &API_REVISION_CREATE, &API_VOLUME_CREATE,
        &API_SANDBOX,        &API_TEMPLATE_ANSWER, &API_REVISION,        &API_VOLUMES_ANSWER,
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(requests); i++)
        check_rows(requests[i], 0);
}

static void a_cursor_comes_back(void **state)
{
    struct arena *a = arena_new();
    struct api_cursor in = { .created_ms = 1786104000000 }, out;

    (void)state;
    id_new(in.id);
    assert_true(api_cursor_parse(api_cursor_text(a, &in), &out));
    assert_int_equal(in.created_ms, out.created_ms);
    assert_string_equal(in.id, out.id);
    arena_free(a);
}

static void another_text_is_no_cursor(void **state)
{
    static const char *const texts[] = { "",
                                         "x",
                                         "MS4x",
                                         "MS54LmFi",
                                         "!!!!",
                                         "MS4tMS4wMQ",
                                         "Mi4xLjAxMjM0NTY3ODlhYmNkZWZnaGprbW5wcXJz" };
    struct api_cursor out;

    (void)state;
    for (size_t i = 0; i < COUNT_OF(texts); i++)
        assert_false(api_cursor_parse(texts[i], &out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_body_is_judged_as_its_row_says),
        cmocka_unit_test(a_long_unknown_field_is_named_as_far_as_it_fits),
        cmocka_unit_test(a_query_is_turned_into_typed_values),
        cmocka_unit_test(a_bad_query_value_names_its_parameter),
        cmocka_unit_test(every_row_is_complete),
        cmocka_unit_test(a_cursor_comes_back),
        cmocka_unit_test(another_text_is_no_cursor),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
