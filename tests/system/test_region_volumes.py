"""Snapshots, restores and live directories through one region gateway, on the `dir` backend."""
# ctest: timeout 300

import contextlib
import http.client
import os
import subprocess
import threading

from harness import main, wait_for
from region_rig import Failed, new_id
from volume_rig import VolumeTest


class Directory(VolumeTest):
    """The `dir` backend."""

    # case 19: the exact tree, cycle after cycle
    def test_case_19_cycles(self):
        box = self.start()
        self.shell(box, "cd /workspace && mkdir -p a/b empty && echo one > a/x && ln -s ../a/x a/b/link && "
                        "ln a/x hard && chmod 640 a/x && touch -t 202001020304 a/b")
        generation = 2
        for cycle in range(5):
            before = self.shell(box, self.TREE)
            taken = self.snapshot(box, generation)
            self.assertGreater(taken["archivedBytes"], 0)
            self.assertEqual(self.get(box)["phase"], "stopped")
            self.assert_gone(box)
            self.refused("SANDBOX_SUSPENDED", 409, self.execute, box, ["true"], generation=generation)
            self.start(box=box, generation=generation + 1, restore=True)
            self.assertEqual(self.shell(box, self.TREE), before, f"cycle {cycle}")
            self.assertEqual(self.get(box)["persistence"]["restoreFailed"], False)
            self.shell(box, f"cd /workspace && echo {cycle} >> a/x && rm -rf empty && mkdir -p n{cycle} && touch n{cycle}/f && "
                            f"rm -rf n{cycle - 2}")
            generation += 2
        self.assertEqual(self.archives(box), ["10.tar.zst", "8.tar.zst", "latest"])  # the last two are kept
        self.delete(box, generation)

    # case 20: what was written and not synced is in it
    def test_case_20_unsynced_writes(self):
        box = self.start()
        total = self.shell(box, "cd /workspace && head -c 50000000 /dev/urandom > big && md5sum big")
        self.snapshot(box)
        self.start(box=box, generation=3, restore=True)
        self.assertEqual(self.shell(box, "cd /workspace && md5sum big"), total)
        self.delete(box, 4)

    def test_excludes_and_persistence_fields(self):
        box = self.start()
        self.shell(box, "cd /workspace && mkdir node_modules src && touch node_modules/x src/a.log src/keep.log src/b")
        self.snapshot(box, exclude=["node_modules/", "*.log", "!keep.log"])
        self.start(box=box, generation=3, restore=True)
        self.assertEqual(self.shell(box, "cd /workspace && find . | sort"), ".\n./src\n./src/b\n./src/keep.log\n")
        seen = self.get(box)["persistence"]
        self.assertIn("lastSnapshotAt", seen)
        self.assertNotIn("lastSnapshotError", seen)
        self.restart()
        self.assertEqual(self.get(box)["persistence"], seen)
        self.delete(box, 4)

    # case 25: the cap counts uncompressed bytes, and a refused archive leaves nothing
    def test_case_25_cap(self):
        box = self.start()
        self.shell(box, "cd /workspace && head -c 8000000 /dev/zero > zeros && echo s > small; sleep 1000 &")
        error = self.refused("SNAPSHOT_FAILED", 502, self.snapshot, box, maxMb=1)
        self.assertIn("cap", error.json["error"])
        self.assertEqual(error.json["retryable"], True)
        self.assertEqual(self.archives(box), [])
        self.assertEqual(self.get(box)["phase"], "running")
        self.assertIn("cap", self.get(box)["persistence"]["lastSnapshotError"])
        self.assertEqual(self.shell(box, "cat /workspace/small"), "s\n")  # thawed
        for bad in (0, -1, "1", None):
            self.refused("INVALID_REQUEST", 400, self.snapshot, box, maxMb=bad)
        self.snapshot(box, generation=3)
        self.delete(box, 4)

    # case 22: a storage in trouble costs nothing but the attempt
    def test_case_22_storage_in_trouble(self):
        box = self.start()
        self.shell(box, "echo first > /workspace/f")
        self.snapshot(box)
        self.start(box=box, generation=3, restore=True)
        self.shell(box, "echo second > /workspace/f")
        folder = os.path.join(self.path, self.account, f"sbvol-{box}", "snapshots")
        os.rename(folder, folder + ".away")
        with open(folder, "w"):  # no folder can be made here now
            pass
        error = self.refused("SNAPSHOT_FAILED", 502, self.snapshot, box, generation=4)
        self.assertEqual(error.json["retryable"], True)
        self.assertNotIn(self.path, error.text())
        self.assertEqual(self.shell(box, "cat /workspace/f"), "second\n")
        os.unlink(folder)
        os.rename(folder + ".away", folder)
        self.assertEqual(self.archives(box), ["2.tar.zst", "latest"])
        self.snapshot(box, generation=4)
        self.start(box=box, generation=5, restore=True)
        self.assertEqual(self.shell(box, "cat /workspace/f"), "second\n")
        self.delete(box, 6)

    def test_a_gateway_killed_in_the_middle_leaves_no_part_for_long(self):
        box = self.start()
        self.shell(box, "dd if=/dev/urandom of=/workspace/r bs=1M count=60 2>/dev/null")

        def lost():
            with contextlib.suppress(OSError, http.client.HTTPException, AssertionError):
                self.snapshot(box)
        thread = threading.Thread(target=lost)
        thread.start()
        wait_for("the archive is being written", lambda: [n for n in self.archives(box) if n.endswith(".part")], 20,
                 0.001)
        self.region.kill9()
        thread.join()
        self.region.start()
        self.assertTrue(self.archives(box)[0].endswith(".part"))
        self.shell(box, "true")  # waits for the agent
        self.snapshot(box)
        self.assertEqual(self.archives(box), ["2.tar.zst", "latest"])
        self.delete(box, generation=99)

    def test_damaged_archive(self):
        box = self.start()
        self.shell(box, "echo kept > /workspace/f")
        self.snapshot(box)
        folder = os.path.join(self.path, self.account, f"sbvol-{box}", "snapshots", box)
        with open(os.path.join(folder, "2.tar.zst"), "r+b") as f:
            f.seek(20)
            f.write(b"\0\0\0\0")
        self.start(box=box, generation=3, restore=True)
        seen = self.get(box)
        self.assertEqual((seen["phase"], seen["persistence"]["restoreFailed"]), ("running", True))
        self.assertTrue(seen["persistence"]["lastSnapshotError"])
        self.assertEqual(self.shell(box, "ls -A /workspace"), "")
        self.refused("SNAPSHOT_WOULD_OVERWRITE", 409, self.snapshot, box, generation=4)
        self.assertEqual(self.archives(box), ["2.tar.zst", "latest"])
        self.snapshot(box, generation=4, force=True)
        self.delete(box, 5)

    def test_damaged_archive_leaves_the_volume_alone(self):
        box = self.start("BOTH")
        self.shell(box, "echo w > /workspace/w && mkdir /workspace/persist/d && echo p > /workspace/persist/d/p")
        self.snapshot(box)
        folder = os.path.join(self.path, self.account, f"sbvol-{box}")
        with open(os.path.join(folder, "snapshots", box, "2.tar.zst"), "r+b") as f:
            f.truncate(30)
        self.start("BOTH", box=box, generation=3, restore=True)
        self.assertEqual(self.get(box)["persistence"]["restoreFailed"], True)
        self.assertEqual(self.shell(box, "cd /workspace && find . -type f && cat persist/d/p"), "./persist/d/p\np\n")
        self.delete(box, 4)

    # case 31's pause part: an execution under way when the sandbox is suspended
    def test_case_31_paused_under_way(self):
        box, out = self.start(), []

        def work():
            try:
                out.append(self.execute(box, ["sleep", "60"], timeoutSeconds=100))
            except Failed as e:
                out.append(e)

        thread = threading.Thread(target=work)
        thread.start()
        wait_for("it runs", lambda: self.get(box)["executions"], 5)
        self.snapshot(box)
        thread.join(20)
        self.assertEqual((out[0].status, out[0].code), (409, "SANDBOX_SUSPENDED"))
        self.delete(box, 3)

    def test_frozen_while_it_is_packed(self):
        box = self.start(command=["sh", "-c", "cd /workspace; while :; do date +%s > t; mv t tick; done"])
        self.execute(box, ["sh", "-c", "cd /workspace; head -c 60000000 /dev/urandom > big"])
        wait_for("it ticks", lambda: self.shell(box, "cat /workspace/tick 2>/dev/null || :"), 10)
        self.snapshot(box)
        self.start(box=box, generation=3, restore=True)
        self.assertTrue(self.shell(box, "cat /workspace/tick").strip().isdigit())
        self.delete(box, 4)

    def test_directory_mode(self):
        made = self.must("PUT", "/v1/volumes/shared-one",
                         {"operationId": new_id(), "accountId": self.account, "backend": self.backend})
        self.assertEqual(made["volumeName"], "shared-one")
        one = self.start("DIRECTORY", "shared-one")
        two = self.start("BOTH", "shared-one")
        self.shell(one, "cd /workspace/persist && echo hi > f && mkdir d && echo x > d/y")
        data = os.path.join(self.path, self.account, "shared-one", "data")
        with open(os.path.join(data, "f")) as f:
            self.assertEqual(f.read(), "hi\n")  # what is closed is on the backend
        self.assertEqual(self.shell(two, "cat /workspace/persist/f /workspace/persist/d/y"), "hi\nx\n")
        self.shell(two, "echo two > /workspace/own")
        self.refused("VOLUME_IN_USE", 409, self.must, "DELETE", "/v1/volumes/shared-one",
                     {"operationId": new_id(), "accountId": self.account, "backend": self.backend})
        self.snapshot(two)
        self.start("BOTH", "shared-one", box=two, generation=3, restore=True)
        self.assertEqual(self.shell(two, "cd /workspace && cat own persist/f"), "two\nhi\n")
        self.delete(one)
        self.delete(two, 4)
        self.assertTrue(os.path.exists(os.path.join(data, "d", "y")))
        self.must("DELETE", "/v1/volumes/shared-one",
                  {"operationId": new_id(), "accountId": self.account, "backend": self.backend})
        self.assertFalse(os.path.exists(os.path.join(self.path, self.account, "shared-one")))

    def test_a_full_backend_is_told_to_the_writer(self):
        small = os.path.join(self.stack.dir, "small")
        os.makedirs(small)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", small], check=True)
        before, self.backend = self.backend, {"kind": "dir", "path": small}
        try:
            box = self.start("DIRECTORY", "full")
            self.shell(box, "echo kept > /workspace/persist/kept")
            got = self.execute(box, ["sh", "-c", "dd if=/dev/zero of=/workspace/persist/big bs=64k count=256"], generation=9)
            self.assertNotEqual(got["exitCode"], 0, got)
            self.assertIn("No space left", got["stderr"])
            self.assertEqual(self.shell(box, "cd /workspace/persist && rm big && echo more >> kept && cat kept"), "kept\nmore\n")
            self.delete(box, 10)
        finally:
            self.backend = before
            subprocess.run(["umount", "-l", small], check=True)

    def test_malformed(self):
        for change in ({"kind": "ftp"}, {"kind": "dir"}, {"kind": "dir", "path": "x"}, {"kind": "dir", "path": "/a/../b"},
                       {"kind": "s3", "endpoint": "x", "bucket": "b", "accessKey": "a", "secretKey": "s"}):
            answer = self.call("PUT", "/v1/volumes/v", {"operationId": new_id(), "accountId": self.account, "backend": change})
            self.assertEqual(answer.status, 400, answer)
        for name in ("UP", "1a", "a" * 64, "a_b"):
            answer = self.call("PUT", f"/v1/volumes/{name}",
                               {"operationId": new_id(), "accountId": self.account, "backend": self.backend})
            self.assertEqual(answer.status, 400, answer)


if __name__ == "__main__":
    main()
