#ifndef BASE_ID_MAP_H
#define BASE_ID_MAP_H

/* A map from ids (base/id.h) to pointers.  Not locked: its owner does that. */

#include <stdbool.h>
#include <stddef.h>

#include "base/id.h"

struct id_map_slot {
    char id[ID_SIZE]; /* "": free */
    bool dead;        /* removed: a search goes on past it */
    void *value;
};

/* Zeroed is the empty map. */
struct id_map {
    struct id_map_slot *slots;
    size_t size; /* a power of two, or 0 */
    size_t used; /* slots that are not free, dead ones included */
    size_t count;
};

void *id_map_get(const struct id_map *m, const char *id); /* NULL: not there */
/* id must be valid and not there yet, value not NULL (assert). */
void id_map_put(struct id_map *m, const char *id, void *value);
void *id_map_remove(struct id_map *m, const char *id); /* the value, or NULL */
void id_map_fini(struct id_map *m);                    /* the values are the owner's */

#define ID_MAP_EACH(m, slot)                                                                       \
    for (struct id_map_slot *slot = (m)->slots; slot != NULL && slot < (m)->slots + (m)->size;     \
         slot++)                                                                                   \
        if (slot->value == NULL) {                                                                 \
        } else

#endif
