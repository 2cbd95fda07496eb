#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "gateway/egress_impl.h"

/* The table of attached sandboxes, and its copy on disk: one small file each, written
 * before anything is made in the kernel and removed after all of it is gone. */

struct egress_entry *egress_entry_find(struct egress *e, const char *id)
{
    for (struct egress_entry *n = e->entries; n != NULL; n = n->next)
        if (strcmp(n->id, id) == 0)
            return n;
    return NULL;
}

struct egress_entry *egress_entry_slot(struct egress *e, unsigned slot)
{
    for (struct egress_entry *n = e->entries; n != NULL; n = n->next)
        if (n->slot == slot)
            return n;
    return NULL;
}

void egress_entry_free(struct egress_entry *n)
{
    egress_rules_fini(&n->rules);
    free(n->denials);
    free(n);
}

/* Takes it out of the table; the slot stays taken until the kernel's part is gone. */
struct egress_entry *egress_entry_take(struct egress *e, const char *id)
{
    for (struct egress_entry **p = &e->entries; *p != NULL; p = &(*p)->next)
        if (strcmp((*p)->id, id) == 0) {
            struct egress_entry *n = *p;

            *p = n->next;
            return n;
        }
    return NULL;
}

static void file_name(const char *id, char out[EGRESS_NAME_SIZE])
{
    (void)snprintf(out, EGRESS_NAME_SIZE, "sandboxes/%s", id);
}

enum sbx_code egress_entry_write(const struct egress *e, const struct egress_entry *n,
                                 struct sbx_err *err)
{
    SCOPED_JSON json_t *j = egress_rules_json(&n->rules);
    SCOPED_BUF struct buf text = BUF_INIT(EGRESS_FILE_MAX);
    char name[EGRESS_NAME_SIZE];

    json_put_int(j, "slot", n->slot);
    file_name(n->id, name);
    if (!json_write(&text, j))
        return err_set(err, SBX_E_INVALID, "the network rules are too large");
    return egress_file_write(e, name, text.data, text.len, 0600, err);
}

void egress_entry_unlink(const struct egress *e, const char *id)
{
    char name[EGRESS_NAME_SIZE], path[EGRESS_PATH_SIZE * 2];

    file_name(id, name);
    (void)snprintf(path, sizeof(path), "%s/%s", e->dir, name);
    (void)unlink(path);
}

static void entry_read(struct egress *e, int dir_fd, const char *id)
{
    SCOPED_FD int fd = openat(dir_fd, id, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    SCOPED_BUF struct buf text = BUF_INIT(EGRESS_FILE_MAX * 2);
    SCOPED_JSON json_t *j = NULL;
    struct egress_entry *n = mem_zalloc(sizeof(*n));
    struct sbx_err err = { 0 };
    struct stat st;
    int64_t slot;
    char *room;

    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size < EGRESS_FILE_MAX &&
        (room = buf_reserve(&text, (size_t)st.st_size + 1)) != NULL &&
        read(fd, room, (size_t)st.st_size) == st.st_size &&
        json_parse_object(room, (size_t)st.st_size, &j, &err) == SBX_OK &&
        egress_rules_from_json(j, &n->rules)) {
        slot = json_get_int(j, "slot", 0);
        if (slot > 0 && slot <= (int64_t)e->slot_max && e->slots[slot] == EGRESS_SLOT_FREE) {
            n->slot = (unsigned)slot;
            (void)str_copy(n->id, sizeof(n->id), id);
            e->slots[slot] = EGRESS_SLOT_TAKEN;
            e->proxy_wanted = e->proxy_wanted || (n->rules.domain_count > 0 && e->helper != NULL);
            n->next = e->entries;
            e->entries = n;
            return;
        }
    }
    log_warn("a sandbox's network file is damaged and was dropped", LOG_S("sandboxId", id));
    (void)unlinkat(dir_fd, id, 0);
    egress_entry_free(n);
}

enum sbx_code egress_entries_read(struct egress *e, struct sbx_err *err)
{
    char path[EGRESS_PATH_SIZE * 2];
    struct dirent *d;
    DIR *dir;

    (void)snprintf(path, sizeof(path), "%s/sandboxes", e->dir);
    if (mkdir(e->dir, 0711) < 0 && errno != EEXIST)
        return err_sys(err, SBX_E_INTERNAL, "make the egress folder");
    if (chmod(e->dir, 0711) < 0 || (mkdir(path, 0700) < 0 && errno != EEXIST))
        return err_sys(err, SBX_E_INTERNAL, "make the egress folder");
    dir = opendir(path);
    if (dir == NULL)
        return err_sys(err, SBX_E_INTERNAL, "read the egress folder");
    while ((d = readdir(dir)) != NULL) {
        if (id_valid(d->d_name))
            entry_read(e, dirfd(dir), d->d_name);
        else if (d->d_name[0] != '.')
            (void)unlinkat(dirfd(dir), d->d_name, 0); /* half written */
    }
    (void)closedir(dir);
    return SBX_OK;
}
