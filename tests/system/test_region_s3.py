"""Snapshots, restores and live directories on a real S3 server."""
# ctest: timeout 400

import contextlib
import os
import signal
import socket
import threading
import time

from harness import Missing, in_parallel, main, skip, wait_for
from region_rig import new_id
from s3_server import ROTATED, S3Server
from volume_rig import VolumeTest


class S3(VolumeTest):
    """The same on a real S3 server."""

    @classmethod
    def make_backend(cls):
        folder = os.path.join(cls.stack.dir, "s3")
        os.makedirs(folder)
        cls.s3 = S3Server(folder, size_mb=200)
        cls.addClassCleanup(cls.s3.stop)
        try:
            cls.s3.start()
        except Missing as e:
            skip(str(e))
        cls.backend = cls.s3.backend("bucket", "some/prefix")

    @classmethod
    def tearDownClass(cls):
        cls.s3.stop()
        super().tearDownClass()

    def archives(self, box):
        prefix = f"some/prefix/{self.account}/sbvol-{box}/snapshots/{box}/"
        return [k[len(prefix):] for k in self.s3.keys("bucket") if k.startswith(prefix)]

    def test_cycles_and_pruning(self):
        box = self.start()
        self.shell(box, "cd /workspace && head -c 20000000 /dev/urandom > big && mkdir -p a/b && ln -s big a/l")
        generation = 2
        for cycle in range(3):
            before = self.shell(box, "cd /workspace && find . | sort && md5sum big")
            taken = self.snapshot(box, generation)  # more than two parts
            self.assertGreater(taken["archivedBytes"], 20000000)
            self.start(box=box, generation=generation + 1, restore=True)
            self.assertEqual(self.shell(box, "cd /workspace && find . | sort && md5sum big"), before)
            self.shell(box, f"touch /workspace/c{cycle}")
            generation += 2
        self.assertEqual(self.archives(box), ["4.tar.zst", "6.tar.zst", "latest"])
        self.assertEqual(self.s3.request("GET", "/bucket", "uploads=")[1].count(b"<Upload>"), 0)
        self.delete(box, generation)
        self.must("DELETE", f"/v1/volumes/sbvol-{box}",
                  {"operationId": new_id(), "accountId": self.account, "backend": self.backend})
        self.assertEqual(self.archives(box), [])

    # cases 22 and 25 on S3
    def test_trouble_leaves_nothing_behind(self):
        box = self.start()
        self.shell(box, "cd /workspace && head -c 30000000 /dev/urandom > big; echo s > small")
        self.refused("SNAPSHOT_FAILED", 502, self.snapshot, box, maxMb=20)
        self.assertEqual(self.archives(box), [])
        self.assertEqual(self.s3.request("GET", "/bucket", "uploads=")[1].count(b"<Upload>"), 0)
        wrong = {**self.backend, "secretKey": "wrong"}
        error = self.refused("SNAPSHOT_FAILED", 502, self.snapshot, box, generation=3, backend=wrong)
        self.assertNotIn("wrong", error.text())
        self.assertEqual(self.shell(box, "cat /workspace/small"), "s\n")
        self.snapshot(box, generation=4)
        self.assertEqual(self.archives(box), ["4.tar.zst", "latest"])
        self.s3.put("bucket", f"some/prefix/{self.account}/sbvol-{box}/snapshots/{box}/4.tar.zst", b"x" * 1000)
        self.start(box=box, generation=5, restore=True)
        self.assertEqual(self.get(box)["persistence"]["restoreFailed"], True)
        self.delete(box, 6)

    def test_directory_mode(self):
        volume = "shared-s3"
        key = self.volume(volume)
        one = self.start("DIRECTORY", volume)
        two = self.start("DIRECTORY", volume)
        self.shell(one, "cd /workspace/persist && echo hi > f && mkdir d && echo x > d/y")
        self.assertEqual(self.s3.get("bucket", key + "f"), b"hi\n")  # closed, so it is on the backend
        self.assertEqual(self.s3.get("bucket", key + "d/y"), b"x\n")
        self.assertEqual(self.shell(two, "cat /workspace/persist/f /workspace/persist/d/y"), "hi\nx\n")
        self.delete(one)
        self.restart()
        self.assertEqual(self.shell(two, "cat /workspace/persist/f && echo more >> /workspace/persist/f"), "hi\n")
        self.assertEqual(self.s3.get("bucket", key + "f"), b"hi\nmore\n")
        self.s3.pause()
        try:  # an unreachable backend gives the writer an error, not silence
            answer = self.execute(two, ["sh", "-c", "echo lost > /workspace/persist/g"], generation=9, timeoutSeconds=120)
        finally:
            self.s3.pause(False)
        self.assertNotEqual(answer["exitCode"], 0, answer)
        self.delete(two)
        with open("/proc/mounts") as f:
            self.assertNotIn(f"{self.account}.{volume}", f.read())

    def volume(self, name):
        self.lend(name)
        return f"some/prefix/{self.account}/{name}/data/"

    def below(self, key):
        return [k[len(key):] for k in self.s3.keys("bucket") if k.startswith(key)]

    def test_what_is_deleted_while_it_is_open(self):
        """gVisor has every file open that it knows, so this is every file."""
        key = self.volume("deleted")
        one, two = self.start("DIRECTORY", "deleted"), self.start("DIRECTORY", "deleted")
        self.assertEqual(self.shell(one, "cd /workspace/persist && mkdir -p d/e && echo 1 > d/f && echo 2 > d/e/g && "
                                         "exec 8<d/f 9<d/e/g && rm d/f && cat <&8 && echo new > n && mv n d/e/g && cat <&9 && cat d/e/g && "
                                         "ls -A . d"), "1\n2\nnew\n.:\nd\n\nd:\ne\n")
        self.shell(two, "cd /workspace/persist && cat d/e/g && rm -r d && ! ls d 2>/dev/null && [ -z \"$(ls -A)\" ]")
        self.assertEqual(self.shell(one, "cd /workspace/persist && ls -A && for i in 1 2 3; do mkdir d && echo $i > d/x && rm -r d; done"),
                         "")
        refused = self.execute(two, ["touch", "/workspace/persist/.sbx-deleted-x"], generation=99)
        self.assertIn("not permitted", refused["stderr"])
        self.delete(one)
        self.delete(two)
        wait_for("s3fs has ended", lambda: not self.s3fs("deleted"))
        self.assertEqual(self.below(key), [""])  # and it left nothing

    def test_a_name_that_is_too_long_for_a_key(self):
        self.volume("long")
        box = self.start("DIRECTORY", "long")
        for char, size, depth in (("x", 200, 4), ("\\001", 255, 1)):
            name = f"n=$(printf '%0{size}d' | tr 0 '{char}'); "
            self.shell(box, f"cd /workspace/persist; {name} for i in $(seq {depth}); do mkdir $n && cd $n || exit; done; echo x > y; cat y")
            got = self.execute(box, ["sh", "-c", f"cd /workspace/persist; {name} cd /workspace/persist/{'/'.join(['$n'] * depth)}; touch $n"],
                               generation=99)
            self.assertIn("name too long", got["stderr"].lower())
        self.delete(box)

    def test_a_full_backend_is_told_to_the_writer(self):
        key = self.volume("full")
        box = self.start("DIRECTORY", "full")
        self.shell(box, "cd /workspace/persist && echo kept > kept")
        with open(os.path.join(self.s3.devices, "fill"), "wb") as f, contextlib.suppress(OSError):
            while True:
                f.write(bytes(1 << 20))
        try:
            for script in ("echo lost > new", "head -c 10000000 /dev/zero > big", "head -c 100000 /dev/zero >> kept"):
                got = self.execute(box, ["sh", "-c", f"cd /workspace/persist && {script}"], generation=99, timeoutSeconds=60)
                self.assertNotEqual(got["exitCode"], 0, got)
                self.assertIn("error", got["stderr"])
            with open(os.path.join(self.s3.devices, "fill"), "r+b") as f:  # room for its beginning
                f.truncate(os.path.getsize(f.name) - (2 << 20))
            got = self.execute(box, ["sh", "-c", "cd /workspace/persist && head -c 12000000 /dev/zero > bigger"],
                               generation=99, timeoutSeconds=60)
            self.assertNotEqual(got["exitCode"], 0, got)
        finally:
            os.unlink(os.path.join(self.s3.devices, "fill"))
        self.shell(box, "cd /workspace/persist && rm -f new big bigger && cat kept && echo more > more")
        self.assertEqual(self.s3.get("bucket", key + "kept")[:5], b"kept\n")
        self.assertEqual(self.s3.get("bucket", key + "more"), b"more\n")
        self.delete(box)

    def s3fs(self, volume):
        """The pids of the processes that serve the volume's mounts."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline") as f:
                words = f.read().split("\0")
                if words[0] == "s3fs" and any(f"{self.account}.{volume}" in w for w in words):
                    found.append(int(pid))
        return found

    def processes_of(self, box):
        """The runtime's processes of a sandbox: children of its shim."""
        shim = self.shim_pid(box)
        with open(f"/proc/{shim}/task/{shim}/children") as f:
            return [int(pid) for pid in f.read().split()]

    def killed(self, volume):
        for pid in self.s3fs(volume):
            os.kill(pid, signal.SIGKILL)
        wait_for("s3fs is gone", lambda: not self.s3fs(volume))

    def silent(self):
        """A storage that takes connections and answers nothing, until the function that is returned is called."""
        listener, taken = socket.create_server(("127.0.0.1", 0)), []

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    taken.append(listener.accept()[0])

        def end():
            listener.shutdown(socket.SHUT_RDWR)
            for s in [listener, *taken]:
                s.close()

        threading.Thread(target=serve, daemon=True).start()
        return {**self.backend, "endpoint": f"http://127.0.0.1:{listener.getsockname()[1]}"}, end

    def quick_for_others(self):
        began = time.monotonic()
        other = self.start("DIRECTORY", "other")
        self.shell(other, "echo x > /workspace/persist/f")
        self.delete(other)
        self.assertLess(time.monotonic() - began, 10)

    def quick_beside(self, hung, end):
        """Others are served while the thread hangs; end lets it go."""
        hung.start()
        try:
            time.sleep(0.5)
            self.quick_for_others()
            self.assertTrue(hung.is_alive())
        finally:
            end()
            hung.join()

    def test_a_storage_that_hangs_holds_up_its_own_volumes_only(self):
        backend, end = self.silent()
        box = new_id()
        body = self.deploy_body(accountId=self.account, persistence={**self.persistence("DIRECTORY", "hung"), "backend": backend})
        answers = []
        hung = threading.Thread(target=lambda: answers.append(self.call("PUT", f"/v1/sandboxes/{box}", body, timeout=300)))
        self.quick_beside(hung, end)
        self.assertEqual(answers[0].status, 503, answers[0])

    def test_an_s3fs_that_hangs_holds_up_its_own_volume_only(self):
        box, second = self.start("DIRECTORY", "stuck"), new_id()
        pids = self.s3fs("stuck")
        time.sleep(1.5)  # what the kernel knows of it is old then
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        hung = threading.Thread(target=lambda: self.start("DIRECTORY", "stuck", box=second))
        self.quick_beside(hung, lambda: [os.kill(pid, signal.SIGCONT) for pid in pids])
        self.delete(box)
        self.delete(second)

    def lend(self, volume, backend=None):
        """As the control plane does it."""
        return self.must("PUT", f"/v1/volumes/{volume}", {"operationId": new_id(), "accountId": self.account,
                                                          "backend": backend or self.backend})

    def test_mends_that_hang_hold_up_nobody_else(self):
        names = [f"dead{i}" for i in range(10)]  # more than the gateway has threads for calls
        boxes = [self.start("DIRECTORY", name) for name in names]
        mine, self.account = self.account, new_id()
        theirs, boxes = self.account, [*boxes, self.start("DIRECTORY", "good")]
        self.region.kill9()
        self.killed("good")
        self.account = mine
        for name in names:
            self.killed(name)
        self.region.start()
        wait_for("all are named", lambda: len(self.must("GET", "/v1/volumes")["volumes"]) == len(boxes), 10)
        backend, end = self.silent()
        try:
            began = time.monotonic()
            in_parallel(len(names), lambda i: self.lend(names[i], backend))
            self.must("GET", "/v1/health")
            self.assertLess(time.monotonic() - began, 5)
            time.sleep(1)  # they are at it
            self.account = theirs
            self.lend("good")
            wait_for("it is mounted", lambda: self.s3fs("good"), 10)
            self.account = mine
            began = time.monotonic()
            self.delete(boxes[0])
            self.delete(boxes[1])
            self.assertLess(time.monotonic() - began, 15)
            began = time.monotonic()
            self.region.stop()
            self.assertLess(time.monotonic() - began, 15)
        finally:
            end()
        self.region.start()
        for box in boxes[2:]:
            self.delete(box)

    def test_a_mount_that_dies_while_its_storage_is_away_is_mended_later(self):
        box = self.start("DIRECTORY", "away")
        self.shell(box, "echo x > /workspace/persist/f")
        with socket.socket() as nobody:  # bound, not listening: connections are refused
            nobody.bind(("127.0.0.1", 0))
            failed = self.region.log().count("cannot be mounted again yet")
            self.lend("away", {**self.backend, "endpoint": f"http://127.0.0.1:{nobody.getsockname()[1]}"})
            self.killed("away")
            wait_for("it cannot be mounted", lambda: self.region.log().count("cannot be mounted again yet") > failed, 20)
        wait_for("it is named", lambda: self.must("GET", "/v1/volumes")["volumes"] == [
            {"accountId": self.account, "volumeName": "away"}], 15)
        self.lend("away")
        wait_for("it is mounted", lambda: self.s3fs("away"), 10)
        second = self.start("DIRECTORY", "away")
        self.assertEqual(self.shell(second, "cat /workspace/persist/f"), "x\n")
        self.delete(box)
        self.delete(second)

    def test_a_killed_s3fs(self):
        """Its sandboxes get errors, and each call that comes with credentials mends what it needs: a new sandbox of
        the volume at once, the old ones by pause and resume; with the region host killed, too."""
        volume = "killed"
        self.volume(volume)
        both = self.start("BOTH", volume)
        directory = self.start("DIRECTORY", volume)
        for n in (1, 2):
            self.shell(both, f"cd /workspace && echo own{n} > own && echo {n} > persist/f{n}")
            self.killed(volume)
            if n == 2:  # and the gateway, which has no credentials of anything then
                self.restart()
            for box in (both, directory):
                began = time.monotonic()
                got = self.execute(box, ["sh", "-c", "echo lost > /workspace/persist/lost"], generation=99)
                self.assertNotEqual(got["exitCode"], 0, got)
                self.assertLess(time.monotonic() - began, 10)
            other = self.start("DIRECTORY", volume)
            self.assertEqual(self.shell(other, "cat /workspace/persist/f1"), "1\n")
            self.shell(other, f"echo {n} > /workspace/persist/other")
            self.snapshot(both, 2 * n)
            self.start("BOTH", volume, box=both, generation=2 * n + 1, restore=True)
            self.assertEqual(self.shell(both, f"cd /workspace && cat own persist/f{n} persist/other"), f"own{n}\n{n}\n{n}\n")
            self.must("POST", f"/v1/sandboxes/{directory}/stop", {"operationId": new_id(), "generation": 2 * n})
            self.start("DIRECTORY", volume, box=directory, generation=2 * n + 1)
            self.shell(directory, "echo again > /workspace/persist/again")
            self.assertEqual(self.s3.get("bucket", f"some/prefix/{self.account}/{volume}/data/again"), b"again\n")
            self.delete(other)
        self.delete(both, 9)
        self.delete(directory, 9)
        wait_for("s3fs has ended", lambda: not self.s3fs(volume))  # after its unmount

    def test_a_killed_sandbox_leaves_no_mount(self):
        """However it dies: its own processes, its shim, or both at once."""
        key = self.volume("dies")
        for n, victims in enumerate((lambda b: self.processes_of(b), lambda b: [self.shim_pid(b)],
                                     lambda b: [self.shim_pid(b), *self.processes_of(b)])):
            box = self.start("DIRECTORY", "dies")
            self.shell(box, f"echo {n} > /workspace/persist/f{n}")
            for pid in victims(box):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.delete(box, 3)
            wait_for("s3fs has ended", lambda: not self.s3fs("dies"))
            with open("/proc/mounts") as f:
                self.assertNotIn(f"{self.account}.dies", f.read())
            self.assertEqual(self.s3.get("bucket", f"{key}f{n}"), b"%d\n" % n)

    def test_a_rotated_key_is_taken_by_who_comes_after(self):
        volume = "rotated"
        self.volume(volume)
        old = self.start("DIRECTORY", volume)
        self.shell(old, "echo old > /workspace/persist/old")
        first, self.backend = self.backend, {**self.backend, **ROTATED}
        try:
            new = self.start("BOTH", volume)
            keys = set()
            for pid in self.s3fs(volume):
                with open(f"/proc/{pid}/environ", encoding="utf-8") as f:
                    keys.update(word.partition("=")[2] for word in f.read().split("\0") if "ACCESSKEYID" in word)
            self.assertEqual(keys, {first["accessKey"], ROTATED["accessKey"]})
            self.assertEqual(self.shell(new, "cat /workspace/persist/old; echo new > /workspace/persist/new"), "old\n")
            self.assertEqual(self.shell(old, "cat /workspace/persist/new"), "new\n")  # its key still works
            self.snapshot(new)
            self.start("BOTH", volume, box=new, generation=3, restore=True)
            self.must("POST", f"/v1/sandboxes/{old}/stop", {"operationId": new_id(), "generation": 2})
            self.start("DIRECTORY", volume, box=old, generation=3)  # and now it has the new one, too
            self.assertEqual(self.shell(old, "cat /workspace/persist/new"), "new\n")
            self.delete(old, 4)
            self.delete(new, 4)
            wait_for("s3fs has ended", lambda: not self.s3fs(volume))  # after its unmount
        finally:
            self.backend = first

    def test_names_with_every_kind_of_character(self):
        volume = "v-" + "a1-" * 10
        self.must("PUT", f"/v1/volumes/{volume}",
                  {"operationId": new_id(), "accountId": self.account, "backend": {**self.backend, "prefix": "p (1)+&=é/x"}})


if __name__ == "__main__":
    main()
