#include "gateway/runsc_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/loop.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/process.h"
#include "base/scoped.h"
#include "base/str.h"

#define PROBE_DISK "probe.disk"

enum {
    MKFS_TIMEOUT_MS = 60000,
    LOOP_TRIES = 64, /* other mounts race for the same free device */
    UNMOUNT_TRIES = 100,
    UNMOUNT_WAIT_MS = 20,
};

static enum sbx_code make_template(const char *path, int64_t size_mb, struct sbx_err *err)
{
    char temp[PATH_MAX];
    /* No journal: the disk dies with its sandbox.  No reserved blocks: nobody is root of it. */
    const char *argv[] = { "mkfs.ext4",
                           "-q",
                           "-F",
                           "-O",
                           "^has_journal,^resize_inode",
                           "-E",
                           "nodiscard,lazy_itable_init=1",
                           "-m",
                           "0",
                           temp,
                           NULL };
    SCOPED_FD int fd = -1;

    (void)snprintf(temp, sizeof(temp), "%s.%016" PRIx64, path, random_u64());
    fd = open(temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)size_mb << 20) < 0)
        return err_sys(err, SBX_E_UNAVAILABLE, "make a disk image");
    if (process_run(argv, NULL, 0, NULL, MKFS_TIMEOUT_MS, err) != SBX_OK) {
        (void)unlink(temp);
        err->code = SBX_E_UNAVAILABLE;
        return err_wrap(err, "make a file system");
    }
    if (rename(temp, path) < 0)
        return err_sys(err, SBX_E_INTERNAL, "keep a disk image");
    return SBX_OK;
}

/* Copies the parts that hold data; the rest stays a hole. */
static enum sbx_code copy_sparse(const char *from, const char *to, struct sbx_err *err)
{
    SCOPED_FD int in = open(from, O_RDONLY | O_CLOEXEC);
    SCOPED_FD int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    struct stat st;
    off_t data = 0, hole;

    if (in < 0 || out < 0 || fstat(in, &st) < 0 || ftruncate(out, st.st_size) < 0)
        return err_sys(err, SBX_E_UNAVAILABLE, "copy a disk image");
    while ((data = lseek(in, data, SEEK_DATA)) >= 0) {
        hole = lseek(in, data, SEEK_HOLE);
        if (hole < 0)
            return err_sys(err, SBX_E_UNAVAILABLE, "copy a disk image");
        for (off_t at_in = data, at_out = data; at_in < hole;) {
            if (copy_file_range(in, &at_in, out, &at_out, (size_t)(hole - at_in), 0) <= 0)
                return err_sys(err, SBX_E_UNAVAILABLE, "copy a disk image");
        }
        data = hole;
    }
    return SBX_OK;
}

/* Binds image to a free loop device that frees itself at the last close (autoclear). */
static enum sbx_code bind_loop(const char *image, int *device, char path[64], struct sbx_err *err)
{
    SCOPED_FD int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    SCOPED_FD int file = open(image, O_RDWR | O_CLOEXEC);
    struct loop_config config = { .info = { .lo_flags = LO_FLAGS_AUTOCLEAR } };

    if (control < 0 || file < 0)
        return err_sys(err, SBX_E_UNAVAILABLE, "open a loop device");
    config.fd = (uint32_t)file;
    for (int i = 0; i < LOOP_TRIES; i++) {
        int number = ioctl(control, LOOP_CTL_GET_FREE);
        SCOPED_FD int fd = -1;

        if (number < 0)
            return err_sys(err, SBX_E_UNAVAILABLE, "get a loop device");
        (void)snprintf(path, 64, "/dev/loop%d", number);
        fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0)
            return err_sys(err, SBX_E_UNAVAILABLE, "open a loop device");
        if (ioctl(fd, LOOP_CONFIGURE, &config) == 0) {
            *device = fd;
            fd = -1;
            return SBX_OK;
        }
        if (errno != EBUSY)
            return err_sys(err, SBX_E_UNAVAILABLE, "bind a loop device");
    }
    return err_set(err, SBX_E_UNAVAILABLE, "no loop device is free");
}

static enum sbx_code make_folder(const char *mount_dir, const char *name, mode_t mode, uid_t uid,
                                 gid_t gid, struct sbx_err *err)
{
    char path[PATH_MAX];

    (void)snprintf(path, sizeof(path), "%s/%s", mount_dir, name);
    if ((mkdir(path, mode) < 0 && errno != EEXIST) || chmod(path, mode) < 0 ||
        chown(path, uid, gid) < 0)
        return err_sys(err, SBX_E_UNAVAILABLE, "make the %s", name);
    return SBX_OK;
}

enum sbx_code runsc_disk_make_plain(const char *mount_dir, uid_t uid, gid_t gid,
                                    struct sbx_err *err)
{
    if (mkdir(mount_dir, 0700) < 0 && errno != EEXIST)
        return err_sys(err, SBX_E_UNAVAILABLE, "make a folder");
    if (make_folder(mount_dir, "workspace", 0755, uid, gid, err) != SBX_OK)
        return err->code;
    if (make_folder(mount_dir, "layer", 0755, 0, 0, err) != SBX_OK)
        return err->code;
    return make_folder(mount_dir, "work", 0700, 0, 0, err);
}

enum sbx_code runsc_disk_make(const char *templates, const char *image, const char *mount_dir,
                              int64_t size_mb, uid_t uid, gid_t gid, struct sbx_err *err)
{
    char template[PATH_MAX], device[64];
    SCOPED_FD int fd = -1;

    if (size_mb < RUNSC_DISK_MIN_MB)
        size_mb = RUNSC_DISK_MIN_MB;
    (void)snprintf(template, sizeof(template), "%s/%" PRId64 ".img", templates, size_mb);
    if (!file_exists(template) && make_template(template, size_mb, err) != SBX_OK)
        return err->code;
    if (copy_sparse(template, image, err) != SBX_OK || bind_loop(image, &fd, device, err) != SBX_OK)
        return err->code;
    if (mkdir(mount_dir, 0700) < 0 && errno != EEXIST)
        return err_sys(err, SBX_E_UNAVAILABLE, "make a folder");
    if (mount(device, mount_dir, "ext4", MS_NOATIME | MS_NODEV | MS_NOSUID, "noinit_itable") < 0)
        return err_sys(err, SBX_E_UNAVAILABLE, "mount a sandbox's disk");
    return runsc_disk_make_plain(mount_dir, uid, gid, err);
}

enum sbx_code runsc_disk_overlay(const char *image_root, const char *mount_dir,
                                 const char *root_dir, struct sbx_err *err)
{
    char options[3 * PATH_MAX + 64];

    if (mkdir(root_dir, 0700) < 0 && errno != EEXIST)
        return err_sys(err, SBX_E_UNAVAILABLE, "make a folder");
    /* volatile: nothing is synced at the unmount, the layer dies with its sandbox */
    (void)snprintf(options, sizeof(options),
                   "lowerdir=%s,upperdir=%s/layer,workdir=%s/work,volatile", image_root, mount_dir,
                   mount_dir);
    if (mount("overlay", root_dir, "overlay", MS_NOATIME, options) < 0)
        return err_sys(err, SBX_E_UNAVAILABLE, "mount a sandbox's root");
    return SBX_OK;
}

enum sbx_code runsc_disk_drop(const char *mount_dir, struct sbx_err *err)
{
    for (int i = 0;; i++) {
        if (umount2(mount_dir, UMOUNT_NOFOLLOW) < 0) {
            if (errno == EINVAL || errno == ENOENT)
                return SBX_OK; /* nothing is mounted there */
            if (errno != EBUSY)
                return err_sys(err, SBX_E_INTERNAL, "unmount a sandbox's disk");
            if (i == UNMOUNT_TRIES)
                return err_set(err, SBX_E_INTERNAL, "a sandbox's disk stays in use");
            (void)poll(NULL, 0, UNMOUNT_WAIT_MS); /* the kernel tells nobody when it is free */
        }
    }
}

void runsc_disk_sweep(const char *templates)
{
    static const char *const DIRS[] = { "m", "d" }; /* the one stands on the other */
    struct sbx_err ignored = { 0 };
    char path[PATH_MAX];

    for (size_t i = 0; i < COUNT_OF(DIRS); i++) {
        (void)snprintf(path, sizeof(path), "%s/" PROBE_DISK ".%s", templates, DIRS[i]);
        ignored = (struct sbx_err){ 0 };
        (void)!runsc_disk_drop(path, &ignored);
        (void)rmdir(path);
    }
    (void)snprintf(path, sizeof(path), "%s/" PROBE_DISK, templates);
    (void)unlink(path);
}

enum sbx_code runsc_disk_probe(const char *templates, struct sbx_err *err)
{
    char image[PATH_MAX], mount_dir[PATH_MAX], root_dir[PATH_MAX];
    enum sbx_code code;

    (void)snprintf(image, sizeof(image), "%s/" PROBE_DISK, templates);
    (void)snprintf(mount_dir, sizeof(mount_dir), "%s.d", image);
    (void)snprintf(root_dir, sizeof(root_dir), "%s.m", image);
    code = runsc_disk_make(templates, image, mount_dir, RUNSC_DISK_MIN_MB, 0, 0, err);
    if (code == SBX_OK)
        code = runsc_disk_overlay(templates, mount_dir, root_dir, err);
    runsc_disk_sweep(templates);
    return code;
}
