"""What a request may look like: the HTTP edges, the JSON rules, the shape of every operation (contract 1;
case 45: malformed input is 400 or 413, fast, never 5xx)."""

import json
import subprocess
import time

from harness import PUBLIC, Client, SystemTest, main

DIGEST = "repo/image@sha256:" + "0" * 64
NONE = "0" * 26
POSTS = ["/sandbox/create", "/sandbox/terminate", "/sandbox/pause", "/sandbox/resume", "/sandbox/execute",
         "/sandbox-template/save", "/sandbox-template/revision", "/shared-volume/create", "/shared-volume/remove",
         "/shared-volume/restore", "/solution-connections/save", "/solution-connections/sign-in",
         "/solution-connections/reserve", "/solution-connections/reset"]
GETS = ["/sandboxes", "/sandbox", "/sandbox-templates", "/sandbox-template", "/shared-volumes", "/shared-volume"]
JSON = {"Content-Type": "application/json"}


class Requests(SystemTest):
    stack_options = {"regions": 0}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.stack.admin("POST", "/region/create", {"name": "test-1", "socket": "/nowhere.sock"})
        cls.tenant = cls.stack.tenant(region="test-1", template=False)
        cls.client = cls.tenant.client

    def post(self, path, body, headers=None, **kw):
        return self.client.request("POST", PUBLIC + path, body, headers={**JSON, **(headers or {})}, **kw)

    def raw(self, text, timeout=10):
        return Client(self.stack.plane.url).raw(text.encode() if isinstance(text, str) else text, timeout)

    def status(self, answer):
        return int(answer.split(b" ", 2)[1])

    def test_case_45_malformed_bodies_are_400_on_every_operation(self):
        deep = b'{"a":' + b"[" * 10000 + b"]" * 10000 + b"}"
        bodies = {
            "cut": b'{"a":', "empty": b"", "null": b"null", "array": b"[]", "string": b'"x"', "number": b"1",
            "two values": b"{}{}", "trailing": b"{} x", "bad utf-8": b'{"a":"\xff"}', "overlong": b'{"a":"\xc0\xaf"}',
            "lone surrogate": b'{"a":"\\ud800"}', "low surrogate": b'{"a":"\\udc00\\ud800"}', "nul": b'{"a":"\\u0000"}',
            "nul in key": b'{"\\u0000":1}', "raw nul": b'{"a":"\x00"}', "duplicate": b'{"accountId":"a","accountId":"b"}',
            "deep": deep, "deep objects": b'{"a":' * 10000 + b"1" + b"}" * 10000, "comment": b"{/**/}",
            "single quotes": b"{'a':1}", "huge number": b'{"a":1e999}', "long integer": b'{"a":' + b"9" * 400 + b"}",
            "NaN": b'{"a":NaN}', "bom": b"\xef\xbb\xbf{}", "control": b'{"a":"\x01"}',
        }
        for path in POSTS:
            for name, body in bodies.items():
                began = time.monotonic()
                answer = self.post(path, body)
                self.assertEqual(answer.status, 400, (path, name, answer))
                self.assertEqual(answer.json["success"], False)
                self.assertLess(time.monotonic() - began, 2, (path, name))
        for number in (b"1e999", b"9223372036854775808"):  # JSON, but no number of ours
            self.assertIn("too large", self.post("/sandbox/execute", b'{"a":' + number + b"}").json["error"])

    def test_case_45_a_wrong_type_names_the_field_and_the_type(self):
        good = {
            "/sandbox/create": {"accountId": "a", "appId": "a", "templateId": "t", "workloadProfile": "TESS_CODE_TURN",
                                "ownerKind": "EXTERNAL_SESSION", "ownerId": "o", "region": "r", "idempotencyKey": "k"},
            "/sandbox/execute": {"accountId": "a", "sandboxId": "s", "command": ["true"]},
            "/sandbox-template/revision": {"accountId": "a", "templateId": "t", "imageDigest": DIGEST},
            "/shared-volume/create": {"accountId": "a", "region": "r", "volumeName": "v", "sizeMb": 1},
        }
        for path, body in good.items():
            for field, right in body.items():
                wrong = [1, True, None, {}, 1.5] if isinstance(right, str) else ["x", None, {}, True]
                wrong += [["x"]] if isinstance(right, str) else []
                for value in wrong:
                    answer = self.post(path, json.dumps({**body, field: value}).encode())
                    self.assertEqual((answer.status, answer.code), (400, "INVALID_REQUEST"), (path, field, value))
                    self.assertEqual(answer.json["data"]["field"], field)
                    kind = {str: "string", int: "integer", list: "array"}[type(right)]
                    self.assertIn(kind, answer.json["error"])
                missing = {k: v for k, v in body.items() if k != field}
                answer = self.post(path, json.dumps(missing).encode())
                self.assertEqual((answer.status, answer.json["data"]["field"]), (400, field), path)
            answer = self.post(path, json.dumps({**body, "surprise": 1}).encode())
            self.assertEqual((answer.status, answer.json["data"]["field"]), (400, "surprise"))
            self.assertIn("surprise", answer.json["error"])

    def test_case_45_large_bodies(self):
        over = b'{"accountId":"' + b"x" * (1024 * 1024) + b'"}'
        self.assertEqual(self.post("/sandbox/execute", over).status, 413)
        fits = b'{"accountId":"' + b"x" * (1024 * 1024 - 16) + b'"}'
        self.assertEqual(len(fits), 1024 * 1024)
        self.assertEqual(self.post("/sandbox/execute", fits).status, 400)
        began = time.monotonic()
        try:
            status = self.post("/sandbox/execute", b"x" * (50 * 1024 * 1024)).status
        except OSError:
            status = 413  # refused and closed while we were still sending
        self.assertEqual(status, 413)
        self.assertLess(time.monotonic() - began, 10)
        # The process is as it was.
        self.assertEqual(self.client.get("/healthz").status, 200)

    def test_case_45_queries(self):
        a = self.tenant.account
        for path in GETS:
            for query in ("", "?", "?accountId", "?accountId=", f"?accountId={a}&accountId={a}", "?accountId=%00",
                          "?accountId=%ff", "?accountId=%zz", "?accountId=%", f"?accountId={a}&x=1", f"?accountId={a}&=1"):
                answer = self.client.get(PUBLIC + path + query)
                self.assertEqual(answer.status, 400, (path, query, answer))
        for limit in ("0", "-1", "x", "1.0", "", "+1", "0x10"):
            answer = self.client.get(f"{PUBLIC}/sandboxes?accountId={a}&limit={limit}")
            self.assertEqual((answer.status, answer.json["data"]["field"]), (400, "limit"), limit)
        self.assertEqual(self.client.get(f"{PUBLIC}/sandboxes?accountId={a}&limit=0").json["error"], "limit must be at least 1.")
        self.assertEqual(self.client.get(f"{PUBLIC}/sandboxes?accountId={a}&cursor=nonsense").json["data"]["field"], "cursor")

    def test_paths_and_methods(self):
        self.assertEqual(self.client.get("/").status, 404)
        # One slash at the end means nothing; two are another path.
        self.assertEqual(self.client.get(PUBLIC + "/sandboxes/").status, 400)
        self.assertEqual(self.client.get(PUBLIC + "/sandboxes//").status, 404)
        self.assertEqual(self.client.get(PUBLIC + "/nothing").code, "NOT_FOUND")
        answer = self.client.request("DELETE", PUBLIC + "/sandbox")
        self.assertEqual((answer.status, answer.code), (405, "METHOD_NOT_ALLOWED"))
        self.assertIn("GET", answer.headers["allow"])
        self.assertEqual(self.client.get(PUBLIC + "/sandbox/create").headers["allow"], "POST")
        # The operator's calls are on the admin socket only.
        self.assertEqual(self.client.get("/admin/v1/accounts").status, 404)
        self.assertEqual(self.client.get("/metrics").status, 404)

    def test_content_types(self):
        body = json.dumps({"accountId": "a", "name": "n"}).encode()
        for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""):
            answer = self.client.request("POST", PUBLIC + "/sandbox-template/save", body, headers={"Content-Type": kind})
            self.assertEqual((answer.status, answer.code), (415, "UNSUPPORTED_MEDIA_TYPE"), kind)
        for kind in ("application/json", "application/json; charset=utf-8", "Application/JSON"):
            answer = self.client.request("POST", PUBLIC + "/sandbox-template/save", body, headers={"Content-Type": kind})
            self.assertEqual(answer.status, 403, kind)  # right shape: the account is next

        for coding, status in (("gzip", 415), ("br", 415), ("identity", 403)):
            answer = self.client.request("POST", PUBLIC + "/sandbox-template/save", body,
                                         headers={**JSON, "Content-Encoding": coding})
            self.assertEqual(answer.status, status, coding)

    def test_request_ids(self):
        for given, echoed in (("abcd1234", True), ("A.b_c-d9" * 16, True), ("short", False), ("x" * 129, False),
                              ("with space", False), ("semi;colon", False)):
            answer = self.client.get(PUBLIC + "/sandboxes", headers={"X-Request-Id": given})
            self.assertEqual(answer.headers["x-request-id"] == given, echoed, given)
            self.assertEqual(answer.json["requestId"], answer.headers["x-request-id"])

    def test_edges_that_close_the_connection(self):
        head = f"POST {PUBLIC}/sandbox/create HTTP/1.1\r\nHost: x\r\nAuthorization: {self.tenant.token}\r\n" \
               "Content-Type: application/json\r\n"
        for extra in ("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
                      "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"):
            answer = self.raw(head + extra + "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 5)
            self.assertEqual(self.status(answer), 400, answer)
            self.assertEqual(answer.count(b"HTTP/1.1"), 1, "a second request was served")
        for path in ("/api/public/v1/sandbox%00", "/api%2Fpublic/v1/sandboxes", "/%00"):
            answer = self.raw(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n", 5)
            self.assertEqual(self.status(answer), 400, path)
        answer = self.raw("GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + "x" * 100000 + "\r\n\r\n", 5)
        self.assertIn(self.status(answer), (431, 400))

    def test_ids_of_no_form_are_the_same_404(self):
        bodies = []
        for sandbox in (NONE, "x", "../../etc", "%27%3B--", "\u2615".encode().hex(), "a" * 255):
            answer = self.client.get(f"{PUBLIC}/sandbox?accountId={self.tenant.account}&sandboxId={sandbox}")
            self.assertEqual(answer.status, 404, sandbox)
            body = answer.json
            body.pop("requestId")
            bodies.append(json.dumps(body))
        self.assertEqual(len(set(bodies)), 1, bodies)

    def test_health_and_description_need_no_token(self):
        client = Client(self.stack.plane.url)
        self.assertEqual(client.get("/healthz").json, {"status": "ok"})
        self.assertEqual(client.get("/readyz").json, {"status": "ok"})
        self.assertTrue(client.get("/openapi.json").json["openapi"].startswith("3.1"))

    def test_no_cors_unless_configured(self):
        answer = self.client.request("OPTIONS", PUBLIC + "/sandboxes", headers={"Origin": "https://evil.example"})
        self.assertNotIn("access-control-allow-origin", answer.headers)
        answer = self.client.get(PUBLIC + "/sandboxes", headers={"Origin": "https://evil.example"})
        self.assertNotIn("access-control-allow-origin", answer.headers)

    def test_another_user_of_the_machine_is_no_operator(self):
        code = "import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
        argv = ["python3", "-c", code, self.stack.plane.admin_socket]
        self.assertEqual(subprocess.run(argv, check=False).returncode, 0)  # root may
        nobody = subprocess.run(argv, user=65534, group=65534, extra_groups=[], check=False, text=True,
                                stderr=subprocess.PIPE)
        self.assertIn("PermissionError", nobody.stderr)


if __name__ == "__main__":
    main()
