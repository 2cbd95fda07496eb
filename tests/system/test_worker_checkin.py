"""The worker check-in, live.agent_sandbox.register (contract 7): each refusal with its code and body,
their order, strict JSON, ownership, health, keys that change and keys that are away."""

import http.server
import json
import secrets
import tempfile
import threading
import time

import jwt
from harness import CONTRACT, Client, Plane, SystemTest, main, wait_for

ISSUER = "https://openvibe.network"
CAPABILITY = "live.agent_sandbox.register"
ISOLATION = {"host_network": False, "credentials": False, "profile": False, "egress_proxy": True, "workspace": "ephemeral"}
OWNER = "usr_01ARZ3NDEKTSV4RRFFQ69G5FAV"
OTHER = "usr_01ARZ3NDEKTSV4RRFFQ69G5FAW"
BODY = {"worker_id": "worker-1", "isolation": ISOLATION}


class KeyServer:
    """Serves a JWKS; `keys` None answers 503."""

    def __init__(self, keys):
        outer = self
        self.keys, self.fetches = keys, 0

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.fetches += 1
                body = json.dumps(outer.keys).encode()
                self.send_response(200 if outer.keys else 503)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/jwks"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class CheckIn(SystemTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="sbx-keys-")
        cls.key = jwt.Key(cls.folder.name, "RS256", "one")
        cls.key_server = KeyServer(jwt.jwks(cls.key))
        cls.stack_options = {"regions": 0, "sandboxd": {"openvibe.jwks_url": cls.key_server.url}}
        super().setUpClass()
        cls.client = Client(cls.stack.plane.url)
        cls.owner, cls.owner_token = cls.person(OWNER)
        cls.other, cls.other_token = cls.person(OTHER)
        cls.admin = cls.stack.admin
        cls.admin("POST", "/stream/create", {"streamId": "mine", "ownerUserId": cls.owner})
        cls.admin("POST", "/stream/create", {"streamId": "foreign", "ownerUserId": cls.other})
        cls.good = cls.token()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.key_server.close()
        cls.folder.cleanup()

    @classmethod
    def person(cls, subject):
        user = cls.stack.admin("POST", "/user/create", {"email": f"{secrets.token_hex(6)}@example.test",
                                                        "subject": subject})["user"]["userId"]
        return user, cls.stack.admin("POST", "/token/create", {"kind": "user", "userId": user})["secret"]

    @classmethod
    def claims(cls, **change):
        now = int(time.time())
        claims = {"iss": ISSUER, "sub": "svc:codes", "actor_type": "service", "aud": ["openvibe.live"],
                  "cap": [CAPABILITY], "iat": now, "exp": now + 600, "jti": secrets.token_hex(8)}
        claims.update(change)
        return {k: v for k, v in claims.items() if v is not ...}

    @classmethod
    def token(cls, key=None, header=None, **change):
        return (key or cls.key).token(cls.claims(**change), **(header or {}))

    def ask(self, body=BODY, token=..., subject=OWNER, stream="mine", method="POST", headers=None, client=None):
        token = self.good if token is ... else token
        sent = {"X-OV-Subject": subject, "Authorization": "Bearer " + token if token else None, **(headers or {})}
        sent = {k: v for k, v in sent.items() if v is not None}
        return (client or self.client).request(method, f"/api/streams/agent/{stream}/plays/worker", body, headers=sent)

    def refused(self, answer, status, code):
        self.assertEqual((answer.status, answer.code), (status, code), answer)
        self.assertEqual(answer.headers["content-type"], "application/problem+json")
        j = answer.json
        self.assertEqual(j["type"], "https://openvibe.network/problems/" + code)
        self.assertEqual(j["status"], status)
        self.assertEqual(j["request_id"], answer.headers["x-request-id"])
        self.assertTrue(j["title"])
        self.assertEqual(j["error"], j.get("detail", j["title"]))
        self.assertLessEqual(set(j), {"type", "title", "status", "code", "detail", "request_id", "errors", "error"})
        return j

    def workers(self, stream="mine", **kw):
        answer = self.ask(None, stream=stream, method="GET", **kw)
        self.assertEqual(answer.status, 200, answer)
        return {w["worker_id"]: w for w in answer.json["workers"]}

    def sql(self, text):
        return self.stack.pg.psql(text)

    # ---- the good way

    def test_first_201_then_200(self):
        body = {"worker_id": "host-1.example", "isolation": ISOLATION, "version": "1.2"}
        first = self.ask(body)
        self.assertEqual(first.status, 201, first)
        self.assertEqual(set(first.json), {"worker_id", "stream_id", "registered_at", "last_check_in_at", "healthy_until"})
        self.assertEqual((first.json["worker_id"], first.json["stream_id"]), ("host-1.example", "mine"))
        again = self.ask(body)
        self.assertEqual(again.status, 200, again)
        self.assertEqual(again.json["registered_at"], first.json["registered_at"])
        self.assertGreaterEqual(again.json["last_check_in_at"], first.json["last_check_in_at"])
        self.assertEqual(self.ask({**body, "worker_id": "plain", "version": ""}).status, 201)
        self.assertNotIn("version", self.workers()["plain"])
        listed = self.workers()["host-1.example"]
        self.assertEqual((listed["version"], listed["healthy"]), ("1.2", True))
        self.assertEqual(listed["healthy_until"], again.json["healthy_until"])
        for raw in (self.good, "bearer " + self.good):  # the bare token, and the scheme in any case
            self.assertEqual(self.ask(body, token=None, headers={"Authorization": raw}).status, 200)
        rows = self.sql("SELECT actor, object_id FROM sandboxd.audit WHERE action = 'worker.register' AND object_id = 'mine'")
        self.assertIn(["service:svc:codes", "mine"], rows)

    def test_capabilities(self):
        for cap in (["live.*"], ["codes.x", "live.agent_sandbox.*"], [CAPABILITY]):
            self.assertIn(self.ask(token=self.token(cap=cap)).status, (200, 201), cap)
        for cap in ([], ["*"], ["live.agent_sandbox.register.*"], ["live"], ["live:write"], ["live.agent"]):
            self.refused(self.ask(token=self.token(cap=cap)), 403, "capability.denied")

    # ---- the token

    def test_each_token_refusal(self):
        now = int(time.time())
        stranger = jwt.Key(self.folder.name, "RS256", "stranger")
        rows = [
            (None, "token.missing"),
            ("wpt_0123456789abcdef", "token.malformed"),
            ("hbt_0123456789abcdef", "token.malformed"),
            ("a.b.c", "token.malformed"),
            (self.good.rsplit(".", 1)[0] + ".", "token.malformed"),
            (self.token(header={"alg": "none"}), "token.malformed"),
            (self.token(header={"alg": "HS256"}), "token.malformed"),
            (jwt.Key(self.folder.name, "ES256").token(self.claims()), "token.malformed"),
            (self.owner_token, "token.malformed"),
            (self.token(stranger, {"kid": "one"}), "token.bad_signature"),
            (self.token(header={"kid": "unknown"}), "token.bad_signature"),
            (self.token(exp=now - 60), "token.expired"),
            (self.token(iat=now + 120), "token.expired"),
            (self.token(nbf=now + 120), "token.expired"),
            (self.token(iss="https://evil.example"), "token.wrong_issuer"),
            (self.token(aud=["openvibe.codes"]), "token.wrong_audience"),
            (self.token(aud="openvibe.live"), "token.invalid_claims"),
            (self.token(jti="1234567"), "token.invalid_claims"),
            (self.token(exp=...), "token.invalid_claims"),
            (self.token(cap="live.*"), "token.invalid_claims"),
            (self.token(sub=...), "token.invalid_claims"),
            (self.token(env="sandbox"), "token.sandbox_refused"),
        ]
        for token, code in rows:
            with self.subTest(code=code):
                # whatever else is wrong: the token speaks first
                self.refused(self.ask({"x": 1}, token=token, subject="nobody", stream="foreign"), 401, code)
        self.refused(self.ask(token=self.token(actor_type="person")), 403, "capability.denied")
        self.refused(self.ask(token=self.token(sub="usr_1")), 403, "capability.denied")

    def test_skew_is_thirty_seconds(self):
        now = int(time.time())
        self.assertIn(self.ask(token=self.token(iat=now - 600, exp=now - 25)).status, (200, 201))
        self.assertIn(self.ask(token=self.token(iat=now + 29)).status, (200, 201))
        self.refused(self.ask(token=self.token(iat=now - 600, exp=now - 31)), 401, "token.expired")

    def test_the_public_key_is_no_secret(self):
        import hashlib
        import hmac
        for secret in (self.key.public_pem().encode(), self.key.public_der()):
            for alg in ("HS256", "RS256"):
                head = jwt.b64(json.dumps({"alg": alg, "kid": "one"}).encode())
                signed = head + "." + jwt.b64(json.dumps(self.claims()).encode())
                forged = signed + "." + jwt.b64(hmac.new(secret, signed.encode(), hashlib.sha256).digest())
                self.refused(self.ask(token=forged), 401, "token.malformed" if alg == "HS256" else "token.bad_signature")

    def test_a_second_credential_is_ignored(self):
        cookie = {"Cookie": "session=" + self.owner_token}
        self.refused(self.ask(token=None, headers=cookie), 401, "token.missing")
        self.assertIn(self.ask(headers=cookie).status, (200, 201))
        self.refused(self.ask(token=self.owner_token, headers=cookie), 401, "token.malformed")

    # ---- the subject and the stream

    def raw(self, *headers, stream="mine", body=None, method="POST", request_id="request-same-1"):
        data = json.dumps(BODY).encode() if body is None else body
        head = (f"{method} /api/streams/agent/{stream}/plays/worker HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                f"Authorization: {self.good}\r\nX-Request-Id: {request_id}\r\nContent-Length: {len(data)}\r\n"
                + "".join(h + "\r\n" for h in headers) + "\r\n").encode()
        answer = self.client.raw(head + data)
        status, _, body = answer.partition(b"\r\n\r\n")
        return int(status.split()[1]), body

    def test_subject(self):
        self.refused(self.ask(subject=None), 403, "subject.required")
        for bad in ("usr_01arz3ndektsv4rrffq69g5fav", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "usr_", OWNER + "x", "svc:codes"):
            self.refused(self.ask(subject=bad), 400, "subject.invalid")
        kind = "Content-Type: application/json"
        status, body = self.raw(kind, f"X-OV-Subject: {OWNER}", f"X-OV-Subject: {OWNER}")
        self.assertEqual((status, json.loads(body)["code"]), (400, "subject.invalid"))

    def test_a_foreign_stream_equals_a_missing_one(self):
        kind, subject = "Content-Type: application/json", f"X-OV-Subject: {OWNER}"
        for headers, body in (((kind, subject), None), ((kind, subject), b"{"), ((kind, subject), b'{"isolation":1}'),
                              (("Content-Type: text/plain", subject), b"x"), ((kind, subject), b" " * 1100000)):
            foreign = self.raw(*headers, stream="foreign", body=body)
            missing = self.raw(*headers, stream="no-such", body=body)
            self.assertEqual(foreign, missing)
            self.assertEqual((foreign[0], json.loads(foreign[1])["code"]), (404, "stream.not_found"))
        self.refused(self.ask(stream="a.b"), 404, "stream.not_found")
        self.refused(self.ask(stream="x" * 65), 404, "stream.not_found")
        self.refused(self.ask(subject="usr_7ZZZZZZZZZZZZZZZZZZZZZZZZZ"), 404, "stream.not_found")  # nobody of ours
        self.assertEqual(self.ask(subject=OTHER, stream="foreign").status, 201)

    # ---- the body

    def test_strict_json(self):
        def without(key):
            return {k: v for k, v in ISOLATION.items() if k != key}

        rows = [
            (None, [""]),
            ([], [""]),
            ({}, ["/isolation", "/worker_id"]),
            ({"worker_id": "w", "isolation": None}, ["/isolation"]),
            ({"worker_id": "w", "isolation": []}, ["/isolation"]),
            ({**BODY, "worker_id": ""}, ["/worker_id"]),
            ({**BODY, "worker_id": "a b"}, ["/worker_id"]),
            ({**BODY, "worker_id": "x" * 65}, ["/worker_id"]),
            ({**BODY, "worker_id": 7}, ["/worker_id"]),
            ({**BODY, "version": "v" * 65}, ["/version"]),
            ({**BODY, "version": None}, ["/version"]),
            ({**BODY, "endpoint": "http://x"}, ["/endpoint"]),
            ({**BODY, "healthy": True, "last_check_in_at": "now"}, ["/healthy", "/last_check_in_at"]),
            ({**BODY, "a/b~c": 1}, ["/a~1b~0c"]),
            ({**BODY, **{f"k{i}": i for i in range(100)}}, [f"/k{i}" for i in range(100)]),
            ({**BODY, "isolation": {**ISOLATION, "extra": 1}}, ["/isolation/extra"]),
        ]
        for key in ISOLATION:
            rows.append(({**BODY, "isolation": without(key)}, ["/isolation/" + key]))
            for wrong in (0, 1, None, "false", [], {}) if key != "workspace" else (0, None, True, ["ephemeral"]):
                rows.append(({**BODY, "isolation": {**ISOLATION, key: wrong}}, ["/isolation/" + key]))
        for body, paths in rows:
            with self.subTest(body=body):
                data = b"" if body is None else json.dumps(body).encode()
                answer = self.ask(data, headers={"Content-Type": "application/json"})
                problem = self.refused(answer, 400, "request.invalid")
                self.assertEqual(sorted(e["path"] for e in problem["errors"]), sorted(paths))
                self.assertTrue(all(e["message"] for e in problem["errors"]))

    def test_bytes_that_are_no_good_json(self):
        good = json.dumps(BODY)
        for data in ("{", "x", good + "x", good[:-1] + ',"worker_id":"w"}', '{"isolation":{"profile":false,"profile":false}}',
                     good.replace("worker-1", "\\ud800"), "[" * 10000):
            problem = self.refused(self.ask(data.encode(), headers={"Content-Type": "application/json"}), 400, "request.invalid")
            self.assertEqual([e["path"] for e in problem["errors"]], [""])

    def test_what_is_not_isolated_is_refused_and_not_stored(self):
        name = {"worker_id": "leaky"}
        bad = {"host_network": True, "credentials": True, "profile": True, "egress_proxy": False, "workspace": "persistent"}
        for key, value in bad.items():
            problem = self.refused(self.ask({**name, "isolation": {**ISOLATION, key: value}}), 422, "isolation.refused")
            self.assertEqual([e["path"] for e in problem["errors"]], ["/isolation/" + key])
            self.assertIn(key, problem["detail"])
        problem = self.refused(self.ask({**name, "isolation": bad}), 422, "isolation.refused")
        self.assertEqual([e["path"] for e in problem["errors"]], ["/isolation/" + k for k in bad])
        self.assertNotIn("leaky", self.workers())
        # an earlier check-in is not refreshed
        self.assertEqual(self.ask({**name, "isolation": ISOLATION}).status, 201)
        before = self.workers()["leaky"]
        time.sleep(0.01)
        self.refused(self.ask({**name, "isolation": bad}), 422, "isolation.refused")
        self.assertEqual(self.workers()["leaky"]["last_check_in_at"], before["last_check_in_at"])

    def test_http_refusals_are_problems_too(self):
        answer = self.ask(method="DELETE", body=None)
        self.refused(answer, 405, "request.method_not_allowed")
        self.assertEqual(answer.headers["allow"], "GET, HEAD, POST")
        self.refused(self.ask(b"{}", headers={"Content-Type": "text/plain"}), 415, "request.unsupported_media_type")
        self.refused(self.ask(b" " * (1024 * 1024 + 1), headers={"Content-Type": "application/json"}), 413, "request.too_large")

    # ---- health and reading

    def test_health_is_computed_when_it_is_read(self):
        self.ask({"worker_id": "old", "isolation": ISOLATION})
        for seconds, healthy in (("- interval '59 s'", True), ("- interval '61 s'", False), ("+ interval '30 s'", False)):
            self.sql("UPDATE sandboxd.workers SET last_check_in_at = date_trunc('milliseconds', now()) "
                     f"{seconds} WHERE worker_id = 'old'")
            self.assertIs(self.workers()["old"]["healthy"], healthy, seconds)
        self.assertEqual(self.ask({"worker_id": "old", "isolation": ISOLATION}).status, 200)
        self.assertIs(self.workers()["old"]["healthy"], True)

    def test_who_reads(self):
        self.ask()
        self.assertIn("worker-1", self.workers(token=self.owner_token, subject=None))
        mcp = self.admin("POST", "/token/create", {"kind": "mcp", "userId": self.owner, "scopes": ["quave:read"]})["secret"]
        self.assertIn("worker-1", self.workers(token=mcp, subject=None))
        blind = self.admin("POST", "/token/create", {"kind": "mcp", "userId": self.owner,
                                                     "scopes": ["quave:write:deploy"]})["secret"]
        self.refused(self.ask(None, token=blind, method="GET"), 403, "capability.denied")
        self.refused(self.ask(None, token=self.other_token, method="GET"), 404, "stream.not_found")
        self.refused(self.ask(None, token=self.owner_token, method="GET", stream="no-such"), 404, "stream.not_found")
        self.refused(self.ask(None, token=None, method="GET"), 401, "token.missing")
        self.refused(self.ask(None, subject=None, method="GET"), 403, "subject.required")
        self.refused(self.ask(None, subject=OTHER, method="GET"), 404, "stream.not_found")
        self.refused(self.ask(None, token=jwt.opaque("user"), method="GET"), 401, "token.malformed")

    def test_workers_of_a_stream_are_bounded(self):
        self.admin("POST", "/stream/create", {"streamId": "many", "ownerUserId": self.owner})
        for i in range(70):
            self.assertEqual(self.ask({"worker_id": f"w{i}", "isolation": ISOLATION}, stream="many").status, 201)
        kept = self.workers("many")
        self.assertEqual(len(kept), 64)
        self.assertIn("w69", kept)
        self.assertNotIn("w0", kept)

    # ---- the operator

    def test_streams_of_the_operator(self):
        created = self.admin("POST", "/stream/create", {"streamId": "temp_1", "ownerUserId": self.owner})["stream"]
        self.assertEqual((created["streamId"], created["ownerUserId"]), ("temp_1", self.owner))
        self.assertIn("temp_1", [s["streamId"] for s in self.admin("GET", "/streams")["streams"]])
        self.admin("POST", "/stream/create", {"streamId": "temp_1", "ownerUserId": self.owner}, status=409)
        self.admin("POST", "/stream/create", {"streamId": "a.b", "ownerUserId": self.owner}, status=400)
        self.admin("POST", "/stream/create", {"streamId": "temp_2", "ownerUserId": "0" * 26}, status=404)
        self.assertEqual(self.ask(stream="temp_1").status, 201)
        self.admin("POST", "/stream/remove", {"streamId": "temp_1"})
        self.refused(self.ask(stream="temp_1"), 404, "stream.not_found")
        self.admin("POST", "/stream/remove", {"streamId": "temp_1"}, status=404)
        made = self.stack.ctl_json("stream", "create", "--id", "by-ctl", "--owner", self.owner)["stream"]
        self.assertEqual(made["streamId"], "by-ctl")
        self.assertIn(b"by-ctl", self.stack.ctl("stream", "list")[0])
        self.assertTrue(self.stack.ctl_json("stream", "remove", "by-ctl")["success"])

    def test_the_manifest(self):
        answer = self.client.get("/.well-known/capabilities/" + CAPABILITY)
        self.assertEqual(answer.status, 200)
        j = answer.json
        description = j.pop("description")
        self.assertTrue(description.startswith("The chat plays sandbox worker checks in for the person it works for"))
        self.assertTrue(description.endswith("its own Network service client for the audience openvibe.live."))
        self.assertEqual(j, {
            "id": CAPABILITY, "version": "1.0", "owner": "live", "status": "active", "visibility": "internal",
            "permissions": ["live:write"], "resourceConstraints": ["owner"], "quotaClass": "standard", "events": [],
            "inputSchema": "live.agent-sandbox-worker-request@1", "outputSchema": "live.agent-sandbox-worker-result@1",
            "implementedBy": ["POST /api/streams/agent/:id/plays/worker"]})

    # ---- keys

    def test_keys_that_are_away_and_none_at_all(self):
        self.assertIn(self.ask().status, (200, 201))
        fetches, self.key_server.keys = self.key_server.fetches, None
        try:
            self.assertIn(self.ask().status, (200, 201))  # the last good keys go on
            for _ in range(5):  # an unknown kid asks the source at most every 30 s
                self.refused(self.ask(token=self.token(header={"kid": "unknown"})), 401, "token.bad_signature")
            self.assertLessEqual(self.key_server.fetches - fetches, 1)
        finally:
            self.key_server.keys = jwt.jwks(self.key)
        bare = Plane(self.stack, 7, {})
        pem = Plane(self.stack, 8, {"openvibe.keys_file": self.pem_file(), "openvibe.issuer": "https://other.example"})
        try:
            bare.start()
            client = Client(bare.url)
            answer = self.ask(client=client)
            self.refused(answer, 503, "identity.unavailable")
            self.assertIn("retry-after", answer.headers)
            self.refused(self.ask(token="wpt_1", client=client), 401, "token.malformed")
            pem.start()
            client = Client(pem.url)
            self.refused(self.ask(client=client), 401, "token.wrong_issuer")
            self.assertIn(self.ask(token=self.token(iss="https://other.example", header={"kid": "any"}), client=client).status,
                          (200, 201))
        finally:
            for plane in (bare, pem):
                plane.stop()

    def test_zz_a_new_key_is_found_by_its_kid(self):
        second = jwt.Key(self.folder.name, "RS256", "two")
        self.key_server.keys = jwt.jwks(self.key, second)
        token = self.token(second)
        wait_for("the new key serves", lambda: self.ask(token=token).status in (200, 201), 40, every=1)
        self.assertIn(self.ask().status, (200, 201))

    def pem_file(self):
        path = self.stack.dir + "/network.pem"
        with open(path, "w") as f:
            f.write(self.key.public_pem())
        return path

    def test_z_every_endpoint_was_held_to_the_description(self):
        self.assertEqual(CONTRACT.unseen("worker_"), [])


if __name__ == "__main__":
    main()
