#ifndef TESTS_UNIT_DOMAIN_PAGE_H
#define TESTS_UNIT_DOMAIN_PAGE_H

/* A page of docs/ that is printed from a table: a test compares it, --write writes it. Included
 * after cmocka.h; docs/ is found from the test's own source file. */

#include <stdio.h>
#include <string.h>

#include "base/file.h"

enum { PAGE_MAX = 256 * 1024, PAGE_PATH_SIZE = 1024, PAGE_MODE = 0644 };

typedef void page_print_fn(struct buf *out);

static inline void page_path(char out[PAGE_PATH_SIZE], const char *source, const char *name)
{
    (void)snprintf(out, PAGE_PATH_SIZE, "%.*sdocs/%s",
                   (int)(strstr(source, "tests/unit/") - source), source, name);
}

static inline void page_holds(const char *source, const char *name, page_print_fn *print)
{
    SCOPED_BUF struct buf want = BUF_INIT(PAGE_MAX);
    SCOPED_BUF struct buf got = BUF_INIT(PAGE_MAX);
    struct sbx_err err = { 0 };
    char path[PAGE_PATH_SIZE];

    page_path(path, source, name);
    if (file_read(path, &got, &err) != SBX_OK)
        fail_msg("%s", err.msg);
    print(&want);
    assert_false(want.full);
    assert_string_equal(got.data, want.data);
}

/* The exit code. */
static inline int page_write(const char *source, const char *name, page_print_fn *print)
{
    SCOPED_BUF struct buf text = BUF_INIT(PAGE_MAX);
    struct sbx_err err = { 0 };
    char path[PAGE_PATH_SIZE];

    page_path(path, source, name);
    print(&text);
    if (text.full || file_write(path, text.data, text.len, PAGE_MODE, false, &err) != SBX_OK)
        return 1;
    return 0;
}

#endif
