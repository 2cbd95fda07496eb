"""Snapshots, restores and live directories on a real S3 server."""
# ctest: timeout 400

import os

from harness import Missing, main, skip
from region_rig import new_id
from s3_server import S3Server
from volume_rig import VolumeTest


class S3(VolumeTest):
    """The same on a real S3 server."""

    @classmethod
    def make_backend(cls):
        folder = os.path.join(cls.stack.dir, "s3")
        os.makedirs(folder)
        cls.s3 = S3Server(folder)
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
        self.must("PUT", f"/v1/volumes/{volume}",
                  {"operationId": new_id(), "accountId": self.account, "backend": self.backend})
        one = self.start("DIRECTORY", volume)
        two = self.start("DIRECTORY", volume)
        key = f"some/prefix/{self.account}/{volume}/data/"
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

    def test_names_with_every_kind_of_character(self):
        volume = "v-" + "a1-" * 10
        self.must("PUT", f"/v1/volumes/{volume}",
                  {"operationId": new_id(), "accountId": self.account, "backend": {**self.backend, "prefix": "p (1)+&=é/x"}})


if __name__ == "__main__":
    main()
