"""Tokens over two control planes: revocation within a second, what a lost LISTEN connection does, members and
entitlement, the rate limit (contract 1; case 42's API half)."""

import socket
import threading
import time

import jwt
from harness import PUBLIC, Client, SystemTest, main, wait_for

NONE = "0" * 26


class Tokens(SystemTest):
    stack_options = {"regions": 0, "planes": 2}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.stack.admin("POST", "/region/create", {"name": "test-1", "socket": "/nowhere.sock"})

    def tenant(self):
        return self.stack.tenant(region="test-1", template=False)

    def status(self, plane, token, account):
        return Client(plane.url, token=token).get(f"{PUBLIC}/sandboxes?accountId={account}").status

    def cached(self, plane):
        text = Client(unix=plane.admin_socket).get("/metrics").text()
        return int(next(line.split()[1] for line in text.splitlines() if line.startswith("sandboxd_token_cache_entries ")))

    def warm(self, t, token):
        """Both planes know the token by heart."""
        for plane in self.stack.planes:
            wait_for("the token is kept", lambda p=plane: self.status(p, token, t.account) == 200 and self.cached(p) > 0)

    def test_revocation_acts_within_a_second_on_every_plane(self):
        t = self.tenant()
        made = self.stack.admin("POST", "/token/create", {"kind": "user", "userId": t.user, "name": "laptop"})
        self.warm(t, made["secret"])
        self.stack.admin("POST", "/token/revoke", {"tokenId": made["token"]["tokenId"]})
        began = time.monotonic()
        self.assertEqual(self.status(self.stack.planes[0], made["secret"], t.account), 401)
        wait_for("refused by the other plane too", lambda: self.status(self.stack.planes[1], made["secret"], t.account) == 401, 1)
        self.assertLess(time.monotonic() - began, 1.5)
        self.assertEqual(self.status(self.stack.planes[1], t.token, t.account), 200, "others go on")

    def test_a_token_is_shown_once(self):
        t = self.tenant()
        made = self.stack.admin("POST", "/token/create", {"kind": "mcp", "userId": t.user, "scopes": ["quave:read"]})
        self.assertRegex(made["secret"], r"^sbx_mcp_[0-9A-Za-z]{49}$")
        listed = self.stack.admin("GET", "/tokens")["tokens"]
        self.assertIn(made["token"]["tokenId"], [x["tokenId"] for x in listed])
        for token in listed:
            self.assertNotIn("secret", token)
        dump = self.stack.pg.run("pg_dump", "-h", self.stack.pg.socket_dir, "-U", "postgres", "-d", "sandboxd", "--data-only")
        self.assertNotIn(made["secret"], dump)
        for plane in self.stack.planes:
            self.assertNotIn(made["secret"], plane.log())

    def test_a_bad_checksum_asks_the_database_nothing(self):
        t = self.tenant()
        count = lambda: int(self.stack.pg.psql("SELECT coalesce(sum(idx_scan), 0) FROM pg_stat_user_indexes "
                                               "WHERE relname = 'tokens'")[0][0])
        before = count()
        good = jwt.opaque("user")
        for _ in range(20):
            self.assertEqual(self.status(self.stack.plane, good[:-1] + ("a" if good[-1] != "a" else "b"), t.account), 401)
        time.sleep(1.2)  # the server's own statistics come once a second
        self.assertEqual(count(), before)

    def test_members_and_entitlement_act_at_once_everywhere(self):
        t = self.tenant()
        user, token = self.stack.member(t.account, ["member"])
        self.warm(t, token)
        other = self.stack.planes[1]
        self.stack.admin("POST", "/member/remove", {"accountId": t.account, "userId": user})
        wait_for("no member any more", lambda: self.status(other, token, t.account) == 403, 1)
        self.stack.admin("POST", "/member/add", {"accountId": t.account, "userId": user, "roles": ["member"]})
        wait_for("a member again", lambda: self.status(other, token, t.account) == 200, 1)
        self.stack.admin("POST", "/account/entitle", {"accountId": t.account, "sandboxes": False})
        wait_for("not entitled", lambda: self.status(other, token, t.account) == 403, 1)
        self.assertEqual(self.status(self.stack.plane, token, t.account), 403)
        # Also when somebody changes it by hand.
        self.stack.pg.psql(f"UPDATE sandboxd.accounts SET entitled = true WHERE account_id = '{t.account}'")
        wait_for("entitled by hand", lambda: self.status(other, token, t.account) == 200, 1)

    def test_a_lost_listen_connection_empties_and_bypasses_the_cache(self):
        t = self.tenant()
        self.warm(t, t.token)
        plane = self.stack.planes[1]
        self.assertGreater(self.cached(plane), 0)
        listening = lambda: Client(unix=plane.admin_socket).get("/admin/v1/status").json.get("listening")
        ended = self.stack.pg.psql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE '%LISTEN%' "
                                   "AND pid <> pg_backend_pid()")
        self.assertGreaterEqual(int(ended[0][0]), 1)
        wait_for("listening again", listening, 10)
        # What was revoked while it was down is seen, since nothing was kept over the gap.
        self.assertEqual(self.status(plane, t.token, t.account), 200)

    def test_an_expired_token(self):
        t = self.tenant()
        made = self.stack.admin("POST", "/token/create", {"kind": "user", "userId": t.user, "expiresInSeconds": 1})
        self.assertEqual(self.status(self.stack.plane, made["secret"], t.account), 200)
        wait_for("expired", lambda: self.status(self.stack.plane, made["secret"], t.account) == 401, 3)
        answer = Client(self.stack.plane.url, token=made["secret"]).get(f"{PUBLIC}/sandboxes?accountId={t.account}")
        self.assertEqual(answer.code, "TOKEN_EXPIRED")
        self.assertEqual(answer.headers["www-authenticate"], "Bearer")


class RateLimit(SystemTest):
    stack_options = {"regions": 0, "sandboxd": {"auth.requests_per_s": 20, "auth.requests_burst": 20,
                                                "listen.connections_per_ip": 4}}

    def connect(self, source):
        """A connection from that address, and whether it is served."""
        host, port = self.stack.plane.url.split("//")[1].split(":")
        s = socket.create_connection((host, int(port)), 10, source_address=(source, 0))
        self.addCleanup(s.close)
        try:
            s.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            return s.recv(100).startswith(b"HTTP/1.1 200")
        except ConnectionError:
            return False

    def test_one_address_has_so_many_connections(self):
        self.assertEqual([self.connect("127.0.0.2") for _ in range(6)], [True] * 4 + [False] * 2)
        self.assertTrue(self.connect("127.0.0.3"))

    def test_one_token_is_held_back_and_others_are_not(self):
        self.stack.admin("POST", "/region/create", {"name": "test-1", "socket": "/nowhere.sock"})
        t = self.stack.tenant(region="test-1", template=False)
        client = Client(self.stack.plane.url, token=t.token)
        wait_for("the cache is on", lambda: self.stack.admin("GET", "/status")["listening"])
        began = time.monotonic()
        answers = [client.get(f"{PUBLIC}/sandboxes?accountId={t.account}") for _ in range(80)]
        took = time.monotonic() - began
        refused = [a for a in answers if a.status == 429]
        self.assertEqual({a.status for a in answers}, {200, 429})
        self.assertLessEqual(len(answers) - len(refused), 22 + 20 * took)
        self.assertEqual(refused[0].code, "RATE_LIMITED")
        self.assertIn("retry-after", refused[0].headers)
        _, other = self.stack.member(t.account, ["member"])
        self.assertEqual(Client(self.stack.plane.url, token=other).get(f"{PUBLIC}/sandboxes?accountId={t.account}").status, 200)


class AccountLimit(SystemTest):
    """One account's requests under way: those of others are none of its business."""

    stack_options = {"driver": "fake", "sandboxd": {"limits.account_requests": 2}, "region": {"fake.execute_delay_ms": 1500}}

    def test_one_account_is_held_back_and_others_are_not(self):
        image = "library/tiny@sha256:" + 64 * "0"
        t, other = self.stack.tenant(image=image), self.stack.tenant(image=image)
        box = t.ready()
        body = {"accountId": t.account, "sandboxId": box["sandboxId"], "command": ["true"]}
        done = []
        commands = [threading.Thread(target=lambda: done.append(t.call("POST", "/sandbox/execute", body).status)) for _ in range(2)]
        for command in commands:
            command.start()
        wait_for("both commands run", lambda: self.stack.pg.psql("SELECT count(*) FROM sandboxd.executions") == [["2"]], 10)
        refused = t.call("GET", f"/sandboxes?accountId={t.account}")
        self.assertEqual((refused.status, refused.code), (429, "RATE_LIMITED"))
        self.assertIn("retry-after", refused.headers)
        self.assertEqual(other.list()["totalCount"], 0)
        # Who is not a member takes none of the account's places.
        self.assertEqual(other.call("GET", f"/sandboxes?accountId={t.account}").status, 403)
        for command in commands:
            command.join()
        self.assertEqual(done, [200, 200])
        self.assertEqual(t.list()["totalCount"], 1)
        t.terminate(box)


if __name__ == "__main__":
    main()
