"""The ground the system tests stand on: a private PostgreSQL, control planes and region gateways, all
the real programs of one build, in a folder of their own, with a small client.

    from harness import SystemTest, main

    class Create(SystemTest):
        # keywords of Stack(); the stack is started once for the class
        stack_options = {"sandboxd": {"limits.idle_timeout_min_s": 2}}

        def test_it_runs(self):
            tenant = self.stack.tenant()                    # account, user, token, app, template
            box = tenant.ready()                            # creates and waits for READY
            answer = tenant.execute(box, ["echo", "hi"])
            self.assertEqual((answer["exitCode"], answer["stdout"]), (0, "hi\\n"))
            self.assertEqual(tenant.terminate(box)["status"], "TERMINATED")

    if __name__ == "__main__":
        main()

Parts, each a small class below:
    Stack     everything of one test: .pg .planes[i] .regions[i]; .admin(...) .tenant(...) .wait(...)
    Postgres  start stop kill9 psql(sql)
    Plane     one sandboxd: url admin_socket pid start stop kill9 log()
    Region    one sandbox-region: name socket pid start stop kill9 log(), driver "runsc" or "fake"
    Client    HTTP with JSON: status, headers and body of each answer; raw() for bytes by hand
    Tenant    an account with a user and its token: create get wait ready execute terminate template

A test that cannot run here calls skip("why"): the file then exits 77 and ctest names it.  On failure
the logs of every part are printed.  At its end a stack ends what it started, by pid, and fails the
test when a process, mount, network namespace or cgroup of it is left.

Environment: SANDBOXD_BUILD (folder of the programs), SANDBOXD_SOURCE, RUNSC (another runsc binary),
SANDBOXD_KEEP=1 (leave the folder and its logs behind).
"""

import contextlib
import ctypes
import hashlib
import http.client
import io
import json
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import unittest

import openapi_check

SOURCE = os.environ.get("SANDBOXD_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("SANDBOXD_BUILD") or os.path.join(SOURCE, "build")
PG_BIN = "/usr/lib/postgresql/15/bin"
PUBLIC = "/api/public/v1"
FINAL = ("TERMINATED",)
CONTRACT = openapi_check.load(SOURCE)  # every public answer is held to docs/openapi.json
SKIP = 77


class Missing(Exception):
    """Something that a test needs is not on this machine."""


def skip(why):
    raise unittest.SkipTest(why)


def wait_for(what, check, timeout=15.0, every=0.02):
    """Polls check() until it gives something true, and returns that; AssertionError after timeout."""
    deadline = time.monotonic() + timeout
    while True:
        got = check()
        if got:
            return got
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {what}")
        time.sleep(every)
        every = min(every * 1.5, 0.25)


# Version 2 is one tree, version 1 one for each controller.
CGROUPS = ("", "memory/", "cpu/", "pids/", "cpuacct/", "cpuset/", "blkio/", "devices/", "freezer/", "systemd/")


def listdir(path):
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def user_ids(name):
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise Missing(f"there is no user {name}: run config/install run user") from None
    return entry.pw_uid, entry.pw_gid


# ---------------------------------------------------------------------------------------- processes


def _die_with_parent():
    # A test that is killed must not leave its daemons behind.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


class Daemon:
    """One process of ours with a log file, started, stopped and waited for by pid."""

    def __init__(self, stack, name):
        self.stack = stack
        self.name = name
        self.log_path = os.path.join(stack.logs, name + ".log")
        self.process = None

    @property
    def pid(self):
        return self.process.pid if self.process else None

    def running(self):
        return self.process is not None and self.process.poll() is None

    def spawn(self, argv, user=None, env=None):
        assert not self.running(), f"{self.name} already runs"
        options = {}
        if user:
            uid, gid = user_ids(user)
            options = {"user": uid, "group": gid, "extra_groups": []}
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.stack.dir,
                env={**clean_environment(), **(env or {})}, start_new_session=True,
                preexec_fn=None if user else _die_with_parent, **options)

    def stop(self, timeout=40):
        """SIGTERM and a wait; a daemon that does not drain in time is a failure."""
        if not self.running():
            return self.process.returncode if self.process else None
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill9()
            raise AssertionError(f"{self.name} did not stop within {timeout} s of SIGTERM") from None

    def kill9(self):
        if self.running():
            self.process.kill()
            self.process.wait()

    def reload(self):
        self.process.send_signal(signal.SIGHUP)

    def log(self):
        with contextlib.suppress(FileNotFoundError), open(self.log_path, errors="replace") as f:
            return f.read()
        return ""

    def log_lines(self):
        """The log's JSON lines, as dictionaries."""
        out = []
        for line in self.log().splitlines():
            with contextlib.suppress(ValueError):
                out.append(json.loads(line))
        return out

    def check_up(self, what):
        if not self.running():
            raise AssertionError(f"{self.name} ended with {self.process.returncode} before {what}:\n" +
                                 "\n".join(self.log().splitlines()[-15:]))


def clean_environment():
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SANDBOXD_", "SANDBOX_REGION_", "PG"))}
    env["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    env.setdefault("ASAN_OPTIONS", "detect_stack_use_after_return=1:strict_string_checks=1")
    env.setdefault("UBSAN_OPTIONS", "print_stacktrace=1")
    return env


class Postgres(Daemon):
    """A cluster on a unix socket, without fsync: for tests only."""

    def __init__(self, stack):
        super().__init__(stack, "postgres")
        self.data = os.path.join(stack.dir, "pg")
        self.socket_dir = os.path.join(stack.dir, "s")
        self.database = "sandboxd"
        self.url = f"postgresql:///{self.database}?host={self.socket_dir}&user=postgres"

    def run(self, *argv, **kw):
        uid, gid = user_ids("postgres")
        return subprocess.run(argv, user=uid, group=gid, extra_groups=[], cwd="/", check=True, text=True,
                              env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw).stdout

    def start(self):
        if not os.path.exists(f"{PG_BIN}/initdb"):
            raise Missing("PostgreSQL 15 is not installed: run config/install run")
        fresh = not os.path.exists(os.path.join(self.data, "PG_VERSION"))
        if fresh:
            uid, gid = user_ids("postgres")
            for path in (self.data, self.socket_dir):
                os.makedirs(path, exist_ok=True)
                os.chown(path, uid, gid)
            os.chmod(self.data, 0o700)
            os.chmod(self.socket_dir, 0o755)
            self.run(f"{PG_BIN}/initdb", "--no-sync", "-A", "trust", "-U", "postgres", "-E", "UTF8",
                     "--locale=C.UTF-8", "-D", self.data)
        self.spawn([f"{PG_BIN}/postgres", "-D", self.data, "-k", self.socket_dir, "-c", "listen_addresses=",
                    "-c", "fsync=off", "-c", f"synchronous_commit={self.stack.commits}", "-c", "full_page_writes=off",
                    "-c", "max_connections=200", "-c", "unix_socket_permissions=0777"], user="postgres")
        wait_for("PostgreSQL accepts connections", self.ready, 20)
        if fresh:
            self.psql(f"CREATE DATABASE {self.database}", database="postgres")

    def ready(self):
        self.check_up("it was ready")
        uid, gid = user_ids("postgres")
        return subprocess.run([f"{PG_BIN}/pg_isready", "-q", "-h", self.socket_dir], user=uid, group=gid,
                              extra_groups=[], cwd="/", check=False).returncode == 0

    def stop(self, timeout=20):
        if self.running():
            self.process.send_signal(signal.SIGINT)  # fast shutdown
            self.process.wait(timeout)

    def kill9(self):
        """The postmaster and all its children die at once, as when the machine loses power."""
        if self.running():
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def psql(self, sql, database=None):
        """Runs sql, returns the rows as lists of strings (None for NULL)."""
        out = self.run("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-h", self.socket_dir, "-U", "postgres", "-d",
                       database or self.database, "-At", "-F", "\x1f", "-P", "null=\x1e", "-c", sql)
        return [[None if c == "\x1e" else c for c in line.split("\x1f")] for line in out.split("\n")[:-1]]


def write_ini(path, options, mode=0o640, owner=None):
    """options: {"section.key": value}."""
    sections = {}
    for name, value in options.items():
        section, key = name.split(".", 1)
        if isinstance(value, bool):
            value = "true" if value else "false"
        elif isinstance(value, (list, tuple)):
            value = ",".join(str(v) for v in value)
        sections.setdefault(section, []).append(f"{key} = {value}")
    with open(path, "w") as f:
        for section, lines in sections.items():
            f.write(f"[{section}]\n" + "\n".join(lines) + "\n")
    os.chmod(path, mode)
    if owner:
        os.chown(path, *owner)


class Region(Daemon):
    """One sandbox-region as root, on a unix socket that the control planes may use."""

    def __init__(self, stack, number, driver, options):
        super().__init__(stack, f"region{number}")
        self.region = f"test-{number + 1}"
        self.driver = driver
        self.dir = os.path.join(stack.dir, f"r{number}")
        self.socket = os.path.join(stack.dir, "s", f"region{number}.sock")
        self.conf = os.path.join(stack.dir, f"region{number}.conf")
        self.options = options

    def start(self):
        os.makedirs(self.dir, exist_ok=True)
        os.makedirs(os.path.dirname(self.socket), exist_ok=True)
        uid, _ = user_ids("sandboxd")
        options = {
            "listen.socket": self.socket,
            "listen.socket_uids": [0, uid],
            "listen.process_secret_file": self.stack.process_secret,
            "state.dir": self.dir,
            "driver.kind": self.driver,
            "agent.path": program("sandbox-agent"),
        }
        if os.environ.get("RUNSC"):
            options["runsc.path"] = os.environ["RUNSC"]
        options.update(self.options)
        write_ini(self.conf, options)
        self.spawn([program("sandbox-region"), "--config", self.conf])
        wait_for(f"{self.name} is healthy", self.healthy, 60)

    @property
    def tag(self):
        """What stands in the names of everything that this gateway makes in the kernel."""
        return hashlib.sha256(self.dir.encode()).hexdigest()[:5]

    def sweep(self):
        """Takes away what a gateway that ended leaves in the kernel for its successor."""
        for name in listdir("/run/netns"):
            if name.startswith(f"sbx-{self.tag}-"):
                subprocess.run(["ip", "netns", "delete", name], check=False)
        for name in listdir("/sys/class/net"):
            if name.startswith("sbx") and self.tag in name:
                subprocess.run(["ip", "link", "delete", name], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(["nft", "delete", "table", "inet", f"sbx_{self.tag}"], check=False, stderr=subprocess.DEVNULL)
        for top in CGROUPS:
            base = f"/sys/fs/cgroup/{top}sandboxd/{self.tag}"
            for folder, _dirs, _files in os.walk(base, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)

    def healthy(self):
        self.check_up("it was healthy")
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.client().get("/v1/health").status == 200
        return False

    def client(self):
        """The gateway protocol (include/sbx/gateway.h), as the control plane speaks it."""
        return Client(unix=self.socket)


class Plane(Daemon):
    """One control plane, as the unprivileged user sandboxd."""

    def __init__(self, stack, number, options):
        super().__init__(stack, f"sandboxd{number}")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.dir = os.path.join(stack.dir, f"p{number}")
        self.admin_socket = os.path.join(self.dir, "admin.sock")
        self.conf = os.path.join(stack.dir, f"sandboxd{number}.conf")
        self.program = "sandboxd"
        self.options = options

    def start(self, wait=True):
        owner = user_ids("sandboxd")
        os.makedirs(self.dir, exist_ok=True)
        os.chown(self.dir, *owner)
        options = {
            "listen.address": "127.0.0.1",
            "listen.port": self.port,
            "admin.socket": self.admin_socket,
            "database.url": self.stack.pg.url,
            "seal.keys_file": self.stack.seal_keys,
            "runs.process_secret_file": self.stack.process_secret,
        }
        options.update(self.options)
        write_ini(self.conf, options, owner=owner)
        self.spawn([program(self.program), "--config", self.conf], user="sandboxd")
        if wait:
            wait_for(f"{self.name} is ready", self.ready, 30)

    def ready(self):
        self.check_up("it was ready")
        with contextlib.suppress(OSError, http.client.HTTPException):
            return Client(self.url).get("/readyz").status == 200
        return False

    def admin(self, method, path, body=None, status=(200, 201), **kw):
        """An admin call (docs/api-admin.md); `path` without /admin/v1."""
        answer = Client(unix=self.admin_socket).request(method, "/admin/v1" + path, body, **kw)
        if answer.status not in (status if isinstance(status, tuple) else (status,)):
            raise AssertionError(f"{method} /admin/v1{path}: {answer.status} {answer.text()[:500]}")
        return answer.json


def program(name):
    path = os.path.join(BUILD, name)
    if not os.path.exists(path):
        raise Missing(f"{path} was not built")
    return path


# --------------------------------------------------------------------------------------------- HTTP


class Answer:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    def text(self):
        return self.body.decode("utf-8", "replace")

    @property
    def json(self):
        """The body; None when it is not JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    @property
    def code(self):
        return (self.json or {}).get("code")

    def __repr__(self):
        return f"<{self.status} {self.text()[:300]}>"


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Client:
    """One connection for each request.  Give a url or the path of a unix socket."""

    def __init__(self, url=None, unix=None, token=None, timeout=60):
        self.host = url.split("//", 1)[1] if url else None
        self.unix = unix
        self.token = token
        self.timeout = timeout

    def request(self, method, path, body=None, headers=None, timeout=None):
        """body: an object that becomes JSON, or bytes, or a file; headers: a dictionary."""
        timeout = timeout or self.timeout
        connection = _UnixConnection(self.unix, timeout) if self.unix else http.client.HTTPConnection(self.host, timeout=timeout)
        sent = {}
        if self.token:
            sent["Authorization"] = self.token
        if body is not None and not isinstance(body, (bytes, io.IOBase)):
            body = json.dumps(body).encode()
            sent["Content-Type"] = "application/json"
        sent.update(headers or {})
        try:
            connection.request(method, path, body=body, headers=sent)
            response = connection.getresponse()
            answer = Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
            if CONTRACT and not self.unix:
                CONTRACT.check(method, path, body if isinstance(body, bytes) else None, answer.status, answer.body,
                               answer.headers.get("content-type"))
            return answer
        finally:
            connection.close()

    def get(self, path, **kw):
        return self.request("GET", path, **kw)

    def post(self, path, body=None, **kw):
        return self.request("POST", path, {} if body is None else body, **kw)

    def socket(self, timeout=10):
        """A connected socket, for bytes by hand."""
        if self.unix:
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(timeout)
            s.connect(self.unix)
            return s
        host, port = self.host.rsplit(":", 1)
        return socket.create_connection((host, int(port)), timeout)

    def raw(self, data, timeout=10):
        """Sends exactly these bytes and returns all that comes until the peer closes or time is up."""
        out = b""
        with self.socket(timeout) as s:
            try:
                s.sendall(data)
            except OSError:
                pass  # the peer may answer and close before it has read everything
            deadline = time.monotonic() + timeout
            while time.monotonic() < deadline:
                s.settimeout(max(0.05, deadline - time.monotonic()))
                try:
                    part = s.recv(65536)
                except OSError:
                    break
                if not part:
                    break
                out += part
        return out


def in_parallel(n, fn):
    """fn(i) in n threads at once; the results in order.  The first exception is raised."""
    results, errors, barrier = [None] * n, [], threading.Barrier(n)

    def work(i):
        try:
            barrier.wait()
            results[i] = fn(i)
        except BaseException as e:  # noqa: B902, handed to the caller
            errors.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]
    return results


# -------------------------------------------------------------------------------------------- images


def busybox_rootfs(path):
    """A root file system of one static program: 2 MB, made in milliseconds."""
    busybox = next((p for p in ("/usr/bin/busybox", "/bin/busybox") if os.path.exists(p)), None)
    if not busybox:
        raise Missing("busybox-static is not installed: run config/install test")
    for folder in ("bin", "etc", "tmp", "proc", "sys", "dev", "run", "workspace", "root", "usr/bin"):
        os.makedirs(os.path.join(path, folder), exist_ok=True)
    os.chmod(os.path.join(path, "tmp"), 0o1777)
    shutil.copy(busybox, os.path.join(path, "bin/busybox"))
    for applet in subprocess.run([busybox, "--list"], check=True, text=True, stdout=subprocess.PIPE).stdout.split():
        link = os.path.join(path, "bin", applet)
        if not os.path.lexists(link):
            os.symlink("busybox", link)
    with open(os.path.join(path, "etc/passwd"), "w") as f:
        f.write("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n")
    with open(os.path.join(path, "etc/group"), "w") as f:
        f.write("root:x:0:\nnogroup:x:65534:\n")
    return path


def tar_of(path):
    """The folder as the bytes of a tar stream."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as t:
        t.add(path, arcname=".")
    return out.getvalue()


# -------------------------------------------------------------------------------------------- tenant


class Tenant:
    """An account with one user who is its admin, a user token, an app and a template."""

    def __init__(self, stack, plane, **ids):
        self.stack = stack
        self.plane = plane
        self.__dict__.update(ids)
        self.client = Client(plane.url, token=self.token)

    def call(self, method, path, body=None, status=None, plane=None, **kw):
        """A public call; `path` without the prefix.  With `status` any other one is a failure."""
        client = Client(plane.url, token=self.token) if plane else self.client
        answer = client.request(method, PUBLIC + path, body, **kw)
        if status is not None and answer.status not in (status if isinstance(status, tuple) else (status,)):
            raise AssertionError(f"{method} {path}: {answer}")
        return answer

    def create(self, status=201, plane=None, **fields):
        """POST /sandbox/create; gives the sandbox object, or the Answer when `status` is None."""
        body = {
            "accountId": self.account, "appId": self.app, "templateId": self.template,
            "workloadProfile": "QUAVE_INTERACTIVE_AGENT", "ownerKind": "AGENT_CONVERSATION",
            "ownerId": "conversation-1", "region": self.region, "idempotencyKey": secrets.token_hex(12),
        }
        body.update(fields)
        body = {k: v for k, v in body.items() if v is not None}
        answer = self.call("POST", "/sandbox/create", body, status, plane)
        return answer.json["sandbox"] if status is not None else answer

    def get(self, box, plane=None):
        answer = self.call("GET", f"/sandbox?accountId={self.account}&sandboxId={_id(box)}", status=200, plane=plane)
        return answer.json["sandbox"]

    def wait(self, box, *statuses, timeout=60, plane=None):
        """Polls until the sandbox has one of the statuses; says what it had instead."""
        last = {}

        def check():
            last.clear()
            last.update(self.get(box, plane))
            if last["status"] in statuses:
                return last
            if last["status"] in ("FAILED", "TERMINATED"):
                raise AssertionError(f"sandbox ended {last['status']} ({last.get('statusReason')}, "
                                     f"{last.get('errorCode')}), wanted {statuses}")
            return None
        try:
            return dict(wait_for(f"status {statuses}", check, timeout))
        except AssertionError as e:
            raise AssertionError(f"{e}; last: {last.get('status')} {last.get('statusReason')}") from None

    def ready(self, timeout=60, **fields):
        return self.wait(self.create(**fields), "READY", timeout=timeout)

    def execute(self, box, command, status=200, plane=None, timeout=None, **fields):
        """POST /sandbox/execute; gives the answer's object, or the Answer when `status` is None."""
        body = {"accountId": self.account, "sandboxId": _id(box), "command": command, **fields}
        answer = self.call("POST", "/sandbox/execute", body, status, plane,
                           timeout=timeout or fields.get("timeoutSeconds", 120) + 30)
        return answer.json if status is not None else answer

    def act(self, verb, box, status=200, plane=None, **fields):
        """terminate, pause or resume; gives the sandbox object, or the Answer when `status` is None."""
        body = {"accountId": self.account, "sandboxId": _id(box), **fields}
        answer = self.call("POST", f"/sandbox/{verb}", body, status, plane, timeout=120)
        return answer.json.get("sandbox") if status is not None else answer

    def terminate(self, box, **kw):
        return self.act("terminate", box, **kw)

    def pause(self, box, **kw):
        return self.act("pause", box, **kw)

    def resume(self, box, **kw):
        return self.act("resume", box, **kw)

    def list(self, **query):
        text = "&".join(f"{k}={v}" for k, v in {"accountId": self.account, **query}.items())
        return self.call("GET", f"/sandboxes?{text}", status=200).json

    def add_template(self, image=None, name=None, **revision):
        """A new template with one revision; gives its id.  revision: fields of the revision call."""
        saved = self.call("POST", "/sandbox-template/save",
                          {"accountId": self.account, "name": name or "template " + secrets.token_hex(4)}, 201).json
        template = saved["template"]["templateId"]
        self.add_revision(template, image, **revision)
        return template

    def add_revision(self, template=None, image=None, **revision):
        body = {"accountId": self.account, "templateId": template or self.template,
                "imageDigest": image or self.stack.image(self.region), "command": ["sleep", "1000000"], **revision}
        body = {k: v for k, v in body.items() if v is not None}
        return self.call("POST", "/sandbox-template/revision", body, 201).json["revision"]


def _id(box):
    return box["sandboxId"] if isinstance(box, dict) else box


# --------------------------------------------------------------------------------------------- stack


class Stack:
    """planes, regions: how many.  driver: "runsc" or "fake".  sandboxd, region: {"section.key": value}
    added to the configuration of each control plane and each region gateway.  durable: what PostgreSQL has
    acknowledged outlives its being killed (the machine's crash is not tried)."""

    live = []

    def __init__(self, planes=1, regions=1, driver="runsc", sandboxd=None, region=None, durable=False, region_class=Region):
        self.commits = "on" if durable else "off"
        if os.geteuid() != 0:
            raise Missing("the system tests need root (users, namespaces, cgroups)")
        # Short: the path of a unix socket has 107 bytes.
        self.dir = tempfile.mkdtemp(prefix="sbx-", dir=os.environ.get("SANDBOXD_TEST_DIR", "/tmp"))
        os.chmod(self.dir, 0o755)
        self.logs = os.path.join(self.dir, "logs")
        os.makedirs(self.logs)
        os.chmod(self.logs, 0o755)
        self.seal_keys = os.path.join(self.dir, "seal.keys")
        with open(self.seal_keys, "w") as f:
            f.write("test " + secrets.token_hex(32) + "\n")
        os.chown(self.seal_keys, *user_ids("sandboxd"))
        os.chmod(self.seal_keys, 0o600)
        self.process_secret = os.path.join(self.dir, "process.secret")
        with open(self.process_secret, "w") as f:
            f.write(secrets.token_hex(32) + "\n")
        os.chown(self.process_secret, *user_ids("sandboxd"))
        os.chmod(self.process_secret, 0o600)
        self.pg = Postgres(self)
        self.regions = [region_class(self, i, driver, region or {}) for i in range(regions)]
        self.planes = [Plane(self, i, sandboxd or {}) for i in range(planes)]
        self._images = {}
        Stack.live.append(self)

    def start(self):
        self.pg.start()
        for part in self.regions + self.planes:
            part.start()
        for r in self.regions:
            self.admin("POST", "/region/create", {"name": r.region, "socket": r.socket, "sandboxes": True})
        return self

    @property
    def plane(self):
        return self.planes[0]

    @property
    def region(self):
        return self.regions[0]

    def admin(self, method, path, body=None, **kw):
        return self.plane.admin(method, path, body, **kw)

    def image(self, region=None, kind="busybox"):
        """The digest reference of an image in the region's store, imported once."""
        region = region or self.region.region
        if (region, kind) not in self._images:
            rootfs = os.path.join(self.dir, "rootfs-" + kind)
            if kind == "busybox":
                busybox_rootfs(rootfs)
            elif kind == "python3":
                subprocess.run([os.path.join(SOURCE, "config/make-rootfs"), rootfs], check=True)
            else:
                raise ValueError(kind)
            self._images[region, kind] = self.import_rootfs(rootfs, kind, region)
        return self._images[region, kind]

    def import_rootfs(self, rootfs, name, region=None):
        answer = self.admin("POST", f"/image/import?region={region or self.region.region}&name={name}&kind=rootfs",
                            tar_of(rootfs), headers={"Content-Type": "application/x-tar"}, timeout=120)
        return answer["reference"]

    def tenant(self, name=None, roles=("admin",), plane=None, region=None, quota=None, template=True, **revision):
        """A new account that may use the region.  revision: fields of its template's revision."""
        plane = plane or self.plane
        region = region or self.region.region
        name = name or "account " + secrets.token_hex(4)
        account = plane.admin("POST", "/account/create", {"name": name})["account"]["accountId"]
        plane.admin("POST", "/account/entitle", {"accountId": account, "sandboxes": True})
        if quota is not None:
            plane.admin("POST", "/account/quota", {"accountId": account, "active": quota})
        plane.admin("POST", "/region/grant", {"accountId": account, "region": region})
        user, token = self.member(account, roles, plane)
        app = plane.admin("POST", "/app/create", {"accountId": account, "name": "app"})["app"]["appId"]
        tenant = Tenant(self, plane, account=account, user=user, token=token, app=app, region=region, template=None)
        if template:
            tenant.template = tenant.add_template(**revision)
        return tenant

    def member(self, account, roles=("member",), plane=None):
        """A new user in the account: (user id, user token)."""
        plane = plane or self.plane
        user = plane.admin("POST", "/user/create", {"email": f"{secrets.token_hex(6)}@example.test"})["user"]["userId"]
        plane.admin("POST", "/member/add", {"accountId": account, "userId": user, "roles": list(roles)})
        return user, plane.admin("POST", "/token/create", {"kind": "user", "userId": user})["secret"]

    def backend_dir(self, tenant, path=None):
        """A `dir` object storage backend for the tenant's account; gives its folder."""
        path = path or os.path.join(self.dir, "backend-" + tenant.account)
        os.makedirs(path, exist_ok=True)
        self.admin("POST", "/backend/create",
                   {"accountId": tenant.account, "region": tenant.region, "kind": "dir", "path": path})
        return path

    def ctl(self, *words, tenant=None, code=0, env=None, data=None, plane=None):
        """Runs sandboxctl against the plane; gives (stdout, stderr) as bytes.  tenant: whose token and ids."""
        plane = plane or self.plane
        sets = {"SANDBOXCTL_STATE": "/nonexistent", "SANDBOXCTL_SOCKET": plane.admin_socket}
        if tenant:
            token_file = os.path.join(self.dir, "token-" + tenant.account)
            with open(token_file, "w") as f:
                f.write(tenant.token + "\n")
            sets.update(SANDBOXCTL_URL=plane.url, SANDBOXCTL_TOKEN_FILE=token_file, SANDBOXCTL_ACCOUNT=tenant.account,
                        SANDBOXCTL_APP=tenant.app, SANDBOXCTL_TEMPLATE=tenant.template or "", SANDBOXCTL_REGION=tenant.region)
        run = subprocess.run([program("sandboxctl"), *words], input=data, stdin=None if data else subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**clean_environment(), **sets, **(env or {})},
                             timeout=300, check=False)
        if code is not None and run.returncode != code:
            raise AssertionError(f"sandboxctl {words}: exit {run.returncode}, not {code}:\n{run.stdout!r}\n{run.stderr!r}")
        return run.stdout, run.stderr

    def ctl_json(self, *words, **kw):
        return json.loads(self.ctl("--json", *words, **kw)[0])

    # ---- the end

    def stop(self, rough=False):
        """Ends the sandboxes, then every part, and looks for leftovers.  rough: after a test that broke
        something on purpose (or failed): what is left is ended by pid and not complained about."""
        if self not in Stack.live:
            return
        Stack.live.remove(self)
        trouble = []
        if not rough:
            try:
                self.end_sandboxes()
            except (AssertionError, OSError, http.client.HTTPException) as e:
                trouble.append(f"ending the sandboxes: {e}")
        for part in self.planes + self.regions + [self.pg]:
            try:
                part.stop()
            except (AssertionError, subprocess.TimeoutExpired) as e:
                trouble.append(str(e))
                part.kill9()
        left = self.leftovers()
        if left and not rough:
            # A sandbox's processes may still be on their way out.
            deadline = time.monotonic() + 5
            while left and time.monotonic() < deadline:
                time.sleep(0.1)
                left = self.leftovers()
            trouble += left
        trouble += self.sanitizer_reports()
        self.sweep()
        if trouble:
            LOGS.append((self, self.log_text()))
        if os.environ.get("SANDBOXD_KEEP"):
            print("kept:", self.dir, file=sys.stderr)
        else:
            shutil.rmtree(self.dir, ignore_errors=True)
        if trouble and not rough:
            raise AssertionError("at the end of the stack:\n  " + "\n  ".join(trouble))

    def end_sandboxes(self):
        plane = next((p for p in self.planes if p.running()), None)
        if not plane or not self.pg.running() or not all(r.running() for r in self.regions):
            return
        live = [b for b in plane.admin("GET", "/sandboxes?limit=500")["sandboxes"] if b["status"] not in FINAL]
        for box in live:
            plane.admin("POST", "/sandbox/terminate", {"sandboxId": box["sandboxId"]}, status=(200, 404, 409))

    def sanitizer_reports(self):
        out = []
        for part in self.planes + self.regions:
            found = re.search(r"(ERROR: \w+Sanitizer.*|.*runtime error: .*|WARNING: ThreadSanitizer.*)", part.log())
            if found:
                out.append(f"{part.name}: {found.group(1)}")
        return out

    def leftovers(self):
        """What the kernel still has of this stack's sandboxes: processes, mounts, network namespaces, cgroups.
        (A gateway's own namespace outlives it on purpose; sweep() takes that away.)"""
        out = []
        for pid, words in self.processes():
            out.append(f"process {pid}: {words}")
        with open("/proc/mounts") as f:
            out += ["mount " + line.split()[1] for line in f if self.dir + "/" in line]
        for region in self.regions:
            out += ["network namespace " + n for n in listdir("/run/netns") if n.startswith(f"sbx-{region.tag}-s")]
            for top in CGROUPS:
                path = f"/sys/fs/cgroup/{top}sandboxd/{region.tag}"
                out += [f"cgroup {path}/{n}" for n in listdir(path) if os.path.isdir(f"{path}/{n}")]
        return out

    def processes(self):
        """Processes (not this one) that name the stack's folder in their arguments."""
        out = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            if int(pid) == os.getpid():
                continue
            with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().replace(b"\0", b" ").decode("utf-8", "replace").strip()
                if self.dir + "/" in words:
                    out.append((int(pid), words[:200]))
        return out

    def sweep(self):
        for _ in range(20):
            processes = self.processes()
            for pid, _words in processes:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            if not processes:
                break
            time.sleep(0.1)
        with open("/proc/mounts") as f:
            mounts = [line.split()[1] for line in f if self.dir + "/" in line]
        for mount in sorted(mounts, key=len, reverse=True):
            subprocess.run(["umount", "-l", mount], check=False)
        for region in self.regions:
            region.sweep()

    def log_text(self, lines=60):
        out = []
        for name in sorted(os.listdir(self.logs)):
            with open(os.path.join(self.logs, name), errors="replace") as f:
                tail = f.read().splitlines()[-lines:]
            out.append(f"--- {name}\n" + "\n".join(line[:600] for line in tail))
        return "\n".join(out)


LOGS = []


class SystemTest(unittest.TestCase):
    """One stack for all tests of the class; `stack_options` are Stack's keywords."""

    stack_options = {}
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        try:
            cls.stack = Stack(**cls.stack_options)
        except Missing as e:
            raise unittest.SkipTest(str(e)) from None
        try:
            cls.stack.start()
        except Missing as e:
            cls.stack.stop(rough=True)
            raise unittest.SkipTest(str(e)) from None
        except BaseException:
            LOGS.append((cls.stack, cls.stack.log_text()))
            cls.stack.stop(rough=True)
            raise

    @classmethod
    def tearDownClass(cls):
        if getattr(cls, "failed", False):
            LOGS.append((cls.stack, cls.stack.log_text()))
        cls.stack.stop(rough=getattr(cls, "failed", False) or getattr(cls, "rough", False))


class _Result(unittest.TextTestResult):
    def _mark(self, test):
        if not isinstance(test, unittest.suite._ErrorHolder):  # a failure of setUpClass has no class
            type(test).failed = True

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._mark(test)

    def addError(self, test, err):
        super().addError(test, err)
        self._mark(test)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._mark(test)


def main():
    """Runs the file's tests: exit 0, 1, or 77 when every test was skipped.  A file where some were
    skipped passes, and the reasons are printed."""
    runner = unittest.TextTestRunner(verbosity=2, resultclass=_Result)
    result = unittest.main(module="__main__", testRunner=runner, exit=False).result
    for stack in list(Stack.live):
        stack.stop(rough=True)
    for test, why in result.skipped:
        print(f"SKIP: {test}: {why}")
    if not result.wasSuccessful():
        for stack, text in LOGS:
            print(f"\n==== logs of {stack.dir}\n{text}", file=sys.stderr)
        sys.exit(1)
    if result.skipped and len(result.skipped) >= result.testsRun:
        sys.exit(SKIP)
    if result.testsRun == 0:
        sys.exit("no test was run")
