"""One region gateway alone, spoken to as the control plane does (include/sbx/gateway.h).

    class Life(RegionTest):
        region_options = {"agent.ready_timeout_s": 5}

        def test_it_runs(self):
            box = self.deploy()
            self.assertEqual(self.execute(box, ["true"])["exitCode"], 0)
            self.delete(box)

After each class nothing of it may be left (harness.Stack looks).
"""

import os
import random
import signal
import time

from harness import Stack, SystemTest, busybox_rootfs, tar_of, wait_for

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
UNKNOWN_IMAGE = "none@sha256:" + "0" * 64


def new_id():
    value = (int(time.time() * 1000) << 80 | random.getrandbits(80)) & ((1 << 128) - 1)
    return "".join(ALPHABET[value >> 5 * i & 31] for i in reversed(range(26)))


class Failed(AssertionError):
    """An answer that is not 200."""

    def __init__(self, answer):
        super().__init__(repr(answer))
        self.answer = answer
        self.status = answer.status
        self.code = answer.code


class RegionStack(Stack):
    def start(self):
        for region in self.regions:
            region.start()
        return self


class RegionTest(SystemTest):
    driver = "runsc"
    region_options = {}

    @classmethod
    def setUpClass(cls):
        cls.stack_options = {"planes": 0, "driver": cls.driver, "region": cls.region_options}
        import harness

        original = harness.Stack
        harness.Stack = RegionStack
        try:
            super().setUpClass()
        finally:
            harness.Stack = original
        cls.region = cls.stack.regions[0]
        cls.reference = cls.make_image() if cls.driver == "runsc" else UNKNOWN_IMAGE

    @classmethod
    def tearDownClass(cls):
        if cls.region.running():
            for box in cls.call("GET", "/v1/sandboxes?limit=500").json["sandboxes"]:
                cls.call("DELETE", f"/v1/sandboxes/{box['sandboxId']}",
                         {"operationId": new_id(), "generation": 1 << 40})
        super().tearDownClass()

    @classmethod
    def make_image(cls, extra=None, name="busybox"):
        """extra(rootfs) may add to the folder before it is imported."""
        rootfs = os.path.join(cls.stack.dir, "rootfs-" + name)
        busybox_rootfs(rootfs)
        if extra:
            extra(rootfs)
        answer = cls.call("POST", f"/v1/images?name={name}&kind=rootfs", tar_of(rootfs),
                          headers={"Content-Type": "application/x-tar"})
        if answer.status != 200:
            raise Failed(answer)
        return answer.json["reference"]

    @classmethod
    def call(cls, method, path, body=None, **kw):
        return cls.region.client().request(method, path, body, **kw)

    @classmethod
    def must(cls, method, path, body=None, **kw):
        answer = cls.call(method, path, body, **kw)
        if answer.status != 200:
            raise Failed(answer)
        return answer.json

    @classmethod
    def deploy_body(cls, **fields):
        body = {"operationId": new_id(), "generation": 1, "accountId": new_id(), "image": cls.reference,
                "command": ["sleep", "1000000"],
                "resources": {"cpuMillis": 1000, "memoryMb": 256, "diskMb": 128}}
        body.update(fields)
        return {k: v for k, v in body.items() if v is not None}

    @classmethod
    def deploy(cls, box=None, **fields):
        box = box or new_id()
        cls.must("PUT", f"/v1/sandboxes/{box}", cls.deploy_body(**fields), timeout=300)
        return box

    @classmethod
    def execute(cls, box, command, **fields):
        body = {"executionId": new_id(), "generation": 1, "command": command, "timeoutSeconds": 20,
                "outputMax": 4 << 20}
        body.update(fields)
        return cls.must("POST", f"/v1/sandboxes/{box}/execute", body, timeout=940)

    @classmethod
    def delete(cls, box, generation=2, **fields):
        return cls.must("DELETE", f"/v1/sandboxes/{box}",
                        {"operationId": new_id(), "generation": generation, **fields})

    @classmethod
    def get(cls, box):
        answer = cls.call("GET", f"/v1/sandboxes/{box}")
        return answer.json if answer.status == 200 else None

    def refused(self, code, status, fn, *args, **kw):
        with self.assertRaises(Failed) as caught:
            fn(*args, **kw)
        self.assertEqual((caught.exception.status, caught.exception.code), (status, code), caught.exception)
        return caught.exception.answer

    @classmethod
    def restart(cls, kill=True):
        if kill:
            cls.region.kill9()
        else:
            cls.region.stop()
        cls.region.start()

    # ---- what the host has of a sandbox

    @classmethod
    def folder(cls, box):
        return os.path.join(cls.region.dir, "x", box)

    @classmethod
    def shim_pid(cls, box):
        with open(os.path.join(cls.folder(box), "shim")) as f:
            return int(f.read().split()[0])

    @classmethod
    def traces(cls, box):
        """Everything on this host that names the sandbox: processes, mounts, cgroups, folders."""
        out = [f"process {pid}: {words}" for pid, words in cls.stack.processes() if box in words]
        with open("/proc/mounts") as f:
            out += ["mount " + line.split()[1] for line in f if box in line]
        for top, folders, _files in os.walk("/sys/fs/cgroup"):
            if box in folders:
                out.append("cgroup " + os.path.join(top, box))
        for name in ("x", "r"):
            path = os.path.join(cls.region.dir, name)
            if os.path.isdir(path):
                out += [f"file {name}/{n}" for n in os.listdir(path) if box in n]
        return out

    def assert_gone(self, box):
        self.assertEqual(self.traces(box), [])

    def kill_sandbox(self, box):
        """The runtime dies under the gateway: its processes get SIGKILL, the shim lives."""
        with open(f"/proc/{self.shim_pid(box)}/task/{self.shim_pid(box)}/children") as f:
            for pid in f.read().split():
                os.kill(int(pid), signal.SIGKILL)
        wait_for("the gateway sees it", lambda: (self.get(box) or {}).get("phase") == "failed", 10)
