#ifndef STORE_VOLUMES_H
#define STORE_VOLUMES_H

/* Shared volumes (contract 5). */

#include "store/store.h"

struct store_volume {
    const char *volume_name;
    const char *account_id;
    const char *region;
    bool pending_purge; /* else ACTIVE */
    int size_mb;
    int64_t created_at_ms, updated_at_ms, purge_at_ms;
};
struct store_volumes {
    struct store_volume *rows;
    size_t count;
};

/* region may be NULL: all. At most STORE_LIST_MAX, by region and name. */
MUST_USE enum sbx_code store_volume_list(struct store_conn *db, const char *account_id,
                                         const char *region, struct arena *a,
                                         struct store_volumes *out, struct sbx_err *err);
/* region NULL: of any region (the first by name). SBX_E_NOT_FOUND. */
MUST_USE enum sbx_code store_volume_get(struct store_conn *db, const char *account_id,
                                        const char *region, const char *volume_name,
                                        struct arena *a, struct store_volume *out,
                                        struct sbx_err *err);
/* How many the account has, in all regions, those pending purge too; counting stops at up_to. */
MUST_USE enum sbx_code store_volume_count(struct store_conn *db, const char *account_id, int up_to,
                                          int *out, struct sbx_err *err);
/* SBX_E_VOLUME_EXISTS, NO_STORAGE_BACKEND, REGION_UNKNOWN, REGION_FORBIDDEN. */
MUST_USE enum sbx_code store_volume_create(struct store_conn *db, const char *account_id,
                                           const char *region, const char *volume_name, int size_mb,
                                           struct arena *a, struct store_volume *out,
                                           struct sbx_err *err);
/* To PENDING_PURGE. Again: unchanged. SBX_E_VOLUME_IN_USE while a sandbox that is not TERMINATED
 * has it; SBX_E_NOT_FOUND. */
MUST_USE enum sbx_code store_volume_remove(struct store_conn *db, const char *account_id,
                                           const char *region, const char *volume_name,
                                           int64_t purge_delay_ms, struct arena *a,
                                           struct store_volume *out, struct sbx_err *err);
/* Back to ACTIVE until purgeAt. SBX_E_NOT_FOUND; SBX_E_CONFLICT: its purge has begun. */
MUST_USE enum sbx_code store_volume_restore(struct store_conn *db, const char *account_id,
                                            const char *region, const char *volume_name,
                                            struct arena *a, struct store_volume *out,
                                            struct sbx_err *err);
/* Takes volumes whose purgeAt has passed, for lease_ms; a restore is refused from then on. */
MUST_USE enum sbx_code store_volume_claim_purge(struct store_conn *db, const char *owner,
                                                int64_t lease_ms, int limit, struct arena *a,
                                                struct store_volumes *out, struct sbx_err *err);
/* Does compute of a sandbox in that region have the volume? */
MUST_USE enum sbx_code store_volume_held(struct store_conn *db, const char *account_id,
                                         const char *region, const char *volume_name, bool *held,
                                         struct sbx_err *err);
/* The objects are gone: the row goes. */
MUST_USE enum sbx_code store_volume_purged(struct store_conn *db, const char *account_id,
                                           const char *region, const char *volume_name,
                                           struct sbx_err *err);

#endif
