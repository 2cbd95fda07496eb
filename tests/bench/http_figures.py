#!/usr/bin/python3
"""What HTTP costs: get and create through the real server with authentication, beside two yardsticks
with the same load generator in the same run (tests/bench/mhd_bare.c): bare libmicrohttpd with the
same bytes and no database, and the same queue with the same prepared statement.

    SANDBOXD_BUILD=build-release python3 -B tests/bench/http_figures.py [SECONDS [CONNECTIONS]]

Needs wrk and a release build with the target mhd_bare.  The rounds alternate, so that a slow minute
of the machine meets all of them; medians are reported.
"""

import json
import os
import re
import secrets
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "system"))

from harness import PUBLIC, Stack, clean_environment, program  # noqa: E402

SECONDS = int(sys.argv[1]) if len(sys.argv) > 1 else 4
CONNECTIONS = int(sys.argv[2]) if len(sys.argv) > 2 else 64
ROUNDS = 3


class Bare:
    """mhd_bare on a free port."""

    def __init__(self, stack, body, *words):
        path = os.path.join(stack.dir, "body-" + secrets.token_hex(4))
        with open(path, "wb") as f:
            f.write(body)
        self.process = subprocess.Popen([program("mhd_bare"), path, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env=clean_environment())
        self.url = f"http://127.0.0.1:{int(self.process.stdout.readline())}"

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)


def wrk(url, headers=(), script=None):
    words = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{SECONDS}s", "--latency"]
    for h in headers:
        words += ["-H", h]
    if script:
        words += ["-s", script]
    out = subprocess.run(words + [url], check=True, text=True, stdout=subprocess.PIPE).stdout
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
    if bad:
        raise SystemExit(f"{bad.group(1)} bad answers of {url}")
    return float(re.search(r"Requests/sec:\s+([\d.]+)", out).group(1)), re.search(r"99%\s+(\S+)", out).group(1)


def create_script(stack, tenant):
    """A wrk script that posts creates, each with a key of its own."""
    body = {"accountId": tenant.account, "appId": tenant.app, "templateId": tenant.template,
            "workloadProfile": "QUAVE_INTERACTIVE_AGENT", "ownerKind": "AGENT_CONVERSATION", "ownerId": "bench",
            "region": tenant.region, "idempotencyKey": "@KEY@"}
    path = os.path.join(stack.dir, f"create-{tenant.account}.lua")
    with open(path, "w") as f:
        f.write("local body = [[" + json.dumps(body) + "]]\n"
                "local n, seed = 0, '" + secrets.token_hex(8) + "'\n"
                "function request()\n  n = n + 1\n"
                "  return wrk.format('POST', nil, {['Authorization']='" + tenant.token + "',"
                "['Content-Type']='application/json'}, (body:gsub('@KEY@', seed .. n)))\nend\n")
    return path


def compare(name, runs):
    """runs: {label: function}; alternating rounds."""
    rates, tails = {k: [] for k in runs}, {}
    for _ in range(ROUNDS):
        for label, run in runs.items():
            rate, tails[label] = run()
            rates[label].append(rate)
    medians = {k: statistics.median(v) for k, v in rates.items()}
    print(f"{name}: {CONNECTIONS} connections, {SECONDS} s, median of {ROUNDS}")
    for label in runs:
        print(f"  {label:<34} {medians[label]:>9.0f} /s   99% {tails[label]}")
    return medians


def main():
    stack = Stack(driver="fake", sandboxd={
        "log.access": False, "listen.connections_max": 4096, "log.level": "error", "sandboxes.backoff_first_ms": 60000,
        "sandboxes.backoff_max_ms": 600000})
    bares = []
    try:
        stack.start()
        tenant = stack.tenant(quota=1000000, template=False)
        tenant.template = tenant.add_template("repo/image@sha256:" + "0" * 64)
        box = tenant.ready()["sandboxId"]
        path = f"{PUBLIC}/sandbox?accountId={tenant.account}&sandboxId={box}"
        body = tenant.call("GET", path[len(PUBLIC):], status=200).body
        pg = stack.pg.url
        plain = Bare(stack, body)
        query = Bare(stack, body, pg, "sandbox_get", box, tenant.account)
        bares += [plain, query]
        auth = ["Authorization: " + tenant.token]
        m = compare("get", {
            "bare, same bytes, no database": lambda: wrk(plain.url + path, auth),
            "bare, queue and same statement": lambda: wrk(query.url + path, auth),
            "sandboxd": lambda: wrk(stack.plane.url + path, auth)})
        labels = list(m)
        print(f"  of the same statement: {m[labels[2]] / m[labels[1]]:.2f}; of the limit: {m[labels[2]] / m[labels[0]]:.2f}")

        # Nothing takes the rows up while creates are counted: the region is away.
        stack.region.kill9()
        row = stack.pg.psql("SELECT profile, owner_kind, owner_id, caller_key, region FROM sandboxd.sandboxes LIMIT 1")[0]
        create = Bare(stack, body, pg, "sandbox_create", "%ID%", tenant.account, tenant.app, tenant.template, row[4], row[0],
                      row[1], row[2], "%NULL%", row[3], "%KEY%", "%NULL%", "%NULL%", "bench-request", "f")
        bares.append(create)
        script = create_script(stack, tenant)
        stack.pg.psql("ANALYZE sandboxd.sandboxes")
        m = compare("create", {
            "bare, queue and same statement": lambda: wrk(create.url + PUBLIC + "/sandbox/create", auth, script),
            "sandboxd": lambda: wrk(stack.plane.url + PUBLIC + "/sandbox/create", (), script)})
        labels = list(m)
        print(f"  of the same statement: {m[labels[1]] / m[labels[0]]:.2f}")
        print("  rows now:", stack.pg.psql("SELECT count(*) FROM sandboxd.sandboxes")[0][0])

        list_path = f"{PUBLIC}/sandboxes?accountId={tenant.account}&limit=50"
        compare("list of 50", {"sandboxd": lambda: wrk(stack.plane.url + list_path, auth)})
    finally:
        for b in bares:
            b.close()
        stack.stop(rough=True)


if __name__ == "__main__":
    main()
