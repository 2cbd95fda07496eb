#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/id.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "base/time.h"
#include "gateway/image_impl.h"

enum { PATH_SIZE = 256, TAG_MAX = 128, DIGEST_TEXT = 71 };

void image_folder_name(const char *digest, char out[IMAGE_DIGEST_SIZE + 8])
{
    (void)snprintf(out, IMAGE_DIGEST_SIZE + 8, "root/sha256-%s", digest + 7);
}

static bool name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-' || c == '/' || c == ':';
}

enum sbx_code image_reference_check(const char *reference, char digest[IMAGE_DIGEST_SIZE],
                                    struct sbx_err *err)
{
    const char *at = strchr(reference, '@');
    size_t len = strlen(reference);

    if (at == NULL || at == reference || len >= IMAGE_REFERENCE_MAX ||
        strlen(at + 1) != DIGEST_TEXT || !str_starts(at + 1, "sha256:"))
        return err_set(err, SBX_E_INVALID, "an image is named repository@sha256:<64 hex digits>");
    for (const char *p = at + 8; *p != 0; p++)
        if (!((*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'f')))
            return err_set(err, SBX_E_INVALID, "an image's digest is 64 lower-case hex digits");
    for (const char *p = reference; p < at; p++)
        if (!name_char(*p) || (p[0] == '/' && (p == reference || p[1] == '/' || p + 1 == at)))
            return err_set(err, SBX_E_INVALID, "the image's repository name is malformed");
    if (reference[0] == '-' || reference[0] == '.' || reference[0] == ':' ||
        strstr(reference, "..") != NULL)
        return err_set(err, SBX_E_INVALID, "the image's repository name is malformed");
    (void)str_copy(digest, IMAGE_DIGEST_SIZE, at + 1);
    return SBX_OK;
}

struct image_entry *image_entry_find(struct image_store *s, const char *digest)
{
    for (struct image_entry *e = s->entries; e != NULL; e = e->next)
        if (strcmp(e->digest, digest) == 0)
            return e;
    return NULL;
}

struct image_entry *image_entry_get(struct image_store *s, const char *digest)
{
    struct image_entry *e = image_entry_find(s, digest);

    if (e == NULL) {
        e = mem_zalloc(sizeof(*e));
        (void)str_copy(e->digest, sizeof(e->digest), digest);
        e->next = s->entries;
        s->entries = e;
    }
    return e;
}

static void entry_free(struct image_entry *e)
{
    for (size_t i = 0; i < e->name_count; i++)
        free(e->names[i].reference);
    free(e);
}

static void entry_drop(struct image_store *s, struct image_entry *gone)
{
    for (struct image_entry **p = &s->entries; *p != NULL; p = &(*p)->next)
        if (*p == gone) {
            *p = gone->next;
            entry_free(gone);
            return;
        }
}

struct image_entry *image_entry_claim(struct image_store *s, const char *digest)
{
    struct image_entry *e = image_entry_get(s, digest);

    while (e->busy) {
        pthread_cond_wait(&s->changed, &s->lock);
        e = image_entry_get(s, digest);
    }
    e->busy = true;
    return e;
}

void image_entry_unclaim(struct image_store *s, struct image_entry *e)
{
    assert(e->busy);
    e->busy = false;
    if (!e->present)
        entry_drop(s, e);
    pthread_cond_broadcast(&s->changed);
}

struct image_name *image_entry_name(struct image_entry *e, const char *reference)
{
    for (size_t i = 0; i < e->name_count; i++)
        if (strcmp(e->names[i].reference, reference) == 0)
            return &e->names[i];
    return NULL;
}

static json_t *names_json(const struct image_entry *e)
{
    json_t *list = json_array();

    for (size_t i = 0; i < e->name_count; i++) {
        json_t *name = json_object();

        json_put_str(name, "reference", e->names[i].reference);
        json_put_int(name, "origin", e->names[i].origin);
        (void)json_array_append_new(list, name);
    }
    return list;
}

static enum sbx_code write_names(struct image_store *s, const struct image_entry *e,
                                 struct sbx_err *err)
{
    SCOPED_JSON json_t *meta = NULL;
    enum sbx_code code = image_json_load(s, e->digest, &meta, err);

    if (code != SBX_OK)
        return code;
    json_put_new(meta, "names", names_json(e));
    return image_json_store(s, e->digest, meta, err);
}

enum sbx_code image_entry_add_name(struct image_store *s, struct image_entry *e,
                                   const char *reference, enum image_origin origin,
                                   struct sbx_err *err)
{
    struct image_name *n;
    bool same, full;

    pthread_mutex_lock(&s->lock);
    n = image_entry_name(e, reference);
    same = n != NULL && n->origin == origin;
    full = n == NULL && e->name_count == IMAGE_NAMES_MAX;
    if (n == NULL && !full) {
        n = &e->names[e->name_count++];
        *n = (struct image_name){ .reference = mem_strdup(reference) };
    }
    if (!full)
        n->origin = origin;
    pthread_mutex_unlock(&s->lock);
    if (full)
        return err_set(err, SBX_E_INVALID, "the image has too many names in this region");
    return same ? SBX_OK : write_names(s, e, err);
}

static void names_read(struct image_entry *e, const json_t *list)
{
    size_t i;
    const json_t *j;

    json_array_foreach(list, i, j)
    {
        const char *reference = json_get_str(j, "reference", NULL);
        int64_t origin = json_get_int(j, "origin", IMAGE_PRIVATE);

        if (reference == NULL || e->name_count == IMAGE_NAMES_MAX)
            continue;
        e->names[e->name_count++] = (struct image_name){
            .reference = mem_strdup(reference),
            .origin = origin >= IMAGE_LOCAL && origin <= IMAGE_PRIVATE ? (enum image_origin)origin
                                                                       : IMAGE_PRIVATE,
        };
    }
}

/* What a former run left: whole images only, by construction. */
static enum sbx_code scan(struct image_store *s, struct sbx_err *err)
{
    int fd = openat(s->dir_fd, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *d;

    if (dir == NULL) {
        fd_close(&fd);
        return err_sys(err, SBX_E_INTERNAL, "read the image store");
    }
    while ((d = readdir(dir)) != NULL) {
        SCOPED_JSON json_t *meta = NULL;
        struct sbx_err why = { 0 };
        char digest[IMAGE_DIGEST_SIZE];
        struct image_entry *e;
        struct stat st;

        if (strlen(d->d_name) != DIGEST_TEXT || !str_starts(d->d_name, "sha256-"))
            continue;
        (void)snprintf(digest, sizeof(digest), "sha256:%s", d->d_name + 7);
        if (image_json_load(s, digest, &meta, &why) != SBX_OK) {
            log_err(LOG_WARN, "an image cannot be read and is not used", &why,
                    LOG_S("digest", digest));
            continue;
        }
        e = image_entry_get(s, digest);
        e->present = true;
        e->bytes = json_get_int(meta, "bytes", 0);
        names_read(e, json_object_get(meta, "names"));
        if (fstatat(fd, d->d_name, &st, 0) == 0)
            e->used_ms = (int64_t)st.st_mtim.tv_sec * 1000;
    }
    (void)closedir(dir);
    return SBX_OK;
}

static bool make_folders(struct image_store *s)
{
    static const char *const folders[] = { "root", "tmp" };

    if (mkdir(s->config->dir, 0700) < 0 && errno != EEXIST)
        return false;
    s->dir_fd = open(s->config->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->dir_fd < 0 || fchmod(s->dir_fd, 0700) < 0)
        return false;
    for (size_t i = 0; i < COUNT_OF(folders); i++)
        if (mkdirat(s->dir_fd, folders[i], 0700) < 0 && errno != EEXIST)
            return false;
    return true;
}

static bool program_there(const char *name)
{
    static const char *const folders[] = { "/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
                                           "/usr/bin",        "/sbin",          "/bin" };
    char path[PATH_SIZE];

    if (strchr(name, '/') != NULL)
        return access(name, X_OK) == 0;
    for (size_t i = 0; i < COUNT_OF(folders); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", folders[i], name);
        if (access(path, X_OK) == 0)
            return true;
    }
    return false;
}

/* A configuration that outlives the caller's, in its own arena. */
struct image_configs {
    struct image_configs *next;
    struct arena *a;
    struct image_store_config config;
};

static const char *const *list_copy(struct arena *a, const char *const *list)
{
    size_t n = 0;

    while (list != NULL && list[n] != NULL)
        n++;
    const char **out = arena_zalloc(a, (n + 1) * sizeof(*out));
    for (size_t i = 0; i < n; i++)
        out[i] = arena_strdup(a, list[i]);
    return out;
}

void image_store_configure(struct image_store *s, const struct image_store_config *config)
{
    struct image_configs *copy = mem_zalloc(sizeof(*copy));
    const struct image_store_config *old = s->config;
    struct image_store_config *c = &copy->config;

    assert(config->image_max_bytes > 0 && config->cache_max_bytes > 0);
    copy->a = arena_new();
    *c = *config;
    c->dir = arena_strdup(copy->a, old != NULL ? old->dir : config->dir);
    c->skopeo = arena_strdup(copy->a, config->skopeo != NULL ? config->skopeo : "skopeo");
    c->umoci = arena_strdup(copy->a, config->umoci != NULL ? config->umoci : "umoci");
    c->insecure_registries = list_copy(copy->a, config->insecure_registries);
    c->internal_registries = list_copy(copy->a, config->internal_registries);
    copy->next = s->configs;
    s->configs = copy;
    s->config = c;
}

enum sbx_code image_store_open(const struct image_store_config *config, struct image_store **out,
                               struct sbx_err *err)
{
    struct image_store *s = mem_zalloc(sizeof(*s));
    enum sbx_code code = SBX_OK;

    assert(config->dir[0] == '/');
    image_store_configure(s, config);
    s->dir_fd = -1;
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_cond_init(&s->changed, NULL);
    random_bytes(s->proof_key, sizeof(s->proof_key));
    if (!program_there(s->config->skopeo) || !program_there(s->config->umoci))
        code = err_set(err, SBX_E_UNAVAILABLE, "images need the programs skopeo and umoci");
    else if (!make_folders(s))
        code = err_sys(err, SBX_E_INTERNAL, "open the image store");
    else if (flock(s->dir_fd, LOCK_EX | LOCK_NB) < 0)
        code = err_set(err, SBX_E_UNAVAILABLE, "another process uses this image store");
    if (code == SBX_OK) {
        image_fs_remove(s, "tmp");
        if (mkdirat(s->dir_fd, "tmp", 0700) < 0 && errno != EEXIST)
            code = err_sys(err, SBX_E_INTERNAL, "open the image store");
    }
    if (code == SBX_OK)
        code = scan(s, err);
    if (code != SBX_OK) {
        image_store_close(s);
        return code;
    }
    *out = s;
    return SBX_OK;
}

void image_store_close(struct image_store *s)
{
    if (s == NULL)
        return;
    while (s->entries != NULL) {
        struct image_entry *e = s->entries;

        assert(!e->busy);
        s->entries = e->next;
        entry_free(e);
    }
    while (s->configs != NULL) {
        struct image_configs *c = s->configs;

        s->configs = c->next;
        arena_free(c->a);
        free(c);
    }
    fd_close(&s->dir_fd);
    (void)pthread_cond_destroy(&s->changed);
    (void)pthread_mutex_destroy(&s->lock);
    free(s);
}

enum sbx_code image_work_begin(struct image_store *s, char work[IMAGE_WORK_SIZE],
                               struct sbx_err *err)
{
    char id[ID_SIZE];

    id_new(id);
    (void)snprintf(work, IMAGE_WORK_SIZE, "tmp/%s", id);
    if (mkdirat(s->dir_fd, work, 0700) < 0)
        return err_sys(err, errno == ENOSPC ? SBX_E_UNAVAILABLE : SBX_E_INTERNAL,
                       "make a folder in the image store");
    return SBX_OK;
}

void image_work_end(struct image_store *s, const char *work)
{
    image_fs_remove(s, work);
}

/* Takes the folder out of root/ first, so what a crash leaves is in tmp/. */
static void files_remove(struct image_store *s, const char *digest)
{
    char folder[IMAGE_DIGEST_SIZE + 8], work[IMAGE_WORK_SIZE], path[PATH_SIZE];
    struct sbx_err why = { 0 };

    image_folder_name(digest, folder);
    if (image_work_begin(s, work, &why) != SBX_OK) {
        log_err(LOG_WARN, "an image cannot be removed", &why, LOG_S("digest", digest));
        return;
    }
    (void)snprintf(path, sizeof(path), "%s/gone", work);
    (void)renameat(s->dir_fd, folder, s->dir_fd, path);
    image_work_end(s, work);
}

static bool evictable(const struct image_entry *e)
{
    if (!e->present || e->busy || e->held > 0)
        return false;
    for (size_t i = 0; i < e->name_count; i++)
        if (e->names[i].origin == IMAGE_LOCAL)
            return false; /* there is nowhere to get it again */
    return true;
}

enum sbx_code image_make_room(struct image_store *s, int64_t want, struct sbx_err *err)
{
    for (;;) {
        struct image_entry *oldest = NULL;
        char digest[IMAGE_DIGEST_SIZE];
        int64_t sum = want;

        pthread_mutex_lock(&s->lock);
        for (struct image_entry *e = s->entries; e != NULL; e = e->next) {
            sum += e->bytes;
            if (evictable(e) && (oldest == NULL || e->used_ms < oldest->used_ms))
                oldest = e;
        }
        if (sum <= s->config->cache_max_bytes || oldest == NULL) {
            pthread_mutex_unlock(&s->lock);
            if (sum <= s->config->cache_max_bytes)
                return SBX_OK;
            return err_set(err, SBX_E_UNAVAILABLE, "the region has no room for the image");
        }
        oldest->busy = true;
        (void)str_copy(digest, sizeof(digest), oldest->digest);
        pthread_mutex_unlock(&s->lock);
        files_remove(s, digest);
        log_info("image evicted", LOG_S("digest", digest));
        pthread_mutex_lock(&s->lock);
        oldest->present = false;
        image_entry_unclaim(s, oldest);
        pthread_mutex_unlock(&s->lock);
    }
}

enum sbx_code image_hold(struct image_store *s, const char *digest, struct sbx_err *err)
{
    struct image_entry *e;
    enum sbx_code code = SBX_OK;

    pthread_mutex_lock(&s->lock);
    e = image_entry_find(s, digest);
    if (e == NULL || !e->present)
        code = err_set(err, SBX_E_NOT_FOUND, "the image is not in this region");
    else
        e->held++;
    pthread_mutex_unlock(&s->lock);
    return code;
}

void image_release(struct image_store *s, const char *digest)
{
    struct image_entry *e;

    pthread_mutex_lock(&s->lock);
    e = image_entry_find(s, digest);
    assert(e != NULL && e->held > 0);
    e->held--;
    pthread_mutex_unlock(&s->lock);
}

enum sbx_code image_mount_point(struct image_store *s, const char *digest, const char *path,
                                bool folder, struct sbx_err *err)
{
    char name[IMAGE_DIGEST_SIZE + 8], rootfs[PATH_SIZE];
    SCOPED_FD int root_fd = -1;

    image_folder_name(digest, name);
    (void)snprintf(rootfs, sizeof(rootfs), "%s/rootfs", name);
    root_fd = openat(s->dir_fd, rootfs, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root_fd < 0)
        return err_set(err, SBX_E_NOT_FOUND, "the image is not in this region");
    return image_fs_point(root_fd, path, folder, err);
}

static int by_reference(const void *a, const void *b)
{
    const struct image_info *x = a, *y = b;

    return strcmp(x->reference, y->reference);
}

enum sbx_code image_list(struct image_store *s, struct arena *a, struct image_info **out,
                         size_t *count, struct sbx_err *err)
{
    struct image_info *list;
    size_t n = 0;

    (void)err;
    pthread_mutex_lock(&s->lock);
    for (struct image_entry *e = s->entries; e != NULL; e = e->next)
        n += e->present ? e->name_count : 0;
    list = arena_zalloc(a, (n + 1) * sizeof(*list));
    n = 0;
    for (struct image_entry *e = s->entries; e != NULL; e = e->next)
        for (size_t i = 0; e->present && i < e->name_count; i++)
            list[n++] = (struct image_info){ .reference = arena_strdup(a, e->names[i].reference),
                                             .bytes = e->bytes,
                                             .unpacked = true,
                                             .held = e->held };
    pthread_mutex_unlock(&s->lock);
    qsort(list, n, sizeof(*list), by_reference);
    *out = list;
    *count = n;
    return SBX_OK;
}

static void name_drop(struct image_entry *e, struct image_name *n)
{
    size_t at = (size_t)(n - e->names);

    free(n->reference);
    memmove(n, n + 1, (e->name_count - at - 1) * sizeof(*n));
    e->name_count--;
}

enum sbx_code image_remove(struct image_store *s, const char *reference, struct sbx_err *err)
{
    char digest[IMAGE_DIGEST_SIZE];
    struct image_entry *e;
    enum sbx_code code = image_reference_check(reference, digest, err);

    if (code != SBX_OK)
        return code;
    pthread_mutex_lock(&s->lock);
    e = image_entry_claim(s, digest);
    if (!e->present || image_entry_name(e, reference) == NULL)
        code = err_set(err, SBX_E_NOT_FOUND, "the image is not in this region");
    else if (e->held > 0)
        code = err_set(err, SBX_E_CONFLICT, "the image is used by %d sandboxes", e->held);
    if (code == SBX_OK) {
        name_drop(e, image_entry_name(e, reference));
        e->present = e->name_count > 0; /* nobody can hold it from here on */
        pthread_mutex_unlock(&s->lock);
        if (e->name_count > 0)
            code = write_names(s, e, err);
        else
            files_remove(s, digest);
        pthread_mutex_lock(&s->lock);
    }
    image_entry_unclaim(s, e);
    pthread_mutex_unlock(&s->lock);
    return code;
}
