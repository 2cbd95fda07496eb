# ctest: early
# ctest: timeout 1200
"""The Dockerfile's steps without Docker, and the Debian packages that they make: installed as a person
would, tried, removed.  `FROM debian:12` is this machine seen through an overlay, so nothing of it is
changed and what it has need not be fetched again."""

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest

import harness
from harness import SOURCE, main, skip

PROGRAMS = {"sandboxd": "sandboxd", "sandbox-region": "sandbox-region", "sandboxctl": "sandboxctl"}


def run(argv, **kw):
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, **kw)
    if done.returncode != 0:
        raise AssertionError(f"{argv}: exit {done.returncode}\n{done.stdout[-5000:]}")
    return done.stdout


class Machine:
    """This machine's files, with a layer of our own over them in which anything may be changed."""

    def __init__(self, base):
        self.dir = tempfile.mkdtemp(prefix="machine-", dir=base)
        self.root = os.path.join(self.dir, "root")
        for name in ("upper", "work", "root"):
            os.makedirs(os.path.join(self.dir, name))
        run(["mount", "-t", "overlay", "overlay", "-o",
             f"lowerdir=/,upperdir={self.dir}/upper,workdir={self.dir}/work", self.root])
        run(["mount", "-t", "proc", "proc", self.root + "/proc"])
        run(["mount", "--rbind", "/dev", self.root + "/dev"])
        run(["mount", "--rbind", "/sys", self.root + "/sys"])
        for name in ("/dev", "/sys"):
            run(["mount", "--make-rslave", self.root + name])
        run(["mount", "-t", "tmpfs", "tmpfs", self.root + "/run"])
        # As in a container: no service manager starts anything.
        self.write("/usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n", 0o755)
        self.workdir, self.user = "/", None

    def path(self, inside):
        return self.root + os.path.join("/", inside)

    def write(self, inside, text, mode=0o644):
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.path(inside))
        with open(self.path(inside), "w") as f:
            f.write(text)
        os.chmod(self.path(inside), mode)

    def sh(self, command):
        user = ["--reuid", self.user, "--regid", self.user, "--clear-groups"] if self.user else []
        # A namespace of processes, so that nothing that a step starts is left after it; and its own root
        # rather than chroot, below which the kernel lets nobody make a user namespace, as gVisor does.
        enter = 'cd "$0" && mkdir -p .old && pivot_root . .old && umount -l /.old && cd / && exec "$@"'
        return run(["unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc=" + self.path("/proc"), "sh", "-c",
                    enter, self.root, "setpriv", *user, "sh", "-c", f"cd {shlex.quote(self.workdir)} && {command}"],
                   env={**harness.clean_environment(), "DEBIAN_FRONTEND": "noninteractive", "HOME": "/root",
                        "LC_ALL": "C.UTF-8"}, timeout=1000)

    def close(self):
        with open("/proc/mounts") as f:
            mounts = [line.split()[1] for line in f if line.split()[1].startswith(self.root)]
        for mount in sorted(mounts, key=len, reverse=True):
            subprocess.run(["umount", "-l", mount], check=False)
        shutil.rmtree(self.dir, ignore_errors=True)


def dockerfile():
    """[(stage, [(instruction, rest)])] in order."""
    with open(os.path.join(SOURCE, "Dockerfile")) as f:
        text = re.sub(r"\\\n", " ", f.read())
    stages = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        word, rest = line.split(None, 1)
        if word == "FROM":
            base, _as, name = rest.split()
            assert base == "debian:12", base
            stages.append((name, []))
        else:
            stages[-1][1].append((word, rest))
    return stages


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0:
            skip("overlays and chroot need root")
        cls.base = tempfile.mkdtemp(prefix="sbx-pkg-")
        try:
            run(["mount", "-t", "tmpfs", "-o", "size=6g", "tmpfs", cls.base])
            cls.machines = {}
            Machine(cls.base).close()
        except AssertionError as e:
            cls.tearDownClass()
            skip(f"no overlay file system can be mounted here: {e}")
        for stage, steps in dockerfile():
            machine = cls.machines[stage] = Machine(cls.base)
            for word, rest in steps:
                cls.step(machine, word, rest)

    @classmethod
    def step(cls, m, word, rest):
        if word == "WORKDIR":
            m.workdir = rest
            os.makedirs(m.path(rest), exist_ok=True)
        elif word == "USER":
            m.user = rest
        elif word == "RUN":
            m.sh(rest)
        elif word == "COPY":
            *sources, target = rest.split()
            root = SOURCE
            if sources[0].startswith("--from="):
                root = cls.machines[sources.pop(0)[7:]].root
            target = os.path.join(m.workdir, target)
            os.makedirs(m.path(target) if target.endswith("/") else m.path(os.path.dirname(target)), exist_ok=True)
            for source in sources:
                cls.copy(os.path.join(root, source.lstrip("/")), m.path(target))
        elif word == "ENTRYPOINT":
            m.entrypoint = json.loads(rest)
        else:
            assert word in ("EXPOSE",), word

    @staticmethod
    def copy(source, target):
        if os.path.isdir(source):
            left_out = shutil.ignore_patterns("build*", ".git", "__pycache__") if os.path.exists(source + "/Dockerfile") else None
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, ignore=left_out)
        else:
            shutil.copy2(source, target)

    @classmethod
    def tearDownClass(cls):
        for machine in getattr(cls, "machines", {}).values():
            machine.close()
        subprocess.run(["umount", "-l", cls.base], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(cls.base, ignore_errors=True)

    def test_three_packages_with_what_belongs_in_them(self):
        build = self.machines["build"]
        names = sorted(n for n in os.listdir(build.path("/packages")) if n.endswith(".deb"))
        self.assertEqual([n.split("_")[0] for n in names], ["sandbox-region", "sandboxctl", "sandboxd"])
        want = {
            "sandboxd": {"/usr/bin/sandboxd", "/etc/sandboxd/sandboxd.conf", "/lib/systemd/system/sandboxd.service",
                         "/lib/systemd/system/sandboxd-standalone.service", "/usr/lib/sandboxd/make-rootfs"},
            "sandbox-region": {"/usr/bin/sandbox-region", "/usr/lib/sandboxd/sandbox-agent",
                               "/usr/lib/sandboxd/libfusemod_sbxnames.so", "/etc/sandboxd/region.conf",
                               "/lib/systemd/system/sandbox-region.service", "/lib/systemd/system/sandboxd.slice"},
            "sandboxctl": {"/usr/bin/sandboxctl", "/usr/share/man/man1/sandboxctl.1",
                           "/usr/share/bash-completion/completions/sandboxctl",
                           "/usr/share/zsh/vendor-completions/_sandboxctl"},
        }
        for name in names:
            package = name.split("_")[0]
            listed = build.sh(f"dpkg-deb -c /packages/{name}")
            files = {line.split()[5][1:].replace("/usr/lib/systemd", "/lib/systemd") for line in listed.splitlines()}
            self.assertLessEqual(want[package], files, listed)
            self.assertFalse([line for line in listed.splitlines() if not line.split()[1].startswith("root/root")])
            control = build.sh(f"dpkg-deb -f /packages/{name}")
            self.assertRegex(control, r"(?m)^Depends: .*libc6")

    def test_images_have_their_program_and_user(self):
        self.assertEqual(self.machines["server"].user, "sandboxd")
        self.assertIsNone(self.machines["region"].user)
        for stage, machine in self.machines.items():
            if stage != "build":
                self.assertRegex(machine.sh(machine.entrypoint[0] + " --version || true"), r"\d+\.\d+\.\d+")
        server = self.machines["server"]
        self.assertEqual(server.sh("id -un").strip(), "sandboxd")
        server.sh("sandboxd --config /etc/sandboxd/sandboxd.conf --check-config --database-url=postgresql:///x")
        self.machines["region"].sh("sandbox-region --config /etc/sandboxd/region.conf --check-config")

    def test_units_are_right(self):
        server, region = self.machines["server"], self.machines["region"]
        for machine, units in ((server, ("sandboxd", "sandboxd-standalone")), (region, ("sandbox-region",))):
            user, machine.user = machine.user, None
            for unit in units:
                said = machine.sh(f"systemd-analyze verify --man=no {unit}.service 2>&1 || true")
                about = [line for line in said.splitlines() if "sandbox" in line and "Failed to connect" not in line]
                self.assertEqual(about, [], said)
            machine.user = user

    def run_what_is_installed(self, machine):
        """The installed programs, from an empty state to a command in a sandbox and to a clean end."""
        machine.write("/root/region.conf", "[egress]\nenabled = false\n")
        said = machine.sh("""
            /usr/lib/sandboxd/make-rootfs /root/rootfs
            export SANDBOXCTL_STATE=/var/lib/sandboxd-pkg
            sandboxd --standalone --standalone-state=$SANDBOXCTL_STATE --standalone-port=0 \\
                --standalone-rootfs=/root/rootfs --standalone-region_extra=/root/region.conf >/root/log 2>&1 &
            for i in $(seq 300); do [ -e $SANDBOXCTL_STATE/run/ready ] && break; sleep 0.2; done
            [ -e $SANDBOXCTL_STATE/run/ready ] || { cat /root/log; exit 1; }
            box=$(sandboxctl --json sandbox create --wait | sed 's/.*"sandboxId":"\\([^"]*\\)".*/\\1/')
            sandboxctl exec $box -- python3 -c 'print(6 * 7)' && sandboxctl exec $box -- uname -r
            sandboxctl sandbox drain >/dev/null
            kill $!
            wait $! && echo ended well
            rm -rf /root/rootfs""")
        self.assertEqual(said.splitlines()[-3:], ["42", "4.4.0", "ended well"], said)

    def test_z_removal_leaves_only_what_is_the_operators(self):
        machine = self.machines["region"]
        machine.sh("apt-get install -y --no-install-recommends /packages/*.deb")
        self.assertEqual(machine.sh("sandboxctl --version").split()[0], "sandboxctl")
        self.assertEqual(machine.sh("man -w sandboxctl").strip()[-13:], "/sandboxctl.1")
        self.run_what_is_installed(machine)
        machine.sh("apt-get remove -y sandboxd sandbox-region sandboxctl")
        for path in ("/usr/bin/sandboxd", "/usr/bin/sandbox-region", "/usr/bin/sandboxctl", "/usr/lib/sandboxd"):
            self.assertFalse(os.path.exists(machine.path(path)), path)
        self.assertTrue(os.path.exists(machine.path("/etc/sandboxd/sandboxd.conf")))  # a conffile stays
        machine.sh("apt-get purge -y sandboxd sandbox-region sandboxctl")
        self.assertFalse(os.path.exists(machine.path("/etc/sandboxd")))
        self.assertTrue(os.path.exists(machine.path("/var/lib/sandboxd-pkg/backend")))  # data is never the package's to remove
        self.assertEqual(machine.sh("dpkg-query -W -f '${Package} ${Status}\\n' sandboxd sandbox-region sandboxctl 2>/dev/null || true")
                         .count("installed"), 0)


if __name__ == "__main__":
    main()
