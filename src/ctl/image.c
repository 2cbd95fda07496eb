/* image import: a folder goes to the region's store as one tar stream. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/process.h"
#include "base/scoped.h"
#include "ctl/ctl.h"

enum { TAR_END_MS = 10 * 1000 };

/* A layout may hold several images, the store takes one: writes an index.json into tmp that names
 * only the image with that tag. */
static enum ctl_exit pick_tag(const char *layout, const char *tag, const char *tmp,
                              struct sbx_err *err)
{
    SCOPED_FREE char *from = mem_printf("%s/index.json", layout);
    SCOPED_FREE char *to = mem_printf("%s/index.json", tmp);
    SCOPED_JSON json_t *index = json_load_file(from, JSON_REJECT_DUPLICATES, NULL);
    json_t *all = json_object_get(index, "manifests");
    json_t *one = json_array();
    size_t i;
    json_t *m;

    json_array_foreach(all, i, m)
    {
        const char *name = json_get_str(json_object_get(m, "annotations"),
                                        "org.opencontainers.image.ref.name", "");

        if (strcmp(name, tag) == 0)
            (void)json_array_append(one, m);
    }
    if (json_array_size(one) != 1) {
        json_decref(one);
        return ctl_fail(err, CTL_USAGE, "The layout has no image with the tag %s.", tag);
    }
    (void)json_object_set_new(index, "manifests", one);
    if (json_dump_file(index, to, JSON_COMPACT) != 0) {
        return ctl_fail(err, CTL_USAGE, "write a temporary file: %s", strerror(errno));
    }
    return CTL_DONE;
}

struct tar {
    struct process process;
    int out;
};

static enum ctl_exit tar_start(const char *dir, const char *index_dir, struct tar *tar,
                               struct sbx_err *err)
{
    /* The same folder gives the same bytes, and so the same digest: --xattrs writes the times of
     * reading and of the inode too, and a process id in the names of headers, unless told not to. */
    const char *argv[17] = { "tar",
                             "--numeric-owner",
                             "--xattrs",
                             "--sparse",
                             "--sort=name",
                             "--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime",
                             "-cf",
                             "-" };
    struct process_spec spec = PROCESS_SPEC_INIT;
    size_t n = 8;
    int fds[2];

    if (index_dir != NULL)
        argv[n++] = "--exclude=./index.json"; /* the other one is named without "./" */
    argv[n++] = "-C", argv[n++] = dir, argv[n++] = ".";
    if (index_dir != NULL)
        argv[n++] = "-C", argv[n++] = index_dir, argv[n++] = "index.json";
    if (pipe2(fds, O_CLOEXEC) != 0) {
        return ctl_fail(err, CTL_USAGE, "pipe: %s", strerror(errno));
    }
    spec.argv = argv;
    spec.fd_out = fds[1];
    spec.fd_err = STDERR_FILENO;
    if (process_start(&spec, &tar->process, err) != SBX_OK) {
        fd_close(&fds[0]), fd_close(&fds[1]);
        return CTL_USAGE;
    }
    fd_close(&fds[1]);
    tar->out = fds[0];
    return CTL_DONE;
}

static enum ctl_exit send_tar(struct ctl *c, const char *dir, const char *index_dir,
                              const char *kind, struct sbx_err *err)
{
    SCOPED_JSON json_t *query = json_object();
    struct tar tar = { .process = { .pidfd = -1 }, .out = -1 };
    enum ctl_exit rc = tar_start(dir, index_dir, &tar, err);
    struct sbx_err why = { .code = SBX_OK };
    int status = 0;

    if (rc != CTL_DONE)
        return rc;
    json_put_str(query, "region", ctl_arg(c, "--region"));
    json_put_str(query, "name", ctl_arg(c, "--name"));
    json_put_str(query, "kind", kind);
    rc = ctl_call_stream(c, c->verb->path, query, "Content-Type: application/x-tar", tar.out, err);
    fd_close(&tar.out);
    if (process_wait(&tar.process, TAR_END_MS, &status, &why) != SBX_OK)
        process_end(&tar.process);
    if (rc == CTL_DONE && status != 0)
        rc = ctl_fail(err, CTL_USAGE, "tar could not read the whole folder.");
    if (rc == CTL_DONE)
        ctl_print_answer(c);
    return rc;
}

enum ctl_exit ctl_run_image_import(struct ctl *c, struct sbx_err *err)
{
    const char *rootfs = ctl_arg(c, "--rootfs");
    const char *layout = ctl_arg(c, "--layout");
    SCOPED_FREE char *dir = NULL;
    SCOPED_FREE char *index = NULL;
    char tmp[] = "/tmp/sandboxctl-XXXXXX";
    struct stat st;
    char *tag;
    enum ctl_exit rc;

    if ((rootfs == NULL) == (layout == NULL)) {
        return ctl_fail(err, CTL_USAGE, "Give either --layout or --rootfs.");
    }
    dir = mem_strdup(rootfs != NULL ? rootfs : layout);
    tag = layout != NULL && stat(dir, &st) != 0 ? strrchr(dir, ':') : NULL;
    if (tag != NULL)
        *tag++ = 0;
    if (stat(dir, &st) != 0 || !S_ISDIR(st.st_mode)) {
        return ctl_fail(err, CTL_USAGE, "%s is not a folder.", dir);
    }
    if (tag == NULL)
        return send_tar(c, dir, NULL, rootfs != NULL ? "rootfs" : "layout", err);
    if (mkdtemp(tmp) == NULL) {
        return ctl_fail(err, CTL_USAGE, "make a temporary folder: %s", strerror(errno));
    }
    rc = pick_tag(dir, tag, tmp, err);
    if (rc == CTL_DONE)
        rc = send_tar(c, dir, tmp, "layout", err);
    index = mem_printf("%s/index.json", tmp);
    (void)unlink(index);
    (void)rmdir(tmp);
    return rc;
}
