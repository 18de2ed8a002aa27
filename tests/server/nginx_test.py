#!/usr/bin/env python3
"""A server behind nginx: tests/server/nginx_test.py TESSERA [--requests N] [--phases N] [--clients N]

Catches: kept connections that the server closes while nginx sends the next request on them. nginx answers such a
request with 502, because it does not send a POST again.

nginx keeps connections to the server in a pool, as docs/deployment.md recommends. Requests come in phases. The pauses
between them are about as long as nginx or the server keeps an idle connection: equal, a little shorter and a little longer.
In the last phase nginx is stopped while connections are idle. Skips itself if there is no nginx. The last line is "N passed, N failed"."""

import argparse
import collections
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from served import Served

SKIPPED = 77
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
CONFIG = """
{user}
daemon off;
worker_processes 1;
pid {folder}/pid;
error_log {folder}/error.log warn;
events {{ worker_connections 1024; }}
http {{
  log_format statuses '$status $upstream_status';
  access_log {folder}/access.log statuses;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  upstream tessera {{
    server 127.0.0.1:{server};
    keepalive 32;
    keepalive_timeout {keep_alive}s;
  }}
  server {{
    listen 127.0.0.1:{front};
    location / {{
      proxy_pass http://tessera;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $host;
      proxy_buffering off;
      proxy_read_timeout 600s;
    }}
  }}
}}
"""


def request(method, path, body=b""):
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


TOKENIZE = request("POST", "/tokenize", b'{"prompt": "Once upon a time"}')
HEALTH = request("GET", "/health")
COMPLETION = request("POST", "/v1/completions", b'{"model": "demo", "prompt": "Once", "max_tokens": 1}')


def request_of(number):
    """Makes mostly cheap POSTs, so that the connections are the load. They are POSTs because nginx sends a failed GET again."""
    if number % 50 == 0:
        return COMPLETION
    return HEALTH if number % 10 == 0 else TOKENIZE


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Client:
    """One connection to nginx, reopened when nginx has closed it."""

    def __init__(self, port):
        self.port = port
        self.socket = None

    def ask(self, data):
        """Returns the status of the answer, or the error."""
        try:
            self.send(data)
            return self.read_status()
        except OSError as error:
            self.close()
            return f"{type(error).__name__}: {error}"

    def send(self, data):
        if self.socket is None:
            self.socket = socket.create_connection(("127.0.0.1", self.port), 120)
        self.socket.sendall(data)

    def read_status(self):
        held = b""
        while b"\r\n\r\n" not in held:
            piece = self.socket.recv(65536)
            if not piece:
                raise ConnectionError("nginx closed the connection before an answer")
            held += piece
        head, _, body = held.partition(b"\r\n\r\n")
        head = head.lower()
        left = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]) - len(body)
        while left > 0:
            left -= len(self.socket.recv(65536))
        if b"connection: close" in head:
            self.close()
        return int(head[9:12])

    def close(self):
        if self.socket is not None:
            self.socket.close()
        self.socket = None


class Nginx:
    def __init__(self, server_port, keep_alive):
        self.port = free_port()
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        user = "user root;" if os.geteuid() == 0 else ""  # a user who may enter the folder
        (self.path / "nginx.conf").write_text(CONFIG.format(
            user=user, folder=self.path, server=server_port, front=self.port, keep_alive=keep_alive))

    def __enter__(self):
        self.process = subprocess.Popen([NGINX, "-p", str(self.path), "-e", str(self.path / "error.log"), "-c",
                                         str(self.path / "nginx.conf")])
        for _ in range(200):
            if Client(self.port).ask(HEALTH) == 200:
                return self
            time.sleep(0.05)
        raise RuntimeError("nginx does not answer: " + (self.path / "error.log").read_text())

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(30)
        self.folder.cleanup()

    def signal_workers(self, number):
        for worker in pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split():
            os.kill(int(worker), number)

    def upstream_statuses(self):
        """Counts nginx's statuses by the server's; "502, 200" is a request that nginx sent twice."""
        return collections.Counter((self.path / "access.log").read_text().splitlines())

    def errors(self):
        return (self.path / "error.log").read_text()


def load(port, options, pauses):
    """Returns statuses or errors by request number. Every client sends its share of each phase, then all wait."""
    seen = collections.Counter()
    lock = threading.Lock()
    gate = threading.Barrier(options.clients)
    share = -(-options.requests // (options.clients * options.phases))

    def run(index):
        client = Client(port)
        own = collections.Counter()
        for phase in range(options.phases):
            for number in range(share):
                own[client.ask(request_of(number + index))] += 1
            gate.wait()
            if phase + 1 < options.phases:
                time.sleep(pauses[phase % len(pauses)] + 0.001 * index)
        client.close()
        with lock:
            seen.update(own)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(options.clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen


def statuses_after_a_stall(nginx, clients, stall_s):
    """Stops nginx for a while with idle connections in its pool and waiting requests. When nginx continues, it sends
    these requests on the connections before it notices whether the server has closed them. Otherwise this race is very
    short."""
    asking = [Client(nginx.port) for _ in range(clients)]
    for client in asking:
        client.send(TOKENIZE)
    statuses = collections.Counter(client.read_status() for client in asking)
    nginx.signal_workers(signal.SIGSTOP)
    for client in asking:
        client.send(TOKENIZE)
    time.sleep(stall_s)
    nginx.signal_workers(signal.SIGCONT)
    statuses.update(client.read_status() for client in asking)
    for client in asking:
        client.close()
    return statuses


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tessera")
    parser.add_argument("--requests", type=int, default=600)
    parser.add_argument("--phases", type=int, default=5)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--nginx-keep-alive", type=int, default=1, help="seconds")
    parser.add_argument("--server-keep-alive", type=int, default=2, help="seconds")
    options = parser.parse_args()
    if NGINX is None:
        print("skipped: there is no nginx (Debian: apt-get install nginx-light)")
        return SKIPPED

    nginx_s, server_s = options.nginx_keep_alive, options.server_keep_alive + 1  # the server keeps a connection one second longer
    pauses = [nginx_s, nginx_s - 0.01, server_s, nginx_s + 0.01, server_s - 0.01, nginx_s - 0.1, server_s + 0.01, 0.2]
    flags = ["--timeout-keep-alive", str(options.server_keep_alive), "--log-level", "warn",
             "--served-model-name", "demo"]
    with Served(options.tessera, flags) as server, Nginx(server.port, nginx_s) as nginx:
        start = time.time()
        seen = load(nginx.port, options, pauses)
        # The stall is longer than nginx keeps a connection, but shorter than the server keeps it.
        stalled = statuses_after_a_stall(nginx, options.clients, (nginx_s + server_s) / 2)
        upstream = nginx.upstream_statuses()
        print(f"{sum(seen.values())} requests in {options.phases} phases, {time.time() - start:.0f} s")
        print(f"statuses: {dict(seen)}; nginx's and the server's: {dict(upstream)}")
        checks = [("every answer is 200", set(seen) == {200}),
                  (f"so are those after nginx stood still: {dict(stalled)}", set(stalled) == {200}),
                  ("as many as were asked for", sum(seen.values()) >= options.requests),
                  ("nginx asked once for each", set(upstream) == {"200 200"}),
                  ("nginx logged no error " + nginx.errors()[-300:], not nginx.errors())]
    for what, good in checks:
        print(f"{'ok' if good else 'FAILED'}: {what}")
    failed = sum(not good for _, good in checks)
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
