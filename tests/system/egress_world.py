"""The outside world of the egress tests: runs inside its network namespace, on whatever addresses that
has.  Every TCP port answers an HTTP response whose body is "world <address>"; UDP port 9999 echoes; port
53 is a DNS server whose answers come from a file that a test may change while it runs.

    python3 egress_world.py NAMES_FILE HITS_FILE PORT...

NAMES_FILE: {"name": ["address", ...]}, read for each question; a list of lists is walked, one list a
question.  HITS_FILE gets one line "proto address port detail" for each thing that arrived: what a test
says was refused must not be in it.
"""

import json
import select
import socket
import struct
import sys
import threading
import urllib.parse

names_file, hits_file = sys.argv[1:3]
lock = threading.Lock()
asked = {}


def hit(*words):
    with lock, open(hits_file, "a") as f:
        f.write(" ".join(str(w) for w in words) + "\n")


def plain(address):
    return address.removeprefix("::ffff:")


def serve_tcp(conn):
    with conn:
        conn.settimeout(5)
        address, port = conn.getsockname()[:2]
        address = plain(address)
        request = b""
        try:
            while b"\r\n\r\n" not in request:
                part = conn.recv(65536)
                if not part:
                    break
                request += part
            line = request.split(b"\r\n", 1)[0].decode("latin-1")
            hit("tcp", address, port, line.replace(" ", "_") or "-")
            path = (line.split(" ") + ["", ""])[1]
            query = urllib.parse.parse_qs(urllib.parse.urlsplit(path).query)
            if "size" in query:  # bytes to measure with
                left = int(query["size"][0])
                conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % left)
                block = bytes(1 << 20)
                while left > 0:
                    conn.sendall(block[:min(left, len(block))])
                    left -= len(block)
                return
            if "to" in query:
                conn.sendall(f"HTTP/1.1 302 Found\r\nLocation: {query['to'][0]}\r\nContent-Length: 0\r\n"
                             "Connection: close\r\n\r\n".encode())
                return
            host = next((h.split(b":", 1)[1].strip().decode("latin-1") for h in request.split(b"\r\n")
                         if h.lower().startswith(b"host:")), "-")
            body = f"world {address} host {host}\n".encode()
            conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body))
        except OSError:
            pass


def accept(listener):
    while True:
        conn, _ = listener.accept()
        threading.Thread(target=serve_tcp, args=(conn,), daemon=True).start()


def answers(name):
    with open(names_file) as f:
        found = json.load(f).get(name)
    if found and isinstance(found[0], list):
        with lock:
            n = asked[name] = asked.get(name, -1) + 1
        found = found[min(n, len(found) - 1)]
    return found


def dns(query):
    at, labels = 12, []
    while query[at]:
        labels.append(query[at + 1:at + 1 + query[at]].decode("latin-1").lower())
        at += 1 + query[at]
    question, kind = query[12:at + 5], struct.unpack(">H", query[at + 1:at + 3])[0]
    found = answers(".".join(labels))
    records = b""
    count = 0
    for address in found or []:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        if kind == (28 if ":" in address else 1):
            data = socket.inet_pton(family, address)
            records += b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 1, len(data)) + data
            count += 1
    return query[:2] + struct.pack(">HHHHH", 0x8180 if found is not None else 0x8183, 1, count, 0, 0) + question + records


def serve_udp(ports):
    socks = []
    for family, any_address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        for port in ports:
            s = socket.socket(family, socket.SOCK_DGRAM)
            if family == socket.AF_INET6:
                s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
            else:
                s.setsockopt(socket.IPPROTO_IP, 8, 1)  # IP_PKTINFO: answer from the address that was asked
            s.bind((any_address, port))
            socks.append((s, port))
    by_fd = {s.fileno(): (s, port) for s, port in socks}
    while True:
        for fd in select.select(list(by_fd), [], [])[0]:
            s, port = by_fd[fd]
            data, extra, _flags, peer = s.recvmsg(4096, 256)
            info = extra[0][2]
            if s.family == socket.AF_INET:
                to = socket.inet_ntop(socket.AF_INET, info[8:12])
                back = [(socket.IPPROTO_IP, 8, struct.pack("=I4s4s", 0, info[8:12], bytes(4)))]
            else:
                to = socket.inet_ntop(socket.AF_INET6, info[:16])
                back = [(socket.IPPROTO_IPV6, socket.IPV6_PKTINFO, info[:16] + struct.pack("=I", 0))]
            hit("udp", to, port, peer[0])
            s.sendmsg([dns(data) if port == 53 else b"world " + to.encode() + b"\n"], back, 0, peer)


for number in sys.argv[3:]:
    s = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    s.bind(("::", int(number)))
    s.listen(256)
    threading.Thread(target=accept, args=(s,), daemon=True).start()
print("ready", flush=True)
serve_udp([53, 9999])
