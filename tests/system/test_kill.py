"""The kill test: SIGKILL at random of control planes, region gateway, PostgreSQL and sandboxes under a
running workload, then an audit of rows against runtime, processes, mounts, namespaces and cgroups.

    python3 test_kill.py                        20 kills
    KILLS=200 python3 test_kill.py              the long run
    KILLS=200 KILL_SEED=7 python3 test_kill.py  the same order of kills again
"""
# ctest: serial
# ctest: timeout 600

import collections
import http.client
import os
import random
import signal
import threading
import time

from harness import SystemTest, main, wait_for
from test_lifecycle import SANDBOXD, processes_of

KILLS = int(os.environ.get("KILLS", "20"))
SEED = int(os.environ.get("KILL_SEED", str(random.randrange(1 << 30))))
SPARE_NAMESPACES = 4  # kept ready for the next deploy (src/gateway/egress_impl.h)
STABLE = ("READY", "SUSPENDED", "FAILED", "TERMINATED")


class Workload:
    """Clients that create, execute and terminate, and remember every promise they were given."""

    def __init__(self, tenant, planes):
        self.t = tenant
        self.planes = planes
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.boxes = {}  # key: sandbox id, as acknowledged
        self.ended = set()
        self.broken = []
        self.counts = collections.Counter()
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(3)]

    def start(self):
        for t in self.threads:
            t.start()

    def end(self):
        self.stop.set()
        for t in self.threads:
            t.join()

    def say(self, what):
        with self.lock:
            self.broken.append(what)

    def call(self, fn, *args, **kw):
        """The answer, or None when the control plane died under the call; each try at another one."""
        plane = random.choice(self.planes)
        try:
            answer = fn(*args, status=None, plane=plane, **kw)
        except (OSError, http.client.HTTPException):
            self.counts["connection lost"] += 1
            return None
        self.counts[answer.status] += 1
        if answer.status >= 500 and answer.status not in (502, 503):
            self.say(f"{answer.status} {answer.text()[:200]}")
        return answer

    def create(self, key):
        while not self.stop.is_set():
            answer = self.call(self.t.create, idempotencyKey=key)
            if answer is not None and answer.status in (200, 201):
                box = answer.json["sandbox"]["sandboxId"]
                with self.lock:
                    if self.boxes.setdefault(key, box) != box:
                        self.broken.append(f"key {key} named {self.boxes[key]}, now {box}")
                return box
            if answer is not None and answer.status == 429:
                time.sleep(0.3)
            time.sleep(0.1)
        return None

    def status(self, box):
        answer = self.call(lambda status, plane: self.t.call(
            "GET", f"/sandbox?accountId={self.t.account}&sandboxId={box}", plane=plane))
        if answer is None or answer.status == 503:
            return None
        if answer.status != 200:
            self.say(f"an acknowledged sandbox {box} is {answer.status}")
            return "?"
        return answer.json["sandbox"]["status"]

    def execute(self, box):
        words = f"{random.random()}"
        answer = self.call(self.t.execute, box, ["echo", words], timeoutSeconds=20)
        if answer is None or answer.status in (409, 502, 503):
            return
        if answer.status != 200 or answer.json["exitCode"] != 0 or answer.json["stdout"] != words + "\n":
            self.say(f"execute: {answer}")

    def terminate(self, box):
        answer = self.call(self.t.terminate, box)
        if answer is not None and answer.status == 200 and answer.json["sandbox"]["status"] == "TERMINATED":
            with self.lock:
                self.ended.add(box)

    def run(self, number):
        turn = 0
        while not self.stop.is_set():
            turn += 1
            box = self.create(f"kill-{number}-{turn}")
            if box is None:
                return
            deadline = time.monotonic() + 20
            while not self.stop.is_set() and time.monotonic() < deadline:
                status = self.status(box)
                if status in ("READY", "BUSY"):
                    for _ in range(random.randrange(3)):
                        self.execute(box)
                    break
                if status in ("FAILED", "TERMINATED", "?"):
                    break
                time.sleep(0.2)
            if random.random() < 0.8:
                self.terminate(box)


class Kill(SystemTest):
    stack_options = {"planes": 2, "durable": True,
                     "sandboxd": {**SANDBOXD, "sandboxes.allocating_s": 30, "sandboxes.starting_s": 30},
                     "region": {"agent.ready_timeout_s": 25}}

    def kill_one(self, rng):
        what = rng.choice(["plane", "plane", "region", "postgres", "sandbox", "sandbox"])
        if what == "plane":
            plane = rng.choice(self.stack.planes)
            plane.kill9()
            time.sleep(rng.random())
            plane.start(wait=False)
        elif what == "region":
            self.stack.region.kill9()
            time.sleep(rng.random() * 2)
            self.stack.region.start()
        elif what == "postgres":
            self.stack.pg.kill9()
            time.sleep(rng.random() * 2)
            self.stack.pg.start()
        else:
            live = sorted(self.work.boxes.values())[-6:]
            pids = [pid for box in live for pid in processes_of(box)]
            if pids:
                try:
                    os.kill(rng.choice(pids), signal.SIGKILL)
                except ProcessLookupError:
                    pass
        self.kills[what] += 1

    def rows(self):
        return {r[0]: r[1:] for r in self.stack.pg.psql(
            "SELECT sandbox_id, status, holds_compute, running, coalesce(lease_owner, '') FROM sandboxd.sandboxes")}

    def in_region(self):
        answer = self.stack.region.client().get("/v1/sandboxes?limit=500")
        self.assertEqual(answer.status, 200)
        return {b["sandboxId"]: b["phase"] for b in answer.json["sandboxes"]}

    def settled(self):
        rows = self.rows()
        return all(status in STABLE and (status != "FAILED" or held == "f") and running == "0" and not lease
                   for status, held, running, lease in rows.values())

    def audit(self):
        """Rows against the region, and the region against the kernel."""
        rows, region = self.rows(), self.in_region()
        live = {box for box, row in rows.items() if row[0] == "READY"}
        self.assertEqual({b for b, phase in region.items() if phase == "running"}, live)
        self.assertEqual(set(region) - live, set())
        for box in self.work.boxes.values():
            self.assertIn(box, rows, "an acknowledged create is gone")
        for box in self.work.ended:
            self.assertEqual(rows[box][0], "TERMINATED")
        self.assertEqual(self.stack.pg.psql("SELECT count(*) FROM sandboxd.executions")[0][0], "0")
        for box in rows:
            if box not in live:
                self.assertEqual(processes_of(box), [], f"processes of {box}, which is {rows[box][0]}")
        namespaces = [n for n in os.listdir("/run/netns") if n.startswith(f"sbx-{self.stack.region.tag}-s")] \
            if os.path.isdir("/run/netns") else []
        self.assertLessEqual(len(namespaces), len(live) + SPARE_NAMESPACES, namespaces)
        return len(live), len(rows)

    def test_killed_at_random_nothing_is_lost_and_nothing_is_left(self):
        print(f"seed {SEED}, {KILLS} kills", flush=True)
        rng = random.Random(SEED)
        self.kills = collections.Counter()
        tenant = self.stack.tenant(quota=12)
        self.work = Workload(tenant, self.stack.planes)
        self.work.start()
        try:
            time.sleep(2)
            for n in range(KILLS):
                self.kill_one(rng)
                time.sleep(0.5 + rng.random() * 2)
                if n % 20 == 19:
                    print(f"  {n + 1} kills, {len(self.work.boxes)} sandboxes", flush=True)
        finally:
            self.work.end()
        for part in self.stack.planes + self.stack.regions:
            part.check_up("the audit")
        for plane in self.stack.planes:
            wait_for("the control planes are ready", plane.ready, 30)
        wait_for("every row has settled", self.settled, 90)
        time.sleep(2.5)  # one more sweep of the region
        wait_for("and still has", self.settled, 30)
        live, rows = self.audit()
        self.assertEqual(self.work.broken, [])
        self.assertGreater(len(self.work.boxes), KILLS // 4)
        print(f"killed {dict(self.kills)}; {rows} sandboxes, {live} live at the end; answers {dict(self.work.counts)}",
              flush=True)
        # The end of the stack terminates the rest and looks for anything that is left (harness.Stack.stop).


if __name__ == "__main__":
    main()
