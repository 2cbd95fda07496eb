"""What a sandbox may reach: a table of attempts (mode, attempt, destination, result) made from inside
real gVisor sandboxes, against namespaces that play the host and the outside world.  Cases 40 and its
kind; the outside's own list of what arrived is the second witness."""
# ctest: timeout 300
# ctest: lock egress

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import harness
from harness import main, program, wait_for
from region_rig import RegionTest, new_id

HOST, OUTSIDE = f"sbxt{os.getpid()}h", f"sbxt{os.getpid()}o"

OUTSIDE_ADDRESSES = (
    "203.0.113.8/24", "203.0.113.9/24", "203.0.113.10/24", "203.0.113.53/24", "203.0.113.200/24",
    "198.51.100.7/32", "10.99.0.1/32", "172.16.5.5/32", "192.168.7.7/32", "100.64.9.9/32", "169.254.169.254/32",
    "168.63.129.16/32", "198.18.0.5/32", "192.0.0.192/32",
    "2001:db8:1::8/64", "2001:db8:1::9/64", "fd77::7/128", "fd00:ec2::254/128", "64:ff9b::a63:1/128",
    "2002:a63:1::1/128", "2001:0:a63:1::1/128",
)
NAMES = {
    "good.example": ["203.0.113.8"],
    "www.good.example": ["203.0.113.8"],
    "evilgood.example": ["203.0.113.10"],
    "good.example.evil.example": ["203.0.113.10"],
    "wild.example": ["203.0.113.9"],
    "a.wild.example": ["203.0.113.9"],
    "a.b.wild.example": ["203.0.113.9"],
    "xwild.example": ["203.0.113.10"],
    "other.example": ["203.0.113.10"],
    "xn--bcher-kva.example": ["203.0.113.8"],
    "inside.example": ["10.99.0.1"],
    "meta.example": ["169.254.169.254"],
    "azure.example": ["168.63.129.16"],
    "control.example": ["203.0.113.200"],
    "mixed.example": ["10.99.0.1", "203.0.113.8"],
    "nat64.example": ["64:ff9b::a63:1"],
    "unique6.example": ["fd77::7"],
    "six.example": ["2001:db8:1::8"],
    "loop.example": ["127.0.0.1"],
    "rebind.example": [["203.0.113.8"], ["169.254.169.254"]],
}

MODES = {
    "default": None,
    "address": {"enabled": True, "addressAllowlist": ["203.0.113.8", "198.51.100.0/24", "2001:db8:1::8"]},
    "wide": {"enabled": True, "addressAllowlist": ["0.0.0.0/0", "::/0"]},
    "domain": {"enabled": False, "domainAllowlist": [
        "good.example", "*.wild.example", "B\u00fccher.example", "inside.example", "meta.example", "azure.example",
        "control.example", "mixed.example", "nat64.example", "unique6.example", "six.example", "loop.example",
        "rebind.example"]},
    "combined": {"enabled": True, "addressAllowlist": ["203.0.113.9"], "domainAllowlist": ["good.example"]},
}

OPEN, SHUT = "open", "shut"

# The host's own addresses, the gateway's, and what is inside any sandbox's network.
HOST_ADDRESS, HOST_ADDRESS6 = "203.0.113.1", "2001:db8:1::1"
INFRASTRUCTURE = (
    ("tcp", "10.99.0.1 443"), ("tcp", "172.16.5.5 443"), ("tcp", "192.168.7.7 443"), ("tcp", "100.64.9.9 443"),
    ("tcp", "169.254.169.254 80"), ("tcp", "168.63.129.16 80"), ("tcp", "198.18.0.5 443"), ("tcp", "192.0.0.192 80"),
    ("tcp", "203.0.113.200 443"), ("tcp", HOST_ADDRESS + " 22"), ("tcp", "10.213.0.1 22"), ("tcp", "10.213.0.1 3128"),
    ("tcp", "fd77::7 443"), ("tcp", "fd00:ec2::254 80"), ("tcp", "64:ff9b::a63:1 443"), ("tcp", "2002:a63:1::1 443"),
    ("tcp", "2001:0:a63:1::1 443"), ("tcp", HOST_ADDRESS6 + " 22"), ("udp", "10.99.0.1 9999"),
    ("udp", "169.254.169.254 9999"), ("tcp", "NEIGHBOUR 22"), ("udp", "NEIGHBOUR 9999"),
)

TABLE = (
    # Default: out to everywhere, names through the resolver; no infrastructure.
    ("default", "tcp", "203.0.113.8 443", OPEN),
    ("default", "tcp", "203.0.113.9 8080", OPEN),
    ("default", "tcp", "198.51.100.7 22", OPEN),
    ("default", "tcp", "2001:db8:1::8 443", OPEN),
    ("default", "udp", "203.0.113.8 9999", OPEN),
    ("default", "dns", "good.example 10.213.0.1", OPEN),
    ("default", "dns", "GOOD.example. 10.213.0.1", OPEN),
    ("default", "dns", "good.example 203.0.113.53", OPEN),
    ("default", "dns", "inside.example 10.213.0.1", SHUT),
    ("default", "dns", "meta.example 10.213.0.1", SHUT),
    ("default", "dns", "control.example 10.213.0.1", SHUT),
    ("default", "dns", "unique6.example 10.213.0.1", SHUT),
    ("default", "dns", "nowhere.example 10.213.0.1", SHUT),
    ("default", "get", "good.example", OPEN),
    ("default", "get", "meta.example", SHUT),
    ("default", "get", "good.example/?to=http://169.254.169.254/", SHUT),
    ("default", "proxy", "good.example:443", SHUT),  # there is none
    *(("default", how, to, SHUT) for how, to in INFRASTRUCTURE),

    # Addresses only.
    ("address", "tcp", "203.0.113.8 443", OPEN),
    ("address", "tcp", "203.0.113.8 22", OPEN),
    ("address", "tcp", "198.51.100.7 443", OPEN),
    ("address", "tcp", "2001:db8:1::8 443", OPEN),
    ("address", "tcp", "203.0.113.9 443", SHUT),
    ("address", "tcp", "203.0.113.53 53", SHUT),
    ("address", "tcp", "2001:db8:1::9 443", SHUT),
    ("address", "udp", "203.0.113.9 9999", SHUT),
    ("address", "ping", "203.0.113.9", SHUT),
    ("address", "dns", "good.example 10.213.0.1", SHUT),
    ("address", "dns", "good.example 203.0.113.53", SHUT),
    ("address", "get", "good.example", SHUT),
    ("address", "get", "203.0.113.8/?to=http://203.0.113.9/", SHUT),
    ("address", "proxy", "good.example:443", SHUT),
    *(("address", how, to, SHUT) for how, to in INFRASTRUCTURE),

    # Everything is allowed, and infrastructure is still not.
    ("wide", "tcp", "203.0.113.9 443", OPEN),
    ("wide", "tcp", "2001:db8:1::9 443", OPEN),
    ("wide", "dns", "good.example 10.213.0.1", SHUT),
    *(("wide", how, to, SHUT) for how, to in INFRASTRUCTURE),

    # Domains only: no network at all but the proxy.
    ("domain", "proxy", "good.example:443", OPEN),
    ("domain", "proxy", "GOOD.Example:443", OPEN),
    ("domain", "proxy", "good.example.:443", OPEN),
    ("domain", "proxy", "good.example:80", OPEN),
    ("domain", "proxy", "a.wild.example:443", OPEN),
    ("domain", "proxy", "A.B.Wild.example:443", OPEN),
    ("domain", "proxy", "xn--bcher-kva.example:443", OPEN),
    ("domain", "proxy", "six.example:443", OPEN),
    ("domain", "proxy", "mixed.example:443", OPEN),  # by the address that is left of its answer
    ("domain", "proxyget", "http://good.example/", OPEN),
    ("domain", "proxyget", "http://GOOD.example:80/x", OPEN),
    ("domain", "wget", "http://good.example/", OPEN),
    ("domain", "proxy", "good.example:22", SHUT),
    ("domain", "proxy", "good.example:8080", SHUT),
    ("domain", "proxy", "www.good.example:443", SHUT),
    ("domain", "proxy", "wild.example:443", SHUT),
    ("domain", "proxy", "xwild.example:443", SHUT),
    ("domain", "proxy", "evilgood.example:443", SHUT),
    ("domain", "proxy", "good.example.evil.example:443", SHUT),
    ("domain", "proxy", "good.example%00.evil.example:443", SHUT),
    ("domain", "proxy", "good.example@203.0.113.10:443", SHUT),
    ("domain", "proxy", "other.example:443", SHUT),
    ("domain", "proxy", "203.0.113.8:443", SHUT),  # a bare address, with an allowed Host beside it
    ("domain", "proxy", "3405803784:443", SHUT),   # 203.0.113.8 in decimal
    ("domain", "proxy", "0313.0.0161.010:443", SHUT),
    ("domain", "proxy", "0xcb007108:443", SHUT),
    ("domain", "proxy", "[2001:db8:1::8]:443", SHUT),
    ("domain", "proxy", "[::ffff:203.0.113.8]:443", SHUT),
    ("domain", "proxy", "169.254.169.254:80", SHUT),
    ("domain", "proxy", "localhost:443", SHUT),
    ("domain", "proxy", "inside.example:443", SHUT),
    ("domain", "proxy", "meta.example:80", SHUT),
    ("domain", "proxy", "azure.example:80", SHUT),
    ("domain", "proxy", "control.example:443", SHUT),
    ("domain", "proxy", "loop.example:443", SHUT),
    ("domain", "proxy", "nat64.example:443", SHUT),
    ("domain", "proxy", "unique6.example:443", SHUT),
    ("domain", "proxyget", "http://other.example/", SHUT),
    ("domain", "proxyget", "http://good.example:3128/", SHUT),
    ("domain", "proxyget", "http://169.254.169.254/", SHUT),
    ("domain", "proxyget", "ftp://good.example/", SHUT),
    ("domain", "proxyget", "http://other.example/ Host: good.example", SHUT),
    ("domain", "wget", "http://good.example/?to=http://other.example/", SHUT),
    ("domain", "wget", "http://good.example/?to=http://169.254.169.254/", SHUT),
    ("domain", "wget", "http://good.example/?to=http://meta.example/", SHUT),
    ("domain", "tcp", "203.0.113.8 443", SHUT),
    ("domain", "tcp", "2001:db8:1::8 443", SHUT),
    ("domain", "udp", "203.0.113.8 9999", SHUT),
    ("domain", "ping", "203.0.113.8", SHUT),
    ("domain", "dns", "good.example 203.0.113.53", SHUT),
    ("domain", "dns", "good.example 10.213.0.1", SHUT),

    # Both: the addresses by the link, the domains by the proxy.
    ("combined", "tcp", "203.0.113.9 443", OPEN),
    ("combined", "tcp", "203.0.113.8 443", SHUT),
    ("combined", "proxy", "good.example:443", OPEN),
    ("combined", "proxy", "203.0.113.9:443", OPEN),
    ("combined", "proxyget", "http://203.0.113.9/", OPEN),
    ("combined", "proxy", "203.0.113.8:443", SHUT),
    ("combined", "proxy", "[::ffff:203.0.113.9]:443", OPEN),  # the same address, told in IPv6
    ("combined", "proxy", "other.example:443", SHUT),
    ("combined", "dns", "good.example 203.0.113.53", SHUT),
    ("combined", "udp", "203.0.113.8 9999", SHUT),
    *(("combined", how, to, SHUT) for how, to in INFRASTRUCTURE[:6]),
)

class World:
    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="sbxworld-")
        self.names = os.path.join(self.dir, "names")
        self.hits_file = os.path.join(self.dir, "hits")
        self.process = None
        self.set_names(NAMES)

    def set_names(self, names):
        with open(self.names + ".next", "w") as f:
            json.dump(names, f)
        os.rename(self.names + ".next", self.names)

    def start(self):
        def ip(*words, ns=None):
            subprocess.run(["ip", *(["-n", ns] if ns else []), *words], check=True)

        def sysctl(ns, *words):
            subprocess.run(["nsenter", f"--net=/run/netns/{ns}", "sysctl", "-qw", *words], check=True)

        for ns in (HOST, OUTSIDE):
            ip("netns", "add", ns)
            sysctl(ns, "net.ipv6.conf.default.accept_dad=0", "net.ipv4.ip_forward=0")
            ip("link", "set", "lo", "up", ns=ns)
        ip("link", "add", "wan0", "netns", HOST, "type", "veth", "peer", "name", "eth0", "netns", OUTSIDE)
        ip("link", "set", "eth0", "up", ns=OUTSIDE)
        ip("link", "set", "wan0", "up", ns=HOST)
        ip("addr", "add", f"{HOST_ADDRESS}/24", "dev", "wan0", ns=HOST)
        ip("addr", "add", f"{HOST_ADDRESS6}/64", "dev", "wan0", "nodad", ns=HOST)
        for address in OUTSIDE_ADDRESSES:
            ip("addr", "add", address, "dev", "eth0", *(["nodad"] if ":" in address else []), ns=OUTSIDE)
        ip("route", "add", "default", "via", "203.0.113.8", ns=HOST)
        ip("-6", "route", "add", "default", "via", "2001:db8:1::8", ns=HOST)
        self.process = subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{OUTSIDE}", sys.executable, "-B",
             os.path.join(os.path.dirname(os.path.abspath(__file__)), "egress_world.py"), self.names, self.hits_file,
             "22", "80", "443", "3128", "8080"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        assert self.process.stdout.readline() == b"ready\n"
        # The host listens too: nobody inside may notice.
        self.host = subprocess.Popen(["nsenter", f"--net=/run/netns/{HOST}", "busybox", "nc", "-lk", "-p", "22", "-e",
                                      "echo", "world"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def hits(self):
        with contextlib.suppress(FileNotFoundError), open(self.hits_file) as f:
            return [line.split() for line in f]
        return []

    def stop(self):
        for process in (self.process, getattr(self, "host", None)):
            if process:
                process.kill()
                process.wait()
        for ns in (HOST, OUTSIDE):
            subprocess.run(["ip", "netns", "del", ns], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(self.dir, ignore_errors=True)


class EgressTest(RegionTest):
    region_options = {"egress.upstream": "203.0.113.53", "egress.deny": "203.0.113.200",
                      "egress.pool6": "fd5b:1234:5678:9::/64", "agent.ready_timeout_s": 20}

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

    @classmethod
    def make_image(cls):
        return super().make_image(lambda rootfs: shutil.copy(program("egress_probe"), os.path.join(rootfs, "bin/probe")))

    def attempts(self, box, lines, timeout=120):
        """lines: as egress_probe.c reads them; gives "open" or "shut" for each."""
        table = "cat >/tmp/t <<'END'\n" + "\n".join(lines) + "\nEND\n"
        answer = self.execute(box, ["sh", "-c", table + "exec probe </tmp/t"], timeoutSeconds=timeout)
        got = dict(line.split() for line in answer["stdout"].splitlines())
        self.assertEqual(len(got), len(lines), answer)
        return [got[str(i + 1)] for i in range(len(lines))]

    def denied(self, box):
        events = self.must("GET", "/v1/egress/denied?sandboxId=" + box)["events"]
        return {(e["destination"], e.get("port", 0)): e["count"] for e in events}


class Table(EgressTest):
    def test_table(self):
        neighbour = self.deploy()
        boxes = {mode: self.deploy(network=rules) for mode, rules in MODES.items()}
        self.assertGreaterEqual(len(TABLE), 60)
        wrong = []
        for mode, box in boxes.items():
            rows = [row for row in TABLE if row[0] == mode]
            lines = [f"{how} {to.replace('NEIGHBOUR', '10.213.0.6')}" for _, how, to, _ in rows]
            for (_, how, to, want), got in zip(rows, self.attempts(box, lines)):
                if got != want:
                    wrong.append(f"{mode}: {how} {to}: {got}, not {want}")
        self.assertEqual(wrong, [])
        # Nothing of what is refused arrived anywhere.
        private = [a.split("/")[0] for a in OUTSIDE_ADDRESSES if not a.startswith(("203.0.113.", "198.51.100.", "2001:db8:"))]
        arrived = {hit[1] for hit in self.world.hits()}
        self.assertEqual(arrived & set(private + ["203.0.113.200"]), set())
        self.assertNotIn("203.0.113.10", {hit[1] for hit in self.world.hits()})
        self.denied_is_counted(boxes)
        for box in [neighbour, *boxes.values()]:
            self.delete(box)
            self.assert_gone(box)

    def denied_is_counted(self, boxes):
        address = self.denied(boxes["address"])
        self.assertEqual(address["203.0.113.9", 443], 1)
        self.assertGreaterEqual(address["203.0.113.53", 53], 1)
        domain = self.denied(boxes["domain"])
        self.assertEqual(domain["evilgood.example", 443], 1)
        self.assertEqual(domain["good.example", 22], 1)
        self.assertNotIn(("good.example", 443), domain)
        default = self.denied(boxes["default"])
        self.assertGreaterEqual(default["169.254.169.254", 80], 1)

    def test_a_changed_answer_is_judged_again(self):
        box = self.deploy(network={"enabled": False, "domainAllowlist": ["rebind.example"]})
        self.assertEqual(self.attempts(box, ["proxy rebind.example:80"]), ["open"])
        wait_for("the old answer is forgotten", lambda: self.attempts(box, ["proxy rebind.example:80"]) == ["shut"], 20)
        self.assertNotIn("169.254.169.254", {hit[1] for hit in self.world.hits()})
        self.delete(box)

    def test_refused_at_allocation(self):
        for rules, words in (
            ({"enabled": True, "addressAllowlist": ["203.0.113.8", "10.0.0.0/8"]}, "10.0.0.0/8 is in an infrastructure range"),
            ({"enabled": True, "addressAllowlist": ["169.254.169.254"]}, "link-local (cloud metadata)"),
            ({"enabled": True, "addressAllowlist": ["::ffff:10.0.0.1"]}, "private"),
            ({"enabled": True, "addressAllowlist": ["203.0.113.200"]}, "reserved by the operator"),
            ({"enabled": True, "addressAllowlist": ["2130706433"]}, "not an address or a range"),
            ({"enabled": True, "addressAllowlist": ["0177.0.0.1"]}, "not an address or a range"),
            ({"enabled": True, "addressAllowlist": ["203.0.113.8/24"]}, "past its prefix length"),
            ({"enabled": False, "domainAllowlist": ["good.example", "*"]}, "*"),
            ({"enabled": False, "domainAllowlist": ["203.0.113.8"]}, "not a host name"),
        ):
            box = new_id()
            answer = self.refused("INVALID_REQUEST", 400, self.deploy, box, network=rules)
            self.assertIn(words, answer.json["error"])
            self.assertIsNone(self.get(box))
            self.assert_gone(box)

    def test_rules_outlive_the_gateway(self):
        box = self.deploy(network={"enabled": True, "addressAllowlist": ["203.0.113.9"], "domainAllowlist": ["good.example"]})
        lines = ["tcp 203.0.113.9 443", "tcp 203.0.113.8 443", "proxy good.example:443", "proxy other.example:443",
                 "tcp 169.254.169.254 80"]
        want = ["open", "shut", "open", "shut", "shut"]
        self.assertEqual(self.attempts(box, lines), want)
        self.restart(kill=True)
        wait_for("the agent is back", lambda: (self.get(box) or {}).get("agent"), 20)
        self.assertEqual(self.attempts(box, lines), want)
        self.delete(box)
        self.assert_gone(box)


if __name__ == "__main__":
    main()
