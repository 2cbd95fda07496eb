/* The image store on a real registry, real skopeo and real umoci.  Needs root. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/process.h"
#include "base/scoped.h"
#include "base/secret.h"
#include "base/time.h"
#include "gateway/image.h"

enum { RUN_MS = 60000, THREADS = 6 };

static const char *const password = "s3cret-of-the-registry";
static const char *const htpasswd =
    "robot:$2b$04$9vRd0HQorH014ZsBeau6/eGZ1gmMUD/M6HPVl4diel66PKVoJIfUy\n";

static struct {
    char dir[128];
    char open_host[32], closed_host[32]; /* a registry for all, one that asks for a password */
    struct process registries[2];
    struct image_store *store;
} t;

static void run(const char *const *argv)
{
    struct sbx_err err = { 0 };

    if (process_run(argv, NULL, 0, NULL, RUN_MS, &err) != SBX_OK)
        fail_msg("%s: %s", argv[0], err.msg);
}
#define RUN(...) run((const char *const[]){ __VA_ARGS__, NULL })

static const char *path(const char *name)
{
    static char ring[8][256];
    static int at;

    at = (at + 1) % 8;
    (void)snprintf(ring[at], sizeof(ring[at]), "%s/%s", t.dir, name);
    return ring[at];
}

static void put(const char *name, const char *text)
{
    FILE *f = fopen(path(name), "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static int free_port(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(a);
    SCOPED_FD int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    return ntohs(a.sin_port);
}

static void start_registry(int which, bool auth, char host[32])
{
    struct process_spec spec = PROCESS_SPEC_INIT;
    struct sbx_err err = { 0 };
    char text[1024], name[32];
    const char *argv[4] = { "docker-registry", "serve", NULL, NULL };
    int port = free_port();
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int64_t deadline = time_mono_ms() + 10000;

    (void)snprintf(host, 32, "127.0.0.1:%d", port);
    (void)snprintf(text, sizeof(text),
                   "version: 0.1\nstorage: {filesystem: {rootdirectory: %s/blobs%d}}\n"
                   "http: {addr: \"%s\"}\n%s%s%s\n",
                   t.dir, which, host, auth ? "auth: {htpasswd: {realm: r, path: " : "",
                   auth ? path("htpasswd") : "", auth ? "}}" : "");
    (void)snprintf(name, sizeof(name), "registry%d.yml", which);
    put(name, text);
    argv[2] = path(name);
    spec.argv = argv;
    assert_int_equal(process_start(&spec, &t.registries[which], &err), SBX_OK);
    for (;;) {
        SCOPED_FD int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
            return;
        assert_true(time_mono_ms() < deadline);
        usleep(20000);
    }
}

static struct image_store *store_open(int64_t cache_max, int64_t image_max)
{
    static const char *insecure[3];
    struct image_store_config c = { .dir = path("store"),
                                    .cache_max_bytes = cache_max,
                                    .image_max_bytes = image_max,
                                    .pull_timeout_ms = RUN_MS,
                                    .unpack_timeout_ms = RUN_MS,
                                    .insecure_registries = insecure };
    struct image_store *s = NULL;
    struct sbx_err err = { 0 };
    static char dir[256];

    insecure[0] = t.open_host;
    insecure[1] = t.closed_host;
    (void)snprintf(dir, sizeof(dir), "%s", c.dir);
    c.dir = dir;
    if (image_store_open(&c, &s, &err) != SBX_OK)
        fail_msg("%s", err.msg);
    return s;
}

/* A tree with what a hostile layer has: set-id bits, nodes, a pipe, links that lead out. */
static void make_tree(const char *root, const char *marker)
{
    static const char *const folders[] = { "bin", "etc", "dev", "opt", "var" };
    char p[300], text[64];
    FILE *f;

    assert_int_equal(mkdir(path(root), 0755), 0);
    for (size_t i = 0; i < COUNT_OF(folders); i++) {
        (void)snprintf(p, sizeof(p), "%s/%s", path(root), folders[i]);
        assert_int_equal(mkdir(p, 0755), 0);
    }
    (void)snprintf(p, sizeof(p), "%s/bin/busybox", path(root));
    RUN("cp", "/bin/busybox", p);
    assert_int_equal(chmod(p, 06755), 0);
    (void)snprintf(p, sizeof(p), "%s/dev/sda", path(root));
    assert_int_equal(mknod(p, S_IFBLK | 0666, makedev(8, 0)), 0);
    (void)snprintf(p, sizeof(p), "%s/opt/pipe", path(root));
    assert_int_equal(mkfifo(p, 0666), 0);
    (void)snprintf(p, sizeof(p), "%s/etc/resolv.conf", path(root));
    assert_int_equal(symlink("../../../../../../../etc/passwd", p), 0);
    (void)snprintf(p, sizeof(p), "%s/workspace", path(root));
    assert_int_equal(symlink("/opt", p), 0);
    (void)snprintf(p, sizeof(p), "%s/run", path(root));
    assert_int_equal(symlink("/var", p), 0);
    (void)snprintf(p, sizeof(p), "%s/escape", path(root));
    assert_int_equal(symlink("../../../../../../../../tmp", p), 0);
    (void)snprintf(p, sizeof(p), "%s/etc/passwd", path(root));
    f = fopen(p, "w");
    assert_true(fputs("root:x:0:0::/root:/bin/sh\napp:x:1001:1002::/home/app:/bin/sh\n", f) > 0);
    assert_int_equal(fclose(f), 0);
    (void)snprintf(p, sizeof(p), "%s/etc/group", path(root));
    f = fopen(p, "w");
    assert_true(fputs("root:x:0:\napp:x:1002:\nvideo:x:44:root,app\naudio:x:29:apple\n", f) > 0);
    assert_int_equal(fclose(f), 0);
    (void)snprintf(p, sizeof(p), "%s/etc/marker", path(root));
    f = fopen(p, "w");
    (void)snprintf(text, sizeof(text), "%s\n", marker);
    assert_true(fputs(text, f) > 0);
    assert_int_equal(fclose(f), 0);
}

static void digest_of_layout(const char *layout, char digest[IMAGE_DIGEST_SIZE])
{
    SCOPED_BUF struct buf out = BUF_INIT(1 << 16);
    struct sbx_err err = { 0 };
    char p[300];
    const char *argv[] = { "cat", p, NULL };
    const char *at;

    (void)snprintf(p, sizeof(p), "%s/index.json", layout);
    assert_int_equal(process_run(argv, NULL, 0, &out, RUN_MS, &err), SBX_OK);
    at = strstr(out.data, "sha256:");
    assert_non_null(at);
    (void)snprintf(digest, IMAGE_DIGEST_SIZE, "%.71s", at);
}

/* A layout layout-<name> made of one layer, pushed to both registries as test/<name>. */
static void make_image(const char *name, char digest[IMAGE_DIGEST_SIZE])
{
    char layout[256], image[256], tar[256], tree[64], to[256], creds[80];

    (void)snprintf(tree, sizeof(tree), "tree-%s", name);
    (void)snprintf(layout, sizeof(layout), "%s/layout-%s", t.dir, name);
    (void)snprintf(image, sizeof(image), "%s:t", layout);
    (void)snprintf(tar, sizeof(tar), "%s/%s.tar", t.dir, name);
    make_tree(tree, name);
    RUN("tar", "-C", path(tree), "-cf", tar, ".");
    RUN("umoci", "init", "--layout", layout);
    RUN("umoci", "new", "--image", image);
    RUN("umoci", "raw", "add-layer", "--image", image, tar);
    RUN("umoci", "config", "--image", image, "--config.user", "app", "--config.env", "A=b c",
        "--config.entrypoint", "/bin/busybox", "--config.cmd", "sleep", "--config.cmd", "1000",
        "--config.workingdir", "/opt");
    (void)snprintf(to, sizeof(to), "oci:%s", image);
    (void)snprintf(image, sizeof(image), "docker://%s/test/%s:t", t.open_host, name);
    RUN("skopeo", "copy", "--quiet", "--dest-tls-verify=false", to, image);
    (void)snprintf(image, sizeof(image), "docker://%s/test/%s:t", t.closed_host, name);
    (void)snprintf(creds, sizeof(creds), "robot:%s", password);
    RUN("skopeo", "copy", "--quiet", "--dest-tls-verify=false", "--dest-creds", creds, to, image);
    digest_of_layout(layout, digest);
}

static const char *ref(const char *host, const char *name, const char *digest)
{
    static _Thread_local char ring[4][IMAGE_REFERENCE_MAX];
    static _Thread_local int at;

    at = (at + 1) % 4;
    (void)snprintf(ring[at], sizeof(ring[at]), "%s/test/%s@%s", host, name, digest);
    return ring[at];
}

static enum sbx_code acquire_only(const char *reference, const struct image_registry *registry,
                                  struct sbx_err *err)
{
    SCOPED_ARENA struct arena *a = arena_new();
    struct image im;
    enum sbx_code code;

    *err = (struct sbx_err){ 0 };
    code = image_acquire(t.store, reference, registry, a, &im, err);

    if (code == SBX_OK)
        image_release(t.store, im.digest);
    else
        assert_null(strstr(err->msg, t.dir)); /* no host path, no address in what people read */
    return code;
}

static char one[IMAGE_DIGEST_SIZE], two[IMAGE_DIGEST_SIZE], three[IMAGE_DIGEST_SIZE];

static int setup(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        (void)fprintf(stderr, "the image store needs root\n");
        return -1;
    }
    (void)snprintf(t.dir, sizeof(t.dir), "/var/tmp/sbx-image-XXXXXX");
    if (mkdtemp(t.dir) == NULL)
        return -1;
    put("htpasswd", htpasswd);
    start_registry(0, false, t.open_host);
    start_registry(1, true, t.closed_host);
    make_image("one", one);
    make_image("two", two);
    make_image("three", three);
    t.store = store_open(1LL << 30, 1LL << 28);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    image_store_close(t.store);
    process_end(&t.registries[0]);
    process_end(&t.registries[1]);
    RUN("rm", "-rf", t.dir);
    return 0;
}

static void pulled_image_says_what_it_is(void **state)
{
    SCOPED_ARENA struct arena *a = arena_new();
    struct sbx_err err = { 0 };
    struct image im;
    struct stat st;
    char p[512];

    (void)state;
    if (image_acquire(t.store, ref(t.open_host, "one", one), NULL, a, &im, &err) != SBX_OK)
        fail_msg("%s", err.msg);
    assert_string_equal(im.digest, one);
    assert_string_equal(im.argv[0], "/bin/busybox");
    assert_string_equal(im.argv[1], "sleep");
    assert_string_equal(im.argv[2], "1000");
    assert_null(im.argv[3]);
    assert_string_equal(im.working_dir, "/opt");
    assert_string_equal(im.home, "/home/app");
    assert_int_equal(im.uid, 1001);
    assert_int_equal(im.gid, 1002);
    assert_int_equal(im.group_count, 1);
    assert_int_equal(im.groups[0], 44);
    (void)snprintf(p, sizeof(p), "%s/bin/busybox", im.rootfs);
    assert_int_equal(stat(p, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0755); /* set-id bits are gone */
    (void)snprintf(p, sizeof(p), "%s/dev/sda", im.rootfs);
    assert_int_equal(lstat(p, &st), -1);
    (void)snprintf(p, sizeof(p), "%s/opt/pipe", im.rootfs);
    assert_int_equal(lstat(p, &st), -1);
    (void)snprintf(p, sizeof(p), "%s/etc/resolv.conf", im.rootfs);
    assert_int_equal(lstat(p, &st), 0);
    assert_true(S_ISREG(st.st_mode)); /* the link that led out is a place to bind over */
    (void)snprintf(p, sizeof(p), "%s/run/sandboxd", im.rootfs);
    assert_int_equal(lstat(p, &st), 0);
    assert_true(S_ISDIR(st.st_mode));
    (void)snprintf(p, sizeof(p), "%s/run", im.rootfs);
    assert_int_equal(lstat(p, &st), 0);
    assert_true(S_ISDIR(st.st_mode)); /* as is the folder that is mounted over as a whole */
    (void)snprintf(p, sizeof(p), "%s/var/sandboxd", im.rootfs);
    assert_int_equal(lstat(p, &st), -1);
    assert_int_equal(stat(path("store"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    image_release(t.store, im.digest);
}

static void wrong_digest_is_refused(void **state)
{
    struct sbx_err err = { 0 };

    (void)state;
    assert_int_equal(
        acquire_only(ref(t.open_host, "one",
                         "sha256:"
                         "1111111111111111111111111111111111111111111111111111111111111111"),
                     NULL, &err),
        SBX_E_NOT_FOUND);
    assert_int_equal(acquire_only("busybox:latest", NULL, &err), SBX_E_INVALID);
    assert_int_equal(acquire_only("a@sha256:12", NULL, &err), SBX_E_INVALID);
    assert_int_equal(acquire_only(ref("--help", "x", one), NULL, &err), SBX_E_INVALID);
    assert_int_equal(acquire_only(ref("../x", "x", one), NULL, &err), SBX_E_INVALID);
}

static void registries_inside_are_not_asked(void **state)
{
    static const char *const hosts[] = { "169.254.169.254", "10.0.0.1:5000", "localhost:5000",
                                         "127.0.0.1:1", "192.168.1.1" };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(hosts); i++) {
        struct sbx_err err = { 0 };

        assert_int_equal(acquire_only(ref(hosts[i], "one", three), NULL, &err), SBX_E_INVALID);
        assert_null(strstr(err.msg, hosts[i]));
    }
}

/* The registry hands out another manifest under a digest: its own file is changed behind its back.
 */
static void tampered_registry_is_refused(void **state)
{
    struct sbx_err err = { 0 };
    char p[400];
    FILE *f;

    (void)state;
    (void)snprintf(p, sizeof(p), "%s/blobs0/docker/registry/v2/blobs/sha256/%.2s/%s/data", t.dir,
                   three + 7, three + 7);
    f = fopen(p, "a");
    assert_non_null(f);
    assert_true(fputs(" ", f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_int_not_equal(acquire_only(ref(t.open_host, "three", three), NULL, &err), SBX_OK);
}

static void private_image_asks_every_caller(void **state)
{
    SCOPED_SECRET struct secret *good = secret_new(password, strlen(password));
    SCOPED_SECRET struct secret *bad = secret_new("guess", 5);
    struct image_registry right = { .username = "robot", .password = good };
    struct image_registry wrong = { .username = "robot", .password = bad };
    struct sbx_err err = { 0 };
    const char *r = ref(t.closed_host, "two", two);

    (void)state;
    assert_int_equal(acquire_only(r, NULL, &err), SBX_E_FORBIDDEN);
    assert_int_equal(acquire_only(r, &wrong, &err), SBX_E_FORBIDDEN);
    assert_null(strstr(err.msg, "guess"));
    if (acquire_only(r, &right, &err) != SBX_OK)
        fail_msg("%s", err.msg);
    /* It is here now, and still nobody gets it by knowing the digest. */
    assert_int_equal(acquire_only(r, NULL, &err), SBX_E_FORBIDDEN);
    assert_int_equal(acquire_only(r, &wrong, &err), SBX_E_FORBIDDEN);
    assert_int_equal(acquire_only(r, &right, &err), SBX_OK);
    /* The same bytes under a name that is free for all. */
    assert_int_equal(acquire_only(ref(t.open_host, "two", two), NULL, &err), SBX_OK);
}

static void *acquire_thread(void *arg)
{
    struct sbx_err err = { 0 };

    *(enum sbx_code *)arg = acquire_only(ref(t.open_host, "one", one), NULL, &err);
    return NULL;
}

static void deploys_at_once_unpack_once(void **state)
{
    pthread_t threads[THREADS];
    enum sbx_code codes[THREADS];
    struct sbx_err err = { 0 };

    (void)state;
    assert_int_equal(image_remove(t.store, ref(t.open_host, "one", one), &err), SBX_OK);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, acquire_thread, &codes[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(codes[i], SBX_OK);
    }
}

static enum sbx_code import(const char *file, enum image_import_kind kind, const char *name,
                            char reference[IMAGE_REFERENCE_MAX], struct sbx_err *err)
{
    SCOPED_FD int fd = open(file, O_RDONLY | O_CLOEXEC);
    struct image_import *i = NULL;
    static char part[65536];
    int64_t bytes = 0;
    enum sbx_code code;

    *err = (struct sbx_err){ 0 };
    code = image_import_begin(t.store, kind, name, &i, err);
    if (code != SBX_OK)
        return code;
    for (ssize_t n; (n = read(fd, part, sizeof(part))) > 0;) {
        code = image_import_add(i, part, (size_t)n, err);
        if (code != SBX_OK) {
            image_import_abort(i);
            return code;
        }
    }
    code = image_import_finish(i, reference, &bytes, err);
    if (code == SBX_OK)
        assert_true(bytes > 1000000);
    return code;
}

static void imports(void **state)
{
    SCOPED_ARENA struct arena *a = arena_new();
    char reference[IMAGE_REFERENCE_MAX], again[IMAGE_REFERENCE_MAX];
    struct sbx_err err = { 0 };
    struct image im;

    (void)state;
    if (import(path("one.tar"), IMAGE_IMPORT_ROOTFS, "local/box", reference, &err) != SBX_OK)
        fail_msg("%s", err.msg);
    assert_memory_equal(reference, "local/box@sha256:", 17);
    if (image_acquire(t.store, reference, NULL, a, &im, &err) != SBX_OK)
        fail_msg("%s", err.msg);
    assert_null(im.argv[0]);
    assert_int_equal(im.uid, 0);
    assert_memory_equal(im.env[0], "PATH=", 5);
    assert_int_equal(image_remove(t.store, reference, &err), SBX_E_CONFLICT);
    image_release(t.store, im.digest);
    RUN("gzip", "-k", path("one.tar")); /* a compressed stream is the same image */
    assert_int_equal(import(path("one.tar.gz"), IMAGE_IMPORT_ROOTFS, "local/box", again, &err),
                     SBX_OK);
    assert_string_equal(again, reference);
    RUN("tar", "-C", path("layout-one"), "-cf", path("layout.tar"), ".");
    if (import(path("layout.tar"), IMAGE_IMPORT_LAYOUT, "local/one", again, &err) != SBX_OK)
        fail_msg("%s", err.msg);
    assert_string_equal(strchr(again, '@') + 1, one);
    assert_int_equal(import(path("htpasswd"), IMAGE_IMPORT_LAYOUT, "local/bad", again, &err),
                     SBX_E_INVALID);
    assert_int_equal(import(path("one.tar"), IMAGE_IMPORT_LAYOUT, "local/bad", again, &err),
                     SBX_E_INVALID);
    assert_int_equal(import(path("one.tar"), IMAGE_IMPORT_ROOTFS, "../bad", again, &err),
                     SBX_E_INVALID);
}

static void mount_points_stay_inside(void **state)
{
    SCOPED_ARENA struct arena *a = arena_new();
    struct sbx_err err = { 0 };
    struct image im;
    struct stat st;
    char p[512];

    (void)state;
    assert_int_equal(image_acquire(t.store, ref(t.open_host, "one", one), NULL, a, &im, &err),
                     SBX_OK);
    assert_int_equal(image_mount_point(t.store, one, "/data/deep/er", true, &err), SBX_OK);
    assert_int_equal(image_mount_point(t.store, one, "/escape/sbx-test-folder", true, &err),
                     SBX_OK); /* the link leads to the image's own /tmp */
    assert_int_equal(stat("/tmp/sbx-test-folder", &st), -1);
    (void)snprintf(p, sizeof(p), "%s/tmp/sbx-test-folder", im.rootfs);
    assert_int_equal(stat(p, &st), 0);
    assert_int_equal(image_mount_point(t.store, one, "/etc/passwd", true, &err), SBX_E_INVALID);
    assert_int_equal(image_mount_point(t.store, one, "/etc/ld.so.preload", false, &err), SBX_OK);
    image_release(t.store, im.digest);
}

static void survives_a_restart(void **state)
{
    struct sbx_err err = { 0 };
    struct stat st;

    (void)state;
    image_store_close(t.store);
    assert_int_equal(mkdir(path("store/tmp/half"), 0700), 0); /* what a crash leaves */
    t.store = store_open(1LL << 30, 1LL << 28);
    assert_int_equal(stat(path("store/tmp/half"), &st), -1);
    assert_int_equal(image_hold(t.store, one, &err), SBX_OK);
    assert_int_equal(image_remove(t.store, ref(t.open_host, "one", one), &err), SBX_E_CONFLICT);
    image_release(t.store, one);
    /* The password has to be shown again. */
    assert_int_equal(acquire_only(ref(t.closed_host, "two", two), NULL, &err), SBX_E_FORBIDDEN);
}

static void cache_is_bounded(void **state)
{
    SCOPED_ARENA struct arena *a = arena_new();
    struct image_info *list;
    struct sbx_err err = { 0 };
    struct image im;
    size_t n;
    bool have_one = false, have_two = false, have_local = false;

    (void)state;
    image_store_close(t.store);
    t.store = store_open(5 << 20, 4 << 20); /* room for two images of about 2 MB */
    assert_int_equal(image_acquire(t.store, ref(t.open_host, "one", one), NULL, a, &im, &err),
                     SBX_OK);
    assert_int_equal(acquire_only(ref(t.open_host, "two", two), NULL, &err), SBX_OK);
    assert_int_equal(acquire_only(ref(t.open_host, "one", one), NULL, &err), SBX_OK);
    assert_int_equal(image_list(t.store, a, &list, &n, &err), SBX_OK);
    for (size_t i = 0; i < n; i++) {
        have_one = have_one || strstr(list[i].reference, one) != NULL;
        have_two = have_two || strstr(list[i].reference, two) != NULL;
        have_local = have_local || strncmp(list[i].reference, "local/box@", 10) == 0;
    }
    assert_true(have_one);   /* held, and imported besides */
    assert_true(have_local); /* imported: there is nowhere to get it again */
    assert_false(have_two);  /* unused and pulled: it made room */
    image_release(t.store, im.digest);
    image_store_close(t.store);
    t.store = store_open(1LL << 30, 1 << 20); /* larger than an image may be */
    assert_int_equal(acquire_only(ref(t.open_host, "two", two), NULL, &err), SBX_E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pulled_image_says_what_it_is),
        cmocka_unit_test(wrong_digest_is_refused),
        cmocka_unit_test(registries_inside_are_not_asked),
        cmocka_unit_test(tampered_registry_is_refused),
        cmocka_unit_test(private_image_asks_every_caller),
        cmocka_unit_test(deploys_at_once_unpack_once),
        cmocka_unit_test(imports),
        cmocka_unit_test(mount_points_stay_inside),
        cmocka_unit_test(survives_a_restart),
        cmocka_unit_test(cache_is_bounded),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
