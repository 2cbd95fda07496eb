"""What network rules cost: time of a deploy with and without them, and the proxy's throughput beside a
direct transfer on the same path.  Run by hand on a quiet machine, as root:

    SANDBOXD_BUILD=build python3 tests/bench/egress.py [ROUNDS] [MEGABYTES]
"""

import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "system"))

from test_egress import EgressTest  # noqa: E402

KINDS = {
    "default": None,
    "address, 1 entry": {"enabled": True, "addressAllowlist": ["203.0.113.9"]},
    "address, 500 entries": {"enabled": True, "addressAllowlist": [f"198.51.{i // 250}.{i % 250}" for i in range(500)]},
    "domain, 20 names": {"domainAllowlist": [f"name{i}.example" for i in range(20)]},
    "combined": {"enabled": True, "addressAllowlist": ["203.0.113.9"], "domainAllowlist": ["good.example"]},
}


def deploys(rounds):
    times = {kind: [] for kind in KINDS}
    for n in range(rounds + 1):
        for kind, rules in KINDS.items():
            time.sleep(0.6)  # the reserve is filled up again, as between two creates of a quiet region
            began = time.monotonic()
            box = EgressTest.deploy(network=rules)
            took = time.monotonic() - began
            EgressTest.delete(box)
            if n > 0:  # the first of each kind starts what all share
                times[kind].append(took * 1000)
    base = statistics.median(times["default"])
    for kind, list_ in times.items():
        median = statistics.median(list_)
        print(f"deploy, {kind}: {median:.0f} ms ({median - base:+.0f} ms to default)")


def throughput(megabytes):
    box = EgressTest.deploy(network=KINDS["combined"], resources={"cpuMillis": 4000, "memoryMb": 512, "diskMb": 128})
    rates = {"direct": [], "proxy": []}
    for _ in range(5):
        for how, list_ in rates.items():
            answer = EgressTest.execute(box, ["probe", "pull", how, "203.0.113.9", str(megabytes << 20)], timeoutSeconds=120)
            assert answer["exitCode"] == 0, answer
            list_.append(megabytes * 1000 / max(int(answer["stdout"]), 1))
    EgressTest.delete(box)
    direct, proxy = (statistics.median(rates[how]) for how in ("direct", "proxy"))
    print(f"transfer of {megabytes} MB from inside gVisor: direct {direct:.0f} MB/s, proxy (CONNECT) {proxy:.0f} MB/s "
          f"({proxy / direct:.2f} of it)")


def main():
    EgressTest.setUpClass()
    try:
        if len(sys.argv) < 2 or int(sys.argv[1]) > 0:
            deploys(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
        throughput(int(sys.argv[2]) if len(sys.argv) > 2 else 64)
    finally:
        EgressTest.tearDownClass()
        EgressTest.doClassCleanups()


if __name__ == "__main__":
    main()
