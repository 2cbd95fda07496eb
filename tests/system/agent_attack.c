/* A hostile program inside the sandbox: tries everything it knows to reach the agent and prints one
 * line "REACHED what" for each thing that worked.  Run as root of the image by
 *test_agent_hostile.py.
 *
 *	agent_attack            as it is, then as the agent's own uid, then in a user namespace
 *	agent_attack dial       dials the agent's socket, by every path to it
 *	agent_attack storm FILE forks and continues its relatives without end; each appends to FILE
 *	agent_attack take PATH  listens on a unix socket and keeps the descriptor that comes, open,
 *for long agent_attack give PATH  sends it its own standard output and ends agent_attack vfork FILE
 *a vfork child that lives for long, its parent waiting for it */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sbx/agent.h>

static int tried;

static void reached(const char *who, const char *what, long n)
{
    printf("REACHED %s: %s %ld\n", who, what, n);
}

/* Is this number of /proc one of ours (this program and what started it)? */
static int trusted(const char *pid)
{
    char path[64], line[256];
    int found = 0;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%s/cmdline", pid);
    f = fopen(path, "r");
    if (!f)
        return 0;
    if (fgets(line, sizeof(line), f))
        found = strcmp(line, SBX_AGENT_BINARY) == 0;
    fclose(f);
    return found;
}

/* What this program has as its own output is no secret from it: the init of its namespace may not
 * have closed its copies yet. */
static int own(const char *target)
{
    char path[32], mine[256];

    for (int i = 0; i < 3; i++) {
        ssize_t n;

        snprintf(path, sizeof(path), "/proc/self/fd/%d", i);
        n = readlink(path, mine, sizeof(mine) - 1);
        mine[n < 0 ? 0 : n] = '\0';
        if (strcmp(mine, target) == 0)
            return 1;
    }
    return 0;
}

static void try_fds(const char *who, const char *pid)
{
    char path[512], target[256];
    struct dirent *e;
    DIR *d;

    snprintf(path, sizeof(path), "/proc/%s/fd", pid);
    d = opendir(path);
    while (d && (e = readdir(d))) {
        int fd;
        ssize_t n;

        if (e->d_name[0] == '.')
            continue;
        tried++;
        snprintf(path, sizeof(path), "/proc/%s/fd/%s", pid, e->d_name);
        n = readlink(path, target, sizeof(target) - 1);
        target[n < 0 ? 0 : n] = '\0';
        fd = open(path, O_RDWR | O_NONBLOCK);
        if (fd < 0)
            fd = open(path, O_RDONLY | O_NONBLOCK);
        if (fd >= 0 && strcmp(target, "/dev/null") != 0 && !own(target)) {
            printf("%s opens fd %s of %s: %s\n", who, e->d_name, pid, target);
            reached(who, target, atol(pid));
        }
        if (fd >= 0)
            close(fd);
    }
    if (d)
        closedir(d);
}

static void try_memory(const char *who, const char *name)
{
    pid_t pid = atoi(name);
    char path[64], byte[16];
    struct iovec local = { byte, 1 }, remote = { (void *)0x400000, 1 };

    snprintf(path, sizeof(path), "/proc/%s/mem", name);
    for (int i = 0; i < 2; i++) {
        int fd = open(path, i ? O_RDWR : O_RDONLY);

        tried++;
        if (fd >= 0 && pread(fd, byte, 1, 0x400000) == 1)
            reached(who, path, pid);
        if (fd >= 0)
            close(fd);
    }
    tried++;
    if (process_vm_readv(pid, &local, 1, &remote, 1, 0) == 1)
        reached(who, "process_vm_readv", pid);
    for (int i = 0; i < 2; i++) {
        tried++;
        if (pid != getpid() && pid != getppid() &&
            ptrace(i ? PTRACE_SEIZE : PTRACE_ATTACH, pid, NULL, NULL) == 0)
            reached(who, "ptrace", pid);
    }
    snprintf(path, sizeof(path), "/proc/%s/cwd/agent.sock", name);
    tried++;
    if (access(path, F_OK) == 0)
        reached(who, path, pid);
    snprintf(path, sizeof(path), "/proc/%s/root/run/sandboxd/agent.sock", name);
    if (access(path, F_OK) == 0)
        reached(who, path, pid);
}

static void try_all(const char *who)
{
    struct dirent *e;
    DIR *d = opendir("/proc");
    int agents = 0;

    while (d && (e = readdir(d))) {
        if (e->d_name[0] < '0' || e->d_name[0] > '9' || !trusted(e->d_name))
            continue;
        agents++;
        try_fds(who, e->d_name);
        try_memory(who, e->d_name);
    }
    if (d)
        closedir(d);
    printf("%s: %d processes of the agent's program in sight\n", who, agents);
}

static int dial(const char *path, const unsigned char *key)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    unsigned char frame[SBX_AGENT_HEADER_LEN + 14 + 6 + SBX_AGENT_KEY_LEN], byte;
    size_t len = SBX_AGENT_HEADER_LEN + 14;
    struct timeval wait = { 3, 0 };
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
    if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
        printf("dial %s: %s\n", path, strerror(errno));
        close(fd);
        return 0;
    }
    sbx_agent_put_u16(frame + SBX_AGENT_HEADER_LEN, SBX_TAG_KIND);
    sbx_agent_put_u32(frame + SBX_AGENT_HEADER_LEN + 2, 8);
    sbx_agent_put_u64(frame + SBX_AGENT_HEADER_LEN + 6, SBX_AGENT_CONTROL);
    if (key) {
        sbx_agent_put_u16(frame + len, SBX_TAG_KEY);
        sbx_agent_put_u32(frame + len + 2, SBX_AGENT_KEY_LEN);
        memcpy(frame + len + 6, key, SBX_AGENT_KEY_LEN);
        len += 6 + SBX_AGENT_KEY_LEN;
    }
    sbx_agent_header_pack(frame, SBX_AGENT_HELLO, 0, (uint32_t)(len - SBX_AGENT_HEADER_LEN));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    if (send(fd, frame, len, MSG_NOSIGNAL) == (ssize_t)len && recv(fd, &byte, 1, 0) == 1)
        reached("dial", path, key != NULL);
    else
        printf("dial %s: connected, not welcome\n", path);
    close(fd);
    return 1;
}

static void sockets(void)
{
    unsigned char key[SBX_AGENT_KEY_LEN] = { 1 };
    const char *const paths[] = { SBX_AGENT_SOCKET, "/proc/1/cwd/agent.sock",
                                  "/proc/1/root/run/sandboxd/agent.sock", "agent.sock" };
    int connected = 0;

    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        connected += dial(paths[i], NULL) + dial(paths[i], key);
    printf("%d connected\n", connected);
}

static void uncover(const char *who)
{
    tried += 2;
    if (umount2("/proc", MNT_DETACH) == 0)
        reached(who, "umount /proc", 0);
    if (umount2(SBX_AGENT_DIR, MNT_DETACH) == 0)
        reached(who, "umount " SBX_AGENT_DIR, 0);
    /* In a user namespace of its own this may work, and shows what its PID namespace holds. */
    (void)mount("proc", "/proc", "proc", 0, NULL);
}

/* Both ends of handing a descriptor over. */
static int pass(const char *path, int give)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int))];
    } control = { 0 };
    char byte = 'x';
    struct iovec iov = { &byte, 1 };
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
    };
    int out = STDOUT_FILENO, fd = socket(AF_UNIX, SOCK_STREAM, 0);

    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
    if (give) {
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &out, sizeof(int));
        while (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
            usleep(20000);
        return sendmsg(fd, &msg, 0) == 1 && read(fd, &byte, 1) == 1 ? 0 : 1;
    }
    if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 || listen(fd, 1) < 0)
        return 1;
    fd = accept(fd, NULL, NULL);
    if (recvmsg(fd, &msg, 0) != 1 || !CMSG_FIRSTHDR(&msg) || write(fd, "y", 1) != 1)
        return 1;
    sleep(100);
    return 0;
}

static void note(const char *file)
{
    int fd = open(file, O_WRONLY | O_CREAT | O_APPEND, 0666);

    if (fd >= 0 && write(fd, ".", 1) < 0)
        perror(file);
    close(fd);
}

/* Four lines of processes: each member notes, continues all, forks the next one and ends. */
static void storm(const char *file)
{
    signal(SIGCHLD, SIG_IGN);
    for (int line = 0; line < 3 && fork(); line++)
        ;
    for (;;) {
        note(file);
        kill(-1, SIGCONT);
        if (fork() > 0)
            _exit(0);
    }
}

static void lasting_vfork(const char *file)
{
    if (vfork() == 0) {
        for (int i = 0; i < 600; i++) {
            note(file);
            usleep(50000);
        }
        _exit(0);
    }
    wait(NULL);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    if (argc > 1 && strcmp(argv[1], "dial") == 0) {
        sockets();
        return 0;
    }
    if (argc > 2 && (strcmp(argv[1], "give") == 0 || strcmp(argv[1], "take") == 0))
        return pass(argv[2], strcmp(argv[1], "give") == 0);
    if (argc > 2 && strcmp(argv[1], "storm") == 0)
        storm(argv[2]);
    if (argc > 2 && strcmp(argv[1], "vfork") == 0) {
        lasting_vfork(argv[2]);
        return 0;
    }
    uncover("root");
    try_all("root");
    if (fork() == 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) {
            uncover("userns");
            try_all("userns");
        }
        printf("tried %d\n", tried);
        _exit(0);
    }
    wait(NULL);
    if (setresgid(SBX_AGENT_UID, SBX_AGENT_UID, SBX_AGENT_UID) < 0 ||
        setresuid(SBX_AGENT_UID, SBX_AGENT_UID, SBX_AGENT_UID) < 0)
        printf("the agent's uid cannot be taken\n");
    else
        try_all("agent's uid");
    printf("tried %d\n", tried);
    return 0;
}
