#ifndef STORE_PLACES_H
#define STORE_PLACES_H

/* Where: regions, who may use them, storage backends, registry credentials.
 * Secrets come and go sealed (base/seal.h); the store cannot read them. */

#include "store/store.h"

struct store_region {
    const char *region; /* its name is its id: "us-5" */
    const char *url;    /* one of url and socket */
    const char *socket;
    struct store_bytes secret; /* sealed, context "regions.secret:<region>"; absent on a socket */
    bool sandboxes;            /* the Agent Sandbox add-on */
    bool enabled;
    int64_t created_at_ms;
};
struct store_regions {
    struct store_region *rows;
    size_t count;
};

struct store_backend {
    const char *backend_id;
    const char *account_id;
    const char *region;
    const char *kind;                                   /* "s3" or "dir" */
    const char *path;                                   /* dir */
    const char *endpoint, *bucket, *prefix, *s3_region; /* s3 */
    struct store_bytes access_key; /* sealed, "storage_backends.access_key:<backend id>" */
    struct store_bytes secret_key; /* sealed, "storage_backends.secret_key:<backend id>" */
    int64_t created_at_ms;
};
struct store_backends {
    struct store_backend *rows;
    size_t count;
};

struct store_registry {
    const char *registry_id;
    const char *account_id;
    const char *host;
    const char *username;
    struct store_bytes password; /* sealed, "registry_credentials.password:<registry id>" */
    int64_t created_at_ms;
};
struct store_registries {
    struct store_registry *rows;
    size_t count;
};

/* SBX_E_CONFLICT: the name is taken.  Changes notify with STORE_NOTICE_CONFIG "region". */
MUST_USE enum sbx_code store_region_create(struct store_conn *db, const struct store_region *in,
                                           struct arena *a, struct store_region *out,
                                           struct sbx_err *err);
/* Where its gateway is from now on, and the secret (absent bytes: none). SBX_E_NOT_FOUND. */
MUST_USE enum sbx_code store_region_update(struct store_conn *db, const struct store_region *in,
                                           struct arena *a, struct store_region *out,
                                           struct sbx_err *err);
MUST_USE enum sbx_code store_region_get(struct store_conn *db, const char *region, struct arena *a,
                                        struct store_region *out, struct sbx_err *err);
MUST_USE enum sbx_code store_region_list(struct store_conn *db, struct arena *a,
                                         struct store_regions *out, struct sbx_err *err);
/* Those an account may use. */
MUST_USE enum sbx_code store_region_list_of(struct store_conn *db, const char *account_id,
                                            struct arena *a, struct store_regions *out,
                                            struct sbx_err *err);
MUST_USE enum sbx_code store_region_enable(struct store_conn *db, const char *region, bool enabled,
                                           struct arena *a, struct store_region *out,
                                           struct sbx_err *err);
MUST_USE enum sbx_code store_region_addon(struct store_conn *db, const char *region, bool sandboxes,
                                          struct arena *a, struct store_region *out,
                                          struct sbx_err *err);
/* Idempotent. SBX_E_NOT_FOUND: no such account or region. */
MUST_USE enum sbx_code store_region_grant(struct store_conn *db, const char *account_id,
                                          const char *region, struct sbx_err *err);
MUST_USE enum sbx_code store_region_deny(struct store_conn *db, const char *account_id,
                                         const char *region, struct sbx_err *err);

/* in->backend_id was made by the caller (the seal is bound to it).  One for an account and region;
 * again: replaces its settings and keeps its id out of `in`. SBX_E_NOT_FOUND: no such account or
 * region. */
MUST_USE enum sbx_code store_backend_create(struct store_conn *db, const struct store_backend *in,
                                            struct arena *a, struct store_backend *out,
                                            struct sbx_err *err);
/* SBX_E_NO_STORAGE_BACKEND */
MUST_USE enum sbx_code store_backend_get(struct store_conn *db, const char *account_id,
                                         const char *region, struct arena *a,
                                         struct store_backend *out, struct sbx_err *err);
/* At most limit; account_id NULL: of all accounts. */
MUST_USE enum sbx_code store_backend_list(struct store_conn *db, const char *account_id, int limit,
                                          struct arena *a, struct store_backends *out,
                                          struct sbx_err *err);

/* in->registry_id was made by the caller. One for an account and host; again: replaces. */
MUST_USE enum sbx_code store_registry_create(struct store_conn *db, const struct store_registry *in,
                                             struct arena *a, struct store_registry *out,
                                             struct sbx_err *err);
/* SBX_E_NOT_FOUND: none for that host: pull without. */
MUST_USE enum sbx_code store_registry_get(struct store_conn *db, const char *account_id,
                                          const char *host, struct arena *a,
                                          struct store_registry *out, struct sbx_err *err);
MUST_USE enum sbx_code store_registry_list(struct store_conn *db, const char *account_id,
                                           struct arena *a, struct store_registries *out,
                                           struct sbx_err *err);
MUST_USE enum sbx_code store_registry_remove(struct store_conn *db, const char *registry_id,
                                             struct sbx_err *err);

#endif
