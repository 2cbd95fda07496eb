"""The disk of a region's host is full: what runs goes on, deploys wait and then end FAILED with a reason, terminate
works all the same, the journal is whole after a kill, and everything goes on once there is room."""

# ctest: timeout 120

import errno
import os
import subprocess

from harness import Region, SystemTest, main, wait_for

SIZE = "160m"


class SmallDisk(Region):
    """Its state is on a file system of its own."""

    def start(self):
        os.makedirs(self.dir, exist_ok=True)
        if not os.path.ismount(self.dir):
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=0755", "tmpfs", self.dir], check=True)
        super().start()

    def stop(self, timeout=40):
        super().stop(timeout)
        subprocess.run(["umount", self.dir], check=False, stderr=subprocess.DEVNULL)

    def fill(self):
        """Takes the last byte, and what a deploy that failed gives back."""
        with open(os.path.join(self.dir, "ballast"), "ab", buffering=0) as f:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while True:
                        f.write(b"x" * size)
                except OSError as e:
                    if e.errno != errno.ENOSPC:
                        raise

    def make_room(self):
        os.remove(os.path.join(self.dir, "ballast"))

    def free(self):
        v = os.statvfs(self.dir)
        return v.f_bavail * v.f_bsize


class FullDisk(SystemTest):
    stack_options = {"region_class": SmallDisk, "sandboxd": {"sandboxes.allocating_s": 8, "sandboxes.starting_s": 8,
                                                                   "sandboxes.disk_mb": 256}}

    def tearDown(self):
        if os.path.exists(os.path.join(self.stack.region.dir, "ballast")):
            self.stack.region.make_room()

    def test_a_full_disk_stops_deploys_and_nothing_else(self):
        region = self.stack.region
        t = self.stack.tenant(quota=20)
        lives, ends = t.ready(), t.ready()
        region.fill()
        self.assertEqual(region.free(), 0)

        # What runs goes on.
        self.assertEqual(t.execute(lives, ["echo", "still here"])["stdout"], "still here\n")

        # A deploy ends FAILED, in time, with a sentence for a person and nothing of the host in it.
        failed = t.create()
        wait_for("the deploy has failed", lambda: t.get(failed)["status"] == "FAILED", 30)
        row = t.get(failed)
        self.assertEqual((row["statusReason"], row["errorRetryable"]), ("The region did not allocate the sandbox in time.", True))
        region.fill()

        # The end of a sandbox is confirmed on the full disk.
        self.assertEqual(t.terminate(ends)["status"], "TERMINATED")
        region.fill()
        self.assertEqual(t.terminate(failed)["status"], "TERMINATED")
        region.fill()

        # A kill on the full disk: the journal is whole, the sandbox is adopted, the ended ones stay ended.
        region.kill9()
        region.start()
        wait_for("it runs commands again", lambda: t.execute(lives, ["true"], None).status == 200, 30)
        known = {s["sandboxId"]: s["phase"] for s in region.client().get("/v1/sandboxes").json["sandboxes"]}
        self.assertEqual(known, {lives["sandboxId"]: "running"})

        self.assertNotIn("no network", region.log())
        self.assertNotIn("no disk limit", region.log())

        # A deploy that waits for room takes it when it comes.
        waits = t.create()
        wait_for("it was tried", lambda: t.get(waits)["status"] in ("ALLOCATING", "STARTING"))
        region.make_room()
        t.wait(waits, "READY", timeout=30)
        for box in (lives, waits):
            self.assertEqual(t.terminate(box)["status"], "TERMINATED")


if __name__ == "__main__":
    main()
