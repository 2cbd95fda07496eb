"""/metrics of both daemons, and what config/monitoring makes of them: names that exist, rules that are
right, an explanation for each alert."""

import json
import os
import re
import subprocess
import tempfile
import threading

from harness import SOURCE, Client, SystemTest, main, wait_for

MONITORING = os.path.join(SOURCE, "config/monitoring")
OUR_METRIC = re.compile(r"\b(?:sandboxd|sandbox_region|http)_[a-z_]+")


def promtool(*words):
    done = subprocess.run(["promtool", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    return done.returncode, done.stdout


# What an operator has to see, and on which daemon (issue "Made to be run").
FAMILIES = {
    "sandboxd": {
        "requests by route and code": ["http_requests_total", "http_request_seconds_bucket"],
        "what waits": ["http_connections", "http_requests_under_way", "http_queue_depth", "http_requests_deferred",
                       "sandboxd_executions_waiting", "sandboxd_waiters", "sandboxd_region_actions"],
        "bytes in memory": ["http_body_bytes", "sandboxd_output_bytes"],
        "statuses": ["sandboxd_sandboxes", "sandboxd_transitions_total", "sandboxd_status_seconds_bucket",
                     "sandboxd_sandbox_ready_seconds_bucket", "sandboxd_sandbox_life_seconds_bucket"],
        "the reconciler": ["sandboxd_due_rows", "sandboxd_reconcile_lag_seconds", "sandboxd_moves_total", "sandboxd_claims_total"],
        "pools and executions": ["sandboxd_warm_members", "sandboxd_executions"],
        "what went wrong": ["sandboxd_strays_total", "sandboxd_sandboxes_lost_total", "sandboxd_moves_lost_total"],
        "others": ["sandboxd_database_up", "sandboxd_instances", "sandboxd_region_calls_total",
                   "sandboxd_region_call_seconds_bucket", "sandboxd_token_cache_entries"],
    },
    "region": {
        "requests by route and code": ["http_requests_total", "http_request_seconds_bucket", "http_queue_depth"],
        "sandboxes": ["sandbox_region_sandboxes", "sandbox_region_warm", "sandbox_region_operations_total",
                      "sandbox_region_ready_seconds_bucket", "sandbox_region_delete_seconds_bucket"],
        "executions": ["sandbox_region_executions", "sandbox_region_executions_total", "sandbox_region_output_bytes"],
        "denied egress": ["sandbox_region_denied_egress_total"],
        "live directories": ["sandbox_region_mounts_dead", "sandbox_region_mounts_lost_total", "sandbox_region_mounts_mended_total"],
        "what went wrong": ["sandbox_region_strays_total", "sandbox_region_lost_total", "sandbox_region_adopted_total"],
    },
}


class Monitoring(SystemTest):
    stack_options = {"sandboxd": {"sandboxes.warm_total_max": 1}}

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

    def test_each_family_is_on_its_daemon(self):
        for daemon, groups in FAMILIES.items():
            for group, names in groups.items():
                for name in names:
                    with self.subTest(daemon=daemon, group=group, name=name):
                        self.assertRegex(self.texts[daemon], rf"(?m)^{name}[{{ ]")

    def now(self, daemon, series):
        client = Client(unix=self.stack.plane.admin_socket) if daemon == "sandboxd" else self.stack.region.client()
        found = re.search(r"(?m)^" + re.escape(series) + r" (\S+)$", client.get("/metrics").text())
        return float(found.group(1)) if found else 0.0

    def becomes(self, daemon, series, value):
        wait_for(f"{series} is {value}", lambda: self.now(daemon, series) == value, 15)

    def test_gauges_and_counters_move(self):
        denied = self.now("region", "sandbox_region_denied_egress_total")
        moves = self.now("sandboxd", 'sandboxd_status_seconds_count{status="ALLOCATING"}')
        tenant = self.stack.tenant()
        box = tenant.ready()
        self.becomes("sandboxd", 'sandboxd_sandboxes{status="READY"}', 1)
        self.assertEqual(self.now("region", "sandbox_region_sandboxes"), 1)
        self.becomes("sandboxd", 'sandboxd_status_seconds_count{status="ALLOCATING"}', moves + 1)
        command = threading.Thread(target=tenant.execute, args=(box, ["sh", "-c", "nc -w 1 169.254.169.254 80; sleep 3"]))
        command.start()
        self.becomes("sandboxd", "sandboxd_executions", 1)
        self.becomes("region", "sandbox_region_executions", 1)
        self.assertEqual(self.now("sandboxd", 'sandboxd_sandboxes{status="BUSY"}'), 1)
        command.join()
        self.becomes("region", "sandbox_region_executions", 0)
        self.assertGreater(self.now("region", "sandbox_region_denied_egress_total"), denied)
        tenant.terminate(box)
        self.becomes("region", "sandbox_region_sandboxes", 0)
        # What an ended sandbox was denied is still counted.
        self.assertGreater(self.now("region", "sandbox_region_denied_egress_total"), denied)
        template = tenant.add_template(warmPool={"desired": 1, "min": 1, "max": 1, "regions": [tenant.region]})
        self.becomes("sandboxd", 'sandboxd_warm_members{state="ready"}', 1)
        self.becomes("region", "sandbox_region_warm", 1)
        tenant.call("POST", "/sandbox-template/save", {"accountId": tenant.account, "templateId": template, "name": "t",
                                                       "enabled": False}, 200)
        self.becomes("region", "sandbox_region_warm", 0)

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
