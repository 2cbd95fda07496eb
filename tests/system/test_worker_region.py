"""The region host as a sandbox worker: a real region measures its own sandboxes and checks in with a
real control plane, with a token from a local token server (contract 7)."""
# ctest: timeout 240

import base64
import http.server
import json
import os
import tempfile
import threading
import time
import urllib.parse

import jwt
from harness import Client, SystemTest, busybox_rootfs, main, wait_for

SUBJECT = "usr_01ARZ3NDEKTSV4RRFFQ69G5FAV"
SECRET = "client-secret-0123456789"


class Identity:
    """The network's token endpoint and its JWKS."""

    def __init__(self, key):
        outer = self
        self.key, self.asked, self.refuse, self.expires_in, self.cap = key, [], False, 3600, "live.agent_sandbox.register"

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self, status, body):
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self):
                self.answer(200, jwt.jwks(outer.key))

            def do_POST(self):
                form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                outer.asked.append((self.headers["Authorization"], form))
                if outer.refuse:
                    self.answer(401, {"error": "invalid_client"})
                    return
                now = int(time.time())
                token = outer.key.token({"iss": "https://openvibe.network", "sub": "svc:codes", "actor_type": "service",
                                         "aud": ["openvibe.live"], "cap": [outer.cap], "iat": now,
                                         "exp": now + outer.expires_in, "jti": f"token-{len(outer.asked):08}"})
                self.answer(200, {"access_token": token, "token_type": "Bearer", "expires_in": outer.expires_in})

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class RegionWorker(SystemTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="sbx-keys-")
        cls.identity = Identity(jwt.Key(cls.folder.name, "RS256", "one"))
        cls.stack_options = {"sandboxd": {"openvibe.jwks_url": cls.identity.url + "/jwks",
                                          "sandboxes.region_sweep_ms": 1000}}
        super().setUpClass()
        admin = cls.stack.admin
        cls.user = admin("POST", "/user/create", {"email": "o@example.test", "subject": SUBJECT})["user"]["userId"]
        cls.token = admin("POST", "/token/create", {"kind": "user", "userId": cls.user})["secret"]
        admin("POST", "/stream/create", {"streamId": "plays", "ownerUserId": cls.user})
        cls.image = cls.stack.image()
        cls.secret_file = os.path.join(cls.folder.name, "client.secret")
        with open(cls.secret_file, "w") as f:
            f.write(SECRET + "\n")

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.identity.close()
        cls.folder.cleanup()

    def restart(self, **options):
        """The region again, as the worker of that name."""
        region = self.stack.region
        region.stop()
        self.from_here = len(region.log())
        region.options = {
            "openvibe.url": self.stack.plane.url, "openvibe.token_url": self.identity.url + "/token",
            "openvibe.client_id": "region client", "openvibe.client_secret_file": self.secret_file,
            "openvibe.streams": ["plays=" + SUBJECT], "openvibe.image": self.image, "openvibe.domains": ["example.com"],
            "openvibe.interval_s": 1, **{"openvibe." + k: v for k, v in options.items()}}
        region.start()

    def lines(self, msg):
        out = []
        for line in self.stack.region.log()[self.from_here:].splitlines():
            if line.startswith("{") and json.loads(line).get("msg") == msg:
                out.append(json.loads(line))
        return out

    def workers(self):
        answer = Client(self.stack.plane.url, token=self.token).get("/api/streams/agent/plays/plays/worker")
        self.assertEqual(answer.status, 200, answer)
        return {w["worker_id"]: w for w in answer.json["workers"]}

    def test_it_measures_and_checks_in(self):
        self.identity.asked.clear()
        self.restart(worker_id="host-a")
        seen = wait_for("the worker is healthy", lambda: self.workers().get("host-a", {}).get("healthy") and self.workers()["host-a"], 60)
        self.assertTrue(seen["version"].startswith("sandbox-region/"))
        measured = self.lines("isolation measured")[0]
        self.assertEqual({k: measured[k] for k in ("hostNetwork", "credentials", "profile", "egressProxy", "ephemeral")},
                         {"hostNetwork": False, "credentials": False, "profile": False, "egressProxy": True, "ephemeral": True},
                         measured)
        self.assertNotIn("found", measured)
        # again and again, with one token
        wait_for("it is refreshed", lambda: self.workers()["host-a"]["last_check_in_at"] > seen["last_check_in_at"], 20)
        self.assertEqual(len(self.identity.asked), 1)
        authorization, form = self.identity.asked[0]
        self.assertEqual(base64.b64decode(authorization.split()[1]).decode(), "region%20client:" + SECRET)
        self.assertEqual(form, {"grant_type": ["client_credentials"], "audience": ["openvibe.live"],
                                "scope": ["live.agent_sandbox.register"]})
        # nothing of the probe is left, and the control plane never took one for a stray
        client = self.stack.region.client()
        self.assertEqual(client.get("/v1/sandboxes").json["sandboxes"], [])
        self.assertEqual(client.get("/v1/sandboxes?probes=true").json["sandboxes"], [])
        self.assertNotIn(SECRET, self.stack.region.log())

    def test_what_it_finds_it_says_and_is_refused(self):
        def leak(rootfs):
            os.makedirs(os.path.join(rootfs, "root/.aws"))
            with open(os.path.join(rootfs, "root/.aws/credentials"), "w") as f:
                f.write("[default]\n")

        rootfs = busybox_rootfs(os.path.join(self.stack.dir, "rootfs-leaky"))
        leak(rootfs)
        leaky = self.stack.import_rootfs(rootfs, "leaky")
        self.restart(worker_id="host-b", image=leaky)
        failed = wait_for("it is refused", lambda: self.lines("check-in failed"), 60)[0]
        self.assertIn("422 isolation.refused", failed["error"])
        self.assertIn("credentials", failed["error"])
        self.assertEqual(failed["measured"], "credentials: /root/.aws/credentials")
        self.assertEqual(failed["streamId"], "plays")
        self.assertNotIn("host-b", self.workers())

    def test_what_cannot_be_measured_is_not_isolated(self):
        self.restart(worker_id="host-c", image="nothing@sha256:" + "0" * 64)
        failed = wait_for("it is refused", lambda: self.lines("check-in failed"), 60)[0]
        self.assertIn("422 isolation.refused", failed["error"])
        self.assertIn("not measured", failed["measured"])
        self.assertNotIn("host-c", self.workers())

    def test_refusals_are_told_and_backed_off(self):
        self.identity.refuse = True
        try:
            self.restart(worker_id="host-d")
            failed = wait_for("the token is refused", lambda: self.lines("check-in failed"), 60)[0]
            self.assertIn("token server answered 401", failed["error"])
            self.identity.asked.clear()
            time.sleep(4)
            self.assertLessEqual(len(self.identity.asked), 3)  # 2 s, 4 s: not every second
        finally:
            self.identity.refuse = False
        self.identity.cap = "codes.*"
        try:
            self.restart(worker_id="host-d")
            failed = wait_for("the capability is missing", lambda: self.lines("check-in failed"), 60)[0]
            self.assertIn("403 capability.denied", failed["error"])
        finally:
            self.identity.cap = "live.agent_sandbox.register"

    def test_a_token_is_renewed_before_its_end(self):
        self.identity.expires_in = 62  # a minute early: after two seconds
        self.identity.asked.clear()
        try:
            self.restart(worker_id="host-e")
            wait_for("a second token", lambda: len(self.identity.asked) >= 2, 60)
            self.assertTrue(self.workers()["host-e"]["healthy"])
        finally:
            self.identity.expires_in = 3600


if __name__ == "__main__":
    main()
