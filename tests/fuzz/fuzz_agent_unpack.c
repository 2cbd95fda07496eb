/* A tar stream of an enemy, unpacked into a folder.  What stands beside the folder must stay as it
 * is, and a failure must leave the folder empty.  (The zstd layer has checksums, so it is put on
 * here.) */

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "agent/archive.h"
#include "fuzz.h"

enum { CONTENT_MAX = 1 << 20 };

static char top[64], in[80], sentinel[80];

static void tidy(void)
{
    (void)unlink(sentinel);
    (void)rmdir(in);
    (void)rmdir(top);
}

static void prepare(void)
{
    int fd;

    (void)snprintf(top, sizeof(top), "/tmp/fuzz-unpack-XXXXXX");
    if (!mkdtemp(top))
        abort();
    (void)snprintf(in, sizeof(in), "%s/in", top);
    (void)snprintf(sentinel, sizeof(sentinel), "%s/file", top);
    fd = open(sentinel, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (mkdir(in, 0700) < 0 || fd < 0 || write(fd, "safe", 4) != 4)
        abort();
    close(fd);
    (void)atexit(tidy);
}

static size_t entries(const char *path)
{
    DIR *d = opendir(path);
    size_t n = 0;

    if (!d)
        abort();
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

static void check_beside(void)
{
    char text[8] = "";
    struct stat st;
    int fd = open(sentinel, O_RDONLY | O_NOFOLLOW);

    if (fd < 0 || fstat(fd, &st) < 0 || read(fd, text, sizeof(text)) != 4 ||
        strcmp(text, "safe") != 0 || st.st_nlink != 1 || st.st_mode != (S_IFREG | 0600) ||
        entries(top) != 2)
        abort();
    close(fd);
}

struct input {
    const unsigned char *data;
    size_t left;
};

static ssize_t give(void *ctx, void *into, size_t size)
{
    struct input *i = ctx;
    size_t n = i->left < size ? i->left : size;

    memcpy(into, i->data, n);
    i->data += n;
    i->left -= n;
    return (ssize_t)n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct agent_archive_result result;
    size_t bound = ZSTD_compressBound(size), len;
    unsigned char *archive = malloc(bound);
    struct input input;
    int fd;

    if (!top[0])
        prepare();
    if (!archive)
        abort();
    len = ZSTD_compress(archive, bound, data, size, 1);
    if (ZSTD_isError(len))
        abort();
    input = (struct input){ archive, len };
    fd = open(in, O_RDONLY | O_DIRECTORY);
    agent_unpack(fd, CONTENT_MAX, (struct agent_feed){ give, &input }, &result);
    check_beside();
    if (result.reason != SBX_AGENT_REASON_NONE && entries(in) != 0)
        abort();
    if (result.bytes > CONTENT_MAX || !agent_empty(fd))
        abort();
    close(fd);
    free(archive);
    return 0;
}
