#ifndef API_ACCESS_H
#define API_ACCESS_H

/* What a user may do in an account, kept for a short while so that the hot path asks
 * nothing of the store.  Like the token cache: emptied by a notice of any change, and
 * off while notices cannot arrive (contract 1). Internal to api. */

#include <stdbool.h>
#include <stdint.h>

struct api_access {
    bool member; /* false: no such account, or not theirs; never kept */
    bool entitled;
    uint32_t roles; /* ROLE_... */
};

struct api_accesses;

struct api_accesses *api_accesses_new(int max, int life_s);
void api_accesses_free(struct api_accesses *t); /* NULL is allowed */
/* *epoch is what api_accesses_put needs after a miss. Any thread. */
bool api_accesses_get(struct api_accesses *t, const char *account_id, const char *user_id,
                      struct api_access *out, uint64_t *epoch);
void api_accesses_put(struct api_accesses *t, const char *account_id, const char *user_id,
                      const struct api_access *access, uint64_t epoch);
void api_accesses_forget(struct api_accesses *t);
void api_accesses_enable(struct api_accesses *t, bool on); /* it begins off */

#endif
