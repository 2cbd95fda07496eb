"""What happens to sandboxes when things die, come late or come at once, on the real product."""
# ctest: timeout 400

import os
import signal
import subprocess
import threading
import time

from harness import PUBLIC, Client, SystemTest, in_parallel, main, wait_for
from region_rig import new_id

SANDBOXD = {
    "limits.idle_timeout_min_s": 1, "limits.hard_lifetime_min_s": 1, "sandboxes.failed_retention_s": 4,
    "sandboxes.lease_ms": 3000, "sandboxes.poll_ms": 200, "sandboxes.region_sweep_ms": 2000,
    "sandboxes.execution_grace_ms": 1000, "sandboxes.backoff_max_ms": 1000, "sandboxes.warm_total_max": 4,
}


def processes_of(box):
    """Host processes that name the sandbox in their arguments."""
    out = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if box.encode() in f.read():
                    out.append(int(pid))
        except OSError:
            pass
    return out


def kill_container(box):
    for pid in processes_of(box["sandboxId"]):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Case(SystemTest):
    def status(self, box, tenant=None):
        return (tenant or self.t).get(box)["status"]

    def becomes(self, box, status, timeout=20, tenant=None):
        wait_for(f"{status}", lambda: self.status(box, tenant) == status, timeout)
        return (tenant or self.t).get(box)

    def region_ids(self, region=None):
        answer = (region or self.stack.region).client().get("/v1/sandboxes?limit=500")
        self.assertEqual(answer.status, 200)
        return {b["sandboxId"] for b in answer.json["sandboxes"]}

    def gone(self, box, timeout=10):
        wait_for("nothing of it in the region", lambda: box["sandboxId"] not in self.region_ids(), timeout)
        wait_for("no process of it", lambda: not processes_of(box["sandboxId"]), timeout)

    def metric(self, name, plane=None):
        text = Client(unix=(plane or self.stack.plane).admin_socket).get("/metrics").text()
        return next((float(line.split()[-1]) for line in text.splitlines() if line.startswith(name)), 0.0)


class OnePlane(Case):
    stack_options = {"sandboxd": SANDBOXD, "region": {"agent.ready_timeout_s": 20}}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.t = cls.stack.tenant()

    def test_case_2_ended_while_the_runtime_creates_it(self):
        for delay in (0, 0.05, 0.15, 0.4):
            box = self.t.create()
            time.sleep(delay)
            ended = self.t.terminate(box)
            self.assertIn(ended["status"], ("TERMINATED", "TERMINATING"))
            ended = self.becomes(box, "TERMINATED")
            self.assertEqual(ended["terminationReason"], "USER_REQUESTED")
            self.gone(box)
        # A region that takes its time: it stands still while the sandbox is ended.
        box = self.t.create()
        self.stack.region.process.send_signal(signal.SIGSTOP)
        try:
            wait_for("ALLOCATING", lambda: self.status(box) in ("ALLOCATING", "STARTING", "READY"))
            answer = []
            thread = threading.Thread(target=lambda: answer.append(self.t.terminate(box)))
            thread.start()
            time.sleep(2)
            self.assertEqual(self.status(box), "TERMINATING")
        finally:
            self.stack.region.process.send_signal(signal.SIGCONT)
        thread.join()
        self.assertEqual(answer[0]["status"], "TERMINATED")
        time.sleep(2)
        self.gone(box)

    def test_case_4_reconciled_both_ways_at_start(self):
        kept, other, lost = [self.t.ready() for _ in range(3)]
        self.stack.plane.kill9()
        kill_container(lost)
        stray = new_id()
        region = self.stack.region.client()
        answer = region.request("PUT", f"/v1/sandboxes/{stray}", {
            "operationId": new_id(), "generation": 1, "accountId": self.t.account, "image": self.stack.image(),
            "command": ["sleep", "1000000"], "resources": {"cpuMillis": 500, "memoryMb": 512, "diskMb": 64}})
        self.assertEqual(answer.status, 200, answer)
        self.stack.plane.start()
        self.assertEqual(self.becomes(lost, "FAILED")["errorCode"], "SANDBOX_NOT_FOUND")
        wait_for("the stray is ended", lambda: stray not in self.region_ids(), 20)
        for box in (kept, other):
            now = self.t.get(box)
            self.assertEqual((now["status"], now["generation"]), ("READY", box["generation"]))
            self.assertEqual(self.t.execute(box, ["echo", "still here"])["stdout"], "still here\n")
        self.assertGreaterEqual(self.metric("sandboxd_strays_total"), 1)
        self.assertGreaterEqual(self.metric("sandboxd_sandboxes_lost_total"), 1)
        self.assertTrue(any("stray" in line.get("msg", "") and line.get("sandboxId") == stray
                            for line in self.stack.plane.log_lines()))
        for box in (kept, other, lost):
            self.t.terminate(box)

    def test_case_5_an_entrypoint_that_exits_at_once(self):
        template = self.t.add_template(command=["true"])
        box = self.t.create(templateId=template)
        failed = self.becomes(box, "FAILED", 30)
        self.assertEqual((failed["errorCode"], failed["errorRetryable"]), ("UNKNOWN", False))
        self.assertTrue(failed["statusReason"])
        self.assertNotIn("/", failed["statusReason"])
        self.gone(box)
        for _ in range(2):
            self.assertIn(self.t.terminate(box)["status"], ("TERMINATED", "TERMINATING"))
        self.becomes(box, "TERMINATED")
        self.assertEqual(self.t.terminate(box)["status"], "TERMINATED")

    def test_case_5_a_failed_one_ends_by_itself_and_its_place_is_free(self):
        t = self.stack.tenant(quota=1)
        bad = t.add_template(command=["false"])
        box = t.create(templateId=bad)
        self.becomes(box, "FAILED", 30, t)
        wait_for("the place is free", lambda: t.create(status=None, templateId=bad).status == 201, 15)
        wait_for("retention ends it", lambda: t.get(box)["status"] == "TERMINATED", 20)
        self.assertEqual(t.get(box)["terminationReason"], "FAILED")

    def test_case_15_idle_never_ends_a_command(self):
        template = self.t.add_template(idleTimeoutSeconds=2)
        box = self.t.ready(templateId=template)
        answer = self.t.execute(box, ["sleep", "5"])
        ended_at = time.monotonic()
        self.assertEqual(answer["exitCode"], 0)
        self.assertEqual(self.status(box), "READY")
        after = self.becomes(box, "TERMINATED")
        self.assertGreater(time.monotonic() - ended_at, 1.5)
        self.assertEqual(after["terminationReason"], "IDLE_TIMEOUT")

    def test_the_hard_lifetime_ends_a_busy_one_too(self):
        template = self.t.add_template(hardLifetimeSeconds=4)
        box = self.t.ready(templateId=template)
        answer = self.t.execute(box, ["sleep", "30"], status=None)
        self.assertIn(answer.status, (409, 502), answer)
        after = self.becomes(box, "TERMINATED")
        self.assertEqual(after["terminationReason"], "HARD_LIFETIME")
        self.gone(box)

    def test_the_history_of_a_sandbox(self):
        box = self.t.ready()
        self.t.terminate(box)
        why = self.stack.ctl_json("why", box["sandboxId"], tenant=self.t)
        text = str(why)
        for word in ("REQUESTED", "ALLOCATING", "READY", "TERMINATING", "TERMINATED", f"user:{self.t.user}", "reconciler"):
            self.assertIn(word, text)


class Region(Case):
    stack_options = {"sandboxd": {**SANDBOXD, "sandboxes.lease_ms": 4000}}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.t = cls.stack.tenant()

    def test_a_killed_region_comes_back_to_its_sandboxes(self):
        boxes = [self.t.ready() for _ in range(2)]
        answers = []
        thread = threading.Thread(target=lambda: answers.append(self.t.execute(
            boxes[0], ["sh", "-c", "sleep 4; echo done"], status=None)))
        thread.start()
        wait_for("BUSY", lambda: self.status(boxes[0]) == "BUSY")
        self.stack.region.kill9()
        late = self.t.create()  # nobody is there to take it
        time.sleep(1)
        self.assertIn(self.status(late), ("REQUESTED", "ALLOCATING", "STARTING"))
        self.stack.region.start()
        thread.join()
        # The connection broke: never an invented exit code.
        self.assertIn(answers[0].status, (502, 409, 503), answers[0])
        for box in boxes:
            self.becomes(box, "READY", 30)
            self.assertEqual(self.t.execute(box, ["echo", "alive"])["stdout"], "alive\n")
        self.becomes(late, "READY", 30)
        for box in boxes + [late]:
            self.assertIn(self.t.terminate(box)["status"], ("TERMINATED", "TERMINATING"))
            self.becomes(box, "TERMINATED")
            self.gone(box)

    def test_terminate_waits_for_a_region_that_is_away(self):
        box = self.t.ready()
        self.stack.region.kill9()
        answers = []
        thread = threading.Thread(target=lambda: answers.append(self.t.terminate(box)))
        thread.start()
        time.sleep(1.5)
        self.assertEqual(self.status(box), "TERMINATING")
        self.stack.region.start()
        thread.join()
        self.becomes(box, "TERMINATED", 20)
        self.gone(box)


class Warm(Case):
    stack_options = {"sandboxd": SANDBOXD}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.t = cls.stack.tenant()

    def pool(self, status="READY"):
        return int(self.stack.pg.psql(f"SELECT count(*) FROM sandboxd.warm_members WHERE status = '{status}'")[0][0])

    def test_case_35_one_warm_one_and_twenty_creates(self):
        template = self.t.add_template(warmPool={"desired": 1, "min": 1, "max": 1, "regions": [self.t.region]})
        wait_for("one warm member", lambda: self.pool() == 1, 30)
        boxes = in_parallel(20, lambda i: self.t.create(templateId=template))
        self.assertEqual(len({b["sandboxId"] for b in boxes}), 20)
        ready = [self.t.wait(b, "READY", timeout=90) for b in boxes]
        warm = [b for b in ready if b.get("isWarmAllocation")]
        # The pool may be refilled while the burst is still coming in; no member serves two.
        self.assertGreaterEqual(len(warm), 1)
        claimed = self.stack.pg.psql("SELECT warm_id, count(*) FROM sandboxd.sandboxes WHERE warm_id IS NOT NULL "
                                     "GROUP BY 1 HAVING count(*) > 1")
        self.assertEqual(claimed, [])
        names = in_parallel(4, lambda i: [self.t.execute(b, ["sh", "-c", f"echo {b['sandboxId']} >> /workspace/me; "
                                                             "cat /workspace/me"])["stdout"] for b in ready[i::4]])
        for group, i in zip(names, range(4)):
            self.assertEqual(group, [b["sandboxId"] + "\n" for b in ready[i::4]])
        in_parallel(4, lambda i: [self.t.terminate(b) for b in ready[i::4]])
        self.t.call("POST", "/sandbox-template/save",
                    {"accountId": self.t.account, "templateId": template, "name": "off", "enabled": False}, 200)
        wait_for("the pool is drained", lambda: self.pool() + self.pool("STARTING") + self.pool("DRAINING") == 0, 30)
        wait_for("nothing is left in the region", lambda: not self.region_ids(), 20)

    def test_a_warm_create_answers_ready(self):
        template = self.t.add_template(warmPool={"desired": 1, "min": 0, "max": 1, "regions": [self.t.region]})
        wait_for("one warm member", lambda: self.pool() == 1, 30)
        box = self.t.create(templateId=template)
        self.assertEqual((box["status"], box["isWarmAllocation"], box["generation"]), ("READY", True, 2))
        self.assertEqual(self.t.execute(box, ["echo", "hi"])["stdout"], "hi\n")
        self.t.terminate(box)
        self.t.call("POST", "/sandbox-template/save",
                    {"accountId": self.t.account, "templateId": template, "name": "off", "enabled": False}, 200)
        wait_for("nothing is left in the region", lambda: not self.region_ids(), 30)

    def test_a_dead_member_is_never_handed_out(self):
        template = self.t.add_template(warmPool={"desired": 1, "min": 1, "max": 1, "regions": [self.t.region]})
        wait_for("one warm member", lambda: self.pool() == 1, 30)
        member = self.stack.pg.psql("SELECT warm_id FROM sandboxd.warm_members WHERE status = 'READY'")[0][0]
        kill_container({"sandboxId": member})
        box = self.t.ready(templateId=template)
        self.assertEqual(self.t.execute(box, ["echo", "hi"])["stdout"], "hi\n")
        self.t.terminate(box)
        self.t.call("POST", "/sandbox-template/save",
                    {"accountId": self.t.account, "templateId": template, "name": "off", "enabled": False}, 200)
        wait_for("nothing is left in the region", lambda: not self.region_ids(), 30)


class TwoPlanes(Case):
    stack_options = {"planes": 2, "sandboxd": SANDBOXD}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.t = cls.stack.tenant()

    def test_a_killed_plane_is_taken_over(self):
        survivor = self.stack.planes[1]
        busy = self.t.ready()
        threading.Thread(target=lambda: self.quiet_execute(busy), daemon=True).start()
        wait_for("BUSY", lambda: self.status(busy) == "BUSY")
        boxes = [self.t.create() for _ in range(6)]
        self.stack.planes[0].kill9()
        began = time.monotonic()
        for box in boxes:
            wait_for("READY", lambda b=box: self.t.get(b, plane=survivor)["status"] == "READY", 40)
        self.assertLess(time.monotonic() - began, 30)
        wait_for("its execution is settled", lambda: self.t.get(busy, plane=survivor)["status"] == "READY", 30)
        self.assertEqual(sum(b["sandboxId"] in self.region_ids() for b in boxes), 6)
        self.stack.planes[0].start()
        for box in boxes + [busy]:
            self.t.terminate(box)

    def quiet_execute(self, box):
        try:
            self.t.execute(box, ["sleep", "3"], status=None)
        except OSError:
            pass  # its control plane is killed

    def test_a_rolling_restart_loses_nothing_that_was_answered(self):
        stop, created, broken = threading.Event(), [], []

        def load(number):
            plane = self.stack.planes[number % 2]
            while not stop.is_set():
                key = f"roll-{number}-{len(created)}-{time.monotonic()}"
                try:
                    answer = self.t.create(status=None, plane=plane, idempotencyKey=key)
                except OSError:
                    plane = self.stack.planes[1 - self.stack.planes.index(plane)]
                    continue
                if answer.status == 201:
                    created.append(answer.json["sandbox"]["sandboxId"])
                    if self.t.terminate(created[-1], status=None, plane=self.stack.planes[number % 2 - 1]).status not in (
                            200, 409, 503):
                        broken.append(answer)
                elif answer.status not in (503, 429):
                    broken.append(answer)

        def safe(number):
            while not stop.is_set():
                try:
                    load(number)
                except OSError:
                    pass

        threads = [threading.Thread(target=safe, args=(i,)) for i in range(2)]
        for t in threads:
            t.start()
        for plane in self.stack.planes:
            time.sleep(1)
            self.assertEqual(plane.stop(), 0)
            plane.start()
        time.sleep(1)
        stop.set()
        for t in threads:
            t.join()
        self.assertEqual(broken, [])
        self.assertGreater(len(created), 3)
        for box in created:
            self.t.terminate(box, status=None)
            self.becomes(box, "TERMINATED", 40)


class Database(Case):
    stack_options = {"sandboxd": SANDBOXD, "durable": True}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.t = cls.stack.tenant()

    def test_case_44_the_database_is_away_under_load(self):
        box = self.t.ready()
        stop, answers = threading.Event(), []

        def load(number):
            while not stop.is_set():
                began = time.monotonic()
                answer = self.t.create(status=None)
                answers.append((answer, time.monotonic() - began))
                time.sleep(0.02)

        threads = [threading.Thread(target=load, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        time.sleep(0.5)
        self.stack.pg.kill9()
        time.sleep(10)
        down = len(answers)
        self.stack.pg.start()
        wait_for("creates work again", lambda: any(a.status == 201 for a, _ in answers[down:]), 15)
        stop.set()
        for t in threads:
            t.join()
        refused = [(a, took) for a, took in answers if a.status != 201]
        self.assertTrue(refused)
        for answer, took in refused:
            self.assertIn(answer.status, (503, 429), answer)
            self.assertIn("retry-after", answer.headers)
            self.assertLess(took, 2.5)
        # Everything that was acknowledged is there and settles; the region has nothing else.
        self.assertEqual(self.t.execute(box, ["echo", "on"])["stdout"], "on\n")
        made = [a.json["sandbox"]["sandboxId"] for a, _ in answers if a.status == 201]
        for one in made:
            self.t.terminate(one, status=None)
        for one in made:
            self.becomes(one, "TERMINATED", 60)
        self.t.terminate(box)
        wait_for("no orphan in the region", lambda: not self.region_ids(), 30)
        wait_for("readyz", self.stack.plane.ready, 10)


if __name__ == "__main__":
    main()
