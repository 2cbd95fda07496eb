"""sandboxctl against the real server: every verb of the grammar, tables, --json, exit codes, streams."""

import json
import os
import pty
import select
import shutil
import subprocess
import time

from harness import SystemTest, busybox_rootfs, free_port, main, program, wait_for


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

    def test_a_name_does_not_act_on_the_terminal(self):
        tenant = self.stack.tenant(template=False)
        for name, shown in (("a\u202eb", "a\\u202eb"), ("c\u2066d\u2069", "c\\u2066d\\u2069"),
                            ("e\u009b31mf", "e\\u009b31mf"), ("Größe ☕", "Größe ☕")):
            template = tenant.add_template(name=name)
            for words in (["list"], ["show", template]):
                out = self.stack.ctl("template", *words, tenant=tenant)[0].decode()
                self.assertIn(shown, out)
                if shown != name:
                    self.assertNotIn(name, out)

    def test_the_same_folder_is_the_same_image(self):
        rootfs = busybox_rootfs(os.path.join(self.stack.dir, "same-rootfs"))
        words = ("image", "import", "--region", self.stack.region.region, "--name", "same", "--rootfs", rootfs)
        first = self.stack.ctl_json(*words)["reference"]
        for folder, _dirs, names in os.walk(rootfs):  # read, linked and unlinked: what it holds is the same
            for name in names:
                path = os.path.join(folder, name)
                if not os.path.islink(path):
                    os.utime(path, ns=(1, os.stat(path).st_mtime_ns))
        self.assertEqual(self.stack.ctl_json(*words)["reference"], first)
        with open(os.path.join(rootfs, "more"), "w"):
            pass
        self.assertNotEqual(self.stack.ctl_json(*words)["reference"], first)

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

    def test_long_work_shows_that_it_goes_on(self):
        """On a terminal there is a line of progress, and it is gone at the end; elsewhere there is none."""
        tenant = self.stack.tenant()
        argv = ("sandbox", "create", "--wait")
        self.assertEqual(self.stack.ctl(*argv, tenant=tenant)[1], b"")
        ours, theirs = pty.openpty()
        run = subprocess.Popen([program("sandboxctl"), *argv], stdout=subprocess.DEVNULL, stderr=theirs, env={
            **os.environ, "SANDBOXCTL_URL": self.stack.plane.url, "SANDBOXCTL_TOKEN_FILE": f"{self.stack.dir}/token-{tenant.account}",
            "SANDBOXCTL_ACCOUNT": tenant.account, "SANDBOXCTL_APP": tenant.app, "SANDBOXCTL_TEMPLATE": tenant.template,
            "SANDBOXCTL_REGION": tenant.region})
        os.close(theirs)
        self.assertEqual(run.wait(60), 0)
        shown = os.read(ours, 65536)
        os.close(ours)
        self.assertRegex(shown, rb"\x1b\[K[^\r]*(REQUESTED|ALLOCATING|STARTING)")
        self.assertTrue(shown.endswith(b"\r\x1b[K"), shown)

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
        checks = self.doctor(1, PATH=empty, SANDBOXCTL_SOCKET="/nonexistent")
        self.assertEqual((checks["runsc"]["state"], checks["server"]["state"]), ("bad", "bad"))
        self.assertIn("apt-get install runsc", checks["runsc"]["mend"])
        self.assertIn("apt-get install nftables", checks["nft"]["mend"])
        self.assertIn("systemctl start sandboxd", checks["server"]["mend"])

    def doctor(self, code, **env):
        return {c["name"]: c for c in json.loads(self.stack.ctl("--json", "doctor", code=code, env=env)[0])["checks"]}

    def broken(self, name, mend, **env):
        check = self.doctor(1, **env)[name]
        self.assertEqual(check["state"], "bad", check)
        self.assertIn(mend, check["mend"])

    def test_doctor_names_faults_and_how_to_mend_them(self):
        tenant = self.stack.tenant()
        folder = self.stack.backend_dir(tenant)
        region, storage = f"region {tenant.region}", f"storage {tenant.region} of {tenant.account}"
        checks = self.doctor(None)
        self.assertEqual((checks[region]["state"], checks[storage]["state"]), ("ok", "ok"))
        self.assertEqual([d for _f, dirs, _n in os.walk(folder) for d in dirs if d.startswith("doctor")], [])

        with self.subTest("full disk"):
            small = os.path.join(self.stack.dir, "small")
            os.makedirs(small)
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small], check=True)
            try:
                self.broken("disk", "free some space", SANDBOXCTL_STATE=small)
            finally:
                subprocess.run(["umount", small], check=True)
        with self.subTest("storage that is a file"):
            shutil.rmtree(folder)
            with open(folder, "w"):
                pass
            self.broken(storage, "the folder must be on the region's host")
            os.remove(folder)
            os.makedirs(folder)
        with self.subTest("storage that is away"):
            keys = os.path.join(self.stack.dir, "keys")
            with open(keys, "w") as f:
                f.write("key\n")
            self.stack.ctl("backend", "create", "--account", tenant.account, "--region", tenant.region, "--kind", "s3",
                           "--endpoint", f"http://127.0.0.1:{free_port()}", "--bucket", "b", "--access-key-file", keys,
                           "--secret-key-file", keys)
            self.broken(storage, "reach the endpoint")
            self.stack.backend_dir(tenant)
        with self.subTest("region that is away"):
            self.stack.region.stop()
            self.broken(region, "systemctl status sandbox-region")
            self.stack.region.start()
        with self.subTest("database that is away"):
            self.stack.pg.stop()
            self.broken("database", "is PostgreSQL up")
            self.stack.pg.start()
        wait_for("all is well again", lambda: all(self.doctor(None)[n]["state"] == "ok" for n in ("database", region, storage)), 30)

    def test_a_region_moves_and_changes_its_secret(self):
        ctl, region = self.stack.ctl_json, "moved-1"
        secret = os.path.join(self.stack.dir, "region-secret")
        with open(secret, "w") as f:
            f.write("0123456789abcdef\n")
        ctl("region", "create", "--name", region, "--socket", "/nowhere.sock")
        moved = ctl("region", "update", region, "--url", "http://127.0.0.1:1", "--secret-file", secret)["region"]
        self.assertEqual((moved["url"], moved.get("socket")), ("http://127.0.0.1:1", None))
        self.assertIn("INVALID", self.stack.ctl("region", "update", region, code=1)[1].decode())
        self.assertIn("NOT_FOUND", self.stack.ctl("region", "update", "no-such", "--socket", "/x", code=1)[1].decode())
        # at its old place again, with sandboxes that start there
        moved = ctl("region", "update", region, "--socket", self.stack.region.socket)["region"]
        self.assertNotIn("url", moved)
        wait_for("it is reached", lambda: self.doctor(None)["region " + region]["state"] == "ok", 10)
        ctl("region", "disable", region)

    def test_lists_inside_an_object_are_tables_too(self):
        tenant = self.stack.tenant()
        told = self.stack.ctl("account", "show", tenant.account)[0].decode()
        self.assertRegex(told, r"(?m)^apps\n  appId +accountId +name +createdAt\n  " + tenant.app + " ")
        box = tenant.ready()
        told = self.stack.ctl("why", box["sandboxId"])[0].decode()
        self.assertRegex(told, r"(?m)^history\n  at +generation +from +to +cause ")
        told = self.stack.ctl("audit", "--account", tenant.account)[0].decode()
        self.assertRegex(told, rf"(?m) sandbox.create +sandbox +{box['sandboxId']} +ok ")
        tenant.terminate(box)

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
        self.complete_in_zsh()
        self.stack.ctl("completion", "fish", code=2)
        page = self.stack.ctl("man")[0]
        shown = subprocess.run(["man", "--warnings", "-l", "-"], input=page, check=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env={**os.environ, "MANWIDTH": "100", "LC_ALL": "C"})
        self.assertEqual(shown.stderr, b"")
        self.assertIn(b"account entitle", shown.stdout)
        self.assertNotIn(b"bootstrap", shown.stdout)
        lint = subprocess.run(["mandoc", "-T", "lint", "-W", "warning"], input=page, stdout=subprocess.PIPE, check=False).stdout
        self.assertEqual(lint, b"")
        for word in (b"EXIT STATUS", b"124", b"refused by the server", b"not reachable"):
            self.assertIn(word, shown.stdout)

    def complete_in_zsh(self):
        """A real zsh with its completion system, on a terminal: what Tab makes of a line."""
        home = os.path.join(self.stack.dir, "zsh")
        os.makedirs(home, exist_ok=True)
        with open(os.path.join(home, "_sandboxctl"), "wb") as f:
            f.write(self.stack.ctl("completion", "zsh")[0])
        with open(os.path.join(home, ".zshrc"), "w") as f:
            f.write(f"fpath=({home} $fpath)\nautoload -U compinit && compinit -u -d {home}/dump\n"
                    "done-with() { print -r -- \"<$BUFFER>\" >>$HOME/lines; BUFFER=; }\nzle -N done-with\n"
                    "bindkey '^O' done-with\nPS1='ready> '\nsetopt no_beep\n")
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve("/usr/bin/zsh", ["zsh", "-i"], {"HOME": home, "ZDOTDIR": home, "TERM": "dumb", "PATH": "/usr/bin:/bin"})
        lines = os.path.join(home, "lines")
        try:
            typed = ["sandboxctl acc\t", "sandboxctl account ent\t", "sandboxctl --json account quota X --ac\t",
                     "sandboxctl region upd\t"]
            shown = b""
            while b"ready> " not in shown:
                self.assertTrue(select.select([terminal], [], [], 20)[0], shown)
                shown += os.read(terminal, 65536)
            os.write(terminal, "".join(line + "\x0f" for line in typed).encode())
            wait_for("zsh has completed", lambda: os.path.exists(lines) and open(lines).read().count("\n") == len(typed), 20)
        finally:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            os.close(terminal)
        with open(lines) as f:
            self.assertEqual([line.rstrip() for line in f.read().replace(" >", ">").splitlines()],
                             ["<sandboxctl account>", "<sandboxctl account entitle>",
                              "<sandboxctl --json account quota X --active>", "<sandboxctl region update>"])


if __name__ == "__main__":
    main()
