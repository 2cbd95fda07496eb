"""A local HTTPS server that answers GET /repos/{owner}/{repo} as GitHub does, for tests.

    github = GitHub(folder)                     # .url, .ca_file
    github.repos["o/n"] = repo()                # 200, private, may be pushed to
    github.repos["o/gone"] = (404, {}, {})      # (status, headers, body), or a callable giving one
    github.asked                                # [(path, Authorization, User-Agent)]
"""

import http.server
import json
import ssl
import subprocess
import threading


def repo(private=True, push=True, archived=False, status=200, headers=None, **more):
    body = {"id": 1, "private": private, "archived": archived, "permissions": {"pull": True, "push": push}, **more}
    return status, headers or {}, body


class GitHub:
    def __init__(self, folder, token="gh-good"):
        key, self.ca_file = f"{folder}/github.key", f"{folder}/github.crt"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", key,
                        "-out", self.ca_file, "-subj", "/CN=localhost", "-addext",
                        "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, stderr=subprocess.DEVNULL)
        self.repos, self.asked, self.token = {}, [], token
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                outer.asked.append((self.path, self.headers.get("Authorization"), self.headers.get("User-Agent")))
                answer = outer.repos.get(self.path.removeprefix("/repos/"), (404, {}, {"message": "Not Found"}))
                if callable(answer):
                    answer = answer()
                if self.headers.get("Authorization") != f"Bearer {outer.token}" and answer[0] == 200:
                    answer = (401, {}, {"message": "Bad credentials"})
                status, headers, body = answer
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.ca_file, key)
        # The handshake is the handler's: a peer that dies or waits in it keeps nobody else waiting.
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.server.handle_error = lambda *args: None  # a peer that was killed or gave up
        self.url = f"https://localhost:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
