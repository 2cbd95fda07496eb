"""/metrics of both daemons, and what config/monitoring makes of them: names that exist, rules that are
right, an explanation for each alert."""

import json
import os
import re
import subprocess
import tempfile

from harness import SOURCE, Client, SystemTest, main

MONITORING = os.path.join(SOURCE, "config/monitoring")
OUR_METRIC = re.compile(r"\b(?:sandboxd|sandbox_region|http)_[a-z_]+")


def promtool(*words):
    done = subprocess.run(["promtool", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    return done.returncode, done.stdout


class Monitoring(SystemTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        tenant = cls.stack.tenant()
        box = tenant.ready()
        tenant.execute(box, ["true"])
        tenant.terminate(box)
        cls.texts = {"sandboxd": Client(unix=cls.stack.plane.admin_socket).get("/metrics").text(),
                     "region": cls.stack.region.client().get("/metrics").text()}
        cls.names = set()
        for text in cls.texts.values():
            for name, kind in re.findall(r"(?m)^# TYPE (\S+) (\S+)$", text):
                cls.names |= {name} if kind != "histogram" else {name + s for s in ("_bucket", "_sum", "_count")}
        with open(os.path.join(MONITORING, "alerts.yml")) as f:
            cls.alerts = f.read()
        with open(os.path.join(MONITORING, "grafana-dashboard.json")) as f:
            cls.dashboard = json.load(f)
        cls.queries = [t["expr"] for p in cls.dashboard["panels"] for t in p.get("targets", [])]

    def value(self, text, series):
        found = re.search(r"(?m)^" + re.escape(series) + r" (\S+)$", text)
        self.assertTrue(found, f"{series} is not there:\n{text[:3000]}")
        return float(found.group(1))

    def test_the_texts_are_well_formed(self):
        for text in self.texts.values():
            done = subprocess.run(["promtool", "check", "metrics"], input=text, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_they_count_what_happened(self):
        text = self.texts["sandboxd"]
        self.assertEqual(self.value(text, 'http_requests_total{listener="public",route="sandbox_create",status="201"}'), 1)
        self.assertEqual(self.value(text, 'sandboxd_transitions_total{status="TERMINATED"}'), 1)
        self.assertEqual(self.value(text, 'sandboxd_sandbox_ready_seconds_count{kind="cold"}'), 1)
        self.assertEqual(self.value(text, 'sandboxd_sandboxes{status="READY"}'), 0)
        self.assertEqual(self.value(text, "sandboxd_database_up"), 1)
        self.assertEqual(self.value(self.texts["region"], "sandbox_region_sandboxes"), 0)
        self.assertEqual(self.value(self.texts["region"], "sandbox_region_ready_seconds_count"), 1)

    def test_never_on_the_public_listener(self):
        self.assertEqual(Client(self.stack.plane.url).get("/metrics").status, 404)

    def test_rules_are_right_and_their_metrics_exist(self):
        self.assertEqual(promtool("check", "rules", os.path.join(MONITORING, "alerts.yml"))[0], 0)
        code, said = promtool("check", "config", "--syntax-only", os.path.join(MONITORING, "prometheus.yml"))
        self.assertEqual(code, 0, said)
        code, said = promtool("test", "rules", os.path.join(SOURCE, "tests/ops/alerts_test.yml"))
        self.assertEqual(code, 0, said)
        used = set(OUR_METRIC.findall(" ".join(re.findall(r"(?m)^ +expr: (.*)$", self.alerts))))
        self.assertGreater(len(used), 10)
        self.assertEqual(used - self.names, set())

    def test_dashboard_queries_are_right_and_their_metrics_exist(self):
        self.assertGreater(len(self.queries), 30)
        rules = {"groups": [{"name": "q", "rules": [{"record": f"q{i}", "expr": q} for i, q in enumerate(self.queries)]}]}
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as f:
            json.dump(rules, f)  # JSON is YAML
            f.flush()
            code, said = promtool("check", "rules", f.name)
        self.assertEqual(code, 0, said)
        used = set(OUR_METRIC.findall(" ".join(self.queries)))
        self.assertEqual(used - self.names, set())
        ids = [p["id"] for p in self.dashboard["panels"]]
        self.assertEqual(len(ids), len(set(ids)))

    def test_each_alert_is_explained(self):
        with open(os.path.join(SOURCE, "docs/operations.md")) as f:
            page = f.read()
        for name in re.findall(r"(?m)^ +- alert: (\w+)$", self.alerts):
            self.assertIn(f"| {name} |", page)


if __name__ == "__main__":
    main()
