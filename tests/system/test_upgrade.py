"""A rolling upgrade: a control plane of the next version comes beside one that serves, brings the schema
forward, and the old one goes on, also when it has to start again."""

import threading
import time
import unittest

import harness
from harness import Stack, main

IMAGE = "library/tiny@sha256:" + 64 * "0"  # the fake driver asks for no more


class Traffic(threading.Thread):
    """Sandboxes from create to terminate through one control plane; any answer that is not the right one
    ends it."""

    def __init__(self, tenant):
        super().__init__()
        self.tenant, self.lives, self.trouble, self.stopping = tenant, 0, None, threading.Event()

    def run(self):
        try:
            while not self.stopping.is_set():
                box = self.tenant.ready()
                self.tenant.execute(box, ["true"])
                self.tenant.list()
                self.tenant.terminate(box)
                self.lives += 1
        except Exception as e:  # of any kind: the test names it
            self.trouble = e

    def end(self):
        self.stopping.set()
        self.join(60)
        if self.trouble:
            raise AssertionError(f"after {self.lives} sandboxes: {self.trouble!r}")
        return self.lives


class Upgrade(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        try:
            cls.stack = Stack(planes=2, driver="fake")
        except harness.Missing as e:
            raise unittest.SkipTest(str(e)) from None
        cls.new = cls.stack.planes.pop()
        cls.new.program = "sandboxd_next"
        cls.stack.start()
        cls.old = cls.stack.plane
        cls.stack.planes.append(cls.new)

    @classmethod
    def tearDownClass(cls):
        cls.stack.stop(rough=getattr(cls, "failed", False))

    def test_the_old_version_goes_on_beside_the_new_one(self):
        tenant = self.stack.tenant(image=IMAGE)
        want = self.old.admin("GET", "/status")["schema"]["want"]
        through_old = [Traffic(tenant) for _ in range(2)]
        for t in through_old:
            t.start()
        harness.wait_for("sandboxes live", lambda: all(t.lives > 2 or t.trouble for t in through_old), 30)
        self.new.start()  # migrates
        before = [t.lives for t in through_old]
        self.assertEqual(self.new.admin("GET", "/status")["schema"], {"have": 9001, "want": 9001, "idempotencyIndex": True})
        tenant_of_new = harness.Tenant(self.stack, self.new, account=tenant.account, app=tenant.app, token=tenant.token,
                                       region=tenant.region, template=tenant.template)
        through_new = Traffic(tenant_of_new)
        through_new.start()
        time.sleep(1.5)
        for t, n in zip(through_old, before):
            self.assertGreater(t.end(), n)

        # The old one dies and comes back: it meets a schema newer than its own.
        self.old.kill9()
        self.old.start()
        self.assertIn("a newer version has added to the schema", self.old.log())
        self.assertEqual(self.old.admin("GET", "/status")["schema"]["have"], want)
        again = Traffic(tenant)
        again.start()
        harness.wait_for("sandboxes live through both", lambda: again.lives > 2 or again.trouble or through_new.trouble, 60)
        self.assertGreater(again.end(), 2)
        self.assertGreater(through_new.end(), 2)
        # What one made the other ends.
        box = tenant.ready()
        tenant_of_new.terminate(box)
        self.assertEqual(tenant.get(box)["status"], "TERMINATED")


if __name__ == "__main__":
    main()
