"""A real S3 server for tests: Debian's swift behind its s3api filter, one proxy and three servers in a
folder of their own.  swift reads /etc/swift, so the processes run in a private mount namespace.

    server = S3Server(folder)
    server.start()              # 2-3 s
    server.backend("bucket")    # BACKEND of sbx/gateway.h, the bucket made
    server.stop()
"""

import hashlib
import hmac
import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import time

from harness import Missing, clean_environment, free_port, wait_for

ROTATED = {"accessKey": "test:rotated", "secretKey": "rotated"}
KEY, SECRET, REGION = "test:tester", "testing", "us-east-1"

PIPELINE = ("catch_errors gatekeeper proxy-logging cache listing_formats bulk tempurl s3api tempauth copy slo dlo "
            "versioned_writes symlink proxy-server")


def listens(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


class S3Server:
    def __init__(self, folder, size_mb=None):
        """size_mb: what it can hold, on a file system of its own."""
        self.dir = folder
        self.size_mb = size_mb
        self.etc = os.path.join(folder, "etc")
        self.devices = os.path.join(folder, "dev")
        self.port = free_port()
        self.ports = {kind: free_port() for kind in ("account", "container", "object")}
        self.processes = []
        self.endpoint = f"http://127.0.0.1:{self.port}"

    def write(self, name, text):
        with open(os.path.join(self.etc, name), "w") as f:
            f.write(text)

    def configure(self):
        os.makedirs(self.etc)
        os.makedirs(self.devices)
        if self.size_mb:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self.size_mb}m", "none", self.devices], check=True)
        os.makedirs(os.path.join(self.devices, "d1"))
        self.write("swift.conf", "[swift-hash]\nswift_hash_path_suffix = s\nswift_hash_path_prefix = p\n"
                                 "[storage-policy:0]\nname = gold\ndefault = yes\n")
        for kind, port in self.ports.items():
            self.write(f"{kind}-server.conf",
                       f"[DEFAULT]\nbind_ip = 127.0.0.1\nbind_port = {port}\nuser = root\nworkers = 0\n"
                       f"devices = {self.devices}\nmount_check = false\ndisable_fallocate = true\n"
                       f"fallocate_reserve = 0\nlog_level = ERROR\nswift_dir = /etc/swift\n"
                       f"[pipeline:main]\npipeline = {kind}-server\n[app:{kind}-server]\nuse = egg:swift#{kind}\n")
        filters = "".join(f"[filter:{name}]\nuse = egg:swift#{egg}\n{extra}" for name, egg, extra in (
            ("catch_errors", "catch_errors", ""), ("gatekeeper", "gatekeeper", ""),
            ("proxy-logging", "proxy_logging", ""), ("cache", "memcache", ""),
            ("listing_formats", "listing_formats", ""), ("bulk", "bulk", ""), ("tempurl", "tempurl", ""),
            ("s3api", "s3api", f"s3_acl = no\nlocation = {REGION}\nmin_segment_size = 1048576\nmax_upload_part_num = 10000\n"),
            ("tempauth", "tempauth", "user_test_tester = testing .admin\nuser_test_rotated = rotated .admin\n"), ("copy", "copy", ""), ("slo", "slo", "max_manifest_segments = 10000\n"),
            ("dlo", "dlo", ""), ("versioned_writes", "versioned_writes", ""), ("symlink", "symlink", "")))
        self.write("proxy-server.conf",
                   f"[DEFAULT]\nbind_ip = 127.0.0.1\nbind_port = {self.port}\nuser = root\nworkers = 0\n"
                   f"log_level = ERROR\nswift_dir = /etc/swift\n[pipeline:main]\npipeline = {PIPELINE}\n"
                   "[app:proxy-server]\nuse = egg:swift#proxy\nallow_account_management = true\n"
                   "account_autocreate = true\nconn_timeout = 10\nnode_timeout = 60\n"
                   "error_suppression_limit = 1000000\n" + filters)
        for kind, port in self.ports.items():
            for words in (["create", "4", "1", "1"], ["add", f"r1z1-127.0.0.1:{port}/d1", "1"], ["rebalance"]):
                subprocess.run(["swift-ring-builder", os.path.join(self.etc, f"{kind}.builder"), *words],
                               check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=clean_environment())

    def start(self):
        if not shutil.which("swift-proxy-server"):
            raise Missing("swift is not installed: run config/install test")
        if not os.path.exists(self.etc):
            self.configure()
        for kind in (*self.ports, "proxy"):
            if kind == "proxy":  # it remembers a server that did not answer
                wait_for("the storage servers listen", lambda: all(map(listens, self.ports.values())), 90)
            log = open(os.path.join(self.dir, f"{kind}.log"), "ab")
            self.processes.append(subprocess.Popen(
                ["unshare", "-m", "--propagation", "private", "sh", "-c",
                 f"mkdir -p /etc/swift && mount --bind {self.etc} /etc/swift && "
                 f"exec /usr/bin/python3 /usr/bin/swift-{kind}-server /etc/swift/{kind}-server.conf"],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=clean_environment(), start_new_session=True))
            log.close()
        wait_for("the S3 server answers", self.answers, 90)

    def answers(self):
        for p in self.processes:
            if p.poll() is not None:
                raise AssertionError("an S3 server process ended: " + self.logs())
        try:
            return self.request("PUT", "/ready")[0] in (200, 409)
        except (OSError, http.client.HTTPException):
            return False

    def logs(self):
        out = ""
        for name in os.listdir(self.dir):
            if name.endswith(".log"):
                with open(os.path.join(self.dir, name), errors="replace") as f:
                    out += f"--- {name}\n{f.read()[-2000:]}"
        return out

    def stop(self):
        for p in self.processes:
            if p.poll() is None:
                p.terminate()
        for p in self.processes:
            try:
                p.wait(10)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
        if self.size_mb and os.path.ismount(self.devices):
            subprocess.run(["umount", "-l", self.devices], check=True)
        self.processes = []

    def pause(self, on=True):
        """The server hangs (or goes on): connections stay, nothing is answered."""
        for p in self.processes:
            p.send_signal(signal.SIGSTOP if on else signal.SIGCONT)

    # ---- a client of our own, to look behind the product's back

    def request(self, method, path, query="", body=b""):
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        digest = hashlib.sha256(body).hexdigest()
        host = f"127.0.0.1:{self.port}"
        headers = f"host:{host}\nx-amz-content-sha256:{digest}\nx-amz-date:{now}\n"
        names = "host;x-amz-content-sha256;x-amz-date"
        canonical = "\n".join((method, path, query, headers, names, digest))
        scope = f"{now[:8]}/{REGION}/s3/aws4_request"
        text = "\n".join(("AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()))
        key = ("AWS4" + SECRET).encode()
        for part in (now[:8], REGION, "s3", "aws4_request"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
        c = http.client.HTTPConnection(host, timeout=10)
        try:
            c.request(method, path + ("?" + query if query else ""), body=body, headers={
                "x-amz-date": now, "x-amz-content-sha256": digest,
                "Authorization": f"AWS4-HMAC-SHA256 Credential={KEY}/{scope}, SignedHeaders={names}, Signature={signature}"})
            r = c.getresponse()
            return r.status, r.read()
        finally:
            c.close()

    def bucket(self, name):
        status, body = self.request("PUT", "/" + name)
        assert status in (200, 409), body
        return name

    def backend(self, bucket, prefix=""):
        self.bucket(bucket)
        return {"kind": "s3", "endpoint": self.endpoint, "bucket": bucket, "prefix": prefix, "accessKey": KEY,
                "secretKey": SECRET, "region": REGION}

    def keys(self, bucket):
        status, body = self.request("GET", "/" + bucket)
        assert status == 200, body
        return sorted(re.findall(r"<Key>([^<]*)</Key>", body.decode()))

    def put(self, bucket, key, data):
        status, body = self.request("PUT", f"/{bucket}/{key}", body=data)
        assert status == 200, body

    def get(self, bucket, key):
        status, body = self.request("GET", f"/{bucket}/{key}")
        assert status == 200, body
        return body
