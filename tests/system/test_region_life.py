"""The life of sandboxes in one region gateway: deploy, delete, fences, first results, and what is
found again after the gateway died."""
# ctest: timeout 240

import json
import os
import signal
import subprocess
import threading
import time
import zlib

from harness import main, wait_for
from region_rig import UNKNOWN_IMAGE, RegionTest, new_id


class Life(RegionTest):
    region_options = {"agent.ready_timeout_s": 20}

    def test_deploy_execute_delete(self):
        box = self.deploy()
        seen = self.get(box)
        self.assertEqual((seen["phase"], seen["agent"], seen["generation"]), ("running", True, 1))
        answer = self.execute(box, ["sh", "-c", "uname -a; echo oops >&2; exit 3"])
        self.assertEqual((answer["exitCode"], answer["stderr"]), (3, "oops\n"))
        self.assertIn("4.4.0", answer["stdout"])  # gVisor's kernel
        began = time.monotonic()
        self.assertEqual(self.delete(box), {"sandboxId": box, "gone": True})
        self.assertLess(time.monotonic() - began, 1.5)
        self.assertIsNone(self.get(box))
        self.assert_gone(box)

    def test_an_image_whose_folders_are_links(self):
        def links(rootfs):
            os.makedirs(os.path.join(rootfs, "var/run"))
            for folder, target in (("run", "/var/run"), ("tmp", "var/tmp"), ("workspace", "root"), ("dev", "/nowhere")):
                os.rmdir(os.path.join(rootfs, folder))
                os.symlink(target, os.path.join(rootfs, folder))

        box = self.deploy(image=self.make_image(links, name="links"))
        self.assertEqual(self.execute(box, ["sh", "-c", "echo x >/workspace/f && echo x >/tmp/f && cat /tmp/f"])["stdout"], "x\n")
        self.delete(box)

    def test_repeated_operation_gets_the_first_result(self):
        box, body = new_id(), self.deploy_body()
        first = self.must("PUT", f"/v1/sandboxes/{box}", body)
        pid = self.shim_pid(box)
        self.assertEqual(self.must("PUT", f"/v1/sandboxes/{box}", body), first)
        op = new_id()
        self.delete(box, operationId=op)
        self.assertEqual(self.delete(box, operationId=op), {"sandboxId": box, "gone": True})
        # its first result, although the sandbox is gone since; and nothing comes back
        self.assertEqual(self.call("PUT", f"/v1/sandboxes/{box}", body).status, 409)
        self.assertIsNone(self.get(box))
        self.assertFalse(os.path.exists(f"/proc/{pid}"))

    def test_same_operation_at_once_deploys_once(self):
        box, body, answers = new_id(), self.deploy_body(), []
        threads = [threading.Thread(target=lambda: answers.append(self.call("PUT", f"/v1/sandboxes/{box}", body).json))
                   for _ in range(5)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(answers, [answers[0]] * 5)
        self.assertEqual(answers[0]["phase"], "running")
        self.delete(box)
        self.assert_gone(box)

    def test_older_generations_are_refused(self):
        box = self.deploy(generation=5)
        self.refused("STALE", 409, self.deploy, box, generation=4)
        self.refused("STALE", 409, self.delete, box, generation=4)
        self.refused("STALE", 409, self.execute, box, ["true"], generation=4)
        self.assertEqual(self.execute(box, ["true"], generation=7)["exitCode"], 0)
        self.delete(box, generation=6)
        self.refused("STALE", 409, self.deploy, box, generation=6)
        self.restart()
        self.refused("STALE", 409, self.deploy, box, generation=6)
        self.deploy(box, generation=7)
        self.delete(box, generation=8)

    def test_deleting_what_is_not_there_leaves_a_tombstone(self):
        box = new_id()
        self.assertEqual(self.delete(box, generation=3), {"sandboxId": box, "gone": True})
        self.refused("STALE", 409, self.deploy, box, generation=3)

    def test_failed_deploys_leave_nothing(self):
        for fields, code in (({"image": UNKNOWN_IMAGE}, None), ({"command": ["/no/such/program"]}, "UNKNOWN"),
                             ({"command": ["false"]}, "UNKNOWN")):
            with self.subTest(**fields):
                box, body = new_id(), self.deploy_body(**fields)
                answer = self.call("PUT", f"/v1/sandboxes/{box}", body, timeout=120)
                self.assertGreaterEqual(answer.status, 400, answer)
                self.assertNotIn(self.region.dir, answer.text())
                if code:
                    self.assertEqual(answer.code, code, answer)
                self.assertEqual(self.call("PUT", f"/v1/sandboxes/{box}", body).json, answer.json)
                self.assertIsNone(self.get(box))
                self.assert_gone(box)

    def test_malformed_requests(self):
        box = new_id()
        for change, field in (({"operationId": "x"}, "operationId"), ({"generation": "1"}, "generation"),
                              ({"generation": None}, "generation"), ({"image": None}, "image"),
                              ({"resources": {}}, "cpuMillis"), ({"env": {"A B": "x"}}, "env"),
                              ({"command": "sh"}, "command"), ({"workingDir": "x"}, "workingDir")):
            answer = self.call("PUT", f"/v1/sandboxes/{box}", self.deploy_body(**change))
            self.assertEqual((answer.status, answer.json.get("field")), (400, field), answer)
        self.assertEqual(self.call("PUT", "/v1/sandboxes/nonsense", self.deploy_body()).status, 400)
        self.assertIsNone(self.get(box))

    # case 2: destroyed while the runtime was still creating it
    def test_case_2_delete_during_deploy(self):
        box, answers = new_id(), []
        # nothing answers inside, so the deploy would wait for its agent
        body = self.deploy_body(command=["sleep", "100"])
        thread = threading.Thread(target=lambda: answers.append(self.call("PUT", f"/v1/sandboxes/{box}", body)))
        thread.start()
        wait_for("the deploy is under way", lambda: os.path.exists(self.folder(box)), 10)
        self.assertEqual(self.delete(box)["gone"], True)
        thread.join(30)
        self.assertIn(answers[0].status, (200, 409))
        self.assertIsNone(self.get(box))
        self.assert_gone(box)
        time.sleep(1)
        self.assert_gone(box)

    # case 10: the container died; it is never silently bound to a fresh one
    def test_case_10_a_dead_runtime_is_told(self):
        box = self.deploy()
        self.kill_sandbox(box)
        self.refused("SANDBOX_NOT_FOUND", 409, self.execute, box, ["true"])
        seen = self.get(box)
        self.assertEqual((seen["phase"], seen["reason"]), ("failed", "the sandbox's processes ended"))
        self.delete(box)
        self.assert_gone(box)

    def test_list_goes_in_order_and_pages(self):
        boxes = sorted(self.deploy() for _ in range(3))
        listed, after = [], ""
        while True:
            page = self.must("GET", f"/v1/sandboxes?after={after}&limit=1")
            listed += [b["sandboxId"] for b in page["sandboxes"]]
            after = page.get("next")
            if not after:
                break
        self.assertEqual([b for b in listed if b in boxes], boxes)
        self.assertEqual(listed, sorted(listed))
        for box in boxes:
            self.delete(box)

    def test_warm_sandbox_is_claimed_once(self):
        warm = new_id()
        body = {**self.deploy_body(), "warmId": warm}
        self.assertEqual(self.must("POST", "/v1/warm", body)["warm"], True)
        pid = self.shim_pid(warm)
        first = self.deploy(warmId=warm)
        second = self.deploy(warmId=warm)  # gone: a cold start
        self.assertEqual(self.execute(first, ["true"])["exitCode"], 0)
        self.assertEqual(self.execute(second, ["true"])["exitCode"], 0)
        self.assertIsNone(self.get(warm))
        self.assertEqual(self.shim_pid(warm), pid)  # the first one lives in the warm one's runtime
        self.assertNotIn("warm", self.get(first))
        self.restart()
        self.assertEqual(self.execute(first, ["true"])["exitCode"], 0)
        self.delete(first)
        self.assert_gone(warm)
        self.delete(second)

    def test_stop_releases_the_compute(self):
        box = self.deploy()
        stopped = self.must("POST", f"/v1/sandboxes/{box}/stop", {"operationId": new_id(), "generation": 2})
        self.assertEqual(stopped["phase"], "stopped")
        self.assert_gone(box)
        self.refused("SANDBOX_SUSPENDED", 409, self.execute, box, ["true"], generation=2)
        self.deploy(box, generation=3)
        self.assertEqual(self.execute(box, ["true"], generation=3)["exitCode"], 0)
        self.delete(box, generation=4)


class Death(RegionTest):
    # case 4: both ways at the start
    def test_case_4_found_again_after_kill9(self):
        boxes = [self.deploy() for _ in range(3)]
        self.execute(boxes[0], ["sh", "-c", "echo kept > /workspace/a; echo kept > /b"])
        stray = self.deploy()
        pids = {b: self.shim_pid(b) for b in boxes}
        self.region.kill9()
        os.kill(pids[boxes[2]], signal.SIGKILL)  # one is lost
        self.forget(stray)  # one has no record
        self.region.start()
        for box in boxes[:2]:
            self.assertEqual(self.get(box)["phase"], "running")
            self.assertEqual(self.shim_pid(box), pids[box])
        self.assertEqual(self.execute(boxes[0], ["cat", "/workspace/a", "/b"])["stdout"], "kept\nkept\n")
        lost = self.get(boxes[2])
        self.assertEqual((lost["phase"], lost["reason"]), ("failed", "the sandbox was lost"))
        self.assert_gone(boxes[2])
        self.assertIsNone(self.get(stray))
        self.assert_gone(stray)
        self.assertIn("sandbox_region_strays_total 1", self.call("GET", "/metrics").text())
        self.assertTrue([line for line in self.region.log_lines()
                         if line["msg"] == "a stray sandbox is ended" and line["sandboxId"] == stray])
        for box in boxes:
            self.delete(box)
            self.assert_gone(box)

    def forget(self, box):
        """Takes a sandbox out of the journal of a gateway that does not run."""
        path = os.path.join(self.region.dir, "journal")
        with open(path) as f:
            lines = [line for line in f if line.split()[1] != box]
        with open(path, "w") as f:
            f.writelines(lines)

    def test_killed_in_the_middle_of_a_deploy(self):
        box = new_id()
        thread = threading.Thread(target=lambda: self.quietly("PUT", f"/v1/sandboxes/{box}", self.deploy_body()))
        thread.start()
        wait_for("the runtime is started", lambda: os.path.exists(os.path.join(self.folder(box), "shim")), 10)
        self.region.kill9()
        thread.join()
        self.region.start()
        self.assertIsNone(self.get(box))
        self.assert_gone(box)
        self.deploy(box)  # nobody was told of the first attempt
        self.delete(box)

    def quietly(self, *args):
        try:
            self.call(*args)
        except OSError:
            pass

    def test_running_commands_outlive_the_gateway(self):
        box = self.deploy()
        execution = new_id()
        thread = threading.Thread(target=self.quietly, args=(
            "POST", f"/v1/sandboxes/{box}/execute",
            {"executionId": execution, "generation": 1, "timeoutSeconds": 30,
             "command": ["sh", "-c", "sleep 3; echo done > /workspace/done; sleep 1"]}))
        thread.start()
        wait_for("it is told", lambda: self.get(box)["executions"] == [execution], 5)
        self.region.kill9()
        thread.join()
        self.region.start()
        wait_for("it is told again", lambda: self.get(box)["executions"] == [execution], 5)
        self.refused("OPERATION_KNOWN", 409, self.execute, box, ["true"], executionId=execution)
        wait_for("it ends", lambda: self.get(box)["executions"] == [], 10)
        self.assertEqual(self.execute(box, ["cat", "/workspace/done"])["stdout"], "done\n")
        self.delete(box)

    def test_what_a_killed_start_left_goes_with_the_next(self):
        self.region.kill9()
        base = self.region.dir
        mount = os.path.join(base, "t", "probe.disk.d")
        left = [os.path.join(base, name) for name in ("probe.0123456789abcdef", "t/128.img.00000000000000ff")]
        for path in left:
            open(path, "w").close()
        os.mkdir(mount)
        subprocess.run(["mount", "-t", "tmpfs", "none", mount], check=True)
        self.region.start()
        self.assertEqual([path for path in left + [mount] if os.path.exists(path)], [])

    def test_a_tombstone_ends_with_its_week_whatever_restarts_there_are(self):
        week, hour = 7 * 24 * 3600, 3600
        boxes = {age: new_id() for age in (week + hour, week - hour)}
        for box in boxes.values():
            self.delete(box)
        self.region.kill9()
        path = os.path.join(self.region.dir, "journal")
        with open(path) as f:
            lines = f.read().splitlines()
        for i, line in enumerate(lines):
            _crc, box, text = line.split(" ", 2)
            for age, aged in boxes.items():
                if box == aged:
                    record = json.loads(text)
                    record["at"] = int((time.time() - age) * 1000)
                    text = f"{box} {json.dumps(record)}"
                    lines[i] = f"{zlib.crc32(text.encode()):08x} {text}"
        with open(path, "w") as f:
            f.write("\n".join(lines) + "\n")
        old, young = boxes.values()
        self.region.start()

        def last(box):
            with open(path) as f:
                return [line.split(" ", 2)[2] for line in f if line.split()[1] == box][-1].strip()
        wait_for("the old one is forgotten", lambda: last(old) == "-", 10)
        self.assertNotEqual(last(young), "-")
        self.refused("STALE", 409, self.deploy, young)
        self.deploy(old)
        self.delete(old)

    def test_clean_stop_leaves_sandboxes_running(self):
        box = self.deploy()
        pid = self.shim_pid(box)
        self.restart(kill=False)
        self.assertEqual(self.shim_pid(box), pid)
        self.assertEqual(self.execute(box, ["true"])["exitCode"], 0)
        self.delete(box)


class NoAgent(RegionTest):
    def test_deploy_without_agent(self):
        box = self.deploy(agent=False)
        self.assertEqual(self.get(box)["agent"], False)
        self.refused("AGENT_MISSING", 409, self.execute, box, ["true"])
        self.restart()
        self.assertEqual(self.get(box)["phase"], "running")
        self.refused("AGENT_MISSING", 409, self.execute, box, ["true"])
        self.delete(box)
        self.assert_gone(box)


class Access(RegionTest):
    driver = "fake"
    secret = "s3cret-of-the-region"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.region.stop()
        path = os.path.join(cls.stack.dir, "secret")
        with open(path, "w") as f:
            f.write(cls.secret + "\n")
        cls.port_file = os.path.join(cls.stack.dir, "port")
        cls.region.options = {"listen.secret_file": path, "listen.port_file": cls.port_file,
                              "listen.socket_uids": [12345]}
        cls.region.start()
        with open(cls.port_file) as f:
            cls.port = int(f.read())

    @classmethod
    def tearDownClass(cls):
        cls.region.stop()
        super().tearDownClass()

    def test_secret_or_peer(self):
        from harness import Client

        client = Client(f"http://127.0.0.1:{self.port}")
        for header, status in ((None, 401), ("Bearer " + self.secret, 200), ("Bearer " + self.secret + "x", 401),
                               ("Bearer ", 401), (self.secret, 401)):
            headers = {"Authorization": header} if header is not None else {}
            answer = client.get("/v1/capacity", headers=headers)
            self.assertEqual(answer.status, status, header)
            self.assertNotIn(self.secret, answer.text())
        self.assertEqual(self.call("GET", "/v1/capacity").status, 401)  # uid 0 is not among the peers here
        self.assertEqual(self.call("GET", "/v1/health").status, 200)


class FullDisk(RegionTest):
    driver = "fake"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.region.stop()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", cls.region.dir], check=True)
        cls.region.start()

    @classmethod
    def tearDownClass(cls):
        cls.region.stop()
        subprocess.run(["umount", cls.region.dir], check=True)
        super().tearDownClass()

    def test_what_could_not_be_written_down_is_not_promised_later_either(self):
        filler = os.path.join(self.region.dir, "filler")
        with open(filler, "wb", buffering=0) as f:
            with self.assertRaises(OSError):
                while True:
                    f.write(bytes(4096))
        box, body = new_id(), self.deploy_body()
        for _ in range(2):
            self.assertEqual(self.call("PUT", f"/v1/sandboxes/{box}", body).status, 503)
        os.unlink(filler)
        self.must("PUT", f"/v1/sandboxes/{box}", body)
        self.restart()
        self.assertIsNotNone(self.get(box), "it was acknowledged and is not known any more")
        self.delete(box)


if __name__ == "__main__":
    main()
