/* Without libFuzzer: every file of the corpus, whole, cut and with single bytes changed, always the
 * same way. */

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

enum { MUTATIONS = 150, INPUT_MAX = 1 << 20 };

static uint32_t next(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* A copy of the exact size: the sanitizer watches its end. */
static void one(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);

    if (!copy)
        abort();
    memcpy(copy, data, size);
    (void)LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void mutate(uint8_t *data, size_t size)
{
    uint32_t seed = 1;

    one(data, size);
    for (int i = 0; size && i < MUTATIONS; i++) {
        size_t at = next(&seed) % size;
        uint8_t was = data[at];

        data[at] = (uint8_t)next(&seed);
        one(data, size);
        one(data, at);
        data[at] = was;
    }
}

int main(int argc, char **argv)
{
    static uint8_t data[INPUT_MAX];
    struct dirent *e;
    int files = 0;
    DIR *d = argc == 2 ? opendir(argv[1]) : NULL;

    while (d && (e = readdir(d))) {
        char path[4096];
        size_t size;
        FILE *f;

        if (e->d_name[0] == '.')
            continue;
        (void)snprintf(path, sizeof(path), "%s/%s", argv[1], e->d_name);
        f = fopen(path, "rb");
        if (!f)
            abort();
        size = fread(data, 1, sizeof(data), f);
        (void)fclose(f);
        mutate(data, size);
        files++;
    }
    if (d)
        closedir(d);
    printf("%d files\n", files);
    return files ? 0 : 1;
}
