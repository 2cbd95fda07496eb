# ctest: timeout 300
"""The agent in a real sandbox: hello, command, executions, limits.  Cases 26, 28, 31, 33 at the agent."""

import os
import socket
import struct
import time
import unittest

import agent_peer as peer
from agent_peer import Sandbox


# A process that shows it is alive, in a file that the test sees; %s is its name.
BEATING = "sh -c 'while :; do echo x >> /workspace/%s; sleep 0.05; done'"


def beats(box, *names):
    """How long the files of the beating are; waits until each has begun."""
    paths = [os.path.join(box.workspace, name) for name in names]
    end = time.monotonic() + 10
    while not all(map(os.path.exists, paths)):
        if time.monotonic() > end:
            raise AssertionError("they did not begin")
        time.sleep(0.02)
    return [os.path.getsize(path) for path in paths]


def gone(box, *names):
    before = beats(box, *names)
    time.sleep(0.5)
    return beats(box, *names) == before


class Hello(unittest.TestCase):
    def test_key_is_proved_on_redial_and_executions_go_on(self):
        with Sandbox(ENV=["A=1"]) as box:
            box.ready()
            stream = box.begin("/bin/sh", "-c", "sleep 2; exit 5", EXEC_ID="e" * 26)
            while not box.results[stream].started:
                box.pump()
            box.control.close()
            hello = box.accept_control()
            self.assertEqual(hello["KEY"], box.key)
            box.ready()
            box.control.send(peer.LIST, 9)
            stream, payload = box.control.expect(peer.LISTED)
            self.assertEqual((stream, peer.parse(payload)["EXEC_ID"]), (9, ["e" * 26]))
            type_, stream, payload = box.control.recv()
            self.assertEqual((type_, stream), (peer.EXIT, 0))
            exit_ = peer.parse(payload)
            self.assertEqual((exit_["EXIT_CODE"], exit_["EXEC_ID"]), (5, ["e" * 26]))
            self.assertEqual(box.sh("echo $A").out, b"1\n")

    def test_detached_execution_is_killed_by_id_and_its_exit_waits(self):
        with Sandbox() as box:
            box.ready()
            box.begin("sleep", "100", EXEC_ID="k" * 26)
            box.pump()
            box.control.close()
            box.accept_control()
            box.ready()
            box.control.send(peer.KILL, 0, EXEC_ID="k" * 26)
            _, payload = box.control.expect(peer.EXIT)
            exit_ = peer.parse(payload)
            self.assertEqual((exit_["EXIT_CODE"], exit_["SIGNAL"]), (137, 9))

    def test_garbage_ends_the_connection_and_the_agent_dials_again(self):
        with Sandbox() as box:
            box.ready()
            for bad in (b"\x02" + b"\0" * 11, struct.pack("<BBHII", 1, peer.EXEC, 0, 1, 1 << 31),
                        struct.pack("<BBHII", 1, peer.EXEC, 0, 1, 3) + b"abc",
                        struct.pack("<BBHII", 1, 99, 0, 1, 0)):
                box.control.sock.sendall(bad)
                with self.assertRaises((peer.Lost, ConnectionError)):
                    while True:
                        box.control.recv()
                box.accept_control()
                box.ready()
            self.assertEqual(box.run("true").exit["EXIT_CODE"], 0)

    def test_ping(self):
        with Sandbox() as box:
            box.ready()
            box.control.send(peer.PING, 3, b"abc")
            self.assertEqual(box.control.expect(peer.PONG), (3, b"abc"))

    def test_the_first_connection_may_come_late(self):
        with Sandbox(connect=False) as box:
            box.listener.close()
            path = os.path.join(box.channel_dir, "agent.sock")
            time.sleep(0.3)
            os.unlink(path)
            box.listener = socket.socket(socket.AF_UNIX)
            box.listener.bind(path)
            box.listener.listen(8)
            box.accept_control(first=True)
            box.ready()


class Command(unittest.TestCase):
    def test_it_runs_as_told(self):
        script = "id -u; id -g; id -G; pwd; echo $HOME; echo $X; sleep 100"
        with Sandbox(ARG=["sh", "-c", "(%s) > /tmp/out" % script], ENV=["X=a b"], UID=1000, GID=100,
                     GROUPS=[7, 8], CWD="/home/box") as box:
            box.ready()
            out = box.sh("while [ \"$(tail -n 1 /tmp/out)\" != 'a b' ]; do sleep 0.05; done; cat /tmp/out",
                         TIMEOUT_MS=10000).out.decode().splitlines()
            self.assertEqual(out[:2], ["1000", "100"])
            self.assertEqual(sorted(out[2].split()), ["100", "7", "8"])
            self.assertEqual(out[3:], ["/home/box", "/home/box", "a b"])

    def failed(self, *args, **pairs):
        with Sandbox(ARG=list(args), **pairs) as box:
            _, payload = box.control.expect(peer.FAILED, 5)
            return peer.parse(payload)

    def test_one_that_ends_at_once_has_failed(self):
        for args, code in ((("false",), 1), (("true",), 0), (("/nope",), 127), (("/etc/passwd",), 126)):
            got = self.failed(*args)
            self.assertEqual(got["EXIT_CODE"], code, args)
            self.assertIn(b"command ended at once", got["MESSAGE"])
        got = self.failed("sh", "-c", "kill -9 $$")
        self.assertEqual((got["EXIT_CODE"], got["SIGNAL"]), (137, 9))
        self.assertIn(b"working directory", self.failed("sleep", "9", CWD="/nope")["MESSAGE"])

    def test_a_later_end_is_told_and_told_again(self):
        with Sandbox(ARG=["sh", "-c", "sleep 0.5; exit 9"]) as box:
            box.ready()
            _, payload = box.control.expect(peer.ENDED)
            self.assertEqual(peer.parse(payload)["EXIT_CODE"], 9)
            self.assertEqual(box.run("true").exit["EXIT_CODE"], 0)
            box.control.close()
            box.accept_control()
            box.ready()
            box.control.expect(peer.ENDED)

    def test_hold(self):
        with Sandbox(ARG=["sleep", "100"], HOLD=1) as box:
            self.assertEqual(box.run("true").refused["REASON"], 12)
            box.control.send(peer.START)
            box.ready()
            self.assertEqual(box.run("true").exit["EXIT_CODE"], 0)

    def test_stop(self):
        with Sandbox(ARG=["sleep", "100"]) as box:
            box.ready()
            box.control.send(peer.STOP)
            self.assertEqual(box.proc.wait(20), 0)


class Execute(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.box = Sandbox(UID=1000, GID=1000).ready()

    @classmethod
    def tearDownClass(cls):
        cls.box.close()

    def test_exit_codes(self):
        box = self.box
        self.assertEqual(box.sh("exit 7").exit["EXIT_CODE"], 7)
        r = box.sh("kill -TERM $$")
        self.assertEqual((r.exit["EXIT_CODE"], r.exit["SIGNAL"]), (143, 15))
        r = box.run("no-such-program")
        self.assertEqual((r.exit["EXIT_CODE"], r.err), (127, b"no-such-program: command not found\n"))
        self.assertEqual(box.run("/etc/passwd").exit["EXIT_CODE"], 126)
        self.assertEqual(box.run("/etc").exit["EXIT_CODE"], 126)
        self.assertEqual(box.run("").exit["EXIT_CODE"], 127)
        self.assertNotIn("TIMED_OUT", r.exit)

    def test_a_script_without_interpreter_meets_no_shell(self):
        box = self.box
        box.sh("cd /tmp; echo 'touch /tmp/ran' > plain; echo '#!/nope' > bad; chmod +x plain bad")
        self.assertEqual(box.run("/tmp/plain").exit["EXIT_CODE"], 126)
        self.assertEqual(box.run("/tmp/bad").exit["EXIT_CODE"], 126)
        self.assertEqual(box.run("bad", ENV="PATH=/tmp").exit["EXIT_CODE"], 126)
        self.assertEqual(box.sh("test -e /tmp/ran").exit["EXIT_CODE"], 1)

    def test_user_directory_and_environment(self):
        r = self.box.sh("id -u; id -g; pwd; env")
        lines = r.out.decode().splitlines()
        self.assertEqual(lines[:3], ["1000", "1000", "/workspace"])
        self.assertIn("HOME=/home/box", lines)
        self.assertIn("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", lines)
        r = self.box.sh("id -u; id -G; echo $HOME", UID=0, GID=5)
        self.assertEqual(r.out, b"0\n5\n/root\n")
        self.assertEqual(self.box.sh("echo $HOME", ENV="HOME=/x").out, b"/x\n")
        self.assertEqual(self.box.sh("ulimit -c; umask; trap").out.split()[-1], b"0022")

    def test_directories(self):
        box = self.box
        box.sh("mkdir -p /workspace/a/b /tmp/out; ln -s /etc /workspace/away; ln -s a/b /workspace/in;"
               "mkdir -p /tmp/closed; chmod 0 /tmp/closed")
        self.assertEqual(box.run("pwd", CWD="a/b").out, b"/workspace/a/b\n")
        self.assertEqual(box.run("pwd", CWD="a/../a/./b").out, b"/workspace/a/b\n")
        self.assertEqual(box.run("pwd", CWD=".").out, b"/workspace\n")
        self.assertEqual(box.run("/bin/pwd", CWD="in").out, b"/workspace/a/b\n")
        self.assertEqual(box.run("pwd", CWD="/etc").out, b"/etc\n")
        for cwd, reason in (("nope", 1), ("/nope", 1), ("/etc/passwd", 1), ("/tmp/closed", 1), ("..", 2),
                            ("../etc", 2), ("a/../../tmp", 2), ("away", 2), ("../workspace2", 1)):
            r = box.run("pwd", CWD=cwd)
            self.assertEqual((r.refused or {}).get("REASON"), reason, (cwd, r))

    def test_standard_input(self):
        box = self.box
        self.assertEqual(box.run("cat").out, b"")
        self.assertEqual(box.run("cat", STDIN=b"a\0b").out, b"a\0b")
        self.assertEqual(box.run("cat", STDIN=b"").out, b"")
        big = os.urandom(1 << 20)
        self.assertEqual(box.run("cat", STDIN=big).out, big)
        self.assertEqual(box.sh("cat /dev/stdin; echo x > /dev/stdout; echo y > /dev/stderr", STDIN=b"i").out,
                         b"ix\n")

    def test_case_26_the_deadline_keeps_what_was_written(self):
        began = time.monotonic()
        r = self.box.sh("printf out; printf err >&2; sleep 30", TIMEOUT_MS=1000)
        self.assertLess(time.monotonic() - began, 1.5)
        self.assertEqual((r.out, r.err), (b"out", b"err"))
        self.assertEqual((r.exit["EXIT_CODE"], r.exit["TIMED_OUT"]), (124, 1))
        self.assertNotIn("SIGNAL", r.exit)

    def test_the_deadline_ends_the_whole_tree(self):
        r = self.box.sh(f"trap '' TERM; setsid {BEATING % 'a1'} & (setsid {BEATING % 'a2'} &) ; ({BEATING % 'a3'} &) ; "
                        f"{BEATING % 'a4'}", TIMEOUT_MS=1500)
        self.assertEqual(r.exit["EXIT_CODE"], 124)
        self.assertTrue(gone(self.box, "a1", "a2", "a3", "a4"))

    def test_an_execution_ends_with_its_direct_child(self):
        r = self.box.sh(f"setsid {BEATING % 'b1'} & ({BEATING % 'b2'} &) ; while ! [ -e b1 ] || ! [ -e b2 ]; do "
                        "sleep 0.05; done; printf done; exit 3", TIMEOUT_MS=10000)
        self.assertEqual((r.exit["EXIT_CODE"], r.out), (3, b"done"))
        self.assertTrue(gone(self.box, "b1", "b2"))

    def test_kill(self):
        stream = self.box.begin("sh", "-c", "echo up; sleep 100")
        while not self.box.results[stream].out:
            self.box.pump()
        self.box.control.send(peer.KILL, stream)
        r = self.box.finish(stream)
        self.assertEqual((r.exit["EXIT_CODE"], r.exit["SIGNAL"], r.out), (137, 9, b"up\n"))
        self.box.control.send(peer.KILL, stream)
        self.assertEqual(self.box.run("true").exit["EXIT_CODE"], 0)

    def test_caps_count_all_and_block_nothing(self):
        r = self.box.sh("head -c 5000000 /dev/zero; head -c 3000000 /dev/zero >&2; exit 4",
                        CAP_STDOUT=100001, CAP_STDERR=0)
        self.assertEqual((len(r.out), len(r.err), r.exit["EXIT_CODE"]), (100001, 0, 4))
        self.assertEqual((r.exit["STDOUT_BYTES"], r.exit["STDERR_BYTES"]), (5000000, 3000000))

    def test_case_28_bytes_arrive_as_they_are(self):
        self.assertEqual(self.box.run("printf", "\\377\\376\\000ok\\033").out, b"\xff\xfe\0ok\x1b")
        text = "\u2615" * 100000
        self.box.run("sh", "-c", "cat > /workspace/t", STDIN=text)
        self.assertEqual(self.box.run("cat", "/workspace/t").out.decode(), text)

    def test_case_33_arguments_and_environment_byte_for_byte(self):
        env = {"A": "a\nb", "B": " $HOME ", "C": "'\"\\", "D": "", "E": "=x=", "_1": "\xff"}
        r = self.box.run("env", "-u", "nothing", ENV=[f"{k}={v}".encode("latin-1") for k, v in env.items()])
        for k, v in env.items():
            self.assertIn(f"{k}={v}\n".encode("latin-1"), r.out)
        args = ["", " ", "a b", "$HOME", "`id`", "\n", "*", b"\xff\xfe"]
        r = self.box.run("printf", "<%s>", *args)
        want = b"".join(b"<" + (a if isinstance(a, bytes) else a.encode()) + b">" for a in args)
        self.assertEqual(r.out, want)
        many = ["x" * 100000] * 10
        self.assertEqual(self.box.run("printf", "%s", *many).out, "".join(many).encode())
        self.assertEqual(self.box.run("printf", "%s", "y" * 131071).out, b"y" * 131071)
        self.assertEqual(self.box.run("printf", "%s", "y" * 131072).exit["EXIT_CODE"], 126)
        with self.assertRaises(peer.Lost):
            self.box.run("echo", b"a\0b")
        self.box.accept_control()
        self.box.ready()

    def test_many_at_once(self):
        began = time.monotonic()
        streams = [self.box.begin("sh", "-c", "echo %d; sleep 1; echo %d >&2; exit %d" % (i, i, i % 5))
                   for i in range(60)]
        for i, s in enumerate(streams):
            r = self.box.finish(s)
            self.assertEqual((r.out, r.err, r.exit["EXIT_CODE"]), (b"%d\n" % i, b"%d\n" % i, i % 5))
        self.assertLess(time.monotonic() - began, 20)

    def test_each_has_a_namespace_of_its_own_and_leaves_nothing(self):
        def processes():
            return self.box.sh("sleep 0.2; set -- /proc/[0-9]*; echo $#").out
        alone = processes()
        for stream in [self.box.begin("sleep", "0.2") for _ in range(8)]:
            self.assertEqual(self.box.finish(stream).exit["EXIT_CODE"], 0)
        self.assertEqual(processes(), alone)
        self.assertEqual({bytes(self.box.sh("echo $$").out) for _ in range(3)}, {b"2\n"})

    def test_many_that_fail_each_in_its_own_way_are_not_mixed_up(self):
        # Their inits share the warden's memory: what one is told must not reach another.
        kinds = [(("sh", "-c", 'echo "$1"; exit "$2"', "sh", "{i}", "{code}"), {}),
                 (("no-such-program-{i}",), {}), (("/etc/passwd",), {}), (("true",), {"CWD": "/nowhere/{i}"})]
        for _ in range(3):
            begun = []
            for i in range(60):
                args, more = kinds[i % 4]
                begun.append((i, self.box.begin(*(a.format(i=i, code=i) for a in args),
                                                **{k: v.format(i=i) for k, v in more.items()})))
            for i, stream in begun:
                r = self.box.finish(stream)
                if i % 4 == 0:
                    self.assertEqual((r.exit["EXIT_CODE"], r.out), (i, b"%d\n" % i))
                elif i % 4 == 1:
                    self.assertEqual((r.exit["EXIT_CODE"], r.err), (127, b"no-such-program-%d: command not found\n" % i))
                elif i % 4 == 2:
                    self.assertEqual((r.exit["EXIT_CODE"], r.err), (126, b"/etc/passwd: Permission denied\n"))
                else:
                    self.assertEqual(r.refused["REASON"], 1)

    def test_killed_while_they_start_they_harm_no_other(self):
        for _ in range(4):
            doomed = []
            for _ in range(60):
                doomed.append(self.box.begin("sleep", "50"))
                self.box.control.send(peer.KILL, doomed[-1])
            others = [self.box.begin("sh", "-c", 'echo "$1"', "sh", "x" * 1000 + str(i)) for i in range(60)]
            for stream in doomed:
                self.assertEqual(self.box.finish(stream).exit["SIGNAL"], 9)
            for i, stream in enumerate(others):
                self.assertEqual(self.box.finish(stream).out, b"x" * 1000 + b"%d\n" % i)

    def test_killed_before_their_exec_more_often_than_there_are_places_they_harm_no_other(self):
        path = "PATH=" + ":" * 100000  # a look-up of seconds, in the warden's memory
        for n in range(5):
            doomed = [self.box.begin("slow", ENV=path) for _ in range(40)]
            time.sleep(0.05)
            for stream in doomed:
                self.box.control.send(peer.KILL, stream)
            others = [self.box.begin("sh", "-c", 'echo "$1"', "sh", "x" * 30000 + str(i)) for i in range(40)]
            for stream in doomed:
                r = self.box.finish(stream)
                self.assertEqual((r.exit["SIGNAL"], r.out, r.err), (9, b"", b""))
            for i, stream in enumerate(others):
                self.assertEqual(self.box.finish(stream).out, b"x" * 30000 + b"%d\n" % i, n)

    def test_one_too_many_is_refused(self):
        streams = [self.box.begin("sleep", "50") for _ in range(128)]
        r = self.box.run("true")
        self.assertEqual(r.refused["REASON"], 3)
        for s in streams:
            self.box.control.send(peer.KILL, s)
        for s in streams:
            self.assertEqual(self.box.finish(s).exit["SIGNAL"], 9)
        self.assertEqual(self.box.run("true").exit["EXIT_CODE"], 0)

    def test_a_slow_gateway_delays_no_deadline(self):
        box = self.box
        loud = box.begin("sh", "-c", "cat /dev/zero", TIMEOUT_MS=1500)
        files = box.begin("sh", "-c", "sleep 1.2; touch /tmp/mark; sleep 20", TIMEOUT_MS=2000)
        time.sleep(4)  # nothing is read meanwhile: the agent's queue and the socket fill up
        box.results[loud].out = Sink()
        r = box.finish(loud)
        self.assertEqual(r.exit["EXIT_CODE"], 124)
        self.assertLess(r.exit["DURATION_MS"], 2500)
        self.assertLess(box.results[loud].out.n, 16 << 20)
        r = box.finish(files)
        self.assertLess(r.exit["DURATION_MS"], 3000)

    def test_stream_numbers_are_checked(self):
        self.box.control.send(peer.EXEC, 0, ARG=["true"])
        _, payload = self.box.control.expect(peer.REFUSED)
        self.assertEqual(peer.parse(payload)["REASON"], 11)
        stream = self.box.begin("sleep", "1")
        self.box.control.send(peer.EXEC, stream, ARG=["true"])
        self.assertEqual(self.box.finish(stream).refused["REASON"], 11)
        self.box.results[stream].refused = None
        self.box.finish(stream)
        self.assertEqual(self.box.run().refused["REASON"], 11)


class Sink:
    n = 0

    def __iadd__(self, data):
        self.n += len(data)
        return self


class Limits(unittest.TestCase):
    def test_a_fork_bomb_meets_eagain_and_nothing_else(self):
        for uid in (0, 1000):
            with Sandbox(UID=uid, GID=uid, NPROC=40) as box:
                box.ready()
                r = box.sh("i=0; while [ $i -lt 200 ]; do sleep 50 & i=$((i+1)); done; wait", TIMEOUT_MS=4000)
                self.assertIn(b"can't fork", r.err)
                r = box.sh(":(){ :|:& };:; sleep 30", TIMEOUT_MS=1500)
                self.assertEqual(r.exit["EXIT_CODE"], 124 if "TIMED_OUT" in r.exit else 2, r)
                self.assertEqual(box.run("true").exit["EXIT_CODE"], 0)

    def test_a_hanging_file_system_delays_no_answer_for_long(self):
        with Sandbox() as box:
            box.ready()
            stream = box.begin("sh", "-c", "while :; do echo x > /workspace/f; cat /workspace/f; rm /workspace/f; done",
                               TIMEOUT_MS=2500)
            while not box.results[stream].out:
                box.pump()
            gofer = box.state_pids()[1]
            os.kill(gofer, 19)
            try:
                r = box.finish(stream, 15)
                self.assertEqual((r.exit["EXIT_CODE"], r.exit["TIMED_OUT"]), (124, 1))
                self.assertLess(r.took, 8)
            finally:
                os.kill(gofer, 18)
            self.assertEqual(box.run("true").exit["EXIT_CODE"], 0)

    def test_case_31_a_killed_agent_is_never_exit_0(self):
        with Sandbox() as box:
            box.ready()
            stream = box.begin("sleep", "30")
            box.pump()
            for pid in box.state_pids():
                os.kill(pid, 9)
            with self.assertRaises((peer.Lost, ConnectionError)):
                box.finish(stream, 10)
            self.assertIsNone(box.results[stream].exit)

    def test_personal_holder(self):
        with Sandbox(PERSONAL=1) as box:
            box.ready()
            self.assertEqual(box.run("true").refused["REASON"], 10)
            self.assertEqual(box.run("/opt/warren/run", "x").refused["REASON"], 10)
            self.assertEqual(box.run("/opt/warren/run").exit["EXIT_CODE"], 127)


if __name__ == "__main__":
    unittest.main(verbosity=2)
