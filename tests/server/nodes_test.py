#!/usr/bin/env python3
"""A server on two machines: tests/server/nodes_test.py TESSERA

Catches: endless waiting for a node that dies, hangs or is cut off, requests that hang with it, an error that does not
name the node, a health check that stays good, a node 0 that does not end after a loss, a process that is left running,
and answers that differ from those of one process.

The second machine is a network namespace, joined to the first by a pair of virtual interfaces. If that is not permitted,
it is another address of the loopback interface. The reason is printed, and the test that cuts the cable counts as
skipped.

With TESSERA_TEST_DEVICE=cuda each rank has a GPU of this machine (cuda:0, cuda:1), joined by NCCL, in one network.

The last line is "N passed, N failed", the one before it how many were skipped."""

import asyncio
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from served import MODEL, Served, halves_of_the_cores, run_cases

# Measurements are off, because with them two servers could choose different sizes for one prompt.
FLAGS = ["--disable-cost-measurement", "--piecewise-cuda-graph-tokens", "16,64", "--cuda-graph-bs", "1,4", "--context-length",
         "2048", "--dtype", "float32", "--max-running-requests", "8", "--tp-size", "2"]
ON_GPUS = os.environ.get("TESSERA_TEST_DEVICE") == "cuda"
if ON_GPUS:
    FLAGS += ["--mem-fraction-static", "0.2"]
ASK = {"text": "Once upon a time", "sampling_params": {"max_new_tokens": 16, "temperature": 0, "ignore_eos": True}}
LONG = {"text": "Once", "sampling_params": {"max_new_tokens": 1900, "temperature": 0, "ignore_eos": True}}
IP = shutil.which("ip") or shutil.which("ip", path="/usr/sbin:/sbin")


def run(*words):
    return subprocess.run([IP, *words], capture_output=True, text=True, check=False)


class Machines:
    """The machines of node 0 and node 1: `address` of node 0, and the prefix of node 1's command."""

    def __enter__(self):
        self.name = f"tsr{os.getpid()}"
        self.address, self.prefix, self.separate = "127.0.0.2", [], False
        self.reason = self._separate()
        if self.reason:
            print(f"two machines are two addresses of the loopback interface: {self.reason}")
        return self

    def _separate(self):
        """Creates namespaces; returns why that failed, or ""."""
        if ON_GPUS:
            return "the GPUs are those of this one"
        if IP is None:
            return "there is no command ip (Debian: apt-get install iproute2)"
        net = f"10.{os.getpid() % 200 + 20}.{os.getpid() // 200 % 250}"
        for words in (["netns", "add", self.name],
                      ["link", "add", f"{self.name}a", "type", "veth", "peer", "name", f"{self.name}b", "netns", self.name],
                      ["addr", "add", f"{net}.1/24", "dev", f"{self.name}a"], ["link", "set", f"{self.name}a", "up"],
                      ["-n", self.name, "addr", "add", f"{net}.2/24", "dev", f"{self.name}b"],
                      ["-n", self.name, "link", "set", f"{self.name}b", "up"], ["netns", "exec", self.name, "true"]):
            done = run(*words)
            if done.returncode != 0:
                self._remove()
                return f"ip {' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}"
        self.address, self.prefix, self.separate = f"{net}.1", [IP, "netns", "exec", self.name], True
        return ""

    def cable(self, state):
        assert run("link", "set", f"{self.name}a", state).returncode == 0

    def _remove(self):
        run("link", "del", f"{self.name}a")
        run("netns", "del", self.name)

    def __exit__(self, *_):
        if self.separate:
            self._remove()


class TwoNodes:
    """A server with its second rank in another process, `follower`. `said` is that process's standard error once it has ended."""

    def __init__(self, tessera, machines, timeout_s=30, more=()):
        with socket.socket() as probe:
            probe.bind((machines.address, 0))
            port = probe.getsockname()[1]
        # Each node gets half of the cores, like each of two ranks in one process: with another number of threads, a kernel's
        # order of sums differs.
        self.cores = halves_of_the_cores()
        self.flags = [*FLAGS, *more, "--dist-timeout", str(timeout_s), "--nnodes", "2", "--dist-init-addr", f"{machines.address}:{port}"]
        devices = [["--device", f"cuda:{node}"] if ON_GPUS else [] for node in (0, 1)]
        self.server = Served(tessera, [*self.flags, *devices[0]])
        self.server.command = [*self.cores[0], *self.server.command]
        self.command = [*machines.prefix, *self.cores[1], tessera, "serve", "--model-path", str(MODEL), *self.flags, *devices[1],
                        "--node-rank", "1"]

    def __enter__(self):
        self.lost = ""  # the server's message at its end about a lost node
        self.errors = tempfile.TemporaryFile(mode="w+")
        self.follower = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.errors)
        try:
            self.server.__enter__()
        except BaseException:
            self.follower.kill()
            self.follower.wait()
            raise
        return self

    def __exit__(self, kind, *_):
        try:
            self.server.__exit__(kind)
        except RuntimeError as error:  # its exit status reports the loss
            if not self.lost or self.server.process.returncode != 1 or self.lost not in str(error):
                raise
        finally:
            try:
                self.follower.wait(20)
                late = False
            except subprocess.TimeoutExpired:
                late = True
                self.follower.kill()
                self.follower.wait()
            with self.errors:
                self.errors.seek(0)
                self.said = self.errors.read()
        assert not late, f"node 1 stayed behind: {self.said}"

    def ask_while(self, act):
        """Calls `act` in the middle of a long request; returns the request's (status, answer, seconds since `act`)."""
        answered = []

        def ask():
            try:
                answered.append(self.server.post("/generate", LONG))
            except (OSError, http.client.HTTPException) as error:
                answered.append((0, repr(error)))
        thread = threading.Thread(target=ask)
        thread.start()
        time.sleep(0.25)
        assert not answered, answered
        began = time.monotonic()
        act()
        thread.join(60)
        assert answered, "the request did not end"
        return *answered[0], time.monotonic() - began

    def last_answer(self, ask):
        """Returns (status, answer); None if a slow machine asks too late and the server has already ended with its error."""
        self.lost = "tessera: error: node 1 of 2 ("
        try:
            return ask()
        except (OSError, http.client.HTTPException):
            assert self.server.process.wait(10) == 1
            return None

    def node_0_says_so_and_ends_within(self, seconds):
        """Checks that /health becomes 503 with node 1's name, and that node 0 then ends by itself with that error."""
        deadline = time.monotonic() + seconds
        while True:
            answered = self.last_answer(lambda: self.server.get("/health"))
            if answered is None or answered[0] == 503:
                break
            assert time.monotonic() < deadline, "/health does not notice"
            time.sleep(0.05)
        assert answered is None or "node 1 of 2 (" in answered[1], answered
        assert self.server.process.wait(10) == 1


class Cases:
    def __init__(self, tessera, machines):
        self.tessera, self.machines = tessera, machines

    def _assert_lost(self, nodes, status, answer):
        assert status == 503, (status, answer)
        assert "node 1 of 2 (" in str(answer) and "is gone" in str(answer), answer
        answered = nodes.last_answer(lambda: nodes.server.post("/generate", ASK))
        assert answered is None or (answered[0] == 503 and "node 1 of 2 (" in str(answered[1])), answered
        nodes.node_0_says_so_and_ends_within(0)

    def answers_are_those_of_threads(self):
        device = ["--device", "cuda:0"] if ON_GPUS else []
        with TwoNodes(self.tessera, self.machines) as nodes, Served(self.tessera, [*FLAGS, *device]) as threads:
            for text in ("Once upon a time", "Once " * 40):
                ask = {**ASK, "text": text, "return_logprob": True}
                (status, two), (_, one) = nodes.server.post("/generate", ask), threads.post("/generate", ask)
                assert status == 200, two
                assert two["text"] == one["text"], (one, two)
                logprobs = [[row[0] for row in answer["meta_info"]["output_token_logprobs"]] for answer in (one, two)]
                assert logprobs[0] == logprobs[1] and len(logprobs[0]) == 16, logprobs

            async def together():
                return await asyncio.gather(*(nodes.server.stream("/generate", ASK) for _ in range(6)))
            texts = {events[-1]["text"] for events in asyncio.run(together())}
            assert len(texts) == 1, texts
            _, metrics = nodes.server.get("/metrics")
            assert 'tessera:rank_memory_bytes{rank="1"' in metrics
        assert nodes.follower.returncode == 0, nodes.said
        assert "Node 1 of 2: ended" in nodes.said, nodes.said

    def a_node_that_is_killed(self):
        with TwoNodes(self.tessera, self.machines) as nodes:
            status, answer, seconds = nodes.ask_while(nodes.follower.kill)
            self._assert_lost(nodes, status, answer)
            assert seconds < 5, seconds

    def a_node_that_is_killed_while_nobody_asks(self):
        with TwoNodes(self.tessera, self.machines) as nodes:
            assert nodes.server.get("/health")[0] == 200
            nodes.follower.kill()
            nodes.node_0_says_so_and_ends_within(5)

    def a_node_that_stands_still(self):
        with TwoNodes(self.tessera, self.machines, timeout_s=8) as nodes:
            status, answer, seconds = nodes.ask_while(lambda: nodes.follower.send_signal(signal.SIGSTOP))
            nodes.follower.send_signal(signal.SIGCONT)
            self._assert_lost(nodes, status, answer)
            assert 3 < seconds < 30, seconds
        assert nodes.follower.returncode == 1, nodes.said
        assert "node 0 of 2 (" in nodes.said, nodes.said

    def a_cable_that_is_cut(self):
        with TwoNodes(self.tessera, self.machines, timeout_s=8) as nodes:
            try:
                status, answer, seconds = nodes.ask_while(lambda: self.machines.cable("down"))
                self._assert_lost(nodes, status, answer)
                assert 3 < seconds < 30, seconds
                nodes.follower.wait(30)
            finally:
                self.machines.cable("up")
        assert nodes.follower.returncode == 1 and "node 0 of 2 (" in nodes.said, nodes.said

    def both_are_told_to_stop(self):
        """Stops both nodes, as Kubernetes and Slurm do; the running request still completes."""
        with TwoNodes(self.tessera, self.machines, more=["--drain-timeout", "120"]) as nodes:  # slow beside other tests
            def stop():
                for process in (nodes.follower, nodes.server.process):
                    process.send_signal(signal.SIGTERM)
            status, answer, _ = nodes.ask_while(stop)
            assert nodes.server.process.wait(30) == 0
            assert status == 200 and answer["meta_info"]["completion_tokens"] == 1900, (status, answer)
        assert nodes.follower.returncode == 0, nodes.said

    def a_node_that_is_told_twice_leaves(self):
        with TwoNodes(self.tessera, self.machines) as nodes:
            nodes.follower.send_signal(signal.SIGTERM)
            time.sleep(1)
            assert nodes.follower.poll() is None, "it does not wait for node 0"
            assert nodes.server.get("/health")[0] == 200
            nodes.follower.send_signal(signal.SIGTERM)
            assert nodes.follower.wait(5) == 0
            nodes.node_0_says_so_and_ends_within(5)
        assert "Stopping when node 0 does, in 40 s at the latest" in nodes.said and "Stopping at once" in nodes.said, nodes.said

    def a_node_waits_for_node_0_only_so_long(self):
        with TwoNodes(self.tessera, self.machines, more=["--drain-timeout", "0"]) as nodes:
            nodes.follower.send_signal(signal.SIGTERM)
            began = time.monotonic()
            assert nodes.follower.wait(30) == 0
            assert 9 < time.monotonic() - began < 20
            nodes.node_0_says_so_and_ends_within(5)
        assert "Stopping when node 0 does, in 10 s at the latest" in nodes.said and "Stopping at once" not in nodes.said, nodes.said

    def node_0_that_is_killed(self):
        nodes = TwoNodes(self.tessera, self.machines)
        try:
            with nodes:
                began = time.monotonic()
                nodes.server.process.kill()
                nodes.follower.wait(20)
                assert time.monotonic() - began < 5, "node 1 stays"
        except RuntimeError:  # the signal ended the server
            pass
        assert nodes.follower.returncode == 1, nodes.said
        assert "tessera: error: node 0 of 2 (" in nodes.said and "is gone" in nodes.said, nodes.said


def main():
    with Machines() as machines:
        skipped = [] if machines.separate else ["a_cable_that_is_cut"]
        passed, failed = run_cases(Cases(sys.argv[1], machines), skipped)
    for name in skipped:
        print(f"skipped: {name}: {machines.reason}")
    print(f"{len(skipped)} skipped")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
