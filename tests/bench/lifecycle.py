#!/usr/bin/python3
"""The figures of the lifecycle, with the region's fake driver (the real gateway, agent channel and
protocol; no runtime), so that what is measured is ours:

    SANDBOXD_BUILD=build-release python3 -B tests/bench/lifecycle.py [warm] [burst] [rate] [executions] [idle]

    warm        create on a warm pool to READY: p50, p99 by the database's clock (aim: p50 < 20 ms, p99 < 100)
    burst       100 creates at once: all 201, all READY
    rate        creates of ACCOUNTS (1) accounts driven to READY, a second (aim: 400, then 1,000); needs wrk
    executions  memory of the control plane with EXECUTIONS (10,000) commands under way
    idle        CPU of the control plane with no sandbox, and with 100 idle ones
"""

import json
import os
import resource
import selectors
import socket
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "system"))

from harness import PUBLIC, Stack, in_parallel, wait_for  # noqa: E402

EXECUTIONS = int(os.environ.get("EXECUTIONS", "10000"))
ACCOUNTS = int(os.environ.get("ACCOUNTS", "1"))
IMAGE = "repo/image@sha256:" + "0" * 64
QUIET = {"log.access": False, "log.level": "error", "listen.connections_max": 20000, "sandboxes.warm_total_max": 100}


def stack_of(sandboxd=None, region=None):
    stack = Stack(driver="fake", sandboxd={**QUIET, **(sandboxd or {})},
                  region={"log.level": "error", **(region or {})})
    return stack.start()


def tenant_of(stack, **revision):
    tenant = stack.tenant(quota=1000000, template=False)
    tenant.template = tenant.add_template(IMAGE, **revision)
    return tenant


def status_kb(pid, name):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith(name + ":"))


def cpu_s(pid):
    with open(f"/proc/{pid}/stat") as f:
        words = f.read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def ready_ms(stack, condition="true"):
    return sorted(float(r[0]) for r in stack.pg.psql(
        "SELECT extract(epoch FROM ready_at - created_at) * 1000 FROM sandboxd.sandboxes "
        f"WHERE ready_at IS NOT NULL AND {condition}"))


def quantiles(values):
    return f"p50 {statistics.median(values):.1f} ms, p99 {values[min(len(values) - 1, len(values) * 99 // 100)]:.1f} ms"


def warm():
    stack = stack_of()
    try:
        tenant = tenant_of(stack, warmPool={"desired": 20, "min": 10, "max": 20, "regions": ["test-1"]})
        for _ in range(20):
            wait_for("a full pool", lambda: stack.pg.psql(
                "SELECT count(*) FROM sandboxd.warm_members WHERE status = 'READY'")[0][0] == "20", 60)
            for _ in range(10):
                tenant.ready()
        warm_ones, cold = ready_ms(stack, "is_warm"), ready_ms(stack, "NOT is_warm")
        print(f"warm create to READY: {len(warm_ones)} of {len(warm_ones) + len(cold)} warm, {quantiles(warm_ones)}")
    finally:
        stack.stop(rough=True)


def burst():
    stack = stack_of()
    try:
        tenant = tenant_of(stack)
        began = time.monotonic()
        answers = in_parallel(100, lambda i: tenant.create(status=None).status)
        took = time.monotonic() - began
        assert answers == [201] * 100, answers
        wait_for("all are READY", lambda: len(ready_ms(stack)) == 100, 60)
        print(f"burst: 100 creates at once, all 201 in {took * 1000:.0f} ms, all READY: {quantiles(ready_ms(stack))}")
    finally:
        stack.stop(rough=True)


def rate():
    from http_figures import create_script

    stack = stack_of()
    try:
        scripts = []
        for _ in range(ACCOUNTS):
            tenant = tenant_of(stack)
            tenant.ready()
            scripts.append(create_script(stack, tenant))
        seconds = 8
        loads = [subprocess.Popen(["wrk", "-t1", f"-c{max(1, 16 // ACCOUNTS)}", f"-d{seconds}s", "-s", script,
                                   stack.plane.url + PUBLIC + "/sandbox/create"], stdout=subprocess.DEVNULL)
                 for script in scripts]
        assert [load.wait() for load in loads] == [0] * ACCOUNTS
        def settled():
            return stack.pg.psql("SELECT count(*) FROM sandboxd.sandboxes WHERE ready_at IS NULL")[0][0] == "0"
        wait_for("every one is READY", settled, 300)
        row = stack.pg.psql("SELECT count(*), extract(epoch FROM max(ready_at) - min(created_at)) FROM sandboxd.sandboxes "
                            "WHERE owner_id = 'bench'")[0]
        made, took = int(row[0]), float(row[1])
        lost = stack.pg.psql("SELECT count(*) FROM sandboxd.sandboxes WHERE status NOT IN ('READY')")[0][0]
        print(f"rate, {ACCOUNTS} account(s): {made} creates driven to READY in {took:.1f} s: {made / took:.0f} a second, not READY: {lost}")
    finally:
        stack.stop(rough=True)


def executions():
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    stack = stack_of({"work.output_budget_mb": 64, "listen.connections_per_ip": 0})
    sockets = []
    try:
        tenant = tenant_of(stack)
        boxes = [tenant.ready()["sandboxId"] for _ in range(100)]  # 128 at most in one
        pid = stack.plane.pid
        before = status_kb(pid, "VmRSS")
        host, port = stack.plane.url.split("//")[1].split(":")
        for i in range(EXECUTIONS):
            body = json.dumps({"accountId": tenant.account, "sandboxId": boxes[i % len(boxes)],
                               "command": ["sleep", "120"], "timeoutSeconds": 300}).encode()
            s = socket.create_connection((host, int(port)))
            s.sendall(f"POST {PUBLIC}/sandbox/execute HTTP/1.1\r\nHost: x\r\nAuthorization: {tenant.token}\r\n"
                      f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            sockets.append(s)
            if i % 500 == 499:
                wait_for("they are under way", lambda n=i: int(stack.pg.psql(
                    "SELECT count(*) FROM sandboxd.executions")[0][0]) > n - 400, 60)
        under_way = 0
        for _ in range(50):
            under_way = int(stack.pg.psql("SELECT count(*) FROM sandboxd.executions")[0][0])
            if under_way == EXECUTIONS:
                break
            time.sleep(0.2)
        refused = selectors.DefaultSelector()
        for s in sockets:
            refused.register(s, selectors.EVENT_READ)
        early = len(refused.select(0))
        after = status_kb(pid, "VmRSS")
        print(f"executions: {under_way} under way ({early} answered early); control plane RSS {before // 1024} MB before, "
              f"{after // 1024} MB with them, {(after - before) / max(1, under_way):.1f} KB each; output budget 64 MB")
    finally:
        for s in sockets:
            s.close()
        stack.stop(rough=True)


def idle():
    stack = stack_of()
    try:
        tenant = tenant_of(stack)
        figures = []
        for count in (0, 100):
            for _ in range(count):
                tenant.create()
            wait_for("all are READY", lambda n=count: len(ready_ms(stack)) == n, 60)
            time.sleep(3)
            began, cpu = time.monotonic(), cpu_s(stack.plane.pid)
            time.sleep(20)
            figures.append(100 * (cpu_s(stack.plane.pid) - cpu) / (time.monotonic() - began))
        print(f"idle: control plane {figures[0]:.2f} % of a core with no sandbox, {figures[1]:.2f} % with 100 idle ones; "
              f"RSS {status_kb(stack.plane.pid, 'VmRSS') // 1024} MB")
    finally:
        stack.stop(rough=True)


PARTS = {"warm": warm, "burst": burst, "rate": rate, "executions": executions, "idle": idle}

if __name__ == "__main__":
    names, sys.argv[1:] = sys.argv[1:] or list(PARTS), []  # http_figures reads its own words
    for name in names:
        PARTS[name]()
