"""networkControl through the whole product: refused at allocation with its reason, enforced, and what was
denied told by `sandboxctl why`."""
# ctest: timeout 240
# ctest: lock egress

import os
import shutil

import harness
from harness import SystemTest, busybox_rootfs, main, program
from test_egress import HOST, World

RULES = {"enabled": True, "addressAllowlist": ["203.0.113.9"], "domainAllowlist": ["good.example"]}
LINES = ["tcp 203.0.113.9 443", "tcp 203.0.113.8 443", "proxy good.example:443", "proxy other.example:443",
         "tcp 169.254.169.254 80"]
WANT = ["open", "shut", "open", "shut", "shut"]


class Api(SystemTest):
    stack_options = {"region": {"egress.upstream": "203.0.113.53", "egress.deny": "203.0.113.200"}}

    @classmethod
    def setUpClass(cls):
        cls.world = World()
        original = harness.Region.spawn

        def spawn(region, argv, **kw):
            return original(region, ["nsenter", f"--net=/run/netns/{HOST}", *argv], **kw)

        harness.Region.spawn = spawn
        cls.addClassCleanup(cls.world.stop)
        cls.addClassCleanup(setattr, harness.Region, "spawn", original)
        cls.world.start()
        super().setUpClass()
        rootfs = os.path.join(cls.stack.dir, "rootfs-probe")
        busybox_rootfs(rootfs)
        shutil.copy(program("egress_probe"), os.path.join(rootfs, "bin/probe"))
        cls.image = cls.stack.import_rootfs(rootfs, "probe")

    def attempts(self, tenant, box, lines):
        table = "cat >/tmp/t <<'END'\n" + "\n".join(lines) + "\nEND\n"
        answer = tenant.execute(box, ["sh", "-c", table + "exec probe </tmp/t"])
        got = dict(line.split() for line in answer["stdout"].splitlines())
        return [got.get(str(i + 1)) for i in range(len(lines))]

    def test_rules_are_kept_and_denials_told(self):
        tenant = self.stack.tenant(image=self.image, networkControl=RULES)
        box = tenant.ready()
        self.assertEqual(self.attempts(tenant, box, LINES), WANT)
        told = self.stack.ctl_json("why", box["sandboxId"])
        denied = {(d["destination"], d.get("port"), d["protocol"]): d["count"] for d in told["denied"]}
        self.assertEqual(denied["203.0.113.8", 443, "tcp"], 1)
        self.assertEqual(denied["other.example", 443, "proxy"], 1)
        self.assertEqual(denied["169.254.169.254", 80, "tcp"], 1)
        self.assertNotIn("good.example", {d["destination"] for d in told["denied"]})
        self.assertIn(b"other.example", self.stack.ctl("why", box["sandboxId"])[0])
        self.assertEqual(tenant.terminate(box)["status"], "TERMINATED")
        self.assertNotIn("denied", self.stack.ctl_json("why", box["sandboxId"]))

    def test_refused_at_allocation(self):
        for rules, words in (({"enabled": True, "addressAllowlist": ["10.1.2.3"]}, "infrastructure range (private)"),
                             ({"enabled": True, "addressAllowlist": ["0x7f000001"]}, "not an address"),
                             ({"enabled": False, "domainAllowlist": ["*"]}, "*")):
            tenant = self.stack.tenant(image=self.image, networkControl=rules)
            box = tenant.create()
            ended = tenant.wait(box, "FAILED")
            self.assertIn(words, ended["statusReason"])
            tenant.terminate(box)


if __name__ == "__main__":
    main()
