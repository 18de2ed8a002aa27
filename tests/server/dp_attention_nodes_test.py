#!/usr/bin/env python3
"""Two servers whose ranks share experts, in two processes: tests/server/dp_attention_nodes_test.py TESSERA

Catches: answers that differ from those of one process, a node that serves no requests or ends while another has some, a
node that continues alone or hangs when the other is lost, and nodes that serve although they were started differently.

The last line is "N passed, N failed"."""

import asyncio
import http.client
import json
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from dp_attention_test import MIXTURE
from served import MODEL, Served, halves_of_the_cores, run_cases

FLAGS = ["--load-format", "dummy", "--random-seed", "3", "--dtype", "float32", "--context-length", "2048", "--max-total-tokens", "8192",
         "--max-running-requests", "8", "--piecewise-cuda-graph-tokens", "16,64", "--cuda-graph-bs", "1,4", "--chunked-prefill-size", "64"]
# The limits are long, because a long request takes a while when other tests run beside it.
RANKS = ["--tp-size", "4", "--ep-size", "2", "--enable-dp-attention", "--dist-timeout", "30", "--drain-timeout", "120"]
LONG = 1900  # tokens


class Nodes:
    """A server on each of two nodes, `servers`. Servers that still run at the end are killed."""

    def __init__(self, tessera, folder):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        self.servers = [Served(tessera, [*FLAGS, *RANKS, "--nnodes", "2", "--dist-init-addr", address, "--node-rank", str(node)], folder)
                        for node in (0, 1)]
        # If there were more threads than cores, threads would wait for one another at every exchange.
        for server, cores in zip(self.servers, halves_of_the_cores()):
            server.command = [*cores, *server.command]

    def start(self):
        """Starts both nodes, which wait for each other; returns the errors of those that did not start."""
        errors = [None, None]

        def begin(node):
            try:
                self.servers[node].__enter__()
            except RuntimeError as error:
                errors[node] = str(error)

        threads = [threading.Thread(target=begin, args=(node,)) for node in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return errors

    def __enter__(self):
        errors = self.start()
        assert errors == [None, None], errors
        return self

    def __exit__(self, *_):
        for server in self.servers:
            server.process.kill()
            server._end()

    def ended(self, statuses):
        """Waits until both have ended by themselves with these exit statuses; returns the output of each."""
        said = []
        for server, status in zip(self.servers, statuses):
            server.process.wait(30)
            server.errors.seek(0)
            said.append(server.errors.read())
            assert server.process.returncode == status, (server.process.returncode, said)
        return said


def ask(server, first, tokens=24):
    return server.post("/generate", {"input_ids": [first, 17, 33, 4, 9, 12], "sampling_params": {
        "max_new_tokens": tokens, "ignore_eos": True, "temperature": 0}})


class Asking:
    """Runs a long request on a thread; wait() returns its (status, answer)."""

    def __init__(self, server, first):
        self.answer = None
        self.thread = threading.Thread(target=self._ask, args=(server, first))
        self.thread.start()
        deadline = time.monotonic() + 30
        while not re.search(r"^sglang:num_running_reqs\{.*\} 1$", server.get("/metrics")[1], re.MULTILINE):
            assert time.monotonic() < deadline and self.answer is None, "the request did not run, or has ended already"
            time.sleep(0.01)

    def _ask(self, server, first):
        try:
            self.answer = ask(server, first, LONG)
        except (OSError, http.client.HTTPException) as error:
            self.answer = (0, repr(error))

    def wait(self):
        self.thread.join(120)
        return self.answer


class Cases:
    def __init__(self, tessera, folder, one):
        self.tessera, self.folder, self.one = tessera, folder, one

    def _nodes(self):
        return Nodes(self.tessera, self.folder)

    def answers_are_those_of_one_rank(self):
        def ids(server, first):
            status, body = ask(server, first)
            assert status == 200, body
            return body["output_ids"]

        alone = [ids(self.one, first) for first in range(3, 11)]
        with self._nodes() as nodes:
            for server in nodes.servers:
                assert [ids(server, first) for first in range(3, 11)] == alone, "one request at a time"
                assert json.loads(server.get("/get_server_info")[1])["options"]["dp_size"] == 4

            async def together():
                return await asyncio.gather(*(asyncio.to_thread(ids, nodes.servers[first % 2], first) for first in range(3, 11)))

            assert asyncio.run(together()) == alone

    def a_node_stays_for_the_requests_of_the_other(self):
        for told in (0, 1):
            with self._nodes() as nodes:
                asking = Asking(nodes.servers[1 - told], 3)
                nodes.servers[told].process.send_signal(signal.SIGTERM)
                status, body = asking.wait()
                assert status == 200 and len(body["output_ids"]) == LONG, status
                said = nodes.ended((0, 0))
                assert f"Stopping with node {told}" in said[1 - told] and "fail" not in said[0] + said[1], said

    def both_are_told_at_once(self):
        with self._nodes() as nodes:
            for server in nodes.servers:
                server.process.send_signal(signal.SIGTERM)
            said = nodes.ended((0, 0))
            assert "fail" not in said[0] + said[1], said

    def a_second_signal_does_not_wait(self):
        with self._nodes() as nodes:
            asking = Asking(nodes.servers[0], 3)
            nodes.servers[1].process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            assert nodes.servers[1].process.poll() is None and asking.answer is None, asking.answer
            nodes.servers[1].process.send_signal(signal.SIGTERM)
            nodes.servers[1].process.wait(10)
            status, body = asking.wait()
            assert status == 503 and "node 1" in json.dumps(body), (status, body)
            said = nodes.ended((1, 0))
            assert "Ended before the other nodes" in said[1], said

    def a_node_that_is_killed_ends_the_other(self):
        for lost in (0, 1):
            with self._nodes() as nodes:
                asking = Asking(nodes.servers[1 - lost], 3)
                nodes.servers[lost].process.kill()
                status, body = asking.wait()
                assert status == 503 and f"node {lost} of 2" in json.dumps(body), (status, body)
                said = nodes.ended((-9, 1) if lost == 0 else (1, -9))
                assert f"node {lost} of 2" in said[1 - lost] and "Ended before" not in said[1 - lost], said

    def an_idle_node_notices_too(self):
        with self._nodes() as nodes:
            nodes.servers[0].process.kill()
            assert "node 0 of 2" in nodes.ended((-9, 1))[1]

    def what_differs_is_named_by_both(self):
        for other, words in ((lambda command: [*command, "--page-size", "32"], "--page-size: 16 on node 0 and 32 on node 1"),
                             (lambda command: ["8" if word == "4" else word for word in command], "--tp-size: 4 on node 0 and 8 on node 1"),
                             (lambda command: [word for word in command if word != "--enable-dp-attention"], "--enable-dp-attention: ")):
            nodes = Nodes(self.tessera, self.folder)
            for server in nodes.servers:  # node 0 waits for the other nodes until its time limit
                server.command[server.command.index("--dist-timeout") + 1] = "8"
            nodes.servers[1].command = other(nodes.servers[1].command)
            for error in nodes.start():
                assert error and words in error, error

    def what_cannot_be_is_told_before_anybody_is_awaited(self):
        def refusal(model, nodes):
            return subprocess.run([self.tessera, "serve", "--model-path", str(model), "--port", "0", *FLAGS, *RANKS, "--nnodes", nodes,
                                   "--dist-init-addr", "127.0.0.1:1"], capture_output=True, text=True, timeout=20, check=False)
        done = refusal(self.folder, "3")
        assert done.returncode == 2 and "4 ranks (--tp-size) do not divide among 3 nodes" in done.stderr, done.stderr
        done = refusal(MODEL, "2")
        assert done.returncode != 0 and "the model has no experts" in done.stderr, done.stderr


def main():
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(MIXTURE), encoding="utf-8")
        with Served(sys.argv[1], FLAGS, folder) as one:
            passed, failed = run_cases(Cases(sys.argv[1], folder, one))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
