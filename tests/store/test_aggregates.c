/* Identity, places, templates, trail: what handlers rely on. */

#include <string.h>

#include "base/hash.h"
#include "store/fixture.h"

static void tokens_are_found_by_digest_until_revoked(void **state)
{
    struct world *w = *state;
    unsigned char digest[SHA256_LEN], other[SHA256_LEN];
    struct store_token t, found;

    sha256_of("secret", 6, digest);
    sha256_of("other", 5, other);
    struct store_token_new in = { .kind = STORE_TOKEN_MCP,
                                  .user_id = w->user.user_id,
                                  .scopes = "quave:write:deploy,quave:read,quave:read",
                                  .name = "ci" };
    OK(store_token_create(w->db, &in, digest, w->a, &t, &err));
    assert_string_equal(t.scopes, "quave:read,quave:write:deploy");
    OK(store_token_find(w->db, digest, w->a, &found, &err));
    assert_string_equal(found.token_id, t.token_id);
    assert_int_equal(found.kind, STORE_TOKEN_MCP);
    assert_string_equal(found.user_id, w->user.user_id);
    FAILS(SBX_E_UNAUTHENTICATED, store_token_find(w->db, other, w->a, &found, &err));
    OK(store_token_revoke(w->db, t.token_id, w->a, &found, &err));
    assert_true(found.revoked_at_ms > 0);
    int64_t first = found.revoked_at_ms;
    OK(store_token_revoke(w->db, t.token_id, w->a, &found, &err));
    assert_int_equal(found.revoked_at_ms, first);
    FAILS(SBX_E_UNAUTHENTICATED, store_token_find(w->db, digest, w->a, &found, &err));
    FAILS(SBX_E_NOT_FOUND, store_token_revoke(w->db, "nope", w->a, &found, &err));

    in = (struct store_token_new){ .kind = STORE_TOKEN_ENV,
                                   .account_id = w->account.account_id,
                                   .expires_in_s = 3600 };
    OK(store_token_create(w->db, &in, other, w->a, &t, &err));
    assert_int_equal(t.expires_at_ms - t.created_at_ms, 3600 * 1000);
    world_sql(w, arena_printf(w->a,
                              "UPDATE sandboxd.tokens SET expires_at = now() "
                              "WHERE token_id = '%s'",
                              t.token_id));
    FAILS(SBX_E_TOKEN_EXPIRED, store_token_find(w->db, other, w->a, &found, &err));
    in.account_id = "nope";
    sha256_of("third", 5, other);
    FAILS(SBX_E_NOT_FOUND, store_token_create(w->db, &in, other, w->a, &t, &err));
    /* A token of a kind with somebody else's owner cannot be stored at all. */
    in.account_id = NULL;
    FAILS(SBX_E_INTERNAL, store_token_create(w->db, &in, other, w->a, &t, &err));
}

static void token_lists_have_pages(void **state)
{
    struct world *w = *state;
    struct store_tokens page;
    int seen = 0, pages = 0;
    const char *after = NULL;

    for (int i = 0; i < 7; i++) {
        unsigned char digest[SHA256_LEN];
        struct store_token_new in = { .kind = STORE_TOKEN_USER, .user_id = w->user.user_id };
        struct store_token t;
        random_bytes(digest, sizeof(digest));
        OK(store_token_create(w->db, &in, digest, w->a, &t, &err));
    }
    const char *all = world_sql(w, "SELECT count(*) FROM sandboxd.tokens");
    do {
        OK(store_token_list(w->db, after, 3, w->a, &page, &err));
        seen += (int)page.count;
        pages++;
        after = page.rows[page.count - 1].token_id;
    } while (page.more);
    assert_string_equal(arena_printf(w->a, "%d", seen), all);
    assert_true(pages >= 3);
}

static void access_is_one_answer_for_none_and_not_yours(void **state)
{
    struct world *w = *state;
    struct store_access access;
    struct store_member m;
    world_fresh(w);
    const char *account = w->account.account_id, *user = w->user.user_id;

    OK(store_access_get(w->db, account, user, w->a, &access, &err));
    assert_true(access.member && access.entitled);
    assert_string_equal(access.roles, "technical");
    OK(store_member_add(w->db, account, user, "member,admin", w->a, &m, &err));
    assert_string_equal(m.roles, "admin,member");
    OK(store_account_entitle(w->db, account, false, w->a, &w->account, &err));
    OK(store_access_get(w->db, account, user, w->a, &access, &err));
    assert_false(access.entitled);
    OK(store_access_get(w->db, "nope", user, w->a, &access, &err));
    assert_false(access.member);
    OK(store_member_remove(w->db, account, user, &err));
    OK(store_access_get(w->db, account, user, w->a, &access, &err));
    assert_false(access.member);
    FAILS(SBX_E_NOT_FOUND, store_member_remove(w->db, account, user, &err));
    FAILS(SBX_E_NOT_FOUND, store_member_add(w->db, account, "nope", "member", w->a, &m, &err));
    struct store_user u;
    FAILS(SBX_E_CONFLICT, store_user_create(w->db, w->user.email, NULL, w->a, &u, &err));
}

static void an_oauth_subject_is_a_user_once_linked(void **state)
{
    struct world *w = *state;
    struct store_issuer i;
    const char *user;

    OK(store_issuer_add(w->db, "https://id.example", "sandboxd", "{\"keys\":[]}", NULL, w->a, &i,
                        &err));
    assert_non_null(i.jwks);
    FAILS(SBX_E_UNAUTHENTICATED,
          store_issuer_user(w->db, "https://id.example", "s", w->a, &user, &err));
    FAILS(SBX_E_NOT_FOUND, store_issuer_link(w->db, "https://id.example", "s", "nope", &err));
    OK(store_issuer_link(w->db, "https://id.example", "s", w->user.user_id, &err));
    OK(store_issuer_user(w->db, "https://id.example", "s", w->a, &user, &err));
    assert_string_equal(user, w->user.user_id);
    OK(store_issuer_add(w->db, "https://id.example", "two", NULL, "https://id.example/jwks", w->a,
                        &i, &err));
    struct store_issuers all;
    OK(store_issuer_list(w->db, w->a, &all, &err));
    assert_int_equal(all.count, 1);
    assert_string_equal(all.rows[0].audience, "two");
    OK(store_issuer_remove(w->db, "https://id.example", &err));
    FAILS(SBX_E_UNAUTHENTICATED,
          store_issuer_user(w->db, "https://id.example", "s", w->a, &user, &err));
}

static void sealed_bytes_come_back_as_they_went(void **state)
{
    struct world *w = *state;
    unsigned char secret[256];
    world_fresh(w);

    for (int i = 0; i < 256; i++)
        secret[i] = (unsigned char)i;
    struct store_region r = { .region = "far-1",
                              .url = "https://far.example",
                              .secret = { secret, sizeof(secret) },
                              .enabled = true };
    OK(store_region_create(w->db, &r, w->a, &r, &err));
    FAILS(SBX_E_CONFLICT, store_region_create(w->db, &r, w->a, &r, &err));
    struct store_region got;
    OK(store_region_get(w->db, "far-1", w->a, &got, &err));
    assert_int_equal(got.secret.len, sizeof(secret));
    assert_memory_equal(got.secret.data, secret, sizeof(secret));
    assert_false(got.sandboxes);
    struct store_regions of;
    OK(store_region_list_of(w->db, w->account.account_id, w->a, &of, &err));
    assert_int_equal(of.count, 1);

    struct store_registry reg = { .registry_id = "r1",
                                  .account_id = w->account.account_id,
                                  .host = "ghcr.io",
                                  .username = "u",
                                  .password = { secret, 7 } };
    OK(store_registry_create(w->db, &reg, w->a, &reg, &err));
    OK(store_registry_get(w->db, w->account.account_id, "ghcr.io", w->a, &reg, &err));
    assert_int_equal(reg.password.len, 7);
    OK(store_registry_remove(w->db, "r1", &err));
    FAILS(SBX_E_NOT_FOUND,
          store_registry_get(w->db, w->account.account_id, "ghcr.io", w->a, &reg, &err));
    struct store_backend b;
    FAILS(SBX_E_NO_STORAGE_BACKEND,
          store_backend_get(w->db, w->account.account_id, w->region, w->a, &b, &err));
}

static void slugs_take_the_next_free_one(void **state)
{
    struct world *w = *state;
    struct store_template t;
    bool created;
    world_fresh(w);
    char name[64];
    memset(name, 'a', 63);
    name[63] = '\0';
    struct store_template_save in = { .account_id = w->account.account_id,
                                      .name = "Tiny",
                                      .slug_base = "tiny",
                                      .enabled = -1,
                                      .deprecated = -1 };
    OK(store_template_save(w->db, &in, w->a, &t, &created, &err));
    assert_true(created);
    assert_string_equal(t.slug, "tiny-2");
    assert_true(t.enabled);
    OK(store_template_save(w->db, &in, w->a, &t, &created, &err));
    assert_string_equal(t.slug, "tiny-3");
    in.slug_base = name;
    OK(store_template_save(w->db, &in, w->a, &t, &created, &err));
    OK(store_template_save(w->db, &in, w->a, &t, &created, &err));
    assert_int_equal(strlen(t.slug), 63);
    assert_string_equal(t.slug + 61, "-2");

    in = (struct store_template_save){ .account_id = in.account_id,
                                       .template_id = t.template_id,
                                       .name = "Renamed",
                                       .enabled = -1,
                                       .deprecated = 1 };
    struct store_template after;
    OK(store_template_save(w->db, &in, w->a, &after, &created, &err));
    assert_false(created);
    assert_string_equal(after.slug, t.slug);
    assert_string_equal(after.name, "Renamed");
    assert_true(after.enabled);
    assert_true(after.deprecated_at_ms > 0);
    struct store_templates list;
    struct store_template_filter filter = { .account_id = in.account_id, .limit = 100 };
    OK(store_template_list(w->db, &filter, w->a, &list, &err));
    assert_int_equal(list.count, 4);
    assert_false(list.more);
    filter.include_deprecated = true;
    OK(store_template_list(w->db, &filter, w->a, &list, &err));
    assert_int_equal(list.count, 5);
    /* The same in pages of two. */
    struct store_templates page = { .more = true };
    filter.limit = 2;
    for (size_t seen = 0; page.more; seen += page.count) {
        OK(store_template_list(w->db, &filter, w->a, &page, &err));
        assert_true(seen + page.count <= list.count && page.more == (seen + 2 < list.count));
        for (size_t i = 0; i < page.count; i++)
            assert_string_equal(page.rows[i].template_id, list.rows[seen + i].template_id);
        filter.before_ms = page.rows[page.count - 1].created_at_ms;
        filter.before_id = page.rows[page.count - 1].template_id;
    }
    in.account_id = "other";
    FAILS(SBX_E_NOT_FOUND, store_template_save(w->db, &in, w->a, &after, &created, &err));
    struct store_revision none;
    OK(store_template_get(w->db, w->account.account_id, t.template_id, w->a, &after, &none, &err));
    assert_null(none.revision_id);
}

struct revisions {
    struct world *w;
    int number[40];
};

static void make_revision(int i, struct store_conn *db, void *arg)
{
    struct revisions *r = arg;
    SCOPED_ARENA struct arena *a = arena_new();
    struct store_revision in = world_revision(r->w), out;

    /* Every fourth is refused by the table: its number must not be lost. */
    if (i % 4 == 3) {
        in.z_clouds = 1;
        in.volume_size_mb = 0;
        FAILS(SBX_E_INTERNAL, store_revision_create(db, &in, a, &out, &err));
        return;
    }
    OK(store_revision_create(db, &in, a, &out, &err));
    r->number[i] = out.revision;
}

static void revisions_at_once_have_no_gap_and_no_double(void **state)
{
    struct world *w = *state;
    struct revisions r = { .w = w };
    bool seen[64] = { false };
    world_fresh(w);

    world_together(w, 20, make_revision, &r);
    for (int i = 0; i < 20; i++) {
        if (i % 4 == 3)
            continue;
        assert_in_range(r.number[i], 2, 16);
        assert_false(seen[r.number[i]]);
        seen[r.number[i]] = true;
    }
}

static void nothing_changes_a_revision(void **state)
{
    struct world *w = *state;
    struct store_revision in, out, got;
    world_fresh(w);

    in = world_revision(w);
    in.command = "[\"sh\", \"-c\", \"\"]";
    in.network_control = "{\"enabled\": true, \"addressAllowlist\": [\"203.0.113.8\"]}";
    in.warm_pool = true;
    in.warm_min = in.warm_desired = 1;
    in.warm_max = 3;
    in.warm_regions = "here-1,there-2";
    OK(store_revision_create(w->db, &in, w->a, &out, &err));
    OK(store_revision_get(w->db, out.revision_id, w->a, &got, &err));
    assert_string_equal(got.command, in.command);
    assert_string_equal(got.warm_regions, "here-1,there-2");
    assert_int_equal(got.revision, 2);
    OK(store_template_get(w->db, in.account_id, in.template_id, w->a, &w->template, &got, &err));
    assert_string_equal(got.revision_id, out.revision_id);
    assert_int_equal(w->template.current_revision, 2);

    assert_string_equal(world_sql_fails(w, "UPDATE sandboxd.revisions SET z_clouds = 2"), "23000");
    assert_string_equal(world_sql_fails(w, "DELETE FROM sandboxd.revisions"), "23000");
    assert_string_equal(world_sql_fails(w, "TRUNCATE sandboxd.revisions CASCADE"), "23000");
}

static void audit_and_settings(void **state)
{
    struct world *w = *state;
    struct store_audit rows[3] = { 0 };
    struct store_audits list;
    const char *value;
    world_fresh(w);

    for (int i = 0; i < 3; i++)
        rows[i] = (struct store_audit){ .account_id = w->account.account_id,
                                        .actor = w->caller,
                                        .action = "sandbox.execute",
                                        .object_kind = "sandbox",
                                        .object_id = "s1",
                                        .request_id = "request-1",
                                        .outcome = "ok",
                                        .exit_code = i - 1,
                                        .duration_ms = 12 };
    OK(store_audit_write(w->db, rows, 3, &err));
    OK(store_audit_list(w->db, w->account.account_id, NULL, 0, 2, w->a, &list, &err));
    assert_int_equal(list.count, 2);
    assert_true(list.more);
    assert_int_equal(list.rows[0].exit_code, 1);
    OK(store_audit_list(w->db, w->account.account_id, "s1", list.rows[1].audit_id, 10, w->a, &list,
                        &err));
    assert_int_equal(list.count, 1);
    assert_int_equal(list.rows[0].exit_code, -1);
    OK(store_audit_list(w->db, NULL, "s1", 0, 10, w->a, &list, &err));
    assert_true(list.count >= 3);
    world_sql(w, "UPDATE sandboxd.audit SET at = now() - interval '100 days'");
    int removed;
    OK(store_trail_prune(w->db, INT64_C(86400000) * 90, 1000, &removed, &err));
    assert_true(removed >= 3);
    OK(store_audit_list(w->db, NULL, NULL, 0, 10, w->a, &list, &err));
    assert_int_equal(list.count, 0);

    struct store_sandbox s = world_create(w), live = world_create(w);
    struct store_events events;
    s = world_move(w, &s, SANDBOX_FAILED);
    s = world_move(w, &s, SANDBOX_TERMINATING);
    s = world_move(w, &s, SANDBOX_TERMINATED);
    OK(store_trail_prune(w->db, 60000, 1000, &removed, &err));
    OK(store_event_list(w->db, s.sandbox_id, w->a, &events, &err));
    assert_int_equal(events.count, 4);
    OK(store_trail_prune(w->db, -60000, 1000, &removed, &err));
    assert_int_equal(removed, 4);
    OK(store_event_list(w->db, s.sandbox_id, w->a, &events, &err));
    assert_int_equal(events.count, 0);
    OK(store_event_list(w->db, live.sandbox_id, w->a, &events, &err));
    assert_int_equal(events.count, 1);

    FAILS(SBX_E_NOT_FOUND, store_setting_get(w->db, "x", w->a, &value, &err));
    OK(store_setting_put(w->db, "x", "1", &err));
    OK(store_setting_put(w->db, "x", "2", &err));
    OK(store_setting_get(w->db, "x", w->a, &value, &err));
    assert_string_equal(value, "2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_found_by_digest_until_revoked),
        cmocka_unit_test(token_lists_have_pages),
        cmocka_unit_test(access_is_one_answer_for_none_and_not_yours),
        cmocka_unit_test(an_oauth_subject_is_a_user_once_linked),
        cmocka_unit_test(sealed_bytes_come_back_as_they_went),
        cmocka_unit_test(slugs_take_the_next_free_one),
        cmocka_unit_test(revisions_at_once_have_no_gap_and_no_double),
        cmocka_unit_test(nothing_changes_a_revision),
        cmocka_unit_test(audit_and_settings),
    };
    return cmocka_run_group_tests(tests, world_new, world_free);
}
