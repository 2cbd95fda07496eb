#!/usr/bin/python3
"""Pause and resume of 100 MB in 10,000 files beside `tar --zstd` of the same tree, in the same sandbox, in alternating
rounds; and what the region host weighs while a large archive streams through it.  Prints Markdown rows.

    SANDBOXD_BUILD=build-release tests/bench/persistence.py dir|s3 [rounds]       (release build; as root)
    SANDBOXD_BUILD=build-release tests/bench/persistence.py memory dir|s3 [megabytes]
"""

import contextlib
import io
import os
import random
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "system"))
from harness import Stack, busybox_rootfs  # noqa: E402
from s3_server import S3Server  # noqa: E402

FILES, SIZE = 10000, 10000


def add_program(rootfs, path):
    """A program of this host with its libraries."""
    told = subprocess.run(["ldd", path], check=True, text=True, stdout=subprocess.PIPE).stdout
    for one in [path, *(word for word in told.split() if word.startswith("/"))]:
        to = rootfs + one
        os.makedirs(os.path.dirname(to), exist_ok=True)
        if os.path.lexists(to):
            os.unlink(to)
        shutil.copy(os.path.realpath(one), to)


def make_tree(path):
    """Words out of a few thousand: it packs to about a third, as sources do."""
    rng = random.Random(7)
    words = [("".join(rng.choices("abcdefghijklmnopqrstuvwxyz_", k=rng.randint(3, 11))) + " ").encode() for _ in range(4000)]
    with tarfile.open(path, "w") as tar:
        for i in range(FILES):
            data = b"".join(rng.choices(words, k=SIZE // 7))[:SIZE]
            member = tarfile.TarInfo(f"d{i // 100}/f{i}")
            member.size, member.mtime = len(data), 1600000000 + i
            tar.addfile(member, io.BytesIO(data))


def timed(fn):
    began = time.monotonic()
    fn()
    return time.monotonic() - began


class Bench:
    def __init__(self, kind, options=None):
        self.folder = tempfile.mkdtemp(prefix="sbx-bench-")
        self.s3 = self.path = None
        self.stack = Stack(sandboxd=options or {}).start()
        rootfs = os.path.join(self.folder, "rootfs")
        busybox_rootfs(rootfs)
        for program in ("tar", "zstd"):
            add_program(rootfs, shutil.which(program))
        os.makedirs(os.path.join(rootfs, "data"))
        make_tree(os.path.join(rootfs, "data/tree.tar"))
        image = self.stack.import_rootfs(rootfs, "bench")
        self.tenant = self.stack.tenant(image=image, persistenceMode="SNAPSHOT", zClouds=4, snapshotMaxMb=16384)
        if kind == "s3":
            os.makedirs(os.path.join(self.folder, "s3"))
            self.s3 = S3Server(os.path.join(self.folder, "s3"))
            self.s3.start()
            where = {("s3Region" if k == "region" else k): v for k, v in self.s3.backend("bench", "p").items()}
            self.stack.admin("POST", "/backend/create",
                             {"accountId": self.tenant.account, "region": self.tenant.region, **where})
        else:
            self.path = self.stack.backend_dir(self.tenant)

    def stop(self):
        self.stack.stop()
        if self.s3:
            self.s3.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def sh(self, box, script):
        got = self.tenant.execute(box, ["sh", "-c", script], timeoutSeconds=600)
        assert got["exitCode"] == 0, got
        return got["stdout"]

    def resume(self, box):
        self.tenant.resume(box)
        self.tenant.wait(box, "READY", timeout=600)


def speed(kind, rounds):
    bench = Bench(kind)
    took = {name: [] for name in ("tar", "untar", "pause", "resume")}
    try:
        box = bench.tenant.ready()
        bench.sh(box, "tar -xf /data/tree.tar -C /workspace")
        for _ in range(rounds):
            took["tar"].append(timed(lambda: bench.sh(box, "/usr/bin/tar --zstd -cf /tmp/x -C /workspace .")))
            took["untar"].append(timed(lambda: bench.sh(
                box, "mkdir /workspace/out && /usr/bin/tar --zstd -xf /tmp/x -C /workspace/out")))
            bench.sh(box, "rm -rf /workspace/out")
            took["pause"].append(timed(lambda: bench.tenant.pause(box)))
            took["resume"].append(timed(lambda: bench.resume(box)))
            assert bench.sh(box, "find /workspace -type f | wc -l").strip() == str(FILES)
        ms = {k: statistics.median(v) * 1000 for k, v in took.items()}
        for ours, theirs in (("pause", "tar"), ("resume", "untar")):
            print(f"| {ours}, {kind} | {ms[ours]:.0f} ms | `{'tar --zstd -c' if theirs == 'tar' else 'tar --zstd -x'}` inside: "
                  f"{ms[theirs]:.0f} ms | {ms[ours] / ms[theirs]:.2f} |")
        both = (ms["pause"] + ms["resume"]) / (ms["tar"] + ms["untar"])
        print(f"| pause and resume, {kind} | {ms['pause'] + ms['resume']:.0f} ms | both: {ms['tar'] + ms['untar']:.0f} ms | {both:.2f} |")
    finally:
        bench.stop()


def rss_mb(pid):
    """Resident now, and the most that it ever was."""
    with open(f"/proc/{pid}/status") as f:
        told = {line.split()[0]: int(line.split()[1]) / 1024 for line in f if line.startswith(("VmRSS", "VmHWM"))}
    return told.get("VmRSS:", 0), told.get("VmHWM:", 0)


def sandbox_mb(stack):
    """Of the sandbox's own processes: the kernel of gVisor with all that runs on it, agent included, and its gofer."""
    total = 0
    for pid, words in stack.processes():
        if "runsc" in words:
            with contextlib.suppress(OSError, ProcessLookupError):
                total += rss_mb(pid)[0]
    return total


def memory(kind, megabytes):
    bench = Bench(kind, {"sandboxes.disk_mb": megabytes * 5 // 4})
    pid = bench.stack.region.pid
    peak, inside, took, over = {}, {}, {}, threading.Event()

    def watch():
        turn = 0
        while not over.wait(0.02):
            peak[phase] = max(peak.get(phase, 0), rss_mb(pid)[0])
            turn += 1
            if turn % 25 == 0:  # it walks through /proc
                inside[phase] = max(inside.get(phase, 0), sandbox_mb(bench.stack))

    def run(name, fn):
        nonlocal phase
        phase = name
        took[name] = timed(fn)
        print(f"{name}: {took[name]:.0f} s, RSS up to {peak[name]:.1f} MB, VmHWM {rss_mb(pid)[1]:.1f} MB, "
              f"the sandbox's {inside.get(name, 0):.0f} MB", file=sys.stderr)

    phase = "idle"
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        box = bench.tenant.ready()
        # Random bytes, repeated farther away than zstd looks back: quick to make, and they do not pack.
        bench.sh(box, "dd if=/dev/urandom of=/tmp/part bs=1M count=32 iflag=fullblock 2>/dev/null")
        for at in range(0, megabytes, 1024):
            run("write", lambda n=min(1024, megabytes - at) // 32:
                bench.sh(box, f"for i in $(seq {n}); do dd if=/tmp/part bs=4M 2>/dev/null; done >> /workspace/big"))
        run("pause", lambda: bench.tenant.pause(box))
        size = bench.tenant.get(box)["persistence"]["lastSnapshotBytes"]
        if bench.path:
            packed = sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(bench.path) for f in files)
            assert packed > megabytes << 20, packed
        run("resume", lambda: bench.resume(box))
        assert int(bench.sh(box, "stat -c %s /workspace/big")) == megabytes << 20 <= size
        print(f"| {kind} | {megabytes} MB | " + " | ".join(
            f"{peak[name]:.1f} MB" + (f", {took[name]:.0f} s" if name in took else "") for name in ("idle", "pause", "resume")) +
            f" | {rss_mb(pid)[1]:.1f} MB | {max(inside.values()):.0f} MB |")
    finally:
        over.set()
        watcher.join()
        bench.stop()


if __name__ == "__main__":
    what = sys.argv[1] if len(sys.argv) > 1 else "dir"
    if what == "memory":
        memory(sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 2048)
    else:
        speed(what, int(sys.argv[2]) if len(sys.argv) > 2 else 3)
