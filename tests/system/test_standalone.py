# ctest: timeout 300
"""sandboxd --standalone: one root launcher, its own PostgreSQL, region and server; adoption, restart,
lock, clean stop."""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
import unittest
import urllib.request

import harness
from harness import Client, Tenant, busybox_rootfs, main, program, wait_for


class Launcher:
    """One state folder and the launcher that may run on it."""

    def __init__(self, *flags):
        self.dir = tempfile.mkdtemp(prefix="sbx-", dir=os.environ.get("SANDBOXD_TEST_DIR", "/tmp"))
        os.chmod(self.dir, 0o755)
        self.state = os.path.join(self.dir, "state")
        self.rootfs = busybox_rootfs(os.path.join(self.dir, "rootfs"))
        self.log_path = os.path.join(self.dir, "log")
        self.flags = [f"--standalone-state={self.state}", "--standalone-port=0", f"--standalone-rootfs={self.rootfs}",
                      *flags]
        self.process = None

    def start(self, wait=True):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([program("sandboxd"), "--standalone", *self.flags], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, env=harness.clean_environment(), start_new_session=True)
        if wait:
            wait_for("the launcher is ready", self.ready, 120)
        return self

    def ready(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the launcher ended with {self.process.returncode}:\n{self.log()[-4000:]}")
        with contextlib.suppress(OSError):
            with open(os.path.join(self.state, "run/ready")) as f:
                return f.read().strip() == str(self.process.pid)
        return False

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)

    def log(self):
        with open(self.log_path, errors="replace") as f:
            return f.read()

    def client(self):
        with open(os.path.join(self.state, "client.json")) as f:
            return json.load(f)

    def tenant(self):
        c = self.client()
        with open(c["tokenFile"]) as f:
            token = f.read().strip()

        class Plane:
            url = c["url"]

        return Tenant(None, Plane, account=c["accountId"], app=c["appId"], token=token, region=c["region"],
                      template=c["templateId"])

    def ctl(self, *words, code=0):
        run = subprocess.run([program("sandboxctl"), "--state", self.state, *words], stdin=subprocess.DEVNULL, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=harness.clean_environment())
        if run.returncode != code:
            raise AssertionError(f"sandboxctl {words}: {run.returncode}: {run.stdout}{run.stderr}")
        return run.stdout

    def pids(self):
        """{part: pid} of what runs on this state folder, sandboxes apart."""
        out = {}
        for pid, words in processes(self.state + "/"):
            for part, mark in (("postgres", "/bin/postgres -D"), ("region", "sandbox-region --config"),
                               ("server", "sandboxd --config")):
                if mark in words:
                    out[part] = pid
        return out

    def remove(self):
        for _ in range(50):
            left = processes(self.dir + "/")
            for pid, _words in left:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            if not left:
                break
            time.sleep(0.1)
        with open("/proc/mounts") as f:
            for mount in sorted((line.split()[1] for line in f if self.dir + "/" in line), key=len, reverse=True):
                subprocess.run(["umount", "-l", mount], check=False)
        run = os.path.join(self.state, "run")
        if os.path.islink(run):
            shutil.rmtree(os.readlink(run), ignore_errors=True)
        shutil.rmtree(self.dir, ignore_errors=True)


def processes(mark):
    out = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as f:
            words = f.read().replace(b"\0", b" ").decode("utf-8", "replace")
            if mark in words and int(pid) != os.getpid():
                out.append((int(pid), words))
    return out


class Standalone(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        try:
            program("sandbox-region"), program("sandboxctl"), program("sandbox-agent")
            harness.user_ids("sandboxd")
            cls.launcher = Launcher()
        except harness.Missing as e:
            raise unittest.SkipTest(str(e)) from None
        try:
            cls.launcher.start()
        except BaseException:
            cls.launcher.remove()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.launcher.remove()

    def setUp(self):
        self.addCleanup(self.tell)

    def tell(self):
        if self._outcome.result.failures or self._outcome.result.errors:
            harness.LOGS.append((self.launcher, "\n".join(self.launcher.log().splitlines()[-60:])))

    def test_1_first_objects_and_users(self):
        l = self.launcher
        tenant = l.tenant()
        box = tenant.ready()
        self.assertEqual(tenant.execute(box, ["echo", "hi"])["stdout"], "hi\n")
        self.assertEqual(l.ctl("exec", box["sandboxId"], "--", "cat", "/proc/version").split()[0], "Linux")
        # The server and PostgreSQL are nobody's root, and the launcher's secrets are not public.
        pids = l.pids()
        for part, user in (("server", "sandboxd"), ("postgres", "postgres"), ("region", "root")):
            self.assertEqual(os.stat(f"/proc/{pids[part]}").st_uid, harness.user_ids(user)[0] if user != "root" else 0)
        for name in ("token", "client.json"):
            self.assertEqual(os.stat(os.path.join(l.state, name)).st_mode & 0o777, 0o600)
        for name in ("seal.keys", "sandboxd.conf"):
            self.assertEqual(os.stat(os.path.join(l.state, name)).st_mode & 0o007, 0)
        with open(f"/proc/{pids['server']}/status") as f:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
        self.assertEqual((status["CapEff"], status["CapBnd"], status["NoNewPrivs"]), ("0" * 16, "0" * 16, "1"))
        tenant.terminate(box)

    def test_2_a_second_launcher_is_refused(self):
        run = subprocess.run([program("sandboxd"), "--standalone", *self.launcher.flags], text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=harness.clean_environment(), timeout=30)
        self.assertEqual(run.returncode, 1)
        self.assertIn(f"another sandboxd (pid {self.launcher.process.pid})", run.stdout)
        self.assertTrue(self.launcher.ready())

    def test_3_killed_launcher_and_adoption(self):
        l = self.launcher
        tenant = l.tenant()
        box = tenant.ready()
        before = l.pids()
        url = l.client()["url"]
        l.process.kill()
        l.process.wait()
        self.assertEqual(l.pids(), before)  # nothing went with it
        l.start()
        after = l.pids()
        self.assertEqual((after["postgres"], after["region"]), (before["postgres"], before["region"]))
        self.assertEqual(l.client()["url"], url)  # the same port
        tenant = l.tenant()
        self.assertEqual(tenant.get(box)["status"], "READY")
        self.assertEqual(tenant.execute(box, ["echo", "still"])["stdout"], "still\n")
        tenant.terminate(box)

    def test_4_a_part_that_dies_comes_back(self):
        l = self.launcher
        for part in ("server", "region", "postgres"):
            with self.subTest(part=part):
                old = l.pids()[part]
                os.kill(old, signal.SIGKILL)
                new = wait_for(f"{part} runs again", lambda: l.pids().get(part) not in (None, old) and l.pids()[part], 60)
                self.assertNotEqual(new, old)
                wait_for("the server is ready", self.is_ready, 60)
        tenant = l.tenant()
        box = tenant.ready(timeout=90)
        self.assertEqual(tenant.execute(box, ["true"])["exitCode"], 0)
        tenant.terminate(box)

    def is_ready(self):
        with contextlib.suppress(OSError):
            return Client(self.launcher.client()["url"]).get("/readyz").status == 200
        return False

    def test_5_sandboxes_survive_a_clean_restart(self):
        l = self.launcher
        tenant = l.tenant()
        box = tenant.ready()
        self.assertEqual(l.stop(), 0)
        self.assertEqual(l.pids(), {})
        l.start()
        tenant = l.tenant()
        self.assertEqual(tenant.execute(box, ["echo", "back"])["stdout"], "back\n")

    def test_5b_backup_and_restore(self):
        """docs/operations.md, "Backup and restore": the folder is lost, and a new one at the same place gets all of it."""
        l = self.launcher
        tenant, account = l.tenant(), l.client()["accountId"]
        # What has to come back: rows, a volume with a file in it, a secret that only the sealing keys open.
        backend = json.loads(l.ctl("--json", "backend", "list", "--account", account))["backends"][0]["backendId"]
        keeper = tenant.add_template(image=self.image(), persistenceMode="DIRECTORY", volumeSizeMb=64)
        box = tenant.ready(templateId=keeper)
        volume = tenant.get(box)["volumeName"]
        tenant.execute(box, ["sh", "-c", "echo kept >/workspace/persist/file"])
        tenant.terminate(box)
        password = os.path.join(l.dir, "password")
        with open(password, "w") as f:
            f.write("sesame")
        l.ctl("registry", "create", "--account", account, "--host", "registry.example", "--user", "ann", "--password-file", password)
        sealed = self.sql("SELECT encode(password, 'hex') FROM sandboxd.registry_credentials")
        l.ctl("sandbox", "drain")
        before = tenant.list()
        dump, kept = os.path.join(l.dir, "sandboxd.dump"), os.path.join(l.dir, "state.tgz")
        as_postgres = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
        with open(dump, "wb") as f:
            subprocess.run([*as_postgres, "pg_dump", "-h", l.state + "/run/pg", "-Fc", "sandboxd"], stdout=f, check=True)
        subprocess.run(["tar", "-C", l.state, "-czf", kept, "seal.keys", "token", "backend"], check=True)
        self.assertEqual(l.stop(), 0)
        shutil.rmtree(l.state)

        l.start()
        with open(dump, "rb") as f:
            subprocess.run([*as_postgres, "pg_restore", "--clean", "--if-exists", "-h", l.state + "/run/pg", "-d",
                            "sandboxd"], stdin=f, check=True)
        subprocess.run(["tar", "-C", l.state, "-xzf", kept], check=True)
        os.remove(os.path.join(l.state, "client.json"))
        self.assertEqual(l.stop(), 0)
        l.start()
        tenant = l.tenant()  # the old token, account, app and template
        self.assertEqual(tenant.account, account)
        self.assertEqual({b["sandboxId"] for b in tenant.list()["sandboxes"]}, {b["sandboxId"] for b in before["sandboxes"]})
        box = tenant.ready(timeout=90)
        self.assertEqual(tenant.execute(box, ["echo", "restored"])["stdout"], "restored\n")
        self.assertEqual(self.sql("SELECT encode(password, 'hex') FROM sandboxd.registry_credentials"), sealed)
        self.assertEqual(json.loads(l.ctl("--json", "backend", "list", "--account", account))["backends"][0]["backendId"], backend)
        with open(os.path.join(l.state, "seal.keys")) as f:
            self.assertIn(bytes.fromhex(sealed)[3:3 + bytes.fromhex(sealed)[2]].decode(), f.read())  # the key it names
        box = tenant.ready(timeout=90, templateId=keeper, volumeName=volume)
        self.assertEqual(tenant.execute(box, ["cat", "/workspace/persist/file"])["stdout"], "kept\n")
        tenant.terminate(box)

    def sql(self, statement):
        return subprocess.run(["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups", "psql", "-XAtq", "-h",
                               self.launcher.state + "/run/pg", "-c", statement, "sandboxd"], stdout=subprocess.PIPE, text=True,
                              check=True).stdout.strip()

    def image(self):
        tenant = self.launcher.tenant()
        shown = tenant.call("GET", f"/sandbox-template?accountId={tenant.account}&templateId={tenant.template}", status=200)
        return shown.json["currentRevision"]["imageDigest"]

    def test_6_clean_stop_leaves_nothing(self):
        l = self.launcher
        run = os.path.realpath(os.path.join(l.state, "run"))
        l.ctl("sandbox", "drain")
        self.assertEqual(l.stop(), 0)
        left = [words for _pid, words in processes(l.state + "/") + processes(run + "/")]
        self.assertEqual(left, [])
        with open("/proc/mounts") as f:
            self.assertEqual([line for line in f if l.dir + "/" in line or run in line], [])
        self.assertFalse(os.path.exists(run))
        tag = hashlib.sha256(os.path.join(l.state, "region").encode()).hexdigest()[:5]
        self.assertEqual([n for n in harness.listdir("/run/netns") + harness.listdir("/sys/class/net") if tag in n], [])
        self.assertNotIn("Sanitizer", l.log())
        self.assertNotIn("runtime error", l.log())
        # and all is there again at the next start
        l.start()
        boxes = l.tenant().list()["sandboxes"]
        self.assertTrue(boxes and all(b["status"] == "TERMINATED" for b in boxes))
        self.assertEqual(len(json.loads(l.ctl("--json", "account", "list"))["accounts"]), 1)
        self.assertEqual(l.stop(), 0)


class OverTls(unittest.TestCase):
    """server_extra gives the public listener a certificate: the first objects are made over it, and clients are told."""

    def test_client_json_says_https(self):
        try:
            harness.user_ids("sandboxd")
            l = Launcher()
        except harness.Missing as e:
            self.skipTest(str(e))
        self.addCleanup(l.remove)
        cert, key, extra = (os.path.join(l.dir, n) for n in ("tls.pem", "tls.key", "extra.conf"))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                        "-subj", "/CN=standalone", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert],
                       check=True, stderr=subprocess.DEVNULL)
        os.chmod(key, 0o644)
        with open(extra, "w") as f:
            f.write(f"[listen]\ntls_cert_file = {cert}\ntls_key_file = {key}\n")
        l.flags.append(f"--standalone-server_extra={extra}")
        l.start()
        client = l.client()
        self.assertRegex(client["url"], r"^https://127\.0\.0\.1:\d+$")
        self.assertEqual(client["caFile"], cert)
        with urllib.request.urlopen(client["url"] + "/readyz", context=ssl.create_default_context(cafile=cert)) as answer:
            self.assertEqual(answer.status, 200)
        templates = json.loads(l.ctl("--json", "template", "list", "--account", client["accountId"]))["templates"]
        self.assertEqual([t["templateId"] for t in templates], [client["templateId"]])
        # Without a certificate again, and with an address of the operator's own.
        self.assertEqual(l.stop(), 0)
        os.truncate(extra, 0)
        l.start()
        self.assertRegex(l.client()["url"], r"^http://127\.0\.0\.1:\d+$")
        self.assertNotIn("caFile", l.client())
        self.assertEqual(l.stop(), 0)
        l.flags.append("--standalone-public_url=https://sandboxes.example")
        l.start()
        self.assertEqual((l.client()["url"], "caFile" in l.client()), ("https://sandboxes.example", False))
        self.assertEqual(l.stop(), 0)


if __name__ == "__main__":
    main()
