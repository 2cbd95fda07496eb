"""Executions through one region gateway and the limits of a sandbox, on the real runtime."""
# ctest: timeout 240

import glob
import base64
import os
import signal
import threading
import time

from harness import in_parallel, main, wait_for
from region_rig import Failed, RegionTest, new_id


class Execute(RegionTest):
    region_options = {"agent.ping_interval_s": 1, "agent.silence_timeout_s": 2}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.box = cls.deploy(env={"FROM_REVISION": "yes"})

    def run_in(self, *command, **fields):
        return self.execute(self.box, list(command), **fields)

    # case 26: the deadline is kept while the command still writes, and partial output stays
    def test_case_26_timeout(self):
        began = time.monotonic()
        answer = self.run_in("sh", "-c", "printf out; printf err >&2; sleep 30", timeoutSeconds=1)
        self.assertLess(time.monotonic() - began, 1.8)
        self.assertEqual((answer["exitCode"], answer["timedOut"], answer["stdout"], answer["stderr"]),
                         (124, True, "out", "err"))
        for bad in (0, 901, "5", 1.5, None, True):
            self.refused("INVALID_REQUEST", 400, self.run_in, "true", **({"timeoutSeconds": bad}))

    def test_case_26_detached_descendants_are_gone(self):
        self.run_in("sh", "-c", "(setsid sleep 7777 &) ; sleep 30", timeoutSeconds=1)
        self.assertNotIn("7777", self.run_in("ps")["stdout"])

    # case 28: bytes that are no text, and characters split at a read
    def test_case_28_bytes(self):
        answer = self.run_in("printf", r"\377\376\000ok\033")
        self.assertEqual(answer["stdoutEncoding"], "base64")
        self.assertEqual(base64.b64decode(answer["stdout"]), b"\xff\xfe\x00ok\x1b")
        cups = self.run_in("sh", "-c", "i=0; while [ $i -lt 1000 ]; do printf '%s' " + "☕" * 100 +
                           "; i=$((i+1)); done")
        self.assertEqual(cups["stdout"], "☕" * 100000)
        self.assertNotIn("stdoutEncoding", cups)
        nul = self.run_in("printf", r"a\000b")
        self.assertEqual((nul["stdout"], nul["stdoutBytes"]), ("a\0b", 3))

    def test_cap_cuts_on_a_character(self):
        answer = self.run_in("printf", "%s", "☕☕☕", outputMax=7)
        self.assertEqual((answer["stdout"], answer["stdoutBytes"], answer["stdoutTruncated"]), ("☕☕", 9, True))
        much = self.run_in("sh", "-c", "yes | head -c 20000000; yes x | head -c 3000000 >&2", outputMax=1 << 20)
        self.assertEqual((len(much["stdout"]), much["stdoutBytes"]), (1 << 20, 20000000))
        self.assertEqual((len(much["stderr"]), much["stderrBytes"], much["exitCode"]), (1 << 20, 3000000, 0))

    # case 33: argv and environment byte for byte, no shell anywhere
    def test_case_33_exact_bytes(self):
        env = {"A": "a\nb", "B": " $HOME ", "C": "'\"\\", "D": ""}
        answer = self.run_in("sh", "-c", 'printf "[%s]" "$A" "$B" "$C" "$D"; env | grep -c ^D=$', env=env)
        self.assertEqual(answer["stdout"], "[a\nb][ $HOME ]['\"\\][]1\n")
        for key in ("X;touch /x", "E=F", "", "1A", "A B", "Ä"):
            self.refused("INVALID_REQUEST", 400, self.run_in, "true", env={key: "v"})
        words = ["", " ", "a  b", "$(touch /x)", "`x`", "*", "\n", "é", ""]
        self.assertEqual(self.run_in("sh", "-c", 'printf "[%s]" "$@"; ls /x', "sh", *words)["stdout"],
                         "".join(f"[{w}]" for w in words))
        big = ["x" * 100000] * 10
        self.assertEqual(self.run_in("sh", "-c", 'printf "%s" "$@" | wc -c', "sh", *big)["stdout"].strip(), "1000000")
        self.refused("INVALID_REQUEST", 400, self.run_in, "true", "x" * 131072)
        self.assertEqual(self.call("POST", f"/v1/sandboxes/{self.box}/execute",
                                   b'{"executionId":"%s","generation":1,"command":["a\\u0000b"]}' % new_id().encode(),
                                   headers={"Content-Type": "application/json"}).status, 400)

    def test_exit_codes(self):
        for command, code, sig in ((["sh", "-c", "exit 7"], 7, None), (["/no/such"], 127, None),
                                   (["/etc/passwd"], 126, None), (["sh", "-c", "kill -9 $$"], 137, 9)):
            answer = self.run_in(*command)
            self.assertEqual((answer["exitCode"], answer.get("signal")), (code, sig), command)

    def test_cwd(self):
        self.run_in("mkdir", "-p", "/workspace/d")
        self.assertEqual(self.run_in("pwd")["stdout"], "/workspace\n")
        self.assertEqual(self.run_in("pwd", cwd="d")["stdout"], "/workspace/d\n")
        self.assertEqual(self.run_in("pwd", cwd="/etc")["stdout"], "/etc\n")
        self.refused("PATH_ESCAPE", 400, self.run_in, "pwd", cwd="../etc")
        answer = self.refused("INVALID_REQUEST", 400, self.run_in, "pwd", cwd="/nowhere")
        self.assertEqual(answer.json["field"], "cwd")

    def test_environment_of_the_revision(self):
        self.assertEqual(self.run_in("sh", "-c", "echo $FROM_REVISION $HOME")["stdout"], "yes /root\n")

    def test_independent_and_many(self):
        slow = threading.Thread(target=self.run_in, args=("sleep", "3"))
        slow.start()
        began = time.monotonic()
        answers = in_parallel(20, lambda i: self.run_in("echo", str(i))["stdout"])
        self.assertEqual(answers, [f"{i}\n" for i in range(20)])
        self.assertLess(time.monotonic() - began, 3)
        slow.join()

    def test_a_lost_client_does_not_cancel(self):
        body = {"executionId": new_id(), "generation": 1, "timeoutSeconds": 20,
                "command": ["sh", "-c", "sleep 1; echo there > /workspace/lost"]}
        with self.assertRaises(OSError):
            self.call("POST", f"/v1/sandboxes/{self.box}/execute", body, timeout=0.3)
        wait_for("it ran to its end", lambda: self.run_in("cat", "/workspace/lost")["stdout"] == "there\n", 10)
        self.refused("OPERATION_KNOWN", 409, self.run_in, "true", executionId=body["executionId"])

    def test_the_agent_channel_is_out_of_reach(self):
        answer = self.run_in("sh", "-c", "ls -la /run/sandboxd/ 2>&1; cat /proc/1/environ /proc/1/mem 2>&1; env")
        self.assertNotIn("agent.sock", answer["stdout"])


class Lost(RegionTest):
    region_options = {"agent.ping_interval_s": 1, "agent.silence_timeout_s": 2}

    def during(self, box, act):
        """What an execution under way is answered when act() happens."""
        out = []

        def work():
            try:
                out.append(self.execute(box, ["sleep", "60"], timeoutSeconds=100))
            except Failed as e:
                out.append(e)

        thread = threading.Thread(target=work)
        thread.start()
        wait_for("it runs", lambda: self.get(box)["executions"], 5)
        began = time.monotonic()
        act()
        thread.join(30)
        self.assertFalse(thread.is_alive())
        self.assertIsInstance(out[0], Failed, out)
        return out[0], time.monotonic() - began

    # case 31: a dropped stream is never reported as exit 0, and never a hang
    def test_case_31_the_sandbox_dies(self):
        box = self.deploy()
        error, took = self.during(box, lambda: self.kill_sandbox(box))
        self.assertEqual((error.status, error.code), (502, "AGENT_UNREACHABLE"))
        self.assertLess(took, 5)
        self.delete(box)

    def test_case_31_deleted_under_way(self):
        box = self.deploy()
        error, took = self.during(box, lambda: self.delete(box))
        self.assertEqual((error.status, error.code), (409, "SANDBOX_NOT_FOUND"))
        self.assertLess(took, 5)
        self.assert_gone(box)

    def test_case_31_the_agent_is_silent(self):
        box = self.deploy()
        with open(f"/proc/{self.shim_pid(box)}/task/{self.shim_pid(box)}/children") as f:
            pids = [int(p) for p in f.read().split()]

        def stop():
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)

        try:
            error, took = self.during(box, stop)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        self.assertEqual((error.status, error.code), (502, "AGENT_UNREACHABLE"))
        self.assertLess(took, 8)
        # it dials again, and serves
        wait_for("it is there again", lambda: self.try_true(box), 15)
        self.delete(box)

    def try_true(self, box):
        try:
            return self.execute(box, ["true"])["exitCode"] == 0
        except Failed:
            return False


class Limits(RegionTest):
    region_options = {"runsc.nproc_max": 40}

    def test_memory(self):
        box = self.deploy(resources={"cpuMillis": 1000, "memoryMb": 128, "diskMb": 128})
        try:
            answer = self.execute(box, ["sh", "-c", "x=$(head -c 600000000 /dev/zero | tr '\\0' x); echo no"])
            self.assertNotEqual(answer["exitCode"], 0)
        except Failed as e:
            self.assertEqual(e.code, "AGENT_UNREACHABLE")
            seen = wait_for("it is told", lambda: (self.get(box) or {}).get("oomKilled") and self.get(box), 10)
            self.assertEqual((seen["phase"], seen["reason"]),
                             ("failed", "the sandbox ran out of memory and was ended"))
        self.delete(box)
        self.assert_gone(box)

    def test_processes(self):
        box = self.deploy()
        answer = self.execute(box, ["sh", "-c", "i=0; while [ $i -lt 100 ]; do sleep 5 & i=$((i+1)); done; wait"],
                              timeoutSeconds=15)
        self.assertIn("fork", answer["stderr"])
        self.assertEqual(self.execute(box, ["echo", "alive"])["stdout"], "alive\n")
        self.delete(box)

    def test_disk(self):
        box = self.deploy()
        for path in ("/workspace/full", "/full"):
            answer = self.execute(box, ["dd", "if=/dev/zero", f"of={path}", "bs=1M", "count=300"], timeoutSeconds=60)
            with self.subTest(path=path):
                self.assertNotEqual(answer["exitCode"], 0, answer)
            self.execute(box, ["rm", "-f", path])
        self.assertEqual(self.execute(box, ["echo", "alive"])["stdout"], "alive\n")
        self.delete(box)
        self.assert_gone(box)

    def test_cpu(self):
        """The kernel holds the quota: what the sandbox's control group says, on either hierarchy."""
        box = self.deploy(resources={"cpuMillis": 250, "memoryMb": 256, "diskMb": 128})
        v1 = glob.glob(f"/sys/fs/cgroup/cpu*/sandboxd/*/{box}/cpu.cfs_quota_us")
        v2 = glob.glob(f"/sys/fs/cgroup/sandboxd/*/{box}/cpu.max")
        self.assertTrue(v1 or v2, "no control group")
        if v1:
            period = v1[0].replace("quota", "period")
            with open(v1[0]) as quota, open(period) as whole:
                share = int(quota.read()) / int(whole.read())
        else:
            with open(v2[0]) as f:
                quota, whole = f.read().split()
                share = int(quota) / int(whole)
        self.assertEqual(share, 0.25)
        self.delete(box)

    def test_writes_of_one_are_not_seen_by_another(self):
        one, two = self.deploy(), self.deploy()
        self.execute(one, ["sh", "-c", "echo x > /bin/new; rm /bin/cp; echo y > /workspace/w"])
        self.assertEqual(self.execute(two, ["sh", "-c", "ls /bin/new /bin/cp /workspace"])["stdout"], "/bin/cp\n\n/workspace:\n")
        self.delete(one)
        self.delete(two)


if __name__ == "__main__":
    main()
