/* doctor: looks at this host, asks the server about the rest, and says how to mend what is wrong.
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/process.h"
#include "base/str.h"
#include "base/time.h"
#include "ctl/ctl.h"

#define CGROUP_V2_MAGIC 0x63677270

enum {
    PROBE_MS = 20 * 1000,
    DETAIL_MAX = 400,
    DISK_FREE_MIN_MB = 2048,
    RUNSC_OLD_YEAR = 2024, /* before release 20240729: no systrap as default, the statx fault */
};

enum verdict { FINE, NOTE, BAD };

struct finding {
    const char *state; /* the folder of a standalone server, there or not */
    enum verdict verdict;
    char detail[DETAIL_MAX];
};

static void PRINTF_LIKE(3, 4) found(struct finding *f, enum verdict v, const char *fmt, ...)
{
    va_list args;

    f->verdict = v;
    va_start(args, fmt);
    (void)vsnprintf(f->detail, sizeof(f->detail), fmt, args);
    va_end(args);
}

/* Runs argv; false with the error's text in f. */
static bool probe(struct finding *f, const char *const *argv, struct buf *output)
{
    struct sbx_err err = { .code = SBX_OK };

    if (process_run(argv, NULL, 0, output, PROBE_MS, &err) == SBX_OK)
        return true;
    found(f, BAD, "%s", err.msg);
    return false;
}

static void check_root(struct finding *f)
{
    if (geteuid() == 0)
        found(f, FINE, "running as root");
    else
        found(f, NOTE, "not root: what needs root was not tried, or fails below");
}

static void check_kernel(struct finding *f)
{
    struct utsname u;

    (void)uname(&u);
    found(f, FINE, "%s %s", u.release, u.machine);
}

static void check_runsc(struct finding *f)
{
    static const char *const ARGV[] = { "runsc", "--version", NULL };
    SCOPED_BUF struct buf out = BUF_INIT(4096);
    const char *digits;
    int64_t year = 0;
    char text[5] = "";

    if (!probe(f, ARGV, &out))
        return;
    out.data[strcspn(out.data, "\n")] = 0;
    digits = strstr(out.data, "20");
    if (digits != NULL)
        (void)snprintf(text, sizeof(text), "%.4s", digits);
    if (str_parse_int(text, 2000, 2999, &year) && year < RUNSC_OLD_YEAR)
        found(f, NOTE,
              "%s: works, but one from 2024-07 or later makes a system call in 8 us instead of 30 "
              "and needs no workaround",
              out.data);
    else
        found(f, FINE, "%s", out.data);
}

static void check_sandbox(struct finding *f)
{
    static const char *const ARGV[] = { "runsc", "--network=none", "--ignore-cgroups",
                                        "do",    "true",           NULL };
    SCOPED_BUF struct buf out = BUF_INIT(65536);
    int64_t began = time_mono_ms();

    if (geteuid() != 0)
        found(f, NOTE, "needs root, not tried");
    else if (probe(f, ARGV, &out))
        found(f, FINE, "a sandbox ran `true` in %lld ms", (long long)(time_mono_ms() - began));
}

static void check_cgroups(struct finding *f)
{
    struct statfs fs;
    bool v2 = statfs("/sys/fs/cgroup", &fs) == 0 && fs.f_type == CGROUP_V2_MAGIC;
    const char *parent = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    char path[96];

    if (geteuid() != 0) {
        found(f, NOTE, "cgroup v%d, needs root to try it", v2 ? 2 : 1);
        return;
    }
    (void)snprintf(path, sizeof(path), "%s/sandboxctl-doctor-%d", parent, (int)getpid());
    if (mkdir(path, 0755) != 0) {
        found(f, BAD, "cgroup v%d: %s cannot be used: %s", v2 ? 2 : 1, parent, strerror(errno));
        return;
    }
    (void)rmdir(path);
    found(f, FINE, "cgroup v%d, groups can be made", v2 ? 2 : 1);
}

static void check_nft(struct finding *f)
{
    static const char *const ARGV[] = { "nft", "list", "tables", NULL };

    if (probe(f, ARGV, NULL))
        found(f, FINE, "rules can be read");
}

static void check_netns(struct finding *f)
{
    char name[48];
    const char *add[] = { "ip", "netns", "add", name, NULL };
    const char *del[] = { "ip", "netns", "delete", name, NULL };

    (void)snprintf(name, sizeof(name), "sbx-doctor-%d", (int)getpid());
    if (geteuid() != 0)
        found(f, NOTE, "needs root, not tried");
    else if (probe(f, add, NULL) && probe(f, del, NULL))
        found(f, FINE, "network namespaces can be made");
}

static bool in_path(const char *name)
{
    static const char *const DIRS[] = { "/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
                                        "/usr/bin",        "/sbin",          "/bin" };
    char path[128];

    for (size_t i = 0; i < COUNT_OF(DIRS); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", DIRS[i], name);
        if (access(path, X_OK) == 0)
            return true;
    }
    return false;
}

static void check_programs(struct finding *f)
{
    static const char *const NAMES[] = { "skopeo", "umoci", "unbound",   "squid", "s3fs",
                                         "ip",     "nft",   "mkfs.ext4", "tar" };
    char missing[DETAIL_MAX] = "";
    size_t n = 0;

    for (size_t i = 0; i < COUNT_OF(NAMES); i++)
        if (!in_path(NAMES[i]))
            n += (size_t)snprintf(missing + n, sizeof(missing) - n, " %s", NAMES[i]);
    if (n > 0)
        found(f, BAD, "missing:%s", missing);
    else
        found(f, FINE, "all there");
}

static void check_postgres(struct finding *f)
{
    if (access("/usr/lib/postgresql/15/bin/postgres", X_OK) == 0)
        found(f, FINE, "PostgreSQL 15 is installed");
    else
        found(f, NOTE, "PostgreSQL 15 is not installed: --standalone needs it");
}

static void check_disk(struct finding *f)
{
    const char *dir = access(f->state, F_OK) == 0 ? f->state : "/var/lib";
    struct statvfs s;
    unsigned long long free_mb;

    if (statvfs(dir, &s) != 0) {
        found(f, BAD, "%s: %s", dir, strerror(errno));
        return;
    }
    free_mb = (unsigned long long)s.f_bavail * s.f_frsize >> 20;
    found(f, free_mb < DISK_FREE_MIN_MB ? BAD : FINE, "%llu MiB free in %s", free_mb, dir);
}

static void check_clock(struct finding *f)
{
    struct timex t = { 0 };
    int state = adjtimex(&t);

    if (state == TIME_ERROR || (t.status & STA_UNSYNC) != 0)
        found(f, NOTE, "no time service keeps the clock: token checks allow 30 s");
    else
        found(f, FINE, "kept by a time service");
}

static void check_fuse(struct finding *f)
{
    if (access("/dev/fuse", F_OK) == 0)
        found(f, FINE, "/dev/fuse is there");
    else
        found(f, NOTE, "/dev/fuse is missing: volumes on s3 backends cannot be mounted");
}

static const struct check {
    const char *name;
    void (*run)(struct finding *f);
    const char *mend;
} CHECKS[] = {
    { "user", check_root, "run it as root: sudo sandboxctl doctor" },
    { "kernel", check_kernel, "" },
    { "runsc", check_runsc,
      "apt-get install runsc; a newer one: apt-get install -t bookworm-backports runsc, or [runsc] "
      "path" },
    { "sandbox", check_sandbox,
      "see what `runsc --network=none --ignore-cgroups do true` prints as root; ptrace and user "
      "namespaces "
      "must be allowed" },
    { "cgroups", check_cgroups,
      "mount cgroup2 on /sys/fs/cgroup, and in a service unit set Delegate=yes" },
    { "nft", check_nft, "apt-get install nftables; the kernel needs nf_tables" },
    { "netns", check_netns,
      "apt-get install iproute2; the kernel needs network namespaces and veth" },
    { "programs", check_programs, "config/install run" },
    { "postgresql", check_postgres, "apt-get install postgresql-15, or set [database] url" },
    { "disk", check_disk, "free some space (sandboxctl image list, image remove), or move the state to a larger disk" },
    { "clock", check_clock, "apt-get install chrony (or systemd-timesyncd) and start it" },
    { "fuse", check_fuse, "modprobe fuse" },
};

static void add_row(json_t *rows, const char *name, enum verdict v, const char *detail,
                    const char *mend)
{
    static const char *const WORDS[] = { [FINE] = "ok", [NOTE] = "note", [BAD] = "bad" };
    json_t *row = json_object();

    json_put_str(row, "name", name);
    json_put_str(row, "state", WORDS[v]);
    json_put_bool(row, "ok", v != BAD);
    (void)json_object_set_new(row, "detail",
                              json_string(utf8_valid(detail, strlen(detail)) ? detail : ""));
    if (v != FINE && mend != NULL && mend[0] != 0)
        json_put_str(row, "mend", mend);
    (void)json_array_append_new(rows, row);
}

/* Database, storage and regions: the server looks at these, where it runs. */
static void ask_server(struct ctl *c, json_t *rows)
{
    struct sbx_err err = { .code = SBX_OK };
    enum ctl_exit rc = ctl_call(c, CTL_ADMIN, "GET", "/doctor", NULL, CTL_CALL_TIMEOUT_MS, &err);
    size_t i;
    json_t *row;

    if (rc != CTL_DONE) {
        add_row(
            rows, "server", BAD, err.msg,
            "start it: config/quickstart, or systemctl start sandboxd; its log says why it ended");
        return;
    }
    add_row(rows, "server", FINE, ctl_admin_socket(c), NULL);
    json_array_foreach(json_object_get(c->answer, "checks"), i, row)
        add_row(rows, json_get_str(row, "name", "?"), json_get_bool(row, "ok", false) ? FINE : BAD,
                json_get_str(row, "detail", ""), json_get_str(row, "mend", NULL));
}

enum ctl_exit ctl_run_doctor(struct ctl *c, struct sbx_err *err)
{
    SCOPED_JSON json_t *all = json_object();
    json_t *rows = json_array();
    bool well = true;
    size_t i;
    json_t *row;

    for (i = 0; i < COUNT_OF(CHECKS); i++) {
        struct finding f = { .state = ctl_state_dir(c), .verdict = BAD };

        ctl_progress(CHECKS[i].name);
        CHECKS[i].run(&f);
        add_row(rows, CHECKS[i].name, f.verdict, f.detail, CHECKS[i].mend);
    }
    ctl_progress(NULL);
    if (!ctl_flag(c, "--offline"))
        ask_server(c, rows);
    json_array_foreach(rows, i, row) well = well && json_get_bool(row, "ok", false);
    (void)json_object_set_new(all, "success", json_boolean(well));
    (void)json_object_set_new(all, "checks", rows);
    if (c->json) {
        ctl_print_json(all);
    } else {
        ctl_print_table(rows, "name:CHECK state:STATE detail:DETAIL");
        json_array_foreach(rows, i, row) if (json_get_str(row, "mend", NULL) != NULL)(void)
            printf("\n%s: %s\n", json_get_str(row, "name", ""), json_get_str(row, "mend", ""));
    }
    (void)err; /* what is wrong was said above */
    return well ? CTL_DONE : CTL_REFUSED;
}
