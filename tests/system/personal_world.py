"""What the tests of personal Warren runs share: an owner, an installation with its principal, a GitHub, and an image with
an entrypoint that proves what it received (warren_run.c)."""

import json
import os
import secrets
import shutil
import tempfile
import time

import jwt
from github_server import GitHub, repo
from harness import BUILD, PUBLIC, Client, SystemTest, busybox_rootfs, wait_for

RUNS = PUBLIC + "/sandbox-orchestrator/codex-runs"
OWN = PUBLIC + "/solution-connections"
HOST = "https://warren.example.test"
PLANTED = "planted-" + secrets.token_hex(8)     # stands in every secret of these tests


class World:
    """One account with its owner, installation, principal, holder template and connection."""

    def __init__(self, test, image):
        self.test, self.stack = test, test.stack
        self.tenant = self.stack.tenant(image=image, hardLifetimeSeconds=600)
        self.account = self.tenant.account
        self.owner = Client(self.stack.plane.url, token=self.tenant.token)
        self.key = test.key
        self.installation, self.principal = self.install()
        self.github_token = test.github.token
        saved = self.own("POST", "/save", {
            "accountId": self.account, "installationId": self.installation, "appId": self.tenant.app,
            "templateId": self.tenant.template, "region": self.tenant.region}, 200)
        self.connection = saved["connection"]["connectionId"]

    def another_principal(self):
        principal = self.stack.admin("POST", "/principal/create", {
            "installationId": self.installation,
            "permissions": ["sandbox:create", "sandbox:read", "sandbox:terminate"]})["principal"]
        token = self.stack.admin("POST", "/token/create", {"kind": "principal", "principalId": principal["principalId"]})
        return Client(self.stack.plane.url, token=token["secret"])

    def reset(self, status=200):
        return self.own("POST", "/reset", {"accountId": self.account, "connectionId": self.connection}, status)["connection"]

    def roles(self, *roles):
        """What the owner may in the account from now on."""
        self.stack.admin("POST", "/member/add", {"accountId": self.account, "userId": self.tenant.user, "roles": list(roles)})

    def row(self, run_id, column):
        return self.stack.pg.psql(f"SELECT {column} FROM sandboxd.operations WHERE run_id = '{run_id}'")[0][0]

    def claimed(self, **does):
        """Signs in when needed, reserves and claims; gives the run's id and its callback tokens."""
        run_id = "run-" + secrets.token_hex(4)
        if self.state()["state"] == "ABSENT":
            self.sign_in()
        tokens = self.tokens(run_id)
        self.claim(self.reserve(self.task(run_id, tokens, **does))["grant"], run_id)
        return run_id, tokens

    def install(self):
        inst = self.stack.admin("POST", "/installation/create", {
            "accountId": self.account, "controlHost": HOST, "callbackKey": self.test.pem})["installation"]
        principal = self.stack.admin("POST", "/principal/create", {
            "installationId": inst["installationId"],
            "permissions": ["sandbox:create", "sandbox:read", "sandbox:terminate"]})["principal"]
        token = self.stack.admin("POST", "/token/create", {"kind": "principal", "principalId": principal["principalId"]})
        return inst["installationId"], Client(self.stack.plane.url, token=token["secret"])

    def own(self, method, path, body=None, status=None, client=None):
        answer = (client or self.owner).request(method, OWN + path, body)
        self.test.heard(path, answer)
        if status is not None:
            self.test.assertEqual(answer.status, status, f"{method} {path}: {answer}")
            return answer.json
        return answer

    def run(self, method, path, body=None, status=None, client=None):
        answer = (client or self.principal).request(method, RUNS + path, body, timeout=60)
        self.test.heard(path, answer)
        if status is not None:
            self.test.assertEqual(answer.status, status, f"{method} {path}: {answer}")
            return answer.json
        return answer

    def state(self):
        listed = self.own("GET", f"?accountId={self.account}", status=200)["connections"]
        return next(k for k in listed if k["connectionId"] == self.connection)

    def sign_in(self, auth=None):
        self.auth = auth or f"auth-{PLANTED}-{secrets.token_hex(4)}"
        return self.own("POST", "/sign-in", {"accountId": self.account, "connectionId": self.connection,
                                             "authFile": self.auth, "githubToken": self.github_token}, 200)["connection"]

    def tokens(self, run_id, **changes):
        claims = {"runId": run_id, "iss": HOST, "exp": int(time.time()) + 300, "note": PLANTED}
        make = lambda audience: self.key.token({**claims, "aud": audience, **changes})
        return {"callbackToken": make("warren-callback"), "eventIngestToken": make("warren-events")}

    def task(self, run_id, tokens, repository="o/n", **does):
        expect = {"auth": self.auth, "github": self.github_token, "runId": run_id, "controlHost": HOST,
                  "repository": repository, **tokens}
        self.next_auth = f"next-{PLANTED}-{secrets.token_hex(4)}"
        prompt = {"expect": expect, "refresh": self.next_auth, "exit": 0, **does}
        return {"repository": repository, "baseBranch": "main", "model": "m-1", "tokenLimit": 1000,
                "timeLimitSeconds": 300, "prompt": json.dumps(prompt)}

    def reserve(self, task, status=201):
        return self.own("POST", "/reserve", {"accountId": self.account, "connectionId": self.connection, "task": task},
                        status)

    def claim(self, grant, run_id, status=200, client=None):
        return self.run("POST", "/claim", {"grant": grant, "runId": run_id}, status, client)

    def holder(self, run_id):
        self.run("POST", f"/{run_id}/sandbox", None, 200)
        return wait_for("the holder is ready", lambda: self.phase(run_id, "ready"), 60)

    def phase(self, run_id, wanted):
        got = self.run("GET", f"/{run_id}/sandbox", status=200)
        if got["phase"] in ("terminated", "quarantined") and got["phase"] != wanted:
            raise AssertionError(f"phase {got['phase']}, wanted {wanted}")
        return got if got["phase"] == wanted else None

    def exited(self, run_id):
        def check():
            got = self.run("GET", f"/{run_id}/execution", status=200)
            return got if got["phase"] == "exited" else None
        return wait_for("the execution has exited", check, 60)

    def clean_up(self, run_id):
        def check():
            got = self.run("DELETE", f"/{run_id}/sandbox", status=200)
            return got if got["cleanupComplete"] else None
        got = wait_for("cleanup is complete", check, 60, every=0.2)
        self.test.assertEqual(got["phase"], "terminated")
        return got

    def begin(self, **does):
        """Signs in when needed, reserves, claims, allocates and starts one run; gives its id."""
        run_id, tokens = self.claimed(**does)
        self.holder(run_id)
        self.run("POST", f"/{run_id}/execution", tokens, 200)
        return run_id


class PersonalTest(SystemTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="sbx-runs-")
        os.chmod(cls.folder, 0o755)
        cls.github = GitHub(cls.folder, token=f"gh-{PLANTED}")
        cls.github.repos["o/n"] = repo()
        os.chmod(cls.github.ca_file, 0o644)
        cls.stack_options = {"sandboxd": {"github.url": cls.github.url, "github.ca_file": cls.github.ca_file}}
        cls.key = jwt.Key(cls.folder, "EdDSA")
        cls.pem = jwt._run("openssl", "pkey", "-in", cls.key.path, "-pubout").decode()
        super().setUpClass()
        rootfs = busybox_rootfs(os.path.join(cls.folder, "rootfs"))
        os.makedirs(os.path.join(rootfs, "opt/warren"))
        shutil.copy(os.path.join(BUILD, "warren_run"), os.path.join(rootfs, "opt/warren/run"))
        os.chmod(os.path.join(rootfs, "opt/warren/run"), 0o755)
        cls.image = cls.stack.import_rootfs(rootfs, "warren")

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.github.stop()
        shutil.rmtree(cls.folder, ignore_errors=True)

    answers = []        # of every call that a world made, without the one that shows a grant

    def heard(self, path, answer):
        if path != "/reserve" or answer.status != 201:
            self.answers.append(answer.body)

    def world(self):
        self.github.repos["o/n"] = repo()
        return World(self, self.image)
