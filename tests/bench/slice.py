#!/usr/bin/python3
"""The figures of the main path beside raw runsc, in alternating rounds of one run: cold create to READY,
execute, terminate, and what the control plane weighs.  Prints a Markdown table.

    SANDBOXD_BUILD=build-release tests/bench/slice.py [rounds]        (release build; as root)
"""

import contextlib
import fcntl
import http.client
import json
import os
import secrets
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "system"))
from harness import PUBLIC, Stack, busybox_rootfs  # noqa: E402

RUNSC = os.environ.get("RUNSC", "runsc")
FLAGS = ["--platform=ptrace", "--network=none", "--ignore-cgroups"]


@contextlib.contextmanager
def expedited(path="/sys/kernel/rcu_expedited", lock="/run/sandboxd-expedite.lock"):
    """As src/gateway/runsc_expedite.c does it, since gateways on this host share the switch."""
    def value(new=None):
        with open(path, "r" if new is None else "w") as f:
            return f.read().strip() if new is None else f.write(new)

    fd = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        if value() == "0":
            os.pwrite(fd, b"1", 0)
            value("1")
        yield
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.pread(fd, 1, 0):
                value("0")
                os.ftruncate(fd, 0)
    finally:
        os.close(fd)


class Raw:
    """runsc by hand, on the same kind of root."""

    def __init__(self, folder):
        self.dir, self.count = folder, 0
        self.rootfs = busybox_rootfs(os.path.join(folder, "rootfs"))

    def bundle(self, args):
        path = os.path.join(self.dir, "bundle")
        os.makedirs(path, exist_ok=True)
        with open(os.path.join(path, "config.json"), "w") as f:
            json.dump({"ociVersion": "1.0.0", "root": {"path": self.rootfs, "readonly": True},
                       "process": {"args": args, "cwd": "/", "env": ["PATH=/bin"], "user": {"uid": 0, "gid": 0}},
                       "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
                       "linux": {"namespaces": [{"type": t} for t in ("pid", "ipc", "uts", "mount", "network")]}}, f)
        return path

    def argv(self, *more):
        return [RUNSC, f"--root={self.dir}/state", *FLAGS, *more]

    def first_byte(self, hurry=False):
        """`runsc run` to the first byte that the init writes.  hurry: with the kernel's grace periods expedited,
        as the gateway has them during a start."""
        with expedited() if hurry else contextlib.nullcontext():
            return self.run()

    def run(self):
        self.count += 1
        bundle = self.bundle(["sh", "-c", "echo x; exec sleep 1000"])
        began = time.monotonic()
        p = subprocess.Popen(self.argv("run", "--bundle", bundle, f"raw-{self.count:05}"), stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        p.stdout.read(1)
        took = time.monotonic() - began
        self.last = f"raw-{self.count:05}", p
        return took

    def exec_true(self):
        began = time.monotonic()
        subprocess.run(self.argv("exec", self.last[0], "true"), check=True, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return time.monotonic() - began

    def end(self):
        subprocess.run(self.argv("kill", self.last[0], "KILL"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.last[1].wait()
        subprocess.run(self.argv("delete", "--force", self.last[0]), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


POLL = 0.003  # seconds between two looks at a sandbox that is not READY yet


class Lean:
    """What a client costs who keeps its connection: the tests' own holds each answer to the OpenAPI document
    and dials for each request, which on two cores is measured, too."""

    def __init__(self, tenant):
        self.tenant = tenant
        self.connection = http.client.HTTPConnection(tenant.plane.url.split("//")[1])
        self.connection.connect()
        self.connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, method, path, body=None):
        headers = {"Authorization": self.tenant.token}
        if body is not None:
            body = json.dumps({"accountId": self.tenant.account, **body})
            headers["Content-Type"] = "application/json"
        self.connection.request(method, PUBLIC + path, body, headers)
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status not in (200, 201):
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:300]}")
        return json.loads(text)

    def create(self):
        t = self.tenant
        return self.call("POST", "/sandbox/create", {
            "appId": t.app, "templateId": t.template, "workloadProfile": "QUAVE_INTERACTIVE_AGENT",
            "ownerKind": "AGENT_CONVERSATION", "ownerId": "conversation-1", "region": t.region,
            "idempotencyKey": secrets.token_hex(12)})["sandbox"]["sandboxId"]

    def ready(self):
        """Seconds from the call of create to the answer that says READY, and the sandbox's id."""
        began = time.monotonic()
        box = self.create()
        path = f"/sandbox?accountId={self.tenant.account}&sandboxId={box}"
        while self.call("GET", path)["sandbox"]["status"] != "READY":
            time.sleep(POLL)
        return time.monotonic() - began, box

    def execute(self, box, command):
        return self.call("POST", "/sandbox/execute", {"sandboxId": box, "command": command})

    def terminate(self, box):
        return self.call("POST", "/sandbox/terminate", {"sandboxId": box})


def timed(fn):
    began = time.monotonic()
    fn()
    return time.monotonic() - began


def rss_mb(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) / 1024


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    folder = tempfile.mkdtemp(prefix="sbx-bench-")
    raw = Raw(folder)
    stack = Stack().start()
    figures = {name: [] for name in ("create", "raw run", "hurried run", "execute", "raw exec", "terminate")}
    try:
        client = Lean(stack.tenant())
        idle = rss_mb(stack.plane.pid)
        client.ready()                                    # the first one probes caches
        for _ in range(rounds):
            figures["raw run"].append(raw.first_byte())
            figures["raw exec"].extend(raw.exec_true() for _ in range(3))
            raw.end()
            figures["hurried run"].append(raw.first_byte(hurry=True))
            raw.end()
            took, box = client.ready()
            figures["create"].append(took)
            figures["execute"].extend(timed(lambda: client.execute(box, ["true"])) for _ in range(3))
            figures["terminate"].append(timed(lambda: client.terminate(box)))
        ms = {k: statistics.median(v) * 1000 for k, v in figures.items()}
        print("| figure | median | yardstick in the same run | ratio | bound | aim |\n| --- | --- | --- | --- | --- | --- |")
        print(f"| cold create to READY over HTTP | {ms['create']:.0f} ms | `runsc run` to the first byte {ms['raw run']:.0f} ms | "
              f"{ms['create'] / ms['raw run']:.2f} | 1.5 | 1.15 |")
        print(f"| the same | | `runsc run` with the kernel hurried as well {ms['hurried run']:.0f} ms | "
              f"{ms['create'] / ms['hurried run']:.2f} | | |")
        print(f"| execute `true` over HTTP | {ms['execute']:.1f} ms | `runsc exec true` {ms['raw exec']:.1f} ms | "
              f"{ms['execute'] / ms['raw exec']:.2f} | 0.3 | 0.1 |")
        print(f"| terminate, idle | {ms['terminate']:.0f} ms | | | 300 ms | |")
        print(f"| sandboxd, idle | {idle:.0f} MB RSS | | | 50 MB | |")
    finally:
        stack.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
