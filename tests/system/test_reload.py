"""SIGHUP and the service manager: what is marked so is taken over by both daemons, a file with a mistake
changes nothing and is named with its line, certificates and secrets change without a restart; READY,
RELOADING and STOPPING are told to whoever listens at NOTIFY_SOCKET."""

import contextlib
import json
import os
import re
import secrets
import signal
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
import time
import unittest

import harness
from harness import Client, Stack, SystemTest, free_port, main, wait_for, write_ini

IMAGE = "library/tiny@sha256:" + 64 * "0"  # the fake driver asks for no more


class Manager:
    """The service manager's end of sd_notify(3): what each process said, by pid."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="sbx-notify-")
        os.chmod(self.dir, 0o755)
        self.path = os.path.join(self.dir, "socket")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        os.chmod(self.path, 0o777)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.said = {}
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        while True:
            data, extra, _flags, _peer = self.socket.recvmsg(4096, 256)
            if not data:
                return
            self.said.setdefault(struct.unpack("3i", extra[0][2])[0], []).append(data.decode())

    def of(self, pid):
        return list(self.said.get(pid, []))

    def close(self):
        self.socket.sendto(b"", self.path)
        os.remove(self.path)
        os.rmdir(self.dir)


def logged(daemon, message, since=0):
    """The last log line with that message, behind byte `since`."""
    found = None
    for line in daemon.log()[since:].splitlines():
        with contextlib.suppress(ValueError):
            fields = json.loads(line)
            if fields.get("msg") == message:
                found = fields
    return found


def reload(daemon, message="reloaded"):
    before = len(daemon.log())
    daemon.process.send_signal(signal.SIGHUP)
    return wait_for(f"{daemon.name} says {message!r}", lambda: logged(daemon, message, before), 10)


def rewrite(daemon, **options):
    """The daemon's file again, with options (section__key) changed; None: left out."""
    owner = os.stat(daemon.conf)
    with open(daemon.conf) as f:
        section, now = "", {}
        for line in f:
            if line.startswith("["):
                section = line.strip()[1:-1]
            elif "=" in line:
                key, value = line.split("=", 1)
                now[f"{section}.{key.strip()}"] = value.strip()
    for name, value in options.items():
        now[name.replace("__", ".", 1)] = value
    write_ini(daemon.conf, {k: v for k, v in now.items() if v is not None}, owner=(owner.st_uid, owner.st_gid))


class Reload(SystemTest):
    @classmethod
    def setUpClass(cls):
        cls.manager = Manager()
        cls.addClassCleanup(cls.manager.close)
        os.environ["NOTIFY_SOCKET"] = cls.manager.path
        cls.addClassCleanup(os.environ.pop, "NOTIFY_SOCKET")
        folder = tempfile.mkdtemp(prefix="sbx-secret-")
        cls.secret_file = os.path.join(folder, "region.secret")
        cls.addClassCleanup(os.rmdir, folder)
        cls.addClassCleanup(os.remove, cls.secret_file)
        cls.old_secret, cls.new_secret = secrets.token_hex(16), secrets.token_hex(16)
        cls.write_secret(cls.old_secret)
        cls.port = free_port()
        cls.stack_options = {"driver": "fake", "region": {"listen.port": cls.port, "listen.secret_file": cls.secret_file}}
        super().setUpClass()
        cls.plane, cls.region = cls.stack.plane, cls.stack.region
        cls.tenant = cls.stack.tenant(image=IMAGE)

    @classmethod
    def write_secret(cls, *lines):
        with open(cls.secret_file, "w") as f:
            f.write("".join(line + "\n" for line in lines))
        os.chmod(cls.secret_file, 0o600)

    def test_a_mistake_changes_nothing_and_is_named(self):
        for daemon, line in ((self.plane, "[auth]\nrequests_per_s = many\n"), (self.region, "[limits]\nsandboxes = none\n"),
                             (self.plane, "[auth]\nno_such_key = 1\n"), (self.region, "[egress]\nno_such_key = 1\n")):
            with self.subTest(daemon=daemon.name, line=line):
                with open(daemon.conf) as f:
                    good = f.read()
                with open(daemon.conf, "a") as f:
                    f.write(line)
                told = reload(daemon, "reload refused, nothing was changed")
                number = good.count("\n") + 2
                self.assertIn(f"{daemon.conf}:{number}", told["error"])
                self.assertEqual(told["level"], "error")
                with open(daemon.conf, "w") as f:
                    f.write(good)
                self.assertEqual(reload(daemon)["changed"], 0)
        self.assertEqual(self.tenant.list()["totalCount"] >= 0, True)

    def test_log_level_and_access_lines(self):
        rewrite(self.plane, log__access="false", log__level="warn")
        before = len(self.plane.log())
        self.plane.process.send_signal(signal.SIGHUP)  # at level warn it does not say so
        wait_for("no line for a request", lambda: self.silent(before), 10)
        rewrite(self.plane, log__access=None, log__level=None)
        self.assertEqual(reload(self.plane)["changed"], 2)
        self.tenant.list()
        # The line is written when the request has ended, which is after its answer.
        wait_for("a line for a request", lambda: '"route":"sandbox_list"' in self.plane.log()[before:], 10)
        rewrite(self.region, log__level="debug")
        self.assertEqual(reload(self.region)["changed"], 1)
        rewrite(self.region, log__level=None)
        self.assertEqual(reload(self.region)["changed"], 1)

    def silent(self, before):
        seen = len(self.plane.log())
        self.tenant.list()
        time.sleep(0.2)  # a line comes after its answer
        return len(self.plane.log()) == seen

    def test_limits_of_a_token(self):
        rewrite(self.plane, auth__requests_per_s=1, auth__requests_burst=2)
        reload(self.plane)
        client = Client(self.plane.url, token=self.tenant.token)
        path = f"/api/public/v1/sandboxes?accountId={self.tenant.account}"
        statuses = [client.get(path).status for _ in range(8)]
        self.assertIn(429, statuses)
        rewrite(self.plane, auth__requests_per_s=None, auth__requests_burst=None)
        reload(self.plane)
        self.assertEqual([client.get(path).status for _ in range(8)], [200] * 8)

    def test_sealing_keys_rotate(self):
        with open(self.stack.seal_keys) as f:
            old = f.read()
        made = lambda host: self.stack.admin("POST", "/registry/create", {
            "accountId": self.tenant.account, "host": host, "username": "u", "password": "secret"})
        key_of = lambda host: self.stack.pg.psql(
            f"SELECT convert_from(substring(password FROM 4 FOR get_byte(password, 2)), 'UTF8') FROM "
            f"sandboxd.registry_credentials WHERE host = '{host}'")[0][0]
        made("old.example")
        with open(self.stack.seal_keys, "w") as f:
            f.write("second " + secrets.token_hex(32) + "\n" + old)
        reload(self.plane)
        made("new.example")
        self.assertEqual((key_of("old.example"), key_of("new.example")), ("test", "second"))
        with open(self.stack.seal_keys, "w") as f:
            f.write("not a key\n")
        self.assertIn("id", reload(self.plane, "reload refused, nothing was changed")["error"])
        made("third.example")
        self.assertEqual(key_of("third.example"), "second")
        with open(self.stack.seal_keys, "w") as f:
            f.write(old)
        reload(self.plane)
        made("fourth.example")
        self.assertEqual(key_of("fourth.example"), "test")

    def test_retention(self):
        """What is older than [audit] keep_days goes, also when it is more than one batch; what is not stays."""
        pg = self.stack.pg
        pg.psql("UPDATE sandboxd.audit SET at = now() - interval '36 hours'")  # ids are in the order of time
        pg.psql("INSERT INTO sandboxd.audit (at, actor, action, outcome) SELECT now() - interval '36 hours', 'test', 'old', 'ok' "
                "FROM generate_series(1, 3500)")
        pg.psql("INSERT INTO sandboxd.audit (at, actor, action, outcome) SELECT now(), 'test', 'new', 'ok' FROM generate_series(1, 10)")
        box = self.tenant.ready()
        self.tenant.terminate(box)
        ended = f"sandbox_id = '{box['sandboxId']}'"
        pg.psql(f"UPDATE sandboxd.sandboxes SET terminated_at = now() - interval '36 hours' WHERE {ended}")
        count = lambda action: int(pg.psql(f"SELECT count(*) FROM sandboxd.audit WHERE action = '{action}'")[0][0])
        self.assertEqual((count("old"), count("new")), (3500, 10))
        rewrite(self.plane, audit__keep_days=1)
        reload(self.plane)
        wait_for("the old rows are gone", lambda: count("old") == 0, 20)
        self.assertEqual(count("new"), 10)
        wait_for("the history is gone", lambda: pg.psql(f"SELECT count(*) FROM sandboxd.sandbox_events WHERE {ended}") == [["0"]], 10)
        self.assertEqual(self.tenant.get(box)["status"], "TERMINATED")  # the row itself stays
        rewrite(self.plane, audit__keep_days=None)
        reload(self.plane)

    def test_what_wants_a_restart_is_named(self):
        rewrite(self.plane, database__statement_timeout_ms=2000)
        self.assertEqual(reload(self.plane)["needsRestart"], "[database] statement_timeout_ms")
        rewrite(self.plane, database__statement_timeout_ms=None)
        self.assertNotIn("needsRestart", reload(self.plane))
        rewrite(self.region, limits__http_workers=9)
        self.assertEqual(reload(self.region)["needsRestart"], "[limits] http_workers")
        rewrite(self.region, limits__http_workers=None)
        reload(self.region)

    def test_the_regions_secret_changes_without_a_gap(self):
        ask = lambda secret: Client(f"http://127.0.0.1:{self.port}").get(
            "/v1/capacity", headers={"Authorization": "Bearer " + secret}).status
        self.assertEqual((ask(self.old_secret), ask(self.new_secret)), (200, 401))
        self.write_secret(self.new_secret, self.old_secret)
        reload(self.region)
        self.assertEqual((ask(self.old_secret), ask(self.new_secret)), (200, 200))
        self.assertEqual(ask(self.new_secret[:-1]), 401)
        self.write_secret("short")
        self.assertIn("secret_file", reload(self.region, "reload refused, nothing was changed")["error"])
        self.assertEqual((ask(self.old_secret), ask(self.new_secret)), (200, 200))
        self.write_secret(self.new_secret)
        reload(self.region)
        self.assertEqual((ask(self.old_secret), ask(self.new_secret)), (401, 200))

    def test_limits_of_a_region(self):
        first = self.tenant.ready()
        rewrite(self.region, limits__sandboxes=1)
        reload(self.region)
        told = self.region.client().get("/readyz")
        self.assertEqual((told.status, self.region.client().get("/healthz").status), (503, 200))
        self.assertIn("as many sandboxes", told.text())
        second = self.tenant.create()
        wait_for("the region refuses", lambda: "as many sandboxes" in json.dumps(self.stack.admin(
            "GET", f"/why?sandboxId={second['sandboxId']}")), 15)
        self.assertNotEqual(self.tenant.get(second)["status"], "READY")
        rewrite(self.region, limits__sandboxes=None)
        reload(self.region)
        self.assertEqual(self.region.client().get("/readyz").status, 200)
        self.tenant.wait(second, "READY")
        for box in (first, second):
            self.tenant.terminate(box)

    def test_the_service_manager_is_told(self):
        for daemon in (self.plane, self.region):
            with self.subTest(daemon=daemon.name):
                pid = daemon.process.pid
                self.assertEqual(self.manager.of(pid)[0], "READY=1")
                heard = len(self.manager.of(pid))
                reload(daemon)
                wait_for("it is ready again", lambda: len(self.manager.of(pid)) >= heard + 2, 10)
                told, again = self.manager.of(pid)[heard:]
                self.assertRegex(told, r"^RELOADING=1\nMONOTONIC_USEC=\d+$")
                self.assertEqual(again, "READY=1")
                daemon.stop()
                wait_for("it says so", lambda: self.manager.of(pid)[-1] == "STOPPING=1", 10)
                daemon.start()
        wait_for("the region is reached again", lambda: self.tenant.ready(), 30)


def certificate(folder, name):
    """A key and a certificate for it; the common name is `name`."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                    "-subj", "/CN=" + name, "-keyout", os.path.join(folder, "new.key"), "-out",
                    os.path.join(folder, "new.pem")], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.chmod(os.path.join(folder, "new.key"), 0o644)
    for end in ("key", "pem"):
        os.rename(os.path.join(folder, "new." + end), os.path.join(folder, "tls." + end))


def common_name(port):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), 5) as plain, context.wrap_socket(plain) as s:
        der = s.getpeercert(binary_form=True)
        s.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = b""
        while part := s.recv(4096):
            answer += part
    text = subprocess.run(["openssl", "x509", "-inform", "DER", "-noout", "-subject"], input=der, stdout=subprocess.PIPE,
                          check=True).stdout.decode()
    return re.search(r"CN ?= ?(\S+)", text).group(1), answer.split(b" ")[1]


class Certificates(unittest.TestCase):
    def test_they_change_without_a_restart(self):
        try:
            stack = Stack(driver="fake")
        except harness.Missing as e:
            self.skipTest(str(e))
        self.addCleanup(stack.stop, rough=True)
        folder = os.path.join(stack.dir, "tls")
        os.makedirs(folder)
        certificate(folder, "one")
        secret = os.path.join(folder, "secret")
        with open(secret, "w") as f:
            f.write(secrets.token_hex(16) + "\n")
        files = {"listen.tls_cert_file": folder + "/tls.pem", "listen.tls_key_file": folder + "/tls.key"}
        region_port = free_port()
        stack.plane.options = files
        stack.region.options = {**files, "listen.port": region_port, "listen.secret_file": secret}
        stack.pg.start()
        stack.region.start()
        stack.plane.start(wait=False)
        wait_for("the server is ready", lambda: os.path.exists(stack.plane.admin_socket) and
                 Client(unix=stack.plane.admin_socket).get("/readyz").status == 200, 30)
        for daemon, port, status in ((stack.plane, stack.plane.port, b"200"), (stack.region, region_port, b"200")):
            with self.subTest(daemon=daemon.name):
                certificate(folder, "one")
                reload(daemon)
                self.assertEqual(common_name(port), ("one", status))
                certificate(folder, "two")
                self.assertEqual(common_name(port)[0], "one")
                reload(daemon)
                self.assertEqual(common_name(port)[0], "two")
                with open(folder + "/tls.pem", "w") as f:
                    f.write("no certificate\n")
                self.assertIn("certificate", reload(daemon, "reload refused, nothing was changed")["error"])
                self.assertEqual(common_name(port)[0], "two")


if __name__ == "__main__":
    main()
