"""Execute, on real gVisor (seed "Execute a command in a sandbox"; contract 4; cases 10, 26, 28, 31, 33, 42)."""

# ctest: timeout 300

import base64
import json
import os
import signal
import socket
import threading
import time

from harness import PUBLIC, Client, SystemTest, in_parallel, main, wait_for


def processes_of(sandbox_id):
    """Host processes of one sandbox: the runtime's, whose command lines name it."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as f:
                    line = f.read()
            except OSError:
                continue
            if sandbox_id.encode() in line and b"boot" in line:
                found.append(int(name))
    return found


class Recorder:
    """Stands between sandboxd and a gateway's socket and keeps every byte that goes to the gateway."""

    def __init__(self, path, upstream):
        self.upstream, self.bytes = upstream, bytearray()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        os.chmod(path, 0o777)
        self.listener.listen(64)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self.upstream)
            for source, to, keep in ((client, server, True), (server, client, False)):
                threading.Thread(target=self.pump, args=(source, to, keep), daemon=True).start()

    def pump(self, source, to, keep):
        try:
            while data := source.recv(65536):
                if keep:
                    self.bytes += data
                to.sendall(data)
            to.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self):
        self.listener.close()


class Execute(SystemTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.t = cls.stack.tenant(quota=50)
        cls.box = cls.t.ready()

    def run_in(self, command, **kw):
        return self.t.execute(self.box, command, **kw)

    def sh(self, script, **kw):
        return self.run_in(["sh", "-c", script], **kw)

    # ---- what is answered

    def test_the_answer(self):
        answer = self.sh("echo out; echo err >&2; exit 3")
        self.assertEqual((answer["success"], answer["exitCode"], answer["stdout"], answer["stderr"]), (True, 3, "out\n", "err\n"))
        self.assertGreaterEqual(answer["durationMs"], 0)
        self.assertEqual(sorted(answer), ["durationMs", "exitCode", "stderr", "stdout", "success"], "the rest is for when it applies")
        self.assertIn("gVisor", self.sh("dmesg")["stdout"])

    def test_exit_codes(self):
        self.assertEqual(self.run_in(["true"])["exitCode"], 0)
        self.assertEqual(self.run_in(["false"])["exitCode"], 1)
        self.assertEqual(self.run_in(["no-such-program"])["exitCode"], 127)
        self.assertEqual(self.run_in(["/etc/passwd"])["exitCode"], 126)
        killed = self.sh("kill -9 $$")
        self.assertEqual((killed["exitCode"], killed["signal"]), (137, 9))

    def test_case_26_a_deadline_keeps_the_output_and_ends_the_tree(self):
        began = time.monotonic()
        answer = self.sh("printf out; printf err >&2; (setsid sleep 987 &) ; sleep 30", timeoutSeconds=1)
        took = time.monotonic() - began
        self.assertEqual((answer["exitCode"], answer["timedOut"], answer["stdout"], answer["stderr"]), (124, True, "out", "err"))
        self.assertLess(took, 2.5)  # 1.5 s on a quiet machine
        wait_for("the detached child is gone too", lambda: "987" not in self.sh("ps -o args")["stdout"], 5)
        for bad in (0, 901, -1, "5", 1.5, None):
            refused = self.run_in(["true"], status=None, timeoutSeconds=bad, timeout=30)
            self.assertEqual((refused.status, refused.json["data"]["field"]), (400, "timeoutSeconds"))

    def test_case_28_bytes(self):
        answer = self.run_in(["printf", r"\377\376\0ok\033"])
        self.assertEqual(answer["stdoutEncoding"], "base64")
        self.assertEqual(base64.b64decode(answer["stdout"]), b"\xff\xfe\0ok\x1b")
        answer = self.sh("i=0; while [ $i -lt 1000 ]; do printf '\u2615%.0s' $(seq 100); i=$((i+1)); done", timeoutSeconds=60)
        self.assertNotIn("stdoutEncoding", answer)
        self.assertEqual(answer["stdout"], "\u2615" * 100000)
        answer = self.sh("printf 'a\\000b'; printf '\\377' >&2")
        self.assertEqual((answer["stdout"], answer["stderrEncoding"]), ("a\0b", "base64"))

    def test_the_cap_counts_bytes_and_never_blocks(self):
        answer = self.sh("head -c 6000000 /dev/zero | tr '\\0' x; echo done >&2")
        self.assertEqual((answer["exitCode"], answer["stdoutTruncated"], answer["stdoutBytes"]), (0, True, 6000000))
        self.assertEqual(answer["stdout"], "x" * 4194304)
        self.assertEqual(answer["stderr"], "done\n")
        self.assertNotIn("stderrTruncated", answer)
        # 4 MiB is no multiple of 3: the cut is on a character border.
        answer = self.sh("yes '\u2615\u2615\u2615\u2615\u2615' | tr -d '\\n' | head -c 4500000")
        self.assertTrue(answer["stdoutTruncated"])
        self.assertEqual(set(answer["stdout"]), {"\u2615"})

    # ---- what is sent

    def test_case_33_arguments_and_environment_arrive_byte_for_byte(self):
        env = {"A": "a\nb", "B": " $HOME ", "C": "'\"\\", "D": "", "_e1": "\u2615"}
        answer = self.sh(r"""printf '%s|' "$A" "$B" "$C" "${D-unset}" "$_e1" """, envVars=env)
        self.assertEqual(answer["stdout"], "a\nb| $HOME |'\"\\||\u2615|")
        argv = ["a b", "", "$HOME", "`id`", "*", "\\", "\n", "\u2615", "-n", "'"]
        self.assertEqual(self.run_in(["printf", "%s|"] + argv)["stdout"], "".join(a + "|" for a in argv))
        for key in ("X;touch /x", "E=F", "", "1A", "A-B", "A B"):
            refused = self.run_in(["true"], envVars={key: "v"}, status=None)
            self.assertEqual((refused.status, refused.json["data"]["field"]), (400, "envVars"), key)
        self.assertEqual(self.run_in(["ls", "/x"])["exitCode"], 1)
        for command in (["a\0b"], ["true", "\0"]):
            self.assertEqual(self.run_in(command, status=None).status, 400)
        self.assertEqual(self.run_in(["true"], envVars={"A": "\0"}, status=None).status, 400)

    def test_case_33_large_arguments(self):
        longest = "x" * 131071
        answer = self.run_in(["sh", "-c", "printf %s \"$1\" | wc -c", "sh", longest])
        self.assertEqual(answer["stdout"].strip(), "131071")
        many = ["y" * 100000] * 7  # 700 kB together
        answer = self.run_in(["sh", "-c", "printf %s \"$@\" | wc -c", "sh"] + many)
        self.assertEqual(answer["stdout"].strip(), "700000")
        refused = self.run_in(["true", longest + "x"], status=None)
        self.assertEqual((refused.status, refused.json["data"]["field"]), (400, "command"))
        self.assertEqual(self.run_in(["true"], envVars={"A": longest}, status=None).status, 400)
        self.assertEqual(self.run_in(["true"] + ["z" * 100000] * 11, status=None).status, 413)
        for command in ([], [""], "true", [1], None, {}):
            refused = self.run_in(command, status=None)
            self.assertEqual((refused.status, refused.json["data"]["field"].split("[")[0]), (400, "command"))

    def test_cwd(self):
        self.sh("mkdir -p /workspace/a/b")
        self.assertEqual(self.run_in(["pwd"])["stdout"], "/workspace\n")
        for cwd, where in (("/tmp", "/tmp"), ("a/b", "/workspace/a/b"), ("a/../a/./b", "/workspace/a/b"), (".", "/workspace")):
            self.assertEqual(self.run_in(["pwd"], cwd=cwd)["stdout"], where + "\n")
        self.sh("ln -s /etc /workspace/out; ln -s a/b /workspace/in")
        self.assertEqual(self.run_in(["pwd"], cwd="in")["stdout"], "/workspace/a/b\n")
        self.assertEqual(self.run_in(["pwd"], cwd="/workspace/out")["stdout"], "/etc\n", "absolute is taken as it is")
        for cwd in ("..", "../workspace", "a/../../etc", "out", "./a/../out"):
            refused = self.run_in(["pwd"], cwd=cwd, status=None)
            self.assertEqual((refused.status, refused.code), (400, "PATH_ESCAPE"), cwd)
        refused = self.run_in(["pwd"], cwd="not-there", status=None)
        self.assertEqual((refused.status, refused.json["data"]["field"]), (400, "cwd"))
        inside = self.t.add_template(workingDir="/tmp")
        box = self.t.ready(templateId=inside)
        self.assertEqual(self.t.execute(box, ["pwd"])["stdout"], "/tmp\n")
        self.t.terminate(box)

    # ---- state

    def test_busy_and_ready_again(self):
        before = self.t.get(self.box)
        thread = threading.Thread(target=self.run_in, args=(["sleep", "1.5"],))
        thread.start()
        wait_for("BUSY", lambda: self.t.get(self.box)["status"] == "BUSY", 5)
        began = time.monotonic()
        self.assertEqual(self.run_in(["true"])["exitCode"], 0, "one that runs holds up no other")
        self.assertLess(time.monotonic() - began, 1.2)
        self.assertEqual(self.t.get(self.box)["status"], "BUSY", "the other still runs")
        thread.join()
        after = self.t.get(self.box)
        self.assertEqual(after["status"], "READY")
        self.assertGreater(after["generation"], before["generation"])
        self.assertGreater(after["lastActiveAt"], before["lastActiveAt"])

    def test_a_lost_client_does_not_cancel_its_command(self):
        body = json.dumps({"accountId": self.t.account, "sandboxId": self.box["sandboxId"],
                           "command": ["sh", "-c", "sleep 1; echo done > /tmp/lost"]}).encode()
        host, port = self.t.plane.url.split("//")[1].split(":")
        with socket.create_connection((host, int(port))) as s:
            s.sendall(f"POST {PUBLIC}/sandbox/execute HTTP/1.1\r\nHost: x\r\nAuthorization: {self.t.token}\r\nContent-Type: "
                      f"application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            wait_for("BUSY", lambda: self.t.get(self.box)["status"] == "BUSY", 5)
        wait_for("READY again", lambda: self.t.get(self.box)["status"] == "READY", 10)
        self.assertEqual(self.run_in(["cat", "/tmp/lost"])["stdout"], "done\n")

    def test_many_at_once(self):
        answers = in_parallel(20, lambda i: self.sh(f"echo {i}; sleep 0.2"))
        self.assertEqual([a["stdout"] for a in answers], [f"{i}\n" for i in range(20)])
        self.assertEqual(self.t.get(self.box)["status"], "READY")

    def test_states_that_cannot_run_a_command(self):
        box = self.t.create()
        early = self.t.execute(box, ["true"], status=None)
        if early.status != 200:
            self.assertEqual((early.status, early.code, early.json["data"]["retryable"]), (409, "SANDBOX_NOT_READY", True))
        self.t.wait(box, "READY")
        self.t.terminate(box)
        ended = self.t.execute(box, ["true"], status=None)
        self.assertEqual((ended.status, ended.code, ended.json["data"]["retryable"]), (409, "SANDBOX_NOT_FOUND", False))

    # ---- what goes away under a command

    def failed(self, box):
        def check():
            now = self.t.get(box)
            return now if now["status"] == "FAILED" else None
        return wait_for("FAILED", check, 30)

    def ended_while(self, act):
        """The answer of a long command while act(box) happens, and the box."""
        box = self.t.ready()
        answers = []
        thread = threading.Thread(target=lambda: answers.append(self.t.execute(box, ["sleep", "60"], status=None)))
        thread.start()
        wait_for("BUSY", lambda: self.t.get(box)["status"] == "BUSY", 5)
        began = time.monotonic()
        act(box)
        thread.join(20)
        self.assertFalse(thread.is_alive(), "no answer within 20 s")
        return box, answers[0], time.monotonic() - began

    def test_case_31_terminate_under_a_command(self):
        box, answer, took = self.ended_while(self.t.terminate)
        self.assertIn((answer.status, answer.code), ((409, "SANDBOX_NOT_FOUND"), (502, "AGENT_UNREACHABLE")), answer)
        self.assertLess(took, 10)
        self.assertEqual(self.t.get(box)["status"], "TERMINATED")

    def test_cases_10_and_31_the_runtime_dies_under_a_command(self):
        def kill(box):
            pids = processes_of(box["sandboxId"])
            self.assertTrue(pids, "the runtime's process was not found")
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
        box, answer, took = self.ended_while(kill)
        self.assertIn((answer.status, answer.code), ((409, "SANDBOX_NOT_FOUND"), (502, "AGENT_UNREACHABLE")), answer)
        self.assertLess(took, 15)
        failed = self.failed(box)
        self.assertEqual((failed["errorCode"], failed["errorRetryable"]), ("SANDBOX_NOT_FOUND", False))
        self.assertEqual(self.t.execute(box, ["true"], status=None).code, "SANDBOX_NOT_FOUND", "never bound to a fresh one")
        self.t.terminate(box)

    def test_case_10_the_runtime_died_before_the_command(self):
        box = self.t.ready()
        generation = self.t.get(box)["generation"]
        for pid in processes_of(box["sandboxId"]):
            os.kill(pid, signal.SIGKILL)
        answer = self.t.execute(box, ["true"], status=None)
        self.assertIn(answer.status, (409, 502), answer)
        failed = self.failed(box)
        self.assertEqual(failed["errorCode"], "SANDBOX_NOT_FOUND")
        self.assertGreater(failed["generation"], generation)
        self.t.terminate(box)

    # ---- secrets

    def test_case_42_no_token_of_the_tenant_crosses_to_the_region(self):
        path = os.path.join(self.stack.dir, "s", "recorder.sock")
        recorder = Recorder(path, self.stack.region.socket)
        self.stack.admin("POST", "/region/create", {"name": "recorded", "socket": path})
        self.stack.admin("POST", "/region/grant", {"accountId": self.t.account, "region": "recorded"})
        box = self.t.ready(region="recorded")
        answer = self.t.execute(box, ["sh", "-c", "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null"])
        self.t.terminate(box)
        self.assertIn(b"/v1/sandboxes/", recorder.bytes)
        self.assertIn(b"/execute", recorder.bytes)
        for secret in (self.t.token, self.t.token.split("_")[-1]):
            self.assertNotIn(secret.encode(), recorder.bytes)
            self.assertNotIn(secret, json.dumps(answer))
        self.assertNotIn(b"uthorization: sbx_", recorder.bytes)
        recorder.close()
        self.stack.admin("POST", "/region/disable", {"region": "recorded"})

    def test_no_output_in_logs(self):
        self.sh("echo MARK-ONE; echo MARK-TWO >&2; : MARK-THREE", envVars={"MARK_FOUR": "x"})
        metrics = Client(unix=self.stack.plane.admin_socket).get("/metrics").text()
        for text in (self.stack.plane.log(), self.stack.region.log(), metrics):
            self.assertNotIn("MARK", text)


class OutputBudget(SystemTest):
    stack_options = {"sandboxd": {"work.output_budget_mb": 16, "limits.output_max": 4194304}}

    def test_past_the_budget_a_command_is_refused_before_it_starts(self):
        t = self.stack.tenant()
        box = t.ready()
        answers = in_parallel(12, lambda i: t.execute(box, ["sh", "-c", f"echo {i} >> /tmp/ran; head -c 4000000 /dev/zero | tr '\\0' x; sleep 1"], status=None))
        refused = [a for a in answers if a.status == 503]
        served = [a for a in answers if a.status == 200]
        self.assertEqual(len(refused) + len(served), 12, answers)
        for a in refused:
            self.assertEqual((a.code, a.json["data"]["retryable"]), ("BUSY", True))
            self.assertIn("retry-after", a.headers)
        for a in served:
            self.assertEqual(len(a.json["stdout"]), 4000000)
        ran = t.execute(box, ["cat", "/tmp/ran"])["stdout"].split()
        self.assertEqual(len(ran), len(served), "a refused command has not run")
        self.assertEqual(t.get(box)["status"], "READY")


if __name__ == "__main__":
    main()
