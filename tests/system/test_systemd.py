# ctest: timeout 180
# ctest: lock egress
"""The units on a real systemd: this machine's files under an overlay, with the product installed in them,
booted in namespaces of its own.  Hardening, readiness, reload, drain, and sandboxes that outlive their
gateway's restart."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import harness
from harness import BUILD, SOURCE, busybox_rootfs, main, wait_for

UNITS = os.path.join(SOURCE, "config/systemd")
# What would reach beyond our namespaces, or is not needed to run three services.
MASKED = ["systemd-sysctl.service", "systemd-modules-load.service", "systemd-journald-audit.socket", "systemd-binfmt.service",
          "proc-sys-fs-binfmt_misc.automount", "systemd-udevd.service", "systemd-random-seed.service",
          "systemd-remount-fs.service", "sys-kernel-debug.mount", "sys-kernel-tracing.mount", "dev-hugepages.mount",
          "dev-mqueue.mount", "sys-fs-fuse-connections.mount", "systemd-tmpfiles-setup-dev.service", "timers.target",
          "systemd-network-generator.service", "systemd-networkd.service", "systemd-update-utmp.service", "e2scrub_reap.service"]
BOOT = r"""
set -e
mount -t proc proc $R/proc
mount -t sysfs -o ro sysfs $R/sys
mount -t tmpfs tmpfs $R/sys/fs/cgroup
for h in /sys/fs/cgroup/*/cgroup.procs; do
	n=$(basename $(dirname $h))
	[ $n != '*' ] || continue
	mkdir -p $R/sys/fs/cgroup/$n
	case $n in
	unified) mount -t cgroup2 cgroup $R/sys/fs/cgroup/$n ;;
	systemd) mount -t cgroup -o none,name=systemd cgroup $R/sys/fs/cgroup/$n ;;
	*) mount -t cgroup -o $n cgroup $R/sys/fs/cgroup/$n ;;
	esac
done
mount -t tmpfs -o mode=755 tmpfs $R/run
mount -t tmpfs -o mode=1777 tmpfs $R/tmp
mount --rbind /dev $R/dev
ip link set lo up
# Not chroot: the kernel lets nobody make a user namespace below one, and gVisor makes one.
cd $R
mkdir -p .old
pivot_root . .old
umount -l /.old
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system \
	--unit=test.target --log-target=console --log-level=warning --show-status=no
"""


def run(argv, **kw):
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, **kw)
    if done.returncode != 0:
        raise AssertionError(f"{argv}: exit {done.returncode}\n{done.stdout[-3000:]}")
    return done.stdout


class Units(unittest.TestCase):
    """What can be said of the units without running them."""

    def test_they_are_well_formed_and_hardened(self):
        for unit, most in (("sandboxd", 2.0), ("sandbox-region", 7.5), ("sandboxd-standalone", 7.5)):
            said = run(["systemd-analyze", "security", "--offline=true", "--no-pager", f"{UNITS}/{unit}.service"])
            level = float(re.search(r"Overall exposure level for \S+: ([\d.]+)", said).group(1))
            self.assertLessEqual(level, most, said)


class Booted(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0:
            raise unittest.SkipTest("booting systemd needs root")
        if not os.path.exists("/lib/systemd/systemd"):
            raise unittest.SkipTest("systemd is not installed")
        if not os.path.exists("/sys/fs/cgroup/systemd/cgroup.procs"):
            raise unittest.SkipTest("this machine has no cgroup v1 hierarchy for a second systemd")
        cls.dir = tempfile.mkdtemp(prefix="sbx-systemd-")
        cls.init = None
        cls.addClassCleanup(cls.close)
        try:
            cls.make_machine()
        except AssertionError as e:
            raise unittest.SkipTest(f"no overlay file system can be mounted here: {e}") from None
        cls.boot()

    @classmethod
    def make_machine(cls):
        run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", cls.dir])
        cls.root = os.path.join(cls.dir, "root")
        for name in ("upper", "work", "root"):
            os.makedirs(os.path.join(cls.dir, name))
        run(["mount", "-t", "overlay", "overlay", "-o",
             f"lowerdir=/,upperdir={cls.dir}/upper,workdir={cls.dir}/work", cls.root])
        for name in ("sandboxd", "sandbox-region", "sandboxctl"):
            shutil.copy2(os.path.join(BUILD, name), cls.root + "/usr/bin")
        os.makedirs(cls.root + "/usr/lib/sandboxd", exist_ok=True)
        for name in ("sandbox-agent", "sandbox-probe", "sandbox-statx.so", "libfusemod_sbxnames.so"):
            shutil.copy2(os.path.join(BUILD, name), cls.root + "/usr/lib/sandboxd")
        units = cls.root + "/etc/systemd/system"
        for name in os.listdir(UNITS):
            shutil.copy2(os.path.join(UNITS, name), units)
            os.makedirs(f"{units}/{name}.d", exist_ok=True)
            if name.endswith(".service"):  # a leak check would trace the process, which the filter refuses
                with open(f"{units}/{name}.d/sanitizer.conf", "w") as f:
                    f.write("[Service]\nEnvironment=ASAN_OPTIONS=detect_leaks=0\n")
        for name in MASKED:
            with contextlib.suppress(FileNotFoundError):
                os.remove(f"{units}/{name}")
            os.symlink("/dev/null", f"{units}/{name}")
        with open(f"{units}/test.target", "w") as f:
            f.write("[Unit]\nRequires=basic.target\nAfter=basic.target\nAllowIsolate=yes\n")
        busybox_rootfs(cls.root + "/rootfs")
        state = cls.root + "/var/lib/sandboxd"
        shutil.rmtree(state, ignore_errors=True)
        os.makedirs(cls.root + "/etc/sandboxd", exist_ok=True)

    @classmethod
    def boot(cls):
        """In control groups below our own, so that it is the root there."""
        cls.groups = []
        for h in os.listdir("/sys/fs/cgroup"):
            path = f"/sys/fs/cgroup/{h}/sbx-test-systemd"
            if os.path.exists(os.path.dirname(path) + "/cgroup.procs"):
                os.makedirs(path, exist_ok=True)
                cls.groups.append(path)
        for name in ("cpus", "mems"):
            with contextlib.suppress(OSError), open(f"/sys/fs/cgroup/cpuset/cpuset.{name}") as f:
                value = f.read()
                with open(f"/sys/fs/cgroup/cpuset/sbx-test-systemd/cpuset.{name}", "w") as g:
                    g.write(value)
        enter = "; ".join(f"echo $$ >{g}/cgroup.procs" for g in cls.groups)
        cls.console = open(os.path.join(cls.dir, "console"), "w+")
        cls.init = subprocess.Popen(
            ["sh", "-c", f"{enter}; exec unshare --mount --pid --uts --ipc --net --cgroup --fork --kill-child "
             "--propagation private sh -c \"$BOOT\""], env={**os.environ, "R": cls.root, "BOOT": BOOT},
            stdin=subprocess.DEVNULL, stdout=cls.console, stderr=cls.console)
        wait_for("systemd is up", cls.up, 40)

    @classmethod
    def up(cls):
        if cls.init.poll() is not None:
            cls.console.seek(0)
            raise AssertionError(f"systemd ended: {cls.console.read()[-3000:]}")
        with open(f"/proc/{cls.init.pid}/task/{cls.init.pid}/children") as f:
            children = f.read().split()
        if not children:
            return False
        cls.inside = ["nsenter", "-t", children[0], "-m", "-p", "-u", "-i", "-n", "-C", "--wd=/"]
        done = subprocess.run([*cls.inside, "systemctl", "is-system-running"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, check=False)
        return done.stdout.strip() in (b"running", b"degraded")

    @classmethod
    def close(cls):
        if cls.init is not None:
            if cls.init.poll() is None:
                subprocess.run([*cls.inside, "systemctl", "poweroff"], check=False, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
            try:
                cls.init.wait(30)
            except subprocess.TimeoutExpired:
                cls.init.kill()  # and with it all that is inside: --kill-child
                cls.init.wait()
            cls.console.close()
        with open("/proc/mounts") as f:
            mounts = [line.split()[1] for line in f if line.split()[1].startswith(cls.dir)]
        for mount in sorted(mounts, key=len, reverse=True):
            subprocess.run(["umount", "-l", mount], check=False)
        shutil.rmtree(cls.dir, ignore_errors=True)
        for group in getattr(cls, "groups", []):
            for folder, _dirs, _files in os.walk(group, topdown=False):
                for _ in range(50):
                    try:
                        os.rmdir(folder)
                        break
                    except OSError:
                        time.sleep(0.1)

    def do(self, *argv, env=None):
        return run([*self.inside, *argv], env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", **(env or {})},
                   timeout=120)

    def ctl(self, *argv):
        return json.loads(self.do("sandboxctl", "--json", *argv))

    def start(self, unit):
        try:
            self.do("systemctl", "start", unit)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.journal(unit)}") from None
        self.assertEqual(self.show(unit, "ActiveState"), "active")

    def show(self, unit, name):
        return self.do("systemctl", "show", "-P", name, unit).strip()

    def journal(self, unit):
        return self.do("journalctl", "-u", unit, "-o", "cat", "--no-pager")

    def hardened(self, unit, capabilities):
        """What the kernel says of the unit's main process."""
        with open(f"{self.root_of_init()}/proc/{self.show(unit, 'MainPID')}/status") as f:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
        self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"), unit)
        self.assertEqual(status["CapBnd"] == "0" * 16, not capabilities, status)
        return status

    def root_of_init(self):
        return f"/proc/{self.inside[2]}/root"

    def test_1_standalone(self):
        unit = "sandboxd-standalone.service"
        with open(self.root + f"/etc/systemd/system/{unit}.d/test.conf", "w") as f:
            f.write("[Service]\nEnvironment=SANDBOXD_STANDALONE_ROOTFS=/rootfs SANDBOXD_STANDALONE_PORT=0 "
                    "SANDBOXD_STANDALONE_REGION_EXTRA=/etc/sandboxd/extra.conf\n")
        with open(self.root + "/etc/sandboxd/extra.conf", "w") as f:
            f.write("[limits]\nsandboxes = 100\n")
        self.do("systemctl", "daemon-reload")
        self.start(unit)
        self.hardened(unit, capabilities=True)
        box = self.ctl("sandbox", "create", "--wait")["sandbox"]["sandboxId"]
        self.assertEqual(self.do("sandboxctl", "exec", box, "--", "echo", "in systemd"), "in systemd\n")
        self.assertEqual(self.show(unit, "ControlGroup"), f"/sandboxd.slice/{unit}")

        with open(self.root + "/etc/sandboxd/extra.conf", "w") as f:
            f.write("[limits]\nsandboxes = 99\n")
        self.do("systemctl", "reload", unit)
        wait_for("the region took it over", lambda: '"msg":"reloaded","changed":1' in self.journal(unit), 10)

        self.do("systemctl", "restart", unit)
        self.assertEqual(self.do("sandboxctl", "exec", box, "--", "echo", "still here"), "still here\n")
        self.ctl("sandbox", "drain")
        self.do("systemctl", "stop", unit)
        self.assertEqual((self.show(unit, "ActiveState"), self.show(unit, "Result")), ("inactive", "success"))

    def test_2_server_and_region_apart(self):
        etc = self.root + "/etc/sandboxd"
        with open(f"{etc}/region.conf", "w") as f:
            uid, gid = harness.user_ids("sandboxd")
            f.write(f"[listen]\nsocket = /run/sandbox-region/region.sock\nsocket_uids = 0,{uid}\n[egress]\nenabled = false\n")
        with open(f"{etc}/seal.keys", "w") as f:
            f.write("k1 " + "ab" * 32 + "\n")
        with open(f"{etc}/sandboxd.conf", "w") as f:
            f.write("[database]\nurl = postgresql:///postgres?host=/run/pgtest&user=postgres\n[seal]\n"
                    "keys_file = /etc/sandboxd/seal.keys\n[listen]\nport = 8123\n")
        for name in ("sandboxd.conf", "seal.keys"):
            os.chown(f"{etc}/{name}", 0, gid)
            os.chmod(f"{etc}/{name}", 0o640)
        with open(self.root + "/etc/systemd/system/pgtest.service", "w") as f:
            f.write("[Service]\nType=notify\nUser=postgres\nRuntimeDirectory=pgtest\nStateDirectory=pgtest\n"
                    f"ExecStartPre={harness.PG_BIN}/initdb --no-sync -A trust -U postgres -D /var/lib/pgtest/data\n"
                    f"ExecStart={harness.PG_BIN}/postgres -D /var/lib/pgtest/data -k /run/pgtest -c listen_addresses= -c fsync=off\n")
        self.do("systemctl", "daemon-reload")
        for unit in ("pgtest.service", "sandbox-region.service", "sandboxd.service"):
            self.start(unit)
        self.hardened("sandboxd.service", capabilities=False)
        self.hardened("sandbox-region.service", capabilities=True)
        pid = self.show("sandboxd.service", "MainPID")
        self.assertEqual(os.stat(f"{self.root_of_init()}/proc/{pid}").st_uid, harness.user_ids("sandboxd")[0])

        tenant = self.tenant()
        box = self.user(tenant, "sandbox", "create", "--wait")["sandbox"]["sandboxId"]
        hello = ("exec", box, "--", "echo", "hello")
        self.assertEqual(self.user(tenant, *hello)["stdout"], "hello\n")
        for unit in ("sandboxd.service", "sandbox-region.service"):
            before = self.show(unit, "MainPID")
            self.do("systemctl", "reload", unit)
            wait_for(f"{unit} reloaded", lambda u=unit: '"msg":"reloaded"' in self.journal(u), 10)
            self.assertEqual(self.show(unit, "MainPID"), before)
            self.do("systemctl", "restart", unit)
            self.assertNotEqual(self.show(unit, "MainPID"), before)
            wait_for("the same sandbox answers", lambda: self.answers(tenant, hello), 30)
        # Killed, not stopped: it comes back, and the sandbox was there all the time.
        os.kill(self.outside(self.show("sandbox-region.service", "MainPID")), signal.SIGKILL)
        wait_for("the same sandbox answers", lambda: self.answers(tenant, hello), 30)
        self.assertEqual(self.show("sandbox-region.service", "NRestarts"), "1")
        self.user(tenant, "sandbox", "terminate", box)
        for unit in ("sandboxd.service", "sandbox-region.service", "pgtest.service"):
            self.do("systemctl", "stop", unit)
            self.assertEqual(self.show(unit, "Result"), "success")
        self.assertIn('"msg":"stopped"', self.journal("sandboxd.service"))

    def outside(self, pid):
        """Our number of a process whose number inside is pid."""
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{name}/status") as f:
                found = re.search(r"(?m)^NSpid:\t(\d+)\t(\d+)$", f.read())
                if found and found.group(2) == pid and os.readlink(f"/proc/{name}/ns/pid") == \
                        os.readlink(f"/proc/{self.inside[2]}/ns/pid"):
                    return int(found.group(1))
        raise AssertionError(f"no process {pid} inside")

    def answers(self, tenant, words):
        with contextlib.suppress(AssertionError):
            return self.user(tenant, *words)["stdout"] == "hello\n"
        return False

    def tenant(self):
        ctl = self.ctl
        account = ctl("account", "create", "--name", "a")["account"]["accountId"]
        user = ctl("user", "create", "--email", "a@example.test")["user"]["userId"]
        ctl("member", "add", "--account", account, "--user", user, "--roles", "admin")
        ctl("region", "create", "--name", "here", "--socket", "/run/sandbox-region/region.sock")
        ctl("region", "grant", "--account", account, "--region", "here")
        app = ctl("app", "create", "--account", account, "--name", "app")["app"]["appId"]
        with open(self.root_of_init() + "/run/token", "w") as f:
            f.write(ctl("token", "create", "--kind", "user", "--user", user)["secret"])
        image = ctl("image", "import", "--region", "here", "--rootfs", "/rootfs", "--name", "busy")["reference"]
        tenant = {"SANDBOXCTL_URL": "http://127.0.0.1:8123", "SANDBOXCTL_TOKEN_FILE": "/run/token", "SANDBOXCTL_APP": app,
                  "SANDBOXCTL_ACCOUNT": account, "SANDBOXCTL_REGION": "here"}
        template = self.user(tenant, "template", "save", "--name", "t")["template"]["templateId"]
        self.user(tenant, "template", "revision", template, "--image", image, "--", "sleep", "100000")
        return {**tenant, "SANDBOXCTL_TEMPLATE": template}

    def user(self, tenant, *argv):
        return json.loads(self.do("sandboxctl", "--json", *argv, env=tenant))


if __name__ == "__main__":
    main()
