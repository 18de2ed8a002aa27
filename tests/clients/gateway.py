"""Runs the gateway smg in front of servers of the bundled model, for the jobs of this folder.

    with servers(2, ["--is-embedding"]) as urls, Gateway(urls, "round_robin") as gateway:
        status, answer = gateway.ask("/v1/models")
"""

import contextlib
import os
import pathlib
import re
import socket
import subprocess
import sys
import time

from jobs import KEY, NAME, ask, check, end_process

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "server"))
from served import Served  # noqa: E402

WORK = pathlib.Path(os.environ["TESSERA_WORK"])
FLAGS = ["--api-key", KEY, "--served-model-name", NAME, "--enable-deterministic-inference"]


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


@contextlib.contextmanager
def servers(count, flags=()):
    """Runs this many servers and gives their addresses."""
    with contextlib.ExitStack() as running:
        yield [running.enter_context(Served(os.environ["TESSERA_PROGRAM"], [*FLAGS, *flags])).url for _ in range(count)]


class Gateway:
    """Runs smg with a policy. On entry it waits until all workers are ready."""

    def __init__(self, workers, policy):
        self.workers = workers
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        program = pathlib.Path(sys.executable).parent / "smg"
        self.command = [sys.executable, str(program), "launch", "--worker-urls", *workers, "--policy", policy,
                        "--api-key", KEY, "--host", "127.0.0.1", "--port", str(port),
                        "--prometheus-port", str(free_port())]

    def __enter__(self):
        self.log = open(WORK / "smg.log", "w+")
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log)
        for _ in range(240):
            with contextlib.suppress(OSError, KeyError, TypeError):
                ready = [worker for worker in self.ask("/workers")[1]["workers"] if worker["status"] == "ready"]
                if len(ready) == len(self.workers) and self.ask("/v1/models")[1]["data"]:
                    return self
            if self.process.poll() is not None:
                break
            time.sleep(0.25)
        said = self.said()
        self.__exit__()
        raise AssertionError(f"the gateway does not serve: {said}")

    def __exit__(self, *_):
        end_process(self.process, 60)
        self.log.close()

    def said(self):
        self.log.seek(0)
        return re.sub(r"\x1b\[\d*m", "", self.log.read())[-1500:]

    def ask(self, path, body=None, method=None, headers=None):
        return ask(self.url + path, body, method, headers)

    def expect(self, path, body=None, headers=None):
        """Returns the answer, which must have status 200."""
        status, answer = self.ask(path, body, headers=headers)
        check(status == 200, f"{path}: {status}: {answer}")
        return answer
