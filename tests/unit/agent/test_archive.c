/* PACK and UNPACK against real folders: what is kept, what is left out, and archives of an enemy.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "agent/archive.h"
#include "agent/tar.h"

static char top[64], in[80], out[80], outside[80];

struct bytes {
    unsigned char *data;
    size_t len, cap, at;
    size_t limit; /* feed breaks off here */
};

static bool keep(void *ctx, const void *data, size_t len)
{
    struct bytes *b = ctx;

    if (b->cap - b->len < len) {
        b->cap = (b->cap + len) * 2;
        b->data = realloc(b->data, b->cap);
        assert_non_null(b->data);
    }
    memcpy(b->data + b->len, data, len);
    b->len += len;
    return true;
}

static bool refuse(void *ctx, const void *data, size_t len)
{
    (void)ctx;
    (void)data;
    (void)len;
    return false;
}

static ssize_t give(void *ctx, void *into, size_t size)
{
    struct bytes *b = ctx;
    size_t end = b->limit ? b->limit : b->len, n = end - b->at < size ? end - b->at : size;

    memcpy(into, b->data + b->at, n);
    b->at += n;
    return (ssize_t)n;
}

static void run(const char *const *argv)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        execvp(argv[0], (char *const *)(uintptr_t)argv);
        _exit(99);
    }
    assert_true(waitpid(pid, &status, 0) == pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        fail_msg("%s", argv[argv[2] ? 2 : 0]);
}

static void sh(const char *script)
{
    const char *const argv[] = { "sh", "-ec", script, NULL };

    assert_int_equal(chdir(top), 0);
    run(argv);
}

static int folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY);

    assert_true(fd >= 0);
    return fd;
}

static struct agent_archive_result pack(struct bytes *to, uint64_t max, const char *const *patterns)
{
    struct agent_span spans[16];
    struct agent_list list = { spans, 0 };
    struct agent_archive_result r;
    struct agent_ignore *ignore;
    int fd = folder(in);

    for (; patterns && patterns[list.count]; list.count++)
        spans[list.count] =
            (struct agent_span){ patterns[list.count], strlen(patterns[list.count]) };
    ignore = agent_ignore_new(&list);
    assert_non_null(ignore);
    *to = (struct bytes){ 0 };
    agent_pack(fd, ignore, max, (struct agent_sink){ keep, to }, &r);
    agent_ignore_free(ignore);
    close(fd);
    return r;
}

static struct agent_archive_result unpack(struct bytes *from, uint64_t max)
{
    struct agent_archive_result r;
    int fd = folder(out);

    from->at = 0;
    agent_unpack(fd, max, (struct agent_feed){ give, from }, &r);
    close(fd);
    return r;
}

static void forget(struct bytes *b)
{
    free(b->data);
    *b = (struct bytes){ 0 };
}

static int fresh(void **state)
{
    (void)state;
    sh("rm -rf in out outside; mkdir in out outside; echo safe > outside/file; touch -d @1000 "
       "outside/file");
    return 0;
}

/* Nothing outside has changed and, after a failure, nothing is left inside. */
static void check_untouched(void)
{
    sh("[ \"$(cat outside/file)\" = safe ] && [ \"$(ls -A outside)\" = file ] && "
       "[ \"$(stat -c '%Y %h' outside/file)\" = '1000 1' ] && [ -z \"$(ls -A out)\" ]");
}

static void everything_comes_back(void **state)
{
    struct bytes b;
    struct agent_archive_result r;
    uint64_t packed;
    struct stat st;
    char path[200];

    (void)state;
    sh("cd in; umask 022; mkdir -p a/b/c empty 'sp ace' closed; echo one > a/one; ln a/one "
       "a/b/again; "
       "ln -s ../nowhere a/link; ln -s /etc/passwd abs; printf '' > void; echo x > 'sp ace/n\nl'; "
       "printf 'b\\377d' > \"$(printf 'n\\377me')\"; chmod 4711 a/one; chmod 0 void; chmod 1777 "
       "empty; "
       "n=$(printf '%0200d' 7); mkdir -p $n/$n; echo deep > $n/$n/$n; ln -s $n/$n/$n long; "
       "truncate -s 100M sparse; printf mid | dd of=sparse bs=1 seek=50000000 conv=notrunc "
       "2>/dev/null; "
       "head -c 3000000 /dev/urandom > big; mkfifo pipe; chown 1234:4321 a/b; chown -h 5:6 abs; "
       "chown 3000000:2999999 a/b/c; echo closed > closed/f; chmod 0 closed; "
       "touch -h -d '2001-02-03 04:05:06.123456789' a/link a/one; touch -d '1969-12-31 23:59:58 "
       "UTC' big; "
       "touch -d '2030-01-01 00:00:00.000000001' a/b empty .");
    (void)snprintf(path, sizeof(path), "%s/a/b", in);
    (void)setxattr(path, "user.mark", "v\0w", 3, 0);
    (void)snprintf(path, sizeof(path), "%s/big", in);
    (void)setxattr(path, "user.mark", "", 0, 0);
    r = pack(&b, UINT64_MAX, NULL);
    assert_string_equal(r.message, "");
    packed = r.bytes;
    assert_true(packed > 103000000 && b.len < 4000000);
    r = unpack(&b, packed);
    assert_string_equal(r.message, "");
    assert_true(r.bytes == packed);
    forget(&b);
    sh("list() { (cd $1; find . ! -name pipe -printf '%p|%y|%m|%U|%G|%T@|%l|%n\\n' | sed -E "
       "'/\\|d\\|/s/[0-9]+$//' "
       "| LC_ALL=C sort; find . -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum; "
       "getfattr -R -d -m user . 2>/dev/null || true); }; list in > in.list; list out > out.list; "
       "diff in.list out.list");
    (void)snprintf(path, sizeof(path), "%s/sparse", out);
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_blocks * 512 < 1000000);
    (void)snprintf(path, sizeof(path), "%s/a/one", out);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_nlink, 2);
}

static void tar_reads_it(void **state)
{
    struct bytes b;
    int fd;

    (void)state;
    sh("cd in; mkdir -p d/e; echo x > d/e/f; ln d/e/f g; ln -s g h; touch -d '2001-02-03 "
       "04:05:06.5' d/e/f; "
       "n=$(printf '%0150d' 7); echo y > $n");
    assert_int_equal(pack(&b, UINT64_MAX, NULL).reason, 0);
    assert_int_equal(chdir(top), 0);
    fd = open("a.tar.zst", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(write(fd, b.data, b.len) == (ssize_t)b.len);
    close(fd);
    forget(&b);
    sh("tar --zstd -xf a.tar.zst -C out; diff -r in out; [ $(stat -c %h out/g) = 2 ]; "
       "[ \"$(stat -c %y in/g)\" = \"$(stat -c %y out/g)\" ]");
}

static void excludes_apply(void **state)
{
    static const char *const patterns[] = { "*.log", "!keep.log", "/top", "deep/", NULL };
    struct bytes b;

    (void)state;
    sh("cd in; mkdir -p a/deep/x a/top; touch a.log keep.log top a/top/f a/deep/x/y a/b.log deep");
    assert_int_equal(pack(&b, UINT64_MAX, patterns).reason, 0);
    assert_int_equal(unpack(&b, UINT64_MAX).reason, 0);
    forget(&b);
    sh("cd out; [ \"$(find . | LC_ALL=C sort | tr '\\n' ' ')\" = '. ./a ./a/top ./a/top/f ./deep "
       "./keep.log ' ]");
}

static void the_cap_counts_what_is_not_compressed(void **state)
{
    struct bytes b;
    struct agent_archive_result r;
    struct agent_ignore *ignore = agent_ignore_new(&(struct agent_list){ 0 });
    int fd;

    (void)state;
    sh("cd in; truncate -s 3G sparse");
    r = pack(&b, 1000000, NULL);
    assert_int_equal(r.reason, SBX_AGENT_REASON_TOO_LARGE);
    assert_true(b.len < 100000);
    forget(&b);
    sh("cd in; rm sparse; for i in 1 2 3 4; do head -c 400000 /dev/urandom > $i; done");
    assert_int_equal(pack(&b, 1599999, NULL).reason, SBX_AGENT_REASON_TOO_LARGE);
    forget(&b);
    r = pack(&b, 1600000, NULL);
    assert_int_equal(r.reason, 0);
    assert_int_equal(unpack(&b, 1599999).reason, SBX_AGENT_REASON_TOO_LARGE);
    check_untouched();
    assert_int_equal(unpack(&b, 1600000).reason, 0);
    forget(&b);
    fd = folder(in);
    agent_pack(fd, ignore, UINT64_MAX, (struct agent_sink){ refuse, NULL }, &r);
    assert_int_equal(r.reason, SBX_AGENT_REASON_IO);
    agent_ignore_free(ignore);
    close(fd);
}

/* Members of an enemy's archive, in order. */
struct evil {
    const char *path;
    char type;
    const char *target;
};

static void write_evil(struct bytes *b, const struct evil *members, size_t n)
{
    struct agent_tar *t;

    *b = (struct bytes){ 0 };
    t = agent_tar_new((struct agent_sink){ keep, b });
    assert_non_null(t);
    for (size_t i = 0; i < n && members[i].path; i++) {
        const struct stat st = { .st_mode = 0644, .st_size = members[i].type == '0' ? 5 : 0 };

        assert_true(
            agent_tar_member(t, members[i].path, members[i].type, &st, members[i].target, NULL, 0));
        if (members[i].type == '0') {
            assert_true(agent_tar_data(t, "evil\n", 5));
            assert_true(agent_tar_data_end(t));
        }
    }
    assert_true(agent_tar_end(t));
    agent_tar_free(t);
}

static void nothing_leaves_the_folder(void **state)
{
    static const struct {
        struct evil members[4];
        enum sbx_agent_reason want;
    } cases[] = {
        { { { "../outside/x", '0', NULL } }, SBX_AGENT_REASON_PATH_ESCAPE },
        { { { "a/../../outside/x", '0', NULL } }, SBX_AGENT_REASON_PATH_ESCAPE },
        { { { "..", '5', NULL } }, SBX_AGENT_REASON_PATH_ESCAPE },
        { { { "a/..", '5', NULL } }, SBX_AGENT_REASON_PATH_ESCAPE },
        { { { "/tmp/evil", '0', NULL } }, SBX_AGENT_REASON_PATH_ESCAPE },
        { { { "//etc/evil", '2', "x" } }, SBX_AGENT_REASON_PATH_ESCAPE },
        { { { "l", '2', "../outside" }, { "l/x", '0', NULL } }, SBX_AGENT_REASON_PATH_ESCAPE },
        { { { "l", '2', "../outside" }, { "l/", '5', NULL } }, SBX_AGENT_REASON_PATH_ESCAPE },
        { { { "d/l", '2', "../../outside" }, { "d/l/x/y", '0', NULL } },
          SBX_AGENT_REASON_PATH_ESCAPE },
        { { { "l", '2', "." }, { "l/x", '0', NULL } }, SBX_AGENT_REASON_PATH_ESCAPE },
        { { { "h", '1', "../outside/file" } }, SBX_AGENT_REASON_PATH_ESCAPE },
        { { { "h", '1', "/etc/passwd" } }, SBX_AGENT_REASON_PATH_ESCAPE },
        { { { "l", '2', "../outside" }, { "h", '1', "l/file" } }, SBX_AGENT_REASON_PATH_ESCAPE },
        { { { "h", '1', "nothing" } }, SBX_AGENT_REASON_CORRUPT },
        { { { "d/", '5', NULL }, { "h", '1', "d" } }, SBX_AGENT_REASON_CORRUPT },
        { { { "dev", '3', NULL } }, SBX_AGENT_REASON_CORRUPT },
        { { { "dev", '4', NULL } }, SBX_AGENT_REASON_CORRUPT },
        { { { "pipe", '6', NULL } }, SBX_AGENT_REASON_CORRUPT },
        { { { "f", '0', NULL }, { "f/x", '0', NULL } }, SBX_AGENT_REASON_CORRUPT },
        { { { "d/f", '0', NULL }, { "d", '0', NULL } }, SBX_AGENT_REASON_CORRUPT },
        { { { "d/f", '0', NULL }, { "d", '2', "../outside" } }, SBX_AGENT_REASON_CORRUPT },
        { { { "", '0', NULL } }, SBX_AGENT_REASON_CORRUPT },
        { { { NULL, '0', NULL } }, SBX_AGENT_REASON_CORRUPT },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct bytes b;
        struct agent_archive_result r;

        write_evil(&b, cases[i].members, 4);
        r = unpack(&b, UINT64_MAX);
        if (r.reason != cases[i].want)
            fail_msg("case %zu: %d %s", i, r.reason, r.message);
        check_untouched();
        forget(&b);
    }
    (void)state;
}

static void a_second_member_replaces_and_never_follows(void **state)
{
    static const struct evil members[] = { { "l", '2', "../outside/file" },
                                           { "l", '0', NULL },
                                           { "x", '0', NULL },
                                           { "x", '2', "../outside/file" },
                                           { "h", '1', "x" } };
    struct bytes b;

    (void)state;
    write_evil(&b, members, 5);
    assert_int_equal(unpack(&b, UINT64_MAX).reason, 0);
    forget(&b);
    sh("[ ! -L out/l ] && [ $(cat out/l) = evil ] && [ -L out/x ] && [ -L out/h ]; rm -rf out/*");
    check_untouched();
}

static void half_an_archive_is_none(void **state)
{
    struct bytes b;

    (void)state;
    sh("cd in; mkdir d; for i in 1 2 3 4 5 6; do head -c 3000 /dev/urandom > d/$i; done");
    assert_int_equal(pack(&b, UINT64_MAX, NULL).reason, 0);
    for (b.limit = 1; b.limit < b.len; b.limit += 1 + b.limit / 9) {
        struct agent_archive_result r = unpack(&b, UINT64_MAX);

        assert_int_equal(r.reason, SBX_AGENT_REASON_CORRUPT);
        check_untouched();
    }
    b.limit = 0;
    for (size_t at = 6; at < b.len; at += 197) {
        struct agent_archive_result r;

        b.data[at] ^= 0x10;
        r = unpack(&b, UINT64_MAX);
        if (r.reason == SBX_AGENT_REASON_NONE)
            fail_msg("byte %zu", at);
        check_untouched();
        b.data[at] ^= 0x10;
    }
    assert_int_equal(unpack(&b, UINT64_MAX).reason, 0);
    keep(&b, "rubbish", 7);
    sh("rm -rf out; mkdir out");
    assert_int_equal(unpack(&b, UINT64_MAX).reason, SBX_AGENT_REASON_CORRUPT);
    check_untouched();
    forget(&b);
    b = (struct bytes){ .data = (unsigned char *)strdup("not an archive at all"), .len = 21 };
    assert_int_equal(unpack(&b, UINT64_MAX).reason, SBX_AGENT_REASON_CORRUPT);
    b.len = 0;
    assert_int_equal(unpack(&b, UINT64_MAX).reason, SBX_AGENT_REASON_CORRUPT);
    forget(&b);
}

static void names_and_depth_have_limits(void **state)
{
    static char path[2100];
    struct evil one[1] = { { path, '0', NULL } };
    struct bytes b;

    (void)state;
    memset(path, 'n', 300);
    write_evil(&b, one, 1);
    assert_int_equal(unpack(&b, UINT64_MAX).reason, SBX_AGENT_REASON_CORRUPT);
    check_untouched();
    forget(&b);
    for (size_t i = 0; i < 2098; i++)
        path[i] = i % 2 ? '/' : 'd';
    path[2098] = '\0';
    write_evil(&b, one, 1);
    assert_int_equal(unpack(&b, UINT64_MAX).reason, SBX_AGENT_REASON_CORRUPT);
    check_untouched();
    forget(&b);
    path[1601] = '\0'; /* 800 deep */
    write_evil(&b, one, 1);
    assert_int_equal(unpack(&b, UINT64_MAX).reason, 0);
    forget(&b);
}

static int setup(void **state)
{
    (void)state;
    (void)snprintf(top, sizeof(top), "/tmp/archive-XXXXXX");
    if (!mkdtemp(top))
        return -1;
    (void)snprintf(in, sizeof(in), "%s/in", top);
    (void)snprintf(out, sizeof(out), "%s/out", top);
    (void)snprintf(outside, sizeof(outside), "%s/outside", top);
    return 0;
}

static int teardown(void **state)
{
    const char *const argv[] = { "rm", "-rf", top, NULL };

    (void)state;
    if (chdir("/") == 0)
        run(argv);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(everything_comes_back, fresh),
        cmocka_unit_test_setup(tar_reads_it, fresh),
        cmocka_unit_test_setup(excludes_apply, fresh),
        cmocka_unit_test_setup(the_cap_counts_what_is_not_compressed, fresh),
        cmocka_unit_test_setup(nothing_leaves_the_folder, fresh),
        cmocka_unit_test_setup(a_second_member_replaces_and_never_follows, fresh),
        cmocka_unit_test_setup(half_an_archive_is_none, fresh),
        cmocka_unit_test_setup(names_and_depth_have_limits, fresh),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
