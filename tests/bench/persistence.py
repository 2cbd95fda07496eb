#!/usr/bin/python3
"""Pause and resume of 100 MB in 10,000 files beside `tar --zstd` of the same tree, in the same sandbox, in alternating
rounds; and what the region host weighs while a large archive streams through it.  Prints Markdown rows.

    SANDBOXD_BUILD=build-release tests/bench/persistence.py dir|s3 [rounds]       (release build; as root)
    SANDBOXD_BUILD=build-release tests/bench/persistence.py memory [megabytes]
"""

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
    def __init__(self, kind):
        self.folder = tempfile.mkdtemp(prefix="sbx-bench-")
        self.s3 = None
        self.stack = Stack().start()
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
            self.stack.backend_dir(self.tenant)

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
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) / 1024


def memory(megabytes):
    bench = Bench("dir")
    pid = bench.stack.region.pid
    peak, over = {}, threading.Event()

    def watch():
        while not over.wait(0.05):
            peak[phase] = max(peak.get(phase, 0), rss_mb(pid))

    try:
        box = bench.tenant.ready()
        phase = "before"
        watcher = threading.Thread(target=watch)
        watcher.start()
        bench.sh(box, "head -c 33554432 /dev/urandom > /tmp/part; "  # repeated farther away than zstd looks back
                      f"for i in $(seq {megabytes // 32}); do cat /tmp/part; done > /workspace/big")
        phase = "pause"
        bench.tenant.pause(box)
        size = bench.tenant.get(box)["persistence"]["lastSnapshotBytes"]
        phase = "resume"
        bench.resume(box)
        phase = "output"
        bench.sh(box, f"head -c {megabytes << 20} /dev/zero")
        over.set()
        watcher.join()
        print(f"{size / 2**20:.0f} MB that do not pack; RSS of sandbox-region, highest: " +
              ", ".join(f"{name} {mb:.0f} MB" for name, mb in peak.items()))
    finally:
        over.set()
        bench.stop()


if __name__ == "__main__":
    what = sys.argv[1] if len(sys.argv) > 1 else "dir"
    if what == "memory":
        memory(int(sys.argv[2]) if len(sys.argv) > 2 else 3000)
    else:
        speed(what, int(sys.argv[2]) if len(sys.argv) > 2 else 3)
