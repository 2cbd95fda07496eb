"""Every public route times every token kind, scope, role, entitlement and foreign account.

What is expected is computed here from the documented rule (contract 1, and the seed's scope of each
operation), not from the program: 401 token, 403 token kind, 403 scope, 400 shape, 403 account,
403 entitlement, 403 role, then existence and state.
"""

# ctest: timeout 300

import http.client
import json
import time

import jwt
from harness import PUBLIC, SystemTest, main

ROLES = ("admin", "technical", "billing", "pod-access", "manage-members", "audit", "manage-credentials", "member")
SCOPES = ("quave:read", "quave:write:deploy", "quave:write:config", "quave:write:dangerous")
WRITERS = ("admin", "technical")
DIGEST = "repo/image@sha256:" + "0" * 64
NONE = "0" * 26  # an id of the right form that nothing has

R, DEPLOY, CONFIG, DANGER = SCOPES
# method, path, scope, does it write?, a request of the right shape, what a caller who passes gets
PERSONS = [
    ("GET", "/sandboxes", R, False, {}, 200),
    ("GET", "/sandbox", R, False, {"sandboxId": NONE}, 404),
    ("GET", "/sandbox-templates", R, False, {}, 200),
    ("GET", "/sandbox-template", R, False, {"templateId": NONE}, 404),
    ("GET", "/shared-volumes", R, False, {}, 200),
    ("GET", "/shared-volume", R, False, {"volumeName": "none"}, 404),
    ("POST", "/sandbox/create", DEPLOY, True,
     {"appId": NONE, "templateId": NONE, "workloadProfile": "TESS_CODE_TURN", "ownerKind": "EXTERNAL_SESSION",
      "ownerId": "o", "region": "nowhere", "idempotencyKey": "k"}, (400, 404)),
    ("POST", "/sandbox/terminate", DEPLOY, True, {"sandboxId": NONE}, 404),
    ("POST", "/sandbox/pause", DEPLOY, True, {"sandboxId": NONE}, 404),
    ("POST", "/sandbox/resume", DEPLOY, True, {"sandboxId": NONE}, 404),
    ("POST", "/sandbox/execute", DANGER, True, {"sandboxId": NONE, "command": ["true"]}, 404),
    ("POST", "/sandbox-template/save", CONFIG, True, {"templateId": NONE, "name": "n"}, 404),
    ("POST", "/sandbox-template/revision", CONFIG, True, {"templateId": NONE, "imageDigest": DIGEST}, 404),
    ("POST", "/shared-volume/create", CONFIG, True,
     {"region": "nowhere", "volumeName": "v", "sizeMb": 1}, (400, 409)),
    ("POST", "/shared-volume/remove", CONFIG, True, {"volumeName": "none"}, 404),
    ("POST", "/shared-volume/restore", CONFIG, True, {"volumeName": "none"}, 404),
]
# A personal connection is its owner's: user tokens alone (contract 6). The scope column says who.
OWNER, PRINCIPAL = "owner", "principal"
TASK = {"repository": "o/n", "baseBranch": "main", "model": "m", "tokenLimit": 1, "timeLimitSeconds": 60, "prompt": "p"}
OWNERS = [
    ("GET", "/solution-connections", OWNER, False, {}, 200),
    ("POST", "/solution-connections/save", OWNER, True,
     {"installationId": NONE, "appId": NONE, "templateId": NONE, "region": "nowhere"}, 404),
    ("POST", "/solution-connections/sign-in", OWNER, True,
     {"connectionId": NONE, "authFile": "{}", "githubToken": "t"}, 404),
    ("POST", "/solution-connections/reserve", OWNER, True, {"connectionId": NONE, "task": TASK}, 404),
    ("POST", "/solution-connections/reset", OWNER, True, {"connectionId": NONE}, 404),
]
# The orchestrator's: service principals alone. They name no account.
PRINCIPALS = [
    ("POST", "/sandbox-orchestrator/codex-runs/claim", PRINCIPAL, True, {"grant": "g" * 43, "runId": "r"}, 403),
    ("GET", "/sandbox-orchestrator/codex-runs/none", PRINCIPAL, False, {}, 404),
    ("POST", "/sandbox-orchestrator/codex-runs/none/sandbox", PRINCIPAL, True, {}, 404),
    ("GET", "/sandbox-orchestrator/codex-runs/none/sandbox", PRINCIPAL, False, {}, 404),
    ("DELETE", "/sandbox-orchestrator/codex-runs/none/sandbox", PRINCIPAL, True, {}, 404),
    ("POST", "/sandbox-orchestrator/codex-runs/none/execution", PRINCIPAL, True,
     {"callbackToken": "a", "eventIngestToken": "b"}, 404),
    ("GET", "/sandbox-orchestrator/codex-runs/none/execution", PRINCIPAL, False, {}, 404),
]
ROUTES = PERSONS + OWNERS + PRINCIPALS


class Token:
    def __init__(self, name, text, kind, scopes=(), user=None):
        self.name, self.text, self.kind, self.scopes, self.user = name, text, kind, set(scopes), user


class User:
    def __init__(self, user_id, roles):
        self.id, self.roles = user_id, set(roles)


def expected(route, token, account, entitled, member, good_shape):
    """(status or statuses, code or None) by the documented rule."""
    _, _, scope, writes, _, reached = route
    if token.kind == "bad":
        return 401, None
    kinds = {OWNER: ("user",), PRINCIPAL: ("principal",)}.get(scope, ("user", "mcp", "oauth"))
    if token.kind not in kinds:
        return 403, "TOKEN_KIND_FORBIDDEN"
    if token.kind in ("mcp", "oauth") and scope not in token.scopes:
        return 403, "INSUFFICIENT_SCOPE"
    if not good_shape:
        return 400, "INVALID_REQUEST"
    if token.kind == "principal":
        return reached, None
    if not member:
        return 403, "ACCOUNT_FORBIDDEN"
    if not entitled:
        return 403, "SANDBOXES_NOT_ENABLED"
    if writes and not token.user.roles & set(WRITERS):
        return 403, "ROLE_FORBIDDEN"
    return reached, None


class Authorization(SystemTest):
    stack_options = {"regions": 0}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        admin = cls.stack.admin
        cls.connection = http.client.HTTPConnection(cls.stack.plane.url.split("//")[1], timeout=30)
        make = lambda name, on: admin("POST", "/account/create", {"name": name})["account"]["accountId"]
        cls.account = make("entitled", True)
        cls.bare = make("not entitled", False)
        cls.foreign = make("somebody else's", True)
        for account, on in ((cls.account, True), (cls.bare, False), (cls.foreign, True)):
            admin("POST", "/account/entitle", {"accountId": account, "sandboxes": on})
        cls.users = {}
        for role in ROLES:
            user = admin("POST", "/user/create", {"email": f"{role}@example.test"})["user"]["userId"]
            for account in (cls.account, cls.bare):
                admin("POST", "/member/add", {"accountId": account, "userId": user, "roles": [role]})
            cls.users[role] = User(user, [role])
        cls.tokens = cls.bad_tokens() + cls.user_tokens() + cls.mcp_tokens() + cls.oauth_tokens()
        cls.tokens += cls.refused_tokens()

    @classmethod
    def tearDownClass(cls):
        cls.connection.close()
        super().tearDownClass()

    @classmethod
    def secret(cls, **body):
        return cls.stack.admin("POST", "/token/create", body)

    @classmethod
    def bad_tokens(cls):
        admin_id = cls.users["admin"].id
        revoked = cls.secret(kind="user", userId=admin_id)
        cls.stack.admin("POST", "/token/revoke", {"tokenId": revoked["token"]["tokenId"]})
        good = cls.secret(kind="user", userId=admin_id)["secret"]
        flipped = good[:-1] + ("a" if good[-1] != "a" else "b")
        expired = cls.secret(kind="user", userId=admin_id)
        cls.stack.pg.psql("UPDATE sandboxd.tokens SET expires_at = now() - interval '1 second' "
                          f"WHERE token_id = '{expired['token']['tokenId']}'")
        return [Token("no token", None, "bad"), Token("empty", "", "bad"), Token("words", "let me in", "bad"),
                Token("unknown", jwt.opaque("user"), "bad"), Token("bad checksum", flipped, "bad"),
                Token("revoked", revoked["secret"], "bad"), Token("expired", expired["secret"], "bad")]

    @classmethod
    def user_tokens(cls):
        return [Token(f"user {role}", cls.secret(kind="user", userId=user.id)["secret"], "user", user=user)
                for role, user in cls.users.items()]

    @classmethod
    def mcp_tokens(cls):
        out = []
        for scopes in [(s,) for s in SCOPES] + [SCOPES]:
            text = cls.secret(kind="mcp", userId=cls.users["admin"].id, scopes=list(scopes))["secret"]
            out.append(Token(f"mcp admin {scopes}", text, "mcp", scopes, cls.users["admin"]))
        text = cls.secret(kind="mcp", userId=cls.users["member"].id, scopes=list(SCOPES))["secret"]
        return out + [Token("mcp member, all scopes", text, "mcp", SCOPES, cls.users["member"])]

    @classmethod
    def oauth_tokens(cls):
        issuer = "https://issuer.example.test"
        key = jwt.Key(cls.stack.dir, "ES256")
        cls.stack.admin("POST", "/issuer/add", {"issuer": issuer, "audience": "sandboxes", "jwks": jwt.jwks(key)})
        out = []
        for role in ("technical", "member"):
            cls.stack.admin("POST", "/issuer/link", {"issuer": issuer, "subject": role, "userId": cls.users[role].id})
        claims = {"iss": issuer, "aud": "sandboxes", "exp": int(time.time()) + 3600}
        for role, scopes in (("technical", SCOPES), ("member", SCOPES), ("technical", ()), ("technical", (R,))):
            text = key.token({**claims, "sub": role, "scope": " ".join(scopes)})
            out.append(Token(f"oauth {role} {scopes}", text, "oauth", scopes, cls.users[role]))
        unlinked = key.token({**claims, "sub": "nobody", "scope": " ".join(SCOPES)})
        return out + [Token("oauth, not linked", unlinked, "bad")]

    @classmethod
    def refused_tokens(cls):
        env = cls.secret(kind="env", accountId=cls.account)["secret"]
        key = jwt.Key(cls.stack.dir, "RS256", "callback")
        installation = cls.stack.admin("POST", "/installation/create", {
            "accountId": cls.account, "controlHost": "https://control.example.test", "callbackKey": key.public_pem()})
        principal = cls.stack.admin("POST", "/principal/create", {
            "installationId": installation["installation"]["installationId"],
            "permissions": ["sandbox:create", "sandbox:read", "sandbox:terminate"]})["principal"]["principalId"]
        return [Token("environment", env, "env"),
                Token("service principal", cls.secret(kind="principal", principalId=principal)["secret"], "principal")]

    def send(self, route, token, account, good_shape, bearer=False):
        method, path, _, _, fields, _ = route
        args = dict(fields) if route in PRINCIPALS else {"accountId": account, **fields}
        if not good_shape:
            args["surprise"] = "1"
        headers = {}
        if token.text is not None:
            headers["Authorization"] = ("Bearer " if bearer else "") + token.text
        body = None
        if method == "GET" and args:
            path += "?" + "&".join(f"{k}={v}" for k, v in args.items())
        elif method != "GET":
            body = json.dumps(args).encode()
            headers["Content-Type"] = "application/json"
        self.connection.request(method, PUBLIC + path, body, headers)
        response = self.connection.getresponse()
        return response.status, json.loads(response.read()), response.getheader("Connection")

    def test_every_route_answers_as_the_rule_says(self):
        accounts = [("own", self.account, True, True), ("not entitled", self.bare, False, True),
                    ("foreign", self.foreign, True, False), ("no such", NONE, False, False)]
        count = 0
        for route in ROUTES:
            for token in self.tokens:
                for label, account, entitled, member in accounts:
                    for shape in (True, False):
                        status, body, _ = self.send(route, token, account, shape, bearer=count % 2 == 1)
                        want, code = expected(route, token, account, entitled, member, shape)
                        where = (route[1], token.name, label, "shape" if shape else "bad shape", body)
                        self.assertIn(status, want if isinstance(want, tuple) else (want,), where)
                        if code:
                            self.assertEqual(body["code"], code, where)
                        self.assertEqual(body["success"], status < 400, where)
                        count += 1
        self.assertGreater(count, 3000)

    def test_the_two_account_refusals_are_one(self):
        """One answer for "no such account" and "not yours"."""
        for route in PERSONS + OWNERS:
            token = self.tokens[7]
            bodies = [self.send(route, token, a, True)[1] for a in (self.foreign, NONE)]
            for b in bodies:
                b.pop("requestId")
            self.assertEqual(bodies[0], bodies[1])

    def test_the_routes_are_all_of_the_published_ones(self):
        self.connection.request("GET", "/openapi.json")
        doc = json.loads(self.connection.getresponse().read())
        # The check-in and its manifest, which have their own rule, are test_worker_checkin's.
        published = {(m.upper(), p.removeprefix(PUBLIC).replace("{runId}", "none"))
                     for p, ops in doc["paths"].items() for m in ops if p.startswith(PUBLIC)}
        self.assertEqual(published, {(r[0], r[1]) for r in ROUTES})


if __name__ == "__main__":
    main()
