#!/usr/bin/env python3
"""Tests a server on two nodes that a supervisor restarts: tests/server/supervised_test.py TESSERA

Catches: nodes that keep running after another is lost, so that they are not restarted; requests that do not end with 503
and the node's name; a start that waits for lost processes; a restart that takes longer than 5 seconds (the best of up to
five, since the machine may be busy); and a restart of nodes that were told to stop.

The supervisors do what systemd does for deploy/debian/tessera.service, by that file's Restart, RestartSec and
RestartPreventExitStatus. The last line is "N passed, N failed"."""

import configparser
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from served import MODEL, ROOT, run_cases

LIMIT_S, TRIES = 5, 5  # longest time to the next answer, and most kills on a busy machine
FLAGS = ["--tp-size", "2", "--nnodes", "2", "--disable-cost-measurement", "--piecewise-cuda-graph-tokens", "16", "--cuda-graph-bs", "1",
         "--context-length", "2048", "--dtype", "float32", "--max-running-requests", "2"]
ASK = {"text": "Once upon a time", "sampling_params": {"max_new_tokens": 16, "temperature": 0, "ignore_eos": True}}
LONG = {"text": "Once", "sampling_params": {"max_new_tokens": 1900, "temperature": 0, "ignore_eos": True}}
CLEAN_SIGNALS = [signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE]  # systemd.service(5), SuccessExitStatus


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Supervisor:
    """Runs a command, and restarts it as the unit says. `ends` has the exit statuses so far; signals are negative."""

    def __init__(self, command, environment):
        unit = configparser.ConfigParser(interpolation=None, strict=False)
        unit.optionxform = str
        unit.read(ROOT / "deploy" / "debian" / "tessera.service")
        service = unit["Service"]
        assert service["Restart"] == "on-failure", service["Restart"]
        self.rest_s = float(service["RestartSec"])
        self.final = [0, *map(int, service["RestartPreventExitStatus"].split()), *(-number for number in CLEAN_SIGNALS)]
        self.command, self.environment, self.ends = command, environment, []
        self.stopping = threading.Event()
        self.said = tempfile.TemporaryFile(mode="w+")
        self._start()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _start(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.said, stderr=self.said, env=self.environment)

    def _run(self):
        while True:
            self.ends.append(self.process.wait())
            if self.ends[-1] in self.final or self.stopping.wait(self.rest_s):
                return
            self._start()

    def stop(self):
        """Stops the command; returns its output over all starts."""
        self.stopping.set()
        while self.thread.is_alive():  # repeats the signal, which is lost between two starts
            self.process.send_signal(signal.SIGTERM)
            self.thread.join(1)
        with self.said:
            self.said.seek(0)
            return self.said.read()


class Nodes:
    """Two supervised nodes of one server. `said` has the output of each once they have ended."""

    def __init__(self, tessera):
        self.tessera = tessera

    def __enter__(self):
        self.cache = tempfile.TemporaryDirectory()
        self.port = free_port()
        environment = {**os.environ, "TESSERA_CACHE_DIR": self.cache.name}
        command = [self.tessera, "serve", "--model-path", str(MODEL), "--port", str(self.port), *FLAGS, "--dist-init-addr",
                   f"127.0.0.1:{free_port()}", "--node-rank"]
        # Each node gets half of the cores. Nodes must have the same number of threads, and on shared cores they would
        # wait for one another.
        cores = sorted(os.sched_getaffinity(0))
        half = max(len(cores) // 2, 1)
        self.supervisors = [Supervisor(["taskset", "-c", ",".join(map(str, cores[first:first + half] or cores)), *command, str(node)],
                                       environment) for node, first in enumerate((0, half))]
        try:
            self.text = self.answer_by(time.monotonic() + 60)["text"]
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.said = [supervisor.stop() for supervisor in self.supervisors]
        self.cache.cleanup()

    def ask(self, body, timeout=60):
        """Returns (status, answer); status 0 if nobody answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request("POST", "/generate", json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        except (OSError, http.client.HTTPException) as error:
            return 0, repr(error)
        finally:
            connection.close()

    def answer_by(self, deadline):
        """Returns the first answer with status 200. Before it, connections fail or get 503."""
        while True:
            status, answer = self.ask(ASK)
            if status == 200:
                return answer
            assert status in (0, 503), (status, answer)
            assert time.monotonic() < deadline, (answer, [supervisor.ends for supervisor in self.supervisors])
            time.sleep(0.02)

    def kill_amid_a_request(self, node):
        """Kills a node during a request; returns the request's (status, answer), and the seconds until the next status 200."""
        asked = []
        thread = threading.Thread(target=lambda: asked.append(self.ask(LONG)))
        thread.start()
        time.sleep(0.25)
        assert not asked, asked
        began = time.monotonic()
        self.supervisors[node].process.kill()
        thread.join()
        assert self.answer_by(began + 30)["text"] == self.text
        seconds = time.monotonic() - began
        print(f"node {node} is killed: answers again after {seconds:.2f} s, of which the supervisors wait {self.supervisors[0].rest_s:g}")
        return *asked[0], seconds

    def kill_until_in_time(self, node, check):
        """Kills a node until the server recovers in time; returns the number of kills. Each interrupted request must pass
        `check`."""
        for kills in range(1, TRIES + 1):
            status, answer, seconds = self.kill_amid_a_request(node)
            check(status, answer)
            if seconds < LIMIT_S:
                return kills
        raise AssertionError(f"{seconds:.2f} s at the last of {kills} kills")


class Cases:
    def __init__(self, tessera):
        self.tessera = tessera

    @staticmethod
    def _assert_named(status, answer):
        assert status == 503 and "node 1 of 2 (" in str(answer) and "is gone" in str(answer), (status, answer)

    @staticmethod
    def _assert_cut_off(status, answer):
        assert status == 0, (status, answer)  # the process that would answer is gone

    def a_killed_node(self):
        with Nodes(self.tessera) as nodes:
            kills = nodes.kill_until_in_time(1, self._assert_named)
            assert [supervisor.ends for supervisor in nodes.supervisors] == [[1] * kills, [-signal.SIGKILL] * kills]
        errors = [line for line in nodes.said[0].splitlines() if line.startswith("tessera: error: ")]
        assert len(errors) == kills and all("node 1 of 2 (" in line for line in errors), nodes.said[0]

    def node_0_is_killed(self):
        with Nodes(self.tessera) as nodes:
            kills = nodes.kill_until_in_time(0, self._assert_cut_off)
            assert [supervisor.ends for supervisor in nodes.supervisors] == [[-signal.SIGKILL] * kills, [1] * kills]
        assert "tessera: error: node 0 of 2 (" in nodes.said[1], nodes.said[1]

    def nodes_that_are_told_to_stop_stay_away(self):
        with Nodes(self.tessera) as nodes:
            nodes.supervisors[0].process.send_signal(signal.SIGTERM)
            for supervisor in nodes.supervisors:
                supervisor.thread.join(30)
                assert not supervisor.thread.is_alive() and supervisor.ends == [0], supervisor.ends


if __name__ == "__main__":
    passed, failed = run_cases(Cases(sys.argv[1]))
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)
