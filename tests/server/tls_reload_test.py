#!/usr/bin/env python3
"""Certificates that change under load: tests/server/tls_reload_test.py TESSERA

Catches: requests that fail because a certificate is replaced, connections that the replacement ends, and a server that
goes on with the old certificate. Also: `bench serve` that cannot be told which certificates to trust, or trusts all.

Clients send streamed chats, some on one connection and some on a new connection for each request. Meanwhile the
certificate is replaced twice: first one file at a time, so that certificate and key do not fit together for a while,
then both at once. Skips itself if there is no openssl. The last line is "N passed, N failed"."""

import http.client
import json
import os
import pathlib
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time

from served import Served

SKIPPED = 77
NAMES = ("first", "second")
BETWEEN_LOOKS_S = 5  # seconds between the server's checks of its files
LONGEST_WAIT_S = 60


class Clients:
    """Threads that send requests until stop(), and what they saw."""

    def __init__(self, port, trusted):
        self.port = port
        self.context = ssl.create_default_context(cafile=trusted)
        self.served = {"kept": 0, "new": 0}
        self.lost = []
        self.newest = ""  # the certificate's name on the newest connection
        self.lock = threading.Lock()
        self.ending = threading.Event()
        self.threads = [threading.Thread(target=self.send, args=(kind,)) for kind in ("kept", "new") for _ in range(2)]
        for thread in self.threads:
            thread.start()

    def connect(self):
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=LONGEST_WAIT_S, context=self.context)
        connection.connect()
        subject = dict(entry[0] for entry in connection.sock.getpeercert()["subject"])
        with self.lock:
            self.newest = subject["commonName"]
        return connection

    def send(self, kind):
        body = json.dumps({"model": "demo", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 16,
                           "ignore_eos": True, "stream": True})
        connection = None
        while not self.ending.is_set():
            try:
                if connection is None or kind == "new":
                    connection = self.connect()
                connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
                response = connection.getresponse()
                text = response.read().decode()
                if response.status != 200 or not text.rstrip().endswith("data: [DONE]"):
                    raise RuntimeError(f"status {response.status}: {text[-300:]}")
                with self.lock:
                    self.served[kind] += 1
            except Exception as error:  # pylint: disable=broad-except  (any exception is a lost request)
                with self.lock:
                    self.lost.append(f"{kind}: {type(error).__name__}: {error}")
                connection = None
            if kind == "new" and connection is not None:
                connection.close()

    def wait_for(self, name):
        """Waits until new connections get the certificate of this name."""
        end = time.monotonic() + LONGEST_WAIT_S
        while self.newest != name:
            if time.monotonic() > end:
                raise RuntimeError(f"new connections still get the certificate of {self.newest}, not of {name}")
            time.sleep(0.1)

    def stop(self):
        self.ending.set()
        for thread in self.threads:
            thread.join()


def make_identities(folder):
    for name in NAMES:
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                        "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / f"{name}.key",
                        "-out", folder / f"{name}.pem"], check=True, capture_output=True, timeout=60)
    (folder / "trusted.pem").write_text("".join((folder / f"{name}.pem").read_text() for name in NAMES))


def replace(folder, name, kind):
    shutil.copy(folder / f"{name}.{kind}", folder / f"next.{kind}")
    (folder / f"next.{kind}").rename(folder / f"server.{kind}")


def bench(tessera, url, trusted):
    """Returns how many requests of `bench serve` were answered; None if it does not trust the server."""
    variables = {name: value for name, value in os.environ.items() if name != "SSL_CERT_FILE"}
    if trusted:
        variables["SSL_CERT_FILE"] = str(trusted)
    done = subprocess.run([tessera, "bench", "serve", "--url", url, "--vocab-size", "2000", "--num-prompts", "8", "--input-len", "8",
                           "--output-len", "4", "--json"], capture_output=True, text=True, timeout=120, check=False, env=variables)
    return json.loads(done.stdout)["runs"][0]["completed"] if done.returncode == 0 else None


def reload_under_load(tessera, folder):
    """Returns what went wrong, or "" if nothing did."""
    make_identities(folder)
    for kind in ("pem", "key"):
        replace(folder, "first", kind)
    flags = ["--served-model-name", "demo", "--ssl-certfile", str(folder / "server.pem"), "--ssl-keyfile",
             str(folder / "server.key")]
    with Served(tessera, flags) as server:
        clients = Clients(server.port, folder / "trusted.pem")
        try:
            clients.wait_for("first")
            replace(folder, "second", "pem")
            time.sleep(BETWEEN_LOOKS_S + 1)  # the server sees a key that does not fit, and keeps the first certificate
            if clients.newest != "first":
                return f"new connections got the certificate of {clients.newest} before its key was there"
            replace(folder, "second", "key")
            clients.wait_for("second")
            answered = bench(tessera, server.url, folder / "trusted.pem")
            if answered != 8:
                return f"bench serve got {answered} answers of 8"
            if bench(tessera, server.url, None) is not None:
                return "bench serve trusts a certificate that nobody vouches for"
            for kind in ("pem", "key"):
                replace(folder, "first", kind)
            clients.wait_for("first")
        finally:
            clients.stop()
    print(f"{clients.served['kept']} requests on kept connections, {clients.served['new']} on new ones")
    if clients.lost:
        return f"{len(clients.lost)} requests were lost: {clients.lost[0]}"
    return "" if all(clients.served.values()) else "clients sent no requests"


def main():
    if shutil.which("openssl") is None:
        print("skipped: there is no openssl")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        wrong = reload_under_load(sys.argv[1], pathlib.Path(folder))
    if wrong:
        print(f"FAILED: {wrong}")
    print(f"{int(not wrong)} passed, {int(bool(wrong))} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
