#ifndef STORE_TEMPLATES_H
#define STORE_TEMPLATES_H

/* Templates and their immutable revisions (contract 2). */

#include "domain/sandbox_state.h"
#include "store/store.h"

struct store_template {
    const char *template_id;
    const char *account_id;
    const char *app_id; /* or NULL */
    const char *name;
    const char *slug;
    const char *description; /* or NULL */
    bool enabled;
    int64_t deprecated_at_ms;
    int current_revision; /* 0: none yet */
    int64_t created_at_ms, updated_at_ms;
};
struct store_templates {
    struct store_template *rows;
    size_t count;
    bool more;
};

struct store_revision {
    const char *revision_id;
    const char *template_id;
    const char *account_id;
    int revision; /* from 1, without gap */
    const char *image_digest;
    const char *image_ref;   /* or NULL */
    const char *command;     /* JSON array text, or NULL */
    const char *working_dir; /* or NULL */
    const char *ports;       /* JSON array text, or NULL */
    const char *resources;   /* JSON object text */
    int z_clouds;
    enum sandbox_persistence persistence;
    int volume_size_mb;           /* resolved: never 0 */
    const char *mount_path;       /* or NULL: the default */
    const char *snapshot_exclude; /* JSON array text, or NULL */
    int snapshot_max_mb;
    int idle_timeout_s, hard_lifetime_s, suspended_retention_s;
    int warm_desired, warm_min, warm_max; /* all 0 when it has no warm pool */
    bool warm_pool;                       /* given, whatever its numbers */
    const char *warm_regions;             /* comma-separated, or NULL */
    const char *network_control;          /* JSON object text, or NULL */
    int64_t created_at_ms;
};

struct store_template_save {
    const char *account_id;
    const char *template_id; /* NULL: create */
    const char *app_id;      /* create only */
    const char *name;
    const char *slug_base;   /* create: the slug made from name; the next free -2, -3 is taken */
    const char *description; /* NULL: keep (update) or none (create) */
    int enabled;             /* 1, 0, -1: keep (create: 1) */
    int deprecated;          /* 1, 0, -1: keep */
};

/* `created` says which. SBX_E_NOT_FOUND: template (not in this account) or app. */
MUST_USE enum sbx_code store_template_save(struct store_conn *db,
                                           const struct store_template_save *in, struct arena *a,
                                           struct store_template *out, bool *created,
                                           struct sbx_err *err);
/* revision may be NULL; its revision_id is NULL when there is none yet. One query. */
MUST_USE enum sbx_code store_template_get(struct store_conn *db, const char *account_id,
                                          const char *template_id, struct arena *a,
                                          struct store_template *out,
                                          struct store_revision *revision, struct sbx_err *err);
struct store_template_filter {
    const char *account_id;
    const char *app_id; /* NULL: all */
    bool include_deprecated;
    int64_t before_ms;     /* with before_id: those made before it */
    const char *before_id; /* NULL: from the newest */
    int limit;             /* 1..STORE_LIST_MAX */
};
/* Newest first. */
MUST_USE enum sbx_code store_template_list(struct store_conn *db,
                                           const struct store_template_filter *f, struct arena *a,
                                           struct store_templates *out, struct sbx_err *err);

/* How many the account has, deprecated ones too; counting stops at up_to. */
MUST_USE enum sbx_code store_template_count(struct store_conn *db, const char *account_id,
                                            int up_to, int *out, struct sbx_err *err);

/* revision_id, revision and created_at_ms of `in` are ignored. Two at once get two numbers.
 * SBX_E_NOT_FOUND: no such template in this account. */
MUST_USE enum sbx_code store_revision_create(struct store_conn *db, const struct store_revision *in,
                                             struct arena *a, struct store_revision *out,
                                             struct sbx_err *err);
/* By id: immutable, so it may be cached for ever. SBX_E_NOT_FOUND. */
MUST_USE enum sbx_code store_revision_get(struct store_conn *db, const char *revision_id,
                                          struct arena *a, struct store_revision *out,
                                          struct sbx_err *err);

#endif
