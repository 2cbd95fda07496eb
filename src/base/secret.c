#include "base/secret.h"

#include <fcntl.h>
#include <string.h>

#include "base/mem.h"
#include "base/scoped.h"

struct secret {
    size_t len;
    char data[];
};

struct secret *secret_new(const void *data, size_t len)
{
    struct secret *s = mem_zalloc(sizeof(*s) + len + 1);

    s->len = len;
    if (len > 0)
        memcpy(s->data, data, len);
    return s;
}

enum sbx_code secret_read_file(const char *path, const char *option, size_t max,
                               struct secret **out, struct sbx_err *err)
{
    SCOPED_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    SCOPED_SECRET struct secret *s = NULL;
    size_t len = 0;

    if (fd < 0)
        return err_sys(err, SBX_E_INVALID, "the file of %s cannot be opened", option);
    s = mem_zalloc(sizeof(*s) + max + 2);
    for (;;) {
        ssize_t n = read(fd, s->data + len, max + 1 - len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, SBX_E_INVALID, "the file of %s cannot be read", option);
        if (n == 0)
            break;
        len += (size_t)n;
        s->len = len;
        if (len > max)
            return err_set(err, SBX_E_INVALID, "the file of %s is larger than %zu bytes", option,
                           max);
    }
    if (len > 0 && s->data[len - 1] == '\n')
        s->data[--len] = 0;
    s->len = len;
    *out = STEAL(s);
    return SBX_OK;
}

void secret_free(struct secret *s)
{
    if (s == NULL)
        return;
    secret_wipe(s->data, s->len);
    free(s);
}

const char *secret_reveal(const struct secret *s)
{
    return s->data;
}

size_t secret_len(const struct secret *s)
{
    return s->len;
}

const char *secret_print(const struct secret *s)
{
    (void)s;
    return "***";
}

void secret_wipe(void *data, size_t len)
{
    explicit_bzero(data, len);
}
