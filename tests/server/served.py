"""Runs a server under test: starts it on a free port, sends requests over plain sockets, and ends it.

    with Served(tessera, ["--enable-deterministic-inference"]) as server:
        status, body = server.get("/health")

Ending it sends SIGTERM and expects exit status 0; a sanitizer with findings ends the server with another status.
"""

import asyncio
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "demo"


def halves_of_the_cores():
    """Returns the command prefixes of two processes that share this machine's cores."""
    cores = sorted(os.sched_getaffinity(0))
    half = max(len(cores) // 2, 1)
    return [["taskset", "-c", ",".join(map(str, cores[first:first + half] or cores))] for first in (0, half)]


class Served:
    def __init__(self, tessera, flags=(), model=MODEL, environment=None):
        # The model's name in requests.
        named = list(flags).index("--served-model-name") + 1 if "--served-model-name" in flags else None
        self.name = str(flags[named] if named else model)
        self.command = [tessera, "serve", "--model-path", str(model), "--port", "0", *flags]
        self.environment = {**os.environ, **(environment or {})}

    def __enter__(self):
        # The server gets its own cache: measurements of other servers would change its dispatch, and the user's cache
        # must not change.
        self.cache = tempfile.TemporaryDirectory()
        self.errors = tempfile.TemporaryFile(mode="w+")
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=self.errors, text=True,
                                        env={**self.environment, "TESSERA_CACHE_DIR": self.cache.name})
        line = self.process.stdout.readline()
        match = re.search(r"https?://127\.0\.0\.1:(\d+)", line)
        if match is None:
            self.process.kill()
            raise RuntimeError(f"the server did not start: {' '.join(map(str, self.command))}: {line!r}, {self._end()}")
        self.url = match.group(0)
        self.port = int(match.group(1))
        return self

    def __exit__(self, kind, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
        said = self._end()
        if self.process.returncode != 0 and kind is None:
            raise RuntimeError(f"the server ended with exit status {self.process.returncode}: {said}")

    def _end(self):
        """Waits for the process and removes its files; returns the end of its standard error."""
        self.process.wait()
        self.process.stdout.close()
        self.cache.cleanup()
        with self.errors:
            self.errors.seek(0)
            return self.errors.read()[-4000:]

    def request(self, method, path, body=None, headers=None):
        """Returns (status, headers, body bytes)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            data = json.dumps(body) if isinstance(body, (dict, list)) else body
            connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def get(self, path):
        status, _, body = self.request("GET", path)
        return status, body.decode()

    def post(self, path, body, headers=None):
        """Returns (status, parsed JSON). Requests to OpenAI's routes name the model, as its clients do."""
        status, _, data = self.request("POST", path, self._named(path, body), headers)
        return status, json.loads(data)

    def _named(self, path, body):
        return {"model": self.name, **body} if path.startswith("/v1/") and isinstance(body, dict) else body

    def threads(self):
        return len(os.listdir(f"/proc/{self.process.pid}/task"))

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def resident_mib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1)) / 1024

    async def stream(self, path, body, leave_after=None):
        """Returns the data of every event of a streamed answer, without "[DONE]"; with leave_after the connection is
        cut after that many events, and the result is None."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            data = json.dumps({**self._named(path, body), "stream": True}).encode()
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
            writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
            await writer.drain()
            status = int((await reader.readline()).split()[1])
            while (await reader.readline()).strip():
                pass
            if status != 200:
                raise RuntimeError(f"status {status}: {(await reader.read()).decode()}")
            events = []
            async for line in reader:  # skips chunk sizes and all other lines without an event
                if not line.startswith(b"data: "):
                    continue
                event = line[len(b"data: "):].strip()
                if event == b"[DONE]":
                    return events
                events.append(json.loads(event))
                if leave_after is not None and len(events) >= leave_after:
                    return None
            raise RuntimeError("the stream ended without [DONE]")
        finally:
            writer.close()


def run_cases(cases, skipped=()):
    """Runs the public methods of `cases` in the order written, and returns (passed, failed). The methods
    named in `skipped` are left out."""
    passed = failed = 0
    for name in [n for n in vars(type(cases)) if not n.startswith("_") and n not in skipped]:
        try:
            getattr(cases, name)()
            passed += 1
        except Exception as error:  # pylint: disable=broad-except  (any exception is the case's result)
            failed += 1
            print(f"FAILED: {name}: {type(error).__name__}: {error}")
    return passed, failed
