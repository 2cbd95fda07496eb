#include "base/id_map.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { SIZE_MIN = 64 };

/* FNV-1a: ids are made by us, nobody outside chooses their bits. */
static uint64_t hash_of(const char *id)
{
    uint64_t h = 1469598103934665603ULL;

    for (; *id != 0; id++)
        h = (h ^ (unsigned char)*id) * 1099511628211ULL;
    return h ^ h >> 29;
}

static struct id_map_slot *find(const struct id_map *m, const char *id)
{
    if (m->size == 0)
        return NULL;
    for (size_t i = hash_of(id) & (m->size - 1);; i = (i + 1) & (m->size - 1)) {
        struct id_map_slot *s = &m->slots[i];

        if (s->id[0] == 0)
            return NULL;
        if (!s->dead && strcmp(s->id, id) == 0)
            return s;
    }
}

static void place(struct id_map *m, const char *id, void *value)
{
    size_t i = hash_of(id) & (m->size - 1);

    while (m->slots[i].id[0] != 0)
        i = (i + 1) & (m->size - 1);
    memcpy(m->slots[i].id, id, ID_SIZE);
    m->slots[i].dead = false;
    m->slots[i].value = value;
    m->used++;
    m->count++;
}

static void grow(struct id_map *m)
{
    struct id_map old = *m;
    size_t size = SIZE_MIN;

    while (size < (old.count + 1) * 4)
        size *= 2;
    *m = (struct id_map){ .slots = mem_zalloc(size * sizeof(*m->slots)), .size = size };
    for (size_t i = 0; i < old.size; i++) {
        if (old.slots[i].value != NULL)
            place(m, old.slots[i].id, old.slots[i].value);
    }
    free(old.slots);
}

void *id_map_get(const struct id_map *m, const char *id)
{
    struct id_map_slot *s = find(m, id);

    return s != NULL ? s->value : NULL;
}

void id_map_put(struct id_map *m, const char *id, void *value)
{
    assert(value != NULL && strlen(id) == SBX_ID_LEN && find(m, id) == NULL);
    if ((m->used + 1) * 2 > m->size)
        grow(m);
    place(m, id, value);
}

void *id_map_remove(struct id_map *m, const char *id)
{
    struct id_map_slot *s = find(m, id);
    void *value;

    if (s == NULL)
        return NULL;
    value = s->value;
    s->value = NULL;
    s->dead = true;
    m->count--;
    return value;
}

void id_map_fini(struct id_map *m)
{
    free(m->slots);
    *m = (struct id_map){ 0 };
}
