#include "mount/files.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { ALIAS_SIZE = 32 };

static const char ALIAS[] = ".fuse_hidden"; /* hidden_name() of libfuse 2: and %08x%08x */

struct file {
    struct file *next;
    unsigned opens;
    char key[NAMES_KEY_MAX + 1];
    char alias[ALIAS_SIZE]; /* empty: it was not deleted */
    bool gone;              /* and neither is its object there */
};

struct files {
    pthread_mutex_t lock;
    struct file *first;
    uint64_t mount; /* random: other mounts of the volume have deleted files, too */
    unsigned long deleted;
};

struct files *files_new(void)
{
    struct files *fs = calloc(1, sizeof(*fs));

    if (fs == NULL || getrandom(&fs->mount, sizeof(fs->mount), 0) != sizeof(fs->mount)) {
        free(fs);
        return NULL;
    }
    (void)pthread_mutex_init(&fs->lock, NULL);
    return fs;
}

void files_free(struct files *fs)
{
    for (struct file *f = fs->first, *next; f != NULL; f = next) {
        next = f->next;
        free(f);
    }
    (void)pthread_mutex_destroy(&fs->lock);
    free(fs);
}

static void key_copy(char out[NAMES_KEY_MAX + 1], const char *key)
{
    (void)snprintf(out, NAMES_KEY_MAX + 1, "%s", key);
}

static struct file *by_key(const struct files *fs, const char *key)
{
    struct file *f = fs->first;

    while (f != NULL && (f->gone || strcmp(f->key, key) != 0))
        f = f->next;
    return f;
}

static struct file *by_alias(const struct files *fs, const char *alias)
{
    struct file *f = fs->first;

    while (f != NULL && (f->gone || f->alias[0] == 0 || strcmp(f->alias, alias) != 0))
        f = f->next;
    return f;
}

static void drop(struct files *fs, struct file *f)
{
    struct file **at = &fs->first;

    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
    free(f);
}

struct files_handle *files_open(struct files *fs, const char *key, uint64_t fh)
{
    struct files_handle *h = calloc(1, sizeof(*h));
    struct file *f;

    if (h == NULL)
        return NULL;
    (void)pthread_mutex_lock(&fs->lock);
    f = by_key(fs, key);
    if (f == NULL && (f = calloc(1, sizeof(*f))) != NULL) {
        key_copy(f->key, key);
        f->next = fs->first;
        fs->first = f;
    }
    if (f != NULL) {
        f->opens++;
        *h = (struct files_handle){ .file = f, .fh = fh };
    } else {
        free(h);
        h = NULL;
    }
    (void)pthread_mutex_unlock(&fs->lock);
    return h;
}

bool files_close(struct files *fs, struct files_handle *h, bool orphan, char key[NAMES_KEY_MAX + 1])
{
    struct file *f = h->file;
    bool deleted, ours = false;

    (void)pthread_mutex_lock(&fs->lock);
    deleted = f->alias[0] != 0 && !f->gone;
    if (--f->opens == 0 && (!deleted || orphan)) {
        ours = deleted;
        key_copy(key, f->key);
        drop(fs, f);
    }
    (void)pthread_mutex_unlock(&fs->lock);
    free(h);
    return ours;
}

void files_key(struct files *fs, const struct files_handle *h, char key[NAMES_KEY_MAX + 1])
{
    (void)pthread_mutex_lock(&fs->lock);
    key_copy(key, h->file->key);
    (void)pthread_mutex_unlock(&fs->lock);
}

bool files_wrote(struct files *fs, struct files_handle *h, uint64_t bytes)
{
    bool due;

    (void)pthread_mutex_lock(&fs->lock);
    h->kept += bytes;
    due = h->sent == 0 || h->kept >= (h->sent > FILES_STEP ? h->sent : FILES_STEP);
    if (due) {
        h->sent += h->kept;
        h->kept = 0;
    }
    (void)pthread_mutex_unlock(&fs->lock);
    return due;
}

void files_move(struct files *fs, const char *from, const char *to)
{
    size_t n = strlen(from);

    (void)pthread_mutex_lock(&fs->lock);
    for (struct file *f = fs->first; f != NULL; f = f->next) {
        char key[NAMES_KEY_MAX + 1];

        if (strncmp(f->key, from, n) != 0 || (f->key[n] != 0 && f->key[n] != '/'))
            continue;
        key_copy(key, f->key + n);
        (void)snprintf(f->key, sizeof(f->key), "%s%s", to, key);
    }
    (void)pthread_mutex_unlock(&fs->lock);
}

bool files_is_alias(const char *name)
{
    size_t n = strlen(ALIAS);

    return strncmp(name, ALIAS, n) == 0 && strspn(name + n, "0123456789abcdef") == 16 &&
           name[n + 16] == 0;
}

bool files_find(struct files *fs, const char *alias, char key[NAMES_KEY_MAX + 1])
{
    struct file *f;

    (void)pthread_mutex_lock(&fs->lock);
    f = by_alias(fs, alias);
    if (f != NULL)
        key_copy(key, f->key);
    (void)pthread_mutex_unlock(&fs->lock);
    return f != NULL;
}

bool files_place(struct files *fs, const char *key, char place[NAMES_KEY_MAX + 1])
{
    bool open;

    (void)pthread_mutex_lock(&fs->lock);
    open = by_key(fs, key) != NULL;
    (void)snprintf(place, NAMES_KEY_MAX + 1, "/" FILES_DELETED "%016llx-%lu",
                   (unsigned long long)fs->mount, ++fs->deleted);
    (void)pthread_mutex_unlock(&fs->lock);
    return open;
}

void files_hide(struct files *fs, const char *key, const char *place, const char *alias)
{
    struct file *f;

    (void)pthread_mutex_lock(&fs->lock);
    f = by_key(fs, key);
    if (f != NULL) {
        key_copy(f->key, place);
        (void)snprintf(f->alias, sizeof(f->alias), "%s", alias);
    }
    (void)pthread_mutex_unlock(&fs->lock);
}

static void forget(struct files *fs, struct file *f)
{
    f->gone = true;
    if (f->opens == 0)
        drop(fs, f);
}

void files_forget(struct files *fs, const char *alias)
{
    struct file *f;

    (void)pthread_mutex_lock(&fs->lock);
    f = by_alias(fs, alias);
    if (f != NULL)
        forget(fs, f);
    (void)pthread_mutex_unlock(&fs->lock);
}

bool files_next_left(struct files *fs, char key[NAMES_KEY_MAX + 1])
{
    struct file *f;

    (void)pthread_mutex_lock(&fs->lock);
    f = fs->first;
    while (f != NULL && (f->gone || f->alias[0] == 0))
        f = f->next;
    if (f != NULL) {
        key_copy(key, f->key);
        forget(fs, f);
    }
    (void)pthread_mutex_unlock(&fs->lock);
    return f != NULL;
}
