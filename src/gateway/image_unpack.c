#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "gateway/image_impl.h"

enum { PATH_SIZE = 256 };

/* Where something is bound over in every sandbox. A folder that is hidden whole need not be the one
 * that an image's link names: the runtime mounts nothing over a link. */
static const struct {
    const char *path;
    enum { POINT_FILE, POINT_FOLDER, POINT_HIDDEN } kind;
} mount_points[] = {
    { "/workspace", POINT_HIDDEN },    { "/proc", POINT_HIDDEN },
    { "/dev", POINT_HIDDEN },          { "/sys", POINT_HIDDEN },
    { "/tmp", POINT_HIDDEN },          { "/run", POINT_HIDDEN },
    { "/run/sandboxd", POINT_HIDDEN }, { "/run/warren", POINT_HIDDEN },
    { "/etc", POINT_FOLDER },          { "/etc/resolv.conf", POINT_FILE },
    { "/etc/hosts", POINT_FILE },      { "/etc/hostname", POINT_FILE },
};

static const char default_path[] =
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

const char *image_architecture(void)
{
    static const struct {
        const char *machine, *oci;
    } names[] = { { "x86_64", "amd64" }, { "aarch64", "arm64" } };
    struct utsname u;

    if (uname(&u) == 0)
        for (size_t i = 0; i < COUNT_OF(names); i++)
            if (strcmp(u.machine, names[i].machine) == 0)
                return names[i].oci;
    return "unknown";
}

static bool digest_valid(const char *digest)
{
    unsigned char raw[SHA256_LEN];

    return str_starts(digest, "sha256:") && hash_unhex(digest + 7, raw, sizeof(raw));
}

/* A blob of a layout, checked against its own name. */
static enum sbx_code blob_json(struct image_store *s, const char *layout, const char *digest,
                               json_t **out, struct sbx_err *err)
{
    SCOPED_BUF struct buf b = BUF_INIT(IMAGE_CONFIG_MAX * 2);
    unsigned char want[SHA256_LEN], have[SHA256_LEN];
    char path[PATH_SIZE];
    enum sbx_code code;

    if (!digest_valid(digest) || !hash_unhex(digest + 7, want, sizeof(want)))
        return err_set(err, SBX_E_INVALID, "the image has a malformed digest");
    (void)snprintf(path, sizeof(path), "%s/blobs/sha256/%s", layout, digest + 7);
    code = image_fs_read(s->dir_fd, path, IMAGE_CONFIG_MAX, &b, err);
    if (code == SBX_E_NOT_FOUND)
        return image_err_instead(err, SBX_E_INVALID, "the image lacks a part that it names");
    if (code != SBX_OK)
        return code;
    sha256_of(b.data, b.len, have);
    if (memcmp(want, have, sizeof(want)) != 0)
        return err_set(err, SBX_E_INVALID, "a part of the image does not match its digest");
    if (json_parse_object(b.data, b.len, out, err) != SBX_OK)
        return image_err_instead(err, SBX_E_INVALID, "a part of the image is not JSON");
    return SBX_OK;
}

enum sbx_code image_layout_digest(struct image_store *s, const char *layout,
                                  char digest[IMAGE_DIGEST_SIZE], struct sbx_err *err)
{
    SCOPED_BUF struct buf b = BUF_INIT(IMAGE_CONFIG_MAX * 2);
    SCOPED_JSON json_t *index = NULL;
    const json_t *list;
    const char *text;
    char path[PATH_SIZE];
    enum sbx_code code;

    (void)snprintf(path, sizeof(path), "%s/index.json", layout);
    code = image_fs_read(s->dir_fd, path, IMAGE_CONFIG_MAX, &b, err);
    if (code == SBX_E_NOT_FOUND)
        return image_err_instead(err, SBX_E_INVALID,
                                 "the archive is not an OCI layout: no index.json");
    if (code != SBX_OK)
        return code;
    if (json_parse_object(b.data, b.len, &index, err) != SBX_OK)
        return image_err_instead(err, SBX_E_INVALID, "the layout's index.json is not JSON");
    list = json_object_get(index, "manifests");
    if (json_array_size(list) != 1)
        return err_set(err, SBX_E_INVALID, "the layout must hold exactly one image");
    text = json_get_str(json_array_get(list, 0), "digest", "");
    if (!digest_valid(text))
        return err_set(err, SBX_E_INVALID, "the layout's index.json has no sha256 digest");
    (void)str_copy(digest, IMAGE_DIGEST_SIZE, text);
    return SBX_OK;
}

enum sbx_code image_manifest_check(struct image_store *s, const json_t *manifest,
                                   struct sbx_err *err)
{
    const json_t *layers = json_object_get(manifest, "layers");
    size_t n = json_array_size(layers);
    int64_t sum = 0;

    if (!json_is_array(layers) || n == 0)
        return err_set(err, SBX_E_INVALID, "the image's manifest has no layers");
    if (n > IMAGE_LAYERS_MAX)
        return err_set(err, SBX_E_INVALID, "the image has more than %d layers", IMAGE_LAYERS_MAX);
    for (size_t i = 0; i < n; i++) {
        int64_t size = json_get_int(json_array_get(layers, i), "size", -1);

        if (size < 0)
            return err_set(err, SBX_E_INVALID, "the image's manifest has a layer without size");
        if (size > s->config->image_max_bytes - sum)
            return err_set(err, SBX_E_INVALID, "the image is larger than this region allows");
        sum += size;
    }
    return SBX_OK;
}

static void strings_put(json_t *to, const char *key, const char **list, size_t n)
{
    json_t *array = json_array();

    for (size_t i = 0; i < n; i++)
        (void)json_array_append_new(array, json_string(list[i]));
    json_put_new(to, key, array);
}

/* entrypoint then cmd, the variables with a PATH, and who runs it. */
static enum sbx_code describe(const json_t *config, int root_fd, json_t *out, struct sbx_err *err)
{
    SCOPED_ARENA struct arena *a = arena_new();
    const json_t *c = json_object_get(config, "config");
    const char *argv[IMAGE_ARGS_MAX];
    const char *env[IMAGE_ENV_MAX + 1];
    const char *cwd = json_get_str(c, "WorkingDir", "");
    struct image who = { 0 };
    size_t argc = 0, envc = 0, n;
    bool path = false;
    json_t *groups = json_array();
    enum sbx_code code;

    for (int part = 0; part < 2; part++) {
        const char **list = json_strings(a, json_object_get(c, part ? "Cmd" : "Entrypoint"), &n);

        for (size_t i = 0; list != NULL && i < n; i++) {
            if (argc == IMAGE_ARGS_MAX) {
                json_decref(groups);
                return err_set(err, SBX_E_INVALID, "the image's command is too long");
            }
            argv[argc++] = list[i];
        }
    }
    {
        const char **list = json_strings(a, json_object_get(c, "Env"), &n);

        for (size_t i = 0; list != NULL && i < n; i++) {
            if (list[i][0] == '=' || strchr(list[i], '=') == NULL || envc == IMAGE_ENV_MAX)
                continue;
            path = path || str_starts(list[i], "PATH=");
            env[envc++] = list[i];
        }
    }
    if (!path)
        env[envc++] = default_path;
    code = image_user_resolve(root_fd, json_get_str(c, "User", ""), a, &who, err);
    if (code != SBX_OK) {
        json_decref(groups);
        return code;
    }
    for (size_t i = 0; i < who.group_count; i++)
        (void)json_array_append_new(groups, json_integer(who.groups[i]));
    strings_put(out, "argv", argv, argc);
    strings_put(out, "env", env, envc);
    json_put_str(out, "workingDir", cwd[0] == '/' ? cwd : "/");
    json_put_int(out, "uid", who.uid);
    json_put_int(out, "gid", who.gid);
    json_put_new(out, "groups", groups);
    json_put_str(out, "home", who.home);
    return SBX_OK;
}

static enum sbx_code config_of(struct image_store *s, const char *layout, json_t **out,
                               struct sbx_err *err)
{
    SCOPED_JSON json_t *manifest = NULL;
    SCOPED_JSON json_t *config = NULL;
    char digest[IMAGE_DIGEST_SIZE];
    enum sbx_code code = image_layout_digest(s, layout, digest, err);

    if (code == SBX_OK)
        code = blob_json(s, layout, digest, &manifest, err);
    if (code == SBX_OK)
        code = image_manifest_check(s, manifest, err);
    if (code == SBX_OK)
        code = blob_json(s, layout, json_get_str(json_object_get(manifest, "config"), "digest", ""),
                         &config, err);
    if (code != SBX_OK)
        return code;
    if (strcmp(json_get_str(config, "architecture", ""), image_architecture()) != 0 ||
        strcmp(json_get_str(config, "os", ""), "linux") != 0)
        return err_set(err, SBX_E_INVALID,
                       "the image is for %.20s/%.20s, this region runs linux/%s",
                       json_get_str(config, "os", "?"), json_get_str(config, "architecture", "?"),
                       image_architecture());
    *out = STEAL(config);
    return SBX_OK;
}

/* The layers into <work>/root/rootfs.  umoci runs as root over a stranger's archive: its path
 * handling is trusted; its time, files and bytes are bounded; it has no network and no capability
 * beyond those for owners, modes and nodes. */
static enum sbx_code unpack_layers(struct image_store *s, const char *work, struct sbx_err *err)
{
    SCOPED_BUF struct buf output = BUF_INIT(IMAGE_TOOL_OUTPUT_MAX * 2);
    char image[PATH_SIZE], rootfs[PATH_SIZE];
    const char *argv[] = { "unshare",
                           "--net",
                           "setpriv",
                           "--no-new-privs",
                           "--inh-caps=-all",
                           "--bounding-set=-all,+chown,+dac_override,+dac_read_search,+fowner,"
                           "+fsetid,+mknod,+setfcap",
                           s->config->umoci,
                           "raw",
                           "unpack",
                           "--image",
                           image,
                           rootfs,
                           NULL };
    struct image_tool tool = IMAGE_TOOL_INIT;
    enum sbx_code code;

    (void)snprintf(image, sizeof(image), "%s/layout:image", work);
    (void)snprintf(rootfs, sizeof(rootfs), "%s/root/rootfs", work);
    tool.argv = argv;
    tool.timeout_ms = s->config->unpack_timeout_ms;
    tool.file_max = tool.watch_max = s->config->image_max_bytes;
    tool.watch = rootfs;
    code = image_tool_run(s, &tool, &output, err);
    if (code == SBX_E_TIMEOUT)
        return image_err_instead(err, SBX_E_INVALID, "unpacking the image took too long");
    if (code == SBX_E_TOO_LARGE)
        return image_err_instead(err, SBX_E_INVALID, "the image is larger than this region allows");
    if (code == SBX_E_INTERNAL && output.data != NULL && strstr(output.data, "no space left"))
        return image_err_instead(err, SBX_E_UNAVAILABLE, "the region has no room for the image");
    if (code == SBX_E_INTERNAL)
        return image_err_instead(
            err, SBX_E_INVALID,
            "the image cannot be unpacked: a layer is damaged or of an unknown kind");
    return code;
}

static enum sbx_code finish_root(struct image_store *s, const char *work, json_t *config,
                                 json_t *meta, struct sbx_err *err)
{
    char path[PATH_SIZE];
    SCOPED_FD int root_fd = -1;
    int64_t bytes = 0;
    enum sbx_code code;

    (void)snprintf(path, sizeof(path), "%s/root/rootfs", work);
    code = image_fs_measure(s, path, IMAGE_FS_CLEAN, &bytes, err);
    if (code == SBX_OK && bytes > s->config->image_max_bytes)
        code = err_set(err, SBX_E_INVALID, "the image is larger than this region allows");
    if (code != SBX_OK)
        return code;
    root_fd = openat(s->dir_fd, path, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (root_fd < 0)
        return err_sys(err, SBX_E_INTERNAL, "open the unpacked image");
    for (size_t i = 0; code == SBX_OK && i < COUNT_OF(mount_points); i++) {
        if (mount_points[i].kind == POINT_HIDDEN)
            code = image_fs_drop_link(root_fd, mount_points[i].path, err);
        if (code == SBX_OK)
            code = image_fs_point(root_fd, mount_points[i].path, mount_points[i].kind != POINT_FILE,
                                  err);
    }
    if (code == SBX_OK)
        code = describe(config, root_fd, meta, err);
    json_put_int(meta, "bytes", bytes);
    return code;
}

enum sbx_code image_unpack(struct image_store *s, const char *work, struct image_entry *entry,
                           const char *reference, enum image_origin origin, struct sbx_err *err)
{
    SCOPED_JSON json_t *config = NULL;
    SCOPED_JSON json_t *meta = json_object();
    SCOPED_BUF struct buf text = BUF_INIT(IMAGE_CONFIG_MAX * 4);
    char layout[PATH_SIZE], path[PATH_SIZE], final[IMAGE_DIGEST_SIZE + 8];
    SCOPED_FD int parent = -1;
    enum sbx_code code;

    (void)snprintf(layout, sizeof(layout), "%s/layout", work);
    code = config_of(s, layout, &config, err);
    (void)snprintf(path, sizeof(path), "%s/root", work);
    if (code == SBX_OK && mkdirat(s->dir_fd, path, 0700) < 0)
        code = err_sys(err, SBX_E_INTERNAL, "make a folder in the image store");
    if (code == SBX_OK)
        code = unpack_layers(s, work, err);
    if (code == SBX_OK)
        code = finish_root(s, work, config, meta, err);
    if (code != SBX_OK)
        return code;
    json_put_str(meta, "digest", entry->digest);
    {
        json_t *names = json_array(), *name = json_object();

        json_put_str(name, "reference", reference);
        json_put_int(name, "origin", origin);
        (void)json_array_append_new(names, name);
        json_put_new(meta, "names", names);
    }
    if (!json_write(&text, meta))
        return err_set(err, SBX_E_INVALID, "the image's configuration is too large");
    (void)snprintf(path, sizeof(path), "%s/root/image.json", work);
    code = image_fs_write(s->dir_fd, path, text.data, text.len, err);
    if (code != SBX_OK)
        return code;
    /* Everything below is on disk before the name says that the image is whole. */
    if (syncfs(s->dir_fd) < 0)
        return err_sys(err, SBX_E_INTERNAL, "write the image to disk");
    image_folder_name(entry->digest, final);
    (void)snprintf(path, sizeof(path), "%s/root", work);
    if (renameat(s->dir_fd, path, s->dir_fd, final) < 0)
        return err_sys(err, SBX_E_INTERNAL, "keep the image");
    parent = openat(s->dir_fd, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0 || fsync(parent) < 0)
        return err_sys(err, SBX_E_INTERNAL, "keep the image");
    entry->bytes = json_get_int(meta, "bytes", 0);
    return SBX_OK;
}

enum sbx_code image_json_load(struct image_store *s, const char *digest, json_t **out,
                              struct sbx_err *err)
{
    SCOPED_BUF struct buf b = BUF_INIT(IMAGE_CONFIG_MAX * 8);
    char folder[IMAGE_DIGEST_SIZE + 8], path[PATH_SIZE];
    enum sbx_code code;

    image_folder_name(digest, folder);
    (void)snprintf(path, sizeof(path), "%s/image.json", folder);
    code = image_fs_read(s->dir_fd, path, IMAGE_CONFIG_MAX * 4, &b, err);
    if (code == SBX_OK)
        code = json_parse_object(b.data, b.len, out, err);
    return code;
}

enum sbx_code image_json_store(struct image_store *s, const char *digest, json_t *j,
                               struct sbx_err *err)
{
    SCOPED_BUF struct buf b = BUF_INIT(IMAGE_CONFIG_MAX * 4);
    char folder[IMAGE_DIGEST_SIZE + 8], path[PATH_SIZE], next[PATH_SIZE];
    SCOPED_FD int dir = -1;
    enum sbx_code code;

    if (!json_write(&b, j))
        return err_set(err, SBX_E_INTERNAL, "an image's description is too large");
    image_folder_name(digest, folder);
    (void)snprintf(path, sizeof(path), "%s/image.json", folder);
    (void)snprintf(next, sizeof(next), "%s/image.next", folder);
    (void)unlinkat(s->dir_fd, next, 0);
    code = image_fs_write(s->dir_fd, next, b.data, b.len, err);
    if (code != SBX_OK)
        return code;
    if (renameat(s->dir_fd, next, s->dir_fd, path) < 0)
        return err_sys(err, SBX_E_INTERNAL, "keep an image's description");
    dir = openat(s->dir_fd, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 || fsync(dir) < 0)
        return err_sys(err, SBX_E_INTERNAL, "keep an image's description");
    return SBX_OK;
}
