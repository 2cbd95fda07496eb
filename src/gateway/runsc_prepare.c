/* Everything of a sandbox before its processes: image, network, disk, small files, the OCI bundle.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "gateway/checkin.h"
#include "gateway/runsc.h"
#include "gateway/runsc_disk.h"
#include "sbx/agent.h"

/* Not in the agent's folder: image code must find it, and the agent hides that folder. */
static const char STATX_CURE[] = "/etc/sandboxd-statx.so";

/* The socket the agent dials, in a name that was not there: a listener of a dead gateway is put
 * aside by the rename. */
enum sbx_code runsc_listen_agent(struct runsc *r, const char *id, int *out, struct sbx_err *err)
{
    SCOPED_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    char path[RUNSC_PATH_SIZE], next[RUNSC_PATH_SIZE];

    runsc_path(r, id, "a/next.sock", next);
    runsc_path(r, id, "a/agent.sock", path);
    (void)str_copy(un.sun_path, sizeof(un.sun_path), next); /* it fits: make_folders has checked */
    (void)unlink(next);
    if (fd < 0 || bind(fd, (struct sockaddr *)&un, sizeof(un)) < 0 || chmod(next, 0666) < 0 ||
        listen(fd, RUNSC_BACKLOG) < 0 || rename(next, path) < 0)
        return err_sys(err, SBX_E_UNAVAILABLE, "make the agent's socket");
    *out = fd;
    fd = -1;
    return SBX_OK;
}

void runsc_hold_note(struct runsc *r, const char *id, const char *digest)
{
    (void)pthread_mutex_lock(&r->lock);
    id_map_put(&r->holds, id, mem_strdup(digest));
    (void)pthread_mutex_unlock(&r->lock);
}

void runsc_hold_drop(struct runsc *r, const char *id)
{
    SCOPED_FREE char *digest = NULL;

    (void)pthread_mutex_lock(&r->lock);
    digest = id_map_remove(&r->holds, id);
    (void)pthread_mutex_unlock(&r->lock);
    if (digest != NULL)
        image_release(r->images, digest);
}

/* A hard link: no copy for each sandbox, and an agent that is replaced on the host stays what it
 * was for those that run. */
static enum sbx_code link_guest(struct runsc *r, const char *id, const char *folder,
                                const char *name, struct sbx_err *err)
{
    char from[RUNSC_PATH_SIZE], to[RUNSC_PATH_SIZE], last[32];

    (void)snprintf(last, sizeof(last), "%s/%s", folder, name);
    (void)snprintf(from, sizeof(from), "%s/t/%s", r->dir, name);
    runsc_path(r, id, last, to);
    if (link(from, to) < 0 && errno != EEXIST)
        return err_sys(err, SBX_E_UNAVAILABLE, "place %s", name);
    return SBX_OK;
}

static enum sbx_code make_agent_folder(struct runsc *r, const char *id, struct sbx_err *err)
{
    char path[RUNSC_PATH_SIZE];

    runsc_path(r, id, "a", path);
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return err_sys(err, SBX_E_UNAVAILABLE, "make the agent's folder");
    return link_guest(r, id, "a", "agent", err);
}

/* The check-in's own sandboxes measure themselves from inside; the agent's folder is hidden there.
 */
static bool is_probe(const struct driver_spec *spec)
{
    return spec->account_id != NULL && strcmp(spec->account_id, GATEWAY_CHECKIN_ACCOUNT) == 0;
}

static enum sbx_code make_probe_folder(struct runsc *r, const char *id, struct sbx_err *err)
{
    char path[RUNSC_PATH_SIZE];

    runsc_path(r, id, "p", path);
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return err_sys(err, SBX_E_UNAVAILABLE, "make the probe's folder");
    return link_guest(r, id, "p", "probe", err);
}

/* Small files that a sandbox sees under /etc. */
static enum sbx_code make_etc(struct runsc *r, const char *id, struct sbx_err *err)
{
    char path[RUNSC_PATH_SIZE], text[256];

    (void)snprintf(text, sizeof(text), "127.0.0.1 localhost\n::1 localhost\n127.0.0.1 %s\n", id);
    runsc_path(r, id, "hosts", path);
    if (file_write(path, text, strlen(text), 0644, false, err) != SBX_OK)
        return err->code;
    (void)snprintf(text, sizeof(text), "%s\n", id);
    runsc_path(r, id, "hostname", path);
    if (file_write(path, text, strlen(text), 0644, false, err) != SBX_OK)
        return err->code;
    (void)snprintf(text, sizeof(text), "%s\n", STATX_CURE);
    runsc_path(r, id, "preload", path);
    return r->features.statx_fault ? file_write(path, text, strlen(text), 0644, false, err)
                                   : SBX_OK;
}

static enum sbx_code make_disk(struct runsc *r, const struct driver_spec *spec,
                               const struct image *image, struct sbx_err *err)
{
    char templates[RUNSC_PATH_SIZE], file[RUNSC_PATH_SIZE], dir[RUNSC_PATH_SIZE],
        root[RUNSC_PATH_SIZE];

    (void)snprintf(templates, sizeof(templates), "%s/t", r->dir);
    runsc_path(r, spec->id, "disk.img", file);
    runsc_path(r, spec->id, "d", dir);
    runsc_path(r, spec->id, "m", root);
    if (!r->features.disk)
        return runsc_disk_make_plain(dir, image->uid, image->gid, err);
    if (runsc_disk_make(templates, file, dir, spec->disk_mb, image->uid, image->gid, err) != SBX_OK)
        return err->code;
    return runsc_disk_overlay(image->rootfs, dir, root, err);
}

static enum sbx_code make_network(struct runsc *r, const struct driver_spec *spec,
                                  struct egress_lease *lease, struct sbx_err *err)
{
    bool wants = spec->network.enabled ||
                 (spec->network.domains != NULL && spec->network.domains[0] != NULL);

    *lease = (struct egress_lease){ .mode = EGRESS_NONE };
    if (r->egress != NULL)
        return egress_attach(r->egress, spec->id, &spec->network, lease, err);
    /* Without egress nothing gets out: more than any rule asks, but an allowed target is promised.
     */
    if (wants)
        return err_set(err, SBX_E_UNAVAILABLE, "the region has no network: %s", r->egress_error);
    return SBX_OK;
}

static enum sbx_code write_bundle(struct runsc *r, const struct driver_spec *spec,
                                  const struct image *image, const struct egress_lease *lease,
                                  const struct driver_workload *workload, struct sbx_err *err)
{
    char root[RUNSC_PATH_SIZE];
    struct runsc_bundle b = { .hostname = spec->id,
                              .rootfs = r->features.disk ? root : image->rootfs,
                              .netns = lease->netns,
                              .memory_mb = spec->memory_mb,
                              .agent = spec->agent ? SBX_AGENT_BINARY : NULL,
                              .workload = workload };
    char agent[RUNSC_PATH_SIZE], workspace[RUNSC_PATH_SIZE], hosts[RUNSC_PATH_SIZE],
        hostname[RUNSC_PATH_SIZE], preload[RUNSC_PATH_SIZE], probe[RUNSC_PATH_SIZE],
        cure[RUNSC_PATH_SIZE];

    runsc_path(r, spec->id, "m", root);
    runsc_path(r, spec->id, "a", agent);
    runsc_path(r, spec->id, "d/workspace", workspace);
    runsc_path(r, spec->id, "hosts", hosts);
    runsc_path(r, spec->id, "hostname", hostname);
    runsc_path(r, spec->id, "preload", preload);
    runsc_bundle_bind(&b, workspace, "/workspace", false);
    runsc_path(r, spec->id, "p", probe);
    if (is_probe(spec))
        runsc_bundle_bind(&b, probe, GATEWAY_CHECKIN_DIR, true);
    (void)snprintf(cure, sizeof(cure), "%s/t/statx.so", r->dir);
    if (r->features.statx_fault) {
        runsc_bundle_bind(&b, preload, "/etc/ld.so.preload", true);
        runsc_bundle_bind(&b, cure, STATX_CURE, true);
    }
    runsc_bundle_bind(&b, hosts, "/etc/hosts", true);
    runsc_bundle_bind(&b, hostname, "/etc/hostname", true);
    if (lease->resolv_conf[0] != 0)
        runsc_bundle_bind(&b, lease->resolv_conf, "/etc/resolv.conf", true);
    if (spec->mount.source != NULL)
        runsc_bundle_bind(&b, spec->mount.source, spec->mount.target, false);
    /* Last: nothing of a tenant's, by whatever link of its image, lies over it. */
    if (spec->agent)
        runsc_bundle_bind(&b, agent, SBX_AGENT_DIR, true);
    return runsc_run_write_config(r, spec->id, &b, err);
}

static enum sbx_code acquire_image(struct runsc *r, const struct driver_spec *spec, struct arena *a,
                                   struct image *image, struct sbx_err *err)
{
    struct image_registry registry = { 0 };
    struct runsc_meta meta = { .cpu_millis = spec->cpu_millis };

    if (spec->registry != NULL)
        registry = (struct image_registry){ .host = spec->registry->host,
                                            .username = spec->registry->username,
                                            .password = spec->registry->password };
    if (image_acquire(r->images, spec->image, spec->registry != NULL ? &registry : NULL, a, image,
                      err) != SBX_OK)
        return err->code;
    runsc_hold_note(r, spec->id, image->digest);
    (void)str_copy(meta.digest, sizeof(meta.digest), image->digest);
    return runsc_meta_write(r, spec->id, &meta, err);
}

enum sbx_code runsc_prepare(struct driver *d, const struct driver_spec *spec, struct arena *a,
                            struct driver_prepared *out, struct sbx_err *err)
{
    struct runsc *r = (struct runsc *)(void *)d;
    struct runsc_image_defaults defaults;
    struct egress_lease lease;
    struct image image = { 0 };
    char path[RUNSC_PATH_SIZE];

    out->listen_fd = -1;
    runsc_path(r, spec->id, NULL, path);
    if (mkdir(path, 0700) < 0)
        return err_sys(err, SBX_E_UNAVAILABLE, "make a sandbox's folder");
    if (acquire_image(r, spec, a, &image, err) != SBX_OK ||
        make_network(r, spec, &lease, err) != SBX_OK || make_disk(r, spec, &image, err) != SBX_OK ||
        make_etc(r, spec->id, err) != SBX_OK || make_agent_folder(r, spec->id, err) != SBX_OK ||
        (is_probe(spec) && make_probe_folder(r, spec->id, err) != SBX_OK))
        return err->code;
    defaults = (struct runsc_image_defaults){ .argv = image.argv,
                                              .env = image.env,
                                              .home = image.home,
                                              .uid = image.uid,
                                              .gid = image.gid,
                                              .groups = image.groups,
                                              .group_count = image.group_count };
    runsc_bundle_workload(spec, &defaults, lease.proxy,
                          (uint64_t)config_int(r->config, "runsc", "nproc_max"), a, &out->workload);
    if (!spec->agent && out->workload.argv[0] == NULL)
        return err_set(err, SBX_E_INVALID, "neither the template nor its image names a command");
    if (write_bundle(r, spec, &image, &lease, &out->workload, err) != SBX_OK)
        return err->code;
    return spec->agent ? runsc_listen_agent(r, spec->id, &out->listen_fd, err) : SBX_OK;
}
