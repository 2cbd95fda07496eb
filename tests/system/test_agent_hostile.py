"""Hostile code inside a real sandbox, as root of the image, against the agent that runs it."""

import os
import shutil
import time
import unittest

import agent_peer as peer
from agent_peer import Sandbox

ATTACK = os.path.join(os.path.dirname(peer.AGENT), "agent_attack")


class Hostile(unittest.TestCase):
    def setUp(self):
        self.box = Sandbox(ARG=["sleep", "1000"], NPROC=200).ready()
        shutil.copy(ATTACK, os.path.join(self.box.workspace, "attack"))

    def tearDown(self):
        self.box.close()

    def alive(self):
        r = self.box.run("echo", "yes")
        self.assertEqual((r.out, r.exit["EXIT_CODE"]), (b"yes\n", 0))

    def test_nothing_of_the_agent_can_be_opened_traced_or_uncovered(self):
        r = self.box.run("/workspace/attack")
        out = r.out.decode()
        self.assertEqual(r.exit["EXIT_CODE"], 0, out)
        self.assertRegex(out, r"root: [1-9]\d* processes of the agent's program in sight")
        self.assertNotIn("REACHED", out)

    def test_the_socket_has_no_path_inside(self):
        r = self.box.run("/workspace/attack", "dial")
        self.assertIn(b"0 connected", r.out)
        self.assertNotIn(b"REACHED", r.out)
        self.assertEqual(self.box.sh("ls -A /run/sandboxd; touch /run/sandboxd/x").out, b"")

    def test_who_dials_without_the_key_gets_nothing(self):
        # As a process would that found a way to the socket: from outside, over the same listener.
        import socket
        for hello in ({"KIND": 1}, {"KIND": 1, "KEY": b"x" * 32}, {"KIND": 2, "KEY": b"", "DIAL_ID": 1}):
            box = self.box
            s = socket.socket(socket.AF_UNIX)
            s.connect(os.path.join(box.channel_dir, "agent.sock"))
            stranger = peer.Channel(s)
            stranger.send(peer.HELLO, **hello)
            before = box.rejected
            with self.assertRaises(socket.timeout):
                box.accept(1)
            self.assertEqual(box.rejected, before + 1)
            with self.assertRaises((peer.Lost, ConnectionError)):
                stranger.recv(2)
            s.close()
        self.alive()

    def test_signals_end_the_sender_only(self):
        for script in ("kill -9 1", "kill -STOP 1; kill -TERM 1; sleep 0.2; echo on",
                       "kill -9 -1", "for i in $(seq 1 60); do kill -9 $i; kill -STOP $i; done"):
            r = self.box.sh(script, TIMEOUT_MS=3000)
            self.assertIsNotNone(r.exit, r)
            self.alive()
        self.assertFalse(self.box.ended)  # the command's namespace is another one

    def test_an_exit_cannot_be_forged(self):
        r = self.box.sh("kill -9 1; exit 0")
        self.assertNotEqual(r.exit["EXIT_CODE"], 0)
        self.assertEqual(r.exit["SIGNAL"], 9)

    def test_privileges(self):
        r = self.box.sh("grep -E '^(Cap|NoNewPrivs)' /proc/self/status; mount -t tmpfs x /tmp; "
                        "mknod /tmp/d b 7 0; chroot / true && echo chroot")
        out = r.out.decode()
        for line in out.splitlines():
            if line.startswith(("CapPrm", "CapEff", "CapBnd")):
                bits = int(line.split()[1], 16)
                for banned in (19, 21, 27, 13, 24, 16, 12):  # PTRACE ADMIN MKNOD RAW RESOURCE MODULE NET_ADMIN
                    self.assertFalse(bits >> banned & 1, line)
        self.assertIn("chroot", out)
        self.assertIn(b"mount", r.err)
        out = self.box.sh("grep -E '^Cap(Prm|Eff|Inh)' /proc/self/status", UID=1000, GID=1000).out.decode()
        self.assertEqual({line.split()[1] for line in out.splitlines()}, {"0" * 16})

    def test_a_pipe_given_away_holds_up_nothing(self):
        # A process of another execution that holds the write end must not delay the exit.
        other = self.box.begin("/workspace/attack", "take", "/tmp/s")
        r = self.box.sh("echo end; /workspace/attack give /tmp/s", TIMEOUT_MS=15000)
        self.assertEqual((r.out, r.exit["EXIT_CODE"]), (b"end\n", 0))
        self.assertIsNone(self.box.results[other].exit)
        self.box.control.send(peer.KILL, other)
        self.box.finish(other)

    def test_a_storm_of_output_and_processes_leaves_others_alone(self):
        loud = [self.box.begin("sh", "-c", "yes & yes >&2 & yes", TIMEOUT_MS=3000, CAP_STDOUT=1000, CAP_STDERR=1000)
                for _ in range(3)]
        time.sleep(0.5)
        began = time.monotonic()
        self.alive()
        self.assertLess(time.monotonic() - began, 2)
        for s in loud:
            self.assertEqual(self.box.finish(s).exit["EXIT_CODE"], 124)


if __name__ == "__main__":
    unittest.main(verbosity=2)
