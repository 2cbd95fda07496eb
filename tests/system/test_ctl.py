"""sandboxctl against the real server: every verb of the grammar, tables, --json, exit codes, streams."""

import json
import os
import shutil
import subprocess
import time

from harness import SystemTest, busybox_rootfs, main, program, wait_for


class Ctl(SystemTest):
    def test_operator_from_nothing_to_a_sandbox(self):
        ctl, j = self.stack.ctl, self.stack.ctl_json
        account = j("account", "create", "--name", "Größe & Söhne")["account"]["accountId"]
        j("account", "entitle", account, "--sandboxes", "on")
        self.assertEqual(j("account", "quota", account, "--active", "7")["account"]["activeQuota"], 7)
        user = j("user", "create", "--email", "a@example.test")["user"]["userId"]
        j("member", "add", "--account", account, "--user", user, "--roles", "admin,technical")
        self.assertEqual(sorted(j("member", "list", "--account", account)["members"][0]["roles"]), ["admin", "technical"])
        made = j("token", "create", "--kind", "user", "--user", user)
        app = j("app", "create", "--account", account, "--name", "app")["app"]["appId"]
        region = self.stack.region.region
        j("region", "grant", "--account", account, "--region", region)
        rootfs = busybox_rootfs(os.path.join(self.stack.dir, "ctl-rootfs"))
        image = j("image", "import", "--region", region, "--name", "ctl/busy", "--rootfs", rootfs)["reference"]
        self.assertRegex(image, r"^ctl/busy@sha256:[0-9a-f]{64}$")
        self.assertIn(image, [i["reference"] for i in j("image", "list", "--region", region)["images"]])

        token_file = os.path.join(self.stack.dir, "ctl-token")
        with open(token_file, "w") as f:
            f.write(made["secret"])
        as_user = {"SANDBOXCTL_URL": self.stack.plane.url, "SANDBOXCTL_TOKEN_FILE": token_file,
                   "SANDBOXCTL_ACCOUNT": account, "SANDBOXCTL_APP": app, "SANDBOXCTL_REGION": region}
        template = j("template", "save", "--name", "My Template", env=as_user)["template"]
        self.assertEqual(template["slug"], "my-template")
        template = template["templateId"]
        j("template", "revision", template, "--image", image, "--idle", "600", "--", "sleep", "100000", env=as_user)
        shown = j("template", "show", template, env=as_user)
        self.assertEqual(shown["currentRevision"]["command"], ["sleep", "100000"])
        box = j("sandbox", "create", "--template", template, "--wait", env=as_user)["sandbox"]
        self.assertEqual(box["status"], "READY")
        box = box["sandboxId"]
        out, _ = ctl("exec", box, "--", "echo", "from the sandbox", env=as_user)
        self.assertEqual(out, b"from the sandbox\n")

        # tables for people
        out = ctl("account", "list")[0].decode()
        self.assertRegex(out.splitlines()[0], r"^ACCOUNT +NAME +SANDBOXES +QUOTA")
        self.assertRegex(out, rf"(?m)^{account} +Größe & Söhne +yes +7 ")
        self.assertIn(box, ctl("sandbox", "list", env=as_user)[0].decode())
        self.assertIn(box, ctl("sandbox", "all")[0].decode())
        self.assertRegex(ctl("sandbox", "show", box, env=as_user)[0].decode(), r"(?m)^status +READY$")

        for words in (["status"], ["why", box], ["audit", "--account", account], ["migrate"], ["states"],
                      ["account", "show", account], ["user", "list"], ["token", "list"], ["app", "list", "--account", account],
                      ["region", "list"], ["backend", "list", "--account", account],
                      ["registry", "list", "--account", account], ["issuer", "list"],
                      ["installation", "list", "--account", account]):
            with self.subTest(words=words):
                self.assertTrue(j(*words)["success"])
                self.assertTrue(ctl(*words)[0])
        self.assertTrue(ctl("states", "--dot")[0].startswith(b"digraph"))

        self.assertEqual(j("sandbox", "terminate", box, env=as_user)["sandbox"]["status"], "TERMINATED")
        j("token", "revoke", made["token"]["tokenId"])
        wait_for("the token is dead", lambda: b"UNAUTHENTICATED" in ctl("sandbox", "list", env=as_user, code=None)[1], 5)
        self.assertTrue(j("image", "remove", image, "--region", region)["success"])

    def test_layout_with_a_tag(self):
        layout = os.path.join(self.stack.dir, "layout")
        rootfs = busybox_rootfs(os.path.join(self.stack.dir, "layout-rootfs"))
        subprocess.run(["umoci", "init", "--layout", layout], check=True)
        for tag in ("one", "two"):
            subprocess.run(["umoci", "new", "--image", f"{layout}:{tag}"], check=True)
            subprocess.run(["umoci", "insert", "--image", f"{layout}:{tag}", rootfs, "/"], check=True)
        got = {t: self.stack.ctl_json("image", "import", "--region", self.stack.region.region, "--name", "busy",
                                      "--layout", f"{layout}:{t}")["reference"] for t in ("one", "two")}
        with open(os.path.join(layout, "index.json")) as f:
            want = {m["annotations"]["org.opencontainers.image.ref.name"]: m["digest"] for m in json.load(f)["manifests"]}
        self.assertEqual(got, {t: f"busy@{want[t]}" for t in want})
        _, err = self.stack.ctl("image", "import", "--region", self.stack.region.region, "--name", "busy",
                                "--layout", f"{layout}:three", code=2)
        self.assertIn(b"no image with the tag three", err)
        shutil.rmtree(layout)

    def test_exec_passes_streams_and_exit_code(self):
        tenant = self.stack.tenant()
        box = tenant.ready()["sandboxId"]
        run = lambda *argv, **kw: self.stack.ctl("exec", box, *argv, tenant=tenant, **kw)
        self.assertEqual(run("--", "sh", "-c", "echo out; echo err >&2; exit 42", code=42), (b"out\n", b"err\n"))
        raw = bytes(range(256))
        octal = "".join(f"\\{b:03o}" for b in raw)
        self.assertEqual(run("--", "printf", octal)[0], raw)
        self.assertEqual(run("--env", "A= x=y ", "--cwd", "/tmp", "--", "sh", "-c", 'printf "%s:%s" "$A" "$PWD"')[0],
                         b" x=y :/tmp")
        out, err = run("--timeout", "1", "--", "sh", "-c", "printf part; sleep 30", code=124)
        self.assertEqual(out, b"part")
        self.assertIn(b"deadline", err)
        self.assertEqual(run("--", "sh", "-c", "kill -9 $$", code=137)[0], b"")
        run("--", "/nonexistent", code=127)
        told = json.loads(self.stack.ctl("--json", "exec", box, "--", "sh", "-c", "exit 3", tenant=tenant, code=3)[0])
        self.assertEqual((told["success"], told["exitCode"]), (True, 3))
        tenant.terminate(box)

    def test_exit_codes_and_refusals(self):
        tenant = self.stack.tenant()
        out, err = self.stack.ctl("sandbox", "show", "0" * 26, tenant=tenant, code=1)
        self.assertEqual(out, b"")
        self.assertIn(b"NOT_FOUND", err)
        told = json.loads(self.stack.ctl("--json", "sandbox", "show", "0" * 26, tenant=tenant, code=1)[0])
        self.assertEqual((told["success"], told["code"]), (False, "NOT_FOUND"))
        self.stack.ctl("account", "nope", code=2)
        self.stack.ctl("account", "show", code=2)
        self.stack.ctl("account", "list", env={"SANDBOXCTL_SOCKET": "/nonexistent"}, code=3)
        told = json.loads(self.stack.ctl("--json", "account", "list", env={"SANDBOXCTL_SOCKET": "/nonexistent"}, code=3)[0])
        self.assertEqual(told["code"], "UNREACHABLE")

    def test_watch_repeats(self):
        run = subprocess.Popen([program("sandboxctl"), "--json", "--watch", "status"], stdout=subprocess.PIPE,
                               env={**os.environ, "SANDBOXCTL_SOCKET": self.stack.plane.admin_socket})
        try:
            began = time.monotonic()
            lines = [json.loads(run.stdout.readline()) for _ in range(2)]
            self.assertTrue(all(line["success"] for line in lines))
            self.assertGreater(time.monotonic() - began, 1.5)
        finally:
            run.kill()
            run.stdout.close()
            run.wait()

    def test_doctor(self):
        told = json.loads(self.stack.ctl("--json", "doctor", code=None)[0])
        checks = {c["name"]: c for c in told["checks"]}
        for name in ("runsc", "sandbox", "cgroups", "nft", "netns", "disk", "clock", "server", "database"):
            self.assertIn(name, checks)
        for check in told["checks"]:
            self.assertIn(check["state"], ("ok", "note", "bad"))
            if check["state"] != "ok":
                self.assertTrue(check.get("mend"), check)
        # a host without the server, and without runsc: each is named, with the way to mend it
        empty = os.path.join(self.stack.dir, "empty-path")
        os.makedirs(empty, exist_ok=True)
        told = json.loads(self.stack.ctl("--json", "doctor", code=1,
                                         env={"PATH": empty, "SANDBOXCTL_SOCKET": "/nonexistent"})[0])
        checks = {c["name"]: c for c in told["checks"]}
        self.assertEqual((checks["runsc"]["state"], checks["server"]["state"]), ("bad", "bad"))
        self.assertIn("apt-get install runsc", checks["runsc"]["mend"])

    def test_volumes(self):
        tenant = self.stack.tenant()
        self.stack.backend_dir(tenant)
        j = lambda *w: self.stack.ctl_json("volume", *w, tenant=tenant)
        self.assertEqual(j("create", "--name", "data", "--size", "100")["volume"]["status"], "ACTIVE")
        self.assertEqual([v["volumeName"] for v in j("list")["volumes"]], ["data"])
        self.assertEqual(j("remove", "data")["volume"]["status"], "PENDING_PURGE")
        self.assertEqual(j("restore", "data")["volume"]["status"], "ACTIVE")
        self.assertEqual(j("show", "data")["volume"]["sizeMb"], 100)

    def test_completion_and_manual(self):
        script = self.stack.ctl("completion", "bash")[0].decode()
        ask = script + '''
            try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _sandboxctl; echo "${COMPREPLY[@]}"; }
            try sandboxctl acc
            try sandboxctl account e
            try sandboxctl --json account quota X --a
            try sandboxctl --socket /x token create --sc
            try sandboxctl exec S --c
        '''
        run = subprocess.run(["bash", "-c", ask], check=True, text=True, stdout=subprocess.PIPE)
        self.assertEqual(run.stdout.split("\n")[:5], ["account", "entitle", "--active", "--scopes", "--cwd"])
        self.assertIn("#compdef sandboxctl", self.stack.ctl("completion", "zsh")[0].decode())
        self.stack.ctl("completion", "fish", code=2)
        page = self.stack.ctl("man")[0]
        shown = subprocess.run(["man", "--warnings", "-l", "-"], input=page, check=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env={**os.environ, "MANWIDTH": "100", "LC_ALL": "C"})
        self.assertEqual(shown.stderr, b"")
        self.assertIn(b"account entitle", shown.stdout)
        self.assertNotIn(b"bootstrap", shown.stdout)


if __name__ == "__main__":
    main()
