"""OAuth access tokens: configured issuers, keys inline and by URL, linked users, and what is refused (contract 1)."""

import hashlib
import hmac
import http.server
import json
import threading
import time

import jwt
from harness import PUBLIC, Client, SystemTest, main, wait_for

ISSUER = "https://issuer.example.test/tenant"
SCOPES = "quave:read quave:write:deploy"


class JwksServer:
    def __init__(self):
        self.keys, self.fetches = [], 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.fetches += 1
                body = json.dumps(jwt.jwks(*outer.keys)).encode()
                self.send_response(200)
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


class OAuth(SystemTest):
    stack_options = {"regions": 0}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.stack.admin("POST", "/region/create", {"name": "test-1", "socket": "/nowhere.sock"})
        cls.t = cls.stack.tenant(region="test-1", template=False)
        cls.keys = {alg: jwt.Key(cls.stack.dir, alg) for alg in ("RS256", "ES256", "EdDSA")}
        cls.issuer(ISSUER, jwks=jwt.jwks(*cls.keys.values()))
        cls.link("person-1")

    @classmethod
    def issuer(cls, name, **keys):
        return cls.stack.admin("POST", "/issuer/add", {"issuer": name, "audience": "sandboxes", **keys})

    @classmethod
    def link(cls, subject, issuer=ISSUER, user=None):
        cls.stack.admin("POST", "/issuer/link", {"issuer": issuer, "subject": subject, "userId": user or cls.t.user})

    def claims(self, **over):
        claims = {"iss": ISSUER, "aud": "sandboxes", "sub": "person-1", "exp": int(time.time()) + 600, "scope": SCOPES, **over}
        return {k: v for k, v in claims.items() if v is not None}

    def get(self, token):
        return Client(self.stack.plane.url, token="Bearer " + token).get(f"{PUBLIC}/sandboxes?accountId={self.t.account}")

    def test_the_three_algorithms(self):
        for alg, key in self.keys.items():
            self.assertEqual(self.get(key.token(self.claims())).status, 200, alg)
            self.assertEqual(self.get(key.token(self.claims(), kid=None)).status, 200, alg + " without a kid")

    def test_claims(self):
        key, now = self.keys["ES256"], int(time.time())
        good = [{"aud": ["other", "sandboxes"]}, {"nbf": now - 10}, {"exp": now + 60.5}]
        bad = [{"iss": "https://other.example"}, {"iss": None}, {"iss": ISSUER + "/"}, {"aud": "other"}, {"aud": None},
               {"aud": ["a", 1]}, {"sub": None}, {"sub": ""}, {"sub": 7}, {"sub": "stranger"}, {"exp": None}, {"exp": "soon"},
               {"nbf": now + 600}, {"nbf": "later"}]
        for over in good:
            self.assertEqual(self.get(key.token(self.claims(**over))).status, 200, over)
        for over in bad:
            answer = self.get(key.token(self.claims(**over)))
            self.assertEqual((answer.status, answer.code), (401, "UNAUTHENTICATED"), over)
        answer = self.get(key.token(self.claims(exp=now - 1)))
        self.assertEqual((answer.status, answer.code), (401, "TOKEN_EXPIRED"))

    def test_forgeries(self):
        claims = self.claims()
        part = lambda o: jwt.b64(json.dumps(o).encode())
        rsa = self.keys["RS256"]
        head, body, signature = rsa.token(claims).split(".")
        hs = part({"alg": "HS256", "typ": "JWT", "kid": rsa.kid}) + "." + part(claims)
        mac = lambda secret: hs + "." + jwt.b64(hmac.new(secret, hs.encode(), hashlib.sha256).digest())
        other = jwt.Key(self.stack.dir, "ES256", "stranger")
        forged = {
            "none": part({"alg": "none"}) + "." + part(claims) + ".",
            "None with a signature": part({"alg": "None"}) + "." + part(claims) + "." + signature,
            "HMAC by the public key": mac(rsa.public_pem().encode()), "HMAC by the DER": mac(rsa.public_der()),
            "another body": head + "." + part({**claims, "scope": "quave:write:dangerous"}) + "." + signature,
            "no signature": head + "." + body + ".", "cut": head + "." + body + "." + signature[:-4],
            "another's key": other.token(claims), "another's key, our kid": other.token(claims, kid=self.keys["ES256"].kid),
            "RS256 claimed for an EC key": other.token(claims, alg="RS256"), "crit": rsa.token(claims, crit=["x"], x=1),
            "own key in the header": other.token(claims, jwk=other.jwk(), kid=None), "four parts": head + "." + body + "." + signature + ".x",
            "not base64": "a.b.c", "empty parts": "..", "no object": part([]) + "." + part([]) + "." + signature,
            "long": head + "." + "A" * 20000 + "." + signature,
        }
        for name, token in forged.items():
            answer = self.get(token)
            self.assertEqual(answer.status, 401, (name, answer))

    def test_scopes_and_one_caller(self):
        key = self.keys["EdDSA"]
        self.assertEqual(self.get(key.token(self.claims(scope=None))).code, "INSUFFICIENT_SCOPE")
        self.assertEqual(self.get(key.token(self.claims(scope="quave:write:deploy openid"))).code, "INSUFFICIENT_SCOPE")
        self.assertEqual(self.get(key.token(self.claims(scope="openid quave:read email"))).status, 200)
        # The user's own roles bind a delegated token too: another user without them is refused.
        user, _ = self.stack.member(self.t.account, ["member"])
        self.link("reader", user=user)
        token = key.token(self.claims(sub="reader", scope="quave:write:config"))
        answer = Client(self.stack.plane.url, token=token).post(PUBLIC + "/sandbox-template/save", {"accountId": self.t.account, "name": "x"})
        self.assertEqual((answer.status, answer.code), (403, "ROLE_FORBIDDEN"))

    def test_keys_by_url_rotate(self):
        server = JwksServer()
        name = "https://rotating.example.test"
        old, new = jwt.Key(self.stack.dir, "ES256", "old"), jwt.Key(self.stack.dir, "ES256", "new")
        server.keys = [old]
        self.issuer(name, jwksUrl=server.url)
        self.link("person-2", issuer=name)
        claims = self.claims(iss=name, sub="person-2")
        self.assertEqual(self.get(old.token(claims)).status, 200)
        fetched = server.fetches
        self.assertEqual(self.get(old.token({**claims, "jti": "2"})).status, 200)
        self.assertEqual(server.fetches, fetched, "the keys are kept")
        stranger = jwt.Key(self.stack.dir, "ES256", "unknown")
        for i in range(10):
            self.assertEqual(self.get(stranger.token({**claims, "jti": str(i)})).status, 401)
        self.assertLessEqual(server.fetches, fetched + 1, "an unknown kid asks at most once in a while")
        server.keys = [old, new]
        server.close()
        # The source is away: the last good keys go on.
        self.assertEqual(self.get(old.token({**claims, "jti": "3"})).status, 200)

    def test_an_issuer_that_is_removed_or_a_link_that_moves(self):
        name = "https://leaving.example.test"
        key = self.keys["ES256"]
        self.issuer(name, jwks=jwt.jwks(key))
        self.link("person-3", issuer=name)
        token = key.token(self.claims(iss=name, sub="person-3"))
        self.assertEqual(self.get(token).status, 200)
        user, _ = self.stack.member(self.t.account, ["member"])
        outsider = self.stack.admin("POST", "/user/create", {"email": "outsider@example.test"})["user"]["userId"]
        self.link("person-3", issuer=name, user=outsider)
        wait_for("the link has moved", lambda: self.get(token).status == 403, 1)
        self.link("person-3", issuer=name, user=user)
        wait_for("and back", lambda: self.get(token).status == 200, 1)
        self.stack.admin("POST", "/issuer/remove", {"issuer": name})
        wait_for("gone with its issuer", lambda: self.get(token).status == 401, 1)

    def test_keys_that_are_refused(self):
        for bad in ({"keys": []}, {"keys": [{"kty": "oct", "k": "AAAA"}]}, {"x": 1}, {"keys": "x"}):
            answer = Client(unix=self.stack.plane.admin_socket).post(
                "/admin/v1/issuer/add", {"issuer": "https://x.example", "audience": "a", "jwks": bad})
            self.assertEqual((answer.status, answer.json["data"]["field"]), (400, "jwks"), bad)


if __name__ == "__main__":
    main()
