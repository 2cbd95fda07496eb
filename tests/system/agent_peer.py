"""The gateway's end of the agent channel, small, for tests: starts a real runsc sandbox whose first
process is the agent, and speaks include/sbx/agent.h to it."""

import json
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import time

AGENT = os.path.join(os.environ.get("SANDBOXD_BUILD") or os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "build"), "sandbox-agent")
RUNSC = os.environ.get("RUNSC", "runsc")
PLATFORM = os.environ.get("SBX_TEST_PLATFORM", "ptrace")

VERSION = 1
HELLO, WELCOME, READY, FAILED, START, ENDED = 1, 2, 3, 4, 5, 6
EXEC, STARTED, STDOUT, STDERR, EXIT, REFUSED, KILL, LIST, LISTED = range(10, 19)
PING, PONG = 20, 21
FREEZE, THAW, DIAL, DONE = 30, 31, 32, 33
PACK, UNPACK, DATA, DATA_END, PUT_FILE, GET_FILE = range(40, 46)
RELAY, STOP = 50, 60
CONTROL, BULK, RELAY_KIND = 1, 2, 3

TAGS = dict(
    KIND=1, KEY=2, DIAL_ID=3, AGENT_VERSION=4, ARG=10, ENV=11, CWD=12, TIMEOUT_MS=13, CAP_STDOUT=14,
    CAP_STDERR=15, EXEC_ID=16, STDIN=17, UID=18, GID=19, EXIT_CODE=20, SIGNAL=21, TIMED_OUT=22,
    STDOUT_BYTES=23, STDERR_BYTES=24, DURATION_MS=25, REASON=26, MESSAGE=27, PATH=30, MODE=31,
    EXCLUDE=32, MAX_BYTES=33, BYTES=34, MEMBERS=35, PORT=36, NPROC=40, PROXY=41, WORKSPACE=42,
    PERSONAL=43, HOLD=44, GROUPS=45)
NAMES = {v: k for k, v in TAGS.items()}
NUMBERS = {"KIND", "DIAL_ID", "TIMEOUT_MS", "CAP_STDOUT", "CAP_STDERR", "UID", "GID", "EXIT_CODE",
           "SIGNAL", "TIMED_OUT", "STDOUT_BYTES", "STDERR_BYTES", "DURATION_MS", "REASON", "MODE",
           "MAX_BYTES", "BYTES", "MEMBERS", "PORT", "NPROC", "PROXY", "PERSONAL", "HOLD", "GROUPS"}

CAPS = ["CAP_" + c for c in (
    "CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP SETFCAP NET_BIND_SERVICE "
    "SYS_CHROOT SYS_ADMIN SYS_RESOURCE").split()]


def fields(pairs):
    """Pairs of a tag's name and one value or a list of values."""
    out = []
    for name, value in pairs.items():
        for v in value if isinstance(value, (list, tuple)) else [value]:
            data = struct.pack("<Q", v) if isinstance(v, int) else v.encode() if isinstance(v, str) else v
            out.append(struct.pack("<HI", TAGS[name], len(data)) + data)
    return b"".join(out)


def parse(payload):
    """A dict of name to value; EXEC_ID is a list."""
    out, at = {"EXEC_ID": []}, 0
    while at < len(payload):
        tag, length = struct.unpack_from("<HI", payload, at)
        data = payload[at + 6:at + 6 + length]
        at += 6 + length
        name = NAMES[tag]
        if name == "EXEC_ID":
            out[name].append(data.decode())
        else:
            out[name] = struct.unpack("<Q", data)[0] if name in NUMBERS else data
    return out


class Lost(Exception):
    pass


class Channel:
    """One connection that the agent made."""

    def __init__(self, sock):
        self.sock = sock

    def send(self, type_, stream=0, payload=b"", **pairs):
        data = payload or fields(pairs)
        self.sock.sendall(struct.pack("<BBHII", VERSION, type_, 0, stream, len(data)) + data)

    def exactly(self, n):
        out = bytearray()
        while len(out) < n:
            part = self.sock.recv(n - len(out))
            if not part:
                raise Lost("the agent closed the connection")
            out += part
        return bytes(out)

    def recv(self, timeout=30):
        self.sock.settimeout(timeout)
        version, type_, zero, stream, length = struct.unpack("<BBHII", self.exactly(12))
        assert version == VERSION and zero == 0, "not this protocol"
        return type_, stream, self.exactly(length)

    def expect(self, type_, timeout=30):
        got, stream, payload = self.recv(timeout)
        assert got == type_, f"frame {got} instead of {type_}: {payload[:300]!r}"
        return stream, payload

    def close(self):
        self.sock.close()


class Result:
    def __init__(self):
        self.out, self.err = bytearray(), bytearray()
        self.started, self.exit, self.refused = False, None, None
        self.began = time.monotonic()
        self.took = None

    def __repr__(self):
        return f"Result(exit={self.exit}, refused={self.refused}, out={bytes(self.out[:2000])!r}, err={bytes(self.err[:2000])!r})"


class Sandbox:
    """A runsc sandbox.  with Sandbox(ARG=[...]) as box: box.run("true")"""

    count = 0

    def __init__(self, rootfs=None, mounts=(), network="none", memory=None, connect=True, **welcome):
        Sandbox.count += 1
        self.id = f"agent-{os.getpid()}-{Sandbox.count:04d}"
        self.dir = tempfile.mkdtemp(prefix="sbxagent-")
        self.welcome = welcome
        self.key = os.urandom(32)
        self.streams = 0
        self.results = {}
        self.control = self.listener = None
        self.others = []
        self.rejected = 0
        self.ended = False  # the template's command
        self.proc = None
        try:
            self.start(rootfs, mounts, network)
            if connect:
                self.accept_control(first=True)
        except BaseException:
            self.close()
            raise

    def start(self, rootfs, mounts, network):
        self.rootfs = rootfs or os.path.join(self.dir, "rootfs")
        if not rootfs:
            make_rootfs(self.rootfs)
        self.channel_dir = os.path.join(self.dir, "channel")
        self.workspace = os.path.join(self.dir, "workspace")
        os.mkdir(self.channel_dir, 0o755)
        os.mkdir(self.workspace, 0o777)
        os.chmod(self.workspace, 0o777)
        shutil.copy(AGENT, os.path.join(self.channel_dir, "agent"))
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(os.path.join(self.channel_dir, "agent.sock"))
        os.chmod(os.path.join(self.channel_dir, "agent.sock"), 0o666)
        self.listener.listen(64)
        config = {
            "ociVersion": "1.0.2",
            "process": {"user": {"uid": 0, "gid": 0}, "args": ["/run/sandboxd/agent"], "cwd": "/",
                        "env": [], "noNewPrivileges": True,
                        "capabilities": {k: CAPS for k in ("bounding", "effective", "permitted")}},
            "root": {"path": self.rootfs, "readonly": False},
            "hostname": "box",
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["mode=1777"]},
                {"destination": "/run/sandboxd", "type": "bind", "source": self.channel_dir,
                 "options": ["ro", "bind"]},
                {"destination": "/workspace", "type": "bind", "source": self.workspace,
                 "options": ["rw", "bind"]}] + list(mounts),
            "linux": {"namespaces": [{"type": t} for t in ("pid", "network", "ipc", "uts", "mount")]}}
        with open(os.path.join(self.dir, "config.json"), "w") as f:
            json.dump(config, f)
        self.base = [RUNSC, f"--root={self.dir}/state", f"--platform={PLATFORM}", f"--network={network}",
                     "--ignore-cgroups", "--host-uds=open", "--overlay2=root:memory"]
        self.log = open(os.path.join(self.dir, "log"), "ab")
        self.proc = subprocess.Popen(self.base + ["run", f"--bundle={self.dir}", self.id],
                                     stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT)

    def accept(self, timeout=30):
        """The next connection and its HELLO; a wrong key is answered by closing."""
        while True:
            self.listener.settimeout(timeout)
            sock, _ = self.listener.accept()
            channel = Channel(sock)
            try:
                _, payload = channel.expect(HELLO, 10)
            except (Lost, socket.timeout, AssertionError):
                self.rejected += 1
                channel.close()
                continue
            hello = parse(payload)
            if self.control is not None and hello.get("KEY") != self.key:
                self.rejected += 1
                channel.close()
                continue
            return channel, hello

    def accept_control(self, first=False):
        try:
            self.control, hello = self.accept()
        except socket.timeout:
            raise AssertionError("the agent did not dial: " + self.output())
        assert hello["KIND"] == CONTROL, hello
        assert ("KEY" in hello) != first, hello
        self.control.send(WELCOME, **(dict(self.welcome, KEY=self.key) if first else {}))
        return hello

    def output(self):
        with open(os.path.join(self.dir, "log"), "rb") as f:
            return f.read().decode(errors="replace")

    def ready(self):
        self.control.expect(READY)
        return self

    # Executions -------------------------------------------------------------------------------
    def begin(self, *args, **pairs):
        self.streams += 1
        self.results[self.streams] = Result()
        pairs.setdefault("EXEC_ID", f"{self.streams:026d}")
        self.control.send(EXEC, self.streams, ARG=list(args), **pairs)
        return self.streams

    def pump(self, timeout=30):
        """One frame into the results; other frames are returned."""
        type_, stream, payload = self.control.recv(timeout)
        result = self.results.get(stream)
        if type_ == STARTED:
            result.started = True
        elif type_ == STDOUT:
            result.out += payload
        elif type_ == STDERR:
            result.err += payload
        elif type_ == EXIT and stream:
            result.exit, result.took = parse(payload), time.monotonic() - result.began
        elif type_ == REFUSED:
            result.refused, result.took = parse(payload), time.monotonic() - result.began
        else:
            self.ended = self.ended or type_ == ENDED
            return type_, stream, payload
        return None

    def finish(self, stream, timeout=60):
        result = self.results[stream]
        end = time.monotonic() + timeout
        while result.exit is None and result.refused is None:
            self.pump(max(0.1, end - time.monotonic()))
        return result

    def run(self, *args, timeout=60, **pairs):
        return self.finish(self.begin(*args, **pairs), timeout)

    def sh(self, script, timeout=60, **pairs):
        return self.run("/bin/sh", "-c", script, timeout=timeout, **pairs)

    # Bulk -------------------------------------------------------------------------------------
    def ask(self, type_, timeout=60, payload=b"", **pairs):
        """A request that DONE answers; DATA before it is returned too."""
        self.streams += 1
        self.control.send(type_, self.streams, payload, **pairs)
        data = bytearray()
        while True:
            got = self.pump(timeout)
            if got and got[0] == DATA:
                data += got[2]
            elif got and got[0] == DONE:
                assert got[1] == self.streams
                return parse(got[2]), bytes(data)

    def dial(self, dial_id=7):
        self.streams += 1
        self.control.send(DIAL, self.streams, DIAL_ID=dial_id)
        channel, hello = self.accept()
        assert hello["KIND"] == BULK and hello["DIAL_ID"] == dial_id, hello
        return channel

    def pack(self, timeout=60, **pairs):
        """The archive and DONE's fields."""
        channel = self.dial()
        channel.send(PACK, **pairs)
        data = bytearray()
        while True:
            type_, _, payload = channel.recv(timeout)
            if type_ == DONE:
                channel.close()
                return bytes(data), parse(payload)
            assert type_ == DATA, type_
            data += payload

    def unpack(self, data, timeout=60, **pairs):
        """DONE's fields.  Writes all before it reads, as a simple gateway would."""
        channel = self.dial()
        channel.send(UNPACK, **pairs)
        channel.sock.settimeout(timeout)
        for at in range(0, len(data), 65536):
            channel.send(DATA, payload=data[at:at + 65536])
        channel.send(DATA_END)
        _, payload = channel.expect(DONE, timeout)
        channel.close()
        return parse(payload)

    # End --------------------------------------------------------------------------------------
    def state_pids(self):
        path = os.path.join(self.dir, "state", f"{self.id}_sandbox:{self.id}.state")
        with open(path) as f:
            state = json.load(f)
        return [state["sandbox"]["pid"], state["goferPid"]]

    def close(self):
        if self.proc:
            self.proc.kill()
            try:
                for pid in self.state_pids():
                    os.kill(pid, 9)
            except (OSError, KeyError, ValueError):
                pass
            self.proc.wait()
            subprocess.run(self.base + ["delete", "--force", self.id], stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, timeout=60)
            self.log.close()
        for c in [self.control, self.listener] + self.others:
            if c:
                c.close()
        shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        try:
            if exc[0]:
                print(self.output())
        finally:
            self.close()


def make_rootfs(path):
    """busybox, a few users, and the mount points that runsc would otherwise create."""
    for d in ("bin", "proc", "dev", "tmp", "run/sandboxd", "workspace", "etc", "root", "sys", "home/box"):
        os.makedirs(os.path.join(path, d), exist_ok=True)
    busybox = shutil.which("busybox")
    shutil.copy(busybox, os.path.join(path, "bin/busybox"))
    for name in subprocess.run([busybox, "--list"], check=True, capture_output=True,
                               text=True).stdout.split():
        target = os.path.join(path, "bin", name)
        if not os.path.exists(target):
            os.symlink("busybox", target)
    with open(os.path.join(path, "etc/passwd"), "w") as f:
        f.write("root:x:0:0:root:/root:/bin/sh\nbox:x:1000:1000::/home/box:/bin/sh\n")
    os.chown(os.path.join(path, "home/box"), 1000, 1000)
