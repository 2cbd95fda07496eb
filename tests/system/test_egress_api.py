"""networkControl through the whole product: refused at allocation with its reason, enforced, and what was
denied told by `sandboxctl why`."""
# ctest: timeout 240
# ctest: lock egress

import os
import shutil

import harness
from harness import SystemTest, busybox_rootfs, main, program, wait_for
from test_egress import HOST, World
from test_reload import reload, rewrite

RULES = {"enabled": True, "addressAllowlist": ["203.0.113.9"], "domainAllowlist": ["good.example"]}
LINES = ["tcp 203.0.113.9 443", "tcp 203.0.113.8 443", "proxy good.example:443", "proxy other.example:443",
         "tcp 169.254.169.254 80"]
WANT = ["open", "shut", "open", "shut", "shut"]
DENIED = [("203.0.113.8", 443, "tcp"), ("other.example", 443, "proxy"), ("169.254.169.254", 80, "tcp")]


class Api(SystemTest):
    stack_options = {"region": {"egress.upstream": "203.0.113.53", "egress.deny": "203.0.113.200"},
                     "sandboxd": {"sandboxes.warm_total_max": 1}}

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
        denied = self.denied(box)
        self.assertEqual([denied[d] for d in DENIED], [1] * len(DENIED))
        self.assertNotIn("good.example", {d["destination"] for d in told["denied"]})
        self.assertIn(b"other.example", self.stack.ctl("why", box["sandboxId"])[0])
        self.assertEqual(tenant.terminate(box)["status"], "TERMINATED")
        self.assertNotIn("denied", self.stack.ctl_json("why", box["sandboxId"]))

    def denied(self, box):
        told = self.stack.ctl_json("why", box["sandboxId"])
        return {(d["destination"], d.get("port"), d["protocol"]): d["count"] for d in told["denied"]}

    def test_rules_and_counts_outlive_a_pause(self):
        tenant = self.stack.tenant(image=self.image, networkControl=RULES, persistenceMode="SNAPSHOT")
        self.stack.backend_dir(tenant)
        box = tenant.ready()
        for cycle in (1, 2):
            self.assertEqual(self.attempts(tenant, box, LINES), WANT)
            self.assertEqual(tenant.pause(box)["status"], "SUSPENDED")
            told = self.denied(box)  # nothing of it runs now
            self.assertEqual([told[d] for d in DENIED], [cycle] * len(DENIED))
            tenant.resume(box)
            tenant.wait(box, "READY")
            self.assertEqual(self.denied(box), told)
        self.assertEqual(self.attempts(tenant, box, LINES), WANT)
        self.assertEqual([self.denied(box)[d] for d in DENIED], [3] * len(DENIED))
        tenant.terminate(box)

    def test_a_warm_member_has_its_rules_from_its_first_moment(self):
        boot = ("probe >/workspace/boot <<'END'\n" + "\n".join(LINES) + "\nEND\nexec sleep infinity")
        tenant = self.stack.tenant()
        template = tenant.add_template(image=self.image, networkControl=RULES, command=["sh", "-c", boot],
                                       warmPool={"desired": 1, "min": 1, "max": 1, "regions": [tenant.region]})
        wait_for("a warm member", lambda: self.stack.pg.psql(
            "SELECT 1 FROM sandboxd.warm_members WHERE status = 'READY'"), 60)
        box = tenant.ready(templateId=template)
        self.assertTrue(box["isWarmAllocation"])
        got = wait_for("what its command tried", lambda: tenant.execute(box, ["cat", "/workspace/boot"])["stdout"], 30)
        self.assertEqual(dict(line.split() for line in got.splitlines()),
                         {str(i + 1): want for i, want in enumerate(WANT)})
        self.assertEqual(self.attempts(tenant, box, LINES), WANT)
        self.assertEqual([self.denied(box)[d] for d in DENIED], [2] * len(DENIED))
        tenant.terminate(box)
        tenant.call("POST", "/sandbox-template/save",
                    {"accountId": tenant.account, "templateId": template, "name": "off", "enabled": False}, 200)

    def test_further_denied_ranges_reach_sandboxes_that_run(self):
        """SIGHUP of the region: rules, resolver and proxy take the new ranges over, and go on."""
        lines = ["tcp 203.0.113.8 443", "proxy good.example:443", "tcp 203.0.113.9 443"]
        rules = {"enabled": True, "addressAllowlist": ["203.0.113.9", "203.0.113.8"], "domainAllowlist": ["good.example"]}
        tenant = self.stack.tenant(image=self.image, networkControl=rules)
        box = tenant.ready()
        self.assertEqual(self.attempts(tenant, box, lines), ["open", "open", "open"])
        region = self.stack.region
        rewrite(region, egress__deny="203.0.113.200,203.0.113.8")
        self.assertEqual(reload(region)["changed"], 1)
        wait_for("it is shut", lambda: self.attempts(tenant, box, lines) == ["shut", "shut", "open"], 15)
        rewrite(region, egress__deny="203.0.113.200,nonsense")
        self.assertIn("[egress] deny", reload(region, "reload refused, nothing was changed")["error"])
        self.assertEqual(self.attempts(tenant, box, lines), ["shut", "shut", "open"])
        rewrite(region, egress__deny="203.0.113.200")
        reload(region)
        wait_for("it is open again", lambda: self.attempts(tenant, box, lines) == ["open", "open", "open"], 15)
        tenant.terminate(box)

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
