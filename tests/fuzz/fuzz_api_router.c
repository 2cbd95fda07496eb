/* Paths through the real route tables: a match has the method and as many segments as its pattern.
 */

#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "fuzz.h"
#include "http/internal.h"

static size_t split(char *text, char **segments)
{
    size_t count = 0;

    while (text != NULL && count < ROUTE_SEGMENTS_MAX) {
        char *slash = strchr(text, '/');

        if (slash != NULL)
            *slash++ = '\0';
        segments[count++] = text;
        text = slash;
    }
    return count;
}

static size_t segments_of(const char *pattern)
{
    size_t n = 0;

    for (; *pattern != '\0'; pattern++)
        n += *pattern == '/';
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct route_table *const tables[] = { API_PUBLIC, API_ADMIN };
    const size_t counts[] = { API_PUBLIC_COUNT, API_ADMIN_COUNT };
    char *segments[ROUTE_SEGMENTS_MAX];
    struct router router;
    enum http_method method;
    size_t count;
    char *text;

    if (size < 2)
        return 0;
    text = malloc(size);
    if (text == NULL)
        abort();
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    count = split(text, segments);
    method = (enum http_method)(1 + data[0] / 2 % (HTTP_METHOD_COUNT - 1));
    route_compile(&router, tables[data[0] % 2], counts[data[0] % 2]);
    {
        struct router_match m = route_find(&router, method, segments, count);

        if (m.row != NULL && (m.row->route->method != method ||
                              segments_of(m.row->route->path) != count || m.path == NULL))
            abort();
    }
    route_fini(&router);
    free(text);
    return 0;
}
