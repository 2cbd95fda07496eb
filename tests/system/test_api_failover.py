"""PostgreSQL fails over: a streaming standby takes the place of a primary that is killed with transactions under way.
`[database] url` names both and asks for the one that takes writes.  No acknowledged create is lost (commits are
synchronous), calls answer 503 meanwhile, and everything goes on without a restart; on the fake driver."""

# ctest: serial
# ctest: timeout 120

import os
import secrets
import threading
import time

from harness import PG_BIN, PUBLIC, Client, Postgres, SystemTest, main, user_ids, wait_for

DIGEST = "repo/image@sha256:" + "a" * 64


class Standby(Postgres):
    """A copy of the stack's cluster that follows it."""

    def __init__(self, stack):
        super().__init__(stack)
        self.name = "standby"
        self.log_path = os.path.join(stack.logs, "standby.log")
        self.data = os.path.join(stack.dir, "pg2")
        self.socket_dir = os.path.join(stack.dir, "s2")

    def start(self):
        uid, gid = user_ids("postgres")
        for path in (self.data, self.socket_dir):
            os.makedirs(path)
            os.chown(path, uid, gid)
        os.chmod(self.data, 0o700)
        os.chmod(self.socket_dir, 0o755)
        # -R writes standby.signal and where to follow from.
        self.run(f"{PG_BIN}/pg_basebackup", "-h", self.stack.pg.socket_dir, "-U", "postgres", "-D", self.data, "-R",
                 "--no-sync", "--checkpoint=fast")
        super().start()

    def promote(self):
        self.run(f"{PG_BIN}/pg_ctl", "promote", "-D", self.data, "-w")


class Failover(SystemTest):
    stack_options = {"driver": "fake", "durable": True}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.standby = Standby(cls.stack)
        cls.standby.start()
        pg, plane = cls.stack.pg, cls.stack.plane
        # A commit is acknowledged when the standby has it too.
        pg.psql("ALTER SYSTEM SET synchronous_standby_names = '*'")
        pg.psql("SELECT pg_reload_conf()")
        wait_for("the standby follows in step", lambda: [["sync"]] == pg.psql("SELECT sync_state FROM pg_stat_replication"))
        plane.options["database.url"] = (f"postgresql:///{pg.database}?host={pg.socket_dir},{cls.standby.socket_dir}"
                                         "&user=postgres&target_session_attrs=read-write")
        plane.stop()
        plane.start()
        cls.tenant = cls.stack.tenant(image=DIGEST, quota=2000)

    @classmethod
    def tearDownClass(cls):
        cls.stack.pg = cls.standby  # the one that the stack's end asks and stops
        super().tearDownClass()

    def create(self, key):
        t = self.tenant
        body = {"accountId": t.account, "appId": t.app, "templateId": t.template, "workloadProfile": "TESS_CODE_TURN",
                "ownerKind": "EXTERNAL_SESSION", "ownerId": "o", "region": t.region, "idempotencyKey": key}
        return Client(t.plane.url, token=t.token).post(PUBLIC + "/sandbox/create", body)

    def load(self, stop, answers):
        while not stop.is_set():
            key = secrets.token_hex(8)
            began = time.monotonic()
            answers.append((key, self.create(key), began, time.monotonic()))

    def test_nothing_acknowledged_is_lost_and_it_goes_on_by_itself(self):
        pg, standby, t = self.stack.pg, self.standby, self.tenant
        first = t.create(workloadProfile="TESS_CODE_TURN", ownerKind="EXTERNAL_SESSION")
        t.wait(first, "READY")
        stop, answers = threading.Event(), []
        threads = [threading.Thread(target=self.load, args=(stop, answers)) for _ in range(4)]
        for th in threads:
            th.start()
        wait_for("creates are answered", lambda: len(answers) > 20)
        # Transactions under way when the primary dies: creates that wait for the account's row.
        lock = threading.Thread(target=self.hold_account)
        lock.start()
        wait_for("creates wait inside their transaction", lambda: int(pg.psql(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%sandbox_create%'")[0][0]) > 0)
        pg.kill9()
        died = time.monotonic()
        lock.join()
        time.sleep(2)
        standby.promote()
        promoted = time.monotonic()
        wait_for("creates work again", lambda: any(a.status == 201 and began > promoted for _, a, began, _ in answers), 15)
        back = time.monotonic() - promoted
        stop.set()
        for th in threads:
            th.join()

        away = [(a, ended - began) for _, a, began, ended in answers if died < began < promoted - 0.1]
        self.assertGreater(len(away), 4)
        for answer, took in away:
            self.assertEqual(answer.status, 503, answer)
            self.assertIn("retry-after", answer.headers)
            self.assertLess(took, 2.6)
        broken = [a for _, a, began, ended in answers if began < died < ended]
        self.assertTrue(broken)
        for answer in broken:
            self.assertEqual(answer.status, 503, "a broken transaction is no success")

        rows = {r[0] for r in standby.psql("SELECT sandbox_id FROM sandboxd.sandboxes")}
        acknowledged = {a.json["sandbox"]["sandboxId"] for _, a, _, _ in answers if a.status == 201}
        self.assertGreater(len(acknowledged), 20)
        self.assertEqual(acknowledged - rows, set(), "acknowledged and lost")
        # The same key again after an unclear answer: one sandbox for each.
        for key, answer, _, _ in answers[-200:]:
            if answer.status == 503:
                again = self.create(key)
                self.assertIn(again.status, (200, 201), again)
        self.assertEqual(standby.psql("SELECT count(*), count(DISTINCT idempotency_digest) FROM sandboxd.sandboxes")[0][0],
                         standby.psql("SELECT count(DISTINCT idempotency_digest) FROM sandboxd.sandboxes")[0][0])

        # The reconciler goes on: what was created before, meanwhile and after gets READY; nothing is lost in the region.
        self.assertEqual(t.get(first)["status"], "READY")
        wait_for("all of them are up", lambda: standby.psql(
            "SELECT count(*) FROM sandboxd.sandboxes WHERE status NOT IN ('READY', 'TERMINATED')") == [["0"]], 40)
        self.assertEqual(t.terminate(first)["status"], "TERMINATED")
        # So does LISTEN: a revocation acts at once.
        member = self.stack.admin("POST", "/token/create", {"kind": "user", "userId": t.user})
        other = Client(t.plane.url, token=member["secret"])
        self.assertEqual(other.get(f"{PUBLIC}/sandboxes?accountId={t.account}").status, 200)
        self.stack.admin("POST", "/token/revoke", {"tokenId": member["token"]["tokenId"]})
        wait_for("the revoked token is refused", lambda: other.get(f"{PUBLIC}/sandboxes?accountId={t.account}").status == 401, 2)
        print(f"{len(acknowledged)} acknowledged, {len(away)} answered 503, {len(broken)} broken; writes again {back:.2f} s after the promotion")

    def hold_account(self):
        try:
            self.stack.pg.psql(f"BEGIN; SELECT 1 FROM sandboxd.accounts WHERE account_id = '{self.tenant.account}' FOR UPDATE; "
                               "SELECT pg_sleep(20)")
        except Exception:  # noqa: B902, the server dies under it
            pass


if __name__ == "__main__":
    main()
