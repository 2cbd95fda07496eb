# ctest: timeout 300
"""Freeze, archive and restore by the agent in a real sandbox.  Cases 20, 23, 25 at the agent; the
private files of a personal run; the relay to the egress proxy."""

import hashlib
import io
import os
import random
import shutil
import socket
import subprocess
import tarfile
import time
import unittest

import agent_peer as peer
from agent_peer import Sandbox

ATTACK = os.path.join(os.path.dirname(peer.AGENT), "agent_attack")


def size(box, name):
    path = os.path.join(box.workspace, name)
    return os.path.getsize(path) if os.path.exists(path) else 0


def wait_for(what, timeout=20):
    end = time.monotonic() + timeout
    while not what():
        if time.monotonic() > end:
            raise AssertionError("it did not happen in time")
        time.sleep(0.02)


class Freeze(unittest.TestCase):
    def setUp(self):
        self.box = Sandbox(NPROC=300).ready()
        shutil.copy(ATTACK, os.path.join(self.box.workspace, "attack"))

    def tearDown(self):
        self.box.close()

    def stands_and_goes_on(self, name):
        box = self.box
        wait_for(lambda: size(box, name) > 3)
        done, _ = box.ask(peer.FREEZE)
        self.assertNotIn("REASON", done)
        before = size(box, name)
        time.sleep(1)
        self.assertEqual(size(box, name), before)
        self.assertEqual(box.run("true").refused["REASON"], 9)
        done, _ = box.ask(peer.FREEZE)  # again is no error
        self.assertNotIn("REASON", done)
        box.ask(peer.THAW)
        wait_for(lambda: size(box, name) > before)

    def test_who_forks_and_continues_others_without_end(self):
        stream = self.box.begin("/workspace/attack", "storm", "/workspace/s1")
        # The first of the line ends at once and its execution with it: keep the namespace alive.
        self.box.finish(stream)
        stream = self.box.begin("sh", "-c", "/workspace/attack storm /workspace/s2 & sleep 100")
        self.stands_and_goes_on("s2")
        self.box.control.send(peer.KILL, stream)
        self.box.finish(stream)

    def test_a_parent_that_waits_for_its_vfork_child(self):
        self.box.begin("/workspace/attack", "vfork", "/workspace/v")
        self.stands_and_goes_on("v")

    def test_who_was_stopped_before_stays_so(self):
        box = self.box
        stream = box.begin("sh", "-c", "(while :; do echo x >> /workspace/a; sleep 0.1; done) & echo $! > /workspace/pid;"
                           "sleep 1; kill -STOP $!; touch /workspace/stopped; "
                           "while :; do echo x >> /workspace/b; sleep 0.1; done")
        wait_for(lambda: os.path.exists(os.path.join(box.workspace, "stopped")))
        time.sleep(0.3)
        before = size(box, "a")
        self.stands_and_goes_on("b")
        self.assertEqual(size(box, "a"), before)
        box.control.send(peer.KILL, stream)

    def test_a_lost_gateway_leaves_nobody_frozen(self):
        box = self.box
        box.begin("sh", "-c", "while :; do echo x >> /workspace/c; sleep 0.05; done")
        wait_for(lambda: size(box, "c") > 3)
        box.ask(peer.FREEZE)
        before = size(box, "c")
        box.control.close()
        wait_for(lambda: size(box, "c") > before)
        box.accept_control()
        box.ready()
        self.assertEqual(box.run("true").exit["EXIT_CODE"], 0)

    def test_a_deadline_acts_on_the_frozen(self):
        box = self.box
        stream = box.begin("sleep", "60", TIMEOUT_MS=700)
        while not box.results[stream].started:
            box.pump()
        box.ask(peer.FREEZE)
        self.assertEqual(box.finish(stream, 5).exit["EXIT_CODE"], 124)
        box.ask(peer.THAW)


class Snapshot(unittest.TestCase):
    def setUp(self):
        self.box = Sandbox().ready()

    def tearDown(self):
        self.box.close()

    def listing(self):
        r = self.box.sh("find . | sort | while read -r f; do stat -c '%n %F %a %u:%g %s %Y %N %h' \"$f\" | "
                        "sed '/ directory /s/ [0-9]*$//; / directory /s/ [0-9]* / /4'; done; "
                        "find . -type f -print0 | sort -z | xargs -0 md5sum")
        self.assertEqual(r.exit["EXIT_CODE"], 0, r)
        return r.out.decode("latin-1")

    def test_case_20_what_was_written_is_in_it(self):
        box = self.box
        stream = box.begin("sh", "-c", "head -c 50000000 /dev/urandom > big; md5sum big; sleep 100")
        while b"big" not in box.results[stream].out:
            box.pump()
        want = box.results[stream].out.split()[0]
        box.ask(peer.FREEZE)
        data, done = box.pack(PATH="/workspace")
        self.assertNotIn("REASON", done)
        self.assertEqual(done["BYTES"], 50000000)
        with Sandbox() as other:
            other.ready()
            self.assertNotIn("REASON", other.unpack(data, PATH="/workspace", MAX_BYTES=50000000))
            self.assertEqual(other.sh("md5sum big").out.split()[0], want)

    def test_five_cycles_keep_the_exact_tree(self):
        box = self.box
        box.sh("mkdir -p a/b empty .hidden; echo 1 > a/one; ln a/one a/two; ln -s one a/sym; ln -s /nowhere out; "
               "chmod 4755 a/one; chmod 700 empty; chown 12:34 a/b; touch -d '2001-02-03 04:05:06' a/b a/sym empty; "
               "mkfifo pipe; truncate -s 5000000 sparse; printf '\\377' > \"$(printf 'n\\377')\"")
        box.run("rm", "pipe")
        for cycle in range(5):
            box.sh(f"echo {cycle} > new{cycle}; echo {cycle} >> a/one; rm -f new{cycle - 1}; mkdir d{cycle}; "
                   "touch -d '2003-03-03 03:03:03' .")
            before = self.listing()
            data, done = box.pack()
            self.assertNotIn("REASON", done)
            box.close()
            box = self.box = Sandbox().ready()
            self.assertNotIn("REASON", box.unpack(data))
            self.assertEqual(self.listing(), before)

    def test_links_pipes_and_times_of_nanoseconds(self):
        box = self.box
        box.sh("mkfifo pipe; touch f; mkdir d")
        os.utime(os.path.join(box.workspace, "f"), ns=(1, 1234567890123456789))
        data, _ = box.pack()
        done = box.unpack(data, PATH="/tmp")
        self.assertEqual(done["MEMBERS"], 3)
        names = subprocess.run(["tar", "--zstd", "-t"], input=data, capture_output=True, check=True).stdout
        self.assertEqual(sorted(names.split()), [b"./", b"d/", b"f"])
        raw = subprocess.run(["zstd", "-dc"], input=data, capture_output=True, check=True).stdout
        member = tarfile.open(fileobj=io.BytesIO(raw)).getmember("f")
        self.assertEqual(member.pax_headers["mtime"], "1234567890.123456789")

    def test_case_23_excludes(self):
        box = self.box
        box.sh("mkdir -p .cache/foo/a/node_modules .cache/foo/a/src dist x/dist build/tmp y/build/tmp only-root.d; "
               "touch .cache/foo/a/node_modules/m .cache/foo/a/src/s x/dist/d a.log keep.log build/tmp/t y/build/tmp/t "
               "only-root y/only-root")
        data, _ = box.pack(EXCLUDE=[".cache/foo/*/node_modules", "**/dist", "*.log", "!keep.log", "build/tmp", "/only-root"])
        names = subprocess.run(["tar", "--zstd", "-t"], input=data, capture_output=True, check=True).stdout
        self.assertEqual(sorted(names.decode().split()), sorted([
            "./", ".cache/", ".cache/foo/", ".cache/foo/a/", ".cache/foo/a/src/", ".cache/foo/a/src/s", "x/", "keep.log",
            "build/", "y/", "y/build/", "y/build/tmp/", "y/build/tmp/t", "only-root.d/", "y/only-root"]))

    def test_case_25_the_cap(self):
        box = self.box
        box.sh("truncate -s 3G sparse")
        _, done = box.pack(MAX_BYTES=1 << 20)
        self.assertEqual(done["REASON"], 4)
        box.sh("rm sparse; for i in 1 2 3; do head -c 600000 /dev/urandom > $i; done")
        data, done = box.pack(MAX_BYTES=1 << 20)
        self.assertEqual(done["REASON"], 4)
        _, done = box.pack(MAX_BYTES=0)
        self.assertEqual(done["REASON"], 4)
        data, done = box.pack(MAX_BYTES=1800000)
        self.assertNotIn("REASON", done)
        self.assertEqual(box.unpack(data, PATH="/tmp", MAX_BYTES=1799999)["REASON"], 4)
        self.assertEqual(box.sh("ls -A /tmp").out, b"")
        self.assertEqual(box.run("true").exit["EXIT_CODE"], 0)

    def test_a_large_sparse_file_stays_sparse(self):
        self.box.sh("truncate -s 200M big; printf end >> big")
        data, done = self.box.pack()
        self.assertLess(len(data), 1 << 20)
        self.assertEqual(done["BYTES"], 200 * (1 << 20) + 3)
        self.box.sh("rm big")
        self.assertNotIn("REASON", self.box.unpack(data))
        self.assertLess(os.stat(os.path.join(self.box.workspace, "big")).st_blocks * 512, 1 << 20)
        self.assertEqual(self.box.sh("tail -c 3 big").out, b"end")

    def hostile(self, *members):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            for name, type_, link in members:
                info = tarfile.TarInfo(name)
                info.type, info.linkname = type_, link
                content = b"evil" * 100000 if type_ == tarfile.REGTYPE else b""
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        return subprocess.run(["zstd", "-c", "-q"], input=out.getvalue(), capture_output=True, check=True).stdout

    def test_hostile_archives_write_nowhere(self):
        box = self.box
        box.sh("echo safe > /tmp/target; mkdir /workspace/in")
        f, l, h, d = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE
        for members, reason in (([("../target", f, "")], 5), ([("/tmp/target", f, "")], 5),
                                ([("l", l, "/tmp"), ("l/target", f, "")], 5), ([("l", l, ".."), ("l/x", f, "")], 5),
                                ([("h", h, "../../tmp/target")], 5), ([("l", l, "/tmp"), ("h", h, "l/target")], 5),
                                ([("dev", d, "")], 6)):
            done = box.unpack(self.hostile(("ok", f, ""), *members), PATH="/workspace/in")
            self.assertEqual(done.get("REASON"), reason, (members, done))
            self.assertEqual(os.listdir(os.path.join(box.workspace, "in")), [], members)
            r = box.sh("cat /tmp/target; ls /tmp; ls -A in; ls")
            self.assertEqual(r.out, b"safe\ntarget\nin\n", members)
        data, _ = box.pack(PATH="/tmp")
        for broken in (data[:-5], data[:20], b"x" * 5000, b"", data[:40] + b"\0" * 8 + data[48:]):
            self.assertEqual(box.unpack(broken, PATH="/workspace/in")["REASON"], 6)
        bomb = subprocess.run("head -c 300000000 /dev/zero | zstd -c -q", shell=True, capture_output=True).stdout
        self.assertEqual(box.unpack(bomb, PATH="/workspace/in")["REASON"], 6)

    def test_jobs_are_bounded_and_can_be_cancelled(self):
        box = self.box
        box.sh("head -c 30000000 /dev/urandom > f")
        channels = [box.dial(i) for i in range(4)]
        self.assertEqual(box.ask(peer.DIAL, DIAL_ID=9)[0]["REASON"], 3)
        channels[0].send(peer.PACK)
        for c in channels:
            c.close()
        def free():
            box.streams += 1
            box.control.send(peer.DIAL, box.streams, DIAL_ID=77)
            box.listener.settimeout(1)
            try:
                sock, _ = box.listener.accept()
                sock.close()
                return True
            except socket.timeout:
                box.control.expect(peer.DONE)
                return False
        wait_for(free)
        _, done = box.pack(PATH="/nowhere")
        self.assertEqual(done["REASON"], 7)
        self.assertNotIn(b"/", done["MESSAGE"])


class Private(unittest.TestCase):
    def test_files_of_a_personal_run(self):
        with Sandbox(PERSONAL=1, UID=1000, GID=1000, ARG=["sh", "-c", "sleep 1; cd /run/warren; stat -c '%a %u %g' . auth > got; "
                     "cat auth >> got; echo new > auth; ln -s /etc/passwd link; ln auth hard; mkfifo pipe; sleep 100"]) as box:
            box.ready()
            put = lambda path, data, **k: box.ask(peer.PUT_FILE, PATH=path, STDIN=data, **k)[0]
            get = lambda path, **k: box.ask(peer.GET_FILE, PATH=path, **k)
            self.assertNotIn("REASON", put("/run/warren/auth", b"s\0cret", MODE=0o600))
            self.assertEqual(get("/run/warren/auth")[1], b"s\0cret")
            wait_for(lambda: get("/run/warren/pipe")[0]["REASON"] == 7)
            self.assertEqual(get("/run/warren/got")[1], b"700 1000 1000\n600 1000 1000\ns\0cret")
            for path, reason in (("/run/warren/none", 8), ("/run/warren/link", 7), ("/run/warren/hard", 7), ("/etc/passwd", 5),
                                 ("/run/warren/../../etc/passwd", 5), ("/run/warren/", 5), ("/run/warren/a/b", 5), ("/run/warren/..", 5)):
                self.assertEqual(get(path)[0]["REASON"], reason, path)
                if reason == 5:
                    self.assertEqual(put(path, b"x")["REASON"], 5, path)
            self.assertEqual(get("/run/warren/got", MAX_BYTES=5)[0]["REASON"], 4)
            big = os.urandom(1 << 20)
            self.assertNotIn("REASON", put("/run/warren/big", big))
            self.assertEqual(hashlib.sha256(get("/run/warren/big")[1]).digest(), hashlib.sha256(big).digest())

    def test_others_have_none(self):
        with Sandbox() as box:
            box.ready()
            self.assertEqual(box.ask(peer.PUT_FILE, PATH="/run/warren/x", STDIN=b"x")[0]["REASON"], 10)


class Relay(unittest.TestCase):
    def setUp(self):
        self.box = Sandbox(PROXY=1, UID=1000, GID=1000).ready()

    def tearDown(self):
        self.box.close()

    def relayed(self):
        channel, hello = self.box.accept()
        self.assertEqual(hello["KIND"], peer.RELAY_KIND)
        _, payload = channel.expect(peer.RELAY)
        self.assertEqual(peer.parse(payload)["PORT"], 3128)
        channel.sock.settimeout(30)
        return channel.sock

    def test_bytes_pass_both_ways_and_each_way_ends_by_itself(self):
        big = os.urandom(3 << 20)
        stream = self.box.begin("nc", "127.0.0.1", "3128", STDIN=b"hello" * 100000)
        sock = self.relayed()
        got = b""
        while part := sock.recv(65536):
            got += part
        self.assertEqual(got, b"hello" * 100000)
        sock.sendall(big)
        sock.close()
        r = self.box.finish(stream)
        self.assertEqual(bytes(r.out), big)

    def test_much_in_parts_of_every_size_arrives_in_order(self):
        """The relay reads several parts by one call, some of them not full."""
        stream = self.box.begin("sh", "-c", "nc 127.0.0.1 3128 </dev/null | md5sum")
        sock = self.relayed()
        digest, chance = hashlib.md5(), random.Random(6)
        for size in (1, 50, 4096, 65535, 200_000, 700_000, 1_500_000) * 8:
            part = chance.randbytes(chance.randint(1, size))
            digest.update(part)
            sock.sendall(part)
        sock.close()
        self.assertEqual(bytes(self.box.finish(stream).out).split()[0].decode(), digest.hexdigest())

    def test_many_and_a_gateway_that_refuses(self):
        streams = [self.box.begin("sh", "-c", f"printf {i} | nc 127.0.0.1 3128") for i in range(150)][:120]
        served = 0
        while served < 120:
            sock = self.relayed()
            number = sock.recv(10)
            sock.sendall(number + b"!")
            sock.close()
            served += 1
        for stream in streams:
            self.box.control.send(peer.KILL, stream)
            self.assertIn(len(self.box.finish(stream).out), (0, 2, 3, 4))
        self.assertEqual(self.box.run("true").exit["EXIT_CODE"], 0)

    def test_without_it_nobody_listens(self):
        with Sandbox() as other:
            other.ready()
            self.assertNotEqual(other.sh("nc 127.0.0.1 3128 < /dev/null").exit["EXIT_CODE"], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
