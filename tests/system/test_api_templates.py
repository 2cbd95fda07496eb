"""Templates and their immutable revisions (seed "Sandbox template object", "Save a sandbox template",
"Create a sandbox template revision"; contract 2)."""

import subprocess

from harness import SystemTest, in_parallel, main

DIGEST = "docker.io/library/debian:bookworm-slim@sha256:" + "a" * 64


class Templates(SystemTest):
    stack_options = {"regions": 0}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.stack.admin("POST", "/region/create", {"name": "test-1", "socket": "/nowhere.sock"})
        cls.tenant = cls.stack.tenant(region="test-1", template=False)

    def save(self, status=(200, 201), **fields):
        body = {"accountId": self.tenant.account, **fields}
        return self.tenant.call("POST", "/sandbox-template/save", body, status)

    def template(self, **fields):
        return self.save(201, **fields).json["template"]

    def get(self, template_id):
        path = f"/sandbox-template?accountId={self.tenant.account}&templateId={template_id}"
        return self.tenant.call("GET", path, status=200).json

    def revision(self, template, status=201, **fields):
        body = {"accountId": self.tenant.account, "templateId": template["templateId"], "imageDigest": DIGEST, **fields}
        return self.tenant.call("POST", "/sandbox-template/revision", body, status)

    def names(self, **query):
        text = "".join(f"&{k}={v}" for k, v in query.items())
        answer = self.tenant.call("GET", f"/sandbox-templates?accountId={self.tenant.account}{text}", status=200)
        return [t["name"] for t in answer.json["templates"]]

    def test_a_new_template_has_the_defaults(self):
        answer = self.save(201, name="Python REPL! (v2)")
        t = answer.json["template"]
        self.assertEqual(answer.json["success"], True)
        self.assertEqual((t["name"], t["slug"], t["enabled"]), ("Python REPL! (v2)", "python-repl-v2", True))
        self.assertEqual(t["accountId"], self.tenant.account)
        for absent in ("deprecatedAt", "currentRevisionNumber", "description", "appId"):
            self.assertNotIn(absent, t)
        # currentRevision is null when the template has no revision yet (seed).
        self.assertIsNone(self.get(t["templateId"])["currentRevision"])

    def test_slugs_are_unique_in_an_account(self):
        slugs = [self.template(name="Same Name")["slug"] for _ in range(3)]
        self.assertEqual(slugs, ["same-name", "same-name-2", "same-name-3"])
        other = self.stack.tenant(region="test-1", template=False)
        saved = other.call("POST", "/sandbox-template/save", {"accountId": other.account, "name": "Same Name"}, 201)
        self.assertEqual(saved.json["template"]["slug"], "same-name")
        self.assertEqual(len({t["slug"] for t in in_parallel(8, lambda i: self.template(name="At Once"))}), 8)

    def test_update_keeps_what_is_left_out(self):
        t = self.template(name="first", description="what it is", enabled=False)
        answer = self.save(200, templateId=t["templateId"], name="second")
        u = answer.json["template"]
        self.assertEqual((u["name"], u["description"], u["enabled"]), ("second", "what it is", False))
        self.assertEqual(u["slug"], t["slug"], "slug never changes")
        self.assertGreaterEqual(u["updatedAt"], t["updatedAt"])
        self.assertEqual(u["createdAt"], t["createdAt"])
        self.assertEqual(self.save(200, templateId=t["templateId"], name="second", enabled=True).json["template"]["enabled"], True)
        answer = self.save(400, templateId=t["templateId"], name="x", appId=self.tenant.app)
        self.assertEqual(answer.json["data"]["field"], "appId", "create only")
        cleared = self.save(200, templateId=t["templateId"], name="second", description="").json["template"]
        self.assertNotIn("description", cleared)

    def test_deprecation(self):
        t = self.template(name="to go")
        self.assertIn("deprecatedAt", self.save(200, templateId=t["templateId"], name="to go", deprecated=True).json["template"])
        self.assertNotIn("to go", self.names())
        self.assertIn("to go", self.names(includeDeprecated="true"))
        back = self.save(200, templateId=t["templateId"], name="to go", deprecated=False).json["template"]
        self.assertNotIn("deprecatedAt", back)
        self.assertIn("to go", self.names(includeDeprecated="false"))

    def test_list_by_app(self):
        self.template(name="of the app", appId=self.tenant.app)
        self.assertEqual(self.names(appId=self.tenant.app), ["of the app"])
        self.assertEqual(self.names(appId="0" * 26), [])
        self.assertEqual(self.save(404, name="x", appId="0" * 26).code, "NOT_FOUND")

    def test_list_in_pages(self):
        tenant = self.stack.tenant(region="test-1", template=False)
        path = f"/sandbox-templates?accountId={tenant.account}"
        made = [tenant.call("POST", "/sandbox-template/save", {"accountId": tenant.account, "name": f"t{i}"}, 201)
                .json["template"]["templateId"] for i in range(5)]
        whole = tenant.call("GET", path, status=200).json
        self.assertNotIn("nextCursor", whole)
        self.assertEqual([t["templateId"] for t in whole["templates"]], made[::-1])
        pages, cursor = [], ""
        while cursor is not None:
            answer = tenant.call("GET", path + "&limit=2" + cursor, status=200).json
            pages.append([t["templateId"] for t in answer["templates"]])
            cursor = "&cursor=" + answer["nextCursor"] if "nextCursor" in answer else None
        self.assertEqual(pages, [made[:2:-1], made[2:0:-1], made[:1]])
        self.assertEqual(tenant.call("GET", path + "&limit=1000000", status=200).json, whole)
        for bad in ("cursor=abc", "limit=0", "limit=x"):
            self.assertEqual(tenant.call("GET", path + "&" + bad, status=400).json["data"]["field"], bad.split("=")[0])

    def test_another_accounts_template_is_not_there(self):
        other = self.stack.tenant(region="test-1", template=False)
        t = self.template(name="mine")
        bodies = []
        for template in (t["templateId"], "0" * 26):
            answer = other.call("GET", f"/sandbox-template?accountId={other.account}&templateId={template}", status=404)
            body = answer.json
            body.pop("requestId")
            bodies.append(body)
            for path, fields in (("/sandbox-template/save", {"name": "x"}), ("/sandbox-template/revision", {"imageDigest": DIGEST})):
                other.call("POST", path, {"accountId": other.account, "templateId": template, **fields}, 404)
        self.assertEqual(bodies[0], bodies[1])
        self.assertEqual(self.get(t["templateId"])["template"]["name"], "mine")

    def test_bounds_of_names(self):
        self.template(name="n" * 120, description="d" * 2000)
        self.template(name="\u2615" * 120)
        self.assertEqual(self.save(400, name="n" * 121).json["data"]["field"], "name")
        self.assertEqual(self.save(400, name="n", description="d" * 2001).json["data"]["field"], "description")
        self.assertEqual(len(self.template(name="x" * 120)["slug"]), 63)

    def test_a_revision_has_the_defaults(self):
        t = self.template(name="defaults")
        answer = self.revision(t)
        r = answer.json["revision"]
        self.assertEqual(r["revision"], 1)
        self.assertEqual(r["templateId"], t["templateId"])
        self.assertEqual(r["imageDigest"], DIGEST)
        self.assertEqual(r["resources"], {"zClouds": 1, "cpu": {"requestMillicores": 250, "limitMillicores": 500},
                                          "memory": {"requestMb": 256, "limitMb": 512}})
        self.assertEqual((r["persistenceMode"], r["isolationProfile"]), ("EPHEMERAL", "GVISOR"))
        self.assertEqual((r["idleTimeoutSeconds"], r["hardLifetimeSeconds"], r["suspendedRetentionSeconds"]),
                         (1800, 3600, 604800))
        for absent in ("imageRef", "command", "workingDir", "ports", "warmPool", "networkControl", "persistentWorkspace",
                       "snapshotExclude", "snapshotMaxMb"):
            self.assertNotIn(absent, r)
        self.assertNotIn("warnings", answer.json)
        got = self.get(t["templateId"])
        self.assertEqual(got["currentRevision"], r)
        self.assertEqual(got["template"]["currentRevisionNumber"], 1)

    def test_a_revision_keeps_every_field(self):
        t = self.template(name="all fields")
        fields = {
            "imageRef": "debian:bookworm-slim", "command": ["sh", "-c", "echo \"$X\" 'y' \u2615", ""], "workingDir": "/srv",
            "ports": [{"port": 8080, "protocol": "TCP", "name": "web"}, {"port": 53, "protocol": "UDP"}],
            "persistenceMode": "BOTH", "snapshotExclude": ["node_modules", "*.log", "!keep.log"], "snapshotMaxMb": 1,
            "idleTimeoutSeconds": 30, "hardLifetimeSeconds": 2592000, "suspendedRetentionSeconds": 60,
            "networkControl": {"enabled": True, "addressAllowlist": ["203.0.113.8"], "domainAllowlist": ["github.com"]},
        }
        r = self.revision(t, zClouds=16, volumeSizeMb=512, mountPath="/data", **fields).json["revision"]
        for name, value in fields.items():
            self.assertEqual(r[name], value, name)
        self.assertEqual(r["persistentWorkspace"], {"sizeMb": 512, "mountPath": "/data"})
        self.assertEqual(r["resources"]["cpu"], {"requestMillicores": 4000, "limitMillicores": 8000})
        self.assertEqual(r["resources"]["memory"], {"requestMb": 4096, "limitMb": 8192})
        warm = self.revision(t, warmPool={"desired": 1, "min": 0, "max": 2, "regions": ["test-1"]}).json["revision"]
        self.assertEqual(warm["warmPool"], {"desired": 1, "min": 0, "max": 2, "regions": ["test-1"]})

    def test_persistence_modes(self):
        t = self.template(name="modes")
        self.assertEqual(self.revision(t, persistenceMode="PERSISTENT_VOLUME").json["revision"]["persistenceMode"], "DIRECTORY")
        r = self.revision(t, persistenceMode="SNAPSHOT").json["revision"]
        self.assertEqual(r["persistentWorkspace"], {"sizeMb": 10240, "mountPath": "/workspace/persist"})
        self.assertEqual(r["snapshotMaxMb"], 2048)
        # What is given for a sandbox that overrides the mode is shown with any mode.
        r = self.revision(t, volumeSizeMb=77, snapshotMaxMb=5, snapshotExclude=["*.o"]).json["revision"]
        self.assertEqual((r["persistenceMode"], r["persistentWorkspace"], r["snapshotMaxMb"], r["snapshotExclude"]),
                         ("EPHEMERAL", {"sizeMb": 77, "mountPath": "/workspace/persist"}, 5, ["*.o"]))
        answer = self.revision(t, 400, persistenceMode="DIRECTORY", warmPool={"desired": 1, "min": 0, "max": 1})
        self.assertIn("persistence modes with a volume are not available on warm pools", answer.json["error"])

    def test_network_control(self):
        t = self.template(name="network")
        for bad in ({"enabled": True}, {"enabled": True, "addressAllowlist": []}, {"enabled": True, "addressAllowlist": ["", " "]},
                    {"enabled": False, "domainAllowlist": [" "]}, {"enabled": True, "addressAllowlist": ["1.2.3.4"], "domainAllowlist": [""]}):
            self.revision(t, 400, networkControl=bad)
        for good in ({"enabled": True, "addressAllowlist": ["203.0.113.8"]}, {"enabled": False, "domainAllowlist": ["github.com"]},
                     {"enabled": False, "domainAllowlist": []}, {"enabled": False},
                     # Syntax and reserved ranges are judged at allocation.
                     {"enabled": True, "addressAllowlist": ["not an address"]}):
            self.assertEqual(self.revision(t, networkControl=good).json["revision"]["networkControl"], good)

    def test_image_digests(self):
        t = self.template(name="images")
        for bad in ("debian", "debian:latest", "debian@sha256:" + "A" * 64, "debian@sha256:" + "a" * 63, "@sha256:" + "a" * 64,
                    "debian@sha512:" + "a" * 64, "debian@sha256:" + "a" * 64 + "x", "deb ian@sha256:" + "a" * 64):
            self.assertEqual(self.revision(t, 400, imageDigest=bad).json["data"]["field"], "imageDigest", bad)
        for good in ("debian@sha256:" + "a" * 64, "registry:5000/a/b:tag@sha256:" + "0" * 64):
            self.revision(t, imageDigest=good)

    def test_warnings(self):
        t = self.template(name="warnings")
        answer = self.revision(t, persistenceMode="SNAPSHOT")
        self.assertIn("hardLifetimeSeconds", answer.json["warnings"][0])
        answer = self.revision(t, idleTimeoutSeconds=3600, hardLifetimeSeconds=3600)
        self.assertIn("idleTimeoutSeconds", answer.json["warnings"][0])
        pool = {"desired": 0, "min": 0, "max": 1}
        answer = self.revision(t, warmPool={**pool, "regions": ["test-1", "elsewhere"]})
        self.assertEqual(len(answer.json["warnings"]), 1)
        self.assertIn("elsewhere", answer.json["warnings"][0])

    def test_a_pools_regions_are_names(self):
        t = self.template(name="pool regions")
        for regions in ([""], ["a,b"], ["Test-1"], ["test-1", "test-1"], ["x" * 64]):
            answer = self.revision(t, 400, warmPool={"desired": 0, "min": 0, "max": 1, "regions": regions})
            self.assertEqual(answer.json["data"]["field"], f"warmPool.regions[{len(regions) - 1}]", regions)

    def test_numbers_under_concurrency_have_no_gap(self):
        """Two revisions made at once get two numbers; none is lost, none repeats (contract 2)."""
        t = self.template(name="numbers")
        numbers = [a.json["revision"]["revision"] for a in in_parallel(24, lambda i: self.revision(t))]
        self.assertEqual(sorted(numbers), list(range(1, 25)))
        self.assertEqual(self.get(t["templateId"])["template"]["currentRevisionNumber"], 24)

    def test_a_revision_never_changes_not_even_by_sql(self):
        t = self.template(name="immutable")
        r = self.revision(t).json["revision"]
        for sql in (f"UPDATE sandboxd.revisions SET image_digest = 'x' WHERE revision_id = '{r['revisionId']}'",
                    f"DELETE FROM sandboxd.revisions WHERE revision_id = '{r['revisionId']}'"):
            with self.assertRaises(subprocess.CalledProcessError):
                self.stack.pg.psql(sql)
        self.assertEqual(self.get(t["templateId"])["currentRevision"], r)

    def test_roles_of_the_operations(self):
        _, token = self.stack.member(self.tenant.account, ["member"])
        self.tenant.client.token, mine = token, self.tenant.client.token
        try:
            self.tenant.call("GET", f"/sandbox-templates?accountId={self.tenant.account}", status=200)
            self.assertEqual(self.save(403, name="x").code, "ROLE_FORBIDDEN")
        finally:
            self.tenant.client.token = mine


class Limits(SystemTest):
    """[limits] account_templates, template_revisions, account_volumes."""

    stack_options = {"regions": 0, "sandboxd": {"limits.account_templates": 2, "limits.template_revisions": 3,
                                                "limits.account_volumes": 2}}

    def refused(self, answer, name, limit):
        self.assertEqual((answer.status, answer.code), (409, "LIMIT_REACHED"))
        self.assertEqual(answer.json["data"], {"limitName": name, "limit": limit, "retryable": False})
        self.assertIn("[limits] " + name, answer.json["error"])

    def test_each_names_itself(self):
        self.stack.admin("POST", "/region/create", {"name": "test-1", "socket": "/nowhere.sock"})
        tenant = self.stack.tenant(region="test-1", template=False)
        self.stack.backend_dir(tenant)

        def call(path, status, **body):
            return tenant.call("POST", path, {"accountId": tenant.account, **body}, status)

        ids = [call("/sandbox-template/save", 201, name="t", deprecated=i == 0).json["template"]["templateId"] for i in range(2)]
        self.refused(call("/sandbox-template/save", 409, name="one more"), "account_templates", 2)
        call("/sandbox-template/save", 200, templateId=ids[0], name="an update is no new one")
        for _ in range(3):
            call("/sandbox-template/revision", 201, templateId=ids[1], imageDigest=DIGEST)
        self.refused(call("/sandbox-template/revision", 409, templateId=ids[1], imageDigest=DIGEST), "template_revisions", 3)
        call("/sandbox-template/revision", 201, templateId=ids[0], imageDigest=DIGEST)
        for i in range(2):
            call("/shared-volume/create", 201, region="test-1", volumeName=f"v{i}", sizeMb=1)
        self.refused(call("/shared-volume/create", 409, region="test-1", volumeName="one-more", sizeMb=1), "account_volumes", 2)
        # Nobody else is held up.
        other = self.stack.tenant(region="test-1", template=False)
        other.call("POST", "/sandbox-template/save", {"accountId": other.account, "name": "t"}, 201)


if __name__ == "__main__":
    main()
