#ifndef API_CURSOR_H
#define API_CURSOR_H

/* The opaque cursor of a list: where the walk is, by (createdAt, id) descending. */

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/id.h"

struct api_cursor {
    int64_t created_ms;
    char id[ID_SIZE];
};

char *api_cursor_text(struct arena *a, const struct api_cursor *cursor);
/* False when the text is not what api_cursor_text wrote. */
bool api_cursor_parse(const char *text, struct api_cursor *out);

#endif
