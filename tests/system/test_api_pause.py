"""Pause and resume through the API, on real gVisor and a dir backend (seed "Pause a sandbox", "Resume a sandbox",
"Persistence modes"; contract 3 and 5; cases 8, 17 and the pause part of 38)."""

# ctest: timeout 240

import os
import time

from harness import SystemTest, in_parallel, main, wait_for


class Pause(SystemTest):
    stack_options = {"sandboxd": {"limits.idle_timeout_min_s": 1}}

    def tenant(self, **kw):
        t = self.stack.tenant(**{"persistenceMode": "SNAPSHOT", **kw})
        t.folder = self.stack.backend_dir(t)
        return t

    def test_a_pause_and_a_resume(self):
        t = self.tenant()
        box = t.ready()
        self.assertEqual((box["persistenceMode"], box["volumeName"]), ("SNAPSHOT", "sbvol-" + box["sandboxId"]))
        t.execute(box, ["sh", "-c", "mkdir -p /workspace/a && echo kept > /workspace/a/file && touch /workspace/x.log"])
        paused = t.pause(box, snapshotExclude=["*.log"])
        self.assertEqual(paused["status"], "SUSPENDED")
        self.assertIn("suspendedAt", paused)
        self.assertIn("lastSnapshotAt", paused["persistence"])
        self.assertGreater(paused["persistence"]["lastSnapshotBytes"], 0)
        self.assertNotIn("lastSnapshotError", paused["persistence"])
        again = t.pause(box)
        self.assertEqual(again, paused, "pausing a paused one returns it unchanged")
        refused = t.execute(box, ["true"], status=None)
        self.assertEqual((refused.status, refused.code, refused.json["data"]["retryable"]), (409, "SANDBOX_SUSPENDED", True))
        self.assertEqual(self.stack.region.client().get(f"/v1/sandboxes/{box['sandboxId']}").json.get("phase", "gone") in ("stopped", "gone"), True)
        resumed = t.resume(box)
        self.assertEqual((resumed["status"], resumed["desiredStatus"]), ("RESUMING", "READY"))
        ready = t.wait(box, "READY")
        self.assertNotIn("desiredStatus", ready)
        self.assertIn("resumedAt", ready)
        self.assertEqual(ready["sandboxId"], box["sandboxId"])
        self.assertEqual(t.execute(box, ["cat", "/workspace/a/file"])["stdout"], "kept\n")
        self.assertNotEqual(t.execute(box, ["ls", "/workspace/x.log"])["exitCode"], 0)
        self.assertEqual(t.resume(box)["status"], "READY", "one that runs is answered unchanged")
        t.terminate(box)
        volume = t.call("GET", f"/shared-volume?accountId={t.account}&volumeName={box['volumeName']}", status=200).json["volume"]
        self.assertEqual(volume["status"], "ACTIVE", "terminating never removes the volume")
        self.assertTrue(os.listdir(t.folder))

    def test_what_cannot_be_paused_or_resumed(self):
        t = self.tenant()
        plain = t.ready(persistenceMode="EPHEMERAL")
        refused = t.pause(plain, status=None)
        self.assertEqual(refused.status, 400)
        self.assertIn(t.act("pause", t.create(), status=None).status, (409, 200, 503))
        box = t.ready()
        t.terminate(box)
        self.assertEqual(t.pause(box, status=None).status, 409)
        self.assertEqual(t.resume(box, status=None).status, 409)
        t.terminate(plain)

    def test_a_region_that_is_away_is_told_at_once(self):
        t = self.tenant()
        box = t.ready()
        t.execute(box, ["sh", "-c", "echo kept > /workspace/file"])
        self.stack.region.stop()
        try:
            began = time.monotonic()
            away = t.pause(box, status=None)
            self.assertLess(time.monotonic() - began, 10)
            self.assertEqual((away.status, away.code), (503, "UNAVAILABLE"), away)
            self.assertTrue(away.json["data"]["retryable"])
            self.assertEqual(str(away.json["data"]["retryAfterSeconds"]), away.headers["retry-after"])
            now = t.get(box)
            self.assertEqual((now["status"], now["generation"]), ("READY", box["generation"] + 2), "as it was")
        finally:
            self.stack.region.start()
        # 503 goes on until the agent has dialled again: "retry the pause after that delay".
        wait_for("the pause works again", lambda: t.pause(box, status=None).status == 200, 30, every=0.5)
        self.assertEqual(t.get(box)["status"], "SUSPENDED")
        t.terminate(box)

    def test_a_region_that_dies_under_a_pause_is_told_soon(self):
        t = self.tenant()
        box = t.ready()
        t.execute(box, ["sh", "-c", "echo kept > /workspace/file && head -c 60000000 /dev/urandom > /workspace/large"])

        def kill(i):
            wait_for("the pause is under way", lambda: t.get(box)["status"] == "SUSPENDING", 20, every=0.005)
            self.stack.region.kill9()

        began = time.monotonic()
        answer = in_parallel(2, lambda i: t.pause(box, status=None) if i else kill(i))[1]
        try:
            self.assertLess(time.monotonic() - began, 30)
            self.assertEqual((answer.status, answer.code, answer.json["data"]["retryable"]), (503, "UNAVAILABLE", True), answer)
            self.assertEqual(str(answer.json["data"]["retryAfterSeconds"]), answer.headers["retry-after"])
        finally:
            self.stack.region.start()
        wait_for("the pause has an end", lambda: t.pause(box, status=None).status == 200, 60, every=0.5)
        t.resume(box)
        t.wait(box, "READY")
        self.assertEqual(t.execute(box, ["cat", "/workspace/file"])["stdout"], "kept\n")
        t.terminate(box)

    def test_case_8_ten_pauses_at_once(self):
        t = self.tenant()
        box = t.ready()
        answers = in_parallel(10, lambda i: t.pause(box, status=None))
        self.assertLessEqual({a.status for a in answers}, {200, 409})
        self.assertIn(200, {a.status for a in answers})
        self.assertEqual(t.get(box)["status"], "SUSPENDED", "no acknowledged pause is undone")
        archives = [f for _, _, files in os.walk(t.folder) for f in files if f.endswith(".tar.zst")]
        self.assertEqual(len(archives), 1, "one archive is written")
        t.terminate(box)

    def test_case_38_a_paused_one_gives_its_place_and_asks_for_it_again(self):
        t = self.tenant(quota=2)
        first, second = t.ready(), t.ready()
        self.assertEqual(t.create(status=None).status, 429)
        t.pause(first)
        third = t.ready()
        refused = t.resume(first, status=None)
        self.assertEqual((refused.status, refused.code, refused.json["data"]["limit"]), (429, "QUOTA_EXCEEDED", 2))
        t.terminate(third)
        self.assertIn(t.resume(first)["status"], ("RESUMING", "READY"))
        t.wait(first, "READY")
        for box in (first, second):
            t.terminate(box)

    def test_a_volume_is_shared_and_used(self):
        t = self.tenant(persistenceMode="DIRECTORY")
        call = lambda path, status, **f: t.call("POST", "/shared-volume/" + path, {"accountId": t.account, "volumeName": "cache", **f}, status)
        call("create", 201, region=t.region, sizeMb=64)
        self.assertEqual(call("create", 409, region=t.region, sizeMb=64).code, "VOLUME_EXISTS")
        box = t.ready(volumeName="cache")
        t.execute(box, ["sh", "-c", "echo shared > /workspace/persist/file"])
        self.assertEqual(call("remove", 409).code, "VOLUME_IN_USE")
        t.terminate(box)
        other = t.ready(volumeName="cache")
        self.assertEqual(t.execute(other, ["cat", "/workspace/persist/file"])["stdout"], "shared\n")
        t.terminate(other)
        gone = call("remove", 200).json["volume"]
        self.assertEqual(gone["status"], "PENDING_PURGE")
        self.assertIn("purgeAt", gone)
        self.assertEqual(t.create(status=None, volumeName="cache").code, "VOLUME_PENDING_PURGE")
        self.assertEqual(call("restore", 200).json["volume"]["status"], "ACTIVE")

    def test_case_17_idle_never_touches_a_paused_one(self):
        t = self.tenant(idleTimeoutSeconds=2, hardLifetimeSeconds=600)
        box = t.ready()
        t.pause(box)
        other = t.ready()
        wait_for("an idle one is ended", lambda: t.get(other)["status"] == "TERMINATED", 20)
        self.assertEqual(t.get(other)["terminationReason"], "IDLE_TIMEOUT")
        self.assertEqual(t.get(box)["status"], "SUSPENDED")
        t.resume(box)
        t.wait(box, "READY")
        t.terminate(box)


if __name__ == "__main__":
    main()
