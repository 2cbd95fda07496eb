# ctest: early
# ctest: timeout 900
"""config/quickstart: from this tree to a command in a sandbox, twice, and back to nothing."""

import json
import os
import subprocess
import tempfile
import time
import unittest

import harness
from harness import Client, main
from test_standalone import processes


class Quickstart(unittest.TestCase):
    def run_it(self, *flags, timeout=800):
        run = subprocess.run([os.path.join(harness.SOURCE, "config/quickstart"), "--state", self.state, *flags],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             timeout=timeout, env=harness.clean_environment())
        self.assertEqual(run.returncode, 0, run.stdout[-6000:])
        return run.stdout

    def setUp(self):
        if os.geteuid() != 0:
            harness.skip("the quickstart needs root")
        self.dir = tempfile.TemporaryDirectory(prefix="sbx-quick-")
        os.chmod(self.dir.name, 0o755)
        self.state = os.path.join(self.dir.name, "state")
        self.addCleanup(self.dir.cleanup)

    def test_first_run_second_run_and_stop(self):
        said = os.path.join(self.dir.name, "said.json")
        self.addCleanup(self.run_it, "--stop")
        out = self.run_it("--port", "0", "--json", said)
        self.assertRegex(out, r"(?m)^    Python 3\.")
        self.assertRegex(out, r"(?m)^    Linux ")
        self.assertNotIn(os.uname().release, out)  # gVisor's kernel, not ours
        self.assertIn("curl -H", out)
        with open(said) as f:
            told = json.load(f)
        self.assertEqual(sorted(told), sorted(["url", "token", "accountId", "appId", "templateId", "region", "sandboxId",
                                               "adminSocket", "stateDir", "pid"]))
        self.assertEqual(told["stateDir"], self.state)
        self.assertEqual(os.stat(said).st_mode & 0o077, 0)
        client = Client(told["url"], token=told["token"])
        answer = client.post("/api/public/v1/sandbox/execute",
                             {"accountId": told["accountId"], "sandboxId": told["sandboxId"],
                              "command": ["python3", "-c", "import ssl, json, sqlite3; print(6 * 7)"]})
        self.assertEqual((answer.status, answer.json.get("stdout"), answer.json.get("stderr")), (200, "42\n", ""), answer)
        # glibc's programs find the cure for an old runsc's statx, and say nothing about it.
        answer = client.post("/api/public/v1/sandbox/execute",
                             {"accountId": told["accountId"], "sandboxId": told["sandboxId"],
                              "command": ["ls", "-ld", "/workspace"]})
        self.assertEqual((answer.json.get("exitCode"), answer.json.get("stderr")), (0, ""), answer)

        self.readme_on_ones_own_image()
        began = time.monotonic()
        out = self.run_it()
        self.assertIn("already runs", out)
        self.assertLess(time.monotonic() - began, 20)

        out = self.run_it("--stop")
        self.assertIn("stopped", out)
        self.assertEqual(processes(self.state + "/"), [])
        self.assertIn("no server runs", self.run_it("--stop"))

        out = self.run_it("--once", "--port", "0")
        self.assertRegex(out, r"(?m)^    Python 3\.")
        self.assertIn("stopped", out)
        self.assertEqual(processes(self.state + "/"), [])

    def readme_on_ones_own_image(self):
        """The block of README.md, as it stands there, for a root file system and for an OCI layout."""
        with open(os.path.join(harness.SOURCE, "README.md")) as f:
            block = "".join(line[4:] for line in f.read().split("## Your own image\n")[1].split("\n## ")[0].splitlines(True)
                            if line.startswith("    "))
        self.assertIn("sandboxctl exec", block)
        rootfs, layout = os.path.join(self.dir.name, "rootfs"), os.path.join(self.dir.name, "layout")
        harness.busybox_rootfs(rootfs)
        for words in (["init", "--layout", layout], ["new", "--image", layout + ":v1"],
                      ["insert", "--image", layout + ":v1", rootfs, "/"]):
            subprocess.run(["umoci", *words], check=True, stdout=subprocess.DEVNULL)
        build = os.path.join(harness.SOURCE, "build-release")
        for source in (f"--rootfs {rootfs}", f"--layout {layout}:v1"):
            self.assertIn("--rootfs DIR", block)
            run = subprocess.run(["bash", "-euc", block.replace("--rootfs DIR", source)], text=True, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120,
                                 env={**harness.clean_environment(), "SANDBOXCTL_STATE": self.state,
                                      "PATH": build + ":" + harness.clean_environment()["PATH"]})
            self.assertEqual(run.returncode, 0, run.stdout)
            self.assertRegex(run.stdout, r"(?m)^Linux .* 4\.4\.0 ")
            self.assertRegex(run.stdout, r"(?m)^status +TERMINATED$")

    def test_wrong_words_are_told(self):
        for flags in (["--nope"], ["--port", "x"], ["--state"]):
            run = subprocess.run([os.path.join(harness.SOURCE, "config/quickstart"), *flags], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=30)
            self.assertNotEqual(run.returncode, 0)
            self.assertTrue(run.stdout.strip())


if __name__ == "__main__":
    main()
