#include "http/route.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "http/internal.h"

static const char *const METHODS[HTTP_METHOD_COUNT] = {
    [HTTP_GET] = "GET",     [HTTP_POST] = "POST",     [HTTP_PUT] = "PUT",
    [HTTP_PATCH] = "PATCH", [HTTP_DELETE] = "DELETE",
};

const char *http_method_name(enum http_method m)
{
    assert(m > HTTP_METHOD_UNSET && m < HTTP_METHOD_COUNT);
    return METHODS[m];
}

enum http_method http_method_parse(const char *name)
{
    for (int m = HTTP_METHOD_UNSET + 1; m < HTTP_METHOD_COUNT; m++) {
        if (strcmp(METHODS[m], name) == 0)
            return (enum http_method)m;
    }
    return HTTP_METHOD_UNSET;
}

/* False when the pattern is not one. */
static bool split(const struct route *route, struct router_row *row)
{
    const char *p = route->path;

    *row = (struct router_row){ .route = route };
    if (p[0] != '/')
        return false;
    if (p[1] == '\0')
        return true;
    while (*p == '/') {
        size_t len = strcspn(++p, "/");
        bool param = len >= 2 && p[0] == '{' && p[len - 1] == '}';

        if (len == 0 || row->count == ROUTE_SEGMENTS_MAX)
            return false;
        row->segment[row->count].text = param ? p + 1 : p;
        row->segment[row->count].len = param ? len - 2 : len;
        row->segment[row->count].param = param;
        if (row->segment[row->count].len == 0 || (!param && memchr(p, '{', len) != NULL))
            return false;
        row->count++;
        p += len;
    }
    return *p == '\0';
}

static size_t params_of(const struct router_row *row)
{
    size_t n = 0;

    for (size_t i = 0; i < row->count; i++)
        n += row->segment[i].param ? 1 : 0;
    return n;
}

/* Order of the rows: fewer segments first, then a fixed segment before a parameter, then by text,
 * so that equal patterns stand together. */
static int compare(const void *pa, const void *pb)
{
    const struct router_row *a = pa, *b = pb;

    if (a->count != b->count)
        return a->count < b->count ? -1 : 1;
    for (size_t i = 0; i < a->count; i++) {
        int c;

        if (a->segment[i].param != b->segment[i].param)
            return a->segment[i].param ? 1 : -1;
        if (a->segment[i].param)
            continue;
        if (a->segment[i].len != b->segment[i].len)
            return a->segment[i].len < b->segment[i].len ? -1 : 1;
        c = memcmp(a->segment[i].text, b->segment[i].text, a->segment[i].len);
        if (c != 0)
            return c;
    }
    return 0;
}

static bool name_ok(const char *name)
{
    return name != NULL && name[0] != '\0' &&
           name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0';
}

static enum sbx_code check_row(const struct route *r, size_t i, struct sbx_err *err)
{
    bool has_body = r->body != HTTP_BODY_NONE;
    struct router_row row;

    if (r->method <= HTTP_METHOD_UNSET || r->method >= HTTP_METHOD_COUNT || r->path == NULL ||
        r->handler == NULL || r->auth == 0)
        return err_set(err, SBX_E_INTERNAL, "route %zu (%s) lacks method, path, auth or handler", i,
                       r->path != NULL ? r->path : "?");
    if (!name_ok(r->name))
        return err_set(err, SBX_E_INTERNAL, "route %s has no good name", r->path);
    if (has_body != (r->body_max > 0) || (r->body == HTTP_BODY_STREAM) != (r->on_body != NULL))
        return err_set(err, SBX_E_INTERNAL, "route %s: body, body_max and on_body disagree",
                       r->name);
    if (route_lane(r) > HTTP_LANES_MAX ||
        (route_lane(r) > 0 && ((r->flags & ROUTE_INLINE) != 0 || r->body == HTTP_BODY_STREAM)))
        return err_set(err, SBX_E_INTERNAL, "route %s: lane %u", r->name, route_lane(r));
    if ((r->flags & ROUTE_INLINE) != 0 && r->body == HTTP_BODY_STREAM)
        return err_set(err, SBX_E_INTERNAL, "route %s: a streamed body needs a worker", r->name);
    if (!split(r, &row) || params_of(&row) > ROUTE_PARAMS_MAX)
        return err_set(err, SBX_E_INTERNAL, "route %s: %s is no pattern", r->name, r->path);
    return SBX_OK;
}

enum sbx_code route_check(const struct route_table *tables, size_t count, struct sbx_err *err)
{
    struct router r = { 0 };
    size_t total = 0;
    enum sbx_code code = SBX_OK;

    for (size_t t = 0; t < count; t++) {
        for (size_t i = 0; i < tables[t].count; i++) {
            if (check_row(&tables[t].routes[i], i, err) != SBX_OK)
                return err->code;
        }
        total += tables[t].count;
    }
    if (total == 0 || total > ROUTE_TOTAL_MAX)
        return err_set(err, SBX_E_INTERNAL, "%zu routes in all", total);
    route_compile(&r, tables, count);
    for (size_t i = 0; i < r.count && code == SBX_OK; i++) {
        const struct route *a = r.rows[i].route;

        for (size_t j = 0; j < i && code == SBX_OK; j++) {
            const struct route *b = r.rows[j].route;

            if (strcmp(a->name, b->name) == 0)
                code = err_set(err, SBX_E_INTERNAL, "two routes are named %s", a->name);
            else if (a->method == b->method && compare(&r.rows[i], &r.rows[j]) == 0)
                code =
                    err_set(err, SBX_E_INTERNAL, "routes %s and %s are the same", a->name, b->name);
        }
    }
    route_fini(&r);
    return code;
}

void route_compile(struct router *r, const struct route_table *tables, size_t count)
{
    size_t at = 0;

    *r = (struct router){ 0 };
    for (size_t t = 0; t < count; t++)
        r->count += tables[t].count;
    r->rows = mem_zalloc((r->count > 0 ? r->count : 1) * sizeof(*r->rows));
    for (size_t t = 0; t < count; t++) {
        for (size_t i = 0; i < tables[t].count; i++) {
            bool ok = split(&tables[t].routes[i], &r->rows[at++]);

            assert(ok); /* route_check has passed it */
        }
    }
    qsort(r->rows, r->count, sizeof(*r->rows), compare);
    for (size_t n = 0, i = 0; n < COUNT_OF(r->first); n++) {
        while (i < r->count && r->rows[i].count < n)
            i++;
        r->first[n] = i;
    }
}

void route_fini(struct router *r)
{
    free(r->rows);
    *r = (struct router){ 0 };
}

static bool fits(const struct router_row *row, char *const *segments)
{
    for (size_t i = 0; i < row->count; i++) {
        if (row->segment[i].param)
            continue;
        if (strncmp(segments[i], row->segment[i].text, row->segment[i].len) != 0 ||
            segments[i][row->segment[i].len] != '\0')
            return false;
    }
    return true;
}

struct router_match route_find(const struct router *r, enum http_method method,
                               char *const *segments, size_t count)
{
    struct router_match m = { 0 };

    if (count > ROUTE_SEGMENTS_MAX)
        return m;
    for (size_t i = r->first[count]; i < r->first[count + 1]; i++) {
        /* The most specific pattern that fits decides: "/x/create" is never an {id}. */
        if (m.path != NULL && compare(m.path, &r->rows[i]) != 0)
            break;
        if (m.path == NULL && !fits(&r->rows[i], segments))
            continue;
        m.path = &r->rows[i];
        m.allow |= 1u << r->rows[i].route->method;
        if (r->rows[i].route->method == method) {
            m.row = &r->rows[i];
            break;
        }
    }
    return m;
}
