"""Create, get, list: idempotency, refusals, quota, pages and cursor (seed "Create or connect a sandbox", "List
sandboxes"; contract 3; cases 11, 13 and 38), on the fake driver: the region's part has tests of its own."""

import json
import secrets
import socket
import time

from harness import PUBLIC, Client, SystemTest, in_parallel, main, wait_for

DIGEST = "repo/image@sha256:" + "a" * 64
NONE = "0" * 26


class Create(SystemTest):
    stack_options = {"driver": "fake", "sandboxd": {"limits.idle_timeout_min_s": 1, "sandboxes.failed_retention_s": 2}}

    def tenant(self, **kw):
        return self.stack.tenant(image=DIGEST, **kw)

    def body(self, t, **fields):
        body = {"accountId": t.account, "appId": t.app, "templateId": t.template, "workloadProfile": "QUAVE_INTERACTIVE_AGENT",
                "ownerKind": "AGENT_CONVERSATION", "ownerId": "conversation-42", "region": t.region,
                "idempotencyKey": secrets.token_hex(8), **fields}
        return {k: v for k, v in body.items() if v is not None}

    def post(self, t, body, token=None):
        return Client(t.plane.url, token=token or t.token).post(PUBLIC + "/sandbox/create", body)

    def rows(self, t):
        return int(self.stack.pg.psql(f"SELECT count(*) FROM sandboxd.sandboxes WHERE account_id = '{t.account}'")[0][0])

    # ---- what is answered

    def test_the_object(self):
        t = self.tenant()
        answer = self.post(t, self.body(t, externalSessionId="ext-1"))
        self.assertEqual((answer.status, answer.json["wasCreated"]), (201, True))
        box = answer.json["sandbox"]
        self.assertEqual((box["status"], box["generation"], box["isWarmAllocation"]), ("REQUESTED", 0, False))
        self.assertEqual(box["callerKey"], "user:" + t.user)
        self.assertEqual((box["ownerKind"], box["ownerId"], box["externalSessionId"]),
                         ("AGENT_CONVERSATION", "conversation-42", "ext-1"))
        self.assertEqual((box["isolationProfile"], box["persistenceMode"], box["templateRevisionNumber"]), ("GVISOR", "EPHEMERAL", 1))
        self.assertEqual(box["correlationId"], answer.headers["x-request-id"])
        self.assertRegex(box["createdAt"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        self.assertRegex(box["sandboxId"], r"^[0-7][0-9a-hjkmnp-tv-z]{25}$")
        for absent in ("idempotencyKey", "volumeName", "readyAt", "terminatedAt", "terminationReason", "errorCode", "persistence",
                       "desiredStatus", "suspendedAt", "resumedAt"):
            self.assertNotIn(absent, box)
        ready = t.wait(box, "READY")
        self.assertGreater(ready["generation"], 0)
        self.assertIn("readyAt", ready)
        self.assertIn("lastActiveAt", ready)
        # expiresAt is the revision's hard lifetime after creation.
        stamp = lambda text: time.mktime(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S"))
        self.assertEqual(stamp(box["expiresAt"]) - stamp(box["createdAt"]), 3600)

    # ---- idempotency

    def test_case_11_fifty_at_once_with_one_key(self):
        t = self.tenant(quota=100)
        body = self.body(t)
        answers = in_parallel(50, lambda i: self.post(t, body))
        self.assertEqual(sorted(a.status for a in answers), [200] * 49 + [201])
        self.assertEqual(sorted(a.json["wasCreated"] for a in answers), [False] * 49 + [True])
        self.assertEqual(len({a.json["sandbox"]["sandboxId"] for a in answers}), 1)
        self.assertEqual(self.rows(t), 1)
        box = t.wait(answers[0].json["sandbox"], "READY")
        listed = self.stack.region.client().get("/v1/sandboxes?limit=500").json["sandboxes"]
        self.assertEqual([s["sandboxId"] for s in listed].count(box["sandboxId"]), 1)

    def test_case_11_a_lost_answer_and_a_retry(self):
        t = self.tenant()
        body = self.body(t)
        data = json.dumps(body).encode()
        host, port = t.plane.url.split("//")[1].split(":")
        with socket.create_connection((host, int(port))) as s:
            s.sendall(f"POST {PUBLIC}/sandbox/create HTTP/1.1\r\nHost: x\r\nAuthorization: {t.token}\r\nContent-Type: "
                      f"application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        wait_for("the row is there", lambda: self.rows(t) == 1)
        again = self.post(t, body)
        self.assertEqual((again.status, again.json["wasCreated"]), (200, False))
        self.assertEqual(self.rows(t), 1)

    def test_a_repeat_connects_whatever_has_become_of_things(self):
        """The key is looked up first: another body, a disabled template or region, a full quota and an ended
        sandbox change nothing (contract 3)."""
        t = self.tenant(quota=1)
        body = self.body(t)
        box = self.post(t, body).json["sandbox"]
        t.wait(box, "READY")
        self.assertEqual(self.post(t, self.body(t)).status, 429, "the only place is taken")
        t.call("POST", "/sandbox-template/save", {"accountId": t.account, "templateId": t.template, "name": "n", "enabled": False}, 200)
        changed = {**body, "templateId": NONE, "region": "nowhere", "ownerId": "other", "workloadProfile": "TESS_CODE_TURN",
                   "ownerKind": "EXTERNAL_SESSION", "persistenceMode": "BOTH", "externalSessionId": "x"}
        for status in ("READY", "TERMINATED"):
            for again in (self.post(t, body), self.post(t, changed)):
                self.assertEqual((again.status, again.json["wasCreated"]), (200, False), again)
                self.assertEqual(again.json["sandbox"]["sandboxId"], box["sandboxId"])
                self.assertEqual(again.json["sandbox"]["status"], status)
                self.assertEqual(again.json["sandbox"]["ownerId"], "conversation-42")
            t.terminate(box)

    def test_the_key_is_of_account_app_and_caller(self):
        t = self.tenant()
        body = self.body(t)
        first = self.post(t, body).json["sandbox"]["sandboxId"]
        _, other = self.stack.member(t.account, ["technical"])
        self.assertNotEqual(self.post(t, body, other).json["sandbox"]["sandboxId"], first)
        app = self.stack.admin("POST", "/app/create", {"accountId": t.account, "name": "b"})["app"]["appId"]
        self.assertNotEqual(self.post(t, {**body, "appId": app}).json["sandbox"]["sandboxId"], first)
        # All token kinds of one user are one caller.
        mcp = self.stack.admin("POST", "/token/create", {"kind": "mcp", "userId": t.user, "scopes": ["quave:write:deploy"]})["secret"]
        self.assertEqual(self.post(t, body, mcp).json["sandbox"]["sandboxId"], first)

    def test_the_key_is_kept_byte_for_byte_and_never_shown(self):
        t = self.tenant()
        key = "KEY-" + secrets.token_hex(12) + " \u2615 'x\" "
        box = self.post(t, self.body(t, idempotencyKey=key)).json["sandbox"]
        self.assertEqual(self.post(t, self.body(t, idempotencyKey=key)).json["sandbox"]["sandboxId"], box["sandboxId"])
        for near in (key.strip(), key.lower(), key + " "):
            self.assertNotEqual(self.post(t, self.body(t, idempotencyKey=near)).json["sandbox"]["sandboxId"], box["sandboxId"])
        mark = key[:28]
        shown = json.dumps([box, t.get(box), t.list(), self.stack.admin("GET", f"/why?sandboxId={box['sandboxId']}"),
                            self.stack.admin("GET", "/audit")])
        self.assertNotIn(mark, shown)
        self.assertNotIn(mark, self.stack.plane.log())
        self.assertNotIn(mark, self.stack.pg.log())
        self.assertEqual(self.stack.pg.psql(f"SELECT count(*) FROM sandboxd.sandboxes s WHERE s::text LIKE '%{mark}%'")[0][0], "0")

    def test_without_the_unique_index_nothing_is_allocated(self):
        t = self.tenant()
        definition = self.stack.pg.psql("SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'sandboxd' AND "
                                        "tablename = 'sandboxes' AND indexdef LIKE '%UNIQUE%' AND indexdef LIKE '%caller%'")
        name, sql = definition[0]
        self.stack.pg.psql(f"DROP INDEX sandboxd.{name}")
        try:
            answer = self.post(t, self.body(t))
            self.assertEqual((answer.status, answer.code), (503, "IDEMPOTENCY_UNAVAILABLE"))
            self.assertIn("retry-after", answer.headers)
            self.assertEqual(self.rows(t), 0)
        finally:
            self.stack.pg.psql(sql)
        self.assertEqual(self.post(t, self.body(t)).status, 201)

    # ---- refusals

    def test_profiles_and_owner_kinds(self):
        t = self.tenant(quota=50)
        pairs = {"TESS_CODE_TURN": "EXTERNAL_SESSION", "QUAVE_INTERACTIVE_AGENT": "AGENT_CONVERSATION", "QUAVE_AUTOMATION_RUN": "AGENT_RUN"}
        for profile in pairs:
            for kind in pairs.values():
                answer = self.post(t, self.body(t, workloadProfile=profile, ownerKind=kind))
                self.assertEqual(answer.status, 201 if pairs[profile] == kind else 400, (profile, kind))
                if answer.status == 400:
                    self.assertEqual(answer.json["data"]["field"], "ownerKind")

    def test_regions(self):
        t = self.tenant()
        admin = self.stack.admin
        admin("POST", "/region/create", {"name": "bare", "socket": "/none.sock", "sandboxes": False})
        admin("POST", "/region/create", {"name": "closed", "socket": "/none.sock"})
        admin("POST", "/region/create", {"name": "other", "socket": "/none.sock"})
        for region in ("bare", "closed"):
            admin("POST", "/region/grant", {"accountId": t.account, "region": region})
        admin("POST", "/region/disable", {"region": "closed"})
        for region, status, code in (("nowhere", 400, "REGION_UNKNOWN"), ("other", 403, "REGION_FORBIDDEN"),
                                     ("bare", 409, "REGION_WITHOUT_SANDBOXES"), ("closed", 409, "REGION_DISABLED")):
            answer = self.post(t, self.body(t, region=region))
            self.assertEqual((answer.status, answer.code), (status, code))
        self.assertEqual(self.rows(t), 0, "nothing is created in any of those cases")

    def test_templates(self):
        t = self.tenant()
        save = lambda **f: t.call("POST", "/sandbox-template/save", {"accountId": t.account, **f}, (200, 201)).json["template"]
        empty = save(name="no revision")["templateId"]
        off = t.add_template(image=DIGEST, name="off")
        save(templateId=off, name="off", enabled=False)
        old = t.add_template(image=DIGEST, name="old")
        save(templateId=old, name="old", deprecated=True)
        app = self.stack.admin("POST", "/app/create", {"accountId": t.account, "name": "b"})["app"]["appId"]
        theirs = save(name="of another app", appId=app)["templateId"]
        t.add_revision(theirs, image=DIGEST)
        for template, status, code in ((NONE, 404, "NOT_FOUND"), (empty, 409, "TEMPLATE_HAS_NO_REVISION"), (off, 409, "TEMPLATE_DISABLED"),
                                       (old, 409, "TEMPLATE_DEPRECATED"), (theirs, 409, "TEMPLATE_OTHER_APP")):
            answer = self.post(t, self.body(t, templateId=template))
            self.assertEqual((answer.status, answer.code), (status, code))
        self.assertEqual(self.post(t, self.body(t, appId=NONE)).status, 404)
        self.assertEqual(self.rows(t), 0)
        self.assertEqual(self.post(t, self.body(t, appId=app, templateId=theirs)).status, 201)

    def test_volume_modes(self):
        t = self.tenant(warmPool={"desired": 0, "min": 0, "max": 1})
        answer = self.post(t, self.body(t, persistenceMode="DIRECTORY"))
        self.assertEqual(answer.status, 400)
        self.assertIn("persistence modes with a volume are not available on warm pools", answer.json["error"])
        t = self.tenant()
        answer = self.post(t, self.body(t, persistenceMode="EPHEMERAL", volumeName="v"))
        self.assertEqual((answer.status, answer.json["data"]["field"]), (400, "volumeName"))
        self.assertEqual(self.post(t, self.body(t, volumeName="v")).json["data"]["field"], "volumeName")
        answer = self.post(t, self.body(t, persistenceMode="SNAPSHOT"))
        self.assertEqual((answer.status, answer.code), (409, "NO_OBJECT_STORAGE_BACKEND"))
        self.assertEqual(self.rows(t), 0)
        self.stack.backend_dir(t)
        self.assertEqual(self.post(t, self.body(t, persistenceMode="SNAPSHOT", volumeName="none")).status, 404)
        box = self.post(t, self.body(t, persistenceMode="PERSISTENT_VOLUME")).json["sandbox"]
        self.assertEqual((box["persistenceMode"], box["volumeName"]), ("DIRECTORY", "sbvol-" + box["sandboxId"]))

    def test_an_allocated_sandbox_keeps_its_revision(self):
        t = self.tenant()
        first = self.post(t, self.body(t)).json["sandbox"]
        r2 = t.add_revision(image=DIGEST, zClouds=2)
        second = self.post(t, self.body(t)).json["sandbox"]
        self.assertEqual((second["templateRevisionId"], second["templateRevisionNumber"]), (r2["revisionId"], 2))
        self.assertEqual(second["resources"]["zClouds"], 2)
        self.assertEqual(t.get(first)["templateRevisionNumber"], 1)

    # ---- quota

    def test_case_38_quota_under_concurrency(self):
        t = self.tenant(quota=2)
        answers = in_parallel(20, lambda i: self.post(t, self.body(t)))
        self.assertEqual(sorted(a.status for a in answers), [201, 201] + [429] * 18)
        refused = next(a for a in answers if a.status == 429)
        self.assertEqual(refused.code, "QUOTA_EXCEEDED")
        data = refused.json["data"]
        self.assertEqual((data["limit"], data["active"], data["retryable"]), (2, 2, True))
        self.assertIn("retry-after", refused.headers)
        self.assertEqual(self.rows(t), 2)
        box = next(a for a in answers if a.status == 201).json["sandbox"]
        t.wait(box, "READY")
        t.terminate(box)
        self.assertEqual(self.post(t, self.body(t)).status, 201, "a terminated one gives its place back")
        other = self.tenant(quota=1)
        self.assertEqual(self.post(other, self.body(other)).status, 201, "another account's quota is its own")

    # ---- get and list

    def test_another_accounts_sandbox_is_not_there(self):
        t, other = self.tenant(), self.tenant()
        box = self.post(t, self.body(t)).json["sandbox"]["sandboxId"]
        bodies = []
        for sandbox in (box, NONE):
            answer = other.call("GET", f"/sandbox?accountId={other.account}&sandboxId={sandbox}", status=404)
            body = answer.json
            body.pop("requestId")
            bodies.append(body)
            for verb in ("terminate", "pause", "resume"):
                self.assertEqual(other.act(verb, sandbox, status=None).status, 404)
            self.assertEqual(other.execute(sandbox, ["true"], status=None).status, 404)
        self.assertEqual(bodies[0], bodies[1])
        self.assertEqual(other.list()["totalCount"], 0)

    def test_list(self):
        t = self.tenant(quota=200)
        app = self.stack.admin("POST", "/app/create", {"accountId": t.account, "name": "b"})["app"]["appId"]
        made = [self.post(t, self.body(t, appId=app if i % 5 == 0 else t.app)).json["sandbox"]["sandboxId"] for i in range(23)]
        for box in made:
            t.wait(box, "READY")
        t.terminate(made[0])
        page = t.list()
        self.assertEqual((page["accountId"], page["page"], page["limit"], page["totalCount"]), (t.account, 1, 50, 23))
        self.assertEqual([b["sandboxId"] for b in page["sandboxes"]], made[::-1], "newest first")
        pages = [t.list(limit=10, page=n) for n in (1, 2, 3, 4)]
        self.assertEqual([len(p["sandboxes"]) for p in pages], [10, 10, 3, 0])
        self.assertEqual({p["totalCount"] for p in pages}, {23})
        self.assertEqual([b["sandboxId"] for p in pages for b in p["sandboxes"]], made[::-1])
        self.assertEqual(t.list(limit=1000)["limit"], 100)
        ended = t.list(status="TERMINATED")
        self.assertEqual([b["sandboxId"] for b in ended["sandboxes"]], made[:1])
        self.assertEqual(t.list(status="READY,BUSY")["totalCount"], 22)
        self.assertEqual(t.list(status="TERMINATED,%20READY%20,BUSY")["totalCount"], 23, "spaces count for nothing")
        self.assertEqual(t.list(status="READY,NONSENSE")["totalCount"], 22, "unknown statuses are ignored")
        self.assertEqual((t.list(status="NONSENSE")["totalCount"], t.list(status="NONSENSE")["sandboxes"]), (0, []))
        self.assertEqual(t.list(appId=app)["totalCount"], 5)
        self.assertEqual(t.list(appId=NONE)["totalCount"], 0)

    def test_a_cursor_walks_the_list_while_it_grows(self):
        t = self.tenant(quota=200)
        made = [self.post(t, self.body(t)).json["sandbox"]["sandboxId"] for _ in range(17)]
        seen, cursor = [], None
        while True:
            page = t.list(limit=5, **({"cursor": cursor} if cursor else {}))
            seen += [b["sandboxId"] for b in page["sandboxes"]]
            self.post(t, self.body(t))  # newer ones do not move the walk
            cursor = page.get("nextCursor")
            if not cursor:
                break
        self.assertEqual(seen, made[::-1])

    def test_case_13_a_list_after_a_create_shows_it(self):
        t = self.tenant(quota=50)
        for _ in range(20):
            box = self.post(t, self.body(t)).json["sandbox"]["sandboxId"]
            self.assertIn(box, [b["sandboxId"] for b in t.list()["sandboxes"]])

    # ---- audit

    def test_the_audit_has_a_row_of_each_act(self):
        t = self.tenant()
        box = self.post(t, self.body(t)).json["sandbox"]
        t.wait(box, "READY")
        t.execute(box, ["echo", "secret words"], envVars={"SECRET_NAME": "secret value"})
        t.terminate(box)

        def rows():
            found = self.stack.admin("GET", f"/audit?accountId={t.account}&objectId={box['sandboxId']}")["entries"]
            return found if len(found) == 3 else None
        entries = wait_for("three audit rows", rows)[::-1]
        self.assertEqual([e["action"] for e in entries], ["sandbox.create", "sandbox.execute", "sandbox.terminate"])
        self.assertEqual({e["actor"] for e in entries}, {"user:" + t.user})
        self.assertEqual({e["outcome"] for e in entries}, {"ok"})
        self.assertEqual(entries[0]["requestId"], box["correlationId"])
        self.assertEqual(entries[1]["exitCode"], 0)
        self.assertGreaterEqual(entries[1]["durationMs"], 0)
        everything = self.stack.pg.run("pg_dump", "-h", self.stack.pg.socket_dir, "-U", "postgres", "-d", "sandboxd", "--data-only")
        for word in ("secret words", "secret value", "SECRET_NAME"):
            self.assertNotIn(word, everything)
            self.assertNotIn(word, self.stack.plane.log())
        self.assertNotIn(t.token, everything)

    def test_many_creates_at_once_are_all_picked_up(self):
        t = self.tenant(quota=100)
        boxes = [a.json["sandbox"] for a in in_parallel(30, lambda i: self.post(t, self.body(t)))]
        for box in boxes:
            t.wait(box, "READY", timeout=20)
        self.assertEqual(t.list(status="READY")["totalCount"], 30)


if __name__ == "__main__":
    main()
